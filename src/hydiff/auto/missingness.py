"""Test whether values are missing because of their size.

Error bars rest on copies of the gaps, moved over measured pixels.  If, for example, the brightest
pixels are missing because they saturate, such copies hide ordinary pixels and do not resemble the
gaps.  Pixels beside a gap resemble those in it, so the measured rim of the gaps is compared with
the rims of moved copies of the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import ndimage

from hydiff.auto import folds
from hydiff.auto.classes import usable
from hydiff.auto.folds import TrialWindow
from hydiff.auto.recipe import Rim
from hydiff.cube import Array, Bools, Floats
from hydiff.gaps import mask

MOVES = 96  # moved copies of the gaps, which show how rims differ by chance
BANDS = 8  # about as many bands are used
FEWEST = 20  # least pixels of a rim


def rim_in(windows: Sequence[TrialWindow], seed: int) -> Rim | None:
    """Return `rim_of` the window with the most entries to fill."""
    most = max(windows, key=lambda w: int(w.target.sum()))
    bands = usable(most.cube, most.observed)
    values = np.asarray(most.cube.values)[bands]
    return rim_of(values, most.observed[bands], most.target[bands], seed)


def rim_of(values: Array, observed: Bools, target: Bools, seed: int) -> Rim | None:
    """Return the rank of the rim of the gaps; None if the gaps have hardly any measured rim.

    values, observed, target: (bands, rows, cols).
    """
    rng = np.random.default_rng(seed)
    places = folds.random_placements(target, rng, MOVES)
    rim_ranks, moved_ranks = [], []
    for ranks, gaps in _ranks(values, observed, target):
        edge = ndimage.binary_dilation(gaps, mask.EIGHT) & ~gaps
        measured = np.isfinite(ranks)
        if (edge & measured).sum() < FEWEST:
            continue
        copies = [folds.transplanted(edge, place) & measured for place in places]
        rim_ranks.append(ranks[edge & measured].mean())
        moved_ranks.append([ranks[c].mean() if c.any() else 0.0 for c in copies])
    if not rim_ranks:
        return None
    usual = np.mean(moved_ranks, axis=0)
    rank = float(np.mean(rim_ranks) - usual.mean())
    return Rim(rank, float(np.mean(np.abs(usual - usual.mean()) >= abs(rank))))


def _positions(values: Floats) -> Floats:
    """(n,) ranks from 1; equal values share their mean rank.  scipy.stats is slow to import."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    positions: Floats = (np.cumsum(count) - (count - 1) / 2)[which]
    return positions


def _ranks(values: Array, observed: Bools, target: Bools) -> Iterator[tuple[Floats, Bools]]:
    """Yield ranks (rows, cols) from -1 to 1, NaN where missing, and gaps, of some bands."""
    bands = np.flatnonzero(target.any(axis=(1, 2)) & observed.any(axis=(1, 2)))
    for band in bands[:: max(len(bands) // BANDS, 1)]:
        flags = observed[band]
        rank = np.full(flags.shape, np.nan)
        rank[flags] = 2 * (_positions(values[band][flags]) - 0.5) / flags.sum() - 1
        yield rank, target[band]


def warning(rim: Rim) -> str:
    """Return a warning that values may be missing because of their size."""
    how = "high" if rim.rank > 0 else "low"
    return (
        f"measured values beside the gaps are unusually {how} (rank {rim.rank:+.2f} of -1 … 1, "
        f"where moved gaps have 0): if values are missing because they are {how}, errors are "
        "larger than expected"
    )
