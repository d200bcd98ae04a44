"""`auto`, the default: try the candidates on hidden copies of the gaps, blend, and say how good.

Letters: M candidates, D distance classes, G groups of bands.  A *recipe* is the whole decision as
plain JSON: candidates, blending weights and the errors on hidden entries; it can be replayed.

    candidates   what is tried, by budget
    classes      of entries: distance, group of bands, texture
    trials       candidates on hidden copies of the gaps
    planning     what is tried on which of them
    split        gaps of two kinds, one after the other: pixels without any band, and the others
    blend        weights from the trials
    references   other images of the place, if they help
    usual        how large errors usually are, learned on other images
    missingness  whether what is missing seems to depend on its value
    intervals    the expected error of each filled entry
    decide       all of these, into a recipe
    recipe       read from a file, and checked
    apply        a recipe, on a cube
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hydiff.auto.apply import Decision, Ready, apply, judged
from hydiff.auto.candidates import (
    BUDGETS,
    ELSEWHERE,
    GPU_BUDGETS,
    NAME,
    NOISE_RULES,
    RULES,
    SMOOTH,
    WITH_REFERENCE,
    Budget,
    Candidate,
    budget_of,
)
from hydiff.auto.decide import decide_on
from hydiff.auto.planning import is_noisy
from hydiff.auto.recipe import budget_used, fingerprint, note_of_origin, read_recipe
from hydiff.auto.references import REFERENCE_RULES
from hydiff.auto.trials import TrialWindow
from hydiff.cube import Bools, Cube
from hydiff.gaps.rule import Sigma
from hydiff.methods.estimate import Estimate, Job, Progress

__all__ = [
    "BUDGETS",
    "ELSEWHERE",
    "GPU_BUDGETS",
    "NAME",
    "NOISE_RULES",
    "REFERENCE_RULES",
    "RULES",
    "SMOOTH",
    "WITH_REFERENCE",
    "Budget",
    "Candidate",
    "Decision",
    "TrialWindow",
    "budget_of",
    "budget_used",
    "decide_on",
    "fill",
    "fingerprint",
    "is_noisy",
    "judged",
    "note_of_origin",
    "read_recipe",
]


def fill(
    cube: Cube,
    observed: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    *,
    budget: str = "normal",
    recipe: Mapping[str, Any] | None = None,
    prior: bool = True,
    max_error: float | None = None,
    progress: Progress = None,
) -> tuple[Estimate, Decision]:
    """Estimate a cube by a validated blend of candidates, or by the blend of a recipe.

    prior: whether the network that learned from other images may take part.
    max_error: in standard deviations; the decision lists entries whose expected error exceeds it.
    """
    ready: Ready = {}
    if recipe is None:
        chosen = budget_of(budget, job, prior, is_noisy(sigma_y))
        only = [TrialWindow(cube, observed, target, references=job.references)]
        recipe, ready = decide_on(only, sigma_y, chosen, job, progress, whole=True)
        recipe |= {"budget": budget, "cube": fingerprint(cube, observed)}
    # what is applied went through JSON, so that a replay has the very same numbers
    plain: dict[str, Any] = json.loads(json.dumps(recipe))
    return apply(plain, cube, observed, target, sigma_y, job, ready, max_error)
