"""Planes to train a `PlaneNetwork` on: crops of images with texture, noise and gaps.

Scenes are arrays (bands, rows, cols).  A sample is a plane of one crop: a component, a mixture of
components, or a band.  A batch is drawn by a few operations on the device, since drawing one plane
after the other took longer than the network.

Letters: N planes of a batch, S px of a crop's side, z (N, S, S) planes as measured, f (N, 3, S, S)
their fields of the orders `ORDERS`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from hydiff.cube import Array, Bools
from hydiff.gaps.mask import make_mask
from hydiff.learn.engine import arithmetic
from hydiff.learn.field import Field
from hydiff.learn.plane_network import ORDERS, roughness, turn

KINDS = 3  # version of the samples drawn below; files of weights state it, 1 if they do not
CLEAN = 0.25  # share of samples without noise
NOISE = (0.03, 6.0)  # σ of the others, in units of the plane's roughness, log-uniform
TEXTURED, TEXTURE = 0.4, 0.8  # share of planes with white texture, and its largest σ
COMPONENTS, MIXTURES = 0.4, 0.3  # shares of these kinds of planes; the others are bands
RAMPS = 0.04  # share of planes that are linear ramps, where the right correction is 0
# share of planes with small bright objects, their largest number, radius in px, and brightness;
# half of these planes have objects with a flat top and sharp edges
DOTTED, DOTS, RADII, BRIGHT = 0.2, 24, (0.4, 1.8), (3.0, 30.0)
# share of planes of flat rectangles at random levels, like fields or roofs, and their sides in px;
# half of these planes have a ceiling that many rectangles reach, like saturation
FLAT, SIDES = 0.06, (3.0, 20.0)
HALVED = 1 / 3  # share of crops, of scenes large enough, that are averaged over 2 × 2 pixels
# kinds of `make_mask`, each with the range of its missing share
MASKS = {
    "stripes": (0.1, 0.4),
    "blobs": (0.1, 0.35),
    "pixels": (0.2, 0.7),
    "slc-off": (0.1, 0.3),
    "tiles": (0.1, 0.3),
    "lines": (0.05, 0.3),
}
FRAMES = 4, 32  # smallest and largest number of lines of a lost frame
SMALLEST_SIDE = 3 * FRAMES[0]  # px, of a crop, of which a frame is a third at most


class Images(NamedTuple):
    """The planes of one scene."""

    place: str  # its name
    planes: Tensor  # (P, H, W): its components first, then its bands
    weights: Tensor  # (K,) spread of the components, for mixtures


class Batch(NamedTuple):
    """N samples, each in the unit of its observed pixels."""

    truth: Tensor  # (N, S, S) without noise
    z: Tensor  # (N, S, S) as measured
    f: Tensor  # (N, 3, S, S)
    complete: Tensor  # (N, S, S) bool
    sigma: Tensor  # (N,)


def images_of(place: str, values: Array, device: str) -> Images:
    """Return the components and the bands of a scene, each with mean 0 and roughness 1."""
    bands = torch.as_tensor(np.asarray(values, dtype=np.float32), device=device)
    bands = _unit(bands)
    flat = bands.flatten(1)
    vectors, spread, _ = torch.linalg.svd(flat, full_matrices=False)
    components = _unit((vectors.T @ flat).view_as(bands))
    return Images(place, torch.cat([components, bands]), spread / spread[0])


def _unit(z: Tensor) -> Tensor:
    """Shift and scale planes to mean 0 and roughness 1."""
    z = z - z.mean(dim=(1, 2), keepdim=True)
    return z / roughness(z).clamp_min(1e-12)[:, None, None]


class Shelf:
    """The planes of all scenes in one flat tensor, from which crops are gathered at once."""

    def __init__(self, images: Sequence[Images]) -> None:
        self.flat = torch.cat([scene.planes.flatten() for scene in images])
        self.shapes = np.array([scene.planes.shape for scene in images])  # (scenes, 3)
        sizes = self.shapes.prod(axis=1)
        self.starts = np.cumsum(sizes) - sizes
        self.spreads = [scene.weights.cpu().numpy() for scene in images]
        self.most = max(len(spread) for spread in self.spreads)  # planes of a mixture, at most

    def crops(self, count: int, side: int, rng: np.random.Generator) -> Tensor:
        """(count, side, side) random crops, turned and mirrored at random.

        A crop is a weighted sum over planes of one scene; at half the resolution, each pixel is
        the mean over four.  rng: draws on the CPU, so that nothing has to wait for the GPU.
        """
        # first pixel, steps down and across, offsets for the mean
        places = np.empty((count, 5), np.int64)
        planes = np.zeros((count, self.most), np.int64)
        weights = np.zeros((count, self.most), np.float32)
        for n in range(count):
            scene = int(rng.integers(len(self.shapes)))
            P, H, W = (int(x) for x in self.shapes[scene])
            places[n] = _place(H, W, side, rng)
            places[n, 0] += self.starts[scene]
            chosen, weight = _mixture(P, self.spreads[scene], rng)
            planes[n, : len(chosen)], weights[n, : len(chosen)] = chosen * H * W, weight
        device = self.flat.device
        first, down, across, low, right = torch.from_numpy(places.T).to(device)
        step = torch.arange(side, device=device)
        pixels = step[:, None] * down[:, None, None] + step * across[:, None, None]
        starts = first[:, None] + torch.from_numpy(planes).to(device)
        pixels = pixels[:, None] + starts[..., None, None]
        share = torch.from_numpy(weights).to(device)[..., None, None] / 4
        total = torch.zeros(count, side, side, device=device)
        for shift in (torch.zeros_like(low), low, right, low + right):
            total += (share * self.flat[pixels + shift[:, None, None, None]]).sum(dim=1)
        return total


def _place(H: int, W: int, side: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw a crop of a plane (H, W), as five numbers of pixels in the flattened plane.

    They are its first pixel, the steps down and across, and the offsets down and right of the
    pixels that a pixel is averaged with (0 at full resolution).
    """
    halved = min(H, W) >= 2 * side and rng.random() < HALVED
    step = 2 if halved else 1
    first, steps = 0, []
    for length, stride in ((H, W), (W, 1)):
        start = int(rng.integers(length - step * side + 1))
        mirrored = rng.random() < 0.5
        first += stride * (start + step * (side - 1) * mirrored)
        steps.append(-stride * step if mirrored else stride * step)
    if rng.random() < 0.5:
        steps.reverse()
    return first, *steps, W * halved, int(halved)


def _mixture(planes: int, spread: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw planes of a scene and their weights: a component, a mixture of components, or a band."""
    kind, K = rng.random(), len(spread)
    if COMPONENTS <= kind < COMPONENTS + MIXTURES:
        return np.arange(K), rng.standard_normal(K) * spread**0.5
    low, high = (0, K) if kind < COMPONENTS else (K, planes)
    return rng.integers(low, high, 1), np.ones(1)


class MaskFields(NamedTuple):
    """A mask, and the matrices from which its fields are computed."""

    complete: Tensor  # (S, S) bool
    missing: Tensor  # (m,) indices in the flattened plane
    inverses: Tensor  # (3, m, m), one for each order


class Pool:
    """The masks of a training; `renew` replaces the oldest one."""

    def __init__(self, side: int, size: int, rng: np.random.Generator, device: str) -> None:
        self.side, self.rng, self.device = side, rng, device
        self.oldest = 0
        self.entries = [self._draw() for _ in range(size)]

    def renew(self) -> None:
        """Replace the oldest mask by a new one."""
        self.entries[self.oldest] = self._draw()
        self.oldest = (self.oldest + 1) % len(self.entries)

    def draw(self, count: int) -> list[MaskFields]:
        """Choose `count` masks at random, without repetition if there are enough."""
        picked = self.rng.choice(len(self.entries), count, replace=count > len(self.entries))
        return [self.entries[i] for i in picked]

    def _draw(self) -> MaskFields:
        """Draw a random mask and compute its matrices."""
        complete = torch.from_numpy(random_mask(self.side, self.rng)).to(self.device)
        fields = [Field(complete, s) for s in ORDERS]
        self.cosines = fields[0].down  # depends on the side alone, like φ
        self.phi = torch.stack([field.phi for field in fields])
        inverses = [field.inverse for field in fields if field.inverse is not None]
        return MaskFields(complete, fields[0].missing, torch.stack(inverses))

    def fields(self, z: Tensor, gaps: Sequence[MaskFields]) -> Tensor:
        """(N, 3, S, S) fields of the three orders through z (N, S, S), as `Field` computes them.

        Every mask has the same number of successive planes.
        """
        C = self.cosines
        with arithmetic("fp32"):  # λ^s needs more digits than TF32 has
            right = (C.T @ (self.phi * (C @ z @ C.T)[:, None]) @ C).flatten(2)
            f = z.flatten(1)[:, None].repeat(1, len(ORDERS), 1)
            count = len(z) // len(gaps)
            for start, (_, missing, inverses) in zip(range(0, len(z), count), gaps, strict=True):
                part = slice(start, start + count)
                solution = right[part][..., missing].transpose(0, 1) @ inverses
                f[part].index_copy_(2, missing, -solution.transpose(0, 1))
        return f.view(*right.shape[:2], *z.shape[1:])


def random_mask(side: int, rng: np.random.Generator) -> Bools:
    """(side, side) random mask, True = observed, with one kind of gaps or two combined."""
    observed = np.ones((side, side), bool)
    for _ in range(1 + int(rng.random() < 0.2)):
        observed &= _one_kind(side, rng)
    if not 0 < observed.mean() < 1 or observed.mean() < 0.25:
        return random_mask(side, rng)
    return np.ascontiguousarray(np.rot90(observed, int(rng.integers(4))))


def _one_kind(side: int, rng: np.random.Generator) -> Bools:
    """Draw a mask (side, side) with one kind of gaps, True = observed."""
    kind = str(rng.choice([*MASKS, "frame"]))
    if kind == "frame":
        observed = np.ones((side, side), bool)
        height = int(rng.integers(FRAMES[0], min(FRAMES[1], side // 3) + 1))
        top = int(rng.integers(0, side - height + 1))
        observed[top : top + height] = False
        return observed
    low, high = MASKS[kind]
    observed = make_mask(kind, (1, side, side), float(rng.uniform(low, high)), rng)
    plane: Bools = observed if observed.ndim == 2 else observed[0]
    return plane


def batch_of(shelf: Shelf, pool: Pool, masks: int, planes: int, rng: Generator) -> Batch:
    """Draw masks × planes samples: `planes` for each mask, so that their fields share matrices."""
    gaps = pool.draw(masks)
    complete = torch.stack([entry.complete for entry in gaps]).repeat_interleave(planes, dim=0)
    truth, z, sigma = _measured(shelf.crops(len(complete), pool.side, pool.rng), complete, rng)
    return Batch(truth, z, pool.fields(z, gaps), complete, sigma)


def _measured(crops: Tensor, complete: Tensor, rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Add texture and noise to crops (N, S, S); return the truth, z and σ.

    They are in the unit of the observed pixels of z.
    """
    truth = _unit(_planted(_unit(crops), rng))
    uniform = torch.rand(4, len(truth), generator=rng, device=truth.device)
    texture = TEXTURE * uniform[0] * (uniform[1] < TEXTURED)
    truth = truth + texture[:, None, None] * _normal(truth, rng)
    low, high = (math.log(x) for x in NOISE)
    sigma = (low + (high - low) * uniform[2]).exp() * (uniform[3] >= CLEAN)
    noisy = truth + sigma[:, None, None] * _normal(truth, rng)
    # like a user's plane: centred, scaled and turned by its observed pixels alone
    centre = (noisy * complete).sum(dim=(1, 2)) / complete.sum(dim=(1, 2))
    centred = (noisy - centre[:, None, None]) * complete
    unit = roughness(centred, complete).clamp_min(1e-6) * turn(centred)
    truth = (truth - centre[:, None, None]) / unit[:, None, None]
    return truth, centred / unit[:, None, None], sigma / unit.abs()


def _planted(planes: Tensor, rng: Generator) -> Tensor:
    """Add small bright objects to some planes (N, S, S); replace a few by ramps or rectangles."""
    N, S, _ = planes.shape
    device = planes.device
    position = torch.arange(S, device=device, dtype=planes.dtype)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    across, down = (position - (S - 1) * uniform(2, N, DOTS, 1)).abs()
    radius = RADII[0] + (RADII[1] - RADII[0]) * uniform(N, DOTS, 1)
    height = BRIGHT[0] + (BRIGHT[1] - BRIGHT[0]) * uniform(N, DOTS, 1)
    height = height * (uniform(N, DOTS, 1) < uniform(N, 1, 1)) * (uniform(N, 1, 1) < DOTTED)
    exponent = torch.where(uniform(N, 1, 1) < 0.5, 2.0, 12.0)  # a bell, or a flat top
    rows, cols = ((-0.5 * (x / radius) ** exponent).exp() for x in (down, across))
    dotted = planes + (height * rows).transpose(1, 2) @ cols
    angle = 2 * torch.pi * uniform(N, 1, 1)
    along = angle.cos() * position + angle.sin() * position[:, None]
    athwart = angle.cos() * position[:, None] - angle.sin() * position
    side = SIDES[0] + (SIDES[1] - SIDES[0]) * uniform(2, N, 1, 1)
    levels = torch.randn(N, S, S, generator=rng, device=device)
    ceiling = torch.where(uniform(N, 1, 1) < 0.5, 0.0, torch.inf)
    levels = torch.minimum(levels, ceiling).flatten(1)
    # sides are 3 px at least, so that the numbers of rectangles modulo S differ
    cell = ((torch.stack([along, athwart]) + S) / side).floor().long() % S
    rectangles = levels.gather(1, (cell[0] * S + cell[1]).flatten(1)).view(N, S, S)
    plain = torch.where(uniform(N, 1, 1) < RAMPS / (RAMPS + FLAT), along, rectangles)
    return torch.where(uniform(N, 1, 1) < RAMPS + FLAT, plain, dotted)


def _normal(like: Tensor, rng: Generator) -> Tensor:
    """Draw N(0, 1) noise in the shape of a tensor."""
    return torch.randn(like.shape, generator=rng, device=like.device)
