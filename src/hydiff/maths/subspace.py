"""The spectral subspace of a cube: few principal components that carry most of its variance.

Letters: y (C, N) spectra as columns, mu (C,) their mean, V (C, K) orthonormal components,
z (K, N) coordinates: y ≈ mu + V z.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from hydiff.cube import Bools, Floats

COMPLETE_PER_BAND = 2  # complete spectra per band that are enough for plain PCA
EM_ROUNDS = 30  # at most; it stops when the filled entries change by less than EM_SETTLED
EM_SETTLED = 1e-2  # RMS, of the std of y; more rounds fit the weak components to noise of the fill
EM_PIXELS = 4000  # spectra that are used, enough for a few dozen components
PIXELS_AT_ONCE = 4096  # bounds the (pixels, K, K) systems of the regression to some 20 MB


class Subspace(NamedTuple):
    """Principal components of spectra."""

    mean: Floats  # (C,)
    basis: Floats  # (C, K), orthonormal columns, strongest first
    variance: Floats  # (K,) of the coordinates
    noise: float  # mean variance of the components that are left out

    def project(self, y: Floats) -> Floats:
        """Return the coordinates (K, ...) of complete spectra (C, ...)."""
        centred = y - self.mean.reshape(-1, *[1] * (y.ndim - 1))
        return np.tensordot(self.basis.T, centred, 1)

    def reconstruct(self, z: Floats) -> Floats:
        """Return the spectra (C, ...) of coordinates (K, ...)."""
        spectra: Floats = np.tensordot(self.basis, z, 1)
        spectra += self.mean.reshape(-1, *[1] * (z.ndim - 1))  # in place: cubes are large
        return spectra


def fit(y: Floats, observed: Bools, components: int) -> Subspace:
    """Fit principal components to the observed entries of y (C, N); observed has the same shape.

    Complete spectra are used if there are enough; otherwise all observed entries, by expectation
    maximisation (Roweis 1998: fill by regression, decompose, repeat).
    """
    complete = observed.all(axis=0)
    if complete.sum() >= COMPLETE_PER_BAND * len(y):
        return _pca(y if complete.all() else y[:, complete], components)
    used = np.flatnonzero(observed.any(axis=0))
    used = used[:: -(-len(used) // EM_PIXELS)]
    return _em(y[:, used], observed[:, used], components)


def regress(y: Floats, observed: Bools, space: Subspace) -> tuple[Floats, Floats]:
    """Return the coordinates of incomplete spectra y (C, N): their mean given the observed bands.

    Returns z (K, N) and the share (N,) of the coordinates' variance that the observed bands
    determine: 0 without observed bands, near 1 if they determine the spectrum.
    """
    V, K = space.basis, space.basis.shape[1]
    outer = (V[:, :, None] * V[:, None, :]).reshape(len(V), K * K)
    # a component without variance gets a prior of (nearly) zero width instead of a division by 0
    tiny = np.finfo(float).eps * space.variance.max(initial=0.0) + np.finfo(float).tiny
    prior = np.diag(max(space.noise, tiny) / np.maximum(space.variance, tiny))
    centred = np.where(observed, y - space.mean[:, None], 0.0)
    z, explained = np.empty((K, y.shape[1])), np.empty(y.shape[1])
    for start in range(0, y.shape[1], PIXELS_AT_ONCE):
        part = slice(start, start + PIXELS_AT_ONCE)
        normal = (observed[:, part].T.astype(float) @ outer).reshape(-1, K, K) + prior
        inverse = np.linalg.inv(normal)
        z[:, part] = np.einsum("nij,nj->in", inverse, centred[:, part].T @ V)
        remaining = np.trace(inverse, axis1=1, axis2=2) * max(space.noise, tiny)
        explained[part] = 1 - remaining / max(space.variance.sum(), tiny)
    return z, np.clip(explained, 0.0, 1.0)


def _em(y: Floats, observed: Bools, components: int) -> Subspace:
    """Fit components to incomplete spectra y (C, N) by expectation maximisation."""
    mean = np.where(observed, y, 0).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
    filled = np.where(observed, y, mean[:, None])
    for _ in range(EM_ROUNDS):
        space = _pca(filled, components)
        z, _ = regress(y, observed, space)
        last, filled = filled, np.where(observed, y, space.reconstruct(z))
        change = np.sqrt(((filled - last) ** 2).sum() / max((~observed).sum(), 1))
        if change <= EM_SETTLED * y[observed].std():
            break
    return _pca(filled, components)


def _pca(y: Floats, components: int) -> Subspace:
    """Fit components to complete spectra y (C, N)."""
    mean = y.mean(axis=1)
    centred = y - mean[:, None]
    variance, V = linalg.eigh(centred @ centred.T / y.shape[1])
    variance, V = np.maximum(variance[::-1], 0), V[:, ::-1]
    K = min(components, len(y), y.shape[1])
    noise = variance[K:].mean() if len(y) > K else 0.0
    return Subspace(mean, np.ascontiguousarray(V[:, :K]), variance[:K], float(noise))
