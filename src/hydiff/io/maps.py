"""Coordinate reference systems of files, checked before GDAL and PROJ see them.

GDAL takes an unknown text for the name of a file, or fetches it; PROJ opens the grids that a
definition names.  So text that does not look like a definition is not passed on to them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.errors import CubeFormatError
from hydiff.io.parsing import parsing

WKT = "GEOGCS|GEOCCS|PROJCS|VERT_CS|COMPD_CS|LOCAL_CS|(?:GEOD|GEOG|PROJ|VERT|ENG|BOUND)CRS"
WKT += "|(?:GEODETIC|GEOGRAPHIC|PROJECTED|VERTICAL|COMPOUND|ENGINEERING|DERIVEDPROJ)CRS"
CODES = r"(?:EPSG|ESRI|OGC|IGNF):\w+$|urn:ogc:def:crs:[\w:.]+$"
DEFINITION = re.compile(rf"\s*(?:(?:{WKT})\s*[\[(]|{CODES}|\+proj=|\+init=epsg:\d+)", re.IGNORECASE)
NAMES_FILE = re.compile(
    r"""=[^\s"'+]*[/\\]  # a PROJ parameter whose value is a path
      | PARAMETERFILE\s*[\[(][^\])]*[/\\]
      | \+init=(?!epsg:\d)""",
    re.IGNORECASE | re.VERBOSE,
)


def is_definition(text: str, path: Path) -> bool:
    """Return whether a text is a CRS for GDAL to see; CubeFormatError if it names another file."""
    if NAMES_FILE.search(text):
        raise CubeFormatError(
            f"{path}: its coordinate reference system names another file, which is not opened "
            f"({text[:80]}); expected WKT or an EPSG code: correct or remove it"
        )
    return DEFINITION.match(text) is not None


def from_gdal(numbers: Any) -> tuple[float, ...] | None:
    """Return GDAL's geotransform, text or numbers, as the affine (a, b, c, d, e, f) of a `Cube`."""
    six = np.array(numbers.split() if isinstance(numbers, str) else numbers, np.float64).ravel()
    return tuple(six[[1, 2, 0, 4, 5, 3]].tolist()) if six.size == 6 else None


def crs_of(text: str, path: Path, advice: str = "correct Cube.crs") -> Any:
    """Return a rasterio CRS; path: the file that is read or written, for the error message."""
    from rasterio import Env
    from rasterio.crs import CRS

    expected = "a coordinate reference system (WKT or an EPSG code)"
    if not is_definition(text, path):
        raise CubeFormatError(f"{path}: expected {expected}, found {text[:80]!r}; {advice}")
    with parsing(path, expected, advice), Env():  # logs what PROJ would print
        return CRS.from_user_input(text)
