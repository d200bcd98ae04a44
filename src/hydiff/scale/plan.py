"""Plan a fill from file to file: open the files, check the outputs, and find the gaps.

`hydiff.scale.execute` executes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, io
from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue, OutputError, UnknownName
from hydiff.flags import MASK
from hydiff.gaps import regions
from hydiff.io import enmap, headers, provenance, typed, uncertainty
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.reference.image_choice import files_of
from hydiff.request import Request
from hydiff.scale.contents import by_content
from hydiff.scale.layout import Limits, plain_windows, wanted

Say = Callable[[str], Any]
WHOLE_FORMATS = ("mat", "npz")  # formats written as a whole, from memory; except .npy from .npy


def quiet(text: str) -> None:
    """Ignore messages."""


class Filled(NamedTuple):
    """The outputs of a fill."""

    made: list[Path]  # files that were written, the cube first
    record: dict[str, Any]  # as in OUT.fill.json; without a method if there was nothing to fill


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The plan of a fill from file to file."""

    request: Request
    limits: Limits
    input: Path
    output: Path  # the file of the values
    cube: Cube  # on disk; its format is known
    resume: bool
    overwrite: bool
    band_mask: Path | None  # where to write the mask of filled entries in the layout of EMIT
    command: tuple[str, ...]
    fingerprint: str  # of the request, for the record
    in_place: bool = False  # the output is the input
    mask: Bools | None = None  # (rows, cols) or (bands, rows, cols), True = measured
    named: Array | None = None  # of the mask's shape: why its entries are missing, bits of REASONS
    whole: api.CubePlan | None = None  # None if filled by tiles, or finished
    hashes: provenance.Hashes = field(default_factory=dict)  # of the input's files, taken before
    #                                                          reading; {} if filled by tiles
    finished: Mapping[str, Any] | None = None  # the record, if this fill was completed before

    @property
    def source(self) -> Path:
        """The file of the input's values."""
        return self.cube.path or self.input

    @property
    def has_no_gaps(self) -> bool:
        """Whether nothing is missing and nothing is denoised, so that a copy is sufficient."""
        nothing = self.whole is not None and bool(self.whole.observed.all())
        return nothing and self.request.sigma_y == 0


def make_plan(
    input: Path,
    output: Path,
    request: Request,
    limits: Limits,
    *,
    cube: Cube | None = None,
    by_tiles: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    band_mask: Path | None = None,
    command: Sequence[str] = (),
    say: Say = quiet,
) -> FilePlan:
    """Return the plan of a fill: open the input, check all outputs before the work, find the gaps.

    cube: the input, if it is already open.
    by_tiles: fill by tiles, whatever the size of the input.
    resume: continue an interrupted fill; the files of a completed one are left as they are.
    band_mask: where to write the mask of filled entries in the layout of EMIT.
    say: receives lines about what was found and what will be done.
    """
    request.check()
    _check_folder(output)
    cube = io.read(input, var=request.var) if cube is None else cube
    output, name = io.values_path(cube, output), output
    shared = (resume, overwrite, band_mask, tuple(command), fingerprint_of(request, limits))
    plan = FilePlan(request, limits, input, output, cube, *shared)
    if resume and (record := _record_of(plan)) is not None:
        return replace(plan, finished=record)
    places = _places(cube, name)
    _check_output(plan, name, places)
    if guess := headers.notes(cube.attrs).get("axes"):
        say(f"warning: axes {guess}")
    plan = replace(plan, in_place=any(io.staging.same(plan.source, place) for place in places))
    if by_tiles or wanted(cube, request, limits):
        _refuse_by_tiles(request, band_mask)
        _refuse_whole_format(cube, output)
        plan = replace(plan, cube=plain_windows(cube))
        mask, named = _mask(cube, request, say)
        plan = replace(plan, mask=regions.grown(mask, request.buffer), named=named)
        uncertainty.opened(request.input_uncertainty, cube)
        within = f"by tiles, within {limits.memory / 1e9:.3g} GB"
        say(f"{input}: {_size(cube)}, {within}, with {request.method}")
        return plan
    hashes = provenance.hashes_of(cube.path)  # before a value is read
    cube = cube.load()
    mask, named = _mask(cube, request, say)
    whole = api.plan_cube(request, cube, mask, say, named)
    plan = replace(plan, cube=cube, whole=whole, hashes=hashes)
    if not plan.has_no_gaps:
        _announce(input, whole, say)
    return plan


def fingerprint_of(request: Request, limits: Limits) -> str:
    """Return a hash of all options of a fill except its input and output, files by content."""
    options = by_content(request) | {"report": None}
    return fingerprint(options, limits.tile, limits.overlap, versions()["hydiff"])


def is_plain_folder(path: Path) -> bool:
    """Return whether a path is a folder for outputs, not a product that is stored as a folder."""
    return io.regular.exists(path) and path.is_dir() and not io.staging.is_product(path)


def _record_of(plan: FilePlan) -> dict[str, Any] | None:
    """Return the record of an earlier, complete fill of this input by this request, or None.

    The output is renamed into place last: if it exists beside the record of a request, that request
    was completed.
    """
    record_file = provenance.record_path(plan.output)
    is_complete = plan.output.exists() and io.regular.is_there(record_file)
    if not is_complete or io.staging.same(plan.source, plan.output):
        return None
    try:
        record = dict(typed.load(record_file))
    except (ValueError, TypeError, RecursionError):  # a file of another program
        return None
    source = record.get("input") or {}
    if record.get("request") != plan.fingerprint or not isinstance(source, dict):
        return None
    return record if source.get("sha256") == provenance.sha256(plan.source) else None


def _check_output(plan: FilePlan, name: Path, places: list[Path]) -> None:
    """Raise an error if an output cannot be written, exists already, or is also an input.

    name: the output as requested.  places: the output, and all files written together with it.
    """
    cube, request, overwrite = plan.cube, plan.request, plan.overwrite
    io.refuse_unmarked(cube, name, request.unmarked)
    kind = io.format_for(cube, name)
    if kind == "enmap":
        enmap.check_unpacked(cube, plan.limits.memory)
    _refuse_inside(plan.source, plan.output)
    io.staging.refuse_targets(plan.source, places, overwrite, plan.input)
    companions = provenance.beside(plan.output)
    for path in companions:
        io.staging.refuse_existing(path, overwrite)
    io.staging.refuse_inputs(companions, [cube.path])
    references = files_of([*request.reference, *request.reference_missing])
    io.staging.refuse_inputs(places, (*references, request.input_uncertainty))
    if plan.band_mask is not None:
        _check_band_mask(plan.band_mask, plan.output, overwrite)
        masks = (request.observed, request.missing, request.quality)
        inputs = (plan.input, cube.path, *masks, *references)
        io.staging.refuse_inputs([plan.band_mask], inputs)
    if kind in io.PRODUCTS and kind != cube.format:
        raise BadValue(
            f"{name} would be a product ({kind}), which is only written as a copy of another one; "
            f"name it {name.stem}.tif, .img or .zarr"
        )


def _refuse_inside(source: Path, output: Path) -> None:
    """Refuse an output in the folder of a product or a store, which it would change."""
    if source.is_dir() and source.resolve() in output.resolve().parents:
        raise OutputError(
            f"{output} lies inside the input {source}, which counts as one file and stays as it "
            f"is; name an output beside it, such as {source.parent / output.name}"
        )


def _places(cube: Cube, output: Path) -> list[Path]:
    """Return the paths of the output and of the files that belong to it, such as its header."""
    names, kind = (output, io.values_path(cube, output)), io.format_for(cube, output)
    return list(dict.fromkeys([*names, *(p for n in names for p in io.staging.partners(n, kind))]))


def _check_folder(output: Path) -> None:
    if not output.parent.is_dir():
        raise OutputError(f"{output.parent} is not a folder; create it first")


def _check_band_mask(path: Path, output: Path, overwrite: bool) -> None:
    """Raise an error if the mask of filled entries cannot be written there."""
    if path.suffix.lower() != ".nc":
        raise UnknownName("suffix of `band_mask=`", path.suffix, [".nc"], "; it is a netCDF file")
    if path.resolve() == output.resolve():
        raise OutputError(f"{path} is the output already; give `band_mask=` another name")
    _check_folder(path)
    io.staging.refuse_existing(path, overwrite)


def _refuse_by_tiles(request: Request, band_mask: Path | None) -> None:
    """Raise BadValue for options that need the whole cube in memory."""
    unsupported = {
        "`detect=True`": request.detect,
        "`denoise=True`": request.denoise,
        "`band_mask=`": band_mask,
    }
    if options := [option for option, on in unsupported.items() if on]:
        raise BadValue(
            f"{', '.join(options)}: needs the whole cube in memory, and this one is filled by "
            "tiles; leave it out, or give more `memory=` (for `detect=True`: "
            "`hydiff mask IN -o M.npz` elsewhere, then `missing='M.npz'`)"
        )


def _refuse_whole_format(cube: Cube, output: Path) -> None:
    """Raise BadValue for an output format that cannot be written block by block."""
    whole = io.format_for(cube, output) in WHOLE_FORMATS
    if whole and not io.npz.written_by_blocks(cube.path, output):
        bare = cube.path is not None and cube.path.suffix.lower() == ".npy"
        raise BadValue(
            f"{output.suffix} files are written from memory as a whole, and this scene is filled "
            "by tiles: name the output .zarr, .tif or .img"
            + ", or .npy, as the input, with `unmarked=True`"
            * bare
        )


def _mask(cube: Cube, request: Request, say: Say) -> tuple[Bools | None, Array | None]:
    """Return the mask from mask files and quality layers, and why its entries are missing.

    The mask is True = measured; the reasons are bits of `flags.REASONS` in its shape.  Both are
    None if the request names no mask and no quality layer.
    """
    mask = io.given_mask(cube, request.observed, request.missing, say)
    layer = io.quality_layer(cube, request.quality, request.flags)
    if layer is None:
        return mask, None if mask is None else np.where(mask, 0, MASK).astype(np.uint8)
    counts = ", ".join(f"{flag} {count:,}" for flag, count in layer.counts.items())
    say(f"taken as missing by {request.quality}: {counts} entries")
    if mask is None:
        return layer.observed, layer.why
    return layer.observed & mask, layer.why | np.where(mask, 0, MASK).astype(np.uint8)


def _announce(input: Path, plan: api.CubePlan, say: Say) -> None:
    """Report how many missing entries will be filled, and by which method.

    Reasons for leaving entries missing are reported at the end, together with the entries that the
    method could not fill.
    """
    request, missing = plan.request, 100 * float((~plan.observed).mean())
    say(f"{input}: {_size(plan.cube)}, {missing:.1f} % of the entries missing")
    used = {k: v for k, v in request.settings_used.items() if v is not None}  # None: from the scene
    settings = ", ".join(f"{k}={v}" for k, v in used.items())
    settings = settings if request.recipe is None else "as decided before"
    method = f"{request.method} ({settings})" if settings else str(request.method)
    count = f"{int(plan.target.sum()):,} of {int((~plan.observed).sum()):,} missing entries"
    say(f"will fill {count} with {method}")


def _size(cube: Cube) -> str:
    """Return the shape and dtype of a cube as text."""
    return f"{cube.shape[0]} bands × {cube.shape[1]} × {cube.shape[2]} {cube.dtype}"
