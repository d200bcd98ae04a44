"""`auto`, the default: try the candidates on hidden copies of the gaps, blend, and say how good.

Letters: M candidates, D distance classes, G groups of bands.  A *recipe* is the whole decision as
plain JSON: candidates, blending weights and the errors that were seen; it can be replayed.

    candidates   what is tried, by budget
    classes      of entries: distance, group of bands, texture
    trials       candidates on hidden copies of the gaps
    blend        weights from the trials
    bars         how far off the fill is
    decide       all of these, into a recipe
    apply        a recipe, on a cube
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.auto.apply import Decision, apply
from hydiff.auto.candidates import BUDGETS, NAME, SMOOTH, Budget, Candidate, budget_of
from hydiff.auto.classes import BAND_GROUPS, D
from hydiff.auto.decide import decide_on
from hydiff.auto.trials import Window
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, CubeFormatError
from hydiff.problem import Sigma
from hydiff.run import Estimate, Job, Progress

__all__ = [
    "BUDGETS",
    "NAME",
    "SMOOTH",
    "Budget",
    "Candidate",
    "Decision",
    "Window",
    "budget_of",
    "decide_on",
    "fill",
    "read_recipe",
]


def fill(
    cube: Cube,
    seen: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    *,
    budget: str = "normal",
    recipe: Mapping[str, Any] | None = None,
    max_error: float | None = None,
    progress: Progress = None,
) -> tuple[Estimate, Decision]:
    """Estimate a cube by a validated blend of candidates, or by the blend a recipe tells.

    max_error: the decision names entries expected to be off by more standard deviations than this.
    """
    ready: dict[str, Estimate] = {}
    if recipe is None:
        chosen = budget_of(budget, job)
        whole = [Window(cube, seen, target)]
        recipe, ready = decide_on(whole, sigma_y, chosen, job, progress)
    # what is applied went through JSON, so that a replay has the very same numbers
    plain: dict[str, Any] = json.loads(json.dumps(recipe))
    return apply(plain, cube, seen, target, sigma_y, job, ready, max_error)


def read_recipe(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A recipe from a mapping, a JSON file, or the record (OUT.fill.json) of an earlier fill."""
    found: Any = source
    if isinstance(source, str | Path):
        try:
            found = json.loads(Path(source).read_text())
        except OSError as error:
            raise CubeFormatError(f"{source}: cannot be read as a recipe: {error}") from None
        except ValueError:
            raise CubeFormatError(f"{source} is no JSON; expected an OUT.fill.json") from None
    if isinstance(found, Mapping) and isinstance(found.get("recipe"), Mapping):
        found = found["recipe"]
    needed = {"candidates", "weights", "errors"}
    if not isinstance(found, Mapping) or not needed <= set(found):
        where = source if isinstance(source, str | Path) else "the recipe"
        raise CubeFormatError(
            f"{where} holds no recipe; expected the record (OUT.fill.json) of a fill by {NAME}"
        )
    shape = (len(found["candidates"]), D, BAND_GROUPS)
    if np.shape(found["weights"]) != shape:
        raise BadValue(f"the recipe's weights have shape {np.shape(found['weights'])}, not {shape}")
    return dict(found)
