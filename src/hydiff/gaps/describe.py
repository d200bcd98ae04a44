"""A summary of a cube, made from its header and a sample of its values."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Cube, Nodata, equals_any
from hydiff.flags import shares
from hydiff.gaps import rule
from hydiff.gaps.census import ranges
from hydiff.io import provenance, quality
from hydiff.io.blocks import Block, sampled
from hydiff.io.headers import FIELDS, LAYOUT, canonical, notes
from hydiff.io.threads import in_threads
from hydiff.mark import Mark, bounded

UNNAMED = ("unnamed", "unknown", "")  # as GDAL and others call a CRS that has no name


def facts(cube: Cube, nodata: Nodata = None, nodata_in: str | None = None) -> dict[str, Any]:
    """Return a summary for JSON: header fields and statistics of the values, sampled if large.

    nodata, nodata_in: which values mean missing, as for a fill.
    """
    bands, rows, cols = cube.shape
    return {
        "path": None if cube.path is None else str(cube.path),
        "format": cube.format,
        "filled": _filled(cube.mark, cube.path),
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
        "mask": _mask(cube),
        "detectors": _detectors(cube),
        "crs": _crs_name(cube.crs),
        "transform": cube.transform,
        "glt": None if cube.glt is None else list(cube.glt.lookup.shape[:2]),
        "quality": {} if cube.path is None else quality.beside(cube.path, cube.format),
        "band_names": None
        if cube.band_names is None
        else [cube.band_names[0], cube.band_names[-1]],
        "notes": notes(cube.attrs),
        "other_attributes": sorted(_others(cube)),
        "values": look(cube, nodata, nodata_in),
        "suspected": rule.suspected(cube, nodata=nodata),
    }


def look(cube: Cube, nodata: Nodata = None, nodata_in: str | None = None) -> dict[str, Any]:
    """Return the missing share, and the range of the observed values, of the cube or a sample."""
    whole = rule.counted_whole(cube, nodata, nodata_in)
    places, sample = sampled(cube, deep=bool(whole))

    def counts_and_ends(place: Block) -> tuple[list[int], list[float]]:
        """Return counts of the entries of a block and the ends of its observed values."""
        bands, rows, cols = place
        values = np.asarray(cube.values[place])
        measured = cube.observed_in(values, nodata, rows, cols, bands, whole=whole)
        spared = int((equals_any(values, whole) & measured).sum()) if whole else 0
        withheld = int(cube.withheld_in(values).sum())
        seen = values[measured]
        ends = [float(seen.min()), float(seen.max())] if len(seen) else []
        return [measured.size, measured.size - len(seen), withheld, spared], ends

    counts, ends = zip(*in_threads(counts_and_ends, places), strict=True)
    entries, missing, withheld, n_spared = np.sum(counts, axis=0).tolist()
    observed = list(chain(*ends))
    return {
        "sample": sample,
        "notes": rule.spared_note(whole, n_spared),
        "missing_share": missing / entries,
        "withheld_share": withheld / entries,
        "minimum": min(observed, default=None),
        "maximum": max(observed, default=None),
    }


def lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return `facts` as pairs (label, text), without facts that have no value."""
    f, summary = facts, facts["values"]
    share = f"{100 * summary['missing_share']:.2f} % of the entries"
    if summary["sample"]:
        share += f" in {summary['sample']} (`hydiff mask` reads all)"
    if summary["withheld_share"]:
        share += f"; {100 * summary['withheld_share']:.2f} % were screened for clouds, not lost"
    rows = [
        ("FILLED", _filled_line(f["filled"])),
        ("flags", _flags_line(f["filled"])),
        ("cube", f"{f['bands']} bands × {f['rows']} rows × {f['cols']} cols, {f['dtype']}"),
        ("format", f"{f['format']}, {f['bytes'] / 1e6:.1f} MB of values"),
        ("wavelengths", _range(f["wavelengths"], f["wavelength_units"] or "unit not given")),
        *(("note", f"{field}: {text}") for field, text in f["notes"].items()),
        ("fwhm", _range(f["fwhm"], f["wavelength_units"] or "")),
        ("bad bands", f"{len(f['bad_bands'])} of {f['bands']}" if f["bad_bands"] else ""),
        ("nodata", "none declared" if f["nodata"] is None else f"{f['nodata']:g}"),
        ("mask", f["mask"] or ""),
        ("missing", share),
        (
            "values",
            ""
            if summary["minimum"] is None
            else f"{summary['minimum']:g} … {summary['maximum']:g} where observed",
        ),
        *(("note", note) for note in summary["notes"]),
        *(("suspect", text) for text in f["suspected"]),
        ("detectors", ", ".join(f"{name}: {bands}" for name, bands in f["detectors"].items())),
        ("map", f["crs"] or ""),
        ("lookup", _lookup(f["glt"])),
        *(
            ("quality", f"`quality='{file}'` has {', '.join(q)}")
            for file, q in f["quality"].items()
        ),
        *(("flagged", text) for text in f.get("flagged", ())),
        ("also kept", _first(f["other_attributes"])),
    ]
    return [(label, text) for label, text in rows if text]


def _mask(cube: Cube) -> str | None:
    """Name the validity layer of the file; None if it has none."""
    if cube.valid is None:
        return None
    return str(cube.attrs.get("geotiff", {}).get("mask", "inside"))


def _filled(mark: Mark | None, path: Path | None) -> dict[str, Any] | None:
    """Return what a file states about its own fill; None if it is not marked as filled.

    ENVI headers cannot hold the record of the fill, so it is read from the companion file.
    """
    if mark is None:
        return None
    record = dict(mark.record)
    if not record and path is not None:
        record = bounded(provenance.read_record(path))
    return {
        "text": mark.text,
        "share": None if np.isnan(mark.share) else mark.share,
        "by_band": None if mark.by_band is None else mark.by_band.tolist(),
        "method": mark.method,
        "version": mark.version,
        "time": mark.time,
        "record": record,
    }


def _filled_line(filled: dict[str, Any] | None) -> str:
    """Return the text of the mark, with the range over bands if they differ; "" if not filled."""
    if filled is None:
        return ""
    shares = filled["by_band"] or [filled["share"]]
    uneven = min(shares) != max(shares)
    spread = f"; {100 * min(shares):.4g} to {100 * max(shares):.4g} % of a band" if uneven else ""
    return f"{filled['text']}{spread}"


def _flags_line(filled: dict[str, Any] | None) -> str:
    """Return the shares of the filled entries by flag, from the record; "" without one."""
    counts = (filled or {"record": {}})["record"].get("flags")
    return ", ".join(shares(counts)) if isinstance(counts, dict) else ""


def _others(cube: Cube) -> set[str]:
    """Names of all other attributes and tags of the file."""
    tags = cube.attrs.get("geotiff", {}).get("tags", {})
    names = {str(k) for k, v in cube.attrs.items() if isinstance(v, str | list | int | float)}
    names |= {key for space in tags.values() for key in space}
    return {key for key in names if canonical(key) not in LAYOUT | FIELDS}


def flagged(cube: Cube, layer: quality.Quality) -> list[str]:
    """Describe the entries missing by a quality layer, by the cube, and by either; reads all."""
    missing_in_cube, distrusted = ~cube.observed(), ~layer.observed
    total = missing_in_cube.size
    counts = [f"{flag}: {count:,} entries" for flag, count in layer.counts.items()]
    summary = (
        f"missing is what either names: {100 * missing_in_cube.sum() / total:.2f} % by the cube, "
        f"{100 * distrusted.sum() / total:.2f} % by the layer, "
        f"{100 * (missing_in_cube | distrusted).sum() / total:.2f} % together"
    )
    return [*counts, summary]


def _detectors(cube: Cube) -> dict[str, str]:
    """Return the bands of each detector, in words."""
    names = cube.detectors or ()
    return {
        name: f"bands {ranges([i for i, detector in enumerate(names) if detector == name])}"
        for name in dict.fromkeys(names)
    }


def _first(names: list[str], most: int = 12) -> str:
    """List the first `most` names, and say how many more there are."""
    more = f" and {len(names) - most} more (`json=True` lists them)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _lookup(shape: list[int] | None) -> str:
    """Describe a lookup table by its shape (rows, cols); "" without one."""
    return "" if shape is None else f"GLT to {shape[0]} × {shape[1]} pixels (`convert --ortho`)"


def _span(values: Any) -> list[float] | None:
    """Return [lowest, highest], without zeros, which mark unused channels; None without values."""
    if values is None:
        return None
    used = values[values > 0] if (values > 0).any() else values
    return [float(np.min(used)), float(np.max(used))]


def _range(span: list[float] | None, unit: str) -> str:
    """Write a span as "lowest … highest unit"; "" for None."""
    return "" if span is None else f"{span[0]:g} … {span[1]:g} {unit}".rstrip()


def _crs_name(wkt: str | None) -> str | None:
    """Return the name of a CRS in WKT, e.g. "WGS 84 / UTM zone 10N"; of one without a name that of
    its projection, e.g. "Transverse Mercator, without a name"."""
    name = wkt.split('"')[1] if wkt and '"' in wkt else wkt
    if wkt is None or name is None or name.lower() not in UNNAMED:
        return name
    projection = re.search(r'(?:PROJECTION|METHOD)\["([^"]+)"', wkt)
    kind = "coordinates" if projection is None else projection[1].replace("_", " ")
    return f"{kind}, without a name"
