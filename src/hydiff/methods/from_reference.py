"""`reference`: what other images of the place say, and `smooth` for what they leave over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.gaps import mask
from hydiff.methods.smooth import Smooth, smooth
from hydiff.reference.models import ReferencePlanes, predict
from hydiff.result import Step


@dataclass(frozen=True)
class FromReference:
    context: int = 1  # pixels around that take part in the regression
    steps: bool = False  # fitted to differences between neighbours instead of levels
    robust: bool = False  # pixels that have changed since count less
    local: float = 0.0  # px: gain and offset vary over a window of this standard deviation; 0 = not
    similar: int = 0  # pixels that look alike and correct the regression
    alike: int = 0  # pixels that look alike and are taken instead of a regression
    kriged: bool = True  # what the regression leaves over is filled too
    references: tuple[ReferencePlanes, ...] | None = None  # on the grid of the cube

    def __post_init__(self) -> None:
        if not 0 <= self.context <= 2:
            raise BadValue(f"context = {self.context}: expected 0, 1 or 2 pixels")
        if min(self.local, self.similar, self.alike) < 0:
            raise BadValue(
                f"local = {self.local:g}, similar = {self.similar}, alike = {self.alike}: expected "
                "0 or more"
            )


def from_reference(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: FromReference,
    *,
    rng: np.random.Generator,
) -> Iterator[Step]:
    """Regression on the references' bands; its residual by kriging, as `smooth` does.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    The estimate is NaN where no reference has a value.
    """
    if not settings.references:
        raise BadValue("the method 'reference' fills from another image: give `reference=`")
    p = predict(
        y,
        observed,
        settings.references,
        context=settings.context,
        steps=settings.steps,
        robust=settings.robust,
        local=settings.local,
        similar=settings.similar,
        alike=settings.alike,
    )
    there = np.isfinite(p).all(axis=0)
    left = np.where(observed & there, y - np.where(there, p, 0.0), 0.0)
    entries = np.broadcast_to(observed, y.shape) & there
    if settings.kriged and entries.any():
        for step in smooth(left, mask.shared(entries), sigma_y, Smooth(), rng=rng):
            left = step.x
    x = np.where(there, p + left, np.nan)
    if not sigma_y.any():
        x = np.where(observed, y, x)
    yield Step(1, 1, x)
