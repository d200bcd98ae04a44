"""Bands as RGBA images, uint8 (rows, cols, 4), transparent where missing.  No side effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.maths.wavelengths import to_nanometres
from hydiff.report.plots import GAP_COLOUR, rgb_bands

Pixels = NDArray[np.uint8]

GLANCE = 500_000  # most pixels of the overview; larger scenes are subsampled
PIXELS = 2_000_000  # most pixels of the detail image, and of a saved picture
SAMPLE = 200_000  # most pixels that percentiles are computed from
TICKS = 6  # most intervals of a scale
ON_SCREEN = 450  # approximate px of the longer side of a picture on the screen
NEAR = 50.0  # nm: largest distance of a band from the wavelength it is shown for
# wavelengths of red, green and blue of the presets, in nm
PRESETS = {
    "True colour": (650.0, 550.0, 450.0),
    "False colour (vegetation red)": (860.0, 650.0, 550.0),
    "Short-wave infrared": (2200.0, 1650.0, 860.0),
}


class Stretch(NamedTuple):
    """The values that are shown darkest and brightest."""

    low: float
    high: float


def step_for(shape: tuple[int, int], pixels: int) -> int:
    """Return the step that subsamples (rows, cols) to at most about `pixels`."""
    return max(1, int(np.ceil(np.sqrt(shape[0] * shape[1] / pixels))))


def presets(cube: Cube) -> dict[str, tuple[int, int, int]]:
    """Return bands (from 0) by preset, for the presets that this cube can show; never empty."""
    default = {"Default bands": rgb_bands(cube.wavelengths, cube.bands, cube.wavelength_units)}
    nm = nanometres(cube)
    if nm is None or not np.isfinite(nm).any():
        return default
    choices = {}
    for name, targets in PRESETS.items():
        distance = np.abs(nm - np.array(targets)[:, None])
        if np.nanmin(distance, axis=1).max() <= NEAR:
            r, g, b = (int(i) for i in np.nanargmin(distance, axis=1))
            choices[name] = (r, g, b)
    return choices if "True colour" in choices else default | choices


def nanometres(cube: Cube) -> Floats | None:
    """Return the wavelengths (bands,) in nm; None if the file has none."""
    return to_nanometres(cube.wavelengths, cube.wavelength_units)


def limits(plane: Array, percent: tuple[float, float] = (1.0, 99.0)) -> Stretch | None:
    """Return percentiles of the valid pixels of a band; None if there are none."""
    valid = plane[np.isfinite(plane)]
    if not valid.size:
        return None
    sample = valid[:: -(-valid.size // SAMPLE)]
    low, high = np.percentile(sample, percent)
    return Stretch(float(low), float(high))


def round_numbers(limit: Stretch) -> list[float]:
    """Return a few round numbers inside the limits."""
    span = limit.high - limit.low
    if not span > 0 or not np.isfinite(span):
        return []
    power = 10.0 ** np.floor(np.log10(span / TICKS))
    step = next(k * power for k in (1, 2, 5, 10) if span <= TICKS * k * power)
    first, last = np.ceil(limit.low / step - 1e-9), np.floor(limit.high / step + 1e-9)
    return [float(f"{n * step:.10g}") + 0.0 for n in np.arange(first, last + 1)]


def shares(plane: Array, bounds: Stretch | None) -> Pixels:
    """Scale values to 0 … 255 between the limits; mid-grey for a band without contrast."""
    if bounds is None or not bounds.high > bounds.low:
        return np.full(plane.shape, 128, np.uint8)
    scaled = (plane - bounds.low) * (255.0 / (bounds.high - bounds.low))
    # fmax ignores NaN: missing pixels become 0, and are made transparent by the caller
    bytes_: Pixels = np.fmin(np.fmax(np.rint(scaled), 0.0), 255.0).astype(np.uint8)
    return bytes_


def composite(planes: Sequence[Array], bounds: Sequence[Stretch | None]) -> Pixels:
    """Return three bands as red, green and blue; transparent where one of them is missing."""
    image = np.empty((*planes[0].shape, 4), np.uint8)
    for channel, (plane, limit) in enumerate(zip(planes, bounds, strict=True)):
        image[..., channel] = shares(plane, limit)
    image[..., 3] = np.where(np.logical_and.reduce([np.isfinite(p) for p in planes]), 255, 0)
    return image


def mapped(plane: Array, bounds: Stretch | None, palette: Pixels) -> Pixels:
    """Colour one band by a palette (256, 4); transparent where missing."""
    numbers = packed(palette[None])[0]  # indexing whole pixels is faster than their four bytes
    image = np.where(np.isfinite(plane), numbers[shares(plane, bounds)], np.uint32(0))
    return image[..., None].view(np.uint8)


def palette(colours: Sequence[str]) -> Pixels:
    """Return 256 colours, written as #rrggbb, as an opaque palette (256, 4)."""
    return np.array([[*bytes.fromhex(colour[1:]), 255] for colour in colours], np.uint8)


def packed(image: Pixels) -> NDArray[np.uint32]:
    """Return an image as one number per pixel (rows, cols), the format of the browser's canvas."""
    return np.ascontiguousarray(image).view(np.uint32)[..., 0]


def opaque(image: Pixels, ground: str) -> Pixels:
    """Return the image with a colour, #rrggbb, in place of transparent pixels."""
    return np.where(image[..., 3:] > 0, image, palette([ground])[0])


def outlined(missing: Bools) -> Bools:
    """Return the inner rim of the gaps, a few px wide on the screen; a small mask is enlarged."""
    times = max(1, ON_SCREEN // max(missing.shape))
    fine = missing.repeat(times, axis=0).repeat(times, axis=1)
    inner = fine
    for _ in range(-(-2 * max(fine.shape) // ON_SCREEN)):
        padded = np.pad(inner, 1, mode="edge")
        column_neighbours = padded[:-2, 1:-1] & padded[2:, 1:-1]
        inner = inner & column_neighbours & padded[1:-1, :-2] & padded[1:-1, 2:]
    rim: Bools = fine & ~inner
    return rim


def swiped(before: Pixels, after: Pixels, column: int) -> Pixels:
    """Return `before` left of a column, and `after` from this column on."""
    image = after.copy()
    image[:, :column] = before[:, :column]
    return image


def overlaid(image: Pixels, missing: Bools, opacity: float = 0.55) -> Pixels:
    """Blend the colour of the gaps over an image as the browser does; opaque, on white."""
    alpha = image[..., 3:] / 255.0
    ground = image[..., :3] * alpha + 255.0 * (1 - alpha)
    tinted = ground * (1 - opacity) + np.array(GAP_COLOUR) * opacity
    rgb = np.where(missing[..., None], tinted, ground)
    return np.concatenate([np.rint(rgb), np.full_like(alpha, 255.0)], axis=-1).astype(np.uint8)
