"""A memory of spectra that re-weights features window by window: in SHARE and in Hyper-EI.

Features are (B, n, H, W); both sides are multiples of the window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NARROW = 4  # the features are squeezed to a fourth, and so is a question to the memory


class SpectralMemory(nn.Module):
    """z = narrow(LayerNorm(x)), each window of it times a gate, mixed by one more layer.

    Each window asks the memory with its mean, squeezed to a fourth: the answer, a blend of the
    slots that resemble it, is stretched to a gate for every feature of the window.  There is no
    path around the block.
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
        question = self.squeeze(pooled)
        blend = (question @ self.slots.T / self.slots.shape[1] ** 0.5).softmax(dim=-1)
        gate = torch.sigmoid(self.stretch(blend @ self.slots))
        gate = gate.repeat_interleave(self.window, 1).repeat_interleave(self.window, 2)
        mixed: Tensor = self.mix(gate * z)
        return mixed.movedim(-1, 1)
