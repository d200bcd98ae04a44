"""The run matrices: the cells of each table.  To add a table, add a line to SUITES."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from hydiff.auto import NAME as AUTO
from hydiff.bench import scenes
from hydiff.bench.cells import BAND, ESTIMATED, INPUT, Cell, Level
from hydiff.bench.choice import Limit, SuiteChoice
from hydiff.bench.pairs import reference
from hydiff.bench.row_names import ASSUMED_NOISE, EQUIVARIANT, FOR_FEWER
from hydiff.bench.row_names import row_name as row_name
from hydiff.bench.tuning import TUNING
from hydiff.gaps.mask import columns_needed

PEERS = ("dhp", "r-dlrhyin", "hir-diff", "share", "dds2m")
CITED = ("lrs-pnp-dip",)  # cited by the paper, without scores
CLASSICAL = ("bandmean", "harmonic", "smooth", "rbf", "dineof", "halrtc", "exemplar")
FOR_NOISE = ("bandmean", "smooth", "subspace-fill")
PUBLISHED = tuple(f"published-{i}" for i in range(1, 5))
NOISE = (0.1, 0.2, 0.3)
TRANSFORMS = (
    "shift", "rotation", "scaling", "reflection", "similarity", "affine",
    # not in the paper, which leaves transforms along the bands to later work
    "spectral", "spectral-rotation", "shifted-bands", "scaled-bands", "hidden-bands",
)  # fmt: skip
WIDTHS = tuple(f"width-{w}" for w in (2, 4, 8, 16))
BEST_MASKS = (*PUBLISHED, "stripes", "slc-off", "blobs", "frames", "columns", "pixels")
BEST_NOISE: tuple[Level, ...] = (0.0, *NOISE, BAND)

# A choice that covers the sensors, sizes and kinds of land at hand; the last three are small
FEW = (
    "indian_pines", "wdc10_144", "abu_urban-1_96",
    "enmap_potsdam_64x96", "paris_hyperion_72", "chikusei_36",
)  # fmt: skip
SMALL = FEW[2:]


# published-3 and -1 fit the most scenes; frames is for the suite that has no other mask
ONE_MASK = ("published-3", "frames")
TWO_MASKS = ("published-1", "published-3", "frames")
NAMED = SMALL[1:3]  # scenes on which the slowest peers are run at every noise level
SLOWEST = Limit(1, NAMED, ONE_MASK, large=FEW[:2])
LIMITS = {
    "hir-diff": Limit(3, FEW, TWO_MASKS),
    "dhp": Limit(1, FEW, TWO_MASKS),
    **dict.fromkeys(("r-dlrhyin", "dds2m", "share", "hyper-ei"), SLOWEST),
    **dict.fromkeys(CITED, Limit(1, NAMED, ONE_MASK)),
}
CORE = Limit(3, FEW, ONE_MASK)  # the paper's method and its parts, where there is noise
SHORTER = Limit(1, SMALL, ONE_MASK)
TUNED = Limit(1, NAMED, ONE_MASK)  # a tuned cell takes four more fits than a plain one
ABLATION = Limit(1, FEW)
READ = Limit(3, SMALL[:3], ONE_MASK)
FOUR_MASKS = ("published-3", "stripes", "blobs", "columns")
OFFLINE_RATE = 1e-3  # for minutes of training; the paper's 1e-4 is for 1.2 million updates
BEST: dict[str, Limit] = dict.fromkeys(("hydiff-ei", "robust-ei"), Limit(1, FEW, FOUR_MASKS))


class Suite(NamedTuple):
    """A table of the benchmark: its cells, and how its rows are compared."""

    title: str
    cells: Callable[[SuiteChoice], Iterator[Cell]]
    reference: str  # the row that others are compared with
    caveat: str  # why ours and the paper's figures are not the same quantity
    column: str = "all_mpsnr"  # column in which rows are compared
    alone: bool = False  # no runs side by side, and no rows of other tables: it is about time


def left_out(suite: Suite, choice: SuiteChoice) -> list[str]:
    """Return a line for each mask that is wider than scenes of a choice, naming those left out."""
    narrow: dict[str, dict[str, None]] = {}
    for cell in suite.cells(choice):
        if not choice.fits(cell.scene, cell.mask):
            narrow.setdefault(cell.mask, {})[cell.scene] = None
    return [
        f"{mask} needs {columns_needed(mask)} columns; narrower: {', '.join(names)}"
        for mask, names in narrow.items()
    ]


def _grid(
    choice: SuiteChoice,
    methods: tuple[str, ...],
    masks: tuple[str, ...],
    noise: tuple[Level, ...],
    limits: Mapping[str, Limit] = LIMITS,
    everyone: Limit = Limit(),
) -> Iterator[Cell]:
    """Yield the cells of all combinations.  limits: of slow methods; everyone: of all others."""
    methods = (*(m for m in methods if choice.wants(m)), *choice.own_methods)
    where = product(levels(choice, noise), choice.scenes, choice.chosen(masks), methods)
    for sigma, scene, mask, method in where:
        cell = Cell(method, scene, mask, sigma)
        limit = limits.get(method, everyone)
        if choice.within(limit, cell):
            yield from seeded(choice, cell, limit.seeds)
        if choice.tuned and method in TUNING and sigma == noise[0] and choice.within(TUNED, cell):
            tuned = replace(cell, settings=json.dumps({"tuned": 1}))
            yield from seeded(choice, tuned, TUNED.seeds)


def levels(choice: SuiteChoice, noise: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the noise levels of a suite that the caller wants."""
    return noise if choice.noise is None else tuple(s for s in noise if s in choice.noise)


def seeded(choice: SuiteChoice, cell: Cell, seeds: int = 3) -> Iterator[Cell]:
    """Yield a cell for each seed; one is enough where neither noise nor method is random."""
    random = cell.noisy or cell.learned
    if choice.preset and cell.learned:
        cell = replace(cell, settings=_with(cell.settings, preset=choice.preset))
    if choice.quick and cell.method in QUICK:
        cell = replace(cell, settings=json.dumps(QUICK[cell.method] | json.loads(cell.settings)))
    for seed in range((choice.seeds or seeds) if random else 1):
        yield replace(cell, seed=seed)


def _with(settings: str, **more: Any) -> str:
    """Return settings in JSON with some of them changed."""
    return json.dumps(json.loads(settings) | more)


def noiseless(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield Table I: classical methods, the paper's peers and `hydiff-ei`, without noise."""
    yield from _fewer_iterations(choice, (0.0,))
    yield from _one_setting(choice, "dds2m", {"sigma_0": ASSUMED_NOISE}, (0.0,), LIMITS["dds2m"])
    yield from _grid(choice, (INPUT, *CLASSICAL, *PEERS, *CITED, "hydiff-ei"), PUBLISHED, (0.0,))


def noisy(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield Table II: methods for noise, peers and equivariant methods, at three noise levels."""
    methods = (INPUT, *FOR_NOISE, *PEERS, *EQUIVARIANT)
    limits = LIMITS | dict.fromkeys(EQUIVARIANT, CORE)
    yield from _fewer_iterations(choice, NOISE)
    yield from _grid(choice, methods, PUBLISHED, NOISE, limits)


def _fewer_iterations(choice: SuiteChoice, noise: tuple[Level, ...]) -> Iterator[Cell]:
    """Yield DHP and R-DLRHyIn, stopped as early as the paper's times suggest."""
    for method, limit in {"dhp": SHORTER, "r-dlrhyin": LIMITS["r-dlrhyin"]}.items():
        yield from _one_setting(choice, method, {"steps": FOR_FEWER}, noise, limit)


def _one_setting(
    choice: SuiteChoice,
    method: str,
    changes: Mapping[str, Any],
    noise: tuple[Level, ...],
    limit: Limit,
) -> Iterator[Cell]:
    """Yield a peer with another setting than the published one, on one mask and one seed."""
    if not choice.quick:
        yield from _varied(choice, [changes], noise, limit._replace(seeds=1), method)


def emit(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield missing frames, as EMIT loses them, and the strips that the paper mentions."""
    methods = (INPUT, *CLASSICAL, *PEERS, "hydiff-ei")
    yield from _grid(choice, methods, ("frames",), (0.0,))
    if choice.masks is None and not choice.quick:
        strips = (INPUT, *CLASSICAL, "hydiff-ei")
        yield from _grid(choice, strips, ("stripes",), (0.0,), {"hydiff-ei": ABLATION})


def ei_ablation(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield Table IV: equivariant methods and `smooth`, with and without noise."""
    methods = ("smooth", "hyper-ei", *EQUIVARIANT)
    return _grid(choice, methods, PUBLISHED, (0.0, *NOISE), everyone=CORE)


def time(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield Table V: classical methods, peers with one seed, and `hydiff-ei`, on one scene."""
    names = choice.scenes[:1] if choice.named else (scenes.TIMED,)
    one_scene = replace(choice, scenes=names, named=True, tuned=False)
    methods, once = (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), dict.fromkeys(PEERS, Limit(1))
    return _grid(one_scene, methods, ("published-2",), (0.0,), once)


def alpha(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield weights of EI; 7 and 14 correspond to 1 and 2 if the paper sums over seven copies."""
    weights = [{"ei_weight": value} for value in (0, 0.1, 0.5, 1, 2, 7, 14)]
    return _varied(choice, weights, (0.0, 0.2))


def transforms(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield each transform with one draw per step, and with seven, as in the paper's library."""
    single = [{"transform": name} for name in TRANSFORMS]
    return _varied(choice, [*single, *(t | {"n_transforms": 7} for t in single)], (0.0,))


def epsilon(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield three readings of ε_0."""
    return _varied(choice, [{"eps0": name} for name in ("implied", "fresh", "none")], (0.0,))


# Readings of what the paper leaves open; the first is the default.
READINGS: tuple[dict[str, Any], ...] = (
    {}, {"data_term": "observed"}, {"x0_from": "after"},
    {"ei_reduction": "sum", "n_transforms": 7},
    {"eps0": "fresh"}, {"eps0": "fresh", "data_term": "observed"}, {"weighting": "full"},
)  # fmt: skip
WITHOUT_NOISE: tuple[dict[str, Any], ...] = ({"n_transforms": 7},)
WITH_NOISE: tuple[dict[str, Any], ...] = (
    {"n_transforms": 1}, {"remeasure_noise": False}, {"noise_term": "sure"},
)  # fmt: skip
SURE: tuple[dict[str, Any], ...] = ({}, {"n_transforms": 1})  # settings of Robust-EI


def readings(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield readings of details that the paper leaves open, with and without noise."""
    for sigma in levels(choice, (0.0, 0.2)):
        at_level = replace(choice, noise=(sigma,))
        changes = (*READINGS, *(WITH_NOISE if sigma else WITHOUT_NOISE))
        yield from _varied(at_level, changes, (sigma,), READ)
        if sigma and not choice.quick:
            yield from _varied(at_level, SURE, (sigma,), READ._replace(seeds=1), "robust-ei")


def precision(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield three precisions: SURE divides a small difference of outputs, sensitive to rounding."""
    precisions = [{"precision": name} for name in ("fp32", "tf32", "bf16")]
    return _varied(choice, precisions, (0.2,), READ, "robust-ei")


def _varied(
    choice: SuiteChoice,
    changes: Sequence[Mapping[str, Any]],
    noise: tuple[Level, ...],
    limit: Limit = ABLATION,
    method: str = "hydiff-ei",
) -> Iterator[Cell]:
    """Yield a method with each of several changes of its settings."""
    masks = choice.masks or ONE_MASK[:1]
    where = product(levels(choice, noise), choice.scenes, masks, changes)
    for sigma, scene, mask, changed in where:
        cell = Cell(method, scene, mask, sigma, 0, json.dumps(dict(changed)))
        if choice.wants(cell.method) and choice.within(limit, cell):
            yield from seeded(choice, cell, limit.seeds)


def offline(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield the test on columns outside all training crops, and one on columns inside them."""
    if not choice.includes(scenes.OFFLINE_TEST, scenes.BUNDLED):
        return
    first, within = replace(choice, seeds=1), () if choice.quick else (scenes.OFFLINE_SEEN,)
    for scene, mask in product((scenes.OFFLINE_TEST, *within), choice.masks or ONE_MASK[:1]):
        if choice.wants(INPUT):
            yield Cell(INPUT, scene, mask)
        if not choice.wants("hydiff-ei"):
            continue
        yield from seeded(choice, Cell("hydiff-ei", scene, mask), 3 if scene not in within else 1)
        for crops in (2, 4) if choice.quick else (50, 300):
            budget = {"minutes": choice.offline_minutes, "lr": OFFLINE_RATE}
            settings = {"offline": {"crops": crops} | budget}
            yield from seeded(first, Cell("hydiff-ei", scene, mask, 0.0, 0, json.dumps(settings)))


def use(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield fills of the bundled scene, whose land cover is known."""
    name = scenes.QUICK if choice.quick else scenes.BUNDLED
    if not choice.includes(name):
        return iter(())
    one_scene = replace(choice, scenes=(name,), named=True, tuned=False)
    methods, once = (INPUT, *CLASSICAL, *PEERS, "hydiff-ei"), dict.fromkeys(PEERS, Limit(1))
    return _grid(one_scene, methods, ("published-2", "blobs"), (0.0,), once)


def widths(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield gaps of several widths."""
    methods = ("bandmean", "smooth", "dineof", "exemplar", "hydiff-ei")
    return _grid(choice, methods, WIDTHS, (0.0,), everyone=ABLATION)


def dead_columns(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield masks that differ from band to band."""
    methods = (INPUT, "bandmean", "smooth", "spectral", "subspace", "dineof", "halrtc", "fixbad")
    masks = ("columns", "pixels")
    return _grid(choice, (*methods, "hydiff-ei"), masks, (0.0,), {"hydiff-ei": ABLATION})


def best(choice: SuiteChoice) -> Iterator[Cell]:
    """Yield the default fill and single methods.

    Unless the caller names methods, those that do not model noise are run on clean data only, and
    those made for noise on noisy data only.
    """
    for sigma in levels(choice, BEST_NOISE):
        clean = ("idw", "harmonic", "biharmonic") if sigma == 0 or choice.methods else ()
        noisy = ("robust-ei", "subspace-fill") if sigma != 0 or choice.methods else ()
        methods = (*clean, "smooth", "prior", "anchored", "hydiff-ei", *noisy)
        at_level = replace(choice, noise=(sigma,))
        yield from _grid(at_level, methods, BEST_MASKS, (sigma,), BEST, Limit(1))
        yield from _validated(at_level, sigma)


def _validated(choice: SuiteChoice, sigma: Level) -> Iterator[Cell]:
    """Yield `auto` at its budget, with the true noise level and, if not 0, an estimated one."""
    if not choice.wants(AUTO):
        return
    masks = choice.chosen(BEST_MASKS)
    setup: dict[str, Any] = {"budget": choice.budget}
    setup |= {"no_prior": True} if choice.no_prior else {}
    variants = [setup] if sigma == 0 else [setup, setup | {"noise": ESTIMATED}]
    for scene, mask, setup in product(choice.scenes, masks, variants):
        yield from seeded(choice, Cell(AUTO, scene, mask, sigma, 0, json.dumps(setup)), 1)


SCENES_DIFFER = (
    "Other scenes: the paper's Chikusei and Botswana crops are not to be had; ours are named here. "
    "Its masks are not given for each sample. Compare rows with rows, not ours with theirs."
)
ONE_SETTING = "Other scenes and one mask; the paper does not name its own. Compare rows with rows."

SUITES: dict[str, Suite] = {
    "noiseless": Suite("Noiseless (Table I)", noiseless, "hydiff-ei", SCENES_DIFFER),
    "noisy": Suite("Noisy (Table II)", noisy, "hydiff-ei", SCENES_DIFFER),
    "emit": Suite(
        "Missing frames, as EMIT loses them (Table III)",
        emit,
        "hydiff-ei",
        "No EMIT cube is at hand: other scenes with EMIT's kind of gaps, 32 lines at a time or a "
        "quarter of the scene, and with strips of a few pixels.",
    ),
    "ei-ablation": Suite(
        "Does diffusion help? (Table IV)", ei_ablation, "hydiff-ei", SCENES_DIFFER
    ),
    "time": Suite(
        "Time (Table V)",
        time,
        "hydiff-ei",
        "The paper's times are of a Tesla V100 at 144 × 144 × 128; ours, of the same size, of the "
        "device named below.",
        alone=True,
    ),
    "alpha": Suite("Weight of equivariance (Table VI)", alpha, "ei_weight 1", ONE_SETTING),
    "transforms": Suite("Transforms (Table VII)", transforms, "transform rotation", ONE_SETTING),
    "offline": Suite(
        "Offline training (Table VIII)",
        offline,
        "hydiff-ei",
        "The paper trains for 1.2 million updates; ours is a budget of minutes.",
    ),
    "readings": Suite(
        "Readings of what the paper leaves open",
        readings,
        "hydiff-ei",
        "Not in the paper.",
    ),
    "precision": Suite(
        "Robust-EI in three arithmetics",
        precision,
        "robust-ei, precision fp32",
        "Not in the paper.",
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
    "best": Suite(
        "The default fill beside single ones", best, "smooth", "Not in the paper.", "missing_mpsnr"
    ),
    "reference": Suite("Another image", reference, "smooth", "Not in the paper.", "missing_mpsnr"),
}

# Settings for quick runs of seconds on a CPU, whose scores mean nothing.
QUICK: dict[str, dict[str, Any]] = {
    "dhp": {"steps": 20, "channels": 8, "scales": 3},
    "r-dlrhyin": {"steps": 20, "channels": 8, "scales": 3},
    "dds2m": {"steps": 10, "chain": 20, "rank": 2, "channels": 16, "scales": 3, "hidden": 16},
    "hyper-ei": {"steps": 3, "channels": 8, "memory": 8, "n_transforms": 1},
    "share": {"steps": 3, "channels": 16, "memory": 8, "n_transforms": 1},
    "hir-diff": {"steps": 5},
    "hydiff-ei": {"steps": 20, "channels": 8, "scales": 3},
    "ei": {"steps": 20, "channels": 8, "scales": 3},
    "robust-ei": {"steps": 20, "channels": 8, "scales": 3},
    "anchored": {"steps": 10, "channels": 8, "scales": 2, "components": 4},
    "exemplar": {"patch": 5},
    "lrs-pnp-dip": {"steps": 1, "codes": 2, "fits": 2, "channels": 8, "scales": 3},
}
