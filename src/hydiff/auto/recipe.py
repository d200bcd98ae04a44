"""A recipe from a file: whatever is in it, it can be followed or is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import validate
from hydiff.auto import split
from hydiff.auto.candidates import NAME
from hydiff.auto.classes import BAND_GROUPS, Around, D
from hydiff.errors import BadValue, CubeFormatError

NEEDED = {"candidates", "weights", "errors"}
LARGEST = 1e6  # number that makes sense in a recipe


def read_recipe(source: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """A recipe from a mapping, a JSON file, or the record (OUT.fill.json) of an earlier fill."""
    found: Any = source
    if isinstance(source, str | Path):
        try:
            found = json.loads(Path(source).read_text())
        except OSError as error:
            raise CubeFormatError(f"{source}: cannot be read as a recipe: {error}") from None
        except (ValueError, RecursionError):
            raise CubeFormatError(f"{source} is no JSON; expected an OUT.fill.json") from None
    if isinstance(found, Mapping) and isinstance(found.get("recipe"), Mapping):
        found = found["recipe"]
    where = source if isinstance(source, str | Path) else "the recipe"
    if not isinstance(found, Mapping) or not set(found) >= NEEDED:
        raise CubeFormatError(
            f"{where} holds no recipe; expected the record (OUT.fill.json) of a fill by {NAME}"
        )
    if (wrong := _wrong_in(found)) is not None:
        raise BadValue(f"{where}: {wrong}; expected a recipe as a fill by {NAME} records it")
    return dict(found)


def _wrong_in(recipe: Mapping[str, Any]) -> str | None:
    """What of a recipe could not be followed; a person may have edited it, or someone else.

    `gaps` is the kind of gaps that it was decided on, which older recipes do not say; `partial` a
    recipe for pixels that keep some bands, where a cube had both kinds.
    """
    if "gaps" in recipe and recipe["gaps"] not in split.KINDS:
        return f"its gaps are neither {split.NONE} nor {split.SOME}"
    if "partial" in recipe:
        partial = recipe["partial"]
        if not isinstance(partial, Mapping) or not set(partial) >= NEEDED or "partial" in partial:
            return "its partial is no recipe"
        if (recipe.get("gaps"), partial.get("gaps")) != split.KINDS:
            return f"its partial is to be of {split.SOME}, beside one of {split.NONE}"
        if (wrong := _wrong_in(partial)) is not None:
            return f"in its partial, {wrong}"
    candidates, errors = recipe["candidates"], recipe["errors"]
    if not isinstance(candidates, list) or not candidates or not isinstance(errors, Mapping):
        return "a recipe needs a list of candidates, and errors by name"
    for entry in candidates:
        named = isinstance(entry, Mapping) and isinstance(entry.get("settings"), Mapping)
        if not named or not all(isinstance(entry.get(k), str) for k in ("name", "method")):
            return "a candidate has a name, a method and settings"
        if "fits" in entry and not _foldable(entry):
            return (
                f"the candidate {entry['name']} has no whole numbers 1 ≤ fits ≤ of ≤ "
                f"{validate.TRIALS} and seed ≥ 0"
            )
    if "fits" in candidates[0]:
        return "its first candidate has fits, which only networks have"
    if not isinstance(recipe.get("why"), str):
        return "it does not say why"
    wanted: dict[str, tuple[Any, tuple[int, ...] | None]] = {
        "weights": (recipe["weights"], (len(candidates), D, BAND_GROUPS))
    }
    if errors.get("slopes") is not None:
        shapes: dict[str, tuple[int, ...] | None] = {
            "level": (),
            "slopes": (len(Around._fields),),
            "by_band": None,  # any number of bands: it may be another sensor's
            "widening": (),
        }
        wanted |= {key: (errors.get(key), shape) for key, shape in shapes.items()}
    for key, (value, shape) in wanted.items():
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            return f"its {key} are no numbers"
        if numbers.shape != shape and (shape is not None or numbers.ndim != 1):
            return f"its {key} have shape {numbers.shape}, not {'(n,)' if shape is None else shape}"
        least = -LARGEST if key in ("level", "slopes") else 0.0
        if not ((numbers >= least) & (numbers <= LARGEST)).all():
            return f"its {key} are not all between {least:g} and {LARGEST:g}"
    total = np.asarray(recipe["weights"], dtype=np.float64).sum(axis=0)
    if np.abs(total - 1).max() > 1e-3:
        return "its weights do not add up to 1"
    angle = errors.get("angle")
    if angle is not None and not (isinstance(angle, int | float) and 0 <= angle <= LARGEST):
        return "its angle is no number of 0 or more"
    return None


def _foldable(entry: Mapping[str, Any]) -> bool:
    """Whether the folds that a network was fitted on can be made again."""
    fits, of, seed = (entry.get(key) for key in ("fits", "of", "seed"))
    whole = all(type(n) is int for n in (fits, of, seed))
    return whole and 1 <= fits <= of <= validate.TRIALS and seed >= 0  # type: ignore[operator]
