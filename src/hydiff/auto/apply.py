"""Fill as a recipe says: the candidates it uses, blended, with their error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import folds, references, split
from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import (
    BAND_GROUPS,
    Around,
    D,
    among,
    around,
    band_spread,
    columns,
    groups,
    spread_out,
    usable,
)
from hydiff.auto.intervals import HOPELESS, Scored, expected_by_kind, promises, variance_of, warning
from hydiff.auto.recipe import Errors, KindRecipe, Recipe, Tried
from hydiff.auto.sources import Sourced, of_method, sources
from hydiff.auto.trials import TrialWindow, crossfit, folds_of, mean_estimate, own_fits, tuned_fit
from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.gaps import mask
from hydiff.gaps.rule import Sigma
from hydiff.methods import Method
from hydiff.methods.estimate import Estimate, Job
from hydiff.reference.planes import Reference

NO_BARS = "no error bars, and no scores to expect"
Ready = Mapping[str, Mapping[str, Estimate]]  # estimates at hand, by kind of gaps and candidate


class Decision(NamedTuple):
    recipe: dict[str, Any]
    expected: dict[str, float]  # nrmse, mpsnr (dB), sam (°) of the entries that are filled
    hopeless: Bools  # (bands, rows, cols) entries expected to be off by more than was allowed
    doubtful: float = 0.0  # share of the filled that is hardly better than their band's mean
    by_kind: Mapping[str, dict[str, float]] = {}  # `expected` of each kind of gaps (`split`)
    entries: Mapping[str, int] = {}  # that are filled, of each kind
    with_reference: int = 0  # entries that other images of the place served
    sources: Array | None = None  # (bands, rows, cols) bits of `flags`: where values come from

    @property
    def both_kinds(self) -> Mapping[str, dict[str, float]] | None:
        """`by_kind`, where it says more than `expected` does."""
        return self.by_kind if len(self.by_kind) > 1 else None


class Blend(NamedTuple):
    """The fill of a window by a recipe, or of some of its pixels (`estimate_each`)."""

    estimate: Estimate
    plain: list[Floats]  # values of the candidates without a network
    beside: list[Estimate]  # of candidates that take no part in it


class KindFill(NamedTuple):
    """The fill of the gaps of one kind, of a window or of n of its pixels."""

    kind: str
    recipe: KindRecipe
    window: TrialWindow
    estimate: Estimate
    variance: Floats | None  # in the cube's unit squared, of the same pixels; None = unknown
    others: Sequence[Estimate] = ()  # of the candidates with a reference, where they serve


def apply(
    recipe: dict[str, Any],
    cube: Cube,
    observed: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
    max_error: float | None = None,
    at: Bools | None = None,
) -> tuple[Estimate, Decision]:
    """Estimate a cube as the recipe says, with error bars and the scores to expect.

    ready: estimates of candidates that are at hand.  max_error: in standard deviations of a band;
    kept by the upper end of what is expected.  at: the n pixels (rows, cols) that have something to
    fill, for an estimate of them alone, (bands, 1, n); of parts of a scene.
    """
    window = TrialWindow(cube, observed, target, references=job.references)
    parts = _parts(Recipe.of(recipe), window, at, sigma_y, job, ready)
    parts, served = _with_references(parts, at)
    estimate, hopeless = _joined(parts, at), np.zeros(observed.shape, bool)
    count = sum(int(part.window.target.sum()) for part in served)
    own = [Sourced(part.recipe, part.window) for part in parts]
    own += [Sourced(part.recipe, part.window, served=True) for part in served]
    facts: dict[str, Any] = {"with_reference": count, "sources": sources(own, observed.shape)}
    judged_parts = [part for part in (*parts, *served) if part.variance is not None]
    if not judged_parts:
        return estimate, Decision(recipe, {}, hopeless, **facts)
    wanted = columns(target, at)
    variance, sigma, worst = _bars(judged_parts, wanted, at)
    extent = None if job.common is None else job.common.extent
    spread = band_spread(cube, observed) if extent is None else extent.spread
    relative = np.sqrt(variance) / spread[:, None, None]
    if max_error is not None:  # what is unknown may be off by anything
        too_far = wanted & ~(relative * worst <= max_error)
        hopeless = spread_out(too_far, at, hopeless)
        wanted = wanted & ~too_far
    fill = Scored(cube, observed, estimate.values, variance, estimate.sigma_y, extent, at)
    targets = {part.kind: columns(part.window.target, at) & wanted for part in judged_parts}
    errors = {part.kind: part.recipe.errors for part in judged_parts}
    expected, by_kind = expected_by_kind(fill, targets, errors)
    judged = wanted & cube.good_bands[:, None, None]
    doubtful = float((relative > HOPELESS)[judged].mean()) if judged.any() else 0.0
    entries = {kind: int(own.sum()) for kind, own in targets.items()}
    notes = [*estimate.notes, *promises(expected, by_kind, entries, recipe)]
    notes += [warning(doubtful)] if doubtful else []
    decision = Decision(recipe, expected, hopeless, doubtful, by_kind, entries, **facts)
    return estimate._replace(sigma=sigma, notes=notes), decision


def sources_of(decision: Decision | None, facts: Method, target: Bools, good: Bools) -> Array:
    """(bands, rows, cols) where the values of a fill come from, by `auto` or by one method."""
    if decision is None or decision.sources is None:
        return of_method(facts, target, good)
    return decision.sources


def judged(
    references: Sequence[Reference], recipe: Mapping[str, Any] | None, served: int, filled: int
) -> list[dict[str, Any]]:
    """Facts about references, with what they were worth together and the share of the `filled`
    entries that they served; and in words.

    recipe: by which they were used; None where a method uses them whatever they are worth.
    """
    own: dict[str, Any] = (recipe or {}).get("with_reference") or {}
    own = own or (recipe or {}).get("partial", {}).get("with_reference") or {}
    share, worth = served / max(filled, 1), own.get("worth")
    by_band = [round(gain, 3) for gain in own.get("by_band", ())]
    facts = {"worth": worth, "share": round(share, 4), "worth_by_band": by_band}
    others = ", with the others," if len(references) > 1 else ""
    used = f"used for {100 * share:.0f} % of the filled entries"
    if recipe is None:
        verdict = used
    elif worth is None:
        verdict = "it sees no gap, or too little around them to find out whether it helps: not used"
    elif served:
        verdict = f"worth {worth:.1f} dB{others} on hidden copies of the gaps, {used}"
    else:
        gain = f"{worth:+.1f} dB{others} on hidden copies of the gaps"
        verdict = f"it would not help ({gain}, {own['why']}): not used"
    return [{**one.facts, **facts, "words": f"{one}: {verdict}"} for one in references]


def _parts(
    recipe: Recipe,
    window: TrialWindow,
    at: Bools | None,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
) -> list[KindFill]:
    """The fill of each kind of gaps; pixels that keep some bands come first."""
    cube, observed, *_ = window
    kinds = split.kinds_in(cube, observed) or [split.NONE]
    if len(kinds) < 2:
        return [_part(kinds[0], recipe, window, at, sigma_y, job, ready)]
    # what is not to be filled is completed too: the other kind is filled from it
    some = _part(split.SOME, recipe, split.keeping(window), None, sigma_y, job, ready)
    completed = some.estimate
    if at is not None:
        variance = None if some.variance is None else columns(some.variance, at)
        others = [one.at(at) for one in some.others]
        some = some._replace(estimate=completed.at(at), variance=variance, others=others)
    if not split.aims_at_lost(window):
        return [some]
    rest, noise = split.lost(window, completed.values), noise_of(sigma_y, [completed])
    return [some, _part(split.NONE, recipe, rest, at, noise, job, ready)]


def _part(
    kind: str,
    recipe: Recipe,
    window: TrialWindow,
    at: Bools | None,
    sigma_y: Sigma,
    job: Job,
    ready: Ready,
) -> KindFill:
    own = _recipe_of(kind, recipe)
    if references.spares(own.with_reference, window):
        own = _by_default(own)
    beside = references.serving(own.with_reference, window)
    blend = blended(own, window, sigma_y, job, ready.get(kind, {}), at, beside)
    if references.serves_all(own.with_reference, window):
        return KindFill(kind, own, window, blend.estimate, None, blend.beside)
    variance = _variance(own.errors, window, at, blend.plain)
    if variance is not None and blend.estimate.excess is not None:
        variance *= blend.estimate.excess  # trials know what is usual, not what is here
    return KindFill(kind, own, window, blend.estimate, variance, blend.beside)


def _by_default(recipe: KindRecipe) -> KindRecipe:
    """With the default for values, and what has no network beside it: how far they are apart."""
    plain = tuple(tried for tried in recipe.candidates if tried.plain)
    weights = tuple(((share,) * BAND_GROUPS,) * D for share in (1.0, *[0.0] * (len(plain) - 1)))
    return replace(recipe, candidates=plain, weights=weights)


def _with_references(
    parts: Sequence[KindFill], at: Bools | None
) -> tuple[list[KindFill], list[KindFill]]:
    """The parts, with what references say of them; and the entries so filled as parts of their own,
    for their errors are others."""
    changed, served = [], []
    for part in parts:
        own = part.recipe.with_reference
        if own is None or not part.others:
            changed.append(part)
            continue
        fill = references.filled(own, part.window, part.estimate, part.others, at)
        window = part.window._replace(target=fill.served)
        estimate = part.estimate._replace(values=fill.values)
        rest = part.window._replace(target=part.window.target & ~fill.served)
        changed.append(part._replace(window=rest, estimate=estimate))
        errors = replace(part.recipe, errors=own.errors)
        variance = None
        if own.errors.slopes is not None:
            variance = _placed(own.errors, window, at, fill.lies)
        kind = f"{part.kind}, with a reference"
        served.append(KindFill(kind, errors, window, estimate, variance))
    return changed, served


def _recipe_of(kind: str, recipe: Recipe) -> KindRecipe:
    """What a recipe says of gaps of a kind; one decided on the other kind does not know the errors.

    Older recipes do not say which kind they are of.
    """
    if recipe.gaps in (None, kind):
        return recipe
    if kind == split.SOME and recipe.partial is not None:
        return recipe.partial
    return replace(recipe, errors=replace(recipe.errors, slopes=None))


def noise_of(sigma_y: Sigma, estimates: Sequence[Estimate]) -> Sigma:
    """The noise as it was estimated before gaps were completed, which have none of their own."""
    if not isinstance(sigma_y, str):
        return sigma_y
    return np.median([one.sigma_y for one in estimates], axis=0)


def _joined(parts: Sequence[KindFill], at: Bools | None) -> Estimate:
    """The parts as one, with what is to be said about them."""
    first, last = parts[0], parts[-1]
    notes = [f"auto: {first.recipe.why}"]
    if len(parts) > 1:
        notes = [f"auto, {part.kind}: {part.recipe.why}" for part in parts]
    notes += dict.fromkeys(note for part in parts for note in part.estimate.notes)
    notes += [_unknown(p) for p in parts if p.variance is None and p.window.target.any()]
    if len(parts) > 1 and first.recipe.gaps is None:
        notes.append("a recipe of an older version, whose error bars are of one kind of gaps only")
    values = last.estimate.values
    if (gaps := first.window.gaps) is not None:
        own = gaps.any(axis=0) & usable(first.window.cube, first.window.observed)[:, None, None]
        values = np.where(columns(own, at), first.estimate.values, values)
    return first.estimate._replace(values=values, sigma=None, notes=notes)


def _unknown(part: KindFill) -> str:
    """Why a part has no error bars."""
    if part.recipe.gaps not in (None, part.kind):
        return f"the recipe was decided without {part.kind}: {NO_BARS}"
    where = "" if part.window.gaps is None else f" of {part.kind}"
    return f"too few observed pixels to say how good the fill{where} is: {NO_BARS}"


def _bars(
    parts: Sequence[KindFill], target: Bools, at: Bools | None
) -> tuple[Floats, Floats, Floats]:
    """Variance and 1-σ error of all entries to fill, NaN for those of other parts; and how many
    times the expected error the true one may be."""
    variance, sigma = np.where(target, np.nan, 0.0), np.where(target, np.nan, 0.0)
    worst = np.ones(target.shape)
    for part in parts:
        assert part.variance is not None and part.recipe.errors.widening is not None
        own = columns(part.window.target, at)
        np.copyto(variance, part.variance, where=own)
        np.copyto(sigma, np.sqrt(part.variance) * part.recipe.errors.widening, where=own)
        worst[own] = part.recipe.errors.bounds[-1]
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
    """The candidates of a recipe for gaps of one kind, blended; at: as of `estimate_each`.

    beside: candidates without folds that are estimated too, for they share the work.
    """
    weights = np.asarray(recipe.weights, dtype=np.float64)
    plain = [tried.plain for tried in recipe.candidates]
    used: Bools = np.asarray(weights.any(axis=(1, 2))) | plain  # how far those are apart counts
    entries = [tried for tried, wanted in zip(recipe.candidates, used, strict=True) if wanted]
    estimates, others = _candidates(entries, window, sigma_y, job, ready, at, beside)
    distance = folds.distance_class(mask.shared(window.observed))
    if at is not None:
        distance = distance[at][None] if distance.ndim == 2 else columns(distance, at)
    values = _mean(estimates, weights[used], distance, window.cube)
    notes = list(dict.fromkeys(note for one in estimates for note in one.notes))
    without = [one.values for one, e in zip(estimates, entries, strict=True) if e.plain]
    return Blend(estimates[0]._replace(values=values, sigma=None, notes=notes), without, others)


def _variance(
    errors: Errors, window: TrialWindow, at: Bools | None, estimates: Sequence[Floats]
) -> Floats | None:
    """Expected square errors, at the pixels of the estimates; None where hardly anything was
    hidden."""
    if errors.slopes is None:
        return None
    cube, observed, target, *_ = window
    own = np.asarray(target.any(axis=0))
    there = [v[:, among(own, at)] for v in estimates]
    return _placed(errors, window, at, around(cube, observed, there, own, target[:, own]))


def _placed(errors: Errors, window: TrialWindow, at: Bools | None, lies: Around) -> Floats:
    """`variance_of` the entries to fill, at all pixels or at some that contain them."""
    cube, observed, target, *_ = window
    own = np.asarray(target.any(axis=0))
    variance = np.zeros(columns(target, at).shape)
    variance[:, among(own, at)] = variance_of(errors, cube, observed, target[:, own], lies)
    return variance


def _candidates(
    entries: Sequence[Tried],
    window: TrialWindow,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
    at: Bools | None,
    beside: Sequence[Candidate],
) -> tuple[list[Estimate], list[Estimate]]:
    """The estimate of each candidate, and of those beside them."""
    cube, observed, _, gaps, measured, _ = window

    def there(one: Estimate) -> Estimate:
        return one if at is None else one.at(at)

    estimates = {i: there(ready[e.name]) for i, e in enumerate(entries) if e.name in ready}
    plain = [i for i, e in enumerate(entries) if i not in estimates and e.fits is None]
    some = [*(entries[i].candidate for i in plain), *beside]
    own = own_fits(some, cube, observed, sigma_y, job._replace(references=window.references), at)
    estimates |= dict(zip(plain, own, strict=False))
    for i in set(range(len(entries))) - set(estimates):
        c, alone = entries[i].candidate, job._replace(checkpoint=None)
        hidden = folds_of(cube, observed, entries[i].of, entries[i].seed, gaps, measured)
        hidden = hidden[: entries[i].fits]
        if c.tuned:
            estimates[i] = there(tuned_fit(c, window, hidden, sigma_y, alone))
            continue
        parts = [(cube, observed & ~fold) for fold in hidden]
        parts = parts or [(cube, observed)]  # gaps too small to hide copies of them
        estimates[i] = there(mean_estimate(crossfit(c, parts, sigma_y, alone)))
    return [estimates[i] for i in range(len(entries))], own[len(plain) :]


def _mean(estimates: Sequence[Estimate], weights: Floats, distance: Ints, cube: Cube) -> Floats:
    """The mean of the estimates, weighed (M, D, G) by distance class, of pixels or with bands, and
    group of bands."""
    first = estimates[0].values
    # bad bands are the plain fill of any candidate; what the first cannot estimate stays NaN
    values, group = first.copy(), groups(cube.bands)
    for g in np.unique(group):
        bands = np.flatnonzero((group == g) & cube.good_bands)
        near = distance if distance.ndim == 2 else distance[bands]
        values[bands] = 0.0
        for one, weight in zip(estimates, weights[:, :, g], strict=True):
            own = np.where(np.isfinite(one.values[bands]), one.values[bands], first[bands])
            values[bands] += weight[near] * own
    return values
