"""Metadata as JSON: the sidecar `NAME.npy.json` of a bare array, and the text inside a mat file.

Keys: axes, wavelengths, wavelength_units, fwhm, good, nodata, crs, transform, band_names, attrs.
Other keys are passed on in `Cube.attrs["sidecar"]` and written again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube, Lazy, Values
from hydiff.errors import CubeFormatError
from hydiff.io import axes as ax
from hydiff.io import variables
from hydiff.io.blocks import Block
from hydiff.io.headers import NOTES
from hydiff.io.parsing import check_count, parsing
from hydiff.io.regular import is_there
from hydiff.mark import Mark, from_json

# the fields of a cube that describe its values
PER_BAND = ("wavelengths", "fwhm", "good", "band_names")
FIELDS = (*PER_BAND, "wavelength_units", "nodata", "crs", "transform")
KEYS = ("axes", *FIELDS, "attrs")
OURS = ("array", "sidecar", "xarray", NOTES)  # entries of attrs about how the cube was read


def sidecar_of(path: Path) -> Path:
    """Return the path of the sidecar of a file."""
    return path.with_name(path.name + ".json")


def load(path: Path) -> dict[str, Any]:
    """Return the sidecar of a file, or {} if it has none."""
    side = sidecar_of(path)
    return parse(side.read_bytes(), side) if is_there(side) else {}


def mark(path: Path, mark: Mark) -> None:
    """Add the mark of a filled cube to the sidecar of a file; everything else in it stays."""
    entries = load(path)
    attrs = entries.get("attrs")
    entries["attrs"] = {**(attrs if isinstance(attrs, dict) else {}), **mark.attributes}
    _put(path, entries)


def declare(path: Path, nodata: float) -> None:
    """Add a nodata value to the sidecar of a file, which may not exist yet."""
    _put(path, {**load(path), "nodata": _finite(nodata)})


def _put(path: Path, entries: Mapping[str, Any]) -> None:
    """Write the sidecar of a file; a NaN in an existing one is kept, although it is no JSON."""
    sidecar_of(path).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def _finite(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and Inf as text."""
    return value if math.isfinite(value) else str(value)


def parse(text: str | bytes, path: Path) -> dict[str, Any]:
    """Parse metadata; CubeFormatError unless it is a JSON object."""
    with parsing(path, "JSON metadata", "correct or remove it"):
        entries = json.loads(text)
    if not isinstance(entries, dict):
        raise CubeFormatError(f"{path}: expected a JSON object of metadata; correct or remove it")
    return entries


def as_json(cube: Cube, axes: tuple[str, ...]) -> dict[str, Any]:
    """Return, for JSON, all fields of a cube but its values, and the other keys of its sidecar."""
    good = None if cube.good is None else [int(g) for g in cube.good]
    nodata, mark = cube.nodata, {} if cube.mark is None else cube.mark.attributes
    entries: dict[str, Any] = {
        "axes": ",".join(axes),
        "wavelengths": plain(cube.wavelengths),
        "wavelength_units": cube.wavelength_units,
        "fwhm": plain(cube.fwhm),
        "good": good,
        "nodata": None if nodata is None else _finite(nodata),
        "crs": cube.crs,
        "transform": plain(cube.transform),
        "band_names": plain(cube.band_names),
        "attrs": {k: v for k, v in plain(cube.attrs).items() if k not in OURS} | mark,
    }
    return {**plain(cube.attrs.get("sidecar", {})), **entries}


def dumps(entries: Mapping[str, Any]) -> str:
    """Return metadata as JSON text; ValueError for NaN and Inf, which JSON cannot hold."""
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return the part of a value that JSON can hold; everything else is left out."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if _keeps(v)}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value if _keeps(v)]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _keeps(value: Any) -> bool:
    """Return whether a value is of a type that `plain` can convert."""
    kinds = (str, int, float, type(None), list, tuple, Mapping, np.ndarray, np.generic)
    return isinstance(value, kinds)


def array_cube(
    path: Path,
    name: str,
    shapes: variables.Shapes,
    dtype: np.dtype[Any],
    entries: Mapping[str, Any],
    mark: str | None,
    axis: str | None,
    load: Callable[[str], Array],
    window: Callable[[ax.Axes, Block], Array] | None = None,
) -> Cube:
    """Return one of the arrays of a file as a lazy cube.

    shapes: of the numeric arrays, by name.  entries: metadata of the cube.  mark: `Mark.json` of a
    filled cube.  axis: the order of axes, if the user gives it.  load: returns an array by name.
    window: returns a block (bands, rows, cols) of the cube; None takes blocks of the whole array,
    loaded with `load`.
    """
    axes, notes = axes_of(path, shapes[name], axis, entries, variables.band_count(shapes))
    shape = ax.cube_shape(shapes[name], axes)

    def read(*block: slice) -> Array:
        with parsing(path, "a complete file"):
            # a copy, so that changing a returned block does not change later ones
            return ax.as_cube(load(name), axes)[block].copy()

    lazy = Lazy(shape, dtype, read if window is None else lambda *block: window(axes, block))
    entries = {**variables.companions(shapes, shape[0], load), **entries}
    if mark is not None:
        entries["attrs"] = {**(entries.get("attrs") or {}), **from_json(mark)}
    return cube_from(lazy, entries, path, {"var": name, "axes": ",".join(axes)}, notes)


def axes_of(
    path: Path,
    shape: tuple[int, ...],
    axis: str | None,
    entries: Mapping[str, Any],
    bands: int | None = None,
) -> tuple[ax.Axes, dict[str, str]]:
    """Return the axes of an array in a file, and a note if nothing but habit decided.

    bands: the number of wavelengths in the file; by default that of its metadata.
    """
    declared, listed = ax.declared_by(axis, entries, shape), entries.get("wavelengths")
    bands = len(listed) if isinstance(listed, list) else bands
    axes = ax.resolve(shape, declared, path, bands)
    if declared is not None or not ax.is_guess(shape, bands):
        return axes, {}
    order = f'"axes": "{",".join(ax.CUBE)}"'
    note = f"not given, and taken as {', '.join(axes)}; if that is wrong, put {{{order}}} into "
    return axes, {"axes": note + sidecar_of(path).name}


def cube_from(
    values: Values,
    entries: Mapping[str, Any],
    path: Path,
    array: Mapping[str, Any],
    notes: Mapping[str, str],
) -> Cube:
    """Return a cube from its values and JSON metadata.

    array: variable and axes in the file.  notes: assumptions about them.
    """
    foreign = {k: v for k, v in entries.items() if k not in KEYS}
    attrs = {**(entries.get("attrs") or {}), "array": dict(array)}
    if notes:
        attrs[NOTES] = dict(notes)
    if foreign:
        attrs["sidecar"] = foreign
    for name in PER_BAND:
        if (entry := entries.get(name)) is not None:
            check_count(np.size(entry), values.shape[0], f"under {name} in its metadata", path)
    if not _is_geotiff_box(attrs.get("geotiff", {})):
        raise CubeFormatError(
            f"{path}: the entry geotiff of its metadata is damaged; correct or remove it"
        )
    with parsing(path, "a cube with metadata", "correct its metadata"):
        names, nodata, transform = (entries.get(k) for k in ("band_names", "nodata", "transform"))
        return Cube(
            values=values,
            wavelengths=_array(entries.get("wavelengths"), np.float64),
            wavelength_units=entries.get("wavelength_units"),
            fwhm=_array(entries.get("fwhm"), np.float64),
            good=_array(entries.get("good"), np.bool_),
            nodata=None if nodata is None else float(nodata),
            crs=entries.get("crs"),
            transform=None if transform is None else tuple(float(t) for t in transform),
            band_names=None if names is None else tuple(str(n) for n in names),
            attrs=attrs,
        )


def _is_geotiff_box(box: Any) -> bool:
    """Return whether a value from JSON is what `hydiff.io.geotiff` puts into `Cube.attrs`."""

    def listed(key: str, *kinds: type) -> bool:
        """Return whether an entry is absent or a list of items of these types."""
        entry = box.get(key, [])
        return isinstance(entry, list) and all(isinstance(item, kinds) for item in entry)

    def tags(spaces: Any) -> bool:
        """Return whether a value maps each namespace to tags that are text."""
        boxes = spaces.values() if isinstance(spaces, Mapping) else [None]
        return all(
            isinstance(b, Mapping) and all(isinstance(v, str) for v in b.values()) for b in boxes
        )

    return (
        isinstance(box, Mapping)
        and tags(box.get("tags", {}))
        and listed("band_tags", dict)
        and all(tags(spaces) for spaces in box.get("band_tags", []))
        and listed("scales", int, float)
        and listed("offsets", int, float)
        and listed("units", str, type(None))
        and listed("colorinterp", str)
    )


def _array(entry: Any, dtype: Any) -> Any:
    return None if entry is None else np.asarray(entry, dtype=dtype)
