"""Scenes larger than memory: one decision, many tiles, each kept on disk when it is done.

masks      walk through the file once: what is observed, what to fill
plan       tiles over the gaps, as large as memory allows
decide     once, on a sample of windows: scale, noise, spectral basis, method and blend
prior      a network that is trained on the scene, for tiles to start from
tile       fill a tile; what a worker does
ledger     finished tiles and what they belong to, so that `resume` ends with the same bytes
assemble   a copy of the input with the blended tiles in its gaps, written in windows
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import io
from hydiff.auto import split
from hydiff.auto.apply import NO_BARS
from hydiff.auto.intervals import promises, warning
from hydiff.cube import Bools, Cube, Lazy
from hydiff.errors import BadValue
from hydiff.gaps import reach
from hydiff.io import provenance
from hydiff.learn.checkpoint import fingerprint
from hydiff.mark import Mark, of_fill
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale import assemble, ledger, pretrain, scene_decision, tile
from hydiff.scale.bits import Bits
from hydiff.scale.plan import Limits, Scene, laid_out, limits, most_beside, tiling, wanted
from hydiff.workers.remote import Run, in_turn

__all__ = ["Bits", "Filled", "Limits", "fill", "limits", "preview", "wanted"]

WHOLE_FORMATS = ("mat", "npz")  # that are written as a whole, from memory


class Filled(NamedTuple):
    made: list[Path]  # the cube first
    record: dict[str, Any]  # as in OUT.fill.json


def fill(
    path: Path,
    output: Path,
    order: Request,
    bounds: Limits,
    *,
    observed: Bools | None = None,
    run: Run = in_turn,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    request: str | None = None,
    progress: Progress = None,
) -> Filled:
    """Fill a file of any size within bounded memory, and write it with its companions.

    observed: a further mask, (rows, cols) or (bands, rows, cols), True = measured.
    run: who fills the tiles: this process, one after the other, or a cluster's workers.
    request: what was asked for, as a fingerprint for the record.
    """
    began = time.perf_counter()
    cube = io.read(path, var=order.var)
    if io.format_for(cube, output) in WHOLE_FORMATS:
        raise BadValue(
            f"{output.suffix} files are written from memory as a whole, and this scene is filled "
            "by tiles: name the output .zarr, .tif or .img"
        )
    work = provenance.tiles_path(output).resolve()
    with io.staging.explained(output, work):
        ledger.prepare(work, resume)
    with ledger.tidied(work), io.staging.explained(output, work):
        with ThreadPoolExecutor(1) as beside:  # hashing leaves the interpreter to the masks
            digest = beside.submit(provenance.sha256, cube.path or path)
            scene, left = laid_out(path, order, bounds, observed, work)
        source = {"path": str(cube.path), "sha256": digest.result()}
        masks = (scene.observed, scene.target)
        belongs = ledger.belongings(source["sha256"], masks, order, scene.cuts, cube)
        ledger.claim(work, belongs)
        decided = scene_decision.decision(scene, order, bounds)
        pretrain.train(scene, order, run)
        at_once = most_beside(scene, order, bounds)
        _fill_tiles(scene, order, fingerprint(belongs, decided.recipe), at_once, run, progress)
        markers = [json.loads(ledger.marker(work, t).read_text()) for t in scene.planned]
        mosaic = assemble.mosaic(scene)
        filled, changed = assemble.filled_entries(
            mosaic, order.nodata, all(m["complete"] for m in markers)
        )
        beyond = {name: changed.pop(name, 0) for name in reach.BEYOND}
        count = filled.total()
        if (unreached := scene.target.total() - count) > 0:
            left[_out_of_reach(order)] = unreached
        told = {
            **({} if request is None else {"request": request}),
            "method": order.method,
            "settings": order.shown,
            "seed": order.seed,
            "sigma_y": provenance.one_or_all(np.asarray(decided.sigma_y)),
            "entries": provenance.counts(cube.shape, count, left),
            "expected": _expected(markers) if decided.recipe is not None else None,
            **provenance.of_each_kind(_expected_by_kind(markers)),
            "recipe": decided.recipe,
            "beyond_observed": beyond | {"clip": order.clip},
            "notes": [
                *_notes(decided, markers, changed, scene),
                *reach.notes(beyond, order.clip),
            ],
            "tiles": tiling(scene),
            "seconds": round(time.perf_counter() - began, 3),
        }
        bars = bool(markers) and all(m["bars"] for m in markers)
        valid = cube.validated(Lazy(cube.shape, np.dtype(bool), filled.get))
        record = provenance.dated(command, source, told)
        made_of = assemble.values(mosaic, filled, order.nodata)
        mark = _mark(cube, filled, order, record)
        written = replace(cube, values=made_of, valid=valid, mark=mark)
        made = assemble.write(mosaic, written, filled, bars, record, output, overwrite)
        shutil.rmtree(work)
    return Filled(made, record)


def _mark(cube: Cube, filled: Bits, order: Request, record: Mapping[str, Any]) -> Mark | None:
    """How the scene says that it is filled."""
    shares = filled.counts() / math.prod(cube.shape[1:])
    if not shares.any():
        return cube.mark
    where = Lazy(cube.shape, np.dtype(bool), filled.get)
    return of_fill(where, shares, order.method, record).after(cube.mark)


def preview(
    path: Path, order: Request, bounds: Limits, *, observed: Bools | None = None
) -> dict[str, Any]:
    """What `fill` would do; the scene is read once, nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        scene, left = laid_out(path, order, bounds, observed, Path(folder))
        return {
            "method": order.method,
            "entries_to_fill": scene.target.total(),
            "notes": scene.notes,
            "left": left,
            "tiles": tiling(scene),
        }


def _fill_tiles(
    scene: Scene, order: Request, belongs: str, at_once: int, run: Run, progress: Progress
) -> None:
    """Every tile that is not on disk yet, by whoever runs them; the first error ends it.

    at_once: tiles in a task, which a GPU fills side by side.
    """
    source = scene.cube.path or scene.path
    glance = ledger.glance(source)
    tags = {t.number: fingerprint(belongs, t.number) for t in scene.planned}
    undone = [t for t in scene.planned if not ledger.is_done(scene.work, t, tags[t.number])]
    total, done = len(scene.planned), len(scene.planned) - len(undone)
    tagged = [tile.Tagged(t, tags[t.number]) for t in undone]
    parts = [tagged[i : i + at_once] for i in range(0, len(tagged), at_once)]
    tasks = [tile.task(scene, order, part, glance) for part in parts]
    for outcome in run(tile.work, tasks):
        if outcome.error is not None:
            raise outcome.error
        done += len(parts[outcome.number])
        if progress is not None:
            progress(Step(done, total, None, how=outcome.worker))


def _out_of_reach(order: Request) -> str:
    if order.max_error is not None:
        return f"expected error above {order.max_error:g}, or out of reach"
    return f"out of reach of {order.method}"


def _expected(markers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the tiles expect, each by the number of its entries; none without error bars."""
    told = [m for m in markers if m.get("expected") and m["entries"]]
    if not told:
        return {}
    names = [n for n in told[0]["expected"] if all(n in m["expected"] for m in told)]
    return {name: _mean([m["expected"][name] for m in told], told) for name in names}


def _expected_by_kind(markers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """`_expected` of each kind of gaps that the tiles have."""
    found = {kind: _expected(_of_kind(markers, kind)) for kind in split.KINDS}
    return {kind: scores for kind, scores in found.items() if scores}


def _of_kind(markers: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
    """What the tiles say of one kind of gaps."""
    own = [m for m in markers if kind in m.get("by_kind", {})]
    return [{"expected": m["by_kind"][kind], "entries": m["entries_by_kind"][kind]} for m in own]


def _mean(figures: Sequence[float], markers: Sequence[Mapping[str, Any]]) -> float:
    return float(np.average(figures, weights=[m["entries"] for m in markers]))


def _promises(markers: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any] | None) -> list[str]:
    """What a user should know before trusting the fill."""
    told = [m for m in markers if m.get("expected") and m["entries"]]
    doubtful = _mean([m["doubtful"] for m in told], told) if told else 0.0
    by_kind = _expected_by_kind(markers)
    entries = {kind: sum(m["entries"] for m in _of_kind(markers, kind)) for kind in by_kind}
    unknown = dict.fromkeys(n for m in markers for n in m["notes"] if n.endswith(NO_BARS))
    lines = promises(_expected(markers), by_kind, entries, recipe or {})
    return [*unknown, *lines, *([warning(doubtful)] if doubtful else [])]


def _notes(
    decided: scene_decision.Decided,
    markers: Sequence[Mapping[str, Any]],
    changed: Mapping[str, int],
    scene: Scene,
) -> list[str]:
    """What the decision and all tiles say alike, and what became of the values."""
    tiled = tiling(scene)
    common = [
        n for n in (markers[0]["notes"] if markers else []) if all(n in m["notes"] for m in markers)
    ]
    told = [f"{tiled['filled']} of {tiled['of']} tiles had gaps; one recipe for all of them"]
    told += [*scene.notes, *decided.notes, *common, *_promises(markers, decided.recipe)]
    return [*dict.fromkeys(told), *(f"{n} filled entries {how}" for how, n in changed.items())]
