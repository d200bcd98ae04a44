"""The expected error of a fill: a model fitted to hidden entries and applied to filled ones.

The expected squared error of an entry, in σ_b² of its band, is

    by_band · exp(level + Σ slope · log(feature))

with the features of `Around`.  Level, slopes and by_band are fitted to the hidden entries; the more
the folds differ, the more the level is drawn towards its usual value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hydiff.auto import missingness, usual
from hydiff.auto import recipe as recipes
from hydiff.auto.blend import Weights, mixed
from hydiff.auto.classes import (
    BAND_GROUPS,
    Around,
    ClassCounts,
    band_spread,
    columns,
    groups,
    share_of_length,
    usable,
)
from hydiff.auto.hidden import LEAST, MOST, Hidden
from hydiff.auto.recipe import Errors
from hydiff.auto.split import SOME
from hydiff.auto.trials import Trial
from hydiff.cube import Bools, Cube, Floats
from hydiff.methods.estimate import Extent
from hydiff.metrics import NORMAL_QUANTILES

HOPELESS = 0.9  # standard deviations of a band: so large an error is no better than the band's mean
NORMAL_80 = NORMAL_QUANTILES[1]
UNLIKE = Around._fields.index("unlike")
REFERENCE_TRUST = 500.0  # as `usual.TRUST`, for the slopes of fills from references
FEW_FOLDS = 3  # with fewer, expected scores carry a note that they rest on few trials
MODEL_BASED = (
    f"error bars are {recipes.MODEL}: fewer than 4 copies of the gaps could be hidden, so their "
    "shape is that of other scenes"
)
Fit = tuple[float, Floats, Floats]  # level, slopes, by_band
BORROWED = 20.0  # hidden entries as expected, which are added to those of each band and group
ROUNDS, STEPS = 3, 8  # rounds of slopes and bands in turn; steps of the slopes' fit in each


def errors_of(
    trials: Sequence[Trial],
    weights: Weights,
    counts: ClassCounts,
    bands: int,
    *,
    whole_pixels: bool = True,
    usual_slopes: Floats | None = None,
) -> Errors:
    """Return the model of squared errors; its `slopes` are None if there are too few trials.

    whole_pixels: the gaps are pixels without any band, of which the usual size of errors is known.
    usual_slopes: (F,) of fills from references, whose intervals do not depend on the number of
    copies; None for other fills.

    Fields of the result: `by_distance` mean squared error by distance class, None where nothing was
    hidden; `widening` makes the 80 % interval of a Gaussian cover 80 % of the hidden entries;
    `intervals` half widths of the 50, 80, 95 % intervals, in σ; `angle` (°) per relative error.
    """
    if len(trials) < 2:
        return Errors(level=0.0, by_band=(1.0,) * bands, widening=1.0)
    hidden = Hidden.of(trials, [mixed(t.residual, t, weights.plain) for t in trials], counts)
    pixels = sum(t.angle.shape[1] for t in trials)
    level, slopes, by_band = _fitted(hidden, bands, pixels, usual_slopes)
    expected = hidden.expected(level, slopes, by_band)
    drawn, bounds = usual.foresee(hidden.evidence(expected), whole_pixels)
    # networks were fitted on some folds only, on which their effect is measured
    network_trials = [t for t in trials if np.isfinite(t.residual).all()]
    if len(network_trials) > 1 and (weights.all != weights.plain).any():
        before, hidden = (
            Hidden.of(network_trials, [mixed(t.residual, t, w) for t in network_trials], counts)
            for w in (weights.plain, weights.all)
        )
        expected = hidden.expected(level, slopes, by_band)
        gains = np.log(hidden.by_fold(expected) / before.by_fold(expected))
        gain = float(gains.mean())
        level, expected = level + gain, expected * math.exp(gain)
        drawn += usual.drawn(gains, *usual.GAIN) - gain
    copies = hidden.copies() if usual_slopes is None else 0.0
    shape = hidden.shape(expected, copies or math.inf)  # inf: as for many copies
    widening = float(shape[1] / NORMAL_80)
    relative, angle = np.concatenate([t.angle for t in trials], axis=1)
    return Errors(
        level=float(level + drawn),
        slopes=tuple(slopes.tolist()),
        features=Around._fields,
        by_band=tuple(by_band.tolist()),
        by_distance=tuple(hidden.by_distance()),
        widening=widening,
        intervals=tuple(float(at / max(widening, 1e-300)) for at in shape),
        angle=float(angle.sum() / relative.sum()) if relative.sum() > 0 else None,
        copies=copies,
        bounds=bounds,
    )


def _fitted(hidden: Hidden, bands: int, pixels: int, usual_slopes: Floats | None) -> Fit:
    """Return level, slopes (F,), by_band (bands,), fitted to entries of so many hidden pixels."""
    trust = usual.TRUST if usual_slopes is None else REFERENCE_TRUST
    weight = hidden.weight * (pixels / trust / hidden.weight.sum())
    number, noise_by_band, signal = hidden.shares()
    by_band = np.ones(bands)
    by_band[number] = signal
    # candidates that differ cannot all be right: a lower bound that does not depend on the noise
    bound = usual.APART * float(np.average(np.exp(2 * hidden.around[UNLIKE]), weights=weight))
    least = bound if hidden.noise.any() else 0.0
    noise_free = float(np.average(hidden.square - hidden.noise, weights=weight))
    start = max(noise_free, least, LEAST * float(hidden.square.mean()), 1e-12)
    noise = min(float(np.average(hidden.noise, weights=weight)), 1.0)
    pooled = usual.pooled_noise(noise_by_band, signal)
    slopes = usual.slopes(noise, pooled) if usual_slopes is None else usual_slopes
    level = np.log(start / np.average(hidden.expected(0.0, slopes, by_band), weights=weight))
    b = prior = np.r_[level, slopes]
    for _ in range(ROUNDS):
        b = _scored(hidden, weight, by_band, b, prior)
        for kind, count in ((groups(bands), BAND_GROUPS), (np.arange(bands), bands)):
            mean = hidden.expected(b[0], b[1:], by_band)
            by_band = by_band * hidden.relative_to(mean, kind[hidden.band], count, BORROWED)[kind]
    mean_square = float(np.average(hidden.expected(b[0], b[1:], by_band), weights=weight))
    return float(b[0]) + math.log(max(least / mean_square, 1.0)), b[1:], by_band


def _scored(hidden: Hidden, weight: Floats, by_band: Floats, b: Floats, prior: Floats) -> Floats:
    """Return level and slopes (1 + F,), given by_band (bands,), by Fisher scoring: squares have a
    gamma distribution with noise added, and slopes a Gaussian prior with mean `prior`."""
    X = np.vstack([np.ones(len(hidden.square)), hidden.around])
    shrinkage = np.r_[0.0, np.ones(len(hidden.around))]
    for _ in range(STEPS):
        mean = hidden.expected(b[0], b[1:], by_band)
        total = mean + hidden.noise
        score = X @ (weight * (hidden.square - total) * mean / total**2) - shrinkage * (b - prior)
        information = (X * (weight * (mean / total) ** 2)) @ X.T + np.diag(shrinkage + 1e-9)
        b = b + np.clip(np.linalg.solve(information, score), -1.0, 1.0)
    return b


def variance_of(
    errors: Errors, cube: Cube, observed: Bools, target: Bools, features: Around
) -> Floats:
    """(bands, n) expected squared error of the entries to fill, in the cube's unit squared.

    target (bands, n), features: of the n pixels that have entries to fill.
    """
    assert errors.level is not None and errors.slopes is not None
    by_band = np.asarray(errors.by_band, dtype=np.float64)
    if len(by_band) != cube.bands:  # a recipe from another sensor
        by_band = np.ones(cube.bands)
    pairs = zip(errors.slopes, features.logs(), strict=True)
    level = errors.level + sum(slope * log for slope, log in pairs)
    expected = np.minimum(by_band[:, None] * np.exp(np.minimum(level, 50.0)), MOST)
    return np.where(target, expected * band_spread(cube, observed)[:, None] ** 2, 0.0)


class Scored(NamedTuple):
    """A fill whose scores are to be predicted, in the cube's unit; of all pixels or n of them."""

    cube: Cube
    observed: Bools  # (bands, rows, cols)
    values: Floats  # (bands, rows, cols), or (bands, 1, n)
    variance: Floats  # of the filled entries
    sigma_y: Floats  # (bands,)
    extent: Extent | None  # of the scene that the cube is a part of; NRMSE is relative to it
    at: Bools | None  # (rows, cols) mask of the n pixels; None = all; needs `extent`


def expected_of(
    fill: Scored, target: Bools, angle: float | None, bounds: Sequence[float] | Floats
) -> dict[str, float]:
    """Return the expected NRMSE, MPSNR and SAM of the filled entries of good bands; in 80 % of the
    scenes the true NRMSE lies between `nrmse_low` and `nrmse_high`.

    target: entries to score, in the shape of `fill.values`.  angle: spectral angle (°) per relative
    error; None = unknown.  bounds: of the true over the expected RMS error.
    """
    cube, observed, _, variance, sigma_y, *_ = fill
    judged = target & usable(cube, observed)[:, None, None]
    bands = judged.any(axis=(1, 2))
    if not bands.any():
        return {}
    square = variance.sum(axis=(1, 2), where=judged)[bands] / judged.sum(axis=(1, 2))[bands]
    peak, spread = _peak_and_spread(fill, judged, square)
    nrmse = float(np.mean(np.sqrt(square) / spread))
    low, high = usual.nrmse_bounds(bounds, square, sigma_y[bands] ** 2)
    psnr = -10 * np.log10(np.maximum(square, 1e-300) / peak**2)
    scores = {
        "nrmse": nrmse,
        "nrmse_low": low * nrmse,
        "nrmse_high": high * nrmse,
        "mpsnr": float(np.mean(np.minimum(psnr, 100))),
    }
    return scores if angle is None else scores | {"sam": _sam(fill, judged, angle)}


def _peak_and_spread(fill: Scored, judged: Bools, square: Floats) -> tuple[float, Floats]:
    """Return the range of the truth, and the standard deviation of its bands with judged entries,
    both without noise.  square: expected squared error of these bands."""
    cube, observed, values, _, sigma_y, extent, _ = fill
    bands = judged.any(axis=(1, 2))
    noisy = sigma_y[bands] > 0
    if extent is not None:
        peak, spread = extent.peak, extent.spread[bands]
        true_variance = spread**2 - sigma_y[bands] ** 2
    else:
        known = observed | judged
        measured = np.asarray(cube.values, dtype=np.float64)
        noise_free = np.where(observed & ~(sigma_y > 0)[:, None, None], measured, values)
        good = noise_free[known & cube.good_bands[:, None, None]]
        peak, spread = float(np.nanmax(good) - np.nanmin(good)), band_spread(cube, observed)[bands]
    if noisy.any():
        if extent is None:
            # variance of the truth = that of its estimate + the error's, largest in the gaps
            share = judged[bands].sum(axis=(1, 2)) / known[bands].sum(axis=(1, 2))
            true_variance = values[bands].var(axis=(1, 2), where=known[bands]) + share * square
        # at least the squared error: where noise hides all variation, the estimate is the mean
        spread = np.where(noisy, np.sqrt(np.maximum(true_variance, square)), spread)
    return peak or 1.0, spread


def _sam(fill: Scored, judged: Bools, angle: float) -> float:
    """Return the expected spectral angle (°) of the judged entries; angle: ° per relative error."""
    cube, observed, values, variance, _, _, at = fill
    pixels, good_bands = judged.any(axis=0), usable(cube, observed)
    error = np.sqrt(np.where(judged[:, pixels], variance[:, pixels], 0.0).sum(axis=0))
    entries = (judged | columns(observed, at))[good_bands][:, pixels]
    spectra = np.where(entries, values[good_bands][:, pixels], 0.0)
    return angle * float(np.mean(share_of_length(error, spectra)))


def expected_by_kind(
    fill: Scored, targets: Mapping[str, Bools], errors: Mapping[str, Errors]
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return `expected_of` all filled entries, and by kind of gaps; kinds share no pixel."""
    pairs = {kind: (errors[kind].angle, errors[kind].bounds) for kind in targets}
    by_kind = {kind: expected_of(fill, targets[kind], *pair) for kind, pair in pairs.items()}
    by_kind = {kind: scores for kind, scores in by_kind.items() if scores}
    if len(by_kind) < 2:
        return next(iter(by_kind.values()), {}), by_kind
    # the true errors of both kinds may deviate alike, as the scene is the same: mean bounds
    squares = {k: targets[k].sum() * s["nrmse"] ** 2 for k, s in by_kind.items()}
    bounds = np.array([errors[kind].bounds for kind in squares])
    mean_bounds = np.average(bounds, axis=0, weights=np.maximum([*squares.values()], 1e-300))
    expected = expected_of(fill, np.logical_or.reduce([*targets.values()]), None, mean_bounds)
    if all("sam" in scores for scores in by_kind.values()):
        good = usable(fill.cube, fill.observed)
        pixels = [int(targets[kind][good].any(axis=0).sum()) for kind in by_kind]
        expected["sam"] = float(np.average([s["sam"] for s in by_kind.values()], weights=pixels))
    return expected, by_kind


def promises(
    expected: Mapping[str, float],
    by_kind: Mapping[str, Mapping[str, float]],
    entries: Mapping[str, int],
    recipe: Mapping[str, Any],
) -> list[str]:
    """Return notes: a line with the expected scores of the filled entries, warnings, and a line for
    each kind of gaps with its number of entries, if there are several."""
    partial = recipe.get("partial", recipe)
    recipe_of = {kind: partial if kind.startswith(SOME) else recipe for kind in by_kind}
    folds = {kind: kind_recipe.get("folds") for kind, kind_recipe in recipe_of.items()}
    total_folds = next(iter(folds.values()), None) if len(by_kind) < 2 else None
    lines = [f"expected in the filled entries: {_scores(expected, total_folds)}"] if by_kind else []
    rim = recipes.Recipe.of(recipe).rim if recipe.get("rim") else None
    lines += [missingness.warning(rim)] if rim is not None and rim.is_unusual else []
    lines += [MODEL_BASED] if any(map(_is_model_based, recipe_of.values())) else []
    return lines + [
        f"expected in {kind} ({entries[kind]:,} entries): {_scores(scores, folds[kind])}"
        for kind, scores in by_kind.items()
        if len(by_kind) > 1
    ]


def _is_model_based(recipe: Mapping[str, Any]) -> bool:
    """Whether there were too few copies of the gaps to determine the 80 % intervals."""
    copies = recipe["errors"].get("copies")
    return copies is not None and not recipes.can_say(copies)[1]


def _scores(expected: Mapping[str, float], folds: Any = None) -> str:
    """Return the scores in words; folds: number of trials, mentioned where it is small."""
    shown = (("nrmse", "NRMSE", ""), ("mpsnr", "MPSNR", " dB"), ("sam", "SAM", "°"))
    parts = {k: f"{name} {expected[k]:.3g}{unit}" for k, name, unit in shown if k in expected}
    if expected.get("nrmse_high", 0) > expected.get("nrmse_low", 0):
        parts["nrmse"] += f" ({expected['nrmse_low']:.3g} to {expected['nrmse_high']:.3g})"
    text = ", ".join(parts.values())
    few = isinstance(folds, int) and folds < FEW_FOLDS
    return text + (f"; this rests on {folds} trials only" if few else "")


def warning(share: float) -> str:
    """Return a warning that this share of the filled entries has expected errors above HOPELESS."""
    percent = "under 1" if share < 0.01 else f"{100 * share:.0f}"
    return (
        f"{percent} % of the filled entries are expected to be hardly better than their band's "
        f"mean (gaps too wide, or no data nearby); `max_error={HOPELESS:g}` leaves them missing"
    )
