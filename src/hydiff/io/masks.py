"""Masks in files: what non-zero means, which axis is which, and the packed form.

A 3-D mask takes one bit per entry in an .npz: `observed` or `missing`, packed along the bands
with np.packbits, and `bands`, their number.  A 2-D mask stands there as it is.
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
    if meaning not in MEANINGS:
        raise BadValue(f"a mask says `observed` or `missing`, not {meaning!r}")


def named(path: Path, meaning: str) -> str | None:
    """`observed` or `missing`, if an .npz holds an array of that name; the claimed one first."""
    with parsing(path, "an .npz of masks"):
        held = npz.members(path) if npz.is_archive(path) else {}
    return next((key for key in (meaning, MEANINGS[meaning]) if key in held), None)


def packed(path: Path, name: str | None) -> Array | None:
    """(bands, rows, cols) from an array of bits in an .npz, or None if this is not one."""
    if name not in MEANINGS or not npz.is_archive(path):
        return None
    with parsing(path, "an .npz of masks"), np.load(path, allow_pickle=False) as arrays:
        if "bands" not in arrays.files or arrays["bands"].ndim > 0:
            return None
        return _unpacked(arrays[name], int(arrays["bands"]), path)


def _unpacked(packed: Array, bands: int, path: Path) -> Array:
    if packed.ndim != 3 or packed.dtype != np.uint8 or len(packed) != -(-bands // 8):
        raise CubeFormatError(
            f"{path}: expected uint8 of shape ({-(-bands // 8)}, rows, cols) for {bands} bands "
            f"packed to bits, found {packed.dtype} of shape {packed.shape}; write the mask again"
        )
    return np.unpackbits(packed, axis=0, count=bands)


def check_name(name: str | None, meaning: str, path: Path) -> None:
    """A variable called `missing` cannot be given as `observed`, nor the other way round."""
    if name == MEANINGS[meaning]:
        raise BadValue(f"{path} holds `{name}`; use `{name}='{path}'`")


def with_variable(path: Path, var: str | None) -> tuple[Path, str | None]:
    """The file and the variable of a name such as masks.npz:clouds."""
    file, colon, name = str(path).rpartition(":")
    if var is None and colon and name and not path.exists() and Path(file).exists():
        return Path(file), name
    return path, var


@contextmanager
def several_named(path: Path) -> Iterator[None]:
    """Say how to choose where a file holds several arrays that may be the mask."""
    try:
        yield
    except variables.Several as several:
        raise CubeFormatError(
            f"{path}: more than one array may be the mask{several.listing}; "
            f"name one as {path}:{several.first}"
        ) from None


def with_bands(mask: Array, bands: int, path: Path) -> Array:
    """(rows, cols), or (bands, rows, cols), of a mask on a grid of its own."""
    if len(mask) not in (1, bands):
        raise ShapeMismatch(
            f"{path}: mask of {len(mask)} bands, but the cube has {bands}; expected 1 or {bands}"
        )
    return mask[0] if len(mask) == 1 else mask


def layouts(cube: Cube) -> Iterator[Array]:
    """The readings (bands, rows, cols) of a stored mask: by the rule for axes, then by custom."""
    values = np.asarray(cube.values)
    yield values
    if "array" in cube.attrs:
        stored = ax.as_stored(values, tuple(cube.attrs["array"]["axes"].split(",")))
        for names in (ax.CUSTOM, ax.CUBE) if stored.ndim == 3 else ():
            yield ax.as_cube(stored, names)


def fitted(masks: list[Array], shape: tuple[int, int, int], path: Path) -> Array:
    """The first reading that fits a cube of this shape; one band is (rows, cols), for all bands."""
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
    """0 and 1 as booleans; any other value means that this is no mask."""
    if mask.dtype == np.bool_:
        return mask
    if not np.isin(mask, (0, 1)).all():
        some = ", ".join(f"{value:g}" for value in np.unique(mask)[:5])
        raise BadValue(
            f"{path}: a mask holds 0 and 1 only, found {some}; "
            "make it with a comparison, such as `values > 0`"
        )
    return mask.astype(np.bool_)


def write(mask: Bools, path: Path, meaning: str) -> None:
    """`.npz` packed, or `.npy` as plain booleans, 3-D in the order (rows, cols, bands)."""
    if path.suffix.lower() == ".npy":
        by_custom = mask.transpose(1, 2, 0) if mask.ndim == 3 else mask
        npz.save_array(path, np.ascontiguousarray(by_custom))
    elif mask.ndim == 2:
        npz.save_archive(path, {meaning: mask})
    else:
        bands = np.array(len(mask))
        npz.save_archive(path, {meaning: np.packbits(mask, axis=0), "bands": bands})


def check_suffix(path: Path) -> None:
    if path.suffix.lower() not in npz.SUFFIXES:
        raise UnknownName("mask format", path.suffix, npz.SUFFIXES, "; name the file NAME.npz")
