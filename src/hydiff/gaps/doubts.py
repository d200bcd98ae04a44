"""Doubts about measured values, reported and not acted on: offset columns and lines, bad bands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Floats
from hydiff.errors import BadValue
from hydiff.maths import noise

LEAST = 8  # rows that a column is judged by, and columns that its band is judged by
Z = 5.0  # of an offset against its own error and the usual differences between neighbours
ROBUST = 1.4826  # from a median absolute deviation to a std, of Gaussian values
OF_MEDIAN = 1.2533  # the standard error of a median, over that of a mean
HALF = 0.5  # of a band's variance: below it, more of the band is noise than is not


class Offset(NamedTuple):
    """A column or line of a band whose values differ from what both neighbours predict."""

    kind: str  # "column" or "line"
    position: int
    band: int
    offset: float  # in the cube's unit: median of value - mean of the two neighbours
    error: float  # its standard error
    z: float  # offset over its error and the usual spread of such offsets in the band


def offsets(values: Array, observed: Bools) -> list[Offset]:
    """Columns and lines that stand out in their band, the clearest first.

    values, observed: (bands, rows, cols).  A border has one neighbour, and is not judged.
    """
    found = []
    for band, (plane, measured) in enumerate(zip(values, observed, strict=True)):
        x = np.where(measured, plane.astype(np.float64), np.nan)
        for kind, lanes in (("column", x), ("line", x.T)):
            found += [Offset(kind, i, band, *rest) for i, *rest in _standing_out(lanes)]
    return sorted(found, key=lambda o: -abs(o.z))


def column_offsets(plane: Floats) -> tuple[Floats, Floats]:
    """(cols,) median difference of each column of a plane (rows, cols), NaN = missing, to the mean
    of its neighbours, and its standard error; NaN where fewer than LEAST rows have all three."""
    offset, error = np.full(plane.shape[1], np.nan), np.full(plane.shape[1], np.nan)
    residual = plane[:, 1:-1] - (plane[:, :-2] + plane[:, 2:]) / 2
    for i, lane in enumerate(residual.T, start=1):
        lane = lane[np.isfinite(lane)]
        if len(lane) >= LEAST:
            offset[i] = np.median(lane)
            spread = ROBUST * np.median(np.abs(lane - offset[i]))
            error[i] = OF_MEDIAN * spread / np.sqrt(len(lane))
    return offset, error


def _standing_out(plane: Floats) -> list[tuple[int, float, float, float]]:
    """Column, offset, error and z of those that stand out in a plane."""
    offset, error = column_offsets(plane)
    judged = np.isfinite(offset)
    if judged.sum() < LEAST:
        return []
    usual = ROBUST * float(np.median(np.abs(offset[judged])))
    scale = np.hypot(np.nan_to_num(error), usual)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num(offset / scale, posinf=np.inf, neginf=-np.inf)
    # one offset column makes its neighbours look offset by half as much: only the peak counts
    size = np.pad(np.abs(np.nan_to_num(offset)), 1)
    peak = (size[1:-1] > size[:-2]) & (size[1:-1] >= size[2:])
    return [
        (int(i), float(offset[i]), float(error[i]), float(z[i]))
        for i in np.flatnonzero(peak & (np.abs(z) > Z))
    ]


class BandDoubts(NamedTuple):
    """What speaks for and against each band; arrays (bands,)."""

    noise: Floats  # std in the cube's unit; NaN for empty bands
    spread: Floats  # std of the observed values
    predicted: Floats  # share of the variance that is not noise, 0 … 1
    good: Bools  # what is suggested
    how: str  # the noise was estimated


def judge_bands(values: Array, observed: Bools) -> BandDoubts:
    """Suggest a bad-band list: bands without data, without variation, or more noise than not.

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
