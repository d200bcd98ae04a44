"""Run tasks on the workers of a Dask cluster, for scenes that are too large for one machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from hydiff.errors import BadValue, HydiffError
from hydiff.workers import INSTALL, Outcome, Run, Work

ANSWER = 5.0  # seconds that a scheduler has to answer
RETRIES = 2  # of a task that failed for another reason than its input, such as disk or network


@contextmanager
def joined(scheduler: str, gpu: bool, say: Callable[[str], Any]) -> Iterator[Run]:
    """Yield a `Run` over the workers of a scheduler.

    gpu: use only workers that declare a GPU (`dask worker --resources GPU=1`), if there are any.
    """
    if find_spec("distributed") is None:
        raise BadValue(f"`scheduler=` needs Dask: {INSTALL}")
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        asyncio.run(_answers(scheduler))
    except Exception as error:  # no answer, or one of another service
        raise BadValue(
            f"no Dask scheduler answers at {scheduler} within {ANSWER:g} s; start one with "
            "`dask scheduler` and give the tcp:// address that it prints (for tls:// name the key "
            "in Dask's configuration)"
        ) from error
    with Client(scheduler, set_as_default=False) as client:
        scheduler_info = client.scheduler_info(n_workers=-1)
        workers = scheduler_info["workers"]
        if "dashboard" in scheduler_info["services"] and find_spec("bokeh") is not None:
            say(f"dashboard: {client.dashboard_link}")
        if not workers:
            say(f"{scheduler} has no workers yet: waiting for the first one")
        gpus = any(worker["resources"].get("GPU") for worker in workers.values())
        resources = {"GPU": 1} if gpu and gpus else {}
        yield lambda work, tasks, at_once: _run(client, work, tasks, resources)


async def _answers(scheduler: str) -> None:
    """Raise an error unless a scheduler answers within ANSWER seconds.

    This is checked first, because a `Client` tries for a long time and prints errors if it fails.
    """
    from distributed import Security
    from distributed.comm.core import connect

    async with asyncio.timeout(ANSWER):
        keys = Security().get_connection_args("client")  # from Dask's configuration, for tls://
        comm = await connect(scheduler, timeout=ANSWER, **keys)
        await comm.close()


def _run(
    client: Any, work: Work, tasks: Sequence[Any], resources: dict[str, int]
) -> Iterator[Outcome]:
    """Submit all tasks, and yield the outcome of each when it is done."""
    from distributed import as_completed

    futures = [
        client.submit(_attempt, work, task, pure=False, retries=RETRIES, resources=resources)
        for task in tasks
    ]
    index = {future.key: i for i, future in enumerate(futures)}
    try:
        for future in as_completed(futures, loop=client.loop):
            yield _outcome(index[future.key], future)
    finally:
        client.cancel(futures)  # after an error or an interruption, the others are not needed


def _outcome(index: int, future: Any) -> Outcome:
    """Return the outcome of a finished future, with errors that a user can understand."""
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


def _attempt(work: Work, task: Any) -> tuple[str, Any, str | None]:
    """On a worker: return its name, the result of the task, and the message of a HydiffError.

    Such an error is returned, not raised, because a retry would only repeat it.
    """
    from distributed import get_worker

    name = str(get_worker().name)
    try:
        return name, work(task), None
    except HydiffError as error:
        return name, None, str(error)
