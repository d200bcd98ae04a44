"""Draws of what the kriging of fields is off by, the same whatever part of a scene is drawn.

e = u − F(u) for a field u drawn from its covariance and F its kriging from the complete pixels.
With Q the precision of the field and κ the variance of noise at the complete pixels M, e can be
drawn without u: (M / κ + Q) e = M w / √κ + Q^½ v, with v and w white.  Q^½ is a difference of
neighbours, so that e depends on the noise nearby alone: parts of a scene agree where they overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from hydiff.cube import Bools, Floats
from hydiff.maths.variogram import LEAST_NUGGET, Covariance, Kind
from hydiff.methods.classical import filtered, laplacian_eigenvalues
from hydiff.methods.membranes import factor_of, laplacian
from hydiff.methods.smooth import EXACT, exact_variance

Systems = dict[Kind, Callable[[Floats], Floats]]  # their solvers, for one mask
Window = tuple[slice, slice]  # rows and columns of a scene

BLOCK = 16  # px: white noise is made in blocks of the scene's grid, each from its own key
POOL = 1 << 20  # normals of which spectra of white noise are parts
PILOTS = 32  # draws from which the variance is taken where it is not computed
AROUND = 7  # px over which it is averaged
PILOT = 9  # stream of white noise


def white(
    seed: int, key: tuple[int, ...], planes: int, window: Window, at: Bools | None = None
) -> Floats:
    """(planes, rows, cols) independent standard normals in a window of a scene.

    An entry depends on seed, key, plane and its place in the scene, not on the window.
    at: (rows, cols) where they are needed; None = everywhere.
    """
    out = np.zeros((planes, *(w.stop - w.start for w in window)))
    for rng, outer, inner in _blocks(seed, key, window, at):
        out[:, *outer] = rng.standard_normal((planes, BLOCK, BLOCK))[:, *inner]
    return out


def white_spectra(
    seed: int, key: tuple[int, ...], bands: int, window: Window, at: Bools
) -> NDArray[np.float32]:
    """(bands, n) standard normals for the n pixels of a window where they are needed (rows, cols).

    Of many bands they would be most of the work, so they are drawn once: each pixel has another
    part of one long row of normals.  Parts of two pixels hardly ever overlap.
    """
    start = np.zeros(at.shape, np.intp)
    for rng, outer, inner in _blocks(seed, key, window, at):
        start[*outer] = rng.integers(POOL, size=(BLOCK, BLOCK))[*inner]
    parts = np.lib.stride_tricks.sliding_window_view(_pool(bands), bands)
    return parts[start[at]].T


@lru_cache(maxsize=1)
def _pool(more: int) -> NDArray[np.float32]:
    """POOL normals with mean 0 and variance 1, and so many of the first again at their end."""
    normals = np.random.default_rng(0).standard_normal(POOL, np.float32)
    normals = (normals - normals.mean()) / normals.std()
    return np.resize(normals, POOL + more)


def _blocks(
    seed: int, key: tuple[int, ...], window: Window, at: Bools | None
) -> Iterator[tuple[np.random.Generator, list[slice], list[slice]]]:
    """The blocks of a scene that a window meets: a generator of each, and the place of what they
    share in the window and in the block."""
    spans = [range(w.start // BLOCK, -(-w.stop // BLOCK)) for w in window]
    for block in product(*spans):
        low = [max(number * BLOCK, w.start) for number, w in zip(block, window, strict=True)]
        high = [min((number + 1) * BLOCK, w.stop) for number, w in zip(block, window, strict=True)]
        outer = _slices(low, high, [w.start for w in window])
        if at is not None and not at[*outer].any():
            continue
        own = np.random.SeedSequence(seed, spawn_key=(*key, *block))
        rng = np.random.Generator(np.random.SFC64(own))  # the fastest
        yield rng, outer, _slices(low, high, [number * BLOCK for number in block])


def _slices(low: Sequence[int], high: Sequence[int], origin: Sequence[int]) -> list[slice]:
    return [slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True)]


def kriging_error(
    complete: Bools, covariances: Sequence[Covariance], systems: Systems | None = None
) -> Callable[[Floats, Floats], Floats]:
    """What turns white noise v and w, both (K, H, W), into the error (K, H, W) of K fields that
    are kriged from the complete pixels (H, W); texture is not part of it.

    systems: those of this mask that are at hand; what is made is added to them.
    """
    kinds = dict.fromkeys(c.kind for c in covariances if c.kind[2] < np.inf)
    eigenvalues = laplacian_eigenvalues(*complete.shape)
    systems = {} if systems is None else systems
    for kind in kinds:
        if kind not in systems:
            systems[kind] = kriging_system(complete, *floored(kind))
    sill = np.sqrt([c.sill for c in covariances])[:, None, None]

    def draw(v: Floats, w: Floats) -> Floats:
        e = np.zeros_like(v)
        for kind in kinds:
            members = [k for k, c in enumerate(covariances) if c.kind == kind]
            s, reach, kappa = floored(kind)
            difference = filtered(v[members], (eigenvalues + reach**-2) ** (s / 2))
            e[members] = systems[kind](np.sqrt(kappa) * complete * w[members] + kappa * difference)
        return sill * e

    return draw


def kriging_system(
    complete: Bools, s: float, reach: float, kappa: float
) -> Callable[[Floats], Floats]:
    """Solves (M + κ (reach⁻² − Δ)^s) f = r for many r (K, H, W), M = diag(complete); s is 1 or 2,
    for which the matrix is sparse."""
    membrane = laplacian(*complete.shape) + reach**-2 * sparse.eye_array(complete.size)
    power = membrane if s == 1 else membrane @ membrane
    matrix = sparse.diags_array(complete.ravel().astype(float)) + kappa * power
    solve = factor_of(matrix)
    return lambda r: solve(r.reshape(len(r), -1)).reshape(r.shape)


def kriging_variance(
    complete: Bools,
    covariances: Sequence[Covariance],
    window: Window,
    systems: Systems | None = None,
) -> Floats:
    """(K, H, W) variance of the draws of `kriging_error` at the pixels that are not complete.

    window: where the complete pixels (H, W) lie in the scene.  systems: as there.
    """
    kinds = dict.fromkeys(c.kind for c in covariances if c.kind[2] < np.inf)
    shapes = {kind: _unit_variance(complete, kind, window, systems) for kind in kinds}
    out = np.zeros((len(covariances), *complete.shape))
    for k, c in enumerate(covariances):
        if c.kind in shapes:
            out[k] = c.sill * shapes[c.kind]
    return out


def _unit_variance(complete: Bools, kind: Kind, window: Window, systems: Systems | None) -> Floats:
    """(H, W) of one field with unit sill."""
    if complete.size <= EXACT:
        return exact_variance(complete, *floored(kind))
    s, reach, kappa = floored(kind)
    unit = [Covariance(s, reach, 1.0, kappa)] * PILOTS
    v, w = (white(0, (PILOT, stream), PILOTS, window) for stream in (0, 1))
    variance = (kriging_error(complete, unit, systems)(v, w) ** 2).mean(axis=0)
    # few draws are noisy: beside what the distance to the data explains, neighbours are alike
    distance = np.rint(ndimage.distance_transform_edt(~complete)).astype(int)
    usual = np.bincount(distance.ravel(), variance.ravel()) / np.maximum(
        np.bincount(distance.ravel()), 1
    )
    usual[0] = 0.0
    expected = np.maximum(usual[distance], np.finfo(float).tiny)
    ratio = np.divide(variance, expected, out=np.zeros_like(variance), where=~complete)
    ratio = ndimage.uniform_filter(ratio, AROUND)
    near = ndimage.uniform_filter((~complete).astype(float), AROUND)
    return np.where(complete, 0.0, expected * ratio / np.maximum(near, 1e-9))


def floored(kind: Kind) -> Kind:
    """With a nugget at which the system is well posed."""
    s, reach, kappa = kind
    return s, reach, max(kappa, LEAST_NUGGET)
