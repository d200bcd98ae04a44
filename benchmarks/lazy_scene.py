"""`da.hydiff.fill()` of a lazy scene of EMIT's size: memory, and equality with `hydiff fill`.

    python benchmarks/lazy_scene.py                   1280 × 1242 × 285 (10 minutes on an idle core)
    python benchmarks/lazy_scene.py --rows 160

The scene is that of benchmarks/scene.py.  One process opens it with xarray in chunks of 64 lines,
fills it and writes the result to Zarr; another runs `hydiff fill` with the same tiles.  Appends a
row for each to benchmarks/results/lazy_scene.csv; `differ` is the number of entries whose bytes
differ.
"""

import argparse
import csv
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import hydiff
import scene

RESULTS = Path(__file__).parent / "results" / "lazy_scene.csv"
FIELDS = ["run", "rows", "cols", "bands", "method", "memory", "tile", "seconds", "cpu_seconds",
          "peak_mb", "differ", "load", "machine", "hydiff", "xarray", "dask"]  # fmt: skip
METHOD, MEMORY, TILE = "smooth", "1.5GB", 96
LINES = 64  # number of lines in a chunk


def fill_lazily(source, output):
    """What a user would type; the result goes to Zarr chunk by chunk."""
    import xarray as xr

    import hydiff.xarray  # noqa: F401 - registers `.hydiff`

    kept = {"mask_and_scale": False, "phony_dims": "sort", "engine": "h5netcdf"}
    with xr.open_dataset(source, chunks={"phony_dim_0": LINES}, **kept) as dataset:
        cube = dataset.reflectance
        cube = cube.rename(dict(zip(cube.dims, ("downtrack", "crosstrack", "bands"), strict=True)))
        filled = cube.hydiff.fill(method=METHOD, memory=MEMORY, tile=TILE)
        filled.to_dataset().to_zarr(output, consolidated=False)


def differences(one, other):
    """How many entries of two files differ in their bytes, lines by lines."""
    a, b = (hydiff.read(path).values for path in (one, other))
    assert a.shape == b.shape and a.dtype == b.dtype
    counts = []
    for first in range(0, a.shape[1], LINES):
        lines = slice(first, first + LINES)
        left, right = (np.ascontiguousarray(v[:, lines]).view(np.uint32) for v in (a, b))
        counts.append(int((left != right).sum()))
    return sum(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1280)
    parser.add_argument("--bands", type=int, default=285)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--child", nargs=2, metavar=("SOURCE", "OUTPUT"), default=None)
    asked = parser.parse_args()
    if asked.child is not None:
        fill_lazily(*asked.child)
        return
    shape = (asked.bands, asked.rows, asked.rows * 1242 // 1280)
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        source, lazy, whole = (Path(folder) / n for n in ("scene.nc", "lazy.zarr", "tiles.nc"))
        os.environ["TMPDIR"] = folder
        scene.make(source, shape)
        here = [sys.executable, __file__, "--child", str(source), str(lazy)]
        words = ["fill", str(source), "-o", str(whole), "--method", METHOD]
        words += ["--memory", MEMORY, "--tile", str(TILE)]
        rows = []
        for name, command in (("xarray", here), ("cli", [sys.executable, "-m", "hydiff", *words])):
            load = os.getloadavg()[0]
            seconds, (cpu, peak), *_ = scene.measured(command)
            row = (name, *shape[1:], shape[0], METHOD, MEMORY, TILE)
            rows.append((*row, f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:.0f}", f"{load:.1f}"))
        differ = differences(lazy, whole)
    made = (platform.machine(), hydiff.__version__, version("xarray"), version("dask"))
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(FIELDS)
        writer.writerows((*row[:-1], differ, row[-1], *made) for row in rows)
    print(*rows, f"{differ} entries differ", sep="\n")


if __name__ == "__main__":
    main()
