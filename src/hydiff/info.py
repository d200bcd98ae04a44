"""What a cube says of itself, without reading all of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hydiff.cube import Cube

WHOLE = 64 * 2**20  # bytes up to which every value is looked at
SAMPLED_ROWS = 16  # beyond that, so many evenly spaced rows


# header keys that the fields above stand for
SHOWN = {
    "bands", "lines", "samples", "byte order", "data type", "interleave", "header offset",
    "file type", "wavelength", "wavelength units", "fwhm", "bbl", "band names", "map info",
    "coordinate system string", "data ignore value",
}  # fmt: skip


def facts(cube: Cube) -> dict[str, Any]:
    """A JSON-able summary: header fields and a look at the values (sampled when large)."""
    bands, rows, cols = cube.shape
    return {
        "path": None if cube.path is None else str(cube.path),
        "format": cube.format,
        "bands": bands,
        "rows": rows,
        "cols": cols,
        "dtype": str(cube.dtype),
        "bytes": cube.nbytes,
        "wavelengths": _span(cube.wavelengths),
        "wavelength_units": cube.wavelength_units,
        "fwhm": _span(cube.fwhm),
        "bad_bands": np.flatnonzero(~cube.good_bands).tolist(),
        "nodata": cube.nodata,
        "crs": _crs_name(cube.crs),
        "transform": cube.transform,
        "band_names": None
        if cube.band_names is None
        else [cube.band_names[0], cube.band_names[-1]],
        "other_attributes": sorted(_others(cube)),
        "values": look(cube),
    }


def look(cube: Cube) -> dict[str, Any]:
    """Missing share, minimum and maximum of the observed values in some or all rows."""
    rows = cube.shape[1]
    some = np.arange(rows)
    if cube.nbytes > WHOLE:
        some = np.unique(np.linspace(0, rows - 1, SAMPLED_ROWS).astype(int))
        blocks = [slice(int(r), int(r) + 1) for r in some]
    else:
        blocks = [slice(0, rows)]
    missing = entries = 0
    low, high = np.inf, -np.inf
    for block in blocks:
        values = np.asarray(cube.values[:, block, :])
        seen = cube.observed_in(values, rows=block)
        missing, entries = missing + int((~seen).sum()), entries + seen.size
        if seen.any():
            low = min(low, values[seen].min())
            high = max(high, values[seen].max())
    return {
        "rows_read": len(some),
        "missing_share": missing / entries,
        "minimum": None if missing == entries else float(low),
        "maximum": None if missing == entries else float(high),
    }


def lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a person: label and text, leaving out what the file does not say."""
    f, seen = facts, facts["values"]
    share = f"{100 * seen['missing_share']:.2f} % of the entries"
    if seen["rows_read"] < f["rows"]:
        share += f" in {seen['rows_read']} sampled rows (`hydiff mask` reads all)"
    rows = [
        ("cube", f"{f['bands']} bands × {f['rows']} rows × {f['cols']} cols, {f['dtype']}"),
        ("format", f"{f['format']}, {f['bytes'] / 1e6:.1f} MB of values"),
        ("wavelengths", _range(f["wavelengths"], f["wavelength_units"] or "unit not given")),
        ("fwhm", _range(f["fwhm"], f["wavelength_units"] or "")),
        ("bad bands", f"{len(f['bad_bands'])} of {f['bands']}" if f["bad_bands"] else ""),
        ("nodata", "none declared" if f["nodata"] is None else f"{f['nodata']:g}"),
        ("missing", share),
        (
            "values",
            ""
            if seen["minimum"] is None
            else f"{seen['minimum']:g} … {seen['maximum']:g} where observed",
        ),
        ("map", f["crs"] or ""),
        ("also kept", ", ".join(f["other_attributes"])),
    ]
    return [(label, text) for label, text in rows if text]


def _others(cube: Cube) -> set[str]:
    """Names of what the file says besides the above."""
    tags = cube.attrs.get("geotiff", {}).get("tags", {})
    named = {str(k) for k, v in cube.attrs.items() if isinstance(v, str | list | int | float)}
    return (named | {key for space in tags.values() for key in space}) - SHOWN


def _span(values: Any) -> list[float] | None:
    return None if values is None else [float(np.min(values)), float(np.max(values))]


def _range(span: list[float] | None, unit: str) -> str:
    return "" if span is None else f"{span[0]:g} … {span[1]:g} {unit}".rstrip()


def _crs_name(wkt: str | None) -> str | None:
    """The first quoted name of a WKT string, e.g. "WGS 84 / UTM zone 10N"."""
    return wkt.split('"')[1] if wkt and '"' in wkt else wkt
