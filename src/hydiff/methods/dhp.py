"""DHP: deep hyperspectral prior (Sidorov and Hardeberg, 2019), and its loop, used by R-DLRHyIn too.

A Skip-Net maps fixed noise to the cube.  It is fitted to the observed entries, and its output in
the gaps is the result.  The network itself is the prior: it learns structure before noise.

Differences from the published code: the last iterate is the result there too, but here the caller
restores known pixels if there is no noise, as for every method; both scores are reported.  Any size
and masks that differ by band are accepted.  `averaging` (off by default) is our addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue
from hydiff.learn.engine import Beyond, Fit, Tensors
from hydiff.learn.layers import built
from hydiff.learn.network import SkipNet
from hydiff.methods import ranges
from hydiff.result import Step

if TYPE_CHECKING:
    from hydiff.methods.r_dlrhyin import RDLRHyIn

Terms = Callable[[Tensor, Tensor, Tensor], Tensor]  # output, y, observed (1, C, H, W) → terms (n,)


def check(settings: DHP | RDLRHyIn) -> None:
    """Raise an error for settings out of range."""
    ranges.above_zero(settings, "steps", "lr", "amplitude", "channels", "scales")
    ranges.zero_or_more(settings, "jitter")
    ranges.shares_below_one(settings, "averaging")


@dataclass(frozen=True)
class DHP:
    """The published settings; preset `fast` is a small network for a CPU."""

    steps: int = 10001
    lr: float = 0.01  # of Adam
    amplitude: float = 0.1  # largest value of the fixed input, which is uniform from 0
    jitter: float = 0.1  # std of the fresh noise added to it at each step
    averaging: float = 0.0  # weight of past outputs in a running mean; 0 = last output
    channels: int = 128  # of the Skip-Net
    scales: int = 5
    engine: str = "auto"  # how steps are executed: auto | eager | graph | fused

    PRESETS: ClassVar[dict[str, DHP]]

    def __post_init__(self) -> None:
        check(self)


DHP.PRESETS = {"paper": DHP(), "fast": DHP(steps=1000, channels=32)}


def dhp(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: DHP,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by DHP, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    sigma_y is not used.  resume: the `Step.state()` of an interrupted run.
    """

    def terms(x: Tensor, y: Tensor, observed: Tensor) -> Tensor:
        return (x * observed - y).square().mean()[None]  # over all entries, as published

    return fit_prior(y, observed, settings, terms, rng, resume)


def masked(y: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and observed as (1, C, H, W), with y = 0 where not observed."""
    observed = observed.expand_as(y)[None]
    y = torch.where(observed, y[None], 0.0)
    if not y.isfinite().all():
        raise BadValue("y has NaN or Inf in observed entries; mark those as missing")
    return y, observed


def fit_prior(
    y: Tensor,
    observed: Tensor,
    settings: DHP | RDLRHyIn,
    terms: Terms,
    rng: Generator,
    resume: Tensors | None,
    beyond: Beyond | None = None,
) -> Iterator[Step]:
    """Fit a Skip-Net with a noise input to the observed entries; yield its output at every step.

    beyond: a further loss term, of the output only, that the engine cannot record.
    """
    y, observed = masked(y, observed)
    bands = y.shape[1]
    network = built(lambda: SkipNet(bands, settings.channels, settings.scales), rng)
    fit = Fit(network, lr=settings.lr, rng=rng, engine=settings.engine)
    f, device, how = fit.f, y.device, fit.how
    z = settings.amplitude * torch.rand(y.shape, generator=rng, dtype=y.dtype, device=device)
    mean, done = torch.zeros_like(y), 0
    if resume is not None:
        fit.load(dict(resume))
        z, mean = (resume[k].to(device) for k in ("z", "mean"))
        done = int(resume["done"])

    def objective(_: None) -> tuple[Tensor, Tensor]:
        noise = torch.randn(z.shape, generator=rng, dtype=z.dtype, device=device)
        x = f(z + settings.jitter * noise)
        return terms(x, y, observed), x

    for i in range(done + 1, settings.steps + 1):
        losses, x = fit.step(objective, beyond=beyond)
        keep_past = settings.averaging if i > 1 else 0.0
        mean = keep_past * mean + (1 - keep_past) * x
        log = {name: term.clone() for name, term in zip(("data", "prior"), losses, strict=False)}

        def keep(i: int = i, mean: Tensor = mean) -> Tensors:
            return fit.state() | {"z": z, "mean": mean, "done": torch.tensor(i)}

        yield Step(i, settings.steps, mean[0], log, keep, how=how)
