"""EMIT L1B radiance, L2A reflectance and their companions (OBS, MASK): netCDF4, sensor geometry.

The cube is a variable in the root, (downtrack, crosstrack, bands); groups describe the bands
(`sensor_band_parameters`) and the position (`location`, with the lookup table to a map).
Values of -9000 or less are no measurements: they are the fill value, or flags of the raw data for
missing and corrupt frames and lines.  One flag means a frame that was screened for clouds on
board, which is not lost data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Glt, Lazy
from hydiff.errors import CubeFormatError, UnknownName
from hydiff.io import hdf5, maps
from hydiff.io.marks import always
from hydiff.io.parsing import damaged, parsing

SUFFIXES = (".nc",)
keeps_mark = always
CUBES = ("reflectance", "radiance", "reflectance_uncertainty", "obs", "mask")  # the first present
MEASURED = CUBES[:2]
NAMES = ("observation_bands", "mask_bands")  # datasets with the names of bands, for OBS and MASK
GROUPS = {"sensor_band_parameters", "location"}
AXES = ("rows", "cols", "bands")

FILL = -9999.0
FLAGGED = -9000.0  # values up to this one are no measurements
# -9998: missing frame, -9997: corrupt frame, -9996: corrupt line
CLOUDY = -9990.0  # frame that was screened for clouds


def matches(path: Path) -> bool:
    """Return whether a file has EMIT's groups.

    True, too, for a netCDF file that cannot be opened: reading it then says what is wrong.
    """
    names = hdf5.members(path)
    if names is None:
        return False
    cut_off = not names and path.suffix.lower() == ".nc"
    return cut_off or bool(names & GROUPS)


def read(path: Path, var: str | None = None) -> Cube:
    """Open an EMIT file; values and lookup table stay on disk.

    var: a root variable with three axes, instead of the first of CUBES.
    """
    with parsing(path, "an EMIT netCDF file"), hdf5.open_file(path) as file:
        _check_groups(file, path)
        name = _variable(file, var, path)
        part = _part(file, name)
        bands = file.get("sensor_band_parameters")
        spectral = bands if name in CUBES[:3] else None
        if name in MEASURED and (spectral is None or "wavelengths" not in spectral):
            raise damaged(path, "expected sensor_band_parameters/wavelengths, found none")
        wavelengths, fwhm, good = (
            hdf5.numbers(spectral, key, part.bands, path)
            for key in ("wavelengths", "fwhm", "good_wavelengths")
        )
        units = None if wavelengths is None else bands["wavelengths"].attrs.get("units", "nm")
        attrs = hdf5.texts(file.attrs) | hdf5.unit(file[name])
        attrs.pop("spatial_ref", None)
        return hdf5.cube_of(
            *(path, file, [part], name),
            wavelengths=wavelengths,
            wavelength_units=None if units is None else str(hdf5.plain(units)),
            fwhm=fwhm,
            good=None if good is None else good != 0,
            nodata=hdf5.number(file[name].attrs, "_FillValue", FILL),
            glt=_glt(path, file),
            band_names=_names(bands, part.bands),
            missing_rule=flagged if name in MEASURED else None,
            withheld_rule=cloudy if name in MEASURED else None,
            attrs=attrs,
        )


def write(cube: Cube, path: Path) -> list[Path]:
    """Refuse: such a file can only be written as a copy of its source, see `rewrite`."""
    hdf5.refuse_write("an EMIT netCDF file")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the changed entries of its cube."""
    with hdf5.open_file(source) as file:
        part = _part(file, cube.attrs["array"]["var"])
    return hdf5.rewrite(source, path, cube, [part])


def flagged(values: Array) -> Bools:
    """True where a value is no measurement but a flag of the raw data or the fill value."""
    return np.asarray(values <= FLAGGED)


def cloudy(values: Array) -> Bools:
    """True where a frame was screened for clouds on board: it was not sent, but is not lost."""
    return np.asarray(values == CLOUDY)


def write_band_mask(filled: Bools, path: Path) -> None:
    """Write the filled entries (bands, rows, cols) as EMIT stores interpolated ones: `band_mask`.

    That is a netCDF4 file with bytes (downtrack, crosstrack, packed_wavelength_bands); the first
    band is the highest bit of the first byte.
    """
    import h5py

    packed = np.packbits(filled, axis=0).transpose(1, 2, 0)
    names = ("downtrack", "crosstrack", "packed_wavelength_bands")
    with h5py.File(path, "w", track_order=True) as file:
        mask = file.create_dataset(
            "band_mask", data=packed, chunks=True, compression="gzip", shuffle=True
        )
        mask.attrs["long_name"] = "bands that were filled, packed to bits"
        mask.attrs["number_of_bands"] = len(filled)
        for axis, (name, length) in enumerate(zip(names, packed.shape, strict=True)):
            scale = file.create_dataset(name, data=np.arange(length, dtype=np.int32))
            scale.make_scale(name)
            mask.dims[axis].attach_scale(scale)


# --- inside the file ------------------------------------------------------------------------------


def _check_groups(file: Any, path: Path) -> None:
    """Refuse other netCDF files: no rule says which axis is which, but xarray can open them."""
    if not GROUPS & set(file):
        raise CubeFormatError(
            f"{path}: a netCDF file of no known product, expected EMIT or AVIRIS; open it with "
            "xarray and fill it with `import hydiff.xarray`, dataset.hydiff.fill()"
        )


def _variable(file: Any, var: str | None, path: Path) -> str:
    """Return the name of the cube in the root: `var` if given, else the first of CUBES."""
    cubes = {name for name, item in file.items() if len(getattr(item, "shape", ())) == 3}
    if var is not None:
        if var not in cubes:
            raise UnknownName(f"variable in {path.name}", var, cubes)
        return var
    for name in CUBES:
        if name in cubes:
            return name
    listed = ", ".join(sorted(cubes)) or "none with three axes"
    raise CubeFormatError(
        f"{path}: expected a variable `reflectance` or `radiance` (downtrack, crosstrack, bands) "
        f"in the root, found {listed}; is it an EMIT L1B or L2A file?"
    )


def _part(file: Any, name: str) -> hdf5.DatasetPart:
    return hdf5.DatasetPart(name, AXES, file[name].shape[2])


def _names(bands: Any, count: int) -> tuple[str, ...] | None:
    """Return the names of the bands (OBS and MASK files); None if the file has none that fit."""
    for name in NAMES if bands is not None else ():
        if name in bands and bands[name].shape == (count,):
            return tuple(str(hdf5.plain(text)) for text in bands[name][()])
    return None


def _glt(path: Path, file: Any) -> Glt | None:
    """Return the lookup table to a map, with its entries left on disk; None without one."""
    place, transform = file.get("location"), file.attrs.get("geotransform")
    if place is None or transform is None or not {"glt_x", "glt_y"} <= set(place):
        return None
    shape, affine = place["glt_x"].shape, maps.from_gdal(transform)
    if place["glt_y"].shape != shape or len(shape) != 2 or affine is None:
        raise damaged(path, "location/glt_x, glt_y and the geotransform do not make a lookup table")
    lookup = Lazy((*shape, 2), np.dtype(np.int32), lambda *block: _lookup(path, block))
    crs = file.attrs.get("spatial_ref")
    return Glt(lookup, affine, None if crs is None else str(hdf5.plain(crs)))


def _lookup(path: Path, block: tuple[slice, slice, slice]) -> Array:
    """Read a block (rows, cols, 2) of the lookup table; its last axis is glt_x, glt_y."""
    rows, cols, components = block
    with parsing(path, "a complete EMIT file"), hdf5.open_file(path) as file:
        pair = [file["location"][name][rows, cols] for name in ("glt_x", "glt_y")]
    return np.stack(pair, axis=-1)[..., components]
