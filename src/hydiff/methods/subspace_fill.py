"""Subspace projection and linear interpolation: a simple method for noisy cubes.

Noise is spread over all principal components of the observed spectra, but the scene needs only a
few: projection of each spectrum on these removes most of the noise.  The coordinates are then
interpolated linearly between the complete pixels.  Nothing is smoothed in space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.methods import components
from hydiff.methods.classical import Plain, linear
from hydiff.result import Step


@dataclass(frozen=True)
class SubspaceFill:
    components: int = 24  # most principal components kept; fewer with noise

    PRESETS: ClassVar[dict[str, SubspaceFill]]

    def __post_init__(self) -> None:
        components.check(self.components, 24)


SubspaceFill.PRESETS = {"paper": SubspaceFill(), "fast": SubspaceFill(components=8)}


def subspace_fill(
    y: Floats, observed: Bools, sigma_y: Floats, settings: SubspaceFill, *, rng: Any
) -> Iterator[Step]:
    """Project a cube on its components above the noise and fill these linearly, in one step.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    """
    space, z, complete = components.decompose(y, observed, settings.components)
    strong = _above_noise(space.variance, space.basis, sigma_y, int(complete.sum()))
    space = space._replace(basis=space.basis[:, strong], variance=space.variance[strong])
    if complete.all():
        filled = z[strong]
    else:
        *_, step = linear(z[strong], complete, sigma_y, Plain(), rng=rng)
        filled = step.x
    x = space.reconstruct(filled)
    yield Step(1, 1, np.where(observed & (sigma_y == 0)[:, None, None], y, x))


def _above_noise(variance: Floats, basis: Floats, sigma_y: Floats, spectra: int) -> Bools:
    """(K,) components stronger than the strongest component of pure noise; at least one.

    The largest eigenvalue of the covariance of n noise spectra in C bands is about
    σ² (1 + √(C/n))² (Marchenko and Pastur).
    """
    noise = (basis**2 * sigma_y[:, None] ** 2).sum(axis=0)
    edge = (1 + np.sqrt(len(basis) / max(spectra, 1))) ** 2
    strong: Bools = variance > noise * edge
    strong[:1] = True
    return strong
