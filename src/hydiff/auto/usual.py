"""The usual size of errors in gaps, and how far scenes differ from it, learned on other images.

The numbers come from simulated gaps in Sentinel-2 images of 14 places (benchmarks/usual.py).
Squared errors are in variances of a band and features are ratios, so that neither the unit nor the
number of bands matters.  The folds of a cube show how it differs, above all its bands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.classes import Around
from hydiff.cube import Floats

F = len(Around._fields)
LEAST_SIGNAL = 0.02  # lower bound of the share of a band's variance that is not noise
TAIL = 4.0  # degrees of freedom of Student's t distribution of scenes, in `drawn`
# Coefficients of the log squared error: level, slopes of `Around`, what noise (as a share of a
# band's variance) adds to each of these, and the slope of the log share that is not noise
USUAL = (0.65, 1.09, 0.79, 0.47, 0.35, -0.49, -0.36, 0.35, -0.26, 0.11, 0.71)
TRUST = 5000.0  # hidden pixels at which measured slopes weigh as much as the usual ones

# Variances of the log squared error: the terms of `foresee`
SCENES = 0.0693  # of scenes around the usual level
NOISY = 0.2974  # added to SCENES, times the share of the errors that noise hides
FOLDS = 0.01099  # of the level that is measured on the folds
BETWEEN = 0.7574  # added to FOLDS, times the variance between folds
DROWNED = 0.007007  # added to FOLDS, times the squared ratio of noise to error
DOUBT = (
    0.0679  # added to FOLDS, times that hidden share and the squared offset from the usual level
)
GAPS = 0.002552  # of the gaps themselves, which are one more place of the scene
ONE_GAP = 0.3276  # added to GAPS, divided by the number of hidden copies
UNEVEN = 0.1899  # added to GAPS, times the unevenness of the hidden pieces
PARTIAL = 0.01192  # replaces all of these but UNEVEN where pixels keep some bands
BIAS = -0.06055  # added to the log squared error of whole gaps
# standard deviations of the 80 % bounds: in four places of five, 80 % of the gaps lie between them
TAILS = (-1.944, 2.108)
# Where noise hides all, this reduces the exponent of the bounds of the NRMSE: the error is relative
# to the variation of a band, which is as uncertain as the error
TOGETHER = 0.375
# usual |error| / expected that 50, 80 and 95 % of the entries in gaps do not exceed
SHAPE = (0.5808, 1.186, 2.072)
# The quantile of level p of one more copy of a gap is that of level p (1 + ONE_MORE / n) of the
# entries of n copies; the usual quantiles count as much as COPIES copies
ONE_MORE, COPIES = 0.3, 10.0
# Logarithm of the factor by which a network changes a squared error: mean, and std over scenes
GAIN = (-0.1222, 0.1182)
APART = 4.128  # squared errors are hardly ever below this multiple of the candidates' variance

# Share of an estimated noise variance that is subtracted from squared errors.  In one image of four
# the true variance is below this share; subtracting too much makes the errors too small
ESTIMATED = 0.9785


def design(around: Floats, noise: Floats) -> Floats:
    """(2F + 3, n) variables that USUAL multiplies; around (F, n) log features, noise (n,) share."""
    plain = np.vstack([np.ones(around.shape[1]), around])
    signal = np.log(np.maximum(1 - noise, LEAST_SIGNAL))
    return np.vstack([plain, noise * plain, signal])


def log_square(around: Floats, noise: Floats) -> Floats:
    """(n,) usual log squared error; arguments as in `design`."""
    log_squares: Floats = np.array(USUAL) @ design(around, noise)
    return log_squares


def slopes(noise: float) -> Floats:
    """(F,) usual slopes of `Around` where noise is this share of a band's variance."""
    numbers = np.array(USUAL)
    slope: Floats = numbers[1 : 1 + F] + noise * numbers[2 + F : 2 + 2 * F]
    return slope


class Evidence(NamedTuple):
    """Statistics of the errors in the folds of a cube, relative to the usual errors."""

    off: float  # logarithm of the measured over the usual squared errors
    apart: float  # variance of this logarithm between folds, reduced where noise hides it
    drowned: float  # noise variance over squared error, for usual errors
    copies: float  # effective number of hidden pieces
    uneven: float = 0.0  # jackknife variance of `off` over the hidden pieces


class Foresight(NamedTuple):
    """The expected error in the gaps, given the errors in the folds."""

    drawn: float  # to be added to the log squared errors that are fitted to the folds
    bounds: tuple[float, float]  # 80 % interval of the true over the expected RMS error


def foresee(evidence: Evidence, whole: bool = True) -> Foresight:
    """Return the error to expect in the gaps: the evidence and the usual level, weighted by the
    inverse of their variances.

    whole: gaps of whole pixels.  Others are filled from the bands that their pixels keep; how well
    depends on the sensor, so there is no usual level.
    """
    hidden = evidence.drowned / (1 + evidence.drowned)
    measured = FOLDS + BETWEEN * evidence.apart
    measured += DROWNED * evidence.drowned**2 + DOUBT * hidden * evidence.off**2
    share = measured / (measured + SCENES + NOISY * hidden) if whole else 0.0
    variance = (1 - share) * measured + GAPS + ONE_GAP / evidence.copies if whole else PARTIAL
    variance += UNEVEN * evidence.uneven
    low, high = (math.exp(z * math.sqrt(variance) / 2) for z in TAILS)
    return Foresight((BIAS - share * evidence.off) if whole else 0.0, (low, high))


def nrmse_bounds(
    bounds: Sequence[float] | Floats, square: Floats, noise: Floats
) -> tuple[float, float]:
    """Return bounds of the true over the expected NRMSE, given those of the RMS error.

    square (bands,): expected squared errors; noise (bands,): noise variance, in the same unit.
    """
    hidden = float(np.mean(noise / np.maximum(noise + square, np.finfo(float).tiny)))
    low, high = (float(bound) ** (1 - TOGETHER * hidden) for bound in bounds)
    return low, high


def drawn(by_fold: Floats, expected: float, scatter: float) -> float:
    """Return the mean of the values of the folds, drawn towards the usual value `expected`.

    scatter: std of scenes around `expected`, with Student's t of TAIL degrees of freedom, since
    some scenes are much further away.  The gaps are one more place of the scene, and may differ
    from the folds as much as the folds do from one another.
    """
    variance, mean = float(by_fold.var(ddof=1)), float(by_fold.mean())
    scenes = (TAIL * scatter**2 + (mean - expected) ** 2) / (TAIL + 1)
    return (mean * scenes + expected * variance) / (scenes + variance)
