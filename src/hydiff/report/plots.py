"""Figures of a cube before and after a fill, of spectra, and of the loss of a training.

Figures avoid the global state of pyplot, so any thread may draw.  Arrays: (bands, rows, cols).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from hydiff.cube import Array, Bools, Floats
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.maths.wavelengths import to_nanometres

Pixels = NDArray[np.uint8]

# Colours of Okabe and Ito, which remain distinct for any colour vision.
BLACK, ORANGE, BLUE = "#000000", "#E69F00", "#0072B2"
PLAIN, SKY_RGB, BLUE_RGB, ORANGE_RGB = (221,) * 3, (86, 180, 233), (0, 114, 178), (230, 159, 0)
GAP_COLOUR = (204, 121, 167)  # their reddish purple, a rare colour in scenes

WIDTH = 12.0  # inches
DPI = 130  # 1560 pixels wide
MAX_BYTES = 400_000
TARGETS_NM = (650.0, 550.0, 450.0)  # red, green, blue

# Positions of red, green and blue as shares of the band axis, for cubes without wavelengths.  They
# suit typical sensors: with more than 150 bands AVIRIS-like (400-2500 nm), with more than 40 VNIR
# (400-1000 nm), with fewer visible light or a few selected bands.
SHARES = ((150, (0.125, 0.075, 0.045)), (40, (0.45, 0.28, 0.1)), (0, (0.85, 0.5, 0.15)))


def rgb_bands(
    wavelengths: Array | None, bands: int, units: str | None = None
) -> tuple[int, int, int]:
    """Return three band numbers (from 0) to show as red, green and blue.

    These are the bands nearest to 650, 550 and 450 nm if wavelengths (bands,) are known and come
    within 50 nm of each; else fixed shares of the band axis, see `SHARES`.
    """
    nm = to_nanometres(wavelengths, units)
    if nm is not None and np.isfinite(nm).any():
        distance = np.abs(nm - np.array(TARGETS_NM)[:, None])
        if np.nanmin(distance, axis=1).max() <= 50:
            r, g, b = (int(i) for i in np.nanargmin(distance, axis=1))
            return r, g, b
    shares = next(shares for above, shares in SHARES if bands > above)
    r, g, b = (round(share * (bands - 1)) for share in shares)
    return r, g, b


def stretch(values: Array, bands: tuple[int, int, int], observed: Bools) -> Floats:
    """Return the 1st and 99th percentile (3, 2) of the valid pixels in each of three bands."""
    planes, entries = _picked(values, bands, observed)
    limits = [
        np.percentile(p[s], (1, 99)) if s.any() else (0, 1)
        for p, s in zip(planes, entries, strict=True)
    ]
    return np.array(limits, dtype=np.float64)


def composite(
    values: Array, bands: tuple[int, int, int], observed: Bools, limits: Floats | None = None
) -> Pixels:
    """Return a colour image (rows, cols, 3) of three bands; pixels missing in any are `GAP_COLOUR`.

    observed: (rows, cols) or (bands, rows, cols).  limits: (3, 2) values shown as 0 and 255, by
    default the `stretch` of this image; give the same limits to images that are to be compared.
    """
    planes, entries = _picked(values, bands, observed)
    if limits is None:
        limits = stretch(values, bands, observed)
    low, high = limits[:, :1, None], limits[:, 1:, None]
    shares = np.divide(planes - low, high - low, out=np.full(planes.shape, 0.5), where=high > low)
    image: Pixels = np.rint(255 * np.clip(shares, 0, 1)).astype(np.uint8).transpose(1, 2, 0)
    image[~np.logical_and.reduce(entries)] = GAP_COLOUR
    return image


def heat(values: Array, top: float) -> Pixels:
    """Return an image (rows, cols, 3) of values from 0 to `top` in cividis colours; NaN is grey."""
    from matplotlib import colormaps

    colours = colormaps["cividis"](np.clip(np.nan_to_num(values) / top, 0, 1))[..., :3]
    image: Pixels = np.rint(255 * colours).astype(np.uint8)
    image[~np.isfinite(values)] = PLAIN
    return image


def whereabouts(filled: Bools, left: Bools) -> Pixels:
    """Return a map (rows, cols, 3) of the filled and the missing pixels.

    Grey: measured.  Light blue: filled in at most half of the bands.  Blue: filled in more bands.
    Orange: still missing in some band.  filled, left: (bands, rows, cols).
    """
    share = filled.mean(axis=0)
    image = np.full((*share.shape, 3), PLAIN, np.uint8)
    image[share > 0], image[share > 0.5] = SKY_RGB, BLUE_RGB
    image[left.any(axis=0)] = ORANGE_RGB
    return image


def png_of(image: Pixels) -> bytes:
    """Return an image as PNG, one pixel per pixel."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def deepest(filled: Bools) -> tuple[int, int]:
    """Return the (row, col) deepest inside the filled area (rows, cols); of ties, the most central.

    The rule is fixed, so that no figure shows a pixel chosen for its looks.
    """
    depth = ndimage.distance_transform_edt(np.pad(filled, 1))[1:-1, 1:-1]
    rows, cols = np.nonzero(filled & (depth >= depth.max() - 1e-9))
    centre = [(n - 1) / 2 for n in filled.shape]
    nearest = np.argmin((rows - centre[0]) ** 2 + (cols - centre[1]) ** 2)
    return int(rows[nearest]), int(cols[nearest])


def before_after(before: Array, after: Array, path: str | Path, **layers: Any) -> None:
    """Write the figure of `comparison` as PNG."""
    Path(path).write_bytes(figure_png(comparison(before, after, **layers)))


class Drawing(Figure):
    """A figure that a notebook displays without pyplot, which would change global state."""

    def _repr_png_(self) -> bytes:
        return figure_png(self)


def comparison(
    before: Array,
    after: Array,
    *,
    observed: Bools,
    truth: Array | None = None,
    filled: Bools | None = None,
    sigma: Array | None = None,
    pixel: tuple[int, int] | None = None,
    rgb: tuple[int, int, int] | None = None,
    wavelengths: Array | None = None,
    wavelength_units: str | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the damaged, filled and true image, and the spectra of one filled pixel, side by side.

    before, after, truth: (bands, rows, cols).  observed, filled: bool, (rows, cols) or (bands,
    rows, cols); `filled` is ~observed by default.  sigma: 1-σ errors of `after`, drawn as a band
    around its curve.  pixel: (row, col) whose spectrum is drawn; by default the `deepest` of those
    that were filled in most bands.
    """
    shape = before.shape
    _check_shapes(shape, after=after, truth=truth, sigma=sigma, observed=observed, filled=filled)
    observed = np.broadcast_to(observed, shape)
    filled = ~observed if filled is None else np.broadcast_to(filled, shape)
    at = _pixel_to_show(filled, pixel)
    rgb = rgb or rgb_shown(wavelengths, observed, wavelength_units)

    views = [_View("Observed", before, observed & np.isfinite(before))]
    views.append(_View("Filled", after, (observed | filled) & np.isfinite(after)))
    if truth is not None:
        views.append(_View("Truth", truth, np.isfinite(truth)))

    limits = stretch(before, rgb, views[0].valid)
    figure, axes, spectrum = _panels(len(views), shape[1:], title)
    for view, axis in zip(views, axes, strict=True):
        _draw_image(axis, view, rgb, limits, at)
    axes[0].set_title(f"{100 * (~observed).mean():.2g} % missing", fontsize=14)
    bars = None if sigma is None else sigma[:, at[0], at[1]]
    curves = [_curve(view, at, bars if view.name == "Filled" else None) for view in views]
    _draw_spectra(spectrum, curves, wavelengths, wavelength_units)
    spectrum.set_title(f"Row {at[0]}, column {at[1]}", fontsize=14)
    return figure


class Curve(NamedTuple):
    """One spectrum of a figure: (bands,), NaN where missing."""

    name: str  # "Observed" is drawn as points, "Filled", "A", "B" as lines, anything else dashed
    values: Floats
    sigma: Array | None = None  # (bands,) 1-σ errors, drawn as a band


COLOURS = {"Observed": ORANGE, "Filled": BLUE, "A": BLUE, "B": ORANGE}
STYLES = {"Observed": ("o", 0.0), "Filled": ("-", 2.4), "A": ("-", 2.4), "B": ("-", 2.4)}
OTHER = ("--", 1.4)


def bands_png(values: Array, label: str, wavelengths: Array | None, units: str | None) -> bytes:
    """Return a PNG of one number per band (bands,), such as the typical error."""
    figure = Figure(figsize=(5.2, 3.0), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    _draw_spectra(axis, [Curve("Filled", np.asarray(values, np.float64))], wavelengths, units)
    axis.set_ylabel(label, fontsize=13)
    axis.set_ylim(bottom=0)
    if (legend := axis.get_legend()) is not None:
        legend.remove()
    return figure_png(figure)


def spectrum_png(
    curves: Sequence[Curve], wavelengths: Array | None = None, units: str | None = None
) -> bytes:
    """Return a PNG of spectra of one pixel with their error bars, as wide as a column of text."""
    figure = Figure(figsize=(5.2, 3.4), dpi=DPI, layout="constrained")
    _draw_spectra(figure.subplots(), curves, wavelengths, units)
    return figure_png(figure)


class _View(NamedTuple):
    """One version of the scene: its values, and where they are valid."""

    name: str
    values: Array
    valid: Bools  # (bands, rows, cols)


def _picked(values: Array, bands: tuple[int, int, int], observed: Bools) -> tuple[Floats, Bools]:
    """Return three bands as float64, 0 where not valid, and the valid entries (3, rows, cols)."""
    planes = np.stack([values[b] for b in bands]).astype(np.float64)
    entries = np.broadcast_to(observed, values.shape)[list(bands)] & np.isfinite(planes)
    return np.where(entries, planes, 0.0), entries


def _check_shapes(shape: tuple[int, ...], **arrays: Array | None) -> None:
    for name, array in arrays.items():
        fits = (shape, shape[1:]) if name in ("observed", "filled") else (shape,)
        if array is not None and array.shape not in fits:
            raise ShapeMismatch(
                f"{name} has shape {array.shape}, but before has {shape} (bands, rows, cols); "
                f"crop or transpose {name} to match"
            )


def _pixel_to_show(filled: Bools, pixel: tuple[int, int] | None) -> tuple[int, int]:
    """Return `pixel`, or by default the deepest of the pixels that were filled in most bands."""
    if pixel is not None and all(0 <= i < n for i, n in zip(pixel, filled.shape[1:], strict=True)):
        return pixel
    if pixel is not None:
        raise BadValue(f"pixel {pixel} lies outside the image {filled.shape[1:]} (rows, cols)")
    missing_bands = filled.sum(axis=0)
    if not missing_bands.any():
        raise BadValue("nothing was filled, so no spectrum can be picked; give pixel=(row, col)")
    return deepest(missing_bands == missing_bands.max())


def rgb_shown(
    wavelengths: Array | None, observed: Bools, units: str | None = None
) -> tuple[int, int, int]:
    """Return `rgb_bands`, each replaced by the nearest band with observed pixels."""
    rgb = rgb_bands(wavelengths, len(observed), units)
    alive = np.flatnonzero(observed.any(axis=(1, 2)))
    if alive.size == 0:
        return rgb
    r, g, b = (int(alive[np.argmin(np.abs(alive - band))]) for band in rgb)
    return r, g, b


def complete_pixels(valid: Bools, rgb: tuple[int, int, int]) -> Bools:
    """Return pixels (rows, cols), False where a gap is shown.

    These are the gaps of the three bands or, if these have none, the gaps of any band with data,
    so that a dead column of one band is visible.
    """
    three, alive = valid[list(rgb)], valid[valid.any(axis=(1, 2))]
    return np.asarray(np.logical_and.reduce(alive if three.all() else three))


def _panels(
    images: int, shape: tuple[int, ...], title: str | None
) -> tuple[Figure, list[Axes], Axes]:
    """Make axes for the images, on at most 68 % of the width, and for the spectrum to their right.

    Images stand side by side, or one above the other if they are wider than twice their height.
    """
    rows, cols = shape
    grid = (images, 1) if cols > 2 * rows else (1, images)
    heading, space = 0.34, 0.1  # inches above and between the images
    room = 0.68 * WIDTH / grid[1] - space
    height = float(np.clip(room * rows / cols, 2.4 / grid[0], 4.2)) + heading
    width = float(np.clip((height - heading) * cols / rows, 1.5, room)) + space
    size = (WIDTH, grid[0] * height + (heading if title else 0))
    figure = Drawing(figsize=size, dpi=DPI, layout="constrained")
    figure.suptitle(title or "", fontsize=16)
    # Two subfigures, so that the labels under the spectrum leave no blank strip under the images.
    ratios = [grid[1] * width, WIDTH - grid[1] * width]
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=ratios)[0]
    return figure, list(left.subplots(*grid, squeeze=False).flat), right.subplots()


def _draw_image(
    axis: Axes, view: _View, rgb: tuple[int, int, int], limits: Floats, at: tuple[int, int]
) -> None:
    image = composite(view.values, rgb, complete_pixels(view.valid, rgb), limits)
    axis.imshow(image, interpolation="nearest")
    axis.set_title(view.name, fontsize=14)
    axis.set(xticks=[], yticks=[], anchor="N")
    has_curve = view.valid[:, at[0], at[1]].any()
    axis.plot(at[1], at[0], "o", ms=12, mfc="none", mec="white", mew=2.5)  # visible on any colour
    if has_curve:
        axis.plot(at[1], at[0], "o", ms=9, mfc=COLOURS.get(view.name, BLACK), mec="none")


def _curve(view: _View, at: tuple[int, int], sigma: Array | None) -> Curve:
    """Return the spectrum of a view at one pixel."""
    valid = view.valid[:, at[0], at[1]]
    values = view.values[:, at[0], at[1]].astype(np.float64)
    return Curve(view.name, np.where(valid, values, np.nan), sigma)


def _draw_spectra(
    axis: Axes, curves: Sequence[Curve], wavelengths: Array | None, units: str | None
) -> None:
    nm = to_nanometres(wavelengths, units)
    x = np.arange(1.0, len(curves[0].values) + 1) if nm is None else nm
    for name, y, sigma in curves:
        if np.isfinite(y).any():
            colour, (style, width) = COLOURS.get(name, BLACK), STYLES.get(name, OTHER)
            axis.plot(*_broken(x, y), style, color=colour, lw=width, ms=4, label=name)
            if sigma is not None:
                xs, low = _broken(x, y - sigma)
                high = _broken(x, y + sigma)[1]
                axis.fill_between(xs, low, high, color=colour, alpha=0.25, lw=0, label="± 1 σ")
    axis.set_xlabel("Band" if nm is None else "Wavelength (nm)", fontsize=13)
    axis.set_ylabel("Value", fontsize=13)
    axis.tick_params(labelsize=12)
    axis.margins(x=0.02)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=13, frameon=False)


def _broken(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Sort a curve by x, and insert NaN where bands were cut out, so that the line breaks."""
    order = np.argsort(x)
    x, y = x[order], y[order]
    steps = np.nan_to_num(np.diff(x))  # a band may lack a wavelength
    holes = 1 + np.flatnonzero(steps > 5 * np.median(steps)) if steps.size else np.array([], int)
    return np.insert(x, holes, np.nan), np.insert(y, holes, np.nan)


def figure_png(figure: Figure) -> bytes:
    """Return a figure as PNG, with fewer colours if it would exceed `MAX_BYTES`."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    for colours in (256, 64, 16):
        if buffer.tell() <= MAX_BYTES:
            break
        reduced = Image.open(buffer).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        buffer = BytesIO()
        reduced.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def loss_curve(history: Sequence[Mapping[str, float]], path: str | Path) -> None:
    """Write a PNG of the two terms of a training loss, "data" and "ei", by update.

    Long histories are drawn as means over equal numbers of updates.
    """
    figure = Figure(figsize=(7, 4), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    stretches = np.array_split(np.arange(len(history)), min(len(history), 400))
    x = [float(s.mean()) + 1 for s in stretches]
    for key, name, colour in (("data", "Data", BLUE), ("ei", "Equivariance", ORANGE)):
        y = [float(np.mean([history[i][key] for i in s])) for s in stretches]
        axis.plot(x, y, "o-" if len(x) < 30 else "-", color=colour, ms=4, label=name)
    axis.set_yscale("log", nonpositive="mask")
    axis.set_xlabel("Update", fontsize=13)
    axis.set_ylabel("Mean square, unit range", fontsize=13)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=13, frameon=False)
    Path(path).write_bytes(figure_png(figure))
