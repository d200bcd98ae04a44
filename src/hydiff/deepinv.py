"""`FillReconstructor`: use any method of hydiff as a reconstructor of deepinv, `model(y, physics)`.

The physics must be inpainting, y = M x + n; the mask and the noise are taken from it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from hydiff import api
from hydiff.cube import Cube
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.methods import DEFAULT

if find_spec("deepinv") is None:  # torch is one of its dependencies
    raise BadValue("`import hydiff.deepinv` needs deepinv, which is not installed: pip install it")
import torch
from deepinv.models import Reconstructor
from deepinv.physics import Inpainting
from torch import Tensor


class FillReconstructor(Reconstructor):  # type: ignore[misc]  # deepinv has no types
    """Fill the entries that the mask of an inpainting physics hides.

    method, options: as for `hydiff.fill`.  By default `sigma_y` is the noise of the physics, in the
    unit of y.  The model has no trainable weights and does not propagate gradients.

    >>> model = FillReconstructor("smooth")  # doctest: +SKIP
    >>> x_hat = model(y, physics)  # doctest: +SKIP
    """

    def __init__(self, method: str = DEFAULT, **options: Any) -> None:
        super().__init__()
        self.method, self.options = method, options

    def forward(self, y: Tensor, physics: Any, **kwargs: Any) -> Tensor:
        """Return the estimate in the shape of y (batch, bands, rows, cols), 0 where missing."""
        observed = observed_of(y, physics)
        noise = [{}] * len(y) if "sigma_y" in self.options else sigma_of(physics, len(y))
        x_hat = torch.empty_like(y, requires_grad=False)
        for cube, mask, sigma, out in zip(y.detach(), observed, noise, x_hat, strict=True):
            values = cube.float() if cube.dtype == torch.bfloat16 else cube  # not a NumPy dtype
            options = {"method": self.method, **sigma, **self.options}
            ordered = Cube(values.cpu().numpy())  # bands first, whatever its lengths look like
            result = api.fill(ordered, mask.cpu().numpy(), **options)
            out.copy_(torch.as_tensor(result.values))
        return x_hat


def observed_of(y: Tensor, physics: Any) -> Tensor:
    """Return the mask of a physics with the shape of y, True = measured."""
    if not isinstance(physics, Inpainting):  # masks of others, such as MRI, mean something else
        raise BadValue(
            f"physics of the kind {type(physics).__name__}, expected deepinv.physics.Inpainting; "
            "use a reconstructor of deepinv"
        )
    mask: Tensor = physics.mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise BadValue("the mask has other values than 0 and 1; compare it first, such as mask > 0")
    if not isinstance(y, Tensor) or y.ndim != 4:
        description = (
            f"y of the shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        )
        raise ShapeMismatch(f"expected a tensor (batch, bands, rows, cols), found {description}")
    try:
        return (mask != 0).expand(y.shape)
    except RuntimeError:
        raise ShapeMismatch(
            f"y has the shape {tuple(y.shape)}, but the mask of the physics {tuple(mask.shape)}; "
            "make the physics for this y"
        ) from None


def sigma_of(physics: Any, count: int) -> list[dict[str, float]]:
    """Return `sigma_y` of each cube: the std of Gaussian noise, 0 without noise.

    Each is a dictionary of keyword arguments for `hydiff.fill`.
    """
    noise = getattr(physics, "noise_model", None)
    sigma = getattr(noise, "sigma", None)
    if sigma is None:
        if noise is not None and type(noise).__name__ != "ZeroNoise":
            raise BadValue(
                f"noise of the kind {type(noise).__name__}, expected Gaussian noise or none; give "
                "`sigma_y=` to the reconstructor"
            )
        sigma = 0.0
    values = torch.as_tensor(sigma).flatten().tolist()
    if len(values) not in (1, count):
        raise ShapeMismatch(
            f"{len(values)} standard deviations of the noise for {count} cubes; expected one, or "
            "one for each cube"
        )
    return [{"sigma_y": value} for value in (values if len(values) == count else values * count)]
