"""Several fills side by side: which two the line divides, and all of them in small pictures."""

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

PIXELS = 40_000  # of a small picture
SIDE = 172  # px on the screen
MOST = 4  # fills in a row each


class SmallPicture:
    """One picture under a title."""

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
        self.settled = True  # the two names are not being changed by us
        self.offer()

    def offer(self, right: str | None = None) -> None:
        """All that can be compared now; right: what is shown right of the line."""
        c = self.desk.controls
        self.settled = False
        left, fills = list(self.desk.sides()), list(self.desk.fills) or [BEFORE]
        c.left.param.update(options=left, value=c.left.value if c.left.value in left else BEFORE)
        shown = right or (c.right.value if c.right.value in fills else fills[-1])
        c.right.param.update(options=fills, value=shown)
        self.settled = True

    @explained
    def choose(self, *_: Any) -> None:
        """Show the two that were chosen."""
        if self.settled:
            self.take(self.chosen())

    def chosen(self, right: str | None = None) -> ViewedScene:
        c = self.desk.controls
        scene = self.desk.fills.get(right or c.right.value, self.desk.source)
        other = None if c.left.value == BEFORE else self.desk.sides()[c.left.value]
        return replace(scene, other=other)

    def zoom(self, box: Box) -> None:
        """The part that the large picture shows."""
        self.x_range.update(start=box.left, end=box.right)
        self.y_range.update(start=box.bottom, end=box.top)

    def draw(self) -> None:
        """A row of pictures for each fill: itself, what it is more than the left one, its σ."""
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
        return SmallPicture(self.x_range, self.y_range, self.aspect)

    def draw_row(self, name: str) -> str:
        """Draws it, and says what it shows of the first band on show."""
        choice, scene = self.choice(), self.chosen(name)
        if rendering.layer_of(choice) is not None:
            choice = replace(choice, show=rendering.SINGLE)
        first = replace(choice, bands=choice.bands[:1])
        planes, (itself, less, sigma) = Planes(scene, self.window), self.rows[name]
        less.figure.visible = scene.other is not None and not scene.other.foreign
        sigma.figure.visible = scene.fills is not None and scene.fills.shares is not None
        limits = rendering.limits(planes, choice)
        itself.show(name, rendering.pictures(planes, choice, limits)[-1], self.window)
        band, words = first.bands[0], [name]
        if less.figure.visible:
            shown = replace(first, show=DIFFERENCE)
            picture = rendering.pictures(planes, shown, rendering.limits(planes, shown))[0]
            less.show(f"less {self.desk.controls.left.value}", picture, self.window)
            words.append(f"differs by {spread(planes.get('difference', band)):.3g}")
        if sigma.figure.visible:
            shown = replace(first, show=SIGMA)
            picture = rendering.pictures(planes, shown, rendering.limits(planes, shown))[0]
            sigma.show("σ", picture, self.window)
            words.append(f"σ {spread(planes.get('sigma', band)):.3g}")
        at = captions.band_name(scene.cube, band)
        return f"{words[0]}: {', '.join(words[1:]) or 'no error bars'} ({at}, root mean square)"


def spread(plane: Floats) -> float:
    """Root mean square of what is there and not 0, as it is where both have what was measured."""
    there = plane[np.isfinite(plane) & (plane != 0)]
    return float(np.sqrt((there**2).mean())) if there.size else 0.0
