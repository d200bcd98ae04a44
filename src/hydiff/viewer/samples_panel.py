"""Samples of a fill that take turns on the picture, to show its uncertainty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hydiff.cube import Array
from hydiff.errors import BadValue
from hydiff.viewer import rendering
from hydiff.viewer.background import PageJob, Queue
from hydiff.viewer.page_state import PageState, explained, result_of
from hydiff.viewer.page_work import PageWork
from hydiff.viewer.picture import Picture
from hydiff.viewer.rendering import Choice, Planes
from hydiff.viewer.scene_layers import ImageWindow, Layer, ViewedScene

COUNT = 6  # samples
LARGEST = 2 << 30  # most bytes of all samples together


class SamplesPanel:
    def __init__(
        self,
        desk: PageState,
        queue: Queue,
        picture: Picture,
        whole: ImageWindow,
        choice: Callable[[], Choice],
    ) -> None:
        self.desk, self.queue, self.picture = desk, queue, picture
        self.whole, self.choice = whole, choice
        self.drawn: tuple[ViewedScene, list[Planes]] | None = None  # scene of the fill, samples

    def of_scene(self, scene: ViewedScene) -> bool:
        """Whether samples of the fill of this scene have been drawn."""
        return self.drawn is not None and self.drawn[0].after is scene.after

    @explained
    def switch(self, *_: Any) -> None:
        """Switch on: draw the samples, if not done yet.  Switch off: show the fill itself."""
        scene = self.desk.scene
        if self.desk.controls.flicker.value and not self.of_scene(scene):
            if 4 * COUNT * int(np.prod(scene.cube.shape)) > LARGEST:
                self.desk.controls.flicker.value = False
                raise BadValue("this scene is too large for samples on the page; open a part of it")
            begin = partial(PageWork, partial(samples, scene))
            self.queue.add(PageJob("Drawing samples", begin, partial(self.take, scene)))
        self.draw()

    @explained
    def take(self, scene: ViewedScene, work: PageWork[list[Array]]) -> None:
        """Keep the samples of the fill of a scene, and show them; work: the job that drew them."""
        if work.value is None:
            self.desk.controls.flicker.value = False
            raise BadValue(work.error or "there are no samples")
        cube = replace(scene.cube, nodata=None, valid=None, missing_rule=None)
        layers = [Layer(replace(cube, values=values)) for values in work.value]
        versions = [replace(scene, after=layer, other=None) for layer in layers]
        self.drawn = scene, [Planes(version, self.whole) for version in versions]
        self.draw()

    def draw(self) -> None:
        """Show the samples in the chosen bands; maps of errors or error bars do not change."""
        choice, wanted = self.choice(), self.desk.controls.flicker.value
        is_map = rendering.layer_of(choice) is not None
        if not wanted or is_map or self.drawn is None or not self.of_scene(self.desk.scene):
            self.picture.flicker([])
            return
        limits = rendering.limits(Planes(self.desk.scene, self.whole), choice)
        images = [rendering.pictures(planes, choice, limits)[-1] for planes in self.drawn[1]]
        self.picture.sharpen(None)
        self.picture.flicker(images)


def samples(scene: ViewedScene) -> list[Array]:
    """Draw samples of a fill, (bands, rows, cols) each."""
    return [values.astype(np.float32) for values in result_of(scene).samples(COUNT)]
