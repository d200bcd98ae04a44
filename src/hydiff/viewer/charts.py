"""The two drawings of the page, in Bokeh: the picture to swipe over, and the spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import models
from bokeh.events import MouseEnter, MouseLeave, MouseMove
from bokeh.models import ColumnDataSource, CustomJS
from bokeh.plotting import figure

from hydiff.cube import Array, Bools, Cube
from hydiff.report.plots import GAP_COLOUR
from hydiff.viewer import images, spectra
from hydiff.viewer.browser import code
from hydiff.viewer.images import Pixels
from hydiff.viewer.rendering import Sight
from hydiff.viewer.scene_layers import ImageWindow
from hydiff.viewer.spectra import COLOURS, Spectrum

MOVE, RECTANGLE, SHAPE = "Move the picture", "Mark a rectangle", "Mark a shape"
GAPS = f"#{bytes(GAP_COLOUR).hex()}"
GROUND = "#e6e8eb"  # behind the picture
INK = "#3d444d"  # of what is written on the axes
SHADE: dict[str, Any] = {"fill_color": "#777777", "fill_alpha": 0.25}  # of bad bands
OPACITY = 0.55  # of the gaps over the picture
LOOK: dict[str, Any] = {"outline_line_color": None, "min_border": 8, "toolbar_location": "above"}
LOOK |= {"sizing_mode": "stretch_width"}

TAKE = "for (const [name, tool] of Object.entries(tools)) tool.active = name == cb_obj.value"
STYLES: dict[str, dict[str, Any]] = {
    "before": {"line_width": 6, "line_alpha": 0.35},
    "after": {"line_width": 2},
    "truth": {"line_width": 2, "line_dash": "dashed"},
}


class Sheet:
    """An image on the picture: before and after with a line between them, and the gaps over it."""

    def __init__(self, on: Any, name: str, window: ImageWindow) -> None:
        self.none = np.zeros((0, 0), np.uint32)
        blank, place = np.zeros((1, 1), np.uint32), placed(window)
        self.pair = ColumnDataSource({"before": [self.none], "after": [blank], **place})
        self.shown = ColumnDataSource({"image": [blank], **place}, name=name)
        gaps = blank.astype(np.uint8)
        self.missing = ColumnDataSource({"image": [gaps], **place}, name=f"{name} gaps")
        at = {key: key for key in ("image", *place)}
        self.image = on.image_rgba(**at, source=self.shown)
        mapper = models.LinearColorMapper(palette=["rgba(0,0,0,0)", GAPS], low=0, high=1)
        over: dict[str, Any] = {"color_mapper": mapper, "global_alpha": OPACITY}
        self.overlay = on.image(**at, source=self.missing, **over)
        self._lost: tuple[ImageWindow, bytes] | None = None

    def show(self, pictures: Sequence[Pixels], missing: Bools, window: ImageWindow) -> None:
        """One picture, or before and after, (rows, cols, 4), and the gaps (rows, cols) there."""
        before = images.packed(pictures[0]) if len(pictures) == 2 else self.none
        after = images.packed(pictures[-1])
        place = placed(window)
        self.pair.data = {"before": [before], "after": [after], **place}
        if self.pair.document is None:  # no browser yet that could put the two together
            whole = images.swiped(pictures[0], pictures[-1], round(0.5 * after.shape[1]))
            self.shown.data = {"image": [images.packed(whole)], **place}
        lost = (window, np.packbits(missing).tobytes())
        if lost != self._lost:  # most bands have the gaps of the one before
            self._lost = lost
            self.missing.data = {"image": [missing.astype(np.uint8)], **place}


class Picture:
    """The scene at a glance; over it, where that is coarse, a sharper image of what is in sight."""

    def __init__(self, whole: ImageWindow) -> None:
        rows, cols = whole.bottom, whole.right
        self.markers = ColumnDataSource({k: [] for k in ("x", "y", "colour", "number")})
        self.marks = ColumnDataSource({"xs": [], "ys": []})
        self.at = ColumnDataSource({"row": [-1], "col": [-1]})  # the pixel under the mouse
        self.sight = ColumnDataSource({name: [0.0] for name in Sight._fields})
        aspect = {"match_aspect": True, "aspect_ratio": float(np.clip(cols / rows, 0.7, 2.2))}
        self.figure = figure(
            tools="",
            x_range=models.DataRange1d(range_padding=0),
            y_range=models.DataRange1d(range_padding=0, flipped=True),
            width=None,
            height=None,
            background_fill_color=GROUND,
            x_axis_label="Column",
            y_axis_label="Row",
            **aspect,
            **LOOK,
        )
        quiet(self.figure)
        self.figure.grid.visible = False
        self.glance = Sheet(self.figure, "picture", whole)
        self.detail = Sheet(self.figure, "detail", ImageWindow(0, 1, 0, 1))
        self.figure.x_range.renderers = self.figure.y_range.renderers = [self.glance.image]
        self.show_gaps(False)
        self.sharpen(None)
        self._marks()
        self._tools()
        self._swipe(cols)
        self._senses()

    def _senses(self) -> None:
        """What the browser sends of the mouse and of the part in sight."""
        at = {"at": self.at}
        away = "at.data = {row: [-1], col: [-1]}"
        self.figure.js_on_event(MouseEnter, CustomJS(code=code("hold.js")))
        self.figure.js_on_event(MouseMove, CustomJS(args=at, code=code("hover.js")))
        self.figure.js_on_event(MouseLeave, CustomJS(args=at, code=away))
        args = {"figure": self.figure, "sight": self.sight}
        send = CustomJS(args=args, code=code("sight.js"))
        self.figure.js_on_change("inner_width", send)
        for axis in (self.figure.x_range, self.figure.y_range):
            axis.js_on_change("start", send)
            axis.js_on_change("end", send)

    def _marks(self) -> None:
        self.figure.patches(
            "xs", "ys", source=self.marks, color=GAPS, alpha=0.45, line_color="white", line_width=2
        )
        at: dict[str, Any] = {"x": "x", "y": "y", "source": self.markers}
        self.figure.scatter(**at, size=18, fill_color="colour", line_color="white", line_width=2)
        middle = {"text_align": "center", "text_baseline": "middle"}
        bold = {"text_font_size": "12px", "text_font_style": "bold", "text_color": "white"}
        self.figure.text(**at, text="number", **middle, **bold)

    def _tools(self) -> None:
        self.tools: dict[str, Any] = {
            MOVE: models.PanTool(),
            # these two are chosen beside the picture
            RECTANGLE: models.BoxSelectTool(renderers=[], visible=False),
            SHAPE: models.LassoSelectTool(renderers=[], continuous=False, visible=False),
        }
        zooms = models.BoxZoomTool(match_aspect=True), models.WheelZoomTool(), models.ResetTool()
        self.figure.add_tools(*self.tools.values(), *zooms)
        self.figure.toolbar.active_drag = self.tools[MOVE]

    def _swipe(self, cols: int) -> None:
        look: dict[str, Any] = {"sizing_mode": "stretch_width"}
        look |= {"title": "Swipe, before | after at column"}
        self.slider = models.Slider(start=0, end=cols, value=cols // 2, step=1, **look)
        line: dict[str, Any] = {"line_color": "white", "line_width": 4, "line_alpha": 0.9}
        line |= {"level": "image", "editable": True}  # over the pictures, under the markers
        self.split = models.Span(location=cols // 2, dimension="height", **line)
        self.figure.add_layout(self.split)
        args = {"slider": self.slider, "span": self.split}
        for sheet in (self.glance, self.detail):
            both = {**args, "pair": sheet.pair, "shown": sheet.shown}
            compose = CustomJS(args=both, code=code("swipe.js"))
            sheet.pair.js_on_change("data", compose)
            self.slider.js_on_change("value", compose)
        follow = CustomJS(args=args, code="span.location = slider.value")
        lead = "slider.value = Math.min(slider.end, Math.max(0, Math.round(span.location)))"
        self.slider.js_on_change("value", follow)
        self.split.js_on_change("location", CustomJS(args=args, code=lead))

    def show(self, pictures: Sequence[Pixels], missing: Bools, whole: ImageWindow) -> None:
        """At a glance: one picture, or before and after, and the gaps."""
        self.sharpen(None)
        self.glance.show(pictures, missing, whole)
        self.split.visible = len(pictures) == 2

    def sharpen(
        self,
        window: ImageWindow | None,
        pictures: Sequence[Pixels] = (),
        missing: Bools | None = None,
    ) -> None:
        """The same for a part; None takes it away.  It hides what lies under it."""
        if window is not None and missing is not None:
            self.detail.show([images.opaque(p, GROUND) for p in pictures], missing, window)
        self.detail.image.visible = window is not None
        self.detail.overlay.visible = window is not None and self.glance.overlay.visible

    def show_gaps(self, wanted: bool) -> None:
        self.glance.overlay.visible = wanted
        self.detail.overlay.visible = wanted and self.detail.image.visible

    def put_markers(self, picked: Sequence[Spectrum]) -> None:
        rows = [(s.col + 0.5, s.row + 0.5, c, str(i))
                for i, (s, c) in enumerate(zip(picked, COLOURS, strict=False), 1)]  # fmt: skip
        self.markers.data = columns(rows, ("x", "y", "colour", "number"))

    def put_regions(self, regions: Sequence[tuple[Array, Array]]) -> None:
        """Outlines (columns, rows) of what was marked by hand."""
        xs, ys = ([list(outline[i]) for outline in regions] for i in (0, 1))
        self.marks.data = {"xs": xs, "ys": ys}


class Curves:
    """Spectra of the picked pixels: before, after with its error bars, truth."""

    def __init__(self, cube: Cube) -> None:
        self.x, name = spectra.axis(cube)
        labels = {"x_axis_label": name, "y_axis_label": f"Value, {spectra.unit(cube)}"}
        self.figure = figure(tools="pan,box_zoom,wheel_zoom,reset", height=300, **labels, **LOOK)
        quiet(self.figure)
        low, high = float(np.nanmin(self.x)), float(np.nanmax(self.x))
        margin = 0.02 * (high - low) or 1.0
        self.figure.x_range = models.Range1d(low - margin, high + margin)
        self.figure.y_range = models.Range1d(0, 1)
        for left, right in spectra.bad_ranges(self.x, cube.good_bands):
            shade = models.BoxAnnotation(left=left, right=right, **SHADE)
            self.figure.add_layout(shade)
        empty: dict[str, Any] = {"xs": [], "ys": [], "colour": []}
        self.lines = {n: ColumnDataSource(empty) for n in ("sigma", *STYLES)}
        self.figure.patches("xs", "ys", source=self.lines["sigma"], color="colour", alpha=0.25)
        for n, style in STYLES.items():
            self.figure.multi_line("xs", "ys", source=self.lines[n], line_color="colour", **style)
        self.filled = ColumnDataSource({"x": [], "y": [], "colour": []})
        at: dict[str, Any] = {"x": "x", "y": "y", "source": self.filled}
        self.figure.scatter(**at, marker="diamond", size=5, fill_color="white", line_color="colour")
        self.cursor = models.Span(dimension="height", line_color="#555555", line_dash="dotted")
        self.figure.add_layout(self.cursor)

    def draw(self, picked: Sequence[Spectrum]) -> None:
        curves: dict[str, list[tuple[Any, ...]]] = {n: [] for n in self.lines}
        filled: list[tuple[float, float, str]] = []
        for s, colour in zip(picked, COLOURS, strict=False):
            for n in STYLES:
                values = getattr(s, n)
                if values is not None and np.isfinite(values).any():
                    curves[n].append((*spectra.broken(self.x, values), colour))
            if s.sigma is not None:
                outlines = spectra.bands_between(self.x, s.sigma, s.best)
                curves["sigma"] += [(*outline, colour) for outline in outlines]
            filled += [(self.x[b], s.best[b], colour) for b in np.flatnonzero(s.filled)]
        for n, drawn in curves.items():
            self.lines[n].data = columns(drawn, ("xs", "ys", "colour"))
        self.filled.data = columns(filled, ("x", "y", "colour"))
        heights = [np.asarray(row[1]) for drawn in curves.values() for row in drawn]
        values = np.concatenate([h[np.isfinite(h)] for h in heights]) if heights else np.zeros(0)
        if values.size:
            low, high = float(values.min()), float(values.max())
            margin = 0.05 * (high - low) or max(abs(low), 1.0)
            self.figure.y_range.update(start=low - margin, end=high + margin)
            self.figure.y_range.update(reset_start=low - margin, reset_end=high + margin)


def quiet(drawing: Any) -> None:
    """Axes that do not shout."""
    drawing.toolbar.logo = None
    drawing.axis.axis_label_text_font_style = "normal"
    drawing.axis.axis_label_text_color = drawing.axis.major_label_text_color = INK
    drawing.axis.axis_line_color = drawing.axis.major_tick_line_color = "#8a9099"
    drawing.axis.minor_tick_line_color = None
    drawing.grid.grid_line_color = "#eceef1"


def placed(window: ImageWindow) -> dict[str, list[int]]:
    """Where the image of a window lies on the picture."""
    top, bottom, left, right, step = window
    high, wide = (-(-n // step) * step for n in (bottom - top, right - left))
    return {"x": [left], "y": [top], "dw": [wide], "dh": [high]}


def columns(rows: Sequence[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Rows of a table as its columns, for Bokeh."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
