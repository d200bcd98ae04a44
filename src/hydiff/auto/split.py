"""Gaps of two kinds, each with trials, weights and error bars of its own.

A pixel that keeps some bands is completed from them; a pixel without any has only its neighbours.
Their errors differ by an order of magnitude, so the errors of one kind say nothing about the
other.  A cube with both is filled in two parts: first the pixels that keep some bands, then, in the
completed cube, those without any.  All masks are (bands, rows, cols) unless said otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hydiff.auto.classes import usable
from hydiff.auto.trials import TrialWindow
from hydiff.cube import Bools, Cube, Floats
from hydiff.methods.completion import runs, share_of_few

NONE, SOME = "pixels without any band", "pixels that keep some bands"
KINDS = (NONE, SOME)
# A pixel that keeps less than this share of its bands is no neighbour to fill others from, unless
# most pixels do
ENOUGH_BANDS = 0.5
# If more of the pixels with gaps lack runs of bands, or keep too few to be completed, folds hide as
# many bands of a pixel (benchmarks/prior_bands.py); so many pixels are looked at
FEW, LOOKED_AT = 0.3, 2000


def without_any(cube: Cube, observed: Bools) -> Bools:
    """(rows, cols) pixels that keep none of the bands that count: good, and observed somewhere."""
    lost: Bools = np.asarray(~observed[usable(cube, observed)].any(axis=0))
    return lost


def keeps(cube: Cube, observed: Bools) -> Bools:
    """(bands, rows, cols) entries that can be filled from other bands of their pixel."""
    entries: Bools = usable(cube, observed)[:, None, None] & ~without_any(cube, observed)
    return entries


def keeps_few(window: TrialWindow) -> bool:
    """Whether pixels keep bands, but too few to be completed from them, beside pixels that keep all
    and could show how they are filled."""
    cube, observed, *_ = window
    bands, some = usable(cube, observed), ~without_any(cube, observed)
    at = np.flatnonzero(some)
    at = at[:: -(-len(at) // LOOKED_AT)]
    given = observed[bands].reshape(bands.sum(), -1)[:, at]
    if given.all() or not given.all(axis=0).any():
        return False
    values = np.asarray(cube.values)[bands].reshape(bands.sum(), -1)[:, at].astype(np.float64)
    return share_of_few(np.where(given, values, 0.0), given) >= FEW


def lacks_runs(window: TrialWindow) -> bool:
    """Whether pixels that keep some bands lack adjacent ones: single ones are easier to fill."""
    cube, observed, *_ = window
    missing = ~observed[usable(cube, observed)][:, ~without_any(cube, observed)]
    gaps = int(missing.any(axis=0).sum())
    return bool(gaps) and runs(missing).any(axis=0).sum() >= FEW * gaps


def kinds_in(cube: Cube, observed: Bools) -> list[str]:
    """The kinds of gaps that a cube has."""
    lost, gaps = without_any(cube, observed), ~observed[usable(cube, observed)].all(axis=0)
    present = {NONE: lost.any(), SOME: (gaps & ~lost).any()}
    return [kind for kind in KINDS if present[kind]]


def aims_at_lost(window: TrialWindow) -> bool:
    """Whether pixels without any band are to be filled; those around a scene never are."""
    return bool((window.target & without_any(window.cube, window.observed)).any())


def aims(window: TrialWindow) -> set[str]:
    """The kinds of gaps that are to be filled."""
    cube, observed, target, *_ = window
    partial = keeps(cube, observed)
    wanted = {NONE: aims_at_lost(window), SOME: bool((target & partial).any())}
    return {kind for kind in KINDS if wanted[kind]}


def keeping(window: TrialWindow) -> TrialWindow:
    """The part of a window that keeps some bands: what to fill of it, and the gaps to copy."""
    cube, observed, target, *_ = window
    partial = keeps(cube, observed)
    own = target & partial if aims_at_lost(window) else target
    return window._replace(target=own, gaps=partial & ~observed)


def lost(window: TrialWindow, completed: Floats) -> TrialWindow:
    """The pixels without any band, in the cube whose other pixels are `completed`.

    Bad bands, which are filled from their own pixels alone, are as they were.
    """
    cube, observed, target, *_ = window
    bands, without = usable(cube, observed), without_any(cube, observed)
    given, partial = observed.copy(), bands[:, None, None] & ~without
    share = observed[bands].mean(axis=0)
    given[bands] = share >= min(ENOUGH_BANDS, float(np.median(share[~without])))
    values = np.where(partial & ~observed, completed, np.asarray(cube.values))
    part = replace(cube, values=values, nodata=None, valid=None, missing_rule=None)
    gaps = np.broadcast_to(without, observed.shape)
    return TrialWindow(part, given, target & ~partial, gaps, observed, window.references)
