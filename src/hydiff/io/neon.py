"""NEON AOP reflectance: HDF5, one site to a file, on a map grid.

`SITE/Reflectance/Reflectance_Data` (rows, cols, bands) are scaled integers; the group `Metadata`
beside it holds the wavelengths, the map, and layers about the pixels.  Attributes list the windows
of wavelengths that water vapour spoils; their bands are bad bands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import CubeFormatError, UnknownName
from hydiff.io import hdf5
from hydiff.io.envi_header import georeference
from hydiff.io.headers import FACTOR, number
from hydiff.io.maps import crs_of
from hydiff.io.marks import always
from hydiff.io.parsing import damaged, parsing

SUFFIXES = (".h5",)
keeps_mark = always
CUBE = "Reflectance/Reflectance_Data"
AXES = ("rows", "cols", "bands")
FILL = -9999.0
PIXEL_CLASSES = "Ancillary_Imagery/Haze_Cloud_Water_Map"  # of ATCOR, which made the reflectance
# flag of `--quality` -> the classes that it stands for
CLASSES = {
    "saturated": (6,),
    "cloud": (15, 16),
    "cloudshadow": (1, 22),
    "cirrus": (2, 3, 4, 8, 9, 10, 18, 19),
    "haze": (11, 12, 13, 14),
    "snow": (7,),
    "water": (17,),
    "terrain-shadow": (21,),
}


def matches(path: Path) -> bool:
    """Return whether a file has a site with reflectance in its root."""
    names = hdf5.members(path)
    if not names:
        return False
    with hdf5.open_file(path) as file:
        return any(_is_site(file, name) for name in names)


def read(path: Path, var: str | None = None) -> Cube:
    """Open a NEON file; values stay on disk, as scaled integers.

    var: the site, in a file with several.
    """
    with parsing(path, "a NEON reflectance file"), hdf5.open_file(path) as file:
        part = _part(file, path, var)
        dataset, group = file[part.name], file[part.name].parent
        spectral = group.get("Metadata/Spectral_Data")
        if spectral is None or "Wavelength" not in spectral:
            raise damaged(path, "expected Metadata/Spectral_Data/Wavelength, found none")
        wavelengths = hdf5.numbers(spectral, "Wavelength", part.bands, path)
        units = hdf5.plain(spectral["Wavelength"].attrs.get("Units", "nanometers"))
        attrs = hdf5.texts(group.attrs) | hdf5.texts(dataset.attrs)
        if "Scale_Factor" in dataset.attrs:
            attrs[FACTOR] = number(hdf5.number(dataset.attrs, "Scale_Factor", 1.0))
        crs, transform = _place(group.get("Metadata/Coordinate_System"), path)
        return hdf5.cube_of(
            *(path, file, [part], part.name.partition("/")[0]),
            wavelengths=wavelengths,
            wavelength_units=str(units),
            fwhm=hdf5.numbers(spectral, "FWHM", part.bands, path),
            good=_outside_windows(wavelengths, group.attrs),
            nodata=hdf5.number(dataset.attrs, "Data_Ignore_Value", FILL),
            crs=crs,
            transform=transform,
            attrs=attrs,
        )


def write(cube: Cube, path: Path) -> list[Path]:
    """Refuse: such a file can only be written as a copy of its source, see `rewrite`."""
    hdf5.refuse_write("a NEON reflectance file")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the changed entries of its cube."""
    with hdf5.open_file(source) as file:
        part = _part(file, source, cube.attrs["array"]["var"])
    return hdf5.rewrite(source, path, cube, [part])


def pixel_classes(path: Path) -> Any:
    """(rows, cols) class that ATCOR assigned to each pixel; None if the file has no such layer, or
    several sites, between which there is no way to choose."""
    with parsing(path, "a NEON reflectance file"), hdf5.open_file(path) as file:
        if len(_sites(file)) > 1:
            return None
        layer = file[_part(file, path, None).name].parent.get(f"Metadata/{PIXEL_CLASSES}")
        return None if layer is None else np.asarray(layer[()])


# --- inside the file ------------------------------------------------------------------------------


def _is_site(file: Any, name: str) -> bool:
    """Return whether a member of the root is a group with the dataset CUBE of three axes."""
    cube = file[name].get(CUBE) if hasattr(file[name], "get") else None
    return len(getattr(cube, "shape", ())) == 3


def _sites(file: Any) -> list[str]:
    return [name for name in file if _is_site(file, name)]


def _part(file: Any, path: Path, site: str | None) -> hdf5.DatasetPart:
    """Locate the cube of a site; `site` may be None if the file has only one."""
    sites = _sites(file)
    if not sites:
        hdf5.refuse_unknown(path, f"NEON with a site that has {CUBE}")
    if site is None and len(sites) > 1:
        raise CubeFormatError(
            f"{path}: more than one site, found {', '.join(sites)}; choose one with "
            f"`var={sites[0]}`"
        )
    site = sites[0] if site is None else site
    if site not in sites:
        raise UnknownName(f"site in {path.name}", site, sites)
    return hdf5.DatasetPart(f"{site}/{CUBE}", AXES, file[f"{site}/{CUBE}"].shape[2])


def _outside_windows(wavelengths: Floats, attrs: Any) -> Bools | None:
    """(bands,) True outside the windows of water vapour; None if the file lists none."""
    names = sorted(name for name in attrs if re.fullmatch(r"Band_Window_\d+_Nanometers", name))
    if not names:
        return None
    good = np.ones(len(wavelengths), bool)
    for name in names:
        low, high = np.asarray(attrs[name], np.float64).ravel()[:2]
        good &= (wavelengths < low) | (wavelengths > high)
    return good


def _place(system: Any, path: Path) -> tuple[str | None, tuple[float, ...] | None]:
    """Return the CRS (WKT) by its EPSG code, and the transform of `Map_Info`, as in ENVI files."""
    if system is None:
        return None, None
    texts = {n: str(hdf5.plain(system[n][()])) for n in ("EPSG Code", "Map_Info") if n in system}
    parts = [part.strip() for part in texts.get("Map_Info", "").split(",")]
    sound = all(re.fullmatch(r"[\w .=+()/-]*", part) for part in parts) and len(parts) > 6
    crs, transform = georeference({"map info": parts}) if sound else (None, None)
    if "EPSG Code" in texts:
        crs = crs_of(f"EPSG:{int(float(texts['EPSG Code']))}", path).to_wkt()
    return crs, transform
