"""Gaps that are marked by hand, on the picture or in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from hydiff.cube import Array, Bools
from hydiff.errors import BadValue
from hydiff.viewer.charts import Picture
from hydiff.viewer.page_state import PageState, explained

Outline = tuple[Array, Array]  # columns and rows of its corners


class MarksPanel:
    def __init__(self, desk: PageState, picture: Picture) -> None:
        self.desk, self.picture = desk, picture
        self.shape = (desk.scene.cube.shape[1], desk.scene.cube.shape[2])
        self.outlines: list[Outline] = []
        self.draw()

    @explained
    def mark_drawn(self, event: Any) -> None:
        shape = event.geometry
        if not event.final:
            return
        if shape["type"] == "rect":
            (left, right), (top, bottom) = ((shape[f"{a}0"], shape[f"{a}1"]) for a in "xy")
            self.mark(box((top, bottom), (left, right)))
        elif shape["type"] == "poly":
            self.mark((np.asarray(shape["x"], float), np.asarray(shape["y"], float)))

    @explained
    def mark_text(self, *_: Any) -> None:
        typed = self.desk.controls.rectangle
        if typed.value.strip():
            self.mark(box(*ranges_of(typed.value)))
            typed.value = ""

    def mark(self, outline: Outline) -> None:
        if not enclosed(*outline, self.shape).any():
            raise BadValue("that marks no pixel of the picture; draw inside it")
        self.outlines.append(outline)
        self.draw()

    @explained
    def unmark(self, *_: Any) -> None:
        self.outlines = self.outlines[:-1]
        self.draw()

    def draw(self) -> None:
        c = self.desk.controls
        self.picture.put_regions(self.outlines)
        count = int(self.marked().sum())
        c.marked.text = f"<p>{count:,} pixels are marked by hand as gaps of all bands.</p>"
        c.marked.visible = count > 0
        c.undo.disabled = not count

    def marked(self) -> Bools:
        """(rows, cols) True inside what was marked."""
        inside = np.zeros(self.shape, bool)
        for outline in self.outlines:
            inside |= enclosed(*outline, self.shape)
        return inside


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
