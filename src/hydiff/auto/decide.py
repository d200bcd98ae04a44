"""Decide how to fill: try the candidates, compute their weights, and build the recipe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import references, split
from hydiff.auto.apply import Ready, blended, noise_of
from hydiff.auto.blend import Weights, weights_of
from hydiff.auto.candidates import NAME, SPECTRAL, SPECTRAL_FOLDS, Budget, Candidate
from hydiff.auto.classes import class_counts
from hydiff.auto.intervals import errors_of
from hydiff.auto.missingness import rim_in
from hydiff.auto.planning import for_some, planned, planned_for_some
from hydiff.auto.recipe import KindRecipe
from hydiff.auto.trials import (
    Trial,
    TrialPlan,
    TrialWindow,
    crossfit,
    hidden_pixels,
    if_memory_allows,
    mean_estimate,
    one_pass,
    own_fits,
    trial_of,
    tried_in_memory,
    with_costly,
)
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, is_no_memory
from hydiff.gaps.rule import Sigma
from hydiff.io.threads import cores
from hydiff.learn.prior_weights import digest, packaged
from hydiff.methods.estimate import Estimate, Job, Progress, torch_device
from hydiff.reference.models import ReferencePlanes
from hydiff.result import Step
from hydiff.workers.blas import one_thread
from hydiff.workers.local import BYTES, Processes, Threads, possible, staying

MEMORY = 4e9  # bytes for all trials that run at the same time
COPIES, SPECTRAL_COPIES = 6, 16  # float64 copies of a cube that a trial makes, measured
MANY_CORES, FEWEST, WORTHWHILE = 4, 3, 1e6  # least cores, children, entries for child processes
NEEDED = ("hydiff.auto.decide", "hydiff.methods.smooth")  # imports of a child that tries folds


def decide_on(
    windows: Sequence[TrialWindow],
    sigma_y: Sigma,
    budget: Budget,
    job: Job,
    progress: Progress = None,
    memory: float = MEMORY,
    whole: bool = False,
) -> tuple[dict[str, Any], Ready]:
    """Return one recipe for a scene, decided on windows that share the folds among them, and the
    estimates of candidates that are ready.

    memory: bytes for all trials that run at the same time.
    whole: there is a single window, which is the whole cube.  Only then are estimates ready.
    If there are gaps of both kinds (`split`), the recipe is for the pixels without any band, and
    its entry `partial` is the recipe for the pixels that keep some bands.
    """
    ask = _Ask(budget, job._replace(checkpoint=None), memory, whole)
    with ThreadPoolExecutor(1) as executor:
        rim_future = executor.submit(rim_in, windows, job.seed)
        recipe, ready = _by_kind(windows, sigma_y, ask, progress)
    rim = rim_future.result()
    return recipe | ({} if rim is None else {"rim": asdict(rim)}), ready


def _by_kind(
    windows: Sequence[TrialWindow], sigma_y: Sigma, ask: _Ask, progress: Progress
) -> tuple[dict[str, Any], Ready]:
    """Return the recipe, which contains that of the second kind of gaps if both kinds exist, and
    the estimates that are ready, by kind."""
    budget, job, *_ = ask
    kinds = [split.kinds_in(w.cube, w.observed) for w in windows]
    if len(present := set().union(*kinds)) < 2:
        kind = next(iter(present), split.NONE)
        recipe, ready = _decided(kind, windows, sigma_y, ask, progress)
        return recipe, {kind: ready}
    keeping = {n: split.keeping(windows[n]) for n, own in enumerate(kinds) if split.SOME in own}
    first, later = _in_turn(progress, SPECTRAL_FOLDS + 1, budget.folds + 1)
    partial, ready = _decided(split.SOME, [*keeping.values()], sigma_y, ask, first)
    lost = [n for n, own in enumerate(kinds) if split.NONE in own]
    if not any(split.aims_at_lost(windows[n]) for n in lost):
        return partial, {split.SOME: ready}
    own = KindRecipe.of(partial)
    completed = {n: blended(own, w, sigma_y, job, ready).estimate for n, w in keeping.items()}
    values = {
        n: completed[n].values if n in completed else np.asarray(windows[n].cube.values)
        for n in lost
    }
    lost_windows = [split.lost(windows[n], values[n]) for n in lost]
    recipe, lost_ready = _decided(
        split.NONE, lost_windows, noise_of(sigma_y, [*completed.values()]), ask, later
    )
    return recipe | {"partial": partial}, {split.SOME: ready, split.NONE: lost_ready}


class _Ask(NamedTuple):
    """The options of a decision."""

    budget: Budget
    job: Job
    memory: float
    whole: bool  # there is a single window, which is the whole cube


def _in_turn(progress: Progress, first: int, later: int) -> tuple[Progress, Progress]:
    """Return callbacks for two tasks in turn, of `first` and `later` steps, that report as one."""
    if progress is None:
        return None, None

    def of_all(step: Step, before: int) -> Any:
        return progress(step._replace(done=before + step.done, total=first + later))

    return (lambda step: of_all(step, 0)), (lambda step: of_all(step, first))


def _decided(
    kind: str, windows: Sequence[TrialWindow], sigma_y: Sigma, ask: _Ask, progress: Progress
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """Return the recipe for gaps of one kind, and the estimates that are ready, by candidate."""
    budget, job, memory, whole = ask
    whole_pixels = kind == split.NONE
    note = ""
    if not whole_pixels:
        alone = all(w.gaps is None for w in windows)
        if alone and any(c.learns for c in budget.candidates):
            note = "; most pixels with gaps keep some bands: networks that learn were left out"
        budget = for_some(budget)
    largest = max((w.cube for w in windows), key=lambda cube: np.prod(cube.shape))
    # one thread of linear algebra: the other cores run other trials, whose threads would compete
    with one_thread(), crew_for(largest, budget, memory) as crew:
        plan = (planned if whole_pixels else planned_for_some)(windows, sigma_y, budget, job.seed)
        with_reference = references.candidates_for(windows, plan.candidates)
        common = _Common([_bare(w) for w in windows], plan.candidates, with_reference, sigma_y, job)
        crew.share(common)
        inside = isinstance(crew, Threads) and in_trials(plan.candidates, job)
        shares = inside or not job.deterministic  # determinism is a setting of the whole process
        own_fits_future = crew.here(_own, shares) if whole else None
        trial_futures = [
            crew.submit(_trial, w, hide, inside and i < plan.costly)
            for i, (w, hide) in enumerate(plan.hidden)
        ]
        hidden = [fold for fold in plan.hidden if windows[fold[0]].references][: references.FOLDS]
        reference_futures = [crew.submit(_reference_trial, w, hide) for w, hide in hidden]
        counts = class_counts(windows)
        if progress is not None and any(c.costly for c in plan.candidates):
            progress(Step(0, len(plan.hidden) + 1, None, phase="networks"))
        plan, costly = _costly(plan, windows, sigma_y, ask, inside, shares)
        remaining = [m for m, c in enumerate(common.candidates) if c in plan.candidates]
        trials = list(_trials(trial_futures, remaining, plan, windows, costly, progress))
        reference_trials = [trial.result() for trial in reference_futures]
        ready: dict[str, Estimate] = {} if own_fits_future is None else own_fits_future.result()
    plan, trials = tried_in_memory(plan, trials, None if own_fits_future is None else ready, inside)
    weights = weights_of(trials, counts, plan.candidates, job.seed, from_nothing=not whole_pixels)
    if not any(w.target.any() for w in windows):
        weights = weights._replace(why="there is nothing to fill")
    errors = errors_of(trials, weights, counts, windows[0].cube.bands, whole=whole_pixels)
    recipe = {
        "method": NAME,
        "gaps": kind,
        "candidates": [
            _entry(c, costly, plan, job.seed) | {"share": round(float(share), 4)}
            for c, share in zip(plan.candidates, weights.share, strict=True)
        ],
        "weights": weights.all.tolist(),
        "errors": asdict(errors) | {"basis": list(errors.basis)},
        "folds": len(trials),
        "why": weights.why + plan.note + note,
    }
    if reference_trials:
        folds = [references.Fold(windows[n], hide) for n, hide in hidden]
        pairs = zip(trials, plan.hidden, strict=False)
        without = [trial for trial, (n, _) in pairs if windows[n].references]
        recipe |= _with_reference(common, plan, windows, folds, without, reference_trials, weights)
    if own_fits_future is not None:
        ready |= _applicable([c for c in plan.candidates if not (shares and c.one_pass)], costly)
    return recipe, ready


def _with_reference(
    common: _Common,
    plan: TrialPlan,
    windows: Sequence[TrialWindow],
    folds: Sequence[references.Fold],
    plain_trials: Sequence[Trial],
    reference_trials: Sequence[Trial],
    weights: Weights,
) -> dict[str, Any]:
    """Return the entry of a recipe about references; empty where nothing could be decided.

    folds: those on which references were tried; plain_trials, reference_trials: the trials on these
    folds of the candidates without a reference and of those with one.
    """
    job, without_network = common.job, common.with_reference
    networks = references.networks_for(without_network, plan.candidates)
    reference_trials = references.with_networks(
        reference_trials, folds, networks, common.sigma_y, job
    )
    candidates = (*without_network, *networks)
    decision = references.decided(
        windows, folds, plain_trials, reference_trials, weights, candidates, job.seed
    )
    return {} if decision is None else {"with_reference": references.entry(decision)}


class BareWindow(NamedTuple):
    """The part of a `TrialWindow` that a trial needs."""

    cube: Cube
    observed: Bools
    measured: Bools | None
    references: tuple[ReferencePlanes, ...]


class _Common(NamedTuple):
    """The data that all trials share; each process of a crew receives them once."""

    windows: list[BareWindow]
    candidates: list[Candidate]
    with_reference: tuple[Candidate, ...]
    sigma_y: Sigma
    job: Job


def _bare(window: TrialWindow) -> BareWindow:
    """Return the part of a window that trials need, in memory; the rest may not be picklable."""
    cube = window.cube
    attrs = {} if cube.detectors is None else {"detector": cube.detectors}
    values = np.asarray(cube.values)
    bare = Cube(values, wavelengths=cube.wavelengths, good=cube.good, attrs=attrs)
    return BareWindow(bare, window.observed, window.measured, window.references)


def in_trials(candidates: Sequence[Candidate], job: Job) -> bool:
    """Whether pretrained networks run in the trials of the other candidates, which is on the CPU.

    Not with determinism, which is a setting of the whole process that threads would undo.
    """
    has_pretrained = any(c.one_pass for c in candidates)
    return has_pretrained and not job.deterministic and torch_device(job.device).type == "cpu"


def _trial(common: _Common, window: int, hide: Bools, pretrained: bool) -> Trial:
    """Return the trial of a fold by the candidates without a reference, as by `trial_of`."""
    windows, candidates, _, sigma_y, job = common
    cube, observed, measured, _ = windows[window]
    arguments = (cube, observed, hide, candidates, sigma_y, job, measured)
    return if_memory_allows(lambda networks: trial_of(*arguments, networks), pretrained)


def _reference_trial(common: _Common, window: int, hide: Bools) -> Trial:
    """Return the trial of a fold by the candidates with a reference."""
    cube, observed, measured, references = common.windows[window]
    job = common.job._replace(references=references)
    return trial_of(cube, observed, hide, common.with_reference, common.sigma_y, job, measured)


def _own(common: _Common, pretrained: bool) -> dict[str, Estimate]:
    """Return the estimates of the single window itself, by candidate: without a network and, if
    `pretrained`, with a pretrained network that is not tuned.  They share its coordinates.

    They are needed whatever is decided, so they are computed at the same time as the trials.
    """
    [(cube, observed, *_)], candidates, _, sigma_y, job = common

    def fits(networks: bool) -> dict[str, Estimate]:
        chosen = [c for c in candidates if not c.costly or (networks and c.one_pass)]
        estimates = own_fits(chosen, cube, observed, sigma_y, job)
        return {c.name: estimate for c, estimate in zip(chosen, estimates, strict=True)}

    return if_memory_allows(fits, pretrained)


def _costly(
    plan: TrialPlan,
    windows: Sequence[TrialWindow],
    sigma_y: Sigma,
    ask: _Ask,
    inside: bool,
    shares: bool,
) -> tuple[TrialPlan, dict[str, list[Estimate]]]:
    """Return the plan, and the estimates of the costly candidates on the first folds, by name.

    For pretrained networks the last estimate may be that of the single window itself.  If the
    device has too little memory, return a plan without the costly candidates, and no estimates.
    inside: pretrained networks that are not tuned run in the trials of the other candidates.
    shares: such networks fill the single window together with the other candidates.
    """
    first = plan.hidden[: plan.costly]
    parts = [(windows[n].cube, windows[n].observed & ~hide) for n, hide in first]
    largest = max((float(np.prod(w.cube.shape)) for w in windows), default=1.0)
    # two, so that one prepares its planes while the network runs on those of the other; more would
    # only wait for Python's lock.  Half of the memory is left to the trials that run meanwhile
    at_once = max(1, min(2, int(ask.memory / 2 / (COPIES * 8 * largest))))
    at_once = 1 if ask.job.deterministic else at_once  # determinism is a setting of the process
    pretrained = [c for c in plan.candidates if c.pretrained and not (inside and c.one_pass)]
    try:
        fits = {c.name: crossfit(c, parts, sigma_y, ask.job) for c in plan.candidates if c.crossfit}
        if pretrained:
            for_window = [c for c in pretrained if ask.whole and not (shares and c.one_pass)]
            fits |= one_pass(pretrained, for_window, windows, first, sigma_y, ask.job, at_once)
        return plan, fits
    except BadValue as error:
        if not is_no_memory(error):
            raise
    return plan.without_room([c for c in plan.candidates if not c.costly]), {}


def _applicable(
    candidates: Sequence[Candidate], costly: Mapping[str, Sequence[Estimate]]
) -> dict[str, Estimate]:
    """Return the estimates of the networks for the single window, by candidate: the fit to it for
    pretrained networks, the mean of the fits on the folds for others."""
    fits = {c.name: costly[c.name] for c in candidates if costly.get(c.name)}
    pretrained = {c.name for c in candidates if c.pretrained}
    return {
        name: estimates[-1] if name in pretrained else mean_estimate(estimates)
        for name, estimates in fits.items()
    }


def _trials(
    futures: Sequence[Future[Trial]],
    remaining: Sequence[int],
    plan: TrialPlan,
    windows: Sequence[TrialWindow],
    costly: Mapping[str, Sequence[Estimate]],
    progress: Progress,
) -> Iterator[Trial]:
    """Yield the trial of each fold when it is done, until `progress` returns true.

    remaining: numbers of the candidates.  Trials of the first folds include the costly ones.
    """
    number = {c.name: m for m, c in enumerate(plan.candidates)}
    for i, (future, (window, hide)) in enumerate(zip(futures, plan.hidden, strict=True)):
        trial, pixels = future.result().of(remaining), hidden_pixels(hide)
        of_fold = costly if i < plan.costly else {}
        fits = {number[name]: estimates[i].values[:, pixels] for name, estimates in of_fold.items()}
        yield with_costly(trial, fits, windows[window], hide) if fits else trial
        if progress is not None and progress(step_of(i + 1, len(plan.hidden))):
            return


def step_of(done: int, trials: int) -> Step:
    """Return the progress after so many trials; the work after the last one counts as one more."""
    return Step(done, trials + 1, None, phase="trials" if done < trials else "blending")


def _entry(
    c: Candidate, costly: Mapping[str, Sequence[Estimate]], plan: TrialPlan, seed: int
) -> dict[str, Any]:
    """Return the entry of a candidate in a recipe; for a network that was fitted, with its folds,
    so that the fits can be repeated."""
    settings = {name: value for name, value in c.settings.items() if not isinstance(value, str)}
    entry = {"name": c.name, "method": c.method, "settings": settings}
    if c.pretrained:
        entry |= {"weights": digest(packaged(str(c.settings["size"])))}
    fits = len(costly[c.name]) if c.crossfit else len(plan.hidden[: plan.costly]) * c.tuned
    return entry | ({"fits": fits, "of": max(plan.each, fits), "seed": seed} if fits else {})


@contextlib.contextmanager
def crew_for(cube: Cube, budget: Budget, memory: float) -> Iterator[Processes | Threads]:
    """Yield the workers that try the folds: as many as there are cores, and memory for.

    Many threads hinder one another, so on many cores child processes are used, if the cube is large
    enough to be worth their start.
    """
    size, at_once = float(np.prod(cube.shape)), cores()
    per_trial = (SPECTRAL_COPIES if SPECTRAL[-1] in budget.candidates else COPIES) * 8 * size
    # less one for this process
    count = min(at_once, budget.folds, int(memory / (per_trial + BYTES)) - 1)
    crew: Processes | Threads | None = None
    with contextlib.ExitStack() as stack:
        if at_once >= MANY_CORES and count >= FEWEST and size >= WORTHWHILE and possible():
            with contextlib.suppress(OSError):  # the system cannot start more processes
                crew = stack.enter_context(staying(count, NEEDED))
        threads = max(1, min(at_once, int(memory / per_trial)))
        yield crew or stack.enter_context(Threads(threads))
