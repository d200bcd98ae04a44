"""What is tried: single fills, and how many of them a budget allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hydiff.errors import has_torch
from hydiff.methods import Chosen, choose
from hydiff.methods.estimate import Job, torch_device

NAME = "auto"
ELSEWHERE = "decided on another cube or on other gaps, by whose errors this fill is judged"
RULES = 4  # raised with every change to what is decided: results under other rules are not its own


class Candidate(NamedTuple):
    name: str
    method: str
    settings: Mapping[str, Any] = {}
    crossfit: bool = False  # costly: its fits on the folds are averaged instead of fitting again


class Budget(NamedTuple):
    candidates: tuple[Candidate, ...]  # the first is the default, left only for a proven gain
    folds: int
    costly_folds: int  # fits of a costly candidate
    note: str = ""  # what was left out, and why


def _anchored(**settings: int) -> Candidate:
    return Candidate(f"anchored ({settings['steps']} steps)", "anchored", settings, crossfit=True)


SMOOTH = Candidate("smooth", "smooth")
CLASSICAL = (
    SMOOTH,
    Candidate("membrane", "smooth", {"s": 1.0}),
    Candidate("thin plate", "smooth", {"s": 2.0}),
)
# where pixels keep some bands, what matters is how the others follow from them
SPECTRAL = (SMOOTH, Candidate("along the bands", "spectral"))
SPECTRAL_FOLDS = 3
# from another image of the place, where there is one; the first does for pixels with some bands
WITH_REFERENCE = (
    Candidate("reference", "reference"),
    Candidate("its steps", "reference", {"steps": True}),
    Candidate("local gain", "reference", {"context": 0, "local": 12.0}),
    Candidate("robust", "reference", {"robust": True}),
    Candidate("similar pixels", "reference", {"robust": True, "similar": 20}),
    Candidate("pixels alike", "reference", {"alike": 20}),
)
BUDGETS = {
    "fast": Budget(CLASSICAL, 8, 0),
    "normal": Budget(CLASSICAL, 12, 0),
    "best": Budget((*CLASSICAL, _anchored(steps=200, examples=1, channels=32)), 8, 4),
}
# networks take seconds there; how long they may learn before they know the cube by heart differs
# from cube to cube, so two lengths are tried
GPU_BUDGETS = {
    "fast": BUDGETS["fast"],
    "normal": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 3),
    "best": Budget(
        (*CLASSICAL, _anchored(steps=500, examples=1), _anchored(steps=1500, examples=4)), 8, 4
    ),
}

NO_TORCH = '; torch is not installed: networks were left out (pip install "hydiff[learn]")'


def budget_of(name: str, job: Job) -> Budget:
    """What a budget allows on the device of a job; without torch, what does without."""
    if name != "fast" and job.device in ("auto", "cpu") and not has_torch():
        return Budget(CLASSICAL, BUDGETS[name].folds, 0, NO_TORCH)
    if name == "fast" or job.device == "cpu":  # without waiting for torch
        return BUDGETS[name]
    return (GPU_BUDGETS if torch_device(job.device).type == "cuda" else BUDGETS)[name]


def chosen(c: Candidate, **more: Any) -> Chosen:
    return choose(c.method, None, {**c.settings, **more})
