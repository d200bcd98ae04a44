"""The benchmark: run matrices that can be resumed cell by cell, and their tables and figures.

FOLDER/NAME.csv         one row for each cell, appended when the cell is done
FOLDER/NAME.md .tex     the table, with the paper's figures beside ours
FOLDER/NAME.table.csv   the same table, for programs
FOLDER/NAME.parquet     the rows with typed columns, on request
"""

from hydiff.bench.cell_rows import COLUMNS, KINDS
from hydiff.bench.choice import SuiteChoice, choice_of
from hydiff.bench.runner import (
    Lacking,
    Outlook,
    grouped,
    lacking,
    outlook,
    run,
    split,
    write_tables,
)
from hydiff.bench.suites import SUITES

__all__ = [
    "COLUMNS",
    "KINDS",
    "SUITES",
    "Lacking",
    "Outlook",
    "SuiteChoice",
    "choice_of",
    "grouped",
    "lacking",
    "outlook",
    "run",
    "split",
    "write_tables",
]
