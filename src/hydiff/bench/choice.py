"""What a user asks of a suite, checked: scenes, masks, noise levels, methods, seeds."""

from __future__ import annotations

from collections.abc import Sequence

from hydiff import auto
from hydiff.bench import cells, scenes
from hydiff.bench.suites import SuiteChoice
from hydiff.errors import BadValue, UnknownName
from hydiff.gaps.mask import columns_needed
from hydiff.methods import METHODS, WITH_REFERENCE


def plan_of(
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
    offline_minutes: float = 2.0,
    quick: bool = False,
) -> SuiteChoice:
    """The choice of a user; scenes are files (name → path) or names, else all available ones."""
    rows = (*METHODS, *WITH_REFERENCE, cells.INPUT, auto.NAME)
    known = {"method": rows, "budget": tuple(auto.BUDGETS)}
    for kind, name in (*(("method", m) for m in methods), ("budget", budget)):
        if name not in known[kind]:
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
    for mask in masks:  # one that no pattern has is refused
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
        offline_minutes=0.02 if quick else offline_minutes,
        preset=preset,
        tuned=tuned,
        quick=quick,
    )
