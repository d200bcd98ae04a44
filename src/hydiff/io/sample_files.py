"""Files of samples of a fill: OUT.samples.zarr or .nc with an axis `sample`, or numbered files.

filled.tif has filled.sample-01.tif, filled.sample-02.tif ...; each is a whole cube in the format of
the fill, with the measured entries of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Cube
from hydiff.errors import ShapeMismatch
from hydiff.io import sample_netcdf, zarr
from hydiff.io.regular import exists
from hydiff.io.staging import read_with

# function from the path of the fill to that of a file -> function that writes the file
Writers = dict[Callable[[Path], Path], Callable[[Path], Any]]


NETCDF, ENVI = ".nc", ".img"


def store_path(path: Path) -> Path:
    """Return the path of all samples of a fill in one Zarr store or netCDF file."""
    kind = NETCDF if path.suffix.lower() == NETCDF else ".zarr"
    return path.with_name(f"{path.name}.samples{kind}")


def numbered_path(path: Path, number: int, count: int) -> Path:
    """Return the path of sample `number`, counted from 1, of `count` samples."""
    digits = len(str(count))
    return path.with_name(f"{path.stem}.sample-{number:0{max(digits, 2)}}{_suffix(path)}")


def _suffix(path: Path) -> str:
    """Return the suffix of the samples of a fill; ENVI's for a fill without one."""
    return path.suffix or ENVI


def existing(path: Path) -> list[Path]:
    """Return the files of samples beside a fill, and the files that are read together with them."""
    stores = [store_path(path)] if exists(store_path(path)) else []
    names = sorted(path.parent.glob(f"{escape(path.stem)}.sample-[0-9]*{_suffix(path)}"))
    return [*stores, *(file for name in names for file in read_with(name))]


def stored(path: Path, shape: tuple[int, int, int]) -> Iterator[Array]:
    """Yield the samples beside a fill of this shape, (bands, rows, cols) in its unit."""
    for file in existing(path):
        if file == store_path(path):
            module = sample_netcdf if file.suffix == NETCDF else zarr
            cubes = module.read_samples(file)
        elif file.suffix == _suffix(path):  # not the header beside the values
            cubes = iter([np.asarray(io.read(file).values)])
        else:
            continue
        for values in cubes:
            if values.shape != shape:
                raise ShapeMismatch(
                    f"{file} has a sample of shape {values.shape}, but the fill is {shape}; "
                    "expected the samples of this fill: remove it, or fill again"
                )
            yield values


def writers(cube: Cube, path: Path, samples: Iterator[Cube], count: int) -> Writers:
    """Return the writers of the samples of a cube at `path`, to be called in this order."""
    if io.format_for(cube, path) == "zarr":
        return {store_path: partial(zarr.write_samples, samples, count)}
    if path.suffix.lower() == NETCDF:
        return {store_path: partial(sample_netcdf.write_samples, samples, count)}

    def write_next(place: Path) -> None:
        """Write the next sample, whatever its file is called."""
        io.write_into(next(samples), place)

    names = (partial(numbered_path, number=i, count=count) for i in range(1, count + 1))
    return dict.fromkeys(names, write_next)
