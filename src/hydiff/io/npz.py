"""Bare numpy arrays, `.npy` and `.npz`, with their metadata in a JSON sidecar."""

from __future__ import annotations

import math
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Cube, Lazy
from hydiff.errors import CubeFormatError
from hydiff.io import axes as ax
from hydiff.io import sidecar, variables
from hydiff.io.blocks import Block, blocks
from hydiff.io.parsing import check_real, check_room, parsing
from hydiff.io.threads import in_threads
from hydiff.mark import FILLED, LONGEST_RECORD

SUFFIXES = (".npy", ".npz")
ARRAY, ARCHIVE = b"\x93NUMPY", b"PK\x03\x04"
HUFFMAN = zlib.Z_HUFFMAN_ONLY
DEFLATED = 1100  # largest number of bytes that one compressed byte can hold: 1032, and a margin


def matches(path: Path) -> bool:
    """Return whether a file is a .npy file, or a zip archive with such files in it."""
    with path.open("rb") as file:
        start = file.read(6)
    return start == ARRAY or (start[:4] == ARCHIVE and _holds_arrays(path))


def read(path: Path, var: str | None = None, axis: str | None = None) -> Cube:
    """Open a .npy file, mapped from disk, or an array of an .npz, loaded when first indexed."""
    with parsing(path, "a numpy file"):
        return _read_npz(path, var, axis) if is_archive(path) else _read_npy(path, axis)


def write(cube: Cube, path: Path) -> list[Path]:
    """Write the array, in its source's order of axes or (rows, cols, bands), and its sidecar."""
    check_real(cube.dtype, path)
    axes = ax.order_for(cube.attrs, cube.bands)
    stored = np.ascontiguousarray(ax.as_stored(np.asarray(cube.values), axes))
    if path.suffix.lower() == ".npz":
        save_archive(path, {variables.name_of(cube): stored, **_note(cube)})
    else:
        save_array(path, stored)
    return [path, _write_sidecar(cube, axes, path)]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file, with its other arrays and its sidecar, and replace the values of the cube."""
    archive = is_archive(source)
    if path.suffix.lower() in SUFFIXES and archive != (path.suffix.lower() == ".npz"):
        return write(cube, path)
    axes = tuple(cube.attrs["array"]["axes"].split(","))
    if archive:
        _replace_member(source, path, cube, axes)
    else:
        _replace_array(source, path, cube, axes)
    side = sidecar.sidecar_of(source)
    if not side.exists():  # a sidecar of another file at `path` would be wrong
        return [path, _write_sidecar(cube, axes, path)]
    shutil.copyfile(side, sidecar.sidecar_of(path))
    if cube.nodata is not None and sidecar.load(path).get("nodata") is None:
        sidecar.declare(path, cube.nodata)
    if cube.mark is not None:
        sidecar.mark(path, cube.mark)
    return [path, sidecar.sidecar_of(path)]


def plain_windows(cube: Cube) -> Cube:
    """Return a cube of a .npy file that is mapped only while a window is read, since mapped pages
    count as memory; a cube of an .npz is returned as it is."""
    path, axes = cube.path or Path(), tuple(cube.attrs["array"]["axes"].split(","))
    if is_archive(path):
        return cube

    def read(*block: slice) -> Array:
        stored: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return np.array(ax.as_cube(stored, axes)[block])

    return replace(cube, values=Lazy(cube.shape, cube.dtype, read))


def written_by_blocks(source: Path | None, path: Path) -> bool:
    """Return whether `rewrite` needs only one block of values at a time in memory."""
    suffixes = [file.suffix.lower() for file in (source, path) if file is not None]
    return suffixes == [".npy", ".npy"] and source is not None and not is_archive(source)


def keeps_mark(source: Path | None, path: Path) -> bool:
    """Return whether `path` will be an .npz, which has room for more than one array."""
    if path.suffix.lower() in SUFFIXES:
        return path.suffix.lower() == ".npz"
    return source is not None and is_archive(source)


def _note(cube: Cube) -> dict[str, Array]:
    """Return the mark of a filled cube as an array of text (ASCII), by name; {} without a mark."""
    return {} if cube.mark is None else {FILLED: np.array(cube.mark.json.encode())}


def members(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and dtype of every array in an .npz, from their headers alone."""
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as file:
                shape, dtype = _header(file, path)
                _check_size(info, file.tell(), math.prod(shape) * dtype.itemsize, path)
            headers[info.filename.removesuffix(".npy")] = (shape, dtype)
    return headers


def _check_size(info: zipfile.ZipInfo, start: int, nbytes: int, path: Path) -> None:
    """Refuse an array that is longer by its header than its member, before memory is allocated."""
    most = min(info.file_size, info.compress_size * DEFLATED) - start
    if nbytes > most:
        raise CubeFormatError(
            f"{path}: {info.filename} is truncated: its header says {nbytes} bytes, but there is "
            f"room for {max(most, 0)}; fetch or write the file again"
        )
    check_room(nbytes, path, info.filename)


def is_archive(path: Path) -> bool:
    """Return whether a file begins as an .npz does."""
    with path.open("rb") as file:
        return file.read(4) == ARCHIVE


def _holds_arrays(path: Path) -> bool:
    """Return whether a zip archive has .npy files in it; False if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _header(file: Any, path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of a .npy file: shape and dtype of its array."""
    form = np.lib.format
    readers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    if (version := form.read_magic(file)) not in readers:
        raise CubeFormatError(
            f"{path}: numpy format {version}; expected 1.0 or 2.0: save plain arrays again"
        )
    shape, _, dtype = readers[version](file)
    return shape, dtype


def _check_plain(dtype: np.dtype[Any], path: Path) -> None:
    """Refuse a dtype of pickled objects or of values that are not real."""
    if dtype.hasobject:
        raise CubeFormatError(
            f"{path}: holds pickled Python objects, which are not opened because they can run "
            "code; save a plain numeric array instead"
        )
    check_real(dtype, path)


def _read_npy(path: Path, axis: str | None = None) -> Cube:
    """Open a .npy file, mapped from disk."""
    with path.open("rb") as file:
        shape, dtype = _header(file, path)
    _check_plain(dtype, path)
    entries = sidecar.load(path)
    axes, notes = sidecar.axes_of(path, shape, axis, entries)
    stored: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    array = {"axes": ",".join(axes)}
    return sidecar.cube_from(ax.as_cube(stored, axes), entries, path, array, notes)


def _read_npz(path: Path, var: str | None, axis: str | None = None) -> Cube:
    """Open an array of an .npz, which is loaded when it is first indexed."""
    headers = members(path)
    for name in ("missing", "observed"):
        if var is None and headers.keys() == {name, "bands"}:  # see `io.masks`
            raise CubeFormatError(
                f"{path}: a mask of the {name} entries, packed to bits, where a cube is expected; "
                f"give it as `{name}={path}`"
            )
    numeric = {name: shape for name, (shape, dtype) in headers.items() if dtype.kind in "biuf"}
    if var in headers and var not in numeric:
        _check_plain(headers[var][1], path)
    if not numeric and headers:
        _check_plain(next(iter(headers.values()))[1], path)
    name = variables.choose(numeric, var, path)

    @cache
    def load(name: str) -> Array:
        with parsing(path, "a complete .npz"), np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])

    mark = None
    if FILLED in headers:
        _, kind = headers[FILLED]
        short = kind.kind == "S" and kind.itemsize <= 2 * LONGEST_RECORD
        mark = load(FILLED).tobytes()[: kind.itemsize].decode("utf-8", "replace") if short else ""
    metadata = (headers[name][1], sidecar.load(path), mark)
    return sidecar.array_cube(path, name, numeric, *metadata, axis, load)


def _write_sidecar(cube: Cube, axes: ax.Axes, path: Path) -> Path:
    """Write the metadata of a cube to the sidecar of a file; return the sidecar."""
    side = sidecar.sidecar_of(path)
    side.write_text(sidecar.dumps(sidecar.as_json(cube, axes)), encoding="utf-8")
    return side


def _replace_array(source: Path, path: Path, cube: Cube, axes: ax.Axes) -> None:
    """Write the source's header, then the values: computed in threads, written in file order."""
    old = np.load(source, mmap_mode="r", allow_pickle=False)
    along = next(axis for axis in axes if axis in ax.CUBE)
    if along == "cols" or not old.flags.c_contiguous:
        shutil.copyfile(source, path)
        for block in blocks(cube.shape, cube.dtype.itemsize, axis=1):
            values = cube.values[block]
            ax.as_cube(np.lib.format.open_memmap(path, "r+"), axes)[block] = values
        return

    def stored(block: Block) -> Array:
        """Return a block of the cube in the dtype and the order of axes of the source."""
        part = np.asarray(cube.values[block], old.dtype)
        return np.ascontiguousarray(ax.as_stored(part, axes))

    with source.open("rb") as reader, path.open("wb") as writer:
        writer.write(reader.read(old.offset))
        parts = blocks(cube.shape, cube.dtype.itemsize, ax.CUBE.index(along))
        for part in in_threads(stored, parts):
            writer.write(part.data)


def _replace_member(source: Path, path: Path, cube: Cube, axes: ax.Axes) -> None:
    """Write the archive with new values of the cube; every other member stays byte for byte."""
    member, note = cube.attrs["array"]["var"] + ".npy", _note(cube)
    kind = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", kind) as new:
        for name, text in note.items():
            _put_member(new, name, text)
        for info in old.infolist():
            if info.filename.removesuffix(".npy") in note:
                continue
            with old.open(info) as reader, new.open(info, "w", force_zip64=True) as writer:
                if info.filename == member:
                    _write_changed(reader, writer, cube, axes)
                else:
                    shutil.copyfileobj(reader, writer)


def _write_changed(reader: Any, writer: Any, cube: Cube, axes: ax.Axes) -> None:
    """Copy the array that holds the cube, with the cube's values in it."""
    stored = np.lib.format.read_array(reader, allow_pickle=False)
    ax.as_cube(stored, axes)[...] = np.asarray(cube.values)
    np.lib.format.write_array(writer, stored, allow_pickle=False)


def save_array(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        write_array(file, array)


def write_array(file: IO[bytes], array: Array) -> None:
    """Write the bytes that np.save writes; np.save itself does not notice a full disk."""
    array = np.asarray(array, order="C")
    _write_stream(file, Stream(array.shape, array.dtype, [array]))


class Stream(NamedTuple):
    """An array that is written one part at a time, in C order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Iterable[Array]
    repeats: bool = True  # False: its bytes hardly repeat, so do not search for repetitions


def save_archive(
    path: Path, arrays: Mapping[str, Array | Stream], level: int | None = None
) -> None:
    """Write arrays as np.savez_compressed does, but without the date: equal arrays, equal files.

    (np.savez_compressed also cannot write an array called `file`.)  level: of zlib, 1 (fast) to 9.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, array in arrays.items():
            _put_member(archive, name, array)


def _put_member(archive: zipfile.ZipFile, name: str, array: Array | Stream) -> None:
    # the date is 1980, the earliest that a zip can hold
    with archive.open(name + ".npy", "w", force_zip64=True) as member:
        if isinstance(array, Stream):
            if not array.repeats:  # zipfile itself has no choice of a strategy
                coder = zlib.compressobj(method=zlib.DEFLATED, wbits=-15, strategy=HUFFMAN)
                member._compressor = coder  # type: ignore[attr-defined]
            _write_stream(member, array)
        else:
            np.lib.format.write_array(member, array, allow_pickle=False)


class Member(NamedTuple):
    """An array in an .npz, open at its first value, to be read one part at a time in C order."""

    file: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@contextmanager
def open_member(path: Path, name: str) -> Iterator[Member]:
    """Open one array of an archive without loading it: the counterpart of `Stream`."""
    with zipfile.ZipFile(path) as archive, archive.open(name + ".npy") as file:
        yield Member(file, *_header(file, path))


def _write_stream(file: IO[bytes], stream: Stream) -> None:
    """Write an array part by part: the same bytes as if it were written as a whole."""
    descr = np.lib.format.dtype_to_descr(stream.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": stream.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for part in stream.parts:
        file.write(np.ascontiguousarray(part, stream.dtype).data)
