"""The variance of linear functions of a fill, exact under the model that samples are drawn from.

A function with weights w on the entries has the variance wᵀ Σ w, with Σ the covariance of their
errors.  The error of a pixel is S (V z + residual), S its scale.  So Σ is not formed: the weights
are multiplied by the transposes of S, V and the kriging of z, which takes one solution of the
kriging's system.  Letters as in `samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.result import Result
from hydiff.uncertainty.draws import Systems, floored
from hydiff.uncertainty.error_model import ErrorModel
from hydiff.uncertainty.samples import (
    DrawnGaps,
    Surroundings,
    gaps_of,
    mixing_of,
    model_of,
    systems_of,
)

Weights = Mapping[int, Floats]  # band → (rows, cols) weights of its entries


def variances(result: Result, functions: Iterable[Weights]) -> tuple[Floats, Floats]:
    """Return the variances (m,) of linear functions of a filled cube due to the errors of its
    filled entries, and due to the noise sigma_y of its measured ones."""
    gaps = gaps_of(result)
    noise_var = np.asarray(result.sigma_y, np.float64) ** 2
    by_model: Callable[[Weights], float] | None = None
    fill_var, measured_var = [], []
    for weights in functions:
        measured = ((b, w[gaps.observed[b]]) for b, w in weights.items())
        measured_var.append(sum(noise_var[b] * float(w @ w) for b, w in measured))
        filled_weights = {b: np.where(result.filled[b], w, 0.0) for b, w in weights.items()}
        variance = _one_entry(filled_weights, gaps.bars)
        if variance is None:
            by_model = by_model or model_variance(gaps)
            variance = by_model(filled_weights)
        fill_var.append(variance + _common(filled_weights, gaps.shared))
    return np.array(fill_var), np.array(measured_var)


def _one_entry(weights: Weights, sigma: Floats | None) -> float | None:
    """Return the variance of a function of one entry or none, from its error bar; else None."""
    entries = [(b, *np.argwhere(w)[:2]) for b, w in weights.items() if w.any()]
    if not entries:
        return 0.0
    if sigma is None or len(entries) > 1 or len(entries[0]) > 2:
        return None
    band, (row, col) = entries[0]
    error = float(weights[band][row, col] * sigma[band, row, col])
    return error**2 if np.isfinite(error) else None


def _common(weights: Weights, shared: Floats | None) -> float:
    """Return the variance of a function due to what the entries of a band have in common."""
    if shared is None:
        return 0.0
    return sum(float((w * shared[b]).sum()) ** 2 for b, w in weights.items())


def model_variance(gaps: DrawnGaps) -> Callable[[Weights], float]:
    """Return a function that computes the variance of a linear function of the filled entries."""
    at: Bools = np.asarray(gaps.drawn.any(axis=0))
    model = model_of(gaps)
    surroundings = Surroundings.of_cube(gaps)
    systems = systems_of(surroundings.complete, model)
    mixing = mixing_of(gaps, model, at, surroundings, systems)
    field, bars = field_variance(systems, model), gaps.bars

    def variance(weights: Weights) -> float:
        bands = sorted(weights)
        scale = np.repeat(1 / model.weight[bands, None], int(at.sum()), axis=1)
        if bars is not None:
            assert mixing.spread is not None
            own = bars[bands][:, at]
            scale = np.where(np.isfinite(own), own / mixing.spread[bands], scale)
        w = np.stack([weights[b][at] for b in bands]) * scale
        z_weights = model.basis[bands].T @ w
        for members, root in mixing.roots:
            z_weights[:, members] = root.T @ z_weights[:, members]
        on_grid = np.zeros((len(z_weights), *at.shape))
        on_grid[:, at] = mixing.field * z_weights
        residual_var = float((model.left[bands, None] * w**2).sum())
        return field(on_grid) + float(((mixing.white * z_weights) ** 2).sum()) + residual_var

    return variance


def field_variance(systems: Systems, model: ErrorModel) -> Callable[[Floats], float]:
    """Return a function of weights (K, H, W): the variance of the weighted sum of the errors of K
    kriged fields.

    Their covariance is sill · κ (M + κ Q)⁻¹, with M the complete pixels, Q the fields' precision.
    """
    kinds = dict.fromkeys(c.kind for c in model.covariances if c.kind[2] < np.inf)

    def variance(weights: Floats) -> float:
        total = 0.0
        for kind in kinds:
            members = [k for k, c in enumerate(model.covariances) if c.kind == kind]
            w, sills = weights[members], np.array([model.covariances[k].sill for k in members])
            if w.any():
                f = systems.solve(floored(kind), w)
                total += float(floored(kind)[2] * sills @ (w * f).sum(axis=(1, 2)))
        return total

    return variance
