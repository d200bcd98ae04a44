"""The benchmark: run matrices, resumable cell by cell, and the tables and figures made of them.

FOLDER/NAME.csv         one row a cell, appended as it is done
FOLDER/NAME.md .tex     the table, the paper's figures beside ours
FOLDER/NAME.table.csv   the same for machines
FOLDER/NAME.parquet     the rows with typed columns, where asked for
"""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Any, NamedTuple

from hydiff import auto
from hydiff.bench import cells, promises, records, reliability, scenes, tables, uses
from hydiff.bench.cells import Cell
from hydiff.bench.suites import SUITES, SuiteChoice, left_out, row_name
from hydiff.errors import BadValue, CubeFormatError, OutputError, UnknownName
from hydiff.gaps.mask import columns_needed
from hydiff.io.staging import staged
from hydiff.methods import METHODS
from hydiff.metrics import LABELS

__all__ = [
    "COLUMNS",
    "SUITES",
    "Outlook",
    "SuiteChoice",
    "outlook",
    "plan_of",
    "run",
    "write_tables",
]

MOST_BESIDE = 8  # as `engine.side_by_side` takes; torch is imported when it is used
HOPELESS = 8  # cells that may fail before one works

QUICK_NOTE = "quick: tiny cubes and networks, a few steps; these numbers mean nothing"
COLUMNS = (
    *(f.name for f in fields(Cell)),
    *(f"{part}_{k}" for part in ("all", "missing", "composited", "raw") for k in LABELS),
    *uses.COLUMNS,
    *reliability.COLUMNS,
    "bands", "rows", "cols", "missing_share", "out_of_reach", "seconds", "spent", "beside",
    "peak_mb", "device", "settings_hash", "resolved", "notes", "versions",
)  # fmt: skip
TEXT = {
    "method", "scene", "mask", "sigma_y", "settings", "coverage", "why", "device",
    "settings_hash", "resolved", "notes", "versions",
}  # fmt: skip
WHOLE = {"seed", "entries", "bands", "rows", "cols", "out_of_reach", "beside"}
KINDS = {c: str if c in TEXT else int if c in WHOLE else float for c in COLUMNS}

Told = Callable[[int, int, Cell, Mapping[str, Any]], Any]
Outcome = tuple[Cell, dict[str, Any] | str]  # its row, or what went wrong


def plan_of(
    given: Mapping[str, Path],
    *,
    names: Sequence[str] = (),
    masks: Sequence[str] = (),
    noise: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: int | None = None,
    preset: str | None = None,
    tuned: bool = False,
    budget: str = "normal",
    offline_minutes: float = 2.0,
    quick: bool = False,
) -> SuiteChoice:
    """A plan from what a user asks for; scenes given as files, else all there are."""
    for method in methods:
        if method not in (*METHODS, cells.INPUT, auto.NAME):
            raise UnknownName("method", method, (*METHODS, cells.INPUT, auto.NAME))
    if budget not in auto.BUDGETS:
        raise UnknownName("budget", budget, auto.BUDGETS)
    try:
        levels = tuple(cells.level_of(text) for text in noise)
    except ValueError:
        told = " ".join(noise)
        raise BadValue(f"`sigma={told}`: expected numbers, or {cells.BAND}") from None
    if seeds is not None and seeds < 1:
        raise BadValue(f"seeds = {seeds}: expected 1 or more")
    for scene in set(names) - set(given):
        scenes.check(scene)
    for mask in masks:
        scenes.observed_of(mask, (2, 64, max(64, columns_needed(mask))))  # is its name right?
    if quick and (names or given):
        raise BadValue("`quick=True` has a scene of its own; leave `scene=` or `quick=` out")
    chosen = (scenes.QUICK,) if quick else tuple(names) or tuple(given) or tuple(scenes.available())
    return SuiteChoice(
        scenes=chosen,
        named=quick or bool(names or given),
        seeds=seeds or (1 if quick else None),
        masks=tuple(masks) or None,
        noise=levels or None,
        methods=tuple(methods) or None,
        columns={name: scenes.columns(name, given) for name in given},
        preset=preset,
        tuned=tuned,
        budget="fast" if quick else budget,
        offline_minutes=0.02 if quick else offline_minutes,
        quick=quick,
    )


def run(
    name: str,
    folder: Path,
    plan: SuiteChoice,
    *,
    given: Mapping[str, Path] | None = None,
    device: str = "auto",
    minutes: float = float("inf"),
    workers: int = 0,
    beside: int | None = None,
    parquet: bool = False,
    told: Told | None = None,
) -> list[Path]:
    """Run the cells of a suite that no table in FOLDER has yet, then write its tables.

    minutes: start no cell later than this, nor one that is known to take longer than is left.
    workers: processes of one thread for the classical methods, beside the learned ones; 0 = all of
    them here.
    beside: learned cells alike that are fitted at a time, by default 8 on a GPU and 1 on a CPU.
    told: called after every cell with how many are done, how many there are, the cell, its row.
    A cell that fails is told of at the end; all others are run.
    """
    if not minutes >= 0 or workers < 0:
        raise BadValue(f"minutes = {minutes}, workers = {workers}: expected 0 or more")
    if parquet:
        records.arrow()  # says at once when there is none
    path = folder / f"{name}.csv"
    wanted, todo = split(name, folder, plan)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}); choose another") from None
    _borrow(name, folder, wanted)
    end = time.monotonic() + 60 * minutes
    failed: list[str] = []
    any_row = False
    most = _most_beside(beside, device, todo)
    groups = grouped(todo, 1 if _suite(name).alone else most)
    fits = partial(_rows, device=device, given=given)
    finished = _finished(groups, fits, time_of(folder, device), end, workers)
    for i, (cell, row) in enumerate(finished, len(wanted) - len(todo) + 1):
        if isinstance(row, str):
            failed.append(f"{cell}: {row}")
            if len(failed) == HOPELESS and not any_row:
                raise BadValue(f"{_failures(failed)}; none worked, so the rest was not tried")
            continue
        any_row = True
        records.append(path, row, COLUMNS)
        if told is not None:
            told(i, len(wanted), cell, row)
    if failed and not records.read(path):
        raise BadValue(_failures(failed))
    made = write_tables(name, folder, quick=plan.quick)
    if parquet:
        made.append(path.with_suffix(".parquet"))
        records.write_parquet(made[-1], records.read(path), KINDS)
    if failed:
        raise BadValue(_failures(failed))
    return made


def _failures(failed: Sequence[str]) -> str:
    return f"{len(failed)} cells failed and have no row; the first: {failed[0]}"


def split(name: str, folder: Path, plan: SuiteChoice) -> tuple[list[Cell], list[Cell]]:
    """The cells of a suite, and those of them that FOLDER has no row of yet."""
    done = _at_hand(name, folder)
    every = dict.fromkeys(_suite(name).cells(plan))
    wanted = [cell for cell in every if plan.fits(cell.scene, cell.mask)]
    if every and not wanted:
        raise BadValue(f"{'; '.join(left_out(_suite(name), plan))}: nothing is left to run")
    if not wanted:
        raise BadValue(
            f"{name} has no run with these `scene=`, `mask=`, `sigma=`, `method=`; leave some out"
        )
    for method in plan.methods or ():
        if method not in {c.method for c in wanted}:
            there = ", ".join(dict.fromkeys(c.method for c in _suite(name).cells(_any(plan))))
            raise BadValue(f"{name} has no run of {method}; it has {there}")
    return wanted, [c for c in wanted if (c, cells.settings_hash(c)) not in done]


def _any(plan: SuiteChoice) -> SuiteChoice:
    return replace(plan, methods=None)


def _at_hand(name: str, folder: Path) -> dict[tuple[Cell, str], records.Row]:
    """Cell and hash of its settings → row, from FOLDER/NAME.csv and from the other tables' there: a
    cell is the same in all of them.  Only time, where that is the question, is taken anew, and so
    is a row that lacks figures."""
    own = folder / f"{name}.csv"
    others = [] if _suite(name).alone else [folder / f"{other}.csv" for other in SUITES]
    return {
        (tables.cell_of(row), row["settings_hash"]): row
        for path in (*others, own)
        for row in records.read(path)
        if path == own or row["missing_mpsnr"]
    }


def _borrow(name: str, folder: Path, wanted: Sequence[Cell]) -> None:
    """Put what other tables know of the wanted cells into FOLDER/NAME.csv."""
    path = folder / f"{name}.csv"
    own = {(tables.cell_of(row), row["settings_hash"]) for row in records.read(path)}
    lacking = {(c, cells.settings_hash(c)) for c in wanted} - own
    for key, row in _at_hand(name, folder).items():
        if key in lacking:
            records.append(path, row, COLUMNS)


def _most_beside(beside: int | None, device: str, todo: Sequence[Cell]) -> int:
    if beside is not None and not 1 <= beside <= MOST_BESIDE:
        raise BadValue(f"beside = {beside}: expected 1 to {MOST_BESIDE}")
    if beside is None and device != "cpu" and any(c.learned for c in todo):
        from hydiff.methods.estimate import torch_device

        return MOST_BESIDE if torch_device(device).type == "cuda" else 1
    return beside or 1


def grouped(todo: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Cells to run together: learned ones of one method, settings and scene, evenly, `most` at a
    time; any other by itself.  In the order of their first."""
    alike: dict[Any, list[Cell]] = {}
    for cell in todo:
        together = most > 1 and cell.learned and not cell.own("offline")
        key = (cell.method, cell.settings, cell.scene) if together else cell
        alike.setdefault(key, []).append(cell)
    groups = []
    for found in alike.values():
        parts = -(-len(found) // most)
        groups += [found[i::parts] for i in range(parts)]
    return groups


# Time


def time_of(folder: Path, device: str) -> Callable[[Cell], float]:
    """Seconds that a cell should take, from the finished ones of its method on this device: those
    of its scene if there are any.  NaN where there are none."""
    known: dict[tuple[Any, ...], list[float]] = {}
    for path in sorted(folder.glob("*.csv")):
        for row in records.read(path):
            if row.get("method") and row.get("settings_hash") and row.get("device"):
                cell = tables.cell_of(row)
                seconds = float(row.get("spent") or row["seconds"])
                for scene in (row["scene"], ""):
                    key = (cell.method, *_kind(cell), row["device"], scene)
                    known.setdefault(key, []).append(seconds)

    def expected(cell: Cell) -> float:
        place = cells.device_of(cell.method, device)
        for scene in (cell.scene, ""):
            key = (cell.method, *_kind(cell), place, scene)
            if key in known:
                return fmean(known[key])
        return float("nan")

    return expected


def _kind(cell: Cell) -> tuple[Any, ...]:
    """What of a cell's settings changes its time by much."""
    return tuple(json.dumps(cell.own(key)) for key in ("preset", "tuned", "budget", "offline"))


class Outlook(NamedTuple):
    """What is left of the cells of one row of a table."""

    name: str
    cells: int
    done: int
    seconds: float  # that the others should take; NaN = nothing is known


def outlook(name: str, folder: Path, plan: SuiteChoice, device: str = "auto") -> list[Outlook]:
    """What a run would do, without doing it."""
    wanted, todo = split(name, folder, plan)
    expected = time_of(folder, device)
    found = []
    for row in dict.fromkeys(row_name(c) for c in wanted):
        left = [c for c in todo if row_name(c) == row]
        n = sum(row_name(c) == row for c in wanted)
        found.append(Outlook(row, n, n - len(left), sum(expected(c) for c in left)))
    return found


# Running


def _end_with_the_parent() -> None:
    """A worker waits for tasks; of one who was killed none will come."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _finished(
    groups: Sequence[Sequence[Cell]],
    fits: Callable[[Sequence[Cell]], list[Outcome]],
    expected: Callable[[Cell], float],
    end: float,
    workers: int,
) -> Iterator[Outcome]:
    """Cells with what came of them as they are done; none starts after `end`."""

    def in_time(group: Sequence[Cell]) -> bool:
        needed = sum(expected(c) for c in group)
        return time.monotonic() + (0 if math.isnan(needed) else needed) < end

    if workers < 1:
        for group in groups:
            if in_time(group):
                yield from fits(group)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process: they share the cores
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the GPU's threads
    with ProcessPoolExecutor(workers, spawn, _end_with_the_parent) as pool:
        here = [g for g in groups if g[0].learned or g[0].method == auto.NAME]
        waiting = {pool.submit(fits, g) for g in groups if g not in here}
        try:
            for group in here:
                if in_time(group):
                    yield from fits(group)
                for future in [f for f in waiting if f.done()]:
                    waiting.remove(future)
                    yield from future.result()
            while waiting and time.monotonic() < end:
                left = None if end == float("inf") else max(end - time.monotonic(), 0)
                ready, waiting = wait(waiting, left, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield from future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # what has not begun is left for the next run
        for future in waiting:
            if not future.cancelled():
                yield from future.result()


def _rows(group: Sequence[Cell], *, device: str, given: Mapping[str, Path] | None) -> list[Outcome]:
    """What came of the cells of a group.  One that fails as a whole, for want of memory perhaps,
    is tried in two halves."""
    try:
        found = cells.run_beside(group, device=device, given=given)
        return [(cell, row) for cell, (row, _) in zip(group, found, strict=True)]
    except (UnknownName, CubeFormatError):  # of what was asked for: no cell will do better
        raise
    except Exception as error:
        told = " ".join(str(error).split()) or type(error).__name__
    if len(group) == 1:
        return [(group[0], told)]
    gc.collect()  # what the fits held of the GPU
    middle = len(group) // 2
    again = partial(_rows, device=device, given=given)
    return again(group[:middle]) + again(group[middle:])


def write_tables(name: str, folder: Path, *, quick: bool = False) -> list[Path]:
    """The tables of FOLDER/NAME.csv, all or none."""
    suite, source = _suite(name), folder / f"{name}.csv"
    # of a cell that was run again with other defaults, the later row
    rows = list({tables.cell_of(row): row for row in records.read(source)}.values())
    if not rows:
        raise BadValue(f"{source} has no rows: run `hydiff bench {name}` for longer first")
    table = tables.build(name, suite, rows, quick=quick)
    text = {
        folder / f"{name}.table.csv": tables.comma_separated(table),
        folder / f"{name}.tex": tables.latex(table),
        folder / f"{name}.md": tables.markdown(table),
    }
    if name == "best":
        text[folder / f"{name}.md"] += "\n## What was promised\n\n" + promises.markdown(rows)
    with staged(folder / f"{name}.md", overwrite=True) as temporary:
        for path, content in text.items():
            (temporary / path.name).write_text(content, "utf-8")
    return [source, *reversed(text)]


def _suite(name: str) -> Any:
    if name not in SUITES:
        raise UnknownName("table", name, [*SUITES, "figures", "speed"])
    return SUITES[name]
