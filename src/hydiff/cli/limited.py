"""Run a command under a limit of memory (`ulimit -v`) in a child process.

If an allocation fails, C libraries may end the process without a message: glibc's loader with exit
code 127, SuperLU and numpy, as observed, with signal 11.  The parent, which only waits, then prints
a message.  Windows has neither such a limit nor these signals.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

LOADER = 127  # of glibc: "cannot allocate memory for thread-local data"


def is_limited() -> bool:
    """Return whether this process has a limit of memory."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def run(command: Callable[[], None]) -> None:
    """Call `command` in a child process, and exit with its exit code.

    Raises MemoryError if a library ended the child.
    """
    crashes = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, LOADER)
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # until the handlers below are installed
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
        command()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal also sends it to the child
    for number in ends - {signal.SIGINT}:
        signal.signal(number, lambda caught, _: os.kill(child, caught))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in crashes:
        ending = f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise MemoryError(f"a library ended the process, {ending}")
    os._exit(code if code >= 0 else 128 - code)  # 128 + signal, as a shell does
