"""Settings of a method that are taken from the cube, or from the scene that it is a part of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hydiff.cube import Bools, Cube
from hydiff.methods import Chosen
from hydiff.reference.models import ReferencePlanes

if TYPE_CHECKING:
    from hydiff.methods.estimate import Common


def for_bands(
    chosen: Chosen,
    cube: Cube,
    bands: Bools,
    common: Common | None,
    references: Sequence[ReferencePlanes],
) -> Chosen:
    """Return a method with its unset settings in `Method.asks` filled in: the wavelengths of the
    bands of the cube, the subspace of the scene, or the reference images of the cube."""
    offers: dict[str, Any] = {"references": references}
    if common is not None and np.array_equal(bands, common.bands):
        offers["space"] = common.space
    if cube.wavelengths is not None:
        offers["wavelengths"] = tuple(cube.wavelengths[bands].tolist())
    settings = vars(chosen.settings)
    new = {k: offers[k] for k in chosen.facts.asks if k in offers and settings[k] is None}
    return chosen._replace(settings=replace(chosen.settings, **new)) if new else chosen
