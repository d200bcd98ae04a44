"""References, other images of the place: whether they help, and the fill without them blended with
fills from them.

Letters: K = 1 + the number of candidates with a reference; the first is the fill without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.blend import Weights, mixed, proven_weights, share_of
from hydiff.auto.candidates import BESIDE_PRIOR, CORRECTED, WITH_REFERENCE, Candidate, chosen
from hydiff.auto.classes import (
    NOTHING,
    Around,
    ClassCounts,
    among,
    around,
    class_counts,
    columns,
    distance_class,
    groups,
)
from hydiff.auto.folds import TrialWindow
from hydiff.auto.hidden import importance
from hydiff.auto.intervals import UNLIKE
from hydiff.auto.recipe import ReferenceRecipe, Tried, entry_of
from hydiff.auto.reference_errors import (
    around_with,
    counts_with,
    disagreement,
    errors_with,
    roughness,
    seen_by,
    usual_size,
)
from hydiff.auto.trials import Trial, hidden_pixels, looked_at, with_costly
from hydiff.cube import Bools, Floats, Ints
from hydiff.gaps import mask
from hydiff.maths.noise_level import Sigma
from hydiff.methods.estimate import Estimate, Job, estimate_at

REFERENCE_RULES = 7  # version of the rules of this decision, raised with every change
FOLDS = 6  # most folds on which references are tried
# as in `blend.proven_weights`: two images are related alike in all classes of entries, also deep in
# gaps
SHARED = {"borrowed": 50_000, "reaching": 0}
FEWEST = 2  # least number of folds for a decision
LEAST_WORTH = 0.1  # dB: references do not serve a band whose gain + standard error is not above it
LARGEST = 60.0  # dB: larger gains are clipped
# How far the weights of the models move towards shared ones, and the power of the squared error by
# which the shared weight of a worse model decreases
ALIKE, CLOSE = 0.5, 4.0
LEAST_SHARE = 0.1  # of the fill without a reference, at its largest; with less it is left out
ROUGH, STEEP = Around._fields.index("roughness"), Around._fields.index("steepness")


def candidates_for(
    windows: Sequence[TrialWindow], others: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Return the candidates with a reference, to try beside the `others` without one.

    Only one if some pixels keep bands, as these matter more than the relation to another image.
    """
    if any(mask.shared(window.observed).ndim == 3 for window in windows):
        return WITH_REFERENCE[:1]
    return WITH_REFERENCE[:BESIDE_PRIOR] if _with_prior(others) else WITH_REFERENCE


def networks_for(own: Sequence[Candidate], others: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return networks to try beside `own`, the candidates with a reference; empty without the prior
    among the others."""
    return (CORRECTED,) if len(own) > 1 and _with_prior(others) else ()


def _with_prior(candidates: Sequence[Candidate]) -> bool:
    """Whether a pretrained network is among the candidates."""
    return any(c.pretrained for c in candidates)


class Fold(NamedTuple):
    """A window, and its hidden entries (bands, rows, cols)."""

    window: TrialWindow
    hide: Bools


def with_networks(
    trials: Sequence[Trial],
    tried: Sequence[Fold],
    more: Sequence[Candidate],
    sigma_y: Sigma,
    job: Job,
) -> list[Trial]:
    """Return the trials with more candidates, whose networks run in the caller's process."""
    if not more:
        return list(trials)
    pairs = zip(trials, tried, strict=True)
    return [_with_network(trial, more, fold, sigma_y, job) for trial, fold in pairs]


def _with_network(
    trial: Trial, more: Sequence[Candidate], fold: Fold, sigma_y: Sigma, job: Job
) -> Trial:
    """Return one trial with the errors of more candidates on its fold."""
    cube, observed = fold.window.cube, fold.window.observed & ~fold.hide
    job = job._replace(references=fold.window.references)
    methods, pixels = [chosen(c) for c in more], hidden_pixels(fold.hide)
    fits = [x for x, _ in estimate_at(cube, observed, methods, sigma_y, job, pixels)]
    unknown = np.full((len(more), trial.residual.shape[1]), np.nan)
    residual, step = (np.vstack([errors, unknown]) for errors in (trial.residual, trial.step))
    wider = trial._replace(residual=residual, step=step)
    return with_costly(wider, dict(enumerate(fits, len(trial.residual))), fold.window, fold.hide)


def decide(
    windows: Sequence[TrialWindow],
    tried: Sequence[Fold],
    trials: Sequence[Trial],
    beside: Sequence[Trial],
    without: Weights,
    candidates: Sequence[Candidate],
    seed: int,
) -> ReferenceRecipe | None:
    """Return the decision about the references of a scene; None with too few folds, or if the
    references see no entry to fill.

    tried: the folds.  trials, beside: on these folds, of the candidates without a reference and of
    those with one, which are `candidates`.  without: weights of the former.
    """
    pairs = zip(tried, trials, beside, strict=False)  # the user may have ended the trials
    possible = (_joint(trial, other, fold, without) for fold, trial, other in pairs)
    joint = [j for j in possible if j is not None]
    joint_trials = [j.trial for j in joint]
    seen_windows = [
        w._replace(target=w.target & seen_by(w.references)) for w in windows if w.references
    ]
    if len(joint_trials) < FEWEST or not any(w.target.any() for w in seen_windows):
        return None
    counts, bands = class_counts(seen_windows), windows[0].cube.bands
    default = np.eye(len(joint_trials[0].residual))[0]
    weights, why = _weights(joint_trials, counts, default, seed)
    # the worth is measured on folds that were not used for the weights, if there are enough
    left_out = [
        _weights([*joint_trials[:i], *joint_trials[i + 1 :]], counts, default, seed)[0]
        if len(joint_trials) > FEWEST
        else weights
        for i in range(len(joint_trials))
    ]
    by_band, error = _worth(joint_trials, left_out, counts, bands)
    serves = by_band + error > LEAST_WORTH
    used = bool((weights[0] < 1).any() and by_band[serves].sum() > LEAST_WORTH * serves.sum())
    final = Weights(weights, weights, why, share_of(weights, joint_trials))
    featured = [j.with_features for j in joint]
    errors = errors_with(featured, final, counts_with(seen_windows), bands)
    return ReferenceRecipe(
        candidates=tuple(Tried(**entry_of(c)) for c in candidates),
        weights=weights.tolist(),
        errors=errors,
        why=why,
        worth=float(by_band[serves].mean() if used else by_band.mean()),
        by_band=tuple(by_band.tolist()),
        serves=tuple(serves.tolist()),
        used=used,
        default_elsewhere=_default_does(joint, counts, ~serves),
    )


class _Joint(NamedTuple):
    """The trial of the fill without a reference and of those with one, on the same entries."""

    trial: Trial
    default: Floats  # (n,) residuals of the default candidate
    shown: Floats  # (2, n) logarithms of features of the references: roughness, disagreement

    @property
    def with_features(self) -> Trial:
        """The trial with `shown` in place of the features of the cube alone."""
        around = self.trial.around.copy()
        around[[ROUGH, STEEP]] = self.shown
        return self.trial._replace(around=around)


def _joint(plain: Trial, with_reference: Trial, fold: Fold, without: Weights) -> _Joint | None:
    """Return the joint trial of a fold, on the pixels that references see.

    plain, with_reference: the trials of the candidates without and with a reference; without:
    weights of the former.  None if there is no such pixel, or networks were not tried on this fold.
    """
    without_reference = mixed(plain.residual, plain, without.all)
    seen = seen_by(fold.window.references)
    if not np.isfinite(without_reference).all():  # networks were fitted on the first folds alone
        return None
    _, row, col = looked_at(fold.hide, fold.window.measured)
    used = seen[row, col] & np.isfinite(with_reference.residual).all(axis=0)
    if not used.any():
        return None
    residual = np.vstack([without_reference, with_reference.residual])[:, used]
    around = plain.around[:, used].copy()
    around[UNLIKE] = _unlike(residual[1:], row[used] * seen.shape[1] + col[used])
    cube, observed, *_ = fold.window
    rough = roughness(fold.window.references)
    disagreement_map = disagreement(cube, observed & ~fold.hide, fold.window.references)
    at = row[used], col[used]
    logs = [
        np.log(np.maximum(plane[at], minimum))
        for plane, minimum in ((rough, NOTHING.roughness), (disagreement_map, NOTHING.steepness))
    ]
    trial = plain._replace(
        residual=residual,
        band=plain.band[used],
        group=plain.group[used],
        distance=plain.distance[used],
        around=around,
        noise=plain.noise[used],
        signal=plain.signal[used],
        angle=plain.angle[:, seen[hidden_pixels(fold.hide)]],
        step=np.vstack([mixed(plain.step, plain, without.all), with_reference.step])[:, used],
        gap=plain.gap[used],
    )
    return _Joint(trial, plain.residual[0, used], np.stack(logs))


def _unlike(residual: Floats, pixel: Ints) -> Floats:
    """(n,) logarithm of `Around.unlike`, the difference of the fills of a pixel.

    residual (K, n): its differences are those of the fills.  pixel (n,): number of the pixel.
    """
    _, number = np.unique(pixel, return_inverse=True)
    total = np.bincount(number, residual.var(axis=0)) / np.bincount(number)
    return np.log(np.maximum(np.sqrt(total), NOTHING.unlike))[number]


def _weights(
    trials: Sequence[Trial], counts: ClassCounts, default: Floats, seed: int
) -> tuple[Floats, str]:
    """Return weights (K, D, G), those of similarly good models drawn together, and why."""
    factors = [usual_size(t.residual) for t in trials]
    residuals = [t.residual * c for t, c in zip(trials, factors, strict=True)]
    steps = [t.step * c for t, c in zip(trials, factors, strict=True)]
    shares, verdict = proven_weights(residuals, steps, trials, counts, default, seed, **SHARED)
    weights = np.array(shares)
    # few folds cannot distinguish models that are nearly as good: bring their weights together
    square = np.mean([np.square(r[1:]).mean(axis=1) for r in residuals], axis=0) + 1e-300
    equal = (square.min() / square) ** CLOSE
    shared = (equal / equal.sum())[:, None, None] * (1 - weights[0])
    weights[1:] += ALIKE * (shared - weights[1:])
    if 0 < weights[0].max() < LEAST_SHARE:  # not worth the time of that fill
        weights[0] = 0
        weights /= weights.sum(axis=0)
    return weights, str(verdict)


def _worth(
    trials: Sequence[Trial], weights: Sequence[Floats], counts: ClassCounts, bands: int
) -> tuple[Floats, Floats]:
    """(bands,) gain in dB of the blend over the fill without a reference, mean over the folds, and
    its standard error; 0 in bands without hidden entries."""
    gains = np.zeros((len(trials), bands))
    for gain, t, w in zip(gains, trials, weights, strict=True):
        weight = importance(t, counts) * usual_size(t.residual) ** 2
        before = np.bincount(t.band, weight * t.residual[0] ** 2, bands)
        after = np.bincount(t.band, weight * mixed(t.residual, t, w) ** 2, bands)
        ratio = np.maximum(before, 1e-300) / np.maximum(after, 1e-300)
        gain[:] = np.where(before > 0, np.clip(10 * np.log10(ratio), -LARGEST, LARGEST), 0.0)
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(trials))


def _default_does(joint: Sequence[_Joint], counts: ClassCounts, bands: Bools) -> bool:
    """Whether the default candidate can replace the blend without a reference in some bands: if the
    gain of the blend there, minus its standard error, times their share of all bands is at most
    LEAST_WORTH."""
    gains = []
    for trial, default, _ in joint:
        entries = bands[trial.band]
        weight = importance(trial, counts) * usual_size(trial.residual) ** 2 * entries
        if weight.any():
            before, after = (weight @ np.square(errors) for errors in (default, trial.residual[0]))
            gains.append(10 * np.log10(max(before, 1e-300) / max(after, 1e-300)))
    if len(gains) < FEWEST:
        return not bands.any()
    proven = np.mean(gains) - np.std(gains, ddof=1) / np.sqrt(len(gains))
    return bool(bands.mean() * proven <= LEAST_WORTH)


def served_by(recipe: ReferenceRecipe, window: TrialWindow) -> Bools:
    """(bands, rows, cols) entries to fill that are filled from references."""
    cube, target = window.cube, window.target
    if not (recipe.used and window.references):
        return np.zeros(target.shape, bool)
    serves = np.resize(recipe.serves, cube.bands) & cube.good_bands
    served: Bools = target & seen_by(window.references) & serves[:, None, None]
    return served


def serves_all(recipe: ReferenceRecipe | None, window: TrialWindow) -> bool:
    """Whether references serve all entries to fill, of which there is at least one."""
    if recipe is None or not window.target.any():
        return False
    return bool(np.array_equal(served_by(recipe, window), window.target))


def spares(recipe: ReferenceRecipe | None, window: TrialWindow) -> bool:
    """Whether the default candidate is enough as the fill without a reference: that fill has no
    weight in the blend with references, and references serve all entries to fill, or all but those
    of bands in which the default candidate is as good."""
    if recipe is None or np.asarray(recipe.weights[0]).any():
        return False
    served, good = served_by(recipe, window), window.cube.good_bands  # bad bands do not count
    unserved = (window.target & ~served).any(axis=(1, 2)) & good
    serves = np.resize(recipe.serves, window.cube.bands)
    return not unserved.any() or (
        recipe.default_elsewhere and recipe.used and not unserved[serves].any()
    )


def serving(recipe: ReferenceRecipe | None, window: TrialWindow) -> list[Candidate]:
    """Return the candidates with a reference that take part in the fill of a window."""
    if recipe is None or not served_by(recipe, window).any():
        return []
    return [tried.candidate for tried in recipe.candidates]


class ReferenceFill(NamedTuple):
    """A fill with the entries that references serve."""

    served: Bools  # (bands, rows, cols)
    values: Floats  # (bands, rows, cols), or (bands, 1, n) at the pixels `at`
    features: Around  # of the pixels with such entries


def filled(
    recipe: ReferenceRecipe,
    window: TrialWindow,
    plain: Estimate,
    fits: Sequence[Estimate],
    at: Bools | None,
) -> ReferenceFill:
    """Return the fill without references (plain), blended with those of the candidates `serving`
    (fits) where they serve; at: pixels of all these estimates, as in `estimate_each`."""
    cube, observed, *_ = window
    served, before = served_by(recipe, window), plain.values
    # where a fit has no value, because too little is observed, the fill without references stays
    others = [np.where(np.isfinite(fit.values), fit.values, before) for fit in fits]
    weights = np.asarray(recipe.weights, dtype=np.float64)
    distance, wanted = distance_class(observed, at), columns(served, at)
    values, estimates = before.copy(), [before, *others]
    group = groups(cube.bands)
    for band in np.flatnonzero(served.any(axis=(1, 2))):
        near = distance if distance.ndim == 2 else distance[band]
        mean = sum(w[near, group[band]] * e[band] for w, e in zip(weights, estimates, strict=True))
        values[band] = np.where(wanted[band], mean, before[band])
    pixels = np.asarray(served.any(axis=0))
    pixels_at = among(pixels, at)
    features = around(cube, observed, [e[:, pixels_at] for e in others], pixels, served[:, pixels])
    features = around_with(features, cube, observed, window.references, pixels)
    return ReferenceFill(served, values, features)
