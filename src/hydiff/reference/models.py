"""What the bands of references say about planes of the cube: y ≈ B f + b, over what both observe.

Letters: y (K, H, W) bands or components, features f (F, H, W) made of the references' bands,
B (K, F).  A prediction is NaN where no reference has all its bands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from hydiff.cube import Bools, Floats
from hydiff.maths import subspace
from hydiff.reference.regression import (
    columns,
    local_gain,
    regression,
    ridge_of,
    robust_weights,
)
from hydiff.reference.shift import filled_in

MOST = 16  # components that stand for the bands of a reference
ENOUGH = 4  # pixels for each feature, at least
ALIKE = 6  # components in which pixels are compared
APART, APART_ALIKE = 12.0, 30.0  # px that count like a standard deviation of the strongest one
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


@dataclass(frozen=True)
class Model:
    """How references predict planes."""

    context: int = 1  # pixels around that take part: a shift by part of one, another point spread
    steps: bool = False  # fitted to differences between neighbours: what kriging cannot know
    robust: bool = False  # pixels that have changed since count less, the more they have
    local: float = 0.0  # px, std of a window over which gain and offset vary (haze, light); 0 = not
    # the mean residual of so many observed pixels that look alike in the references, and are near,
    # is added (after Chen et al. 2011, doi:10.1016/j.rse.2010.12.010)
    similar: int = 0
    alike: int = 0  # instead of a regression, the mean of so many such pixels themselves


class Predicted(NamedTuple):
    """What the references that see some pixels say of K planes there."""

    pixels: Bools  # (H, W)
    planes: Floats  # (K, n)
    shown: Bools  # (K,) planes of which they show anything; the others are their mean


def predict(
    y: Floats, complete: Bools, references: Sequence[ReferencePlanes], model: Model
) -> Floats:
    """(K, H, W) planes as the references have them; complete (H, W): where all of y is known."""
    out = np.full(y.shape, np.nan)
    for part in predictions(y, complete, references, model, {}):
        out[:, part.pixels] = part.planes
    return out


def predictions(
    y: Floats,
    complete: Bools,
    references: Sequence[ReferencePlanes],
    model: Model,
    shared: dict[Any, Any],
) -> Iterator[Predicted]:
    """`predict`, for each set of references that see some pixels together.

    shared: what models of the same planes have in common, added to when it is first asked for.
    Whatever the model, a plane that has nothing in common with the references is its mean.
    """
    for members, pixels in _patterns(references):
        together = tuple(references[i] for i in members)
        if (key := (model.context, together)) not in shared:
            shared[key] = SharedFeatures.of(y, complete, together, model.context)
        common: SharedFeatures | None = shared[key]
        if common is None:
            continue
        both, own = common.both, common.own
        if model.alike:
            p = _of_similar(y, both, own, model.alike, APART_ALIKE)
        else:
            p = regression(y, both, common.f, common.weight(model.robust), model.steps)
        if model.local:
            p = local_gain(y, both, p, model.local)
        shown = common.shown(model.robust)
        if model.similar:
            p = p + _of_similar(y - p, both, own, model.similar, APART)
        mean = y[:, both].mean(axis=1)[:, None]
        planes = mean + shown.map(shown.share) @ (p[:, pixels] - mean)
        yield Predicted(pixels, planes, shown.planes & shown.share.any())


@dataclass(frozen=True, eq=False)
class SharedFeatures:
    """What models of the same planes y (K, H, W) by the same references share."""

    y: Floats
    both: Bools  # (H, W) pixels that the planes and all these references have
    own: Floats  # (F, H, W) features of each pixel
    f: Floats  # (F, H, W) with those of its neighbours

    @classmethod
    def of(
        cls, y: Floats, complete: Bools, references: tuple[ReferencePlanes, ...], context: int
    ) -> SharedFeatures | None:
        """None where too few pixels have both."""
        both = complete & np.logical_and.reduce([one.observed for one in references])
        own = _features(references, both.tobytes())
        f = _with_neighbours(own, context)
        return cls(y, both, own, f) if both.sum() >= ENOUGH * len(f) else None

    def weight(self, robust: bool) -> Floats:
        """(H, W) how much each pixel counts in a regression."""
        return self._robust_weight if robust else np.ones(self.both.shape)

    def shown(self, robust: bool) -> Mixtures:
        """`mixtures_of` these planes, with these weights."""
        return self._shown_robust if robust else self._shown

    @cached_property
    def _robust_weight(self) -> Floats:
        return robust_weights(self.y, self.both, self.f)

    @cached_property
    def _shown(self) -> Mixtures:
        return mixtures_of(self.y, self.both, self.f, self.weight(False))

    @cached_property
    def _shown_robust(self) -> Mixtures:
        return mixtures_of(self.y, self.both, self.f, self._robust_weight)


class Mixtures(NamedTuple):
    """Uncorrelated mixtures of planes, and what share of their prediction to take."""

    planes: Bools  # (K,) those that are mixed, k of them
    every: Floats  # (k, k) their covariance
    vectors: Floats  # (k, k) in columns, of unit variance
    share: Floats  # (k,) 0 … 1

    def map(self, share: Floats | Bools) -> Floats:
        """(K, K) what takes these shares (k,) of the mixtures of planes, less their mean."""
        taken: Floats = np.zeros((len(self.planes),) * 2)
        taken[np.ix_(self.planes, self.planes)] = (
            self.every @ (self.vectors * share) @ self.vectors.T
        )
        return taken


def mixtures_of(y: Floats, complete: Bools, f: Floats, weight: Floats) -> Mixtures:
    """Of the planes of which a regression on the features leaves less, in blocks left out of it,
    than there is: of each mixture the share of its prediction that suits those blocks best, and
    nothing where it leaves more than there is (after Breiman and Friedman 1997,
    doi:10.1111/1467-9868.00054).

    What has nothing in common with the references varies as smoothly as they do, and many features
    fit it by chance; in the gaps that would be worse than nothing.  A narrow absorption is part of
    several components that the references show otherwise: it is found among their mixtures.
    """
    Y, P, w = _left_out(y, complete, f, weight)
    off, every = Y - P, (Y * w) @ Y.T
    every += max(ROUNDING * np.trace(every), 1e-300) * np.eye(len(y))
    left = (off * w) @ off.T
    some: Bools = left.diagonal() <= every.diagonal()
    if not some.any():
        return Mixtures(some, np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))
    own = np.ix_(some, some)
    ratio, vectors = linalg.eigh(left[own], every[own])
    u, v = vectors.T @ Y[some], vectors.T @ P[some]
    best = (u * v) @ w / np.maximum((v * v) @ w, 1e-300)
    return Mixtures(some, every[own], vectors, np.where(ratio > 1, 0.0, np.clip(best, 0.0, 1.0)))


def _left_out(
    y: Floats, complete: Bools, f: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """(K, n) planes at the complete pixels, block by block, and what a regression predicts of them
    that leaves the block out, both less their mean; and shares (n,) of the weights."""
    rows, cols = (np.arange(n) * BLOCKS // n for n in complete.shape)
    block = (rows[:, None] * BLOCKS + cols)[complete]
    pixels = np.flatnonzero(complete)[np.argsort(block, kind="stable")]
    _, starts = np.unique(np.sort(block), return_index=True)
    w = weight.ravel()[pixels] / weight[complete].sum()
    X, Y = (columns(a, pixels) for a in (f, y))
    X -= (X @ w)[:, None]
    Y -= (Y @ w)[:, None]
    parts = [slice(start, end) for start, end in zip(starts, [*starts[1:], len(w)], strict=True)]
    grams = [((X[:, at] * w[at]) @ X[:, at].T, (X[:, at] * w[at]) @ Y[:, at].T) for at in parts]
    A, C = (np.sum(own, axis=0) for own in zip(*grams, strict=True))
    A_ridge, P = A + ridge_of(A), np.empty_like(Y)
    for at, (own, with_y) in zip(parts, grams, strict=True):
        P[:, at] = np.linalg.solve(A_ridge - own, C - with_y).T @ X[:, at]
    return Y, P, w


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
    from scipy.spatial import KDTree

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


def _of_similar(values: Floats, complete: Bools, f: Floats, count: int, apart: float) -> Floats:
    """(K, H, W) weighted mean of observed pixels that are alike and near, the pixel left out.

    Distance is in the components f of the references, of which the strongest has unit variance,
    and on the ground, in units of `apart` px.
    """
    if complete.sum() <= count:
        return np.zeros(values.shape)
    from scipy.spatial import KDTree

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
