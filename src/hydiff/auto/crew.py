"""The trials of a decision, run side by side by child processes or threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

import numpy as np

from hydiff.auto import references, split
from hydiff.auto.candidates import SPECTRAL, Budget, Candidate
from hydiff.auto.classes import ClassCounts, class_counts
from hydiff.auto.fits import crossfit, mean_estimate, own_fits, pretrained_fits
from hydiff.auto.folds import TrialWindow
from hydiff.auto.planning import TrialPlan, plan_for_some, plan_trials
from hydiff.auto.trials import BareWindow, Trial, hidden_pixels, trial_of, with_costly
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, is_no_memory
from hydiff.io.threads import cores
from hydiff.maths.noise_level import Sigma
from hydiff.methods.devices import torch_device
from hydiff.methods.estimate import Estimate, Job, Progress
from hydiff.result import Step
from hydiff.workers.blas import one_thread
from hydiff.workers.local import BYTES, Processes, Threads, possible, staying

T = TypeVar("T")
COPIES, SPECTRAL_COPIES = 6, 16  # float64 copies of a cube that a trial makes, measured
MANY_CORES, FEWEST, WORTHWHILE = 4, 3, 1e6  # least cores, children, entries for child processes
NEEDED = ("hydiff.auto.crew", "hydiff.methods.smooth")  # imports of a child that tries folds


class Ask(NamedTuple):
    """The options of a decision."""

    budget: Budget
    job: Job
    memory: float  # bytes for all trials that run at the same time
    whole: bool  # there is a single window, which is the whole cube
    helpers: Processes | None = None  # that have loaded the network, and wait for later work


class ReferenceTrials(NamedTuple):
    """The trials with references, on the first folds that have any."""

    candidates: tuple[Candidate, ...]
    folds: list[references.Fold]
    without: list[Trial]  # of the candidates without a reference, on the same folds
    trials: list[Trial]


class TrialRun(NamedTuple):
    """The trials for gaps of one kind, and the estimates that were made for them or beside them."""

    plan: TrialPlan  # without the candidates for which memory ran out
    trials: list[Trial]
    costly: Mapping[str, Sequence[Estimate]]  # of costly candidates on the first folds, by name
    ready: dict[str, Estimate]  # of the single window itself, by candidate
    counts: ClassCounts
    references: ReferenceTrials


def run_trials(
    kind: str, windows: Sequence[TrialWindow], sigma_y: Sigma, ask: Ask, progress: Progress
) -> TrialRun:
    """Run the trials for gaps of one kind."""
    budget, job, memory, whole, helpers = ask
    largest = max((w.cube for w in windows), key=lambda cube: np.prod(cube.shape))
    # one thread of linear algebra: the other cores run other trials, whose threads would compete
    with one_thread(), crew_for(largest, budget, memory, helpers) as crew:
        make_plan = plan_trials if kind == split.NONE else plan_for_some
        plan = make_plan(windows, sigma_y, budget, job.seed)
        candidates = references.candidates_for(windows, plan.candidates)
        shared = _Shared([_bare(w) for w in windows], plan.candidates, candidates, sigma_y, job)
        crew.share(shared)
        inside = crew is helpers or (isinstance(crew, Threads) and in_trials(plan.candidates, job))
        shares = inside or not job.deterministic  # determinism is a setting of the whole process
        own_future = crew.here(_own, shares) if whole else None
        trial_futures = [
            crew.submit(_trial, w, hide, inside and i < plan.costly)
            for i, (w, hide) in enumerate(plan.hidden)
        ]
        hidden = [fold for fold in plan.hidden if windows[fold[0]].references][: references.FOLDS]
        reference_futures = [crew.submit(_reference_trial, w, hide) for w, hide in hidden]
        counts = class_counts(windows)  # while the trials run
        if progress is not None and any(c.costly for c in plan.candidates):
            progress(Step(0, len(plan.hidden) + 1, None, phase="networks"))
        plan, costly = _costly(plan, windows, sigma_y, ask, inside, shares)
        remaining = [m for m, c in enumerate(shared.candidates) if c in plan.candidates]
        trials = list(_trials(trial_futures, remaining, plan, windows, costly, progress))
        reference_trials = [trial.result() for trial in reference_futures]
        ready = None if own_future is None else own_future.result()
    plan, trials = _tried_in_memory(plan, trials, ready, inside)
    if ready is not None:
        ready |= _applicable([c for c in plan.candidates if not (shares and c.one_pass)], costly)
    folds = [references.Fold(windows[n], hide) for n, hide in hidden]
    pairs = zip(trials, plan.hidden, strict=False)  # the user may have ended the trials
    without = [trial for trial, (n, _) in pairs if windows[n].references]
    with_references = ReferenceTrials(candidates, folds, without, reference_trials)
    return TrialRun(plan, trials, costly, ready or {}, counts, with_references)


class _Shared(NamedTuple):
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


def _trial(shared: _Shared, window: int, hide: Bools, pretrained: bool) -> Trial:
    """Return the trial of a fold by the candidates without a reference, as by `trial_of`."""
    windows, candidates, _, sigma_y, job = shared
    arguments = (windows[window], hide, candidates, sigma_y, job)
    return _if_memory_allows(lambda networks: trial_of(*arguments, networks), pretrained)


def _reference_trial(shared: _Shared, window: int, hide: Bools) -> Trial:
    """Return the trial of a fold by the candidates with a reference."""
    bare = shared.windows[window]
    job = shared.job._replace(references=bare.references)
    return trial_of(bare, hide, shared.with_reference, shared.sigma_y, job)


def _if_memory_allows(function: Callable[[bool], T], networks: bool) -> T:
    """Return `function(networks)`; `function(False)` where networks need too much memory."""
    try:
        return function(networks)
    except (BadValue, MemoryError) as error:
        if not (networks and is_no_memory(error)):
            raise
    # after the handler, whose error keeps the arrays of the first call alive
    return function(False)


def _own(shared: _Shared, pretrained: bool) -> dict[str, Estimate]:
    """Return the estimates of the single window itself, by candidate: without a network and, if
    `pretrained`, with a pretrained network that is not tuned.  They share its coordinates.

    They are needed whatever is decided, so they are computed at the same time as the trials.
    """
    [(cube, observed, *_)], candidates, _, sigma_y, job = shared

    def fits(networks: bool) -> dict[str, Estimate]:
        chosen = [c for c in candidates if not c.costly or (networks and c.one_pass)]
        estimates = own_fits(chosen, cube, observed, sigma_y, job)
        return {c.name: estimate for c, estimate in zip(chosen, estimates, strict=True)}

    return _if_memory_allows(fits, pretrained)


def _costly(
    plan: TrialPlan,
    windows: Sequence[TrialWindow],
    sigma_y: Sigma,
    ask: Ask,
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
            arguments = (windows, first, sigma_y, ask.job, at_once)
            fits |= pretrained_fits(pretrained, for_window, *arguments)
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


def _tried_in_memory(
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


def step_of(done: int, trials: int) -> Step:
    """Return the progress after so many trials; the work after the last one counts as one more."""
    return Step(done, trials + 1, None, phase="trials" if done < trials else "blending")


def many_cores() -> bool:
    """Return whether there are enough cores for trials in child processes."""
    return cores() >= MANY_CORES


@contextlib.contextmanager
def crew_for(
    cube: Cube, budget: Budget, memory: float, helpers: Processes | None = None
) -> Iterator[Processes | Threads]:
    """Yield the workers that try the folds: as many as there are cores, and memory for.

    Many threads hinder one another, so on many cores child processes are used, if the cube is large
    enough to be worth their start: `helpers`, if all of them fit into memory, or others.
    """
    size, at_once = float(np.prod(cube.shape)), cores()
    per_trial = (SPECTRAL_COPIES if SPECTRAL[-1] in budget.candidates else COPIES) * 8 * size
    # less one for this process
    most = int(memory / (per_trial + BYTES)) - 1
    count = min(at_once, budget.folds, most)
    worthwhile = many_cores() and count >= FEWEST and size >= WORTHWHILE and possible()
    with contextlib.ExitStack() as stack:
        if worthwhile and helpers is not None and len(helpers.processes) <= most:
            stack.callback(helpers.rest)
            yield helpers
            return
        crew: Processes | Threads | None = None
        with contextlib.suppress(OSError):  # the system cannot start more processes
            crew = stack.enter_context(staying(count, NEEDED)) if worthwhile else None
        threads = max(1, min(at_once, int(memory / per_trial)))
        yield crew or stack.enter_context(Threads(threads))
