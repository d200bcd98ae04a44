"""Files that describe a GeoTIFF beside it: GDAL's .aux.xml, an .aux, a world file, RPCs.

Such a file is read only if it refers to no other file, and only its known entries are used.  It is
copied along when the image is written again, without statistics that no longer hold.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from hydiff.errors import CubeFormatError
from hydiff.io import tiff
from hydiff.io.parsing import parsing

LARGEST = 16 << 20  # bytes
PAM, MASK = ".aux.xml", ".msk"  # appended to the whole name of the image
# Endings that replace the suffix of the image: Erdas, world files, MapInfo, DigitalGlobe.
ERDAS = ".aux"
TEXTS = (".tfw", ".tifw", ".tiffw", ".wld", ".tab", ".rpb", ".imd", "_rpc.txt")
# Entries of an .aux.xml that GDAL takes for values, not for names of files.
OF_DATASET = ("SRS", "GeoTransform", "GCPList", "Metadata", "PAMRasterBand")
OF_BAND = ("Description", "NoDataValue", "UnitType", "Offset", "Scale", "ColorInterp", "Metadata")
STATISTICS = ("Histograms", "Minimum", "Maximum", "Mean", "StandardDeviation")
WKT = re.compile(r"\s*[A-Za-z]+\w*(\[|:\d+\s*$)")


def description_files(image: Path) -> dict[str, Path]:
    """Return the files that describe an image, by their ending in lower case (`.aux.xml`, ...)."""
    if not image.is_file():
        return {}
    ends = {path: _end(path.name, image) for path in sorted(image.parent.iterdir())}
    return {end: path for path, end in ends.items() if end is not None and path.is_file()}


def _end(name: str, image: Path) -> str | None:
    """Return what a file name adds to the name or stem of an image, if it is a known ending."""
    for start, known in ((image.name, (PAM, MASK)), (image.stem, (ERDAS, *TEXTS))):
        end = name[len(start) :].lower()
        if name.startswith(start) and end in known:
            return end
    return None


def described_by(image: Path) -> list[Path]:
    """Return the files that describe an image."""
    return list(description_files(image).values())


def checked_copies(image: Path) -> dict[str, bytes]:
    """Return the contents to show to GDAL, by name; CubeFormatError if a file refers to others.

    The mask is not among them: it is opened as a separate image.
    """
    copies: dict[str, bytes] = {}
    for end, path in description_files(image).items():
        if end == PAM:
            copies[path.name] = _plain_pam(path)
        elif end == ERDAS:
            copies |= _plain_erdas(path)
        elif end != MASK:
            copies[path.name] = _content(path)
    return copies


def mask_of(image: Path) -> Path | None:
    """Return the external mask of an image, which must be a TIFF: GDAL opens it with any driver."""
    path = description_files(image).get(MASK)
    if path is not None and not tiff.is_tiff(path):
        raise CubeFormatError(
            f"{path}: expected the mask of {image.name} as a TIFF, found another kind of file, "
            "which may lead elsewhere; remove it, or write the mask again"
        )
    return path


def carry(source: Path, target: Path, stale: frozenset[int]) -> list[Path]:
    """Copy the files that describe `source` to `target`; return the files made.

    stale: bands, from 0, whose statistics no longer hold.  An .aux contains the name of its image,
    so its content goes into the image instead; the mask is written with the values.
    """
    copies = {}
    for end, path in description_files(source).items():
        if end == PAM:
            place = target.with_name(target.name + path.name[len(source.name) :])
            copies[place] = _fresh_pam(path, stale)
        elif end in TEXTS:
            place = target.with_name(target.stem + path.name[len(source.stem) :])
            copies[place] = _content(path)
    for place, content in copies.items():
        place.write_bytes(content)
    return list(copies)


def _content(path: Path) -> bytes:
    """Return the bytes of a file; CubeFormatError if it has more than LARGEST."""
    if path.stat().st_size > LARGEST:
        raise CubeFormatError(
            f"{path}: {path.stat().st_size >> 20} MB, expected a small file that describes an "
            "image; remove it or fetch it again"
        )
    return path.read_bytes()


def _plain_erdas(path: Path) -> dict[str, bytes]:
    """Return an .aux of Erdas Imagine, {} if it is another kind (TeX …); refuse references."""
    content = _content(path)
    if not content.startswith(b"EHFA_HEADER_TAG"):
        return {}
    if b"ExternalRasterDMS" in content or b"/vsi" in content.lower():
        raise CubeFormatError(
            f"{path}: names another file, which GDAL would open; do not trust it, or remove it"
        )
    return {path.name: content}


# --- .aux.xml -------------------------------------------------------------------------------------


def _pam(path: Path) -> Element:
    """Parse an .aux.xml; CubeFormatError if it refers to another file."""
    from defusedxml.ElementTree import fromstring

    content = _content(path)
    with parsing(path, "XML metadata", "correct or remove it"):
        root: Element = fromstring(content)
    text = html.unescape(tostring(root, encoding="unicode")).lower()
    reference = (root.findtext("SRS") or "").strip()
    names_file = any(word in text for word in ("overview_file", "sourcefilename", "/vsi"))
    if names_file or (reference and not WKT.match(reference)):
        raise CubeFormatError(
            f"{path}: names another file, which GDAL would open; do not trust it, or remove it"
        )
    return root


def _plain_pam(path: Path) -> bytes:
    """Return an .aux.xml with its known entries only: nothing else reaches GDAL."""
    root = _pam(path)
    copy = Element("PAMDataset")
    for child in root:
        if child.tag not in OF_DATASET or child.get("format") == "xml":
            continue
        if child.tag == "PAMRasterBand":
            for entry in list(child):
                if entry.tag not in OF_BAND or entry.get("format") == "xml":
                    child.remove(entry)
        copy.append(child)
    return tostring(copy)


def _fresh_pam(path: Path, stale: frozenset[int]) -> bytes:
    """Return an .aux.xml without the statistics and histograms of the stale bands."""
    root = _pam(path)
    for band in root.iter("PAMRasterBand"):
        if (band.get("band") or "").isdigit() and int(band.get("band") or 0) - 1 in stale:
            for entry in list(band):
                if entry.tag in STATISTICS:
                    band.remove(entry)
            for entry in band.iter("Metadata"):
                for item in list(entry):
                    if (item.get("key") or "").startswith("STATISTICS_"):
                        entry.remove(item)
    return tostring(root)
