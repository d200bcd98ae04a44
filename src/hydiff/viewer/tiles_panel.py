"""Progress and finished tiles of a fill by tiles that another process runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import panel as pn

from hydiff import io
from hydiff.viewer import tile_progress
from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.scene_layers import Layer, ViewedScene, read_fills

TICK = 1000  # ms between two checks
QUIET = 120.0  # s without a new tile until the page says how long ago the last one was


class TilesPanel:
    """Checks the folder of tiles until the output exists."""

    def __init__(self, desk: PageState, take: Callable[[ViewedScene], None]) -> None:
        self.desk, self.take = desk, take
        self.shown = -1  # number of tiles on the picture
        self.ticker: Any = None
        if desk.scene.unfinished is not None:
            self.look()
            self.ticker = pn.state.add_periodic_callback(self.look, period=TICK)

    @explained
    def look(self) -> None:
        """Show the new tiles, or the output once it exists."""
        if self.desk.scene.unfinished is None:
            return
        output, work = self.desk.scene.unfinished
        if output.exists():
            self.finish(output)
            return
        if not work.is_dir():
            self.end()
            self.desk.status(f"The fill by tiles has ended without {output.name}.")
            return
        done, planned = tile_progress.progress(work, self.desk.scene.cube.shape)
        self.desk.progress(done, planned)
        self.desk.status(message(done, planned, tile_progress.idle(work)))
        if done != self.shown:
            self.shown = done
            self.take(self.desk.scene)

    def finish(self, output: Path) -> None:
        """Show the output, and stop checking."""
        self.end()
        scene = self.desk.scene
        after, fills = Layer(io.read(output, var=scene.var)), read_fills(output, scene.cube.shape)
        self.take(replace(scene, after=after, fills=fills, unfinished=None))
        self.desk.progress(1, 1)
        self.desk.status(f"The fill by tiles is done: this is {output.name}.")

    def end(self) -> None:
        """Stop checking."""
        if self.ticker is not None:
            self.ticker.stop()


def message(done: int, planned: int, idle: float) -> str:
    """Describe the progress of the fill; idle: seconds since the last tile."""
    if not planned:
        return "A fill by tiles is running: it looks for the gaps and decides how to fill them."
    line = f"A fill by tiles is running: {done} of {planned} tiles are done."
    if idle > QUIET:
        line += f" The last one came {idle / 60:.0f} minutes ago."
    if done == planned:
        line += " The file is being written."
    return line
