"""Mean spectra over a region of the scene, and their errors from the errors of a fill."""

from __future__ import annotations

import warnings

import numpy as np

from hydiff.cube import Array, Bools, Floats
from hydiff.result import Result
from hydiff.uncertainty.propagation import propagate
from hydiff.viewer.scene_layers import Layer, ViewedScene
from hydiff.viewer.spectra import Spectrum


def mean_spectrum(scene: ViewedScene, inside: Bools, outline: tuple[Array, Array]) -> Spectrum:
    """Return the mean spectrum over a region, for each version of the scene.

    inside: (rows, cols) True in the region.  outline: columns and rows of its corners.  Errors of
    the means take longer and are left out, see `error_of_mean`.
    """
    rows, cols = np.nonzero(inside)
    middle = int(np.argmin(np.hypot(rows - rows.mean(), cols - cols.mean())))
    before, other, truth = (
        None if layer is None else _mean(layer, inside)
        for layer in (scene.before, scene.other, scene.truth)
    )
    after = None if scene.after is None else _mean(scene.after, inside)
    filled = np.zeros(scene.cube.bands, bool)
    if scene.fills is not None:
        any_filled = (scene.fills.plane(band)[inside].any() for band in range(scene.cube.bands))
        filled = np.fromiter(any_filled, bool)
    centre = int(rows[middle]), int(cols[middle])
    assert before is not None
    return Spectrum(*centre, before, after, None, truth, filled, other, len(rows), outline)


def _mean(layer: Layer, inside: Bools) -> Floats:
    """Return the mean of each band (bands,) over entries that are not missing; NaN without any."""
    spans = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    rows, cols = (slice(int(span[0]), int(span[-1]) + 1) for span in spans)
    values = layer.block(rows, cols)[:, inside[rows, cols]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # warns for bands without any value
        return np.asarray(np.nanmean(values, axis=1, dtype=np.float64))


def error_of_mean(result: Result, inside: Bools) -> Floats:
    """Return the 1-σ error (bands,) of the means over the pixels inside (rows, cols)."""
    return propagate(result, over=inside).sigma
