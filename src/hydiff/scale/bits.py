"""Masks of a scene on disk: the observed entries, and the entries to fill."""

from __future__ import annotations

import math
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from hydiff.auto.recipe import Buffer, Fingerprint
from hydiff.cube import Array, Bools, Cube, Floats, Ints, equals, equals_any, listed
from hydiff.errors import NothingObserved
from hydiff.gaps import regions, rule
from hydiff.gaps.mask import thickness
from hydiff.gaps.reach import extremes
from hydiff.gaps.spectrum import MeasuredBands
from hydiff.io.blocks import Block, blocks
from hydiff.io.threads import in_threads
from hydiff.request import Request
from hydiff.scale.tiles import Box


def reserve(path: Path, size: int) -> None:
    """Create a file of `size` zeros, and allocate its space on the disk.

    Without the space, writing to the mapped file on a full disk would end the process.
    """
    with path.open("wb") as file:
        file.truncate(size)
        if size and hasattr(os, "posix_fallocate"):  # not on every system
            os.posix_fallocate(file.fileno(), 0, size)


class ArrayFile(NamedTuple):
    """An array in a file, which is mapped only while it is used."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def mapped(self, write: bool = False) -> Array:
        """Return the file as a mapped array; drop it after use, for mapped pages count as memory.

        np.memmap is not used: it resolves the path repeatedly, which takes longer than the rest.
        """
        with self.path.open("r+b" if write else "rb") as file:
            access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
            view = mmap.mmap(file.fileno(), 0, access=access)
        return np.frombuffer(view, self.dtype).reshape(self.shape)

    def empty(self) -> Self:
        """Create the file, filled with zeros, and return self."""
        reserve(self.path, math.prod(self.shape) * self.dtype.itemsize)
        return self


class GapLayer(NamedTuple):
    """A layer of a scene at the n pixels that have something to fill, row by row, in a file."""

    file: ArrayFile  # (bands, n)
    gaps: Bools  # (rows, cols) these pixels
    above: Ints  # (rows + 1,) number of these pixels above each row

    @classmethod
    def empty(cls, path: Path, gaps: Bools, bands: int, dtype: Any) -> Self:
        """Create the file of a layer, filled with zeros."""
        above = np.concatenate([[0], np.cumsum(gaps.sum(axis=1))])
        file = ArrayFile(path, (bands, int(above[-1])), np.dtype(dtype))
        return cls(file.empty(), gaps, above)

    def put(self, rows: slice, values: Array) -> None:
        """Write values (bands, 1, n) at the n pixels of some rows, in all bands."""
        self.file.mapped(write=True)[:, self.above[rows.start] : self.above[rows.stop]] = values[
            :, 0
        ]

    def get(self, bands: slice, rows: slice, cols: slice) -> Array:
        """Return the values (bands, 1, n) at the n pixels of a box; slices have start and stop."""
        gaps, (first, last) = self.gaps[rows], (self.above[rows.start], self.above[rows.stop])
        if first == last:  # an empty file cannot be mapped
            return np.zeros((bands.stop - bands.start, 1, 0), self.file.dtype)
        within = self.file.mapped()[bands, first:last]
        if cols != slice(0, gaps.shape[1]):
            col = np.nonzero(gaps)[1]
            within = within[:, (cols.start <= col) & (col < cols.stop)]
        return np.array(within)[:, None]


class Bits(NamedTuple):
    """An array of booleans (bands, rows, cols) in a file, eight columns to a byte."""

    path: Path
    shape: tuple[int, int, int]

    @property
    def _bytes(self) -> ArrayFile:
        """The file as bytes (bands, rows, ceil(cols / 8))."""
        bands, rows, cols = self.shape
        return ArrayFile(self.path, (bands, rows, -(-cols // 8)))

    def empty(self) -> Bits:
        """Create the file, all entries False, and return self."""
        self._bytes.empty()
        return self

    def put(self, bands: slice, rows: slice, flags: Bools) -> None:
        """Write flags (bands, rows, all columns)."""
        self._bytes.mapped(write=True)[bands, rows] = np.packbits(flags, axis=-1)

    def get(self, bands: slice, rows: slice, cols: slice) -> Bools:
        """Return a block (bands, rows, cols); `cols` must have start and stop."""
        first = cols.start // 8
        packed = self._bytes.mapped()[bands, rows, first : -(-cols.stop // 8)]
        flags = np.unpackbits(packed, axis=-1)[..., cols.start - 8 * first : cols.stop - 8 * first]
        return flags.view(bool)

    def plane(self, band: int) -> Bools:
        """Return one band, (rows, cols)."""
        plane: Bools = self.get(slice(band, band + 1), *everything(self.shape))[0]
        return plane

    def box(self, box: Box) -> Bools:
        """Return all bands of a box, (bands, rows, cols)."""
        return self.get(slice(0, self.shape[0]), *box)

    def packed(self, band: int) -> Array:
        """Return a band as packed bytes; equal bands have equal bytes."""
        return np.array(self._bytes.mapped()[band])

    def some(self) -> Bools:
        """(bands,) whether any entry is True."""
        return np.array([self.packed(band).any() for band in range(self.shape[0])])

    def any_in(self, bands: Bools) -> Bools:
        """(rows, cols) whether a pixel is True in one of some bands, a mask (bands,)."""
        _, rows, width = self._bytes.shape
        packed = np.zeros((rows, width), np.uint8)
        for band in np.flatnonzero(bands):
            packed |= self.packed(int(band))
        return np.unpackbits(packed, axis=-1, count=self.shape[2]).view(bool)

    def band_groups(self) -> Iterator[tuple[Ints, Bools]]:
        """Yield the bands that share a mask, and this mask (rows, cols)."""
        groups: dict[bytes, list[int]] = {}
        for band in range(self.shape[0]):
            groups.setdefault(blake2b(self.packed(band).data).digest(), []).append(band)
        return ((np.array(members), self.plane(members[0])) for members in groups.values())

    def counts(self) -> Ints:
        """(bands,) number of True entries; the padding bits at the end of a row are always 0."""
        planes = (self.packed(band) for band in range(self.shape[0]))
        return np.array([np.bitwise_count(plane).sum(dtype=np.int64) for plane in planes])

    def total(self) -> int:
        """Return the number of True entries."""
        return int(self.counts().sum())


def everything(shape: tuple[int, int, int]) -> Box:
    """Return the box of all rows and columns of a shape (bands, rows, cols)."""
    return slice(0, shape[1]), slice(0, shape[2])


class Scan(NamedTuple):
    """Results of a pass over the values of a scene."""

    observed: Bits
    own: Bits  # observed by the cube's own rule, without a mask
    withheld: Bits | None  # entries that the product withholds, but has not lost
    low: Floats  # (bands,) the smallest observed value, -inf in bands without any
    high: Floats  # (bands,) the largest observed value, inf in bands without any
    notes: list[str]
    content: str  # the fingerprint of the cube


def scan(cube: Cube, mask: Bools | None, request: Request, work: Path) -> Scan:
    """Find observed and withheld entries, and the range of observed values, in one pass.

    A second pass is needed if a nodata value of the user could be a measured one.
    """
    rule.check_nodata(request.nodata, request.nodata_in)
    if mask is not None:
        mask = rule.checked_mask(np.asarray(mask), cube.shape)
    nodata, how = listed(request.nodata), request.nodata_in
    whole, doubted = nodata if how == "all" else (), nodata if how is None else ()
    scanned = _scan(cube, mask, request, work, whole, doubted)
    if not isinstance(scanned, Scan):
        scanned = _scan(cube, mask, request, work, scanned)
    assert isinstance(scanned, Scan)  # nothing is in doubt any more
    return scanned


def _scan(
    cube: Cube,
    mask: Bools | None,
    request: Request,
    work: Path,
    whole: tuple[float, ...],
    doubted: tuple[float, ...] = (),
) -> Scan | tuple[float, ...]:
    """Return the results of a pass, or those of the `doubted` nodata values that are plausible.

    whole: nodata values that count only in pixels where every good band is missing.
    """
    measured = by_cube = Bits(work / "seen.bits", cube.shape).empty()
    if mask is not None:
        by_cube = Bits(work / "own.bits", cube.shape).empty()
    withheld = None
    if cube.withheld_rule is not None:
        withheld = Bits(work / "withheld.bits", cube.shape).empty()
    chunks = getattr(cube.values, "chunks", None)
    nodata, absent = request.nodata, set(listed(request.nodata))
    spared_count, plausible = 0, tuple[float, ...]()
    range_by_cube = ends = Range.empty(cube.bands)
    content = Fingerprint(cube.good_bands)

    def scan_block(block: Block) -> tuple[list[Buffer], set[float], int, Range, Range]:
        """Write the masks of a block.

        Returns the content for the fingerprint, the nodata values that occur, the number of entries
        with a nodata value that count as observed, and the ranges of the observed values without
        and with the mask.
        """
        bands, rows, cols = block
        values = np.asarray(cube.values[block])
        flags = cube.observed_in(values, nodata, rows, cols, bands, whole=whole)
        occurring = {v for v in absent if equals(values, v).any()}
        count = int((equals_any(values, whole) & flags).sum()) if whole else 0
        by_cube_here = here = Range.of(values, flags)
        if mask is not None:
            by_cube.put(bands, rows, flags)
            flags &= mask[..., rows, cols]
            here = Range.of(values, flags)
        measured.put(bands, rows, flags)
        if withheld is not None:
            withheld.put(bands, rows, cube.withheld_in(values) & ~flags)
        return [*content.content(values, flags)], occurring, count, by_cube_here, here

    parts = blocks(cube.shape, cube.dtype.itemsize, 1, chunks[1] if chunks else 1)
    for content_parts, occurring, count, by_cube_here, here in in_threads(scan_block, parts):
        content.add(content_parts)
        absent, spared_count = absent - occurring, spared_count + count
        range_by_cube, ends = range_by_cube.widened(by_cube_here), ends.widened(here)
        plausible = rule.plausible(doubted, *range_by_cube.overall(cube.good_bands))
        if doubted and len(plausible) == len(doubted):  # the range only grows
            break
    if plausible:
        return plausible
    rule.refuse_absent([v for v in listed(nodata) if v in absent])
    if not (ends.low < np.inf).any():
        raise NothingObserved(rule.NOTHING)
    found = ends.low < np.inf
    low, high = np.where(found, ends.low, -np.inf), np.where(found, ends.high, np.inf)
    note = rule.spared_note(whole, spared_count)
    return Scan(measured, by_cube, withheld, low, high, note, str(content))


class Range(NamedTuple):
    """The smallest and largest observed value of each band, (bands,); inf and -inf for none."""

    low: Floats
    high: Floats

    @classmethod
    def empty(cls, bands: int) -> Self:
        return cls(np.full(bands, np.inf), np.full(bands, -np.inf))

    @classmethod
    def of(cls, values: Array, observed: Bools) -> Self:
        """Return the range of the observed values (bands, rows, cols)."""
        low, high = extremes(values, observed)
        none = np.isinf(low)  # observed values are finite
        return cls(np.where(none, np.inf, low), np.where(none, -np.inf, high))

    def widened(self, other: Range) -> Range:
        """Return the range of the values of both."""
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def overall(self, good: Bools) -> tuple[float, float]:
        """Return the range of all values in good bands (bands,)."""
        low, high = self.low[good], self.high[good]
        return float(low.min(initial=np.inf)), float(high.max(initial=-np.inf))


def aims(
    cube: Cube, observed: Bits, withheld: Bits | None, request: Request, work: Path
) -> tuple[Bits, Floats, dict[str, int]]:
    """Return the entries to fill, the gap width there (rows, cols), and counts of entries left.

    The rules are those of `targets`, applied one band at a time.  Adjacent bands with the same mask
    share its analysis.
    """
    good, has_observed = cube.good_bands, observed.some()
    lost = rule.lost_detectors(has_observed[:, None, None], good, cube.detectors)
    measured = cache(lambda: MeasuredBands.of(observed.band_groups(), good, cube.detectors))
    target = Bits(work / "target.bits", cube.shape).empty()
    width = np.zeros(cube.shape[1:])
    left: Counter[str] = Counter()
    withheld = None if request.fill_clouds else withheld
    selection = regions.selection_of(cube, request.region, request.bands)
    planes = [bits for bits in (observed, withheld) if bits is not None]
    last, gaps = ("", b""), Gaps(np.zeros(0, bool), np.zeros(0, bool), 0, 0)
    for band in range(cube.bands):
        digest = blake2b(b"".join(bits.packed(band).tobytes() for bits in planes)).digest()
        if (of := (cube.detectors[band] if cube.detectors else "", digest)) != last:
            screened = withheld and withheld.plane(band)
            last, gaps = of, _gaps(~observed.plane(band), screened, selection.pixels)
        left[rule.WITHHELD] += gaps.screened
        left[regions.ELSEWHERE] += gaps.elsewhere
        if selection.bands is not None and not selection.bands[band]:
            left[regions.OTHER_BAND] += int(gaps.wanted.sum())
            continue
        if not has_observed[band]:
            reason = next(
                (r for r, in_detector in lost.items() if in_detector[band]), rule.EMPTY_BAND
            )
            left[reason] += int(gaps.wanted.sum())
            continue
        if request.bad_bands == "keep" and not good[band]:
            left[rule.BAD_BAND] += int(gaps.wanted.sum())
            continue
        if not gaps.wanted.any():
            continue
        if gaps.aimed is None:
            gaps = _aimed(gaps, np.array([band]), measured, request)
            np.maximum(width, thickness(gaps.missing), out=width, where=gaps.aimed)
        left.update(gaps.left)
        target.put(slice(band, band + 1), slice(0, cube.shape[1]), np.asarray(gaps.aimed)[None])
    return target, width, {reason: n for reason, n in left.items() if n}


class Gaps(NamedTuple):
    """The gaps of bands with the same mask; masks are (rows, cols), counts are pixels."""

    missing: Bools
    wanted: Bools  # missing, not withheld, and in the region
    screened: int  # withheld
    elsewhere: int  # missing, not withheld, and not in the region
    aimed: Bools | None = None  # pixels of `wanted` to fill; None until computed
    left: Mapping[str, int] = {}  # reason → pixels of `wanted` left because of their position


def _gaps(missing: Bools, screened: Bools | None, region: Bools | None) -> Gaps:
    """Return the gaps of a mask; which pixels to fill is not yet determined.

    missing, screened (withheld) and region: (rows, cols); None = no pixel withheld, any region.
    """
    lost = missing if screened is None else missing & ~screened
    wanted = lost if region is None else lost & region
    withheld = 0 if screened is None else int(screened.sum())
    return Gaps(missing, wanted, withheld, int((lost & ~wanted).sum()))


def _aimed(gaps: Gaps, band: Ints, measured: Callable[[], MeasuredBands], request: Request) -> Gaps:
    """Return the gaps with the pixels to fill, and counts of those left by max_gap or outside.

    band: (1,) one of the adjacent bands with these gaps.
    """
    aimed, left, choice = gaps.wanted.copy(), Counter[str](), (request.max_gap, request.outside)
    for reason, _, pixels in rule.unfilled(gaps.missing, band, measured, *choice):
        left[reason] += int((aimed & pixels).sum())
        aimed &= ~pixels
    return gaps._replace(aimed=aimed, left=left)
