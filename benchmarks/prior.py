"""A prior of the scene: tiles that start from a common network, and tiles that start untrained.

    python benchmarks/prior.py              on a GPU, a minute; or on a CPU with small settings:
    python benchmarks/prior.py --rows 120 --bands 12 --tile 40 --channels 16 --steps 100 \
        --updates 200

Writes prior.csv into $OUT (default benchmarks/results).  The scene of `scene.py`, with 15 % missing
in stripes, in a netCDF file, is filled by tiles as by `hydiff fill --method hydiff-ei --tile N
[--pretrain U --refine R]`, but in this process; needs only torch, numpy, scipy and h5py.
`border_ratio` is the error near the borders of tiles divided by the error elsewhere, at like
distance from the data; `step_ratio` is the same ratio for the difference of neighbouring filled
pixels.
"""

import argparse
import csv
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import hydiff
from hydiff.gaps import mask
from hydiff.request import Request
from hydiff.scale import execute, tiles
from hydiff.scale.scene import Limits
from scene import border_ratio, make, truth

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
FIELDS = [
    *("start", "updates", "steps", "channels", "bands", "rows", "cols", "tile", "tiles"),
    *("seconds", "cpu_seconds", "mpsnr_missing", "border_ratio", "step_ratio", "device", "torch"),
]


def step_ratio(x, known, cuts):
    """RMS difference of filled neighbours, x (bands, rows, cols), where cores meet ÷ elsewhere."""
    total, count = np.zeros(2), np.zeros(2)
    for axis, edges in ((1, cuts.rows), (2, cuts.cols)):
        n = x.shape[axis]
        both = ~known.take(range(n - 1), axis - 1) & ~known.take(range(1, n), axis - 1)
        square = (np.diff(x, axis=axis) ** 2).mean(axis=0)
        near = np.zeros(n - 1, bool)
        for edge in edges[1:-1]:
            near[max(edge - cuts.overlap // 2, 0) : edge + cuts.overlap // 2] = True
        near = np.broadcast_to(near[:, None] if axis == 1 else near, both.shape)
        for i, where in enumerate((both & near, both & ~near)):
            total[i] += square[where].sum()
            count[i] += where.sum()
    return float(np.sqrt(total[0] / count[0] / (total[1] / count[1])))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=384, help="and columns")
    parser.add_argument("--bands", type=int, default=60)
    parser.add_argument("--tile", type=int, default=96)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument(
        "--steps", type=int, default=1000, help="of a tile that starts from nothing"
    )
    parser.add_argument("--updates", type=int, default=1000, help="of the network on the scene")
    asked = parser.parse_args()
    shape = (asked.bands, asked.rows, asked.rows)
    known = mask.make_mask("stripes", shape, 0.15, np.random.default_rng(3))
    right = truth(slice(0, asked.rows), shape).transpose(2, 0, 1).astype(float)
    tenth = asked.steps // 10
    starts = [  # name, updates of the prior, steps of each tile
        ("nothing", 0, asked.steps),
        ("nothing", 0, tenth),
        ("prior", asked.updates, 0),
        ("prior", asked.updates, tenth),
    ]
    gpu = torch.cuda.is_available()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "scene.nc"
        make(source, shape, known)
        for i, (start, updates, steps) in enumerate([*starts[1:2][:gpu], *starts]):
            settings = {"channels": asked.channels, "steps": steps or asked.steps}
            if updates:
                settings = {"channels": asked.channels, "steps": asked.steps, "refine": steps}
            order = Request(method="hydiff-ei", settings=settings, pretrain=updates, outside="fill")
            output = Path(folder) / f"{i}.nc"
            began, cpu = time.perf_counter(), time.process_time()
            done = execute.fill_file(source, output, order, Limits(40e9, tile=asked.tile))
            spent = time.perf_counter() - began, time.process_time() - cpu
            x = np.asarray(hydiff.read(output).values, float)
            error = (x - right) ** 2
            each = error[:, ~known].mean(axis=1)
            cuts = tiles.grid(known.shape, asked.tile)
            if i == 0 and gpu:  # the first run only warms up the GPU
                continue
            row = (
                *(start, updates, steps, asked.channels, *shape, asked.tile),
                *(done.record["tiles"]["filled"], *(f"{s:.1f}" for s in spent)),
                f"{np.mean(10 * np.log10(np.ptp(right) ** 2 / each)):.3f}",
                f"{border_ratio(error.mean(axis=0), known, cuts):.3f}",
                f"{step_ratio(x, known, cuts):.3f}",
                torch.cuda.get_device_name() if gpu else platform.machine(),
                torch.__version__,
            )
            rows.append(row)
            print(dict(zip(FIELDS, row, strict=True)), flush=True)
            with (OUT / "prior.csv").open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([FIELDS, *rows])


if __name__ == "__main__":
    main()
