"""EI and Robust-EI: equivariant imaging on one cube, without diffusion.

EI minimises mean (M f(y) - y)² + α mean (T_g f(y) - f(M T_g f(y) + n))².  Robust-EI replaces the
first term, which noise biases, by SURE.  Both measure the transformed images with fresh noise, and
take the data term over the observed entries; without noise (σ_y = 0) they are the same method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue
from hydiff.learn import losses
from hydiff.learn.engine import Tensors
from hydiff.methods import equivariant
from hydiff.result import Step

# Settings added later, with the values that reproduce the behaviour before them
LATER = {"data_term": "observed", "remeasure_noise": True, "ei_reduction": "mean"}


@dataclass(frozen=True)
class EI:
    """The settings of the paper's ablation: same network, rate and rotations as HyDiff-EI."""

    steps: int = 1000
    lr: float = 0.01  # of Adam
    ei_weight: float = 1.0
    transform: str = "rotation"
    n_transforms: int | None = None  # drawn per step; None: 7 with noise, else 1
    data_term: str = "observed"  # entries in the data term: observed | all
    remeasure_noise: bool = True  # fresh noise on M T_g f(y) where y is noisy
    ei_reduction: str = "mean"  # of the EI term over the transforms of a step: mean | sum
    channels: int = 128  # of the Skip-Net
    scales: int = 5
    hold_back: float = 0.0  # share of observed pixels not used in the fit, to monitor it
    engine: str = "auto"  # how steps are executed: auto | eager | graph | fused
    precision: str = "auto"  # of the network: auto | fp32 | tf32 | bf16

    PRESETS: ClassVar[dict[str, EI]]

    def __post_init__(self) -> None:
        equivariant.check(self)
        if self.steps < 1:
            raise BadValue(f"steps = {self.steps}: expected at least 1; 1000 is the default")

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row."""
        return equivariant.decisive(self, noisy, LATER)


EI.PRESETS = {"paper": EI(), "fast": EI(steps=300, channels=32)}


def ei(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: EI,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by equivariant imaging, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    resume: the `Step.state()` of an interrupted run.
    """
    return _fit(y, observed, sigma_y, settings, rng, resume, robust=False)


def robust_ei(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: EI,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube as `ei` does, but with SURE as the data term where there is noise."""
    return _fit(y, observed, sigma_y, settings, rng, resume, robust=True)


def _fit(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: EI,
    rng: Generator,
    resume: Tensors | None,
    *,
    robust: bool,
) -> Iterator[Step]:
    """Yield the steps of the fit; robust: use SURE as the data term where there is noise."""
    problem = equivariant.prepare(y, observed, sigma_y, settings.hold_back, rng)
    sure = robust and problem.sigma_y is not None
    fit = equivariant.start(problem, settings, rng, None, by_difference=sure)
    f, T, done = fit.f, settings.steps, 0
    draws, counted = equivariant.drawn_by(problem, settings), equivariant.counted(problem, settings)

    def objective(n: int) -> tuple[Tensor, Tensor]:
        x0_hat = f(problem.y)
        if robust and problem.sigma_y is not None:
            data = losses.sure(f, problem.y, x0_hat, problem.observed, problem.sigma_y, rng)
        else:
            data = losses.mean_square((x0_hat - problem.y) * problem.observed, counted)
        term = draws.term(f, x0_hat, n, rng)
        return torch.stack([data, settings.ei_weight * term]), x0_hat

    if resume is not None:
        fit.load(dict(resume))
        done = int(resume["done"])
    for i in range(done + 1, T + 1):
        terms, x0_hat = fit.step(objective, draws.next(fit.dice))
        log = dict(zip(("data", "ei"), terms.clone(), strict=True))
        if settings.hold_back > 0:
            log["monitor"] = equivariant.monitor(x0_hat, problem)

        def keep(i: int = i) -> Tensors:
            return fit.state() | {"done": torch.tensor(i)}

        yield Step(i, T + 1, problem.crop(x0_hat), log, keep)
    yield Step(T + 1, T + 1, equivariant.finish(f, problem), how=fit.how)
