"""`smooth`: kriging of the principal components, each with a covariance fitted to its variogram.

Letters: z (K, H, W) coordinates of the spectra; complete (H, W), True where z is known; f the field
in z = f + texture + noise.  The field's covariance is `sill` times the operator
(reach⁻² − Δ)^−s with reflecting borders, diagonal under the cosine transform;
texture is white, of variance `nugget`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import linalg, ndimage
from scipy.fft import idctn

from hydiff.cube import Bools, Floats, Ints
from hydiff.errors import BadValue
from hydiff.maths import gaussian, subspace
from hydiff.maths.variogram import LEAST_NUGGET, ORDERS, Covariance, fit_covariances, risk
from hydiff.methods import components
from hydiff.methods.classical import field, filtered, laplacian_eigenvalues
from hydiff.methods.completion import complete_spectra
from hydiff.methods.kriging import fields, krige
from hydiff.methods.membranes import Membrane
from hydiff.methods.remainder import remainder
from hydiff.result import Step

if TYPE_CHECKING:
    from hydiff.learn.gap_fields import GapFields

EXACT = 1600  # pixels up to which the variance is computed exactly; larger images are sampled
DRAWS = 12  # samples of the field for that
LEAST = 0.02  # share of the variance of a measurement that is never taken for noise
SPREAD_GROUPS = 3  # kinds of covariance with a computed variance; others get a scaled copy of one


@dataclass(frozen=True)
class Smooth:
    s: float | None = None  # order of the Laplacian: 1 is harmonic, 2 biharmonic; None = fitted
    components: int = 24  # principal components kept
    error_bars: bool = False  # also compute the posterior variance
    # components of the whole scene; None = fitted to the cube
    space: subspace.Subspace | None = None

    def __post_init__(self) -> None:
        if self.s is not None and not 0.5 <= self.s <= 2:
            raise BadValue(f"s = {self.s:g} is outside 0.5 ... 2; 1.5 suits many scenes")
        components.check(self.components, 24)


class Coordinates(NamedTuple):
    """A cube projected on its principal components, before kriging; shared by several fills."""

    y: Floats  # (C, H, W), with the missing bands of partly observed pixels from regression
    observed: Bools  # (C, H, W)
    complete: Bools  # (H, W) pixels whose whole spectrum is in y
    spread: Floats  # (C, H, W) variance of the entries from regression
    excess: Floats | None  # (C, H, W) see `completion.Completed`
    weight: Floats  # (C,) that whitens the noise
    noise: Floats  # (C,) variance of the whitened noise; 0 without noise
    space: subspace.Subspace  # of the whitened spectra
    z: Floats  # (K, H, W), 0 outside the complete pixels
    rest: Floats  # (C, n) remainder of the whitened spectra, filled; see `remainder`
    column: Ints  # (H, W) column of each pixel in `rest`; -1 where it is not needed
    rest_var: Floats  # (C,) variance of the remainder at the complete pixels
    membranes: dict[float, Membrane]  # by reach, each created at first use
    fitted: list[tuple[Floats, list[Covariance]]]  # result of `fitted_fields`, after its first call
    network_inputs: dict[tuple[str, int], Any]  # of `prior`, by device and number of planes
    predicted: dict[Any, Any]  # cache of `reference.models.predictions`
    gaps: GapFields | None  # of `complete`, on the GPU that solves there; None = numpy and scipy

    @property
    def noisy(self) -> bool:
        """Whether the measurement has noise in any band."""
        return bool(self.noise.any())

    @property
    def noise_edge(self) -> float:
        """Largest variance of a principal component of white noise of unit variance (Marchenko and
        Pastur), or 0 without noise.  The part of a nugget above this value is texture."""
        spectra = max(int(self.complete.sum()), 1)
        return float((1 + np.sqrt(len(self.y) / spectra)) ** 2) if self.noisy else 0.0

    def with_components(self, z: Floats, complete: Bools) -> Coordinates:
        """Return a copy with other components z (K, H, W), 0 outside the complete pixels.  Cached
        results are dropped, except the membranes if the mask of complete pixels is the same."""
        new = self._replace(z=z, complete=complete)
        if not np.array_equal(complete, self.complete):
            new = new._replace(membranes={}, gaps=self.gaps and self.gaps.of(complete))
        return new._replace(fitted=[], network_inputs={}, predicted={})

    def some(self, used: Bools) -> Coordinates:
        """Return a copy with only the components selected by a mask (K,)."""
        _, basis, variance, _ = self.space
        space = self.space._replace(basis=basis[:, used], variance=variance[used])
        return self._replace(space=space).with_components(self.z[used], self.complete)

    @property
    def poor(self) -> Bools:
        """(H, W) pixels with some observed bands, but too few to be complete."""
        poor: Bools = self.observed.any(axis=0) & ~self.complete
        return poor


def coordinates(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    components: int,
    space: subspace.Subspace | None = None,
    device: Any = None,
) -> Coordinates:
    """Return the coordinates of a cube, with the arguments of `smooth`.

    Spectra with enough observed bands are completed and projected on the principal components.
    components: how many to fit.  space: the components to use instead; None = fitted to this cube.
    device: the torch device that solves for the gaps; None = numpy and scipy.
    """
    entries = np.broadcast_to(observed, y.shape)
    y, complete, spread, excess = complete_spectra(y, entries)
    weight = whitening(sigma_y)
    if space is None:
        spectra = _spectra(y, np.flatnonzero(complete), weight)
        space = subspace.fit(spectra, np.ones(spectra.shape, bool), components)
        del spectra
    noise, membranes, gaps = (weight * sigma_y) ** 2, dict[float, Membrane](), None
    if device is not None:
        from hydiff.learn.gap_fields import GapFields

        gaps = GapFields(complete, device)
    everywhere, elsewhere = bool(noise.any()), None if gaps is None else gaps.membrane
    of_cube = (y, complete, weight, space, noise, membranes)
    z, rest = remainder(*of_cube, everywhere=everywhere, elsewhere=elsewhere)
    of_spectra = (y, entries, complete, spread, excess, weight, noise, space)
    return Coordinates(*of_spectra, z, *rest, membranes, [], {}, {}, gaps)


def smooth(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: Smooth,
    *,
    rng: np.random.Generator,
    given: Coordinates | None = None,
    at: Bools | None = None,
    device: Any = None,
) -> Iterator[Step]:
    """Fill a cube by kriging of its principal components, after regression on observed bands.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    Pixels with enough observed bands are completed from these (Gaussian regression, its residual
    kriged); other pixels are kriged from the complete ones.  The remainder of the spectra that the
    components do not hold is filled band by band, so that a narrow feature of a small object
    survives.  With a given `s` and no noise the fill is the smoothest field of that order, without
    texture.
    given: the coordinates, if already computed.  at: as in `cube_step`.  device: as in
    `coordinates`.
    """
    c = given or coordinates(y, observed, sigma_y, settings.components, settings.space, device)
    f, covariances = component_fields(c, settings)
    step = cube_step(c, f, covariances, settings.error_bars, rng, at)
    yield step if c.gaps is None else step._replace(how=c.gaps.how)


def cube_step(
    c: Coordinates,
    f: Floats,
    covariances: Sequence[Covariance],
    error_bars: bool,
    rng: np.random.Generator,
    at: Bools | None = None,
) -> Step:
    """Return the cube reconstructed from filled components f (K, H, W), as a method's only step.

    error_bars: also compute the posterior std, for fields with these covariances.
    at: mask (H, W) of the n wanted pixels, returned as arrays (C, 1, n); None = the whole cube.
    """
    sigma = None
    if error_bars:
        gaps = ~c.complete
        variance = posterior_variance(c.complete, covariances, rng, c.noise_edge)[:, gaps]
        noise, rest_var = c.noise / c.weight**2, without_noise(c.rest_var, c.noise)
        sigma = np.sqrt(without_noise(c.spread, noise[:, None, None]))
        whitened_std = np.sqrt(c.space.basis**2 @ variance + rest_var[:, None])
        sigma[:, gaps] = whitened_std / c.weight[:, None]
    if at is not None:
        bars, excess = (None if a is None else a[:, at][:, None] for a in (sigma, c.excess))
        x = spectra_at(c, f, covariances, at)[:, None]
        return Step(1, 1, x, sigma=bars, excess=excess)
    at = np.ones_like(c.complete) if c.noisy else ~c.complete
    x = c.y.copy()
    x[:, at] = spectra_at(c, f, covariances, at)
    return Step(1, 1, x, sigma=sigma, excess=c.excess)


def without_noise(variance: Any, noise: Any) -> Any:
    """Return the variance of noise-free values, from that of measurements with noise.

    Both are estimates, so a share of the variance always remains.
    """
    return np.maximum(variance - noise, LEAST * variance)


def kriged(c: Coordinates, settings: Smooth, at: Bools) -> Floats:
    """Return the fill (C, n) of the n pixels in a mask `at` (H, W)."""
    f, covariances = component_fields(c, settings)
    return spectra_at(c, f, covariances, at)


def component_fields(c: Coordinates, settings: Smooth) -> tuple[Floats, list[Covariance]]:
    """Return the filled components (K, H, W) and their covariances; with a given `s` the list of
    covariances is empty unless noise, pixels with few observed bands or error bars need them."""
    if settings.s is None:
        return fitted_fields(c)
    covariances: list[Covariance] = []
    if c.noisy or c.poor.any() or settings.error_bars:
        covariances = fit_covariances(c.z, c.complete, (min(settings.s, ORDERS[-1]),), (inf,))
    if not c.noisy:
        kinds = [(settings.s, inf, 0.0)] * len(c.z)
        return fields(c.z, c.complete, kinds, c.membranes, c.gaps), covariances
    return krige(c.z, c.complete, covariances, c.noise_edge, c.membranes, c.gaps), covariances


def fitted_fields(c: Coordinates) -> tuple[Floats, list[Covariance]]:
    """Return the kriged components (K, H, W) and their fitted covariances; do not modify them."""
    if not c.fitted:
        covariances = fit_covariances(c.z, c.complete)
        f = krige(c.z, c.complete, covariances, c.noise_edge, c.membranes, c.gaps)
        c.fitted.append((f, covariances))
    return c.fitted[0]


def spectra_at(c: Coordinates, f: Floats, covariances: Sequence[Covariance], at: Bools) -> Floats:
    """Return the spectra (C, n) of the pixels in a mask `at` (H, W), from filled components f.

    f is (K, H, W).  Pixels with a few observed bands are corrected by these, by an amount that
    depends on the covariances.
    """
    x = c.space.reconstruct(f[:, at])
    column = c.column[at]
    if (column >= 0).all():
        x += c.rest[:, column]
    else:  # complete pixels that keep their values have no column
        x[:, column >= 0] += c.rest[:, column[column >= 0]]
    few, weight = c.poor[at], c.weight[:, None]
    if not (few.any() or c.noisy or c.complete[at].any()):
        return x  # the usual case: nothing was observed in these pixels, and all weights are 1
    y, observed = c.y[:, at], c.observed[:, at]
    if few.any():
        variance = np.array([risk(fit) + fit.nugget for fit in covariances])
        covariance = (c.space.basis * variance) @ c.space.basis.T + np.diag(c.rest_var)
        x[:, few] += _correction((weight * y - x)[:, few], observed[:, few], covariance)
    x /= weight
    return x if c.noisy else np.where(observed | c.complete[at], y, x)


def whitening(sigma_y: Floats) -> Floats:
    """(C,) factors for the bands that whiten their noise: about 1 / sigma_y; 1 without noise."""
    if not sigma_y.any():
        return np.ones(len(sigma_y))
    weight: Floats = 1 / np.maximum(sigma_y, 0.05 * sigma_y.max())
    return weight


def spectra(y: Floats, observed: Bools, sigma_y: Floats, every: int = 1) -> Floats:
    """Return the whitened spectra (C, n) that `smooth` fits its components to, or every n-th one
    (`every`); y, observed and sigma_y are as in `smooth`."""
    y, complete, *_ = complete_spectra(y, np.broadcast_to(observed, y.shape))
    return _spectra(y, np.flatnonzero(complete)[::every], whitening(sigma_y))


def _spectra(y: Floats, pixels: Ints, weight: Floats) -> Floats:
    """Return the whitened spectra (C, n) of the pixels with n indices in the flattened image."""
    whitened: Floats = y.reshape(len(y), -1)[:, pixels]
    if (weight != 1).any():
        whitened *= weight[:, None]
    return whitened


def _correction(innovation: Floats, observed: Bools, covariance: Floats) -> Floats:
    """Return the correction (C, N) of pixels with few observed bands, from the difference between
    these bands and the kriged spectrum; covariance (C, C) is that of the kriging error."""
    mean = np.zeros(len(covariance))
    error = gaussian.Gaussian(mean, covariance + gaussian.ridge(covariance))
    correction, _, _ = gaussian.condition(innovation, observed, error)
    return correction


# ── error bars ───────────────────────────────────────────────────────────────────────────────────


def posterior_variance(
    complete: Bools, covariances: Sequence[Covariance], rng: np.random.Generator, noise: float
) -> Floats:
    """Return the variance (K, H, W) of f + texture at the missing pixels, 0 at complete ones.

    noise: the part of a nugget that is noise; the rest of it is texture.  The variance is computed
    for the strongest kinds of covariance only; components of other kinds get the variance of the
    strongest kind, scaled.
    """
    weight: dict[tuple[float, float, float], float] = {}
    for c in covariances:
        weight[c.kind] = weight.get(c.kind, 0.0) + risk(c)
    kinds = sorted((k for k in weight if k[2] < inf), key=lambda k: -weight[k])[:SPREAD_GROUPS]
    shapes = {kind: unit_variance(complete, *kind, rng) for kind in kinds}
    out = np.zeros((len(covariances), *complete.shape))
    for k, c in enumerate(covariances):
        if c.kind in shapes:
            out[k] = c.sill * shapes[c.kind]
        elif kinds and c.sill > 0:
            out[k] = risk(c) / risk(Covariance(*kinds[0][:2], 1.0, 0.0)) * shapes[kinds[0]]
        out[k] += without_noise(c.nugget, noise)
    return np.where(complete, 0.0, out)


def unit_variance(
    complete: Bools, s: float, reach: float, kappa: float, rng: np.random.Generator
) -> Floats:
    """Return the variance (H, W) of f given the complete pixels, for unit sill and nugget κ."""
    kappa = max(kappa, LEAST_NUGGET)
    if complete.size <= EXACT:
        return exact_variance(complete, s, reach, kappa)
    shape = (DRAWS, *complete.shape)
    eigenvalues = laplacian_eigenvalues(*complete.shape) + reach**-2
    root = np.where(eigenvalues > 0, np.where(eigenvalues > 0, eigenvalues, 1.0) ** (-s / 2), 0.0)
    f = idctn(root * rng.standard_normal(shape), axes=(1, 2), norm="ortho")
    z = f + np.sqrt(kappa) * rng.standard_normal(shape)
    error = f - field(z, complete, s, reach, kappa=kappa, tolerance=1e-2)
    variance = (error**2).mean(axis=0) * ~complete
    # a variance from few draws is noisy, but smooth along a gap: average over missing neighbours
    missing_share = ndimage.uniform_filter((~complete).astype(float), 3)
    return np.where(
        complete, 0.0, ndimage.uniform_filter(variance, 3) / np.maximum(missing_share, 1e-9)
    )


def exact_variance(complete: Bools, s: float, reach: float, kappa: float) -> Floats:
    """Return the diagonal of (M / κ + (reach⁻² − Δ)^s)⁻¹ at the missing pixels (H, W), 0 elsewhere.

    With the dense matrix factored as L Lᵀ, entry j is |L⁻¹ e_j|²: less work than its inverse.
    """
    unit = np.eye(complete.size)
    eigenvalues = laplacian_eigenvalues(*complete.shape) + reach**-2
    dense = filtered(unit.reshape(-1, *complete.shape), eigenvalues**s).reshape(unit.shape)
    dense[np.diag_indices_from(dense)] += complete.ravel() / kappa
    lower = linalg.cholesky(dense, lower=True, overwrite_a=True)
    columns = linalg.solve_triangular(lower, unit[:, ~complete.ravel()], lower=True)
    variance = np.zeros(complete.shape)
    variance[~complete] = np.einsum("ij,ij->j", columns, columns)
    return variance
