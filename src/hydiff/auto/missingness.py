"""Does what is missing depend on its own value?  Then no hidden copy resembles the gaps.

Error bars rest on copies of the gaps laid over measured pixels.  Where the brightest pixels are
missing, say, because they saturate, such copies hide ordinary ones.  What lies beside a gap
resembles what was in it, so the measured rim of the gaps is compared with the rims of moved gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import ndimage

from hydiff.auto import folds
from hydiff.auto.classes import usable
from hydiff.auto.recipe import Rim
from hydiff.auto.trials import TrialWindow
from hydiff.cube import Array, Bools, Floats
from hydiff.gaps import mask

MOVES = 96  # of the gaps, to see how rims differ by chance
BANDS = 8  # that are looked at, about
FEWEST = 20  # pixels of a rim below which nothing is said


def rim_in(windows: Sequence[TrialWindow], seed: int) -> Rim | None:
    """`rim_of` the window with the most to fill."""
    most = max(windows, key=lambda w: int(w.target.sum()))
    bands = usable(most.cube, most.observed)
    values = np.asarray(most.cube.values)[bands]
    return rim_of(values, most.observed[bands], most.target[bands], seed)


def rim_of(values: Array, observed: Bools, target: Bools, seed: int) -> Rim | None:
    """values, observed, target (bands, rows, cols); None where the gaps have hardly any rim."""
    rng = np.random.default_rng(seed)
    places = folds.random_placements(target, rng, MOVES)
    own, moved = [], []
    for ranks, gaps in _ranks(values, observed, target):
        edge = ndimage.binary_dilation(gaps, mask.EIGHT) & ~gaps
        there = np.isfinite(ranks)
        if (edge & there).sum() < FEWEST:
            continue
        copies = [folds.transplanted(edge, place) & there for place in places]
        own.append(ranks[edge & there].mean())
        moved.append([ranks[c].mean() if c.any() else 0.0 for c in copies])
    if not own:
        return None
    usual = np.mean(moved, axis=0)
    rank = float(np.mean(own) - usual.mean())
    return Rim(rank, float(np.mean(np.abs(usual - usual.mean()) >= abs(rank))))


def _positions(values: Floats) -> Floats:
    """(n,) from 1, equal ones share the mean of theirs; scipy.stats takes a second to import."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    positions: Floats = (np.cumsum(count) - (count - 1) / 2)[which]
    return positions


def _ranks(values: Array, observed: Bools, target: Bools) -> Iterator[tuple[Floats, Bools]]:
    """Ranks (rows, cols) from -1 to 1, NaN where missing, and gaps of some bands that have any."""
    bands = np.flatnonzero(target.any(axis=(1, 2)) & observed.any(axis=(1, 2)))
    for band in bands[:: max(len(bands) // BANDS, 1)]:
        own = observed[band]
        rank = np.full(own.shape, np.nan)
        rank[own] = 2 * (_positions(values[band][own]) - 0.5) / own.sum() - 1
        yield rank, target[band]


def warning(rim: Rim) -> str:
    """That what is missing may depend on its value."""
    how = "high" if rim.rank > 0 else "low"
    return (
        f"measured values beside the gaps are unusually {how} (rank {rim.rank:+.2f} of -1 … 1, "
        f"where moved gaps have 0): if values are missing because they are {how}, errors are "
        "larger than expected"
    )
