"""Run tasks in this process, in child processes (`local`), or on a Dask cluster (`remote`).

Tasks are independent and small, and write their results to disk; a worker only returns that a task
is done.  So the loss of a worker costs its current task and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from hydiff.errors import BadValue

INSTALL = "pip install 'hydiff[scene]'"


class Outcome(NamedTuple):
    """The result or the error of one task."""

    number: int  # of the task
    worker: str  # name of the worker; empty for this process
    value: Any = None
    error: Exception | None = None


Work = Callable[[Any], Any]
# takes the function, its tasks, and the number of tasks that memory allows at a time (None = all)
Run = Callable[[Work, Sequence[Any], int | None], Iterator[Outcome]]


def in_turn(work: Work, tasks: Sequence[Any], at_once: int | None = None) -> Iterator[Outcome]:
    """Run one task after another in this process."""
    for index, task in enumerate(tasks):
        try:
            outcome = Outcome(index, "", work(task))
        except Exception as error:
            outcome = Outcome(index, "", error=error)
        yield outcome


@contextmanager
def crew(
    workers: int | None,
    scheduler: str | None,
    *,
    gpu: bool = False,
    say: Callable[[str], Any] = lambda text: None,
) -> Iterator[Run | None]:
    """Yield a `Run` over child processes or over a scheduler's workers; None if neither is given.

    workers: number of child processes.  scheduler: address of a Dask scheduler.
    gpu: on a cluster, use only workers that declare a GPU, if there are any.
    """
    if workers is not None and scheduler is not None:
        raise BadValue(
            "`workers=` starts workers here, `scheduler=` joins others: give one of them"
        )
    if scheduler is not None:
        from hydiff.workers import remote

        with remote.joined(scheduler, gpu, say) as run:
            yield run
    elif workers is not None:
        from hydiff.workers import local

        if workers < 1:
            raise BadValue(f"`workers={workers}`: expected 1 or more")
        with local.Crew(workers) as run:
            yield run
    else:
        yield None
