"""What is tried on which hidden entries, before anything is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hydiff.auto import split
from hydiff.auto.candidates import SPECTRAL, SPECTRAL_FOLDS, Budget
from hydiff.auto.classes import usable
from hydiff.auto.trials import TrialPlan, TrialWindow, folds_of
from hydiff.cube import Bools
from hydiff.gaps.rule import Sigma
from hydiff.methods import METHODS

MOST_GAPS = 20_000  # pixels that networks are tried on: their anchor is a dense matrix


def planned(
    windows: Sequence[TrialWindow], sigma_y: Sigma, budget: Budget, seed: int, alike: bool = False
) -> TrialPlan:
    """alike: as of `folds_of`."""
    candidates, note = list(budget.candidates), budget.note
    if is_noisy(sigma_y):
        candidates = [c for c in candidates if METHODS[c.method].uses_sigma]
    each = -(-budget.folds // len(windows))
    folds = {
        n: folds_of(w.cube, w.observed, each, seed, w.gaps, w.measured, alike)
        for n, w in enumerate(windows)
        if w.target.any()
    }
    hidden = [(n, some[i]) for i in range(each) for n, some in folds.items() if i < len(some)]
    used = [usable(w.cube, w.observed) for w in windows]
    first = hidden[: budget.costly_folds]
    many = any(gaps((windows[n].observed & ~hide)[used[n]]) > MOST_GAPS for n, hide in first)
    if many and any(c.learns for c in candidates):
        candidates = [c for c in candidates if not c.learns]
        note += f"; more than {MOST_GAPS} pixels in gaps: networks were left out"
    return TrialPlan(candidates, hidden, each, budget.costly_folds, note)


def for_some(budget: Budget) -> Budget:
    """What a budget allows for pixels that keep some bands."""
    networks = (c for c in budget.candidates if c.one_pass)
    return Budget((*SPECTRAL, *networks), SPECTRAL_FOLDS, SPECTRAL_FOLDS)


def planned_for_some(
    windows: Sequence[TrialWindow], sigma_y: Sigma, budget: Budget, seed: int
) -> TrialPlan:
    """With the budget `for_some`.  Where pixels lack runs of bands, or keep too few bands to be
    completed, hidden ones lack as many: single bands are easier to fill.  Networks are tried where
    they keep too few; elsewhere they have nothing to add."""
    few = any(split.keeps_few(w) for w in windows)
    plain = tuple(c for c in budget.candidates if not c.costly)
    without = budget._replace(candidates=plain, costly_folds=0)
    if few or any(split.lacks_runs(w) for w in windows):
        plan = planned(windows, sigma_y, budget if few else without, seed, alike=True)
        if len(plan.hidden) > 1:
            return plan
    return planned(windows, sigma_y, without, seed)


def gaps(observed: Bools) -> int:
    """Pixels that lack a band."""
    return int((~observed.all(axis=0)).sum())


def is_noisy(sigma_y: Sigma) -> bool:
    return isinstance(sigma_y, str) or bool(np.any(np.asarray(sigma_y, dtype=float) > 0))
