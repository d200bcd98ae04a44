"""Fits of the candidates: to the cube itself, and to what is left of it when a fold is hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hydiff.auto.candidates import PRIOR, Candidate, chosen, on_folds
from hydiff.auto.folds import TrialWindow
from hydiff.cube import Bools, Cube
from hydiff.maths.noise_level import Sigma
from hydiff.methods import Chosen
from hydiff.methods.estimate import (
    Estimate,
    Job,
    estimate_each,
    estimates,
    estimating,
    tuned_network,
)


def crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    """Return the estimates of a network that is fitted to each part, side by side on a GPU."""
    runs = [estimating(cube, observed, chosen(c), sigma_y, job) for cube, observed in parts]
    return estimates(runs, job.device, job.deterministic)


def one_pass(
    several: Sequence[Candidate],
    own: Sequence[Candidate],
    windows: Sequence[TrialWindow],
    hidden: Sequence[tuple[int, Bools]],
    sigma_y: Sigma,
    job: Job,
    at_once: int,
) -> dict[str, list[Estimate]]:
    """Return the estimates of pretrained networks, by candidate, `at_once` runs at a time.

    Each has one estimate per fold in `hidden` (number of the window, entries to hide); those in
    `own` have one more at the end, of the first window itself if it has entries to fill.  A tuned
    network is trained once per window, on the entries that none of the folds hides, so that each
    fold can judge it.  Meanwhile the other networks prepare their planes.
    """
    fewer = on_folds(job)
    runs = [(n, windows[n].observed & ~hide, fewer, several) for n, hide in hidden]
    if own and windows[0].target.any():
        runs.append((0, windows[0].observed, {}, own))
    folds_in = {n: [hide for m, hide in hidden if m == n] for n, *_ in runs}
    with ThreadPoolExecutor(at_once) as pool:
        # submitted first, so that no run waits for a network that has not started its tuning
        tuning = {
            (c.name, n): pool.submit(network_of, c, windows[n], folds_in[n], sigma_y, job)
            for c in several
            for n in {n for n, *_ in runs}
            if c.tuned
        }

        def run_passes(
            run: tuple[int, Bools, Mapping[str, Any], Sequence[Candidate]],
        ) -> list[Estimate]:
            n, observed, fewer, candidates = run
            passes = [_pass_of(c, **fewer) for c in candidates]
            tuned = [tuning[c.name, n].result if c.tuned else None for c in candidates]
            return estimate_each(windows[n].cube, observed, passes, sigma_y, job, tuned)

        results = list(pool.map(run_passes, runs))
    estimates_of = {c.name: list[Estimate]() for c in several}
    for (*_, candidates), fits in zip(runs, results, strict=True):
        for c, fit in zip(candidates, fits, strict=True):
            estimates_of[c.name].append(fit)
    return estimates_of


def network_of(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Any:
    """Return the pretrained network of `c`, tuned on the entries that none of the folds hides."""
    visible = window.observed
    for fold in hidden:
        visible = visible & ~fold
    return tuned_network(window.cube, visible, chosen(c), sigma_y, job)


def tuned_fit(
    c: Candidate, window: TrialWindow, hidden: Sequence[Bools], sigma_y: Sigma, job: Job
) -> Estimate:
    """Return the estimate of a window by the prior, tuned as in `network_of`."""
    network = network_of(c, window, hidden, sigma_y, job)
    arguments = ([_pass_of(c)], sigma_y, job, [lambda: network])
    return estimate_each(window.cube, window.observed, *arguments)[0]


def _pass_of(c: Candidate, **fewer: Any) -> Chosen:
    """Return the method of a candidate; of a tuned one that of the prior, to run its network."""
    return chosen(PRIOR, size=c.settings["size"], **fewer) if c.tuned else chosen(c, **fewer)


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
