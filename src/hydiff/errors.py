"""The errors a user can meet.  Each message says what was found, what was expected, what to do.

HydiffError
├── CubeFormatError     a file that is not what it claims to be, or not one we read
├── ShapeMismatch       two things that must have the same shape do not
├── NothingObserved     not one measured entry to fill from
├── UnknownName         a method, setting, preset, mask or variable that does not exist
├── BadValue            a value outside its meaning: negative noise, absent nodata, ...
└── OutputError         a result that cannot be written: it exists, the disk is full, ...
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path

LONGEST = 2000  # characters of a message
LEAST_ROOM = 256 << 20  # bytes below a limit of memory: what libraries take without asking


# how a message names an argument, `nodata=-9999`, or a setting of a method, `channels=64`
ARGUMENT = re.compile(r"`([a-z]\w*)=([^`]*)`")
SETTINGS = ("channels", "scales", "lr")  # those that messages name; --set gives them in a shell


def shell(text: str) -> str:
    """A message of the library as the command line says it: its arguments as options.

    >>> shell("give `nodata=-9999`, or pass `overwrite=True` with `method='smooth'`")
    'give --nodata -9999, or pass --overwrite with --method smooth'
    >>> shell("add `channels=8`")
    'add --set channels=8'
    """
    return ARGUMENT.sub(_option, text)


def _option(argument: re.Match[str]) -> str:
    name, value = argument[1], argument[2].strip("'")
    if name in SETTINGS:
        return f"--set {name}={value}"
    option = "--" + name.replace("_", "-")
    if value.startswith("["):  # several values: the option is repeated
        return " ".join(f"{option} {one.strip()}" for one in value.strip("[]").split(","))
    return option if value in ("", "True") else f"{option} {value}"


class HydiffError(Exception):
    """Base of all errors that a user can act on; the command line prints it and exits with 2.

    Its message is one line that a terminal can show, whatever a file has put into it.  It names
    arguments as Python writes them, between backticks; `shell` turns them into options.
    """

    def __init__(self, message: str = "") -> None:
        line = "".join(c if c.isprintable() else " " for c in message.strip())
        if len(line) > LONGEST:  # the beginning says what is wrong, the end what to do
            line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 4 :]}"
        super().__init__(line)


class CubeFormatError(HydiffError):
    """A file is not what it claims to be, or of a format that is not read."""


class ShapeMismatch(HydiffError):
    """Two things that must have the same shape do not."""


class NothingObserved(HydiffError):
    """There is no measured entry to fill from."""


class BadValue(HydiffError):
    """A value lies outside its meaning."""


class OutputError(HydiffError):
    """A result cannot be written."""


class UnknownName(HydiffError):
    """`UnknownName("method", "smoth", METHODS)` suggests the nearest known name."""

    def __init__(self, what: str, found: str, allowed: Iterable[str], hint: str = "") -> None:
        names = sorted(allowed)
        near = get_close_matches(found, names, n=1, cutoff=0.6)
        suggestion = f"did you mean {near[0]!r}? " if near else ""
        listing = ", ".join(names) or "none"
        super().__init__(f"unknown {what} {found!r}: {suggestion}known: {listing}{hint}")


def has_torch() -> bool:
    """Whether torch, which the extra `learn` brings, is installed; it is not imported."""
    return find_spec("torch") is not None


def need_torch(what: str) -> None:
    """BadValue where torch is not installed, which says the extra to add."""
    need("torch", "learn", what)


def need(package: str, extra: str, what: str) -> None:
    """BadValue where a package is not installed that `what` cannot do without."""
    if find_spec(package) is None:
        message = f'{what} needs {package}, which is not installed: pip install "hydiff[{extra}]"'
        raise BadValue(message)


# of running out of memory: by CUDA, by torch on a CPU, by a thread, by a library that is loaded,
# by SuperLU
NO_MEMORY = (
    *("out of memory", "can't allocate memory", "can't start new thread", "bad_alloc"),
    *("Resource temporarily unavailable", "failed to map segment", "annot allocate memory"),
    "MALLOC fails",
)


def is_no_memory(error: BaseException) -> bool:
    """Whether an exception, or what it came of, is how a library says that memory has run out."""
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return True
    return error.__cause__ is not None and is_no_memory(error.__cause__)


def check_memory_limit() -> None:
    """BadValue where a limit of address space (`ulimit -v`) leaves too little to compute in.

    Numerical libraries do not report a shortage: OpenBLAS asks for its 32 MB a thread for ever, or
    ends the process.  With that much room it has them before arrays, which can fail with an error,
    take the rest.
    """
    if find_spec("resource") is None:  # Windows has no such limits
        return
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if most - taken < LEAST_ROOM:
        raise BadValue(
            f"out of memory: the limit of this process (ulimit -v) leaves {(most - taken) >> 20} "
            f"MB, expected {LEAST_ROOM >> 20} MB or more to compute in; raise the limit"
        )


@contextmanager
def memory_advice(device: object, advice: str) -> Iterator[None]:
    """Turn running out of memory into a BadValue that says what to set."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_no_memory(error):
            raise
        raise BadValue(f"out of memory on device {device}; {advice}") from error


def check_seed(seed: int) -> None:
    """Refuse what numpy or torch cannot start from."""
    if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise BadValue(f"seed = {seed}: expected a whole number from 0 to 2**63 - 1")
