"""Child processes on this machine: they share no lock, no memory and no `__main__` with this one.

A child is a fresh interpreter with one thread of arithmetic.  Tasks and answers are pickles over
its standard input and output, so functions must be importable; it ends when its input does, that
is, with its parent.

Why not a library: children of `concurrent.futures.ProcessPoolExecutor` import the `__main__` of
their parent, so that a script without a guard runs again in each.  `loky` (3.7, tried) imports
none, but a killed child fails the tasks of all others, and children go on with their task when
their parent is killed.  Here a lost child costs its own task, which is then done in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self

from hydiff.workers.blas import one_thread

BYTES = 100e6  # of memory that a child takes before it has anything to do
LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_THREADS": "1" for name in LIBRARIES}
START = "import sys; sys.path[:] = sys.argv[2:]; from hydiff.workers.local import serve; serve()"


def possible() -> bool:
    """Whether this process may have children: it is Python itself, and no worker."""
    named = Path(sys.executable or "").name.startswith("python")
    return named and not hasattr(sys, "frozen") and multiprocessing.parent_process() is None


def cores() -> int:
    """How many this process may use; one in a worker, whose siblings have the others."""
    if multiprocessing.parent_process() is not None:
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Processes:
    """So many of them, with `submit` like an executor's; leaving the block ends them.

    imports: modules that they load at once, while this process prepares the tasks.
    """

    def __init__(self, count: int, imports: Sequence[str] = ()) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._tasks = SimpleQueue()
        self._shared: tuple[Any, bytes] = (None, b"")
        self._over = False
        self._own = ThreadPoolExecutor(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[Thread] = []
        try:
            for _ in range(count):
                self.processes.append(_started(imports))
        except OSError:  # the system has no more of them to give
            self.__exit__()
            raise
        self._threads = [Thread(target=self._drive, args=(p,), daemon=True) for p in self.processes]
        for thread in self._threads:
            thread.start()

    def share(self, value: Any) -> None:
        """What every function gets as its first argument; travels to each child once."""
        self._shared = value, pickle.dumps((None, value), pickle.HIGHEST_PROTOCOL)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """function(shared, *args), in a child; here, if the child is lost."""
        future: Future[Any] = Future()
        self._tasks.put((future, function, args))
        return future

    def here(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """The same in a thread of this process, which has little else to do."""
        return self._own.submit(function, self._shared[0], *args)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for process in self.processes:
            process.kill()
            self._tasks.put(None)
        self._own.shutdown(cancel_futures=True)
        for thread in self._threads:
            thread.join()
        for process in self.processes:
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                with contextlib.suppress(OSError):  # it never read the rest
                    pipe.close()

    def _drive(self, process: subprocess.Popen[bytes]) -> None:
        """Give one child a task at a time, until there are no more."""
        has = b""
        while (task := self._tasks.get()) is not None and not self._over:
            future, function, args = task
            shared, packed = self._shared
            try:
                message = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
                try:
                    done, answer = _asked(process, packed if packed is not has else b"", message)
                    has = packed
                except Exception:
                    process.kill()  # whatever it was, its next answer could be to another question
                    raise
            except Exception:  # it is gone, or the task cannot be sent: it is done here
                if self._over:
                    return
                done, answer = _attempt(function, shared, args)
            if done:
                future.set_result(answer)
            else:
                future.set_exception(_raised(*answer))


class Threads:
    """The same with threads of this process, for where there are few cores; each has one thread of
    linear algebra, or those of all would wait for one another."""

    def __init__(self, count: int) -> None:
        self._pool, self._shared = ThreadPoolExecutor(count), None
        self._alone = one_thread()

    def share(self, value: Any) -> None:
        self._shared = value

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._pool.submit(function, self._shared, *args)

    here = submit

    def __enter__(self) -> Self:
        self._alone.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._alone.__exit__(None, None, None)


def _started(imports: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", START, ",".join(imports), *sys.path],
        env=os.environ | ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _asked(process: subprocess.Popen[bytes], shared: bytes, task: bytes) -> tuple[bool, Any]:
    assert process.stdin and process.stdout
    process.stdin.write(shared)
    process.stdin.write(task)
    process.stdin.flush()
    answer: tuple[bool, Any] = pickle.load(process.stdout)
    return answer


def _attempt(function: Callable[..., Any], shared: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    """True and the result, or False and what to raise, as parts that travel."""
    try:
        return True, function(shared, *args)
    except Exception as error:
        return False, (type(error), error.args, traceback.format_exc())


def _raised(kind: type[Exception], args: tuple[Any, ...], trace: str) -> Exception:
    """The exception itself, without what its class asks for when it is first made."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.add_note(trace)
    return error


# ── in the child ─────────────────────────────────────────────────────────────────────────────────


def serve() -> None:
    """Answer one task after the other, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    for module in filter(None, sys.argv[1].split(",")):
        importlib.import_module(module)
    messages: SimpleQueue[tuple[Callable[..., Any] | None, Any]] = SimpleQueue()
    Thread(target=_listen, args=(messages,), daemon=True).start()
    shared = None
    while True:
        function, content = messages.get()
        if function is None:
            shared = content
        else:
            answers.write(
                pickle.dumps(_attempt(function, shared, content), pickle.HIGHEST_PROTOCOL)
            )
            answers.flush()


def _listen(messages: SimpleQueue[Any]) -> None:
    """In a thread of its own, so that a parent's end is noticed amid a task."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)
