"""Talking on a terminal: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from hydiff.cube import Bools

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar() -> Iterator[Callable[[Any], None] | None]:
    """A bar on a terminal, nothing elsewhere."""
    if not err.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("filling", total=None)
        yield lambda step: bar.update(task, completed=step.done, total=step.total)


def print_summary(record: Mapping[str, Any], made: list[Path]) -> None:
    """The close of a fill, from its record."""
    n = record["entries"]
    out.print(f"filled {n['filled']:,} of {n['missing_before']:,} missing entries", end=" ")
    out.print(f"with {record['method']} in {record['seconds']:.1f} s")
    print_left(n["left"], out)
    for note in record["notes"]:
        out.print(f"note: {note}", markup=False)
    named = {".filled.npz": "which", ".sigma.npz": "± 1-σ", ".fill.json": "how"}
    named |= {".report.html": "report"}
    for path in made:
        label = next((v for k, v in named.items() if path.name.endswith(k)), "filled")
        out.print(f"{label:8} {path}", markup=False)


def print_left(left: Mapping[str, int], console: Console) -> None:
    for reason, count in left.items():
        hints = {"outside": "--outside fill", "screened": "--fill-clouds"}
        takes = [option for word, option in hints.items() if reason.startswith(word)]
        hint = f"; {takes[0]} takes them" if takes else ""
        console.print(f"left missing: {count:,} entries, {reason}{hint}", markup=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def number(value: float | None) -> str:
    return (
        "–"
        if value is None or value != value
        else f"{value:.4g}"
        if abs(value) < 10
        else f"{value:.2f}"
    )


def share(missing: Bools) -> str:
    return f"{100 * float(missing.mean()):.1f} % of the entries"


def size(shape: tuple[int, int, int]) -> str:
    return f"{shape[0]} bands × {shape[1]} × {shape[2]}"
