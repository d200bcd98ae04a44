"""Check that hydiff has not become slower: its CPU time relative to yardsticks, against a baseline.

    python benchmarks/perf.py               exit code 1 if a ratio is 15 % above the baseline
    python benchmarks/perf.py --write       make the measured ratios the baseline
    python benchmarks/perf.py smooth auto   measure only these

A ratio is our CPU time divided by that of a yardstick: similar work that Python, numpy, scipy or
torch do without hydiff, right before it, so that the machine and its load hardly matter.  It is the
median of several such pairs, with one thread on one core, since threads on two cores that share
their units take half as much time again.  With five times more work than cores, medians of 20 pairs
differ by 5 %, but ratios of the two minima by up to 29 %.  A ratio beyond the bound is measured
again before it counts.  The baseline is benchmarks/results/perf.csv.  Other kinds of processors may
have ratios that differ by more: write a baseline with the old version there first.
"""

import argparse
import csv
import ctypes
import os
import platform
import resource
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from statistics import median

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import hydiff
from hydiff import io, metrics
from hydiff.gaps import detect, mask
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.scene import Limits

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "benchmarks" / "results" / "perf.csv"
BOUND = 1.15
LEAST, MOST, ENOUGH = (
    5,
    20,
    3.0,
)  # least and most runs of a measurement; CPU seconds after which it may end
AGAIN = 4  # number of measurements of a ratio that is beyond the bound
FOLDER = tempfile.TemporaryDirectory()


def keep_memory():
    """Have malloc keep what is freed.  Whether it gives it back depends on all that ran before, and
    the page faults of asking again are a third of a short fill."""
    if platform.libc_ver()[0] == "glibc":
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            ctypes.CDLL(None).mallopt(option, 1 << 30)


@cache
def cube():
    """Part of the bundled scene (40, 96, 96), and what of it is observed (96, 96)."""
    values = np.asarray(hydiff.sample().values)[::5, :96, :96].astype(np.float32)
    return values, mask.make_mask("stripes", values.shape, 0.2, np.random.default_rng(0))


@cache
def file():
    values, observed = cube()
    path = Path(FOLDER.name) / "in.bsq"
    io.write(hydiff.Cube(np.where(observed, values, -1).astype(np.float32), nodata=-1.0), path)
    return path


# ── yardsticks: the same kind of work without hydiff ─────────────────────────────────────────────


def interpreter():
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)


def files():
    """The bytes of `written` in the same three kinds of files, by numpy and rasterio alone."""
    import rasterio

    values = np.fromfile(file(), np.float32).reshape(cube()[0].shape)
    bands, rows, cols = values.shape
    raw, npz, tif = (Path(FOLDER.name) / f"theirs{s}" for s in (".bsq", ".npz", ".tif"))
    values.tofile(raw)
    np.fromfile(raw, np.float32)
    np.savez_compressed(npz, values)
    np.load(npz)["arr_0"]
    size = {"count": bands, "height": rows, "width": cols, "dtype": "float32"}
    packed = {"compress": "deflate", "predictor": 3, "tiled": True, "interleave": "band"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(tif, "w", "GTiff", **size, **packed) as out:
            out.write(values)
        with rasterio.open(tif) as source:
            source.read()


def transforms():
    from scipy.fft import dctn, idctn

    for _ in range(40):
        idctn(dctn(cube()[0], axes=(1, 2), norm="ortho"), axes=(1, 2), norm="ortho")


def factorisation():
    from scipy import sparse
    from scipy.sparse.linalg import splu

    line = sparse.diags_array([np.full(64, 2.1), -np.ones(63), -np.ones(63)], offsets=[0, 1, -1])
    eye = sparse.eye_array(64)
    lu = splu(sparse.csc_array(sparse.kron(line, eye) + sparse.kron(eye, line)))
    for _ in range(5):
        lu.solve(np.ones((64 * 64, 40)))


def convolutions():
    import torch

    x = torch.ones(1, 16, 48, 48)
    net = torch.nn.Sequential(*(torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(8)))
    for _ in range(15):
        net(x).square().mean().backward()


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────


def command(*words):
    line = [sys.executable, "-m", "hydiff", *words]
    return lambda: subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def filled(size=96, bands=40, **how):
    def run():
        values, observed = cube()
        hydiff.fill(values[:bands, :size, :size], observed[:size, :size], device="cpu", **how)

    return run


def by_tiles():
    out = Path(FOLDER.name) / "out.bsq"
    order = Request(method="smooth", outside="fill")
    execute.fill_file(file(), out, order, Limits(8e9, tile=48), overwrite=True)


def written():
    for suffix in (".bsq", ".tif", ".npz"):
        path = Path(FOLDER.name) / f"again{suffix}"
        io.write(io.read(file()), path, overwrite=True)
        np.asarray(io.read(path).values)


def scored():
    values, observed = cube()
    metrics.score(values + 1, values, np.broadcast_to(~observed, values.shape))


def suspected():
    values, _ = cube()
    detect.detect(values, np.ones(values.shape, bool))


LEARNED = {"method": "hydiff-ei", "steps": 15, "channels": 16, "scales": 3}
CASES = {  # name → ours, yardstick
    "start": (command("--version"), interpreter),
    "info": (command("info", str(file())), interpreter),
    "read and write": (written, files),
    "score": (scored, transforms),
    "detect": (suspected, transforms),
    "harmonic": (filled(method="harmonic"), factorisation),
    "smooth": (filled(method="smooth"), transforms),
    "tiles": (by_tiles, transforms),
    "auto": (filled(48, 12, budget="fast", no_prior=True), transforms),
    "prior": (filled(48, 12, method="prior"), convolutions),
    "hydiff-ei": (filled(48, 12, **LEARNED), convolutions),
}


def cpu_seconds(work):
    def used():
        usages = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(u.ru_utime + u.ru_stime for u in usages)

    began = used()
    work()
    return used() - began


def ratio_of(name):
    ours, yardstick = CASES[name]
    ours(), yardstick()  # a first run, for imports, files and caches
    ratios, spent = [], 0.0
    while len(ratios) < LEAST or (len(ratios) < MOST and spent < ENOUGH):
        theirs, mine = cpu_seconds(yardstick), cpu_seconds(ours)
        ratios.append(mine / theirs)
        spent += theirs + mine
    return median(ratios)


def baseline():
    if not BASELINE.exists():
        sys.exit(f"{BASELINE.relative_to(ROOT)} is not there: run with --write first")
    with BASELINE.open(newline="") as lines:
        return {row["what"]: float(row["ratio"]) for row in csv.DictReader(lines)}


def write(ratios):
    device = f"{os.cpu_count()} CPU cores, {platform.machine()}"
    with BASELINE.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(("what", "yardstick", "ratio", "device", "command"))
        for name, ratio in ratios.items():
            measured = (name, CASES[name][1].__name__, f"{ratio:.3f}", device)
            writer.writerow((*measured, "python benchmarks/perf.py --write"))


def slower(names):
    """The names whose ratio stays beyond the bound, each printed beside its baseline."""
    known, beyond = baseline(), []
    for name in names:
        if name not in known:
            sys.exit(f"no baseline of {name}: run with --write first")
        for _ in range(AGAIN):
            change = ratio_of(name) / known[name]
            if change <= BOUND:
                break
        else:
            beyond.append(name)
        print(f"{name:16} {known[name]:8.2f} × {change:5.2f}{'  slower' * (change > BOUND)}")
    return beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if unknown := sorted(set(args.name) - set(CASES)):
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(CASES)}")
    keep_memory()
    if hasattr(os, "sched_setaffinity"):  # not on every system
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if args.write:
        write({name: ratio_of(name) for name in CASES})
        return
    if beyond := slower(args.name):
        sys.exit(f"slower than the baseline by more than 15 %: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
