"""Whether other images of the place help: the fill without them, blended with fills from them.

Letters: K = 1 + the candidates with a reference; the first is the fill without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import folds
from hydiff.auto.blend import Weights, advised, mixed, share_of
from hydiff.auto.candidates import (
    BESIDE_PRIOR,
    CORRECTED,
    WITH_REFERENCE,
    Candidate,
    chosen,
)
from hydiff.auto.classes import (
    NOTHING,
    Around,
    Kinds,
    among,
    around,
    columns,
    groups,
    kinds_of,
)
from hydiff.auto.intervals import UNLIKE
from hydiff.auto.recipe import ReferenceRecipe, Tried
from hydiff.auto.reference_errors import (
    around_with,
    disagreement,
    errors_with,
    kinds_with,
    roughness,
    seen_by,
    usual_size,
)
from hydiff.auto.trials import (
    Trial,
    TrialWindow,
    hidden_pixels,
    importance,
    looked_at,
    with_costly,
)
from hydiff.cube import Bools, Floats, Ints
from hydiff.gaps import mask
from hydiff.gaps.rule import Sigma
from hydiff.learn.prior_weights import digest, packaged
from hydiff.methods.estimate import Estimate, Job, estimate_at

REFERENCE_RULES = 7  # raised with every change to what is decided here
FOLDS = 6  # on which they are tried
BORROWED = 5e4  # entries: what relates two images differs little between classes of entries
FEWEST = 2  # folds below which nothing is concluded
LEAST_WORTH = 0.1  # dB: a band that gains less, by more than a standard error, does without
LARGEST = 60.0  # dB; beyond it a gain is as good as any
# how far the shares of models are brought to equal ones, less the power of square errors for those
# that are not as good
ALIKE, CLOSE = 0.5, 4.0
LEAST_SHARE = 0.1  # of the fill without a reference, in the class where it has most
ROUGH, STEEP = Around._fields.index("roughness"), Around._fields.index("steepness")


def candidates_for(
    windows: Sequence[TrialWindow], others: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """What is tried, beside the others, without a reference: where pixels keep some bands, those
    matter more than how another image is related to the cube."""
    if any(mask.shared(window.observed).ndim == 3 for window in windows):
        return WITH_REFERENCE[:1]
    return WITH_REFERENCE[:BESIDE_PRIOR] if _with_prior(others) else WITH_REFERENCE


def networks_for(own: Sequence[Candidate], others: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """What is tried beside `own`, those with a reference, where the prior is among the others."""
    return (CORRECTED,) if len(own) > 1 and _with_prior(others) else ()


def _with_prior(candidates: Sequence[Candidate]) -> bool:
    return any(c.pretrained for c in candidates)


class Fold(NamedTuple):
    """Entries of a window that are hidden, (bands, rows, cols)."""

    window: TrialWindow
    hide: Bools


def with_networks(
    trials: Sequence[Trial],
    tried: Sequence[Fold],
    more: Sequence[Candidate],
    sigma_y: Sigma,
    job: Job,
) -> list[Trial]:
    """The trials with more candidates, whose networks run in the process of the caller."""
    if not more:
        return list(trials)
    pairs = zip(trials, tried, strict=True)
    return [_with_network(trial, more, fold, sigma_y, job) for trial, fold in pairs]


def _with_network(
    trial: Trial, more: Sequence[Candidate], fold: Fold, sigma_y: Sigma, job: Job
) -> Trial:
    cube, observed = fold.window.cube, fold.window.observed & ~fold.hide
    job = job._replace(references=fold.window.references)
    several, pixels = [chosen(c) for c in more], hidden_pixels(fold.hide)
    fits = [x for x, _ in estimate_at(cube, observed, several, sigma_y, job, pixels)]
    unknown = np.full((len(more), trial.residual.shape[1]), np.nan)
    step = None if trial.step is None else np.vstack([trial.step, unknown])
    wider = trial._replace(residual=np.vstack([trial.residual, unknown]), step=step)
    return with_costly(wider, dict(enumerate(fits, len(trial.residual))), fold.window, fold.hide)


def decided(
    windows: Sequence[TrialWindow],
    tried: Sequence[Fold],
    trials: Sequence[Trial],
    beside: Sequence[Trial],
    without: Weights,
    candidates: Sequence[Candidate],
    seed: int,
) -> ReferenceRecipe | None:
    """What to do with the references of windows of a scene; None where too few folds say anything.

    trials: of the candidates without a reference on the folds that were tried, `without` their
    weights; beside: of those with one, `candidates`.
    """
    pairs = zip(tried, trials, beside, strict=False)  # the user may have had enough of them
    joint = [_joint(own, other, fold, without) for fold, own, other in pairs]
    both = [one.trial for one in joint if one is not None]
    aims = [w._replace(target=w.target & seen_by(w.references)) for w in windows if w.references]
    if len(both) < FEWEST or not any(w.target.any() for w in aims):
        return None
    kinds, bands = kinds_of(aims), windows[0].cube.bands
    default = np.eye(len(both[0].residual))[0]
    weights, why = _weights(both, kinds, default, seed)
    # what it is worth is said of folds that had no part in the weights
    left_out = [
        _weights([*both[:i], *both[i + 1 :]], kinds, default, seed)[0]
        if len(both) > FEWEST
        else weights
        for i in range(len(both))
    ]
    by_band, error = _worth(both, left_out, kinds, bands)
    serves = by_band + error > LEAST_WORTH
    used = bool((weights[0] < 1).any() and by_band[serves].sum() > LEAST_WORTH * serves.sum())
    final = Weights(weights, weights, why, share_of(weights, both))
    shown = [one.with_features for one in joint if one is not None]
    errors = errors_with(shown, final, kinds_with(aims), bands)
    return ReferenceRecipe(
        candidates=tuple(_tried(c) for c in candidates),
        weights=weights.tolist(),
        errors=errors,
        why=why,
        worth=float(by_band[serves].mean() if used else by_band.mean()),
        by_band=tuple(by_band.tolist()),
        serves=tuple(serves.tolist()),
        used=used,
        default_elsewhere=_default_does([one for one in joint if one is not None], kinds, ~serves),
    )


def entry(recipe: ReferenceRecipe) -> dict[str, Any]:
    """As the recipe of a fill lists it."""
    tried = [
        {"name": c.name, "method": c.method, "settings": c.settings}
        | ({} if c.weights is None else {"weights": c.weights})
        for c in recipe.candidates
    ]
    return asdict(recipe) | {"candidates": tried}


def _tried(c: Candidate) -> Tried:
    """Without text among its settings, which may name a file; its weights by their hash."""
    settings = {name: value for name, value in c.settings.items() if not isinstance(value, str)}
    weights = digest(packaged(str(c.settings["size"]))) if c.pretrained else None
    return Tried(c.name, c.method, settings, weights=weights)


class _Joint(NamedTuple):
    """The trial of the fill without a reference and of those with one, on the same entries."""

    trial: Trial
    default: Floats  # (n,) errors of the default candidate, as residuals of the trial are
    shown: Floats  # (2, n) logarithms of what references show: roughness, and disagreement

    @property
    def with_features(self) -> Trial:
        around = self.trial.around.copy()
        around[[ROUGH, STEEP]] = self.shown
        return self.trial._replace(around=around)


def _joint(own: Trial, other: Trial, fold: Fold, without: Weights) -> _Joint | None:
    """One trial of the fill without a reference and of those with one, on the pixels that
    references see; None where there are none."""
    before, pixels = mixed(own, without.all), seen_by(fold.window.references)
    if not np.isfinite(before).all():  # networks were fitted on the first folds alone
        return None
    _, row, col = looked_at(fold.hide, fold.window.measured)
    there = pixels[row, col] & np.isfinite(other.residual).all(axis=0)
    if not there.any():
        return None
    residual = np.vstack([before, other.residual])[:, there]
    around = own.around[:, there].copy()
    around[UNLIKE] = _unlike(residual[1:], row[there] * pixels.shape[1] + col[there])
    cube, observed, *_ = fold.window
    rough = roughness(fold.window.references)
    apart = disagreement(cube, observed & ~fold.hide, fold.window.references)
    at = row[there], col[there]
    shown = [
        np.log(np.maximum(plane[at], least))
        for plane, least in ((rough, NOTHING.roughness), (apart, NOTHING.steepness))
    ]
    trial = own._replace(
        residual=residual,
        band=own.band[there],
        group=own.group[there],
        distance=own.distance[there],
        around=around,
        noise=own.noise[there],
        angle=own.angle[:, pixels[hidden_pixels(fold.hide)]],
        step=_steps(own, other, without, there),
        gap=None if own.gap is None else own.gap[there],
    )
    return _Joint(trial, own.residual[0, there], np.stack(shown))


def _steps(own: Trial, other: Trial, without: Weights, there: Bools) -> Floats | None:
    if own.step is None or other.step is None:
        return None
    before = mixed(own._replace(residual=own.step), without.all)
    return np.vstack([before, other.step])[:, there]


def _unlike(residual: Floats, pixel: Ints) -> Floats:
    """(n,) logarithm of how far the fills of a pixel are apart, as `Around` has it: residuals
    (K, n) differ as the estimates do."""
    _, number = np.unique(pixel, return_inverse=True)
    total = np.bincount(number, residual.var(axis=0)) / np.bincount(number)
    return np.log(np.maximum(np.sqrt(total), NOTHING.unlike))[number]


def _weights(
    trials: Sequence[Trial], kinds: Kinds, default: Floats, seed: int
) -> tuple[Floats, str]:
    counts = [usual_size(t.residual) for t in trials]
    residuals = [t.residual * c for t, c in zip(trials, counts, strict=True)]
    steps = [t.step * c for t, c in zip(trials, counts, strict=True) if t.step is not None]
    shares, words = advised(residuals, steps, trials, kinds, default, seed, borrowed=BORROWED)
    weights = np.array(shares)
    # six folds hardly tell models that are nearly as good from one another
    square = np.mean([np.square(r[1:]).mean(axis=1) for r in residuals], axis=0) + 1e-300
    equal = (square.min() / square) ** CLOSE
    shared = (equal / equal.sum())[:, None, None] * (1 - weights[0])
    weights[1:] += ALIKE * (shared - weights[1:])
    if 0 < weights[0].max() < LEAST_SHARE:  # not worth its time
        weights[0] = 0
        weights /= weights.sum(axis=0)
    return weights, words


def _worth(
    trials: Sequence[Trial], weights: Sequence[Floats], kinds: Kinds, bands: int
) -> tuple[Floats, Floats]:
    """(bands,) dB that the blend gains over its first member, mean over the folds, and the standard
    error of that; 0 where nothing was hidden."""
    gains = np.zeros((len(trials), bands))
    for gain, t, w in zip(gains, trials, weights, strict=True):
        count = importance(t, kinds) * usual_size(t.residual) ** 2
        before = np.bincount(t.band, count * t.residual[0] ** 2, bands)
        after = np.bincount(t.band, count * mixed(t, w) ** 2, bands)
        ratio = np.maximum(before, 1e-300) / np.maximum(after, 1e-300)
        gain[:] = np.where(before > 0, np.clip(10 * np.log10(ratio), -LARGEST, LARGEST), 0.0)
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(trials))


def _default_does(joint: Sequence[_Joint], kinds: Kinds, bands: Bools) -> bool:
    """Whether the default candidate does for the blend without a reference, in some bands: what the
    blend gains there, less its standard error, counts by their share of all bands."""
    gains = []
    for trial, default, _ in joint:
        own = bands[trial.band]
        count = importance(trial, kinds) * usual_size(trial.residual) ** 2 * own
        if count.any():
            before, after = (count @ np.square(off) for off in (default, trial.residual[0]))
            gains.append(10 * np.log10(max(before, 1e-300) / max(after, 1e-300)))
    if len(gains) < FEWEST:
        return not bands.any()
    proven = np.mean(gains) - np.std(gains, ddof=1) / np.sqrt(len(gains))
    return bool(bands.mean() * proven <= LEAST_WORTH)


def served_by(recipe: ReferenceRecipe, window: TrialWindow) -> Bools:
    """(bands, rows, cols) what references fill of the entries to fill."""
    cube, target = window.cube, window.target
    if not (recipe.used and window.references):
        return np.zeros(target.shape, bool)
    serves = np.resize(recipe.serves, cube.bands) & cube.good_bands
    served: Bools = target & seen_by(window.references) & serves[:, None, None]
    return served


def serves_all(recipe: ReferenceRecipe | None, window: TrialWindow) -> bool:
    """Whether references serve all that is to be filled."""
    if recipe is None or not window.target.any():
        return False
    return bool(np.array_equal(served_by(recipe, window), window.target))


def spares(recipe: ReferenceRecipe | None, window: TrialWindow) -> bool:
    """Whether the default stands in for the fill without a reference: nothing of that is left in
    the one with it, or only bands in which the default does as well."""
    if recipe is None or np.asarray(recipe.weights[0]).any():
        return False
    served, good = served_by(recipe, window), window.cube.good_bands  # others are filled plainly
    left = (window.target & ~served).any(axis=(1, 2)) & good
    serves = np.resize(recipe.serves, window.cube.bands)
    return not left.any() or (recipe.default_elsewhere and recipe.used and not left[serves].any())


def serving(recipe: ReferenceRecipe | None, window: TrialWindow) -> list[Candidate]:
    """The candidates that take part in the fill of a window."""
    if recipe is None or not served_by(recipe, window).any():
        return []
    return [tried.candidate for tried in recipe.candidates]


class ReferenceFill(NamedTuple):
    """The entries that references serve."""

    served: Bools  # (bands, rows, cols)
    values: Floats  # (bands, rows, cols), or of the pixels that are wanted
    lies: Around  # of the pixels with such entries


def filled(
    recipe: ReferenceRecipe,
    window: TrialWindow,
    plain: Estimate,
    fits: Sequence[Estimate],
    at: Bools | None,
) -> ReferenceFill:
    """The fill without references, blended with those of the candidates `serving` where they serve;
    at: the pixels that all of them are of, as of `estimate_each`."""
    cube, observed, *_ = window
    served, before = served_by(recipe, window), plain.values
    # what no reference can say, because too little of it is observed, stays as it was
    others = [np.where(np.isfinite(fit.values), fit.values, before) for fit in fits]
    weights = np.asarray(recipe.weights, dtype=np.float64)
    distance, wanted = folds.distance_class(mask.shared(observed)), columns(served, at)
    if at is not None:
        distance = distance[at][None] if distance.ndim == 2 else columns(distance, at)
    values, estimates = before.copy(), [before, *others]
    group = groups(cube.bands)
    for band in np.flatnonzero(served.any(axis=(1, 2))):
        near = distance if distance.ndim == 2 else distance[band]
        mean = sum(w[near, group[band]] * e[band] for w, e in zip(weights, estimates, strict=True))
        values[band] = np.where(wanted[band], mean, before[band])
    pixels = np.asarray(served.any(axis=0))
    there = among(pixels, at)
    lies = around(cube, observed, [e[:, there] for e in others], pixels, served[:, pixels])
    lies = around_with(lies, cube, observed, window.references, pixels)
    return ReferenceFill(served, values, lies)
