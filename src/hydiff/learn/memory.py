"""A memory of spectra that re-weights features window by window, used by SHARE and Hyper-EI.

Features are (B, n, H, W); both sides are multiples of the window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NARROW = 4  # factor by which features, and queries to the memory, are reduced


class SpectralMemory(nn.Module):
    """Compute z from LayerNorm(x) by a bottleneck, gate z window by window, and mix the features.

    The query of a window is its mean, reduced by `NARROW`.  The memory returns a blend of the slots
    that resemble the query.  The blend is expanded to a gate for every feature of the window.
    There is no residual connection around the block.
    """

    def __init__(self, n: int, slots: int, window: int) -> None:
        super().__init__()
        rank = n // NARROW
        self.window = window
        self.norm = nn.LayerNorm(n)
        self.down, self.up = nn.Linear(n, rank), nn.Linear(rank, n)
        self.squeeze, self.stretch = nn.Linear(n, rank), nn.Linear(rank, n)
        self.slots = nn.Parameter(torch.randn(slots, rank))
        self.mix = nn.Linear(n, n)

    def forward(self, x: Tensor) -> Tensor:
        z = self.up(F.gelu(self.down(self.norm(x.movedim(1, -1)))))  # (B, H, W, n)
        pooled = F.avg_pool2d(z.movedim(-1, 1), self.window).movedim(1, -1)
        query = self.squeeze(pooled)
        blend = (query @ self.slots.T / self.slots.shape[1] ** 0.5).softmax(dim=-1)
        gate = torch.sigmoid(self.stretch(blend @ self.slots))
        gate = gate.repeat_interleave(self.window, 1).repeat_interleave(self.window, 2)
        mixed: Tensor = self.mix(gate * z)
        return mixed.movedim(-1, 1)
