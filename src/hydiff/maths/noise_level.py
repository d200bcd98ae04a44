"""The noise std of a cube (`sigma_y`): given in the cube's unit or as a share, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Scale
from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.maths import noise

# one number, one per band, by detector; a share such as "5%", or "auto"
Sigma = float | str | Sequence[float] | Array | Mapping[str, float]
LARGEST = 10.0  # on the unit range; a larger value is taken for a mistake of units


def sigma_per_band(sigma_y: Sigma, cube: Cube) -> Any:
    """Expand noise std by detector to one number per band; return anything but a dict unchanged."""
    if not isinstance(sigma_y, Mapping):
        return sigma_y
    detectors = set(cube.detectors or ())
    for name in sigma_y:
        if name not in detectors:
            raise UnknownName("detector", name, detectors)
    if missing := detectors - set(sigma_y):
        raise BadValue(f"sigma_y names no noise for the detector {', '.join(sorted(missing))}")
    return [float(sigma_y[name]) for name in cube.detectors or ()]


def unit_sigma(
    sigma_y: Sigma, y: Floats, observed: Bools, good: Bools, scale: Scale
) -> tuple[Floats, list[str]]:
    """Return the noise std of each band (bands,) on the unit range, and notes about it.

    sigma_y: one number or one per band, in the cube's unit; a share such as "5%"; or "auto".
    """
    bands = len(y)
    if isinstance(sigma_y, str) and sigma_y == "auto":
        return _estimated_sigma(y, observed, good, scale)
    try:
        if isinstance(sigma_y, str) and sigma_y.endswith("%"):
            numbers = sigma = np.asarray(float(sigma_y[:-1]) / 100)
        else:
            numbers = np.asarray(sigma_y, dtype=np.float64)
            sigma = numbers if numbers.shape not in ((), (bands,)) else numbers / scale.spans
    except ValueError:
        raise BadValue(
            f"sigma_y = {sigma_y!r}: expected a number in the cube's unit, a share such as 5%, "
            "or auto"
        ) from None
    if numbers.shape not in ((), (bands,)):
        raise ShapeMismatch(
            f"sigma_y has {numbers.size} entries; expected 1 or {bands}, one per band"
        )
    span = float(scale.spans.max())
    if not (np.isfinite(sigma).all() and (sigma >= 0).all() and (sigma <= LARGEST).all()):
        raise BadValue(
            f"sigma_y = {sigma_y}: expected a standard deviation between 0 and "
            f"{LARGEST * span:g}, in the cube's unit (its values span {span:g})"
        )
    return np.broadcast_to(sigma, (bands,)).copy(), []


def _estimated_sigma(
    y: Floats, observed: Bools, good: Bools, scale: Scale
) -> tuple[Floats, list[str]]:
    """Return the estimated noise std (bands,) on the unit range, 0 for unused bands; and a note."""
    usable = good & observed.any(axis=(1, 2))
    estimate = noise.estimate(y[usable], observed[usable])
    if not np.isfinite(np.median(estimate.error)):
        raise BadValue(
            "sigma_y = 'auto': too few neighbouring pixels to estimate noise from; give a number"
        )
    sigma = np.zeros(len(y))
    sigma[usable] = estimate.sigma
    typical, error = np.median(estimate.sigma), np.median(estimate.error)
    span = float(np.median(scale.spans))
    note = (
        f"sigma_y estimated by {estimate.how}: {typical * span:.3g} ± {error * span:.1g} "
        f"in the median band ({100 * typical:.2g} % of the range)"
    )
    return sigma, [note]
