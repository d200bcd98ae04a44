"""Draws of the error of kriged fields, which are the same for any part of a scene.

e = u − F(u) for a field u drawn from its covariance and F its kriging from the complete pixels.
With Q the precision of the field and κ the variance of noise at the complete pixels M, e can be
drawn without u: (M / κ + Q) e = M w / √κ + Q^½ v, with v and w white noise.  Q^½ takes differences
of neighbours, so e depends only on the noise nearby, and parts of a scene agree where they overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from types import EllipsisType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from hydiff.cube import Array, Bools, Floats, Ints
from hydiff.maths.variogram import LEAST_NUGGET, Covariance, Kind
from hydiff.methods.classical import filtered, laplacian_eigenvalues
from hydiff.methods.membranes import factor_of, laplacian
from hydiff.methods.smooth import EXACT, exact_variance
from hydiff.uncertainty.windows import Window

BLOCK = 32  # px: white noise is drawn in blocks of the scene's grid, each with its own key
POOL = 1 << 20  # length of the row of normals that white noise is taken from
BEHIND = 1e-3  # relative influence of data below which they are ignored
PILOTS = 32  # draws from which the variance is estimated where it is not computed exactly
AROUND = 7  # px: side of the window over which this variance is averaged
PILOT = 9  # stream of white noise for these draws


def white(
    seed: int, key: tuple[int, ...], planes: int, window: Window, at: Bools
) -> NDArray[np.float32]:
    """(planes, n) standard normals for the n pixels `at` (rows, cols) of a window.

    Those of a pixel depend on seed, key, planes and its place in the scene, not on the window.
    Drawing them for each pixel would take most of the time.  So one long row of normals is drawn
    once, and each pixel gets a random part of it; parts of two pixels hardly ever overlap.
    """
    parts = np.lib.stride_tricks.sliding_window_view(_pool(), planes)
    start = np.zeros(at.shape, np.intp)
    for rng, outer, inner in _blocks(seed, key, window, at):
        start[*outer] = rng.integers(len(parts), size=(BLOCK, BLOCK))[*inner]
    return np.ascontiguousarray(parts[start[at]].T)


def white_planes(
    seed: int, key: tuple[int, ...], planes: int, window: Window
) -> NDArray[np.float32]:
    """(planes, rows, cols) `white` noise for all pixels of a window."""
    shape = tuple(w.stop - w.start for w in window)
    return white(seed, key, planes, window, np.ones(shape, bool)).reshape(planes, *shape)


@lru_cache(maxsize=1)
def _pool() -> NDArray[np.float32]:
    """POOL normals with mean 0 and variance 1."""
    normals = np.random.default_rng(0).standard_normal(POOL, np.float32)
    scaled: NDArray[np.float32] = (normals - normals.mean()) / normals.std()
    return scaled


def _blocks(
    seed: int, key: tuple[int, ...], window: Window, at: Bools
) -> Iterator[tuple[np.random.Generator, list[slice], list[slice]]]:
    """Yield the blocks of a scene that overlap a window at pixels `at`: the random generator of the
    block, and the slices of the overlap in the window and in the block."""
    spans = [range(w.start // BLOCK, -(-w.stop // BLOCK)) for w in window]
    for block in product(*spans):
        low = [max(number * BLOCK, w.start) for number, w in zip(block, window, strict=True)]
        high = [min((number + 1) * BLOCK, w.stop) for number, w in zip(block, window, strict=True)]
        outer = _slices(low, high, [w.start for w in window])
        if not at[*outer].any():
            continue
        sequence = np.random.SeedSequence(seed, spawn_key=(*key, *block))
        rng = np.random.Generator(np.random.SFC64(sequence))  # the fastest bit generator
        yield rng, outer, _slices(low, high, [number * BLOCK for number in block])


def _slices(low: Sequence[int], high: Sequence[int], origin: Sequence[int]) -> list[slice]:
    """Return the slices from low to high, counted from the origin, of each axis."""
    return [slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True)]


class System(NamedTuple):
    """(M + κ (reach⁻² − Δ)^s) f = r near the gaps, M = diag(complete)."""

    near: Ints  # (n,) numbers of the pixels of the system in the flat grid
    solve: Callable[[Floats], Floats]  # right sides (K, n) → solutions (K, n)
    coupling: sparse.csr_array  # (n, pixels) coefficients of their equations
    damping: Floats  # (H, W) factors of the cosines that solve the system without gaps


class Systems:
    """The systems of the kriging from the complete pixels (H, W), one for each kind of covariance,
    each made at its first use.

    Data screen: data behind a few complete pixels do not influence a gap, so the systems contain
    only pixels near the gaps.  Far from any gap a cosine transform solves them.
    everywhere: whether solutions are needed there, too.
    """

    def __init__(self, complete: Bools, everywhere: bool = False) -> None:
        self.complete, self.everywhere = complete, everywhere
        has_gaps = bool((~complete).any())
        self._far = ndimage.distance_transform_edt(complete) if has_gaps else np.inf * complete
        self._made: dict[Kind, System] = {}

    def solve(self, kind: Kind, right: Array) -> Floats:
        """Solve (M + κ (reach⁻² − Δ)^s) f = right for right sides (K, H, W); s is 1 or 2, for which
        the matrix is sparse.  f is 0 far from the gaps unless `everywhere`."""
        if kind not in self._made:
            self._made[kind] = self._system(*kind)
        near, solve, coupling, damping = self._made[kind]
        f = np.zeros((len(right), self.complete.size))
        right_near = right.reshape(f.shape)[:, near].astype(np.float64, copy=False)
        if self.everywhere:
            f[:] = filtered(right, damping.astype(right.dtype)).reshape(f.shape)
            f[:, near] = 0.0
            right_near = right_near - (coupling @ f.T).T
        f[:, near] = solve(right_near)
        return f.reshape(right.shape)

    def _system(self, s: float, reach: float, kappa: float) -> System:
        """Return the system of a kind of covariance: s, reach (px), κ."""
        size, near = self.complete.size, (self._far <= reached(s, reach, kappa)).ravel()
        membrane = laplacian(*self.complete.shape) + reach**-2 * sparse.eye_array(size)
        power = membrane if s == 1 else membrane @ membrane
        matrix = sparse.csr_array(
            sparse.diags_array(self.complete.ravel().astype(float)) + kappa * power
        )
        eigenvalues = laplacian_eigenvalues(*self.complete.shape) + reach**-2
        damping = 1 / (1 + kappa * eigenvalues**s)
        return System(np.flatnonzero(near), factor_of(matrix[near][:, near]), matrix[near], damping)


def reached(s: float, reach: float, kappa: float) -> int:
    """Return the number of complete pixels behind which the influence of data is below BEHIND, for
    s = 1 or 2.

    Across them (1 + κ (reach⁻² − Δ)^s) f = 0, so f decreases by the factor λ per pixel, where
    λ + 1/λ − 2 = reach⁻² − κ^(−1/s) e^(iπ/s).
    """
    half = 1 + (reach**-2 - kappa ** (-1 / s) * np.exp(1j * np.pi / s)) / 2
    fall = min(abs(half - np.sqrt(half**2 - 1)), abs(half + np.sqrt(half**2 - 1)))
    return math.ceil(math.log(BEHIND) / math.log(fall))


def kriging_error(
    systems: Systems, covariances: Sequence[Covariance], at: Bools | EllipsisType = ...
) -> Callable[[Array, Array], Floats]:
    """Return a function of white noise v and w, both (K, H, W), that draws the error (K, H, W) of K
    fields kriged from the complete pixels, without texture.

    at: mask (H, W) of n pixels, for errors (K, n) of these alone.
    """
    complete = systems.complete
    kinds = dict.fromkeys(c.kind for c in covariances if c.kind[2] < np.inf)

    def draw(v: Array, w: Array) -> Floats:
        e = np.zeros((len(v), *complete[at].shape))
        for kind in kinds:
            members = [k for k, c in enumerate(covariances) if c.kind == kind]
            s, reach, kappa = floored(kind)
            half = np.sqrt(kappa, dtype=v.dtype)
            right = half * _root(v[members], s, reach)
            np.add(right, w[members], out=right, where=complete)
            right *= half
            sill = [covariances[k].sill for k in members]
            e[members] = (systems.solve(floored(kind), right)[:, at].T * np.sqrt(sill)).T
        return e

    return draw


def _root(v: Array, s: float, reach: float) -> Array:
    """Return (reach⁻² − Δ)^(s/2) v for planes v (K, H, W), reflecting borders and s = 1 or 2."""
    if s == 1:
        eigenvalues = laplacian_eigenvalues(*v.shape[1:])
        return filtered(v, np.sqrt(eigenvalues + reach**-2).astype(v.dtype))
    result: Array = v * np.asarray(reach**-2, v.dtype)
    for first, second in ((np.s_[:, 1:], np.s_[:, :-1]), (np.s_[..., 1:], np.s_[..., :-1])):
        step = v[first] - v[second]
        result[first] += step
        result[second] -= step
    return result


def kriging_variance(systems: Systems, covariances: Sequence[Covariance], window: Window) -> Floats:
    """(K, H, W) variance of the draws of `kriging_error` at the pixels that are not complete; 0 at
    the others.

    window: the place of the grid (H, W) in the scene.
    """
    kinds = dict.fromkeys(c.kind for c in covariances if c.kind[2] < np.inf)
    shapes = {kind: _unit_variance(systems, kind, window) for kind in kinds}
    variance = np.zeros((len(covariances), *systems.complete.shape))
    for k, c in enumerate(covariances):
        if c.kind in shapes:
            variance[k] = c.sill * shapes[c.kind]
    return variance


def _unit_variance(systems: Systems, kind: Kind, window: Window) -> Floats:
    """(H, W) `kriging_variance` of a field with unit sill."""
    complete = systems.complete
    if complete.size <= EXACT:
        return exact_variance(complete, *floored(kind))
    s, reach, kappa = floored(kind)
    unit = [Covariance(s, reach, 1.0, kappa)] * PILOTS
    v, w = np.split(white_planes(0, (PILOT,), 2 * PILOTS, window), 2)
    variance = (kriging_error(systems, unit)(v, w) ** 2).mean(axis=0)
    # a variance from few draws is noisy: relative to the mean at its distance, average it nearby
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
    """Return the kind with a nugget that is large enough for a well-posed system."""
    s, reach, kappa = kind
    return s, reach, max(kappa, LEAST_NUGGET)
