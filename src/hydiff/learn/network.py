"""f_θ: the 2-D skip network of Deep Hyperspectral Prior, which the paper uses unchanged.

Shapes: x (B, C, H, W) → (B, C', H, W), by default with C' = C and values in (0, 1).
Any number of bands, any image size.

The network is a U of `scales` levels.  Each level halves the image, passes it to the level below,
doubles the result, and concatenates it with a 1×1 convolution of its own input:

    x ──┬─ skip: 1×1 ──────────────────────────────────────────┬─ merge: 3×3, 1×1 ─→
        └─ down: 3×3 stride 2, 3×3 ─→ level below ─→ up: ×2 ───┘
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hydiff.errors import ShapeMismatch

NORMS = ("image", "batch")  # statistics by which a layer is normalised: see `Norm`


class SkipNet(nn.Module):
    """The U of levels, then a 1×1 convolution to the bands and a sigmoid.

    The paper's network has 128 channels and 5 scales; a CPU needs a smaller one.
    out_bands: number of output bands, if it differs from `bands`.  squash: replaces the sigmoid.
    norm: "image" normalises by the statistics of each image, for a network that is fitted to one
    image; "batch" by those of the batch in training and by their running mean in eval(), for a
    network that is trained on many images (see `Norm`).

    >>> net = SkipNet(bands=3, channels=4, scales=2)
    >>> net(torch.rand(1, 3, 20, 31)).shape
    torch.Size([1, 3, 20, 31])
    """

    def __init__(
        self,
        bands: int,
        channels: int = 128,
        scales: int = 5,
        out_bands: int | None = None,
        squash: nn.Module | None = None,
        norm: str = "image",
    ) -> None:
        super().__init__()
        self.bands, self.norm = bands, norm
        self.least_side = 2**scales + 1  # the deepest 3×3 needs 2 pixels to mirror
        level: nn.Module = nn.Identity()  # below the deepest level
        for depth in range(scales, 0, -1):
            level = Level(bands if depth == 1 else channels, channels, level, norm)
        self.levels: Level = level  # type: ignore[assignment]
        self.head = nn.Conv2d(channels, out_bands or bands, 1)
        self.squash = nn.Sigmoid() if squash is None else squash

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.bands:
            raise ShapeMismatch(
                f"the network takes (batch, {self.bands}, rows, cols), found {tuple(x.shape)}"
            )
        rows, cols = x.shape[-2:]
        features = self.levels(mirrored_up_to(x, self.least_side))
        squashed: Tensor = self.squash(self.head(features[..., :rows, :cols]))
        return squashed


def build(
    bands: int,
    *,
    channels: int = 128,
    scales: int = 5,
    out_bands: int | None = None,
    squash: nn.Module | None = None,
    norm: str = "image",
    seed: int,
) -> SkipNet:
    """Build a new SkipNet on the CPU; the same seed gives the same weights.

    Layers are initialised from torch's global generator, whose state is restored afterwards.
    """
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which would reseed the GPUs as well
        torch.default_generator.manual_seed(seed)
        return SkipNet(bands, channels, scales, out_bands, squash, norm)


def norm_of(weights: Iterable[str]) -> str:
    """Return the `norm` of a network, given the names of its tensors."""
    return "batch" if any(name.endswith(".running_mean") for name in weights) else "image"


def build_residual(bands: int, out_bands: int, *, channels: int, scales: int, seed: int) -> SkipNet:
    """Build a SkipNet whose output is 0 before training.

    It has no sigmoid, and its last layer starts at 0.
    """
    net = build(
        bands,
        channels=channels,
        scales=scales,
        out_bands=out_bands,
        squash=nn.Identity(),
        seed=seed,
    )
    for p in net.head.parameters():
        nn.init.zeros_(p)
    return net


class Level(nn.Module):
    """One level of the U: (B, C_in, H, W) → (B, C, H, W)."""

    def __init__(self, c_in: int, c: int, below: nn.Module, norm: str) -> None:
        super().__init__()
        self.skip = _conv(c_in, c, 1, norm)
        self.down = nn.Sequential(_conv(c_in, c, 3, norm, stride=2), _conv(c, c, 3, norm))
        self.below = below
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.merge = nn.Sequential(
            Norm(2 * c, norm), _conv(2 * c, c, 3, norm), _conv(c, c, 1, norm)
        )

    def forward(self, x: Tensor) -> Tensor:
        deep: Tensor = self.up(self.below(self.down(x)))
        merged: Tensor = self.merge(_concat(self.skip(x), deep))
        return merged


class Norm(nn.BatchNorm2d):
    """Normalisation by the statistics of each image, or of the batch.

    image: each image is normalised by its own statistics, in train() and in eval().  The paper's
    method sees one image at a time; with "image", every image of a batch gives the same result as
    alone.  A network of such layers cannot see how bright an image is: f(a y) = f(y) for a > 0.
    This is harmless for weights fitted to one image, but not for weights applied to other images.
    batch: plain BatchNorm2d.
    """

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__(channels, track_running_stats=norm == "batch")

    def forward(self, x: Tensor) -> Tensor:
        if self.track_running_stats or len(x) == 1:
            # the same numbers for a single image, without a copy of the weights for each
            return super().forward(x)
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)


class MirrorConv(nn.Conv2d):
    """Convolution with mirrored borders."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(mirrored(x, self.kernel_size[0] // 2), self.weight, self.bias, self.stride)


def mirrored(x: Tensor, n: int) -> Tensor:
    """Extend x by n pixels of reflection on each side; n is 0 or 1."""
    if n == 0:
        return x
    if not torch.are_deterministic_algorithms_enabled():
        return F.pad(x, (n, n, n, n), mode="reflect")
    # on a GPU, torch sums the gradients of F.pad in no fixed order
    x = torch.cat([x[..., 1:2, :], x, x[..., -2:-1, :]], dim=-2)
    return torch.cat([x[..., 1:2], x, x[..., -2:-1]], dim=-1)


def _conv(c_in: int, c_out: int, kernel: int, norm: str, stride: int = 1) -> nn.Sequential:
    """Convolution with mirrored borders, normalisation, activation."""
    conv = MirrorConv(c_in, c_out, kernel, stride)
    return nn.Sequential(conv, Norm(c_out, norm), nn.LeakyReLU(0.2, inplace=True))


def _concat(*branches: Tensor) -> Tensor:
    """Concatenate the branches along channels, cropped around the centre to the smallest sides.

    Halving and doubling an odd side n gives n + 1 pixels.
    """
    rows, cols = (min(b.shape[axis] for b in branches) for axis in (-2, -1))
    return torch.cat([_centre(b, rows, cols) for b in branches], dim=1)


def _centre(x: Tensor, rows: int, cols: int) -> Tensor:
    """Crop x to rows × cols around its centre."""
    top, left = (x.shape[-2] - rows) // 2, (x.shape[-1] - cols) // 2
    return x[..., top : top + rows, left : left + cols]


def mirrored_up_to(x: Tensor, least: int) -> Tensor:
    """Extend x below and right by repeated reflection, up to sides of at least `least` pixels."""
    for axis in (-2, -1):
        while (side := x.shape[axis]) < least:
            more = min(least - side, max(side - 1, 1))  # a single line can only be repeated
            mirror = x.narrow(axis, max(side - 1 - more, 0), more).flip(axis)
            x = torch.cat([x, mirror], axis)
    return x
