"""Compare two rasters on a map: whether they are on one grid, and how far apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import ShapeMismatch

NEAR = 0.05  # pixels that two grids may differ by, anywhere in the scene


def shift(cube: Cube, other: Cube, path: Path) -> tuple[int, int] | None:
    """Return the (row, column) of `cube` at which the first pixel of `other` lies on the map.

    None if the two cannot or need not be compared: one of them has no place on a map, or both have
    the same place and size.  ShapeMismatch if their grids differ.
    """
    if cube.transform is None or other.transform is None:
        return None
    if cube.crs and other.crs and not same_crs(cube.crs, other.crs):
        raise _apart(path, f"its map is {_name(other.crs)}, the cube's {_name(cube.crs)}")
    target, origin = _matrix(cube), _matrix(other)
    if not (np.isfinite(origin).all() and np.isfinite(target).all() and np.linalg.det(target)):
        return None  # not usable as a place on a map
    pixels = np.linalg.inv(target) @ origin  # from pixels of `other` to pixels of `cube`
    size = max(*cube.shape[1:], *other.shape[1:])
    if not np.allclose(pixels[:2, :2], np.eye(2), rtol=0, atol=NEAR / size):
        raise _apart(path, "its pixels have another size or direction")
    col, row = pixels[:2, 2]
    offset = round(float(row)), round(float(col))
    if max(abs(row - offset[0]), abs(col - offset[1])) > NEAR:
        raise _apart(path, f"it lies {row:.2f} rows and {col:.2f} columns away, parts of a pixel")
    return None if offset == (0, 0) and other.shape[1:] == cube.shape[1:] else offset


def check_same(cube: Cube, other: Cube, path: Path) -> None:
    """Raise ShapeMismatch if two cubes of one shape lie on different places of a map."""
    if cube.shape[1:] == other.shape[1:] and (at := shift(cube, other, path)) is not None:
        raise _apart(path, f"it lies {at[0]} rows and {at[1]} columns away")


def moved(
    observed: Bools,
    at: tuple[int, int],
    shape: tuple[int, int, int],
    path: Path,
    say: Callable[[str], Any],
) -> Bools:
    """Return a mask, True = measured, placed on a cube of this shape.

    at: (row, column) of the cube at which the first pixel of the mask lies.  Pixels that the mask
    does not cover count as measured.  say: receives a message about the shift.
    """
    rows, cols = (
        slice(max(first, 0), min(first + n, most))
        for first, n, most in zip(at, observed.shape[-2:], shape[1:], strict=True)
    )
    if rows.start >= rows.stop or cols.start >= cols.stop:
        raise _apart(path, "it covers no pixel of the cube")
    whole = np.ones((*observed.shape[:-2], *shape[1:]), bool)
    top, left = at
    inside = (slice(rows.start - top, rows.stop - top), slice(cols.start - left, cols.stop - left))
    whole[..., rows, cols] = observed[(..., *inside)]
    covered = (rows.stop - rows.start) * (cols.stop - cols.start) / (shape[1] * shape[2])
    say(
        f"{path}: moved by {at[0]} rows and {at[1]} columns to its map coordinates; it covers "
        f"{100 * covered:.3g} % of the cube, elsewhere nothing is missing by it"
    )
    return whole


def _apart(path: Path, why: str) -> ShapeMismatch:
    """Return the error for a file that is not on the grid of the cube."""
    return ShapeMismatch(
        f"{path} does not lie on the grid of the cube: {why}; warp it to that grid (gdalwarp), or "
        "give it as .npz or .npy, which is taken pixel by pixel"
    )


def _matrix(cube: Cube) -> Floats:
    """(3, 3) affine matrix from (column, row, 1) to map coordinates."""
    return np.array([*(cube.transform or ()), 0, 0, 1], np.float64).reshape(3, 3)


def same_crs(one: str, other: str) -> bool:
    """Return whether two texts (WKT) mean the same CRS; False if they cannot be compared."""
    if one == other:
        return True
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return bool(CRS.from_wkt(one) == CRS.from_wkt(other))
    except CRSError:  # text that is not WKT cannot be compared any further
        return False


def _name(wkt: str) -> str:
    """Return the first quoted name of a WKT string, or all of it without one."""
    return wkt.split('"')[1] if '"' in wkt else wkt
