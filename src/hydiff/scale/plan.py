"""The tiles of a scene: as large as memory allows, over its gaps only."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, io
from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue
from hydiff.gaps import rule
from hydiff.gaps.reach import Reach, reach_of
from hydiff.methods import declared
from hydiff.request import Request
from hydiff.scale import tiles
from hydiff.scale.bits import Bits, aims, scan
from hydiff.scale.tiles import Box, Grid, Tile

SIZES = (256, 192, 144, 96, 64, 48, 32)  # px, sides of cores that are tried, the largest first
# The largest of methods that fit covariances to each window: in larger ones one covariance has to
# serve too much ground (benchmarks/results/covariances.csv), and memory should not show.
LARGEST_LOCAL = 96
PLANES = 100.0  # bytes per pixel of the scene while gaps are measured, rounded up


class Limits(NamedTuple):
    memory: float  # bytes, of each process
    tile: int | None = None  # px, side of the cores; None = the largest that memory allows
    overlap: int | None = None  # px over which neighbours are blended


class Scene(NamedTuple):
    """A scene that is being filled; all but `gaps` is on disk."""

    path: Path
    var: str | None
    cube: Cube
    observed: Bits
    target: Bits
    gaps: Bools  # (rows, cols) pixels with something to fill
    cuts: Grid
    planned: list[Tile]
    work: Path  # the folder of masks, decision and finished tiles
    content: str  # `auto.fingerprint` of the cube
    reach: Reach  # of what is observed, and what filled values are clipped to
    notes: list[str]  # what to say of what counts as missing


def limits(
    memory: str | None, tile: int | None = None, overlap: int | None = None, processes: int = 1
) -> Limits:
    """From the words of the command line; without --memory, half of what the machine has."""
    if memory is None:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Limits(whole / 2 / processes, tile, overlap)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", memory.strip(), re.IGNORECASE)
    if found is None or not float(found[1]) > 0:
        raise BadValue(f"`memory='{memory}'`: expected a size such as 2GB or 500MB")
    step = 1024.0 if found[3] else 1000.0
    return Limits(float(found[1]) * step ** " KMGT".index(found[2].upper() or " "), tile, overlap)


def wanted(cube: Cube, order: Request, bounds: Limits) -> bool:
    """Whether to fill by tiles: something was asked for that means it, or it does not fit whole."""
    whole = base(order) + cost(order, cube.bands, cube.shape[1] * cube.shape[2])
    return bounds.tile is not None or order.prior > 0 or whole > bounds.memory


def laid_out(
    path: Path, order: Request, bounds: Limits, observed: Bools | None, work: Path
) -> tuple[Scene, dict[str, int]]:
    """The scene with its masks and tiles, and what is left missing for which reason."""
    cube = opened(path, order.var)
    api.check_request(
        order.method, order.preset, order.settings, order.budget, order.recipe, order.max_error
    )
    rule.check_numbers(cube)
    rule.check_choices(order.bad_bands, order.max_gap, order.outside)
    found = scan(partial(opened, path, order.var), cube, observed, order, work)
    reach = reach_of(cube, found.low, found.high, order.clip)
    target, width, left = aims(cube, found.observed, found.withheld, order, work)
    cuts, planned = _planned(cube, order, width, bounds)
    notes = [*found.notes, *rule.suspected(cube, observed, order.nodata)]
    masks, place = (found.observed, target, width > 0), (path, order.var, cube)
    scene = Scene(*place, *masks, cuts, planned, work, found.content, reach, notes)
    return scene, left


def opened(path: Path, var: str | None) -> Cube:
    """The cube, anew for each window: no file stays open, or mapped."""
    cube = io.read(path, var=var)
    return io.envi.plain_windows(cube) if cube.format == "envi" else cube


def tiling(scene: Scene) -> dict[str, Any]:
    """As a record tells it."""
    rows, cols = (np.diff(edges) for edges in scene.cuts[:2])
    return {
        "size": [int(rows.max()), int(cols.max())],
        "overlap": scene.cuts.overlap,
        "filled": len(scene.planned),
        "of": len(rows) * len(cols),
    }


def base(order: Request) -> float:
    """Bytes of a process that fills nothing yet."""
    return declared(order.method).memory.process


def cost(order: Request, bands: int, pixels: int) -> float:
    """Bytes that the fill of a window takes at its peak."""
    memory = declared(order.method).memory
    return pixels * (bands * memory.entry + memory.pixel)


def most_beside(scene: Scene, order: Request, bounds: Limits) -> int:
    """Tiles that are filled side by side: several where a GPU fits networks, as memory allows."""
    if not order.learned or not _has_gpu(order.device):
        return 1
    from hydiff.learn.engine import MOST_BESIDE

    largest = max((area(t.window) for t in scene.planned), default=0)
    room = (bounds.memory - base(order)) / max(cost(order, scene.cube.bands, largest), 1.0)
    return max(1, min(MOST_BESIDE, int(room)))


def _has_gpu(device: str) -> bool:
    """Whether tiles meet a GPU; `auto` looks for one here, which need not be where they go."""
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def area(box: Box) -> int:
    rows, cols = (int(s.stop - s.start) for s in box)
    return rows * cols


def inside(box: Box, window: Box) -> Box:
    """A box in the coordinates of a window around it."""
    rows, cols = (
        slice(b.start - w.start, b.stop - w.start) for b, w in zip(box, window, strict=True)
    )
    return rows, cols


def window(cube: Cube, observed: Bits, target: Bits, tile: Tile) -> tuple[Cube, Bools, Bools]:
    """The part of a tile's window: values, what is observed, and what to fill in its support."""
    wanted = target.box(tile.window)
    counts = np.zeros(wanted.shape[1:], bool)
    counts[inside(tile.support, tile.window)] = True
    return cube.window(*tile.window), observed.box(tile.window), wanted & counts


def _planned(cube: Cube, order: Request, width: Floats, bounds: Limits) -> tuple[Grid, list[Tile]]:
    """The largest tiles that fit into memory; BadValue names the least memory that would do."""
    scene = (cube.shape[1], cube.shape[2])
    needs = []
    most = LARGEST_LOCAL if declared(order.method).local else SIZES[0]
    sizes = [size for size in SIZES if size <= most] if bounds.tile is None else [bounds.tile]
    for size in sizes:
        overlap = min(tiles.OVERLAP, size // 2) if bounds.overlap is None else bounds.overlap
        cuts = tiles.grid(scene, size, overlap)
        planned = tiles.plan(cuts, width)
        largest = max((area(t.window) for t in planned), default=0)
        filling = 16.0 * width.size + cost(order, cube.bands, largest)
        needs.append(base(order) + max(filling, PLANES * width.size))
        if needs[-1] <= bounds.memory:
            return cuts, planned
    least = f"`memory='{np.ceil(min(needs) / 1e6):.0f}MB'`"
    if bounds.tile is None:
        raise BadValue(
            f"{bounds.memory / 1e6:.0f} MB are too few for a single tile of this scene: its widest "
            f"gap is {width.max():.0f} pixels wide; give {least}"
        )
    raise BadValue(
        f"tiles of {bounds.tile} pixels do not fit into {bounds.memory / 1e6:.0f} MB; "
        f"give {least}, or a smaller `tile=`"
    )
