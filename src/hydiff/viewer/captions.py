"""Text of the page as HTML, which describes the drawings for those who cannot see them.

No side effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from hydiff.cube import Bools, Cube
from hydiff.viewer import images, spectra
from hydiff.viewer.charts import GAPS
from hydiff.viewer.images import Stretch
from hydiff.viewer.rendering import COMPOSITE, DIFFERENCE, ERROR, SIGMA, Choice
from hydiff.viewer.scene_layers import ViewedScene
from hydiff.viewer.spectra import COLOURS, Spectrum

POINT = "<p>Point at the picture to read its values.</p>"
KEYS = (
    "<p>Keys on the picture: arrows move a cross (Shift: by ten), Enter takes its spectrum, [ ] "
    "move the line, + − 0 zoom. Keys outside of fields: &lt; &gt; change the band, g the mark of "
    "gaps, m the map lines, f the samples.</p>"
)
CLICK = "<p>Click a pixel, or give its row and column, for its spectrum.</p>"
MEANING = {SIGMA: "Error bar (1 σ)", ERROR: "Distance from the truth"}
MEANING |= {DIFFERENCE: "Right less left"}
NAMES = {"other": "left"}  # names of layers as shown to users
# samples of the curve styles, as SVG of 28 × 12 px
SAMPLES = {
    "before": '<path d="M1 6h26" stroke-width="6" opacity=".35"/>',
    "after": '<path d="M1 6h26" stroke-width="2"/>',
    "filled": '<path d="M1 6h26" stroke-width="2"/><path d="m14 2 4 4-4 4-4-4z" fill="#fff"/>',
    "±1 σ": '<path d="M1 6h26" stroke-width="12" opacity=".25"/>',
    "left": '<path d="M1 6h26" stroke-width="2" stroke-dasharray="7 3 2 3"/>',
    "truth": '<path d="M1 6h26" stroke-width="2" stroke-dasharray="5 3"/>',
    "bad bands": '<path d="M1 6h26" stroke-width="12" stroke="#777" opacity=".3"/>',
}


def title(scene: ViewedScene) -> str:
    """Return the heading of the page: name, shape and data type of the scene."""
    bands, rows, cols = scene.cube.shape
    size = f"{bands} bands × {rows} rows × {cols} columns, {scene.cube.dtype}"
    return f"<h1>{escape(scene.name)}</h1><p>{escape(size)}</p>"


def band_name(cube: Cube, band: int) -> str:
    """Name a band by its number from 1, with its wavelength and whether it is bad."""
    nm = images.nanometres(cube)
    details = [] if nm is None or not np.isfinite(nm[band]) else [f"{nm[band]:.0f} nm"]
    details += [] if cube.good_bands[band] else ["bad"]
    return f"band {band + 1}" + (f" ({', '.join(details)})" if details else "")


def state(
    cube: Cube, choice: Choice, limits: Sequence[Stretch | None], missing: Bools, step: int
) -> str:
    """Describe the gaps, the shown bands and the range of values of each."""
    parts = []
    names = ("red ", "green ", "blue ") if len(limits) == 3 else ("",)
    for name, band, limit in zip(names, choice.bands, limits, strict=True):
        span = "has no value" if limit is None else f"from {limit.low:.4g} to {limit.high:.4g}"
        parts.append(f"{name}{band_name(cube, band)} {span}")
    every = f"; 1 of {step} rows and columns at a glance, more when you zoom" if step > 1 else ""
    line = f"{choice.show}: {', '.join(parts)}{every}."
    return f"{gaps(missing)}<p>{escape(line)}</p>"


def gaps(missing: Bools) -> str:
    """State the share of missing pixels in the shown bands, with the colour that marks them."""
    swatch = f'<span class="swatch" style="background:{GAPS}"></span> ' if missing.any() else ""
    share = f"{100 * float(missing.mean()):.3g} % of the pixels missing"
    return f"<p>{swatch}<strong>{share}</strong></p>"


def north(degrees: float | None) -> str:
    """Return a north arrow; degrees: clockwise from the top of the picture, None for no arrow."""
    if degrees is None:
        return ""
    label = f"North is {degrees:.0f}° clockwise from the top of the picture"
    return (
        f'<svg role="img" aria-label="{label}" width="34" height="34" viewBox="-17 -17 34 34">'
        f'<g transform="rotate({degrees:.1f})"><path d="M0-15 6 3 0-1-6 3z"/></g>'
        '<text y="14" text-anchor="middle">N</text></svg>'
    )


def paragraphs(*lines: str) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def colour_bar(cube: Cube, choice: Choice, limit: Stretch | None) -> str:
    """Return the colour bar of a single band or map with values and unit; "" for a composite."""
    if choice.show == COMPOSITE or limit is None or not limit.high > limit.low:
        return ""
    quantity = f"{MEANING.get(choice.show, 'Value')}, {spectra.unit(cube, choice.bands[0])}"
    colours = ", ".join(choice.colours[::17])  # 16 of the 256, with the first and last
    marks = "".join(
        f'<span style="left:{100 * (v - limit.low) / (limit.high - limit.low):.2f}%">{v:g}</span>'
        for v in images.round_numbers(limit)
    )
    label = f"Colours from {limit.low:.4g} to {limit.high:.4g}. {quantity}"
    return (
        f'<div class="scale" role="img" aria-label="{escape(label)}">'
        f'<div class="colours" style="background: linear-gradient(90deg, {colours})"></div>'
        f'<div class="ticks">{marks}</div><p>{escape(quantity)}</p></div>'
    )


def readout(cube: Cube, row: int, col: int, values: Mapping[int, Mapping[str, float]]) -> str:
    """Describe the pixel under the mouse: for each band, the value of each layer."""
    lines = "".join(
        f"<tr><td>{escape(band_name(cube, band))}</td><td>"
        f"{', '.join(f'{NAMES.get(n, n)} {spectra.number(v)}' for n, v in layers.items())}"
        "</td></tr>"
        for band, layers in values.items()
    )
    return f"<p>{escape(spectra.place(cube, row, col))}</p><table>{lines}</table>"


def picks(scene: ViewedScene, picked: Sequence[Spectrum], band: int) -> str:
    """List the drawn spectra with their colours, and their values in the shown band."""
    if not picked:
        return CLICK
    rows = []
    for number, (s, colour) in enumerate(zip(picked, COLOURS, strict=False), start=1):
        filled = f"{s.filled.sum()} of {len(s.filled)} bands filled; "
        values = f"{band_name(scene.cube, band)}: {spectra.values_at(s, band)}"
        rows.append(
            f'<tr><td><span class="chip" style="background:{colour}">{number}</span></td><td>'
            f"{escape(spectra.named(scene.cube, s))}<br>"
            f"{filled if s.after is not None else ''}{escape(values)}</td></tr>"
        )
    return f"{key(scene, picked)}<table>{''.join(rows)}</table>"


def key(scene: ViewedScene, picked: Sequence[Spectrum]) -> str:
    """Return the key to the styles of the curves."""
    shown = {
        "before": True,
        "after": scene.after is not None,
        "filled": scene.after is not None,
        "±1 σ": any(s.sigma is not None for s in picked),
        "left": scene.other is not None,
        "truth": scene.truth is not None,
        "bad bands": not scene.cube.good_bands.all(),
    }
    samples = (
        f'<span><svg width="28" height="12" stroke="#3d444d" fill="none" aria-hidden="true">'
        f"{SAMPLES[name]}</svg> {name}</span>"
        for name, wanted in shown.items()
        if wanted
    )
    return f'<p class="key">{" ".join(samples)}</p>'


def oddities(cube: Cube, alive: Bools) -> list[str]:
    """List peculiarities of a scene; alive: (bands,) True where a band has a value."""
    odd = []
    if cube.bands == 1:
        odd.append("This file has one band: it is shown by itself, and spectra are one value.")
    if images.nanometres(cube) is None:
        odd.append("This file has no wavelengths: bands are shown by their number.")
    if not alive.any():
        odd.append("Every entry is missing: there is nothing to show or to fill from.")
    elif not alive.all():
        odd.append(f"{(~alive).sum()} of {cube.bands} bands have no value in any pixel.")
    return odd
