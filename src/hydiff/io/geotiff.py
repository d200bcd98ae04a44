"""GeoTIFF, through rasterio: values, masks and the map; `geotiff_tags` handles the rest."""

from __future__ import annotations

import contextlib
import errno
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Lazy, Values
from hydiff.errors import CubeFormatError, OutputError
from hydiff.io import beside, tiff
from hydiff.io import geotiff_masks as layers
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.gdal import create, open_alone, open_described, structure
from hydiff.io.geotiff_masks import Validity, plane, validity, window
from hydiff.io.geotiff_tags import carry, declare, described_fields, fits, restore
from hydiff.io.maps import crs_of
from hydiff.io.marks import always, tag
from hydiff.io.parsing import INTEGERS, check_dtype, check_real, native, parsing

SUFFIXES = (".tif", ".tiff")
keeps_mark = always
DTYPES = (*INTEGERS, "float32", "float64")
# TIFF's numbers of none, LZW, deflate, packbits, LZMA and Zstandard.
LOSSLESS = (1, 5, 8, 32946, 32773, 34925, 50000)
PLAIN = (0, 1, 2, 3, 4)  # photometric: not CMYK, YCbCr, CIELab or LogLuv, which GDAL converts
TILE = 256
SPARE = 1 << 20  # bytes; with less free space than a file's size and this, a disk counts as full


def matches(path: Path) -> bool:
    return tiff.is_tiff(path)


def read(path: Path, var: str | None = None) -> Cube:
    """Open a GeoTIFF; values stay on disk, and each window opens the file, reads, and closes it."""
    with parsing(path, "a GeoTIFF"):
        if (count := tiff.planes(structure(path))) > 1:
            raise CubeFormatError(
                f"{path}: {count} images of one band each, expected one image with all bands, "
                "since GDAL reads only the first; in Python, give the array: "
                "hydiff.fill(tifffile.imread(path))"
            )
        return _read(path)


def write(cube: Cube, path: Path) -> list[Path]:
    """Write a file from scratch: tiled, deflated, one band after the other, tags per band."""
    check_dtype(cube.dtype, DTYPES, "GeoTIFF")
    layer = _own(cube)
    with create(path, **_profile(cube)) as dataset:
        restore(dataset, cube)
        if cube.mark is not None:
            tag(dataset, cube.mark)
        for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
            _put(dataset, block, np.asarray(cube.values[block]))
        layers.store(layer, dataset)
    if layer.kind == layers.BANDS:
        _compacted(path, tiff.Change(masks=partial(plane, layer.valid)))
    _check_written(path, cube, layer)
    return [path]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the changed entries; their pixels become valid.

    The metadata in files beside the source go into the copy, or these files are copied, too.
    """
    if not _updatable(source):  # writing a few entries would fail, or change their neighbours
        return write(replace(cube, valid=_valid_after(source, cube)), path)
    shutil.copyfile(source, path)
    with (
        open_described(source) as described,
        open_alone(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as dataset,
    ):
        layer = validity(source, described)
        bands, pixels = _replace(dataset, cube)
        carry(described, dataset)
        declare(dataset, cube)
        if cube.mark is not None:
            tag(dataset, cube.mark)
        layer = layer.after(source, cube, pixels)
        layers.store(layer, dataset)
        if dataset.overviews(1):
            dataset.build_overviews(dataset.overviews(1))
    stale = frozenset(np.flatnonzero(bands).tolist())
    masks = partial(plane, layer.valid) if layer.kind == layers.BANDS else None
    _compacted(path, tiff.Change(stale, masks))
    files = [*layers.write_mask_file(layer, path, cube.bands), *beside.carry(source, path, stale)]
    _check_written(path, cube, layer)
    return [path, *files]


def cloud_optimised(path: Path) -> None:
    """Lay out a GeoTIFF in place for reading over a network, with overviews."""
    import rasterio.shutil

    original = path.with_name(path.name + ".before")
    path.replace(original)
    options = {"compress": "deflate", "predictor": "yes", "bigtiff": "if_safer"}
    with open_alone(original) as dataset:
        rasterio.shutil.copy(dataset, path.absolute(), driver="COG", **options)
    original.unlink()


# --- reading --------------------------------------------------------------------------------------


def _read(path: Path) -> Cube:
    """Return the lazy cube of a GeoTIFF, without the error handling of `read`."""
    with open_described(path) as dataset:
        shape = (dataset.count, dataset.height, dataset.width)
        affine = dataset.transform
        dtype, layer, fields = (
            _dtype(dataset, path),
            validity(path, dataset),
            described_fields(dataset),
        )
        if layer.kind in (layers.TOGETHER, layers.SINGLE):  # no single value marks what is missing
            fields["nodata"] = None
        if layer.alpha is not None:  # that band is no measurement
            good = np.ones(shape[0], bool) if fields["good"] is None else fields["good"]
            fields["good"] = good & (np.arange(shape[0]) != layer.alpha)
        if layer.text:
            fields["attrs"]["geotiff"]["mask"] = layer.text
        return Cube(
            values=Lazy(shape, dtype, lambda *block: _window(path, block)),
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if affine.is_identity else tuple(affine)[:6],
            valid=layer.valid,
            **fields,
        )


def _dtype(dataset: Any, path: Path) -> np.dtype[Any]:
    """Return the dtype of all bands; refuse complex ones and bands of different dtypes."""
    names = set(dataset.dtypes)
    if len(names) > 1 or "complex_int16" in names:
        raise CubeFormatError(
            f"{path}: expected bands of one real type, found {', '.join(sorted(names))}; "
            "convert them with gdal_translate -ot"
        )
    dtype: np.dtype[Any] = np.dtype(names.pop())
    check_real(dtype, path)
    return dtype


def _window(path: Path, block: Block) -> Array:
    """Open the file and read a block (bands, rows, cols)."""
    with parsing(path, "a complete GeoTIFF"), open_alone(path) as dataset:
        return window(dataset, block)


# --- writing --------------------------------------------------------------------------------------


def _profile(cube: Cube) -> dict[str, Any]:
    """Return rasterio's settings for a file that is written from scratch."""
    from rasterio.transform import Affine

    bands, rows, cols = cube.shape
    profile: dict[str, Any] = {
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


def _own(cube: Cube) -> Validity:
    """Return the validity layer of a file that is written from scratch."""
    if cube.valid is None:
        return Validity()
    kind = layers.INSIDE if len(cube.valid.shape) == 2 else layers.BANDS
    return Validity(kind, cube.valid)


def _tile(length: int) -> int:
    """Return the length of a tile, a multiple of 16; a small image is one tile."""
    return min(TILE, -(-length // 16) * 16)


def _put(dataset: Any, block: Block, values: Array) -> None:
    """Write the values (bands, rows, cols) of a block into an open file."""
    bands, rows, cols = block
    window = ((rows.start, rows.stop), (cols.start, cols.stop))
    values = values.astype(native(values.dtype), copy=False)
    dataset.write(values, list(range(bands.start + 1, bands.stop + 1)), window=window)


def _updatable(source: Path) -> bool:
    """Return whether GDAL can replace single entries of a file and leave all others as they are."""
    file = structure(source)
    tiles = [file.first(tag, 16) % 16 for tag in (tiff.TILE_WIDTH, tiff.TILE_HEIGHT)]
    with open_alone(source) as dataset:
        bits = {8 * np.dtype(name).itemsize for name in dataset.dtypes}
    return (
        file.first(tiff.COMPRESSION, 1) in LOSSLESS
        and file.first(tiff.PHOTOMETRIC, 1) in PLAIN
        and set(file.pages[0].numbers(tiff.BITS, 1, file.order)) <= bits
        and not any(tiles)
        and all(tiff.movable(page) for page in file.pages)
    )


def _valid_after(source: Path, cube: Cube) -> Values | None:
    """Return the validity layer of a copy of `source` that is written from scratch."""
    pixels = np.zeros(cube.shape[1:], bool)
    with open_described(source) as described, open_alone(source) as dataset:
        layer = validity(source, described)
        for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
            changed = differs(window(dataset, block), np.asarray(cube.values[block]))
            pixels[block[1], block[2]] |= changed.any(axis=0)
    return layer.after(source, cube, pixels).valid if layer.stored else cube.valid


def _compacted(path: Path, change: tiff.Change) -> None:
    """Lay out the pages of a file again, unless it holds no unused or outdated bytes."""
    try:
        file = structure(path)
    except CubeFormatError as error:
        raise _not_stored(path, "pages") from error
    statistics = any("STATISTICS_" in text for text in file.metadata())
    if file.first(tiff.COMPRESSION, 1) == 1 and change.masks is None and not statistics:
        return
    original = path.with_name(path.name + ".before")
    path.replace(original)
    tiff.compact(original, path, change)
    original.unlink()


def _replace(dataset: Any, cube: Cube) -> tuple[Bools, Bools]:
    """Write the changed entries; return (bands,) and (rows, cols) masks, True where any changed."""
    touched, pixels = np.zeros(cube.bands, bool), np.zeros(cube.shape[1:], bool)
    axis = 0 if dataset.interleaving.name == "band" else 1
    for block in blocks(cube.shape, cube.dtype.itemsize, axis, dataset.block_shapes[0][0]):
        new = np.asarray(cube.values[block])
        changed = differs(window(dataset, block), new)
        touched[block[0]] |= changed.any(axis=(1, 2))
        pixels[block[1], block[2]] |= changed.any(axis=0)
        for band in np.flatnonzero(changed.any(axis=(1, 2))):
            _put(dataset, *_bounding(block, int(band), changed[band], new))
    return touched, pixels


def _bounding(block: Block, band: int, changed: Bools, new: Array) -> tuple[Block, Array]:
    """Return the smallest window of a band that holds all its changes, so that few tiles are
    rewritten, and the values in it."""
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


def _check_written(path: Path, cube: Cube, layer: Validity) -> None:
    """Read the file back: GDAL does not report errors that occur while a file is closed."""
    from rasterio.errors import RasterioError

    try:
        with open_described(path) as image, open_alone(path) as dataset:
            for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
                differing = differs(window(dataset, block), np.asarray(cube.values[block]))
                if layer.alpha is not None:
                    differing &= np.arange(cube.bands)[block[0], None, None] != layer.alpha
                if differing.any():
                    raise _not_stored(path, "values")
            if layer.stored and not layers.same(validity(path, image).valid, layer.valid):
                raise _not_stored(path, "masks")
    except (RasterioError, CubeFormatError) as error:
        raise _not_stored(path, "pages") from error


def _not_stored(path: Path, part: str) -> Exception:
    """Return the error for lost content: a full disk, a limit of file sizes, or a fault of GDAL."""
    message = f"{part} were lost while the file was closed"
    if shutil.disk_usage(path.parent).free < path.stat().st_size + SPARE:
        return OSError(errno.ENOSPC, message)
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
            return OSError(errno.EFBIG, message)
    return OutputError(
        f"cannot write {path.name}: GDAL did not store the {part} that it was given; write .zarr "
        "or .img instead"
    )
