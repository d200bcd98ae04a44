"""Time, memory and seams of a scene of EMIT's size and layout.

    python benchmarks/scene.py                     all runs, 1280 × 1242 × 285 (an hour on one core)
    python benchmarks/scene.py --rows 320 --runs smooth,two
    python benchmarks/scene.py --rows 640 --bands 100 --runs none-1GB,samples-1GB --results FILE

Appends to benchmarks/results/scene.csv, a row per run.  The scene is Indian Pines, mirrored to the
size and stretched to the bands, each copy with its own gain; 12 % of the pixels are missing in
slanted stripes and two frames of 32 lines.  netCDF in EMIT's layout, not compressed (1.8 GB).
Every process has one thread.  CPU seconds of the driver and of the busiest worker give the duration
on idle cores.  Memory is the highest VmHWM seen, and `together_mb` the highest sum of Pss over all
processes, in which memory that workers share counts once; rows from before workers shared any, or
from a system that does not tell, have that of VmRSS, in which it counts in each.  `load` is the
load of the machine when a run began.
"""

import argparse
import contextlib
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage

import hydiff
from hydiff.gaps import mask
from hydiff.io import bundled
from hydiff.io.provenance import record_path
from hydiff.scale import tiles

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "scene.csv"
FIELDS = [
    "run",
    "rows",
    "cols",
    "bands",
    "missing_percent",
    "method",
    "options",
    "processes",
    "tile_rows",
    "tile_cols",
    "tiles",
    "seconds",
    "driver_cpu",
    "worker_cpu",
    "driver_mb",
    "worker_mb",
    "mpsnr_missing",
    "border_ratio",
    "border_whole",
    "load",
    "cpu",
    "hydiff",
    "together_mb",
]
SUMMED = 0.5  # seconds between sums of memory, which take longer to count than CPU seconds
SMOOTH = ["--method", "smooth"]
RUNS = {
    "smooth": [*SMOOTH, "--memory", "2GB"],
    "two": [*SMOOTH, "--memory", "2GB", "--workers", "2"],
    "one": [*SMOOTH, "--memory", "2GB", "--workers", "1"],
    "auto": ["--budget", "fast", "--memory", "2GB"],
    "auto-two": ["--budget", "fast", "--memory", "2GB", "--workers", "2"],
    "reference": ["--budget", "fast", "--memory", "2GB", "--reference", "reference.tif"],
    "auto-two-4GB": ["--budget", "fast", "--memory", "4GB", "--workers", "2"],
    "reference-two-4GB": [
        *("--budget", "fast", "--memory", "4GB", "--workers", "2"),
        *("--reference", "reference.tif"),
    ],
    "reference-two": [
        *("--budget", "fast", "--memory", "2GB", "--workers", "2"),
        *("--reference", "reference.tif"),
    ],
    "none-1GB": [*SMOOTH, "--memory", "1GB"],
    "samples-1GB": [*SMOOTH, "--memory", "1GB", "--samples", "5"],
    "many-samples-1GB": [*SMOOTH, "--memory", "1GB", "--samples", "20"],
    "whole": [*SMOOTH, "--tile", "100000"],  # one tile; run before tile96 ..., as their control
    "tile96": [*SMOOTH, "--tile", "96"],
    "tile144": [*SMOOTH, "--tile", "144"],
    "tile192": [*SMOOTH, "--tile", "192"],
}


def truth(rows, shape, columns=None):
    """(rows, cols, bands) of the scene without gaps, float32; all columns, or a slice of them."""
    bands, _, cols = shape
    base = np.asarray(bundled.sample().values, np.float32)[:, :144, :144] / 10_000
    at = np.linspace(0, len(base) - 1, bands)
    low = np.minimum(at.astype(int), len(base) - 2)
    share = (at - low).astype(np.float32)[:, None, None]
    base = ((1 - share) * base[low] + share * base[low + 1]).transpose(1, 2, 0)

    def mirrored(i):
        return np.where(i // 144 % 2, 143 - i % 144, i % 144)

    r, c = np.arange(rows.start, rows.stop), np.arange(cols)[columns or slice(None)]
    gain = np.random.default_rng(7).uniform(0.9, 1.1, (20, 20)).astype(np.float32)
    smooth = [np.interp(c, 72 + 144 * np.arange(20), g) for g in gain]  # constant beyond
    field = np.array([np.interp(r, 72 + 144 * np.arange(20), g) for g in np.array(smooth).T])
    return base[mirrored(r)[:, None], mirrored(c)] * field.T[..., None].astype(np.float32)


def gaps(shape):
    """(rows, cols) True = measured: slanted stripes, and two frames of 32 lines."""
    observed = mask.make_mask("stripes", shape, 0.07, np.random.default_rng(3)).copy()
    rows = shape[1]
    for first in (rows // 4 // 32 * 32, 5 * rows // 8 // 32 * 32):
        observed[first : first + 32] = False
    return observed


def make(path, shape, observed=None):
    import h5py

    bands, rows, cols = shape
    observed = gaps(shape) if observed is None else observed
    with h5py.File(path, "w") as file:
        cube = file.create_dataset("reflectance", (rows, cols, bands), "f4", fillvalue=-9999.0)
        cube.attrs["_FillValue"] = np.array([-9999], "f4")
        group = file.create_group("sensor_band_parameters")
        group["wavelengths"] = np.linspace(381.0, 2493.0, bands).astype("f4")
        group["wavelengths"].attrs["units"] = np.bytes_(b"nm")
        group["fwhm"] = np.full(bands, 8.5, "f4")
        for first in range(0, rows, 32):
            block = slice(first, min(first + 32, rows))
            cube[block] = np.where(observed[block, :, None], truth(block, shape), -9999.0)
    return observed


def make_reference(path, shape):
    """Ten broad bands of the scene half a pixel off, in other light: what another sensor saw."""
    rows = slice(0, shape[1])
    planes = np.stack([p.mean(axis=2) for p in np.array_split(truth(rows, shape), 10, axis=2)])
    off = 0.5 * (planes + np.roll(planes, 1, axis=2))
    light = 0.05 * np.linspace(0, 1, shape[1], dtype=np.float32)[:, None]
    hydiff.write(hydiff.Cube(0.8 * off + light), path)


class Spent(NamedTuple):
    """CPU seconds, and peak memory in MB."""

    seconds: float  # wall time
    driver: tuple[float, float]
    busiest: tuple[float, float]  # the busiest worker; 0 without workers
    cpu: float  # CPU seconds of all processes
    together: float  # MB: highest sum over all processes at one time


def measured(command, **how):
    """Run a command; what it and its workers take.  Linux only, and without a package."""
    began, cpu, peaks, together, counted = time.perf_counter(), {}, {}, 0.0, -SUMMED
    run = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **how)
    while run.poll() is None:
        now, counts = 0.0, time.perf_counter() - counted >= SUMMED
        for pid in family(run.pid):
            with contextlib.suppress(
                OSError, LookupError, ValueError
            ):  # the process is just ending
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                status = Path(f"/proc/{pid}/status").read_text()
                peaks[pid] = kilobytes(status, "VmHWM") / 1000
                cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                if counts:
                    shares = Path(f"/proc/{pid}/smaps_rollup")
                    if shares.exists():
                        now += kilobytes(shares.read_text(), "Pss") / 1000
                    else:
                        now += kilobytes(status, "VmRSS") / 1000
        if counts:
            together, counted = max(together, now), time.perf_counter()
        time.sleep(0.1)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {run.returncode}")
    seconds, total = time.perf_counter() - began, sum(cpu.values())
    own = cpu.pop(run.pid), peaks.pop(run.pid)
    others = max(cpu.values(), default=0.0), max(peaks.values(), default=0.0)
    return Spent(seconds, own, others, total, together)


def family(pid):
    """A process and all below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in Path(
                f"/proc/{one}/task"
            ).iterdir():  # any thread may have started a child process
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def kilobytes(status, name):
    return int(status.partition(f"{name}:")[2].split()[0])


def judged(output, observed, shape, tiling):
    """MPSNR of the missing entries (on the truth's range), and the error near the borders of tiles
    ÷ that elsewhere, at like distance from the data; checks that observed entries are untouched."""
    bands, rows, cols = shape
    cube = hydiff.read(output)
    square, count = np.zeros(bands), 0
    by_pixel = np.zeros((rows, cols))
    low, high = np.inf, -np.inf
    for first in range(0, rows, 64):
        block = slice(first, min(first + 64, rows))
        right = truth(block, shape).transpose(2, 0, 1)
        found = np.asarray(cube.values[:, block])
        kept = observed[block]
        assert np.array_equal(found[:, kept], right[:, kept])
        error = (found - right).astype(np.float64) ** 2
        square += error[:, ~kept].sum(axis=1)
        count += int((~kept).sum())
        by_pixel[block] = error.mean(axis=0)
        low, high = min(low, right.min()), max(high, right.max())
    mpsnr = float(np.mean(10 * np.log10((high - low) ** 2 * count / square)))
    cuts = tiles.grid((rows, cols), max(tiling["size"]), tiling["overlap"])
    return mpsnr, border_ratio(by_pixel, observed, cuts)


def border_ratio(by_pixel, observed, cuts):
    """RMS error of missing pixels near the borders of tiles ÷ that of others as far from the data;
    by_pixel (rows, cols) is the mean square error."""
    near = []
    for edges in cuts[:2]:
        away = np.arange(edges[-1])[:, None] + 0.5 - np.array(edges[1:-1])
        near.append(np.abs(away).min(axis=1, initial=edges[-1]) <= cuts.overlap / 2)
    border = (near[0][:, None] | near[1])[~observed]
    error = by_pixel[~observed]
    far = np.rint(ndimage.distance_transform_edt(~observed)[~observed]).astype(int)
    inner = np.bincount(far[~border], error[~border], far.max() + 1)
    number = np.bincount(far[~border], minlength=far.max() + 1)
    usual = (inner / np.maximum(number, 1))[far[border]]
    comparable = number[far[border]] > 0
    ratio = error[border][comparable].sum() / usual[comparable].sum() if border.any() else 1.0
    return float(np.sqrt(ratio))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1280)
    parser.add_argument("--cols", type=int, default=None)
    parser.add_argument("--bands", type=int, default=285)
    parser.add_argument("--runs", default="smooth,one,two,auto")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    cols = asked.cols or asked.rows * 1242 // 1280
    shape = (asked.bands, asked.rows, cols)
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        source = Path(folder) / "scene.nc"
        observed = make(source, shape)
        for name in asked.runs.split(","):
            output = Path(folder) / f"{name}.nc"
            load = os.getloadavg()[0]
            command = [sys.executable, "-m", "hydiff", "fill", str(source), "-o", str(output)]
            other = Path(folder) / "reference.tif"
            if other.name in RUNS[name] and not other.exists():
                make_reference(other, shape)
            more = [str(other) if text == other.name else text for text in RUNS[name]]
            spent = measured([*command, *more])
            record = json.loads(record_path(output).read_text())
            tiling = record.get("tiles", {"size": [asked.rows, cols], "overlap": 0, "filled": 1})
            mpsnr, ratio = judged(output, observed, shape, tiling)
            options = RUNS[name]
            workers = options[options.index("--workers") + 1] if "--workers" in options else "1"
            row = (name, *shape[1:], shape[0], f"{100 * (~observed).mean():.1f}", record["method"])
            row += (" ".join(options), workers, *tiling["size"], tiling["filled"])
            row += (f"{spent.seconds:.1f}", f"{spent.driver[0]:.1f}", f"{spent.busiest[0]:.1f}")
            row += (f"{spent.driver[1]:.0f}", f"{spent.busiest[1]:.0f}", f"{mpsnr:.3f}")
            whole = Path(folder) / "whole.nc"
            control = ""
            if (
                name.startswith("tile") and whole.exists()
            ):  # control: the same places, filled without tiles
                control = f"{judged(whole, observed, shape, tiling)[1]:.3f}"
            row += (f"{ratio:.3f}", control, f"{load:.1f}", platform.machine(), hydiff.__version__)
            row += (f"{spent.together:.0f}",)
            append(asked.results, row)
            print(dict(zip(FIELDS, row, strict=True)), flush=True)
            for made in Path(folder).glob(f"{name}.nc*" if name != "whole" else "none"):
                made.unlink()


def append(path, row):
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(FIELDS)
        writer.writerow(row)


if __name__ == "__main__":
    main()
