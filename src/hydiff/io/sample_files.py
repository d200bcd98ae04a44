"""Samples of a fill beside it: OUT.samples.zarr or .nc with an axis `sample`, or numbered files.

filled.tif has filled.sample-01.tif, filled.sample-02.tif ...; each is a whole cube in the format of
the fill, whose measured entries are those of the input.
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

Writers = dict[Callable[[Path], Path], Callable[[Path], Any]]  # a file's name → its writer


NETCDF = ".nc"


def store_path(path: Path) -> Path:
    """Where the samples of a Zarr store or a netCDF file are."""
    kind = NETCDF if path.suffix.lower() == NETCDF else ".zarr"
    return path.with_name(f"{path.name}.samples{kind}")


def numbered_path(path: Path, number: int, count: int) -> Path:
    """That of a sample of so many, counted from 1."""
    digits = len(str(count))
    return path.with_name(f"{path.stem}.sample-{number:0{max(digits, 2)}}{path.suffix}")


def existing(path: Path) -> list[Path]:
    """The files of samples that lie beside a fill, with what is read together with them."""
    stores = [store_path(path)] if exists(store_path(path)) else []
    names = sorted(path.parent.glob(f"{escape(path.stem)}.sample-[0-9]*{escape(path.suffix)}"))
    return [*stores, *(each for name in names for each in read_with(name))]


def stored(path: Path, shape: tuple[int, int, int]) -> Iterator[Array]:
    """The samples beside a fill of this shape, (bands, rows, cols) in its unit, one at a time."""
    for file in existing(path):
        if file == store_path(path):
            own = sample_netcdf if file.suffix == NETCDF else zarr
            cubes = own.read_samples(file)
        elif file.suffix == path.suffix:  # not the header beside the values
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
    """What writes samples of a cube that is written to `path`; in the order in which they come."""
    if io.format_for(cube, path) == "zarr":
        return {store_path: partial(zarr.write_samples, samples, count)}
    if path.suffix.lower() == NETCDF:
        return {store_path: partial(sample_netcdf.write_samples, samples, count)}

    def write_next(place: Path) -> None:
        io.write_into(next(samples), place)

    names = (partial(numbered_path, number=i, count=count) for i in range(1, count + 1))
    return dict.fromkeys(names, write_next)
