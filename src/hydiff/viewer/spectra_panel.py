"""Spectra of pixels, clicked or typed by row and column, and mean spectra of regions."""

from __future__ import annotations

from functools import partial
from io import StringIO
from typing import Any

from hydiff.cube import Floats
from hydiff.errors import BadValue
from hydiff.viewer import captions, region_means, spectra
from hydiff.viewer.background import PageJob, Queue
from hydiff.viewer.curves import Curves
from hydiff.viewer.outlines import Outline, among, box, enclosed, ranges_of
from hydiff.viewer.page_state import PageState, explained, result_of
from hydiff.viewer.page_work import PageWork
from hydiff.viewer.picture import Picture
from hydiff.viewer.scene_layers import ViewedScene
from hydiff.viewer.spectra import COLOURS, Spectrum


class SpectraPanel:
    def __init__(self, desk: PageState, queue: Queue, picture: Picture, curves: Curves) -> None:
        self.desk, self.queue, self.picture, self.curves = desk, queue, picture, curves
        self.shape = (desk.scene.cube.shape[1], desk.scene.cube.shape[2])
        self.picked: list[Spectrum] = []
        self.band = 0  # the shown band
        self.errors: dict[
            tuple[int, int], Floats
        ] = {}  # errors of means, by the keys of `error_of`
        self.draw()

    def take(self) -> None:
        """Read the spectra of the same pixels and regions from the current scene."""
        self.picked = [
            spectra.pick(self.desk.scene, s.row, s.col)
            if s.outline is None
            else self.mean_of(s.outline)
            for s in self.picked
        ]
        self.draw()

    @explained
    def pick(self, row: int, col: int) -> None:
        """Add the spectrum of a pixel; pixels outside of the scene are ignored."""
        if not (0 <= row < self.shape[0] and 0 <= col < self.shape[1]):
            return
        self.desk.controls.row.value, self.desk.controls.col.value = row, col
        self.add(spectra.pick(self.desk.scene, row, col))

    def add(self, spectrum: Spectrum) -> None:
        """Add a spectrum; only the latest ones are kept, as many as there are colours."""
        self.picked = [*self.picked, spectrum][-len(COLOURS) :]
        self.draw()

    @explained
    def forget(self, *_: Any) -> None:
        """Remove all spectra."""
        self.picked = []
        self.draw()

    # ── means ────────────────────────────────────────────────────────────────────────────────────

    @explained
    def mean_text(self, *_: Any) -> None:
        """Add the mean spectrum of the rectangle that was typed as rows and columns."""
        field = self.desk.controls.region
        if field.value.strip():
            self.mean(box(*ranges_of(field.value)))
            field.value = ""

    @explained
    def mean(self, outline: Outline) -> None:
        """Add the mean spectrum of the pixels inside an outline."""
        if not enclosed(*outline, self.shape).any():
            raise BadValue("that encloses no pixel of the picture; draw inside it")
        if not among(outline, (s.outline for s in self.picked if s.outline is not None)):
            self.add(self.mean_of(outline))

    def mean_of(self, outline: Outline) -> Spectrum:
        """Return the mean spectrum inside an outline; its error is computed later, if needed."""
        scene, inside = self.desk.scene, enclosed(*outline, self.shape)
        spectrum = region_means.mean_spectrum(scene, inside, outline)
        if error_of(scene, outline) in self.errors:
            return spectrum._replace(sigma=self.errors[error_of(scene, outline)])
        if spectrum.filled.any():
            begin = partial(PageWork, lambda: region_means.error_of_mean(result_of(scene), inside))
            answer = partial(self.take_error, scene, outline)
            self.queue.add(PageJob("Error of a mean", begin, answer))
        return spectrum

    @explained
    def take_error(self, scene: ViewedScene, outline: Outline, work: PageWork[Floats]) -> None:
        """Add the error bars to a mean spectrum; work: the job that computed them."""
        if work.value is None:
            raise BadValue(f"the mean has no error bar: {work.error}")
        self.errors[error_of(scene, outline)] = work.value
        for number, spectrum in enumerate(self.picked):
            if spectrum.outline is outline and scene.after is self.desk.scene.after:
                self.picked[number] = spectrum._replace(sigma=work.value)
        self.draw()

    # ── drawing ──────────────────────────────────────────────────────────────────────────────────

    def draw(self) -> None:
        self.curves.draw(self.picked)
        self.picture.put_markers(self.picked)
        self.describe(self.band)

    def describe(self, band: int) -> None:
        """Show the values of the spectra in a band."""
        self.band = band
        self.curves.cursor.location = float(self.curves.x[band])
        self.desk.controls.picks.text = captions.picks(self.desk.scene, self.picked, band)

    def as_csv(self) -> StringIO:
        return StringIO(spectra.as_csv(self.desk.scene, self.picked))


def error_of(scene: ViewedScene, outline: Outline) -> tuple[int, int]:
    """Return a key for the error of a mean; fills and outlines live as long as the page."""
    return id(scene.after), id(outline)
