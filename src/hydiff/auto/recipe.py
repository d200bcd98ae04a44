"""Recipes: their structure, and how they are read from files, which are checked or refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self, get_type_hints

import numpy as np

from hydiff.auto import folds
from hydiff.auto.candidates import ELSEWHERE, NAME, Candidate
from hydiff.auto.classes import BAND_GROUPS, Around, D
from hydiff.auto.split import KINDS
from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import typed
from hydiff.io.regular import is_there
from hydiff.learn.prior_weights import digest, packaged, size_with
from hydiff.methods import choose, declared
from hydiff.metrics import NORMAL_QUANTILES

LARGEST = 1e6  # largest number that a recipe may contain
Number = Annotated[float, typed.Between(-LARGEST, LARGEST)]
Whole = Annotated[int, typed.Between(-LARGEST, LARGEST)]
Size = Annotated[float, typed.Between(0, LARGEST)]
Width = Annotated[float, typed.Between(0, typed.FINITE)]
Kind = Annotated[str, typed.Like("|".join(KINDS), " or ".join(KINDS))]
Digest = Annotated[str, typed.Like("[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")]
Fold = Annotated[int, typed.Between(1, folds.TRIALS)]

# a rim is unusual if its |rank| exceeds the first and its chance is below the second
UNUSUAL_RANK, UNUSUAL_CHANCE = 0.15, 0.02
LEVELS = (0.5, 0.8, 0.95)  # coverage of the intervals
COPIES, MODEL = "copies of the gaps", "model-based"  # the two bases of an interval


def can_say(copies: float) -> tuple[bool, ...]:
    """Return, for each level, whether this number of copies of the gaps can give its interval.

    A gap and its copies are exchangeable: all ranks of the gap's error among theirs are equally
    likely.  So n copies give intervals up to the level n / (n + 1): 4 give 80 %, 19 give 95 %.
    """
    return tuple(copies >= level / (1 - level) - 1e-6 for level in LEVELS)


@dataclass(frozen=True)
class Tried:
    """A candidate of a recipe; for a network that learned from the cube, with what is needed to
    repeat its fits."""

    name: str
    method: str
    settings: dict[str, bool | Whole | Number | None]  # no strings: they may name files
    # the network was fitted on the entries visible in the first `fits` of `of` folds; None = on no
    # fold, but a pretrained network with a seed was tuned on all entries
    fits: Fold | None = None
    of: Fold = 0
    seed: Annotated[int, typed.Between(0, 2**63)] = -1
    share: Size | None = None  # mean weight in the blend, over the hidden entries
    weights: Digest | None = None  # of a pretrained network

    @property
    def plain(self) -> bool:
        """Whether the candidate has no network."""
        return self.fits is None and self.weights is None

    @property
    def candidate(self) -> Candidate:
        """The candidate to run; ValueError if this version of hydiff does not have its weights."""
        settings: dict[str, Any] = dict(self.settings)
        if self.weights is not None:
            settings["size"] = size_with(self.weights)
            if settings["size"] is None:
                raise ValueError(
                    f"the candidate {self.name} has weights (sha256 {self.weights[:12]}) that did "
                    "not come with this version of hydiff"
                )
            if declared(self.method).learned:
                settings["start"] = "prior"
        crossfit = self.fits is not None and self.weights is None
        return Candidate(self.name, self.method, settings, crossfit)

    def __post_init__(self) -> None:
        if (self.fits or 0) > self.of or (self.fits and self.seed < 0):
            raise ValueError(
                f"the candidate {self.name} has no whole numbers 1 ≤ fits ≤ of ≤ "
                f"{folds.TRIALS} and seed ≥ 0"
            )


def entry_of(c: Candidate) -> dict[str, Any]:
    """Return the entry of a candidate in a recipe, without strings among its settings, which may
    name files."""
    settings = {name: value for name, value in c.settings.items() if not isinstance(value, str)}
    entry = {"name": c.name, "method": c.method, "settings": settings}
    return entry | ({"weights": digest(packaged(str(c.settings["size"])))} if c.pretrained else {})


@dataclass(frozen=True)
class Errors:
    """The model of squared errors; see `intervals.errors_of`."""

    level: Number | None = None
    slopes: tuple[Number, ...] | None = None  # None = too few hidden entries to fit them
    features: tuple[str, ...] = ()  # names of the features of the slopes
    by_band: tuple[Size, ...] | None = None  # (bands,) of the cube that it was decided on
    by_distance: tuple[Width | None, ...] | None = None
    widening: Size | None = None
    intervals: tuple[Width, ...] = NORMAL_QUANTILES
    angle: Size | None = None
    # effective number of hidden copies of the gaps; None = not recorded
    copies: Size | None = None
    bounds: tuple[Size, ...] = (1.0, 1.0)  # 80 % interval of the true over the expected RMS error

    @property
    def basis(self) -> tuple[str, ...]:
        """The basis of the 50, 80 and 95 % intervals, each COPIES or MODEL."""
        return tuple(COPIES if enough else MODEL for enough in can_say(self.copies or 0.0))

    def __post_init__(self) -> None:
        if self.slopes is not None and None in (self.level, self.by_band, self.widening):
            raise ValueError("slopes go with level, by_band and widening")
        if self.slopes is not None and tuple(self.features) != Around._fields:
            raise ValueError(
                "its error bars have slopes of other features than this version of hydiff has: "
                "decide again"
            )
        lengths = {"slopes": len(Around._fields), "by_distance": D, "intervals": 3, "bounds": 2}
        for name, n in lengths.items():
            if (numbers := getattr(self, name)) is not None and len(numbers) != n:
                raise ValueError(f"{name} are {len(numbers)} numbers, expected {n}")
        if list(self.intervals) != sorted(self.intervals):
            raise ValueError("intervals of 50, 80 and 95 % do not grow")
        if list(self.bounds) != sorted(self.bounds):
            raise ValueError("the bounds of the error do not grow")


@dataclass(frozen=True)
class Rim:
    """Rank of the measured values beside the gaps among all measured ones; see `missingness`."""

    # minus that of moved gaps; -1 = lowest, 1 = highest
    rank: Annotated[float, typed.Between(-2, 2)]
    chance: Annotated[float, typed.Between(0, 1)]  # share of moved gaps whose rim is as unusual

    @property
    def is_unusual(self) -> bool:
        return abs(self.rank) > UNUSUAL_RANK and self.chance < UNUSUAL_CHANCE


@dataclass(frozen=True)
class ReferenceRecipe:
    """The decision of `auto` about references, other images of the place that fill some entries."""

    candidates: tuple[Tried, ...]
    # (1 + candidates, distances, groups of bands); the first is the fill without a reference
    weights: tuple[tuple[tuple[Size, ...], ...], ...]
    errors: Errors
    why: str
    # gain in dB on hidden copies of the gaps: mean over the served bands, over all if not used
    worth: Number
    by_band: tuple[Number, ...]  # gain of each band, dB
    serves: tuple[bool, ...]  # by band; False = no gain, filled without references
    used: bool
    default_elsewhere: bool = False  # where `serves` is False, the default is as good as the blend

    def __post_init__(self) -> None:
        _check_weights(self.weights, 1 + len(self.candidates))


def _check_weights(weights: tuple[tuple[tuple[float, ...], ...], ...], count: int) -> None:
    """Refuse weights of a wrong shape, or that do not add up to 1 (ValueError)."""
    shape = (count, D, BAND_GROUPS)
    groups = [group for candidate in weights for group in candidate]
    lengths = {len(c) for c in weights}, {len(group) for group in groups}
    if (len(weights), *lengths) != (shape[0], {shape[1]}, {shape[2]}):
        raise ValueError(f"weights do not have the shape {shape}")
    if np.abs(np.sum(weights, axis=0) - 1).max() > 1e-3:
        raise ValueError("weights do not add up to 1")


@dataclass(frozen=True, kw_only=True)
class KindRecipe:
    """The decision of `auto` for gaps of one kind."""

    gaps: Kind
    candidates: tuple[Tried, ...]
    weights: tuple[tuple[tuple[Size, ...], ...], ...]  # (candidates, distances, groups of bands)
    errors: Errors
    why: str  # with all figures
    reason: str  # in short, see `wording`
    folds: Annotated[int, typed.Between(0, LARGEST)]
    with_reference: ReferenceRecipe | None = None  # None without another image of the place

    def __post_init__(self) -> None:
        if not self.candidates or self.candidates[0].fits:
            raise ValueError("its first candidate is none, or has fits, which only networks have")
        _check_weights(self.weights, len(self.candidates))

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> Self:
        """Return a recipe from its JSON, which was checked on reading or made by this process."""
        values = _named(cls, entries)
        values |= _parts_of(values)
        if values.get("rim"):
            values["rim"] = Rim(**_named(Rim, values["rim"]))
        if "partial" in values:
            values["partial"] = KindRecipe.of(values["partial"])
        if "with_reference" in values:
            reference = _named(ReferenceRecipe, values["with_reference"])
            values["with_reference"] = ReferenceRecipe(**reference | _parts_of(reference))
        return cls(**values)


def _parts_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the candidates and the errors of a recipe from their JSON."""
    candidates = tuple(Tried(**_named(Tried, c)) for c in entries["candidates"])
    return {"candidates": candidates, "errors": Errors(**_named(Errors, entries["errors"]))}


def _named(cls: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are fields of a dataclass; later versions may have written others."""
    return {f.name: entries[f.name] for f in fields(cls) if f.name in entries}


@dataclass(frozen=True, kw_only=True)
class Recipe(KindRecipe):
    """The whole decision of `auto`."""

    budget: str  # of the decision
    cube: str  # `fingerprint` of the cube that it was decided on
    partial: KindRecipe | None = None  # for pixels that keep some bands, if both kinds exist
    rim: Rim | None = None  # of the gaps of that cube; None if they have hardly any measured rim

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partial is not None and (self.gaps, self.partial.gaps) != KINDS:
            raise ValueError(f"its partial is to be of {KINDS[1]}, beside one of {KINDS[0]}")

    @property
    def parts(self) -> tuple[KindRecipe, ...]:
        """The recipes of all kinds of gaps: this one, and the partial one if there is one."""
        return (self,) if self.partial is None else (self, self.partial)


def read_recipe(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return a recipe from a mapping, a JSON file, or the record (OUT.fill.json) of a fill."""
    where = source if isinstance(source, str | Path) else "the recipe"
    content = _content(source, where)
    try:
        recipe: Recipe = typed.checked(Recipe, content, "its recipe")
        if recipe.partial is not None and "partial" in content["partial"]:
            raise ValueError("its recipe.partial holds another partial, expected none")
        for part in recipe.parts:
            with_reference = () if part.with_reference is None else part.with_reference.candidates
            for candidate in (*part.candidates, *with_reference):
                _check_settings(candidate)
    except ValueError as error:
        raise BadValue(
            f"{where}: {error}; expected a recipe as a fill by {NAME} records it"
        ) from None
    return {key: value for key, value in content.items() if value is not None}


def _content(source: Mapping[str, Any] | str | Path, where: str | Path) -> dict[str, Any]:
    """Return the JSON of a recipe, not yet checked, from what `read_recipe` takes."""
    if isinstance(source, str | Path):
        is_there(Path(source))
    try:
        if isinstance(source, str | Path):
            content = typed.load(Path(source))
        else:
            content = typed.parsed(json.dumps(source))
    except OSError as error:
        raise CubeFormatError(f"{where}: cannot be read as a recipe: {error}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise CubeFormatError(f"{where}: {error}; expected an OUT.fill.json") from None
    if isinstance(content, dict) and isinstance(content.get("recipe"), dict):
        content = content["recipe"]
    if not isinstance(content, dict) or not {"candidates", "weights", "errors"} <= set(content):
        raise CubeFormatError(
            f"{where} holds no recipe; expected the record (OUT.fill.json) of a fill by {NAME}"
        )
    return content


def _check_settings(candidate: Tried) -> None:
    """Refuse a method, a setting or weights that do not exist, and values of the wrong type
    (ValueError)."""
    method = choose(candidate.method)
    needs_weights, has_weights = method.facts.pretrained, candidate.weights is not None
    if needs_weights > has_weights or has_weights > (
        needs_weights or method.facts.may_be_pretrained
    ):
        raise ValueError(f"the candidate {candidate.name}: weights belong to the prior, and to it")
    hints = get_type_hints(type(method.settings))
    for name in candidate.settings.keys() & hints.keys():
        value = candidate.settings[name]
        typed.checked(hints[name], value, f"the setting {name} of {candidate.name}")
    choose(candidate.method, None, candidate.candidate.settings)


def budget_used(recipe: Mapping[str, Any] | None, asked: str) -> str:
    """Return the budget of the decision: that of the recipe, or `asked` without a recipe."""
    return asked if recipe is None else str(recipe["budget"])


def note_of_origin(recipe: Mapping[str, Any], here: str) -> list[str]:
    """Return a note, unless the recipe was decided on the cube with the fingerprint `here`."""
    return [] if recipe["cube"] == here else [ELSEWHERE]


Buffer = bytes | memoryview


class Fingerprint:
    """A hash of the observed values in the good bands of a cube, which is added row by row.

    It depends neither on the file's format nor on the number of rows that are added at a time.
    """

    def __init__(self, good: Bools) -> None:
        self.good = good  # (bands,)
        self.digest = hashlib.sha256()

    def content(self, values: Array, observed: Bools) -> Iterator[Buffer]:
        """Yield the bytes of some rows that are hashed; values and observed (bands, rows, cols)."""
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        good = slice(None) if self.good.all() else self.good  # a slice copies nothing
        for row in range(values.shape[1]):
            measured = observed[good, row]
            yield f"{values.dtype} {measured.shape}".encode()
            yield np.packbits(measured).data
            kept = np.where(measured, values[good, row], values.dtype.type(0))
            yield np.ascontiguousarray(kept).data

    def add(self, content: Iterable[Buffer]) -> None:
        """Add the content of the next rows."""
        for part in content:
            self.digest.update(part)

    def __str__(self) -> str:
        return self.digest.hexdigest()


def fingerprint(cube: Cube, observed: Bools) -> str:
    """Return the `Fingerprint` of a whole cube; observed (bands, rows, cols)."""
    whole = Fingerprint(cube.good_bands)
    whole.add(whole.content(np.asarray(cube.values), observed))
    return str(whole)
