"""Fill a cube by a recipe: blend the candidates that it uses, with error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import references, split, wording
from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import (
    BAND_GROUPS,
    Around,
    D,
    among,
    around,
    band_spread,
    columns,
    distance_class,
    groups,
    spread_out,
    usable,
)
from hydiff.auto.fits import crossfit, mean_estimate, own_fits
from hydiff.auto.folds import TrialWindow, folds_of
from hydiff.auto.intervals import HOPELESS, Scored, expected_by_kind, promises, variance_of, warning
from hydiff.auto.recipe import Errors, KindRecipe, Recipe, Tried
from hydiff.auto.sources import Sourced, sources
from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.maths.noise_level import Sigma
from hydiff.methods.estimate import Estimate, Job

NO_BARS = "no error bars, and no scores to expect"
Ready = Mapping[str, Mapping[str, Estimate]]  # available estimates, by kind of gaps and candidate


class Decision(NamedTuple):
    """The recipe of a fill, and the errors to expect of it."""

    recipe: dict[str, Any]
    expected: dict[str, float]  # nrmse, mpsnr (dB), sam (°) of the filled entries
    too_uncertain: Bools  # (bands, rows, cols) entries whose error may exceed `max_error`
    sources: Array  # (bands, rows, cols) bits of `flags`: origin of the values
    doubtful: float = 0.0  # share of filled entries hardly better than their band's mean
    by_kind: Mapping[str, dict[str, float]] = {}  # `expected` of each kind of gaps (`split`)
    entries: Mapping[str, int] = {}  # number of filled entries of each kind
    with_reference: int = 0  # number of entries filled from references

    @property
    def both_kinds(self) -> Mapping[str, dict[str, float]] | None:
        """`by_kind` if there are several kinds of gaps, else None."""
        return self.by_kind if len(self.by_kind) > 1 else None


class Blend(NamedTuple):
    """The fill of a window by a recipe, or of some of its pixels (`at` of `estimate_each`)."""

    estimate: Estimate
    plain: list[Floats]  # values of the candidates without a network
    beside: list[Estimate]  # estimates of candidates outside the blend


class KindFill(NamedTuple):
    """The fill of gaps of one kind, for a whole window or n of its pixels."""

    kind: str
    recipe: KindRecipe
    window: TrialWindow
    estimate: Estimate
    variance: Floats | None  # in the cube's unit squared, of these pixels; None = unknown
    others: Sequence[Estimate] = ()  # estimates of the candidates with a reference


def apply(
    recipe: dict[str, Any],
    window: TrialWindow,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
    max_error: float | None = None,
    at: Bools | None = None,
) -> tuple[Estimate, Decision]:
    """Estimate the cube of a window by a recipe, with error bars and expected scores.

    ready: available estimates of candidates.  max_error: in standard deviations of a band; entries
    are too uncertain if the upper bound of their expected error exceeds it.  at: mask (rows, cols)
    of the n pixels with entries to fill, for an estimate (bands, 1, n) of these; None = all.
    """
    cube, observed, target, *_ = window
    parts = _parts(Recipe.of(recipe), window, at, sigma_y, job, ready)
    parts, reference_parts = _with_references(parts, at)
    estimate, too_uncertain = _joined(parts, at), np.zeros(observed.shape, bool)
    how = [wording.note_of(part.recipe, part.kind if len(parts) > 1 else None) for part in parts]
    count = sum(int(part.window.target.sum()) for part in reference_parts)
    filled = [Sourced(part.recipe, part.window) for part in parts]
    filled += [Sourced(part.recipe, part.window, served=True) for part in reference_parts]
    origin = sources(filled, observed.shape)
    judged_parts = [part for part in (*parts, *reference_parts) if part.variance is not None]
    if not judged_parts:
        estimate = estimate._replace(notes=[*how, *estimate.notes])
        return estimate, Decision(recipe, {}, too_uncertain, origin, with_reference=count)
    wanted = columns(target, at)
    variance, sigma, worst = _bars(judged_parts, wanted, at)
    extent = None if job.common is None else job.common.extent
    spread = band_spread(cube, observed) if extent is None else extent.spread
    relative = np.sqrt(variance) / spread[:, None, None]
    if max_error is not None:  # entries of unknown error are too uncertain, too
        too_far = wanted & ~(relative * worst <= max_error)
        too_uncertain = spread_out(too_far, at, too_uncertain)
        wanted = wanted & ~too_far
    fill = Scored(cube, observed, estimate.values, variance, estimate.sigma_y, extent, at)
    targets = {part.kind: columns(part.window.target, at) & wanted for part in judged_parts}
    errors = {part.kind: part.recipe.errors for part in judged_parts}
    expected, by_kind = expected_by_kind(fill, targets, errors)
    scored = wanted & cube.good_bands[:, None, None]
    doubtful = float((relative > HOPELESS)[scored].mean()) if scored.any() else 0.0
    entries = {kind: int(filled.sum()) for kind, filled in targets.items()}
    notes = [*how, *promises(expected, by_kind, entries, recipe)]
    notes += [warning(doubtful)] if doubtful else []
    notes += estimate.notes
    decision = Decision(recipe, expected, too_uncertain, origin, doubtful, by_kind, entries, count)
    return estimate._replace(sigma=sigma, notes=notes), decision


def _parts(
    recipe: Recipe,
    window: TrialWindow,
    at: Bools | None,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
) -> list[KindFill]:
    """Return the fill of each kind of gaps, pixels that keep some bands first."""
    cube, observed, *_ = window
    kinds = split.kinds_in(cube, observed) or [split.NONE]
    if len(kinds) < 2:
        return [_part(kinds[0], recipe, window, at, sigma_y, job, ready)]
    # for all pixels, even outside `at`: gaps of the other kind are filled from the completed cube
    first = _part(split.SOME, recipe, split.for_some(window), None, sigma_y, job, ready)
    completed = first.estimate
    if at is not None:
        variance = None if first.variance is None else columns(first.variance, at)
        others = [estimate.at(at) for estimate in first.others]
        first = first._replace(estimate=completed.at(at), variance=variance, others=others)
    if not split.fills_lost_pixels(window):
        return [first]
    lost_window, noise = split.for_none(window, completed.values), noise_of(sigma_y, [completed])
    return [first, _part(split.NONE, recipe, lost_window, at, noise, job, ready)]


def _part(
    kind: str,
    recipe: Recipe,
    window: TrialWindow,
    at: Bools | None,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
) -> KindFill:
    """Return the fill of gaps of one kind; its variance is None if references fill it all."""
    part_recipe = _recipe_of(kind, recipe)
    if references.spares(part_recipe.with_reference, window):
        part_recipe = _by_default(part_recipe)
    with_reference = references.serving(part_recipe.with_reference, window)
    blend = blended(part_recipe, window, sigma_y, job, ready.get(kind, {}), at, with_reference)
    if references.serves_all(part_recipe.with_reference, window):
        return KindFill(kind, part_recipe, window, blend.estimate, None, blend.beside)
    variance = _variance(part_recipe.errors, window, at, blend.plain)
    if variance is not None and blend.estimate.excess is not None:
        variance *= blend.estimate.excess  # of these pixels; trials show the usual variance
    return KindFill(kind, part_recipe, window, blend.estimate, variance, blend.beside)


def _by_default(recipe: KindRecipe) -> KindRecipe:
    """Return a recipe that fills with the first candidate; the others without a network stay, with
    weight 0, as their differences predict the error."""
    plain = tuple(tried for tried in recipe.candidates if tried.plain)
    weights = tuple(((share,) * BAND_GROUPS,) * D for share in (1.0, *[0.0] * (len(plain) - 1)))
    return replace(recipe, candidates=plain, weights=weights)


def _with_references(
    parts: Sequence[KindFill], at: Bools | None
) -> tuple[list[KindFill], list[KindFill]]:
    """Return the parts with the values from references inserted, and the entries filled from
    references as separate parts, since their errors differ."""
    changed, reference_parts = [], []
    for part in parts:
        reference_recipe = part.recipe.with_reference
        if reference_recipe is None or not part.others:
            changed.append(part)
            continue
        fill = references.filled(reference_recipe, part.window, part.estimate, part.others, at)
        window = part.window._replace(target=fill.served)
        estimate = part.estimate._replace(values=fill.values)
        rest_window = part.window._replace(target=part.window.target & ~fill.served)
        changed.append(part._replace(window=rest_window, estimate=estimate))
        errors = replace(part.recipe, errors=reference_recipe.errors)
        variance = None
        if reference_recipe.errors.slopes is not None:
            variance = _placed(reference_recipe.errors, window, at, fill.features)
        kind = f"{part.kind}, with a reference"
        reference_parts.append(KindFill(kind, errors, window, estimate, variance))
    return changed, reference_parts


def _recipe_of(kind: str, recipe: Recipe) -> KindRecipe:
    """Return the recipe for gaps of a kind; without error bars if it was decided on the other."""
    if recipe.gaps == kind:
        return recipe
    if kind == split.SOME and recipe.partial is not None:
        return recipe.partial
    return replace(recipe, errors=replace(recipe.errors, slopes=None))


def noise_of(sigma_y: Sigma, estimates: Sequence[Estimate]) -> Sigma:
    """Return the noise for a completed cube: if it is to be estimated, that of the estimates, since
    completed entries contain no noise."""
    if not isinstance(sigma_y, str):
        return sigma_y
    return np.median([e.sigma_y for e in estimates], axis=0)


def _joined(parts: Sequence[KindFill], at: Bools | None) -> Estimate:
    """Return one estimate from those of the parts, with the notes of their candidates and those on
    missing error bars."""
    first, last = parts[0], parts[-1]
    notes = [*dict.fromkeys(note for part in parts for note in part.estimate.notes)]
    notes += [_unknown(p) for p in parts if p.variance is None and p.window.target.any()]
    values = last.estimate.values
    if (gaps := first.window.gaps) is not None:
        inside = gaps.any(axis=0) & usable(first.window.cube, first.window.observed)[:, None, None]
        values = np.where(columns(inside, at), first.estimate.values, values)
    return first.estimate._replace(values=values, sigma=None, notes=notes)


def _unknown(part: KindFill) -> str:
    """Return a note that states why a part has no error bars."""
    if part.recipe.gaps != part.kind:
        return f"the recipe was decided without {part.kind}: {NO_BARS}"
    where = "" if part.window.gaps is None else f" of {part.kind}"
    return f"too few observed pixels to say how good the fill{where} is: {NO_BARS}"


def _bars(
    parts: Sequence[KindFill], target: Bools, at: Bools | None
) -> tuple[Floats, Floats, Floats]:
    """Return variance, 1-σ error bar, and upper bound of true / expected error, of all entries to
    fill; the first two are NaN outside the parts."""
    variance, sigma = np.where(target, np.nan, 0.0), np.where(target, np.nan, 0.0)
    worst = np.ones(target.shape)
    for part in parts:
        assert part.variance is not None and part.recipe.errors.widening is not None
        entries = columns(part.window.target, at)
        np.copyto(variance, part.variance, where=entries)
        np.copyto(sigma, np.sqrt(part.variance) * part.recipe.errors.widening, where=entries)
        worst[entries] = part.recipe.errors.bounds[-1]
    return variance, sigma, worst


def blended(
    recipe: KindRecipe,
    window: TrialWindow,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
    at: Bools | None = None,
    beside: Sequence[Candidate] = (),
) -> Blend:
    """Return the blend of a recipe for gaps of one kind; at: as in `estimate_each`.

    beside: candidates to estimate too, outside the blend; they share work with the others.
    """
    weights = np.asarray(recipe.weights, dtype=np.float64)
    plain = [tried.plain for tried in recipe.candidates]
    used: Bools = np.asarray(weights.any(axis=(1, 2))) | plain  # their differences are a feature
    members = [tried for tried, is_used in zip(recipe.candidates, used, strict=True) if is_used]
    estimates, others = _candidates(members, window, sigma_y, job, ready, at, beside)
    distance = distance_class(window.observed, at)
    values = _mean(estimates, weights[used], distance, window.cube)
    notes = list(dict.fromkeys(note for x in estimates for note in x.notes))
    plain_fills = [x.values for x, e in zip(estimates, members, strict=True) if e.plain]
    return Blend(estimates[0]._replace(values=values, sigma=None, notes=notes), plain_fills, others)


def _variance(
    errors: Errors, window: TrialWindow, at: Bools | None, estimates: Sequence[Floats]
) -> Floats | None:
    """Return expected squared errors at the pixels of the estimates; None without a model."""
    if errors.slopes is None:
        return None
    cube, observed, target, *_ = window
    pixels = np.asarray(target.any(axis=0))
    values = [v[:, among(pixels, at)] for v in estimates]
    return _placed(errors, window, at, around(cube, observed, values, pixels, target[:, pixels]))


def _placed(errors: Errors, window: TrialWindow, at: Bools | None, features: Around) -> Floats:
    """Return `variance_of` the entries to fill, 0 elsewhere, at all pixels or the pixels `at`."""
    cube, observed, target, *_ = window
    pixels = np.asarray(target.any(axis=0))
    variance = np.zeros(columns(target, at).shape)
    variance[:, among(pixels, at)] = variance_of(
        errors, cube, observed, target[:, pixels], features
    )
    return variance


def _candidates(
    tried: Sequence[Tried],
    window: TrialWindow,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
    at: Bools | None,
    extra: Sequence[Candidate],
) -> tuple[list[Estimate], list[Estimate]]:
    """Return the estimates of the candidates `tried` of a recipe, and of the `extra` ones."""
    cube, observed, _, gaps, measured, _ = window

    def at_pixels(estimate: Estimate) -> Estimate:
        return estimate if at is None else estimate.at(at)

    estimates = {i: at_pixels(ready[e.name]) for i, e in enumerate(tried) if e.name in ready}
    plain = [i for i, e in enumerate(tried) if i not in estimates and e.seed < 0]
    runs = [*(tried[i].candidate for i in plain), *extra]
    fits = own_fits(runs, cube, observed, sigma_y, job._replace(references=window.references), at)
    estimates |= dict(zip(plain, fits, strict=False))
    for i in set(range(len(tried))) - set(estimates):
        c, own_job = tried[i].candidate, job._replace(checkpoint=None, seed=tried[i].seed)
        if c.tuned:
            estimates[i] = own_fits([c], cube, observed, sigma_y, own_job, at)[0]
            continue
        hidden = folds_of(cube, observed, tried[i].of, tried[i].seed, gaps, measured)
        hidden = hidden[: tried[i].fits]
        parts = [(cube, observed & ~fold) for fold in hidden]
        parts = parts or [(cube, observed)]  # gaps too small to hide copies of them
        estimates[i] = at_pixels(mean_estimate(crossfit(c, parts, sigma_y, own_job)))
    return [estimates[i] for i in range(len(tried))], fits[len(plain) :]


def _mean(estimates: Sequence[Estimate], weights: Floats, distance: Ints, cube: Cube) -> Floats:
    """Return the mean of the estimates with weights (M, D, G), by group of bands and distance class
    (rows, cols) or (bands, rows, cols)."""
    first = estimates[0].values
    # bad bands are the same in all estimates; NaN of the first estimate stays NaN
    values, group = first.copy(), groups(cube.bands)
    for g in np.unique(group):
        bands = np.flatnonzero((group == g) & cube.good_bands)
        near = distance if distance.ndim == 2 else distance[bands]
        values[bands] = 0.0
        for fit, weight in zip(estimates, weights[:, :, g], strict=True):
            if fit is not estimates[0] and not weight.any():
                continue
            complete = np.where(np.isfinite(fit.values[bands]), fit.values[bands], first[bands])
            values[bands] += weight[near] * complete
    return values
