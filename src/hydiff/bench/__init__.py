"""The benchmark: run matrices, resumable cell by cell, and the tables and figures made of them.

FOLDER/NAME.csv         one row a cell, appended as it is done
FOLDER/NAME.md .tex     the table, the paper's figures beside ours
FOLDER/NAME.table.csv   the same for machines
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from hydiff.bench import cells, records, scenes, tables, uses
from hydiff.bench.cells import Cell
from hydiff.bench.suites import SUITES, Plan
from hydiff.errors import BadValue, CubeFormatError, OutputError, UnknownName
from hydiff.io.staging import staged
from hydiff.methods import METHODS
from hydiff.metrics import LABELS

__all__ = ["COLUMNS", "SUITES", "Plan", "plan_of", "run", "write_tables"]

QUICK_NOTE = "quick: tiny cubes and networks, a few steps; these numbers mean nothing"
COLUMNS = (
    *(f.name for f in fields(Cell)),
    *(f"{part}_{k}" for part in ("all", "missing", "composited", "raw") for k in LABELS),
    *uses.COLUMNS,
    "bands", "rows", "cols", "missing_share", "out_of_reach", "seconds", "peak_mb", "device",
    "settings_hash", "resolved", "notes", "versions",
)  # fmt: skip

Told = Callable[[int, int, Cell, Mapping[str, Any]], Any]


def plan_of(
    given: Mapping[str, Path],
    *,
    names: Sequence[str] = (),
    masks: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: int | None = None,
    preset: str | None = None,
    tuned: bool = False,
    offline_minutes: float = 2.0,
    quick: bool = False,
) -> Plan:
    """A plan from what a user asks for; scenes given as files, else all there are."""
    for name, path in given.items():
        if not path.exists():
            raise CubeFormatError(f"--scene {name}={path}: no such file; give name=path of a cube")
    for method in methods:
        if method not in (*METHODS, cells.INPUT):
            raise UnknownName("method", method, (*METHODS, cells.INPUT))
    if seeds is not None and seeds < 1:
        raise BadValue(f"seeds = {seeds}: expected 1 or more")
    chosen = (scenes.QUICK,) if quick else tuple(names) or tuple(given) or tuple(scenes.available())
    return Plan(
        scenes=chosen,
        seeds=seeds or (1 if quick else 3),
        masks=tuple(masks) or None,
        methods=tuple(methods) or None,
        preset=preset,
        tuned=tuned,
        offline_minutes=0.02 if quick else offline_minutes,
        quick=quick,
    )


def run(
    name: str,
    folder: Path,
    plan: Plan,
    *,
    given: Mapping[str, Path] | None = None,
    device: str = "auto",
    minutes: float = float("inf"),
    workers: int = 0,
    told: Told | None = None,
) -> list[Path]:
    """Run the cells of a suite that FOLDER/NAME.csv does not have yet, then write its tables.

    minutes: start no cell later than this.  workers: processes for the classical methods, beside
    the learned ones, which run here one after the other; 0 = all of them here.  told: called after
    every cell with how many are done, how many there are, the cell, and its row.
    """
    suite = _suite(name)
    path = folder / f"{name}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}); choose another") from None
    done = {(tables.cell_of(row), row["settings_hash"]) for row in records.read(path)}
    wanted = list(dict.fromkeys(suite.cells(plan)))
    todo = [c for c in wanted if (c, cells.settings_hash(c)) not in done]
    end = time.monotonic() + 60 * minutes
    finished = _finished(todo, end, workers, device, given)
    for i, (cell, row) in enumerate(finished, len(wanted) - len(todo) + 1):
        records.append(path, row, COLUMNS)
        if told is not None:
            told(i, len(wanted), cell, row)
    return write_tables(name, folder, quick=plan.quick)


def _finished(
    todo: Sequence[Cell], end: float, workers: int, device: str, given: Mapping[str, Path] | None
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Cells with their rows as they are done; none starts after `end`."""
    run_row = partial(_row, device=device, given=given)
    if workers < 1:
        yield from ((cell, run_row(cell)) for cell in todo if time.monotonic() < end)
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the GPU's threads
    with ProcessPoolExecutor(workers, spawn) as pool:
        learned = [c for c in todo if c.method in METHODS and METHODS[c.method].backend == "torch"]
        waiting = {pool.submit(run_row, c): c for c in todo if c not in learned}
        try:
            for cell in learned:
                if time.monotonic() < end:
                    yield cell, run_row(cell)
                for future in [f for f in waiting if f.done()]:
                    yield waiting.pop(future), future.result()
            left = None if end == float("inf") else max(end - time.monotonic(), 0)
            for future in as_completed(waiting, timeout=left):
                yield waiting[future], future.result()
        except TimeoutError:
            pass  # the time is over: what has not begun is left for the next run
        finally:
            pool.shutdown(cancel_futures=True)


def _row(cell: Cell, *, device: str, given: Mapping[str, Path] | None) -> dict[str, Any]:
    return cells.run(cell, device=device, given=given)[0]


def write_tables(name: str, folder: Path, *, quick: bool = False) -> list[Path]:
    """The tables of FOLDER/NAME.csv, all or none."""
    suite, source = _suite(name), folder / f"{name}.csv"
    rows = records.read(source)
    if not rows:
        raise BadValue(f"{source} has no rows: run `hydiff bench {name}` for longer first")
    table = tables.build(name, suite, rows, quick=quick)
    text = {
        folder / f"{name}.table.csv": tables.comma_separated(table),
        folder / f"{name}.tex": tables.latex(table),
        folder / f"{name}.md": tables.markdown(table),
    }
    with staged(folder / f"{name}.md", overwrite=True) as temporary:
        for path, content in text.items():
            (temporary / path.name).write_text(content, "utf-8")
    return [source, *reversed(text)]


def _suite(name: str) -> Any:
    if name not in SUITES:
        raise UnknownName("table", name, [*SUITES, "figures"])
    return SUITES[name]
