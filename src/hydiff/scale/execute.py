"""File in, file out: one fill as the command line, an archive or a worker asks for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import api, io
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, OutputError, UnknownName
from hydiff.gaps import reach, rule
from hydiff.gaps.detect import detect
from hydiff.io import enmap, provenance, typed
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.scale import scene
from hydiff.scale.scene import Filled, Limits
from hydiff.workers.remote import Run, in_turn

Say = Callable[[str], Any]


def quiet(text: str) -> None:
    """Nobody listens."""


def fill_file(
    input: Path,
    output: Path,
    order: Request,
    bounds: Limits,
    *,
    run: Run | None = None,
    resume: bool = False,
    overwrite: bool = False,
    band_mask: Path | None = None,
    command: Sequence[str] = (),
    say: Say = quiet,
    progress: Progress = None,
) -> Filled:
    """Fill a file, whole or by tiles, and write it with its companions.

    run: who fills the tiles; with it a scene is filled by tiles whatever its size.
    band_mask: where to write what was filled as EMIT stores it.
    say: told what was found and will be done.  The record lacks a method where nothing was to fill.
    An output that is the input, and has nothing to fill, stays with all that tells of its fill.
    resume: go on where an interrupted fill ended; one that had ended well stays as it is.
    """
    if resume and (done := finished(input, output, order, bounds, band_mask)) is not None:
        say(f"{done.made[0]} is there already, filled as it is asked for now: nothing to do")
        return done
    cube = checked(input, output, order, overwrite, band_mask, bounds)
    output, asked = io.values_path(cube, output), request(order, bounds)
    in_place = any(io.staging.same(cube.path or input, place) for place in _places(cube, output))
    if run is not None or scene.wanted(cube, order, bounds):
        _refuse_by_tiles(order, band_mask)
        given = _given(cube, order, say)
        _tell_tiles(input, cube, order, bounds, say)
        if in_place:  # worth another walk through the file
            plan = scene.preview(input, order, bounds, observed=given)
            if not plan["entries_to_fill"]:
                return _untouched(cube, plan["left"], command)
        if provenance.tiles_path(output).exists() and not resume:
            say(f"starting again; `resume=True` would go on with {provenance.tiles_path(output)}")
        tiled = scene.fill(
            input,
            output,
            order,
            bounds,
            observed=given,
            resume=resume,
            overwrite=overwrite,
            command=command,
            request=asked,
            progress=progress,
            run=run or in_turn,
        )
        return _reported(tiled, input, output, order, overwrite)
    hashes = provenance.hashes_of(cube.path)  # before a value is read
    cube = cube.load()
    observed, notes = _seen(cube, order, say)
    if observed.all() and order.sigma_y == 0:
        if order.report:
            say(f"{input} has no gaps: without a fill there is no report to write")
        if in_place:
            return _untouched(cube, {}, command)
        return _copied(cube, observed, output, overwrite, band_mask, command, hashes, asked, notes)
    count, left = _tell_whole(input, cube, observed, order, say)
    if in_place and not count and not order.denoise:
        return _untouched(cube, left, command)
    checkpoint = provenance.checkpoint_path(output)
    if checkpoint.exists() and not resume:
        say(f"starting again; `resume=True` would go on from {checkpoint}")
    elif resume and not checkpoint.exists():
        say(f"nothing to resume: there is no {checkpoint}; starting again")
    result = api.fill(
        cube, observed, checkpoint=checkpoint, resume=resume, progress=progress, **order.arguments
    )
    about: dict[str, Any] = {"command": command, "hashes": hashes, "request": asked}
    made = provenance.save(result, output, overwrite=overwrite, unmarked=order.unmarked, **about)
    if band_mask is not None:
        io.write_band_mask(result.filled, band_mask, overwrite=overwrite, source=cube.path)
    filled = Filled(made, provenance.record(result, **about))
    return _reported(filled, input, output, order, overwrite)


def request(order: Request, bounds: Limits) -> str:
    """A fingerprint of all that a fill is asked for, but where it reads and writes."""
    masks = {name: getattr(order, name) for name in ("observed", "missing", "quality")}
    content = {k: provenance.sha256(p) for k, p in masks.items() if p and io.regular.is_there(p)}
    asked = asdict(order) | {"report": None, **dict.fromkeys(masks), **content}
    return fingerprint(asked, bounds.tile, bounds.overlap, versions()["hydiff"])


def finished(
    input: Path, output: Path, order: Request, bounds: Limits, band_mask: Path | None = None
) -> Filled | None:
    """The fill of this very input by this very request, if it is there whole; else None.

    The output is renamed into place last: where it stands beside the record of a request, that
    request was done.  What an interruption may have kept from being made after it is made now.
    """
    cube = io.read(input, var=order.var)
    source, output = cube.path or input, io.values_path(cube, output)
    note = provenance.record_path(output)
    if io.staging.same(source, output) or not (output.exists() and io.regular.is_there(note)):
        return None
    try:
        record = dict(typed.load(note))
    except (ValueError, TypeError, RecursionError):  # a record of somebody else
        return None
    read = record.get("input") or {}
    if record.get("request") != request(order, bounds) or not isinstance(read, dict):
        return None
    if read.get("sha256") != provenance.sha256(source):
        return None
    shutil.rmtree(provenance.tiles_path(output), ignore_errors=True)
    provenance.checkpoint_path(output).unlink(missing_ok=True)
    made = [path for path in (output, *provenance.beside(output)) if path.exists()]
    if band_mask is not None and not band_mask.exists():
        filled = provenance.companions(output, cube.shape).get("filled", np.zeros(cube.shape))
        io.write_band_mask(filled.astype(bool), band_mask, source=source)
    if provenance.report_path(output).exists() or "method" not in record:
        return Filled(made, record)
    return _reported(Filled(made, record), input, output, order, overwrite=False)


def preview(
    input: Path,
    output: Path,
    order: Request,
    bounds: Limits,
    *,
    by_tiles: bool = False,
    overwrite: bool = False,
    band_mask: Path | None = None,
    say: Say = quiet,
) -> dict[str, Any]:
    """What `fill_file` would do, or refuse; nothing is written."""
    cube = checked(input, output, order, overwrite, band_mask, bounds)
    if by_tiles or scene.wanted(cube, order, bounds):
        _refuse_by_tiles(order, band_mask)
        given = _given(cube, order, say)
        _tell_tiles(input, cube, order, bounds, say)
        return scene.preview(input, order, bounds, observed=given)
    cube = cube.load()
    observed, notes = _seen(cube, order, say)
    if observed.all() and order.sigma_y == 0:
        return {"entries": {"missing_before": 0}, "outputs": [], "notes": notes}
    count, left = _tell_whole(input, cube, observed, order, say)
    plan = {"method": order.method, "settings": order.shown, "left": left, "notes": notes}
    return plan | {"entries_to_fill": count, "output": str(output)}


def is_plain_folder(path: Path) -> bool:
    """A folder that stands for no product: outputs go into it."""
    return io.regular.exists(path) and path.is_dir() and not io.staging.is_product(path)


def checked(
    input: Path,
    output: Path,
    order: Request,
    overwrite: bool,
    band_mask: Path | None = None,
    bounds: Limits | None = None,
) -> Cube:
    """The cube, on disk; refuses before the work what would be refused after it."""
    check_order(order)
    _check_folder(output)
    cube = io.read(input, var=order.var)
    io.refuse_unmarked(cube, output, order.unmarked)
    if bounds is not None and io.format_for(cube, output) == "enmap":
        enmap.check_unpacked(cube, bounds.memory)
    io.staging.refuse_targets(cube.path or input, _places(cube, output), overwrite, input)
    output = io.values_path(cube, output)
    for path in provenance.beside(output):
        io.staging.refuse_existing(path, overwrite)
    io.staging.refuse_inputs(provenance.beside(output), [cube.path])
    if band_mask is not None:
        _check_band_mask(band_mask, output, overwrite)
        read = (input, cube.path, order.observed, order.missing, order.quality)
        io.staging.refuse_inputs([band_mask], read)
    return cube


def check_order(order: Request) -> None:
    """Refuse what can be asked of no cube."""
    api.check_request(
        order.method,
        order.preset,
        order.settings,
        order.budget,
        order.recipe,
        order.max_error,
        order.sigma_y,
        order.seed,
        order.device,
    )
    rule.check_choices(order.bad_bands, order.max_gap, order.outside)
    reach.check_clip(order.clip)
    rule.check_nodata(order.nodata, order.nodata_in)


def _places(cube: Cube, output: Path) -> list[Path]:
    """The output, and what would be read together with it."""
    names, kind = (output, io.values_path(cube, output)), io.format_for(cube, output)
    return list(dict.fromkeys([*names, *(p for n in names for p in io.staging.partners(n, kind))]))


def _check_folder(output: Path) -> None:
    if not output.parent.is_dir():
        raise OutputError(f"{output.parent} is not a folder; create it first")


def _check_band_mask(path: Path, output: Path, overwrite: bool) -> None:
    if path.suffix.lower() != ".nc":
        raise UnknownName("suffix of `band_mask=`", path.suffix, [".nc"], "; it is a netCDF file")
    if path.resolve() == output.resolve():
        raise OutputError(f"{path} is the output already; give `band_mask=` another name")
    _check_folder(path)
    io.staging.refuse_existing(path, overwrite)


def _given(cube: Cube, order: Request, say: Say) -> Bools | None:
    """What mask files and quality layers tell, True = measured; None when none was named."""
    given = io.given_mask(cube, order.observed, order.missing, say)
    layer = io.quality_layer(cube, order.quality, order.flags)
    if layer is None:
        return given
    told = ", ".join(f"{flag} {count:,}" for flag, count in layer.counts.items())
    say(f"taken as missing by {order.quality}: {told} entries")
    return layer.observed if given is None else layer.observed & given


def _seen(cube: Cube, order: Request, say: Say) -> tuple[Bools, list[str]]:
    """(bands, rows, cols) what counts as measured, suspected damage taken out if that is asked;
    and what was said of it."""
    given = _given(cube, order, say)
    observed, notes = rule.observed_entries(cube, given, order.nodata, order.nodata_in)
    if not order.detect:
        notes += rule.suspected(cube, given, order.nodata)
    for note in notes:
        say(f"warning: {note}")
    if order.detect:
        for suggestion in detect(np.asarray(cube.values), observed, cube.good):
            say(f"taken as missing: {suggestion.message}")
            observed = observed & ~suggestion.missing
    return observed, notes


def _reported(filled: Filled, input: Path, output: Path, order: Request, overwrite: bool) -> Filled:
    """With the page about the fill, if it was asked for."""
    if not order.report:
        return filled
    from hydiff.report import write

    source = None if input == output else input
    page = write(output, source=source, var=order.var, overwrite=overwrite)
    return filled._replace(made=[*filled.made, page])


def _untouched(cube: Cube, left: Mapping[str, int], command: Sequence[str]) -> Filled:
    """Nothing to fill in place: writing would only erase the record of what was filled before."""
    told = {"entries": provenance.counts(cube.shape, 0, left)}
    return Filled([], provenance.dated(command, None, told))


def _copied(
    cube: Cube,
    observed: Bools,
    output: Path,
    overwrite: bool,
    band_mask: Path | None,
    command: Sequence[str],
    hashes: provenance.Hashes,
    asked: str,
    notes: Sequence[str] = (),
) -> Filled:
    """A cube without gaps: a verbatim copy, and a record that says so."""
    about = {"request": asked, "entries": {"missing_before": 0}, "notes": [*notes]}
    record = provenance.dated(command, provenance.input_of(hashes), about)
    beside = provenance.beside(output)
    with io.staged(output, overwrite=overwrite, beside=beside, source=cube.path) as folder:
        made = io.write_into(cube, folder / output.name)
        note = typed.dumps(record)
        provenance.record_path(folder / output.name).write_text(note)
        provenance.check_unchanged(cube.path, hashes)
    paths = [*(output.with_name(p.name) for p in made), provenance.record_path(output)]
    if band_mask is not None:
        paths += io.write_band_mask(~observed, band_mask, overwrite=overwrite, source=cube.path)
    return Filled(paths, record)


def _tell_tiles(input: Path, cube: Cube, order: Request, bounds: Limits, say: Say) -> None:
    within = f"by tiles, within {bounds.memory / 1e9:.3g} GB"
    say(f"{input}: {_size(cube)}, {within}, with {order.method}")


def _tell_whole(
    input: Path, cube: Cube, observed: Bools, order: Request, say: Say
) -> tuple[int, dict[str, int]]:
    """Say, and return, how many entries will be filled, and how many are left for which reason."""
    target, left = rule.targets(
        cube,
        observed,
        bad_bands=order.bad_bands,
        max_gap=order.max_gap,
        outside=order.outside,
        fill_clouds=order.fill_clouds,
    )
    count = int(target.sum())
    say(f"{input}: {_size(cube)}, {100 * float((~observed).mean()):.1f} % of the entries missing")
    settings = ", ".join(f"{k}={v}" for k, v in order.shown.items())
    settings = settings if order.recipe is None else "as decided before"
    say(f"will fill {count:,} entries with {order.method}" + (f" ({settings})" if settings else ""))
    for line in rule.told_left(left):
        say(line)
    return count, left


def _size(cube: Cube) -> str:
    return f"{cube.shape[0]} bands × {cube.shape[1]} × {cube.shape[2]} {cube.dtype}"


def _refuse_by_tiles(order: Request, band_mask: Path | None) -> None:
    unable = {
        "`detect=True`": order.detect,
        "`denoise=True`": order.denoise,
        "`band_mask=`": band_mask,
    }
    if options := [option for option, on in unable.items() if on]:
        raise BadValue(
            f"{', '.join(options)}: needs the whole cube in memory, and this one is filled by "
            "tiles; leave it out, or give more `memory=` (for `detect=True`: "
            "`hydiff mask IN -o M.npz` elsewhere, then `missing='M.npz'`)"
        )
