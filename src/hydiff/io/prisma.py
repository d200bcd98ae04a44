"""PRISMA L1 and L2 (B, C, D): HDF-EOS5, two detectors of one scene.

VNIR_Cube and SWIR_Cube are (rows, bands, cols) from long to short wavelengths; the cube has the
VNIR bands first, and the bands of both in ascending order.  Channels without a wavelength are not
used, so they are bad bands.  A pixel that is 0 in all bands of a detector lies outside its swath.
Values are kept as they are stored; `data gain values` and `data offset values` turn them into
reflectance or radiance.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.io import hdf5
from hydiff.io.gdal import gdal
from hydiff.io.headers import number
from hydiff.io.marks import always
from hydiff.io.parsing import check_count, damaged, parsing

SUFFIXES = (".he5",)
keeps_mark = always
SWATHS = "HDFEOS/SWATHS"
DETECTORS = ("VNIR", "SWIR")
AXES = ("rows", "bands", "cols")
PIXEL = 30.0  # metres, size of the pixels of L2D
LEVELS = ("PRS_L2D_HCO", "PRS_L2C_HCO", "PRS_L2B_HCO", "PRS_L1_HCO", "PRS_L1_HRC")


def matches(path: Path) -> bool:
    """Return whether a file is HDF-EOS5, or an .he5 file of HDF5 that cannot be opened."""
    names = hdf5.members(path)
    if names is None:
        return False
    return "HDFEOS" in names or (not names and path.suffix.lower() == ".he5")


def read(path: Path, var: str | None = None) -> Cube:
    """Open a PRISMA file; `var` names a swath, such as PRS_L1_HRC, instead of the usual one."""
    with parsing(path, "a PRISMA file"), hdf5.open_file(path) as file:
        swath = swath_name(file, path, var)
        parts = detector_parts(file, swath, path)
        tables = [
            _table(file, part, name, path)[:, :: -1 if part.descending else 1]
            for part, name in zip(parts, DETECTORS, strict=True)
        ]
        wavelengths, fwhm, good, gain, offset = np.concatenate(tables, axis=1)
        counts = [part.bands for part in parts]
        crs, transform = _map(file, swath, *file[parts[0].name].shape[::2])
        return hdf5.cube_of(
            *(path, file, parts, swath),
            wavelengths=wavelengths,
            wavelength_units="Nanometers",
            fwhm=fwhm,
            good=good != 0,
            nodata=0.0,
            crs=crs,
            transform=transform,
            missing_rule=_outside(counts),
            attrs={
                **hdf5.texts(file.attrs),
                "detector": np.repeat(DETECTORS, counts).tolist(),
                "data gain values": [number(x) for x in gain.tolist()],
                "data offset values": [number(x) for x in offset.tolist()],
            },
        )


def write(cube: Cube, path: Path) -> list[Path]:
    """Refuse: such a file can only be written as a copy of its source, see `rewrite`."""
    hdf5.refuse_write("a PRISMA file")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    with hdf5.open_file(source) as file:
        parts = detector_parts(file, cube.attrs["array"]["var"], source)
    return hdf5.rewrite(source, path, cube, parts)


def detector_parts(file: Any, swath: str, path: Path) -> list[hdf5.DatasetPart]:
    """Return the two datasets of a swath that make up the cube, VNIR first."""
    parts = [_part(file, swath, name, path) for name in DETECTORS]
    return [
        part._replace(descending=_descends(_table(file, part, name, path)[0]))
        for part, name in zip(parts, DETECTORS, strict=True)
    ]


def swath_name(file: Any, path: Path, var: str | None = None) -> str:
    """Return the name of the swath: `var`, else the one of the highest level."""
    if SWATHS not in file:
        hdf5.refuse_unknown(path, f"PRISMA with {SWATHS}")
    names = list(file[SWATHS])
    for name in LEVELS if var is None else (var,):
        if name in names:
            return name
    expected = var or "PRS_L1_HCO or PRS_L2D_HCO"
    listed = ", ".join(names) or "none"
    raise damaged(path, f"expected the swath {expected} in {SWATHS}, found {listed}")


def _part(file: Any, swath: str, detector: str, path: Path) -> hdf5.DatasetPart:
    """Locate the cube of a detector in a swath."""
    name = f"{SWATHS}/{swath}/Data Fields/{detector}_Cube"
    if name not in file or file[name].ndim != 3:
        raise damaged(path, f"expected {detector}_Cube (rows, bands, cols) in the swath {swath}")
    return hdf5.DatasetPart(name, AXES, file[name].shape[1])


def _table(file: Any, part: hdf5.DatasetPart, detector: str, path: Path) -> Floats:
    """(5, bands) wavelength and fwhm in nm, 1 for a used channel, gain, offset; in stored order."""
    title, attrs = detector.capitalize(), file.attrs

    def listed(key: str) -> Floats | None:
        """Return an attribute as numbers (bands,); None if it is absent."""
        if key not in attrs:
            return None
        entries = np.asarray(attrs[key], np.float64).ravel()
        check_count(len(entries), part.bands, f"in {key}", path)
        return entries

    wavelengths = listed(f"List_Cw_{title}")
    if wavelengths is None:
        raise damaged(path, f"expected the attribute List_Cw_{title} with the wavelengths")
    fwhm, flags = listed(f"List_Fwhm_{title}"), listed(f"List_Cw_{title}_Flags")
    fwhm = np.zeros_like(wavelengths) if fwhm is None else fwhm
    used = (wavelengths > 0) & (True if flags is None else flags != 0)
    gain, offset = np.tile(_gain(attrs, title), (part.bands, 1)).T
    return np.stack([wavelengths, fwhm, used, gain, offset])


def _gain(attrs: Any, title: str) -> tuple[float, float]:
    """Return gain and offset from stored values to reflectance (L2) or radiance (L1)."""
    low, high = (hdf5.number(attrs, f"L2Scale{title}{end}", np.nan) for end in ("Min", "Max"))
    if f"L2Scale{title}Min" in attrs and f"L2Scale{title}Max" in attrs:
        return (high - low) / 65535, low
    if f"ScaleFactor_{title}" not in attrs:
        return 1.0, 0.0
    factor = hdf5.number(attrs, f"ScaleFactor_{title}", 1.0)
    return 1 / factor, -hdf5.number(attrs, f"Offset_{title}", 0.0)


def _descends(wavelengths: Floats) -> bool:
    """Return whether the wavelengths descend; channels without a wavelength do not count."""
    used = wavelengths[wavelengths > 0]
    return len(used) > 1 and bool(used[0] > used[-1])


def _outside(counts: list[int]) -> Callable[[Array], Bools]:
    """Return the rule that a pixel with 0 in all bands of a detector is missing in these bands."""

    def rule(values: Array) -> Bools:
        zero: Bools = values == 0
        if len(values) != sum(counts):  # a window of some bands: only these are considered
            return np.broadcast_to(zero.all(axis=0), zero.shape)
        ends = np.cumsum(counts)
        outside = [zero[end - n : end].all(axis=0) for n, end in zip(counts, ends, strict=True)]
        return np.repeat(outside, counts, axis=0)

    return rule


def _map(
    file: Any, swath: str, rows: int, cols: int
) -> tuple[str | None, tuple[float, ...] | None]:
    """Return CRS and north-up transform of L2D; None for other levels, in sensor geometry.

    The file states the corners of the image, which may be the outer corners or the centres of the
    corner pixels: the meaning that gives a pixel size closer to 30 m is taken.
    """
    ends = product(("easting", "northing"), ("UL", "UR", "LL", "LR"))
    keys = [f"Product_{corner}corner_{axis}" for axis, corner in ends]
    attrs = file.attrs
    if "L2D" not in swath or not {"Epsg_Code", *keys} <= set(attrs):
        return None, None
    x, y = np.array([float(hdf5.plain(attrs[key])) for key in keys]).reshape(2, 4)
    (a, left), (e, top) = _grid(x, cols), _grid(-y, rows)
    from rasterio.crs import CRS

    with gdal():
        crs = CRS.from_epsg(int(hdf5.plain(attrs["Epsg_Code"]))).to_wkt()
    return crs, (a, 0.0, left, 0.0, -e, -top)


def _grid(corners: Floats, count: int) -> tuple[float, float]:
    """Return the pixel size and the outer edge of `count` pixels along one axis."""
    span = float(np.ptp(corners))
    edges, centres = span / count, span / max(count - 1, 1)
    if abs(centres - PIXEL) < abs(edges - PIXEL):
        return centres, float(corners.min()) - centres / 2
    return edges, float(corners.min())
