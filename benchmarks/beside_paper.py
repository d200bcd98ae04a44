"""Differences between rows of the paper's tables and of ours, on the same cells; for tables.py."""

from pathlib import Path

from hydiff.bench import records
from hydiff.bench.cells import Cell
from hydiff.bench.published import PAPER
from hydiff.bench.row_names import ASSUMED_NOISE, FOR_FEWER, OURS, row_name
from hydiff.bench.statistics import compare
from hydiff.bench.tables import sign

HOME = Path(__file__).parent / "results" / "bench"
# the row of a table that the others are compared with
FIRST = {"alpha": "ei_weight 1", "transforms": "transform rotation"}
# methods whose rows say nothing about the paper's, and why
REASONS = {"hir-diff": "a stand-in denoiser"}
# numbers of these tables in the paper
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


def twins(suite, name):
    """Rows that may be what the paper calls `name`, each with the row that it is compared with."""
    first = FIRST.get(suite, OURS)
    yield first, name
    if name in ("dhp", "r-dlrhyin"):
        yield first, f"{name} {FOR_FEWER}"
    if name == "ei":
        yield first, "hyper-ei"
    if suite == "transforms":
        yield f"{first}, n_transforms 7", f"{name}, n_transforms 7"


def verdict(name, ours, theirs):
    """Whether the signs agree, by the rule of the tables of the benchmark; if not, why."""
    if name in REASONS:
        return f"open: {REASONS[name]}"
    proved, same = sign(ours) != 0, (ours.mean > 0) == (theirs > 0)
    if same:
        return "same sign" if proved else "open"
    return f"{'opposite' if proved else 'open, opposite so far'}: not explained"


def beside_paper(suite):
    """Of the paper's method, or of its default setting, less each other row of a table."""

    def table(rows):
        yield "| σ_y | ours less | ours, dB (95 % interval) | scenes · cells | paper | |"
        yield "|---" * 6 + "|"
        ours = scores(rows)
        for (level, name), figures in PAPER[suite].items():
            first = PAPER[suite].get((level, FIRST.get(suite, OURS)), figures)
            theirs = first[0] - figures[0]
            if name != "input" and theirs:
                yield from (pair(ours, level, *two, theirs) for two in twins(suite, name))

    return table


def pair(ours, level, first, name, theirs):
    """The line of one row less another."""
    one, other = (ours.get((level, n), {}) for n in (first, name))
    cells = sum(len(one[s].keys() & other.get(s, {}).keys()) for s in one)
    if not cells:
        return f"| {level} | `{name}` | – | 0 · 0 | {theirs:+.2f} | no rows |"
    found = compare(one, other)
    interval = f" ({found.low:+.2f} … {found.high:+.2f})" if found.units > 1 else ""
    said = verdict(name, found, theirs)
    places = f"{found.units} · {cells}"
    return (
        f"| {level} | `{name}` | {found.mean:+.2f}{interval} | {places} | {theirs:+.2f} | {said} |"
    )


def published_code(rows):
    """DDS2M: the published code and ours on one cell, from the same weights and noise."""
    yield "| scene | mask | σ_y | σ_0 | steps with a fit | published, dB (gaps) | ours, dB (gaps) |"
    yield "|---" * 7 + "|"
    for r in rows:
        theirs, ours = (f"{r[f'{who}_mpsnr']} ({r[f'{who}_missing']})" for who in ("last", "ours"))
        place = (r["scene"], r["mask"], r["sigma_y"], r["sigma_0"], f"{r['steps']} of {r['chain']}")
        yield f"| {' | '.join(place)} | {theirs} | {ours} |"


def noise_of_dds2m(rows):
    """MPSNR of the gaps by `dds2m`, scenes down, by what its sampler gets and assumes."""
    clean = [r for r in rows if r["method"] == "dds2m"]
    noisy = records.read(HOME / "noisy.csv")
    found = {}
    for r in (*clean, *(r for r in noisy if r["method"] == "dds2m" and r["sigma_y"] == "0.1")):
        key = (r["sigma_y"], row_name(Cell("dds2m", r["scene"], r["mask"], 0.0, 0, r["settings"])))
        if r["mask"] == "published-3" and r["seed"] == "0":
            found.setdefault(r["scene"], {})[key] = float(r["missing_mpsnr"])
    columns = ("0.0", "dds2m"), ("0.0", f"dds2m, σ_0 {ASSUMED_NOISE}"), ("0.1", "dds2m")
    yield "| scene | without noise | without, 0.1 assumed | noise of 0.1 |"
    yield "|---" * 4 + "|"
    for scene, each in sorted(found.items()):
        if all(c in each for c in columns):
            yield f"| {scene} | {' | '.join(f'{each[c]:.2f}' for c in columns)} |"
