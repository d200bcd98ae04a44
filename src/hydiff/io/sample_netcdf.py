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
TEXTS = ("units", "long_name", "standard_name")
PLACES = {"lat": "degrees_north", "lon": "degrees_east"}
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
    """Create the variable of the samples, with coordinates, texts and the mark of the fill."""
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
    texts, places = _of_source(cube)
    coordinates = variables.coordinates(cube) | places
    for axis, (name, length) in enumerate(zip(DIMS, variable.shape, strict=True)):
        _, values, _ = coordinates.pop(name, ((), np.arange(length, dtype=np.int32), {}))
        scale = file.create_dataset(name, data=values)
        scale.make_scale(name)
        variable.dims[axis].attach_scale(scale)
    for name, (dims, values, attributes) in coordinates.items():
        dataset = file.create_dataset(name, data=values)
        dataset.attrs.update(attributes)
        for axis, dim in enumerate(dims):
            dataset.dims[axis].attach_scale(file[dim])
    variable.attrs.update(texts)
    variable.attrs["coordinates"] = " ".join(coordinates)
    if variables.MAPPING in coordinates:
        variable.attrs["grid_mapping"] = variables.MAPPING
    if cube.nodata is not None:
        variable.attrs["_FillValue"] = cube.dtype.type(cube.nodata)
    if cube.mark is not None:
        for attributes in (file.attrs, variable.attrs):
            marks.stamp(attributes, cube.mark)
    return variable


def _of_source(cube: Cube) -> tuple[dict[str, Any], dict[str, variables.Coordinate]]:
    """Return what only the source of a cube has: texts about its variable, such as the unit, and
    the latitudes and longitudes of all pixels."""
    if cube.path is None or hdf5.members(cube.path) is None:
        return {}, {}
    with parsing(cube.path, "an HDF5 file"), hdf5.open_file(cube.path) as file:
        attrs = file[variables.name_of(cube)].attrs
        texts = {key: hdf5.plain(attrs[key]) for key in TEXTS if key in attrs}
        places: dict[str, variables.Coordinate] = {}
        for key, unit in PLACES.items():
            place = file.get(f"location/{key}")
            if place is not None and place.shape == cube.shape[1:]:
                places[key] = (("y", "x"), place[...], {"units": unit})
    return texts, places
