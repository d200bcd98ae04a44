"""`hydiff score`: a fill against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from hydiff.cli.options import Json, Var
from hydiff.terminal import err, number, out, print_json


def score(
    filled: Path,
    truth: Path,
    missing: Annotated[
        Path | None, typer.Option(help="Mask of the entries that were missing.")
    ] = None,
    observed: Annotated[Path | None, typer.Option(help="The same, non-zero = measured.")] = None,
    var: Var = None,
    json_: Json = False,
) -> None:
    """Score a filled cube against the truth, everywhere and on the missing entries alone."""
    from hydiff import io, metrics, provenance

    cube, reference = io.read(filled, var=var), io.read(truth, var=var)
    base = provenance.base_of(cube.path or filled)
    companion = provenance.filled_mask_path(base)
    if missing is None and observed is None and companion.exists():
        err.print(f"missing entries as told by {companion}")
        missing = companion
    seen = io.given_mask(cube, observed, missing)
    scores = metrics.score(cube, reference, None if seen is None else ~seen)
    bars = provenance.calibrated(base, np.asarray(cube.values), np.asarray(reference.values))
    if json_:
        print_json(scores.to_dict() | ({} if bars is None else {"calibration": bars._asdict()}))
        return
    table = Table("", "all", *(["gaps"] if seen is not None else []))
    for label, *values in scores.table():
        table.add_row(label, *(number(v) for v in values[: len(table.columns) - 1]))
    out.print(table)
    if bars is not None:
        covered = (f"{100 * c:.0f} %" for c in bars[:3])
        out.print(f"error bars: 50, 80 and 95 % intervals cover {', '.join(covered)};", end=" ")
        out.print(f"CRPS {number(bars.crps)} (constant σ: {number(bars.crps_constant)})")
    if scores.unfilled:
        out.print(f"{scores.unfilled:,} entries are still missing in {filled} and were not scored")
