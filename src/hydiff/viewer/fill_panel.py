"""A fill that is started from the page, watched, stopped and saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import panel as pn

from hydiff.cube import Bools
from hydiff.errors import BadValue
from hydiff.methods import DEFAULT
from hydiff.viewer import running_fill
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.running_fill import RunningFill
from hydiff.viewer.scene_layers import Layer, ViewedScene, of_result

TICK = 300  # ms between two looks at a running fill


class FillPanel:
    def __init__(
        self,
        desk: PageState,
        marked: Callable[[], Bools],  # (rows, cols) True where the user sees a gap
        take: Callable[[ViewedScene], None],  # shows a scene
        observed: Bools | None,  # a further mask, True = measured
        output: Path | None,
    ) -> None:
        self.desk, self.marked, self.take = desk, marked, take
        self.observed, self.output = observed, output
        self.source = desk.scene  # as it was given, to fill from
        self.filling: RunningFill | None = None
        self.previews = 0  # that were shown
        self.ticker: Any = None
        self.take_method()
        if observed is not None:
            desk.status("A mask file was given: Fill takes what it calls missing.")

    @explained
    def take_method(self, *_: Any) -> None:
        c = self.desk.controls
        c.budget.visible = c.method.value == DEFAULT
        c.settings.visible = not c.budget.visible

    @explained
    def start(self, *_: Any) -> None:
        c = self.desk.controls
        if self.filling is not None and self.filling.running:
            return
        self.desk.alert()
        settings = running_fill.settings_of(c.settings.value)
        cube, hidden = self.source.cube, self.source.before.hidden
        running_fill.refuse_large(cube, c.method.value)
        observed = ~self.marked() if self.observed is None else self.observed & ~self.marked()
        if hidden is not None:  # what an earlier fill has put there
            observed = observed & ~hidden.all()
        self.filling = RunningFill(cube, observed, c.method.value, c.budget.value, settings)
        self.previews = 0
        self.busy(True)
        self.desk.progress(0, 1)
        self.desk.status(f"Filling with {c.method.value} …")
        self.ticker = pn.state.add_periodic_callback(self.look, period=TICK)

    @explained
    def stop(self, *_: Any) -> None:
        if self.filling is not None:
            self.filling.stop()
            self.desk.status("Stopping after this step …")

    def busy(self, running: bool) -> None:
        c = self.desk.controls
        c.fill.disabled, c.stop.disabled, c.save.disabled = running, not running, True

    @explained
    def look(self) -> None:
        """How far is the fill?"""
        work, method = self.filling, self.desk.controls.method.value
        if work is None:
            return
        if not work.running:
            self.ticker.stop()
            self.busy(False)
            self.finish(work)
            return
        if work.total and not work.stopping.is_set():
            self.desk.progress(work.done, work.total)
            self.desk.status(f"{method}: step {work.done} of {work.total}")
        if work.previews > self.previews and work.preview is not None:
            self.previews = work.previews
            so_far = replace(
                self.source.cube, values=work.preview, nodata=None, valid=None, missing_rule=None
            )
            self.take(replace(self.source, after=Layer(so_far), fills=None))

    def finish(self, work: RunningFill) -> None:
        result = work.result
        if result is None:
            self.desk.progress(0, 1)
            self.desk.status("Nothing was filled.")
            self.desk.alert(work.error or "the fill ended without a result")
            return
        self.desk.progress(1, 1)
        self.desk.controls.save.disabled = False
        self.take(replace(of_result(result), truth=self.source.truth, name=self.source.name))
        parts = [f"Filled {result.filled.sum():,} entries with {result.method}"]
        parts[0] += f" in {result.seconds:.1f} s"
        parts += [f"{count:,} left: {reason}" for reason, count in result.left.items()]
        self.desk.status("; ".join([*parts, *result.notes]) + ".")

    @explained
    def save(self, *_: Any) -> None:
        if self.filling is None or self.filling.result is None:
            raise BadValue("there is no fill to save yet; press Fill first")
        if self.output is None:
            raise BadValue("no place to save was given; call view(…, output=NAME)")
        name = self.desk.controls.name.value.strip()
        paths = running_fill.save(self.filling.result, name, self.output)
        self.desk.alert()
        self.desk.status(f"Saved {', '.join(path.name for path in paths)} in {self.output.parent}.")
