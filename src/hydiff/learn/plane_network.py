"""A network that corrects the fill of one plane; it knows no sensor and no number of bands.

A plane is one principal component, or one band, with mean 0 and in units of its own RMS neighbour
difference.  The network sees three smooth fields through the plane, the mask and the noise, and
adds a correction to the middle one: in the gaps, or everywhere where there is noise.

Letters: z (N, H, W) planes, f (N, 3, H, W) their fields of the orders `ORDERS`, complete (H, W)
or (N, H, W), sigma (N,) noise in the unit of the plane.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ORDERS = (1.0, 1.5, 1.9)  # of the fields that the network sees
MIDDLE = 1  # the field that it corrects
INPUTS = 6
LEVELS = (1, 2, 4, 4)  # channels of each level, times the width
WIDTHS = {"small": 16, "full": 48}
SIDE = 2 ** (len(LEVELS) - 1)  # px: images are padded to multiples of it


class PlaneNetwork(nn.Module):
    """A U-Net of plain convolutions without normalisation: inputs (N, 6, H, W) to (N, H, W).

    The last layer starts at zero: before training the network corrects nothing.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        channels = [width * level for level in LEVELS]
        self.first = nn.Conv2d(INPUTS, channels[0], 3, padding=1)
        self.down = nn.ModuleList(Blocks(c, c) for c in channels)
        steps = [*pairwise(channels)]
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in steps)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in steps)
        self.up = nn.ModuleList(Blocks(2 * c, c) for c in channels[:-1])
        self.last = nn.Conv2d(channels[0], 1, 3, padding=1)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def descended(self, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The coarsest level, and what the finer ones pass on to the way up, the finest first."""
        H, W = inputs.shape[-2:]
        x = self.first(F.pad(inputs, (0, -W % SIDE, 0, -H % SIDE), mode="replicate"))
        passed = []
        for level, blocks in enumerate(self.down):
            x = blocks(x)
            if level < len(self.shrink):
                passed.append(x)
                x = self.shrink[level](x)
        return x, passed

    def forward(self, inputs: Tensor) -> Tensor:
        H, W = inputs.shape[-2:]
        x, passed = self.descended(inputs)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([passed[level], self.grow[level](x)], dim=1))
        correction: Tensor = self.last(x)[:, 0, :H, :W]
        return correction


class Blocks(nn.Module):
    """Two residual blocks at one level, after a change of channels."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(inputs, channels, 1) if inputs != channels else nn.Identity()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.SiLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.SiLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return x


def roughness(z: Tensor, complete: Tensor | None = None) -> Tensor:
    """(N,) RMS difference of neighbours of planes (N, H, W) that are both complete."""
    mask = torch.ones_like(z) if complete is None else complete.to(z.dtype).expand_as(z)
    total, pairs = z.new_zeros(len(z)), z.new_zeros(len(z))
    for axis in (1, 2):
        both = mask.narrow(axis, 1, z.shape[axis] - 1) * mask.narrow(axis, 0, z.shape[axis] - 1)
        total += (z.diff(dim=axis) ** 2 * both).sum(dim=(1, 2))
        pairs += both.sum(dim=(1, 2))
    return (total / pairs.clamp_min(1)).sqrt()


def turn(z: Tensor) -> Tensor:
    """(N,) the sign of planes (N, H, W) that makes their long tail positive.

    A component has no sign of its own; so turned, the fill of −z is minus the fill of z.
    """
    return torch.where((z**3).sum(dim=(1, 2)) < 0, -1.0, 1.0)


def inputs_of(z: Tensor, f: Tensor, complete: Tensor, sigma: Tensor) -> Tensor:
    """What the network sees, (N, 6, H, W): differences of the fields, the mask, plane and noise."""
    mask = complete.to(z.dtype).expand_as(z)
    first, middle, last = f.unbind(1)
    noise = sigma[:, None, None].expand_as(z)
    return torch.stack([first, middle - first, last - middle, mask, z * mask, noise], dim=1)


def corrected(
    network: nn.Module, z: Tensor, f: Tensor, complete: Tensor, sigma: Tensor, gate: Tensor
) -> Tensor:
    """The planes with their gaps filled, (N, H, W).

    gate: (H, W) or (N, H, W), 1 where the network is trusted, 0 where it must add nothing.
    Observed pixels come back as they are where sigma is 0.
    """
    correction = network(inputs_of(z, f, complete, sigma)).to(f.dtype)
    estimate = f[:, MIDDLE] + gate * correction
    clean = complete & (sigma == 0)[:, None, None]
    return torch.where(clean, z, estimate)
