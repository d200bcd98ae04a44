"""How much context the trained network needs around a tile.

    python benchmarks/prior_context.py [--data ../shared/data]

A square of 32 px in the middle of images of 224 px is filled from a window that extends beyond it
by so many px.  Components and units are those of the whole image, as in a scene; fields and network
see the window alone.  The images are those of the training, so only differences mean something.
Writes benchmarks/results/prior_context.csv: the squared error of the network's components in the
gaps of the square relative to that with a context of 96 px, in dB, and the RMS difference of both
fills relative to the error.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from hydiff.gaps.mask import make_mask
from hydiff.learn.prior_weights import network_of
from hydiff.methods.prior import (
    NetworkInput,
    Prior,
    Symmetric,
    UnitPlanes,
    corrected_planes,
    fields_through,
    noise_of,
    parts_of,
    planes_of,
)
from hydiff.methods.smooth import coordinates

RESULTS = Path(__file__).parent / "results" / "prior_context.csv"
CORE = slice(96, 128)  # with contexts in multiples of 8, the grids of all levels agree
CONTEXTS = (0, 8, 16, 32, 64, 96)
DEVICE = torch.device("cpu")


def window(parts, unit, complete, context):
    """The network's input for the square and its context."""
    at = slice(CORE.start - context, CORE.stop + context)
    planes, known = unit.planes[:, at, at], complete[at, at]
    cut = parts._replace(p=parts.p[:, at, at], f=parts.f[:, at, at])
    fields = fields_through(planes, known, DEVICE, {})
    units = UnitPlanes(planes, unit.mean, unit.scale)
    return NetworkInput(cut, known, units, noise_of(parts, unit), fields)


def filled(parts, unit, complete, context, network):
    """(k, 32, 32) components of the square."""
    planes = corrected_planes(window(parts, unit, complete, context), network)
    inside = slice(context, context + CORE.stop - CORE.start)
    return planes[:, inside, inside]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    images = np.load(parser.parse_args().data / "train" / "sentinel2.npz")
    settings = Prior()
    network = Symmetric(network_of(settings.file(), "cpu"), 1)
    error, apart, count = defaultdict(float), defaultdict(float), defaultdict(int)
    for number, name in enumerate(n for n in images.files if n.endswith("_1_10m")):
        truth = images[name].astype(float)
        truth /= truth.max()
        noise = np.zeros(len(truth))
        for mask in ("stripes", "blobs"):
            observed = make_mask(mask, truth.shape, 0.25, np.random.default_rng(number))
            y = np.where(observed, truth, 0.0)
            c = coordinates(y, observed, noise, settings.components, settings.space)
            parts = parts_of(c, settings.planes)
            unit = planes_of(parts.p, c.complete)
            everywhere = np.ones(observed.shape, bool)
            known = coordinates(truth, everywhere, noise, settings.components, c.space)
            true = np.tensordot(parts.axes[parts.some], known.z, 1)[:, CORE, CORE]
            gap = ~c.complete[CORE, CORE]
            fills = {n: filled(parts, unit, c.complete, n, network) for n in CONTEXTS}
            for n, fill in fills.items():
                error[mask, n] += ((fill - true)[:, gap] ** 2).sum()
                apart[mask, n] += ((fill - fills[CONTEXTS[-1]])[:, gap] ** 2).sum()
                count[mask, n] += int(gap.sum())
    with RESULTS.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["gap", "context, px", "pixels", "more error, dB", "difference / error"])
        for (mask, n), pixels in count.items():
            least = error[mask, CONTEXTS[-1]]
            worse, share = 10 * np.log10(error[mask, n] / least), (apart[mask, n] / least) ** 0.5
            rows.writerow([mask, n, pixels, f"{worse:.3f}", f"{share:.4f}"])


if __name__ == "__main__":
    main()
