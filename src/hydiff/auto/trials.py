"""Candidates on hidden copies of the gaps: what each made of entries whose truth was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff import mask, validate
from hydiff.auto.candidates import Candidate, chosen
from hydiff.auto.classes import D, T, band_spread, share_of_length
from hydiff.cube import Bools, Cube, Floats
from hydiff.mask import Ints
from hydiff.problem import Sigma
from hydiff.run import Estimate, Job, estimates, estimating

FEWEST = 30  # hidden pixels below which nothing is concluded
MOST_LOOKED = 100_000  # hidden entries of a fold whose errors are looked at


class Window(NamedTuple):
    """A part of a scene; both masks have its shape (bands, rows, cols)."""

    cube: Cube
    seen: Bools
    target: Bools


class Trial(NamedTuple):
    """What the candidates made of the hidden entries of one fold."""

    residual: Floats  # (M, n), in standard deviations of the band
    band: Ints  # (n,)
    distance: Ints  # (n,) class
    rough: Floats  # (n,)
    noise: Floats  # (n,) variance of the measurement, in those units
    angle: Floats  # (2, pixels): ‖x - truth‖ / ‖truth‖ and the spectral angle, of the default


class Look(NamedTuple):
    """One candidate on the hidden entries of a fold that are looked at."""

    residual: Floats  # (n,) in the cube's unit
    sigma_y: Floats  # (bands,)
    angle: Floats  # (2, pixels) as in Trial


def folds_of(cube: Cube, seen: Bools, count: int, seed: int) -> list[Bools]:
    """Entries of good bands to hide, a fold at a time."""
    usable = cube.good_bands & seen.any(axis=(1, 2))
    found = validate.folds(seen[usable], count, np.random.default_rng(seed))
    out = []
    for fold in found:
        whole = np.zeros(seen.shape, bool)
        whole[usable] = fold & seen[usable]
        if whole.any(axis=0).sum() >= FEWEST and (seen & ~whole)[usable].any(axis=(1, 2)).all():
            out.append(whole)
    return out


def crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    runs = [estimating(cube, seen, chosen(c), sigma_y, job) for cube, seen in parts]
    return estimates(runs, job.deterministic)


def mean_estimate(fits: Sequence[Estimate]) -> Estimate:
    """Fits on different folds, averaged: each left out other entries."""
    return fits[0]._replace(values=np.mean([f.values for f in fits], axis=0))


def look_at(fit: Estimate, cube: Cube, seen: Bools, fold: Bools) -> Look:
    at = looked_at(fold)
    pixels = fold.any(axis=0)
    kept = seen[:, pixels]
    truth = np.asarray(cube.values[:, pixels], dtype=np.float64)
    b = np.where(kept, truth, 0.0)
    a = np.where(kept, np.where(fold[:, pixels], fit.values[:, pixels], truth), 0.0)
    angle = np.stack([share_of_length(np.linalg.norm(a - b, axis=0), b), _angle(a, b)])
    return Look(fit.values[at] - np.asarray(cube.values)[at], fit.sigma_y, angle)


def looked_at(fold: Bools) -> tuple[Ints, Ints, Ints]:
    """(band, row, col) of hidden entries, at most MOST_LOOKED: neighbours tell much the same."""
    at = np.flatnonzero(fold)
    band, row, col = np.unravel_index(at[:: -(-len(at) // MOST_LOOKED)], fold.shape)
    return band, row, col


def trial_of(cube: Cube, seen: Bools, fold: Bools, looks: Sequence[Look | None]) -> Trial:
    kept = seen & ~fold
    spread = band_spread(cube, kept)
    band, row, col = looked_at(fold)
    first = looks[0]
    assert first is not None  # the default candidate is never costly
    residual = np.stack([np.full(len(band), np.nan) if k is None else k.residual for k in looks])
    distance = np.empty(seen.shape, np.intp)
    distance[:] = validate.distance_class(mask.shared(kept))
    rough = validate.roughness(np.asarray(cube.values, dtype=np.float64), kept)[row, col]
    noise = (first.sigma_y / spread)[band] ** 2
    return Trial(residual / spread[band], band, distance[band, row, col], rough, noise, first.angle)


def _angle(a: Floats, b: Floats) -> Floats:
    """(pixels,) degrees between spectra (bands, pixels); 0 where one of them is 0."""
    ones = np.ones(a.shape[1])
    cosine = np.einsum("bp,bp->p", a * share_of_length(ones, a), b * share_of_length(ones, b))
    either = a.any(axis=0) & b.any(axis=0)
    angle: Floats = np.where(either, np.degrees(np.arccos(np.clip(cosine, -1, 1))), 0.0)
    return angle


def importance(trial: Trial, target: tuple[Ints, Floats]) -> Floats:
    """(n,) so that the hidden entries count like those to fill, by distance and texture."""
    edges = np.quantile(target[1], [1 / 3, 2 / 3]) if len(target[1]) else [0.0, 0.0]
    mine = trial.distance * T + np.digitize(trial.rough, edges)
    theirs = target[0] * T + np.digitize(target[1], edges)
    return validate.importance(mine, theirs, D * T)
