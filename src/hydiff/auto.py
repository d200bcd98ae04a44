"""`auto`, the default: try the candidates on hidden copies of the gaps, blend, and say how good.

Letters: M candidates, D distance classes, G groups of bands.  A *recipe* is the whole decision as
plain JSON: candidates, blending weights and the errors that were seen; it can be replayed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from hydiff import mask, validate
from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue, CubeFormatError
from hydiff.mask import Ints
from hydiff.methods import METHODS, choose
from hydiff.metrics import NORMAL_QUANTILES
from hydiff.problem import Sigma
from hydiff.result import Step
from hydiff.run import Estimate, Job, Progress, estimate, estimates, estimating, torch_device

NAME = "auto"
BAND_GROUPS = 4
D, T = len(validate.EDGES) + 1, validate.TEXTURES
BORROWED = 2000.0  # entries' worth of the pooled errors that every class of entries borrows
BOOTSTRAPS = 200
FEWEST = 30  # hidden pixels below which nothing is concluded
MOST_GAPS = 20_000  # pixels that networks are tried on: their anchor is a dense matrix
MOST_LOOKED = 100_000  # hidden entries of a fold whose errors are looked at
COPIES, MEMORY = 10, 4e9  # copies of a cube that a trial makes, and bytes for all trials at a time
LEAST = 0.02  # of the usual square error: no class of entries is told to be better
HOPELESS = 0.9  # of a band's standard deviation: an error like that is no better than its mean
NORMAL_80 = NORMAL_QUANTILES[1]


class Candidate(NamedTuple):
    name: str
    method: str
    settings: Mapping[str, Any] = {}
    crossfit: bool = False  # costly: its fits on the folds are averaged instead of fitting again


class Budget(NamedTuple):
    candidates: tuple[Candidate, ...]  # the first is the default, left only for a proven gain
    folds: int
    costly_folds: int  # fits of a costly candidate


def _anchored(**settings: int) -> Candidate:
    return Candidate(f"anchored ({settings['steps']} steps)", "anchored", settings, crossfit=True)


SMOOTH = Candidate("smooth", "smooth")
CLASSICAL = (
    SMOOTH,
    Candidate("power law", "smooth", {"s": 1.5}),
    Candidate("membrane", "smooth", {"s": 1.0}),
)
# where pixels keep some bands, what matters is how the others follow from them
SPECTRAL = (SMOOTH, Candidate("along the bands", "spectral"))
SPECTRAL_FOLDS = 3
BUDGETS = {
    "fast": Budget(CLASSICAL, 8, 0),
    "normal": Budget(CLASSICAL, 12, 0),
    "best": Budget((*CLASSICAL, _anchored(steps=200, examples=1, channels=32)), 8, 4),
}
# networks take seconds there; how long they may learn before they know the cube by heart differs
# from cube to cube, so two lengths are tried
GPU_BUDGETS = {
    "fast": BUDGETS["fast"],
    "normal": Budget((*CLASSICAL, _anchored(steps=800, examples=4)), 8, 3),
    "best": Budget(
        (*CLASSICAL, _anchored(steps=500, examples=1), _anchored(steps=1500, examples=4)), 8, 4
    ),
}


class Decision(NamedTuple):
    recipe: dict[str, Any]
    expected: dict[str, float]  # nrmse, mpsnr (dB), sam (°) of the filled entries
    relative: Floats  # (bands, rows, cols) expected error in standard deviations of the band


def fill(
    cube: Cube,
    seen: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    *,
    budget: str = "normal",
    recipe: Mapping[str, Any] | None = None,
    progress: Progress = None,
) -> tuple[Estimate, Decision]:
    """Estimate a cube by a validated blend of candidates, or by the blend a recipe tells."""
    ready: dict[str, Estimate] = {}
    if recipe is None:
        chosen = budget_of(budget, job)
        recipe, ready = decide(cube, seen, target, sigma_y, chosen, job, progress)
    # what is applied went through JSON, so that a replay has the very same numbers
    plain: dict[str, Any] = json.loads(json.dumps(recipe))
    return _apply(plain, cube, seen, target, sigma_y, job, ready)


def budget_of(name: str, job: Job) -> Budget:
    """What a budget allows on the device of a job."""
    if name == "fast" or job.device == "cpu":  # without waiting for torch
        return BUDGETS[name]
    return (GPU_BUDGETS if torch_device(job.device).type == "cuda" else BUDGETS)[name]


def read_recipe(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A recipe from a mapping, a JSON file, or the record (OUT.fill.json) of an earlier fill."""
    found: Any = source
    if isinstance(source, str | Path):
        try:
            found = json.loads(Path(source).read_text())
        except OSError as error:
            raise CubeFormatError(f"{source}: cannot be read as a recipe: {error}") from None
        except (ValueError, RecursionError):
            raise CubeFormatError(f"{source} is no JSON; expected an OUT.fill.json") from None
    if isinstance(found, Mapping) and isinstance(found.get("recipe"), Mapping):
        found = found["recipe"]
    needed = {"candidates", "weights", "errors"}
    where = source if isinstance(source, str | Path) else "the recipe"
    if not isinstance(found, Mapping) or not needed <= set(found):
        raise CubeFormatError(
            f"{where} holds no recipe; expected the record (OUT.fill.json) of a fill by {NAME}"
        )
    if (wrong := _wrong_in(found)) is not None:
        raise BadValue(f"{where}: {wrong}; expected a recipe as a fill by {NAME} records it")
    return dict(found)


def _wrong_in(recipe: Mapping[str, Any]) -> str | None:
    """What of a recipe could not be followed; a person may have edited it, or someone else."""
    candidates, errors = recipe["candidates"], recipe["errors"]
    if not isinstance(candidates, list) or not candidates or not isinstance(errors, Mapping):
        return "a recipe needs a list of candidates, and errors by name"
    for entry in candidates:
        named = isinstance(entry, Mapping) and isinstance(entry.get("settings"), Mapping)
        if not named or not all(isinstance(entry.get(k), str) for k in ("name", "method")):
            return "a candidate has a name, a method and settings"
        told = [entry[k] for k in ("fits", "of", "seed") if "fits" in entry and k in entry]
        if "fits" in entry and (len(told) < 3 or not all(type(n) is int and n >= 0 for n in told)):
            return f"the candidate {entry['name']} has no whole numbers under fits, of and seed"
    if not isinstance(recipe.get("why"), str):
        return "it does not say why"
    shapes: dict[str, tuple[int, ...] | None] = {
        "by_class": (D, BAND_GROUPS),
        "classes_seen": (D,),
        "by_band": None,  # any number of bands: it may be another sensor's
        "by_texture": None,
        "texture_edges": None,
        "widening": (),
    }
    wanted: dict[str, tuple[Any, tuple[int, ...] | None]] = {
        "weights": (recipe["weights"], (len(candidates), D, BAND_GROUPS))
    }
    if errors.get("by_class") is not None:
        wanted |= {key: (errors.get(key), shape) for key, shape in shapes.items()}
    for key, (value, shape) in wanted.items():
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            return f"its {key} are no numbers"
        if numbers.shape != shape and (shape is not None or numbers.ndim != 1):
            return f"its {key} have shape {numbers.shape}, not {shape or '(n,)'}"
        if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            return f"its {key} are not all finite and at least 0"
    total = np.asarray(recipe["weights"], dtype=np.float64).sum(axis=0)
    if np.abs(total - 1).max() > 1e-3:
        return "its weights do not add up to 1"
    if errors.get("by_class") is not None and (
        len(errors["by_texture"]) != len(errors["texture_edges"]) + 1
        or list(errors["texture_edges"]) != sorted(errors["texture_edges"])
        or not any(errors["classes_seen"])
        or not isinstance(errors.get("angle"), int | float | None)
    ):
        return "its errors contradict themselves"
    return None


# ── deciding ─────────────────────────────────────────────────────────────────────────────────────


class Trial(NamedTuple):
    """What the candidates made of the hidden entries of one fold."""

    residual: Floats  # (M, n), in standard deviations of the band
    band: Ints  # (n,)
    distance: Ints  # (n,) class
    rough: Floats  # (n,)
    noise: Floats  # (n,) variance of the measurement, in those units
    angle: Floats  # (2, pixels): ‖x - truth‖ / ‖truth‖ and the spectral angle, of the default


def decide(
    cube: Cube,
    seen: Bools,
    target: Bools,
    sigma_y: Sigma,
    budget: Budget,
    job: Job,
    progress: Progress = None,
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """Try the candidates on hidden entries; the recipe, and the estimates that are ready."""
    return decide_on([Window(cube, seen, target)], sigma_y, budget, job, progress)


class Window(NamedTuple):
    """A part of a scene; both masks have its shape (bands, rows, cols)."""

    cube: Cube
    seen: Bools
    target: Bools


def decide_on(
    windows: Sequence[Window],
    sigma_y: Sigma,
    budget: Budget,
    job: Job,
    progress: Progress = None,
    memory: float = MEMORY,
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """One decision for a scene, from windows of it that share the folds among them."""
    if sum(_partial(w.seen) for w in windows) > 0:
        budget = Budget(SPECTRAL, SPECTRAL_FOLDS, 0)
    candidates = list(budget.candidates)
    if _is_noisy(sigma_y):
        candidates = [c for c in candidates if METHODS[c.method].noise]
    each = -(-budget.folds // len(windows))
    by_window = [_folds(w.cube, w.seen, each, job.seed) for w in windows if w.target.any()]
    hidden = [
        (window, folds[i])
        for i in range(each)
        for window, folds in zip((w for w in windows if w.target.any()), by_window, strict=True)
        if i < len(folds)
    ]
    job = job._replace(checkpoint=None)
    tried = hidden[: budget.costly_folds]
    too_many = any(_gaps(w.seen & ~fold) > MOST_GAPS for w, fold in tried)
    if too_many:
        candidates = [c for c in candidates if not c.crossfit]

    def look(fold: int, c: Candidate) -> Look:
        (cube, seen, _), hide = hidden[fold]
        return _look(estimate(cube, seen & ~hide, _chosen(c), sigma_y, job), cube, seen, hide)

    workers = _workers(windows[0].cube, memory)
    with ThreadPoolExecutor(workers) as pool:  # numpy and scipy leave Python while they work
        plain = {
            (i, c.name): pool.submit(look, i, c)
            for i in range(len(hidden))
            for c in candidates
            if not c.crossfit
        }
        costly = {
            c.name: _crossfit(c, [(w.cube, w.seen & ~fold) for w, fold in tried], sigma_y, job)
            for c in candidates
            if c.crossfit
        }
        trials: list[Trial] = []
        for i, (window, fold) in enumerate(hidden):
            looks: list[Look | None] = []
            for c in candidates:
                if not c.crossfit:
                    looks.append(plain[i, c.name].result())
                elif i < len(tried):
                    looks.append(_look(costly[c.name][i], window.cube, window.seen, fold))
                else:
                    looks.append(None)
            trials.append(_trial(window.cube, window.seen, fold, looks))
            if progress is not None:
                progress(Step(len(trials), len(hidden) + 1, None))
    kinds = [np.concatenate(k) for k in zip(*(_kinds(*w) for w in windows), strict=True)]
    wanted = (kinds[0], kinds[1])
    weights, why = _weights(trials, wanted, candidates, job.seed)
    if too_many:
        why += f"; more than {MOST_GAPS} pixels in gaps: networks were left out"
    recipe = {
        "method": NAME,
        "candidates": [
            {"name": c.name, "method": c.method, "settings": dict(c.settings)}
            | ({"fits": len(costly[c.name]), "of": each, "seed": job.seed} if c.crossfit else {})
            for c in candidates
        ],
        "weights": weights.tolist(),
        "errors": _errors(trials, weights, wanted, windows[0].cube.bands),
        "folds": len(trials),
        "why": why,
    }
    ready = {name: _mean_estimate(fits) for name, fits in costly.items() if fits}
    return recipe, ready if len(windows) == 1 else {}


def _workers(cube: Cube, memory: float) -> int:
    """Folds to try at a time: as many as there are cores, and memory for."""
    each = COPIES * 8 * float(np.prod(cube.shape))
    return max(1, min(os.cpu_count() or 1, int(memory / each)))


def _folds(cube: Cube, seen: Bools, count: int, seed: int) -> list[Bools]:
    """Entries of good bands to hide, a fold at a time."""
    usable = cube.good_bands & seen.any(axis=(1, 2))
    found = validate.folds(seen[usable], count, np.random.default_rng(seed))
    out = []
    for fold in found:
        whole = np.zeros(seen.shape, bool)
        whole[usable] = fold & seen[usable]
        if whole.any(axis=0).sum() >= FEWEST and (seen & ~whole)[usable].any(axis=(1, 2)).all():
            out.append(whole)
    return out


def _partial(seen: Bools) -> int:
    """Pixels that keep some of their bands, less those that keep none: above 0 for most."""
    some, none = ~seen.all(axis=0), ~seen.any(axis=0)
    return int((some & ~none).sum()) - int(none.sum())


def _gaps(seen: Bools) -> int:
    """Pixels that lack a band."""
    return int((~seen.all(axis=0)).sum())


def _chosen(c: Candidate, **more: Any) -> Any:
    return choose(c.method, None, {**c.settings, **more})


def _is_noisy(sigma_y: Sigma) -> bool:
    return isinstance(sigma_y, str) or bool(np.any(np.asarray(sigma_y, dtype=float) > 0))


def _crossfit(
    c: Candidate, parts: Sequence[tuple[Cube, Bools]], sigma_y: Sigma, job: Job
) -> list[Estimate]:
    runs = [estimating(cube, seen, _chosen(c), sigma_y, job) for cube, seen in parts]
    return estimates(runs, job.deterministic)


def _mean_estimate(fits: Sequence[Estimate]) -> Estimate:
    """Fits on different folds, averaged: each left out other entries."""
    return fits[0]._replace(values=np.mean([f.values for f in fits], axis=0))


def _band_spread(cube: Cube, seen: Bools) -> Floats:
    """(bands,) standard deviation of the seen entries; 1 for constant bands."""
    values = np.asarray(cube.values, dtype=np.float64)
    spread = np.array([v[s].std() if s.any() else 0.0 for v, s in zip(values, seen, strict=True)])
    return np.where(spread > 0, spread, 1.0)


def _groups(bands: int) -> Ints:
    """(bands,) the group of each band."""
    return np.minimum(np.arange(bands) * BAND_GROUPS // max(bands, 1), BAND_GROUPS - 1)


class Look(NamedTuple):
    """One candidate on the hidden entries of a fold that are looked at."""

    residual: Floats  # (n,) in the cube's unit
    sigma_y: Floats  # (bands,)
    angle: Floats  # (2, pixels) as in Trial


def _looked_at(fold: Bools) -> tuple[Ints, Ints, Ints]:
    """(band, row, col) of hidden entries, at most MOST_LOOKED: neighbours tell much the same."""
    at = np.flatnonzero(fold)
    band, row, col = np.unravel_index(at[:: -(-len(at) // MOST_LOOKED)], fold.shape)
    return band, row, col


def _look(fit: Estimate, cube: Cube, seen: Bools, fold: Bools) -> Look:
    at = _looked_at(fold)
    pixels = fold.any(axis=0)
    kept = seen[:, pixels]
    truth = np.asarray(cube.values[:, pixels], dtype=np.float64)
    b = np.where(kept, truth, 0.0)
    a = np.where(kept, np.where(fold[:, pixels], fit.values[:, pixels], truth), 0.0)
    angle = np.stack([_relative(np.linalg.norm(a - b, axis=0), b), _angle(a, b)])
    return Look(fit.values[at] - np.asarray(cube.values)[at], fit.sigma_y, angle)


def _trial(cube: Cube, seen: Bools, fold: Bools, looks: Sequence[Look | None]) -> Trial:
    kept = seen & ~fold
    spread = _band_spread(cube, kept)
    band, row, col = _looked_at(fold)
    first = looks[0]
    assert first is not None  # the default candidate is never costly
    residual = np.stack([np.full(len(band), np.nan) if k is None else k.residual for k in looks])
    distance = np.empty(seen.shape, np.intp)
    distance[:] = validate.distance_class(mask.shared(kept))
    rough = validate.roughness(np.asarray(cube.values, dtype=np.float64), kept)[row, col]
    noise = (first.sigma_y / spread)[band] ** 2
    return Trial(residual / spread[band], band, distance[band, row, col], rough, noise, first.angle)


def _relative(size: Floats, spectra: Floats) -> Floats:
    """A size (pixels,) as a share of the length of spectra (bands, pixels); 0 where they are 0."""
    length = np.linalg.norm(spectra, axis=0)
    share: Floats = np.divide(size, length, out=np.zeros(length.shape), where=length > 0)
    return share


def _angle(a: Floats, b: Floats) -> Floats:
    """(pixels,) degrees between spectra (bands, pixels); 0 where one of them is 0."""
    ones = np.ones(a.shape[1])
    cosine = np.einsum("bp,bp->p", a * _relative(ones, a), b * _relative(ones, b))
    either = a.any(axis=0) & b.any(axis=0)
    angle: Floats = np.where(either, np.degrees(np.arccos(np.clip(cosine, -1, 1))), 0.0)
    return angle


def _kinds(cube: Cube, seen: Bools, target: Bools) -> tuple[Ints, Floats]:
    """Distance class and roughness of the entries to fill in good bands."""
    target = target & cube.good_bands[:, None, None]
    distance = np.empty(seen.shape, np.intp)
    distance[:] = validate.distance_class(mask.shared(seen))
    values = np.asarray(cube.values, dtype=np.float64)
    rough = np.broadcast_to(validate.roughness(values, seen), seen.shape)
    return distance[target], rough[target]


def _importance(trial: Trial, target: tuple[Ints, Floats]) -> Floats:
    """(n,) so that the hidden entries count like those to fill, by distance and texture."""
    edges = np.quantile(target[1], [1 / 3, 2 / 3]) if len(target[1]) else [0.0, 0.0]
    mine = trial.distance * T + np.digitize(trial.rough, edges)
    theirs = target[0] * T + np.digitize(target[1], edges)
    return validate.importance(mine, theirs, D * T)


def _weights(
    trials: Sequence[Trial],
    target: tuple[Ints, Floats],
    candidates: Sequence[Candidate],
    seed: int,
) -> tuple[Floats, str]:
    """Blending weights (M, D, G), convex over M, and why.

    The squared error of a blend is a quadratic form in its weights, so the matrices of the
    candidates' error products per fold and class are all that is needed.
    """
    M, default = len(candidates), np.zeros((len(candidates), D, BAND_GROUPS))
    default[0] = 1
    if M == 1:
        return default, f"{candidates[0].name} is the only candidate"
    # a costly candidate was not fitted on every fold: compare where all were
    trials = [t for t in trials if np.isfinite(t.residual).all(axis=0).any()]
    if len(trials) < 2:
        return default, f"too few observed pixels to try the candidates on: {candidates[0].name}"
    products = np.stack([_products(t, _importance(t, target)) for t in trials])
    best = _blend(products.sum(axis=0), M)
    loss = np.array([_losses(products, i, M) for i in range(len(trials))])  # default, blend
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(trials), size=(BOOTSTRAPS, len(trials)))
    gains = 1 - loss[draws, 1].sum(axis=1) / np.maximum(loss[draws, 0].sum(axis=1), 1e-300)
    gain = float(1 - loss[:, 1].sum() / max(loss[:, 0].sum(), 1e-300))
    error = float(gains.std())
    share = (
        best[:, products.sum(axis=(0, 3, 4)) > 0].mean(axis=1) if products.any() else best[:, 0, 0]
    )
    told = f"{100 * gain:.1f} ± {100 * error:.1f} % of the squared error on {len(trials)} folds"
    if not gain > error:
        return default, f"{candidates[0].name} alone: blending would gain {told}"
    shares = ", ".join(f"{c.name} {100 * s:.0f} %" for c, s in zip(candidates, share, strict=True))
    return best, f"blend of {shares}, by distance and band group: it gained {told}"


def _products(trial: Trial, weight: Floats) -> Floats:
    """(D, G, M, M + 1): sums of products of the candidates' residuals per class, and the count.

    Every band counts alike, whatever its error: that is what a mean over bands of PSNR rewards.
    """
    M = len(trial.residual)
    bands = int(trial.band.max()) + 1
    present = np.isfinite(trial.residual).all(axis=0)
    squares = np.bincount(trial.band, trial.residual[0] ** 2, bands)
    scale = np.sqrt(squares / np.maximum(np.bincount(trial.band, minlength=bands), 1))
    r = trial.residual / np.maximum(scale[trial.band], 1e-12)
    cell = trial.distance * BAND_GROUPS + _groups(bands)[trial.band]
    out = np.zeros((D * BAND_GROUPS, M, M + 1))
    for i in range(M):
        for j in range(M):
            product = np.where(present, weight * r[i] * r[j], 0.0)
            out[:, i, j] = np.bincount(cell, product, len(out))
    out[:, :, M] = np.bincount(cell, present * weight, len(out))[:, None]
    return out.reshape(D, BAND_GROUPS, M, M + 1)


def _blend(products: Floats, M: int) -> Floats:
    """The convex weights of least squared error in every class, each borrowing from all."""
    pooled = products.sum(axis=(0, 1))
    mean = pooled[:, :M] / max(pooled[0, M], 1e-300)
    weights = np.empty((M, D, BAND_GROUPS))
    for d in range(D):
        for g in range(BAND_GROUPS):
            weights[:, d, g] = _simplex(products[d, g, :, :M] + BORROWED * mean)
    return weights


def _simplex(A: Floats) -> Floats:
    """argmin wᵀ A w over w ≥ 0, Σ w = 1."""
    M = len(A)
    scale = np.trace(A) / M
    if not scale > 0:
        first: Floats = np.eye(M)[0]
        return first
    root = np.linalg.cholesky(A / scale + 1e-6 * np.eye(M)).T
    w, _ = optimize.nnls(np.vstack([root, 1e3 * np.ones(M)]), np.r_[np.zeros(M), 1e3])
    convex: Floats = w / w.sum()
    return convex


def _losses(products: Floats, fold: int, M: int) -> tuple[float, float]:
    """Squared error in one fold of the default, and of the blend that the other folds advise."""
    others = np.delete(products, fold, axis=0).sum(axis=0)
    w = _blend(others, M)
    own = products[fold][..., :M]
    return float(own[..., 0, 0].sum()), float(np.einsum("idg,dgij,jdg->", w, own, w))


# ── how large the errors were ────────────────────────────────────────────────────────────────────


def _errors(
    trials: Sequence[Trial], weights: Floats, kinds: tuple[Ints, Floats], bands: int
) -> dict[str, Any]:
    """Mean square errors of the blend on hidden entries: class × band × texture, in units of σ_b².

    `widening`: factor that makes the 80 % intervals of a Gaussian cover 80 %; `intervals`: how wide
    those of 50, 80 and 95 % are, in σ; `angle`: spectral angle (°) per relative error.
    """
    edges = np.quantile(kinds[1], [1 / 3, 2 / 3]).tolist() if len(kinds[1]) else [0.0, 0.0]
    plain = {"by_class": None, "by_band": [1.0] * bands, "by_texture": [1.0] * T}
    # costly candidates were fitted on some folds only: what the blend does is seen there
    trials = [t for t in trials if np.isfinite(t.residual).all()] or trials
    if not trials:
        told = {"widening": 1.0, "intervals": list(NORMAL_QUANTILES), "angle": None}
        return {**plain, "texture_edges": edges, **told}
    band, distance, rough, noise, weight = (
        np.concatenate(parts)
        for parts in zip(
            *((t.band, t.distance, t.rough, t.noise, _importance(t, kinds)) for t in trials),
            strict=True,
        )
    )
    group, texture = _groups(bands)[band], np.digitize(rough, edges)
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
    ratio = np.sqrt(square / (expected + noise))
    order = np.argsort(ratio)
    share = np.cumsum(weight[order]) / weight.sum()
    reached = np.minimum(np.searchsorted(share, (0.5, 0.8, 0.95)), len(ratio) - 1)
    at_50, at_80, at_95 = ratio[order][reached]
    widening = float(at_80 / NORMAL_80)
    relative, angle = np.concatenate([t.angle for t in trials], axis=1)
    return {
        "by_class": by_class.tolist(),
        "classes_seen": seen_classes.tolist(),
        "by_band": by_band.tolist(),
        "by_texture": by_texture.tolist(),
        "texture_edges": edges,
        "widening": widening,
        # half widths of the 50, 80 and 95 % intervals in σ: the tails are heavier than a Gaussian's
        "intervals": [float(at / max(widening, 1e-300)) for at in (at_50, at_80, at_95)],
        "angle": float(angle.sum() / relative.sum()) if relative.sum() > 0 else None,
    }


# ── applying ─────────────────────────────────────────────────────────────────────────────────────


def _apply(
    recipe: dict[str, Any],
    cube: Cube,
    seen: Bools,
    target: Bools,
    sigma_y: Sigma,
    job: Job,
    ready: Mapping[str, Estimate],
) -> tuple[Estimate, Decision]:
    weights = np.asarray(recipe["weights"], dtype=np.float64)
    used: Bools = np.asarray(weights.any(axis=(1, 2)))
    used[0] = True  # the error bars are built on the default's
    distance = np.empty(seen.shape, np.intp)
    distance[:] = validate.distance_class(mask.shared(seen))
    group = np.broadcast_to(_groups(cube.bands)[:, None, None], seen.shape)
    entries = [entry for entry, wanted in zip(recipe["candidates"], used, strict=True) if wanted]

    def fitted(i: int) -> Estimate:
        entry = entries[i]
        candidate = Candidate(entry["name"], entry["method"], entry["settings"], "fits" in entry)
        found = ready.get(candidate.name)
        if found is None:
            found = _fitted(candidate, entry, cube, seen, sigma_y, job, bars=i == 0)
        return found

    room = MEMORY if job.common is None else 0.0  # a part of a scene has its own bound
    with ThreadPoolExecutor(_workers(cube, room)) as pool:
        plain = [i for i, entry in enumerate(entries) if "fits" not in entry]
        beside = pool.map(fitted, plain)
        found = {i: fitted(i) for i in range(len(entries)) if i not in plain}
        found |= dict(zip(plain, beside, strict=True))
    first = found[0]
    values = np.zeros(seen.shape)
    notes: list[str] = []
    for i, weight in enumerate(weights[used]):
        notes += [n for n in found[i].notes if n not in notes]
        share = weight[distance, group]
        told = np.where(np.isfinite(found[i].values), found[i].values, first.values)
        values += np.where(share > 0, share * told, 0.0)
    # bad bands, and bands nobody observed, are the plain fill of any candidate
    judged = cube.good_bands[:, None, None] & np.isfinite(first.values)
    values = np.where(judged, values, first.values)
    if recipe["errors"]["by_class"] is None:  # nothing was hidden: a posterior is no promise
        unknown = "too few observed pixels to tell how good the fill is: no error bars"
        notes = [f"auto: {recipe['why']}", *notes, *([unknown] if target.any() else [])]
        decision = Decision(recipe, {}, np.zeros(seen.shape))
        return first._replace(values=values, sigma=None, notes=notes), decision
    variance = _variance(recipe["errors"], cube, seen, target, distance, first)
    spread = _band_spread(cube, seen)[:, None, None]
    sigma = np.sqrt(variance) * recipe["errors"]["widening"]
    decision = Decision(
        recipe,
        _expected(recipe["errors"], cube, seen, target, values, variance, first.sigma_y),
        np.sqrt(variance) / spread,
    )
    notes = [f"auto: {recipe['why']}", *notes, *_advice(decision, cube, target)]
    return first._replace(values=values, sigma=sigma, notes=notes), decision


def _fitted(
    candidate: Candidate,
    entry: Mapping[str, Any],
    cube: Cube,
    seen: Bools,
    sigma_y: Sigma,
    job: Job,
    bars: bool,
) -> Estimate:
    if candidate.crossfit:
        alone = job._replace(checkpoint=None)
        hidden = _folds(cube, seen, entry["of"], entry["seed"])[: entry["fits"]]
        parts = [(cube, seen & ~fold) for fold in hidden]
        return _mean_estimate(_crossfit(candidate, parts, sigma_y, alone))
    more = {"error_bars": True} if bars and candidate.method == "smooth" else {}
    return estimate(cube, seen, _chosen(candidate, **more), sigma_y, job)


def _variance(
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
    spread = _band_spread(cube, seen)[:, None, None]
    posterior = np.full(seen.shape, np.nan) if first.sigma is None else first.sigma**2
    posterior = np.where(np.isfinite(posterior), posterior / spread**2, 0.25)
    by_class = np.array(errors["by_class"], dtype=np.float64)
    group = _groups(cube.bands)
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
    values = np.asarray(cube.values, dtype=np.float64)
    texture = np.digitize(validate.roughness(values, seen), errors["texture_edges"])
    expected = by_class[distance, group3] * np.asarray(errors["by_texture"], np.float64)[texture]
    expected = expected * by_band[:, None, None] * np.clip(within, 0.25, 4.0)
    return np.where(target, expected * spread**2, 0.0)


def _mean_by_class(values: Floats, distance: Ints, where: Bools) -> Floats:
    """(D,) mean of one band's values (rows, cols) over each distance class; 0 for empty ones."""
    total = np.bincount(distance[where], minlength=D)
    mean: Floats = np.bincount(distance[where], values[where], D) / np.maximum(total, 1)
    return mean


def _expected(
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
    spread = np.sqrt(np.maximum(_band_spread(cube, seen) ** 2 - sigma_y**2, square.min()))
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
        found["sam"] = errors["angle"] * float(np.mean(_relative(error, spectra)))
    return found


def _advice(decision: Decision, cube: Cube, target: Bools) -> Iterator[str]:
    """What a user should know before trusting the fill."""
    told = decision.expected
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
    hopeless = judged & (decision.relative > HOPELESS)
    if hopeless.any():
        yield (
            f"{100 * hopeless.sum() / judged.sum():.0f} % of the filled entries are expected to be "
            "hardly better than their band's mean (gaps too wide, or no data nearby); "
            f"--max-error {HOPELESS:g} leaves them missing"
        )
