"""Rasters that only GDAL reads: ERDAS Imagine, ISIS3, PCIDSK, JPEG 2000.

A file is recognised by its first bytes, and only the driver of that format opens it, in a separate
process that can open no other file (`raster_child`), since drivers follow links in files.  The
values are decoded once, to a scratch file.  A fill is written as GeoTIFF or ENVI.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hydiff.cube import Array, Bools, Cube, named_wavelengths
from hydiff.errors import CubeFormatError
from hydiff.io.headers import NOTES
from hydiff.io.parsing import check_real, check_room, parsing
from hydiff.io.scratch import Scratch

SUFFIXES = ()  # these formats are not written
CHILD = Path(__file__).with_name("raster_child.py")
SECONDS = 900  # time limit of the process, to which each PER_SECOND bytes of a file add a second
PER_SECOND = 100_000  # bytes; the process limits itself to less CPU time
VALUES = "values"  # name of the file of decoded values
START = 1024  # bytes at the start of a file that are checked
# driver -> name of the format for people, and how its files begin
DRIVERS = {
    "HFA": ("ERDAS Imagine", (b"EHFA_HEADER_TAG",)),
    "PCIDSK": ("PCIDSK", (b"PCIDSK  ",)),
    "JP2OpenJPEG": ("JPEG 2000", (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")),
    "ISIS3": ("ISIS3", (b"Object = IsisCube",)),
}
READ_ONLY = ", ".join(name for name, _ in DRIVERS.values())
# lowest valid values of ISIS3; lower ones mean null, or saturated in one of four ways
LEAST_SHORT = -32752
LEAST_FLOAT = np.uint32(0xFF7FFFFA).view(np.float32)


def driver_of(path: Path) -> str | None:
    """Return the driver of a file by how it begins; None if there is none."""
    with path.open("rb") as file:
        start = file.read(START).lstrip()
        file.seek(0)
        start = start if start.startswith(b"Object") else file.read(START)
    starts = {driver: marks for driver, (_, marks) in DRIVERS.items()}
    return next((driver for driver, marks in starts.items() if start.startswith(marks)), None)


def matches(path: Path) -> bool:
    return path.is_file() and driver_of(path) is not None


def read(path: Path, var: str | None = None) -> Cube:
    """Open a raster; its values are decoded to a scratch file, and stay there."""
    driver = driver_of(path)
    if driver is None:
        raise CubeFormatError(f"{path}: expected one of {READ_ONLY}; check the file")
    state = path.stat()
    check_room(state.st_size, path, "it")
    facts, scratch = _decoded(path.absolute(), driver, state.st_mtime_ns, state.st_size)
    return decoded_cube(path, driver, facts, scratch.folder / VALUES)


def decoded_cube(path: Path, driver: str, facts: dict[str, Any], decoded: Path) -> Cube:
    """Return the cube of a raster, from what the process that decoded it printed and wrote."""
    with parsing(path, f"a raster ({DRIVERS[driver][0]})"):
        shape, dtype = tuple(facts["shape"]), np.dtype(facts["dtype"])
        check_real(dtype, path)
        values = np.memmap(decoded, dtype, "r", shape=shape)
        nodata = None if facts["nodata"] is None else float(facts["nodata"])
        waves, units = _wavelengths(facts)
        note = f"{DRIVERS[driver][0]}, which is read only: a fill is written as .tif or .img"
        return Cube(
            values,
            wavelengths=waves,
            wavelength_units=units,
            nodata=nodata,
            crs=facts["crs"],
            transform=None if facts["transform"] is None else tuple(facts["transform"]),
            band_names=_names(facts["names"]),
            missing_rule=_special(dtype) if driver == "ISIS3" else None,
            attrs={NOTES: {"format": note}},
        )


def write(cube: Cube, path: Path) -> list[Path]:
    refuse_write(path)


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    refuse_write(path)


def refuse_write(path: Path) -> NoReturn:
    """Raise the error that these formats are read only."""
    raise CubeFormatError(
        f"{path}: {READ_ONLY} files are read only; name the output {path.stem}.tif, or .bsq "
        "for ENVI"
    )


@lru_cache(4)  # each worker, and each tile that it fills, opens the file
def _decoded(path: Path, driver: str, changed: int, size: int) -> tuple[dict[str, Any], Scratch]:
    """Decode a raster; return its metadata, and a scratch folder with its values."""
    scratch = Scratch()
    command = [sys.executable, "-P", str(CHILD), driver, str(path), str(scratch.folder / VALUES)]
    with parsing(path, f"a raster ({DRIVERS[driver][0]})"):
        timeout = SECONDS + size / PER_SECOND
        process = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if process.returncode != 0:
            lines = process.stderr.strip().splitlines()
            why = lines[-1] if lines else f"GDAL ended with code {process.returncode}"
            raise CubeFormatError(
                f"{path}: expected a raster in one file ({DRIVERS[driver][0]}), but GDAL cannot "
                f"read it ({why}); other files are not opened: convert it with gdal_translate"
            )
        facts: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return facts, scratch


def _wavelengths(facts: dict[str, Any]) -> tuple[Any, str | None]:
    """Return the wavelengths in the tags of the bands, else in their names, and the unit."""
    if facts["wavelengths"] is not None:
        return np.array(facts["wavelengths"], np.float64), None
    names = [name or "" for name in facts["names"]]
    return named_wavelengths(names) or (None, None)


def _names(names: list[str | None]) -> tuple[str, ...] | None:
    """Return the names of the bands; None if no band has one."""
    return tuple(name or "" for name in names) if any(names) else None


def _special(dtype: np.dtype[Any]) -> Any:
    """Return the rule for the special values of ISIS3 in this dtype; None if there is none."""
    return {"int16": _below_short, "float32": _below_float}.get(dtype.name)


def _below_short(values: Array) -> Bools:
    """True where an int16 of ISIS3 is a special value."""
    return np.asarray(values < LEAST_SHORT)


def _below_float(values: Array) -> Bools:
    """True where a float32 of ISIS3 is a special value."""
    return np.asarray(values < LEAST_FLOAT)
