"""Figures of error bars compared with the truth: reliability curve and PIT histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hydiff.report.plots import BLACK, BLUE, DPI, figure_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curve_png(levels: Sequence[float], covered: Sequence[float]) -> bytes:
    """Return a PNG of the share of entries inside the intervals of each level, both 0 to 1."""
    figure, axis = _one()
    axis.plot([0, 100], [0, 100], "--", color=BLACK, lw=1.2)
    axis.plot(100 * np.asarray(levels), 100 * np.asarray(covered), "o-", color=BLUE, ms=4)
    axis.set(xlim=(0, 100), ylim=(0, 100))
    axis.set_xlabel("Level of the interval (%)", fontsize=13)
    axis.set_ylabel("Entries inside (%)", fontsize=13)
    return figure_png(figure)


def histogram_png(shares: Sequence[float]) -> bytes:
    """Return a PNG of a PIT histogram; shares: of bins of equal width from 0 to 1."""
    figure, axis = _one()
    width = 1 / len(shares)
    axis.bar(width * (np.arange(len(shares)) + 0.5), 100 * np.asarray(shares), width, color=BLUE)
    axis.axhline(100 * width, ls="--", color=BLACK, lw=1.2)
    axis.set_xlim(0, 1)
    axis.set_xlabel("Predicted probability of less than the truth", fontsize=13)
    axis.set_ylabel("Entries (%)", fontsize=13)
    return figure_png(figure)


def _one() -> tuple[Figure, Axes]:
    """Return a new figure and its axes, in the style of both plots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    axis.tick_params(labelsize=12)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis
