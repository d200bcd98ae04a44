"""Limit the linear algebra of numpy and scipy to one thread where hydiff itself uses all cores."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

MAPS = Path("/proc/self/maps")  # files mapped by this process; does not exist on every system
# numpy and scipy each contain their own OpenBLAS, with different names of the functions
NAMES = [(a, b) for a in ("scipy_openblas", "openblas") for b in ("", "64_")]


class Library(NamedTuple):
    """Functions of an OpenBLAS library that get and set its number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


def libraries() -> list[Library]:
    """Return every OpenBLAS library that is loaded."""
    lines = MAPS.read_text().splitlines() if MAPS.exists() else []
    paths = {line[line.index("/") :] for line in lines if "openblas" in line}
    loaded_libraries = []
    for path in sorted(paths):
        loaded = ctypes.CDLL(path)
        for before, after in NAMES:
            names = (f"{before}_{action}_num_threads{after}" for action in ("get", "set"))
            functions = [getattr(loaded, name, None) for name in names]
            if all(functions):
                loaded_libraries.append(Library(*functions))  # type: ignore[arg-type]
                break
    return loaded_libraries


_lock, _users, _usual = Lock(), 0, list[tuple[Library, int]]()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to one thread until the last block of any thread has ended.

    After that, the former numbers of threads are restored.
    """
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
