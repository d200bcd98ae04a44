"""Train a `PlaneNetwork` once, on many images with simulated gaps; nothing of a user's cube.

Scenes are arrays (bands, rows, cols).  A sample is a plane of one crop: a component, a mixture of
components, or a band, with noise and texture of its own and one of many masks.  The loss of a
sample is the logarithm of its error relative to that of the field which the network corrects, so
that easy and hard planes count alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from hydiff.cube import Array, Bools
from hydiff.errors import BadValue
from hydiff.gaps.mask import make_mask
from hydiff.learn.field import Field
from hydiff.learn.plane_network import MIDDLE, ORDERS, PlaneNetwork, corrected

FLOOR = 0.02  # relative error below which a sample gains nothing: no plane may win alone
CLEAN = 0.25  # share of samples without noise
NOISE = (0.03, 6.0)  # of the others, in units of the plane's roughness, even in its logarithm
TEXTURED, TEXTURE = 0.4, 0.8  # share of planes with white texture, and how much at most
HALVED = 1 / 3  # share of fine crops that are averaged by two
KEEP = 0.999  # of the running mean of the weights, a step
# kinds of `make_mask` with the shares missing that they are drawn between
MASKS = {
    "stripes": (0.1, 0.4),
    "blobs": (0.1, 0.35),
    "pixels": (0.2, 0.7),
    "slc-off": (0.1, 0.3),
    "tiles": (0.1, 0.3),
    "lines": (0.05, 0.3),
}
FRAME = 32  # lines of a lost frame at most


@dataclass(frozen=True)
class PriorTraining:
    """Of one training."""

    width: int = 48  # channels of the finest level
    steps: int = 9000
    masks: int = 16  # of a batch
    planes: int = 5  # of each mask
    pool: int = 160  # masks that are at hand; one is replaced every `renew` steps
    renew: int = 25
    side: int = 96  # px of a crop
    lr: float = 6e-4
    held: int = 2  # places that validate
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "steps", "masks", "planes", "pool", "renew", "side"):
            if getattr(self, name) < 1:
                raise BadValue(f"{name} = {getattr(self, name)}: expected 1 or more")


class Images(NamedTuple):
    """The planes of one scene."""

    place: str
    planes: Tensor  # (P, H, W): its components first, then its bands
    weights: Tensor  # (K,) of components in a mixture: their spread


class Batch(NamedTuple):
    truth: Tensor  # (N, H, W) without noise
    z: Tensor  # (N, H, W) as measured
    f: Tensor  # (N, 3, H, W)
    complete: Tensor  # (N, H, W) bool
    sigma: Tensor  # (N,)


class TrainingState(NamedTuple):
    """What `train` yields; the networks are those that it goes on with."""

    step: int
    network: PlaneNetwork
    mean: PlaneNetwork  # the running mean of the weights: what is kept in the end
    optimiser: torch.optim.Optimizer
    loss: Tensor  # of this step, on the device


def images_of(place: str, values: Array, device: str) -> Images:
    """Components of the bands in units of their roughness, and the bands themselves."""
    bands = torch.as_tensor(np.asarray(values, dtype=np.float32), device=device)
    bands = _unit(bands)
    flat = bands.flatten(1)
    vectors, spread, _ = torch.linalg.svd(flat, full_matrices=False)
    components = _unit((vectors.T @ flat).view_as(bands))
    return Images(place, torch.cat([components, bands]), spread / spread[0])


def roughness(z: Tensor, complete: Tensor | None = None) -> Tensor:
    """(N,) RMS difference of neighbours of planes (N, H, W) that are both complete."""
    mask = torch.ones_like(z) if complete is None else complete.to(z.dtype).expand_as(z)
    total, pairs = z.new_zeros(len(z)), z.new_zeros(len(z))
    for axis in (1, 2):
        both = mask.narrow(axis, 1, z.shape[axis] - 1) * mask.narrow(axis, 0, z.shape[axis] - 1)
        total += (z.diff(dim=axis) ** 2 * both).sum(dim=(1, 2))
        pairs += both.sum(dim=(1, 2))
    return (total / pairs.clamp_min(1)).sqrt()


def _unit(z: Tensor) -> Tensor:
    """Planes with mean 0 and roughness 1."""
    z = z - z.mean(dim=(1, 2), keepdim=True)
    return z / roughness(z).clamp_min(1e-12)[:, None, None]


class Pool:
    """Masks of a training with their fields; one is replaced now and then."""

    def __init__(self, settings: PriorTraining, rng: np.random.Generator, device: str) -> None:
        self.side, self.rng, self.device = settings.side, rng, device
        self.entries = [self._draw() for _ in range(settings.pool)]
        self.oldest = 0

    def renew(self) -> None:
        self.entries[self.oldest] = self._draw()
        self.oldest = (self.oldest + 1) % len(self.entries)

    def draw(self, count: int) -> list[tuple[Tensor, list[Field]]]:
        picked = self.rng.choice(len(self.entries), count, replace=count > len(self.entries))
        return [self.entries[i] for i in picked]

    def _draw(self) -> tuple[Tensor, list[Field]]:
        complete = torch.from_numpy(random_mask(self.side, self.rng)).to(self.device)
        return complete, [Field(complete, s) for s in ORDERS]


def random_mask(side: int, rng: np.random.Generator) -> Bools:
    """(side, side), True = observed: one kind of gaps, or two of them together."""
    observed = np.ones((side, side), bool)
    for _ in range(1 + int(rng.random() < 0.2)):
        observed &= _one_kind(side, rng)
    if not 0 < observed.mean() < 1 or observed.mean() < 0.25:
        return random_mask(side, rng)
    return np.ascontiguousarray(np.rot90(observed, int(rng.integers(4))))


def _one_kind(side: int, rng: np.random.Generator) -> Bools:
    kind = str(rng.choice([*MASKS, "frame"]))
    if kind == "frame":
        observed = np.ones((side, side), bool)
        height = int(rng.integers(4, min(FRAME, side // 3) + 1))
        top = int(rng.integers(0, side - height + 1))
        observed[top : top + height] = False
        return observed
    low, high = MASKS[kind]
    observed = make_mask(kind, (1, side, side), float(rng.uniform(low, high)), rng)
    plane: Bools = observed if observed.ndim == 2 else observed[0]
    return plane


def batch_of(
    images: Sequence[Images], pool: Pool, settings: PriorTraining, rng: Generator
) -> Batch:
    """Planes in groups that share a mask, so that their fields share one matrix."""
    groups = []
    for complete, fields in pool.draw(settings.masks):
        crops = [_plane(images, settings.side, pool.rng, rng) for _ in range(settings.planes)]
        groups.append(_group(torch.stack(crops), complete, fields, rng))
    return Batch(*(torch.cat(parts) for parts in zip(*groups, strict=True)))


def _group(crops: Tensor, complete: Tensor, fields: Sequence[Field], rng: Generator) -> Batch:
    """Crops (n, H, W) with texture and noise, under one mask."""
    truth = _unit(crops)
    uniform = torch.rand(4, len(truth), generator=rng, device=truth.device)
    texture = TEXTURE * uniform[0] * (uniform[1] < TEXTURED)
    truth = truth + texture[:, None, None] * _normal(truth, rng)
    low, high = (math.log(x) for x in NOISE)
    sigma = (low + (high - low) * uniform[2]).exp() * (uniform[3] >= CLEAN)
    noisy = truth + sigma[:, None, None] * _normal(truth, rng)
    # as a user's plane is seen: centred, scaled and turned by what is observed of it
    centre = (noisy * complete).sum(dim=(1, 2)) / complete.sum()
    centred = (noisy - centre[:, None, None]) * complete
    unit = roughness(centred, complete).clamp_min(1e-6) * turn(centred)
    z = centred / unit[:, None, None]
    truth = (truth - centre[:, None, None]) / unit[:, None, None]
    f = torch.stack([field(z) for field in fields], dim=1)
    return Batch(truth, z, f, complete.expand_as(z), sigma / unit.abs())


def turn(z: Tensor) -> Tensor:
    """(N,) the sign of planes (N, H, W) that makes their long tail positive.

    A component has no sign of its own; so turned, the fill of −z is minus the fill of z.
    """
    return torch.where((z**3).sum(dim=(1, 2)) < 0, -1.0, 1.0)


def _normal(like: Tensor, rng: Generator) -> Tensor:
    return torch.randn(like.shape, generator=rng, device=like.device)


def _plane(
    images: Sequence[Images], side: int, dice: np.random.Generator, rng: Generator
) -> Tensor:
    """A crop (side, side) of a component (40 %), a mixture of components (30 %) or a band.

    dice: chooses on the CPU, where a number costs no wait for the GPU.
    """
    scene = images[int(dice.integers(len(images)))]
    K, (P, H, W) = len(scene.weights), scene.planes.shape
    halved = min(H, W) >= 2 * side and dice.random() < HALVED
    size = 2 * side if halved else side
    top, left = (int(dice.integers(n - size + 1)) for n in (H, W))
    crop = scene.planes[:, top : top + size, left : left + size]
    kind = dice.random()
    if kind < 0.4:
        plane = crop[dice.integers(K)]
    elif kind < 0.7:
        weights = torch.randn(K, generator=rng, device=crop.device) * scene.weights**0.5
        plane = torch.tensordot(weights, crop[:K], dims=1)
    else:
        plane = crop[K + dice.integers(P - K)]
    if halved:
        plane = F.avg_pool2d(plane[None, None], 2)[0, 0]
    flipped = [axis for axis in (0, 1) if dice.random() < 0.5]
    turned: Tensor = plane.flip(flipped)
    return turned.T if dice.random() < 0.5 else turned


def errors(network: PlaneNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """(N,) mean squared errors of the network's fill and of the field: in the gaps, or all."""
    gate = torch.ones_like(batch.z)
    estimate = corrected(network, batch.z, batch.f, batch.complete, batch.sigma, gate)
    counted = (~batch.complete | (batch.sigma > 0)[:, None, None]).to(batch.z.dtype)
    area = counted.sum(dim=(1, 2))

    def mse(x: Tensor) -> Tensor:
        return ((x - batch.truth) ** 2 * counted).sum(dim=(1, 2)) / area

    return mse(estimate), mse(batch.f[:, MIDDLE])


def train(
    images: Sequence[Images],
    settings: PriorTraining,
    device: str,
    state: Mapping[str, Mapping[str, Tensor]] | None = None,
    start: int = 0,
) -> Iterator[TrainingState]:
    """A step at a time.  state: of the networks and the optimiser, to go on from step `start`."""
    torch.manual_seed(settings.seed)
    network, mean = (PlaneNetwork(settings.width).to(device) for _ in range(2))
    mean.load_state_dict(network.state_dict())
    optimiser = torch.optim.AdamW(network.parameters(), settings.lr, weight_decay=1e-4)
    if state is not None:
        network.load_state_dict(state["network"])
        mean.load_state_dict(state["mean"])
        optimiser.load_state_dict(state["optimiser"])  # type: ignore[arg-type]
    for each in (network, mean):
        each.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    half = torch.bfloat16 if device.startswith("cuda") else torch.float32
    pool = Pool(settings, np.random.default_rng([settings.seed, start]), device)
    rng = Generator(device).manual_seed(settings.seed + start)
    for step in range(start, settings.steps):
        if step % settings.renew == settings.renew - 1:
            pool.renew()
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * rate(step, settings.steps)
        batch = batch_of(images, pool, settings, rng)
        with torch.autocast(device.split(":")[0], half, enabled=half != torch.float32):
            ours, field = errors(network, batch)
        loss = (ours / field.clamp_min(1e-9) + FLOOR).log().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        keep = min(KEEP, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_([*mean.parameters()], [*network.parameters()], 1 - keep)
        yield TrainingState(step + 1, network, mean, optimiser, loss.detach())


def rate(step: int, steps: int) -> float:
    """Of the learning rate: 200 steps up, then a half cosine down."""
    return min(1.0, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * step / steps))
