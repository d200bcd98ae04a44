"""`reference`: regression of the components of a cube on other images of the same place; the
residual is filled as in `smooth` or `prior`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue, need_torch
from hydiff.maths.subspace import Subspace
from hydiff.maths.variogram import Covariance
from hydiff.methods import components
from hydiff.methods.smooth import Coordinates, coordinates, cube_step, fitted_fields
from hydiff.reference.models import Model, Predicted, ReferencePlanes, predictions
from hydiff.result import Step

PLANES = 4  # components that the network corrects, strongest first


@dataclass(frozen=True)
class FromReference:
    context: int = 1  # neighbours up to this many px away take part in the regression
    steps: bool = False  # fit to differences between neighbours instead of values
    robust: bool = False  # give less weight to pixels that changed between the images
    local: float = 0.0  # px, std of the window over which gain and offset vary; 0 = constant
    similar: int = 0  # similar pixels whose mean residual corrects the regression
    alike: int = 0  # similar pixels whose mean replaces the regression
    size: str | None = None  # of the prior's network that fills the residual; None = kriging
    components: int = 24  # principal components of the cube that are predicted
    space: Subspace | None = None  # components of the whole scene; None = fitted to the cube
    references: tuple[ReferencePlanes, ...] | None = None  # on the grid of the cube

    def __post_init__(self) -> None:
        if not 0 <= self.context <= 2:
            raise BadValue(f"context = {self.context}: expected 0, 1 or 2 pixels")
        if min(self.local, self.similar, self.alike) < 0:
            raise BadValue(
                f"local = {self.local:g}, similar = {self.similar}, alike = {self.alike}: expected "
                "0 or more"
            )
        components.check(self.components, 24)

    @property
    def pretrained(self) -> bool:
        """Whether it uses a network trained on other images."""
        return self.size is not None

    @property
    def model(self) -> Model:
        """The model by which the references predict."""
        levels = self.context, self.steps, self.robust
        return Model(*levels, self.local, self.similar, self.alike)


def from_reference(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: FromReference,
    *,
    rng: np.random.Generator,
    given: Coordinates | None = None,
    device: Any = "cpu",
    at: Bools | None = None,
) -> Iterator[Step]:
    """Fill a cube by regression of its components on references; the residual is filled too.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    Components of which the references show nothing are filled as without references.  The estimate
    is NaN where no reference has a value.
    given: the coordinates, if already computed.  at: as in `cube_step`.
    """
    if not settings.references:
        raise BadValue("the method 'reference' fills from another image: give `reference=`")
    gpu = None if str(device) == "cpu" else device
    c = given or coordinates(y, observed, sigma_y, settings.components, settings.space, gpu)
    parts = [*predictions(c.z, c.complete, settings.references, settings.model, c.predicted)]
    covered = np.logical_or.reduce([part.pixels for part in parts] or [np.zeros_like(c.complete)])
    usable = c.complete & covered
    wanted_observed = observed if at is None else np.broadcast_to(observed, y.shape)[:, at][:, None]
    if not usable.any():
        yield Step(1, 1, np.where(wanted_observed, y if at is None else y[:, at][:, None], np.nan))
        return
    f, covariances = _with_references(c, usable, parts, settings, device, at)
    step = cube_step(c, f, covariances, False, rng, at)
    uncovered = ~(covered if at is None else covered[at][None])
    if uncovered.any():
        without_value = uncovered & ~wanted_observed if not sigma_y.any() else uncovered
        step = step._replace(x=np.where(without_value, np.nan, step.x))
    yield step._replace(excess=None, how="" if c.gaps is None else c.gaps.how)


def _with_references(
    c: Coordinates,
    complete: Bools,
    parts: Sequence[Predicted],
    settings: FromReference,
    device: Any,
    at: Bools | None,
) -> tuple[Floats, list[Covariance]]:
    """Return the filled components (K, H, W) and their covariances; components of which the
    references show nothing are filled as without references."""
    plain, covariances = fitted_fields(c)
    used = np.any([part.shown for part in parts], axis=0)
    if not used.any():
        return plain, covariances
    p = np.zeros(c.z.shape)
    for part in parts:
        p[:, part.pixels] = part.planes
    unexplained = c.some(used).with_components(np.where(complete, c.z - p, 0.0)[used], complete)
    residual, their_covariances = _filled(unexplained, settings, device, at)
    out, of_used = plain.copy(), iter(their_covariances)
    out[used] = p[used] + residual
    pairs = zip(used, covariances, strict=True)
    return out, [next(of_used) if is_used else covariance for is_used, covariance in pairs]


def _filled(
    c: Coordinates, settings: FromReference, device: Any, at: Bools | None
) -> tuple[Floats, list[Covariance]]:
    """Return filled components (K, H, W) and their covariances; at: as in
    `prior.corrected_fields`."""
    if settings.size is None:
        return fitted_fields(c)
    need_torch("the prior")
    import torch

    from hydiff.methods.prior import Prior, corrected_fields

    settings_of_prior = Prior(settings.size, planes=PLANES)
    return corrected_fields(c, settings_of_prior, torch.device(device), at=at)
