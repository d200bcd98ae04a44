"""Functions shared by the HDF5 products: netCDF4 (EMIT, AVIRIS), HDF-EOS5 (PRISMA) and others.

A cube is one dataset, or several stacked along the bands (one per detector).  Their axes are named
in stored order, as in `hydiff.io.axes`.
"""

from __future__ import annotations

import errno
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hydiff.cube import Array, Cube, Lazy
from hydiff.errors import CubeFormatError
from hydiff.io import axes as ax
from hydiff.io import heaps, marks
from hydiff.io.blocks import Block, chunk_blocks, differs
from hydiff.io.parsing import check_chunk, check_count, check_real, damaged, parsing
from hydiff.mark import FILLED, RECORD, Mark, parsed

SIGNATURE = b"\x89HDF\r\n\x1a\n"


class DatasetPart(NamedTuple):
    """One of the datasets that make up a cube."""

    name: str  # its path in the file
    axes: ax.Axes
    bands: int
    descending: bool = False  # stored from long to short wavelengths, the reverse of the cube


def members(path: Path) -> set[str] | None:
    """Return the names in the root of an HDF5 file.

    None if the file is of another kind, an empty set if it cannot be opened.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            return None
    import h5py

    try:
        with h5py.File(path, "r") as hdf:
            return set(hdf)
    except OSError:  # truncated: reading it will raise the error
        return set()


@contextmanager
def open_file(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading, after checking that it refers to no other file."""
    import h5py

    with h5py.File(path, "r") as file:
        state = path.stat()
        _check_own(path, state.st_mtime_ns, state.st_size)
        yield file


@lru_cache(64)
def _check_own(path: Path, changed: int, size: int) -> None:
    """Refuse links to other files and values that are stored in other files, since whatever is
    there would be read and copied into the output; also refuse heaps on which HDF5 never returns.

    changed, size: modification time and size of the file, for the cache only.
    """
    import h5py

    heaps.check(path)

    def foreign_link(name: bytes, info: Any) -> str | None:
        """Return the name of a link to another file; None continues the visit."""
        kinds = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)
        return None if info.type in kinds else name.decode("utf-8", "replace")

    def foreign_values(name: bytes, info: Any) -> str | None:
        """Return the name of a dataset stored in other files; None continues the visit."""
        if info.type != h5py.h5o.TYPE_DATASET:
            return None
        plist = h5py.h5o.open(file.id, name).get_create_plist()
        virtual = plist.get_layout() == h5py.h5d.VIRTUAL
        return name.decode("utf-8", "replace") if virtual or plist.get_external_count() else None

    with h5py.File(path, "r") as file:
        foreign = file.id.links.visit(foreign_link, info=True)
        foreign = foreign or h5py.h5o.visit(file.id, foreign_values, info=True)
    if foreign:
        raise CubeFormatError(
            f"{path}: {foreign} lies in another file, which is not opened; "
            "copy the data into one file (h5repack, or h5py) and give that"
        )


def plain(value: Any) -> Any:
    """Return an attribute as text, a number, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        listed = [plain(item) for item in value.ravel().tolist()]
        return listed[0] if len(listed) == 1 else listed
    return value.item() if isinstance(value, np.generic) else value


def texts(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are text or single numbers, as texts for `Cube.attrs`."""
    values = {key: plain(value) for key, value in attrs.items() if not key.startswith("_")}
    return {k: str(v) for k, v in values.items() if isinstance(v, str | int | float)}


def unit(dataset: Any) -> dict[str, str]:
    """Return the unit of the values of a dataset, for `Cube.attrs`; {} without one."""
    return {k: v for k, v in texts(dataset.attrs).items() if k == "units"}


def number(attrs: Mapping[str, Any], key: str, default: float) -> float:
    """Return an attribute as a number, or `default` if it is absent."""
    value = attrs.get(key)
    return default if value is None else float(plain(value))


def numbers(group: Any, name: str, bands: int, path: Path) -> Any:
    """Return a dataset with one number per band; None if the group has none of that name."""
    if group is None or name not in group:
        return None
    entries = np.asarray(group[name][()], np.float64).ravel()
    check_count(len(entries), bands, f"in {group[name].name}", path)
    return entries


def cube_of(path: Path, file: Any, parts: Sequence[DatasetPart], var: str, **fields: Any) -> Cube:
    """Return the lazy cube of the parts; var: the name by which `rewrite` locates them again."""
    array = {"var": var, "axes": ",".join(parts[0].axes)}
    attrs = {**fields.pop("attrs"), "array": array}
    mark = _mark(path, file, parts)
    return Cube(values(path, file, parts), attrs=attrs, mark=mark, **fields)


def values(path: Path, file: Any, parts: Sequence[DatasetPart]) -> Lazy:
    """Return the parts as one lazy array (bands, rows, cols); each window opens the file."""
    datasets = [file[part.name] for part in parts]
    shapes = [ax.cube_shape(d.shape, p.axes) for d, p in zip(datasets, parts, strict=True)]
    dtypes = {dataset.dtype for dataset in datasets}
    if len({shape[1:] for shape in shapes}) > 1 or len(dtypes) > 1:
        listed = ", ".join(f"{d.name[1:]} {d.shape}" for d in datasets)
        raise damaged(path, f"its parts do not fit together ({listed})")
    dtype = dtypes.pop()
    check_real(dtype, path)
    for dataset in datasets:
        check_chunk(dataset.chunks or (1,), dtype, path)
    shape = (sum(part.bands for part in parts), *shapes[0][1:])
    chunks = None if datasets[0].chunks is None else _chunks(datasets[0], parts[0])
    return Lazy(shape, dtype, lambda *block: window(path, parts, block), chunks)


def _chunks(dataset: Any, part: DatasetPart) -> tuple[int, int, int]:
    """Return the chunk (bands, rows, cols) of a part; single entries if it is not chunked."""
    return ax.cube_shape(dataset.chunks or (1, 1, 1), part.axes)


def window(path: Path, parts: Sequence[DatasetPart], block: Block) -> Array:
    """Open a file and read a block of it with `read_block`."""
    with parsing(path, "a complete HDF5 file"), open_file(path) as file:
        return read_block(file, parts, block)


def read_block(file: Any, parts: Sequence[DatasetPart], block: Block) -> Array:
    """Read a block (bands, rows, cols) that may extend over several parts."""
    pieces = [_stored(file, part, inside) for part, inside, _ in _touched(parts, block)]
    if not pieces:
        empty = (slice(0, 0), *block[1:])
        return _stored(file, parts[0], empty)
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _stored(file: Any, part: DatasetPart, block: Block) -> Array:
    """Read a block (bands, rows, cols) of one part, with its bands in the cube's order."""
    inside = ax.stored_block(part.axes, _forwards(part, block))
    values = ax.as_cube(file[part.name][inside], part.axes)
    return values[::-1] if part.descending else values


def _forwards(part: DatasetPart, block: Block) -> Block:
    """Return a block of a part with its bands counted as the part stores them."""
    bands, rows, cols = block
    if part.descending:
        bands = slice(part.bands - bands.stop, part.bands - bands.start)
    return bands, rows, cols


def _touched(
    parts: Sequence[DatasetPart], block: Block
) -> Iterator[tuple[DatasetPart, Block, slice]]:
    """Yield each part that a block overlaps, the overlap in the part's band numbers, and its bands
    in the block."""
    first, (bands, rows, cols) = 0, block
    for part in parts:
        low, high = max(bands.start, first), min(bands.stop, first + part.bands)
        if low < high:
            place = slice(low - bands.start, high - bands.start)
            yield part, (slice(low - first, high - first), rows, cols), place
        first += part.bands


def rewrite(source: Path, path: Path, cube: Cube, parts: Sequence[DatasetPart]) -> list[Path]:
    """Copy the file and replace, block by block, the entries of the cube that changed.

    Groups, attributes, dtypes, chunks and compression stay as they are.
    """
    import h5py

    shutil.copyfile(source, path)
    with h5py.File(path, "r+") as file:
        datasets = [file[part.name] for part in parts]
        grows = cube.nbytes if any(d.compression for d in datasets) else 0
        layers = {} if cube.mark is None else marks.layers_of(cube.mark)
        layer_bytes = sum(marks.TYPES[name].itemsize for name in layers) * math.prod(cube.shape)
        reserve(path, grows + layer_bytes)
        chunks = _chunks(datasets[0], parts[0])
        for block in chunk_blocks(cube.shape, cube.dtype.itemsize, chunks):
            new = np.asarray(cube.values[block])
            for part, inside, place in _touched(parts, block):
                if differs(_stored(file, part, inside), new[place]).any():
                    put_block(file, part, inside, new[place])
        if cube.mark is not None:
            _write_mark(file, cube, parts)
    return [path]


def _mark(path: Path, file: Any, parts: Sequence[DatasetPart]) -> Mark | None:
    """Return the mark in a file, with the layers of the fill that it holds; None without a mark."""
    if (text := file.attrs.get(FILLED)) is None:
        return None
    bands = sum(part.bands for part in parts)
    mark = parsed(plain(text), plain(file.attrs.get(RECORD)), bands=bands)
    layers = {}
    for name, suffix in (("flags", marks.FLAG), *marks.SUFFIX.items()):
        layer_parts = [part._replace(name=part.name + suffix) for part in parts]
        if all(_is_layer(file, o, p, name) for o, p in zip(layer_parts, parts, strict=True)):
            layers[name] = values(path, file, layer_parts)
    return marks.with_layers(mark, layers)


def _is_layer(file: Any, layer: DatasetPart, part: DatasetPart, name: str) -> bool:
    """Return whether a dataset exists and has the part's shape and the dtype of the layer."""
    dataset = file.get(layer.name)
    shape = getattr(dataset, "shape", None)
    return bool(shape == file[part.name].shape and dataset.dtype == marks.TYPES[name])


def _write_mark(file: Any, cube: Cube, parts: Sequence[DatasetPart]) -> None:
    """Write the mark as attributes, and each layer of the fill as a variable beside each part."""
    mark = cube.mark
    assert mark is not None
    marks.stamp(file.attrs, mark)
    for part in parts:
        file[part.name].attrs[FILLED] = mark.text
    layers = marks.layers_of(mark)
    for part in parts if layers else ():
        _unlink(file, part)
    for name, layer in layers.items():
        targets = [_layer(file, part, name) for part in parts]
        for block in chunk_blocks(cube.shape, 4, _chunks(file[targets[0].name], targets[0])):
            new = marks.block_of(name, layer, block)
            for part, inside, place in _touched(targets, block):
                if not marks.is_empty(new[place]):
                    put_block(file, part, inside, new[place])


def _unlink(file: Any, part: DatasetPart) -> None:
    """Remove the layers of an earlier fill of a part, and the links to them."""
    for name in (part.name + end for end in marks.ENDS):
        if name in file:
            del file[name]
    attrs = file[part.name].attrs
    if "ancillary_variables" in attrs:
        others = marks.unlinked(attrs).get("ancillary_variables", "")
        attrs["ancillary_variables"] = plain(others)


def _layer(file: Any, part: DatasetPart, name: str) -> DatasetPart:
    """Create an empty variable for a layer of a part, on the same dimensions."""
    path, dataset, dtype = part.name + marks.SUFFIX[name], file[part.name], marks.TYPES[name]
    storage = {"chunks": dataset.chunks or True, "compression": "gzip", "shuffle": True}
    empty = np.nan if dtype.kind == "f" else 0
    variable = file.create_dataset(path, dataset.shape, dtype, fillvalue=empty, **storage)
    for axis, dimension in enumerate(dataset.dims):
        for scale in dimension.values():
            variable.dims[axis].attach_scale(scale)
    variable.attrs.update(marks.about(name, dataset.attrs))
    before = dataset.attrs.get("ancillary_variables", "")
    dataset.attrs["ancillary_variables"] = marks.linked(before, path.rpartition("/")[2])
    return part._replace(name=path)


def put_block(file: Any, part: DatasetPart, block: Block, new: Array) -> None:
    """Write values (bands, rows, cols) into a block of one part."""
    new = new[::-1] if part.descending else new
    inside = ax.stored_block(part.axes, _forwards(part, block))
    file[part.name][inside] = ax.as_stored(new, part.axes)


def reserve(path: Path, nbytes: int) -> None:
    """Raise OSError if the disk lacks room for `nbytes`: HDF5 ends the process when it is full."""
    if shutil.disk_usage(path.parent).free < nbytes + (1 << 20):
        raise OSError(errno.ENOSPC, "not enough free space")


def refuse_write(product: str) -> NoReturn:
    """Raise the error that a product cannot be written from scratch."""
    raise CubeFormatError(
        f"{product} is written as a copy of its source, and this cube does not describe one any "
        "more (other bands, size, type or metadata); write .tif, .img or .zarr instead"
    )


def refuse_unknown(path: Path, product: str) -> NoReturn:
    """Raise the error for a file whose content no rule describes."""
    raise CubeFormatError(
        f"{path}: an HDF5 file of no known product, expected {product}; read its array with h5py, "
        "and fill it with hydiff.fill(array)"
    )
