"""AVIRIS-NG and AVIRIS-3 as netCDF4: the cube in a group of its own, on a map grid.

`reflectance/reflectance` or `radiance/radiance` (wavelength, rows, cols) beside `wavelength` and
`fwhm`; the root variable `transverse_mercator` carries the map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Cube
from hydiff.errors import CubeFormatError
from hydiff.io import hdf5
from hydiff.io.axes import CUBE
from hydiff.io.parsing import parsing

SUFFIXES = (".nc",)
GROUPS = ("reflectance", "radiance")
FILL = -9999.0


def matches(path: Path) -> bool:
    found = hdf5.members(path)
    if not found or not found & set(GROUPS):
        return False
    import h5py

    with hdf5.opened(path) as file:
        return any(isinstance(file.get(name), h5py.Group) for name in GROUPS)


def read(path: Path, var: str | None = None) -> Cube:
    with parsing(path, "an AVIRIS netCDF file"), hdf5.opened(path) as file:
        part = _part(file, path)
        group = file[part.name].parent
        wavelengths = hdf5.numbers(group, "wavelength", part.bands, path)
        fill = file[part.name].attrs.get("_FillValue")
        crs, transform = _map(file)
        return Cube(
            values=hdf5.values(path, file, [part]),
            wavelengths=wavelengths,
            wavelength_units=None
            if wavelengths is None
            else str(hdf5.plain(group["wavelength"].attrs.get("units", "nm"))),
            fwhm=hdf5.numbers(group, "fwhm", part.bands, path),
            nodata=FILL if fill is None else float(hdf5.plain(fill)),
            crs=crs,
            transform=transform,
            mark=hdf5.marked(path, file, [part]),
            attrs={
                **hdf5.texts(file.attrs),
                "array": {"var": part.name, "axes": ",".join(CUBE)},
            },
        )


def write(cube: Cube, path: Path) -> list[Path]:
    raise hdf5.only_as_a_copy("an AVIRIS netCDF file")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    with hdf5.opened(source) as file:
        part = _part(file, source)
    return hdf5.rewrite(source, path, cube, [part])


def _part(file: Any, path: Path) -> hdf5.DatasetPart:
    for group in GROUPS:
        dataset = file.get(f"{group}/{group}")
        if dataset is not None and dataset.ndim == 3:
            return hdf5.DatasetPart(f"{group}/{group}", CUBE, dataset.shape[0])
    raise CubeFormatError(
        f"{path}: expected `reflectance/reflectance` or `radiance/radiance` with three axes; "
        "the product is incomplete, fetch it again"
    )


def _map(file: Any) -> tuple[str | None, tuple[float, ...] | None]:
    """CRS and affine transform of the grid mapping."""
    mapping = file.get("transverse_mercator")
    if mapping is None:
        return None, None
    crs, text = (hdf5.plain(mapping.attrs.get(key)) for key in ("spatial_ref", "GeoTransform"))
    ends = np.array(str(text).split() if isinstance(text, str) else text, dtype=np.float64)
    if ends.shape != (6,):
        return crs, None
    c, a, b, f, d, e = ends.tolist()
    return crs, (a, b, c, d, e, f)
