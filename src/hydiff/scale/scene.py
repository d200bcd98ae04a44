"""Fill scenes larger than memory by tiles; finished tiles are kept on disk.

The steps, in order, and their modules:

bits             read the file once: masks of the observed entries and of the entries to fill
layout           plan tiles over the gaps, as large as memory allows
scene_decision   decide once, on a sample of windows: scale, noise, spectral basis, method and blend
pretrain         train a network on the scene from which tiles start, if requested
tile             fill a tile; the work of a worker
ledger           record finished tiles and their inputs, so that `resume` gives the same bytes
assemble         copy the input with the blended tiles in its gaps, written in windows
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import auto, io
from hydiff.auto import split
from hydiff.auto.apply import NO_BARS
from hydiff.auto.intervals import promises, warning
from hydiff.cube import Floats, Lazy
from hydiff.flags import FLAGS, FROM_BANDS, FROM_SPACE
from hydiff.gaps import reach, stored
from hydiff.io import provenance, sample_files, uncertainty
from hydiff.learn.checkpoint import fingerprint
from hydiff.mark import Mark, of_fill
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale import (
    assemble,
    early,
    forecast,
    ledger,
    pretrain,
    scene_decision,
    scene_references,
    scene_samples,
    tile,
)
from hydiff.scale.bits import Bits
from hydiff.scale.forecast import Begin, ignore
from hydiff.scale.layout import (
    Limits,
    Scene,
    lay_out,
    limits,
    most_beside,
    tiling,
    wanted,
    written_at_once,
)
from hydiff.scale.ledger import Outline
from hydiff.scale.plan import FilePlan, Filled, Say, quiet
from hydiff.scale.scene_decision import Decided
from hydiff.scale.tiles import Tile
from hydiff.workers import Run
from hydiff.workers.local import give_back

__all__ = ["Bits", "Filled", "Limits", "fill", "limits", "preview", "wanted"]


def fill(
    plan: FilePlan,
    run: Run,
    say: Say = quiet,
    progress: Progress = None,
    begin: Begin = ignore,
) -> Filled:
    """Fill a file of any size within bounded memory, and write it with its companion files.

    run: runs the tile tasks: one after the other in this process, or in workers.
    say: receives lines for the user.
    begin: receives the amount of work once it is known.
    """
    began, output = time.perf_counter(), plan.output
    if provenance.tiles_path(output).exists() and not plan.resume:
        say(f"starting again; `resume=True` would go on with {provenance.tiles_path(output)}")
    work = provenance.tiles_path(output).resolve()
    with io.staging.explained(output, work), ledger.held(work):
        ledger.prepare(work, plan.resume)
    with ledger.held(work), ledger.tidied(work), io.staging.explained(output, work):
        times = provenance.times_of(plan.source)  # before a value is read
        tiled = fill_tiles(plan, work, run, progress, begin, say)
        filled = _written(plan, tiled, times, began)
        shutil.rmtree(work)
    return filled


class Tiled(NamedTuple):
    """A scene whose tiles are all filled and on disk."""

    scene: Scene
    decided: Decided
    hashes: provenance.Hashes  # of the input's files
    outlines: list[Outline]
    entries: assemble.FilledEntries
    why: Lazy  # (bands, rows, cols) bits of `flags.REASONS`
    uncertainty: Floats | None  # (bands,) of the input product

    @property
    def filled(self) -> Bits:
        return self.entries.filled

    @property
    def bars(self) -> bool:
        """Whether all tiles have error bars."""
        return self.entries.sigma is not None

    @property
    def sigma(self) -> Lazy | None:
        """(bands, rows, cols) error bars of the filled entries; None unless all tiles have them."""
        return self.layers.get("sigma")

    @property
    def layers(self) -> dict[str, Lazy]:
        """Layers with one value per entry, by name: `flags`, `why` and, if it exists, `sigma`."""
        return assemble.layers_of(self.scene, self.entries, self.why)


def fill_tiles(
    plan: FilePlan,
    work: Path,
    run: Run,
    progress: Progress = None,
    begin: Begin = ignore,
    say: Say = quiet,
) -> Tiled:
    """Fill the tiles of a scene that are not yet in the folder `work`, and assemble all tiles."""
    with early.started(plan, run) as hashes_of_input:
        scene = _laid_out(plan, work)
        if (fitting := scene.limits.processes) < (requested := plan.limits.processes):
            say(
                f"{plan.limits.memory / 1e9:.3g} GB hold {fitting} of the {requested} workers at a "
                "time"
            )
        begin(forecast.work_by_tiles(scene))  # may first measure the speed of this machine
        room = early.room(scene, run)
        hashes = hashes_of_input()
        observed = Lazy(scene.cube.shape, np.dtype(bool), scene.observed.get)
        product = uncertainty.of_input(plan.request.input_uncertainty, plan.cube, observed)
        masks = (scene.observed, scene.target)
        belongs = ledger.belongings(
            hashes[plan.source], masks, plan.request, scene.cuts, scene.cube
        )
        ledger.claim(work, belongs)
        scene_references.store(scene)
        if progress is not None:
            progress(Step(0, len(scene.planned) + 1, None, phase="trials"))
        decided = scene_decision.decision(scene, room, early.helpers(run))
    pretrain.train(scene, run)
    why = assemble.reasons_of(scene, plan.mask, plan.named)
    with assemble.Assembly(scene, plan.request.nodata, product, why) as assembly:
        tag = fingerprint(asdict(belongs), decided.recipe)
        with closing(_run_tiles(scene, tag, run, progress, room >= early.AMPLE)) as finished:
            for filled_tile in finished:
                assembly.add(filled_tile)
        if progress is not None:
            progress(Step(len(scene.planned), len(scene.planned) + 1, None, phase="writing"))
        outlines = [ledger.read_marker(scene.work, t).outline for t in scene.planned]
        entries = assembly.entries(all(outline.complete for outline in outlines))
    give_back()  # memory that threads have freed, but still keep, before files are written
    return Tiled(scene, decided, hashes, outlines, entries, why.layer, product)


def _laid_out(plan: FilePlan, work: Path) -> Scene:
    """Return the scene of a plan, with its masks in the folder `work`."""
    return lay_out(plan.input, plan.cube, plan.request, plan.limits, plan.mask, work)


def _written(plan: FilePlan, tiled: Tiled, times: provenance.Times, began: float) -> Filled:
    """Write the finished tiles into one file, with its companion files; return paths and record.

    times: of the input's files, from before it was read.
    """
    scene, decided, outlines, filled = tiled.scene, tiled.decided, tiled.outlines, tiled.filled
    cube, request, changed = scene.cube, scene.request, Counter(tiled.entries.changed)
    beyond = {name: changed.pop(name, 0) for name in reach.BEYOND}
    count, left = filled.total(), dict(scene.left)
    if (unfilled := scene.target.total() - count) > 0:
        left[_out_of_reach(request)] = unfilled
    references, notes = _references(tiled)
    content = {
        "request": plan.fingerprint,
        "method": request.method,
        "settings": request.settings_used,
        "seed": request.seed,
        "sigma_y": provenance.one_or_all(np.asarray(decided.sigma_y)),
        "entries": provenance.counts(cube.shape, count, left),
        "expected": _expected(outlines) if decided.recipe is not None else None,
        **provenance.of_each_kind(_expected_by_kind(outlines)),
        "recipe": decided.recipe,
        **_described(tiled),
        "beyond_observed": beyond | {"clip": request.clip},
        "notes": [
            *_notes(decided, outlines, changed, tiled.entries.by_flag, scene),
            *stored.undeclared_note(cube, request.nodata, left),
            *reach.notes(beyond, request.clip),
            *notes,
            *uncertainty.notes(tiled.uncertainty, tiled.bars),
        ],
        **({"references": references} if references else {}),
        "tiles": tiling(scene),
        "seconds": round(time.perf_counter() - began, 3),
    }
    record = provenance.dated(plan.command, provenance.input_of(tiled.hashes), content)
    written = replace(
        cube,
        values=assemble.values(scene, tiled.entries),
        valid=cube.validated(Lazy(cube.shape, np.dtype(bool), filled.get)),
        mark=_mark(tiled, record),
    )
    samples = None
    if sample_count := request.samples:
        record["samples"] = {"count": sample_count, "seed": request.seed}
        cubes = scene_samples.cubes(tiled, written, sample_count, request.seed)
        samples = sample_files.writers(cube, plan.output, cubes, sample_count)
    options: dict[str, Any] = {"overwrite": plan.overwrite, "compact": request.compact}
    options |= {"hashes": tiled.hashes, "times": times}
    options |= {"before": cube, "samples": samples, "most": written_at_once(request, scene.limits)}
    paths = provenance.write_together(written, plan.output, record, tiled.layers, **options)
    return Filled(paths, record)


def _references(tiled: Tiled) -> tuple[list[dict[str, Any]], list[str]]:
    """Return facts about the references and their gain, for the record, and notes for the user.

    Entries in the overlap of tiles are counted once for each tile.
    """
    references, notes = scene_references.described(tiled.scene.work)
    if not references:
        return [], notes
    served = sum(outline.with_reference for outline in tiled.outlines)
    filled = sum(outline.entries for outline in tiled.outlines)
    recipe = tiled.decided.recipe
    facts = auto.reference_facts(references, recipe, filled if recipe is None else served, filled)
    return facts, [*notes, *(str(entry["words"]) for entry in facts)]


def _described(tiled: Tiled) -> dict[str, Any]:
    """Return counts by flag and by reason, and the error budget of σ, for the record."""
    tried = tiled.decided.recipe is not None
    by_flag, sigma_y = dict(tiled.entries.by_flag), np.asarray(tiled.decided.sigma_y)
    budget = uncertainty.budget(sigma_y, by_flag, tried, tiled.uncertainty)
    bars = budget if tiled.bars else None
    return {"flags": by_flag, "reasons": dict(tiled.entries.by_reason), "budget": bars}


def _mark(tiled: Tiled, record: Mapping[str, Any]) -> Mark | None:
    """Return the mark of the filled scene; the cube's earlier mark if nothing was filled."""
    cube, filled, request = tiled.scene.cube, tiled.filled, tiled.scene.request
    shares = filled.counts() / math.prod(cube.shape[1:])
    if not shares.any():
        return cube.mark
    where = Lazy(cube.shape, np.dtype(bool), filled.get)
    mark = of_fill(where, shares, str(request.method), record, layers=tiled.layers)
    return mark.after(cube.mark)


def preview(plan: FilePlan, begin: Begin = ignore) -> dict[str, Any]:
    """Return a summary of what `fill` would do; the scene is read once, no output is written."""
    with tempfile.TemporaryDirectory() as name, io.staging.explained(Path(name), Path(name)):
        scene = _laid_out(plan, Path(name))
        begin(forecast.work_by_tiles(scene))
        return {
            "method": plan.request.method,
            "entries_to_fill": scene.target.total(),
            "notes": scene.notes,
            "left": scene.left,
            "tiles": tiling(scene),
        }


def _run_tiles(
    scene: Scene, belongs: str, run: Run, progress: Progress, at_once: bool
) -> Generator[Tile]:
    """Fill the tiles that are not on disk yet, and yield all tiles; raise the first error.

    belongs: fingerprint of the scene's inputs and decision.  at_once: yield each tile as soon as it
    is on disk; otherwise all of them at the end.
    """
    per_task = most_beside(scene)  # tiles per task, which a GPU fills side by side
    glance = ledger.glance(scene.cube.path or scene.path)
    tags = {t.number: fingerprint(belongs, t.number) for t in scene.planned}
    undone = [t for t in scene.planned if not ledger.is_done(scene.work, t, tags[t.number])]
    total, done = len(scene.planned), len(scene.planned) - len(undone)
    tagged = [tile.Tagged(t, tags[t.number]) for t in undone]
    parts = [tagged[i : i + per_task] for i in range(0, len(tagged), per_task)]
    tasks = [tile.task(scene, part, glance) for part in parts]
    if progress is not None:
        progress(Step(done, total + 1, None, phase="tiles"))
    if at_once:
        yield from (t for t in scene.planned if t not in undone)
    for outcome in run(tile.work, tasks, scene.limits.processes):
        if outcome.error is not None:
            raise outcome.error
        done += len(parts[outcome.number])
        if progress is not None:
            progress(Step(done, total + 1, None, how=outcome.worker, phase="tiles"))
        if at_once:
            yield from (finished for finished, _ in parts[outcome.number])
    if not at_once:
        yield from scene.planned


def _out_of_reach(request: Request) -> str:
    """Return the reason for entries of the target that no tile filled."""
    if request.max_error is not None:
        return f"expected error above {request.max_error:g}, or out of reach"
    return f"out of reach of {request.method}"


Scores = tuple[Mapping[str, float], int]  # scores of one tile, and its number of scored entries


def _mean(scores: Sequence[Scores]) -> dict[str, float]:
    """Return the mean of the tiles' expected scores, weighted by their numbers of entries.

    Tiles without expected scores are left out; {} if no tile has any.
    """
    scores = [(expected, entries) for expected, entries in scores if expected and entries]
    if not scores:
        return {}
    weights = [entries for _, entries in scores]
    names = [n for n in scores[0][0] if all(n in expected for expected, _ in scores)]
    return {n: float(np.average([e[n] for e, _ in scores], weights=weights)) for n in names}


def _expected(outlines: Sequence[Outline]) -> dict[str, float]:
    """Return the mean expected scores of all tiles."""
    return _mean([(o.expected, o.entries) for o in outlines])


def _of_kind(outlines: Sequence[Outline], kind: str) -> list[Scores]:
    """Return the expected scores of one kind of gaps, for the tiles that have it."""
    return [(o.by_kind[kind], o.entries_by_kind[kind]) for o in outlines if kind in o.by_kind]


def _expected_by_kind(outlines: Sequence[Outline]) -> dict[str, dict[str, float]]:
    """Return the mean expected scores of each kind of gaps that the tiles have."""
    by_kind = {kind: _mean(_of_kind(outlines, kind)) for kind in split.KINDS}
    return {kind: scores for kind, scores in by_kind.items() if scores}


def _promises(
    outlines: Sequence[Outline], recipe: Mapping[str, Any] | None, by_flag: Mapping[str, int]
) -> list[str]:
    """Return notes about the expected accuracy of the fill; by_flag: entries with each flag.

    The numbers of entries are those of the scene: tiles overlap.
    """
    shares = [({"doubtful": o.doubtful}, o.entries) for o in outlines if o.expected]
    doubtful = _mean(shares).get("doubtful", 0.0)
    by_kind = _expected_by_kind(outlines)
    flag = {split.NONE: FLAGS[FROM_SPACE], split.SOME: FLAGS[FROM_BANDS]}
    entries = {kind: by_flag.get(flag[kind], 0) for kind in by_kind}
    without_bars = dict.fromkeys(n for o in outlines for n in o.notes if n.endswith(NO_BARS))
    lines = promises(_expected(outlines), by_kind, entries, recipe or {})
    return [*without_bars, *lines, *([warning(doubtful)] if doubtful else [])]


def _notes(
    decided: Decided,
    outlines: Sequence[Outline],
    changed: Mapping[str, int],
    by_flag: Mapping[str, int],
    scene: Scene,
) -> list[str]:
    """Return the notes for the record: the decision, the expected accuracy, those of the scene and
    those that all tiles share, and values that the dtype changed."""
    tile_counts = tiling(scene)
    first = outlines[0].notes if outlines else ()
    common = [note for note in first if all(note in o.notes for o in outlines)]
    notes = [*auto.notes_of(decided.recipe), *_promises(outlines, decided.recipe, by_flag)]
    notes += [
        f"{tile_counts['filled']} of {tile_counts['of']} tiles had gaps; one recipe for all of them"
    ]
    notes += [*scene.notes, *decided.notes, *(n for n in common if not auto.is_note(n))]
    return [*dict.fromkeys(notes), *(f"{n} filled entries {how}" for how, n in changed.items())]
