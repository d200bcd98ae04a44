"""Fill a file into another file: execute a plan, in memory or by tiles."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import api, io
from hydiff.cube import Bools
from hydiff.io import provenance, sample_files
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale import scene
from hydiff.scale.forecast import Begin, ignore, work_of
from hydiff.scale.layout import Limits
from hydiff.scale.plan import FilePlan, Filled, Say, make_plan, quiet
from hydiff.uncertainty.samples import sample_cubes
from hydiff.workers import Run, in_turn


def fill_file(
    input: Path,
    output: Path,
    request: Request,
    limits: Limits,
    *,
    run: Run | None = None,
    say: Say = quiet,
    progress: Progress = None,
    **more: Any,
) -> Filled:
    """Fill a file, in memory or by tiles, and write it with its companion files.

    run: runs the tasks that fill tiles; if given, the file is filled by tiles whatever its size.
    say: receives lines about what was found and what will be done.
    more: other arguments of `make_plan`.
    """
    by_tiles = run is not None
    plan = make_plan(input, output, request, limits, by_tiles=by_tiles, say=say, **more)
    return execute(plan, run=run, say=say, progress=progress)


def execute(
    plan: FilePlan,
    *,
    run: Run | None = None,
    say: Say = quiet,
    progress: Progress = None,
    begin: Begin = ignore,
) -> Filled:
    """Execute a plan: fill the gaps and write the output with its companion files.

    run: runs the tasks that fill tiles; None = one after the other in this process.
    begin: receives the amount of work before it starts, if there is anything to fill.
    """
    if plan.finished is not None:
        return _completed(plan, dict(plan.finished), say)
    if plan.whole is not None:
        return _fill_whole(plan, plan.whole, say, progress, begin)
    if plan.in_place:  # read the file once more first: without gaps it must not be rewritten
        expected = scene.preview(plan)
        if not expected["entries_to_fill"]:
            return _untouched(plan, expected["left"])
    return _reported(scene.fill(plan, run or in_turn, say, progress, begin), plan)


def preview(plan: FilePlan, begin: Begin = ignore) -> dict[str, Any]:
    """Return a summary of what `execute` would do; nothing is written."""
    whole, request = plan.whole, plan.request
    if whole is None:
        return scene.preview(plan, begin)
    if plan.has_no_gaps:
        return {"entries": {"missing_before": 0}, "outputs": [], "notes": whole.notes}
    begin(work_of(whole))
    return {
        "method": request.method,
        "settings": request.settings_used,
        "left": whole.left,
        "notes": whole.notes,
        "entries_to_fill": int(whole.target.sum()),
        "output": str(plan.output),
    }


def _fill_whole(
    plan: FilePlan, whole: api.CubePlan, say: Say, progress: Progress, begin: Begin
) -> Filled:
    """Fill a cube in memory, and write it with its companion files; copy a cube without gaps."""
    request, output = plan.request, plan.output
    if plan.has_no_gaps:
        if request.report:
            say(f"{plan.input} has no gaps: without a fill there is no report to write")
        return _untouched(plan, {}) if plan.in_place else _copied(plan, whole)
    if plan.in_place and not whole.target.any() and not request.denoise:
        return _untouched(plan, whole.left)
    checkpoint = provenance.checkpoint_path(output)
    if checkpoint.exists() and not plan.resume:
        say(f"starting again; `resume=True` would go on from {checkpoint}")
    elif plan.resume and not checkpoint.exists():
        say(f"nothing to resume: there is no {checkpoint}; starting again")
    begin(work_of(whole))
    result = api.execute(whole, checkpoint, plan.resume, progress)
    if progress is not None:
        progress(Step(1, 1, None, phase="writing"))
    record = provenance.record(result, plan.command, plan.hashes, plan.fingerprint)
    samples = None
    if count := request.samples:
        record["samples"] = {"count": count, "seed": request.seed}
        cubes = sample_cubes(result, count, request.seed)
        samples = sample_files.writers(result.cube, output, cubes, count)
    options: dict[str, Any] = {"overwrite": plan.overwrite, "compact": request.compact}
    options |= {"before": plan.cube, "samples": samples}
    paths = provenance.write_result(result, output, record, plan.hashes, **options)
    _write_band_mask(plan, result.filled)
    return _reported(Filled(paths, record), plan)


def _write_band_mask(plan: FilePlan, filled: Bools) -> list[Path]:
    """Write the mask of filled entries (bands, rows, cols) as EMIT does, if it was requested."""
    if plan.band_mask is None:
        return []
    overwrite = plan.overwrite and plan.finished is None
    return io.write_band_mask(filled, plan.band_mask, overwrite=overwrite, source=plan.source)


def _completed(plan: FilePlan, record: dict[str, Any], say: Say) -> Filled:
    """Finish a fill whose output is complete: remove temporary files and write what is missing.

    An interruption after the output was written can leave the band mask or the report unwritten.
    """
    output, cube = plan.output, plan.cube
    say(f"{output} is there already, filled as it is asked for now: nothing to do")
    shutil.rmtree(provenance.tiles_path(output), ignore_errors=True)
    provenance.checkpoint_path(output).unlink(missing_ok=True)
    paths = [path for path in (output, *provenance.beside(output)) if path.exists()]
    if plan.band_mask is not None and not plan.band_mask.exists():
        filled = provenance.companions(output, cube.shape).get("filled", np.zeros(cube.shape))
        _write_band_mask(plan, filled.astype(bool))
    if provenance.report_path(output).exists() or "method" not in record:
        return Filled(paths, record)
    return _reported(Filled(paths, record), plan)


def _reported(filled: Filled, plan: FilePlan) -> Filled:
    """Write the report about a fill if it was requested, and return the fill with its path."""
    if not plan.request.report:
        return filled
    from hydiff.report import write

    source = None if plan.input == plan.output else plan.input
    overwrite = plan.overwrite and plan.finished is None
    page = write(plan.output, source=source, var=plan.request.var, overwrite=overwrite)
    return filled._replace(made=[*filled.made, page])


def _untouched(plan: FilePlan, left: Any) -> Filled:
    """Return the result of a fill in place that has nothing to fill, without writing anything.

    Writing would only erase the record of an earlier fill.
    """
    entries = {"entries": provenance.counts(plan.cube.shape, 0, left)}
    return Filled([], provenance.dated(plan.command, None, entries))


def _copied(plan: FilePlan, whole: api.CubePlan) -> Filled:
    """Copy a cube without gaps, and write a record that states this."""
    output, cube, overwrite = plan.output, plan.cube, plan.overwrite
    facts = {"request": plan.fingerprint, "entries": {"missing_before": 0}, "notes": whole.notes}
    record = provenance.dated(plan.command, provenance.input_of(plan.hashes), facts)
    options: dict[str, Any] = {"overwrite": overwrite, "compact": plan.request.compact}
    options |= {"hashes": plan.hashes, "before": cube}
    paths = provenance.write_together(cube, output, record, {}, **options)
    return Filled([*paths, *_write_band_mask(plan, ~whole.observed)], record)
