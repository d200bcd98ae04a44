"""Expected and measured duration of fills.

    python benchmarks/forecast.py fit       time some fills, and fit coefficients by method
    python benchmarks/forecast.py judge     time twenty others: expected and measured seconds

Every fill is `make_plan` and `execute` of a file in a new process with one thread.  Seconds are CPU
seconds of `execute`, which do not depend on other load and equal the duration on an idle core.
Cubes are parts of Indian Pines, mirrored if they have to be larger; those of `judge` have other
sizes, masks and seeds than those of `fit`.

`fit` writes benchmarks/results/forecast_fit.csv and, from it, src/hydiff/data/fill_times.csv: for
each kind of fill the non-negative coefficients with the least relative squares.  `judge` writes
forecast_fills.csv and, from it, forecast.csv with two forecasts of each fill: `first`, for a
machine that has finished no fill yet, and `later`, after the other nineteen fills.  Fills that
these files already contain are not timed again; delete the files to time them all.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIT, FILLS = RESULTS / "forecast_fit.csv", RESULTS / "forecast_fills.csv"
JUDGED = RESULTS / "forecast.csv"
WITHIN = 1.5

# method or budget of auto, rows, columns, every n-th band, mask, missing share, seed, more
PLAIN = ("smooth", "harmonic", "biharmonic", "linear", "idw", "nearest", "bandmean")
TO_FIT = [
    *((m, side, side, 1, mask, 0.2, 1) for m in PLAIN for mask in ("stripes", "columns")
      for side in (40, 88, 136)),
    *((m, side, side, 1, "columns", 0.2, 1) for m in ("spectral", "subspace")
      for side in (40, 100)),
    *((b, side, side, 1, mask, 0.2, 1) for b in ("fast", "normal")
      for mask in ("stripes", "columns") for side in (40, 96)),
    *((b, 128, 128, 2, "blobs", 0.1, 1) for b in ("fast", "normal")),
    *((b, side, side, 1, mask, 0.2, 1, {"no_prior": True}) for b in ("fast", "normal")
      for mask, side in (("stripes", 64), ("columns", 56))),
    ("best", 40, 40, 2, "stripes", 0.2, 1),
    *(("hydiff-ei", side, side, 2, "stripes", 0.2, 1, {"settings": {"steps": steps}})
      for side, steps in ((40, 4), (64, 2))),
]  # fmt: skip
TO_JUDGE = [
    ("fast", 60, 60, 1, "stripes", 0.15, 5),
    ("fast", 80, 72, 1, "columns", 0.1, 6),
    ("fast", 96, 90, 1, "blobs", 0.1, 7),
    ("fast", 120, 120, 3, "frames", 0.2, 8),
    ("normal", 70, 64, 1, "stripes", 0.25, 9),
    ("normal", 80, 76, 1, "columns", 0.05, 10),
    ("normal", 90, 80, 1, "blobs", 0.15, 11),
    ("normal", 140, 120, 4, "stripes", 0.1, 12),
    ("normal", 60, 80, 2, "pixels", 0.1, 13, {"no_prior": True}),
    ("smooth", 144, 120, 1, "stripes", 0.3, 14),
    ("smooth", 96, 90, 1, "columns", 0.1, 15),
    ("smooth", 64, 72, 1, "pixels", 0.1, 16),
    ("smooth", 192, 192, 2, "stripes", 0.1, 17, {"tile": 64}),
    ("smooth", 240, 160, 2, "blobs", 0.1, 18, {"tile": 64}),
    ("harmonic", 130, 144, 1, "stripes", 0.1, 19),
    ("harmonic", 200, 200, 1, "blobs", 0.1, 20),
    ("biharmonic", 100, 110, 1, "stripes", 0.2, 21),
    ("linear", 120, 100, 1, "blobs", 0.2, 22),
    ("idw", 144, 144, 1, "stripes", 0.3, 23),
    ("nearest", 200, 145, 1, "blobs", 0.2, 24),
]


def cube_of(rows, cols, every, mask, share, seed):
    """A damaged part of Indian Pines, mirrored to the size."""
    from hydiff.cube import Cube
    from hydiff.gaps import simulate
    from hydiff.io import bundled

    values = np.asarray(bundled.sample().values)[::every]
    far = ((0, 0), (0, max(rows - 145, 0)), (0, max(cols - 145, 0)))
    values = np.pad(values, far, mode="symmetric")[:, :rows, :cols].astype(np.float32)
    return simulate.simulate(Cube(values), mask, share, seed=seed)[0]


def one(case):
    """In a process of its own: fill once, print the figures as JSON."""
    os.sched_getaffinity = lambda _: {0}  # one thread, on any free core
    from hydiff import io
    from hydiff.request import Request
    from hydiff.scale.execute import execute
    from hydiff.scale.layout import Limits
    from hydiff.scale.plan import make_plan

    more = dict(case.pop("more"))
    limits, works = Limits(8e9, tile=more.pop("tile", None)), []
    method = case.pop("method")
    how = {"budget": method} if method in ("fast", "normal", "best") else {"method": method}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("in.img", "out.img")]
        io.write(cube_of(**case), paths[0])
        plan = make_plan(*paths, Request(**how, outside="fill", **more), limits)
        began = time.process_time()
        execute(plan, begin=works.append)
        seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"work": asdict(works[0]), "seconds": seconds, "memory": peak}))


NAMES = ("method", "rows", "cols", "every", "mask", "share", "seed", "more")


def timed(case):
    """The work, the seconds and the peak memory of one case."""
    filled = dict(zip(NAMES, (*case, {})[: len(NAMES)], strict=True))
    command = [sys.executable, __file__, "one", json.dumps(filled)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def flat(found):
    return found["work"] | {"seconds": round(found["seconds"], 3), "peak": found["memory"]}


def all_timed(cases, path):
    """The rows of all cases, in a file; goes on behind those that are there."""
    from hydiff.bench import records

    rows = records.read(path)
    for case in cases[len(rows) :]:
        rows.append(flat(timed(case)))
        print(rows[-1], flush=True)
        records.write(path, rows)
    return rows


def fit():
    from hydiff.bench import records
    from hydiff.scale import fill_history, forecast

    rows = all_timed(TO_FIT, FIT)
    yardstick = fill_history.measure(time.process_time)
    first = coefficients(forecast.YARDSTICK, yardstick, [0, 0, 0])
    records.write(forecast.TABLE, [first, *table(rows)])


def table(rows):
    """The coefficients of each kind; those of networks in general are the only network's."""
    out = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        start, *rest = solved(own)
        out.append(coefficients(kind, start, rest))
        if kind == "hydiff-ei":
            out.append(coefficients("network", start, rest))
    return out


def coefficients(kind, start, rest):
    names = ("lost", "partial", "pixels")
    rounded = {name: float(f"{value:.4g}") for name, value in zip(names, rest, strict=True)}
    return {"kind": kind, "start": float(f"{start:.4g}"), **rounded}


def solved(rows):
    """start, lost, partial, pixels: not negative, with the least squared relative errors."""
    from scipy.optimize import nnls

    seconds, entries, pixels, steps = (
        np.array([float(row[key]) for row in rows])
        for key in ("seconds", "entries", "pixels", "steps")
    )
    kinds = [[str(row[key]) == "True" for row in rows] for key in ("lost", "partial")]
    # with one fill for each kind of gaps the constant time cannot be estimated, and with one number
    # of bands the time per pixel cannot: the time per entry then includes them
    several = len(rows) > len(set(zip(*kinds, strict=True)))
    spectra = len(set(np.rint(entries / pixels))) > 1
    work = steps * entries / 1e6
    columns = [np.full(len(rows), float(several)), *(work * kind for kind in np.array(kinds))]
    design = np.stack([*columns, spectra * steps * pixels / 1e6], axis=1)
    return nnls(design / seconds[:, None], np.ones(len(rows)))[0].tolist()


def judge():
    from hydiff.bench import records
    from hydiff.scale import fill_history
    from hydiff.scale.forecast import History, forecast

    done = [finished(row) for row in all_timed(TO_JUDGE, FILLS)]
    empty = History(yardstick=fill_history.measure(time.process_time))
    rows = []
    for case, fill in zip(TO_JUDGE, done, strict=True):
        others = History(tuple(f for f in done if f is not fill), empty.yardstick)
        first, later = (forecast(fill.work, known) for known in (empty, others))
        rows.append({
            "fill": named(case), "entries": int(fill.work.entries),
            "seconds": round(fill.seconds, 2),
            "first": round(first.seconds, 2), "later": round(later.seconds, 2),
            "memory_mb": round(fill.memory / 1e6), "first_mb": round(first.memory / 1e6),
            "later_mb": round(later.memory / 1e6),
            "device": f"one thread, {platform.machine()}",
            "command": "python benchmarks/forecast.py judge",
        })  # fmt: skip
    records.write(JUDGED, rows)
    for name in ("first", "later"):
        ratios = [row[name] / row["seconds"] for row in rows]
        within = sum(1 / WITHIN <= ratio <= WITHIN for ratio in ratios)
        print(f"{name}: {within} of {len(rows)} within a factor {WITHIN}")


def finished(row):
    """A row as the history of a machine keeps it."""
    from hydiff.scale.forecast import Finished, WorkSize

    numbers = {key: float(row[key]) for key in ("entries", "pixels", "missing", "memory")}
    kinds = {key: str(row[key]) == "True" for key in ("lost", "partial")}
    counts = {key: int(row[key]) for key in ("steps", "cores")}
    work = WorkSize(row["kind"], **numbers, **kinds, **counts)
    return Finished(work, float(row["seconds"]), float(row["peak"]))


def named(case):
    method, rows, cols, every, mask, *_ = case
    more = case[7] if len(case) > 7 else {}
    words = [f"auto {method}" if method in ("fast", "normal", "best") else method]
    words += ["without prior"] * ("no_prior" in more) + ["by tiles"] * ("tile" in more)
    return f"{' '.join(words)}, {mask}, {-(-200 // every)} × {rows} × {cols}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fit", "judge", "one"))
    parser.add_argument("case", nargs="?", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "one":
        one(json.loads(args.case))
    else:
        {"fit": fit, "judge": judge}[args.what]()


if __name__ == "__main__":
    main()
