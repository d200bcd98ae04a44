"""Functions in Python files of the user, named as `my.py:name`."""

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
    """Return the function that a text FILE.py:NAME names; None for any other text.

    The file is executed, and executed again if it has changed since.  takes: the arguments that
    the function must have, for the error message if there is no such function.
    """
    match = IN_FILE.fullmatch(text.strip())
    if match is None:
        return None
    from hydiff.io.regular import is_there  # here, because its import takes long

    path, name = Path(match["path"]), match["name"]
    if not is_there(path):
        raise BadValue(f"{path}: no such file; check the path")
    value: Any = vars(_module(path, digest(text))).get(name)
    if not callable(value):
        raise BadValue(f"{path}: no function {name} in it; define one, of {takes}")
    function: Callable[..., Any] = value
    return function


def own(method: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Return the function that FILE.py:NAME names as a method; anything else unchanged."""
    if callable(method):
        return method
    return function_in(method, "(y, observed, sigma_y, settings, *, rng)") or method


def number(value: Any) -> Any:
    """Convert text to a number if it is one: settings of user functions have no types."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def digest(text: str) -> int:
    """Return a number that changes with the content of the file in a text FILE.py:NAME."""
    content = Path(text.strip().rpartition(":")[0]).read_bytes()
    return int(hashlib.sha256(content).hexdigest()[:12], 16)


@lru_cache(maxsize=8)
def _module(path: Path, content: int) -> Any:
    """Execute a Python file as a module.  `content`, its digest, is a key of the cache."""
    module = ModuleType(f"hydiff_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look up their own module there
    try:
        # not an import: it may use stale bytecode if the file has the same size and time stamp
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except Exception as error:  # user code may raise anything
        raise BadValue(
            f"{path} does not run: {type(error).__name__}: {error}; correct it"
        ) from error
    return module
