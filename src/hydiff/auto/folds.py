"""Folds: observed entries of a window to hide, in the shape of its gaps.

Masks are bool, (rows, cols) when all bands share them or (bands, rows, cols); True = observed in
`observed`, True = the entry is hidden in a fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.auto.classes import usable
from hydiff.cube import Bools, Cube
from hydiff.gaps import mask
from hydiff.reference.models import ReferencePlanes

FEWEST = 30  # least hidden pixels of a fold
TRIALS = 96  # placements that are drawn; the best become folds
# approximate share of observed pixels that a fold hides; more if gaps are few and wide
SHARE = 0.12
LINES = 1 / 3  # share of the lines of a copy that are hidden where bands differ
ENOUGH = 300  # hidden entries at which a fold of several copies is complete
THIN = 0.05  # share of hidden pixels of a band at which such a fold is complete, too


class TrialWindow(NamedTuple):
    """A part of a scene; masks have its shape (bands, rows, cols)."""

    cube: Cube
    observed: Bools
    target: Bools
    gaps: Bools | None = None  # those whose copies are hidden; None = all missing entries
    # observed entries that were measured, not estimated, and may serve as truth; None = all
    measured: Bools | None = None
    references: tuple[ReferencePlanes, ...] = ()  # other images of the place, on its grid


class Placement(NamedTuple):
    """The placement of a copy of the gap pattern: turned, mirrored, then rolled."""

    turns: int  # by 90°
    mirrored: bool
    down: int  # px
    right: int


def transplanted(missing: Bools, placement: Placement) -> Bools:
    """Return the pattern moved over its grid; what leaves it on one side returns on the other.

    A pattern on a grid that is not square is continued periodically before a quarter turn.
    """
    rows, cols = missing.shape[-2:]
    side = max(rows, cols)
    copy = missing
    if placement.turns % 2 and rows != cols:
        lead = [(0, 0)] * (missing.ndim - 2)
        copy = np.pad(missing, [*lead, (0, side - rows), (0, side - cols)], mode="wrap")
    copy = np.rot90(copy, placement.turns, axes=(-2, -1))
    if placement.mirrored:
        copy = copy[..., ::-1]
    copy = np.roll(copy, (placement.down, placement.right), axis=(-2, -1))
    return np.ascontiguousarray(copy[..., :rows, :cols])


def folds_of(
    cube: Cube,
    observed: Bools,
    count: int,
    seed: int,
    gaps: Bools | None = None,
    measured: Bools | None = None,
    alike: bool = False,
) -> list[Bools]:
    """Return up to `count` folds: entries of good bands to hide, each (bands, rows, cols).

    gaps, measured: as in `TrialWindow`.
    alike: a hidden pixel lacks all bands that a pixel of the gaps lacks; there may be no place for
    such folds.
    """
    bands, rng = usable(cube, observed), np.random.default_rng(seed)
    outside_gaps = (observed if gaps is None else ~gaps)[bands]
    truth_known = (observed if measured is None else observed & measured)[bands]
    usable_observed = observed[bands]

    def enough(fold: Bools) -> bool:
        pixels = (fold & truth_known).any(axis=0).sum()
        return bool(pixels >= FEWEST and (usable_observed & ~fold).any(axis=(1, 2)).all())

    make_folds = spectral_folds if alike else folds
    hidden = [fold for fold in make_folds(outside_gaps, count, rng) if enough(fold)]
    if len(hidden) < 2 and not alike:  # pieces of so few gaps are too small
        hidden = [fold for fold in scattered(outside_gaps, count, rng) if enough(fold)]
    masks = []
    for fold in hidden:
        mask_of_fold = np.zeros(observed.shape, bool)
        mask_of_fold[bands] = fold & usable_observed
        masks.append(mask_of_fold)
    return masks


def folds(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """Return up to `count` folds: observed entries to hide, pieces of moved copies of the gaps.

    Each has the shape of `observed`.  If all bands share the gaps, copies keep a gap's width away
    from them, or less so that half of the observed pixels are left, and a fold takes a window of
    its copy.  Else it takes a third of the lines of every `count`-th band of its copy.  So the
    remaining data still resemble the scene.
    """
    missing = ~mask.shared(observed)
    if not missing.any() or missing.all():
        return []
    if missing.ndim == 2:
        placements = random_placements(missing, rng, TRIALS)
        masks = [hidden for _, hidden in _pieces(missing, placements, count, rng)]
    else:
        masks = [*_lines_of_bands(missing, count, rng)]
    return [np.broadcast_to(hidden, observed.shape) for hidden in masks if hidden.any()]


def spectral_folds(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """Return `folds` for gaps (bands, rows, cols) that differ from band to band: a hidden pixel
    lacks all bands that a pixel of the gaps lacks, so that it is as hard to fill.

    Copies go to pixels without any gap; if there are none, the list is empty.
    """
    missing = ~observed
    outline: Bools = np.asarray(missing.any(axis=0))
    if not outline.any() or outline.all():
        return []
    pieces = _pieces(outline, random_placements(missing, rng, TRIALS), count, rng)
    masks = (transplanted(missing, place) & hidden for place, hidden in pieces)
    return [hidden for hidden in masks if hidden.any()]


def _pieces(
    missing: Bools, placements: list[Placement], count: int, rng: np.random.Generator
) -> Iterator[tuple[Placement, Bools]]:
    """Yield the `count` best placements of copies of the gaps (rows, cols), each with the pixels of
    a window of its copy; the placements are removed from the list."""
    allowed = _clear_of_gaps(missing)
    used = np.zeros(missing.shape, bool)
    for _ in range(count):
        copies = (transplanted(missing, place) & allowed for place in placements)
        gain = [int(c.sum()) - int(0.7 * (c & used).sum()) for c in copies]
        place = placements.pop(int(np.argmax(gain)))
        hidden = transplanted(missing, place) & allowed
        hidden &= _window(hidden, int(SHARE * (~missing).sum()), rng)
        used |= hidden
        yield place, hidden


def _lines_of_bands(missing: Bools, count: int, rng: np.random.Generator) -> Iterator[Bools]:
    """Yield (bands, rows, cols) masks: some lines of every `count`-th band of a copy of the gaps.
    Random placements are used, as all are equally good."""
    for number, place in enumerate(random_placements(missing, rng, count)):
        hidden = transplanted(missing, place) & ~missing
        hidden &= (np.arange(len(hidden)) % count == number)[:, None, None]
        yield hidden & _some_lines(hidden, rng)


def scattered(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """Return `folds` for gaps so few that a piece of one copy is not enough: a fold hides several
    whole copies, in all bands at once, until it has ENOUGH entries or a share THIN of the pixels of
    a band.  Copies of gaps that all bands share do not touch."""
    missing = ~mask.shared(observed)
    if not missing.any() or missing.all():
        return []
    allowed = _clear_of_gaps(missing)
    copies = (_scattered(missing, allowed, rng) for _ in range(count))
    return [np.broadcast_to(hidden, observed.shape) for hidden in copies]


def _scattered(missing: Bools, allowed: Bools, rng: np.random.Generator) -> Bools:
    """Return one fold of `scattered`, made of copies that lie in the allowed entries."""
    hidden = np.zeros(missing.shape, bool)
    for place in random_placements(missing, rng, TRIALS):
        copy = transplanted(missing, place) & allowed
        if missing.ndim == 3 or not (ndimage.binary_dilation(copy, mask.EIGHT) & hidden).any():
            hidden |= copy
        if hidden.sum() >= ENOUGH or hidden.mean(axis=(-2, -1)).max() >= THIN:
            break
    return hidden


def random_placements(missing: Bools, rng: np.random.Generator, count: int) -> list[Placement]:
    """Return `count` random placements of a copy of the gaps."""
    rows, cols = missing.shape[-2:]
    quarter = 1 if missing.ndim == 2 else 2  # where bands differ, dead columns stay columns
    return [
        Placement(
            quarter * int(rng.integers(4)),
            bool(rng.integers(2)),
            int(rng.integers(rows)),
            int(rng.integers(cols)),
        )
        for _ in range(count)
    ]


def _clear_of_gaps(missing: Bools) -> Bools:
    """Return the observed entries that are far enough from the real gaps to hold a copy."""
    if missing.ndim == 3:
        return ~missing
    width = float(mask.thickness(missing)[missing].mean())
    distance = ndimage.distance_transform_edt(~missing)
    while width >= 1:
        clear: Bools = distance > width
        if clear.mean() > 0.5 * (~missing).mean():
            return clear
        width /= 2
    return ~missing


def _some_lines(hidden: Bools, rng: np.random.Generator) -> Bools:
    """Return a random share of the lines along the gaps, (1, rows, 1) or (1, 1, cols): a band with
    a whole copy hidden would be harder to fill than any real band."""
    across = 1 + int(np.argmax([np.diff(hidden, axis=axis).sum() for axis in (1, 2)]))
    lines = rng.random(hidden.shape[across]) < LINES
    return np.expand_dims(lines, tuple({0, 1, 2} - {across}))


def _window(hidden: Bools, most: int, rng: np.random.Generator) -> Bools:
    """Return a random rectangle with about `most` hidden pixels; all pixels if it has none."""
    window = np.ones(hidden.shape, bool)
    share = min(1.0, most / max(int(hidden.sum()), 1)) ** 0.5
    if share == 1:
        return window
    window[:] = False
    size = [max(int(share * n), 1) for n in hidden.shape]
    corner = [int(rng.integers(n - s + 1)) for n, s in zip(hidden.shape, size, strict=True)]
    window[corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]] = True
    return window if (window & hidden).any() else np.ones(hidden.shape, bool)
