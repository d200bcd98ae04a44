"""What the bands of references say about planes of the cube: y ≈ B f + b, over what both observe.

Letters: y (K, H, W) bands or components, features f (F, H, W) made of the references' bands,
B (K, F).  A prediction is NaN where no reference has all its bands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import linalg, ndimage
from scipy.spatial import KDTree

from hydiff.cube import Bools, Floats, Ints
from hydiff.maths import subspace
from hydiff.reference.shift import filled_in

RIDGE = 1e-2  # of the features' mean variance; the same for levels and steps
MOST = 16  # components that stand for the bands of a reference
ENOUGH = 4  # pixels for each feature, at least
GLOBAL = 0.05  # how much the slope of all pixels weighs in a local one, in its variance there
ALIKE = 6  # components in which pixels are compared
APART, APART_ALIKE = 12.0, 30.0  # px that count like a standard deviation of the strongest one
ROBUST_ROUNDS = 4  # of weights and regression in turn
USUAL = 1.5  # medians of the residuals beyond which a pixel counts less
NEAREST = 0.05  # in that unit: no two pixels are nearer
COMPANY = 10  # observed pixels that must look like one for it to be familiar
FAMILIAR, LOOKED = 0.999, 2000  # quantile of how far these are apart, over about so many pixels
BLOCKS = 4  # in rows and in columns, left out of a regression in turn
ROUNDING = 1e-9  # of all variance: what is less is nothing
NEARLY = 0.5  # neighbours may be farther than the nearest by this share


@dataclass(frozen=True, eq=False)
class ReferencePlanes:
    """A reference on the grid of a cube."""

    values: Floats  # (R, H, W), anything where it is not observed
    observed: Bools  # (H, W) pixels with all its bands


def predict(
    y: Floats,
    complete: Bools,
    references: Sequence[ReferencePlanes],
    *,
    context: int = 1,
    steps: bool = False,
    robust: bool = False,
    local: float = 0.0,
    similar: int = 0,
    alike: int = 0,
    shared: dict[Any, Any] | None = None,
) -> Floats:
    """(K, H, W) planes as the references have them; complete (H, W): where all of y is known.

    context: pixels around that take part, so that a shift by part of a pixel and another point
    spread are part of the regression.
    steps: fitted to differences between neighbours instead of levels: what kriging cannot know.
    robust: pixels that have changed since count less, the more they have.
    local: px, standard deviation of a window over which gain and offset vary (haze, light).
    similar: the mean residual of so many observed pixels that look alike in the references, and are
    near, is added (after Chen et al. 2011, doi:10.1016/j.rse.2010.12.010).
    alike: instead of a regression, the mean of so many such pixels themselves.
    shared: what models of the same planes have in common, added to when it is first asked for.

    Whatever the model, a plane that has nothing in common with the references is its mean.
    """
    out, shared = np.full(y.shape, np.nan), {} if shared is None else shared
    for members, pixels in _patterns(references):
        together = tuple(references[i] for i in members)
        if (key := (context, together)) not in shared:
            shared[key] = Common.of(y, complete, together, context)
        common: Common | None = shared[key]
        if common is None:
            continue
        both, own = common.both, common.own
        if alike:
            p = _of_similar(y, both, own, alike, APART_ALIKE)
        else:
            p = regression(y, both, common.f, common.weight(robust), steps)
        if local:
            p = _local(y, both, p, local)
        if similar:
            p = p + _of_similar(y - p, both, own, similar, APART)
        mean = y[:, both].mean(axis=1)[:, None]
        out[:, pixels] = mean + common.confirmed(robust) @ (p[:, pixels] - mean)
    return out


@dataclass(frozen=True, eq=False)
class Common:
    """What models of the same planes y (K, H, W) by the same references share."""

    y: Floats
    both: Bools  # (H, W) pixels that the planes and all these references have
    own: Floats  # (F, H, W) features of each pixel
    f: Floats  # (F, H, W) with those of its neighbours

    @classmethod
    def of(
        cls, y: Floats, complete: Bools, references: tuple[ReferencePlanes, ...], context: int
    ) -> Common | None:
        """None where too few pixels have both."""
        both = complete & np.logical_and.reduce([one.observed for one in references])
        own = _features(references, both.tobytes())
        f = _with_neighbours(own, context)
        return cls(y, both, own, f) if both.sum() >= ENOUGH * len(f) else None

    def weight(self, robust: bool) -> Floats:
        """(H, W) how much each pixel counts in a regression."""
        return self._robust_weight if robust else np.ones(self.both.shape)

    def confirmed(self, robust: bool) -> Floats:
        """(K, K) `confirmed` with these weights."""
        return self._confirmed_robust if robust else self._confirmed

    @cached_property
    def _robust_weight(self) -> Floats:
        return _weights(self.y, self.both, self.f)

    @cached_property
    def _confirmed(self) -> Floats:
        return confirmed(self.y, self.both, self.f, self.weight(False))

    @cached_property
    def _confirmed_robust(self) -> Floats:
        return confirmed(self.y, self.both, self.f, self._robust_weight)


def confirmed(y: Floats, complete: Bools, f: Floats, weight: Floats) -> Floats:
    """(K, K) what to keep of a prediction, less its mean: the planes of which a regression on the
    features leaves less, in blocks left out of it, than there is; and of these all but the mixtures
    of which it leaves more.

    What has nothing in common with the references varies as smoothly as they do, and many features
    fit it by chance; in the gaps that would be worse than nothing.  A narrow absorption is part of
    several components that the references show otherwise: it is found among their mixtures.
    """
    left, every = _left_out(y, complete, f, weight)
    every += max(ROUNDING * np.trace(every), 1e-300) * np.eye(len(y))
    kept: Floats = np.zeros(every.shape)
    some = left.diagonal() <= every.diagonal()
    if some.any():
        own = np.ix_(some, some)
        ratio, mixtures = linalg.eigh(left[own], every[own])
        lost = mixtures[:, ratio > 1]
        kept[own] = np.eye(int(some.sum())) - every[own] @ lost @ lost.T
    return kept


def _left_out(y: Floats, complete: Bools, f: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(K, K) second moments of what a regression leaves of the planes in blocks of pixels that are
    left out of it in turn, and of the planes themselves."""
    rows, cols = (np.arange(n) * BLOCKS // n for n in complete.shape)
    block = (rows[:, None] * BLOCKS + cols)[complete]
    pixels = np.flatnonzero(complete)[np.argsort(block, kind="stable")]  # a block after the other
    w = weight.ravel()[pixels] / weight[complete].sum()
    X, Y = (_columns(a, pixels) for a in (f, y))
    X -= (X @ w)[:, None]
    Y -= (Y @ w)[:, None]
    ends = np.cumsum(np.bincount(block))
    parts = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    grams = [((X[:, at] * w[at]) @ X[:, at].T, (X[:, at] * w[at]) @ Y[:, at].T) for at in parts]
    A, C = (np.sum(own, axis=0) for own in zip(*grams, strict=True))
    ridge = RIDGE * max(np.trace(A) / len(A), 1e-300) * np.eye(len(A))
    left = np.zeros((len(y), len(y)))
    for at, (own, with_y) in zip(parts, grams, strict=True):
        off = Y[:, at] - np.linalg.solve(A - own + ridge, C - with_y).T @ X[:, at]
        left += (off * w[at]) @ off.T
    return left, (Y * w) @ Y.T


def _columns(planes: Floats, pixels: Ints) -> Floats:
    """(N, n) planes (N, H, W) at some pixels, by their flat numbers; a copy."""
    return np.take(planes.reshape(len(planes), -1), pixels, axis=1)


@lru_cache(maxsize=8)
def _features(references: tuple[ReferencePlanes, ...], complete: bytes) -> Floats:
    """(F, H, W) of each pixel, not to be changed; complete: the bytes of a mask (H, W).

    Kept, for all models of the same pixels begin with them.
    """
    mask = np.frombuffer(complete, bool).reshape(references[0].observed.shape)
    return _familiar(np.concatenate([components(one) for one in references]), mask)


def _with_neighbours(own: Floats, context: int) -> Floats:
    """(F, H, W) features of each pixel, and of those up to `context` away; its own first."""
    rows, cols = own.shape[1:]
    padded = np.pad(own, ((0, 0), (context, context), (context, context)), mode="edge")
    offsets = [(i, j) for i in range(2 * context + 1) for j in range(2 * context + 1)]
    offsets.sort(key=lambda at: max(abs(at[0] - context), abs(at[1] - context)))
    return np.concatenate([padded[:, i : i + rows, j : j + cols] for i, j in offsets])


def _familiar(f: Floats, complete: Bools) -> Floats:
    """Features (F, H, W) without what the cube hardly shows: a pixel that is farther from the
    complete ones than these are from one another is brought near to those that are most alike.

    What a flare or a cloud of the reference would be in the cube cannot be said, and a regression
    would extrapolate it.
    """
    if complete.sum() <= ENOUGH * COMPANY or complete.all():
        return f
    where = _looks(f, complete)
    inside, outside = where[:, complete].T, where[:, ~complete].T
    tree = KDTree(inside)
    usual, _ = tree.query(inside[:: -(-len(inside) // LOOKED)], [COMPANY + 1])  # itself comes first
    far, index = (np.asarray(part) for part in tree.query(outside, COMPANY, eps=NEARLY))
    share = np.quantile(usual, FAMILIAR) / np.maximum(far[:, -1], 1e-300)
    strange = np.flatnonzero(share < 1)
    pixels = np.flatnonzero(~complete)[strange]
    out = f.reshape(len(f), -1).copy()
    alike = f[:, complete][:, index[strange]].mean(axis=2)
    out[:, pixels] = alike + share[strange] * (out[:, pixels] - alike)
    return out.reshape(f.shape)


def _looks(f: Floats, complete: Bools) -> Floats:
    """(≤ ALIKE, H, W) components of the features f of complete pixels, of unit variance, the weak
    ones less."""
    space = subspace.fit(f[:, complete], np.ones((len(f), int(complete.sum())), bool), ALIKE)
    scale = np.sqrt(np.maximum(space.variance, 0.02 * space.variance[0]) + 1e-300)
    looks: Floats = space.project(f) / scale[:, None, None]
    return looks


@lru_cache(maxsize=8)
def components(one: ReferencePlanes) -> Floats:
    """(≤ MOST, H, W) of one reference, its gaps filled with what is nearest; not to be changed."""
    inside = one.values[:, one.observed]
    mean, spread = inside.mean(axis=1), inside.std(axis=1)
    scaled = (one.values - mean[:, None, None]) / np.where(spread > 0, spread, 1.0)[:, None, None]
    whole = filled_in(scaled, np.broadcast_to(one.observed, scaled.shape))
    if len(whole) <= MOST:
        return whole
    spectra = whole[:, one.observed]
    space = subspace.fit(spectra, np.ones(spectra.shape, bool), MOST)
    return space.project(whole)


def _patterns(references: Sequence[ReferencePlanes]) -> Iterator[tuple[list[int], Bools]]:
    """References that see a pixel together, with the pixels (H, W) that just these see."""
    code = sum(one.observed.astype(np.int64) << i for i, one in enumerate(references))
    for pattern in np.unique(code):
        if members := [i for i in range(len(references)) if pattern >> i & 1]:
            yield members, np.asarray(code == pattern)


def regression(
    y: Floats, complete: Bools, f: Floats, weight: Floats, steps: bool = False
) -> Floats:
    """(K, H, W) the regression of each plane on the features, over the complete pixels (H, W), by
    their weights (H, W)."""
    out: Floats = np.tensordot(_slopes(y, complete, f, steps, weight), f, 1)
    share = weight[complete] / weight[complete].sum()
    out += ((y[:, complete] - out[:, complete]) @ share)[:, None, None]
    return out


def _slopes(y: Floats, observed: Bools, f: Floats, steps: bool, weight: Floats) -> Floats:
    """B (C, F): ridge regression of levels, with pixels weighed (H, W), or of the steps to the
    neighbours."""
    if steps:
        both = [
            (X @ X.T, X @ Y.T) for X, Y in zip(*(_steps(a, observed) for a in (f, y)), strict=True)
        ]
        return _ridge(*(np.sum(moments, axis=0) for moments in zip(*both, strict=True)))
    pixels = np.flatnonzero(observed)
    X, Y = (_columns(a, pixels) for a in (f, y))
    return slopes_of(Y, X, weight.ravel()[pixels])


def slopes_of(Y: Floats, X: Floats, weight: Floats | None = None) -> Floats:
    """B (C, F): ridge regression of planes Y (C, n) on features X (F, n) of n pixels, of equal
    weight or by weights (n,)."""
    share = np.full(X.shape[1], 1 / X.shape[1]) if weight is None else weight / weight.sum()
    W, mean_X, mean_Y = X * share, X @ share, Y @ share
    return _ridge(W @ X.T - np.outer(mean_X, mean_X), W @ Y.T - np.outer(mean_X, mean_Y))


def _ridge(A: Floats, C: Floats) -> Floats:
    """B (C, F) from the second moments (F, F) of the features and (F, C) of both."""
    A = A + RIDGE * max(np.trace(A) / len(A), 1e-300) * np.eye(len(A))
    slopes: Floats = np.linalg.solve(A, C).T
    return slopes


def _weights(y: Floats, observed: Bools, f: Floats) -> Floats:
    """(H, W) of a robust regression: those of pixels far from it fall with the square of how far
    they are, in medians (iterated, after Huber)."""
    pixels = np.flatnonzero(observed)
    X, Y = (_columns(a, pixels) for a in (f, y))
    weight, spread = np.ones(len(pixels)), np.maximum(Y.std(axis=1), 1e-300)[:, None]
    for _ in range(ROBUST_ROUNDS):
        off = (Y - slopes_of(Y, X, weight) @ X) / spread
        off -= (off @ (weight / weight.sum()))[:, None]
        size = np.sqrt(np.einsum("kn,kn->n", off, off) / len(off))
        usual = USUAL * float(np.median(size))
        weight = np.minimum(1.0, usual / np.maximum(size, 1e-300)) ** 2 + 1e-6
    out: Floats = np.ones(observed.shape)
    out[observed] = weight
    return out


def _steps(planes: Floats, observed: Bools) -> Iterator[Floats]:
    """(N, n) differences between neighbours that are both observed, down and to the right."""
    number = np.arange(observed.size).reshape(observed.shape)
    for after, before in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        there = observed[after] & observed[before]
        yield _columns(planes, number[after][there]) - _columns(planes, number[before][there])


def _local(y: Floats, complete: Bools, p: Floats, window: float) -> Floats:
    """A prediction p (K, H, W) with gain and offset of each plane that follow what lies around."""

    def around(plane: Floats) -> Floats:
        near: Floats = ndimage.gaussian_filter(plane * complete, window, mode="constant")
        return near

    out = np.empty(p.shape)
    n = np.maximum(around(np.ones(complete.shape)), 1e-9)
    for k, (t, q) in enumerate(zip(y, p, strict=True)):
        t = np.where(complete, t, 0.0)
        mean_q, mean_t = around(q) / n, around(t) / n
        variance = np.maximum(around(q * q) / n - mean_q**2, 0.0)
        covariance = around(q * t) / n - mean_q * mean_t
        usual = GLOBAL * max(float(q[complete].var()), 1e-300)
        gain = (covariance + usual) / (variance + usual)
        out[k] = np.where(n > 1e-6, mean_t + gain * (q - mean_q), q)  # where anything is near
    return out


def _of_similar(values: Floats, complete: Bools, f: Floats, count: int, apart: float) -> Floats:
    """(K, H, W) weighted mean of observed pixels that are alike and near, the pixel left out.

    Distance is in the components f of the references, of which the strongest has unit variance,
    and on the ground, in units of `apart` px.
    """
    if complete.sum() <= count:
        return np.zeros(values.shape)
    ground = np.mgrid[: values.shape[1], : values.shape[2]] / apart
    where = np.concatenate([_looks(f, complete), ground])
    inside = where[:, complete].T
    found = KDTree(inside).query(where.reshape(len(where), -1).T, count + 1, eps=NEARLY)
    distance, index = (np.asarray(part) for part in found)
    itself = complete.ravel()[:, None]
    distance = np.where(itself, distance[:, 1:], distance[:, :-1])
    index = np.where(itself, index[:, 1:], index[:, :-1])
    weight = 1 / (distance + NEAREST)
    weight /= weight.sum(axis=1, keepdims=True)
    given = values[:, complete]
    mean = np.zeros((len(values), len(index)))
    for k in range(count):
        mean += given[:, index[:, k]] * weight[:, k]
    return mean.reshape(values.shape)
