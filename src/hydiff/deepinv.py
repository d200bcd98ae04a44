"""`FillReconstructor`: every method of hydiff as a reconstructor of deepinv, `model(y, physics)`.

The physics is inpainting, y = M x + n; the mask and the noise are taken from it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from hydiff import api
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.methods import DEFAULT

if find_spec("deepinv") is None:
    raise BadValue("`import hydiff.deepinv` needs deepinv, which is not installed: pip install it")
from deepinv.models import Reconstructor
from deepinv.physics import Inpainting


class FillReconstructor(Reconstructor):  # type: ignore[misc]  # deepinv has no types
    """Fill what the mask of an inpainting physics hides.

    method, options: as for `hydiff.fill`.  `sigma_y` is the noise of the physics by default, in
    the unit of y.  There are no trainable weights, and no gradient passes.

    >>> model = FillReconstructor("smooth")  # doctest: +SKIP
    >>> x_hat = model(y, physics)  # doctest: +SKIP
    """

    def __init__(self, method: str = DEFAULT, **options: Any) -> None:
        super().__init__()
        self.method, self.options = method, options

    def forward(self, y: Tensor, physics: Any, **kwargs: Any) -> Tensor:
        """y (batch, bands, rows, cols), 0 where missing; the estimate has the shape of y."""
        observed = observed_of(y, physics)
        options = {"sigma_y": sigma_of(physics)} | self.options
        cubes = zip(y.detach().cpu().numpy(), observed.cpu().numpy(), strict=True)
        filled = [api.fill(cube, mask, method=self.method, **options) for cube, mask in cubes]
        return torch.stack([torch.as_tensor(result.values) for result in filled]).to(y)


def observed_of(y: Tensor, physics: Any) -> Tensor:
    """The mask of a physics with the shape of y, True = measured."""
    if not isinstance(physics, Inpainting):  # others, such as MRI, have masks of something else
        raise BadValue(
            f"physics of the kind {type(physics).__name__}, expected deepinv.physics.Inpainting; "
            "use a reconstructor of deepinv"
        )
    mask: Tensor = physics.mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise BadValue("the mask has other values than 0 and 1; compare it first, such as mask > 0")
    if y.ndim != 4:
        raise ShapeMismatch(
            f"y has the shape {tuple(y.shape)}, expected (batch, bands, rows, cols)"
        )
    return (mask != 0).expand(y.shape)


def sigma_of(physics: Any) -> float:
    """The standard deviation of Gaussian noise; 0 without noise."""
    noise = getattr(physics, "noise_model", None)
    sigma = getattr(noise, "sigma", None)
    if sigma is not None:
        return float(sigma)
    if noise is not None and type(noise).__name__ != "ZeroNoise":
        raise BadValue(
            f"noise of the kind {type(noise).__name__}, expected Gaussian noise or none; give "
            "`sigma_y=` to the reconstructor"
        )
    return 0.0
