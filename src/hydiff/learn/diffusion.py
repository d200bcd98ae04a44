"""Reverse diffusion for inpainting: Algorithms 1 and 2 of HyDiff-EI, as one loop.

Symbols follow the paper.  Arrays over time have T + 1 entries and index 0 is the clean image, so
alpha_bar[0] == 1, σ_t is 0 at t = 1, and the last step needs no special case.  Without noise every
λ_t is 1 and Γ_t is σ_t²: Algorithm 2 then reduces to Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor


class State(NamedTuple):
    """Result of one step of the reverse diffusion."""

    t: int
    x0_hat: Tensor  # f_θ^(t)(y): the estimate of the network
    x0: Tensor  # x̃_{0|t}: the same after data consistency
    x: Tensor  # x_{t-1}: the next, less noisy state


Estimator = Callable[[Tensor, Tensor, int], Tensor]  # (x_t, last x̃_0, t) → f_θ^(t)(y), detached


def linear_alpha_bar(T: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> Tensor:
    """Return ᾱ_0, ..., ᾱ_T for linearly spaced β_t, in float64 because 1 - ᾱ_1 is tiny."""
    beta = torch.linspace(beta_start, beta_end, T, dtype=torch.float64)
    return torch.cat([beta.new_ones(1), (1 - beta).cumprod(0)])


def posterior(alpha_bar: Tensor, t: int) -> tuple[float, float, float]:
    """Weights of x_0 and x_t in the mean of q(x_{t-1} | x_t, x_0), and its std (Eq. 8)."""
    now, before = alpha_bar[t].item(), alpha_bar[t - 1].item()
    alpha, beta = now / before, 1 - now / before
    a = before**0.5 * beta / (1 - now)
    b = alpha**0.5 * (1 - before) / (1 - now)
    return a, b, (beta * (1 - before) / (1 - now)) ** 0.5


Weight = Tensor | float


def trust_and_spare(
    a: float, sigma: float, sigma_y: Tensor | None, s: Tensor
) -> tuple[Weight, Weight]:
    """Return λ_t, the weight of y, and √Γ_t, the std of the noise to add to x_{t-1} (Eq. 12, 13).

    sigma_y and the singular values s broadcast to the cube.  Where nothing was measured (s = 0),
    λ_t is 1 by the paper's convention and √Γ_t is σ_t.  Without noise (sigma_y is None) both hold
    everywhere.
    """
    if sigma_y is None:
        return 1.0, sigma
    carried = a * sigma_y / torch.where(s > 0, s, torch.ones_like(s))  # noise std from y at λ = 1
    # λ limits the noise from y to σ_t; the quotient is only used where carried > σ_t >= 0
    trust = torch.where((s > 0) & (carried > sigma), sigma / carried, 1.0)
    from_y = torch.where(s > 0, trust * carried, torch.zeros_like(carried))
    return trust, (sigma**2 - from_y**2).clamp_min(0).sqrt()


def noise_like(x: Tensor, rng: Generator) -> Tensor:
    """Draw N(0, I) noise with the shape and the memory format of x."""
    return torch.empty_like(x).normal_(generator=rng)


def pseudo_inverse(y: Tensor, s: Tensor) -> Tensor:
    """Return M†y for a diagonal M with singular values s: y / s, and 0 where s = 0."""
    return torch.where(s > 0, y / torch.where(s > 0, s, 1.0), 0.0)


def consistent(x0_hat: Tensor, measured: Tensor, trust: Tensor) -> Tensor:
    """Return x̃_0 = x̂_0 - Σ M†(M x̂_0 - y) (Eq. 10, 11).

    measured: M†y.  trust: λ_t where an entry was measured, 0 elsewhere.  Where trust is 1 the
    result equals `measured` to the last bit: lerp is exact at both ends.
    """
    return torch.lerp(x0_hat, measured, trust)


def reverse_diffusion(
    y: Tensor,  # (B, C, H, W) measurement, 0 where missing
    s: Tensor,  # singular values of M, broadcastable to y: 1 = measured, 0 = missing
    estimate_x0: Estimator,
    alpha_bar: Tensor,
    *,
    sigma_y: Tensor | None,  # noise std of y, broadcastable to y; None is Algorithm 1
    rng: Generator,
    start: State | None = None,  # continue after this step
) -> Iterator[State]:
    """Yield each step from t = T down to 1; the last `State.x` is the inpainted cube."""
    measured, observed = pseudo_inverse(y, s), (s > 0).to(y.dtype)
    T = len(alpha_bar) - 1
    if start is None:
        x0, left = y, alpha_bar[T].item()
        x = left**0.5 * y + (1 - left) ** 0.5 * noise_like(y, rng)  # 1.
    else:
        T, x0, x = start.t - 1, start.x0, start.x
    for t in range(T, 0, -1):
        a, b, sigma = posterior(alpha_bar, t)
        x0_hat = estimate_x0(x, x0, t)  # 2. fit f_θ, predict
        trust, spare = trust_and_spare(a, sigma, sigma_y, s)  # λ_t, √Γ_t  (Eq. 12, 13)
        x0 = consistent(x0_hat, measured, trust * observed)  # 3.  (Eq. 11)
        x = noise_like(y, rng).mul_(spare).add_(x, alpha=b).add_(x0, alpha=a)  # 4.  (Eq. 14)
        yield State(t, x0_hat, x0, x)
