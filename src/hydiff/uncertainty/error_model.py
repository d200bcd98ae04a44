"""The model of the spectra of a cube: components, the covariances of their fields, and residuals.

Letters: C bands, K components; spectra are whitened by `weight`, as in `methods.smooth`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.maths import subspace
from hydiff.maths.variogram import Covariance, fit_to_windows
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


class Known(NamedTuple):
    """The data of a window that the model is fitted to; (C, H, W)."""

    values: Floats  # where measured or filled, else NaN
    observed: Bools

    def complete(self, good: Bools) -> Bools:
        """(H, W) `complete_pixels`, given the good bands (C,)."""
        bands = np.flatnonzero(good)  # band by band, as a copy of the cube would be slow
        planes = ((self.observed[band], np.isfinite(self.values[band])) for band in bands)
        return complete_pixels(self.observed.shape[1:], planes)


def complete_pixels(shape: Sequence[int], planes: Iterable[tuple[Bools, Bools]]) -> Bools:
    """(H, W) pixels that keep enough of the good bands to determine their spectrum.

    planes: of each good band, where it was measured, and where it was measured or filled.
    """
    count, complete, bands = np.zeros(shape, int), np.ones(shape, bool), 0
    for observed, known in planes:
        count += observed
        complete &= known
        bands += 1
    enough: Bools = count >= max(1, min(KEPT * bands, count.max(initial=0)))
    return enough & complete


def fit(windows: Sequence[Known], good: Bools, sigma_y: Floats) -> ErrorModel:
    """Fit the model to windows of a scene.

    good: (C,) bands that the components describe, each observed somewhere.
    sigma_y: (C,) noise std, in the unit of the values.
    """
    weight, C = whitening(sigma_y), len(good)
    noise: Floats = (weight * sigma_y) ** 2
    spread = np.array([_variance(windows, band) for band in range(C)])
    left: Floats = weight**2 * spread - noise
    basis, variance, covariances, edge = np.zeros((C, 0)), np.zeros(0), [], 0.0
    masks = [window.complete(good) for window in windows]
    known = [(window, mask) for window, mask in zip(windows, masks, strict=True) if mask.any()]
    if known:
        rows = np.flatnonzero(good)[:, None]
        spectra = np.concatenate([w.values[rows, *np.nonzero(m)] for w, m in known], axis=1)
        spectra *= weight[good, None]
        flags = np.concatenate([w.observed[rows, *np.nonzero(m)] for w, m in known], axis=1)
        space = _with_signs(subspace.fit(spectra, flags, COMPONENTS))
        z = space.project(spectra)
        some = np.flatnonzero(~flags.all(axis=0))
        z[:, some] = subspace.regress(spectra[:, some], flags[:, some], space)[0]
        fields = _on_grids(z, [complete for _, complete in known])
        covariances = fit_to_windows(fields, ORDERS, REACHES, KINDS)
        basis, variance = np.zeros((C, len(z))), space.variance
        basis[good] = space.basis
        residual = spectra - space.reconstruct(z)
        # the rest of the noise is in the components
        residual_noise = noise[good] * (1 - (space.basis**2).sum(axis=1))
        count = flags.sum(axis=1)
        residual_var = (residual**2).sum(axis=1, where=flags) / np.maximum(count, 1)
        left[good] = np.where(count > 0, residual_var - residual_noise, left[good])
        if noise.any():  # Marchenko and Pastur, as in `smooth`
            edge = float((1 + np.sqrt(good.sum() / z.shape[1])) ** 2)
    minimum = LEAST * float((weight**2 * spread).mean()) + np.finfo(float).tiny
    left = np.maximum(left, minimum)
    return ErrorModel(weight, basis, variance, tuple(covariances), left, noise, edge)


def _on_grids(z: Floats, masks: Sequence[Bools]) -> list[tuple[Floats, Bools]]:
    """Return the coordinates (K, n) of the pixels of all masks as planes (K, H, W) of each."""
    fields, ends = [], np.cumsum([mask.sum() for mask in masks])
    for part, mask in zip(np.split(z, ends[:-1], axis=1), masks, strict=True):
        planes = np.zeros((len(z), *mask.shape))
        planes[:, mask] = part
        fields.append((planes, mask))
    return fields


def _with_signs(space: subspace.Subspace) -> subspace.Subspace:
    """Return components whose largest entry is > 0: draws depend on their sign, which is free."""
    largest = np.abs(space.basis).argmax(axis=0)
    sign = np.where(space.basis[largest, np.arange(len(largest))] < 0, -1.0, 1.0)
    return space._replace(basis=space.basis * sign)


def _variance(windows: Sequence[Known], band: int) -> float:
    """Return the variance of the observed entries of a band; 0 without any."""
    known = np.concatenate([values[band][observed[band]] for values, observed in windows])
    return float(known.var()) if len(known) else 0.0
