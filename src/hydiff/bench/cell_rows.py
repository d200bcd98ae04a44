"""The rows of cells: they are run and scored."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import auto, metrics
from hydiff.bench import machine, reliability, scenes, uses
from hydiff.bench.cells import INPUT, Cell, CellEstimate, Damaged, fill_with, measure
from hydiff.bench.tuning import SHORT, TUNING, trained, tuned
from hydiff.cube import Floats
from hydiff.learn.checkpoint import fingerprint
from hydiff.methods import choose, declared, row_settings

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
        filled = fill_with(group, device, changes)
    return [
        replace(e, notes=(*e.notes, note)) if note else e
        for e, note in zip(filled, notes, strict=True)
    ]


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
