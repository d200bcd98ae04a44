"""Turn exceptions of libraries into one line that says which file is wrong and what to do."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Cube
from hydiff.errors import BadValue, CubeFormatError, HydiffError, cannot_import, is_no_memory

ASSUMED_MEMORY = 8e9  # bytes, on systems that do not say what they have
LARGEST_CHUNK = 512 << 20  # bytes
LONGEST = 1 << 40  # entries along one axis of a cube, at most
MOST_BANDS = 1_000_000  # sensors have hundreds
INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))


@contextmanager
def parsing(
    path: Path, what: str, advice: str = "check that the file is complete"
) -> Iterator[None]:
    """Turn any exception that a format library raises inside the block into a CubeFormatError, or
    into a BadValue if memory ran out."""
    try:
        yield
    except HydiffError:
        raise
    except Exception as error:  # the libraries raise anything from KeyError to zlib.error
        if is_no_memory(error):
            raise BadValue(
                f"{path}: not enough memory for what it says it holds ({first_line(error)}); if "
                "that is true, free some memory or cut the file into parts"
            ) from error
        if (lacking := cannot_import(error)) is not None:  # which says nothing of the file
            raise lacking from error
        raise CubeFormatError(
            f"{path}: expected {what}, but it cannot be read as one ({first_line(error)}); {advice}"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or of its cause's if rasterio refers to that."""
    if "previous exception" in str(error) and error.__cause__ is not None:
        return first_line(error.__cause__)
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .,;") if lines else type(error).__name__


def damaged(path: Path, what: str) -> CubeFormatError:
    """Return the error for a file that is damaged or incomplete."""
    return CubeFormatError(f"{path}: {what}; the file is damaged or incomplete, fetch it again")


def check_count(count: int, bands: int, what: str, path: Path) -> None:
    """Refuse a list that does not have one entry for each band."""
    if count != bands:
        raise CubeFormatError(
            f"{path}: {count} entries {what} for {bands} bands; correct the list, or fetch it again"
        )


def machine_memory() -> float:
    """Return the bytes of memory of this machine; `ASSUMED_MEMORY` where the system cannot tell."""
    if not hasattr(os, "sysconf"):  # as on Windows
        return ASSUMED_MEMORY
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_room(nbytes: int, path: Path, what: str) -> None:
    """Refuse data that must be in memory as a whole but exceed the memory of this machine."""
    memory = machine_memory()
    if nbytes > memory:
        raise BadValue(
            f"{path}: {what} says it holds {nbytes / 1e9:.3g} GB, but this machine has "
            f"{memory / 1e9:.3g} GB of memory; if that is true, convert it to .bsq, .tif or .zarr"
        )


def check_chunk(shape: Sequence[int], dtype: np.dtype[Any], path: Path) -> None:
    """Refuse chunks that are too large: reading one pixel unpacks a whole chunk."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > LARGEST_CHUNK:
        raise CubeFormatError(
            f"{path}: stored in chunks of {nbytes / 1e9:.3g} GB, expected at most "
            f"{LARGEST_CHUNK / 1e9:.2g} GB; store it in smaller chunks"
        )


def check_real(dtype: np.dtype[Any], path: Path) -> None:
    """Refuse values that are neither real numbers nor booleans."""
    if dtype.kind not in "biuf":
        raise CubeFormatError(
            f"{path}: holds values of type {dtype}, but a cube holds real numbers; "
            "convert it to float32 or an integer type"
        )


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in this machine's byte order."""
    return dtype.newbyteorder("=")


def check_dtype(dtype: np.dtype[Any], allowed: tuple[str, ...], format_name: str) -> None:
    """Refuse a dtype that the format to be written cannot hold."""
    if native(dtype).name not in allowed:
        raise CubeFormatError(
            f"{format_name} cannot hold {dtype.name} values, only {', '.join(allowed)}; "
            "convert the values first, or write .npy, which holds any of them"
        )


def check_cube(cube: Cube, path: Path) -> None:
    """Refuse a shape or metadata that no cube can have, whatever the format's library accepts."""
    if not all(isinstance(n, int | np.integer) and n < LONGEST for n in cube.shape):
        raise CubeFormatError(
            f"{path}: (bands, rows, cols) = {cube.shape}, expected whole numbers below {LONGEST}; "
            "the file is damaged, fetch or write it again"
        )
    if 0 in cube.shape:
        raise CubeFormatError(
            f"{path}: holds no values: (bands, rows, cols) = {cube.shape}; fetch or write it again"
        )
    if cube.bands > MOST_BANDS:
        raise CubeFormatError(
            f"{path}: {cube.bands} bands, expected at most {MOST_BANDS}; the file is damaged, or "
            'its axes are in another order: put "axes": "bands,rows,cols" into its sidecar'
        )
    for name in ("wavelength_units", "crs"):
        if not isinstance(value := getattr(cube, name), str | None):
            raise CubeFormatError(
                f"{path}: {name} is {value!r}, expected text; correct or remove it"
            )
    if cube.transform is not None and len(cube.transform) != 6:
        raise CubeFormatError(
            f"{path}: transform has {len(cube.transform)} numbers, expected 6; correct or remove it"
        )
