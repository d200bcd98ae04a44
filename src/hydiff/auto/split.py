"""The two kinds of gaps, each with its own trials, weights and error bars.

A pixel that keeps some bands is completed from them; a pixel without any has only its neighbours.
Their errors differ by an order of magnitude, so trials of one kind do not apply to the other.  A
cube with both is filled in two parts: first the pixels that keep some bands, then, in the
completed cube, those without any.  All masks are (bands, rows, cols) unless said otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hydiff.auto.classes import usable
from hydiff.auto.folds import TrialWindow
from hydiff.cube import Bools, Cube, Floats
from hydiff.methods.completion import runs, share_of_few

NONE, SOME = "pixels without any band", "pixels that keep some bands"
KINDS = (NONE, SOME)
# Pixels that keep less than this share of their bands are not used to fill others, unless most
# pixels keep less
ENOUGH_BANDS = 0.5
# If this share of the pixels with gaps lacks adjacent bands, or keeps too few to be completed,
# folds hide as many bands of a pixel (benchmarks/prior_bands.py); and number of examined pixels
FEW, LOOKED_AT = 0.3, 2000


def without_any(cube: Cube, observed: Bools) -> Bools:
    """(rows, cols) pixels that keep none of the usable bands: good, and observed somewhere."""
    lost: Bools = np.asarray(~observed[usable(cube, observed)].any(axis=0))
    return lost


def keeps(cube: Cube, observed: Bools) -> Bools:
    """(bands, rows, cols) entries that can be filled from other bands of their pixel."""
    entries: Bools = usable(cube, observed)[:, None, None] & ~without_any(cube, observed)
    return entries


def keeps_few(window: TrialWindow) -> bool:
    """Whether many pixels keep bands, but too few to be completed from them.

    False also if no pixel keeps all bands, as then no trial could hide as many.
    """
    cube, observed, *_ = window
    bands, keeps_some = usable(cube, observed), ~without_any(cube, observed)
    at = np.flatnonzero(keeps_some)
    at = at[:: -(-len(at) // LOOKED_AT)]
    measured = observed[bands].reshape(bands.sum(), -1)[:, at]
    if measured.all() or not measured.all(axis=0).any():
        return False
    values = np.asarray(cube.values)[bands].reshape(bands.sum(), -1)[:, at].astype(np.float64)
    return share_of_few(np.where(measured, values, 0.0), measured) >= FEW


def lacks_runs(window: TrialWindow) -> bool:
    """Whether many pixels with some bands lack adjacent ones: single bands are easier to fill."""
    cube, observed, *_ = window
    missing = ~observed[usable(cube, observed)][:, ~without_any(cube, observed)]
    gaps = int(missing.any(axis=0).sum())
    return bool(gaps) and runs(missing).any(axis=0).sum() >= FEW * gaps


def kinds_in(cube: Cube, observed: Bools) -> list[str]:
    """Return the kinds of gaps that a cube has."""
    lost, gaps = without_any(cube, observed), ~observed[usable(cube, observed)].all(axis=0)
    present = {NONE: lost.any(), SOME: (gaps & ~lost).any()}
    return [kind for kind in KINDS if present[kind]]


def fills_lost_pixels(window: TrialWindow) -> bool:
    """Whether the target has pixels without any band; those around a scene are never in it."""
    return bool((window.target & without_any(window.cube, window.observed)).any())


def kinds_to_fill(window: TrialWindow) -> set[str]:
    """Return the kinds of gaps that the target of a window has."""
    cube, observed, target, *_ = window
    partial = keeps(cube, observed)
    wanted = {NONE: fills_lost_pixels(window), SOME: bool((target & partial).any())}
    return {kind for kind in KINDS if wanted[kind]}


def for_some(window: TrialWindow) -> TrialWindow:
    """Return the window with the target and the gaps of pixels that keep some bands.

    The whole target stays if it has no pixel without any band.
    """
    cube, observed, target, *_ = window
    partial = keeps(cube, observed)
    part_target = target & partial if fills_lost_pixels(window) else target
    return window._replace(target=part_target, gaps=partial & ~observed)


def for_none(window: TrialWindow, completed: Floats) -> TrialWindow:
    """Return the window with the target and the gaps of pixels without any band; the other pixels
    have the values `completed`.

    Bad bands, which are filled from their own data alone, are unchanged.
    """
    cube, observed, target, *_ = window
    bands, without = usable(cube, observed), without_any(cube, observed)
    as_observed, partial = observed.copy(), bands[:, None, None] & ~without
    share = observed[bands].mean(axis=0)
    as_observed[bands] = share >= min(ENOUGH_BANDS, float(np.median(share[~without])))
    values = np.where(partial & ~observed, completed, np.asarray(cube.values))
    completed_cube = replace(cube, values=values, nodata=None, valid=None, missing_rule=None)
    gaps = np.broadcast_to(without, observed.shape)
    return TrialWindow(
        completed_cube, as_observed, target & ~partial, gaps, observed, window.references
    )
