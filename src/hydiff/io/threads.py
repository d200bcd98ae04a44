"""Threads of this process, as many as it has cores: for walks through files."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

MOST_THREADS = 4  # at blocks of a file, each of which takes memory

T = TypeVar("T")
R = TypeVar("R")
_shares_cores = False


def share_cores() -> None:
    """Said by a worker: its siblings have the other cores."""
    global _shares_cores
    _shares_cores = True


def is_worker() -> bool:
    return _shares_cores or multiprocessing.parent_process() is not None


def cores() -> int:
    """How many this process may use; one in a worker."""
    if is_worker():
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What a function makes of each item, in order, a few at a time in threads of this process: for
    functions that leave the interpreter to others, as reading, hashing and whole arrays do."""
    running: deque[Future[R]] = deque()
    with ThreadPoolExecutor(count := min(cores(), MOST_THREADS)) as pool:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > count:
                yield running.popleft().result()
        yield from (future.result() for future in running)


def at_once(*tasks: Callable[[], R], most: int | None = None) -> list[R]:
    """What each task gives, in as many threads as there are cores, and at most so many; raises
    their first error."""
    if (count := min(cores(), len(tasks), most or len(tasks))) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
