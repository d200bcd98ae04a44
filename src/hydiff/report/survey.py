"""What the files of a fill show, read a block at a time and thinned out, so that any size fits.

The *grid* is every n-th row and column of the scene, n = `every`; its arrays are small enough to
hold whatever the size of the file.
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

PIXELS = 250_000  # of the grid, at most
SIDES = (96, 192, 384)  # rows and columns of a close view: the first that shows enough


@dataclass(frozen=True, eq=False)
class Survey:
    """A fill on the grid (r, c), and its sample pixels."""

    every: int  # rows and columns of the scene from one grid point to the next
    filled: Bools  # (bands, r, c) True = this entry was filled
    left: Bools  # (bands, r, c) True = still missing
    rgb: tuple[int, int, int]  # bands shown as red, green, blue
    before: Array  # (3, r, c) those bands as they came
    after: Array  # (3, r, c) the same filled
    pixels: list[tuple[int, int]]  # (row, col) in the scene, of the sample
    relative: Floats | None  # (r, c) mean σ of a pixel's filled entries, in stds of their bands
    by_band: Floats | None  # (bands,) RMS of the error bars of a band, in the cube's unit
    bars: Floats | None  # (bands, pixels) error bars of the sample, NaN where not filled
    spread: Floats  # (bands,) standard deviation of what was measured, on the grid


def look(cube: Cube, source: Cube, path: Path) -> Survey:
    """Look at the fill `cube`, read from `path`, made of `source` (or of itself, unknown)."""
    every = int(np.ceil(np.sqrt(max(1.0, cube.shape[1] * cube.shape[2] / PIXELS))))
    thin = slice(None, None, every)
    # copies: a view would keep its whole plane
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
    """A part of the scene at full resolution, around the first sample pixel; (3, r, c) each."""

    rows: str
    cols: str
    before: Array
    after: Array
    observed: Bools  # measured
    valid: Bools  # measured or filled


def close_view(cube: Cube, source: Cube, path: Path, survey: Survey) -> CloseView | None:
    """The three shown bands around the pixel deepest in a gap; None when nothing was filled."""
    if not survey.pixels:
        return None
    rgb = list(survey.rgb)
    known = ~(survey.filled | survey.left)[rgb[0]]
    for side in SIDES:
        rows, cols = (
            around(at, n, side) for at, n in zip(survey.pixels[0], cube.shape[1:], strict=True)
        )
        grid = tuple(
            slice(s.start // survey.every, s.stop // survey.every + 1) for s in (rows, cols)
        )
        if known[grid].mean() > 0.3:  # enough of what the gap lies in
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
    """A stretch of at most `side` out of n that holds `at`, in its middle where it can."""
    start = max(0, min(at - side // 2, n - side))
    return slice(start, min(n, start + side))


def walk(cube: Cube, filled: Bools, every: int) -> tuple[Bools, Floats]:
    """One way down the file, all bands of some rows at a time: what it lacks, and its spread.

    (bands, r, c) True = the file holds no value; (bands,) the standard deviation of what was
    measured on the grid, NaN for a band without any.
    """
    chunks = getattr(cube.values, "chunks", None)
    absent = np.zeros(filled.shape, bool)
    moments = np.zeros((3, cube.bands))  # count, sum, sum of squares
    for bands, rows, _ in blocks(cube.shape, cube.dtype.itemsize, 1, chunks[1] if chunks else 1):
        first = -(-rows.start // every)  # the next row of the grid
        lines, samples = slice(first * every, rows.stop, every), slice(None, None, every)
        if lines.start < lines.stop:
            values = np.asarray(cube.values[bands, lines, samples])
            here = slice(first, first + values.shape[1])
            absent[:, here] = ~cube.observed_in(values, None, lines, samples)
            observed = ~(absent[:, here] | filled[:, here])
            known = np.where(observed, values, 0).astype(np.float64)
            moments += [part.sum(axis=(1, 2)) for part in (observed, known, known**2)]
    count = np.where(moments[0] > 0, moments[0], np.nan)
    mean, square = moments[1:] / count
    return absent, np.sqrt(np.maximum(square - mean**2, 0.0))


def sample_pixels(filled: Bools, every: int) -> list[tuple[int, int]]:
    """Up to four pixels of the fill, by a fixed rule, so that none is picked for its looks.

    Of the pixels that were filled in most bands: the one deepest in its gap, then those at two
    thirds, one third and none of that depth, each as far as can be from the ones before.
    """
    count = filled.sum(axis=0)
    if not count.any():
        return []
    where = count == count.max()
    depth = ndimage.distance_transform_edt(np.pad(where, 1))[1:-1, 1:-1]
    picked = [plots.deepest(where)]
    rows, cols = np.nonzero(where)
    for share in (2 / 3, 1 / 3, 0.0):
        off = np.abs(depth[rows, cols] - max(1.0, share * depth.max()))
        fits = np.flatnonzero(off <= off.min() + 1e-9)
        apart = np.min([np.hypot(rows[fits] - r, cols[fits] - c) for r, c in picked], axis=0)
        best = fits[np.argmax(apart)]
        if (pixel := (int(rows[best]), int(cols[best]))) not in picked:
            picked.append(pixel)
    return [(every * r, every * c) for r, c in picked]


def error_bars(
    path: Path,
    cube: Cube,
    every: int,
    pixels: list[tuple[int, int]],
    spread: Floats,
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """`relative`, `by_band` and `bars` of a `Survey`; None when the fill has no error bars."""
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
    """(rows, cols) True = filled, band after band."""
    return (plane.filled for plane in planes_of(path, cube))


def planes_of(path: Path, cube: Cube) -> Iterator[Plane]:
    """What is said of the entries of a fill, band after band."""
    planes = fill_layers.planes(path, cube.shape, cube.mark)
    if planes is None:
        raise CubeFormatError(
            f"{path}: the flags of a fill are neither in it nor beside it; expected what "
            "`hydiff fill` wrote with it: fetch them, or fill again"
        )
    return planes
