"""Decide how to fill: try the candidates, weigh them, write the recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto.bars import errors_of
from hydiff.auto.blend import weights_of
from hydiff.auto.candidates import NAME, SPECTRAL, SPECTRAL_FOLDS, Budget, Candidate, chosen
from hydiff.auto.classes import kinds_of
from hydiff.auto.trials import (
    Look,
    Trial,
    Window,
    crossfit,
    folds_of,
    look_at,
    mean_estimate,
    trial_of,
)
from hydiff.cube import Bools, Cube
from hydiff.methods import METHODS
from hydiff.problem import Sigma
from hydiff.result import Step
from hydiff.run import Estimate, Job, Progress, estimate

MOST_GAPS = 20_000  # pixels that networks are tried on: their anchor is a dense matrix
COPIES, MEMORY = 10, 4e9  # copies of a cube that a trial makes, and bytes for all trials at a time


class Plan(NamedTuple):
    """What will be tried on what."""

    candidates: list[Candidate]
    hidden: list[tuple[Window, Bools]]  # windows, each with entries to hide
    each: int  # folds that every window was asked for
    costly: int  # the first so many folds are for costly candidates, too
    note: str  # what was left out, and why


def decide_on(
    windows: Sequence[Window],
    sigma_y: Sigma,
    budget: Budget,
    job: Job,
    progress: Progress = None,
    memory: float = MEMORY,
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """One decision for a scene, from windows of it that share the folds among them.

    Returns the recipe and, where the one window is all there is, the estimates that are ready.
    """
    job = job._replace(checkpoint=None)
    plan = _planned(windows, sigma_y, budget, job.seed)
    trials, costly = _tried(plan, sigma_y, job, workers_for(windows[0].cube, memory), progress)
    distance, rough = zip(*(kinds_of(*w) for w in windows), strict=True)
    kinds = np.concatenate(distance), np.concatenate(rough)
    weights, why = weights_of(trials, kinds, plan.candidates, job.seed)
    recipe = {
        "method": NAME,
        "candidates": [_entry(c, costly, plan, job.seed) for c in plan.candidates],
        "weights": weights.tolist(),
        "errors": errors_of(trials, weights, kinds, windows[0].cube.bands),
        "folds": len(trials),
        "why": why + plan.note,
    }
    ready = {name: mean_estimate(fits) for name, fits in costly.items() if fits}
    return recipe, ready if len(windows) == 1 else {}


def _planned(windows: Sequence[Window], sigma_y: Sigma, budget: Budget, seed: int) -> Plan:
    if sum(partial(w.seen) for w in windows) > 0:
        budget = Budget(SPECTRAL, SPECTRAL_FOLDS, 0)
    candidates, note = list(budget.candidates), ""
    if is_noisy(sigma_y):
        candidates = [c for c in candidates if METHODS[c.method].noise]
    each = -(-budget.folds // len(windows))
    wanted = [w for w in windows if w.target.any()]
    folds = [folds_of(w.cube, w.seen, each, seed) for w in wanted]
    hidden = [
        (window, some[i])
        for i in range(each)
        for window, some in zip(wanted, folds, strict=True)
        if i < len(some)
    ]
    if any(gaps(w.seen & ~fold) > MOST_GAPS for w, fold in hidden[: budget.costly_folds]):
        candidates = [c for c in candidates if not c.crossfit]
        note = f"; more than {MOST_GAPS} pixels in gaps: networks were left out"
    return Plan(candidates, hidden, each, budget.costly_folds, note)


def _tried(
    plan: Plan, sigma_y: Sigma, job: Job, workers: int, progress: Progress
) -> tuple[list[Trial], dict[str, list[Estimate]]]:
    """All candidates on all folds, networks beside the others; also the networks' estimates."""

    def look(fold: int, c: Candidate) -> Look:
        (cube, seen, _), hide = plan.hidden[fold]
        return look_at(estimate(cube, seen & ~hide, chosen(c), sigma_y, job), cube, seen, hide)

    tried = [(w.cube, w.seen & ~fold) for w, fold in plan.hidden[: plan.costly]]
    with ThreadPoolExecutor(workers) as pool:  # numpy and scipy leave Python while they work
        plain = {
            (i, c.name): pool.submit(look, i, c)
            for i in range(len(plan.hidden))
            for c in plan.candidates
            if not c.crossfit
        }
        costly = {c.name: crossfit(c, tried, sigma_y, job) for c in plan.candidates if c.crossfit}
        trials: list[Trial] = []
        for i, ((cube, seen, _), fold) in enumerate(plan.hidden):
            looks: list[Look | None] = []
            for c in plan.candidates:
                if not c.crossfit:
                    looks.append(plain[i, c.name].result())
                elif i < len(tried):
                    looks.append(look_at(costly[c.name][i], cube, seen, fold))
                else:
                    looks.append(None)
            trials.append(trial_of(cube, seen, fold, looks))
            if progress is not None:
                progress(Step(len(trials), len(plan.hidden) + 1, None))
    return trials, costly


def _entry(
    c: Candidate, costly: Mapping[str, Sequence[Estimate]], plan: Plan, seed: int
) -> dict[str, Any]:
    """A candidate as the recipe tells it; with the folds of a costly one, to fit them again."""
    told = {"name": c.name, "method": c.method, "settings": dict(c.settings)}
    if not c.crossfit:
        return told
    return told | {"fits": len(costly[c.name]), "of": plan.each, "seed": seed}


def workers_for(cube: Cube, memory: float) -> int:
    """Folds to try at a time: as many as there are cores, and memory for."""
    each = COPIES * 8 * float(np.prod(cube.shape))
    return max(1, min(os.cpu_count() or 1, int(memory / each)))


def partial(seen: Bools) -> int:
    """Pixels that keep some of their bands, less those that keep none: above 0 for most."""
    some, none = ~seen.all(axis=0), ~seen.any(axis=0)
    return int((some & ~none).sum()) - int(none.sum())


def gaps(seen: Bools) -> int:
    """Pixels that lack a band."""
    return int((~seen.all(axis=0)).sum())


def is_noisy(sigma_y: Sigma) -> bool:
    return isinstance(sigma_y, str) or bool(np.any(np.asarray(sigma_y, dtype=float) > 0))
