"""Graticule and scale bar on the picture, drawn by Bokeh."""

from __future__ import annotations

from typing import Any

from bokeh import models
from bokeh.models import ColumnDataSource

from hydiff.cube import Cube
from hydiff.viewer import map_marks
from hydiff.viewer.charts import columns
from hydiff.viewer.map_marks import Box

HALO: dict[str, Any] = {"text_color": "white", "text_outline_color": "black"}


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
            figure.text("x", "y", "text", source=self.labels, text_font_size="11px", **HALO),
        ]
        self.fixed: list[Any] = []
        self.cube: Cube | None = None

    def take(self, cube: Cube) -> None:
        """Draw the map of this cube."""
        self.cube = cube
        metres = map_marks.metres_per_column(cube)
        if metres is not None:
            self.fixed = [scale_bar(self.figure.x_range, metres)]
            self.figure.add_layout(self.fixed[0])

    def draw(self, box: Box) -> None:
        """The lines through a part of the picture."""
        if self.cube is None or self.cube.transform is None:
            return
        lines = map_marks.graticule(self.cube.transform, box)
        ends = [(list(line.cols), list(line.rows)) for line in lines]
        self.lines.data = columns(ends, ("xs", "ys"))
        self.labels.data = columns([(*line.at, line.text) for line in lines], ("x", "y", "text"))

    def show(self, wanted: bool) -> None:
        for part in (*self.parts, *self.fixed):
            part.visible = wanted


def scale_bar(columns_range: Any, metres: float) -> Any:
    """A bar of a round length; metres: of a pixel."""
    length = models.CustomDimensional(
        basis={"px": (metres, "px"), "m": (1.0, "m"), "km": (1000.0, "km")},
        ticks=[1, 2, 5, 10, 20, 50, 100, 200, 500],
        include=["m", "km"],
    )
    look: dict[str, Any] = {"background_fill_alpha": 0.8, "border_line_color": None, "padding": 4}
    look |= {"label_text_font_size": "11px", "bar_line_width": 3, "bar_length": 0.2}
    return models.ScaleBar(
        range=columns_range, unit="px", dimensional=length, location="bottom_right", **look
    )
