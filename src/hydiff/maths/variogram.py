"""Fit the covariance of a field to its variogram.

Letters: z (K, H, W) values of K fields; complete (H, W), True where z has values.  A covariance is
`sill` times the operator (reach⁻² − Δ)^−s with reflecting borders, diagonal under the cosine
transform, and a `nugget`: white texture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, log10
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.fft import irfft2, next_fast_len, rfft2

from hydiff.cube import Bools, Floats, Ints

Complexes = NDArray[np.complex128]
Kind = tuple[float, float, float]  # `Covariance.kind`
Shapes = dict[tuple[float, float], Floats]  # s and reach → variogram of unit sill

ORDERS = (1.0, 1.25, 1.5, 1.75, 1.95)  # s that are tried; at 2 the increments have no variance
REACHES = (inf, 40.0, 10.0)  # px, that are tried
TORUS = 256  # px: side of the torus on which variograms of the model are computed
FEWEST_PAIRS = 20  # of pixels at lags of one length, for these to count
LAGS = (6, 40)  # px: bounds of the longest lag, which is the width of the widest gap
ROUNDING = 1e-13  # a shape that differs less from a constant counts as one
LEAST_NUGGET = 1e-3  # of the sill: with less, the field interpolates the complete pixels
AT_ONCE = 8  # fields whose roughness is computed together, so that they stay in the cache


class Covariance(NamedTuple):
    """The covariance of one component; `sill` in its unit squared, times px^(2 - 2s)."""

    s: float
    reach: float  # px; inf = none, a power law
    sill: float
    nugget: float  # variance of what one pixel does not share with its neighbours

    @property
    def kind(self) -> Kind:
        """(s, reach, κ = nugget / sill in decades): components of one kind share a solver."""
        ratio = max(self.nugget / self.sill, LEAST_NUGGET) if self.sill > 0 else inf
        return self.s, self.reach, ratio if ratio == inf else 10.0 ** round(log10(ratio))


def fit_covariances(
    z: Floats,
    complete: Bools,
    orders: Sequence[float] = ORDERS,
    reaches: Sequence[float] = REACHES,
    most: int | None = None,
) -> list[Covariance]:
    """Return the covariance of each component z (K, H, W), by least squares on its variogram.

    Errors are relative to the variogram, and weighted less the longer the lag.
    orders, reaches: s and px that are tried; s >= 2 with a finite reach only.
    most: largest number of kinds of covariances, None = no limit; less important components use
    a kind of the others.
    """
    return fit_to_windows([(z, complete)], orders, reaches, most)


def fit_to_windows(
    windows: Sequence[tuple[Floats, Bools]],
    orders: Sequence[float] = ORDERS,
    reaches: Sequence[float] = REACHES,
    most: int | None = None,
) -> list[Covariance]:
    """Return the covariances of fields that are known in windows of a scene.

    windows: z (K, H, W) and complete (H, W) of each; pairs of pixels are within a window.
    Other arguments are as in `fit_covariances`.
    """
    longest = max(_longest_lag(complete) for _, complete in windows)
    if longest == 0:  # single pixels
        return [Covariance(orders[0], inf, 0.0, 0.0)] * len(windows[0][0])
    down, right = lags_within(longest)
    squares, pairs = _sums(windows, down, right)
    # lags of similar length, in all directions
    ring = np.rint(2 * np.hypot(down, right)).astype(np.intp)
    total = np.bincount(ring, pairs)
    enough = total >= FEWEST_PAIRS
    if not enough.any():
        known = np.concatenate([z[:, complete] for z, complete in windows], axis=1)
        return [Covariance(orders[0], inf, 0.0, float(v)) for v in known.var(axis=1)]

    def by_ring(sums: Floats) -> Floats:
        return np.bincount(ring, sums)[enough] / total[enough]

    length = by_ring(pairs * np.hypot(down, right))
    shapes = {
        (s, reach): by_ring(pairs * model_variogram(s, reach, longest))
        for s in orders
        for reach in reaches
        if s < 2 or reach < inf
    }
    lags = np.bincount(ring)[enough]
    return _fits_of([_Curve.of(by_ring(sums), length, lags) for sums in squares], shapes, most)


def _longest_lag(complete: Bools) -> int:
    """Return the longest lag in px that matters in a window: the width of its widest gap."""
    widest = 2 * ndimage.distance_transform_edt(~complete).max() if not complete.all() else 0
    return min(int(np.clip(widest, *LAGS)), int(max(complete.shape)) - 1)


def _sums(
    windows: Sequence[tuple[Floats, Bools]], down: Ints, right: Ints
) -> tuple[Floats, Floats]:
    """Return half the sum of squared differences in all windows, by lag (K, lags), and the number
    of pairs (lags,)."""
    sums, count = np.zeros((len(windows[0][0]), len(down))), np.zeros(len(down))
    for z, complete in windows:
        curves, pairs = variogram(z, complete, down, right)
        sums += pairs * curves
        count += pairs
    return sums, count


def _fits_of(curves: Sequence[_Curve], shapes: Shapes, most: int | None) -> list[Covariance]:
    """Return the covariances that best fit some variograms, of `most` kinds at most."""
    fits = [_fit_one(curve, shapes) for curve in curves]
    if most is None:
        return fits
    kinds = leading_kinds(fits)[:most]
    return [
        c if c.kind in kinds or c.sill == 0 else _of_a_kind(curve, shapes, kinds)
        for c, curve in zip(fits, curves, strict=True)
    ]


def leading_kinds(covariances: Sequence[Covariance]) -> list[Kind]:
    """Return the kinds of the fields that vary, by decreasing sum of the `risk` of their fields."""
    total: dict[Kind, float] = {}
    for c in covariances:
        if c.sill > 0:
            total[c.kind] = total.get(c.kind, 0.0) + risk(c)
    return sorted(total, key=lambda kind: -total[kind])


class _Curve(NamedTuple):
    """A variogram by length of the lags, relative to its largest value `top`."""

    top: float
    values: Floats
    weight: Floats

    @classmethod
    def of(cls, values: Floats, length: Floats, lags: Ints) -> _Curve:
        """Return the curve of a variogram; values, mean length (px) and number of lags by ring."""
        top = float(values.max())
        # in a cube without texture, `top` is close to the smallest float
        values = values / top if top > 0 else values
        weight = np.sqrt(lags) / (np.maximum(values, 1e-9) * length)
        return cls(top, values, weight / weight.max())


def _fit_one(curve: _Curve, shapes: Shapes) -> Covariance:
    """Return the covariance that best fits a variogram; with sill 0 for a constant field."""
    top, values, weight = curve
    if not top > 0:  # constant
        return Covariance(1.0, inf, 0.0, 0.0)
    nuggets, sills, misfits = _fits(np.stack([*shapes.values()]) * weight, weight, values * weight)
    best = int(np.argmin(misfits))
    return Covariance(*[*shapes][best], top * float(sills[best]), top * float(nuggets[best]))


def _of_a_kind(curve: _Curve, shapes: Shapes, kinds: Sequence[Kind]) -> Covariance:
    """Return the covariance, of one of the given kinds, that best fits the variogram of a field."""
    top, values, weight = curve
    fits = []
    for s, reach, ratio in kinds:
        shape, target = weight * (shapes[s, reach] + ratio), weight * values
        sill = float(shape @ target / (shape @ shape))
        covariance = Covariance(s, reach, top * sill, top * ratio * sill)
        fits.append((float(np.linalg.norm(sill * shape - target)), covariance))
    return min(fits)[1]


def _fits(shapes: Floats, flat: Floats, curve: Floats) -> tuple[Floats, Floats, Floats]:
    """(n,) nugget ≥ 0, sill ≥ 0 and misfit of curve (lags,) ≈ nugget · flat (lags,) + sill · shape,
    by least squares, for n shapes (n, lags)."""
    aa, bb, ab = float(flat @ flat), np.einsum("nl,nl->n", shapes, shapes), shapes @ flat
    ac, bc = float(flat @ curve), shapes @ curve
    tiny = float(np.finfo(float).tiny)
    # where the minimum over the plane has a negative part, it lies on one of the two axes
    spread = aa * bb - ab**2
    inside = np.stack([bb * ac - ab * bc, aa * bc - ab * ac])
    inside /= np.where(spread > ROUNDING * aa * bb, spread, np.inf)
    on_axes = np.zeros((2, 2, len(shapes)))
    on_axes[0, 0] = max(ac, 0.0) / max(aa, tiny)
    on_axes[1, 1] = np.maximum(bc, 0.0) / np.maximum(bb, tiny)
    # with one lag or a flat shape there is no plane: `inside` is 0, and an axis fits better
    options = np.stack([np.where((inside >= 0).all(axis=0), inside, np.nan), *on_axes])
    fitted = options[:, 0, :, None] * flat + options[:, 1, :, None] * shapes
    misfit = np.linalg.norm(curve - fitted, axis=2)
    best = np.nanargmin(misfit, axis=0)
    nugget, sill = np.take_along_axis(options, best[None, None], 0)[0]
    return nugget, sill, np.take_along_axis(misfit, best[None], 0)[0]


def variogram(z: Floats, complete: Bools, down: Ints, right: Ints) -> tuple[Floats, Floats]:
    """Return half the mean squared difference of complete pixels by lag (K, lags), and the number
    of pairs (lags,)."""
    shape = [
        next_fast_len(n + int(np.abs(lag).max()), real=True)
        for n, lag in zip(complete.shape, (down, right), strict=True)
    ]
    mean = z[:, complete].mean(axis=1)[:, None, None]
    z = np.where(complete, z - mean, 0.0)
    flags, first, second = (rfft2(a, shape) for a in (complete.astype(float), z, z**2))

    def at_lags(spectrum: Complexes) -> Floats:
        values: Floats = irfft2(spectrum, shape)
        return values[..., down, right]

    pairs = np.rint(at_lags(flags.conj() * flags))
    # ½ Σ (z² at one end + z² at the other) − Σ z z, as correlations, in one transform
    half = at_lags((flags.conj() * second).real - first.conj() * first)
    return np.maximum(half, 0) / np.maximum(pairs, 1), pairs


def roughness(z: Floats, complete: Bools) -> Floats:
    """(K,) RMS difference of neighbouring pixels of fields (K, H, W), where both are complete."""
    square, pairs = np.zeros(len(z)), 0
    for after, before in (np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:, :], np.s_[:-1, :]):
        both = complete[after] & complete[before]
        pairs += int(both.sum())
        for first in range(0, len(z), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            step = (z[some, *after] - z[some, *before]) * both
            square[some] += np.einsum("khw,khw->k", step, step)
    return np.sqrt(square / max(pairs, 1))


@lru_cache(maxsize=256)
def model_variogram(s: float, reach: float, longest: int) -> Floats:
    """(lags,) variogram of (reach⁻² − Δ)^−s with unit sill, at lags up to `longest`, on a torus."""
    ring = 2 - 2 * np.cos(2 * np.pi * np.fft.fftfreq(TORUS))
    operator = ring[:, None] + ring + reach**-2
    spectrum = np.where(operator > 0, np.where(operator > 0, operator, 1.0) ** -s, 0.0)
    covariance = np.fft.ifft2(spectrum).real
    down, right = lags_within(longest)
    values: Floats = covariance[0, 0] - covariance[down, right]
    return values


@lru_cache(maxsize=64)
def lags_within(longest: int) -> tuple[Ints, Ints]:
    """Return all lags (down, right) of a half plane up to a length (px)."""
    down, right = np.mgrid[: longest + 1, -longest : longest + 1]
    chosen = (np.hypot(down, right) <= longest) & ((down > 0) | (right > 0))
    return down[chosen], right[chosen]


def risk(c: Covariance) -> float:
    """Return half the mean squared difference of a field at a lag of three pixels, as a measure of
    the error of an interpolation."""
    down, right = lags_within(LAGS[0])
    at = int(np.flatnonzero((down == 3) & (right == 0))[0])
    return c.sill * float(model_variogram(c.s, c.reach, LAGS[0])[at])
