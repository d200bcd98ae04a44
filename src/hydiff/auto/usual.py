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
LEAST_SIGNAL = 1e-4  # lower bound of the share of a band's variance that is not noise
TAIL = 4.0  # degrees of freedom of Student's t distribution of scenes, in `drawn`
# Coefficients of the log squared error: level and slopes of `Around`; what noise, as a share of a
# band's variance, adds to each of these; what the square root of `pooled_noise` adds; and the slope
# of the log share of a band's variance that is not noise
USUAL = (
    *(0.6, 1.12, 0.83, 0.47, 0.33),
    *(-0.66, 0.07, 0.39, -0.18, 0.41),
    *(-0.11, -0.2, 0.04, -0.02, -0.23),
    0.33,
)
TRUST = 5000.0  # hidden pixels at which measured slopes weigh as much as the usual ones

# Variances of the log squared error: the terms of `foresee`
SCENES = 0.03333  # of scenes around the usual level
NOISY = 0.2588  # added to SCENES, times the share of the errors that noise hides
FOLDS = 0.007198  # of the level that is measured on the folds
BETWEEN = 0.3004  # added to FOLDS, times the variance between folds
DROWNED = 0.0003599  # added to FOLDS, times the squared ratio of noise to error
# added to FOLDS, times that hidden share and the squared offset from the usual level
DOUBT = 0.2618
GAPS = 0.008433  # of the gaps themselves, which are one more place of the scene
ONE_GAP = 0.4944  # added to GAPS, divided by the number of hidden copies
UNEVEN = 0.4017  # added to GAPS, times the unevenness of the hidden pieces
PARTIAL = 0.03337  # replaces all of these but UNEVEN where pixels keep some bands
BIAS = -0.06516  # added to the log squared error of whole gaps
# standard deviations of the 80 % bounds: in four places of five, 80 % of the gaps lie between them
TAILS = (-1.764, 2.235)
# Where noise hides all, this reduces the exponent of the bounds of the NRMSE: the error is relative
# to the variation of a band, which is as uncertain as the error
TOGETHER = 0.2
# usual |error| / expected that 50, 80 and 95 % of the entries in gaps do not exceed
SHAPE = (0.5856, 1.194, 2.089)
# The quantile of level p of one more copy of a gap is that of level p (1 + ONE_MORE / n) of the
# entries of n copies; the usual quantiles count as much as COPIES copies
ONE_MORE, COPIES = 0.4, 20.0
# Logarithm of the factor by which a network changes a squared error: mean, and std over scenes
GAIN = (-0.1269, 0.1168)
APART = 4.128  # squared errors are hardly ever below this multiple of the candidates' variance

# Divided by the number of bands: the share of an estimated noise variance that is not subtracted
# from squared errors.  In one image of four the true variance is smaller still; subtracting too
# much makes the errors too small
ESTIMATED = 0.1016


def design(around: Floats, noise: Floats, signal: Floats, pooled: float) -> Floats:
    """(3F + 4, n) variables that USUAL multiplies; around (F, n) log features; noise and signal
    (n,) shares of a band's variance; pooled: as by `pooled_noise`."""
    plain = np.vstack([np.ones(around.shape[1]), around])
    return np.vstack([plain, noise * plain, math.sqrt(pooled) * plain, np.log(signal)])


def log_square(around: Floats, noise: Floats, signal: Floats, pooled: float) -> Floats:
    """(n,) usual log squared error; arguments as in `design`."""
    log_squares: Floats = np.array(USUAL) @ design(around, noise, signal, pooled)
    return log_squares


def slopes(noise: float, pooled: float) -> Floats:
    """(F,) usual slopes of `Around` where noise is this share of a band's variance."""
    plain, with_noise, with_pooled = np.array(USUAL[:-1]).reshape(3, 1 + F)[:, 1:]
    slope: Floats = plain + noise * with_noise + math.sqrt(pooled) * with_pooled
    return slope


def pooled_noise(noise: Floats, signal: Floats) -> float:
    """Return the share of noise in the strongest component of bands that vary alike, given the
    shares of noise and signal (bands,) in each band.  The more bands, the less noise is left."""
    noisy = noise > 0
    if not noisy.all():  # a band without noise shows that component
        return 0.0
    return float(1 / (1 + np.sum(signal / noise)))


def subtracted(bands: int) -> float:
    """Return the share of an estimated noise variance to subtract from squared errors."""
    return 1 - ESTIMATED / bands


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


def foresee(evidence: Evidence, whole_pixels: bool = True) -> Foresight:
    """Return the error to expect in the gaps: the evidence and the usual level, weighted by the
    inverse of their variances.

    whole_pixels: the gaps are pixels without any band.  Others are filled from the bands that they
    keep; how well depends on the sensor, so there is no usual level.
    """
    variance, drawn = PARTIAL, 0.0
    if whole_pixels:
        hidden = evidence.drowned / (1 + evidence.drowned)
        measured = FOLDS + BETWEEN * evidence.apart
        measured += DROWNED * evidence.drowned**2 + DOUBT * hidden * evidence.off**2
        share = measured / (measured + SCENES + NOISY * hidden)
        variance = (1 - share) * measured + GAPS + ONE_GAP / evidence.copies
        drawn = BIAS - share * evidence.off
    variance += UNEVEN * evidence.uneven
    low, high = (math.exp(z * math.sqrt(variance) / 2) for z in TAILS)
    return Foresight(drawn, (low, high))


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
