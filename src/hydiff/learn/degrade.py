"""y = M x + n: the measurement of a cube by a sensor with gaps and noise (Eq. 1).

Shapes: x, y (C, H, W) or (B, C, H, W); observed (H, W) when all bands share it, or (C, H, W).
The names are those of deepinv, so that code written for its operators reads the same here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from hydiff.errors import BadValue, ShapeMismatch

Sigma = float | Tensor | NDArray[Any]  # one for all bands, or (C,)


@dataclass(frozen=True, eq=False)
class Inpainting:
    """M: keeps the observed entries and sets the others to 0.

    >>> M = Inpainting(torch.tensor([[True, False]]))
    >>> M.A(torch.tensor([[[3.0, 4.0]]]))
    tensor([[[3., 0.]]])
    """

    observed: Tensor  # bool, True = measured

    def __post_init__(self) -> None:
        if self.observed.dtype != torch.bool:
            raise BadValue(
                f"observed must be boolean, found {self.observed.dtype}: "
                "write observed=(mask > 0) if 1 means measured"
            )

    def A(self, x: Tensor) -> Tensor:
        """Return M x, in the shape and dtype of x."""
        _check_mask(x, self.observed)
        # not a product: 0 · NaN would carry NaN in the gaps into every later sum
        return torch.where(self.observed, x, torch.zeros((), dtype=x.dtype, device=x.device))

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Return Mᵀ y, which is M y: a mask is diagonal."""
        return self.A(y)

    def A_dagger(self, y: Tensor) -> Tensor:
        """Return M† y, which is M y: the diagonal holds only 1 and 0."""
        return self.A(y)

    @property
    def singular_values(self) -> Tensor:
        """1 where observed, 0 where missing; in the shape of `observed`, which fits the cube."""
        return self.observed.to(torch.get_default_dtype())


def measure(x: Tensor, observed: Tensor, sigma_y: Sigma = 0.0, *, rng: Generator) -> Tensor:
    """Return y = M x + n (Eq. 1), with noise on the observed entries and 0 on the missing ones.

    `sigma_y` is the noise std in the unit of x, one number or one per band.
    """
    return Inpainting(observed).A(add_noise(x, sigma_y, rng))


def add_noise(x: Tensor, sigma_y: Sigma, rng: Generator) -> Tensor:
    """Return x + n with n ~ N(0, sigma_y²) drawn from `rng`, in the dtype and on the device of x.

    The noise is drawn even when sigma_y = 0, so that later draws from `rng` do not depend on it.
    """
    if not x.is_floating_point():
        raise BadValue(f"noise needs floating-point values, found {x.dtype}: write x.float()")
    sigma = _per_band(sigma_y, x)
    # drawn where the generator lives: one seed gives the same noise on every device
    noise = torch.randn(x.shape, generator=rng, dtype=x.dtype, device=rng.device)
    return x + sigma * noise.to(x.device)


def _per_band(sigma_y: Sigma, x: Tensor) -> Tensor:
    """Return sigma_y as a tensor that broadcasts over x: () or (C, 1, 1)."""
    sigma = torch.as_tensor(sigma_y, dtype=x.dtype, device=x.device)
    if not bool(torch.isfinite(sigma).all()) or bool((sigma < 0).any()):
        raise BadValue(f"sigma_y must be finite and not negative, found {sigma_y}")
    if sigma.ndim == 0:
        return sigma
    if sigma.shape != x.shape[-3:-2]:
        raise ShapeMismatch(
            f"sigma_y has shape {tuple(sigma.shape)}, the cube has {x.shape[-3]} bands: "
            "give one number, or one per band"
        )
    return sigma[:, None, None]


def _check_mask(x: Tensor, observed: Tensor) -> None:
    """Raise ShapeMismatch unless the mask fits the cube x."""
    if observed.ndim not in (2, 3) or observed.shape != x.shape[-observed.ndim :]:
        raise ShapeMismatch(
            f"observed has shape {tuple(observed.shape)}, the cube {tuple(x.shape)}: "
            "observed is (rows, cols) or (bands, rows, cols)"
        )
