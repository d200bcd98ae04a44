"""Train the prior on a folder of images, and store its weights with a description of the training.

OUTPUT              the weights, fp16 safetensors, with a JSON description as a metadata entry
OUTPUT.csv          training curve: loss, and gain (dB) over the plain field on held-back places
OUTPUT.training     state of an unfinished training, from which `resume` continues
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hydiff import io
from hydiff.cube import Array
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import npz
from hydiff.io.parsing import check_real, parsing
from hydiff.io.regular import is_there
from hydiff.io.versions import versions
from hydiff.learn import prior_weights, weights_file
from hydiff.learn.dead_leaves import drawn
from hydiff.learn.plane_network import PlaneNetwork
from hydiff.learn.prior_training import (
    PriorTraining,
    TrainingState,
    errors,
    train,
)
from hydiff.learn.training_planes import KINDS, Batch, Images, Pool, Shelf, batch_of, images_of
from hydiff.learn.weights import beside
from hydiff.scale.training_files import check_outputs, keep_path

LAYOUT = 1
EVERY = 500  # steps between two rows of the curve
KEPT = 60.0  # seconds between two states on disk
TRIALS = 4  # number of validation batches
JUDGES = 48  # number of masks that validation batches are drawn from

Progress = Callable[[int, int], Any] | None


def train_prior(
    data: Path | None,
    output: Path,
    settings: PriorTraining,
    *,
    more: Path | None = None,
    start: Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """Train on all arrays of the .npz files in `data` and `more`.

    Returns the description of the training stored with the weights, with the entry `curve` added.

    An array is (bands, rows, cols); its name begins with its place and an underscore.  All arrays
    of some places are held back for validation.
    start: initial weights, of width `settings.width`; None = a new network.
    """
    state_path = keep_path(output)
    check_outputs((output, beside(output, ".csv")), state_path, resume=resume, overwrite=overwrite)
    folders = [folder for folder in (data, more) if folder is not None]
    sources, arrays = _arrays(folders, settings.side)
    held = _held({name.partition("_")[0] for name in arrays}, settings, folders)
    images = [images_of(name.partition("_")[0], a, device) for name, a in arrays.items()]
    description: dict[str, Any] = {
        "layout": LAYOUT,
        "settings": asdict(settings),
        "planes": KINDS,
        "data": sources,
        "held": sorted(held),
        **({} if start is None else {"start": _start(start)}),
        "versions": versions("torch", "numpy"),
    }
    state = _kept(state_path, description) if resume else None
    validation = _judges([i for i in images if i.place in held], settings, device)
    images = [i for i in images if i.place not in held]
    rng = np.random.default_rng(settings.seed)
    images += [images_of("drawn", drawn(rng), device) for _ in range(settings.drawn)]
    rows: list[dict[str, float]] = [] if state is None else state["rows"]
    first = 0 if state is None else state["step"]
    saved = time.perf_counter()
    began = saved - (rows[-1]["seconds"] if rows else 0.0)
    # all batches have the same shape, so searching once for the fastest convolutions pays
    torch.backends.cudnn.benchmark = True
    tensors = None if state is None else state["tensors"]
    build = PlaneNetwork if start is None else partial(_copy_of, start, device)
    for current in train(images, settings, device, tensors, first, build):
        if progress is not None and current.step % 20 == 0:
            progress(current.step, settings.steps)
        if current.step % EVERY == 0 or current.step == settings.steps:
            seconds = time.perf_counter() - began
            figures = {"seconds": seconds, "loss": float(current.loss)} | _judged(
                current, validation
            )
            rows.append({"step": current.step} | {k: round(v, 3) for k, v in figures.items()})
        if current.step < settings.steps and time.perf_counter() - saved > KEPT:
            _keep(state_path, description, current, rows)
            saved = time.perf_counter()
    _write(current, description, rows, output, overwrite)
    state_path.unlink(missing_ok=True)
    return description | {"curve": rows}


def _held(places: set[str], settings: PriorTraining, folders: Sequence[Path]) -> set[str]:
    """Return the places that are held back for validation; refuse to hold back all of them."""
    if settings.held >= len(places):
        listing = " and ".join(map(str, folders))
        raise BadValue(
            f"held = {settings.held}: only {len(places)} places are in {listing}; hold back fewer, "
            "or none with held = 0"
        )
    drawn_first = np.random.default_rng(settings.seed).permutation(sorted(places))
    return set(drawn_first[: settings.held].tolist())


def _arrays(folders: Sequence[Path], side: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the hashes of the files by name, and their arrays large enough for a crop."""
    sources: dict[str, str] = {}
    arrays: dict[str, Any] = {}
    for folder in folders:
        if not (is_there(folder) and folder.is_dir()):
            raise CubeFormatError(f"{folder}: no such folder; name one that holds .npz files")
        contents = {p.name: _of_file(p, side) for p in sorted(folder.glob("*.npz"))}
        large = {name: a for _, file_arrays in contents.values() for name, a in file_arrays.items()}
        if not large:
            raise CubeFormatError(
                f"{folder}: no .npz with arrays (bands, rows, cols) of {side} px or more; add "
                "larger images, or set a smaller side"
            )
        if twice := (arrays.keys() & large.keys()) | (sources.keys() & contents.keys()):
            raise BadValue(f"{folder}: {min(twice)} is in another folder too; rename one of them")
        sources |= {name: sha256 for name, (sha256, _) in contents.items()}
        arrays |= large
    return sources, arrays


def _of_file(path: Path, side: int) -> tuple[str, dict[str, Any]]:
    """Return the hash of a file, and its arrays of at least `side` px by name."""
    is_there(path)
    with parsing(path, "an .npz of arrays (bands, rows, cols)"):
        shapes = {name: shape for name, (shape, _) in npz.members(path).items()}
        large = [n for n, shape in shapes.items() if len(shape) == 3 and min(shape[1:]) >= side]
        with np.load(path) as file:
            arrays = {name: _image(file[name], name, path) for name in large}
    return hashlib.sha256(path.read_bytes()).hexdigest(), arrays


def _image(values: Array, name: str, path: Path) -> Array:
    """Return the bands of an array that vary, in single precision; refuse missing values."""
    check_real(values.dtype, path)
    with np.errstate(over="ignore"):
        bands = values.astype(np.float32)
    if not np.isfinite(bands).all():
        raise CubeFormatError(
            f"{path}: {name} has NaN, Inf or values beyond float32; expected complete images: "
            "crop, fill or scale it"
        )
    varying: Array = bands[(bands != bands[:, :1, :1]).any(axis=(1, 2))]
    if not len(varying):
        raise CubeFormatError(f"{path}: {name} is constant; remove it, for nothing can be learned")
    return varying


def _start(weights: Path) -> dict[str, Any]:
    """Return the description of the initial weights, to be stored with the new ones."""
    description, _ = weights_file.content(weights, prior_weights.KIND)
    origin = {"file": weights.name, "sha256": prior_weights.digest(weights)}
    return origin | {key: description.get(key) for key in ("data", "start") if key in description}


def _copy_of(weights: Path, device: str, width: int) -> PlaneNetwork:
    """Return a trainable network with initial weights from a file; refuse another width."""
    network = prior_weights.network_of(weights, device)
    if network.width != width:
        raise BadValue(f"{weights} has width {network.width}, and width = {width} was asked for")
    return deepcopy(network).requires_grad_(True).train()


def _judges(images: Sequence[Images], settings: PriorTraining, device: str) -> list[Batch]:
    """Return validation batches from the held-back places; they do not depend on the network."""
    if not images:
        return []
    pool = Pool(settings.side, JUDGES, np.random.default_rng(0), device)
    rng, shelf = torch.Generator(device).manual_seed(0), Shelf(images)
    arguments = (shelf, pool, settings.masks, settings.planes, rng)
    return [batch_of(*arguments) for _ in range(TRIALS)]


def _judged(current: TrainingState, batches: Sequence[Batch]) -> dict[str, float]:
    """Return the mean gain over the field in dB, for planes without noise and with noise."""
    gains, noisy = [], []
    with torch.no_grad():
        for batch in batches:
            network_error, field_error = errors(current.mean, batch)
            gains.append(10 * (field_error / network_error.clamp_min(1e-12)).log10())
            noisy.append(batch.sigma > 0)
    if not gains:
        return {}
    gain, noise = torch.cat(gains), torch.cat(noisy)
    return {"gain_clean": float(gain[~noise].mean()), "gain_noisy": float(gain[noise].mean())}


def _keep(path: Path, description: dict[str, Any], current: TrainingState, rows: Any) -> None:
    """Write the state of the training, from which `resume` continues."""
    tensors = {
        "network": current.network.state_dict(),
        "mean": current.mean.state_dict(),
        "optimiser": current.optimiser.state_dict(),
    }
    content = BytesIO()
    torch.save(
        {"about": description, "step": current.step, "rows": rows, "tensors": tensors}, content
    )
    with io.staged(path, overwrite=True) as folder:
        # not written by torch, so that errors of the disk are reported as such
        (folder / path.name).write_bytes(content.getbuffer())


def _kept(path: Path, description: dict[str, Any]) -> Any:
    """Return the stored state of this training, or None; refuse that of another training."""
    if not is_there(path):
        return None
    try:
        state = torch.load(path, weights_only=True)
        about = state["about"]
    except Exception:  # torch raises anything from KeyError to UnpicklingError
        raise CubeFormatError(
            f"{path} is no readable state of a training; remove it and start again"
        ) from None
    if about != description:
        raise BadValue(f"{path} belongs to another training; repeat its settings, or remove it")
    return state


def _write(
    current: TrainingState, description: dict[str, Any], rows: Any, output: Path, overwrite: bool
) -> None:
    """Write the weights (fp16) with their description, and the training curve as CSV."""
    from safetensors.torch import save

    weights = {k: v.half().contiguous().cpu() for k, v in current.mean.state_dict().items()}
    if not all(w.isfinite().all() for w in weights.values()):
        raise BadValue("the weights are no longer finite: train again with a smaller `lr=`")
    table = StringIO()
    writer = csv.DictWriter(table, list(rows[-1]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with io.staged(output, overwrite=overwrite) as folder:
        content = save(weights, metadata={"hydiff-prior": json.dumps(description)})
        (folder / output.name).write_bytes(content)
        (folder / (output.name + ".csv")).write_text(table.getvalue())
