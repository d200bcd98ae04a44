"""Fill the missing bands of partly observed pixels, from their other bands and from neighbours.

Gaussian regression predicts the missing bands of a pixel from its observed ones.  The residual of
the regression is kriged: each band separately where single bands are missing; all bands of a run
together where adjacent bands are missing, because nothing in the pixel itself shows an absorption
that lies between its observed bands.

Letters: y (C, H, W); observed the same shape, True = measured; P the precision matrix (inverse
covariance) of the spectra.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np
from scipy import linalg, ndimage

from hydiff.cube import Bools, Floats, Ints
from hydiff.maths import gaussian
from hydiff.maths.variogram import fit_covariances
from hydiff.methods.classical import conjugate_gradients, field, filtered, laplacian_eigenvalues

TRUSTED = 0.99  # a pixel is complete if its observed bands explain this share of its variance
FEWEST_ALIKE = 8  # pixels that must miss the same run of bands before neighbours are used
ASKED = 8  # px around the pixels of a run within which neighbours are used
NOISE_RADIUS = 0.7  # px, std of a Gaussian that averages neighbours about as 3 x 3 pixels do
BANDS = 16  # about as many bands are used for the variogram of the residual
SMOOTHEST, WEAKEST = 0.1, 0.01  # least nugget over sill of the residual; and least sill over nugget
CHANCE = 1.5  # correlations of fewer standard errors count as 0, slightly larger ones as little


class Completed(NamedTuple):
    """A cube in which the missing bands of partly observed pixels are filled."""

    y: Floats  # (C, H, W)
    complete: Bools  # (H, W) pixels with all bands observed, or enough of them
    variance: Floats  # (C, H, W) of the filled entries
    excess: Floats | None  # (C, H, W) ratio of `variance` to that of the Gaussian; None: 1


def complete_spectra(y: Floats, observed: Bools) -> Completed:
    """Fill the missing bands of all pixels with at least one observed band; see `Completed`."""
    all_bands: Bools = np.asarray(observed.all(axis=0))
    any_band: Bools = np.asarray(observed.any(axis=0))
    if np.array_equal(all_bands, any_band):
        return Completed(y, all_bands, np.broadcast_to(0.0, y.shape), None)
    flat, flags = y[:, any_band], observed[:, any_band]
    model = gaussian.fit(flat, flags)
    x, variance, _ = gaussian.condition(flat, flags, model)
    complete = np.zeros(any_band.shape, bool)
    complete[any_band] = _enough(variance, model)
    filled, residual, spread = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    filled[:, any_band], spread[:, any_band] = x, variance
    residual[:, any_band] = gaussian.left_out(x, flags, model)
    correction = _kriged_residual(residual, observed)
    precision = np.asarray(np.linalg.inv(model.covariance), dtype=np.float64)
    centred = filled - model.mean[:, None, None]
    excess = None
    for bands, rows, cols in _runs(observed):
        entries = bands[:, None], rows, cols
        correction[entries], local = _run_residual(centred, observed, precision, bands, rows, cols)
        excess = np.ones_like(y) if excess is None else excess
        excess[entries] = np.maximum(local / spread[entries], 1.0)
        spread[entries] = local
    return Completed(np.where(observed, y, filled + correction), complete, spread, excess)


def share_of_few(y: Floats, observed: Bools) -> float:
    """Return the share of the incomplete spectra (C, N) with too few bands to count as complete."""
    model = gaussian.fit(y, observed)
    _, variance, _ = gaussian.condition(y, observed, model)
    gaps = ~observed.all(axis=0)
    return float((gaps & ~_enough(variance, model)).sum() / max(gaps.sum(), 1))


def _enough(variance: Floats, model: gaussian.Gaussian) -> Bools:
    """(N,) whether the observed bands of pixels explain enough of their variance, or at least as
    much as the median over the pixels.  variance (C, N): of their missing bands."""
    explained = 1 - variance.sum(axis=0) / np.trace(model.covariance)
    enough: Bools = explained >= min(TRUSTED, float(np.median(explained)))
    return enough


# ── single bands ─────────────────────────────────────────────────────────────────────────────────


def _kriged_residual(residual: Floats, observed: Bools) -> Floats:
    """Krige the residual of the regression (C, H, W), each band separately."""
    scale = np.sqrt((residual**2).sum(axis=(1, 2)) / np.maximum(observed.sum(axis=(1, 2)), 1))
    scale = np.maximum(scale, np.finfo(float).tiny)[:, None, None]
    ratio = _residual_ratio(residual / scale, observed)
    if ratio == inf:
        return np.zeros_like(residual)
    power: Floats = ratio * laplacian_eigenvalues(*residual.shape[1:])
    inverse = 1 / (observed.mean(axis=(1, 2), keepdims=True) + power)
    f = conjugate_gradients(
        lambda f: observed * f + filtered(f, power),
        observed * residual / scale,
        lambda r: filtered(r, inverse),
        1e-2,
    )
    kriged: Floats = f * scale
    return kriged


def _residual_ratio(residual: Floats, observed: Bools) -> float:
    """Return κ = nugget / sill of a membrane (s = 1), from the variograms of some bands."""
    fits = []
    for band in range(0, len(residual), max(len(residual) // BANDS, 1)):
        if observed[band].any():
            fits += fit_covariances(residual[band : band + 1], observed[band], (1.0,), (inf,))
    sill = float(np.mean([c.sill for c in fits]))
    nugget = float(np.mean([c.nugget for c in fits]))
    return max(nugget / sill, SMOOTHEST) if sill > WEAKEST * nugget else inf


# ── runs of adjacent bands ───────────────────────────────────────────────────────────────────────


def _runs(observed: Bools) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield groups of pixels that miss the same adjacent bands: bands (m,), rows, columns (n,)."""
    adjacent = runs(~observed & observed.any(axis=0))
    rows, cols = np.nonzero(adjacent.any(axis=0))
    if not len(rows):
        return
    for bands, members in gaussian.patterns(~adjacent[:, rows, cols]):
        if len(members) >= FEWEST_ALIKE:
            yield bands, rows[members], cols[members]


def runs(missing: Bools) -> Bools:
    """(C, ...) missing entries in runs of three or more adjacent bands.  In shorter runs each band
    has an observed neighbour, which shows its content."""
    middle = np.zeros_like(missing)
    middle[1:-1] = missing[:-2] & missing[1:-1] & missing[2:]
    adjacent = middle.copy()
    adjacent[1:] |= middle[:-1]
    adjacent[:-1] |= middle[1:]
    return adjacent


def _run_residual(
    centred: Floats, observed: Bools, precision: Floats, bands: Ints, rows: Ints, cols: Ints
) -> tuple[Floats, Floats]:
    """Return the correction of the regression for a run of missing bands (m,) of n pixels, from
    their neighbours, and the variance, both (m, n); centred (C, H, W): spectra minus their mean.

    In neighbours with these bands observed, the bands differ from the prediction of the others by
    r = P_mm⁻¹ (P x)_m.  With P_mm = L Lᵀ, w = L⁻¹ (P x)_m = Lᵀ r is white with unit variance if the
    Gaussian holds.  w is rotated so that few directions contain most of what neighbours have in
    common; each direction is then interpolated, damped by the local correlation of neighbours.
    """
    window, at = _window(observed.shape[1:], rows, cols)
    have: Bools = np.asarray(observed[bands][:, *window].all(axis=0))
    lower = np.linalg.cholesky(precision[np.ix_(bands, bands)])
    if not have.any():
        variance = (np.linalg.inv(lower) ** 2).sum(axis=0)[:, None]
        return np.zeros((len(bands), len(rows))), np.repeat(variance, len(rows), axis=1)
    x = centred[:, *window].reshape(len(centred), -1)
    w = linalg.solve_triangular(lower, precision[bands] @ x * have.ravel(), lower=True)
    mean = _average(w.reshape(-1, *have.shape), have, NOISE_RADIUS)
    turn, _, _ = np.linalg.svd(mean.reshape(len(w), -1), full_matrices=False)
    w, mean = (np.tensordot(turn.T, a, 1) for a in (w.reshape(mean.shape), mean))
    common, size = _in_common(w, have)
    # where neighbours correlate, a pixel keeps its own value; elsewhere it takes their mean
    w = mean + common * (w - mean)
    f, common, size = (a[:, *at] for a in (field(w, have, 1.5), common, size))
    noise = (1 - common) * (common**2 + (1 - common**2) / (2 * np.pi * NOISE_RADIUS**2))
    carried = common / np.maximum(common + noise, 1e-12) * f
    # the correlation falls with distance as a power of that of adjacent pixels
    far = ndimage.distance_transform_edt(~have)[at]
    variance = np.maximum(size * (1 - common ** (2 * far)), 1.0)
    back = linalg.solve_triangular(lower.T, turn, lower=False)
    return back @ carried, back**2 @ variance


def _window(
    shape: tuple[int, ...], rows: Ints, cols: Ints
) -> tuple[tuple[slice, slice], tuple[Ints, Ints]]:
    """Return the window of the image around some pixels, and their rows and columns in it."""
    down, right = (
        slice(max(int(at.min()) - ASKED, 0), min(int(at.max()) + ASKED + 1, n))
        for at, n in zip((rows, cols), shape, strict=True)
    )
    return (down, right), (rows - down.start, cols - right.start)


def _average(w: Floats, have: Bools, radius: float) -> Floats:
    """Return the mean of w (K, h, w) over neighbours where `have` (h, w) is True; 0 elsewhere."""
    near = _near(have.astype(float), radius)
    average: Floats = np.where(have, _near(w, radius) / np.maximum(near, 1e-12), 0.0)
    return average


def _near(a: Floats, radius: float) -> Floats:
    """Return Gaussian-weighted sums over neighbours in maps (..., h, w); weights add up to 1."""
    by_axis = [0.0] * (a.ndim - 2) + [radius] * 2
    summed: Floats = ndimage.gaussian_filter(a, by_axis, mode="constant")
    return summed


def _in_common(w: Floats, have: Bools) -> tuple[Floats, Floats]:
    """Return the correlation of adjacent pixels of w (K, h, w), reduced by what chance gives, and
    the mean square of w, both around every pixel.  have (h, w): where w is measured."""
    radius = ASKED / 2
    product, square, pairs = np.zeros_like(w), np.zeros_like(w), np.zeros(have.shape)
    for first, second in ((np.s_[:, :-1, :], np.s_[:, 1:, :]), (np.s_[:, :, :-1], np.s_[:, :, 1:])):
        both = have[first[1:]] & have[second[1:]]
        product[first] += both * w[first] * w[second]
        square[first] += both * (w[first] ** 2 + w[second] ** 2) / 2
        pairs[first[1:]] += both
    correlation = _near(product, radius) / np.maximum(_near(square, radius), 1e-12)
    correlation = np.clip(correlation, 0.0, 1.0)
    count = _near(pairs, radius) * 4 * np.pi * radius**2  # number of pairs in the average
    chance = CHANCE / np.sqrt(np.maximum(count, 1.0))
    common = correlation * np.maximum(1 - (chance / np.maximum(correlation, 1e-12)) ** 2, 0.0)
    size = _near(w**2, radius) / np.maximum(_near(have.astype(float), radius), 1e-12)
    return common, size
