"""Values that no file declares, and that look as if they meant missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hydiff.cube import Array

FILL_COUNT = 10  # entries with one value before it is called a fill value
FILL_KINDS = 6  # different fill values side by side (EMIT has five)
SAMPLE = 1 << 14  # entries that show about how far the data reach
VOID_TAIL = 3.0  # void above a fill value, over the span of the lowest 0.01 % of the data
VOID_RANGE = 0.05  # ... and over the span from 1 to 99 %: coarse steps leave small voids


def undeclared(data: Array) -> list[float]:
    """The values of observed entries (n,) that stand apart from all others, as if nodata."""
    sample = np.sort(data[:: len(data) // SAMPLE or 1])
    some = np.unique(sample)
    few = max(FILL_KINDS, len(some) // 64)
    low = high = data
    if len(some) > 2 * few:  # what stands apart is found among the entries near the ends
        low, high = data[data <= some[few]], data[data >= some[-1 - few]]
    return [*_fills(data, sample, low, np.min), *_fills(data, sample, high, np.max)]


def suspicion(fills: Sequence[float], where: str) -> str:
    """What to say of such values, and to type if it is true."""
    names = ", ".join(f"{v:.9g}" for v in fills)
    who = f"the value {names} is" if len(fills) == 1 else f"the values {names} are"
    typed = names if len(fills) == 1 else f"[{names}]"
    return f"{who} far from all others, in {where}, as if nodata; if so, give `nodata={typed}`"


def _fills(data: Array, sample: Array, near: Array, end: Callable[[Array], Any]) -> list[float]:
    """The repeated values at one end of the data that a wide void separates from the rest.

    sample: a part of the data, sorted.  near: all entries up to some value from that end, with more
    than FILL_KINDS different values; or the data.
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
    """Whether the void between a value and all others, `rest` and those beyond it, is wider than
    between measurements."""
    if value > rest[0]:  # bright targets and saturation leave voids at the top
        nearest = float(rest.max())
        return bool(value - nearest > nearest - float(data.min()))
    nearest = float(rest.min())
    void = nearest - value
    # few values lie near the lowest: only where many do is it worth while to sort them
    limit = np.float64(nearest + 1.001 * void / VOID_TAIL)
    if rest.max() < limit:
        rest = data[data > value]
    low, others = rest[rest <= limit], int(np.count_nonzero(data > value))
    rank = min(max(20, others // 10_000), others - 1)
    if len(low) <= rank or void <= VOID_TAIL * (float(np.partition(low, rank)[rank]) - nearest):
        return False
    some = sample[sample > value]
    ends = np.quantile((some if len(some) else rest).astype(np.float64), [0.01, 0.99])
    return bool(void > VOID_RANGE * (ends[1] - ends[0]))
