"""Train the prior from a folder of images, and keep what it was trained on beside its weights.

OUTPUT              the weights, fp16 safetensors; one metadata entry, JSON, says what they fit
OUTPUT.csv          the curve: loss, and the gain over the plain field on places held back, dB
OUTPUT.training     the state of a training that has not ended; `resume` goes on from it
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hydiff import io
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io.versions import versions
from hydiff.learn.dead_leaves import drawn
from hydiff.learn.prior_training import (
    PriorTraining,
    TrainingState,
    errors,
    train,
)
from hydiff.learn.training_planes import KINDS, Batch, Images, Pool, Shelf, batch_of, images_of

LAYOUT = 1
EVERY = 500  # steps between two rows of the curve
KEPT = 60.0  # seconds between two states on disk
TRIALS = 4  # batches that validate
JUDGES = 48  # masks that they are drawn from

Progress = Callable[[int, int], Any] | None


def train_prior(
    data: Path,
    output: Path,
    settings: PriorTraining,
    *,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """Train on all arrays of the .npz files in `data`; returns what the weights say of themselves.

    An array is (bands, rows, cols); its name begins with its place and an underscore.  Whole
    places are held back to validate.
    """
    sources, arrays = _arrays(data, settings.side)
    places = sorted({name.partition("_")[0] for name in arrays})
    if settings.held >= len(places):
        raise BadValue(f"held = {settings.held}: only {len(places)} places are in {data}")
    held = set(np.random.default_rng(settings.seed).permutation(places)[: settings.held].tolist())
    images = [images_of(name.partition("_")[0], a, device) for name, a in arrays.items()]
    about: dict[str, Any] = {
        "layout": LAYOUT,
        "settings": asdict(settings),
        "planes": KINDS,
        "data": sources,
        "held": sorted(held),
        "versions": versions("torch", "numpy"),
    }
    kept_at = output.with_name(output.name + ".training")
    state = _kept(kept_at, about) if resume else None
    judges = _judges([i for i in images if i.place in held], settings, device)
    images = [i for i in images if i.place not in held]
    rng = np.random.default_rng(settings.seed)
    images += [images_of("drawn", drawn(rng), device) for _ in range(settings.drawn)]
    rows: list[dict[str, float]] = [] if state is None else state["rows"]
    start = 0 if state is None else state["step"]
    saved = began = time.perf_counter()
    # every batch has one shape: the fastest convolutions are worth looking for once
    torch.backends.cudnn.benchmark = True
    for now in train(images, settings, device, None if state is None else state["tensors"], start):
        if progress is not None and now.step % 20 == 0:
            progress(now.step, settings.steps)
        if now.step % EVERY == 0 or now.step == settings.steps:
            seconds = time.perf_counter() - began
            figures = {"seconds": seconds, "loss": float(now.loss)} | _judged(now, judges)
            rows.append({"step": now.step} | {k: round(v, 3) for k, v in figures.items()})
        if time.perf_counter() - saved > KEPT:
            _keep(kept_at, about, now, rows)
            saved = time.perf_counter()
    _write(now, about, rows, output, overwrite)
    kept_at.unlink(missing_ok=True)
    return about | {"curve": rows}


def _arrays(folder: Path, side: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Hashes of the files, and their arrays that are large enough for a crop."""
    sources: dict[str, str] = {}
    arrays: dict[str, Any] = {}
    for path in sorted(folder.glob("*.npz")):
        sources[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        with np.load(path) as file:
            arrays |= {name: file[name] for name in file}
    arrays = {n: a for n, a in arrays.items() if a.ndim == 3 and min(a.shape[1:]) >= side}
    if not arrays:
        raise CubeFormatError(f"{folder}: no .npz with arrays (bands, rows, cols) of {side} px")
    return sources, arrays


def _judges(images: Sequence[Images], settings: PriorTraining, device: str) -> list[Batch]:
    """Batches of the places held back: the same whatever the network."""
    if not images:
        return []
    pool = Pool(settings.side, JUDGES, np.random.default_rng(0), device)
    rng, shelf = torch.Generator(device).manual_seed(0), Shelf(images)
    each = (shelf, pool, settings.masks, settings.planes, rng)
    return [batch_of(*each) for _ in range(TRIALS)]


def _judged(now: TrainingState, judges: Sequence[Batch]) -> dict[str, float]:
    """Mean gain over the field, dB: of planes without noise and with it."""
    gains, noisy = [], []
    with torch.no_grad():
        for batch in judges:
            ours, field = errors(now.mean, batch)
            gains.append(10 * (field / ours.clamp_min(1e-12)).log10())
            noisy.append(batch.sigma > 0)
    if not gains:
        return {}
    gain, noise = torch.cat(gains), torch.cat(noisy)
    return {"gain_clean": float(gain[~noise].mean()), "gain_noisy": float(gain[noise].mean())}


def _keep(path: Path, about: dict[str, Any], now: TrainingState, rows: Any) -> None:
    tensors = {
        "network": now.network.state_dict(),
        "mean": now.mean.state_dict(),
        "optimiser": now.optimiser.state_dict(),
    }
    draft = path.with_name(path.name + ".part")
    torch.save({"about": about, "step": now.step, "rows": rows, "tensors": tensors}, draft)
    draft.replace(path)


def _kept(path: Path, about: dict[str, Any]) -> Any:
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    if state["about"] != about:
        raise BadValue(f"{path} belongs to another training; repeat its settings, or remove it")
    return state


def _write(
    now: TrainingState, about: dict[str, Any], rows: Any, output: Path, overwrite: bool
) -> None:
    from safetensors.torch import save

    weights = {k: v.half().contiguous().cpu() for k, v in now.mean.state_dict().items()}
    if not all(w.isfinite().all() for w in weights.values()):
        raise BadValue("the weights are no longer finite: train again with a smaller `lr=`")
    table = StringIO()
    writer = csv.DictWriter(table, list(rows[-1]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with io.staged(output, overwrite=overwrite) as folder:
        content = save(weights, metadata={"hydiff-prior": json.dumps(about)})
        (folder / output.name).write_bytes(content)
        (folder / (output.name + ".csv")).write_text(table.getvalue())
