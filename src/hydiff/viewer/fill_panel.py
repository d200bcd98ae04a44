"""Start, watch, stop and save fills from the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydiff.cube import Bools
from hydiff.errors import BadValue
from hydiff.methods import DEFAULT
from hydiff.result import duration
from hydiff.viewer import running_fill
from hydiff.viewer.background import PageJob, Queue
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.running_fill import RunningFill
from hydiff.viewer.scene_layers import Layer, ViewedScene, of_result


class FillPanel:
    def __init__(
        self,
        desk: PageState,
        queue: Queue,
        marked: Callable[[], Bools],  # (rows, cols) True where the user marked a gap
        take: Callable[[ViewedScene], None],  # shows a scene
        keep: Callable[[str, ViewedScene], None],  # shows a fill, and offers it for comparisons
        output: Path | None,
    ) -> None:
        self.desk, self.queue, self.marked = desk, queue, marked
        self.take, self.keep, self.output = take, keep, output
        self.count = 0  # fills started
        self.previews = 0  # previews shown
        self.take_method()

    @explained
    def take_method(self, *_: Any) -> None:
        """Show the settings that apply to the chosen method."""
        c = self.desk.controls
        c.budget.visible = c.method.value == DEFAULT
        c.settings.visible = not c.budget.visible

    @explained
    def start(self, *_: Any) -> None:
        """Start a fill now, or when the jobs before it are done."""
        c, source = self.desk.controls, self.desk.source
        self.desk.alert()
        settings = running_fill.settings_of(c.settings.value)
        running_fill.refuse_large(source.cube, c.method.value)
        observed = ~self.marked() if source.observed is None else source.observed & ~self.marked()
        if source.before.hidden is not None:  # entries of an earlier fill are not observed
            observed = observed & ~source.before.hidden.all()
        references = [cube for cube, _ in self.desk.references.values()]
        references = references if c.with_reference.value else []
        arguments = (source.cube, observed, c.method.value, c.budget.value, settings, references)
        self.count += 1
        name, method = f"{self.count} {c.method.value}", c.method.value
        job = PageJob(
            f"Filling with {method}", partial(self.begin, *arguments), partial(self.finish, name)
        )
        self.queue.add(job._replace(watch=partial(self.watch, method)))

    def begin(self, *ask: Any) -> RunningFill:
        """Start a fill in its own thread; ask: the arguments of `RunningFill`."""
        self.previews = 0
        self.desk.controls.stop.disabled = False
        self.desk.progress(0, 1)
        return RunningFill(*ask)

    @explained
    def stop(self, *_: Any) -> None:
        """Stop the running fill after its current step."""
        if isinstance(self.queue.work, RunningFill):
            self.queue.work.stop()
            self.desk.busy("Stopping after this step …")

    def watch(self, method: str, work: RunningFill) -> None:
        """Show the progress of the fill, and its latest preview."""
        if work.total and not work.stopping.is_set():
            self.desk.progress(work.done, work.total)
            left = work.meter.read().left
            time_left = "" if left is None else f", about {duration(left)} left"
            self.queue.say(f"{method}: step {work.done} of {work.total}{time_left}")
        if work.previews > self.previews and work.preview is not None:
            self.previews = work.previews
            source = self.desk.source
            preview = replace(
                source.cube, values=work.preview, nodata=None, valid=None, missing_rule=None
            )
            self.take(replace(source, after=Layer(preview), fills=None))

    def finish(self, name: str, work: RunningFill) -> None:
        """Show the result of a fill under its name, or its error."""
        self.desk.controls.stop.disabled = not isinstance(self.queue.work, RunningFill)
        result, source = work.value, self.desk.source
        if result is None:
            self.desk.progress(0, 1)
            self.desk.status("Nothing was filled.")
            self.desk.alert(work.error or "the fill ended without a result")
            return
        self.desk.progress(1, 1)
        scene = replace(of_result(result), truth=source.truth, name=source.name)
        self.keep(name, scene)

    @explained
    def describe(self) -> None:
        """Describe the shown fill, and enable saving it if it was made here."""
        result = self.desk.scene.result
        self.desk.controls.save.disabled = result is None
        self.desk.saved("")
        if result is None:
            return
        lines = [f"Filled {result.filled.sum():,} entries with {result.method}"]
        lines[0] += f" in {result.seconds:.1f} s."
        lines += [f"{count:,} left: {reason}" for reason, count in result.left.items()]
        self.desk.status(*lines, *result.notes)

    @explained
    def save(self, *_: Any) -> None:
        """Write the shown fill into the folder of the output, under the name in the field."""
        if self.desk.scene.result is None:
            raise BadValue("there is no fill to save yet; press Fill first")
        if self.output is None:
            raise BadValue("no place to save was given; call view(…, output=NAME)")
        name = self.desk.controls.name.value.strip()
        paths = running_fill.save(self.desk.scene.result, name, self.output)
        self.desk.alert()
        names = ", ".join(path.name for path in paths)
        self.desk.saved(f"Saved {names} in {self.output.parent.resolve()}")
