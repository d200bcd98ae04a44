"""Errors that a user can correct.

Each message says what was found, what was expected, and what to do.

HydiffError
├── CubeFormatError     a file is damaged, mislabelled, or of an unsupported format
├── ShapeMismatch       two arrays that must have the same shape do not
├── NothingObserved     there is no measured entry to fill from
├── UnknownName         a method, setting, preset, mask or variable does not exist
├── BadValue            an argument has an invalid value: negative noise, absent nodata, ...
└── OutputError         a result cannot be written: the file exists, the disk is full, ...
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

LONGEST = 2000  # characters of a message
LEAST_ROOM = 256 << 20  # bytes below a memory limit that libraries allocate without a check


# an argument (`nodata=-9999`) or a setting of a method (setting `s=2`) in a message
ARGUMENT = re.compile(r"(setting )?`([a-z]\w*)=([^`]*)`")
SETTINGS = ("channels", "scales", "lr")  # that messages name as they name arguments
OTHERWISE = {"f": "of"}  # arguments whose option has another name


def shell(text: str) -> str:
    """Return a message of the library with its arguments written as command-line options.

    >>> shell("give `nodata=-9999`, or pass `overwrite=True` with `method='smooth'`")
    'give --nodata -9999, or pass --overwrite with --method smooth'
    >>> shell("add `channels=8`"), shell("setting `s=nan`: expected a number")
    ('add --set channels=8', '--set s=nan: expected a number')
    >>> shell("`f='b5'`")
    '--of b5'
    """
    return ARGUMENT.sub(_option, text)


def _option(argument: re.Match[str]) -> str:
    """Return an argument in a message as a command-line option."""
    name, value = argument[2], argument[3].strip("'")
    if argument[1] or name in SETTINGS:
        return f"--set {name}={value}"
    option = "--" + OTHERWISE.get(name, name).replace("_", "-")
    if value.startswith("["):  # several values: the option is repeated
        return " ".join(f"{option} {part.strip()}" for part in value.strip("[]").split(","))
    return option if value in ("", "True") else f"{option} {value}"


class HydiffError(Exception):
    """Base of all errors that a user can correct; the command line prints it and exits with 2.

    The message is reduced to one printable line, even if it quotes the content of a file.  It names
    arguments as in Python, between backticks; `shell` turns them into options.
    """

    def __init__(self, message: str = "") -> None:
        line = "".join(c if c.isprintable() else " " for c in message.strip())
        if len(line) > LONGEST:  # keep the beginning (what is wrong) and the end (what to do)
            line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 4 :]}"
        super().__init__(line)


class CubeFormatError(HydiffError):
    """A file is damaged, mislabelled, or of an unsupported format."""


class ShapeMismatch(HydiffError):
    """Two arrays that must have the same shape do not."""


class NothingObserved(HydiffError):
    """There is no measured entry to fill from."""


class BadValue(HydiffError):
    """An argument has an invalid value."""


class OutputError(HydiffError):
    """A result cannot be written."""


class UnknownName(HydiffError):
    """A name does not exist; the message suggests the nearest known name.

    Example: `UnknownName("method", "smoth", METHODS)`.
    """

    def __init__(self, what: str, found: object, allowed: Iterable[str], hint: str = "") -> None:
        names = sorted(allowed)
        near = get_close_matches(str(found), names, n=1, cutoff=0.6)
        suggestion = f"did you mean {near[0]!r}? " if near else ""
        listing = ", ".join(names) or "none"
        super().__init__(f"unknown {what} {found!r}: {suggestion}known: {listing}{hint}")


def has_torch() -> bool:
    """Return whether torch (extra `learn`) is installed, without importing it."""
    return find_spec("torch") is not None


def need_torch(what: str) -> None:
    """Raise BadValue if torch is not installed; the message names the extra to install."""
    need("torch", "learn", what)


def need(package: str, extra: str, what: str) -> None:
    """Raise BadValue if a package is not installed that `what` requires."""
    if find_spec(package) is None:
        message = f'{what} needs {package}, which is not installed: pip install "hydiff[{extra}]"'
        raise BadValue(message)


def cannot_import(error: Exception) -> BadValue | None:
    """Return what to say if an error is that a package cannot be imported, or a part of it; None if
    it is another, or about a part of hydiff."""
    package = (getattr(error, "name", None) or "").split(".")[0]
    if not isinstance(error, ImportError) or package in ("", "hydiff"):
        return None
    advice = f"pip install --force-reinstall {package}"
    return BadValue(f"{package}, which this needs, cannot be imported ({error}); {advice}")


# parts of messages about a lack of memory: from CUDA, torch on a CPU, threads, the loading of
# libraries, and SuperLU
NO_MEMORY = (
    *("out of memory", "can't allocate memory", "can't start new thread", "bad_alloc"),
    *("Resource temporarily unavailable", "failed to map segment", "annot allocate memory"),
    "MALLOC fails",
)


def is_no_memory(error: BaseException) -> bool:
    """Return whether an exception, or one of its causes, means that memory has run out."""
    if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return True
    return error.__cause__ is not None and is_no_memory(error.__cause__)


def check_memory_limit() -> None:
    """Raise BadValue if a limit of address space (`ulimit -v`) leaves too little for computations.

    Numerical libraries do not report a lack of memory: OpenBLAS retries to allocate its 32 MB per
    thread forever, or ends the process.  With LEAST_ROOM free it can allocate them at the start.
    Arrays use the rest later, and raise an error if they do not fit.
    """
    if find_spec("resource") is None:  # Windows has no such limits
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if limit - used < LEAST_ROOM:
        raise BadValue(
            f"out of memory: the limit of this process (ulimit -v) leaves {(limit - used) >> 20} "
            f"MB, expected {LEAST_ROOM >> 20} MB or more to compute in; raise the limit"
        )


@contextmanager
def memory_advice(device: object, advice: str) -> Iterator[None]:
    """Turn an error about a lack of memory into a BadValue with advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_no_memory(error):
            raise
        raise BadValue(f"out of memory on device {device}; {advice}") from error
