"""Statistics over several scenes, in which the scene is the unit, not the cell.

`Scores` map each cell of each unit to a number; two methods are compared on the cells they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hydiff.cube import Floats

Scores = Mapping[str, Mapping[str, float]]  # unit → cell of that unit (mask) → score
RESAMPLES = 2000


class Summary(NamedTuple):
    """Mean and spread of scores over units."""

    mean: float  # over units, each represented by the mean of its cells
    std: float  # between units; NaN for a single unit
    units: int


def summary(scores: Scores) -> Summary:
    """Return the mean and standard deviation over the units that have cells."""
    means = [float(np.mean(list(cells.values()))) for cells in scores.values() if cells]
    std = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    return Summary(float(np.mean(means)) if means else float("nan"), std, len(means))


class Difference(NamedTuple):
    """The paired difference of two methods, with tests."""

    mean: float  # a - b, over units
    low: float  # 95 % interval of the hierarchical bootstrap
    high: float
    p: float  # Wilcoxon's signed-rank test over units, two-sided; NaN for fewer than two
    units: int
    t: float = float("nan")  # p of Student's t test over units, for small numbers of units


def differences(a: Scores, b: Scores) -> dict[str, Floats]:
    """Return a - b on the cells that both have, one array for each unit."""
    paired = {}
    for unit in a:
        cells = [c for c in a[unit] if c in b.get(unit, {})]
        if cells:
            paired[unit] = np.array([a[unit][c] - b[unit][c] for c in cells])
    return paired


def compare(a: Scores, b: Scores) -> Difference:
    """Return the paired difference a - b, its interval, and two tests over the units."""
    paired = list(differences(a, b).values())
    if not paired:
        nan = float("nan")
        return Difference(nan, nan, nan, nan, 0)
    means = np.array([d.mean() for d in paired])
    low, high = bootstrap(paired, np.random.default_rng(0))
    return Difference(
        float(means.mean()), low, high, rank_test(means), len(paired), student_test(means)
    )


def bootstrap(
    paired: Sequence[Floats], rng: np.random.Generator, at: Sequence[float] = (2.5, 97.5)
) -> list[float]:
    """Return percentiles, by default those of the 95 % interval, of the mean over units.

    The bootstrap is hierarchical: it resamples the units, then the cells inside each.
    """
    units = rng.integers(len(paired), size=(RESAMPLES, len(paired)))
    means = np.empty(units.shape)
    for u, cells in enumerate(paired):
        drawn = units == u
        means[drawn] = cells[rng.integers(len(cells), size=(drawn.sum(), len(cells)))].mean(axis=1)
    return [float(v) for v in np.percentile(means.mean(axis=1), at)]


def rank_test(means: Floats) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test that differences lie around 0."""
    from scipy.stats import wilcoxon

    if len(means) < 2 or not np.any(means):
        return float("nan")
    return float(wilcoxon(means).pvalue)


def student_test(means: Floats) -> float:
    """Return the two-sided p of Student's t test that differences lie around 0."""
    from scipy.stats import ttest_1samp

    if len(means) < 2:
        return float("nan")
    if np.ptp(means) == 0:  # no scatter at all
        return 0.0 if means[0] else 1.0
    return float(ttest_1samp(means, 0.0).pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm, 1979); NaN stays and does not count."""
    values = np.asarray(p, dtype=float)
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    corrected = np.full(len(values), np.nan)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, float(values[i]) * (len(order) - rank)))
        corrected[i] = running
    return [float(v) for v in corrected]
