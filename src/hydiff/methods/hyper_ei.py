"""Hyper-EI: equivariant imaging of one cube with an attention U-Net (Li and Yaghoobi, 2024).

Minimises mean (M f(y) - y)² + α mean (T_g f(y) - f(M T_g f(y)))² over all entries, T_g seven random
shifts per step.  f is a U-Net of four levels, whose skip connections are re-weighted by a memory of
spectra and by a gate that depends on the level below.  `ei` is the other version of EI, with the
Skip-Net, the rotations and the constant learning rate of HyDiff-EI.

As in the published code: no noise is added to the transformed measurements, so that with noisy data
nothing prevents the noise from being fitted; BatchNorm takes its statistics over all seven copies;
the result is f(y) with the running statistics, from one pass at the end.  Differences: images of
any size are accepted, by reflection to multiples of 16; layers that never get a gradient are left
out, so that the network has as many parameters as the trained part of the published one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, transforms
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.layers import ReflectedConv, built, reflect_to_multiple
from hydiff.learn.memory import SpectralMemory
from hydiff.methods import equivariant, ranges
from hydiff.result import Step

LEVELS = 4
WINDOW = 16  # px, side of a window of the memory on the first level; halved on each level below
FALLS = (800, 900, 1000)  # steps after which the learning rate falls to a tenth
DECAY = 1e-8  # of the weights, in Adam


@dataclass(frozen=True)
class HyperEI:
    """The published settings; preset `fast` is a small network for a CPU."""

    steps: int = 1002
    lr: float = 0.01  # of Adam at the start
    ei_weight: float = 1.0
    transform: str = "shift"
    n_transforms: int = 7
    channels: int = 128
    memory: int = 256  # slots
    engine: str = "auto"  # how steps are executed: auto | eager | graph

    PRESETS: ClassVar[dict[str, HyperEI]]

    def __post_init__(self) -> None:
        ranges.above_zero(self, "steps", "lr", "memory", "n_transforms")
        ranges.zero_or_more(self, "ei_weight")
        if self.channels < 4 or self.channels % 4:
            raise BadValue(f"channels = {self.channels}: expected a multiple of 4")
        if self.transform not in transforms.TRANSFORMS:
            raise UnknownName("transform", self.transform, transforms.TRANSFORMS)


HyperEI.PRESETS = {
    "paper": HyperEI(),
    "fast": HyperEI(steps=100, channels=32, memory=32, n_transforms=2),
}


def hyper_ei(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: HyperEI,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by Hyper-EI, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    sigma_y is not used.  resume: the `Step.state()` of an interrupted run.
    """
    problem = equivariant.prepare(y, observed, torch.zeros_like(sigma_y), 0.0, rng)
    network = built(lambda: HyperEINet(len(y), settings.channels, settings.memory), rng)
    rate = torch.tensor(settings.lr, device=y.device)
    fit = Fit(network, lr=rate, rng=rng, engine=settings.engine, decay=DECAY)
    draws = equivariant.Draws(problem, settings, together=True)
    f, T, done = fit.f, settings.steps, 0

    def objective(n: int) -> tuple[Tensor, Tensor]:
        x0_hat = f(problem.y)
        data = losses.mean_square((x0_hat - problem.y) * problem.observed, problem.inside)
        return torch.stack([data, settings.ei_weight * draws.term(f, x0_hat, n, rng)]), x0_hat

    if resume is not None:
        fit.load(dict(resume))
        done = int(resume["done"])
    for i in range(done + 1, T + 1):
        fit.set_rate(settings.lr * fallen(i))
        terms, x0_hat = fit.step(objective, draws.next(fit.dice))
        log = dict(zip(("data", "ei"), terms.clone(), strict=True))

        def keep(i: int = i) -> Tensors:
            return fit.state() | {"done": torch.tensor(i)}

        if i == T:
            network.eval()
        x = problem.crop(x0_hat) if i < T else equivariant.finish(f, problem)
        yield Step(i, T, x, log, keep, how=fit.how)


def fallen(step: int) -> float:
    """Return the learning rate at a step, counted from 1, relative to the first."""
    return float(0.1 ** sum(step > fall for fall in FALLS))


class HyperEINet(nn.Module):
    """(B, C, H, W) → the same, any size, from 0 to 1."""

    def __init__(self, bands: int, channels: int = 128, slots: int = 256) -> None:
        super().__init__()
        c = channels
        self.across = _conv(bands, c)  # the input at full size
        self.down = nn.ModuleList(
            nn.Sequential(*_conv(bands if i == 0 else c, c, 2), *_conv(c, c)) for i in range(LEVELS)
        )
        self.memories = nn.ModuleList(
            SpectralMemory(c, slots, WINDOW // 2**i) for i in range(LEVELS)
        )
        self.up = nn.ModuleList(nn.Sequential(*_conv(c, c), *_conv(c, c)) for _ in range(LEVELS))
        self.gates = nn.ModuleList(Gate(c) for _ in range(LEVELS))
        self.merge = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(2 * c), *_conv(2 * c, c), *_conv(c, c))
            for _ in range(LEVELS)
        )
        self.head = nn.Conv2d(c, bands, 1)

    def forward(self, x: Tensor) -> Tensor:
        rows, cols = x.shape[-2:]
        x = reflect_to_multiple(x, 2**LEVELS, least=2 ** (LEVELS + 1))
        views = [self.across(x)]
        for i, down in enumerate(self.down):
            views.append(down(x if i == 0 else views[-1]))
        deep = views.pop()
        for i in range(LEVELS - 1, -1, -1):
            deep = self.up[i](F.interpolate(deep, scale_factor=2, mode="nearest"))
            view = self.gates[i](deep, self.memories[i](views[i]))
            deep = self.merge[i](torch.cat([view, deep], dim=1))
        return torch.sigmoid(self.head(deep))[..., :rows, :cols]


class Gate(nn.Module):
    """Multiply x by a weight per pixel, computed from x and from the level below."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.of_deep = nn.Sequential(nn.Conv2d(c, 2 * c, 1), nn.BatchNorm2d(2 * c))
        self.of_x = nn.Sequential(nn.Conv2d(c, 2 * c, 1), nn.BatchNorm2d(2 * c))
        self.share = nn.Sequential(nn.Conv2d(2 * c, 1, 1), nn.BatchNorm2d(1))

    def forward(self, deep: Tensor, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.share(F.relu(self.of_deep(deep) + self.of_x(x))))


def _conv(c_in: int, c: int, stride: int = 1) -> nn.Sequential:
    """Return a 3 × 3 convolution with mirrored borders, normalisation and activation."""
    return nn.Sequential(
        ReflectedConv(c_in, c, 3, stride), nn.BatchNorm2d(c), nn.LeakyReLU(0.2, inplace=True)
    )
