"""Try a fill on observed entries: hide copies of the gap pattern itself, and weigh their errors.

Masks are bool, (rows, cols) when all bands share them or (bands, rows, cols); True = observed in
`observed`, True = the entry is hidden in a fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Bools, Floats, Ints
from hydiff.gaps import mask

TRIALS = 96  # placements that are drawn; the folds are the best of them
SHARE = 0.12  # of the observed pixels hidden in one fold, about; more where gaps are few and wide
LINES = 1 / 3  # of those that a copy hides where bands differ
ENOUGH = 300  # hidden entries in a fold of several copies
THIN = 0.05  # of the pixels of a band that such a fold hides, about
EDGES = (1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 20.0)  # px: distance classes end here
TEXTURES = 3  # classes of local roughness
HEAVIEST = 10.0  # a hidden entry counts at most so many times
# of the data around a pixel that is far from any gap: with less in reach, nothing is known of it
FEW_STEPS = 1e-4


class Placement(NamedTuple):
    """Where a copy of the pattern goes: turned, mirrored, then rolled."""

    turns: int  # by 90°
    mirrored: bool
    down: int  # px
    right: int


def transplanted(missing: Bools, placement: Placement) -> Bools:
    """The pattern moved over the same grid; what leaves it on one side returns on the other.

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


def folds(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """Which observed entries to hide, `count` times: pieces of transplanted copies of the gaps.

    Copies keep a gap's width away from the real gaps, or as much of it as leaves half of the
    observed pixels; each fold takes a window of its copy, or where bands differ a third of the gaps
    of every `count`-th band, so that what remains is still like the scene.  The shape is that of
    `observed`.
    """
    missing = ~mask.shared(observed)
    if not missing.any() or missing.all():
        return []
    if missing.ndim == 2:
        placements = random_placements(missing, rng, TRIALS)
        chosen = [hidden for _, hidden in _pieces(missing, placements, count, rng)]
    else:
        chosen = [*_lines_of_bands(missing, count, rng)]
    return [np.broadcast_to(hidden, observed.shape) for hidden in chosen if hidden.any()]


def spectral_folds(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """`folds` for gaps (bands, rows, cols) that differ from band to band, where pixels keep few:
    a hidden pixel lacks all that a pixel of the gaps lacks, so that it is as hard to fill.

    The copies go to pixels without any gap; there may be none.
    """
    missing = ~observed
    outline: Bools = np.asarray(missing.any(axis=0))
    if not outline.any() or outline.all():
        return []
    pieces = _pieces(outline, random_placements(missing, rng, TRIALS), count, rng)
    chosen = (transplanted(missing, place) & hidden for place, hidden in pieces)
    return [hidden for hidden in chosen if hidden.any()]


def _pieces(
    missing: Bools, placements: list[Placement], count: int, rng: np.random.Generator
) -> Iterator[tuple[Placement, Bools]]:
    """The best placements of copies of the gaps (rows, cols), and the pixels of a window of each;
    those are taken from the list."""
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
    """(bands, rows, cols) some lines of every `count`-th band of copies of the gaps: any placement
    is as good as another."""
    for number, place in enumerate(random_placements(missing, rng, count)):
        hidden = transplanted(missing, place) & ~missing
        hidden &= (np.arange(len(hidden)) % count == number)[:, None, None]
        yield hidden & _some_lines(hidden, rng)


def scattered(observed: Bools, count: int, rng: np.random.Generator) -> list[Bools]:
    """`folds` for gaps so few that a piece of one copy says nothing: each has several whole copies
    that do not meet, in all bands at once, until there are ENOUGH hidden entries or a share THIN of
    a band's pixels."""
    missing = ~mask.shared(observed)
    if not missing.any() or missing.all():
        return []
    allowed = _clear_of_gaps(missing)
    copies = (_scattered(missing, allowed, rng) for _ in range(count))
    return [np.broadcast_to(hidden, observed.shape) for hidden in copies]


def _scattered(missing: Bools, allowed: Bools, rng: np.random.Generator) -> Bools:
    hidden = np.zeros(missing.shape, bool)
    for place in random_placements(missing, rng, TRIALS):
        copy = transplanted(missing, place) & allowed
        if missing.ndim == 3 or not (ndimage.binary_dilation(copy, mask.EIGHT) & hidden).any():
            hidden |= copy
        if hidden.sum() >= ENOUGH or hidden.mean(axis=(-2, -1)).max() >= THIN:
            break
    return hidden


def random_placements(missing: Bools, rng: np.random.Generator, count: int) -> list[Placement]:
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
    """Observed entries that lie far enough from the real gaps for a copy to be put there."""
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
    """A share of the lines along the gaps, (1, rows, 1) or (1, 1, cols): a band that lost all of a
    copy would be harder to fill than any real one is."""
    across = 1 + int(np.argmax([np.diff(hidden, axis=axis).sum() for axis in (1, 2)]))
    lines = rng.random(hidden.shape[across]) < LINES
    return np.expand_dims(lines, tuple({0, 1, 2} - {across}))


def _window(hidden: Bools, most: int, rng: np.random.Generator) -> Bools:
    """A rectangle, somewhere, with about so many hidden pixels; everything, if that holds none."""
    window = np.ones(hidden.shape, bool)
    share = min(1.0, most / max(int(hidden.sum()), 1)) ** 0.5
    if share == 1:
        return window
    window[:] = False
    size = [max(int(share * n), 1) for n in hidden.shape]
    corner = [int(rng.integers(n - s + 1)) for n, s in zip(hidden.shape, size, strict=True)]
    window[corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]] = True
    return window if (window & hidden).any() else np.ones(hidden.shape, bool)


# ── classes of entries ───────────────────────────────────────────────────────────────────────────


def distance(observed: Bools) -> Floats:
    """Pixels to the nearest observed one of the band; as far as can be where there is none."""
    if observed.ndim == 2:
        if not observed.any():
            return np.full(observed.shape, float(sum(observed.shape)))
        far: Floats = ndimage.distance_transform_edt(~observed)
        return far
    out = np.empty(observed.shape)
    for bands, plane in mask.band_groups(observed):
        out[bands] = distance(plane)
    return out


def distance_class(observed: Bools) -> Ints:
    """Class 0 … len(EDGES) of the distance to the nearest observed pixel of the band."""
    classes: Ints = np.digitize(distance(observed), EDGES)
    return classes


def roughness(values: Array, observed: Bools, radius: float = 6.0) -> Floats:
    """(rows, cols) mean absolute step between observed neighbours around each pixel.

    values (bands, rows, cols); each band counts relative to its own spread.
    """
    total, count = np.zeros(values.shape[1:]), np.zeros(values.shape[1:])
    for flags, own in _some_bands(values, observed):
        for axis in (0, 1):
            both = np.minimum(flags, np.roll(flags, 1, axis))
            both[(slice(0, 1), slice(None))[:: 1 if axis == 0 else -1]] = False
            total += np.where(both, np.abs(own - np.roll(own, 1, axis)), 0.0)
            count += both
    # smoothing is linear: once for the sums does for all bands
    near, pairs = (ndimage.gaussian_filter(a, radius, mode="constant") for a in (total, count))
    return _carried(near / np.maximum(pairs, 1e-12), pairs, FEW_STEPS)


def _carried(plane: Floats, reach: Floats, least: float) -> Floats:
    """A plane (rows, cols) with the nearest value in place of those that rest on too little: deep
    in a wide gap the ground is as rough as at its edge, not smooth."""
    known = reach >= least * reach.max()
    if known.all() or not reach.any():
        return plane
    nearest = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    carried: Floats = plane[tuple(nearest)]
    return carried


def _some_bands(values: Array, observed: Bools) -> Iterator[tuple[Bools, Floats]]:
    """About eight bands that vary: what is observed, and the values with mean 0 and spread 1."""
    entries = np.broadcast_to(observed, values.shape)
    for band in range(0, len(values), max(len(values) // 8, 1)):
        flags, own = entries[band], np.asarray(values[band], dtype=np.float64)
        spread = own[flags].std() if flags.any() else 0.0
        if spread > 0:
            yield flags, np.where(flags, (own - own[flags].mean()) / spread, 0.0)


def importance(kind: Ints, want: Ints) -> Floats:
    """Weights (n,) of hidden entries of these kinds, so that they count like as many as wanted of
    each kind (kinds,).

    The weights have mean 1 and none exceeds HEAVIEST times their median.
    """
    have = np.bincount(kind, minlength=len(want)).astype(float)
    ratio = np.where(have > 0, want / np.maximum(have, 1), 0.0)
    weight = ratio[kind]
    if not weight.any():
        return np.ones(len(kind))
    weight = np.minimum(weight, HEAVIEST * np.median(weight[weight > 0]))
    normal: Floats = weight / weight.mean()
    return normal
