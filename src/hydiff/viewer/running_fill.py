"""A fill that runs in its own thread; the page polls its progress and can stop it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from hydiff import api
from hydiff.auto import BUDGETS as BUDGETS
from hydiff.cube import Bools, Cube, Floats, detector_scale
from hydiff.errors import BadValue, OutputError
from hydiff.gaps import rule
from hydiff.io import provenance
from hydiff.methods import DEFAULT, METHODS
from hydiff.request import Request
from hydiff.result import Meter, Result, Step
from hydiff.scale.layout import limits, wanted
from hydiff.viewer.page_work import PageWork

PREVIEW_EVERY = 1.0  # s between two previews, as each copies the whole estimate
NAMES = (DEFAULT, *METHODS)


class Stopped(Exception):
    """Raised in a fill that is stopped before it has an estimate."""


class RunningFill(PageWork[Result]):
    """A running or finished fill of a cube."""

    def __init__(
        self,
        cube: Cube,
        observed: Bools | None,
        method: str,
        budget: str,
        settings: dict[str, Any],
        references: Sequence[Cube] = (),
    ) -> None:
        self.done, self.total = 0, 0
        self.meter = Meter()
        self.preview: Floats | None = None  # (bands, rows, cols) in the cube's unit
        self.previews = 0
        self.stopping = Event()
        self._ask = (cube, observed, method, budget, settings, references)
        self._last = 0.0
        self._unscaled: Any = None
        super().__init__(self._fill)

    def stop(self) -> None:
        self.stopping.set()

    def _fill(self) -> Result:
        cube, observed, method, budget, settings, references = self._ask
        cube = cube.load()
        self._unscaled = _unscaling(cube, observed)
        options: dict[str, Any] = {"budget": budget} if method == DEFAULT else settings
        if references:
            options = {**options, "reference": list(references)}
        try:
            result = api.fill(cube, observed, method=method, progress=self._step, **options)
        except Stopped:
            raise BadValue("stopped before there was anything to keep") from None
        if self.stopping.is_set() and self.done < self.total:
            note = f"stopped by hand after {self.done} of {self.total} steps"
            result = replace(result, notes=[*result.notes, note])
        return result

    def _step(self, step: Step) -> bool:
        """Update progress and preview; return True to end the fill with its current estimate."""
        self.done, self.total = step.done, step.total
        self.meter.step(step)
        if self.stopping.is_set():
            if step.x is None:
                raise Stopped
            return True
        now = time.monotonic()
        if step.x is not None and now - self._last >= PREVIEW_EVERY:
            self._last = now
            self.preview = self._unscaled(step.x)
            self.previews += 1
        return False


def _unscaling(cube: Cube, observed: Bools | None) -> Any:
    """Return a function that converts the estimate of a method to values in the cube's unit.

    Methods estimate, on the unit range, the good bands with observed pixels only.
    """
    measured, _ = rule.observed_entries(cube, observed, None)
    values = np.asarray(cube.values, dtype=np.float64)
    scale = detector_scale(values, measured, cube.good_bands, cube.detectors)
    bands = measured.any(axis=(1, 2)) & cube.good_bands

    def unscaled(x: Any) -> Floats:
        if not isinstance(x, np.ndarray):
            x = x.detach().double().cpu().numpy()
        whole = np.full(values.shape, np.nan)
        whole[bands] = x
        return np.where(measured, values, scale.from_unit(whole))

    return unscaled


def refuse_large(cube: Cube, method: str) -> None:
    """Raise BadValue if the cube is too large to be filled in memory."""
    if wanted(cube, Request(method=method), limits(None)):
        raise BadValue(
            "this scene does not fit into memory as one: fill it by tiles in a shell, "
            f"`hydiff fill {cube.path or 'FILE'} -o OUT.zarr`, and watch it with "
            f"`hydiff view {cube.path or 'FILE'} OUT.zarr`"
        )


def default_output(path: Path) -> Path:
    """Name the output next to the input: scene.bil → scene_filled.bil.

    .npy becomes .npz, as it cannot store that it is filled.
    """
    suffix = ".npz" if path.suffix.lower() == ".npy" else path.suffix
    return path.with_name(f"{path.stem}_filled{suffix}")


def save(result: Result, name: str, output: Path) -> list[Path]:
    """Write a result as `name` into the folder of `output`; never overwrite a file."""
    folder = output.parent.resolve()  # "." would tell nobody where
    if not name or Path(name).name != name or name in (".", ".."):
        raise BadValue(f"{name!r}: give the bare name of a file; it is written to {folder}")
    path = output.parent / name
    for existing in (path, *provenance.beside(path)):
        if existing.exists() or existing.is_symlink():
            raise OutputError(f"{existing.name} exists in {folder}; choose another name")
    return provenance.save(result, path, command=["hydiff", "view"])


def settings_of(text: str) -> dict[str, str]:
    """Parse settings such as `steps=300, lr=0.01`."""
    parts = text.replace(",", " ").split()
    for part in parts:
        if "=" not in part:
            raise BadValue(f"{part}: expected settings as key=value, such as steps=300")
    return dict(part.split("=", 1) for part in parts)
