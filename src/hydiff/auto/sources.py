"""Where the values of a fill come from: bits of `hydiff.flags`, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto import folds
from hydiff.auto.classes import BAND_GROUPS, D, groups
from hydiff.auto.recipe import Errors, KindRecipe
from hydiff.auto.trials import TrialWindow
from hydiff.cube import Array, Bools, Floats
from hydiff.flags import FAR, PRIOR, PRIOR_SHARE, REFERENCE
from hydiff.gaps import mask
from hydiff.methods import Method


class Sourced(NamedTuple):
    """Entries that one part of a recipe filled."""

    recipe: KindRecipe
    window: TrialWindow
    served: bool = False  # by another image of the place


def sources(parts: Sequence[Sourced], shape: tuple[int, ...]) -> Array:
    """(bands, rows, cols) PRIOR, REFERENCE and FAR where they hold for the entries to fill."""
    bits = np.zeros(shape, np.uint8)
    for part in parts:
        cube, observed, target, *_ = part.window
        if not target.any():
            continue
        table, near = _table(part), folds.distance_class(mask.shared(observed))
        for band, group in enumerate(groups(cube.bands)):
            at = near if near.ndim == 2 else near[band]
            own = table[at, group] if cube.good_bands[band] else table[at, group] & FAR
            np.copyto(bits[band], own, where=target[band])
    return bits


def of_method(facts: Method, target: Bools, good: Bools) -> Array:
    """The same for one method: nothing was tried, so no distance is validated."""
    more = PRIOR * facts.pretrained | REFERENCE * ("references" in facts.asks)
    bits = np.where(good, FAR | more, FAR).astype(np.uint8)[:, None, None]
    return np.where(target, bits, np.uint8(0))


def _table(part: Sourced) -> Array:
    """(distances, groups of bands) the bits of an entry."""
    weights = np.asarray(part.recipe.weights, dtype=np.float64)
    learned = [tried.weights is not None for tried in part.recipe.candidates]
    prior: Floats = weights[learned].sum(axis=0)
    reference = 0
    if part.served and part.recipe.with_reference is not None:
        own = part.recipe.with_reference
        shares = np.asarray(own.weights, dtype=np.float64)
        learned = [tried.weights is not None for tried in own.candidates]
        prior = prior * shares[0] + shares[1:][learned].sum(axis=0)
        reference = REFERENCE
    bits = np.where(prior >= PRIOR_SHARE, PRIOR, 0) | reference
    table: Array = bits | np.where(_untried(part.recipe.errors), FAR, 0)[:, None]
    return table.astype(np.uint8).reshape(D, BAND_GROUPS)


def _untried(errors: Errors) -> Bools:
    """(distances,) those at which no entry was hidden."""
    if errors.by_distance is None:
        return np.ones(D, bool)
    return np.array([square is None for square in errors.by_distance])
