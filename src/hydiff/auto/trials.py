"""Candidates on hidden copies of the gaps: their errors on entries whose truth was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import ndimage

from hydiff.auto import folds, usual
from hydiff.auto.candidates import ON_FOLDS, PRIOR, Candidate, chosen
from hydiff.auto.classes import T, around, band_spread, groups, share_of_length, trusted, usable
from hydiff.cube import Bools, Cube, Floats, Ints
from hydiff.errors import BadValue, is_no_memory
from hydiff.gaps import mask
from hydiff.gaps.rule import Sigma
from hydiff.methods import Chosen
from hydiff.methods.estimate import (
    Estimate,
    Job,
    estimate_at,
    estimate_each,
    estimates,
    estimating,
    taught,
    torch_device,
)
from hydiff.reference.models import ReferencePlanes

Made = TypeVar("Made")
FEWEST = 30  # hidden pixels below which nothing is concluded
MOST_LOOKED = 20_000  # hidden entries of a fold whose errors are looked at


class TrialWindow(NamedTuple):
    """A part of a scene; masks have its shape (bands, rows, cols)."""

    cube: Cube
    observed: Bools
    target: Bools
    gaps: Bools | None = None  # those whose copies are hidden; None = all that is missing
    measured: Bools | None = (
        None  # observed entries that are no estimates, and may judge; None = all
    )
    references: tuple[ReferencePlanes, ...] = ()  # other images of the place, on its grid


class TrialPlan(NamedTuple):
    """What will be tried on what."""

    candidates: list[Candidate]
    hidden: list[tuple[int, Bools]]  # numbers of windows, each with entries to hide
    each: int  # folds that every window was asked for
    costly: int  # the first so many folds are for costly candidates, too
    note: str  # what was left out, and why

    def without_room(self, left: list[Candidate]) -> TrialPlan:
        """With the candidates that are left when memory has run out."""
        note = f"{self.note}; too little memory on the device: networks were left out"
        return self._replace(candidates=left, note=note)


class Trial(NamedTuple):
    """The errors of the candidates on the hidden entries of one fold."""

    residual: Floats  # (M, n), in standard deviations of the band
    band: Ints  # (n,)
    group: Ints  # (n,) of bands
    distance: Ints  # (n,) class
    around: Floats  # (F, n) logarithms of `Around`
    noise: Floats  # (n,) variance of the measurement, in those units
    angle: Floats  # (2, pixels): ‖x - truth‖ / ‖truth‖ and the spectral angle, of the default
    # (M, n) the error of the step to the next band of the pixel, in the cube's unit: 0 where that
    # is not hidden; None where spectra are not judged
    step: Floats | None = None
    gap: Ints | None = None  # (n,) number of the hidden piece that an entry lies in; None = one

    def of(self, some: Sequence[int]) -> Trial:
        """With some of the candidates."""
        step = None if self.step is None else self.step[some]
        return self._replace(residual=self.residual[some], step=step)


def folds_of(
    cube: Cube,
    observed: Bools,
    count: int,
    seed: int,
    gaps: Bools | None = None,
    measured: Bools | None = None,
    alike: bool = False,
) -> list[Bools]:
    """Entries of good bands to hide, a fold at a time; gaps and measured as of a `TrialWindow`.

    alike: hidden pixels lack all bands that pixels of the gaps lack; there may be no room for that.
    """
    bands, rng = usable(cube, observed), np.random.default_rng(seed)
    outlines = (observed if gaps is None else ~gaps)[bands]
    judging = (observed if measured is None else observed & measured)[bands]
    given = observed[bands]

    def enough(fold: Bools) -> bool:
        pixels = (fold & judging).any(axis=0).sum()
        return bool(pixels >= FEWEST and (given & ~fold).any(axis=(1, 2)).all())

    copied = folds.spectral_folds if alike else folds.folds
    hidden = [fold for fold in copied(outlines, count, rng) if enough(fold)]
    if len(hidden) < 2 and not alike:  # the gaps are too few for pieces of them to say anything
        hidden = [fold for fold in folds.scattered(outlines, count, rng) if enough(fold)]
    out = []
    for fold in hidden:
        whole = np.zeros(observed.shape, bool)
        whole[bands] = fold & given
        out.append(whole)
    return out


def crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    """What a network that learns finds for each part, side by side."""
    runs = [estimating(cube, observed, chosen(c), sigma_y, job) for cube, observed in parts]
    return estimates(runs, job.device, job.deterministic)


def one_pass(
    several: Sequence[Candidate],
    own: Sequence[Candidate],
    windows: Sequence[TrialWindow],
    hidden: Sequence[tuple[int, Bools]],
    sigma_y: Sigma,
    job: Job,
    at_once: int,
) -> dict[str, list[Estimate]]:
    """What networks that learned elsewhere find, by candidate: on folds, each with the number of
    its window, then, of those in `own`, for the one window that is all there is; so many at a time.

    A network that is tuned is tuned once a window, on what none of the folds hides: each can judge
    it.  Meanwhile the others prepare their planes.
    """
    gpu = torch_device(job.device).type == "cuda"
    fewer = {} if gpu else ON_FOLDS
    runs = [(n, windows[n].observed & ~hide, fewer, several) for n, hide in hidden]
    if own and windows[0].target.any():
        runs.append((0, windows[0].observed, {}, own))
    folds_in = {n: [hide for m, hide in hidden if m == n] for n, *_ in runs}
    with ThreadPoolExecutor(at_once) as pool:
        # submitted first, so that no network is tuned after those that wait for it
        tuning = {
            (c.name, n): pool.submit(network_of, c, windows[n], folds_in[n], sigma_y, job)
            for c in several
            for n in {n for n, *_ in runs}
            if c.tuned
        }

        def one(run: tuple[int, Bools, Mapping[str, Any], Sequence[Candidate]]) -> list[Estimate]:
            n, observed, fewer, some = run
            passes = [_pass_of(c, **fewer) for c in some]
            tuned = [tuning[c.name, n].result if c.tuned else None for c in some]
            return estimate_each(windows[n].cube, observed, passes, sigma_y, job, tuned)

        each = list(pool.map(one, runs))
    found = {c.name: list[Estimate]() for c in several}
    for (*_, some), fits in zip(runs, each, strict=True):
        for c, fit in zip(some, fits, strict=True):
            found[c.name].append(fit)
    return found


def network_of(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Any:
    """The network of the prior, tuned on what none of the folds hides."""
    given = window.observed
    for fold in hidden:
        given = given & ~fold
    return taught(window.cube, given, chosen(c), sigma_y, job)


def tuned_fit(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Estimate:
    """Of a window, by the prior tuned on what none of the folds hides."""
    network = network_of(c, window, hidden, sigma_y, job)
    how = ([_pass_of(c)], sigma_y, job, [lambda: network])
    return estimate_each(window.cube, window.observed, *how)[0]


def _pass_of(c: Candidate, **fewer: Any) -> Chosen:
    """How a candidate fills once its network is there."""
    return chosen(PRIOR, size=c.settings["size"], **fewer) if c.tuned else chosen(c, **fewer)


def mean_estimate(fits: Sequence[Estimate]) -> Estimate:
    """Fits on different folds, averaged: each left out other entries."""
    return fits[0]._replace(values=np.mean([f.values for f in fits], axis=0))


def own_fits(
    candidates: Sequence[Candidate],
    cube: Cube,
    observed: Bools,
    sigma_y: Sigma,
    job: Job,
    at: Bools | None = None,
) -> list[Estimate]:
    """The estimates of candidates whose network, if any, learned elsewhere; at: as of
    `estimate_each`."""
    each = [chosen(c) for c in candidates]
    return estimate_each(cube, observed, each, sigma_y, job, at=at)


def if_memory_allows(made: Callable[[bool], Made], networks: bool) -> Made:
    """What is made with networks, or without them where those take more memory than there is."""
    try:
        return made(networks)
    except (BadValue, MemoryError) as error:
        if not (networks and is_no_memory(error)):
            raise
    return made(False)  # here, where nothing holds on to what was there when memory ran out


def tried_in_memory(
    plan: TrialPlan, trials: list[Trial], ready: Mapping[str, Estimate] | None, inside: bool
) -> tuple[TrialPlan, list[Trial]]:
    """Both without the networks that a trial had no memory for, or the fill of the one window that
    is all there is: ready, by candidate.  inside: networks were tried with the others."""

    def ran_short(m: int, c: Candidate) -> bool:
        untried = any(np.isnan(trial.residual[m]).any() for trial in trials[: plan.costly])
        return c.one_pass and (untried or (ready is not None and c.name not in ready))

    kept = [m for m, c in enumerate(plan.candidates) if not ran_short(m, c)]
    if not inside or len(kept) == len(plan.candidates):
        return plan, trials
    plan = plan.without_room([plan.candidates[m] for m in kept])
    return plan, [trial.of(kept) for trial in trials]


def hidden_pixels(fold: Bools) -> Bools:
    """(rows, cols) where a fold hides some band."""
    pixels: Bools = np.asarray(fold.any(axis=0))
    return pixels


def looked_at(fold: Bools, measured: Bools | None = None) -> tuple[Ints, Ints, Ints]:
    """(band, row, col) of hidden entries, at most MOST_LOOKED: neighbours have similar errors.

    Those that were not measured are left out of the same choice, so that few of them change little.
    """
    at = np.flatnonzero(fold)
    at = at[:: -(-len(at) // MOST_LOOKED)]
    at = at if measured is None else at[measured.ravel()[at]]
    band, row, col = np.unravel_index(at, fold.shape)
    return band, row, col


def trial_of(
    cube: Cube,
    observed: Bools,
    fold: Bools,
    candidates: Sequence[Candidate],
    sigma_y: Sigma,
    job: Job,
    measured: Bools | None = None,
    pretrained: bool = False,
) -> Trial:
    """The candidates on one fold; NaN for costly ones, whose fits `with_costly` adds.

    measured: what of the fold may judge them; None = all of it.  pretrained: also try, on the CPU,
    the networks that learned elsewhere, which share the coordinates of the others.
    """
    visible, pixels = observed & ~fold, hidden_pixels(fold)
    tried = [m for m, c in enumerate(candidates) if not c.costly or (pretrained and c.one_pass)]
    assert tried[0] == 0  # the default candidate is never costly
    several = [
        chosen(c, **(ON_FOLDS if c.one_pass else {})) for c in (candidates[m] for m in tried)
    ]
    estimates = estimate_at(cube, visible, several, sigma_y, job, pixels)
    first, sigma = estimates[0]
    band, row, col = at = looked_at(fold, measured)
    spread = band_spread(cube, visible)
    residual = np.full((len(candidates), len(band)), np.nan)
    step = np.full_like(residual, np.nan)
    for m, (values, _) in zip(tried, estimates, strict=True):
        # the first stands in for what a candidate cannot estimate
        complete = np.where(np.isfinite(values), values, first)
        residual[m] = _residual(complete, cube, pixels, at) / spread[band]
        step[m] = _step(complete, cube, pixels, fold, at)
    plain = [x for m, (x, _) in zip(tried, estimates, strict=True) if not candidates[m].costly]
    lies = around(cube, visible, plain, pixels, fold[:, pixels])
    number = _numbers(pixels)[row, col]
    far, *logs = (
        f[number] if f.ndim == 1 else f[band, number] for f in (lies.distance, *lies.logs())
    )
    distance = np.digitize(far, folds.EDGES)
    noise = (usual.ESTIMATED if isinstance(sigma_y, str) else 1.0) * (sigma / spread)[band] ** 2
    angle = _angles(first, cube, observed, fold, pixels)
    group, logarithms = groups(cube.bands)[band], np.stack(logs)
    gap: Ints = ndimage.label(pixels, mask.EIGHT)[0][row, col].astype(np.int64)
    return Trial(residual, band, group, distance, logarithms, noise, angle, step, gap)


def with_costly(
    trial: Trial, fits: Mapping[int, Floats], window: TrialWindow, fold: Bools
) -> Trial:
    """The trial with the residuals of some candidates, by number, taken from what they find for the
    hidden pixels (bands, n)."""
    cube, observed, at = window.cube, window.observed, looked_at(fold, window.measured)
    assert trial.step is not None
    pixels, residual, step = hidden_pixels(fold), trial.residual.copy(), trial.step.copy()
    spread = band_spread(cube, observed & ~fold)[trial.band]
    for m, values in fits.items():
        residual[m] = _residual(values, cube, pixels, at) / spread
        step[m] = _step(values, cube, pixels, fold, at)
    return trial._replace(residual=residual, step=step)


def _residual(values: Floats, cube: Cube, pixels: Bools, at: tuple[Ints, Ints, Ints]) -> Floats:
    """(n,) what values (bands, pixels) say at some entries, less what was measured there."""
    off: Floats = values[at[0], _numbers(pixels)[at[1:]]] - np.asarray(cube.values)[at]
    return off


def _step(
    values: Floats, cube: Cube, pixels: Bools, fold: Bools, at: tuple[Ints, Ints, Ints]
) -> Floats:
    """(n,) the error of the difference to the next band; 0 where the fold does not hide that."""
    band, row, col = at
    following = np.minimum(band + 1, len(values) - 1)
    both = fold[following, row, col] & (following > band)
    later, own = (_residual(values, cube, pixels, (b, row, col)) for b in (following, band))
    error: Floats = np.where(both, later - own, 0.0)
    return error


def _numbers(pixels: Bools) -> Ints:
    """(rows, cols) the index of each pixel among those of the mask."""
    numbers: Ints = np.cumsum(pixels).reshape(pixels.shape) - 1
    return numbers


def _angles(values: Floats, cube: Cube, observed: Bools, fold: Bools, pixels: Bools) -> Floats:
    entries = trusted(cube, observed)[:, pixels]
    truth = np.asarray(np.asarray(cube.values)[:, pixels], dtype=np.float64)
    b = np.where(entries, truth, 0.0)
    a = np.where(entries, np.where(fold[:, pixels], values, truth), 0.0)
    return np.stack([share_of_length(np.linalg.norm(a - b, axis=0), b), _angle(a, b)])


def _angle(a: Floats, b: Floats) -> Floats:
    """(pixels,) degrees between spectra (bands, pixels); 0 where one of them is 0."""
    ones = np.ones(a.shape[1])
    cosine = np.einsum("bp,bp->p", a * share_of_length(ones, a), b * share_of_length(ones, b))
    either = a.any(axis=0) & b.any(axis=0)
    angle: Floats = np.where(either, np.degrees(np.arccos(np.clip(cosine, -1, 1))), 0.0)
    return angle


def importance(trial: Trial, target: tuple[Ints, Floats]) -> Floats:
    """(n,) so that the hidden entries count like those to fill (`Kinds`)."""
    count, edges = target
    texture = np.digitize(np.exp(trial.around[1]), edges)
    return folds.importance(trial.distance * T + texture, count)
