"""The prior in gaps that are wider than those of its training, by the distance to the data.

    python benchmarks/prior_wide.py [--data ../shared/data]

Clouds and frames of 32 lines in crops of the training images.  As the network has seen these, the
size of the gain means nothing; only its decrease with the distance does.  Writes
benchmarks/results/prior_wide.csv: gain of `prior` over `smooth` in dB, by gap and distance.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import ndimage

import hydiff
from hydiff.auto.classes import EDGES

RESULTS = Path(__file__).parent / "results" / "prior_wide.csv"
SIDE, LINES = 100, slice(34, 66)
DISTANCES = (0, *EDGES, np.inf)  # px


def gaps(data: Path, number: int):
    """Masks (rows, cols), True = measured, by name."""
    clouds = np.load(data / "masks_clouds.npz")["observed"][:, :SIDE, :SIDE]
    share = 1 - clouds.mean(axis=(1, 2))
    some = clouds[(share > 0.1) & (share < 0.5)]
    frame = np.ones((SIDE, SIDE), bool)
    frame[LINES] = False
    return {"clouds": some[7 * number % len(some)], "frame": frame}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    images = np.load(data / "train" / "sentinel2.npz")
    squares, pixels = defaultdict(float), defaultdict(int)
    for number, name in enumerate(n for n in images.files if n.endswith("_1_20m")):
        cube = images[name].astype(float)[:, :SIDE, :SIDE]
        for kind, observed in gaps(data, number).items():
            distance = ndimage.distance_transform_edt(~observed)[~observed]
            group = np.digitize(distance, DISTANCES[1:-1])
            for method in ("smooth", "prior"):
                off = hydiff.fill(cube, observed, method=method).values - cube
                square = (off / cube.std(axis=(1, 2), keepdims=True))[:, ~observed] ** 2
                for g in np.unique(group):
                    squares[kind, g, method] += square[:, group == g].sum()
            for g in np.unique(group):
                pixels[kind, g] += int((group == g).sum())
    with RESULTS.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["gap", "from px", "to px", "pixels", "prior over smooth, dB"])
        for (kind, g), n in sorted(pixels.items()):
            gain = 10 * np.log10(squares[kind, g, "smooth"] / squares[kind, g, "prior"])
            rows.writerow([kind, DISTANCES[g], DISTANCES[g + 1], n, f"{gain:+.2f}"])


if __name__ == "__main__":
    main()
