"""Grid lines and scale bar on the picture, drawn by Bokeh."""

from __future__ import annotations

from typing import Any

from bokeh import models
from bokeh.models import ColumnDataSource, CustomJS

from hydiff.cube import Cube
from hydiff.viewer import map_marks
from hydiff.viewer.charts import INK, columns
from hydiff.viewer.map_marks import Box

LABEL: dict[str, Any] = {"text_font_size": "11px", "text_color": INK, "padding": 1}
LABEL |= {"background_fill_color": "white", "background_fill_alpha": 0.75}


class MapDrawing:
    def __init__(self, figure: Any) -> None:
        self.figure = figure
        self.lines = ColumnDataSource({"xs": [], "ys": []}, name="graticule")
        self.labels = ColumnDataSource({"x": [], "y": [], "text": []})
        dark: dict[str, Any] = {"line_color": "black", "line_alpha": 0.35, "line_width": 3}
        light: dict[str, Any] = {"line_color": "white", "line_alpha": 0.8, "line_width": 1}
        self.parts = [
            figure.multi_line("xs", "ys", source=self.lines, **dark),
            figure.multi_line("xs", "ys", source=self.lines, **light),
            figure.text("x", "y", "text", source=self.labels, **LABEL),
        ]
        self.fixed: list[Any] = []  # the scale bar, if the length of a pixel is known
        self.cube: Cube | None = None

    def take(self, cube: Cube) -> None:
        """Use the coordinates of this cube, and add its scale bar."""
        self.cube = cube
        metres = map_marks.metres_per_column(cube)
        if metres is not None:
            self.fixed = [scale_bar(self.figure.x_range, metres)]
            self.figure.add_layout(self.fixed[0])

    def draw(self, box: Box) -> None:
        """Draw the grid lines through a part of the picture."""
        if self.cube is None or self.cube.transform is None:
            return
        lines = map_marks.graticule(self.cube.transform, box)
        ends = [(list(line.cols), list(line.rows)) for line in lines]
        self.lines.data = columns(ends, ("xs", "ys"))
        labels = [(*line.at, line.text) for line in lines if line.text]
        self.labels.data = columns(labels, ("x", "y", "text"))

    def show(self, wanted: bool) -> None:
        """Show or hide the grid lines and the scale bar."""
        for part in (*self.parts, *self.fixed):
            part.visible = wanted


def scale_bar(columns_in_sight: Any, metres: float) -> Any:
    """Return a scale bar that follows the range of columns in view; metres: length of a pixel."""
    length = models.Range1d(0, metres)  # the columns in view, in m
    args = {"columns": columns_in_sight, "length": length, "metres": metres}
    follow = "length.setv({start: metres * columns.start, end: metres * columns.end})"
    for end in ("start", "end"):
        columns_in_sight.js_on_change(end, CustomJS(args=args, code=follow))
    look: dict[str, Any] = {"background_fill_alpha": 0.8, "border_line_color": None, "padding": 4}
    look |= {"label_text_font_size": "11px", "bar_line_width": 3, "bar_length": 0.15}
    return models.ScaleBar(range=length, unit="m", location="bottom_right", **look)
