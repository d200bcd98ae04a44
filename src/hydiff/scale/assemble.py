"""Assemble tiles: a copy of the input with the blended tiles in its gaps, and its layers."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints, Lazy, Nodata
from hydiff.flags import FILLED, MASK, REASONS, counted, lost_frames, of_fill, outside_of, reasons
from hydiff.gaps import stored
from hydiff.gaps.reach import bounded
from hydiff.io.blocks import BUDGET, blocks
from hydiff.io.threads import MOST_THREADS, cores, in_threads
from hydiff.io.uncertainty import total
from hydiff.methods import declared
from hydiff.scale import ledger, tiles
from hydiff.scale.bits import Bits, GapLayer
from hydiff.scale.layout import Scene
from hydiff.scale.tiles import Tile


class Kept(NamedTuple):
    """A finished tile on disk: float64 (layers, bands, n) at its n gap pixels, row by row.

    The layers are the estimate, its error bars if it has any, and the source of each value.
    """

    tile: Tile
    path: str
    rows: Ints  # (n,) of the scene
    cols: Ints
    weight: Floats
    offset: int  # of the values in the file, in bytes
    shape: tuple[int, ...]

    @property
    def bars(self) -> bool:
        return self.shape[0] > 2

    def piece(self, layer: int, rows: slice) -> tiles.Piece:
        """Return one layer of the part in some rows, mapped from the file."""
        at = slice(*np.searchsorted(self.rows, (rows.start, rows.stop)))
        with open(self.path, "rb") as file:  # noqa: PTH123
            # pathlib, and np.memmap that uses it, would take longer than the rest
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        values = np.frombuffer(view, np.float64, offset=self.offset).reshape(self.shape)
        return tiles.Piece(self.rows[at], self.cols[at], self.weight[at], values[layer, :, at])


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
    for plane, new in zip(whole, values[:, 0], strict=True):  # faster than all planes at once
        plane[gaps] = new
    return whole


class FilledEntries(NamedTuple):
    """The filled entries of a scene, in files, and counts of its entries."""

    filled: Bits
    values: GapLayer  # as they will be written, in the dtype of the cube
    flags: GapLayer
    sigma: GapLayer | None  # error bars; NaN where nothing was filled
    by_flag: Counter[str]  # number of filled entries
    by_reason: Counter[str]  # number of missing entries
    changed: Counter[str]  # number of filled values that the dtype changed, by kind of change, and
    #                        of those outside the observed range or clipped, by names of BEYOND


class Assembly:
    """Assembles the tiles of a scene while others are still being filled.

    A block of rows is processed in a thread as soon as all of its tiles are finished.  The reasons
    of missing entries are counted in another thread meanwhile.
    """

    def __init__(
        self, scene: Scene, nodata: Nodata, product_uncertainty: Floats | None, why: Reasons
    ) -> None:
        """product_uncertainty: (bands,) that of the input, which is added to the error bars."""
        shape = scene.cube.shape
        self.scene, self.nodata, self.product_uncertainty = scene, nodata, product_uncertainty
        self._keeps = _keeps(scene)
        # in the order of the plan, so that sums are reproducible; None = not finished yet
        self._kept: list[Kept | None] = [None] * len(scene.planned)
        self._filled = Bits(scene.work / "filled.bits", shape).empty()
        self._values = self._layer("values", scene.cube.dtype)
        self._flags = self._layer("flags", np.uint8)
        self._sigma: GapLayer | None = None  # until a tile has error bars
        self._waiting = [(rows, _tiles_in(scene, rows)) for rows in _parts(scene)]
        self._pool = ThreadPoolExecutor(min(cores(), MOST_THREADS))
        self._by_reason = self._pool.submit(why.counts)
        self._running: list[Future[tuple[Counter[str], Counter[str]]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, tile: Tile) -> None:
        """Register a finished tile, and start the blocks that waited for no other.

        Raises the error of a block that failed meanwhile.
        """
        self._kept[self.scene.planned.index(tile)] = kept = _kept(self.scene, tile)
        if kept.bars and self._sigma is None:
            self._sigma = self._layer("sigma", np.float64)
        for _, pending in self._waiting:
            pending.discard(tile.number)
        ready = [rows for rows, pending in self._waiting if not pending]
        self._waiting = [(rows, pending) for rows, pending in self._waiting if pending]
        self._running += [self._pool.submit(self._put, rows) for rows in ready]
        for future in self._running:
            if future.done():
                future.result()

    def entries(self, complete: bool) -> FilledEntries:
        """Return the filled entries and their layers, after all tiles were added.

        complete: whether every tile filled its whole target.
        """
        changed, by_flag = Counter[str](), Counter[str]()
        for changes, flags in (future.result() for future in self._running):
            changed.update(changes)
            by_flag.update(flags)
        whole = complete and self.scene.cube.dtype.kind == "f"
        filled = self.scene.target if whole else self._filled
        bars = self._sigma if all(kept and kept.bars for kept in self._kept) else None
        layers, by_reason = (self._values, self._flags, bars), self._by_reason.result()
        return FilledEntries(filled, *layers, by_flag, by_reason, changed)

    def _layer(self, name: str, dtype: Any) -> GapLayer:
        """Create the file of a layer of the filled entries."""
        path = self.scene.work / f"{name}.gaps"
        return GapLayer.empty(path, self.scene.gaps, self.scene.cube.bands, dtype)

    def _put(self, rows: slice) -> tuple[Counter[str], Counter[str]]:
        """Blend the tiles of some rows, and write their filled entries and layers to the files.

        Returns the numbers of values that were changed or lie beyond the observed range, and the
        number of entries with each flag.
        """
        scene, changed, gaps = self.scene, Counter[str](), self.scene.gaps[rows]
        finished = [kept for kept in self._kept if kept is not None and _meet(kept.tile, rows)]
        box, bands = (rows, slice(0, gaps.shape[1])), scene.cube.bands

        def pieces(layer: int) -> Iterator[tiles.Piece]:  # of one tile at a time: they take memory
            return (kept.piece(layer, rows) for kept in finished)

        estimate = tiles.overlap_add(box, bands, pieces(0), gaps)
        finite, ends = np.isfinite(estimate), scene.reach
        estimate, beyond = bounded(scene.cube.dtype, estimate, finite, ends)
        changed.update(beyond)
        self._filled.put(slice(None), rows, _spread(finite, gaps, False))
        written, dtype_changes = _written(scene.cube, estimate, finite, self.nodata)
        changed.update(dtype_changes)
        self._values.put(rows, written)
        if self._sigma is not None and all(kept.bars for kept in finished):
            sigma = tiles.overlap_add(box, bands, pieces(1), gaps)
            self._sigma.put(rows, total(sigma, self.product_uncertainty, finite))
        flags = of_fill(
            finite,
            self._keeps.bands[:, None, None] & self._keeps.pixels[rows][gaps],
            _origins(pieces(-1), rows, gaps, bands),
            outside_of(written, ends.low, ends.high),
            np.zeros(finite.shape, bool),  # tiles do not change measured entries
        )
        self._flags.put(rows, flags)
        return changed, Counter(counted(flags))


def _parts(scene: Scene) -> Iterator[slice]:
    """Yield ranges of rows with gaps, of which one layer of float64 is at most a block."""
    pixels, start = 0, 0
    for row, count in enumerate(scene.gaps.sum(axis=1).tolist()):
        if pixels and (pixels + count) * scene.cube.bands * 8 > BUDGET:
            yield slice(start, row)
            pixels, start = 0, row
        pixels += count
    if pixels:
        yield slice(start, len(scene.gaps))


def _meet(tile: Tile, rows: slice) -> bool:
    """Return whether the support of a tile overlaps a range of rows."""
    return bool(tile.support[0].start < rows.stop and rows.start < tile.support[0].stop)


def _tiles_in(scene: Scene, rows: slice) -> set[int]:
    """Return the numbers of the tiles whose support overlaps a range of rows."""
    return {tile.number for tile in scene.planned if _meet(tile, rows)}


def _origins(pieces: Iterable[tiles.Piece], rows: slice, gaps: Bools, bands: int) -> Array:
    """(bands, 1, n) sources of the values at those pixels: bits of `flags`, of all tiles."""
    numbers = (np.cumsum(gaps) - 1).reshape(gaps.shape)
    bits = np.zeros((bands, 1, int(gaps.sum())), np.uint8)
    for piece in pieces:
        at = numbers[piece.rows - rows.start, piece.cols]
        bits[:, 0, at] |= np.nan_to_num(piece.values).astype(np.uint8)
    return bits


def _written(
    cube: Cube, estimate: Floats, finite: Bools, nodata: Nodata
) -> tuple[Array, dict[str, int]]:
    """Return the estimate in the file's dtype and counts of changed values, as `into_dtype`."""
    new = estimate[finite][None, None]
    blank = Cube(np.zeros(new.shape, cube.dtype), nodata=cube.nodata)
    whole, changes = stored.into_dtype(blank, new, np.ones(new.shape, bool), nodata)
    written = np.zeros(finite.shape, cube.dtype)
    written[finite] = whole[0, 0]
    return written, changes


class Keeps(NamedTuple):
    """Entries that can be filled from other bands of their pixel: where both masks are True."""

    bands: Bools  # (bands,)
    pixels: Bools  # (rows, cols)


def _keeps(scene: Scene) -> Keeps:
    """Return the result of `auto.split.keeps` as two masks."""
    usable = scene.cube.good_bands & scene.observed.some()
    if declared(scene.request.method).each_band:
        return Keeps(usable, np.zeros(scene.cube.shape[1:], bool))
    return Keeps(usable, scene.observed.any_in(usable))


class Reasons(NamedTuple):
    """Why the entries of a scene are missing, bits of `flags.REASONS`."""

    scene: Scene
    frames: Bools  # (rows,) lost lines
    named: Array | None  # bits from masks and quality layers, (rows, cols) or (bands, rows, cols)

    def at(self, bands: slice, rows: slice, cols: slice) -> tuple[Array, Bools]:
        """Return the reasons (bands, 1, n) at the n pixels of a box that lack a band, and these
        pixels (rows, cols)."""
        block, scene = (bands, rows, cols), self.scene
        missing = ~scene.observed.get(*block)
        where: Bools = np.asarray(missing.any(axis=0))
        pixels = np.flatnonzero(where)  # several times as fast as a mask

        def each(flags: Array) -> Array:
            """(..., n, 1) values at the n pixels, each as a row of its own."""
            return flags.reshape(*flags.shape[:-2], -1)[..., pixels, None]

        own = missing if scene.own == scene.observed else ~scene.own.get(*block)
        missing_by_cube, screened = each(own), scene.withheld
        withheld = missing_by_cube & (False if screened is None else each(screened.get(*block)))
        named = self.named
        named_here = None if named is None else each(named[block if named.ndim == 3 else block[1:]])
        in_frame = np.broadcast_to(self.frames[rows, None], where.shape)[where]
        why = reasons(each(missing), missing_by_cube, withheld, named_here, in_frame)
        return why.transpose(0, 2, 1), where

    def counts(self) -> Counter[str]:
        """Return the number of missing entries by the name of their reason."""
        by_reason = Counter[str]()
        parts = blocks(self.scene.cube.shape, 8)
        for counts in in_threads(lambda block: counted(self.at(*block)[0], REASONS), parts):
            by_reason.update(counts)
        return by_reason

    @property
    def layer(self) -> Lazy:
        """The reasons of all entries, (bands, rows, cols)."""
        return Lazy(
            self.scene.cube.shape, np.dtype(np.uint8), lambda *block: _spread(*self.at(*block), 0)
        )


def reasons_of(scene: Scene, mask: Bools | None, named: Array | None) -> Reasons:
    """Return why the entries of a scene are missing.

    mask: True = measured.  named: bits from masks and quality layers, in their shape; None means
    MASK for the entries of the mask.
    """
    lines = [scene.observed.packed(band).any(axis=1) for band in range(scene.cube.bands)]
    if named is None and mask is not None:
        named = np.where(mask, 0, MASK).astype(np.uint8)
    return Reasons(scene, lost_frames(np.any(lines, axis=0)), named)


def layers_of(scene: Scene, entries: FilledEntries, why: Lazy) -> dict[str, Lazy]:
    """Return the layers of a scene by name, (bands, rows, cols): `flags`, `why`, and `sigma` if all
    tiles have error bars, NaN where nothing was filled."""

    def lazy(layer: GapLayer, empty: float, dtype: Any) -> Lazy:
        def read(bands: slice, rows: slice, cols: slice) -> Array:
            return _spread(layer.get(bands, rows, cols), scene.gaps[rows, cols], empty)

        return Lazy(scene.cube.shape, np.dtype(dtype), read)

    layers = {"flags": lazy(entries.flags, 0, np.uint8), "why": why}
    if entries.sigma is None:
        return layers
    return layers | {"sigma": lazy(entries.sigma, np.nan, stored.float_for(scene.cube.dtype))}


def values(scene: Scene, entries: FilledEntries) -> Lazy:
    """Return the input's values with the filled ones in its gaps; a block is read when indexed."""

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        """Return the values of a block, in the dtype of the file."""
        out = np.array(scene.cube.values[bands, rows, cols])
        gaps, block = scene.gaps[rows, cols], (bands, rows, cols)
        filled = (entries.flags.get(*block) & FILLED) != 0
        for plane, where, new in zip(
            out, filled[:, 0], entries.values.get(*block)[:, 0], strict=True
        ):
            plane[gaps] = np.where(where, new, plane[gaps])
        return out

    chunks = getattr(scene.cube.values, "chunks", None)
    return Lazy(scene.cube.shape, scene.cube.dtype, read, chunks)
