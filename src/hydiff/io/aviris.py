"""AVIRIS-NG and AVIRIS-3 as netCDF4: the cube in a separate group, on a map grid.

The cube is `reflectance/reflectance` or `radiance/radiance` (wavelength, rows, cols), with
`wavelength` and `fwhm` beside it; the root variable `transverse_mercator` describes the map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydiff.cube import Cube
from hydiff.io import hdf5, maps
from hydiff.io.axes import CUBE
from hydiff.io.marks import always
from hydiff.io.parsing import damaged, parsing

SUFFIXES = (".nc",)
keeps_mark = always
GROUPS = ("reflectance", "radiance")
FILL = -9999.0
MAPPING = "transverse_mercator"  # the usual name of the variable that describes the map


def matches(path: Path) -> bool:
    """Return whether a file has a group `reflectance` or `radiance` at its root."""
    names = hdf5.members(path)
    if not names or not names & set(GROUPS):
        return False
    import h5py

    with hdf5.open_file(path) as file:
        return any(isinstance(file.get(name), h5py.Group) for name in GROUPS)


def read(path: Path, var: str | None = None) -> Cube:
    with parsing(path, "an AVIRIS netCDF file"), hdf5.open_file(path) as file:
        part = _part(file, path)
        group = file[part.name].parent
        wavelengths = hdf5.numbers(group, "wavelength", part.bands, path)
        units = None if wavelengths is None else group["wavelength"].attrs.get("units", "nm")
        stated = str(hdf5.plain(file[part.name].attrs.get("grid_mapping", MAPPING)))
        mapping = getattr(file.get(stated, file.get(MAPPING)), "attrs", {})
        return hdf5.cube_of(
            *(path, file, [part], part.name),
            wavelengths=wavelengths,
            wavelength_units=None if units is None else str(hdf5.plain(units)),
            fwhm=hdf5.numbers(group, "fwhm", part.bands, path),
            nodata=hdf5.number(file[part.name].attrs, "_FillValue", FILL),
            crs=hdf5.plain(mapping.get("spatial_ref", mapping.get("crs_wkt"))),
            transform=maps.from_gdal(hdf5.plain(mapping.get("GeoTransform"))),
            attrs=hdf5.texts(file.attrs) | hdf5.unit(file[part.name]),
        )


def write(cube: Cube, path: Path) -> list[Path]:
    """Refuse: such a file can only be written as a copy of its source, see `rewrite`."""
    hdf5.refuse_write("an AVIRIS netCDF file")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    with hdf5.open_file(source) as file:
        part = _part(file, source)
    return hdf5.rewrite(source, path, cube, [part])


def _part(file: Any, path: Path) -> hdf5.DatasetPart:
    """Locate the cube: the first of GROUPS with a three-axis dataset of the same name."""
    for group in GROUPS:
        dataset = file.get(f"{group}/{group}")
        if dataset is not None and dataset.ndim == 3:
            return hdf5.DatasetPart(f"{group}/{group}", CUBE, dataset.shape[0])
    raise damaged(path, "expected `reflectance/reflectance` or `radiance/radiance` with three axes")
