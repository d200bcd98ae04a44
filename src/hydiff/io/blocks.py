"""Blocks of a cube, to process it one block at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hydiff.cube import Array, Bools, Cube

BUDGET = 16 << 20  # bytes of one block: a few bands of a large scene, all of a small one
WHOLE = 64 * 2**20  # bytes of a cube up to which `sampled` takes every value
MOST_CHUNKS = 1000  # most chunks of a chunked file of which it takes every value
SAMPLED_ROWS = 16  # number of evenly spaced rows taken of a larger cube,
SAMPLED = 32 * 2**20  # ... or, of a chunked file, bytes of the chunks taken in all

Block = tuple[slice, slice, slice]


def blocks(
    shape: tuple[int, int, int], itemsize: int, axis: int = 0, multiple: int = 1
) -> Iterator[Block]:
    """Yield slices (bands, rows, cols) that cover `shape`, cut along `axis` (0 bands, 1 rows).

    Cuts along rows lie on multiples of `multiple`, the height of a file's own tiles.
    """
    bands, rows, cols = shape
    if axis == 1:
        step = max(1, BUDGET // (itemsize * bands * cols * multiple)) * multiple
        for start in range(0, rows, step):
            yield slice(0, bands), slice(start, min(start + step, rows)), slice(0, cols)
    elif step := BUDGET // (itemsize * rows * cols):
        for start in range(0, bands, step):
            yield slice(start, min(start + step, bands)), slice(0, rows), slice(0, cols)
    else:  # one band alone is over the budget: cut it along its rows
        for band in range(bands):
            for _, lines, samples in blocks((1, rows, cols), itemsize, 1, multiple):
                yield slice(band, band + 1), lines, samples


def chunk_blocks(
    shape: tuple[int, int, int], itemsize: int, chunks: tuple[int, int, int]
) -> Iterator[Block]:
    """Yield slices (bands, rows, cols) that cover `shape` and cut no chunk of the file in two.

    Each holds as many bands and rows as fit into the budget, at least one row of chunks.
    """
    bands, rows, cols = shape
    chunk_bands, chunk_rows = min(chunks[0], bands), min(chunks[1], rows)
    layer = itemsize * cols * chunk_rows * chunk_bands  # bytes of one row of chunks
    n_bands = min(max(1, BUDGET // layer) * chunk_bands, bands)
    n_rows = max(1, BUDGET // (layer * -(-n_bands // chunk_bands))) * chunk_rows
    for top in range(0, rows, n_rows):
        for first in range(0, bands, n_bands):
            yield (
                slice(first, min(first + n_bands, bands)),
                slice(top, min(top + n_rows, rows)),
                slice(0, cols),
            )


def sampled(cube: Cube, *, deep: bool = False) -> tuple[list[Block], str | None]:
    """Return blocks that sample a cube, and their description; of a small cube, all of it and None.

    A chunk of a compressed file can only be read as a whole, so of a chunked file a few chunks are
    taken: evenly spread over the rows, where sensors lose data, and scattered over bands and
    columns.  With `deep`, for uses that need all bands of a pixel together, evenly spaced rows are
    taken, as of other files.
    """
    bands, rows, cols = cube.shape
    chunks = getattr(cube.values, "chunks", None)
    grid = None if chunks is None else np.ceil(np.divide(cube.shape, chunks))
    if cube.nbytes <= WHOLE and (grid is None or grid.prod() <= MOST_CHUNKS):
        return [(slice(0, bands), slice(0, rows), slice(0, cols))], None
    if chunks is None or grid is None or deep:
        starts = np.unique(np.linspace(0, rows - 1, SAMPLED_ROWS).astype(int)).tolist()
        return [(slice(0, bands), slice(r, r + 1), slice(0, cols)) for r in starts], (
            f"{len(starts)} sampled rows"
        )
    count = int(np.clip(SAMPLED // (np.prod(chunks) * cube.dtype.itemsize), 1, SAMPLED_ROWS))
    k = np.arange(count)
    across = np.stack([0.618 * k + 0.5, (k + 0.5) / count, 0.382 * k + 0.5], axis=1) % 1
    firsts = np.unique((across * grid).astype(int), axis=0) * chunks
    lasts = np.minimum(firsts + chunks, cube.shape)
    chunk_slices = [
        (slice(b, d), slice(r, s), slice(c, e))
        for (b, r, c), (d, s, e) in zip(firsts.tolist(), lasts.tolist(), strict=True)
    ]
    return chunk_slices, f"{len(chunk_slices)} sampled chunks"


def differs(old: Array, new: Array) -> Bools:
    """True where two blocks differ; NaN equals NaN."""
    unequal: Bools = old != new
    if old.dtype.kind == "f":
        unequal &= ~(np.isnan(old) & np.isnan(new))
    return unequal
