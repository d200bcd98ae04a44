"""Run the cells of a suite that have no row yet, and write its tables."""

from __future__ import annotations

import gc
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed, wait
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from hydiff import auto
from hydiff.bench import cell_rows, cells, machine, promises, records, scenes, tables
from hydiff.bench.cell_rows import COLUMNS, KINDS
from hydiff.bench.cells import Cell
from hydiff.bench.choice import SuiteChoice
from hydiff.bench.records import Row, Rows, Tables
from hydiff.bench.suites import SUITES, Suite, left_out, row_name
from hydiff.errors import BadValue, CubeFormatError, OutputError, UnknownName
from hydiff.io.staging import staged
from hydiff.workers import local

MOST_BESIDE = 8  # the limit of `engine.side_by_side`, repeated here so as not to import torch
HOPELESS = 8  # failed cells after which a run stops if none has worked

Report = Callable[[int, int, Cell, Mapping[str, Any]], Any]
Outcome = tuple[Cell, dict[str, Any] | str]  # a cell, and its row or an error message


def run(
    name: str,
    folder: Path,
    choice: SuiteChoice,
    *,
    files: scenes.Files | None = None,
    device: str = "auto",
    minutes: float = float("inf"),
    workers: int = 0,
    beside: int | None = None,
    parquet: bool = False,
    report: Report = lambda *_: None,
) -> list[Path]:
    """Run the cells of a suite that no table in FOLDER has yet, then write its tables.

    minutes: no cell is started after this time, or if it is expected to take longer than is left.
    workers: processes of one thread for the classical methods, while the learned ones run in this
        process; 0 = all run in this process.
    beside: similar learned cells to fit side by side, by default 8 on a GPU and 1 on a CPU.
    report: called after every cell with the numbers of finished and all cells, the cell, its row.
    Cells that fail do not stop the others, and are reported by an error at the end.
    """
    if not minutes >= 0 or workers < 0:
        raise BadValue(f"minutes = {minutes}, workers = {workers}: expected 0 or more")
    if parquet:
        records.arrow()  # fails early if pyarrow is missing
    rows = records.read_folder(folder)
    wanted, todo = split(name, rows, choice)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}); choose another") from None
    path = folder / f"{name}.csv"
    for row in borrowed(name, rows, wanted):
        records.append(path, row, COLUMNS)
    groups = grouped(todo, 1 if suite_of(name).alone else _most_beside(beside, device, todo))
    work = Work(device, files, time.monotonic() + 60 * minutes)
    failures: list[str] = []
    success = False
    outcomes = _outcomes(groups, work, time_of(rows, device), workers)
    for done, (cell, outcome) in enumerate(outcomes, len(wanted) - len(todo) + 1):
        if isinstance(outcome, str):
            failures.append(f"{cell}: {outcome}")
            if len(failures) == HOPELESS and not success:
                raise BadValue(f"{_summary(failures)}; none worked, so the rest was not tried")
            continue
        success = True
        records.append(path, outcome, COLUMNS)
        report(done, len(wanted), cell, outcome)
    return _finish(name, folder, failures, quick=choice.quick, parquet=parquet)


def _finish(
    name: str, folder: Path, failures: Sequence[str], *, quick: bool, parquet: bool
) -> list[Path]:
    """Write the tables that the rows allow; then, if cells failed, raise an error."""
    path = folder / f"{name}.csv"
    rows, paths = records.read(path), []
    if rows or not failures:
        paths = _write_tables(name, folder, rows, quick=quick)
        if parquet:
            paths.append(path.with_suffix(".parquet"))
            records.write_parquet(paths[-1], rows, KINDS)
    if failures:
        raise BadValue(_summary(failures))
    return paths


def _summary(failures: Sequence[str]) -> str:
    """Return the number of failures and the first of them, as a message."""
    return f"{len(failures)} cells failed and have no row; the first: {failures[0]}"


def suite_of(name: str) -> Suite:
    """Return the suite of a table, or raise UnknownName."""
    if name not in SUITES:
        raise UnknownName("table", name, [*SUITES, "figures", "speed"])
    return SUITES[name]


# Rows that exist, and cells that lack one


def split(name: str, rows: Tables, choice: SuiteChoice) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of a suite, and those without a row in any table.  rows: by table."""
    suite = suite_of(name)
    suite_cells = dict.fromkeys(suite.cells(choice))
    wanted = [cell for cell in suite_cells if choice.fits(cell.scene, cell.mask)]
    if suite_cells and not wanted:
        raise BadValue(
            f"nothing is left to run: {'. '.join(left_out(suite, choice))}. Give a wider scene, or "
            "a mask that fits any scene, such as `mask='stripes'`"
        )
    offered = dict.fromkeys(c.method for c in suite.cells(replace(choice, methods=None)))
    for method in choice.methods or () if offered else ():
        if method not in {c.method for c in wanted}:
            raise BadValue(f"{name} has no run of {method}; it has {', '.join(offered)}")
    if not wanted:
        raise BadValue(
            f"{name} has no run with these `scene=`, `mask=`, `sigma=`, `method=`; leave some out"
        )
    known = _known(name, rows)
    return wanted, [c for c in wanted if (c, cell_rows.settings_hash(c)) not in known]


def _known(name: str, rows: Tables) -> dict[tuple[Cell, str], Row]:
    """Map cells, with the hash of their settings, to their rows in this and in other tables.

    A cell has the same row in all tables, with two exceptions: a table about time takes no rows of
    others, and a row of another table counts only if it has scores.
    """
    others = [] if suite_of(name).alone else [other for other in SUITES if other != name]
    return {
        (tables.cell_of(row), row["settings_hash"]): row
        for table in (*others, name)
        for row in rows.get(table, [])
        if table == name or row["missing_mpsnr"]
    }


def borrowed(name: str, rows: Tables, wanted: Sequence[Cell]) -> Iterator[Row]:
    """Yield the rows of wanted cells that only other tables have."""
    existing = _known(name, {name: rows.get(name, [])})
    lacking = {(c, cell_rows.settings_hash(c)) for c in wanted} - existing.keys()
    return (row for key, row in _known(name, rows).items() if key in lacking)


class Lacking(NamedTuple):
    """The cells of one row of a table at one noise level, and how many of them are missing."""

    name: str
    sigma_y: cells.Level
    cells: int
    left: int
    scenes: Mapping[str, int]  # missing cells by scene


def lacking(name: str, folder: Path, choice: SuiteChoice) -> list[Lacking]:
    """Return the cells that a table lacks; rows made with other default settings do not count."""
    suite_cells = dict.fromkeys(suite_of(name).cells(choice))
    wanted = [c for c in suite_cells if choice.fits(c.scene, c.mask)]
    rows = _known(name, records.read_folder(folder))
    totals = Counter((row_name(c), c.sigma_y) for c in wanted)
    missing: dict[tuple[str, cells.Level], Counter[str]] = {}
    for cell in wanted:
        if (cell, cell_rows.settings_hash(cell)) not in rows:
            missing.setdefault((row_name(cell), cell.sigma_y), Counter())[cell.scene] += 1
    return [Lacking(*key, totals[key], counts.total(), counts) for key, counts in missing.items()]


# Time


def time_of(rows: Tables, device: str) -> Callable[[Cell], float]:
    """Return a function that gives the expected seconds of a cell.

    They are the mean over finished cells of its kind on this device, those of its scene if there
    are any; NaN if there are none.
    """
    known: dict[tuple[Any, ...], list[float]] = {}
    for row in (row for table in rows.values() for row in table):
        if row.get("method") and row.get("settings_hash") and row.get("device"):
            cell = tables.cell_of(row)
            seconds = float(row.get("spent") or row["seconds"])
            for scene in (cell.scene, ""):
                known.setdefault((*_kind(cell), row["device"], scene), []).append(seconds)

    def expected(cell: Cell) -> float:
        """Return the expected seconds of a cell, NaN if unknown."""
        keys = [
            (*_kind(cell), machine.device_of(cell.method, device), scene)
            for scene in (cell.scene, "")
        ]
        return next((fmean(known[key]) for key in keys if key in known), math.nan)

    return expected


def _kind(cell: Cell) -> tuple[str, ...]:
    """Return the properties of a cell, besides its scene, that strongly affect its time."""
    settings = (json.dumps(cell.own(key)) for key in ("preset", "tuned", "budget", "offline"))
    return cell.method, *settings


class Outlook(NamedTuple):
    """The state of the cells of one row of a table."""

    name: str
    cells: int
    done: int
    seconds: float  # expected for the unfinished cells; NaN = unknown


def outlook(name: str, folder: Path, choice: SuiteChoice, device: str = "auto") -> list[Outlook]:
    """Return the work that a run would do, without running it."""
    rows = records.read_folder(folder)
    wanted, todo = split(name, rows, choice)
    expected = time_of(rows, device)
    lines = []
    for line in dict.fromkeys(row_name(c) for c in wanted):
        left = [c for c in todo if row_name(c) == line]
        n = sum(row_name(c) == line for c in wanted)
        lines.append(Outlook(line, n, n - len(left), sum(expected(c) for c in left)))
    return lines


# Running


def _most_beside(beside: int | None, device: str, todo: Sequence[Cell]) -> int:
    """Return the number of learned cells to fit side by side; None means 8 on a GPU, else 1."""
    if beside is not None and not 1 <= beside <= MOST_BESIDE:
        raise BadValue(f"beside = {beside}: expected 1 to {MOST_BESIDE}")
    if beside is None and device != "cpu" and any(c.learned for c in todo):
        from hydiff.methods.devices import torch_device

        return MOST_BESIDE if torch_device(device).type == "cuda" else 1
    return beside or 1


def grouped(todo: Sequence[Cell], most: int) -> list[list[Cell]]:
    """Group cells to run together, in the order of the first cell of each group.

    Learned cells of one method, settings and scene form even groups of at most `most`; any other
    cell is alone.
    """
    alike: dict[Any, list[Cell]] = {}
    for cell in todo:
        together = most > 1 and cell.learned and not cell.own("offline")
        key = (cell.method, cell.settings, cell.scene) if together else cell
        alike.setdefault(key, []).append(cell)
    groups = []
    for members in alike.values():
        parts = -(-len(members) // most)
        groups += [members[i::parts] for i in range(parts)]
    return groups


class Work(NamedTuple):
    """Options shared by all groups of a run."""

    device: str
    files: scenes.Files | None
    end: float  # deadline, on the clock `time.monotonic` that all processes of a machine share


def _outcomes(
    groups: Sequence[Sequence[Cell]], work: Work, expected: Callable[[Cell], float], workers: int
) -> Iterator[Outcome]:
    """Yield cells with their rows as they finish; classical methods run in other processes."""
    in_process: list[tuple[Sequence[Cell], float]] = []
    in_workers: list[tuple[Sequence[Cell], float]] = []
    for group in groups:
        seconds = sum(expected(c) for c in group)
        classical = not group[0].needs_torch and group[0].method != auto.NAME
        queue = in_workers if workers and classical and local.possible() else in_process
        queue.append((group, 0.0 if math.isnan(seconds) else seconds))
    with local.Processes(workers if in_workers else 0, [__name__]) as pool:
        pool.share(work)
        waiting = {pool.submit(_in_time, *task) for task in in_workers}
        for task in in_process:
            yield from _in_time(work, *task)
            finished, waiting = wait(waiting, 0)
            for future in finished:
                yield from future.result()
        for future in as_completed(waiting):
            yield from future.result()


def _in_time(work: Work, group: Sequence[Cell], seconds: float) -> list[Outcome]:
    """Run a group if it is expected to finish before the deadline; else return nothing."""
    return _rows(work, group) if time.monotonic() + seconds < work.end else []


def _rows(work: Work, group: Sequence[Cell]) -> list[Outcome]:
    """Run a group of cells, and return their rows or error messages.

    A group that fails, perhaps for lack of memory, is run again in two halves.
    """
    try:
        results = cell_rows.run(group, device=work.device, files=work.files)
        return [(cell, row) for cell, (row, _) in zip(group, results, strict=True)]
    except (UnknownName, CubeFormatError):  # wrong input, with which every cell fails
        raise
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
    if len(group) == 1:
        return [(group[0], message)]
    gc.collect()  # release the GPU memory of the fits
    middle = len(group) // 2
    return _rows(work, group[:middle]) + _rows(work, group[middle:])


# Tables


def write_tables(name: str, folder: Path) -> list[Path]:
    """Write the tables of FOLDER/NAME.csv, all or none."""
    suite_of(name)
    return _write_tables(name, folder, records.read(folder / f"{name}.csv"), quick=False)


def _write_tables(name: str, folder: Path, rows: Rows, *, quick: bool) -> list[Path]:
    """Write the tables of some rows; return their paths after that of the rows."""
    source = folder / f"{name}.csv"
    # keep the last row of each cell, which may have been run again with other defaults
    rows = list({tables.cell_of(row): row for row in rows}.values())
    if not rows:
        raise BadValue(f"{source} has no rows: run `hydiff bench {name}` for longer first")
    table = tables.build(name, SUITES[name], rows, quick=quick)
    text = {
        folder / f"{name}.md": tables.markdown(table),
        folder / f"{name}.tex": tables.latex(table),
        folder / f"{name}.table.csv": tables.comma_separated(table),
    }
    if name == "best" and (kept := promises.markdown(rows)):
        text[folder / f"{name}.md"] += f"\n## What was promised\n\n{kept}"
    with staged(folder / f"{name}.md", overwrite=True) as temporary:
        for path, content in text.items():
            (temporary / path.name).write_text(content, "utf-8")
    return [source, *text]
