"""What lies beside a GeoTIFF and says more of it: GDAL's .aux.xml, an .aux, a world file, RPCs.

Such a file is read only when it can lead nowhere, and only what is known of it; it goes with the
image when that is written again, without the statistics that no longer hold.
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
PAM, MASK = ".aux.xml", ".msk"  # behind the whole name of the image
# Instead of its suffix: Erdas, world files, MapInfo, DigitalGlobe.
ERDAS = ".aux"
TEXTS = (".tfw", ".tifw", ".tiffw", ".wld", ".tab", ".rpb", ".imd", "_rpc.txt")
# What GDAL reads of an .aux.xml and takes for values, not for names of files.
OF_DATASET = ("SRS", "GeoTransform", "GCPList", "Metadata", "PAMRasterBand")
OF_BAND = ("Description", "NoDataValue", "UnitType", "Offset", "Scale", "ColorInterp", "Metadata")
STATISTICS = ("Histograms", "Minimum", "Maximum", "Mean", "StandardDeviation")
WKT = re.compile(r"\s*[A-Za-z]+\w*(\[|:\d+\s*$)")


def description_files(image: Path) -> dict[str, Path]:
    """Files that describe an image: what follows its name or stem, in lower case -> the file."""
    if not image.is_file():
        return {}
    ends = {path: _end(path.name, image) for path in sorted(image.parent.iterdir())}
    return {end: path for path, end in ends.items() if end is not None and path.is_file()}


def _end(name: str, image: Path) -> str | None:
    """What a name adds to that of an image, if it is one of the known ends."""
    for start, known in ((image.name, (PAM, MASK)), (image.stem, (ERDAS, *TEXTS))):
        end = name[len(start) :].lower()
        if name.startswith(start) and end in known:
            return end
    return None


def described_by(image: Path) -> list[Path]:
    """The files that describe an image."""
    return list(description_files(image).values())


def checked_copies(image: Path) -> dict[str, bytes]:
    """Contents to show GDAL, by name; CubeFormatError for a file that leads elsewhere.

    The mask is not among them: it is opened as an image of its own.
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
    """The external mask of an image; GDAL would open it with any driver, so it must be a TIFF."""
    path = description_files(image).get(MASK)
    if path is not None and not tiff.is_tiff(path):
        raise CubeFormatError(
            f"{path}: expected the mask of {image.name} as a TIFF, found another kind of file, "
            "which may lead elsewhere; remove it, or write the mask again"
        )
    return path


def carry(source: Path, target: Path, stale: frozenset[int]) -> list[Path]:
    """Put what described `source` beside `target`; the files made.

    stale: bands, from 0, whose statistics no longer hold.  An .aux names its image, so what it says
    goes into the image instead; the mask is written with the values.
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
    if path.stat().st_size > LARGEST:
        raise CubeFormatError(
            f"{path}: {path.stat().st_size >> 20} MB, expected a small file that describes an "
            "image; remove it or fetch it again"
        )
    return path.read_bytes()


def _plain_erdas(path: Path) -> dict[str, bytes]:
    """An .aux of Erdas Imagine without values of its own elsewhere; others (of TeX …) are none."""
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
    from defusedxml.ElementTree import fromstring

    content = _content(path)
    with parsing(path, "XML metadata", "correct or remove it"):
        root: Element = fromstring(content)
    text = html.unescape(tostring(root, encoding="unicode")).lower()
    reference = (root.findtext("SRS") or "").strip()
    leads = any(word in text for word in ("overview_file", "sourcefilename", "/vsi"))
    if leads or (reference and not WKT.match(reference)):
        raise CubeFormatError(
            f"{path}: names another file, which GDAL would open; do not trust it, or remove it"
        )
    return root


def _plain_pam(path: Path) -> bytes:
    """The entries that are known, written again: nothing else reaches GDAL."""
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
    """All of it but the statistics and histograms of some bands."""
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
