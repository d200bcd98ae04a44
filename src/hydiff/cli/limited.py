"""A command under a limit of memory (`ulimit -v`), in a process of its own.

Where an allocation fails, libraries in C may end the process instead of telling: glibc's loader
does with exit code 127, SuperLU and numpy were seen to with signal 11.  The parent, which does
nothing but wait, tells for them.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable

LOADER = 127  # of glibc: "cannot allocate memory for thread-local data"
CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, LOADER)
ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def run(command: Callable[[], None]) -> None:
    """Call `command` in a child and end as it ends; MemoryError where a library ended it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # until it is known what becomes of them
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        command()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    for number in ENDS - {signal.SIGINT}:
        signal.signal(number, lambda caught, _: os.kill(child, caught))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in CRASHES:
        raise MemoryError(f"a library ended the process, {ending(code)}")
    os._exit(code if code >= 0 else 128 - code)  # of a signal, as a shell tells it


def ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
