"""Spectra of picked pixels: as curves to draw, as lines of text, as CSV.  Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

from hydiff.cube import Array, Bools, Cube, Floats, Ints
from hydiff.viewer.images import nanometres
from hydiff.viewer.scene_layers import ViewedScene

# Okabe and Ito's colours, distinct for any colour vision; their purple marks the gaps.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#000000", "#56B4E9")
HEADER = (
    *("row", "column", "x", "y", "band", "wavelength", "good"),
    *("before", "after", "sigma", "filled", "truth", "other", "pixels"),
)
UNITS = ("units", "unit", "data units")  # where files say what values are measured in
JUMP = 5.0  # a step this many times the usual one means that bands were cut out


class Spectrum(NamedTuple):
    """All that is known of one pixel, or the mean over a region; (bands,) each, NaN where an entry
    is missing."""

    row: int  # of a region: near its middle
    col: int
    before: Floats
    after: Floats | None
    sigma: Floats | None
    truth: Floats | None
    filled: Bools  # True where something of it is filled
    other: Floats | None = None  # of the version left of the line
    pixels: int = 1
    outline: tuple[Array, Array] | None = None  # columns and rows of the corners of a region

    @property
    def best(self) -> Floats:
        """The fill where there is one, else what was measured."""
        return self.before if self.after is None else self.after


def pick(scene: ViewedScene, row: int, col: int) -> Spectrum:
    before = scene.before.spectrum(row, col)
    after = None if scene.after is None else scene.after.spectrum(row, col)
    truth = None if scene.truth is None else scene.truth.spectrum(row, col)
    fills, filled = scene.fills, np.zeros(len(before), bool)
    if after is not None:
        filled = np.isnan(before) & np.isfinite(after)
    sigma = None if fills is None or fills.shares is None else fills.sigma_at(row, col)
    other = None if scene.other is None else scene.other.spectrum(row, col)
    return Spectrum(row, col, before, after, sigma, truth, filled, other)


def axis(cube: Cube) -> tuple[Floats, str]:
    """(bands,) where bands are drawn, and the name of that axis."""
    nm = nanometres(cube)
    if nm is None or not np.isfinite(nm).any():
        return np.arange(1.0, cube.bands + 1), "Band"
    return nm, "Wavelength (nm)"


def unit(cube: Cube, band: int = 0) -> str:
    """What the values of a band are measured in, as far as the file says."""
    attrs = cube.attrs
    named = getattr(attrs.get("xarray"), "attrs", {})
    name = next(filter(None, (a.get(k) for a in (named, attrs) for k in UNITS)), None)
    if isinstance(name, list | tuple):
        name = name[band] if len(name) == cube.bands else None
    return f"in {name}" if name and str(name).strip() else "in the file's unit"


def broken(x: Floats, *curves: Array) -> tuple[Array, ...]:
    """Curves in rising x with a NaN where bands were cut out: no line across what was not seen."""
    order = np.argsort(x)
    cuts = jumps(x[order])
    return tuple(
        np.insert(np.asarray(c, dtype=np.float64)[order], cuts, np.nan) for c in (x, *curves)
    )


def jumps(x: Floats) -> Ints:
    """Numbers of the bands, in rising x, before which others were cut out."""
    steps = np.diff(x)
    return 1 + np.flatnonzero(steps > JUMP * np.median(steps)) if steps.size else np.array([], int)


def bad_ranges(x: Floats, good: Bools) -> list[tuple[float, float]]:
    """Where bad bands lie on the axis, neighbours joined; each band reaches half way to the next.

    At most half of the usual step, so that a band beside a hole does not shade the hole.
    """
    order = np.argsort(x)
    x, bad = x[order], ~good[order]
    half = 0.5 * float(np.median(np.diff(x))) if len(x) > 1 else 0.5
    return [(float(x[a] - half), float(x[b - 1] + half)) for a, b in runs(bad)]


def bands_between(x: Floats, sigma: Floats, centre: Floats) -> list[tuple[Floats, Floats]]:
    """Outlines of the ±1σ band, one for each run of bands that have error bars and are neighbours:
    like the lines it does not reach across bands that were cut out."""
    x, low, high = broken(x, centre - sigma, centre + sigma)
    return [
        (np.concatenate([x[a:b], x[a:b][::-1]]), np.concatenate([low[a:b], high[a:b][::-1]]))
        for a, b in runs(np.isfinite(low) & np.isfinite(high))
    ]


def runs(marked: Bools) -> Array:
    """(n, 2) first and last + 1 of each run of True in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], marked, [False]]).astype(int)))
    return edges.reshape(-1, 2)


def map_position(cube: Cube, row: float, col: float) -> tuple[float, float] | None:
    """Map coordinates of the centre of a pixel."""
    if cube.transform is None:
        return None
    a, b, c, d, e, f = cube.transform[:6]
    return a * (col + 0.5) + b * (row + 0.5) + c, d * (col + 0.5) + e * (row + 0.5) + f


def named(cube: Cube, spectrum: Spectrum) -> str:
    """Of which pixel or region it is, in words."""
    if spectrum.outline is None:
        return place(cube, spectrum.row, spectrum.col)
    return f"mean of {spectrum.pixels:,} pixels around {place(cube, spectrum.row, spectrum.col)}"


def place(cube: Cube, row: int, col: int) -> str:
    """Where a pixel is, in words."""
    at = map_position(cube, row, col)
    there = "" if at is None else f" · x {at[0]:.10g}, y {at[1]:.10g}"
    return f"row {row}, column {col}{there}"


def number(value: float) -> str:
    return "missing" if not np.isfinite(value) else f"{value:.5g}"


def values_at(spectrum: Spectrum, band: int) -> str:
    """What is known of one entry, in words."""
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
    """One line per pixel and band; empty where there is no value."""
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
    return "" if values is None or not np.isfinite(values[band]) else repr(float(values[band]))
