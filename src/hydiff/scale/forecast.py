"""Forecast of the time and memory of a fill, from finished fills on this machine.

On a reference machine, seconds are linear in the size of the work, with coefficients by method that
`benchmarks/forecast.py` measures (`data/fill_times.csv`).  The factor for this machine is estimated
from its own finished fills (`fill_history`), in which similar fills have more weight.  Before the
first fill it is taken from a short measurement.
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
from hydiff.auto.candidates import has_prior
from hydiff.cube import Bools
from hydiff.io.threads import cores
from hydiff.io.typed import FINITE, Between
from hydiff.methods import DEFAULT
from hydiff.request import Request
from hydiff.result import duration
from hydiff.scale.layout import Scene, area, base, cost, in_worker

TABLE = Path(__file__).parents[1] / "data" / "fill_times.csv"
NETWORK = "network"  # the row for methods that fit a network and have no row of their own
FIRST = "no fill of this kind was timed on this machine"
YARDSTICK = "yardstick"  # the row with the seconds of `measure`
# weights, relative to 1 for a finished fill of the same kind and size
MACHINE = 0.3  # of the general speed of the machine
OTHER_GAPS = 0.3  # of a fill of the same kind with another kind of gaps

Positive = Annotated[float, Between(1e-9, FINITE)]


@dataclass(frozen=True)
class WorkSize:
    """The quantities that the time and memory of a fill depend on."""

    kind: str  # the method, with its budget and settings
    entries: Positive  # bands × pixels; by tiles, the sum over their windows
    pixels: float  # by tiles, the sum over their windows
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
    """Finished fills of a machine, and its speed."""

    fills: tuple[Finished, ...] = ()
    yardstick: Positive | None = None  # seconds of `measure` here


Begin = Callable[[WorkSize], Any]  # function that receives the size of the work before it begins


def ignore(work: WorkSize) -> None:
    """Ignore the size of the work."""


class Forecast(NamedTuple):
    """Expected time and memory of a fill."""

    seconds: float | None  # None: no fill of this kind was timed here or on the reference machine
    memory: float  # bytes
    timed: int  # number of finished fills of this kind that it is based on

    def __str__(self) -> str:
        """Return the forecast as one line for a terminal."""
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
    """Return the size of the work of a fill in memory."""
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
    """Return the size of the work of a fill by tiles, over all tiles."""
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
    """Return the kind of a fill: fills of one kind and size take about the same time."""
    details = [f"{k}={v}" for k, v in sorted(request.settings.items()) if k != "steps"]
    details += ["reference"] if request.reference else []
    if request.method != DEFAULT:
        return " ".join([request.method_name, *details])
    if request.recipe is not None:
        return " ".join([DEFAULT, "recipe", *details])
    prior = ["prior"] if not request.no_prior and has_prior() else []
    return " ".join([DEFAULT, request.budget, *prior, *details])


def _steps(request: Request) -> int:
    """Return the number of steps of a network; 1 for other methods."""
    return int(request.settings_used.get("steps", 1)) if request.learned else 1


def _kinds(observed: Bools) -> tuple[bool, bool]:
    """Return whether there are pixels without any observed band, and pixels with only some."""
    count = observed.sum(axis=0)
    return bool((count == 0).any()), bool(((count > 0) & (count < len(observed))).any())


# ── the forecast ─────────────────────────────────────────────────────────────────────────────────


class Coefficients(NamedTuple):
    """Coefficients of the seconds that the reference machine takes on one core."""

    start: float
    lost: float  # per million entries of a cube with pixels without any observed band
    partial: float  # per million entries of a cube with pixels with only some observed bands
    pixels: float  # per million pixels: work on components, independent of the number of bands

    def seconds(self, work: WorkSize) -> float:
        """Return the seconds of a fill on the reference machine."""
        by_entries = (self.lost * work.lost + self.partial * work.partial) * work.entries
        return self.start + work.steps * (by_entries + self.pixels * work.pixels) / 1e6


@cache
def table() -> dict[str, Coefficients]:
    """Return the measured coefficients by kind."""
    with TABLE.open(newline="", encoding="utf-8") as lines:
        rows = [dict(row) for row in csv.DictReader(lines)]
    return {
        row["kind"]: Coefficients(*(float(row[name]) for name in Coefficients._fields))
        for row in rows
    }


def reference_row(work: WorkSize) -> Coefficients | None:
    """Return the coefficients of a kind, else of its method, else of networks; None if none."""
    words = work.kind.removesuffix(" by tiles").split()
    for count in range(len(words), 0, -1):
        if row := table().get(" ".join(words[:count])):
            return row
    return table().get(NETWORK) if work.steps > 1 else None


def forecast(work: WorkSize, history: History) -> Forecast:
    """Return the expected seconds and bytes of a fill, from finished fills."""
    row, alike = reference_row(work), [f for f in history.fills if _alike(f.work, work)]
    weights = [_weight(f.work, work) for f in alike]
    log_ratio = _mean(
        [
            (math.log(f.memory / f.work.memory), w)
            for f, w in zip(alike, weights, strict=True)
            if f.memory
        ],
        0.0,
    )
    bytes_ = work.memory * math.exp(log_ratio)
    if row is None and not alike:
        return Forecast(None, bytes_, 0)
    ratios = [
        (math.log(f.seconds / _expected(f.work)), w) for f, w in zip(alike, weights, strict=True)
    ]
    factor = _mean(ratios, _speed(history) if row else ratios[-1][0])
    return Forecast(_expected(work) * math.exp(factor), bytes_, len(alike))


def _expected(work: WorkSize) -> float:
    """Return the seconds on the reference machine, or in an arbitrary unit if it has no row."""
    row = reference_row(work)
    return work.steps * work.entries / 1e6 if row is None else max(row.seconds(work), 1e-3)


def _alike(first: WorkSize, second: WorkSize) -> bool:
    """Return whether two fills are of one kind and ran on the same number of cores."""
    return (first.kind, first.cores) == (second.kind, second.cores)


def _weight(first: WorkSize, second: WorkSize) -> float:
    """Return the similarity of two fills of one kind: 1 for the same size and kinds of gaps."""
    size = math.exp(-abs(math.log(max(first.entries, 1.0) / max(second.entries, 1.0))))
    same = (first.lost, first.partial) == (second.lost, second.partial)
    return size if same else OTHER_GAPS * size


def _mean(ratios: Sequence[tuple[float, float]], usual: float) -> float:
    """Return the weighted mean of logarithmic ratios, in which `usual` has the weight MACHINE.

    ratios: pairs (logarithm, weight).
    """
    total = MACHINE + sum(weight for _, weight in ratios)
    return (MACHINE * usual + sum(weight * value for value, weight in ratios)) / total


def _speed(history: History) -> float:
    """Return the logarithm of the factor by which this machine is slower than the reference."""
    ratios = [
        math.log(f.seconds / _expected(f.work)) for f in history.fills if reference_row(f.work)
    ]
    if ratios:
        return statistics.median(ratios)
    reference = table().get(YARDSTICK)
    return (
        0.0
        if reference is None or history.yardstick is None
        else math.log(history.yardstick / reference.start)
    )
