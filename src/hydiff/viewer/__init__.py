"""A viewer in the browser: before and after, spectra, error bars, and a fill to start from there.

`view` gives the page for a notebook, `serve` runs it for `hydiff view`.  Panel is imported when one
of them is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydiff.errors import BadValue

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
    """A page to look at a cube and its fill: shown by a notebook as it is, by a script with
    `.show()`.

    data: a Result, which brings its own before and after; a Cube; an array (bands, rows, cols); or
        a path.  filled, truth: other versions of the same scene.
    observed: a further mask for fills from the page, True = measured.
    output: the file that “Save” proposes; it writes nowhere but into its folder.
    folders: the page may open files below these, and no others.
    """
    need_panel()
    import panel as pn

    from hydiff.viewer import scene_layers
    from hydiff.viewer.page import Window

    pn.extension(inline=True)  # nothing is fetched from elsewhere
    if isinstance(data, str | Path):
        fill, whole = (None if p is None else Path(p) for p in (filled, truth))  # type: ignore[arg-type]
        scene = scene_layers.from_files(Path(data), fill, whole)
    else:
        scene = scene_layers.from_data(data, filled, truth)  # type: ignore[arg-type]
    target = None if output is None else Path(output)
    return Window(scene, observed, target, [Path(folder) for folder in folders]).layout


def need_panel() -> None:
    if find_spec("panel") is None:
        raise BadValue('the viewer needs Panel, which is not installed: pip install "hydiff[view]"')
