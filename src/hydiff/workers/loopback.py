"""A Dask cluster of this machine that answers only to the run that started it.

Scheduler, nannies and workers speak TLS, and each asks the other side for the run's own key, which
is made in memory and handed to the workers through their pipes.  The HTTP servers that Dask starts
besides, with pages about tasks and calls for everybody on the machine, are left out.
"""

from __future__ import annotations

import logging
from typing import Any

import distributed
from distributed.deploy.spec import SpecCluster

ADDRESS = "127.0.0.1"


class Scheduler(distributed.Scheduler):
    def start_http_server(self, *args: Any, **options: Any) -> None:
        """None: it would listen on port 8787 even where no dashboard was asked for."""


class Worker(distributed.Worker):
    def start_http_server(self, *args: Any, **options: Any) -> None:
        """None, as for the scheduler."""


def started(workers: int) -> Any:
    """So many processes with one thread each; leaving its block ends them."""
    key = distributed.Security.temporary()
    common = {"host": ADDRESS, "protocol": "tls://", "security": key}
    nanny = common | {
        "nthreads": 1,
        "memory_limit": 0,  # --memory bounds them; Dask would only stop or kill
        "worker_class": Worker,
        "dashboard": False,
        "silence_logs": logging.ERROR,
    }
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": common | {"dashboard": False, "port": 0}},
        workers={i: {"cls": distributed.Nanny, "options": nanny} for i in range(workers)},
        security=key,
        silence_logs=logging.ERROR,
    )
