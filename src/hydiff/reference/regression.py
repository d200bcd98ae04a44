"""Regressions of planes on features of the same pixels.

Letters: y (K, H, W) planes, f (F, H, W) features, B (K, F) slopes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Floats, Ints

RIDGE = 1e-2  # of the features' mean variance; the same for values and differences
GLOBAL = 0.05  # weight of gain 1 (the global fit) in a local gain, relative to the global variance
ROBUST_ROUNDS = 4  # rounds of regression and update of the weights
USUAL = 1.5  # size of residuals, in medians, above which a pixel has less weight


def regression(
    y: Floats, complete: Bools, f: Floats, weight: Floats, steps: bool = False
) -> Floats:
    """Return the prediction (K, H, W) of each plane by regression on the features, fitted to the
    complete pixels (H, W) with weights (H, W).  steps: fit differences between neighbours."""
    out: Floats = np.tensordot(_slopes(y, complete, f, steps, weight), f, 1)
    share = weight[complete] / weight[complete].sum()
    out += ((y[:, complete] - out[:, complete]) @ share)[:, None, None]
    return out


def _slopes(y: Floats, observed: Bools, f: Floats, steps: bool, weight: Floats) -> Floats:
    """Return B (C, F) by ridge regression of the values, with weights (H, W), or of the differences
    between neighbours (steps), unweighted."""
    if steps:
        moments_by_axis = [
            (X @ X.T, X @ Y.T) for X, Y in zip(*(_steps(a, observed) for a in (f, y)), strict=True)
        ]
        return _ridge(*(np.sum(moments, axis=0) for moments in zip(*moments_by_axis, strict=True)))
    pixels = np.flatnonzero(observed)
    X, Y = (columns(a, pixels) for a in (f, y))
    return slopes_of(Y, X, weight.ravel()[pixels])


def slopes_of(Y: Floats, X: Floats, weight: Floats | None = None) -> Floats:
    """Return B (C, F) by ridge regression of planes Y (C, n) on features X (F, n) of n pixels, with
    weights (n,) or, by default, equal ones."""
    share = np.full(X.shape[1], 1 / X.shape[1]) if weight is None else weight / weight.sum()
    W, mean_X, mean_Y = X * share, X @ share, Y @ share
    return _ridge(W @ X.T - np.outer(mean_X, mean_X), W @ Y.T - np.outer(mean_X, mean_Y))


def _ridge(A: Floats, C: Floats) -> Floats:
    """Return B (C, F) from second moments A (F, F) of features, C (F, C) of features and planes."""
    return np.asarray(np.linalg.solve(A + ridge_of(A), C), dtype=np.float64).T


def ridge_of(A: Floats) -> Floats:
    """Return the ridge (F, F) to add to the second moments A (F, F) of features."""
    ridge: Floats = RIDGE * max(float(np.trace(A)) / len(A), 1e-300) * np.eye(len(A))
    return ridge


def robust_weights(y: Floats, observed: Bools, f: Floats) -> Floats:
    """Return the weights (H, W) of a robust regression.

    Beyond USUAL medians, the weight of a pixel falls with the square of its residual (iterated,
    after Huber).
    """
    pixels = np.flatnonzero(observed)
    X, Y = (columns(a, pixels) for a in (f, y))
    weight, spread = np.ones(len(pixels)), np.maximum(Y.std(axis=1), 1e-300)[:, None]
    for _ in range(ROBUST_ROUNDS):
        residual = (Y - slopes_of(Y, X, weight) @ X) / spread
        residual -= (residual @ (weight / weight.sum()))[:, None]
        size = np.sqrt(np.einsum("kn,kn->n", residual, residual) / len(residual))
        limit = USUAL * float(np.median(size))
        weight = np.minimum(1.0, limit / np.maximum(size, 1e-300)) ** 2 + 1e-6
    out: Floats = np.ones(observed.shape)
    out[observed] = weight
    return out


def _steps(planes: Floats, observed: Bools) -> Iterator[Floats]:
    """Yield differences (N, n) between observed neighbours, first down, then to the right."""
    number = np.arange(observed.size).reshape(observed.shape)
    for after, before in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        pairs = observed[after] & observed[before]
        yield columns(planes, number[after][pairs]) - columns(planes, number[before][pairs])


def local_gain(y: Floats, complete: Bools, p: Floats, window: float) -> Floats:
    """Return a prediction p (K, H, W) with gain and offset fitted in a window around each pixel."""

    def around(plane: Floats) -> Floats:
        near: Floats = ndimage.gaussian_filter(plane * complete, window, mode="constant")
        return near

    out = np.empty(p.shape)
    n = np.maximum(around(np.ones(complete.shape)), 1e-9)
    for k, (t, q) in enumerate(zip(y, p, strict=True)):
        t = np.where(complete, t, 0.0)
        mean_q, mean_t = around(q) / n, around(t) / n
        variance = np.maximum(around(q * q) / n - mean_q**2, 0.0)
        covariance = around(q * t) / n - mean_q * mean_t
        shrinkage = GLOBAL * max(float(q[complete].var()), 1e-300)
        gain = (covariance + shrinkage) / (variance + shrinkage)
        out[k] = np.where(n > 1e-6, mean_t + gain * (q - mean_q), q)  # q: no complete pixel near
    return out


def columns(planes: Floats, pixels: Ints) -> Floats:
    """Return planes (N, H, W) at pixels given by flat indices, as a copy (N, n)."""
    return np.take(planes.reshape(len(planes), -1), pixels, axis=1)
