"""The controls of the page and their layout: two columns, or one on a narrow screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import panel as pn

from hydiff.cube import Cube
from hydiff.viewer import running_fill
from hydiff.viewer.curves import Curves
from hydiff.viewer.picture import Picture
from hydiff.viewer.rendering import COMPOSITE, PALETTES, SINGLE
from hydiff.viewer.sheet import HIDDEN, OUTLINED, SHADED
from hydiff.viewer.widgets import (
    QUIET,
    STRETCH,
    TITLE,
    WIDE,
    button,
    card,
    check,
    column,
    download,
    heading,
    index,
    over,
    row,
    select,
    share,
    text,
    words,
)

OWN = "Own choice"
FILL, COMPARE, OPEN = "Fill gaps", "Compare fills", "Open files"  # cards, of which one is shown
CORNER = {"position": "absolute", "top": "40px", "right": "22px", "width": "auto", "z-index": "1"}


class Controls:
    """All widgets of the page, as attributes."""

    def __init__(self, cube: Cube, presets: dict[str, tuple[int, int, int]], output: Path | None):
        self._picture(cube, presets)
        self._files_and_fills(output)
        rows, cols = cube.shape[1:]
        self.row, self.col = index("Row", rows), index("Column", cols)
        self.add, self.clear = button("Add spectrum"), button("Clear")
        self.csv = download("Spectra (CSV)", "spectra.csv")
        self.region = text("Mean of rows, columns", "10:20, 30:40")
        self.title, self.alert = words("title", TITLE), words("alert")
        self.state, self.scale = words("state", QUIET), words("bar")
        self.readout, self.picks = words("readout"), words("picks")
        self.marked, self.status = words("marked"), words("status")
        self.saved, self.busy = words("saved"), words("busy")
        self.north, self.compared = words("north"), words("compared")
        self.keys = words("keys", QUIET)
        self.north.styles = CORNER

    def _picture(self, cube: Cube, presets: dict[str, tuple[int, int, int]]) -> None:
        """Create the widgets that choose the picture; presets: bands (from 0) by name."""
        several = cube.bands > 1
        rgb = next(iter(presets.values()))

        def band(label: str, value: int) -> Any:
            last = max(cube.bands, 2)  # a slider needs two ends
            look = {"visible": several, **WIDE}
            return pn.widgets.IntSlider(label=label, start=1, end=last, value=value + 1, **look)

        self.show = select("Show", [COMPOSITE, SINGLE] if several else [SINGLE])
        self.stretch = pn.widgets.RangeSlider(
            label="Stretch, percentiles of valid pixels", end=100, value=(1, 99), step=0.5, **WIDE
        )
        self.preset = select("Colours", [*presets, OWN])
        self.rgb = list(map(band, ("Red band", "Green band", "Blue band"), rgb))
        self.band = band("Band", rgb[0])
        self.palette = select("Palette", list(PALETTES), "Viridis")
        self.gaps = select("Gaps", [SHADED, OUTLINED, HIDDEN])
        self.map = check("Map lines", value=True)
        self.map.visible = cube.transform is not None
        self.flicker = check("Flicker samples")
        self.png = download("Picture (PNG)", "picture.png")

    def _files_and_fills(self, output: Path | None) -> None:
        """Create the widgets of the three cards."""
        self.tab = pn.widgets.RadioButtonGroup(options=[FILL, COMPARE, OPEN], **WIDE)
        self.method = select("Method", list(running_fill.NAMES))
        self.budget = select("Effort", list(running_fill.BUDGETS), "normal")
        self.settings = text("Settings of the method", "steps=300")
        self.with_reference = check("Fill with the reference")
        self.with_reference.visible = False
        self.drag = select("Drag on the picture to", [])
        self.rectangle = text("Mark rows, columns as gap", "10:20, 30:40")
        self.undo = button("Unmark last")
        self.fill, self.stop, self.save = button("Fill", "primary"), button("Stop"), button("Save")
        self.stop.disabled = self.save.disabled = True
        self.name = text("Save as", "NAME.tif")
        self.name.value = "" if output is None else output.name
        self.bar = pn.indicators.Progress(value=0, max=100, height=14, visible=False, **WIDE)
        self.left, self.right = select("Left of the line", [""]), select("Right of the line", [""])
        self.small = pn.Column(**STRETCH)
        self.file = select("File", [""])
        self.open_scene, self.open_fill = button("Open"), button("Add as fill")
        self.open_reference = button("Add as reference")
        self.list_again, self.reread = button("List again"), button("Read the scene again")

    def arranged(self, picture: Picture, curves: Curves) -> Any:
        """Return the layout: the picture in the left column, spectra and cards in the right one."""
        self.drag.options, self.drag.value = list(picture.tools), next(iter(picture.tools))
        self.swipe = pn.pane.Bokeh(picture.slider, **STRETCH)
        self.colour_row = row(share(self.preset, 170), *(share(b, 100) for b in self.rgb))
        self.single_row = row(share(self.band, 220), share(self.palette, 120))
        drawing = pn.pane.Bokeh(picture.figure, **STRETCH)
        left = card(
            row(share(self.show, 170), share(self.stretch, 220)),
            self.colour_row,
            self.single_row,
            over(drawing, self.swipe, self.north),
            self.scale,
            row(share(self.gaps, 90), share(self.drag, 150), self.map, self.flicker, self.png),
            self.state,
            self.readout,
            self.keys,
        )
        self.fill_card, self.compare_card = self._fill(), self._compare()
        self.open_card = self._open()
        cards = (self.fill_card, self.compare_card, self.open_card)
        right = column(self._spectra(curves), card(self.tab, self.busy, self.bar, *cards))
        columns = pn.FlexBox(column(left), right, align_items="flex-start", gap="12px", **STRETCH)
        return pn.Column(self.title, self.alert, columns, styles={"padding": "4px"}, **STRETCH)

    def _spectra(self, curves: Curves) -> Any:
        return card(
            row(share(heading("Spectra"), 100), self.csv),
            row(self.row, self.col, self.add, self.clear, share(self.region, 130)),
            pn.pane.Bokeh(curves.figure, **STRETCH),
            self.picks,
        )

    def _fill(self) -> Any:
        return pn.Column(
            row(share(self.method, 130), share(self.budget, 100), share(self.settings, 160)),
            self.with_reference,
            row(share(self.rectangle, 160), self.undo),
            self.marked,
            row(self.fill, self.stop, share(self.name, 150), self.save),
            self.saved,
            self.status,
            **STRETCH,
        )

    def _compare(self) -> Any:
        sides = row(share(self.left, 160), share(self.right, 160))
        return pn.Column(sides, self.compared, self.small, visible=False, **STRETCH)

    def _open(self) -> Any:
        opens = row(self.open_scene, self.open_fill, self.open_reference)
        again = row(self.list_again, self.reread)
        return pn.Column(self.file, opens, again, visible=False, **STRETCH)
