"""Zarr stores as xarray writes them: a group with the cube and its coordinates.

Read: versions 2 and 3.  Written: version 3 without shards (GDAL below 3.13 cannot read them).
Missing floats are NaN, the fill value; integers keep their nodata value as `_FillValue`.
"""

from __future__ import annotations

import asyncio
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hydiff.cube import WAVELENGTHS, Array, Cube, Lazy, representable
from hydiff.io import axes as ax
from hydiff.io import cf, marks, variables
from hydiff.io.blocks import chunk_blocks, differs
from hydiff.io.headers import SCALING, carried, number, scaling
from hydiff.io.parsing import INTEGERS, check_chunk, check_dtype, check_real, native, parsing
from hydiff.io.regular import check_tree
from hydiff.io.sidecar import plain
from hydiff.mark import FILLED, RECORD, Mark, parsed

SUFFIXES = (".zarr",)
keeps_mark = marks.always
METADATA = ("zarr.json", ".zgroup", ".zarray")
DTYPES = (*INTEGERS, "float16", "float32", "float64", "bool")
DIMS = ("band", "y", "x")
SIDE = 64  # rows and cols of a chunk, which holds all bands: it suits spectra as well as tiles

Block = tuple[slice, slice, slice]  # bands, rows, cols


def matches(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in METADATA)


def read(path: Path, var: str | None = None) -> Cube:
    check_tree(path)
    with parsing(path, "a Zarr store"):
        arrays = _arrays(path)
        cubes = marks.without_layers({k: a.attrs for k, a in arrays.items()}, var)
        shapes = {k: a.shape for k, a in arrays.items() if a.dtype.kind in "biuf" and k in cubes}
        name = variables.choose(shapes, var, path)
        array = arrays[name]
        axes = cf.axes_of(array, path)
        check_real(array.dtype, path)
        check_chunk(array.chunks, array.dtype, path)
        bands = ax.cube_shape(array.shape, axes)[0]
        dims = cf.dims_of(array)
        band_dim = dims[axes.index("bands")] if dims and "bands" in axes else None
        band_arrays = {
            key: other
            for key, other in arrays.items()
            if band_dim and cf.dims_of(other) == (band_dim,) and other.shape == (bands,)
            if other.dtype.kind in "biuf"  # arrays of objects have decoders of their own
        }
        attrs = marks.unlinked(dict(array.attrs))
        wavelengths = _first(band_arrays, WAVELENGTHS)
        crs, transform = cf.place_of(arrays, array, axes)
        good = _first(band_arrays, ("good", "good_wavelengths", "bbl"))
        names = attrs.pop("band_names", None)
        handled = ("coordinates", "grid_mapping", *cf.NODATA, "_ARRAY_DIMENSIONS")
        return Cube(
            values=Lazy(
                ax.cube_shape(array.shape, axes),
                array.dtype,
                partial(_window, path, name, axes),
                ax.cube_shape(array.chunks, axes),
            ),
            wavelengths=_floats(wavelengths),
            wavelength_units=None
            if wavelengths is None
            else attrs.pop("wavelength_units", wavelengths.attrs.get("units")),
            fwhm=_floats(_first(band_arrays, ("fwhm",))),
            good=None if good is None else np.asarray(good[...]) != 0,
            nodata=cf.nodata_of(array),
            crs=crs,
            transform=transform,
            band_names=None if names is None else tuple(str(name) for name in names),
            mark=_marked(path, arrays, name, axes),
            attrs={
                **_scalars(arrays, attrs, cf.dropped(array, axes)),
                **cf.scaling_of(array, bands),
                **{k: v for k, v in attrs.items() if k not in handled and v is not None},
                "array": {"var": name, "axes": ",".join(axes)},
            },
        )


def write(cube: Cube, path: Path) -> list[Path]:
    """Write a store of version 3, in chunks of all bands by 64 by 64, with its coordinates."""
    array = _created(cube, path)
    for block, values in _blocks(cube, array.chunks):
        _put(array, block, values)
    _write_mark(path, array, cube, ax.CUBE)
    return [path]


def write_samples(cubes: Iterable[Cube], count: int, path: Path) -> list[Path]:
    """Write cubes that differ only in values, one at a time, to one array (sample, band, y, x)."""
    import zarr

    array: Any = None
    for i, cube in enumerate(cubes):
        if array is None:
            array = _created(cube, path, (count,))
            if cube.mark is not None:
                for attributes in (array.attrs, zarr.open_group(path, mode="r+").attrs):
                    marks.stamp(attributes, cube.mark)
        for block, values in _blocks(cube, array.chunks[1:]):
            _put(array, (i, *block), values)
    return [path]


def read_samples(path: Path) -> Iterator[Array]:
    """Yield the cubes (bands, rows, cols) of a store made by `write_samples`, one at a time."""
    check_tree(path)
    with parsing(path, "samples in a Zarr store", "fill again"):
        arrays = _arrays(path).values()
        array = next(a for a in arrays if len(a.shape) == 4 and cf.dims_of(a) == ("sample", *DIMS))
        check_real(array.dtype, path)
        check_chunk(array.chunks, array.dtype, path)
    for i in range(array.shape[0]):
        with parsing(path, "samples in a Zarr store", "fill again"):
            values = np.asarray(array[i])
        yield values


def _created(cube: Cube, path: Path, lead: tuple[int, ...] = ()) -> Any:
    """Create a store with the coordinates of a cube and return an empty array in it for its values.

    lead: lengths of additional axes in front of the array, (count,) for samples.
    """
    import zarr

    check_dtype(cube.dtype, DTYPES, "Zarr")
    floats = cube.dtype.kind == "f"
    group = zarr.create_group(path, zarr_format=3)
    coordinates = variables.coordinates(cube)
    attrs: dict[str, Any] = cf.without_codes(carried(cube.attrs), cube.attrs)
    attrs["coordinates"] = " ".join(coordinates)
    if (scale := scaling(cube.attrs, cube.bands)) is not None:
        attrs |= zip(SCALING, ([number(x) for x in values] for values in scale), strict=True)
    if cube.crs is not None:
        attrs["grid_mapping"] = variables.MAPPING
    if cube.nodata is not None and not floats:
        fits = representable(cube.nodata, cube.dtype)  # xarray cannot decode other numbers
        attrs |= {"_FillValue": int(cube.nodata)} if fits else {"nodata": cube.nodata}
    if cube.band_names is not None:  # Zarr has no stable type for arrays of text
        attrs["band_names"] = list(cube.band_names)
    for name, (dims, data, attributes) in coordinates.items():
        variable = group.create_array(
            name, shape=data.shape, dtype=data.dtype, dimension_names=dims, attributes=attributes
        )
        _put(variable, ..., data)
    chunks = (cube.bands, min(SIDE, cube.shape[1]), min(SIDE, cube.shape[2]))
    return group.create_array(
        variables.name_of(cube).rpartition("/")[2],
        shape=(*lead, *cube.shape),
        dtype=native(cube.dtype),
        chunks=(*(1 for _ in lead), *chunks),
        fill_value=np.nan if floats else native(cube.dtype).type(0),
        dimension_names=("sample", *DIMS)[-len(lead) - 3 :],
        attributes=plain(attrs),
    )


def _blocks(cube: Cube, chunks: tuple[int, int, int]) -> Iterator[tuple[Block, Array]]:
    """Yield the blocks of a cube with their values as they are stored: missing floats as NaN."""
    for block in chunk_blocks(cube.shape, cube.dtype.itemsize, chunks):
        new = np.asarray(cube.values[block])
        if cube.dtype.kind == "f":
            observed = cube.observed_in(new, None, block[1], block[2], block[0])
            new = np.where(observed, new, np.nan).astype(new.dtype)
        yield block, new


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the store and replace the changed entries of the cube."""
    box = cube.attrs["array"]
    axes = tuple(box["axes"].split(","))
    _copy(source, path)
    array = _arrays(path, "r+")[box["var"]]
    chunks = ax.cube_shape(array.chunks, axes)
    for block in chunk_blocks(cube.shape, cube.dtype.itemsize, chunks):
        new, inside = np.asarray(cube.values[block]), ax.stored_block(axes, block)
        if differs(ax.as_cube(np.asarray(array[inside]), axes), new).any():
            _put(array, inside, ax.as_stored(new, axes))
    if cf.nodata_of(array) is None and cube.nodata is not None:
        array.attrs["missing_value"] = cube.dtype.type(cube.nodata).item()  # which xarray decodes
    _write_mark(path, array, cube, axes)
    return [path]


def _copy(source: Path, path: Path) -> None:
    """Copy a store file by file; the first error ends the copy."""
    path.mkdir()
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, path / entry.name)
        else:
            shutil.copyfile(entry, path / entry.name)


def _put(array: Any, where: Any, values: Array) -> None:
    """Write a part of an array.  Zarr writes chunks concurrently, and if one fails the others go
    on; wait for them, so that none creates a file after the output has been removed."""
    try:
        array[where] = values
    except BaseException:
        from zarr.core.sync import sync

        sync(_others_done())
        raise


async def _others_done() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


# --- reading --------------------------------------------------------------------------------------


def _arrays(path: Path, mode: Literal["r", "r+"] = "r") -> dict[str, Any]:
    """Return the arrays of a group by name; a store that is a single array has the name ""."""
    import zarr

    from hydiff.io import blosc

    blosc.guard()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about other members of the store, which are left alone
        store = zarr.open(path, mode=mode)
        return {"": store} if isinstance(store, zarr.Array) else dict(store.arrays())


def _window(path: Path, name: str, axes: ax.Axes, *block: slice) -> Array:
    bands, rows, cols = block
    inside = ax.stored_block(axes, (bands, rows, cols))
    with parsing(path, "a complete Zarr store"):
        return ax.as_cube(np.asarray(_arrays(path)[name][inside]), axes)


def _first(arrays: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)


def _floats(array: Any) -> Any:
    return None if array is None else np.asarray(array[...], np.float64)


def _scalars(
    arrays: Mapping[str, Any], attrs: Mapping[str, Any], dropped: set[str]
) -> dict[str, str]:
    """Return the scalar coordinates of a store, such as its time, as texts.

    Those along the dimensions that were dropped have one value, too.
    """
    found = {
        name: variables.text_of(np.asarray(array[...]).reshape(()), array.attrs)
        for name, array in arrays.items()
        if array.shape == () or (array.shape == (1,) and dropped & set(cf.dims_of(array)))
        if name != attrs.get("grid_mapping", variables.MAPPING)
    }
    return {name: text for name, text in found.items() if text is not None}


def _marked(path: Path, arrays: Mapping[str, Any], name: str, axes: ax.Axes) -> Mark | None:
    """Return the mark of an array, with the layers in its store; None if it has no mark."""
    array = arrays[name]
    if (text := array.attrs.get(FILLED)) is None:
        return None
    shape = ax.cube_shape(array.shape, axes)
    mark = parsed(text, array.attrs.get(RECORD), bands=shape[0])
    layers = {}
    for layer, suffix in (("flags", marks.FLAG), *marks.SUFFIX.items()):
        stored = arrays.get(name + suffix)
        if stored is None or stored.shape != array.shape or stored.dtype != marks.TYPES[layer]:
            continue
        check_chunk(stored.chunks, stored.dtype, path)
        read = partial(_window, path, name + suffix, axes)
        layers[layer] = Lazy(shape, stored.dtype, read, ax.cube_shape(stored.chunks, axes))
    return marks.with_layers(mark, layers)


# --- writing --------------------------------------------------------------------------------------


def _write_mark(path: Path, array: Any, cube: Cube, axes: ax.Axes) -> None:
    """Write the mark as attributes of the store and of the array, and each layer as an array."""
    import zarr

    mark = cube.mark
    if mark is None:
        return
    marks.stamp(array.attrs, mark)
    if not array.basename:  # a store that is a single array cannot hold another one
        return
    root = zarr.open_group(path, mode="r+")
    consolidated = root.metadata.consolidated_metadata is not None
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    marks.stamp(group.attrs, mark)
    layers = marks.layers_of(mark)
    if layers:
        _unlink(group, array)
    for name, layer in layers.items():
        layer_array = _layer(group, array, name)
        for block in chunk_blocks(cube.shape, 4, ax.cube_shape(layer_array.chunks, axes)):
            new = marks.block_of(name, layer, block)
            if layer_array.metadata.fill_value is None or not marks.is_empty(new):
                _put(layer_array, ax.stored_block(axes, block), ax.as_stored(new, axes))
    if consolidated:  # readers take this list for complete, and it lacks the new arrays
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # version 3 has no such list officially
            zarr.consolidate_metadata(path, zarr_format=group.metadata.zarr_format)


def _unlink(group: Any, array: Any) -> None:
    """Remove the layers of an earlier fill, and the links to them."""
    for name in (array.basename + end for end in marks.ENDS):
        if name in group:
            del group[name]
    if "ancillary_variables" in array.attrs:
        others = marks.unlinked(dict(array.attrs)).get("ancillary_variables", "")
        array.attrs["ancillary_variables"] = others


def _layer(group: Any, array: Any, name: str) -> Any:
    """Create an empty array for a layer, with the axes and chunks of the cube, and link to it."""
    label, dtype, version = array.basename + marks.SUFFIX[name], marks.TYPES[name], _version(array)
    attributes, dims = plain(marks.about(name, array.attrs)), list(cf.dims_of(array)) or None
    attributes |= {"_ARRAY_DIMENSIONS": dims} if version == 2 and dims else {}
    array.attrs["ancillary_variables"] = marks.linked(
        array.attrs.get("ancillary_variables", ""), label
    )
    return group.create_array(
        label,
        shape=array.shape,
        dtype=dtype.name,
        chunks=array.chunks,
        # None: xarray takes the fill value of version 2 for nodata, and turns bytes into floats
        fill_value=np.nan if dtype.kind == "f" else 0 if version == 3 else None,
        dimension_names=dims if version == 3 else None,
        attributes=attributes,
        overwrite=True,
    )


def _version(array: Any) -> int:
    """Return the version of the Zarr format that the array is stored in."""
    return int(array.metadata.zarr_format)
