"""Columns of a row that judge the error bars of a result against the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hydiff import metrics
from hydiff.auto import folds
from hydiff.cube import Bools, Floats
from hydiff.gaps import mask

EXPECTED = ("mpsnr", "sam", "nrmse")
LEVELS = (50, 80, 95)  # %
GROUPS = 4  # of neighbouring bands
COLUMNS = (*(f"expected_{k}" for k in EXPECTED), *metrics.Calibration._fields, "coverage", "why")
DISTANCES = tuple(
    f"{low:g}–{high:g} px" if high < np.inf else f"over {low:g} px"
    for low, high in zip((0.0, *folds.EDGES), (*folds.EDGES, np.inf), strict=True)
)
BANDS = tuple(f"bands {i + 1}/{GROUPS}" for i in range(GROUPS))


def judged(
    x: Floats,
    truth: Floats,
    observed: Bools,
    sigma: Floats | None,
    intervals: Sequence[float] | None,
) -> dict[str, Any]:
    """Return coverage of the 50, 80 and 95 % intervals and CRPS over the missing entries.

    x, truth, observed, sigma: (bands, rows, cols).  intervals: half widths of the intervals in σ,
    as the fill reports them.  The column `coverage` is JSON: it maps parts of the entries to
    [number of entries, numbers inside the 50, 80 and 95 % intervals].
    """
    if sigma is None:
        return dict.fromkeys((*metrics.Calibration._fields, "coverage"))
    widths = tuple(intervals or metrics.NORMAL_QUANTILES)
    bars = np.where(observed, np.nan, sigma)
    pooled = metrics.calibration(x, truth, bars, widths)._asdict()
    judged = np.isfinite(bars) & (bars > 0)
    inside = (np.abs(x - truth)[judged] / bars[judged])[None] <= np.asarray(widths)[:, None]
    distance = np.broadcast_to(folds.distance_class(mask.shared(observed)), observed.shape)[judged]
    group = np.arange(len(x)) * GROUPS // len(x)
    band = np.broadcast_to(group[:, None, None], observed.shape)[judged]
    parts = {name: distance == i for i, name in enumerate(DISTANCES)}
    parts |= {name: band == i for i, name in enumerate(BANDS)}
    counts = {
        name: [int(where.sum()), *(int(n) for n in inside[:, where].sum(axis=1))]
        for name, where in parts.items()
        if where.any()
    }
    return pooled | {"coverage": json.dumps(counts, ensure_ascii=False)}
