"""GDAL, through rasterio: its settings, and the only functions that open a GeoTIFF with it.

GDAL follows tags and neighbouring files of a GeoTIFF to any path, driver or host.  So a file is
checked first (`tiff`), and GDAL is shown the file alone, or together with checked copies of the
files beside it in a separate folder (`beside`).
"""

from __future__ import annotations

import html
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from hydiff.errors import CubeFormatError
from hydiff.io import beside, tiff
from hydiff.io.parsing import damaged, parsing

CACHE = 128 << 20  # bytes; GDAL's default is a twentieth of the memory
ALONE = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO"}
MOST_BANDS = 10_000  # GDAL takes minutes for more, and sensors have hundreds
ZIPPED = "/vsizip/{"  # how GDAL writes a member of an archive: /vsizip/{ARCHIVE}/MEMBER


@contextmanager
def gdal(**options: str) -> Iterator[None]:
    """Send GDAL's messages inside the block to the log, and hide rasterio's warning about rasters
    without a map position: most cubes have none."""
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    with rasterio.Env(GDAL_CACHEMAX=CACHE, **options), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


@contextmanager
def open_alone(path: Path, mode: str = "r", **options: Any) -> Iterator[Any]:
    """Open a GeoTIFF alone: GDAL sees no file beside it, and no tag refers to another file."""
    import rasterio

    structure(path)
    # with its folder, a name such as GTIFF_DIR:1:other.tif does not mean another file
    name = path.absolute()
    with gdal(**ALONE), rasterio.open(name, mode, driver="GTiff", **options) as dataset:
        yield dataset


@contextmanager
def open_picture(path: Path) -> Iterator[Any]:
    """Open a PNG picture without the files beside it."""
    import rasterio

    # with this optimisation, a truncated picture would have random values at its end
    options = {**ALONE, "GDAL_PNG_WHOLE_IMAGE_OPTIM": "NO"}
    with gdal(**options), rasterio.open(path.absolute(), driver="PNG") as dataset:
        yield dataset


@contextmanager
def create(path: Path, **profile: Any) -> Iterator[Any]:
    """Create a GeoTIFF, with its mask inside the file."""
    import rasterio

    options = {**ALONE, "GDAL_TIFF_INTERNAL_MASK": "YES"}
    with gdal(**options), rasterio.open(path.absolute(), "w", driver="GTiff", **profile) as dataset:
        yield dataset


@contextmanager
def create_envi(path: Path, transform: tuple[float, ...], **profile: Any) -> Iterator[Any]:
    """Create an ENVI file whose header states an affine transform."""
    import rasterio

    profile["transform"] = rasterio.Affine(*transform)
    with gdal(), rasterio.open(path.absolute(), "w", driver="ENVI", **profile) as dataset:
        yield dataset


@contextmanager
def open_described(path: Path) -> Iterator[Any]:
    """Open a GeoTIFF with the metadata in the files beside it; not for its values or masks."""
    import rasterio

    copies = beside.checked_copies(path)
    if not copies:
        with open_alone(path) as dataset:
            yield dataset
        return
    structure(path)
    with tempfile.TemporaryDirectory(prefix="hydiff-") as folder:
        for name, content in copies.items():
            (Path(folder) / name).write_bytes(content)
        place = Path(folder) / path.name
        place.symlink_to(path.resolve())
        options = {"GDAL_DISABLE_READDIR_ON_OPEN": "NO", "GDAL_PAM_ENABLED": "YES"}
        with gdal(**options), rasterio.open(place, driver="GTiff") as dataset:
            yield dataset


def structure(path: Path) -> tiff.Tiff:
    """Return the pages of a file that GDAL may open; CubeFormatError for one that it may not."""
    archive = _archive_of(path)
    state = (path if archive is None else archive[0]).stat()
    return _structure(path, state.st_mtime_ns, state.st_size)


@lru_cache(8)  # each window of a lazy cube opens its file
def _structure(path: Path, changed: int, size: int) -> tiff.Tiff:
    """Check and parse a file; its time and size only tell versions of it apart in the cache."""
    with parsing(path, "a GeoTIFF"), _bytes_of(path) as (file, length):
        pages = tiff.parse(file, length, path)
    if any("overview_file" in html.unescape(text).lower() for text in pages.metadata()):
        raise CubeFormatError(
            f"{path}: its tag OVERVIEW_FILE names another file, which GDAL would open; "
            "do not trust it, or remove the tag with gdal_edit.py -unsetmd"
        )
    if not all(_quotable(text) for text in pages.metadata()):
        raise damaged(path, "its GDAL metadata are no XML")
    if (bands := pages.first(tiff.SAMPLES, 1)) > MOST_BANDS:
        raise CubeFormatError(
            f"{path}: {bands} bands, expected at most {MOST_BANDS}; the file is damaged, "
            "or should be cut into parts"
        )
    return pages


def _quotable(text: str) -> bool:
    """Return False if GDAL would quote a text that is not UTF-8, which rasterio cannot log."""
    from defusedxml.ElementTree import ParseError, fromstring

    if "\ufffd" in text:
        try:
            fromstring(text.rstrip("\0"))
        except (ParseError, ValueError):
            return False
    return True


def _archive_of(path: Path) -> tuple[Path, str] | None:
    """Return archive and member of a path inside a zip; None for another path."""
    text = str(path)
    if not text.startswith(ZIPPED):
        return None
    archive, _, member = text.removeprefix(ZIPPED).rpartition("}/")
    return Path(archive), member


@contextmanager
def _bytes_of(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file, or the member of a zip, and yield it with its length."""
    if (archive := _archive_of(path)) is None:
        with path.open("rb") as file:
            yield file, path.stat().st_size
    else:
        with zipfile.ZipFile(archive[0]) as members, members.open(archive[1]) as member:
            yield member, members.getinfo(archive[1]).file_size  # type: ignore[misc]
