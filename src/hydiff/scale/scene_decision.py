"""What all tiles of a scene share, decided once on a sample of windows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import auto
from hydiff.auto import split
from hydiff.auto.classes import band_spread
from hydiff.cube import Bools, Cube, Floats, Scale, detector_scale
from hydiff.gaps import rule
from hydiff.maths.subspace import Subspace
from hydiff.methods import choose
from hydiff.methods.estimate import Common, Extent, Job, modelled
from hydiff.request import Request
from hydiff.scale import ledger
from hydiff.scale.plan import SIZES, Limits, Scene, area, base, cost, opened, window
from hydiff.scale.tiles import Tile

SAMPLES = 4  # windows that the decision is made on
SAMPLE_PIXELS = 10_000  # of them that scale and basis are taken from


class Decided(NamedTuple):
    """What is the same for all tiles of a scene."""

    recipe: dict[str, Any] | None
    sigma_y: list[float]  # (bands,) in the cube's unit
    common: Common
    notes: list[str]


def decision(scene: Scene, order: Request, bounds: Limits) -> Decided:
    """The decision of this run, from the disk if it was made before."""
    path = scene.work / "decided.json"
    if not path.exists():
        told = _as_json(_decide(scene, order, bounds))
        ledger.write_whole(path, json.dumps(told).encode())
    return read(scene.work)  # the numbers that a resumed run would have


def read(work: Path) -> Decided:
    """The decision that was made, from the folder of the scene."""
    decided = _from_json(json.loads((work / "decided.json").read_text()))
    if not prior_path(work).exists():
        return decided
    with np.load(prior_path(work), allow_pickle=False) as arrays:
        prior = {name: arrays[name] for name in arrays.files}
    return decided._replace(common=decided.common._replace(prior=prior))


def prior_path(work: Path) -> Path:
    """Where the network lies that the tiles start from, if there is one."""
    return work / "prior.npz"


def _decide(scene: Scene, order: Request, bounds: Limits) -> Decided:
    cube, chosen = scene.cube, order.chosen
    good = cube.good_bands
    sigma_y = rule.sigma_per_band(order.sigma_y, cube)
    sample = spread_over(scene.planned, SAMPLES)
    if chosen is None and order.recipe is None:
        sample += _other_kinds(scene, sample)
    pixels, measured = _pooled(scene, sample)
    scale = detector_scale(pixels, measured, good, cube.detectors)
    fitted = good & scene.observed.some()
    sigmas, notes, spectra = [], [], []
    kriging = chosen or choose(auto.SMOOTH.method)
    shares_space = "space" in kriging.facts.asks
    every = -(-sum(area(t.window) for t in sample) // SAMPLE_PIXELS)
    for tile in sample:
        part, observed, _ = _part(scene, tile)
        y = np.where(observed, scale.to_unit(np.asarray(part.values, dtype=np.float64)), 0.0)
        sigma, told = rule.unit_sigma(sigma_y, y, observed, good, scale)
        if chosen is not None:
            sigma, more = modelled(chosen, sigma)
            told = [*told, *more]
        sigmas.append(sigma)
        notes += [note for note in told if note not in notes]
        if shares_space:
            from hydiff.methods import smooth

            complete = smooth.spectra(y[fitted], observed[fitted], sigma[fitted])
            spectra.append(complete[:, ::every])
    sigma = np.median(sigmas, axis=0) if sigmas else np.zeros(cube.bands)
    space = None
    if shares_space and sum(part.shape[1] for part in spectra) > kriging.settings.components:
        from hydiff.maths import subspace

        pooled = np.concatenate(spectra, axis=1)
        space = subspace.fit(pooled, np.ones(pooled.shape, bool), kriging.settings.components)
    recipe = None if order.recipe is None else dict(order.recipe)
    if recipe is not None:
        notes += auto.note_of_origin(recipe, scene.content)
    if chosen is None and recipe is None and sample:
        windows = [auto.TrialWindow(*_part(scene, tile)) for tile in sample]
        largest = max(area(t.window) for t in sample)
        room = bounds.memory - base(order) - cost(order, cube.bands, largest)
        job = Job(order.seed, order.device, order.deterministic, None, False)
        recipe, _ = auto.decide_on(
            windows, sigma_y, auto.budget_of(order.budget, job), job, memory=max(room, 0.0)
        )
        recipe |= {"budget": order.budget, "cube": scene.content}
    if order.prior:
        notes.append(f"tiles started from one network, trained on the scene: {order.prior} updates")
    common = Common(scale, fitted, space, _extent(pixels, measured, good))
    return Decided(recipe, (sigma * scale.spans).tolist(), common, notes)


def spread_over(planned: Sequence[Tile], count: int) -> list[Tile]:
    """So many tiles, or all, spread evenly over the scene."""
    at = np.linspace(0, len(planned) - 1, min(count, len(planned)))
    return [planned[round(i)] for i in at]


def _other_kinds(scene: Scene, sample: Sequence[Tile]) -> list[Tile]:
    """Tiles with a kind of gaps that is to be filled and that a sample lacks, one for each."""
    present = set[str]().union(*(_kinds(scene, tile) for tile in sample))
    more = []
    for tile in scene.planned:
        if len(present) == len(split.KINDS):
            break
        if new := _kinds(scene, tile) - present:
            present |= new
            more.append(tile)
    return more


def _kinds(scene: Scene, tile: Tile) -> set[str]:
    """The kinds of gaps that are to be filled in a tile; no values are read."""
    return split.aims(auto.TrialWindow(*window(scene.cube, scene.observed, scene.target, tile)))


def _pooled(scene: Scene, sample: Sequence[Tile]) -> tuple[Floats, Bools]:
    """Some pixels of the sample (bands, n, 1), and which entries of them were seen."""
    step = -(-sum(area(t.window) for t in sample) // SAMPLE_PIXELS)
    parts = []
    for tile in sample or [_whole(scene)]:
        part, observed, _ = _part(scene, tile)
        values = np.asarray(part.values).reshape(scene.cube.bands, -1)[:, :: max(step, 1)]
        parts.append(
            (values.astype(np.float64), observed.reshape(len(observed), -1)[:, :: max(step, 1)])
        )
    values, observed = (np.concatenate(p, axis=1)[:, :, None] for p in zip(*parts, strict=True))
    return values, observed


def _extent(pixels: Floats, observed: Bools, good: Bools) -> Extent:
    told = pixels[observed & good[:, None, None]]
    peak = float(np.ptp(told)) if len(told) else 0.0
    return Extent(band_spread(Cube(pixels), observed), peak)


def _whole(scene: Scene) -> Tile:
    rows, cols = (slice(0, min(n, SIZES[0])) for n in scene.cube.shape[1:])
    return Tile(0, (rows, cols), (rows, cols))


def _as_json(decided: Decided) -> dict[str, Any]:
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


def _from_json(told: Mapping[str, Any]) -> Decided:
    low, high = (e if isinstance(e, float) else np.asarray(e) for e in told["scale"])
    space = None
    if told["space"] is not None:
        mean, basis, variance, noise = told["space"]
        space = Subspace(np.asarray(mean), np.asarray(basis), np.asarray(variance), float(noise))
    extent = None
    if told["extent"] is not None:
        extent = Extent(np.asarray(told["extent"][0]), told["extent"][1])
    common = Common(Scale(low, high), np.asarray(told["bands"], bool), space, extent)
    return Decided(told["recipe"], told["sigma_y"], common, told["notes"])


def _part(scene: Scene, tile: Tile) -> tuple[Cube, Bools, Bools]:
    return window(opened(scene.path, scene.var), scene.observed, scene.target, tile)
