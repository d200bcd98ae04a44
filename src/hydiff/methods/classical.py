"""Classical fills with numpy and scipy: no network, no training.

Each is a generator `(y, observed, sigma_y, settings, *, rng)` over numpy arrays on the unit range:
y (C, H, W), 0 where missing; observed (H, W) if all bands share the mask, else (C, H, W);
sigma_y (C,) noise std per band.  Entries that a method cannot fill are NaN.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import ndimage
from scipy.fft import dct, dctn, idctn

from hydiff.cube import Array, Bools, Floats
from hydiff.gaps.mask import band_groups
from hydiff.maths import subspace
from hydiff.methods import components
from hydiff.methods.membranes import Membrane, inside, laplacian, membrane
from hydiff.result import Step

Fill = Callable[[Floats, Bools], Floats]  # y (C', H, W), observed (H, W) → values (C', n) of the
#                                            missing pixels, or an array that broadcasts to that

TOLERANCE = 1e-4  # relative residual at which conjugate gradients stop; 1e-3 moves MPSNR by < 0.001
MAX_ITERATIONS = 500
TENSION = 0.35  # advised by GMT's `surface` for steep topography (Smith and Wessel 1990)
THREADS = 1 if os.environ.get("OMP_NUM_THREADS") == "1" else -1  # of a transform; -1: all cores
# A length up to LARGEST_MATRIX with a prime factor above LARGEST_FACTOR is transformed by a product
# with its matrix, which takes a third of the time at length 139.  This is done with a single
# thread only: several threads that share the product may spend most of the time waiting
LARGEST_FACTOR, LARGEST_MATRIX = 61, 300


@dataclass(frozen=True)
class Plain:
    """A method without settings."""


@dataclass(frozen=True)
class SubspaceRegression:
    components: int = 24  # principal components kept

    def __post_init__(self) -> None:
        components.check(self.components, 24)


@dataclass(frozen=True)
class Spectral:
    wavelengths: tuple[float, ...] | None = None  # taken from the cube; None: band numbers


# ── spatial fills, each band separately ──────────────────────────────────────────────────────────


def spatial(fill: Fill) -> Callable[..., Iterator[Step]]:
    """Return a method that fills bands with the same mask together; noise is ignored."""

    def inpaint(
        y: Floats, observed: Bools, sigma_y: Floats, settings: Plain, *, rng: Any
    ) -> Iterator[Step]:
        """Yield a step per group of bands with the same mask."""
        return _by_group(y, observed, fill)

    return inpaint


def _by_group(y: Floats, observed: Bools, fill: Fill) -> Iterator[Step]:
    """Fill bands with the same mask together; a band without any observed pixel becomes NaN."""
    x = np.where(observed, y, np.nan)  # NaN until a band is filled: a fill may be stopped
    groups = band_groups(observed, len(y))
    for done, (bands, plane) in enumerate(groups, 1):
        if plane.any() and not plane.all():
            group = y if len(bands) == len(y) else y[bands]  # usually all bands: no copy is needed
            missing = ~plane
            for band, values in zip(bands, fill(group, plane), strict=True):
                x[band][missing] = values  # eight times faster than all bands at once
        yield Step(done, len(groups), x)


def _bandmean(y: Floats, observed: Bools) -> Floats:
    """Fill with the mean of each band: the baseline that any method must beat."""
    mean: Floats = y[:, observed].mean(axis=1)[:, None]
    return mean


def _nearest(y: Floats, observed: Bools) -> Floats:
    """Fill with the nearest observed pixel."""
    rows, cols = ndimage.distance_transform_edt(
        ~observed, return_distances=False, return_indices=True
    )
    return y[:, rows[~observed], cols[~observed]]


def _linear(y: Floats, observed: Bools) -> Floats:
    """Interpolate linearly in Delaunay triangles; outside their hull take the nearest pixel."""
    from scipy.interpolate import LinearNDInterpolator  # slow to import, and used only here

    nearest = _nearest(y, observed)
    # triangles that cover a gap have their corners on its rim, so that the rim is enough
    rim = observed & ndimage.binary_dilation(~observed, np.ones((3, 3), bool))
    points = np.argwhere(rim)
    if len(points) < 3 or np.linalg.matrix_rank(points - points[0]) < 2:
        return nearest  # all on one line: there is no triangle
    values = LinearNDInterpolator(points, y[:, rim].T)(np.argwhere(~observed)).T
    return np.where(np.isnan(values), nearest, values)


def _idw(y: Floats, observed: Bools) -> Floats:
    """Fill by inverse-distance weights in four directions: GDAL's fillnodata, in float32."""
    from rasterio.fill import fillnodata

    reach = float(np.hypot(*observed.shape))
    filled = (
        fillnodata(band.astype(np.float32), observed, max_search_distance=reach) for band in y
    )
    return np.stack([band[~observed] for band in filled])


def _harmonic(y: Floats, observed: Bools) -> Floats:
    """Δf = 0 in the gaps: the membrane through the observed pixels."""
    return inside(y, observed, laplacian(*observed.shape)[~observed.ravel()])


def _biharmonic(y: Floats, observed: Bools) -> Floats:
    """Δ²f = 0 in the gaps: the thin plate through the observed pixels."""
    matrix = laplacian(*observed.shape)
    return inside(y, observed, matrix[~observed.ravel()] @ matrix)


def _tension(y: Floats, observed: Bools) -> Floats:
    """(1 − t) Δ²f = t Δf in the gaps, t = TENSION: a thin plate under tension."""
    matrix = laplacian(*observed.shape)
    rows = matrix[~observed.ravel()]
    return inside(y, observed, (1 - TENSION) * (rows @ matrix) + TENSION * rows)


bandmean, nearest, linear = spatial(_bandmean), spatial(_nearest), spatial(_linear)
idw, harmonic, biharmonic = spatial(_idw), spatial(_harmonic), spatial(_biharmonic)
tension = spatial(_tension)


# ── spectral fills, each pixel separately ────────────────────────────────────────────────────────


def spectral(
    y: Floats, observed: Bools, sigma_y: Floats, settings: Spectral, *, rng: Any
) -> Iterator[Step]:
    """Interpolate linearly along the bands of a pixel, constant beyond the outer observed bands."""
    entries = np.broadcast_to(observed, y.shape)
    C = len(y)
    at = np.arange(C, dtype=float) if settings.wavelengths is None else settings.wavelengths
    order = np.argsort(np.asarray(at), kind="stable")
    at, y_sorted, entries = np.asarray(at, dtype=float)[order], y[order], entries[order]

    index = np.arange(C)[:, None, None]
    before = np.maximum.accumulate(np.where(entries, index, -1), axis=0)
    after = np.minimum.accumulate(np.where(entries, index, C)[::-1], axis=0)[::-1]
    unobserved = (before < 0) & (after == C)
    before, after = np.where(before < 0, after, before), np.where(after == C, before, after)
    before, after = np.clip(before, 0, C - 1), np.clip(after, 0, C - 1)

    gap = at[after] - at[before]
    share = np.where(gap > 0, (at[:, None, None] - at[before]) / np.where(gap > 0, gap, 1), 0.0)
    low, high = (np.take_along_axis(y_sorted, i, axis=0) for i in (before, after))
    x = np.empty_like(y)
    x[order] = np.where(unobserved, np.nan, np.where(entries, y_sorted, low + share * (high - low)))
    yield Step(1, 1, x)


def subspace_regression(
    y: Floats, observed: Bools, sigma_y: Floats, settings: SubspaceRegression, *, rng: Any
) -> Iterator[Step]:
    """Regression of a pixel's missing bands on its observed ones, in the cube's subspace."""
    entries = np.broadcast_to(observed, y.shape).reshape(len(y), -1)
    flat = y.reshape(len(y), -1)
    space = subspace.fit(flat, entries, settings.components)
    x = flat.copy()
    partial = entries.any(axis=0) & ~entries.all(axis=0)
    z, _ = subspace.regress(flat[:, partial], entries[:, partial], space)
    x[:, partial] = np.where(entries[:, partial], flat[:, partial], space.reconstruct(z))
    x[:, ~entries.any(axis=0)] = np.nan
    yield Step(1, 1, x.reshape(y.shape))


# ── the smoothest field of order s through observed pixels, and its parts ────────────────────────


def field(
    z: Floats,
    complete: Bools,
    s: float,
    reach: float = np.inf,
    given: Membrane | None = None,
    *,
    kappa: float = 0.0,
    tolerance: float = TOLERANCE,
) -> Floats:
    """Fill z (K, H, W) outside the complete pixels (H, W) by the smoothest field of order s.

    With a finite reach (px), −Δ below stands for reach⁻² − Δ: far from data the field returns to 0.
    With κ > 0 the complete pixels have white texture, and the field minimises
    ‖complete (f − z)‖² + κ ‖(−Δ)^{s/2} f‖², at the complete pixels too.  This f is the
    interpolation that is smoothest in the sense of ψ = (−Δ)^s / (1 + κ (−Δ)^s), multiplied by
    1 / (1 + κ (−Δ)^s).
    given: the membrane of this mask and reach, if already computed.
    """
    f = (
        z.copy()
        if complete.all()
        else _interpolation(z, complete, s, reach, given, kappa, tolerance)
    )
    return f if kappa == 0 else filtered(f, 1 / (1 + kappa * _power(complete.shape, reach, s)))


def _interpolation(
    z: Floats,
    complete: Bools,
    s: float,
    reach: float,
    surface: Membrane | None,
    kappa: float,
    tolerance: float,
) -> Floats:
    """Return z with its missing pixels chosen so that zᵀ ψ z is least, ψ as in `field`.

    Conjugate gradients on the missing pixels with A = R ψ Rᵀ, where R selects the missing pixels
    and ψ is applied by DCT.  The preconditioner is L⁻¹ R (−Δ)² ψ⁻¹ Rᵀ L⁻¹ with L = R (−Δ) Rᵀ, which
    is factorised once.  It is exact at s = 1, κ = 0 and takes account of the edges of the gaps, so
    that a handful of iterations suffice (docs/decisions/0005).
    """
    surface = surface or membrane(complete, reach)
    start, solve = z.copy(), surface.solve
    if s == 2 and kappa == 0:  # here the equations are sparse
        rows = surface.matrix[~complete.ravel()]
        start[:, ~complete] = inside(z, complete, rows @ surface.matrix)
        return start
    start[:, ~complete] = surface.inside(z[:, surface.rim.pixels])  # the harmonic fill
    if s == 1 and kappa == 0:
        return start
    power, inverse, square = (_power(complete.shape, reach, n) for n in (s, 2 - s, 2))
    psi = power / (1 + kappa * power)
    # single precision is enough for a preconditioner
    inner_filter = (inverse + kappa * square).astype(np.float32)
    missing, at = ~complete, np.flatnonzero(~complete)

    def embedded(v: Floats, weight: Array) -> Floats:
        """Return R F Rᵀ v (K, n), where F multiplies the cosine spectrum by `weight`."""
        f = np.zeros(z.shape, weight.dtype)
        for plane, values in zip(f, v, strict=True):
            plane[missing] = values  # eight times faster than all planes at once
        return filtered(f, weight).reshape(len(v), -1).take(at, axis=1)

    correction = conjugate_gradients(
        lambda v: embedded(v, psi),
        -filtered(start, psi)[:, missing],
        lambda r: solve(embedded(solve(r), inner_filter).astype(np.float64)),
        tolerance,
    )
    for plane, values in zip(start, correction, strict=True):
        plane[missing] += values
    return start


@lru_cache(maxsize=8)
def _power(shape: tuple[int, int], reach: float, s: float) -> Floats:
    """Return the eigenvalues (rows, cols) of (reach⁻² − Δ)^s; cached: do not modify."""
    power: Floats = (laplacian_eigenvalues(*shape) + reach**-2) ** s
    return power


def conjugate_gradients(
    A: Callable[[Floats], Floats],
    right: Floats,
    precondition: Callable[[Floats], Floats],
    tolerance: float = TOLERANCE,
) -> Floats:
    """Solve A x = right for K systems at once, stacked along the first axis."""

    def dot(a: Floats, b: Floats) -> Floats:
        """Return the inner product of each system, with axes of length 1 kept."""
        axes = tuple(range(1, a.ndim))
        product: Floats = (a * b).sum(axis=axes, keepdims=True)
        return product

    x, r = np.zeros_like(right), right.copy()
    q = precondition(r)
    p, rq = q.copy(), dot(r, q)
    target = tolerance**2 * rq
    for _ in range(MAX_ITERATIONS):
        Ap = A(p)
        curvature = dot(p, Ap)
        step = np.where(curvature > 0, rq / np.where(curvature > 0, curvature, 1), 0.0)
        x += step * p
        r -= step * Ap
        q = precondition(r)
        last, rq = rq, dot(r, q)
        if (rq <= target).all():
            break
        p = q + np.where(last > 0, rq / np.where(last > 0, last, 1), 0.0) * p
    return x


def laplacian_eigenvalues(rows: int, cols: int) -> Floats:
    """Return the eigenvalues (rows, cols) of −Δ with reflecting borders, on the grid of the DCT."""
    down = 4 * np.sin(np.pi * np.arange(rows) / (2 * rows)) ** 2
    across = 4 * np.sin(np.pi * np.arange(cols) / (2 * cols)) ** 2
    both: Floats = down[:, None] + across
    return both


def filtered(f: Array, weight: Array) -> Array:
    """Multiply the DCT of each component (K, H, W) by a weight (H, W); the precision is kept."""
    spectrum = _cosines(f, dctn)
    spectrum *= weight
    return _cosines(spectrum, idctn)


def _cosines(f: Array, transform: Callable[..., Array]) -> Array:
    """Apply the cosine transform (`dctn`) or its inverse (`idctn`) to each component (K, H, W).

    Along an axis whose length has a large prime factor, a product with the matrix is faster.
    """
    fast = tuple(axis for axis in (1, 2) if not _is_awkward(f.shape[axis]))
    over = transform is idctn  # the spectrum is no longer needed, and fresh memory takes time
    out = transform(f, axes=fast, norm="ortho", workers=THREADS, overwrite_x=over) if fast else f
    for axis in {1, 2}.difference(fast):
        matrix = _cosine_matrix(f.shape[axis], f.dtype.str)
        matrix = matrix if transform is dctn else matrix.T
        out = matrix @ out if axis == 1 else out @ matrix.T
    return out


@lru_cache(maxsize=64)
def _is_awkward(n: int) -> bool:
    """Whether a transform of this length takes longer than a product with its matrix."""
    quotient = n
    for factor in range(2, LARGEST_FACTOR + 1):
        while quotient % factor == 0:
            quotient //= factor
    return quotient > 1 and n <= LARGEST_MATRIX and THREADS == 1


@lru_cache(maxsize=8)
def _cosine_matrix(n: int, dtype: str) -> Array:
    """Return the matrix (n, n) of the DCT with norm "ortho"; cached: do not modify."""
    return dct(np.eye(n), axis=0, norm="ortho").astype(dtype)
