"""`hydiff info`: what a cube is, at a glance."""

from __future__ import annotations

from pathlib import Path

from hydiff.cli.options import Flags, Json, Quality, Var
from hydiff.terminal import out, print_json


def info(
    file: Path,
    var: Var = None,
    quality: Quality = None,
    flags: Flags = None,
    json_: Json = False,
) -> None:
    """Show what a cube is: size, wavelengths, nodata, gaps at a glance.  Reads little."""
    from hydiff import io
    from hydiff.info import facts, flagged, lines

    cube = io.read(file, var=var)
    found = facts(cube)
    if (layer := io.quality_layer(cube.shape, quality, flags)) is not None:
        found["flagged"] = flagged(cube, layer)
    if json_:
        print_json(found)
        return
    for label, text in lines(found):
        out.print(f"{label:12} {text}", markup=False)
