"""The accessor `.hydiff` of DataArrays and Datasets, with fill, gaps and score.

`import hydiff.xarray` registers it.  The band dimension is found by its name, or by the CF
attributes of its coordinates.  An array in memory is filled at once; an array of Dask chunks is
filled by tiles when it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import api, metrics
from hydiff.cube import band_axis, band_order, dim_names
from hydiff.errors import BadValue, ShapeMismatch, need
from hydiff.gaps.census import Census, census
from hydiff.gaps.rule import measured_entries
from hydiff.io import labelled
from hydiff.io.labelled import LAYERS, cube_of, like_array
from hydiff.io.marks import FLAG_ATTRIBUTES, FLAG_VALUES, linked
from hydiff.io.versions import versions
from hydiff.mark import Mark, now
from hydiff.metrics import Scores
from hydiff.request import ARGUMENTS, Request
from hydiff.result import in_unit_of
from hydiff.scale import chunked
from hydiff.scale.layout import Limits, limits

need("xarray", "xarray", "`import hydiff.xarray`")
import xarray as xr  # noqa: E402 - the package, once it is known to be there


@xr.register_dataarray_accessor("hydiff")
class ArrayAccessor:
    """`array.hydiff`: a DataArray with dimensions for bands, rows and columns."""

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    def fill(
        self,
        observed: Any = None,
        *,
        missing: Any = None,
        memory: str | None = None,
        tile: int | None = None,
        overlap: int | None = None,
        **options: Any,
    ) -> xr.DataArray:
        """Return the array with its gaps filled.

        Dimensions, coordinates, attributes and encoding are kept.  Two coordinates with the
        dimensions of the array are added: `filled`, True where a value was filled, and `sigma`, its
        1-σ error, if the method gives one.  The attribute `ancillary_variables` names them.  Those
        of an array that was filled before keep what the earlier fill says of its entries.

        observed, missing: a boolean DataArray or array, or a mask file, as for `hydiff.fill`.
        memory, tile, overlap: for an array of Dask chunks, as for the command `hydiff fill`.
        options: of `hydiff.fill`; the default of `outside` is "keep", as for the command.
        """
        _check_dims(self._array)
        options = {"outside": "keep"} | options
        masks = {"observed": observed, "missing": missing}
        masks = {name: like_array(mask, self._array) for name, mask in masks.items()}
        if self._array.chunks is not None:
            sizes = _limits(memory, tile, overlap)
            return _with_earlier(_filled_in_chunks(self._array, masks, sizes, options), self._array)
        tiling = {"memory": memory, "tile": tile, "overlap": overlap}
        if inapplicable := [f"`{name}=`" for name, value in tiling.items() if value is not None]:
            raise BadValue(
                f"{', '.join(inapplicable)}: goes with an array of Dask chunks, and this one is in "
                "memory; leave it out, or chunk the array first"
            )
        result = api.fill(cube_of(self._array), **masks, **options)
        layers = {"filled": result.filled, "sigma": result.sigma}
        return _with_earlier(_with_layers(result.cube.to_xarray(), layers), self._array)

    def gaps(self, nodata: Any = None, nodata_in: str | None = None) -> Census:
        """Return a census of the missing entries: their number, position and width.

        The array is loaded.  nodata, nodata_in: as for `hydiff.fill`.
        """
        _check_dims(self._array)
        cube = cube_of(self._array.compute())
        observed, _ = measured_entries(cube, None, nodata, nodata_in)
        return census(observed, cube.good, detectors=cube.detectors)

    def score(self, truth: xr.DataArray, missing: Any = None) -> Scores:
        """Compare this array with the truth, everywhere and on the entries that were missing.

        missing: boolean mask; by default the coordinate `filled`, if the array has it.
        """
        _check_dims(self._array)
        _check_dims(truth)
        if missing is None and "filled" in self._array.coords:
            missing = self._array.coords["filled"]
        missing = like_array(missing, self._array)
        return metrics.score(cube_of(self._array.compute()), cube_of(truth.compute()), missing)


@xr.register_dataset_accessor("hydiff")
class DatasetAccessor:
    """`dataset.hydiff`: the same methods for a variable of a Dataset, by default its only cube."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def fill(self, name: str | None = None, *args: Any, **options: Any) -> xr.Dataset:
        """Return the Dataset with a variable filled, and with NAME_filled and NAME_sigma added.

        NAME_sigma is only added if the method gives error bars.
        """
        name, array = self._variable(name)
        earlier = {k: self._dataset.get(f"{name}_{k}") for k in LAYERS}
        array = array.assign_coords({k: v for k, v in earlier.items() if v is not None})
        filled = array.hydiff.fill(*args, **options)
        layers = {layer: f"{name}_{layer}" for layer in LAYERS if layer in filled.coords}
        names = self._dataset[name].attrs.get("ancillary_variables", "")
        for layer in layers.values():
            names = linked(names, layer)
        values = filled.variable.copy(deep=False)
        values.attrs["ancillary_variables"] = names
        new = {layers[layer]: filled.coords[layer].variable for layer in layers}
        return self._dataset.assign({name: values, **new})

    def gaps(self, name: str | None = None, **nodata: Any) -> Census:
        """Return `DataArray.hydiff.gaps` of a variable."""
        census: Census = self._variable(name)[1].hydiff.gaps(**nodata)
        return census

    def score(
        self, truth: xr.Dataset | xr.DataArray, name: str | None = None, missing: Any = None
    ) -> Scores:
        """Return `DataArray.hydiff.score` of a variable.

        truth: a Dataset with a variable of the same name, or a DataArray.
        """
        name, array = self._variable(name)
        if missing is None and f"{name}_filled" in self._dataset:
            missing = self._dataset[f"{name}_filled"]
        other = truth.hydiff.variable(name) if isinstance(truth, xr.Dataset) else truth
        scores: Scores = array.hydiff.score(other, missing)
        return scores

    def variable(self, name: str | None = None) -> xr.DataArray:
        """Return a cube of the Dataset, with variables of band metadata as coordinates."""
        return self._variable(name)[1]

    def _variable(self, name: str | None) -> tuple[str, xr.DataArray]:
        """Return the name and the array of a variable, by default the only cube; see `variable`."""
        return labelled.variable(self._dataset, name, call="dataset.hydiff.fill({!r})")


# --- from and to xarray ---------------------------------------------------------------------------


def _check_dims(array: xr.DataArray) -> None:
    """Raise an error unless the array has three dimensions, one of them a known band dimension."""
    if not isinstance(array, xr.DataArray):
        raise BadValue(
            f"expected a DataArray with dimensions for bands, rows and columns, found "
            f"{type(array).__name__}; give it names, such as xr.DataArray(values, dims=array.dims)"
        )
    if array.ndim != 3:
        extra = [d for d in array.dims if str(d).lower() in ("time", "date", "t")]
        hint = f"; take one, such as isel({extra[0]}=0)" if extra else ""
        if array.ndim == 2:
            hint = "; give all bands or, if there is one alone, array.expand_dims('band')"
        raise ShapeMismatch(
            f"expected dimensions for bands, rows and columns, found {array.dims}{hint}"
        )
    if band_axis(dim_names(array)) is None:
        raise BadValue(
            f"none of the dimensions {array.dims} is known to have the bands; rename it, such as "
            f"array.rename({array.dims[0]}='band')"
        )


def _order(array: xr.DataArray) -> list[Any]:
    """Return the dimensions in the order bands, rows, columns."""
    return [array.dims[i] for i in band_order(dim_names(array))]


def _with_layers(array: xr.DataArray, layers: Mapping[str, Any]) -> xr.DataArray:
    """Return the array with layers (bands, rows, cols) as coordinates, named in its attributes."""
    order = _order(array)
    name = array.attrs.get("standard_name")
    attributes = {
        "filled": {**FLAG_ATTRIBUTES, "flag_values": np.array(FLAG_VALUES, np.int8)},
        "sigma": {"long_name": "1-sigma error of the values that were filled by hydiff"}
        | in_unit_of(array),
    }
    if name is not None:
        attributes["filled"]["standard_name"] = f"{name} status_flag"
        attributes["sigma"]["standard_name"] = f"{name} standard_error"
    names = array.attrs.get("ancillary_variables", "")
    for layer, values in layers.items():
        if values is not None:
            variable = xr.Variable(order, values, attributes[layer]).transpose(*array.dims)
            array = array.assign_coords({layer: variable})
            names = linked(names, layer)
    return array.assign_attrs(ancillary_variables=names)


def _with_earlier(array: xr.DataArray, before: xr.DataArray) -> xr.DataArray:
    """Return a filled array whose layers also show what an earlier fill, of `before`, filled."""
    if "filled" not in before.coords:
        return array
    new, old = array.coords["filled"].variable, before.coords["filled"].variable
    layers = {"filled": new | (old != 0) & array.variable.notnull()}
    if "sigma" in before.coords:
        old_bars = before.coords["sigma"].variable
        bars = array.coords["sigma"].variable if "sigma" in array.coords else old_bars * np.nan
        layers["sigma"] = bars.where(new, old_bars)
    order = _order(array)
    return _with_layers(array, {k: v.transpose(*order).data for k, v in layers.items()})


def _limits(memory: str | None, tile: int | None, overlap: int | None) -> Limits:
    """Return the limits of a fill by tiles.

    Arguments of a wrong type are refused here, not only when the result is computed.
    """
    if not isinstance(memory, str | None):
        raise BadValue(f"`memory={memory!r}`: expected a size such as '2GB' or '500MB'")
    for name, size in (("tile", tile), ("overlap", overlap)):
        if not isinstance(size, int | None):
            raise BadValue(f"`{name}={size!r}`: expected a whole number of pixels")
    return limits(memory, tile, overlap)


def _filled_in_chunks(
    array: xr.DataArray, masks: Mapping[str, Any], sizes: Limits, options: Mapping[str, Any]
) -> xr.DataArray:
    """Return `ArrayAccessor.fill` of a Dask array."""
    request = _request(options)
    placeholder = array.copy(data=np.broadcast_to(np.zeros((), array.dtype), array.shape))
    # only the metadata of this cube is used; all of its zeros are one element in memory
    cube, mask = api.cube_and_mask(cube_of(placeholder), **masks)
    chunks = array.transpose(*_order(array)).data
    values, filled, sigma = chunked.fill(chunks, cube, mask, request, sizes)
    variable = xr.Variable(_order(array), values).transpose(*array.dims)
    mark = Mark(math.nan, method=request.method_name, version=versions()["hydiff"], time=now())
    result = array.copy(data=variable.data).assign_attrs(mark.after(cube.mark).attributes)
    return _with_layers(result, {"filled": filled, "sigma": sigma})


def _request(options: Mapping[str, Any]) -> Request:
    """Return a request with options of `hydiff.fill`; other options are settings of the method."""
    arguments = {name: value for name, value in options.items() if name in ARGUMENTS}
    settings = {name: value for name, value in options.items() if name not in ARGUMENTS}
    if isinstance(arguments.get("recipe"), str | Path):
        from hydiff.auto import read_recipe

        arguments["recipe"] = read_recipe(arguments["recipe"])
    unsupported = [
        name for name in ("denoise", "checkpoint", "resume", "progress") if options.get(name)
    ]
    if unsupported:
        raise BadValue(
            f"{', '.join(f'`{name}=`' for name in unsupported)}: needs the whole array in memory; "
            "load it, or leave this out"
        )
    request = Request(**arguments, settings=settings) if settings else Request(**arguments)
    request.check()
    return request
