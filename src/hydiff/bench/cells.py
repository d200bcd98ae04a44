"""One run of the benchmark: a cell in, a row out.  No method is handed the truth."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import api, metrics
from hydiff.bench import scenes, uses
from hydiff.checkpoint import fingerprint
from hydiff.cube import Bools, Floats
from hydiff.methods import METHODS, choose, settings_dict
from hydiff.result import Result

INPUT = "input"  # the zero-filled measurement itself
OWN_KEYS = ("preset", "tuned", "offline")  # of Cell.settings; all others are the method's


@dataclass(frozen=True)
class Cell:
    """Everything that decides a result."""

    method: str
    scene: str
    mask: str
    sigma_y: float = 0.0  # on the truth's [0, 1]
    seed: int = 0
    settings: str = "{}"  # JSON: a preset, changed settings, "tuned": 1, "offline": crops

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings of the method alone."""
        return {k: v for k, v in json.loads(self.settings).items() if k not in OWN_KEYS}

    def own(self, key: str) -> Any:
        return json.loads(self.settings).get(key)


def settings_hash(cell: Cell) -> str:
    """Of all settings that a cell runs with: a changed default makes it another cell."""
    if cell.method == INPUT:
        return "-"
    chosen = choose(cell.method, cell.own("preset"), cell.changes)
    own = {k: cell.own(k) for k in ("tuned", "offline")}
    return fingerprint(settings_dict(chosen.settings), own)[:12]


def measure(truth: Floats, observed: Bools, sigma_y: float, seed: int) -> Floats:
    """y = M x + n (bands, rows, cols), NaN where nothing was observed: all a method gets."""
    noise = np.random.default_rng(seed).standard_normal(truth.shape)
    return np.where(observed, truth + sigma_y * noise, np.nan)


def run(
    cell: Cell, *, device: str = "auto", given: Mapping[str, Path] | None = None
) -> tuple[dict[str, Any], Floats]:
    """The row of a cell, and the result (bands, rows, cols) that it scores."""
    truth = scenes.load(cell.scene, given)
    observed = scenes.observed_of(cell.mask, truth.shape)
    seen = np.broadcast_to(observed, truth.shape)
    y = measure(truth, observed, cell.sigma_y, cell.seed)
    estimate = Estimate(np.where(seen, y, 0.0), 0.0, 0, {}, ())
    if cell.method != INPUT:
        estimate = fill(cell, y, seen, device)
    # a method that cannot tell leaves what the input has: 0
    raw = np.where(np.isfinite(estimate.raw), estimate.raw, 0.0)
    pasted = np.where(seen, y, raw)
    reported, other = (raw, pasted) if cell.sigma_y > 0 else (pasted, raw)
    scores = metrics.score(reported, truth, ~seen, raw=other)
    second = scores.raw or {}
    row = asdict(cell) | {f"all_{k}": v for k, v in scores.everywhere.items()}
    row |= {f"missing_{k}": v for k, v in (scores.missing or {}).items()}
    composited, plain = (
        (second, scores.everywhere) if cell.sigma_y > 0 else (scores.everywhere, second)
    )
    row |= {f"composited_{k}": v for k, v in composited.items()}
    row |= {f"raw_{k}": v for k, v in plain.items()}
    if cell.method == INPUT or estimate.out_of_reach:  # angles of the zero spectra are not defined
        row |= {k: None for k in row if k.endswith(("_sam", "_scc"))}
    row |= uses.errors(reported, truth, seen, scenes.labels_of(cell.scene))
    row |= {
        "bands": truth.shape[0],
        "rows": truth.shape[1],
        "cols": truth.shape[2],
        "missing_share": float((~seen).mean()),
        "out_of_reach": estimate.out_of_reach,
        "seconds": estimate.seconds,
        "settings_hash": settings_hash(cell),
        "resolved": json.dumps(estimate.settings),
        "notes": "; ".join(estimate.notes),
    }
    return row | machine(cell.method, device), reported


@dataclass(frozen=True)
class Estimate:
    raw: Floats  # (bands, rows, cols) as the method gave it; NaN where it could not tell
    seconds: float
    out_of_reach: int  # entries that it could not tell
    settings: Mapping[str, Any]
    notes: tuple[str, ...]


def fill(cell: Cell, y: Floats, seen: Bools, device: str) -> Estimate:
    """A method's estimate from the measurement alone."""
    changes, preset, tried = cell.changes, cell.own("preset"), ""
    if cell.own("tuned"):
        changes, tried = tuned(cell, y, seen, device)
    with tempfile.TemporaryDirectory() as folder:
        if cell.own("offline"):
            changes = changes | trained(cell, Path(folder), device)
        result = _filled(cell, y, seen, device, preset, changes)
    reach = sum(n for why, n in result.left.items() if why.startswith("out of reach"))
    notes = [*result.notes, *([tried] if tried else [])]
    settings = {k: v for k, v in result.settings.items() if k not in ("weights", "wavelengths")}
    return Estimate(result.raw, result.seconds, reach, settings, tuple(notes))


def _filled(
    cell: Cell, y: Floats, seen: Bools, device: str, preset: str | None, changes: Mapping[str, Any]
) -> Result:
    return api.fill(
        np.where(seen, y, np.nan),
        seen,
        method=cell.method,
        preset=preset,
        sigma_y=cell.sigma_y,
        seed=cell.seed,
        device=device,
        **changes,
    )


# Rivals set as well as we can without the truth: rate, steps and averaging.
TUNING: dict[str, list[dict[str, Any]]] = {
    "dhp": [{"lr": lr, "steps": n, "averaging": a}
            for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "r-dlrhyin": [{"lr": lr, "steps": n, "averaging": a}
                  for lr, n, a in ((0.01, 1500, 0.99), (0.01, 5000, 0.99), (0.003, 3000, 0.99))],
    "dds2m": [{"lr": lr, "averaging": a} for lr, a in ((5e-4, 0.98), (2e-3, 0.98), (5e-3, 0.9))],
    "share": [{"lr": lr, "averaging": a} for lr, a in ((0.01, 0.9), (0.003, 0.9), (0.001, 0.9))],
    "hir-diff": [{"variation": v, "steps": n} for v, n in ((0.0, 20), (0.05, 20), (0.1, 50))],
}  # fmt: skip


def tuned(cell: Cell, y: Floats, seen: Bools, device: str) -> tuple[dict[str, Any], str]:
    """The settings of `TUNING` that best predict hidden observed pixels, and what was tried.

    Hidden is a copy of the gaps, moved by a third of the width: the same kind of gap.
    """
    hidden = np.roll(~seen, seen.shape[2] // 3, axis=2) & seen
    kept = seen & ~hidden
    if not hidden.any() or not kept.any():
        return cell.changes, "tuned: no pixels to hide, published settings"
    errors = []
    candidates = [cell.changes, *(cell.changes | c for c in TUNING.get(cell.method, []))]
    for changes in candidates:
        raw = _filled(cell, y, kept, device, cell.own("preset"), changes).raw
        errors.append(float(np.sqrt(np.nanmean((raw - y)[hidden] ** 2))))
    best = int(np.argmin(errors))
    shown = ", ".join(f"{e:.4f}" for e in errors)
    return candidates[best], f"tuned on hidden pixels: {candidates[best]} (RMSE {shown})"


def trained(cell: Cell, folder: Path, device: str) -> dict[str, Any]:
    """Settings that name a network trained offline on damaged crops of the bundled scene."""
    from hydiff import io
    from hydiff.train import Training, train_files

    crops, minutes = (cell.own("offline")[k] for k in ("crops", "minutes"))
    paths = []
    for i, crop in enumerate(scenes.damaged_crops(crops, scenes.SPLIT // 2)):
        paths.append(folder / f"crop{i}.npz")
        io.write(crop, paths[-1])
    changes = {k: v for k, v in cell.changes.items() if k in ("channels", "scales")}
    settings = Training(crop=scenes.SPLIT // 2, **changes)
    output = folder / "model.safetensors"
    train_files(paths, output, settings, minutes=minutes, device=api.torch_device(device))
    return {"weights": str(output)}


def machine(method: str, device: str) -> dict[str, Any]:
    """Where and with what a cell ran, and the peak of its memory in MB."""
    torch_used = method in METHODS and METHODS[method].backend == "torch"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of the process so far
    place = f"CPU {platform.machine()}, {os.cpu_count()} cores"
    if torch_used and "torch" in sys.modules:
        import torch

        if api.torch_device(device).type == "cuda":
            place = torch.cuda.get_device_name()
            peak = torch.cuda.max_memory_allocated() / 2**20
            torch.cuda.reset_peak_memory_stats()
    packages = ("hydiff", "numpy", "scipy", "torch")
    versions = " ".join(f"{p} {version(p)}" for p in packages)
    return {
        "peak_mb": round(peak, 1),
        "device": place,
        "versions": f"python {platform.python_version()} {versions}",
    }
