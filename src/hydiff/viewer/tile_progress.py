"""A fill by tiles while it runs: how far it is, and what it has so far.

Reads the folder OUT.tiles that `hydiff.scale.scene` keeps; a tile counts when its marker is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hydiff.cube import Array, Bools, Cube, Lazy
from hydiff.scale import ledger, tiles
from hydiff.scale.scene import Bits
from hydiff.scale.tiles import Grid, Tile


def progress(work: Path, shape: tuple[int, int, int]) -> tuple[int, int]:
    """How many tiles are done, and of how many; 0 of 0 before they are planned."""
    plan = _plan(work, shape)
    return len(list(work.glob("tile-*.json"))), 0 if plan is None else len(plan[1])


def idle(work: Path) -> float:
    """Seconds since the last tile was done, or since the fill has begun."""
    try:
        times = [path.stat().st_mtime for path in work.glob("tile-*.json")]
        return time.time() - max(times, default=work.stat().st_mtime)
    except OSError:  # it has just ended
        return 0.0


def cube(work: Path, source: Cube) -> Cube:
    """The source with the finished tiles in its gaps, worked out whenever it is read."""

    def read(bands: slice, rows: slice, cols: slice) -> Array:
        out = np.array(source.values[bands, rows, cols])
        plan = _plan(work, source.shape)
        if plan is None:
            return out
        pieces = _pieces(work, *plan, bands)
        values = tiles.overlap_add((rows, cols), bands.stop - bands.start, pieces)
        ready = np.isfinite(values)
        out[ready] = np.rint(values[ready]) if out.dtype.kind in "iu" else values[ready]
        return out

    return replace(source, values=Lazy(source.shape, source.dtype, read))


def _plan(work: Path, shape: tuple[int, int, int]) -> tuple[Grid, list[Tile], Bools] | None:
    """The grid, the tiles with gaps, and the pixels with something to fill; None before that."""
    try:
        cuts = ledger.read_belongings(work).cuts
        target = work / "target.bits"
        gaps = _gaps(target, shape, target.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError):  # it has only begun, or has just ended
        return None
    return cuts, tiles.plan(cuts, gaps.astype(np.float64)), gaps


@lru_cache(maxsize=1)
def _gaps(target: Path, shape: tuple[int, int, int], changed: int) -> Bools:
    """(rows, cols) pixels with an entry to fill; read again when the file has changed."""
    gaps = np.zeros(shape[1:], bool)
    for band in range(shape[0]):
        gaps |= Bits(target, shape).plane(band)
    return gaps


def _pieces(
    work: Path, cuts: Grid, planned: list[Tile], gaps: Bools, bands: slice
) -> Iterator[tiles.Piece]:
    for tile in planned:
        name = work / f"tile-{tile.number:06d}.npy"
        if not name.with_suffix(".json").exists():
            continue
        try:
            values = np.array(np.load(name, mmap_mode="r")[0, bands])
        except (OSError, ValueError):  # gone, because the fill has ended
            continue
        rows, cols = np.nonzero(gaps[tile.support])
        weight = tiles.weights(cuts, tile)[rows, cols]
        at = rows + tile.support[0].start, cols + tile.support[1].start
        yield tiles.Piece(*at, weight, values)
