"""Read and write cubes and masks.

The format of a file is recognised by its content, then by its suffix.  A cube that is written in
the format it was read from becomes a copy of its source in which only the changed entries are
replaced, so that everything else in the file stays as it is.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName
from hydiff.flags import MASK
from hydiff.io import conventions, emit, envi, grids, marks, masks, quality, raster, vectors
from hydiff.io.geotiff import cloud_optimised
from hydiff.io.missing import declared
from hydiff.io.parsing import check_cube, native, parsing
from hydiff.io.regular import advice, is_there
from hydiff.io.sidecar import FIELDS, plain
from hydiff.io.staging import lines_held, output_file, staged
from hydiff.option_types import of_type

__all__ = [
    "FORMATS",
    "cloud_optimised",
    "envi",
    "format_for",
    "open_as",
    "read",
    "read_mask",
    "read_quality",
    "refuse_unmarked",
    "staged",
    "values_path",
    "write",
    "write_band_mask",
    "write_into",
    "write_mask",
]

# name -> module, in the order in which they are tried: products before the formats they are based
# on.  ENVI is last: its data files have no signature, and a GeoTIFF may have an ENVI header too.
FORMATS: dict[str, str] = {
    "emit": "hydiff.io.emit",
    "aviris": "hydiff.io.aviris",
    "prisma": "hydiff.io.prisma",
    "neon": "hydiff.io.neon",
    "zarr": "hydiff.io.zarr",
    "desis": "hydiff.io.desis",
    "enmap": "hydiff.io.enmap",
    "geotiff": "hydiff.io.geotiff",
    "raster": "hydiff.io.raster",
    "mat": "hydiff.io.mat",
    "npz": "hydiff.io.npz",
    "envi": "hydiff.io.envi",
}
BARE = ("mat", "npz")  # formats of arrays whose axes have no names
PRODUCTS = ("emit", "aviris", "prisma", "neon", "enmap")  # written only as copies of their source
FOLDERS = ("zarr", "enmap")  # formats whose cube is a folder, or may be one


class Format(Protocol):
    """The interface of every module in FORMATS."""

    SUFFIXES: tuple[str, ...]  # of the files that it writes

    def matches(self, path: Path) -> bool:
        """Return whether the content of a file is of this format."""

    def read(self, path: Path, var: str | None = None, **how: str) -> Cube:
        """Return a lazy cube; the caller adds `format` and a missing `path`.

        The modules of BARE also take an `axis`.
        """

    def write(self, cube: Cube, path: Path) -> list[Path]:
        """Write a cube from scratch; return the files made, the one with the values first."""

    def rewrite(self, source: Path, path: Path, cube: Cube) -> list[Path]:
        """Copy `source` to `path` and replace the entries that differ from those of `cube`.

        If the source declares no nodata value, the copy declares that of the cube.
        """

    def keeps_mark(self, source: Path | None, path: Path) -> bool:
        """Return whether the file that is written states that its cube is filled."""


def read(path: str | Path, *, var: str | None = None, axis: str | None = None) -> Cube:
    """Open a cube; its values (bands, rows, cols) stay on disk until they are indexed.

    var: the variable that is the cube, in files that hold several, such as .mat and .npz.
    axis: "bands first" or "bands last", in files that do not state it (.mat, .npy, .npz).
    """
    path = Path(of_type("path", path, Path))
    return open_as(_recognise(path), path, var, axis)


def images_in(folder: Path) -> list[Path]:
    """Return the files of a folder that are unfilled cubes, by name; an ENVI pair counts once."""
    images: dict[Path, Path] = {}
    for path in sorted(folder.iterdir()):
        try:
            cube = read(path)
        except HydiffError:
            continue
        if cube.mark is None:  # a filled cube is not a measurement
            images.setdefault((cube.path or path).resolve(), path)
    return list(images.values())


def open_as(name: str, path: Path, var: str | None = None, axis: str | None = None) -> Cube:
    """Open a cube as `read` does, from a file whose format, a name in FORMATS, is known."""
    if axis is not None and name not in BARE:
        raise BadValue(f"{path}: its format says which axis is which; leave `axis=` out")
    cube = _module(name).read(path, var, **({} if axis is None else {"axis": axis}))
    check_cube(cube, path)
    cube = marks.taken(cube)
    return conventions.applied(replace(cube, format=name, path=cube.path or path))


def write(
    cube: Cube, path: str | Path, *, overwrite: bool = False, unmarked: bool = False
) -> list[Path]:
    """Write a cube, all or nothing; return the files made, the one with the values first.

    The suffix of `path` selects the format; without one it is the format the cube was read from.
    unmarked: allow a filled cube in a file that cannot record that it is filled (.npy).
    """
    path = output_file(path)
    format_for(cube, path)  # refuse an unknown suffix before any file is made
    if cube.mark is not None:
        refuse_unmarked(cube, path, unmarked)
    with staged(path, overwrite=overwrite, source=cube.path) as folder:
        files = write_into(cube, folder / path.name)
    return [path.with_name(file.name) for file in files]


def write_into(cube: Cube, path: Path, before: Cube | None = None) -> list[Path]:
    """Write a cube without staging: for use inside a `staged` block, together with other files.

    before: the cube as it was read, if its file is known to be unchanged; None reads it again.
    """
    name = format_for(cube, path)
    with lines_held():
        if cube.format == name and cube.path is not None and _describes(cube.path, cube, before):
            return _module(name).rewrite(cube.path, path, cube)
        return _module(name).write(marks.entered(declared(cube, name)), path)


def refuse_unmarked(cube: Cube, path: Path, unmarked: bool) -> None:
    """Raise BadValue if the file could not record that it is filled, unless `unmarked` is True."""
    keeps_mark = _module(format_for(cube, path)).keeps_mark(cube.path, path)
    if not (of_type("unmarked", unmarked, bool) or keeps_mark):
        raise BadValue(
            f"{path}: its format has no place to say that it is filled, so it would pass for a "
            f"measurement; name it {path.stem}.npz, or allow it with `unmarked=True`"
        )


def read_mask(
    path: str | Path,
    meaning: str,
    shape: tuple[int, int, int],
    *,
    var: str | None = None,
    like: Cube | None = None,
    say: Callable[[str], Any] = lambda text: None,
) -> Bools:
    """Read a mask, True = measured: (rows, cols), or (bands, rows, cols) if it differs by band.

    meaning: what non-zero means in the file, "observed" or "missing".  shape: that of the cube.
    var: the array in a file that holds several; the path may name it too, as FILE:VAR.
    like: the cube.  If both lie on a map, the mask is shifted by whole pixels to its place, and
    refused if it is on another grid; pixels that it does not cover count as measured, and a message
    about the shift goes to `say`.

    Any readable raster will do; axes of length 1 are dropped.  Polygons (GeoJSON; with fiona also
    shapefile and GeoPackage) are rasterised on the grid of `like`; PNG pictures need no map.
    """
    masks.check_meaning(meaning)
    path, var = masks.with_variable(Path(path), var)
    if vectors.is_drawn(path):
        inside = masks.fitted([vectors.drawn(path, like)[None]], shape, path).astype(bool)
        return inside if meaning == "observed" else ~inside
    _recognise(path)
    name = var or masks.named(path, meaning)
    bits = masks.packed(path, name)
    if bits is not None:
        readings, mask_cube = [bits], None
    else:
        with masks.several_named(path):
            mask_cube = read(path, var=name)
        name, readings = mask_cube.attrs.get("array", {}).get("var"), list(masks.layouts(mask_cube))
    masks.check_name(name, meaning, path)
    shift = None if like is None or mask_cube is None else grids.shift(like, mask_cube, path)
    if shift is None:
        flags = masks.as_bools(masks.fitted(readings, shape, path), path)
        return flags if meaning == "observed" else ~flags
    flags = masks.as_bools(masks.with_bands(readings[0], shape[0], path), path)
    return grids.moved(flags if meaning == "observed" else ~flags, shift, shape, path, say)


def read_quality(
    path: str | Path,
    shape: tuple[int, int, int],
    flags: Sequence[str] = (),
    *,
    like: Cube | None = None,
) -> quality.Quality:
    """Read a quality layer for a cube of this shape, by the given flags or the usual ones.

    Layers: EMIT L2A_MASK, a PRISMA file (its error matrix), an EnMAP product (its pixel mask), a
    NEON file (its classes of pixels), or any mask file, non-zero = missing, which is placed on the
    cube `like` as in `read_mask`.
    """
    path = Path(path)
    layers = {} if vectors.is_drawn(path) else quality.layers(path, _recognise(path))
    if layers:
        return quality.combined(layers, shape, flags, path)
    if flags:
        raise BadValue(f"{path} is a plain mask without flags; leave `flags=` out")
    missing = ~np.broadcast_to(read_mask(path, "missing", shape, like=like), shape)
    why = np.where(missing, MASK, 0).astype(np.uint8)
    return quality.Quality(~missing, {"missing": int(missing.sum())}, why)


def given_mask(
    cube: Cube,
    observed: Path | None,
    missing: Path | None,
    say: Callable[[str], Any] = lambda text: None,
) -> Bools | None:
    """Return the mask of a cube, True = measured, from one of two mask files; None without both."""
    if observed is not None and missing is not None:
        raise BadValue("`observed=` and `missing=` say the same thing twice: give one of them")
    path, meaning = (missing, "missing") if observed is None else (observed, "observed")
    return None if path is None else read_mask(path, meaning, cube.shape, like=cube, say=say)


def quality_layer(cube: Cube, layer: Path | None, flags: str | None) -> quality.Quality | None:
    """Read a quality layer by its comma-separated flags or its usual ones; None without a layer."""
    if layer is None:
        if flags is not None:
            raise BadValue("`flags=` goes with `quality=FILE`: name the layer they stand in")
        return None
    wanted = [flag.strip() for flag in (flags or "").split(",") if flag.strip()]
    return read_quality(layer, cube.shape, wanted, like=cube)


def write_mask(
    mask: Bools,
    path: str | Path,
    meaning: str,
    *,
    overwrite: bool = False,
    source: Path | None = None,
) -> list[Path]:
    """Write a mask, (rows, cols) or (bands, rows, cols), that is True where `meaning` holds.

    source: the file that the mask describes; users who may not read it may not read the mask.
    """
    path = output_file(path)
    masks.check_meaning(meaning)
    masks.check_suffix(path)
    if mask.dtype != np.bool_ or mask.ndim not in (2, 3):
        raise BadValue(f"expected a 2-D or 3-D boolean mask, found {mask.dtype} {mask.shape}")
    with staged(path, overwrite=overwrite, source=source) as folder:
        masks.write(mask, folder / path.name, meaning)
    return [path]


def write_band_mask(
    filled: Bools, path: str | Path, *, overwrite: bool = False, source: Path | None = None
) -> list[Path]:
    """Write the filled entries (bands, rows, cols) as netCDF4, laid out as EMIT's `band_mask`."""
    with staged(path := output_file(path), overwrite=overwrite, source=source) as folder:
        emit.write_band_mask(filled, folder / path.name)
    return [path]


def _module(name: str) -> Format:
    return cast(Format, importlib.import_module(FORMATS[name]))


def suffixes() -> dict[str, str]:
    """Map each suffix to its format; of several formats with one suffix, the first in FORMATS."""
    return {suffix: name for name in reversed(FORMATS) for suffix in _module(name).SUFFIXES}


def _recognise(path: Path) -> str:
    """Return the name of the format of a file, by its content, then by its suffix."""
    if not is_there(path):
        raise CubeFormatError(f"{path}: no such file; {advice(path, suffixes())}")
    with parsing(path, "a readable file", "check its permissions"):
        for name in FOLDERS if path.is_dir() else FORMATS:
            if _module(name).matches(path):
                return name
    if path.is_dir():
        raise CubeFormatError(
            f"{path}: is a folder, but neither a Zarr store nor an EnMAP product with its "
            f"METADATA.XML; name a file in it{_pattern(path)}"
        )
    if path.suffix.lower() in suffixes():
        return suffixes()[path.suffix.lower()]
    raise CubeFormatError(
        f"{path}: of no format known here ({', '.join(sorted(FORMATS))}); an ENVI file needs "
        "its .hdr beside it, others should be converted to one of these"
    )


def _pattern(folder: Path) -> str:
    """Return the hint that a pattern fills the files of a folder, by their most common suffix."""
    ends = Counter(p.suffix for p in sorted(folder.iterdir()) if p.suffix.lower() in suffixes())
    return "".join(f", or fill all by '{folder}/*{end}'" for end, _ in ends.most_common(1))


def format_for(cube: Cube, path: Path) -> str:
    """Return the format to write: the source's if `path` has its suffix or none; else by suffix."""
    suffix = path.suffix.lower()
    alike = not suffix or (cube.path is not None and suffix == cube.path.suffix.lower())
    if alike and cube.format == "raster":
        raster.refuse_write(path)
    if alike and cube.format in FORMATS:
        return cube.format
    if suffix in suffixes():
        return suffixes()[suffix]
    raise UnknownName("suffix", path.suffix, suffixes(), f"; give {path.name} one of them")


def values_path(cube: Cube, path: Path) -> Path:
    """Return the file that will hold the values of a cube written to `path`: for ENVI the data
    file, even if `path` is the header.  Companion files are named after it."""
    return envi.data_name(cube, path) if format_for(cube, path) == "envi" else path


def _describes(source: Path, cube: Cube, before: Cube | None) -> bool:
    """Return whether the source still has the format, shape, dtype and metadata of the cube."""
    if not source.exists():
        return False
    try:
        before = before or read(source, var=cube.attrs.get("array", {}).get("var"))
    except HydiffError:  # the file was replaced by something else
        return False
    if before.nodata is None and before.valid is None:  # `rewrite` declares it
        before = replace(before, nodata=cube.nodata)
    return (
        before.format == cube.format
        and before.shape == cube.shape
        and native(before.dtype) == native(cube.dtype)
        and all(_equal(getattr(before, name), getattr(cube, name)) for name in FIELDS)
        and _portable(before) == _portable(cube)
    )


def _equal(value: Any, other: Any) -> bool:
    """Return whether two entries of metadata agree; None equals only None, and NaN equals NaN."""
    if value is None or other is None:
        return value is other
    if isinstance(value, str):
        return bool(value == other)
    first, second = np.asarray(value), np.asarray(other)
    numeric = first.dtype.kind == "f" and second.dtype.kind == "f"
    return np.array_equal(first, second, equal_nan=numeric)


def _portable(cube: Cube) -> dict[str, Any]:
    return {key: value for key, value in plain(cube.attrs).items() if key != "xarray"}
