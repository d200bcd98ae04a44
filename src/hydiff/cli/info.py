"""`hydiff info`: summarise a cube."""

from __future__ import annotations

from pathlib import Path

from hydiff.cli.options import Flags, Json, Nodata, NodataIn, Quality, Var
from hydiff.cli.terminal import out, print_json
from hydiff.errors import shell


def info(
    file: Path,
    var: Var = None,
    nodata: Nodata = None,
    nodata_in: NodataIn = None,
    quality: Quality = None,
    flags: Flags = None,
    json_: Json = False,
) -> None:
    """Show what a cube is: size, wavelengths, nodata, gaps at a glance.  Reads little."""
    from hydiff import io
    from hydiff.gaps.describe import facts, flagged, lines

    cube = io.read(file, var=var)
    summary = facts(cube, nodata, nodata_in)
    if (layer := io.quality_layer(cube, quality, flags)) is not None:
        summary["flagged"] = flagged(cube, layer)
    if json_:
        print_json(summary)
        return
    for label, text in lines(summary):
        color = "bold red" if label == "suspect" else None
        out.print(f"{label:12} {shell(text)}", markup=False, style=color)
