"""Fits of the candidates: to the cube itself, and to what is left of it when a fold is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hydiff.auto.candidates import Candidate, chosen, on_folds
from hydiff.auto.folds import TrialWindow
from hydiff.cube import Bools, Cube
from hydiff.maths.noise_level import Sigma
from hydiff.methods.estimate import (
    Estimate,
    Job,
    estimate_each,
    estimates,
    estimating,
)


def crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    """Return the estimates of a network that is fitted to each part, side by side on a GPU."""
    runs = [estimating(cube, observed, chosen(c), sigma_y, job) for cube, observed in parts]
    return estimates(runs, job.device, job.deterministic)


def pretrained_fits(
    several: Sequence[Candidate],
    own: Sequence[Candidate],
    windows: Sequence[TrialWindow],
    hidden: Sequence[tuple[int, Bools]],
    sigma_y: Sigma,
    job: Job,
    at_once: int,
) -> dict[str, list[Estimate]]:
    """Return the estimates of pretrained networks, by candidate, `at_once` runs at a time.

    Each has one estimate per fold in `hidden` (number of the window, entries to hide), by the
    network before it is tuned; those in `own` have one more at the end, of the first window itself
    if it has entries to fill.
    """
    settings = on_folds(job)
    tried = [chosen(c.untuned, **settings) for c in several]

    def fits_of(fold: tuple[int, Bools]) -> list[Estimate]:
        (cube, observed, *_), hide = windows[fold[0]], fold[1]
        return estimate_each(cube, observed & ~hide, tried, sigma_y, job)

    first = windows[0]
    wanted = own if first.target.any() else ()
    with ThreadPoolExecutor(at_once) as pool:
        # submitted first, because tuning takes longer than a fold
        later = pool.submit(own_fits, wanted, first.cube, first.observed, sigma_y, job)
        by_fold = list(pool.map(fits_of, hidden))
    fits = {c.name: [each[i] for each in by_fold] for i, c in enumerate(several)}
    for c, estimate in zip(wanted, later.result(), strict=True):
        fits[c.name].append(estimate)
    return fits


def mean_estimate(fits: Sequence[Estimate]) -> Estimate:
    """Return the mean of fits on different folds, which left out different entries."""
    return fits[0]._replace(values=np.mean([f.values for f in fits], axis=0))


def own_fits(
    candidates: Sequence[Candidate],
    cube: Cube,
    observed: Bools,
    sigma_y: Sigma,
    job: Job,
    at: Bools | None = None,
) -> list[Estimate]:
    """Return the estimates of candidates that need no fit on folds; at: as in `estimate_each`."""
    methods = [chosen(c) for c in candidates]
    return estimate_each(cube, observed, methods, sigma_y, job, at=at)
