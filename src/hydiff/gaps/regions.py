"""Limit a fill to a region of the image or to some bands; widen the gaps of a mask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from hydiff.cube import Bools, Cube, Floats
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.gaps.mask import band_groups
from hydiff.io import vectors
from hydiff.maths.wavelengths import NM_PER_UNIT, to_nanometres

# reasons why entries are left missing, as reported
ELSEWHERE = "outside the region"
OTHER_BAND = "not among the bands that were asked for"

RANGE = r"\s*(-?\d*)\s*:\s*(-?\d*)\s*"
PIXELS = re.compile(rf"{RANGE},{RANGE}")
NUMBERS = re.compile(r"(\d+)|(\d*):(\d*)")
WAVES = re.compile(r"(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*(nm|um|µm|μm)", re.IGNORECASE)


class Selection(NamedTuple):
    """Pixels and bands that a fill is limited to; None means no limit."""

    pixels: Bools | None  # (rows, cols)
    bands: Bools | None  # (bands,)

    def left_out(self) -> Iterator[tuple[str, Bools]]:
        """Yield (reason, entries to leave); the arrays broadcast to (bands, rows, cols)."""
        if self.pixels is not None:
            yield ELSEWHERE, ~self.pixels
        if self.bands is not None:
            yield OTHER_BAND, ~self.bands[:, None, None]


def selection_of(cube: Cube, region: str | Path | None, bands: str | None) -> Selection:
    """Parse the options `region` and `bands` for a cube; None means all."""
    return Selection(
        None if region is None else region_pixels(str(region), cube),
        None if bands is None else chosen_bands(bands, cube),
    )


def region_pixels(region: str, cube: Cube) -> Bools:
    """Return a mask (rows, cols), True inside a region.

    region: rows and columns from 0, ends excluded, such as `10:60,20:80`; map coordinates
        `xmin,ymin,xmax,ymax`; or a file of polygons.
    """
    if pixels := PIXELS.fullmatch(region):
        ends = [int(text) if text else None for text in pixels.groups()]
        inside = np.zeros(cube.shape[1:], bool)
        inside[slice(*ends[:2]), slice(*ends[2:])] = True
    elif (corners := _numbers(region)) is not None:
        inside = _in_box(corners, cube, region)
    elif Path(region).suffix.lower() in vectors.POLYGONS:
        inside = vectors.drawn(Path(region), cube)
    else:
        raise BadValue(
            f"`region='{region}'`: expected rows and columns such as 10:60,20:80, "
            f"xmin,ymin,xmax,ymax, or a file of polygons ({' '.join(vectors.POLYGONS)})"
        )
    if not inside.any():
        rows, cols = cube.shape[1:]
        raise BadValue(f"`region='{region}'`: covers no pixel of a cube of {rows} × {cols} pixels")
    return inside


def _numbers(text: str) -> list[float] | None:
    """Parse four numbers separated by commas; None if the text is something else."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return numbers if len(numbers) == 4 else None


def _in_box(corners: list[float], cube: Cube, region: str) -> Bools:
    """Return the pixels (rows, cols) whose centres lie in a box of map coordinates."""
    if cube.transform is None:
        raise BadValue(
            f"`region='{region}'`: these are map coordinates, and the cube has no place on a map; "
            "give rows and columns, such as 10:60,20:80"
        )
    x0, y0, x1, y1 = corners
    if not (x0 < x1 and y0 < y1):
        raise BadValue(f"`region='{region}'`: expected xmin,ymin,xmax,ymax with min below max")
    a, b, c, d, e, f = cube.transform
    row = np.arange(cube.shape[1])[:, None] + 0.5
    col = np.arange(cube.shape[2]) + 0.5
    x, y = c + a * col + b * row, f + d * col + e * row
    return np.asarray((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1))


def chosen_bands(text: str, cube: Cube) -> Bools:
    """Return flags (bands,), True for the bands that a text lists.

    text: numbers and ranges from 0, ends excluded, such as `10:40,55`, and ranges of wavelengths,
        both ends included, such as `900-1000nm`.
    """
    if not isinstance(text, str):  # numbers given from Python: expect the text of the command line
        raise BadValue(f"`bands={text!r}`: expected a text, such as '10:40,55' or '900-1000nm'")
    chosen = np.zeros(cube.bands, bool)
    for part in (part.strip() for part in text.split(",")):
        if match := NUMBERS.fullmatch(part):
            single, first, stop = match.groups()
            if single is not None and int(single) >= cube.bands:
                raise BadValue(f"`bands='{text}'`: bands are 0 to {cube.bands - 1}, found {single}")
            ends = (single, int(single) + 1) if single is not None else (first, stop)
            chosen[slice(*(int(end) if end not in ("", None) else None for end in ends))] = True
        elif match := WAVES.fullmatch(part):
            low, high = sorted(float(end) for end in match.groups()[:2])
            waves = nanometers(cube, f"`bands='{text}'`", "10:40") / NM_PER_UNIT[match[3].lower()]
            chosen |= (waves >= low) & (waves <= high)
        else:
            raise BadValue(
                f"`bands='{text}'`: expected numbers from 0 and ranges such as 10:40,55, or "
                f"wavelengths such as 900-1000nm; found {part!r}"
            )
    if not chosen.any():
        raise BadValue(f"`bands='{text}'`: none of the {cube.bands} bands; see `hydiff info`")
    return chosen


def nanometers(cube: Cube, what: str, instead: str) -> Floats:
    """Return the wavelengths of a cube (bands,) in nm; BadValue if the file has none.

    what, instead: for the message, the option that needs them and an example without them.
    """
    waves, units = cube.wavelengths, cube.wavelength_units
    nm = to_nanometres(waves, units)
    if nm is None:
        lacking = (
            "no wavelengths" if waves is None else f"wavelengths in {units}, which is no length"
        )
        raise BadValue(f"{what}: the cube has {lacking}; give numbers, such as {instead}")
    return nm


def grown(observed: Bools | None, buffer: float) -> Bools | None:
    """Widen the gaps of a mask by `buffer` pixels.

    observed: (rows, cols) or (bands, rows, cols), True = measured; None only with buffer 0.
    """
    if not buffer:
        return observed
    if not isinstance(buffer, int | float | np.number) or not buffer > 0:
        raise BadValue(f"`buffer={buffer!r}`: expected a number of pixels, 0 or more")
    if observed is None:
        raise BadValue(
            "`buffer=` widens a mask: give one with `missing=`, `observed=` or `quality=`"
        )
    if observed.ndim not in (2, 3):
        raise ShapeMismatch(f"a mask of shape {observed.shape}; expected two or three axes")
    out = observed.copy()
    for bands, plane in band_groups(observed, None if observed.ndim == 3 else 1):
        if not plane.all():
            beyond_buffer = ndimage.distance_transform_edt(plane) > buffer
            out[bands if observed.ndim == 3 else ...] &= beyond_buffer
    return out
