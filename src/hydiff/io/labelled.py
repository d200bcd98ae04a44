"""The cube in a DataArray or Dataset of xarray, with the rule for missing values of its product."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hydiff.cube import WAVELENGTHS, Cube, as_cube, band_axis, dim_names
from hydiff.errors import BadValue, UnknownName
from hydiff.io import emit

if TYPE_CHECKING:
    import xarray

PER_BAND = (*WAVELENGTHS, "fwhm", "good", "good_wavelengths", "bbl")  # variables with band metadata
LAYERS = ("filled", "sigma")  # coordinates that a fill adds; variables NAME_filled, NAME_sigma


def only_array(data: Any) -> Any:
    """Return a Dataset's only variable with three axes; arrays as they are; lists as arrays."""
    if hasattr(data, "data_vars"):
        return variable(data)[1]
    return data if hasattr(data, "shape") else np.asarray(data)


def variable(
    dataset: xarray.Dataset, name: str | None = None, *, call: str = "hydiff.fill(dataset[{!r}])"
) -> tuple[str, xarray.DataArray]:
    """Return the name and the array of a variable, with band metadata as coordinates.

    name: by default that of the only variable of three dimensions that is no layer of a fill.
    call: what to type instead if there are several; `{!r}` stands for the name.
    """
    layers = {f"{k}_{layer}" for k in dataset.data_vars for layer in LAYERS}
    cubes = [str(k) for k, v in dataset.data_vars.items() if v.ndim == 3 and k not in layers]
    if name is None and len(cubes) != 1:
        listed = ", ".join(cubes) or "none"
        raise BadValue(
            f"a Dataset with one variable of three dimensions was expected, found {listed}; "
            f"name it, such as {call.format((cubes or ['NAME'])[0])}"
        )
    name = cubes[0] if name is None else name
    if name not in dataset.data_vars:
        raise UnknownName("variable of the Dataset", name, cubes)
    array = dataset[name]
    per_band = {k: dataset[k] for k in PER_BAND if k in dataset.data_vars}
    coordinates = {
        k: v for k, v in per_band.items() if v.ndim == 1 and set(v.dims) <= set(array.dims)
    }
    return name, array.assign_coords(coordinates)


def like_array(mask: Any, array: Any) -> Any:
    """Return a mask without names that has the shape of a DataArray with the dimensions of it, if
    these are known; any other mask unchanged."""
    named = hasattr(array, "dims") and not hasattr(mask, "dims") and array.ndim == 3
    if not named or np.shape(mask) != array.shape or band_axis(dim_names(array)) is None:
        return mask
    import xarray

    return xarray.DataArray(mask, dims=array.dims)


def cube_of(array: Any) -> Cube:
    """Return an array as a cube; a DataArray with the rule for missing values of its product."""
    if not hasattr(array, "dims"):
        return as_cube(array)
    cube = Cube.from_xarray(array.drop_vars(LAYERS, errors="ignore"))
    if {"downtrack", "crosstrack"} <= set(array.dims) and array.name in emit.MEASURED:
        return replace(cube, missing_rule=emit.flagged, withheld_rule=emit.cloudy)
    return cube
