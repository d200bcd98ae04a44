"""Train a `PlaneNetwork` once, on many images with simulated gaps; no cube of a user is involved.

The loss of a sample is the logarithm of the error of its corrected plane, relative to the error of
the field before the correction, so that easy and hard planes count alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue
from hydiff.learn.dead_leaves import SIDE
from hydiff.learn.plane_network import MIDDLE, PlaneNetwork, corrected
from hydiff.learn.prior_weights import WIDEST
from hydiff.learn.training_planes import SMALLEST_SIDE, Batch, Images, Pool, Shelf, batch_of
from hydiff.option_types import check_seed

FLOOR = 0.02  # added to a relative error: no single plane can dominate the loss
KEEP = 0.999  # largest weight of the past in the running mean of the network's weights


@dataclass(frozen=True)
class PriorTraining:
    """Settings of one training."""

    width: int = 48  # channels of the finest level
    steps: int = 9000
    masks: int = 16  # in a batch
    planes: int = 5  # for each mask
    pool: int = 160  # masks kept ready; one of them is replaced every `renew` steps
    renew: int = 25
    side: int = 96  # px, of a square crop
    lr: float = 6e-4
    held: int = 2  # places held out for validation
    drawn: int = 24  # images of `dead_leaves` among the training images
    compiled: bool = False  # use torch.compile: takes a minute first, then faster on a GPU
    seed: int = 0

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("steps", "masks", "planes", "pool", "renew", "width"), 1)
        for name, low in (counts | {"side": SMALLEST_SIDE, "held": 0, "drawn": 0}).items():
            if getattr(self, name) < low:
                raise BadValue(f"{name} = {getattr(self, name)}: expected {low} or more")
        if self.width > WIDEST:
            raise BadValue(f"width = {self.width}: expected at most {WIDEST}")
        if self.drawn and self.side > SIDE:
            raise BadValue(
                f"side = {self.side}: drawn images have {SIDE} px; take less, or drawn = 0"
            )
        if not 0 < self.lr < 1:
            raise BadValue(f"lr = {self.lr}: expected a number from 0 to 1")
        check_seed(self.seed)


class TrainingState(NamedTuple):
    """State after a step of `train`; the networks are those in training, not copies."""

    step: int
    network: PlaneNetwork
    mean: PlaneNetwork  # running mean of the weights, the final result
    optimiser: torch.optim.Optimizer
    loss: Tensor  # of this step, on the device


def errors(network: PlaneNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """(N,) mean squared errors of the network's fill and of the field that it corrects.

    The means are over the gaps of a plane, or over all its pixels if it is noisy.
    """
    gate = torch.ones_like(batch.z)
    estimate = corrected(network, batch.z, batch.f, batch.complete, batch.sigma, gate)
    counted = (~batch.complete | (batch.sigma > 0)[:, None, None]).to(batch.z.dtype)
    area = counted.sum(dim=(1, 2))

    def mse(x: Tensor) -> Tensor:
        """Return the mean squared error (N,) of planes x over the counted pixels."""
        return ((x - batch.truth) ** 2 * counted).sum(dim=(1, 2)) / area

    return mse(estimate), mse(batch.f[:, MIDDLE])


def train(
    images: Sequence[Images],
    settings: PriorTraining,
    device: str,
    state: Mapping[str, Mapping[str, Tensor]] | None = None,
    start: int = 0,
    made: Callable[[int], PlaneNetwork] = PlaneNetwork,
) -> Iterator[TrainingState]:
    """Train, and yield the state after each step.

    state: tensors of the networks and the optimiser, to continue from step `start`.
    made: builds a network from the number of channels of its finest level.
    """
    torch.manual_seed(settings.seed)
    network, mean = (made(settings.width).to(device) for _ in range(2))
    mean.load_state_dict(network.state_dict())
    optimiser = torch.optim.AdamW(network.parameters(), settings.lr, weight_decay=1e-4)
    if state is not None:
        network.load_state_dict(state["network"])
        mean.load_state_dict(state["mean"])
        optimiser.load_state_dict(state["optimiser"])  # type: ignore[arg-type]
    for net in (network, mean):
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.compiled:
        network.compile()
    half = torch.bfloat16 if device.startswith("cuda") else torch.float32
    pool = Pool(settings.side, settings.pool, np.random.default_rng([settings.seed, start]), device)
    shelf = Shelf(images)
    rng = Generator(device).manual_seed(settings.seed + start)
    for step in range(start, settings.steps):
        if step % settings.renew == settings.renew - 1:
            pool.renew()
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * rate(step, settings.steps)
        batch = batch_of(shelf, pool, settings.masks, settings.planes, rng)
        with torch.autocast(device.split(":")[0], half, enabled=half != torch.float32):
            ours, field = errors(network, batch)
        loss = (ours / field.clamp_min(1e-9) + FLOOR).log().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        decay = min(KEEP, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_([*mean.parameters()], [*network.parameters()], 1 - decay)
        yield TrainingState(step + 1, network, mean, optimiser, loss.detach())


def rate(step: int, steps: int) -> float:
    """Factor of the learning rate: linear rise over 200 steps, times half a cosine down to 0."""
    return min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * step / steps))
