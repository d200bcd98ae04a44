"""The layers of a fill (`hydiff.flags.LAYERS`), stored where programs that read its cube find them.

HDF5, Zarr          in the file of the cube, as ancillary variables NAME_hydiff_flags and so on
ENVI, GeoTIFF       OUT.flags.EXT, OUT.why.EXT, OUT.sigma.EXT: rasters on the grid of the cube
NumPy, MATLAB       OUT.flags.npz with `flags` and `why`, OUT.sigma.npz; any format can have these

Earlier versions wrote OUT.filled.npz, 1 where an entry was filled; it can still be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats, Lazy, Values
from hydiff.errors import CubeFormatError, HydiffError
from hydiff.flags import FILLED, LAYERS, texts
from hydiff.io import npz
from hydiff.io.blocks import Block, blocks
from hydiff.io.headers import SCALING, number, scaling
from hydiff.io.marks import TYPES, block_of
from hydiff.io.parsing import parsing
from hydiff.io.regular import exists
from hydiff.io.threads import in_threads
from hydiff.mark import Mark

INSIDE = ("emit", "aviris", "prisma", "neon", "zarr")  # formats whose files have room for layers
COMPACT = ("npz", "mat")  # formats without a place on a map
NPZ, EARLIER = ".npz", ".filled.npz"
LEVEL = 3  # of zlib: takes a quarter of the usual time, and the files are hardly larger
RASTERS = (*(end for end in io.envi.SUFFIXES if end != ".hdr"), ".tif", ".tiff")
NAMED = re.compile(rf"\.({'|'.join(LAYERS)})(\.[a-z]+)?\.[a-z]+$", re.IGNORECASE)


class Plane(NamedTuple):
    """The layers of one band, (rows, cols)."""

    flags: Array  # uint8
    sigma: Floats | None  # NaN where nothing was filled; None where the fill has no error bars
    why: Array | None = None  # uint8; None in fills of earlier versions

    @property
    def filled(self) -> Bools:
        filled: Bools = (self.flags & FILLED) != 0
        return filled


# --- names ----------------------------------------------------------------------------------------


def layer_path(path: Path, name: str, kind: str) -> Path | None:
    """Return the file of a layer beside a cube; None if the layer is in the file of the cube.

    kind: the format of the cube.
    """
    if kind in COMPACT:
        return _npz(path, name)
    if kind in INSIDE:
        return None
    suffixes = RASTERS[:-2] if kind == "envi" else RASTERS[-2:]
    suffix = path.suffix if path.suffix.lower() in suffixes else suffixes[0]
    return path.with_name(f"{path.name}.{name}{suffix}")


def _npz(path: Path, name: str) -> Path:
    """Return the .npz file of a layer; flags and reasons share one."""
    return path.with_name(f"{path.name}.{'sigma' if name == 'sigma' else 'flags'}{NPZ}")


def possible(path: Path) -> list[Path]:
    """Return the files beside a cube that may hold a layer of it, or the header of one."""
    names = [f"{path.name}.{name}" for name in LAYERS]
    ends = (*RASTERS, NPZ, ".hdr", *(f"{end}.hdr" for end in RASTERS))
    files = [path.with_name(name + end) for name in names for end in ends]
    return [*(file for file in files if exists(file)), path.with_name(path.name + EARLIER)]


def layer_named(path: Path) -> str | None:
    """Return which layer a file holds, judging by its name; None if it is no layer."""
    match = NAMED.search(path.name)
    return None if match is None else match[1].lower()


def is_layer(path: Path) -> bool:
    """Return whether a file is a layer of another file, which exists beside it."""
    match = NAMED.search(path.name)
    return match is not None and exists(path.with_name(path.name[: match.start()]))


def file_of(path: Path, name: str = "flags") -> Path | None:
    """Return the file beside a cube that holds a layer of it; None if there is none."""
    ends = dict.fromkeys((path.suffix, *RASTERS) if path.suffix.lower() in RASTERS else RASTERS)
    files = [path.with_name(f"{path.name}.{name}{end}") for end in ends]
    files += [_npz(path, name), *([path.with_name(path.name + EARLIER)] if name == "flags" else [])]
    return next((file for file in files if file.is_file()), None)


# --- writing --------------------------------------------------------------------------------------


Writer = Callable[[], list[Path]]  # makes files, and returns their paths


def writers(
    layers: Mapping[str, Values], cube: Cube, path: Path, kind: str, compact: bool
) -> list[Writer]:
    """Return the functions that write the layers outside the file of the cube, one for each file,
    so that they can run at the same time.

    layers: by name, (bands, rows, cols), in memory or read when they are indexed.
    path, kind: file and format of the cube.  compact: small .npz files
    whatever the format.
    """
    if compact or kind in COMPACT:
        sigma = [partial(_write_bars, layers, path)] if "sigma" in layers else []
        return [partial(_write_bytes, layers, path), *sigma] if layers else []
    places = {name: layer_path(path, name, kind) for name in layers}

    def written(name: str, place: Path) -> list[Path]:
        return io.write_into(like(cube, layers[name], name), place)[:1]

    return [partial(written, name, place) for name, place in places.items() if place is not None]


def like(cube: Cube, layer: Any, name: str) -> Cube:
    """Return a layer as a cube with the bands and the map position of another cube.

    σ is a difference of values: it has their gain and units, but no offset, which cancels out.
    """
    attrs = _of_differences(cube) if name == "sigma" else {}
    box = {**attrs.pop("geotiff", {}), "tags": {"": texts(name)}}

    def read(*block: slice) -> Array:
        return block_of(name, layer, block)

    chunks = getattr(cube.values, "chunks", None)
    return replace(
        cube,
        values=Lazy(cube.shape, TYPES[name], read, chunks),
        nodata=np.nan if name == "sigma" else None,
        valid=None,
        missing_rule=None,
        withheld_rule=None,
        attrs={**attrs, "geotiff": box},
        path=None,
        format=None,
        mark=None,
    )


def _of_differences(cube: Cube) -> dict[str, Any]:
    """Return the attributes of a cube that hold for differences of its values: gain and units."""
    scale, box = scaling(cube.attrs, cube.bands), cube.attrs.get("geotiff")
    attrs: dict[str, Any] = {}
    if scale is not None:
        attrs[SCALING[0]] = [number(gain) for gain in scale[0]]
    if isinstance(box, Mapping) and box.get("units"):
        attrs["geotiff"] = {"units": box["units"]}
    return attrs


def _write_bytes(layers: Mapping[str, Values], path: Path) -> list[Path]:
    """Write flags and reasons to their .npz file, and return it."""
    streams = {name: _stream(name, layers[name]) for name in layers if name != "sigma"}
    npz.save_archive(place := _npz(path, "flags"), streams, LEVEL)
    return [place]


def _stream(name: str, layer: Values) -> npz.Stream:
    """Return a layer of bytes in a form that `save_archive` writes block by block."""
    bands, rows, cols = layer.shape
    # read in threads, while others are compressed
    parts = in_threads(lambda block: block_of(name, layer, block), blocks((bands, rows, cols), 1))
    return npz.Stream((bands, rows, cols), TYPES[name], parts)


def _write_bars(layers: Mapping[str, Values], path: Path) -> list[Path]:
    """Write the error bars of the filled entries to their .npz file, and return it."""
    flags, sigma = layers["flags"], layers["sigma"]
    bands, rows, cols = flags.shape

    def filled(block: Block) -> Bools:
        return Plane(np.asarray(flags[block]), None).filled

    def bars(block: Block) -> list[Array]:
        """Return the error bars (n,) of the filled pixels of each band."""
        return [s[f] for s, f in zip(np.asarray(sigma[block]), filled(block), strict=True)]

    parts = [*blocks((bands, rows, cols), sigma.dtype.itemsize)]
    count = sum(in_threads(lambda block: int(np.count_nonzero(filled(block))), parts))
    bars_by_band = chain.from_iterable(in_threads(bars, parts))
    write_bars(bars_by_band, count, bands, place := _npz(path, "sigma"))
    return [place]


def write_bars(each: Iterable[Array], count: int, bands: int, path: Path) -> None:
    """Write the error bars of the filled entries alone: float16, each band in units of its largest.

    each: for every band, the error bars (n,) of its filled pixels.  count: number of error bars in
    all bands.  NaN stays NaN: the entry was filled, but its error is not known.
    """
    unit = np.zeros(bands)

    def shares() -> Iterator[Array]:
        for band, values in enumerate(each):
            unit[band] = values[np.isfinite(values)].max(initial=0.0)
            yield values / unit[band] if unit[band] > 0 else values

    # `unit` is complete when all shares have been written, and is written after them
    share = npz.Stream((count,), np.dtype(np.float16), shares(), repeats=False)
    npz.save_archive(path, {"share": share, "unit": unit}, LEVEL)


# --- reading --------------------------------------------------------------------------------------


def planes(
    path: Path, shape: tuple[int, int, int], mark: Mark | None = None
) -> Iterator[Plane] | None:
    """Return an iterator over the layers of a fill, band after band; None if it has no layers.

    mark: that of the filled cube; None reads it from the file of the cube where it is needed.
    """
    file = file_of(path)
    if file is not None and file.suffix == NPZ:
        return _from_npz(file, file_of(path, "sigma"), path, shape)
    if file is None:
        mark = mark or _mark_in(path)
        layers = {} if mark is None else dict(mark.layers)
        return _from_layers(layers, path, path, shape) if "flags" in layers else None
    return _from_layers(_rasters(path), file, path, shape)


def beside(path: Path, shape: tuple[int, int, int]) -> Mapping[str, Values]:
    """Return the layers in files beside a fill by name; those of rasters are read when indexed."""
    file = file_of(path)
    if file is None:
        return {}
    return collected(planes(path, shape), shape) if file.suffix == NPZ else _rasters(path)


def collected(each: Iterable[Plane] | None, shape: tuple[int, int, int]) -> dict[str, Array]:
    """Return the layers (bands, rows, cols) of an iterator over bands; {} for None."""
    layers: dict[str, Array] = {}
    for band, plane in enumerate(each or ()):
        for name, values in plane._asdict().items():
            if values is not None:
                layers.setdefault(name, np.empty(shape, TYPES[name]))[band] = values
    return layers


def _rasters(path: Path) -> dict[str, Values]:
    """Return the layers of a fill that are rasters beside it."""
    files = {name: file_of(path, name) for name in LAYERS}
    return {name: io.read(file).values for name, file in files.items() if file is not None}


def _mark_in(path: Path) -> Mark | None:
    try:
        return io.read(path).mark
    except HydiffError:  # the file is gone, or not a cube
        return None


def _from_layers(
    layers: Mapping[str, Any], file: Path, path: Path, shape: tuple[int, int, int]
) -> Iterator[Plane]:
    """Yield the layers of each band from arrays (bands, rows, cols), which are checked first."""
    for name, layer in layers.items():
        if tuple(layer.shape) != shape or layer.dtype != TYPES[name]:
            raise _foreign(file, path, shape)
    for bands, _, _ in blocks((shape[0], 1, shape[1] * shape[2]), 4):
        slabs = {name: np.asarray(layer[bands]) for name, layer in layers.items()}
        for i in range(bands.stop - bands.start):
            arrays = {name: slab[i] for name, slab in slabs.items()}
            sigma = None if "sigma" not in arrays else _checked(arrays["sigma"], file)
            yield Plane(arrays["flags"], sigma, arrays.get("why"))


def _from_npz(
    file: Path, bars: Path | None, path: Path, shape: tuple[int, int, int]
) -> Iterator[Plane]:
    """Yield the layers of each band from .npz files; `bars`: the file of error bars, if any."""
    flags = _byte_planes(file, path, shape)
    if bars is None:
        yield from flags
        return
    with parsing(bars, "the error bars of a fill"), npz.open_member(bars, "share") as member:
        npz.members(bars)  # checks the sizes before memory is allocated
        with np.load(bars, allow_pickle=False) as arrays:
            unit = arrays["unit"]
        if member.dtype != np.float16 or unit.dtype != np.float64 or unit.shape != shape[:1]:
            raise ValueError("not the error bars of this cube")
        for plane, scale in zip(flags, unit, strict=True):
            sigma, count = np.full(shape[1:], np.nan), int(plane.filled.sum())
            share = np.frombuffer(member.file.read(2 * count), np.float16)
            if share.size != count:
                raise ValueError("fewer error bars than filled entries")
            sigma[plane.filled] = share.astype(np.float64) * scale
            yield plane._replace(sigma=_checked(sigma, bars))
        if member.file.read(1):
            raise ValueError("more error bars than filled entries")


def _byte_planes(file: Path, path: Path, shape: tuple[int, int, int]) -> Iterator[Plane]:
    """Yield the flags and reasons of each band."""
    if file.name.endswith(EARLIER):
        yield from (Plane(flags, None) for flags in _earlier(file, path, shape))
        return
    with (
        parsing(file, "the flags of a fill"),
        npz.open_member(file, "flags") as flags,
        npz.open_member(file, "why") as why,
    ):
        if {flags[1:], why[1:]} != {(shape, np.dtype(np.uint8))}:
            raise _foreign(file, path, shape)
        for _ in range(shape[0]):
            flag_plane, why_plane = (_read_plane(member, shape) for member in (flags, why))
            yield Plane(flag_plane, None, why_plane)


def _earlier(file: Path, path: Path, shape: tuple[int, int, int]) -> Iterator[Array]:
    """Yield the flags of each band, FILLED or 0, from an earlier version's packed mask."""
    with parsing(file, "the filled mask of a fill"), npz.open_member(file, "missing") as member:
        if member[1:] != ((-(-shape[0] // 8), *shape[1:]), np.dtype(np.uint8)):
            raise _foreign(file, path, shape)
        for first in range(0, shape[0], 8):
            octet = _read_plane(member, shape)
            for bit in range(min(8, shape[0] - first)):
                yield (octet >> (7 - bit)) & FILLED


def _read_plane(member: npz.Member, shape: tuple[int, int, int]) -> Array:
    """Read the bytes (rows, cols) of the next band."""
    content = member.file.read(shape[1] * shape[2])
    return np.frombuffer(content, np.uint8).reshape(shape[1:])


def _foreign(file: Path, path: Path, shape: tuple[int, int, int]) -> CubeFormatError:
    """Return the error for layers of another cube than the one at `path`."""
    return CubeFormatError(
        f"{file} belongs to another cube than {path}, which is (bands, rows, cols) = {shape}; "
        "name the fill that it was written with"
    )


def _checked(values: Array, path: Path) -> Floats:
    """Return error bars after refusing infinite and negative ones; NaN means not known."""
    if np.isinf(values).any() or (values < 0).any():
        raise CubeFormatError(
            f"{path}: error bars are numbers of 0 or more, and some here are not; fill again"
        )
    return values
