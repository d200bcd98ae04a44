"""Masks of observed entries: the geometry of their gaps, and simulated masks.

`observed` is bool, True = measured, (rows, cols) when all bands share it or (bands, rows, cols);
`missing` is its opposite.  Indices of bands, rows and columns count from 0, ranges include both
ends, widths are in pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from math import isqrt
from numbers import Real

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Floats, Ints
from hydiff.errors import BadValue, ShapeMismatch, UnknownName

Run = tuple[int, int]  # first and last index

EIGHT = np.ones((3, 3), bool)  # neighbours across a corner belong to one gap
DEFAULT_MISSING = 1 / 3  # default share of hidden entries of a simulated mask


# --- geometry ---------------------------------------------------------------------------------


def shared(observed: Bools) -> Bools:
    """Return the mask as (rows, cols) if all its bands agree; else unchanged."""
    if observed.ndim == 3 and all(np.array_equal(band, observed[0]) for band in observed):
        first: Bools = observed[0]
        return first
    return observed


def band_groups(observed: Bools, bands: int | None = None) -> list[tuple[Ints, Bools]]:
    """Group bands by mask: (band numbers, their mask (rows, cols)), in order of first appearance.

    bands: number of bands, needed for a mask (rows, cols), which serves any number of them.
    """
    if observed.ndim == 2:
        if bands is None:
            raise ShapeMismatch("a (rows, cols) mask serves any number of bands: give bands=")
        return [(np.arange(bands), observed)]
    if observed.ndim != 3 or bands not in (None, len(observed)):
        raise ShapeMismatch(f"expected a mask of {bands or 'all'} bands, found {observed.shape}")
    groups: dict[bytes, list[int]] = {}
    for b, band in enumerate(observed):
        groups.setdefault(blake2b(np.packbits(band).data).digest(), []).append(b)
    return [(np.array(members), observed[members[0]]) for members in groups.values()]


def outside(missing: Bools) -> Bools:
    """Return the missing pixels (rows, cols) that do not lie between two observed pixels.

    A pixel lies between two others if they are on opposite sides of it along its row, its column or
    one of its two diagonals.
    """
    observed = ~missing
    mirrored = _between(_shear(observed[:, ::-1]))
    enclosed = _between(observed) | _between(observed.T).T
    enclosed |= _unshear(_between(_shear(observed)), observed.shape)
    enclosed |= _unshear(mirrored, observed.shape)[:, ::-1]
    result: Bools = missing & ~enclosed
    return result


def _between(observed: Bools) -> Bools:
    """True where a column has observed pixels both at or above and at or below a pixel."""
    above = np.logical_or.accumulate(observed, axis=0)
    below = np.logical_or.accumulate(observed[::-1], axis=0)[::-1]
    return above & below


def _shear(a: Bools) -> Bools:
    """Shift row i right by i, to (rows, rows + cols), so that diagonals become columns."""
    rows, cols = a.shape
    width = rows + cols
    # written in rows of width + 1 and read in rows of width, so that row i starts at column i
    buffer = np.zeros((rows, width + 1), bool)
    buffer[:, :cols] = a
    return buffer.ravel()[: rows * width].reshape(rows, width)


def _unshear(a: Bools, shape: tuple[int, ...]) -> Bools:
    """Undo `_shear`: (rows, rows + cols) to `shape`, which is (rows, cols)."""
    rows, width = a.shape
    buffer = np.zeros(rows * (width + 1), bool)
    buffer[: a.size] = a.ravel()
    return buffer.reshape(rows, width + 1)[:, : shape[1]]


def thickness(missing: Bools) -> Floats:
    """Local width of the gaps (rows, cols) in pixels: the widest disc in a gap that covers a pixel.

    0 at observed pixels; inf everywhere if no pixel is observed.  A full-height stripe n pixels
    wide has thickness n.  Other widths are rounded down to whole pixels (to 1/64 beyond 128).
    Pixels outside the image do not count as observed: a gap n pixels deep along the border, with
    data on one side only, has thickness 2n - 1.
    """
    out = np.zeros(missing.shape)
    if missing.all():
        return np.full(missing.shape, np.inf)
    labels, _ = ndimage.label(missing, EIGHT)
    boxes = [_grown(box) for box in ndimage.find_objects(labels)]
    areas = sum(labels[box].size for box in boxes)
    if areas + 1000 * len(boxes) > labels.size:  # many or long oblique gaps: faster all at once
        return _disc_width(missing)
    for number, box in enumerate(boxes, start=1):
        gap = labels[box] == number
        out[box][gap] = _disc_width(gap)[gap]
    return out


def _grown(box: tuple[slice, ...]) -> tuple[slice, ...]:
    """Grow a box by one pixel on each side, to include the observed rim of its gap."""
    return tuple(slice(max(s.start - 1, 0), s.stop + 1) for s in box)


def _disc_width(gap: Bools) -> Floats:
    """Compute `thickness` in a window that contains its gaps completely.

    The centre of a stripe of even width lies between pixels, so discs are centred on a grid of half
    pixels.  There a disc of width w has radius w, one less than the distance from its centre to the
    nearest observed node.
    """
    half = np.zeros([2 * n - 1 for n in gap.shape], bool)
    half[::2, ::2] = gap
    half[1::2] = half[:-1:2] | half[2::2]
    half[:, 1::2] = half[:, :-1:2] | half[:, 2::2]
    distance = ndimage.distance_transform_edt(half)
    # discs of smaller distance are 1 wide, and no gap is narrower
    rows, cols = np.nonzero(distance >= 3)
    distance = distance[rows, cols]
    order = np.argsort(distance, kind="stable")
    rows, cols, distance = rows[order], cols[order], distance[order]
    out = np.ones(gap.shape)
    first = 0
    while first < len(order):  # by increasing width, so that wider discs overwrite narrower ones
        width = int(distance[first] - 1 + 1e-9)
        last = int(np.searchsorted(distance, width + 1 + max(1, width // 64) - 1e-9))
        _paint(out, rows[first:last], cols[first:last], width)
        first = last
    return np.where(gap, out, 0.0)


def _paint(out: Floats, rows: Ints, cols: Ints, width: int) -> None:
    """Set out = width on the pixels of discs of that width.

    rows, cols: centres of the discs in half pixels, by increasing distance to the data.
    """
    if width >= 16:  # keep the deepest centre of each block: discs this close still cover a stripe
        side = isqrt(width)
        blocks = rows[::-1] // side * (1 << 32) + cols[::-1] // side
        deepest = len(rows) - 1 - np.unique(blocks, return_index=True)[1]
        rows, cols = rows[deepest], cols[deepest]
    r = (rows[:, None] - width + 1) // 2 + np.arange(width + 1)
    square = width**2 - (2 * r - rows[:, None]) ** 2
    i, k = np.nonzero((square >= 0) & (r >= 0) & (r < out.shape[0]))
    reach = np.sqrt(square[i, k]).astype(np.intp)
    start = np.clip((cols[i] - reach + 1) // 2, 0, out.shape[1])
    stop = np.clip((cols[i] + reach) // 2 + 1, 0, out.shape[1])
    line = r[i, k] * (out.shape[1] + 1)  # one more column, for runs that end at the border
    size = out.shape[0] * (out.shape[1] + 1)
    edges = np.bincount(line + start, minlength=size) - np.bincount(line + stop, minlength=size)
    out[np.cumsum(edges).reshape(out.shape[0], -1)[:, :-1] > 0] = width


# --- simulated masks --------------------------------------------------------------------------

Shape = tuple[int, int, int]  # bands, rows, cols
MaskMaker = Callable[[Shape, float | None, np.random.Generator], Bools]

# First and last missing column of each stripe on 144 columns, as published.
PUBLISHED_COLUMNS = 144
PUBLISHED: dict[str, list[Run]] = {
    "published-1": [(11, 13), (29, 34), (59, 67)],
    "published-2": [(19, 24), (39, 44), (59, 69), (89, 99)],
    "published-3": [(9, 14), (19, 24), (29, 34), (39, 44)],
    "published-4": [(0, 3), *[(c, c + 3) for c in range(9, 140, 10)]],
}
FRAME = 32  # lines of a frame, which EMIT loses as a whole


def make_mask(kind: str, shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Return a simulated mask of a kind in `MASKS` for a cube of this shape.

    missing: share of entries to hide, DEFAULT_MISSING if None; must be None for published masks,
        whose share is fixed.
    The result is (rows, cols), or (bands, rows, cols) for the kinds that differ by band.
    """
    if kind not in MASKS:
        raise UnknownName("mask", kind, MASKS)
    if len(shape) != 3 or min(shape) < 1 or shape[1] * shape[2] < 2:
        raise BadValue(f"expected (bands, rows, cols) with two pixels or more, found {shape}")
    return MASKS[kind](shape, missing, rng)


def _quota(n: int, missing: float | None, items: str = "pixels") -> int:
    """Return how many of n items to hide: the given share, but at least one and never all."""
    share = DEFAULT_MISSING if missing is None else missing
    if not (isinstance(share, Real) and 0 < share < 1):
        raise BadValue(f"the missing share must lie between 0 and 1, found {missing}")
    if n < 2:
        raise BadValue(f"this mask hides some of the {items} and keeps others: {n} is too few")
    return min(max(round(share * n), 1), n - 1)


def _lowest(depth: Floats, n: int) -> Bools:
    """Return flags that are True at the n lowest entries."""
    flags = np.zeros(depth.size, bool)
    flags[np.argsort(depth, axis=None, kind="stable")[:n]] = True
    return flags.reshape(depth.shape)


def _pile(
    shape: Shape,
    missing: float | None,
    rng: np.random.Generator,
    figure: Callable[[Floats, Floats, np.random.Generator], Floats],
    reach: float,
) -> Bools:
    """Hide random figures until the share is reached; the last is shrunk to meet it exactly.

    figure(down, right, rng) draws a random figure and returns a number for pixels at these offsets
    from its centre, at most 1 inside the figure, which extends `reach` pixels at most.
    """
    hidden = np.zeros(shape[1:], bool)
    n_left = _quota(hidden.size, missing)
    while n_left > 0:
        centre = rng.uniform(0, shape[1:])
        window = tuple(slice(max(int(c - reach), 0), int(c + reach) + 2) for c in centre)
        hidden_part = hidden[window]
        (down, right) = (
            np.arange(n) + w.start - c
            for n, w, c in zip(hidden_part.shape, window, centre, strict=True)
        )
        depth = np.where(hidden_part, np.inf, figure(down[:, None], right, rng))
        new = depth <= 1
        if new.sum() > n_left:
            new = _lowest(depth, n_left)
        hidden_part |= new
        n_left -= int(new.sum())
    return ~hidden


def _stripe(down: Floats, right: Floats, rng: np.random.Generator) -> Floats:
    """Draw an oblique stripe, 3 to 8 pixels wide: a `figure` of `_pile`."""
    slope, width = rng.uniform(-0.2, 0.2), rng.uniform(3, 8)
    depth: Floats = np.abs(right - slope * down) / (width / 2)
    return depth


def _blob(down: Floats, right: Floats, rng: np.random.Generator) -> Floats:
    """Draw an ellipse with radii of 5 to 14 pixels: a `figure` of `_pile`."""
    radii, angle = rng.uniform(5, 14, 2), rng.uniform(0, np.pi)
    along = down * np.cos(angle) + right * np.sin(angle)
    across = right * np.cos(angle) - down * np.sin(angle)
    depth: Floats = np.hypot(along / radii[0], across / radii[1])
    return depth


def _tile(down: Floats, right: Floats, rng: np.random.Generator) -> Floats:
    """Draw a rectangle with sides of 8 to 32 pixels: a `figure` of `_pile`."""
    height, width = rng.uniform(8, 32, 2)
    depth: Floats = np.maximum(np.abs(down) / (height / 2), np.abs(right) / (width / 2))
    return depth


def _slc_off(shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Oblique wedges that widen from the middle columns to both edges, as on Landsat 7."""
    _, rows, cols = shape
    row, col = np.arange(rows)[:, None], np.arange(cols)
    period = min(rng.uniform(20, 34), rows)  # px between two wedges
    phase = (row + rng.uniform(-0.2, 0.2) * col + rng.uniform(0, period)) % period
    opening = np.abs(2 * col + 1 - cols) / cols
    return ~_lowest(np.abs(phase - period / 2) / (opening + 1e-9), _quota(rows * cols, missing))


def _lines(shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Full-width lines, the same in all bands."""
    dead = _lowest(rng.random(shape[1]), _quota(shape[1], missing, "lines"))
    return np.repeat(~dead[:, None], shape[2], axis=1)


def _frames(shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Full-width blocks of FRAME lines, or of a quarter of the image if that is less.

    The share is met in steps of a block.  Blocks at the border are lost last, as no method can
    interpolate across them.
    """
    _, rows, cols = shape
    height = min(FRAME, max(rows // 4, 1))
    n = -(-rows // height)
    order = rng.random(n)
    order[[0, -1]] += 1
    lost_blocks = _lowest(order, _quota(n, missing, "frames"))
    return np.repeat(~np.repeat(lost_blocks, height)[:rows, None], cols, axis=1)


def _columns(shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Full-height columns, drawn for each band separately."""
    bands, rows, cols = shape
    _quota(cols, missing, "columns")
    total = _quota(bands * cols, missing)
    dead = np.stack([_lowest(rng.random(cols), n) for n in _spread(total, bands, cols - 1)])
    return np.repeat(~dead[:, None, :], rows, axis=1)


def _pixels(shape: Shape, missing: float | None, rng: np.random.Generator) -> Bools:
    """Single pixels, drawn for each band separately."""
    bands, rows, cols = shape
    total = _quota(bands * rows * cols, missing)
    counts = _spread(total, bands, rows * cols - 1)
    return ~np.stack([_lowest(rng.random((rows, cols)), n) for n in counts])


def _spread(total: int, bands: int, most: int) -> list[int]:
    """Divide a total as evenly as possible among the bands, at most `most` each."""
    return [min((total * (b + 1)) // bands - (total * b) // bands, most) for b in range(bands)]


def columns_needed(kind: str) -> int:
    """Return how many columns a cube must have for a kind of mask.

    Published stripes have fixed columns, and one observed column must follow the last of them.
    Other kinds fit any width (1).
    """
    return PUBLISHED[kind][-1][1] + 2 if kind in PUBLISHED else 1


def _published(
    shape: Shape, missing: float | None, rng: np.random.Generator, *, name: str
) -> Bools:
    """Full-height stripes at their published columns, repeated every 144 columns."""
    if missing is not None:
        raise BadValue(f"{name} has its own missing share: leave the share out (None)")
    _, rows, cols = shape
    if cols < columns_needed(name):
        fit = [kind for kind in PUBLISHED if cols >= columns_needed(kind)]
        raise BadValue(
            f"the stripes of {name} need {columns_needed(name)} columns, found {cols}; "
            f"choose the mask {' or '.join([*fit, 'stripes'])} instead"
        )
    dead = np.zeros(cols, bool)
    for start in range(0, max(cols - PUBLISHED_COLUMNS, 0) + 1, PUBLISHED_COLUMNS):
        for first, last in PUBLISHED[name]:
            dead[start + first : start + last + 1] = True
    return np.repeat(~dead[None], rows, axis=0)


MASKS: dict[str, MaskMaker] = {
    **{name: partial(_published, name=name) for name in PUBLISHED},
    "stripes": partial(_pile, figure=_stripe, reach=1e9),
    "slc-off": _slc_off,
    "blobs": partial(_pile, figure=_blob, reach=14),
    "lines": _lines,
    "frames": _frames,
    "columns": _columns,
    "pixels": _pixels,
    "tiles": partial(_pile, figure=_tile, reach=16),
}
