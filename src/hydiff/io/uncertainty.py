"""The components of σ: the budget in a record, and the uncertainty that a product itself states.

σ is the standard uncertainty of the noise-free value at a missing entry, relative to the
calibration of the product it was filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from hydiff import io
from hydiff.cube import Array, Bools, Cube, Floats, Values, as_cube, as_mask
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.flags import FLAGS, PRIOR, REFERENCE, counted
from hydiff.io import npz
from hydiff.io.blocks import blocks
from hydiff.io.headers import scaling
from hydiff.io.parsing import check_real, parsing
from hydiff.io.regular import exists, is_there
from hydiff.option_types import of_type

MEASURAND = "the noise-free value at a missing entry, relative to the calibration of this product"
LISTS = (".txt", ".csv")  # one number per band
# between which entries errors are correlated, by the origin of the errors
INTERPOLATION = "between neighbouring filled pixels of a gap, and between the bands of a pixel"
NOISE = "between filled entries that share measured neighbours; none between the measured ones"
CHOICE = "between all entries at one distance from the data, in one quarter of the bands"
LEARNED = "between neighbouring pixels of a gap, and between all bands"
OTHER_IMAGE = "between all entries of a band, as a gain and an offset are"
INPUT = "as the product states; taken as common to all entries of a band"
OUTSIDE = ("calibration", "atmospheric correction")


def opened(given: Any, cube: Cube) -> Values | Floats | None:
    """Return the uncertainty of a cube's values, in their unit: (bands,), or shaped as the cube.

    given: one number for all bands, an array, a cube, the path of a file that is read as a cube, or
    of a list of numbers (.txt, .csv, .npy, .npz); None returns None.
    """
    if given is None:
        return None
    if isinstance(given, Real):
        number = of_type(
            "input_uncertainty", given, float, "a standard uncertainty in the cube's unit"
        )
        return np.full(cube.bands, float(number))
    label, array = given, given
    if isinstance(given, str | Path):
        path = Path(given)
        if path.suffix.lower() in LISTS:
            if not exists(path):
                raise BadValue(f"{path}: no such file; check the path")
            with parsing(path, "a list with one number per band"):
                array = np.loadtxt(path, delimiter="," if "," in path.read_text() else None)
        elif (listed := _numpy_list(path)) is not None:
            array = listed
        else:
            product = io.read(path)
            _check_scale(product, cube, path)
            array = product.values
    elif np.ndim(given) != 1:
        array, label = as_cube(as_mask(given, cube, "uncertainty")).values, "the array"
    shape = tuple(array.shape) if hasattr(array, "shape") else np.shape(array)
    if shape not in ((cube.bands,), cube.shape):
        raise ShapeMismatch(
            f"`input_uncertainty=`: {label} has shape {shape}, but the cube is (bands, rows, cols) "
            f"= {cube.shape}; give one number, one number per band, or one per entry"
        )
    uncertainty: Values | Floats = np.asarray(array, np.float64) if len(shape) == 1 else array
    return uncertainty


def _numpy_list(path: Path) -> Array | None:
    """Return the array of a .npy, or the only one of an .npz, if it has one axis; else None."""
    if path.suffix.lower() not in npz.SUFFIXES or not is_there(path):
        return None
    with parsing(path, "a numpy file"):
        if npz.is_archive(path):
            if [len(shape) for shape, _ in npz.members(path).values()] != [1]:
                return None
            with np.load(path, allow_pickle=False) as arrays:
                array = np.asarray(arrays[arrays.files[0]])
        else:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        check_real(array.dtype, path)
    return array if array.ndim == 1 else None


def _check_scale(product: Cube, cube: Cube, path: Path) -> None:
    """Raise BadValue if a file states gains of its values other than those of the cube."""
    stated, own = (scaling(each.attrs, each.bands) for each in (product, cube))
    if stated is not None and (own is None or not np.allclose(stated[0], own[0])):
        raise BadValue(
            f"`input_uncertainty=`: {path} has the scale {stated[0][0]:g}, the cube "
            f"{1 if own is None else own[0][0]:g}; expected values in the unit of the cube's file"
        )


def of_input(given: Any, cube: Cube, observed: Values) -> Floats | None:
    """(bands,) uncertainty given for a cube, over its measured entries; None if none was given."""
    uncertainty = opened(given, cube)
    return None if uncertainty is None else by_band(uncertainty, observed)


def by_band(own: Values | Floats, observed: Values) -> Floats:
    """(bands,) root mean square of an uncertainty over the measured entries of each band.

    The weights of a fill add up to 1, so an error that the entries of a band have in common is
    passed on in full to the values filled from them.  observed: (bands, rows, cols), True =
    measured.
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
    """Raise BadValue unless all measured entries are finite and 0 or more."""
    used = values[measured]
    if not (np.isfinite(used) & (used >= 0)).all():
        raise BadValue(
            "`input_uncertainty=`: negative numbers, NaN or Inf at measured entries; "
            "expected standard uncertainties in the unit of the cube"
        )


def total(sigma: Array, own: Floats | None, filled: Bools) -> Array:
    """σ (bands, rows, cols) of the filled entries, NaN elsewhere; own: the uncertainty (bands,) of
    the product, which is added in quadrature if it is known."""
    combined = sigma if own is None else np.hypot(sigma, own[:, None, None])
    return np.where(filled, combined, np.nan)


def stated(
    sigma: Array | None,
    sigma_y: Array,
    tried: bool,
    own: Floats | None,
    flags: Array,
    filled: Bools,
) -> tuple[Array | None, dict[str, Any] | None]:
    """Return the `total` error bars of a fill and their `budget`; None if its method gives none.

    flags: of each entry.
    """
    if sigma is None:
        return None, None
    return total(sigma, own, filled), budget(sigma_y, counted(flags), tried, own)


def notes(own: Floats | None, bars: bool) -> list[str]:
    """Return a note that the product's uncertainty (bands,) was not used, if there are no bars."""
    message = "the input uncertainty was not used: this method gives no error bars to add it to; "
    return [] if own is None or bars else [message + "`auto` and `smooth` with error_bars=true do"]


def budget(
    sigma_y: Array, flags: Mapping[str, int], tried: bool, own: Floats | None
) -> dict[str, Any]:
    """Return what σ includes and what it does not, as JSON-able data.

    sigma_y: (bands,) assumed noise; flags: number of entries by flag; tried: whether the method was
    tried on hidden copies of the gaps; own: (bands,) uncertainty of the product, in the unit of the
    cube.
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
        size = {"median": _median(own), "by_band": own.tolist()}
        parts.append({"component": "input", "correlation": INPUT, **size})
    origin = "errors on hidden copies of the gaps" if tried else "the posterior of the method"
    not_included = [] if own is not None else [*OUTSIDE]
    return {"measurand": MEASURAND, "from": origin, "included": parts, "not_included": not_included}


def in_common(budget: Mapping[str, Any] | None) -> Floats | None:
    """(bands,) part of σ that the filled entries of a band have in common; None if there is none.

    budget: of σ, or None.
    """
    for part in (budget or {}).get("included", ()):
        if part["component"] == "input" and part.get("by_band"):
            return np.asarray(part["by_band"], np.float64)
    return None


def _median(values: Array) -> float:
    return float(np.median(values))
