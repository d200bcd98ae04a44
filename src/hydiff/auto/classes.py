"""Features of an entry before it is filled: its class, and what lies around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage, sparse

from hydiff.auto import folds
from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.gaps import mask

BAND_GROUPS = 4
BANDS_AT_ONCE = 16  # whose gradients are worked out together
STEEP = 5  # px: side of the window in which a fill is steep or not
D, T = len(folds.EDGES) + 1, folds.TEXTURES


def groups(bands: int) -> Ints:
    """(bands,) the group of each band."""
    return np.minimum(np.arange(bands) * BAND_GROUPS // max(bands, 1), BAND_GROUPS - 1)


def usable(cube: Cube, observed: Bools) -> Bools:
    """(bands,) the good ones with at least one observed entry."""
    bands: Bools = cube.good_bands & observed.any(axis=(1, 2))
    return bands


def trusted(cube: Cube, observed: Bools) -> Bools:
    """(bands, rows, cols) the observed entries of usable bands."""
    entries: Bools = observed & usable(cube, observed)[:, None, None]
    return entries


def band_spread(cube: Cube, observed: Bools) -> Floats:
    """(bands,) standard deviation of the observed entries; 1 for constant bands."""
    values = np.asarray(cube.values)
    by_band = (values[b][s].astype(np.float64) for b, s in enumerate(observed))
    spread = np.array([v.std() if len(v) else 0.0 for v in by_band])
    return np.where(spread > 0, spread, 1.0)


class Kinds(NamedTuple):
    """The entries to fill in good bands, by class."""

    number: Ints  # (D·T,) of them, by distance and texture
    edges: Floats  # (T - 1,) of roughness, between textures of equally many entries


def kinds_of(windows: Iterable[Sequence[Any]]) -> Kinds:
    """Of the windows of a scene: cube, observed and target first."""
    parts = [_kinds(*window[:3]) for window in windows]
    distance, rough = (np.concatenate(p) for p in zip(*parts, strict=True))
    edges = np.quantile(rough, [1 / 3, 2 / 3]) if len(rough) else np.zeros(2)
    kind = distance * T + np.digitize(rough, edges)
    return Kinds(np.bincount(kind, minlength=D * T), edges)


def _kinds(cube: Cube, observed: Bools, target: Bools) -> tuple[Ints, Floats]:
    """Distance class and roughness of each entry to fill."""
    target = target & cube.good_bands[:, None, None]
    distance = np.broadcast_to(folds.distance_class(mask.shared(observed)), observed.shape)
    rough = folds.roughness(np.asarray(cube.values), trusted(cube, observed))
    rough = np.broadcast_to(rough, observed.shape)
    return distance[target], rough[target]


class Around(NamedTuple):
    """Predictors of the error of an estimate, for the P pixels of a mask; in pixels, then in
    standard deviations of a band."""

    distance: Floats  # to the data, (P,), or (bands, P) where bands differ
    roughness: Floats  # (P,) steps between neighbours
    steepness: Floats  # (bands, P) of the first candidate: where it is steep, errors are large
    unlike: Floats  # (P,) how far the candidates without a network are apart

    def logs(self) -> list[Floats]:
        """Of each, none of them below what is as good as nothing."""
        return [np.log(np.maximum(f, least)) for f, least in zip(self, NOTHING, strict=True)]


NOTHING = Around(*map(np.asarray, (1.0, 1e-4, 1e-3, 3e-3)))


def around(
    cube: Cube, observed: Bools, estimates: Sequence[Floats], pixels: Bools, wanted: Bools
) -> Around:
    """estimates (bands, P) of the pixels (rows, cols); wanted (bands, P): where they matter."""
    values, entries = np.asarray(cube.values), trusted(cube, observed)
    spread = band_spread(cube, observed)[:, None]
    apart = np.var(np.stack(estimates), axis=0) / spread**2
    wanted = wanted & usable(cube, observed)[:, None] & np.isfinite(apart)
    mean = apart.sum(axis=0, where=wanted) / np.maximum(wanted.sum(axis=0), 1)
    return Around(
        folds.distance(mask.shared(observed))[..., pixels],
        folds.roughness(values, entries)[pixels],
        steepness(values, observed, estimates[0], pixels) / spread,
        np.sqrt(mean),
    )


def steepness(values: Array, observed: Bools, estimate: Floats, pixels: Bools) -> Floats:
    """(bands, P) RMS gradient of a fill in the STEEP × STEEP pixels around each of some (rows,
    cols), in the unit of the values.

    values, observed (bands, rows, cols); estimate (bands, P) of the entries that are not observed.
    """
    near = ndimage.binary_dilation(pixels, np.ones((STEEP, STEEP), bool))
    if not near.any():
        return np.zeros(estimate.shape)
    # what lies beyond them and their neighbours does not matter
    box = tuple(slice(max(int(at.min()) - 1, 0), int(at.max()) + 2) for at in np.nonzero(near))
    pixels, near = pixels[box], near[box]
    mean, at = _means(pixels, near), np.nonzero(near)
    steep = np.empty(estimate.shape)
    for first in range(0, len(values), BANDS_AT_ONCE):  # cubes are large
        some = slice(first, first + BANDS_AT_ONCE)
        given, own = observed[some, *box], estimate[some]
        filled = np.where(given, values[some, *box], np.nan)
        filled[:, pixels] = np.where(given[:, pixels], filled[:, pixels], own)
        square = _square_gradient(filled, *at).T
        if (known := np.isfinite(square)).all():
            steep[some] = (mean @ square).T
        else:
            total = mean @ np.where(known, square, 0.0)
            steep[some] = (total / np.maximum(mean @ known, 1e-12)).T
    root: Floats = np.sqrt(steep)
    return root


def _square_gradient(filled: Floats, row: Ints, col: Ints) -> Floats:
    """(bands, n) at some pixels of planes (bands, rows, cols): by central differences, or to one
    side where the other has no value; NaN at a pixel that has none."""
    beyond = np.pad(filled, ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    own, square = filled[:, row, col], np.zeros((len(filled), len(row)))
    for down, right in ((1, 0), (0, 1)):
        before, after = (beyond[:, row + 1 + k * down, col + 1 + k * right] for k in (-1, 1))
        steps = np.stack([own - before, after - own])
        known = np.isfinite(steps)
        square += (steps.sum(axis=0, where=known) / np.maximum(known.sum(axis=0), 1)) ** 2
    square[np.isnan(own)] = np.nan
    return square


def _means(pixels: Bools, near: Bools) -> sparse.csr_array:
    """(P, N) what takes means over the window of each of P pixels, given N pixels `near` them."""
    half = STEEP // 2
    number = np.pad(
        np.where(near, np.cumsum(near).reshape(near.shape) - 1, -1), half, constant_values=-1
    )
    windows = np.lib.stride_tricks.sliding_window_view(number, (STEEP, STEEP))[pixels]
    members = windows.reshape(len(windows), -1)
    own, at = np.nonzero(members >= 0)
    share = 1 / (members >= 0).sum(axis=1)
    return sparse.csr_array((share[own], (own, members[own, at])), (len(members), int(near.sum())))


def share_of_length(size: Floats, spectra: Floats) -> Floats:
    """A size (pixels,) as a share of the length of spectra (bands, pixels); 0 where they are 0."""
    length = np.linalg.norm(spectra, axis=0)
    share: Floats = np.divide(size, length, out=np.zeros(length.shape), where=length > 0)
    return share


def columns(array: Array, at: Bools | None) -> Array:
    """(bands, 1, n) an array (bands, rows, cols) at n pixels; all of it without them."""
    return array if at is None else array[:, at][:, None]


def spread_out(some: Array, at: Bools | None, elsewhere: Array) -> Array:
    """(bands, rows, cols) from what `columns` gives."""
    if at is None:
        return some
    every = np.array(elsewhere, dtype=some.dtype)
    every[:, at] = some[:, 0]
    return every


def among(own: Bools, at: Bools | None) -> Bools:
    """Which of the pixels `at` are `own` (rows, cols) ones; (1, n), or (rows, cols)."""
    return own if at is None else own[at][None]
