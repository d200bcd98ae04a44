"""Write a fill and its companion files, which say what was filled, how well, and how.

OUT                 the cube, in its own format
OUT.flags.*         how each entry was filled, and OUT.why.* why it was missing; see `fill_layers`
OUT.sigma.*         standard uncertainty of every filled entry, where the method gives one
OUT.fill.json       command, settings, seed, versions, input hash, counts before and after
OUT.samples.zarr    samples of the filled cube, or .nc, or numbered files: `io.sample_files`
OUT.report.html     all of this as a page for people, on request; see `hydiff.report`
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Cube, Values
from hydiff.errors import BadValue, HydiffError
from hydiff.flags import FILLED, REASONS, counted
from hydiff.io import fill_layers, sample_files, typed
from hydiff.io.regular import exists, is_there
from hydiff.io.threads import at_once
from hydiff.io.versions import versions
from hydiff.mark import EARLIER, Mark, bounded, layers_over, now
from hydiff.maths.scoring import Verification, verification
from hydiff.metrics import NORMAL_QUANTILES, Calibration, calibration, errors_and_bars
from hydiff.result import Result

HASHED = 1 << 20  # bytes of a file that are read and hashed at a time


def record_path(path: Path) -> Path:
    """Path of the record of a fill."""
    return path.with_name(path.name + ".fill.json")


def report_path(path: Path) -> Path:
    """Path of the page that `hydiff report` writes about a fill."""
    return path.with_name(path.name + ".report.html")


NOTES = (record_path, report_path)


def beside(path: Path) -> list[Path]:
    """Return the companion files that a fill may have; they are replaced or removed with it."""
    earlier = [p for header in _headers(path) for p in _described(header)]
    earlier = [p for p in earlier if exists(p)]
    return [*_described(path), *earlier, *sample_files.existing(path)]


def stale(path: Path, source: Path) -> list[Path]:
    """Return the companions of an earlier fill at `path`, which say nothing about what replaces it:
    another cube, made from the file `source`."""
    return [] if io.staging.same(path, source) else [p for p in beside(path) if exists(p)]


def _described(path: Path) -> list[Path]:
    """Return the companions that a fill at this path may have; not all of them need to exist."""
    return [*fill_layers.possible(path), *(name(path) for name in NOTES)]


def base_of(path: Path) -> Path:
    """Return the path that the names of a fill's companions begin with: that of its values, or,
    for fills of earlier versions whose output was named by its ENVI header, that of the header."""
    names = (path, *_headers(path))
    return next((p for p in names if any(exists(companion) for companion in _described(p))), path)


def _headers(path: Path) -> list[Path]:
    """Return the header names to try if a path may be an ENVI data file, else []."""
    return io.envi.header_names(path) if path.suffix.lower() in io.envi.DATA_SUFFIXES else []


def companions(
    path: Path, shape: tuple[int, int, int], mark: Mark | None = None
) -> dict[str, Array]:
    """Return the layers of a fill of this shape (bands, rows, cols) by name, with `filled` added.

    The dictionary is empty if the fill has none.  mark: that of the cube, if it was read already.
    """
    layers = fill_layers.collected(fill_layers.planes(base_of(path), shape, mark), shape)
    return {"filled": layers["flags"] & FILLED, **layers} if layers else {}


def checkpoint_path(path: Path) -> Path:
    """Path at which a running fill keeps its state; removed when the fill is done."""
    return path.with_name(path.name + ".checkpoint")


def tiles_path(path: Path) -> Path:
    """Path at which a fill by tiles keeps the finished tiles; removed when the fill is done."""
    return path.with_name(path.name + ".tiles")


# function from the path of the fill to that of a companion -> function that writes the companion
Writers = Mapping[Callable[[Path], Path], Callable[[Path], Any]]


def save(
    result: Result,
    path: str | Path,
    *,
    command: Sequence[str] = (),
    overwrite: bool = False,
    unmarked: bool = False,
    compact: bool = False,
) -> list[Path]:
    """Write a result and its companions, all or nothing; return the paths, the cube first.

    unmarked: allow a file that cannot record that it is filled (.npy).
    compact: write the companions as small .npz files, whatever the format of the cube.
    """
    path, hashes = (
        io.values_path(result.cube, io.staging.output_file(path)),
        hashes_of(result.cube.path),
    )
    if result.cube.mark is not None:
        io.refuse_unmarked(result.cube, path, unmarked)
    content = record(result, command, hashes)
    options: dict[str, Any] = {"overwrite": overwrite, "compact": compact}
    return write_result(result, path, content, hashes, **options)


def write_result(
    result: Result,
    path: Path,
    record: Mapping[str, Any],
    hashes: Hashes,
    *,
    overwrite: bool,
    compact: bool = False,
    before: Cube | None = None,
    samples: Writers | None = None,
) -> list[Path]:
    """Write a result as `save` does, with a record that exists already.

    hashes: of the input's files, from before it was read.  before: the input as it was read then.
    samples: writers of the samples of the fill.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "compact": compact, "before": before}
    options |= {"hashes": hashes, "samples": samples}
    return write_together(marked(result, record), path, record, result.layers, **options)


def write_together(
    cube: Cube,
    path: Path,
    record: Mapping[str, Any],
    layers: Mapping[str, Values],
    *,
    overwrite: bool,
    compact: bool = False,
    hashes: Hashes | None = None,
    times: Times | None = None,
    before: Cube | None = None,
    samples: Writers | None = None,
    most: int | None = None,
) -> list[Path]:
    """Write a cube, its companions and record, all or nothing; return the paths, the cube first.

    layers: the layers of this fill, by name.
    hashes: of the input's files, from before it was read; BadValue if they have changed since.
    times: the same; with them, the files are hashed again only if the times have changed.
    before: the input as it was read then.  samples: writers of the samples of the fill.
    most: number of files to write at a time, if memory is short; None is no limit.
    """
    note, source, kind = typed.dumps(record), cube.path, io.format_for(cube, path)
    cube, layers = _with_earlier(cube, layers)
    if compact and cube.mark is not None:  # only the flags go into the file of the cube
        flags = {name: layer for name, layer in cube.mark.layers.items() if name == "flags"}
        cube = replace(cube, mark=replace(cube.mark, layers=flags))
    with io.staged(path, overwrite=overwrite, beside=beside(path), source=source) as folder:
        place = folder / path.name
        writers = fill_layers.writers(layers, cube, place, kind, compact)
        try:
            with io.staging.flushing(folder):
                paths = at_once(lambda: io.write_into(cube, place, before), *writers, most=most)
        except (HydiffError, OSError):
            if hashes is not None:  # the cause may be that the input has changed
                check_unchanged(source, hashes, times)
            raise
        files = [*chain.from_iterable(paths)]
        for name, write in (samples or {}).items():
            write(name(place))
            files.append(name(place))
        record_path(place).write_text(note)
        if hashes is not None:
            check_unchanged(source, hashes, times)
    return [*(path.with_name(file.name) for file in files), record_path(path)]


def _with_earlier(cube: Cube, layers: Mapping[str, Values]) -> tuple[Cube, Mapping[str, Values]]:
    """Return a cube and the layers of its fill, with those of earlier fills of its source added."""
    mark, path = cube.mark, cube.path
    if mark is None or path is None or not (EARLIER in mark.record or not layers):
        return cube, layers
    layers = layers_over(mark.layers or layers, fill_layers.beside(base_of(path), cube.shape))
    return replace(cube, mark=replace(mark, layers=layers)), layers


def intervals_of(path: Path) -> Sequence[float]:
    """Return the half-widths of a fill's 50, 80 and 95 % intervals, in σ, from its record.

    They are those of a Gaussian if there is no record, or no recipe of `auto` in it.
    """
    from hydiff.io.record import read

    path = record_path(base_of(path))
    if not is_there(path):
        return NORMAL_QUANTILES
    recipe = read(path).recipe
    return NORMAL_QUANTILES if recipe is None else recipe.errors.intervals


def read_record(path: Path) -> dict[str, Any]:
    """Return the record beside a fill; {} if there is none or it is damaged."""
    try:
        record = typed.load(record_path(path))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def calibrated(
    path: Path, values: Array, truth: Array, mark: Mark | None = None
) -> tuple[Calibration, Verification | None] | None:
    """Compare the error bars of a fill with its errors against the truth; None without error bars.

    values, truth: (bands, rows, cols) of the fill and of the truth, in the file's unit.
    mark: that of the filled cube, if it was read already.
    """
    sigma = companions(path, values.shape, mark).get("sigma")
    if sigma is None:
        return None
    widths = intervals_of(path)
    error, std = errors_and_bars(values, truth, sigma)
    noise = np.asarray(read_record(base_of(path)).get("sigma_y", 0.0), np.float64)
    by_entry = None
    if noise.any():
        combined = np.where(np.asarray(sigma) > 0, np.hypot(sigma, noise.reshape(-1, 1, 1)), np.nan)
        added = errors_and_bars(values, truth, combined)[1] ** 2 - std**2
        by_entry = np.sqrt(np.maximum(added, 0.0))
    return calibration(values, truth, sigma, widths), verification(error, std, widths, by_entry)


Hashes = Mapping[Path, str]  # SHA-256 of an input and of the files read with it, the input first
Times = Mapping[Path, tuple[int, int, int]]  # inode, size and time of change of files


def hashes_of(source: Path | None, over: Event | None = None) -> Hashes:
    """Return the hashes of the files that a cube is read from; BadValue if the input is gone.

    over: as for `sha256`.
    """
    return {path: sha256(path, over) for path in _files_of(source)}


def times_of(source: Path | None) -> Times:
    """Return inode, size and time of change of the files that a cube is read from."""
    files = _files_of(source)
    paths = [*files, *(p for path in files if path.is_dir() for p in path.rglob("*"))]
    states = ((path, path.stat()) for path in paths)
    return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states}


def _files_of(source: Path | None) -> list[Path]:
    """Return the files that a cube is read from, the input first; BadValue if it is gone."""
    if source is None:
        return []
    if not exists(source):
        raise BadValue(f"{source}: the input is gone, and nothing was written; put it back")
    return io.staging.read_with(source)


class InputChanged(BadValue):
    """The input changed while it was filled, so that what was made of it is of no use."""


def check_unchanged(source: Path | None, hashes: Hashes, times: Times | None = None) -> None:
    """Raise InputChanged if the input's files no longer have these hashes.

    times: files that still have these are taken as unchanged; reading them again takes long.
    """
    if times is not None and times_of(source) == times:
        return
    if hashes_of(source) != hashes:
        raise InputChanged(
            f"{source}: the input changed while it was filled, and nothing was written; "
            "fill again when it is complete"
        )


def input_of(hashes: Hashes) -> dict[str, str] | None:
    """Return the path and hash of the input for a record; None if there is no file."""
    return next(({"path": str(path), "sha256": digest} for path, digest in hashes.items()), None)


def record(
    result: Result,
    command: Sequence[str] = (),
    hashes: Hashes | None = None,
    request: str | None = None,
) -> dict[str, Any]:
    """Return the record of a result: how it was made and how to repeat it, as JSON-able data."""
    return dated(
        command,
        input_of(hashes_of(result.cube.path) if hashes is None else hashes),
        {
            **({} if request is None else {"request": request}),
            "method": result.method,
            "settings": result.settings,
            "seed": result.seed,
            "sigma_y": one_or_all(result.sigma_y),
            "entries": counts(result.cube.shape, int(result.filled.sum()), result.left),
            "expected": None if result.expected is None else dict(result.expected),
            **of_each_kind(result.expected_by_kind),
            "recipe": result.recipe,
            "flags": counted(result.flags),
            "reasons": counted(result.why, REASONS),
            "budget": result.budget,
            **({"references": result.references} if result.references else {}),
            "beyond_observed": dict(result.beyond),
            "notes": result.notes,
            "seconds": round(result.seconds, 3),
        },
    )


def of_each_kind(by_kind: Mapping[str, Mapping[str, float]] | None) -> dict[str, Any]:
    """Return the expected scores by kind of gap as an entry of a record; {} for a single kind."""
    if by_kind is None or len(by_kind) < 2:
        return {}
    return {"expected_by_kind": {kind: dict(scores) for kind, scores in by_kind.items()}}


def marked(result: Result, record: Mapping[str, Any]) -> Cube:
    """Return the filled cube with the record of this fill in its mark."""
    mark = result.cube.mark
    if mark is None or not (result.filled.any() or mark.denoised):
        return result.cube
    earlier = {k: v for k, v in mark.record.items() if k == EARLIER}
    full = replace(mark, time=record["time"], record={**bounded(record), **earlier})
    return replace(result.cube, mark=full)


def dated(
    command: Sequence[str], source: Mapping[str, str] | None, content: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a record: its content with command, time, input (path and hash) and versions added."""
    return {
        "command": list(command),
        "time": now(),
        "input": source,
        **content,
        "versions": versions("numpy", "scipy", "torch"),
    }


def counts(shape: tuple[int, ...], filled: int, left: Mapping[str, int]) -> dict[str, Any]:
    """Count the entries: all, missing before, filled, and still missing with the reasons."""
    return {
        "all": int(np.prod(shape)),
        "missing_before": filled + sum(left.values()),
        "filled": filled,
        "missing_after": sum(left.values()),
        "left": dict(left),
    }


def one_or_all(values: Array) -> float | list[float]:
    """Return one number if all values are equal, else the list of them."""
    return float(values[0]) if (values == values[0]).all() else [float(v) for v in values]


def sha256(path: Path, over: Event | None = None) -> str:
    """Return the SHA-256 of a file as `sha256sum` prints it; for a folder, of the list of these.

    over: when it is set, another thread does not need the hash any more: CancelledError.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        lines = (f"{sha256(p, over)}  {p.relative_to(path).as_posix()}\n" for p in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while part := file.read(HASHED):
            digest.update(part)
            if over is not None and over.is_set():
                raise CancelledError
    return digest.hexdigest()
