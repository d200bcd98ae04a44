"""Damage that a file does not declare: each detector suggests, and never decides.

A scene may hold anything, but what is in the scene shows in neighbouring bands too.  So a level
or a value is suspected only if it stands out in its band *and* the bands beside it do not follow;
a line or spectrum only if it repeats exactly where noise would have changed it.
The price: an offset that adjacent bands share is taken for part of the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

from hydiff.cube import Array, Bools, Floats, Ints
from hydiff.errors import ShapeMismatch
from hydiff.gaps.census import frames, named, ranges
from hydiff.gaps.undeclared import FILL_COUNT, suspicion, undeclared

# Fourteen undamaged crops of six sensors, on which these were set, reach the value in brackets
# (Indian Pines' true dropouts left aside).
STRIPE_EXCESS = 8.0  # column offset in spreads of its band, less what the next bands show (6.8)
ROUGH_RATIO = 3.0  # a column's difference to its neighbours, over that of other columns (2.04)
OUTLIER_EXCESS = 8.0  # noise sigmas beyond all eight neighbours (2 entries of 12 million pass)
FOLLOW = 2.0  # the next bands may show a feature of the scene half as strong
SPREAD_FLOOR = 0.1  # of the noise: the least spread of column levels that rounding cannot fake
QUIET = 20  # changes that both neighbouring lines must show for a line without any to be dead
MIN_LINE = 16  # observed pixels to judge a line by
MIN_SPECTRUM = 8  # observed bands to judge a spectrum by; grey pixels of photographs repeat fewer
MIN_FRINGE = 16  # pixels with the spectrum of a corner: equal spectra occur, so many do not
SATURATED_COUNT = 10  # entries at the highest value of a band
SATURATED_RATIO = 5.0  # ... over those at any of the next values below it
SATURATED_LEVELS = 8  # so many of those


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Entries that may not be measurements."""

    kind: str  # one of KINDS
    message: str  # for a person
    missing: Bools  # (bands, rows, cols), True = suspected


def detect(values: Array, observed: Bools, good: Bools | None = None) -> list[Suggestion]:
    """Suspected damage among the observed entries of good bands; at most one entry per kind.

    values: (bands, rows, cols) of any real dtype; observed: that shape or (rows, cols);
    good: (bands,), False = bad band, which is not judged.
    """
    values = np.asarray(values)
    if values.ndim != 3 or observed.shape not in (values.shape, values.shape[1:]):
        raise ShapeMismatch(f"values have shape {values.shape}, observed {observed.shape}")
    entries = np.array(np.broadcast_to(observed, values.shape))
    if good is not None:
        entries &= good[:, None, None]
    if values.dtype.kind == "f":
        entries &= np.isfinite(values)
    suggestions: list[Suggestion] = []
    explained = np.zeros_like(entries)
    for kind, find in DETECTORS.items():
        missing, message = find(values, entries if kind in WHOLE else entries & ~explained)
        missing &= entries
        if missing.any():
            suggestions.append(Suggestion(kind, message, missing))
            explained |= missing
    return suggestions


Finder = Callable[[Array, Bools], tuple[Bools, str]]


# --- exact repeats ----------------------------------------------------------------------------


def fill_values(values: Array, observed: Bools) -> tuple[Bools, str]:
    """One value, or a few, repeated far below (or very far above) all others."""
    data = values[observed]
    fills = undeclared(data)
    missing = np.isin(values, fills) & observed
    share = 100 * missing.sum() / max(len(data), 1)
    n = int(missing.sum())
    return missing, suspicion(fills, f"{n} entries ({share:.2g} %)")


def saturated_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """The highest value of a band, where it is met far more often than those just below it."""
    missing = np.zeros_like(observed)
    tops: list[float] = []
    for k in np.flatnonzero(observed.any(axis=(1, 2))):
        data = values[k][observed[k]]
        top = data.max()
        count = int((data == top).sum())
        if count < SATURATED_COUNT or count == len(data):
            continue
        below = np.sort(data[data != top])[-FILL_COUNT * count :]
        commonest = np.unique(below, return_counts=True)[1][-SATURATED_LEVELS:].max()
        if count > SATURATED_RATIO * commonest:
            missing[k] = observed[k] & (values[k] == top)
            tops.append(float(top))
    at = f"{tops[0]:g}" if len(set(tops)) == 1 else "its highest value"
    n_bands = missing.any(axis=(1, 2)).sum()
    return missing, f"{missing.sum()} entries of {n_bands} bands stand at {at}, as if saturated"


def dead_lines(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Lines that are constant, or repeat the line before, between lines that change a lot."""
    # constant columns would break the lines
    observed = observed & ~_constant_columns(values, observed)[:, None, :]
    constant = _silent(*_changes(values, observed, axis=2))
    repeated = _silent(*_changes(values, observed, axis=1)) & ~constant
    message = _where("line", {"constant": constant, "equal to the line before": repeated})
    dead = constant | repeated
    message += frames(np.flatnonzero(dead.any(axis=0)))
    return np.broadcast_to(dead[:, :, None], values.shape).copy(), message


def dead_columns(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Columns that are constant in a band, or have nothing in common with their neighbours."""
    constant = _constant_columns(values, observed)
    unrelated = _rough_columns(values, observed & ~constant[:, None, :])
    message = _where("column", {"constant": constant, "unlike the columns beside": unrelated})
    dead = (constant | unrelated)[:, None, :]
    return np.broadcast_to(dead, values.shape).copy(), message


def _constant_columns(values: Array, observed: Bools) -> Bools:
    return _silent(*_changes(values.swapaxes(1, 2), observed.swapaxes(1, 2), axis=2))


def _changes(values: Array, observed: Bools, axis: int) -> tuple[Ints, Ints]:
    """Per band and line (bands, rows): neighbours along `axis` that differ, and that are observed.

    axis 2: neighbours in the line; axis 1: the line and the one before it.
    """
    here, before = (slice(1, None), slice(None, -1))
    a, b = ((..., here), (..., before)) if axis == 2 else ((here,), (before,))
    bands, rows, _ = values.shape
    changes, pairs = np.zeros((bands, rows), np.intp), np.zeros((bands, rows), np.intp)
    first = 0 if axis == 2 else 1
    for k in np.flatnonzero(observed.any(axis=(1, 2))):
        both = observed[k][a] & observed[k][b]
        pairs[k, first:] = both.sum(axis=1)
        changes[k, first:] = ((values[k][a] != values[k][b]) & both).sum(axis=1)
    return changes, pairs


def _silent(changes: Ints, pairs: Ints) -> Bools:
    """Lines (bands, rows) without a change whose nearest lively lines, on both sides, change a lot.

    A quiet part of a scene fades out; a dead line begins at once.
    """
    judged = pairs >= MIN_LINE - 1
    quiet = judged & (changes == 0)
    lively = np.where(quiet | ~judged, -1, changes)
    nearest = [_carried(lively), _carried(lively[:, ::-1])[:, ::-1]]
    least = np.minimum(*[np.where(n < 0, np.maximum(*nearest), n) for n in nearest])
    result: Bools = quiet & (least >= QUIET)
    return result


def _carried(lively: Ints) -> Ints:
    """The last entry that is not negative, carried along the rows; -1 before the first."""
    index = np.where(lively >= 0, np.arange(lively.shape[1]), 0)
    result: Ints = np.take_along_axis(lively, np.maximum.accumulate(index, axis=1), axis=1)
    return result


def constant_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Pixels with the same value in all bands, or with exactly the spectrum of a corner."""
    enough = observed.sum(axis=0) >= MIN_SPECTRUM
    reference = np.take_along_axis(values, observed.argmax(axis=0)[None], axis=0)[0]
    flat = enough & _equal(values, observed, [reference] * len(values))
    if flat.sum() > 0.9 * enough.sum():  # a cube without any spectra: nothing stands out
        return np.zeros_like(observed), ""
    fringe = np.zeros_like(flat)
    for r, c in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        if observed[:, r, c].sum() >= MIN_SPECTRUM and not flat[r, c]:
            like_corner = observed & observed[:, r, c][:, None, None]
            same = enough & _equal(values, like_corner, values[:, r, c])
            labels, _ = ndimage.label(same)
            patch = same & (labels == labels[r, c])
            fringe |= patch if patch.sum() >= MIN_FRINGE else False
    message = f"{(flat | fringe).sum()} pixels have one value in all bands, or a corner's spectrum"
    return np.broadcast_to(flat | fringe, values.shape).copy(), message


def _equal(values: Array, observed: Bools, others: Iterable[Any]) -> Bools:
    """Pixels (rows, cols) whose observed entries all equal others, one per band."""
    equal = np.ones(values.shape[1:], bool)
    for band, measured, other in zip(values, observed, others, strict=True):
        equal &= (band == other) | ~measured
        if not equal.any():
            break
    return equal


# --- statistics -------------------------------------------------------------------------------


def stripes(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Columns of a band whose level is offset against the columns and bands beside them."""
    flags = np.zeros((values.shape[0], values.shape[2]), bool)
    bands, step, noise = _column_steps(values, observed)
    if len(bands) > 1:
        level = np.cumsum(np.pad(np.nan_to_num(step), ((0, 0), (1, 0))), axis=1)
        padded = np.pad(level, ((0, 0), (3, 3)), mode="reflect")
        beside = [padded[:, k : k + level.shape[1]] for k in (0, 1, 2, 4, 5, 6)]
        offset = level - np.median(beside, axis=0)
        spread = np.maximum(1.4826 * _median(np.abs(offset)), SPREAD_FLOOR * _median(noise))
        spread = np.maximum(spread, _resolution(values, observed, bands))
        score = offset / spread[:, None]
        flags[bands] = _excess(score, *_beside(score)) > STRIPE_EXCESS
    message = _where("column", {"offset against the columns beside": flags})
    return np.broadcast_to(flags[:, None, :], values.shape).copy(), message


def _rough_columns(values: Array, observed: Bools) -> Bools:
    """Columns (bands, cols) that differ from both neighbours as no other in the band does."""
    flags = np.zeros((values.shape[0], values.shape[2]), bool)
    bands, _, noise = _column_steps(values, observed)
    if noise.size and len(bands) > 1:
        padded = np.pad(noise, ((0, 0), (1, 1)), constant_values=np.nan)
        nearer = np.fmin(padded[:, 1:], padded[:, :-1])
        floor = _resolution(values, observed, bands)
        usual = np.maximum(_median(nearer), floor)[:, None]
        ratio = np.log(np.maximum(np.nan_to_num(nearer), floor[:, None]) / usual)
        next_to = np.maximum(0, np.maximum(*_beside(ratio)))
        flags[bands] = ratio - next_to > np.log(ROUGH_RATIO)
        # a border column has one neighbour: if that one is bad, nothing speaks against the column
        flags[:, [0, -1]] &= ~flags[:, [1, -2]]
    return flags


def _column_steps(values: Array, observed: Bools) -> tuple[Ints, Floats, Floats]:
    """Median and robust std, down the rows, of the difference between a column and the one before.

    Returns the bands that can be judged and two arrays (those bands, cols - 1), NaN where too few
    rows are observed.  Differences within a row cancel the scene, which a column's median does not.
    """
    step, noise = [], []
    bands = np.flatnonzero(observed.sum(axis=(1, 2)) >= MIN_LINE)
    if values.shape[2] < 8:  # the window that a level is compared with
        bands = bands[:0]
    for b in bands:
        column = np.where(observed[b], values[b], np.nan).T.astype(np.float64)
        change = np.diff(column, axis=0)
        change[np.isfinite(change).sum(axis=1) < MIN_LINE] = np.nan
        step.append(_median(change))
        noise.append(1.4826 * _median(np.abs(change - step[-1][:, None])))
    shape = (len(bands), max(values.shape[2] - 1, 0))
    return bands, np.array(step).reshape(shape), np.array(noise).reshape(shape)


def outlier_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Entries far outside the range of their eight neighbours where the next bands are not."""
    missing = np.zeros_like(observed)
    bands = np.flatnonzero(observed.sum(axis=(1, 2)) >= MIN_LINE)
    if len(bands) < 2 or observed.shape[2] < 3:  # nothing to follow, or no noise to measure
        return missing, ""
    floor = _resolution(values, observed, bands)
    # three bands at a time: a second cube of scores need not fit in memory
    before, here = np.zeros(observed.shape[1:]), np.zeros(observed.shape[1:])
    for k in range(len(bands) + 1):
        after = np.zeros_like(here)
        if k < len(bands):
            after = _beyond_neighbours(values[bands[k]], observed[bands[k]], floor[k])
        if k > 0:
            missing[bands[k - 1]] = _excess(here, before, after) > OUTLIER_EXCESS
        before, here = here, after
    n_bands = missing.any(axis=(1, 2)).sum()
    return missing, f"{missing.sum()} entries of {n_bands} bands are far from all their neighbours"


def _beyond_neighbours(values: Array, observed: Bools, floor: float) -> Floats:
    """How far (rows, cols) each pixel lies outside the range of its neighbours, in noise sigmas."""
    band = np.where(observed, values, np.nan).astype(np.float64)
    padded = np.pad(band, 1, constant_values=np.nan)
    rows, cols = band.shape
    shifts = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    low = high = np.full_like(band, np.nan)
    for i, j in shifts:
        neighbour = padded[i : i + rows, j : j + cols]
        low, high = np.fmin(low, neighbour), np.fmax(high, neighbour)
    bend = band[:, 1:-1] - (band[:, 2:] + band[:, :-2]) / 2
    noise = max(1.4826 * float(_median(np.abs(bend).ravel()[None])[0]), floor)
    return np.nan_to_num((band - np.clip(band, low, high)) / noise)


def _excess(score: Floats, before: Floats, after: Floats) -> Floats:
    """How far a score exceeds FOLLOW times what the next bands have of the same sign."""
    sign = np.sign(score)
    followed = np.maximum(sign * before, sign * after)
    result: Floats = np.abs(score) - FOLLOW * np.maximum(followed, 0)
    return result


def _beside(score: Floats) -> tuple[Floats, Floats]:
    """Scores (bands, cols) of the band before and the band after, 0 beyond the ends."""
    padded = np.pad(score, ((1, 1), (0, 0)))
    return padded[:-2], padded[2:]


def _resolution(values: Array, observed: Bools, bands: Ints) -> Floats:
    """The smallest difference that counts in each band: one step of an integer, 1/1000 of floats.

    Some bands are nearly noiseless, and there rounding would look like damage.
    """
    if values.dtype.kind != "f":
        return np.ones(len(bands))
    samples = (values[b][observed[b]] for b in bands)
    spans = [np.ptp(np.quantile(s[:: len(s) // 4096 + 1], [0.01, 0.99])) for s in samples]
    return 1e-3 * np.array(spans, np.float64) + np.finfo(float).tiny


def _median(a: Floats) -> Floats:
    """Median along the last axis of (n, m) without the NaN; NaN where nothing is left."""
    a = np.sort(a, axis=-1)  # NaN go last
    n = np.isfinite(a).sum(axis=-1)
    pick = np.maximum(np.stack([n - 1, n]) // 2, 0)
    low, high = (np.take_along_axis(a, p[:, None], axis=-1)[:, 0] for p in pick)
    result: Floats = np.where(n > 0, (low + high) / 2, np.nan)
    return result


def _where(noun: str, damage: dict[str, Bools]) -> str:
    """ "lines 3-5 are constant in all bands" from flags (bands, lines) by damage; "" for none."""
    parts = []
    for what, flags in damage.items():
        lines, bands = (np.flatnonzero(flags.any(axis=axis)) for axis in (0, 1))
        some = f"some bands of {ranges(bands, 4)}" if len(bands) != 1 else f"band {bands[0]}"
        where = "all bands" if flags[:, lines].all() else some
        parts += [f"{named(noun, lines)} {what} in {where}"] if len(lines) else []
    return "; ".join(parts)


DETECTORS: dict[str, Finder] = {
    "dead lines": dead_lines,
    "dead columns": dead_columns,
    "constant pixels": constant_pixels,
    "fill value": fill_values,
    "saturated pixels": saturated_pixels,
    "stripes": stripes,
    "outlier pixels": outlier_pixels,
}
KINDS = tuple(DETECTORS)
# These name a cause, so they look at all entries; the others at what is not yet explained.
WHOLE = {"constant pixels", "fill value"}
