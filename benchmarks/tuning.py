"""Do networks that learn from the cube improve on the prior, on places held back from its training?

    python benchmarks/tuning.py [--part I --of N]    on a GPU, a minute in six parts side by side

Appends to benchmarks/results/tuning.csv: for squares of 144 × 144 px with simulated gaps, without
noise or with σ 0.1 or 0.3 of the range, the MPSNR of the gaps and of all entries, minus those of
`smooth`, in dB.  The rows: one pass of the prior with eight symmetries; the prior tuned by a number
of steps at a multiple of the usual learning rate; a network that starts untrained (`anchored`); and
the means of two of these.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import hydiff
from hydiff import metrics
from hydiff.bench import records
from hydiff.gaps.mask import make_mask
from hydiff.methods import tuned
from prior_parts import held_back

RESULTS = Path(__file__).parent / "results" / "tuning.csv"
SIDE, MISSING = 144, 0.2
MASKS = ("stripes", "blobs", "slc-off")
TUNED = [(0.2, 300), (0.5, 150)]  # rate, steps
FIELDS = ["place", "mask", "sigma_y", "fill", "missing", "all", "device"]


def cases():
    """Place, mask, σ, truth on the unit range (bands, rows, cols), what of it is observed."""
    for i, (place, x) in enumerate(held_back()):
        x = x[:, :SIDE, :SIDE]
        x = (x - x.min()) / np.ptp(x)
        for j, mask in enumerate(MASKS):
            observed = make_mask(mask, x.shape, MISSING, np.random.default_rng(10 * i + j))
            yield place, mask, (0.0, 0.1, 0.0, 0.3)[(i + j) % 4], x, observed


def fills(y, observed, sigma):
    """Name and cube (bands, rows, cols) of each fill; `smooth` first."""

    def by(method, **settings):
        where = {} if method == "smooth" else {"device": "cuda"}
        return hydiff.fill(
            y, observed, method=method, sigma_y=sigma, denoise=sigma > 0, **where, **settings
        ).values

    found = {"smooth": by("smooth"), "prior": by("prior", symmetries=8)}
    for rate, steps in TUNED:
        lr = 1e-3 * rate / tuned.RATE
        how = {"start": "prior", "steps": steps, "examples": 1, "lr": lr}
        found[f"tuned, {rate} × {steps}"] = last = by("anchored", **how)
    found["anchored"] = by("anchored", steps=800)
    found["prior and anchored"] = (found["prior"] + found["anchored"]) / 2
    found["tuned and anchored"] = (last + found["anchored"]) / 2
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    for place, mask, sigma, truth, observed in [*cases()][args.part :: args.of]:
        y = truth + sigma * np.random.default_rng(0).standard_normal(truth.shape)
        hidden, usual = np.broadcast_to(~observed, truth.shape), None
        for name, x in fills(y, observed, sigma).items():
            score = metrics.score(x, truth, hidden)
            both = np.array([score.missing["mpsnr"], score.everywhere["mpsnr"]])
            usual = both if usual is None else usual
            missing, every = (f"{gain:.3f}" for gain in both - usual)
            row = (place, mask, sigma, name, missing, every, torch.cuda.get_device_name())
            records.append(args.out, dict(zip(FIELDS, row, strict=True)), FIELDS)


if __name__ == "__main__":
    main()
