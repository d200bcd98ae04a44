"""The masks of a scene on disk: what is observed, and what is to be filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hydiff import mask, problem
from hydiff.cube import Array, Bools, Cube, Floats, equals
from hydiff.errors import NothingObserved
from hydiff.io.blocks import blocks
from hydiff.order import Order
from hydiff.tiles import Box


class Bits(NamedTuple):
    """Booleans (bands, rows, cols) in a file, eight columns to a byte."""

    path: Path
    shape: tuple[int, int, int]

    def _mapped(self, mode: Any) -> Array:
        bands, rows, cols = self.shape
        return np.memmap(self.path, np.uint8, mode, shape=(bands, rows, -(-cols // 8)))

    def empty(self) -> Bits:
        self._mapped("w+")
        return self

    def put(self, bands: slice, rows: slice, flags: Bools) -> None:
        self._mapped("r+")[bands, rows] = np.packbits(flags, axis=-1)

    def get(self, bands: slice, rows: slice, cols: slice) -> Bools:
        first = cols.start // 8
        packed = self._mapped("r")[bands, rows, first : -(-cols.stop // 8)]
        flags = np.unpackbits(packed, axis=-1)[..., cols.start - 8 * first : cols.stop - 8 * first]
        return flags.astype(bool)

    def plane(self, band: int) -> Bools:
        plane: Bools = self.get(slice(band, band + 1), *everything(self.shape))[0]
        return plane

    def box(self, box: Box) -> Bools:
        return self.get(slice(0, self.shape[0]), *box)

    def total(self) -> int:
        planes = (self.plane(band) for band in range(self.shape[0]))
        return sum(int(np.count_nonzero(plane)) for plane in planes)


def everything(shape: tuple[int, int, int]) -> Box:
    return slice(0, shape[1]), slice(0, shape[2])


def scan(
    opened: Callable[[], Cube],
    cube: Cube,
    observed: Bools | None,
    nodata: float | None,
    work: Path,
) -> tuple[Bits, Bits | None]:
    """What is observed, and what is withheld without being lost, from one walk down the rows."""
    given = None if observed is None else problem.checked_mask(np.asarray(observed), cube.shape)
    seen = Bits(work / "seen.bits", cube.shape).empty()
    withheld = None
    if cube.withheld_rule is not None:
        withheld = Bits(work / "withheld.bits", cube.shape).empty()
    chunks = getattr(cube.values, "chunks", None)
    found = declared = False
    for bands, rows, cols in blocks(cube.shape, cube.dtype.itemsize, 1, chunks[1] if chunks else 1):
        values = np.asarray(opened().values[bands, rows, cols])
        flags = cube.observed_in(values, nodata, rows, cols)
        if nodata is not None:
            declared |= bool(equals(values, nodata).any())
        if given is not None:
            flags &= given[..., rows, cols]
        seen.put(bands, rows, flags)
        found |= bool(flags.any())
        if withheld is not None:
            withheld.put(bands, rows, cube.withheld_in(values) & ~flags)
    if nodata is not None and not declared:
        raise problem.no_such_nodata(nodata)
    if not found:
        raise NothingObserved(problem.NOTHING)
    return seen, withheld


def aims(
    cube: Cube, seen: Bits, withheld: Bits | None, order: Order, work: Path
) -> tuple[Bits, Floats, dict[str, int]]:
    """What to fill, how wide the gaps are there (rows, cols), and what is left, as in `targets`.

    A band at a time; bands with one mask share the geometry of its gaps.
    """
    bands, good = cube.bands, cube.good_bands
    some = np.array([seen.plane(band).any() for band in range(bands)])
    lost = problem.lost_detectors(some[:, None, None], good, cube.detectors)
    target = Bits(work / "target.bits", cube.shape).empty()
    width = np.zeros(cube.shape[1:])
    left: Counter[str] = Counter()
    geometry: dict[bytes, tuple[list[tuple[str, Bools]], Floats]] = {}
    for band in range(bands):
        missing = ~seen.plane(band)
        wanted = missing.copy()
        if withheld is not None and not order.fill_clouds:
            screened = withheld.plane(band)
            left[problem.WITHHELD] += int(screened.sum())
            wanted &= ~screened
        if not some[band]:
            reason = next((r for r, own in lost.items() if own[band]), problem.EMPTY_BAND)
            left[reason] += int(wanted.sum())
            continue
        if order.bad_bands == "keep" and not good[band]:
            left[problem.BAD_BAND] += int(wanted.sum())
            continue
        if not wanted.any():
            continue
        digest = blake2b(np.packbits(missing).data).digest()
        if digest not in geometry:
            kept = list(problem.kept_pixels(missing, order.max_gap, order.outside))
            geometry = {digest: (kept, mask.thickness(missing))}  # one plane of each at a time
        for reason, pixels in geometry[digest][0]:
            left[reason] += int((wanted & pixels).sum())
            wanted &= ~pixels
        np.maximum(width, geometry[digest][1], out=width, where=wanted)
        target.put(slice(band, band + 1), slice(0, cube.shape[1]), wanted[None])
    return target, width, {reason: n for reason, n in left.items() if n}
