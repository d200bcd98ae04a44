"""What a fill gives back: `Step` while it runs, `Result` when it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hydiff.cube import Array, Bools, Cube


class Step(NamedTuple):
    """One yield of a method's loop: how far it is, and its estimate so far."""

    done: int
    total: int
    x: Any  # (bands, rows, cols) on the unit range, array or tensor; NaN where it cannot say
    log: Mapping[str, Any] = {}  # losses and monitors of this step, numbers or 0-d tensors
    state: Callable[[], Mapping[str, Any]] | None = None  # tensors from which to go on, if it can
    sigma: Any = None  # (bands, rows, cols) posterior std of x on the unit range, if it was asked
    how: str = ""  # the engine that ran it, if it had a choice
    excess: Any = None  # (bands, rows, cols) by how much the variance is larger here than usual


@dataclass(frozen=True, eq=False)
class Result:
    """A filled cube, and how it came about.  All arrays are (bands, rows, cols)."""

    cube: Cube  # ready to write: the input's dtype and metadata, observed entries as they were
    values: Array  # the method's estimate, float, in the cube's unit; observed entries untouched
    #               when sigma_y = 0; NaN where an entry was left missing
    raw: Array  # the estimate everywhere, as the method gave it
    filled: Bools  # True = this entry was missing and now has a value
    left: Mapping[str, int]  # reason → number of entries left missing
    method: str
    settings: Mapping[str, Any]
    sigma_y: Array  # (bands,) the noise std that was assumed, in the cube's unit
    history: list[Mapping[str, float]]  # one record per step of the method
    seed: int
    seconds: float
    notes: list[str] = field(default_factory=list)  # what a user should know about this run
    sigma: Array | None = None  # 1-σ error of each filled entry, in the cube's unit; NaN elsewhere
    expected: Mapping[str, float] | None = None  # scores of the filled entries, as foreseen
    # the same for each kind of gaps, where a cube has both: pixels without any band, and others
    expected_by_kind: Mapping[str, Mapping[str, float]] | None = None
    recipe: Mapping[str, Any] | None = None  # what `auto` decided; JSON-able
    references: list[dict[str, Any]] = field(default_factory=list)  # other images of the place:
    #               where they lie, what they were worth, how many entries they served; JSON-able
    beyond: Mapping[str, Any] = field(default_factory=dict)  # filled entries outside of what was
    #               observed in their band, and how they were clipped; see `hydiff.gaps.reach`
