"""How noisy is a cube?  The noise std of each band, from the cube alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats

BLOCKS = 4  # the spectra are dealt into so many parts; their spread is the uncertainty
SPECTRA_PER_BAND = 3  # complete spectra needed, per part and band, to regress a band on the others
FEWEST_BANDS = 8  # to regress their values on one another; of fewer, second differences
ROUNDS, SETTLED = 30, 0.03  # of the leverage, which depends on the noise; at most, until it settles
MOST = 0.9  # of what regression leaves: more is never said to be signal
NEIGHBOURS = np.array([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]]) / 6.0


class Noise(NamedTuple):
    sigma: Floats  # (bands,) std, in the unit of the values
    error: Floats  # (bands,) its standard error
    how: str


def estimate(values: Floats, observed: Bools) -> Noise:
    """Noise std per band of values (bands, rows, cols); observed has their shape.

    What a band does not share with any other band is noise: the residual variance of band i
    regressed on all others is 1 / (C⁻¹)_ii, C the covariance of the complete spectra (the
    estimate HySime starts from).  The others are noisy too, so that this is σ² / (1 - h), h the
    band's leverage on the signal's subspace, which is taken off.

    Of few bands, the second differences along rows and columns are regressed on one another: little
    signal is left in them, and what is left is shared.  With too few complete spectra these are
    taken band by band, which sees fine texture as noise.
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
    differences = _differences(values, complete)
    how = "second differences between neighbouring pixels"
    if bands > 1 and differences.shape[1] >= BLOCKS * SPECTRA_PER_BAND * bands:
        error = _std_error(np.array_split(differences, BLOCKS, axis=1))
        return Noise(_unshared_std(differences), error, f"regression of {how}")
    alone = [_differences(v[None], o)[0] for v, o in zip(values, observed, strict=True)]
    sigma, error = np.array([_robust_std(own) for own in alone]).T
    return Noise(sigma, error, how)


def _covariance(spectra: Floats) -> Floats:
    """(bands, bands) of spectra (bands, n), for the residuals of regressions: so many degrees of
    freedom remain."""
    bands, n = spectra.shape
    centred = spectra - spectra.mean(axis=1, keepdims=True)
    covariance: Floats = centred @ centred.T / (n - bands)
    # exactly dependent bands have no noise of their own; a tiny ridge keeps the inverse finite
    ridge = 1e-12 * np.trace(covariance) / bands + np.finfo(float).tiny
    covariance[np.diag_indices(bands)] += ridge
    return covariance


def _unshared_std(spectra: Floats) -> Floats:
    """(bands,) std of what regression on the other bands leaves; spectra (bands, n)."""
    std: Floats = 1 / np.sqrt(np.diag(np.linalg.inv(_covariance(spectra))))
    return std


def _std_error(parts: Sequence[Floats]) -> Floats:
    """(bands,) of `_unshared_std`, by parts (bands, n) of the spectra."""
    each = np.stack([_unshared_std(part) for part in parts])
    error: Floats = each.std(axis=0, ddof=1) / np.sqrt(len(parts))
    return error


def _leverage(spectra: Floats) -> Floats:
    """(bands,) h: each band's share of the directions of whitened spectra (bands, n) that are
    signal, because they vary by more than noise can (Marchenko and Pastur)."""
    bands, n = spectra.shape
    covariance, left = _covariance(spectra), _unshared_std(spectra)
    edge = (1 + np.sqrt(bands / n)) ** 2 * n / (n - bands)
    h = np.zeros(bands)
    for _ in range(ROUNDS):
        sigma = left * np.sqrt(1 - h)
        strength, axes = np.linalg.eigh(covariance / np.outer(sigma, sigma))
        signal = np.where(strength > edge, 1 - 1 / np.maximum(strength, edge), 0.0)
        last, h = h, np.minimum(axes**2 @ signal, MOST)
        if np.abs((1 - h) / (1 - last) - 1).max() < SETTLED:
            break
    return h


def _differences(values: Floats, observed: Bools) -> Floats:
    """(bands, n) second differences of values (bands, rows, cols) where all nine pixels exist;
    observed (rows, cols).  White noise has its own variance in them."""
    if min(observed.shape) < 3:
        return np.zeros((len(values), 0))
    shape = NEIGHBOURS.shape
    whole = np.lib.stride_tricks.sliding_window_view(observed, shape).all(axis=(2, 3))
    rows, cols = np.nonzero(whole)
    out = np.zeros((len(values), len(rows)))
    for (down, right), weight in np.ndenumerate(NEIGHBOURS):
        out += weight * values[:, rows + down, cols + right]
    return out


def _robust_std(differences: Floats) -> tuple[float, float]:
    """Of second differences (n,), and its error."""
    if not len(differences):
        return 0.0, float("inf")
    sigma = 1.4826 * float(np.median(np.abs(differences)))
    return sigma, sigma / np.sqrt(max(len(differences) / 9, 1))
