"""Cut a scene into tiles over its gaps, as large as memory allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto.candidates import has_prior
from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue, has_torch
from hydiff.gaps import rule, stored
from hydiff.gaps.reach import Reach, reach_of
from hydiff.io import envi, npz
from hydiff.io.parsing import machine_memory
from hydiff.methods import DEFAULT, declared
from hydiff.methods.devices import is_sent_to_gpu
from hydiff.request import Request
from hydiff.scale import tiles
from hydiff.scale.bits import Bits, aims, scan
from hydiff.scale.tiles import Box, Grid, Tile

SIZES = (256, 192, 144, 96, 64, 48, 32)  # px, sides of cores to try, the largest first
# px: largest core for methods that fit a covariance to each window.  In larger windows a single
# covariance has to describe too large an area (benchmarks/results/covariances.csv), and the fill
# should not depend on the available memory.
LARGEST_LOCAL = 96
# px: context of a tile for the trained network of `auto`.  Its full receptive field is three times
# as wide and would take four times the memory, but pixels farther away change the fill by less than
# 1 % of its error (benchmarks/prior_context.py).
PRIOR_CONTEXT = 32
# additional bytes per pixel of a fill with a reference: one of ten bands took 2700
REFERENCE_PIXEL = 3000.0
IN_TILE = 6500.0  # the same for a worker, which took 211 MB more on tiles of 1280 × 1242 × 285
WRITING = 100e6  # bytes to write one file, a block at a time: 40 MB measured
TORCH = 520e6  # bytes of a process with torch; what CUDA itself takes is not counted
PLANES = 100.0  # bytes per pixel of the scene while gap widths are measured, rounded up


class Limits(NamedTuple):
    """Limits of memory and processes, and the sizes of tiles if the user gives them."""

    memory: float  # bytes, for all local processes together, or for each process of a cluster
    tile: int | None = None  # px, side of the cores; None = the largest that memory allows
    overlap: int | None = None  # px over which neighbours are blended
    processes: int = 1  # number of processes that fill tiles at the same time


class Scene(NamedTuple):
    """A scene that is filled by tiles; its values and masks are on disk, except for `gaps`."""

    request: Request
    limits: Limits
    path: Path  # of the input, as the user named it
    cube: Cube  # windows are read when needed; no file stays open or mapped
    observed: Bits
    target: Bits
    gaps: Bools  # (rows, cols) pixels with something to fill
    cuts: Grid
    planned: list[Tile]
    work: Path  # the folder of masks, decision and finished tiles
    content: str  # `auto.fingerprint` of the cube
    reach: Reach  # ranges of the observed values, and limits that filled values are clipped to
    left: dict[str, int]  # reason → number of missing entries that are not to be filled
    notes: list[str]  # about what counts as missing
    own: Bits  # observed by the cube's own rule, without a mask
    withheld: Bits | None  # entries that the product withholds, but has not lost

    def window(self, tile: Tile) -> tuple[Cube, Bools, Bools]:
        """Return the window of a tile; see `window`."""
        return window(self.cube, self.observed, self.target, tile)


def limits(
    memory: str | None, tile: int | None = None, overlap: int | None = None, processes: int = 1
) -> Limits:
    """Return limits from command-line values; memory None means half the memory of the machine."""
    if memory is None:
        return Limits(machine_memory() / 2, tile, overlap, processes)
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", memory.strip(), re.IGNORECASE)
    if size is None or not float(size[1]) > 0:
        raise BadValue(f"`memory='{memory}'`: expected a size such as 2GB or 500MB")
    factor = 1024.0 if size[3] else 1000.0
    size_bytes = float(size[1]) * factor ** " KMGT".index(size[2].upper() or " ")
    return Limits(size_bytes, tile, overlap, processes)


def uses_network(request: Request) -> bool:
    """Return whether `auto` may try the network that was trained on other images."""
    return request.chosen is None and not request.no_prior and has_prior() and has_torch()


def wanted(cube: Cube, request: Request, limits: Limits) -> bool:
    """Return whether to fill by tiles: on request, or because the cube as a whole does not fit."""
    needed = base(request) + cost(request, cube.bands, cube.shape[1] * cube.shape[2])
    return limits.tile is not None or request.pretrain > 0 or needed > limits.memory


def lay_out(
    path: Path, cube: Cube, request: Request, limits: Limits, mask: Bools | None, work: Path
) -> Scene:
    """Return a scene: write its masks into files of the folder `work`, and plan its tiles.

    path, cube: the input.  mask: True = measured, (rows, cols) or (bands, rows, cols).
    """
    rule.check_numbers(cube)
    scanned = scan(cube, mask, request, work)
    cube = stored.with_nodata(cube, request.nodata, scanned.notes)
    target, width, left = aims(cube, scanned.observed, scanned.withheld, request, work)
    cuts, planned = _planned(cube, request, width, limits)
    most_processes = at_once(request, cube.bands, planned, limits.memory)
    return Scene(
        request,
        limits._replace(processes=min(limits.processes, most_processes)),
        path,
        cube,
        scanned.observed,
        target,
        width > 0,
        cuts,
        planned,
        work,
        scanned.content,
        reach_of(cube, scanned.low, scanned.high, request.clip),
        left,
        [*scanned.notes, *rule.suspected(cube, mask, request.nodata)],
        scanned.own,
        scanned.withheld,
    )


def tiling(scene: Scene) -> dict[str, Any]:
    """Return size (px), overlap (px) and number of tiles, for the record."""
    rows, cols = (np.diff(edges) for edges in scene.cuts[:2])
    return {
        "size": [int(rows.max()), int(cols.max())],
        "overlap": scene.cuts.overlap,
        "filled": len(scene.planned),
        "of": len(rows) * len(cols),
    }


def base(request: Request) -> float:
    """Return the bytes of a process before it fills anything."""
    facts = declared(request.method)
    on_gpu = is_sent_to_gpu(facts, request.device)
    return max(facts.memory.process, TORCH if on_gpu else 0.0)


def cost(request: Request, bands: int, pixels: int) -> float:
    """Return the peak bytes of the fill of a window, besides those of the process."""
    memory = declared(request.method).memory
    features = REFERENCE_PIXEL if request.reference else 0.0
    return pixels * (bands * memory.entry + memory.pixel + features)


def in_worker(request: Request, bands: int, planned: Sequence[Tile]) -> float:
    """Return the peak bytes of a process that fills one tile after another, without any trials."""
    largest, declaration = (
        max((area(tile.window) for tile in planned), default=0),
        declared(request.method),
    )
    method = declaration.memory.tile * (bands * declaration.memory.entry + declaration.memory.pixel)
    return base(request) + largest * (method + (IN_TILE if request.reference else 0.0))


def at_once(request: Request, bands: int, planned: Sequence[Tile], memory: float) -> int:
    """Return the number of workers that fit into memory beside this process, at least 1.

    The size of tiles does not depend on it, so that the number of workers does not change a fill.
    """
    return max(1, int((memory - base(request)) / in_worker(request, bands, planned)))


def written_at_once(request: Request, limits: Limits) -> int:
    """Return the number of files that can be written at the same time within the memory."""
    return max(1, int((limits.memory - base(request)) / WRITING))


def context(request: Request) -> int:
    """Return the least context around a tile in px, whatever the width of its gaps."""
    halo = declared(request.method).halo
    if request.method == DEFAULT and not request.no_prior and has_prior():
        halo = PRIOR_CONTEXT
    return max(tiles.CONTEXT, halo)


def most_beside(scene: Scene) -> int:
    """Number of tiles filled side by side: 1, or more if a GPU fits networks and memory allows."""
    request = scene.request
    if not request.learned or not _has_gpu(request.device):
        return 1
    from hydiff.learn.engine import MOST_BESIDE

    largest = max((area(t.window) for t in scene.planned), default=0)
    available = scene.limits.memory / scene.limits.processes - base(request)
    tile_cost = max(cost(request, scene.cube.bands, largest), 1.0)
    return max(1, min(MOST_BESIDE, int(available / tile_cost)))


def _has_gpu(device: str) -> bool:
    """Return whether tiles will be filled on a GPU.

    With device "auto" this machine is checked, although workers may run on another one.
    """
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def area(box: Box) -> int:
    """Return the number of pixels of a box."""
    rows, cols = (int(s.stop - s.start) for s in box)
    return rows * cols


def plain_windows(cube: Cube) -> Cube:
    """Return the cube with windows that are read, not mapped: mapped pages count as memory."""
    reader = {"envi": envi.plain_windows, "npz": npz.plain_windows}.get(str(cube.format))
    return cube if reader is None else reader(cube)


def inside(box: Box, window: Box) -> Box:
    """Return a box in the coordinates of a window around it."""
    rows, cols = (
        slice(b.start - w.start, b.stop - w.start) for b, w in zip(box, window, strict=True)
    )
    return rows, cols


def window(cube: Cube, observed: Bits, target: Bits, tile: Tile) -> tuple[Cube, Bools, Bools]:
    """Return the window of a tile: cube, observed entries, and entries to fill in its support."""
    to_fill = target.box(tile.window)
    in_support = np.zeros(to_fill.shape[1:], bool)
    in_support[inside(tile.support, tile.window)] = True
    return cube.window(*tile.window), observed.box(tile.window), to_fill & in_support


def usual(request: Request, limits: Limits) -> Tile:
    """Return a tile of the largest size whose gaps are not wider than the least context."""
    size = _sizes(request, limits)[0]
    side = slice(0, size + _overlap(size, limits) + 2 * context(request))
    return Tile(0, (side, side), (side, side))


def _sizes(request: Request, limits: Limits) -> list[int]:
    """Return the sides of tile cores to try, in px."""
    largest = LARGEST_LOCAL if declared(request.method).local else SIZES[0]
    return [size for size in SIZES if size <= largest] if limits.tile is None else [limits.tile]


def _overlap(size: int, limits: Limits) -> int:
    """Return the px over which neighbours with cores of this size are blended."""
    return min(tiles.OVERLAP, size // 2) if limits.overlap is None else limits.overlap


def _planned(
    cube: Cube, request: Request, width: Floats, limits: Limits
) -> tuple[Grid, list[Tile]]:
    """Return the grid and the tiles with the largest size that fits into memory.

    If none fits, BadValue names the least sufficient memory.
    """
    shape = (cube.shape[1], cube.shape[2])
    needs = []
    for size in _sizes(request, limits):
        overlap = _overlap(size, limits)
        cuts = tiles.grid(shape, size, overlap)
        planned = tiles.plan(cuts, width, context(request))
        largest = max((area(t.window) for t in planned), default=0)
        filling_bytes = 16.0 * width.size + cost(request, cube.bands, largest)
        needs.append(base(request) + max(filling_bytes, PLANES * width.size))
        if needs[-1] <= limits.memory:
            return cuts, planned
    least = f"`memory='{np.ceil(min(needs) / 1e6):.0f}MB'`"
    if limits.tile is None:
        raise BadValue(
            f"{limits.memory / 1e6:.0f} MB are too few for a single tile of this scene: its widest "
            f"gap is {width.max():.0f} pixels wide; give {least}"
        )
    raise BadValue(
        f"tiles of {limits.tile} pixels do not fit into {limits.memory / 1e6:.0f} MB; "
        f"give {least}, or a smaller `tile=`"
    )
