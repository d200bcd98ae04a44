"""The picture: an overview of the scene with a swipe line, gaps, markers and map elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import models
from bokeh.events import MouseEnter, MouseLeave, MouseMove
from bokeh.models import ColumnDataSource, CustomJS
from bokeh.plotting import figure

from hydiff.cube import Bools
from hydiff.viewer import images
from hydiff.viewer.browser import code
from hydiff.viewer.charts import GAPS, GROUND, LOOK, columns, quiet
from hydiff.viewer.images import Pixels
from hydiff.viewer.map_drawing import MapDrawing
from hydiff.viewer.outlines import Outline
from hydiff.viewer.rendering import Sight
from hydiff.viewer.scene_layers import ImageWindow
from hydiff.viewer.sheet import HIDDEN, SHADED, Sheet
from hydiff.viewer.spectra import COLOURS, Spectrum

MOVE = "Move the picture"
GAP_BOX, GAP_SHAPE = "Mark a gap: rectangle", "Mark a gap: shape"
MEAN_BOX, MEAN_SHAPE = "Mean of a rectangle", "Mean of a shape"
TAKE = "for (const [name, tool] of Object.entries(tools)) tool.active = name == cb_obj.value"
BELOW, COLOUR_BAR = 372, 62  # px of the parts that stay visible together with the picture
# position of the slider: next to the tools, at the upper edge of the picture
BAR = {"position": "absolute", "top": "0", "left": "62px", "right": "150px", "width": "auto"}
BAR |= {"z-index": "1", "margin": "0"}


class Picture:
    """An overview image, and over it a finer image of the part in view where this is needed."""

    def __init__(self, whole: ImageWindow) -> None:
        rows, cols = whole.bottom, whole.right
        self.markers = ColumnDataSource({k: [] for k in ("x", "y", "colour", "number")})
        self.marks = ColumnDataSource({"xs": [], "ys": []})
        self.regions = ColumnDataSource({"xs": [], "ys": [], "colour": []})
        self.at = ColumnDataSource({"row": [-1], "col": [-1]})  # the pixel under the mouse
        self.sight = ColumnDataSource({name: [0.0] for name in Sight._fields})  # the part in view
        aspect = {"match_aspect": True, "aspect_ratio": float(np.clip(cols / rows, 0.7, 2.2))}
        self.figure = figure(
            name="picture figure",
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
        self.figure.min_border_left = 66  # constant, so that longer numbers do not move the frame
        self.figure.grid.visible = False
        self.leave(BELOW)
        self.glance = Sheet(self.figure, "picture", whole)
        self.detail = Sheet(self.figure, "detail", ImageWindow(0, 1, 0, 1))
        self.figure.x_range.renderers = self.figure.y_range.renderers = [self.glance.image]
        self.sharpen(None)
        self.map = MapDrawing(self.figure)
        self._marks()
        self._tools()
        self._swipe(cols, rows)
        self._flicker()
        self._senses()

    def _senses(self) -> None:
        """Let the browser send the position of the mouse and the part in view."""
        at = {"at": self.at}
        leave = "at.data = {row: [-1], col: [-1]}"
        self.figure.js_on_event(MouseEnter, CustomJS(code=code("hold.js")))
        self.figure.js_on_event(MouseMove, CustomJS(args=at, code=code("hover.js")))
        self.figure.js_on_event(MouseLeave, CustomJS(args=at, code=leave))
        args = {"figure": self.figure, "sight": self.sight}
        send = CustomJS(args=args, code=code("sight.js"))
        self.figure.js_on_change("inner_width", send)
        for axis in (self.figure.x_range, self.figure.y_range):
            axis.js_on_change("start", send)
            axis.js_on_change("end", send)

    def _marks(self) -> None:
        """Add gaps marked by hand, outlines of regions, numbered pixels, and the keyboard cross."""
        edge: dict[str, Any] = {"line_color": "white", "line_width": 2}
        self.patches = self.figure.patches("xs", "ys", source=self.marks, color=GAPS, **edge)
        outline: dict[str, Any] = {"fill_alpha": 0.0, "line_width": 3, "line_color": "colour"}
        self.figure.patches("xs", "ys", source=self.regions, **outline)
        position: dict[str, Any] = {"x": "x", "y": "y", "source": self.markers}
        self.figure.scatter(**position, size=18, fill_color="colour", **edge)
        middle = {"text_align": "center", "text_baseline": "middle"}
        bold = {"text_font_size": "12px", "text_font_style": "bold", "text_color": "white"}
        self.figure.text(**position, text="number", **middle, **bold)
        cross: dict[str, Any] = {"marker": "cross", "size": 22, "line_width": 2}
        self.cursor = ColumnDataSource({"x": [], "y": []})  # the cross of the keyboard
        for colour, width in (("black", 4), ("white", 2)):
            cross |= {"line_color": colour, "line_width": width}
            self.figure.scatter("x", "y", source=self.cursor, **cross)

    def _tools(self) -> None:
        """Add the tools of the mouse: moving, marking gaps, outlining regions, zooming."""
        box = models.BoxSelectTool(renderers=[], visible=False)
        shape = models.LassoSelectTool(renderers=[], continuous=False, visible=False)
        mean_box, mean_shape = box.clone(), shape.clone()
        # a control next to the picture selects one of these; only the first is in the toolbar
        self.tools: dict[str, Any] = {MOVE: models.PanTool(), GAP_BOX: box, GAP_SHAPE: shape}
        self.tools |= {MEAN_BOX: mean_box, MEAN_SHAPE: mean_shape}
        zooms = models.BoxZoomTool(match_aspect=True), models.WheelZoomTool(), models.ResetTool()
        self.figure.add_tools(*self.tools.values(), *zooms)
        self.figure.toolbar.active_drag = self.tools[MOVE]

    def _swipe(self, cols: int, rows: int) -> None:
        """Add the swipe line with its grip, and the slider at the upper edge that moves it."""
        look: dict[str, Any] = {"sizing_mode": "stretch_width", "stylesheets": [code("swipe.css")]}
        look |= {"title": "Swipe, before | after at column", "styles": BAR}
        self.slider = models.Slider(start=0, end=cols, value=cols // 2, step=1, **look)
        # white on black is visible on any background
        span_style: dict[str, Any] = {"location": cols // 2, "dimension": "height"}
        span_style |= {"level": "underlay"}  # drawn over the images, under the markers
        self.line = [
            models.Span(**span_style, line_color="black", line_width=6, line_alpha=0.75),
            models.Span(**span_style, line_color="white", line_width=2.5, editable=True),
        ]
        for span in self.line:
            self.figure.add_layout(span)
        self.grip = ColumnDataSource({"x": [cols // 2], "y": [rows / 2]})
        knob: dict[str, Any] = {"size": 24, "fill_color": "white", "line_color": "black"}
        text: dict[str, Any] = {"text": {"value": "◂ ▸"}, "text_color": "black"}
        text |= {"text_align": "center", "text_baseline": "middle", "text_font_size": "11px"}
        self.knob = [
            self.figure.scatter("x", "y", source=self.grip, line_width=2, level="glyph", **knob),
            self.figure.text("x", "y", source=self.grip, level="glyph", **text),
        ]
        args = {"slider": self.slider, "spans": self.line, "grip": self.grip}
        self.compose = []
        for sheet in (self.glance, self.detail):
            sheet_args = {**args, "pair": sheet.pair, "shown": sheet.shown}
            self.compose.append(CustomJS(args=sheet_args, code=code("swipe.js")))
            sheet.pair.js_on_change("data", self.compose[-1])
            self.slider.js_on_change("value", self.compose[-1])
        self.slider.js_on_change("value", CustomJS(args=args, code=code("line.js")))
        follow = "slider.value = Math.min(slider.end, Math.max(0, Math.round(cb_obj.location)))"
        self.line[-1].js_on_change("location", CustomJS(args=args, code=follow))

    def _flicker(self) -> None:
        """Let samples take turns right of the line; without samples the picture stays still."""
        self.turns = ColumnDataSource({"after": []}, name="turns")
        args = {"turns": self.turns, "pair": self.glance.pair, "compose": self.compose[0]}
        self.turns.js_on_change("data", CustomJS(args=args, code=code("flicker.js")))
        stop = CustomJS(args=args, code="clearInterval(turns.timer); turns.own = null")
        self.glance.pair.js_on_change("data", stop)  # another picture is shown there now

    def flicker(self, pictures: Sequence[Pixels]) -> None:
        """Let samples (rows, cols, 4) take turns right of the line; without any, show the fill."""
        if len(pictures) or len(self.turns.data["after"]):
            self.turns.data = {"after": [images.packed(picture) for picture in pictures]}

    def show(self, pictures: Sequence[Pixels], missing: Bools, whole: ImageWindow) -> None:
        """Show one overview image, or before and after, with the gaps."""
        self.sharpen(None)
        self.glance.show(pictures, missing, whole)
        for part in (*self.line, *self.knob):
            part.visible = len(pictures) == 2

    def sharpen(
        self,
        window: ImageWindow | None,
        pictures: Sequence[Pixels] = (),
        missing: Bools | None = None,
    ) -> None:
        """Show finer images of a window, which cover the overview; None removes them."""
        self.detail.image.visible = window is not None
        if window is not None and missing is not None:
            solid = [images.opaque(picture, GROUND) for picture in pictures]
            self.detail.show(solid, missing, window)
        self.detail.mark(self.detail.how)

    def leave(self, height: int) -> None:
        """Limit the picture so that `height` px of the screen remain for other parts."""
        styles = {"max-height": f"max(240px, calc(100vh - {height}px))"}
        if self.figure.styles != styles:
            self.figure.styles = styles

    def mark_gaps(self, how: str) -> None:
        """Show the gaps, also those marked by hand, as SHADED, OUTLINED or HIDDEN."""
        self.glance.mark(how)
        self.detail.mark(how)
        self.patches.glyph.fill_alpha = 0.45 if how == SHADED else 0.0
        self.patches.visible = how != HIDDEN

    def put_markers(self, picked: Sequence[Spectrum]) -> None:
        """Show the numbers of picked pixels, and the outlines of regions, in their colours."""
        coloured = list(zip(picked, COLOURS, strict=False))
        rows = [(s.col + 0.5, s.row + 0.5, c, str(i)) for i, (s, c) in enumerate(coloured, 1)]
        self.markers.data = columns(rows, ("x", "y", "colour", "number"))
        outlines = [(*map(list, s.outline), c) for s, c in coloured if s.outline is not None]
        self.regions.data = columns(outlines, ("xs", "ys", "colour"))

    def put_regions(self, regions: Sequence[Outline]) -> None:
        """Draw the outlines (columns, rows) of gaps marked by hand."""
        xs, ys = ([list(outline[i]) for outline in regions] for i in (0, 1))
        self.marks.data = {"xs": xs, "ys": ys}
