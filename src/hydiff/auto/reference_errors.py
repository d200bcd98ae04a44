"""The expected error of a fill from references, which show the ground in the gaps too.

The model is that of `intervals`.  Two features of `Around` have another meaning: `roughness` is
that of the references, `steepness` how much the cube and the references disagree nearby.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import ndimage

from hydiff.auto.blend import Weights, mixed
from hydiff.auto.classes import BANDS_AT_ONCE, Around, ClassCounts, band_spread, usable
from hydiff.auto.folds import TrialWindow
from hydiff.auto.hidden import Hidden
from hydiff.auto.intervals import NORMAL_80, errors_of
from hydiff.auto.recipe import Errors
from hydiff.auto.trials import Trial
from hydiff.cube import Bools, Cube, Floats
from hydiff.reference.models import ENOUGH, ReferencePlanes, components
from hydiff.reference.regression import slopes_of

WINDOW = 5  # px: side of the window of the references' roughness
NEARBY = 8.0  # px: standard deviation of the Gaussian window of the disagreement
FEW = 1e-3  # weight of the mean of all pixels in that window, as a share of a full one
UNUSUAL = 3.0  # medians of the errors: entries with larger errors count less
# From places at two dates, not used for evaluation (benchmarks/reference_places.py): level and
# slopes of the usual log squared error; share by which a measured level is drawn towards it; and
# log ratio of squared errors in gaps to those on hidden copies, for changes of the ground in gaps
USUAL, DRAWN, CHANGE = (-0.01, 0.29, 0.37, 1.14, 0.52), 0.3, 0.1
USUAL_80 = 1.18  # |error| / expected that 80 % of the entries of these places do not exceed


def seen_by(references: Sequence[ReferencePlanes]) -> Bools:
    """(rows, cols) pixels that at least one of the references observed."""
    seen: Bools = np.logical_or.reduce([reference.observed for reference in references])
    return seen


def roughness(references: Sequence[ReferencePlanes]) -> Floats:
    """(rows, cols) standard deviation of the references' components over the window of a pixel,
    RMS over components and references."""
    size = (0, WINDOW, WINDOW)
    total, number = (np.zeros(references[0].observed.shape) for _ in range(2))
    for reference in references:
        f = components(reference)
        variance = ndimage.uniform_filter(f**2, size) - ndimage.uniform_filter(f, size) ** 2
        total += np.where(reference.observed, np.maximum(variance, 0).mean(axis=0), 0.0)
        number += reference.observed
    rough: Floats = np.sqrt(total / np.maximum(number, 1))
    return rough


def disagreement(cube: Cube, observed: Bools, references: Sequence[ReferencePlanes]) -> Floats:
    """(rows, cols) RMS residual nearby of a plain regression of the bands on the references, in
    standard deviations of the bands; 1 with too few pixels.  observed (bands, rows, cols)."""
    bands = usable(cube, observed)
    complete = observed[bands].all(axis=0) & seen_by(references)
    f = np.concatenate([components(reference) for reference in references])
    if complete.sum() < ENOUGH * len(f):
        return np.ones(complete.shape)
    values, spread, features = np.asarray(cube.values), band_spread(cube, observed), f[:, complete]
    square, number = np.zeros(complete.shape), np.flatnonzero(bands)
    for chunk in np.array_split(number, -(-len(number) // BANDS_AT_ONCE)):  # cubes are large
        y = values[chunk][:, complete].astype(np.float64) / spread[chunk, None]
        residual = y - slopes_of(y, features) @ features
        residual -= residual.mean(axis=1)[:, None]
        square[complete] += np.einsum("cn,cn->n", residual, residual) / len(number)
    near, share = (
        ndimage.gaussian_filter(plane, NEARBY, mode="constant")
        for plane in (square, complete.astype(np.float64))
    )
    usual = square[complete].mean()
    rms: Floats = np.sqrt((near + FEW * usual) / (share + FEW))
    return rms


def counts_with(windows: Sequence[TrialWindow]) -> ClassCounts:
    """Count the entries to fill of windows by distance and by roughness of their references."""
    return ClassCounts.of((w.observed, w.target, roughness(w.references)) for w in windows)


def around_with(
    features: Around,
    cube: Cube,
    observed: Bools,
    references: Sequence[ReferencePlanes],
    pixels: Bools,
) -> Around:
    """Return the features with the references' roughness and disagreement at the pixels."""
    steepness = disagreement(cube, observed, references)
    return features._replace(roughness=roughness(references)[pixels], steepness=steepness[pixels])


def usual_size(residual: Floats) -> Floats:
    """(n,) factors that reduce large errors (K, n) of entries, so that few bright pixels do not
    decide."""
    size = np.abs(residual).mean(axis=0)
    usual = UNUSUAL * float(np.median(size))
    factor: Floats = np.sqrt(np.minimum(1.0, usual / np.maximum(size, 1e-300)))
    return factor


def errors_with(
    trials: Sequence[Trial], weights: Weights, counts: ClassCounts, bands: int
) -> Errors:
    """Return the model of squared errors of fills from references; trials have the features of
    `around_with`.

    A flare or a new roof in one fold can dominate a mean square without saying anything about the
    gaps.  So large errors count less, and the level follows from the 80 % interval of the hidden
    entries, by its usual ratio to the mean.  Hidden copies show only short distances in wide gaps,
    so the slope of the distance is the usual one.
    """
    usual_level, usual_slopes = USUAL[0], np.array(USUAL[1:])
    damped = [t._replace(residual=t.residual * usual_size(t.residual)) for t in trials]
    errors = errors_of(
        damped, weights, counts, bands, whole_pixels=False, usual_slopes=usual_slopes
    )
    if errors.slopes is None or errors.level is None or errors.by_band is None:
        return errors
    hidden = Hidden.of(trials, [mixed(t.residual, t, weights.all) for t in trials], counts)
    by_band = np.asarray(errors.by_band)
    slopes = np.r_[usual_slopes[0], errors.slopes[1:]]
    level = errors.level + (errors.slopes[0] - usual_slopes[0]) * float(hidden.around[0].mean())
    shape = np.maximum(hidden.shape(hidden.expected(level, slopes, by_band), math.inf), 1e-9)
    level += 2 * math.log(shape[1] / USUAL_80) + CHANGE
    fitted_sum = hidden.weight @ hidden.expected(level, slopes, by_band)
    log_ratio = math.log(
        fitted_sum / (hidden.weight @ np.exp(usual_level + usual_slopes @ hidden.around))
    )
    return replace(
        errors,
        level=level - DRAWN * log_ratio,
        slopes=tuple(slopes.tolist()),
        widening=USUAL_80 / NORMAL_80,
        intervals=tuple((shape * NORMAL_80 / shape[1]).tolist()),
    )
