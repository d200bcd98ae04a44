"""The terms of the objective (Eq. 9): data fidelity, equivariance, and SURE for noisy data.

Tensors are (B, C, H, W); `where` is bool and broadcastable: the entries that count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from hydiff.learn.diffusion import noise_like

if TYPE_CHECKING:
    from hydiff.learn.transforms import Transform, Warp

Network = Callable[[Tensor], Tensor]

READINGS = ("implied", "fresh", "none")  # of ε_0 in Eq. 9
WEIGHTINGS = ("simple", "full")
DATA_TERMS = ("all", "observed")  # the entries that the data term counts
REDUCTIONS = ("mean", "sum")  # of the EI term over the copies drawn in a step
NOISE_TERMS = ("none", "sure")  # what stands for the data term on measured, noisy entries


def denoised_state(x: Tensor, x0: Tensor, alpha_bar: float, eps0: str, rng: Generator) -> Tensor:
    """x_t - √(1-ᾱ_t) ε_0, the target of √ᾱ_t f_θ(y), for three readings of ε_0.

    implied: the noise that x_t really carries, given the last estimate x̃_0.  x_t cancels, and
    the target is √ᾱ_t x̃_0.
    fresh: N(0, I), drawn at every step: the letter of the paper.
    none: left out, as DDS2M does.
    """
    root: float = alpha_bar**0.5
    if eps0 == "implied":
        return root * x0
    if eps0 == "none":
        return x
    return x - float((1 - alpha_bar) ** 0.5) * noise_like(x, rng)


def term_weight(alpha_bar: Tensor, t: int, weighting: str) -> float:
    """1 for L_simple; (β_t / (√α_t (1-ᾱ_t)))² for the bound it was simplified from."""
    if weighting == "simple":
        return 1.0
    now, before = alpha_bar[t].item(), alpha_bar[t - 1].item()
    alpha = now / before
    return float(((1 - alpha) / (alpha**0.5 * (1 - now))) ** 2)


def mean_square(difference: Tensor, where: Tensor | None) -> Tensor:
    """Mean of the squares over the entries that count; None: all of them."""
    if where is None:
        # not .mean(), whose gradient forgets the memory format
        return difference.square().sum() / difference.numel()
    where = where.expand_as(difference)
    return (difference.square() * where).sum() / where.sum().clamp_min(1)


def data(miss: Tensor, where: Tensor | None, risk: Tensor | None, observed: Tensor) -> Tensor:
    """The data term: `mean_square` of `miss`, but with `risk`, unless it is None, for its mean over
    the observed entries.

    These entries are ᾱ_t (y - x̂_0)² while y is followed to the letter, noise and all; ᾱ_t SURE has
    the mean of ᾱ_t (x - x̂_0)².  The gaps keep their part.
    """
    if risk is None:
        return mean_square(miss, where)
    measured = observed.expand_as(miss)
    share = mean_square(measured.to(miss.dtype), where)
    return share * risk + mean_square(miss * ~measured, where)


class Turned(NamedTuple):
    """T_g x̂, what is measured of it, and where it counts."""

    x: Tensor
    again: Tensor  # M T_g x̂ + n
    real: Tensor | None  # bool, False where T_g brings in padding; None: everywhere
    weight: float | Tensor  # w_g

    def miss(self, answer: Tensor) -> Tensor:
        """w_g mean (T_g x̂ - f(M T_g x̂ + n))², given f's answer."""
        return self.weight * mean_square(self.x - answer, self.real)


def turned(
    g: Transform | Warp,
    x0_hat: Tensor,
    observed: Tensor,
    sigma_y: Tensor | None,
    inside: Tensor | None,
    rng: Generator,
) -> Turned:
    """What f is asked about one transform.  T_g never moves the mask, of which `g.measures` may
    leave out bands; n is fresh noise of std sigma_y on the re-measured entries (none when it is
    None).  `inside` is False in the padding of a non-square cube (None: it is square): what T_g
    brings in from there counts as missing.
    """
    x_g, real, both = g(x0_hat), None, g.measures(observed)
    if inside is not None:  # an interpolated pixel is real when all it is mixed from is
        real = ((g(inside.to(x0_hat.dtype)) - 1).abs() < 1e-4) & inside
        both = both & real
    return Turned(x_g, remeasure(x_g, both, sigma_y, rng), real, g.weight)


def equivariance(
    f: Network,
    x0_hat: Tensor,
    observed: Tensor,
    sigma_y: Tensor | None,
    transforms: Iterable[Transform | Warp],
    inside: Tensor | None,
    rng: Generator,
    *,
    together: bool = False,
) -> Tensor:
    """Σ_g w_g mean (T_g x̂ - f(M T_g x̂ + n))²: re-measured through M, T_g x̂ must come back (Eq. 5).

    Gradients flow through both branches.  For all else see `turned`.
    together: f answers all copies as one batch.  A network that normalises each image by itself
    gives the same numbers but for rounding, sooner; one with BatchNorm takes its statistics over
    all of them.
    """
    total = x0_hat.new_zeros(())
    asked = (turned(g, x0_hat, observed, sigma_y, inside, rng) for g in transforms)
    if not together:
        for one in asked:
            total = total + one.miss(f(one.again))
        return total
    copies = list(asked)
    answers = f(torch.cat([one.again for one in copies])).chunk(len(copies))
    for one, answer in zip(copies, answers, strict=True):
        total = total + one.miss(answer)
    return total


def remeasure(x: Tensor, observed: Tensor, sigma_y: Tensor | None, rng: Generator) -> Tensor:
    """M x + n with fresh noise; sigma_y None means no noise, and nothing is drawn."""
    if sigma_y is None:
        return x * observed
    return (x + sigma_y * noise_like(x, rng)) * observed


def sure(
    f: Network,
    y: Tensor,
    x0_hat: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    rng: Generator,
    tau: float = 0.01,
) -> Tensor:
    """Stein's unbiased estimate of mean (M x̂ - M x)² over the observed entries, without x.

    |M x̂ - y|²/m - σ² + 2σ²/(τ m) ⟨b, M f(y + τ b) - M x̂⟩ with a masked probe b = M N(0, I).
    """
    b = noise_like(y, rng) * observed
    divergence = b * (f(y + tau * b) - x0_hat) / tau
    risk = (x0_hat - y).square() - sigma_y**2 + 2 * sigma_y**2 * divergence
    return (risk * observed).sum() / observed.expand_as(y).sum().clamp_min(1)
