"""The candidates of `auto`, which are single fills, and the budgets that choose among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hydiff.errors import has_torch
from hydiff.learn.prior_weights import packaged
from hydiff.methods import Chosen, choose, declared
from hydiff.methods.devices import torch_device
from hydiff.methods.estimate import Job

NAME = "auto"
PRIOR_SIZE = "full"  # of the pretrained network in all candidates
ELSEWHERE = "decided on another cube or on other gaps, by whose errors this fill is judged"
# versions of the rules by which candidates are tried and blended, and of those with noise: raised
# when filled values change, so that those of other versions are not taken for current ones
RULES, NOISE_RULES = 10, 3


class Candidate(NamedTuple):
    """A method with settings, as `auto` tries it."""

    name: str
    method: str
    settings: Mapping[str, Any] = {}
    crossfit: bool = False  # the mean of its fits on the folds replaces a fit to the whole cube

    @property
    def pretrained(self) -> bool:
        """Whether the candidate has a network that was trained on other images.

        If a method may or may not have one, `size` among the candidate's settings shows that it has
        one; reading the method's own settings would load torch in every child process.
        """
        facts = declared(self.method)
        return facts.pretrained or (facts.may_be_pretrained and "size" in self.settings)

    @property
    def learns(self) -> bool:
        """Whether the candidate has a network that is trained on the cube, from any start."""
        return self.crossfit or declared(self.method).learned

    @property
    def tuned(self) -> bool:
        """Whether the candidate has a pretrained network that is trained further on the cube."""
        return self.pretrained and self.learns

    @property
    def untuned(self) -> Candidate:
        """The candidate that is tried on folds: for a tuned network, the one it starts from.

        Tuning needs all observed entries.  The folds would hide a third of them.
        """
        size = {"size": self.settings.get("size")}
        return PRIOR._replace(settings={**PRIOR.settings, **size}) if self.tuned else self

    @property
    def one_pass(self) -> bool:
        """Whether the candidate has a pretrained network that is not trained on the cube."""
        return self.pretrained and not self.learns

    @property
    def costly(self) -> bool:
        """Whether the candidate is tried on the first folds only."""
        return self.crossfit or self.pretrained


class Budget(NamedTuple):
    """The candidates to try, and the number of folds to try them on."""

    candidates: tuple[Candidate, ...]  # the first is the default, replaced only for a proven gain
    folds: int
    costly_folds: int  # number of folds on which costly candidates are tried
    note: str = ""  # the candidates that were left out, and the reason


def _anchored(**settings: int) -> Candidate:
    """Return the network that is trained from scratch on the cube."""
    return Candidate(f"anchored ({settings['steps']} steps)", "anchored", settings, crossfit=True)


SMOOTH = Candidate("smooth", "smooth")
CLASSICAL = (
    SMOOTH,
    Candidate("membrane", "smooth", {"s": 1.0}),
    Candidate("thin plate", "smooth", {"s": 2.0}),
)
# for pixels that keep some bands, from which the missing ones are filled
SPECTRAL = (SMOOTH, Candidate("along the bands", "spectral"))
SPECTRAL_FOLDS = 3
# with another image of the place, if there is one; only the first for pixels that keep some bands
WITH_REFERENCE = (
    Candidate("its steps", "reference", {"steps": True}),
    Candidate("similar pixels", "reference", {"robust": True, "similar": 20}),
    Candidate("pixels alike", "reference", {"alike": 20}),
    Candidate("robust", "reference", {"robust": True}),
)
# If the prior is a candidate, CORRECTED is tried too: the last of WITH_REFERENCE, corrected by the
# prior.  The first BESIDE_PRIOR of WITH_REFERENCE are then as good as the first three
BESIDE_PRIOR = 2
CORRECTED = Candidate("robust, prior", "reference", {"robust": True, "size": PRIOR_SIZE})
BUDGETS = {
    "fast": Budget(CLASSICAL, 8, 0),
    "normal": Budget(CLASSICAL, 12, 0),
    "best": Budget((*CLASSICAL, _anchored(steps=200, examples=1, channels=32)), 8, 4),
}
# on a GPU networks take seconds
GPU_BUDGETS = {
    "fast": BUDGETS["fast"]._replace(costly_folds=3),
    "normal": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 3),
    "best": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 4),
}

# Two symmetries have nearly half of what eight gain over one (benchmarks/prior_parts.py)
FAST_PRIOR = Candidate("prior", "prior", {"size": PRIOR_SIZE, "symmetries": 2})
PRIOR = Candidate("prior", "prior", {"size": PRIOR_SIZE, "symmetries": 8})


def _tuned(**settings: float) -> Candidate:
    """Return the pretrained network that is trained further on the cube."""
    return Candidate("tuned prior", "anchored", {"start": "prior", "size": PRIOR_SIZE} | settings)


# The mean of the prior's fill and of its fill after tuning on the cube, which takes seconds on a
# GPU; with noise tuning makes it worse (benchmarks/tuning.py)
TUNED = {
    "normal": _tuned(steps=300, examples=1, lr=1e-3),
    "best": _tuned(steps=300, examples=4, lr=1.5e-3),
}
TUNED_BY_TILES = ("best",)  # budgets that have time to tune it on each tile of a scene
# On two cores the full network takes a fifth of a second for a plane of 144 × 144 pixels.  Four
# planes show nearly all that eight gain, and the mean over symmetries adds to that: so the folds
# use fewer planes and no symmetries, unlike the fill of the cube (benchmarks/prior_parts.py)
ON_FOLDS = {"planes": 4, "symmetries": 1}
PRIOR_FOLDS = 6


def networks_of(name: str) -> tuple[Any, ...]:
    """Return all that the pretrained networks of a budget depend on, on any device."""
    return FAST_PRIOR if name == "fast" else None, PRIOR, TUNED.get(name), ON_FOLDS, PRIOR_FOLDS


NO_TORCH = '; torch is not installed: networks were left out (pip install "hydiff[learn]")'


def has_prior() -> bool:
    """Whether the weights of the pretrained network that is a candidate are installed.

    Without them a fill by `auto` is the same as with `no_prior`, whatever other weights there are.
    """
    return packaged(PRIOR_SIZE).is_file()


def on_folds(job: Job) -> Mapping[str, Any]:
    """Return the settings of a pretrained network on folds; on a GPU they are those of the fill."""
    return {} if on_gpu(job.device) else ON_FOLDS


def on_gpu(device: str) -> bool:
    """Return whether networks run on a GPU."""
    return bool(device != "cpu" and torch_device(device).type == "cuda")


def budget_of(
    name: str, job: Job, prior: bool = True, tune: bool = True, gpu: bool | None = None
) -> Budget:
    """Return the budget of a name for the device of a job; without torch, one without networks.

    prior: whether the pretrained network may be tried, if its weights are installed.
    tune: whether that network may be tuned, if there is a GPU.
    gpu: `on_gpu` of the device, if that is known already.
    """
    prior = prior and has_prior()
    if name == "fast" and not prior:  # needs no network, and does not wait for the import of torch
        return BUDGETS[name]
    if job.device in ("auto", "cpu") and not has_torch():
        return Budget(CLASSICAL, BUDGETS[name].folds, 0, NO_TORCH)
    gpu = on_gpu(job.device) if gpu is None else gpu
    budget = (GPU_BUDGETS if gpu else BUDGETS)[name]
    network = FAST_PRIOR if name == "fast" and not gpu else PRIOR
    if not prior:
        return budget
    # beside the prior, only the largest budget has time for networks trained from scratch
    others = budget.candidates if name == "best" else CLASSICAL
    if gpu and tune:
        network = TUNED.get(name, network)
    costly_folds = budget.costly_folds or PRIOR_FOLDS
    return budget._replace(candidates=(*others, network), costly_folds=costly_folds)


def chosen(c: Candidate, **more: Any) -> Chosen:
    """Return the method of a candidate with its settings, of which `more` replaces or adds some."""
    return choose(c.method, None, {**c.settings, **more})
