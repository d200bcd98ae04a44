"""Decode one raster in a separate process that can open no other file.

`python raster_child.py DRIVER PATH OUT`: GDAL sees the content of PATH in memory.  Before it does,
the process gives up the right to open files and sockets; it prints the metadata of the raster as
JSON, and writes the values to OUT, band after band.  It imports nothing of hydiff.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.io import MemoryFile

ALONE = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO"}
MOST_BANDS = 10_000
SECONDS = 30  # limit of CPU time, to which each PER_SECOND bytes of a file add a second
PER_SECOND = 500_000
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes the process may take


def main(driver: str, path: str, out: str) -> None:
    """Write the values of a raster to the file `out`, and print its metadata as JSON."""
    with rasterio.Env(**ALONE), Path(out).open("wb") as values:
        _warm_up()
        room = shutil.disk_usage(Path(out).parent).free
        content = Path(path).read_bytes()
        with MemoryFile(content) as file:
            seconds = SECONDS + len(content) // PER_SECOND
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            with file.open(driver=driver) as dataset:
                facts = _facts(dataset)
                nbytes = math.prod(facts["shape"]) * np.dtype(facts["dtype"]).itemsize
                _check_whole(driver, content, nbytes)
                _check_room(nbytes, room)
                for band in range(1, dataset.count + 1):
                    values.write(np.ascontiguousarray(dataset.read(band)).data)
    print(json.dumps(facts))


def _warm_up() -> None:
    """Load everything that is loaded at first use, while files can still be opened."""
    profile = {"driver": "GTiff", "width": 1, "height": 1, "count": 1, "dtype": "uint8"}
    with MemoryFile() as memory:
        with memory.open(crs=CRS.from_epsg(32611), **profile) as dataset:
            dataset.write(np.zeros((1, 1, 1), np.uint8))
        with memory.open() as dataset:
            _facts(dataset)
            dataset.read(1)


def _check_whole(driver: str, content: bytes, nbytes: int) -> None:
    """Refuse a truncated file of two drivers that would read the missing part as zeros.

    nbytes: of all values, which ISIS3 stores without compression; the header of PCIDSK states how
    many blocks of 512 bytes the file has.
    """
    expected = 0
    if driver == "PCIDSK":
        expected = 512 * int(content[16:32])
    elif driver == "ISIS3" and (start := re.search(rb"StartByte\s*=\s*(\d+)", content)):
        expected = int(start[1]) - 1 + nbytes
    if len(content) < expected:
        raise ValueError(f"it has {len(content)} bytes of {expected}")


def _check_room(nbytes: int, room: int) -> None:
    """Refuse values that do not fit on the disk: a small file may decode to any size."""
    if nbytes > room:
        raise ValueError(f"{nbytes / 1e9:.3g} GB of values, {room / 1e9:.3g} GB free on the disk")


def _facts(dataset: Any) -> dict[str, Any]:
    """Return the metadata of a raster for JSON; ValueError if its bands are no cube."""
    if not 0 < dataset.count <= MOST_BANDS:
        raise ValueError(f"{dataset.count} bands, expected 1 to {MOST_BANDS}")
    if len(set(dataset.dtypes)) != 1:
        raise ValueError(f"bands of different types ({', '.join(sorted(set(dataset.dtypes)))})")
    waves = [dataset.tags(band).get("wavelength") for band in dataset.indexes]
    transform = None if dataset.transform.is_identity else list(dataset.transform)[:6]
    return {
        "shape": [dataset.count, dataset.height, dataset.width],
        "dtype": dataset.dtypes[0],
        "nodata": None if dataset.nodata is None else repr(dataset.nodata),
        "crs": dataset.crs.to_wkt() if dataset.crs else None,
        "transform": transform,
        "names": list(dataset.descriptions),
        "wavelengths": waves if all(waves) else None,
    }


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except Exception as error:
        print(str(error).splitlines()[0] if str(error) else type(error).__name__, file=sys.stderr)
        sys.exit(3)
