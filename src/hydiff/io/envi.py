"""ENVI: raw values (bsq, bil or bip) beside a text header.

The header is parsed and written by Spectral Python (SPy), the values are mapped from disk, and
GDAL translates between `map info` and a coordinate reference system.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Cube, Floats, Lazy
from hydiff.errors import CubeFormatError
from hydiff.io.blocks import blocks, differs
from hydiff.io.gdal import gdal
from hydiff.io.headers import Entry, canonical, entries, number
from hydiff.io.parsing import check_dtype, native, parsing

SUFFIXES = (".hdr", ".img", ".bsq", ".bil", ".bip", ".dat", ".envi")
DATA_SUFFIXES = ("", ".img", ".bsq", ".bil", ".bip", ".dat", ".raw", ".envi", ".bin")

# The axes of a cube (0 bands, 1 rows, 2 cols) in the order of the file, slowest first.
ORDER = {"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (1, 2, 0)}
CODES = {
    "uint8": 1,
    "int16": 2,
    "int32": 3,
    "float32": 4,
    "float64": 5,
    "uint16": 12,
    "uint32": 13,
    "int64": 14,
    "uint64": 15,
}
GEOREFERENCE = ("map info", "projection info", "coordinate system string")

Header = dict[str, Entry]


class Layout(NamedTuple):
    """Where the values are in the data file."""

    shape: tuple[int, int, int]  # (bands, rows, cols)
    dtype: np.dtype[Any]
    interleave: str
    offset: int

    @property
    def file_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in ORDER[self.interleave])

    @property
    def nbytes(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def matches(path: Path) -> bool:
    """An ENVI header, or a file with one beside it."""
    return any(_starts_envi(p) for p in (path, *_header_names(path)))


def read(path: Path, var: str | None = None) -> Cube:
    """Open by header or by data file; values stay on disk, mapped read-only."""
    data, header_path = _pair(path)
    header = _parse(header_path)
    layout = _layout(header, header_path)
    _check_size(data, header_path, layout)
    with parsing(data, "ENVI values"):
        values = _values(data, layout, "r")
    return replace(_describe(header, header_path, values), path=data)


def described(header: Path) -> Cube:
    """What a header says, with zeros for values: for headers beside files of another format."""
    entries = _parse(header)
    layout = _layout(entries, header)
    with parsing(header, "an ENVI header of an image", "correct its samples, lines and bands"):
        zeros = np.broadcast_to(np.zeros((), layout.dtype), layout.shape)
    return _describe(entries, header, zeros)


def write(cube: Cube, path: Path) -> list[Path]:
    """Values and header from scratch; the interleave is the suffix's, else the source's, else bsq.

    For `NAME.hdr` the values go to `NAME` with the suffix of the source, else `NAME.img`.
    """
    check_dtype(cube.dtype, tuple(CODES), "ENVI")
    data = _data_name(cube, path)
    own = {canonical(key): value for key, value in cube.attrs.items()}
    interleave = _interleave_of(data) or str(own.get("interleave", "bsq")).lower()
    interleave = interleave if interleave in ORDER else "bsq"
    big = str(own.get("byte order", "0")) == "1"
    dtype = native(cube.dtype).newbyteorder(">" if big else "<")
    header = data.with_suffix(".hdr") if data.suffix in SUFFIXES else _appended(data)
    _dump(cube, data, dtype, interleave)
    _write_header(header, _compose(cube, dtype, interleave))
    return [data, header]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy both files of `source`, the header byte for byte, and replace the changed entries."""
    source, source_header = _pair(source)
    layout = _layout(_parse(source_header), source_header)
    data = _data_name(replace(cube, path=source, format="envi"), path)
    if _interleave_of(data) not in (None, layout.interleave):
        return write(cube, path)
    appended = source_header.name == source.name + ".hdr"
    header = _appended(data) if appended else data.with_suffix(".hdr")
    shutil.copyfile(source, data)
    shutil.copyfile(source_header, header)
    for block in blocks(layout.shape, layout.dtype.itemsize, axis=ORDER[layout.interleave][0]):
        new = np.asarray(cube.values[block])
        stored = _values(data, layout, "r+")  # mapped anew: what stays mapped counts as memory
        changed = differs(stored[block], new)
        if changed.any():  # pages that are not touched need not be written
            stored[block][changed] = new[changed]
    return [data, header]


# --- which two files -----------------------------------------------------------------------------


def _starts_envi(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"ENVI"


def _appended(path: Path) -> Path:
    return path.with_name(path.name + ".hdr")


def _header_names(data: Path) -> list[Path]:
    """`x.hdr` before `x.bsq.hdr`, as GDAL looks for them."""
    return list(dict.fromkeys([data.with_suffix(".hdr"), _appended(data)]))


def _pair(path: Path) -> tuple[Path, Path]:
    """The data file and its header, from either of them."""
    if path.suffix.lower() == ".hdr" or (_starts_envi(path) and not _has_header(path)):
        return _data_of(path), path
    for header in _header_names(path):
        if header.is_file():
            return path, header
    wanted = " or ".join(p.name for p in _header_names(path))
    raise CubeFormatError(
        f"{path}: expected an ENVI header beside it, found neither {wanted}; "
        "put the header there, or open a file of another format"
    )


def _has_header(path: Path) -> bool:
    return any(p.is_file() for p in _header_names(path))


def _data_of(header: Path) -> Path:
    """The file that a header describes; among several, the first of the right size."""
    stem = header.with_suffix("")
    suffixes = [*DATA_SUFFIXES, *[s.upper() for s in DATA_SUFFIXES]]
    names = dict.fromkeys(stem.with_name(stem.name + suffix) for suffix in suffixes)
    found = [p for p in names if p.is_file() and p != header]
    if not found:
        raise CubeFormatError(
            f"{header}: the data file of this ENVI header is missing; expected {stem.name} "
            f"or {stem.name} with one of {' '.join(DATA_SUFFIXES[1:])}"
        )
    if len(found) == 1:
        return found[0]
    nbytes = _layout(_parse(header), header).nbytes
    return next((p for p in found if p.stat().st_size == nbytes), found[0])


def _data_name(cube: Cube, path: Path) -> Path:
    if path.suffix.lower() != ".hdr":
        return path
    if path.with_suffix("").suffix in SUFFIXES:  # x.bsq.hdr
        return path.with_suffix("")
    own = cube.path.suffix if cube.format == "envi" and cube.path is not None else ".img"
    return path.with_suffix(own)


def _interleave_of(data: Path) -> str | None:
    return data.suffix[1:].lower() if data.suffix[1:].lower() in ORDER else None


# --- the header ----------------------------------------------------------------------------------


def _parse(path: Path) -> Header:
    """Every entry of a header, keys as they are spelled."""
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


def _spy_header(path: Path) -> Header:
    import spectral
    from spectral.io import envi

    settings, before = spectral.settings, spectral.settings.envi_support_nonlowercase_params
    settings.envi_support_nonlowercase_params = True
    try:
        return dict(envi.read_envi_header(str(path)))
    finally:
        settings.envi_support_nonlowercase_params = before


def _layout(header: Header, path: Path) -> Layout:
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
    text = str(keys.get(key, "0" if least == 0 else "nothing"))
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) < least:
        raise _bad(path, key, text, f"a whole number of at least {least}")
    return int(text)


def _bad(path: Path, key: str, found: Any, expected: str) -> CubeFormatError:
    shown = "nothing" if found is None else found
    return CubeFormatError(f"{path}: `{key}` is {shown}, expected {expected}; correct the header")


def _check_size(data: Path, header: Path, layout: Layout) -> None:
    if not data.is_file():
        raise CubeFormatError(f"{data}: no such file, but {header} describes it")
    found, expected = data.stat().st_size, layout.nbytes
    if found != expected:
        bands, rows, cols = layout.shape
        verdict = "is truncated" if found < expected else "holds more than its header says"
        raise CubeFormatError(
            f"{data}: {verdict}: {found} bytes, but {header.name} says {expected} "
            f"({bands} bands x {rows} lines x {cols} samples x {layout.dtype.itemsize} bytes "
            f"+ offset {layout.offset}); correct the header or fetch the file again"
        )


def plain_windows(cube: Cube) -> Cube:
    """An ENVI cube whose windows are read from the file instead of mapped.

    What is mapped counts as memory, and the kernel maps far more of a large file than is asked for.
    """
    data, header = _pair(cube.path or Path())
    layout = _layout(_parse(header), header)
    read = partial(_read_block, data, layout)
    return replace(cube, values=Lazy(layout.shape, layout.dtype, read))


def _read_block(data: Path, layout: Layout, *block: slice) -> Array:
    """(bands, rows, cols) of a block: for each index of the slowest axis one run of the file."""
    order = ORDER[layout.interleave]
    first, second, third = (block[axis] for axis in order)
    _, n, width = layout.file_shape
    out = np.empty([s.stop - s.start for s in (first, second, third)], layout.dtype)
    with data.open("rb") as file:
        for i in range(first.start, first.stop):
            entries = (i * n + second.start) * width
            file.seek(layout.offset + entries * layout.dtype.itemsize)
            run = np.fromfile(file, layout.dtype, (second.stop - second.start) * width)
            out[i - first.start] = run.reshape(-1, width)[:, third]
    return out.transpose(np.argsort(order))


def _values(data: Path, layout: Layout, mode: Any) -> Array:
    """(bands, rows, cols), mapped from disk."""
    stored = np.memmap(data, layout.dtype, mode, layout.offset, layout.file_shape)
    return stored.transpose(np.argsort(ORDER[layout.interleave]))


def _describe(header: Header, path: Path, values: Array) -> Cube:
    keys = {key.lower(): value for key, value in header.items()}
    bands = values.shape[0]
    good = _floats(keys, "bbl", bands, path)
    nodata = keys.get("data ignore value")
    with parsing(path, "a number under `data ignore value`", "correct the header"):
        nodata_value = None if nodata is None else float(str(nodata))
    units = keys.get("wavelength units")
    names = _list(keys, "band names", bands, path)
    crs, transform = georeference(keys)
    return Cube(
        values=values,
        wavelengths=_floats(keys, "wavelength", bands, path),
        wavelength_units=None if units is None else str(units),
        fwhm=_floats(keys, "fwhm", bands, path),
        good=None if good is None else good != 0,
        nodata=nodata_value,
        crs=crs,
        transform=transform,
        band_names=None if names is None else tuple(names),
        attrs=header,
    )


def _list(keys: Header, key: str, bands: int, path: Path) -> list[str] | None:
    if key not in keys:
        return None
    value = keys[key]
    items = [value] if isinstance(value, str) else value
    if len(items) != bands:
        raise CubeFormatError(
            f"{path}: {len(items)} entries under `{key}` for {bands} bands; "
            "correct or remove that list"
        )
    return items


def _floats(keys: Header, key: str, bands: int, path: Path) -> Floats | None:
    items = _list(keys, key, bands, path)
    with parsing(path, f"numbers under `{key}`", "correct or remove that list"):
        return None if items is None else np.array([float(item) for item in items])


def _compose(cube: Cube, dtype: np.dtype[Any], interleave: str) -> Header:
    """The header of a file written from scratch."""
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
    header.update({key: _tidy(key, value) for key, value in _foreign(cube).items()})
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
    return header | _map_entries(cube)


def _foreign(cube: Cube) -> Header:
    """Header entries of the source, then GeoTIFF tags that they do not already hold."""
    own = entries(cube.attrs)
    tags = cube.attrs.get("geotiff", {}).get("tags", {}).get("", {})
    skip = {canonical(key) for key in own} | {"area or point"}
    return own | {k: v for k, v in entries(tags).items() if canonical(k) not in skip}


def _tidy(key: str, value: Entry) -> Entry:
    """Text that a header can hold: no line breaks, and braces only around lists."""
    if isinstance(value, list) and key.lower() != "description":
        return [str(_tidy(key, item)) for item in value]
    text = ", ".join(value) if isinstance(value, list) else value
    text = text.replace("{", "(").replace("}", ")")
    return text if key.lower() == "description" else " ".join(text.split())


def _write_header(path: Path, header: Header) -> None:
    from spectral.io import envi

    envi.write_envi_header(str(path), header)


def _dump(cube: Cube, path: Path, dtype: np.dtype[Any], interleave: str) -> None:
    """Write in file order; plain writes, because a mapped file on a full disk ends the process."""
    order = ORDER[interleave]
    with path.open("wb") as file:
        for block in blocks(cube.shape, dtype.itemsize, axis=order[0]):
            part = np.asarray(cube.values[block]).transpose(order)
            file.write(np.ascontiguousarray(part, dtype).data)


# --- georeference: GDAL knows ENVI's projections --------------------------------------------------


def georeference(keys: Mapping[str, Entry]) -> tuple[str | None, tuple[float, ...] | None]:
    """CRS (WKT) and affine transform (a, b, c, d, e, f) of `map info` and its companions."""
    if "map info" not in keys:
        return None, None
    from rasterio.errors import RasterioError
    from rasterio.io import MemoryFile

    tiny = {"samples": "2", "lines": "1", "bands": "1", "data type": "1", "interleave": "bsq"}
    lines = [f"{key} = {value}" for key, value in tiny.items()]
    lines += [f"{key} = {_braced(keys[key])}" for key in GEOREFERENCE if key in keys]
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
    return value if isinstance(value, str) else "{" + ",".join(value) + "}"


def _map_entries(cube: Cube) -> Header:
    """`map info` and `coordinate system string`: those of the source while they still hold."""
    own = {k.lower(): v for k, v in cube.attrs.items() if k.lower() in GEOREFERENCE}
    if own and georeference(own) == (cube.crs, cube.transform):
        return own
    if cube.transform is None:
        return {}
    made = _gdal_map_entries(cube.crs, cube.transform)
    _, transform = georeference(made)
    # ENVI has no sheared or mirrored grids: better no position than a wrong one
    close = transform is not None and np.allclose(transform, cube.transform, rtol=1e-9)
    return made if close else {}


def _gdal_map_entries(crs: str | None, transform: tuple[float, ...]) -> Header:
    from rasterio.io import MemoryFile
    from rasterio.transform import Affine

    profile = {"width": 2, "height": 1, "count": 1, "dtype": "uint8", "crs": crs}
    with gdal(), MemoryFile(dirname=uuid.uuid4().hex, filename="x.img") as data:
        with data.open(driver="ENVI", transform=Affine(*transform), **profile) as dataset:
            dataset.write(np.zeros((1, 1, 2), np.uint8))
        with data.open() as dataset:
            tags = dataset.tags(ns="ENVI")
    named = {canonical(key): value for key, value in tags.items()}
    return {k: named[k].strip("{}").split(",") for k in GEOREFERENCE if k in named}
