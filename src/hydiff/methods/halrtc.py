"""HaLRTC: high-accuracy low-rank tensor completion (Liu, Musialski, Wonka, Ye, 2013).

Minimises Σ_i α_i ‖X_(i)‖_* over the three unfoldings of the cube, with the observed entries fixed,
by the alternating direction method of multipliers.  A slice without any observed entry (such as a
line missing in all bands over the whole width) adds nothing to the norms if it is zero, so that the
method would fill it with meaningless zeros: here such entries are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.result import Step


@dataclass(frozen=True)
class HaLRTC:
    steps: int = 500  # the most steps
    tolerance: float = 1e-5  # relative change of the cube at which it stops
    start: float = 0.1  # first threshold 1 / (3 ρ), as a share of the largest singular value
    growth: float = 1.05  # of the penalty ρ at each step
    most: float = 1e6  # largest ρ, relative to the first

    PRESETS: ClassVar[dict[str, HaLRTC]]

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BadValue(f"steps = {self.steps}: expected at least 1; 500 is the default")
        if not 0 < self.start < 1:
            raise BadValue(f"start = {self.start}: expected a share between 0 and 1; 0.1 is usual")
        if not self.growth >= 1:
            raise BadValue(f"growth = {self.growth}: expected 1 or more")


HaLRTC.PRESETS = {"paper": HaLRTC(), "fast": HaLRTC(steps=100, growth=1.15, tolerance=1e-4)}


def halrtc(
    y: Floats, observed: Bools, sigma_y: Floats, settings: HaLRTC, *, rng: Any
) -> Iterator[Step]:
    """Fill a cube by HaLRTC, yielding every step.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); noise is not modelled.
    """
    entries = np.broadcast_to(observed, y.shape)
    blind = blind_entries(entries)
    x = np.where(entries, y, 0.0)
    duals = [np.zeros_like(x) for _ in range(3)]
    size = max(float(np.linalg.norm(x)), np.finfo(float).tiny)
    first = rho = 1 / (3 * settings.start * size)  # the largest singular value is close to the norm
    for i in range(1, settings.steps + 1):
        low = [shrunk(x + duals[axis] / rho, axis, 1 / (3 * rho)) for axis in range(3)]
        last = x
        mean = np.mean([m - d / rho for m, d in zip(low, duals, strict=True)], axis=0)
        x = np.where(entries, y, mean)
        duals = [d - rho * (m - x) for m, d in zip(low, duals, strict=True)]
        rho = min(rho * settings.growth, settings.most * first)
        change = float(np.linalg.norm(x - last)) / size
        done = settings.steps if change < settings.tolerance else i
        yield Step(done, settings.steps, np.where(blind, np.nan, x), {"change": change})
        if done == settings.steps:
            return


def blind_entries(observed: Bools) -> Bools:
    """Return a mask of the bands, rows and columns without any observed entry, (C, H, W)."""
    blind = np.zeros(observed.shape, bool)
    for axis in range(3):
        others = tuple(a for a in range(3) if a != axis)
        blind |= ~observed.any(axis=others, keepdims=True)
    return blind


def shrunk(x: Floats, axis: int, threshold: float) -> Floats:
    """Return x with the singular values of its unfolding along `axis` lowered by the threshold τ.

    Computed as U diag((1 − τ/s)₊) Uᵀ X from the eigenvectors U of X Xᵀ: cheaper than the SVD of X.
    """
    moved = np.moveaxis(x, axis, 0)
    X = moved.reshape(len(moved), -1)
    squares, U = linalg.eigh(X @ X.T)
    s = np.sqrt(np.maximum(squares, 0))
    keep = s > threshold
    U = U[:, keep]
    low = (U * (1 - threshold / s[keep])) @ (U.T @ X)
    return np.moveaxis(low.reshape(moved.shape), 0, axis)
