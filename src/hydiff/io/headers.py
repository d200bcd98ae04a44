"""Header entries that no field of a Cube holds, as they travel between formats.

In `Cube.attrs` a text or a list of texts is such an entry, in the manner of ENVI headers; a
mapping is the box of one format ("geotiff", "array", "sidecar") and is left to that format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# How the values are laid out: each file that is written has its own layout.
LAYOUT = {"samples", "lines", "bands", "interleave"}
LAYOUT |= {"header offset", "file type", "data type", "byte order"}
# What fields of a Cube say.
FIELDS = {"wavelength", "wavelength units", "fwhm", "bbl", "data ignore value", "band names"}
FIELDS |= {"map info", "projection info", "coordinate system string"}

SCALING = ("data gain values", "data offset values")  # physical value = gain · stored + offset
FACTOR = "reflectance scale factor"  # the same as a gain of 1 / factor, for all bands
NOTES = "hydiff notes"  # the box of what a reader took for granted: field -> how

Entry = str | list[str]


def canonical(key: str) -> str:
    """ENVI writes `data ignore value`, GDAL `data_ignore_value`; capitals do not count."""
    return " ".join(key.lower().replace("_", " ").split())


def entries(attrs: Mapping[str, Any]) -> dict[str, Entry]:
    """The header entries among `attrs`, without those that fields and layout already say."""
    texts: dict[str, Entry] = {}
    for key, value in attrs.items():
        if not key or canonical(key) in LAYOUT | FIELDS:
            continue
        if isinstance(value, str | int | float):
            texts[key] = str(value)
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            texts[key] = list(value)
    return texts


def to_text(entry: Entry) -> str:
    """A list becomes `{a, b}`, as ENVI writes it."""
    return entry if isinstance(entry, str) else "{" + ", ".join(entry) + "}"


def from_text(text: str) -> Entry:
    """`{a, b}` becomes a list; inverse of `to_text`."""
    if text.startswith("{") and text.endswith("}"):
        return [part.strip() for part in text[1:-1].split(",")]
    return text


def number(value: float) -> str:
    """The shortest text that reads back as the same float; whole numbers without a point."""
    whole = abs(value) < 1e15 and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def notes(attrs: Mapping[str, Any]) -> dict[str, str]:
    """What a reader took for granted, by field; files may hold anything under that name."""
    box = attrs.get(NOTES)
    return {str(k): str(v) for k, v in box.items()} if isinstance(box, Mapping) else {}


def scaling(attrs: Mapping[str, Any], bands: int) -> tuple[list[float], list[float]] | None:
    """Gain and offset of each band, where the source states any that are not 1 and 0.

    By its lists of gains and offsets, the scales of a GeoTIFF's bands, or one reflectance factor.
    """
    own = {canonical(key): value for key, value in attrs.items()}
    box = own["geotiff"] if isinstance(own.get("geotiff"), Mapping) else {}
    factor = _per_band([own.get(FACTOR)], bands)
    places = [
        [_per_band(own.get(key), bands) for key in SCALING],
        [_per_band(box.get(key), bands) for key in ("scales", "offsets")],
        [(factor and [1 / x for x in factor if x]) or None, None],
    ]
    for gains, offsets in places:
        gains, offsets = gains or [1.0] * bands, offsets or [0.0] * bands
        if set(gains) != {1.0} or set(offsets) != {0.0}:
            return gains, offsets
    return None


def _per_band(listed: Any, bands: int) -> list[float] | None:
    """Numbers, one for each band; one that all share serves any number of bands."""
    try:
        numbers = [float(x) for x in ([listed] if isinstance(listed, str) else listed)]
    except (TypeError, ValueError):
        return None
    if len(set(numbers)) == 1:
        return numbers[:1] * bands
    return numbers if len(numbers) == bands else None
