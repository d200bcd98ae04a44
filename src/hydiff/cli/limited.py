"""A command under a limit of memory (`ulimit -v`), in a process of its own.

Where an allocation fails, libraries in C may end the process without a message: glibc's loader
does with exit code 127, SuperLU and numpy were seen to with signal 11.  The parent, which does
nothing but wait, prints the message for them.  Windows has neither such a limit nor these signals.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

LOADER = 127  # of glibc: "cannot allocate memory for thread-local data"


def is_limited() -> bool:
    """Whether this process has a limit of memory."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def run(command: Callable[[], None]) -> None:
    """Call `command` in a child and end as it ends; MemoryError where a library ended it."""
    crashes = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, LOADER)
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # until it is known what becomes of them
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
        command()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    for number in ends - {signal.SIGINT}:
        signal.signal(number, lambda caught, _: os.kill(child, caught))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in crashes:
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise MemoryError(f"a library ended the process, {ending}")
    os._exit(code if code >= 0 else 128 - code)  # of a signal, as a shell does
