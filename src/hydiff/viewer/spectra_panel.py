"""Spectra of pixels that were clicked, or named by row and column."""

from __future__ import annotations

from io import StringIO
from typing import Any

from hydiff.viewer import captions, spectra
from hydiff.viewer.charts import Curves, Picture
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.spectra import COLOURS, Spectrum


class SpectraPanel:
    def __init__(self, desk: PageState, picture: Picture, curves: Curves) -> None:
        self.desk, self.picture, self.curves = desk, picture, curves
        self.picked: list[Spectrum] = []
        self.band = 0  # on show
        self.draw()

    def take(self) -> None:
        """The same pixels of the scene that is on the desk now."""
        self.picked = [spectra.pick(self.desk.scene, s.row, s.col) for s in self.picked]
        self.draw()

    @explained
    def pick(self, row: int, col: int) -> None:
        rows, cols = self.desk.scene.cube.shape[1:]
        if not (0 <= row < rows and 0 <= col < cols):
            return
        if len(self.picked) == len(COLOURS):
            self.picked.pop(0)
        self.picked.append(spectra.pick(self.desk.scene, row, col))
        self.desk.controls.row.value, self.desk.controls.col.value = row, col
        self.draw()

    @explained
    def forget(self, *_: Any) -> None:
        self.picked = []
        self.draw()

    def draw(self) -> None:
        self.curves.draw(self.picked)
        self.picture.put_markers(self.picked)
        self.describe(self.band)

    def describe(self, band: int) -> None:
        """The values in the band on show."""
        self.band = band
        self.curves.cursor.location = float(self.curves.x[band])
        self.desk.controls.picks.text = captions.picks(self.desk.scene, self.picked, band)

    def as_csv(self) -> StringIO:
        return StringIO(spectra.as_csv(self.desk.scene, self.picked))
