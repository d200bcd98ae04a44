"""Gain by the number of steps, of the prior's network tuned on moved copies of the cube.

    python benchmarks/tuned.py            small scenes on a CPU, some minutes; adds missing rows
    python benchmarks/tuned.py --whole    the complete development scenes, on a GPU
    python benchmarks/tuned.py --figure   draws docs/tuned.png from the rows

Tuning is `start=prior`.  Appends to benchmarks/results/tuned.csv: the MPSNR of the gaps in dB minus
that of `smooth`, of the network before any step (0 steps) and of the mean of the fills before and
after the steps; CPU seconds.  No noise, one seed.
"""

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch

import hydiff
from hydiff import metrics
from hydiff.bench import records, scenes
from hydiff.gaps.mask import make_mask
from prior_parts import held_back

RESULTS = Path(__file__).parent / "results" / "tuned.csv"
FIGURE = Path(__file__).parents[1] / "docs" / "tuned.png"
FIELDS = ["scene", "mask", "rows", "cols", "size", "steps", "over_smooth", "cpu", "device"]
SMALL = {
    ("chikusei_36", "blobs"): 36,
    ("chikusei_36", "stripes"): 36,
    ("brasilia_1_20m", "stripes"): 56,
    ("paris_hyperion_72", "stripes"): 56,
    ("enmap_potsdam_64x96", "blobs"): 56,
}
WHOLE = ("stripes", "blobs", "frames")
STEPS = {"small": (0, 30, 100, 200), "full": (0, 100, 300)}


def cases(whole):
    """Scene, mask, truth (bands, rows, cols), observed (rows, cols)."""
    if whole:
        for scene, mask in product((s for s in scenes.available() if "_img" not in s), WHOLE):
            truth = np.asarray(scenes.load(scene), dtype=np.float64)
            yield scene, mask, truth, scenes.observed_of(mask, truth.shape)
        return
    trained = dict(held_back())
    for (scene, mask), side in SMALL.items():
        truth = trained[scene] if scene in trained else scenes.load(scene)
        truth = np.asarray(truth, dtype=np.float64)[:, :side, :side]
        yield scene, mask, truth, make_mask(mask, truth.shape, 0.2, np.random.default_rng(5))


def score(truth, observed, method, **how):
    values = hydiff.fill(truth, observed, method=method, **how).values
    return metrics.score(values, truth, np.broadcast_to(~observed, truth.shape)).missing["mpsnr"]


def gain(truth, observed, size, steps, device):
    """In dB over `smooth`, before any step or after so many."""
    if steps:
        how = {"start": "prior", "steps": steps, "examples": 1}
        found = score(truth, observed, "anchored", size=size, device=device, **how)
    else:
        found = score(truth, observed, "prior", size=size, symmetries=8, device=device)
    return found - score(truth, observed, "smooth")


def measure(whole, sizes, only):
    device = "cuda" if whole else "cpu"
    name = torch.cuda.get_device_name() if whole else "CPU"
    done = {
        tuple(r[k] for k in ("scene", "mask", "size", "steps", "device"))
        for r in records.read(RESULTS)
    }
    for scene, mask, truth, observed in cases(whole):
        for size, steps in ((s, n) for s in sizes for n in STEPS[s]):
            if (only and scene not in only) or (scene, mask, size, str(steps), name) in done:
                continue
            began = time.process_time()
            over = gain(truth, observed, size, steps, device)
            row = dict(zip(FIELDS, (
                scene, mask, *truth.shape[1:], size, steps, f"{over:.3f}",
                f"{time.process_time() - began:.1f}", name,
            ), strict=True))  # fmt: skip
            records.append(RESULTS, row, FIELDS)
            print(row, flush=True)


def draw():
    """Gain of the steps over the untaught network: a thin line for each scene, and the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    found = [r for r in records.read(RESULTS) if r["device"] != "CPU"]
    masks = list(dict.fromkeys(r["mask"] for r in found))
    for axes, mask in zip(figure.subplots(1, len(masks), sharey=True), masks, strict=True):
        each = []
        for scene in dict.fromkeys(r["scene"] for r in found):
            own = [r for r in found if (r["scene"], r["mask"]) == (scene, mask)]
            steps, over = (np.array([float(r[k]) for r in own]) for k in ("steps", "over_smooth"))
            order = np.argsort(steps)
            each.append(over[order] - over[order][0])
            axes.plot(steps[order], each[-1], color="0.7", lw=0.9)
        axes.plot(steps[order], np.mean(each, axis=0), "k-o", ms=4)
        axes.axhline(0, color="0.4", lw=0.6, ls=":")
        axes.set(title=f"{mask}, {len(each)} scenes", xlabel="steps")
    figure.axes[0].set_ylabel("dB over the network\nbefore any step")
    figure.savefig(FIGURE, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--size", nargs="*", default=["small"])
    parser.add_argument("--scene", nargs="*", default=[], help="only these")
    args = parser.parse_args()
    if args.figure:
        draw()
        return
    measure(args.whole, args.size, args.scene)


if __name__ == "__main__":
    main()
