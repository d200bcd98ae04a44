"""The share of the prior in the blend at the start, and when other shares replace it.

    python benchmarks/prior_shares.py      places held back from its training, 8 CPU minutes

For crops of 30 to 80 px with simulated gaps, a third of them with noise: the candidates of a CPU on
hidden copies of the gaps, and in the gaps themselves.  Writes benchmarks/results/prior_shares.csv
with one row for each rule: the mean gain over `smooth`, its change from the first rule with its
standard error, the worst gain, and the regret against the best single candidate, in dB.  A rule
starts with a share, and replaces it by the best one on the folds if that gains more by a given
number of standard errors; without a number, the share is never replaced.
"""

import csv
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from hydiff.auto import blend
from hydiff.auto.candidates import CLASSICAL, PRIOR, PRIOR_FOLDS
from hydiff.auto.classes import class_counts, distance_class, groups
from hydiff.auto.fits import own_fits, pretrained_fits
from hydiff.auto.folds import TrialWindow, folds_of
from hydiff.auto.trials import BareWindow, hidden_pixels, trial_of, with_costly
from hydiff.cube import as_cube
from hydiff.gaps.mask import make_mask
from hydiff.methods.estimate import Job
from prior_parts import held_back

RESULTS = Path(__file__).parent / "results" / "prior_shares.csv"
JOB = Job(0, "cpu")
CANDIDATES = (*CLASSICAL, PRIOR)
FOLDS, MISSING = 8, 0.2
SIDES, MASKS, NOISE = (30, 44, 56, 80), ("stripes", "blobs", "tiles", "slc-off"), (0.05, 0.1, 0.2)
RULES = list(product((0.9, 0.8, 0.95, 1.0), (1.0, 2.0, None)))
FIELDS = ["share", "standard_errors", "crops", "gain", "change", "error", "worst", "regret"]


class Case:
    """A crop: what the candidates do on its folds, and their errors in its gaps."""

    def __init__(self, truth, observed, sigma, rng):
        truth = truth / np.ptp(truth)
        seen, sigma_y = np.broadcast_to(observed, truth.shape), np.full(len(truth), sigma)
        y = truth + sigma * rng.standard_normal(truth.shape)
        cube, target = as_cube(np.where(seen, y, np.nan)), ~seen
        window, hidden = TrialWindow(cube, seen, target), folds_of(cube, seen, FOLDS, 0)
        first = [(0, fold) for fold in hidden[:PRIOR_FOLDS]]
        *tried, own = pretrained_fits([PRIOR], [PRIOR], [window], first, sigma_y, JOB, 1)[
            PRIOR.name
        ]
        bare = BareWindow(cube, seen)
        self.trials = [trial_of(bare, fold, CANDIDATES, sigma_y, JOB) for fold in hidden]
        for i, fit in enumerate(tried):
            last = len(CLASSICAL)
            self.trials[i] = with_costly(
                self.trials[i], {last: fit.values[:, hidden_pixels(hidden[i])]}, window, hidden[i]
            )
        plain = own_fits(CLASSICAL, cube, seen, sigma_y, JOB)
        values = np.stack([one.values for one in (*plain, own)])
        self.counts, self.residual = class_counts([window]), (values - truth)[:, target]
        self.band = np.nonzero(target)[0]
        self.distance = np.broadcast_to(distance_class(observed), truth.shape)[target]
        self.group = groups(len(truth))[self.band]

    def mpsnr(self, residual):
        count = np.bincount(self.band)
        square = np.bincount(self.band, residual**2)[count > 0] / count[count > 0]
        return float(np.mean(-10 * np.log10(square + 1e-12)))

    def by(self, share, doubt):
        """Gain and regret of a rule."""
        doubt = np.inf if doubt is None else doubt
        with patch.object(blend, "ELSEWHERE", share), patch.object(blend, "DOUBT", doubt):
            weights = blend.weights_of(self.trials, self.counts, CANDIDATES, 0).all
        mixed = (weights[:, self.distance, self.group] * self.residual).sum(axis=0)
        single = [self.mpsnr(one) for one in self.residual]
        return self.mpsnr(mixed) - single[0], max(single) - self.mpsnr(mixed)


def cases():
    """Each image with each side, with two of the masks in turn; every third crop has noise."""
    crops = [(x, side, j) for _, x in held_back() for side in SIDES for j in range(2)]
    for i, (x, side, j) in enumerate(crops):
        rng = np.random.default_rng(i)
        row, col = (rng.integers(n - side + 1) for n in x.shape[1:])
        part, mask = x[:, row : row + side, col : col + side], MASKS[(i // 2 + 2 * j) % len(MASKS)]
        observed = make_mask(mask, part.shape, MISSING, rng)
        yield Case(part, observed, 0.0 if i % 3 else NOISE[i // 3 % len(NOISE)], rng)


def main():
    torch.set_num_threads(1)
    each = list(cases())
    before = None
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(FIELDS)
        for share, doubt in RULES:
            gain, regret = np.array([case.by(share, doubt) for case in each]).T
            before = gain if before is None else before
            change = gain - before
            figures = (gain.mean(), change.mean(), change.std() / len(gain) ** 0.5, gain.min())
            shown = [f"{figure:.3f}" for figure in (*figures, regret.mean())]
            table.writerow([f"{100 * share:.0f} %", doubt or "never", len(each), *shown])


if __name__ == "__main__":
    main()
