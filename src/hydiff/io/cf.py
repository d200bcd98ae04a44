"""Axes, nodata, scale and place of an array in a Zarr store, as xarray and rioxarray write them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import BAND_DIMS, COL_DIMS, ROW_DIMS, band_order, scaling_by, transform_by
from hydiff.io import axes as ax
from hydiff.io import maps, variables
from hydiff.io.headers import number
from hydiff.io.parsing import parsing

NODATA = ("nodata", "_FillValue", "missing_value")  # attributes, the first that is present counts
SCALE = ("scale_factor", "add_offset")
KNOWN = (*BAND_DIMS, *ROW_DIMS, *COL_DIMS)


def dims_of(array: Any) -> tuple[str, ...]:
    """Return the names of the axes of an array; version 2 keeps them among the attributes."""
    names = getattr(array.metadata, "dimension_names", None)
    return tuple(names or array.attrs.get("_ARRAY_DIMENSIONS") or ())


def axes_of(array: Any, path: Path) -> ax.Axes:
    """Return the axes in stored order: by their names, else by the rule for bare arrays.

    Of more than three axes, those of length 1 whose names mean nothing here, such as a time, are
    dropped first.
    """
    dims, shape = dims_of(array), array.shape
    if len(dims) == 2 == len(shape):
        return ("cols", "rows") if _is(dims[0], COL_DIMS) and _is(dims[1], ROW_DIMS) else ax.PLANE
    single = sorted((i for i, n in enumerate(shape) if n == 1), key=lambda i: _is(dims[i], KNOWN))
    surplus = len(shape) - 3
    if len(dims) != len(shape) or not 0 <= surplus <= len(single):
        return ax.resolve(shape, None, path)
    kept = [i for i in range(len(shape)) if i not in single[:surplus]]
    order = band_order([dims[i] for i in kept])
    names = {kept[place]: name for place, name in zip(order, ax.CUBE, strict=True)}
    return tuple(names.get(i, "-") for i in range(len(shape)))


def _is(name: str, names: tuple[str, ...]) -> bool:
    return str(name).lower() in names


def dropped(array: Any, axes: ax.Axes) -> set[str]:
    """Return the names of the dimensions that are no axes of the cube."""
    return {dim for dim, axis in zip(dims_of(array), axes, strict=False) if axis == "-"}


def nodata_of(array: Any) -> float | None:
    """Return the first of the attributes NODATA: xarray writes `_FillValue` as the base64 of a
    double, or, in version 2, as the fill value, which other writers set to any number."""
    version = int(array.metadata.zarr_format)
    filler = array.fill_value if version == 2 and dims_of(array) else None
    declared = (array.attrs[name] for name in NODATA if array.attrs.get(name) is not None)
    value = next(declared, filler)
    if isinstance(value, str):
        with parsing(Path("_FillValue"), "a number or the base64 of one"):
            value = np.frombuffer(base64.b64decode(value), "<f8")[0]
    return None if value is None or np.isnan(float(value)) else float(value)


def scaling_of(array: Any, bands: int) -> dict[str, list[str]]:
    """Return the scale and offset of an array as entries of `Cube.attrs`; {} without them."""
    found = scaling_by(array.attrs, bands)
    return {key: [number(x) for x in listed] for key, listed in found.items()}


def without_codes(entries: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return header entries without those by which xarray would decode the values: as text they
    would make the array unreadable.  The scale among `attrs`, in numbers, is kept."""
    scale = {key: attrs[key] for key in SCALE if isinstance(attrs.get(key), int | float)}
    return {k: v for k, v in entries.items() if k not in (*NODATA, *SCALE)} | scale


def place_of(
    arrays: Mapping[str, Any], array: Any, axes: ax.Axes
) -> tuple[str | None, tuple[float, ...] | None]:
    """Return CRS and transform: those of rioxarray's variable with `crs_wkt` and `GeoTransform`.

    Evenly spaced coordinates come before `GeoTransform`, which a selection leaves as it was.
    """
    mapping = arrays.get(str(array.attrs.get("grid_mapping", variables.MAPPING)))
    attributes = {} if mapping is None else mapping.attrs
    stated = maps.from_gdal(str(attributes.get("GeoTransform", "")))
    y, x = (_along(arrays, array, axes, name) for name in ("rows", "cols"))
    return attributes.get("crs_wkt"), transform_by(y, x, stated)


def _along(arrays: Mapping[str, Any], array: Any, axes: ax.Axes, axis: str) -> Any:
    """Return the coordinate of an axis: the array with the name of this axis; None without one."""
    dims = dims_of(array)
    name = dims[axes.index(axis)] if dims and axis in axes else ""
    return arrays[name] if name in arrays and dims_of(arrays[name]) == (name,) else None
