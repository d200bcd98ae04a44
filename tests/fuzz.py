"""The long campaign of hostile files: `make fuzz [INPUTS=200000] [SEED=1] [WORKERS=2]`.

Input i of a campaign is a function of (seed, i) and of the name of the folder of the campaign, so
every defect can be called up again: `python tests/fuzz.py --seed 1 --show 4711 FOLDER` lays it
down.  Workers are forked from a warm process and may take 500 MB beyond what they start with; one
that dies or hangs is a defect of the input at hand, and another takes over.  Where there is strace,
the kernel reports every file that is opened and every host that is called (tracing.py).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import elsewhere
import hostile
import tracing
from conftest import DATA

MEMORY = 500 << 20  # bytes beyond those of an idle worker
SECONDS = 2.0  # of CPU time, for one input
HANGING = 60.0  # of wall time: the machine may be busy, a worker that does nothing is not
LEADS = "leads: "  # what the names of inputs that name other files begin with
ALWAYS = ("fill", "report")  # doors that write for every input, others for one in eight
FORK = multiprocessing.get_context("fork")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate")
RUNS = (
    *(
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "subprocess.Popen",
        "pickle.find_class",
    ),
    *("socket.connect", "ctypes.dlopen", "webbrowser.open"),
)


class Defect(NamedTuple):
    index: int
    name: str
    message: str

    @property
    def kind(self) -> str:
        """Alike for defects of one cause: the message without its numbers and names."""
        return re.sub(r"'.*'|\d+(?!\d*$)", "", self.message)


def inputs_of(seed: int, seeds: list[hostile.Input], index: int) -> hostile.Input:
    """First every seed file as it is, then mutants."""
    if index < len(seeds):
        return seeds[index]
    rng = np.random.default_rng([seed, index])
    slow = rng.random() < 0.95  # large seed files are slow: one input in twenty takes any
    small = [s for s in seeds if sum(map(len, s.files.values())) < 1 << 16 or not slow]
    given = small[int(rng.integers(len(small)))]
    return hostile.mutant(given, seeds, rng)


def campaign(
    seeds: list[hostile.Input],
    seed: int,
    count: int,
    workers: int,
    box: Path,
    seconds: float = np.inf,
) -> tuple[int, list[Defect]]:
    """Try inputs 0 … count - 1, or as many as there is time for, in folders of their own below
    `box`; how many, and the defects."""
    _warm_up(seeds)
    began, tried, found = time.monotonic(), 0, []
    crews = [_Crew(seeds, seed, k, count, workers, box) for k in range(workers)]
    while sum(crew.working() for crew in crews):  # `any` would look after the first alone
        time.sleep(0.05)
        if time.monotonic() - began > seconds:
            for crew in crews:
                crew.stop()
    for crew in crews:
        tried += crew.tried
        found += crew.found
    return tried, sorted(found)


class _Crew:
    """One worker process at a time, over every `step`-th input."""

    def __init__(self, seeds: Any, seed: int, first: int, count: int, step: int, box: Path) -> None:
        self.args, self.box, self.count, self.step = (seeds, seed), box / str(first), count, step
        self.next, self.tried, self.found = first, 0, []
        self.at = FORK.Array("d", [first, time.monotonic()])  # the input at hand, since when
        self.process: Any = None
        self.reports: Any = None

    def working(self) -> bool:
        """Look after the worker; False when all is done."""
        if self.process is None:
            if self.next >= self.count:
                return False
            self._start()
        self._collect()
        if self.process.is_alive():
            if time.monotonic() - self.at[1] > HANGING:
                self._over(f"hangs for {HANGING:g} s")
        elif self.process.exitcode != 0:
            self._over(f"the process died with exit code {self.process.exitcode}")
        else:
            self._end(self.count)
        return True

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self._end(self.count)
        self.next = self.count

    def _start(self) -> None:
        self.box.mkdir(exist_ok=True)
        self.at[0], self.at[1] = self.next, time.monotonic()
        self.reports, theirs = FORK.Pipe(duplex=False)
        args = (*self.args, range(self.next, self.count, self.step), self.box, self.at, theirs)
        self.process = FORK.Process(target=_work, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def _collect(self) -> None:
        try:
            while self.reports.poll():
                self.found.append(self.reports.recv())
        except (EOFError, OSError):
            pass

    def _over(self, message: str) -> None:
        """The worker did not survive the input at hand: go on behind it."""
        self.process.kill()
        index = int(self.at[0])
        self.found.append(Defect(index, inputs_of(self.args[1], self.args[0], index).name, message))
        self._end(index + self.step)

    def _end(self, next: int) -> None:
        self.process.join()
        self._collect()
        last = int(self.at[0])
        self.tried += len(range(self.next, last + 1, self.step))
        self.next, self.process = next, None
        shutil.rmtree(self.box, ignore_errors=True)


def _warm_up(seeds: list[hostile.Input]) -> None:
    """Import what the doors import; nothing that starts a thread, which a fork would lose."""
    import h5py
    import rasterio
    import scipy.io
    import spectral.io.envi
    import zarr.codecs

    import hydiff.auto
    import hydiff.gaps.describe

    assert all((h5py, rasterio, scipy, spectral, zarr, hydiff))
    if not seeds or {given.door for given in seeds} & {"weights", "checkpoint"}:
        import safetensors.torch
        import torch

        import hydiff.learn.weights

        assert all((safetensors, torch))


def _work(seeds: Any, seed: int, indices: range, box: Path, at: Any, reports: Any) -> None:
    warnings.simplefilter("ignore")
    os.environ["TMPDIR"] = tempfile.tempdir = str(box / "tmp")
    faulthandler.disable()
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)  # C libraries complain of what they are given
    watched: list[str] = []
    for given in seeds:  # everything loads, every cache and thread comes to be, before the limit
        at[1] = time.monotonic()
        _try(given, -1, box, True)
    sys.addaudithook(_watch(box, watched))
    idle = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (idle + MEMORY, idle + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for index in indices:
        at[0], at[1] = index, time.monotonic()
        given = inputs_of(seed, seeds, index)
        watched.clear()
        began = time.process_time()
        message = _try(given, index, box, index % 8 == 0 or given.door in ALWAYS)
        took = time.process_time() - began
        for text in [t for t in (message, *watched[:1]) if t]:
            reports.send(Defect(index, given.name, text))
        if took > SECONDS:
            reports.send(Defect(index, given.name, f"took more than {SECONDS:g} s"))
    os._exit(0)  # no one waits for the threads of the libraries


def _try(given: hostile.Input, index: int, box: Path, copy: bool) -> str | None:
    shutil.rmtree(box, ignore_errors=True)
    for folder in ("in", "out", "tmp") if copy else ("in", "tmp"):
        (box / folder).mkdir(parents=True)
    try:
        path = hostile.put(given, box / "in")
    except OSError:  # a name that the file system does not take
        return None
    with tracing.at_work(index):
        message = hostile.defect(given, path, box / "out")
    left = [p.name for p in (box / "tmp").iterdir()]
    if copy and message is None:
        left += [p.name for p in (box / "out").iterdir() if p.name.startswith(".hydiff")]
    for name, content in given.files.items():
        if not isinstance(content, hostile.Link) and (box / "in" / name).read_bytes() != content:
            return "an input file was changed"
    return message or ("left files behind" if left else None)


def _watch(box: Path, seen: list[str]) -> Any:
    """An audit hook: nothing runs, nothing is written outside the box, nobody is called."""

    def outside(path: Any) -> bool:
        if isinstance(path, int):
            return False
        full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return not full.startswith((str(box), "/dev/null", "/proc/self"))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in RUNS:
            seen.append(f"{event} was called")
        elif event == "open" and isinstance(args[2], int) and args[2] & WRITES:
            if args[0] is not None and outside(args[0]):
                seen.append(f"{args[0]} was opened for writing")
        elif event in CHANGES and args[-1] == -1:  # no folder descriptor
            changed = args[1] if event in ("os.symlink", "os.link") else args[0]
            if outside(changed):
                seen.append(f"{event} of {changed}")

    return hook


def _made(make: Any, folder: str, args: tuple[Any, ...], reports: Any) -> None:
    reports.send(make(Path(folder), *args))
    reports.close()


def made(make: Any, *args: Any) -> list[hostile.Input]:
    """Inputs, made in a process of its own: the libraries of good files start threads."""
    ours, theirs = FORK.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        process = FORK.Process(target=_made, args=(make, folder, args, theirs))
        process.start()
        theirs.close()
        found: list[hostile.Input] = ours.recv()
        process.join()
    return found


def good() -> list[hostile.Input]:
    """The good files."""
    return made(hostile.good)


def leads(box: Path) -> list[hostile.Input]:
    """Those that name other files, which lie in `box`/secret and `box`/tiffs."""
    made(lambda folder: elsewhere.secrets(box / "secret") and [])
    return [*made(elsewhere.inputs, box / "secret"), *made(elsewhere.tiffs, box / "tiffs")]


@contextlib.contextmanager
def own_folder(name: str | None = None) -> Iterator[Path]:
    """In memory, where that is possible; its name is always as long."""
    if name is not None:
        yield Path(name)
        return
    disk = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hydiff-fuzz-", dir=disk) as folder:
        yield Path(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def traced(arguments: list[str]) -> tuple[int, list[tracing.Escape]]:
    """Run this campaign below strace: its exit code, and what escaped."""
    with own_folder() as box:
        log = box / "calls"
        os.mkfifo(log)
        # one worker: a call belongs to the input that is at work
        command = [sys.executable, __file__, *arguments, "--workers", "1", "--box", str(box)]
        with subprocess.Popen(tracing.traced(command, log)) as process:
            inside = tuple(f"{box}/{k}/" for k in range(64))
            writable = tuple(f"{path}{name}" for path in inside for name in ("out", "tmp"))
            with log.open(errors="replace") as lines:
                found = list(tracing.escapes(lines, inside, writable))
        return process.wait(), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop after so many")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="seed files whose name holds this")
    parser.add_argument("--show", nargs=2, metavar=("INDEX", "FOLDER"), help="lay an input down")
    parser.add_argument("--csv", type=Path, help="add a line to this table")
    parser.add_argument("--box", help="a folder to work in: strace looks on already")
    given = parser.parse_args()
    if given.box is None and given.show is None and shutil.which("strace"):
        code, escapes = traced(sys.argv[1:])
        for index, what in escapes[:20]:
            print(f"input {index} escapes: {what}")
        print(f"{len(escapes)} escapes seen by strace")
        sys.exit(1 if escapes else code)
    if given.box is None:
        print("strace is not there: what C libraries open is not seen", file=sys.stderr)
    with own_folder(given.box) as box:
        sys.exit(_campaign(given, box))


def _campaign(given: argparse.Namespace, box: Path) -> int:
    others = [] if given.only == LEADS else [*good(), *hostile.real(DATA / "native")]
    seeds = [s for s in (*others, *leads(box)) if given.only in s.name]
    if given.show is not None:
        index, folder = given.show
        found = inputs_of(given.seed, seeds, int(index))
        print(found.name, found.door, hostile.put(found, Path(folder)))
        return 0
    before = [contents(box / name) for name in ("secret", "tiffs")]
    began = time.monotonic()
    tried, defects = campaign(seeds, given.seed, given.inputs, given.workers, box, given.seconds)
    seconds = time.monotonic() - began
    if [contents(box / name) for name in ("secret", "tiffs")] != before:
        defects.append(Defect(-1, "some input", "changed a file that it named"))
    counts = Counter((d.name, d.kind) for d in defects)
    first = {(d.name, d.kind): d for d in reversed(defects)}
    for key, count in counts.most_common():
        print(f"{count:6} × {first[key].name}, first {first[key].index}: {first[key].message}")
    print(f"seed {given.seed}: {tried} inputs in {seconds:.0f} s, {len(defects)} defects")
    if given.csv is not None:
        _add_line(given.csv, [given.seed, len(seeds), tried, round(seconds), len(defects)])
    return 1 if defects else 0


def _add_line(path: Path, row: list[Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["seed", "seed_files", "inputs", "seconds", "defects"])
        writer.writerow(row)


if __name__ == "__main__":
    main()
