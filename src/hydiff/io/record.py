"""Read the record of a fill, OUT.fill.json; any fault in it is reported in one line.

Fields with defaults may be absent: earlier versions did not write all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from hydiff.auto.recipe import Recipe
from hydiff.errors import CubeFormatError
from hydiff.io import typed

Count = Annotated[int, typed.Between(0, 2**63)]
Size = Annotated[float, typed.Between(0, typed.FINITE)]
Scores = dict[str, float | None]  # by name, as in `metrics`; None where a score is not known


@dataclass(frozen=True)
class Entries:
    """Numbers of entries of the cube; an entry is one band of one pixel."""

    all: Count
    missing_before: Count
    filled: Count
    missing_after: Count
    left: dict[str, Count]  # entries missing after, by the reason

    def __post_init__(self) -> None:
        """Raise ValueError unless the counts add up."""
        before, after = self.missing_before, self.missing_after
        if not 0 < self.all >= before == self.filled + after or after != sum(self.left.values()):
            raise ValueError("its counts of entries do not add up")


@dataclass(frozen=True)
class Source:
    """The file that was filled."""

    path: str
    sha256: Annotated[str, typed.Like("[0-9a-f]{64}", "64 hexadecimal digits")]


@dataclass(frozen=True)
class Component:
    """A component of σ."""

    component: str
    correlation: str  # between which entries it is correlated
    by_band: tuple[float, ...] = ()  # its size, of the input


@dataclass(frozen=True)
class SigmaBudget:
    """The quantity that σ refers to, and what σ includes and does not; see `io.uncertainty`."""

    measurand: str
    included: tuple[Component, ...]
    not_included: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """How a fill was made."""

    method: str
    settings: dict[str, Any]
    entries: Entries
    notes: tuple[str, ...]
    versions: dict[str, str]
    command: tuple[str, ...] = ()  # none for a fill from Python
    time: str = ""  # ISO 8601
    input: Source | None = None  # None for an array
    seed: int | None = None
    sigma_y: Size | tuple[Size, ...] = 0.0  # the noise assumed, in the cube's unit, or by band
    expected: Scores | None = None  # of the filled entries
    expected_by_kind: dict[str, Scores] | None = None  # the same for each kind of gap
    recipe: Recipe | None = None  # of `auto`
    flags: dict[str, Count] = field(default_factory=dict)  # filled entries, by flag
    reasons: dict[str, Count] = field(default_factory=dict)  # missing entries, by the reason
    budget: SigmaBudget | None = None  # of σ
    references: tuple[dict[str, Any], ...] = ()  # other images of the scene, and their contribution
    tiles: dict[str, Any] | None = None
    seconds: Size = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a time that is not ISO 8601, or an empty list of noise."""
        if self.time:
            datetime.fromisoformat(self.time)
        if self.sigma_y == ():
            raise ValueError("sigma_y is empty")


def read(path: Path) -> Record:
    """Return the record in a file; CubeFormatError if it is absent or damaged."""
    try:
        return checked(typed.load(path))
    except FileNotFoundError:
        raise CubeFormatError(
            f"{path}: no such file; expected the record that `hydiff fill` writes beside the "
            "filled cube: name the output of a fill, and keep its companions with it"
        ) from None
    except OSError as error:
        raise CubeFormatError(f"{path}: cannot be read as a record: {error.strerror}") from None
    except ValueError as error:
        raise CubeFormatError(
            f"{path} is no record of a fill ({error}); expected what `hydiff fill` wrote: fill "
            "again, or fetch the record again"
        ) from None


def checked(document: Any) -> Record:
    """Return a record from parsed JSON; ValueError says what is wrong with it."""
    if isinstance(document, dict) and document.get("entries") == {"missing_before": 0}:
        raise ValueError("nothing was missing: the output is a copy of its input")
    record: Record = typed.checked(Record, document, "the record")
    return record
