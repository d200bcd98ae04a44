"""Run a method on a cube: scale to the unit range, run its generator to the end, scale back."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Scale, detector_scale
from hydiff.errors import BadValue, check_memory_limit, memory_advice
from hydiff.gaps import mask
from hydiff.learn.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.maths.noise_level import Sigma, unit_sigma
from hydiff.maths.subspace import Subspace
from hydiff.methods import Chosen, choose
from hydiff.methods.determinism import determinism
from hydiff.methods.devices import gpu_of_components, torch_device
from hydiff.methods.offers import for_bands
from hydiff.methods.settings import settings_dict
from hydiff.reference.models import ReferencePlanes
from hydiff.result import Step

Progress = Callable[[Step], Any] | None  # a true return value stops the method after this step

MEMORY_ADVICE = "set fewer channels (`channels=64`), another device, or fill a window of the cube"


class Extent(NamedTuple):
    """Spread and range of the values of a scene, in the cube's unit."""

    spread: Floats  # (bands,) standard deviations of the observed entries, 1 for constant bands
    peak: float  # largest minus smallest value


class Common(NamedTuple):
    """Data shared by all parts of one scene, so that their fills meet without a seam."""

    scale: Scale
    bands: Bools  # (bands,) bands that the subspace describes
    space: Subspace | None  # for methods that work on components; None: fitted to each part
    extent: Extent | None = None
    prior: Mapping[str, Floats] | None = None  # network weights that all parts start from


class Job(NamedTuple):
    """Options of a run that are not settings of the method."""

    seed: int
    device: str
    deterministic: bool = False
    checkpoint: Path | None = None
    resume: bool = False
    common: Common | None = None  # shared by the scene, when the cube is a part of one
    # other images of the same place, resampled to the grid of the cube
    references: tuple[ReferencePlanes, ...] = ()


class Estimate(NamedTuple):
    """A method's estimate of a cube, in the cube's unit; arrays are (bands, rows, cols)."""

    values: Floats  # of all entries, or of the wanted pixels; NaN where there is no estimate
    sigma: Floats | None  # posterior std, if the method computes one
    sigma_y: Floats  # (bands,) the noise std that was assumed
    history: list[Mapping[str, float]]
    notes: list[str]
    excess: Floats | None = None  # factor by which the variance exceeds the usual one, if known

    def at(self, pixels: Bools) -> Estimate:
        """Return the estimate of the n pixels of a mask (rows, cols), as arrays (bands, 1, n)."""
        arrays = (self.values, self.sigma, self.excess)
        values, sigma, excess = (None if a is None else a[:, pixels][:, None] for a in arrays)
        assert values is not None
        return self._replace(values=values, sigma=sigma, excess=excess)


def estimate(
    cube: Cube, observed: Bools, chosen: Chosen, sigma_y: Sigma, job: Job, progress: Progress = None
) -> Estimate:
    """Estimate every entry of a cube.  Only observed entries are used, for scale and noise too."""
    [task] = _tasks(cube, observed, [chosen], sigma_y, job)
    return _drained(task, job, progress)


def estimate_each(
    cube: Cube,
    observed: Bools,
    several: Sequence[Chosen],
    sigma_y: Sigma,
    job: Job,
    at: Bools | None = None,
) -> list[Estimate]:
    """Run several methods as `estimate` does, sharing the work that they have in common.

    at: mask (rows, cols) of the n wanted pixels, returned as (bands, 1, n); None = all.
    """
    tasks, shared = _tasks(cube, observed, several, sigma_y, job), dict[int, Any]()
    gpu = gpu_of_components(several, job.device)
    return [_drained(task, job, given=_given(task, shared, gpu), at=at) for task in tasks]


def estimate_at(
    cube: Cube, observed: Bools, several: Sequence[Chosen], sigma_y: Sigma, job: Job, at: Bools
) -> list[tuple[Floats, Floats]]:
    """Return for each method its estimates (bands, n) of the n pixels in a mask `at` (rows, cols),
    and the noise std (bands,) it assumed, in the cube's unit.  Bad bands may come back as NaN."""
    shared, estimates = dict[int, Any](), []
    for task in _tasks(cube, observed, several, sigma_y, job):
        extras = _given(task, shared)
        if not extras or task.chosen.facts.pretrained or "references" in task.chosen.facts.asks:
            result = _drained(task, job, given=extras, at=at)
            estimates.append((result.values[:, 0], result.sigma_y))
            continue
        from hydiff.methods.smooth import kriged

        x = np.full((cube.bands, int(at.sum()), 1), np.nan)
        with memory_advice(job.device, MEMORY_ADVICE):
            x[task.good, :, 0] = kriged(extras["given"], task.chosen.settings, at)
        estimates.append((task.scale.from_unit(x)[..., 0], task.sigma * task.scale.spans))
    return estimates


def _given(task: MethodTask, shared: dict[int, Any], gpu: Any = None) -> dict[str, Any]:
    """Return the extra argument `given` of methods that work on components: their coordinates,
    computed once per number of components and kept in `shared`; nothing for other methods.

    gpu: as `gpu_of_components` returns it.
    """
    if not task.chosen.facts.coordinates or not task.wanted:
        return {}
    from hydiff.methods.smooth import coordinates

    count, space = task.chosen.settings.components, task.chosen.settings.space
    if count not in shared:
        with memory_advice("cpu", MEMORY_ADVICE):
            shared[count] = coordinates(*task.inputs, count, space, gpu)
    return {"given": shared[count]}


def _drained(
    task: MethodTask,
    job: Job,
    progress: Progress = None,
    given: Mapping[str, Any] | None = None,
    at: Bools | None = None,
) -> Estimate:
    """Run a method to its end, or until `progress` stops it; `at` is as in `estimate_each`."""
    if at is not None and given:
        given = {**given, "at": at}
    checkpoint, state, history = _checkpoint(task, job)
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
    step = None
    with memory_advice(job.device, MEMORY_ADVICE), determinism(job.deterministic):
        for step in _steps(task, job, state, given):
            history.append({**step.log, "seconds": time.perf_counter() - began})
            if checkpoint is not None and step.done < step.total:  # the last may have no state
                checkpoint.offer(step, history)
            if progress is not None and progress(step):
                break
        if step is None and state is not None:  # a method that ended before its `Step.total`
            raise BadValue(
                f"{job.checkpoint} was kept after the last step of {task.chosen.name}, which has "
                "nothing left to do and no estimate to give; remove it and start again"
            )
        estimate = _estimate(task, step, job, at)
    if checkpoint is not None:
        checkpoint.remove()
    logs: list[Mapping[str, float]] = [{k: float(v) for k, v in log.items()} for log in history]
    return estimate._replace(history=logs)


def estimating(
    cube: Cube, observed: Bools, chosen: Chosen, sigma_y: Sigma, job: Job
) -> Generator[Step, None, Estimate]:
    """Yield the steps of `estimate` and return its result, so that runs can be interleaved."""
    [task], step = _tasks(cube, observed, [chosen], sigma_y, job), None
    with memory_advice(job.device, MEMORY_ADVICE):
        for step in _steps(task, job):
            yield step
        return _estimate(task, step, job)


def estimates(
    runs: Sequence[Generator[Step, None, Estimate]], device: str, deterministic: bool = False
) -> list[Estimate]:
    """Run several `estimating` generators: side by side on a GPU, else one after another."""
    from hydiff.learn.engine import MOST_BESIDE, side_by_side

    results: dict[int, Estimate] = {}

    def run(i: int) -> Iterator[Step]:
        results[i] = yield from runs[i]

    at_once = MOST_BESIDE if torch_device(device).type == "cuda" else 1
    with determinism(deterministic):
        for start in range(0, len(runs), at_once):
            numbers = range(start, min(start + at_once, len(runs)))
            for _ in side_by_side([run(i) for i in numbers]):
                pass
    return [results[i] for i in range(len(runs))]


class MethodTask(NamedTuple):
    """A cube on the unit range, as a method receives it; arrays are (bands, rows, cols)."""

    values: Array  # of the cube, not scaled
    y: Floats  # 0 where missing
    observed: Bools
    sigma: Floats  # (bands,) on the unit range
    scale: Scale
    chosen: Chosen
    good: Bools  # (bands,) measured bands that the method fills
    bad: Bools  # (bands,) measured bands that get a plain spatial fill instead
    notes: list[str]

    @property
    def wanted(self) -> bool:
        """Whether there is anything to fill."""
        return not self.observed.all() or bool(self.sigma.any())

    @property
    def inputs(self) -> tuple[Floats, Bools, Floats]:
        """Arguments y, observed and sigma_y of the method, for the good bands."""
        if self.good.all():  # the usual case: no copies are needed
            return self.y, mask.shared(self.observed), self.sigma
        return self.y[self.good], mask.shared(self.observed[self.good]), self.sigma[self.good]


def _tasks(
    cube: Cube, observed: Bools, several: Sequence[Chosen], sigma_y: Sigma, job: Job
) -> list[MethodTask]:
    """Return a task for each method; the tasks share their arrays."""
    check_memory_limit()
    values = np.asarray(cube.values)
    if job.common is None:
        scale = detector_scale(values, observed, cube.good_bands, cube.detectors)
    else:
        scale = job.common.scale
    # some formats store the bands of a pixel together: order="C" makes each band contiguous
    y = np.subtract(values, scale.low, dtype=np.float64, order="C")
    y /= scale.span
    np.copyto(y, 0.0, where=~observed)
    sigma, notes = unit_sigma(sigma_y, y, observed, cube.good_bands, scale, cube.detectors)
    measured = observed.any(axis=(1, 2))
    good, bad = measured & cube.good_bands, measured & ~cube.good_bands
    tasks = []
    for chosen in several:
        assumed, ignored = modelled(chosen, sigma)
        task_notes = [*notes, *ignored]
        if not observed.all() or assumed.any():
            task_notes += chosen.settings.notes if chosen.facts.notes else []
            if chosen.facts.equivariant:
                from hydiff.learn.transforms import blind_note

                task_notes += blind_note(mask.shared(observed), chosen.settings.transform)
        ready = for_bands(chosen, cube, good, job.common, job.references)
        tasks.append(MethodTask(values, y, observed, assumed, scale, ready, good, bad, task_notes))
    return tasks


def modelled(chosen: Chosen, sigma: Floats) -> tuple[Floats, list[str]]:
    """Return the noise std (bands,) that a method assumes, and a note if it ignores the noise."""
    if not sigma.any() or chosen.facts.uses_sigma:
        return sigma, []
    if chosen.facts.replaces_noisy:
        note = "does not use sigma_y: it fits noisy entries as they are, and replaces them"
        return sigma, [f"{chosen.name} {note}"]
    note = f"{chosen.name} does not model noise: it filled as if sigma_y were 0"
    return np.zeros_like(sigma), [note]


def _steps(
    task: MethodTask,
    job: Job,
    state: dict[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """Yield the steps of the method; none if there is nothing to fill."""
    if task.wanted:
        yield from _start(task.chosen, *task.inputs, job, state, given)


def _estimate(task: MethodTask, step: Step | None, job: Job, at: Bools | None = None) -> Estimate:
    """Turn the last step of a method into an estimate: bad bands filled plainly, unmeasured NaN.

    at: as in `estimate_each`; the step may already be limited to these pixels.
    """
    sigma_y = task.sigma * task.scale.spans
    shape = task.y.shape if at is None else (len(task.y), 1, int(at.sum()))

    def wanted(array: Array) -> Array:
        return array if array.shape[1:] == shape[1:] else array[:, at][:, None]

    def of_good(array: Array, others: float) -> Floats:
        """Extend an array of the good bands to all bands, with the value `others` for the rest."""
        if task.good.all():  # the usual case: no copies are needed
            return wanted(array)
        filled = np.full(shape, others)
        filled[task.good] = wanted(array)
        return filled

    if step is None:
        if task.wanted:  # the cube's values cannot serve: they have gaps
            raise BadValue(f"{task.chosen.name} yielded nothing; expected one Step or more of it")
        values = wanted(np.asarray(task.values, dtype=np.float64))
        return Estimate(values, None, sigma_y, [], task.notes)
    x = of_good(step.x.double().cpu().numpy() if task.chosen.facts.learned else step.x, np.nan)
    spans = task.scale.spans[:, None, None]
    std = None if step.sigma is None else of_good(step.sigma, np.nan) * spans
    if task.bad.any():
        bands = task.y[task.bad], mask.shared(task.observed[task.bad]), task.sigma[task.bad]
        for plain in _start(choose("harmonic"), *bands, job):
            x[task.bad] = wanted(plain.x)
    notes = [*task.notes, *([f"engine: {step.how}"] if step.how else [])]
    excess = None if step.excess is None else of_good(step.excess, 1.0)
    return Estimate(task.scale.from_unit(x), std, sigma_y, [], notes, excess)


def _checkpoint(
    task: MethodTask, job: Job
) -> tuple[Checkpoint | None, dict[str, Any] | None, list[Mapping[str, Any]]]:
    """Return the checkpoint, the state to resume from (None: none) and the history up to it."""
    if job.checkpoint is None or not task.chosen.facts.learned:
        return None, None, []
    settings = settings_dict(task.chosen.settings)
    belongs_to = fingerprint(*task.inputs, task.chosen.name, settings, job.seed)
    checkpoint = Checkpoint(job.checkpoint, belongs_to)
    if not job.resume:
        checkpoint.refuse_foreign()
    state = checkpoint.load() if job.resume else None
    return checkpoint, state, [] if state is None else history_of(state)


def _start(
    chosen: Chosen,
    y: Floats,
    observed: Bools,
    sigma: Floats,
    job: Job,
    state: dict[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """Start the method's generator: arrays or tensors, random generator and extra arguments."""
    if not chosen.facts.learned:
        extras = dict(given or {})
        if chosen.facts.pretrained:
            extras["device"] = torch_device(job.device)
        elif not extras and (gpu := gpu_of_components([chosen], job.device)):
            extras["device"] = gpu
        rng = np.random.default_rng(job.seed)
        return chosen.inpaint(y, observed, sigma, chosen.settings, rng=rng, **extras)
    import torch

    options: dict[str, Any] = {} if state is None else {"resume": state}
    common = job.common
    if common is not None and common.prior is not None and len(y) == common.bands.sum():
        options["initial"] = {name: torch.as_tensor(w) for name, w in common.prior.items()}
    elif chosen.facts.weights and chosen.settings.weights is not None:
        from hydiff.learn.weights import load_weights

        options["initial"] = load_weights(chosen.settings, bands=len(y))
    arrays, rng = _on_device(y, observed, sigma, job)
    return chosen.inpaint(*arrays, chosen.settings, rng=rng, **options)


def _on_device(
    y: Floats, observed: Bools, sigma: Floats, job: Job
) -> tuple[tuple[Any, Any, Any], Any]:
    """Return the arrays of a task as tensors on the device, and a random generator there."""
    import torch

    place = torch_device(job.device)
    flags = torch.tensor(observed, device=place)  # a copy: it may be read-only
    x, std = (torch.as_tensor(a, dtype=torch.float32, device=place) for a in (y, sigma))
    return (x, flags, std), torch.Generator(place).manual_seed(job.seed)
