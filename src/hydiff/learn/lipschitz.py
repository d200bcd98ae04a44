"""The network of LRS-PnP-DIP(1-Lip): an encoder and decoder whose layers cannot amplify.

Shapes: images are (B, C, H, W).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hydiff.learn.layers import reflect_to_multiple, reflected

UP_KERNELS = (2, 2, 3, 3)  # an even kernel removes the pixel that doubling adds to an odd side
LEAST_SIDE = 20  # smallest side of an image: 2 × 2 at the deepest level


class LipschitzNet(nn.Module):
    """Images (B, C, H, W) of any size to the same shape: four halvings and doublings, no skips."""

    def __init__(self, bands: int, channels: int = 128) -> None:
        super().__init__()
        c = channels
        down = (
            nn.Sequential(_conv(bands if i == 0 else c, c, 3, 2), _conv(c, c, 3)) for i in range(4)
        )
        up = (
            nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), _conv(c, c, kernel))
            for kernel in UP_KERNELS
        )
        last = (_conv(c, c, 1), BoundedConv(c, bands, 1), nn.LeakyReLU(0.2))
        self.layers = nn.Sequential(*down, *up, *last)

    def forward(self, x: Tensor) -> Tensor:
        H, W = x.shape[-2:]
        rows, cols = side_for(H), side_for(W)
        x = reflect_to_multiple(x, 1, least=max(rows, cols))[..., :rows, :cols]
        out: Tensor = self.layers(x)
        return out[..., :H, :W]


def side_for(n: int) -> int:
    """Return the smallest side ≥ n that four halvings, rounded up, and the doublings restore."""
    return max(-(-(n + 12) // 16) * 16 - 12, LEAST_SIDE)


class BoundedConv(nn.Conv2d):
    """Convolution with mirrored borders; its kernel, as a matrix (c_out, rest), has a norm ≤ 1.

    No gradient passes through the norm.
    """

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int = 1) -> None:
        super().__init__(c_in, c_out, kernel, stride)
        nn.init.kaiming_uniform_(self.weight)

    def bounded(self) -> Tensor:
        """Return the kernel that is applied: the weight, divided by its norm if that is above 1."""
        with torch.no_grad():
            matrix = self.weight.flatten(1)
            gram = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
            norm: Tensor = torch.linalg.eigvalsh(gram)[-1].sqrt()
        return self.weight / norm.clamp_min(1)

    def forward(self, x: Tensor) -> Tensor:
        x = reflected(x, (self.kernel_size[0] - 1) // 2)
        return F.conv2d(x, self.bounded(), self.bias, self.stride)


class BoundedNorm(nn.BatchNorm2d):
    """Batch normalisation by the batch at hand; the factors of its channels are at most 1."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        largest = self.weight.detach().abs().max().clamp_min(1)
        weight, bias = self.weight / largest, self.bias / largest
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=self.eps)


def _conv(c_in: int, c: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(BoundedConv(c_in, c, kernel, stride), BoundedNorm(c), nn.LeakyReLU(0.2))
