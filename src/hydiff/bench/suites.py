"""The run matrices: which cells a table is made of.  To add one, add a line to SUITES."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from hydiff.bench import scenes
from hydiff.bench.cells import INPUT, TUNING, Cell
from hydiff.methods import METHODS

PEERS = ("dhp", "r-dlrhyin", "hir-diff", "share", "dds2m")
CLASSICAL = ("bandmean", "harmonic", "smooth", "rbf", "dineof", "halrtc", "exemplar")
FOR_NOISE = ("bandmean", "smooth", "subspace-fill")
PUBLISHED = tuple(f"published-{i}" for i in range(1, 5))
NOISE = (0.1, 0.2, 0.3)
TRANSFORMS = ("shift", "rotation", "scaling", "reflection", "similarity", "affine")
WIDTHS = tuple(f"width-{w}" for w in (2, 4, 8, 16))


@dataclass(frozen=True)
class Plan:
    """What the caller may choose of a suite."""

    scenes: tuple[str, ...]
    seeds: int = 3  # of methods that draw random numbers
    masks: tuple[str, ...] | None = None  # None = those of the suite
    methods: tuple[str, ...] | None = None
    preset: str | None = None  # of learned methods
    tuned: bool = False  # peers once more, set on hidden pixels
    offline_minutes: float = 2.0
    quick: bool = False


class Suite(NamedTuple):
    title: str
    cells: Callable[[Plan], Iterator[Cell]]
    reference: str  # the row that others are compared with
    caveat: str  # why ours and the paper's figures are not the same quantity


def _grid(
    plan: Plan, methods: tuple[str, ...], masks: tuple[str, ...], noise: tuple[float, ...]
) -> Iterator[Cell]:
    methods = tuple(m for m in methods if plan.methods is None or m in plan.methods)
    masks = plan.masks or (masks[:2] if plan.quick else masks)
    where = product(noise, plan.scenes, masks, methods)
    for sigma, scene, mask, method in where:
        yield from seeded(plan, Cell(method, scene, mask, sigma))
        if plan.tuned and method in TUNING:
            yield from seeded(plan, Cell(method, scene, mask, sigma, 0, json.dumps({"tuned": 1})))


def seeded(plan: Plan, cell: Cell) -> Iterator[Cell]:
    """A cell for each seed: one is enough where neither noise nor method is random."""
    random = cell.sigma_y > 0 or (cell.method != INPUT and METHODS[cell.method].backend == "torch")
    if plan.preset and cell.method != INPUT and METHODS[cell.method].backend == "torch":
        cell = replace(cell, settings=_with(cell.settings, preset=plan.preset))
    if plan.quick and cell.method in QUICK:
        cell = replace(cell, settings=json.dumps(QUICK[cell.method] | json.loads(cell.settings)))
    for seed in range(plan.seeds if random else 1):
        yield replace(cell, seed=seed)


def _with(settings: str, **more: Any) -> str:
    return json.dumps(json.loads(settings) | more)


def noiseless(plan: Plan) -> Iterator[Cell]:
    return _grid(plan, (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), PUBLISHED, (0.0,))


def noisy(plan: Plan) -> Iterator[Cell]:
    return _grid(plan, (INPUT, *FOR_NOISE, *PEERS, "hydiff-ei"), PUBLISHED, NOISE)


def emit(plan: Plan) -> Iterator[Cell]:
    return _grid(plan, (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), ("frames",), (0.0,))


def ei_ablation(plan: Plan) -> Iterator[Cell]:
    return _grid(plan, ("smooth", "ei", "robust-ei", "hydiff-ei"), PUBLISHED, (0.0, *NOISE))


def time(plan: Plan) -> Iterator[Cell]:
    one = replace(plan, scenes=plan.scenes[:1])
    return _grid(one, (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), ("published-2",), (0.0,))


def alpha(plan: Plan) -> Iterator[Cell]:
    return _varied(plan, "ei_weight", (0, 0.1, 0.5, 1, 2), (0.0, 0.2))


def transforms(plan: Plan) -> Iterator[Cell]:
    return _varied(plan, "transform", TRANSFORMS, (0.0,))


def epsilon(plan: Plan) -> Iterator[Cell]:
    return _varied(plan, "eps0", ("implied", "fresh", "none"), (0.0,))


def _varied(
    plan: Plan, name: str, values: tuple[Any, ...], noise: tuple[float, ...]
) -> Iterator[Cell]:
    """HyDiff-EI with one setting changed."""
    masks = plan.masks or ("published-2",)
    for sigma, scene, mask, value in product(noise, plan.scenes, masks, values):
        settings = json.dumps({name: value})
        yield from seeded(plan, Cell("hydiff-ei", scene, mask, sigma, 0, settings))


def offline(plan: Plan) -> Iterator[Cell]:
    scene = scenes.OFFLINE_TEST
    for mask in plan.masks or ("published-2",):
        yield Cell(INPUT, scene, mask)
        yield from seeded(plan, Cell("hydiff-ei", scene, mask))
        for crops in (2, 4) if plan.quick else (50, 300):
            trained = {"offline": {"crops": crops, "minutes": plan.offline_minutes}}
            first = replace(plan, seeds=1)
            yield from seeded(first, Cell("hydiff-ei", scene, mask, 0.0, 0, json.dumps(trained)))


def use(plan: Plan) -> Iterator[Cell]:
    name = scenes.QUICK if plan.quick else scenes.BUNDLED
    here = replace(plan, scenes=(name,))
    return _grid(here, (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), ("published-2", "blobs"), (0.0,))


def widths(plan: Plan) -> Iterator[Cell]:
    return _grid(plan, ("bandmean", "smooth", "dineof", "exemplar", "hydiff-ei"), WIDTHS, (0.0,))


def dead_columns(plan: Plan) -> Iterator[Cell]:
    methods = (INPUT, "bandmean", "smooth", "spectral", "subspace", "dineof", "halrtc", "fixbad")
    return _grid(plan, (*methods, "hydiff-ei"), ("columns", "pixels"), (0.0,))


SCENES_DIFFER = (
    "Other scenes: the paper's Chikusei and Botswana crops are not to be had; ours are named here. "
    "Its masks are not told for each sample. Compare rows with rows, not ours with theirs."
)
ONE_SETTING = "Other scenes and one mask; the paper does not name its own. Compare rows with rows."

SUITES: dict[str, Suite] = {
    "noiseless": Suite("Noiseless (Table I)", noiseless, "hydiff-ei", SCENES_DIFFER),
    "noisy": Suite("Noisy (Table II)", noisy, "hydiff-ei", SCENES_DIFFER),
    "emit": Suite(
        "Missing frames, as EMIT loses them (Table III)",
        emit,
        "hydiff-ei",
        "No EMIT cube is at hand: other scenes with EMIT's kind of gaps, 32 lines at a time.",
    ),
    "ei-ablation": Suite(
        "Does diffusion help? (Table IV)", ei_ablation, "hydiff-ei", SCENES_DIFFER
    ),
    "time": Suite(
        "Time (Table V)",
        time,
        "hydiff-ei",
        "The paper's times are of a Tesla V100 at 144 × 144 × 128; ours of the device named below.",
    ),
    "alpha": Suite("Weight of equivariance (Table VI)", alpha, "ei_weight 1", ONE_SETTING),
    "transforms": Suite("Transforms (Table VII)", transforms, "transform rotation", ONE_SETTING),
    "offline": Suite(
        "Offline training (Table VIII)",
        offline,
        "hydiff-ei",
        "The paper trains for 1.2 million updates; ours is a budget of minutes.",
    ),
    "epsilon": Suite("Readings of ε_0", epsilon, "eps0 implied", "Not in the paper."),
    "use": Suite(
        "What the fill is for: land cover and absorption features",
        use,
        "hydiff-ei",
        "Not in the paper.",
    ),
    "widths": Suite("Width of the gaps", widths, "smooth", "Not in the paper."),
    "dead-columns": Suite(
        "Gaps that differ from band to band", dead_columns, "smooth", "Not in the paper."
    ),
}

# Settings with which a cell takes seconds on a CPU.  Their scores mean nothing.
QUICK: dict[str, dict[str, Any]] = {
    "dhp": {"steps": 20, "channels": 8, "scales": 3},
    "r-dlrhyin": {"steps": 20, "channels": 8, "scales": 3},
    "dds2m": {"steps": 10, "chain": 20, "rank": 2, "channels": 16, "scales": 3, "hidden": 16},
    "share": {"steps": 3, "channels": 16, "memory": 8, "n_transforms": 1},
    "hir-diff": {"steps": 5},
    "hydiff-ei": {"steps": 20, "channels": 8, "scales": 3},
    "ei": {"steps": 20, "channels": 8, "scales": 3},
    "robust-ei": {"steps": 20, "channels": 8, "scales": 3},
    "exemplar": {"patch": 5},
}


def row_name(cell: Cell) -> str:
    """What a table calls the cell: the method, or what was changed about it."""
    changed = json.loads(cell.settings)
    if "offline" in changed:
        return f"offline {changed['offline']['crops']}"
    for key in ("ei_weight", "transform", "eps0"):
        if key in changed:
            return f"{key} {changed[key]}"
    return f"{cell.method} (tuned)" if "tuned" in changed else cell.method
