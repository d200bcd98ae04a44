"""Trials: the errors of candidates on hidden copies of the gaps, where the truth was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import ndimage

from hydiff.auto import folds, usual
from hydiff.auto.candidates import ON_FOLDS, PRIOR, Candidate, chosen
from hydiff.auto.classes import (
    EDGES,
    around,
    band_spread,
    groups,
    share_of_length,
    trusted,
    usable,
)
from hydiff.cube import Bools, Cube, Floats, Ints
from hydiff.errors import BadValue, is_no_memory
from hydiff.gaps import mask
from hydiff.maths.noise_level import Sigma
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
FEWEST = 30  # least hidden pixels of a fold
MOST_LOOKED = 20_000  # most hidden entries of a fold whose errors are computed


class TrialWindow(NamedTuple):
    """A part of a scene; masks have its shape (bands, rows, cols)."""

    cube: Cube
    observed: Bools
    target: Bools
    gaps: Bools | None = None  # those whose copies are hidden; None = all missing entries
    # observed entries that were measured, not estimated, and may serve as truth; None = all
    measured: Bools | None = None
    references: tuple[ReferencePlanes, ...] = ()  # other images of the place, on its grid


class TrialPlan(NamedTuple):
    """The candidates to try, and the folds to try them on."""

    candidates: list[Candidate]
    hidden: list[tuple[int, Bools]]  # folds: the number of a window, and its entries to hide
    each: int  # number of folds that were asked for in each window
    costly: int  # number of folds, the first ones, on which costly candidates are tried too
    note: str  # the candidates that were left out, and the reason

    def without_room(self, left: list[Candidate]) -> TrialPlan:
        """Return the plan with the candidates that are left when memory has run out."""
        note = f"{self.note}; too little memory on the device: networks were left out"
        return self._replace(candidates=left, note=note)


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


def folds_of(
    cube: Cube,
    observed: Bools,
    count: int,
    seed: int,
    gaps: Bools | None = None,
    measured: Bools | None = None,
    alike: bool = False,
) -> list[Bools]:
    """Return up to `count` folds: entries of good bands to hide, each (bands, rows, cols).

    gaps, measured: as in `TrialWindow`.
    alike: a hidden pixel lacks all bands that a pixel of the gaps lacks; there may be no place for
    such folds.
    """
    bands, rng = usable(cube, observed), np.random.default_rng(seed)
    outside_gaps = (observed if gaps is None else ~gaps)[bands]
    truth_known = (observed if measured is None else observed & measured)[bands]
    usable_observed = observed[bands]

    def enough(fold: Bools) -> bool:
        pixels = (fold & truth_known).any(axis=0).sum()
        return bool(pixels >= FEWEST and (usable_observed & ~fold).any(axis=(1, 2)).all())

    make_folds = folds.spectral_folds if alike else folds.folds
    hidden = [fold for fold in make_folds(outside_gaps, count, rng) if enough(fold)]
    if len(hidden) < 2 and not alike:  # pieces of so few gaps are too small
        hidden = [fold for fold in folds.scattered(outside_gaps, count, rng) if enough(fold)]
    masks = []
    for fold in hidden:
        mask_of_fold = np.zeros(observed.shape, bool)
        mask_of_fold[bands] = fold & usable_observed
        masks.append(mask_of_fold)
    return masks


def crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    """Return the estimates of a network that is fitted to each part, side by side on a GPU."""
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
    """Return the estimates of pretrained networks, by candidate, `at_once` runs at a time.

    Each has one estimate per fold in `hidden` (number of the window, entries to hide); those in
    `own` have one more at the end, of the first window itself if it has entries to fill.  A tuned
    network is trained once per window, on the entries that none of the folds hides, so that each
    fold can judge it.  Meanwhile the other networks prepare their planes.
    """
    gpu = torch_device(job.device).type == "cuda"
    fewer = {} if gpu else ON_FOLDS
    runs = [(n, windows[n].observed & ~hide, fewer, several) for n, hide in hidden]
    if own and windows[0].target.any():
        runs.append((0, windows[0].observed, {}, own))
    folds_in = {n: [hide for m, hide in hidden if m == n] for n, *_ in runs}
    with ThreadPoolExecutor(at_once) as pool:
        # submitted first, so that no run waits for a network that has not started its tuning
        tuning = {
            (c.name, n): pool.submit(network_of, c, windows[n], folds_in[n], sigma_y, job)
            for c in several
            for n in {n for n, *_ in runs}
            if c.tuned
        }

        def run_passes(
            run: tuple[int, Bools, Mapping[str, Any], Sequence[Candidate]],
        ) -> list[Estimate]:
            n, observed, fewer, candidates = run
            passes = [_pass_of(c, **fewer) for c in candidates]
            tuned = [tuning[c.name, n].result if c.tuned else None for c in candidates]
            return estimate_each(windows[n].cube, observed, passes, sigma_y, job, tuned)

        results = list(pool.map(run_passes, runs))
    estimates_of = {c.name: list[Estimate]() for c in several}
    for (*_, candidates), fits in zip(runs, results, strict=True):
        for c, fit in zip(candidates, fits, strict=True):
            estimates_of[c.name].append(fit)
    return estimates_of


def network_of(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Any:
    """Return the pretrained network of `c`, tuned on the entries that none of the folds hides."""
    visible = window.observed
    for fold in hidden:
        visible = visible & ~fold
    return taught(window.cube, visible, chosen(c), sigma_y, job)


def tuned_fit(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Estimate:
    """Return the estimate of a window by the prior, tuned as in `network_of`."""
    network = network_of(c, window, hidden, sigma_y, job)
    arguments = ([_pass_of(c)], sigma_y, job, [lambda: network])
    return estimate_each(window.cube, window.observed, *arguments)[0]


def _pass_of(c: Candidate, **fewer: Any) -> Chosen:
    """Return the method of a candidate; of a tuned one that of the prior, to run its network."""
    return chosen(PRIOR, size=c.settings["size"], **fewer) if c.tuned else chosen(c, **fewer)


def mean_estimate(fits: Sequence[Estimate]) -> Estimate:
    """Return the mean of fits on different folds, which left out different entries."""
    return fits[0]._replace(values=np.mean([f.values for f in fits], axis=0))


def own_fits(
    candidates: Sequence[Candidate],
    cube: Cube,
    observed: Bools,
    sigma_y: Sigma,
    job: Job,
    at: Bools | None = None,
) -> list[Estimate]:
    """Return the estimates of candidates that need no fit on folds; at: as in `estimate_each`."""
    methods = [chosen(c) for c in candidates]
    return estimate_each(cube, observed, methods, sigma_y, job, at=at)


def if_memory_allows(made: Callable[[bool], Made], networks: bool) -> Made:
    """Return `made(networks)`, or `made(False)` where networks need more memory than there is."""
    try:
        return made(networks)
    except (BadValue, MemoryError) as error:
        if not (networks and is_no_memory(error)):
            raise
    return made(False)  # after the handler, whose error keeps the arrays of the first call alive


def tried_in_memory(
    plan: TrialPlan, trials: list[Trial], ready: Mapping[str, Estimate] | None, inside: bool
) -> tuple[TrialPlan, list[Trial]]:
    """Return plan and trials without the networks for which memory ran out, in a trial or in the
    fill of the single window.

    ready: estimates of that window, by candidate; None without one.
    inside: networks ran in the trials of the other candidates.
    """

    def ran_short(m: int, c: Candidate) -> bool:
        untried = any(np.isnan(trial.residual[m]).any() for trial in trials[: plan.costly])
        return c.one_pass and (untried or (ready is not None and c.name not in ready))

    remaining = [m for m, c in enumerate(plan.candidates) if not ran_short(m, c)]
    if not inside or len(remaining) == len(plan.candidates):
        return plan, trials
    plan = plan.without_room([plan.candidates[m] for m in remaining])
    return plan, [trial.of(remaining) for trial in trials]


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
    cube: Cube,
    observed: Bools,
    fold: Bools,
    candidates: Sequence[Candidate],
    sigma_y: Sigma,
    job: Job,
    measured: Bools | None = None,
    pretrained: bool = False,
) -> Trial:
    """Return the trial of the candidates on one fold; costly ones are NaN until `with_costly`.

    measured: entries that may serve as truth; None = all.
    pretrained: also try, on the CPU, the pretrained networks that are not tuned; they share the
    coordinates of the other candidates.
    """
    visible, pixels = observed & ~fold, hidden_pixels(fold)
    tried = [m for m, c in enumerate(candidates) if not c.costly or (pretrained and c.one_pass)]
    assert tried[0] == 0  # the default candidate is never costly
    methods = [
        chosen(c, **(ON_FOLDS if c.one_pass else {})) for c in (candidates[m] for m in tried)
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
