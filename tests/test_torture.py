"""Death at any moment, in small: the campaign itself is `make torture`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from hydiff import io
from hydiff.bench import records
from hydiff.cube import Cube
from hydiff.io import npz

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
        kills, wrong = bench.killed(rng, most=2)
        found += wrong
        for limit in (torture.full_disk(3000), torture.little_memory(1 << 20)):
            found += bench.starved(limit, "limit")[1]
print("defects:", found)
"""


@pytest.mark.parametrize("names", [("fill, ei", "bench"), ("scene, smooth",)])
def test_killed_and_starved_jobs_end_with_the_same_bytes_or_one_line(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """In a process of its own: a fork of this one would lose the threads that tests have begun."""
    code = CAMPAIGN.format(tests=str(ROOT / "tests"), folder=str(tmp_path), names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "defects: []"


def limited(code: str, nbytes: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python in `folder`, where no file can grow beyond so many bytes."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({nbytes}, {nbytes}))\n"
    script = [sys.executable, "-c", limit + code]
    return subprocess.run(script, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("nbytes", [100, 200, 1000, 2000])
def test_arrays_on_a_full_disk_are_told(tmp_path: Path, nbytes: int) -> None:
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


def test_a_row_on_a_full_disk_is_told(tmp_path: Path) -> None:
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


def test_a_replaced_fill_is_never_a_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two renames, at each of them: the old target never stands beside new files."""
    cube = Cube(np.ones((2, 3, 4)))
    places = list(range(6))
    for place in places:
        folder = tmp_path / str(place)
        folder.mkdir()
        target = folder / "a.npy"
        for name in ("a.npy", "a.npy.json", "a.npy.filled.npz"):
            (folder / name).write_text("old")
        count = 0
        rename = Path.replace

        def dying(self: Path, to: Path, place: int = place, rename=rename) -> Path:
            nonlocal count
            count += 1
            if count > place:
                raise KeyboardInterrupt
            return rename(self, to)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying)
            try:
                with io.staged(target, overwrite=True) as made:
                    io.write_into(cube, made / "a.npy")
                    (made / "a.npy.filled.npz").write_text("new")
            except KeyboardInterrupt:
                pass
        new = (folder / "a.npy.filled.npz").read_text() == "new"
        if target.exists():
            assert new == (target.read_bytes() != b"old"), place
