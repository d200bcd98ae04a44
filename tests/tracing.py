"""What a process opens and whom it calls, as the kernel sees it: C libraries do not ask Python.

`strace` writes a line for each call; the process itself says between which of them it is at work on
an input, by opening a file that is not there.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "/hydiff-input-"
CALLS = (
    "open,openat,openat2,creat,connect,sendto,truncate,rename,renameat,renameat2,unlink,unlinkat"
)
STRACE = ("strace", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "4096", "-e", "signal=none")
SYSTEM = (
    "/lib",
    "/usr",
    "/etc/ld.so",
    "/proc/",
    "/sys/",
    "/dev/null",
    "/dev/urandom",
    "/etc/local",
)
LINE = re.compile(r'^\d+ +(\w+)\((?:(?:AT_FDCWD|\d+)<([^>]*)>, )?(?:"((?:[^"\\]|\\.)*)")?(.*)')
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")


class Escape(NamedTuple):
    index: int  # of the input at hand
    what: str


def traced(command: list[str], log: Path) -> list[str]:
    return [*STRACE, "-e", f"trace={CALLS}", "-o", str(log), *command]


@contextlib.contextmanager
def at_work(index: int) -> Iterator[None]:
    """What is done here is done for input `index`."""
    _mark(str(index))
    try:
        yield
    finally:
        _mark("")


def _mark(text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.open(f"{MARK}{text}", os.O_RDONLY)


def escapes(
    lines: Iterable[str], read: tuple[str, ...], write: tuple[str, ...]
) -> Iterator[Escape]:
    """Calls at work that lead elsewhere than to these folders; `read` holds those of Python too."""
    index = -1
    read = (*read, *write, *SYSTEM, *_python())
    for line in lines:
        found = LINE.match(line)
        if found is None:
            continue
        call, base, name, rest = found.groups()
        if name is not None and name.startswith(MARK):
            index = int(name.removeprefix(MARK) or -1)
        elif index >= 0 and (what := _wrong(call, base, name, rest, read, write)):
            yield Escape(index, what)


def _wrong(
    call: str,
    base: str | None,
    name: str | None,
    rest: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
) -> str | None:
    if call in ("connect", "sendto"):
        return f"{call}{rest[:80]}" if "AF_" in rest else None
    if name is None:
        return None
    path = os.path.normpath(Path(base or "/") / _plain(name))
    changes = not call.startswith("open") or WRITES.search(rest)
    if path.startswith(write if changes and path != "/dev/null" else read):
        return None
    return f"{call} of {path}{', for writing' if changes else ''}"


def _plain(name: str) -> str:
    """Of what strace prints with octal and C escapes."""
    return name.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _python() -> tuple[str, ...]:
    """Where Python, its packages and ours lie."""
    return tuple({os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, *sys.path) if p})
