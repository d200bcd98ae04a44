"""Only algorithms that give the same bytes again: a setting of torch for the whole process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_blocks = 0  # of all threads, that ask for it now
_before = False


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """While a block of any thread lasts, torch is deterministic; the last one to end puts the
    setting back."""
    global _blocks, _before
    if not wanted:
        yield
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
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
