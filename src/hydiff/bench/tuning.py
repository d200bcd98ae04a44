"""What is done before the fill of a cell: settings tuned on hidden pixels, or offline training."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.bench import scenes
from hydiff.bench.cells import Cell, Damaged, fill_with
from hydiff.cube import Bools
from hydiff.methods import choose
from hydiff.methods.devices import torch_device

TRAINED = "trained by"  # first words of the note on training before the fill
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
        fits = fill_with([reduced[i] for i in usable], device, changes)
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
