"""Promises of the default fill, checked against the rows of the table `best`.

Only the bounds are written here: every figure comes from rows.  Time is not among the promises,
since these runs share a machine (benchmarks/auto_time.py times a run alone).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from hydiff.auto import NAME
from hydiff.bench import reliability, scenes, statistics
from hydiff.bench.cells import Level
from hydiff.bench.records import Row, Rows, Tables
from hydiff.bench.statistics import Scores
from hydiff.bench.tables import grouped, joined, scores, shown
from hydiff.cube import Array

PLAIN = ("harmonic", "biharmonic")
# promised gain over a rival in dB, in the mean over scenes, without and with noise
CLEAN_GAINS = {"the better of harmonic and biharmonic": 1.0, "smooth": 0.5, "hydiff-ei": 2.5}
NOISY_GAINS = {"hydiff-ei": 1.0, "smooth": 0.0, "robust-ei": 0.0, "subspace-fill": 0.0}


class Promise(NamedTuple):
    """A promise, and whether the rows keep it."""

    sigma_y: Level
    row: str  # of the default fill: names its budget, and whether σ was estimated
    what: str  # the quantity
    figure: str  # its value from the rows
    bound: str  # the promised limit
    holds: bool | None  # None = there is no bound, or there are no rows


Finding = tuple[str, str, str, bool | None]  # the last four fields of a promise


def promises(rows: Rows) -> list[Promise]:
    """Return all promises that the rows allow to check, by noise level and budget."""
    groups = grouped(rows)
    judged = []
    for (sigma, name), fill_rows in sorted(groups.items(), key=lambda group: str(group[0][0])):
        if name.startswith(NAME):
            methods = {n: r for (s, n), r in groups.items() if s == sigma}
            single = {n: r for n, r in methods.items() if not n.startswith(NAME)}
            findings = [*gains(sigma, fill_rows, single), *estimated(name, fill_rows, methods)]
            findings += [*regret(sigma, fill_rows, single), *spectra(sigma, fill_rows, single)]
            findings += calibration(fill_rows)
            judged += [Promise(sigma, name, *finding) for finding in findings]
    return judged


def gains(sigma: Level, mine: Rows, single: Tables) -> Iterator[Finding]:
    """Yield the mean gain over each rival, on the cells that both have."""
    fill_scores = scores(mine, "missing_mpsnr")
    rivals: dict[str, Scores] = {n: scores(r, "missing_mpsnr") for n, r in single.items()}
    if all(n in rivals for n in PLAIN):
        rivals["the better of harmonic and biharmonic"] = best_of([rivals[n] for n in PLAIN])
    wanted = CLEAN_GAINS if sigma == 0 else NOISY_GAINS
    for name in dict.fromkeys((*wanted, *(n for n in rivals if n not in PLAIN))):
        d = statistics.compare(fill_scores, rivals.get(name, {}))
        required = wanted.get(name)
        bound = "" if required is None else f"≥ {required:g}" if required else "> 0"
        if d.units:
            holds = None if required is None else d.mean >= required and d.mean > 0
            n = sum(map(len, statistics.differences(fill_scores, rivals[name]).values()))
            figure = f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]; {d.units} scenes, {n} cells"
            yield f"dB above {name}", figure, bound, holds
        elif bound:
            yield f"dB above {name}", "not run", bound, None


def best_of(rivals: Sequence[Scores]) -> Scores:
    """Return the best score of every cell, over the rivals that have it."""
    best: dict[str, dict[str, float]] = {}
    for rival in rivals:
        for unit, cells in rival.items():
            unit_best = best.setdefault(unit, {})
            for cell, value in cells.items():
                unit_best[cell] = max(value, unit_best.get(cell, -math.inf))
    return best


def estimated(name: str, mine: Rows, methods: Tables) -> Iterator[Finding]:
    """Yield the loss in dB from estimating the noise level."""
    with_sigma = name.removesuffix(", σ estimated")
    if with_sigma != name and with_sigma in methods:
        better, worse = (scores(rows, "missing_mpsnr") for rows in (methods[with_sigma], mine))
        d = statistics.compare(better, worse)
        figure = f"{d.mean:.2f} [{d.low:.2f}, {d.high:.2f}]"
        yield "dB lost by estimating σ", figure, "≤ 0.3", d.mean <= 0.3


def regret(sigma: Level, mine: Rows, single: Tables) -> Iterator[Finding]:
    """Yield the loss in dB against the best single fill of each cell, among all that were run."""
    fill = scores(mine, "missing_mpsnr")
    best = best_of([scores(r, "missing_mpsnr") for r in single.values()])
    paired = list(statistics.differences(best, fill).values())
    if not paired:
        return
    mean = fmean(float(p.mean()) for p in paired)
    (bound,) = statistics.bootstrap(paired, np.random.default_rng(0), (95.0,))
    share = float((np.concatenate(paired) <= 0.3).mean())
    for label, figure, limit, holds in (
        (
            "mean regret in dB against the best single fill, upper 95 % bound",
            f"{mean:.2f}, {bound:.2f}",
            "bound ≤ 0.1",
            bound <= 0.1,
        ),
        ("cells with a regret of at most 0.3 dB", f"{100 * share:.0f} %", "≥ 95 %", share >= 0.95),
    ):
        yield label, figure, *((limit, holds) if sigma == 0 else ("", None))
    losses = {c: best[u][c] - fill[u][c] for u in fill for c in fill[u] if c in best.get(u, {})}
    worst = max(losses, key=lambda c: losses[c])
    yield "worst cell", f"{losses[worst]:.2f} dB, {worst}", "", None


def spectra(sigma: Level, mine: Rows, single: Tables) -> Iterator[Finding]:
    """Yield the excess of SAM and NRMSE over each rival, in the scene where it is largest."""
    rivals = [n for n in CLEAN_GAINS if n in single]
    for column, label, digits in (("missing_sam", "SAM °", 3), ("missing_nrmse", "NRMSE", 4)):
        for name in rivals if sigma == 0 else []:
            fill, other = scores(mine, column), scores(single[name], column)
            means = {u: float(d.mean()) for u, d in statistics.differences(fill, other).items()}
            if means:
                worst = max(means, key=lambda u: means[u])
                figure = f"{means[worst]:+.{digits}f}, {worst}"
                yield f"{label} above {name}, worst scene", figure, "≤ 0", means[worst] <= 0


def calibration(mine: Rows) -> Iterator[Finding]:
    """Yield the coverage of the intervals, the CRPS, and the accuracy of the expected NRMSE.

    Coverage is pooled, and that of the worst scene, distance and band group.
    """
    mine = [row for row in mine if row["coverage"]]
    if not mine:
        return
    counts = coverage(mine)
    by_scene = [p for p in counts if p.startswith("scene ")]
    for i, level in enumerate(reliability.LEVELS):
        for label, parts, margin in (
            ("pooled", ["all"], 5),
            ("worst scene", by_scene, 10 if level == 80 else 12),
            ("worst distance", [p for p in reliability.DISTANCES if p in counts], 12),
            ("worst band group", [p for p in reliability.BANDS if p in counts], 12),
        ):
            share = {p: 100 * counts[p][i + 1] / counts[p][0] for p in parts}
            worst = max(share, key=lambda p: abs(share[p] - level))
            where = "" if worst == "all" else f", {worst.removeprefix('scene ')}"
            holds = abs(share[worst] - level) <= margin
            figure = f"{share[worst]:.1f} %{where}"
            if worst == "all":
                low, high = resampled([counts[p][[0, i + 1]] for p in by_scene])
                figure += f" [{100 * low:.1f}, {100 * high:.1f}]; {len(by_scene)} scenes"
            yield f"inside {level} % intervals, {label}", figure, f"{level} ± {margin}", holds
    mean = fmean(float(r["crps"]) / float(r["crps_constant"]) for r in mine)
    yield "CRPS, share of that of a constant σ", f"{mean:.2f}", "< 1", mean < 1
    if scored := [r for r in mine if r.get("interval_80")]:
        mean = fmean(float(r["interval_80"]) / float(r["interval_80_constant"]) for r in scored)
        what = "interval score at 80 %, share of that of a constant σ"
        yield what, f"{mean:.2f}", "≤ 0.85", mean <= 0.85
    yield from foresight(mine)


def foresight(rows: Rows) -> Iterator[Finding]:
    """How often the expected NRMSE is near the true one, and how often its bounds contain it."""

    def is_near(row: Row) -> bool:
        """Return whether the expected NRMSE is within 15 % of the true one."""
        return abs(float(row["expected_nrmse"]) / float(row["missing_nrmse"]) - 1) <= 0.15

    def is_inside(row: Row) -> bool:
        """Return whether the true NRMSE lies within its expected bounds."""
        low, high = (float(row[f"expected_nrmse_{end}"]) for end in ("low", "high"))
        return low <= float(row["missing_nrmse"]) <= high

    if with_expected := [r for r in rows if r["expected_nrmse"]]:
        share, figure = share_of(with_expected, is_near)
        yield "expected NRMSE within 15 % of the true one", figure, "≥ 80 %", share >= 80
    if with_bounds := [r for r in rows if r.get("expected_nrmse_low")]:
        share, figure = share_of(with_bounds, is_inside)
        yield "true NRMSE within its bounds", figure, "80 ± 7", abs(share - 80) <= 7


def share_of(rows: Rows, holds: Callable[[Row], bool]) -> tuple[float, str]:
    """Percentage of the rows for which a condition holds, and that as text with its interval."""
    counts: dict[str, Array] = {}
    for row in rows:
        unit = scenes.unit_of(row["scene"])
        counts[unit] = counts.get(unit, 0) + np.array([1, int(holds(row))])
    n, right = np.sum([*counts.values()], axis=0)
    low, high = resampled([*counts.values()])
    share = 100 * float(right / n)
    return share, f"{share:.0f} % [{100 * low:.0f}, {100 * high:.0f}] of {n} cells"


def resampled(counts: Sequence[Array]) -> list[float]:
    """Return the 95 % interval of a share, by bootstrap over scenes.

    counts: for each scene, the number of all entries (or cells) and of those that count as hits.
    """
    drawn = np.random.default_rng(0).integers(len(counts), size=(statistics.RESAMPLES, len(counts)))
    totals, hits = np.moveaxis(np.array(counts, np.float64)[drawn].sum(axis=1), -1, 0)
    return [float(v) for v in np.percentile(hits / totals, (2.5, 97.5))]


def coverage(rows: Rows) -> dict[str, Array]:
    """Map parts of the entries to [entries, inside 50, 80, 95 % intervals], summed over rows."""
    counts: dict[str, Array] = {}
    for row in rows:
        parts = {k: np.array(v) for k, v in json.loads(row["coverage"]).items()}
        whole = np.sum([parts[p] for p in reliability.BANDS if p in parts], axis=0)
        parts |= {"all": whole, f"scene {scenes.unit_of(row['scene'])}": whole}
        for part, n in parts.items():
            counts[part] = counts.get(part, 0) + n
    return counts


def markdown(rows: Rows) -> str:
    """Return the promises as a Markdown table; "" if no row promised anything."""
    if not (kept := list(promises(rows))):
        return ""
    lines = [joined(["σ_y", "row", "", "found", "asked", "kept"]), "|---" * 6 + "|"]
    for p in kept:
        holds = "" if p.holds is None else "yes" if p.holds else "**no**"
        lines.append(joined([shown(p.sigma_y), p.row, p.what, p.figure, p.bound, holds]))
    return "\n".join(lines) + "\n"
