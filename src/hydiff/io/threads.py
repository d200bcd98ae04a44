"""Run functions in threads of this process, at most one per core, for work on files."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

MOST_THREADS = 4  # that work on blocks of a file, each of which takes memory

T = TypeVar("T")
R = TypeVar("R")
_shares_cores = False


def share_cores() -> None:
    """Declare this process a worker, which uses one core and leaves the others to its siblings."""
    global _shares_cores
    _shares_cores = True


def is_worker() -> bool:
    """Return whether this process is a worker or was started by another Python process."""
    return _shares_cores or multiprocessing.parent_process() is not None


def cores() -> int:
    """Return the number of cores that this process may use; 1 in a worker."""
    if is_worker():
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield function(item) for each item, in order, computed a few at a time in threads.

    This is for functions that release the interpreter lock, as reading, hashing and operations on
    whole arrays do.
    """
    running: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(count := min(cores(), MOST_THREADS))
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > count:
                yield running.popleft().result()
        yield from (future.result() for future in running)
    finally:
        pool.shutdown(cancel_futures=True)


def at_once(*tasks: Callable[[], R], most: int | None = None) -> list[R]:
    """Run the tasks in as many threads as there are cores, at most `most`; return their results in
    order, or raise the first error."""
    if (count := min(cores(), len(tasks), most or len(tasks))) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
