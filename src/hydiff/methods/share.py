"""SHARE: equivariant imaging with SURE and a spectral-memory 3-D U-Net (Xie et al., 2026).

A 3 × 3 convolution maps the bands to 128 channels, which a 3-D U-Net takes as depth.  On each level
of its way up, a memory of spectra, read window by window, re-weights the features.  The objective
is SURE (the data term if there is no noise) plus equivariance under shifts, with fresh noise.

Differences from the published code: here there is one measurement, whereas there the noise is drawn
again from the clean image at every epoch, and so averages out; the data term is a mean over the
observed entries, there over all, which gives it less weight beside the equivariance; the result is
the last iterate, not the one closest to the truth; images of any size are accepted, by reflection,
not only multiples of 48.  Of its 5,779,431 parameters at 128 bands, 3,155,968 never get a gradient:
these are left out, and the remaining layers have exactly as many parameters as the trained part of
the published network.  As there, BatchNorm takes its statistics over all shifted copies together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, transforms
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.layers import built, reflect_to_multiple
from hydiff.learn.memory import SpectralMemory
from hydiff.methods import equivariant, ranges
from hydiff.result import Step

LEVELS = 4  # poolings of the U-Net
DECAY = 1e-8  # of the weights, in Adam


@dataclass(frozen=True)
class Share:
    """The published settings; preset `fast` is a small network for a CPU."""

    steps: int = 800
    lr: float = 0.01  # of Adam at the start
    lr_end: float = 0.1  # final learning rate, relative to the first, after a cosine decay
    ei_weight: float = 1.0
    transform: str = "shift"
    n_transforms: int = 3
    averaging: float = 0.0  # weight of past outputs in a running mean; 0 = last output
    channels: int = 128  # depth of the 3-D U-Net, a multiple of 16
    memory: int = 256  # slots
    window: int = 6  # pixels
    engine: str = "auto"  # how steps are executed: auto | eager | graph

    PRESETS: ClassVar[dict[str, Share]]

    def __post_init__(self) -> None:
        ranges.above_zero(self, "steps", "lr", "lr_end", "memory", "window", "n_transforms")
        ranges.zero_or_more(self, "ei_weight")
        ranges.shares_below_one(self, "averaging")
        if self.channels < 1 or self.channels % 2**LEVELS:
            raise BadValue(f"channels = {self.channels}: expected a multiple of {2**LEVELS}")
        if self.transform not in transforms.TRANSFORMS:
            raise UnknownName("transform", self.transform, transforms.TRANSFORMS)


Share.PRESETS = {
    "paper": Share(),
    "fast": Share(steps=100, channels=16, memory=32, n_transforms=1),
}


def share(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: Share,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by SHARE, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    resume: the `Step.state()` of an interrupted run.
    """
    problem = equivariant.prepare(y, observed, sigma_y, 0.0, rng)
    network = built(lambda: ShareNet(len(y), settings), rng)
    rate = torch.tensor(settings.lr, device=y.device)
    fit = Fit(network, lr=rate, rng=rng, engine=settings.engine, decay=DECAY)
    f, T, done, how = fit.f, settings.steps, 0, fit.how
    draws = equivariant.Draws(problem, settings, together=True)
    mean = torch.zeros_like(y)

    def objective(n: int) -> tuple[Tensor, Tensor]:
        x0_hat = f(problem.y)
        if problem.sigma_y is None:
            data = losses.mean_square(x0_hat - problem.y, problem.observed)
        else:
            data = losses.sure(f, problem.y, x0_hat, problem.observed, problem.sigma_y, rng)
        term = draws.term(f, x0_hat, n, rng)
        return torch.stack([data, settings.ei_weight * term]), x0_hat

    if resume is not None:
        fit.load(dict(resume))
        done, mean = int(resume["done"]), resume["mean"].to(y.device)
    for i in range(done + 1, T + 1):
        fit.set_rate(settings.lr * cosine((i - 1) / T, settings.lr_end))
        terms, x0_hat = fit.step(objective, draws.next(fit.dice))
        keep_past = settings.averaging if i > 1 else 0.0
        mean = keep_past * mean + (1 - keep_past) * problem.crop(x0_hat)

        def keep(i: int = i, mean: Tensor = mean) -> Tensors:
            return fit.state() | {"done": torch.tensor(i), "mean": mean}

        log = {"data": terms[0].clone(), "ei": terms[1].clone()}
        yield Step(i, T, mean, log, keep, how=how)


def cosine(progress: float, end: float) -> float:
    """Return the cosine decay: 1 at progress 0, `end` at progress 1."""
    return end + (1 - end) * (1 + math.cos(math.pi * progress)) / 2


class ShareNet(nn.Module):
    """(B, C, H, W) → the same, any size; the output is not bounded."""

    def __init__(self, bands: int, settings: Share) -> None:
        super().__init__()
        self.multiple = 2 ** (LEVELS - 1) * settings.window
        if self.multiple % 2**LEVELS:  # an odd window: the deepest pooling needs one more factor 2
            self.multiple *= 2
        self.head = nn.Conv2d(bands, settings.channels, 3, padding=1)
        level: nn.Module = DoubleConv(2**LEVELS, 2 ** (LEVELS + 1))
        for i in range(LEVELS - 1, -1, -1):
            level = Level3d(2**i, level, settings)
        self.levels = level
        self.last = nn.Conv3d(2, 1, 1)
        self.tail = nn.Conv2d(settings.channels, bands, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        rows, cols = x.shape[-2:]
        # BatchNorm needs more than one value on the deepest level
        x = reflect_to_multiple(x, self.multiple, least=2 ** (LEVELS + 1))
        volume = self.head(x)[:, None]  # (B, 1, depth, H, W)
        y: Tensor = self.tail(self.last(self.levels(volume))[:, 0])
        return y[..., :rows, :cols]


class Level3d(nn.Module):
    """(B, c, D, H, W) → (B, 2 c, D, H, W), with the level below at half the size."""

    def __init__(self, c: int, below: nn.Module, settings: Share) -> None:
        super().__init__()
        self.enter, self.below = DoubleConv(c, 2 * c), below
        self.up = nn.ConvTranspose3d(4 * c, 2 * c, 2, stride=2)
        # two volumes of 2 c channels, depth / c each
        self.memory = SpectralMemory(4 * settings.channels, settings.memory, settings.window)
        self.leave = DoubleConv(4 * c, 2 * c)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        deep = self.up(self.below(halved(x)))
        joined = torch.cat([x, deep], dim=1)
        y: Tensor = self.leave(self.memory(joined.flatten(1, 2)).view_as(joined))
        return y


def halved(x: Tensor) -> Tensor:
    """Take the maximum of each 2 × 2 × 2 block: (B, c, D, H, W) → (B, c, D/2, H/2, W/2)."""
    if not torch.are_deterministic_algorithms_enabled():
        return F.max_pool3d(x, 2)
    # on a GPU torch sums the gradients of its own pooling in no fixed order
    x = torch.maximum(x[:, :, ::2], x[:, :, 1::2])
    x = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(x[..., ::2], x[..., 1::2])


class DoubleConv(nn.Sequential):
    """Two 3-D convolutions, each with normalisation and activation."""

    def __init__(self, c_in: int, c: int) -> None:
        super().__init__(*_conv(c_in, c), *_conv(c, c))


def _conv(c_in: int, c: int) -> list[nn.Module]:
    norm = nn.BatchNorm3d(c, track_running_stats=False)
    return [nn.Conv3d(c_in, c, 3, padding=1), norm, nn.ReLU(inplace=True)]
