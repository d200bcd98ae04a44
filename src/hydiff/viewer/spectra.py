"""Spectra of picked pixels: as curves, as text and as CSV.  No side effects."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.viewer.images import nanometres
from hydiff.viewer.scene_layers import ViewedScene

# Colours of Okabe and Ito, distinct for any colour vision; their purple marks the gaps.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#000000", "#56B4E9")
HEADER = (
    *("row", "column", "x", "y", "band", "wavelength", "good"),
    *("before", "after", "sigma", "filled", "truth", "other", "pixels"),
)
UNITS = ("units", "unit", "data units")  # attributes that name the unit of the values
JUMP = 5.0  # a step this many times the median one means that bands were cut out


class Spectrum(NamedTuple):
    """Spectra of one pixel, or their means over a region; arrays (bands,), NaN where missing."""

    row: int  # of a region: of its pixel nearest to the middle
    col: int
    before: Floats
    after: Floats | None
    sigma: Floats | None
    truth: Floats | None
    filled: Bools  # True where the pixel, or any pixel of the region, is filled
    other: Floats | None = None  # the version left of the line
    pixels: int = 1  # number of pixels averaged
    outline: tuple[Array, Array] | None = None  # columns and rows of the corners of the region

    @property
    def best(self) -> Floats:
        """The filled spectrum if there is a fill, else the one before."""
        return self.before if self.after is None else self.after


def pick(scene: ViewedScene, row: int, col: int) -> Spectrum:
    """Return the spectra of a pixel in each version of the scene."""
    before = scene.before.spectrum(row, col)
    after = None if scene.after is None else scene.after.spectrum(row, col)
    truth = None if scene.truth is None else scene.truth.spectrum(row, col)
    fills, filled = scene.fills, np.zeros(len(before), bool)
    if after is not None:
        filled = np.isnan(before) & np.isfinite(after)
    sigma = None if fills is None or fills.sigma is None else fills.sigma_at(row, col)
    other = None if scene.other is None else scene.other.spectrum(row, col)
    return Spectrum(row, col, before, after, sigma, truth, filled, other)


def axis(cube: Cube) -> tuple[Floats, str]:
    """Return the positions of the bands (bands,) on the x axis, and its label."""
    nm = nanometres(cube)
    if nm is None or not np.isfinite(nm).any():
        return np.arange(1.0, cube.bands + 1), "Band"
    return nm, "Wavelength (nm)"


def unit(cube: Cube, band: int = 0) -> str:
    """Return the unit of a band in words, as far as the file states it."""
    attrs = cube.attrs
    xarray_attrs = getattr(attrs.get("xarray"), "attrs", {})
    name = next(filter(None, (a.get(k) for a in (xarray_attrs, attrs) for k in UNITS)), None)
    if isinstance(name, list | tuple):
        name = name[band] if len(name) == cube.bands else None
    return f"in {name}" if name and str(name).strip() else "in the file's unit"


def broken(x: Floats, *curves: Array) -> tuple[Array, ...]:
    """Sort curves by x, and insert NaN where bands were cut out, so that the lines break."""
    order = np.argsort(x)
    cuts = jumps(x[order])
    return tuple(
        np.insert(np.asarray(c, dtype=np.float64)[order], cuts, np.nan) for c in (x, *curves)
    )


def jumps(x: Floats) -> Ints:
    """Return the indices into rising x before which bands were cut out."""
    steps = np.diff(x)
    return 1 + np.flatnonzero(steps > JUMP * _typical(steps)) if steps.size else np.array([], int)


def _typical(steps: Floats) -> float:
    """Return the median of the finite steps; 0 if there are none."""
    finite = steps[np.isfinite(steps)]  # bands may lack a wavelength
    return float(np.median(finite)) if finite.size else 0.0


def bad_ranges(x: Floats, good: Bools) -> list[tuple[float, float]]:
    """Return (low, high) on the axis for each run of bad bands.

    Each band extends by half of the median step, so that a band next to a hole does not shade the
    hole.
    """
    order = np.argsort(x)
    x, bad = x[order], ~good[order]
    half = 0.5 * _typical(np.diff(x)) if len(x) > 1 else 0.5
    return [(float(x[a] - half), float(x[b - 1] + half)) for a, b in runs(bad & np.isfinite(x))]


def bands_between(x: Floats, sigma: Floats, centre: Floats) -> list[tuple[Floats, Floats]]:
    """Return outlines (x, y) of the ±1σ area, one for each run of bands with error bars.

    Like the curves, the outlines do not cross holes where bands were cut out.
    """
    x, low, high = broken(x, centre - sigma, centre + sigma)
    return [
        (np.concatenate([x[a:b], x[a:b][::-1]]), np.concatenate([low[a:b], high[a:b][::-1]]))
        for a, b in runs(np.isfinite(low) & np.isfinite(high))
    ]


def runs(marked: Bools) -> Array:
    """Return first and last + 1 of each run of True, as (n, 2)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(int)))
    return edges.reshape(-1, 2)


def alone(curve: Array) -> Ints:
    """Return the indices of the values of a broken curve that have no neighbour to draw a line to,
    as that of a cube of one band."""
    ends = runs(np.isfinite(curve))
    return np.array([start for start, end in ends if end - start == 1], int)


def map_position(cube: Cube, row: float, col: float) -> tuple[float, float] | None:
    """Return the map coordinates of the centre of a pixel; None without a transform."""
    if cube.transform is None:
        return None
    a, b, c, d, e, f = cube.transform[:6]
    return a * (col + 0.5) + b * (row + 0.5) + c, d * (col + 0.5) + e * (row + 0.5) + f


def named(cube: Cube, spectrum: Spectrum) -> str:
    """Name the pixel or region of a spectrum."""
    if spectrum.outline is None:
        return place(cube, spectrum.row, spectrum.col)
    return f"mean of {spectrum.pixels:,} pixels around {place(cube, spectrum.row, spectrum.col)}"


def place(cube: Cube, row: int, col: int) -> str:
    """Name the position of a pixel, with map coordinates if known."""
    at = map_position(cube, row, col)
    if at is None or cube.transform is None:
        return f"row {row}, column {col}"
    a, b, _, d, e, _ = cube.transform[:6]
    pixel = np.maximum(np.hypot((a, b), (d, e)).max(), 1e-9)
    hundredth = np.nan_to_num(np.ceil(2 - np.log10(pixel)), nan=9)  # digits of it
    digits = int(np.clip(hundredth, 0, 9))
    x, y = (f"{round(v, digits):.12g}" for v in at)
    return f"row {row}, column {col} · x {x}, y {y}"


def number(value: float) -> str:
    """Return a value as text with five digits; NaN is missing."""
    return "missing" if not np.isfinite(value) else f"{value:.5g}"


def values_at(spectrum: Spectrum, band: int) -> str:
    """Describe the values of a spectrum in one band."""
    values = [f"before {number(spectrum.before[band])}"]
    if spectrum.after is not None:
        bar = np.nan if spectrum.sigma is None else spectrum.sigma[band]
        error = f" ± {bar:.3g}" if bar == bar else ""
        values += [f"after {number(spectrum.after[band])}{error}"]
    if spectrum.other is not None:
        values += [f"left {number(spectrum.other[band])}"]
    if spectrum.truth is not None:
        values += [f"truth {number(spectrum.truth[band])}"]
    return ", ".join(values)


def as_csv(scene: ViewedScene, picked: Iterable[Spectrum]) -> str:
    """Return one line per spectrum and band as CSV; cells are empty where there is no value."""
    cube, text = scene.cube, StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(HEADER)
    wavelengths = cube.wavelengths
    for s in picked:
        at = map_position(cube, s.row, s.col) or ("", "")
        for band in range(cube.bands):
            wavelength = "" if wavelengths is None else f"{wavelengths[band]:.10g}"
            first = (s.row, s.col, *at, band + 1, wavelength, int(cube.good_bands[band]))
            values = (_cell(v, band) for v in (s.before, s.after, s.sigma))
            rest = (int(s.filled[band]), _cell(s.truth, band), _cell(s.other, band), s.pixels)
            lines.writerow([*first, *values, *rest])
    return text.getvalue()


def _cell(values: Floats | None, band: int) -> Any:
    """Return the value of a band as a CSV cell, empty if there is none."""
    return "" if values is None or not np.isfinite(values[band]) else repr(float(values[band]))
