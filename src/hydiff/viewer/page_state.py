"""What the panels of a page share: the scene, its versions, the controls, and messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

import panel as pn

from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.result import Result
from hydiff.viewer.controls import Controls
from hydiff.viewer.scene_layers import Layer, ViewedScene

BEFORE, TRUTH = "before", "truth"


class PageState:
    def __init__(self, scene: ViewedScene, controls: Controls, layout: Any) -> None:
        self.scene, self.controls, self.layout = scene, controls, layout
        self.source = scene  # as it was opened, to fill from
        self.fills: dict[str, ViewedScene] = {}  # each with its own before, by name
        self.references: dict[str, tuple[Cube, Layer]] = {}  # as read, and on the scene's pixels

    def sides(self) -> dict[str, Layer]:
        """What can be shown left of the line, by name."""
        named = {BEFORE: self.source.before}
        named |= {name: fill.after for name, fill in self.fills.items() if fill.after is not None}
        named |= {name: layer for name, (_, layer) in self.references.items()}
        return named | ({} if self.source.truth is None else {TRUTH: self.source.truth})

    def alert(self, *lines: str) -> None:
        """Show what the user must know, at the top of the page; no lines remove it."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        self.controls.alert.text = f'<div role="alert">{text}</div>' if lines else ""
        self.controls.alert.visible = bool(lines)

    def status(self, *lines: str) -> None:
        """Show the state of the fill."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        self.controls.status.text = f'<div role="status">{text}</div>'

    def saved(self, line: str) -> None:
        """Show what was written, beside the state of the fill."""
        self.controls.saved.text = f'<p role="status">{escape(line)}</p>' if line else ""
        self.controls.saved.visible = bool(line)

    def busy(self, line: str) -> None:
        """Show what is at work, at the top of the page; an empty line removes it."""
        self.controls.busy.text = f'<p role="status">{escape(line)}</p>' if line else ""
        self.controls.busy.visible = bool(line)

    def progress(self, done: int, total: int) -> None:
        """On the bar, which is there from the first time on."""
        self.controls.bar.value = int(100 * done / total) if total else 0
        self.controls.bar.visible = True


def result_of(scene: ViewedScene) -> Result:
    """The fill of a scene with its error model; read from its files where it is not in memory."""
    if scene.result is not None:
        return scene.result
    path = None if scene.after is None else scene.after.cube.path
    if path is None:
        raise BadValue("this needs a fill with its error bars: press Fill, or open a filled file")
    from hydiff.uncertainty.from_files import result_of

    return result_of(path)


def explained(method: Callable[..., None]) -> Callable[..., None]:
    """An answer to the user: its changes are sent together, and an error becomes a message."""

    @wraps(method)
    def answer(part: Any, *args: Any) -> None:
        with pn.io.hold():
            try:
                method(part, *args)
            except HydiffError as error:
                part.desk.alert(str(error))
            except Exception as error:  # such as a file that has changed under the viewer
                logging.getLogger(__name__).exception("the page could not answer")
                cause = f"{type(error).__name__}: {error}"
                part.desk.alert(f"That went wrong ({cause}). If the file has changed, reopen it.")
        pn.io.push_notebook(part.desk.layout)  # a server sends by itself

    return answer
