"""The cube, and the arrays that describe it, in files of several named arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.errors import CubeFormatError, UnknownName

Shapes = Mapping[str, tuple[int, ...]]

Coordinate = tuple[tuple[str, ...], Array, dict[str, Any]]  # dimensions, values, attributes

MAPPING = "spatial_ref"  # the variable with the CRS, as rioxarray names it
# units of time by CF, in microseconds
STEPS = {"day": 86_400e6, "hour": 3_600e6, "minute": 60e6, "second": 1e6}
STEPS |= {"millisecond": 1e3, "microsecond": 1.0, "nanosecond": 1e-3}
SINCE = re.compile(rf"({'|'.join(STEPS)})s? since ([\d:T. -]+)")
UNITS = {"_nm": "Nanometers", "_um": "Micrometers"}


class Several(CubeFormatError):
    """More than one variable may be the one that is wanted."""

    def __init__(self, shapes: Shapes, path: Path) -> None:
        self.first, self.listing = next(iter(shapes)), _listing(shapes)
        super().__init__(
            f"{path}: more than one variable may be the cube{self.listing}; "
            f"choose one with `var={self.first}`"
        )


def choose(shapes: Shapes, var: str | None, path: Path) -> str:
    """Return the name of the variable that holds the cube, out of the numeric ones.

    `var` decides; else the one called `cube`; else the only one with three axes; else, in a
    file without any, the only one with two.
    """
    if var is not None:
        if var not in shapes:
            raise UnknownName(f"variable in {path.name}", var, shapes, _listing(shapes))
        return var
    if len(shapes.get("cube", ())) > 1:
        return "cube"
    for axes in (3, 2):
        candidates = {name: shape for name, shape in shapes.items() if _long(shape) == axes}
        if len(candidates) == 1:
            return next(iter(candidates))
        if candidates:
            raise Several(candidates, path)
    raise CubeFormatError(f"{path}: expected an array of 2 or 3 axes{_listing(shapes)}")


def _long(shape: tuple[int, ...]) -> int:
    """Return the number of axes longer than 1."""
    return sum(n > 1 for n in shape)


def _listing(shapes: Shapes) -> str:
    """List the variables and their shapes, for a message."""
    return "; found " + (", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none")


def name_of(cube: Cube) -> str:
    """Return the variable to write a cube to: the one that it was read from, else `cube`."""
    return str(cube.attrs.get("array", {}).get("var") or "cube")


def band_count(shapes: Shapes) -> int | None:
    """Return the length of the variable with the wavelengths, or None if there is none."""
    named = (shape for name, shape in shapes.items() if name.lower().startswith("wavelength"))
    return next((max(shape) for shape in named if shape and _long(shape) == 1), None)


def companions(shapes: Shapes, bands: int, load: Callable[[str], Array]) -> dict[str, Any]:
    """Return wavelengths and fwhm, if the file has variables of them with one entry per band."""
    fields: dict[str, Any] = {}
    for name, shape in shapes.items():
        if _long(shape) > 1 or int(np.prod(shape)) != bands or not shape:
            continue
        if name.lower().startswith("wavelength") and "wavelengths" not in fields:
            fields["wavelengths"] = np.asarray(load(name), dtype=np.float64).ravel()
            if name[-3:].lower() in UNITS:
                fields["wavelength_units"] = UNITS[name[-3:].lower()]
        if name.lower() == "fwhm":
            fields["fwhm"] = np.asarray(load(name), dtype=np.float64).ravel()
    return fields


def text_of(value: Array, attributes: Mapping[str, Any]) -> str | None:
    """Return an array of one number or text as text, times in ISO 8601; None if it is neither.

    attributes: of the array; by CF the unit of a time is such as "days since 2024-07-01".
    """
    if value.dtype.kind in "mM":
        return str(value)
    if value.dtype.kind not in "biufUT":
        return None
    since = SINCE.match(str(attributes.get("units", "")))
    if since is None or value.dtype.kind not in "iuf" or not np.isfinite(value):
        return str(value)
    try:
        passed = np.timedelta64(round(float(value) * STEPS[since[1]]), "us")
        return str(np.datetime64(since[2].strip().replace(" ", "T"), "us") + passed)
    except (ValueError, OverflowError):  # no date of this calendar
        return f"{value} {attributes['units']}"


def coordinates(cube: Cube) -> dict[str, Coordinate]:
    """Return the coordinates to write with a cube, by name: of its bands, and on the map."""
    arrays: dict[str, Coordinate] = {}
    units = {} if cube.wavelength_units is None else {"units": cube.wavelength_units}
    for name, data, attributes in (
        ("wavelength", cube.wavelengths, units),
        ("fwhm", cube.fwhm, units),
        ("good", None if cube.good is None else cube.good.astype(np.int8), {}),
    ):
        if data is not None:
            arrays[name] = (("band",), np.asarray(data), attributes)
    if cube.transform is None and cube.crs is None:
        return arrays
    mapping = {} if cube.crs is None else {"crs_wkt": cube.crs}
    if cube.transform is not None:
        a, b, c, d, e, f = cube.transform
        mapping["GeoTransform"] = " ".join(repr(float(end)) for end in (c, a, b, f, d, e))
        if b == d == 0:
            arrays["y"] = (("y",), f + e * (np.arange(cube.shape[1]) + 0.5), {})
            arrays["x"] = (("x",), c + a * (np.arange(cube.shape[2]) + 0.5), {})
    arrays[MAPPING] = ((), np.array(0, np.int64), mapping)
    return arrays
