"""The default fill against its candidates and the classical fills: quality, error bars, time.

    python benchmarks/best.py [--scenes A,B] [--masks A,B] [--noise 0,0.1,band] [--methods A,B]

One row per scene, mask, noise and method is added to benchmarks/results/best.csv; cells that are
there already are not run again.  Scores are those of the missing entries alone, on the scale of
the truth.  Noise is a share of the truth's range; `band` draws one between 0.02 and 0.3 for each
band.  `auto` runs with the budget `fast`.  Scenes come from HYDIFF_DATA.
"""

import argparse
import csv
import os
import sys
import time
from pathlib import Path

import numpy as np

import hydiff
from hydiff import mask, metrics

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))
RESULTS = ROOT / "benchmarks" / "results" / "best.csv"
SCENES = [
    "paris_hyperion_72",
    "chikusei_36",
    "jasper_96",
    "enmap_potsdam_64x96",
    "wdc10_144",
    "cave_toys_144",
    "abu_urban-1_96",
    "abu_airport-1_96",
    "abu_airport-4_96",
    "cave_feathers_144",
    "indian_pines_144",
]
MASKS = [f"published-{i}" for i in (1, 2, 3, 4)]
MASKS += ["stripes", "slc-off", "blobs", "frames", "columns", "pixels"]
METHODS = {
    "harmonic": {"method": "harmonic"},
    "biharmonic": {"method": "biharmonic"},
    "smooth": {"method": "smooth"},
    "smooth-1.5": {"method": "smooth", "s": 1.5},
    "auto": {"method": "auto", "budget": "fast"},
}
KEYS = ("scene", "mask", "noise", "method")


def noisy(truth, noise, rng):
    """The measured cube, and the noise std per band in its unit."""
    span = truth.max() - truth.min()
    shares = (
        rng.uniform(0.02, 0.3, len(truth)) if noise == "band" else np.full(len(truth), float(noise))
    )
    sigma = span * shares
    return truth + sigma[:, None, None] * rng.standard_normal(truth.shape), sigma


def cell(scene, kind, noise, name):
    truth = np.load(DATA / "dev" / f"{scene}.npz")["cube"].transpose(2, 0, 1).astype(np.float64)
    observed = mask.make_mask(kind, truth.shape, None, np.random.default_rng(1))
    measured, sigma = noisy(truth, noise, np.random.default_rng(2))
    missing = ~np.broadcast_to(observed, truth.shape)
    began = time.perf_counter()
    result = hydiff.fill(measured, observed, sigma_y=sigma, **METHODS[name])
    seconds = time.perf_counter() - began
    found = metrics.score(result.values, truth, missing).missing
    row = dict(zip(KEYS, (scene, kind, noise, name), strict=True))
    row |= {key: round(found[key], 4) for key in ("mpsnr", "sam", "nrmse")}
    row |= dict.fromkeys(("expected_mpsnr", "expected_sam", "expected_nrmse"), "")
    row |= dict.fromkeys(metrics.Calibration._fields, "")
    if result.sigma is not None:
        widths = result.recipe["errors"]["intervals"]
        bars = metrics.calibration(
            result.values, truth, np.where(missing, result.sigma, np.nan), widths
        )
        row |= {k: float(f"{v:.4g}") for k, v in bars._asdict().items()}
        row |= {f"expected_{k}": round(v, 4) for k, v in result.expected.items()}
    why = result.notes[0] if name == "auto" else ""
    return row | {"seconds": round(seconds, 2), "why": why, "command": "python benchmarks/best.py"}


def main():
    parser = argparse.ArgumentParser()
    for option, known in (
        ("scenes", SCENES),
        ("masks", MASKS),
        ("noise", ["0"]),
        ("methods", METHODS),
    ):
        parser.add_argument(f"--{option}", default=",".join(known))
    chosen = parser.parse_args()
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[k] for k in KEYS) for row in csv.DictReader(file)}
    for noise in chosen.noise.split(","):
        for scene in chosen.scenes.split(","):
            for kind in chosen.masks.split(","):
                for name in chosen.methods.split(","):
                    if (scene, kind, noise, name) in done:
                        continue
                    row = cell(scene, kind, noise, name)
                    with RESULTS.open("a", newline="") as file:
                        writer = csv.DictWriter(file, row, lineterminator="\n")
                        if file.tell() == 0:
                            writer.writeheader()
                        writer.writerow(row)
                    print(scene, kind, noise, name, row["mpsnr"], row["seconds"], file=sys.stderr)


if __name__ == "__main__":
    main()
