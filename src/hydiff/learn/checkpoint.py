"""Continue after an interruption: the state of a running method is saved to disk at intervals.

A checkpoint is a safetensors file, written whole or not at all, with a fingerprint of the run that
it belongs to.
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

INTERVAL = 30.0  # seconds between checkpoints: about the most that an interruption costs


def fingerprint(*parts: Any) -> str:
    """Return a hash of arrays and values that JSON can write: all that a run depends on."""
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
    """The file that holds the state of a run, and the time when it was last saved."""

    path: Path
    belongs_to: str  # fingerprint of input, method, settings and seed
    saved: float = field(default_factory=time.monotonic)

    def load(self) -> dict[str, Any] | None:
        """Return the tensors of the last checkpoint, or None if there is none."""
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
        """Raise an error if the path holds another kind of file, which must not be replaced."""
        if is_there(self.path) and self._content()[0] is None:
            raise OutputError(f"{self.path} is not a checkpoint of ours; choose another name")

    def _content(self) -> tuple[str | None, dict[str, Any]]:
        """Return the fingerprint of the run that the file belongs to, and its tensors."""
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
        """Save the state of a step if the last one was saved `INTERVAL` seconds ago or earlier."""
        if step.state is None or time.monotonic() - self.saved < INTERVAL:
            return
        self.save(step.state(), history)
        self.saved = time.monotonic()

    def save(self, state: Mapping[str, Any], history: list[Mapping[str, Any]]) -> None:
        """Write the tensors of a state to the file, with the history as one tensor per column."""
        import torch
        from safetensors.torch import save

        columns = {f"history.{k}": [float(row[k]) for row in history] for k in history[-1]}
        tensors = {k: v.contiguous().cpu() for k, v in state.items()}
        tensors |= {k: torch.tensor(v, dtype=torch.float64) for k, v in columns.items()}
        with staged(self.path, overwrite=True) as folder:
            content = save(tensors, metadata={"belongs_to": self.belongs_to})
            # not written by safetensors, so that errors of the disk are reported as such
            (folder / self.path.name).write_bytes(content)
            (folder / self.path.name).chmod(0o600)  # the values of an input may be private

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def history_of(tensors: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the log of all steps up to a checkpoint, from its tensors."""
    names = [k.removeprefix("history.") for k in tensors if k.startswith("history.")]
    columns = [tensors[f"history.{name}"].tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
