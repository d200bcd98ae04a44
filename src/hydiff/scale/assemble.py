"""Tiles into one file: a copy of the input with the blended tiles in its gaps, and companions."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints, Lazy, Nodata
from hydiff.flags import MASK, counted, lost_frames, of_fill, outside_of, reasons
from hydiff.gaps import rule
from hydiff.gaps.reach import bounded
from hydiff.io.blocks import blocks
from hydiff.io.uncertainty import total
from hydiff.methods import declared
from hydiff.scale import ledger, tiles
from hydiff.scale.bits import Bits, ByteFile, everything
from hydiff.scale.layout import Scene
from hydiff.scale.tiles import Box, Tile


class Kept(NamedTuple):
    """A finished tile on disk: float64 (layers, bands, n) for n pixels, row by row."""

    tile: Tile
    rows: Ints  # (n,) of the scene
    cols: Ints
    weight: Floats
    offset: int  # bytes before the values
    shape: tuple[int, ...]


class Mosaic(NamedTuple):
    scene: Scene
    kept: list[Kept]

    def blended(self, layer: int, bands: slice, box: Box) -> Floats:
        """(bands, rows, cols) of a box: what the tiles say, NaN where nothing was filled."""
        return tiles.overlap_add(box, bands.stop - bands.start, self._pieces(layer, bands, box))

    def origins(self, bands: slice, box: Box) -> Array:
        """(bands, rows, cols) of a box: where the tiles have their values from, all of them
        together; bits of `flags`."""
        (top, bottom), (left, right) = ((s.start, s.stop) for s in box)
        bits = np.zeros((bands.stop - bands.start, bottom - top, right - left), np.uint8)
        for piece in self._pieces(-1, bands, box):
            inside = (piece.cols >= left) & (piece.cols < right)
            rows, cols = piece.rows[inside] - top, piece.cols[inside] - left
            bits[:, rows, cols] |= np.nan_to_num(piece.values[:, inside]).astype(np.uint8)
        return bits

    def _pieces(self, layer: int, bands: slice, box: Box) -> Iterator[tiles.Piece]:
        for tile, rows, cols, weight, offset, shape in self.kept:
            if all(
                s.start < b.stop and b.start < s.stop
                for s, b in zip(tile.support, box, strict=True)
            ):
                at = slice(*np.searchsorted(rows, (box[0].start, box[0].stop)))
                with ledger.values_path(self.scene.work, tile).open("rb") as file:
                    # np.memmap looks the path up again and again, which takes longer than the rest
                    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                values = np.frombuffer(view, np.float64, offset=offset).reshape(shape)
                yield tiles.Piece(rows[at], cols[at], weight[at], values[layer, bands, at])


def mosaic(scene: Scene) -> Mosaic:
    """The finished tiles of a scene, ready to be added up."""
    kept = []
    for tile in scene.planned:
        rows, cols = np.nonzero(scene.gaps[tile.support])
        weight = tiles.weights(scene.cuts, tile)[rows, cols]
        values = np.load(ledger.values_path(scene.work, tile), mmap_mode="r")
        rows, cols = rows + tile.support[0].start, cols + tile.support[1].start
        kept.append(Kept(tile, rows, cols, weight, values.offset, values.shape))
    return Mosaic(scene, kept)


def _pieces_of(block: tuple[slice, slice, slice]) -> Iterator[tuple[slice, slice, slice]]:
    """A block in parts of some MB, so that adding up takes little memory."""
    bands, rows, cols = block
    shape = (bands.stop - bands.start, rows.stop - rows.start, cols.stop - cols.start)
    for b, r, _ in blocks(shape, 24):
        yield (
            slice(bands.start + b.start, bands.start + b.stop),
            slice(rows.start + r.start, rows.start + r.stop),
            cols,
        )


class FilledEntries(NamedTuple):
    """The filled entries of a scene, in files."""

    filled: Bits
    flags: ByteFile
    by_flag: Counter[str]  # entries
    changed: Counter[str]  # filled values that the dtype changed, by what it did to them; with
    #                        those of BEYOND, how many lie outside of what was observed


def filled_entries(mosaic: Mosaic, nodata: Nodata, complete: bool) -> FilledEntries:
    """What is filled, and how.

    complete: every tile estimated all that it was asked for, so that all that was to be filled is.
    """
    scene, shape = mosaic.scene, mosaic.scene.cube.shape
    whole = complete and scene.cube.dtype.kind == "f"
    filled = scene.target if whole else Bits(scene.work / "filled.bits", shape).empty()
    layer = ByteFile(scene.work / "flags.bytes", shape).empty()
    changed, by_flag = Counter[str](), Counter[str]()
    kept = _keeps(scene)
    for bands, rows, cols in _pieces_of((slice(0, shape[0]), *everything(shape))):
        estimate = mosaic.blended(0, bands, (rows, cols))
        finite, ends = np.isfinite(estimate), scene.reach.of(bands)
        estimate, beyond = bounded(scene.cube.dtype, estimate, finite, ends)
        changed.update(beyond)
        if not whole:
            filled.put(bands, rows, finite)
        written, how = _written(scene.cube, estimate, finite, nodata)
        changed.update(how)
        flags = of_fill(
            finite,
            kept.bands[bands, None, None] & kept.pixels[rows, cols],
            mosaic.origins(bands, (rows, cols)),
            outside_of(written, ends.low, ends.high),
            np.zeros(finite.shape, bool),  # tiles leave measured entries
        )
        by_flag.update(counted(flags))
        layer.put(bands, rows, flags)
    return FilledEntries(filled, layer, by_flag, changed)


def _written(
    cube: Cube, estimate: Floats, finite: Bools, nodata: Nodata
) -> tuple[Array, dict[str, int]]:
    """The estimate as the file will hold it, and how many values that changed; as `into_dtype`."""
    new = estimate[finite][None, None]
    blank = Cube(np.zeros(new.shape, cube.dtype), nodata=cube.nodata)
    stored, how = rule.into_dtype(blank, new, np.ones(new.shape, bool), nodata)
    written = np.zeros(finite.shape, cube.dtype)
    written[finite] = stored[0, 0]
    return written, how


class Keeps(NamedTuple):
    """Where entries can be filled from other bands of their pixel: where both hold."""

    bands: Bools  # (bands,)
    pixels: Bools  # (rows, cols)


def _keeps(scene: Scene) -> Keeps:
    """`auto.split.keeps`, a band at a time."""
    usable = scene.cube.good_bands & scene.observed.some()
    pixels = np.zeros(scene.cube.shape[1:], bool)
    if declared(scene.request.method).each_band:
        return Keeps(usable, pixels)
    for band in np.flatnonzero(usable):
        pixels |= scene.observed.plane(int(band))
    return Keeps(usable, pixels)


def reasons_of(scene: Scene, mask: Bools | None, named: Array | None) -> Lazy:
    """(bands, rows, cols) why entries are missing.

    mask: True = measured; named: bits of what masks and quality layers say, of their shape.
    """
    lines = [scene.observed.packed(band).any(axis=1) for band in range(scene.cube.bands)]
    frames = lost_frames(np.any(lines, axis=0))
    if named is None and mask is not None:
        named = np.where(mask, 0, MASK).astype(np.uint8)

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        block = (bands, rows, cols)
        missing, own = ~scene.observed.get(*block), ~scene.own.get(*block)
        screened = scene.withheld
        withheld = own & (False if screened is None else screened.get(*block))
        more = None if named is None else named[block if named.ndim == 3 else block[1:]]
        return reasons(missing, own, withheld, more, frames[rows])

    return Lazy(scene.cube.shape, np.dtype(np.uint8), read)


def bars_of(mosaic: Mosaic, filled: Bits, own: Floats | None) -> Lazy:
    """(bands, rows, cols) σ of the filled entries, NaN elsewhere.

    own: (bands,) the uncertainty of the product itself.
    """

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        sigma, input = mosaic.blended(1, bands, (rows, cols)), None if own is None else own[bands]
        return total(sigma, input, filled.get(bands, rows, cols))

    return Lazy(mosaic.scene.cube.shape, rule.float_for(mosaic.scene.cube.dtype), read)


def values(mosaic: Mosaic, filled: Bits, nodata: Nodata) -> Lazy:
    """The input's values with the blended tiles in its gaps, worked out when they are read."""
    scene = mosaic.scene

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        out = np.array(scene.cube.values[bands, rows, cols])
        for part in _pieces_of((bands, rows, cols)):
            where = filled.get(*part)
            if where.any():
                estimate = mosaic.blended(0, part[0], part[1:])
                estimate, _ = bounded(out.dtype, estimate, where, scene.reach.of(part[0]))
                inside = tuple(
                    slice(p.start - o.start, p.stop - o.start)
                    for p, o in zip(part, (bands, rows, cols), strict=True)
                )
                old = Cube(out[inside], nodata=scene.cube.nodata)
                out[inside] = rule.into_dtype(old, estimate, where, nodata)[0]
        return out

    chunks = getattr(scene.cube.values, "chunks", None)
    return Lazy(scene.cube.shape, scene.cube.dtype, read, chunks)
