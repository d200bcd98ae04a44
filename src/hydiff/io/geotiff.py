"""GeoTIFF, through rasterio.

Spectral metadata follow the EnMAP-Box rule: band tags `wavelength`, `wavelength_units`, `fwhm`,
`bbl`; else GDAL's IMAGERY domain, in micrometers; else lists in the ENVI domain of the file.
Everything else the file says travels in `Cube.attrs["geotiff"]`.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Lazy, representable
from hydiff.errors import CubeFormatError
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.gdal import gdal
from hydiff.io.headers import canonical, entries, from_text, number, to_text
from hydiff.io.parsing import check_dtype, check_real, native, parsing

SUFFIXES = (".tif", ".tiff")
MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
DTYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float32",
    "float64",
)
LOSSY = ("JPEG", "WEBP", "JXL", "LERC", "LERC_DEFLATE", "LERC_ZSTD")
TILE = 256

# Namespaces that GDAL makes up from the layout of a file.
MADE_UP = ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS", "SUBDATASETS")
# Band tags that a file written from scratch says anew, or that would no longer be true.
SPECTRAL = ("wavelength", "wavelength_units", "fwhm", "bbl")
IMAGERY = ("CENTRAL_WAVELENGTH_UM", "FWHM_UM")

Tags = dict[str, str]


def matches(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in MAGIC


def read(path: Path, var: str | None = None) -> Cube:
    """Values stay on disk: each window that is asked for opens the file, reads, and closes it."""
    with parsing(path, "a GeoTIFF"), gdal():
        return _read(path)


def write(cube: Cube, path: Path) -> list[Path]:
    """From scratch: tiled, deflated, one band after the other, tags per band."""
    check_dtype(cube.dtype, DTYPES, "GeoTIFF")
    import rasterio

    options = {"GDAL_PAM_ENABLED": "NO", "GDAL_TIFF_INTERNAL_MASK": "YES"}
    with gdal(**options):
        with rasterio.open(path, "w", **_profile(cube)) as dataset:
            _restore(dataset, cube)
            for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
                _put(dataset, block, np.asarray(cube.values[block]))
            if cube.valid is not None:
                dataset.write_mask(cube.valid)
        _check_written(path, cube, cube.valid)
    return [path]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the changed entries; pixels they belong to become valid."""
    import rasterio

    with gdal(GDAL_PAM_ENABLED="NO"):
        with rasterio.open(source) as dataset:
            lossy = str(dataset.tags(ns="IMAGE_STRUCTURE").get("COMPRESSION", "")).upper() in LOSSY
        if lossy:  # writing a few entries would change their neighbours
            return write(cube, path)
        made = _copy(source, path)
        with rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as dataset:
            valid = _replace(dataset, cube)
            if valid is not None:
                dataset.write_mask(valid)
            if dataset.overviews(1):
                dataset.build_overviews(dataset.overviews(1))
        _check_written(path, cube, valid)
    return made


def cloud_optimised(path: Path) -> None:
    """Replace a GeoTIFF by the same laid out for reading over a network, overviews included."""
    import rasterio.shutil

    before = path.with_name(path.name + ".before")
    path.replace(before)
    options = {"compress": "deflate", "predictor": "yes", "bigtiff": "if_safer"}
    with gdal(GDAL_PAM_ENABLED="NO"):
        rasterio.shutil.copy(before, path, driver="COG", **options)
    before.unlink()


# --- reading --------------------------------------------------------------------------------------


def _read(path: Path) -> Cube:
    import rasterio

    with rasterio.open(path, driver="GTiff") as dataset:
        shape = (dataset.count, dataset.height, dataset.width)
        dtype = _dtype(dataset, path)
        tags = {ns: dataset.tags(ns=ns) for ns in _namespaces(dataset)}
        band_tags = [
            {ns: dataset.tags(band, ns=ns) for ns in _namespaces(dataset, band)}
            for band in dataset.indexes
        ]
        names = tuple(name or "" for name in dataset.descriptions)
        envi = {canonical(key): text for key, text in tags.get("ENVI", {}).items()}
        affine = dataset.transform
        nodata = dataset.nodata
        return Cube(
            values=Lazy(shape, dtype, lambda *block: _window(path, block)),
            **_spectral(band_tags, envi),
            nodata=_declared_nodata(envi) if nodata is None else float(nodata),
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if affine.is_identity else tuple(affine)[:6],
            band_names=names if any(names) else None,
            valid=dataset.read_masks(1) != 0 if _has_mask(dataset) else None,
            attrs={
                **{key: from_text(text) for key, text in tags.get("ENVI", {}).items()},
                "geotiff": {
                    "tags": tags,
                    "band_tags": band_tags,
                    "scales": list(dataset.scales),
                    "offsets": list(dataset.offsets),
                    "units": list(dataset.units),
                    "colorinterp": [c.name for c in dataset.colorinterp],
                },
            },
        )


def _dtype(dataset: Any, path: Path) -> np.dtype[Any]:
    found = set(dataset.dtypes)
    if len(found) > 1 or "complex_int16" in found:
        raise CubeFormatError(
            f"{path}: expected bands of one real type, found {', '.join(sorted(found))}; "
            "convert them with gdal_translate -ot"
        )
    dtype: np.dtype[Any] = np.dtype(found.pop())
    check_real(dtype, path)
    return dtype


def _namespaces(dataset: Any, band: int = 0) -> list[str]:
    """Namespaces of the tags of the file or of one band; "" is the unnamed one."""
    found = dataset.tag_namespaces(band) if band else dataset.tag_namespaces()
    return ["", *[ns for ns in found if ns not in MADE_UP and not ns.startswith("xml:")]]


def _window(path: Path, block: Block) -> Array:
    import rasterio

    with parsing(path, "a complete GeoTIFF"), gdal(), rasterio.open(path) as dataset:
        return _read_block(dataset, block)


def _read_block(dataset: Any, block: Block) -> Array:
    bands, rows, cols = block
    lengths = [part.stop - part.start for part in block]
    if 0 in lengths:  # GDAL has no empty windows
        return np.empty(lengths, dataset.dtypes[0])
    window = ((rows.start, rows.stop), (cols.start, cols.stop))
    values: Array = dataset.read(list(range(bands.start + 1, bands.stop + 1)), window=window)
    return values


def _has_mask(dataset: Any) -> bool:
    """A validity layer of its own, not one that GDAL derives from nodata or an alpha band."""
    from rasterio.enums import MaskFlags

    flags = dataset.mask_flag_enums[0]
    return MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags


def _spectral(band_tags: list[dict[str, Tags]], envi: Mapping[str, str]) -> dict[str, Any]:
    """wavelengths, wavelength_units, fwhm, good: from the first place that declares them."""
    bands = len(band_tags)
    own = [_lowered(tags[""]) for tags in band_tags]
    imagery = [tags.get("IMAGERY", {}) for tags in band_tags]
    unit_tags = {tags["wavelength_units"] for tags in own if "wavelength_units" in tags}
    wavelengths, units = _per_band(own, "wavelength"), next(iter(unit_tags), None)
    fwhm = _per_band(own, "fwhm")
    if len(unit_tags) > 1:  # bands in different units make no list of wavelengths
        wavelengths = units = fwhm = None
    elif wavelengths is None and (micro := _per_band(imagery, IMAGERY[0])) is not None:
        wavelengths, units, fwhm = micro, "Micrometers", _per_band(imagery, IMAGERY[1])
    elif wavelengths is None and (listed := _listed(envi, "wavelength", bands)) is not None:
        wavelengths, units = listed, envi.get("wavelength units")
        fwhm = _listed(envi, "fwhm", bands)
    flags = [{"bbl": tags.get("bbl", "1")} for tags in own]
    declared = any("bbl" in tags for tags in own)
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
    return _floats([entry[key] for entry in tags if key in entry], len(tags))


def _listed(envi: Mapping[str, str], key: str, bands: int) -> Floats | None:
    entry = from_text(envi.get(key, ""))
    return _floats([entry] if isinstance(entry, str) else entry, bands)


def _floats(texts: list[str], bands: int) -> Floats | None:
    """Numbers, one per band, or None: tags are free text and may mean something else."""
    try:
        return np.array([float(text) for text in texts]) if len(texts) == bands else None
    except ValueError:
        return None


def _declared_nodata(envi: Mapping[str, str]) -> float | None:
    listed = _floats([envi.get("data ignore value", "")], 1)
    return None if listed is None else float(listed[0])


# --- writing --------------------------------------------------------------------------------------


def _profile(cube: Cube) -> dict[str, Any]:
    from rasterio.crs import CRS
    from rasterio.transform import Affine

    bands, rows, cols = cube.shape
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "count": bands,
        "height": rows,
        "width": cols,
        "dtype": native(cube.dtype).name,
        "tiled": True,
        "blockxsize": _tile(cols),
        "blockysize": _tile(rows),
        "compress": "deflate",
        "predictor": 3 if cube.dtype.kind == "f" else 2,
        "interleave": "band",
        "bigtiff": "IF_SAFER",
        "photometric": "minisblack",  # else three or four uint8 bands become a colour picture
        "alpha": "no",
    }
    if cube.nodata is not None and _fits(cube.nodata, cube.dtype):
        profile["nodata"] = cube.nodata
    if cube.transform is not None:
        profile["transform"] = Affine(*cube.transform)
    if cube.crs is not None:
        with parsing(Path("crs"), "a coordinate reference system as WKT", "correct Cube.crs"):
            profile["crs"] = CRS.from_wkt(cube.crs)
    return profile


def _tile(length: int) -> int:
    """Tiles are multiples of 16; a small image is one tile."""
    return min(TILE, -(-length // 16) * 16)


def _fits(nodata: float, dtype: np.dtype[Any]) -> bool:
    """Whether GeoTIFF can declare this nodata value for this dtype."""
    if dtype.kind != "f":
        return representable(nodata, dtype)
    return not np.isfinite(nodata) or abs(nodata) <= np.finfo(dtype).max


def _restore(dataset: Any, cube: Cube) -> None:
    """Tags of file and bands: what the source said, then what the fields say."""
    box = cube.attrs.get("geotiff", {})
    envi = {key: to_text(entry) for key, entry in entries(cube.attrs).items()}
    if cube.nodata is not None and not _fits(cube.nodata, cube.dtype):
        envi["data ignore value"] = number(cube.nodata)
    for ns, tags in {**box.get("tags", {}), "ENVI": envi}.items():
        _tag(dataset, 0, ns, tags)
    for name in ("scales", "offsets", "units", "colorinterp"):
        _restore_list(dataset, name, box.get(name))
    for name, key in (("scales", "data gain values"), ("offsets", "data offset values")):
        listed = _floats(cube.attrs.get(key, []), cube.bands)
        if listed is not None:
            _restore_list(dataset, name, listed.tolist())
    own = box.get("band_tags", [])
    for i in range(cube.bands):
        for ns, tags in (own[i] if len(own) == cube.bands else {}).items():
            _tag(dataset, i + 1, ns, {k: v for k, v in tags.items() if _lasting(k)})
        _tag(dataset, i + 1, "", _band_tags(cube, i))
        if cube.band_names is not None:
            dataset.set_band_description(i + 1, cube.band_names[i])


def _tag(dataset: Any, band: int, ns: str, tags: Mapping[str, str]) -> None:
    named = {k: v for k, v in tags.items() if k not in ("ns", "bidx")}
    if named:
        dataset.update_tags(band, ns=ns or None, **named)


def _lasting(key: str) -> bool:
    return not (
        key.lower() in SPECTRAL or key in IMAGERY or key.startswith(("STATISTICS_", "COMPRESSION"))
    )


def _band_tags(cube: Cube, i: int) -> Tags:
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
    """scales, offsets, units, colorinterp; only where they say more than the default."""
    from rasterio.enums import ColorInterp

    plain = {"scales": 1.0, "offsets": 0.0, "units": None}
    if not listed or len(listed) != dataset.count or set(listed) <= {plain.get(name)}:
        return
    if name == "colorinterp":
        if "alpha" not in listed:
            dataset.colorinterp = [ColorInterp[c] for c in listed]
    else:
        setattr(dataset, name, [x or "" for x in listed] if name == "units" else listed)


def _put(dataset: Any, block: Block, values: Array) -> None:
    bands, rows, cols = block
    window = ((rows.start, rows.stop), (cols.start, cols.stop))
    values = values.astype(native(values.dtype), copy=False)
    dataset.write(values, list(range(bands.start + 1, bands.stop + 1)), window=window)


def _copy(source: Path, path: Path) -> list[Path]:
    """The file with its external mask and metadata; external overviews would be out of date."""
    made = []
    for suffix in ("", ".aux.xml", ".msk"):
        companion = source.with_name(source.name + suffix)
        if companion.is_file():
            made.append(path.with_name(path.name + suffix))
            shutil.copyfile(companion, made[-1])
    return made


def _replace(dataset: Any, cube: Cube) -> Bools | None:
    """Write what changed; the validity layer that is now right, or None if there is none."""
    masked = _has_mask(dataset)
    touched = np.zeros(cube.shape[1:], bool)
    axis = 0 if dataset.interleaving.name == "band" else 1
    for block in blocks(cube.shape, cube.dtype.itemsize, axis, dataset.block_shapes[0][0]):
        new = np.asarray(cube.values[block])
        changed = differs(_read_block(dataset, block), new)
        touched[block[1], block[2]] |= changed.any(axis=0)
        for band in np.flatnonzero(changed.any(axis=(1, 2))):
            _put(dataset, *_bounding(block, int(band), changed[band], new))
    if not masked:
        return None
    return touched | (np.True_ if cube.valid is None else cube.valid)


def _bounding(block: Block, band: int, changed: Bools, new: Array) -> tuple[Block, Array]:
    """The smallest window of one band that holds all its changes, so few tiles are rewritten."""
    rows, cols = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    top, bottom, left, right = rows[0], rows[-1] + 1, cols[0], cols[-1] + 1
    first = block[0].start + band
    row0, col0 = block[1].start, block[2].start
    place = (
        slice(first, first + 1),
        slice(int(row0 + top), int(row0 + bottom)),
        slice(int(col0 + left), int(col0 + right)),
    )
    return place, new[band : band + 1, top:bottom, left:right]


def _check_written(path: Path, cube: Cube, valid: Bools | None) -> None:
    """Read the file back: GDAL does not report what fails while a file is closed."""
    import rasterio
    from rasterio.errors import RasterioError

    try:
        with rasterio.open(path) as dataset:
            for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
                if differs(_read_block(dataset, block), np.asarray(cube.values[block])).any():
                    raise OSError(errno.ENOSPC, "values were lost while the file was closed")
            if valid is not None and ((dataset.read_masks(1) != 0) != valid).any():
                raise OSError(errno.ENOSPC, "the mask was lost while the file was closed")
    except RasterioError as error:
        raise OSError(errno.ENOSPC, "the file was not completed") from error
