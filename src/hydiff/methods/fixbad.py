"""Repair of bad detector elements, as for imaging spectrometers: spectral angle, then regression.

A missing band of a pixel is filled from another pixel of the same line: of those that have the
band, the one with the smallest spectral angle over the bands that both have.  A straight line
fitted to these bands converts its value.  The method is meant for dead columns and single bad
elements: pixels with too few bands, and bands missing in the whole line, are not filled (NaN).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.result import Step


@dataclass(frozen=True)
class FixBad:
    least_bands: int = 3  # bands that two spectra must have in common: a line fits any two points

    PRESETS: ClassVar[dict[str, FixBad]]

    def __post_init__(self) -> None:
        if self.least_bands < 2:
            raise BadValue(f"least_bands = {self.least_bands}: expected 2 or more; 3 is usual")


FixBad.PRESETS = {"paper": FixBad(), "fast": FixBad()}


def fixbad(
    y: Floats, observed: Bools, sigma_y: Floats, settings: FixBad, *, rng: Any
) -> Iterator[Step]:
    """Fill a cube line by line, yielding a step per line.

    y (C, H, W), 0 where missing; observed (H, W) or (C, H, W); noise is not modelled.
    """
    entries = np.broadcast_to(observed, y.shape)
    x = np.where(entries, y, np.nan)
    for row in range(y.shape[1]):
        if not entries[:, row].all():
            x[:, row] = repaired(y[:, row], entries[:, row], settings.least_bands)
        yield Step(row + 1, y.shape[1], x)


def repaired(line: Floats, observed: Bools, least_bands: int) -> Floats:
    """Return a line of spectra (C, W) with missing entries filled from other spectra, or NaN."""
    y = np.where(observed, line, 0.0)
    flags = observed.astype(float)
    norms = (y**2).T @ flags  # (i, j): |spectrum i|² over the bands that i and j both have
    norm_products = np.sqrt(norms * norms.T)
    cosine = np.divide(
        y.T @ y, norm_products, out=np.full(norm_products.shape, -np.inf), where=norm_products > 0
    )
    cosine[flags.T @ flags < least_bands] = -np.inf
    x = np.where(observed, line, np.nan)
    for i in np.flatnonzero(~observed.all(axis=0)):
        lost = np.flatnonzero(~observed[:, i])
        fit = np.where(observed[lost], cosine[i], -np.inf)  # (lost bands, W)
        donors = fit.argmax(axis=1)
        reached = fit.max(axis=1) > -np.inf
        for donor in np.unique(donors[reached]):
            bands = lost[reached & (donors == donor)]
            common = observed[:, i] & observed[:, donor]
            x[bands, i] = regressed(y[common, i], y[common, donor], y[bands, donor])
    return x


def regressed(target: Floats, source: Floats, at: Floats) -> Floats:
    """Fit the line target ≈ a + b source to points (n,); return its values `at` other sources."""
    centred = source - source.mean()
    spread = float(centred @ centred)
    slope = float(target @ centred) / spread if spread > 0 else 0.0
    line: Floats = target.mean() + slope * (at - source.mean())
    return line
