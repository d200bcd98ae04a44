"""Run one method on one cube: scale to the unit range, drain its generator, scale back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import mask
from hydiff.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.cube import Array, Bools, Cube, Floats, Scale, detector_scale
from hydiff.errors import BadValue, UnknownName, memory_told
from hydiff.methods import METHODS, Chosen, choose, settings_dict
from hydiff.problem import Sigma, unit_sigma
from hydiff.result import Step
from hydiff.subspace import Subspace

Progress = Callable[[Step], Any] | None  # what it returns, if true, ends the method there

MEMORY_ADVICE = (
    "set fewer channels (--set channels=64), another device, or fill a window of the cube"
)


class Common(NamedTuple):
    """What the parts of one scene share, so that they meet without a seam."""

    scale: Scale
    bands: Bools  # (bands,) those that the subspace describes
    space: Subspace | None  # of methods that work on components; fitted to each part when None


class Job(NamedTuple):
    """How to run a method, as opposed to what it computes."""

    seed: int
    device: str
    deterministic: bool
    checkpoint: Path | None
    resume: bool
    common: Common | None = None  # of the scene, when the cube is a part of one


class Estimate(NamedTuple):
    """What a method says about a cube, in the cube's unit; arrays (bands, rows, cols)."""

    values: Floats  # everywhere; NaN where it cannot tell
    sigma: Floats | None  # its posterior std, where a method works one out
    sigma_y: Floats  # (bands,) the noise std that was assumed
    history: list[Mapping[str, float]]
    notes: list[str]


def estimate(
    cube: Cube, seen: Bools, chosen: Chosen, sigma_y: Sigma, job: Job, progress: Progress = None
) -> Estimate:
    """Estimate every entry of a cube from the seen ones alone: scale, noise, subspace and all."""
    values = np.asarray(cube.values, dtype=np.float64)
    scale = (
        detector_scale(values, seen, cube.good_bands, cube.detectors)
        if job.common is None
        else job.common.scale
    )
    y = np.where(seen, scale.to_unit(values), 0.0)
    sigma, notes = unit_sigma(sigma_y, y, seen, cube.good_bands, scale)
    if sigma.any() and chosen.name in METHODS and not METHODS[chosen.name].noise:
        notes.append(f"{chosen.name} does not model noise: it filled as if sigma_y were 0")
        sigma = np.zeros_like(sigma)
    if seen.all() and not sigma.any():
        return Estimate(values, None, sigma, [], notes)
    notes += [*getattr(chosen.settings, "notes", ()), *_coverage(chosen, seen)]
    x, std, history, how = _run(chosen, y, seen, sigma, cube, job, progress)
    notes += [f"engine: {how}"] if how else []
    std = None if std is None else std * scale.spans[:, None, None]
    return Estimate(scale.from_unit(x), std, sigma * scale.spans, history, notes)


def _coverage(chosen: Chosen, seen: Bools) -> list[str]:
    """Equivariance says nothing of pixels whose whole orbit is missing: tell how many."""
    group = getattr(chosen.settings, "transform", None)
    if chosen.backend == "numpy" or group is None:
        return []
    from hydiff.transforms import orbit_coverage

    share = orbit_coverage(mask.shared(seen), group)
    if share == 0:
        return []
    return [
        f"{100 * share:.2g} % of the missing entries are reached by no {group}: EI is blind there"
    ]


def _run(
    chosen: Chosen,
    y: Floats,
    seen: Bools,
    sigma: Floats,
    cube: Cube,
    job: Job,
    progress: Progress,
) -> tuple[Floats, Floats | None, list[Mapping[str, float]], str]:
    """The method's estimate for good bands, the plain spatial fill for bad ones; NaN elsewhere.

    y, seen: (bands, rows, cols) on the unit range.  Also returns the posterior std, if the method
    gave one, the log of every step, and the engine of a learned method.
    """
    x, std = np.full(y.shape, np.nan), None
    measured = seen.any(axis=(1, 2))
    good, bad = measured & cube.good_bands, measured & ~cube.good_bands
    chosen = _for_bands(chosen, cube, good, job.common)
    inputs = (y[good], mask.shared(seen[good]), sigma[good])
    keep, state, history = _checkpoint(chosen, inputs, job)
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
    with memory_told(job.device, MEMORY_ADVICE), _determinism(job.deterministic):
        for step in _start(chosen, *inputs, job, state):
            history.append({**step.log, "seconds": time.perf_counter() - began})
            if keep is not None:
                keep.offer(step, history)
            if progress is not None and progress(step):
                break
        how = step.how
        if step.sigma is not None:
            std = np.full(y.shape, np.nan)
            std[good] = step.sigma
        x[good] = step.x if chosen.backend == "numpy" else step.x.double().cpu().numpy()
    if keep is not None:
        keep.remove()
    if bad.any():
        for step in _start(choose("harmonic"), y[bad], mask.shared(seen[bad]), sigma[bad], job):
            x[bad] = step.x
    return x, std, [{k: float(v) for k, v in record.items()} for record in history], how


def _checkpoint(
    chosen: Chosen, inputs: tuple[Array, ...], job: Job
) -> tuple[Checkpoint | None, dict[str, Any] | None, list[Mapping[str, Any]]]:
    """Where to keep the state, the state to go on from, and the history behind it."""
    if job.checkpoint is None or chosen.backend == "numpy":
        return None, None, []
    settings = settings_dict(chosen.settings)
    belongs_to = fingerprint(*inputs, chosen.name, settings, job.seed)
    keep = Checkpoint(job.checkpoint, belongs_to)
    if not job.resume:
        keep.refuse_foreign()
    state = keep.load() if job.resume else None
    return keep, state, [] if state is None else history_of(state)


def _for_bands(chosen: Chosen, cube: Cube, bands: Bools, common: Common | None) -> Chosen:
    """Give a method what it asks for: the wavelengths of its bands, the subspace of the scene."""
    if (
        getattr(chosen.settings, "space", ()) is None
        and common is not None
        and np.array_equal(bands, common.bands)
    ):
        chosen = chosen._replace(settings=replace(chosen.settings, space=common.space))
    asks = getattr(chosen.settings, "wavelengths", ()) is None
    if not asks or cube.wavelengths is None:
        return chosen
    wavelengths = tuple(cube.wavelengths[bands].tolist())
    return chosen._replace(settings=replace(chosen.settings, wavelengths=wavelengths))


def _start(
    chosen: Chosen,
    y: Floats,
    observed: Bools,
    sigma: Floats,
    job: Job,
    state: dict[str, Any] | None = None,
) -> Iterator[Step]:
    """The method's generator, with the arrays and the source of randomness it works on."""
    if chosen.backend == "numpy":
        rng = np.random.default_rng(job.seed)
        return chosen.inpaint(y, observed, sigma, chosen.settings, rng=rng)
    import torch

    place = torch_device(job.device)
    given: dict[str, Any] = {} if state is None else {"resume": state}
    if getattr(chosen.settings, "weights", None) is not None:
        from hydiff.weights import load_weights

        given["initial"] = load_weights(chosen.settings, bands=len(y))
    return chosen.inpaint(
        torch.as_tensor(y, dtype=torch.float32, device=place),
        torch.as_tensor(observed, device=place),
        torch.as_tensor(sigma, dtype=torch.float32, device=place),
        chosen.settings,
        rng=torch.Generator(place).manual_seed(job.seed),
        **given,
    )


@contextmanager
def _determinism(wanted: bool) -> Iterator[None]:
    """While it lasts, torch takes only algorithms that give the same bytes again."""
    if not wanted:
        yield
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def torch_device(device: str) -> Any:
    """ "auto" is the GPU where there is one."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise UnknownName("device", device, ("auto", "cpu", "cuda", "cuda:0")) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise BadValue("device cuda was asked for, but torch finds none here; use --device cpu")
    return place
