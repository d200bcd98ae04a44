"""The cells of the table of fills with another image of the same place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from hydiff.auto import NAME as AUTO
from hydiff.bench import scenes
from hydiff.bench.cells import Cell

if TYPE_CHECKING:
    from hydiff.bench.choice import SuiteChoice

MASKS = ("slc-off", "frames", scenes.CLOUDS)


def reference(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield fills without the image, by copying, by similar pixels, by regression, and by `auto`.

    The mask of clouds is not used for two images of the same moment.
    """
    pairs = (*scenes.PAIRS, *scenes.PARTS)
    names = [s for s in choice.scenes if s in pairs] if choice.named else list(scenes.PAIRS)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("smooth", {}),
        (AUTO, {"budget": choice.budget}),
        ("matched-copy", {}),
        ("similar-pixels", {}),
        ("reference", {"context": 0}),
        (AUTO, {"budget": choice.budget, "reference": 1}),
    ]
    masks = choice.masks or (MASKS[1:2] if choice.quick else MASKS)
    for scene, mask, (method, settings) in product(names, masks, rows):
        cloudy = mask == scenes.CLOUDS and scene == scenes.SAME_MOMENT
        if choice.wants(method) and not cloudy:
            yield Cell(method, scene, mask, 0.0, 0, json.dumps(settings))
