"""The work of a worker: read the windows of one or several tiles, fill them, and keep the values.

A task is small, and everything else is in the folder of the scene.  So a tile can be filled in this
process, in another one, or on another machine that sees the same files, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff import auto, io
from hydiff.auto.apply import apply
from hydiff.auto.sources import of_method
from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue
from hydiff.io.versions import versions
from hydiff.methods.estimate import Estimate, Job, estimate_each, estimates, estimating
from hydiff.request import Request
from hydiff.scale import ledger, scene_decision, scene_references, tiles
from hydiff.scale.bits import Bits
from hydiff.scale.layout import Scene, plain_windows, window
from hydiff.scale.scene_decision import Decided
from hydiff.scale.tiles import Tile
from hydiff.workers.local import give_back


class TileTask(NamedTuple):
    """One or several tiles, with everything that a worker needs to fill them without planning."""

    path: Path  # of the input
    format: str  # of the input, as in `io.FORMATS`
    observed: Bits
    target: Bits
    work: Path
    request: Request
    tiles: tuple[Tagged, ...]  # filled side by side
    glance: str  # `ledger.glance` of the input when the tiles were planned
    version: str  # of hydiff when the tiles were planned


class Tagged(NamedTuple):
    """A tile and its tag, by which a finished tile is recognised."""

    tile: Tile
    tag: str  # fingerprint of the inputs and the decision that the tile belongs to


def task(scene: Scene, tiles: Sequence[Tagged], glance: str) -> TileTask:
    """Return the task that fills some tiles of a scene."""
    path, kind, version = scene.path.absolute(), str(scene.cube.format), versions()["hydiff"]
    masks = (scene.observed, scene.target)
    return TileTask(path, kind, *masks, scene.work, scene.request, tuple(tiles), glance, version)


def work(task: TileTask) -> None:
    """Fill the tiles of a task that are not finished yet, and keep their values on disk."""
    cube = checked(task)
    undone = [t for t in task.tiles if not ledger.is_done(task.work, *t)]
    if undone:
        filled = _fill(task, cube, [tile for tile, _ in undone], scene_decision.read(task.work))
        for (tile, tag), (values, outline) in zip(undone, filled, strict=True):
            ledger.keep(task.work, tile, tag, values, outline)
        if task.request.chosen is None:
            give_back()  # networks fragment the heap, which would grow from tile to tile


def checked(task: TileTask) -> Cube:
    """Return the scene as a cube; refuse a file or a version other than when tiles were planned."""
    if not task.work.is_dir() or not task.path.exists():
        lacking = task.path if task.work.is_dir() else task.work
        raise BadValue(
            f"a worker does not see {lacking}: the workers need the file system of the input and "
            "the output, under the same paths"
        )
    cube = plain_windows(io.open_as(task.format, task.path, task.request.var))
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
    """The window of a tile, ready to fill; arrays are (bands, rows, cols)."""

    tile: Tile
    cube: Cube
    observed: Bools
    target: Bools
    job: Job

    @property
    def for_auto(self) -> auto.TrialWindow:
        """The window as `auto` takes it."""
        references = self.job.references
        return auto.TrialWindow(self.cube, self.observed, self.target, references=references)

    @property
    def gaps(self) -> Bools:
        """(rows, cols) pixels with something to fill."""
        return np.asarray(self.target.any(axis=0))


def _fill(
    task: TileTask, scene: Cube, selected: Sequence[Tile], decided: Decided
) -> Iterator[tuple[Array, ledger.Outline]]:
    """Yield the values of each tile, and the outline for its marker."""
    request, parts = task.request, []
    for tile in selected:
        seed = tiles.seed_of(request.seed, tile.number)
        references = scene_references.within(task.work, tile.window)
        options = (seed, request.device, request.deterministic)
        job = Job(*options, common=decided.common, references=references)
        parts.append(TileWindow(tile, *window(scene, task.observed, task.target, tile), job))
    if request.chosen is None:
        recipe = decided.recipe
        assert recipe is not None  # it was decided, because the scene has tiles
        for part in parts:
            rest = request.max_error, part.gaps
            blend, decision = apply(recipe, part.for_auto, decided.sigma_y, part.job, {}, *rest)
            filled = part.target & ~decision.too_uncertain
            yield _kept(part, blend, filled, decision.sources, decision)
    else:
        for part, solution in zip(parts, _estimates(parts, request, decided), strict=True):
            origin = of_method(request.chosen.facts, part.target, part.cube.good_bands)
            yield _kept(part, solution, part.target, origin)


def _estimates(parts: Sequence[TileWindow], request: Request, decided: Decided) -> list[Estimate]:
    """Return the estimate of one method for each tile, at the pixels of its gaps."""
    chosen = request.chosen
    assert chosen is not None
    if len(parts) == 1:  # avoids importing torch
        part = parts[0]
        arguments = ([chosen], decided.sigma_y, part.job, part.gaps)
        return estimate_each(part.cube, part.observed, *arguments)
    runs = [estimating(p.cube, p.observed, chosen, decided.sigma_y, p.job) for p in parts]
    whole_windows = estimates(runs, request.device, request.deterministic)
    return [estimate.at(part.gaps) for estimate, part in zip(whole_windows, parts, strict=True)]


def _kept(
    part: TileWindow,
    solution: Estimate,
    filled: Bools,
    origin: Array,
    decision: auto.Decision | None = None,
) -> tuple[Array, ledger.Outline]:
    """Return the layers (2 or 3, bands, n) at the n gap pixels of a tile, and its outline.

    The layers are the estimate, its error bars if it has any, and the source of each value.  They
    are NaN where nothing is to be filled; the first two also where the method gives no value.

    solution: the estimate (bands, 1, n) at these pixels.  filled: entries of the target to fill.
    origin: bits of `flags` for each entry.
    """
    bars = [] if solution.sigma is None else [solution.sigma[:, 0]]
    layers = [solution.values[:, 0], *bars, origin[:, part.gaps]]
    is_filled = filled[:, part.gaps]
    values = np.stack([np.where(is_filled, layer, np.nan) for layer in layers])
    entries = int(np.isfinite(values[0]).sum())
    complete = entries == int(part.target.sum())
    outline = ledger.Outline(entries, complete, bool(bars), tuple(solution.notes))
    if decision is not None:
        outline = replace(
            outline,
            expected=decision.expected,
            doubtful=decision.doubtful,
            by_kind=dict(decision.by_kind),
            entries_by_kind=dict(decision.entries),
            with_reference=decision.with_reference,
        )
    return values, outline
