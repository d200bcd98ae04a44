"""Tiles into one file: a copy of the input with the blended tiles in its gaps, and companions."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import io
from hydiff.cube import Array, Cube, Floats, Ints, Lazy, Nodata
from hydiff.gaps import rule
from hydiff.gaps.reach import bounded
from hydiff.io import provenance
from hydiff.io.blocks import blocks
from hydiff.scale import ledger, tiles
from hydiff.scale.bits import Bits, everything
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


def filled_entries(mosaic: Mosaic, nodata: Nodata, complete: bool) -> tuple[Bits, Counter[str]]:
    """What is filled, and how many values the dtype changed, by what it did to them; with those
    of BEYOND, how many lie outside of what was observed.

    complete: every tile estimated all that it was asked for, so that all that was to be filled is.
    """
    scene, shape = mosaic.scene, mosaic.scene.cube.shape
    whole = complete and scene.cube.dtype.kind == "f"
    filled = scene.target if whole else Bits(scene.work / "filled.bits", shape).empty()
    changed: Counter[str] = Counter()
    plain = Cube(np.zeros((1, 1, 1), scene.cube.dtype), nodata=scene.cube.nodata)
    for bands, rows, cols in _pieces_of((slice(0, shape[0]), *everything(shape))):
        estimate = mosaic.blended(0, bands, (rows, cols))
        finite = np.isfinite(estimate)
        estimate, beyond = bounded(scene.cube.dtype, estimate, finite, scene.reach.of(bands))
        changed.update(beyond)
        if whole:  # floats stay as they are
            continue
        filled.put(bands, rows, finite)
        new = estimate[finite][None, None]
        blank = replace(plain, values=np.zeros(new.shape, scene.cube.dtype))
        changed.update(rule.into_dtype(blank, new, np.ones(new.shape, bool), nodata)[1])
    return filled, changed


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


def write(
    mosaic: Mosaic,
    cube: Cube,
    filled: Bits,
    bars: bool,
    record: Mapping[str, Any],
    output: Path,
    overwrite: bool,
    samples: provenance.Writers | None = None,
) -> list[Path]:
    """The cube and its companions, all or nothing.  bars: with the error bars of the tiles."""
    whole, kind = everything(cube.shape), rule.float_for(cube.dtype)

    def write_filled(path: Path) -> None:
        groups = (slice(b, min(b + 8, cube.bands)) for b in range(0, cube.bands, 8))
        planes = (filled.get(group, *whole) for group in groups)
        io.masks.write_planes(planes, path, "missing", cube.shape)

    def write_sigma(path: Path) -> None:
        pairs = (
            (mosaic.blended(1, slice(b, b + 1), whole)[0].astype(kind), filled.plane(b))
            for b in range(cube.bands)
        )
        provenance.write_bars(pairs, record["entries"]["filled"], cube.bands, path)

    writers: provenance.Writers = {provenance.filled_mask_path: write_filled}
    if bars:
        writers = {provenance.sigma_path: write_sigma, **writers}
    writers = {**writers, **(samples or {})}
    before = mosaic.scene.cube
    return provenance.write_together(
        cube, output, record, writers, overwrite=overwrite, before=before
    )
