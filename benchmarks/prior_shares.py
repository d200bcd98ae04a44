"""The share of the prior in the blend at the start, and when other shares replace it.

    python benchmarks/prior_shares.py      places held back from its training, 2 CPU minutes

For crops of 80 × 80 px with simulated gaps: the candidates of a CPU on hidden copies of the gaps,
and in the gaps themselves.  Writes benchmarks/results/prior_shares.csv with one row for each rule:
the mean gain over `smooth`, the worst gain, and the regret against the best single candidate, in
dB.  A rule starts with a share, and replaces it by the best one on the folds if that gains more by
a given number of standard errors; without a number, the share is never replaced.
"""

import csv
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from hydiff.auto import blend
from hydiff.auto.candidates import CLASSICAL, PRIOR, PRIOR_FOLDS
from hydiff.auto.classes import class_counts, distance_class, groups
from hydiff.auto.trials import (
    TrialWindow,
    folds_of,
    hidden_pixels,
    one_pass,
    own_fits,
    trial_of,
    with_costly,
)
from hydiff.cube import as_cube
from hydiff.gaps.mask import make_mask
from hydiff.methods.estimate import Job
from prior_parts import MASKS, SIDE, held_back

RESULTS = Path(__file__).parent / "results" / "prior_shares.csv"
JOB = Job(0, "cpu")
CANDIDATES = (*CLASSICAL, PRIOR)
FOLDS, MISSING = 8, 0.2
RULES = [(share, doubt) for share in (0.5, 0.7, 0.8, 0.9, 1.0) for doubt in (1.0, None)]


class Case:
    """A crop: what the candidates do on its folds, and their errors in its gaps."""

    def __init__(self, truth, observed):
        truth = truth / np.ptp(truth)
        seen = np.broadcast_to(observed, truth.shape)
        cube, target = as_cube(np.where(seen, truth, np.nan)), ~seen
        window, hidden = TrialWindow(cube, seen, target), folds_of(cube, seen, FOLDS, 0)
        first = [(0, fold) for fold in hidden[:PRIOR_FOLDS]]
        *tried, own = one_pass([PRIOR], [PRIOR], [window], first, 0.0, JOB, 1)[PRIOR.name]
        self.trials = [trial_of(cube, seen, fold, CANDIDATES, 0.0, JOB) for fold in hidden]
        for i, fit in enumerate(tried):
            last = len(CLASSICAL)
            self.trials[i] = with_costly(
                self.trials[i], {last: fit.values[:, hidden_pixels(hidden[i])]}, window, hidden[i]
            )
        plain = own_fits(CLASSICAL, cube, seen, 0.0, JOB)
        values = np.stack([one.values for one in (*plain, own)])
        self.kinds, self.residual = class_counts([window]), (values - truth)[:, target]
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
        with patch.object(blend, "ELSEWHERE", share), patch.object(blend, "DOUBT_ELSEWHERE", doubt):
            weights = blend.weights_of(self.trials, self.kinds, CANDIDATES, 0).all
        mixed = (weights[:, self.distance, self.group] * self.residual).sum(axis=0)
        single = [self.mpsnr(one) for one in self.residual]
        return self.mpsnr(mixed) - single[0], max(single) - self.mpsnr(mixed)


def crops():
    """Three masks in turn on two corners of each image: truth, observed."""
    for i, (_, x) in enumerate(held_back()):
        for j, mask in enumerate(MASKS):
            if (i + j) % 2 == 0:
                part = x[:, :SIDE, :SIDE] if (i + j) % 4 else x[:, -SIDE:, -SIDE:]
                yield part, make_mask(mask, part.shape, MISSING, np.random.default_rng(10 * i + j))


def main():
    torch.set_num_threads(1)
    cases = [Case(*crop) for crop in crops()]
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["share", "standard_errors", "crops", "gain", "worst", "regret"])
        for share, doubt in RULES:
            gain, regret = np.array([case.by(share, doubt) for case in cases]).T
            shown = f"{gain.mean():.3f}", f"{gain.min():.3f}", f"{regret.mean():.3f}"
            table.writerow([f"{100 * share:.0f} %", doubt or "never", len(cases), *shown])


if __name__ == "__main__":
    main()
