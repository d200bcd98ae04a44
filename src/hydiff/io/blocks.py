"""Walking through a cube a piece at a time, so that memory stays bounded whatever its size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hydiff.cube import Array, Bools

BUDGET = 64 << 20  # bytes of one block: a few bands of a large scene, all of a small one

Block = tuple[slice, slice, slice]


def blocks(
    shape: tuple[int, int, int], itemsize: int, axis: int = 0, multiple: int = 1
) -> Iterator[Block]:
    """Slices (bands, rows, cols) that cover `shape`, cut along `axis` (0 bands, 1 rows).

    Cuts along rows lie on multiples of `multiple`, the height of a file's own tiles.
    """
    bands, rows, cols = shape
    if axis == 1:
        step = max(1, BUDGET // (itemsize * bands * cols * multiple)) * multiple
        for start in range(0, rows, step):
            yield slice(0, bands), slice(start, min(start + step, rows)), slice(0, cols)
        return
    step = BUDGET // (itemsize * rows * cols)
    if step:
        for start in range(0, bands, step):
            yield slice(start, min(start + step, bands)), slice(0, rows), slice(0, cols)
        return
    for band in range(bands):  # one band alone is over the budget: cut it along its rows
        for _, lines, samples in blocks((1, rows, cols), itemsize, 1, multiple):
            yield slice(band, band + 1), lines, samples


def differs(old: Array, new: Array) -> Bools:
    """True where two blocks differ; NaN equals NaN."""
    unequal: Bools = old != new
    if old.dtype.kind == "f":
        unequal &= ~(np.isnan(old) & np.isnan(new))
    return unequal
