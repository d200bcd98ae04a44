"""GeoTIFF, through rasterio: values, masks and the map; `geotiff_tags` has the rest."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Lazy
from hydiff.errors import CubeFormatError
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.gdal import gdal
from hydiff.io.geotiff_tags import fits, restore, told
from hydiff.io.maps import crs_of
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
            restore(dataset, cube)
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
        affine = dataset.transform
        return Cube(
            values=Lazy(shape, _dtype(dataset, path), lambda *block: _window(path, block)),
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if affine.is_identity else tuple(affine)[:6],
            valid=dataset.read_masks(1) != 0 if _has_mask(dataset) else None,
            **told(dataset),
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


# --- writing --------------------------------------------------------------------------------------


def _profile(cube: Cube) -> dict[str, Any]:
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
    if cube.nodata is not None and fits(cube.nodata, cube.dtype):
        profile["nodata"] = cube.nodata
    if cube.transform is not None:
        profile["transform"] = Affine(*cube.transform)
    if cube.crs is not None:
        profile["crs"] = crs_of(cube.crs, Path("crs"))
    return profile


def _tile(length: int) -> int:
    """Tiles are multiples of 16; a small image is one tile."""
    return min(TILE, -(-length // 16) * 16)


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
