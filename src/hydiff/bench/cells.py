"""Run one cell of the benchmark, and score it as a row.  No method gets the truth."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, auto, metrics, request
from hydiff.bench import machine, reliability, scenes, uses
from hydiff.cube import Bools, Cube, Floats, as_cube
from hydiff.learn.checkpoint import fingerprint
from hydiff.maths.noise_level import Sigma
from hydiff.methods import METHODS, choose, declared, row_settings, settings_dict
from hydiff.methods.estimate import Job, estimate, estimates, estimating, torch_device
from hydiff.reference.models import ReferencePlanes
from hydiff.reference.planes import prepare

INPUT = "input"  # the zero-filled measurement itself
BAND = "band"  # in place of a noise level: a level for each band
BAND_RANGE = (0.02, 0.3)  # range of these levels, which are the same for every seed
ESTIMATED = "estimated"  # the method estimates the noise level
# keys of `Cell.settings` that are not settings of the method
OWN_KEYS = ("preset", "tuned", "offline", "budget", "noise", "reference")
HANDED_IN = ("weights", "wavelengths", "space", "references")  # left out of the settings in a row
TRAINED = "trained by"  # first words of the note on training before the fill

Level = float | str


@dataclass(frozen=True)
class Cell:
    """One run: everything that determines its result."""

    method: str
    scene: str
    mask: str
    sigma_y: Level = 0.0  # in the unit of the truth, [0, 1]; or BAND
    seed: int = 0
    settings: str = "{}"  # JSON: changed settings, and a preset, "tuned": 1, "offline": crops,
    #                       "budget" of auto, "noise": "estimated", "reference": 1

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings of the method alone."""
        return {k: v for k, v in json.loads(self.settings).items() if k not in OWN_KEYS}

    @property
    def noisy(self) -> bool:
        """Whether the measurement has noise."""
        return self.sigma_y != 0

    @property
    def learned(self) -> bool:
        """Whether the method fits a network."""
        return self.method in METHODS and METHODS[self.method].learned

    @property
    def needs_torch(self) -> bool:
        return self.method in METHODS and METHODS[self.method].needs_torch

    def own(self, key: str) -> Any:
        """Return an entry of `settings` by its key; None if there is none."""
        return json.loads(self.settings).get(key)


def level_of(text: str) -> Level:
    """Return the noise level that a text of a row or a command stands for."""
    return BAND if text == BAND else float(text)


def settings_hash(cell: Cell) -> str:
    """Return a hash of all settings of a cell; a changed default changes it, too."""
    if cell.method == INPUT:
        return "-"
    extras = {k: cell.own(k) for k in ("tuned", "offline")}
    if cell.own("tuned"):
        extras |= {"tuned": (TUNING.get(cell.method), SHORT.get(cell.method))}
    if cell.own("noise"):
        extras |= {"noise": cell.own("noise")}
    if cell.own("reference"):
        extras |= {"reference": repr((auto.WITH_REFERENCE, auto.REFERENCE_RULES))}
    if cell.method == auto.NAME:
        name = cell.own("budget")
        budgets = repr((auto.BUDGETS[name], auto.GPU_BUDGETS[name], auto.networks_of(name)))
        noise = (auto.NOISE_RULES,) if cell.noisy else ()
        return fingerprint(budgets, extras, auto.RULES, *noise)[:12]
    chosen = choose(cell.method, cell.own("preset"), cell.changes)
    rules = declared(cell.method).rules
    newer_rules = (rules,) if rules > 1 else ()  # rows of the first rules keep their hash
    identity = row_settings(chosen, cell.noisy)
    return fingerprint(identity, extras, *newer_rules)[:12]


def sigmas(level: Level, bands: int) -> Floats:
    """(bands,) standard deviation of the noise."""
    if level == BAND:
        return np.random.default_rng(2).uniform(*BAND_RANGE, bands)
    return np.full(bands, float(level))


def measure(truth: Floats, observed: Bools, level: Level, seed: int) -> Floats:
    """Return y = M x + n (bands, rows, cols), NaN in the gaps: the only data a method gets."""
    noise = np.random.default_rng(seed).standard_normal(truth.shape)
    return np.where(observed, truth + sigmas(level, len(truth))[:, None, None] * noise, np.nan)


class Damaged(NamedTuple):
    """The measurement of a cell; arrays (bands, rows, cols).  Methods get y and observed."""

    cell: Cell
    y: Floats  # NaN where nothing was observed
    observed: Bools

    @property
    def with_gaps(self) -> Floats:
        """y, with NaN also at entries that were hidden afterwards."""
        return np.where(self.observed, self.y, np.nan)

    @property
    def sigma_y(self) -> Sigma:
        """The noise level for the method: (bands,), or "auto" if it is to estimate it."""
        estimated = self.cell.own("noise") == ESTIMATED
        return "auto" if estimated else sigmas(self.cell.sigma_y, len(self.y))


@dataclass(frozen=True)
class CellEstimate:
    """The estimate of a method for one cell."""

    raw: Floats  # (bands, rows, cols); NaN where the method has no estimate
    seconds: float = 0.0
    out_of_reach: int = 0  # missing entries without an estimate
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sigma: Floats | None = None  # 1-σ error bars
    expected: Mapping[str, float] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)


COLUMNS = (
    *(f.name for f in fields(Cell)),
    *(f"{part}_{k}" for part in ("all", "missing", "composited", "raw") for k in metrics.LABELS),
    *uses.COLUMNS,
    *reliability.COLUMNS,
    "bands", "rows", "cols", "missing_share", "out_of_reach", "seconds", "spent", "beside",
    "peak_mb", "device", "settings_hash", "resolved", "notes", "versions",
)  # fmt: skip
TEXT = {
    "method", "scene", "mask", "sigma_y", "settings", "coverage", "why", "device",
    "settings_hash", "resolved", "notes", "versions",
}  # fmt: skip
WHOLE = {"seed", "entries", "bands", "rows", "cols", "out_of_reach", "beside"}
KINDS = {c: str if c in TEXT else int if c in WHOLE else float for c in COLUMNS}


def run(
    group: Sequence[Cell], *, device: str = "auto", files: scenes.Files | None = None
) -> list[tuple[dict[str, Any], Floats]]:
    """Return the rows of cells of one method, and the results (bands, rows, cols) that they score.

    Learned methods are fitted side by side; each cell is assigned an equal share of the time.
    """
    began = time.perf_counter()
    truths = [scenes.load(cell.scene, files) for cell in group]
    damaged = []
    for cell, truth in zip(group, truths, strict=True):
        observed = scenes.observed_of(cell.mask, truth.shape)
        y = measure(truth, observed, cell.sigma_y, cell.seed)
        damaged.append(Damaged(cell, y, np.broadcast_to(observed, truth.shape)))
    scored = list(map(score, damaged, truths, fill(damaged, device)))
    shared = machine.facts(group[0].method, device) | {"beside": len(group)}
    shared["spent"] = (time.perf_counter() - began) / len(group)
    return [(row | shared, reported) for row, reported in scored]


def score(damaged: Damaged, truth: Floats, estimate: CellEstimate) -> tuple[dict[str, Any], Floats]:
    """Return the row of an estimate, and the result (bands, rows, cols) that it scores."""
    cell, y, observed = damaged
    # an entry without an estimate stays as in the input: 0
    raw = np.where(np.isfinite(estimate.raw), estimate.raw, 0.0)
    pasted = np.where(observed, y, raw)
    reported, other = (raw, pasted) if cell.noisy else (pasted, raw)
    scores = metrics.score(reported, truth, ~observed, raw=other)
    others = scores.raw or {}
    composited, plain = (others, scores.everywhere) if cell.noisy else (scores.everywhere, others)
    parts = {"all": scores.everywhere, "missing": scores.missing or {}}
    parts |= {"composited": composited, "raw": plain}
    row = asdict(cell) | {f"{part}_{k}": v for part in parts for k, v in parts[part].items()}
    if cell.method == INPUT or estimate.out_of_reach:  # angles of the zero spectra are not defined
        row |= {k: None for k in row if k.endswith(("_sam", "_scc"))}
    row |= uses.errors(reported, truth, observed, scenes.labels_of(cell.scene))
    row |= {f"expected_{k}": (estimate.expected or {}).get(k) for k in reliability.EXPECTED}
    intervals = estimate.recipe.get("errors", {}).get("intervals")
    row |= reliability.judged(reported, truth, observed, estimate.sigma, intervals)
    row |= dict(zip(("bands", "rows", "cols"), truth.shape, strict=True))
    row |= {
        "missing_share": float((~observed).mean()),
        "out_of_reach": estimate.out_of_reach,
        "seconds": estimate.seconds,
        "settings_hash": settings_hash(cell),
        "resolved": json.dumps(estimate.settings),
        "why": estimate.recipe.get("why"),
        "notes": "; ".join(estimate.notes),
    }
    return row, reported


def fill(group: Sequence[Damaged], device: str) -> list[CellEstimate]:
    """Return the estimates of a method, computed from the measurements alone."""
    first = group[0].cell
    if first.method == INPUT:
        return [CellEstimate(np.where(d.observed, d.y, 0.0)) for d in group]
    changes, notes = [d.cell.changes for d in group], [""] * len(group)
    if first.own("tuned"):
        changes, notes = map(list, zip(*tuned(group, device), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        if first.own("offline"):
            weights, note = trained(first, Path(folder), device)
            changes, notes = [c | weights for c in changes], [note] * len(group)
        filled = _filled(group, device, changes)
    return [
        replace(e, notes=(*e.notes, note)) if note else e
        for e, note in zip(filled, notes, strict=True)
    ]


def _filled(
    group: Sequence[Damaged], device: str, changes: Sequence[Mapping[str, Any]]
) -> list[CellEstimate]:
    """Return estimates with the settings of `changes`, one mapping for each member of the group."""
    if group[0].cell.method == auto.NAME:
        return [_validated(damaged, device) for damaged in group]
    began = time.perf_counter()
    chosen = [
        choose(d.cell.method, d.cell.own("preset"), request.with_network(d.cell.method, changed))
        for d, changed in zip(group, changes, strict=True)
    ]
    jobs = [Job(d.cell.seed, device) for d in group]
    if "references" in chosen[0].facts.asks:
        jobs = [job._replace(references=(planes(d),)) for job, d in zip(jobs, group, strict=True)]
    runs = [
        (as_cube(d.with_gaps), d.observed, c, d.sigma_y, job)
        for d, c, job in zip(group, chosen, jobs, strict=True)
    ]
    if not chosen[0].facts.learned:  # needs neither torch nor its memory
        fits = [estimate(*arguments) for arguments in runs]
    else:
        fits = estimates([estimating(*arguments) for arguments in runs], device)
    seconds = (time.perf_counter() - began) / len(group)
    return [
        CellEstimate(
            e.values,
            seconds,
            int((np.isnan(e.values) & ~d.observed).sum()),
            _shown(settings_dict(c.settings)),
            tuple(e.notes),
            e.sigma,
        )
        for d, c, e in zip(group, chosen, fits, strict=True)
    ]


def planes(damaged: Damaged) -> ReferencePlanes:
    """Return the other image of a pair, prepared as for the methods that use one."""
    other, cube = Cube(scenes.pair(damaged.cell.scene)[1]), as_cube(damaged.with_gaps)
    return prepare(other, cube, damaged.observed, "of the pair", request.MAX_SHIFT).planes


def _validated(damaged: Damaged, device: str) -> CellEstimate:
    """Return the estimate of the default fill, with its error bars and its recipe."""
    cell = damaged.cell
    result = api.fill(
        damaged.with_gaps,
        damaged.observed,
        sigma_y=damaged.sigma_y,
        seed=cell.seed,
        device=device,
        budget=cell.own("budget"),
        no_prior=bool(cell.own("no_prior")),
        reference=Cube(scenes.pair(cell.scene)[1]) if cell.own("reference") else (),
    )
    return CellEstimate(
        result.raw,
        result.seconds,
        sum(n for why, n in result.left.items() if why.startswith("out of reach")),
        _shown(result.settings),
        tuple(result.notes),
        result.sigma,
        result.expected,
        result.recipe or {},
    )


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a row lists: all but HANDED_IN."""
    return {k: v for k, v in settings.items() if k not in HANDED_IN}


# Settings of other methods from which `tuned` chooses without the truth
TUNING: dict[str, list[dict[str, Any]]] = {
    "dhp": [{"lr": lr, "steps": n, "averaging": a}
            for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "r-dlrhyin": [{"lr": lr, "steps": n, "averaging": a}
                  for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "dds2m": [{"lr": 2e-3}, {"lr": 5e-3, "averaging": 0.9}, {"gaps_in_loss": False}],
    "share": [{"lr": lr, "averaging": a} for lr, a in ((0.01, 0.9), (0.003, 0.9), (0.001, 0.9))],
    "hir-diff": [{"variation": v, "steps": n} for v, n in ((0.0, 20), (0.05, 20), (0.1, 50))],
}  # fmt: skip
SHORT = {"share": {"steps": 200}}  # shortens trials that would take minutes on a GPU


def tuned(group: Sequence[Damaged], device: str) -> list[tuple[dict[str, Any], str]]:
    """Return for each cell the settings that best predict hidden observed pixels, and a note.

    The candidates are the published settings and those of `TUNING`; each is fitted once, some with
    the fewer steps of `SHORT`.  The hidden pixels are a copy of the gaps, moved by a third of the
    image, and so of the same kind.
    """
    began = time.perf_counter()
    hidden = [_moved(d.observed) for d in group]
    reduced = [d._replace(observed=d.observed & ~h) for d, h in zip(group, hidden, strict=True)]
    usable = [i for i, h in enumerate(hidden) if h.any() and reduced[i].observed.any()]
    candidates = [{}, *TUNING.get(group[0].cell.method, [])]
    errors: dict[int, list[float]] = {i: [] for i in usable}
    for candidate in candidates if usable else []:
        trial = candidate | SHORT.get(group[0].cell.method, {})
        changes = [_with(reduced[i].cell, trial) for i in usable]
        fits = _filled([reduced[i] for i in usable], device, changes)
        for i, fit in zip(usable, fits, strict=True):
            square = (fit.raw - group[i].y)[hidden[i]] ** 2
            rmse = float(np.sqrt(square.mean()))
            errors[i].append(rmse if math.isfinite(rmse) else math.inf)  # it diverged
    seconds = (time.perf_counter() - began) / len(group)
    out = []
    for i, damaged in enumerate(group):
        if i not in errors:
            note = "tuned: no pixels to hide, published settings"
            out.append((damaged.cell.changes, note))
            continue
        best = _with(damaged.cell, candidates[int(np.argmin(errors[i]))])
        shown = ", ".join(f"{e:.4f}" for e in errors[i])
        out.append((best, f"tuned on hidden pixels in {seconds:.1f} s: {best} (RMSE {shown})"))
    return out


def _moved(observed: Bools) -> Bools:
    """Mark observed entries under a copy of the gaps, moved sideways, or down if none are there."""
    for axis in (2, 1):
        hidden: Bools = np.roll(~observed, observed.shape[axis] // 3, axis=axis) & observed
        if hidden.any():
            break
    return hidden


def _with(cell: Cell, candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Update the settings of a cell by a candidate; steps (hence time) set by the cell are kept."""
    settings = cell.changes
    return settings | {k: v for k, v in candidate.items() if k != "steps" or k not in settings}


def trained(cell: Cell, folder: Path, device: str) -> tuple[dict[str, Any], str]:
    """Train a network offline on damaged crops of the bundled scene.

    Returns the setting that names its weights, and a note on the updates and seconds.
    """
    from hydiff import io
    from hydiff.learn.training import Training
    from hydiff.scale.training_files import train_files

    crops, minutes, lr = (cell.own("offline")[k] for k in ("crops", "minutes", "lr"))
    paths = []
    for i, crop in enumerate(scenes.damaged_crops(crops, scenes.OFFLINE_SIDE)):
        paths.append(folder / f"crop{i}.npz")
        io.write(crop, paths[-1])
    chosen = choose(cell.method, cell.own("preset"), cell.changes).settings
    size = {k: getattr(chosen, k) for k in ("channels", "scales")}
    settings = Training(crop=scenes.OFFLINE_SIDE, lr=lr, **size)
    output = folder / "model.safetensors"
    card = train_files(paths, output, settings, minutes=minutes, device=torch_device(device))
    note = f"{TRAINED} {card['updates']} updates in {card['seconds']:.0f} s"
    return {"weights": str(output)}, note
