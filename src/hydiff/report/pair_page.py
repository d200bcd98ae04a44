"""HTML page that compares two fills of the same cube: one file without scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hydiff import io
from hydiff.cube import Floats
from hydiff.io import provenance
from hydiff.report import plots
from hydiff.report.document import FactTable, rendered
from hydiff.report.fill_pair import Compared, Side
from hydiff.report.scene_pictures import Figure
from hydiff.report.survey import PIXELS, sample_pixels

HEADS = ("B - A", "mean", "RMS", "median size", "95 % below", "largest")


def write_page(
    found: Compared, output: Path, truth: Path | None = None, overwrite: bool = False
) -> None:
    """Write the page; refuse to replace any of the compared files."""
    sides = (found.a.path, found.b.path)
    companions = [path for side in sides for path in provenance.beside(side)]
    io.staging.refuse_inputs([output], [*sides, truth, *companions])
    with io.staged(output, overwrite=overwrite) as folder:
        (folder / output.name).write_bytes(page(found).encode("utf-8", "backslashreplace"))


def page(found: Compared) -> str:
    """Return the page as HTML."""
    scores = [(r.label, _text(r.a), _text(r.b), r.better) for r in found.scores or ()]
    rows = [(label, *map(_text, values)) for label, values in difference_rows(found)]
    parts = {
        "a": str(found.a.path),
        "b": str(found.b.path),
        "lines": summary_lines(found),
        "differences": FactTable(HEADS, rows),
        "scores": FactTable(("", "A", "B", "better"), scores) if scores else None,
        "pictures": _pictures(found),
        "maps": _maps(found),
        "spectra": _spectra(found),
    }
    return rendered("compare.html", f"{found.a.path.name} and {found.b.path.name}", parts)


def summary_lines(found: Compared) -> list[str]:
    """Say how many entries are compared, whether others differ, and which fill scores better."""
    alone = f"A alone filled {found.only_a:,}, B alone {found.only_b:,}"
    lines = [f"{int(found.both.sum()):,} entries were filled by both; {alone}"]
    if found.measured_differ:
        lines.append(
            f"warning: {found.measured_differ:,} entries that neither has filled differ; these may "
            "not be fills of the same cube"
        )
    if found.scores is not None:
        wins = [sum(row.better == name for row in found.scores) for name in "AB"]
        lines.append(f"of {len(found.scores)} scores, A is better in {wins[0]}, B in {wins[1]}")
    return lines


def difference_rows(found: Compared) -> list[tuple[str, tuple[float, ...]]]:
    """Return rows of a label and the numbers that `HEADS` names."""
    rows: list[tuple[str, tuple[float, ...]]] = [("in the file's unit", found.unit)]
    if found.in_sigma is not None:
        with_bars = "B" if found.a.sigma is None else "A" if found.b.sigma is None else None
        rows.append((f"in σ of {with_bars or 'both (RMS)'}", found.in_sigma))
    return [*rows, ("angle of spectra (°)", found.in_degrees)]


def _pictures(found: Compared) -> list[Figure]:
    """Pictures of A, B and the truth in three bands, with one stretch."""
    cube, values = found.a.cube, found.a.values
    measured = np.isfinite(values) & ~found.a.filled
    rgb = plots.rgb_shown(cube.wavelengths, measured, cube.wavelength_units)
    limits = plots.stretch(values, rgb, measured)
    views = [("A", values), ("B", found.b.values), ("Truth", found.truth)]
    return [
        _picture(name, _thinned(view[list(rgb)]), limits)
        for name, view in views
        if view is not None
    ]


def _picture(name: str, values: Floats, limits: Floats) -> Figure:
    """Picture of three bands (3, rows, cols)."""
    image = plots.composite(values, (0, 1, 2), np.isfinite(values), limits)
    return Figure(plots.png_of(image), f"{name} in three bands", name, pixels=True)


def _maps(found: Compared) -> list[Figure]:
    """Maps and a plot by band of the differences between the fills."""
    figures = [_map(found.angle, "angle between the spectra", "°")]
    if found.z is not None:
        square, count = np.nan_to_num(found.z) ** 2, np.isfinite(found.z).sum(axis=0)
        mean = np.divide(
            square.sum(axis=0), count, out=np.full(count.shape, np.nan), where=count > 0
        )
        figures.append(_map(np.sqrt(mean), "difference, RMS over the bands", " σ"))
    cube = found.a.cube
    waves = cube.wavelengths, cube.wavelength_units
    png = plots.bands_png(found.rms_by_band, "RMS difference", *waves)
    return [*figures, Figure(png, "Difference by band", "RMS of B - A, in the unit of the file.")]


def _map(values: Floats, words: str, unit: str) -> Figure:
    """Map of values (rows, cols), coloured from 0 to their 99th percentile."""
    top = float(np.nanpercentile(values, 99)) if np.isfinite(values).any() else 0.0
    caption = f"Where they differ: {words}, from 0 (dark blue) to {top:.2g}{unit} or more (yellow)."
    image = plots.heat(_thinned(values), max(top, 1e-9))
    return Figure(plots.png_of(image), f"Map: {words}", caption, pixels=True)


def _spectra(found: Compared) -> list[Figure]:
    """Spectra of sample pixels, chosen by the same rule as in the report."""
    return [_spectrum(found, row, col) for row, col in sample_pixels(found.both, 1)]


def _spectrum(found: Compared, row: int, col: int) -> Figure:
    """Plot of the spectra of both fills, and of the truth if known, at one pixel."""
    curves = [_curve("A", found.a, row, col), _curve("B", found.b, row, col)]
    if found.truth is not None:
        curves.append(plots.Curve("Truth", found.truth[:, row, col]))
    cube = found.a.cube
    png = plots.spectrum_png(curves, cube.wavelengths, cube.wavelength_units)
    caption = f"Row {row}, column {col}: {_text(float(found.angle[row, col]))}° apart."
    return Figure(png, f"Spectra at row {row}, column {col}", caption)


def _curve(name: str, side: Side, row: int, col: int) -> plots.Curve:
    sigma = None if side.sigma is None else side.sigma[:, row, col]
    return plots.Curve(name, side.values[:, row, col], sigma)


def _thinned(values: Floats) -> Floats:
    """Subsample (..., rows, cols) to about `PIXELS` pixels, as the report does."""
    rows, cols = values.shape[-2:]
    thin = slice(None, None, int(np.ceil(np.sqrt(max(1.0, rows * cols / PIXELS)))))
    return values[..., thin, thin]


def _text(value: float) -> str:
    return "–" if value != value else f"{value:.4g}"
