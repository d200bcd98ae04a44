"""A Gaussian model of spectra, which predicts missing bands of a pixel from its observed ones.

Letters: y (C, N) spectra as columns, observed the same shape, True = measured; S (C, C) covariance.
S contains the noise of each band, so nothing is truncated: with many bands and little noise this is
far more exact than a few principal components.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from hydiff.cube import Bools, Floats, Ints
from hydiff.maths import subspace

START = 8  # principal components of the initial covariance for expectation maximisation
ROUNDS = 4  # of expectation maximisation; more rounds change little and begin to overfit
SPECTRA_PER_BAND = 8  # spectra that are used per band, at least MIN_SPECTRA
MIN_SPECTRA = 1500
RIDGE = 1e-6  # share of the mean variance: keeps inverses exact if bands depend on one another
LEAST = 1e-100  # variance of constant bands, large enough for finite sums of its inverse
PROBED = 300  # pixels over which the precision of a band given the others is averaged


class Gaussian(NamedTuple):
    """The mean and the covariance of spectra."""

    mean: Floats  # (C,)
    covariance: Floats  # (C, C), positive definite


def fit(y: Floats, observed: Bools) -> Gaussian:
    """Fit mean and covariance to spectra with missing entries, by expectation maximisation.

    Each round fills the missing entries with their conditional mean and adds their conditional
    covariance.  The initial low-rank model has the weight of as many spectra as there are bands.
    """
    C = len(y)
    used = np.flatnonzero(observed.any(axis=0))
    used = used[:: -(-len(used) // max(MIN_SPECTRA, SPECTRA_PER_BAND * C))]
    y, observed = y[:, used], observed[:, used]
    model = prior = _low_rank(y, observed)
    if observed.all():
        return _update(y, np.zeros((C, C)), prior)
    for _ in range(ROUNDS):
        x, _, spread = condition(y, observed, model)
        model = _update(x, spread, prior)
    return model


def condition(y: Floats, observed: Bools, model: Gaussian) -> tuple[Floats, Floats, Floats]:
    """Return the conditional mean of the missing entries, given the observed ones of each spectrum.

    Returns x (C, N), equal to y where observed; the variance of its entries (C, N), 0 where
    observed; and the sum of the conditional covariances of the spectra (C, C).
    """
    precision = np.linalg.inv(model.covariance)
    x = np.where(observed, y - model.mean[:, None], 0.0)
    variance, upper = np.zeros_like(x), np.zeros_like(precision)
    for missing, members in patterns(observed):
        if len(missing):
            at = np.ix_(missing, missing)
            factor, _ = lapack.dpotrf(precision[at])
            x[np.ix_(missing, members)] = lapack.dpotrs(
                factor, -(precision[missing] @ x[:, members])
            )[0]
            block, _ = lapack.dpotri(factor)  # the upper triangle only
            variance[np.ix_(missing, members)] = np.diag(block)[:, None]
            upper[at] += len(members) * block
    spread = np.triu(upper) + np.triu(upper, 1).T
    return np.where(observed, y, x + model.mean[:, None]), variance, spread


def left_out(x: Floats, observed: Bools, model: Gaussian) -> Floats:
    """(C, N) residual of each observed entry in a regression on the other observed bands; 0 where
    missing.

    x: the spectra, missing entries filled with their conditional mean.  With Q the precision of the
    observed bands, the residual of band b is (Q y)_b / Q_bb, and (Q y)_b is (P x)_b, with P the
    precision of all bands.  Q_bb depends a little on which bands are missing; its mean over some
    pixels is used.
    """
    precision = np.linalg.inv(model.covariance)
    C, N = x.shape
    total, count = np.zeros(C), np.zeros(C)
    for missing, members in patterns(observed[:, :: -(-N // PROBED)]):
        bands = np.setdiff1d(np.arange(C), missing)
        cross = precision[np.ix_(bands, missing)]
        block = np.linalg.inv(precision[np.ix_(missing, missing)])
        conditional = np.diag(precision)[bands] - np.einsum("im,mn,in->i", cross, block, cross)
        total[bands] += len(members) * conditional
        count[bands] += len(members)
    band_precision = np.where(count > 0, total / np.maximum(count, 1), np.diag(precision))
    residual = (precision @ (x - model.mean[:, None])) / band_precision[:, None]
    return np.where(observed, residual, 0.0)


def patterns(observed: Bools) -> Iterator[tuple[Ints, Ints]]:
    """Yield groups of spectra that lack the same bands: (missing bands, indices of the spectra)."""
    _, which = np.unique(np.packbits(observed, axis=0), axis=1, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(which.ravel()[order])) + 1):
        yield np.flatnonzero(~observed[:, members[0]]), members


def _low_rank(y: Floats, observed: Bools) -> Gaussian:
    """Return a model of a few principal components, with their residual as noise of each band."""
    space = subspace.fit(y, observed, START)
    z, _ = subspace.regress(y, observed, space)
    residual = np.where(observed, y - space.reconstruct(z), 0.0)
    noise = (residual**2).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
    covariance = (space.basis * space.variance) @ space.basis.T
    return Gaussian(space.mean, covariance + np.diag(noise) + ridge(covariance + np.diag(noise)))


def _update(x: Floats, spread: Floats, prior: Gaussian) -> Gaussian:
    """Return the model of completed spectra x (C, n), with the prior as C more spectra.

    spread: (C, C) sum of the conditional covariances of the spectra.
    """
    C, n = x.shape
    mean = x.mean(axis=1)
    centred = x - mean[:, None]
    covariance = (centred @ centred.T + spread + C * prior.covariance) / (n + C)
    return Gaussian(mean, covariance + ridge(covariance))


def ridge(covariance: Floats) -> Floats:
    """(C, C) diagonal to add to a covariance (C, C) so that its inverse can be computed.

    It hides bands with less variance than itself, such as an index beside reflectance in thousands:
    they get a share of their own variance, unless that is within rounding errors of the others.
    """
    C, variance = len(covariance), np.diag(covariance)
    mean = np.trace(covariance) / C
    hidden = (variance < RIDGE * mean) & (variance > np.finfo(float).eps * mean)
    diagonal: Floats = (RIDGE * np.where(hidden, variance, mean) + LEAST) * np.eye(C)
    return diagonal
