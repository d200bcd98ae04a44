"""Missing entries in files that know neither the rules of products nor masks: one nodata value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hydiff.cube import Array, Cube, Lazy, representable
from hydiff.errors import BadValue
from hydiff.io.blocks import Block, blocks

ENDS = 256  # values tried from the lowest of an integer type: all those of 8 bits


def declared(cube: Cube, kind: str | None = None) -> Cube:
    """Return the cube with its missing entries, and no others, equal to its nodata value.

    Without a product's rule or a mask, the cube is returned as it is.  The nodata value stays,
    unless a measured entry has it or there is none: then it is NaN, or an integer that no measured
    entry has.  kind: the format to write; GeoTIFF keeps a mask, Zarr writes missing floats as NaN.
    """
    if (
        (cube.missing_rule is None and (cube.valid is None or kind == "geotiff"))
        or cube.dtype.kind not in "iuf"
        or (kind == "zarr" and cube.dtype.kind == "f")
    ):
        return cube
    bits, free = _survey(cube)
    nodata = cube.nodata if cube.nodata is None and not bits.any() else _first(free, cube.dtype)

    def read(*block: slice) -> Array:
        bands, rows, cols = block
        values = np.array(cube.values[block])
        missing = np.unpackbits(bits[bands, rows], axis=-1, count=cube.shape[2])[..., cols]
        values[missing.view(bool)] = 0 if nodata is None else nodata
        return values

    chunks = getattr(cube.values, "chunks", None)
    return replace(
        cube,
        values=Lazy(cube.shape, cube.dtype, read, chunks),
        nodata=None if nodata is None or np.isnan(nodata) else nodata,
        valid=None,
        missing_rule=None,
        withheld_rule=None,
    )


def _survey(cube: Cube) -> tuple[Array, Array]:
    """Return the missing entries, eight columns to a byte, and the values that can mark them."""
    bands, rows, cols = cube.shape
    bits, free = np.empty((bands, rows, -(-cols // 8)), np.uint8), _candidates(cube)
    for block in blocks(cube.shape, cube.dtype.itemsize, 1):  # a rule may need all bands
        values = np.asarray(cube.values[block])
        observed = _observed(cube, values, block)
        bits[:, block[1]] = np.packbits(~observed, axis=-1)
        free = free[~np.isin(free, values[observed])]
    return bits, free


def _observed(cube: Cube, values: Array, block: Block) -> Array:
    bands, rows, cols = block
    return cube.observed_in(values, None, rows, cols, bands)


def _candidates(cube: Cube) -> Array:
    """Return the values that may become nodata, in the order of preference."""
    own = [] if cube.nodata is None or not representable(cube.nodata, cube.dtype) else [cube.nodata]
    if cube.dtype.kind == "f":
        return np.array([*own, np.nan], cube.dtype)
    info = np.iinfo(cube.dtype)
    ends = [info.min, info.max, *range(info.min + 1, min(info.min + ENDS, info.max))]
    return np.array([int(value) for value in own] + ends, cube.dtype)


def _first(free: Array, dtype: np.dtype[np.generic]) -> float:
    if not len(free):
        raise BadValue(
            f"missing entries of {dtype} values of which each is measured somewhere: none is left "
            "to mark them; name the output .tif, which holds a mask, or convert to a larger type"
        )
    return float(free[0])
