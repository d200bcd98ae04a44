"""SkipNet with few kernels: the same function as `network.SkipNet`, evaluated faster.

Between two convolutions the reference runs a dozen small kernels: bias, normalisation, activation,
padding, doubling, concatenation, each of which reads and writes the whole image.  Here
`kernel_calls` does this in one or two.  The function stays the same: a bias before a normalisation
has no effect and is left out, and concatenated channels are normalised independently anyway.

The gradients of the weights do not delay those of the images: they are computed in a separate
stream, written once for each pass, and added up by `gather` at the end.

Images are (N, H, W, C), channels last, which is the fastest layout for the convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hydiff.learn import kernel_calls
from hydiff.learn.kernel_calls import ALIGNED, FusedLayer
from hydiff.learn.network import Level, SkipNet, mirrored_up_to

SLOPE = 0.2  # of the activation
NO_SLOPE = 1.0

Context = Any  # of torch.autograd.Function


class FusedSkipNet:
    """A SkipNet for fitting, called like the network itself.

    Call `gather` after backward(), and `refresh` after the weights have changed: the convolutions
    use copies of the weights in `dtype`.
    """

    def __init__(self, network: SkipNet, dtype: torch.dtype) -> None:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network, self.dtype = network, dtype
        self.blocks = [m for m in network.levels.modules() if isinstance(m, nn.Conv2d)]
        self.norms = [m for m in network.levels.modules() if isinstance(m, nn.BatchNorm2d)]
        last = torch.channels_last
        self.copies = [
            conv.weight.detach().to(dtype, memory_format=last).requires_grad_()
            for conv in self.blocks
        ]
        self.counters = {norm: self._counters() for norm in self.norms}
        self.place = {m: i for ms in (self.blocks, self.norms) for i, m in enumerate(ms)}
        self.side, self.branch = (
            torch.cuda.Stream() if self.copies[0].is_cuda else None  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        if self.side is not None:
            bands, device = network.head.out_channels, self.copies[0].device
            kernel_calls.compile_all(dtype, bands, len(self.norms[0].weight), device)
        self._forget()

    def _counters(self) -> Tensor:
        """Return the counters of a layer, all 0 (see `kernel_calls.FusedLayer`)."""
        return torch.zeros(kernel_calls.COUNTERS, dtype=torch.int32, device=self.copies[0].device)

    def _forget(self) -> None:
        """Drop the gradients of all passes."""
        # one gradient for each pass
        self.of_weights: list[list[Tensor]] = [[] for _ in self.blocks]
        self.of_norms: list[list[Tensor]] = [[] for _ in self.norms]  # (N, 2, C): γ, β
        self.held: list[Tensor] = []  # tensors that the other stream may still read

    @torch.no_grad()
    def gather(self) -> None:
        """Add up the gradients of all passes, and store them in the weights of the network."""
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
        gradients = [torch.empty_like(conv.weight) for conv in self.blocks]
        torch._foreach_copy_([_flat(grad) for grad in gradients], _totals(self.of_weights))
        for conv, grad in zip(self.blocks, gradients, strict=True):
            conv.weight.grad = grad
        # the number of images differs between passes: the copies of a step form one batch
        of_norms = [[g if len(g) == 1 else g.sum(0, True) for g in p] for p in self.of_norms]
        for norm, (total,) in zip(self.norms, _totals(of_norms), strict=True):
            norm.weight.grad, norm.bias.grad = total[0], total[1]
        self._forget()

    @torch.no_grad()
    def refresh(self) -> None:
        """Update the copies of the weights."""
        weights = [_flat(conv.weight) for conv in self.blocks]
        torch._foreach_copy_([_flat(copy) for copy in self.copies], weights)

    def __call__(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, H, W), float32 and channels last in memory."""
        rows, cols = x.shape[-2:]
        x = mirrored_up_to(x, self.network.least_side).permute(0, 2, 3, 1).contiguous()
        bands = x.shape[-1]
        plain, padded = _run(_ToPrecision, x, bands + -bands % ALIGNED, self.dtype)
        features = self._level(self.network.levels, plain, padded)[:, :rows, :cols]
        # in float32, since rounding errors of the last product would show in the image
        head = self.network.head
        out = _run(_Head, features.float(), head.weight, head.bias)
        squashed: Tensor = self.network.squash(out)
        return squashed.permute(0, 3, 1, 2)

    def _level(self, level: Level, plain: Tensor, padded: Tensor) -> Tensor:
        """Evaluate one level of the U and those below it.

        plain, padded: the same image without and with a mirrored border.
        """
        with self._branch() as joined:  # runs beside the deeper levels, also in the backward pass
            skip = self._block(level.skip, plain, "plain")[0]
        features = self._block(level.down[0], padded, "padded")[0]
        if isinstance(level.below, Level):
            deep = self._level(level.below, *self._block(level.down[1], features, "both"))
        else:
            deep = self._block(level.down[1], features, "plain")[0]
        norm, first, second = level.merge.children()
        joined()
        both = _run(_Merge, skip, deep, norm.weight, norm.bias, self, norm)
        features = self._block(first, both, "plain")[0]
        return self._block(second, features, "plain")[0]

    def _block(self, block: nn.Module, x: Tensor, form: str) -> tuple[Tensor, ...]:
        """Convolution, normalisation, activation; form: plain, padded (with a border) or both."""
        conv, norm, _ = block.children()
        x = _run(_Convolve, x, self.copies[self.place[conv]], self, conv)
        images: tuple[Tensor, ...] = _run(_Normalise, x, norm.weight, norm.bias, self, norm, form)
        return images

    @contextmanager
    def _branch(self) -> Iterator[Callable[[], None]]:
        """Run the block in another stream; call the yielded function before using its results."""
        branch = self.branch
        if branch is None:
            yield lambda: None
            return
        current = torch.cuda.current_stream()
        branch.wait_stream(current)
        with torch.cuda.stream(branch):
            yield lambda: current.wait_stream(branch)

    @contextmanager
    def beside(self, *read: Tensor) -> Iterator[None]:
        """Run the block, which reads these tensors, in the stream for the gradients of weights."""
        if self.side is None:
            yield
            return
        self.held += read
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield


def _run(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """Apply an autograd function; torch's `apply` has no types."""
    return function.apply(*inputs)  # type: ignore[no-untyped-call]


def _flat(weight: Tensor) -> Tensor:
    """Flatten a weight in its memory order: equal layouts let one kernel work on many tensors."""
    return weight.permute(0, 2, 3, 1).reshape(-1)


def _totals(passes: list[list[Tensor]]) -> list[Tensor]:
    """Sum each list over the passes, with one kernel for each pass."""
    totals = [grads[0] for grads in passes]
    for i in range(1, len(passes[0])):
        torch._foreach_add_(totals, [grads[i] for grads in passes])
    return totals


class _Convolve(torch.autograd.Function):
    """Convolution of (N, H, W, C), 1×1 or 3×3, without padding.

    x may have more channels than the weight, as bands are padded with zeros to a round number.
    """

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, weight: Tensor, net: FusedSkipNet, conv: nn.Conv2d
    ) -> Tensor:
        ctx.net, ctx.conv, ctx.extra = net, conv, x.shape[-1] - weight.shape[1]
        if ctx.extra:
            weight = F.pad(weight, (0, 0, 0, 0, 0, ctx.extra))
            weight = weight.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        if conv.kernel_size == (1, 1):
            return F.linear(x, weight.flatten(1))
        out = F.conv2d(x.permute(0, 3, 1, 2), weight, stride=conv.stride)
        return out.permute(0, 2, 3, 1).contiguous()

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        g = grads[0].contiguous()
        with ctx.net.beside(x, g):
            dw = _convolve_backward(g, x, weight, ctx.conv, of_weight=True)
            if ctx.extra:
                dw = dw[:, : -ctx.extra]
            ctx.net.of_weights[ctx.net.place[ctx.conv]].append(_flat(dw))
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        return _convolve_backward(g, x, weight, ctx.conv, of_weight=False), None, None, None


def _convolve_backward(
    g: Tensor, x: Tensor, weight: Tensor, conv: nn.Conv2d, *, of_weight: bool
) -> Tensor:
    """Return the gradient of the weight, or of x, from the gradient g of the convolution."""
    if conv.kernel_size == (1, 1):
        if of_weight:
            return (g.flatten(0, 2).T @ x.flatten(0, 2)).view_as(weight)
        return g @ weight.flatten(1)
    wanted = [not of_weight, of_weight, False]
    grads: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        g.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), weight, None, list(conv.stride),
        [0, 0], [1, 1], False, [0, 0], 1, wanted,
    )  # fmt: skip
    return grads[1] if of_weight else grads[0].permute(0, 2, 3, 1).contiguous()


class _Head(torch.autograd.Function):
    """A 1×1 convolution with bias; computes the gradient of the bias as a product: faster."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight.flatten(1), bias)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        g = grads[0].flatten(0, 2)
        ones = g.new_ones(1, len(g))
        dw = (g.T @ x.flatten(0, 2)).view_as(weight)
        return grads[0] @ weight.flatten(1), dw, (ones @ g)[0]


class _Normalise(torch.autograd.Function):
    """Normalisation and activation; returns the image plain, with a mirrored border, or both."""

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, gamma: Tensor, beta: Tensor, net: FusedSkipNet,
        norm: nn.BatchNorm2d, form: str,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        n, h, w, c = x.shape
        plain = x.new_empty(n, h, w, c) if form != "padded" else None
        padded = x.new_empty(n, h + 2, w + 2, c) if form != "plain" else None
        ctx.layer = FusedLayer(gamma, beta, norm.eps, SLOPE, (h, w), net.counters[norm])
        stats = kernel_calls.normalise(x, ctx.layer, plain, padded)
        ctx.save_for_backward(x, stats)
        ctx.net, ctx.norm, ctx.form = net, norm, form
        return tuple(out for out in (plain, padded) if out is not None)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, stats = ctx.saved_tensors
        contiguous = [g.contiguous() for g in grads]
        plain = contiguous[0] if ctx.form != "padded" else None
        padded = contiguous[-1] if ctx.form != "plain" else None
        of_norm = stats.new_empty(len(x), 2, x.shape[-1])
        dx = kernel_calls.normalise_backward(x, stats, ctx.layer, plain, padded, of_norm)
        ctx.net.of_norms[ctx.net.place[ctx.norm]].append(of_norm)
        return dx, None, None, None, None, None


class _Merge(torch.autograd.Function):
    """Concatenate `skip` and the doubled `deep`, normalised, with a mirrored border."""

    @staticmethod
    def forward(
        ctx: Context, skip: Tensor, deep: Tensor, gamma: Tensor, beta: Tensor, net: FusedSkipNet,
        norm: nn.BatchNorm2d,
    ) -> Tensor:  # fmt: skip
        n, h, w, c = skip.shape
        padded = skip.new_empty(n, h + 2, w + 2, c + deep.shape[-1])
        ctx.layers = [
            FusedLayer(
                gamma[at:to], beta[at:to], norm.eps, NO_SLOPE, (h, w), net.counters[norm], at
            )
            for at, to in ((0, c), (c, len(gamma)))
        ]
        stats = [
            kernel_calls.normalise(x, layer, None, padded)
            for x, layer in zip((skip, deep), ctx.layers, strict=True)
        ]
        ctx.save_for_backward(skip, deep, *stats)
        ctx.net, ctx.norm = net, norm
        return padded

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        skip, deep, *stats = ctx.saved_tensors
        padded = grads[0].contiguous()
        of_norm = stats[0].new_empty(len(skip), 2, padded.shape[-1])
        dskip, ddeep = (
            kernel_calls.normalise_backward(x, of_x, layer, None, padded, of_norm)
            for x, of_x, layer in zip((skip, deep), stats, ctx.layers, strict=True)
        )
        ctx.net.of_norms[ctx.net.place[ctx.norm]].append(of_norm)
        return dskip, ddeep, None, None, None, None


class _ToPrecision(torch.autograd.Function):
    """Image in another precision, plain and with a mirrored border, `pitch` channels each."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, pitch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        n, h, w, _ = x.shape
        plain = x.new_empty(n, h, w, pitch, dtype=dtype)
        padded = x.new_empty(n, h + 2, w + 2, pitch, dtype=dtype)
        kernel_calls.copy(x, plain, padded)
        ctx.save_for_backward(x)
        return plain, padded

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plain, padded = (g.contiguous() for g in grads)
        return kernel_calls.copy_backward(ctx.saved_tensors[0], plain, padded), None, None
