"""Shared by HyDiff-EI, EI and Robust-EI: the cube padded to a square, the network, the EI term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, network, spectral, transforms
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.losses import Network
from hydiff.learn.transforms import Warp
from hydiff.methods import ranges


class Drawn(Protocol):
    """Settings for the transforms: which ones a step draws, and how many."""

    @property
    def transform(self) -> str: ...
    @property
    def n_transforms(self) -> int | None: ...


class EquivariantSettings(Drawn, Protocol):
    """The settings that all three methods have."""

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
    """A measurement y = M x + n, padded to a square: (1, C, S, S)."""

    y: Tensor  # 0 where not observed
    observed: Tensor  # bool, (1, 1 or C, S, S); entries that the fit uses
    held: Tensor  # bool, same shape; observed, but held back to monitor the fit
    truth: Tensor  # y including the held-back entries
    inside: Tensor | None  # bool (1, 1, S, S), False in the padding; None when the cube is square
    sigma_y: Tensor | None  # (1, 1 or C, 1, 1); None without noise
    crop: Callable[[Tensor], Tensor]  # crops (1, C, S, S) to the cube (C, H, W)


def check(settings: EquivariantSettings) -> None:
    """Raise an error for settings out of range."""
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
    """Return the measurement for a cube y (C, H, W); observed (H, W) or (C, H, W); sigma_y (C,)."""
    observed = observed if observed.ndim == 3 else observed[None]  # (1, H, W): shared by all bands
    y = torch.where(observed, y, 0.0)  # missing entries may be NaN: none may reach the network
    if not y.isfinite().all():
        raise BadValue("y has NaN or Inf in observed entries; mark those as missing")
    held = torch.zeros_like(observed)
    if hold_back > 0:  # whole pixels: single entries could be predicted from other bands
        draw = torch.rand(y.shape[1:], generator=rng, device=y.device)
        held = observed & (draw < hold_back)
    square, crop = transforms.to_square(y[None])
    inside, _ = transforms.to_square(torch.ones_like(observed[:1])[None])
    square_mask, _ = transforms.to_square((observed & ~held)[None])
    held_square, _ = transforms.to_square(held[None])
    last = torch.channels_last  # convolutions are faster with it, on a CPU too
    square, square_mask, held_square = (
        v.contiguous(memory_format=last) for v in (square, square_mask, held_square)
    )
    return Measurement(
        y=square * square_mask,
        observed=square_mask,
        held=held_square,
        truth=square,
        inside=None if bool(inside.all()) else inside,
        sigma_y=_spread(sigma_y) if bool(sigma_y.any()) else None,
        crop=lambda x: crop(x)[0],
    )


def _spread(sigma_y: Tensor) -> Tensor:
    """Reshape (C,) to (1, C, 1, 1), or to (1, 1, 1, 1) if all bands have the same noise: faster."""
    same = bool((sigma_y == sigma_y[0]).all())
    return (sigma_y[:1] if same else sigma_y).view(1, -1, 1, 1)


def decisive(settings: Any, noisy: bool, later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that identify a benchmark row, with the actual `n_transforms`.

    Settings in `later` that have the value given there are left out: rows computed before these
    settings existed lack them.
    """
    row = asdict(settings) | {"n_transforms": transforms.copies(settings.n_transforms, noisy)}
    if settings.transform == "affine":
        row["affine"] = 2  # version: the shear is smaller now than in older rows
    return {k: v for k, v in row.items() if k not in later or v != later[k]}


def counted(problem: Measurement, settings: EquivariantSettings) -> Tensor | None:
    """Return the mask of entries that the data term counts; None = all."""
    return problem.inside if settings.data_term == "all" else problem.observed


def precision_of(asked: str, place: torch.device, *, by_difference: bool) -> str:
    """Return the precision to request from the engine.

    by_difference: the loss divides a small difference of two outputs (SURE: by τ = 0.01).
    The rounding errors of bfloat16, up to 0.4 %, would drown the gradient of that difference, so
    that "auto" then becomes tf32 on a GPU.
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
    """Return the fit of a network for this cube: a new one, seeded from `rng`, or with the trained
    weights `initial`.  by_difference: see `precision_of`.
    """
    place = problem.y.device
    precision = precision_of(settings.precision, place, by_difference=by_difference)
    # the network draws its weights on the CPU: the same for this seed on every device
    seed = int(torch.randint(2**62, (), generator=rng, device=place))
    bands = problem.y.shape[1]
    channels, scales, norm = settings.channels, settings.scales, network.norm_of(initial or ())
    f = network.build(bands, channels=channels, scales=scales, norm=norm, seed=seed)
    if initial is not None:
        f.load_state_dict(dict(initial))
        f.eval()  # use the statistics of the training, if the weights contain them
    return Fit(f.to(place), lr=settings.lr, rng=rng, engine=settings.engine, precision=precision)


class Draws:
    """The transforms of each step, in fixed tensors, since a recorded step reads them there.

    noise: whether fresh noise is added to the measurement of the transformed copies.  Copies with
    different noise stay separate and go through the network as one batch; without noise, equal
    copies are merged.  together: copies stay separate and form one batch in any case.
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
        batch = self.sigma_y is not None or problem.y.is_cuda  # a GPU is faster with a batch
        self.together = together or (batch and self.n > 1)
        self.apart = together or self.sigma_y is not None
        self.scale = self.n if reduction == "sum" else 1
        self.warps = [Warp(self.name, self.shape, problem.y.device) for _ in range(self.n)]

    def next(self, dice: Generator) -> int:
        """Draw the transforms of a step; return their number n, for `self.warps[:n]`."""
        drawn = transforms.draw(self.name, self.shape, dice, self.n, merge=not self.apart)
        for warp, g in zip(self.warps, drawn, strict=False):
            warp.load(g)
        return len(drawn)

    def term(self, f: Network, x0_hat: Tensor, n: int, rng: Generator) -> Tensor:
        """Return the equivariance term: mean or sum over the n transforms drawn last."""
        p = self.problem
        term = losses.equivariance(
            f, x0_hat, p.observed, self.sigma_y, self.warps[:n], p.inside, rng,
            together=self.together,
        )  # fmt: skip
        return term if self.scale == 1 else self.scale * term


def drawn_by(problem: Measurement, settings: EquivariantSettings) -> Draws:
    """Return the draws for a method that has all these settings."""
    if settings.transform in spectral.NAMES and problem.y.shape[1] < 2:
        raise BadValue(
            f"transform = {settings.transform!r} acts along the bands, and the cube has one usable "
            "band; choose another one, such as rotation"
        )
    return Draws(problem, settings, noise=settings.remeasure_noise, reduction=settings.ei_reduction)


@torch.no_grad()
def finish(f: Network, problem: Measurement) -> Tensor:
    """Return f(y) (C, H, W) after the last step.

    Without noise the caller restores y at the observed entries: x̃_0 = M†y + (I - M†M) f(y).
    With noise λ_1 = 0, and f(y) itself is the result.
    """
    return problem.crop(f(problem.y))


def monitor(x0_hat: Tensor, problem: Measurement) -> Tensor:
    """Return the RMSE of the held-back entries, on the unit range: shows when to stop the fit."""
    return losses.mean_square(x0_hat - problem.truth, problem.held).sqrt()
