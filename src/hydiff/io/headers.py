"""Header entries that no field of a Cube holds, as they travel between formats.

In `Cube.attrs` a text or a list of texts is such an entry, in the manner of ENVI headers; a
mapping is the box of one format ("geotiff", "array", "sidecar") and is left to that format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# How the values are laid out: said anew by every file that is written.
LAYOUT = {
    "samples",
    "lines",
    "bands",
    "header offset",
    "file type",
    "data type",
    "interleave",
    "byte order",
}
# What fields of a Cube say.
FIELDS = {
    "wavelength",
    "wavelength units",
    "fwhm",
    "bbl",
    "data ignore value",
    "band names",
    "map info",
    "projection info",
    "coordinate system string",
}

Entry = str | list[str]


def canonical(key: str) -> str:
    """ENVI writes `data ignore value`, GDAL `data_ignore_value`; capitals do not count."""
    return " ".join(key.lower().replace("_", " ").split())


def entries(attrs: Mapping[str, Any]) -> dict[str, Entry]:
    """The header entries among `attrs`, without those that fields and layout already say."""
    kept: dict[str, Entry] = {}
    for key, value in attrs.items():
        if not key or canonical(key) in LAYOUT | FIELDS:
            continue
        if isinstance(value, str | int | float):
            kept[key] = str(value)
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            kept[key] = list(value)
    return kept


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
