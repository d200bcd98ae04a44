"""Fill as a recipe says: the candidates it uses, blended, with their error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hydiff import mask, validate
from hydiff.auto.bars import HOPELESS, expected_of, promise, variance_of, warning
from hydiff.auto.candidates import Candidate
from hydiff.auto.classes import around, band_spread, groups
from hydiff.auto.trials import crossfit, folds_of, mean_estimate, own_fits
from hydiff.cube import Bools, Cube, Floats
from hydiff.mask import Ints
from hydiff.problem import Sigma
from hydiff.run import Estimate, Job


class Decision(NamedTuple):
    recipe: dict[str, Any]
    expected: dict[str, float]  # nrmse, mpsnr (dB), sam (°) of the entries that are filled
    hopeless: Bools  # (bands, rows, cols) entries expected to be off by more than was allowed
    doubtful: float = 0.0  # share of the filled that is hardly better than their band's mean


def apply(
    recipe: dict[str, Any],
    cube: Cube,
    seen: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
    max_error: float | None = None,
) -> tuple[Estimate, Decision]:
    """Estimate a cube as the recipe says, with error bars and the scores to expect.

    ready: estimates of candidates that are at hand.  max_error: in standard deviations of a band.
    """
    weights = np.asarray(recipe["weights"], dtype=np.float64)
    plain = ["fits" not in entry for entry in recipe["candidates"]]
    used: Bools = np.asarray(weights.any(axis=(1, 2))) | plain  # how far those are apart is told
    entries = [entry for entry, wanted in zip(recipe["candidates"], used, strict=True) if wanted]
    found = _candidates(entries, cube, seen, sigma_y, job, ready)
    first, errors = found[0], recipe["errors"]
    distance = validate.distance_class(mask.shared(seen))
    values = _blended(found, weights[used], distance, cube)
    notes = [f"auto: {recipe['why']}", *dict.fromkeys(n for e in found for n in e.notes)]
    hopeless = np.zeros(seen.shape, bool)
    if errors.get("slopes") is None:  # hardly anything was hidden: nothing can be promised
        unknown = "too few observed pixels to tell how good the fill is: no error bars"
        notes += [unknown] if target.any() else []
        told = first._replace(values=values, sigma=None, notes=notes)
        return told, Decision(recipe, {}, hopeless)
    pixels = np.asarray(target.any(axis=0))
    without = [one for one, entry in zip(found, entries, strict=True) if "fits" not in entry]
    told_by = [one.values[:, pixels] for one in without]
    lies = around(cube, seen, told_by, pixels, target[:, pixels])
    variance = variance_of(errors, cube, seen, target, lies)
    extent = None if job.common is None else job.common.extent
    spread = band_spread(cube, seen) if extent is None else extent.spread
    relative = np.sqrt(variance) / spread[:, None, None]
    if max_error is not None:
        hopeless = target & (relative > max_error)
    target = target & ~hopeless
    expected = expected_of(errors, cube, seen, target, values, variance, first.sigma_y, extent)
    judged = target & cube.good_bands[:, None, None]
    doubtful = float((relative > HOPELESS)[judged].mean()) if judged.any() else 0.0
    notes += [promise(expected)] if expected else []
    notes += [warning(doubtful)] if doubtful else []
    sigma = np.sqrt(variance) * errors["widening"]
    told = first._replace(values=values, sigma=sigma, notes=notes)
    return told, Decision(recipe, expected, hopeless, doubtful)


def _candidates(
    entries: Sequence[Mapping[str, Any]],
    cube: Cube,
    seen: Bools,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
) -> list[Estimate]:
    """The estimate of each candidate."""
    told = [Candidate(e["name"], e["method"], e["settings"], "fits" in e) for e in entries]
    found = {i: ready[c.name] for i, c in enumerate(told) if c.name in ready}
    plain = [i for i, c in enumerate(told) if i not in found and not c.crossfit]
    own = own_fits([told[i] for i in plain], cube, seen, sigma_y, job)
    found |= dict(zip(plain, own, strict=True))
    for i in set(range(len(told))) - set(found):
        hidden = folds_of(cube, seen, entries[i]["of"], entries[i]["seed"])
        parts = [(cube, seen & ~fold) for fold in hidden[: entries[i]["fits"]]]
        parts = parts or [(cube, seen)]  # gaps too small to hide copies of them
        fits = crossfit(told[i], parts, sigma_y, job._replace(checkpoint=None))
        found[i] = mean_estimate(fits)
    return [found[i] for i in range(len(told))]


def _blended(found: Sequence[Estimate], weights: Floats, distance: Ints, cube: Cube) -> Floats:
    """The mean of the estimates, weighed (M, D, G) by distance class, (rows, cols) or with bands,
    and group of bands."""
    first = found[0].values
    # bad bands are the plain fill of any candidate; what the first cannot tell stays NaN
    values, group = first.copy(), groups(cube.bands)
    for g in np.unique(group):
        bands = np.flatnonzero((group == g) & cube.good_bands)
        near = distance if distance.ndim == 2 else distance[bands]
        values[bands] = 0.0
        for one, weight in zip(found, weights[:, :, g], strict=True):
            told = np.where(np.isfinite(one.values[bands]), one.values[bands], first[bands])
            values[bands] += weight[near] * told
    return values
