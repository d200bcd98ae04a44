"""A census of the gaps: how much is missing, where, how wide, and what lies outside the data.

`observed` is bool, True = measured, (rows, cols) when all bands share it or (bands, rows, cols).
Indices of bands, rows and columns count from 0, ranges include both ends, widths are in pixels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Ints
from hydiff.errors import ShapeMismatch
from hydiff.gaps.mask import EIGHT, FRAME, Run, band_groups, thickness
from hydiff.gaps.spectrum import MeasuredBands, outside_entries

MAX_GAPS = 100  # most gaps that a census lists; its counts include all of them


@dataclass(frozen=True)
class Gap:
    """Connected missing pixels (8-connectivity) of bands that share a mask."""

    rows: Run
    cols: Run
    pixels: int
    width: float  # largest thickness, px
    outside_pixels: int  # those outside the observed entries of a band, see `gaps.spectrum`
    bands: tuple[Run, ...]


@dataclass(frozen=True)
class Census:
    """Amount, places and widths of the missing entries.

    Bands without any observed pixel are listed in `empty_bands` and have no gaps, so
    missing = inside + outside + rows · cols · len(empty_bands).
    """

    shape: tuple[int, int, int]
    entries: int
    missing: int
    missing_share: tuple[float, ...]  # per band
    shared: bool  # True if all bands have the same mask
    gaps: tuple[Gap, ...]  # gaps of good bands, largest first, at most MAX_GAPS
    n_gaps: int  # a gap that many bands share counts once
    widest: float  # px; 0 without gaps
    inside: int  # missing entries between observed ones, see `gaps.spectrum`
    outside: int  # all other missing entries, except those of empty bands
    full_lines: tuple[int, ...]  # rows that no good band observes
    full_columns: tuple[int, ...]
    dead_columns: Mapping[int, tuple[int, ...]]  # missing columns by band, without full_columns
    empty_bands: tuple[int, ...]
    detector_gaps: tuple[Run, ...]  # runs of two or more empty bands

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and dicts for JSON; shares are rounded to six digits."""
        shares = [round(share, 6) for share in self.missing_share]
        return {**asdict(self), "missing_share": shares}

    def describe(self) -> list[str]:
        """Return the census as a few lines of text."""
        if self.missing == 0:
            return [f"nothing is missing in {self.entries:,} entries"]
        return [*_describe_amount(self), *_describe_gaps(self), *_describe_lines(self)]


def census(
    observed: Bools,
    good: Bools | None = None,
    *,
    bands: int | None = None,
    detectors: Sequence[str] | None = None,
) -> Census:
    """Count and locate the missing entries of a mask.

    observed: (bands, rows, cols), or (rows, cols) for `bands` bands (as many as `good`, else 1).
    good: (bands,); bad bands are counted, but not searched for gaps, lines and columns.
    detectors: (bands,) names, which separate what lies outside the data of each.
    """
    if observed.ndim == 2 and bands is None:
        bands = 1 if good is None else len(good)
    groups = band_groups(observed, bands)
    n_bands, (rows, cols) = sum(len(members) for members, _ in groups), observed.shape[-2:]
    if good is not None and good.shape != (n_bands,):
        raise ShapeMismatch(f"the mask has {n_bands} bands, good has shape {good.shape}")
    usable = np.ones(n_bands, bool) if good is None else good
    measured = cache(partial(MeasuredBands.of, groups, usable, detectors))
    n_missing = np.zeros(n_bands, np.int64)  # missing entries per band
    n_outside = np.zeros(n_bands, np.int64)  # of these, how many lie outside
    gaps: list[Gap] = []
    for members, plane in groups:
        n_missing[members] = np.count_nonzero(~plane)
        if plane.any():
            for of, outer in outside_entries(~plane, members, measured):
                n_outside[of] = np.count_nonzero(outer)
                gaps += _gaps(~plane, outer, of[usable[of]])
    gaps.sort(key=lambda gap: (-gap.pixels, gap.rows, gap.cols, gap.bands))
    empty = np.flatnonzero(n_missing == rows * cols)
    return Census(
        shape=(n_bands, rows, cols),
        entries=n_bands * rows * cols,
        missing=int(n_missing.sum()),
        missing_share=tuple((n_missing / (rows * cols)).tolist()),
        shared=len(groups) == 1,
        gaps=tuple(gaps[:MAX_GAPS]),
        n_gaps=len(gaps),
        widest=max((gap.width for gap in gaps), default=0.0),
        inside=int((n_missing - n_outside).sum()) - len(empty) * rows * cols,
        outside=int(n_outside.sum()),
        **_lost_lines(groups, good)._asdict(),
        empty_bands=tuple(empty.tolist()),
        detector_gaps=tuple(run for run in _runs(empty) if run[1] > run[0]),
    )


class LostLines(NamedTuple):
    """Rows and columns that are missing completely; see the fields of `Census`."""

    full_lines: tuple[int, ...] = ()
    full_columns: tuple[int, ...] = ()
    dead_columns: Mapping[int, tuple[int, ...]] = {}


def _lost_lines(groups: list[tuple[Ints, Bools]], good: Bools | None) -> LostLines:
    """Find the lost lines and columns in the good bands that hold data."""
    full_rows: list[Bools] = []
    columns: dict[int, Bools] = {}
    for members, observed in groups:
        good_members = members if good is None else members[good[members]]
        if observed.any() and len(good_members):
            full_rows.append(np.all(~observed, axis=1))
            columns |= dict.fromkeys(good_members.tolist(), np.all(~observed, axis=0))
    if not full_rows:
        return LostLines()
    full = np.all(list(columns.values()), axis=0)
    dead = {band: _indices(columns[band] & ~full) for band in sorted(columns)}
    dead = {band: lost for band, lost in dead.items() if lost}
    return LostLines(_indices(np.all(full_rows, axis=0)), _indices(full), dead)


def _gaps(missing: Bools, outside_pixels: Bools, bands: Ints) -> list[Gap]:
    """Return the gaps of a plane `missing` (rows, cols) that `bands` share; [] without bands."""
    if not len(bands):
        return []
    runs = _runs(bands)
    labels, n_gaps = ndimage.label(missing, EIGHT)
    numbers = np.arange(1, n_gaps + 1)
    widths = ndimage.maximum(thickness(missing), labels, numbers)
    pixels = np.bincount(labels.ravel(), minlength=n_gaps + 1)[1:]
    n_outside = np.bincount(labels[outside_pixels], minlength=n_gaps + 1)[1:]
    return [
        Gap(
            rows=(box[0].start, box[0].stop - 1),
            cols=(box[1].start, box[1].stop - 1),
            pixels=int(pixels[k]),
            width=float(widths[k]),
            outside_pixels=int(n_outside[k]),
            bands=runs,
        )
        for k, box in enumerate(ndimage.find_objects(labels))
    ]


def _indices(flags: Bools) -> tuple[int, ...]:
    """Indices of the True entries of flags (n,)."""
    return tuple(np.flatnonzero(flags).tolist())


def _runs(indices: Iterable[int]) -> tuple[Run, ...]:
    """Group ascending indices into runs: 3 4 5 9 → (3, 5), (9, 9)."""
    runs: list[list[int]] = []
    for i in map(int, indices):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return tuple((first, last) for first, last in runs)


def named(noun: str, indices: Collection[int], one: str = "is", many: str = "are") -> str:
    """Return e.g. "row 4 is" or "rows 4-6, 9 are"."""
    plural = len(indices) > 1
    return f"{noun}{'s' * plural} {ranges(indices)} {many if plural else one}"


def ranges(indices: Iterable[int], most: int = 8) -> str:
    """Write ascending indices as text: "3-5, 9", cut after `most` runs."""
    runs = _runs(indices)
    parts = [f"{a}-{b}" if b > a else f"{a}" for a, b in runs[:most]]
    return ", ".join(parts) + (f" and {len(runs) - most} more" if len(runs) > most else "")


def frames(lines: Iterable[int]) -> str:
    """Return " (2 frames of 32 lines)" if all runs are whole frames, as in EMIT files; else ""."""
    lengths = [last - first + 1 for first, last in _runs(lines)]
    if not lengths or any(length % FRAME for length in lengths):
        return ""
    count = sum(lengths) // FRAME
    return f" ({count} frame{'s' * (count > 1)} of {FRAME} lines)"


def _describe_amount(c: Census) -> Iterator[str]:
    """Yield lines about the share of missing entries and about empty bands."""
    low, high = (f"{100 * f(c.missing_share):.1f}" for f in (min, max))
    spread = "as much in each band" if low == high else f"from {low} to {high} % of a band"
    spread = "all bands share the mask" if c.shared else spread
    yield f"{100 * c.missing / c.entries:.1f} % of {c.entries:,} entries are missing; {spread}"
    if c.empty_bands:
        run = " (a whole detector is lost: left as it is)" if c.detector_gaps else ""
        yield f"{named('band', c.empty_bands, 'holds', 'hold')} no data at all{run}"


def _describe_gaps(c: Census) -> Iterator[str]:
    """Yield lines about the number and width of gaps, and about entries outside the data."""
    if c.n_gaps:
        yield f"{c.n_gaps:,} gap{'s' * (c.n_gaps > 1)}, widest {c.widest:.0f} px"
    if c.outside:
        yield (
            f"{c.outside:,} missing entries lie outside: no line joins observed entries "
            f"across them; {c.inside:,} lie inside"
        )


def _describe_lines(c: Census) -> Iterator[str]:
    """Yield lines about lost rows and columns; of dead columns, those of one band only."""
    if c.full_lines:
        yield f"{named('row', c.full_lines)} missing across the full width{frames(c.full_lines)}"
    if c.full_columns:
        yield f"{named('column', c.full_columns)} missing over the full height"
    if c.dead_columns:
        band, columns = next(iter(c.dead_columns.items()))
        others = len(c.dead_columns) - 1
        more = f", and so for {others} more bands with columns of their own" if others else ""
        yield f"{named('column', columns)} missing in band {band}{more}"
