"""Validity of the entries of a GeoTIFF, apart from its nodata value, by the rules of GDAL.

The first of these that is present counts, as in GDAL: a mask file, masks inside the file,
NODATA_VALUES, nodata values of single bands, an alpha band.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Lazy, Values, equals, representable
from hydiff.errors import CubeFormatError
from hydiff.io import beside
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.gdal import create, open_alone
from hydiff.io.parsing import parsing

# the kinds in that order; INSIDE: one mask for all bands, BANDS: one for each
FILE, INSIDE, BANDS, TOGETHER, SINGLE, ALPHA = range(6)


class Validity(NamedTuple):
    """The valid entries of a GeoTIFF, and by what part of the file they are known."""

    kind: int | None = None  # FILE ... ALPHA; None if there is none of them
    valid: Values | None = None  # (rows, cols) of bool, or (bands, rows, cols), read when indexed
    alpha: int | None = None  # number of the alpha band, from 0
    text: str = ""  # description for people

    @property
    def stored(self) -> bool:
        """Whether the validity is stored apart from the measured values."""
        return self.kind in (FILE, INSIDE, BANDS, ALPHA)

    def after(self, source: Path, cube: Cube, pixels: Bools) -> Validity:
        """Return the validity after writing the entries of `cube` that differ from the source.

        pixels: (rows, cols) True where any band differs.
        """
        if not self.stored:
            return self
        if self.valid is None or len(self.valid.shape) == 2:
            old = True if cube.valid is None else np.asarray(cube.valid)
            return self._replace(valid=pixels | old)

        def read(*block: slice) -> Bools:
            """Entries that were valid before or whose values changed."""
            old = np.True_ if cube.valid is None else cube.valid[block]
            return old | differs(_read(source, block, "read"), np.asarray(cube.values[block]))

        return self._replace(valid=Lazy(cube.shape, np.dtype(bool), read))


def validity(path: Path, dataset: Any) -> Validity:
    """Return the validity of an image.  dataset: the image, opened with the files beside it."""
    mask = beside.mask_of(path)
    if mask is not None:
        return Validity(FILE, _file(mask, dataset), text=f"in {mask.name}")
    with open_alone(path) as image:
        inside = _inside(path, image)
    if inside.kind is not None:
        return inside
    listed = _listed(dataset)
    if listed is not None:
        text = "where all bands hold their NODATA_VALUES"
        return Validity(TOGETHER, _together(path, dataset, listed), text=text)
    if len(set(map(repr, dataset.nodatavals))) > 1:
        text = "by nodata values of single bands"
        valid = _lazy(dataset, partial(_single, path, dataset.nodatavals))
        return Validity(SINGLE, valid, text=text)
    return Validity() if dataset.nodata is not None else _alpha(path, dataset)


def _inside(path: Path, dataset: Any) -> Validity:
    """Return the validity by masks that are pages of the file."""
    from rasterio.enums import MaskFlags

    flags = dataset.mask_flag_enums[0]
    if flags == [MaskFlags.per_dataset]:
        return Validity(INSIDE, dataset.read_masks(1) != 0, text="inside, for all bands")
    if flags:
        return Validity()
    valid = _lazy(dataset, partial(_flags, path, "read_masks"))
    return Validity(BANDS, valid, text="inside, one for each band")


def _file(mask: Path, dataset: Any) -> Values:
    """Return the validity by a mask file, which has one band for all bands, or one for each."""
    with parsing(mask, "a GeoTIFF"), open_alone(mask) as data:
        if data.shape != dataset.shape or data.count not in (1, dataset.count):
            raise CubeFormatError(
                f"{mask}: a mask (bands, rows, cols) = {(data.count, *data.shape)} beside an image "
                f"{(dataset.count, *dataset.shape)}; remove it, or write the mask again"
            )
        if data.count == 1:
            return np.asarray(data.read(1) != 0)
    return _lazy(dataset, partial(_flags, mask, "read"))


def _listed(dataset: Any) -> Array | None:
    """(bands,) NODATA_VALUES; None unless there is one for each band."""
    texts = dataset.tags().get("NODATA_VALUES", "").split()
    try:
        return np.array([float(text) for text in texts]) if len(texts) == dataset.count else None
    except ValueError:
        return None


def _together(path: Path, dataset: Any, listed: Array) -> Bools:
    """(rows, cols) False where all bands hold their NODATA_VALUES."""
    valid = np.zeros(dataset.shape, bool)
    with open_alone(path) as image:
        for block in blocks((dataset.count, *dataset.shape), np.dtype(dataset.dtypes[0]).itemsize):
            values = window(image, block, "read")
            nodata = listed[block[0], None, None]
            valid[block[1:]] |= (values != nodata).any(axis=0)
    return valid


def _single(path: Path, nodata: Sequence[float | None], *block: slice) -> Bools:
    """(bands, rows, cols) validity of a block by nodata values of single bands."""
    bands = _read(path, block, "read")
    valid = np.ones(bands.shape, bool)
    for flags, values, missing in zip(valid, bands, nodata[block[0]], strict=True):
        if missing is not None and representable(missing, values.dtype):
            flags &= ~equals(values, missing)
    return valid


def _alpha(path: Path, dataset: Any) -> Validity:
    """Return the validity by an alpha band, if the image has one."""
    names = [c.name for c in dataset.colorinterp]
    if "alpha" not in names or len(names) == 1 or dataset.dtypes[0] not in ("uint8", "uint16"):
        return Validity()
    band = names.index("alpha")
    with open_alone(path) as image:
        valid = image.read(band + 1) != 0
    return Validity(ALPHA, valid, band, f"by the alpha band {band + 1}")


def _lazy(dataset: Any, read: Any) -> Lazy:
    """Return a lazy mask of all bands; `read` takes the slices of a block."""
    return Lazy((dataset.count, *dataset.shape), np.dtype(bool), read)


def _flags(path: Path, method: str, *block: slice) -> Bools:
    """(bands, rows, cols) validity of a block by a stored mask; method: as for `window`."""
    return np.asarray(_read(path, block, method) != 0)


def _read(path: Path, block: tuple[slice, ...], method: str) -> Array:
    """Open a file and read a block of it; method: as for `window`."""
    with parsing(path, "a complete GeoTIFF"), open_alone(path) as dataset:
        return window(dataset, block, method)


def window(dataset: Any, block: Block | tuple[slice, ...], what: str = "read") -> Array:
    """Read values ("read") or masks ("read_masks") of a block (bands, rows, cols)."""
    bands, rows, cols = block
    lengths = [part.stop - part.start for part in block]
    if 0 in lengths:  # GDAL has no empty windows
        return np.empty(lengths, dataset.dtypes[0])
    window = ((rows.start, rows.stop), (cols.start, cols.stop))
    numbers = list(range(bands.start + 1, bands.stop + 1))
    return np.asarray(getattr(dataset, what)(numbers, window=window))


# --- writing --------------------------------------------------------------------------------------


def plane(valid: Values | None, band: int) -> Bools:
    """(rows, cols) validity of one band."""
    assert valid is not None
    return np.asarray(valid[band : band + 1, :, :][0])


def store(own: Validity, dataset: Any) -> None:
    """Write the validity into an image that is open for writing, if it is stored in the image."""
    if own.kind == INSIDE:
        dataset.write_mask(np.asarray(own.valid))
    elif own.kind == ALPHA and own.alpha is not None:
        values = dataset.read(own.alpha + 1)
        opaque = values.max() or (np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1)
        values[np.asarray(own.valid) & (values == 0)] = opaque
        dataset.write(values, own.alpha + 1)


def write_mask_file(own: Validity, image: Path, bands: int) -> list[Path]:
    """Write the mask beside an image, as GDAL does; return the file, or [] without such a mask."""
    if own.kind != FILE or own.valid is None:
        return []
    path = image.with_name(image.name + beside.MASK)
    rows, cols = own.valid.shape[-2:]
    count = own.valid.shape[0] if len(own.valid.shape) == 3 else 1
    profile = {"count": count, "height": rows, "width": cols, "dtype": "uint8"}
    shared = 2 if count == 1 else 0  # GDAL's flag of a mask for all bands
    with create(path, compress="deflate", photometric="minisblack", **profile) as dataset:
        dataset.update_tags(**{f"INTERNAL_MASK_FLAGS_{i}": shared for i in range(1, bands + 1)})
        for band in range(count):
            valid = np.asarray(own.valid) if count == 1 else plane(own.valid, band)
            dataset.write(np.where(valid, np.uint8(255), np.uint8(0)), band + 1)
    return [path]


def same(one: Values | None, other: Values | None) -> bool:
    """Return whether two validity layers are equal, comparing them band by band."""
    if one is None or other is None or one.shape != other.shape:
        return False
    if len(one.shape) == 2:
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    return all(np.array_equal(plane(one, b), plane(other, b)) for b in range(one.shape[0]))
