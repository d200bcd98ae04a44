"""How many threads numpy's and scipy's linear algebra starts: one, where ours use the cores."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

MAPS = Path("/proc/self/maps")  # files of this process; not on every system
# numpy and scipy bring an OpenBLAS of their own each, whose functions have names of their own
NAMES = [(a, b) for a in ("scipy_openblas", "openblas") for b in ("", "64_")]


class Library(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], object]


def libraries() -> list[Library]:
    """Every OpenBLAS that is loaded."""
    lines = MAPS.read_text().splitlines() if MAPS.exists() else []
    paths = {line[line.index("/") :] for line in lines if "openblas" in line}
    found = []
    for path in sorted(paths):
        loaded = ctypes.CDLL(path)
        for before, after in NAMES:
            names = (f"{before}_{what}_num_threads{after}" for what in ("get", "set"))
            functions = [getattr(loaded, name, None) for name in names]
            if all(functions):
                found.append(Library(*functions))  # type: ignore[arg-type]
                break
    return found


_lock, _users, _usual = Lock(), 0, list[tuple[Library, int]]()


@contextmanager
def one_thread() -> Iterator[None]:
    """While a block of any thread lasts, each call takes one; then as many as before."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _usual[:] = [(library, library.get()) for library in libraries()]
            for library, _ in _usual:
                library.set(1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for library, count in _usual:
                    library.set(count)
