"""Put rows of `hydiff bench` from several folders into benchmarks/results/bench, each cell once.

python benchmarks/gather.py FOLDER/best.csv...
"""

import sys
from pathlib import Path

from hydiff.bench import COLUMNS, records, tables

HOME = Path(__file__).parent / "results" / "bench"

for source in map(Path, sys.argv[1:]):
    if source.name.endswith(".table.csv"):
        continue  # made from the rows
    home = HOME / source.name
    have = {tables.cell_of(row) for row in records.read(home)}
    for row in records.read(source):
        if tables.cell_of(row) not in have:
            records.append(home, row, COLUMNS)
