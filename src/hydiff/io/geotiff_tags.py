"""The tags of a GeoTIFF: read into the fields of a Cube, and written from them.

Spectral metadata follow the EnMAP-Box rule: band tags `wavelength`, `wavelength_units`, `fwhm`,
`bbl`; else GDAL's IMAGERY domain, in micrometers; else lists in the ENVI domain of the file; else
wavelengths in the names of the bands.
Everything else in the file is kept in `Cube.attrs["geotiff"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hydiff.cube import Cube, Floats, named_wavelengths, representable
from hydiff.io.headers import (
    NOTES,
    SENSOR,
    canonical,
    entries,
    from_text,
    number,
    scaling,
    to_text,
    unit,
)

# Namespaces that GDAL derives from the layout of a file.
MADE_UP = ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS", "SUBDATASETS")
# Band tags that are written from the fields of a Cube, not copied from the source.
SPECTRAL = ("wavelength", "wavelength_units", "fwhm", "bbl")
IMAGERY = ("CENTRAL_WAVELENGTH_UM", "FWHM_UM")

Tags = dict[str, str]


def described_fields(dataset: Any) -> dict[str, Any]:
    """Return the fields of a Cube that an open file declares: spectral ones, nodata, attrs ..."""
    tags = {ns: dataset.tags(ns=ns) for ns in _namespaces(dataset)}
    band_tags = [
        {ns: dataset.tags(band, ns=ns) for ns in _namespaces(dataset, band)}
        for band in dataset.indexes
    ]
    envi = {canonical(key): text for key, text in tags.get("ENVI", {}).items()}
    names = tuple(name or "" for name in dataset.descriptions)
    nodata, spectral = dataset.nodata, _spectral(band_tags, envi)
    notes = {}
    if spectral["wavelengths"] is None and (listed := named_wavelengths(names)) is not None:
        spectral["wavelengths"], spectral["wavelength_units"] = listed
        notes["wavelengths"] = "read from the band names"
    return {
        **spectral,
        "nodata": _declared_nodata(envi) if nodata is None else float(nodata),
        "band_names": names if any(names) else None,
        "attrs": {
            **{key: from_text(text) for key, text in tags.get("ENVI", {}).items()},
            "geotiff": {
                "tags": tags,
                "band_tags": band_tags,
                "scales": list(dataset.scales),
                "offsets": list(dataset.offsets),
                "units": list(dataset.units),
                "colorinterp": [c.name for c in dataset.colorinterp],
                **_points(dataset),
            },
            **({NOTES: notes} if notes else {}),
        },
    }


def _points(dataset: Any) -> dict[str, Any]:
    """Return ground control points as plain numbers; RPCs are among the tags."""
    points, crs = dataset.gcps
    if not points:
        return {}
    listed = [[p.row, p.col, p.x, p.y, p.z, p.id, p.info] for p in points]
    return {"gcps": listed, "gcps_crs": crs.to_wkt() if crs else None}


def _restore_points(dataset: Any, box: Mapping[str, Any]) -> None:
    """Write the ground control points, unless the image has an affine transform."""
    from rasterio.control import GroundControlPoint
    from rasterio.crs import CRS

    if box.get("gcps") and dataset.transform.is_identity:
        crs = CRS.from_wkt(box["gcps_crs"]) if box.get("gcps_crs") else CRS()
        dataset.gcps = [GroundControlPoint(*point) for point in box["gcps"]], crs


def carry(source: Any, dataset: Any) -> None:
    """Write into a copy of an image the metadata that only files beside the source contain.

    source: the image, opened with these files; dataset: a copy of it alone, open for writing.
    """
    single = len(set(map(repr, source.nodatavals))) == 1
    if single and source.nodata is not None and dataset.nodata is None:
        dataset.nodata = source.nodata
    if source.crs and source.crs != dataset.crs:
        dataset.crs = source.crs
    if source.transform != dataset.transform:
        dataset.transform = source.transform
    if source.gcps[0] and not dataset.gcps[0]:
        _restore_points(dataset, _points(source))
    if source.rpcs and not dataset.rpcs:
        dataset.rpcs = source.rpcs
    for name in ("scales", "offsets", "units"):
        if getattr(source, name) != getattr(dataset, name):
            _restore_list(dataset, name, list(getattr(source, name)))
    _carry_tags(source, dataset)


def _carry_tags(source: Any, dataset: Any) -> None:
    """Copy band names, and tags that the copy lacks, but no statistics, which no longer hold."""
    names = zip(source.descriptions, dataset.descriptions, strict=True)
    for band, (name, present) in enumerate(names, start=1):
        if name and name != present:
            dataset.set_band_description(band, name)
    for band in (0, *source.indexes):
        for ns in _namespaces(source, band):
            present, tags = dataset.tags(band, ns=ns), source.tags(band, ns=ns)
            lacking = {k: v for k, v in tags.items() if k not in present}
            _tag(dataset, band, ns, {k: v for k, v in lacking.items() if k[:11] != "STATISTICS_"})


def _namespaces(dataset: Any, band: int = 0) -> list[str]:
    """Return the namespaces of the tags of the file or of one band; "" is the unnamed one."""
    names = dataset.tag_namespaces(band) if band else dataset.tag_namespaces()
    return ["", *[ns for ns in names if ns not in MADE_UP and not ns.startswith("xml:")]]


def _spectral(band_tags: list[dict[str, Tags]], envi: Mapping[str, str]) -> dict[str, Any]:
    """Return wavelengths, wavelength_units, fwhm and good, from the first place with them."""
    bands = len(band_tags)
    unnamed = [_lowered(tags[""]) for tags in band_tags]
    imagery = [tags.get("IMAGERY", {}) for tags in band_tags]
    unit_tags = {tags["wavelength_units"] for tags in unnamed if "wavelength_units" in tags}
    wavelengths, units = _per_band(unnamed, "wavelength"), next(iter(unit_tags), None)
    fwhm = _per_band(unnamed, "fwhm")
    if len(unit_tags) > 1:  # bands in different units make no list of wavelengths
        wavelengths = units = fwhm = None
    elif wavelengths is None and (micro := _per_band(imagery, IMAGERY[0])) is not None:
        wavelengths, units, fwhm = micro, "Micrometers", _per_band(imagery, IMAGERY[1])
    elif wavelengths is None and (listed := _listed(envi, "wavelength", bands)) is not None:
        wavelengths, units = listed, envi.get("wavelength units")
        fwhm = _listed(envi, "fwhm", bands)
    flags = [{"bbl": tags.get("bbl", "1")} for tags in unnamed]
    declared = any("bbl" in tags for tags in unnamed)
    good = _per_band(flags, "bbl") if declared else _listed(envi, "bbl", bands)
    return {
        "wavelengths": wavelengths,
        "wavelength_units": units,
        "fwhm": fwhm,
        "good": None if good is None else good != 0,
    }


def _lowered(tags: Tags) -> Tags:
    return {key.lower(): text for key, text in tags.items()}


def _per_band(tags: list[Tags], key: str) -> Floats | None:
    """Return the numbers (bands,) under a key; None unless each band has one."""
    return _floats([entry[key] for entry in tags if key in entry], len(tags))


def _listed(envi: Mapping[str, str], key: str, bands: int) -> Floats | None:
    """Return a list of the ENVI domain as numbers (bands,); None if there is none that fits."""
    entry = from_text(envi.get(key, ""))
    return _floats([entry] if isinstance(entry, str) else entry, bands)


def _floats(texts: list[str], bands: int) -> Floats | None:
    """Return numbers, one per band, or None: tags are free text and may mean something else."""
    try:
        return np.array([float(text) for text in texts]) if len(texts) == bands else None
    except ValueError:
        return None


def _declared_nodata(envi: Mapping[str, str]) -> float | None:
    """Return ENVI's `data ignore value`; None if it is absent or not a number."""
    listed = _floats([envi.get("data ignore value", "")], 1)
    return None if listed is None else float(listed[0])


def fits(nodata: float, dtype: np.dtype[Any]) -> bool:
    """Return whether GeoTIFF can declare this nodata value for this dtype."""
    if dtype.kind != "f":
        return representable(nodata, dtype)
    return not np.isfinite(nodata) or abs(nodata) <= np.finfo(dtype).max


def declare(dataset: Any, cube: Cube) -> None:
    """Add to a copy of an image what that does not state, but the reader assumed: the nodata value,
    and the sensor whose conventions say what is missing."""
    if cube.missing_rule is not None and SENSOR in cube.attrs:
        _tag(dataset, 0, "ENVI", {SENSOR: cube.attrs[SENSOR]})
    if dataset.nodata is None and cube.nodata is not None and fits(cube.nodata, cube.dtype):
        dataset.nodata = cube.nodata


def restore(dataset: Any, cube: Cube) -> None:
    """Write the tags of file and bands: those of the source, then those from the cube's fields."""
    box = cube.attrs.get("geotiff", {})
    envi = {key: to_text(entry) for key, entry in entries(cube.attrs).items()}
    if cube.nodata is not None and not fits(cube.nodata, cube.dtype):
        envi["data ignore value"] = number(cube.nodata)
    for ns, tags in {**box.get("tags", {}), "ENVI": envi}.items():
        _tag(dataset, 0, ns, tags)
    common = unit(cube.attrs)
    _restore_list(dataset, "units", box.get("units") or [common] * cube.bands)
    _restore_list(dataset, "colorinterp", box.get("colorinterp"))
    scale = scaling(cube.attrs, cube.bands) or ([], [])
    for name, listed in zip(("scales", "offsets"), scale, strict=True):
        _restore_list(dataset, name, listed)
    _restore_points(dataset, box)
    band_tags = box.get("band_tags", [])
    for i in range(cube.bands):
        for ns, tags in (band_tags[i] if len(band_tags) == cube.bands else {}).items():
            _tag(dataset, i + 1, ns, {k: v for k, v in tags.items() if _lasting(k)})
        _tag(dataset, i + 1, "", _band_tags(cube, i))
        if cube.band_names is not None:
            dataset.set_band_description(i + 1, cube.band_names[i])


def _tag(dataset: Any, band: int, ns: str, tags: Mapping[str, str]) -> None:
    """Write tags of a band, or of the file for band 0, without names that rasterio's call uses."""
    texts = {k: v for k, v in tags.items() if k not in ("ns", "bidx")}
    if texts:
        dataset.update_tags(band, ns=ns or None, **texts)


def _lasting(key: str) -> bool:
    """Return whether a source's band tag is copied: neither a cube's field nor outdated."""
    return not (
        key.lower() in SPECTRAL or key in IMAGERY or key.startswith(("STATISTICS_", "COMPRESSION"))
    )


def _band_tags(cube: Cube, i: int) -> Tags:
    """Return the spectral tags of band `i`, from 0, by the fields of the cube."""
    tags: Tags = {}
    if cube.wavelengths is not None:
        tags["wavelength"] = number(float(cube.wavelengths[i]))
    if cube.wavelength_units is not None:
        tags["wavelength_units"] = cube.wavelength_units
    if cube.fwhm is not None:
        tags["fwhm"] = number(float(cube.fwhm[i]))
    if cube.good is not None:
        tags["bbl"] = str(int(cube.good[i]))
    return tags


def _restore_list(dataset: Any, name: str, listed: list[Any] | None) -> None:
    """Set scales, offsets, units or colorinterp, if the list differs from the default."""
    from rasterio.enums import ColorInterp

    plain = {"scales": 1.0, "offsets": 0.0, "units": None}
    if not listed or len(listed) != dataset.count or set(listed) <= {plain.get(name)}:
        return
    if name == "colorinterp":
        if "alpha" not in listed:
            dataset.colorinterp = [ColorInterp[c] for c in listed]
    else:
        setattr(dataset, name, [x or "" for x in listed] if name == "units" else listed)
