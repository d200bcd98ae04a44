"""The two drawings of the page, in Bokeh: the picture to swipe over, and the spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.events import MouseEnter, MouseLeave, MouseMove
from bokeh.models import (
    BoxAnnotation,
    BoxSelectTool,
    BoxZoomTool,
    ColumnDataSource,
    CustomJS,
    DataRange1d,
    LassoSelectTool,
    LinearColorMapper,
    PanTool,
    Range1d,
    ResetTool,
    Slider,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from hydiff.cube import Array, Bools, Cube
from hydiff.report.plots import GAP_COLOUR
from hydiff.viewer import images, spectra
from hydiff.viewer.images import Pixels
from hydiff.viewer.rendering import Sight
from hydiff.viewer.scene_layers import ImageWindow
from hydiff.viewer.spectra import COLOURS, Spectrum

MOVE, RECTANGLE, SHAPE = "Move the picture", "Mark a rectangle", "Mark a shape"
GAPS = f"#{bytes(GAP_COLOUR).hex()}"
GROUND = "#e6e8eb"  # behind the picture
INK = "#3d444d"  # of what is written on the axes
OPACITY = 0.55  # of the gaps over the picture
LOOK: dict[str, Any] = {"outline_line_color": None, "min_border": 8}

# Before left of the line and after right of it are put together here: a swipe asks nobody.  The
# picture is changed in its place, because a new one would be sent back to Python.
SWIPE = """
const [before, after] = [pair.data.before[0], pair.data.after[0]]
const out = new after.constructor(after, after.shape)
if (before.length) {
    const [height, width] = after.shape
    const share = (slider.value - pair.data.x[0]) / pair.data.dw[0]
    const cut = Math.round(Math.min(1, Math.max(0, share)) * width)
    const plain = new Uint32Array(before.buffer, before.byteOffset, before.length)
    for (let start = 0; start < height * width; start += width)
        out.set(plain.subarray(start, start + cut), start)
}
Object.assign(shown.data, pair.data, {image: [out]})
shown.change.emit()
"""
# What is in sight is told when it has stopped moving.
SIGHT = """
clearTimeout(sight.waiting)
sight.waiting = setTimeout(() => {
    const {x_range, y_range, inner_width, inner_height} = figure
    const dense = window.devicePixelRatio
    sight.data = {
        top: [Math.min(y_range.start, y_range.end)], bottom: [Math.max(y_range.start, y_range.end)],
        left: [x_range.start], right: [x_range.end],
        high: [inner_height * dense], wide: [inner_width * dense],
    }
}, 200)
"""
TAKE = "for (const [name, tool] of Object.entries(tools)) tool.active = name == cb_obj.value"
STYLES: dict[str, dict[str, Any]] = {
    "before": {"line_width": 6, "line_alpha": 0.35},
    "after": {"line_width": 2},
    "truth": {"line_width": 2, "line_dash": "dashed"},
}
# Bokeh takes a button that is held still for 300 ms for a press, which nothing here answers, and a
# drag after it for nothing: with a slow hand or a busy machine the line would not follow.
HOLD = """
const {ui_gestures} = Bokeh.index.find_one(cb_obj.origin).canvas_view.ui_event_bus
ui_gestures.constructor.press_threshold = 1e9
"""
# one message to Python for each pixel that is entered, not for each move of the mouse
HOVER = """
const row = Math.floor(cb_obj.y), col = Math.floor(cb_obj.x)
if (at.data.row[0] != row || at.data.col[0] != col) at.data = {row: [row], col: [col]}
"""


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
        mapper = LinearColorMapper(palette=["rgba(0,0,0,0)", GAPS], low=0, high=1)
        over: dict[str, Any] = {"color_mapper": mapper, "global_alpha": OPACITY}
        self.overlay = on.image(**at, source=self.missing, **over)
        self._lost: tuple[ImageWindow, bytes] | None = None

    def show(self, made: Sequence[Pixels], missing: Bools, window: ImageWindow) -> None:
        """One picture, or before and after, (rows, cols, 4), and the gaps (rows, cols) there."""
        before = images.packed(made[0]) if len(made) == 2 else self.none
        after = images.packed(made[-1])
        place = placed(window)
        self.pair.data = {"before": [before], "after": [after], **place}
        if self.pair.document is None:  # no browser yet that could put the two together
            whole = images.swiped(made[0], made[-1], round(0.5 * after.shape[1]))
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
        self.figure = figure(
            tools="",
            x_range=DataRange1d(range_padding=0),
            y_range=DataRange1d(range_padding=0, flipped=True),
            match_aspect=True,
            aspect_ratio=float(np.clip(cols / rows, 0.7, 2.2)),
            width=None,
            height=None,
            sizing_mode="stretch_width",
            x_axis_label="Column",
            y_axis_label="Row",
            background_fill_color=GROUND,
            toolbar_location="above",
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
        """What the browser tells of the mouse and of the part in sight."""
        self.figure.js_on_event(MouseEnter, CustomJS(code=HOLD))
        self.figure.js_on_event(MouseMove, CustomJS(args={"at": self.at}, code=HOVER))
        away = CustomJS(args={"at": self.at}, code="at.data = {row: [-1], col: [-1]}")
        self.figure.js_on_event(MouseLeave, away)
        args = {"figure": self.figure, "sight": self.sight}
        observed = CustomJS(args=args, code=SIGHT)
        self.figure.js_on_change("inner_width", observed)
        for axis in (self.figure.x_range, self.figure.y_range):
            axis.js_on_change("start", observed)
            axis.js_on_change("end", observed)

    def _marks(self) -> None:
        self.figure.patches(
            "xs", "ys", source=self.marks, color=GAPS, alpha=0.45, line_color="white", line_width=2
        )
        at: dict[str, Any] = {"x": "x", "y": "y", "source": self.markers}
        self.figure.scatter(**at, size=18, fill_color="colour", line_color="white", line_width=2)
        self.figure.text(
            **at,
            text="number",
            text_color="white",
            text_align="center",
            text_baseline="middle",
            text_font_size="12px",
            text_font_style="bold",
        )

    def _tools(self) -> None:
        self.tools: dict[str, Any] = {
            MOVE: PanTool(),
            RECTANGLE: BoxSelectTool(renderers=[], visible=False),  # chosen beside the picture
            SHAPE: LassoSelectTool(renderers=[], continuous=False, visible=False),
        }
        zooms = BoxZoomTool(match_aspect=True), WheelZoomTool(), ResetTool()
        self.figure.add_tools(*self.tools.values(), *zooms)
        self.figure.toolbar.active_drag = self.tools[MOVE]

    def _swipe(self, cols: int) -> None:
        self.slider = Slider(
            start=0,
            end=cols,
            value=cols // 2,
            step=1,
            title="Swipe, before | after at column",
            sizing_mode="stretch_width",
        )
        self.split = Span(
            location=cols // 2,
            dimension="height",
            line_color="white",
            line_width=4,
            line_alpha=0.9,
            level="image",  # over the pictures, under the markers
            editable=True,
        )
        self.figure.add_layout(self.split)
        args = {"slider": self.slider, "span": self.split}
        for sheet in (self.glance, self.detail):
            both = {**args, "pair": sheet.pair, "shown": sheet.shown}
            compose = CustomJS(args=both, code=SWIPE)
            sheet.pair.js_on_change("data", compose)
            self.slider.js_on_change("value", compose)
        follow = CustomJS(args=args, code="span.location = slider.value")
        lead = "slider.value = Math.min(slider.end, Math.max(0, Math.round(span.location)))"
        self.slider.js_on_change("value", follow)
        self.split.js_on_change("location", CustomJS(args=args, code=lead))

    def show(self, made: Sequence[Pixels], missing: Bools, whole: ImageWindow) -> None:
        """At a glance: one picture, or before and after, and the gaps."""
        self.sharpen(None)
        self.glance.show(made, missing, whole)
        self.split.visible = len(made) == 2

    def sharpen(
        self, window: ImageWindow | None, made: Sequence[Pixels] = (), missing: Bools | None = None
    ) -> None:
        """The same for a part; None takes it away.  It hides what lies under it."""
        if window is not None and missing is not None:
            self.detail.show([images.opaque(image, GROUND) for image in made], missing, window)
        self.detail.image.visible = window is not None
        self.detail.overlay.visible = window is not None and self.glance.overlay.visible

    def show_gaps(self, wanted: bool) -> None:
        self.glance.overlay.visible = wanted
        self.detail.overlay.visible = wanted and self.detail.image.visible

    def put_markers(self, picked: Sequence[Spectrum]) -> None:
        self.markers.data = {
            "x": [s.col + 0.5 for s in picked],
            "y": [s.row + 0.5 for s in picked],
            "colour": list(COLOURS[: len(picked)]),
            "number": [str(i + 1) for i in range(len(picked))],
        }

    def put_regions(self, regions: Sequence[tuple[Array, Array]]) -> None:
        """Outlines (columns, rows) of what was marked by hand."""
        xs, ys = ([list(outline[i]) for outline in regions] for i in (0, 1))
        self.marks.data = {"xs": xs, "ys": ys}


class Curves:
    """Spectra of the picked pixels: before, after with its error bars, truth."""

    def __init__(self, cube: Cube) -> None:
        self.x, name = spectra.axis(cube)
        self.figure = figure(
            tools="pan,box_zoom,wheel_zoom,reset",
            sizing_mode="stretch_width",
            height=300,
            x_axis_label=name,
            y_axis_label=f"Value, {spectra.unit(cube)}",
            toolbar_location="above",
            **LOOK,
        )
        quiet(self.figure)
        low, high = float(np.nanmin(self.x)), float(np.nanmax(self.x))
        margin = 0.02 * (high - low) or 1.0
        self.figure.x_range = Range1d(low - margin, high + margin)
        self.figure.y_range = Range1d(0, 1)
        for left, right in spectra.bad_ranges(self.x, cube.good_bands):
            shade = BoxAnnotation(left=left, right=right, fill_color="#777777", fill_alpha=0.25)
            self.figure.add_layout(shade)
        self.lines = {
            n: ColumnDataSource({"xs": [], "ys": [], "colour": []}) for n in ("sigma", *STYLES)
        }
        self.figure.patches("xs", "ys", source=self.lines["sigma"], color="colour", alpha=0.25)
        for n, style in STYLES.items():
            self.figure.multi_line("xs", "ys", source=self.lines[n], line_color="colour", **style)
        self.filled = ColumnDataSource({"x": [], "y": [], "colour": []})
        at: dict[str, Any] = {"x": "x", "y": "y", "source": self.filled}
        self.figure.scatter(**at, marker="diamond", size=5, fill_color="white", line_color="colour")
        self.cursor = Span(dimension="height", line_color="#555555", line_dash="dotted")
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
