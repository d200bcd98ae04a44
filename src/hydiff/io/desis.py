"""GeoTIFF with an ENVI header that describes its bands, as for DESIS (L1B, L1C, L2A) and HySpex.

The format is recognised by the header: it has wavelengths, and is beside a GeoTIFF but not beside
an ENVI data file.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from hydiff.cube import Cube
from hydiff.io import envi, geotiff
from hydiff.io.headers import SCALING
from hydiff.io.marks import always, into_header

SUFFIXES = ()  # a cube written from scratch is a plain GeoTIFF
keeps_mark = always


def matches(path: Path) -> bool:
    """Return whether a file is such an image, or its header."""
    image = _image(path)
    header = _header(image)
    if image == header or not header.is_file() or not geotiff.matches(image):
        return False
    text = header.read_bytes()
    names = (header.with_suffix(suffix) for suffix in envi.DATA_SUFFIXES)
    has_data_file = any(name.is_file() for name in names if name != image)
    return text.startswith(b"ENVI") and b"wavelength" in text.lower() and not has_data_file


def read(path: Path, var: str | None = None) -> Cube:
    """Read values and map from the image, and the metadata of the bands from the header."""
    image = _image(path)
    cube, header = geotiff.read(image), envi.header_cube(_header(image))
    scaling = {k.lower(): v for k, v in header.attrs.items() if k.lower() in SCALING}
    return replace(
        cube,
        wavelengths=header.wavelengths,
        wavelength_units=header.wavelength_units,
        fwhm=header.fwhm,
        good=header.good if cube.good is None else cube.good,
        nodata=header.nodata if cube.nodata is None else cube.nodata,
        attrs={**cube.attrs, **scaling},
        path=image,
    )


def write(cube: Cube, path: Path) -> list[Path]:
    return geotiff.write(cube, path)


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the image and replace the changed entries; copy the header and add only the mark."""
    files = geotiff.rewrite(source, path, cube)
    header = _header(source)
    appended = header.name == source.name + header.suffix
    place = path.with_name((path.name if appended else path.stem) + header.suffix)
    shutil.copyfile(header, place)
    into_header(place, cube.mark)
    return [*files, place]


def _image(path: Path) -> Path:
    """Return the image that a header belongs to; other paths unchanged."""
    if path.suffix.lower() != ".hdr":
        return path
    candidates = (path.with_suffix(suffix) for suffix in ("", ".tif", ".TIF", ".tiff"))
    return next((p for p in candidates if p.is_file()), path)


def _header(image: Path) -> Path:
    """Return the header of an image: `x.hdr` before `x.tif.hdr`, as for ENVI files."""
    names = [image.with_suffix(".hdr"), image.with_name(image.name + ".hdr")]
    return next((name for name in names if name.is_file()), names[0])
