"""Doubtful measured values, which are only reported: offset columns and lines, bad bands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Floats
from hydiff.errors import BadValue
from hydiff.maths import noise
from hydiff.maths.noise import ROBUST

LEAST = 8  # fewest rows to judge a column, and fewest judged columns to judge a band
Z = 5.0  # smallest |z| of an offset that is reported; see `Offset.z`
OF_MEDIAN = 1.2533  # standard error of a median over that of a mean, for Gaussian values
HALF = 0.5  # share of the variance that is not noise; a band below it is mostly noise


class Offset(NamedTuple):
    """A column or line of a band whose values are offset from the mean of its two neighbours."""

    kind: str  # "column" or "line"
    position: int
    band: int
    offset: float  # in the cube's unit: median of value - mean of the two neighbours
    error: float  # its standard error
    z: float  # offset over hypot(error, typical offset in the band)


def offsets(values: Array, observed: Bools) -> list[Offset]:
    """Return the columns and lines that are offset in their band, largest |z| first.

    values, observed: (bands, rows, cols).  Borders have one neighbour only and are not judged.
    """
    result = []
    for band, (plane, measured) in enumerate(zip(values, observed, strict=True)):
        x = np.where(measured, plane.astype(np.float64), np.nan)
        for kind, lanes in (("column", x), ("line", x.T)):
            result += [Offset(kind, i, band, *rest) for i, *rest in _standing_out(lanes)]
    return sorted(result, key=lambda o: -abs(o.z))


def column_offsets(plane: Floats) -> tuple[Floats, Floats]:
    """Return the offset (cols,) of each column and its standard error.

    The offset is the median difference between a column of `plane` (rows, cols), NaN = missing,
    and the mean of its two neighbours; NaN where fewer than LEAST rows have all three values.
    """
    offset, error = np.full(plane.shape[1], np.nan), np.full(plane.shape[1], np.nan)
    residual = plane[:, 1:-1] - (plane[:, :-2] + plane[:, 2:]) / 2
    for i, differences in enumerate(residual.T, start=1):
        differences = differences[np.isfinite(differences)]
        if len(differences) >= LEAST:
            offset[i] = np.median(differences)
            spread = ROBUST * np.median(np.abs(differences - offset[i]))
            error[i] = OF_MEDIAN * spread / np.sqrt(len(differences))
    return offset, error


def _standing_out(plane: Floats) -> list[tuple[int, float, float, float]]:
    """Return index, offset, error and z of each column of a plane with |z| above Z."""
    offset, error = column_offsets(plane)
    judged = np.isfinite(offset)
    if judged.sum() < LEAST:
        return []
    typical = ROBUST * float(np.median(np.abs(offset[judged])))
    scale = np.hypot(np.nan_to_num(error), typical)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(offset / scale, posinf=np.inf, neginf=-np.inf)
    # an offset column makes its neighbours look offset by half as much: keep local maxima only
    size = np.pad(np.abs(np.nan_to_num(offset)), 1)
    peak = (size[1:-1] > size[:-2]) & (size[1:-1] >= size[2:])
    return [
        (int(i), float(offset[i]), float(error[i]), float(z[i]))
        for i in np.flatnonzero(peak & (np.abs(z) > Z))
    ]


class BandDoubts(NamedTuple):
    """Noise and variation of each band, and whether it is good; arrays (bands,)."""

    noise: Floats  # std in the cube's unit; NaN for empty bands
    spread: Floats  # std of the observed values
    predicted: Floats  # share of the variance that is not noise, 0 … 1
    good: Bools  # suggested list of good bands
    how: str  # method by which the noise was estimated


def judge_bands(values: Array, observed: Bools) -> BandDoubts:
    """Suggest a bad-band list: bands without data, without variation, or with mostly noise.

    values, observed: (bands, rows, cols).
    """
    counts = observed.sum(axis=(1, 2))
    spread = np.full(len(values), np.nan)
    for band in np.flatnonzero(counts):
        spread[band] = values[band][observed[band]].astype(np.float64).std()
    usable = np.nan_to_num(spread) > 0
    if usable.sum() < 2:
        raise BadValue(
            f"{int(usable.sum())} bands with values that vary, expected 2 or more to judge them by"
        )
    x = np.where(observed[usable], values[usable].astype(np.float64), 0.0)
    estimate = noise.estimate(x, observed[usable])
    sigma = np.full(len(values), np.nan)
    sigma[usable] = estimate.sigma
    predicted = np.zeros(len(values))
    predicted[usable] = np.clip(1 - (sigma[usable] / spread[usable]) ** 2, 0, 1)
    return BandDoubts(sigma, spread, predicted, usable & (predicted >= HALF), estimate.how)
