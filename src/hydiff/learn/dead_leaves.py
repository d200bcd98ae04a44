"""Synthetic images of shapes that cover one another ("dead leaves"): sharp edges at every scale.

Satellite images of towns show few large flat areas with sharp edges.  Roofs seen from an aircraft,
fields, and objects in a laboratory have them.  Shapes whose sizes follow a power law have the
statistics of natural images (Lee, Mumford and Huang 2001).
"""

from __future__ import annotations

import numpy as np

from hydiff.cube import Floats

BANDS, SIDE = 6, 224
FINER = 2  # images are drawn with this many times the pixels per side, and averaged: soft edges
# px, radii of the shapes: range of the smallest radius of an image, and the largest radius.  The
# density of shapes falls with the cube of the radius
RADII = (2.0, 10.0, 90.0)
SHAPES = 2400  # enough to leave at most a few percent of the ground bare
MATERIALS = 7  # spectra of an image; each shape has one of them, slightly changed
SHADING = 0.6  # largest relative change of brightness, at one radius from the centre of a shape
GRAIN = 0.15  # mean relative strength of the texture of a shape


def drawn(rng: np.random.Generator) -> Floats:
    """(BANDS, SIDE, SIDE) random image of shapes, each with a material, a shading and a texture."""
    S = SIDE * FINER
    materials = rng.standard_normal((MATERIALS, BANDS)) * rng.uniform(0.2, 1.0, BANDS)
    image = np.empty((BANDS, S, S), np.float32)
    image[:] = materials[0, :, None, None]  # the ground
    grain = _grain(S, rng)
    smallest = np.exp(rng.uniform(*np.log(RADII[:2])))
    radii = FINER / np.sqrt(rng.uniform(RADII[2] ** -2, smallest**-2, SHAPES))  # the law r⁻³
    for radius in radii:
        rows, cols, inside, across = _shape(float(radius), S, rng)
        spectrum = materials[rng.integers(MATERIALS)] + 0.1 * rng.standard_normal(BANDS)
        light = SHADING * rng.uniform(-1, 1) * across / radius
        light = light + GRAIN * rng.exponential() * grain[rows, cols]
        values = spectrum[:, None, None] * (1 + light)
        np.copyto(image[:, rows, cols], values, where=inside, casting="same_kind")
    fine = image.reshape(BANDS, SIDE, FINER, SIDE, FINER)
    averaged: Floats = fine.mean(axis=(2, 4)).astype(float)
    return averaged


def _shape(
    radius: float, side: int, rng: np.random.Generator
) -> tuple[slice, slice, np.ndarray, Floats]:
    """Draw a turned ellipse or rectangle.

    Returns the rows and columns of its box and, for the pixels of the box, whether they lie inside
    the shape and their signed distance to its centre along its axis, the direction of the shading.
    """
    centre = rng.uniform(0, side, 2)
    reach = 1.5 * radius
    low = np.clip((centre - reach).astype(int), 0, side - 1)
    high = np.clip((centre + reach).astype(int) + 1, 1, side)
    y, x = np.ogrid[low[0] : high[0], low[1] : high[1]]
    angle = rng.uniform(0, np.pi)
    along = np.cos(angle) * (x - centre[1]) + np.sin(angle) * (y - centre[0])
    athwart = np.cos(angle) * (y - centre[0]) - np.sin(angle) * (x - centre[1])
    narrow = radius * rng.uniform(0.25, 1.0)
    if rng.random() < 0.5:
        inside = (along / radius) ** 2 + (athwart / narrow) ** 2 < 1
    else:
        inside = (np.abs(along) < radius) & (np.abs(athwart) < narrow)
    return slice(low[0], high[0]), slice(low[1], high[1]), inside, along


def _grain(side: int, rng: np.random.Generator) -> Floats:
    """(side, side) random texture of unit variance whose power falls with the spatial frequency."""
    waves = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    waves[0, 0] = np.inf
    noise = np.fft.rfft2(rng.standard_normal((side, side)))
    texture = np.fft.irfft2(noise * waves ** -rng.uniform(0.5, 1.5), s=(side, side))
    unit: Floats = texture / texture.std()
    return unit
