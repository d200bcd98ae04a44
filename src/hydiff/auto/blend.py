"""Blending weights from the trials: convex, by class of entries; a blend must prove its gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import BAND_GROUPS, ClassCounts, D
from hydiff.auto.hidden import importance
from hydiff.auto.trials import Trial
from hydiff.auto.wording import Gain, Verdict, reason
from hydiff.cube import Floats

BORROWED = 500.0  # entries: weight of the errors of all classes in the fit of each class
# A mean of network fits beats the classical blend on most scenes, and three folds cannot show by
# how much: networks have the share NETWORKS by default, and another one only if its gain exceeds
# DOUBT standard errors (benchmarks/foresight.py)
NETWORKS, DOUBT = 0.8, 2.0
# The default share of a pretrained network is larger, as measured on places held back from its
# training (benchmarks/prior_shares.py); networks trained on this cube alone then have none
ELSEWHERE = 0.9
# Unless a pretrained network gains more than LIKELY standard errors with that share, which makes a
# gain about twice as likely as a loss, it starts with IN_DOUBT: the squared error of the mean of
# two fills is no larger than the mean of theirs (benchmarks/stress.py)
LIKELY, IN_DOUBT = 0.5, 0.5
# Loss in the steps between bands that a blend may have, as a share of its gain in values.  With
# noise both are small shares of an error that is mostly noise, and any small loss would be proven
SPECTRA = 0.25
# Number of folds that must hide entries of a distance class, and of every nearer one, to change the
# default shares there: a field that is best near the data may drift away deep in a gap
REACHING = 2
BOOTSTRAPS = 200  # bootstrap samples of the folds


class Weights(NamedTuple):
    """Blending weights of the candidates, (M, D, G); they are >= 0 and add up to 1 over M."""

    plain: Floats  # of the blend of the candidates without a network; 0 for the others
    all: Floats  # of the blend of all candidates
    why: str  # with all figures
    share: Floats  # (M,) mean of `all` over the hidden entries
    reason: str = ""  # in short


def weights_of(
    trials: Sequence[Trial],
    counts: ClassCounts,
    candidates: Sequence[Candidate],
    seed: int,
    from_nothing: bool = False,
) -> Weights:
    """Return the weights of the candidates, fitted in two steps.

    First the candidates without a network are blended, by all folds; the default is the first
    candidate alone.  Then this blend is blended with the networks, by the folds on which these were
    fitted; their default share is that of `_usual`, IN_DOUBT, or 0 if `from_nothing`.
    """
    first = np.zeros((len(candidates), D, BAND_GROUPS))
    first[0] = 1
    if untried := _untried(trials, candidates):
        why, short = untried
        return Weights(first, first, why, first[:, 0, 0], short)
    others = [m for m, c in enumerate(candidates) if m and not c.costly]
    costly = [m for m, c in enumerate(candidates) if c.costly]
    network_trials = [t for t in trials if np.isfinite(t.residual).all()] if costly else []
    reasons, plain = [], first
    on_plain, on_networks, usual_gain, unlikely = None, None, None, None
    if others:
        default = np.eye(1 + len(others))[0]
        plain, on_plain = _joined(first, others, default, trials, counts, seed, 1.0)
        reasons.append(f"blends of {_listed(candidates, [0, *others])} gave {on_plain}")
    combined = plain
    if len(network_trials) > 1:
        usual = _usual([candidates[m] for m in costly])
        usual = np.eye(len(usual))[0] if from_nothing else usual
        doubt = 1.0 if from_nothing else DOUBT  # as for the candidates without a network
        on_folds = network_trials, counts, seed, doubt
        combined, on_networks = _joined(plain, costly, usual, *on_folds)
        networks = [m for m, share in zip(costly, usual[1:], strict=True) if share] or costly
        names = _listed(candidates, networks)
        if _in_doubt(on_networks.usual, [candidates[m] for m in networks]) and not from_nothing:
            unlikely = on_networks.usual
            reasons.append(f"{names} with {100 * ELSEWHERE:.0f} % gave {unlikely}")
            usual = np.r_[1 - IN_DOUBT, IN_DOUBT / ELSEWHERE * usual[1:]]
            combined, on_networks = _joined(plain, costly, usual, *on_folds)
        start = 1 - usual[0]
        if start > 0:
            usual_gain = on_networks.usual
            reasons.append(f"{names} with {100 * start:.0f} % gave {usual_gain}")
        reasons.append(f"shares of {names} other than {100 * start:.0f} % gave {on_networks}")
    share = share_of(combined, trials)
    why = f"{_words(share, combined, candidates)}: {'; '.join(reasons)}"
    with_networks = bool(combined[costly].any())
    short = reason(on_plain, on_networks, usual_gain, with_networks, unlikely is not None)
    return Weights(plain, combined, why, share, short)


def _in_doubt(usual: Gain | None, networks: Sequence[Candidate]) -> bool:
    """Whether it is unlikely that networks trained elsewhere gain with their usual shares."""
    likely = usual is None or usual._replace(doubt=LIKELY).proven
    return any(c.pretrained for c in networks) and not likely


def _untried(trials: Sequence[Trial], candidates: Sequence[Candidate]) -> tuple[str, str] | None:
    """Return why the default stands without a trial, at length and in short, or None."""
    default = candidates[0].name
    if len(candidates) == 1:
        return f"{default} is the only candidate", "nothing else can be tried here"
    if len(trials) < 2:
        few = "too few observed pixels to try"
        return f"{few} the candidates on: {default}", f"{few} anything else"
    return None


def _joined(
    weights: Floats,
    others: Sequence[int],
    default: Floats,
    trials: Sequence[Trial],
    counts: ClassCounts,
    seed: int,
    doubt: float,
) -> tuple[Floats, Verdict]:
    """Return weights (M, D, G) of a blend of a blend, which has `weights`, with other candidates.

    others: their numbers.  default (1 + others,): usual shares of the given blend and of them.
    """
    residuals = [np.vstack([mixed(t.residual, t, weights), t.residual[others]]) for t in trials]
    steps = [np.vstack([mixed(t.step, t, weights), t.step[others]]) for t in trials]
    shares, verdict = proven_weights(residuals, steps, trials, counts, default, seed, doubt)
    joined = shares[0] * weights
    joined[others] = shares[1:]
    return joined, verdict


def _usual(networks: Sequence[Candidate]) -> Floats:
    """(1 + networks,) default shares: of the blend without networks, and of each network."""
    elsewhere = [c.pretrained for c in networks]
    with_share = np.array(elsewhere if any(elsewhere) else [True] * len(networks))
    start = ELSEWHERE if any(elsewhere) else NETWORKS
    usual: Floats = np.r_[1 - start, start * with_share / with_share.sum()]
    return usual


def share_of(weights: Floats, trials: Sequence[Trial]) -> Floats:
    """(M,) mean weight of each candidate over the hidden entries; weights (M, D, G)."""
    share: Floats = np.mean([weights[:, t.distance, t.group].mean(axis=1) for t in trials], axis=0)
    return share


def mixed(errors: Floats, trial: Trial, weights: Floats) -> Floats:
    """(n,) errors of the blend with weights (M, D, G), from the errors (M, n) of the candidates in
    a trial: its `residual` or its `step`."""
    used = weights.any(axis=(1, 2))
    mix = weights[used][:, trial.distance, trial.group]
    blended: Floats = (mix * errors[used]).sum(axis=0)
    return blended


def _listed(candidates: Sequence[Candidate], numbers: Sequence[int]) -> str:
    """Return the names of the candidates with these numbers, joined by commas and "and"."""
    *others, last = (candidates[m].name for m in numbers)
    return f"{', '.join(others)} and {last}" if others else last


def _words(share: Floats, weights: Floats, candidates: Sequence[Candidate]) -> str:
    """Return a short description of a blend with weights (M, D, G): its candidates and their
    mean shares (M,)."""
    if (largest := int(np.argmax(share))) == 0 and share[0] > 0.9999:
        return f"{candidates[largest].name} alone"
    used = ((c, s) for c, s in zip(candidates, share, strict=True) if s >= 0.005)
    parts = (f"{c.name} {100 * s:.0f} %" for c, s in used)
    vary = " (shares vary with distance and band)" if np.ptp(weights, axis=(1, 2)).any() else ""
    return f"blend of {', '.join(parts)}{vary}"


def proven_weights(
    residuals: Sequence[Floats],
    steps: Sequence[Floats],
    trials: Sequence[Trial],
    counts: ClassCounts,
    default: Floats,
    seed: int,
    doubt: float = 1.0,
    borrowed: float = BORROWED,
    reaching: int = REACHING,
) -> tuple[Floats, Verdict]:
    """Return weights (K, D, G) of K candidates, and the verdict on them: the best weights if
    their gain over the default shares (K,) is proven, else the default shares in all classes.
    Deeper in the gaps than folds reach, the shares are always the default ones.

    residuals, steps: (K, n) of each trial; the latter are errors of the step to the next band.
    A blend whose loss in the steps is proven, and more than SPECTRA of its gain in values, is
    refused; a default with such a loss is replaced by the first candidate.
    doubt: standard errors that a gain must exceed.  borrowed, reaching: as BORROWED, REACHING.
    The squared error of a blend is a quadratic form in its weights, so only the matrices of error
    products of each fold and class are needed.
    """
    products, spectra = (_by_fold(errors, trials, counts) for errors in (residuals, steps))
    usual = _everywhere(default)
    in_steps, in_values = (_gain_over_first(usual, p, seed, doubt) for p in (spectra, products))
    usual_harms = _hurts_spectra(in_steps, in_values)
    fixed = _everywhere(np.eye(len(default))[0]) if usual_harms else usual
    depth = _depth(trials, reaching)

    def best(pooled: Floats) -> Floats:
        near = _blend(pooled[:depth], borrowed)
        return np.concatenate([near, fixed[:, depth:]], axis=1)

    left_out = (np.delete(products, i, axis=0).sum(axis=0) for i in range(len(trials)))
    cross_fitted = [best(pooled) for pooled in left_out]
    gain = _gain(fixed, cross_fitted, products, seed, doubt)
    verdict = Verdict(gain, gain.proven, usual_harms=usual_harms, usual=in_values)
    if not gain.proven:
        return fixed, verdict
    in_steps = _gain(fixed, cross_fitted, spectra, seed, doubt)
    if _hurts_spectra(in_steps, gain):
        return fixed, verdict._replace(used=False, worse_steps=-in_steps.mean)
    return best(products.sum(axis=0)), verdict


def _depth(trials: Sequence[Trial], reaching: int) -> int:
    """Return the number of distance classes, from the nearest on, in which enough folds hide
    entries."""
    folds = np.sum([np.bincount(t.distance, minlength=D) > 0 for t in trials], axis=0)
    too_few = folds < min(reaching, len(trials))
    return int(np.argmax(too_few)) if too_few.any() else D


def _hurts_spectra(spectra: Gain, values: Gain) -> bool:
    """Whether a blend loses too much in the steps between bands for its gain in values."""
    return spectra.loss_proven and -spectra.mean > SPECTRA * max(values.mean, 0.0)


def _everywhere(weights: Floats) -> Floats:
    """(K, D, G) weights (K,) repeated for all classes."""
    return np.broadcast_to(weights[:, None, None], (len(weights), D, BAND_GROUPS))


def _by_fold(errors: Sequence[Floats], trials: Sequence[Trial], counts: ClassCounts) -> Floats:
    """(folds, D, G, K, K + 1) `_products` of the errors (K, n) of each trial."""
    return np.stack(
        [_products(e, t, importance(t, counts)) for e, t in zip(errors, trials, strict=True)]
    )


def _gain_over_first(weights: Floats, products: Floats, seed: int, doubt: float) -> Gain:
    """Return the gain of fixed weights (K, D, G) over the first candidate alone."""
    first = _everywhere(np.eye(len(weights))[0])
    return _gain(first, [weights] * len(products), products, seed, doubt)


def _gain(
    before: Floats, after: Sequence[Floats], products: Floats, seed: int, doubt: float = 1.0
) -> Gain:
    """Return the gain of the weights `after`, one array per fold, over the weights `before`."""
    loss = np.array([(_loss(before, p), _loss(w, p)) for w, p in zip(after, products, strict=True)])
    n = len(loss)
    draws = np.random.default_rng(seed).integers(n, size=(BOOTSTRAPS, n))
    gains, mean = _gained(loss[draws].sum(axis=1)), float(_gained(loss.sum(axis=0)))
    correction = math.sqrt(n / (n - 1))  # bootstrap draws from few folds scatter too little
    return Gain(mean, correction * float(gains.std()), n, doubt)


def _gained(loss: Floats) -> Floats:
    """Return 1 - second / first of pairs of losses (..., 2); 0 where the first is 0."""
    before, after = loss[..., 0], loss[..., 1]
    share: Floats = np.where(before > 0, 1 - after / np.maximum(before, 1e-300), 0.0)
    return share


def _loss(weights: Floats, products: Floats) -> float:
    """Return the squared error of a blend with weights (K, D, G) in one fold."""
    K = len(weights)
    return float(np.einsum("idg,dgij,jdg->", weights, products[..., :K], weights))


def _products(residual: Floats, trial: Trial, weight: Floats) -> Floats:
    """(D, G, K, K + 1) weighted sums of products of residuals (K, n) by class; last, the sum of
    the weights.

    Every band counts alike, whatever the size of its error, as in a mean of PSNR over the bands.
    """
    K, bands = len(residual), int(trial.band.max()) + 1
    squares = np.bincount(trial.band, residual[0] ** 2, bands)
    scale = np.sqrt(squares / np.maximum(np.bincount(trial.band, minlength=bands), 1))
    scaled = residual / np.maximum(scale[trial.band], 1e-12)
    cell = trial.distance * BAND_GROUPS + trial.group
    products = np.zeros((D * BAND_GROUPS, K, K + 1))
    for i in range(K):
        for j in range(K):
            products[:, i, j] = np.bincount(cell, weight * scaled[i] * scaled[j], len(products))
    products[:, :, K] = np.bincount(cell, weight, len(products))[:, None]
    return products.reshape(D, BAND_GROUPS, K, K + 1)


def _blend(products: Floats, borrowed: float) -> Floats:
    """(K, D, G) convex weights of least squared error in each class, to whose products `borrowed`
    entries with the mean products of all classes are added."""
    classes, _, K, _ = products.shape
    pooled = products.sum(axis=(0, 1))
    mean = pooled[:, :K] / max(pooled[0, K], 1e-300)
    weights = np.empty((K, classes, BAND_GROUPS))
    for d in range(classes):
        for g in range(BAND_GROUPS):
            weights[:, d, g] = simplex(products[d, g, :, :K] + borrowed * mean)
    return weights


def simplex(A: Floats) -> Floats:
    """Return argmin wᵀ A w over w ≥ 0, Σ w = 1."""
    from scipy.optimize import nnls  # not at the top: children do not need this slow import

    K = len(A)
    scale = np.trace(A) / K
    if not scale > 0:
        first: Floats = np.eye(K)[0]
        return first
    root = np.linalg.cholesky(A / scale + 1e-6 * np.eye(K)).T
    w, _ = nnls(np.vstack([root, 1e3 * np.ones(K)]), np.r_[np.zeros(K), 1e3])
    convex: Floats = w / w.sum()
    return convex
