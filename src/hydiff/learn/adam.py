"""Adam, by the kernels that `torch.optim.Adam(fused=True)` calls, with the same numbers.

The first optimiser that torch.optim makes in a process imports torch's compiler, which is not used
here and would delay the first step by seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Moments(NamedTuple):
    """State of Adam for one tensor of weights."""

    step: Tensor  # () float32, number of steps taken
    exp_avg: Tensor  # running mean of the gradient
    exp_avg_sq: Tensor  # running mean of its square


class Adam:
    """The optimiser; all its tensors stay in place, as a recorded step requires.

    lr: learning rate; a tensor on the device of the weights if it is to change.
    decay: weight decay.
    """

    def __init__(self, weights: Iterable[Tensor], lr: float | Tensor, decay: float = 0.0) -> None:
        self.weights, self.lr, self.decay = list(weights), lr, decay
        self.moments = [
            Moments(torch.zeros((), device=w.device), torch.zeros_like(w), torch.zeros_like(w))
            for w in (weight.detach() for weight in self.weights)
        ]

    def forget(self) -> None:
        """Drop the gradients."""
        for weight in self.weights:
            weight.grad = None

    def start_over(self) -> None:
        """Reset the state to that before the first step."""
        for moments in self.moments:
            for tensor in moments:
                tensor.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """Take one step for every weight that has a gradient."""
        pairs = zip(self.weights, self.moments, strict=True)
        used = [(w, w.grad, m) for w, m in pairs if w.grad is not None]
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
