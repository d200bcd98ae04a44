"""Style shared by the picture, the plot of spectra and the small pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydiff.report.plots import GAP_COLOUR

GAPS = f"#{bytes(GAP_COLOUR).hex()}"
GROUND = "#e6e8eb"  # background of a picture
INK = "#3d444d"  # labels of the axes
LOOK: dict[str, Any] = {"outline_line_color": None, "min_border": 8, "toolbar_location": "above"}
LOOK |= {"sizing_mode": "stretch_width"}


def quiet(drawing: Any) -> None:
    """Draw axes and grid in unobtrusive grey."""
    drawing.toolbar.logo = None
    drawing.axis.axis_label_text_font_style = "normal"
    drawing.axis.axis_label_text_color = drawing.axis.major_label_text_color = INK
    drawing.axis.axis_line_color = drawing.axis.major_tick_line_color = "#8a9099"
    drawing.axis.minor_tick_line_color = None
    drawing.grid.grid_line_color = "#eceef1"


def columns(rows: Sequence[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Convert rows of a table to columns, for Bokeh."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
