"""Deterministic algorithms in torch, which is a setting of the whole process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_blocks = 0  # number of active blocks that want determinism, over all threads
_before = False  # the setting to restore after the last block


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Make torch deterministic while this block, or such a block in another thread, is active; the
    last block to end restores the setting."""
    global _blocks, _before
    if not wanted:
        yield
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS requires it
    with _lock:
        if not _blocks:
            _before = torch.are_deterministic_algorithms_enabled()
            torch.use_deterministic_algorithms(True)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                torch.use_deterministic_algorithms(_before)
