"""Map elements from the coordinates of the file: grid lines, length of a pixel, north.

No side effects and no network.  Positions on the picture are (column, row); its first corner is
(0, 0).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hydiff.cube import Cube, Floats
from hydiff.errors import HydiffError
from hydiff.io import maps
from hydiff.viewer.images import Stretch, round_numbers

DEGREE = 111_320.0  # m per degree along a meridian, and along the equator
EDGE = 0.12  # width of a label, as a share of the width in view
SCALE_BAR = 0.32  # share of the width in view, in the lower right corner
LABEL = 0.02  # distance of a label from the edge, as a share of the height in view
ABOVE = 0.05  # height of a label, which stands above its point, as a share of the height in view


class GridLine(NamedTuple):
    """A line of one map coordinate across the picture."""

    cols: tuple[float, float]
    rows: tuple[float, float]
    text: str  # coordinate, the label of the line
    at: tuple[float, float]  # column and row of the label


class Box(NamedTuple):
    """A part of the picture."""

    top: float
    bottom: float
    left: float
    right: float


def graticule(transform: tuple[float, ...], box: Box) -> list[GridLine]:
    """Return grid lines at round x and y that cross a part of the picture.

    transform: affine (a, b, c, d, e, f), pixel corner to map.
    """
    a, b, c, d, e, f = transform[:6]
    to_map = np.array([[a, b], [d, e]])
    if not abs(np.linalg.det(to_map)) > 0 or not (box.bottom > box.top and box.right > box.left):
        return []
    to_picture, origin = np.linalg.inv(to_map), np.array([c, f])
    corners = [(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
    low, high = (
        extremum(np.array(corners) @ to_map.T + origin, axis=0) for extremum in (np.min, np.max)
    )
    lines = []
    for axis in (0, 1):
        for value in round_numbers(Stretch(float(low[axis]), float(high[axis]))):
            ends = np.array([low, high])
            ends[:, axis] = value
            if (visible := _inside((ends - origin) @ to_picture.T, box)) is not None:
                lines.append(_line(visible, "xy"[axis], value, box))
    return _legible(lines, box)


def _legible(lines: list[GridLine], box: Box) -> list[GridLine]:
    """Remove labels that an edge would cut, or that lie on another label or on the scale bar."""
    wide, high = EDGE * (box.right - box.left), ABOVE * (box.bottom - box.top)
    bar_left = box.right - SCALE_BAR * (box.right - box.left)
    kept: list[tuple[float, float]] = []
    legible = []
    for line in lines:
        col, row = line.at
        hidden = col >= box.right - wide or row < _top(box) - 1e-9
        hidden |= row > box.bottom - 2 * high and col > bar_left - wide
        hidden |= any(abs(col - c) < wide and abs(row - r) < high for c, r in kept)
        kept += [] if hidden else [line.at]
        legible.append(line._replace(text="") if hidden else line)
    return legible


def _top(box: Box) -> float:
    """Return the first row at which a label is not cut off by the upper edge."""
    return box.top + ABOVE * (box.bottom - box.top)


def _line(ends: Floats, name: str, value: float, box: Box) -> GridLine:
    """Label a line, given by its ends (2, 2): x at the lower end, y at the left end."""
    cols, rows = ends.T
    first = int(np.argmax(rows) if name == "x" else np.argmin(cols))
    span = ends[1 - first] - ends[first]
    away = LABEL * (box.bottom - box.top) / max(np.hypot(*span), 1e-9)
    if span[1] > 0:  # the line begins above: go down until the label fits
        away = max(away, (_top(box) - ends[first][1]) / span[1])
    at = ends[first] + span * min(1.0, away)
    text = f"{name} {value:.10g}"
    points = tuple((float(v[0]), float(v[1])) for v in (cols, rows, at))
    return GridLine(points[0], points[1], text, points[2])


def _inside(ends: Floats, box: Box) -> Floats | None:
    """Clip a line, given by its ends (2, 2), to a box; None if it lies outside."""
    start, span = ends[0], ends[1] - ends[0]
    enter, leave = 0.0, 1.0
    for axis, (low, high) in enumerate(((box.left, box.right), (box.top, box.bottom))):
        if abs(span[axis]) < 1e-12:
            if not low <= start[axis] <= high:
                return None
            continue
        near, far = sorted(((low - start[axis]) / span[axis], (high - start[axis]) / span[axis]))
        enter, leave = max(enter, near), min(leave, far)
    return np.array([start + enter * span, start + leave * span]) if leave > enter else None


def north(cube: Cube) -> float | None:
    """Return the direction of increasing map y, in degrees clockwise from the top of the picture.

    None if the cube has no usable transform.
    """
    if cube.transform is None:
        return None
    a, b, _, d, e, _ = cube.transform[:6]
    to_map = np.array([[a, b], [d, e]])
    if not abs(np.linalg.det(to_map)) > 0:
        return None
    right, down = np.linalg.solve(to_map, [0.0, 1.0])
    return float(np.rad2deg(np.arctan2(right, -down)))


def metres_per_column(cube: Cube) -> float | None:
    """Return the distance in m between neighbouring pixels of a row; None if it is unknown.

    For geographic coordinates this is the distance at the centre of the picture.
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
    except (HydiffError, ValueError, AttributeError):  # a coordinate system that GDAL cannot read
        return None
    return length if np.isfinite(length) and length > 0 else None
