"""A UDF for openEO: fill the gaps of a cube, each date from itself.

context: options of `array.hydiff.fill`, such as {"method": "smooth"}.
"""

import xarray as xr
from openeo.udf import XarrayDataCube

import hydiff.xarray  # noqa: F401 - registers `.hydiff`


def apply_datacube(cube: XarrayDataCube, context: dict) -> XarrayDataCube:
    array, options = cube.get_array(), {"outside": "fill", **(context or {})}
    if "t" not in array.dims:
        return XarrayDataCube(_filled(array, options))
    dates = [_filled(array.isel(t=i), options) for i in range(array.sizes["t"])]
    return XarrayDataCube(xr.concat(dates, dim=array["t"]).transpose(*array.dims))


def _filled(array, options):
    return array.hydiff.fill(**options).drop_vars(["filled", "sigma"], errors="ignore")
