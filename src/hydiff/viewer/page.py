"""The page: a picture with a swipe line, spectra, and controls to start, watch and compare fills.

Python keeps the state and computes the pictures; the browser only swipes between two of them.
Everything drawn on a canvas is also described in text next to it.

    files → ViewedScene → rendering (chosen bands as pixels) → drawings, captions → the browser

Each part of the page has a panel, an attribute of `Page`: looking (the picture), picking (spectra
and means), marking (gaps marked by hand), working (fills started here), comparing (fills),
flickering (samples), opening (files), following (a fill by tiles in another process).  They share
the `PageState`, in their attribute `desk`, and the queue of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import panel as pn
from bokeh.events import ConnectionLost, DocumentReady, SelectionGeometry, Tap
from bokeh.models import CustomJS

from hydiff.cube import Bools
from hydiff.viewer import captions, images, map_marks, outlines, rendering
from hydiff.viewer.background import Queue
from hydiff.viewer.browser import code
from hydiff.viewer.compare_panel import ComparePanel
from hydiff.viewer.controls import COMPARE, FILL, OPEN, Controls
from hydiff.viewer.curves import Curves
from hydiff.viewer.files_panel import FilesPanel
from hydiff.viewer.fill_panel import FillPanel
from hydiff.viewer.keys_panel import KeysPanel
from hydiff.viewer.marks_panel import MarksPanel
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.picture import GAP_BOX, GAP_SHAPE, TAKE, Picture
from hydiff.viewer.picture_panel import PicturePanel
from hydiff.viewer.samples_panel import SamplesPanel
from hydiff.viewer.scene_layers import ViewedScene, from_files
from hydiff.viewer.sheet import OUTLINED
from hydiff.viewer.spectra_panel import SpectraPanel
from hydiff.viewer.tiles_panel import TilesPanel
from hydiff.viewer.widgets import STRETCH


class Window:
    """A tab of the browser; its page is replaced when another scene is opened."""

    def __init__(
        self,
        scene: ViewedScene,
        observed: Bools | None = None,
        output: Path | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        self.output, self.folders = output, folders
        self.layout = pn.Column(**STRETCH)
        self.show(replace(scene, observed=observed), output)
        if pn.state.curdoc is not None:
            pn.state.curdoc.template = code("page.html")
            for event, script in ((DocumentReady, "ready.js"), (ConnectionLost, "lost.js")):
                pn.state.curdoc.js_on_event(event, CustomJS(code=code(script)))
            pn.state.on_session_destroyed(lambda _: self.page.queue.end())

    def show(self, scene: ViewedScene, output: Path | None) -> None:
        """Replace the page; output: the file that “Save” proposes, None for no saving."""
        self.page = Page(scene, output, self.layout, self.folders, self.open)
        self.layout.objects = [self.page.arranged]

    def open(self, path: Path) -> None:
        """Show another scene; files are still saved into the same folder."""
        from hydiff.viewer.running_fill import default_output

        scene = from_files(path)
        self.page.queue.end()
        name = default_output(scene.cube.path or path).name
        self.show(scene, None if self.output is None else self.output.with_name(name))


class Page:
    """The page of one scene; `arranged` is its layout."""

    def __init__(
        self,
        scene: ViewedScene,
        output: Path | None,
        layout: Any,
        folders: Sequence[Path],
        reopen: Callable[[Path], None],
    ) -> None:
        cube, presets = scene.cube, images.presets(scene.cube)
        self.controls = c = Controls(cube, presets, output)
        c.title.text = captions.title(scene)
        c.keys.text = captions.KEYS
        c.north.text = captions.north(map_marks.north(cube))
        whole = rendering.whole_of((cube.shape[1], cube.shape[2]), images.GLANCE)
        self.picture, self.curves = Picture(whole), Curves(cube)
        self.arranged = c.arranged(self.picture, self.curves)
        self.desk = desk = PageState(scene, c, layout)
        if scene.after is not None and scene.unfinished is None:
            path = scene.after.cube.path
            desk.fills["fill" if path is None else path.name] = scene
        self.queue = queue = Queue(desk)
        self.looking = PicturePanel(desk, self.picture, presets)
        self.picking = SpectraPanel(desk, queue, self.picture, self.curves)
        self.marking = MarksPanel(desk, self.picture)
        self.working = FillPanel(desk, queue, self.marking.marked, self.take, self.keep, output)
        self.comparing = ComparePanel(desk, self.looking.choice, self.take)
        self.flickering = SamplesPanel(desk, queue, self.picture, whole, self.looking.choice)
        self.opening = FilesPanel(desk, queue, folders, reopen, self.keep, self.comparing.offer)
        self.keys = KeysPanel(desk, self.picture, self.picking.pick)
        desk.busy("")
        desk.saved("")
        self.looking.hover()
        self.working.describe()
        self.draw()
        self.following = TilesPanel(desk, self.take)
        self.wire()

    def wire(self) -> None:
        """Connect widgets and events to the methods of the panels."""
        c, figure = self.controls, self.picture.figure
        for widget in (c.show, c.palette, c.band, *c.rgb, c.stretch):
            widget.param.watch(self.draw, "value")
        for widget, handler in (
            (c.preset, self.looking.take_preset),
            (c.gaps, self.looking.take_gaps),
            (c.map, self.looking.take_map),
            (c.flicker, self.flickering.switch),
            (c.method, self.working.take_method),
            (c.rectangle, self.marking.mark_text),
            (c.region, self.picking.mean_text),
            (c.left, self.comparing.choose),
            (c.right, self.comparing.choose),
            (c.tab, self.turn),
        ):
            widget.param.watch(handler, "value")
        for button, handler in (
            (c.add, lambda _: self.picking.pick(c.row.value, c.col.value)),
            (c.clear, self.picking.forget),
            (c.reread, self.read_again),
            (c.list_again, self.opening.look),
            (c.open_scene, self.opening.open_scene),
            (c.open_fill, self.opening.open_fill),
            (c.open_reference, self.opening.open_reference),
            (c.undo, self.marking.unmark),
            (c.fill, self.working.start),
            (c.stop, self.working.stop),
            (c.save, self.working.save),
        ):
            button.on_click(handler)
        c.drag.jscallback(value=TAKE, args={"tools": self.picture.tools})
        c.png.callback, c.csv.callback = self.looking.as_png, self.picking.as_csv
        figure.on_event(Tap, lambda e: self.picking.pick(int(np.floor(e.y)), int(np.floor(e.x))))
        figure.on_event(SelectionGeometry, self.enclose)
        self.picture.at.on_change("data", lambda attr, old, new: self.looking.hover())
        self.picture.sight.on_change("data", lambda attr, old, new: self.zoom())

    @explained
    def draw(self, *_: Any) -> None:
        """Draw the picture, the values of the spectra, the samples and the small pictures."""
        self.looking.draw()
        self.picking.describe(self.looking.choice().bands[0])
        self.flickering.draw()
        self.comparing.draw()

    @explained
    def zoom(self) -> None:
        """Update the picture, the map lines and the small pictures after a change of the view."""
        self.looking.sharpen()
        box = self.looking.box()
        self.picture.map.draw(box)
        self.comparing.zoom(box)

    @explained
    def turn(self, *_: Any) -> None:
        """Show the chosen card."""
        c = self.controls
        for name, card in ((FILL, c.fill_card), (COMPARE, c.compare_card), (OPEN, c.open_card)):
            card.visible = c.tab.value == name
        self.comparing.draw()

    def enclose(self, event: Any) -> None:
        """Use a drawn outline: mark it as a gap, or show the mean spectrum of its pixels."""
        if event.final:
            is_gap = self.controls.drag.value in (GAP_BOX, GAP_SHAPE)
            handler = self.marking.mark if is_gap else self.picking.mean
            handler(outlines.drawn(event.geometry))

    def take(self, scene: ViewedScene) -> None:
        """Show a scene in all panels."""
        self.desk.scene = scene
        self.looking.take()
        self.picking.take()
        self.working.describe()
        self.draw()

    def keep(self, name: str, scene: ViewedScene) -> None:
        """Show a fill, and offer it for comparisons."""
        self.desk.fills[name] = scene
        self.controls.gaps.value = OUTLINED  # gaps are filled now: outline them
        self.comparing.offer(name)
        self.take(self.comparing.chosen())

    @explained
    def read_again(self, *_: Any) -> None:
        """Read the shown values again, for a file that has changed."""
        self.desk.alert()
        self.take(self.desk.scene)
