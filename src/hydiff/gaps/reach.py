"""How far observed values reach, and what becomes of filled values beyond them.

Counted they are always; clipped only if that is asked, to what was observed in their band or to
what is physically possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.errors import UnknownName
from hydiff.gaps.rule import float_for

CLIPS = ("none", "observed", "physical")
BEYOND = ("below", "above", "negative", "clipped")  # what is counted


class Reach(NamedTuple):
    """How far the observed values of each band reach, and the filled ones may; all (bands,)."""

    low: Floats  # the smallest that was observed, -inf where none was
    high: Floats
    least: Floats  # what filled values are clipped to
    most: Floats
    clip: str

    def of(self, bands: slice) -> Reach:
        low, high, least, most = (end[bands] for end in self[:4])
        return Reach(low, high, least, most, self.clip)


def reach_of(cube: Cube, low: Floats, high: Floats, clip: str) -> Reach:
    """From the smallest and largest observed value of each band, and what to clip to."""
    check_clip(clip)
    free = np.full(cube.bands, np.inf)
    ends = {"none": (-free, free), "observed": (low, high), "physical": physical(cube)}[clip]
    return Reach(low, high, *ends, clip)


def check_clip(clip: str) -> None:
    if clip not in CLIPS:
        raise UnknownName("choice for clip", clip, CLIPS)


def extremes(values: Array, observed: Bools) -> tuple[Floats, Floats]:
    """The smallest and the largest observed value of each band (bands,); -inf and inf for none."""
    parts = [band[s] for band, s in zip(values, observed, strict=True)]
    low = [float(p.min()) if len(p) else -np.inf for p in parts]
    high = [float(p.max()) if len(p) else np.inf for p in parts]
    return np.array(low), np.array(high)


def physical(cube: Cube) -> tuple[Floats, Floats]:
    """The stored values (bands,) of 0, and of 1 where the file says that it holds reflectance.

    It does by a unit or a name of the unit with "reflectance" in it, or by ENVI's `reflectance
    scale factor`, which is the value of 1.  Scale and offset are those that the file declares.
    """
    box, ones = cube.attrs.get("geotiff", {}), np.ones(cube.bands)
    gain = _per_band(cube, box.get("scales"), "data gain values", 1.0)
    offset = _per_band(cube, box.get("offsets"), "data offset values", 0.0)
    units = [*(box.get("units") or ()), *(cube.attrs.get(k) for k in ("units", "data units"))]
    factor = cube.attrs.get("reflectance scale factor")
    if factor is not None:
        return 0 * ones, float(factor) * ones
    bright = any("reflectance" in str(unit).lower() for unit in units)
    ends = np.sort([-offset / gain, (1 - offset) / gain if bright else np.inf * gain], axis=0)
    return ends[0], ends[1]


def _per_band(cube: Cube, listed: Any, key: str, usual: float) -> Floats:
    entry = listed or cube.attrs.get(key) or usual
    try:
        numbers = np.broadcast_to(np.asarray(entry, dtype=np.float64), (cube.bands,))
    except ValueError:
        return np.full(cube.bands, usual)
    return numbers


def bounded(
    dtype: np.dtype[Any], estimate: Floats, where: Bools, reach: Reach
) -> tuple[Floats, dict[str, int]]:
    """The estimate (bands, rows, cols) within the limits, and how many entries of it, as their
    dtype will hold them, lie `below` or `above` all that was observed in their band, and how many
    are `negative` where nothing observed is."""
    low, high, least, most = (end[:, None, None] for end in reach[:4])
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.rint(estimate) if dtype.kind in "iu" else estimate.astype(dtype)
    # the ends of what was observed are values of that dtype: nothing need be converted
    below = where & (stored < low.astype(stored.dtype))
    beyond = {"below": below, "above": where & (stored > high.astype(stored.dtype))}
    beyond["negative"] = below & (stored < 0) & (low >= 0) if below.any() else below
    beyond["clipped"] = np.zeros(0, bool)
    if reach.clip != "none":
        beyond["clipped"] = where & ((stored < least) | (stored > most))
        estimate = np.where(where, np.clip(estimate, least, most), estimate)
    return estimate, {name: int(np.count_nonzero(flags)) for name, flags in beyond.items()}


def notes(beyond: Mapping[str, int], clip: str) -> list[str]:
    """What to say of filled entries outside of what was observed."""
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
    """The estimate where it is trusted: in the gaps, and where noise has touched what was seen.

    Elsewhere the cube's own values; NaN where neither has one.  In the float type of the cube.
    """
    own = np.asarray(cube.values)
    values = np.where(observed, own, float_for(own.dtype).type(np.nan))
    np.copyto(values, estimate, where=trusted, casting="same_kind")
    return values
