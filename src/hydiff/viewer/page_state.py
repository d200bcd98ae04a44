"""What the parts of a page share: the scene, the controls, and a way to speak to the user."""

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

    def say(self, *lines: str) -> None:
        """What the user must know, at the top of the page."""
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
        self.controls.alert.text = f'<div role="alert">{text}</div>' if lines else ""
        self.controls.alert.visible = bool(lines)

    def tell(self, line: str) -> None:
        """How the fill is getting on."""
        self.controls.status.text = f'<p role="status">{escape(line)}</p>'

    def progress(self, done: int, total: int) -> None:
        """On the bar, which is there from the first time on."""
        self.controls.bar.value = int(100 * done / total) if total else 0
        self.controls.bar.visible = True


def explained(method: Callable[..., None]) -> Callable[..., None]:
    """An answer to the user: its changes are sent together, and what goes wrong is told."""

    @wraps(method)
    def answer(part: Any, *args: Any) -> None:
        with pn.io.hold():
            try:
                method(part, *args)
            except HydiffError as error:
                part.desk.say(str(error))
            except Exception as error:  # such as a file that has changed under the viewer
                logging.getLogger(__name__).exception("the page could not answer")
                told = f"{type(error).__name__}: {error}"
                part.desk.say(f"That went wrong ({told}). If the file has changed, open it anew.")
        pn.io.push_notebook(part.desk.layout)  # a server sends by itself

    return answer
