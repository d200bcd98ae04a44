"""The origin of the values of a fill: bits of `hydiff.flags` for each entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hydiff.auto.classes import BAND_GROUPS, D, distance_class, groups
from hydiff.auto.folds import TrialWindow
from hydiff.auto.recipe import Errors, KindRecipe
from hydiff.cube import Array, Bools, Floats
from hydiff.flags import FAR, PRIOR, PRIOR_SHARE, REFERENCE
from hydiff.methods import Method


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
