"""Comparison of fills: two on either side of the swipe line, and all of them in small pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import panel as pn
from bokeh import models
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from hydiff.cube import Floats
from hydiff.viewer import captions, images, rendering
from hydiff.viewer.charts import GROUND, INK
from hydiff.viewer.map_marks import Box
from hydiff.viewer.page_state import BEFORE, PageState, explained
from hydiff.viewer.rendering import DIFFERENCE, SIGMA, Choice, Planes
from hydiff.viewer.scene_layers import ImageWindow, ViewedScene
from hydiff.viewer.sheet import placed

PIXELS = 40_000  # approximate number of pixels of a small picture
SIDE = 172  # px, width of a small picture on the screen
MOST = 4  # most fills that are shown, one in each row


class SmallPicture:
    """A small picture with a title."""

    def __init__(self, x_range: Any, y_range: Any, aspect: float) -> None:
        blank = np.zeros((1, 1), np.uint32)
        self.source = ColumnDataSource({"image": [blank], "x": [0], "y": [0], "dw": [1], "dh": [1]})
        ranges = {"x_range": x_range, "y_range": y_range, "toolbar_location": None}
        size = {"width": SIDE, "height": int(SIDE / aspect) + 24}
        self.figure = figure(tools="", title=" ", background_fill_color=GROUND, **ranges, **size)
        self.figure.axis.visible = self.figure.grid.visible = False
        self.figure.min_border = 2
        self.figure.title.text_font_size, self.figure.title.text_color = "11px", INK

    def show(self, title: str, picture: images.Pixels, window: ImageWindow) -> None:
        self.figure.title.text = title
        self.source.data = {"image": [images.packed(picture)], **placed(window)}
        if not self.figure.renderers:
            at = {key: key for key in self.source.data}
            self.figure.image_rgba(**at, source=self.source)


class ComparePanel:
    def __init__(
        self,
        desk: PageState,
        choice: Callable[[], Choice],
        take: Callable[[ViewedScene], None],  # shows a scene
    ) -> None:
        self.desk, self.choice, self.take = desk, choice, take
        rows, cols = desk.source.cube.shape[1:]
        self.window = rendering.whole_of((rows, cols), PIXELS)
        self.aspect = float(np.clip(cols / rows, 0.5, 2.2))
        self.x_range, self.y_range = models.Range1d(0, cols), models.Range1d(rows, 0)
        self.rows: dict[str, list[SmallPicture]] = {}
        self.settled = True  # False while `offer` changes the two selections
        self.offer()

    def offer(self, right: str | None = None) -> None:
        """Offer all layers that can be compared; right: name of the fill right of the line."""
        c = self.desk.controls
        self.settled = False
        left, fills = list(self.desk.sides()), list(self.desk.fills) or [BEFORE]
        c.left.param.update(options=left, value=c.left.value if c.left.value in left else BEFORE)
        shown = right or (c.right.value if c.right.value in fills else fills[-1])
        c.right.param.update(options=fills, value=shown)
        self.settled = True

    @explained
    def choose(self, *_: Any) -> None:
        """Show the two chosen layers."""
        if self.settled:
            self.take(self.chosen())

    def chosen(self, right: str | None = None) -> ViewedScene:
        """Return the scene of a fill, by default of the chosen one, with the chosen left layer."""
        c = self.desk.controls
        scene = self.desk.fills.get(right or c.right.value, self.desk.source)
        other = None if c.left.value == BEFORE else self.desk.sides()[c.left.value]
        return replace(scene, other=other)

    def zoom(self, box: Box) -> None:
        """Show the same part as the large picture."""
        self.x_range.update(start=box.left, end=box.right)
        self.y_range.update(start=box.bottom, end=box.top)

    def draw(self) -> None:
        """Draw a row for each fill: the fill, its difference to the left layer, and its σ."""
        c, names = self.desk.controls, list(self.desk.fills)[-MOST:]
        if not c.compare_card.visible or not names:
            return
        if list(self.rows) != names:
            self.rows = {name: [self.small() for _ in range(3)] for name in names}
            c.small.objects = [
                pn.FlexBox(*(pn.pane.Bokeh(small.figure) for small in row), gap="4px")
                for row in self.rows.values()
            ]
        lines = [self.draw_row(name) for name in names]
        c.compared.text = captions.paragraphs(*lines)

    def small(self) -> SmallPicture:
        """Return a new small picture, which shows the same part as the others."""
        return SmallPicture(self.x_range, self.y_range, self.aspect)

    def draw_row(self, name: str) -> str:
        """Draw the row of a fill; return a summary of its first shown band."""
        choice, scene = self.choice(), self.chosen(name)
        if rendering.layer_of(choice) is not None:
            choice = replace(choice, show=rendering.SINGLE)
        first = replace(choice, bands=choice.bands[:1])
        planes, (fill, difference, sigma) = Planes(scene, self.window), self.rows[name]
        difference.figure.visible = scene.other is not None and not scene.other.foreign
        sigma.figure.visible = scene.fills is not None and scene.fills.sigma is not None
        limits = rendering.limits(planes, choice)
        fill.show(name, rendering.pictures(planes, choice, limits)[-1], self.window)
        band, words = first.bands[0], [name]
        if difference.figure.visible:
            shown = replace(first, show=DIFFERENCE)
            picture = rendering.pictures(planes, shown, rendering.limits(planes, shown))[0]
            difference.show(f"less {self.desk.controls.left.value}", picture, self.window)
            words.append(f"differs by {spread(planes.get('difference', band)):.3g}")
        if sigma.figure.visible:
            shown = replace(first, show=SIGMA)
            picture = rendering.pictures(planes, shown, rendering.limits(planes, shown))[0]
            sigma.show("σ", picture, self.window)
            words.append(f"σ {spread(planes.get('sigma', band)):.3g}")
        label = captions.band_name(scene.cube, band)
        return f"{words[0]}: {', '.join(words[1:]) or 'no error bars'} ({label}, root mean square)"


def spread(plane: Floats) -> float:
    """Return the root mean square of the finite values that are not 0.

    A difference of exactly 0 is that of a measured entry, which both layers have.
    """
    values = plane[np.isfinite(plane) & (plane != 0)]
    return float(np.sqrt((values**2).mean())) if values.size else 0.0
