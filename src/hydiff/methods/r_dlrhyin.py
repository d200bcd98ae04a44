"""R-DLRHyIn: robust deep low-rank hyperspectral inpainting (Niresi and Chi, 2023).

DHP with the Huber loss and a low-rank term: Σ huber(M f - y) + λ Σ_i (1 - exp(-s_i / η)), s_i the
singular values of the output as a matrix of bands × pixels.

Differences from the published code: its exponent is a floor division, through which no gradient
passes (it does not run); here it is a division.  The gradient of the term vanishes except for
singular values near η = 0.04, so that early steps are DHP with a summed loss.  Singular values are
computed from the eigenvalues of the bands × bands product in double precision: the same numbers,
much cheaper.  As published, the first term is a sum and not a mean, since this sets the balance
between the terms.  δ = 1, the published default, gives half the square on the unit range; the
published code calls it the variant that is not robust, and names no other: we use 0.1 with noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from hydiff.learn.engine import Tensors
from hydiff.methods import dhp, ranges
from hydiff.result import Step

LEAST_EIGENVALUE = 1e-12  # the root has no slope at 0
ROBUST = 0.1  # δ where y is noisy


@dataclass(frozen=True)
class RDLRHyIn:
    """The published settings; preset `fast` is a small network for a CPU."""

    steps: int = 10001
    lr: float = 0.01  # of Adam
    low_rank: float = 0.1  # λ
    eta: float = 0.04  # singular values well above it cost 1 each and get no gradient
    delta: float | None = None  # of the Huber loss; None: 1 without noise, ROBUST with
    amplitude: float = 0.1  # largest value of the fixed input, which is uniform from 0
    jitter: float = 0.1  # std of the fresh noise added to it at each step
    averaging: float = 0.0  # weight of past outputs in a running mean; 0 = last output
    channels: int = 128  # of the Skip-Net
    scales: int = 5
    engine: str = "auto"  # how steps are executed: auto | eager | graph | fused

    PRESETS: ClassVar[dict[str, RDLRHyIn]]

    def __post_init__(self) -> None:
        dhp.check(self)
        ranges.above_zero(self, "eta", *(() if self.delta is None else ("delta",)))
        ranges.zero_or_more(self, "low_rank")

    def delta_for(self, *, noisy: bool) -> float:
        """Return δ, with None replaced by the value for data with or without noise."""
        return self.delta if self.delta is not None else ROBUST if noisy else 1.0

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row."""
        return asdict(self) | {"delta": self.delta_for(noisy=noisy)}


RDLRHyIn.PRESETS = {"paper": RDLRHyIn(), "fast": RDLRHyIn(steps=1000, channels=32)}


def r_dlrhyin(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: RDLRHyIn,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by R-DLRHyIn, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    sigma_y only decides the default δ.
    resume: the `Step.state()` of an interrupted run.
    """

    delta = settings.delta_for(noisy=bool(sigma_y.any()))

    def terms(x: Tensor, y: Tensor, observed: Tensor) -> Tensor:
        return F.huber_loss(x * observed, y, reduction="sum", delta=delta)[None]

    def low_rank(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            term = settings.low_rank * rank_surrogate(x[0], settings.eta)
            return term.detach(), torch.autograd.grad(term, x)[0]

    # the eigenvalue solver synchronises with the host: no CUDA graph can contain it
    return dhp.fit_prior(y, observed, settings, terms, rng, resume, low_rank)


def rank_surrogate(x: Tensor, eta: float) -> Tensor:
    """Return Σ_i (1 - exp(-s_i / η)) over the singular values s_i of x (C, H, W) as (C, H · W)."""
    matrix = x.flatten(1).double()
    eigenvalues = torch.linalg.eigvalsh(matrix @ matrix.T)
    s = eigenvalues.clamp_min(LEAST_EIGENVALUE).sqrt()
    return (1 - torch.exp(-s / eta)).sum().to(x.dtype)
