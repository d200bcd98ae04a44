"""Resample images by an affine map that moves their content, also to places between pixels.

A map is p ↦ A p + b as the rows of (A | b), p = (column, row) in pixels from the image's centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Matrix = NDArray[np.floating[Any]]  # (A | b), 2 × 3, or with the row (0, 0, 1), 3 × 3


def flat(matrix: Matrix) -> tuple[float, ...]:
    """Return the six numbers of (A | b)."""
    return tuple(matrix[:2].ravel().tolist())


def matrix_of(parameters: tuple[float, ...]) -> Matrix:
    """(3, 3) matrix from the six numbers of (A | b)."""
    return np.array([*parameters, 0.0, 0.0, 1.0]).reshape(3, 3)


def resample(x: Tensor, matrix: Matrix, interpolation: str) -> Tensor:
    """Move the content of x (B, C, H, W) by `matrix`; x is continued by reflection at its edges."""
    return sampled(x, grid_of(matrix, x), interpolation)


def grid_of(matrix: Matrix, x: Tensor) -> Tensor:
    """(1, H, W, 2) place from which each pixel takes its content, in the form for grid_sample."""
    rows, cols = x.shape[-2:]
    half = np.diag([cols / 2, rows / 2, 1.0])  # for grid_sample the image extends from -1 to 1
    source = np.linalg.inv(half) @ np.linalg.inv(matrix) @ half
    dtype = x.dtype if x.dtype == torch.float64 else torch.float32
    theta = torch.tensor(source[None, :2], dtype=dtype, device=x.device)
    return F.affine_grid(theta, [1, 1, rows, cols], align_corners=False)


def sampled(x: Tensor, grid: Tensor, interpolation: str) -> Tensor:
    """Interpolate x (B, C, H, W) at the places of a grid (1, H, W, 2)."""
    moved = F.grid_sample(
        x.to(grid.dtype),  # half precision cannot address pixels
        grid.expand(len(x), -1, -1, -1),
        mode=interpolation,
        padding_mode="reflection",
        align_corners=False,
    )
    return moved.to(x.dtype)
