"""The decision that all tiles of a scene share, made once on a sample of windows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import auto
from hydiff.auto import split
from hydiff.auto.candidates import TUNED_BY_TILES, on_gpu
from hydiff.auto.classes import band_spread
from hydiff.cube import Bools, Cube, Floats, Scale, detector_scale
from hydiff.io.threads import in_threads
from hydiff.maths import noise_level
from hydiff.maths.subspace import Subspace
from hydiff.methods import choose
from hydiff.methods.estimate import Common, Extent, Job, modelled
from hydiff.scale import ledger, scene_references
from hydiff.scale.layout import SIZES, Scene, uses_network, window
from hydiff.scale.tiles import Tile
from hydiff.workers.local import Processes

Window = tuple[Cube, Bools, Bools]  # values, observed entries and entries to fill of a tile

SAMPLES = 4  # number of windows for the decision
SAMPLE_PIXELS = 10_000  # number of their pixels for the scale and the spectral basis


@dataclass(frozen=True, eq=False)
class Decided:
    """Everything that is the same for all tiles of a scene."""

    recipe: dict[str, Any] | None
    sigma_y: list[float]  # (bands,) in the cube's unit
    common: Common
    notes: list[str]


def decision(scene: Scene, room: float, helpers: Processes | None = None) -> Decided:
    """Return the decision of this run, from disk if it was made before.

    room: bytes that all trials together may take.  helpers: processes that may run trials.
    """
    path = scene.work / "decided.json"
    if not path.exists():
        ledger.write_whole(path, json.dumps(_as_json(_decide(scene, room, helpers))).encode())
    return read(scene.work)  # so that a resumed run has exactly the same numbers


def read(work: Path) -> Decided:
    """Return the decision stored in the folder of a scene, with its trained network if any."""
    decided = _from_json(json.loads((work / "decided.json").read_text()))
    if not prior_path(work).exists():
        return decided
    with np.load(prior_path(work), allow_pickle=False) as arrays:
        prior = {name: arrays[name] for name in arrays.files}
    return replace(decided, common=decided.common._replace(prior=prior))


def prior_path(work: Path) -> Path:
    """Return the path of the weights that tiles start from; the file need not exist."""
    return work / "prior.npz"


def _decide(scene: Scene, room: float, helpers: Processes | None) -> Decided:
    """Make the decision: scale, noise, spectral basis and, for `auto`, the recipe."""
    cube, request, chosen = scene.cube, scene.request, scene.request.chosen
    good = cube.good_bands
    sigma_y = noise_level.sigma_per_band(request.sigma_y, cube)
    sample = spread_over(scene.planned, SAMPLES)
    windows = [scene.window(tile) for tile in sample or [_whole(scene)]]
    if chosen is None and request.recipe is None:
        others = _other_kinds(scene, windows)
        sample, windows = sample + others, windows + [scene.window(tile) for tile in others]
    pixels, measured = _pooled(windows)
    scale = detector_scale(pixels, measured, good, cube.detectors)
    fitted = good & scene.observed.some()
    sigma, space, notes = _noise_and_basis(scene, windows[: len(sample)], scale, fitted, sigma_y)
    if chosen is None or chosen.facts.uses_sigma:
        part, seen, _ = windows[len(sample) // 2]
        notes += noise_level.doubts(sigma_y, part, seen, scale)
    recipe = None if request.recipe is None else dict(request.recipe)
    if recipe is not None:
        notes += auto.note_of_origin(recipe, scene.content)
    elif chosen is None and sample:
        recipe = _recipe(scene, sample, windows, sigma_y, room, helpers)
    if request.pretrain:
        notes.append(
            f"tiles started from one network, trained on the scene: {request.pretrain} updates"
        )
    common = Common(scale, fitted, space, _extent(pixels, measured, good))
    return Decided(recipe, (sigma * scale.spans).tolist(), common, notes)


def _noise_and_basis(
    scene: Scene, windows: Sequence[Window], scale: Scale, fitted: Bools, sigma_y: Any
) -> tuple[Floats, Subspace | None, list[str]]:
    """Return the noise std (bands,) on the unit range, the spectral basis or None, and notes.

    The noise is the median of the windows.  A basis is fitted if the method shares one between
    tiles and there are enough spectra.
    """
    chosen, cube = scene.request.chosen, scene.cube
    sigmas, notes, spectra = [], list[str](), []
    kriging = chosen or choose(auto.SMOOTH.method)
    shares_space = "space" in kriging.facts.asks
    step = _step(windows)
    for part, observed, _ in windows:
        y = np.array(part.values, dtype=np.float64, order="C")
        y -= scale.low  # in place: windows are large
        y /= scale.span
        np.copyto(y, 0.0, where=~observed)
        sigma, window_notes = noise_level.unit_sigma(
            sigma_y, y, observed, cube.good_bands, scale, cube.detectors
        )
        if chosen is not None:
            sigma, model_notes = modelled(chosen, sigma)
            window_notes = [*window_notes, *model_notes]
        sigmas.append(sigma)
        notes += [note for note in window_notes if note not in notes]
        if shares_space:
            from hydiff.methods import smooth

            arrays = (y, observed, sigma)
            arrays = arrays if fitted.all() else (y[fitted], observed[fitted], sigma[fitted])
            spectra.append(smooth.spectra(*arrays, step))
    space = None
    if shares_space and sum(part.shape[1] for part in spectra) > kriging.settings.components:
        from hydiff.maths import subspace

        pooled = np.concatenate(spectra, axis=1)
        space = subspace.fit(pooled, np.ones(pooled.shape, bool), kriging.settings.components)
    return np.median(sigmas, axis=0) if sigmas else np.zeros(cube.bands), space, notes


def _recipe(
    scene: Scene,
    sample: Sequence[Tile],
    windows: Sequence[Window],
    sigma_y: Any,
    room: float,
    helpers: Processes | None,
) -> dict[str, Any]:
    """Return the recipe that `auto` decides on the windows of a sample; see `decision`."""
    request = scene.request
    trial_windows = [
        auto.TrialWindow(*part, references=scene_references.within(scene.work, tile.window))
        for part, tile in zip(windows, sample, strict=True)
    ]
    job = Job(request.seed, request.device, request.deterministic)
    tune = request.budget in TUNED_BY_TILES and not auto.is_noisy(sigma_y)
    gpu = None
    if helpers is not None and uses_network(request):  # they have loaded torch
        helpers.share(request.device)
        gpu = helpers.submit(on_gpu).result()
    budget = auto.budget_of(request.budget, job, not request.no_prior, tune, gpu)
    options: dict[str, Any] = {"memory": room, "helpers": helpers}
    recipe, _ = auto.decide_on(trial_windows, sigma_y, budget, job, **options)
    return recipe | {"budget": request.budget, "cube": scene.content}


def spread_over(planned: Sequence[Tile], count: int) -> list[Tile]:
    """Return `count` tiles, or all if there are fewer, spread evenly over the scene."""
    at = np.linspace(0, len(planned) - 1, min(count, len(planned)))
    return [planned[round(i)] for i in at]


def _other_kinds(scene: Scene, sample: Sequence[Window]) -> list[Tile]:
    """Return a tile for each kind of gaps that is to be filled and does not occur in a sample."""
    present = set[str]().union(
        *(split.kinds_to_fill(auto.TrialWindow(*window)) for window in sample)
    )
    additional: list[Tile] = []
    if len(present) == len(split.KINDS):
        return additional
    possible = _possible(scene)
    new_to_sample = (possible[kind] for kind in split.KINDS if kind not in present)
    where = np.any([*new_to_sample], axis=0)
    tiles = [tile for tile in scene.planned if where[tile.support].any()]
    for tile, tile_kinds in zip(tiles, in_threads(partial(_kinds, scene), tiles), strict=False):
        if new := tile_kinds - present:
            present |= new
            additional.append(tile)
        if len(present) == len(split.KINDS):
            break
    return additional


def _possible(scene: Scene) -> dict[str, Bools]:
    """(rows, cols) pixels that may have entries to fill, by kind of gaps.

    Whether they have, depends on the window: a band that it lacks altogether does not count.
    """
    good = scene.cube.good_bands
    kept = scene.observed.any_in(good)
    return {split.NONE: scene.gaps & ~kept, split.SOME: scene.target.any_in(good) & kept}


def _kinds(scene: Scene, tile: Tile) -> set[str]:
    """Return the kinds of gaps that are to be filled in a tile, without reading its values."""
    nothing = np.broadcast_to(np.zeros((), scene.cube.dtype), scene.cube.shape)
    without = replace(scene.cube, values=nothing)
    return split.kinds_to_fill(
        auto.TrialWindow(*window(without, scene.observed, scene.target, tile))
    )


def _step(windows: Sequence[Window]) -> int:
    """Return the regular step at which about SAMPLE_PIXELS pixels of some windows are taken."""
    return max(1, -(-sum(math.prod(part.shape[1:]) for part, _, _ in windows) // SAMPLE_PIXELS))


def _pooled(windows: Sequence[Window]) -> tuple[Floats, Bools]:
    """Return pixels of some windows at regular steps, (bands, n, 1), and their observed entries."""
    step, parts = _step(windows), []
    for part, observed, _ in windows:
        values = np.asarray(part.values).reshape(part.bands, -1)[:, ::step]
        parts.append((values.astype(np.float64), observed.reshape(part.bands, -1)[:, ::step]))
    values, observed = (np.concatenate(p, axis=1)[:, :, None] for p in zip(*parts, strict=True))
    return values, observed


def _extent(pixels: Floats, observed: Bools, good: Bools) -> Extent:
    """Return the spread of each band (bands,), and the range of the values in good bands."""
    values = pixels[observed & good[:, None, None]]
    peak = float(np.ptp(values)) if len(values) else 0.0
    return Extent(band_spread(Cube(pixels), observed), peak)


def _whole(scene: Scene) -> Tile:
    """Return a tile of at most SIZES[0] px, which stands for a scene without tiles."""
    rows, cols = (slice(0, min(n, SIZES[0])) for n in scene.cube.shape[1:])
    return Tile(0, (rows, cols), (rows, cols))


def _as_json(decided: Decided) -> dict[str, Any]:
    """Return a decision for JSON, without trained weights, which are in a file of their own."""
    scale, bands, space, extent, _ = decided.common
    return {
        "extent": None if extent is None else [extent.spread.tolist(), extent.peak],
        "recipe": decided.recipe,
        "sigma_y": decided.sigma_y,
        "scale": [np.asarray(end).tolist() for end in scale],
        "bands": bands.tolist(),
        "space": None if space is None else [np.asarray(part).tolist() for part in space],
        "notes": decided.notes,
    }


def _from_json(entries: Mapping[str, Any]) -> Decided:
    """Return the decision of `_as_json`."""
    low, high = (e if isinstance(e, float) else np.asarray(e) for e in entries["scale"])
    space = extent = None
    if entries["space"] is not None:
        mean, basis, variance, noise = entries["space"]
        space = Subspace(np.asarray(mean), np.asarray(basis), np.asarray(variance), float(noise))
    if entries["extent"] is not None:
        extent = Extent(np.asarray(entries["extent"][0]), entries["extent"][1])
    common = Common(Scale(low, high), np.asarray(entries["bands"], bool), space, extent)
    return Decided(entries["recipe"], entries["sigma_y"], common, entries["notes"])
