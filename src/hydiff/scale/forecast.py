"""How long a fill will take and how much memory, from fills that this machine has finished.

Seconds of a reference machine are linear in the size of the work, with coefficients by method that
`benchmarks/forecast.py` measures (`data/fill_times.csv`).  By how much this machine differs is
taken from its own finished fills (`fill_history`), those alike counting most, and before the first
of them from a short measurement.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from hydiff.api import CubePlan
from hydiff.auto.candidates import tries_prior
from hydiff.cube import Bools
from hydiff.io.threads import cores
from hydiff.io.typed import FINITE, Between
from hydiff.methods import DEFAULT
from hydiff.request import Request
from hydiff.result import duration
from hydiff.scale.layout import Scene, area, base, cost, in_worker

TABLE = Path(__file__).parents[1] / "data" / "fill_times.csv"
NETWORK = "network"  # the row of methods that fit one and have no row of their own
FIRST = "no fill of this kind was timed on this machine"
YARDSTICK = "yardstick"  # the row with the seconds of `measure`
MACHINE = 0.3  # what the speed of the machine weighs beside a fill of the same kind and size
OTHER_GAPS = 0.3  # what a fill of the same kind weighs whose gaps are of another kind

Positive = Annotated[float, Between(1e-9, FINITE)]


@dataclass(frozen=True)
class WorkSize:
    """What the time and the memory of a fill depend on."""

    kind: str  # the method, with its budget and settings
    entries: Positive  # bands × pixels, of all tiles with their surroundings
    pixels: float  # of all tiles with their surroundings
    missing: float  # entries to fill
    lost: bool  # some pixels keep no band
    partial: bool  # some pixels keep some of their bands
    steps: int  # of a network
    cores: int
    memory: Positive  # bytes that the method declares


@dataclass(frozen=True)
class Finished:
    """A fill that was timed on this machine."""

    work: WorkSize
    seconds: Positive
    memory: Positive | None  # bytes, the peak of the process; None where it cannot be measured


@dataclass(frozen=True)
class History:
    """What is kept of a machine."""

    fills: tuple[Finished, ...] = ()
    yardstick: Positive | None = None  # seconds of `measure` here


Begin = Callable[[WorkSize], Any]  # who wants to know the size of the work before it begins


def ignore(work: WorkSize) -> None:
    """Nobody does."""


class Forecast(NamedTuple):
    seconds: float | None  # None: no fill of this kind was timed here or on the reference machine
    memory: float  # bytes
    timed: int  # finished fills of this kind that it rests on

    def __str__(self) -> str:
        """As a line of a terminal says it."""
        memory = (
            f"{self.memory / 1e9:.1f} GB" if self.memory >= 1e9 else f"{self.memory / 1e6:.0f} MB"
        )
        if self.seconds is None:
            return f"needs {memory} of memory; the time is unknown, for {FIRST}"
        if self.timed:
            return f"will take about {duration(self.seconds)} and {memory} of memory"
        return f"will take roughly {duration(self.seconds)} and {memory} of memory; {FIRST}"


# ── the size of the work ─────────────────────────────────────────────────────────────────────────


def work_of(plan: CubePlan) -> WorkSize:
    """Of a fill in one piece."""
    bands, rows, cols = plan.cube.shape
    window = rows * cols
    lost, partial = _kinds(plan.observed)
    return WorkSize(
        kind_of(plan.request),
        float(bands * window),
        float(window),
        float(plan.target.sum()),
        lost,
        partial,
        _steps(plan.request),
        cores(),
        base(plan.request) + cost(plan.request, bands, window),
    )


def work_by_tiles(scene: Scene) -> WorkSize:
    """Of a fill by tiles, that of all of them."""
    request, bands = scene.request, scene.cube.bands
    windows = [area(tile.window) for tile in scene.planned]
    memory = base(request) + cost(request, bands, max(windows, default=0))
    if (count := scene.limits.processes) > 1:
        memory = max(memory, base(request) + count * in_worker(request, bands, scene.planned))
    missing = float(scene.target.total())
    return WorkSize(
        f"{kind_of(request)} by tiles",
        float(bands * sum(windows)),
        float(sum(windows)),
        missing,
        missing >= bands * float(scene.gaps.sum()),
        missing < bands * float(scene.gaps.sum()),
        _steps(request),
        count,
        memory,
    )


def kind_of(request: Request) -> str:
    """What a fill has in common with others that take as long, but for their size."""
    more = [f"{k}={v}" for k, v in sorted(request.settings.items()) if k != "steps"]
    more += ["reference"] if request.reference else []
    if request.method != DEFAULT:
        return " ".join([request.method_name, *more])
    if request.recipe is not None:
        return " ".join([DEFAULT, "recipe", *more])
    prior = ["prior"] if tries_prior(request.no_prior) else []
    return " ".join([DEFAULT, request.budget, *prior, *more])


def _steps(request: Request) -> int:
    return int(request.settings_used.get("steps", 1)) if request.learned else 1


def _kinds(observed: Bools) -> tuple[bool, bool]:
    """Whether some pixels keep no band, and whether some keep a part of theirs."""
    count = observed.sum(axis=0)
    return bool((count == 0).any()), bool(((count > 0) & (count < len(observed))).any())


# ── what it comes to ─────────────────────────────────────────────────────────────────────────────


class Coefficients(NamedTuple):
    """Seconds of the reference machine on one core."""

    start: float
    lost: float  # per million entries of a cube with pixels that keep no band
    partial: float  # per million entries of a cube with pixels that keep a part of their bands
    pixels: float  # per million pixels: what is done for components, however many bands there are

    def seconds(self, work: WorkSize) -> float:
        each = (self.lost * work.lost + self.partial * work.partial) * work.entries
        return self.start + work.steps * (each + self.pixels * work.pixels) / 1e6


@cache
def table() -> dict[str, Coefficients]:
    """The measured rows, by kind."""
    with TABLE.open(newline="", encoding="utf-8") as lines:
        rows = [dict(row) for row in csv.DictReader(lines)]
    return {
        row["kind"]: Coefficients(*(float(row[name]) for name in Coefficients._fields))
        for row in rows
    }


def reference_row(work: WorkSize) -> Coefficients | None:
    """The row of a kind, else that of the method alone, or of networks in general."""
    words = work.kind.removesuffix(" by tiles").split()
    for count in range(len(words), 0, -1):
        if row := table().get(" ".join(words[:count])):
            return row
    return table().get(NETWORK) if work.steps > 1 else None


def forecast(work: WorkSize, history: History) -> Forecast:
    """Seconds and bytes of a fill, from finished ones."""
    row, alike = reference_row(work), [f for f in history.fills if _alike(f.work, work)]
    weights = [_weight(f.work, work) for f in alike]
    memory = _mean(
        [
            (math.log(f.memory / f.work.memory), w)
            for f, w in zip(alike, weights, strict=True)
            if f.memory
        ],
        0.0,
    )
    bytes_ = work.memory * math.exp(memory)
    if row is None and not alike:
        return Forecast(None, bytes_, 0)
    ratios = [
        (math.log(f.seconds / _expected(f.work)), w) for f, w in zip(alike, weights, strict=True)
    ]
    factor = _mean(ratios, _speed(history) if row else ratios[-1][0])
    return Forecast(_expected(work) * math.exp(factor), bytes_, len(alike))


def _expected(work: WorkSize) -> float:
    """Seconds of the reference machine; in some unit where it has no row."""
    row = reference_row(work)
    return work.steps * work.entries / 1e6 if row is None else max(row.seconds(work), 1e-3)


def _alike(one: WorkSize, other: WorkSize) -> bool:
    return (one.kind, one.cores) == (other.kind, other.cores)


def _weight(one: WorkSize, other: WorkSize) -> float:
    """By how alike two fills of one kind are: 1 for the same size and kinds of gaps."""
    size = math.exp(-abs(math.log(max(one.entries, 1.0) / max(other.entries, 1.0))))
    same = (one.lost, one.partial) == (other.lost, other.partial)
    return size if same else OTHER_GAPS * size


def _mean(ratios: Sequence[tuple[float, float]], usual: float) -> float:
    """Weighted mean of logarithms and of what is usual on the machine."""
    total = MACHINE + sum(weight for _, weight in ratios)
    return (MACHINE * usual + sum(weight * value for value, weight in ratios)) / total


def _speed(history: History) -> float:
    """Logarithm of how many times slower than the reference this machine is."""
    found = [
        math.log(f.seconds / _expected(f.work)) for f in history.fills if reference_row(f.work)
    ]
    if found:
        return statistics.median(found)
    own = table().get(YARDSTICK)
    return (
        0.0 if own is None or history.yardstick is None else math.log(history.yardstick / own.start)
    )
