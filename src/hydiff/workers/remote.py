"""Who does the work: this process, its own workers, or those of a Dask cluster.

Tasks are independent, small, and leave their result on disk; what comes back is that they are
done.  So a lost worker costs what it had in hand, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from hydiff.errors import BadValue, HydiffError
from hydiff.workers.local import ONE_THREAD

ANSWER = 5.0  # seconds that a scheduler has to answer
RETRIES = 2  # of a task that failed by no fault of the input: a disk or a network that hiccuped
# Dask samples every worker a hundred times a second, for pages that are not opened here, and has
# them return freed memory to the system at once, which made a third of their time page faults
CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.nanny.pre-spawn-environ": ONE_THREAD,
}
INSTALL = "pip install 'hydiff[scene]'"


class Outcome(NamedTuple):
    number: int  # of the task
    worker: str  # who did it; empty: this process
    value: Any = None
    error: Exception | None = None


Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Outcome]]


def in_turn(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Outcome]:
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

    gpu: give tasks to workers that declare a GPU only (`dask worker --resources GPU=1`), if any.
    """
    if workers is None and scheduler is None:
        yield None
        return
    if workers is not None and scheduler is not None:
        raise BadValue(
            "`workers=` starts workers here, `scheduler=` joins others: give one of them"
        )
    if find_spec("distributed") is None:
        raise BadValue(f"`workers=` and `scheduler=` need Dask: {INSTALL}")
    if workers is not None and find_spec("cryptography") is None:
        raise BadValue(f"`workers=` needs cryptography, for the key of its workers: {INSTALL}")
    with _local(workers) if workers is not None else _joined(str(scheduler)) as client:
        scheduler_info = client.scheduler_info(n_workers=-1)
        present = scheduler_info["workers"]
        if "dashboard" in scheduler_info["services"] and find_spec("bokeh") is not None:
            say(f"dashboard: {client.dashboard_link}")
        if not present:
            say(f"{scheduler} has no workers yet: waiting for the first one")
        gpus = any(worker["resources"].get("GPU") for worker in present.values())
        places = {"GPU": 1} if gpu and gpus else {}
        yield lambda work, tasks: _run(client, work, tasks, places)


@contextmanager
def _local(workers: int) -> Iterator[Any]:
    """One process and one thread each, on this machine only, with a key of their own."""
    import dask
    from distributed import Client

    from hydiff.workers import loopback

    if workers < 1:
        raise BadValue(f"`workers={workers}`: expected 1 or more")
    with dask.config.set(CALM), loopback.started(workers) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def _joined(scheduler: str) -> Iterator[Any]:
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        asyncio.run(_answers(scheduler))
    except Exception as error:  # whatever answers there, or none does
        raise BadValue(
            f"no Dask scheduler answers at {scheduler} within {ANSWER:g} s; start one with "
            "`dask scheduler` and give the tcp:// address that it prints (for tls:// name the key "
            "in Dask's configuration)"
        ) from error
    with Client(scheduler, set_as_default=False) as client:
        yield client


async def _answers(scheduler: str) -> None:
    """Asked first, because a `Client` tries for long, and ends noisily when it fails."""
    from distributed import Security
    from distributed.comm.core import connect

    async with asyncio.timeout(ANSWER):
        keys = Security().get_connection_args("client")  # of Dask's configuration, for tls://
        comm = await connect(scheduler, timeout=ANSWER, **keys)
        await comm.close()


def _run(
    client: Any, work: Callable[[Any], Any], tasks: Sequence[Any], places: dict[str, int]
) -> Iterator[Outcome]:
    """Submit all, yield each when it is done."""
    from distributed import as_completed

    futures = [
        client.submit(_attempt, work, task, pure=False, retries=RETRIES, resources=places)
        for task in tasks
    ]
    index = {future.key: i for i, future in enumerate(futures)}
    try:
        for future in as_completed(futures, loop=client.loop):
            yield _outcome(index[future.key], future)
    finally:
        client.cancel(futures)  # the rest is not wanted after an error or an interruption


def _outcome(index: int, future: Any) -> Outcome:
    from concurrent.futures import CancelledError

    try:
        worker, value, refusal = future.result()
    except CancelledError:
        lost = BadValue("the scheduler went away; start it again, and go on with `resume=True`")
        return Outcome(index, "", error=lost)
    except ModuleNotFoundError as missing:
        message = f"the workers cannot import {missing.name}: install the same hydiff there"
        return Outcome(index, "", error=BadValue(message))
    except Exception as error:
        return Outcome(index, "", error=error)
    return Outcome(index, worker, value, None if refusal is None else BadValue(refusal))


def _attempt(work: Callable[[Any], Any], task: Any) -> tuple[str, Any, str | None]:
    """On a worker: what it is called, what came of the task, or why it was refused.

    A refusal is returned, not raised: it would be the same the next time.
    """
    from distributed import get_worker

    name = str(get_worker().name)
    try:
        return name, work(task), None
    except HydiffError as error:
        return name, None, str(error)
