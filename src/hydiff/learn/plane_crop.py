"""What a plane network says about a part of an image, without what only the rest needs.

The way down to the coarsest level is that of the whole image.  On the way up a level is worked out
where the part reads it: its blocks see a few pixels around each, and what lies beyond changes
nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hydiff.learn.plane_network import PlaneNetwork

Box = tuple[slice, slice]  # rows, cols
BLOCKS = 4  # px that the two residual blocks of a level see around a pixel
LAST = 1  # px that the last convolution sees


def box_of(wanted: Tensor) -> Box:
    """The smallest that holds all that is wanted (H, W); one pixel where nothing is."""
    rows, cols = (wanted.any(dim=axis).nonzero().flatten().tolist() or [0] for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)


def correction_within(network: PlaneNetwork, inputs: Tensor, box: Box) -> Tensor:
    """(N, H, W) what the network makes of inputs (N, 6, H, W) in a box; 0 elsewhere."""
    H, W = inputs.shape[-2:]
    x, passed = network.descended(inputs)
    read = [_wider(box, LAST + BLOCKS, passed[0])]  # of each level, the finest first
    for finer in passed[1:]:
        rows, cols = (slice(s.start // 2, -(-s.stop // 2)) for s in read[-1])
        read.append(_wider((rows, cols), BLOCKS, finer))
    at = (slice(0, x.shape[-2]), slice(0, x.shape[-1]))  # where x lies on its level
    for level in reversed(range(len(passed))):
        rows, cols = (slice(2 * s.start, 2 * s.stop) for s in at)
        grown = _part(network.grow[level](x), (rows, cols), read[level])
        x = network.up[level](torch.cat([passed[level][..., *read[level]], grown], dim=1))
        at = read[level]
    correction = inputs.new_zeros(len(inputs), H, W)
    correction[..., *box] = _part(network.last(x)[:, 0], at, box)
    return correction


def _wider(box: Box, by: int, image: Tensor) -> Box:
    """A box with a margin, as far as the image goes."""
    sides = zip(box, image.shape[-2:], strict=True)
    rows, cols = (slice(max(s.start - by, 0), min(s.stop + by, n)) for s, n in sides)
    return rows, cols


def _part(image: Tensor, at: Box, box: Box) -> Tensor:
    """A box of an image that lies at another one."""
    rows, cols = (slice(b.start - a.start, b.stop - a.start) for a, b in zip(at, box, strict=True))
    return image[..., rows, cols]
