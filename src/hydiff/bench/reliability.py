"""Columns of a row that judge the error bars of a result against the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hydiff import metrics
from hydiff.auto.classes import EDGES, distance_class
from hydiff.cube import Bools, Floats
from hydiff.maths import scoring

EXPECTED = ("mpsnr", "sam", "nrmse", "nrmse_low", "nrmse_high")
LEVELS = (50, 80, 95)  # %
GROUPS = 4  # of neighbouring bands
OF_BARS = (*metrics.Calibration._fields, "interval_80", "interval_80_constant", "coverage")
COLUMNS = (*(f"expected_{k}" for k in EXPECTED), *OF_BARS, "why")
DISTANCES = tuple(
    f"{low:g}–{high:g} px" if high < np.inf else f"over {low:g} px"
    for low, high in zip((0.0, *EDGES), (*EDGES, np.inf), strict=True)
)
BANDS = tuple(f"bands {i + 1}/{GROUPS}" for i in range(GROUPS))


def judged(
    x: Floats,
    truth: Floats,
    observed: Bools,
    sigma: Floats | None,
    intervals: Sequence[float] | None,
) -> dict[str, Any]:
    """Return coverage and interval scores of the error bars and CRPS over the missing entries.

    x, truth, observed, sigma: (bands, rows, cols).  intervals: half widths of the intervals in σ,
    as the fill reports them.  The column `coverage` is JSON: it maps parts of the entries to
    [number of entries, numbers inside the 50, 80 and 95 % intervals].
    """
    if sigma is None:
        return dict.fromkeys(OF_BARS)
    widths = tuple(intervals or metrics.NORMAL_QUANTILES)
    bars = np.where(observed, np.nan, sigma)
    pooled = metrics.calibration(x, truth, bars, widths)._asdict()
    checked = scoring.verification(*metrics.errors_and_bars(x, truth, bars), widths)
    if checked is not None:
        pooled["interval_80"] = checked.interval_score[1]
        pooled["interval_80_constant"] = checked.interval_score_constant[1]
    judged = np.isfinite(bars) & (bars > 0)
    inside = (np.abs(x - truth)[judged] / bars[judged])[None] <= np.asarray(widths)[:, None]
    distance = np.broadcast_to(distance_class(observed), observed.shape)[judged]
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
