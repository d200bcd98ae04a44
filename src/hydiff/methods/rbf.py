"""RBF: radial basis functions through the nearest complete pixels, on the principal components.

Uses scipy's `RBFInterpolator`.  The kernel −r with a constant is kriging with a linear variogram,
the local, dense counterpart of `smooth` with s = 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from scipy.interpolate import RBFInterpolator

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue, UnknownName
from hydiff.methods import components
from hydiff.result import Step

DEGREES = {"linear": 0, "thin_plate_spline": 1, "cubic": 1, "quintic": 2}  # of the polynomial part
Kernel = Literal["linear", "thin_plate_spline", "cubic", "quintic"]


@dataclass(frozen=True)
class RBF:
    kernel: str = "linear"  # linear | thin_plate_spline | cubic | quintic
    neighbours: int = 50  # complete pixels used for each filled pixel
    components: int = 16  # principal components kept

    PRESETS: ClassVar[dict[str, RBF]]

    def __post_init__(self) -> None:
        components.check(self.components, 16)
        if self.kernel not in DEGREES:
            raise UnknownName("kernel", self.kernel, DEGREES)
        if self.neighbours < 1:
            raise BadValue(f"neighbours = {self.neighbours}: expected 1 or more; 50 is the default")


RBF.PRESETS = {"paper": RBF(), "fast": RBF(neighbours=16, components=8)}


def rbf(y: Floats, observed: Bools, sigma_y: Floats, settings: RBF, *, rng: Any) -> Iterator[Step]:
    """Fill a cube by radial basis functions, in one step.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); noise is not modelled.
    """

    def fill(z: Floats, complete: Bools) -> Floats:
        at = np.argwhere(complete).astype(float)
        kernel, degree = settings.kernel, DEGREES[settings.kernel]
        terms = (degree + 1) * (degree + 2) // 2
        if len(at) < terms or np.linalg.matrix_rank(_monomials(at, degree)) < terms:
            kernel, degree = "linear", 0  # too few pixels for the polynomial, or all on a line
        x, to = z.copy(), np.argwhere(~complete).astype(float)
        neighbours = min(max(settings.neighbours, terms), len(at))
        try:
            x[:, ~complete] = _interpolated(at, z[:, complete].T, to, neighbours, kernel, degree).T
        except np.linalg.LinAlgError:  # the neighbours of some pixel lie on a line
            x[:, ~complete] = _interpolated(at, z[:, complete].T, to, neighbours, "linear", 0).T
        return x

    yield Step(1, 1, components.fill_on_components(y, observed, settings.components, fill))


def _interpolated(
    at: Floats, values: Floats, to: Floats, neighbours: int, kernel: str, degree: int
) -> Floats:
    """Interpolate values (points, n) at points `at` (points, 2) to pixels `to`: (pixels, n)."""
    field = RBFInterpolator(
        at, values, neighbors=neighbours, kernel=cast(Kernel, kernel), degree=degree
    )
    filled: Floats = field(to)
    return filled


def _monomials(at: Floats, degree: int) -> Floats:
    """Return monomials (points, terms) of row and column up to the degree, on the unit square."""
    r, c = (at / max(float(at.max()), 1.0)).T
    return np.stack([r**i * c**j for i in range(degree + 1) for j in range(degree + 1 - i)], axis=1)
