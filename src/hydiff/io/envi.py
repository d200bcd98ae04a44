"""ENVI: raw values (bsq, bil or bip) with a text header beside them.

This module pairs data files with headers and maps the values from disk; the header itself is read
and written by `envi_header`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube, Lazy
from hydiff.errors import CubeFormatError
from hydiff.io import envi_header
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.envi_header import CODES, ORDER, Layout, describe, layout_of, parse
from hydiff.io.headers import canonical
from hydiff.io.marks import always, into_header
from hydiff.io.parsing import check_dtype, native, parsing
from hydiff.io.threads import in_threads

SUFFIXES = (".hdr", ".img", ".bsq", ".bil", ".bip", ".dat", ".envi")
keeps_mark = always
DATA_SUFFIXES = ("", ".img", ".bsq", ".bil", ".bip", ".dat", ".raw", ".envi", ".bin")


def matches(path: Path) -> bool:
    """Return whether a file is an ENVI header, or has one beside it."""
    return any(_starts_envi(p) for p in (path, *header_names(path)))


def read(path: Path, var: str | None = None) -> Cube:
    """Open an ENVI cube by its header or its data file; values stay on disk, mapped read-only."""
    data, header_path = _pair(path)
    header = parse(header_path)
    layout = layout_of(header, header_path)
    _check_size(data, header_path, layout)
    with parsing(data, "ENVI values"):
        values = _values(data, layout, "r")
    cube = describe(header, header_path, values)
    if lines := envi_header.comments(header_path):
        cube = replace(cube, attrs={**cube.attrs, "envi": {envi_header.COMMENTS: lines}})
    return replace(cube, path=data)


def header_cube(header: Path) -> Cube:
    """Return a cube of zeros with the metadata of a header beside a file of another format."""
    # the layout of the values is taken from that file: HySpex headers say `interleave = tif`
    entries = {key: text for key, text in parse(header).items() if key.lower() != "interleave"}
    layout = layout_of({**entries, "interleave": "bsq"}, header)
    with parsing(header, "an ENVI header of an image", "correct its samples, lines and bands"):
        zeros = np.broadcast_to(np.zeros((), layout.dtype), layout.shape)
    return describe(entries, header, zeros)


def write(cube: Cube, path: Path) -> list[Path]:
    """Write values and header from scratch.

    The interleave is that of the suffix, else that of the source, else bsq.  For `NAME.hdr` the
    values go to `NAME` with the suffix of the source, else `NAME.img`.
    """
    check_dtype(cube.dtype, tuple(CODES), "ENVI")
    data = data_name(cube, path)
    attrs = {canonical(key): value for key, value in cube.attrs.items()}
    interleave = _interleave_of(data) or str(attrs.get("interleave", "bsq")).lower()
    interleave = interleave if interleave in ORDER else "bsq"
    big_endian = str(attrs.get("byte order", "0")) == "1"
    dtype = native(cube.dtype).newbyteorder(">" if big_endian else "<")
    header = data.with_suffix(".hdr") if data.suffix in DATA_SUFFIXES else _appended(data)
    _dump(cube, data, dtype, interleave)
    entries = envi_header.compose(cube, dtype, interleave)
    envi_header.write_header(header, entries, envi_header.comments_in(cube.attrs))
    into_header(header, cube.mark)
    return [data, header]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy both files of `source` with the changed entries replaced.

    If the suffix of `path` means another interleave, both files are written from scratch.
    """
    source, source_header = _pair(source)
    layout = layout_of(parse(source_header), source_header)
    data = data_name(replace(cube, path=source, format="envi"), path)
    if _interleave_of(data) not in (None, layout.interleave):
        return write(cube, path)
    appended = source_header.name == source.name + ".hdr"
    header = _appended(data) if appended else data.with_suffix(".hdr")
    shutil.copyfile(source_header, header)
    envi_header.declare(header, cube)
    into_header(header, cube.mark)
    order = ORDER[layout.interleave]

    def stored(block: Block) -> Array:
        """Return a block in the order of the file; entries that did not change keep their bytes."""
        new = np.asarray(cube.values[block])
        # mapped for each block: pages that stay mapped count as memory
        values = np.array(_values(source, layout, "r")[block])
        changed = differs(values, new)
        values[changed] = new[changed]
        return np.ascontiguousarray(values.transpose(order))

    with source.open("rb") as reader, data.open("wb") as writer:
        writer.write(reader.read(layout.offset))
        for part in in_threads(stored, blocks(layout.shape, layout.dtype.itemsize, axis=order[0])):
            writer.write(part.data)
    return [data, header]


# --- data file and header ------------------------------------------------------------------------


def _starts_envi(path: Path) -> bool:
    """Return whether a file begins as an ENVI header does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"ENVI"


def _appended(path: Path) -> Path:
    """Return the header name that keeps the suffix of the data file: x.bsq.hdr for x.bsq."""
    return path.with_name(path.name + ".hdr")


def header_names(data: Path) -> list[Path]:
    """Return the header names to try: `x.hdr` before `x.bsq.hdr`, as GDAL does; then `.HDR`."""
    small = [data.with_suffix(".hdr"), _appended(data)]
    return list(dict.fromkeys([*small, *(p.with_suffix(".HDR") for p in small)]))


def _pair(path: Path) -> tuple[Path, Path]:
    """Return the data file and its header, given either of them."""
    if path.suffix.lower() == ".hdr" or (_starts_envi(path) and not _has_header(path)):
        return _data_of(path), path
    for header in header_names(path):
        if header.is_file():
            return path, header
    names = " nor ".join(p.name for p in header_names(path)[:2])
    raise CubeFormatError(
        f"{path}: expected an ENVI header beside it, found neither {names}; "
        "put the header there, or open a file of another format"
    )


def _has_header(path: Path) -> bool:
    return any(p.is_file() for p in header_names(path))


def _data_of(header: Path) -> Path:
    """Return the data file of a header; of several, the first of the right size, else the first."""
    stem = header.with_suffix("")
    suffixes = [*DATA_SUFFIXES, *[s.upper() for s in DATA_SUFFIXES]]
    names = dict.fromkeys(stem.with_name(stem.name + suffix) for suffix in suffixes)
    candidates = [p for p in names if p.is_file() and p != header]
    if len(candidates) > 1:  # without those that have a header of their own
        candidates = [p for p in candidates if _appended(p) == header or not _appended(p).is_file()]
    if not candidates:
        raise CubeFormatError(
            f"{header}: the data file of this ENVI header is missing; expected {stem.name} "
            f"or {stem.name} with one of {' '.join(DATA_SUFFIXES[1:])}"
        )
    if len(candidates) == 1:
        return candidates[0]
    layout = layout_of(parse(header), header)
    fitting = [p for p in candidates if p.stat().st_size == layout.nbytes]
    named = [p for p in fitting if _interleave_of(p) == layout.interleave]
    return next(iter((*named, *fitting, *candidates)))


def data_name(cube: Cube, path: Path) -> Path:
    """Return the data file to write for `path`, which may be the path of the header."""
    if path.suffix.lower() != ".hdr":
        return path
    if path.with_suffix("").suffix in SUFFIXES:  # x.bsq.hdr
        return path.with_suffix("")
    suffix = cube.path.suffix if cube.format == "envi" and cube.path is not None else ".img"
    return path.with_suffix(suffix)


def _interleave_of(data: Path) -> str | None:
    """Return the interleave that the suffix of a data file names; None if it names none."""
    return data.suffix[1:].lower() if data.suffix[1:].lower() in ORDER else None


# --- values ---------------------------------------------------------------------------------------


def _check_size(data: Path, header: Path, layout: Layout) -> None:
    """Refuse a data file that is missing or has another size than its header states."""
    if not data.is_file():
        raise CubeFormatError(f"{data}: no such file, but {header} describes it")
    size, expected = data.stat().st_size, layout.nbytes
    if size != expected:
        bands, rows, cols = layout.shape
        verdict = "is truncated" if size < expected else "holds more than its header says"
        raise CubeFormatError(
            f"{data}: {verdict}: {size} bytes, but {header.name} says {expected} "
            f"({bands} bands x {rows} lines x {cols} samples x {layout.dtype.itemsize} bytes "
            f"+ offset {layout.offset}); correct the header or fetch the file again"
        )


def plain_windows(cube: Cube) -> Cube:
    """Return an ENVI cube whose windows are read from the file instead of mapped.

    Mapped pages count as memory, and the kernel maps far more of a large file than a window needs.
    """
    data, header = _pair(cube.path or Path())
    layout = layout_of(parse(header), header)
    read = partial(_read_block, data, layout)
    return replace(cube, values=Lazy(layout.shape, layout.dtype, read))


def _read_block(data: Path, layout: Layout, *block: slice) -> Array:
    """Read a block (bands, rows, cols): one run of the file for each index of its slowest axis."""
    order = ORDER[layout.interleave]
    first, second, third = (block[axis] for axis in order)
    _, n, width = layout.file_shape
    out = np.empty([s.stop - s.start for s in (first, second, third)], layout.dtype)
    with data.open("rb") as file:
        for i in range(first.start, first.stop):
            entries = (i * n + second.start) * width
            file.seek(layout.offset + entries * layout.dtype.itemsize)
            run = np.fromfile(file, layout.dtype, (second.stop - second.start) * width)
            out[i - first.start] = run.reshape(-1, width)[:, third]
    return out.transpose(np.argsort(order))


def _values(data: Path, layout: Layout, mode: Any) -> Array:
    """Values (bands, rows, cols), mapped from disk."""
    stored = np.memmap(data, layout.dtype, mode, layout.offset, layout.file_shape)
    return stored.transpose(np.argsort(ORDER[layout.interleave]))


def _dump(cube: Cube, path: Path, dtype: np.dtype[Any], interleave: str) -> None:
    """Write the values in file order, unmapped: a mapped file on a full disk ends the process."""
    order = ORDER[interleave]
    with path.open("wb") as file:
        for block in blocks(cube.shape, dtype.itemsize, axis=order[0]):
            part = np.asarray(cube.values[block]).transpose(order)
            file.write(np.ascontiguousarray(part, dtype).data)
