"""Train a network on files, and write its weights, model card and loss curve."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hydiff import io
from hydiff.cube import Cube, Nodata
from hydiff.errors import BadValue, OutputError, memory_advice
from hydiff.io.staging import output_file, refuse_existing
from hydiff.io.versions import versions
from hydiff.learn.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.learn.training import Item, Training, measurements, updates
from hydiff.learn.weights import LAYOUT, History, beside, save_weights, weights_of
from hydiff.result import Step

MINUTES = 10.0  # the default budget

# function that receives each update, and the share of the budget used after it
Progress = Callable[[Step, float], Any] | None


def train_files(
    paths: Sequence[str | Path],
    output: str | Path,
    settings: Training | None = None,
    *,
    minutes: float | None = None,
    epochs: int | None = None,
    nodata: Nodata = None,
    var: str | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """Train on files; write OUTPUT, its model card OUTPUT.md and loss curve OUTPUT.png.

    The state is written to OUTPUT.training every half minute and removed at the end.  `resume`
    continues from it, and time spent before counts towards the budget.  Returns the content of the
    card and the paths of the outputs.
    """
    settings, output = settings or Training(), output_file(output)
    share_of = _budget(minutes, epochs)
    state_path = keep_path(output)
    outputs = output, beside(output, ".md"), beside(output, ".png")
    check_outputs(outputs, state_path, resume=resume, overwrite=overwrite)
    if output.resolve() in {Path(path).resolve() for path in paths}:
        raise OutputError(f"{output} is one of the inputs; choose another name")
    cubes = [io.read(path, var=var) for path in paths]
    data = [_about(cube) for cube in cubes]
    checkpoint = Checkpoint(state_path, fingerprint(data, asdict(settings), nodata, var))
    state = checkpoint.load() if resume else None
    history: History = [] if state is None else history_of(state)
    began = time.perf_counter() - (history[-1]["seconds"] if history else 0)
    with memory_advice(device, "take smaller crops (`crop=96`) or fewer channels"):
        items = measurements(cubes, settings, nodata=nodata)
        for step in updates(items, settings, torch.device(device), state):
            values = torch.stack([*step.log.values()]).tolist()  # one wait for the GPU, not three
            numbers = dict(zip(step.log, values, strict=True))
            history.append({**numbers, "seconds": time.perf_counter() - began})
            share = share_of(step.done / step.total, history[-1]["seconds"])
            if progress is not None:
                progress(step, share)
            if share >= 1:
                break
            checkpoint.offer(step, history)
    assert step.state is not None
    report = _report(settings, data, cubes[0], items, history, step)
    save_weights(weights_of(step.state()), report, history, output, overwrite)
    checkpoint.remove()
    return report | {"outputs": [str(output), *(str(beside(output, s)) for s in (".md", ".png"))]}


def _budget(minutes: float | None, epochs: int | None) -> Callable[[float, float], float]:
    """Return a function (epochs, seconds) → share of the budget that is used by then."""
    if minutes is not None and epochs is not None:
        raise BadValue("a budget in minutes and one in epochs: give one of them")
    for name, value in (("minutes", minutes), ("epochs", epochs)):
        if value is not None and not 0 < value < math.inf:
            raise BadValue(f"{name} = {value}: expected a number above 0")
    if epochs is not None:
        return lambda done, seconds: done / epochs
    limit = 60 * (MINUTES if minutes is None else minutes)
    return lambda done, seconds: seconds / limit


def keep_path(output: Path) -> Path:
    """Return the path of the state of a running training; it is removed when the training ends."""
    return beside(output, ".training")


def check_outputs(outputs: Sequence[Path], keep_at: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise an error before the training if its outputs, the weights first, could not be written
    after it."""
    for path in outputs:
        refuse_existing(path, overwrite)
    if not outputs[0].parent.is_dir():
        raise OutputError(f"{outputs[0].parent} is not a folder; create it first")
    if keep_at.exists() and not (resume or overwrite):
        raise OutputError(
            f"{keep_at} holds an unfinished training; go on with `resume=True`, "
            "or start again with `overwrite=True`"
        )


def _about(cube: Cube) -> dict[str, Any]:
    """Return name, SHA-256 and shape of a cube's file."""
    assert cube.path is not None
    with cube.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": cube.path.name, "sha256": digest, "shape": list(cube.shape)}


def _report(
    settings: Training,
    data: list[dict[str, Any]],
    cube: Cube,
    items: list[Item],
    history: History,
    step: Step,
) -> dict[str, Any]:
    """Return the content of the model card, JSON-able."""
    tenth = max(1, len(history) // 10)
    parts = {"first": history[:tenth], "last": history[-tenth:]}
    wavelengths = np.empty(0) if cube.wavelengths is None else cube.wavelengths[cube.good_bands]
    wavelengths = wavelengths[np.isfinite(wavelengths)]
    observed = [_share(i.observed) / (1 if i.inside is None else _share(i.inside)) for i in items]
    return {
        "layout": LAYOUT,
        "bands": items[0].y.shape[1],
        "channels": settings.channels,
        "scales": settings.scales,
        "wavelengths": [float(wavelengths.min()), float(wavelengths.max())]
        if wavelengths.size
        else None,
        "wavelength_units": cube.wavelength_units,
        "updates": step.done,
        "epochs": round(step.done / step.total, 3),
        "seconds": round(history[-1]["seconds"], 3),
        "crops": len(items),
        "missing": round(1 - float(np.mean(observed)), 4),
        "losses": {part: _means(rows) for part, rows in parts.items()},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": asdict(settings),
        "data": data,
        "versions": versions("numpy", "torch", "safetensors"),
    }


def _share(where: Tensor) -> float:
    """Return the share of True entries."""
    return where.float().mean().item()


def _means(rows: History) -> dict[str, float]:
    """Return the mean of each loss over updates."""
    return {k: float(np.mean([row[k] for row in rows])) for k in ("loss", "data", "ei")}
