"""Functions of the user: as methods, for the progress, or in files, named as `my.py:name`."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from hydiff.errors import BadValue
from hydiff.result import Step

ARGUMENTS = "(y, observed, sigma_y, settings, *, rng)"  # of a function used as a method
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
    """Return the function that is meant as a method, itself or named FILE.py:NAME, with its
    arguments and its steps checked; the name of any other method unchanged."""
    if not callable(method) and not isinstance(method, str):
        raise BadValue(f"method = {method!r}: expected the name of one method, or a function")
    target = method if callable(method) else function_in(method, ARGUMENTS) or method
    return target if isinstance(target, str) else _checked(target)


def _checked(function: Callable[..., Any]) -> Callable[..., Iterator[Step]]:
    """Return a function for use as a method; BadValue if it does not take the arguments of one."""
    name = getattr(function, "__name__", "custom")
    with suppress(ValueError):  # functions in C may not state their arguments
        try:
            inspect.signature(function).bind(*("y", "observed", "sigma_y", "settings"), rng=None)
        except TypeError as error:
            raise BadValue(f"{name}: {error}; expected a function {name}{ARGUMENTS}") from None

    @wraps(function)
    def steps(*arrays: Any, **options: Any) -> Iterator[Step]:
        yielded = function(*arrays, **options)
        for step in yielded if isinstance(yielded, Iterable) else [yielded]:
            if not isinstance(step, Step):
                raise BadValue(
                    f"{name} gave a value of type {type(step).__name__}, expected steps: "
                    "`yield Step(done=1, total=1, x=…)`"
                )
            yield step

    steps.__name__ = name
    return steps


def check_progress(progress: Any) -> None:
    """Raise BadValue for a progress that is neither a function nor None nor False."""
    if not (callable(progress) or progress is None or progress is False):
        raise BadValue(f"progress = {progress!r}: expected a function of a Step, or False")


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
