"""Output on a terminal: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hydiff.cube import Bools
from hydiff.errors import shell
from hydiff.result import Meter, Reading, duration


class Clean(Console):
    """A console that prints text from file names and headers safely.

    Text is not interpreted as markup, and characters that could control the terminal are replaced.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Clean a text; all printed texts pass through here, alone or in a table."""
        clean = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
        return super().render_str(clean, **options)


out = Clean(highlight=False, markup=False, soft_wrap=True)
err = Clean(stderr=True, highlight=False, markup=False, soft_wrap=True)


def prepare_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed, on nothing, and let stdout replace
    characters that its encoding lacks.

    Otherwise the next file that is opened gets the number of a closed one, and what libraries print
    goes into that file.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:  # as Python sets it if there is no such file
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


@contextmanager
def progress_bar(
    meter: Meter | None = None, unit: str = "", events: bool = False
) -> Iterator[Callable[[Any], None] | None]:
    """Yield a function that takes the steps of a fill and shows their progress.

    On a terminal it shows a bar with the phase, the number of steps done, the share of the time,
    and the time left.  If a unit is given, steps that name a worker (`Step.how`) are also counted
    by worker.  Elsewhere None is yielded.
    unit: name of the counted items, such as tiles.  events: print JSON events instead.
    """
    meter = meter or Meter()
    if events:
        yield _progress_events(meter)
        return
    if not err.is_terminal:
        yield None
        return
    from rich.live import Live

    by_worker: Counter[str] = Counter()

    def update(step: Any) -> None:
        """Receive a step, and count it by its worker."""
        by_worker.update([step.how] if unit and step.how else [])
        meter.step(step)

    def line() -> Table:
        return _line(meter.read(), unit, by_worker)

    with Live(get_renderable=line, console=err, transient=True, refresh_per_second=4):
        yield update


def _line(reading: Reading, unit: str, by_worker: Mapping[str, int]) -> Table:
    """Return one line such as `trials ━━━━━╸━━━━ 42 %  5 of 13  about 20 s left`."""
    table = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=reading.share, width=40, pulse=reading.left is None)
    table.add_row(reading.phase, bar, *_figures(reading, unit, by_worker))
    return table


def _figures(reading: Reading, unit: str, by_worker: Mapping[str, int]) -> Iterator[str]:
    """Yield the texts beside the bar: share, steps, time left, steps by worker."""
    if reading.left is not None:
        yield f"{100 * reading.share:.0f} %"
    if reading.total > 1:
        yield f"{reading.done} of {reading.total}{unit and f' {unit}'}"
    if reading.left is not None:
        yield f"about {duration(reading.left)} left"
    if by_worker:
        counts = " ".join(f"{name}:{count}" for name, count in sorted(by_worker.items()))
        yield f"by worker {counts}"


def _progress_events(meter: Meter) -> Callable[[Any], None]:
    """Return a function that prints an event for each new phase and each percent of its steps."""
    last: tuple[str, int] | None = None

    def update(step: Any) -> None:
        nonlocal last
        meter.step(step)
        now = meter.read()
        percent = int(100 * now.done / now.total) if now.total else 0
        if (now.phase, percent) != last:
            last = now.phase, percent
            left = None if now.left is None else round(now.left, 1)
            print_event("progress", phase=now.phase, percent=percent, seconds_left=left)

    return update


def print_event(event: str, **facts: Any) -> None:
    """Print an event as one line of JSON on stderr."""
    sys.stderr.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stderr.flush()


def print_left(left: Mapping[str, int]) -> None:
    """Print why entries are left missing.  left: reason → number of entries."""
    from hydiff.gaps.rule import left_lines

    for line in left_lines(left):
        out.print(shell(line), markup=False)


def print_preview(facts: Mapping[str, Any]) -> None:
    """Print what a fill would do, from the facts of its preview."""
    count, tiles = facts.get("entries_to_fill", 0), facts.get("tiles")
    how = f" with {facts['method']}" if count else ""
    if tiles:
        rows, cols = tiles["size"]
        how += f", by {tiles['filled']} of {tiles['of']} tiles of {rows} × {cols} pixels"
    out.print(f"would fill {count:,} entries{how}", markup=False)
    print_left(facts.get("left", {}))
    for note in facts["notes"]:
        out.print(f"note: {shell(note)}", markup=False)


def print_summary(record: Mapping[str, Any], paths: list[Path]) -> None:
    """Print the summary of a finished fill, from its record."""
    from hydiff.flags import shares
    from hydiff.io.fill_layers import layer_named

    counts = record["entries"]
    out.print(
        f"filled {counts['filled']:,} of {counts['missing_before']:,} missing entries", end=" "
    )
    out.print(f"with {record['method']} in {record['seconds']:.1f} s")
    print_left(counts["left"])
    for note in record["notes"]:
        out.print(f"note: {shell(note)}", markup=False)
    if shared := shares(record.get("flags", {})):
        out.print(f"filled values: {', '.join(shared)}", markup=False)
    labels, layers = {".fill.json": "record", ".report.html": "report"}, {"sigma": "± 1-σ"}
    for path in paths:
        label = next((v for k, v in labels.items() if path.name.endswith(k)), None)
        layer = "sample" if ".sample" in path.name else layer_named(path)
        label = label or layers.get(layer or "filled", layer or "filled")
        out.print(f"{label:8} {path}", markup=False)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def number(value: float | None) -> str:
    """Return a number with four digits, from 10 on with two decimals; a dash for None and NaN."""
    if value is None or value != value:
        return "–"
    return f"{value:.4g}" if abs(value) < 10 else f"{value:.2f}"


def share(missing: Bools) -> str:
    """Return the share of True entries as text."""
    return f"{100 * float(missing.mean()):.1f} % of the entries"


def size(shape: tuple[int, int, int]) -> str:
    """Return a shape (bands, rows, cols) as text."""
    return f"{shape[0]} bands × {shape[1]} × {shape[2]}"
