"""What a map has on it, from the file's own coordinates: lines at round numbers, the length of a
pixel, the way north.  Pure; no network.

Positions on the picture are (column, row), its first corner at 0, 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff.cube import Cube, Floats
from hydiff.errors import HydiffError
from hydiff.io import maps
from hydiff.viewer.images import Stretch, round_numbers

DEGREE = 111_320.0  # m along a meridian, and along the equator
EDGE = 0.12  # of it, at the right, where a label would be cut off
LABEL = 0.02  # of what is in sight: how far a label stands inside of it


class GridLine(NamedTuple):
    """A line of one map coordinate across the picture."""

    cols: tuple[float, float]
    rows: tuple[float, float]
    text: str  # the coordinate
    at: tuple[float, float]  # column and row of that text


class Box(NamedTuple):
    """A part of the picture."""

    top: float
    bottom: float
    left: float
    right: float


def graticule(transform: tuple[float, ...], box: Box) -> list[GridLine]:
    """Lines of round x and round y that cross a part of a picture.

    transform: affine (a, b, c, d, e, f), pixel corner to map.
    """
    a, b, c, d, e, f = transform[:6]
    forth = np.array([[a, b], [d, e]])
    if not abs(np.linalg.det(forth)) > 0 or not (box.bottom > box.top and box.right > box.left):
        return []
    back, origin = np.linalg.inv(forth), np.array([c, f])
    corners = [(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
    low, high = (pick(np.array(corners) @ forth.T + origin, axis=0) for pick in (np.min, np.max))
    lines = []
    for axis in (0, 1):
        for value in round_numbers(Stretch(float(low[axis]), float(high[axis]))):
            ends = np.array([low, high])
            ends[:, axis] = value
            if (cut := _inside((ends - origin) @ back.T, box)) is not None:
                lines.append(_line(cut, "xy"[axis], value, box))
    edge = box.right - EDGE * (box.right - box.left)
    return [line if line.at[0] < edge else line._replace(text="") for line in lines]


def _line(ends: Floats, name: str, value: float, box: Box) -> GridLine:
    """ends: (2, 2) column and row of both; x is written at the lower end, y at the left one."""
    cols, rows = ends.T
    first = int(np.argmax(rows) if name == "x" else np.argmin(cols))
    way = ends[1 - first] - ends[first]
    at = ends[first] + way * min(1.0, LABEL * (box.bottom - box.top) / max(np.hypot(*way), 1e-9))
    text = f"{name} {value:.10g}"
    pairs = tuple((float(v[0]), float(v[1])) for v in (cols, rows, at))
    return GridLine(pairs[0], pairs[1], text, pairs[2])


def _inside(ends: Floats, box: Box) -> Floats | None:
    """The part of a line, by its ends (2, 2), inside a box; None where there is none."""
    start, way = ends[0], ends[1] - ends[0]
    enter, leave = 0.0, 1.0
    for axis, (low, high) in enumerate(((box.left, box.right), (box.top, box.bottom))):
        if abs(way[axis]) < 1e-12:
            if not low <= start[axis] <= high:
                return None
            continue
        one, other = sorted(((low - start[axis]) / way[axis], (high - start[axis]) / way[axis]))
        enter, leave = max(enter, one), min(leave, other)
    return np.array([start + enter * way, start + leave * way]) if leave > enter else None


def north(cube: Cube) -> float | None:
    """Where y of the map grows: degrees clockwise from the top of the picture."""
    if cube.transform is None:
        return None
    a, b, _, d, e, _ = cube.transform[:6]
    forth = np.array([[a, b], [d, e]])
    if not abs(np.linalg.det(forth)) > 0:
        return None
    right, down = np.linalg.solve(forth, [0.0, 1.0])
    return float(np.rad2deg(np.arctan2(right, -down)))


def metres_per_column(cube: Cube) -> float | None:
    """How far it is from a pixel to the next one in its row; None where the file does not say.

    In degrees it is taken at the middle of the picture.
    """
    if cube.transform is None or cube.crs is None:
        return None
    a, _, _, d, e, f = cube.transform[:6]
    try:
        crs = maps.crs_of(cube.crs, cube.path or Path("cube"))
        if crs.is_geographic:
            latitude = d * cube.shape[2] / 2 + e * cube.shape[1] / 2 + f
            length = DEGREE * float(np.hypot(a * np.cos(np.deg2rad(latitude)), d))
        else:
            length = float(np.hypot(a, d)) * float(crs.linear_units_factor[1])
    except (HydiffError, ValueError, AttributeError):  # a system that GDAL does not know
        return None
    return length if np.isfinite(length) and length > 0 else None
