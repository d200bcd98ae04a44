"""Keyboard control of the picture: a cross and its spectrum, bands, gaps, map lines, samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS

from hydiff.viewer.browser import code
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.picture import Picture


class KeysPanel:
    def __init__(self, desk: PageState, picture: Picture, pick: Callable[[int, int], None]) -> None:
        self.desk, self.picture, self.pick = desk, picture, pick
        self.pressed = ColumnDataSource({"key": [""], "row": [-1], "col": [-1], "count": [0]})
        self.pressed.on_change("data", lambda attr, old, new: self.answer())
        args = {
            "figure": picture.figure,
            "slider": picture.slider,
            "cursor": picture.cursor,
            "at": picture.at,
            "pressed": self.pressed,
            "shape": list(desk.scene.cube.shape[1:]),
        }
        # inner_height is set when the picture is drawn for the first time
        picture.figure.js_on_change("inner_height", CustomJS(args=args, code=code("keys.js")))

    @explained
    def answer(self) -> None:
        """Handle the key that the browser has sent."""
        c, data = self.desk.controls, self.pressed.data
        key: str = data["key"][0]
        if key == "Enter":
            self.pick(int(data["row"][0]), int(data["col"][0]))
        elif key in "<>":
            self.shift(-1 if key == "<" else 1)
        elif key == "g":
            names = c.gaps.options
            c.gaps.value = names[(names.index(c.gaps.value) + 1) % len(names)]
        elif key == "m":
            c.map.value = not c.map.value
        elif key == "f" and not c.flicker.disabled:
            c.flicker.value = not c.flicker.value

    def shift(self, step: int) -> None:
        """Change the shown band, or all three, by `step`, if all remain in range."""
        c = self.desk.controls
        sliders: list[Any] = [c.band] if c.single_row.visible else c.rgb
        if all(s.start <= s.value + step <= s.end for s in sliders):
            for slider in sliders:
                slider.value += step
