"""What σ is made of: the budget in a record, and the uncertainty that a product states of itself.

σ is the standard uncertainty of the noise-free value at a missing entry, relative to the
calibration of the product it was filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats, Values, as_cube
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.flags import FLAGS, PRIOR, REFERENCE, counted
from hydiff.io.blocks import blocks
from hydiff.io.parsing import parsing

MEASURAND = "the noise-free value at a missing entry, relative to the calibration of this product"
LISTS = (".txt", ".csv")  # one number per band
# how the errors of two entries hang together, by where they come from
INTERPOLATION = "between neighbouring filled pixels of a gap, and between the bands of a pixel"
NOISE = "between filled entries that share measured neighbours; none between the measured ones"
CHOICE = "between all entries at one distance from the data, in one quarter of the bands"
LEARNED = "between neighbouring pixels of a gap, and between all bands"
OTHER_IMAGE = "between all entries of a band, as a gain and an offset are"
INPUT = "as the product states; taken as common to all entries of a band"
OUTSIDE = ("calibration", "atmospheric correction")


def opened(given: Any, cube: Cube) -> Values | Floats | None:
    """The uncertainty of the values of a cube, in their unit: (bands,), or like the cube.

    given: an array, a cube, the path of a file that is read as a cube, or of a list of numbers
    (.txt, .csv); None is none.
    """
    if given is None:
        return None
    named, array = given, given
    if isinstance(given, str | Path):
        path = Path(given)
        if path.suffix.lower() in LISTS:
            with parsing(path, "a list with one number per band"):
                array = np.loadtxt(path, delimiter="," if "," in path.read_text() else None)
        else:
            array = io.read(path).values
    elif np.ndim(given) != 1:
        array, named = as_cube(given).values, "the array"
    shape = tuple(array.shape) if hasattr(array, "shape") else np.shape(array)
    if shape not in ((cube.bands,), cube.shape):
        raise ShapeMismatch(
            f"`input_uncertainty=`: {named} has shape {shape}, but the cube is (bands, rows, cols) "
            f"= {cube.shape}; give one number per band, or one per entry"
        )
    own: Values | Floats = np.asarray(array, np.float64) if len(shape) == 1 else array
    return own


def of_input(given: Any, cube: Cube, observed: Values) -> Floats | None:
    """(bands,) the uncertainty that was given for a cube, over its measured entries."""
    own = opened(given, cube)
    return None if own is None else by_band(own, observed)


def by_band(own: Values | Floats, observed: Values) -> Floats:
    """(bands,) the root mean square of an uncertainty over the measured entries of each band.

    Weights of a fill add up to 1, so what the entries of a band have in common arrives whole in
    the values that are filled from them.  observed: (bands, rows, cols), True = measured.
    """
    if len(own.shape) == 1:
        _check(np.asarray(own), np.ones(own.shape, bool))
        return np.asarray(own, np.float64)
    squares, count = np.zeros((2, own.shape[0]))
    bands, rows, cols = own.shape
    for block in blocks((bands, rows, cols), 8):
        values, measured = np.asarray(own[block], np.float64), np.asarray(observed[block])
        _check(values, measured)
        squares[block[0]] += np.square(np.where(measured, values, 0.0)).sum(axis=(1, 2))
        count[block[0]] += measured.sum(axis=(1, 2))
    return np.sqrt(squares / np.maximum(count, 1))


def _check(values: Array, measured: Bools) -> None:
    used = values[measured]
    if not (np.isfinite(used) & (used >= 0)).all():
        raise BadValue(
            "`input_uncertainty=`: negative numbers, NaN or Inf at measured entries; "
            "expected standard uncertainties in the unit of the cube"
        )


def total(sigma: Array, own: Floats | None, filled: Bools) -> Array:
    """σ (bands, rows, cols) of the filled entries, NaN elsewhere; with the product's own (bands,),
    if it is known, in quadrature."""
    both = sigma if own is None else np.hypot(sigma, own[:, None, None])
    return np.where(filled, both, np.nan)


def stated(
    sigma: Array | None,
    sigma_y: Array,
    tried: bool,
    own: Floats | None,
    flags: Array,
    filled: Bools,
) -> tuple[Array | None, dict[str, Any] | None]:
    """The `total` error bars of a fill and their `budget`; None where its method gives none.

    flags: of each entry.
    """
    if sigma is None:
        return None, None
    return total(sigma, own, filled), budget(sigma_y, counted(flags), tried, own)


def notes(own: Floats | None, bars: bool) -> list[str]:
    """That the uncertainty of the product (bands,) is in no error bar, if there are none."""
    without = "the input uncertainty was not used: this method gives no error bars to add it to; "
    return [] if own is None or bars else [without + "`auto` and `smooth` with error_bars=true do"]


def budget(
    sigma_y: Array, flags: Mapping[str, int], tried: bool, own: Floats | None
) -> dict[str, Any]:
    """What σ holds and what it does not; JSON-able.

    sigma_y: (bands,) noise assumed; flags: entries by flag; tried: on hidden copies of the gaps;
    own: (bands,) uncertainty of the product, in the unit of the cube.
    """
    parts: list[dict[str, Any]] = [
        {"component": "interpolation", "correlation": INTERPOLATION},
        {"component": "propagated noise", "correlation": NOISE, "sigma_y": _median(sigma_y)},
    ]
    if tried:
        parts.append({"component": "model choice", "correlation": CHOICE})
    for bit, name, words in ((PRIOR, "prior", LEARNED), (REFERENCE, "reference", OTHER_IMAGE)):
        if count := flags.get(FLAGS[bit], 0):
            parts.append({"component": name, "correlation": words, "entries": count})
    if own is not None:
        parts.append({"component": "input", "correlation": INPUT, "median": _median(own)})
    how = "errors on hidden copies of the gaps" if tried else "the posterior of the method"
    apart = [] if own is not None else [*OUTSIDE]
    return {"measurand": MEASURAND, "from": how, "included": parts, "not_included": apart}


def _median(values: Array) -> float:
    return float(np.median(values))
