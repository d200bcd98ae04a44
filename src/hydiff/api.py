"""The front door: `fill(cube) -> Result`.  Scale, choose what to fill, run a method, scale back.

`write` takes what a fill takes and gives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hydiff import auto, io, mark
from hydiff.auto import Decision
from hydiff.cube import Array, Bools, Cube, Floats, Nodata, as_cube, band_axis
from hydiff.errors import BadValue, UnknownName, need_torch
from hydiff.gaps import reach
from hydiff.gaps.rule import (
    Sigma,
    check_numbers,
    checked_mask,
    float_for,
    into_dtype,
    observed_entries,
    sigma_per_band,
    suspected,
    targets,
)
from hydiff.io import axes, provenance
from hydiff.io.versions import versions
from hydiff.methods import DEFAULT, Inpaint, choose, settings_dict
from hydiff.methods.estimate import Estimate, Job, Progress, check_seed, estimate, torch_device
from hydiff.result import Result

if TYPE_CHECKING:
    import xarray


Mask = Bools | str | Path | None


def fill(
    data: Cube | Array | xarray.DataArray | xarray.Dataset | str | Path,
    observed: Mask = None,
    *,
    missing: Mask = None,
    axis: str | None = None,
    method: str | Inpaint = DEFAULT,
    preset: str | None = None,
    sigma_y: Sigma = 0.0,
    nodata: Nodata = None,
    nodata_in: str | None = None,
    bad_bands: str = "fill",
    max_gap: float | None = None,
    outside: str | None = None,
    fill_clouds: bool = False,
    denoise: bool = False,
    clip: str = "none",
    seed: int = 0,
    device: str = "auto",
    deterministic: bool = False,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    budget: str = "normal",
    recipe: Mapping[str, Any] | str | Path | None = None,
    max_error: float | None = None,
    progress: Progress = None,
    **settings: Any,
) -> Result:
    """Fill the gaps of a cube from its own observed entries.

    data: a Cube, a DataArray, a Dataset with one, the path of a file, or an array (bands, rows,
        cols).  Missing are the entries that `observed` (True = measured; (rows, cols) or
        (bands, rows, cols), or a mask file) names, and those that the cube itself does: its nodata
        value (or `nodata`, one or several), NaN, Inf.
    missing: a mask with the opposite meaning, instead of `observed`.
    axis: "bands first" or "bands last" of an array, (rows, cols, bands); by default the mask says
        it, else it is the first, and an array that looks otherwise is refused.
    nodata_in: "any" takes every entry with the nodata value as missing, "all" only pixels where
        all good bands have it; by default "all" for a value that could be a measurement, within
        the range of all others.
    sigma_y: noise std in the cube's unit, one number, one per band, or one per detector as a dict;
        "5%" is a share of its range, "auto" has it estimated from the cube.
    bad_bands: "fill" gives gaps in bad bands the plain spatial fill, "keep" leaves them.
    max_gap: leave what lies in gaps wider than this many pixels.
    outside: "keep" or "fill" what no line joins to observed pixels on both sides; by default kept
        in cubes that were read from files, filled in arrays.
    fill_clouds: also fill what a product withholds without having lost it (EMIT's screened clouds).
    clip: filled values to what was "observed" in their band, or to what is "physical": 0 or more,
        1 or less where the file says that it holds reflectance; "none" leaves them.
    denoise: with sigma_y > 0, `Result.cube` takes the estimate for its observed entries too.
    deterministic: the same bytes again on a GPU too, at some cost (a CPU always gives them).
    checkpoint: a file for the state of a learned method, written every half minute and removed at
        the end; with `resume` a run goes on from it.
    budget: of the method "auto": "fast", "normal" or "best".
    recipe: what an earlier "auto" decided, as `Result.recipe` or the path of its record: it is
        repeated without trying again.
    max_error: leave missing what is expected to be off by more than this many standard deviations
        of its band; 1 is no better than the band's mean.
    progress: called with every `Step` of the method; when it returns a true value, the method ends
        there and its estimate so far is taken.
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
    cube, given = _cube_and_mask(data, observed, missing, axis)
    cube = cube.load()
    check_numbers(cube)
    told = None if recipe is None else auto.read_recipe(recipe)
    check_request(method, preset, settings, budget, told, max_error, sigma_y, seed, device)
    chosen = None if method == auto.NAME else choose(method, preset, with_network(settings))
    measured, notes = observed_entries(cube, given, nodata, nodata_in)
    notes += suspected(cube, given, nodata)
    bounds = reach.reach_of(cube, *reach.extremes(np.asarray(cube.values), measured), clip)
    if outside is None:
        outside = "fill" if cube.path is None else "keep"
    target, left = targets(
        cube,
        measured,
        bad_bands=bad_bands,
        max_gap=max_gap,
        outside=outside,
        fill_clouds=fill_clouds,
    )
    noise = sigma_per_band(sigma_y, cube)
    job = Job(seed, device, deterministic, None if checkpoint is None else Path(checkpoint), resume)
    decision: Decision | None = None
    if chosen is None:
        found, decision = auto.fill(
            cube,
            measured,
            target,
            noise,
            job,
            budget=budget,
            recipe=told,
            max_error=max_error,
            progress=progress,
        )
    else:
        found = estimate(cube, measured, chosen, noise, job, progress)
    name = auto.NAME if chosen is None else chosen.name
    for reason, entries in _given_up(found, decision, name, max_error):
        if (kept := target & entries).any():
            left[reason] = int(kept.sum())
            target &= ~entries

    values, beyond = reach.bounded(cube.dtype, found.values, target, bounds)
    trusted = target | (measured & (found.sigma_y > 0)[:, None, None])
    written, changed = into_dtype(cube, values, trusted if denoise else target, nodata)
    floats = partial(np.asarray, dtype=float_for(cube.dtype))
    result = Result(
        cube=replace(cube, values=written, valid=cube.validated(target)),
        values=floats(_composed(cube, measured, trusted, values)),
        raw=floats(found.values),
        filled=target,
        left=left,
        method=name,
        settings=settings_dict(chosen.settings)
        if chosen is not None
        else {"budget": auto.budget_used(told, budget)},
        sigma_y=found.sigma_y,
        history=found.history,
        seed=seed,
        seconds=time.perf_counter() - began,
        notes=[
            *notes,
            *found.notes,
            *([] if told is None else auto.note_of_origin(told, auto.fingerprint(cube, measured))),
            *(f"{n} filled entries {how}" for how, n in changed.items()),
            *reach.notes(beyond, clip),
        ],
        sigma=None if found.sigma is None else floats(np.where(target, found.sigma, np.nan)),
        expected=None if decision is None else decision.expected,
        expected_by_kind=None if decision is None else decision.both_kinds,
        recipe=None if decision is None else decision.recipe,
        beyond=beyond | {"clip": clip},
    )
    return replace(result, cube=_marked(result, denoise and bool((found.sigma_y > 0).any())))


def _marked(result: Result, denoised: bool) -> Cube:
    """The filled cube, which says that it is, and what was filled before it came here."""
    filled, before = result.filled, result.cube.mark
    if not (denoised or filled.any()):
        return result.cube
    record = {
        "time": mark.now(),
        "method": result.method,
        "settings": result.settings,
        "seed": result.seed,
        "entries": {"all": filled.size, "filled": int(filled.sum())},
        "expected": result.expected,
        "versions": versions(),
    }
    shares = filled.mean(axis=(1, 2))
    made = mark.of_fill(filled, shares, result.method, record, denoised=denoised)
    return replace(result.cube, mark=made.after(before))


def write(
    data: Result | Cube | Array | xarray.DataArray,
    path: str | Path,
    *,
    axis: str | None = None,
    overwrite: bool = False,
    unmarked: bool = False,
) -> list[Path]:
    """Write a cube, whole or not at all; the files made, the one with the values first.

    The suffix of `path` says the format; without one it is the format that the cube came in.  A
    Result is written with its companions, as `hydiff fill` does; arrays are (bands, rows, cols)
    unless `axis` is "bands last".  unmarked: allow a file that cannot say that it is filled (.npy).
    """
    if isinstance(data, Result):
        return provenance.save(data, path, overwrite=overwrite, unmarked=unmarked)
    cube = _cube_and_mask(data, None, None, axis)[0]
    return io.write(cube, path, overwrite=overwrite, unmarked=unmarked)


def _cube_and_mask(
    data: Any, observed: Mask, missing: Mask, axis: str | None
) -> tuple[Cube, Bools | None]:
    """The cube and the mask, True = measured, both with the bands first."""
    if observed is not None and missing is not None:
        raise BadValue("`observed=` and `missing=` say the same thing twice: give one of them")
    mask = observed if missing is None else missing
    if isinstance(data, str | Path):
        cube = io.read(data, axis=axis)
    else:
        data = _only_array(data)
        form = mask.shape if isinstance(mask, np.ndarray) else None
        last = _bands_last(data, axis, form)
        cube = as_cube(data.transpose(*_dims(data, (2, 0, 1))) if last else data)
        if last and form == data.shape:
            mask = np.asarray(mask).transpose(2, 0, 1)
    if isinstance(mask, str | Path):
        meaning = "observed" if missing is None else "missing"
        return cube, io.read_mask(mask, meaning, cube.shape, like=cube)
    if mask is not None and missing is not None:
        mask = ~checked_mask(np.asarray(mask), cube.shape)
    return cube, mask


def _only_array(data: Any) -> Any:
    """Of a Dataset, its only variable with three axes; lists as arrays, anything else as it is."""
    if isinstance(data, Result):
        raise BadValue("a Result is filled already: its cube is `result.cube`")
    if not hasattr(data, "data_vars"):
        return data if hasattr(data, "shape") else np.asarray(data)
    found = [str(name) for name, variable in data.data_vars.items() if variable.ndim == 3]
    if len(found) != 1:
        named = ", ".join(found) or "none"
        raise BadValue(
            f"a Dataset with one variable of three axes was expected, found {named}; "
            f"pass one of them, such as dataset[{(found or ['NAME'])[0]!r}]"
        )
    return data[found[0]]


def _bands_last(data: Any, axis: str | None, mask: tuple[int, ...] | None) -> bool:
    """Whether an array has its bands at the end; cubes and named dimensions say it themselves."""
    named = isinstance(data, Cube)
    if not named and hasattr(data, "dims"):
        named = data.ndim == 3 and band_axis([str(d) for d in data.dims]) is not None
    if named and axis is not None:
        raise BadValue("`axis=` goes with arrays: a cube, or its dimensions, say it; leave it out")
    if named or len(data.shape) != 3:  # the number of axes is refused by the cube
        return False
    return axes.order_of(data.shape, axis, mask) == axes.LAST


def _dims(data: Any, order: tuple[int, int, int]) -> list[Any]:
    """An order of axes as `transpose` of this array expects it."""
    return [data.dims[i] for i in order] if hasattr(data, "dims") else list(order)


def with_network(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings; with trained weights among them, the size of the network is the file's."""
    if settings.get("weights") is None:
        return dict(settings)
    need_torch("`weights=`")
    from hydiff.learn.weights import network_of

    return {**network_of(settings["weights"]), **settings}


def _given_up(
    found: Estimate, decision: Decision | None, name: str, max_error: float | None
) -> Iterator[tuple[str, Bools]]:
    """Entries (bands, rows, cols) that are left missing after all, with the reason."""
    yield f"out of reach of {name}", np.isnan(found.values)
    if decision is not None and max_error is not None:
        yield f"expected error above {max_error:g}", decision.hopeless


def _composed(cube: Cube, observed: Bools, trusted: Bools, estimate: Floats) -> Floats:
    """The estimate where it is trusted: in the gaps, and where noise has touched what was seen.

    Elsewhere the cube's own values; NaN where neither has one.
    """
    values = np.where(observed, np.asarray(cube.values, dtype=np.float64), np.nan)
    values[trusted] = estimate[trusted]
    return values


def check_request(
    method: str | Inpaint,
    preset: str | None,
    settings: Mapping[str, Any],
    budget: str,
    recipe: Mapping[str, Any] | None,
    max_error: float | None,
    sigma_y: Sigma = 0.0,
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Refuse what cannot be asked of a method together, and what can be asked of none."""
    validated = method == auto.NAME
    if settings and isinstance(method, str):
        _refuse_misspelt(settings, {} if validated else vars(choose(method).settings))
    if validated and (settings or preset is not None):
        named = ", ".join([*settings, *([f"preset {preset}"] if preset else [])])
        raise BadValue(f"{named}: settings belong to one method; name it, e.g. method='smooth'")
    if recipe is not None and not validated:
        raise BadValue(f"a recipe is replayed by the method 'auto', not by {method!r}: give one")
    if max_error is not None and not (validated and max_error > 0):
        raise BadValue("max_error is a positive number, and only the method 'auto' can keep it")
    if budget not in auto.BUDGETS:
        raise UnknownName("budget", budget, auto.BUDGETS)
    _check_sigma(sigma_y)
    check_seed(seed)
    # whether there is a GPU is told where the fill runs, which may be elsewhere
    if device not in ("auto", "cpu") and not str(device).startswith("cuda"):
        torch_device(device)


def _refuse_misspelt(settings: Mapping[str, Any], allowed: Mapping[str, Any]) -> None:
    """What is no setting, and nearly an argument of `fill`."""
    arguments = [name for name in signature(fill).parameters if name != "settings"]
    for name in settings:
        if name not in allowed and get_close_matches(name, arguments, n=1, cutoff=0.75):
            raise UnknownName("argument", name, arguments)


def _check_sigma(sigma_y: Sigma) -> None:
    """What can be said before the bands and the range of a cube are known."""
    given: Any = list(sigma_y.values()) if isinstance(sigma_y, Mapping) else sigma_y
    if isinstance(given, str):
        given = given.removesuffix("%") if given.endswith("%") else 0.0
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except ValueError:
        return  # told in full with the cube's unit
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise BadValue(f"sigma_y = {sigma_y}: expected a standard deviation, 0 or more")
