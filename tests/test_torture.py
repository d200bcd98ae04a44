"""Death at any moment, in small: the campaign itself is `make torture`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from hydiff import io
from hydiff.bench import records
from hydiff.cube import Cube
from hydiff.errors import BadValue, OutputError
from hydiff.io import npz
from hydiff.io.parsing import parsing

CAMPAIGN = """
import random, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torture
torture.warm_up()
folder, rng, found = Path({folder!r}), random.Random(3), []
(folder / "input").mkdir()
files = torture.input_files(folder / "input")
for job in torture.JOBS:
    if job.name in {names!r}:
        (folder / job.name).mkdir()
        bench = torture.Bench(job, files, folder / job.name)
        kills, wrong = bench.killed(rng, most=1)
        found += wrong
        for limit in (torture.full_disk(3000), torture.little_memory(1 << 20)):
            found += bench.starved(limit, "limit")[1]
print(len(list(folder.iterdir())) - 1, "jobs, defects:", found)
"""


def test_killed_and_starved_jobs_end_with_the_same_bytes_or_one_line(tmp_path: Path) -> None:
    """In a process of its own: a fork of this one would lose the threads that tests have begun."""
    names = ("fill, ei", "scene, smooth")
    code = CAMPAIGN.format(tests=str(ROOT / "tests"), folder=str(tmp_path), names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "2 jobs, defects: []"


def limited(code: str, nbytes: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python in `folder`, where no file can grow beyond so many bytes."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({nbytes}, {nbytes}))\n"
    script = [sys.executable, "-c", limit + code]
    return subprocess.run(script, capture_output=True, text=True, cwd=folder)


# --- little memory --------------------------------------------------------------------------------

COMMAND = """
import os, resource, signal, sys, time
from hydiff import cli
resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))
def app():
    {what}
cli.app = app
cli.main()
"""


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", 2, "a library ended the process, signal 11"),
        ("os.abort()", 2, "a library ended the process, signal 6"),
        ("os._exit(127)", 2, "a library ended the process, exit code 127"),
        ("raise RuntimeError('SUPERLU_MALLOC fails for buf')", 2, "hydiff: out of memory; free"),
        ("sys.exit(3)", 3, ""),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, ""),
        ("os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)", 143, ""),
        ("os.kill(os.getppid(), signal.SIGINT); sys.exit(130)", 130, "interrupted"),
    ],
)
def test_a_command_that_ends_for_want_of_memory_says_so(what: str, code: int, message: str) -> None:
    """Also where a library ends the process, which nothing inside it can report."""
    script = [sys.executable, "-c", COMMAND.format(what=what)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == code, done.stderr[-2000:]
    assert message in done.stderr and len(done.stderr.splitlines()) == (1 if message else 0)


def test_a_fill_without_room_is_refused_before_a_library_hangs(tmp_path: Path) -> None:
    """With 40 MB left, OpenBLAS would ask for its 32 for ever."""
    code = """
import numpy as np, resource, hydiff
from pathlib import Path
cube = np.random.default_rng(0).random((3, 20, 20))
cube[:, 5:8] = np.nan
hydiff.fill(cube, method="nearest")
for room in (40, 1000):
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (room << 20), resource.RLIM_INFINITY))
    try:
        print(np.isfinite(hydiff.fill(cube, method="smooth").values).all())
    except hydiff.errors.BadValue as error:
        print(error)
"""
    script = [sys.executable, "-c", code]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    refused, filled = done.stdout.splitlines()
    assert "MB, expected 256 MB or more to compute in; raise the limit" in refused
    assert filled == "True"


def test_a_file_that_memory_cannot_hold_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="not enough memory"), parsing(tmp_path, "a file"):
        raise OSError(12, "Cannot allocate memory")
    with pytest.raises(BadValue, match="not enough memory"), parsing(tmp_path, "a file"):
        raise SystemError("no result") from MemoryError()


# --- full disks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [100, 200, 1000, 2000])
def test_arrays_on_a_full_disk_are_an_error(tmp_path: Path, nbytes: int) -> None:
    """np.save leaves a torn file there, and says nothing."""
    code = """
import numpy as np, sys
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import OutputError
try:
    io.write(Cube(np.ones((3, 10, 10))), "a.npy")
except OutputError as error:
    print(error)
"""
    done = limited(code, nbytes, tmp_path)
    assert done.returncode == 0 and "cannot write a.npy" in done.stdout, done.stderr[-500:]
    assert not list(tmp_path.iterdir())


def test_a_row_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """A write of half a line is no error of the system's; the row must not count as written."""
    records.append(tmp_path / "a.csv", {"a": 1, "b": 2}, ["a", "b"])
    code = """
from pathlib import Path
from hydiff.bench import records
from hydiff.errors import OutputError
try:
    records.append(Path("a.csv"), {"a": 1111111, "b": 2222222}, ["a", "b"])
    print("written")
except OutputError as error:
    print(error)
"""
    done = limited(code, 12, tmp_path)
    assert "cannot write a.csv" in done.stdout
    assert records.read(tmp_path / "a.csv") == [{"a": "1", "b": "2"}]
    records.append(tmp_path / "a.csv", {"a": 3, "b": 4}, ["a", "b"])
    assert [row["a"] for row in records.read(tmp_path / "a.csv")] == ["1", "3"]


@pytest.mark.parametrize(
    "array", [np.ones((3, 4), ">i2"), np.arange(6.0).reshape(2, 3).T, np.zeros(0)]
)
def test_arrays_are_written_as_numpy_reads_them(tmp_path: Path, array: np.ndarray) -> None:
    npz.save_array(tmp_path / "a.npy", array)
    back = np.load(tmp_path / "a.npy")
    assert back.dtype == array.dtype and np.array_equal(back, array)


@pytest.fixture
def old_fill(tmp_path: Path) -> Path:
    """Something that stands for a fill with companions: every file says that it is old."""
    for name in ("a.npy", "a.npy.json", "a.npy.filled.npz", "a.npy.sigma.npz", "a.npy.aux.xml"):
        (tmp_path / name).write_text("old")
    return tmp_path / "a.npy"


def replaced(target: Path) -> None:
    """By a fill without error bars."""
    beside = [target.with_name(f"a.npy.{name}.npz") for name in ("filled", "sigma")]
    with io.staged(target, overwrite=True, beside=beside) as made:
        io.write_into(Cube(np.ones((2, 3, 4))), made / "a.npy")
        (made / "a.npy.filled.npz").write_text("new")


def ending(error: type[BaseException], place: int, for_good: bool) -> Callable[[Path, Path], Path]:
    """A rename that fails at the place-th call, and ever after if it is for good."""
    count, rename = 0, Path.replace

    def replace(self: Path, to: Path) -> Path:
        nonlocal count
        count += 1
        if count == place or (for_good and count > place):
            raise error
        return rename(self, to)

    return replace


RENAMES = range(1, 9)  # five old files go, three new ones come


@pytest.mark.parametrize("place", RENAMES)
def test_a_replaced_fill_is_never_a_mix(
    old_fill: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two renames, at each of them: no target stands beside another's files."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", ending(KeyboardInterrupt, place, for_good=True))
        replaced(old_fill)
    if old_fill.exists():
        assert len({path.read_bytes() == b"old" for path in old_fill.parent.iterdir()}) == 1


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("place", RENAMES)
def test_a_rename_that_fails_is_taken_back_with_those_before(
    old_fill: Path, place: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_text() for path in old_fill.parent.iterdir()}
    with monkeypatch.context() as patch, pytest.raises((OutputError, KeyboardInterrupt)):
        patch.setattr(Path, "replace", ending(error, place, for_good=False))
        replaced(old_fill)
    assert {path: path.read_text() for path in old_fill.parent.iterdir()} == before


def test_what_is_not_made_again_goes_with_the_old_target(old_fill: Path) -> None:
    replaced(old_fill)
    assert all(path.read_bytes() != b"old" for path in old_fill.parent.iterdir())
    names = {path.name for path in old_fill.parent.iterdir()}
    assert names == {"a.npy", "a.npy.json", "a.npy.filled.npz"}
