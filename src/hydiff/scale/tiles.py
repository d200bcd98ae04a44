"""Tiles over the gaps of a large scene: plan them, weigh them, add them up.  Pure.

The scene is cut into cores that do not overlap.  A tile counts on its *support*, the core and half
of the blending zone around it, and is computed on its *window*, the support and the context that
its widest gap asks for.  Rows and columns are those of the scene.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats, Ints
from hydiff.errors import BadValue

CONTEXT = 16  # px of context that every tile has; wide gaps ask for more
OVERLAP = 16  # px over which two neighbours are blended

Box = tuple[slice, slice]  # rows, cols


class Grid(NamedTuple):
    """Where the scene is cut; the first edge is 0, the last one the length of the axis."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    overlap: int  # px over which neighbours are blended, half of it on each side of an edge


class Tile(NamedTuple):
    number: int  # its place in the grid, row by row, gaps or not
    support: Box  # where its estimate counts
    window: Box  # what it is computed from


class Piece(NamedTuple):
    """What one tile says about n pixels of the scene."""

    rows: Ints  # (n,)
    cols: Ints  # (n,)
    weight: Floats  # (n,)
    values: Floats  # (bands, n), NaN where it has no estimate


def grid(shape: tuple[int, int], size: int, overlap: int = OVERLAP) -> Grid:
    """Cut a scene (rows, cols) into cores of nearly equal sides, at most `size` px."""
    if size < 8:
        raise BadValue(f"tiles of {size} pixels are too small to fill from: give 8 or more")
    if not 0 <= overlap <= size // 2:
        raise BadValue(f"an overlap of {overlap} pixels: expected 0 to {size // 2}, half a tile")

    def edges(length: int) -> tuple[int, ...]:
        count = -(-length // size)
        return tuple(i * length // count for i in range(count + 1))

    return Grid(edges(shape[0]), edges(shape[1]), overlap // 2 * 2)


def plan(cuts: Grid, width: Floats, context: int = CONTEXT) -> list[Tile]:
    """The tiles that have something to fill, in the order of their number.

    width: (rows, cols) local gap width in px where an entry is to be filled, 0 elsewhere.  The
    context reaches past the widest gap of the support: there are data on the gap's other side.
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
    return slice(max(edges[i] - half, 0), min(edges[i + 1] + half, edges[-1]))


def weights(cuts: Grid, tile: Tile) -> Floats:
    """(rows, cols) of the support, in (0, 1]: a raised cosine across the edges it shares.

    Over all tiles of a grid they sum to 1 at every pixel; at the border of the scene nothing is
    tapered, because no other tile counts there.
    """
    i, j = divmod(tile.number, len(cuts.cols) - 1)
    down = _profile(cuts.rows, i, tile.support[0], cuts.overlap // 2)
    right = _profile(cuts.cols, j, tile.support[1], cuts.overlap // 2)
    return down[:, None] * right


def _profile(edges: tuple[int, ...], i: int, support: slice, half: int) -> Floats:
    at = np.arange(support.start, support.stop) + 0.5

    def risen(edge: int) -> Floats:
        """From 0 to 1 across an inner edge."""
        share = np.clip((at - edge + half) / (2 * half), 0.0, 1.0)
        risen: Floats = np.sin(0.5 * np.pi * share) ** 2
        return risen

    profile = np.ones(len(at))
    if half and edges[i] > 0:
        profile *= risen(edges[i])
    if half and edges[i + 1] < edges[-1]:
        profile *= 1 - risen(edges[i + 1])
    return profile


def overlap_add(
    box: Box, bands: int, pieces: Iterable[Piece], pixels: Bools | None = None
) -> Floats:
    """(bands, rows, cols) of a box: the mean of what the tiles say, by their weights.

    A tile without an estimate of an entry leaves it to the others; NaN where none has one.
    pixels: (rows, cols) those of the box that the pieces lie on; then it is (bands, 1, n) for n of
    them, row by row.
    """
    (top, bottom), (left, right) = ((s.start, s.stop) for s in box)
    shape = (bottom - top, right - left)
    if pixels is not None:
        numbers, shape = np.cumsum(pixels) - 1, (1, int(pixels.sum()))
    total = np.zeros((bands, math.prod(shape)))
    weight = np.zeros((1, math.prod(shape)))  # of all bands, until one of them lacks an estimate
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
    """A tile's own seed; the first tile's is the scene's, so that one tile is the plain fill."""
    if number == 0:
        return seed
    state = np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
