"""Tables from rows, in Markdown, LaTeX and CSV, beside the paper's figures, with conclusions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple

from hydiff.bench import machine, records, scenes, statistics
from hydiff.bench.cell_rows import settings_hash
from hydiff.bench.cells import INPUT, Cell, Level, level_of
from hydiff.bench.choice import SuiteChoice
from hydiff.bench.published import PAPER
from hydiff.bench.records import Row, Rows
from hydiff.bench.suites import Suite, left_out, row_name
from hydiff.bench.tuning import TRAINED
from hydiff.methods import STAND_IN, labelled
from hydiff.metrics import POOR

RANGED = "missing_mpsnr"  # shown with the values of the lowest and the highest scene
# first figures that matter for the use of spectra, over the missing entries; then those of the
# paper, over all entries
METRICS = (
    ("missing_nrmse_median", "NRMSE by band, median", 3),
    ("missing_poor_bands", f"bands > {POOR:g}", 2),
    ("missing_sam", "SAM °", 2),
    ("missing_derivative_rmse", "derivative RMSE", 4),
    ("landcover_accuracy", "land cover", 3),
    ("landcover_kappa", "kappa", 3),
    ("depth_rmse", "depth RMSE", 4),
    ("ratio_rmse", "index RMSE", 4),
    ("missing_nrmse", "NRMSE by band, mean", 3),
    ("all_sam", "SAM ° (all)", 2),
    ("all_scc", "SCC (all)", 3),
    ("all_mssim", "MSSIM (all)", 3),
    ("all_mpsnr", "MPSNR dB (all)", 2),
    ("raw_mpsnr", "raw (all)", 2),
    (RANGED, "MPSNR dB (range over scenes)", 2),
)
INTERPOLATION = "smooth"  # row of a method without learning, compared with the rows of the paper
LEAST_GAIN = 3.0  # dB above the zero-filled input that any method should reach
FEWEST_SCENES = 3  # least number for a conclusion about the paper's ranking
PAPER_COLUMNS = ("MPSNR", "MSSIM", "SAM", "SCC", "seconds")
QUICK_NOTE = "QUICK RUN: tiny cubes and networks, a few steps. These numbers mean nothing."


class Line(NamedTuple):
    """A row of a table: noise level, name, and the texts of its cells."""

    sigma_y: Level
    name: str
    cells: list[str]


class Table(NamedTuple):
    """A table as texts, ready for any format."""

    title: str
    head: list[str]
    lines: list[Line]
    notes: list[str]


def cell_of(row: Row) -> Cell:
    """Return the cell of a row."""
    method, scene, mask, settings = (row[k] for k in ("method", "scene", "mask", "settings"))
    return Cell(method, scene, mask, level_of(row["sigma_y"]), int(row["seed"]), settings)


def scores(rows: Iterable[Row], column: str) -> dict[str, dict[str, float]]:
    """Map units to scenes and masks to means over seeds; cells without the figure are left out."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.get(column):
            unit = values.setdefault(scenes.unit_of(row["scene"]), {})
            unit.setdefault(f"{row['scene']} {row['mask']}", []).append(float(row[column]))
    return {u: {c: fmean(v) for c, v in cells.items()} for u, cells in values.items()}


def grouped(rows: Iterable[Row]) -> dict[tuple[Level, str], list[Row]]:
    """Map each line of the table, given by noise level and name, to its rows."""
    groups: dict[tuple[Level, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((level_of(row["sigma_y"]), row_name(cell_of(row))), []).append(row)
    return groups


def untimed(rows: Rows) -> Rows:
    """Return rows whose seconds do not count: learned ones on a CPU, if others ran on a GPU."""
    learned = [row for row in rows if cell_of(row).learned]
    slow = [row for row in learned if row["device"].startswith(machine.CPU)]
    return slow if len(slow) < len(learned) else []


def build(name: str, suite: Suite, rows: Rows, *, quick: bool = False) -> Table:
    """Return the table of a suite from its rows."""
    groups, paper, slow = grouped(rows), PAPER.get(name, {}), untimed(rows)
    columns = [c for c in METRICS if any(row.get(c[0]) for row in rows)]
    known = {c: {_place(row) for row in rows if row.get(c)} for c, _, _ in columns}
    in_paper = [i for i in range(5) if any(figures[i] is not None for figures in paper.values())]
    head = [label for _, label, _ in columns]
    head += ["seconds", "peak MB", "scenes · cells"]
    head += [f"paper {PAPER_COLUMNS[i]}" for i in in_paper]
    head += [f"Δ to {suite.reference} [95 %]", "p (Holm)"]
    lines = []
    for sigma in sorted({s for s, _ in groups}, key=str):
        names = [n for s, n in groups if s == sigma]
        against = _against(groups, sigma, names, suite)
        for line in names:
            members = groups[sigma, line]
            cells = [_figure(members, c, digits, known[c]) for c, _, digits in columns]
            seconds = [float(r["seconds"]) for r in members if r not in slow]
            cells.append(_number(median(seconds), 1) if seconds else "–")
            peaks = [float(r["peak_mb"]) for r in members if r["peak_mb"]]
            cells.append(_number(max(peaks, default=math.nan), 0))
            n = statistics.summary(scores(members, "all_mpsnr"))
            cells.append(f"{n.units} · {len(members)}")
            figures = paper.get((sigma, line.removesuffix(" (tuned)")), (None,) * 5)
            cells += ["–" if figures[i] is None else f"{figures[i]:g}" for i in in_paper]
            lines.append(Line(sigma, _label(line, members), cells + against[line]))
    return Table(suite.title, head, lines, _notes(name, suite, rows, quick))


def _label(name: str, rows: Rows) -> str:
    """Return the name of a line, labelled if a stand-in replaces the published method."""
    return labelled(name) if any(STAND_IN in row["notes"] for row in rows) else name


def _against(
    groups: dict[tuple[Level, str], list[Row]], sigma: Level, names: list[str], suite: Suite
) -> dict[str, list[str]]:
    """Return the paired difference of each row to the reference, and its corrected p, as cells."""
    reference = suite.reference
    base = scores(groups.get((sigma, reference), []), suite.column)
    others = [n for n in names if n != reference]
    compared = [statistics.compare(scores(groups[sigma, n], suite.column), base) for n in others]
    corrected = statistics.holm([d.p for d in compared])
    cells = {reference: ["", ""]}
    for name, d, p in zip(others, compared, corrected, strict=True):
        interval = f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]"
        if d.units < 2:  # a single scene says nothing about others
            interval = "–" if d.units == 0 else f"{d.mean:+.2f}"
        cells[name] = [interval, _number(p, 3)]
    return cells


def _notes(name: str, suite: Suite, rows: Rows, quick: bool) -> list[str]:
    """Return the notes below a table."""

    def listed(column: str) -> str:
        """Return the different values of a column as text."""
        return ", ".join(dict.fromkeys(row[column] for row in rows))

    entries = "of the missing entries" if suite.column == "missing_mpsnr" else "of all entries"
    notes = [f"Ours against the paper's: {suite.caveat}"]
    if quick:
        notes.insert(0, QUICK_NOTE)
    else:
        notes += ranking(name, rows, suite.column)
    notes += [
        f"Scenes: {listed('scene')}. Masks: {listed('mask')}. Devices: {listed('device')}.",
        "Figures of the missing entries, those marked (all) of all. "
        "Mean ± standard deviation between scenes, each the mean of its masks and seeds; a dash "
        "where rows of an earlier version lack the figure; "
        "overlapping Chikusei patches count as one scene. σ_y = 0: observed pixels put back, "
        "`raw` before that; σ_y > 0: as returned. `seconds`: the median, without the start of a "
        f"process. Δ: paired difference in MPSNR {entries}, with a "
        "hierarchical bootstrap; p: Wilcoxon's signed-rank test over scenes, Holm's correction.",
    ]
    counts = sorted({int(row.get("beside") or 1) for row in rows})
    if counts[-1] > 1:
        notes.append(
            f"Up to {counts[-1]} learned runs alike were fitted side by side on the GPU; `seconds` "
            "is the time of all of them divided by their number, `peak MB` that of all."
        )
    notes += [*_narrow(suite, rows), *_limited(rows), *_trained(rows), *_earlier(rows)]
    notes += [] if quick else _failing(rows)
    if blind := ", ".join(sorted({r["method"] for r in rows if int(r["out_of_reach"] or 0)})):
        notes.append(f"Entries that {blind} cannot reach stay 0, as in the input, and are scored.")
    if any(STAND_IN in row["notes"] for row in rows):
        notes.append(
            f"{STAND_IN}: a small denoiser of ours in place of the published one, which cannot be "
            "had; its scores are not HIR-Diff's."
        )
    return notes


def _narrow(suite: Suite, rows: Rows) -> Iterator[str]:
    """Name the development scenes that are too narrow for a mask, if the table has any of them."""
    if any(row["scene"] in scenes.DEVELOPMENT for row in rows):
        everything = SuiteChoice((scenes.BUNDLED, *scenes.DEVELOPMENT))
        if lines := left_out(suite, everything):
            yield f"Left out: {'; '.join(lines)}."


def _limited(rows: Rows) -> Iterator[str]:
    """Name the rows with fewer scenes or masks than other rows of their noise level."""
    groups = grouped(rows)
    parts: dict[str, list[str]] = {}  # description of what was run → its noise levels
    for sigma in dict.fromkeys(s for s, _ in groups):
        used = {
            _label(name, members): [{row[c] for row in members} for c in ("scene", "mask", "seed")]
            for (s, name), members in groups.items()
            if s == sigma
        }
        most = [max(len(sets[i]) for sets in used.values()) for i in range(2)]
        for name, sets in used.items():
            if any(len(sets[i]) < most[i] for i in range(2)):
                masks = ", ".join(sorted(sets[1]))
                part = f"{name}: {len(sets[0])} scenes, {masks}, {len(sets[2])} seed(s)"
                parts.setdefault(part, []).append(shown(sigma))
    if parts:
        levels = len({s for s, _ in groups})
        listed = (
            part if len(at) == levels else f"{part} (σ_y = {', '.join(at)})"
            for part, at in parts.items()
        )
        yield f"Run on a part of the cells, for their time: {'; '.join(listed)}."


def _failing(rows: Rows) -> Iterator[str]:
    """Name the rows that hardly improve on the zero-filled input in the gaps of some scene."""
    groups = grouped(rows)
    for sigma in dict.fromkeys(s for s, _ in groups):
        zeros = scores(groups.get((sigma, INPUT), []), "missing_mpsnr")
        poor = []
        for name in (n for s, n in groups if s == sigma and n != INPUT):
            gains = statistics.differences(scores(groups[sigma, name], "missing_mpsnr"), zeros)
            low = {unit: g.mean() for unit, g in gains.items() if g.mean() < LEAST_GAIN}
            if low:
                worst = min(low, key=lambda unit: low[unit])
                label = _label(name, groups[sigma, name])
                poor.append(f"{label} {len(low)} of {len(gains)} ({worst} {low[worst]:+.1f})")
        if poor:
            yield (
                f"Less than {LEAST_GAIN:g} dB above the zero-filled input in the gaps at "
                f"σ_y = {shown(sigma)}, scenes and the worst of them: {', '.join(poor)}."
            )


def _earlier(rows: Rows) -> Iterator[str]:
    """Count the rows that were made with other default settings or rules than the current ones."""
    counts = Counter(
        f"{_label(row_name(cell_of(row)), [row])} at σ_y = {row['sigma_y']}"
        for row in rows
        if row["settings_hash"] != settings_hash(cell_of(row))
    )
    if counts:
        listed = ", ".join(f"{name} {n}" for name, n in counts.items())
        yield f"Rows of earlier defaults, to be made again: {listed}."


def _trained(rows: Rows) -> Iterator[str]:
    """Report the updates and seconds of networks that were trained before the fill."""
    for row in rows:
        for note in row["notes"].split("; "):
            if note.startswith(TRAINED):
                yield f"{row_name(cell_of(row))}: {note}."


def ranking(name: str, rows: Rows, column: str = "all_mpsnr") -> list[str]:
    """Return sentences on how far the paper's ranking holds, and how interpolation compares.

    There is a line for each noise level.  Two rows are compared on the cells that both have.  A
    pair holds or is reversed if the 95 % interval of our difference and Student's t over the scenes
    (p < 0.05) agree on it, on three scenes or more: for few scenes the bootstrap alone is too
    confident.  A stand-in is left out, as it says nothing about the method that it replaces.
    """
    sentences = []
    genuine = grouped(row for row in rows if STAND_IN not in row["notes"])
    groups = {key: scores(members, column) for key, members in genuine.items()}
    paper = {key: figures[0] or 0.0 for key, figures in PAPER.get(name, {}).items()}  # MPSNR
    for sigma in dict.fromkeys(s for s, _ in paper):
        ranked = sorted((n for s, n in paper if s == sigma and n != INPUT and (s, n) in groups),
                        key=lambda n: -paper[sigma, n])  # fmt: skip
        outcome: dict[str, list[str]] = {"hold": [], "are reversed": [], "are open": []}
        for above, below in combinations(ranked, 2):
            d = statistics.compare(groups[sigma, above], groups[sigma, below])
            if d.units:
                side = ("are reversed", "are open", "hold")[1 + sign(d)]
                claim = paper[sigma, above] - paper[sigma, below]
                both = f"(paper {claim:+.2f} dB, ours {d.mean:+.2f})"
                outcome[side].append(f"{above} over {below} {both}")
        if pairs := sum(map(len, outcome.values())):
            counts = ", ".join(f"{len(v)} {k}" for k, v in outcome.items())
            line = f"The paper's ranking at σ_y = {shown(sigma)}: of {pairs} pairs {counts}."
            if outcome["are reversed"]:
                line += f" Reversed: {'; '.join(outcome['are reversed'])}."
            sentences.append(line)
        sentences += _interpolation(groups, sigma, ranked)
    return sentences


def _interpolation(
    groups: dict[tuple[Level, str], dict[str, dict[str, float]]], sigma: Level, ranked: list[str]
) -> Iterator[str]:
    """Compare `smooth`, which learns nothing, with the rows of the paper."""
    base, others = groups.get((sigma, INTERPOLATION)), [n for n in ranked if n != INTERPOLATION]
    against = {n: statistics.compare(base, groups[sigma, n]) for n in others} if base else {}
    against = {n: d for n, d in against.items() if d.units}
    if against:
        above = [n for n, d in against.items() if sign(d) > 0]
        below = [n for n, d in against.items() if sign(d) < 0]
        listing = ", ".join(f"{n} {d.mean:+.2f} dB" for n, d in against.items())
        yield (
            f"Interpolation at σ_y = {shown(sigma)}: smooth lies above {len(above)} and below "
            f"{len(below)} of the paper's {len(against)} rows (its difference to {listing})."
        )


def sign(d: statistics.Difference) -> int:
    """Return the sign of a difference, or 0 if its scenes leave it open."""
    if d.units < FEWEST_SCENES or d.t >= 0.05:
        return 0
    return 1 if d.low > 0 else -1 if d.high < 0 else 0


def shown(level: Level) -> str:
    """Return a noise level as text."""
    return level if isinstance(level, str) else f"{level:g}"


def _number(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _place(row: Row) -> tuple[str, str, str]:
    """Return scene, mask and noise level of a row."""
    return row["scene"], row["mask"], row["sigma_y"]


def _figure(rows: Rows, column: str, digits: int, places: Collection[tuple[str, str, str]]) -> str:
    """Return mean and standard deviation as text, or a dash if rows lack a figure.

    A dash appears if other lines have the figure for the same scene, mask and noise level, so that
    all numbers of a column are comparable.
    """
    if not all(row.get(column) for row in rows if _place(row) in places):
        return "–"
    by_scene = scores(rows, column)
    means, s = [fmean(c.values()) for c in by_scene.values()], statistics.summary(by_scene)
    spread = "" if math.isnan(s.std) else f" ± {s.std:.{digits}f}"
    ends = f" ({min(means):.1f} … {max(means):.1f})" if column == RANGED and len(means) > 1 else ""
    return _number(s.mean, digits) + spread + ends


def markdown(table: Table) -> str:
    """Return a table in Markdown, with a part for each noise level."""
    text = [f"# {table.title}", ""]
    for sigma in dict.fromkeys(line.sigma_y for line in table.lines):
        text += [f"**σ_y = {shown(sigma)}**", "", joined(["", *table.head])]
        text.append("|---" * (len(table.head) + 1) + "|")
        text += [joined([line.name, *line.cells]) for line in table.lines if line.sigma_y == sigma]
        text.append("")
    text += [f"- {note}" for note in table.notes]
    return "\n".join(text) + "\n"


def joined(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


TEX = str.maketrans(
    {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "–": "--", "Δ": r"$\Delta$",
     "σ": r"$\sigma$", "ε": r"$\varepsilon$", "°": r"$^\circ$", "·": r"$\cdot$", "×": r"$\times$",
     "−": "$-$", "`": "", "…": r"\dots", ">": "$>$"}
)  # fmt: skip


def latex(table: Table) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    lines = [r"\begin{table*}", r"\centering", rf"\caption{{{table.title.translate(TEX)}}}"]
    lines += [rf"\begin{{tabular}}{{ll{'r' * len(table.head)}}}", r"\toprule"]
    lines += [_tex([r"$\sigma_y$", "", *(h.translate(TEX) for h in table.head)]), r"\midrule"]
    for line in table.lines:
        cells = [shown(line.sigma_y), line.name, *line.cells]
        lines.append(_tex([cell.translate(TEX) for cell in cells]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {note.translate(TEX)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _tex(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def comma_separated(table: Table) -> str:
    """Return a table as CSV."""
    body = ([shown(line.sigma_y), line.name, *line.cells] for line in table.lines)
    return "".join(map(records.line, (["sigma_y", "row", *table.head], *body)))
