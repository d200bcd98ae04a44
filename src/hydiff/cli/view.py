"""`hydiff view`: open a page in the browser to look at a cube, and to fill it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hydiff.cli.options import AS_FILE, Var
from hydiff.cli.terminal import err


def view(
    file: Path,
    filled: Annotated[Path | None, typer.Argument(help="The same scene, filled.")] = None,
    truth: Annotated[Path | None, typer.Option(help="The same scene without gaps.")] = None,
    observed: Annotated[Path | None, typer.Option(help="Mask file, non-zero = measured.")] = None,
    missing: Annotated[Path | None, typer.Option(help="Mask file, non-zero = missing.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Name that Save proposes; only files in its folder are written.",
            **AS_FILE,
        ),
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="The page may open files below this folder; may be repeated."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of this machine.  [5006, or a free one]")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    var: Var = None,
) -> None:
    """Look at FILE, before and after its fill, in the browser; nothing leaves this machine."""
    from hydiff import errors, io
    from hydiff.viewer import need_panel, running_fill, scene_layers

    need_panel()
    scene = scene_layers.from_files(file, filled, truth, var)
    mask = io.given_mask(scene.cube, observed, missing)
    output = output or running_fill.default_output(scene.cube.path or file)
    if not output.parent.is_dir():
        raise errors.OutputError(f"{output.parent} is not a folder; create it first")
    folders = folder or []
    for path in folders:
        if not path.is_dir():
            raise errors.BadValue(f"`folder={path}`: expected a folder that exists")
    from hydiff.viewer import server
    from hydiff.viewer.page import Window

    def ready(url: str) -> None:
        err.print(f"{file}: the viewer is at {url} (Ctrl-C ends it)", markup=False)

    title = f"hydiff view {file.name}"

    def make() -> Any:
        return Window(scene, mask, output, folders).layout

    server.serve(make, title, port, browser=browser, ready=ready)
