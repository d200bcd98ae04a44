"""LRS-PnP-DIP: sparse, of low rank, plug-and-play, with a deep image prior (Li and Yaghoobi).

ADMM over the cube as a matrix x (pixels × bands), with three terms that must agree:

    γ/2 |M x - y|²     the measurement
    x = D z            blocks of x are sparse in a dictionary D; z is denoised, not thresholded
    x = f_θ            a network, fitted again in every iteration, instead of a low-rank term

With `lipschitz` the later version (2025) is used: a network without skips whose weight matrices
have spectral norm 1 at most (`learn.lipschitz`).  Its batch normalisation divides by the std of its
input, so that the network as a whole is not shown to be 1-Lipschitz.

As in the published code: γ, μ_1, μ_2; blocks of 36 × 36 entries and their order; non-local means
over the sequence of coefficients; a new network in each iteration, with input x + λ_2 / μ_2 and
target y, its loss averaged over all entries; Adam at 0.1; the end of a fit when the variance of the
last 30 outputs has not fallen for 60 steps.
Unknown: the dictionary, which was learned in advance and is not available.  Here it is the discrete
cosine transform of a block, with `strength` chosen for it.
Differences from the code: the step of the coding is 1 over the largest eigenvalue, as in the
authors' MATLAB version (their Python version divides by four times the trace, which changes almost
nothing in 100 steps); overlapping blocks are averaged; blocks without any observed entry are
ignored; a fit that never settles ends with its last output (the published program stops instead);
pixels are ordered along rows, since a block within a lost column would be empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.layers import built
from hydiff.learn.lipschitz import LipschitzNet
from hydiff.learn.network import SkipNet
from hydiff.methods import ranges
from hydiff.methods.dhp import masked
from hydiff.result import Step

DISTANCE, FARTHEST = 3, 5.0  # of non-local means: entries searched on either side; largest exponent


@dataclass(frozen=True)
class LRSPnPDIP:
    """The published settings; preset `fast` is a small network and few iterations for a CPU."""

    steps: int = 250  # iterations of ADMM
    fidelity: float = 0.5  # γ
    sparse: float = 0.1  # μ_1
    low_rank: float = 0.1  # μ_2
    strength: float = 0.2  # h of the non-local means; chosen by us for our dictionary
    codes: int = 100  # steps of each sparse coding
    block: int = 36  # side of a block: pixels, and bands
    fits: int = 5000  # the most steps of each fit of a network
    window: int = 30  # last outputs whose variance is monitored
    patience: int = 60  # steps without a smaller variance after which a fit ends
    lr: float = 0.1  # of Adam
    lipschitz: bool = False  # the 1-Lipschitz version
    channels: int = 128
    scales: int = 5  # of the Skip-Net, which is not 1-Lipschitz
    engine: str = "auto"  # how steps of a fit are executed: auto | eager | graph | fused

    PRESETS: ClassVar[dict[str, LRSPnPDIP]]

    def __post_init__(self) -> None:
        counts = ("steps", "codes", "block", "fits", "window", "patience", "channels", "scales")
        ranges.above_zero(self, *counts, "fidelity", "sparse", "low_rank", "strength", "lr")


LRSPnPDIP.PRESETS = {
    "paper": LRSPnPDIP(),
    "fast": LRSPnPDIP(steps=10, codes=30, fits=200, channels=32),
}


def lrs_pnp_dip(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: LRSPnPDIP,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by LRS-PnP-DIP, yielding every iteration of ADMM.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    sigma_y is not used.  resume: the `Step.state()` of an interrupted run.
    """
    C, H, W = y.shape
    y, observed = masked(y, observed)
    blocks = SparseBlocks.of(observed[0].flatten(1).T, settings.block)
    gamma, mu_1, mu_2 = settings.fidelity, settings.sparse, settings.low_rank
    x, lambda_1, lambda_2, done = y.clone(), torch.zeros_like(y), torch.zeros_like(y), 0
    if resume is not None:
        x, lambda_1, lambda_2 = (resume[k].to(y.device) for k in ("x", "lambda_1", "lambda_2"))
        rng.set_state(resume["rng"].cpu())
        done = int(resume["done"])
    deep_prior = DeepPrior(y, observed, settings, rng)

    def as_cube(matrix: Tensor) -> Tensor:
        return matrix.T.reshape(1, C, H, W)

    reached = as_cube(blocks.reached)
    weight = gamma * observed + mu_1 * reached + mu_2
    for i in range(done + 1, settings.steps + 1):
        matrix = (x + lambda_1 / mu_1)[0].flatten(1).T
        sparse = as_cube(blocks.mean(coded(blocks.cut(matrix), blocks.observed, settings)))
        deep, loss = deep_prior.fitted(x + lambda_2 / mu_2)
        x = (gamma * y + mu_1 * sparse + mu_2 * deep - lambda_1 - lambda_2) / weight
        lambda_1 = lambda_1 + mu_1 * reached * (x - sparse)
        lambda_2 = lambda_2 + mu_2 * (x - deep)

        def keep(
            i: int = i, x: Tensor = x, dual_1: Tensor = lambda_1, dual_2: Tensor = lambda_2
        ) -> Tensors:
            state = {"x": x, "lambda_1": dual_1, "lambda_2": dual_2, "rng": rng.get_state()}
            return {k: v.cpu().clone() for k, v in state.items()} | {"done": torch.tensor(i)}

        yield Step(i, settings.steps, x[0], {"data": loss}, keep, how=deep_prior.fit.how)


# The sparse estimate


class SparseBlocks(NamedTuple):
    """Square blocks that cover a matrix (pixels, bands); only the last ones overlap others."""

    rows: Tensor  # (n, 1, p, 1) row indices of n x m blocks of p x q entries
    cols: Tensor  # (1, m, 1, q) column indices
    observed: Tensor  # (n, m, p, q)
    reached: Tensor  # (pixels, bands) entries in a block with observed entries

    @classmethod
    def of(cls, observed: Tensor, side: int) -> SparseBlocks:
        """Return the blocks for a mask (pixels, bands)."""
        starts = (_starts(n, min(side, n), observed.device) for n in observed.shape)
        rows, cols = (s[:, None] + torch.arange(min(side, n), device=s.device)
                      for s, n in zip(starts, observed.shape, strict=True))  # fmt: skip
        rows, cols = rows[:, None, :, None], cols[None, :, None, :]
        cut = observed[rows, cols]
        reached = torch.zeros_like(observed)
        reached[rows, cols] |= cut.any(dim=(2, 3), keepdim=True)
        return cls(rows, cols, cut, reached)

    def cut(self, matrix: Tensor) -> Tensor:
        """Cut a matrix (pixels, bands) into blocks (n, m, p, q)."""
        return matrix[self.rows, self.cols]

    def mean(self, blocks: Tensor) -> Tensor:
        """Return the mean (pixels, bands) over blocks with observed entries; 0 outside of them."""
        counted = self.observed.any(dim=(2, 3), keepdim=True).to(blocks).expand_as(blocks)
        where = (self.rows, self.cols)
        total, count = (
            torch.zeros(self.reached.shape, dtype=blocks.dtype, device=blocks.device)
            .index_put(where, part, accumulate=True)
            for part in (blocks * counted, counted)
        )  # fmt: skip
        return total / count.clamp_min(1)


def _starts(n: int, side: int, device: torch.device) -> Tensor:
    """Return the starts of adjacent blocks; the last block ends at n and may overlap."""
    starts = torch.arange(0, n - side + 1, side, device=device)
    return starts if n % side == 0 else torch.cat([starts, starts.new_tensor([n - side])])


def coded(blocks: Tensor, observed: Tensor, settings: LRSPnPDIP) -> Tensor:
    """Return D z for blocks (n, m, p, q), from their observed entries.

    Each step is a gradient step on |M (D z - x)|² / 2, whose curvature is at most 1, and a
    denoising of z.
    """
    across, along = (cosines(n, blocks) for n in blocks.shape[-2:])
    z = torch.zeros_like(blocks)
    for _ in range(settings.codes):
        residual = observed * (blocks - across @ z @ along.T)
        z = z + across.T @ residual @ along
        z = nonlocal_means(z.flatten(2), settings.strength).view_as(z)
    return across @ z @ along.T


def cosines(n: int, like: Tensor) -> Tensor:
    """Return an orthonormal matrix (n, n): column k is a cosine of k half-waves over n samples."""
    i = torch.arange(n, device=like.device, dtype=torch.float64)
    basis = math.sqrt(2 / n) * torch.cos(math.pi / n * (i[:, None] + 0.5) * i)
    basis[:, 0] /= math.sqrt(2)
    return basis.to(like)


def nonlocal_means(z: Tensor, h: float) -> Tensor:
    """Return non-local means of vectors z (..., n): averages of near entries with similar patches.

    Equal to scikit-image's fast mode for an image of one column and patches of 3 × 3, which sums
    over two entries and two equal columns, and divides by nine.
    """
    n, reach = z.shape[-1], DISTANCE + 1
    period = max(2 * n - 2, 1)
    i = torch.arange(-reach, n + reach, device=z.device) % period
    padded = z[..., torch.minimum(i, period - i)]
    total, weights = torch.zeros_like(z), torch.zeros_like(z)
    for d in range(-DISTANCE, DISTANCE + 1):
        centre, neighbour = (padded[..., reach + j : reach + j + n + 1] for j in (0, d))
        square = (centre - neighbour).square()
        unlike = 2 / 9 / h**2 * (square[..., :-1] + square[..., 1:])
        w = torch.exp(-unlike) * (unlike <= FARTHEST)
        total, weights = total + w * neighbour[..., :-1], weights + w
    return total / weights


# The deep estimate


class DeepPrior:
    """f_θ, a new network in every iteration.  One `Fit` runs them, so that a GPU records it once.

    y and observed are (1, C, H, W).
    """

    def __init__(self, y: Tensor, observed: Tensor, settings: LRSPnPDIP, rng: Generator) -> None:
        self.settings, self.rng, self.bands = settings, rng, y.shape[1]
        before = rng.get_state()  # a resumed run must draw the same networks
        self.fit = Fit(self._network(), lr=settings.lr, rng=rng, engine=settings.engine)
        rng.set_state(before)
        self.z = torch.empty_like(y)  # changed in place

        def objective(_: None) -> tuple[Tensor, Tensor]:
            out = self.fit.f(self.z)
            return ((out - y) * observed).square().mean()[None], out

        self.objective = objective

    def _network(self) -> nn.Module:
        """Return a new network, initialised from `rng`."""
        return built(lambda: network_of(self.bands, self.settings), self.rng)

    def fitted(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Fit a new network to y where observed; return f_θ(z) (1, C, H, W) and the loss."""
        self.fit.start_over(self._network())
        self.z.copy_(z)
        settled = variance_settles(self.settings.window, self.settings.patience)
        for _ in range(self.settings.fits):
            losses, out = self.fit.step(self.objective)
            if settled(out):
                break
        return out.clone(), losses[0].clone()


def network_of(bands: int, settings: LRSPnPDIP) -> nn.Module:
    """Return a network of the version that the settings choose."""
    if settings.lipschitz:
        return LipschitzNet(bands, settings.channels)
    return SkipNet(bands, settings.channels, settings.scales)


def variance_settles(window: int, patience: int) -> Callable[[Tensor], bool]:
    """Return a function to call with each output: whether their variance has stopped falling."""
    last: list[Tensor] = []
    least, waited = math.inf, 0

    def settled(out: Tensor) -> bool:
        nonlocal least, waited
        last.append(out.detach().clone())
        if len(last) < window:
            return False
        variance = float(torch.stack(last).var(dim=0, correction=0).mean())
        del last[0]
        waited = 0 if variance < least else waited + 1
        least = min(least, variance)
        return waited >= patience

    return settled
