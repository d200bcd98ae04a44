"""Quality and time of the classical fills on two real scenes.

    python benchmarks/classical.py            writes benchmarks/results/classical.csv

Scale: the 0.01 and 99.9 percentiles of the scene, clipped.
MPSNR is taken over all pixels, with the observed ones restored.  Scenes come from HYDIFF_DATA.
"""

import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

from hydiff import metrics
from hydiff.bench import records
from hydiff.methods import METHODS, choose

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))
RESULTS = ROOT / "benchmarks" / "results" / "classical.csv"

CASES = [
    *(("indian_pines_144", mask) for mask in ("stripes_144_s3", "blobs_144_s3")),
    *(("abu_urban-1_96", mask) for mask in ("stripes_96_s3", "blobs_96_s3")),
]
FILLS = [("harmonic", {}), ("biharmonic", {})]
FILLS += [("smooth", {"s": s}) for s in (1.0, 1.25, 1.5, 1.75, 2.0)]
FILLS += [(name, {}) for name in METHODS if name in ("bandmean", "nearest", "linear", "idw")]


def scene(name):
    """(bands, rows, cols) on the unit range."""
    cube = np.load(DATA / "dev" / f"{name}.npz")["cube"].transpose(2, 0, 1).astype(float)
    low, high = np.percentile(cube, [0.01, 99.9])
    return np.clip((cube - low) / (high - low), 0, 1)


def timed_fill(name, overrides, truth, observed, repeats=3):
    """The fill, and the median time of some runs in seconds."""
    chosen, times = choose(name, None, overrides), []
    for _ in range(repeats):
        start = time.perf_counter()
        *_, step = chosen.inpaint(
            truth * observed,
            observed,
            np.zeros(len(truth)),
            chosen.settings,
            rng=np.random.default_rng(0),
        )
        times.append(time.perf_counter() - start)
    return step.x, sorted(times)[repeats // 2]


def rows():
    masks = np.load(DATA / "masks.npz")
    for name, mask in CASES:
        truth, observed = scene(name), masks[mask]
        for method, overrides in FILLS:
            x, seconds = timed_fill(method, overrides, truth, observed)
            found = metrics.score(x, truth, ~observed)
            yield {
                "scene": name,
                "mask": mask,
                "method": method,
                "s": overrides.get("s", ""),
                "mpsnr": round(metrics.mpsnr(x, truth), 3),
                "sam": round(metrics.sam(x, truth), 3),
                "nrmse_missing": round(found.missing["nrmse"], 4),
                "seconds": round(seconds, 3),
                "bands_rows_cols": "x".join(map(str, truth.shape)),
                "device": f"{os.cpu_count()} CPU cores, {platform.machine()}",
                "command": " ".join(["python", *sys.argv]),
            }


def main():
    made = []
    for row in rows():
        made.append(row)
        shown = ("scene", "mask", "method", "s", "mpsnr", "seconds")
        print(*(f"{row[k]!s:>16}" for k in shown))
    records.write(RESULTS, made)
    print(f"written to {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
