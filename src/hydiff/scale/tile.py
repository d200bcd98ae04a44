"""One tile, or some side by side: read their windows, fill them, keep what they say.  All that a
worker does.

A task is small and the folder of the scene tells the rest, so that it makes no difference whether
a tile is filled in this process, in another one, or on another machine that sees the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import auto
from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue
from hydiff.io.versions import versions
from hydiff.methods.estimate import Estimate, Job, estimate, estimates, estimating
from hydiff.request import Request
from hydiff.scale import ledger, scene_decision, tiles
from hydiff.scale.bits import Bits
from hydiff.scale.plan import Scene, inside, opened, window
from hydiff.scale.scene_decision import Decided
from hydiff.scale.tiles import Tile


class TileTask(NamedTuple):
    path: Path  # of the input
    observed: Bits
    target: Bits
    work: Path
    order: Request
    tiles: tuple[Tagged, ...]  # filled side by side
    glance: str  # at the input, by who planned this
    version: str


class Tagged(NamedTuple):
    tile: Tile
    tag: str  # what it belongs to


def task(scene: Scene, order: Request, tiles: Sequence[Tagged], glance: str) -> TileTask:
    version = versions()["hydiff"]
    path = scene.path.resolve()
    return TileTask(
        path, scene.observed, scene.target, scene.work, order, tuple(tiles), glance, version
    )


def work(task: TileTask) -> None:
    """Fill the tiles of a task and keep them, unless they are there."""
    cube = checked(task)
    undone = [t for t in task.tiles if not ledger.is_done(task.work, *t)]
    if undone:
        filled = _fill(task, cube, [tile for tile, _ in undone], scene_decision.read(task.work))
        for (tile, tag), (values, told) in zip(undone, filled, strict=True):
            ledger.keep(task.work, tile, tag, values, told)


def checked(task: TileTask) -> Cube:
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
            "input; if the file was changed meanwhile, start again without `resume=`"
        )
    mine = versions()["hydiff"]
    if task.version != mine:
        raise BadValue(
            f"a worker runs hydiff {mine}, this is {task.version}: install the same version for all"
        )
    return cube


class TileWindow(NamedTuple):
    """The window of a tile: arrays (bands, rows, cols) of it."""

    tile: Tile
    cube: Cube
    observed: Bools
    target: Bools
    job: Job


def _fill(
    task: TileTask, scene: Cube, some: Sequence[Tile], decided: Decided
) -> Iterator[tuple[Array, dict[str, Any]]]:
    """What is kept of each tile, and what its marker says beside it."""
    order, parts = task.order, []
    for tile in some:
        seed = tiles.seed_of(order.seed, tile.number)
        job = Job(seed, order.device, order.deterministic, None, False, decided.common)
        parts.append(TileWindow(tile, *window(scene, task.observed, task.target, tile), job))
    if order.chosen is None:
        for part in parts:
            blend, decision = auto.fill(
                part.cube,
                part.observed,
                part.target,
                decided.sigma_y,
                part.job,
                recipe=decided.recipe,
                max_error=order.max_error,
            )
            yield _kept(part, blend, part.target & ~decision.hopeless, decision)
    else:
        for part, found in zip(parts, _estimates(parts, order, decided), strict=True):
            yield _kept(part, found, part.target)


def _estimates(parts: Sequence[TileWindow], order: Request, decided: Decided) -> list[Estimate]:
    chosen = order.chosen
    assert chosen is not None
    if len(parts) == 1:  # without waiting for torch
        part = parts[0]
        return [estimate(part.cube, part.observed, chosen, decided.sigma_y, part.job)]
    runs = [estimating(p.cube, p.observed, chosen, decided.sigma_y, p.job) for p in parts]
    return estimates(runs, order.device, order.deterministic)


def _kept(
    part: TileWindow, found: Estimate, told: Bools, decision: auto.Decision | None = None
) -> tuple[Array, dict[str, Any]]:
    """(1 or 2, bands, n): the estimate of the gaps' pixels in the support, then its error bars;
    NaN where nothing is to fill or nothing can be told.  told: what of the target is filled."""
    rows, cols = inside(part.tile.support, part.tile.window)
    gaps = part.target[:, rows, cols].any(axis=0)
    layers = [found.values] if found.sigma is None else [found.values, found.sigma]
    kept = np.stack([np.where(told, layer, np.nan)[:, rows, cols][:, gaps] for layer in layers])
    entries = int(np.isfinite(kept[0]).sum())
    complete = entries == int(part.target.sum())
    marks: dict[str, Any] = {"entries": entries, "complete": complete, "bars": len(layers) == 2}
    if decision is not None:
        marks |= {"expected": decision.expected, "doubtful": decision.doubtful}
        marks |= {"by_kind": decision.by_kind, "entries_by_kind": decision.entries}
    return kept, marks | {"notes": found.notes}
