"""Fill many files by one request into a folder, with a table of the results.

OUT/NAME ...           the filled files and their companion files
OUT/summary.parquet    one row per input: counts, expected scores, seconds, errors
OUT/summary.md         the same table as text
OUT/archive.json       fingerprint of the request, so that `resume` only continues the same one
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hydiff import io
from hydiff.cube import Cube, listed
from hydiff.errors import BadValue, HydiffError, OutputError, shell
from hydiff.gaps.rule import NoSuchNodata
from hydiff.io import provenance, typed
from hydiff.io.fill_layers import is_layer
from hydiff.io.parsing import first_line
from hydiff.io.regular import exists, is_there
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.methods.estimate import Progress
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale.contents import by_content
from hydiff.scale.execute import execute
from hydiff.scale.layout import Limits
from hydiff.scale.plan import Filled, Say, make_plan, quiet
from hydiff.workers import INSTALL, Run, in_turn

PARQUET, MARKDOWN, ASKED = "summary.parquet", "summary.md", "archive.json"
# values of `Row.status`; ABSENT only occurs until all inputs have been tried
DONE, ABSENT = ("filled", "no gaps"), "nodata absent"


Crew = AbstractContextManager[Run | None]  # as from `workers.crew`; None = this process


class Row(NamedTuple):
    """The result for one input."""

    input: str
    output: str
    status: str  # filled, no gaps, failed
    missing: int | None = None  # number of missing entries before the fill
    filled: int | None = None
    left: int | None = None
    nrmse: float | None = None  # expected of the filled entries
    mpsnr: float | None = None  # dB
    sam: float | None = None  # degrees
    seconds: float | None = None
    error: str | None = None
    note: str | None = None


class Granule(NamedTuple):
    """The task of filling one input."""

    input: Path
    folder: Path
    request: Request
    limits: Limits
    resume: bool
    overwrite: bool
    command: tuple[str, ...]
    stale: Mapping[str, str]  # file name → hash of the records of fills by another request
    lenient: bool = False  # ignore nodata values that do not occur in this input


def inputs_of(named: Sequence[str]) -> list[Path]:
    """Return the files given by names and patterns (`granules/*.nc`), without duplicates.

    The matches of a pattern are sorted.  Files with the flags and error bars of a fill are left out
    unless they are named explicitly, and so are ENVI headers whose data file is there too.
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
    return [path for path in dict.fromkeys(paths) if not _is_header_of(path, paths)]


def _is_header_of(path: Path, others: Sequence[Path]) -> bool:
    """Return whether a file is the ENVI header of another one, so that both are one cube."""
    is_header = path.suffix.lower() == ".hdr"
    return is_header and any(data in others for data in io.staging.partners(path, "envi"))


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern; the name of an existing file (scene[1].tif) is not."""
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
    """Fill every input into the folder, write the summary tables, and return their rows.

    An input that cannot be filled does not stop the others.  Finished fills are left as they are
    unless `overwrite` is set; `resume` also continues an interrupted fill of a single input.  A
    nodata value that does not occur in an input is left out there, if any other input was filled.

    crew: context manager for the workers, each of which fills whole inputs; it is entered after the
    request has been checked.
    """
    check(inputs, folder, request)
    with crew as run:
        with io.staging.explained(folder / PARQUET, folder):
            folder.mkdir(exist_ok=True)
            stale = _claim(folder, request, resume, overwrite)
        shared = (folder.absolute(), request, limits, resume, overwrite, tuple(command), stale)
        tasks = [Granule(path.absolute(), *shared) for path in inputs]
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
    # if every input failed, the table of an earlier run still describes the folder
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
    """Add a row for each task to `rows`.

    Inputs without the nodata value are tried a second time, ignoring it, if any input was filled.
    """

    def fill_inputs(numbers: Sequence[int], lenient: bool) -> None:
        """Fill the inputs with these numbers and add their rows; report failures and progress."""
        granules = [tasks[i]._replace(lenient=lenient) for i in numbers]
        for outcome in run(fill_granule, granules, None):
            number = numbers[outcome.number]
            path, row = inputs[number], outcome.value
            if outcome.error is not None:
                row = Row(str(path), "", "failed", error=first_line(outcome.error))
            rows[number] = row._replace(input=str(path))
            if row.status == "failed":
                say(f"{path}: {row.error}")
            if progress is not None:
                progress(Step(len(rows), len(inputs), None, how=outcome.worker, phase="files"))

    fill_inputs(range(len(inputs)), lenient=False)
    if any(row.status in DONE for row in rows.values()):
        fill_inputs([i for i, row in rows.items() if row.status == ABSENT], lenient=True)


def fill_granule(granule: Granule) -> Row:
    """Fill one input and return its row; errors are returned in the row, not raised."""
    path, folder = granule.input, granule.folder
    try:
        if not folder.is_dir():
            raise BadValue(f"a worker does not see {folder}: all need the same file system")
        cube = io.read(path, var=granule.request.var)
        source = cube.path or path
        output = folder / source.name
        fill_again = granule.overwrite and not granule.resume
        record = None if fill_again else _done_before(source, output, granule.stale)
        if record is None:
            record = _record(granule, cube, output)
    except NoSuchNodata as error:
        return Row(str(path), "", ABSENT, error=shell(str(error)))
    except HydiffError as error:
        return Row(str(path), "", "failed", error=shell(str(error)))
    except Exception as error:  # a bug here or in a library must not stop the other fills
        return Row(str(path), "", "failed", error=f"{type(error).__name__}: {first_line(error)}")
    return _row(path, output, record)


def _record(
    granule: Granule, cube: Cube, output: Path, absent: Sequence[float] = ()
) -> dict[str, Any]:
    """Fill one input and return the record.

    absent: nodata values to leave out because they do not occur in it.  With `lenient`, values that
    prove to be absent are left out in a second attempt.
    """
    request = granule.request
    if absent:
        remaining = tuple(v for v in listed(request.nodata) if v not in absent)
        nodata_in = request.nodata_in if remaining else None
        request = replace(request, nodata=remaining or None, nodata_in=nodata_in)
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
    """Plan and execute the fill of one input."""
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
    """Return the row of a finished fill, from its record."""
    entries = record["entries"]
    nodata_notes = [note for note in record.get("notes", ()) if "`nodata" in note]
    note = shell("; ".join(nodata_notes)) or None
    if not entries["missing_before"]:
        seconds = record.get("seconds")
        return Row(str(path), output.name, "no gaps", 0, 0, 0, seconds=seconds, note=note)
    before, filled, after = (entries[k] for k in ("missing_before", "filled", "missing_after"))
    expected = record.get("expected") or {}
    scores = {name: expected.get(name) for name in ("nrmse", "mpsnr", "sam")}
    row = Row(str(path), output.name, "filled", before, filled, after, **scores, note=note)
    return row._replace(seconds=record.get("seconds"))


def _done_before(source: Path, output: Path, stale: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the record of a finished fill of this input by this request, or None.

    stale: file name → hash of the records of fills by another request.
    """
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
    """Raise an error for problems that concern all inputs."""
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
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise BadValue(f"two inputs are called {duplicate}: they would be one file in the output")
    if (shared := _shared_by(inputs)) is not None:
        raise BadValue(
            f"two inputs have a file called {shared}: they would be one in the output; fill them "
            "into two folders"
        )


def _shared_by(inputs: Sequence[Path]) -> str | None:
    """Return the name of two files that belong to different inputs, such as the headers of
    one/a.bsq and two/a.bil; None if there are none."""
    owners: dict[str, set[Path]] = {}
    for path in inputs:
        is_envi = io.suffixes().get(path.suffix.lower(), "envi") == "envi"
        for part in (path, *(io.staging.partners(path, "envi") if is_envi else ())):
            owners.setdefault(part.name, set()).add(part.absolute())
    return next((name for name, paths in owners.items() if len(paths) > 1), None)


def _claim(folder: Path, request: Request, resume: bool, overwrite: bool) -> Mapping[str, str]:
    """Store the request in the folder; raise BadValue if it holds fills by another request.

    With `overwrite`, and without `resume`, such fills may be replaced.  Returns the names and
    hashes of their records.  Some of these fills may still exist, because a replacement was
    interrupted or covered only part of the inputs.
    """
    path = folder / ASKED
    now = {"order": fingerprint(by_content(request)), "version": versions()["hydiff"]}
    before: dict[str, Any] = _read_claim(path) if is_there(path) else dict(now)
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
    with io.staged(path, overwrite=True) as staging:
        (staging / path.name).write_text(json.dumps(now | {"stale": stale}) + "\n")
    return stale


def _read_claim(path: Path) -> dict[str, Any]:
    """Return the request that a folder was claimed for; BadValue if its file is damaged."""
    try:
        claim = typed.load(path)
        if isinstance(claim, dict) and isinstance(claim.get("stale", {}), dict):
            return claim
    except (ValueError, RecursionError):
        pass
    raise BadValue(
        f"{path} is damaged, so that nobody knows what its folder was filled for; remove it, and "
        "fill again with `overwrite=True`"
    )


def _write(table: Sequence[Row], folder: Path) -> None:
    """Write the table as Parquet and as Markdown."""
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
    """Return the table as Markdown, with four digits for floats and a dash for unknown values."""

    def cell(value: Any) -> str:
        """Return a value as the text of a cell."""
        if value is None:
            return "–"
        return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")

    lines = [Row._fields, ["---"] * len(Row._fields), *([cell(v) for v in row] for row in table)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
