"""Rows on disk: one CSV line a cell, whole or not at all, whatever happens in between."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydiff.errors import BadValue
from hydiff.io.staging import explained

Row = dict[str, str]


def append(path: Path, row: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Add a row.  A line that a kill has torn before is cut off first.

    One write of one line to a file opened for appending, then fsync: after a kill the file ends
    with this line or without it, or with a torn one that no reader takes for whole.
    """
    with explained(path, path.parent):
        mend(path)
        fresh = not path.exists() or path.stat().st_size == 0
        if not fresh and header(path) != list(columns):
            raise BadValue(f"{path} has other columns than this hydiff writes; move it away first")
        text = (_line(columns) if fresh else "") + _line([_text(row.get(c)) for c in columns])
        place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(place, text.encode())
            os.fsync(place)
        finally:
            os.close(place)


def read(path: Path) -> list[Row]:
    """The whole rows of a file; none when there is no file."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1].decode()
    rows = list(csv.DictReader(io.StringIO(whole)))
    return [row for row in rows if None not in row and None not in row.values()]


def mend(path: Path) -> None:
    """Cut off a last line without its end."""
    if path.exists():
        text = path.read_bytes()
        end = text.rfind(b"\n") + 1
        if end < len(text):
            os.truncate(path, end)


def header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def _line(values: Sequence[str]) -> str:
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
