"""Scores of predictive distributions: whether error bars are right, and no wider than necessary.

Letters: error = prediction − truth; std its predicted standard deviation, both (n,), in one unit.
Intervals are the half widths of the 50, 80 and 95 % intervals in std; between and beyond these the
distribution is a Gaussian whose quantiles are stretched linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from hydiff.cube import Array, Floats

LEVELS = (0.5, 0.8, 0.95)  # coverage of the intervals of a fill
# half widths of these intervals of a Gaussian, in σ
NORMAL_QUANTILES = (0.6744897501960817, 1.2815515655446004, 1.959963984540054)
CURVE = tuple(round(0.05 * i, 2) for i in range(1, 20))  # levels of a reliability curve
BINS = 10  # of a PIT histogram


def crps_normal(error: Floats, std: Floats) -> Floats:
    """(n,) CRPS of Gaussians: σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π), z the error in σ; |error| at σ 0.

    In the unit of the error; less is better.
    """
    z = np.divide(error, std, out=np.zeros_like(error), where=std > 0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    score = std * (z * (2 * special.ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return np.where(std > 0, score, np.abs(error))


def crps_samples(samples: Array, truth: Array) -> Floats:
    """CRPS of n ≥ 2 samples (n, ...) at the truth (...): E|X − y| − ½ E|X − X′|.

    The second mean is over pairs of different samples, so that the expected score does not depend
    on their number.
    """
    n = len(samples)
    ordered = np.sort(np.asarray(samples, np.float64), axis=0)
    rank = 2.0 * np.arange(n) - n + 1  # Σ |x_i − x_j| over pairs is Σ rank_i x_(i)
    half_difference = np.tensordot(rank, ordered, axes=1) / (n * (n - 1))
    return np.asarray(np.abs(ordered - truth).mean(axis=0) - half_difference)


def interval_score(error: Floats, half: Floats, level: float) -> Floats:
    """(n,) width of an interval of ± half, plus 2 / (1 − level) times its distance to the truth.

    In the unit of the error; less is better.
    """
    outside = np.maximum(np.abs(error) - half, 0)
    return np.asarray(2 * half + 2 / (1 - level) * outside)


def pit(error: Floats, std: Floats, intervals: Sequence[float] = NORMAL_QUANTILES) -> Floats:
    """(n,) probability integral transform: the predicted probability of values below the truth.

    Uniform on 0 … 1 if the distributions are right; std > 0.
    """
    widths = np.array([0.0, *intervals])
    normal = np.array([0.0, *NORMAL_QUANTILES])
    widths = np.maximum.accumulate(widths + 1e-12 * np.arange(len(widths)))  # they may be equal
    z = np.abs(error) / std
    slope = (normal[-1] - normal[-2]) / (widths[-1] - widths[-2])
    beyond = normal[-1] + slope * (z - widths[-1])
    z = np.where(z > widths[-1], beyond, np.interp(z, widths, normal))
    return np.asarray(special.ndtr(-np.sign(error) * z))


def reliability_curve(transform: Floats, levels: Sequence[float] = CURVE) -> Floats:
    """(levels,) share of the truths inside the central intervals of these levels, by their PIT."""
    off_centre = 2 * np.abs(transform - 0.5)
    return np.array([np.mean(off_centre <= level) for level in levels])


def pit_histogram(transform: Floats) -> Floats:
    """(BINS,) share of the PIT values in bins of equal width; 1 / BINS each if all is right."""
    counts, _ = np.histogram(transform, BINS, (0.0, 1.0))
    return np.asarray(counts / max(transform.size, 1))


def repeated_inside(
    error: Floats, std: Floats, noise: Floats, intervals: Sequence[float] = NORMAL_QUANTILES
) -> tuple[float, ...]:
    """Return the expected share of repeated measurements inside their intervals, by level.

    noise (n,): std of the measurements' noise, by which the intervals are widened.  The share is
    the mean probability, so nothing is drawn.
    """
    noise = np.maximum(noise, 1e-9 * std)  # without noise, the share of the truths
    halves = (q * np.hypot(std, noise) for q in intervals)
    ends = (((half - error) / noise, (-half - error) / noise) for half in halves)
    return tuple(float((special.ndtr(high) - special.ndtr(low)).mean()) for high, low in ends)


class Verification(NamedTuple):
    """Scores of the predictive distributions of filled entries against the truth."""

    interval_score: tuple[float, ...]  # mean of the 50, 80, 95 % intervals, in the cube's unit
    interval_score_constant: tuple[float, ...]  # of the same errors with one σ for all: their RMS
    levels: tuple[float, ...]  # of the reliability curve
    covered: tuple[float, ...]  # share of the entries inside the intervals of these levels
    pit: tuple[float, ...]  # shares of the PIT histogram
    entries: int
    repeated: tuple[float, ...] | None = None  # `repeated_inside` of the 50, 80, 95 % intervals


def verification(
    error: Floats,
    std: Floats,
    intervals: Sequence[float] = NORMAL_QUANTILES,
    noise: Floats | None = None,
) -> Verification | None:
    """Return the scores of predictive distributions; None without entries.

    error, std: (n,), in one unit.  intervals: half widths of the 50, 80, 95 % intervals, in std.
    noise: (n,) std of the measurements' noise; None without noise.
    """
    if not error.size:
        return None
    rms = np.full_like(std, np.sqrt(np.mean(error**2)))

    def scores(scale: Floats, widths: Sequence[float]) -> tuple[float, ...]:
        pairs = zip(widths, LEVELS, strict=True)
        return tuple(float(interval_score(error, q * scale, p).mean()) for q, p in pairs)

    transform = pit(error, std, intervals)
    return Verification(
        interval_score=scores(std, intervals),
        interval_score_constant=scores(rms, NORMAL_QUANTILES),
        levels=CURVE,
        covered=tuple(reliability_curve(transform).tolist()),
        pit=tuple(pit_histogram(transform).tolist()),
        entries=error.size,
        repeated=None if noise is None else repeated_inside(error, std, noise, intervals),
    )
