"""A network that corrects the fill of one plane, whatever the sensor and its number of bands.

A plane is one principal component, or one band, with mean 0 and in units of its RMS difference
between neighbouring pixels.  The network sees three smooth fields through the plane, the mask, the
observed values and the noise level.  Its output is added to the middle field: in the gaps, or
everywhere if the plane is noisy.

Letters: z (N, H, W) planes, f (N, 3, H, W) their fields of the orders `ORDERS`, complete (H, W)
or (N, H, W), sigma (N,) noise in the unit of the plane.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ORDERS = (1.0, 1.5, 1.9)  # orders of the smooth fields that the network sees
MIDDLE = 1  # index of the field that it corrects
INPUTS = 6
LEVELS = (1, 2, 4, 4)  # channels of each level, in units of the width
WIDTHS = {"small": 16, "full": 48}
SIDE = 2 ** (len(LEVELS) - 1)  # px: the sides of images are padded to multiples of it


class PlaneNetwork(nn.Module):
    """A U-Net of plain convolutions without normalisation: inputs (N, 6, H, W) to (N, H, W).

    The last layer starts at zero, so that the correction is 0 before training.
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
        """Features of the coarsest level, and skip connections of the finer ones, finest first."""
        H, W = inputs.shape[-2:]
        x = self.first(F.pad(inputs, (0, -W % SIDE, 0, -H % SIDE), mode="replicate"))
        skips = []
        for level, blocks in enumerate(self.down):
            x = blocks(x)
            if level < len(self.shrink):
                skips.append(x)
                x = self.shrink[level](x)
        return x, skips

    def forward(self, inputs: Tensor) -> Tensor:
        H, W = inputs.shape[-2:]
        x, skips = self.descended(inputs)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat([skips[level], self.grow[level](x)], dim=1))
        correction: Tensor = self.last(x)[:, 0, :H, :W]
        return correction


class Blocks(nn.Module):
    """Two residual blocks at one level, after a 1×1 convolution if the channels change."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(inputs, channels, 1) if inputs != channels else nn.Identity()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.SiLU(),
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.SiLU(inplace=True),
                nn.Conv2d(channels, channels, 3, padding=1),
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x).add_(x)  # in place, because fresh memory takes time
        return x


def roughness(z: Tensor, complete: Tensor | None = None) -> Tensor:
    """(N,) RMS difference of neighbouring pixels in planes (N, H, W), where both are complete."""
    mask = torch.ones_like(z) if complete is None else complete.to(z.dtype).expand_as(z)
    total, pairs = z.new_zeros(len(z)), z.new_zeros(len(z))
    for axis in (1, 2):
        both = mask.narrow(axis, 1, z.shape[axis] - 1) * mask.narrow(axis, 0, z.shape[axis] - 1)
        total += (z.diff(dim=axis) ** 2 * both).sum(dim=(1, 2))
        pairs += both.sum(dim=(1, 2))
    return (total / pairs.clamp_min(1)).sqrt()


def turn(z: Tensor) -> Tensor:
    """(N,) factor, 1 or -1, that makes the skewness of planes (N, H, W) positive.

    The sign of a component is arbitrary; with this factor the fill of −z is minus the fill of z.
    """
    return torch.where((z**3).sum(dim=(1, 2)) < 0, -1.0, 1.0)


def inputs_of(z: Tensor, f: Tensor, complete: Tensor, sigma: Tensor) -> Tensor:
    """(N, 6, H, W) inputs: first field, two differences of fields, mask, observed values, noise."""
    mask = complete.to(z.dtype).expand_as(z)
    first, middle, last = f.unbind(1)
    noise = sigma[:, None, None].expand_as(z)
    return torch.stack([first, middle - first, last - middle, mask, z * mask, noise], dim=1)


def corrected(
    network: nn.Module, z: Tensor, f: Tensor, complete: Tensor, sigma: Tensor, gate: Tensor
) -> Tensor:
    """Return the planes with their gaps filled, (N, H, W).

    gate: (H, W) or (N, H, W), weight of the correction: 1 where the network is trusted, 0 where the
    field stays as it is.  Observed pixels of planes without noise are returned unchanged.
    """
    correction = network(inputs_of(z, f, complete, sigma)).to(f.dtype)
    estimate = f[:, MIDDLE] + gate * correction
    clean = complete & (sigma == 0)[:, None, None]
    return torch.where(clean, z, estimate)
