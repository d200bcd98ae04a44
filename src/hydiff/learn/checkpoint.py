"""Go on after an interruption: the state of a running method, on disk at intervals.

A checkpoint is a safetensors file, written whole or not at all, that knows what it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.errors import BadValue, CubeFormatError, OutputError
from hydiff.io import staged
from hydiff.io.regular import is_there
from hydiff.result import Step

INTERVAL = 30.0  # seconds between checkpoints: what an interruption can cost at most


def fingerprint(*parts: Any) -> str:
    """A hash of arrays and JSON-able things: what a run depends on."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str((part.dtype, part.shape)).encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()


@dataclass
class Checkpoint:
    """Where a run keeps its state, and since when it has not."""

    path: Path
    belongs_to: str  # fingerprint of input, method, settings and seed
    saved: float = field(default_factory=time.monotonic)

    def load(self) -> dict[str, Any] | None:
        """The tensors of the last checkpoint; None when there is none."""
        if not is_there(self.path):
            return None
        owner, tensors = self._content()
        if owner != self.belongs_to:
            raise BadValue(
                f"{self.path} belongs to another input, method, setting or seed; "
                "repeat those, or remove it and start again"
            )
        return tensors

    def refuse_foreign(self) -> None:
        """A run that starts afresh may replace an old checkpoint, but no other file."""
        if is_there(self.path) and self._content()[0] is None:
            raise OutputError(f"{self.path} is not a checkpoint of ours; choose another name")

    def _content(self) -> tuple[str | None, dict[str, Any]]:
        """Whom the file belongs to, and its tensors."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                owner = (file.metadata() or {}).get("belongs_to")
                return owner, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CubeFormatError(
                f"{self.path} is no readable checkpoint ({error}); remove it and start again"
            ) from None

    def offer(self, step: Step, history: list[Mapping[str, Any]]) -> None:
        """Save the state of a step when the interval is over."""
        if step.state is None or time.monotonic() - self.saved < INTERVAL:
            return
        self.save(step.state(), history)
        self.saved = time.monotonic()

    def save(self, state: Mapping[str, Any], history: list[Mapping[str, Any]]) -> None:
        import torch
        from safetensors.torch import save

        columns = {f"history.{k}": [float(row[k]) for row in history] for k in history[-1]}
        tensors = {k: v.contiguous().cpu() for k, v in state.items()}
        tensors |= {k: torch.tensor(v, dtype=torch.float64) for k, v in columns.items()}
        with staged(self.path, overwrite=True) as folder:
            content = save(tensors, metadata={"belongs_to": self.belongs_to})
            (folder / self.path.name).write_bytes(content)  # its errors are the disk's own
            (folder / self.path.name).chmod(0o600)  # values of an input that may be private

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def history_of(tensors: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The records of the steps that a checkpoint has behind it."""
    names = [k.removeprefix("history.") for k in tensors if k.startswith("history.")]
    columns = [tensors[f"history.{name}"].tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
