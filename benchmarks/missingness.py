"""Does the warning appear if and only if the gaps depend on the missing values?

    python benchmarks/missingness.py DEV      writes benchmarks/results/missingness.csv

DEV is a folder written by `usual_cells.py dev DEV`, from which the coverage of 80 % intervals is
computed.
"""

import sys
from pathlib import Path

import numpy as np

from hydiff.auto.missingness import rim_of
from usual import BY_VALUE, UsualCase, now, write
from usual_cells import damaged, dev_cells

LOW = 70  # %: coverage below which the warning must appear


def main():
    found = {}
    for cell in dev_cells():
        path = Path(sys.argv[1]) / f"{cell.name}.npz"
        if cell.sigma_y or not path.exists():
            continue
        _, cube, observed, _ = damaged(cell, learning=False)
        rim = rim_of(np.asarray(cube.values), observed, ~observed, 0)
        case, inside = UsualCase(path), np.nan
        if len(case.trials) > 1:
            square, widths, _ = now(case)
            inside = 100 * np.mean(np.abs(case.x) <= widths[1] * np.sqrt(square))
        kind = cell.mask if cell.mask in BY_VALUE else "independent of the value"
        found.setdefault(kind, []).append((rim is not None and rim.is_unusual, inside))
    rows = []
    for kind, cells in found.items():
        warned, inside = np.array([w for w, _ in cells]), np.array([i for _, i in cells])
        low = inside < LOW
        rows.append(
            {
                "gaps": kind,
                "cells": len(cells),
                "warned": int(warned.sum()),
                "inside_80": np.nanmean(inside),
                "cells below 70 %": int(low.sum()),
                "warned of these": int((low & warned).sum()),
            }
        )
    write("missingness.csv", rows)


if __name__ == "__main__":
    main()
