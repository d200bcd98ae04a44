"""Estimate the standard deviation of the noise of each band from the cube alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats

BLOCKS = 4  # parts of the spectra; the scatter of their estimates gives the standard error
SPECTRA_PER_BAND = 3  # complete spectra needed, per part and band, to regress a band on the others
FEWEST_BANDS = 8  # least bands to regress their values; with fewer, second differences are used
ROUNDS, SETTLED = 30, 0.03  # most rounds for the leverage, and relative change at which to stop
MOST = 0.9  # largest leverage: at most this share of the residual variance counts as signal
ROBUST = 1.4826  # std over median absolute deviation of Gaussian values
TAPS = 9  # entries that a second difference combines, so that neighbouring ones are not independent
NEIGHBOURS = np.array([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]]) / 6.0


class Noise(NamedTuple):
    """The noise of each band, and the method by which it was estimated."""

    sigma: Floats  # (bands,) std, in the unit of the values
    error: Floats  # (bands,) its standard error
    how: str


def estimate(values: Floats, observed: Bools) -> Noise:
    """Estimate the noise std per band of values (bands, rows, cols); observed has their shape.

    The part of a band that no other band shares is noise: the residual variance of band i in a
    regression on all others is 1 / (C⁻¹)_ii, C the covariance of the complete spectra (the initial
    estimate of HySime).  As the other bands are noisy too, this is σ² / (1 - h), with h the band's
    leverage on the subspace of the signal, and is multiplied by 1 - h.

    Where bands differ and too few spectra are complete, each half of the bands is looked at by
    itself, and so on.  With few bands, second differences along rows and columns are regressed on
    one another: they contain little signal, most of it shared.  With too few complete spectra, the
    differences of each band are used alone, which takes fine texture for noise.
    """
    complete: Bools = np.asarray(observed.all(axis=0))
    spectra = values[:, complete]
    bands, n = spectra.shape
    if bands >= FEWEST_BANDS and n >= BLOCKS * SPECTRA_PER_BAND * bands:
        parts = [spectra[:, i::BLOCKS] for i in range(BLOCKS)]
        signal = _leverage(spectra)
        sigma, error = (
            np.sqrt(1 - signal) * a for a in (_unshared_std(spectra), _std_error(parts))
        )
        return Noise(sigma, error, "regression of each band on the others")
    if bands > FEWEST_BANDS and bool((observed.any(axis=0) & ~complete).any()):
        return _by_halves(values, observed)
    differences = _differences(values, complete)
    how = "second differences between neighbouring pixels"
    if bands > 1 and differences.shape[1] >= BLOCKS * SPECTRA_PER_BAND * bands:
        error = _std_error(np.array_split(differences, BLOCKS, axis=1))
        return Noise(_unshared_std(differences), error, f"regression of {how}")
    by_band = [_differences(v[None], o)[0] for v, o in zip(values, observed, strict=True)]
    sigma, error = np.array([_robust_std(band_differences) for band_differences in by_band]).T
    return Noise(sigma, error, how)


def _by_halves(values: Floats, observed: Bools) -> Noise:
    """Return `estimate` of the first and of the last half of the bands, at least FEWEST_BANDS each:
    where bands differ, more spectra are complete in fewer bands."""
    bands = len(values)
    first, size = bands // 2, max(-(-bands // 2), FEWEST_BANDS)
    low, high = (estimate(values[half], observed[half]) for half in (np.s_[:size], np.s_[-size:]))
    sigma, error = (
        np.concatenate([a[:first], b[first - bands :]])
        for a, b in ((low.sigma, high.sigma), (low.error, high.error))
    )
    return Noise(sigma, error, " and ".join(dict.fromkeys([low.how, high.how])))


def _covariance(spectra: Floats) -> Floats:
    """(bands, bands) covariance of spectra (bands, n), divided by n - bands, the degrees of freedom
    that a regression leaves."""
    bands, n = spectra.shape
    centred = spectra - spectra.mean(axis=1, keepdims=True)
    covariance: Floats = centred @ centred.T / (n - bands)
    # exactly dependent bands have no noise of their own; a tiny ridge keeps the inverse finite
    ridge = 1e-12 * np.trace(covariance) / bands + np.finfo(float).tiny
    covariance[np.diag_indices(bands)] += ridge
    return covariance


def _unshared_std(spectra: Floats) -> Floats:
    """(bands,) std of the residual of each band regressed on the others; spectra (bands, n)."""
    std: Floats = 1 / np.sqrt(np.diag(np.linalg.inv(_covariance(spectra))))
    return std


def _std_error(parts: Sequence[Floats]) -> Floats:
    """(bands,) standard error of `_unshared_std`, from its scatter over parts (bands, n)."""
    estimates = np.stack([_unshared_std(part) for part in parts])
    error: Floats = estimates.std(axis=0, ddof=1) / np.sqrt(len(parts))
    return error


def _leverage(spectra: Floats) -> Floats:
    """(bands,) leverage h: each band's share of the directions of whitened spectra (bands, n) that
    are signal, as their variance exceeds the largest of noise (Marchenko and Pastur)."""
    bands, n = spectra.shape
    covariance, residual_std = _covariance(spectra), _unshared_std(spectra)
    edge = (1 + np.sqrt(bands / n)) ** 2 * n / (n - bands)
    h = np.zeros(bands)
    for _ in range(ROUNDS):
        sigma = residual_std * np.sqrt(1 - h)
        strength, axes = np.linalg.eigh(covariance / np.outer(sigma, sigma))
        signal = np.where(strength > edge, 1 - 1 / np.maximum(strength, edge), 0.0)
        last, h = h, np.minimum(axes**2 @ signal, MOST)
        if np.abs((1 - h) / (1 - last) - 1).max() < SETTLED:
            break
    return h


def _differences(values: Floats, observed: Bools) -> Floats:
    """(bands, n) second differences of values (bands, rows, cols) where all nine pixels exist;
    observed (rows, cols).  The variance of white noise is the same in them."""
    if min(observed.shape) < 3:
        return np.zeros((len(values), 0))
    shape = NEIGHBOURS.shape
    whole = np.lib.stride_tricks.sliding_window_view(observed, shape).all(axis=(2, 3))
    rows, cols = np.nonzero(whole)
    differences = np.zeros((len(values), len(rows)))
    for (down, right), weight in np.ndenumerate(NEIGHBOURS):
        differences += weight * values[:, rows + down, cols + right]
    return differences


def _robust_std(differences: Floats) -> tuple[float, float]:
    """Return std and its standard error from second differences (n,)."""
    if not len(differences):
        return 0.0, float("inf")
    sigma = ROBUST * float(np.median(np.abs(differences)))
    return sigma, sigma / np.sqrt(max(len(differences) / TAPS, 1))


def white_std(values: Floats, observed: Bools) -> Floats:
    """(bands,) std of the part of each band that is noise for sure; 0 where too few pixels show it.

    White noise has a quarter of its variance in means of 2 × 2 pixels.  The texture of an image is
    as strong in such means as in single pixels, or stronger.  One standard error is taken off.

    values, observed: (bands, rows, cols).
    """
    if min(values.shape[1:]) < 2:
        return np.zeros(len(values))
    of_four = np.lib.stride_tricks.sliding_window_view
    apart = [np.s_[i::2, j::2] for i in (0, 1) for j in (0, 1)]  # means that share no pixel
    lost = np.zeros(len(values))
    for band, (plane, seen) in enumerate(zip(values, observed, strict=True)):
        means = of_four(plane, (2, 2)).mean((2, 3))
        whole: Bools = np.asarray(of_four(seen, (2, 2)).all((2, 3)))
        coarse = np.concatenate([_differences(means[None, *at], whole[at])[0] for at in apart])
        if len(coarse):
            fine, error = _robust_std(_differences(plane[None], seen)[0])
            std, coarse_error = _robust_std(coarse)
            off = np.hypot(2 * fine * error, 2 * std * coarse_error * np.sqrt(len(apart)))
            lost[band] = fine**2 - std**2 - off
    return np.sqrt(np.maximum(lost, 0.0) * 4 / 3)


def is_estimable(values: Floats, observed: Bools) -> bool:
    """Whether `estimate` finds the noise of most bands.

    3 × 3 measured pixels in most bands are enough, but not always needed.
    """
    with_neighbours = [_differences(o[None].astype(float), o).size > 0 for o in observed]
    if 2 * sum(with_neighbours) > len(observed):
        return True
    return bool(np.isfinite(np.median(estimate(values, observed).error)))
