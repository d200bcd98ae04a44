"""What HyDiff-EI, EI and Robust-EI share: one cube in its square hull, one network, the EI term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, network, transforms
from hydiff.learn.engine import Fit
from hydiff.learn.losses import Network
from hydiff.learn.transforms import Warp
from hydiff.methods import ranges

Tensors = Mapping[str, Tensor]


class Drawn(Protocol):
    """Which transforms a step draws, and how many."""

    @property
    def transform(self) -> str: ...
    @property
    def n_transforms(self) -> int | None: ...


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
    @property
    def data_term(self) -> str: ...
    @property
    def remeasure_noise(self) -> bool: ...
    @property
    def ei_reduction(self) -> str: ...


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
    ranges.above_zero(settings, "lr", "channels", "scales")
    ranges.zero_or_more(settings, "ei_weight")
    ranges.shares_below_one(settings, "hold_back")
    if settings.n_transforms is not None and settings.n_transforms < 1:
        raise BadValue(f"n_transforms = {settings.n_transforms}: expected 1 or more")
    if settings.data_term not in losses.DATA_TERMS:
        raise UnknownName("data_term", settings.data_term, losses.DATA_TERMS)
    if settings.ei_reduction not in losses.REDUCTIONS:
        raise UnknownName("ei_reduction", settings.ei_reduction, losses.REDUCTIONS)
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
    if hold_back > 0:  # whole pixels: single entries would be known by their neighbouring bands
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


def decisive(settings: Any, noisy: bool, later: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a benchmark knows a row by them: what `n_transforms` comes to, and no switch of
    `later`, of which rows made before it know nothing, that stands as it was."""
    known = asdict(settings) | {"n_transforms": transforms.copies(settings.n_transforms, noisy)}
    if settings.transform == "affine":
        known["affine"] = 2  # drawn with a smaller shear since
    return {k: v for k, v in known.items() if k not in later or v != later[k]}


def counted(problem: Measurement, settings: EquivariantSettings) -> Tensor | None:
    """The entries that a data term counts; None is all of them."""
    return problem.inside if settings.data_term == "all" else problem.observed


def precision_of(asked: str, place: torch.device, *, by_difference: bool) -> str:
    """The precision to ask the engine for.

    by_difference: the loss divides a small difference of two outputs (SURE, by τ = 0.01).  Of its
    gradient bfloat16, whose steps are 0.4 %, would leave little: then `auto` is tf32 on a GPU.
    """
    return "tf32" if by_difference and asked == "auto" and place.type == "cuda" else asked


def start(
    problem: Measurement,
    settings: EquivariantSettings,
    rng: Generator,
    initial: Tensors | None,
    *,
    by_difference: bool = False,
) -> Fit:
    """A network for this cube, fresh from a seed that `rng` gives, or with trained weights.

    by_difference: see `precision_of`.
    """
    place = problem.y.device
    precision = precision_of(settings.precision, place, by_difference=by_difference)
    # CPU randomness: the same weights on every device
    seed = int(torch.randint(2**62, (), generator=rng, device=place))
    bands = problem.y.shape[1]
    channels, scales, norm = settings.channels, settings.scales, network.norm_of(initial or ())
    f = network.build(bands, channels=channels, scales=scales, norm=norm, seed=seed)
    if initial is not None:
        f.load_state_dict(dict(initial))
        f.eval()  # by the statistics of the training, if they are among the weights
    return Fit(f.to(place), lr=settings.lr, rng=rng, engine=settings.engine, precision=precision)


class Draws:
    """The transforms of each step, in places that stay: a recorded step reads them there.

    noise: whether fresh noise is added to what is measured again.  Copies that differ by it stay
    apart, and the network answers them as one batch; equal ones without it are taken once.
    together: the network answers the copies as one batch in any case.
    """

    def __init__(
        self,
        problem: Measurement,
        settings: Drawn,
        *,
        noise: bool = True,
        together: bool = False,
        reduction: str = "mean",
    ) -> None:
        self.problem, self.shape, self.name = problem, problem.y.shape, settings.transform
        self.n = transforms.copies(settings.n_transforms, problem.sigma_y is not None)
        self.sigma_y = problem.sigma_y if noise else None
        batch = self.sigma_y is not None or problem.y.is_cuda  # a GPU is quicker with a batch
        self.together = together or (batch and self.n > 1)
        self.apart = together or self.sigma_y is not None
        self.scale = self.n if reduction == "sum" else 1
        self.warps = [Warp(self.name, self.shape, problem.y.device) for _ in range(self.n)]

    def next(self, dice: Generator) -> int:
        """Draw; the number of different transforms, which are `self.warps[:number]`."""
        drawn = transforms.draw(self.name, self.shape, dice, self.n, merge=not self.apart)
        for warp, g in zip(self.warps, drawn, strict=False):
            warp.load(g)
        return len(drawn)

    def term(self, f: Network, x0_hat: Tensor, n: int, rng: Generator) -> Tensor:
        """The equivariance term for the n transforms drawn last, their mean or their sum."""
        p = self.problem
        term = losses.equivariance(
            f, x0_hat, p.observed, self.sigma_y, self.warps[:n], p.inside, rng,
            together=self.together,
        )  # fmt: skip
        return term if self.scale == 1 else self.scale * term


def drawn_by(problem: Measurement, settings: EquivariantSettings) -> Draws:
    """The draws of a method with all of these settings."""
    return Draws(problem, settings, noise=settings.remeasure_noise, reduction=settings.ei_reduction)


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
