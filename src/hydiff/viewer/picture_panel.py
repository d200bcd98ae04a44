"""The picture on the page: chosen bands and stretch, zoom, and values under the mouse."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import panel as pn

from hydiff.cube import Bools
from hydiff.viewer import captions, images, rendering
from hydiff.viewer.controls import OWN
from hydiff.viewer.map_marks import Box
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.picture import BELOW, COLOUR_BAR, Picture
from hydiff.viewer.rendering import COMPOSITE, Choice, Planes, Sight
from hydiff.viewer.sheet import HIDDEN, OPACITY, OUTLINED, SHADED

LARGE = 2e8  # bytes; larger files are not read completely when they are opened
SOON = 300  # ms from drawing the overview until the finer image is computed


class PicturePanel:
    def __init__(self, desk: PageState, picture: Picture, presets: dict[str, tuple[int, int, int]]):
        self.desk, self.picture, self.presets = desk, picture, presets
        self.shape = (desk.scene.cube.shape[1], desk.scene.cube.shape[2])
        self.whole = rendering.whole_of(self.shape, images.GLANCE)
        self.sharpener: Any = None
        self.picture.map.take(desk.scene.cube)
        self.picture.map.draw(Box(0, self.shape[0], 0, self.shape[1]))
        self.explain()
        self.take()
        desk.controls.gaps.value = SHADED if desk.scene.after is None else OUTLINED
        self.take_gaps()

    def take(self) -> None:
        """Use the current scene."""
        self.planes = Planes(self.desk.scene, self.whole)
        self.offer()

    def offer(self) -> None:
        """Offer the kinds of pictures that the scene has data for."""
        maps, show = rendering.offered(self.desk.scene), self.desk.controls.show
        if maps != show.options:
            show.options = maps

    def choice(self) -> Choice:
        """Return the picture as chosen in the controls."""
        c = self.desk.controls
        bands = [c.band.value - 1 if self.desk.scene.cube.bands > 1 else 0]
        if c.show.value == COMPOSITE:
            bands = [slider.value - 1 for slider in c.rgb]
        return Choice(c.show.value, tuple(bands), c.stretch.value, c.palette.value)

    @explained
    def draw(self, *_: Any) -> None:
        """Draw the overview; a finer image follows a moment later if the screen can show more."""
        c, choice, cube = self.desk.controls, self.choice(), self.desk.scene.cube
        single = choice.show != COMPOSITE
        c.colour_row.visible, c.single_row.visible = not single, single
        limits = rendering.limits(self.planes, choice)
        pictures = rendering.pictures(self.planes, choice, limits)
        missing = self.planes.missing(choice.bands)
        self.picture.show(pictures, missing, self.whole)
        c.swipe.visible = len(pictures) == 2
        c.state.text = captions.state(cube, choice, limits, missing, self.whole.step)
        c.flicker.disabled = self.desk.scene.fills is None
        c.scale.text = captions.colour_bar(cube, choice, limits[0])
        c.scale.visible = bool(c.scale.text)
        self.picture.leave(BELOW + COLOUR_BAR * c.scale.visible)
        if c.preset.value in self.presets and not single:
            differs = self.presets[c.preset.value] != choice.bands
            c.preset.value = OWN if differs else c.preset.value
        self.sharpen_soon()

    def sharpen_soon(self) -> None:
        """Compute the finer image after a delay, so that moving through the bands stays fast."""
        if self.sharpener is not None and self.sharpener.running:
            self.sharpener.stop()
        if rendering.sharper(self.sight(), self.whole) is not None:
            self.sharpener = pn.state.add_periodic_callback(self.sharpen, period=SOON, count=1)

    def sight(self) -> Sight:
        """Return the part in view, as last sent by the browser."""
        data = self.picture.sight.data
        return Sight(*(float(data[name][0]) for name in Sight._fields))

    @explained
    def sharpen(self) -> None:
        """Draw the part in view at the resolution of the screen."""
        window, choice = rendering.sharper(self.sight(), self.whole), self.choice()
        if window is None or self.desk.controls.flicker.value:
            self.picture.sharpen(None)
            return
        limits = rendering.limits(self.planes, choice)
        pictures = rendering.pictures(self.planes, choice, limits, window)
        self.picture.sharpen(window, pictures, self.planes.missing(choice.bands, window))

    @explained
    def hover(self) -> None:
        """Show the values of the pixel under the mouse, in all layers."""
        c, at, step = self.desk.controls, self.picture.at.data, self.whole.step
        row, col = int(at["row"][0]), int(at["col"][0])
        if not self.inside(row, col):
            c.readout.text = captions.POINT
            return
        down, right = row // step, col // step
        names = ("before", "other", "after", "truth")
        layers = [n for n in names if getattr(self.desk.scene, n)]
        values = {
            band: {n: float(self.planes.get(n, band)[down, right]) for n in layers}
            for band in self.choice().bands
        }
        cube = self.desk.scene.cube
        c.readout.text = captions.readout(cube, down * step, right * step, values)

    def inside(self, row: int, col: int) -> bool:
        return 0 <= row < self.shape[0] and 0 <= col < self.shape[1]

    @explained
    def take_preset(self, *_: Any) -> None:
        """Move the band sliders to the chosen preset."""
        c = self.desk.controls
        for slider, band in zip(c.rgb, self.presets.get(c.preset.value, ()), strict=False):
            slider.value = band + 1

    @explained
    def take_gaps(self, *_: Any) -> None:
        """Mark the gaps in the chosen way."""
        self.picture.mark_gaps(self.desk.controls.gaps.value)

    @explained
    def take_map(self, *_: Any) -> None:
        """Show or hide the map lines and the north arrow."""
        self.picture.map.show(self.desk.controls.map.value)
        self.desk.controls.north.visible = self.desk.controls.map.value

    def box(self) -> Box:
        """Return the part of the scene in view."""
        sight, (rows, cols) = self.sight(), self.shape
        if sight.bottom <= sight.top:  # no browser has sent it yet
            return Box(0, rows, 0, cols)
        return Box(
            max(sight.top, 0), min(sight.bottom, rows), max(sight.left, 0), min(sight.right, cols)
        )

    def as_png(self) -> BytesIO:
        """Return the picture as PNG: subsampled if very large, enlarged to outline small gaps."""
        from PIL import Image

        choice, window = self.choice(), rendering.whole_of(self.shape, images.PIXELS)
        limits = rendering.limits(self.planes, choice)
        pictures = rendering.pictures(self.planes, choice, limits, window)
        cut = round(self.picture.slider.value / window.step)
        image = images.swiped(pictures[0], pictures[-1], cut)
        gap_style, gaps = self.desk.controls.gaps.value, self.planes.missing(choice.bands, window)
        if gap_style == OUTLINED:
            gaps = images.outlined(gaps)
            times = len(gaps) // len(image)
            image = image.repeat(times, axis=0).repeat(times, axis=1)
        opacity, file = {**OPACITY, HIDDEN: 0.0}[gap_style], BytesIO()
        Image.fromarray(images.overlaid(image, gaps, opacity)).save(file, format="png")
        file.seek(0)
        return file

    def explain(self) -> None:
        """Report peculiarities of the scene, and choose bands that have values."""
        c, alive = self.desk.controls, self.alive()
        valid = np.flatnonzero(alive)
        if valid.size and not alive.all():
            for slider in (*c.rgb, c.band):
                slider.value = int(valid[np.argmin(np.abs(valid - slider.value + 1))]) + 1
        self.desk.alert(*captions.oddities(self.desk.scene.cube, alive))

    def alive(self) -> Bools:
        """Return flags (bands,), True where some pixel has a value.

        In files larger than LARGE, only the three first shown bands are checked.
        """
        before, cube = self.desk.scene.before, self.desk.scene.cube
        if cube.nbytes < LARGE:
            return before.alive()
        alive = np.ones(cube.bands, bool)
        for band in {slider.value - 1 for slider in self.desk.controls.rgb}:
            alive[band] = np.isfinite(before.plane(band, self.whole)).any()
        return alive
