"""Dependence of the prior on its training images and its network size, at equal steps.

    python benchmarks/prior_ablation.py                      all variants, one after the other
    python benchmarks/prior_ablation.py --variant natural    one; several processes may run at once

Each variant is a small network, trained for `--steps` steps, or `--minutes` if they end first.  Its
fill in one pass is compared with that of `smooth`, on the places that the shipped weights held back
and on the development scenes, which are never used for choices.  Writes rows of
$OUT/prior_ablation.csv (default benchmarks/results), one for each variant and kind of scenes, as
soon as they are known: the mean gain in the gaps in dB, and that of the worst cell.  Crops are at
most 96 × 96 px, with two masks each.
"""

import argparse
import csv
import fcntl
import os
import time
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from hydiff.bench import scenes
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights, weights_file
from hydiff.learn.dead_leaves import drawn
from hydiff.learn.plane_network import LEVELS, WIDTHS, PlaneNetwork
from hydiff.learn.prior_training import PriorTraining, train
from hydiff.learn.training_planes import images_of
from hydiff.methods.prior import Prior, prior
from hydiff.methods.smooth import Smooth, coordinates, smooth
from tables import KINDS

OUT = Path(os.environ.get("OUT", Path(__file__).parent / "results"))
SIDE, MISSING, MASKS = 96, 0.2, ("stripes", "blobs")
HELD = "held back"
FIELDS = [
    *("variant", "images", "width", "steps", "seconds", "scenes", "cells", "gain", "worst"),
    *("device", "torch"),
]


class Variant(NamedTuple):
    source: str = "sentinel2"  # or photographs, shuffled, none
    places: int = 12  # Sentinel-2 places, without the two that are held back
    drawn: int = 0  # number of drawn images (dead leaves)
    width: int = WIDTHS["small"]
    network: type[PlaneNetwork] = PlaneNetwork


class Attending(PlaneNetwork):
    """With self-attention at the coarsest level; it starts as one without."""

    def __init__(self, width):
        super().__init__(width)
        self.attention = nn.MultiheadAttention(width * LEVELS[-1], 4, batch_first=True)
        nn.init.zeros_(self.attention.out_proj.weight)

    def descended(self, inputs):
        x, passed = super().descended(inputs)
        tokens = x.flatten(2).mT
        seen, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return x + seen.mT.view_as(x), passed


VARIANTS = {
    "12 places": Variant(),
    "7 places": Variant(places=7),
    "3 places": Variant(places=3),
    "12 places and drawn images": Variant(drawn=24),
    "drawn images": Variant("none", drawn=96),
    "photographs": Variant("photographs"),
    "shuffled phases": Variant("shuffled"),
    "half the width": Variant(width=WIDTHS["small"] // 2),
    "twice the width": Variant(width=WIDTHS["small"] * 2),
    "attention": Variant(network=Attending),
}
# the photographs in scikit-image; its other images are drawings, pages and slides
PHOTOGRAPHS = (
    *("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "moon"),
    *("motorcycle_left", "rocket"),
)


def training_arrays():
    """Of Sentinel-2, by name: the places to learn from, and the held back ones."""
    about, _ = weights_file.content(prior_weights.packaged("small"), prior_weights.KIND)
    kept = [np.load(path) for path in sorted((scenes.data_folder() / "train").glob("*.npz"))]
    arrays = {name: file[name].astype(float) for file in kept for name in file.files}
    held = {name: a for name, a in arrays.items() if name.split("_")[0] in about["held"]}
    return {name: a for name, a in arrays.items() if name not in held}, held


def photographs():
    """(bands, rows, cols), as they are and averaged by two: colours, or a grey one in three tones
    that are no multiples of one another."""
    import skimage.data
    from skimage.io import imread

    folder = Path(skimage.data.__file__).parent
    there = [path for path in sorted(folder.iterdir()) if path.stem in PHOTOGRAPHS]
    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        more = []
    else:
        more = load_sample_images().images
    for image in (*map(imread, there), *more):
        x = np.asarray(image, float) / 255
        x = np.stack([x, x**0.5, x**2]) if x.ndim == 2 else x[..., :3].transpose(2, 0, 1)
        yield x
        even = x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2]
        yield even.reshape(len(x), even.shape[1] // 2, 2, -1, 2).mean(axis=(2, 4))


def shuffled(x, rng):
    """A texture with the power and cross spectra of an image (bands, rows, cols), without edges."""
    noise = np.fft.rfft2(rng.standard_normal(x.shape[1:]))
    turns = noise / np.abs(noise)
    turns[0, 0] = 1
    return np.fft.irfft2(np.fft.rfft2(x) * turns, s=x.shape[1:])


def images_to_learn(variant, arrays, device):
    """Those of a variant."""
    rng = np.random.default_rng(0)
    places = rng.permutation(sorted({name.split("_")[0] for name in arrays}))[: variant.places]
    own = [a for name, a in arrays.items() if name.split("_")[0] in places]
    sources = {
        "sentinel2": lambda: own,
        "shuffled": lambda: [shuffled(a, rng) for a in own],
        "photographs": lambda: list(photographs()),
        "none": list,
    }
    each = [*sources[variant.source](), *(drawn(rng) for _ in range(variant.drawn))]
    return [images_of("", a, device) for a in each if min(a.shape[1:]) >= SIDE]


def judges(held):
    """Kind of scenes, and the cubes of the unit range that judge it."""
    yield HELD, [a for name, a in held.items() if "20m" in name]
    for kind, names in KINDS.items():
        yield kind, [scenes.load(name) for name in names]


def gains(cubes, network, device):
    """One pass beside `smooth` in the gaps of cubes, dB by cube and mask."""
    for number, cube in enumerate(cubes):
        x = np.asarray(cube[:, :SIDE, :SIDE], float)
        x = (x - x.min()) / np.ptp(x)
        for kind in MASKS:
            observed = make_mask(kind, x.shape, MISSING, np.random.default_rng(number))
            y, quiet, rng = np.where(observed, x, 0.0), np.zeros(len(x)), np.random.default_rng(0)
            c = coordinates(y, observed, quiet, Prior().components)
            plain = next(iter(smooth(y, observed, quiet, Smooth(), rng=rng, given=c)))
            how = {"rng": rng, "device": device, "given": c, "network": lambda: network}
            ours = next(iter(prior(y, observed, quiet, Prior(size="small"), **how)))
            yield mpsnr(ours.x, x, ~observed) - mpsnr(plain.x, x, ~observed)


def mpsnr(estimate, truth, gap):
    square = ((estimate - truth)[:, gap] ** 2).mean(axis=1)
    return float(np.mean(-10 * np.log10(square + 1e-12)))


def write(row):
    """Into the table, in the place of an older row of the same variant and scenes."""
    with (OUT / "prior_ablation.csv").open("a+", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other variants may be writing
        file.seek(0)
        before = list(csv.DictReader(file))
        rows = [r for r in before if (r["variant"], r["scenes"]) != (row["variant"], row["scenes"])]
        order = list(VARIANTS)
        file.truncate(0)
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted([*rows, row], key=lambda r: order.index(r["variant"])))


def run(name, asked, device):
    variant, (arrays, held) = VARIANTS[name], training_arrays()
    amount = {"steps": asked.steps, "masks": asked.masks, "pool": asked.pool}
    settings = PriorTraining(width=variant.width, renew=50, **amount)
    images = images_to_learn(variant, arrays, device)
    began = time.perf_counter()
    for now in train(images, settings, device, made=variant.network):
        step, network = now.step, now.mean
        if time.perf_counter() - began > 60 * asked.minutes:
            break
    about = {"variant": name, "images": len(images), "width": variant.width, "steps": step}
    about["seconds"] = f"{time.perf_counter() - began:.0f}"
    about["device"] = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    about["torch"] = torch.__version__
    network.eval().requires_grad_(False)
    for kind, cubes in judges(held):
        each = list(gains(cubes[: asked.cubes], network, device))
        figures = {"gain": f"{mean(each):.3f}", "worst": f"{min(each):.3f}"}
        write(about | {"scenes": kind, "cells": len(each)} | figures)
    print(about | figures, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=VARIANTS, help="one alone; without it, all")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--minutes", type=float, default=8.0, help="of a training at most")
    parser.add_argument("--masks", type=int, default=16, help="of a batch")
    parser.add_argument("--pool", type=int, default=96, help="masks at hand: 100 MB each, in fp32")
    parser.add_argument("--cubes", type=int, help="of each kind of scenes at most")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    for name in [asked.variant] if asked.variant else VARIANTS:
        run(name, asked, device)


if __name__ == "__main__":
    main()
