"""The text header of an ENVI file: parsed, interpreted, and written from scratch.

Spectral Python (SPy) parses and writes it; GDAL, which supports ENVI's projections, translates
between `map info` and a coordinate reference system.
"""

from __future__ import annotations

import math
import re
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Cube, Floats, named_wavelengths
from hydiff.errors import CubeFormatError
from hydiff.io.gdal import create_envi, gdal
from hydiff.io.headers import (
    FACTOR,
    NOTES,
    SCALING,
    SENSOR,
    Entry,
    canonical,
    carried,
    number,
    scaling,
    with_lines,
)
from hydiff.io.maps import crs_of, is_definition
from hydiff.io.parsing import check_count, native, parsing

# The axes of a cube (0 bands, 1 rows, 2 cols) in the order of the file, slowest first.
ORDER = {"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (1, 2, 0)}
CODES = {"uint8": 1, "int16": 2, "int32": 3, "float32": 4, "float64": 5}
CODES |= {"uint16": 12, "uint32": 13, "int64": 14, "uint64": 15}
COMMENTS = "comments"  # key, in the attribute "envi", of header lines that begin with a semicolon
WKT = "coordinate system string"
SENSOR_LINE = re.compile(rb"^[ \t]*sensor type[ \t]*=[^\n]*\n?", re.IGNORECASE | re.MULTILINE)
GEOREFERENCE = ("map info", "projection info", WKT)

Header = dict[str, Entry]


class Layout(NamedTuple):
    """Layout of the values in the data file."""

    shape: tuple[int, int, int]  # (bands, rows, cols)
    dtype: np.dtype[Any]
    interleave: str
    offset: int

    @property
    def file_shape(self) -> tuple[int, ...]:
        """Lengths of the axes in the order of the file."""
        return tuple(self.shape[axis] for axis in ORDER[self.interleave])

    @property
    def nbytes(self) -> int:
        """Size of the data file, including the offset."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


# --- reading --------------------------------------------------------------------------------------


def parse(path: Path) -> Header:
    """Return every entry of a header, with the keys as they are spelled."""
    with parsing(path, "an ENVI header", "check its text: each entry is `key = value`"):
        text = path.read_bytes()
        try:
            text.decode()
        except UnicodeDecodeError:  # old headers write µm in Latin-1; SPy reads UTF-8 only
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                copy.write_text(text.decode("latin-1"), encoding="utf-8")
                return _spy_header(copy)
        return _spy_header(path)


def comments(path: Path) -> list[str]:
    """Return the comment lines of a header, which begin with a semicolon."""
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    return [line for line in lines if line.startswith(";")]


def _spy_header(path: Path) -> Header:
    """Parse a header with Spectral Python; its setting for the case of keys is restored."""
    import spectral
    from spectral.io import envi

    settings, before = spectral.settings, spectral.settings.envi_support_nonlowercase_params
    settings.envi_support_nonlowercase_params = True
    try:
        return dict(envi.read_envi_header(str(path)))
    finally:
        settings.envi_support_nonlowercase_params = before


def comments_in(attrs: Mapping[str, Any]) -> list[str]:
    """Return the comment lines in a cube's attributes, where other software may store anything."""
    box = attrs.get("envi")
    lines = box.get(COMMENTS) if isinstance(box, Mapping) else None
    lines = lines if isinstance(lines, list) else []
    texts = ["".join(c if c.isprintable() else " " for c in str(line)) for line in lines]
    return [f";{text.removeprefix(';')}" for text in texts]


def layout_of(header: Header, path: Path) -> Layout:
    """Return the layout that a header states; refuse one that is incomplete or not supported."""
    keys = {key.lower(): value for key, value in header.items()}
    bands, rows, cols = (_count(keys, key, path) for key in ("bands", "lines", "samples"))
    interleave = str(keys.get("interleave", "")).lower()
    if interleave not in ORDER:
        raise _bad(path, "interleave", keys.get("interleave"), "bsq, bil or bip")
    code = str(keys.get("data type", ""))
    names = {str(number): name for name, number in CODES.items()}
    if code not in names:
        known = ", ".join(f"{number} ({name})" for name, number in CODES.items())
        raise _bad(path, "data type", keys.get("data type"), f"a real type: {known}")
    order = str(keys.get("byte order", "0"))
    if order not in ("0", "1"):
        raise _bad(path, "byte order", order, "0 (little-endian) or 1 (big-endian)")
    for key, plain in (("file compression", "0"), ("major frame offsets", ["0", "0"])):
        if keys.get(key, plain) != plain:
            raise _bad(path, key, keys[key], "plain values; export the file without it")
    offset = _count(keys, "header offset", path, least=0)
    dtype = np.dtype(names[code]).newbyteorder(">" if order == "1" else "<")
    return Layout((bands, rows, cols), dtype, interleave, offset)


def _count(keys: Header, key: str, path: Path, least: int = 1) -> int:
    """Return an entry as a whole number; an absent one is refused, or 0 if `least` is 0."""
    text = str(keys.get(key, "0" if least == 0 else "nothing"))
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) < least:
        raise _bad(path, key, text, f"a whole number of at least {least}")
    return int(text)


def _bad(path: Path, key: str, value: Any, expected: str) -> CubeFormatError:
    """Return the error for an entry that is not as expected."""
    text = "nothing" if value is None else value
    return CubeFormatError(f"{path}: `{key}` is {text}, expected {expected}; correct the header")


def describe(header: Header, path: Path, values: Array) -> Cube:
    """Return a cube of the values (bands, rows, cols) with all metadata of the header."""
    keys = {key.lower(): value for key, value in header.items()}
    bands = values.shape[0]
    good = _floats(keys, "bbl", bands, path)
    names = _list(keys, "band names", bands, path)
    wavelengths, units = _floats(keys, "wavelength", bands, path), keys.get("wavelength units")
    notes = {}
    if wavelengths is None and (listed := named_wavelengths(names or ())) is not None:
        wavelengths, units = listed
        notes["wavelengths"] = "read from the band names"
    crs, transform = georeference(keys)
    return Cube(
        values=values,
        wavelengths=wavelengths,
        wavelength_units=None if units is None else str(units),
        fwhm=_floats(keys, "fwhm", bands, path),
        good=None if good is None else good != 0,
        nodata=_nodata(keys, path),
        crs=crs,
        transform=transform,
        band_names=None if names is None else tuple(names),
        attrs={**header, **({NOTES: notes} if notes else {})},
    )


def _nodata(keys: Header, path: Path) -> float | None:
    """Return the nodata value, which some programs write as a list of one; None without one."""
    value = keys.get("data ignore value")
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    with parsing(path, "a number under `data ignore value`", "correct the header"):
        return None if text is None else float(str(text))


def _list(keys: Header, key: str, bands: int, path: Path) -> list[str] | None:
    """Return an entry as a list of texts, one per band; None if it is absent.

    Some programs write a comma behind the last item, too.
    """
    if key not in keys:
        return None
    value = keys[key]
    items = [value] if isinstance(value, str) else list(value)
    if len(items) == bands + 1 and not items[-1].strip():
        items.pop()
    check_count(len(items), bands, f"under `{key}`", path)
    return items


def _floats(keys: Header, key: str, bands: int, path: Path) -> Floats | None:
    """Return an entry as numbers (bands,); None if it is absent."""
    items = _list(keys, key, bands, path)
    with parsing(path, f"numbers under `{key}`", "correct or remove that list"):
        return None if items is None else np.array([float(item) for item in items])


# --- writing --------------------------------------------------------------------------------------


def compose(cube: Cube, dtype: np.dtype[Any], interleave: str) -> Header:
    """Return the header of a file that is written from scratch."""
    bands, rows, cols = cube.shape
    header: Header = {
        "samples": str(cols),
        "lines": str(rows),
        "bands": str(bands),
        "header offset": "0",
        "file type": "ENVI Standard",
        "data type": str(CODES[native(dtype).name]),
        "interleave": interleave,
        "byte order": "1" if dtype.str.startswith(">") else "0",
    }
    header.update({key: _tidy(key, value) for key, value in carried(cube.attrs).items()})
    for key, array in (("wavelength", cube.wavelengths), ("fwhm", cube.fwhm)):
        if array is not None:
            header[key] = [number(float(x)) for x in array]
    if cube.wavelength_units is not None:
        header["wavelength units"] = cube.wavelength_units
    if cube.good is not None:
        header["bbl"] = [str(int(g)) for g in cube.good]
    if cube.nodata is not None:
        header["data ignore value"] = number(cube.nodata)
    if cube.band_names is not None:
        header["band names"] = [_tidy("band names", name) for name in cube.band_names]  # type: ignore[misc]
    stated = {canonical(key) for key in cube.attrs}
    scale = scaling(cube.attrs, bands)
    if scale is not None and (FACTOR not in stated or SCALING[0] in stated):
        header = {key: value for key, value in header.items() if canonical(key) not in SCALING}
        header.update(zip(SCALING, ([number(x) for x in values] for values in scale), strict=True))
    return header | _map_entries(cube)


def _tidy(key: str, value: Entry) -> Entry:
    """Return an entry in a form for headers: no line breaks, braces only around lists."""
    if isinstance(value, list) and key.lower() != "description":
        return [str(_tidy(key, item)) for item in value]
    text = ", ".join(value) if isinstance(value, list) else value
    text = text.replace("{", "(").replace("}", ")")
    return text if key.lower() == "description" else " ".join(text.split())


def write_header(path: Path, header: Header, comments: Sequence[str] = ()) -> None:
    """Write a header as text, with the comments below its first line."""
    from spectral.io import envi

    envi.write_envi_header(str(path), header)
    if comments:
        first, rest = path.read_text(encoding="utf-8").split("\n", 1)
        path.write_text("\n".join([first, *comments, rest]), encoding="utf-8")


def declare(path: Path, cube: Cube) -> None:
    """Add to a header what it does not state, but the reader assumed: the nodata value, and the
    sensor whose conventions say what is missing.  All else stays as it is."""
    stated, text = {key.lower(): value for key, value in parse(path).items()}, path.read_bytes()
    lines = []
    if cube.nodata is not None and "data ignore value" not in stated:
        lines.append(f"data ignore value = {number(cube.nodata)}")
    sensor = None if cube.missing_rule is None else cube.attrs.get(SENSOR)
    if sensor is not None and sensor.lower() != str(stated.get(SENSOR, "")).lower():
        text = SENSOR_LINE.sub(b"", text)
        lines.append(f"{SENSOR} = {sensor}")
    if lines:
        path.write_bytes(with_lines(text, lines))


# --- georeference: GDAL translates ENVI's projections ---------------------------------------------


def georeference(keys: Mapping[str, Entry]) -> tuple[str | None, tuple[float, ...] | None]:
    """Return CRS (WKT) and affine transform (a, b, c, d, e, f) of `map info` and its companions."""
    if "map info" not in keys:
        return None, None
    from rasterio.errors import RasterioError
    from rasterio.io import MemoryFile

    tiny = {"samples": "2", "lines": "1", "bands": "1", "data type": "1", "interleave": "bsq"}
    lines = [f"{key} = {value}" for key, value in tiny.items()]
    texts = {key: _braced(keys[key]) for key in GEOREFERENCE if key in keys}
    if not is_definition(texts.get(WKT, "").strip("{ "), Path(WKT)):
        texts.pop(WKT, None)  # GDAL would take it for the name of a file
    lines += [f"{key} = {value}" for key, value in texts.items()]
    header, folder = "\n".join(["ENVI", *lines, ""]).encode(), uuid.uuid4().hex
    with (
        gdal(),
        MemoryFile(header, dirname=folder, filename="x.hdr"),
        MemoryFile(b"\0\0", dirname=folder, filename="x.img") as data,
    ):
        try:
            with data.open(driver="ENVI") as dataset:
                crs, affine = dataset.crs, dataset.transform
        except RasterioError:
            return None, None
    return crs.to_wkt() if crs else None, None if affine.is_identity else tuple(affine)[:6]


def _braced(value: Entry) -> str:
    """Return an entry as text; a list is put in braces."""
    return value if isinstance(value, str) else "{" + ",".join(value) + "}"


def _map_entries(cube: Cube) -> Header:
    """Return the entries of the map position: the source's if they still hold, else GDAL's."""
    stated = {k.lower(): v for k, v in cube.attrs.items() if k.lower() in GEOREFERENCE}
    if stated and georeference(stated) == (cube.crs, cube.transform):
        return stated
    if cube.transform is None:
        return {}
    new_entries = _gdal_map_entries(cube.crs, cube.transform)
    _, transform = georeference(new_entries)
    # ENVI has no sheared or mirrored grids: better no position than a wrong one
    close = transform is not None and np.allclose(transform, cube.transform, rtol=1e-9)
    return new_entries if close else {}


def _gdal_map_entries(crs: str | None, transform: tuple[float, ...]) -> Header:
    """Return the entries that GDAL writes for a CRS (WKT) and an affine transform."""
    profile = {"width": 2, "height": 1, "count": 1, "dtype": "uint8"}
    if crs is not None:
        profile["crs"] = crs_of(crs, Path("crs"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.img")
        with create_envi(path, transform, **profile) as dataset:
            dataset.write(np.zeros((1, 1, 2), np.uint8))
        envi = parse(path.with_suffix(".hdr"))  # rasterio shows no entry with `rotation=`
    return {k: envi[k] for k in GEOREFERENCE if k in envi}
