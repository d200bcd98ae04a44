"""The page: a picture to swipe over, spectra to compare, a fill to start and watch.

Python keeps the state and works out pictures; the browser only swipes between two of them.  All
that is drawn on a canvas is also said in words beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import panel as pn
from bokeh.events import DocumentReady, SelectionGeometry, Tap
from bokeh.models import CustomJS

from hydiff import io
from hydiff.cube import Array, Bools, Floats
from hydiff.errors import BadValue, HydiffError
from hydiff.methods import DEFAULT
from hydiff.viewer import filling, images, live, spectra
from hydiff.viewer.controls import COMPOSITE, ERROR, LABELS, OWN, PALETTES, SIGMA, SINGLE, Controls
from hydiff.viewer.figures import TAKE, Curves, Picture
from hydiff.viewer.filling import Filling
from hydiff.viewer.images import Limits, Pixels
from hydiff.viewer.layers import Layer, Scene, of_result, read_fills
from hydiff.viewer.spectra import COLOURS, Spectrum

LARGE = 2e8  # bytes of a file that is not read as a whole just to look at it
KEPT_PLANES = 24  # for going back and forth between bands
TICK, LIVE_TICK = 300, 2000  # ms between two looks at a running fill


def explained(method: Callable[..., None]) -> Callable[..., None]:
    """An answer to the user: its changes are sent together, and what goes wrong is told."""

    @wraps(method)
    def answer(self: Page, *args: Any) -> None:
        try:
            with pn.io.hold():
                method(self, *args)
        except HydiffError as error:
            self.say(str(error))
        except Exception as error:  # such as a file that has changed under the viewer
            logging.getLogger(__name__).exception("the page could not answer")
            told = f"{type(error).__name__}: {error}"
            self.say(f"That went wrong ({told}). If the file has changed, open it anew.")

    return answer


class Page:
    """One tab of the viewer; `layout` is what is shown."""

    def __init__(
        self, scene: Scene, observed: Bools | None = None, output: Path | None = None
    ) -> None:
        self.scene, self.observed, self.output = scene, observed, output
        self.asked = scene  # as it was given, to fill from
        self.shape = (scene.cube.shape[1], scene.cube.shape[2])
        self.step = images.step_for(self.shape)
        self.planes: dict[tuple[str, int], Floats] = {}
        self.picked: list[Spectrum] = []
        self.regions: list[tuple[Array, Array]] = []  # outlines of what was marked: cols, rows
        self.filling: Filling | None = None
        self.previews = 0  # of the running fill, that were shown
        self.tiles = -1  # of a fill by tiles, that were shown
        self.ticker: Any = None
        self.presets = images.presets(scene.cube)
        self.controls = Controls(scene.cube, self.presets, output)
        self.picture = Picture(self.shape, self.step)
        self.curves = Curves(scene.cube)
        self.layout = self.controls.arranged(self.picture, self.curves)
        self.begin()
        self.wire()

    def begin(self) -> None:
        cube, c = self.scene.cube, self.controls
        told = f"{cube.bands} bands × {self.shape[0]} rows × {self.shape[1]} columns, {cube.dtype}"
        c.title.object = f"<h1>{escape(self.scene.name)}</h1><p>{escape(told)}</p>"
        self.offer()
        self.explain()
        self.take_method()
        self.draw()
        self.hover()
        self.draw_picks()
        self.draw_marks()
        if self.observed is not None:
            self.tell("A mask file was given: Fill takes what it calls missing.")
        if self.scene.unfinished is not None:
            self.look_at_tiles()
            self.ticker = pn.state.add_periodic_callback(self.look_at_tiles, period=LIVE_TICK)

    def wire(self) -> None:
        """Who is told when what changes."""
        c, figure = self.controls, self.picture.figure
        for widget in (c.show, c.palette, c.band, *c.rgb, c.stretch):
            widget.param.watch(self.draw, "value")
        for widget, answer in (
            (c.preset, self.take_preset),
            (c.gaps, self.take_gaps),
            (c.method, self.take_method),
            (c.rectangle, self.mark_text),
        ):
            widget.param.watch(answer, "value")
        for press, answer in (
            (c.add, lambda _: self.pick(c.row.value, c.col.value)),
            (c.clear, self.forget),
            (c.reread, self.read_again),
            (c.undo, self.unmark),
            (c.fill, self.start),
            (c.stop, self.stop),
            (c.save, self.save),
        ):
            press.on_click(answer)
        c.drag.jscallback(value=TAKE, args={"tools": self.picture.tools})
        c.png.callback, c.csv.callback = self.as_png, self.as_csv
        figure.on_event(Tap, lambda e: self.pick(int(np.floor(e.y)), int(np.floor(e.x))))
        figure.on_event(SelectionGeometry, self.mark_drawn)
        if pn.state.curdoc is not None:
            pn.state.curdoc.js_on_event(DocumentReady, CustomJS(code=LABELS))
            pn.state.on_session_destroyed(lambda _: self.stop())  # nobody waits for it any more
        self.picture.at.on_change("data", lambda attr, old, new: self.hover())

    def say(self, *lines: str) -> None:
        """What the user must know, at the top of the page."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        self.controls.alert.object = f'<div role="alert">{text}</div>' if lines else ""

    def tell(self, line: str) -> None:
        """How the fill is getting on."""
        self.controls.status.object = f'<p role="status">{escape(line)}</p>'

    def take(self, scene: Scene) -> None:
        """Show this from now on."""
        self.scene = scene
        self.planes.clear()
        self.picked = [spectra.pick(scene, s.row, s.col) for s in self.picked]
        self.offer()
        self.draw()
        self.draw_picks()

    # ── the picture ──────────────────────────────────────────────────────────────────────────────

    def plane(self, layer: str, band: int) -> Floats:
        """A band of the layer of this name, from those kept if it is among them."""
        key = (layer, band)
        if key not in self.planes:
            if len(self.planes) >= KEPT_PLANES:
                self.planes.pop(next(iter(self.planes)))
            if layer == "sigma" and self.scene.fills is not None:
                plane = self.scene.fills.sigma_plane(band)[:: self.step, :: self.step]
            else:
                plane = getattr(self.scene, layer).plane(band, self.step)
            self.planes[key] = plane
        return self.planes[key]

    def bands(self) -> list[int]:
        """The bands on show, from 0."""
        c = self.controls
        if c.show.value == COMPOSITE:
            return [slider.value - 1 for slider in c.rgb]
        return [c.band.value - 1 if self.scene.cube.bands > 1 else 0]

    def limits(self, band: int) -> Limits | None:
        """Of the measured pixels; of the filled ones when none was measured."""
        percent = self.controls.stretch.value
        found = images.limits(self.plane("before", band), percent)
        if found is None and self.scene.after is not None:
            found = images.limits(self.plane("after", band), percent)
        return found

    def pictures(self) -> tuple[list[Pixels], list[Limits | None]]:
        """One picture, or before and after, and the limits of each band on show."""
        c, bands = self.controls, self.bands()
        palette = images.palette(PALETTES[c.palette.value])
        if c.show.value in (SIGMA, ERROR):
            plane = self.plane("sigma", bands[0]) if c.show.value == SIGMA else self.error(bands[0])
            top = images.limits(plane, (0.0, c.stretch.value[1]))
            limit = None if top is None else Limits(0.0, top.high)
            return [images.mapped(plane, limit, palette)], [limit]
        limits = [self.limits(band) for band in bands]
        made = []
        for layer in ("before", "after"):
            if getattr(self.scene, layer) is not None:
                planes = [self.plane(layer, band) for band in bands]
                made.append(
                    images.composite(planes, limits)
                    if len(planes) == 3
                    else images.mapped(planes[0], limits[0], palette)
                )
        return made, limits

    def error(self, band: int) -> Floats:
        best = self.plane("before" if self.scene.after is None else "after", band)
        return np.abs(best - self.plane("truth", band))

    def holes(self) -> Bools:
        """(rows, cols) where a band on show was missing before."""
        lost = [np.isnan(self.plane("before", band)) for band in self.bands()]
        return np.logical_or.reduce(lost)  # type: ignore[no-any-return]

    @explained
    def draw(self, *_: Any) -> None:
        c = self.controls
        single = c.show.value != COMPOSITE
        c.colour_row.visible, c.single_row.visible = not single, single
        made, limits = self.pictures()
        lost = self.holes()
        self.picture.show(made, lost)
        c.swipe.visible = len(made) == 2
        self.curves.cursor.location = float(self.curves.x[self.bands()[0]])
        self.tell_state(limits, lost)
        self.tell_picks()

    def tell_state(self, limits: list[Limits | None], lost: Bools) -> None:
        c, parts = self.controls, []
        names = ("red ", "green ", "blue ") if len(limits) == 3 else ("",)
        for name, band, limit in zip(names, self.bands(), limits, strict=True):
            shown = "no value" if limit is None else f"{limit.low:.4g} to {limit.high:.4g}"
            parts.append(f"{name}{self.band_name(band)} from {shown}".replace("from no", "has no"))
        share = f"{100 * float(lost.mean()):.3g} % of the pixels missing"
        every = f"; 1 of {self.step} rows and columns is shown" if self.step > 1 else ""
        line = f"{c.show.value}: {', '.join(parts)}; {share}{every}."
        c.state.object = f"<p>{escape(line)}</p>"
        if c.preset.value in self.presets and len(limits) == 3:
            own = list(self.presets[c.preset.value]) != self.bands()
            c.preset.value = OWN if own else c.preset.value

    def band_name(self, band: int) -> str:
        nm = images.nanometres(self.scene.cube)
        told = [] if nm is None or not np.isfinite(nm[band]) else [f"{nm[band]:.0f} nm"]
        told += [] if self.scene.cube.good_bands[band] else ["bad"]
        return f"band {band + 1}" + (f" ({', '.join(told)})" if told else "")

    def explain(self) -> None:
        """Say what is odd about the scene, and begin with bands that have values."""
        cube, odd = self.scene.cube, []
        if cube.bands == 1:
            odd.append("This file has one band: it is shown by itself, and spectra are one value.")
        if images.nanometres(cube) is None:
            odd.append("This file tells no wavelengths: bands are shown by their number.")
        alive = self.alive()
        living = np.flatnonzero(alive)
        if not living.size:
            odd.append("Every entry is missing: there is nothing to show or to fill from.")
        elif not alive.all():
            odd.append(f"{(~alive).sum()} of {cube.bands} bands have no value in any pixel.")
            for slider in (*self.controls.rgb, self.controls.band):
                slider.value = int(living[np.argmin(np.abs(living - slider.value + 1))]) + 1
        self.say(*odd)

    def alive(self) -> Bools:
        """(bands,) True where some pixel has a value; only the bands to begin with are looked at
        in a file too large to be read for that."""
        before, bands = self.scene.before, self.scene.cube.bands
        if self.scene.cube.nbytes < LARGE:
            return before.alive()
        found = np.ones(bands, bool)
        for band in {slider.value - 1 for slider in self.controls.rgb}:
            found[band] = np.isfinite(before.plane(band, self.step)).any()
        return found

    @explained
    def take_preset(self, *_: Any) -> None:
        c = self.controls
        for slider, band in zip(c.rgb, self.presets.get(c.preset.value, ()), strict=False):
            slider.value = band + 1

    @explained
    def take_gaps(self, *_: Any) -> None:
        self.picture.overlay.visible = self.controls.gaps.value

    def offer(self) -> None:
        """The maps that there are data for."""
        fills = self.scene.fills
        maps = [COMPOSITE, SINGLE] if self.scene.cube.bands > 1 else [SINGLE]
        maps += [SIGMA] if fills is not None and fills.shares is not None else []
        maps += [ERROR] if self.scene.truth is not None else []
        if maps != self.controls.show.options:
            self.controls.show.options = maps

    @explained
    def hover(self) -> None:
        at = self.picture.at.data
        row, col = int(at["row"][0]), int(at["col"][0])
        if not self.inside(row, col):
            self.controls.readout.object = "<p>Point at the picture to read its values.</p>"
            return
        row, col = (i // self.step * self.step for i in (row, col))
        told = [spectra.place(self.scene.cube, row, col)]
        for band in self.bands():
            values = (
                f"{n} {spectra.number(self.plane(n, band)[row // self.step, col // self.step])}"
                for n in ("before", "after", "truth")
                if getattr(self.scene, n) is not None
            )
            told.append(f"{self.band_name(band)}: {', '.join(values)}")
        self.controls.readout.object = f"<p>{escape(' · '.join(told))}</p>"

    def inside(self, row: int, col: int) -> bool:
        return 0 <= row < self.shape[0] and 0 <= col < self.shape[1]

    def as_png(self) -> BytesIO:
        """The picture as it is shown, pixel by pixel."""
        from PIL import Image

        made, _ = self.pictures()
        cut = round(self.picture.slider.value / self.shape[1] * made[0].shape[1])
        image = images.swiped(made[0], made[-1], cut)
        gaps = self.holes() if self.controls.gaps.value else np.zeros(image.shape[:2], bool)
        file = BytesIO()
        Image.fromarray(images.overlaid(image, gaps)).save(file, format="png")
        file.seek(0)
        return file

    # ── spectra ──────────────────────────────────────────────────────────────────────────────────

    @explained
    def pick(self, row: int, col: int) -> None:
        if not self.inside(row, col):
            return
        if len(self.picked) == len(COLOURS):
            self.picked.pop(0)
        self.picked.append(spectra.pick(self.scene, row, col))
        self.controls.row.value, self.controls.col.value = row, col
        self.draw_picks()

    @explained
    def forget(self, *_: Any) -> None:
        self.picked = []
        self.draw_picks()

    def draw_picks(self) -> None:
        self.curves.draw(self.picked)
        self.picture.put_markers(self.picked)
        self.tell_picks()

    def tell_picks(self) -> None:
        c, band = self.controls, self.bands()[0]
        if not self.picked:
            c.picks.object = "<p>Click a pixel, or give its row and column, for its spectrum.</p>"
            return
        rows = []
        for number, (s, colour) in enumerate(zip(self.picked, COLOURS, strict=False), start=1):
            filled = f"{s.filled.sum()} of {len(s.filled)} bands filled; "
            values = f"{self.band_name(band)}: {spectra.values_at(s, band)}"
            rows.append(
                f'<tr><td><span class="chip" style="background:{colour}">{number}</span></td><td>'
                f"{escape(spectra.place(self.scene.cube, s.row, s.col))}<br>"
                f"{filled if s.after is not None else ''}{escape(values)}</td></tr>"
            )
        key = ["Thick pale line: before"]
        key += ["thin line: after", "diamonds: filled"] if self.scene.after is not None else []
        key += ["shade: ±1 σ"] if self.picked[0].sigma is not None else []
        key += ["dashed: truth"] if self.scene.truth is not None else []
        key += [] if self.scene.cube.good_bands.all() else ["grey: bad bands"]
        c.picks.object = f"<p>{', '.join(key)}.</p><table>{''.join(rows)}</table>"

    def as_csv(self) -> StringIO:
        return StringIO(spectra.as_csv(self.scene, self.picked))

    # ── gaps marked by hand ──────────────────────────────────────────────────────────────────────

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
        if self.controls.rectangle.value.strip():
            self.mark(box(*filling.ranges_of(self.controls.rectangle.value)))
            self.controls.rectangle.value = ""

    def mark(self, outline: tuple[Array, Array]) -> None:
        if not filling.enclosed(*outline, self.shape).any():
            raise BadValue("that marks no pixel of the picture; draw inside it")
        self.regions.append(outline)
        self.draw_marks()

    @explained
    def unmark(self, *_: Any) -> None:
        self.regions = self.regions[:-1]
        self.draw_marks()

    def draw_marks(self) -> None:
        self.picture.put_regions(self.regions)
        count = int(self.marked().sum())
        told = f"{count:,} pixels are marked by hand as gaps of all bands." if count else ""
        self.controls.marked.object = f"<p>{told}</p>"

    def marked(self) -> Bools:
        """(rows, cols) True inside what was marked."""
        inside = np.zeros(self.shape, bool)
        for outline in self.regions:
            inside |= filling.enclosed(*outline, self.shape)
        return inside

    # ── filling ──────────────────────────────────────────────────────────────────────────────────

    @explained
    def take_method(self, *_: Any) -> None:
        c = self.controls
        c.budget.visible = c.method.value == DEFAULT
        c.settings.visible = not c.budget.visible

    @explained
    def start(self, *_: Any) -> None:
        c = self.controls
        if self.filling is not None and self.filling.running:
            return
        self.say()
        settings = filling.settings_of(c.settings.value)
        cube, hidden = self.asked.cube, self.asked.before.hidden
        filling.refuse_large(cube, c.method.value)
        observed = ~self.marked() if self.observed is None else self.observed & ~self.marked()
        if hidden is not None:  # what an earlier fill has put there
            observed = observed & ~hidden.all()
        self.filling = Filling(cube, observed, c.method.value, c.budget.value, settings)
        self.previews = 0
        self.busy(True)
        self.tell(f"Filling with {c.method.value} …")
        self.ticker = pn.state.add_periodic_callback(self.look, period=TICK)

    @explained
    def stop(self, *_: Any) -> None:
        if self.filling is not None:
            self.filling.stop()
            self.tell("Stopping after this step …")

    def busy(self, running: bool) -> None:
        c = self.controls
        c.fill.disabled, c.stop.disabled, c.save.disabled = running, not running, True

    @explained
    def look(self) -> None:
        """How far is the fill?"""
        c, work = self.controls, self.filling
        if work is None:
            return
        if not work.running:
            self.ticker.stop()
            self.busy(False)
            self.finish(work)
            return
        if work.total and not work.stopping.is_set():
            c.bar.value = int(100 * work.done / work.total)
            self.tell(f"{c.method.value}: step {work.done} of {work.total}")
        if work.previews > self.previews and work.preview is not None:
            self.previews = work.previews
            so_far = replace(
                self.asked.cube, values=work.preview, nodata=None, valid=None, missing_rule=None
            )
            self.take(replace(self.asked, after=Layer(so_far), fills=None))

    def finish(self, work: Filling) -> None:
        result = work.result
        if result is None:
            self.controls.bar.value = 0
            self.tell("Nothing was filled.")
            self.say(work.error or "the fill ended without a result")
            return
        self.controls.bar.value = 100
        self.controls.save.disabled = False
        self.take(replace(of_result(result), truth=self.asked.truth, name=self.asked.name))
        told = [f"Filled {result.filled.sum():,} entries with {result.method}"]
        told[0] += f" in {result.seconds:.1f} s"
        told += [f"{count:,} left: {reason}" for reason, count in result.left.items()]
        self.tell("; ".join([*told, *result.notes]) + ".")

    @explained
    def save(self, *_: Any) -> None:
        if self.filling is None or self.filling.result is None:
            raise BadValue("there is no fill to save yet; press Fill first")
        if self.output is None:
            raise BadValue("no place to save was given; call view(…, output=NAME)")
        made = filling.save(self.filling.result, self.controls.name.value.strip(), self.output)
        self.say()
        self.tell(f"Saved {', '.join(path.name for path in made)} in {self.output.parent}.")

    # ── files that are still being written ───────────────────────────────────────────────────────

    @explained
    def read_again(self, *_: Any) -> None:
        self.say()
        self.take(self.scene)

    @explained
    def look_at_tiles(self) -> None:
        """How far is a fill by tiles?"""
        if self.scene.unfinished is None:
            return
        output, work = self.scene.unfinished
        if output.exists():
            if self.ticker is not None:
                self.ticker.stop()
            after, fills = Layer(io.read(output)), read_fills(output, self.scene.cube.shape)
            self.take(replace(self.scene, after=after, fills=fills, unfinished=None))
            self.controls.bar.value = 100
            self.tell(f"The fill by tiles is done: this is {output.name}.")
            return
        done, planned = live.progress(work, self.scene.cube.shape)
        self.controls.bar.value = int(100 * done / planned) if planned else 0
        self.tell(f"A fill by tiles is running: {done} of {planned} tiles are done.")
        if done != self.tiles:
            self.tiles = done
            self.take(self.scene)


def box(rows: tuple[float, float], cols: tuple[float, float]) -> tuple[Array, Array]:
    """The outline of a rectangle: columns and rows of its corners."""
    return np.array([*cols, *cols[::-1]]), np.repeat(rows, 2)
