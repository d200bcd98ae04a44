"""Growth of CPU seconds and memory with pixels, bands, share missing, gap width and workers.

    python benchmarks/growth.py                      all axes, in minutes on one core
    python benchmarks/growth.py --axes pixels bands --most-pixels 1e7

One property at a time is changed from a cube of 96 × 96 × 64 with a quarter missing in columns of
four pixels: Indian Pines, mirrored to the size and stretched to the bands.  Fills use `smooth` on
one thread.  The rows `tiles` fill a file of 16 bands within 1.5 GB, from ENVI to ENVI.  The rows
`workers` are `auto` (fast, without a prior) on 72 × 72 × 200 with so many cores, and include the
child processes.  Each fill runs in a new process, which has already loaded hydiff and filled a
small cube.  `mb` is the growth of its memory to the peak; of child processes, the largest counts.
CPU seconds are the smaller of two fills, and equal the duration on an idle core.  Writes
benchmarks/results/growth.csv; the tables of docs/performance.md fit the exponents.
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import hydiff
from hydiff.bench import records
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.layout import Limits
from scene import truth

RESULTS = Path(__file__).parent / "results" / "growth.csv"
SIDE, BANDS, MISSING, WIDTH = 96, 64, 0.25, 4
TILED_BANDS, TILED_MEMORY = 16, 1.5e9
AXES = {
    "pixels": (36**2, 10**4, 192**2, 10**5, 10**6),
    "tiles": (10**5, 10**6, 10**7),
    "bands": (10, 30, 100, 200, 500),
    "missing": (0.01, 0.05, 0.15, 0.3, 0.6),
    "width": (1, 2, 4, 8, 16, 32),
    "workers": (1, 2, 4, 8),
}


def case(axis, value):
    """The cube (bands, rows, cols), and what of it is observed (rows, cols)."""
    side = round(value**0.5) if axis == "pixels" else SIDE
    bands = value if axis == "bands" else BANDS
    if axis == "workers":
        side, bands = 72, 200
    share, width = (value if axis == n else d for n, d in (("missing", MISSING), ("width", WIDTH)))
    cube = truth(slice(0, side), (bands, side, side)).transpose(2, 0, 1)
    return np.ascontiguousarray(cube), holes(side, share, width)


def holes(side, share, width):
    """(side, side) False in columns of a width that cover a share of the pixels."""
    observed = np.ones((side, side), bool)
    columns = max(1, round(share * side / width))
    rows = min(side, round(share * side**2 / (columns * width)))
    for i in range(columns):
        first = (2 * i + 1) * side // (2 * columns) - width // 2
        observed[:rows, first : first + width] = False
    return observed


def tiled(pixels):
    """The figures of a fill by tiles, from file to file."""
    side = round(pixels**0.5)
    shape, observed = (TILED_BANDS, side, side), holes(side, MISSING, WIDTH)
    with tempfile.TemporaryDirectory() as box:
        source, output = Path(box) / "in.bil", Path(box) / "out.bil"
        with source.open("wb") as values:  # pages of a memmap would count as memory
            for top in range(0, side, 64):
                rows = slice(top, min(top + 64, side))
                part = np.where(observed[rows, :, None], truth(rows, shape), -1.0)
                values.write(part.transpose(0, 2, 1).astype(np.float32).tobytes())
        header = {"samples": side, "lines": side, "bands": TILED_BANDS, "data type": 4,
                  "interleave": "bil", "byte order": 0, "data ignore value": -1}  # fmt: skip
        lines = ["ENVI", *(f"{name} = {value}" for name, value in header.items())]
        source.with_suffix(".hdr").write_text("\n".join(lines) + "\n")
        hydiff.fill(np.ones((4, 40, 40)), observed[:40, :40], method="smooth")
        before, began = used(resource.RUSAGE_SELF)[1], used(resource.RUSAGE_SELF)[0]
        execute.fill_file(source, output, Request(method="smooth"), Limits(TILED_MEMORY, tile=96))
        now = used(resource.RUSAGE_SELF)
    return described("tiles", pixels, shape, observed, now[0] - began, now[1] - before, itemsize=4)


def used(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def one(axis, value):
    """In a process of its own: the figures of one fill."""
    if axis == "tiles":
        return tiled(value)
    cube, observed = case(axis, value)
    how = {"method": "smooth"}
    if axis == "workers":
        os.cpu_count, os.sched_getaffinity = (lambda: value), (lambda _: set(range(value)))
        how = {"budget": "fast", "no_prior": True, "device": "cpu"}
    hydiff.fill(cube[:4, :40, :40], observed[:40, :40], method="smooth")
    before, seconds = used(resource.RUSAGE_SELF)[1], []
    for _ in range(1 if cube.size > 1e8 else 2):
        began = used(resource.RUSAGE_SELF)[0] + used(resource.RUSAGE_CHILDREN)[0]
        hydiff.fill(cube, observed, **how)
        seconds.append(used(resource.RUSAGE_SELF)[0] + used(resource.RUSAGE_CHILDREN)[0] - began)
    grown = used(resource.RUSAGE_SELF)[1] - before
    child = used(resource.RUSAGE_CHILDREN)[1] if axis == "workers" else 0
    return described(axis, value, cube.shape, observed, min(seconds), grown, child)


def described(axis, value, shape, observed, seconds, grown, child=0, itemsize=8):
    return {
        "axis": axis, "value": value, "rows": shape[1], "cols": shape[2], "bands": shape[0],
        "missing_percent": round(100 * float((~observed).mean()), 1),
        "cpu_seconds": round(seconds, 3), "mb": round(grown), "child_mb": round(child),
        "cube_mb": round(float(np.prod(shape)) * itemsize / 1e6, 2),
        "cpu": platform.machine(), "command": "python benchmarks/growth.py",
    }  # fmt: skip


def in_a_child(axis, value):
    """`one`, forked: a fresh peak of memory without another start."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, json.dumps(one(axis, value)).encode())
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    if not content:
        sys.exit(f"{axis} = {value} came to no end")
    return json.loads(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axes", nargs="*", choices=AXES, default=list(AXES))
    parser.add_argument("--most-pixels", type=float, default=1e5)
    args = parser.parse_args()
    new = [
        in_a_child(axis, value)
        for axis in args.axes
        for value in AXES[axis]
        if axis not in ("pixels", "tiles") or value <= args.most_pixels
    ]
    rows = [r for r in records.read(RESULTS) if r["axis"] not in args.axes] + new
    rows.sort(key=lambda r: (list(AXES).index(r["axis"]), float(r["value"])))
    records.write(RESULTS, rows)


if __name__ == "__main__":
    main()
