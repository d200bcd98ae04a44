"""State shared by the panels of a page: the scene, its versions, the controls, and messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

import panel as pn

from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError, shell
from hydiff.result import Result
from hydiff.viewer.controls import Controls
from hydiff.viewer.scene_layers import Layer, ViewedScene

BEFORE, TRUTH = "before", "truth"


class PageState:
    def __init__(self, scene: ViewedScene, controls: Controls, layout: Any) -> None:
        self.scene, self.controls, self.layout = scene, controls, layout
        self.source = scene  # the scene as it was opened, used as input of fills
        # messages name arguments as in Python; the page of `hydiff view` names options
        self.words = str if pn.state.curdoc is None else shell
        self.fills: dict[str, ViewedScene] = {}  # fills by name, each as a scene
        self.references: dict[str, tuple[Cube, Layer]] = {}  # by name: as read, and resampled

    def sides(self) -> dict[str, Layer]:
        """Return the layers that can be shown left of the line, by name."""
        layers = {BEFORE: self.source.before}
        layers |= {name: fill.after for name, fill in self.fills.items() if fill.after is not None}
        layers |= {name: layer for name, (_, layer) in self.references.items()}
        return layers | ({} if self.source.truth is None else {TRUTH: self.source.truth})

    def alert(self, *lines: str) -> None:
        """Show an alert at the top of the page; without lines, remove it."""
        text = "".join(f"<p>{escape(self.words(line))}</p>" for line in lines)
        self.controls.alert.text = f'<div role="alert">{text}</div>' if lines else ""
        self.controls.alert.visible = bool(lines)

    def status(self, *lines: str) -> None:
        """Show the state of the fill."""
        text = "".join(f"<p>{escape(self.words(line))}</p>" for line in lines)
        self.controls.status.text = f'<div role="status">{text}</div>'

    def saved(self, line: str) -> None:
        """Show which files were written; an empty line removes the message."""
        self.controls.saved.text = f'<p role="status">{escape(line)}</p>' if line else ""
        self.controls.saved.visible = bool(line)

    def busy(self, line: str) -> None:
        """Show the running job; an empty line removes the message."""
        self.controls.busy.text = f'<p role="status">{escape(line)}</p>' if line else ""
        self.controls.busy.visible = bool(line)

    def progress(self, done: int, total: int) -> None:
        """Set the progress bar, and show it."""
        self.controls.bar.value = int(100 * done / total) if total else 0
        self.controls.bar.visible = True


def result_of(scene: ViewedScene) -> Result:
    """Return the fill of a scene with its error model; read from files if it is not in memory."""
    if scene.result is not None:
        return scene.result
    path = None if scene.after is None else scene.after.cube.path
    if path is None:
        raise BadValue("this needs a fill with its error bars: press Fill, or open a filled file")
    from hydiff.uncertainty.from_files import result_of

    return result_of(path)


def explained(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate an event handler: send its changes together, and show its errors as an alert."""

    @wraps(method)
    def answer(panel: Any, *args: Any) -> None:
        with pn.io.hold():
            try:
                method(panel, *args)
            except HydiffError as error:
                panel.desk.alert(str(error))
            except Exception as error:  # e.g. a file that was changed while the viewer is open
                logging.getLogger(__name__).exception("the page could not answer")
                cause = f"{type(error).__name__}: {error}"
                panel.desk.alert(f"That went wrong ({cause}). If the file has changed, reopen it.")
        pn.io.push_notebook(panel.desk.layout)  # needed in notebooks only

    return answer
