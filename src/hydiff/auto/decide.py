"""Decide how to fill: try the candidates, compute their weights, and build the recipe."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from hydiff.auto import references, split, wording
from hydiff.auto.apply import Ready, blended, noise_of
from hydiff.auto.blend import Weights, weights_of
from hydiff.auto.candidates import NAME, SPECTRAL_FOLDS, Budget, Candidate
from hydiff.auto.crew import Ask, TrialRun, run_trials
from hydiff.auto.folds import TrialWindow
from hydiff.auto.intervals import errors_of
from hydiff.auto.missingness import rim_in
from hydiff.auto.planning import budget_for_some
from hydiff.auto.recipe import KindRecipe, entry_of
from hydiff.maths.noise_level import Sigma
from hydiff.methods.estimate import Estimate, Job, Progress
from hydiff.result import Step
from hydiff.workers.local import Processes

MEMORY = 4e9  # bytes for all trials that run at the same time


def decide_on(
    windows: Sequence[TrialWindow],
    sigma_y: Sigma,
    budget: Budget,
    job: Job,
    progress: Progress = None,
    memory: float = MEMORY,
    whole: bool = False,
    helpers: Processes | None = None,
) -> tuple[dict[str, Any], Ready]:
    """Return one recipe for a scene, decided on windows that share the folds among them, and the
    estimates of candidates that are ready.

    memory: bytes for all trials that run at the same time.
    whole: there is a single window, which is the whole cube.  Only then are estimates ready.
    helpers: child processes that have loaded the network, and may try folds.
    If there are gaps of both kinds (`split`), the recipe is for the pixels without any band, and
    its entry `partial` is the recipe for the pixels that keep some bands.
    """
    ask = Ask(budget, job._replace(checkpoint=None), memory, whole, helpers)
    with ThreadPoolExecutor(1) as executor:
        rim_future = executor.submit(rim_in, windows, job.seed)
        recipe, ready = _by_kind(windows, sigma_y, ask, progress)
    rim = rim_future.result()
    return recipe | ({} if rim is None else {"rim": asdict(rim)}), ready


def _by_kind(
    windows: Sequence[TrialWindow], sigma_y: Sigma, ask: Ask, progress: Progress
) -> tuple[dict[str, Any], Ready]:
    """Return the recipe, which contains that of the second kind of gaps if both kinds exist, and
    the estimates that are ready, by kind."""
    budget, job, *_ = ask
    kinds = [split.kinds_in(w.cube, w.observed) for w in windows]
    if len(present := set().union(*kinds)) < 2:
        kind = next(iter(present), split.NONE)
        recipe, ready = _recipe_for(kind, windows, sigma_y, ask, progress)
        return recipe, {kind: ready}
    keeping = {n: split.for_some(windows[n]) for n, own in enumerate(kinds) if split.SOME in own}
    first, later = _in_turn(progress, SPECTRAL_FOLDS + 1, budget.folds + 1)
    partial, ready = _recipe_for(split.SOME, [*keeping.values()], sigma_y, ask, first)
    lost = [n for n, own in enumerate(kinds) if split.NONE in own]
    if not any(split.fills_lost_pixels(windows[n]) for n in lost):
        return partial, {split.SOME: ready}
    own = KindRecipe.of(partial)
    completed = {n: blended(own, w, sigma_y, job, ready).estimate for n, w in keeping.items()}
    values = {n: np.asarray(windows[n].cube.values) for n in lost}
    values |= {n: estimate.values for n, estimate in completed.items()}
    lost_windows = [split.for_none(windows[n], values[n]) for n in lost]
    noise = noise_of(sigma_y, [*completed.values()])
    recipe, lost_ready = _recipe_for(split.NONE, lost_windows, noise, ask, later)
    return recipe | {"partial": partial}, {split.SOME: ready, split.NONE: lost_ready}


def _in_turn(progress: Progress, first: int, later: int) -> tuple[Progress, Progress]:
    """Return callbacks for two tasks in turn, of `first` and `later` steps, that report as one."""
    if progress is None:
        return None, None

    def of_all(step: Step, before: int) -> Any:
        return progress(step._replace(done=before + step.done, total=first + later))

    return (lambda step: of_all(step, 0)), (lambda step: of_all(step, first))


def _recipe_for(
    kind: str, windows: Sequence[TrialWindow], sigma_y: Sigma, ask: Ask, progress: Progress
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """Return the recipe for gaps of one kind, and the estimates that are ready, by candidate."""
    whole_pixels, note = kind == split.NONE, ""
    if not whole_pixels:
        alone = all(w.gaps is None for w in windows)
        if alone and any(c.learns for c in ask.budget.candidates):
            note = "; most pixels with gaps keep some bands: networks that learn were left out"
        ask = ask._replace(budget=budget_for_some(ask.budget))
    run = run_trials(kind, windows, sigma_y, ask, progress)
    plan, trials, seed = run.plan, run.trials, ask.job.seed
    weights = weights_of(trials, run.counts, plan.candidates, seed, from_nothing=not whole_pixels)
    if not any(w.target.any() for w in windows):
        weights = weights._replace(why=wording.NOTHING, reason=wording.NOTHING)
    bands = windows[0].cube.bands
    errors = errors_of(trials, weights, run.counts, bands, whole_pixels=whole_pixels)
    recipe = {
        "method": NAME,
        "gaps": kind,
        "candidates": [
            _entry(c, run, seed) | {"share": round(float(share), 4)}
            for c, share in zip(plan.candidates, weights.share, strict=True)
        ],
        "weights": weights.all.tolist(),
        "errors": asdict(errors) | {"basis": list(errors.basis)},
        "folds": len(trials),
        "why": weights.why + plan.note + note,
        "reason": weights.reason + plan.note + note,
    }
    return recipe | _with_reference(run, windows, weights, sigma_y, ask.job), run.ready


def _with_reference(
    run: TrialRun, windows: Sequence[TrialWindow], weights: Weights, sigma_y: Sigma, job: Job
) -> dict[str, Any]:
    """Return the entry of a recipe about references; empty where nothing could be decided.

    weights: of the candidates without a reference.
    """
    candidates, folds, without, trials = run.references
    if not trials:
        return {}
    networks = references.networks_for(candidates, run.plan.candidates)
    trials = references.with_networks(trials, folds, networks, sigma_y, job)
    tried = (*candidates, *networks)
    decision = references.decide(windows, folds, without, trials, weights, tried, job.seed)
    if decision is None:
        return {}
    return {"with_reference": asdict(decision) | {"candidates": [entry_of(c) for c in tried]}}


def _entry(c: Candidate, run: TrialRun, seed: int) -> dict[str, Any]:
    """Return the entry of a candidate in a recipe; for a network that learned from the cube, with
    seed and folds, so that its fits can be repeated."""
    entry = entry_of(c)
    if c.tuned:
        return entry | {"seed": seed}
    fits = len(run.costly[c.name]) if c.crossfit else 0
    return entry | ({"fits": fits, "of": max(run.plan.each, fits), "seed": seed} if fits else {})
