"""Does the note about `sigma_y` appear if and only if it is far from the noise of the values?

    python benchmarks/noise_doubts.py         writes benchmarks/results/noise_doubts.csv

White noise is added to crops of the Sentinel-2 images for training and to the development scenes,
with gaps of several kinds; then the true std, twice and half of it are given.
"""

import numpy as np

from hydiff.bench import scenes
from hydiff.cube import Cube, unit_scale
from hydiff.gaps.mask import make_mask
from hydiff.maths.noise_level import doubts
from usual import write

STDS = (0.003, 0.01, 0.03, 0.1, 0.3)  # of the unit range
FACTORS = (1.0, 2.0, 0.5)  # of the true std
KINDS = ("stripes", "blobs", "columns", "pixels")


def crops(rng):
    """Yield (name, values): two crops of 40 to 160 pixels of each image, all bands and some."""
    for name in ("sentinel2", "sentinel2_corners"):
        with np.load(scenes.data_folder() / "train" / f"{name}.npz") as images:
            for image in (images[key].astype(float) for key in images.files):
                for some in (False, True):
                    side = min(int(rng.integers(40, 161)), *image.shape[1:])
                    top, left = (int(rng.integers(n - side + 1)) for n in image.shape[1:])
                    count = int(rng.integers(1, len(image) + 1)) if some else len(image)
                    bands = np.sort(rng.choice(len(image), count, replace=False))
                    few = "1 to 4 bands" if count < 5 else "5 to 10 bands"
                    window = image[bands, top : top + side, left : left + side]
                    yield f"Sentinel-2, {few}", window


def judging():
    """Yield (name, values) of the development scenes, on which nothing was decided."""
    for path in sorted((scenes.data_folder() / "dev").glob("*.npz")):
        with np.load(path) as arrays:
            yield "development scenes", arrays["cube"].transpose(2, 0, 1).astype(float)


def main():
    rng, noted = np.random.default_rng(0), {}
    for name, clean in (*crops(rng), *judging()):
        observed = make_mask(str(rng.choice(KINDS)), clean.shape, 0.25, rng)
        observed = np.broadcast_to(observed, clean.shape)
        span = unit_scale(clean, observed, np.ones(len(clean), bool)).span
        for std in STDS:
            values = clean + std * span * rng.standard_normal(clean.shape)
            cube = Cube(np.where(observed, values, 0.0))
            given = [bool(doubts(factor * std * span, cube, observed)) for factor in FACTORS]
            noted.setdefault((name, std), []).append(given)
    rows = []
    for (name, std), given in sorted(noted.items()):
        true, twice, half = 100 * np.mean(given, axis=0)
        cells = {"images": name, "noise in % of the range": 100 * std, "cubes": len(given)}
        rows.append(cells | {"noted % true": true, "noted % twice": twice, "noted % half": half})
    write("noise_doubts.csv", rows)


if __name__ == "__main__":
    main()
