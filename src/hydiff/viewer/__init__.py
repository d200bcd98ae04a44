"""A viewer in the browser: shows before and after, spectra and error bars, and can start fills.

`view` returns the page for a notebook, `server.serve` runs it for `hydiff view`.  Panel is imported
only when one of them is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydiff.errors import BadValue
from hydiff.io.staging import output_file

if TYPE_CHECKING:
    from hydiff.cube import Array, Bools, Cube
    from hydiff.result import Result


def view(
    data: Result | Cube | Array | str | Path,
    filled: Result | Cube | Array | str | Path | None = None,
    *,
    truth: Cube | Array | str | Path | None = None,
    observed: Bools | None = None,
    output: str | Path | None = None,
    folders: Sequence[str | Path] = (),
) -> Any:
    """Return a page that shows a cube and its fill.

    A notebook displays the page as it is; a script calls its `.show()`.

    data: a Result, which includes before and after; a Cube; an array (bands, rows, cols); or a
        path.  filled, truth: other versions of the same scene.
    observed: an additional mask for fills started from the page, True = measured.
    output: the file that “Save” proposes; the page only writes into its folder.
    folders: the page may only open files below these folders.
    """
    need_panel()
    import panel as pn

    from hydiff.viewer import scene_layers
    from hydiff.viewer.page import Window

    pn.extension(inline=True)  # nothing is fetched from elsewhere
    if isinstance(data, str | Path):
        fill, clean = (None if p is None else Path(p) for p in (filled, truth))  # type: ignore[arg-type]
        scene = scene_layers.from_files(Path(data), fill, clean)
    else:
        scene = scene_layers.from_data(data, filled, truth)  # type: ignore[arg-type]
    target = None if output is None else output_file(output)
    return Window(scene, observed, target, [Path(folder) for folder in folders]).layout


def need_panel() -> None:
    """Raise BadValue if Panel is not installed."""
    if find_spec("panel") is None:
        raise BadValue('the viewer needs Panel, which is not installed: pip install "hydiff[view]"')
