"""Samples of a scene, drawn window by window.

The white noise of a sample is tied to positions in the scene, and all windows use the same error
model, so that they agree at their edges.  Samples do not depend on the workers of the fill, or on
an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Bools, Cube, Floats, Lazy
from hydiff.gaps import stored
from hydiff.scale.bits import reserve
from hydiff.scale.tiles import Box
from hydiff.uncertainty import error_model
from hydiff.uncertainty.error_model import Known
from hydiff.uncertainty.samples import DrawnGaps, Surroundings, error_draws
from hydiff.uncertainty.windows import divided, fitted, surrounding

if TYPE_CHECKING:
    from hydiff.scale.scene import Tiled


def cubes(tiled: Tiled, filled: Cube, count: int, seed: int) -> Iterator[Cube]:
    """Yield samples of the filled scene, whose values are computed when they are read."""
    scene, paths = tiled.scene, _drawn(tiled, filled, count, seed)

    def read(path: Path, bands: slice, rows: slice, cols: slice) -> Array:
        """Return a block of a sample: the fill plus the errors that `path` holds."""
        block = (bands, rows, cols)
        values, where = filled.values[block], tiled.filled.get(*block)
        error = np.memmap(path, np.float32, "r", shape=filled.shape)[block]
        plain = Cube(values, nodata=filled.nodata)
        return stored.into_dtype(plain, values + error, where, scene.request.nodata)[0]

    for path in paths:
        chunks = getattr(filled.values, "chunks", None)
        values = Lazy(filled.shape, filled.dtype, lambda *b, path=path: read(path, *b), chunks)
        yield replace(filled, values=values)
        path.unlink()


def _drawn(tiled: Tiled, filled: Cube, count: int, seed: int) -> list[Path]:
    """Write the errors of `count` samples to files, and return their paths.

    A file is float32 (bands, rows, cols), 0 where nothing was filled.
    """
    paths = [tiled.scene.work / f"sample-{i}.f4" for i in range(count)]
    for path in paths:
        reserve(path, math.prod(filled.shape) * np.dtype(np.float32).itemsize)
    sources = Sources(tiled, filled, filled.good_bands & tiled.scene.observed.some())
    model, complete = sources.model(), sources.complete()
    distance = ndimage.distance_transform_edt(~complete)
    for box in (b for b in divided(complete.shape) if tiled.filled.box(b).any()):
        place = surrounding(box, distance)
        surroundings = Surroundings(complete[place], place, box)
        at, draw = error_draws(sources.gaps(box), seed, model, surroundings)
        error = np.zeros((filled.bands, *at.shape), np.float32)
        for number, path in enumerate(paths):
            error[:, at] = draw(number)
            # mapped for this window only: mapped pages stay in memory
            file = np.memmap(path, np.float32, "r+", shape=filled.shape)
            file[:, *box] = error
            del file
    return paths


class Sources(NamedTuple):
    """What the errors of a filled scene are drawn from, read box by box."""

    tiled: Tiled
    cube: Cube  # filled
    good: Bools  # (bands,) those that the components describe

    def known(self, box: Box) -> Known:
        """Return the values of a box, NaN where an entry was neither measured nor filled."""
        observed = self.tiled.scene.observed.box(box)
        values = np.asarray(self.cube.values[slice(0, self.cube.bands), *box], np.float64)
        return Known(np.where(observed | self.tiled.filled.box(box), values, np.nan), observed)

    def gaps(self, box: Box) -> DrawnGaps:
        """Return the filled entries of a box, with everything needed to draw their errors."""
        sigma, bands = self.tiled.sigma, slice(0, self.cube.bands)
        bars = None if sigma is None else np.asarray(sigma[bands, *box], np.float64)
        drawn, common = self.tiled.filled.box(box), self.tiled.uncertainty
        return DrawnGaps(*self.known(box), drawn, bars, self.good, self.noise, common)

    @property
    def noise(self) -> Floats:
        """(bands,) std of the noise."""
        return np.asarray(self.tiled.decided.sigma_y, np.float64)

    def model(self) -> error_model.ErrorModel:
        """Fit the error model to some windows of the scene."""
        windows = fitted(self.cube.shape[1:], lambda box: bool(self.tiled.filled.box(box).any()))
        return error_model.fit([self.known(box) for box in windows], self.good, self.noise)

    def complete(self) -> Bools:
        """(rows, cols) `complete_pixels` of the scene."""
        observed, filled = self.tiled.scene.observed, self.tiled.filled
        measured = ((band, observed.plane(band)) for band, good in enumerate(self.good) if good)
        planes = ((plane, plane | filled.plane(band)) for band, plane in measured)
        return error_model.complete_pixels(self.cube.shape[1:], planes)
