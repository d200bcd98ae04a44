"""Death at any moment: `make torture [KILLS=200] [SEED=1]`.

Small fills, trainings, benches and scenes are killed (SIGKILL) at random instants, resumed, killed
again, and at last left to finish: then the bytes are those of a run that nobody disturbed.  The
same jobs run on a disk that fills up and in too little memory: they end with one line and exit
code 2, or do their work.  At no moment is the input changed, or an output there that is not whole.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Contents = dict[str, Any]
PATIENCE = 120.0  # seconds for a job that takes one or two
STAGING = ".hydiff-"  # folders of unfinished files, which only a kill can leave behind


class Job(NamedTuple):
    """A command, run in a folder that holds its input `in.bsq` and nothing else."""

    name: str
    command: tuple[str, ...]
    again: tuple[str, ...]  # the command that goes on after a kill
    made: Callable[[Path], Contents]  # what it has made that is there for good


def _files(*names: str) -> Callable[[Path], Contents]:
    def made(folder: Path) -> Contents:
        return {n: (folder / n).read_bytes() for n in names if (folder / n).is_file()}

    return made


def _rows(folder: Path) -> Contents:
    """The lines of a table by what they measure, without times: those never come out twice."""
    path = folder / "bench" / "noiseless.csv"
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    return {f"{r['method']} {r['mask']} {r['seed']}": r["all_mpsnr"] for r in rows}


def _job(name: str, *command: str, resume: bool = True) -> Job:
    fill = ("fill", "in.bsq", "-o", "out.bsq", *command)
    names = ("out.bsq", "out.hdr", "out.bsq.flags.bsq", "out.bsq.sigma.bsq")
    return Job(name, fill, (*fill, "--resume") if resume else fill, _files(*names))


TINY = ("--set", "steps=25", "--set", "channels=4", "--set", "scales=2", "--device", "cpu")
TRAIN = (
    *("train", "in.bsq", "-o", "net", "--epochs", "12", "--batch", "1", "--crop", "24"),
    *("--channels", "4", "--set", "scales=2", "--device", "cpu"),
)
BENCH = (
    *(
        "bench",
        "noiseless",
        "-o",
        "bench",
        "--scene",
        "mine=whole.bsq",
        "--seeds",
        "1",
        "--mask",
        "stripes",
    ),
    *("--method", "harmonic", "--method", "smooth", "--method", "bandmean", "--device", "cpu"),
)
JOBS = (
    _job("fill, ei", "--method", "ei", *TINY),
    _job("fill, hydiff-ei with noise", "--method", "hydiff-ei", "--sigma-y", "5%", *TINY),
    _job("fill, smooth", "--method", "smooth"),
    _job("scene, smooth", "--method", "smooth", "--tile", "12", "--overlap", "4"),
    _job("scene, auto", "--budget", "fast", "--tile", "24", "--overlap", "4"),
    Job("train", TRAIN, (*TRAIN, "--resume"), _files("net")),
    Job("bench", BENCH, BENCH, _rows),
)


def input_files(folder: Path) -> dict[str, bytes]:
    """A damaged cube (6, 36, 40) and the whole one, made once."""
    import hydiff
    from hydiff.cube import Cube

    rng = np.random.default_rng(5)
    rows, cols = np.mgrid[:36, :40] / 10
    maps = np.stack([np.sin(rows + k) * np.cos(cols * (k + 1) / 2) for k in range(3)])
    spectra = rng.random((6, 3))
    whole = (1000 + 300 * np.tensordot(spectra, maps, 1)).astype(np.int16)
    missing = np.zeros(whole.shape[1:], bool)
    missing[:, 9:12] = missing[20:25, 22:33] = True
    hydiff.write(Cube(np.where(missing, np.int16(-1), whole), nodata=-1.0), folder / "in.bsq")
    hydiff.write(Cube(whole), folder / "whole.bsq")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- running --------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A job in a process of its own, forked from this one, which has imported what it needs."""

    process: int
    pipe: int  # of its stdout and stderr

    def output(self) -> str:
        """What it said; once, when it is over."""
        with os.fdopen(self.pipe, errors="replace") as text:
            return text.read()

    def ended(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        found, status = os.waitpid(self.process, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if found else None

    def wait(self, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        while (code := self.ended()) is None and time.monotonic() < until:
            time.sleep(0.002)
        return code

    def kill(self) -> int:
        """Now; the exit code, -9 unless it was over already."""
        os.kill(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        return os.waitstatus_to_exitcode(status)


def start(command: tuple[str, ...], folder: Path, limit: Callable[[], None] | None = None) -> Run:
    ours, place = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 1 << 20)  # read at the end: it must hold all
    child = os.fork()
    if child:
        os.close(place)
        return Run(child, ours)
    code = 1
    try:
        os.chdir(folder)
        os.dup2(place, 1)
        os.dup2(place, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        if limit is not None:
            limit()
        code = _main(command)
        if limit is _show_modules:
            print("modules:", *sorted(sys.modules))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _show_modules() -> None:
    """No limit, but a list of all that a job has imported, for `Bench`."""


def _main(command: tuple[str, ...]) -> int:
    import traceback

    from hydiff.cli import main
    from hydiff.learn import checkpoint

    checkpoint.INTERVAL = 0.0
    sys.argv = ["hydiff", *command]
    try:
        main()
    except SystemExit as done:
        return int(done.code or 0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


def warm_up() -> None:
    """Import what every job needs, and start no thread, which a fork would lose."""
    import rasterio
    import spectral.io.envi
    import torch

    import hydiff.bench
    import hydiff.cli
    import hydiff.learn.engine
    import hydiff.learn.training
    import hydiff.scale.scene
    from hydiff.methods import hydiff_ei, smooth

    torch.set_num_threads(1)
    assert all((rasterio, spectral, hydiff, hydiff_ei, smooth))


class Defect(NamedTuple):
    job: str
    message: str


class Bench:
    """A job with its input and the result of an undisturbed run."""

    def __init__(self, job: Job, files: dict[str, bytes], folder: Path) -> None:
        self.job, self.files, self.folder, self.count = job, files, folder, 0
        began = time.monotonic()
        fresh = self.fresh()
        run = start(job.command, fresh, _show_modules)
        code, output = run.wait(PATIENCE), run.output()
        if code != 0:
            raise RuntimeError(f"{job.name}: exit code {code}: {output[:2000]}")
        self.seconds = time.monotonic() - began
        self.expected = job.made(fresh)
        assert self.expected, f"{job.name} made nothing: {output[:2000]}"
        for name in output.rpartition("modules:")[2].split():  # later runs need not load them
            if name not in sys.modules:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)

    def fresh(self) -> Path:
        self.count += 1
        folder = self.folder / f"{self.count}"
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder

    def wrong(self, folder: Path, *, whole: bool, staging: bool) -> str | None:
        """What is not as it should be: an input changed, an output torn, lost or left over."""
        for name, content in self.files.items():
            if (folder / name).read_bytes() != content:
                return f"the input {name} was changed"
        made = self.job.made(folder)
        if wrong := [n for n, content in made.items() if content != self.expected[n]]:
            return f"{', '.join(wrong)} differ from an undisturbed run"
        target = next(iter(self.expected))
        if whole and made.keys() != self.expected.keys():
            return f"lost: {', '.join(self.expected.keys() - made.keys())}"
        if self.job.made is not _rows and target in made and made.keys() != self.expected.keys():
            return f"{target} is there without {', '.join(self.expected.keys() - made.keys())}"
        left = [p.name for p in folder.iterdir() if p.name.startswith(STAGING)]
        return f"left behind: {', '.join(left)}" if left and not staging else None

    def killed(self, rng: random.Random, most: int = 4) -> tuple[int, list[Defect]]:
        """Kill and resume up to `most` times, then finish; how many kills hit, and the defects."""
        folder, kills, found, command = self.fresh(), 0, [], self.job.command
        for _ in range(most):
            run = start(command, folder)
            code = run.wait(rng.uniform(0, 1.1) * self.seconds)
            if code is None:
                code = run.kill()
            said = _last(run)
            if code == 0:
                break
            kills += code == -signal.SIGKILL
            if code != -signal.SIGKILL:
                found.append(Defect(self.job.name, f"exit code {code}: {said}"))
            if defect := self.wrong(folder, whole=False, staging=True):
                found.append(Defect(self.job.name, f"after a kill: {defect}"))
            done = self.job.made is not _rows and self.job.made(folder)
            command = (*self.job.again, "--overwrite") if done else self.job.again
        else:
            run = start(command, folder)
            code = run.wait(PATIENCE)
            if code is None:
                run.kill()
            if code != 0:
                found.append(Defect(self.job.name, f"at the end: exit code {code}: {_last(run)}"))
        if defect := self.wrong(folder, whole=True, staging=True):
            found.append(Defect(self.job.name, f"at the end: {defect}"))
        shutil.rmtree(folder)
        return kills, found

    def starved(self, limit: Callable[[], None], what: str) -> tuple[int | None, list[Defect]]:
        """Run once under a limit; the exit code, and the defects."""
        folder, found = self.fresh(), []
        run = start(self.job.command, folder, limit)
        code = run.wait(PATIENCE)
        if code is None:
            run.kill()
        said = _last(run)
        died = "ended the process" in said  # a library did, as a kill does: nobody tidies up
        if defect := self.wrong(folder, whole=code == 0, staging=died or code not in (0, 2)):
            found.append(Defect(self.job.name, f"{what}, exit code {code}: {defect}"))
        if code not in (0, 2) or (code == 2 and "hydiff: " not in said):
            found.append(Defect(self.job.name, f"{what}: exit code {code}: {said}"))
        shutil.rmtree(folder)
        return code, found


def _last(run: Run) -> str:
    lines = [line for line in run.output().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-400:]


def full_disk(nbytes: int) -> Callable[[], None]:
    """No file may grow beyond so many bytes: a write fails as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))


def little_memory(nbytes: int) -> Callable[[], None]:
    """So many bytes of address space beyond those of the process at its start."""

    def limit() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, now + nbytes))

    return limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="jobs whose name holds this")
    parser.add_argument("--csv", type=Path, help="write the table of what was tried here")
    given = parser.parse_args()
    rng, table, defects = random.Random(given.seed), [], []
    with tempfile.TemporaryDirectory(prefix="hydiff-torture-") as name:
        (Path(name) / "input").mkdir()
        warm_up()
        files = input_files(Path(name) / "input")
        jobs = [job for job in JOBS if given.only in job.name]
        for job in jobs:
            (Path(name) / job.name).mkdir()
            bench, kills, found = Bench(job, files, Path(name) / job.name), 0, []
            while kills < given.kills / len(jobs):
                more, wrong = bench.killed(rng)
                kills, found = kills + more, found + wrong
            codes: dict[str, Counter[Any]] = {"disk": Counter(), "memory": Counter()}
            for _ in range(8):
                size = int(2 ** rng.uniform(6, 16))
                for kind, limit in (
                    ("disk", full_disk(size)),
                    ("memory", little_memory(int(2 ** rng.uniform(20, 30)))),
                ):
                    code, wrong = bench.starved(limit, kind)
                    codes[kind][code] += 1
                    found += wrong
            counts = {
                k: " ".join(f"{c}:{n}" for c, n in sorted(v.items(), key=str))
                for k, v in codes.items()
            }
            print(
                f"{job.name}: {bench.seconds:.1f} s, {kills} kills, {counts}, {len(found)} defects"
            )
            for text, count in Counter(d.message for d in found).most_common():
                print(f"   {count} × {text}")
            table.append(
                [
                    given.seed,
                    job.name,
                    kills,
                    sum(codes["disk"].values()),
                    sum(codes["memory"].values()),
                    len(found),
                ]
            )
            defects += found
    if given.csv is not None:
        with given.csv.open("w", newline="") as file:
            head = ["seed", "job", "kills", "full_disks", "short_memories", "defects"]
            csv.writer(file, lineterminator="\n").writerows([head, *table])
    print(f"seed {given.seed}: {sum(row[2] for row in table)} kills, {len(defects)} defects")
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
