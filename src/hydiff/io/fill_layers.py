"""The layers of a fill (`hydiff.flags.LAYERS`), kept where programs that read its cube find them.

HDF5, Zarr          in the file of the cube, as ancillary variables NAME_hydiff_flags and so on
ENVI, GeoTIFF       OUT.flags.EXT, OUT.why.EXT, OUT.sigma.EXT: rasters on the grid of the cube
NumPy, MATLAB       OUT.flags.npz with `flags` and `why`, OUT.sigma.npz; any format can have these

Earlier versions wrote OUT.filled.npz, which is 1 where an entry was filled, and still is read.
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
LEVEL = 3  # of zlib: a quarter of the usual time, and little more to store
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


def layer_path(path: Path, name: str, kind: str, compact: bool = False) -> Path | None:
    """The file of a layer beside a cube of a format; None where it is in the file of the cube."""
    if compact or kind in COMPACT:
        return _npz(path, name)
    if kind in INSIDE:
        return None
    known = RASTERS[:-2] if kind == "envi" else RASTERS[-2:]
    own = path.suffix if path.suffix.lower() in known else known[0]
    return path.with_name(f"{path.name}.{name}{own}")


def _npz(path: Path, name: str) -> Path:
    """Flags and reasons share a file."""
    return path.with_name(f"{path.name}.{'sigma' if name == 'sigma' else 'flags'}{NPZ}")


def possible(path: Path) -> list[Path]:
    """Every file beside a cube that may hold a layer of it, or the header of one."""
    names = [f"{path.name}.{name}" for name in LAYERS]
    ends = (*RASTERS, NPZ, ".hdr", *(f"{end}.hdr" for end in RASTERS))
    files = [path.with_name(name + end) for name in names for end in ends]
    return [*(file for file in files if exists(file)), path.with_name(path.name + EARLIER)]


def layer_named(path: Path) -> str | None:
    """Which layer of another file this one is by its name; None if it is none."""
    match = NAMED.search(path.name)
    return None if match is None else match[1].lower()


def is_layer(path: Path) -> bool:
    """Whether a file is a layer of another one that lies beside it."""
    match = NAMED.search(path.name)
    return match is not None and exists(path.with_name(path.name[: match.start()]))


def file_of(path: Path, name: str = "flags") -> Path | None:
    """The file beside a cube that holds a layer of it; None where there is none."""
    ends = dict.fromkeys((path.suffix, *RASTERS) if path.suffix.lower() in RASTERS else RASTERS)
    files = [path.with_name(f"{path.name}.{name}{end}") for end in ends]
    files += [_npz(path, name), *([path.with_name(path.name + EARLIER)] if name == "flags" else [])]
    return next((file for file in files if file.is_file()), None)


# --- writing --------------------------------------------------------------------------------------


Writer = Callable[[], list[Path]]  # makes files, and says which


def writers(
    layers: Mapping[str, Values], cube: Cube, path: Path, kind: str, compact: bool
) -> list[Writer]:
    """What writes the layers that are not in the file of the cube, which is `path`: each a file of
    its own, so that they can be written at once.

    layers: by name, (bands, rows, cols), in memory or read when they are indexed.
    """
    if compact or kind in COMPACT:
        sigma = [partial(_write_bars, layers, path)] if "sigma" in layers else []
        return [partial(_write_bytes, layers, path), *sigma] if layers else []
    places = {name: layer_path(path, name, kind) for name in layers}

    def written(name: str, place: Path) -> list[Path]:
        return io.write_into(like(cube, layers[name], name), place)[:1]

    return [partial(written, name, place) for name, place in places.items() if place is not None]


def like(cube: Cube, layer: Any, name: str) -> Cube:
    """A layer as a cube on the grid of another one, with its bands and its place, not its meaning.

    σ is a difference of values: it has their gain and units; an offset cancels out.
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
    """What the header of a cube says of differences of its values: their gain and their units."""
    scale, box = scaling(cube.attrs, cube.bands), cube.attrs.get("geotiff")
    attrs: dict[str, Any] = {}
    if scale is not None:
        attrs[SCALING[0]] = [number(gain) for gain in scale[0]]
    if isinstance(box, Mapping) and box.get("units"):
        attrs["geotiff"] = {"units": box["units"]}
    return attrs


def _write_bytes(layers: Mapping[str, Values], path: Path) -> list[Path]:
    streams = {name: _stream(name, layers[name]) for name in layers if name != "sigma"}
    npz.save_archive(place := _npz(path, "flags"), streams, LEVEL)
    return [place]


def _stream(name: str, layer: Values) -> npz.Stream:
    bands, rows, cols = layer.shape
    parts = (block_of(name, layer, block) for block in blocks((bands, rows, cols), 1))
    return npz.Stream((bands, rows, cols), TYPES[name], parts)


def _write_bars(layers: Mapping[str, Values], path: Path) -> list[Path]:
    flags, sigma = layers["flags"], layers["sigma"]
    bands, rows, cols = flags.shape

    def filled(block: Block) -> Bools:
        return Plane(np.asarray(flags[block]), None).filled

    def bars(block: Block) -> list[Array]:
        return [s[f] for s, f in zip(np.asarray(sigma[block]), filled(block), strict=True)]

    some = [*blocks((bands, rows, cols), sigma.dtype.itemsize)]
    count = sum(in_threads(lambda block: int(np.count_nonzero(filled(block))), some))
    each = chain.from_iterable(in_threads(bars, some))
    write_bars(each, count, bands, place := _npz(path, "sigma"))
    return [place]


def write_bars(each: Iterable[Array], count: int, bands: int, path: Path) -> None:
    """The error bars of the filled entries alone: float16, each band in units of its largest.

    each: of every band, those of its filled pixels (n,); count: of all bands.  NaN stays NaN: that
    entry was filled, and how far off it may be is not known.
    """
    unit = np.zeros(bands)

    def shares() -> Iterator[Array]:
        for band, values in enumerate(each):
            unit[band] = values[np.isfinite(values)].max(initial=0.0)
            yield values / unit[band] if unit[band] > 0 else values

    # the units are known, and written, when the shares are
    share = npz.Stream((count,), np.dtype(np.float16), shares())
    npz.save_archive(path, {"share": share, "unit": unit}, LEVEL)


# --- reading --------------------------------------------------------------------------------------


def planes(
    path: Path, shape: tuple[int, int, int], mark: Mark | None = None
) -> Iterator[Plane] | None:
    """The layers of a fill, band after band; None where there are none.

    mark: what the file of the cube says of its fill; by default it is opened to ask.
    """
    file = file_of(path)
    if file is not None and file.suffix == NPZ:
        return _from_npz(file, file_of(path, "sigma"), path, shape)
    if file is None:
        mark = mark or _mark_in(path)
        layers = {} if mark is None else dict(mark.layers)
        return _from_layers(layers, path, path, shape) if "flags" in layers else None
    files = {name: file_of(path, name) for name in LAYERS}
    layers = {name: io.read(own).values for name, own in files.items() if own is not None}
    return _from_layers(layers, file, path, shape)


def _mark_in(path: Path) -> Mark | None:
    try:
        return io.read(path).mark
    except HydiffError:  # gone, or something else
        return None


def _from_layers(
    layers: Mapping[str, Any], file: Path, path: Path, shape: tuple[int, int, int]
) -> Iterator[Plane]:
    for name, layer in layers.items():
        if tuple(layer.shape) != shape or layer.dtype != TYPES[name]:
            raise _foreign(file, path, shape)
    for bands, _, _ in blocks((shape[0], 1, shape[1] * shape[2]), 4):
        some = {name: np.asarray(layer[bands]) for name, layer in layers.items()}
        for i in range(bands.stop - bands.start):
            own = {name: block[i] for name, block in some.items()}
            sigma = None if "sigma" not in own else _checked(own["sigma"], file)
            yield Plane(own["flags"], sigma, own.get("why"))


def _from_npz(
    file: Path, bars: Path | None, path: Path, shape: tuple[int, int, int]
) -> Iterator[Plane]:
    flags = _byte_planes(file, path, shape)
    if bars is None:
        yield from flags
        return
    with parsing(bars, "the error bars of a fill"), npz.open_member(bars, "share") as member:
        npz.members(bars)  # before memory is taken for them
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
    """Flags and reasons, band after band."""
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
            one, other = (_read_plane(member, shape) for member in (flags, why))
            yield Plane(one, None, other)


def _earlier(file: Path, path: Path, shape: tuple[int, int, int]) -> Iterator[Array]:
    """The mask of an earlier version, packed along the bands: bit 1 alone."""
    with parsing(file, "the filled mask of a fill"), npz.open_member(file, "missing") as member:
        if member[1:] != ((-(-shape[0] // 8), *shape[1:]), np.dtype(np.uint8)):
            raise _foreign(file, path, shape)
        for first in range(0, shape[0], 8):
            octet = _read_plane(member, shape)
            for bit in range(min(8, shape[0] - first)):
                yield (octet >> (7 - bit)) & FILLED


def _read_plane(member: npz.Member, shape: tuple[int, int, int]) -> Array:
    content = member.file.read(shape[1] * shape[2])
    return np.frombuffer(content, np.uint8).reshape(shape[1:])


def _foreign(file: Path, path: Path, shape: tuple[int, int, int]) -> CubeFormatError:
    return CubeFormatError(
        f"{file} belongs to another cube than {path}, which is (bands, rows, cols) = {shape}; "
        "name the fill that it was written with"
    )


def _checked(values: Array, path: Path) -> Floats:
    """Error bars; NaN is one that is not known."""
    if np.isinf(values).any() or (values < 0).any():
        raise CubeFormatError(
            f"{path}: error bars are numbers of 0 or more, and some here are not; fill again"
        )
    return values
