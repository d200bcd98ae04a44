"""`hydiff compare`: compare two fills of the same cube."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hydiff.cli.options import AS_FILE, Json, Overwrite, Var
from hydiff.cli.terminal import err, number, out, print_json


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A fill.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another fill of the same cube.")],
    truth: Annotated[Path | None, typer.Option(help="A cube without the gaps.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Also write a page with pictures.", **AS_FILE | {"metavar": "HTML"}),
    ] = None,
    var: Var = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Compare two fills where both have filled: differences, angles, and scores with a truth.

    Differences are B - A in the unit of the file and in σ, the RMS of both error bars.
    """
    from hydiff import io
    from hydiff.report import fill_pair, pair_page

    if page is not None:
        io.staging.refuse_existing(page, overwrite)
    comparison = fill_pair.compare(a, b, truth, var)
    if page is not None:
        pair_page.write_page(comparison, page, truth, overwrite)
        err.print(f"page     {page}")
    if json_:
        print_json(comparison.to_dict())
        return
    for name, path in (("A", a), ("B", b)):
        out.print(f"{name}  {path}")
    table = Table(*pair_page.HEADS)
    for label, values in pair_page.difference_rows(comparison):
        table.add_row(label, *map(number, values))
    out.print(table)
    if comparison.scores is not None:
        scores = Table("on entries filled by both", "A", "B", "better")
        for row in comparison.scores:
            scores.add_row(row.label, number(row.a), number(row.b), row.better)
        out.print(scores)
    for line in pair_page.summary_lines(comparison):
        out.print(line)
