"""How far off a fill is: errors seen on hidden entries, carried over to those that were filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hydiff import validate
from hydiff.auto.classes import BAND_GROUPS, D, Kinds, T, band_spread, groups, share_of_length
from hydiff.auto.trials import Trial, importance
from hydiff.cube import Bools, Cube, Floats
from hydiff.mask import Ints
from hydiff.metrics import NORMAL_QUANTILES
from hydiff.run import Estimate

LEAST = 0.02  # of the usual square error: no class of entries is told to be better
HOPELESS = 0.9  # of a band's standard deviation: an error like that is no better than its mean
NORMAL_80 = NORMAL_QUANTILES[1]
# |error| / expected below which 50, 80 and 95 % of the entries are: scenes without noise are much
# alike in this (benchmarks/shapes.py)
USUAL_SHAPE = (0.47, 1.10, 2.08)


def errors_of(trials: Sequence[Trial], weights: Floats, kinds: Kinds, bands: int) -> dict[str, Any]:
    """Mean square errors of the blend on hidden entries: class × band × texture, in units of σ_b².

    `widening`: factor that makes the 80 % intervals of a Gaussian cover 80 %; `intervals`: how wide
    those of 50, 80 and 95 % are, in σ; `angle`: spectral angle (°) per relative error.
    """
    edges = kinds.edges.tolist()
    plain = {"by_class": None, "by_band": [1.0] * bands, "by_texture": [1.0] * T}
    # costly candidates were fitted on some folds only: what the blend does is seen there
    trials = [t for t in trials if np.isfinite(t.residual).all()] or trials
    if not trials:
        told = {"widening": 1.0, "intervals": list(NORMAL_QUANTILES), "angle": None}
        return {**plain, "texture_edges": edges, **told}
    band, distance, rough, noise, weight = (
        np.concatenate(parts)
        for parts in zip(
            *((t.band, t.distance, t.rough, t.noise, importance(t, kinds)) for t in trials),
            strict=True,
        )
    )
    group, texture = groups(bands)[band], np.digitize(rough, edges)
    residual = np.concatenate([t.residual for t in trials], axis=1)
    mix = weights[:, distance, group]
    residual = np.where(np.isfinite(residual), residual, residual[0])
    square = (mix * residual).sum(axis=0) ** 2

    # A hidden entry is off by its own noise too.  That is taken off the means alone: single
    # squares would fall below 0, and cutting them there would count half of the noise as error.
    clean = square - noise
    overall = max(float(np.average(clean, weights=weight)), LEAST * float(square.mean()), 1e-12)

    def relative_to(expected: Floats, kind: Ints, count: int, borrowed: float) -> Floats:
        """How much larger the squares of a kind are than expected, drawn towards 1.

        An entry counts by what it tells: little where noise drowns the error.
        """
        counts = weight * (expected / (expected + noise)) ** 2
        n = np.bincount(kind, counts, count)
        found = np.bincount(kind, counts * clean / expected, count) / np.maximum(n, 1e-300)
        return (n * np.maximum(found, LEAST) + borrowed) / (n + borrowed)

    everywhere = np.full(len(square), overall)
    per_group = overall * relative_to(everywhere, group, BAND_GROUPS, 20.0)
    cell = distance * BAND_GROUPS + group
    by_class = relative_to(per_group[group], cell, D * BAND_GROUPS, 100.0)
    by_class = per_group * by_class.reshape(D, BAND_GROUPS)
    seen_classes = np.bincount(distance, weight, D) > 0
    expected = by_class[distance, group]
    by_band = relative_to(expected, band, bands, 20.0)
    by_texture = relative_to(expected * by_band[band], texture, T, 200.0)
    expected = expected * by_band[band] * by_texture[texture]
    shape = _shape(np.sqrt(square / (expected + noise)), weight)
    # noise hides what the errors themselves are like, all the more the larger it is
    visible = float(np.average(expected / (expected + noise), weights=weight))
    shape = visible * shape + (1 - visible) * np.array(USUAL_SHAPE)
    widening = float(shape[1] / NORMAL_80)
    relative, angle = np.concatenate([t.angle for t in trials], axis=1)
    return {
        "by_class": by_class.tolist(),
        "classes_seen": seen_classes.tolist(),
        "by_band": by_band.tolist(),
        "by_texture": by_texture.tolist(),
        "texture_edges": edges,
        "widening": widening,
        # half widths of the 50, 80 and 95 % intervals in σ: the tails are heavier than a Gaussian's
        "intervals": [float(at / max(widening, 1e-300)) for at in shape],
        "angle": float(angle.sum() / relative.sum()) if relative.sum() > 0 else None,
    }


def _shape(ratio: Floats, weight: Floats) -> Floats:
    """(3,) what 50, 80 and 95 % of the ratios (n,), by weight, do not exceed."""
    order = np.argsort(ratio)
    share = np.cumsum(weight[order]) / weight.sum()
    reached = np.minimum(np.searchsorted(share, (0.5, 0.8, 0.95)), len(ratio) - 1)
    quantiles: Floats = ratio[order][reached]
    return quantiles


def variance_of(
    errors: Mapping[str, Any],
    cube: Cube,
    seen: Bools,
    target: Bools,
    distance: Ints,
    first: Estimate,
) -> Floats:
    """(bands, rows, cols) expected square error of the entries to fill, in the cube's unit squared.

    Its size is what was seen on hidden entries of the same class; the posterior variance tells how
    it varies inside a class, and takes over for distances that no hidden entry had.
    """
    spread = band_spread(cube, seen)[:, None, None]
    posterior = np.full(seen.shape, np.nan) if first.sigma is None else first.sigma**2
    posterior = np.where(np.isfinite(posterior), posterior / spread**2, 0.25)
    by_class = np.array(errors["by_class"], dtype=np.float64)
    group = groups(cube.bands)
    inside = np.stack(
        [_mean_by_class(*parts) for parts in zip(posterior, distance, target, strict=True)], 1
    )
    seen_classes = np.flatnonzero(errors["classes_seen"])
    for d in range(D):
        near = seen_classes[np.argmin(np.abs(seen_classes - d))]
        if near != d:  # no hidden entry was so far from the data
            growth = inside[d].sum() / inside[near].sum() if inside[near].any() else 1.0
            by_class[d] = by_class[near] * max(growth, 1.0)
    group3 = np.broadcast_to(group[:, None, None], seen.shape)
    level = inside[distance, np.arange(cube.bands)[:, None, None]]
    within = np.where(level > 0, posterior / np.where(level > 0, level, 1.0), 1.0)
    by_band = np.asarray(errors["by_band"], dtype=np.float64)
    if len(by_band) != cube.bands:  # a recipe from another sensor
        by_band = np.ones(cube.bands)
    texture = np.digitize(
        validate.roughness(np.asarray(cube.values), seen), errors["texture_edges"]
    )
    expected = by_class[distance, group3] * np.asarray(errors["by_texture"], np.float64)[texture]
    expected = expected * by_band[:, None, None] * np.clip(within, 0.25, 4.0)
    return np.where(target, expected * spread**2, 0.0)


def _mean_by_class(values: Floats, distance: Ints, where: Bools) -> Floats:
    """(D,) mean of one band's values (rows, cols) over each distance class; 0 for empty ones."""
    total = np.bincount(distance[where], minlength=D)
    mean: Floats = np.bincount(distance[where], values[where], D) / np.maximum(total, 1)
    return mean


def expected_of(
    errors: Mapping[str, Any],
    cube: Cube,
    seen: Bools,
    target: Bools,
    values: Floats,
    variance: Floats,
    sigma_y: Floats,
) -> dict[str, float]:
    """NRMSE, MPSNR and SAM that the filled entries of good bands should have."""
    judged = target & (cube.good_bands & seen.any(axis=(1, 2)))[:, None, None]
    bands = judged.any(axis=(1, 2))
    if not bands.any():
        return {}
    square = variance.sum(axis=(1, 2), where=judged)[bands] / judged.sum(axis=(1, 2))[bands]
    measured = np.asarray(cube.values, dtype=np.float64)
    clear = np.where(seen & ~(sigma_y > 0)[:, None, None], measured, values)  # of noise
    good = clear[(seen | judged) & cube.good_bands[:, None, None]]
    peak = float(np.nanmax(good) - np.nanmin(good)) or 1.0
    spread = np.sqrt(np.maximum(band_spread(cube, seen) ** 2 - sigma_y**2, square.min()))
    found = {
        "nrmse": float(np.mean(np.sqrt(square) / spread[bands])),
        "mpsnr": float(
            np.mean(np.minimum(-10 * np.log10(np.maximum(square, 1e-300) / peak**2), 100))
        ),
    }
    if errors["angle"] is not None:
        pixels = judged.any(axis=0)
        error = np.sqrt(np.where(judged, variance, 0.0)[:, pixels].sum(axis=0))
        spectra = np.where(seen | judged, values, 0.0)[:, pixels]
        found["sam"] = errors["angle"] * float(np.mean(share_of_length(error, spectra)))
    return found


def advice(
    expected: Mapping[str, float], relative: Floats, cube: Cube, target: Bools
) -> Iterator[str]:
    """What a user should know before trusting the fill."""
    told = expected
    if told:
        yield "expected in the filled entries: " + ", ".join(
            f"{name} {told[key]:.3g}{unit}"
            for key, name, unit in (
                ("nrmse", "NRMSE", ""),
                ("mpsnr", "MPSNR", " dB"),
                ("sam", "SAM", "°"),
            )
            if key in told
        )
    judged = target & cube.good_bands[:, None, None]
    hopeless = judged & (relative > HOPELESS)
    if hopeless.any():
        yield (
            f"{100 * hopeless.sum() / judged.sum():.0f} % of the filled entries are expected to be "
            "hardly better than their band's mean (gaps too wide, or no data nearby); "
            f"--max-error {HOPELESS:g} leaves them missing"
        )
