"""Write a fill with its two companions: which entries were filled, and how it came about.

OUT                 the cube, in its own format
OUT.filled.npz      True where an entry was filled, packed along the bands
OUT.fill.json       command, settings, seed, versions, input hash, counts before and after
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array
from hydiff.result import Result

PACKAGES = ("hydiff", "numpy", "scipy", "torch")


def filled_mask_path(path: Path) -> Path:
    return path.with_name(path.name + ".filled.npz")


def record_path(path: Path) -> Path:
    return path.with_name(path.name + ".fill.json")


def companions(path: Path, shape: tuple[int, int, int]) -> dict[str, Array]:
    """What lies beside a fill and has its shape (bands, rows, cols), by name."""
    found: dict[str, Array] = {}
    if filled_mask_path(path).is_file():
        observed = io.read_mask(filled_mask_path(path), "missing", shape)
        found["filled"] = np.broadcast_to(~observed, shape).astype(np.uint8)
    return found


def checkpoint_path(path: Path) -> Path:
    """Where a running fill keeps its state; it is gone when the fill is done."""
    return path.with_name(path.name + ".checkpoint")


def save(
    result: Result,
    path: str | Path,
    *,
    command: Sequence[str] = (),
    overwrite: bool = False,
) -> list[Path]:
    """Write a result and its companions, all or nothing; returns the paths, the cube first."""
    path = Path(path)
    note = json.dumps(record(result, command), indent=2) + "\n"
    with io.staged(path, overwrite=overwrite) as folder:
        made = io.write_into(result.cube, folder / path.name)
        io.masks.write(result.filled, filled_mask_path(folder / path.name), "missing")
        record_path(folder / path.name).write_text(note)
    return [*(path.with_name(p.name) for p in made), filled_mask_path(path), record_path(path)]


def record(result: Result, command: Sequence[str] = ()) -> dict[str, Any]:
    """Everything needed to tell, and to repeat, how a result came about; JSON-able."""
    source = result.cube.path
    return {
        "command": list(command),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "input": None if source is None else {"path": str(source), "sha256": sha256(source)},
        "method": result.method,
        "settings": result.settings,
        "seed": result.seed,
        "sigma_y": _one_or_all(result.sigma_y),
        "entries": counts(result),
        "notes": result.notes,
        "seconds": round(result.seconds, 3),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
    }


def counts(result: Result) -> dict[str, Any]:
    """Entries in all, missing before, filled, and left with the reasons."""
    filled, left = int(result.filled.sum()), sum(result.left.values())
    return {
        "all": int(np.prod(result.cube.shape)),
        "missing_before": filled + left,
        "filled": filled,
        "missing_after": left,
        "left": dict(result.left),
    }


def _one_or_all(values: Array) -> float | list[float]:
    """One number when all are equal."""
    return float(values[0]) if (values == values[0]).all() else [float(v) for v in values]


def sha256(path: Path) -> str:
    """Of the file's bytes, as `sha256sum` prints it; of a folder, that of the list of its files."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        lines = (f"{sha256(p)}  {p.relative_to(path).as_posix()}\n" for p in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
