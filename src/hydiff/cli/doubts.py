"""`hydiff mask --stripes` and `--bands`: tables of suspected damage; values are not changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from hydiff.cli.terminal import number, out, print_json
from hydiff.errors import BadValue, NothingObserved

if TYPE_CHECKING:
    from hydiff.cube import Bools, Cube

MOST_ROWS = 20  # of a table on the terminal; --json lists all


def check(stripes: bool, bands: bool, output: Path | None) -> None:
    """Refuse options that exclude each other."""
    if stripes and (bands or output is not None):
        raise BadValue("--stripes reports and writes nothing: leave -o and --bands out")


def report(
    cube: Cube, observed: Bools, stripes: bool, output: Path | None, overwrite: bool, json: bool
) -> None:
    """Print the table of offset columns and lines, or that of bad bands; a cube without any value,
    in which nothing can be searched for, is refused."""
    from hydiff.gaps.rule import NOTHING

    if not observed.any():
        raise NothingObserved(NOTHING)
    if stripes:
        print_stripes(cube, observed, json)
    else:
        print_bands(cube, observed, output, overwrite, json)


def print_stripes(cube: Cube, observed: Bools, json: bool) -> None:
    """Print the columns and lines that are offset from the values their neighbours predict."""
    from hydiff.gaps.doubts import offsets

    rows = offsets(np.asarray(cube.values), observed)
    if json:
        print_json({"offsets": [row._asdict() for row in rows]})
        return
    if not rows:
        out.print("no column or line is offset against its neighbours")
        return
    table = Table("", "position", "band", "wavelength", "offset", "± error", "z")
    for kind, position, band, offset, error, z in rows[:MOST_ROWS]:
        wavelength = "" if cube.wavelengths is None else f"{cube.wavelengths[band]:g}"
        table.add_row(
            kind, str(position), str(band), wavelength, number(offset), number(error), f"{z:.1f}"
        )
    out.print(table)
    if len(rows) > MOST_ROWS:
        out.print(f"and {len(rows) - MOST_ROWS:,} more: --json lists them all")


def print_bands(
    cube: Cube, observed: Bools, output: Path | None, overwrite: bool, json: bool
) -> None:
    """Print the suggested bad bands, and write a copy of the file with this bad-band list."""
    from hydiff import io
    from hydiff.gaps.census import ranges
    from hydiff.gaps.doubts import judge_bands

    doubts = judge_bands(np.asarray(cube.values), observed)
    bad = np.flatnonzero(~doubts.good).tolist()
    if output is not None:
        io.write(replace(cube, good=doubts.good), output, overwrite=overwrite)
    if json:
        arrays = {"noise": doubts.noise, "spread": doubts.spread, "predicted": doubts.predicted}
        listed = {
            name: [None if np.isnan(v) else v for v in a.tolist()] for name, a in arrays.items()
        }
        declared = np.flatnonzero(~cube.good_bands).tolist()
        print_json({"bad_bands": bad, "declared": declared, "how": doubts.how, **listed})
        return
    table = Table("bad band", "wavelength", "noise std", "std", "not noise")
    for band in bad[:MOST_ROWS]:
        wavelength = "" if cube.wavelengths is None else f"{cube.wavelengths[band]:g}"
        share = f"{100 * doubts.predicted[band]:.0f} %"
        cells = (number(float(doubts.noise[band])), number(float(doubts.spread[band])))
        table.add_row(str(band), wavelength, *cells, share)
    if bad:
        out.print(table)
    out.print(f"suggested bad bands: {ranges(bad) if bad else 'none'} (noise by {doubts.how})")
    if output is not None:
        out.print(f"{output}: a copy with this bad-band list", markup=False)
