"""The terms of the objective (Eq. 9): data fidelity, equivariance, and SURE for noisy data.

Tensors are (B, C, H, W).  `where` is boolean, broadcasts to them, and is True for the entries that
count.
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

READINGS = ("implied", "fresh", "none")  # meanings that ε_0 of Eq. 9 can have
WEIGHTINGS = ("simple", "full")
DATA_TERMS = ("all", "observed")  # entries over which the data term is averaged
REDUCTIONS = ("mean", "sum")  # of the EI term over the copies drawn in a step
NOISE_TERMS = ("none", "sure")  # replacements of the data term on observed, noisy entries


def denoised_state(x: Tensor, x0: Tensor, alpha_bar: float, eps0: str, rng: Generator) -> Tensor:
    """Return x_t - √(1-ᾱ_t) ε_0, the target of √ᾱ_t f_θ(y), for one of three readings of ε_0.

    implied: the noise in x_t according to the last estimate x̃_0.  x_t cancels, and the target is
    √ᾱ_t x̃_0.
    fresh: new N(0, I) noise at every step, the paper's literal wording.
    none: no ε_0, as in DDS2M.
    """
    root: float = alpha_bar**0.5
    if eps0 == "implied":
        return root * x0
    if eps0 == "none":
        return x
    return x - float((1 - alpha_bar) ** 0.5) * noise_like(x, rng)


def term_weight(alpha_bar: Tensor, t: int, weighting: str) -> float:
    """Return the weight of the data term at step t.

    simple: 1, as in L_simple.  full: (β_t / (√α_t (1-ᾱ_t)))², as in the bound from which L_simple
    was derived.
    """
    if weighting == "simple":
        return 1.0
    now, before = alpha_bar[t].item(), alpha_bar[t - 1].item()
    alpha = now / before
    return float(((1 - alpha) / (alpha**0.5 * (1 - now))) ** 2)


def mean_square(difference: Tensor, where: Tensor | None) -> Tensor:
    """Mean of the squared differences over the entries in `where` (None: all entries)."""
    if where is None:
        # not .mean(): its gradient loses the memory format
        return difference.square().sum() / difference.numel()
    where = where.expand_as(difference)
    return (difference.square() * where).sum() / where.sum().clamp_min(1)


def data(miss: Tensor, where: Tensor | None, risk: Tensor | None, observed: Tensor) -> Tensor:
    """Return the data term: `mean_square` of `miss`, or SURE in place of its observed entries.

    risk: ᾱ_t SURE over the observed entries, or None.  Without it these entries contribute
    ᾱ_t (y - x̂_0)², which is smallest if the network reproduces the noise of y; ᾱ_t SURE has the
    same expected value as ᾱ_t (x - x̂_0)².  The entries in the gaps contribute the same either way.
    """
    if risk is None:
        return mean_square(miss, where)
    measured = observed.expand_as(miss)
    share = mean_square(measured.to(miss.dtype), where)
    return share * risk + mean_square(miss * ~measured, where)


class Turned(NamedTuple):
    """T_g x̂, its new measurement, and the pixels at which the two are compared."""

    x: Tensor
    again: Tensor  # M T_g x̂ + n
    real: Tensor | None  # bool, False where T_g brings in padding; None: everywhere
    weight: float | Tensor  # w_g

    def miss(self, answer: Tensor) -> Tensor:
        """Return w_g mean (T_g x̂ - f(M T_g x̂ + n))², where `answer` is f(M T_g x̂ + n)."""
        return self.weight * mean_square(self.x - answer, self.real)


def turned(
    g: Transform | Warp,
    x0_hat: Tensor,
    observed: Tensor,
    sigma_y: Tensor | None,
    inside: Tensor | None,
    rng: Generator,
) -> Turned:
    """Apply the transform g to x̂_0 and measure the result again.

    T_g does not move the mask, though `g.measures` may leave out some of its bands.  n is fresh
    noise of std sigma_y on the re-measured entries (None: no noise).  inside: False in the padding
    of a non-square cube (None: the cube is square); pixels that T_g takes from the padding count as
    missing and are left out of the loss.
    """
    x_g, real, both = g(x0_hat), None, g.measures(observed)
    if inside is not None:  # an interpolated pixel counts if all its sources lie inside
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
    """Return Σ_g w_g mean (T_g x̂ - f(M T_g x̂ + n))²: f must restore T_g x̂ from M T_g x̂ + n (Eq. 5).

    Gradients flow through both branches.  The other arguments are those of `turned`.
    together: evaluate f on all copies as one batch.  A network that normalises each image by itself
    gives the same numbers up to rounding, in less time; one with BatchNorm takes its statistics
    over all copies.
    """
    total = x0_hat.new_zeros(())
    transformed = (turned(g, x0_hat, observed, sigma_y, inside, rng) for g in transforms)
    if not together:
        for copy in transformed:
            total = total + copy.miss(f(copy.again))
        return total
    copies = list(transformed)
    answers = f(torch.cat([copy.again for copy in copies])).chunk(len(copies))
    for copy, answer in zip(copies, answers, strict=True):
        total = total + copy.miss(answer)
    return total


def remeasure(x: Tensor, observed: Tensor, sigma_y: Tensor | None, rng: Generator) -> Tensor:
    """Return M x + n with fresh noise of std sigma_y; None: without noise, and nothing is drawn."""
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
    """Return Stein's unbiased estimate of the mean of (M x̂ - M x)² over the observed entries.

    It needs no clean x: |M x̂ - y|²/m - σ² + 2σ²/(τ m) ⟨b, M f(y + τ b) - M x̂⟩, with m observed
    entries and a masked random probe b = M N(0, I).
    """
    b = noise_like(y, rng) * observed
    divergence = b * (f(y + tau * b) - x0_hat) / tau
    risk = (x0_hat - y).square() - sigma_y**2 + 2 * sigma_y**2 * divergence
    return (risk * observed).sum() / observed.expand_as(y).sum().clamp_min(1)
