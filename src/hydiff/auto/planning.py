"""The plan of the trials: which candidates are tried on which hidden entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto import split
from hydiff.auto.candidates import SPECTRAL, SPECTRAL_FOLDS, Budget, Candidate
from hydiff.auto.classes import usable
from hydiff.auto.folds import TrialWindow, folds_of
from hydiff.cube import Bools
from hydiff.maths.noise import is_estimable
from hydiff.maths.noise_level import Sigma
from hydiff.methods import METHODS

MOST_GAPS = 20_000  # most pixels in gaps for networks that learn: their anchor is a dense matrix


class TrialPlan(NamedTuple):
    """The candidates to try, and the folds to try them on."""

    candidates: list[Candidate]
    hidden: list[tuple[int, Bools]]  # folds: the number of a window, and its entries to hide
    each: int  # number of folds that were asked for in each window
    costly: int  # number of folds, the first ones, on which costly candidates are tried too
    note: str  # the candidates that were left out, and the reason

    def without_room(self, left: list[Candidate]) -> TrialPlan:
        """Return the plan with the candidates that are left when memory has run out."""
        note = f"{self.note}; too little memory on the device: networks were left out"
        return self._replace(candidates=left, note=note)


def plan_trials(
    windows: Sequence[TrialWindow], sigma_y: Sigma, budget: Budget, seed: int, alike: bool = False
) -> TrialPlan:
    """Return the plan of a budget for windows, which share its folds; alike: as in `folds_of`."""
    candidates, note = list(budget.candidates), budget.note
    if is_noisy(sigma_y):
        candidates = [c for c in candidates if METHODS[c.method].uses_sigma]
    per_window = -(-budget.folds // len(windows))
    folds = {
        n: folds_of(w.cube, w.observed, per_window, seed, w.gaps, w.measured, alike)
        for n, w in enumerate(windows)
        if w.target.any()
    }
    if isinstance(sigma_y, str) and sigma_y == "auto":
        folds = {n: [m for m in each if _shows_noise(windows[n], m)] for n, each in folds.items()}
    hidden = [
        (n, masks[i]) for i in range(per_window) for n, masks in folds.items() if i < len(masks)
    ]
    used = [usable(w.cube, w.observed) for w in windows]
    first = hidden[: budget.costly_folds]
    too_many = any(gaps((windows[n].observed & ~hide)[used[n]]) > MOST_GAPS for n, hide in first)
    if too_many and any(c.learns for c in candidates):
        candidates = [c.untuned for c in candidates if c.pretrained or not c.learns]
        note += f"; more than {MOST_GAPS} pixels in gaps: no network learned from them"
    return TrialPlan(candidates, hidden, per_window, budget.costly_folds, note)


def budget_for_some(budget: Budget) -> Budget:
    """Return the budget for pixels that keep some bands, from that for pixels without any."""
    networks = (c.untuned for c in budget.candidates if c.pretrained)
    return Budget((*SPECTRAL, *networks), SPECTRAL_FOLDS, SPECTRAL_FOLDS)


def plan_for_some(
    windows: Sequence[TrialWindow], sigma_y: Sigma, budget: Budget, seed: int
) -> TrialPlan:
    """Return the plan for pixels that keep some bands, by the budget `budget_for_some`.

    Where pixels lack runs of bands, or keep too few bands to be completed, hidden pixels lack as
    many bands, since single bands are easier to fill.  Networks are tried only where pixels keep
    too few bands; elsewhere they do not help.
    """
    few = any(split.keeps_few(w) for w in windows)
    plain = tuple(c for c in budget.candidates if not c.costly)
    without_networks = budget._replace(candidates=plain, costly_folds=0)
    if few or any(split.lacks_runs(w) for w in windows):
        plan = plan_trials(windows, sigma_y, budget if few else without_networks, seed, alike=True)
        if len(plan.hidden) > 1:
            return plan
    return plan_trials(windows, sigma_y, without_networks, seed)


def _shows_noise(window: TrialWindow, hide: Bools) -> bool:
    """Whether the noise can be estimated from what a fold leaves of a window."""
    bands = usable(window.cube, window.observed)
    left = (window.observed & ~hide)[bands]
    return is_estimable(np.where(left, np.asarray(window.cube.values)[bands], 0.0), left)


def gaps(observed: Bools) -> int:
    """Return the number of pixels that lack a band."""
    return int((~observed.all(axis=0)).sum())


def is_noisy(sigma_y: Sigma) -> bool:
    """Whether the noise is to be estimated, or its standard deviation is above 0 in some band."""
    levels = [*sigma_y.values()] if isinstance(sigma_y, Mapping) else sigma_y
    return isinstance(levels, str) or bool(np.any(np.asarray(levels, dtype=float) > 0))
