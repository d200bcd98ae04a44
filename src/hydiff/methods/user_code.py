"""A function in a Python file of the user's, named as `my.py:name`."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hydiff.errors import BadValue

IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def function_in(text: str, takes: str) -> Callable[..., Any] | None:
    """The function that a text names; None for any other text.

    The file is run, as `python my.py` would, and again when it has changed.  takes: the arguments,
    for the message where there is no such function.
    """
    match = IN_FILE.fullmatch(text.strip())
    if match is None:
        return None
    from hydiff.io.regular import is_there  # which takes a while to import

    path, name = Path(match["path"]), match["name"]
    if not is_there(path):
        raise BadValue(f"{path}: no such file; check the path")
    found: Any = vars(_module(path, digest(text))).get(name)
    if not callable(found):
        raise BadValue(f"{path}: no function {name} in it; define one, of {takes}")
    function: Callable[..., Any] = found
    return function


def own(method: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """The function that FILE.py:NAME names as a method; anything else as it is."""
    if callable(method):
        return method
    return function_in(method, "(y, observed, sigma_y, settings, *, rng)") or method


def number(value: Any) -> Any:
    """Text from the command line as a number, where it is one: a function names no types."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def digest(text: str) -> int:
    """A number that changes with the file which a text names."""
    content = Path(text.strip().rpartition(":")[0]).read_bytes()
    return int(hashlib.sha256(content).hexdigest()[:12], 16)


@lru_cache(maxsize=8)
def _module(path: Path, content: int) -> Any:
    module = ModuleType(f"hydiff_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # its dataclasses look themselves up there
    try:
        # not by an import, whose bytecode may be that of a file of the same size a second ago
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except Exception as error:  # whatever it may raise
        raise BadValue(
            f"{path} does not run: {type(error).__name__}: {error}; correct it"
        ) from error
    return module
