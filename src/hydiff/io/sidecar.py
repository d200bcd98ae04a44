"""Metadata as JSON: the sidecar `NAME.npy.json` of a bare array, and the text inside a mat file.

Keys: axes, wavelengths, wavelength_units, fwhm, good, nodata, crs, transform, band_names, attrs.
Keys that are not ours are kept: they travel in `Cube.attrs["sidecar"]`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Cube, Values
from hydiff.errors import CubeFormatError
from hydiff.io.headers import NOTES
from hydiff.io.parsing import check_count, parsing
from hydiff.io.regular import is_there
from hydiff.mark import Mark

# the fields of a cube that describe its values
PER_BAND = ("wavelengths", "fwhm", "good", "band_names")
FIELDS = (*PER_BAND, "wavelength_units", "nodata", "crs", "transform")
KEYS = ("axes", *FIELDS, "attrs")
OURS = ("array", "sidecar", "xarray", NOTES)  # entries of attrs that say how, not what


def sidecar_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def load(path: Path) -> dict[str, Any]:
    """The sidecar of a file, or {} when it has none."""
    side = sidecar_of(path)
    return parse(side.read_bytes(), side) if is_there(side) else {}


def mark(path: Path, mark: Mark) -> None:
    """Put the mark of a filled cube into the sidecar that a file has; all else in it stays."""
    entries = load(path)
    attrs = entries.get("attrs")
    entries["attrs"] = {**(attrs if isinstance(attrs, dict) else {}), **mark.attributes}
    # a NaN that somebody put there stays, although JSON has none
    sidecar_of(path).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def parse(text: str | bytes, path: Path) -> dict[str, Any]:
    with parsing(path, "JSON metadata", "correct or remove it"):
        entries = json.loads(text)
    if not isinstance(entries, dict):
        raise CubeFormatError(f"{path}: expected a JSON object of metadata; correct or remove it")
    return entries


def as_json(cube: Cube, axes: tuple[str, ...]) -> dict[str, Any]:
    """Every field of the cube but its values, and the sidecar keys that are not ours."""
    good = None if cube.good is None else [int(g) for g in cube.good]
    nodata, mark = cube.nodata, {} if cube.mark is None else cube.mark.attributes
    entries: dict[str, Any] = {
        "axes": ",".join(axes),
        "wavelengths": plain(cube.wavelengths),
        "wavelength_units": cube.wavelength_units,
        "fwhm": plain(cube.fwhm),
        "good": good,
        # JSON has no NaN
        "nodata": nodata if nodata is None or math.isfinite(nodata) else str(nodata),
        "crs": cube.crs,
        "transform": plain(cube.transform),
        "band_names": plain(cube.band_names),
        "attrs": {k: v for k, v in plain(cube.attrs).items() if k not in OURS} | mark,
    }
    return {**plain(cube.attrs.get("sidecar", {})), **entries}


def dumps(entries: Mapping[str, Any]) -> str:
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """The part of a value that JSON can hold; what it cannot hold is left out."""
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
    kinds = (str, int, float, type(None), list, tuple, Mapping, np.ndarray, np.generic)
    return isinstance(value, kinds)


def cube_from(
    values: Values, entries: Mapping[str, Any], path: Path, array: Mapping[str, Any]
) -> Cube:
    """A cube from its values and JSON metadata; `array` says where in the file they stand."""
    foreign = {k: v for k, v in entries.items() if k not in KEYS}
    attrs = {**(entries.get("attrs") or {}), "array": dict(array)}
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
    """Whether this is what `hydiff.io.geotiff` puts into `Cube.attrs`, come back from JSON."""

    def listed(key: str, *kinds: type) -> bool:
        entry = box.get(key, [])
        return isinstance(entry, list) and all(isinstance(item, kinds) for item in entry)

    def tags(spaces: Any) -> bool:
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
