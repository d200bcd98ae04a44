"""`hydiff report`: write a page about a fill."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hydiff.cli.options import AS_FILE, Overwrite, Var
from hydiff.cli.terminal import out


def report(
    filled: Path,
    input: Annotated[
        Path | None, typer.Option(help="The file that was filled.  [as the record says]")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="A cube without the gaps.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write.  [FILLED.report.html]", **AS_FILE),
    ] = None,
    var: Var = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a page about a fill: pictures, spectra, error bars, what was decided and why."""
    from hydiff.report import write

    page = write(filled, output, source=input, truth=truth, var=var, overwrite=overwrite)
    out.print(str(page), markup=False)
