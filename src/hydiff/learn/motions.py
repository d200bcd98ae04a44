"""Turn, mirror and shift images: to augment one cube, and to average over symmetries.

Letters: n motions, each a shift down, a shift right and whether to transpose; x (n or 1, K, H, W).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

# The symmetries of the square: transposed or not, then mirrored along some axes.  The first 1, 2, 4
# and 8 of them are groups each.
SYMMETRIES: tuple[tuple[bool, tuple[int, ...]], ...] = tuple(
    (transposed, axes) for transposed in (False, True) for axes in ((), (-1,), (-2,), (-2, -1))
)


def motions(n: int, shape: Sequence[int], dice: Generator) -> Tensor:
    """(n, 3) random motions, each a shift down, a shift right and whether to transpose.

    The image is continued by reflection and shifted by any amount, which includes its mirror
    images; a square one is also transposed half of the time.
    """
    H, W = shape
    ends = (2 * H, 2 * W, 1 + (H == W))
    return torch.stack([torch.randint(end, (n,), generator=dice) for end in ends], dim=1)


def sources(motion: Tensor, shape: Sequence[int]) -> Tensor:
    """(n, H·W) number of the pixel that moves to each pixel, for motions (n, 3)."""

    def line(n: int, shift: Tensor) -> Tensor:
        """Return the position on a line of n pixels that moves to each position, (shifts, n)."""
        position = (torch.arange(n, device=motion.device) + shift[:, None]) % (2 * n)
        return torch.minimum(position, 2 * n - 1 - position)

    (H, W), (down, right, transposed) = shape, motion.unbind(1)
    numbers = line(H, down)[:, :, None] * W + line(W, right)[:, None]
    if H == W:
        numbers = torch.where(transposed[:, None, None] == 1, numbers.mT, numbers)
    return numbers.flatten(1)


def moved(x: Tensor, source: Tensor) -> Tensor:
    """Return x (n or 1, K, H, W) with its pixels taken from `source` (n, H·W), as (n, K, H, W)."""
    n, K = len(source), x.shape[1]
    pixels = x.flatten(2).expand(n, -1, -1).gather(2, source[:, None].expand(-1, K, -1))
    return pixels.view(n, *x.shape[1:])


def symmetric(f: Callable[[Tensor], Tensor], x: Tensor, count: int = 8) -> Tensor:
    """Return the mean of f over the first `count` symmetries of images x (n, C, H, W).

    f: maps images to images of the same height and width, (n, ..., H, W).
    """
    outs = []
    for transposed, axes in SYMMETRIES[:count]:
        out = f((x.mT if transposed else x).flip(axes).contiguous()).flip(axes)
        outs.append(out.mT if transposed else out)
    return torch.stack(outs).mean(0)
