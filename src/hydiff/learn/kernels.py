"""Triton kernels between the convolutions: normalise, activate, mirror the border, double, join.

Images are (N, H, W, C), channels last; each has its own statistics.  A large image takes two
kernels in each direction: the first sums over its pixels, the second computes everything that
depends on the sums, and writes it once, in the form that the next convolution reads.  A small image
takes a single kernel.  `kernel_calls` launches them.

Sums are taken in at most SPLITS parts, each written by one program.  The last program to finish
adds them up, always in the same order, so that results are reproducible.

The operations of a kernel are selected by its arguments at run time, not at compile time: a few
short compilations (stored on disk by Triton) serve all layers.
"""

from __future__ import annotations

import triton
import triton.language as tl

# compiled for any value; not the numbers of channels, whose alignment allows wide loads
ANY = [
    "P", "H", "W", "h", "w", "chunk", "parts", "norm", "up", "plain", "padded", "eps", "slope"
]  # fmt: skip


@triton.jit
def _is_last(counter, parts):
    """Return whether all other parts are in memory by now; if so, reset the counter to 0."""
    tl.debug_barrier()  # wait until this program's part is written
    done = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") + 1
    if done == parts:
        tl.store(counter, 0)
    return done == parts


@triton.jit
def _added_up(part, n, c, C, parts, WHICH: tl.constexpr, SPLITS: tl.constexpr):
    """Return sum number WHICH, (CHANNELS,), from its parts (N, parts, 2, C)."""
    s = tl.arange(0, SPLITS)
    at = ((n * parts + s) * 2 + WHICH) * C
    mask = (s < parts)[:, None] & (c < C)[None, :]
    values = tl.load(part + at[:, None] + c[None, :], mask=mask, other=0.0, cache_modifier=".cg")
    return tl.sum(values, axis=0)


@triton.jit
def _gathered(
    g_plain, g_padded, n, i, j, low, high, ok, c, C, pitch, offset, H, W, up, plain, padded,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Return the gradient of pixels (i, j) in lines low to high: the sum over all their copies."""
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    to = (offset + c)[None, :]
    for child in range(1 + 3 * up):
        a, b = child // 2, child % 2
        r, q = (i << up) + a, (j << up) + b
        first, last = (low << up) + a, (high << up) + a
        here = ok & (r < H) & (q < W)
        if plain:
            at = ((n * H + r) * W + q)[:, None] * pitch + to
            mask = here[:, None] & (c < C)[None, :]
            total += tl.load(g_plain + at, mask=mask, other=0.0).to(tl.float32)
        if padded:
            for k in tl.static_range(3):  # its line, and the border lines that mirror it
                if k == 0:
                    row, hit, any_hit = r + 1, here, True
                elif k == 1:
                    row, hit, any_hit = r * 0, here & (r == 1), (first <= 1) & (last >= 1)
                else:
                    row, hit = r * 0 + H + 1, here & (r == H - 2)
                    any_hit = (first <= H - 2) & (last >= H - 2)
                if any_hit:
                    line = (n * (H + 2) + row) * (W + 2)
                    mask = hit[:, None] & (c < C)[None, :]
                    at = (line + q + 1)[:, None] * pitch + to
                    total += tl.load(g_padded + at, mask=mask, other=0.0).to(tl.float32)
                    at = line[:, None] * pitch + to
                    left = mask & (q == 1)[:, None]
                    total += tl.load(g_padded + at, mask=left, other=0.0).to(tl.float32)
                    at = (line + W + 1)[:, None] * pitch + to
                    right = mask & (q == W - 2)[:, None]
                    total += tl.load(g_padded + at, mask=right, other=0.0).to(tl.float32)
    return total


@triton.jit(do_not_specialize=ANY)
def moments(
    x, part, counters, stats, C, P, W, h, w, chunk, parts, eps, up,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Write mean and 1/σ, (N, 2, C), of the (doubled) image, from Σ (x - x_0) and Σ (x - x_0)²."""
    s, n = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    image = x + n * h * w * C
    x_0 = tl.load(image + c, mask=c < C, other=0.0).to(tl.float32)
    sum_1 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    sum_2 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    end = tl.minimum((s + 1) * chunk, P)
    for start in range(s * chunk, end, PIXELS):
        p = start + tl.arange(0, PIXELS)
        source = ((p // W) >> up) * w + ((p % W) >> up)
        mask = (p < end)[:, None] & (c < C)[None, :]
        v = tl.load(image + source[:, None] * C + c[None, :], mask=mask, other=0.0)
        v = tl.where(mask, v.to(tl.float32) - x_0[None, :], 0.0)
        sum_1 += v
        sum_2 += v * v
    at = part + (n * parts + s) * 2 * C + c
    tl.store(at, tl.sum(sum_1, axis=0), mask=c < C)
    tl.store(at + C, tl.sum(sum_2, axis=0), mask=c < C)
    if _is_last(counters + n * tl.num_programs(2) + tl.program_id(2), parts):
        away = _added_up(part, n, c, C, parts, 0, SPLITS) / P
        square = _added_up(part, n, c, C, parts, 1, SPLITS) / P
        rstd = 1.0 / tl.sqrt(tl.maximum(square - away * away, 0.0) + eps)
        tl.store(stats + n * 2 * C + c, x_0 + away, mask=c < C)
        tl.store(stats + (n * 2 + 1) * C + c, rstd, mask=c < C)


@triton.jit(do_not_specialize=ANY)
def apply(
    x, gamma, beta, stats, to_plain, to_padded, C, pitch, offset, H, W, h, w,
    slope, norm, up, plain, padded, PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Normalise, activate and double; write the image plain, with a mirrored border, or both.

    It is written to the channels from `offset` on in images with `pitch` channels.  Without `norm`
    the image is only copied, and the channels from C to `pitch` become 0.
    """
    n = tl.program_id(1)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    image = x + n * h * w * C
    wide, high = W + 2 * padded, H + 2 * padded
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    r, q = p // wide - padded, p % wide - padded
    row = (H - 1) - tl.abs((H - 1) - tl.abs(r))  # mirrored at both borders
    col = (W - 1) - tl.abs((W - 1) - tl.abs(q))
    source = (row >> up) * w + (col >> up)
    mask = (p < wide * high)[:, None] & (c < C)[None, :]
    v = tl.load(image + source[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    if norm:
        mean = tl.load(stats + n * 2 * C + c, mask=c < C, other=0.0)
        rstd = tl.load(stats + (n * 2 + 1) * C + c, mask=c < C, other=0.0)
        scale = rstd * tl.load(gamma + c, mask=c < C, other=0.0)
        v = (v - mean[None, :]) * scale[None, :] + tl.load(beta + c, mask=c < C, other=0.0)[None, :]
        v = tl.where(v > 0, v, v * slope)
    to = (offset + c)[None, :]
    fits = (p < wide * high)[:, None] & (to < pitch)
    if norm:
        fits = mask
    if padded:
        at = (n * wide * high + p)[:, None] * pitch + to
        tl.store(to_padded + at, v.to(to_padded.dtype.element_ty), mask=fits)
    if plain:
        fits = fits & ((r >= 0) & (r < H) & (q >= 0) & (q < W))[:, None]
        at = ((n * H + r) * W + q)[:, None] * pitch + to
        tl.store(to_plain + at, v.to(to_plain.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=ANY)
def apply_small(
    x, gamma, beta, stats, to_plain, to_padded, C, pitch, offset, H, W, h, w, eps, slope,
    up, plain, padded, PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Do the work of `moments` and `apply`, for an image that fits into one tile of pixels."""
    n = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p = tl.arange(0, PIXELS)
    ok = p < H * W
    r, q = p // W, p % W
    source = n * h * w + (r >> up) * w + (q >> up)
    mask = ok[:, None] & (c < C)[None, :]
    v = tl.load(x + source[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / (H * W)
    v = tl.where(mask, v - mean[None, :], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / (H * W) + eps)
    tl.store(stats + n * 2 * C + c, mean, mask=c < C)
    tl.store(stats + (n * 2 + 1) * C + c, rstd, mask=c < C)
    scale = rstd * tl.load(gamma + c, mask=c < C, other=0.0)
    v = v * scale[None, :] + tl.load(beta + c, mask=c < C, other=0.0)[None, :]
    v = tl.where(v > 0, v, v * slope)
    to = (offset + c)[None, :]
    if plain:
        at = ((n * H + r) * W + q)[:, None] * pitch + to
        tl.store(to_plain + at, v.to(to_plain.dtype.element_ty), mask=mask)
    if padded:
        out = v.to(to_padded.dtype.element_ty)
        for k in tl.static_range(3):  # its line, and the border lines that mirror it
            if k == 0:
                row, hit = r + 1, ok
            elif k == 1:
                row, hit = r * 0, ok & (r == 1)
            else:
                row, hit = r * 0 + H + 1, ok & (r == H - 2)
            line = (n * (H + 2) + row) * (W + 2)
            hits = hit[:, None] & (c < C)[None, :]
            tl.store(to_padded + (line + q + 1)[:, None] * pitch + to, out, mask=hits)
            left = hits & (q == 1)[:, None]
            tl.store(to_padded + line[:, None] * pitch + to, out, mask=left)
            right = hits & (q == W - 2)[:, None]
            tl.store(to_padded + (line + W + 1)[:, None] * pitch + to, out, mask=right)


@triton.jit(do_not_specialize=ANY)
def gradient_sums(
    x, stats, gamma, beta, g_plain, g_padded, d, part, counters, grads, C, pitch, total, offset,
    H, W, h, w, chunk, parts, slope, norm, up, plain, padded,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Write d, the gradient before the activation, for each pixel of x.

    Σ d x̂ and Σ d, the gradients of γ and β, are written to grads (N, 2, total), from `offset` on.
    """
    s, n = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    sum_dx = tl.zeros((PIXELS, CHANNELS), tl.float32)
    sum_d = tl.zeros((PIXELS, CHANNELS), tl.float32)
    end = tl.minimum((s + 1) * chunk, h * w)
    for start in range(s * chunk, end, PIXELS):
        p = start + tl.arange(0, PIXELS)
        last = tl.minimum(start + PIXELS, end) - 1
        g = _gathered(
            g_plain, g_padded, n, p // w, p % w, start // w, last // w, p < end, c, C, pitch,
            offset, H, W, up, plain, padded, PIXELS, CHANNELS,
        )  # fmt: skip
        mask = (p < end)[:, None] & (c < C)[None, :]
        at = (n * h * w + p)[:, None] * C + c[None, :]
        if norm:
            mean = tl.load(stats + n * 2 * C + c, mask=c < C, other=0.0)
            rstd = tl.load(stats + (n * 2 + 1) * C + c, mask=c < C, other=0.0)
            scale = tl.load(gamma + c, mask=c < C, other=0.0)
            shift = tl.load(beta + c, mask=c < C, other=0.0)
            v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
            v = (v - mean[None, :]) * rstd[None, :]  # x̂
            g = tl.where(v * scale[None, :] + shift[None, :] > 0, g, g * slope)
            sum_dx += tl.where(mask, g * v, 0.0)
            sum_d += tl.where(mask, g, 0.0)
        tl.store(d + at, g.to(d.dtype.element_ty), mask=mask)
    if norm:
        at = part + (n * parts + s) * 2 * C + c
        tl.store(at, tl.sum(sum_dx, axis=0), mask=c < C)
        tl.store(at + C, tl.sum(sum_d, axis=0), mask=c < C)
        if _is_last(counters + n * tl.num_programs(2) + tl.program_id(2), parts):
            to = grads + n * 2 * total + offset + c
            tl.store(to, _added_up(part, n, c, C, parts, 0, SPLITS), mask=c < C)
            tl.store(to + total, _added_up(part, n, c, C, parts, 1, SPLITS), mask=c < C)


@triton.jit
def _pulled(v, sum_d, sum_dx, i, j, H, W, up):
    """Return k (mean d + x̂ mean d x̂); pixel (i, j) of x becomes k pixels by the doubling."""
    k = tl.minimum(H - (i << up), 1 + up) * tl.minimum(W - (j << up), 1 + up)
    return (sum_d[None, :] + v * sum_dx[None, :]) * (k.to(tl.float32) / (H * W))[:, None]


@triton.jit(do_not_specialize=ANY)
def gradient(
    x, stats, gamma, d, grads, dx, C, total, offset, H, W, h, w, up,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Write dx = γ/σ (d - k mean d - k x̂ mean d x̂)."""
    n = tl.program_id(1)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    p = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    mean = tl.load(stats + n * 2 * C + c, mask=c < C, other=0.0)
    rstd = tl.load(stats + (n * 2 + 1) * C + c, mask=c < C, other=0.0)
    sum_dx = tl.load(grads + n * 2 * total + offset + c, mask=c < C, other=0.0)
    sum_d = tl.load(grads + (n * 2 + 1) * total + offset + c, mask=c < C, other=0.0)
    mask = (p < h * w)[:, None] & (c < C)[None, :]
    at = (n * h * w + p)[:, None] * C + c[None, :]
    v = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
    pull = _pulled(v, sum_d, sum_dx, p // w, p % w, H, W, up)
    scale = rstd * tl.load(gamma + c, mask=c < C, other=0.0)
    out = scale[None, :] * (tl.load(d + at, mask=mask, other=0.0).to(tl.float32) - pull)
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=ANY)
def gradient_small(
    x, stats, gamma, beta, g_plain, g_padded, dx, grads, C, pitch, total, offset, H, W, h, w,
    slope, up, plain, padded, PIXELS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Do the work of `gradient_sums` and `gradient`, for an image that fits into one tile."""
    n = tl.program_id(0)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p = tl.arange(0, PIXELS)
    i, j = p // w, p % w
    ok = p < h * w
    mask = ok[:, None] & (c < C)[None, :]
    at = (n * h * w + p)[:, None] * C + c[None, :]
    mean = tl.load(stats + n * 2 * C + c, mask=c < C, other=0.0)
    rstd = tl.load(stats + (n * 2 + 1) * C + c, mask=c < C, other=0.0)
    scale = tl.load(gamma + c, mask=c < C, other=0.0)
    shift = tl.load(beta + c, mask=c < C, other=0.0)
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    v = (v - mean[None, :]) * rstd[None, :]  # x̂
    d = _gathered(
        g_plain, g_padded, n, i, j, 0, h - 1, ok, c, C, pitch, offset, H, W, up, plain, padded,
        PIXELS, CHANNELS,
    )  # fmt: skip
    d = tl.where(v * scale[None, :] + shift[None, :] > 0, d, d * slope)
    d = tl.where(mask, d, 0.0)
    sum_d, sum_dx = tl.sum(d, axis=0), tl.sum(d * v, axis=0)
    tl.store(grads + n * 2 * total + offset + c, sum_dx, mask=c < C)
    tl.store(grads + (n * 2 + 1) * total + offset + c, sum_d, mask=c < C)
    out = (rstd * scale)[None, :] * (d - _pulled(v, sum_d, sum_dx, i, j, H, W, up))
    tl.store(dx + at, out.to(dx.dtype.element_ty), mask=mask)
