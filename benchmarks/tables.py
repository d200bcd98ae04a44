"""Put the tables that the documents show into them, read from benchmarks/results.

python benchmarks/tables.py            rewrites the documents between their table marks
"""

import csv
import json
import re
from pathlib import Path
from statistics import mean, stdev

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKS = re.compile(
    r"(<!-- table: (?P<source>\S+?\.csv) ?(?P<name>\w*) -->\n).*?(<!-- /table -->)", re.DOTALL
)


def classical(rows):
    """Methods down, scene and mask across; smooth at its default s only."""
    rows = [r for r in rows if r["method"] != "smooth" or r["s"] == "1.5"]
    rows = [r for r in rows if "moved" not in r["mask"]]
    columns = list(dict.fromkeys((r["scene"], r["mask"]) for r in rows))
    methods = sorted({r["method"] for r in rows}, key=lambda m: -average(rows, method=m))
    yield line("method", *(f"{s}, {m.split('_')[0]}" for s, m in columns), "seconds")
    yield rule(len(columns) + 2)
    for method in methods:
        mine = {(r["scene"], r["mask"]): r for r in rows if r["method"] == method}
        figures = [f"{float(mine[c]['mpsnr']):.2f}" for c in columns]
        seconds = max(float(r["seconds"]) for r in mine.values())
        yield line(f"`{method}`", *figures, f"{seconds:.1f}")


def learned(rows):
    """Cases down, methods across: mean MPSNR over the seeds, with their standard deviation."""
    rows = [r for r in rows if r["settings"] == "{}"]
    methods = ("hydiff-ei", "ei", "robust-ei", "smooth", "harmonic")
    yield line("scene, mask, scale", "σ_y", *(f"`{m}`" for m in methods))
    yield rule(len(methods) + 2)
    cases = dict.fromkeys((r["scene"], r["mask"], r["scale"], r["sigma_y"]) for r in rows)
    for case in sorted(cases, key=lambda c: (c[0] != "indian_pines_144", c[3], c)):
        scene, mask, scale, sigma = case
        picked = {"scene": scene, "mask": mask, "scale": scale, "sigma_y": sigma}
        yield line(
            f"{scene}, {mask}, {scale}", sigma, *(cell(rows, method=m, **picked) for m in methods)
        )


def readings(rows):
    """The readings of ε_0 on one scene."""
    yield line("ε_0", "MPSNR of the result", "of the raw network")
    yield rule(3)
    for reading in ("implied", "fresh", "none"):
        settings = "{}" if reading == "implied" else json.dumps({"eps0": reading})
        picked = {"method": "hydiff-ei", "scale": "minmax", "settings": settings}
        yield line(f"`{reading}`", cell(rows, **picked), cell(rows, "mpsnr_raw", **picked))


def presets(rows):
    """What single settings cost."""
    yield line("settings changed", "MPSNR", "seconds on the GPU")
    yield rule(3)
    for settings in dict.fromkeys(r["settings"] for r in rows):
        seconds = min(float(r["seconds"]) for r in rows if r["settings"] == settings)
        shown = ", ".join(f"{k} = {v}" for k, v in json.loads(settings).items()) or "none"
        yield line(shown, cell(rows, settings=settings), f"{seconds:.1f}")


def scenes(rows):
    """Noiseless: scenes down, methods across, each the mean over the published masks 1 to 4."""
    methods = ("hydiff-ei", "smooth", "harmonic", "bandmean")
    yield line("scene", *(f"`{m}`" for m in methods))
    yield rule(len(methods) + 1)
    rows = select(rows, sigma_y="0.0")
    for scene in dict.fromkeys(r["scene"] for r in rows):
        yield line(scene, *(f"{average(rows, scene=scene, method=m):.2f}" for m in methods))
    yield line("mean", *(f"{average(rows, method=m):.2f}" for m in methods))


def offline(rows):
    """Ways down, crops across."""
    yield line("way", "lr", "updates", "published-2", "published-3", "published-4", "seconds")
    yield rule(7)
    for way, lr in dict.fromkeys((r["way"], r["lr"]) for r in rows):
        mine = select(rows, way=way, lr=lr)
        figures = [f"{average(mine, mask=f'published-{i}'):.2f}" for i in (2, 3, 4)]
        seconds = f"{average(mine, 'seconds'):.1f}"
        yield line(way, lr or "–", mine[0]["updates"] or "–", *figures, seconds)


def preconditioner(rows):
    yield line("mask", "s", "iterations with R (−Δ)^{−s} Rᵀ", "with L⁻¹ R (−Δ)^{2−s} Rᵀ L⁻¹")
    yield rule(4)
    for r in rows:
        yield line(r["mask"], r["s"], r["plain"], r["ours"])


def anchored(rows):
    """Cases down, methods across: MPSNR of the missing entries, with noise of all."""
    methods = ("anchored", "smooth", "harmonic", "biharmonic")
    yield line("scene, mask", "σ_y", *(f"`{m}`" for m in methods))
    yield rule(len(methods) + 2)
    for sigma in dict.fromkeys(r["sigma_y"] for r in rows):
        column = "mpsnr_missing" if sigma == "0.0" else "mpsnr"
        mine = select(rows, sigma_y=sigma)
        cases = [
            (scene, mask)
            for scene, mask in dict.fromkeys((r["scene"], r["mask"]) for r in mine)
            if select(mine, scene=scene, mask=mask, method="anchored")
        ]
        for scene, mask in cases:
            picked = {"scene": scene, "mask": mask}
            figures = [cell(mine, column, method=m, **picked) for m in methods]
            yield line(f"{scene}, {mask}", sigma, *figures)
        rest = [r for r in mine if (r["scene"], r["mask"]) in cases]
        means = [f"{mean(figures):.2f}" if figures else "–" for figures in (
            [float(r[column]) for r in select(rest, method=m)] for m in methods
        )]  # fmt: skip
        yield line(f"mean of {len(cases)}", sigma, *means)


def parts(rows):
    """Settings down, cases across: MPSNR of the missing entries, and seconds of all together."""
    cases = list(dict.fromkeys((r["scene"], r["mask"]) for r in rows))
    yield line("changed", *(f"{s}, {m}" for s, m in cases), "mean", "seconds")
    yield rule(len(cases) + 3)
    for settings in dict.fromkeys(r["settings"] for r in rows):
        mine = select(rows, settings=settings)
        if {(r["scene"], r["mask"]) for r in mine} != set(cases):
            continue  # not finished
        shown = ", ".join(f"{k} = {v}" for k, v in json.loads(settings).items()) or "nothing"
        each = [cell(mine, "mpsnr_missing", scene=s, mask=m) for s, m in cases]
        seconds = sum(float(r["seconds"]) for r in mine)
        yield line(shown, *each, f"{average(mine, 'mpsnr_missing'):.2f}", f"{seconds:.0f}")


def select(rows, **picked):
    return [r for r in rows if all(r[k] == v for k, v in picked.items())]


def average(rows, column="mpsnr", **picked):
    return mean(float(r[column]) for r in select(rows, **picked))


def cell(rows, column="mpsnr", **picked):
    """Mean ± standard deviation over the seeds; a dash where nothing was run."""
    figures = [float(r[column]) for r in select(rows, **picked)]
    if not figures:
        return "–"
    spread = f" ± {stdev(figures):.2f}" if len(figures) > 1 and stdev(figures) > 0 else ""
    return f"{mean(figures):.2f}{spread}"


def line(*cells):
    return "| " + " | ".join(cells) + " |"


def rule(columns):
    return "|---" * columns + "|"


TABLES = {
    ("benchmarks/results/classical.csv", ""): classical,
    ("benchmarks/results/learned_required.csv", ""): learned,
    ("benchmarks/results/learned_required.csv", "readings"): readings,
    ("benchmarks/results/learned_presets.csv", ""): presets,
    ("benchmarks/results/learned_table.csv", ""): scenes,
    ("benchmarks/results/offline.csv", ""): offline,
    ("benchmarks/results/preconditioner.csv", ""): preconditioner,
    ("benchmarks/results/anchored_scenes.csv", ""): anchored,
    ("benchmarks/results/anchored_parts.csv", ""): parts,
}


def rendered(text):
    """The text of a document with every marked table made anew."""

    def table(match):
        with (ROOT / match["source"]).open(newline="") as file:
            lines = TABLES[match["source"], match["name"]](list(csv.DictReader(file)))
            return match[1] + "\n".join(lines) + "\n" + match[4]

    return MARKS.sub(table, text)


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(rendered(document.read_text()))
