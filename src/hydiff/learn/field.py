"""The smoothest field through known pixels, as a linear map in torch: exact, and cheap to repeat.

`methods.classical.field` solves the same problem once, without a dense matrix; here it is solved
hundreds of times for one mask.
R denotes the restriction of a plane to its gaps.
"""

from __future__ import annotations

import math
from functools import lru_cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.learn.engine import arithmetic

MOST_MISSING = 20_000  # pixels in gaps, whose covariance is a dense matrix
ROWS_AT_ONCE = 512  # rows of that matrix that are built at a time
BLOCK = 1024  # rows and columns of a block, in the factorisation and the inverse
KINDS_OF_KAPPA = 3  # groups of components of similar κ, each with its own matrix
LAGS = 6  # px, largest lag of the variogram
LOADING = Lock()
ELSEWHERE = "too little memory on the device: the fields were set up on the CPU"


def prepare(device: torch.device) -> None:
    """Let torch load its linear algebra for a device, before several threads need it.

    torch does so at the first factorisation on a GPU, and fails if two threads come first.
    """
    with LOADING:
        _prepare(device)


@lru_cache
def _prepare(device: torch.device) -> None:
    """Factorise a small matrix on a device, once in a process."""
    torch.linalg.cholesky(torch.eye(1, device=device))


class Field:
    """Linear map of z (..., K, H, W) to the f that minimises ‖M (f - z)‖² + κ ‖(−Δ)^{s/2} f‖².

    M is the mask `complete` (H, W), kappa is (K,); None is the limit κ → 0, which interpolates.
    With φ = λ^s / (1 + κ λ^s) on the cosine spectrum, f is computed in the same two steps for every
    κ: the interpolation that is smoothest in the sense of φ, then a damping by 1 / (1 + κ λ^s).
    The interpolation adds -(R φ Rᵀ)⁻¹ R φ z in the gaps, with one matrix for the geometric mean of
    the κ.
    often: whether the map is applied often enough to invert the matrix; else it is only factored.
    The inverse takes 4 bytes for each pair of pixels in gaps, and three times that while it is
    computed: if the device has too little memory, this is done on the CPU, and `how` says so.
    """

    def __init__(
        self, complete: Tensor, s: float, kappa: Floats | None = None, often: bool = True
    ) -> None:
        H, W = complete.shape
        prepare(complete.device)
        self.complete = complete
        self.missing = (~complete).flatten().nonzero()[:, 0]
        if len(self.missing) > MOST_MISSING:
            raise BadValue(
                f"{len(self.missing)} pixels in gaps are more than anchored takes at once "
                f"({MOST_MISSING}); cut the cube into smaller pieces, or use method smooth"
            )
        power = (eigenvalues(H)[:, None] + eigenvalues(W)) ** s

        def on_device(x: Tensor) -> Tensor:
            return x.to(complete.device, torch.float32)

        phi, self.damping = power, None
        if kappa is not None:
            phi = power / (1 + float(np.exp(np.log(kappa).mean())) * power)
            self.damping = on_device(1 / (1 + torch.as_tensor(kappa)[:, None, None] * power))
        self.how = ""
        self.inverse: Tensor | None = None
        if often:
            self.inverse = self._inverted(phi)
        else:
            self.factor = _factor(phi.to(complete.device), self.missing)
        self.down, self.across = (on_device(cosines(n)) for n in (H, W))
        self.phi = on_device(phi)

    def _inverted(self, phi: Tensor) -> Tensor:
        """(gaps, gaps) inverse of R φ Rᵀ, float32."""
        device = self.missing.device
        try:
            return _inverse(_factor(phi.to(device), self.missing))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        self.how = ELSEWHERE
        return _inverse(_factor(phi, self.missing.cpu())).to(device)

    def __call__(self, z: Tensor) -> Tensor:
        with arithmetic("fp32"):  # λ^s needs more digits than TF32 has
            z = z * self.complete
            right = self._filtered(z, self.phi).flatten(-2)[..., self.missing]
            f: Tensor = z.flatten(-2).index_add(-1, self.missing, -self._solved(right)).view_as(z)
            return f if self.damping is None else self._filtered(f, self.damping)

    def _solved(self, right: Tensor) -> Tensor:
        """(..., gaps) solution x of R φ Rᵀ x = right."""
        if self.inverse is not None:
            return right @ self.inverse
        columns = right.flatten(0, -2).double().mT.contiguous()
        return _substituted(self.factor, columns).mT.to(right.dtype).view_as(right)

    def _filtered(self, z: Tensor, weight: Tensor) -> Tensor:
        """Multiply the cosine transform of z by a weight (..., H, W), and transform back."""
        spectrum = weight * (self.down @ z @ self.across.T)
        filtered: Tensor = self.down.T @ spectrum @ self.across
        return filtered


def eigenvalues(n: int) -> Tensor:
    """(n,) eigenvalues of minus the second difference along n pixels with reflecting borders."""
    half: Tensor = math.pi * torch.arange(n, dtype=torch.float64) / (2 * n)
    return 4 * torch.sin(half) ** 2


def cosines(n: int) -> Tensor:
    """(n, n) matrix of the cosine transform: its rows are the orthonormal cosines."""
    k = torch.arange(n, dtype=torch.float64)
    waves: Tensor = torch.cos(math.pi * (k + 0.5) * k[:, None] / n) * (2 / n) ** 0.5
    waves[0] *= 0.5**0.5
    return waves


def _inverse(lower: Tensor) -> Tensor:
    """Inverse of a matrix from its Cholesky factor, computed in float64 and stored in float32."""
    n = len(lower)
    inverse = lower.new_empty((n, n), dtype=torch.float32)
    # column by column, below the diagonal only: the factor is then the only matrix of float64
    for start in range(0, n, BLOCK):
        part = slice(start, min(start + BLOCK, n))
        unit = torch.eye(n - start, part.stop - start, dtype=lower.dtype, device=lower.device)
        x = _substituted(lower[start:, start:], unit)
        inverse[start:, part] = x.float()
        inverse[part, start:] = x.mT.float()
    return inverse


def _substituted(lower: Tensor, x: Tensor) -> Tensor:
    """Solve L Lᵀ u = x for x (n, m) in place, and return u.

    Works by blocks of rows, since torch copies a part of a matrix before it solves with it.
    """
    starts = range(0, len(lower), BLOCK)
    for start in starts:
        part = slice(start, start + BLOCK)
        x[part] -= lower[part, :start] @ x[:start]
        x[part] = torch.linalg.solve_triangular(lower[part, part], x[part], upper=False)
    for start in reversed(starts):
        part, after = slice(start, start + BLOCK), slice(start + BLOCK, None)
        x[part] -= lower[after, part].mT @ x[after]
        x[part] = torch.linalg.solve_triangular(lower[part, part].mT, x[part], upper=True)
    return x


def _factor(phi: Tensor, missing: Tensor) -> Tensor:
    """Cholesky factor of R φ Rᵀ in float64.

    A product of two cosines is a sum of cosines of the difference and of the sum of their
    positions, so every entry of the matrix is the sum of four entries of one table.
    """
    H, W = phi.shape

    def waves(n: int) -> Tensor:
        """Return the cosines (2 n, n) of n frequencies at 2 n positions, weighted for the table."""
        k, at = torch.arange(n, dtype=torch.float64), torch.arange(2 * n, dtype=torch.float64)
        weight = torch.full((n,), 1 / n, dtype=torch.float64)
        weight[0] /= 2
        return (torch.cos(math.pi * at[:, None] * k / n) * weight).to(phi.device)

    table = waves(H) @ phi @ waves(W).T
    row, col = missing // W, missing % W
    matrix = phi.new_empty(len(missing), len(missing))
    for start in range(0, len(missing), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        r, c = row[part, None], col[part, None]
        matrix[part] = sum(
            table[dr, dc]
            for dr in ((r - row).abs(), r + row + 1)
            for dc in ((c - col).abs(), c + col + 1)
        )
    return _cholesky(matrix)


def _cholesky(matrix: Tensor) -> Tensor:
    """Overwrite the matrix by its lower Cholesky factor, by blocks of columns, and return it.

    Entries above the blocks on the diagonal stay as they were.
    """
    for start in range(0, len(matrix), BLOCK):
        part, below = slice(start, start + BLOCK), slice(start, None)
        matrix[below, part] -= matrix[below, :start] @ matrix[part, :start].mT
        factor = torch.linalg.cholesky(matrix[part, part])
        matrix[part, part] = factor
        after = slice(start + BLOCK, None)
        lower_part = torch.linalg.solve_triangular(
            factor.mT, matrix[after, part], upper=True, left=False
        )
        matrix[after, part] = lower_part
    return matrix


class Fields:
    """Fields of components z (..., K, H, W) in the order of their κ; similar κ share a matrix."""

    def __init__(self, complete: Tensor, s: float, kappa: Floats) -> None:
        parts = np.array_split(np.arange(len(kappa)), min(KINDS_OF_KAPPA, len(kappa)))
        self.parts = [slice(part[0], part[-1] + 1) for part in parts]
        self.each = [Field(complete, s, kappa[part]) for part in parts]

    @property
    def how(self) -> str:
        """Where the matrices were computed, if not on the device; else empty."""
        return max(field.how for field in self.each)

    def __call__(self, z: Tensor) -> Tensor:
        pairs = zip(self.each, self.parts, strict=True)
        return torch.cat([field(z[..., part, :, :]) for field, part in pairs], dim=-3)


def strength(z: Floats, complete: Bools, s: float) -> Floats:
    """(K,) strength τ of fields z (K, H, W) with the spectrum τ λ^{-s} under white noise.

    The variogram of such a field is τ g(lag) plus a constant, the noise.  The estimate of τ is its
    slope less two standard errors, so that a component that may be pure noise gets 0.  PCA
    increases the noise, as it selects directions in which there is much of it; this increase is
    part of the constant as well.
    """
    H, W = complete.shape
    lags = np.arange(1, min(LAGS, max(H, W) - 1) + 1)
    if len(lags) < 2:
        return np.zeros(len(z))
    power = (eigenvalues(H)[:, None] + eigenvalues(W)).numpy()
    power.flat[1:] **= -s
    gamma, g = np.zeros((len(z), len(lags))), np.zeros(len(lags))
    for i, lag in enumerate(lags):
        total, pairs = np.zeros(len(z)), 1e-9
        for axis, n in ((1, H), (2, W)):
            near, far = (np.arange(n - lag), np.arange(lag, n))
            both = complete.take(near, axis - 1) & complete.take(far, axis - 1)
            total += ((z.take(near, axis) - z.take(far, axis)) ** 2 * both).sum(axis=(1, 2))
            pairs += both.sum()
            wave = 1 - np.cos(np.pi * np.arange(n) * lag / n)
            g[i] += (power * wave.reshape((-1, 1) if axis == 1 else (1, -1))).mean() / 2
        gamma[:, i] = total / pairs / 2
    centred = g - g.mean()
    slope = gamma @ centred / (centred**2).sum()
    error = gamma[:, 0] * np.sqrt(3 / complete.sum() / (centred**2).sum())
    tau: Floats = np.maximum(slope - 2 * error, 0)
    return tau
