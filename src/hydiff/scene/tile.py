"""One tile: read its window, fill it, keep what it says.  All that a worker does.

A task is small and the folder of the scene tells the rest, so that it makes no difference whether
a tile is filled in this process, in another one, or on another machine that sees the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import auto, tiles
from hydiff.cube import Array, Cube
from hydiff.errors import BadValue
from hydiff.order import Order
from hydiff.run import Job, estimate
from hydiff.scene import decide, ledger
from hydiff.scene.decide import Decided
from hydiff.scene.masks import Bits
from hydiff.scene.plan import Scene, inside, opened, window
from hydiff.tiles import Tile
from hydiff.versions import versions


class Task(NamedTuple):
    path: Path  # of the input
    seen: Bits
    target: Bits
    work: Path
    order: Order
    tile: Tile
    tag: str  # what the tile belongs to
    glance: str  # at the input, by who planned this
    version: str


def task(scene: Scene, order: Order, tile: Tile, tag: str, glance: str) -> Task:
    return Task(
        scene.path.resolve(),
        scene.seen,
        scene.target,
        scene.work,
        order,
        tile,
        tag,
        glance,
        versions()["hydiff"],
    )


def work(task: Task) -> None:
    """Fill a tile and keep it, unless it is there."""
    cube = _checked(task)
    if not ledger.is_done(task.work, task.tile, task.tag):
        values, told = _fill(task, cube, decide.read(task.work))
        ledger.keep(task.work, task.tile, task.tag, values, told)


def _checked(task: Task) -> Cube:
    """The scene; refuses other files, and another version, than who planned the tile has."""
    if not task.work.is_dir() or not task.path.exists():
        lacking = task.path if task.work.is_dir() else task.work
        raise BadValue(
            f"a worker does not see {lacking}: the workers need the file system of the input and "
            "the output, under the same paths"
        )
    cube = opened(task.path, task.order.var)
    if ledger.glance(cube.path or task.path) != task.glance:
        raise BadValue(
            f"a worker sees another file as {task.path}: the workers need the file system of the "
            "input; if the file was changed meanwhile, start anew without --resume"
        )
    mine = versions()["hydiff"]
    if task.version != mine:
        raise BadValue(
            f"a worker runs hydiff {mine}, this is {task.version}: install the same version for all"
        )
    return cube


def _fill(task: Task, scene: Cube, decided: Decided) -> tuple[Array, dict[str, Any]]:
    """(1 or 2, bands, n): the estimate of the gaps' pixels in the support, then its error bars;
    NaN where nothing is to fill or nothing can be told.  And what the marker says beside it."""
    order, tile = task.order, task.tile
    cube, seen, target = window(scene, task.seen, task.target, tile)
    seed = tiles.seed_of(order.seed, tile.number)
    job = Job(seed, order.device, order.deterministic, None, False, decided.common)
    box = inside(tile.support, tile.window)
    gaps = target[:, box[0], box[1]].any(axis=0)
    chosen, expected, asked = order.chosen, None, int(target.sum())
    if chosen is None:
        found, decision = auto.fill(
            cube,
            seen,
            target,
            decided.sigma_y,
            job,
            recipe=decided.recipe,
            max_error=order.max_error,
        )
        expected = decision.expected
        target &= ~decision.hopeless
    else:
        found = estimate(cube, seen, chosen, decided.sigma_y, job)
    layers = [found.values] if found.sigma is None else [found.values, found.sigma]
    kept = np.stack(
        [np.where(target, layer, np.nan)[:, box[0], box[1]][:, gaps] for layer in layers]
    )
    entries = int(np.isfinite(kept[0]).sum())
    told = {"entries": entries, "complete": entries == asked, "bars": len(layers) == 2}
    return kept, told | {"notes": found.notes, "expected": expected}
