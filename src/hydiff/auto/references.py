"""Whether other images of the place help: the fill without them, blended with fills from them.

Letters: K = 1 + the candidates with a reference; the first is the fill without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import folds
from hydiff.auto.blend import Weights, advised, mixed, share_of
from hydiff.auto.candidates import WITH_REFERENCE, Candidate
from hydiff.auto.classes import NOTHING, Kinds, groups, kinds_of
from hydiff.auto.intervals import NORMAL_80, UNLIKE, errors_of
from hydiff.auto.recipe import Errors, ReferenceRecipe, Tried
from hydiff.auto.trials import Trial, TrialWindow, hidden_pixels, importance, looked_at, own_fits
from hydiff.auto.usual import SHAPE
from hydiff.cube import Bools, Floats, Ints
from hydiff.gaps import mask
from hydiff.gaps.rule import Sigma
from hydiff.methods.estimate import Job
from hydiff.reference.models import ReferencePlanes

REFERENCE_RULES = 2  # raised with every change to what is decided here
FOLDS = 6  # on which they are tried
BORROWED = 5e4  # entries: what relates two images differs little between classes of entries
FEWEST = 2  # folds below which nothing is concluded
LEAST_WORTH = 0.1  # dB: a band that gains less, by more than a standard error, does without
UNUSUAL = 3.0  # medians of the errors beyond which an entry counts less
LARGEST = 60.0  # dB; beyond it a gain is as good as any
# Logarithm by which square errors in gaps exceed those on hidden copies: what has changed there and
# nowhere else; of places at two dates that the benchmark does not have
CHANGE = 0.12


def candidates_for(windows: Sequence[TrialWindow]) -> tuple[Candidate, ...]:
    """What is tried: where pixels keep some bands, those matter more than how another image is
    related to the cube."""
    whole = all(mask.shared(window.observed).ndim == 2 for window in windows)
    return WITH_REFERENCE if whole else WITH_REFERENCE[:1]


def seen_by(references: Sequence[ReferencePlanes]) -> Bools:
    """(rows, cols) pixels that one of the references has."""
    seen: Bools = np.logical_or.reduce([one.observed for one in references])
    return seen


class Fold(NamedTuple):
    """Entries of a window that are hidden, (bands, rows, cols)."""

    window: TrialWindow
    hide: Bools


def decided(
    windows: Sequence[TrialWindow],
    tried: Sequence[Fold],
    trials: Sequence[Trial],
    beside: Sequence[Trial],
    without: Weights,
    seed: int,
) -> ReferenceRecipe | None:
    """What to do with the references of windows of a scene; None where too few folds say anything.

    trials: of the candidates without a reference on the folds that were tried, `without` their
    weights; beside: of those with one.
    """
    pairs = zip(tried, trials, beside, strict=False)  # the user may have had enough of them
    joint = [_joint(own, other, fold, without) for fold, own, other in pairs]
    both = [one for one in joint if one is not None]
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
    errors = _usual_errors(errors_of(both, final, kinds, bands, whole=False, by_gap=False))
    candidates = [Tried(c.name, c.method, dict(c.settings)) for c in candidates_for(windows)]
    return ReferenceRecipe(
        candidates=tuple(candidates),
        weights=weights.tolist(),
        errors=errors,
        why=why,
        worth=float(by_band[serves].mean() if used else by_band.mean()),
        by_band=tuple(by_band.tolist()),
        serves=tuple(serves.tolist()),
        used=used,
    )


def entry(recipe: ReferenceRecipe) -> dict[str, Any]:
    """As the recipe of a fill lists it."""
    tried = [
        {"name": c.name, "method": c.method, "settings": c.settings} for c in recipe.candidates
    ]
    return asdict(recipe) | {"candidates": tried}


def _usual_errors(errors: Errors) -> Errors:
    """Square errors as the 80 % interval of hidden entries says, and what changes in gaps alone.

    A flare or a new roof in one fold makes most of a mean square, and says nothing about the gaps:
    intervals stay as wide as they are, and the mean follows them as it usually does.
    """
    if errors.slopes is None or errors.level is None or not errors.widening:
        return errors
    usual = SHAPE[1] / NORMAL_80
    level = errors.level + 2 * math.log(errors.widening / usual) + CHANGE
    return replace(errors, level=level, widening=usual)


def _joint(own: Trial, other: Trial, fold: Fold, without: Weights) -> Trial | None:
    """One trial of the fill without a reference and of those with one, on the pixels that
    references see."""
    before, pixels = mixed(own, without.all), seen_by(fold.window.references)
    if not np.isfinite(before).all():  # networks were fitted on the first folds alone
        return None
    _, row, col = looked_at(fold.hide, fold.window.measured)
    there = pixels[row, col] & np.isfinite(other.residual).all(axis=0)
    if not there.any():
        return None
    residual = np.vstack([before, other.residual])[:, there]
    around = own.around[:, there].copy()
    around[UNLIKE] = _unlike(residual, row[there] * pixels.shape[1] + col[there])
    return own._replace(
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
    counts = [_usual(t.residual) for t in trials]
    residuals = [t.residual * c for t, c in zip(trials, counts, strict=True)]
    steps = [t.step * c for t, c in zip(trials, counts, strict=True) if t.step is not None]
    shares, words = advised(residuals, steps, trials, kinds, default, seed, borrowed=BORROWED)
    return np.array(shares), words


def _usual(residual: Floats) -> Floats:
    """(n,) factors of the errors (K, n) of entries, so that few bright pixels do not decide."""
    size = np.abs(residual).mean(axis=0)
    usual = UNUSUAL * float(np.median(size))
    factor: Floats = np.sqrt(np.minimum(1.0, usual / np.maximum(size, 1e-300)))
    return factor


def _worth(
    trials: Sequence[Trial], weights: Sequence[Floats], kinds: Kinds, bands: int
) -> tuple[Floats, Floats]:
    """(bands,) dB that the blend gains over its first member, mean over the folds, and the standard
    error of that; 0 where nothing was hidden."""
    gains = np.zeros((len(trials), bands))
    for gain, t, w in zip(gains, trials, weights, strict=True):
        count = importance(t, kinds) * _usual(t.residual) ** 2
        before = np.bincount(t.band, count * t.residual[0] ** 2, bands)
        after = np.bincount(t.band, count * mixed(t, w) ** 2, bands)
        ratio = np.maximum(before, 1e-300) / np.maximum(after, 1e-300)
        gain[:] = np.where(before > 0, np.clip(10 * np.log10(ratio), -LARGEST, LARGEST), 0.0)
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(len(trials))


class ReferenceFill(NamedTuple):
    """The entries that references serve."""

    served: Bools  # (bands, rows, cols)
    values: Floats  # (bands, rows, cols)
    estimates: list[Floats]  # (bands, rows, cols) the fill without, and those with a reference


def filled(
    recipe: ReferenceRecipe, window: TrialWindow, before: Floats, sigma_y: Sigma, job: Job
) -> ReferenceFill | None:
    """The fill `before` (bands, rows, cols), blended with those from references where they serve;
    None where they do not."""
    cube, observed, target, *_ = window
    serves = np.resize(recipe.serves, cube.bands) & cube.good_bands
    served = target & seen_by(window.references) & serves[:, None, None]
    if not (recipe.used and served.any()):
        return None
    job = job._replace(references=window.references)
    fits = own_fits([tried.candidate for tried in recipe.candidates], cube, observed, sigma_y, job)
    # what no reference can say, because too little of it is observed, stays as it was
    others = [np.where(np.isfinite(fit.values), fit.values, before) for fit in fits]
    weights = np.asarray(recipe.weights, dtype=np.float64)
    distance = folds.distance_class(mask.shared(observed))
    values, estimates = before.copy(), [before, *others]
    group = groups(cube.bands)
    for band in np.flatnonzero(served.any(axis=(1, 2))):
        near = distance if distance.ndim == 2 else distance[band]
        mean = sum(w[near, group[band]] * e[band] for w, e in zip(weights, estimates, strict=True))
        values[band] = np.where(served[band], mean, before[band])
    return ReferenceFill(served, values, estimates)
