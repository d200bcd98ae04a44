"""Launch the `kernels` on tensors: what to compute, in which tiles, with which scratch memory.

Images are (N, H, W, C), channels last.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from hydiff.learn import kernels

SPLITS = 128  # most parts of a sum
PIXELS = 64  # a program's tile: pixels × channels
CHANNELS = 32
COUNTERS = 4096  # images × blocks of CHANNELS that one layer may have
SMALL = (128, 512)  # pixels that one program can hold, of NARROW channels
NARROW = 16
ALIGNED = 8  # channels at a time, as matrix units like them


class FusedLayer(NamedTuple):
    """What is done between two convolutions, with the tensors it takes."""

    gamma: Tensor  # (C,)
    beta: Tensor  # (C,)
    eps: float
    slope: float  # of the activation; 1 is none
    size: tuple[int, int]  # (H, W) of what is written; other than x's, x is doubled and cut to it
    counters: Tensor  # (COUNTERS,) int32, all 0; not for use by two streams at a time
    offset: int = 0  # the first channel to write to


def normalise(x: Tensor, layer: FusedLayer, plain: Tensor | None, padded: Tensor | None) -> Tensor:
    """Write x (N, h, w, C), normalised and activated, into `plain` and `padded`; the statistics.

    plain (N, H, W, ≥ C), padded (N, H + 2, W + 2, ≥ C); None: not wanted.
    """
    n, h, w, c = x.shape
    H, W = layer.size
    up = int(layer.size != (h, w))
    stats = x.new_empty((n, 2, c), dtype=torch.float32)
    out = _given(plain, padded)
    flags = up, int(plain is not None), int(padded is not None)
    to = x if plain is None else plain, x if padded is None else padded
    shape = c, out.shape[-1], layer.offset, H, W, h, w
    if (tile := _small(H * W)) is not None:
        kernels.apply_small[(n, triton.cdiv(c, NARROW))](
            x, layer.gamma, layer.beta, stats, *to, *shape, layer.eps, layer.slope, *flags,
            PIXELS=tile, CHANNELS=NARROW, num_warps=tile // 32,
        )  # fmt: skip
        return stats
    chunk, parts = _split(H * W)
    part = x.new_empty((n, parts, 2, c), dtype=torch.float32)
    blocks = triton.cdiv(c, CHANNELS)
    kernels.moments[(parts, n, blocks)](
        x, part, layer.counters, stats, c, H * W, W, h, w, chunk, parts, layer.eps, up,
        PIXELS=PIXELS, CHANNELS=CHANNELS, SPLITS=SPLITS,
    )  # fmt: skip
    pixels = H * W if padded is None else (H + 2) * (W + 2)
    kernels.apply[(triton.cdiv(pixels, PIXELS), n, blocks)](
        x, layer.gamma, layer.beta, stats, *to, *shape, layer.slope, 1, *flags,
        PIXELS=PIXELS, CHANNELS=CHANNELS,
    )  # fmt: skip
    return stats


def normalise_backward(
    x: Tensor,
    stats: Tensor,
    layer: FusedLayer,
    plain: Tensor | None,
    padded: Tensor | None,
    grads: Tensor,
) -> Tensor:
    """The gradient of x, given those of what `normalise` wrote.

    Those of γ and β go to grads (N, 2, ≥ C), float32, from the layer's first channel on.
    """
    n, h, w, c = x.shape
    H, W = layer.size
    up = int(layer.size != (h, w))
    out = _given(plain, padded)
    flags = up, int(plain is not None), int(padded is not None)
    given = x if plain is None else plain, x if padded is None else padded
    total = grads.shape[-1]
    dx = torch.empty_like(x)
    if (tile := _small(h * w)) is not None:
        kernels.gradient_small[(n, triton.cdiv(c, NARROW))](
            x, stats, layer.gamma, layer.beta, *given, dx, grads, c, out.shape[-1], total,
            layer.offset, H, W, h, w, layer.slope, *flags,
            PIXELS=tile, CHANNELS=NARROW, num_warps=tile // 32,
        )  # fmt: skip
        return dx
    chunk, parts = _split(h * w)
    d, part = torch.empty_like(x), x.new_empty((n, parts, 2, c), dtype=torch.float32)
    blocks = triton.cdiv(c, CHANNELS)
    kernels.gradient_sums[(parts, n, blocks)](
        x, stats, layer.gamma, layer.beta, *given, d, part, layer.counters, grads, c,
        out.shape[-1], total, layer.offset, H, W, h, w, chunk, parts, layer.slope, 1, *flags,
        PIXELS=PIXELS, CHANNELS=CHANNELS, SPLITS=SPLITS,
    )  # fmt: skip
    kernels.gradient[(triton.cdiv(h * w, PIXELS), n, blocks)](
        x, stats, layer.gamma, d, grads, dx, c, total, layer.offset, H, W, h, w, up,
        PIXELS=PIXELS, CHANNELS=CHANNELS,
    )  # fmt: skip
    return dx


def copy(x: Tensor, plain: Tensor, padded: Tensor) -> None:
    """Write x (N, H, W, C) into both as it is; their channels beyond C become 0."""
    n, h, w, c = x.shape
    pitch = plain.shape[-1]
    kernels.apply[(triton.cdiv((h + 2) * (w + 2), PIXELS), n, triton.cdiv(pitch, CHANNELS))](
        x, x, x, x, plain, padded, c, pitch, 0, h, w, h, w, 1.0, 0, 0, 1, 1,
        PIXELS=PIXELS, CHANNELS=CHANNELS,
    )  # fmt: skip


def copy_backward(x: Tensor, plain: Tensor, padded: Tensor) -> Tensor:
    """The gradient of x, given those of what `copy` wrote."""
    n, h, w, c = x.shape
    dx = torch.empty_like(x)
    chunk, parts = PIXELS, triton.cdiv(h * w, PIXELS)  # nothing to add up
    kernels.gradient_sums[(parts, n, triton.cdiv(c, CHANNELS))](
        x, x, x, x, plain, padded, dx, x, x, x, c, plain.shape[-1], c, 0, h, w, h, w,
        chunk, parts, 1.0, 0, 0, 1, 1, PIXELS=PIXELS, CHANNELS=CHANNELS, SPLITS=SPLITS,
    )  # fmt: skip
    return dx


@cache
def compile_all(dtype: torch.dtype, bands: int, channels: int, device: torch.device) -> None:
    """Compile what a network with so many bands and channels launches, or load what Triton kept.

    Each kernel in a thread of its own, on an image of zeros: the compilers that Triton starts as
    processes then run side by side.
    """
    sides = *(int(pixels**0.5) for pixels in SMALL), int(SMALL[-1] ** 0.5) + 1

    def image(side: int, depth: int, kind: torch.dtype = dtype) -> Tensor:
        return torch.zeros(1, side, side, depth, dtype=kind, device=device)

    def layer(side: int) -> None:
        x, one = image(side, channels), torch.ones(channels, device=device)
        counters = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
        own = FusedLayer(one, one, 1e-5, 1.0, (side, side), counters)
        stats = normalise(x, own, image(side, channels), image(side + 2, channels))
        grads = torch.zeros(1, 2, channels, device=device)
        normalise_backward(x, stats, own, x, image(side + 2, channels), grads)

    def bands_in(side: int) -> None:
        x, pitch = image(side, bands, torch.float32), bands + -bands % ALIGNED
        copy(x, image(side, pitch), image(side + 2, pitch))
        copy_backward(x, image(side, pitch), image(side + 2, pitch))

    with ThreadPoolExecutor(len(sides) + 1) as pool:
        done = [pool.submit(layer, side) for side in sides]
        done += [pool.submit(bands_in, sides[-1])]
        for one in done:
            one.result()


def _given(plain: Tensor | None, padded: Tensor | None) -> Tensor:
    out = plain if padded is None else padded
    assert out is not None
    return out


def _small(pixels: int) -> int | None:
    """The tile that holds all of a small image, if one does."""
    return next((tile for tile in SMALL if pixels <= tile), None)


def _split(pixels: int) -> tuple[int, int]:
    """Pixels a part, and parts, of a sum over so many pixels."""
    tiles = triton.cdiv(pixels, PIXELS)
    chunk = triton.cdiv(tiles, SPLITS) * PIXELS
    return chunk, triton.cdiv(pixels, chunk)
