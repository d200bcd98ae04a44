"""The smoothest fields through known pixels in torch: many planes and kinds of covariance at once.

`methods.classical.field` solves the same equations, one kind after the other, with sparse factors,
which suit a CPU.  Here all planes go through the same conjugate gradients, and the preconditioner
is dense, which suits a GPU: −Δ on the gaps falls apart into one block for each connected piece of
them, and each block is inverted.  All is float64.

Letters: z (K, H, W) planes; n missing pixels; L = R (−Δ) Rᵀ, where R restricts a plane to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from hydiff.cube import Bools, Floats, Ints
from hydiff.errors import is_no_memory
from hydiff.learn.field import MOST_MISSING, cosines, eigenvalues, prepare
from hydiff.maths.variogram import Kind

TOLERANCE = 1e-9  # relative residual at which conjugate gradients stop
MAX_ITERATIONS = 500
SMALL = 64  # pixels of pieces that are inverted together
FEWEST = 0.5  # pieces with at least this share of the pixels of the largest share a batch


class GapFields:
    """The gaps of a mask `complete` (H, W) on a device, and the fields that fill them.

    `fields` and `membrane` return None if the device has too little memory, or if a piece of the
    gaps has more pixels than a dense matrix is made for.  Then, and from then on, the caller has to
    work without the device; `messages` says so.
    """

    def __init__(self, complete: Bools, device: torch.device) -> None:
        prepare(device)
        self.complete, self.device = complete, device
        self.missing = torch.as_tensor(np.flatnonzero(~complete), device=device)
        self.messages: list[str] = []

    def of(self, complete: Bools) -> GapFields:
        """Return the gaps of another mask on the same device; messages are shared."""
        gaps = GapFields(complete, self.device)
        gaps.messages = self.messages
        return gaps

    @property
    def how(self) -> str:
        """Where the fields were computed, for the record."""
        return "; ".join([f"fields on {self.device.type}", *self.messages])

    def fields(self, z: Floats, kinds: Sequence[Kind]) -> Floats | None:
        """Return z (K, H, W) filled as by `classical.field`; kinds: order s, reach in px, and κ of
        each plane."""

        def filled() -> Tensor:
            s, reach, kappa = torch.tensor(kinds, dtype=torch.float64, device=self.device).T
            planes = torch.as_tensor(z, device=self.device)
            return self._fields(planes, *(a[:, None, None] for a in (s, reach, kappa)))

        return self._attempt(filled)

    def membrane(self, right: Floats) -> Floats | None:
        """Return L⁻¹ right (C', n), the pixels in the order of the flattened image."""
        return self._attempt(lambda: self._solved(torch.as_tensor(right, device=self.device)))

    def _attempt(self, work: Callable[[], Tensor]) -> Floats | None:
        """Return what `work` returns as an array, or None where the device cannot do it."""
        if self.messages:
            return None
        if (largest := max(map(len, self._pieces), default=0)) > MOST_MISSING:
            self.messages.append(f"a gap of {largest} pixels is too large there: fields on the CPU")
            return None
        try:
            array: Floats = work().cpu().numpy()
            return array
        except RuntimeError as error:  # the libraries of linear algebra have errors of their own
            if not (isinstance(error, torch.OutOfMemoryError) or is_no_memory(error)):
                raise
            self.messages.append("too little memory there: fields on the CPU")
        self.__dict__.pop("_inverses", None)
        torch.cuda.empty_cache()
        return None

    # ── the fields ───────────────────────────────────────────────────────────────────────────────

    def _fields(self, z: Tensor, s: Tensor, reach: Tensor, kappa: Tensor) -> Tensor:
        """Return the planes filled; s, reach and κ are (K, 1, 1).

        With P = (reach⁻² − Δ)^s and ψ = P / (1 + κ P) the missing pixels make zᵀ ψ z least, as in
        `classical.field`.  The preconditioner L⁻¹ R (−Δ)² ψ⁻¹ Rᵀ L⁻¹ is that of
        docs/decisions/0005, with L without reach for all planes.
        """
        square = self._laplacian**2
        power = (self._laplacian + reach**-2) ** s
        psi = power / (1 + kappa * power)
        inner = torch.where(self._laplacian > 0, self._laplacian ** (2 - s), square)
        inner = torch.where(reach == inf, inner, square / power) + kappa * square
        start = self._with(z, -self._solved(self._within(self._filtered(z, self._laplacian))))
        correction = conjugate_gradients(
            lambda v: self._embedded(v, psi),
            -self._within(self._filtered(start, psi)),
            lambda r: self._solved(self._embedded(self._solved(r), inner)),
        )
        f = self._with(start, correction)
        return torch.where(kappa > 0, self._filtered(f, 1 / (1 + kappa * power)), f)

    @cached_property
    def _laplacian(self) -> Tensor:
        """(H, W) eigenvalues of −Δ with reflecting borders."""
        down, across = (eigenvalues(n).to(self.device) for n in self.complete.shape)
        return down[:, None] + across

    @cached_property
    def _cosines(self) -> tuple[Tensor, Tensor]:
        """(H, H) and (W, W) matrices of the cosine transform along each axis."""
        down, across = (cosines(n).to(self.device) for n in self.complete.shape)
        return down, across

    def _filtered(self, z: Tensor, weight: Tensor) -> Tensor:
        """Multiply the cosine transforms of z (K, H, W) by a weight, and transform back."""
        down, across = self._cosines
        filtered: Tensor = down.T @ (weight * (down @ z @ across.T)) @ across
        return filtered

    def _within(self, z: Tensor) -> Tensor:
        """(K, n) values of planes z (K, H, W) in the gaps."""
        return z.flatten(1)[:, self.missing]

    def _with(self, z: Tensor, added: Tensor) -> Tensor:
        """Return z (K, H, W) with values (K, n) added in the gaps."""
        return z.flatten(1).index_add(1, self.missing, added).view_as(z)

    def _embedded(self, v: Tensor, weight: Tensor) -> Tensor:
        """Return R F Rᵀ v (K, n), where F multiplies the cosine transform by a weight."""
        nothing = v.new_zeros(len(v), *self.complete.shape)
        return self._within(self._filtered(self._with(nothing, v), weight))

    # ── the pieces of the gaps ───────────────────────────────────────────────────────────────────

    @cached_property
    def _pieces(self) -> list[Ints]:
        """Indices of the pixels of each connected piece in the flattened image; largest first."""
        number, _ = ndimage.label(~self.complete)
        at = np.flatnonzero(number)
        order = at[np.argsort(number.ravel()[at], kind="stable")]
        sizes = np.bincount(number.ravel()[at])[1:]
        pieces = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
        return sorted(pieces, key=len, reverse=True)

    @cached_property
    def _inverses(self) -> list[InverseBlocks]:
        """Inverses of the blocks of L, pieces of similar size in one batch."""
        batches, rest = [], self._pieces
        while rest:
            count = sum(len(piece) >= FEWEST * len(rest[0]) for piece in rest)
            batches.append(self._batch(rest[:count]))
            rest = rest[count:]
        return batches

    def _batch(self, pieces: Sequence[Ints]) -> InverseBlocks:
        """Return the inverse block of each of some pieces, padded to the size of the first."""
        (H, W), m = self.complete.shape, len(pieces[0])
        slot = np.full((H + 2, W + 2), -1)  # place of a pixel in its piece, with an observed border
        at = np.full((len(pieces), m), -1)
        for piece, pixels in zip(at, pieces, strict=True):
            piece[: len(pixels)] = pixels
        number, place = np.nonzero(at >= 0)
        row, col = np.divmod(at[number, place], W)
        slot[row + 1, col + 1] = place
        block = torch.zeros(len(pieces), m, m, dtype=torch.float64, device=self.device)
        block.diagonal(dim1=1, dim2=2).fill_(1.0)  # for pads
        degree = np.zeros(len(number))
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            r, c = row + down, col + right
            degree += (r >= 0) & (r < H) & (c >= 0) & (c < W)
            near = slot[r + 1, c + 1]
            inside = near >= 0
            where = (number[inside], place[inside], near[inside])
            block[tuple(torch.as_tensor(i, device=self.device) for i in where)] = -1.0
        diagonal = tuple(torch.as_tensor(i, device=self.device) for i in (number, place, place))
        block[diagonal] = torch.as_tensor(degree, device=self.device)
        # of large matrices, routines for single ones are faster than those for batches
        for part in block if m > SMALL else block[None]:
            part.copy_(torch.cholesky_inverse(torch.linalg.cholesky(part)))
        # pads refer to an entry behind the last pixel
        index = np.searchsorted(np.flatnonzero(~self.complete), at)
        index = np.where(at >= 0, index, len(self.missing))
        return InverseBlocks(torch.as_tensor(index, device=self.device), block)

    def _solved(self, right: Tensor) -> Tensor:
        """Return L⁻¹ right (K, n)."""
        padded = torch.nn.functional.pad(right, (0, 1))
        x = torch.zeros_like(padded)
        for at, inverse in self._inverses:
            part = inverse @ padded[:, at].permute(1, 2, 0)  # (pieces, m, K)
            x[:, at] = part.permute(2, 0, 1)
        return x[:, :-1]


class InverseBlocks(NamedTuple):
    """Some pieces of the gaps with the inverse of −Δ on each."""

    at: Tensor  # (pieces, m) number of each pixel among the missing ones, n for pads
    inverse: Tensor  # (pieces, m, m), float64


def conjugate_gradients(
    A: Callable[[Tensor], Tensor], right: Tensor, precondition: Callable[[Tensor], Tensor]
) -> Tensor:
    """Solve A x = right (K, n) for K systems at once; each keeps its solution once it has one."""

    def dot(a: Tensor, b: Tensor) -> Tensor:
        """Return the inner product (K, 1) of each system."""
        return (a * b).sum(dim=1, keepdim=True)

    x, r = torch.zeros_like(right), right.clone()
    q = precondition(r)
    p, rq = q.clone(), dot(r, q)
    target = TOLERANCE**2 * rq
    for _ in range(MAX_ITERATIONS):
        Ap = A(p)
        unsolved = rq > target
        step = torch.where(unsolved, rq / dot(p, Ap), 0.0)
        x += step * p
        r -= step * Ap
        q = precondition(r)
        last, rq = rq, dot(r, q)
        if not (rq > target).any():
            break
        p = q + torch.where(unsolved, rq / last, 0.0) * p
    return x
