"""A child process that imports what workers need, once, and then forks the workers.

Each new interpreter would import torch, scipy and hydiff again, which takes a second of its core
or more, and 200 MB.  A fork takes milliseconds, and shares this memory until it writes to it.

The process that forks has a single thread and never touches a GPU: a fork of a process with threads
or with a GPU context can hang.  What needs a GPU is called in the workers, after the fork.  Linux
only: libraries of macOS do not work in forks, and Windows has none.

Requests are sent to it over a socket that has no name, each with an answer, in the same order:
`fork NUMBER` with two ends of pipes (the new worker's input and output) is answered by the pid, and
`reap PID` by the exit code.  Until it is reaped, a worker that has ended keeps its pid, so that no
signal can reach another process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Lock

possible = sys.platform == "linux"
HANGUP = 0  # events to poll a pipe for: none but that its other end is closed


class Forks:
    """The process that forks, seen from its parent."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """command: of Python, up to the code; the code calls `child.fork_all`."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked: deque[Future[int]] = deque()  # in the order of the answers to come
        self._sending, self._receiving = Lock(), Lock()
        with theirs:
            self.process = subprocess.Popen(
                [*command[:3], str(theirs.fileno()), *command[3:]],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: str, pipes: Sequence[int] = ()) -> Future[int]:
        """Send a request, and return the future of its answer, which `answer` waits for."""
        with self._sending:
            self._asked.append(future := Future[int]())
            try:
                socket.send_fds(self._line, [request.encode()], pipes)
            except OSError:  # the process has ended
                self._asked.remove(future)
                future.set_exception(ChildProcessError("the process that forks has ended"))
        return future

    def answer(self, future: Future[int]) -> int:
        """Wait for the answer to a request; ChildProcessError if the process has ended."""
        with self._receiving:
            while not future.done():
                self._receive(0)
        return future.result()

    def _receive(self, flags: int) -> None:
        """Receive the next answer, or learn that there will be none."""
        try:
            answer = self._line.recv(64, flags)
        except ConnectionResetError:
            answer = b""
        if answer:
            self._asked.popleft().set_result(int(answer))
        while not answer and self._asked:
            self._asked.popleft().set_exception(ChildProcessError("the process that forks ended"))

    def end_unless_ready(self) -> None:
        """End the process at once if it still imports, so that nobody waits for its workers."""
        if not self._receiving.acquire(blocking=False):  # somebody waits for an answer
            self.process.kill()
            return
        try:
            if self._asked:
                self._receive(socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.process.kill()
        finally:
            self._receiving.release()

    def end(self) -> None:
        """End the process, after its workers."""
        self._line.close()
        self.process.kill()
        self.process.wait()


class Forked:
    """A worker that was forked, with the part of the interface of `subprocess.Popen` in use."""

    def __init__(self, forks: Forks, number: int) -> None:
        self._forks, self._lock, self._killed = forks, Lock(), False
        self.returncode: int | None = None
        (child_in, ours_in), (ours_out, child_out) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
        self._forked = forks.ask(f"fork {number}", [child_in, child_out])
        for end in (child_in, child_out):
            os.close(end)

    @property
    def pid(self) -> int:
        return self._forks.answer(self._forked)

    def poll(self) -> int | None:
        """Return the exit code, or None if the worker has not ended."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the worker has ended; TimeoutExpired after some seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Ask the worker to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the worker."""
        self._signal(signal.SIGKILL)
        self._killed = True

    def _signal(self, number: int) -> None:
        """Send a signal, unless the worker has ended."""
        with self._lock:
            if self.returncode is None:
                # the worker was not forked, or is reaped
                with contextlib.suppress(ChildProcessError, ProcessLookupError):
                    os.kill(self.pid, number)

    def _ended(self, timeout: float | None) -> int | None:
        """Return the exit code; None if the worker has not ended within some seconds."""
        with self._lock:
            if self.returncode is None and (self._killed or self._closed(timeout)):
                try:
                    self.returncode = self._forks.answer(self._forks.ask(f"reap {self.pid}"))
                except ChildProcessError:  # by whom it was forked has ended
                    self.returncode = self._forks.process.wait()
            return self.returncode

    def _closed(self, timeout: float | None) -> bool:
        """Return whether the worker closes its output, as at its end, within some seconds."""
        poll = select.poll()
        poll.register(self.stdout, HANGUP)
        return bool(poll.poll(None if timeout is None else 1000 * timeout))


def serve_requests(line: socket.socket) -> tuple[str, int, int] | None:
    """Fork a worker per request, until the parent has ended: None.

    In a new worker, return its number, and the pipes of its input and output.
    """
    with contextlib.suppress(ConnectionError):  # the parent has ended with answers on their way
        while True:
            message, pipes, *_ = socket.recv_fds(line, 64, 2)
            if not message:
                break
            kind, number = message.decode().split()
            if kind == "reap":
                answer = os.waitstatus_to_exitcode(os.waitpid(int(number), 0)[1])
            elif answer := os.fork():
                for pipe in pipes:
                    os.close(pipe)
            else:
                line.close()
                return number, pipes[0], pipes[1]
            line.send(str(answer).encode())
    return None
