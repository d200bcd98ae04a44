"""Masks in files: the meaning of non-zero, the order of the axes, and the packed form.

A 3-D mask takes one bit per entry in an .npz: an array `observed` or `missing`, packed along the
bands with np.packbits, and `bands`, their number.  A 2-D mask is stored as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hydiff.cube import Array, Bools, Cube
from hydiff.errors import BadValue, CubeFormatError, ShapeMismatch, UnknownName
from hydiff.io import axes as ax
from hydiff.io import npz, variables
from hydiff.io.parsing import parsing

MEANINGS = {"observed": "missing", "missing": "observed"}  # each with its opposite


def check_meaning(meaning: str) -> None:
    """Raise BadValue unless `meaning` is "observed" or "missing"."""
    if meaning not in MEANINGS:
        raise BadValue(f"a mask says `observed` or `missing`, not {meaning!r}")


def named(path: Path, meaning: str) -> str | None:
    """Return `observed` or `missing`, if an .npz has an array of that name; `meaning` is first."""
    with parsing(path, "an .npz of masks"):
        members = npz.members(path) if npz.is_archive(path) else {}
    return next((key for key in (meaning, MEANINGS[meaning]) if key in members), None)


def packed(path: Path, name: str | None) -> Array | None:
    """Return (bands, rows, cols) from an array of bits in an .npz, or None if it is not packed."""
    if name not in MEANINGS or not npz.is_archive(path):
        return None
    with parsing(path, "an .npz of masks"), np.load(path, allow_pickle=False) as arrays:
        if "bands" not in arrays.files or arrays["bands"].ndim > 0:
            return None
        return _unpacked(arrays[name], int(arrays["bands"]), path)


def _unpacked(packed: Array, bands: int, path: Path) -> Array:
    """Return bits that are packed along the bands as (bands, rows, cols), uint8 of 0 and 1."""
    if packed.ndim != 3 or packed.dtype != np.uint8 or len(packed) != -(-bands // 8):
        raise CubeFormatError(
            f"{path}: expected uint8 of shape ({-(-bands // 8)}, rows, cols) for {bands} bands "
            f"packed to bits, found {packed.dtype} of shape {packed.shape}; write the mask again"
        )
    return np.unpackbits(packed, axis=0, count=bands)


def check_name(name: str | None, meaning: str, path: Path) -> None:
    """Refuse a variable called `missing` that is given as `observed`, and the other way round."""
    if name == MEANINGS[meaning]:
        raise BadValue(f"{path} holds `{name}`; use `{name}='{path}'`")


def with_variable(path: Path, var: str | None) -> tuple[Path, str | None]:
    """Return the file and the variable, `var` or that of a path such as masks.npz:clouds."""
    file, colon, name = str(path).rpartition(":")
    if var is None and colon and name and not path.exists() and Path(file).exists():
        return Path(file), name
    return path, var


@contextmanager
def several_named(path: Path) -> Iterator[None]:
    """Turn the error for several arrays that may be the mask into one that says how to choose."""
    try:
        yield
    except variables.Several as several:
        raise CubeFormatError(
            f"{path}: more than one array may be the mask{several.listing}; "
            f"name one as {path}:{several.first}"
        ) from None


def with_bands(mask: Array, bands: int, path: Path) -> Array:
    """Return a mask (bands or 1, rows, cols) as (rows, cols) if it has one band, else as it is."""
    if len(mask) not in (1, bands):
        raise ShapeMismatch(
            f"{path}: mask of {len(mask)} bands, but the cube has {bands}; expected 1 or {bands}"
        )
    return mask[0] if len(mask) == 1 else mask


def layouts(cube: Cube) -> Iterator[Array]:
    """Yield a stored mask as (bands, rows, cols): by the rule for axes, then in common orders."""
    values = np.asarray(cube.values)
    yield values
    if "array" in cube.attrs:
        stored = ax.as_stored(values, tuple(cube.attrs["array"]["axes"].split(",")))
        for names in (ax.CUSTOM, ax.CUBE) if stored.ndim == 3 else ():
            yield ax.as_cube(stored, names)


def fitted(masks: list[Array], shape: tuple[int, int, int], path: Path) -> Array:
    """Return the first mask that fits a cube of this shape; one with one band as (rows, cols)."""
    for mask in masks:
        if mask.shape == shape or mask.shape == (1, *shape[1:]):
            return mask[0] if len(mask) == 1 else mask
    size = masks[0].shape[1:] if len(masks[0]) == 1 else masks[0].shape
    bands, rows, cols = shape
    turned = {(1, cols, rows), (bands, cols, rows)}
    hint = (
        "it would fit with rows and cols exchanged: transpose it"
        if any(mask.shape in turned for mask in masks)
        else "make the mask for this cube"
    )
    raise ShapeMismatch(
        f"{path}: mask of shape {size}, but the cube is (bands, rows, cols) = {shape}; "
        f"expected {shape[1:]} or {shape}; {hint}"
    )


def as_bools(mask: Array, path: Path) -> Bools:
    """Return a mask of 0 and 1, or 0 and 255 as GDAL writes them; BadValue for other values."""
    if mask.dtype == np.bool_:
        return mask
    if not (np.isin(mask, (0, 1)).all() or np.isin(mask, (0, 255)).all()):
        examples = ", ".join(f"{value:g}" for value in np.unique(mask)[:5])
        raise BadValue(
            f"{path}: a mask holds 0 and 1 only, found {examples}; "
            "make it with a comparison, such as `values > 0`"
        )
    return mask.astype(np.bool_)


def write(mask: Bools, path: Path, meaning: str) -> None:
    """Write a mask: `.npz` packed, or `.npy` as booleans, 3-D in the order (rows, cols, bands)."""
    if path.suffix.lower() == ".npy":
        stored = mask.transpose(1, 2, 0) if mask.ndim == 3 else mask
        npz.save_array(path, np.ascontiguousarray(stored))
    elif mask.ndim == 2:
        npz.save_archive(path, {meaning: mask})
    else:
        bands = np.array(len(mask))
        npz.save_archive(path, {meaning: np.packbits(mask, axis=0), "bands": bands})


def check_suffix(path: Path) -> None:
    """Raise UnknownName unless masks can be written to files with this suffix."""
    if path.suffix.lower() not in npz.SUFFIXES:
        raise UnknownName("mask format", path.suffix, npz.SUFFIXES, "; name the file NAME.npz")
