"""Tiles over the gaps of a large scene: plan them, weight them, and blend them.

The scene is cut into cores that do not overlap.  The estimate of a tile is used on its *support*:
the core and half of the blending zone around it.  It is computed on its *window*: the support and
enough context for its widest gap.  Rows and columns are those of the scene.  No function here reads
or writes files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats, Ints
from hydiff.errors import BadValue

CONTEXT = 16  # px, least context of a tile; wide gaps need more
OVERLAP = 16  # px over which two neighbours are blended

Box = tuple[slice, slice]  # rows, cols


class Grid(NamedTuple):
    """Edges of the cores; the first edge is 0, the last one the length of the axis."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    overlap: int  # px over which neighbours are blended, half of it on each side of an edge


class Tile(NamedTuple):
    """A tile with something to fill."""

    number: int  # position in the grid, row by row, also counting tiles without gaps
    support: Box  # where its estimate is used
    window: Box  # the data it is computed from


class Piece(NamedTuple):
    """The estimate of one tile at n pixels of the scene."""

    rows: Ints  # (n,)
    cols: Ints  # (n,)
    weight: Floats  # (n,)
    values: Floats  # (bands, n), NaN where it has no estimate


def grid(shape: tuple[int, int], size: int, overlap: int = OVERLAP) -> Grid:
    """Return the grid that cuts a scene (rows, cols) into cores of nearly equal size.

    Their sides are at most `size` px.
    """
    if size < 8:
        raise BadValue(f"tiles of {size} pixels are too small to fill from: give 8 or more")
    if not 0 <= overlap <= size // 2:
        raise BadValue(f"an overlap of {overlap} pixels: expected 0 to {size // 2}, half a tile")

    def edges(length: int) -> tuple[int, ...]:
        """Return the edges of the cores along an axis."""
        count = -(-length // size)
        return tuple(i * length // count for i in range(count + 1))

    return Grid(edges(shape[0]), edges(shape[1]), overlap // 2 * 2)


def plan(cuts: Grid, width: Floats, context: int = CONTEXT) -> list[Tile]:
    """Return the tiles that have something to fill, in the order of their numbers.

    width: (rows, cols) local gap width in px where an entry is to be filled, 0 elsewhere.  The
    context is wider than the widest gap in the support, so that the window contains data from the
    other side of the gap.
    """
    tiles: list[Tile] = []
    for i in range(len(cuts.rows) - 1):
        for j in range(len(cuts.cols) - 1):
            support = (
                _reach(cuts.rows, i, cuts.overlap // 2),
                _reach(cuts.cols, j, cuts.overlap // 2),
            )
            widest = float(width[support].max())
            if widest > 0:
                margin = max(context, int(np.ceil(min(widest, max(width.shape)))) + 1)
                window = tuple(
                    slice(max(s.start - margin, 0), min(s.stop + margin, n))
                    for s, n in zip(support, width.shape, strict=True)
                )
                number = i * (len(cuts.cols) - 1) + j
                tiles.append(Tile(number, support, (window[0], window[1])))
    return tiles


def _reach(edges: tuple[int, ...], i: int, half: int) -> slice:
    """Return the core i of an axis, widened by `half` px on each side within the axis."""
    return slice(max(edges[i] - half, 0), min(edges[i + 1] + half, edges[-1]))


def weights(cuts: Grid, tile: Tile) -> Floats:
    """(rows, cols) blending weights on the support, in (0, 1].

    They fall off as a raised cosine across the edges that the tile shares with others, but not at
    the border of the scene.  At every pixel, the weights of all tiles of a grid sum to 1.
    """
    i, j = divmod(tile.number, len(cuts.cols) - 1)
    down = _profile(cuts.rows, i, tile.support[0], cuts.overlap // 2)
    right = _profile(cuts.cols, j, tile.support[1], cuts.overlap // 2)
    return down[:, None] * right


def _profile(edges: tuple[int, ...], i: int, support: slice, half: int) -> Floats:
    """Return the weights along one axis of the support of core i; see `weights`."""
    centres = np.arange(support.start, support.stop) + 0.5

    def risen(edge: int) -> Floats:
        """Return a raised cosine from 0 to 1 across an inner edge."""
        share = np.clip((centres - edge + half) / (2 * half), 0.0, 1.0)
        risen: Floats = np.sin(0.5 * np.pi * share) ** 2
        return risen

    profile = np.ones(len(centres))
    if half and edges[i] > 0:
        profile *= risen(edges[i])
    if half and edges[i + 1] < edges[-1]:
        profile *= 1 - risen(edges[i + 1])
    return profile


def overlap_add(
    box: Box, bands: int, pieces: Iterable[Piece], pixels: Bools | None = None
) -> Floats:
    """Return the weighted mean of the pieces in a box, (bands, rows, cols).

    An entry is the mean over the tiles that have an estimate of it, and NaN if none has.
    pixels: (rows, cols) mask of the box that contains all pieces.  The result is then (bands, 1, n)
    at its n pixels, row by row.
    """
    (top, bottom), (left, right) = ((s.start, s.stop) for s in box)
    shape = (bottom - top, right - left)
    if pixels is not None:
        numbers, shape = np.cumsum(pixels) - 1, (1, int(pixels.sum()))
    total = np.zeros((bands, math.prod(shape)))
    weight = np.zeros((1, math.prod(shape)))  # the same for all bands, until an estimate is missing
    for rows, cols, share, values in pieces:
        inside = (rows >= top) & (rows < bottom) & (cols >= left) & (cols < right)
        if not inside.all():
            rows, cols, share, values = rows[inside], cols[inside], share[inside], values[:, inside]
        at = (rows - top) * (right - left) + cols - left
        at = at if pixels is None else numbers[at]
        finite = np.isfinite(values)
        if finite.all():
            total[:, at] += share * values
            weight[:, at] += share
        else:
            weight = weight if len(weight) == bands else np.repeat(weight, bands, axis=0)
            total[:, at] += np.where(finite, share * values, 0.0)
            weight[:, at] += np.where(finite, share, 0.0)
    with np.errstate(invalid="ignore"):
        total /= weight
    return total.reshape(bands, *shape)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a tile.

    Tile 0 has the seed of the scene, so that a scene of one tile is filled as without tiles.
    """
    if number == 0:
        return seed
    state = np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
