"""A cell of the benchmark: its settings, measurement and fill.  No method gets the truth."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hydiff import api, auto, request
from hydiff.bench import scenes
from hydiff.cube import Bools, Cube, Floats, as_cube
from hydiff.maths.noise_level import Sigma
from hydiff.methods import METHODS, choose
from hydiff.methods.estimate import Job, estimate, estimates, estimating
from hydiff.methods.settings import settings_dict
from hydiff.reference.models import ReferencePlanes
from hydiff.reference.planes import prepare

INPUT = "input"  # the zero-filled measurement itself
BAND = "band"  # in place of a noise level: a level for each band
BAND_RANGE = (0.02, 0.3)  # range of these levels, which are the same for every seed
ESTIMATED = "estimated"  # the method estimates the noise level
# keys of `Cell.settings` that are not settings of the method
OWN_KEYS = ("preset", "tuned", "offline", "budget", "noise", "reference")
HANDED_IN = ("weights", "wavelengths", "space", "references")  # left out of the settings in a row

Level = float | str


@dataclass(frozen=True)
class Cell:
    """One run: everything that determines its result."""

    method: str
    scene: str
    mask: str
    sigma_y: Level = 0.0  # in the unit of the truth, [0, 1]; or BAND
    seed: int = 0
    settings: str = "{}"  # JSON: changed settings, and a preset, "tuned": 1, "offline": crops,
    #                       "budget" of auto, "noise": "estimated", "reference": 1

    @property
    def changes(self) -> dict[str, Any]:
        """The changed settings of the method alone."""
        return {k: v for k, v in json.loads(self.settings).items() if k not in OWN_KEYS}

    @property
    def noisy(self) -> bool:
        """Whether the measurement has noise."""
        return self.sigma_y != 0

    @property
    def learned(self) -> bool:
        """Whether the method fits a network."""
        return self.method in METHODS and METHODS[self.method].learned

    @property
    def needs_torch(self) -> bool:
        return self.method in METHODS and METHODS[self.method].needs_torch

    def own(self, key: str) -> Any:
        """Return an entry of `settings` by its key; None if there is none."""
        return json.loads(self.settings).get(key)


def level_of(text: str) -> Level:
    """Return the noise level that a text of a row or a command stands for."""
    return BAND if text == BAND else float(text)


def sigmas(level: Level, bands: int) -> Floats:
    """(bands,) standard deviation of the noise."""
    if level == BAND:
        return np.random.default_rng(2).uniform(*BAND_RANGE, bands)
    return np.full(bands, float(level))


def measure(truth: Floats, observed: Bools, level: Level, seed: int) -> Floats:
    """Return y = M x + n (bands, rows, cols), NaN in the gaps: the only data a method gets."""
    noise = np.random.default_rng(seed).standard_normal(truth.shape)
    return np.where(observed, truth + sigmas(level, len(truth))[:, None, None] * noise, np.nan)


class Damaged(NamedTuple):
    """The measurement of a cell; arrays (bands, rows, cols).  Methods get y and observed."""

    cell: Cell
    y: Floats  # NaN where nothing was observed
    observed: Bools

    @property
    def with_gaps(self) -> Floats:
        """y, with NaN also at entries that were hidden afterwards."""
        return np.where(self.observed, self.y, np.nan)

    @property
    def sigma_y(self) -> Sigma:
        """The noise level for the method: (bands,), or "auto" if it is to estimate it."""
        estimated = self.cell.own("noise") == ESTIMATED
        return "auto" if estimated else sigmas(self.cell.sigma_y, len(self.y))


@dataclass(frozen=True)
class CellEstimate:
    """The estimate of a method for one cell."""

    raw: Floats  # (bands, rows, cols); NaN where the method has no estimate
    seconds: float = 0.0
    out_of_reach: int = 0  # missing entries without an estimate
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sigma: Floats | None = None  # 1-σ error bars
    expected: Mapping[str, float] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)


def fill_with(
    group: Sequence[Damaged], device: str, changes: Sequence[Mapping[str, Any]]
) -> list[CellEstimate]:
    """Return estimates with the settings of `changes`, one mapping for each member of the group."""
    if group[0].cell.method == auto.NAME:
        return [_validated(damaged, device) for damaged in group]
    began = time.perf_counter()
    chosen = [
        choose(d.cell.method, d.cell.own("preset"), request.with_network(d.cell.method, changed))
        for d, changed in zip(group, changes, strict=True)
    ]
    jobs = [Job(d.cell.seed, device) for d in group]
    if "references" in chosen[0].facts.asks:
        jobs = [job._replace(references=(planes(d),)) for job, d in zip(jobs, group, strict=True)]
    runs = [
        (as_cube(d.with_gaps), d.observed, c, d.sigma_y, job)
        for d, c, job in zip(group, chosen, jobs, strict=True)
    ]
    if not chosen[0].facts.learned:  # needs neither torch nor its memory
        fits = [estimate(*arguments) for arguments in runs]
    else:
        fits = estimates([estimating(*arguments) for arguments in runs], device)
    seconds = (time.perf_counter() - began) / len(group)
    return [
        CellEstimate(
            e.values,
            seconds,
            int((np.isnan(e.values) & ~d.observed).sum()),
            _shown(settings_dict(c.settings)),
            tuple(e.notes),
            e.sigma,
        )
        for d, c, e in zip(group, chosen, fits, strict=True)
    ]


def planes(damaged: Damaged) -> ReferencePlanes:
    """Return the other image of a pair, prepared as for the methods that use one."""
    other, cube = Cube(scenes.pair(damaged.cell.scene)[1]), as_cube(damaged.with_gaps)
    return prepare(other, cube, damaged.observed, "of the pair", request.MAX_SHIFT).planes


def _validated(damaged: Damaged, device: str) -> CellEstimate:
    """Return the estimate of the default fill, with its error bars and its recipe."""
    cell = damaged.cell
    result = api.fill(
        damaged.with_gaps,
        damaged.observed,
        sigma_y=damaged.sigma_y,
        seed=cell.seed,
        device=device,
        budget=cell.own("budget"),
        no_prior=bool(cell.own("no_prior")),
        reference=Cube(scenes.pair(cell.scene)[1]) if cell.own("reference") else (),
    )
    return CellEstimate(
        result.raw,
        result.seconds,
        sum(n for why, n in result.left.items() if why.startswith("out of reach")),
        _shown(result.settings),
        tuple(result.notes),
        result.sigma,
        result.expected,
        result.recipe or {},
    )


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a row lists: all but HANDED_IN."""
    return {k: v for k, v in settings.items() if k not in HANDED_IN}
