"""Assemble tiles: a copy of the input with the blended tiles in its gaps, and its layers."""

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
    """A finished tile on disk: float64 (layers, bands, n) at its n gap pixels, row by row."""

    tile: Tile
    path: str
    rows: Ints  # (n,) of the scene
    cols: Ints
    weight: Floats
    offset: int  # of the values in the file, in bytes
    shape: tuple[int, ...]


class Mosaic(NamedTuple):
    """The finished tiles of a scene, from which blended values are read box by box."""

    scene: Scene
    kept: list[Kept | None]  # in the order of the plan, so that sums are reproducible; None = not
    #                          finished yet

    def blended(self, layer: int, bands: slice, box: Box) -> Floats:
        """(bands, rows, cols) blended values of the tiles in a box; NaN where nothing is filled."""
        return tiles.overlap_add(box, bands.stop - bands.start, self._pieces(layer, bands, box))

    def in_gaps(self, layer: int, bands: slice, box: Box) -> Floats:
        """(bands, 1, n) blended values at the n pixels of a box that have something to fill."""
        pieces, gaps = self._pieces(layer, bands, box), self.scene.gaps[box]
        return tiles.overlap_add(box, bands.stop - bands.start, pieces, gaps)

    def origins(self, bands: slice, box: Box) -> Array:
        """(bands, 1, n) sources of the values at those pixels: bits of `flags`, of all tiles."""
        gaps, (left, right) = self.scene.gaps[box], (box[1].start, box[1].stop)
        numbers = (np.cumsum(gaps) - 1).reshape(gaps.shape)
        bits = np.zeros((bands.stop - bands.start, 1, int(gaps.sum())), np.uint8)
        for piece in self._pieces(-1, bands, box):
            inside = (piece.cols >= left) & (piece.cols < right)
            at = numbers[piece.rows[inside] - box[0].start, piece.cols[inside] - left]
            bits[:, 0, at] |= np.nan_to_num(piece.values[:, inside]).astype(np.uint8)
        return bits

    def _pieces(self, layer: int, bands: slice, box: Box) -> Iterator[tiles.Piece]:
        """Yield one layer of each finished tile that overlaps a box, read from its file."""
        for tile, path, rows, cols, weight, offset, shape in filter(None, self.kept):
            if all(
                s.start < b.stop and b.start < s.stop
                for s, b in zip(tile.support, box, strict=True)
            ):
                at = slice(*np.searchsorted(rows, (box[0].start, box[0].stop)))
                with open(path, "rb") as file:  # noqa: PTH123
                    # pathlib, and np.memmap that uses it, would take longer than the rest
                    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                values = np.frombuffer(view, np.float64, offset=offset).reshape(shape)
                yield tiles.Piece(rows[at], cols[at], weight[at], values[layer, bands, at])


def _kept(scene: Scene, tile: Tile) -> Kept:
    """Return a finished tile with the positions and weights of its pixels."""
    rows, cols = np.nonzero(scene.gaps[tile.support])
    weight = tiles.weights(scene.cuts, tile)[rows, cols]
    path = ledger.values_path(scene.work, tile)
    values = np.load(path, mmap_mode="r")
    rows, cols = rows + tile.support[0].start, cols + tile.support[1].start
    return Kept(tile, str(path), rows, cols, weight, values.offset, values.shape)


def _spread(values: Array, gaps: Bools, empty: float) -> Array:
    """(bands, rows, cols) with values (bands, 1, n) at the gaps (rows, cols), else `empty`."""
    whole = np.full((len(values), *gaps.shape), empty, values.dtype)
    whole[:, gaps] = values[:, 0]
    return whole


class FilledEntries(NamedTuple):
    """The filled entries of a scene, in files."""

    filled: Bits
    flags: ByteFile
    by_flag: Counter[str]  # number of entries
    changed: Counter[str]  # number of filled values that the dtype changed, by kind of change, and
    #                        of those outside the observed range or clipped, by names of BEYOND


class Assembly:
    """Assembles the tiles of a scene while others are still being filled.

    A block of rows is processed in a thread as soon as all of its tiles are finished.
    """

    def __init__(self, scene: Scene, nodata: Nodata) -> None:
        shape = scene.cube.shape
        self.mosaic = Mosaic(scene, [None] * len(scene.planned))
        self._filled = Bits(scene.work / "filled.bits", shape).empty()
        self._flags = ByteFile(scene.work / "flags.bytes", shape).empty()
        self._put = partial(_put, self.mosaic, nodata, self._filled, self._flags, _keeps(scene))
        with_gaps = (block for block in blocks(shape, 8, axis=1) if scene.gaps[block[1:]].any())
        self._waiting = [(block, _tiles_in(scene, block[1])) for block in with_gaps]
        self._pool = ThreadPoolExecutor(min(cores(), MOST_THREADS))
        self._running: list[Future[tuple[Counter[str], Counter[str]]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, tile: Tile) -> None:
        """Register a finished tile, and start the blocks that waited for no other."""
        scene = self.mosaic.scene
        self.mosaic.kept[scene.planned.index(tile)] = _kept(scene, tile)
        for _, pending in self._waiting:
            pending.discard(tile.number)
        ready = [block for block, pending in self._waiting if not pending]
        self._waiting = [(block, pending) for block, pending in self._waiting if pending]
        self._running += [self._pool.submit(self._put, block) for block in ready]

    def entries(self, complete: bool) -> FilledEntries:
        """Return the filled entries and their flags, after all tiles were added.

        complete: whether every tile filled its whole target.
        """
        scene, changed, by_flag = self.mosaic.scene, Counter[str](), Counter[str]()
        for changes, flags in (future.result() for future in self._running):
            changed.update(changes)
            by_flag.update(flags)
        whole = complete and scene.cube.dtype.kind == "f"
        filled = scene.target if whole else self._filled
        return FilledEntries(filled, self._flags, by_flag, changed)


def _tiles_in(scene: Scene, rows: slice) -> set[int]:
    """Return the numbers of the tiles whose support overlaps a range of rows."""
    supports = {tile.number: tile.support[0] for tile in scene.planned}
    return {n for n, s in supports.items() if s.start < rows.stop and rows.start < s.stop}


def _put(
    mosaic: Mosaic, nodata: Nodata, filled: Bits, layer: ByteFile, keeps: Keeps, block: Block
) -> tuple[Counter[str], Counter[str]]:
    """Write the mask of filled entries and the flags of a block to their files.

    Returns the numbers of values that were changed or lie beyond the observed range, and the number
    of entries with each flag.
    """
    scene, (bands, rows, cols) = mosaic.scene, block
    gaps, changed = scene.gaps[rows, cols], Counter[str]()
    estimate = mosaic.in_gaps(0, bands, (rows, cols))
    finite, ends = np.isfinite(estimate), scene.reach.of(bands)
    estimate, beyond = bounded(scene.cube.dtype, estimate, finite, ends)
    changed.update(beyond)
    filled.put(bands, rows, _spread(finite, gaps, False))
    written, dtype_changes = _written(scene.cube, estimate, finite, nodata)
    changed.update(dtype_changes)
    flags = of_fill(
        finite,
        keeps.bands[bands, None, None] & keeps.pixels[rows, cols][gaps],
        mosaic.origins(bands, (rows, cols)),
        outside_of(written, ends.low, ends.high),
        np.zeros(finite.shape, bool),  # tiles do not change measured entries
    )
    layer.put(bands, rows, _spread(flags, gaps, 0))
    return changed, Counter(counted(flags))


def _written(
    cube: Cube, estimate: Floats, finite: Bools, nodata: Nodata
) -> tuple[Array, dict[str, int]]:
    """Return the estimate in the file's dtype and counts of changed values, as `into_dtype`."""
    new = estimate[finite][None, None]
    blank = Cube(np.zeros(new.shape, cube.dtype), nodata=cube.nodata)
    stored, changes = rule.into_dtype(blank, new, np.ones(new.shape, bool), nodata)
    written = np.zeros(finite.shape, cube.dtype)
    written[finite] = stored[0, 0]
    return written, changes


class Keeps(NamedTuple):
    """Entries that can be filled from other bands of their pixel: where both masks are True."""

    bands: Bools  # (bands,)
    pixels: Bools  # (rows, cols)


def _keeps(scene: Scene) -> Keeps:
    """Return the result of `auto.split.keeps` as two masks, computed one band at a time."""
    usable = scene.cube.good_bands & scene.observed.some()
    pixels = np.zeros(scene.cube.shape[1:], bool)
    if declared(scene.request.method).each_band:
        return Keeps(usable, pixels)
    for band in np.flatnonzero(usable):
        pixels |= scene.observed.plane(int(band))
    return Keeps(usable, pixels)


def reasons_of(scene: Scene, mask: Bools | None, named: Array | None) -> Lazy:
    """(bands, rows, cols) why entries are missing, bits of `flags.REASONS`.

    mask: True = measured.  named: bits from masks and quality layers, in their shape; None means
    MASK for the entries of the mask.
    """
    lines = [scene.observed.packed(band).any(axis=1) for band in range(scene.cube.bands)]
    frames = lost_frames(np.any(lines, axis=0))
    if named is None and mask is not None:
        named = np.where(mask, 0, MASK).astype(np.uint8)

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        """Return the reasons of a block."""
        block = (bands, rows, cols)
        missing = ~scene.observed.get(*block)
        where: Bools = np.asarray(missing.any(axis=0))

        def at(flags: Array) -> Array:
            """(..., n, 1) values at the n pixels with a missing band, each as a row of its own."""
            return flags[..., where][..., None]

        missing_by_cube, screened = at(~scene.own.get(*block)), scene.withheld
        withheld = missing_by_cube & (False if screened is None else at(screened.get(*block)))
        named_here = None if named is None else at(named[block if named.ndim == 3 else block[1:]])
        in_frame = np.broadcast_to(frames[rows, None], where.shape)[where]
        why = reasons(at(missing), missing_by_cube, withheld, named_here, in_frame)
        return _spread(why.transpose(0, 2, 1), where, 0)

    return Lazy(scene.cube.shape, np.dtype(np.uint8), read)


def bars_of(mosaic: Mosaic, filled: Bits, own: Floats | None) -> Lazy:
    """(bands, rows, cols) σ of the filled entries, NaN elsewhere.

    own: (bands,) uncertainty of the input product.
    """

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        """Return the σ of a block."""
        gaps, input_sigma = mosaic.scene.gaps[rows, cols], None if own is None else own[bands]
        sigma = mosaic.in_gaps(1, bands, (rows, cols))
        where = filled.get(bands, rows, cols)[:, gaps][:, None]
        return _spread(total(sigma, input_sigma, where), gaps, np.nan)

    return Lazy(mosaic.scene.cube.shape, rule.float_for(mosaic.scene.cube.dtype), read)


def values(mosaic: Mosaic, filled: Bits, nodata: Nodata) -> Lazy:
    """Return the input's values with the blended tiles in its gaps, computed when they are read."""
    scene = mosaic.scene

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        """Return the values of a block, in the dtype of the file."""
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
