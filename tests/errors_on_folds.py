"""Trials with given errors, for tests of what follows from them: weights, error bars, notes."""

import numpy as np

from hydiff.auto.classes import Around, ClassCounts, D, T
from hydiff.auto.trials import Trial

# all entries to fill are of class 0
ONE_CLASS = ClassCounts(np.bincount([0], minlength=D * T), np.zeros(2))


def trial(residual, **fields):
    """A trial of one band, class and hidden piece, without noise, whose errors (M, n) are given;
    the other fields by name."""
    n = residual.shape[1]
    zero, one = np.zeros(n, int), np.ones(n)
    usual = Trial(
        residual=residual,
        band=zero,
        group=zero,
        distance=zero,
        around=np.zeros((len(Around._fields), n)),
        noise=np.zeros(n),
        signal=one,
        angle=np.ones((2, n)),
        step=np.zeros_like(residual),
        gap=zero,
    )
    return usual._replace(**fields)
