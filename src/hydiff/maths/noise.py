"""How noisy is a cube?  The noise std of each band, from the cube alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats

BLOCKS = 4  # the spectra are dealt into so many parts; their spread is the uncertainty
SPECTRA_PER_BAND = 3  # complete spectra needed, per part and band, to regress a band on the others
NEIGHBOURS = np.array([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]]) / 6.0


class Noise(NamedTuple):
    sigma: Floats  # (bands,) std, in the unit of the values
    error: Floats  # (bands,) its standard error
    how: str


def estimate(values: Floats, observed: Bools) -> Noise:
    """Noise std per band of values (bands, rows, cols); observed has their shape.

    What a band does not share with any other band is noise: the residual variance of band i
    regressed on all others is 1 / (C⁻¹)_ii, C the covariance of the complete spectra (the
    estimate HySime starts from).  The others are noisy too, so σ comes out high, by 1 / √(1 - h)
    with h the band's leverage on the signal's subspace: little where bands are many.  `error` is
    the spread of the estimate and knows nothing of that.

    With too few complete spectra, or bands, the second difference along rows and columns is taken
    instead, which sees fine texture as noise.
    """
    spectra = values[:, observed.all(axis=0)]
    bands, n = spectra.shape
    if bands >= 8 and n >= BLOCKS * SPECTRA_PER_BAND * bands:
        parts = np.stack([_residual_std(spectra[:, i::BLOCKS]) for i in range(BLOCKS)])
        error = parts.std(axis=0, ddof=1) / np.sqrt(BLOCKS)
        return Noise(_residual_std(spectra), error, "regression of each band on the others")
    pairs = zip(values, observed, strict=True)
    parts = np.stack([_difference_std(band, plane) for band, plane in pairs])
    return Noise(parts[:, 0], parts[:, 1], "second differences between neighbouring pixels")


def _residual_std(spectra: Floats) -> Floats:
    """(bands,) std of what regression on the other bands leaves; spectra (bands, n)."""
    bands, n = spectra.shape
    centred = spectra - spectra.mean(axis=1, keepdims=True)
    covariance = centred @ centred.T / (n - bands)  # so many degrees of freedom remain
    # exactly dependent bands have no noise of their own; a tiny ridge keeps the inverse finite
    ridge = 1e-12 * np.trace(covariance) / bands + np.finfo(float).tiny
    return np.sqrt(1 / np.diag(np.linalg.inv(covariance + ridge * np.eye(bands))))


def _difference_std(band: Floats, observed: Bools) -> tuple[float, float]:
    """Robust std of a band's second differences where all nine pixels exist, and its error."""
    if min(band.shape) < 3:
        return 0.0, float("inf")
    windows = np.lib.stride_tricks.sliding_window_view(band, (3, 3))
    whole = np.lib.stride_tricks.sliding_window_view(observed, (3, 3)).all(axis=(2, 3))
    if not whole.any():
        return 0.0, float("inf")
    difference = (windows[whole] * NEIGHBOURS).sum(axis=(1, 2))
    sigma = 1.4826 * float(np.median(np.abs(difference)))
    return sigma, sigma / np.sqrt(max(len(difference) / 9, 1))
