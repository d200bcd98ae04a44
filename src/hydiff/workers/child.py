"""The part of `hydiff.workers.local` that runs in a child process."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from hydiff.io.threads import share_cores
from hydiff.workers import Work, forks

GRACE = 5.0  # seconds that a child has to remove unfinished files when it is ended

_name = ""  # of this process, if it is a child


def named(work: Work, task: Any) -> tuple[str, Any]:
    """Return the name of this process and the result of a task."""
    return _name, work(task)


def serve() -> None:
    """Answer one task after another, until the parent has ended."""
    _serve(sys.argv[1], sys.argv[2])


def fork_all() -> None:
    """Import the modules, then fork workers as the parent asks for them, until it has ended."""
    line = socket.socket(fileno=int(sys.argv[1]))
    os.dup2(2, 1)
    for entry in filter(None, sys.argv[2].split(",")):
        with contextlib.suppress(Exception):  # the workers fail as well, and say so
            importlib.import_module(entry.partition(":")[0])
    worker = forks.serve_requests(line)
    if worker is not None:
        number, *pipes = worker
        for end, pipe in enumerate(pipes):
            os.dup2(pipe, end)
            os.close(pipe)
        _serve(number, sys.argv[2])


def _serve(name: str, imports: str) -> None:
    """Load the imports, and answer one task after another, until the parent has ended."""
    global _name
    _name = name
    share_cores()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not be mixed with the answers
    loaded = attempt(_load, None, (imports,))
    messages: SimpleQueue[tuple[Callable[..., Any] | None, Any]] = SimpleQueue()
    try:
        signal.signal(signal.SIGTERM, _leave)
        Thread(target=_listen, args=(messages,), daemon=True).start()
        _answer_all(messages, answers, loaded)
    except (SystemExit, BrokenPipeError):  # a usual exit would wait for the thread that listens
        os._exit(1)


def _load(_: None, imports: str) -> None:
    """Import modules, and call the functions named with them."""
    for entry in filter(None, imports.split(",")):
        module, *call = entry.split(":", 2)
        imported = importlib.import_module(module)
        if call:
            getattr(imported, call[0])(call[1])


def _answer_all(messages: SimpleQueue[Any], answers: Any, loaded: tuple[bool, Any]) -> None:
    """Answer one message after another, until `_leave` is called.

    loaded: what came of the imports; an error is the answer to every task.
    """
    shared = None
    while True:
        function, content = messages.get()
        if function is None:
            shared = content
        else:
            succeeded, _ = loaded
            answers.write(_packed(attempt(function, shared, content) if succeeded else loaded))
            answers.flush()


def _leave(*_: object) -> None:
    """Leave the current task, whose blocks remove their unfinished files, and end the process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # not twice
    raise SystemExit


def attempt(function: Callable[..., Any], shared: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    """Return True and the result, or False and the parts of the exception, which can be pickled."""
    try:
        return True, function(shared, *args)
    except Exception as error:
        name = error.name if isinstance(error, ImportError) else None
        return False, (type(error), error.args, name, traceback.format_exc())


def _packed(answer: tuple[bool, Any]) -> bytes:
    """Return the pickle of an answer, or of an error if the answer cannot be pickled."""
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        message = f"what came of a task cannot be sent back: {error}"
        return pickle.dumps((False, (TypeError, (message,), None, repr(answer))))


def _listen(messages: SimpleQueue[Any]) -> None:
    """Receive messages in a separate thread, so that the parent's end is noticed during a task."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # to the main thread
        time.sleep(GRACE)
        os._exit(0)
