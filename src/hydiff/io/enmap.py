"""EnMAP L1C and L2A: a folder or zip with `…-SPECTRAL_IMAGE.TIF` and `…-METADATA.XML`.

The image is a GeoTIFF and is read and written as one; wavelengths, gains, detectors and the bands
that hold no data are in the metadata.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import geotiff
from hydiff.io.hdf5 import refuse_write
from hydiff.io.headers import number
from hydiff.io.marks import always
from hydiff.io.parsing import check_room, damaged, parsing

SUFFIXES = (".zip",)
keeps_mark = always
IMAGE, METADATA = "-SPECTRAL_IMAGE.TIF", "-METADATA.XML"
HALF = "-SPECTRAL_IMAGE_VNIR.TIF"  # of L1B, which has another one for SWIR
NOTE = "-HYDIFF_FILLED.JSON"  # the member with the mark of a filled product
NODATA = -32768.0
LARGEST_XML = 32 << 20  # bytes
EMPTY_MEAN = -1000000.0  # in the statistics of a band that holds no data


class Product(NamedTuple):
    """An EnMAP product in a folder or a zip."""

    root: Path  # the folder or the zip
    members: tuple[str, ...]  # every file in it

    def member_ending(self, ending: str) -> str | None:
        """Return the first member with this ending in any case; None if there is none."""
        return next(iter(self.members_ending(ending)), None)

    def members_ending(self, ending: str) -> list[str]:
        """Return the members with this ending in any case, without the hidden ones that macOS puts
        beside files, ._NAME."""
        visible = (m for m in self.members if not PurePosixPath(m).name.startswith("."))
        return [m for m in visible if m.upper().endswith(ending.upper())]

    def raster(self, member: str) -> Path:
        """Return the path under which GDAL finds a member."""
        archive = Path("/vsizip") / f"{{{_linked(self.root.resolve())}}}" if self.zipped else None
        return (archive or self.root) / member

    def nbytes(self) -> int:
        """Return the unpacked size of all members, as the archive or the folder declares it."""
        if not self.zipped:
            return sum((self.root / member).stat().st_size for member in self.members)
        with zipfile.ZipFile(self.root) as archive:
            return sum(info.file_size for info in archive.infolist())

    @property
    def zipped(self) -> bool:
        return self.root.is_file()

    @contextmanager
    def open(self, member: str) -> Iterator[BinaryIO]:
        """Open a member to read its bytes."""
        if self.zipped:
            with (
                parsing(self.root, "a complete zip"),
                zipfile.ZipFile(self.root) as archive,
                archive.open(member) as file,
            ):
                yield file  # type: ignore[misc]
        else:
            with (self.root / member).open("rb") as file:
                yield file


@cache
def _linked(archive: Path) -> Path:
    """Return a path of an archive that GDAL can take in braces: a link if the path has braces."""
    if not {"{", "}"} & set(str(archive)):
        return archive
    _links.append(tempfile.TemporaryDirectory(prefix="hydiff-"))
    link = Path(_links[-1].name) / "archive.zip"
    link.symlink_to(archive)
    return link


_links: list[tempfile.TemporaryDirectory[str]] = []  # kept until the process ends


def matches(path: Path) -> bool:
    """Return whether a path is a product: folder, zip, or image or metadata inside the folder."""
    product = find_product(path)
    return product is not None and product.member_ending(METADATA) is not None


def find_product(path: Path) -> Product | None:
    """Return the EnMAP product that a path belongs to; None if it belongs to none."""
    if path.is_dir():
        members = tuple(sorted(p.name for p in path.iterdir() if p.is_file()))
        root = path
    elif path.name.upper().endswith((IMAGE, METADATA)):
        return find_product(path.parent)
    elif path.is_file() and path.suffix.lower() == ".zip" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members, root = tuple(archive.namelist()), path
    else:
        return None
    product = Product(root, members)
    names = [name for ending in (METADATA, IMAGE) if (name := product.member_ending(ending))]
    if not names or any(PurePosixPath(name).name.startswith("DESIS") for name in names):
        return None
    _check_names(product)
    for ending in (METADATA, IMAGE):
        if len(scenes := product.members_ending(ending)) > 1:
            raise CubeFormatError(
                f"{product.root}: holds {len(scenes)} EnMAP scenes, such as {scenes[0]} and "
                f"{scenes[1]}, expected one; put the files of each into a folder of its own"
            )
    return product


def _check_names(product: Product) -> None:
    """Refuse members that lie outside the product (/etc/x, ../x or /vsicurl/…), and two members
    with one name."""
    if doubles := [name for name, n in Counter(product.members).items() if n > 1]:
        raise CubeFormatError(
            f"{product.root}: has two members called {doubles[0]}; do not trust it, fetch it again"
        )
    for member in product.members:
        place = PurePosixPath(member.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts:
            raise CubeFormatError(
                f"{product.root}: its member {member} points outside the archive; "
                "do not trust it, fetch the product again"
            )


def read(path: Path, var: str | None = None) -> Cube:
    """Open a product: values and map from the image, the rest from the metadata."""
    product = find_product(path)
    metadata = product and product.member_ending(METADATA)
    image = product and product.member_ending(IMAGE)
    if product is not None and image is None and product.members_ending(HALF):
        raise CubeFormatError(
            f"{path}: a product with an image for each detector (L1B), expected L1C or L2A; give "
            f"one image, such as {product.member_ending(HALF)}, as a GeoTIFF without its metadata"
        )
    if product is None or metadata is None or image is None:
        absent = METADATA if image else IMAGE
        raise damaged(path, f"expected an EnMAP product with a file *{absent}, found none")
    with parsing(path, "EnMAP metadata in XML"), product.open(metadata) as file:
        from defusedxml.ElementTree import fromstring

        text = file.read(LARGEST_XML + 1)
        if len(text) > LARGEST_XML:
            raise damaged(path, f"more than {LARGEST_XML >> 20} MB of metadata, expected about 1")
        root = fromstring(text)
    cube = geotiff.read(product.raster(image))
    table = _table(root, cube.bands, product.root / metadata)
    return replace(
        cube,
        wavelengths=table["wavelengthCenterOfBand"],
        wavelength_units="Nanometers",
        fwhm=table["FWHMOfBand"],
        good=~_empty_bands(root, cube.bands) & cube.good_bands,
        nodata=NODATA if cube.nodata is None else cube.nodata,
        attrs={
            **cube.attrs,
            "sensor type": "EnMAP",
            "detector": _detectors(root, table["wavelengthCenterOfBand"]),
            "data gain values": [number(x) for x in table["GainOfBand"].tolist()],
            "data offset values": [number(x) for x in table["OffsetOfBand"].tolist()],
        },
        path=product.root,
    )


def write(cube: Cube, path: Path) -> list[Path]:
    """Refuse: a product can only be written as a copy of its source, see `rewrite`."""
    refuse_write("an EnMAP product")


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy all members, with the image's changed entries, to a folder or, by its suffix, a zip."""
    product = find_product(source)
    image = product and product.member_ending(IMAGE)
    assert product is not None and image is not None  # `source` was read as a product
    check_room(product.nbytes(), source, "the product, unpacked,")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".hydiff-") as name:
        original, changed = Path(name) / "before.tif", Path(name) / "after.tif"
        with product.open(image) as stored, original.open("wb") as copy:
            shutil.copyfileobj(stored, copy)
        geotiff.rewrite(original, changed, cube)
        write_product = _into_zip if path.suffix.lower() == ".zip" else _into_folder
        write_product(_without_note(product), path, image, changed)
    if cube.mark is not None:
        _add_note(path, str(product.member_ending(METADATA)), cube.mark.json + "\n")
    return [path]


def _without_note(product: Product) -> Product:
    """Return the product without the mark of an earlier fill, which the new mark includes."""
    members = tuple(m for m in product.members if not m.upper().endswith(NOTE))
    return product._replace(members=members)


def _add_note(path: Path, metadata: str, text: str) -> None:
    """Add a text as one more member, beside the metadata."""
    name = metadata[: -len(METADATA)] + NOTE
    if path.is_dir():
        metadata_file = next(path.rglob(PurePosixPath(metadata).name))
        metadata_file.with_name(PurePosixPath(name).name).write_text(text)
    else:
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


def _into_zip(product: Product, path: Path, image: str, new: Path) -> None:
    """Write the product to a zip, with the file `new` as its image."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in product.members:
            if member.endswith("/"):
                continue
            source = new.open("rb") if member == image else product.open(member)
            # a member opened by its name gets no time stamp, so that equal fills have equal bytes
            with source as stored, archive.open(member, "w", force_zip64=True) as copy:
                shutil.copyfileobj(stored, copy)


def _into_folder(product: Product, path: Path, image: str, new: Path) -> None:
    """Write the product to a folder, with the file `new`, which is moved, as its image."""
    for member, place in _places(product, image).items():
        target = path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if member == image:
            shutil.move(new, target)
        else:
            with product.open(member) as stored, target.open("xb") as copy:
                shutil.copyfileobj(stored, copy)


def _places(product: Product, image: str) -> dict[str, PurePosixPath]:
    """Return the path of each member in a folder: relative to the image's folder if it is below."""
    root = PurePosixPath(image).parent
    paths = {m: PurePosixPath(m) for m in product.members if not m.endswith("/")}
    places = {m: p.relative_to(root) if p.is_relative_to(root) else p for m, p in paths.items()}
    # compared without case, as some file systems do
    names = Counter(str(place).lower() for place in places.values())
    names.update({str(p).lower() for place in places.values() for p in place.parents})
    if clashing := [m for m, place in places.items() if names[str(place).lower()] > 1]:
        raise CubeFormatError(
            f"{product.root}: its member {clashing[0]} and another would be one file in a folder; "
            "name the output .zip, or fetch the product again"
        )
    if len(places[product.member_ending(METADATA) or image].parts) > 1:
        raise CubeFormatError(
            f"{product.root}: its image and its metadata lie in two folders, expected one; "
            "name the output .zip, or fetch the product again"
        )
    return places


def check_unpacked(cube: Cube, memory: float) -> None:
    """Raise BadValue if copying a product unpacks more than `memory` bytes besides the cube."""
    product = None if cube.path is None else find_product(cube.path)
    rest = 0 if product is None or not product.zipped else product.nbytes() - cube.nbytes
    if rest > memory:
        raise BadValue(
            f"{cube.path}: its members unpack to {rest / 1e9:.3g} GB besides the cube, and all are "
            f"copied; if you trust it, give `memory='{math.ceil(rest / 1e9)}GB'`, else write .tif"
        )


# --- metadata -------------------------------------------------------------------------------------


def _table(root: Element, bands: int, path: Path) -> dict[str, Floats]:
    """Return the columns of `bandCharacterisation`, with one number per band."""
    rows = root.findall(".//bandCharacterisation/bandID")
    if len(rows) != bands:
        raise damaged(
            path, f"{len(rows)} bands under bandCharacterisation for {bands} in the image"
        )
    defaults = {"GainOfBand": "1", "OffsetOfBand": "0"}
    with parsing(path, "numbers under bandCharacterisation", "fetch the product again"):
        return {
            key: np.array([float(row.findtext(key, defaults.get(key, "nothing"))) for row in rows])
            for key in ("wavelengthCenterOfBand", "FWHMOfBand", "GainOfBand", "OffsetOfBand")
        }


def _empty_bands(root: Element, bands: int) -> Bools:
    """(bands,) True for bands whose statistics say that they hold no data."""
    rows = root.findall(".//bandStatistics/bandID")
    empty = np.zeros(bands, bool)
    for i, row in enumerate(rows if len(rows) == bands else ()):
        empty[i] = _statistic(row, "std") == 0 and _statistic(row, "mean") == EMPTY_MEAN
    return empty


def _statistic(row: Element, word: str) -> float | None:
    """Return the number in the first child with a word in its name: spellings of names differ."""
    texts = (child.text for child in row if word in child.tag.lower())
    try:
        return float(next(texts, None) or "nan")
    except ValueError:
        return None


def _detectors(root: Element, wavelengths: Floats) -> list[str]:
    """Return VNIR or SWIR for each band: by the metadata's list, else split at their overlap."""
    listed = _channels(root.findtext(".//vnirProductQuality/expectedChannelsList"))
    if listed:
        return ["VNIR" if i + 1 in listed else "SWIR" for i in range(len(wavelengths))]
    steps: Any = np.flatnonzero(np.diff(wavelengths) < 0)
    first_swir = int(steps[0]) + 1 if len(steps) else int(np.sum(wavelengths < 1000))
    return ["VNIR" if i < first_swir else "SWIR" for i in range(len(wavelengths))]


def _channels(text: str | None) -> set[int]:
    """Parse channel numbers separated by commas; parts that are no numbers are skipped."""
    return {int(part) for part in (text or "").split(",") if part.strip().isdigit()}
