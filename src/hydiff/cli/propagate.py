"""`hydiff propagate`: error bars of means, indices and other functions of a fill."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from hydiff.cli.options import AS_FILE, Json, Overwrite, Seed, Var
from hydiff.cli.terminal import err, number, out, print_json
from hydiff.errors import UnknownName
from hydiff.io.headers import scaling

if TYPE_CHECKING:
    from hydiff.cube import Cube
    from hydiff.uncertainty.propagation import Propagated

SHOWN = 20  # most rows of the table on a terminal
TABLES = (".csv", ".json")


def propagate(
    filled: Path,
    of: Annotated[
        str,
        typer.Option(
            metavar="mean|FORMULA|FILE.py:NAME",
            help="The mean of each band, a formula such as '(b50-b30)/(b50+b30)' or 'w860/w660', "
            "or a function of an array (bands, rows, cols) in a file, which is run.",
        ),
    ] = "mean",
    over: Annotated[
        str,
        typer.Option(
            metavar="ZONES",
            help="all | blocks | blocks:16 | 10:60,20:80 | a mask file | a file of polygons.",
        ),
    ] = "all",
    bands: Annotated[
        str | None, typer.Option(help="Bands to take the mean of: 10:40,55 or 900-1000nm.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            metavar="N",
            help="Samples to draw where the result is not exact.",
            show_default="those beside FILLED, else 200",
        ),
    ] = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Table to write, .csv or .json.", **AS_FILE),
    ] = None,
    var: Var = None,
    overwrite: Overwrite = False,
    json_: Json = False,
) -> None:
    """Propagate the error bars of a fill to a mean, an index, or any function of the cube.

    FILLED is an output of `hydiff fill` with its companions.  Errors of neighbouring entries and
    bands are correlated, so a mean is less sure than independent bars would make it.  Printed are
    the value, its σ and intervals, and which share of its variance comes from filled entries.
    """
    from hydiff import io
    from hydiff.uncertainty.from_files import function_of, result_of, stored_samples
    from hydiff.uncertainty.propagation import propagate as propagated

    if output is not None:
        if output.suffix.lower() not in TABLES:
            raise UnknownName("suffix", output.suffix, TABLES, f"; give {output.name} one of them")
        io.staging.refuse_existing(output, overwrite)
    function, result = function_of(of), result_of(filled, var)
    count = stored_samples(result) if samples is None else samples
    outcome = propagated(result, function, over, bands=bands, samples=count, seed=seed)
    for note in _notes(of, result.cube, outcome):
        err.print(note)
    facts = {"of": of, "over": over, "samples": outcome.samples, "values": outcome.rows()}
    if output is not None:
        with io.staged(output, overwrite=overwrite, source=filled) as folder:
            text = _csv(outcome) if output.suffix.lower() == ".csv" else json.dumps(facts, indent=2)
            (folder / output.name).write_text(text, encoding="utf-8")
    if json_:
        print_json(facts)
    else:
        _print_table(outcome, output)


def _notes(of: str, cube: Cube, values: Propagated) -> Iterator[str]:
    """Yield notes on empty zones, on a scale with which ratios of stored values are others, and on
    errors that are not well known."""
    gains, offsets = scaling(cube.attrs, cube.bands) or ([1.0], [0.0])
    if of != "mean" and (len(set(gains)) > 1 or any(offsets) or cube.attrs.get("add_offset")):
        yield "note: values are as stored; the file's scale and offset are not applied"
    if values.empty:
        yield f"without a pixel, and left out: {', '.join(values.empty)}"
    yield from values.notes


def _csv(values: Propagated) -> str:
    """Return the propagated values as CSV."""
    rows, text = values.rows(), StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _print_table(values: Propagated, output: Path | None) -> None:
    """Print the first rows of the propagated values, and how they were computed."""
    rows = values.rows()
    names = list(values.labels[0])
    table = Table(*names, "value", "σ", "80 % interval", "from filled")
    for row in rows[:SHOWN]:
        ends = f"{number(row['low_80'])} … {number(row['high_80'])}"
        share = f"{100 * (row['share_filled'] or 0):.0f} %"
        label = (_label(row[name]) for name in names)
        table.add_row(*label, number(row["value"]), number(row["sigma"]), ends, share)
    out.print(table)
    if len(rows) > SHOWN:
        out.print(f"… and {len(rows) - SHOWN:,} more: `hydiff propagate FILLED -o TABLE.csv`")
    out.print(f"by {values.samples} samples" if values.samples else "exact: linear in the values")
    if output is not None:
        out.print(f"written  {output}")


def _label(value: Any) -> str:
    """Return the label of a row as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)
