"""Filled values as a file can hold them: their dtype, and nodata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Nodata, equals, listed, representable


def into_dtype(
    cube: Cube, estimate: Floats, where: Bools, nodata: Nodata
) -> tuple[Array, dict[str, int]]:
    """Return the cube's values with the estimate at `where`, and counts of changes to it, by kind.

    Integers are rounded, all are clipped to the dtype's range, and none may equal a nodata value.
    """
    values = np.array(cube.values)
    new = estimate[where]
    changed: dict[str, int] = {}
    integers = values.dtype.kind in "iu"
    info: Any = np.iinfo(values.dtype) if integers else np.finfo(values.dtype)
    new = np.rint(new) if integers else new
    clipped = int(((new < info.min) | (new > info.max)).sum())
    if clipped:
        changed[f"were clipped to the range of {values.dtype}"] = clipped
    top = float(info.max)
    if top > info.max:  # float64 rounds the largest 64-bit integers up
        top = np.nextafter(top, 0)
    new = np.clip(new, float(info.min), top)
    values[where] = new.astype(values.dtype)
    avoided = dict.fromkeys((*listed(nodata), *listed(cube.nodata)))
    for flag in avoided:
        if moved := _off_nodata(values, where, flag, avoided):
            changed[f"fell on nodata {flag:g} and were moved one step off"] = moved
    return values, changed


def _off_nodata(values: Array, where: Bools, flag: float, avoided: Collection[float]) -> int:
    """Move written entries that equal nodata to the next value of their dtype; return how many.

    avoided: all nodata values, as the next value of one may be another.
    """
    if not representable(flag, values.dtype) or np.isnan(flag):
        return 0
    hits = where & equals(values, flag)
    if not hits.any():
        return 0
    if values.dtype.kind == "f":
        values[hits] = _next_float(values.dtype.type(flag), avoided)
    else:
        values[hits] = _next_integer(int(flag), np.iinfo(values.dtype), avoided)
    return int(hits.sum())


def _next_float(flag: Any, avoided: Collection[float]) -> Any:
    """Return the next float of the type of `flag` that is not avoided, on the side of the data."""
    inward = type(flag)(1.0 if flag <= 0 else 0.0)
    with np.errstate(over="ignore"):  # as in `equals`
        taken = [type(flag)(value) for value in avoided]
    while flag in taken:
        flag = np.nextafter(flag, inward)
    return flag


def _next_integer(flag: int, info: Any, avoided: Collection[float]) -> int:
    """Return the next larger integer that is not avoided; a smaller one if the type ends before."""
    larger, smaller = range(flag + 1, info.max + 1), range(flag - 1, info.min - 1, -1)
    return next(value for value in chain(larger, smaller) if value not in avoided)


def float_for(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float type of filled values: float32, or float64 where the dtype needs it."""
    return np.result_type(dtype, np.float32)


def with_nodata(cube: Cube, nodata: Nodata, spared: Sequence[str]) -> Cube:
    """Return the cube with the user's nodata value as its own, so that a fill of it declares what
    stays missing.

    This needs a cube that declares nothing itself, and one value that is missing wherever it
    occurs; NaN always is, undeclared.  spared: the notes of `spared_note`.
    """
    silent = cube.nodata is None and cube.valid is None and cube.missing_rule is None
    if not silent or spared or len(listed(nodata)) != 1 or np.isnan(listed(nodata)[0]):
        return cube
    return replace(cube, nodata=listed(nodata)[0])


def undeclared_note(cube: Cube, nodata: Nodata, left: Mapping[str, int]) -> list[str]:
    """Note on the user's nodata values in entries that stay missing, if the cube does not declare
    them: whoever reads the fill has to give them again."""
    values = [v for v in listed(nodata) if v != cube.nodata and not np.isnan(v)]
    if not left or not values:
        return []
    names = ", ".join(f"{v:g}" for v in values)
    return [
        f"entries left missing keep their value, and the file does not declare {names} as missing: "
        "give `nodata=` again when it is read"
    ]
