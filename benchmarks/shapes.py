"""What the errors of the default fill are like beside those it expects, on scenes without noise.

python benchmarks/shapes.py          writes benchmarks/results/shapes.csv

|error| / expected that 50, 80 and 95 % of the hidden entries do not exceed; a Gaussian has 0.67,
1.28 and 1.96.  The scenes are those of `hydiff bench`, the smaller ones.
"""

import csv
from pathlib import Path

import numpy as np

import hydiff
from hydiff.bench import scenes
from hydiff.gaps.mask import columns_needed

RESULTS = Path(__file__).parent / "results" / "shapes.csv"
MASKS = ("published-1", "published-3", "stripes", "blobs", "frames")
LARGEST = 100 * 100  # pixels


def main():
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["scene", "mask", "at_50", "at_80", "at_95"])
        for scene in scenes.available():
            truth = np.asarray(scenes.load(scene))
            if truth[0].size > LARGEST:
                continue
            for mask in (m for m in MASKS if truth.shape[2] >= columns_needed(m)):
                observed = np.broadcast_to(scenes.observed_of(mask, truth.shape), truth.shape)
                found = hydiff.fill(np.where(observed, truth, np.nan), budget="fast", device="cpu")
                errors = found.recipe["errors"]
                if errors["slopes"] is not None:
                    shape = [errors["widening"] * at for at in errors["intervals"]]
                    table.writerow([scene, mask, *(f"{at:.3f}" for at in shape)])
                    file.flush()


if __name__ == "__main__":
    main()
