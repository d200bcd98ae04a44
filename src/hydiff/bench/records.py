"""Rows on disk: one CSV line for each cell, complete or absent even if a process is killed."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hydiff.errors import BadValue
from hydiff.io.staging import explained, staged

Row = dict[str, str]  # column → text, as in the file
Rows = Sequence[Row]
Tables = Mapping[str, Rows]  # name of a suite → its rows
Cell = TypeVar("Cell")


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Append a row; an incomplete last line, left by a killed process, is removed first.

    The line is written by one call to a file opened for appending, then fsync: if the process is
    killed, the file ends with this line, without it, or with an incomplete one that is not read.
    """
    with explained(path, path.parent):
        _cut_torn_line(path)
        is_new = not path.exists() or path.stat().st_size == 0
        if not is_new and header(path) != list(columns):
            widen(path, columns)
        text = (line(columns) if is_new else "") + line([_text(row.get(c)) for c in columns])
        data = text.encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(descriptor, data) < len(data):  # a full disk takes a part, without an error
                raise OSError(errno.ENOSPC, "not enough free space")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def widen(path: Path, columns: Sequence[str]) -> None:
    """Add the columns, empty, that the rows of an earlier hydiff lack; in all rows or none."""
    if unknown := [c for c in header(path) if c not in columns]:
        raise BadValue(
            f"{path} has columns that this hydiff does not write ({', '.join(unknown[:3])}); "
            "move it away first"
        )
    write(path, read(path), columns)


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Write a file of rows, all or none; columns: by default those of the first row."""
    names = columns or list(rows[0])
    lines = [line(names), *(line([_text(row.get(name)) for name in names]) for row in rows)]
    with staged(path, overwrite=True) as folder:
        (folder / path.name).write_text("".join(lines), "utf-8")


def read(path: Path) -> list[Row]:
    """Return the complete rows of a file; none if there is no file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1].decode()
    rows = list(csv.DictReader(io.StringIO(whole)))
    return [row for row in rows if None not in row and None not in row.values()]


def read_folder(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each FOLDER/NAME.csv, by name of the table."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.csv"))}


def known(path: Path, cell: Callable[..., Cell]) -> set[Cell]:
    """Return the rows of a file as instances of `cell`, a dataclass whose fields are columns."""
    kinds = get_type_hints(cell)
    return {cell(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in read(path)}


def _cut_torn_line(path: Path) -> None:
    """Remove a last line that does not end with a line break."""
    if path.exists() and not (text := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def header(path: Path) -> list[str]:
    """Return the names of the columns of a file."""
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def line(values: Sequence[str]) -> str:
    """Return values as a line of CSV."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def _text(value: Any) -> str:
    """Return a value as text: numbers with six digits, and no line breaks within a row."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if value == round(value, 3) else f"{value:.6g}"
    return " ".join(str(value).split())


def write_parquet(path: Path, rows: Rows, kinds: Mapping[str, type]) -> None:
    """Write rows with typed columns; empty cells are null.  kinds: column → int, float or str."""
    pyarrow, parquet = arrow()
    names = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    columns = {
        name: pyarrow.array([kind(v) if (v := row[name]) else None for row in rows], names[kind])
        for name, kind in kinds.items()
    }
    with staged(path, overwrite=True) as folder:
        parquet.write_table(pyarrow.table(columns), folder / path.name)


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet, or raise a clear error if they are not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadValue("`parquet=` needs pyarrow: pip install pyarrow, or leave it out") from None
    return pyarrow, parquet
