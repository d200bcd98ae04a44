"""Progress of a running fill by tiles, and the values of its finished tiles.

Reads the folder OUT.tiles, which `hydiff.scale.scene` writes.  A tile is finished if its JSON file
exists.
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
    """Return the numbers of finished and of planned tiles; (0, 0) before they are planned."""
    plan = _plan(work, shape)
    return len(list(work.glob("tile-*.json"))), 0 if plan is None else len(plan[1])


def idle(work: Path) -> float:
    """Return the seconds since the last tile was finished, or since the fill was started."""
    try:
        times = [path.stat().st_mtime for path in work.glob("tile-*.json")]
        return time.time() - max(times, default=work.stat().st_mtime)
    except OSError:  # the fill has just ended
        return 0.0


def cube(work: Path, source: Cube) -> Cube:
    """Return the source with the finished tiles in its gaps; computed when it is read."""

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
    """Return grid, tiles with gaps, and pixels to fill; None if the fill has no plan (yet)."""
    try:
        cuts = ledger.read_belongings(work).cuts
        target = work / "target.bits"
        gaps = _gaps(target, shape, target.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError):  # the fill has only just started, or has just ended
        return None
    return cuts, tiles.plan(cuts, gaps.astype(np.float64)), gaps


@lru_cache(maxsize=1)
def _gaps(target: Path, shape: tuple[int, int, int], changed: int) -> Bools:
    """Return the pixels (rows, cols) with an entry to fill.

    changed: time of the last change of the file, so that a changed file is read again.
    """
    gaps = np.zeros(shape[1:], bool)
    for band in range(shape[0]):
        gaps |= Bits(target, shape).plane(band)
    return gaps


def _pieces(
    work: Path, cuts: Grid, planned: list[Tile], gaps: Bools, bands: slice
) -> Iterator[tiles.Piece]:
    """Yield the values of finished tiles in some bands, with their pixels and blending weights."""
    for tile in planned:
        path = work / f"tile-{tile.number:06d}.npy"
        if not path.with_suffix(".json").exists():
            continue
        try:
            values = np.array(np.load(path, mmap_mode="r")[0, bands])
        except (OSError, ValueError):  # removed, as the fill has ended
            continue
        rows, cols = np.nonzero(gaps[tile.support])
        weight = tiles.weights(cuts, tile)[rows, cols]
        pixels = rows + tile.support[0].start, cols + tile.support[1].start
        yield tiles.Piece(*pixels, weight, values)
