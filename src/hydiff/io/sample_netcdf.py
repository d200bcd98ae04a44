"""Samples of a cube in one netCDF4 file: a variable (sample, band, y, x)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.io import hdf5, marks, variables
from hydiff.io.blocks import chunk_blocks
from hydiff.io.parsing import check_real, parsing

DIMS = ("sample", "band", "y", "x")
SIDE = 64  # px of a chunk, which has all bands of one sample


def write_samples(cubes: Iterable[Cube], count: int, path: Path) -> list[Path]:
    """Write `count` cubes that differ only in their values; one at a time is in memory."""
    import h5py

    with h5py.File(path, "w", track_order=True) as file:
        variable: Any = None
        for i, cube in enumerate(cubes):
            if variable is None:
                hdf5.reserve(path, count * cube.dtype.itemsize * int(np.prod(cube.shape)))
                variable = _created(file, cube, count)
            for block in chunk_blocks(cube.shape, cube.dtype.itemsize, variable.chunks[1:]):
                variable[(i, *block)] = np.asarray(cube.values[block])
    return [path]


def read_samples(path: Path) -> Iterator[Array]:
    """Yield the cubes (bands, rows, cols) of a file made by `write_samples`, one at a time."""
    with parsing(path, "samples in a netCDF file", "fill again"), hdf5.open_file(path) as file:
        name = next(n for n, item in file.items() if len(getattr(item, "shape", ())) == len(DIMS))
        check_real(file[name].dtype, path)
        count = file[name].shape[0]
    for i in range(count):
        with parsing(path, "samples in a netCDF file", "fill again"), hdf5.open_file(path) as file:
            values = np.asarray(file[name][i])
        yield values


def _created(file: Any, cube: Cube, count: int) -> Any:
    """Create the variable of the samples, with dimensions, wavelengths and the mark of the fill."""
    bands, rows, cols = cube.shape
    variable = file.create_dataset(
        variables.name_of(cube).rpartition("/")[2],
        (count, *cube.shape),
        cube.dtype,
        chunks=(1, bands, min(SIDE, rows), min(SIDE, cols)),
        compression="gzip",
        shuffle=True,
        fillvalue=cube.nodata,
    )
    for axis, (name, length) in enumerate(zip(DIMS, variable.shape, strict=True)):
        scale = file.create_dataset(name, data=np.arange(length, dtype=np.int32))
        scale.make_scale(name)
        variable.dims[axis].attach_scale(scale)
    if cube.nodata is not None:
        variable.attrs["_FillValue"] = cube.dtype.type(cube.nodata)
    if cube.wavelengths is not None:
        wavelengths = file.create_dataset(
            "wavelengths", data=np.asarray(cube.wavelengths, np.float64)
        )
        wavelengths.attrs["units"] = cube.wavelength_units or ""
        wavelengths.dims[0].attach_scale(file["band"])
        variable.attrs["coordinates"] = "wavelengths"
    if cube.mark is not None:
        for attributes in (file.attrs, variable.attrs):
            marks.stamp(attributes, cube.mark)
    return variable
