"""Zones of an image over which a quantity is averaged: blocks, a region, a mask, polygons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats, Ints, as_mask
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.gaps.regions import PIXELS, region_pixels
from hydiff.io import masks, vectors

ALL = "all"
SIDE = 8  # px: default side of a block
BLOCKS = re.compile(r"blocks(?::(\d{1,6}))?")

Over = str | Path | Array | None  # argument `over` of `zones_of`


class Zones(NamedTuple):
    """Zones of one pixel or more; they may overlap."""

    names: tuple[str, ...]
    pixels: Ints  # numbers of their pixels, row by row, one zone after the other
    starts: Ints  # index in `pixels` of the first pixel of each zone
    empty: tuple[str, ...] = ()  # polygons that cover the centre of no pixel

    def sums(self, maps: Array) -> Floats:
        """(k, zones) sums of maps (k, rows, cols)."""
        flat = np.asarray(maps, np.float64).reshape(len(maps), -1)[:, self.pixels]
        return np.asarray(np.add.reduceat(flat, self.starts, axis=1))

    def means(self, maps: Array) -> Floats:
        """(k, zones) means over the finite pixels of maps (k, rows, cols); NaN without any."""
        finite = np.isfinite(maps)
        total, count = self.sums(np.where(finite, maps, 0.0)), self.sums(finite)
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def inside(self, zone: int) -> Ints:
        """Return the numbers of the pixels of one zone."""
        end = [*self.starts[1:], len(self.pixels)][zone]
        return self.pixels[self.starts[zone] : end]


def zones_of(over: Over, cube: Cube) -> Zones:
    """Return the zones of a cube that `over` describes.

    over: None or "all", the whole image; "blocks" or "blocks:16", squares of so many pixels;
    "10:60,20:80", rows and columns; a file of polygons, each a zone; a mask file, or an array
    (rows, cols): True, or each number but 0, is a zone.
    """
    rows, cols = cube.shape[1:]
    if over is None or (isinstance(over, str) and over == ALL):
        return _joined([(ALL, np.arange(rows * cols))])
    if not isinstance(over, str | Path):
        return _of_array(np.asarray(as_mask(over, cube, "zones")), (rows, cols))
    if blocks := BLOCKS.fullmatch(str(over)):
        return _joined(_blocks(rows, cols, int(blocks[1] or SIDE)))
    if PIXELS.fullmatch(str(over)):
        return _joined([(str(over), np.flatnonzero(region_pixels(str(over), cube)))])
    path = Path(over)
    if path.suffix.lower() in vectors.POLYGONS:
        return _drawn(path, cube)
    if not io.regular.exists(path):
        raise BadValue(
            f"`over='{over}'`: expected all, blocks, blocks:16, rows and columns such as "
            "10:60,20:80, or a file of polygons or of a mask; there is no such file"
        )
    inside = _mask(path, cube)
    if not inside.any():
        raise BadValue(f"{path}: no pixel of it is set; expected 1 inside the zone, 0 outside")
    return _joined([(path.name, np.flatnonzero(inside))])


def _joined(zones: Iterable[tuple[str, Ints]]) -> Zones:
    """Return zones from their names and the numbers of their pixels."""
    names, parts = zip(*zones, strict=True)
    lengths = [len(part) for part in parts]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp)
    return Zones(tuple(names), np.concatenate(parts), starts)


def _blocks(rows: int, cols: int, side: int) -> Iterator[tuple[str, Ints]]:
    """Yield squares from the first pixel on; those at the last row or column may be smaller."""
    if side < 1:
        raise BadValue("`over='blocks:0'`: expected a side of 1 pixel or more")
    pixels = np.arange(rows * cols).reshape(rows, cols)
    for r, c in product(range(0, rows, side), range(0, cols, side)):
        block = pixels[r : r + side, c : c + side]
        yield f"{r}:{r + block.shape[0]},{c}:{c + block.shape[1]}", block.ravel()


def _of_array(labels: Array, shape: tuple[int, int]) -> Zones:
    """Return a zone for each number but 0 in an array (rows, cols)."""
    if labels.shape != shape:
        raise ShapeMismatch(f"zones of shape {labels.shape}, but the image is {shape}")
    if labels.dtype.kind not in "biu":
        raise BadValue(f"zones of type {labels.dtype}; expected booleans or whole numbers")
    numbers = [number for number in np.unique(labels) if number]
    if not numbers:
        raise BadValue(
            "no pixel lies in a zone; expected True, or a number other than 0, somewhere"
        )
    return _joined((str(number), np.flatnonzero(labels == number)) for number in numbers)


def _drawn(path: Path, cube: Cube) -> Zones:
    """Return a zone for each polygon of a file."""
    polygons = [(name, np.flatnonzero(mask)) for name, mask in vectors.each_drawn(path, cube)]
    zones = [(name, pixels) for name, pixels in polygons if len(pixels)]
    if not zones:
        raise BadValue(
            f"{path}: its polygons cover the centre of no pixel of the cube; check their "
            "coordinate reference system, or draw them larger"
        )
    empty = tuple(name for name, pixels in polygons if not len(pixels))
    return _joined(zones)._replace(empty=empty)


def _mask(path: Path, cube: Cube) -> Bools:
    """(rows, cols) True where the file has 1, in any band of a mask that differs by band."""
    # default `missing`: then pixels that a mask of a part of the image does not cover are outside
    meaning = (None if vectors.is_drawn(path) else masks.named(path, "missing")) or "missing"
    mask = io.read_mask(path, meaning, cube.shape, like=cube)
    inside = mask if meaning == "observed" else ~mask
    return inside if inside.ndim == 2 else np.asarray(inside.any(axis=0))
