"""The origin of the values of a fill: bits of `hydiff.flags` for each entry, and facts about each
reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto.classes import BAND_GROUPS, D, distance_class, groups
from hydiff.auto.folds import TrialWindow
from hydiff.auto.recipe import Errors, KindRecipe
from hydiff.cube import Array, Bools, Floats
from hydiff.flags import FAR, PRIOR, PRIOR_SHARE, REFERENCE
from hydiff.methods import Method
from hydiff.reference.planes import Reference


class Sourced(NamedTuple):
    """The target entries of a window, filled by one part of a recipe."""

    recipe: KindRecipe
    window: TrialWindow
    served: bool = False  # whether they were filled from references


def sources(parts: Sequence[Sourced], shape: tuple[int, ...]) -> Array:
    """(bands, rows, cols) bits PRIOR, REFERENCE and FAR of the filled entries; 0 elsewhere."""
    bits = np.zeros(shape, np.uint8)
    for part in parts:
        cube, observed, target, *_ = part.window
        if not target.any():
            continue
        table, near = _table(part), distance_class(observed)
        for band, group in enumerate(groups(cube.bands)):
            at = near if near.ndim == 2 else near[band]
            flags = table[at, group] if cube.good_bands[band] else table[at, group] & FAR
            np.copyto(bits[band], flags, where=target[band])
    return bits


def of_method(facts: Method, target: Bools, good: Bools) -> Array:
    """Return `sources` for a single method: FAR everywhere, as no trial validated a distance."""
    origin = PRIOR * facts.pretrained | REFERENCE * ("references" in facts.asks)
    bits = np.where(good, FAR | origin, FAR).astype(np.uint8)[:, None, None]
    return np.where(target, bits, np.uint8(0))


def reference_facts(
    references: Sequence[Reference], recipe: Mapping[str, Any] | None, served: int, filled: int
) -> list[dict[str, Any]]:
    """Return facts about each reference, and `words` that sum them up: the gain of all references
    together, and the share of the `filled` entries that they served.

    recipe: None if a method used the references without a trial of their gain.
    """
    decided: dict[str, Any] = (recipe or {}).get("with_reference") or {}
    decided = decided or (recipe or {}).get("partial", {}).get("with_reference") or {}
    share, worth = served / max(filled, 1), decided.get("worth")
    by_band = [round(gain, 3) for gain in decided.get("by_band", ())]
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
        verdict = (
            f"it would not help ({worth:+.1f} dB{others} on hidden copies of the gaps): not used"
        )
    return [{**r.facts, **facts, "words": f"{r}: {verdict}"} for r in references]


def _table(part: Sourced) -> Array:
    """(D, groups of bands) bits of an entry, by distance class and group of bands."""
    weights = np.asarray(part.recipe.weights, dtype=np.float64)
    learned = [tried.weights is not None for tried in part.recipe.candidates]
    prior: Floats = weights[learned].sum(axis=0)
    reference = 0
    if part.served and part.recipe.with_reference is not None:
        reference_recipe = part.recipe.with_reference
        shares = np.asarray(reference_recipe.weights, dtype=np.float64)
        learned = [tried.weights is not None for tried in reference_recipe.candidates]
        prior = prior * shares[0] + shares[1:][learned].sum(axis=0)
        reference = REFERENCE
    bits = np.where(prior >= PRIOR_SHARE, PRIOR, 0) | reference
    table: Array = bits | np.where(_untried(part.recipe.errors), FAR, 0)[:, None]
    return table.astype(np.uint8).reshape(D, BAND_GROUPS)


def _untried(errors: Errors) -> Bools:
    """(D,) distance classes without hidden entries."""
    if errors.by_distance is None:
        return np.ones(D, bool)
    return np.array([square is None for square in errors.by_distance])
