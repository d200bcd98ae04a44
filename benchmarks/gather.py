"""Merge rows of `hydiff bench` from several folders into benchmarks/results/bench, one per cell.

python benchmarks/gather.py FOLDER/best.csv...

An existing row is replaced only if its settings are no longer the defaults, or if it lacks scores
that the new row has.
"""

import sys
from pathlib import Path

from hydiff.bench import COLUMNS, cell_rows, cells, records, tables
from hydiff.io.staging import staged

HOME = Path(__file__).parent / "results" / "bench"


def worth(row: records.Row) -> tuple[bool, bool]:
    """Of two rows of a cell, the greater is kept."""
    current = row["settings_hash"] == cell_rows.settings_hash(tables.cell_of(row))
    return current, bool(row["missing_mpsnr"])


found: dict[str, list[Path]] = {}
for source in map(Path, sys.argv[1:]):
    if not source.name.endswith(".table.csv"):  # tables are made from the rows, and contain none
        found.setdefault(source.name, []).append(source)
for name, sources in found.items():
    home = HOME / name
    best: dict[cells.Cell, records.Row] = {}
    for row in (row for source in (home, *sources) for row in records.read(source)):
        cell = tables.cell_of(row)
        if cell not in best or worth(row) > worth(best[cell]):
            best[cell] = row
    with staged(home, overwrite=True) as folder:
        for row in best.values():
            records.append(folder / name, row, COLUMNS)
