"""Long and parallel: many fills in one process leave nothing behind; two at once do not meet."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import hydiff
from conftest import ROOT
from hydiff.cube import Cube
from hydiff.io import provenance

CYCLES, WARM_UP = 60, 40  # every method on every format once, then once more

FILLS = """
import gc, os, sys, threading
from pathlib import Path
import numpy as np
import hydiff
from hydiff.io import provenance

folder, cycles, warm_up = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tiny = {"steps": 2, "channels": 4, "scales": 1, "device": "cpu"}
ways = [{"method": "smooth"}, {"method": "linear"}, {"budget": "fast", "no_prior": True}]
ways += [{"method": "ei"} | tiny]
files = [folder / f"in.{suffix}" for suffix in ("bsq", "tif", "npz", "mat", "zarr")]

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def left():
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(gc.get_objects())

for cycle in range(cycles):
    file = files[cycle % len(files)]
    way = ways[cycle % len(ways) if cycle % 8 else -1]
    result = hydiff.fill(hydiff.read(file), **way)
    provenance.save(result, folder / f"out{file.suffix}", overwrite=True)
    if cycle + 1 == warm_up:
        before, held = resident(), left()
after, holds = resident(), left()
print(before, after, *held, *holds)
"""


def damaged(dtype: str = "int16") -> Cube:
    rows, cols = np.mgrid[:24, :20] / 6
    values = np.stack([1000 * (2 + np.sin(rows + k) * np.cos(cols)) for k in range(4)])
    values[:, :, 7:9] = -1
    values[:, 12:15, 12:17] = -1
    return Cube(values.astype(dtype), nodata=-1.0)


def test_many_fills_leave_memory_files_and_threads_as_they_were(tmp_path: Path) -> None:
    for suffix in ("bsq", "tif", "npz", "mat", "zarr"):
        hydiff.write(damaged(), tmp_path / f"in.{suffix}")
    script = [sys.executable, "-c", FILLS, str(tmp_path), str(CYCLES), str(WARM_UP)]
    one = os.environ | {"MALLOC_ARENA_MAX": "1"}  # arenas come and go with threads
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, env=one)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after, *counts = map(int, done.stdout.split())
    assert after < 1.01 * before, f"{before / 1e6:.0f} MB became {after / 1e6:.0f} MB"
    files, threads, objects, files_now, threads_now, objects_now = counts
    # a pool may gain a thread late; one for each fill of a kind would be eight or more
    assert files_now <= files and threads_now <= threads + 3
    # a step of a generator, or a result, is dozens of objects in each fill; caches of limited size
    # (of TIFF headers, of parsed addresses) still gain a few
    most = 5 * (CYCLES - WARM_UP)
    assert objects_now - objects < most, f"{objects:,} objects became {objects_now:,}"


@pytest.mark.parametrize("method", ["auto", "smooth", "exemplar"])
def test_fills_of_one_file_at_once_are_the_fill_of_one(tmp_path: Path, method: str) -> None:
    """In threads of one process, each to an output of its own."""
    hydiff.write(damaged(), tmp_path / "in.tif")
    budget = {"budget": "fast"} if method == "auto" else {}

    def run(name: str) -> None:
        result = hydiff.fill(hydiff.read(tmp_path / "in.tif"), method=method, **budget)
        provenance.save(result, tmp_path / name)

    run("alone.tif")
    threads = [threading.Thread(target=run, args=(f"{i}.tif",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = (tmp_path / "alone.tif").read_bytes()
    assert all((tmp_path / f"{i}.tif").read_bytes() == expected for i in range(4))
    gc.collect()


def test_two_processes_that_write_one_output_leave_one_whole(tmp_path: Path) -> None:
    """One of them wins, or reports that the other was faster; the output is not a mixture."""
    hydiff.write(damaged(), tmp_path / "in.bsq")
    command = [sys.executable, "-m", "hydiff", "fill", "in.bsq", "-o", "out.bsq", "--method"]
    before = (tmp_path / "in.bsq").read_bytes()
    runs = [
        subprocess.Popen(
            [*command, "linear"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    codes = []
    for run in runs:
        _, stderr = run.communicate()
        codes.append(run.returncode)
        assert run.returncode in (0, 2) and b"Traceback" not in stderr, stderr
    assert 0 in codes
    alone = hydiff.fill(hydiff.read(tmp_path / "in.bsq"), method="linear")
    found = hydiff.read(tmp_path / "out.bsq")
    assert np.array_equal(np.asarray(found.values), np.asarray(alone.cube.values))
    assert (tmp_path / "in.bsq").read_bytes() == before
    assert not list(tmp_path.glob(".hydiff-*"))
