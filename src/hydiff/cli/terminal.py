"""Talking on a terminal: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hydiff.cube import Bools
from hydiff.errors import shell


class Clean(Console):
    """A console that shows text as text, whatever a file name or a header has put into it: no
    markup, and a replacement mark for every character that could steer the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed comes through here, alone or in a table."""
        clean = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
        return super().render_str(clean, **options)


out = Clean(highlight=False, markup=False, soft_wrap=True)
err = Clean(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress_bar(unit: str = "", lines: bool = False) -> Iterator[Callable[[Any], None] | None]:
    """A bar on a terminal, nothing elsewhere; lines such as `progress 40 %` if they are asked for.

    Steps that name a worker (`Step.how`) are also counted for each of them.  unit: of what is
    counted, such as tiles; with it the count, the rate and the time left are shown.
    """
    if lines:
        yield _progress_lines()
        return
    if not err.is_terminal:
        yield None
        return
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    shown = (MofNCompleteColumn(), TextColumn(unit + "{task.fields[more]}")) if unit else ()
    by_worker: Counter[str] = Counter()
    with Progress(*Progress.get_default_columns(), *shown, console=err, transient=True) as bar:
        task = bar.add_task("filling", total=None, more="")

        def update(step: Any) -> None:
            bar.update(task, completed=step.done, total=step.total, more=rate_and_workers(step))

        def rate_and_workers(step: Any) -> str:
            rate = bar.tasks[0].speed
            by_worker.update([step.how] if unit and step.how else [])
            each = " ".join(f"{name}:{count}" for name, count in sorted(by_worker.items()))
            return (f", {rate:.2g}/s" if rate else "") + (f"; by worker {each}" if each else "")

        yield update


def _progress_lines() -> Callable[[Any], None]:
    """Print each percent once, for a program that reads them."""
    last = -1

    def update(step: Any) -> None:
        nonlocal last
        percent = int(100 * step.done / step.total) if step.total else 0
        if percent != last:
            last = percent
            err.print(f"progress {percent} %")

    return update


def print_left(left: Mapping[str, int]) -> None:
    """Why entries are left missing: reason → number of entries."""
    from hydiff.gaps.rule import left_lines

    for line in left_lines(left):
        out.print(shell(line), markup=False)


def print_summary(record: Mapping[str, Any], paths: list[Path]) -> None:
    """The close of a fill, from its record."""
    from hydiff.flags import shares
    from hydiff.io.fill_layers import layer_named

    n = record["entries"]
    out.print(f"filled {n['filled']:,} of {n['missing_before']:,} missing entries", end=" ")
    out.print(f"with {record['method']} in {record['seconds']:.1f} s")
    print_left(n["left"])
    for note in record["notes"]:
        out.print(f"note: {shell(note)}", markup=False)
    if shared := shares(record.get("flags", {})):
        out.print(f"flags: {', '.join(shared)}", markup=False)
    named, layers = {".fill.json": "how", ".report.html": "report"}, {"sigma": "± 1-σ"}
    for path in paths:
        label = next((v for k, v in named.items() if path.name.endswith(k)), None)
        layer = "sample" if ".sample" in path.name else layer_named(path)
        label = label or layers.get(layer or "filled", layer or "filled")
        out.print(f"{label:8} {path}", markup=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def number(value: float | None) -> str:
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if abs(value) < 10 else f"{value:.2f}"


def share(missing: Bools) -> str:
    return f"{100 * float(missing.mean()):.1f} % of the entries"


def size(shape: tuple[int, int, int]) -> str:
    return f"{shape[0]} bands × {shape[1]} × {shape[2]}"
