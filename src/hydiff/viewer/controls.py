"""The controls of the page and their layout: two columns on a desk, one on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import panel as pn
from bokeh.models import Div

from hydiff.cube import Cube
from hydiff.viewer import running_fill
from hydiff.viewer.browser import code
from hydiff.viewer.charts import MOVE, RECTANGLE, SHAPE, Curves, Picture
from hydiff.viewer.rendering import COMPOSITE, PALETTES, SINGLE

OWN = "Own choice"
WORDS, TITLE = code("words.css"), code("title.css")

QUIET = "p { color: #3d444d; }"
CARD = {"background": "#ffffff", "border": "1px solid #d8dce1"}
CARD |= {"border-radius": "8px", "padding": "10px 8px"}
STRETCH: dict[str, Any] = {"sizing_mode": "stretch_width"}
MARGIN: dict[str, Any] = {"margin": (4, 6)}
WIDE = STRETCH | MARGIN
LINK = ":host .bk-btn a { font-size: 12px; line-height: 17.14px; padding: 6px 12px; }"


class Controls:
    """Every widget of the page by its name."""

    def __init__(self, cube: Cube, presets: dict[str, tuple[int, int, int]], output: Path | None):
        rows, cols = cube.shape[1:]
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
        self.gaps = pn.widgets.Checkbox(label="Show gaps", margin=(10, 6))
        self.png = download("Picture (PNG)", "picture.png")
        self.reread = button("Read again")

        self.row, self.col = index("Row", rows), index("Column", cols)
        self.add, self.clear = button("Add spectrum"), button("Clear")
        self.csv = download("Spectra (CSV)", "spectra.csv")

        self.method = select("Method", list(running_fill.NAMES))
        self.budget = select("Effort", list(running_fill.BUDGETS), "normal")
        self.settings = text("Settings of the method", "steps=300")
        self.drag = select("Drag on the picture to", [MOVE, RECTANGLE, SHAPE])
        self.rectangle = text("Mark rows, columns as gap", "10:20, 30:40")
        self.undo = button("Unmark last")
        self.fill, self.stop, self.save = button("Fill", "primary"), button("Stop"), button("Save")
        self.stop.disabled = self.save.disabled = True
        self.name = text("Save as", "NAME.tif")
        self.name.value = "" if output is None else output.name
        self.bar = pn.indicators.Progress(value=0, max=100, height=14, visible=False, **WIDE)

        self.title, self.alert = words("title", TITLE), words("alert")
        self.state, self.scale = words("state", QUIET), words("bar")
        self.readout, self.picks = words("readout"), words("picks")
        self.marked, self.status = words("marked"), words("status")

    def arranged(self, picture: Picture, curves: Curves) -> Any:
        """The layout; each of the two columns has a drawing."""
        self.swipe = pn.pane.Bokeh(picture.slider, **WIDE)
        self.colour_row = row(share(self.preset, 170), *(share(b, 100) for b in self.rgb))
        self.single_row = row(share(self.band, 220), share(self.palette, 120))
        drawing = pn.pane.Bokeh(picture.figure, **STRETCH)
        left = card(
            row(share(self.show, 170), share(self.stretch, 220)),
            self.colour_row,
            self.single_row,
            self.state,
            drawing,
            self.scale,
            self.swipe,
            self.readout,
            row(self.gaps, self.png, self.reread),
        )
        right = column(self._spectra(curves), self._fill())
        columns = pn.FlexBox(column(left), right, align_items="flex-start", gap="12px", **STRETCH)
        return pn.Column(self.title, self.alert, columns, styles={"padding": "4px"}, **STRETCH)

    def _spectra(self, curves: Curves) -> Any:
        return card(
            heading("Spectra"),
            row(self.row, self.col, self.add, self.clear, self.csv),
            pn.pane.Bokeh(curves.figure, **STRETCH),
            self.picks,
        )

    def _fill(self) -> Any:
        return card(
            heading("Fill"),
            row(share(self.method, 130), share(self.budget, 100), share(self.settings, 160)),
            row(share(self.drag, 160), share(self.rectangle, 160), self.undo),
            self.marked,
            row(self.fill, self.stop, share(self.name, 150), self.save),
            self.bar,
            self.status,
        )


def select(label: str, options: list[str], value: str | None = None) -> Any:
    return pn.widgets.Select(label=label, options=options, value=value or options[0], **WIDE)


def text(label: str, example: str) -> Any:
    return pn.widgets.TextInput(label=label, placeholder=example, **WIDE)


def index(label: str, length: int) -> Any:
    middle, last = length // 2, length - 1
    return pn.widgets.IntInput(label=label, start=0, end=last, value=middle, width=80, **MARGIN)


def button(label: str, kind: str = "default") -> Any:
    return pn.widgets.Button(label=label, color=kind, **MARGIN)


def download(label: str, filename: str) -> Any:
    """A button that hands over what its `callback` makes, through the page's own connection."""
    look = {"color": "default", "stylesheets": [LINK], **MARGIN}
    return pn.widgets.FileDownload(label=label, filename=filename, **look)


def words(name: str, *styles: str) -> Any:
    """A piece of text on the page, found by its class.

    Bokeh's, because a pane of Panel's asks the network for its looks when it changes in a notebook.
    """
    return Div(css_classes=[name], stylesheets=[WORDS, *styles], **WIDE)


def heading(name: str) -> Any:
    return Div(text=f"<h2>{name}</h2>", stylesheets=[WORDS], **WIDE)


def column(*items: Any) -> Any:
    styles = {"flex": "1 1 460px", "min-width": "min(100%, 340px)", "width": "auto", "gap": "12px"}
    return pn.Column(*items, styles=styles, **STRETCH)


def card(*items: Any) -> Any:
    return pn.Column(*items, styles=CARD, **STRETCH)


def row(*items: Any) -> Any:
    return pn.FlexBox(*items, align_items="flex-end", **STRETCH)


def share(item: Any, least: int) -> Any:
    """A part of a row that grows, and is at least this many px wide."""
    item.styles = {"flex": f"1 1 {least}px", "width": "auto"}
    return item
