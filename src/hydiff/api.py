"""The front door: `fill(cube) -> Result`.  Scale, choose what to fill, run a method, scale back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hydiff import mask, noise
from hydiff.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.cube import (
    Array,
    Bools,
    Cube,
    Floats,
    Scale,
    as_cube,
    equals,
    representable,
    unit_scale,
)
from hydiff.errors import BadValue, NothingObserved, ShapeMismatch, UnknownName, memory_told
from hydiff.methods import DEFAULT, Chosen, Inpaint, choose, settings_dict
from hydiff.result import Result, Step

if TYPE_CHECKING:
    import xarray

Sigma = float | str | Sequence[float] | Array
Progress = Callable[[Step], Any] | None
Ints = NDArray[np.intp]

LARGEST_SIGMA = 10.0  # of the unit range; more is a slip of units
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
    settings: entries of the method's settings, e.g. `s=1.25`.

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
    estimate, history = values, list[Mapping[str, float]]()
    if target.any() or noisy:
        keep = None if checkpoint is None else Path(checkpoint)
        job = Job(seed, device, deterministic, keep, resume)
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
    kind = _float_for(cube.dtype)
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


def observed_entries(cube: Cube, observed: Bools | None, nodata: float | None) -> Bools:
    """(bands, rows, cols): measured by the cube's own rule and by the mask that was given."""
    if nodata is not None and not equals(np.asarray(cube.values), nodata).any():
        raise BadValue(
            f"nodata {nodata:g} occurs nowhere in the cube; leave it out, "
            "or see `hydiff mask` for values that look like it"
        )
    seen = cube.observed(nodata)
    if observed is not None:
        seen = seen & _checked_mask(np.asarray(observed), cube.shape)
    if not seen.any():
        raise NothingObserved(
            "every entry is missing: there is nothing to fill from; check --nodata and the mask"
        )
    return seen


def _checked_mask(observed: Array, shape: tuple[int, int, int]) -> Bools:
    if observed.dtype != bool:
        raise BadValue(f"a mask is boolean (True = measured); found {observed.dtype}")
    if observed.shape not in (shape, shape[1:]):
        raise ShapeMismatch(
            f"the mask has shape {observed.shape}; expected {shape[1:]} (rows, cols) "
            f"or {shape} (bands, rows, cols), as the cube"
        )
    return observed


def targets(
    cube: Cube, seen: Bools, *, bad_bands: str, max_gap: float | None, outside: str
) -> tuple[Bools, dict[str, int]]:
    """Which missing entries to fill (bands, rows, cols), and how many are left for which reason."""
    for name, value in (("bad_bands", bad_bands), ("outside", outside)):
        if value not in ("fill", "keep"):
            raise UnknownName(f"choice for {name}", value, ("fill", "keep"))
    if max_gap is not None and not max_gap > 0:
        raise BadValue(f"max_gap = {max_gap:g}: expected a width in pixels above 0")
    target = ~seen
    left: dict[str, int] = {}

    def leave(reason: str, bands: Ints, pixels: Bools) -> None:
        kept = target[bands] & pixels
        if kept.any():
            left[reason] = left.get(reason, 0) + int(kept.sum())
            target[bands] &= ~pixels

    for bands, observed in mask.band_groups(seen):
        missing = ~observed
        if missing.all():
            leave("band without any observed pixel", bands, missing)
        elif missing.any():
            if bad_bands == "keep":
                leave("bad band", bands[~cube.good_bands[bands]], missing)
            if outside == "keep":
                leave("outside the observed pixels", bands, mask.outside(missing))
            if max_gap is not None:
                too_wide = mask.thickness(missing) > max_gap
                leave(f"gap wider than {max_gap:g} pixels", bands, too_wide)
    return target, left


def unit_sigma(
    sigma_y: Sigma, y: Floats, seen: Bools, good: Bools, scale: Scale
) -> tuple[Floats, list[str]]:
    """Noise std per band (bands,) on the unit range, and what to tell of it.

    From a number, one per band, a share such as "5%", or "auto": estimated from y.
    """
    bands = len(y)
    if isinstance(sigma_y, str) and sigma_y == "auto":
        return _estimated_sigma(y, seen, good, scale)
    try:
        if isinstance(sigma_y, str) and sigma_y.endswith("%"):
            sigma = np.asarray(float(sigma_y[:-1]) / 100)
        else:
            sigma = np.asarray(sigma_y, dtype=np.float64) / scale.span
    except ValueError:
        raise BadValue(
            f"sigma_y = {sigma_y!r}: expected a number in the cube's unit, a share such as 5%, "
            "or auto"
        ) from None
    if sigma.shape not in ((), (bands,)):
        raise ShapeMismatch(
            f"sigma_y has {sigma.size} entries; expected 1 or {bands}, one per band"
        )
    if not (np.isfinite(sigma).all() and (sigma >= 0).all() and (sigma <= LARGEST_SIGMA).all()):
        raise BadValue(
            f"sigma_y = {sigma_y}: expected a standard deviation between 0 and "
            f"{LARGEST_SIGMA * scale.span:g}, in the cube's unit (its values span {scale.span:g})"
        )
    return np.broadcast_to(sigma, (bands,)).copy(), []


def _estimated_sigma(y: Floats, seen: Bools, good: Bools, scale: Scale) -> tuple[Floats, list[str]]:
    usable = good & seen.any(axis=(1, 2))
    found = noise.estimate(y[usable], seen[usable])
    if not np.isfinite(np.median(found.error)):
        raise BadValue(
            "sigma_y = 'auto': too few neighbouring pixels to tell the noise from; give a number"
        )
    sigma = np.zeros(len(y))
    sigma[usable] = found.sigma
    typical, error = np.median(found.sigma), np.median(found.error)
    told = (
        f"sigma_y estimated by {found.how}: {typical * scale.span:.3g} ± {error * scale.span:.1g} "
        f"in the median band ({100 * typical:.2g} % of the range)"
    )
    return sigma, [told]


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


def into_dtype(
    cube: Cube, estimate: Floats, where: Bools, nodata: float | None
) -> tuple[Array, list[str]]:
    """The cube's values with the estimate written `where`, in the cube's dtype, and what to note.

    Integers are rounded and clipped to their range; no filled entry lands on the nodata value.
    """
    values = np.array(cube.values)
    new = estimate[where]
    notes = []
    if values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        new = np.rint(new)
        clipped = int(((new < info.min) | (new > info.max)).sum())
        if clipped:
            notes.append(f"{clipped} filled entries were clipped to the range of {values.dtype}")
        top = float(info.max)
        if top > info.max:  # the largest 64-bit integers have no float64 of their own
            top = np.nextafter(top, 0)
        new = np.clip(new, info.min, top)
    values[where] = new.astype(values.dtype)
    for flag in {nodata, cube.nodata}:
        notes += [] if flag is None else _off_nodata(values, where, flag)
    return values, notes


def _off_nodata(values: Array, where: Bools, flag: float) -> list[str]:
    """Move written entries that equal the nodata value to the next value of their dtype."""
    if not representable(flag, values.dtype) or np.isnan(flag):
        return []
    hits = where & equals(values, flag)
    if not hits.any():
        return []
    if values.dtype.kind == "f":
        inward = np.asarray(1.0 if flag <= 0 else 0.0, values.dtype)
        values[hits] = np.nextafter(values[hits], inward)
    else:
        values[hits] = int(flag) + (1 if flag < np.iinfo(values.dtype).max else -1)
    return [f"{int(hits.sum())} filled entries fell on nodata {flag:g} and were moved one step off"]


def _float_for(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest float type, float32 at least, that holds every value of a dtype."""
    return np.result_type(dtype, np.float32)
