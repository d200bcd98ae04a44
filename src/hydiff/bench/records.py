"""Rows on disk: one CSV line a cell, whole or not at all, whatever happens in between."""

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
    """Add a row.  A line that a kill has torn before is cut off first.

    One write of one line to a file opened for appending, then fsync: after a kill the file ends
    with this line or without it, or with a torn one that no reader takes for whole.
    """
    with explained(path, path.parent):
        _cut_torn_line(path)
        fresh = not path.exists() or path.stat().st_size == 0
        if not fresh and header(path) != list(columns):
            widen(path, columns)
        text = (line(columns) if fresh else "") + line([_text(row.get(c)) for c in columns])
        data = text.encode()
        place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(place, data) < len(data):  # the last bytes of a disk: half a line, no error
                raise OSError(errno.ENOSPC, "not enough free space")
            os.fsync(place)
        finally:
            os.close(place)


def widen(path: Path, columns: Sequence[str]) -> None:
    """Give the rows of an earlier hydiff the columns that it did not know, empty; all or none."""
    if unknown := [c for c in header(path) if c not in columns]:
        raise BadValue(
            f"{path} has columns that this hydiff does not write ({', '.join(unknown[:3])}); "
            "move it away first"
        )
    rows = read(path)
    lines = [line(columns), *(line([row.get(c, "") for c in columns]) for row in rows)]
    with staged(path, overwrite=True) as folder:
        (folder / path.name).write_text("".join(lines), "utf-8")


def read(path: Path) -> list[Row]:
    """The whole rows of a file; none when there is no file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1].decode()
    rows = list(csv.DictReader(io.StringIO(whole)))
    return [row for row in rows if None not in row and None not in row.values()]


def read_folder(folder: Path) -> dict[str, list[Row]]:
    """Name of a table → the rows of FOLDER/NAME.csv, each file read once."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.csv"))}


def known(path: Path, cell: Callable[..., Cell]) -> set[Cell]:
    """The cells that a file has: its rows as the dataclass whose fields are columns of them."""
    kinds = get_type_hints(cell)
    return {cell(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in read(path)}


def _cut_torn_line(path: Path) -> None:
    """Cut off a last line without its end."""
    if path.exists() and not (text := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def line(values: Sequence[str]) -> str:
    """Values as a line of CSV."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue()


def _text(value: Any) -> str:
    """Numbers with six digits; no line ends, so that a line is a row."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value) if value == round(value, 3) else f"{value:.6g}"
    return " ".join(str(value).split())


def write_parquet(path: Path, rows: Rows, kinds: Mapping[str, type]) -> None:
    """The rows with typed columns; empty cells are null.  kinds: column → int, float or str."""
    pyarrow, parquet = arrow()
    names = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    columns = {
        name: pyarrow.array([kind(v) if (v := row[name]) else None for row in rows], names[kind])
        for name, kind in kinds.items()
    }
    with staged(path, overwrite=True) as folder:
        parquet.write_table(pyarrow.table(columns), folder / path.name)


def arrow() -> tuple[Any, Any]:
    """pyarrow and its parquet, or one clear line."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadValue("`parquet=` needs pyarrow: pip install pyarrow, or leave it out") from None
    return pyarrow, parquet
