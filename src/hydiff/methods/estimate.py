"""Run one method on one cube: scale to the unit range, drain its generator, scale back."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Scale, detector_scale
from hydiff.errors import BadValue, UnknownName, check_memory_limit, memory_advice, need_torch
from hydiff.gaps import mask
from hydiff.gaps.rule import Sigma, unit_sigma
from hydiff.learn.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.maths.subspace import Subspace
from hydiff.methods import Chosen, choose, settings_dict
from hydiff.methods.determinism import determinism
from hydiff.methods.offers import for_bands
from hydiff.reference.models import ReferencePlanes
from hydiff.result import Step

Progress = Callable[[Step], Any] | None  # what it returns, if true, ends the method there

MEMORY_ADVICE = "set fewer channels (`channels=64`), another device, or fill a window of the cube"


class Extent(NamedTuple):
    """How far the values of a scene reach, in the cube's unit."""

    spread: Floats  # (bands,) standard deviations of the observed entries, 1 for constant bands
    peak: float  # the largest less the smallest


class Common(NamedTuple):
    """What the parts of one scene share, so that they meet without a seam."""

    scale: Scale
    bands: Bools  # (bands,) those that the subspace describes
    space: Subspace | None  # of methods that work on components; fitted to each part when None
    extent: Extent | None = None
    prior: Mapping[str, Floats] | None = None  # weights of a network that the parts start from


class Job(NamedTuple):
    """How to run a method, as opposed to what it computes."""

    seed: int
    device: str
    deterministic: bool
    checkpoint: Path | None
    resume: bool
    common: Common | None = None  # of the scene, when the cube is a part of one
    references: tuple[
        ReferencePlanes, ...
    ] = ()  # other images of the place, on the grid of the cube


class Estimate(NamedTuple):
    """What a method says about a cube, in the cube's unit; arrays (bands, rows, cols)."""

    values: Floats  # everywhere, or where it was asked for; NaN where it has no estimate
    sigma: Floats | None  # its posterior std, where a method works one out
    sigma_y: Floats  # (bands,) the noise std that was assumed
    history: list[Mapping[str, float]]
    notes: list[str]
    excess: Floats | None = None  # how much larger a variance is than usual, where a method knows

    def at(self, pixels: Bools) -> Estimate:
        """Of n pixels (rows, cols) alone, arrays (bands, 1, n)."""
        arrays = (self.values, self.sigma, self.excess)
        values, sigma, excess = (None if a is None else a[:, pixels][:, None] for a in arrays)
        assert values is not None
        return self._replace(values=values, sigma=sigma, excess=excess)


def estimate(
    cube: Cube, observed: Bools, chosen: Chosen, sigma_y: Sigma, job: Job, progress: Progress = None
) -> Estimate:
    """Estimate every entry of a cube from the observed ones alone, scale and noise included."""
    [task] = _tasks(cube, observed, [chosen], sigma_y, job)
    return _drained(task, job, progress)


def estimate_each(
    cube: Cube,
    observed: Bools,
    several: Sequence[Chosen],
    sigma_y: Sigma,
    job: Job,
    networks: Sequence[Callable[[], Any] | None] = (),
    at: Bools | None = None,
) -> list[Estimate]:
    """`estimate` by several methods, which share the work that they have in common; networks: for
    each what gives the one to take instead of its own, or None.

    at: the n pixels (rows, cols) that are wanted, for arrays (bands, 1, n) of them; None = all.
    """
    tasks, shared = _tasks(cube, observed, several, sigma_y, job), dict[int, Any]()
    more = [{"network": network} if network else {} for network in networks or [None] * len(tasks)]
    both = zip(tasks, more, strict=True)
    return [_drained(task, job, given=_given(task, shared) | own, at=at) for task, own in both]


def taught(cube: Cube, observed: Bools, chosen: Chosen, sigma_y: Sigma, job: Job) -> Any:
    """The network of the prior, tuned on a cube as `anchored` is chosen to."""
    from hydiff.methods import tuned

    [task] = _tasks(cube, observed, [chosen], sigma_y, job)
    with memory_advice(job.device, MEMORY_ADVICE), determinism(job.deterministic):
        arrays, rng = _on_device(*task.inputs, job)
        return tuned.taught(*arrays, task.chosen.settings, rng)


def estimate_at(
    cube: Cube, observed: Bools, several: Sequence[Chosen], sigma_y: Sigma, job: Job, at: Bools
) -> list[tuple[Floats, Floats]]:
    """What several methods find for some pixels (rows, cols): values (bands, n) and the noise std
    (bands,) that was assumed, both in the cube's unit.  Bad bands may come back as NaN."""
    shared, estimates = dict[int, Any](), []
    for task in _tasks(cube, observed, several, sigma_y, job):
        given = _given(task, shared)
        if not given or task.chosen.facts.pretrained or "references" in task.chosen.facts.asks:
            some = _drained(task, job, given=given, at=at)
            estimates.append((some.values[:, 0], some.sigma_y))
            continue
        from hydiff.methods.smooth import kriged

        x = np.full((cube.bands, int(at.sum()), 1), np.nan)
        with memory_advice(job.device, MEMORY_ADVICE):
            x[task.good, :, 0] = kriged(given["given"], task.chosen.settings, at)
        estimates.append((task.scale.from_unit(x)[..., 0], task.sigma * task.scale.spans))
    return estimates


def _given(task: MethodTask, shared: dict[int, Any]) -> dict[str, Any]:
    """What a method gets beside its arrays: those that krige share their coordinates, which are
    kept in `shared` by the number of components."""
    if not task.chosen.facts.coordinates or not task.wanted:
        return {}
    from hydiff.methods.smooth import coordinates

    count, space = task.chosen.settings.components, task.chosen.settings.space
    if count not in shared:
        with memory_advice("cpu", MEMORY_ADVICE):
            shared[count] = coordinates(*task.inputs, count, space)
    return {"given": shared[count]}


def _drained(
    task: MethodTask,
    job: Job,
    progress: Progress = None,
    given: Mapping[str, Any] | None = None,
    at: Bools | None = None,
) -> Estimate:
    """Run a method to its end, or until `progress` has enough of it; at: as of `estimate_each`."""
    if at is not None and given:
        given = {**given, "at": at}
    keep, state, history = _checkpoint(task, job)
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
    step = None
    with memory_advice(job.device, MEMORY_ADVICE), determinism(job.deterministic):
        for step in _steps(task, job, state, given):
            history.append({**step.log, "seconds": time.perf_counter() - began})
            if keep is not None and step.done < step.total:  # some show nothing after the last
                keep.offer(step, history)
            if progress is not None and progress(step):
                break
        if step is None and state is not None:  # as older versions left one behind
            raise BadValue(
                f"{job.checkpoint} was kept after the last step of {task.chosen.name}, which has "
                "nothing left to do and no estimate to give; remove it and start again"
            )
        estimate = _estimate(task, step, job, at)
    if keep is not None:
        keep.remove()
    logs: list[Mapping[str, float]] = [{k: float(v) for k, v in log.items()} for log in history]
    return estimate._replace(history=logs)


def estimating(
    cube: Cube, observed: Bools, chosen: Chosen, sigma_y: Sigma, job: Job
) -> Generator[Step, None, Estimate]:
    """The steps of `estimate`, for a caller who has others to advance as well."""
    [task], step = _tasks(cube, observed, [chosen], sigma_y, job), None
    with memory_advice(job.device, MEMORY_ADVICE):
        for step in _steps(task, job):
            yield step
        return _estimate(task, step, job)


def estimates(
    runs: Sequence[Generator[Step, None, Estimate]], device: str, deterministic: bool = False
) -> list[Estimate]:
    """What several methods find (`estimating`): side by side on a GPU, else one after another."""
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
    """A cube on the unit range, as a method gets it; arrays (bands, rows, cols)."""

    values: Array  # the cube's own
    y: Floats  # 0 where missing
    observed: Bools
    sigma: Floats  # (bands,) on the unit range
    scale: Scale
    chosen: Chosen
    good: Bools  # (bands,) measured ones, which the method fills
    bad: Bools  # (bands,) measured ones, which get the plain spatial fill
    notes: list[str]

    @property
    def wanted(self) -> bool:
        """Whether there is anything to fill."""
        return not self.observed.all() or bool(self.sigma.any())

    @property
    def inputs(self) -> tuple[Floats, Bools, Floats]:
        if self.good.all():  # as nearly always: nothing to copy
            return self.y, mask.shared(self.observed), self.sigma
        return self.y[self.good], mask.shared(self.observed[self.good]), self.sigma[self.good]


def _tasks(
    cube: Cube, observed: Bools, several: Sequence[Chosen], sigma_y: Sigma, job: Job
) -> list[MethodTask]:
    """A task for each method; they share their arrays."""
    check_memory_limit()
    values = np.asarray(cube.values)
    scale = (
        detector_scale(values, observed, cube.good_bands, cube.detectors)
        if job.common is None
        else job.common.scale
    )
    # some formats store a pixel's bands together
    y = np.subtract(values, scale.low, dtype=np.float64, order="C")
    y /= scale.span
    np.copyto(y, 0.0, where=~observed)
    sigma, notes = unit_sigma(sigma_y, y, observed, cube.good_bands, scale)
    measured = observed.any(axis=(1, 2))
    good, bad = measured & cube.good_bands, measured & ~cube.good_bands
    tasks = []
    for chosen in several:
        assumed, ignored = modelled(chosen, sigma)
        own = [*notes, *ignored]
        if not observed.all() or assumed.any():
            own += [*(chosen.settings.notes if chosen.facts.notes else ())]
            if chosen.facts.equivariant:
                from hydiff.learn.transforms import blind_note

                own += blind_note(mask.shared(observed), chosen.settings.transform)
        fitted = for_bands(chosen, cube, good, job.common, job.references)
        tasks.append(MethodTask(values, y, observed, assumed, scale, fitted, good, bad, own))
    return tasks


def modelled(chosen: Chosen, sigma: Floats) -> tuple[Floats, list[str]]:
    """The noise std (bands,) that a fill goes by, and a note where its method ignores it."""
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
    """The method at work; nothing where there is nothing to fill."""
    if task.wanted:
        yield from _start(task.chosen, *task.inputs, job, state, given)


def _estimate(task: MethodTask, step: Step | None, job: Job, at: Bools | None = None) -> Estimate:
    """From the last step of a method: good bands its own, bad ones filled plainly, else NaN.

    at: as of `estimate_each`; the step may be of these pixels already.
    """
    sigma_y = task.sigma * task.scale.spans
    shape = task.y.shape if at is None else (len(task.y), 1, int(at.sum()))

    def wanted(own: Array) -> Array:
        return own if own.shape[1:] == shape[1:] else own[:, at][:, None]

    def of_good(own: Array, others: float) -> Floats:
        if task.good.all():  # as nearly always: nothing to copy
            return wanted(own)
        every = np.full(shape, others)
        every[task.good] = wanted(own)
        return every

    if step is None:
        if task.wanted:  # its values still have their gaps
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
    """Where to keep the state, the state to go on from, and the history behind it."""
    if job.checkpoint is None or not task.chosen.facts.learned:
        return None, None, []
    settings = settings_dict(task.chosen.settings)
    belongs_to = fingerprint(*task.inputs, task.chosen.name, settings, job.seed)
    keep = Checkpoint(job.checkpoint, belongs_to)
    if not job.resume:
        keep.refuse_foreign()
    state = keep.load() if job.resume else None
    return keep, state, [] if state is None else history_of(state)


def _start(
    chosen: Chosen,
    y: Floats,
    observed: Bools,
    sigma: Floats,
    job: Job,
    state: dict[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """The method's generator, with the arrays and the source of randomness it works on."""
    if not chosen.facts.learned:
        own = dict(given or {})
        if chosen.facts.pretrained:
            own["device"] = torch_device(job.device)
        rng = np.random.default_rng(job.seed)
        return chosen.inpaint(y, observed, sigma, chosen.settings, rng=rng, **own)
    import torch

    more: dict[str, Any] = {} if state is None else {"resume": state}
    prior = None if job.common is None else job.common.prior
    if prior is not None and job.common is not None and len(y) == job.common.bands.sum():
        more["initial"] = {name: torch.as_tensor(value) for name, value in prior.items()}
    elif chosen.facts.weights and chosen.settings.weights is not None:
        from hydiff.learn.weights import load_weights

        more["initial"] = load_weights(chosen.settings, bands=len(y))
    arrays, rng = _on_device(y, observed, sigma, job)
    return chosen.inpaint(*arrays, chosen.settings, rng=rng, **more)


def _on_device(
    y: Floats, observed: Bools, sigma: Floats, job: Job
) -> tuple[tuple[Any, Any, Any], Any]:
    """Tensors of the arrays of a task, and the source of randomness beside them."""
    import torch

    place = torch_device(job.device)
    flags = torch.tensor(observed, device=place)  # a copy: it may be read-only
    x, std = (torch.as_tensor(a, dtype=torch.float32, device=place) for a in (y, sigma))
    return (x, flags, std), torch.Generator(place).manual_seed(job.seed)


def torch_device(device: str) -> Any:
    """ "auto" is the GPU where there is one."""
    need_torch(f"the device {device}")
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise UnknownName("device", device, ("auto", "cpu", "cuda", "cuda:0")) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise BadValue("device cuda was asked for, but torch finds none here; use `device='cpu'`")
    return place
