"""Blending weights from the trials: convex, by class of entries, and only for a proven gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize

from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import BAND_GROUPS, D, groups
from hydiff.auto.trials import Trial, importance
from hydiff.cube import Floats
from hydiff.mask import Ints

BORROWED = 2000.0  # entries' worth of the pooled errors that every class of entries borrows
BOOTSTRAPS = 200


def weights_of(
    trials: Sequence[Trial],
    target: tuple[Ints, Floats],
    candidates: Sequence[Candidate],
    seed: int,
) -> tuple[Floats, str]:
    """Blending weights (M, D, G), convex over M, and why.

    The squared error of a blend is a quadratic form in its weights, so the matrices of the
    candidates' error products per fold and class are all that is needed.
    """
    M, default = len(candidates), np.zeros((len(candidates), D, BAND_GROUPS))
    default[0] = 1
    if M == 1:
        return default, f"{candidates[0].name} is the only candidate"
    # a costly candidate was not fitted on every fold: compare where all were
    trials = [t for t in trials if np.isfinite(t.residual).all(axis=0).any()]
    if len(trials) < 2:
        return default, f"too few observed pixels to try the candidates on: {candidates[0].name}"
    products = np.stack([_products(t, importance(t, target)) for t in trials])
    best = _blend(products.sum(axis=0), M)
    loss = np.array([_losses(products, i, M) for i in range(len(trials))])  # default, blend
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(trials), size=(BOOTSTRAPS, len(trials)))
    gains = 1 - loss[draws, 1].sum(axis=1) / np.maximum(loss[draws, 0].sum(axis=1), 1e-300)
    gain = float(1 - loss[:, 1].sum() / max(loss[:, 0].sum(), 1e-300))
    error = float(gains.std())
    share = (
        best[:, products.sum(axis=(0, 3, 4)) > 0].mean(axis=1) if products.any() else best[:, 0, 0]
    )
    told = f"{100 * gain:.1f} ± {100 * error:.1f} % of the squared error on {len(trials)} folds"
    if not gain > error:
        return default, f"{candidates[0].name} alone: blending would gain {told}"
    shares = ", ".join(f"{c.name} {100 * s:.0f} %" for c, s in zip(candidates, share, strict=True))
    return best, f"blend of {shares}, by distance and band group: it gained {told}"


def _products(trial: Trial, weight: Floats) -> Floats:
    """(D, G, M, M + 1): sums of products of the candidates' residuals per class, and the count.

    Every band counts alike, whatever its error: that is what a mean over bands of PSNR rewards.
    """
    M = len(trial.residual)
    bands = int(trial.band.max()) + 1
    present = np.isfinite(trial.residual).all(axis=0)
    squares = np.bincount(trial.band, trial.residual[0] ** 2, bands)
    scale = np.sqrt(squares / np.maximum(np.bincount(trial.band, minlength=bands), 1))
    r = trial.residual / np.maximum(scale[trial.band], 1e-12)
    cell = trial.distance * BAND_GROUPS + groups(bands)[trial.band]
    out = np.zeros((D * BAND_GROUPS, M, M + 1))
    for i in range(M):
        for j in range(M):
            product = np.where(present, weight * r[i] * r[j], 0.0)
            out[:, i, j] = np.bincount(cell, product, len(out))
    out[:, :, M] = np.bincount(cell, present * weight, len(out))[:, None]
    return out.reshape(D, BAND_GROUPS, M, M + 1)


def _blend(products: Floats, M: int) -> Floats:
    """The convex weights of least squared error in every class, each borrowing from all."""
    pooled = products.sum(axis=(0, 1))
    mean = pooled[:, :M] / max(pooled[0, M], 1e-300)
    weights = np.empty((M, D, BAND_GROUPS))
    for d in range(D):
        for g in range(BAND_GROUPS):
            weights[:, d, g] = simplex(products[d, g, :, :M] + BORROWED * mean)
    return weights


def simplex(A: Floats) -> Floats:
    """argmin wᵀ A w over w ≥ 0, Σ w = 1."""
    M = len(A)
    scale = np.trace(A) / M
    if not scale > 0:
        first: Floats = np.eye(M)[0]
        return first
    root = np.linalg.cholesky(A / scale + 1e-6 * np.eye(M)).T
    w, _ = optimize.nnls(np.vstack([root, 1e3 * np.ones(M)]), np.r_[np.zeros(M), 1e3])
    convex: Floats = w / w.sum()
    return convex


def _losses(products: Floats, fold: int, M: int) -> tuple[float, float]:
    """Squared error in one fold of the default, and of the blend that the other folds advise."""
    others = np.delete(products, fold, axis=0).sum(axis=0)
    w = _blend(others, M)
    own = products[fold][..., :M]
    return float(own[..., 0, 0].sum()), float(np.einsum("idg,dgij,jdg->", w, own, w))
