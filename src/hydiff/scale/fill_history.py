"""History of finished fills on this machine, for `forecast`: a small file in the user's cache.

It holds sizes, methods, seconds and bytes, but no names of filled files.  A file that cannot be
read counts as an empty history; one that cannot be written is silently not updated.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hydiff.io.typed import checked, load
from hydiff.scale.forecast import Finished, History, WorkSize

MOST = 200  # number of finished fills in the file
MOST_BYTES = 1 << 20  # size of the file


def cache_folder() -> Path:
    """Return hydiff's folder for cached files, by the conventions of the operating system."""
    home = home_folder()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "hydiff"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "hydiff"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "hydiff"


def home_folder() -> Path:
    """Return the folder of the user; where it is unknown, as for a user of a container without a
    name, one that cannot be made."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def history_path() -> Path:
    """Return the path of the history of this machine; others may share the home folder."""
    return cache_folder() / f"fills-{re.sub(r'[^A-Za-z0-9.-]', '_', platform.node())}.json"


def read_history() -> History:
    """Return the history of this machine; an empty one if the file is absent or invalid."""
    path = history_path()
    try:
        if path.stat().st_size > MOST_BYTES:
            return History()
        history: History = checked(History, load(path), "history")
        return history
    except (OSError, ValueError):
        return History()


def read_or_measure() -> History:
    """Return the history; if it is empty, measure the speed of this machine and store it."""
    history = read_history()
    if history.fills or history.yardstick is not None:
        return history
    history = replace(history, yardstick=measure())
    _write(history)
    return history


def keep(work: WorkSize, seconds: float, alone: bool = True) -> None:
    """Add a finished fill to the history of this machine.

    alone: no worker has filled for this process, whose peak memory is then that of the fill.
    """
    history, new = read_history(), Finished(work, seconds, _peak() if alone else None)
    _write(replace(history, fills=(*history.fills, new)[-MOST:]))


def _peak() -> float | None:
    """Return the peak memory of this process in bytes, or None if the system does not report it."""
    with contextlib.suppress(ImportError):  # Windows has no such module
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
    return None


def _write(history: History) -> None:
    """Replace the file completely; do nothing if the folder cannot be written."""
    path = history_path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".fills-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(history), file)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)


def measure(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a fixed computation typical of fills; it takes about 0.1 s."""
    rng = np.random.default_rng(0)
    planes, square = rng.standard_normal((24, 96, 96)), rng.standard_normal((256, 256))
    best = math.inf
    for _ in range(3):
        began = clock()
        for _ in range(4):
            np.fft.irfft2(np.fft.rfft2(planes), s=planes.shape[1:])
            np.linalg.eigh(square @ square.T)
        best = min(best, clock() - began)
    return best
