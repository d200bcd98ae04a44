"""Outlines, drawn on the picture or typed, and the pixels inside them.  No side effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hydiff.cube import Array, Bools
from hydiff.errors import BadValue

Outline = tuple[Array, Array]  # columns and rows of the corners


def drawn(shape: Mapping[str, Any]) -> Outline:
    """Convert a rectangle or shape sent by the browser."""
    if shape["type"] == "rect":
        (left, right), (top, bottom) = ((shape[f"{a}0"], shape[f"{a}1"]) for a in "xy")
        return box((top, bottom), (left, right))
    return np.asarray(shape["x"], float), np.asarray(shape["y"], float)


def among(outline: Outline, others: Iterable[Outline]) -> bool:
    """Whether an outline is among others; a text field may send the same outline twice."""
    return any(all(map(np.array_equal, outline, other)) for other in others)


def box(rows: tuple[float, float], cols: tuple[float, float]) -> Outline:
    """Return the outline of a rectangle."""
    return np.array([*cols, *cols[::-1]]), np.repeat(rows, 2)


def ranges_of(text: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Parse rows and columns, ends excluded: `10:20, 30:40` → ((10, 20), (30, 40))."""
    try:
        rows, cols = (part.split(":") for part in text.split(","))
        (top, bottom), (left, right) = ((float(a), float(b)) for a, b in (rows, cols))
    except ValueError:
        raise BadValue(f"{text!r}: expected rows, then columns, such as 10:20, 30:40") from None
    return (top, bottom), (left, right)


def enclosed(cols: Array, rows: Array, shape: tuple[int, int]) -> Bools:
    """Return pixels (rows, cols), True where the centre lies inside an outline."""
    from skimage import draw

    inside = np.zeros(shape, bool)
    corners = np.asarray(rows) - 0.5, np.asarray(cols) - 0.5
    inside[draw.polygon(*corners, shape)] = True  # type: ignore[no-untyped-call]
    return inside
