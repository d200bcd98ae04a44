"""Trials: the errors of candidates on hidden copies of the gaps, where the truth was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.auto import usual
from hydiff.auto.candidates import Candidate, chosen, on_folds
from hydiff.auto.classes import EDGES, around, band_spread, groups, share_of_length, trusted
from hydiff.auto.folds import TrialWindow
from hydiff.cube import Bools, Cube, Floats, Ints
from hydiff.gaps import mask
from hydiff.maths.noise_level import Sigma
from hydiff.methods.estimate import Job, estimate_at
from hydiff.reference.models import ReferencePlanes

MOST_LOOKED = 20_000  # most hidden entries of a fold whose errors are computed


class BareWindow(NamedTuple):
    """The part of a `TrialWindow` that a trial needs."""

    cube: Cube
    observed: Bools
    measured: Bools | None = None  # entries that may serve as truth; None = all
    references: tuple[ReferencePlanes, ...] = ()


class Trial(NamedTuple):
    """The errors of the candidates on the hidden entries of one fold."""

    residual: Floats  # (M, n), in standard deviations of the band
    band: Ints  # (n,)
    group: Ints  # (n,) of bands
    distance: Ints  # (n,) distance class
    around: Floats  # (F, n) logarithms of `Around`
    noise: Floats  # (n,) variance of the measurement, in variances of the band
    signal: Floats  # (n,) variance of the band without its noise, in variances of the band
    angle: Floats  # (2, pixels): ‖x - truth‖ / ‖truth‖ and spectral angle (°) of the default
    # (M, n) error of the step to the next band of the pixel, in the cube's unit; 0 where the next
    # band is not hidden
    step: Floats
    gap: Ints  # (n,) number of the entry's hidden piece

    def of(self, some: Sequence[int]) -> Trial:
        """Return the trial of some of the candidates, by number."""
        return self._replace(residual=self.residual[some], step=self.step[some])


def hidden_pixels(fold: Bools) -> Bools:
    """(rows, cols) pixels of which a fold hides a band."""
    pixels: Bools = np.asarray(fold.any(axis=0))
    return pixels


def looked_at(fold: Bools, measured: Bools | None = None) -> tuple[Ints, Ints, Ints]:
    """Return (band, row, col) of every k-th hidden entry, at most MOST_LOOKED of them.

    A part is enough, as neighbours have similar errors.  Entries that were not measured are removed
    after the choice, so that a few of them change little.
    """
    at = np.flatnonzero(fold)
    at = at[:: -(-len(at) // MOST_LOOKED)]
    at = at if measured is None else at[measured.ravel()[at]]
    band, row, col = np.unravel_index(at, fold.shape)
    return band, row, col


def trial_of(
    window: BareWindow,
    fold: Bools,
    candidates: Sequence[Candidate],
    sigma_y: Sigma,
    job: Job,
    pretrained: bool = False,
) -> Trial:
    """Return the trial of the candidates on one fold; costly ones are NaN until `with_costly`.

    pretrained: also try the pretrained networks that are not tuned; they share the coordinates of
    the other candidates.
    """
    cube, observed, measured, _ = window
    visible, pixels = observed & ~fold, hidden_pixels(fold)
    tried = [m for m, c in enumerate(candidates) if not c.costly or (pretrained and c.one_pass)]
    assert tried[0] == 0  # the default candidate is never costly
    methods = [
        chosen(c, **(on_folds(job) if c.one_pass else {})) for c in (candidates[m] for m in tried)
    ]
    estimates = estimate_at(cube, visible, methods, sigma_y, job, pixels)
    first, sigma = estimates[0]
    band, row, col = at = looked_at(fold, measured)
    spread = band_spread(cube, visible)
    residual = np.full((len(candidates), len(band)), np.nan)
    step = np.full_like(residual, np.nan)
    for m, (values, _) in zip(tried, estimates, strict=True):
        # the first candidate fills the entries that another one cannot estimate
        complete = np.where(np.isfinite(values), values, first)
        residual[m] = _residual(complete, cube, pixels, at) / spread[band]
        step[m] = _step(complete, cube, pixels, fold, at)
    plain = [x for m, (x, _) in zip(tried, estimates, strict=True) if not candidates[m].costly]
    features = around(cube, visible, plain, pixels, fold[:, pixels])
    number = _numbers(pixels)[row, col]
    distances, *logs = (
        f[number] if f.ndim == 1 else f[band, number] for f in (features.distance, *features.logs())
    )
    distance = np.digitize(distances, EDGES)
    share = (sigma / spread) ** 2
    noise = (usual.subtracted(cube.bands) if isinstance(sigma_y, str) else 1.0) * share[band]
    signal = _signal(first, cube, visible, share)[band]
    angle = _angles(first, cube, observed, fold, pixels)
    group, logarithms = groups(cube.bands)[band], np.stack(logs)
    gap: Ints = ndimage.label(pixels, mask.EIGHT)[0][row, col].astype(np.int64)
    return Trial(residual, band, group, distance, logarithms, noise, signal, angle, step, gap)


def _signal(fill: Floats, cube: Cube, observed: Bools, noise: Floats) -> Floats:
    """(bands,) variance of each band without its noise, as a share of its variance.

    fill: (bands, n) estimates; noise: (bands,) share of the variance.  A fill is nearly free of
    noise, so its distance from the band's mean shows a signal far below the noise, where the
    variance of the measured values less that of the noise would show chance.
    """
    if not noise.any():
        return np.ones(len(noise))
    values = np.asarray(cube.values)
    mean = [v[o].mean() if o.any() else 0.0 for v, o in zip(values, observed, strict=True)]
    square = np.mean((fill - np.array(mean)[:, None]) ** 2, axis=1)  # NaN in bad bands
    signal = np.where(noise > 0, square / band_spread(cube, observed) ** 2, 1.0)
    return np.clip(signal, usual.LEAST_SIGNAL, 1.0)


def with_costly(
    trial: Trial, fits: Mapping[int, Floats], window: TrialWindow, fold: Bools
) -> Trial:
    """Return the trial with the residuals of costly candidates.

    fits: their values (bands, n) for the n hidden pixels, by number of the candidate.
    """
    cube, observed, at = window.cube, window.observed, looked_at(fold, window.measured)
    pixels, residual, step = hidden_pixels(fold), trial.residual.copy(), trial.step.copy()
    spread = band_spread(cube, observed & ~fold)[trial.band]
    for m, values in fits.items():
        residual[m] = _residual(values, cube, pixels, at) / spread
        step[m] = _step(values, cube, pixels, fold, at)
    return trial._replace(residual=residual, step=step)


def _residual(values: Floats, cube: Cube, pixels: Bools, at: tuple[Ints, Ints, Ints]) -> Floats:
    """(n,) values (bands, pixels) minus the measured ones, at the entries `at` (band, row, col)."""
    residual: Floats = values[at[0], _numbers(pixels)[at[1:]]] - np.asarray(cube.values)[at]
    return residual


def _step(
    values: Floats, cube: Cube, pixels: Bools, fold: Bools, at: tuple[Ints, Ints, Ints]
) -> Floats:
    """(n,) error of the difference to the next band; 0 where the fold does not hide that band."""
    band, row, col = at
    next_band = np.minimum(band + 1, len(values) - 1)
    both_hidden = fold[next_band, row, col] & (next_band > band)
    next_residual, residual = (
        _residual(values, cube, pixels, (b, row, col)) for b in (next_band, band)
    )
    error: Floats = np.where(both_hidden, next_residual - residual, 0.0)
    return error


def _numbers(pixels: Bools) -> Ints:
    """(rows, cols) index of each pixel among the pixels of the mask."""
    numbers: Ints = np.cumsum(pixels).reshape(pixels.shape) - 1
    return numbers


def _angles(values: Floats, cube: Cube, observed: Bools, fold: Bools, pixels: Bools) -> Floats:
    """(2, pixels) relative error and angle (°), as `Trial.angle`, of a fill (bands, pixels)."""
    entries = trusted(cube, observed)[:, pixels]
    truth = np.asarray(np.asarray(cube.values)[:, pixels], dtype=np.float64)
    b = np.where(entries, truth, 0.0)
    a = np.where(entries, np.where(fold[:, pixels], values, truth), 0.0)
    return np.stack([share_of_length(np.linalg.norm(a - b, axis=0), b), _angle(a, b)])


def _angle(a: Floats, b: Floats) -> Floats:
    """(pixels,) angle (°) between two spectra (bands, pixels); 0 where one of them is 0."""
    ones = np.ones(a.shape[1])
    cosine = np.einsum("bp,bp->p", a * share_of_length(ones, a), b * share_of_length(ones, b))
    both_nonzero = a.any(axis=0) & b.any(axis=0)
    angle: Floats = np.where(both_nonzero, np.degrees(np.arccos(np.clip(cosine, -1, 1))), 0.0)
    return angle
