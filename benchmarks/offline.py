"""Offline training on damaged crops alone, against test-time optimisation.

    python benchmarks/offline.py [--minutes 2] [--lr 1e-4]    adds to results/offline.csv

50 crops of 64 × 64 from the left 97 columns of the bundled scene, each damaged by a part of a
published mask; three of 48 × 48 from the other columns to test on, which no training crop touches.
"""

import argparse
import csv
import itertools
import platform
import time
from pathlib import Path

import numpy as np
import torch

from hydiff import metrics, sample
from hydiff.bench.scenes import damaged_crops
from hydiff.gaps.mask import make_mask
from hydiff.learn.training import Training, train
from hydiff.learn.weights import weights_of
from hydiff.methods import choose

ROOT = Path(__file__).parents[1]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPLIT = 97  # columns; training to the left, tests to the right
CROPS, SIDE, TEST_SIDE = 50, 64, 48


def unit_scene():
    values = np.asarray(sample().values, dtype=float)
    return (values - values.min()) / (values.max() - values.min())


def trained(minutes, channels, lr):
    """Weights after so many minutes, and the number of updates."""
    start = time.monotonic()
    settings = Training(channels=channels, crop=SIDE, lr=lr)
    for step in train(damaged_crops(CROPS, SIDE), settings, device=DEVICE):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-4, help="the paper's, for 1.2 M updates")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    scene = unit_scene()
    weights, updates = trained(args.minutes, args.channels, args.lr)
    ways = {
        "trained, one pass": ({"refine": 0}, weights),
        "trained, refine 100": ({"refine": 100}, weights),
        "test time, 100 steps": ({"steps": 100}, None),
        "test time, 1000 steps": ({}, None),
    }
    rows = []
    for i, (name, (settings, initial)) in itertools.product(range(3), ways.items()):
        truth = scene[:, 48 * i : 48 * i + TEST_SIDE, SPLIT : SPLIT + TEST_SIDE]
        observed = make_mask("published-3", truth.shape, None, np.random.default_rng(0))
        x, seconds = fitted(truth, observed, 0, settings | {"channels": args.channels}, initial)
        rows.append(
            {
                "crop": i,
                "mask": "published-3",
                "way": name,
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
        )
        print(*rows[-1].values(), flush=True)
    with (args.out / "offline.csv").open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
