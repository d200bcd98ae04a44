"""DDS2M: a diffusion whose denoiser is fitted as it goes (Miao, Zhang, Zhang, Tao, 2023).

The cube is modelled as a sum of `rank` products of an untrained spatial network and an untrained
spectral network, on the unit range; the diffusion runs on -1 to 1.  DDRM samples backwards from
noise.  In the first half of the chain, x̂_0 is the state itself.  Then each step takes one Adam
step that pulls √ᾱ_t x̂_0 towards x_t, and the sampler's x̂_0 is the running mean of the outputs,
clipped to the unit range.

As in the published code: skip channels 0, 0, 4, 4, 4, 4; a mean over 2 × 2 pixels between a
convolution and its norm; channel and spatial attention (CBAM) on the third and fourth level;
spectral networks with layers of 128, 256, 256 and 128; one input for all networks of a kind; the
running mean starts from the last state before the networks are used.
`benchmarks/published_dds2m.py` compares both codes with the same weights and noise, and runs the
published code on the cells of the benchmark.
Differences: the result is the last state, whereas the published code selects the one closest to the
truth.  The published spatial networks return 128 × 128 for 144 × 144 and accept only squares of
multiples of 64; here the cube is extended by reflection and cropped.  The ten spatial networks run
as one network with ten groups, which gives the same numbers.  σ_y is given by the caller; the
published code adds noise of 0.1 to all data, and its sampler assumes it: `sigma_0` = 0.1 makes this
one assume it too.  The total variation, which has weight 0 there, is left out.  As published, the
loss includes the gaps, where x_t contains the estimate of the networks: the values that they put
into a wide gap before they have learned anything stay there.  `gaps_in_loss=False` (our addition)
avoids that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from hydiff.errors import BadValue
from hydiff.learn.diffusion import linear_alpha_bar
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.layers import ReflectedConv, built, reflect_to_multiple
from hydiff.learn.losses import mean_square
from hydiff.methods import ranges
from hydiff.methods.dhp import masked
from hydiff.result import Step

KERNELS = (7, 7, 5, 5, 3, 3)
SKIPS = (0, 0, 4, 4, 4, 4)  # channels of the skip branch, by level
SQUEEZE, REACH = 16, 49  # of the attention: reduction of channels; side of its window


@dataclass(frozen=True)
class DDS2M:
    """The published settings; preset `fast` is a small network and a short chain for a CPU."""

    steps: int = 1501  # last steps of the chain, in which the networks are fitted
    chain: int = 3000  # T
    beta_start: float = 1e-4
    beta_end: float = 0.005
    lr: float = 5e-4  # of Adam
    eta: float = 0.95  # share of fresh noise where nothing is observed
    eta_b: float = 1.0  # weight of y where it is observed
    averaging: float = 0.98  # weight of past outputs in the running mean
    sigma_0: float = 0.0  # least noise std that the sampler assumes, on the unit range; see above
    gaps_in_loss: bool = True  # as published; False: the loss counts only observed entries
    rank: int = 10
    channels: int = 128  # of the deepest levels of a spatial network
    scales: int = 6
    hidden: int = 128  # of a spectral network: layers of 1, 2, 2 and 1 times as many
    engine: str = "auto"  # how steps are executed: auto | eager | graph

    PRESETS: ClassVar[dict[str, DDS2M]]

    def __post_init__(self) -> None:
        ranges.above_zero(self, "steps", "lr", "rank", "channels", "hidden")
        if not 1 <= self.scales <= len(KERNELS):
            raise BadValue(f"scales = {self.scales}: expected 1 to {len(KERNELS)}")
        if self.steps > self.chain:
            raise BadValue(f"steps = {self.steps}: at most chain = {self.chain}")
        if not 0 < self.beta_start <= self.beta_end < 1:
            raise BadValue(f"beta from {self.beta_start} to {self.beta_end}: expected 0 < β < 1")
        ranges.shares(self, "eta", "eta_b")
        ranges.shares_below_one(self, "averaging")
        ranges.zero_or_more(self, "sigma_0")

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row; no `sigma_0` if 0, as in old rows."""
        settings = asdict(self)
        return settings if self.sigma_0 else {k: v for k, v in settings.items() if k != "sigma_0"}


DDS2M.PRESETS = {
    "paper": DDS2M(),
    # same noise at the start of the chain, β five times as large, and a higher rate for that
    "fast": DDS2M(
        steps=300, chain=600, beta_start=5e-4, beta_end=0.025, lr=5e-3, averaging=0.9,
        rank=4, channels=32, scales=3, hidden=64,
    ),
}  # fmt: skip


def dds2m(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: DDS2M,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by DDS2M, yielding every step in which the networks are fitted.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    resume: the `Step.state()` of an interrupted run.
    """
    C, H, W = y.shape
    y, observed = masked(y, observed)
    f = built(lambda: Factors(C, settings), rng)
    y, observed = (reflect_to_multiple(a, f.multiple, f.least) for a in (y, observed))
    y, sigma = 2 * y - 1, 2 * sigma_y.clamp_min(settings.sigma_0).view(1, C, 1, 1)
    fit = Fit(f, lr=settings.lr, rng=rng, engine=settings.engine)
    network, how = fit.network, fit.how

    def random(draw: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.rand(draw, generator=rng, device=y.device)

    def noise() -> Tensor:
        return torch.randn(y.shape, generator=rng, device=y.device)

    # fixed inputs, one for all networks of a kind
    spatial, spectral = random((1, 1, *y.shape[-2:])), random((1, 1, C))
    alpha_bar = linear_alpha_bar(settings.chain, settings.beta_start, settings.beta_end)
    x, root = torch.zeros_like(y), y.new_zeros(())  # changed in place: a recorded step reads them
    counted = None if settings.gaps_in_loss else observed

    def objective(_: None) -> tuple[Tensor, Tensor]:
        image = network(spatial, spectral)  # on the unit range
        return mean_square(root * (2 * image - 1) - x, counted)[None], image

    def next_state(x0: Tensor, t: int) -> Tensor:
        return ddrm_step(x, x0, y, observed, sigma, alpha_bar, t, settings, noise())

    if resume is None:
        begin, mean = settings.steps, torch.zeros_like(y)
        x.copy_(first_state(y, observed, sigma, alpha_bar, noise()))
        for t in range(settings.chain, begin, -1):  # without fitting the networks
            mean.copy_(unit(x))
            x.copy_(next_state(x, t))
    else:
        fit.load(dict(resume))
        spatial, spectral, mean = (resume[k].to(y.device) for k in ("spatial", "spectral", "mean"))
        x.copy_(resume["x"])
        begin = int(resume["t"]) - 1
    for t in range(begin, 0, -1):
        root.fill_(alpha_bar[t].item() ** 0.5)
        terms, image = fit.step(objective)
        mean = (settings.averaging * mean + (1 - settings.averaging) * image).clamp(0, 1)
        x.copy_(next_state(2 * mean - 1, t))

        def keep(t: int = t, mean: Tensor = mean) -> Tensors:
            inputs = {"spatial": spatial, "spectral": spectral, "mean": mean}
            return fit.state() | inputs | {"x": x.clone(), "t": torch.tensor(t)}

        estimate = (unit(x) if t == 1 else mean)[0, :, :H, :W]  # before the end x is mostly noise
        log = {"data": terms[0].clone()}
        yield Step(settings.steps - t + 1, settings.steps, estimate, log, keep, how=how)


def unit(x: Tensor) -> Tensor:
    """Map -1 … 1 to 0 … 1, clipped."""
    return ((x + 1) / 2).clamp(0, 1)


def first_state(
    y: Tensor, observed: Tensor, sigma_y: Tensor, alpha_bar: Tensor, eps: Tensor
) -> Tensor:
    """Return x_T by DDRM's rule: noise, centred on y where y has less noise than the state."""
    left = alpha_bar[-1].item()
    sigma = math.sqrt((1 - left) / left)
    added_std = (sigma**2 - sigma_y**2).clamp_min(0).sqrt()
    return torch.where(observed & (sigma_y < sigma), (y + added_std * eps) / sigma, eps)


def ddrm_step(
    x: Tensor,
    x0: Tensor,
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    alpha_bar: Tensor,
    t: int,
    settings: DDS2M,
    eps: Tensor,
) -> Tensor:
    """Return x_{t-1} from x_t, the estimate x̂_0 and fresh noise eps: a step of DDRM for a mask.

    In the scale x / √ᾱ the noise of step t has std σ_t = √((1 - ᾱ) / ᾱ).  In all cases the noise
    added to x̂_0 or y has total variance σ_{t-1}², if these are correct.
    """
    now, before = alpha_bar[t].item(), alpha_bar[t - 1].item()
    sigma, next_sigma = math.sqrt((1 - now) / now), math.sqrt((1 - before) / before)
    eta, eta_b = settings.eta, settings.eta_b
    old_std = math.sqrt(1 - eta**2) * next_sigma
    free = x0 + old_std * (x / math.sqrt(now) - x0) / sigma + eta * next_sigma * eps
    # where y is noisier than the next state, it only gives the direction of the noise
    noisy = x0 + old_std * (y - x0) / sigma_y.clamp_min(1e-12) + eta * next_sigma * eps
    added_std = (next_sigma**2 - (eta_b * sigma_y) ** 2).clamp_min(0).sqrt()
    clear = (1 - eta_b) * x0 + eta_b * y + added_std * eps
    measured = torch.where(next_sigma < sigma_y, noisy, clear)
    return math.sqrt(before) * torch.where(observed, measured, free)


class Factors(nn.Module):
    """Σ_r spatial_r (1, 1, H, W) · spectral_r (C): (1, C, H, W)."""

    def __init__(self, bands: int, settings: DDS2M) -> None:
        super().__init__()
        self.multiple = 2**settings.scales
        # reflection by half a kernel needs one pixel more than that, at each level
        self.least = max(
            2 ** (i + 1) * (k // 2 + 1) for i, k in enumerate(KERNELS[: settings.scales])
        )
        self.spatial = SpatialNets(settings.rank, settings.channels, settings.scales)
        self.spectral = SpectralNets(settings.rank, bands, settings.hidden)

    def forward(self, spatial: Tensor, spectral: Tensor) -> Tensor:
        maps, spectra = self.spatial(spatial), self.spectral(spectral)
        return torch.einsum("brhw,rc->bchw", maps, spectra)


class SpatialNets(nn.Module):
    """`rank` skip networks computed as groups of one: (1, 1, H, W) → (1, rank, H, W)."""

    def __init__(self, rank: int, channels: int, scales: int) -> None:
        super().__init__()
        self.rank = rank
        widths = [min(16 * 2**i, channels) for i in range(scales)]
        level: nn.Module = nn.Identity()
        for i in range(scales - 1, -1, -1):
            c_in = 1 if i == 0 else widths[i - 1]
            c_below = widths[min(i + 1, scales - 1)]
            attentive = scales - 5 < i < scales - 2
            level = SpatialLevel(
                rank, c_in, widths[i], c_below, SKIPS[i], KERNELS[i], level, attentive
            )
        self.levels = level
        self.head = nn.Conv2d(rank * widths[0], rank, 1, groups=rank)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.head(self.levels(x.expand(-1, self.rank, -1, -1)))
        return maps


class SpatialLevel(nn.Module):
    """Halve by averaging, apply the level below, double bilinearly, join with the skip branch."""

    def __init__(
        self,
        groups: int,
        c_in: int,
        c: int,
        c_below: int,
        c_skip: int,
        kernel: int,
        below: nn.Module,
        attentive: bool,
    ) -> None:
        super().__init__()
        self.groups, self.below = groups, below
        self.skip = _conv(groups, c_in, c_skip, 1) if c_skip else None
        self.down = _conv(groups, c_in, c, kernel, nn.AvgPool2d(2))
        self.deep = _conv(groups, c, c, kernel)
        joined = c_skip + c_below
        self.norm = _norm(groups * joined)
        self.attention = Attention(groups, joined) if attentive else nn.Identity()
        self.up = nn.Sequential(_conv(groups, joined, c, kernel), _conv(groups, c, c, 1))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.below(self.deep(self.down(x)))
        inner = F.interpolate(inner, scale_factor=2, mode="bilinear", align_corners=False)
        if self.skip is not None:
            branches = [b.unflatten(1, (self.groups, -1)) for b in (self.skip(x), inner)]
            inner = torch.cat(branches, dim=2).flatten(1, 2)
        joined: Tensor = self.up(self.attention(self.norm(inner)))
        return joined


class Attention(nn.Module):
    """x + x · a(channel) · b(pixel), each group separately (CBAM; Woo et al., 2018).

    Both weights are computed from maximum and mean: over pixels for a channel, over channels for a
    pixel.
    """

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        few = groups * max(channels // SQUEEZE, 1)
        self.squeeze = nn.Conv2d(groups * channels, few, 1, groups=groups, bias=False)
        self.stretch = nn.Conv2d(few, groups * channels, 1, groups=groups, bias=False)
        self.places = nn.Conv2d(2 * groups, groups, REACH, padding=REACH // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        extremes = x.amax((2, 3), keepdim=True), x.mean((2, 3), keepdim=True)
        of_channels = sum(self.stretch(F.relu(self.squeeze(e))) for e in extremes)
        weighted = x * torch.sigmoid(torch.as_tensor(of_channels))
        grouped = torch.unflatten(weighted, 1, (self.groups, -1))
        pooled = torch.stack([grouped.amax(2), grouped.mean(2)], dim=2).flatten(1, 2)
        of_places = torch.sigmoid(self.places(pooled)).unsqueeze(2)
        attended: Tensor = x + (grouped * of_places).flatten(1, 2)
        return attended


class SpectralNets(nn.Module):
    """`rank` networks of four hidden layers, computed together: (1, 1, C) → (rank, C)."""

    def __init__(self, rank: int, bands: int, hidden: int) -> None:
        super().__init__()
        sides = [bands, hidden, 2 * hidden, 2 * hidden, hidden, bands]
        self.rank = rank
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for n_in, n_out in pairwise(sides):
            bound = n_in**-0.5
            self.weights.append(torch.empty(rank, n_in, n_out).uniform_(-bound, bound))
            self.biases.append(torch.empty(rank, 1, n_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        x, last = x.expand(self.rank, -1, -1), len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if i < last:
                x = F.relu6(x) if i == 0 else F.relu(x)
        return x[:, 0]


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, track_running_stats=False)


def _conv(groups: int, c_in: int, c_out: int, kernel: int, *before: nn.Module) -> nn.Sequential:
    """Return convolution, layers `before` the norm, norm and activation."""
    conv = ReflectedConv(groups * c_in, groups * c_out, kernel, groups=groups)
    return nn.Sequential(conv, *before, _norm(groups * c_out), nn.LeakyReLU(0.2))
