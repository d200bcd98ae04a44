"""Samples of a filled cube: the fill plus draws of its error, correlated as errors are.

A sample adds a draw of the error of the kriged components, and of the residual of each band, to the
fill.  The error of each entry is scaled to the error bar of the fill.
Letters: C bands, K components, V their basis; n pixels at which something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.errors import BadValue
from hydiff.gaps.stored import into_dtype
from hydiff.io.uncertainty import in_common
from hydiff.maths.gaussian import patterns
from hydiff.option_types import check_seed
from hydiff.uncertainty import error_model
from hydiff.uncertainty.draws import (
    Systems,
    kriging_error,
    kriging_variance,
    white,
    white_planes,
)
from hydiff.uncertainty.error_model import ErrorModel
from hydiff.uncertainty.windows import Window, fitted

if TYPE_CHECKING:
    from hydiff.result import Result

FIELD, TEXTURE, REST, COMMON = range(4)  # independent streams of white noise


def samples(result: Result, n: int, seed: int = 0) -> Iterator[Array]:
    """Return an iterator over n samples of a fill; see `Result.samples`."""
    if not isinstance(n, int | np.integer) or n < 1:
        raise BadValue(f"n = {n}: expected a number of samples, 1 or more")
    check_seed(seed)
    return _samples(result, int(n), int(seed))


def sample_cubes(result: Result, n: int, seed: int) -> Iterator[Cube]:
    """Yield `Result.samples` as cubes to write: with dtype and measured entries of the fill."""
    cube, varies = result.cube, result.filled
    if result.is_denoised:
        varies = varies | (np.isfinite(result.values) & (result.sigma_y > 0)[:, None, None])
    for values in result.samples(n, seed):
        yield replace(cube, values=into_dtype(cube, values, varies, None)[0])


def _samples(result: Result, n: int, seed: int) -> Iterator[Array]:
    """Yield the samples of `samples`, whose arguments are checked."""
    at, draw = error_draws(gaps_of(result), seed)
    pixels = np.flatnonzero(at)
    for number in range(n):
        sample = result.values.copy()
        for band, error in zip(sample.reshape(len(sample), -1), draw(number), strict=True):
            band[pixels] += error
        yield sample


class DrawnGaps(NamedTuple):
    """A filled cube, or a window of a scene, whose error is drawn; (C, H, W) unless stated."""

    values: Floats  # measured where observed, else filled; NaN where neither
    observed: Bools
    drawn: Bools  # entries that vary
    sigma: Floats | None  # error bars of the filled entries; NaN where they are unknown
    good: Bools  # (C,) observed somewhere in the scene, and not bad
    sigma_y: Floats  # (C,) noise std
    common: Floats | None = None  # (C,) part of the error bars that a band has in common

    @property
    def bars(self) -> Floats | None:
        """(C, H, W) error bars without the part that a band has in common."""
        if self.sigma is None or self.common is None:
            return self.sigma
        rest: Floats = np.maximum(self.sigma**2 - self.common[:, None, None] ** 2, 0.0)
        return np.sqrt(rest)

    @property
    def shared(self) -> Floats | None:
        """(C, H, W) the part that a band has in common, 0 for entries without an error bar."""
        if self.sigma is None or self.common is None:
            return None
        with_bar = self.drawn & ~self.observed & np.isfinite(self.sigma)
        return np.where(with_bar, self.common[:, None, None], 0.0)


def gaps_of(result: Result) -> DrawnGaps:
    """Return the data of a result from which its samples are drawn."""
    values, filled = np.asarray(result.values, np.float64), result.filled
    observed = np.isfinite(values) & ~filled
    measured = np.where(observed, np.asarray(result.cube.values, np.float64), values)
    sigma_y = np.asarray(result.sigma_y, np.float64)
    if result.is_denoised:  # noise as large as what was removed: the model expects it in the values
        noise = np.random.default_rng(0).standard_normal(values.shape)
        measured += np.where(observed, sigma_y[:, None, None] * noise, 0.0)
    drawn = filled | (observed & (sigma_y > 0)[:, None, None])
    sigma = None if result.sigma is None else np.asarray(result.sigma, np.float64)
    good = result.cube.good_bands & observed.any(axis=(1, 2))
    return DrawnGaps(measured, observed, drawn, sigma, good, sigma_y, in_common(result.budget))


class ErrorDraws(NamedTuple):
    """Draws of the error of a cube, at the n pixels where something varies."""

    at: Bools  # (H, W)
    draw: Callable[[int], Array]  # sample number → errors (C, n), 0 for entries that do not vary


class Surroundings(NamedTuple):
    """A window of a scene, and the pixels around it from which its gaps are kriged."""

    complete: Bools  # (H, W) `error_model.complete_pixels` of the window and around it
    place: Window  # of these pixels in the scene
    window: Window  # its place in the scene

    @classmethod
    def of_cube(cls, gaps: DrawnGaps) -> Surroundings:
        """Return those of a cube, beyond which there is nothing."""
        complete = error_model.Known(gaps.values, gaps.observed).complete(gaps.good)
        everything = slice(0, complete.shape[0]), slice(0, complete.shape[1])
        return cls(complete, everything, everything)

    def around(self, at: Bools) -> Bools:
        """(H, W) mask that is False around the mask `at` of the window."""
        starts = [(w.start - p.start) for w, p in zip(self.window, self.place, strict=True)]
        mask = np.zeros(self.complete.shape, bool)
        mask[tuple(slice(a, a + n) for a, n in zip(starts, at.shape, strict=True))] = at
        return mask


def error_draws(
    gaps: DrawnGaps,
    seed: int,
    model: ErrorModel | None = None,
    surroundings: Surroundings | None = None,
) -> ErrorDraws:
    """Return draws of the error of a fill, which are the same for any part of a scene.

    Without error bars the draws have the standard deviation of the model.
    model, surroundings: of the scene, if the gaps are in a window of it.
    """
    at: Bools = np.asarray(gaps.drawn.any(axis=0))
    if not at.any():
        return ErrorDraws(at, lambda number: np.zeros((len(gaps.values), 0)))
    model = model or model_of(gaps)
    complete, place, window = surroundings = surroundings or Surroundings.of_cube(gaps)
    systems, wide_at = systems_of(complete, model), surroundings.around(at)
    is_complete = complete[wide_at]
    complete_at = at.copy()
    complete_at[at] = is_complete
    kriged = bool(not is_complete.all() or model.noise_edge)
    krige = kriging_error(systems, model.covariances, wide_at)
    mixing = mixing_of(gaps, model, at, surroundings, systems)
    # of the residual of measured entries, given the data
    measured_var = model.left * model.noise / (model.left + model.noise)
    left = np.sqrt(np.where(gaps.observed[:, at], measured_var[:, None], model.left[:, None]))
    scale = np.where(gaps.drawn[:, at], _scale(gaps, model, mixing, at), 0.0)
    # single precision for arrays of all bands and pixels
    left, scale, basis = (a.astype(np.float32) for a in (left * scale, scale, model.basis))
    K = len(model.variance)
    shared = None if gaps.shared is None else gaps.shared[:, at].astype(np.float32)

    def draw(number: int) -> Array:
        v, w = np.split(white_planes(seed, (number, FIELD), 2 * K, place), 2)
        u = w[:, wide_at]  # texture of the pixels that are not complete
        u[:, is_complete] = white(seed, (number, TEXTURE), K, window, complete_at)
        z = mixing(krige(v, w) if kriged else 0.0, u)
        error: Array = basis @ z.astype(np.float32)
        error *= scale
        error += left * white(seed, (number, REST), len(left), window, at)
        if shared is not None:
            sequence = np.random.SeedSequence(seed, spawn_key=(number, COMMON))
            error += shared * np.random.default_rng(sequence).standard_normal((len(left), 1))
        return error

    return ErrorDraws(at, draw)


def model_of(gaps: DrawnGaps) -> ErrorModel:
    """Return the error model of a cube, fitted to the same windows as that of a scene by tiles."""
    filled: Bools = np.asarray((gaps.drawn & ~gaps.observed).any(axis=0))
    windows = fitted(filled.shape, lambda window: bool(filled[window].any()))
    known = [error_model.Known(gaps.values[:, *at], gaps.observed[:, *at]) for at in windows]
    return error_model.fit(known, gaps.good, gaps.sigma_y)


def systems_of(complete: Bools, model: ErrorModel) -> Systems:
    """Return the systems of the kriging whose errors are drawn: everywhere if there is noise."""
    return Systems(complete, everywhere=model.noise_edge > 0)


class Mixing(NamedTuple):
    """How the error of the coordinates of n pixels is mixed from kriging errors and white noise."""

    field: Floats  # (K, n) factors of the kriging error
    white: Floats  # (K, n) factors of the white noise
    # pixels that keep the same bands, and a root (K, K) of the covariance given these bands
    roots: list[tuple[Ints, Floats]]
    # (C, n) std of the whitened errors of entries that were not measured; None where it is not
    # needed: without error bars and without pixels that keep only some bands
    spread: Floats | None

    def __call__(self, e: Floats | float, w: Array) -> Floats:
        """(K, n) error of the coordinates, from kriging errors e and white noise w, both (K, n)."""
        z: Floats = self.field * e + self.white * w
        for members, root in self.roots:
            z[:, members] = root @ z[:, members]
        return z


def mixing_of(
    gaps: DrawnGaps, model: ErrorModel, at: Bools, surroundings: Surroundings, systems: Systems
) -> Mixing:
    """Return how the errors at the pixels `at` of a window are mixed.

    systems: `systems_of` the surroundings.

    A pixel that keeps no band has the error of kriging, and texture.  One that keeps all bands has
    the error that the noise causes.  Others have the covariance of their spectrum given the bands
    that they keep, under a Gaussian model.
    """
    wide_at = surroundings.around(at)
    nugget = np.array([c.nugget for c in model.covariances])[:, None]
    nugget, edge = np.maximum(nugget, model.noise_edge), model.noise_edge
    texture = nugget - edge
    known = gaps.observed[:, at] & gaps.good[:, None]
    keeps_some, keeps_all = known.any(axis=0), known[gaps.good].all(axis=0)
    is_complete = systems.complete[wide_at]  # neighbours add no information there
    noisy = texture * edge / np.maximum(nugget, 1e-300)
    field = np.where(is_complete, np.where(keeps_all, edge / np.maximum(nugget, 1e-300), 0.0), 1.0)
    shares = np.where(is_complete, np.where(keeps_all, np.sqrt(noisy), 1.0), np.sqrt(texture))
    partial = np.flatnonzero(keeps_some & ~keeps_all)
    if gaps.sigma is None and not len(partial):
        return Mixing(field, shares, [], None)
    place = surroundings.place
    variance = kriging_variance(systems, model.covariances, place)[:, wide_at] + texture
    variance = np.where(is_complete, model.variance[:, None], variance)
    spread = np.sqrt(model.basis**2 @ variance + model.left[:, None])
    unit = np.where(is_complete, 1.0, np.sqrt(variance))[:, partial]
    field[:, partial] /= np.maximum(unit, 1e-300)
    shares[:, partial] /= np.maximum(unit, 1e-300)
    roots = []
    for missing, members in patterns(known[:, partial]) if len(partial) else ():
        bands, pixels = np.setdiff1d(np.arange(len(known)), missing), partial[members]
        root = _root(model, bands, variance[:, pixels].mean(axis=1))
        partial_variance = ((model.basis @ root) ** 2).sum(axis=1) + model.left
        spread[:, pixels] = np.sqrt(partial_variance)[:, None]
        roots.append((pixels, root))
    return Mixing(field, shares, roots, spread)


def _root(model: ErrorModel, bands: Ints, variance: Floats) -> Floats:
    """(K, K) root of the covariance, given some bands, of coordinates with prior variance (K,)."""
    V, std = model.basis[bands], np.sqrt(variance)
    V = V * std / np.sqrt(model.left + model.noise)[bands, None]
    strength, axes = np.linalg.eigh(V.T @ V)
    shrunk = 1 / np.sqrt(1 + np.maximum(strength, 0.0))
    root: Floats = std[:, None] * ((axes * shrunk) @ axes.T)
    return root


def _scale(gaps: DrawnGaps, model: ErrorModel, mixing: Mixing, at: Bools) -> Floats:
    """(C, n) factors that scale whitened errors to the error bars, or to the cube's unit."""
    plain = np.broadcast_to(1 / model.weight[:, None], (len(model.weight), int(at.sum())))
    if (bars := gaps.bars) is None:
        return plain
    assert mixing.spread is not None
    sigma = np.where(gaps.observed[:, at], np.nan, bars[:, at])
    return np.where(np.isfinite(sigma), sigma / mixing.spread, plain)
