"""`hydiff convert`: write a cube in another format, or orthorectified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hydiff.cli.options import Overwrite, Unmarked, Var, output_file
from hydiff.cli.terminal import out


def convert(
    input: Path,
    output: Annotated[Path, typer.Argument(parser=output_file)],
    ortho: Annotated[
        bool, typer.Option("--ortho", help="Put the cube on the map, by its GLT.")
    ] = False,
    glt: Annotated[Path | None, typer.Option(help="File that holds the GLT.  [INPUT]")] = None,
    cog: Annotated[bool, typer.Option("--cog", help="A cloud-optimised GeoTIFF.")] = False,
    var: Var = None,
    unmarked: Unmarked = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a cube in another format, chosen by the suffix of OUTPUT, with what lies beside it."""
    from hydiff import io
    from hydiff.io.transfer import convert as hand_over

    cube = io.read(input, var=var)
    outputs = [output, *io.staging.partners(output, io.format_for(cube, output))]
    io.staging.refuse_targets(cube.path or input, outputs, overwrite, input)
    options = {"ortho": ortho, "cog": cog, "overwrite": overwrite, "unmarked": unmarked}
    paths = hand_over(input, output, glt=glt, var=var, **options)
    out.print("\n".join(str(path) for path in paths), markup=False)
