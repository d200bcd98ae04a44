"""Settings of a method or a training from values of any origin: the command line, Python, JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from types import NoneType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np

from hydiff.errors import BadValue, UnknownName
from hydiff.option_types import of_type

IN_JSON = (str, int, float, list, tuple, dict, NoneType)
LARGEST = 1e9  # a larger number is a mistake, and some would never end


def settings_from(
    method: str, cls: type[Any], preset: str | None, overrides: Mapping[str, Any]
) -> Any:
    """Return settings of class `cls`: those of a preset (None: the defaults) with some overridden.
    Values that are strings, as on the command line, are converted to the type of the field."""
    presets: Mapping[str, Any] = getattr(cls, "PRESETS", {})
    if preset is not None and preset not in presets:
        raise UnknownName(f"preset of {method}", preset, presets)
    base = cls() if preset is None else presets[preset]
    hints, names = get_type_hints(cls), [f.name for f in fields(cls)]
    if unknown := [name for name in overrides if name not in names]:
        raise UnknownName(f"setting of {method}", unknown[0], names)
    return replace(base, **{name: _typed(name, overrides[name], hints[name]) for name in overrides})


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Return a value of the type `hint`, which text is converted to; BadValue for others."""
    value = of_type(name, _converted(value, hint), hint, setting=True)
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise BadValue(f"setting `{name}={value:g}`: expected at most {LARGEST:g}")
    return value


def _converted(value: Any, hint: Any) -> Any:
    """Convert the text of a setting, or a path, to the type `hint`; return others unchanged."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, str):
        return value
    if value.lower() == "none" and NoneType in get_args(hint):
        return None
    if hint in (float | None, int | None):
        hint = get_args(hint)[0]
    if hint is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    with suppress(ValueError):
        if hint in (int, float):
            return hint(value)
        if "tuple[float" in str(hint):
            return tuple(float(part) for part in value.split(","))
    return value


def settings_dict(settings: Any) -> dict[str, Any]:
    """Return settings as a dict that can be written as JSON."""
    if isinstance(settings, SimpleNamespace):  # of a user's function: values of any type
        return {name: plain(value) for name, value in vars(settings).items()}
    return asdict(settings)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: scalars of numpy as Python's, unknown types as text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, IN_JSON) else str(value)
