"""Regressions of planes on features of the same pixels.

Letters: y (K, H, W) planes, f (F, H, W) features, B (K, F) slopes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Floats, Ints

RIDGE = 1e-2  # of the features' mean variance; the same for levels and steps
GLOBAL = 0.05  # how much the slope of all pixels weighs in a local one, in its variance there
ROBUST_ROUNDS = 4  # of weights and regression in turn
USUAL = 1.5  # medians of the residuals beyond which a pixel counts less


def regression(
    y: Floats, complete: Bools, f: Floats, weight: Floats, steps: bool = False
) -> Floats:
    """(K, H, W) the regression of each plane on the features, over the complete pixels (H, W), by
    their weights (H, W)."""
    out: Floats = np.tensordot(_slopes(y, complete, f, steps, weight), f, 1)
    share = weight[complete] / weight[complete].sum()
    out += ((y[:, complete] - out[:, complete]) @ share)[:, None, None]
    return out


def _slopes(y: Floats, observed: Bools, f: Floats, steps: bool, weight: Floats) -> Floats:
    """B (C, F): ridge regression of levels, with pixels weighed (H, W), or of the steps to the
    neighbours."""
    if steps:
        both = [
            (X @ X.T, X @ Y.T) for X, Y in zip(*(_steps(a, observed) for a in (f, y)), strict=True)
        ]
        return _ridge(*(np.sum(moments, axis=0) for moments in zip(*both, strict=True)))
    pixels = np.flatnonzero(observed)
    X, Y = (columns(a, pixels) for a in (f, y))
    return slopes_of(Y, X, weight.ravel()[pixels])


def slopes_of(Y: Floats, X: Floats, weight: Floats | None = None) -> Floats:
    """B (C, F): ridge regression of planes Y (C, n) on features X (F, n) of n pixels, of equal
    weight or by weights (n,)."""
    share = np.full(X.shape[1], 1 / X.shape[1]) if weight is None else weight / weight.sum()
    W, mean_X, mean_Y = X * share, X @ share, Y @ share
    return _ridge(W @ X.T - np.outer(mean_X, mean_X), W @ Y.T - np.outer(mean_X, mean_Y))


def _ridge(A: Floats, C: Floats) -> Floats:
    """B (C, F) from the second moments (F, F) of the features and (F, C) of both."""
    return np.asarray(np.linalg.solve(A + ridge_of(A), C), dtype=np.float64).T


def ridge_of(A: Floats) -> Floats:
    """(F, F) what is added to second moments (F, F) of features."""
    ridge: Floats = RIDGE * max(float(np.trace(A)) / len(A), 1e-300) * np.eye(len(A))
    return ridge


def robust_weights(y: Floats, observed: Bools, f: Floats) -> Floats:
    """(H, W) of a robust regression: those of pixels far from it fall with the square of how far
    they are, in medians (iterated, after Huber)."""
    pixels = np.flatnonzero(observed)
    X, Y = (columns(a, pixels) for a in (f, y))
    weight, spread = np.ones(len(pixels)), np.maximum(Y.std(axis=1), 1e-300)[:, None]
    for _ in range(ROBUST_ROUNDS):
        off = (Y - slopes_of(Y, X, weight) @ X) / spread
        off -= (off @ (weight / weight.sum()))[:, None]
        size = np.sqrt(np.einsum("kn,kn->n", off, off) / len(off))
        usual = USUAL * float(np.median(size))
        weight = np.minimum(1.0, usual / np.maximum(size, 1e-300)) ** 2 + 1e-6
    out: Floats = np.ones(observed.shape)
    out[observed] = weight
    return out


def _steps(planes: Floats, observed: Bools) -> Iterator[Floats]:
    """(N, n) differences between neighbours that are both observed, down and to the right."""
    number = np.arange(observed.size).reshape(observed.shape)
    for after, before in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        there = observed[after] & observed[before]
        yield columns(planes, number[after][there]) - columns(planes, number[before][there])


def local_gain(y: Floats, complete: Bools, p: Floats, window: float) -> Floats:
    """A prediction p (K, H, W) with gain and offset of each plane that follow what lies around."""

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
        usual = GLOBAL * max(float(q[complete].var()), 1e-300)
        gain = (covariance + usual) / (variance + usual)
        out[k] = np.where(n > 1e-6, mean_t + gain * (q - mean_q), q)  # where anything is near
    return out


def columns(planes: Floats, pixels: Ints) -> Floats:
    """(N, n) planes (N, H, W) at some pixels, by their flat numbers; a copy."""
    return np.take(planes.reshape(len(planes), -1), pixels, axis=1)
