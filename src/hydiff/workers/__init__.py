"""Who does the work: this process, child processes of it (`local`), or a Dask cluster (`remote`).

Tasks are independent, small, and leave their result on disk; what comes back is that they are
done.  So a lost worker costs what it had in hand, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from hydiff.errors import BadValue

INSTALL = "pip install 'hydiff[scene]'"


class Outcome(NamedTuple):
    number: int  # of the task
    worker: str  # who did it; empty: this process
    value: Any = None
    error: Exception | None = None


Work = Callable[[Any], Any]
# what to do, with which tasks, and how many of them memory allows at a time (None: all)
Run = Callable[[Work, Sequence[Any], int | None], Iterator[Outcome]]


def in_turn(work: Work, tasks: Sequence[Any], at_once: int | None = None) -> Iterator[Outcome]:
    """One task after the other, in this process."""
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
    """A `Run` over so many processes here, or over a scheduler's workers; None for neither.

    gpu: of a cluster, give tasks to workers that declare a GPU only, if any do.
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
