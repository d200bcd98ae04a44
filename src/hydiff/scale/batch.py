"""Many files, one request: a folder of fills with a table of what became of each.

OUT/NAME ...           the fills and their companions
OUT/summary.parquet    one row per input: counts, scores to expect, seconds, errors
OUT/summary.md         the same, to read
OUT/archive.json       what was asked for, so that `resume` does the same
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hydiff import io
from hydiff.cube import Cube, listed
from hydiff.errors import BadValue, HydiffError, OutputError, shell
from hydiff.gaps.rule import NoSuchNodata
from hydiff.io import provenance
from hydiff.io.fill_layers import is_layer
from hydiff.io.parsing import first_line
from hydiff.io.regular import exists, is_there
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale.execute import execute
from hydiff.scale.layout import Limits
from hydiff.scale.plan import Filled, Say, make_plan, quiet
from hydiff.workers import INSTALL, Run, in_turn

PARQUET, MARKDOWN, ASKED = "summary.parquet", "summary.md", "archive.json"
DONE, ABSENT = ("filled", "no gaps"), "nodata absent"  # of rows; the latter while others run


Crew = AbstractContextManager[Run | None]  # as `workers.crew`; None: this process


class Row(NamedTuple):
    """What became of one input."""

    input: str
    output: str
    status: str  # filled, no gaps, failed
    missing: int | None = None  # entries before
    filled: int | None = None
    left: int | None = None
    nrmse: float | None = None  # expected of the filled entries
    mpsnr: float | None = None  # dB
    sam: float | None = None  # degrees
    seconds: float | None = None
    error: str | None = None
    note: str | None = None


class Granule(NamedTuple):
    """One input, as it is handed to a worker."""

    input: Path
    folder: Path
    request: Request
    limits: Limits
    resume: bool
    overwrite: bool
    command: tuple[str, ...]
    stale: Mapping[str, str]  # records of fills that were asked for with another request, by name
    lenient: bool = False  # leave nodata values out that do not occur in it


def inputs_of(named: Sequence[str]) -> list[Path]:
    """The files that names and patterns (`granules/*.nc`) stand for, sorted, each once.

    The flags and error bars beside a fill are no inputs, unless they are named.
    """
    paths: list[Path] = []
    for name in named:
        path = Path(name)
        if exists(path) or not is_pattern(name):
            paths.append(path)
            continue
        matching = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        matching = [file for file in matching if not is_layer(file)]
        if not matching:
            raise BadValue(f"no file matches {name}; check the pattern")
        paths += matching
    return list(dict.fromkeys(paths))


def is_pattern(name: str) -> bool:
    """Whether a name stands for others; that of a file, such as scene[1].tif, does not."""
    return any(mark in name for mark in "*?[") and not exists(Path(name))


def fill_all(
    inputs: Sequence[Path],
    folder: Path,
    request: Request,
    limits: Limits,
    *,
    crew: Crew = nullcontext(),
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Progress = None,
    say: Say = quiet,
) -> list[Row]:
    """Fill every input into the folder, past those that cannot be; and write the tables.

    crew: who fills them, each as a whole; started when the request is known to make sense.
    Those that are done are left, unless `overwrite` is asked for; with `resume` it goes on inside
    those that are not.  A nodata value that some of the inputs have may be absent from others.
    """
    check(inputs, folder, request)
    with crew as run:
        with io.staging.explained(folder / PARQUET, folder):
            folder.mkdir(exist_ok=True)
            stale = _claim(folder, request, resume, overwrite)
        shared = (folder.resolve(), request, limits, resume, overwrite, tuple(command), stale)
        tasks = [Granule(path.resolve(), *shared) for path in inputs]
        rows: dict[int, Row] = {}
        try:
            _fill_each(rows, inputs, tasks, run or in_turn, progress, say)
        except KeyboardInterrupt:
            done = sum(row.status in DONE for row in rows.values())
            say(
                f"{done} of {len(inputs)} are done and stay in {folder}: the same command goes on "
                "with the others"
            )
            raise
    table = [rows[i] for i in range(len(inputs))]
    table = [row._replace(status="failed") if row.status == ABSENT else row for row in table]
    # where nothing was done, the table of an earlier run still describes what is there
    if any(row.status != "failed" for row in table) or not (folder / PARQUET).exists():
        _write(table, folder)
    return table


def _fill_each(
    rows: dict[int, Row],
    inputs: Sequence[Path],
    tasks: Sequence[Granule],
    run: Run,
    progress: Progress,
    say: Say,
) -> None:
    """Add a row for each task; those without the nodata value again, if others have it."""

    def fill_some(numbers: Sequence[int], lenient: bool) -> None:
        some = [tasks[i]._replace(lenient=lenient) for i in numbers]
        for outcome in run(fill_granule, some, None):
            number = numbers[outcome.number]
            path, row = inputs[number], outcome.value
            if outcome.error is not None:
                row = Row(str(path), "", "failed", error=first_line(outcome.error))
            rows[number] = row._replace(input=str(path))
            if row.status == "failed":
                say(f"{path}: {row.error}")
            if progress is not None:
                progress(Step(len(rows), len(inputs), None, how=outcome.worker, phase="files"))

    fill_some(range(len(inputs)), lenient=False)
    if any(row.status in DONE for row in rows.values()):
        fill_some([i for i, row in rows.items() if row.status == ABSENT], lenient=True)


def fill_granule(granule: Granule) -> Row:
    """On a worker: fill one input, or say why not."""
    path, folder = granule.input, granule.folder
    try:
        if not folder.is_dir():
            raise BadValue(f"a worker does not see {folder}: all need the same file system")
        cube = io.read(path, var=granule.request.var)
        source = cube.path or path
        output = folder / source.name
        again = granule.overwrite and not granule.resume
        record = None if again else _done_before(source, output, granule.stale)
        if record is None:
            record = _record(granule, cube, output)
    except NoSuchNodata as error:
        return Row(str(path), "", ABSENT, error=shell(str(error)))
    except HydiffError as error:
        return Row(str(path), "", "failed", error=shell(str(error)))
    except Exception as error:  # a bug of ours, or of a library, must not end the other fills
        return Row(str(path), "", "failed", error=f"{type(error).__name__}: {first_line(error)}")
    return _row(path, output, record)


def _record(
    granule: Granule, cube: Cube, output: Path, absent: Sequence[float] = ()
) -> dict[str, Any]:
    """The record of a fill, without the nodata values that are known to be absent."""
    request = granule.request
    if absent:
        others = tuple(v for v in listed(request.nodata) if v not in absent)
        nodata_in = request.nodata_in if others else None
        request = replace(request, nodata=others or None, nodata_in=nodata_in)
    try:
        record = _fill(granule, request, cube, output).record
    except NoSuchNodata as error:
        if not granule.lenient:
            raise
        return _record(granule, cube, output, error.absent)
    names = ", ".join(f"{v:g}" for v in absent)
    note = [f"`nodata={names}` occurs nowhere in it, and was left out"] if absent else []
    return record | {"notes": [*record.get("notes", ()), *note]}


def _fill(granule: Granule, request: Request, cube: Cube, output: Path) -> Filled:
    plan = make_plan(
        granule.input,
        output,
        request,
        granule.limits,
        cube=cube,
        resume=granule.resume,
        overwrite=granule.overwrite or granule.resume,
        command=granule.command,
    )
    return execute(plan)


def _row(path: Path, output: Path, record: dict[str, Any]) -> Row:
    entries = record["entries"]
    doubts = [note for note in record.get("notes", ()) if "`nodata" in note]
    note = shell("; ".join(doubts)) or None
    if not entries["missing_before"]:
        seconds = record.get("seconds")
        return Row(str(path), output.name, "no gaps", 0, 0, 0, seconds=seconds, note=note)
    before, filled, after = (entries[k] for k in ("missing_before", "filled", "missing_after"))
    expected = record.get("expected") or {}
    scores = {name: expected.get(name) for name in ("nrmse", "mpsnr", "sam")}
    row = Row(str(path), output.name, "filled", before, filled, after, **scores, note=note)
    return row._replace(seconds=record.get("seconds"))


def _done_before(source: Path, output: Path, stale: Mapping[str, str]) -> dict[str, Any] | None:
    """The record of a finished fill of this very input by this request, if there is one."""
    path = provenance.record_path(output)
    is_there(path)
    try:
        if stale.get(path.name) == provenance.sha256(path):
            return None
        record: dict[str, Any] = json.loads(path.read_text())
        same = record["input"]["sha256"] == provenance.sha256(source)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if same and output.exists() else None


def check(inputs: Sequence[Path], folder: Path, request: Request) -> None:
    """Refuse once what would be refused for every file."""
    request.check()
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; name a folder for several inputs")
    if find_spec("pyarrow") is None:
        raise BadValue(f"the table of an archive needs pyarrow: {INSTALL}")
    for option, path in (("`observed=`", request.observed), ("`missing=`", request.missing)):
        if path is not None:
            raise BadValue(f"{option} belongs to one cube: fill that one by itself")
    if request.quality is not None:
        raise BadValue("`quality=` belongs to one cube: fill that one by itself")
    names = [path.name for path in inputs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadValue(f"two inputs are called {twice}: they would be one file in the output")


def _claim(folder: Path, request: Request, resume: bool, overwrite: bool) -> Mapping[str, str]:
    """Write down what is asked for; fills by another request are replaced only if that is asked.

    Returns the records of those that may still be there, by name and hash: a replacement may have
    been interrupted, or asked for some inputs only.
    """
    path = folder / ASKED
    now = {"order": fingerprint(asdict(request)), "version": versions()["hydiff"]}
    before: dict[str, Any] = json.loads(path.read_text()) if is_there(path) else dict(now)
    stale: dict[str, str] = before.get("stale", {})
    if any(before.get(key) != now[key] for key in now):
        if resume or not overwrite:
            raise BadValue(
                f"cannot go on in {folder}: its fills were asked for with other settings, or made "
                "by another version; repeat those, choose another folder, or give "
                "`overwrite=True` without `resume=`"
            )
        records = folder.glob(provenance.record_path(Path("*")).name)
        stale = {record.name: provenance.sha256(record) for record in records}
    path.write_text(json.dumps(now | {"stale": stale}) + "\n")
    return stale


def _write(table: Sequence[Row], folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    words, counts = ("input", "output", "status", "error", "note"), ("missing", "filled", "left")
    kinds = dict.fromkeys(words, pa.string()) | dict.fromkeys(counts, pa.int64())
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in Row._fields])
    columns = pa.Table.from_pylist([row._asdict() for row in table], schema=schema)
    for name in (PARQUET, MARKDOWN):
        with io.staged(folder / name, overwrite=True) as staging:
            if name == PARQUET:
                parquet.write_table(columns, staging / name)
            else:
                (staging / name).write_text(markdown(table))


def markdown(table: Sequence[Row]) -> str:
    """The table to read; floats with four digits, a dash for what is not known."""

    def cell(value: Any) -> str:
        if value is None:
            return "–"
        return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")

    lines = [Row._fields, ["---"] * len(Row._fields), *([cell(v) for v in row] for row in table)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
