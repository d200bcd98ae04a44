"""Differences of the paper's tables beside ours, paired on the same cells; for tables.py."""

from hydiff.bench.cells import Cell
from hydiff.bench.published import PAPER
from hydiff.bench.row_names import OURS, row_name
from hydiff.bench.statistics import compare

# the row of a table that the others are compared with
FIRST = {"alpha": "ei_weight 1", "transforms": "transform rotation"}
# the paper's numbers of these tables
TABLES = {"noiseless": "I", "noisy": "II", "ei-ablation": "IV", "alpha": "VI", "transforms": "VII"}


def scores(rows):
    """MPSNR of all entries: noise level and row, then scene, then mask and seed."""
    found = {}
    for r in rows:
        name = row_name(Cell(r["method"], r["scene"], r["mask"], 0.0, 0, r["settings"]))
        level = float(r["sigma_y"]) if r["sigma_y"] != "band" else r["sigma_y"]
        scenes = found.setdefault((level, name), {})
        scenes.setdefault(r["scene"], {})[r["mask"], r["seed"]] = float(r["all_mpsnr"])
    return found


def verdict(ours, theirs, stand_in):
    """Whether the signs agree, as far as the interval allows to say."""
    if ours.low <= 0 <= ours.high or ours.units < 2:
        return "open"
    if (ours.mean > 0) == (theirs > 0):
        return "same sign"
    return "opposite" if stand_in else "opposite, not explained"


def beside_paper(suite):
    """Of the paper's method, or of its default setting, less each other row of a table."""
    first = FIRST.get(suite, OURS)

    def table(rows):
        yield f"| σ_y | `{first}` less | ours, dB (95 % interval) | scenes · cells | paper | |"
        yield "|---" * 6 + "|"
        ours = scores(rows)
        for (level, name), figures in PAPER[suite].items():
            if name in (first, "input") or (level, first) not in PAPER[suite]:
                continue
            theirs = PAPER[suite][level, first][0] - figures[0]
            one, other = (ours.get((level, n), {}) for n in (first, name))
            found = compare(one, other)
            cells = sum(len(one[s].keys() & other.get(s, {}).keys()) for s in one)
            if not cells:
                yield f"| {level} | `{name}` | – | 0 · 0 | {theirs:+.2f} | no rows |"
                continue
            sign = verdict(found, theirs, name == "hir-diff")
            interval = f"{found.low:+.2f} … {found.high:+.2f}"
            yield (
                f"| {level} | `{name}` | {found.mean:+.2f} ({interval}) | {found.units} · {cells} "
                f"| {theirs:+.2f} | {sign} |"
            )

    return table


def published_code(rows):
    """DDS2M: the published code and ours on one cell, from the same weights and noise."""
    yield "| scene | mask | σ_y | steps with a fit | published, dB (gaps) | ours, dB (gaps) |"
    yield "|---" * 6 + "|"
    for r in rows:
        theirs, ours = (f"{r[f'{who}_mpsnr']} ({r[f'{who}_missing']})" for who in ("last", "ours"))
        place = (r["scene"], r["mask"], r["sigma_y"], f"{r['steps']} of {r['chain']}")
        yield f"| {' | '.join(place)} | {theirs} | {ours} |"
