"""The choice of a user for a suite: scenes, masks, noise levels, methods and seeds, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hydiff import auto
from hydiff.bench import cells, scenes
from hydiff.bench.cells import Cell, Level
from hydiff.errors import BadValue, UnknownName
from hydiff.gaps.mask import columns_needed
from hydiff.methods import METHODS, WITH_REFERENCE, choose, user_code

# Mask and noise level of the runs of slow methods at the paper's 144 × 144
LARGE_CASES: tuple[tuple[str, Level], ...] = (("published-3", 0.0), ("published-3", 0.2))


class Limit(NamedTuple):
    """Seeds, scenes and masks of a slow method, where the caller names none."""

    seeds: int = 3
    scenes: tuple[str, ...] | None = None  # None = all
    masks: tuple[str, ...] | None = None
    large: tuple[str, ...] = ()  # further scenes, of the paper's size, for LARGE_CASES alone


@dataclass(frozen=True)
class SuiteChoice:
    """The choices of a caller for a suite."""

    scenes: tuple[str, ...]
    named: bool = False  # whether the caller named these scenes
    seeds: int | None = None  # of cells that draw random numbers; None = as the suite says
    masks: tuple[str, ...] | None = None  # None = those of the suite
    noise: tuple[Level, ...] | None = None
    methods: tuple[str, ...] | None = None
    columns: Mapping[str, int] = field(default_factory=dict)  # of scenes that the caller brings
    preset: str | None = None  # of learned methods
    tuned: bool = False  # whether peers are also run with settings tuned on hidden pixels
    budget: str = "normal"  # of auto
    no_prior: bool = False  # auto without the prior
    offline_minutes: float = 2.0
    quick: bool = False

    @property
    def own_methods(self) -> tuple[str, ...]:
        """Methods that are functions in files of the caller."""
        return tuple(m for m in self.methods or () if is_own(m))

    def wants(self, method: str) -> bool:
        """Return whether a method is to be run."""
        return self.methods is None or method in self.methods

    def fits(self, scene: str, mask: str) -> bool:
        """Return whether a scene is wide enough for a mask, which is never rescaled."""
        return self.columns.get(scene, scenes.columns(scene)) >= columns_needed(mask)

    def chosen(self, masks: tuple[str, ...]) -> tuple[str, ...]:
        """Return the masks of the caller, else those of a suite.

        A quick run takes at most two of the suite that fit its scene, or `stripes` in their place.
        """
        if self.masks or not self.quick:
            return self.masks or masks
        fit = [m for m in masks if self.fits(scenes.QUICK, m)]
        return tuple(dict.fromkeys((*fit, "stripes")))[: min(2, len(masks))]

    def includes(self, *names: str) -> bool:
        """Return whether a suite about one scene, with any of these names, is to be run."""
        return self.quick or not self.named or not set(names).isdisjoint(self.scenes)

    def within(self, limit: Limit, cell: Cell) -> bool:
        """Return whether a cell is run, given the limit of its method."""
        if not self.named and cell.scene in limit.large:
            return (cell.mask, cell.sigma_y) in LARGE_CASES
        fits = self.named or limit.scenes is None or cell.scene in limit.scenes
        return fits and (self.masks is not None or limit.masks is None or cell.mask in limit.masks)


def is_own(method: str) -> bool:
    """Return whether a method is FILE.py:FUNCTION; raise an error if there is no such function."""
    return user_code.IN_FILE.fullmatch(method) is not None and callable(choose(method).inpaint)


def choice_of(
    files: scenes.Files,
    *,
    names: Sequence[str] = (),
    masks: Sequence[str] = (),
    noise: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: int | None = None,
    preset: str | None = None,
    tuned: bool = False,
    budget: str = "normal",
    no_prior: bool = False,
    offline_minutes: float = 2.0,
    quick: bool = False,
) -> SuiteChoice:
    """Check the options of a user, and return them as a `SuiteChoice`.

    files: scenes of the user, name → path.  names: the scenes to use, by default those of `files`,
    or all available scenes if there are none.
    """
    rows = (*METHODS, *WITH_REFERENCE, cells.INPUT, auto.NAME)
    known = {"method": rows, "budget": tuple(auto.BUDGETS)}
    for kind, name in (*(("method", m) for m in methods), ("budget", budget)):
        if name not in known[kind] and not (kind == "method" and is_own(name)):
            raise UnknownName(kind, name, known[kind])
    try:
        levels = tuple(cells.level_of(text) for text in noise)
    except ValueError:
        text = " ".join(noise)
        raise BadValue(f"`sigma={text}`: expected numbers, or {cells.BAND}") from None
    if seeds is not None and seeds < 1:
        raise BadValue(f"seeds = {seeds}: expected 1 or more")
    for scene in set(names) - set(files):
        scenes.check(scene)
    for mask in masks:  # refuses unknown masks
        scenes.observed_of(mask, (2, 64, max(64, columns_needed(mask))))
    if quick and (names or files):
        raise BadValue("`quick=True` has a scene of its own; leave `scene=` or `quick=` out")
    return SuiteChoice(
        scenes=(scenes.QUICK,) if quick else tuple(names or files or scenes.available()),
        named=quick or bool(names or files),
        seeds=seeds or (1 if quick else None),
        masks=tuple(masks) or None,
        noise=levels or None,
        methods=tuple(methods) or None,
        columns={name: scenes.columns(name, files) for name in files},
        budget="fast" if quick else budget,
        no_prior=no_prior,
        offline_minutes=0.02 if quick else offline_minutes,
        preset=preset,
        tuned=tuned,
        quick=quick,
    )
