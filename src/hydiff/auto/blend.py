"""Blending weights from the trials: convex, by class of entries, and only for a proven gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import BAND_GROUPS, D, Kinds
from hydiff.auto.trials import Trial, importance
from hydiff.cube import Floats

BORROWED = 500.0  # entries' worth of the pooled errors that every class of entries borrows
# A mean of network fits beats the classical blend on most scenes, and three folds cannot show by
# how much: it starts with this share, and leaves it only for a gain of so many standard errors
# (benchmarks/foresight.py)
NETWORKS, DOUBT = 0.8, 2.0
# A network that learned elsewhere is no mean of fits to this cube: it gives way more easily.  It
# starts with more, as on places held back from its training (benchmarks/prior_shares.py), and
# networks that learned from this cube alone, beside it, with nothing
DOUBT_ELSEWHERE = 1.0
ELSEWHERE = 0.9
# Of what a blend gains in values: what it may lose in the steps between bands.  With noise both are
# small shares of an error that is mostly noise, and the least loss would be proven
SPECTRA = 0.25
BOOTSTRAPS = 200


class Weights(NamedTuple):
    """Of the candidates, (M, D, G), convex over M."""

    plain: Floats  # those without a network blended, as if there were no others
    all: Floats
    why: str
    share: Floats  # (M,) the mean over the hidden entries


class Gain(NamedTuple):
    """Gain of a blend on folds that were left out of its fit, as a share of the squared error."""

    mean: float
    error: float  # standard error, by bootstrap over folds
    folds: int
    doubt: float = 1.0  # standard errors that a gain, or a loss, must exceed

    @property
    def proven(self) -> bool:
        return self.mean > self.doubt * self.error

    @property
    def loss_proven(self) -> bool:
        return self.mean < -self.doubt * self.error

    def __str__(self) -> str:
        than = "less" if self.mean >= 0 else "more"
        number = f"{100 * abs(self.mean):.1f} ± {100 * self.error:.1f} %"
        return f"{number} {than} squared error on {self.folds} hidden copies"


def weights_of(
    trials: Sequence[Trial],
    kinds: Kinds,
    candidates: Sequence[Candidate],
    seed: int,
    from_nothing: bool = False,
) -> Weights:
    """Networks were fitted on the first folds alone.  So the others are blended first, by all
    folds, starting from the first candidate; then that blend with the networks, by the folds that
    they were fitted on, starting from their usual share, or from nothing.
    """
    plain = [m for m, c in enumerate(candidates) if not c.costly]
    costly = [m for m, c in enumerate(candidates) if c.costly]
    default = candidates[0].name
    weights = np.zeros((len(candidates), D, BAND_GROUPS))
    weights[0] = 1
    if len(candidates) == 1:
        return Weights(weights, weights, f"{default} is the only candidate", weights[:, 0, 0])
    if len(trials) < 2:
        why = f"too few observed pixels to try the candidates on: {default}"
        return Weights(weights, weights, why, weights[:, 0, 0])
    reasons = []
    if len(plain) > 1:
        alone = np.eye(len(plain))[0]
        own = [t.residual[plain] for t in trials]
        steps = [t.step[plain] for t in trials if t.step is not None]
        shares, words = advised(own, steps, trials, kinds, alone, seed)
        weights[plain] = shares
        reasons.append(f"blends of {_listed(candidates, plain)} gave {words}")
    both = weights.copy()
    tried = [t for t in trials if np.isfinite(t.residual).all()] if costly else []
    if len(tried) > 1:
        usual = _usual([candidates[m] for m in costly])
        usual = np.eye(len(usual))[0] if from_nothing else usual
        beside = [np.vstack([mixed(t, weights), t.residual[costly]]) for t in tried]
        steps = [
            np.vstack([_mixed(t.step, t, weights), t.step[costly]])
            for t in tried
            if t.step is not None
        ]
        elsewhere = any(candidates[m].pretrained for m in costly)
        doubt = DOUBT_ELSEWHERE if elsewhere else DOUBT
        shares, words = advised(beside, steps, tried, kinds, usual, seed, doubt)
        both = shares[0] * weights
        both[costly] = shares[1:]
        named = [m for m, share in zip(costly, usual[1:], strict=True) if share]
        start = f"{_listed(candidates, named or costly)} other than {100 * (1 - usual[0]):.0f} %"
        reasons.append(f"shares of {start} gave {words}")
    share = share_of(both, trials)
    return Weights(weights, both, f"{_words(share, candidates)}: {'; '.join(reasons)}", share)


def _usual(networks: Sequence[Candidate]) -> Floats:
    """(1 + networks,) the shares to start with, of the others and of each network.

    Among those that learned elsewhere a tuned one stands for all: half of it is the untuned one.
    """
    elsewhere = [c.pretrained for c in networks]
    tuned = [c.tuned for c in networks]
    some = np.array(tuned if any(tuned) else elsewhere if any(elsewhere) else [True] * len(tuned))
    start = ELSEWHERE if any(elsewhere) else NETWORKS
    usual: Floats = np.r_[1 - start, start * some / some.sum()]
    return usual


def share_of(weights: Floats, trials: Sequence[Trial]) -> Floats:
    """(M,) mean weight of each candidate over the hidden entries, weights (M, D, G)."""
    share: Floats = np.mean([weights[:, t.distance, t.group].mean(axis=1) for t in trials], axis=0)
    return share


def mixed(trial: Trial, weights: Floats) -> Floats:
    """(n,) residual of the blend with weights (M, D, G)."""
    return _mixed(trial.residual, trial, weights)


def _mixed(errors: Floats, trial: Trial, weights: Floats) -> Floats:
    """(n,) the error of the blend, from those (M, n) of the candidates."""
    used = weights.any(axis=(1, 2))
    mix = weights[used][:, trial.distance, trial.group]
    blended: Floats = (mix * errors[used]).sum(axis=0)
    return blended


def _listed(candidates: Sequence[Candidate], some: Sequence[int]) -> str:
    *others, last = (candidates[m].name for m in some)
    return f"{', '.join(others)} and {last}" if others else last


def _words(share: Floats, candidates: Sequence[Candidate]) -> str:
    """What a blend is made of, in a few words."""
    if (alone := int(np.argmax(share))) == 0 and share[0] > 0.9999:
        return f"{candidates[alone].name} alone"
    used = ((c, s) for c, s in zip(candidates, share, strict=True) if s >= 0.005)
    parts = (f"{c.name} {100 * s:.0f} %" for c, s in used)
    return f"blend of {', '.join(parts)} (shares vary with distance and band)"


def advised(
    residuals: Sequence[Floats],
    steps: Sequence[Floats],
    trials: Sequence[Trial],
    kinds: Kinds,
    default: Floats,
    seed: int,
    doubt: float = 1.0,
    borrowed: float = BORROWED,
) -> tuple[Floats, str]:
    """Weights (K, D, G) for residuals (K, n) of each trial: the best, if what they gain over the
    default (K,) is proven, and else those; and words about it.

    steps (K, n): errors of the step to the next band.  A blend that proves to lose spectra, and
    more than `SPECTRA` of what it gains, is not taken; a default that does gives way to the first
    candidate.
    The squared error of a blend is a quadratic form in its weights, so the matrices of error
    products per fold and class are all that is needed.
    """
    products = _by_fold(residuals, trials, kinds)
    spectra = _by_fold(steps, trials, kinds) if steps else None
    words = ""
    usual = _everywhere(default)
    if spectra is not None and _bends(
        _kept(usual, spectra, seed, doubt), _kept(usual, products, seed, doubt)
    ):
        default = np.eye(len(default))[0]
        words = "; the usual share would make the steps between bands worse"
    same = _everywhere(default)
    left_out = (np.delete(products, i, axis=0).sum(axis=0) for i in range(len(trials)))
    others = [_blend(rest, borrowed) for rest in left_out]
    gain = _gain(same, others, products, seed, doubt)
    if gain.proven and spectra is not None:
        bent = _gain(same, others, spectra, seed, doubt)
        if _bends(bent, gain):
            lost = f"steps between bands {-100 * bent.mean:.1f} % worse"
            return same, f"{gain}, but {lost}: not used{words}"
    if not gain.proven:
        return same, f"{gain}, not used{words}"
    return _blend(products.sum(axis=0), borrowed), f"{gain}, used{words}"


def _bends(spectra: Gain, values: Gain) -> bool:
    """Whether a blend loses too much of the spectra for what it gains in values."""
    return spectra.loss_proven and -spectra.mean > SPECTRA * max(values.mean, 0.0)


def _everywhere(weights: Floats) -> Floats:
    """(K, D, G) the same weights (K,) in all classes."""
    return np.broadcast_to(weights[:, None, None], (len(weights), D, BAND_GROUPS))


def _by_fold(errors: Sequence[Floats], trials: Sequence[Trial], kinds: Kinds) -> Floats:
    """(folds, D, G, K, K + 1) products of the errors (K, n) of each trial."""
    return np.stack(
        [_products(e, t, importance(t, kinds)) for e, t in zip(errors, trials, strict=True)]
    )


def _kept(weights: Floats, products: Floats, seed: int, doubt: float) -> Gain:
    """What some weights gain over the first candidate."""
    first = _everywhere(np.eye(len(weights))[0])
    return _gain(first, [weights] * len(products), products, seed, doubt)


def _gain(
    before: Floats, after: Sequence[Floats], products: Floats, seed: int, doubt: float = 1.0
) -> Gain:
    """What weights gain over others, fold by fold; after: those for each fold."""
    loss = np.array([(_loss(before, p), _loss(w, p)) for w, p in zip(after, products, strict=True)])
    n = len(loss)
    draws = np.random.default_rng(seed).integers(n, size=(BOOTSTRAPS, n))
    gains, mean = _gained(loss[draws].sum(axis=1)), float(_gained(loss.sum(axis=0)))
    few = math.sqrt(n / (n - 1))  # draws from few folds scatter too little
    return Gain(mean, few * float(gains.std()), n, doubt)


def _gained(loss: Floats) -> Floats:
    """What of the first of two losses (..., 2) the second saves; nothing of nothing."""
    before, after = loss[..., 0], loss[..., 1]
    share: Floats = np.where(before > 0, 1 - after / np.maximum(before, 1e-300), 0.0)
    return share


def _loss(weights: Floats, products: Floats) -> float:
    """Squared error of a blend in one fold."""
    K = len(weights)
    return float(np.einsum("idg,dgij,jdg->", weights, products[..., :K], weights))


def _products(residual: Floats, trial: Trial, weight: Floats) -> Floats:
    """(D, G, K, K + 1): sums of products of residuals (K, n) per class, and the count.

    Every band counts alike, whatever its error: that is what a mean over bands of PSNR rewards.
    """
    K, bands = len(residual), int(trial.band.max()) + 1
    squares = np.bincount(trial.band, residual[0] ** 2, bands)
    scale = np.sqrt(squares / np.maximum(np.bincount(trial.band, minlength=bands), 1))
    r = residual / np.maximum(scale[trial.band], 1e-12)
    cell = trial.distance * BAND_GROUPS + trial.group
    out = np.zeros((D * BAND_GROUPS, K, K + 1))
    for i in range(K):
        for j in range(K):
            out[:, i, j] = np.bincount(cell, weight * r[i] * r[j], len(out))
    out[:, :, K] = np.bincount(cell, weight, len(out))[:, None]
    return out.reshape(D, BAND_GROUPS, K, K + 1)


def _blend(products: Floats, borrowed: float) -> Floats:
    """The convex weights of least squared error in every class, each borrowing from all."""
    K = products.shape[2]
    pooled = products.sum(axis=(0, 1))
    mean = pooled[:, :K] / max(pooled[0, K], 1e-300)
    weights = np.empty((K, D, BAND_GROUPS))
    for d in range(D):
        for g in range(BAND_GROUPS):
            weights[:, d, g] = simplex(products[d, g, :, :K] + borrowed * mean)
    return weights


def simplex(A: Floats) -> Floats:
    """argmin wᵀ A w over w ≥ 0, Σ w = 1."""
    from scipy.optimize import nnls  # a third of what a child would import, and it needs none

    K = len(A)
    scale = np.trace(A) / K
    if not scale > 0:
        first: Floats = np.eye(K)[0]
        return first
    root = np.linalg.cholesky(A / scale + 1e-6 * np.eye(K)).T
    w, _ = nnls(np.vstack([root, 1e3 * np.ones(K)]), np.r_[np.zeros(K), 1e3])
    convex: Floats = w / w.sum()
    return convex
