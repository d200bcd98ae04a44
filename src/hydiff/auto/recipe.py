"""A recipe from a file: whatever is in it, it can be followed or is refused."""

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
from hydiff.learn.prior_weights import size_with
from hydiff.methods import choose, declared
from hydiff.metrics import NORMAL_QUANTILES

LARGEST = 1e6  # number that makes sense in a recipe
Number = Annotated[float, typed.Between(-LARGEST, LARGEST)]
Whole = Annotated[int, typed.Between(-LARGEST, LARGEST)]
Size = Annotated[float, typed.Between(0, LARGEST)]
Width = Annotated[float, typed.Between(0, typed.FINITE)]
Kind = Annotated[str, typed.Like("|".join(KINDS), " or ".join(KINDS))]
Digest = Annotated[str, typed.Like("[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")]
Fold = Annotated[int, typed.Between(1, folds.TRIALS)]

UNUSUAL_RANK, UNUSUAL_CHANCE = 0.15, 0.02  # of a rim, beyond the one and below the other
LEVELS = (0.5, 0.8, 0.95)  # of the intervals
COPIES, MODEL = "copies of the gaps", "model-based"  # what they rest on


def can_say(copies: float) -> tuple[bool, ...]:
    """Whether so many exchangeable copies of the gaps can give each interval: 4 for 80 %, 19 for
    95 %.  A gap beyond all of them is as likely as any other place in their order."""
    return tuple(copies >= level / (1 - level) - 1e-6 for level in LEVELS)


@dataclass(frozen=True)
class Tried:
    """A candidate; with the folds that a network was fitted on, to fit them again."""

    name: str
    method: str
    settings: dict[str, bool | Whole | Number | None]  # no text: that may name a file
    fits: Fold | None = None  # on the first so many folds, or on what these do not hide
    of: Fold = 0
    seed: Annotated[int, typed.Between(0, 2**63)] = -1
    share: Size | None = None  # in the blend, over the hidden entries
    weights: Digest | None = None  # of a network that learned elsewhere

    @property
    def plain(self) -> bool:
        """Whether it has no network."""
        return self.fits is None and self.weights is None

    @property
    def candidate(self) -> Candidate:
        """ValueError where its weights did not come with this hydiff."""
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


@dataclass(frozen=True)
class Errors:
    """The model of square errors: see `intervals.errors_of`."""

    level: Number | None = None
    slopes: tuple[Number, ...] | None = None  # None where too little was hidden to say
    features: tuple[str, ...] = ()  # what they are slopes of
    by_band: tuple[Size, ...] | None = None  # any number of bands: it may be another sensor's
    by_distance: tuple[Width | None, ...] | None = None
    widening: Size | None = None
    intervals: tuple[Width, ...] = NORMAL_QUANTILES
    angle: Size | None = None
    copies: Size | None = None  # of the gaps, about as heavy as one another; None = not recorded
    bounds: tuple[Size, ...] = (1.0, 1.0)  # of the true RMS error over the expected one, 80 %

    @property
    def basis(self) -> tuple[str, ...]:
        """What the intervals of 50, 80 and 95 % rest on."""
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
    """How the measured values beside the gaps rank among all others: see `missingness`."""

    rank: Annotated[float, typed.Between(-2, 2)]  # less that of moved gaps: -1 lowest … 1 highest
    chance: Annotated[float, typed.Between(0, 1)]  # share of moved gaps whose rim is as unusual

    @property
    def is_unusual(self) -> bool:
        return abs(self.rank) > UNUSUAL_RANK and self.chance < UNUSUAL_CHANCE


@dataclass(frozen=True)
class ReferenceRecipe:
    """What `auto` decided about other images of the place, for the entries that they serve."""

    candidates: tuple[Tried, ...]
    # (1 + candidates, distances, groups of bands); the first is the fill without a reference
    weights: tuple[tuple[tuple[Size, ...], ...], ...]
    errors: Errors
    why: str
    worth: Number  # dB on hidden copies of the gaps, mean over the bands
    by_band: tuple[Number, ...]  # dB
    serves: tuple[bool, ...]  # bands; the others, which do not gain, are filled without
    used: bool
    default_elsewhere: bool = False  # in those the default candidate does as well as the blend

    def __post_init__(self) -> None:
        _check_weights(self.weights, 1 + len(self.candidates))


def _check_weights(weights: tuple[tuple[tuple[float, ...], ...], ...], count: int) -> None:
    shape = (count, D, BAND_GROUPS)
    groups = [group for candidate in weights for group in candidate]
    lengths = {len(c) for c in weights}, {len(group) for group in groups}
    if (len(weights), *lengths) != (shape[0], {shape[1]}, {shape[2]}):
        raise ValueError(f"weights do not have the shape {shape}")
    if np.abs(np.sum(weights, axis=0) - 1).max() > 1e-3:
        raise ValueError("weights do not add up to 1")


@dataclass(frozen=True)
class KindRecipe:
    """What `auto` decided for gaps of one kind."""

    candidates: tuple[Tried, ...]
    weights: tuple[tuple[tuple[Size, ...], ...], ...]  # (candidates, distances, groups of bands)
    errors: Errors
    why: str
    folds: Annotated[int, typed.Between(0, LARGEST)] = 0
    gaps: Kind | None = None  # None in recipes that do not say
    with_reference: ReferenceRecipe | None = None  # None without another image of the place

    def __post_init__(self) -> None:
        if not self.candidates or self.candidates[0].fits:
            raise ValueError("its first candidate is none, or has fits, which only networks have")
        _check_weights(self.weights, len(self.candidates))

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> Self:
        """From its JSON, which was checked when it was read or is our own."""
        own = _named(cls, entries)
        own |= _parts_of(own)
        if own.get("rim"):
            own["rim"] = Rim(**_named(Rim, own["rim"]))
        if "partial" in own:
            own["partial"] = KindRecipe.of(own["partial"])
        if "with_reference" in own:
            more = _named(ReferenceRecipe, own["with_reference"])
            own["with_reference"] = ReferenceRecipe(**more | _parts_of(more))
        return cls(**own)


def _parts_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The candidates and the errors of a recipe, from their JSON."""
    candidates = tuple(Tried(**_named(Tried, c)) for c in entries["candidates"])
    return {"candidates": candidates, "errors": Errors(**_named(Errors, entries["errors"]))}


def _named(cls: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that a dataclass has fields for; a later version may have written others."""
    return {f.name: entries[f.name] for f in fields(cls) if f.name in entries}


@dataclass(frozen=True)
class Recipe(KindRecipe):
    """What `auto` decided."""

    partial: KindRecipe | None = None  # for pixels that keep some bands, if there are both kinds
    budget: str | None = None  # by which it was decided; None in recipes that do not say
    cube: str | None = None  # `fingerprint` of what it was decided on
    rim: Rim | None = None  # of the gaps of that cube; None in recipes that do not say

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partial is not None and (self.gaps, self.partial.gaps) != KINDS:
            raise ValueError(f"its partial is to be of {KINDS[1]}, beside one of {KINDS[0]}")

    @property
    def parts(self) -> tuple[KindRecipe, ...]:
        return (self,) if self.partial is None else (self, self.partial)


def read_recipe(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A recipe from a mapping, a JSON file, or the record (OUT.fill.json) of an earlier fill."""
    if isinstance(source, str | Path):
        is_there(Path(source))
    where = source if isinstance(source, str | Path) else "the recipe"
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
    needed = {"candidates", "weights", "errors"}
    if not isinstance(content, dict) or not needed <= set(content):
        raise CubeFormatError(
            f"{where} holds no recipe; expected the record (OUT.fill.json) of a fill by {NAME}"
        )
    try:
        recipe: Recipe = typed.checked(Recipe, content, "its recipe")
        if recipe.partial is not None and "partial" in content["partial"]:
            raise ValueError("its recipe.partial holds another partial, expected none")
        for part in recipe.parts:
            more = () if part.with_reference is None else part.with_reference.candidates
            for candidate in (*part.candidates, *more):
                _check_settings(candidate)
    except ValueError as error:
        raise BadValue(
            f"{where}: {error}; expected a recipe as a fill by {NAME} records it"
        ) from None
    return {key: value for key, value in content.items() if value is not None}


def _check_settings(candidate: Tried) -> None:
    """Refuse methods, settings and weights that do not exist; ValueError for values of another
    type."""
    method = choose(candidate.method)
    learned, given = method.facts.pretrained, candidate.weights is not None
    if learned > given or given > (learned or method.facts.may_be_pretrained):
        raise ValueError(f"the candidate {candidate.name}: weights belong to the prior, and to it")
    kinds = get_type_hints(type(method.settings))
    for name in candidate.settings.keys() & kinds.keys():
        value = candidate.settings[name]
        typed.checked(kinds[name], value, f"the setting {name} of {candidate.name}")
    choose(candidate.method, None, candidate.candidate.settings)


def budget_used(recipe: Mapping[str, Any] | None, asked: str) -> str:
    """The budget that was decided with: the recipe's own, where one is followed."""
    return asked if recipe is None else recipe.get("budget") or "not recorded"


def note_of_origin(recipe: Mapping[str, Any], here: str) -> list[str]:
    """A note, unless a recipe was decided on the cube with the fingerprint `here`."""
    return [] if recipe.get("cube") == here else [ELSEWHERE]


class Fingerprint:
    """A hash of what was observed in the good bands of a cube, a few rows after the other.

    It is the same whatever the file's format and however many rows come at a time.
    """

    def __init__(self, good: Bools) -> None:
        self.good = good  # (bands,)
        self.digest = hashlib.sha256()

    def content(self, values: Array, observed: Bools) -> Iterator[bytes]:
        """What is to be hashed of some rows: (bands, rows, cols) both."""
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        for row in range(values.shape[1]):
            measured = observed[self.good, row]
            yield f"{values.dtype} {measured.shape}".encode()
            yield np.packbits(measured).tobytes()
            yield np.where(measured, values[self.good, row], values.dtype.type(0)).tobytes()

    def add(self, content: Iterable[bytes]) -> None:
        """The content of the next rows."""
        for part in content:
            self.digest.update(part)

    def __str__(self) -> str:
        return self.digest.hexdigest()


def fingerprint(cube: Cube, observed: Bools) -> str:
    """Of a whole cube; observed (bands, rows, cols)."""
    whole = Fingerprint(cube.good_bands)
    whole.add(whole.content(np.asarray(cube.values), observed))
    return str(whole)
