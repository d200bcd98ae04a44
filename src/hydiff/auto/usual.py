"""How large errors in gaps usually are, and how far a scene is from that: learned elsewhere.

The numbers come from simulated gaps in Sentinel-2 images of 14 places (benchmarks/usual.py).
Squares are in variances of a band and features are ratios, so that neither the unit nor the number
of bands matters.  What is particular to a cube, its bands above all, comes from its own folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.classes import Around
from hydiff.cube import Floats

F = len(Around._fields)
LEAST_SIGNAL = 0.02  # of a band's variance
TAIL = 4.0  # degrees of freedom of Student's t
# The logarithm of a square error: level, slopes of `Around`, then what noise, as a share of a
# band's variance, adds to each, and the slope of the share that is not noise
USUAL = (0.65, 1.09, 0.79, 0.47, 0.35, -0.49, -0.36, 0.35, -0.26, 0.11, 0.71)
TRUST = 5000.0  # hidden pixels that say as much about the slopes

# Variances of the logarithm of a square error.  Scenes differ from the usual by the first two, the
# second where noise hides the errors; what folds show is off by the next four; the gaps, which
# are one more place, by the last three, of which one counts how uneven the hidden pieces are
SCENES, NOISY = 0.0693, 0.2974
FOLDS, BETWEEN, DROWNED, DOUBT = 0.01099, 0.7574, 0.007007, 0.0679
GAPS, ONE_GAP, UNEVEN = 0.002552, 0.3276, 0.1899
PARTIAL = 0.01192  # all but the last of them, where pixels keep some bands
BIAS = -0.06055
TAILS = (-1.944, 2.108)  # standard deviations; in four places of five, 80 % of the gaps lie between
# Bounds of the NRMSE are nearer by this power, where noise hides all: it is relative to what varies
# in a band, which is unknown by as much as the error is
TOGETHER = 0.375
# |error| / expected that 50, 80 and 95 % of the entries in gaps do not exceed
SHAPE = (0.5808, 1.186, 2.072)
# What n copies of a gap say of that: they must hold p (1 + ONE_MORE / n) of their entries for one
# more to hold p of its own, and what is usual counts as much as COPIES of them
ONE_MORE, COPIES = 0.3, 10.0
# The logarithm of what a network makes of a square error, and how far scenes are from that
GAIN = (-0.1222, 0.1182)
APART = 4.128  # square errors are hardly ever less than so many times the candidates' variance

# Noise that was estimated is less in one image of four than so many times its variance: that much
# of it is taken off, for what is taken off too much is missing in the errors
ESTIMATED = 0.9785


def design(around: Floats, noise: Floats) -> Floats:
    """(2F + 3, n) what `USUAL` multiplies: around (F, n) logarithms, noise (n,) share."""
    plain = np.vstack([np.ones(around.shape[1]), around])
    signal = np.log(np.maximum(1 - noise, LEAST_SIGNAL))
    return np.vstack([plain, noise * plain, signal])


def log_square(around: Floats, noise: Floats) -> Floats:
    """(n,) the logarithm of the square error that is usual."""
    usual: Floats = np.array(USUAL) @ design(around, noise)
    return usual


def slopes(noise: float) -> Floats:
    """(F,) of `Around`, where so much of a band's variance is noise."""
    numbers = np.array(USUAL)
    slope: Floats = numbers[1 : 1 + F] + noise * numbers[2 + F : 2 + 2 * F]
    return slope


class Evidence(NamedTuple):
    """What the folds of a cube say about the size of its errors."""

    off: float  # logarithm of the square errors they show, over the usual ones
    apart: float  # variance of that between folds, as far as noise lets it be seen
    drowned: float  # noise over error, in squares, if errors are as usual
    copies: float  # hidden pieces of about the same weight
    uneven: float = 0.0  # variance of the logarithm, were these pieces others: jackknife


class Foresight(NamedTuple):
    """The error in the gaps, given what the folds show."""

    drawn: float  # to be added to the logarithm of the square errors that the folds show
    bounds: tuple[float, float]  # of the true RMS error over the expected one, in 80 % of scenes


def foresee(evidence: Evidence, whole: bool = True) -> Foresight:
    """Evidence weighed against what is usual, by the variance of each.

    whole: gaps of whole pixels.  Others are filled from the bands that their pixels keep, and how
    well these do is a matter of the sensor: nothing is usual there.
    """
    hidden = evidence.drowned / (1 + evidence.drowned)
    own = FOLDS + BETWEEN * evidence.apart
    own += DROWNED * evidence.drowned**2 + DOUBT * hidden * evidence.off**2
    share = own / (own + SCENES + NOISY * hidden) if whole else 0.0
    variance = (1 - share) * own + GAPS + ONE_GAP / evidence.copies if whole else PARTIAL
    variance += UNEVEN * evidence.uneven
    low, high = (math.exp(z * math.sqrt(variance) / 2) for z in TAILS)
    return Foresight((BIAS - share * evidence.off) if whole else 0.0, (low, high))


def nrmse_bounds(
    bounds: Sequence[float] | Floats, square: Floats, noise: Floats
) -> tuple[float, float]:
    """Of the true NRMSE over the expected one, given those of the RMS error; square (bands,): what
    is expected, noise (bands,) the variance of the noise, in the same unit."""
    hidden = float(np.mean(noise / np.maximum(noise + square, np.finfo(float).tiny)))
    low, high = (float(bound) ** (1 - TOGETHER * hidden) for bound in bounds)
    return low, high


def drawn(by_fold: Floats, expected: float, scatter: float) -> float:
    """The mean of what the folds say, drawn towards what is usual, from which scenes are so far
    away: by Student's t with TAIL degrees of freedom, for some are much further.

    The gaps are one more place of the scene, and may differ from the folds as these do.
    """
    apart, mean = float(by_fold.var(ddof=1)), float(by_fold.mean())
    scenes = (TAIL * scatter**2 + (mean - expected) ** 2) / (TAIL + 1)
    return (mean * scenes + expected * apart) / (scenes + apart)
