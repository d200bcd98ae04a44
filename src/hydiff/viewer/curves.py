"""The plot of the spectra: before, after with error bars, another version, and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh import models
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from hydiff.cube import Cube
from hydiff.viewer import spectra
from hydiff.viewer.charts import LOOK, columns, quiet
from hydiff.viewer.spectra import COLOURS, Spectrum

HEIGHT = 236  # px
SHADE: dict[str, Any] = {"fill_color": "#777777", "fill_alpha": 0.25}  # style of bad bands
STYLES: dict[str, dict[str, Any]] = {
    "before": {"line_width": 6, "line_alpha": 0.35},
    "after": {"line_width": 2},
    "other": {"line_width": 2, "line_dash": "dotdash"},
    "truth": {"line_width": 2, "line_dash": "dashed"},
}


class Curves:
    """Curves of the picked spectra, one colour each."""

    def __init__(self, cube: Cube) -> None:
        self.x, name = spectra.axis(cube)
        labels = {"x_axis_label": name, "y_axis_label": f"Value, {spectra.unit(cube)}"}
        self.figure = figure(tools="pan,box_zoom,wheel_zoom,reset", height=HEIGHT, **labels, **LOOK)
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
        # a line through one value draws nothing
        self.alone = ColumnDataSource({"at": [], "value": [], "colour": []})
        self.figure.scatter("at", "value", source=self.alone, size=7, color="colour")
        self.filled = ColumnDataSource({"x": [], "y": [], "colour": []})
        at: dict[str, Any] = {"x": "x", "y": "y", "source": self.filled}
        self.figure.scatter(**at, marker="diamond", size=5, fill_color="white", line_color="colour")
        self.cursor = models.Span(dimension="height", line_color="#555555", line_dash="dotted")
        self.figure.add_layout(self.cursor)

    def draw(self, picked: Sequence[Spectrum]) -> None:
        """Draw the spectra with error bars and filled bands, and fit the y axis to them."""
        curves: dict[str, list[tuple[Any, ...]]] = {n: [] for n in self.lines}
        alone: list[tuple[float, float, str]] = []
        filled: list[tuple[float, float, str]] = []
        for s, colour in zip(picked, COLOURS, strict=False):
            for n in STYLES:
                values = getattr(s, n)
                if values is not None and np.isfinite(values).any():
                    x, y = spectra.broken(self.x, values)
                    curves[n].append((x, y, colour))
                    alone += [(x[i], y[i], colour) for i in spectra.alone(y)]
            if s.sigma is not None:
                outlines = spectra.bands_between(self.x, s.sigma, s.best)
                curves["sigma"] += [(*outline, colour) for outline in outlines]
            filled += [(self.x[b], s.best[b], colour) for b in np.flatnonzero(s.filled)]
        for n, rows in curves.items():
            self.lines[n].data = columns(rows, ("xs", "ys", "colour"))
        self.alone.data = columns(alone, ("at", "value", "colour"))
        self.filled.data = columns(filled, ("x", "y", "colour"))
        heights = [np.asarray(row[1]) for rows in curves.values() for row in rows]
        values = np.concatenate([h[np.isfinite(h)] for h in heights]) if heights else np.zeros(0)
        if values.size:
            low, high = float(values.min()), float(values.max())
            margin = 0.05 * (high - low) or max(abs(low), 1.0)
            self.figure.y_range.update(start=low - margin, end=high + margin)
            self.figure.y_range.update(reset_start=low - margin, reset_end=high + margin)
