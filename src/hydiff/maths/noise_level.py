"""The noise std of a cube (`sigma_y`): given in the cube's unit or as a share, or estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Scale, detector_scale
from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.maths import noise

# one number, one per band, by detector; a share such as "5%", or "auto"
Sigma = float | str | Sequence[float] | Array | Mapping[str, float]
WRONG = 1.5  # factor between a given and an estimated std from which there is a note
SHOWN = 8  # most bands that a note lists
SIDE = 192  # px of the middle of a cube where a given std is compared with an estimate
LARGEST = 10.0  # on the unit range; a larger value is taken for a mistake of units


def sigma_per_band(sigma_y: Sigma, cube: Cube) -> Any:
    """Expand noise std by detector to one number per band; return anything but a dict unchanged."""
    if not isinstance(sigma_y, Mapping):
        return sigma_y
    detectors = set(cube.detectors or ())
    if not detectors:
        raise BadValue(
            f"sigma_y names the detector {next(iter(sigma_y), '')}, and the cube names none: give "
            "one number, or one per band"
        )
    for name in sigma_y:
        if name not in detectors:
            raise UnknownName("detector", name, detectors)
    if missing := detectors - set(sigma_y):
        raise BadValue(f"sigma_y names no noise for the detector {', '.join(sorted(missing))}")
    return [float(sigma_y[name]) for name in cube.detectors or ()]


def unit_sigma(
    sigma_y: Sigma,
    y: Floats,
    observed: Bools,
    good: Bools,
    scale: Scale,
    detectors: Sequence[str] | None = None,
) -> tuple[Floats, list[str]]:
    """Return the noise std of each band (bands,) on the unit range, and notes about it.

    sigma_y: one number or one per band, in the cube's unit; a share such as "5%"; or "auto".
    detectors: (bands,) names, for "auto".
    """
    bands = len(y)
    if isinstance(sigma_y, str) and sigma_y == "auto":
        return _estimated_sigma(y, observed, good, scale, detectors)
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
            f"sigma_y has shape {numbers.shape}; expected one number, or a list of {bands}, "
            "one per band"
        )
    span = float(scale.spans.max())
    if not (np.isfinite(sigma).all() and (sigma >= 0).all() and (sigma <= LARGEST).all()):
        raise BadValue(
            f"sigma_y = {sigma_y}: expected a standard deviation between 0 and "
            f"{LARGEST * span:g}, in the cube's unit (its values span {span:g})"
        )
    is_share = isinstance(sigma_y, str) and sigma_y.endswith("%")
    notes = [_share_note(str(sigma_y), sigma * scale.spans)] if is_share else []
    return np.broadcast_to(sigma, (bands,)).copy(), notes


def _share_note(share: str, stds: Floats) -> str:
    """Return a note on the noise std, in the cube's unit, that a share such as "5%" means."""
    low, high = (f"{end:.4g}" for end in (stds.min(), stds.max()))
    return (
        f"sigma_y = {share} is {low if low == high else f'{low} to {high}'} in the cube's unit: of "
        "the range from the 0.01 to the 99.99 percentile, widened by 5 % of it at both ends"
    )


def doubts(sigma_y: Sigma, cube: Cube, observed: Bools, scale: Scale | None = None) -> list[str]:
    """Return a note if most bands show much less noise than is given, or much more; else [].

    Fine texture counts as noise in an estimate: too little is given only where the part of the
    noise that texture cannot explain exceeds it.  The middle of a large cube is looked at.
    observed: (bands, rows, cols), True = measured.  scale: that of the cube by default.
    """
    given_std = sigma_per_band(sigma_y, cube)
    if given_std == "auto" if isinstance(given_std, str) else not np.any(given_std):
        return []
    if scale is None:
        values = np.asarray(cube.values)
        scale = detector_scale(values, observed, cube.good_bands, cube.detectors)
    middle = [slice(max(0, (n - SIDE) // 2), (n + SIDE) // 2) for n in cube.shape[1:]]
    seen = observed[:, *middle]
    y = scale.to_unit(np.array(cube.values[:, *middle], np.float64))
    np.copyto(y, 0.0, where=~seen)
    sigma, _ = unit_sigma(given_std, y, seen, cube.good_bands, scale)
    usable = cube.good_bands & seen.any(axis=(1, 2))
    if not sigma[usable].any():
        return []
    estimate = noise.estimate(y[usable], seen[usable])
    tested = (sigma[usable] > 0) & np.isfinite(estimate.error)
    bands = np.flatnonzero(usable)[tested]
    given, found, error = sigma[bands], estimate.sigma[tested], estimate.error[tested]
    most = len(bands) / 2
    too_large = np.sum(given > WRONG * (found + 2 * error)) > most
    small = WRONG * given < found - 2 * error
    if not too_large:
        if not np.sum(small) > most:
            return []
        if not np.sum(small & (given < noise.white_std(y[bands], seen[bands]))) > most:
            return []
    spans = np.broadcast_to(scale.spans, len(y))[bands]
    stated, shown, off = (np.median(std * spans) for std in (given, found, error))
    return [
        f"sigma_y is {stated:.3g} in the median band, but the values show noise of about "
        f"{shown:.3g} ± {off:.1g} ({estimate.how}): error bars will not hold; "
        "`sigma_y='auto'` takes the estimate"
    ]


def _estimated_sigma(
    y: Floats, observed: Bools, good: Bools, scale: Scale, detectors: Sequence[str] | None
) -> tuple[Floats, list[str]]:
    """Return the estimated noise std (bands,) on the unit range, 0 for unused bands; and notes.

    Bands without neighbouring pixels take that of the nearest bands of their detector, or of any.
    """
    usable = np.flatnonzero(good & observed.any(axis=(1, 2)))
    estimate = noise.estimate(y[usable], observed[usable])
    if not np.isfinite(np.median(estimate.error)):
        raise BadValue(
            "sigma_y = 'auto': too few neighbouring pixels to estimate noise from; give a number"
        )
    known = np.isfinite(estimate.error)
    sigma = np.zeros(len(y))
    sigma[usable] = estimate.sigma
    typical, error = np.median(estimate.sigma[known]), np.median(estimate.error[known])
    span = float(np.median(scale.spans))
    notes = [
        f"sigma_y estimated by {estimate.how}: {typical * span:.3g} ± {error * span:.1g} "
        f"in the median band ({100 * typical:.2g} % of the range)"
    ]
    names = np.asarray(["all"] * len(y) if detectors is None else detectors)
    for band in usable[~known]:
        alike = known & (names[usable] == names[band])
        chosen = alike if alike.any() else known
        sigma[band] = np.interp(band, usable[chosen], estimate.sigma[chosen])
    if few := usable[~known].tolist():
        more = f" and {len(few) - SHOWN} more" if len(few) > SHOWN else ""
        notes.append(
            f"no estimate without 3 × 3 measured pixels in band {', '.join(map(str, few[:SHOWN]))}"
            f"{more}: sigma_y there is interpolated from other bands"
        )
    return sigma, notes
