"""Child processes on this machine: they share no lock, no memory and no `__main__` with this one.

A child is a fresh interpreter with one thread of arithmetic.  Tasks and answers are pickles over
its standard input and output, so functions must be importable; it ends when its input does, that
is, with its parent.

Why not a library: children of `concurrent.futures.ProcessPoolExecutor` import the `__main__` of
their parent, so that a script without a guard runs again in each.  `loky` (3.7, tried) imports
none, but a killed child fails the tasks of all others, and children go on with their task when
their parent is killed.  Dask (tried) starts seconds later and opens ports.  Here a lost child is
replaced, and costs its own task, which is done again.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, Timer
from typing import Any, Self

from hydiff.errors import BadValue
from hydiff.io.threads import is_worker, share_cores
from hydiff.workers import Outcome, Work
from hydiff.workers.blas import one_thread

BYTES = 100e6  # of memory that a child takes before it has anything to do
IDLE = 20.0  # seconds that children wait for the next fill of this process
RETRIES = 2  # of a task whose child was lost; one that is lost each time may be its fault
LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{name}_THREADS": "1" for name in LIBRARIES}
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}  # or what one thread gave back would be of no use to another
START = "import sys; sys.path[:] = sys.argv[3:]; from hydiff.workers.local import serve; serve()"

_name = ""  # of this process, if it is a child


def possible() -> bool:
    """Whether this process may have children: it is Python itself, and no worker."""
    named = Path(sys.executable or "").name.startswith("python")
    return named and not hasattr(sys, "frozen") and not is_worker()


def run(
    workers: int,
    work: Work,
    tasks: Sequence[Any],
    at_once: int | None = None,
    ready: Processes | None = None,
) -> Iterator[Outcome]:
    """Each task in one of so many children, as many as memory allows; they end with the last.

    ready: children that are there already.
    """
    count = min(workers, len(tasks), at_once or workers)
    give_back()
    with Processes(count, [work.__module__]) if ready is None else ready as children:
        children.share(work)
        numbers = {children.submit(_named, task): i for i, task in enumerate(tasks)}
        for future in as_completed(numbers):
            try:
                outcome = Outcome(numbers[future], *future.result())
            except Exception as error:
                outcome = Outcome(numbers[future], "", error=error)
            yield outcome


class Crew:
    """A `Run` over so many children, which may be started before there are tasks for them."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._ready: Processes | None = None

    def prepare(self, count: int, imports: Sequence[str]) -> None:
        """Start so many, which load what they need while this process is at something else."""
        self._ready = Processes(count, imports)

    def __call__(
        self, work: Work, tasks: Sequence[Any], at_once: int | None = None
    ) -> Iterator[Outcome]:
        ready, self._ready = self._ready, None
        return run(self.workers, work, tasks, at_once, ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ready is not None:
            self._ready.__exit__()


def give_back() -> None:
    """Return to the system the memory that this process has freed; others need it now."""
    if sys.platform == "linux" and hasattr(own := ctypes.CDLL(None), "malloc_trim"):  # of glibc
        own.malloc_trim(0)


def _named(work: Work, task: Any) -> tuple[str, Any]:
    """Who does a task, and what comes of it."""
    return _name, work(task)


_resting: dict[tuple[Any, ...], tuple[Processes, Timer]] = {}
_rests = Lock()


@contextlib.contextmanager
def staying(count: int, imports: Sequence[str] = ()) -> Iterator[Processes]:
    """Children that stay a while for the next who asks for as many: filling one cube after the
    other does not wait for their start.  With work left, or after an error, they end at once."""
    key = os.getpid(), count, *imports  # a forked process must not speak through these pipes
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
    with _rests:
        ended = [_resting.pop(key) for key in keys if key in _resting]
    for crew, timer in ended:
        timer.cancel()
        crew.__exit__()


@atexit.register
def _end_all() -> None:
    _end_resting(*(key for key in tuple(_resting) if key[0] == os.getpid()))


class Processes:
    """So many of them, with `submit` like an executor's; leaving the block ends them.

    imports: modules that they load at once, while this process prepares the tasks; of
    `module:function:text` they also call the function with the text.
    """

    def __init__(self, count: int, imports: Sequence[str] = ()) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._tasks = SimpleQueue()
        self._shared: tuple[Any, bytes] = (None, b"")
        self._has = [b""] * count  # what each of them was sent of it
        self._asked: list[Future[Any]] = []
        self._imports, self._lock, self._over = imports, Lock(), False
        self._own = ThreadPoolExecutor(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[Thread] = []
        try:
            for number in range(count):
                self.processes.append(_started(number, imports))
        except OSError:  # the system has no more of them to give
            self.__exit__()
            raise
        self._threads = [Thread(target=self._drive, args=(i,), daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def share(self, value: Any) -> None:
        """What every function gets as its first argument; travels to each child once."""
        self._shared = value, pickle.dumps((None, value), pickle.HIGHEST_PROTOCOL)

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """function(shared, *args), in a child."""
        future: Future[Any] = Future()
        self._asked.append(future)
        self._tasks.put((future, function, args))
        return future

    def rest(self) -> bool:
        """Whether there is nothing left to do; then all forget what was shared."""
        if not all(future.done() for future in self._asked):
            return False
        self._asked.clear()
        self.share(None)
        for number in range(len(self.processes)):
            with contextlib.suppress(OSError):  # a lost one is replaced at its next task
                _send(self.processes[number], self._shared[1])
                self._has[number] = self._shared[1]
        return True

    def here(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """The same in a thread of this process, which has little else to do."""
        return self._own.submit(function, self._shared[0], *args)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # none is replaced from now on
            self._over = True
        for process in self.processes:
            process.kill()
            self._tasks.put(None)
        self._own.shutdown(cancel_futures=True)
        for thread in self._threads:
            thread.join()
        for process in self.processes:
            _end(process)

    def _drive(self, number: int) -> None:
        """Give one child a task at a time, until there are no more."""
        while (task := self._tasks.get()) is not None and not self._over:
            future, *asked = task
            try:
                done, answer = self._answer(number, pickle.dumps(asked, pickle.HIGHEST_PROTOCOL))
                if done:
                    future.set_result(answer)
                else:
                    future.set_exception(_raised(*answer))
            except Exception as error:  # what cannot be sent, or no child to be had
                future.set_exception(error)

    def _answer(self, number: int, message: bytes) -> tuple[bool, Any]:
        """That of a child; one that is lost is replaced, and the other one asked."""
        _, packed = self._shared
        for _ in range(1 + RETRIES):
            process = self.processes[number]
            new = b"" if self._has[number] is packed else packed
            try:
                answer = _asked(process, new, message)
                self._has[number] = packed
                return answer
            except Exception as error:  # whatever it was: the next answer could be to this question
                lost = error
                self._replace(number)
        raise BadValue(
            f"{1 + RETRIES} worker processes were lost at one task, the last with exit code "
            f"{process.returncode}: if memory ran out, give fewer `workers=` or less `memory=`"
        ) from lost

    def _replace(self, number: int) -> None:
        """Start another child in place of one, unless all are to end."""
        with self._lock:
            _end(self.processes[number])
            if self._over:
                raise ChildProcessError("all children are ended")
            self.processes[number], self._has[number] = _started(number, self._imports), b""


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


def _started(number: int, imports: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", START, str(number), ",".join(imports), *sys.path],
        env=os.environ | ONE_THREAD | ONE_HEAP,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(OSError):  # it never read the rest
            pipe.close()


def _asked(process: subprocess.Popen[bytes], shared: bytes, task: bytes) -> tuple[bool, Any]:
    assert process.stdout
    _send(process, shared, task)
    answer: tuple[bool, Any] = pickle.load(process.stdout)
    return answer


def _send(process: subprocess.Popen[bytes], *messages: bytes) -> None:
    assert process.stdin
    for message in messages:
        process.stdin.write(message)
    process.stdin.flush()


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
    global _name
    _name = sys.argv[1]
    share_cores()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    for each in filter(None, sys.argv[2].split(",")):
        module, *call = each.split(":", 2)
        loaded = importlib.import_module(module)
        if call:
            getattr(loaded, call[0])(call[1])
    messages: SimpleQueue[tuple[Callable[..., Any] | None, Any]] = SimpleQueue()
    Thread(target=_listen, args=(messages,), daemon=True).start()
    shared = None
    while True:
        function, content = messages.get()
        if function is None:
            shared = content
        else:
            answers.write(_packed(_attempt(function, shared, content)))
            answers.flush()


def _packed(answer: tuple[bool, Any]) -> bytes:
    """As it travels; an error in place of what cannot."""
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        message = f"what came of a task cannot be sent back: {error}"
        return pickle.dumps((False, (TypeError, (message,), repr(answer))))


def _listen(messages: SimpleQueue[Any]) -> None:
    """In a thread of its own, so that a parent's end is noticed amid a task."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)
