"""Header entries that no field of a Cube holds, as they are passed between formats.

In `Cube.attrs`, a text or a list of texts is such an entry, as in ENVI headers; a mapping holds
the entries of a single format ("geotiff", "array", "sidecar") and is left to that format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Layout of the values: each file that is written has its own.
LAYOUT = {"samples", "lines", "bands", "interleave"}
LAYOUT |= {"header offset", "file type", "data type", "byte order"}
# Entries that are fields of a Cube.
FIELDS = {"wavelength", "wavelength units", "fwhm", "bbl", "data ignore value", "band names"}
FIELDS |= {"map info", "projection info", "coordinate system string"}

SCALING = ("data gain values", "data offset values")  # physical value = gain · stored + offset
FACTOR = "reflectance scale factor"  # the same as a gain of 1 / factor, for all bands
UNITS = ("units", "data units")  # entries that name the unit of the values
SENSOR = "sensor type"  # whose conventions may say what is missing, see `io.conventions`
NOTES = "hydiff notes"  # a mapping: field -> assumption that the reader made

Entry = str | list[str]


def canonical(key: str) -> str:
    """Return a key in lower case with spaces: GDAL writes ENVI's keys as `data_ignore_value`."""
    return " ".join(key.lower().replace("_", " ").split())


def entries(attrs: Mapping[str, Any]) -> dict[str, Entry]:
    """Return the header entries among `attrs`, except those for fields of a Cube and the layout."""
    texts: dict[str, Entry] = {}
    for key, value in attrs.items():
        if not key or canonical(key) in LAYOUT | FIELDS:
            continue
        if isinstance(value, str | int | float):
            texts[key] = str(value)
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            texts[key] = list(value)
    return texts


def carried(attrs: Mapping[str, Any]) -> dict[str, Entry]:
    """Return the header entries for a file of another format: `entries`, the tags of a GeoTIFF that
    are not among them, and the unit of its bands."""
    listed = entries(attrs)
    tags = _box(attrs).get("tags", {}).get("", {})
    skip = {canonical(key) for key in listed} | {"area or point"}
    listed |= {k: v for k, v in entries(tags).items() if canonical(k) not in skip}
    found = unit(attrs)
    return listed if found is None or unit(listed) else listed | {"units": found}


def unit(attrs: Mapping[str, Any]) -> str | None:
    """Return the unit of the values: the one of the cube, or of all bands of a GeoTIFF."""
    texts = {canonical(key): value for key, value in attrs.items() if isinstance(value, str)}
    bands = set(_box(attrs).get("units") or ())
    common = [bands.pop()] if len(bands) == 1 else []
    return next((u for u in (*(texts.get(key) for key in UNITS), *common) if u), None)


def _box(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entries of a GeoTIFF; {} without."""
    box = attrs.get("geotiff")
    return box if isinstance(box, Mapping) else {}


def to_text(entry: Entry) -> str:
    """Return an entry as text; a list becomes `{a, b}`, as ENVI writes it."""
    return entry if isinstance(entry, str) else "{" + ", ".join(entry) + "}"


def from_text(text: str) -> Entry:
    """Return a text as an entry; `{a, b}` becomes a list: the inverse of `to_text`."""
    if text.startswith("{") and text.endswith("}"):
        return [part.strip() for part in text[1:-1].split(",")]
    return text


def number(value: float) -> str:
    """Return the shortest text that reads back as the same float; whole numbers without a point."""
    whole = abs(value) < 1e15 and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def notes(attrs: Mapping[str, Any]) -> dict[str, str]:
    """Return the assumptions of a reader by field; {} if the file has something else there."""
    box = attrs.get(NOTES)
    return {str(k): str(v) for k, v in box.items()} if isinstance(box, Mapping) else {}


def scaling(attrs: Mapping[str, Any], bands: int) -> tuple[list[float], list[float]] | None:
    """Return gain and offset of each band; None if the source states none other than 1 and 0.

    The first of these counts that does: the lists of gains and offsets, the scales of a GeoTIFF's
    bands, one reflectance factor.
    """
    stated = {canonical(key): value for key, value in attrs.items()}
    box = stated["geotiff"] if isinstance(stated.get("geotiff"), Mapping) else {}
    factor = _per_band([stated.get(FACTOR)], bands)
    places = [
        [_per_band(stated.get(key), bands) for key in SCALING],
        [_per_band(box.get(key), bands) for key in ("scales", "offsets")],
        [(factor and [1 / x for x in factor if x]) or None, None],
    ]
    for gains, offsets in places:
        gains, offsets = gains or [1.0] * bands, offsets or [0.0] * bands
        if set(gains) != {1.0} or set(offsets) != {0.0}:
            return gains, offsets
    return None


def _per_band(listed: Any, bands: int) -> list[float] | None:
    """Return one number per band, or None; a single common number serves any number of bands."""
    try:
        numbers = [float(x) for x in ([listed] if isinstance(listed, str) else listed)]
    except (TypeError, ValueError):
        return None
    if len(set(numbers)) == 1:
        return numbers[:1] * bands
    return numbers if len(numbers) == bands else None


def with_lines(text: bytes, lines: Sequence[str]) -> bytes:
    """Return the text of a header with lines added at its end."""
    end = b"\r\n" if b"\r\n" in text else b"\n"
    start = text if text.endswith(b"\n") else text + end
    return start + b"".join(line.encode("ascii", "replace") + end for line in lines)
