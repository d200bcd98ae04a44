"""Hostile rasters that only GDAL reads: `python tests/fuzz_rasters.py --inputs 2000 --seed 1`.

Input i is a function of (seed, i): a good file of one driver, changed as `make fuzz` changes files.
Each is decoded as `hydiff.io.raster` does it, by `raster_child`, but in a fork of one warm process,
which takes 20 ms instead of half a second.  GDAL may refuse a file there, or die (also of the limit
of CPU time); what comes out is then a cube, or one line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import rasterio

import hostile
from hydiff.errors import HydiffError
from hydiff.io import raster, raster_child

SUFFIX = {"HFA": ".img", "PCIDSK": ".pix", "ISIS3": ".cub", "JP2OpenJPEG": ".jp2"}
SECONDS = 2  # of CPU time for one input; raster_child itself allows more
HANGING = 300.0  # of wall time: the machine may be busy, a process that does nothing is not
MOST = 200 << 20  # bytes that one input may put on the disk
REFUSED = 3  # the exit code of raster_child


def good(folder: Path) -> list[hostile.Input]:
    """A small file of each driver."""
    values = (np.random.default_rng(7).random((3, 20, 22)) * 1000).astype(np.uint16)
    found = []
    for driver, suffix in SUFFIX.items():
        path = folder / f"a{suffix}"
        profile = {"count": 3, "height": 20, "width": 22, "dtype": "uint16", "crs": "EPSG:32611"}
        with rasterio.open(path, "w", driver=driver, **profile) as dataset:
            dataset.write(values)
        found.append(hostile.Input(driver, "cube", path.name, {path.name: path.read_bytes()}))
    return found


def attempt(given: hostile.Input, folder: Path) -> str:
    """Decode an input; cube, refused, died, other (another format now), or what is wrong."""
    path = hostile.put(given, folder)
    driver = raster.driver_of(path) if path.is_file() else None
    if driver is None:
        return "other"
    decoded, said, complaint = folder / "values", folder / "said", folder / "complaint"
    child = os.fork()
    if child == 0:
        _decode(driver, path, decoded, said, complaint)
    code = _ended(child)
    if code is None:
        return f"hangs for {HANGING:g} s"
    if decoded.exists() and decoded.stat().st_size > MOST:
        return f"{decoded.stat().st_size} bytes on the disk"
    if code < 0:
        return "died"
    if code == REFUSED:
        return "refused" if complaint.read_text().strip() else "refused without a word"
    if code != 0:
        return f"exit code {code}"
    return _taken(path, driver, said, decoded)


def _taken(path: Path, driver: str, said: Path, decoded: Path) -> str:
    try:
        cube = raster.decoded_cube(path, driver, json.loads(said.read_text()), decoded)
        np.asarray(cube.values)
        cube.observed()
    except HydiffError as error:
        return "refused" if "\n" not in str(error) else "message of several lines"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return "cube"


def _decode(driver: str, path: Path, decoded: Path, said: Path, complaint: Path) -> None:
    """As `python raster_child.py` ends; called in a fork."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    raster_child.SECONDS = SECONDS
    sys.stdout, sys.stderr = said.open("w"), complaint.open("w")
    try:
        raster_child.main(driver, str(path), str(decoded))
        code = 0
    except Exception as error:
        sys.stderr.write((str(error) or type(error).__name__).splitlines()[0])
        code = REFUSED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _ended(child: int) -> int | None:
    """The exit code, negative for a signal; None if it had to be killed."""
    began = time.monotonic()
    while time.monotonic() - began < HANGING:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


EXPECTED = {"cube", "refused", "died", "other"}


def campaign(count: int, seed: int) -> tuple[Counter[str], list[tuple[int, str, str]]]:
    """How inputs 0 … count - 1 ended, and the defects: number, driver, what is wrong."""
    ends: Counter[str] = Counter()
    defects = []
    with tempfile.TemporaryDirectory() as box:
        seeds = good(Path(box))
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        given = seeds[index % len(seeds)]
        given = given if index < len(seeds) else hostile.mutant(given, seeds, rng)
        with tempfile.TemporaryDirectory() as folder:
            end = attempt(given, Path(folder))
        ends[end if end in EXPECTED else "defect"] += 1
        if end not in EXPECTED:
            defects.append((index, given.name, end))
    return ends, defects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.monotonic()
    ends, defects = campaign(options.inputs, options.seed)
    for index, name, end in defects:
        print(f"input {index} ({name}): {end}")
    listed = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    took = time.monotonic() - began
    print(f"seed {options.seed}: {options.inputs} inputs in {took:.0f} s: {listed}")
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
