"""`hydiff` called in this process: its exit code and what it prints, without a start of Python.

A start takes a second, and torch two more.  What depends on a process of its own (signals, limits,
what is imported, the folder that Python looks into) is tested with real ones.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from hydiff.cli import main


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line from its words to its exit code, in the folder `cwd`."""
    words = ["hydiff", *map(str, arguments)]
    code = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as stdout,
        contextlib.redirect_stderr(io.StringIO()) as stderr,
    ):
        patch.setattr(sys, "argv", words)
        patch.setenv("PYTHONSAFEPATH", "1")  # main sets it; the old value comes back
        patch.chdir(cwd or Path.cwd())
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(words, code, stdout.getvalue(), stderr.getvalue())
