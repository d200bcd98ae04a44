"""Parts that several networks share: reproducible construction, padding by reflection.

Shapes: images are (..., H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

Module = TypeVar("Module", bound=nn.Module)


def built(make: Callable[[], Module], rng: Generator) -> Module:
    """Build a network on the device of `rng`; the same state of `rng` gives the same weights.

    Layers are initialised from torch's global generator, whose state is restored afterwards.
    """
    seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make().to(rng.device)


def reflected(x: Tensor, n: int) -> Tensor:
    """Extend x by n pixels of reflection on each side; n is less than both sides of x."""
    if n == 0:
        return x
    if not torch.are_deterministic_algorithms_enabled():
        return F.pad(x, (n, n, n, n), mode="reflect")
    # on a GPU, torch sums the gradients of F.pad in no fixed order
    rows, cols = (_mirror(side, -n, side + n, x) for side in x.shape[-2:])
    return x[..., rows[:, None], cols]


def reflect_to_multiple(x: Tensor, of: int, least: int = 0) -> Tensor:
    """Extend x below and right by repeated reflection, up to sides that are multiples of `of`.

    Both sides become at least `least`.  Works on masks too; crop back with `[..., :H, :W]`.
    """
    rows, cols = (-(-max(side, least) // of) * of for side in x.shape[-2:])
    if (rows, cols) == tuple(x.shape[-2:]):
        return x
    i, j = _mirror(x.shape[-2], 0, rows, x), _mirror(x.shape[-1], 0, cols, x)
    return x[..., i[:, None], j]


class ReflectedConv(nn.Conv2d):
    """Convolution with mirrored borders, of any odd kernel, stride and number of groups."""

    def forward(self, x: Tensor) -> Tensor:
        x = reflected(x, self.kernel_size[0] // 2)
        return F.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)


def _mirror(side: int, start: int, stop: int, like: Tensor) -> Tensor:
    """Indices start ... stop - 1, reflected into 0 ... side - 1 without repeating the border."""
    index = torch.arange(start, stop, device=like.device)
    period = max(2 * side - 2, 1)
    index = index.remainder(period)
    return torch.minimum(index, period - index) if side > 1 else torch.zeros_like(index)
