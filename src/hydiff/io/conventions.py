"""Conventions of sensors that their ENVI or GeoTIFF files do not state.

The sensor is recognised by the file name that its operators use, or by `sensor type` in the
header.  What a file declares itself is never overruled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.io.headers import NOTES, SENSOR, notes
from hydiff.maths.wavelengths import is_stated

OPTICAL = {"Nanometers": (300.0, 2600.0), "Micrometers": (0.3, 2.6)}
FORMATS = ("envi", "geotiff")  # formats without rules of a product
# Hyperion's 242 channels, counted from 1: not calibrated, so filled with zeros.
UNCALIBRATED = (*range(1, 8), *range(58, 77), *range(225, 243))


def applied(cube: Cube) -> Cube:
    """Return the cube with an evident wavelength unit, and the conventions of its sensor, added."""
    return _of_sensor(_with_unit(cube))


def evident_unit(wavelengths: Floats) -> str | None:
    """Return the unit in which all wavelengths lie in the optical range; None if there is none.

    A wavelength of 0 means a channel that is not used.
    """
    used = wavelengths[wavelengths != 0]
    for unit, (low, high) in OPTICAL.items():
        if used.size and (used >= low).all() and (used <= high).all():
            return unit
    return None


def _with_unit(cube: Cube) -> Cube:
    """Add an evident wavelength unit, and a note about it, if the file states no unit, or
    "Unknown" as its unit."""
    stated = cube.wavelength_units
    if is_stated(stated):
        return cube
    unit = None if cube.wavelengths is None else evident_unit(cube.wavelengths)
    if unit is None:
        return cube if stated is None else replace(cube, wavelength_units=None)
    given = "not given" if stated is None else f'stated as "{stated}"'
    note = f"{given}, and taken as {unit} by the size of the numbers"
    attrs = {**cube.attrs, NOTES: {**notes(cube.attrs), "wavelength unit": note}}
    return replace(cube, wavelength_units=unit, attrs=attrs)


def _of_sensor(cube: Cube) -> Cube:
    """Apply the conventions of the sensor, which the header or the file name identifies."""
    if cube.format not in FORMATS or cube.path is None:
        return cube
    for name, (pattern, with_conventions) in SENSORS.items():
        declared = str(cube.attrs.get(SENSOR, "")).lower() == name.lower()
        if declared or re.match(pattern, cube.path.name, re.IGNORECASE):
            # a copy of another name is then recognised, too
            return with_conventions(replace(cube, attrs={**cube.attrs, SENSOR: name}))
    return cube


def _next_generation(cube: Cube) -> Cube:
    """Take -9999 as missing if the header declares no nodata value."""
    return replace(cube, nodata=-9999.0 if cube.nodata is None else cube.nodata)


def _classic(cube: Cube) -> Cube:
    """Take pixels without a value above 0 as missing: outside the flight line some files hold -50,
    others -0.9999 times a factor that differs between bands, and 0 in the first two bands."""
    return cube if cube.nodata is not None else replace(cube, missing_rule=_nowhere_positive)


def _hyperion(cube: Cube) -> Cube:
    """Take pixels with 0 in all channels as missing, and channels without calibration as bad."""
    good = cube.good
    if good is None and cube.bands == 242:
        good = np.ones(242, bool)
        good[np.array(UNCALIBRATED) - 1] = False
    rule = None if cube.nodata is not None else _all_zero
    return replace(cube, good=good, missing_rule=rule)


def _nowhere_positive(values: Array) -> Bools:
    """Flags (bands, rows, cols) of pixels without a value above 0."""
    return np.broadcast_to((values <= 0).all(axis=0), values.shape)


def _all_zero(values: Array) -> Bools:
    """Flags (bands, rows, cols) of pixels with 0 in all bands."""
    return np.broadcast_to((values == 0).all(axis=0), values.shape)


# sensor -> pattern of its file names, and the function that adds its conventions
SENSORS: dict[str, tuple[str, Callable[[Cube], Cube]]] = {
    "AVIRIS-Classic": (r"f\d{6}t\d{2}p\d{2}r\d{2}", _classic),
    "AVIRIS-NG": (r"ang\d{8}t\d{6}", _next_generation),
    "AVIRIS-3": (r"av3\d{8}t\d{6}", _next_generation),
    "Hyperion": (r"eo1h\d{13}", _hyperion),
}
