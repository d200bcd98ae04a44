"""Read JSON as frozen dataclasses: values are checked against the annotations, field by field.

Annotations are str, bool, int, float (finite), Any, X | None and other unions, tuple[X, ...],
dict[str, X], dataclasses, and Annotated[X, check] with a `Between` or a `Like`.  Entries that a
dataclass does not name are ignored: a later version may have written them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

MOST_BYTES = 64 << 20  # of a file; files read here are written by hand or by a fill
DEEPEST = 16  # levels of nesting, where any value is allowed
FINITE = sys.float_info.max


class Between(NamedTuple):
    """A number from least to most."""

    least: float
    most: float

    def holds(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)

    def __str__(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"


class Like(NamedTuple):
    """Text that matches a pattern, which `words` describe for people."""

    pattern: str
    words: str

    def holds(self, value: Any) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.words


# annotation -> its name for people, and the types in which `json` reads it
FORMS: dict[Any, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    NoneType: ("null", (NoneType,)),
    tuple: ("a list", (list,)),
    dict: ("entries by name", (dict,)),
}


NEVER: tuple[str, tuple[type, ...]] = ("what JSON cannot hold", ())


def load(path: Path) -> Any:
    """Return the content of a JSON file; OSError or ValueError if that fails or it is no file."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
    return parsed(path.read_bytes())


def parsed(text: str | bytes) -> Any:
    """Return parsed JSON, or raise a ValueError of one line."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is no JSON") from None


def dumps(value: Any) -> str:
    """Return JSON that every JSON reader accepts: null for NaN and Inf."""
    return json.dumps(_strict(value), indent=2, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    """Replace NaN and Inf by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked(kind: Any, value: Any, name: str) -> Any:
    """Return a value of `load` in the form of an annotation; ValueError says what does not fit."""
    if kind is Any:
        _check_depth(value, name)
        return value
    if get_origin(kind) is Annotated:
        inner, test = get_args(kind)
        result = checked(inner, value, name)
        if not test.holds(result):
            raise ValueError(f"{name} is {_shown(value)}, expected {test}")
        return result
    if get_origin(kind) in (Union, UnionType):
        fitting = next((k for k in get_args(kind) if _fits(k, value)), None)
        if fitting is not None:
            return checked(fitting, value, name)
    if not _fits(kind, value):
        raise ValueError(f"{name} is {_shown(value)}, expected {_words(kind)}")
    return _inside(kind, value, name)


def _inside(kind: Any, value: Any, name: str) -> Any:
    """Return a value that has the right form as a whole, with its parts checked."""
    if is_dataclass(kind):
        return _instance(kind, value, name)
    if get_origin(kind) is tuple:
        part_kind = get_args(kind)[0]
        return tuple(checked(part_kind, part, f"{name}[{i}]") for i, part in enumerate(value))
    if get_origin(kind) is dict:
        part_kind = get_args(kind)[1]
        return {key: checked(part_kind, part, f"{name}.{key}") for key, part in value.items()}
    if kind is float and not -FINITE <= value <= FINITE:
        raise ValueError(f"{name} is {_shown(value)}, expected a finite number")
    return kind(value) if kind is float else value


def _instance(kind: Any, value: dict[str, Any], name: str) -> Any:
    """Return a dataclass from entries by name; ValueError if a required one is absent."""
    known = {f.name: f for f in fields(kind)}
    lacking = [n for n, f in known.items() if n not in value and _needed(f)]
    if lacking:
        raise ValueError(f"{name} lacks {', '.join(lacking)}")
    hints = _hints(kind)
    parts = {n: checked(hints[n], value[n], f"{name}.{n}") for n in known if n in value}
    try:
        return kind(**parts)
    except ValueError as error:  # from its __post_init__: parts that do not go together
        raise ValueError(f"{name}: {error}") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotations of a dataclass by field, as types."""
    return get_type_hints(kind, include_extras=True)


def _needed(field: Any) -> bool:
    """Return whether a field has no default, so that its entry is required."""
    return field.default is MISSING and field.default_factory is MISSING


def _form(kind: Any) -> tuple[str, tuple[type, ...]]:
    """Return the form of an annotation in words, and the types in which `json` reads it."""
    if get_origin(kind) is Annotated:
        return _form(get_args(kind)[0])
    return FORMS.get(dict if is_dataclass(kind) else get_origin(kind) or kind, NEVER)


def _words(kind: Any) -> str:
    """Describe an annotation in words, such as "text or null"."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return " or ".join(_form(member)[0] for member in kinds)


def _fits(kind: Any, value: Any) -> bool:
    """Return whether a value has the form of an annotation as a whole; parts are not checked."""
    types = _form(kind)[1]
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _shown(value: Any) -> str:
    """Return a short text of any value, for a message."""
    if isinstance(value, dict | list):
        return _form(dict if isinstance(value, dict) else tuple)[0]
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _check_depth(value: Any, name: str, depth: int = 0) -> None:
    """Raise ValueError if a value is nested more than DEEPEST levels deep."""
    if depth > DEEPEST:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_depth(part, name, depth + 1)
