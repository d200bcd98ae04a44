"""Detect damage that a file does not declare.  The detectors only suggest; the user decides.

Features of the scene appear in neighbouring bands too.  A level or a value is therefore suspected
only if it stands out in its band and *not* in the bands beside it; a line or a spectrum only if it
repeats exactly where noise would have changed it.  Therefore an offset shared by adjacent
bands is not found: it is taken for part of the scene.
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
from hydiff.maths.noise import ROBUST

# These thresholds were set on fourteen undamaged crops of six sensors.  In brackets: the largest
# value reached there (without the true dropouts of Indian Pines).
STRIPE_EXCESS = 8.0  # offset of a column in spreads of its band, less that of the next bands (6.8)
ROUGH_RATIO = 3.0  # difference of a column to its neighbours, relative to other columns (2.04)
OUTLIER_EXCESS = 8.0  # noise stds beyond all eight neighbours (2 entries of 12 million exceed it)
FOLLOW = 2.0  # a feature of the scene is at least 1/FOLLOW as strong in the next bands
SPREAD_FLOOR = 0.1  # smallest spread of column levels, in noise stds: less may be rounding
QUIET = 20  # a line without changes is dead only if lines on both sides have this many changes
MIN_LINE = 16  # fewest observed pixels to judge a line
MIN_SPECTRUM = 8  # fewest observed bands to judge a spectrum: photographs have grey pixels
MIN_FRINGE = 16  # fewest pixels with the spectrum of a corner; a few equal spectra are normal
SATURATED_COUNT = 10  # fewest entries at the highest value of a band
SATURATED_RATIO = 5.0  # their count relative to the count at any of the next lower values
SATURATED_LEVELS = 8  # number of next lower values


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Entries suspected not to be measurements."""

    kind: str  # one of KINDS
    message: str  # for the user
    missing: Bools  # (bands, rows, cols), True = suspected


def detect(values: Array, observed: Bools, good: Bools | None = None) -> list[Suggestion]:
    """Return the suspected damage among observed entries of good bands, one item per kind at most.

    values: (bands, rows, cols) of any real dtype.  observed: the same shape or (rows, cols).
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
    for kind, detector in DETECTORS.items():
        missing, message = detector(values, entries if kind in WHOLE else entries & ~explained)
        missing &= entries
        if missing.any():
            suggestions.append(Suggestion(kind, message, missing))
            explained |= missing
    return suggestions


# takes values and the entries to judge, (bands, rows, cols); returns the suspects and a message
Finder = Callable[[Array, Bools], tuple[Bools, str]]


# --- exact repeats ----------------------------------------------------------------------------


def fill_values(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find repeated values far below (or very far above) all others."""
    data = values[observed]
    fills = undeclared(data)
    missing = np.isin(values, fills) & observed
    share = 100 * missing.sum() / max(len(data), 1)
    n = int(missing.sum())
    return missing, suspicion(fills, f"{n} entries ({share:.2g} %)")


def saturated_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find entries at the highest value of a band if it occurs far more often than lower ones."""
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
    """Find lines that are constant, or equal to the line before, between lines that vary a lot."""
    # without constant columns, whose values would make a constant line look varied
    observed = observed & ~_constant_columns(values, observed)[:, None, :]
    constant = _silent(*_changes(values, observed, axis=2))
    repeated = _silent(*_changes(values, observed, axis=1)) & ~constant
    message = _where("line", {"constant": constant, "equal to the line before": repeated})
    dead = constant | repeated
    message += frames(np.flatnonzero(dead.any(axis=0)))
    return np.broadcast_to(dead[:, :, None], values.shape).copy(), message


def dead_columns(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find columns that are constant in a band, or unlike both of their neighbours."""
    constant = _constant_columns(values, observed)
    unrelated = _rough_columns(values, observed & ~constant[:, None, :])
    message = _where("column", {"constant": constant, "unlike the columns beside": unrelated})
    dead = (constant | unrelated)[:, None, :]
    return np.broadcast_to(dead, values.shape).copy(), message


def _constant_columns(values: Array, observed: Bools) -> Bools:
    """Flags (bands, cols) of constant columns between columns that vary; see `_silent`."""
    return _silent(*_changes(values.swapaxes(1, 2), observed.swapaxes(1, 2), axis=2))


def _changes(values: Array, observed: Bools, axis: int) -> tuple[Ints, Ints]:
    """Count, per band and line (bands, rows), the neighbour pairs that differ, and all pairs.

    Only pairs of observed pixels count.  axis 2: pairs within the line; axis 1: pairs of a pixel
    and the one above it.
    """
    later, earlier = (slice(1, None), slice(None, -1))
    a, b = ((..., later), (..., earlier)) if axis == 2 else ((later,), (earlier,))
    bands, rows, _ = values.shape
    changes, pairs = np.zeros((bands, rows), np.intp), np.zeros((bands, rows), np.intp)
    first = 0 if axis == 2 else 1
    for k in np.flatnonzero(observed.any(axis=(1, 2))):
        both = observed[k][a] & observed[k][b]
        pairs[k, first:] = both.sum(axis=1)
        changes[k, first:] = ((values[k][a] != values[k][b]) & both).sum(axis=1)
    return changes, pairs


def _silent(changes: Ints, pairs: Ints) -> Bools:
    """Find lines (bands, rows) without changes if the nearest other lines on both sides vary a lot.

    This separates dead lines, which begin abruptly, from quiet parts of the scene, which fade.
    """
    judged = pairs >= MIN_LINE - 1
    quiet = judged & (changes == 0)
    n_changes = np.where(quiet | ~judged, -1, changes)
    nearest = [_carried(n_changes), _carried(n_changes[:, ::-1])[:, ::-1]]
    least = np.minimum(*[np.where(n < 0, np.maximum(*nearest), n) for n in nearest])
    result: Bools = quiet & (least >= QUIET)
    return result


def _carried(counts: Ints) -> Ints:
    """Repeat the last entry that is not negative along the rows; -1 before the first."""
    index = np.where(counts >= 0, np.arange(counts.shape[1]), 0)
    result: Ints = np.take_along_axis(counts, np.maximum.accumulate(index, axis=1), axis=1)
    return result


def constant_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find pixels with the same value in all bands, or with exactly the spectrum of a corner."""
    enough = observed.sum(axis=0) >= MIN_SPECTRUM
    reference = np.take_along_axis(values, observed.argmax(axis=0)[None], axis=0)[0]
    flat = enough & _equal(values, observed, [reference] * len(values))
    if flat.sum() > 0.9 * enough.sum():  # nearly all are flat: none stands out
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
    """Find pixels (rows, cols) whose observed entries all equal `others`, one item per band."""
    equal = np.ones(values.shape[1:], bool)
    for band, measured, other in zip(values, observed, others, strict=True):
        equal &= (band == other) | ~measured
        if not equal.any():
            break
    return equal


# --- statistics -------------------------------------------------------------------------------


def stripes(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find columns whose level is offset from nearby columns, but not so in the next bands."""
    flags = np.zeros((values.shape[0], values.shape[2]), bool)
    bands, step, noise = _column_steps(values, observed)
    if len(bands) > 1:
        level = np.cumsum(np.pad(np.nan_to_num(step), ((0, 0), (1, 0))), axis=1)
        padded = np.pad(level, ((0, 0), (3, 3)), mode="reflect")
        nearby = [padded[:, k : k + level.shape[1]] for k in (0, 1, 2, 4, 5, 6)]
        offset = level - np.median(nearby, axis=0)
        spread = np.maximum(ROBUST * _median(np.abs(offset)), SPREAD_FLOOR * _median(noise))
        spread = np.maximum(spread, _resolution(values, observed, bands))
        score = offset / spread[:, None]
        flags[bands] = _excess(score, *_beside(score)) > STRIPE_EXCESS
    message = _where("column", {"offset against the columns beside": flags})
    return np.broadcast_to(flags[:, None, :], values.shape).copy(), message


def _rough_columns(values: Array, observed: Bools) -> Bools:
    """Find columns (bands, cols) that differ from both neighbours far more than others do."""
    flags = np.zeros((values.shape[0], values.shape[2]), bool)
    bands, _, noise = _column_steps(values, observed)
    if noise.size and len(bands) > 1:
        padded = np.pad(noise, ((0, 0), (1, 1)), constant_values=np.nan)
        nearer = np.fmin(padded[:, 1:], padded[:, :-1])
        floor = _resolution(values, observed, bands)
        usual = np.maximum(_median(nearer), floor)[:, None]
        ratio = np.log(np.maximum(np.nan_to_num(nearer), floor[:, None]) / usual)
        in_next_bands = np.maximum(0, np.maximum(*_beside(ratio)))
        flags[bands] = ratio - in_next_bands > np.log(ROUGH_RATIO)
        # a border column is compared with one neighbour only: not flagged if that one is bad
        flags[:, [0, -1]] &= ~flags[:, [1, -2]]
    return flags


def _column_steps(values: Array, observed: Bools) -> tuple[Ints, Floats, Floats]:
    """Return median and robust std, over the rows, of the difference of adjacent columns.

    First comes the list of bands that can be judged, then two arrays (those bands, cols - 1), NaN
    where too few rows are observed.  Differences within a row cancel the scene; differences of the
    medians of columns would not.
    """
    step, noise = [], []
    bands = np.flatnonzero(observed.sum(axis=(1, 2)) >= MIN_LINE)
    if values.shape[2] < 8:  # too few for the window of `stripes`
        bands = bands[:0]
    for b in bands:
        column = np.where(observed[b], values[b], np.nan).T.astype(np.float64)
        change = np.diff(column, axis=0)
        change[np.isfinite(change).sum(axis=1) < MIN_LINE] = np.nan
        step.append(_median(change))
        noise.append(ROBUST * _median(np.abs(change - step[-1][:, None])))
    shape = (len(bands), max(values.shape[2] - 1, 0))
    return bands, np.array(step).reshape(shape), np.array(noise).reshape(shape)


def outlier_pixels(values: Array, observed: Bools) -> tuple[Bools, str]:
    """Find entries far outside the range of their eight neighbours if the next bands are not."""
    missing = np.zeros_like(observed)
    bands = np.flatnonzero(observed.sum(axis=(1, 2)) >= MIN_LINE)
    if len(bands) < 2 or observed.shape[2] < 3:  # no next band, or no noise estimate
        return missing, ""
    floor = _resolution(values, observed, bands)
    # scores of three bands at a time, as those of all bands may not fit into memory
    before, current = np.zeros(observed.shape[1:]), np.zeros(observed.shape[1:])
    for k in range(len(bands) + 1):
        after = np.zeros_like(current)
        if k < len(bands):
            after = _beyond_neighbours(values[bands[k]], observed[bands[k]], floor[k])
        if k > 0:
            missing[bands[k - 1]] = _excess(current, before, after) > OUTLIER_EXCESS
        before, current = current, after
    n_bands = missing.any(axis=(1, 2)).sum()
    return missing, f"{missing.sum()} entries of {n_bands} bands are far from all their neighbours"


def _beyond_neighbours(values: Array, observed: Bools, floor: float) -> Floats:
    """Signed distance (rows, cols) of each pixel to the range of its neighbours, in noise stds."""
    band = np.where(observed, values, np.nan).astype(np.float64)
    padded = np.pad(band, 1, constant_values=np.nan)
    rows, cols = band.shape
    shifts = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    low = high = np.full_like(band, np.nan)
    for i, j in shifts:
        neighbour = padded[i : i + rows, j : j + cols]
        low, high = np.fmin(low, neighbour), np.fmax(high, neighbour)
    bend = band[:, 1:-1] - (band[:, 2:] + band[:, :-2]) / 2
    noise = max(ROBUST * float(_median(np.abs(bend).ravel()[None])[0]), floor)
    return np.nan_to_num((band - np.clip(band, low, high)) / noise)


def _excess(score: Floats, before: Floats, after: Floats) -> Floats:
    """Return the size of a score less FOLLOW times the score of the next bands of the same sign."""
    sign = np.sign(score)
    followed = np.maximum(sign * before, sign * after)
    result: Floats = np.abs(score) - FOLLOW * np.maximum(followed, 0)
    return result


def _beside(score: Floats) -> tuple[Floats, Floats]:
    """Return the scores (bands, cols) of the previous and of the next band; 0 beyond the ends."""
    padded = np.pad(score, ((1, 1), (0, 0)))
    return padded[:-2], padded[2:]


def _resolution(values: Array, observed: Bools, bands: Ints) -> Floats:
    """Smallest relevant difference in each band: 1 for integers, 1/1000 of the span for floats.

    Some bands are nearly noiseless, and without this limit rounding would look like damage.
    """
    if values.dtype.kind != "f":
        return np.ones(len(bands))
    samples = (values[b][observed[b]] for b in bands)
    spans = [np.ptp(np.quantile(s[:: len(s) // 4096 + 1], [0.01, 0.99])) for s in samples]
    return 1e-3 * np.array(spans, np.float64) + np.finfo(float).tiny


def _median(a: Floats) -> Floats:
    """Median along the last axis of (n, m), ignoring NaN; NaN where all are NaN."""
    a = np.sort(a, axis=-1)  # sorting puts NaN last
    n = np.isfinite(a).sum(axis=-1)
    pick = np.maximum(np.stack([n - 1, n]) // 2, 0)
    low, high = (np.take_along_axis(a, p[:, None], axis=-1)[:, 0] for p in pick)
    result: Floats = np.where(n > 0, (low + high) / 2, np.nan)
    return result


def _where(noun: str, damage: dict[str, Bools]) -> str:
    """Describe flags (bands, lines) by damage, as "lines 3-5 are constant in all bands"."""
    parts = []
    for words, flags in damage.items():
        lines, bands = (np.flatnonzero(flags.any(axis=axis)) for axis in (0, 1))
        some_bands = f"some bands of {ranges(bands, 4)}" if len(bands) != 1 else f"band {bands[0]}"
        where = "all bands" if flags[:, lines].all() else some_bands
        parts += [f"{named(noun, lines)} {words} in {where}"] if len(lines) else []
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
# These detectors judge all entries, as they name the cause of the damage.  The others judge only
# entries that no earlier detector suspects.
WHOLE = {"constant pixels", "fill value"}
