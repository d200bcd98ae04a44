"""By how much a reference lies beside the cube, from what both observe.

Letters: z (H, W) a plane of the cube, q (H, W) the plane of the reference that resembles it most,
each with its mask.  A shift (down, right), in pixels, means that q at (row, col) shows what z shows
at (row - down, col - right).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import fft, ndimage

from hydiff.cube import Bools, Floats

SMOOTHED = 4.0  # px: what varies more slowly is haze or light, not the place
FEWEST = 200  # pixels in common below which nothing is concluded
OVERLAP = 0.3  # of the most pixels in common that a shift must leave
CLEAR = 0.15  # correlation at its peak below which no shift is found
FARTHEST = 24  # px that are searched
DISTINCT, PEAK = 1.5, 6  # a peak exceeds so many times what lies farther from it than so many px
BLOCK = 64  # px: side of the blocks that say how far shifts scatter
ROUNDS = 8  # of refining to parts of a pixel
SETTLED = 0.005  # px
BRIGHTEST = 4.0  # mean deviations: what is beyond counts as much


class Shift(NamedTuple):
    """How far a reference lies beside a cube, in pixels."""

    down: float
    right: float
    correlation: float  # at the peak, of what varies fast
    spread: float | None = None  # RMS over blocks; None where there are less than three

    @property
    def size(self) -> float:
        return float(np.hypot(self.down, self.right))


def estimate_shift(z: Floats, z_observed: Bools, q: Floats, q_observed: Bools) -> Shift | None:
    """The shift of the whole, and how far blocks scatter around it; None where none is clear."""
    z, q = _fast(z, z_observed), _fast(q, q_observed)
    whole = _estimate(z, z_observed, q, q_observed)
    if whole is None:
        return None
    rows, cols = (range(0, max(n - BLOCK // 2, 1), BLOCK) for n in z.shape)
    off = []
    for row in rows:
        for col in cols:
            part = slice(row, row + BLOCK), slice(col, col + BLOCK)
            own = _estimate(z[part], z_observed[part], q[part], q_observed[part])
            if own is not None:
                off.append((own.down - whole.down, own.right - whole.right))
    if len(off) < 3:
        return whole
    # the median: a block of fields or water may say anything
    spread = float(np.sqrt(2 * np.median(np.square(off))))
    return whole._replace(spread=spread)


def moved(values: Floats, observed: Bools, shift: Shift) -> tuple[Floats, Bools]:
    """A reference (R, H, W) and its mask, put where the cube is; cubic between pixels."""
    by = (-shift.down, -shift.right)
    whole = filled_in(values, observed)
    out = np.stack([ndimage.shift(v, by, order=3, mode="nearest") for v in whole])
    # the outermost pixels stand for what lies less than one beyond them
    beyond: Literal["nearest", "constant"] = "nearest" if max(map(abs, by)) < 1 else "constant"
    share = [ndimage.shift(o.astype(float), by, order=1, mode=beyond) for o in observed]
    there = np.stack(share) >= 0.5
    return np.where(there, out, np.nan), there


def filled_in(values: Floats, observed: Bools) -> Floats:
    """Planes (R, H, W) with the nearest observed value in their gaps; 0 in those without any."""
    out = np.where(observed, values, 0.0)
    for plane, there in zip(out, observed, strict=True):
        if there.any() and not there.all():
            at = ndimage.distance_transform_edt(~there, return_distances=False, return_indices=True)
            plane[:] = plane[tuple(at)]
    return out


def correlation(z: Floats, z_observed: Bools, q: Floats, q_observed: Bools) -> Floats:
    """(2H - 1, 2W - 1) correlation of the pixels that both observe, by shift; the middle is 0.

    Masked normalised cross-correlation (Padfield 2012, doi:10.1109/TIP.2011.2181402); 0 where too
    few pixels are in common.
    """
    shape = [fft.next_fast_len(2 * n - 1, real=True) for n in z.shape]
    a, b = z_observed.astype(float), q_observed.astype(float)
    planes = (a, a * z, a * z**2, b, b * q, b * q**2)
    A, Z, ZZ, B, Q, QQ = (fft.rfft2(p, shape) for p in planes)

    def overlap(one: Floats, other: Floats) -> Floats:
        """Σ one(x) other(x + shift)."""
        product = fft.irfft2(np.conj(one) * other, shape)
        rows, cols = z.shape
        rolled: Floats = np.roll(product, (rows - 1, cols - 1), axis=(0, 1))
        return rolled[: 2 * rows - 1, : 2 * cols - 1]

    n = np.maximum(np.round(overlap(A, B)), 1e-9)
    zs, qs = overlap(Z, B), overlap(A, Q)
    covariance = overlap(Z, Q) - zs * qs / n
    variance = np.maximum(overlap(ZZ, B) - zs**2 / n, 0) * np.maximum(overlap(A, QQ) - qs**2 / n, 0)
    enough = (n >= max(FEWEST, OVERLAP * n.max())) & (variance > 1e-12 * variance.max())
    result: Floats = np.where(enough, covariance / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
    return result


def _estimate(z: Floats, z_observed: Bools, q: Floats, q_observed: Bools) -> Shift | None:
    if min(z_observed.sum(), q_observed.sum()) < FEWEST:
        return None
    by_shift = correlation(z, z_observed, q, q_observed)
    rows, cols = (np.arange(1 - n, n) for n in z.shape)
    near = np.ix_(np.abs(rows) <= FARTHEST, np.abs(cols) <= FARTHEST)
    by_shift, rows, cols = by_shift[near], rows[near[0].ravel()], cols[near[1].ravel()]
    row, col = np.unravel_index(int(np.argmax(by_shift)), by_shift.shape)
    peak, down, right = float(by_shift[row, col]), int(rows[row]), int(cols[col])
    far = np.hypot(*np.meshgrid(rows - down, cols - right, indexing="ij")) > PEAK
    if peak < max(CLEAR, DISTINCT * float(by_shift[far].max(initial=0.0))):
        return None
    return Shift(*_refined(z, z_observed, q, q_observed, (down, right)), peak)


def _refined(
    z: Floats, z_observed: Bools, q: Floats, q_observed: Bools, start: tuple[float, float]
) -> tuple[float, float]:
    """Parts of a pixel, by least squares: z = a q(x + shift) + b, linear in a small change of it
    (Lucas and Kanade 1981); no further than a pixel from the start."""
    whole = filled_in(q[None], q_observed[None])[0]
    at = np.array(start)
    for _ in range(ROUNDS):
        near = ndimage.shift(whole, -at, order=3, mode="nearest")
        both = z_observed & (ndimage.shift(q_observed.astype(float), -at, order=1) > 1 - 1e-6)
        if both.sum() < FEWEST:
            return start
        slopes = [np.gradient(near, axis=axis)[both] for axis in (0, 1)]
        columns = np.stack([near[both], np.ones(both.sum()), *slopes])
        a, _, *steps = np.linalg.lstsq(columns.T, z[both], rcond=None)[0]
        if not abs(a) > 1e-12:
            return start
        step = np.clip(np.array(steps) / a, -0.5, 0.5)
        at = at + step
        if np.abs(at - start).max() > 1:
            return start
        if np.abs(step).max() < SETTLED:
            break
    return float(at[0]), float(at[1])


def _fast(plane: Floats, observed: Bools) -> Floats:
    """What varies within a few pixels; 0 where nothing was observed."""
    near, share = (
        ndimage.gaussian_filter(p, SMOOTHED, mode="constant")
        for p in (np.where(observed, plane, 0.0), observed.astype(float))
    )
    fast: Floats = np.where(observed, plane - near / np.maximum(share, 1e-9), 0.0)
    if not observed.any():
        return fast
    # two flares that meet by chance would make a peak of their own
    most = BRIGHTEST * float(np.mean(np.abs(fast[observed])))
    return np.clip(fast, -most, most)
