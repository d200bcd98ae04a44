"""Launch the `kernels` on tensors: choose tiles, and allocate results and scratch memory.

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

SPLITS = 128  # largest number of parts of a sum
PIXELS = 64  # a program's tile: pixels × channels
CHANNELS = 32
COUNTERS = 4096  # images × blocks of CHANNELS channels that a layer can have
SMALL = (128, 512)  # pixels that one program can hold, with NARROW channels
NARROW = 16
ALIGNED = 8  # the number of channels is padded to a multiple of this, for the matrix units


class FusedLayer(NamedTuple):
    """The operations between two convolutions, with their parameters."""

    gamma: Tensor  # (C,)
    beta: Tensor  # (C,)
    eps: float
    slope: float  # of the activation; 1: no activation
    size: tuple[int, int]  # (H, W) of the result; if x has another, it is doubled and cropped
    counters: Tensor  # (COUNTERS,) int32, all 0; not to be shared by streams
    offset: int = 0  # the first channel to write to


def normalise(x: Tensor, layer: FusedLayer, plain: Tensor | None, padded: Tensor | None) -> Tensor:
    """Write x (N, h, w, C), normalised and activated, into `plain` and `padded`.

    Returns the statistics.  plain (N, H, W, ≥ C), padded (N, H + 2, W + 2, ≥ C); None: not wanted.
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
    """Return the gradient of x, given the gradients of the images that `normalise` wrote.

    The gradients of γ and β are written to grads (N, 2, ≥ C), float32, from channel `layer.offset`.
    """
    n, h, w, c = x.shape
    H, W = layer.size
    up = int(layer.size != (h, w))
    out = _given(plain, padded)
    flags = up, int(plain is not None), int(padded is not None)
    written = x if plain is None else plain, x if padded is None else padded
    total = grads.shape[-1]
    dx = torch.empty_like(x)
    if (tile := _small(h * w)) is not None:
        kernels.gradient_small[(n, triton.cdiv(c, NARROW))](
            x, stats, layer.gamma, layer.beta, *written, dx, grads, c, out.shape[-1], total,
            layer.offset, H, W, h, w, layer.slope, *flags,
            PIXELS=tile, CHANNELS=NARROW, num_warps=tile // 32,
        )  # fmt: skip
        return dx
    chunk, parts = _split(h * w)
    d, part = torch.empty_like(x), x.new_empty((n, parts, 2, c), dtype=torch.float32)
    blocks = triton.cdiv(c, CHANNELS)
    kernels.gradient_sums[(parts, n, blocks)](
        x, stats, layer.gamma, layer.beta, *written, d, part, layer.counters, grads, c,
        out.shape[-1], total, layer.offset, H, W, h, w, chunk, parts, layer.slope, 1, *flags,
        PIXELS=PIXELS, CHANNELS=CHANNELS, SPLITS=SPLITS,
    )  # fmt: skip
    kernels.gradient[(triton.cdiv(h * w, PIXELS), n, blocks)](
        x, stats, layer.gamma, d, grads, dx, c, total, layer.offset, H, W, h, w, up,
        PIXELS=PIXELS, CHANNELS=CHANNELS,
    )  # fmt: skip
    return dx


def copy(x: Tensor, plain: Tensor, padded: Tensor) -> None:
    """Copy x (N, H, W, C) into `plain` and `padded`; their channels beyond C become 0."""
    n, h, w, c = x.shape
    pitch = plain.shape[-1]
    kernels.apply[(triton.cdiv((h + 2) * (w + 2), PIXELS), n, triton.cdiv(pitch, CHANNELS))](
        x, x, x, x, plain, padded, c, pitch, 0, h, w, h, w, 1.0, 0, 0, 1, 1,
        PIXELS=PIXELS, CHANNELS=CHANNELS,
    )  # fmt: skip


def copy_backward(x: Tensor, plain: Tensor, padded: Tensor) -> Tensor:
    """Return the gradient of x, given the gradients of the images that `copy` wrote."""
    n, h, w, c = x.shape
    dx = torch.empty_like(x)
    chunk, parts = PIXELS, triton.cdiv(h * w, PIXELS)  # no sums are taken
    kernels.gradient_sums[(parts, n, triton.cdiv(c, CHANNELS))](
        x, x, x, x, plain, padded, dx, x, x, x, c, plain.shape[-1], c, 0, h, w, h, w,
        chunk, parts, 1.0, 0, 0, 1, 1, PIXELS=PIXELS, CHANNELS=CHANNELS, SPLITS=SPLITS,
    )  # fmt: skip
    return dx


@cache
def compile_all(dtype: torch.dtype, bands: int, channels: int, device: torch.device) -> None:
    """Compile all kernels for a network of this size, or load them from Triton's cache.

    The kernels run on images of zeros in several threads, so that the compiler processes started by
    Triton run in parallel.
    """
    sides = *(int(pixels**0.5) for pixels in SMALL), int(SMALL[-1] ** 0.5) + 1

    def image(side: int, depth: int, kind: torch.dtype = dtype) -> Tensor:
        """Return an image of zeros, (1, side, side, depth)."""
        return torch.zeros(1, side, side, depth, dtype=kind, device=device)

    def layer(side: int) -> None:
        """Run the kernels of a layer, forward and backward, on an image of this side."""
        x, one = image(side, channels), torch.ones(channels, device=device)
        counters = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
        fused = FusedLayer(one, one, 1e-5, 1.0, (side, side), counters)
        stats = normalise(x, fused, image(side, channels), image(side + 2, channels))
        grads = torch.zeros(1, 2, channels, device=device)
        normalise_backward(x, stats, fused, x, image(side + 2, channels), grads)

    def bands_in(side: int) -> None:
        """Run the kernels that copy the bands of the input, forward and backward."""
        x, pitch = image(side, bands, torch.float32), bands + -bands % ALIGNED
        copy(x, image(side, pitch), image(side + 2, pitch))
        copy_backward(x, image(side, pitch), image(side + 2, pitch))

    with ThreadPoolExecutor(len(sides) + 1) as pool:
        tasks = [pool.submit(layer, side) for side in sides]
        tasks += [pool.submit(bands_in, sides[-1])]
        for one in tasks:
            one.result()


def _given(plain: Tensor | None, padded: Tensor | None) -> Tensor:
    """Return one of the images that are not None."""
    out = plain if padded is None else padded
    assert out is not None
    return out


def _small(pixels: int) -> int | None:
    """Return the smallest tile of `SMALL` that holds a whole image, or None."""
    return next((tile for tile in SMALL if pixels <= tile), None)


def _split(pixels: int) -> tuple[int, int]:
    """Return the pixels in each part of a sum over `pixels`, and the number of parts."""
    tiles = triton.cdiv(pixels, PIXELS)
    chunk = triton.cdiv(tiles, SPLITS) * PIXELS
    return chunk, triton.cdiv(pixels, chunk)
