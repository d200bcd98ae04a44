"""Adam, by the kernels that `torch.optim.Adam(fused=True)` calls; the same numbers.

The first optimiser that torch.optim makes in a process imports torch's compiler, which nothing here
uses: seconds that a user would wait for the first step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """What Adam knows of one weight."""

    step: Tensor  # () float32, steps taken
    exp_avg: Tensor  # of the gradient
    exp_avg_sq: Tensor  # of its square


class Adam:
    """Descends on weights by their gradients; all tensors stay in place, as a recording needs.

    lr: a tensor beside the weights where it is to change.  decay: of the weights.
    """

    def __init__(self, weights: Iterable[Tensor], lr: float | Tensor, decay: float = 0.0) -> None:
        self.weights, self.lr, self.decay = list(weights), lr, decay
        self.moments = [
            Moments(torch.zeros((), device=w.device), torch.zeros_like(w), torch.zeros_like(w))
            for w in (weight.detach() for weight in self.weights)
        ]

    def forget(self) -> None:
        """The gradients."""
        for weight in self.weights:
            weight.grad = None

    def start_over(self) -> None:
        """As if no step had been taken."""
        for moments in self.moments:
            for tensor in moments:
                tensor.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """One step for every weight that has a gradient."""
        own = zip(self.weights, self.moments, strict=True)
        used = [(w, w.grad, m) for w, m in own if w.grad is not None]
        if not used:
            return
        weights, grads, moments = map(list, zip(*used, strict=True))
        steps, first, second = map(list, zip(*moments, strict=True))
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            weights, grads, first, second, [], steps, lr=self.lr, beta1=BETA_1, beta2=BETA_2,
            weight_decay=self.decay, eps=EPSILON, amsgrad=False, maximize=False,
            grad_scale=None, found_inf=None,
        )  # fmt: skip
