"""Put one fault at a time into `src`, and check that its tests detect it.

    python benchmarks/mutants.py [WORD ...] [--jobs 2] [--limit 120] [--check]

The faults are listed in mutants.toml: the qualified name of a function, a text that occurs once in
it, its replacement, and the tests.  The fault is put into a copy of `src`, and the tests run on the
copy; if one fails, the fault is killed.  Exit code 1 if fewer than 95 % are killed, if a name, a
text or a test no longer exists, or if the tests fail without a fault.  With words, only faults that
contain one of them are run; with --check, no test is run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIST = ROOT / "benchmarks" / "mutants.toml"
WANTED = 0.95  # share of the faults that the tests must detect
KILLED, SURVIVED, STALE = "killed", "survived", "stale"
# imported once, before a process is forked for each fault: they take longer than most tests
COMMON = ("numpy", "scipy.ndimage", "scipy.sparse.linalg", "scipy.spatial", "scipy.interpolate")
COMMON += (
    "pytest",
    "hypothesis.extra.numpy",
    "zarr",
    "rasterio",
    "h5py",
    "spectral",
    "xarray",
    "torch.nn",
)
COMMON += ("matplotlib.figure", "skimage.metrics", "safetensors.torch", "typer.testing", "rich")


class Stale(Exception):
    """A fault that can no longer be put in."""


class Fault(NamedTuple):
    where: str  # qualified name of a function, a method or a class
    old: str
    new: str
    tests: str  # test files or test ids below tests/, between blanks

    @property
    def ids(self) -> list[str]:
        return [f"tests/{test}" for test in self.tests.split()]

    def __str__(self) -> str:
        return f"{self.where}: {self.old} → {self.new}"


class Outcome(NamedTuple):
    fault: Fault
    what: str
    seconds: float = 0.0
    why: str = ""


def faults(path: Path = LIST) -> list[Fault]:
    return [Fault(*row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["faults"]]


def file_of(where: str, source: Path) -> tuple[Path, list[str]]:
    """The file that a qualified name begins with, and the names inside it."""
    parts = where.split(".")
    for length in range(len(parts), 0, -1):
        stem = source.joinpath(*parts[:length])
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return path, parts[length:]
    raise Stale(f"no file for {where}")


def lines_of(text: str, names: Sequence[str]) -> tuple[int, int]:
    """The first line of a definition, counted from 0, and the one behind its last."""
    node: ast.AST = ast.parse(text)
    for name in names:
        inner = [n for n in ast.iter_child_nodes(node) if getattr(n, "name", None) == name]
        if not inner:
            raise Stale(f"no {name} in {getattr(node, 'name', 'its file')}")
        node = inner[-1]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return node.lineno - 1, node.end_lineno or node.lineno


class Place(NamedTuple):
    """Where a fault goes: the text of a file, cut around one definition."""

    path: Path
    before: str
    body: str
    after: str


def place_of(fault: Fault, source: Path) -> Place:
    path, names = file_of(fault.where, source)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    first, end = lines_of(text, names)
    body = "".join(lines[first:end])
    if (count := body.count(fault.old)) != 1 or "\n" in fault.old:
        raise Stale(f"{fault.old!r} is there {count} times, expected once, on one line")
    return Place(path, "".join(lines[:first]), body, "".join(lines[end:]))


def mutated(fault: Fault, source: Path) -> tuple[Path, str]:
    """A file, and its text with the fault."""
    path, before, body, after = place_of(fault, source)
    changed = before + body.replace(fault.old, fault.new) + after
    try:
        if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(before + body + after)):
            raise Stale("the fault changes nothing")
    except SyntaxError as error:
        raise Stale(f"with the fault it is no Python: {error}") from None
    return path, changed


class Running(NamedTuple):
    fault: Fault | None  # None: the tests as they are
    pid: int
    began: float
    slot: int


class Campaign:
    """Faults at work, each in a process of its own; a slot is a copy of `src`."""

    def __init__(self, folder: Path, jobs: int, limit: float) -> None:
        self.folder, self.jobs, self.limit = folder, jobs, limit
        self.at_work: dict[int, Running] = {}
        for slot in range(jobs):
            self.restore(slot)

    def source(self, slot: int) -> Path:
        return self.folder / f"src{slot}"

    def restore(self, slot: int, file: Path | None = None) -> None:
        """The whole copy as it was, or one file of it."""
        if file is None:
            shutil.copytree(ROOT / "src", self.source(slot))
        else:
            shutil.copy2(ROOT / "src" / file.relative_to(self.source(slot)), file)

    def put_in(self, fault: Fault, slot: int) -> None:
        path, text = mutated(fault, self.source(slot))
        path.write_text(text, encoding="utf-8")
        for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            old.unlink()  # Python compares only the time, in s, and the size of the source with it

    def start(self, fault: Fault | None, slot: int, tests: Sequence[str]) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _run_tests(self.source(slot), tests, self.folder / f"output{slot}", fault is None)
        self.at_work[slot] = Running(fault, pid, time.monotonic(), slot)

    def ended(self) -> Iterator[tuple[Running, int]]:
        """Those that have come to their end, or to the end of their time, with their code."""
        for running in list(self.at_work.values()):
            pid, status = os.waitpid(running.pid, os.WNOHANG)
            late = time.monotonic() - running.began > self.limit
            if pid == 0 and not late:
                continue
            if pid == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                os.waitpid(running.pid, 0)
            del self.at_work[running.slot]
            yield running, -1 if pid == 0 else os.waitstatus_to_exitcode(status)

    def wait(self) -> Iterator[tuple[Running, int]]:
        """At least one that has ended."""
        while not (found := list(self.ended())):
            time.sleep(0.02)
        yield from found

    def output(self, slot: int) -> str:
        return (self.folder / f"output{slot}").read_text(encoding="utf-8", errors="replace")

    def outcomes(self, todo: Sequence[Fault]) -> Iterator[Outcome]:
        free, waiting = list(range(self.jobs)), list(reversed(todo))
        while waiting or self.at_work:
            while free and waiting:
                fault = waiting.pop()
                try:
                    self.put_in(fault, free[-1])
                except Stale as why:
                    yield Outcome(fault, STALE, why=str(why))
                    continue
                self.start(fault, free.pop(), fault.ids)
            for running, code in self.wait() if self.at_work else ():
                assert running.fault is not None
                self.restore(
                    running.slot, file_of(running.fault.where, self.source(running.slot))[0]
                )
                free.append(running.slot)
                took = time.monotonic() - running.began
                why = "by time" if code == -1 else _first_failure(self.output(running.slot))
                yield Outcome(running.fault, KILLED if code else SURVIVED, took, why)

    def sound(self, todo: Sequence[Fault]) -> str:
        """What the tests say without a fault, where they do not pass."""
        limit, self.limit = self.limit, 3600.0
        self.start(None, 0, sorted({test for fault in todo for test in fault.ids}))
        [(_, code)] = self.wait()
        self.limit = limit
        return f"{self.output(0)}\nexit code {code}" if code else ""


def _first_failure(output: str) -> str:
    """The test that failed, of what pytest said."""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].partition(" - ")[0] if lines else ""


def _run_tests(source: Path, tests: Sequence[str], log: Path, keep_bytecode: bool) -> None:
    """In a child: pytest on a copy of `src`; never returns."""
    os.setsid()  # a new session, so that processes started by the tests can be ended too
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    more = {"PYTHONPATH": str(source), "HYPOTHESIS_STORAGE_DIRECTORY": str(log) + ".hypothesis"}
    os.environ.update(more)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading them takes longer than most tests
    if not keep_bytecode:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
    sys.path.insert(0, str(source))
    code = 3
    try:
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={log}.tmp", *tests]
        code = int(pytest.main(options))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def load_common() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # as many processes as cores, one thread each
    for name in COMMON:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def check(todo: Sequence[Fault]) -> int:
    """Whether every fault can be put in; nothing is run."""
    stale = 0
    for fault in todo:
        try:
            mutated(fault, ROOT / "src")
        except Stale as why:
            stale += 1
            print(f"stale     {fault}: {why}")
    print(f"{len(todo)} faults, {stale} of them stale")
    return int(stale > 0)


def run(todo: Sequence[Fault], jobs: int, limit: float) -> int:
    load_common()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), jobs, limit)
        if failure := campaign.sound(todo):
            print(failure, "the tests fail without any fault", sep="\n")
            return 1
        found = []
        for outcome in campaign.outcomes(todo):
            found.append(outcome)
            note = f" ({outcome.why})" if outcome.why else ""
            print(f"{outcome.what:9} {outcome.seconds:6.1f} s  {outcome.fault}{note}", flush=True)
    return summary(found)


def summary(found: Sequence[Outcome]) -> int:
    """The counts and the survivors; the exit code."""
    count = Counter(outcome.what for outcome in found)
    share = count[KILLED] / max(len(found) - count[STALE], 1)
    counts = ", ".join(f"{count[what]} {what}" for what in (KILLED, SURVIVED, STALE))
    print(
        f"{len(found)} faults: {counts}; {100 * share:.1f} % killed, at least {WANTED:.0%} wanted"
    )
    for outcome in found:
        if outcome.what != KILLED:
            print(f"  {outcome.what}: {outcome.fault}{outcome.why and f' ({outcome.why})'}")
    return int(share < WANTED or count[STALE] > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only faults whose line has one of these")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for the tests of one")
    parser.add_argument("--check", action="store_true", help="only whether they can be put in")
    given = parser.parse_args()
    todo = [f for f in faults() if not given.words or any(w in " ".join(f) for w in given.words)]
    return check(todo) if given.check else run(todo, given.jobs, given.limit)


if __name__ == "__main__":
    sys.exit(main())
