"""Classes of entries, by which errors on hidden entries are weighted and candidates blended; and
features of an entry, which predict its error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage, sparse

from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.gaps import mask

BAND_GROUPS = 4
BANDS_AT_ONCE = 16  # bands whose gradients are computed together
BANDS = 8  # about as many bands are used for the roughness
NEARBY = 6.0  # px: standard deviation of the Gaussian window of the roughness
STEEP = 5  # px: side of the window over which the steepness of a fill is averaged
EDGES = (1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 20.0)  # px: upper ends of the distance classes
TEXTURES = 3  # classes of local roughness
HEAVIEST = 10.0  # largest weight of a hidden entry, in medians of the weights
# Least steps between observed neighbours within reach, as a share of those around a pixel far from
# any gap; with fewer, the roughness of a pixel is unknown
FEW_STEPS = 1e-4
D, T = len(EDGES) + 1, TEXTURES


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


def distance(observed: Bools) -> Floats:
    """Return the distance (px) to the nearest observed pixel of the band; rows + cols if none.

    It is (rows, cols) if all bands share the mask, else (bands, rows, cols).
    """
    observed = mask.shared(observed)
    if observed.ndim == 2:
        if not observed.any():
            return np.full(observed.shape, float(sum(observed.shape)))
        far: Floats = ndimage.distance_transform_edt(~observed)
        return far
    distances = np.empty(observed.shape)
    for bands, plane in mask.band_groups(observed):
        distances[bands] = distance(plane)
    return distances


def distance_class(observed: Bools, at: Bools | None = None) -> Ints:
    """Return the class of the `distance` to observed pixels, 0 … len(EDGES).

    at: mask (rows, cols) of n pixels, for classes (1, n) or (bands, 1, n) of these; None = all.
    """
    classes: Ints = np.digitize(distance(observed), EDGES)
    return among(classes, at) if classes.ndim == 2 else columns(classes, at)


def roughness(values: Array, observed: Bools) -> Floats:
    """(rows, cols) mean absolute step between observed neighbours around each pixel.

    values (bands, rows, cols); each band counts relative to its own spread.
    """
    total, count = np.zeros(values.shape[1:]), np.zeros(values.shape[1:])
    for flags, plane in _some_bands(values, observed):
        for axis in (0, 1):
            both_observed = np.minimum(flags, np.roll(flags, 1, axis))
            both_observed.swapaxes(0, axis)[0] = False  # the first line has none before it
            total += np.where(both_observed, np.abs(plane - np.roll(plane, 1, axis)), 0.0)
            count += both_observed
    # smoothing is linear, so that the sums over the bands are smoothed, not each band
    near, pairs = (ndimage.gaussian_filter(a, NEARBY, mode="constant") for a in (total, count))
    return _carried(near / np.maximum(pairs, 1e-12), pairs)


def _carried(plane: Floats, reach: Floats) -> Floats:
    """Return a plane (rows, cols) in which pixels with too little reach have the nearest value of
    the others: deep in a wide gap the ground is as rough as at its edge, not smooth."""
    known = reach >= FEW_STEPS * reach.max()
    if known.all() or not reach.any():
        return plane
    nearest = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    carried: Floats = plane[tuple(nearest)]
    return carried


def _some_bands(values: Array, observed: Bools) -> Iterator[tuple[Bools, Floats]]:
    """Yield about BANDS bands that vary: the observed mask, and values of mean 0 and std 1."""
    entries = np.broadcast_to(observed, values.shape)
    for band in range(0, len(values), max(len(values) // BANDS, 1)):
        flags, plane = entries[band], np.asarray(values[band], dtype=np.float64)
        spread = plane[flags].std() if flags.any() else 0.0
        if spread > 0:
            yield flags, np.where(flags, (plane - plane[flags].mean()) / spread, 0.0)


def importance(kind: Ints, want: Ints) -> Floats:
    """Return weights (n,) of hidden entries of kind (n,), so that the entries of each kind count in
    proportion to the wanted numbers (kinds,).

    The weights have mean 1; before that, none exceeds HEAVIEST times their median.
    """
    count = np.bincount(kind, minlength=len(want)).astype(float)
    ratio = np.where(count > 0, want / np.maximum(count, 1), 0.0)
    weight = ratio[kind]
    if not weight.any():
        return np.ones(len(kind))
    weight = np.minimum(weight, HEAVIEST * np.median(weight[weight > 0]))
    normalised: Floats = weight / weight.mean()
    return normalised


class ClassCounts(NamedTuple):
    """Numbers of the entries to fill, by class of distance and texture."""

    number: Ints  # (D·T,)
    edges: Floats  # (T - 1,) roughness that separates textures with equally many entries

    @classmethod
    def of(cls, maps: Iterable[tuple[Bools, Bools, Floats]]) -> ClassCounts:
        """Count the entries to fill of several windows, each given by `observed` and `target`
        (bands, rows, cols) and the roughness (rows, cols)."""
        parts = []
        for observed, target, plane in maps:
            near = np.broadcast_to(distance_class(observed), observed.shape)
            parts.append((near[target], np.broadcast_to(plane, observed.shape)[target]))
        near, rough = (np.concatenate(part) for part in zip(*parts, strict=True))
        edges = np.quantile(rough, [1 / 3, 2 / 3]) if len(rough) else np.zeros(2)
        number = np.bincount(near * T + np.digitize(rough, edges), minlength=D * T)
        return cls(number, edges)

    def importance(self, distance: Ints, rough: Floats) -> Floats:
        """Return weights (n,) of hidden entries with these distance classes and roughness, so that
        they count like the entries to fill."""
        return importance(distance * T + np.digitize(rough, self.edges), self.number)


def class_counts(windows: Iterable[Sequence[Any]]) -> ClassCounts:
    """Count the entries to fill in good bands; a window starts with cube, observed, target."""
    maps = (
        (observed, target & cube.good_bands[:, None, None], _roughness_of(cube, observed))
        for cube, observed, target, *_ in windows
    )
    return ClassCounts.of(maps)


def _roughness_of(cube: Cube, observed: Bools) -> Floats:
    """(rows, cols) `roughness` of a cube, from the observed entries of its usable bands."""
    return roughness(np.asarray(cube.values), trusted(cube, observed))


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
    spread = band_spread(cube, observed)[:, None]
    variance = np.var(np.stack(estimates), axis=0) / spread**2
    wanted = wanted & usable(cube, observed)[:, None] & np.isfinite(variance)
    mean = variance.sum(axis=0, where=wanted) / np.maximum(wanted.sum(axis=0), 1)
    return Around(
        distance(observed)[..., pixels],
        _roughness_of(cube, observed)[pixels],
        steepness(np.asarray(cube.values), observed, estimates[0], pixels) / spread,
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


def among(plane: Array, at: Bools | None) -> Array:
    """(1, n) values of a plane (rows, cols) at n pixels; all if `at` is None."""
    return plane if at is None else plane[at][None]
