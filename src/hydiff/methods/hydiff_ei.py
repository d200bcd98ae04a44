"""HyDiff-EI: fit f_θ to one cube while a diffusion schedule runs backwards (Algorithms 1 and 2).

Letters are those of the paper; where it leaves a choice open, docs/decisions states what was chosen
and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses
from hydiff.learn.diffusion import (
    State,
    consistent,
    linear_alpha_bar,
    noise_like,
    reverse_diffusion,
)
from hydiff.learn.engine import Fit, Tensors
from hydiff.methods import equivariant
from hydiff.result import Step

UPDATES = ("before", "after")
# Settings added later, with the values that reproduce the behaviour before them
LATER = {
    "data_term": "all", "remeasure_noise": True, "ei_reduction": "mean", "x0_from": "before",
    "noise_term": "none", "refine_lr": 1e-3,
}  # fmt: skip


@dataclass(frozen=True)
class HyDiffEI:
    """The paper's settings; preset `fast` is a small network for a CPU."""

    steps: int = 1000  # T
    beta_start: float = 1e-4
    beta_end: float = 0.02
    lr: float = 0.01  # of Adam
    ei_weight: float = 1.0  # α_EI
    transform: str = "rotation"
    n_transforms: int | None = None  # drawn per step; None: 7 with noise (the paper's N_g), else 1
    eps0: str = "implied"  # interpretation of ε_0: implied | fresh | none
    weighting: str = "simple"  # of the data term: simple | full
    data_term: str = "all"  # entries in the data term: all | observed
    remeasure_noise: bool = True  # fresh noise on M T_g f(y) where y is noisy
    ei_reduction: str = "mean"  # of the EI term over the transforms of a step: mean | sum
    x0_from: str = "before"  # x̂_0 is the output before | after the update of the network in a step
    noise_term: str = "none"  # in the data term of measured, noisy entries: none | sure
    channels: int = 128  # of the Skip-Net
    scales: int = 5
    hold_back: float = 0.0  # share of observed pixels not used in the fit, to monitor it
    engine: str = "auto"  # how steps are executed: auto | eager | graph | fused
    precision: str = "auto"  # of the network: auto | fp32 | tf32 | bf16
    weights: str | None = None  # a trained network to start from
    refine: int = 0  # number of steps when starting from these weights
    refine_lr: float = 1e-3  # of Adam in these steps: with 0.01 the training is forgotten

    PRESETS: ClassVar[dict[str, HyDiffEI]]

    def __post_init__(self) -> None:
        equivariant.check(self)
        if self.steps < 1:
            raise BadValue(f"steps = {self.steps}: expected at least 1; the paper takes 1000")
        if not 0 <= self.refine <= self.steps:
            raise BadValue(f"refine = {self.refine}: expected 0 to steps = {self.steps}")
        if not self.refine_lr > 0:
            raise BadValue(f"refine_lr = {self.refine_lr}: expected more than 0; 0.001 is usual")
        if not 0 < self.beta_start <= self.beta_end < 1:
            raise BadValue(f"beta from {self.beta_start} to {self.beta_end}: expected 0 < β < 1")
        if self.eps0 not in losses.READINGS:
            raise UnknownName("reading of eps0", self.eps0, losses.READINGS)
        if self.weighting not in losses.WEIGHTINGS:
            raise UnknownName("weighting", self.weighting, losses.WEIGHTINGS)
        if self.x0_from not in UPDATES:
            raise UnknownName("x0_from", self.x0_from, UPDATES)
        if self.noise_term not in losses.NOISE_TERMS:
            raise UnknownName("noise_term", self.noise_term, losses.NOISE_TERMS)

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row."""
        return equivariant.decisive(self, noisy, LATER)


HyDiffEI.PRESETS = {
    "paper": HyDiffEI(),
    "fast": HyDiffEI(steps=300, channels=32),
}


def hydiff_ei(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: HyDiffEI,
    *,
    rng: Generator,
    initial: Tensors | None = None,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill one cube by HyDiff-EI, yielding a step per step of the reverse diffusion.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    initial: trained weights of f_θ; resume: the `Step.state()` of an interrupted run.
    """
    problem = equivariant.prepare(y, observed, sigma_y, settings.hold_back, rng)
    noise = problem.sigma_y if settings.noise_term == "sure" else None
    fit_settings = settings if initial is None else replace(settings, lr=settings.refine_lr)
    fit = equivariant.start(problem, fit_settings, rng, initial, by_difference=noise is not None)
    f, T = fit.f, settings.steps
    draws, counted = equivariant.drawn_by(problem, settings), equivariant.counted(problem, settings)
    alpha_bar = linear_alpha_bar(T, settings.beta_start, settings.beta_end)
    target = torch.zeros_like(problem.y)  # these three stay in place: a recorded step reads them
    root, weight = target.new_zeros(()), target.new_zeros(())

    def objective(n: int) -> tuple[Tensor, Tensor]:
        x0_hat = f(problem.y)
        risk = None if noise is None else root**2 * _risk(f, problem, x0_hat, noise, rng)
        data = losses.data(target - root * x0_hat, counted, risk, problem.observed)
        ei = draws.term(f, x0_hat, n, rng)
        return torch.stack([weight * data, settings.ei_weight * ei]), x0_hat  # Eq. 9

    terms = target.new_zeros(2)

    def estimate_x0(x: Tensor, x0: Tensor, t: int) -> Tensor:
        nonlocal terms
        alpha_bar_t = alpha_bar[t].item()
        target.copy_(losses.denoised_state(x, x0, alpha_bar_t, settings.eps0, rng))
        root.fill_(alpha_bar_t**0.5)
        weight.fill_(losses.term_weight(alpha_bar, t, settings.weighting))
        terms, x0_hat = fit.step(objective, draws.next(fit.dice))
        return x0_hat if settings.x0_from == "before" else _answer(f, problem.y)

    total = T if initial is None else settings.refine
    begin = None if initial is None else _begin(problem, f, alpha_bar, total, rng)
    begin = begin if resume is None else _resumed(fit, problem.y, resume)
    chain = reverse_diffusion(
        problem.y,
        problem.observed.to(y.dtype),
        estimate_x0,
        alpha_bar,
        sigma_y=problem.sigma_y,
        rng=rng,
        start=begin,
    )
    for state in chain:
        log = dict(zip(("data", "ei"), terms.clone(), strict=True))
        if settings.hold_back > 0:
            log["monitor"] = equivariant.monitor(state.x0_hat, problem)

        def keep(state: State = state) -> Tensors:
            return fit.state() | {"x0": state.x0, "x": state.x, "t": torch.tensor(state.t)}

        yield Step(total - state.t + 1, total + 1, problem.crop(state.x0), log, keep)
    yield Step(total + 1, total + 1, _last(f, problem, total), how=fit.how)


def _resumed(fit: Fit, y: Tensor, resume: Tensors) -> State:
    """Restore a fit, and return the state of the chain to continue from."""
    fit.load(dict(resume))
    x0, x = (torch.empty_like(y).copy_(resume[k]) for k in ("x0", "x"))
    return State(int(resume["t"]), x0, x0, x)


def _risk(
    f: losses.Network,
    problem: equivariant.Measurement,
    x0_hat: Tensor,
    noise: Tensor,
    rng: Generator,
) -> Tensor:
    """Return SURE over the observed entries, for noise of std `noise`."""
    return losses.sure(f, problem.y, x0_hat, problem.observed, noise, rng)


@torch.no_grad()
def _answer(f: losses.Network, y: Tensor) -> Tensor:
    """Return f(y) without recording gradients."""
    return f(y)


def _last(f: losses.Network, problem: equivariant.Measurement, updates: int) -> Tensor:
    """Return f(y) after all updates.  Without updates (trained weights as they are) y is cropped to
    the cube first: no transform needs the square, and its padding would affect the statistics of
    every layer."""
    if updates:
        return equivariant.finish(f, problem)
    return _answer(f, problem.crop(problem.y)[None])[0]


@torch.no_grad()
def _begin(
    problem: equivariant.Measurement, f: losses.Network, alpha_bar: Tensor, t: int, rng: Generator
) -> State:
    """Enter the chain at step t, with the output of the trained network as x̂_0."""
    x0_hat = f(problem.y)
    x0 = consistent(x0_hat, problem.y, problem.observed.to(x0_hat.dtype))  # M†y = y
    alpha_bar_t = alpha_bar[t].item()
    x = alpha_bar_t**0.5 * x0 + (1 - alpha_bar_t) ** 0.5 * noise_like(x0, rng)
    return State(t + 1, x0_hat, x0, x)
