"""Limits of filled values: the observed range of each band, and the physically possible range.

Filled values beyond the observed range are always counted.  They are clipped only on request, to
the observed range of their band or to the physical range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import UnknownName
from hydiff.gaps.stored import float_for
from hydiff.io.headers import FACTOR, scaling

CLIPS = ("none", "observed", "physical")
BEYOND = ("below", "above", "negative", "clipped")  # kinds of filled values that are counted


class Reach(NamedTuple):
    """Range of the observed values of each band, and limits of the filled ones; all (bands,)."""

    low: Floats  # smallest observed value, -inf where none was observed
    high: Floats  # largest observed value, inf where none was observed
    least: Floats  # limits that filled values are clipped to
    most: Floats
    clip: str  # one of CLIPS

    def of(self, bands: slice) -> Reach:
        """Return the limits of a range of bands only."""
        low, high, least, most = (end[bands] for end in self[:4])
        return Reach(low, high, least, most, self.clip)


def reach_of(cube: Cube, low: Floats, high: Floats, clip: str) -> Reach:
    """Make a Reach from the smallest and largest observed value of each band and a clip option."""
    check_clip(clip)
    most = np.full(cube.bands, np.inf)
    least = -most
    if clip == "observed":
        least, most = low, high
    elif clip == "physical":
        least, most = physical(cube)
    return Reach(low, high, least, most, clip)


def check_clip(clip: str) -> None:
    """Raise UnknownName unless `clip` is one of CLIPS."""
    if clip not in CLIPS:
        raise UnknownName("choice for clip", clip, CLIPS)


def extremes(values: Array, observed: Bools) -> tuple[Floats, Floats]:
    """Return the smallest and largest observed value of each band (bands,); -inf, inf for none."""
    parts = [band[s] for band, s in zip(values, observed, strict=True)]
    low = [float(p.min()) if len(p) else -np.inf for p in parts]
    high = [float(p.max()) if len(p) else np.inf for p in parts]
    return np.array(low), np.array(high)


def physical(cube: Cube) -> tuple[Floats, Floats]:
    """Return the limits (bands,) as stored values: 0, and 1 for reflectance, infinite for others.

    A file holds reflectance if its unit contains "reflectance", or if it has ENVI's `reflectance
    scale factor`, the stored value of 1.  Without that factor, limits are converted to stored
    values by the scale and offset that the file declares.
    """
    factor = _reflectance_factor(cube)
    if np.isfinite(factor).all():
        return 0 * factor, factor
    declared = scaling(cube.attrs, cube.bands) or ([1.0] * cube.bands, [0.0] * cube.bands)
    gain, offset = np.array(declared)
    units = [*(cube.attrs.get("geotiff", {}).get("units") or ())]
    units += [cube.attrs.get(k) for k in ("units", "data units")]
    bright = any("reflectance" in str(unit).lower() for unit in units)
    stated = gain != 0  # a band without a gain has no limits
    gain = np.where(stated, gain, 1.0)
    ends = np.sort([-offset / gain, (1 - offset) / gain if bright else np.inf * gain], axis=0)
    return np.where(stated, ends[0], -np.inf), np.where(stated, ends[1], np.inf)


def _reflectance_factor(cube: Cube) -> Floats:
    """(bands,) stored value of a reflectance of 1; NaN where the cube does not state it."""
    try:
        factor = np.asarray(cube.attrs.get(FACTOR, np.nan), dtype=np.float64)
        return np.broadcast_to(np.where(factor == 0, np.nan, factor), (cube.bands,))
    except (TypeError, ValueError):  # no number, or not one per band
        return np.full(cube.bands, np.nan)


def bounded(
    dtype: np.dtype[Any], estimate: Floats, where: Bools, reach: Reach
) -> tuple[Floats, dict[str, int]]:
    """Return the clipped estimate (bands, rows, cols), and counts of its entries by BEYOND.

    `below` and `above` count entries outside the observed range of their band, `negative` those
    below 0 where no observed value of the band is, `clipped` those that were clipped.  Values are
    compared as the dtype will store them.
    """
    low, high, least, most = (end[:, None, None] for end in reach[:4])
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.rint(estimate) if dtype.kind in "iu" else estimate.astype(dtype)
    # the observed limits are values of this dtype, so the comparison is exact
    below = where & (stored < low.astype(stored.dtype))
    beyond = {"below": below, "above": where & (stored > high.astype(stored.dtype))}
    beyond["negative"] = below & (stored < 0) & (low >= 0) if below.any() else below
    beyond["clipped"] = np.zeros(0, bool)
    if reach.clip != "none":
        beyond["clipped"] = where & ((stored < least) | (stored > most))
        estimate = np.where(where, np.clip(estimate, least, most), estimate)
    return estimate, {name: int(np.count_nonzero(flags)) for name, flags in beyond.items()}


def notes(beyond: Mapping[str, int], clip: str) -> list[str]:
    """Describe the filled entries that lie beyond the observed range; [] if there are none."""
    outside = beyond["below"] + beyond["above"]
    clipped = beyond["clipped"]
    if not outside and not clipped:
        return []
    negative = f", {beyond['negative']:,} of them negative" if beyond["negative"] else ""
    message = f"{outside:,} filled values lie outside the observed range of their band{negative}"
    if clip == "none":
        return [f"{message}; `clip='observed'` would limit them"]
    return [f"{message}; {clipped:,} were clipped to the {clip} range"]


def composed(cube: Cube, observed: Bools, trusted: Bools, estimate: Floats) -> Floats:
    """Return the estimate where `trusted`, and the cube's values at other observed entries.

    NaN elsewhere.  The result has the float type of the cube, see `float_for`.
    """
    cube_values = np.asarray(cube.values)
    values = np.where(observed, cube_values, float_for(cube_values.dtype).type(np.nan))
    np.copyto(values, estimate, where=trusted, casting="same_kind")
    return values
