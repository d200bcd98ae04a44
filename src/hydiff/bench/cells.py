"""One run of the benchmark: a cell in, a row out.  No method is handed the truth."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, auto, metrics
from hydiff.bench import reliability, scenes, uses
from hydiff.cube import Bools, Floats, as_cube
from hydiff.errors import has_torch
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import fingerprint
from hydiff.methods import METHODS, choose, settings_dict
from hydiff.methods.estimate import Job, estimates, estimating, torch_device

INPUT = "input"  # the zero-filled measurement itself
BAND = "band"  # instead of a noise level: one for each band
BAND_RANGE = (0.02, 0.3)  # between which those are drawn, the same for every seed
ESTIMATED = "estimated"  # the noise level is not told: a method estimates it
OWN_KEYS = ("preset", "tuned", "offline", "budget", "noise")  # all others are the method's
TRAINED = "trained by"  # begins the note on what was spent before the fill

Level = float | str


@dataclass(frozen=True)
class Cell:
    """Everything that decides a result."""

    method: str
    scene: str
    mask: str
    sigma_y: Level = 0.0  # on the truth's [0, 1]; or BAND
    seed: int = 0
    settings: str = "{}"  # JSON: changed settings, and a preset, "tuned": 1, "offline": crops,
    #                       "budget" of auto, "noise": "estimated"

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings of the method alone."""
        return {k: v for k, v in json.loads(self.settings).items() if k not in OWN_KEYS}

    @property
    def noisy(self) -> bool:
        return self.sigma_y != 0

    @property
    def learned(self) -> bool:
        return self.method in METHODS and METHODS[self.method].backend == "torch"

    def own(self, key: str) -> Any:
        return json.loads(self.settings).get(key)


def level_of(text: str) -> Level:
    """A noise level as a row or a command tells it."""
    return BAND if text == BAND else float(text)


def settings_hash(cell: Cell) -> str:
    """Of all settings that a cell runs with: a changed default makes it another cell."""
    if cell.method == INPUT:
        return "-"
    own = {k: cell.own(k) for k in ("tuned", "offline")}
    if cell.own("tuned"):
        own |= {"tuned": (TUNING.get(cell.method), SHORT.get(cell.method))}
    if cell.own("noise"):
        own |= {"noise": cell.own("noise")}
    if cell.method == auto.NAME:
        name = cell.own("budget")
        budgets = repr((auto.BUDGETS[name], auto.GPU_BUDGETS[name], auto.RULES))
        return fingerprint(budgets, own)[:12]
    chosen = choose(cell.method, cell.own("preset"), cell.changes)
    rules = METHODS[cell.method].rules
    newer = (rules,) if rules > 1 else ()  # rows of the first rules keep their hash
    return fingerprint(settings_dict(chosen.settings), own, *newer)[:12]


def sigmas(level: Level, bands: int) -> Floats:
    """(bands,) standard deviation of the noise."""
    if level == BAND:
        return np.random.default_rng(2).uniform(*BAND_RANGE, bands)
    return np.full(bands, float(level))


def measure(truth: Floats, observed: Bools, level: Level, seed: int) -> Floats:
    """y = M x + n (bands, rows, cols), NaN where nothing was observed: all a method gets."""
    noise = np.random.default_rng(seed).standard_normal(truth.shape)
    return np.where(observed, truth + sigmas(level, len(truth))[:, None, None] * noise, np.nan)


class Damaged(NamedTuple):
    """What a cell is about; arrays (bands, rows, cols).  Methods get y and seen."""

    cell: Cell
    y: Floats  # NaN where nothing was observed
    observed: Bools


@dataclass(frozen=True)
class CellEstimate:
    raw: Floats  # (bands, rows, cols) as the method gave it; NaN where it could not tell
    seconds: float
    out_of_reach: int  # entries that it could not tell
    settings: Mapping[str, Any]
    notes: tuple[str, ...]
    sigma: Floats | None = None  # 1-σ error bars
    expected: Mapping[str, float] | None = None
    recipe: Mapping[str, Any] | None = None


def run(
    cell: Cell, *, device: str = "auto", given: Mapping[str, Path] | None = None
) -> tuple[dict[str, Any], Floats]:
    """The row of a cell, and the result (bands, rows, cols) that it scores."""
    return run_beside([cell], device=device, given=given)[0]


def run_beside(
    group: Sequence[Cell], *, device: str = "auto", given: Mapping[str, Path] | None = None
) -> list[tuple[dict[str, Any], Floats]]:
    """The rows and results of cells of one learned method that are fitted side by side.

    Each is charged its share of the time.
    """
    began = time.perf_counter()
    truths = [scenes.load(cell.scene, given) for cell in group]
    damaged = []
    for cell, truth in zip(group, truths, strict=True):
        observed = scenes.observed_of(cell.mask, truth.shape)
        y = measure(truth, observed, cell.sigma_y, cell.seed)
        damaged.append(Damaged(cell, y, np.broadcast_to(observed, truth.shape)))
    found = fill(damaged, device)
    scored = [
        score(one, truth, estimate)
        for one, truth, estimate in zip(damaged, truths, found, strict=True)
    ]
    told = machine(group[0].method, device) | {"beside": len(group)}
    told["spent"] = (time.perf_counter() - began) / len(group)
    return [(row | told, reported) for row, reported in scored]


def score(damaged: Damaged, truth: Floats, estimate: CellEstimate) -> tuple[dict[str, Any], Floats]:
    """What a row says of an estimate, and the result that it scores."""
    cell, y, observed = damaged
    # a method that cannot tell leaves what the input has: 0
    raw = np.where(np.isfinite(estimate.raw), estimate.raw, 0.0)
    pasted = np.where(observed, y, raw)
    reported, other = (raw, pasted) if cell.noisy else (pasted, raw)
    scores = metrics.score(reported, truth, ~observed, raw=other)
    second = scores.raw or {}
    row = asdict(cell) | {f"all_{k}": v for k, v in scores.everywhere.items()}
    row |= {f"missing_{k}": v for k, v in (scores.missing or {}).items()}
    composited, plain = (second, scores.everywhere) if cell.noisy else (scores.everywhere, second)
    row |= {f"composited_{k}": v for k, v in composited.items()}
    row |= {f"raw_{k}": v for k, v in plain.items()}
    if cell.method == INPUT or estimate.out_of_reach:  # angles of the zero spectra are not defined
        row |= {k: None for k in row if k.endswith(("_sam", "_scc"))}
    row |= uses.errors(reported, truth, observed, scenes.labels_of(cell.scene))
    row |= {f"expected_{k}": (estimate.expected or {}).get(k) for k in reliability.EXPECTED}
    intervals = (estimate.recipe or {}).get("errors", {}).get("intervals")
    row |= reliability.judged(reported, truth, observed, estimate.sigma, intervals)
    row |= {
        "bands": truth.shape[0],
        "rows": truth.shape[1],
        "cols": truth.shape[2],
        "missing_share": float((~observed).mean()),
        "out_of_reach": estimate.out_of_reach,
        "seconds": estimate.seconds,
        "settings_hash": settings_hash(cell),
        "resolved": json.dumps(estimate.settings),
        "why": (estimate.recipe or {}).get("why"),
        "notes": "; ".join(estimate.notes),
    }
    return row, reported


def fill(group: Sequence[Damaged], device: str) -> list[CellEstimate]:
    """A method's estimates from the measurements alone."""
    first = group[0].cell
    if first.method == INPUT:
        return [CellEstimate(np.where(d.observed, d.y, 0.0), 0.0, 0, {}, ()) for d in group]
    changes, tried = [d.cell.changes for d in group], [""] * len(group)
    if first.own("tuned"):
        changes, tried = map(list, zip(*tuned(group, device), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        if first.own("offline"):
            weights, told = trained(first, Path(folder), device)
            changes, tried = [c | weights for c in changes], [told] * len(group)
        found = _filled(group, device, changes)
    return [
        replace(e, notes=(*e.notes, told)) if told else e
        for e, told in zip(found, tried, strict=True)
    ]


def _filled(
    group: Sequence[Damaged], device: str, changes: Sequence[Mapping[str, Any]]
) -> list[CellEstimate]:
    if len(group) == 1:
        return [_alone(group[0], device, changes[0])]
    began = time.perf_counter()
    runs, settings = [], []
    for (cell, y, observed), changed in zip(group, changes, strict=True):
        chosen = choose(cell.method, cell.own("preset"), changed)
        settings.append(settings_dict(chosen.settings))
        cube = as_cube(np.where(observed, y, np.nan))
        job = Job(cell.seed, device, False, None, False)
        runs.append(estimating(cube, observed, chosen, sigmas(cell.sigma_y, len(y)), job))
    found = estimates(runs, device)
    seconds = (time.perf_counter() - began) / len(group)
    return [
        CellEstimate(e.values, seconds, int(np.isnan(e.values).sum()), _shown(s), tuple(e.notes))
        for e, s in zip(found, settings, strict=True)
    ]


def _alone(damaged: Damaged, device: str, changes: Mapping[str, Any]) -> CellEstimate:
    cell, y, observed = damaged
    budget = {"budget": cell.own("budget")} if cell.own("budget") else {}
    result = api.fill(
        np.where(observed, y, np.nan),
        observed,
        method=cell.method,
        preset=cell.own("preset"),
        sigma_y="auto" if cell.own("noise") == ESTIMATED else sigmas(cell.sigma_y, len(y)),
        seed=cell.seed,
        device=device,
        **budget,
        **changes,
    )
    return CellEstimate(
        result.raw,
        result.seconds,
        sum(n for why, n in result.left.items() if why.startswith("out of reach")),
        _shown(result.settings),
        tuple(result.notes),
        result.sigma,
        result.expected,
        result.recipe,
    )


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if k not in ("weights", "wavelengths", "space")}


# Rivals set as well as we can without the truth: rate, steps and averaging.
TUNING: dict[str, list[dict[str, Any]]] = {
    "dhp": [{"lr": lr, "steps": n, "averaging": a}
            for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "r-dlrhyin": [{"lr": lr, "steps": n, "averaging": a}
                  for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "dds2m": [{"lr": 2e-3}, {"lr": 5e-3, "averaging": 0.9}, {"gaps_in_loss": False}],
    "share": [{"lr": lr, "averaging": a} for lr, a in ((0.01, 0.9), (0.003, 0.9), (0.001, 0.9))],
    "hir-diff": [{"variation": v, "steps": n} for v, n in ((0.0, 20), (0.05, 20), (0.1, 50))],
}  # fmt: skip
SHORT = {"share": {"steps": 200}}  # of its trials, of which each would take minutes on a GPU


def tuned(group: Sequence[Damaged], device: str) -> list[tuple[dict[str, Any], str]]:
    """For each the settings of `TUNING` that best predict hidden observed pixels, and what was
    tried: one fit for each entry there and one with the published settings, some of them short.

    Hidden is a copy of the gaps, moved by a third: the same kind of gap.
    """
    began = time.perf_counter()
    hidden = [_moved(d.observed) for d in group]
    kept = [d._replace(observed=d.observed & ~h) for d, h in zip(group, hidden, strict=True)]
    able = [i for i, h in enumerate(hidden) if h.any() and kept[i].observed.any()]
    candidates = [{}, *TUNING.get(group[0].cell.method, [])]
    errors: dict[int, list[float]] = {i: [] for i in able}
    for candidate in candidates if able else []:
        trial = candidate | SHORT.get(group[0].cell.method, {})
        found = _filled([kept[i] for i in able], device, [_with(kept[i].cell, trial) for i in able])
        for i, estimate in zip(able, found, strict=True):
            square = (estimate.raw - group[i].y)[hidden[i]] ** 2
            rmse = float(np.sqrt(square.mean()))
            errors[i].append(rmse if math.isfinite(rmse) else math.inf)  # it diverged
    seconds = (time.perf_counter() - began) / len(group)
    out = []
    for i, damaged in enumerate(group):
        changes = damaged.cell.changes
        if i not in errors:
            out.append((changes, "tuned: no pixels to hide, published settings"))
            continue
        best = _with(damaged.cell, candidates[int(np.argmin(errors[i]))])
        shown = ", ".join(f"{e:.4f}" for e in errors[i])
        out.append((best, f"tuned on hidden pixels in {seconds:.1f} s: {best} (RMSE {shown})"))
    return out


def _moved(observed: Bools) -> Bools:
    """The gaps moved to where something was observed: sideways, or down where that is the same."""
    for axis in (2, 1):
        hidden: Bools = np.roll(~observed, observed.shape[axis] // 3, axis=axis) & observed
        if hidden.any():
            break
    return hidden


def _with(cell: Cell, candidate: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's settings with those of a candidate; steps that the cell fixes stay, as does time."""
    own = cell.changes
    return own | {k: v for k, v in candidate.items() if k != "steps" or k not in own}


def trained(cell: Cell, folder: Path, device: str) -> tuple[dict[str, Any], str]:
    """Settings that name a network trained offline on damaged crops of the bundled scene, and what
    was spent on it."""
    from hydiff import io
    from hydiff.learn.training import Training
    from hydiff.scale.training_files import train_files

    crops, minutes = (cell.own("offline")[k] for k in ("crops", "minutes"))
    paths = []
    for i, crop in enumerate(scenes.damaged_crops(crops, scenes.SPLIT // 2)):
        paths.append(folder / f"crop{i}.npz")
        io.write(crop, paths[-1])
    changes = {k: v for k, v in cell.changes.items() if k in ("channels", "scales")}
    settings = Training(crop=scenes.SPLIT // 2, **changes)
    output = folder / "model.safetensors"
    card = train_files(paths, output, settings, minutes=minutes, device=torch_device(device))
    told = f"{TRAINED} {card['updates']} updates in {card['seconds']:.0f} s"
    return {"weights": str(output)}, told


def machine(method: str, device: str) -> dict[str, Any]:
    """Where and with what a cell ran, and the peak of its memory in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of the process so far
    if _on_gpu(method, device):
        import torch

        peak = torch.cuda.max_memory_allocated() / 2**20
        torch.cuda.empty_cache()  # other processes may want what the fits held
        torch.cuda.reset_peak_memory_stats()
    return {
        "peak_mb": round(peak, 1),
        "device": device_of(method, device),
        "versions": " ".join(
            " ".join(pair) for pair in versions("numpy", "scipy", "torch").items()
        ),
    }


def device_of(method: str, device: str) -> str:
    """The name of what a method runs on here."""
    place = f"CPU {platform.machine()}, {os.cpu_count()} cores"
    if not _on_gpu(method, device):
        return place
    import torch

    gpu = torch.cuda.get_device_name()
    return f"{gpu} and {place}" if method == auto.NAME else gpu


def _on_gpu(method: str, device: str) -> bool:
    may = method == auto.NAME or (method in METHODS and METHODS[method].backend == "torch")
    return may and device != "cpu" and has_torch() and torch_device(device).type == "cuda"
