"""Zarr stores as xarray and rioxarray write them: what xarray reads in them, hydiff reads too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import xarray

import products
from hydiff import io
from hydiff.cube import Array
from hydiff.io import transfer

SHAPE = BANDS, ROWS, COLS = 6, 8, 9
WAVES = np.linspace(450, 900, BANDS)
DIMS = ("wavelength", "y", "x")
ZARR = pytest.mark.parametrize("version", [2, 3])


def scene(*lead: int) -> Array:
    values = products.scene(*SHAPE)
    values[:, 2:4, 3:5] = np.nan
    return np.broadcast_to(values, (*lead, *SHAPE)).copy()


def stored(path: Path, values: Array, dims: tuple[str, ...], version: Any, **encoding: Any) -> Any:
    """Write a store as xarray does, with places on a map, and return what xarray reads in it."""
    along: dict[str, Any] = {
        "y": 5e6 - 30.0 * np.arange(ROWS),
        "x": 5e5 + 30.0 * np.arange(COLS),
        "wavelength": ("wavelength", WAVES, {"units": "nm"}),
    }
    coords = {name: entry for name, entry in along.items() if name in dims}
    array = xarray.DataArray(values, dims=dims, coords=coords, name="cube")
    array.to_dataset().to_zarr(
        path, zarr_format=version, consolidated=False, encoding={"cube": encoding}
    )
    return opened(path)


def opened(path: Path) -> Any:
    return xarray.open_zarr(path, consolidated=False)["cube"].load()


@ZARR
@pytest.mark.parametrize(
    ("dims", "lead"),
    [
        (DIMS, ()),
        (("time", *DIMS), (1,)),
        (("time", "height", *DIMS), (1, 1)),
        (("wavelength", "time", "y", "x"), (1,)),
        (("y", "x", "time", "wavelength"), (1,)),
    ],
)
def test_axes_go_by_their_names(
    version: int, dims: tuple[str, ...], lead: tuple[int, ...], tmp_path: Path
) -> None:
    named = xarray.DataArray(scene(*lead), dims=(*sorted(set(dims) - set(DIMS))[::-1], *DIMS))
    read = stored(tmp_path / "x.zarr", named.transpose(*dims).values, dims, version)
    cube = io.read(tmp_path / "x.zarr")
    np.testing.assert_array_equal(np.asarray(cube.values), read.squeeze().transpose(*DIMS))
    np.testing.assert_array_equal(cube.wavelengths, WAVES)
    assert cube.transform == (30, 0, 5e5 - 15, 0, -30, 5e6 + 15)


@pytest.mark.parametrize("dims", [("y", "x"), ("x", "y")])
def test_so_do_the_axes_of_a_plane(dims: tuple[str, str], tmp_path: Path) -> None:
    plane = xarray.DataArray(scene()[0], dims=("y", "x")).transpose(*dims)
    stored(tmp_path / "x.zarr", plane.values, dims, 2)
    np.testing.assert_array_equal(np.asarray(io.read(tmp_path / "x.zarr").values)[0], scene()[0])


@ZARR
@pytest.mark.parametrize(
    "encoding",
    [
        {"missing_value": -9999},
        {"_FillValue": -9999},
        {"_FillValue": -9999, "missing_value": -9999},
        {"_FillValue": -9999, "scale_factor": 0.001, "add_offset": 0.5},
    ],
)
def test_what_xarray_decodes_as_missing_is_missing(
    version: int, encoding: Mapping[str, Any], tmp_path: Path
) -> None:
    read = stored(tmp_path / "x.zarr", scene(), DIMS, version, dtype="i2", **encoding)
    cube = io.read(tmp_path / "x.zarr")
    np.testing.assert_array_equal(~cube.observed(), read.isnull())


@ZARR
@pytest.mark.parametrize("target", ["tif", "img", "zarr"])
def test_the_scale_of_the_values_goes_along(version: int, target: str, tmp_path: Path) -> None:
    """Also to another store, which xarray can still decode, by way of any format."""
    encoding = {"_FillValue": -9999, "scale_factor": 0.001, "add_offset": 0.5}
    read = stored(tmp_path / "x.zarr", scene(), DIMS, version, dtype="i2", **encoding)
    path = tmp_path / f"y.{target}"
    if target == "zarr":
        io.write(io.read(tmp_path / "x.zarr").window(), path)
        written = opened(path)
    else:
        transfer.convert(tmp_path / "x.zarr", path)
        scale, offset = gains(path)
        written = np.asarray(io.read(path).values) * scale + offset
        transfer.convert(path, tmp_path / "z.zarr")
        opened(tmp_path / "z.zarr")
    np.testing.assert_allclose(written, np.where(read.isnull(), written, read), rtol=1e-6)


def gains(path: Path) -> tuple[float, float]:
    """Gain and offset of the first band."""
    if path.suffix == ".tif":
        with rasterio.open(path) as dataset:
            return dataset.scales[0], dataset.offsets[0]
    attrs = io.read(path).attrs
    return float(attrs["data gain values"][0]), float(attrs["data offset values"][0])


def test_coordinates_come_before_a_transform_that_a_selection_left(tmp_path: Path) -> None:
    """`isel` of xarray keeps the GeoTransform of rioxarray as it was."""
    values = stored(tmp_path / "x.zarr", scene(), DIMS, 2).drop_encoding()
    mapping = {"crs_wkt": products.UTM.to_wkt(), "GeoTransform": "499985 30 0 5000015 0 -30"}
    values = values.assign_coords(spatial_ref=((), 0, mapping))
    part = values.isel(y=slice(2, None), x=slice(3, None))
    for name, array in (("whole", values), ("part", part)):
        array.to_dataset().to_zarr(tmp_path / f"{name}.zarr", zarr_format=2)
    whole, cut = io.read(tmp_path / "whole.zarr"), io.read(tmp_path / "part.zarr")
    assert whole.transform == (30, 0, 499985, 0, -30, 5000015)
    assert cut.transform == whole.window(slice(2, None), slice(3, None)).transform
    assert cut.crs == whole.crs is not None


@ZARR
def test_the_time_of_an_axis_of_length_1_is_kept(version: Any, tmp_path: Path) -> None:
    time = np.array(["2024-05-06T07:08:09"], "datetime64[ns]")
    array = xarray.DataArray(scene(1), dims=("time", *DIMS), coords={"time": time}, name="cube")
    array.to_dataset().to_zarr(tmp_path / "x.zarr", zarr_format=version, consolidated=False)
    assert str(io.read(tmp_path / "x.zarr").attrs["time"]).startswith("2024-05-06T07:08:09")
