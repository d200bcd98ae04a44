"""Settings of a method: made from a preset and overrides, and as plain values for records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from numbers import Real
from operator import index
from os import PathLike, fspath
from types import NoneType, SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from hydiff.errors import BadValue, UnknownName

IN_JSON = (str, int, float, list, tuple, dict, NoneType)


def settings_from(
    method: str, cls: type[Any], preset: str | None, overrides: Mapping[str, Any]
) -> Any:
    """Return settings of class `cls`: those of a preset (None: the defaults) with some overridden.

    Values that are texts, as on the command line, are converted to the type of the field; BadValue
    for a value of another type.
    """
    presets: Mapping[str, Any] = getattr(cls, "PRESETS", {})
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {method}", preset, presets)
    base = cls() if preset is None else presets[preset]
    hints, names = get_type_hints(cls), [f.name for f in fields(cls)]
    if unknown := [name for name in overrides if name not in names]:
        raise UnknownName(f"setting of {method}", unknown[0], names)
    return replace(base, **{k: _typed(k, v, hints[k]) for k, v in overrides.items()})


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Return the value of a setting in the type `hint` of its field, as a plain value of Python."""
    optional = NoneType in get_args(hint)
    kind = get_args(hint)[0] if optional else hint
    if optional and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    form = FORMS.get(kind)
    if form is None and not isinstance(value, str):
        return value  # such as a subspace, which no text can give
    if form is not None:
        with suppress(ValueError, TypeError):
            return form.read(value)
    words = [*([] if form is None else [form.words]), *(["none"] if optional else [])]
    raise BadValue(f"setting {name} = {value!r}: expected {' or '.join(words)}")


def _flag(value: Any) -> bool:
    """Return True or False, given itself or as text."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return bool(["false", "true"].index(str(value).lower()))


def _whole(value: Any) -> int:
    """Return an integer, given itself or as text."""
    if isinstance(value, bool):  # an integer for Python
        raise TypeError
    return int(value) if isinstance(value, str) else index(value)


def _number(value: Any) -> Any:
    """Return a number, given itself or as text; an integer stays one."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return plain(value)


def _numbers(values: Any) -> tuple[float, ...]:
    """Return numbers, given themselves or as text with commas between them."""
    return tuple(float(x) for x in (values.split(",") if isinstance(values, str) else values))


class Form(NamedTuple):
    """The values that settings of a type can have."""

    words: str  # for messages
    read: Callable[[Any], Any]  # from text or a value; ValueError or TypeError for others


FORMS: dict[Any, Form] = {
    bool: Form("true or false", _flag),
    int: Form("a whole number", _whole),
    float: Form("a number", _number),
    str: Form("text", fspath),  # many are paths of files
    tuple[float, ...]: Form("numbers", _numbers),
}


def settings_dict(settings: Any) -> dict[str, Any]:
    """Return settings as a dict that can be written as JSON."""
    if isinstance(settings, SimpleNamespace):  # of a user's function: values of any type
        return {name: plain(value) for name, value in vars(settings).items()}
    return asdict(settings)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: scalars of numpy as Python's, unknown types as text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PathLike):
        return fspath(value)
    return value if isinstance(value, IN_JSON) else str(value)
