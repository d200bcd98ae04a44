"""What is tried: single fills, and how many of them a budget allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hydiff.errors import has_torch
from hydiff.learn.prior_weights import SIZES, packaged
from hydiff.methods import Chosen, choose, declared
from hydiff.methods.estimate import Job, torch_device

NAME = "auto"
ELSEWHERE = "decided on another cube or on other gaps, by whose errors this fill is judged"
# raised with every change to what is decided, or with noise: results under others are not its own
RULES, NOISE_RULES = 8, 3


class Candidate(NamedTuple):
    name: str
    method: str
    settings: Mapping[str, Any] = {}
    crossfit: bool = False  # its fits on the folds are averaged instead of fitting again

    @property
    def pretrained(self) -> bool:
        """Whether it has a network that learned elsewhere, and is run once more on the cube.

        One that may have it names its size: to ask its settings would load torch in every child.
        """
        facts = declared(self.method)
        return facts.pretrained or (facts.may_be_pretrained and "size" in self.settings)

    @property
    def learns(self) -> bool:
        """Whether it has a network that learns from the cube, wherever it starts."""
        return self.crossfit or declared(self.method).learned

    @property
    def tuned(self) -> bool:
        """Whether what other images taught is taught more by the cube."""
        return self.pretrained and self.learns

    @property
    def one_pass(self) -> bool:
        """Whether it has a network that learned elsewhere and learns no more."""
        return self.pretrained and not self.learns

    @property
    def costly(self) -> bool:
        """Whether it is tried on the first folds alone."""
        return self.crossfit or self.pretrained


class Budget(NamedTuple):
    candidates: tuple[Candidate, ...]  # the first is the default, left only for a proven gain
    folds: int
    costly_folds: int  # that costly candidates are tried on
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
    Candidate("its steps", "reference", {"steps": True}),
    Candidate("similar pixels", "reference", {"robust": True, "similar": 20}),
    Candidate("pixels alike", "reference", {"alike": 20}),
    Candidate("robust", "reference", {"robust": True}),
)
# where the prior takes part it corrects the last one, and two beside it do as well as three
BESIDE_PRIOR = 2
CORRECTED = Candidate("robust, prior", "reference", {"robust": True, "size": "full"})
BUDGETS = {
    "fast": Budget(CLASSICAL, 8, 0),
    "normal": Budget(CLASSICAL, 12, 0),
    "best": Budget((*CLASSICAL, _anchored(steps=200, examples=1, channels=32)), 8, 4),
}
# networks take seconds there
GPU_BUDGETS = {
    "fast": BUDGETS["fast"]._replace(costly_folds=3),
    "normal": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 3),
    "best": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 4),
}

FAST_PRIOR = Candidate("prior", "prior", {"size": "full"})
PRIOR = Candidate("prior", "prior", {"size": "full", "symmetries": 8})


def _tuned(**settings: float) -> Candidate:
    return Candidate("tuned prior", "anchored", {"start": "prior", "size": "full"} | settings)


# The mean of the prior and of what the cube made of it, which loses with noise
# (benchmarks/tuning.py)
TUNED = {
    "normal": _tuned(steps=150, examples=1, lr=2.5e-3),
    "best": _tuned(steps=300, examples=4, lr=1e-3),
}
# On two cores the full network takes a fifth of a second for a plane of 144 × 144 pixels.  Four
# planes show nearly all that eight gain, and the mean over symmetries adds to that: there the folds
# do with less than the cube itself (benchmarks/prior_parts.py)
ON_FOLDS = {"planes": 4, "symmetries": 1}
PRIOR_FOLDS = 6

NO_TORCH = '; torch is not installed: networks were left out (pip install "hydiff[learn]")'


def tries_prior(no_prior: bool) -> bool:
    """Whether a network that learned from other images takes part, if the device can run it."""
    return not no_prior and any(packaged(size).exists() for size in SIZES)


def budget_of(name: str, job: Job, prior: bool = True, noisy: bool = False) -> Budget:
    """What a budget allows on the device of a job; without torch, what does without.

    prior: whether a network that learned from other images may be tried, if its weights are here.
    noisy: whether there is noise, with which that network is not tuned.
    """
    prior = tries_prior(not prior)
    if (prior or name != "fast") and job.device in ("auto", "cpu") and not has_torch():
        return Budget(CLASSICAL, BUDGETS[name].folds, 0, NO_TORCH)
    # a fill that needs no network does not wait for torch
    without_torch = job.device == "cpu" or (name == "fast" and not prior)
    gpu = not without_torch and torch_device(job.device).type == "cuda"
    budget = (GPU_BUDGETS if gpu else BUDGETS)[name]
    own = FAST_PRIOR if name == "fast" and not gpu else PRIOR
    if not (prior and packaged(str(own.settings["size"])).exists()):
        return budget
    # beside the prior only the largest budget has time for networks that start from nothing
    candidates = (*(budget.candidates if name == "best" else CLASSICAL), own)
    if gpu and not noisy and name in TUNED:
        candidates = (*candidates, TUNED[name])
    return budget._replace(candidates=candidates, costly_folds=budget.costly_folds or PRIOR_FOLDS)


def chosen(c: Candidate, **more: Any) -> Chosen:
    return choose(c.method, None, {**c.settings, **more})
