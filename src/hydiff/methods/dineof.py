"""DINEOF: data-interpolating empirical orthogonal functions (Beckers and Rixen, 2003).

The missing entries are filled with the mean; then the matrix is decomposed and they are refilled
from the first n EOFs, repeatedly until convergence.  n is the number that best predicts entries set
aside.  If every pixel has some observed band, the matrix is bands × pixels, in place of the
images × places of the original.

A pixel without any band would be an empty column of this matrix and would get the mean.  If there
are such pixels, the matrix is lines × (everything else), with lines across the gaps, on the
principal components.  Its EOFs are smoothed across the lines, as the time filter of Alvera-Azcárate
et al. (2009) does for days, because neighbouring lines are similar.  The entries set aside are then
moved copies of the gaps, not single entries: these could be predicted from their own line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.methods import components
from hydiff.result import Step

DIFFUSION = 0.25  # coefficient of one pass of the filter; stable below 0.5
PATIENCE = 3  # numbers of EOFs tried without improvement before the search ends
WORTH = 0.99  # an improvement must lower the error to this share of the best


@dataclass(frozen=True)
class DINEOF:
    eofs: int = 30  # largest number of EOFs that is tried
    iterations: int = 100  # most iterations for each number of EOFs
    tolerance: float = 1e-3  # it stops at this change of the filled entries, relative to the spread
    components: int = 24  # principal components, for gaps in all bands

    PRESETS: ClassVar[dict[str, DINEOF]]

    def __post_init__(self) -> None:
        components.check(self.components, 24)
        for name in ("eofs", "iterations"):
            if getattr(self, name) < 1:
                raise BadValue(f"{name} = {getattr(self, name)}: expected 1 or more")


DINEOF.PRESETS = {"paper": DINEOF(), "fast": DINEOF(eofs=10, iterations=30)}


class Matrix(NamedTuple):
    """The matrix to decompose: L lines (or bands) by N other entries."""

    values: Floats  # (L, N) anomalies, 0 where missing
    missing: Bools  # (L, N)
    aside: Bools  # (L, N) observed entries set aside for choosing the number of EOFs
    smoother: Floats | None  # (L, L) smoother over neighbouring lines; None for bands


def dineof(
    y: Floats, observed: Bools, sigma_y: Floats, settings: DINEOF, *, rng: np.random.Generator
) -> Iterator[Step]:
    """Fill a cube by DINEOF, yielding a step for each number of EOFs tried.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); noise is not modelled.
    """
    entries = np.broadcast_to(observed, y.shape)
    if entries.any(axis=0).all():
        flat, flags = y.reshape(len(y), -1), entries.reshape(len(y), -1)
        mean = flat.sum(axis=1, where=flags) / np.maximum(flags.sum(axis=1), 1)
        matrix = _by_bands(np.where(flags, flat - mean[:, None], 0.0), ~flags, rng)
        for step in _search(matrix, settings):
            x = (step.x + mean[:, None]).reshape(y.shape)
            yield step._replace(x=np.where(entries, y, x))
        return
    space, z, complete = components.decompose(y, observed, settings.components)
    axis = 1 + int(np.argmax([(~complete).mean(axis=1).var(), (~complete).mean(axis=0).var()]))
    moved = np.moveaxis(z, axis, 0)
    gaps = np.moveaxis(np.broadcast_to(~complete, z.shape), axis, 0).reshape(len(moved), -1)
    matrix = _by_lines(moved.reshape(len(moved), -1), gaps, rng)
    for step in _search(matrix, settings):
        x = space.reconstruct(np.moveaxis(step.x.reshape(moved.shape), 0, axis))
        yield step._replace(x=np.where(observed, y, x))


def _by_bands(values: Floats, missing: Bools, rng: np.random.Generator) -> Matrix:
    """Set aside single entries, as many as in the paper: min(0.01 n + 40, 0.03 n)."""
    entries = np.flatnonzero(~missing)
    n = int(min(0.01 * len(entries) + 40, 0.03 * len(entries)))
    aside = np.zeros(missing.shape, bool)
    aside.ravel()[rng.choice(entries, max(n, 1), replace=False)] = True
    return Matrix(values, missing, aside, None)


def _by_lines(values: Floats, missing: Bools, rng: np.random.Generator) -> Matrix:
    """Set aside a copy of the gaps, moved by some lines, and set up the smoother over lines, whose
    std is half the width of the widest gap."""
    L = len(values)
    copies = (np.roll(missing, int(s), axis=0) & ~missing for s in rng.permutation(np.arange(1, L)))
    no_entries = np.zeros(missing.shape, bool)
    aside = next((copy for copy in copies if copy.sum() >= missing.sum() / 3), no_entries)
    widest = max(_runs(missing.mean(axis=1) > 0.5), default=1)
    passes = max(1, round(widest**2 / (8 * DIFFUSION)))  # √(2 D passes) is half the widest gap
    second = np.diag(np.full(L - 1, 1.0), 1) + np.diag(np.full(L - 1, 1.0), -1)
    second -= np.diag(second.sum(axis=1))
    smoother = np.linalg.matrix_power(np.eye(L) + DIFFUSION * second, passes)
    return Matrix(values, missing, aside, smoother)


def _runs(flags: Bools) -> list[int]:
    """Return the lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return [int(n) for n in edges[1::2] - edges[::2]]


def _search(matrix: Matrix, settings: DINEOF) -> Iterator[Step]:
    """Yield the fills for an increasing number of EOFs, and finally that for the best number."""
    truth = matrix.values[matrix.aside]
    start = np.where(matrix.aside, 0.0, matrix.values)
    hidden = matrix.missing | matrix.aside
    most = min(settings.eofs, len(start) - 1, max(int((~hidden).any(axis=1).sum()) - 1, 1))
    best, best_error = 0, float(np.sqrt(np.mean(truth**2))) if truth.size else np.inf
    x = filled = start  # without EOFs the fill is the mean
    for n in range(1, most + 1):
        x = _refilled(x, hidden, n, matrix.smoother, settings)
        error = float(np.sqrt(np.mean((x[matrix.aside] - truth) ** 2))) if truth.size else 0.0
        if error < WORTH * best_error:
            best, best_error, filled = n, error, x
        yield Step(n, most + 1, x, {"eofs": n, "aside": error})
        if n - best >= PATIENCE:
            break
    x = np.where(matrix.missing, filled, matrix.values)
    if best > 0:
        x = _refilled(x, matrix.missing, best, matrix.smoother, settings)
    yield Step(most + 1, most + 1, x, {"eofs": best, "aside": best_error})


def _refilled(
    x: Floats, missing: Bools, n: int, smoother: Floats | None, settings: DINEOF
) -> Floats:
    """Decompose x and refill its missing entries from n EOFs, repeatedly until they converge."""
    spread = float(x[~missing].std()) if not missing.all() else 0.0
    for _ in range(settings.iterations):
        covariance = x @ x.T
        if smoother is not None:
            covariance = smoother @ covariance @ smoother.T
        L = len(x)
        _, U = linalg.eigh(covariance, subset_by_index=[max(L - n, 0), L - 1])
        new = np.where(missing, U @ (U.T @ x), x)
        moved = float(np.sqrt(np.mean((new - x)[missing] ** 2))) if missing.any() else 0.0
        x = new
        if moved <= settings.tolerance * spread:
            break
    return x
