"""Common fills from a second image: a copy with matched histogram, a mean of similar pixels.

Both are here for comparison; `reference.models` contains the models that `auto` tries.
Letters: y (C, H, W) on the unit range, r (R, H, W) the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hydiff.cube import Bools, Floats
from hydiff.errors import BadValue
from hydiff.reference.models import ReferencePlanes
from hydiff.result import Step


@dataclass(frozen=True)
class MatchedCopy:
    references: tuple[ReferencePlanes, ...] | None = None  # on the grid of the cube


@dataclass(frozen=True)
class SimilarPixels:
    count: int = 20  # similar pixels to average
    window: int = 31  # px, side of the search window; wider if it has too few complete pixels
    references: tuple[ReferencePlanes, ...] | None = None  # on the grid of the cube

    def __post_init__(self) -> None:
        if self.count < 1:
            raise BadValue(f"count = {self.count}: expected at least 1; 20 is usual")
        if self.window < 3:
            raise BadValue(f"window = {self.window}: expected at least 3 pixels; 31 is usual")


def matched_copy(
    y: Floats, observed: Bools, sigma_y: Floats, settings: MatchedCopy, *, rng: np.random.Generator
) -> Iterator[Step]:
    """Copy for each band the reference band that correlates most, with its quantiles matched."""
    assert settings.references
    r, covered = settings.references[0].values, settings.references[0].observed
    x = np.full(y.shape, np.nan)
    for band, measured in enumerate(np.broadcast_to(observed, y.shape)):
        both = measured & covered
        if not both.any():
            continue
        t, sources = y[band][both], r[:, both]
        centred = sources - sources.mean(axis=1)[:, None]
        spread = np.maximum(np.sqrt((centred**2).sum(axis=1)), 1e-300)
        best = int(np.argmax(np.abs(centred @ (t - t.mean())) / spread))
        rising = centred[best] @ (t - t.mean()) >= 0
        before, after = np.sort(sources[best]), np.sort(t)
        x[band] = np.interp(r[best], before, after if rising else after[::-1])
        x[band][~covered] = np.nan
    yield Step(1, 1, np.where(observed, y, x))


def similar_pixels(
    y: Floats,
    observed: Bools,
    sigma_y: Floats,
    settings: SimilarPixels,
    *,
    rng: np.random.Generator,
) -> Iterator[Step]:
    """Average the observed nearby pixels that are most similar in the reference (the idea of Chen
    et al. 2011, doi:10.1016/j.rse.2010.12.010, for different sensors)."""
    assert settings.references
    r, covered = settings.references[0].values, settings.references[0].observed
    complete = np.broadcast_to(observed, y.shape).all(axis=0) & covered
    scaled = r / np.maximum(r[:, covered].std(axis=1), 1e-300)[:, None, None]
    x = np.where(observed, y, np.nan)
    lost = ~np.broadcast_to(observed, y.shape).all(axis=0) & covered
    for i, j in np.argwhere(lost) if complete.any() else ():
        rows, cols = _window(complete, i, j, settings)
        inside = np.argwhere(complete[rows, cols]) + np.array([rows.start, cols.start])
        near = scaled[:, inside[:, 0], inside[:, 1]] - scaled[:, i, j][:, None]
        unlike = np.sqrt((near**2).mean(axis=0))
        chosen = np.argsort(unlike, kind="stable")[: settings.count]
        far = np.hypot(*(inside[chosen] - np.array([i, j])).T)
        weight = 1 / ((unlike[chosen] + 1e-2) * far)
        mean = y[:, inside[chosen, 0], inside[chosen, 1]] @ (weight / weight.sum())
        x[:, i, j] = np.where(np.isnan(x[:, i, j]), mean, x[:, i, j])
    yield Step(1, 1, x)


def _window(complete: Bools, i: int, j: int, settings: SimilarPixels) -> tuple[slice, slice]:
    """Return the window around a pixel, widened until it holds enough complete pixels."""
    half = settings.window // 2
    while True:
        rows, cols = (slice(max(at - half, 0), at + half + 1) for at in (i, j))
        if complete[rows, cols].sum() >= settings.count or half >= max(complete.shape):
            return rows, cols
        half *= 2
