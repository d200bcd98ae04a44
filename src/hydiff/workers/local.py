"""Child processes on this machine that share no locks, memory or `__main__` with their parent.

A child has one thread for arithmetic.  On Linux it is forked from a process that has imported what
all children need (`forks`), elsewhere it is a new interpreter.  Tasks and answers are sent as
pickles over its standard input and output, so functions must be importable.  A child ends when its
input ends, that is, with its parent.  It removes what it has written of an unfinished file first.

Why not a library: children of `concurrent.futures.ProcessPoolExecutor` import the `__main__` of
their parent, so that a script without a guard runs again in each of them.  Those of `loky` (3.7,
tried) do not, but one killed child fails the tasks of all others, and children continue their task
when their parent is killed.  Dask (tried) takes seconds longer to start and opens ports.  Here a
lost child is replaced, and only its own task is repeated.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, Timer
from typing import Any, Self

from hydiff.errors import BadValue
from hydiff.io.threads import is_worker
from hydiff.workers import Outcome, Work, forks
from hydiff.workers.blas import one_thread
from hydiff.workers.child import GRACE, named

BYTES = 100e6  # memory of an idle child, in bytes
IDLE = 20.0  # seconds that children wait for the next fill of this process
RETRIES = 2  # of a task whose child was lost; if every child is lost, the task may be the cause
Child = subprocess.Popen[bytes] | forks.Forked
LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_THREADS": "1" for name in LIBRARIES}
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}  # so that threads can reuse memory that others have freed
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this child
sys.path[:] = sys.argv[3:]
from hydiff.workers import child
child.serve()
"""
FORK = START.replace("serve", "fork_all")


def possible() -> bool:
    """Return whether this process can have children: it runs plain Python, and is not a worker."""
    is_python = Path(sys.executable or "").name.startswith("python")
    return is_python and not hasattr(sys, "frozen") and not is_worker()


def run(
    workers: int,
    work: Work,
    tasks: Sequence[Any],
    at_once: int | None = None,
    ready: Processes | None = None,
    imports: Sequence[str] = (),
) -> Iterator[Outcome]:
    """Run each task in one of at most `workers` children, which end after the last task.

    at_once: number of children that memory allows.  ready: children that are already running.
    imports: what others load at their start, as in `Processes`.
    """
    count = min(workers, len(tasks), at_once or workers)
    give_back()
    children = Processes(count, imports or [work.__module__]) if ready is None else ready
    try:
        children.share(work)
        numbers = {children.submit(named, task): i for i, task in enumerate(tasks)}
        for future in as_completed(numbers):
            try:
                outcome = Outcome(numbers[future], *future.result())
            except Exception as error:
                outcome = Outcome(numbers[future], "", error=error)
            yield outcome
    except BaseException:
        children.__exit__()
        raise
    Thread(target=children.__exit__).start()  # to give back a GPU takes them a while


class Crew:
    """A `Run` over child processes, which can be started before there are tasks for them."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.imports: Sequence[str] = ()  # of all children; see `Processes`
        self._ready: Processes | None = None

    @property
    def ready(self) -> int:
        """The number of children that are prepared."""
        return 0 if self._ready is None else len(self._ready.processes)

    @property
    def waiting(self) -> Processes | None:
        """The prepared children; None if there are none."""
        return self._ready

    def prepare(self, count: int) -> None:
        """Start `count` children, which load the imports while this process does other work.

        Do nothing if some are prepared.
        """
        if self._ready is None:
            self._ready = Processes(count, self.imports)

    def dismiss(self) -> None:
        """End the prepared children."""
        if self._ready is not None:
            self._ready.__exit__()
            self._ready = None

    def __call__(
        self, work: Work, tasks: Sequence[Any], at_once: int | None = None
    ) -> Iterator[Outcome]:
        """Run the tasks, in the prepared children if there are any."""
        ready, self._ready = self._ready, None
        return run(self.workers, work, tasks, at_once, ready, self.imports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()


def give_back() -> None:
    """Return memory that this process has freed to the system, for use by other processes."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # of glibc
        libc.malloc_trim(0)


_resting: dict[tuple[Any, ...], tuple[Processes, Timer]] = {}
_rests = Lock()


@contextlib.contextmanager
def staying(count: int, imports: Sequence[str] = ()) -> Iterator[Processes]:
    """Yield children that are kept for a while, for the next call with the same arguments.

    So only the first of several consecutive fills waits for their start.  With unfinished tasks, or
    after an error, they are ended at once.
    """
    key = os.getpid(), count, *imports  # a forked process must not use the pipes of its parent
    with _rests:
        crew, timer = _resting.pop(key, (None, None))
    if timer is not None:
        timer.cancel()
    crew = Processes(count, imports) if crew is None else crew
    try:
        yield crew
    except BaseException:
        crew.__exit__()
        raise
    timer = Timer(IDLE, _end_resting, [key])
    timer.daemon = True
    with _rests:
        stays = key not in _resting and crew.rest()
        if stays:
            _resting[key] = crew, timer
            timer.start()
    if not stays:
        crew.__exit__()


def _end_resting(*keys: tuple[Any, ...]) -> None:
    """End the resting children with these keys."""
    with _rests:
        ended = [_resting.pop(key) for key in keys if key in _resting]
    for crew, timer in ended:
        timer.cancel()
        crew.__exit__()


@atexit.register
def _end_all() -> None:
    _end_resting(*(key for key in tuple(_resting) if key[0] == os.getpid()))


class Processes:
    """A pool of child processes, with `submit` as in an executor; leaving the block ends them.

    imports: modules that the children load at their start, while this process prepares the tasks.
    For `module:function:text`, they also call the function with the text.
    """

    def __init__(self, count: int, imports: Sequence[str] = ()) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._tasks = SimpleQueue()
        self._shared: tuple[Any, bytes] = (None, b"")
        self._has = [b""] * count  # the shared value that each child was last sent
        self._asked: list[Future[Any]] = []
        self._imports, self._lock, self._over = imports, Lock(), False
        self._own = ThreadPoolExecutor(1)
        self._forks: forks.Forks | None = None
        self.processes: list[Child] = []
        self._threads: list[Thread] = []
        try:
            for number in range(count):
                self.processes.append(self._started(number))
            for number in range(count):
                thread = Thread(target=self._drive, args=(number,), daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # the system cannot start more processes, or Ctrl-C
            self.__exit__()
            raise

    def share(self, value: Any) -> None:
        """Set the first argument of every function; it is sent to each child only once."""
        self._shared = value, pickle.dumps((None, value), pickle.HIGHEST_PROTOCOL)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Return the future of function(shared, *args) in a child."""
        future: Future[Any] = Future()
        self._asked.append(future)
        self._tasks.put((future, function, args))
        return future

    def rest(self) -> bool:
        """Return whether all tasks are done; if so, remove the shared value from all children."""
        if not all(future.done() for future in self._asked):
            return False
        self._asked.clear()
        self.share(None)
        for number in range(len(self.processes)):
            with contextlib.suppress(OSError):  # a lost child is replaced at its next task
                _send(self.processes[number], self._shared[1])
                self._has[number] = self._shared[1]
        return True

    def here(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Return the future of function(shared, *args) in a single thread of this process."""
        return self._own.submit(function, self._shared[0], *args)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # from now on, no child is replaced
            self._over = True
        if self._forks is not None:
            self._forks.end_unless_ready()
        for process in self.processes:
            process.terminate()
            self._tasks.put(None)
        _wait(self.processes)
        self._own.shutdown(cancel_futures=True)
        for thread in self._threads:
            thread.join()
        for process in self.processes:
            _end(process)
        if self._forks is not None:
            self._forks.end()

    def _started(self, number: int) -> Child:
        """Return a new child, which loads the imports."""
        command = [sys.executable, "-c", START, ",".join(self._imports), *sys.path]
        environment = os.environ | ONE_THREAD | ONE_HEAP
        if forks.possible:
            if self._forks is not None and self._forks.process.poll() is not None:
                self._forks.end()  # it was lost
                self._forks = None
            if self._forks is None:
                command[2] = FORK
                self._forks = forks.Forks(command, environment)
            return forks.Forked(self._forks, number)
        command.insert(3, str(number))
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe)

    def _drive(self, number: int) -> None:
        """Send one child a task at a time, until there are no more."""
        while (task := self._tasks.get()) is not None and not self._over:
            future, *request = task
            try:
                succeeded, answer = self._answer(
                    number, pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
                )
                if succeeded:
                    future.set_result(answer)
                else:
                    future.set_exception(_raised(*answer))
            except Exception as error:  # the task cannot be pickled, or no child can be started
                future.set_exception(error)

    def _answer(self, number: int, message: bytes) -> tuple[bool, Any]:
        """Return the answer of a child to a message; if the child is lost, replace it and retry."""
        _, packed = self._shared
        for _ in range(1 + RETRIES):
            process = self.processes[number]
            new = b"" if self._has[number] is packed else packed
            try:
                answer = _asked(process, new, message)
                self._has[number] = packed
                return answer
            except Exception as error:  # of any kind: the next answer could belong to this message
                lost = error
                self._replace(number)
        raise BadValue(
            f"{1 + RETRIES} worker processes were lost at one task, the last with exit code "
            f"{process.returncode}: if memory ran out, give fewer `workers=` or less `memory=`"
        ) from lost

    def _replace(self, number: int) -> None:
        """Replace a child by a new one, unless the pool is being ended."""
        with self._lock:
            _end(self.processes[number])
            if self._over:
                raise ChildProcessError("all children are ended")
            self.processes[number], self._has[number] = self._started(number), b""


class Threads:
    """The interface of `Processes` with threads of this process, for machines with few cores.

    Linear algebra is limited to one thread per call, because the threads of several calls would
    wait for one another.
    """

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


def _wait(processes: Sequence[Child]) -> None:
    """Wait until children have ended; kill those that take longer than GRACE."""
    end = time.monotonic() + GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0.0))
        process.kill()


def _end(process: Child) -> None:
    """Kill a child and close its pipes."""
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):  # the child has not read all of its input
            pipe.close()


def _asked(process: Child, shared: bytes, task: bytes) -> tuple[bool, Any]:
    """Send a shared value and a task to a child, and return its answer; see `child.attempt`."""
    assert process.stdout
    _send(process, shared, task)
    answer: tuple[bool, Any] = pickle.load(process.stdout)
    return answer


def _send(process: Child, *messages: bytes) -> None:
    """Write messages to the input of a child."""
    assert process.stdin
    for message in messages:
        process.stdin.write(message)
    process.stdin.flush()


def _raised(
    kind: type[Exception], args: tuple[Any, ...], name: str | None, trace: str
) -> Exception:
    """Return the exception made of its parts, without calling the constructor of its class.

    The constructor may need other arguments than `args`.  name: of what an ImportError is about.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    if isinstance(error, ImportError):
        error.name = name
    error.add_note(trace)
    return error
