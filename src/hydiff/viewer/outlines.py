"""Outlines that are drawn on the picture or typed, and the pixels inside them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools
from hydiff.errors import BadValue

Outline = tuple[Array, Array]  # columns and rows of its corners


def drawn(shape: Mapping[str, Any]) -> Outline:
    """What the browser sends of a rectangle or a shape."""
    if shape["type"] == "rect":
        (left, right), (top, bottom) = ((shape[f"{a}0"], shape[f"{a}1"]) for a in "xy")
        return box((top, bottom), (left, right))
    return np.asarray(shape["x"], float), np.asarray(shape["y"], float)


def among(outline: Outline, others: Iterable[Outline]) -> bool:
    """Whether it is there already: a field may send what was typed twice."""
    return any(all(map(np.array_equal, outline, other)) for other in others)


def box(rows: tuple[float, float], cols: tuple[float, float]) -> Outline:
    """The outline of a rectangle."""
    return np.array([*cols, *cols[::-1]]), np.repeat(rows, 2)


def ranges_of(text: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """`10:20, 30:40` as ((10, 20), (30, 40)): rows, then columns, the end not included."""
    try:
        rows, cols = (part.split(":") for part in text.split(","))
        (top, bottom), (left, right) = ((float(a), float(b)) for a, b in (rows, cols))
    except ValueError:
        raise BadValue(f"{text!r}: expected rows, then columns, such as 10:20, 30:40") from None
    return (top, bottom), (left, right)


def enclosed(cols: Array, rows: Array, shape: tuple[int, int]) -> Bools:
    """(rows, cols) True where the centre of a pixel lies inside an outline."""
    from skimage import draw

    inside = np.zeros(shape, bool)
    corners = np.asarray(rows) - 0.5, np.asarray(cols) - 0.5
    inside[draw.polygon(*corners, shape)] = True  # type: ignore[no-untyped-call]
    return inside
