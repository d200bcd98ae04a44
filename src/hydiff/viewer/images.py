"""Bands as pictures: uint8 RGBA (rows, cols, 4), transparent where there is no value.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hydiff.cube import Array, Bools, Cube, Floats
from hydiff.report.plots import GAP_COLOUR, rgb_bands, to_nanometres

Pixels = NDArray[np.uint8]

GLANCE = 500_000  # pixels of a picture that is there at once; of more, every 2nd, 3rd … is taken
PIXELS = 2_000_000  # of one that is there a moment later, or saved
SAMPLE = 200_000  # pixels that percentiles are taken from
TICKS = 6  # at most, of a scale
ON_SCREEN = 450  # px that the longer side of a picture has about
NEAR = 50.0  # nm within which a band stands for a wavelength
# red, green and blue of the presets, in nm
PRESETS = {
    "True colour": (650.0, 550.0, 450.0),
    "False colour (vegetation red)": (860.0, 650.0, 550.0),
    "Short-wave infrared": (2200.0, 1650.0, 860.0),
}


class Stretch(NamedTuple):
    """The values shown darkest and brightest."""

    low: float
    high: float


def step_for(shape: tuple[int, int], pixels: int) -> int:
    """Every how many rows and columns are taken, so that (rows, cols) come to about so many."""
    return max(1, int(np.ceil(np.sqrt(shape[0] * shape[1] / pixels))))


def presets(cube: Cube) -> dict[str, tuple[int, int, int]]:
    """The bands (from 0) of the presets that this cube can show; the first one always."""
    default = {"Default bands": rgb_bands(cube.wavelengths, cube.bands, cube.wavelength_units)}
    nm = nanometres(cube)
    if nm is None or not np.isfinite(nm).any():
        return default
    choices = {}
    for name, targets in PRESETS.items():
        away = np.abs(nm - np.array(targets)[:, None])
        if np.nanmin(away, axis=1).max() <= NEAR:
            r, g, b = (int(i) for i in np.nanargmin(away, axis=1))
            choices[name] = (r, g, b)
    return choices if "True colour" in choices else default | choices


def nanometres(cube: Cube) -> Floats | None:
    """(bands,) in nm, or None when the file has no wavelengths."""
    if cube.wavelengths is None:
        return None
    return to_nanometres(cube.wavelengths, cube.wavelength_units)


def limits(plane: Array, percent: tuple[float, float] = (1.0, 99.0)) -> Stretch | None:
    """Percentiles of the valid pixels of a band; None when there are none."""
    valid = plane[np.isfinite(plane)]
    if not valid.size:
        return None
    some = valid[:: -(-valid.size // SAMPLE)]
    low, high = np.percentile(some, percent)
    return Stretch(float(low), float(high))


def round_numbers(limit: Stretch) -> list[float]:
    """A few round numbers inside the limits."""
    span = limit.high - limit.low
    if not span > 0 or not np.isfinite(span):
        return []
    power = 10.0 ** np.floor(np.log10(span / TICKS))
    step = next(k * power for k in (1, 2, 5, 10) if span <= TICKS * k * power)
    first, last = np.ceil(limit.low / step - 1e-9), np.floor(limit.high / step + 1e-9)
    return [float(f"{n * step:.10g}") + 0.0 for n in np.arange(first, last + 1)]


def shares(plane: Array, bounds: Stretch | None) -> Pixels:
    """0 … 255 from the lower to the upper limit; mid-grey for a band without contrast."""
    if bounds is None or not bounds.high > bounds.low:
        return np.full(plane.shape, 128, np.uint8)
    scaled = (plane - bounds.low) * (255.0 / (bounds.high - bounds.low))
    # fmax takes the number beside a NaN: what is missing becomes 0, and transparent
    bytes_: Pixels = np.fmin(np.fmax(np.rint(scaled), 0.0), 255.0).astype(np.uint8)
    return bytes_


def composite(planes: Sequence[Array], bounds: Sequence[Stretch | None]) -> Pixels:
    """Three bands as red, green and blue; transparent where one of them has no value."""
    image = np.empty((*planes[0].shape, 4), np.uint8)
    for channel, (plane, limit) in enumerate(zip(planes, bounds, strict=True)):
        image[..., channel] = shares(plane, limit)
    image[..., 3] = np.where(np.logical_and.reduce([np.isfinite(p) for p in planes]), 255, 0)
    return image


def mapped(plane: Array, bounds: Stretch | None, palette: Pixels) -> Pixels:
    """One band by a palette (256, 4); transparent where it has no value."""
    numbers = packed(palette[None])[0]  # a pixel at a time is faster than its four bytes
    image = np.where(np.isfinite(plane), numbers[shares(plane, bounds)], np.uint32(0))
    return image[..., None].view(np.uint8)


def palette(colours: Sequence[str]) -> Pixels:
    """(256, 4), opaque, from 256 colours written as #rrggbb."""
    return np.array([[*bytes.fromhex(colour[1:]), 255] for colour in colours], np.uint8)


def packed(image: Pixels) -> NDArray[np.uint32]:
    """(rows, cols), one number per pixel, as the browser's canvas takes it."""
    return np.ascontiguousarray(image).view(np.uint32)[..., 0]


def opaque(image: Pixels, ground: str) -> Pixels:
    """The same picture with a colour, #rrggbb, where it was transparent."""
    return np.where(image[..., 3:] > 0, image, palette([ground])[0])


def outlined(missing: Bools) -> Bools:
    """The rim of the gaps, inside them and wide enough to be seen, on a grid as fine as needed."""
    times = max(1, ON_SCREEN // max(missing.shape))
    fine = missing.repeat(times, axis=0).repeat(times, axis=1)
    inner = fine
    for _ in range(-(-2 * max(fine.shape) // ON_SCREEN)):
        around = np.pad(inner, 1, mode="edge")
        across = around[:-2, 1:-1] & around[2:, 1:-1]
        inner = inner & across & around[1:-1, :-2] & around[1:-1, 2:]
    rim: Bools = fine & ~inner
    return rim


def swiped(before: Pixels, after: Pixels, column: int) -> Pixels:
    """`before` left of a column, `after` from it on."""
    image = after.copy()
    image[:, :column] = before[:, :column]
    return image


def overlaid(image: Pixels, missing: Bools, opacity: float = 0.55) -> Pixels:
    """The gaps in their colour over a picture, as the browser blends it; opaque, on white."""
    alpha = image[..., 3:] / 255.0
    ground = image[..., :3] * alpha + 255.0 * (1 - alpha)
    tinted = ground * (1 - opacity) + np.array(GAP_COLOUR) * opacity
    rgb = np.where(missing[..., None], tinted, ground)
    return np.concatenate([np.rint(rgb), np.full_like(alpha, 255.0)], axis=-1).astype(np.uint8)
