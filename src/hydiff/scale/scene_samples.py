"""Samples of a scene, drawn window by window.

The white noise of a sample is tied to positions in the scene, and all windows use the same error
model, so that they agree at their edges.  Samples do not depend on the workers of the fill, or on
an interruption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hydiff.cube import Array, Cube, Lazy
from hydiff.gaps import rule
from hydiff.scale.bits import reserve
from hydiff.scale.tiles import Box
from hydiff.uncertainty import error_model
from hydiff.uncertainty.samples import DrawnGaps, error_draws

if TYPE_CHECKING:
    from hydiff.scale.scene import Tiled

SIDE, HALO = 96, 32  # px, side of the core of a window, and width of the context around it
MODELLED = 4  # number of windows that the error model is fitted to
APART = 40  # px between them in the fit, the largest distance of a variogram


def cubes(tiled: Tiled, filled: Cube, count: int, seed: int) -> Iterator[Cube]:
    """Yield samples of the filled scene, whose values are computed when they are read."""
    scene, paths = tiled.scene, _drawn(tiled, filled, count, seed)

    def read(path: Path, bands: slice, rows: slice, cols: slice) -> Array:
        """Return a block of a sample: the fill plus the errors that `path` holds."""
        block = (bands, rows, cols)
        values, where = filled.values[block], tiled.filled.get(*block)
        error = np.memmap(path, np.float32, "r", shape=filled.shape)[block]
        plain = Cube(values, nodata=filled.nodata)
        return rule.into_dtype(plain, values + error, where, scene.request.nodata)[0]

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
    boxes = [box for box in _cores(filled.shape[1:]) if tiled.scene.gaps[box].any()]
    model = _model(tiled, filled, boxes) if boxes else None
    for box in boxes:
        window = _widened(box, filled.shape[1:])
        inside = [
            slice(s.start - a.start, s.stop - a.start) for s, a in zip(box, window, strict=True)
        ]
        corner = (window[0].start, window[1].start)
        at, draw = error_draws(_gaps(tiled, filled, window), seed, model, corner)
        error = np.zeros((filled.bands, *at.shape), np.float32)
        for number, path in enumerate(paths):
            error[:, at] = draw(number)
            # mapped for this window only: mapped pages stay in memory
            file = np.memmap(path, np.float32, "r+", shape=filled.shape)
            file[:, *box] = error[:, *inside]
            del file
    return paths


def _widened(box: Box, shape: Sequence[int]) -> Box:
    """Return a box widened by HALO on each side, within the scene."""
    rows, cols = (
        slice(max(s.start - HALO, 0), min(s.stop + HALO, n))
        for s, n in zip(box, shape, strict=True)
    )
    return rows, cols


def _cores(shape: Sequence[int]) -> Iterator[Box]:
    """Return the boxes of at most SIDE px that cover an image (rows, cols)."""
    rows, cols = ([slice(a, min(a + SIDE, n)) for a in range(0, n, SIDE)] for n in shape)
    return ((row, col) for row in rows for col in cols)


def _gaps(tiled: Tiled, filled: Cube, box: Box) -> DrawnGaps:
    """Return the filled entries of a box, with everything needed to draw their errors."""
    scene, bands = tiled.scene, slice(0, filled.bands)
    observed, drawn = scene.observed.box(box), tiled.filled.box(box)
    values = np.asarray(filled.values[bands, *box], np.float64)
    values = np.where(observed | drawn, values, np.nan)
    sigma = None if tiled.sigma is None else np.asarray(tiled.sigma[bands, *box], np.float64)
    good = filled.good_bands & scene.observed.some()
    return DrawnGaps(values, observed, drawn, sigma, good, np.asarray(tiled.decided.sigma_y))


def _model(tiled: Tiled, filled: Cube, boxes: Sequence[Box]) -> error_model.ErrorModel:
    """Fit the error model to a few windows spread over the scene, placed next to each other."""
    selected = [boxes[round(i)] for i in np.linspace(0, len(boxes) - 1, min(MODELLED, len(boxes)))]
    parts = [_gaps(tiled, filled, box) for box in selected]
    rows = max(part.values.shape[1] for part in parts)

    def side_by_side(arrays: Sequence[Array], blank: float) -> Array:
        """Join arrays (bands, rows, cols) along the columns, and APART blank columns after each."""
        size = [((0, 0), (0, rows - a.shape[1]), (0, APART)) for a in arrays]
        padded = (np.pad(a, s, constant_values=blank) for a, s in zip(arrays, size, strict=True))
        return np.concatenate(list(padded), axis=2)

    values, observed = (
        side_by_side([p.values for p in parts], np.nan),
        side_by_side([p.observed for p in parts], False),
    )
    return error_model.fit(values, observed, parts[0].good, parts[0].sigma_y)
