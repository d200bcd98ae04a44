"""Windows of a scene: its errors are drawn in them, and their model is fitted to some of them.

A cube in memory is drawn at once, but with a model of the same windows as a scene by tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from hydiff.cube import Floats

Window = tuple[slice, slice]  # rows and columns of a scene

SIDE = 96  # px, largest side of a window in which errors are drawn at once
AROUND = (32, 96)  # px, bounds of the width of what surrounds it in the kriging
BEYOND = 16  # px of data behind a gap
FITTED = 160  # px, largest side of the windows that the error model is fitted to
MOST = 4  # of these windows


def divided(shape: Sequence[int], side: int = SIDE) -> Iterator[Window]:
    """Return the windows that divide an image (rows, cols); none has more than `side` px a side."""
    edges = [[i * n // -(-n // side) for i in range(-(-n // side) + 1)] for n in shape]
    return product(*([slice(*ends) for ends in pairwise(axis)] for axis in edges))


def surrounding(window: Window, distance: Floats) -> Window:
    """Return a window with the pixels around it that matter, behind wide gaps too.

    distance: (rows, cols) of each pixel of the scene to the nearest data, in px.
    """
    widest = 2 * float(distance[_widened(window, AROUND[0], distance.shape)].max())
    return _widened(window, int(np.clip(widest + BEYOND, *AROUND)), distance.shape)


def _widened(window: Window, width: int, shape: Sequence[int]) -> Window:
    """Return a window with a border of some pixels, within the scene."""
    rows, cols = (
        slice(max(s.start - width, 0), min(s.stop + width, n))
        for s, n in zip(window, shape, strict=True)
    )
    return rows, cols


def fitted(shape: Sequence[int], is_filled: Callable[[Window], bool]) -> list[Window]:
    """Return the windows of a scene (rows, cols) that the model is fitted to: a few, spread over
    those with filled entries."""
    every = list(divided(shape, FITTED))
    some = [window for window in every if is_filled(window)] or every
    return [some[round(i)] for i in np.linspace(0, len(some) - 1, min(MOST, len(some)))]
