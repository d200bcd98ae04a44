"""Survey of the files of a fill, read in blocks and subsampled, so that it fits into memory.

The *grid* is every n-th row and column of the scene, n = `every`; arrays on the grid are small
whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import CubeFormatError
from hydiff.io import fill_layers
from hydiff.io.blocks import blocks
from hydiff.io.fill_layers import Plane
from hydiff.report import plots

PIXELS = 250_000  # approximate maximum of grid points
SIDES = (96, 192, 384)  # candidate sizes of a close view, in rows and columns


@dataclass(frozen=True, eq=False)
class Survey:
    """A fill on the grid (r, c) and at its sample pixels."""

    every: int  # rows and columns of the scene from one grid point to the next
    filled: Bools  # (bands, r, c) True = this entry was filled
    left: Bools  # (bands, r, c) True = still missing
    rgb: tuple[int, int, int]  # bands shown as red, green, blue
    before: Array  # (3, r, c) these bands before the fill
    after: Array  # (3, r, c) these bands after it
    pixels: list[tuple[int, int]]  # (row, col) in the scene of the sample pixels
    relative: Floats | None  # (r, c) mean σ of the filled entries of a pixel, in band stds
    by_band: Floats | None  # (bands,) RMS of the error bars, in the cube's unit
    bars: Floats | None  # (bands, pixels) error bars of the sample pixels, NaN where not filled
    spread: Floats  # (bands,) standard deviation of the measured values on the grid


def look(cube: Cube, source: Cube, path: Path) -> Survey:
    """Survey the fill `cube`, read from `path`; source: the input, or `cube` if it is unknown."""
    every = int(np.ceil(np.sqrt(max(1.0, cube.shape[1] * cube.shape[2] / PIXELS))))
    thin = slice(None, None, every)
    # copied, as a view would keep the whole plane in memory
    filled = np.stack([plane[thin, thin].copy() for plane in filled_planes(path, cube)])
    absent, spread = walk(cube, filled, every)
    left = absent & ~filled
    observed = ~(filled | left)
    rgb = plots.rgb_shown(cube.wavelengths, observed, cube.wavelength_units)
    before, after = (
        np.stack([np.asarray(c.values[b : b + 1, thin, thin])[0] for b in rgb])
        for c in (source, cube)
    )
    pixels = sample_pixels(filled, every)
    bars = error_bars(path, cube, every, pixels, spread)
    return Survey(every, filled, left, rgb, before, after, pixels, *bars, spread)


@dataclass(frozen=True, eq=False)
class CloseView:
    """Part of the scene at full resolution around the first sample pixel; arrays are (3, r, c)."""

    rows: str  # such as "0 to 95"
    cols: str
    before: Array
    after: Array
    observed: Bools  # measured
    valid: Bools  # measured or filled


def close_view(cube: Cube, source: Cube, path: Path, survey: Survey) -> CloseView | None:
    """Return the three shown bands around the first sample pixel; None if nothing was filled."""
    if not survey.pixels:
        return None
    rgb = list(survey.rgb)
    measured = ~(survey.filled | survey.left)[rgb[0]]
    for side in SIDES:
        rows, cols = (
            around(at, n, side) for at, n in zip(survey.pixels[0], cube.shape[1:], strict=True)
        )
        grid = tuple(
            slice(s.start // survey.every, s.stop // survey.every + 1) for s in (rows, cols)
        )
        if measured[grid].mean() > 0.3:  # enough measured pixels around the gap
            break
    after, before = (np.asarray(c.values[:, rows, cols]) for c in (cube, source))
    valid = cube.observed_in(after, None, rows, cols)[rgb]
    masks = {b: p[rows, cols] for b, p in enumerate(filled_planes(path, cube)) if b in rgb}
    filled = np.stack([masks[b] for b in rgb])
    return CloseView(
        rows=f"{rows.start} to {rows.stop - 1}",
        cols=f"{cols.start} to {cols.stop - 1}",
        before=before[rgb],
        after=after[rgb],
        observed=valid & ~filled,
        valid=valid | filled,
    )


def around(at: int, n: int, side: int) -> slice:
    """Return a slice of at most `side` of n indices, centred on `at` as far as possible."""
    start = max(0, min(at - side // 2, n - side))
    return slice(start, min(n, start + side))


def walk(cube: Cube, filled: Bools, every: int) -> tuple[Bools, Floats]:
    """Read the grid in one pass, all bands of some rows at a time.

    Returns the entries (bands, r, c) without a value in the file, and the standard deviation
    (bands,) of the measured values on the grid, NaN for a band without any.
    """
    chunks = getattr(cube.values, "chunks", None)
    absent = np.zeros(filled.shape, bool)
    moments = np.zeros((3, cube.bands))  # count, sum, sum of squares
    for bands, rows, _ in blocks(cube.shape, cube.dtype.itemsize, 1, chunks[1] if chunks else 1):
        first = -(-rows.start // every)  # number of the first grid row in this block
        lines, samples = slice(first * every, rows.stop, every), slice(None, None, every)
        if lines.start < lines.stop:
            values = np.asarray(cube.values[bands, lines, samples])
            grid_rows = slice(first, first + values.shape[1])
            absent[:, grid_rows] = ~cube.observed_in(values, None, lines, samples)
            observed = ~(absent[:, grid_rows] | filled[:, grid_rows])
            known = np.where(observed, values, 0).astype(np.float64)
            moments += [part.sum(axis=(1, 2)) for part in (observed, known, known**2)]
    count = np.where(moments[0] > 0, moments[0], np.nan)
    mean, square = moments[1:] / count
    return absent, np.sqrt(np.maximum(square - mean**2, 0.0))


def sample_pixels(filled: Bools, every: int) -> list[tuple[int, int]]:
    """Choose up to four filled pixels by a fixed rule, so that none is chosen for its looks.

    Among the pixels that were filled in the most bands, take the one deepest in its gap, then
    pixels at two thirds, one third and none of that depth, each as far as possible from the others.
    """
    count = filled.sum(axis=0)
    if not count.any():
        return []
    candidates = count == count.max()
    depth = ndimage.distance_transform_edt(np.pad(candidates, 1))[1:-1, 1:-1]
    pixels = [plots.deepest(candidates)]
    rows, cols = np.nonzero(candidates)
    for share in (2 / 3, 1 / 3, 0.0):
        distance = np.abs(depth[rows, cols] - max(1.0, share * depth.max()))
        fits = np.flatnonzero(distance <= distance.min() + 1e-9)
        apart = np.min([np.hypot(rows[fits] - r, cols[fits] - c) for r, c in pixels], axis=0)
        best = fits[np.argmax(apart)]
        if (pixel := (int(rows[best]), int(cols[best]))) not in pixels:
            pixels.append(pixel)
    return [(every * r, every * c) for r, c in pixels]


def error_bars(
    path: Path,
    cube: Cube,
    every: int,
    pixels: list[tuple[int, int]],
    spread: Floats,
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Return `relative`, `by_band` and `bars` of a `Survey`; all None without error bars."""
    bands, rows, cols = cube.shape
    thin = slice(None, None, every)
    total, count = np.zeros((2, len(range(0, rows, every)), len(range(0, cols, every))))
    by_band, bars = np.full(bands, np.nan), np.full((bands, len(pixels)), np.nan)
    for band, plane in enumerate(planes_of(path, cube)):
        if (sigma := plane.sigma) is None:
            return None, None, None
        if (known := sigma[plane.filled & np.isfinite(sigma)]).size:
            by_band[band] = np.sqrt(np.mean(np.square(known, dtype=np.float64)))
        bars[band] = [sigma[pixel] for pixel in pixels]
        if spread[band] > 0:
            shares = sigma[thin, thin] / spread[band]
            total += np.nan_to_num(shares)
            count += np.isfinite(shares)
    relative = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return relative, by_band, bars


def filled_planes(path: Path, cube: Cube) -> Iterator[Bools]:
    """Yield the filled entries (rows, cols) of each band."""
    return (plane.filled for plane in planes_of(path, cube))


def planes_of(path: Path, cube: Cube) -> Iterator[Plane]:
    """Yield flags and error bars of each band of a fill; an error if it has no flags."""
    planes = fill_layers.planes(path, cube.shape, cube.mark)
    if planes is None:
        raise CubeFormatError(
            f"{path}: the flags of a fill are neither in it nor beside it; expected what "
            "`hydiff fill` wrote with it: fetch them, or fill again"
        )
    return planes
