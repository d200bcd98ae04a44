"""Throughput of an archive of small cubes: one after the other, and by workers.

    python benchmarks/archive.py                           24 cubes of 64 × 64 × 50, in minutes
    python benchmarks/archive.py --cubes 200 --side 144 --bands 200 --options ""

Crops of Indian Pines with a quarter missing in slanted stripes, ENVI to ENVI, each process with one
thread of arithmetic.  `alone` starts a process for each of the first cubes, `one` fills all in one
process on one core, `workers` in one command with so many worker processes.  `cpu_seconds` are of
all processes, `path_cpu` is that of the driver and its busiest worker: what it takes on idle cores,
which `speedup` compares with `one`.  `load` is what others did on the machine when a run began.
Writes benchmarks/results/archive.csv.
"""

import argparse
import csv
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import hydiff
from hydiff.cube import Cube
from hydiff.gaps import mask
from scene import measured

RESULTS = Path(__file__).parent / "results" / "archive.csv"
ALONE = 2  # cubes that are filled by a process of their own


def make(folder, count, side, bands):
    base = np.asarray(hydiff.sample().values, np.float32)
    rng = np.random.default_rng(5)
    for i in range(count):
        row, col = (int(rng.integers(0, n - side + 1)) for n in base.shape[1:])
        every = np.linspace(0, len(base) - 1, bands).astype(int)
        values = rng.uniform(0.8, 1.2) * base[every, row : row + side, col : col + side]
        observed = mask.make_mask("stripes", values.shape, 0.25, rng)
        cube = Cube(np.where(observed, values, -1).astype(np.float32), nodata=-1.0)
        hydiff.write(cube, folder / f"{i:03}.img")


def one_core():
    """For a process that is to have one; its children have it, too."""
    return ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cubes", type=int, default=24)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--bands", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--options", default="--budget fast", help="of every fill")
    args = parser.parse_args()
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
    with RESULTS.open("w", newline="") as file:
        names = ("run", "workers", "cubes", "bands", "rows", "cols", "options", "wall",
                 "cpu_seconds", "path_cpu", "speedup", "mb", "load", "cpu", "command")  # fmt: skip
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            cubes = row.setdefault("cubes", args.cubes)
            row |= {k: round(float(row[k]) / cubes, 3) for k in ("wall", "cpu_seconds", "path_cpu")}
            row |= {"speedup": round(base / row["path_cpu"], 2), "bands": args.bands,
                    "rows": args.side, "cols": args.side, "options": args.options,
                    "cpu": platform.machine(),
                    "command": "python " + " ".join(sys.argv)}  # fmt: skip
            row["mb"], row["load"] = round(float(row["mb"])), round(float(row["load"]), 1)
            writer.writerow({"workers": 0} | row)


if __name__ == "__main__":
    main()
