"""The membrane over the gaps of a grid: the operator −Δ, the rim of the gaps, a sparse factor.

Letters: n missing pixels of a mask (H, W), r observed pixels on the rim of the gaps, C' bands or
components.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from hydiff.cube import Bools, Floats

Elsewhere = Callable[[Floats], Floats | None]  # as `Membrane.solve`; None where it cannot

AT_ONCE = 16  # right-hand sides solved together, so that their vectors stay in the cache


@lru_cache(maxsize=1)
def laplacian(rows: int, cols: int) -> sparse.csr_array:
    """Return −Δ on the grid with reflecting borders, (rows·cols, rows·cols); do not modify it."""

    def second_difference(n: int) -> sparse.dia_array:
        """Return minus the second difference along n pixels with reflecting borders, (n, n)."""
        degree = np.full(n, 2.0)
        degree[0] -= 1
        degree[-1] -= 1
        return sparse.diags_array([degree, -np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1, -1])

    down = sparse.kron(second_difference(rows), sparse.eye_array(cols))
    across = sparse.kron(sparse.eye_array(rows), second_difference(cols))
    return sparse.csr_array(down + across)


def factor_of(block: sparse.csr_array) -> Callable[[Floats], Floats]:
    """Return a solver of a symmetric system (n, n) for many right-hand sides (C', n)."""
    lu = splu(
        sparse.csc_array(block),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def solve(right: Floats) -> Floats:
        """Solve for right-hand sides (C', n), a few at a time."""
        x = np.empty(right.shape)
        for start in range(0, len(x), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            x[part] = lu.solve(right[part].T).T
        return x

    return solve


class GapRim(NamedTuple):
    """The observed pixels beside the gaps, and their coefficients in the equations of the gaps."""

    pixels: Bools  # (H, W)
    coupling: sparse.csr_array  # (n, r) coefficients for n missing pixels and r rim pixels

    def right(self, at_rim: Floats) -> Floats:
        """Return the right-hand sides (C', n) for the values (C', r) of the rim."""
        return (-self.coupling @ at_rim.T).T


def rim_of(observed: Bools, rows: sparse.csr_array) -> GapRim:
    """Return the rim of the gaps of a mask (H, W), from the equations (n, H·W) of the gaps."""
    rim = np.zeros(observed.size, bool)
    rim[rows.indices] = True
    rim &= observed.ravel()
    return GapRim(rim.reshape(observed.shape), rows[:, rim])


def inside(y: Floats, observed: Bools, rows: sparse.csr_array) -> Floats:
    """Return f (C', n) at the missing pixels, where f = y at the observed pixels and rows f = 0.

    Only the rim of the gaps is read from y.
    """
    rim = rim_of(observed, rows)
    return factor_of(rows[:, ~observed.ravel()])(rim.right(y[:, rim.pixels]))


class Membrane(NamedTuple):
    """The operator reach⁻² − Δ on the grid of a mask, with a solver for the missing pixels."""

    matrix: sparse.csr_array  # (H·W, H·W)
    rim: GapRim
    solve: Callable[[Floats], Floats]  # (K, n) right-hand sides to (K, n) solutions

    def inside(self, at_rim: Floats) -> Floats:
        """Return the harmonic fill (K, n) of the missing pixels, from rim values (K, r)."""
        return self.solve(self.rim.right(at_rim))


def membrane(
    complete: Bools, reach: float = np.inf, elsewhere: Elsewhere | None = None
) -> Membrane:
    """Return the membrane of a mask (H, W); it serves fields of any order with this reach (px).

    elsewhere: a solver on another device, used as long as it returns solutions.
    """
    matrix = laplacian(*complete.shape)
    if reach < np.inf:
        matrix = sparse.csr_array(matrix + reach**-2 * sparse.eye_array(complete.size))
    missing = ~complete.ravel()
    rows = matrix[missing]
    rim = rim_of(complete, rows)
    if elsewhere is None:
        return Membrane(matrix, rim, factor_of(rows[:, missing]))
    factor = cache(lambda: factor_of(rows[:, missing]))

    def solve(right: Floats) -> Floats:
        """Solve for right-hand sides (K, n), there or here."""
        x = elsewhere(right)
        return factor()(right) if x is None else x

    return Membrane(matrix, rim, solve)
