"""Gaps that the user marks, by drawing on the picture or by typing rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from hydiff.cube import Bools
from hydiff.errors import BadValue
from hydiff.viewer.outlines import Outline, among, box, enclosed, ranges_of
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.picture import Picture


class MarksPanel:
    def __init__(self, desk: PageState, picture: Picture) -> None:
        self.desk, self.picture = desk, picture
        self.shape = (desk.scene.cube.shape[1], desk.scene.cube.shape[2])
        self.outlines: list[Outline] = []
        self.draw()

    @explained
    def mark_text(self, *_: Any) -> None:
        """Mark the rectangle that was typed as rows and columns."""
        field = self.desk.controls.rectangle
        if field.value.strip():
            self.mark(box(*ranges_of(field.value)))
            field.value = ""

    @explained
    def mark(self, outline: Outline) -> None:
        """Mark the pixels inside an outline as a gap of all bands."""
        if not enclosed(*outline, self.shape).any():
            raise BadValue("that marks no pixel of the picture; draw inside it")
        if not among(outline, self.outlines):
            self.outlines.append(outline)
        self.draw()

    @explained
    def unmark(self, *_: Any) -> None:
        """Remove the latest mark."""
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
        """Return pixels (rows, cols), True inside the marked outlines."""
        inside = np.zeros(self.shape, bool)
        for outline in self.outlines:
            inside |= enclosed(*outline, self.shape)
        return inside
