"""Undeclared nodata: values that the file does not declare, but that look like missing data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hydiff.cube import Array

FILL_COUNT = 10  # fewest entries with a value to call it a fill value
FILL_KINDS = 6  # most fill values at one end of the data (EMIT has five)
SAMPLE = 1 << 14  # entries from which the range of the data is estimated
VOID_TAIL = 3.0  # least width of the void above a fill value, in spans of the lowest 0.01 % of data
VOID_RANGE = 0.05  # ... and in spans from 1 to 99 %, as coarsely stepped data have small voids


def undeclared(data: Array) -> list[float]:
    """Return the values of observed entries (n,) that lie far from all others, as nodata would."""
    sample = np.sort(data[:: len(data) // SAMPLE or 1])
    distinct = np.unique(sample)
    n_near = max(FILL_KINDS, len(distinct) // 64)
    low = high = data
    if len(distinct) > 2 * n_near:  # fill values can only be among the entries near the ends
        low, high = data[data <= distinct[n_near]], data[data >= distinct[-1 - n_near]]
    return [*_fills(data, sample, low, np.min), *_fills(data, sample, high, np.max)]


def suspicion(fills: Sequence[float], where: str) -> str:
    """Describe suspected values, and name the option to give if they mean nodata."""
    names = ", ".join(f"{v:.9g}" for v in fills)
    subject = f"the value {names} is" if len(fills) == 1 else f"the values {names} are"
    option = names if len(fills) == 1 else f"[{names}]"
    return f"{subject} far from all others, in {where}, as if nodata; if so, give `nodata={option}`"


def _fills(data: Array, sample: Array, near: Array, end: Callable[[Array], Any]) -> list[float]:
    """Return repeated values at one end of the data that a wide void separates from the rest.

    sample: a sorted sample of the data.  near: the entries near that end, with more than
    FILL_KINDS distinct values, or all data.  end: np.min or np.max.
    """
    fills: list[float] = []
    count = 0
    while len(data) - count > FILL_COUNT and len(fills) < FILL_KINDS:
        value = end(near)
        rest = near[near != value]
        if not len(rest):
            break
        fills.append(float(value))
        count += len(near) - len(rest)
        if count >= FILL_COUNT and _is_void(float(value), data, sample, rest):
            return fills
        near = rest
    return []


def _is_void(value: float, data: Array, sample: Array, rest: Array) -> bool:
    """Whether the void between a value and all others is wider than voids between measurements.

    rest: the other entries near that end of the data.
    """
    if value > rest[0]:  # at the top, where bright targets and saturation leave voids as well
        nearest = float(rest.max())
        return bool(value - nearest > nearest - float(data.min()))
    nearest = float(rest.min())
    void = nearest - value
    # `low` needs all values up to this limit: take them from the data if `rest` ends below it
    limit = np.float64(nearest + 1.001 * void / VOID_TAIL)
    if rest.max() < limit:
        rest = data[data > value]
    low, n_others = rest[rest <= limit], int(np.count_nonzero(data > value))
    rank = min(max(20, n_others // 10_000), n_others - 1)
    if len(low) <= rank or void <= VOID_TAIL * (float(np.partition(low, rank)[rank]) - nearest):
        return False
    above = sample[sample > value]
    ends = np.quantile((above if len(above) else rest).astype(np.float64), [0.01, 0.99])
    return bool(void > VOID_RANGE * (ends[1] - ends[0]))
