"""The membrane over the gaps of a grid: −Δ, the pixels it is tied to, and its sparse factor.

Letters: n missing pixels of a mask (H, W), r observed ones on their rim, C' bands or components.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from hydiff.cube import Bools, Floats

AT_ONCE = 16  # right sides that a factor solves together: their vectors stay in the cache


@lru_cache(maxsize=1)
def laplacian(rows: int, cols: int) -> sparse.csr_array:
    """−Δ on the pixel grid with reflecting borders, (rows·cols, rows·cols); not to be changed."""

    def second_difference(n: int) -> sparse.dia_array:
        degree = np.full(n, 2.0)
        degree[0] -= 1
        degree[-1] -= 1
        return sparse.diags_array([degree, -np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1, -1])

    down = sparse.kron(second_difference(rows), sparse.eye_array(cols))
    across = sparse.kron(sparse.eye_array(rows), second_difference(cols))
    return sparse.csr_array(down + across)


def factor_of(block: sparse.csr_array) -> Callable[[Floats], Floats]:
    """Solver of a symmetric system (n, n) for many right sides (C', n)."""
    lu = splu(
        sparse.csc_array(block),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def solve(right: Floats) -> Floats:
        x = np.empty(right.shape)
        for start in range(0, len(x), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            x[part] = lu.solve(right[part].T).T
        return x

    return solve


class GapRim(NamedTuple):
    """The observed pixels beside the gaps, and how the equations of the missing ones read them."""

    pixels: Bools  # (H, W)
    coupling: sparse.csr_array  # (n, r) for n missing pixels and r on the rim

    def right(self, at_rim: Floats) -> Floats:
        """(C', n) right sides of the equations, from the values (C', r) of the rim."""
        return (-self.coupling @ at_rim.T).T


def rim_of(observed: Bools, rows: sparse.csr_array) -> GapRim:
    """Of a mask (H, W) and the equations (n, H·W) of its missing pixels."""
    rim = np.zeros(observed.size, bool)
    rim[rows.indices] = True
    rim &= observed.ravel()
    return GapRim(rim.reshape(observed.shape), rows[:, rim])


def inside(y: Floats, observed: Bools, rows: sparse.csr_array) -> Floats:
    """(C', n) at the missing pixels, the f that equals y where observed and has (rows f) = 0; of y,
    only the rim of the gaps is read."""
    rim = rim_of(observed, rows)
    return factor_of(rows[:, ~observed.ravel()])(rim.right(y[:, rim.pixels]))


class Membrane(NamedTuple):
    """reach⁻² − Δ on the grid of a mask, and its solver among the missing pixels."""

    matrix: sparse.csr_array  # (H·W, H·W)
    rim: GapRim
    solve: Callable[[Floats], Floats]  # (K, missing pixels) to the same

    def inside(self, at_rim: Floats) -> Floats:
        """(K, n) the harmonic fill of the missing pixels, from the values (K, r) of the rim."""
        return self.solve(self.rim.right(at_rim))


def membrane(complete: Bools, reach: float = np.inf) -> Membrane:
    """Of a mask (H, W); fields of any order on that mask and with that reach (px) share it."""
    matrix = laplacian(*complete.shape)
    if reach < np.inf:
        matrix = sparse.csr_array(matrix + reach**-2 * sparse.eye_array(complete.size))
    missing = ~complete.ravel()
    rows = matrix[missing]
    return Membrane(matrix, rim_of(complete, rows), factor_of(rows[:, missing]))
