"""The model of the spectra of a cube: components, the covariances of their fields, and residuals.

Letters: C bands, K components; spectra are whitened by `weight`, as in `methods.smooth`.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.maths import subspace
from hydiff.maths.variogram import Covariance, fit_covariances
from hydiff.methods.smooth import whitening

COMPONENTS = 24  # as in `smooth`
KEPT = 0.5  # share of the good bands that is enough to determine the spectrum of a pixel
# Candidates for the fields' covariances.  Whole orders have sparse systems.  Images are blurred: a
# field of second order and short reach is smooth over one pixel and rough over three
ORDERS = (1.0, 2.0)
REACHES = (inf, 40.0, 20.0, 10.0, 7.0, 5.0, 3.5, 2.5, 1.5)  # px
KINDS = 4  # most kinds of covariances; each needs its own system, 11 or 36 MB for 144 × 144 pixels
LEAST = 1e-9  # lower bound of the residual variance of a band, as a share of the mean variance


class ErrorModel(NamedTuple):
    """The model of the whitened spectra of a cube."""

    weight: Floats  # (C,) 1 / unit of the whitened values
    basis: Floats  # (C, K); 0 for bad bands, which are independent of the others
    variance: Floats  # (K,) of the coordinates
    covariances: tuple[Covariance, ...]  # of the K fields
    left: Floats  # (C,) variance of the residual of the components, minus the noise
    noise: Floats  # (C,) variance of the noise
    noise_edge: float  # noise variance of a component, at most; 0 without noise


def complete_pixels(values: Floats, observed: Bools, good: Bools) -> Bools:
    """(H, W) pixels that keep enough of the good bands (C,) to determine their spectrum.

    values: (C, H, W); a pixel with NaN, an entry that was neither measured nor filled, is excluded.
    """
    count, known = np.zeros(values.shape[1:], int), np.ones(values.shape[1:], bool)
    for band in np.flatnonzero(good):  # by band, as a copy of the cube would be slow
        count += observed[band]
        known &= np.isfinite(values[band])
    enough: Bools = count >= max(1, min(KEPT * good.sum(), count.max(initial=0)))
    return enough & known


def fit(values: Floats, observed: Bools, good: Bools, sigma_y: Floats) -> ErrorModel:
    """Fit the model to a cube (C, H, W).

    values: measured where observed, else filled.
    good: (C,) bands that the components describe, each observed somewhere.
    sigma_y: (C,) noise std, in the unit of the values.
    """
    weight, C = whitening(sigma_y), len(values)
    noise: Floats = (weight * sigma_y) ** 2
    spread = np.array(
        [_variance(band, flags) for band, flags in zip(values, observed, strict=True)]
    )
    left: Floats = weight**2 * spread - noise
    basis, variance, covariances, edge = np.zeros((C, 0)), np.zeros(0), [], 0.0
    complete = complete_pixels(values, observed, good)
    if complete.any():
        spectra = values[np.flatnonzero(good)[:, None], *np.nonzero(complete)]
        spectra *= weight[good, None]
        space = _with_signs(subspace.fit(spectra, np.ones(spectra.shape, bool), COMPONENTS))
        z = np.zeros((space.basis.shape[1], *complete.shape))
        z[:, complete] = space.project(spectra)
        covariances = fit_covariances(z, complete, ORDERS, REACHES, KINDS)
        basis, variance = np.zeros((C, len(z))), space.variance
        basis[good] = space.basis
        residual = spectra - space.reconstruct(z[:, complete])
        # the rest of the noise is in the components
        residual_noise = noise[good] * (1 - (space.basis**2).sum(axis=1))
        left[good] = (residual**2).mean(axis=1) - residual_noise
        if noise.any():  # Marchenko and Pastur, as in `smooth`
            edge = float((1 + np.sqrt(good.sum() / complete.sum())) ** 2)
    minimum = LEAST * float((weight**2 * spread).mean()) + np.finfo(float).tiny
    left = np.maximum(left, minimum)
    return ErrorModel(weight, basis, variance, tuple(covariances), left, noise, edge)


def _with_signs(space: subspace.Subspace) -> subspace.Subspace:
    """Return components whose largest entry is > 0: draws depend on their sign, which is free."""
    largest = np.abs(space.basis).argmax(axis=0)
    sign = np.where(space.basis[largest, np.arange(len(largest))] < 0, -1.0, 1.0)
    return space._replace(basis=space.basis * sign)


def _variance(band: Floats, observed: Bools) -> float:
    """Return the variance of the observed entries of a band; 0 without any."""
    return float(band[observed].var()) if observed.any() else 0.0
