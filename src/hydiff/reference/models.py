"""Predict planes of the cube from references: y ≈ B f + b, fitted where both are observed.

Letters: y (K, H, W) bands or components of the cube, f (F, H, W) features computed from the bands
of references, B (K, F).  A prediction is NaN where no reference has all its bands.
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

MOST = 16  # principal components that represent the bands of a reference, at most
ENOUGH = 4  # pixels per feature that a fit needs
ALIKE = 6  # components by which the similarity of pixels is measured
APART, APART_ALIKE = 12.0, 30.0  # px that count as much as one standard deviation of a component
NEAREST = 0.05  # added to distances, in that unit
COMPANY = 10  # similar observed pixels that a familiar pixel must have
FAMILIAR, LOOKED = 0.999, 2000  # quantile of distances between observed pixels; pixels used for it
BLOCKS = 4  # per side: the image is cut into BLOCKS² blocks for cross-validation
ROUNDING = 1e-9  # of the total variance: less counts as 0
NEARLY = 0.5  # approximate search: neighbours may be farther than the nearest by this share


@dataclass(frozen=True, eq=False)
class ReferencePlanes:
    """The values of a reference on the grid of a cube."""

    values: Floats  # (R, H, W), arbitrary where not observed
    observed: Bools  # (H, W) pixels with all its bands


@dataclass(frozen=True)
class Model:
    """Settings of the prediction of planes from references."""

    context: int = 1  # px around that take part: subpixel shifts, another point spread
    steps: bool = False  # fit differences between neighbours, which kriging cannot predict
    robust: bool = False  # pixels that changed more between the images have less weight
    local: float = 0.0  # px, std of a window over which gain and offset vary (haze, light); 0 = off
    # the mean residual of this many observed pixels, near and similar in the references, is added
    # (after Chen et al. 2011, doi:10.1016/j.rse.2010.12.010)
    similar: int = 0
    alike: int = 0  # instead of a regression, take the mean of this many such pixels


class Predicted(NamedTuple):
    """Prediction of K planes at the pixels observed by one set of references."""

    pixels: Bools  # (H, W)
    planes: Floats  # (K, n)
    shown: Bools  # (K,) planes that can be predicted; others are constant, their mean


def predict(
    y: Floats, complete: Bools, references: Sequence[ReferencePlanes], model: Model
) -> Floats:
    """Return planes (K, H, W) predicted by references; complete (H, W): where all of y is known."""
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
    """Yield the prediction for each set of references that together observe some pixels.

    shared: cache of the parts that models of the same planes have in common; it is filled here.
    In every model, a plane that has nothing in common with the references is predicted as its mean.
    """
    for members, pixels in _patterns(references):
        together = tuple(references[i] for i in members)
        if (key := (model.context, together)) not in shared:
            shared[key] = SharedFeatures.of(y, complete, together, model.context)
        common: SharedFeatures | None = shared[key]
        if common is None:
            continue
        both, features = common.both, common.own
        if model.alike:
            p = _of_similar(y, both, features, model.alike, APART_ALIKE)
        else:
            p = regression(y, both, common.f, common.weight(model.robust), model.steps)
        if model.local:
            p = local_gain(y, both, p, model.local)
        shown = common.shown(model.robust)
        if model.similar:
            p = p + _of_similar(y - p, both, features, model.similar, APART)
        mean = y[:, both].mean(axis=1)[:, None]
        planes = mean + shown.map(shown.share) @ (p[:, pixels] - mean)
        yield Predicted(pixels, planes, shown.planes & shown.share.any())


@dataclass(frozen=True, eq=False)
class SharedFeatures:
    """The data that all models of the same planes y (K, H, W) and the same references share."""

    y: Floats
    both: Bools  # (H, W) pixels where the planes and all these references are observed
    own: Floats  # (F', H, W) features of the pixel itself
    f: Floats  # (F, H, W) features of the pixel and of its neighbours

    @classmethod
    def of(
        cls, y: Floats, complete: Bools, references: tuple[ReferencePlanes, ...], context: int
    ) -> SharedFeatures | None:
        """Compute the features; None if cube and references have too few pixels in common."""
        both = complete & np.logical_and.reduce([reference.observed for reference in references])
        features = _features(references, both.tobytes())
        f = _with_neighbours(features, context)
        return cls(y, both, features, f) if both.sum() >= ENOUGH * len(f) else None

    def weight(self, robust: bool) -> Floats:
        """Return the weights (H, W) of pixels in a regression."""
        return self._robust_weight if robust else np.ones(self.both.shape)

    def shown(self, robust: bool) -> Mixtures:
        """Return `mixtures_of` these planes, with robust or equal weights."""
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
    """Uncorrelated linear combinations of planes, and the share of their prediction to use."""

    planes: Bools  # (K,) True for the k planes that are combined
    every: Floats  # (k, k) covariance of these planes
    vectors: Floats  # (k, k) coefficients in columns, for unit variance
    share: Floats  # (k,) 0 … 1

    def map(self, share: Floats | Bools) -> Floats:
        """Return the matrix (K, K) that scales the mixtures of centred planes by shares (k,)."""
        matrix: Floats = np.zeros((len(self.planes),) * 2)
        matrix[np.ix_(self.planes, self.planes)] = (
            self.every @ (self.vectors * share) @ self.vectors.T
        )
        return matrix


def mixtures_of(y: Floats, complete: Bools, f: Floats, weight: Floats) -> Mixtures:
    """Find the mixtures of planes that the features predict, by cross-validation over blocks.

    Planes whose residual in the left-out blocks exceeds their own variance are excluded.  Each
    mixture of the others gets the share of its prediction that fits the left-out blocks best, or 0
    if its residual exceeds its variance (after Breiman and Friedman 1997,
    doi:10.1111/1467-9868.00054).

    Reason: a plane without relation to the references is often as smooth as they are, and many
    features fit it by chance, which in the gaps is worse than no prediction.  Mixtures are needed
    because a narrow absorption, which the references do not show, is part of several components
    that they do show otherwise.
    """
    Y, P, w = _left_out(y, complete, f, weight)
    residual, every = Y - P, (Y * w) @ Y.T
    every += max(ROUNDING * np.trace(every), 1e-300) * np.eye(len(y))
    residual_cov = (residual * w) @ residual.T
    usable: Bools = residual_cov.diagonal() <= every.diagonal()
    if not usable.any():
        return Mixtures(usable, np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))
    block = np.ix_(usable, usable)
    ratio, vectors = linalg.eigh(residual_cov[block], every[block])
    u, v = vectors.T @ Y[usable], vectors.T @ P[usable]
    best = (u * v) @ w / np.maximum((v * v) @ w, 1e-300)
    return Mixtures(
        usable, every[block], vectors, np.where(ratio > 1, 0.0, np.clip(best, 0.0, 1.0))
    )


def _left_out(
    y: Floats, complete: Bools, f: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return planes (K, n) at the complete pixels, sorted by block, and their predictions (K, n) by
    regressions without the respective block, both minus their mean; and normalised weights (n,)."""
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
    A, C = (np.sum(gram, axis=0) for gram in zip(*grams, strict=True))
    A_ridge, P = A + ridge_of(A), np.empty_like(Y)
    for at, (gram, with_y) in zip(parts, grams, strict=True):
        P[:, at] = np.linalg.solve(A_ridge - gram, C - with_y).T @ X[:, at]
    return Y, P, w


@lru_cache(maxsize=8)
def _features(references: tuple[ReferencePlanes, ...], complete: bytes) -> Floats:
    """Return the features (F, H, W) of each pixel; cached.  complete: bytes of a mask.

    All models of the same pixels start from them.  Do not modify them.
    """
    mask = np.frombuffer(complete, bool).reshape(references[0].observed.shape)
    return _familiar(np.concatenate([components(reference) for reference in references]), mask)


def _with_neighbours(features: Floats, context: int) -> Floats:
    """Return features (F, H, W) of each pixel, then those of neighbours within `context` px."""
    rows, cols = features.shape[1:]
    padded = np.pad(features, ((0, 0), (context, context), (context, context)), mode="edge")
    offsets = [(i, j) for i in range(2 * context + 1) for j in range(2 * context + 1)]
    offsets.sort(key=lambda at: max(abs(at[0] - context), abs(at[1] - context)))
    return np.concatenate([padded[:, i : i + rows, j : j + cols] for i, j in offsets])


def _familiar(f: Floats, complete: Bools) -> Floats:
    """Return features (F, H, W) with unusual pixels pulled towards the most similar complete ones.

    A pixel is unusual if it is farther (in feature space) from the complete pixels than these are
    from one another, for example a flare or a cloud in the reference.  Its value in the cube cannot
    be known, and a regression would extrapolate.
    """
    if complete.sum() <= ENOUGH * COMPANY or complete.all():
        return f
    from scipy.spatial import KDTree

    position = _looks(f, complete)
    inside, outside = position[:, complete].T, position[:, ~complete].T
    tree = KDTree(inside)
    # + 1: the nearest neighbour is the pixel itself
    usual, _ = tree.query(inside[:: -(-len(inside) // LOOKED)], [COMPANY + 1])
    distance, index = (np.asarray(part) for part in tree.query(outside, COMPANY, eps=NEARLY))
    share = np.quantile(usual, FAMILIAR) / np.maximum(distance[:, -1], 1e-300)
    unusual = np.flatnonzero(share < 1)
    pixels = np.flatnonzero(~complete)[unusual]
    adjusted = f.reshape(len(f), -1).copy()
    similar = f[:, complete][:, index[unusual]].mean(axis=2)
    adjusted[:, pixels] = similar + share[unusual] * (adjusted[:, pixels] - similar)
    return adjusted.reshape(f.shape)


def _looks(f: Floats, complete: Bools) -> Floats:
    """Return components (≤ ALIKE, H, W) of the features f of complete pixels, scaled to unit
    variance; weak ones have less."""
    space = subspace.fit(f[:, complete], np.ones((len(f), int(complete.sum())), bool), ALIKE)
    scale = np.sqrt(np.maximum(space.variance, 0.02 * space.variance[0]) + 1e-300)
    looks: Floats = space.project(f) / scale[:, None, None]
    return looks


@lru_cache(maxsize=8)
def components(one: ReferencePlanes) -> Floats:
    """Return components (≤ MOST, H, W) of a reference, gaps filled by nearest; do not modify."""
    inside = one.values[:, one.observed]
    mean, spread = inside.mean(axis=1), inside.std(axis=1)
    scaled = (one.values - mean[:, None, None]) / np.where(spread > 0, spread, 1.0)[:, None, None]
    filled = filled_in(scaled, np.broadcast_to(one.observed, scaled.shape))
    if len(filled) <= MOST:
        return filled
    spectra = filled[:, one.observed]
    space = subspace.fit(spectra, np.ones(spectra.shape, bool), MOST)
    return space.project(filled)


def _patterns(references: Sequence[ReferencePlanes]) -> Iterator[tuple[list[int], Bools]]:
    """Yield sets of references (indices) and the pixels (H, W) that exactly these observe."""
    code = sum(reference.observed.astype(np.int64) << i for i, reference in enumerate(references))
    for pattern in np.unique(code):
        if members := [i for i in range(len(references)) if pattern >> i & 1]:
            yield members, np.asarray(code == pattern)


def _of_similar(values: Floats, complete: Bools, f: Floats, count: int, apart: float) -> Floats:
    """Return weighted means (K, H, W) of `count` similar, near, observed pixels, excluding itself.

    The distance combines components of the references' features f, the strongest of unit variance,
    and the distance on the ground in units of `apart` px.
    """
    if complete.sum() <= count:
        return np.zeros(values.shape)
    from scipy.spatial import KDTree

    ground = np.mgrid[: values.shape[1], : values.shape[2]] / apart
    position = np.concatenate([_looks(f, complete), ground])
    inside = position[:, complete].T
    neighbours = KDTree(inside).query(position.reshape(len(position), -1).T, count + 1, eps=NEARLY)
    distance, index = (np.asarray(part) for part in neighbours)
    itself = complete.ravel()[:, None]
    distance = np.where(itself, distance[:, 1:], distance[:, :-1])
    index = np.where(itself, index[:, 1:], index[:, :-1])
    weight = 1 / (distance + NEAREST)
    weight /= weight.sum(axis=1, keepdims=True)
    at_complete = values[:, complete]
    mean = np.zeros((len(values), len(index)))
    for k in range(count):
        mean += at_complete[:, index[:, k]] * weight[:, k]
    return mean.reshape(values.shape)
