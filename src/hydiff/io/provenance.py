"""Write a fill with its companions: which entries were filled, how sure it is, how it came about.

OUT                 the cube, in its own format
OUT.filled.npz      True where an entry was filled, packed along the bands
OUT.sigma.npz       1-σ error of every filled entry, where the method gives one
OUT.fill.json       command, settings, seed, versions, input hash, counts before and after
OUT.samples.zarr    samples of the filled cube, or numbered files; see `io.sample_files`
OUT.report.html     all of this for a person, where it was asked for; see `hydiff.report`
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue, HydiffError, ShapeMismatch
from hydiff.io import sample_files, typed
from hydiff.io.parsing import parsing
from hydiff.io.regular import exists, is_there
from hydiff.io.versions import versions
from hydiff.mark import EARLIER, bounded, now
from hydiff.maths.scoring import Verification, verification
from hydiff.metrics import NORMAL_QUANTILES, Calibration, calibration, errors_and_bars
from hydiff.result import Result


def filled_mask_path(path: Path) -> Path:
    return path.with_name(path.name + ".filled.npz")


def sigma_path(path: Path) -> Path:
    return path.with_name(path.name + ".sigma.npz")


def record_path(path: Path) -> Path:
    return path.with_name(path.name + ".fill.json")


def report_path(path: Path) -> Path:
    """Where `hydiff report` puts the page about a fill."""
    return path.with_name(path.name + ".report.html")


COMPANIONS = (filled_mask_path, sigma_path, record_path, report_path)


def beside(path: Path) -> list[Path]:
    """All that may lie beside a fill and describe it: to be replaced with it, or to go."""
    earlier = [name(header) for header in _headers(path) for name in COMPANIONS]
    earlier = [p for p in earlier if exists(p)]
    return [*(name(path) for name in COMPANIONS), *earlier, *sample_files.existing(path)]


def base_of(path: Path) -> Path:
    """What the names of a fill's companions begin with: the file of its values; earlier versions
    took the ENVI header where that was named as the output."""
    names = (path, *_headers(path))
    return next((p for p in names if any(exists(name(p)) for name in COMPANIONS)), path)


def _headers(path: Path) -> list[Path]:
    return io.envi.header_names(path) if path.suffix.lower() in io.envi.DATA_SUFFIXES else []


def companions(path: Path, shape: tuple[int, int, int]) -> dict[str, Array]:
    """What lies beside a fill and has its shape (bands, rows, cols), by name."""
    path = base_of(path)
    layers: dict[str, Array] = {}
    if filled_mask_path(path).is_file():
        observed = io.read_mask(filled_mask_path(path), "missing", shape)
        filled = np.broadcast_to(~observed, shape)
        layers["filled"] = filled.astype(np.uint8)
        if sigma_path(path).is_file():
            layers["sigma"] = read_sigma(sigma_path(path), filled).astype(np.float32)
    return layers


def checkpoint_path(path: Path) -> Path:
    """Where a running fill keeps its state; it is gone when the fill is done."""
    return path.with_name(path.name + ".checkpoint")


def tiles_path(path: Path) -> Path:
    """Where a fill by tiles keeps those that are done; it is gone when the fill is."""
    return path.with_name(path.name + ".tiles")


def save(
    result: Result,
    path: str | Path,
    *,
    command: Sequence[str] = (),
    overwrite: bool = False,
    unmarked: bool = False,
) -> list[Path]:
    """Write a result and its companions, all or nothing; returns the paths, the cube first.

    unmarked: allow a file that cannot say that it is filled (.npy).
    """
    path, hashes = io.values_path(result.cube, Path(path)), hashes_of(result.cube.path)
    if result.cube.mark is not None:
        io.refuse_unmarked(result.cube, path, unmarked)
    content = record(result, command, hashes)
    return write_result(result, path, content, hashes, overwrite=overwrite)


def write_result(
    result: Result,
    path: Path,
    record: Mapping[str, Any],
    hashes: Hashes,
    *,
    overwrite: bool,
    before: Cube | None = None,
    samples: Writers | None = None,
) -> list[Path]:
    """`save` with a record, and the hashes of the input's files before it was read.

    before: the input as it was read then.  samples: what writes those of the fill beside it.
    """
    sigma, filled = result.sigma, result.filled
    writers: Writers = {filled_mask_path: partial(io.masks.write, filled, meaning="missing")}
    if sigma is not None:
        writers = {sigma_path: partial(write_sigma, sigma, filled), **writers}
    writers = {**writers, **(samples or {})}
    cube = marked(result, record)
    return write_together(
        cube, path, record, writers, hashes=hashes, overwrite=overwrite, before=before
    )


Writers = Mapping[Callable[[Path], Path], Callable[[Path], Any]]  # a companion's name → its writer


def write_together(
    cube: Cube,
    path: Path,
    record: Mapping[str, Any],
    writers: Writers,
    *,
    overwrite: bool,
    hashes: Hashes | None = None,
    before: Cube | None = None,
) -> list[Path]:
    """A cube, its companions and its record, all or nothing; the paths, the cube first.

    hashes: of the input's files before it was read; refused if they are others now.
    before: the input as it was read then.
    """
    note, source = typed.dumps(record), cube.path
    with io.staged(path, overwrite=overwrite, beside=beside(path), source=source) as folder:
        place = folder / path.name
        try:
            made = io.write_into(cube, place, before)
        except (HydiffError, OSError):
            if hashes is not None:  # what is amiss may be that the input is another one
                check_unchanged(source, hashes)
            raise
        for name, write in writers.items():
            write(name(place))
        record_path(place).write_text(note)
        if hashes is not None:
            check_unchanged(source, hashes)
    cubes = [path.with_name(file.name) for file in made]
    return [*cubes, *(name(path) for name in writers), record_path(path)]


def write_sigma(sigma: Array, filled: Bools, path: Path) -> None:
    """The error bars of the filled entries alone: float16, each band in units of its largest."""
    write_bars(zip(sigma, filled, strict=True), int(filled.sum()), len(filled), path)


def write_bars(planes: Iterable[tuple[Array, Bools]], count: int, bands: int, path: Path) -> None:
    """`write_sigma` a band at a time: its error bars and its filled pixels, both (rows, cols).

    NaN stays NaN: that entry was filled, and how far off it may be is not known.
    """
    unit = np.zeros(bands)

    def shares() -> Iterator[Array]:
        for band, (sigma, filled) in enumerate(planes):
            values = sigma[filled]
            unit[band] = values[np.isfinite(values)].max(initial=0.0)
            yield values / unit[band] if unit[band] > 0 else values

    # the units are known, and written, when the shares are
    share = io.npz.Stream((count,), np.dtype(np.float16), shares())
    io.npz.save_archive(path, {"share": share, "unit": unit})


def read_sigma(path: Path, filled: Bools) -> Array:
    """(bands, rows, cols) error bars in the cube's unit, NaN where nothing was filled."""
    with parsing(path, "the error bars of a fill", "fill again"):
        io.npz.members(path)  # before memory is taken for them
        with np.load(path, allow_pickle=False) as arrays:
            share, unit = (arrays[k].astype(np.float64) for k in ("share", "unit"))
        check_sizes(share)
        check_sizes(unit)
    if share.shape != (filled.sum(),) or unit.shape != (len(filled),):
        raise ShapeMismatch(
            f"{path} holds {share.size} error bars, but {int(filled.sum())} entries were filled; "
            "expected the two companions of one fill"
        )
    sigma = np.full(filled.shape, np.nan)
    sigma[filled] = share
    bars: Array = sigma * unit[:, None, None]
    return bars


def check_sizes(values: Array) -> None:
    """ValueError where error bars are no sizes; NaN is one that is not known."""
    if np.isinf(values).any() or (values < 0).any():
        raise ValueError("error bars are numbers of 0 or more")


def intervals_of(path: Path) -> Sequence[float]:
    """How wide the 50, 80 and 95 % intervals of a fill are, in σ, as its record says.

    Those of Gaussians where there is no record, or none of `auto`.
    """
    from hydiff.io.record import read

    path = record_path(base_of(path))
    if not is_there(path):
        return NORMAL_QUANTILES
    recipe = read(path).recipe
    return NORMAL_QUANTILES if recipe is None else recipe.errors.intervals


def read_record(path: Path) -> dict[str, Any]:
    """The record beside a fill; {} where there is none, or none that is sound."""
    try:
        record = typed.load(record_path(path))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def calibrated(
    path: Path, values: Array, truth: Array
) -> tuple[Calibration, Verification | None] | None:
    """How the error bars beside a fill held against the truth; None where there are none.

    values, truth: (bands, rows, cols) of the fill and of the truth, in the file's unit.
    """
    sigma = companions(path, values.shape).get("sigma")
    if sigma is None:
        return None
    widths = intervals_of(path)
    error, std = errors_and_bars(values, truth, sigma)
    return calibration(values, truth, sigma, widths), verification(error, std, widths)


Hashes = Mapping[Path, str]  # SHA-256 of an input and of what is read with it, the input first


def hashes_of(source: Path | None) -> Hashes:
    """Of the files that a cube is read from; BadValue when its own is gone."""
    if source is None:
        return {}
    if not exists(source):
        raise BadValue(f"{source}: the input is gone, and nothing was written; put it back")
    return {path: sha256(path) for path in io.staging.read_with(source)}


def check_unchanged(source: Path | None, hashes: Hashes) -> None:
    """BadValue if the input is not the one that was read."""
    if hashes_of(source) != hashes:
        raise BadValue(
            f"{source}: the input changed while it was filled, and nothing was written; "
            "fill again when it is complete"
        )


def input_of(hashes: Hashes) -> dict[str, str] | None:
    """Path and hash of the input, as a record has them."""
    return next(({"path": str(path), "sha256": digest} for path, digest in hashes.items()), None)


def record(
    result: Result,
    command: Sequence[str] = (),
    hashes: Hashes | None = None,
    request: str | None = None,
) -> dict[str, Any]:
    """Everything needed to know, and to repeat, how a result came about; JSON-able."""
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
            **({"references": result.references} if result.references else {}),
            "beyond_observed": dict(result.beyond),
            "notes": result.notes,
            "seconds": round(result.seconds, 3),
        },
    )


def of_each_kind(by_kind: Mapping[str, Mapping[str, float]] | None) -> dict[str, Any]:
    """What a record says of each kind of gaps, where there are two."""
    if by_kind is None or len(by_kind) < 2:
        return {}
    return {"expected_by_kind": {kind: dict(scores) for kind, scores in by_kind.items()}}


def marked(result: Result, record: Mapping[str, Any]) -> Cube:
    """The filled cube; its mark says all that the record of this fill does."""
    mark = result.cube.mark
    if mark is None or not (result.filled.any() or mark.denoised):
        return result.cube
    earlier = {k: v for k, v in mark.record.items() if k == EARLIER}
    full = replace(mark, time=record["time"], record={**bounded(record), **earlier})
    return replace(result.cube, mark=full)


def dated(
    command: Sequence[str], source: Mapping[str, str] | None, content: Mapping[str, Any]
) -> dict[str, Any]:
    """What is known of a fill, with its command, time, input (path and hash) and versions."""
    return {
        "command": list(command),
        "time": now(),
        "input": source,
        **content,
        "versions": versions("numpy", "scipy", "torch"),
    }


def counts(shape: tuple[int, ...], filled: int, left: Mapping[str, int]) -> dict[str, Any]:
    """Entries in all, missing before, filled, and left with the reasons."""
    return {
        "all": int(np.prod(shape)),
        "missing_before": filled + sum(left.values()),
        "filled": filled,
        "missing_after": sum(left.values()),
        "left": dict(left),
    }


def one_or_all(values: Array) -> float | list[float]:
    """One number when all are equal."""
    return float(values[0]) if (values == values[0]).all() else [float(v) for v in values]


def sha256(path: Path) -> str:
    """Of the file's bytes, as `sha256sum` prints it; of a folder, that of the list of its files."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        lines = (f"{sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
