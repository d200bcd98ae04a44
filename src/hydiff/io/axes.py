"""The rule that decides which axis of a bare array is which, for mat, npy and npz files.

Axes are named in stored order, for example ("rows", "cols", "bands"); "-" is an axis of length 1
that is dropped.  A name that does not occur (a 2-D array has no bands) means length 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydiff.cube import Array, Cube, band_axis, dim_names
from hydiff.errors import BadValue, CubeFormatError, ShapeMismatch, UnknownName

Axes = tuple[str, ...]

CUBE = ("bands", "rows", "cols")
PLANE = ("rows", "cols")  # of an array with two axes
CUSTOM = ("rows", "cols", "bands")  # the usual order of bare arrays
FIRST, LAST = "bands first", "bands last"  # of an array with three axes
# an array in memory is refused if its first two axes look like an image and its last like bands
SMALL = 32  # arrays without a longer axis are taken as they are
ALIKE = 2.0  # the sides of an image differ by no more than this factor
LONGER = 1.25  # the last axis is longer than both sides by more than this factor,
MOST_BANDS = 450  # ... or the first axis is longer than the number of bands of any sensor,
FEWER = 0.5  # ... and the last axis is shorter than this share of both others


def order_of(shape: tuple[int, ...], axis: str | None, mask: tuple[int, ...] | None = None) -> str:
    """Return FIRST or LAST for an array with three axes in memory.

    `axis` decides; else the order that a mask of another shape fits, if it fits only one; else it
    is FIRST, and ShapeMismatch is raised if the lengths look like LAST.
    """
    if axis is not None:
        return check_axis(axis)
    n0, n1, n2 = shape
    fitting: dict[str, list[tuple[int, ...]]] = {FIRST: [(n1, n2)], LAST: [(n0, n1), (n2, n0, n1)]}
    fits = [order for order, shapes in fitting.items() if mask in shapes and mask != shape]
    if len(fits) == 1:
        return fits[0]
    if _looks_last(n0, n1, n2):
        raise ShapeMismatch(
            f"an array of shape {shape} would be {n0} bands of {n1} × {n2} pixels, but looks like "
            f"(rows, cols, bands): give `axis='{LAST}'`, or array.transpose(2, 0, 1); "
            f"`axis='{FIRST}'` if it is right as it is"
        )
    return FIRST


def _looks_last(n0: int, n1: int, n2: int) -> bool:
    """Return whether an array with these lengths looks like (rows, cols, bands)."""
    if max(n0, n1, n2) <= SMALL or max(n0, n1) > ALIKE * min(n0, n1) or n1 == n2:
        return False
    too_many = n0 > MOST_BANDS and n2 < FEWER * min(n0, n1)
    return n0 == n1 or n2 > LONGER * max(n0, n1) or too_many


def check_axis(axis: str) -> str:
    """Return `axis` if it is FIRST or LAST; else raise UnknownName."""
    if str(axis) not in (FIRST, LAST):
        raise UnknownName("axis", axis, (FIRST, LAST))
    return axis


def declared_by(axis: str | None, entries: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
    """Return the order of axes of an array in a file: by the user's `axis`, else its metadata."""
    if axis is None or len(shape) != 3:
        return entries.get("axes")
    return ",".join(CUBE if check_axis(axis) == FIRST else CUSTOM)


def resolve(
    shape: tuple[int, ...], declared: str | None, path: Path, bands: int | None = None
) -> Axes:
    """Return the names of the axes of an array of this shape.

    A declared order decides.  Otherwise axes of length 1 are dropped; the last of three that is as
    long as the number of wavelengths, `bands`, is bands; else, if exactly two lengths are equal,
    the odd one is bands; else the order is (rows, cols, bands).  Of three axes with only one longer
    than 1, that one is bands if it is the first or the last.
    """
    if min(shape, default=1) < 1:
        raise CubeFormatError(f"{path}: holds no values: an array of shape {shape}")
    if declared is not None:
        return _declared(shape, declared, path)
    long = [i for i, n in enumerate(shape) if n > 1]
    if len(shape) == 2:
        return ("rows", "cols")
    if len(shape) < 2 or len(long) > 3:
        raise CubeFormatError(
            f"{path}: expected an array of 2 or 3 axes, found shape {shape}; "
            "choose another variable with `var=NAME`"
        )
    if len(long) < 2:  # a single pixel
        return ("-",) * (len(shape) - 3) + (CUBE if long == [len(shape) - 3] else CUSTOM)
    names = _by_length([shape[i] for i in long], bands) if len(long) == 3 else ("rows", "cols")
    return _spread(names, long, len(shape))


def _by_length(lengths: list[int], bands: int | None) -> Axes:
    """Name three axes: the last of length `bands`, or the only one of unequal length, is bands."""
    fitting = [i for i in range(3) if lengths[i] == bands]
    odd = [i for i in range(3) if lengths.count(lengths[i]) == 1]
    place = fitting[-1] if fitting else odd[0] if len(odd) == 1 else 2
    names = ["rows", "cols"]
    names.insert(place, "bands")
    return tuple(names)


def is_guess(shape: tuple[int, ...], bands: int | None) -> bool:
    """Return whether `resolve` has to choose among axes that may all be the bands."""
    long = [n for n in shape if n > 1]
    return len(long) == 3 and (long.count(bands) > 1 if bands in long else len(set(long)) != 2)


def _declared(shape: tuple[int, ...], declared: str, path: Path) -> Axes:
    """Parse a declared order, such as "rows,cols,bands", and fit it to the shape."""
    names = tuple(name.strip() for name in declared.split(","))
    real = [name for name in names if name != "-"]
    if not {"rows", "cols"} <= set(real) <= set(CUBE) or len(set(real)) != len(real):
        raise CubeFormatError(
            f"{path}: axes {declared!r} in its metadata; "
            'expected an order of bands, rows and cols, such as "rows,cols,bands"'
        )
    squeezed = [i for i, name in enumerate(names) if name == "-"]
    if len(names) == len(shape) and all(shape[i] == 1 for i in squeezed):
        return names
    long = [i for i, n in enumerate(shape) if n > 1]
    if len(real) == len(long):
        return _spread(tuple(real), long, len(shape))
    raise CubeFormatError(
        f"{path}: axes {declared!r} in its metadata do not fit an array of shape {shape}; "
        "correct one of the two"
    )


def _spread(names: Axes, places: list[int], count: int) -> Axes:
    """Put each name at its place among `count` axes, and "-" at all other places."""
    name_at = dict(zip(places, names, strict=True))
    return tuple(name_at.get(i, "-") for i in range(count))


def cube_shape(shape: tuple[int, ...], axes: Axes) -> tuple[int, int, int]:
    """Return (bands, rows, cols) of a stored array of this shape."""
    bands, rows, cols = (shape[axes.index(n)] if n in axes else 1 for n in CUBE)
    return bands, rows, cols


def as_cube(array: Array, axes: Axes) -> Array:
    """Return a stored array as a view (bands, rows, cols), so that assigning to it writes back."""
    order = [axes.index(n) for n in CUBE if n in axes]
    squeezed = [i for i in range(array.ndim) if i not in order]
    return array.transpose(order + squeezed).reshape(cube_shape(array.shape, axes))


def as_stored(values: Array, axes: Axes) -> Array:
    """Return a cube (bands, rows, cols) in stored order: the inverse of `as_cube`, also a view."""
    order = [CUBE.index(n) for n in axes if n in CUBE]
    absent = [i for i in range(3) if i not in order]
    return values.transpose(order + absent).reshape(stored_shape(values.shape, axes))


def stored_block(axes: Axes, block: tuple[slice, slice, slice]) -> tuple[slice, ...]:
    """Return the slices of the stored array that hold a block (bands, rows, cols)."""
    part: dict[str, slice] = dict(zip(CUBE, block, strict=True))
    return tuple(part.get(name, slice(0, 1)) for name in axes)


def stored_shape(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    """Return the shape in which a cube (bands, rows, cols) is stored."""
    length: dict[str, int] = dict(zip(CUBE, shape, strict=True))
    return tuple(length.get(name, 1) for name in axes)


def order_for(attrs: Any, bands: int) -> Axes:
    """Return the order of axes in which a cube was read, if it fits, else (rows, cols, bands)."""
    box = attrs.get("array")
    names = tuple(box["axes"].split(",")) if isinstance(box, dict) and "axes" in box else CUSTOM
    return names if "bands" in names or bands == 1 else CUSTOM


# --- arrays in memory ---------------------------------------------------------------------------


def bands_last(data: Any, axis: str | None, mask: tuple[int, ...] | None) -> bool:
    """Return whether the bands are the last axis; False for a cube and for named dimensions, which
    are put in order by their names."""
    named = isinstance(data, Cube)
    if not named and hasattr(data, "dims"):
        named = data.ndim == 3 and band_axis(dim_names(data)) is not None
    if named and axis is not None:
        raise BadValue("`axis=` goes with arrays: a cube, or its dimensions, say it; leave it out")
    if named or len(data.shape) != 3:  # Cube refuses another number of axes
        return False
    return order_of(data.shape, axis, mask) == LAST


def dims_in(data: Any, order: tuple[int, int, int]) -> list[Any]:
    """Return an order of axes in the form that `transpose` of this array expects."""
    return [data.dims[i] for i in order] if hasattr(data, "dims") else list(order)
