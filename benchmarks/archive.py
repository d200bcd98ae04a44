"""Throughput of an archive of small cubes: one after the other, and by workers.

    python benchmarks/archive.py                           24 cubes of 64 × 64 × 50, in minutes
    python benchmarks/archive.py --cubes 200 --side 144 --bands 200 --options ""
    python benchmarks/archive.py --gpu --workers 4 8 14    24 cubes of 144 × 144 × 200

The cubes are crops of Indian Pines with a quarter missing in slanted stripes.  They are filled from
ENVI to ENVI; each process uses one thread.  The run `alone` starts a new process for each of the
first cubes, `one` fills all cubes in one process on one core, and `workers` fills them by one
command with several worker processes.  `cpu_seconds` is the sum over all processes.  `path_cpu` is
that of the driver and its busiest worker, which is the duration on idle cores; `speedup` is
relative to the `path_cpu` of `one`.  `load` is the load of the machine when a run began.
Writes benchmarks/results/archive.csv.

With `--gpu` every process may use all cores and the GPU, and wall time is measured.  `one` fills
the first cubes in one process; `seconds` leaves out the very first, which warms up the GPU.
`workers` are timed from their start to the last file.  Writes $OUT/archive_gpu.csv (default
benchmarks/results).  pyarrow, which the table of an archive needs, is not needed here.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hydiff
from hydiff.bench import records
from hydiff.cube import Cube
from hydiff.gaps import mask
from hydiff.request import Request
from hydiff.scale import batch, layout
from hydiff.workers import crew, in_turn
from scene import measured

RESULTS = Path(__file__).parent / "results" / "archive.csv"
OUT = Path(os.environ.get("OUT", RESULTS.parent))
ALONE = 2  # number of cubes that are each filled by a new process
ONE = 9  # number of cubes that one process fills with `--gpu`


def make(folder, count, side, bands, suffix=".img"):
    base = np.asarray(hydiff.sample().values, np.float32)
    rng = np.random.default_rng(5)
    for i in range(count):
        row, col = (int(rng.integers(0, n - side + 1)) for n in base.shape[1:])
        every = np.linspace(0, len(base) - 1, bands).astype(int)
        values = rng.uniform(0.8, 1.2) * base[every, row : row + side, col : col + side]
        observed = mask.make_mask("stripes", values.shape, 0.25, rng)
        cube = Cube(np.where(observed, values, -1).astype(np.float32), nodata=-1.0)
        hydiff.write(cube, folder / f"{i:03}{suffix}")


def one_core():
    """For a process that is to have one; its children have it, too."""
    return ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def fill_all(folder, output, budget, workers):
    """Seconds since the start after each file; by so many workers, or 0: this process."""
    limits = layout.limits(None)
    limits = limits._replace(memory=limits.memory / max(workers, 1))
    shared = (output, Request(budget=budget), limits, False, False, (), {})
    tasks = [batch.Granule(path, *shared) for path in sorted(folder.glob("*.npz"))]
    output.mkdir()
    began, clock = time.perf_counter(), []
    with crew(workers or None, None) as run:
        for outcome in (run or in_turn)(batch.fill_granule, tasks, None):
            if outcome.error is not None or outcome.value.status != "filled":
                raise SystemExit(f"{outcome.error or outcome.value}")
            clock.append(time.perf_counter() - began)
    return clock


def on_gpu(args):
    """Each way in a process of its own."""
    import torch

    rows = []
    with tempfile.TemporaryDirectory() as box:
        source = Path(box) / "in"
        source.mkdir()
        make(
            source, args.cubes, args.side, args.bands, ".npz"
        )  # a format that needs no other package
        few = Path(box) / "few"
        few.mkdir()
        for path in sorted(source.iterdir())[:ONE]:
            (few / path.name).hardlink_to(path)
        for workers in (0, *args.workers):
            output = Path(box) / f"out{workers}"
            own = [str(source if workers else few), str(output), args.budget, str(workers)]
            command = [sys.executable, __file__, "--one-run", *own]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            clock = json.loads(done.stdout.splitlines()[-1])
            warm = (clock[-1] - clock[0]) / (len(clock) - 1)
            row = {"run": "workers" if workers else "one", "workers": workers, "cubes": len(clock),
                   "bands": args.bands, "rows": args.side, "cols": args.side,
                   "budget": args.budget, "device": torch.cuda.get_device_name()
                   if torch.cuda.is_available() else platform.machine(),
                   "cores": os.cpu_count(), "first": round(clock[0], 2),
                   "all": round(clock[-1], 2),
                   "seconds": round(clock[-1] / len(clock) if workers else warm, 3),
                   "hydiff": hydiff.__version__}  # fmt: skip
            base = rows[0]["seconds"] if rows else row["seconds"]
            rows.append(row | {"speedup": round(base / row["seconds"], 2)})
            print(rows[-1], flush=True)
    records.write(OUT / "archive_gpu.csv", rows)


def main():
    if sys.argv[1:2] == ["--one-run"]:
        folder, output, budget, workers = sys.argv[2:]
        print(json.dumps(fill_all(Path(folder), Path(output), budget, int(workers))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cubes", type=int, default=24)
    parser.add_argument("--side", type=int, default=None)
    parser.add_argument("--bands", type=int, default=None)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--options", default="--budget fast", help="of every fill")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--budget", default="normal", help="with --gpu, of every fill")
    args = parser.parse_args()
    side, bands = (144, 200) if args.gpu else (64, 50)
    args.side, args.bands = args.side or side, args.bands or bands
    if args.gpu:
        on_gpu(args)
        return
    options = args.options.split()
    with tempfile.TemporaryDirectory() as box:
        folder = Path(box)
        (folder / "in").mkdir()
        make(folder / "in", args.cubes, args.side, args.bands)
        files = [str(path) for path in sorted((folder / "in").glob("*.img"))]
        fill = [sys.executable, "-m", "hydiff", "fill"]

        def run(name, command):
            """Per cube: wall and CPU seconds, those on the longest path, and memory."""
            load, began = os.getloadavg()[0], time.perf_counter()
            _, (driver, mb), (busiest, worker_mb), total, _ = measured(command)
            wall = time.perf_counter() - began
            print(f"{name}: {wall:.0f} s, CPU {total:.1f}", flush=True)
            return {"run": name, "wall": wall, "cpu_seconds": total, "path_cpu": driver + busiest,
                    "mb": round(max(mb, worker_mb)), "load": round(load, 1)}  # fmt: skip

        first = files[:ALONE]
        starts = [
            run("alone", [*one_core(), *fill, f, "-o", str(folder / Path(f).name), *options])
            for f in first
        ]
        rows = [{k: np.mean([s[k] for s in starts]) for k in starts[0] if k != "run"}]
        rows[0] |= {"run": "alone", "cubes": 1}
        every = [*fill, *files, "-o"]
        rows.append(run("one", [*one_core(), *every, str(folder / "one"), *options]))
        for workers in args.workers:
            many = ["--workers", str(workers)]
            rows.append(run("workers", [*every, str(folder / f"{workers}"), *options, *many]))
            rows[-1]["workers"] = workers
    base = rows[1]["path_cpu"] / args.cubes
    for row in rows:
        cubes = row.setdefault("cubes", args.cubes)
        row |= {k: round(float(row[k]) / cubes, 3) for k in ("wall", "cpu_seconds", "path_cpu")}
        row |= {"speedup": round(base / row["path_cpu"], 2), "workers": row.get("workers", 0),
                "bands": args.bands, "rows": args.side, "cols": args.side, "options": args.options,
                "cpu": platform.machine(),
                "command": "python " + " ".join(sys.argv)}  # fmt: skip
        row["mb"], row["load"] = round(float(row["mb"])), round(float(row["load"]), 1)
    names = ("run", "workers", "cubes", "bands", "rows", "cols", "options", "wall",
             "cpu_seconds", "path_cpu", "speedup", "mb", "load", "cpu", "command")  # fmt: skip
    records.write(RESULTS, rows, names)


if __name__ == "__main__":
    main()
