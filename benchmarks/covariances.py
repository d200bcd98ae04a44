"""`smooth` by tiles: covariances fitted in each tile, or once for the scene.

    python benchmarks/covariances.py [scene tile power]     three minutes of CPU each

Adds to benchmarks/results/covariances.csv.

The scene of `scene.py` at 448 × 448 × 60, a fifth of it missing.  All runs use the scale and the
components of the whole scene.  The covariance of a component is fitted in the window of each tile
(`tile`), or to the variogram of the whole scene (`scene`); `power` uses one power law for all
components (`--set s=1.5`), which needs no fit.
"""

import csv
import sys
import time
from pathlib import Path

import numpy as np

from hydiff.cube import unit_scale
from hydiff.gaps import mask
from hydiff.maths import subspace, variogram
from hydiff.methods import smooth
from hydiff.scale import tiles
from hydiff.scale.layout import inside
from scene import border_ratio, gaps, truth

RESULTS = Path(__file__).parent / "results" / "covariances.csv"
SHAPE = (60, 448, 448)
FIELDS = ["covariances", "tile", "mpsnr_missing", "border_ratio", "cpu_seconds"]


def filled(z, known, width, size, covariances):
    """(K, rows, cols) the blended tiles; `covariances` of a window's z and known, or None."""
    cuts, pieces = tiles.grid(known.shape, size), []
    for tile in tiles.plan(cuts, width):
        part, seen = z[(slice(None), *tile.window)], known[tile.window]
        own = covariances or variogram.fit_covariances(part, seen)
        f = smooth.krige(part, seen, own, 0.0)[(slice(None), *inside(tile.support, tile.window))]
        rows, cols = np.nonzero(~known[tile.support])
        weight = tiles.weights(cuts, tile)[rows, cols]
        at = rows + tile.support[0].start, cols + tile.support[1].start
        pieces.append(tiles.Piece(*at, weight, f[:, rows, cols]))
    everything = slice(0, known.shape[0]), slice(0, known.shape[1])
    return np.where(known, z, tiles.overlap_add(everything, len(z), pieces)), cuts


def main():
    right = truth(slice(0, SHAPE[1]), SHAPE).transpose(2, 0, 1).astype(float)
    known = gaps(SHAPE)
    scale = unit_scale(right, np.broadcast_to(known, SHAPE), np.ones(len(right), bool))
    y = np.where(known, scale.to_unit(right), 0.0)
    space = subspace.fit(y[:, known], np.ones((len(y), known.sum()), bool), 24)
    z = np.where(known, space.project(y), 0.0)
    width = np.where(known, 0.0, mask.thickness(~known))
    kinds = {
        "scene": variogram.fit_covariances(z, known),
        "tile": None,
        "power": [variogram.Covariance(1.5, np.inf, 1.0, 0.0)] * len(z),
    }
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(FIELDS)
        for size in (96, 192, 144):
            for name in sys.argv[1:] or kinds:
                covariances = kinds[name]
                began = time.process_time()
                f, cuts = filled(z, known, width, size, covariances)
                spent = time.process_time() - began
                error = (scale.from_unit(space.reconstruct(f)) - right) ** 2
                peak = np.ptp(right) ** 2
                mpsnr = np.mean(10 * np.log10(peak / error[:, ~known].mean(axis=1)))
                ratio = border_ratio(error.mean(axis=0), known, cuts)
                row = (name, size, f"{mpsnr:.3f}", f"{ratio:.3f}", f"{spent:.0f}")
                writer.writerow(row)
                file.flush()
                print(dict(zip(FIELDS, row, strict=True)), flush=True)


if __name__ == "__main__":
    main()
