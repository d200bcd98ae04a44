"""Scenes on a GPU: the time for one of EMIT's size, and the effect of the tile size.

    python benchmarks/scene_gpu.py time      a sample of the tiles; extrapolated to the scene
    python benchmarks/scene_gpu.py sizes     a small scene as a whole, three seeds, three sizes

Writes scene_gpu_time.csv or scene_gpu_sizes.csv into $OUT (default benchmarks/results), a row as
soon as it is known.  It runs the loop of a worker: windows in .npy files, filled side by side
(`methods.run.estimates`); needs only torch, numpy and scipy.  The scene is that of `scene.py`.

The time of a scene is that of the sample's first batch, which also compiles and warms up, plus the
time of the other batches per pixel of their windows times the pixels of all windows.  Reading,
filling and writing the windows are included; masks, decision and output are not, see `scene.csv`.
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

from hydiff.cube import Cube, unit_scale
from hydiff.gaps import mask
from hydiff.learn.engine import MOST_BESIDE
from hydiff.methods import choose
from hydiff.methods.estimate import Common, Job, estimates, estimating
from hydiff.scale import tiles
from hydiff.scale.layout import area, inside
from hydiff.scale.scene_decision import spread_over
from scene import border_ratio, gaps, truth

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
FULL, SMALL = (285, 1280, 1242), (40, 384, 384)
SIZES = 96, 144, 192
METHODS = {  # name in the table: method, preset, settings
    "hydiff-ei": ("hydiff-ei", "paper", {}),
    # with s = 0 each tile searches its order on the CPU, which takes longer than the network
    "anchored": ("anchored", "full", {"s": 1.5}),
    "anchored, short": ("anchored", "short", {"s": 1.5}),
}


def device():
    return torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()


class Table:
    """A CSV file that is complete after every row."""

    def __init__(self, name, fields):
        self.path, self.fields = OUT / name, fields.split(",")
        with self.path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(self.fields)

    def add(self, *row):
        row = [f"{v:.3f}" if isinstance(v, float) else v for v in row]
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
        print(dict(zip(self.fields, row, strict=True)), flush=True)


def planned(known, size):
    cuts = tiles.grid(known.shape, size)
    return cuts, tiles.plan(cuts, np.where(known, 0.0, mask.thickness(~known)))


def window(tile, shape):
    """(bands, rows, cols) of the scene without gaps."""
    rows, cols = tile.window
    return truth(rows, shape, cols).transpose(2, 0, 1)


def job_of(seed, tile, common):
    return Job(tiles.seed_of(seed, tile.number), "auto", common=common)


def scale_of(windows, bands):
    """One scale for all, from the (values, known) of some windows."""
    pixels = np.concatenate([v[:, k][:, ::7] for v, k in windows], axis=1)[:, :, None]
    every = np.ones(bands, bool)
    scale = unit_scale(pixels.astype(float), np.ones(pixels.shape, bool), every)
    return Common(scale, every, None)


def in_time(asked, folder):
    """How long the tiles of a scene take, method by method."""
    shape = (asked.bands or FULL[0], asked.rows or FULL[1], asked.rows or FULL[2])
    known = gaps(shape)
    _, plan = planned(known, 144)
    pixels = sum(area(t.window) for t in plan)
    sample = spread_over(plan, asked.tiles)
    for tile in sample:
        np.save(folder / f"{tile.number}.npy", window(tile, shape).astype(np.float32))
    table = Table(
        "scene_gpu_time.csv",
        "method,steps,bands,rows,cols,tiles,of,beside,first_batch_seconds,seconds_per_megapixel,"
        "scene_seconds,sample_pixels,device,torch",
    )
    some = [(np.load(folder / f"{t.number}.npy"), known[t.window]) for t in sample[:4]]
    common = scale_of(some, shape[0])
    for name in asked.methods.split(";"):
        method, preset, settings = METHODS[name]
        chosen = choose(method, preset, settings | asked.set)
        times = []  # (pixels, seconds) of each batch
        for i in range(0, len(sample), MOST_BESIDE):
            if sum(s for _, s in times) > asked.seconds:
                break
            began, runs, batch = time.perf_counter(), [], sample[i : i + MOST_BESIDE]
            for tile in batch:
                seen, values = known[tile.window], np.load(folder / f"{tile.number}.npy")
                cube = Cube(np.where(seen, values, -9999.0).astype(np.float32), nodata=-9999.0)
                flags = np.broadcast_to(seen, cube.shape)
                runs.append(estimating(cube, flags, chosen, 0.0, job_of(0, tile, common)))
            for tile, found in zip(batch, estimates(runs, "auto"), strict=True):
                np.save(folder / f"{tile.number}.filled.npy", found.values[:, ~known[tile.window]])
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append((sum(area(t.window) for t in batch), time.perf_counter() - began))
        first, rest = times[0], times[1:] or times
        rate = sum(s for _, s in rest) / sum(p for p, _ in rest)
        total = first[1] + rate * max(pixels - first[0], 0)
        done = sum(p for p, _ in times)
        table.add(
            name, chosen.settings.steps, *shape, min(len(times) * MOST_BESIDE, len(sample)),
            len(plan), MOST_BESIDE, first[1], 1e6 * rate, total, done, device(), torch.__version__,
        )  # fmt: skip


def by_size(asked):
    """The score of a scene that is filled by tiles of three sizes.

    `same_places` is what `border_ratio` says of the other sizes' fills at the same places, where
    they have no borders: some places are harder than others.
    """
    shape = (asked.bands or SMALL[0], asked.rows or SMALL[1], asked.rows or SMALL[2])
    known, right = gaps(shape), truth(slice(0, shape[1]), shape).transpose(2, 0, 1).astype(float)
    common = scale_of([(right, known)], shape[0])
    table = Table(
        "scene_gpu_sizes.csv",
        "method,steps,bands,rows,cols,seed,tile,tiles,mpsnr_missing,border_ratio,same_places,"
        "seconds,device,torch",
    )
    name = asked.methods.split(";")[0]
    method, preset, settings = METHODS[name]
    chosen = choose(method, preset, settings | asked.set)
    began = time.perf_counter()
    for seed in range(3):
        if time.perf_counter() - began > asked.seconds:
            return
        found = {size: tiled(chosen, right, known, common, seed, size) for size in SIZES}
        for size, (cuts, count, error, spent) in found.items():
            each = error[:, ~known].mean(axis=1)
            mpsnr = float(np.mean(10 * np.log10(np.ptp(right) ** 2 / each)))
            others = np.mean([found[s][2].mean(axis=0) for s in SIZES if s != size], axis=0)
            ratios = (border_ratio(e, known, cuts) for e in (error.mean(axis=0), others))
            table.add(
                name, chosen.settings.steps, *shape, seed, size, count, mpsnr, *ratios, spent,
                device(), torch.__version__,
            )  # fmt: skip


def tiled(chosen, right, known, common, seed, size):
    """Cuts, number of tiles, square errors (bands, rows, cols) and seconds of a fill by tiles."""
    start, (cuts, plan) = time.perf_counter(), planned(known, size)
    damaged, runs, pieces = np.where(known, right, -9999.0), [], []
    for tile in plan:
        cube = Cube(damaged[(slice(None), *tile.window)], nodata=-9999.0)
        flags = np.broadcast_to(known[tile.window], cube.shape)
        runs.append(estimating(cube, flags, chosen, 0.0, job_of(seed, tile, common)))
    for tile, found in zip(plan, estimates(runs, "auto"), strict=True):
        rows, cols = np.nonzero(~known[tile.support])
        x = found.values[(slice(None), *inside(tile.support, tile.window))][:, rows, cols]
        at = rows + tile.support[0].start, cols + tile.support[1].start
        pieces.append(tiles.Piece(*at, tiles.weights(cuts, tile)[rows, cols], x))
    everything = slice(0, right.shape[1]), slice(0, right.shape[2])
    error = (tiles.overlap_add(everything, len(right), pieces) - right) ** 2
    return cuts, len(plan), error, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["time", "sizes"])
    parser.add_argument("--methods", default="anchored, short;hydiff-ei", help="between ;")
    parser.add_argument("--tiles", type=int, default=16, help="of the sample")
    parser.add_argument("--seconds", type=float, default=None, help="begin nothing after that")
    parser.add_argument("--rows", type=int, default=None, help="and columns, for a try")
    parser.add_argument("--bands", type=int, default=None)
    parser.add_argument(
        "--set", default={}, type=lambda t: dict(p.split("=") for p in t.split(","))
    )
    asked = parser.parse_args()
    asked.seconds = asked.seconds or (25.0 if asked.what == "time" else 90.0)
    if asked.what == "sizes":
        by_size(asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        in_time(asked, Path(folder))


if __name__ == "__main__":
    main()
