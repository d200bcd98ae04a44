"""Finished fills of this machine, for `forecast`: a small file in the user's cache folder.

It holds sizes, methods, seconds and bytes, and no name of a file that was filled.  Where it cannot
be read there is no history; where it cannot be written nothing is kept.
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

MOST = 200  # finished fills that are kept
MOST_BYTES = 1 << 20  # of the file


def cache_folder() -> Path:
    """Where programs keep what they can make again, by the rules of the system."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "hydiff"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "hydiff"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "hydiff"


def history_path() -> Path:
    """One file for each machine: a home folder may be shared by several."""
    return cache_folder() / f"fills-{re.sub(r'[^A-Za-z0-9.-]', '_', platform.node())}.json"


def read_history() -> History:
    """What is kept of this machine; nothing where the file is absent or not ours."""
    path = history_path()
    try:
        if path.stat().st_size > MOST_BYTES:
            return History()
        history: History = checked(History, load(path), "history")
        return history
    except (OSError, ValueError):
        return History()


def read_or_measure() -> History:
    """The history; on a machine without one, with the short measurement that stands in for it."""
    history = read_history()
    if history.fills or history.yardstick is not None:
        return history
    history = replace(history, yardstick=measure())
    _write(history)
    return history


def keep(work: WorkSize, seconds: float) -> None:
    """Add a finished fill to what is kept of this machine; of several workers the memory, which is
    not this process's alone, is not known."""
    workers = work.kind.endswith(" by tiles") and work.cores > 1
    history, new = read_history(), Finished(work, seconds, None if workers else _peak())
    _write(replace(history, fills=(*history.fills, new)[-MOST:]))


def _peak() -> float | None:
    """Bytes that this process has had at its peak."""
    with contextlib.suppress(ImportError):  # Windows has no such module
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
    return None


def _write(history: History) -> None:
    """Whole or not at all; nothing where the folder cannot be written."""
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
    """Seconds of a fixed computation of the kind that fills consist of; a tenth of one or so."""
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
