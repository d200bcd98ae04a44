"""Evaluate a plane network on a part of an image, without the work needed only for others.

The way down to the coarsest level is computed for the whole image.  On the way up, each level is
computed only where the part depends on it: the blocks of a level see a few pixels around each
pixel, so that pixels further away change nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hydiff.learn.plane_network import PlaneNetwork

Box = tuple[slice, slice]  # rows, cols
BLOCKS = 4  # px that the two residual blocks of a level see around a pixel
LAST = 1  # px that the last convolution sees


def box_of(wanted: Tensor) -> Box:
    """Return the smallest box with all pixels of `wanted` (H, W); one pixel if there are none."""
    rows, cols = (wanted.any(dim=axis).nonzero().flatten().tolist() or [0] for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)


def correction_within(network: PlaneNetwork, inputs: Tensor, box: Box) -> Tensor:
    """(N, H, W) correction of the network for inputs (N, 6, H, W) in a box; 0 elsewhere."""
    H, W = inputs.shape[-2:]
    x, skips = network.descended(inputs)
    # the box to compute on each level, the finest first
    boxes = [_wider(box, LAST + BLOCKS, skips[0])]
    for finer in skips[1:]:
        rows, cols = (slice(s.start // 2, -(-s.stop // 2)) for s in boxes[-1])
        boxes.append(_wider((rows, cols), BLOCKS, finer))
    at = (slice(0, x.shape[-2]), slice(0, x.shape[-1]))  # the box of x on its level
    for level in reversed(range(len(skips))):
        rows, cols = (slice(2 * s.start, 2 * s.stop) for s in at)
        grown = _part(network.grow[level](x), (rows, cols), boxes[level])
        x = network.up[level](torch.cat([skips[level][..., *boxes[level]], grown], dim=1))
        at = boxes[level]
    correction = inputs.new_zeros(len(inputs), H, W)
    correction[..., *box] = _part(network.last(x)[:, 0], at, box)
    return correction


def _wider(box: Box, by: int, image: Tensor) -> Box:
    """Widen a box by a margin, within the image."""
    sides = zip(box, image.shape[-2:], strict=True)
    rows, cols = (slice(max(s.start - by, 0), min(s.stop + by, n)) for s, n in sides)
    return rows, cols


def _part(image: Tensor, at: Box, box: Box) -> Tensor:
    """Return the pixels of a box from an image that covers the box `at`."""
    rows, cols = (slice(b.start - a.start, b.stop - a.start) for a, b in zip(at, box, strict=True))
    return image[..., rows, cols]
