"""Estimate the shift between a reference and the cube from pixels that both observe.

Letters: z (H, W) a plane of the cube, q (H, W) a similar plane of the reference, each with its
mask.  With a shift (down, right), in pixels, q at (row, col) corresponds to z at (row - down,
col - right).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import fft, ndimage

from hydiff.cube import Bools, Floats

SMOOTHED = 4.0  # px: slower variations are removed, since they are haze or light, not the place
FEWEST = 200  # fewest common pixels for an estimate
OVERLAP = 0.3  # least share of common pixels at a shift, relative to the most at any shift
CLEAR = 0.15  # least correlation at the peak of a clear shift
FARTHEST = 24  # px, largest shift down or right that is searched
DISTINCT, PEAK = 1.5, 6  # least ratio of the peak to correlations more than this many px from it
BLOCK = 64  # px: side of the blocks from which the scatter of shifts is estimated
ROUNDS = 8  # of subpixel refinement, at most
SETTLED = 0.005  # px, last change at which the refinement ends
BRIGHTEST = 4.0  # mean absolute deviations at which values are clipped


class Shift(NamedTuple):
    """How far a reference lies beside a cube, in pixels."""

    down: float
    right: float
    correlation: float  # at the peak, of the planes without slow variations
    spread: float | None = None  # RMS deviation over blocks; None with fewer than three blocks

    @property
    def size(self) -> float:
        """Length of the shift, px."""
        return float(np.hypot(self.down, self.right))


def estimate_shift(z: Floats, z_observed: Bools, q: Floats, q_observed: Bools) -> Shift | None:
    """Return the shift of the image, with its spread over blocks; None if no shift is clear."""
    z, q = _fast(z, z_observed), _fast(q, q_observed)
    image_shift = _estimate(z, z_observed, q, q_observed)
    if image_shift is None:
        return None
    rows, cols = (range(0, max(n - BLOCK // 2, 1), BLOCK) for n in z.shape)
    deviations = []
    for row in rows:
        for col in cols:
            part = slice(row, row + BLOCK), slice(col, col + BLOCK)
            of_block = _estimate(z[part], z_observed[part], q[part], q_observed[part])
            if of_block is not None:
                deviations.append(
                    (of_block.down - image_shift.down, of_block.right - image_shift.right)
                )
    if len(deviations) < 3:
        return image_shift
    # the median: a block of fields or water may give any shift
    spread = float(np.sqrt(2 * np.median(np.square(deviations))))
    return image_shift._replace(spread=spread)


def moved(values: Floats, observed: Bools, shift: Shift) -> tuple[Floats, Bools]:
    """Shift a reference (R, H, W) and its mask back onto the cube, with cubic interpolation."""
    by = (-shift.down, -shift.right)
    filled = filled_in(values, observed)
    out = np.stack([ndimage.shift(v, by, order=3, mode="nearest") for v in filled])
    # the outermost pixels are also used for places less than one pixel beyond them
    beyond: Literal["nearest", "constant"] = "nearest" if max(map(abs, by)) < 1 else "constant"
    share = [ndimage.shift(o.astype(float), by, order=1, mode=beyond) for o in observed]
    covered = np.stack(share) >= 0.5
    return np.where(covered, out, np.nan), covered


def filled_in(values: Floats, observed: Bools) -> Floats:
    """Fill the gaps of planes (R, H, W) with the nearest observed value; 0 if a plane has none."""
    out = np.where(observed, values, 0.0)
    for plane, known in zip(out, observed, strict=True):
        if known.any() and not known.all():
            at = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
            plane[:] = plane[tuple(at)]
    return out


def correlation(z: Floats, z_observed: Bools, q: Floats, q_observed: Bools) -> Floats:
    """Return the correlation (2H - 1, 2W - 1) over common pixels by shift, 0 in the middle.

    Masked normalised cross-correlation (Padfield 2012, doi:10.1109/TIP.2011.2181402); 0 for shifts
    with too few common pixels.
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
    """Return the shift between planes without slow variations, to subpixels; None if not clear."""
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
    """Refine a shift to subpixels by least squares: z = a q(x + shift) + b, linearised in the shift
    (Lucas and Kanade 1981).  Returns `start` if the result is more than a pixel away from it."""
    filled = filled_in(q[None], q_observed[None])[0]
    at = np.array(start)
    for _ in range(ROUNDS):
        near = ndimage.shift(filled, -at, order=3, mode="nearest")
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
    """Return a plane without its slow variations, clipped; 0 where not observed."""
    near, share = (
        ndimage.gaussian_filter(p, SMOOTHED, mode="constant")
        for p in (np.where(observed, plane, 0.0), observed.astype(float))
    )
    fast: Floats = np.where(observed, plane - near / np.maximum(share, 1e-9), 0.0)
    if not observed.any():
        return fast
    # clipped, because two flares that coincide by chance would give a false peak
    most = BRIGHTEST * float(np.mean(np.abs(fast[observed])))
    return np.clip(fast, -most, most)
