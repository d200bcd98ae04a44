"""The front door: `fill(cube) -> Result`.  Scale, choose what to fill, run a method, scale back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hydiff import mask
from hydiff.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.cube import (
    Array,
    Bools,
    Cube,
    Floats,
    as_cube,
    unit_scale,
)
from hydiff.errors import BadValue, UnknownName, memory_told
from hydiff.methods import DEFAULT, METHODS, Chosen, Inpaint, choose, settings_dict
from hydiff.problem import (
    Sigma,
    check_numbers,
    float_for,
    into_dtype,
    observed_entries,
    targets,
    unit_sigma,
)
from hydiff.result import Result, Step

if TYPE_CHECKING:
    import xarray

Progress = Callable[[Step], Any] | None

MEMORY_ADVICE = (
    "set fewer channels (--set channels=64), another device, or fill a window of the cube"
)


class Job(NamedTuple):
    """How to run a method, as opposed to what it computes."""

    seed: int
    device: str
    deterministic: bool
    checkpoint: Path | None
    resume: bool


def fill(
    data: Cube | Array | xarray.DataArray,
    observed: Bools | None = None,
    *,
    method: str | Inpaint = DEFAULT,
    preset: str | None = None,
    sigma_y: Sigma = 0.0,
    nodata: float | None = None,
    bad_bands: str = "fill",
    max_gap: float | None = None,
    outside: str | None = None,
    denoise: bool = False,
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Progress = None,
    **settings: Any,
) -> Result:
    """Fill the gaps of a cube from its own observed entries.

    data: a Cube, a DataArray, or an array (bands, rows, cols).  Missing are the entries that
        `observed` (True = measured; (rows, cols) or (bands, rows, cols)) names, and those that
        the cube itself does: its nodata value (or `nodata`), NaN, Inf.
    sigma_y: noise std in the cube's unit, one number or one per band; "5%" is a share of its range,
        "auto" has it estimated from the cube.
    bad_bands: "fill" gives gaps in bad bands the plain spatial fill, "keep" leaves them.
    max_gap: leave what lies in gaps wider than this many pixels.
    outside: "keep" or "fill" what no line joins to observed pixels on both sides; by default kept
        in cubes that were read from files, filled in arrays.
    denoise: with sigma_y > 0, `Result.cube` takes the estimate for its observed entries too.
    deterministic: the same bytes again on a GPU too, at some cost (a CPU always gives them).
    checkpoint: a file for the state of a learned method, written every half minute and removed at
        the end; with `resume` a run goes on from it.
    progress: called with every `Step` of the method.
    settings: entries of the method's settings, e.g. `s=1.25`; with `weights=FILE` the size of the
        network is the file's.

    >>> import numpy as np, hydiff
    >>> cube = np.fromfunction(lambda b, r, c: b + r + c, (3, 12, 12))
    >>> observed = np.ones((12, 12), bool)
    >>> observed[:, 5:7] = False
    >>> result = hydiff.fill(cube, observed, method="linear")
    >>> bool(np.allclose(result.values, cube)), int(result.filled.sum())
    (True, 72)
    """
    began = time.perf_counter()
    cube = as_cube(data).load()
    check_numbers(cube)
    if settings.get("weights") is not None:
        from hydiff.weights import network_of

        settings = network_of(settings["weights"]) | settings
    chosen = choose(method, preset, settings)
    seen = observed_entries(cube, observed, nodata)
    if outside is None:
        outside = "fill" if cube.path is None else "keep"
    target, left = targets(cube, seen, bad_bands=bad_bands, max_gap=max_gap, outside=outside)

    values = np.asarray(cube.values, dtype=np.float64)
    scale = unit_scale(values, seen, cube.good_bands)
    y = np.where(seen, scale.to_unit(values), 0.0)
    sigma, notes = unit_sigma(sigma_y, y, seen, cube.good_bands, scale)
    noisy = bool(sigma.any())
    if noisy and chosen.name in METHODS and not METHODS[chosen.name].noise:
        notes.append(f"{chosen.name} does not model noise: it filled as if sigma_y were 0")
        sigma, noisy = np.zeros_like(sigma), False
    estimate, history = values, list[Mapping[str, float]]()
    if target.any() or noisy:
        keep = None if checkpoint is None else Path(checkpoint)
        job = Job(seed, device, deterministic, keep, resume)
        notes += [*getattr(chosen.settings, "notes", ()), *_coverage(chosen, seen)]
        x, history = _run(chosen, y, seen, sigma, cube, job, progress)
        estimate = scale.from_unit(x)
        if (unreached := target & np.isnan(x)).any():
            left[f"out of reach of {chosen.name}"] = int(unreached.sum())
            target &= ~unreached

    # whose value is the method's, not the file's: the gaps, and what noise has touched
    trusted = target | (seen & (sigma > 0)[:, None, None])
    out = np.where(seen, values, np.nan)
    out[trusted] = estimate[trusted]
    written, more = into_dtype(cube, estimate, trusted if denoise else target, nodata)
    kind = float_for(cube.dtype)
    return Result(
        cube=replace(cube, values=written),
        values=out.astype(kind, copy=False),
        raw=estimate.astype(kind, copy=False),
        filled=target,
        left=left,
        method=chosen.name,
        settings=settings_dict(chosen.settings),
        sigma_y=sigma * scale.span,
        history=history,
        seed=seed,
        seconds=time.perf_counter() - began,
        notes=notes + more,
    )


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
) -> tuple[Floats, list[Mapping[str, float]]]:
    """The method's estimate for good bands, the plain spatial fill for bad ones; NaN elsewhere.

    y, seen: (bands, rows, cols) on the unit range.  Also returns the log of every step.
    """
    x = np.full(y.shape, np.nan)
    measured = seen.any(axis=(1, 2))
    good, bad = measured & cube.good_bands, measured & ~cube.good_bands
    chosen = _for_bands(chosen, cube, good)
    inputs = (y[good], mask.shared(seen[good]), sigma[good])
    keep, state, history = _checkpoint(chosen, inputs, job)
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0.0)
    with memory_told(job.device, MEMORY_ADVICE), _determinism(job.deterministic):
        for step in _start(chosen, *inputs, job, state):
            history.append({**step.log, "seconds": time.perf_counter() - began})
            if keep is not None:
                keep.offer(step, history)
            if progress is not None:
                progress(step)
        x[good] = step.x if chosen.backend == "numpy" else step.x.double().cpu().numpy()
    if keep is not None:
        keep.remove()
    if bad.any():
        for step in _start(choose("harmonic"), y[bad], mask.shared(seen[bad]), sigma[bad], job):
            x[bad] = step.x
    return x, [{k: float(v) for k, v in record.items()} for record in history]


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


def _for_bands(chosen: Chosen, cube: Cube, bands: Bools) -> Chosen:
    """A method that works along the bands asks for wavelengths: give it those of its bands."""
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
