"""What HyDiff-EI, EI and Robust-EI share: one cube in its square hull, one network, the EI term."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, network, transforms
from hydiff.learn.engine import Fit
from hydiff.learn.losses import Network
from hydiff.learn.transforms import Transform, Warp

Tensors = Mapping[str, Tensor]


class Drawn(Protocol):
    """Which transforms a step draws, and how many."""

    @property
    def transform(self) -> str: ...
    @property
    def n_transforms(self) -> int: ...


class EquivariantSettings(Drawn, Protocol):
    """The settings that all three have."""

    @property
    def lr(self) -> float: ...
    @property
    def ei_weight(self) -> float: ...
    @property
    def channels(self) -> int: ...
    @property
    def scales(self) -> int: ...
    @property
    def hold_back(self) -> float: ...
    @property
    def engine(self) -> str: ...
    @property
    def precision(self) -> str: ...


class Measurement(NamedTuple):
    """A measurement y = M x + n in its square hull, (1, C, S, S)."""

    y: Tensor  # 0 where not observed
    observed: Tensor  # bool, (1, 1 or C, S, S); what the fit may see
    held: Tensor  # bool, the same; observed, but held back to watch the fit
    truth: Tensor  # y with the held-back entries
    inside: Tensor | None  # bool (1, 1, S, S), False in the padding; None when the cube is square
    sigma_y: Tensor | None  # (1, 1 or C, 1, 1); None without noise
    crop: Callable[[Tensor], Tensor]  # back to the cube's own (C, H, W)


def check(settings: EquivariantSettings) -> None:
    """Refuse settings that mean nothing."""
    positive = {"lr": settings.lr, "channels": settings.channels, "scales": settings.scales}
    for name, value in positive.items():
        if not value > 0:
            raise BadValue(f"{name} = {value}: expected a number above 0")
    if not settings.ei_weight >= 0:
        raise BadValue(f"ei_weight = {settings.ei_weight}: expected 0 or more")
    if settings.n_transforms < 1:
        raise BadValue(f"n_transforms = {settings.n_transforms}: expected 1 or more")
    if not 0 <= settings.hold_back < 1:
        raise BadValue(f"hold_back = {settings.hold_back}: expected a share from 0 to below 1")
    if settings.transform not in transforms.TRANSFORMS:
        raise UnknownName("transform", settings.transform, transforms.TRANSFORMS)


def prepare(
    y: Tensor, observed: Tensor, sigma_y: Tensor, hold_back: float, rng: Generator
) -> Measurement:
    """The problem of one cube y (C, H, W); observed (H, W) or (C, H, W); sigma_y (C,)."""
    observed = observed if observed.ndim == 3 else observed[None]  # (1, H, W): shared by all bands
    y = torch.where(observed, y, 0.0)  # whatever stood there, no NaN reaches the network
    if not y.isfinite().all():
        raise BadValue("y has NaN or Inf in observed entries; mark those as missing")
    held = torch.zeros_like(observed)
    if hold_back > 0:  # whole pixels: single entries would be told by their neighbouring bands
        draw = torch.rand(y.shape[1:], generator=rng, device=y.device)
        held = observed & (draw < hold_back)
    square, crop = transforms.to_square(y[None])
    inside, _ = transforms.to_square(torch.ones_like(observed[:1])[None])
    square_mask, _ = transforms.to_square((observed & ~held)[None])
    kept, _ = transforms.to_square(held[None])
    last = torch.channels_last  # as the convolutions like them, on a CPU too
    square, square_mask, kept = (
        v.contiguous(memory_format=last) for v in (square, square_mask, kept)
    )
    return Measurement(
        y=square * square_mask,
        observed=square_mask,
        held=kept,
        truth=square,
        inside=None if bool(inside.all()) else inside,
        sigma_y=_spread(sigma_y) if bool(sigma_y.any()) else None,
        crop=lambda x: crop(x)[0],
    )


def _spread(sigma_y: Tensor) -> Tensor:
    """(C,) → (1, C, 1, 1), or (1, 1, 1, 1) when all bands are as noisy: less to compute with."""
    same = bool((sigma_y == sigma_y[0]).all())
    return (sigma_y[:1] if same else sigma_y).view(1, -1, 1, 1)


def start(
    problem: Measurement, settings: EquivariantSettings, rng: Generator, initial: Tensors | None
) -> Fit:
    """A network for this cube, fresh from a seed that `rng` gives, or with trained weights."""
    place = problem.y.device
    # CPU randomness: the same weights on every device
    seed = int(torch.randint(2**62, (), generator=rng, device=place))
    bands = problem.y.shape[1]
    f = network.build(bands, channels=settings.channels, scales=settings.scales, seed=seed)
    if initial is not None:
        f.load_state_dict(dict(initial))
    return Fit(
        f.to(place), lr=settings.lr, rng=rng, engine=settings.engine, precision=settings.precision
    )


def ei_term(
    f: Network,
    x0_hat: Tensor,
    problem: Measurement,
    drawn: Sequence[Transform | Warp],
    rng: Generator,
) -> Tensor:
    """The equivariance term of a problem for the transforms drawn this time."""
    return losses.equivariance(
        f, x0_hat, problem.observed, problem.sigma_y, drawn, problem.inside, rng
    )


class Draws:
    """The transforms of each step, in places that stay: a recorded step reads them there."""

    def __init__(self, problem: Measurement, settings: Drawn) -> None:
        self.shape, self.settings = problem.y.shape, settings
        self.warps = [
            Warp(settings.transform, self.shape, problem.y.device)
            for _ in range(settings.n_transforms)
        ]

    def next(self, dice: Generator) -> int:
        """Draw; the number of different transforms, which are `self.warps[:number]`."""
        name, n = self.settings.transform, self.settings.n_transforms
        drawn = transforms.draw(name, self.shape, dice, n)
        for warp, g in zip(self.warps, drawn, strict=False):
            warp.load(g)
        return len(drawn)


@torch.no_grad()
def finish(f: Network, problem: Measurement) -> Tensor:
    """One more pass after the last step: f(y), (C, H, W).

    Without noise the caller puts y back on the observed entries: x̃_0 = M†y + (I - M†M) f(y).
    With noise λ_1 = 0, and f(y) itself is the result.
    """
    return problem.crop(f(problem.y))


def monitor(x0_hat: Tensor, problem: Measurement) -> Tensor:
    """RMSE on the held-back entries, on the unit range: a stopping hint without ground truth."""
    return losses.mean_square(x0_hat - problem.truth, problem.held).sqrt()
