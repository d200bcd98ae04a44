"""Files and cubes: `read`, `write`, and the same for masks.

The format is chosen by the content of a file, then by its suffix.  A cube written in the format
it came from is a copy of its source with only the changed entries replaced, so whatever else
the file says stays as it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName
from hydiff.flags import MASK
from hydiff.io import (
    conventions,
    emit,
    envi,
    grids,
    marks,
    masks,
    npz,
    quality,
    raster,
    vectors,
)
from hydiff.io.geotiff import cloud_optimised
from hydiff.io.parsing import native, parsing
from hydiff.io.regular import is_there
from hydiff.io.sidecar import FIELDS, plain
from hydiff.io.staging import lines_held, staged

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

# name -> module, in the order of sniffing: products before the formats they are made of.  ENVI
# comes last: its data files have no signature, and a GeoTIFF may have an ENVI header beside it.
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
LONGEST = 1 << 40  # entries along one axis
MOST_BANDS = 1_000_000  # sensors have hundreds
BARE = ("mat", "npz")  # arrays whose axes have no names
FOLDERS = ("zarr", "enmap")  # that are a folder, or may be one


class Format(Protocol):
    """What a module in FORMATS has."""

    SUFFIXES: tuple[str, ...]  # of files it writes

    def matches(self, path: Path) -> bool:
        """Whether the content of this file is of this format."""

    def read(self, path: Path, var: str | None = None, **how: str) -> Cube:
        """A lazy cube; `format`, and `path` unless it is set, are added by the caller.

        Those of BARE are also asked for an `axis`.
        """

    def write(self, cube: Cube, path: Path) -> list[Path]:
        """Write from scratch; the files made, the one with the values first."""

    def rewrite(self, source: Path, path: Path, cube: Cube) -> list[Path]:
        """Copy `source` and replace the entries of `cube` that differ."""


def read(path: str | Path, *, var: str | None = None, axis: str | None = None) -> Cube:
    """Open a cube; values (bands, rows, cols) stay on disk until they are indexed.

    `var` names the variable in files that hold several (.mat, .npz); `axis` ("bands first" or
    "bands last") says how the array lies in files that do not (.mat, .npy, .npz).
    """
    path = Path(path)
    return open_as(_recognise(path), path, var, axis)


def images_in(folder: Path) -> list[Path]:
    """The files of a folder that can be read as cubes, by name; a header and its values are one."""
    images: dict[Path, Path] = {}
    for path in sorted(folder.iterdir()):
        try:
            cube = read(path)
        except HydiffError:
            continue
        if cube.mark is None:  # what is filled already is no measurement
            images.setdefault((cube.path or path).resolve(), path)
    return list(images.values())


def open_as(name: str, path: Path, var: str | None = None, axis: str | None = None) -> Cube:
    """`read` for a file whose format is known, by its name in FORMATS."""
    if axis is not None and name not in BARE:
        raise BadValue(f"{path}: its format says which axis is which; leave `axis=` out")
    cube = _module(name).read(path, var, **({} if axis is None else {"axis": axis}))
    _check(cube, path)
    cube = marks.taken(cube)
    return conventions.applied(replace(cube, format=name, path=cube.path or path))


def write(
    cube: Cube, path: str | Path, *, overwrite: bool = False, unmarked: bool = False
) -> list[Path]:
    """Write a cube, whole or not at all; the files made, the one with the values first.

    The suffix of `path` says the format; without one it is the format that the cube came in.
    unmarked: allow a filled cube in a file that cannot say so (.npy).
    """
    path = Path(path)
    format_for(cube, path)  # refuse an unknown suffix before anything is made
    if cube.mark is not None:
        refuse_unmarked(cube, path, unmarked)
    with staged(path, overwrite=overwrite, source=cube.path) as folder:
        made = write_into(cube, folder / path.name)
    return [path.with_name(file.name) for file in made]


def write_into(cube: Cube, path: Path, before: Cube | None = None) -> list[Path]:
    """Write a cube without staging: for use inside a `staged` block, together with other files.

    before: the cube as it was read, if its file is known to be the same; else it is read again.
    """
    name = format_for(cube, path)
    with lines_held():
        if cube.format == name and cube.path is not None and _describes(cube.path, cube, before):
            return _module(name).rewrite(cube.path, path, cube)
        return _module(name).write(marks.entered(cube), path)


def refuse_unmarked(cube: Cube, path: Path, unmarked: bool) -> None:
    """BadValue if the file would have no place to say that it is filled, and that was not asked."""
    if unmarked or format_for(cube, path) != "npz" or npz.becomes_archive(cube.path, path):
        return
    raise BadValue(
        f"{path}: a .npy file has no place to say that it is filled, and would pass for a "
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
    """True = measured; (rows, cols), or (bands, rows, cols) for a mask that differs by band.

    `meaning` ("observed" or "missing") is what non-zero means in the file; `shape` is that of the
    cube.  Any readable raster will do; axes of length 1 are dropped.  Of a file that holds several
    arrays, `var` names one, or the path does, FILE:VAR.  Polygons (GeoJSON; with fiona shapefile,
    GeoPackage) are drawn on the map of the cube `like`, PNG pictures are taken by pixels.
    like: the cube.  Where both lie on a map, the mask is moved by whole pixels to where it belongs,
    and is refused on another grid; what it does not cover counts as measured, and `say` hears it.
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
        readings, place = [bits], None
    else:
        with masks.several_named(path):
            place = read(path, var=name)
        name, readings = place.attrs.get("array", {}).get("var"), list(masks.layouts(place))
    masks.check_name(name, meaning, path)
    shift = None if like is None or place is None else grids.shift(like, place, path)
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
    """What a quality layer says of a cube of this shape, by some of its flags or its usual ones.

    Layers: EMIT L2A_MASK, a PRISMA file (its error matrix), an EnMAP product (its pixel mask), a
    NEON file (its classes of pixels), or any mask file, non-zero = missing, which is laid over the
    cube `like` as `read_mask` does.
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
    """True = measured in this cube, from whichever mask file was named; None when none was."""
    if observed is not None and missing is not None:
        raise BadValue("`observed=` and `missing=` say the same thing twice: give one of them")
    path, meaning = (missing, "missing") if observed is None else (observed, "observed")
    return None if path is None else read_mask(path, meaning, cube.shape, like=cube, say=say)


def quality_layer(cube: Cube, layer: Path | None, flags: str | None) -> quality.Quality | None:
    """The quality layer that was named, by flags between commas or its usual ones; or None."""
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

    source: the file that it is a mask of; who may not read that may not read the mask.
    """
    path = Path(path)
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
    """Filled entries (bands, rows, cols) as netCDF4 in the layout of EMIT's `band_mask`."""
    path = Path(path)
    with staged(path, overwrite=overwrite, source=source) as folder:
        emit.write_band_mask(filled, folder / path.name)
    return [path]


def _check(cube: Cube, path: Path) -> None:
    """What no format can say of a cube, whatever its libraries let pass."""
    if not all(isinstance(n, int | np.integer) and n < LONGEST for n in cube.shape):
        raise CubeFormatError(
            f"{path}: (bands, rows, cols) = {cube.shape}, expected whole numbers below {LONGEST}; "
            "the file is damaged, fetch or write it again"
        )
    if 0 in cube.shape:
        raise CubeFormatError(
            f"{path}: holds no values: (bands, rows, cols) = {cube.shape}; fetch or write it again"
        )
    if cube.bands > MOST_BANDS:
        raise CubeFormatError(
            f"{path}: {cube.bands} bands, expected at most {MOST_BANDS}; the file is damaged, or "
            'its axes are in another order: put "axes": "bands,rows,cols" into its sidecar'
        )
    for name in ("wavelength_units", "crs"):
        if not isinstance(value := getattr(cube, name), str | None):
            raise CubeFormatError(
                f"{path}: {name} is {value!r}, expected text; correct or remove it"
            )
    if cube.transform is not None and len(cube.transform) != 6:
        raise CubeFormatError(
            f"{path}: transform has {len(cube.transform)} numbers, expected 6; correct or remove it"
        )


def _module(name: str) -> Format:
    return cast(Format, importlib.import_module(FORMATS[name]))


def _suffixes() -> dict[str, str]:
    """Suffix -> format; of several formats with one suffix, the first."""
    return {suffix: name for name in reversed(FORMATS) for suffix in _module(name).SUFFIXES}


def _recognise(path: Path) -> str:
    """The format of a file, by its content, then by its suffix."""
    if not is_there(path):
        raise CubeFormatError(f"{path}: no such file; check the path")
    with parsing(path, "a readable file", "check its permissions"):
        for name in FOLDERS if path.is_dir() else FORMATS:
            if _module(name).matches(path):
                return name
    if path.is_dir():
        raise CubeFormatError(
            f"{path}: is a folder, but neither a Zarr store nor an EnMAP product with its "
            "METADATA.XML; name a file in it"
        )
    if path.suffix.lower() in _suffixes():
        return _suffixes()[path.suffix.lower()]
    known = ", ".join(sorted(FORMATS))
    raise CubeFormatError(
        f"{path}: of no format known here ({known}); an ENVI file needs its .hdr beside it, "
        "others should be converted to one of these"
    )


def format_for(cube: Cube, path: Path) -> str:
    """The format to write: the cube's own if the name looks like its source's, else by suffix."""
    suffix = path.suffix.lower()
    alike = not suffix or (cube.path is not None and suffix == cube.path.suffix.lower())
    if alike and cube.format == "raster":
        raster.refuse_write(path)
    if alike and cube.format in FORMATS:
        return cube.format
    if suffix in _suffixes():
        return _suffixes()[suffix]
    raise UnknownName("suffix", path.suffix, _suffixes(), f"; give {path.name} one of them")


def values_path(cube: Cube, path: Path) -> Path:
    """The file that would hold the values of a cube written to `path`: of ENVI's two, the data
    file.  Companions have their names from it, whichever of the two was named."""
    return envi.data_name(cube, path) if format_for(cube, path) == "envi" else path


def _describes(source: Path, cube: Cube, before: Cube | None) -> bool:
    """Whether the source file says of itself what the cube says, values apart."""
    if not source.exists():
        return False
    try:
        before = before or read(source, var=cube.attrs.get("array", {}).get("var"))
    except HydiffError:  # it was replaced by something else
        return False
    return (
        before.format == cube.format
        and before.shape == cube.shape
        and native(before.dtype) == native(cube.dtype)
        and all(_equal(getattr(before, name), getattr(cube, name)) for name in FIELDS)
        and _portable(before) == _portable(cube)
    )


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, str):
        return bool(one == other)
    first, second = np.asarray(one), np.asarray(other)
    numeric = first.dtype.kind == "f" and second.dtype.kind == "f"
    return np.array_equal(first, second, equal_nan=numeric)


def _portable(cube: Cube) -> dict[str, Any]:
    return {key: value for key, value in plain(cube.attrs).items() if key != "xarray"}
