"""Offline training on damaged crops alone, against test-time optimisation.

    python benchmarks/offline.py [--minutes 2] [--lr 1e-4]    adds to results/offline.csv

50 crops of 64 × 64 from the left 97 columns of the bundled scene, each damaged by a part of a
published mask; three of 48 × 48 from the other columns to test on, which no training crop touches.

    HYDIFF_TRAIN=FOLDER python benchmarks/offline.py --crops 300    adds to offline_places.csv

Squares of 144 pixels from the images of FOLDER, .npz files with keys PLACE_DATE_20m, each under a
whole published mask; of the places every fifth is left for the test.  Tested on squares of the
same size: some that were trained on, with the same gaps, and some of places that were not.
"""

import argparse
import csv
import itertools
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

from hydiff import metrics, sample
from hydiff.bench.scenes import damaged_crops, unit
from hydiff.cube import Cube
from hydiff.gaps.mask import make_mask
from hydiff.learn.training import Training, train
from hydiff.learn.weights import weights_of
from hydiff.methods import choose

ROOT = Path(__file__).parents[1]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPLIT = 97  # columns; training to the left, tests to the right
CROPS, SIDE, TEST_SIDE = 50, 64, 48
SQUARE, TESTS = 144, 4  # of the diverse images: pixels of a side; squares to test on, of each kind


def unit_scene():
    values = np.asarray(sample().values, dtype=float)
    return (values - values.min()) / (values.max() - values.min())


def places(folder):
    """Images (bands, rows, cols) on [0, 1] by their place."""
    known = {}
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path) as images:
            for key in (k for k in images.files if "_20m" in k):
                if min(images[key].shape[1:]) >= SQUARE:
                    place = key.split("_")[0]
                    known.setdefault(place, []).append(unit(images[key].astype(float)))
    return known


def squares(images, n, rng):
    """n squares from random places of random images, and what a published mask leaves of each."""
    for i in range(n):
        image = images[rng.integers(len(images))]
        row, col = (rng.integers(side - SQUARE + 1) for side in image.shape[1:])
        truth = image[:, row : row + SQUARE, col : col + SQUARE]
        yield truth, make_mask(f"published-{i % 4 + 1}", truth.shape, None, rng)


def split(folder, crops):
    """Squares to train on, and some of places that were left out."""
    known, rng = places(folder), np.random.default_rng(0)
    left = sorted(known)[::5]
    here = [image for place in known if place not in left for image in known[place]]
    there = [image for place in left for image in known[place]]
    return list(squares(here, crops, rng)), list(squares(there, TESTS, rng))


def damaged(truth, observed):
    return Cube(np.where(observed, truth, np.nan).astype(np.float32))


def trained(cubes, side, minutes, channels, lr):
    """Weights after so many minutes, and the number of updates."""
    start = time.monotonic()
    settings = Training(channels=channels, crop=side, lr=lr)
    for step in train(cubes, settings, device=DEVICE):
        if time.monotonic() - start > 60 * minutes:
            return weights_of(step.state()), step.done
    raise AssertionError("training has no end of its own")


def fitted(truth, observed, seed, settings, initial=None):
    chosen = choose("hydiff-ei", None, settings)
    rng = torch.Generator(DEVICE).manual_seed(seed)
    y = torch.as_tensor(truth * observed, dtype=torch.float32, device=DEVICE)
    given = {} if initial is None else {"initial": initial}
    start = time.perf_counter()
    steps = chosen.inpaint(
        y,
        torch.as_tensor(observed, device=DEVICE),
        torch.zeros(len(truth), device=DEVICE),
        chosen.settings,
        rng=rng,
        **given,
    )
    *_, step = itertools.chain(steps)
    x = step.x.double().cpu().numpy()
    return np.where(observed, truth, x), time.perf_counter() - start


def ways(weights):
    return {
        "trained, one pass": ({"refine": 0}, weights),
        "trained, refine 100": ({"refine": 100}, weights),
        "test time, 100 steps": ({"steps": 100}, None),
        "test time, 1000 steps": ({}, None),
    }


def rows_of(tests, weights, updates, args):
    """A row for each test, a name with its truth and mask, and each way."""
    for (name, mask, truth, observed), way in itertools.product(tests, ways(weights).items()):
        settings, initial = way[1]
        x, seconds = fitted(truth, observed, 0, settings | {"channels": args.channels}, initial)
        row = {
            "crop": name,
            "mask": mask,
            "way": way[0],
            "mpsnr": round(metrics.mpsnr(x, truth), 3),
            "sam": round(metrics.sam(x, truth), 3),
            "seconds": round(seconds, 2),
            "updates": updates if initial is not None else "",
            "minutes": args.minutes if initial is not None else "",
            "lr": args.lr if initial is not None else "",
            "network": f"Skip-Net, {args.channels} channels",
            "device": torch.cuda.get_device_name() if DEVICE == "cuda" else platform.machine(),
            "command": f"benchmarks/offline.py --minutes {args.minutes:g} --lr {args.lr:g}",
        }
        print(*row.values(), flush=True)
        yield row


def on_places(args):
    seen, unseen = split(os.environ["HYDIFF_TRAIN"], args.crops)
    cubes = [damaged(*square) for square in seen]
    weights, updates = trained(cubes, SQUARE, args.minutes, args.channels, args.lr)
    tests = [
        (f"{kind} {i}", f"published-{i % 4 + 1}", *square)
        for kind, of_kind in (("seen", seen[:TESTS]), ("unseen", unseen))
        for i, square in enumerate(of_kind)
    ]
    return [row | {"crops": args.crops} for row in rows_of(tests, weights, updates, args)]


def on_the_bundled_scene(args):
    cubes = damaged_crops(CROPS, SIDE)
    weights, updates = trained(cubes, SIDE, args.minutes, args.channels, args.lr)
    scene, tests = unit_scene(), []
    for i in range(3):
        truth = scene[:, 48 * i : 48 * i + TEST_SIDE, SPLIT : SPLIT + TEST_SIDE]
        observed = make_mask("published-3", truth.shape, None, np.random.default_rng(0))
        tests.append((i, "published-3", truth, observed))
    return list(rows_of(tests, weights, updates, args))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--crops", type=int, default=300, help="of the images of HYDIFF_TRAIN")
    parser.add_argument("--lr", type=float, default=1e-4, help="the paper's, for 1.2 M updates")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    diverse = "HYDIFF_TRAIN" in os.environ
    rows = on_places(args) if diverse else on_the_bundled_scene(args)
    name = "offline_places.csv" if diverse else "offline.csv"
    with (args.out / name).open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
