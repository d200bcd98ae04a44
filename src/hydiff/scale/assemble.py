"""Tiles into one file: a copy of the input with the blended tiles in its gaps, and companions."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints, Lazy, Nodata
from hydiff.flags import MASK, counted, lost_frames, of_fill, outside_of, reasons
from hydiff.gaps import rule
from hydiff.gaps.reach import bounded
from hydiff.io.blocks import Block, blocks
from hydiff.io.threads import MOST_THREADS, cores
from hydiff.io.uncertainty import total
from hydiff.methods import declared
from hydiff.scale import ledger, tiles
from hydiff.scale.bits import Bits, ByteFile
from hydiff.scale.layout import Scene
from hydiff.scale.tiles import Box, Tile


class Kept(NamedTuple):
    """A finished tile on disk: float64 (layers, bands, n) for n pixels, row by row."""

    tile: Tile
    path: str
    rows: Ints  # (n,) of the scene
    cols: Ints
    weight: Floats
    offset: int  # bytes before the values
    shape: tuple[int, ...]


class Mosaic(NamedTuple):
    scene: Scene
    kept: list[Kept | None]  # in the order of the plan, so that sums are the same; None: not yet

    def blended(self, layer: int, bands: slice, box: Box) -> Floats:
        """(bands, rows, cols) of a box: what the tiles say, NaN where nothing was filled."""
        return tiles.overlap_add(box, bands.stop - bands.start, self._pieces(layer, bands, box))

    def in_gaps(self, layer: int, bands: slice, box: Box) -> Floats:
        """(bands, 1, n) the same at the n pixels of a box that have something to fill."""
        pieces, gaps = self._pieces(layer, bands, box), self.scene.gaps[box]
        return tiles.overlap_add(box, bands.stop - bands.start, pieces, gaps)

    def origins(self, bands: slice, box: Box) -> Array:
        """(bands, 1, n) at those pixels: where the tiles have their values from, all of them
        together; bits of `flags`."""
        gaps, (left, right) = self.scene.gaps[box], (box[1].start, box[1].stop)
        numbers = (np.cumsum(gaps) - 1).reshape(gaps.shape)
        bits = np.zeros((bands.stop - bands.start, 1, int(gaps.sum())), np.uint8)
        for piece in self._pieces(-1, bands, box):
            inside = (piece.cols >= left) & (piece.cols < right)
            at = numbers[piece.rows[inside] - box[0].start, piece.cols[inside] - left]
            bits[:, 0, at] |= np.nan_to_num(piece.values[:, inside]).astype(np.uint8)
        return bits

    def _pieces(self, layer: int, bands: slice, box: Box) -> Iterator[tiles.Piece]:
        for tile, path, rows, cols, weight, offset, shape in filter(None, self.kept):
            if all(
                s.start < b.stop and b.start < s.stop
                for s, b in zip(tile.support, box, strict=True)
            ):
                at = slice(*np.searchsorted(rows, (box[0].start, box[0].stop)))
                with open(path, "rb") as file:  # noqa: PTH123
                    # paths, and np.memmap with them, would take longer than the rest
                    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                values = np.frombuffer(view, np.float64, offset=offset).reshape(shape)
                yield tiles.Piece(rows[at], cols[at], weight[at], values[layer, bands, at])


def _kept(scene: Scene, tile: Tile) -> Kept:
    """A finished tile, ready to be added up."""
    rows, cols = np.nonzero(scene.gaps[tile.support])
    weight = tiles.weights(scene.cuts, tile)[rows, cols]
    path = ledger.values_path(scene.work, tile)
    values = np.load(path, mmap_mode="r")
    rows, cols = rows + tile.support[0].start, cols + tile.support[1].start
    return Kept(tile, str(path), rows, cols, weight, values.offset, values.shape)


def _spread(values: Array, gaps: Bools, empty: float) -> Array:
    """(bands, rows, cols) from values (bands, 1, n) at the gaps (rows, cols)."""
    whole = np.full((len(values), *gaps.shape), empty, values.dtype)
    whole[:, gaps] = values[:, 0]
    return whole


class FilledEntries(NamedTuple):
    """The filled entries of a scene, in files."""

    filled: Bits
    flags: ByteFile
    by_flag: Counter[str]  # entries
    changed: Counter[str]  # filled values that the dtype changed, by what it did to them; with
    #                        those of BEYOND, how many lie outside of what was observed


class Assembly:
    """The tiles of a scene, put together as they come: blocks of rows whose tiles are all there are
    worked out in threads, while other tiles are filled."""

    def __init__(self, scene: Scene, nodata: Nodata) -> None:
        shape = scene.cube.shape
        self.mosaic = Mosaic(scene, [None] * len(scene.planned))
        self._filled = Bits(scene.work / "filled.bits", shape).empty()
        self._flags = ByteFile(scene.work / "flags.bytes", shape).empty()
        self._put = partial(_put, self.mosaic, nodata, self._filled, self._flags, _keeps(scene))
        some = (block for block in blocks(shape, 8, axis=1) if scene.gaps[block[1:]].any())
        self._waiting = [(block, _tiles_in(scene, block[1])) for block in some]
        self._pool = ThreadPoolExecutor(min(cores(), MOST_THREADS))
        self._running: list[Future[tuple[Counter[str], Counter[str]]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, tile: Tile) -> None:
        """A tile is there."""
        scene = self.mosaic.scene
        self.mosaic.kept[scene.planned.index(tile)] = _kept(scene, tile)
        for _, lacking in self._waiting:
            lacking.discard(tile.number)
        ready = [block for block, lacking in self._waiting if not lacking]
        self._waiting = [(block, lacking) for block, lacking in self._waiting if lacking]
        self._running += [self._pool.submit(self._put, block) for block in ready]

    def entries(self, complete: bool) -> FilledEntries:
        """What is filled, and how, when all tiles are there.

        complete: each of them estimated all that it was asked for, so that all that was to be
        filled is.
        """
        scene, changed, by_flag = self.mosaic.scene, Counter[str](), Counter[str]()
        for own, flags in (future.result() for future in self._running):
            changed.update(own)
            by_flag.update(flags)
        whole = complete and scene.cube.dtype.kind == "f"
        filled = scene.target if whole else self._filled
        return FilledEntries(filled, self._flags, by_flag, changed)


def _tiles_in(scene: Scene, rows: slice) -> set[int]:
    """The numbers of the tiles that count in some rows."""
    supports = {tile.number: tile.support[0] for tile in scene.planned}
    return {n for n, s in supports.items() if s.start < rows.stop and rows.start < s.stop}


def _put(
    mosaic: Mosaic, nodata: Nodata, filled: Bits, layer: ByteFile, kept: Keeps, block: Block
) -> tuple[Counter[str], Counter[str]]:
    """Put down what is filled in a block, and how; what became of its values, and how many entries
    have which flag."""
    scene, (bands, rows, cols) = mosaic.scene, block
    gaps, changed = scene.gaps[rows, cols], Counter[str]()
    estimate = mosaic.in_gaps(0, bands, (rows, cols))
    finite, ends = np.isfinite(estimate), scene.reach.of(bands)
    estimate, beyond = bounded(scene.cube.dtype, estimate, finite, ends)
    changed.update(beyond)
    filled.put(bands, rows, _spread(finite, gaps, False))
    written, how = _written(scene.cube, estimate, finite, nodata)
    changed.update(how)
    flags = of_fill(
        finite,
        kept.bands[bands, None, None] & kept.pixels[rows, cols][gaps],
        mosaic.origins(bands, (rows, cols)),
        outside_of(written, ends.low, ends.high),
        np.zeros(finite.shape, bool),  # tiles leave measured entries
    )
    layer.put(bands, rows, _spread(flags, gaps, 0))
    return changed, Counter(counted(flags))


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
        missing = ~scene.observed.get(*block)
        where: Bools = np.asarray(missing.any(axis=0))

        def at(flags: Array) -> Array:
            """(..., n, 1) at the pixels that lack a band, each as a row of its own."""
            return flags[..., where][..., None]

        own, screened = at(~scene.own.get(*block)), scene.withheld
        withheld = own & (False if screened is None else at(screened.get(*block)))
        more = None if named is None else at(named[block if named.ndim == 3 else block[1:]])
        lost = np.broadcast_to(frames[rows, None], where.shape)[where]
        why = reasons(at(missing), own, withheld, more, lost)
        return _spread(why.transpose(0, 2, 1), where, 0)

    return Lazy(scene.cube.shape, np.dtype(np.uint8), read)


def bars_of(mosaic: Mosaic, filled: Bits, own: Floats | None) -> Lazy:
    """(bands, rows, cols) σ of the filled entries, NaN elsewhere.

    own: (bands,) the uncertainty of the product itself.
    """

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        gaps, input = mosaic.scene.gaps[rows, cols], None if own is None else own[bands]
        sigma = mosaic.in_gaps(1, bands, (rows, cols))
        where = filled.get(bands, rows, cols)[:, gaps][:, None]
        return _spread(total(sigma, input, where), gaps, np.nan)

    return Lazy(mosaic.scene.cube.shape, rule.float_for(mosaic.scene.cube.dtype), read)


def values(mosaic: Mosaic, filled: Bits, nodata: Nodata) -> Lazy:
    """The input's values with the blended tiles in its gaps, worked out when they are read."""
    scene = mosaic.scene

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        out = np.array(scene.cube.values[bands, rows, cols])
        gaps = scene.gaps[rows, cols]
        where = filled.get(bands, rows, cols)[:, gaps][:, None]
        if where.any():
            estimate = mosaic.in_gaps(0, bands, (rows, cols))
            estimate, _ = bounded(out.dtype, estimate, where, scene.reach.of(bands))
            old = Cube(out[:, gaps][:, None], nodata=scene.cube.nodata)
            out[:, gaps] = rule.into_dtype(old, estimate, where, nodata)[0][:, 0]
        return out

    chunks = getattr(scene.cube.values, "chunks", None)
    return Lazy(scene.cube.shape, scene.cube.dtype, read, chunks)
