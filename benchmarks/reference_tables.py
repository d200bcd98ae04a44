"""Tables of fills from another image: the requirements and the measured values."""

import json
from collections.abc import Callable, Iterator
from statistics import fmean, median
from typing import Any

Row = dict[str, str]
Lines = Iterator[str]
SAME_MOMENT, BUDGET = "paris_ali", "fast"
SINGLE = ("regression", "reference", "its steps", "local gain", "robust", "robust, prior",
          "similar pixels", "pixels alike", "similar pixels of others", "matched copy")  # fmt: skip
MEANING = {
    "regression": "regression on the pixel",
    "reference": "… and its eight neighbours",
    "its steps": "the same, fitted to differences between neighbours",
    "local gain": "gain and offset that vary, on the pixel",
    "robust": "changed pixels count less",
    "robust, prior": "… and the prior corrects what is left",
    "similar pixels": "changed pixels count less, corrected by similar pixels",
    "pixels alike": "the mean of similar pixels, kriged",
    "similar pixels of others": "similar pixels as others do it",
    "matched copy": "copy with matched histogram",
    "auto": "`auto`, without a prior, by earlier rules",
}


def line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def places(rows: list[Row]) -> Lines:
    """Models down: gains over `smooth` on the places that judge nothing."""
    yield line("model", "mean dB over `smooth`", "worst cell", "against `auto`, best cell")
    yield "|" + "---|" * 4
    own = [float(row["auto"]) for row in rows]
    for name in (*SINGLE, "auto"):
        gain = [float(row[name]) for row in rows]
        ahead = max(g - a for g, a in zip(gain, own, strict=True))
        yield line(MEANING[name], f"{fmean(gain):+.2f}", f"{min(gain):+.2f}", f"{ahead:+.2f}")
    inside = fmean(float(row["inside_80"]) for row in rows)
    near = fmean(abs(float(row["expected_over_true"]) - 1) <= 0.15 for row in rows)
    yield ""
    yield f"{len(rows)} cells. Of the entries filled by `auto`, {100 * inside:.0f} % lie inside"
    yield f"their 80 % intervals; its expected NRMSE is within 15 % in {100 * near:.0f} % of cells."


def required(rows: list[Row]) -> Lines:
    """What fills of the pairs must reach, from the rows of `hydiff bench reference`."""
    cells: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if json.loads(row["settings"]).get("budget", BUDGET) == BUDGET:
            cells.setdefault((row["scene"], row["mask"]), {})[_name(row)] = row
    whole = {cell: found for cell, found in cells.items() if "with" in found}
    apart = {cell: found for cell, found in whole.items() if cell[0] != SAME_MOMENT}
    yield line("required", "found", "bound", "holds")
    yield "|" + "---|" * 4

    def gains(rival: str, some: dict[tuple[str, str], dict[str, Row]]) -> dict[Any, float]:
        score = "missing_mpsnr"
        return {c: float(f["with"][score]) - float(f[rival][score]) for c, f in some.items()}

    over = gains("auto", apart)
    pairs = {scene for scene, _ in apart}
    by_pair = [fmean(g for (s, _), g in over.items() if s == scene) for scene in pairs]
    yield _judged("dB over `auto` without it, other dates, mean", fmean(over.values()), 1.5)
    yield _judged("… median pair", median(by_pair), 1.0)
    yield _judged("… worst cell of all pairs", min(gains("auto", whole).values()), -0.1)
    yield _judged(
        "dB over `smooth`, other dates, mean", fmean(gains("smooth", apart).values()), 2.8
    )
    for rival, words in (("reference", "plain regression"), ("similar-pixels", "similar pixels")):
        worst = min(gains(rival, whole).items(), key=lambda item: item[1])
        yield _judged(f"dB over {words}, worst cell ({', '.join(worst[0])})", worst[1], -0.1)
    yield from _calibrated(whole)
    yield ""
    yield f"{len(whole)} of 20 cells have been run."


def _calibrated(cells: dict[tuple[str, str], dict[str, Row]]) -> Lines:
    inside: dict[str, list[tuple[int, int]]] = {}
    for (scene, _), found in cells.items():
        counts = json.loads(found["with"]["coverage"]).items()
        near = [count for part, count in counts if part.endswith("px")]
        inside.setdefault(scene, []).append((sum(c[0] for c in near), sum(c[2] for c in near)))
    pooled = [
        sum(part) for part in zip(*(c for some in inside.values() for c in some), strict=True)
    ]
    share = 100 * pooled[1] / pooled[0]
    yield _within("% inside 80 % intervals, pooled", share, 80, 5)
    pairs = {
        s: 100 * sum(c[1] for c in some) / sum(c[0] for c in some) for s, some in inside.items()
    }
    far = max(pairs, key=lambda scene: abs(pairs[scene] - 80))
    yield _within(f"… of the pair farthest from it ({far})", pairs[far], 80, 12)
    ratio = [
        float(f["with"]["expected_nrmse"]) / float(f["with"]["missing_nrmse"])
        for f in cells.values()
    ]
    near = 100 * fmean(abs(r - 1) <= 0.15 for r in ratio)
    yield _judged("% of cells with the expected NRMSE within 15 %", near, 75, ".0f")


def _name(row: Row) -> str:
    return "with" if "reference" in json.loads(row["settings"]) else row["method"]


def _judged(what: str, found: float, least: float, form: str = "+.2f") -> str:
    return line(what, f"{found:{form}}", f"≥ {least:g}", "yes" if found >= least else "**no**")


def _within(what: str, found: float, middle: float, most: float, form: str = ".1f") -> str:
    holds = "yes" if abs(found - middle) <= most else "**no**"
    return line(what, f"{found:{form}}", f"{middle:g} ± {most:g}", holds)


def wrong(rows: list[Row]) -> Lines:
    """References that are wrong or show a change: what they cost, and whether σ knows."""
    words = ("gain, mean dB", "worst cell", "used for", "inside 80 %", "… where it changed")
    yield line("reference", "cells", *words)
    yield "|" + "---|" * 7
    for kind in dict.fromkeys(row["reference"] for row in rows):
        own = [row for row in rows if row["reference"] == kind]
        gain = [float(row["gain_db"]) for row in own]
        share = fmean(0.0 if row["share"] == "refused" else float(row["share"]) for row in own)
        inside = fmean(float(row["inside_80"]) for row in own)
        entries = sum(int(row["changed_entries"]) for row in own)
        there = sum(
            int(row["changed_entries"]) * float(row["changed_inside_80"] or 0) for row in own
        )
        changed = f"{100 * there / entries:.0f} %" if entries else ""
        figures = f"{fmean(gain):+.2f}", f"{min(gain):+.2f}", f"{100 * share:.0f} %"
        yield line(kind, len(own), *figures, f"{100 * inside:.0f} %", changed)


def shifts(rows: list[Row]) -> Lines:
    """How often a shift was found, by pair."""
    yield line("pair", "shifts up to 3 px", "found to 0.15 px", "largest error, px",
               "beyond the bound", "refused")  # fmt: skip
    yield "|" + "---|" * 6
    rows = [row for row in rows if float(row["down"]) or float(row["right"])]
    far = [row for row in rows if float(row["down"]) ** 2 + float(row["right"]) ** 2 > 9]
    near = [row for row in rows if row not in far]
    for pair in (*dict.fromkeys(row["pair"] for row in rows), "all"):
        own, beyond = ([r for r in some if pair in (r["pair"], "all")] for some in (near, far))
        off = [float(row["off"]) if row["off"] else float("inf") for row in own]
        share = 100 * fmean(o <= 0.15 for o in off)
        refused = sum(int(row["refused"]) for row in beyond)
        yield line(pair, len(own), f"{share:.0f} %", f"{max(off):.3f}", len(beyond), refused)


TABLES: dict[tuple[str, str], Callable[[list[Row]], Lines]] = {
    ("benchmarks/results/reference_places.csv", ""): places,
    ("benchmarks/results/bench/reference.csv", "required"): required,
    ("benchmarks/results/references.csv", ""): wrong,
    ("benchmarks/results/reference_shifts.csv", ""): shifts,
}
