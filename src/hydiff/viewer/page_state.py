"""What the panels of a page share: the scene, the controls, and messages to the user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

import panel as pn

from hydiff.errors import HydiffError
from hydiff.viewer.controls import Controls
from hydiff.viewer.scene_layers import ViewedScene


class PageState:
    def __init__(self, scene: ViewedScene, controls: Controls, layout: Any) -> None:
        self.scene, self.controls, self.layout = scene, controls, layout

    def alert(self, *lines: str) -> None:
        """Show what the user must know, at the top of the page; no lines remove it."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        self.controls.alert.text = f'<div role="alert">{text}</div>' if lines else ""
        self.controls.alert.visible = bool(lines)

    def status(self, line: str) -> None:
        """Show the state of the fill."""
        self.controls.status.text = f'<p role="status">{escape(line)}</p>'

    def progress(self, done: int, total: int) -> None:
        """On the bar, which is there from the first time on."""
        self.controls.bar.value = int(100 * done / total) if total else 0
        self.controls.bar.visible = True


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
