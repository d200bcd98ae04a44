"""GeoTIFF, through rasterio: values, masks and the map; `geotiff_tags` has the rest."""

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
from hydiff.io.geotiff_tags import carry, described_fields, fits, restore
from hydiff.io.maps import crs_of
from hydiff.io.marks import tag
from hydiff.io.parsing import INTEGERS, check_dtype, check_real, native, parsing

SUFFIXES = (".tif", ".tiff")
DTYPES = (*INTEGERS, "float32", "float64")
# As TIFF numbers them: none, LZW, deflate, packbits, LZMA, Zstandard.
LOSSLESS = (1, 5, 8, 32946, 32773, 34925, 50000)
PLAIN = (0, 1, 2, 3, 4)  # photometric: not CMYK, YCbCr, CIELab or LogLuv, which GDAL converts
TILE = 256
SPARE = 1 << 20  # bytes that a disk with free space has besides


def matches(path: Path) -> bool:
    return tiff.is_tiff(path)


def read(path: Path, var: str | None = None) -> Cube:
    """Values stay on disk: each window that is asked for opens the file, reads, and closes it."""
    with parsing(path, "a GeoTIFF"):
        return _read(path)


def write(cube: Cube, path: Path) -> list[Path]:
    """From scratch: tiled, deflated, one band after the other, tags per band."""
    check_dtype(cube.dtype, DTYPES, "GeoTIFF")
    own = _own(cube)
    with create(path, **_profile(cube)) as dataset:
        restore(dataset, cube)
        if cube.mark is not None:
            tag(dataset, cube.mark)
        for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
            _put(dataset, block, np.asarray(cube.values[block]))
        layers.store(own, dataset)
    if own.kind == layers.BANDS:
        _compacted(path, tiff.Change(masks=partial(plane, own.valid)))
    _check_written(path, cube, own)
    return [path]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the changed entries; pixels they belong to become valid.

    What files beside the source say of it is said in the copy, too, or goes with it.
    """
    if not _updatable(source):  # writing a few entries would fail, or change their neighbours
        return write(replace(cube, valid=_valid_after(source, cube)), path)
    shutil.copyfile(source, path)
    with (
        open_described(source) as before,
        open_alone(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as dataset,
    ):
        own = validity(source, before)
        bands, pixels = _replace(dataset, cube)
        carry(before, dataset)
        if cube.mark is not None:
            tag(dataset, cube.mark)
        own = own.after(source, cube, pixels)
        layers.store(own, dataset)
        if dataset.overviews(1):
            dataset.build_overviews(dataset.overviews(1))
    stale = frozenset(np.flatnonzero(bands).tolist())
    masks = partial(plane, own.valid) if own.kind == layers.BANDS else None
    _compacted(path, tiff.Change(stale, masks))
    files = [*layers.write_mask_file(own, path, cube.bands), *beside.carry(source, path, stale)]
    _check_written(path, cube, own)
    return [path, *files]


def cloud_optimised(path: Path) -> None:
    """Replace a GeoTIFF by the same laid out for reading over a network, overviews included."""
    import rasterio.shutil

    before = path.with_name(path.name + ".before")
    path.replace(before)
    options = {"compress": "deflate", "predictor": "yes", "bigtiff": "if_safer"}
    with open_alone(before) as dataset:
        rasterio.shutil.copy(dataset, path.absolute(), driver="COG", **options)
    before.unlink()


# --- reading --------------------------------------------------------------------------------------


def _read(path: Path) -> Cube:
    with open_described(path) as dataset:
        shape = (dataset.count, dataset.height, dataset.width)
        affine = dataset.transform
        dtype, own, fields = (
            _dtype(dataset, path),
            validity(path, dataset),
            described_fields(dataset),
        )
        if own.kind in (layers.TOGETHER, layers.SINGLE):  # no one value says what is missing
            fields["nodata"] = None
        if own.alpha is not None:  # no measurement
            good = np.ones(shape[0], bool) if fields["good"] is None else fields["good"]
            fields["good"] = good & (np.arange(shape[0]) != own.alpha)
        if own.text:
            fields["attrs"]["geotiff"]["mask"] = own.text
        return Cube(
            values=Lazy(shape, dtype, lambda *block: _window(path, block)),
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if affine.is_identity else tuple(affine)[:6],
            valid=own.valid,
            **fields,
        )


def _dtype(dataset: Any, path: Path) -> np.dtype[Any]:
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
    with parsing(path, "a complete GeoTIFF"), open_alone(path) as dataset:
        return window(dataset, block)


# --- writing --------------------------------------------------------------------------------------


def _profile(cube: Cube) -> dict[str, Any]:
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
    """The validity layer of a file that is written from scratch."""
    if cube.valid is None:
        return Validity()
    kind = layers.INSIDE if len(cube.valid.shape) == 2 else layers.BANDS
    return Validity(kind, cube.valid)


def _tile(length: int) -> int:
    """Tiles are multiples of 16; a small image is one tile."""
    return min(TILE, -(-length // 16) * 16)


def _put(dataset: Any, block: Block, values: Array) -> None:
    bands, rows, cols = block
    window = ((rows.start, rows.stop), (cols.start, cols.stop))
    values = values.astype(native(values.dtype), copy=False)
    dataset.write(values, list(range(bands.start + 1, bands.stop + 1)), window=window)


def _updatable(source: Path) -> bool:
    """Whether GDAL can replace single entries of a file and leave all others as they are."""
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
    """The validity layer of a copy that is written from scratch."""
    pixels = np.zeros(cube.shape[1:], bool)
    with open_described(source) as before, open_alone(source) as dataset:
        own = validity(source, before)
        for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
            changed = differs(window(dataset, block), np.asarray(cube.values[block]))
            pixels[block[1], block[2]] |= changed.any(axis=0)
    return own.after(source, cube, pixels).valid if own.stored else cube.valid


def _compacted(path: Path, change: tiff.Change) -> None:
    """Lay the pages of a file out again, unless none of its bytes is idle or out of date."""
    file = structure(path)
    statistics = any("STATISTICS_" in text for text in file.metadata())
    if file.first(tiff.COMPRESSION, 1) == 1 and change.masks is None and not statistics:
        return
    before = path.with_name(path.name + ".before")
    path.replace(before)
    tiff.compact(before, path, change)
    before.unlink()


def _replace(dataset: Any, cube: Cube) -> tuple[Bools, Bools]:
    """Write what changed; (bands,) and (rows, cols) True where something did."""
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


def _check_written(path: Path, cube: Cube, own: Validity) -> None:
    """Read the file back: GDAL does not report what fails while a file is closed."""
    from rasterio.errors import RasterioError

    try:
        with open_described(path) as image, open_alone(path) as dataset:
            for block in blocks(cube.shape, cube.dtype.itemsize, 0, TILE):
                lost = differs(window(dataset, block), np.asarray(cube.values[block]))
                if own.alpha is not None:
                    lost &= np.arange(cube.bands)[block[0], None, None] != own.alpha
                if lost.any():
                    raise _not_stored(path, "values")
            if own.stored and not layers.same(validity(path, image).valid, own.valid):
                raise _not_stored(path, "masks")
    except (RasterioError, CubeFormatError) as error:
        raise _not_stored(path, "pages") from error


def _not_stored(path: Path, what: str) -> Exception:
    """What went wrong: a disk without space, or a library that cannot."""
    lost = f"{what} were lost while the file was closed"
    if shutil.disk_usage(path.parent).free < path.stat().st_size + SPARE:
        return OSError(errno.ENOSPC, lost)
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
            return OSError(errno.EFBIG, lost)
    return OutputError(
        f"cannot write {path.name}: GDAL did not store the {what} that it was given; write .zarr "
        "or .img instead"
    )
