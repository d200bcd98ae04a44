"""MATLAB files: version 5 through scipy, version 7.3 (HDF5) through h5py.

Axes are in MATLAB's order; HDF5 stores them in reverse.  Files written from scratch hold `cube`,
`wavelength`, `fwhm`, and all other metadata as JSON text in `metadata`.
"""

from __future__ import annotations

import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Array, Cube
from hydiff.errors import CubeFormatError
from hydiff.io import axes as ax
from hydiff.io import hdf5, matfile, sidecar, variables
from hydiff.io.blocks import Block, blocks, differs
from hydiff.io.marks import always
from hydiff.io.parsing import INTEGERS, check_chunk, check_dtype, check_real, native, parsing
from hydiff.mark import FILLED

SUFFIXES = (".mat",)
keeps_mark = always
V5_TITLE = 116  # bytes of text at the start of a version 5 file
V5_LIMIT = 2**31 - 1  # bytes that one variable of a version 5 file can hold
USERBLOCK = 512  # bytes before the HDF5 part, for MATLAB's own header

# MATLAB class -> numpy dtype, as loadmat(mat_dtype=True) gives it
CLASSES = {"double": "float64", "single": "float32", "logical": "bool"}
CLASSES |= {name: name for name in INTEGERS}
NAMES = {dtype: name for name, dtype in CLASSES.items()}


def matches(path: Path) -> bool:
    """Return whether a file has MATLAB's title, or is an HDF5 file with the suffix .mat."""
    with path.open("rb") as file:
        titled = file.read(6) == b"MATLAB"
    return titled or (path.suffix.lower() == ".mat" and _is_hdf5(path))


def read(path: Path, var: str | None = None, axis: str | None = None) -> Cube:
    """Open a file: version 5 is loaded when first indexed, version 7.3 is read window by window."""
    with parsing(path, "a MATLAB file"):
        return _read_hdf5(path, var, axis) if _is_hdf5(path) else _read_v5(path, var, axis)


def write(cube: Cube, path: Path) -> list[Path]:
    """Write a file, with the source's order of axes or (rows, cols, bands).

    It is of version 5, or of version 7.3 if the cube is larger than V5_LIMIT.
    """
    check_dtype(cube.dtype, tuple(NAMES), "MATLAB")
    axes = ax.order_for(cube.attrs, cube.bands)
    if cube.nbytes > V5_LIMIT:
        _write_hdf5(cube, path, axes)
    else:
        from scipy.io import savemat

        stored = ax.as_stored(np.asarray(cube.values, native(cube.dtype)), axes)
        arrays = {variables.name_of(cube): stored, **_metadata(cube, axes)}
        savemat(path, arrays, appendmat=False, do_compression=True, oned_as="row")
        _retitle_v5(path, b"MATLAB 5.0 MAT-file, written by hydiff")
    return [path]


def rewrite(source: Path, path: Path, cube: Cube) -> list[Path]:
    """Copy the file and replace the values of the cube.

    Every other variable stays, and so do the version and, in 7.3, chunks and attributes.
    """
    _rewrite_hdf5(source, path, cube) if _is_hdf5(source) else _rewrite_v5(source, path, cube)
    side, new_side = sidecar.sidecar_of(source), sidecar.sidecar_of(path)
    if side.is_file():
        shutil.copyfile(side, new_side)
    if cube.nodata is not None and read(source, cube.attrs["array"]["var"]).nodata is None:
        sidecar.declare(path, cube.nodata)
    return [path, *([new_side] if new_side.is_file() else [])]


def _is_hdf5(path: Path) -> bool:
    """Return whether a file has HDF5's signature at its start or after MATLAB's header."""
    with path.open("rb") as file:
        start = file.read(USERBLOCK + len(hdf5.SIGNATURE))
    return start.startswith(hdf5.SIGNATURE) or start.endswith(hdf5.SIGNATURE)


def _metadata(cube: Cube, axes: ax.Axes) -> dict[str, Any]:
    """Return the variables of metadata: wavelength and fwhm as arrays, the rest as JSON text."""
    entries = sidecar.as_json(cube, axes)
    arrays: dict[str, Any] = {}
    for name, key in (("wavelength", "wavelengths"), ("fwhm", "fwhm")):
        entries.pop(key)
        if (array := getattr(cube, key)) is not None:
            arrays[name] = np.asarray(array, np.float64)
    return {**arrays, "metadata": sidecar.dumps(entries), **_note(cube)}


def _note(cube: Cube) -> dict[str, str]:
    """Return the variable with the mark of a filled cube, by name; {} without a mark."""
    return {} if cube.mark is None else {FILLED: cube.mark.json}


def _entries(inside: str | None, path: Path) -> dict[str, Any]:
    """Return the metadata of the sidecar, updated by the text `inside` the file, which is never
    out of date."""
    embedded = {} if inside is None or not inside.startswith("{") else sidecar.parse(inside, path)
    return {**sidecar.load(path), **{k: v for k, v in embedded.items() if v is not None}}


# --- version 5 ------------------------------------------------------------------------------------


def _read_v5(path: Path, var: str | None, axis: str | None = None) -> Cube:
    """Open a version 5 file; an array is loaded when it is first indexed."""
    from scipy.io import whosmat

    listed = whosmat(path, appendmat=False)
    kinds = {name: kind for name, _, kind in listed}
    shapes = {name: tuple(shape) for name, shape, kind in listed if kind in CLASSES}
    name = variables.choose(shapes, var, path)

    @cache
    def load(name: str) -> Array:
        with parsing(path, "a complete MATLAB file"):
            stored: Array = _load_v5(path, [name])[name]
            if stored.shape != shapes[name]:  # there are two variables of this name
                raise CubeFormatError(f"{path}: holds more than one {name}; save it again")
            return stored

    def text_of(name: str) -> str | None:
        """Return a char variable as text; None for other variables."""
        text = kinds.get(name) == "char"
        return "".join(_load_v5(path, [name])[name].ravel()) if text else None

    metadata = np.dtype(CLASSES[kinds[name]]), _entries(text_of("metadata"), path), text_of(FILLED)
    return sidecar.array_cube(path, name, shapes, *metadata, axis, load)


def _load_v5(path: Path, names: list[str] | None = None) -> dict[str, Any]:
    """Return variables by name; mat_dtype, because MATLAB may store whole doubles as bytes."""
    from scipy.io import loadmat

    matfile.check(path)
    with warnings.catch_warnings():  # mat_dtype drops imaginary parts with only a warning
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        try:
            arrays = loadmat(path, appendmat=False, mat_dtype=True, variable_names=names)
        except np.exceptions.ComplexWarning:
            check_real(np.dtype(np.complex128), path)
    return {name: value for name, value in arrays.items() if not name.startswith("__")}


def _load_all_v5(path: Path) -> dict[str, Any]:
    """Return every variable in its own class; complex ones as they are stored."""
    from scipy.io import loadmat

    matfile.check(path)
    arrays = loadmat(path, appendmat=False)
    real = [name for name, value in arrays.items() if not np.iscomplexobj(value)]
    return {k: v for k, v in arrays.items() if not k.startswith("__")} | _load_v5(path, real)


def _rewrite_v5(source: Path, path: Path, cube: Cube) -> None:
    """Write all variables of the source again, with the values and the mark of the cube."""
    from scipy.io import savemat

    box = cube.attrs["array"]
    with parsing(source, "a MATLAB file"):
        everything = _load_all_v5(source)
    stored = np.array(everything[box["var"]], order="F")
    ax.as_cube(stored, tuple(box["axes"].split(",")))[...] = np.asarray(cube.values)
    everything |= {box["var"]: stored, **_note(cube)}
    savemat(path, everything, appendmat=False, do_compression=True, long_field_names=True)
    with source.open("rb") as file:
        _retitle_v5(path, file.read(V5_TITLE))


def _retitle_v5(path: Path, title: bytes) -> None:
    """Replace the title, into which scipy writes the date: equal cubes then give equal files."""
    with path.open("r+b") as file:
        file.write(title.ljust(V5_TITLE))


# --- version 7.3 ----------------------------------------------------------------------------------


def _read_hdf5(path: Path, var: str | None, axis: str | None = None) -> Cube:
    """Open a version 7.3 file; windows of its cube are read from disk."""
    import h5py

    with hdf5.open_file(path) as file:
        arrays = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        shapes = {
            name: tuple(item.shape[::-1])
            for name, item in arrays.items()
            if item.dtype.kind in "biuf" and _class_of(item) != "char" and item.shape
        }
        name = variables.choose(shapes, var, path)
        text, mark = (_text(arrays.get(name)) for name in ("metadata", FILLED))
        logical = _class_of(arrays[name]) == "logical"
        dtype = np.dtype(bool) if logical else arrays[name].dtype
        check_chunk(arrays[name].chunks or (1,), arrays[name].dtype, path)

        def window(axes: ax.Axes, block: Block) -> Array:
            part = _part(name, axes, ax.cube_shape(shapes[name], axes)[0])
            return hdf5.window(path, [part], block).astype(dtype, copy=False)

        metadata = dtype, _entries(text, path), mark
        return sidecar.array_cube(
            path, name, shapes, *metadata, axis, lambda key: arrays[key][()], window
        )


def _part(name: str, axes: ax.Axes, bands: int) -> hdf5.DatasetPart:
    """Return a dataset as a part; the axes of HDF5 are those of MATLAB reversed."""
    return hdf5.DatasetPart(name, axes[::-1], bands)


def _class_of(dataset: Any) -> str:
    """Return the MATLAB class of a dataset; "" if it has none."""
    kind = dataset.attrs.get("MATLAB_class", b"")
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def _text(dataset: Any) -> str | None:
    """Return a char dataset as text; None for others and for None."""
    if dataset is None or _class_of(dataset) != "char":
        return None
    return "".join(map(chr, np.asarray(dataset[()]).ravel()))


def _rewrite_hdf5(source: Path, path: Path, cube: Cube) -> None:
    """Copy the source, and replace the changed blocks of the cube and the mark."""
    import h5py

    box = cube.attrs["array"]
    axes = tuple(box["axes"].split(","))
    shutil.copyfile(source, path)
    with h5py.File(path, "r+") as file:
        dataset, part = file[box["var"]], _part(box["var"], axes, cube.bands)
        hdf5.reserve(path, cube.nbytes if dataset.compression else 0)  # changed chunks may grow
        for block in blocks(cube.shape, cube.dtype.itemsize):
            new = np.asarray(cube.values[block])
            if differs(hdf5.read_block(file, [part], block), new).any():
                hdf5.put_block(file, part, block, new)
        for name, text in _note(cube).items():
            if name in file:
                del file[name]
            _put_text(file, name, text)


def _put_text(file: Any, name: str, text: str) -> None:
    """Write a text as a char dataset."""
    codes = np.array([[ord(c)] for c in text], np.uint16)
    _classify(file.create_dataset(name, data=codes), "char")


def _write_hdf5(cube: Cube, path: Path, axes: ax.Axes) -> None:
    """Write a version 7.3 file from scratch, in blocks."""
    import h5py

    dtype = native(cube.dtype)
    hdf5.reserve(path, cube.nbytes)
    with h5py.File(path, "w", userblock_size=USERBLOCK) as file:
        dataset = file.create_dataset(
            variables.name_of(cube),
            ax.stored_shape(cube.shape, axes)[::-1],
            np.uint8 if dtype.kind == "b" else dtype,
            chunks=True,
            compression="gzip",
            compression_opts=1,
        )
        _classify(dataset, NAMES[dtype.name])
        part = _part(dataset.name, axes, cube.bands)
        for block in blocks(cube.shape, dtype.itemsize):
            hdf5.put_block(file, part, block, np.asarray(cube.values[block]))
        for name, value in _metadata(cube, axes).items():
            if isinstance(value, str):
                _put_text(file, name, value)
            else:
                _classify(file.create_dataset(name, data=value[:, None]), "double")
    with path.open("r+b") as raw:
        title = b"MATLAB 7.3 MAT-file, written by hydiff, HDF5 schema 1.00 ."
        raw.write(title.ljust(116) + bytes(8) + b"\x00\x02IM")


def _classify(dataset: Any, kind: str) -> None:
    """Set the MATLAB class of a dataset."""
    dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    if kind in ("char", "logical"):
        dataset.attrs["MATLAB_int_decode"] = np.int32(dataset.dtype.itemsize)
