"""Flags of each entry: how it was filled, and why it was missing; one byte each.

Both bytes are sets of bits, like `flag_masks` in the CF conventions.  `FLAGS` are not set for
measured entries that are unchanged, nor for entries that are still missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]

# bits of filled entries; FROM_BANDS and FROM_SPACE exclude each other
FILLED, FROM_BANDS, FROM_SPACE, PRIOR, REFERENCE, FAR, OUTSIDE, CHANGED = (1 << i for i in range(8))
# bits of missing entries
NODATA, FRAME, MASK, CLOUD, SATURATED = (1 << i for i in range(5))

FLAGS = {
    FILLED: "filled",
    FROM_BANDS: "from_kept_bands",
    FROM_SPACE: "from_space",
    PRIOR: "prior_10_percent_or_more",
    REFERENCE: "reference_used",
    FAR: "beyond_validated_distance",
    OUTSIDE: "outside_observed_range",
    CHANGED: "measured_value_changed_on_request",
}
IN_WORDS = {  # of the filled entries with a flag
    FROM_BANDS: "from the bands that their pixel kept",
    FROM_SPACE: "from other pixels",
    PRIOR: "with a share of the trained network of 10 % or more",
    REFERENCE: "with a reference image",
    FAR: "farther from data than was tested",
    OUTSIDE: "outside the observed range of their band",
}
REASONS = {
    NODATA: "nodata",
    FRAME: "lost_frame",
    MASK: "mask",
    CLOUD: "cloud",
    SATURATED: "saturated",
}
UNTRIED = "not tested on hidden copies of the gaps"  # where all filled entries are FAR
PRIOR_SHARE = 0.1  # share of the pretrained network in an entry from which PRIOR is set


class About(NamedTuple):
    """Description of a layer of a fill."""

    text: str
    bits: Mapping[int, str]  # bit → name; empty for a layer of numbers


LAYERS = {  # of a fill; each is (bands, rows, cols)
    "flags": About("how hydiff filled the value; 0 where it was measured and not touched", FLAGS),
    "why": About("why the value was missing before hydiff filled it", REASONS),
    "sigma": About("standard uncertainty of the value that hydiff filled in", {}),
}


def attributes(name: str) -> dict[str, Any]:
    """Return the CF attributes of a layer."""
    layer = LAYERS[name]
    if not layer.bits:
        return {"long_name": layer.text}
    return {
        "long_name": layer.text,
        "standard_name": "status_flag",
        "flag_masks": np.array(list(layer.bits), np.uint8),
        "flag_meanings": " ".join(layer.bits.values()),
    }


def texts(name: str) -> dict[str, str]:
    """Return the CF attributes of a layer as texts, for formats with textual metadata."""
    entries = attributes(name)
    return {k: " ".join(map(str, v)) if k == "flag_masks" else str(v) for k, v in entries.items()}


def of_fill(filled: Bools, kept: Bools, sources: Bytes, outside: Bools, changed: Bools) -> Bytes:
    """Return the flags (bands, rows, cols) of a fill, from masks of that shape.

    kept: filled from observed bands of the same pixel.  sources: bits PRIOR, REFERENCE and FAR.
    outside: value outside the range observed in the band.  changed: measured, and replaced.
    """
    flags = np.where(kept, np.uint8(FILLED | FROM_BANDS), np.uint8(FILLED | FROM_SPACE))
    flags = flags | sources
    flags |= _where(outside, OUTSIDE)
    flags *= filled
    flags |= _where(changed, CHANGED)
    return flags


def _where(entries: Bools, bit: int) -> Bytes:
    """Return the bit where entries are True; a product is several times as fast as indexing."""
    return entries * np.uint8(bit)


def outside_of(values: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> Bools:
    """Return True where values (bands, rows, cols) lie outside the observed range.

    low, high: (bands,) ends of the range.
    """
    if values.dtype.kind == "f":  # the ends have values of that dtype: convert them, not the values
        low, high = low.astype(values.dtype), high.astype(values.dtype)
    beyond: Bools = (values < low[:, None, None]) | (values > high[:, None, None])
    return beyond


def reasons(
    missing: Bools, own: Bools, withheld: Bools, named: Bytes | None, frames: Bools
) -> Bytes:
    """Return why entries (bands, rows, cols) are missing, as bits of `REASONS`.

    own: missing by the cube's own rule.  withheld: screened for clouds in the product.
    named: bits from masks and quality layers, (rows, cols) or (bands, rows, cols).
    frames: (rows,) lost lines.
    """
    why = _where(own & ~withheld, NODATA)
    why |= _where(withheld, CLOUD)
    if named is not None:
        why |= named
    why |= _where(missing & (why == 0), MASK)  # missing by a buffer, or by damage detection
    why |= _where(frames, FRAME)[:, None]
    why *= missing
    return why


def lost_frames(rows: Bools) -> Bools:
    """(rows,) True for lines without any measured entry between lines that have some.

    rows: (rows,) whether a line has a measured entry.
    """
    before = np.maximum.accumulate(rows)
    after = np.maximum.accumulate(rows[::-1])[::-1]
    lost: Bools = ~rows & before & after
    return lost


def counted(flags: Bytes, bits: Mapping[int, str] = FLAGS) -> dict[str, int]:
    """Return the number of entries with each flag, by its name; flags without any are left out."""
    number = np.bincount(flags.ravel(), minlength=256)
    which = np.arange(256)
    counts = {name: int(number[(which & bit) != 0].sum()) for bit, name in bits.items()}
    return {name: count for name, count in counts.items() if count}


def shares(counts: Mapping[str, Any]) -> list[str]:
    """Return texts with the share of the filled entries that have a flag, for each flag in use."""
    filled = counts.get(FLAGS[FILLED], 0)
    lines = []
    if isinstance(filled, int) and filled:
        all_far = counts.get(FLAGS[FAR]) == filled
        in_words = IN_WORDS | ({FAR: UNTRIED} if all_far else {})
        by_flag = {words: counts.get(FLAGS[bit], 0) for bit, words in in_words.items()}
        present = ((words, n) for words, n in by_flag.items() if isinstance(n, int) and n)
        lines += [f"{100 * n / filled:.3g} % {words}" for words, n in present]
    changed = counts.get(FLAGS[CHANGED], 0)
    if isinstance(changed, int) and changed:
        lines.append(f"{changed:,} measured values changed, as requested")
    return lines
