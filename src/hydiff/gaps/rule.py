"""Rules of every fill: observed entries, and entries to fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from hydiff import flags
from hydiff.cube import (
    Array,
    Bools,
    Cube,
    Ints,
    Nodata,
    equals,
    equals_any,
    listed,
)
from hydiff.errors import BadValue, NothingObserved, ShapeMismatch, UnknownName
from hydiff.gaps import mask, undeclared
from hydiff.gaps.regions import Selection
from hydiff.gaps.spectrum import MeasuredBands, outside_entries
from hydiff.io.blocks import Block, blocks, sampled
from hydiff.io.threads import in_threads

NOTHING = "every entry is missing: there is nothing to fill from; check `nodata=` and the mask"
WITHHELD = "screened for clouds, not lost"  # this and the next two: why entries stay missing
EMPTY_BAND = "band without any observed pixel"
BAD_BAND = "bad band"
NODATA_IN = ("all", "any")
PLAUSIBLE = 0.05  # share of the range of other values: nodata within this margin may be measured
SUSPECTED = 1 << 20  # most entries that are searched for undeclared nodata values
FEW = 16  # fewer distinct values mean a mask or a class map, where no value can stand apart


def check_numbers(cube: Cube) -> None:
    """Raise BadValue unless the values are integers or floats."""
    if cube.dtype.kind not in "iuf":
        raise BadValue(
            f"{cube.dtype} values: expected integers or floats; convert them first "
            "(of complex values, fill the real and the imaginary part apart)"
        )


def observed_entries(
    cube: Cube, observed: Bools | None, nodata: Nodata, nodata_in: str | None = None
) -> tuple[Bools, list[str]]:
    """Return `measured_entries`, of which there is at least one; else raise NothingObserved."""
    measured, notes = measured_entries(cube, observed, nodata, nodata_in)
    if not measured.any():
        raise NothingObserved(NOTHING)
    return measured, notes


def measured_entries(
    cube: Cube, observed: Bools | None, nodata: Nodata, nodata_in: str | None = None
) -> tuple[Bools, list[str]]:
    """Return the entries (bands, rows, cols) measured by cube and mask, and any `spared_note`."""
    values = np.asarray(cube.values)
    whole = counted_whole(cube, nodata, nodata_in)
    refuse_absent([v for v in listed(nodata) if not equals(values, v).any()])
    measured = cube.observed(nodata, whole=whole)
    notes = spared_note(whole, int((equals_any(values, whole) & measured).sum()) if whole else 0)
    if observed is not None:
        measured = measured & checked_mask(np.asarray(observed), cube.shape)
    return measured, notes


def reasons(
    cube: Cube,
    observed: Bools,
    nodata: Nodata,
    nodata_in: str | None,
    mask: Bools | None,
    named: Array | None,
) -> Array:
    """Return why each entry (bands, rows, cols) is missing, as bits of `flags.REASONS`.

    mask: True = measured.  named: reason bits, shaped like the mask; None: MASK where it is False.
    """
    if named is None and mask is not None:
        named = np.where(mask, 0, flags.MASK).astype(np.uint8)
    whole = counted_whole(cube, nodata, nodata_in)
    missing_by_rule = ~cube.observed(nodata, whole=whole)
    withheld = missing_by_rule & cube.withheld_in(np.asarray(cube.values))
    frames = flags.lost_frames(np.asarray(observed.any(axis=(0, 2))))
    return flags.reasons(~observed, missing_by_rule, withheld, named, frames)


class NoSuchNodata(BadValue):
    """Nodata values that the user gave do not occur in the cube."""

    absent: tuple[float, ...] = ()


def refuse_absent(absent: Sequence[float]) -> None:
    if absent:
        names = ", ".join(f"{v:g}" for v in absent)
        error = NoSuchNodata(
            f"nodata {names} occurs nowhere in the cube; leave it out, "
            "or see `hydiff mask` for values that look like it"
        )
        error.absent = tuple(absent)
        raise error


def check_nodata(nodata: Nodata, nodata_in: str | None) -> None:
    if nodata_in is not None and nodata_in not in NODATA_IN:
        raise UnknownName("choice for nodata_in", nodata_in, NODATA_IN)
    if nodata_in is not None and nodata is None:
        raise BadValue("`nodata_in=` goes with `nodata=VALUE`: name the value")


def counted_whole(cube: Cube, nodata: Nodata, nodata_in: str | None) -> tuple[float, ...]:
    """Return the nodata values that count only in pixels where every good band is missing.

    With `nodata_in` "all" these are all values of `nodata`, with "any" none.  By default, those
    that could be measured: in the range of other values of good bands, widened by PLAUSIBLE of it.
    """
    check_nodata(nodata, nodata_in)
    if nodata is None or nodata_in == "any":
        return ()
    return listed(nodata) if nodata_in == "all" else _plausible(cube, listed(nodata))


def _plausible(cube: Cube, nodata: tuple[float, ...]) -> tuple[float, ...]:
    """Return the nodata values that lie in the range of other values or near it."""
    low, high, found = np.inf, -np.inf, tuple[float, ...]()
    good = cube.good_bands[:, None, None]
    for block in blocks(cube.shape, cube.dtype.itemsize, 1):
        values = np.asarray(cube.values[block])
        rest = values[good & cube.observed_in(values, nodata)]
        if len(rest):
            low, high = min(low, float(rest.min())), max(high, float(rest.max()))
        found = plausible(nodata, low, high)
        if len(found) == len(nodata):  # the range only grows
            break
    return found


def plausible(nodata: Sequence[float], low: float, high: float) -> tuple[float, ...]:
    """Return the nodata values that lie in a range of other values or near it."""
    margin = PLAUSIBLE * (high - low)
    return tuple(v for v in nodata if low - margin <= v <= high + margin)


def spared_note(whole: Sequence[float], spared: int) -> list[str]:
    """Note on the `spared` entries: they equal a value of `whole`, but count as measured."""
    if not spared:
        return []
    names = ", ".join(f"{v:g}" for v in whole)
    return [
        f"{spared:,} entries with the value {names} count as measured: other bands of their pixels "
        "have other values, near enough to it; `nodata_in='any'` would take them as missing"
    ]


def suspected(cube: Cube, observed: Bools | None = None, nodata: Nodata = None) -> list[str]:
    """Describe measured values (a sample if many) that lie far from all others, as nodata would."""
    if cube.dtype.kind not in "iuf":
        return []
    places, sample = sampled(cube)

    def measured_at(place: Block) -> Array:
        """Return the measured values of good bands in a block."""
        bands, rows, cols = place
        values = np.asarray(cube.values[place])
        measured = cube.observed_in(values, nodata, rows, cols)
        measured &= cube.good_bands[bands, None, None]
        if observed is not None:
            measured &= observed[(bands, rows, cols) if observed.ndim == 3 else (rows, cols)]
        return values[measured]

    data = np.concatenate([*in_threads(measured_at, places)])
    data = data[:: -(-len(data) // SUSPECTED) or 1]
    fills = undeclared.undeclared(data) if len(data) else []
    if not fills or len(np.unique(data[~np.isin(data, fills)])) < FEW:
        return []
    share = 100 * float(np.isin(data, fills).mean())
    return [undeclared.suspicion(fills, f"{share:.2g} % of {sample or 'the observed entries'}")]


def checked_mask(observed: Array, shape: tuple[int, int, int]) -> Bools:
    """Return the mask unchanged; raise unless it is boolean and fits a cube of this shape."""
    if observed.dtype != bool:
        raise BadValue(f"expected a boolean mask, found {observed.dtype}; pass `mask != 0`")
    if observed.shape not in (shape, shape[1:]):
        raise ShapeMismatch(
            f"the mask has shape {observed.shape}; expected {shape[1:]} (rows, cols) "
            f"or {shape} (bands, rows, cols), as the cube"
        )
    return observed


def with_own_mask(observed: Array | None, cube: Cube, data: Any) -> Array | None:
    """Return a mask (True = measured) without the masked entries of the NumPy array of a cube.

    In integers the cube marks them by its nodata value, which others that are given would replace.
    """
    if not isinstance(data, np.ma.MaskedArray):
        return observed
    own = cube.observed()
    return own if observed is None else own & checked_mask(np.asarray(observed), cube.shape)


def targets(
    cube: Cube,
    observed: Bools,
    *,
    bad_bands: str,
    max_gap: float | None,
    outside: str,
    fill_clouds: bool = False,
    selection: Selection = Selection(None, None),
) -> tuple[Bools, dict[str, int]]:
    """Return the missing entries to fill (bands, rows, cols) and, by reason, how many are left."""
    target = ~observed
    n_left: dict[str, int] = {}

    def leave(reason: str, bands: Ints, pixels: Bools) -> None:
        entries = target[bands] & pixels
        if entries.any():
            n_left[reason] = n_left.get(reason, 0) + int(entries.sum())
            target[bands] &= ~pixels

    for reason, entries in _set_aside(cube, fill_clouds, selection):
        if count := int((target & entries).sum()):
            n_left[reason] = count
            target &= ~entries
    lost = lost_detectors(observed, cube.good_bands, cube.detectors)
    groups = mask.band_groups(observed)
    measured = cache(partial(MeasuredBands.of, groups, cube.good_bands, cube.detectors))
    for bands, plane in groups:
        missing = ~plane
        if missing.all():
            for reason, lost_bands in lost.items():
                leave(reason, bands[lost_bands[bands]], missing)
            leave(EMPTY_BAND, bands, missing)
        elif missing.any():
            if bad_bands == "keep":
                leave(BAD_BAND, bands[~cube.good_bands[bands]], missing)
            for where in unfilled(missing, bands, measured, max_gap, outside):
                leave(*where)
    return target, n_left


def _set_aside(cube: Cube, fill_clouds: bool, selection: Selection) -> Iterator[tuple[str, Bools]]:
    """Yield (reason, entries) for screened clouds and for entries outside the selection."""
    if not fill_clouds and cube.withheld_rule is not None:
        yield WITHHELD, cube.withheld_in(np.asarray(cube.values))
    yield from selection.left_out()


def left_lines(left: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each reason to leave entries missing, with the option that fills them."""
    hints = {"outside the observed": "`outside='fill'`", "screened": "`fill_clouds=True`"}
    for reason, count in left.items():
        options = [option for word, option in hints.items() if reason.startswith(word)]
        hint = f"; {options[0]} takes them" if options else ""
        yield f"left missing: {count:,} entries, {reason}{hint}"


def check_choices(bad_bands: str, max_gap: float | None, outside: str) -> None:
    """Raise an error unless these options, which choose the entries to fill, are valid."""
    for name, value in (("bad_bands", bad_bands), ("outside", outside)):
        if value not in ("fill", "keep"):
            raise UnknownName(f"choice for {name}", value, ("fill", "keep"))
    if max_gap is not None and not max_gap > 0:
        raise BadValue(f"`max_gap={max_gap:g}`: expected a width in pixels above 0")


def unfilled(
    missing: Bools,
    bands: Ints,
    measured: Callable[[], MeasuredBands],
    max_gap: float | None,
    outside: str,
) -> Iterator[tuple[str, Ints, Bools]]:
    """Yield (reason, bands, pixels (rows, cols)) to leave because of where they lie in a gap.

    missing: (rows, cols) of `bands`.
    """
    if outside == "keep":
        for members, pixels in outside_entries(missing, bands, measured):
            yield "outside the observed pixels", members, pixels
    if max_gap is not None:
        yield f"gap wider than {max_gap:g} pixels", bands, mask.thickness(missing) > max_gap


def lost_detectors(
    observed: Bools, good: Bools, detectors: Sequence[str] | None = None
) -> dict[str, Bools]:
    """Flags (bands,) of bands lost together, by reason: a named detector, or a run of good bands.

    No other band carries their content, so any fill would be an invention.
    """
    empty: Bools = np.asarray(~observed.any(axis=(1, 2)))
    lost: dict[str, Bools] = {}
    for name in sorted(set(detectors or ())):
        members = np.array([d == name for d in detectors or ()])
        if (empty | ~good)[members].all() and (empty & good & members).any():
            lost[f"the whole detector {name} is lost: nothing to fill it from"] = members
    edges = np.flatnonzero(np.diff(np.pad(empty & good, 1).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2):
        if stop - first > 1 and not any(members[first:stop].all() for members in lost.values()):
            run = np.zeros(empty.shape, np.bool_)
            run[first:stop] = True
            lost[f"bands {first}-{stop - 1} are lost together: nothing to fill them from"] = run
    return lost
