"""The page: a picture to swipe over, spectra to compare, a fill to start and watch.

Python keeps the state and works out pictures; the browser only swipes between two of them.  All
that is drawn on a canvas is also said in words beside it.

    files → ViewedScene → rendering (a choice of bands as pixels) → charts, captions → the browser

Each part of the page has a panel: looking (the picture), picking (spectra), marking (gaps by
hand), working (a fill from here), following (a fill elsewhere).  They share the desk, `PageState`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import panel as pn
from bokeh.events import ConnectionLost, DocumentReady, SelectionGeometry, Tap
from bokeh.models import CustomJS

from hydiff.cube import Bools
from hydiff.viewer import captions, images, rendering
from hydiff.viewer.browser import code
from hydiff.viewer.charts import TAKE, Curves, Picture
from hydiff.viewer.controls import Controls
from hydiff.viewer.fill_panel import FillPanel
from hydiff.viewer.marks_panel import MarksPanel
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.picture_panel import PicturePanel
from hydiff.viewer.scene_layers import ViewedScene
from hydiff.viewer.spectra_panel import SpectraPanel
from hydiff.viewer.tiles_panel import TilesPanel


class Page:
    """One tab of the viewer; `layout` is what is shown."""

    def __init__(
        self, scene: ViewedScene, observed: Bools | None = None, output: Path | None = None
    ) -> None:
        cube, presets = scene.cube, images.presets(scene.cube)
        self.controls = Controls(cube, presets, output)
        self.controls.title.text = captions.title(scene)
        self.picture = Picture(rendering.whole_of((cube.shape[1], cube.shape[2]), images.GLANCE))
        self.curves = Curves(cube)
        self.layout = self.controls.arranged(self.picture, self.curves)
        self.desk = PageState(scene, self.controls, self.layout)
        self.looking = PicturePanel(self.desk, self.picture, presets)
        self.picking = SpectraPanel(self.desk, self.picture, self.curves)
        self.marking = MarksPanel(self.desk, self.picture)
        self.working = FillPanel(self.desk, self.marking.marked, self.take, observed, output)
        self.looking.hover()
        self.draw()
        self.following = TilesPanel(self.desk, self.take)
        self.wire()

    def wire(self) -> None:
        """Connect widgets and events with the panels that answer them."""
        c, figure = self.controls, self.picture.figure
        for widget in (c.show, c.palette, c.band, *c.rgb, c.stretch):
            widget.param.watch(self.draw, "value")
        for widget, answer in (
            (c.preset, self.looking.take_preset),
            (c.gaps, self.looking.take_gaps),
            (c.method, self.working.take_method),
            (c.rectangle, self.marking.mark_text),
        ):
            widget.param.watch(answer, "value")
        for press, answer in (
            (c.add, lambda _: self.picking.pick(c.row.value, c.col.value)),
            (c.clear, self.picking.forget),
            (c.reread, self.read_again),
            (c.undo, self.marking.unmark),
            (c.fill, self.working.start),
            (c.stop, self.working.stop),
            (c.save, self.working.save),
        ):
            press.on_click(answer)
        c.drag.jscallback(value=TAKE, args={"tools": self.picture.tools})
        c.png.callback, c.csv.callback = self.looking.as_png, self.picking.as_csv
        figure.on_event(Tap, lambda e: self.picking.pick(int(np.floor(e.y)), int(np.floor(e.x))))
        figure.on_event(SelectionGeometry, self.marking.mark_drawn)
        self.picture.at.on_change("data", lambda attr, old, new: self.looking.hover())
        self.picture.sight.on_change("data", lambda attr, old, new: self.looking.sharpen())
        if pn.state.curdoc is not None:
            pn.state.curdoc.js_on_event(DocumentReady, CustomJS(code=code("ready.js")))
            pn.state.curdoc.js_on_event(ConnectionLost, CustomJS(code=code("lost.js")))
            pn.state.on_session_destroyed(lambda _: self.working.stop())  # nobody waits for it

    @explained
    def draw(self, *_: Any) -> None:
        self.looking.draw()
        self.picking.describe(self.looking.choice().bands[0])

    def take(self, scene: ViewedScene) -> None:
        """Show this from now on."""
        self.desk.scene = scene
        self.looking.take()
        self.picking.take()
        self.draw()

    @explained
    def read_again(self, *_: Any) -> None:
        self.desk.alert()
        self.take(self.desk.scene)
