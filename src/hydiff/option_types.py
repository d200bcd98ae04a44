"""Checks of what is given for an option, from Python or on the command line: types, seeds."""

from collections.abc import Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from hydiff.errors import BadValue

# annotation of an option -> its name for people, and the types of its values
FORMS: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (Integral,)),
    float: ("a number", (Real,)),
    str: ("text", (str,)),
    Path: ("a path", (str, PathLike)),
    NoneType: ("None", (NoneType,)),
    tuple: ("several values", (Sequence,)),
    Sequence: ("several numbers", (Sequence,)),
    object: ("a value", (object,)),
}


def of_type(
    name: str, value: Any, hint: Any, help: str = "", *, nan: bool = False, setting: bool = False
) -> Any:
    """Return the value of an option, from NumPy as Python numbers; BadValue unless it has the type
    of its annotation.  NaN is no number, and True and False are none.
    help: what the option is for, for the message.  nan: NaN is a number.
    setting: it is a setting of a method, which the command line takes by --set.

    >>> of_type("seed", 3, int | None)
    3
    """
    if hint is not Any and hasattr(value, "tolist"):
        value = value.tolist()
    is_nan = isinstance(value, float) and value != value
    if any(_is_a(kind, value) for kind in _kinds(hint)) and (nan or not is_nan):
        return value
    text = repr(value)
    found = f"`{name}={text if len(text) <= 40 else f'{text[:39]}…'}`"
    expected = " or ".join(_form(kind)[0] for kind in _kinds(hint))
    raise BadValue(f"{'setting ' * setting}{found}: expected {expected}{help and f' ({help})'}")


def check_seed(seed: int) -> None:
    """Raise BadValue for a seed that numpy or torch cannot use."""
    of_type("seed", seed, int)
    if not 0 <= seed < 2**63:
        raise BadValue(f"`seed={seed}`: expected a whole number from 0 to 2**63 - 1")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of an annotation."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _form(kind: Any) -> tuple[str, tuple[type, ...]]:
    """Return the name and the types of an annotation; any value has one that is no class."""
    form = object if kind is Any else get_origin(kind) or kind
    return FORMS.get(form) or (
        (form.__name__, (form,)) if isinstance(form, type) else FORMS[object]
    )


def _is_a(kind: Any, value: Any) -> bool:
    """Return whether a value has the type of an annotation, and so have its parts, if any."""
    if not isinstance(value, _form(kind)[1]) or (isinstance(value, bool) and kind in (int, float)):
        return False
    if get_origin(kind) in (tuple, Sequence):
        part = get_args(kind)[0]
        parts: Any = value
        return not isinstance(value, str | bytes) and all(_is_a(part, v) for v in parts)
    return True
