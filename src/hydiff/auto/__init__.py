"""`auto`, the default method: try candidates on hidden copies of the gaps, blend them, and estimate
the error of the blend.

Letters: M candidates, D distance classes, G groups of bands.  A *recipe* is the whole decision as
plain JSON: candidates, blending weights and the model of their errors; it can be replayed.

    candidates        the single fills that each budget tries
    classes           classes of entries (distance, texture, group of bands), and features
    folds             observed entries to hide, in the shape of the gaps
    fits              the candidates, fitted with and without hidden entries
    split             the two kinds of gaps: pixels that keep some bands, and pixels without any
    trials            the errors of the candidates on hidden entries
    planning          which candidates are tried on which hidden entries
    hidden            the hidden entries of all trials, and their errors
    usual             the usual size of errors, learned on other images
    blend             the weights of the candidates, from the trials
    wording           what fills the gaps and why, in words
    missingness       a test whether values are missing because of their size
    intervals         the expected error of each filled entry
    reference_errors  the same for entries that references fill
    references        other images of the place: whether and where they help
    crew              the trials of a decision, run side by side
    decide            all of these steps, up to a recipe
    recipe            recipes, read from a file and checked
    sources           where filled values come from: flags, and facts about the references
    apply             the fill of a cube by a recipe
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hydiff.auto.apply import Decision, Ready, apply
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
    networks_of,
)
from hydiff.auto.decide import decide_on
from hydiff.auto.folds import TrialWindow
from hydiff.auto.planning import is_noisy
from hydiff.auto.recipe import budget_used, fingerprint, note_of_origin, read_recipe
from hydiff.auto.references import REFERENCE_RULES
from hydiff.auto.sources import reference_facts
from hydiff.auto.wording import is_note, notes_of
from hydiff.cube import Bools, Cube
from hydiff.maths.noise_level import Sigma
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
    "is_note",
    "networks_of",
    "note_of_origin",
    "notes_of",
    "read_recipe",
    "reference_facts",
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

    prior: whether the network that was trained on other images may take part.
    max_error: in standard deviations; the decision lists entries whose expected error exceeds it.
    """
    ready: Ready = {}
    window = TrialWindow(cube, observed, target, references=job.references)
    if recipe is None:
        chosen = budget_of(budget, job, prior, tune=not is_noisy(sigma_y))
        recipe, ready = decide_on([window], sigma_y, chosen, job, progress, whole=True)
        recipe |= {"budget": budget, "cube": fingerprint(cube, observed)}
    # the recipe goes through JSON before it is applied, so that a replay uses the same numbers
    plain: dict[str, Any] = json.loads(json.dumps(recipe))
    return apply(plain, window, sigma_y, job, ready, max_error)
