"""`smooth`: kriging of the principal components, each with the covariance its variogram shows.

Letters: z (K, H, W) coordinates of the spectra; known (H, W), True where z is; f the field behind
z = f + texture + noise.  The field's covariance is `sill` times the operator (reach⁻² − Δ)^−s with
reflecting borders, diagonal under the cosine transform; texture is white, of variance `nugget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log10
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, optimize, sparse
from scipy.fft import idctn, irfft2, next_fast_len, rfft2

from hydiff import gaussian, subspace
from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.mask import Ints
from hydiff.methods.classical import (
    TOLERANCE,
    Membrane,
    _check_components,
    _conjugate_gradients,
    _eigenvalues,
    _factor,
    _filtered,
    _laplacian,
    field,
    membrane,
)
from hydiff.result import Step

Complexes = NDArray[np.complex128]

ORDERS = (1.0, 1.25, 1.5, 1.75, 1.95)  # s that are tried; at 2 the increments have no variance
REACHES = (inf, 40.0, 10.0)  # pixels
LAGS = (6, 40)  # the variogram reaches as far as the widest gap, between these many pixels
LEAST_NUGGET = 1e-3  # of the sill: with less the field passes through the known pixels
TRUSTED = 0.99  # share of its variance that a pixel's bands must tell before it counts as known
EXACT = 1600  # up to so many pixels the variance is computed, beyond it is sampled
DRAWS = 12  # samples of the field that the variance is taken from
SPREAD_GROUPS = 3  # distinct covariances whose variance is worked out; the others borrow


@dataclass(frozen=True)
class Smooth:
    s: float | None = None  # order of the Laplacian: 1 is harmonic, 2 biharmonic; None = fitted
    components: int = 24  # principal components kept
    error_bars: bool = False  # also work out the posterior variance
    space: subspace.Subspace | None = None  # of the scene that this is a part of; None = fitted

    def __post_init__(self) -> None:
        if self.s is not None and not 0.5 <= self.s <= 2:
            raise BadValue(f"s = {self.s:g} is outside 0.5 ... 2; 1.5 suits many scenes")
        _check_components(self.components)


class Covariance(NamedTuple):
    """Of one component; `sill` in its unit squared, times px^(2 - 2s)."""

    s: float
    reach: float  # px; inf = none, a power law
    sill: float
    nugget: float  # variance of what one pixel does not share with its neighbours

    @property
    def kind(self) -> tuple[float, float, float]:
        """(s, reach, κ = nugget / sill in decades): components of one kind share a solver."""
        ratio = max(self.nugget / self.sill, LEAST_NUGGET) if self.sill > 0 else inf
        return self.s, self.reach, ratio if ratio == inf else 10.0 ** round(log10(ratio))


class Coordinates(NamedTuple):
    """A cube as components, before a covariance is chosen: what several fills of it share."""

    y: Floats  # (C, H, W), with the bands that regression has completed
    seen: Bools  # (C, H, W)
    known: Bools  # (H, W) pixels whose whole spectrum is in y
    spread: Floats  # (C, H, W) variance of the completed entries
    weight: Floats  # (C,) that whitens the noise
    noise: Floats  # (C,) variance of the whitened noise; 0 without noise
    space: subspace.Subspace  # of the whitened spectra
    z: Floats  # (K, H, W), 0 where not known
    rest: Floats  # (C, H, W) what the components leave of the whitened spectra, filled; `remainder`
    left: Floats  # (C,) its variance at the known pixels
    membranes: dict[float, Membrane]  # by reach, each made when it is first asked for

    @property
    def noisy(self) -> bool:
        return bool(self.noise.any())


def coordinates(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    components: int,
    space: subspace.Subspace | None = None,
) -> Coordinates:
    """Complete the spectra that keep enough bands, find the components, project; see `smooth`."""
    seen = np.broadcast_to(observed, y.shape)
    y, known, spread = complete(y, seen)
    weight = _whitening(sigma_y)
    complete_spectra = _spectra(y, known, weight)
    space = space or subspace.fit(
        complete_spectra, np.ones(complete_spectra.shape, bool), components
    )
    z = np.zeros((space.basis.shape[1], *known.shape))
    z[:, known] = space.project(complete_spectra)
    noise, membranes = (weight * sigma_y) ** 2, dict[float, Membrane]()
    rest, left = remainder(complete_spectra, known, space, noise, membranes)
    return Coordinates(y, seen, known, spread, weight, noise, space, z, rest, left, membranes)


def smooth(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: Smooth,
    *,
    rng: np.random.Generator,
    given: Coordinates | None = None,
) -> Iterator[Step]:
    """Kriging of the principal components; the bands a pixel keeps come first.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    A pixel that keeps some bands is completed from them (Gaussian regression, its residual
    kriged); pixels without are kriged from the others.  What the components leave of the spectra is
    filled band by band, so that a narrow feature of a small object survives.  With a given `s` and
    no noise this is the smoothest field of that order, without texture.  given: the coordinates, if they are at hand.
    """
    c = given or coordinates(y, observed, sigma_y, settings.components, settings.space)
    at = np.ones_like(c.known) if c.noisy else ~c.known
    x = c.y.copy()
    x[:, at], covariances = kriged(c, settings, at)
    sigma = None
    if settings.error_bars:
        variance = posterior_variance(c.known, covariances, rng)[:, ~c.known]
        sigma = np.sqrt(c.spread)
        around = np.sqrt(c.space.basis**2 @ variance + c.left[:, None])
        sigma[:, ~c.known] = around / c.weight[:, None]
    yield Step(1, 1, x, sigma=sigma)


def kriged(c: Coordinates, settings: Smooth, at: Bools) -> tuple[Floats, list[Covariance]]:
    """The fill at some pixels (H, W), as (C, n), and the covariances it took, if it took any."""
    poor = c.seen.any(axis=0) & ~c.known
    covariances: list[Covariance] = []
    if settings.s is None:
        covariances = fit_covariances(c.z, c.known)
    elif c.noisy or poor.any() or settings.error_bars:
        covariances = fit_covariances(c.z, c.known, (min(settings.s, ORDERS[-1]),), (inf,))
    if settings.s is not None and not c.noisy:
        f = _field(c.z, c.known, settings.s, inf, c.membranes)
    else:
        # white noise of unit variance, at the upper edge that its sample components reach
        # (Marchenko and Pastur): what the variogram shows beyond that is texture
        noise = (1 + np.sqrt(len(c.y) / max(c.known.sum(), 1))) ** 2 if c.noisy else 0.0
        f = krige(c.z, c.known, covariances, noise, c.membranes)
    x = c.space.reconstruct(f[:, at]) + c.rest[:, at]
    y, seen, weight = c.y[:, at], c.seen[:, at], c.weight[:, None]
    few = poor[at]
    if few.any():
        risk = np.array([_size(one) + one.nugget for one in covariances])
        covariance = (c.space.basis * risk) @ c.space.basis.T + np.diag(c.left)
        x[:, few] += _news((weight * y - x)[:, few], seen[:, few], covariance)
    x /= weight
    return x if c.noisy else np.where(seen | c.known[at], y, x), covariances


def _whitening(sigma_y: Floats) -> Floats:
    """(C,) factors that give a component's noise the same variance in all directions."""
    if not sigma_y.any():
        return np.ones(len(sigma_y))
    weight: Floats = 1 / np.maximum(sigma_y, 0.05 * sigma_y.max())
    return weight


def spectra(y: Floats, observed: Bools, sigma_y: Floats) -> Floats:
    """(C, n) the whitened spectra that `smooth` fits its components to; arguments as there."""
    y, known, _ = complete(y, np.broadcast_to(observed, y.shape))
    return _spectra(y, known, _whitening(sigma_y))


def _spectra(y: Floats, known: Bools, weight: Floats) -> Floats:
    told = y[:, known]
    told *= weight[:, None]
    return told


def remainder(
    spectra: Floats,
    known: Bools,
    space: subspace.Subspace,
    noise: Floats,
    membranes: dict[float, Membrane],
) -> tuple[Floats, Floats]:
    """What the components leave of spectra (C, n) at the known pixels (H, W), filled as a cube
    (C, H, W), and its variance (C,).

    The remainder is texture and noise of single bands, and here and there what no component holds:
    the absorption of a plume, a mineral.  A membrane in each band carries that into the gaps; all
    bands share its factor.  With noise of variance `noise` (C,) a band keeps the share of its
    remainder that is more than noise.
    """
    rest = np.zeros((len(spectra), *known.shape))
    if space.basis.shape[1] == len(spectra) or not known.any():
        return rest, np.zeros(len(spectra))
    rest[:, known] = spectra - space.reconstruct(space.project(spectra))
    left: Floats = (rest[:, known] ** 2).mean(axis=1)
    if noise.any():
        noise = noise * (1 - (space.basis**2).sum(axis=1))  # the components hold the other part
        rest *= (np.maximum(left - noise, 0) / np.maximum(left, 1e-300))[:, None, None]
    return _field(rest, known, 1.0, inf, membranes), left


# ── pixels that keep some bands ──────────────────────────────────────────────────────────────────


def complete(y: Floats, seen: Bools) -> tuple[Floats, Bools, Floats]:
    """Fill the missing bands of pixels that keep enough of them.

    Returns the cube (C, H, W), the pixels (H, W) whose spectra are now known, and the variance
    of the entries filled there (C, H, W).
    """
    whole: Bools = np.asarray(seen.all(axis=0))
    some: Bools = np.asarray(seen.any(axis=0))
    if np.array_equal(whole, some):
        return y, whole, np.zeros_like(y)
    flat, flags = y[:, some], seen[:, some]
    model = gaussian.fit(flat, flags)
    x, variance, _ = gaussian.condition(flat, flags, model)
    told = 1 - variance.sum(axis=0) / np.trace(model.covariance)
    known = np.zeros(some.shape, bool)
    known[some] = told >= min(TRUSTED, float(np.median(told)))
    filled, residual, spread = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    filled[:, some], spread[:, some] = x, variance
    residual[:, some] = gaussian.left_out(x, flags, model)
    filled += _kriged_residual(residual, seen)
    return np.where(seen, y, filled), known, spread


def _news(innovation: Floats, seen: Bools, covariance: Floats) -> Floats:
    """By how much the seen bands of poor pixels (C, N) differ from the kriged spectrum tells how
    much the others do; the covariance is that of the kriging error."""
    mean = np.zeros(len(covariance))
    error = gaussian.Gaussian(mean, covariance + gaussian.ridge(covariance))
    news, _, _ = gaussian.condition(innovation, seen, error)
    return news


def _kriged_residual(residual: Floats, seen: Bools) -> Floats:
    """What neighbours say about the residual of the regression (C, H, W), each band for itself."""
    scale = np.sqrt((residual**2).sum(axis=(1, 2)) / np.maximum(seen.sum(axis=(1, 2)), 1))
    scale = np.maximum(scale, np.finfo(float).tiny)[:, None, None]
    ratio = _residual_ratio(residual / scale, seen)
    if ratio == inf:
        return np.zeros_like(residual)
    power: Floats = ratio * _eigenvalues(*residual.shape[1:])
    inverse = 1 / (seen.mean(axis=(1, 2), keepdims=True) + power)
    f = _conjugate_gradients(
        lambda f: seen * f + _filtered(f, power),
        seen * residual / scale,
        lambda r: _filtered(r, inverse),
        1e-2,
    )
    kriged: Floats = f * scale
    return kriged


def _residual_ratio(residual: Floats, seen: Bools) -> float:
    """κ = nugget / sill of a membrane (s = 1), from the variogram pooled over some bands."""
    found = []
    for band in range(0, len(residual), max(len(residual) // 16, 1)):
        if seen[band].any():
            found += fit_covariances(residual[band : band + 1], seen[band], (1.0,), (inf,))
    sill, nugget = (float(np.mean([getattr(c, k) for c in found])) for k in ("sill", "nugget"))
    return max(nugget / sill, 0.1) if sill > 0.01 * nugget else inf


# ── the covariance of a component ────────────────────────────────────────────────────────────────


def fit_covariances(
    z: Floats,
    known: Bools,
    orders: Sequence[float] = ORDERS,
    reaches: Sequence[float] = REACHES,
) -> list[Covariance]:
    """The covariance of each component (K, H, W), by least squares on its variogram.

    Errors count relative to the variogram itself, and the less the longer the lag.
    """
    widest = 2 * ndimage.distance_transform_edt(~known).max() if not known.all() else 0
    longest = min(int(np.clip(widest, *LAGS)), max(known.shape) - 1)
    if longest == 0:  # a single pixel
        return [Covariance(orders[0], inf, 0.0, 0.0)] * len(z)
    down, right = _lags(longest)
    found, pairs = variogram(z, known, down, right)
    ring = np.rint(2 * np.hypot(down, right)).astype(np.intp)  # lags of like length, whatever way

    def by_ring(values: Floats) -> Floats:
        return np.bincount(ring, pairs * values)[enough] / total[enough]

    total = np.bincount(ring, pairs)
    enough = total >= 20
    if not enough.any():
        return [Covariance(orders[0], inf, 0.0, float(v)) for v in z[:, known].var(axis=1)]
    length = by_ring(np.hypot(down, right))
    shapes = {
        (s, reach): by_ring(model_variogram(s, reach, longest)) for s in orders for reach in reaches
    }
    lags = np.bincount(ring)[enough]
    return [_fit_one(by_ring(curve), length, lags, shapes) for curve in found]


def _fit_one(
    curve: Floats, length: Floats, lags: Ints, shapes: dict[tuple[float, float], Floats]
) -> Covariance:
    if not curve.max() > 0:  # constant
        return Covariance(1.0, inf, 0.0, 0.0)
    weight = np.sqrt(lags) / (np.maximum(curve, 1e-9 * curve.max()) * length)
    best, chosen = inf, Covariance(1.0, inf, 0.0, float(curve.mean()))
    for (s, reach), shape in shapes.items():
        design = np.stack([np.ones_like(shape), shape], axis=1) * weight[:, None]
        (nugget, sill), misfit = optimize.nnls(design, curve * weight)
        if misfit < best:
            best, chosen = misfit, Covariance(s, reach, float(sill), float(nugget))
    return chosen


def variogram(z: Floats, known: Bools, down: Ints, right: Ints) -> tuple[Floats, Floats]:
    """Half the mean square difference of known pixels at each lag: (K, lags), and their pairs."""
    shape = [
        next_fast_len(n + int(np.abs(lag).max()), real=True)
        for n, lag in zip(known.shape, (down, right), strict=True)
    ]
    mean = z[:, known].mean(axis=1)[:, None, None]
    z = np.where(known, z - mean, 0.0)
    flags, first, second = (rfft2(a, shape) for a in (known.astype(float), z, z**2))

    def at_lags(spectrum: Complexes) -> Floats:
        values: Floats = irfft2(spectrum, shape)
        return values[..., down, right]

    pairs = np.rint(at_lags(flags.conj() * flags))
    # ½ Σ (z² at one end + z² at the other) − Σ z z, as correlations, in one transform
    half = at_lags((flags.conj() * second).real - first.conj() * first)
    return np.maximum(half, 0) / np.maximum(pairs, 1), pairs


@lru_cache(maxsize=256)
def model_variogram(s: float, reach: float, longest: int, grid: int = 256) -> Floats:
    """That of (reach⁻² − Δ)^−s with unit sill, at the lags up to `longest`, on a large torus."""
    ring = 2 - 2 * np.cos(2 * np.pi * np.fft.fftfreq(grid))
    operator = ring[:, None] + ring + reach**-2
    spectrum = np.where(operator > 0, np.where(operator > 0, operator, 1.0) ** -s, 0.0)
    covariance = np.fft.ifft2(spectrum).real
    down, right = _lags(longest)
    values: Floats = covariance[0, 0] - covariance[down, right]
    return values


@lru_cache(maxsize=64)
def _lags(longest: int) -> tuple[Ints, Ints]:
    """All lags (down, right) in a half plane within a distance."""
    down, right = np.mgrid[: longest + 1, -longest : longest + 1]
    chosen = (np.hypot(down, right) <= longest) & ((down > 0) | (right > 0))
    return down[chosen], right[chosen]


# ── kriging ──────────────────────────────────────────────────────────────────────────────────────


def krige(
    z: Floats,
    known: Bools,
    covariances: Sequence[Covariance],
    noise: float,
    membranes: dict[float, Membrane] | None = None,
) -> Floats:
    """E[f + texture | z] (K, H, W) with measurement noise of variance `noise` on every component.

    Without noise the known pixels come back as they are.  membranes: those of this mask that are
    at hand, by reach; what is made is added to them.
    """
    membranes = {} if membranes is None else membranes
    mean = z[:, known].mean(axis=1)[:, None, None]
    centred = np.where(known, z - mean, 0.0)
    # what the variogram shows at lag 0 is texture and noise together
    total = [c._replace(nugget=max(c.nugget, noise)) for c in covariances]
    f = np.zeros_like(z)
    for s, reach, kappa in dict.fromkeys(c.kind for c in total):
        members = [k for k, c in enumerate(total) if c.kind == (s, reach, kappa)]
        if kappa <= LEAST_NUGGET:
            f[members] = _field(centred[members], known, s, reach, membranes)
        elif kappa < inf:
            f[members] = solver(known, s, reach, kappa)(centred[members])
    texture = np.array([1 - noise / c.nugget if c.nugget > 0 else 1.0 for c in total])
    f += known * texture[:, None, None] * (centred - f) + mean
    return f


def _field(
    z: Floats, known: Bools, s: float, reach: float, membranes: dict[float, Membrane]
) -> Floats:
    if known.all():
        return z.copy()
    if reach not in membranes:
        membranes[reach] = membrane(known, reach)
    return field(z, known, s, reach, membranes[reach])


def solver(
    known: Bools, s: float, reach: float, kappa: float, tolerance: float = TOLERANCE
) -> Callable[[Floats], Floats]:
    """Solves (known + κ (reach⁻² − Δ)^s) f = known z for many z (K, H, W).

    The preconditioner of `field` (docs/decisions/0005) carried over to κ > 0:
    S⁻¹ (known + κ^{2/s−1} (reach⁻² − Δ)^{2−s}) S⁻¹, S = known + κ^{1/s} (reach⁻² − Δ) sparse;
    both meet the operator at the frequency where data and smoothness weigh the same.
    """
    flags = known.ravel().astype(float)
    membrane = _laplacian(*known.shape) + reach**-2 * sparse.eye_array(known.size)
    inverse = _factor(
        sparse.diags_array(flags) + kappa ** (1 / s) * membrane, np.ones(known.size, bool)
    )
    eigenvalues = _eigenvalues(*known.shape) + reach**-2
    power, rest = kappa * eigenvalues**s, kappa ** (2 / s - 1) * eigenvalues ** (2 - s)

    def precondition(r: Floats) -> Floats:
        v = inverse(r.reshape(len(r), -1)).reshape(r.shape)
        v = known * v + _filtered(v, rest)
        return inverse(v.reshape(len(v), -1)).reshape(v.shape)

    return lambda z: _conjugate_gradients(
        lambda f: known * f + _filtered(f, power), known * z, precondition, tolerance
    )


# ── how far it may be off ────────────────────────────────────────────────────────────────────────


def posterior_variance(
    known: Bools, covariances: Sequence[Covariance], rng: np.random.Generator
) -> Floats:
    """(K, H, W) variance of f + texture at the missing pixels, 0 at known ones.

    The strongest kinds of covariance are worked out; components of another kind borrow the shape
    of the strongest.
    """
    weight: dict[tuple[float, float, float], float] = {}
    for c in covariances:
        weight[c.kind] = weight.get(c.kind, 0.0) + _size(c)
    kinds = sorted((k for k in weight if k[2] < inf), key=lambda k: -weight[k])[:SPREAD_GROUPS]
    shapes = {kind: unit_variance(known, *kind, rng) for kind in kinds}
    out = np.zeros((len(covariances), *known.shape))
    for k, c in enumerate(covariances):
        if c.kind in shapes:
            out[k] = c.sill * shapes[c.kind]
        elif kinds and c.sill > 0:
            out[k] = _size(c) / _size(Covariance(*kinds[0][:2], 1.0, 0.0)) * shapes[kinds[0]]
        out[k] += c.nugget
    return np.where(known, 0.0, out)


def _size(c: Covariance) -> float:
    """The field's half mean square difference at three pixels: what an interpolation risks."""
    down, right = _lags(LAGS[0])
    at = int(np.flatnonzero((down == 3) & (right == 0))[0])
    return c.sill * float(model_variogram(c.s, c.reach, LAGS[0])[at])


def unit_variance(
    known: Bools, s: float, reach: float, kappa: float, rng: np.random.Generator
) -> Floats:
    """(H, W) variance of f given the known pixels, with unit sill and nugget κ."""
    kappa = max(kappa, LEAST_NUGGET)
    if known.size <= EXACT:
        return _exact_variance(known, s, reach, kappa)
    shape = (DRAWS, *known.shape)
    eigenvalues = _eigenvalues(*known.shape) + reach**-2
    root = np.where(eigenvalues > 0, np.where(eigenvalues > 0, eigenvalues, 1.0) ** (-s / 2), 0.0)
    f = idctn(root * rng.standard_normal(shape), axes=(1, 2), norm="ortho")
    z = f + np.sqrt(kappa) * rng.standard_normal(shape)
    error = f - solver(known, s, reach, kappa, 1e-2)(z)
    variance = (error**2).mean(axis=0) * ~known
    # few draws are noisy, the variance is smooth along a gap: average it over missing neighbours
    around = ndimage.uniform_filter((~known).astype(float), 3)
    return np.where(known, 0.0, ndimage.uniform_filter(variance, 3) / np.maximum(around, 1e-9))


def _exact_variance(known: Bools, s: float, reach: float, kappa: float) -> Floats:
    """The diagonal of (known / κ + (reach⁻² − Δ)^s)⁻¹ at the missing pixels, as a dense matrix."""
    unit = np.eye(known.size).reshape(-1, *known.shape)
    precision = _filtered(unit, (_eigenvalues(*known.shape) + reach**-2) ** s)
    dense = precision.reshape(known.size, -1) + np.diag(known.ravel() / kappa)
    variance: Floats = np.diag(np.linalg.inv(dense)).reshape(known.shape)
    return np.where(known, 0.0, variance)
