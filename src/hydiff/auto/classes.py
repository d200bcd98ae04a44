"""Features of an entry to fill, which predict its error, and classes of entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage, sparse

from hydiff.auto import folds
from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.gaps import mask

BAND_GROUPS = 4
BANDS_AT_ONCE = 16  # bands whose gradients are computed together
STEEP = 5  # px: side of the window over which the steepness of a fill is averaged
D, T = len(folds.EDGES) + 1, folds.TEXTURES


def groups(bands: int) -> Ints:
    """(bands,) group of each band, 0 … BAND_GROUPS - 1."""
    return np.minimum(np.arange(bands) * BAND_GROUPS // max(bands, 1), BAND_GROUPS - 1)


def usable(cube: Cube, observed: Bools) -> Bools:
    """(bands,) good bands with at least one observed entry."""
    bands: Bools = cube.good_bands & observed.any(axis=(1, 2))
    return bands


def trusted(cube: Cube, observed: Bools) -> Bools:
    """(bands, rows, cols) observed entries of usable bands."""
    entries: Bools = observed & usable(cube, observed)[:, None, None]
    return entries


def band_spread(cube: Cube, observed: Bools) -> Floats:
    """(bands,) standard deviation of the observed entries; 1 for constant bands."""
    values = np.asarray(cube.values)
    by_band = (values[b][s].astype(np.float64) for b, s in enumerate(observed))
    spread = np.array([v.std() if len(v) else 0.0 for v in by_band])
    return np.where(spread > 0, spread, 1.0)


class Kinds(NamedTuple):
    """Numbers of the entries to fill in good bands, by class."""

    number: Ints  # (D·T,) entries of each class of distance and texture
    edges: Floats  # (T - 1,) roughness that separates textures with equally many entries


def kinds_of(windows: Iterable[Sequence[Any]]) -> Kinds:
    """Count the entries to fill of the windows of a scene; cube, observed, target come first."""
    parts = [_kinds(*window[:3]) for window in windows]
    distance, rough = (np.concatenate(p) for p in zip(*parts, strict=True))
    edges = np.quantile(rough, [1 / 3, 2 / 3]) if len(rough) else np.zeros(2)
    kind = distance * T + np.digitize(rough, edges)
    return Kinds(np.bincount(kind, minlength=D * T), edges)


def _kinds(cube: Cube, observed: Bools, target: Bools) -> tuple[Ints, Floats]:
    """Return distance class and roughness of each entry to fill in good bands."""
    target = target & cube.good_bands[:, None, None]
    distance = np.broadcast_to(folds.distance_class(mask.shared(observed)), observed.shape)
    rough = folds.roughness(np.asarray(cube.values), trusted(cube, observed))
    rough = np.broadcast_to(rough, observed.shape)
    return distance[target], rough[target]


class Around(NamedTuple):
    """Features that predict the error of an estimate, for the P pixels of a mask.

    The distance is in px, the others in standard deviations of a band.
    """

    distance: Floats  # to the nearest observed pixel, (P,), or (bands, P) where masks differ
    roughness: Floats  # (P,) mean absolute step between observed neighbours nearby
    steepness: Floats  # (bands, P) RMS gradient of the first candidate's fill nearby
    unlike: Floats  # (P,) RMS difference of the candidates without a network from their mean

    def logs(self) -> list[Floats]:
        """Logarithms of the features, each clipped from below at its value in NOTHING."""
        return [np.log(np.maximum(f, minimum)) for f, minimum in zip(self, NOTHING, strict=True)]


# values of the features below which differences do not matter
NOTHING = Around(*map(np.asarray, (1.0, 1e-4, 1e-3, 3e-3)))


def around(
    cube: Cube, observed: Bools, estimates: Sequence[Floats], pixels: Bools, wanted: Bools
) -> Around:
    """Return the features of the P pixels of a mask (rows, cols).

    estimates: values (bands, P) of the candidates without a network.  wanted: (bands, P) entries in
    which the candidates are compared.
    """
    values, entries = np.asarray(cube.values), trusted(cube, observed)
    spread = band_spread(cube, observed)[:, None]
    variance = np.var(np.stack(estimates), axis=0) / spread**2
    wanted = wanted & usable(cube, observed)[:, None] & np.isfinite(variance)
    mean = variance.sum(axis=0, where=wanted) / np.maximum(wanted.sum(axis=0), 1)
    return Around(
        folds.distance(mask.shared(observed))[..., pixels],
        folds.roughness(values, entries)[pixels],
        steepness(values, observed, estimates[0], pixels) / spread,
        np.sqrt(mean),
    )


def steepness(values: Array, observed: Bools, estimate: Floats, pixels: Bools) -> Floats:
    """(bands, P) RMS gradient of a fill over the STEEP × STEEP pixels around each of the P pixels
    of a mask (rows, cols), in the unit of the values.

    values, observed (bands, rows, cols); estimate (bands, P), used where not observed.
    """
    near = ndimage.binary_dilation(pixels, np.ones((STEEP, STEEP), bool))
    if not near.any():
        return np.zeros(estimate.shape)
    # cut out these pixels and their neighbours, on which alone the gradients depend
    box = tuple(slice(max(int(at.min()) - 1, 0), int(at.max()) + 2) for at in np.nonzero(near))
    pixels, near = pixels[box], near[box]
    mean, at = _means(pixels, near), np.nonzero(near)
    steep = np.empty(estimate.shape)
    for first in range(0, len(values), BANDS_AT_ONCE):  # cubes are large
        chunk = slice(first, first + BANDS_AT_ONCE)
        chunk_observed, chunk_estimate = observed[chunk, *box], estimate[chunk]
        filled = np.where(chunk_observed, values[chunk, *box], np.nan)
        filled[:, pixels] = np.where(chunk_observed[:, pixels], filled[:, pixels], chunk_estimate)
        square = _square_gradient(filled, *at).T
        if (known := np.isfinite(square)).all():
            steep[chunk] = (mean @ square).T
        else:
            total = mean @ np.where(known, square, 0.0)
            steep[chunk] = (total / np.maximum(mean @ known, 1e-12)).T
    root: Floats = np.sqrt(steep)
    return root


def _square_gradient(filled: Floats, row: Ints, col: Ints) -> Floats:
    """(bands, n) squared gradient at n pixels of planes (bands, rows, cols): central differences,
    one-sided where a neighbour has no value, NaN where the pixel has none."""
    padded = np.pad(filled, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    centre, square = filled[:, row, col], np.zeros((len(filled), len(row)))
    for down, right in ((1, 0), (0, 1)):
        before, after = (padded[:, row + 1 + k * down, col + 1 + k * right] for k in (-1, 1))
        steps = np.stack([centre - before, after - centre])
        known = np.isfinite(steps)
        square += (steps.sum(axis=0, where=known) / np.maximum(known.sum(axis=0), 1)) ** 2
    square[np.isnan(centre)] = np.nan
    return square


def _means(pixels: Bools, near: Bools) -> sparse.csr_array:
    """(P, N) matrix that averages N pixels `near` over the window around each of the P pixels."""
    half = STEEP // 2
    number = np.pad(
        np.where(near, np.cumsum(near).reshape(near.shape) - 1, -1), half, constant_values=-1
    )
    windows = np.lib.stride_tricks.sliding_window_view(number, (STEEP, STEEP))[pixels]
    members = windows.reshape(len(windows), -1)
    row, at = np.nonzero(members >= 0)
    share = 1 / (members >= 0).sum(axis=1)
    return sparse.csr_array((share[row], (row, members[row, at])), (len(members), int(near.sum())))


def share_of_length(size: Floats, spectra: Floats) -> Floats:
    """Return a size (pixels,) divided by the norm of spectra (bands, pixels); 0 where that is 0."""
    length = np.linalg.norm(spectra, axis=0)
    share: Floats = np.divide(size, length, out=np.zeros(length.shape), where=length > 0)
    return share


def columns(array: Array, at: Bools | None) -> Array:
    """(bands, 1, n) values of an array (bands, rows, cols) at n pixels; all if `at` is None."""
    return array if at is None else array[:, at][:, None]


def spread_out(some: Array, at: Bools | None, elsewhere: Array) -> Array:
    """(bands, rows, cols) values `some` (bands, 1, n) at n pixels, and `elsewhere` at the others.

    The inverse of `columns`; `some` itself if `at` is None.
    """
    if at is None:
        return some
    full = np.array(elsewhere, dtype=some.dtype)
    full[:, at] = some[:, 0]
    return full


def among(own: Bools, at: Bools | None) -> Bools:
    """(1, n) mask `own` (rows, cols) at the n pixels `at`; the mask itself if `at` is None."""
    return own if at is None else own[at][None]
