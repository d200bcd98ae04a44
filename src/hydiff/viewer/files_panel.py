"""Open files from the page: another scene, another fill, or a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import BadValue
from hydiff.viewer import folders, scene_layers
from hydiff.viewer.background import PageJob, Queue
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.page_work import PageWork
from hydiff.viewer.scene_layers import Layer, ViewedScene

NONE = "To open files here, start with: hydiff view FILE --folder FOLDER"


class FilesPanel:
    def __init__(
        self,
        desk: PageState,
        queue: Queue,
        below: Sequence[Path],
        reopen: Callable[[Path], None],  # opens another scene
        keep: Callable[[str, ViewedScene], None],  # shows a fill, and offers it for comparisons
        offer: Callable[[], None],  # updates the layers offered for comparison
    ) -> None:
        self.desk, self.queue, self.below = desk, queue, below
        self.reopen, self.keep, self.offer = reopen, keep, offer
        self.look()

    @explained
    def look(self, *_: Any) -> None:
        """List the files again."""
        c = self.desk.controls
        self.files = folders.listed(self.below)
        names = list(self.files) or [NONE]
        c.file.param.update(options=names, value=names[0])
        for button in (c.open_scene, c.open_fill, c.open_reference):
            button.disabled = not self.files

    def chosen(self) -> Path:
        """Return the selected file; BadValue if there is none or it may not be opened."""
        name = self.desk.controls.file.value
        if name not in self.files:
            raise BadValue(NONE)
        self.desk.alert()
        return folders.checked(self.files[name], self.below)

    @explained
    def open_scene(self, *_: Any) -> None:
        self.reopen(self.chosen())

    @explained
    def open_fill(self, *_: Any) -> None:
        """Add the chosen file as another fill of the scene."""
        path, source = self.chosen(), self.desk.source
        if source.cube.path is None:
            raise BadValue("a fill from a file belongs to a scene from a file; open that first")
        opened = scene_layers.from_files(source.cube.path, path, var=source.var)
        self.keep(path.name, replace(source, after=opened.after, fills=opened.fills, result=None))

    @explained
    def open_reference(self, *_: Any) -> None:
        """Add the chosen file as a reference: show it left of the line, and offer it to fills."""
        path, cube = self.chosen(), self.desk.source.cube

        def prepare() -> tuple[Cube, Layer]:
            reference = io.read(path)
            return reference, scene_layers.of_reference(reference, cube)

        begin, answer = partial(PageWork, prepare), partial(self.take_reference, path.name)
        self.queue.add(PageJob(f"Opening {path.name}", begin, answer))

    @explained
    def take_reference(self, name: str, work: PageWork[tuple[Cube, Layer]]) -> None:
        """Show the opened reference left of the line, and let fills use it."""
        c = self.desk.controls
        if work.value is None:
            raise BadValue(work.error or f"{name} could not be opened")
        self.desk.references[name] = work.value
        names = ", ".join(self.desk.references)
        c.with_reference.name = f"Fill with {names}"
        c.with_reference.visible = c.with_reference.value = True
        self.offer()
        c.left.value = name
