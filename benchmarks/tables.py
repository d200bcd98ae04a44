"""Write the tables of the documents from benchmarks/results.

python benchmarks/tables.py            writes docs/tables, and the documents between table marks
"""

import csv
import json
import re
import tomllib
from itertools import pairwise, product
from math import log
from pathlib import Path
from statistics import geometric_mean, linear_regression, mean, stdev

import numpy as np

import beside_paper
import left
import reference_tables
from hydiff.bench import SUITES, records, statistics
from hydiff.bench.cell_rows import settings_hash
from hydiff.bench.scenes import unit_of
from hydiff.bench.tables import cell_of

ROOT = Path(__file__).parents[1]
TO_COME = (  # sources that may be missing
    "benchmarks/results/bench/",
    "benchmarks/results/offline_curve.csv",
    "benchmarks/results/prior_ablation.csv",
)
BEST = ROOT / "benchmarks/results/bench/best.csv"
FOLDER = ROOT / "docs" / "tables"  # generated pages, one for each table
GROUPS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
COLUMNS = GROUPS.pop("columns")  # what the columns of the benchmark mean
BY_BAND = ("columns", "pixels")  # masks that differ from band to band
DOCUMENTS = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if FOLDER not in p.parents),
]
MARKS = re.compile(
    r"(<!-- table: (?P<source>\S+?\.csv) ?(?P<name>\w*) -->\n).*?(<!-- /table -->)", re.DOTALL
)


def classical(rows):
    """Methods down, scene and mask across, each NRMSE by band of the missing entries · SAM of all
    in degrees · MPSNR of all; smooth at its default s only."""
    rows = [r for r in rows if r["method"] != "smooth" or r["s"] == "1.5"]
    columns = list(dict.fromkeys((r["scene"], r["mask"]) for r in rows))
    methods = sorted({r["method"] for r in rows}, key=lambda m: average(rows, NRMSE, method=m))
    yield from head("method", *(f"{s}, {m.split('_')[0]}" for s, m in columns), "seconds")
    for method in methods:
        mine = {(r["scene"], r["mask"]): r for r in rows if r["method"] == method}
        figures = [several(mine[c], (NRMSE, 3), ("sam", 2), ("mpsnr", 2)) for c in columns]
        seconds = max(float(r["seconds"]) for r in mine.values())
        yield line(f"`{method}`", *figures, f"{seconds:.1f}")


NRMSE = "nrmse_missing"


def several(row, *columns):
    """Figures of one row beside one another: columns with their digits."""
    return " · ".join(f"{float(row[column]):.{digits}f}" for column, digits in columns)


def learned(rows):
    """Cases down, methods across: mean MPSNR over the seeds, with their standard deviation."""
    rows = [r for r in rows if r["settings"] == "{}"]
    run = {r["method"] for r in rows}
    methods = [m for m in ("hydiff-ei", "ei", "robust-ei", "smooth", "harmonic") if m in run]
    yield from head("scene, mask, scale", "σ_y", *(f"`{m}`" for m in methods))
    cases = dict.fromkeys((r["scene"], r["mask"], r["scale"], r["sigma_y"]) for r in rows)
    for case in sorted(cases, key=lambda c: (c[0] != "indian_pines_144", c[3], c)):
        scene, mask, scale, sigma = case
        picked = {"scene": scene, "mask": mask, "scale": scale, "sigma_y": sigma}
        yield line(
            f"{scene}, {mask}, {scale}", sigma, *(cell(rows, method=m, **picked) for m in methods)
        )


def readings(rows):
    """The readings of ε_0 on one scene."""
    yield from head("ε_0", "MPSNR of the result", "of the raw network")
    for reading in ("implied", "fresh", "none"):
        settings = "{}" if reading == "implied" else json.dumps({"eps0": reading})
        picked = {"method": "hydiff-ei", "scale": "minmax", "settings": settings}
        yield line(f"`{reading}`", cell(rows, **picked), cell(rows, "mpsnr_raw", **picked))


def presets(rows):
    """What single settings cost."""
    yield from head("settings changed", "MPSNR", "seconds on the GPU")
    for settings in dict.fromkeys(r["settings"] for r in rows):
        seconds = min(float(r["seconds"]) for r in rows if r["settings"] == settings)
        shown = ", ".join(f"{k} = {v}" for k, v in json.loads(settings).items()) or "none"
        yield line(shown, cell(rows, settings=settings), f"{seconds:.1f}")


def scenes(rows):
    """Noiseless: scenes down, methods across, each the mean over the published masks 1 to 4."""
    rows = unscaled(rows)
    methods = ("hydiff-ei", "smooth", "harmonic", "bandmean")
    yield from head("scene", *(f"`{m}`" for m in methods))
    rows = select(rows, sigma_y="0.0")
    for scene in dict.fromkeys(r["scene"] for r in rows):
        yield line(scene, *(f"{average(rows, scene=scene, method=m):.2f}" for m in methods))
    yield line("mean", *(f"{average(rows, method=m):.2f}" for m in methods))


def noisy(rows):
    """Methods across, noise down: means over scenes and masks, SAM in degrees · MPSNR."""
    rows = unscaled(rows)
    methods = ("hydiff-ei", "smooth", "harmonic", "bandmean")
    yield from head("σ_y", *(f"`{m}`" for m in methods), "scenes where `hydiff-ei` beats `smooth`")
    names = list(dict.fromkeys(r["scene"] for r in rows))
    for sigma in dict.fromkeys(r["sigma_y"] for r in rows):
        mine = select(rows, sigma_y=sigma)
        won = sum(
            average(mine, scene=s, method="hydiff-ei") > average(mine, scene=s, method="smooth")
            for s in names
        )
        figures = (
            f"{average(mine, 'sam', method=m):.2f} · {average(mine, method=m):.2f}" for m in methods
        )
        yield line(sigma, *figures, f"{won} of {len(names)}")


def unscaled(rows):
    """Without the masks that were once scaled to narrower scenes, whose gaps shrank with them."""
    return [r for r in rows if "scaled" not in r["mask"]]


def engines(rows):
    """Scenes across, ways down: mean MPSNR over the seeds."""
    scenes = list(dict.fromkeys(r["scene"] for r in rows))
    yield from head("engine, precision", *scenes, "mean", "seeds")
    for settings in sorted({r["settings"] for r in rows}, reverse=True):
        mine = select(rows, settings=settings)
        figures = [average(mine, scene=scene) for scene in scenes]
        seeds = [len(select(mine, scene=scene)) for scene in scenes]
        way = json.loads(settings)
        shown = [f"{f:.2f}" for f in (*figures, mean(figures))]
        count = "–".join(str(n) for n in sorted(set(seeds)))
        yield line(f"`{way['engine']}`, {way['precision']}", *shown, count)


def speed_engines(rows):
    yield from head("engine", "precision", "ms a step", "seconds a cube", "peak GiB")
    for r in select(rows, what="engine"):
        yield line(f"`{r['engine']}`", r["precision"], r["ms_per_step"], r["seconds_per_cube"],
                   r["peak_gib"])  # fmt: skip


def startup(rows):
    """Rows down: processes; a bare one first, which the others are compared with."""
    ends, names = {}, ("torch imported", "GPU ready", "step 1", "step 5")
    for r in rows:
        ends.setdefault(r["process"], {})[r["stage"]] = float(r["seconds"])
    least = max(ends["bare"].values())
    yield from head("process", *names, "seconds above the bare one")
    for process, own in ends.items():
        stages = [f"{own[name]:.1f}" if name in own else "" for name in names]
        yield line(process, *stages, f"{max(own.values()) - least:.1f}")


def smooth_on_gpu(rows):
    """Fills down, the devices in turn: seconds, milliseconds of the parts, and the differences."""
    parts = ("components", "projection", "remainder", "covariances", "kriging", "reconstruction")
    names = ("fill", "missing %", "device", "seconds", *parts, "to the CPU", "to the solution")
    yield from head(*names, "iterations")
    for r in rows:
        milliseconds = (f"{1e3 * float(r[part]):.0f}" if r[part] else "" for part in parts)
        size = " × ".join(r[side] for side in ("rows", "cols", "bands"))
        differences = (r[name] and f"{float(r[name]):.0e}" for name in ("difference", "to_the_end"))
        device = r["device"].replace("GPU", r["gpu"], 1)
        own = (f"{r['case']}, {size}", r["missing_percent"], device, f"{float(r['seconds']):.3f}")
        yield line(*own, *milliseconds, *differences, r["iterations"])


def granules(rows):
    """Fills of a whole granule down: the seconds of each phase."""
    phases = ("masks", "decision", "tiles", "writing")
    yield from head(
        "device (cores)", "options", "seconds", *phases, "CPU s", "GB in all", "MPSNR dB"
    )
    for r in rows:
        each = (f"{float(r[f'{name}_s']):.0f}" for name in phases)
        memory, mpsnr = float(r["together_mb"]) / 1e3, float(r["mpsnr_missing"])
        own = (f"{float(r['cpu_seconds']):.0f}", f"{memory:.1f}", f"{mpsnr:.2f}")
        device, seconds = f"{r['device']} ({r['cores']})", f"{float(r['seconds']):.0f}"
        yield line(device, f"`{r['options']}`, .{r['format']}", seconds, *each, *own)


def granules_on_gpus(rows):
    """GPUs down, simulated from one: workers share the tiles of a granule, nodes whole granules."""
    [r] = [r for r in rows if "NVIDIA" in r["device"]]
    apart = sum(float(r[f"{name}_s"]) for name in ("masks", "decision", "writing"))
    yield from head("GPUs", "s a granule, tiles shared", "h for 1,000")
    for count in (1, 2, 4, 8):
        alone = apart + float(r["tiles_s"]) / count
        yield line(str(count), f"{alone:.0f}", f"{1000 * float(r['seconds']) / count / 3600:.1f}")


def speed_beside(rows):
    yield from head(
        "fits side by side", "ms a step and cube", "seconds a cube", "throughput", "peak GiB"
    )
    mine = select(rows, what="side by side")
    for r in mine:
        gain = float(mine[0]["ms_per_step"]) / float(r["ms_per_step"])
        yield line(r["beside"], r["ms_per_step"], r["seconds_per_cube"], f"{gain:.2f} ×",
                   r["peak_gib"])  # fmt: skip


def cpu(rows):
    yield from head("channels", "threads", "variant", "seconds a step", "times faster")
    for r in rows:
        yield line(r["channels"], r["threads"], r["variant"], r["seconds_per_step"],
                   r["times_faster"])  # fmt: skip


GROWN = {
    "pixels": "pixels", "tiles": "pixels, by tiles", "bands": "bands", "missing": "share missing",
    "width": "gap width, px", "workers": "workers of `auto`",
}  # fmt: skip


def growth(rows):
    """What grows down: from the least to the most of it, and the exponent of a fitted power."""
    yield from head(
        "grows", "from – to", "CPU s", "exponent", "peak MB", "exponent", "MB / cube MB"
    )
    for axis, name in GROWN.items():
        mine = [r for r in rows if r["axis"] == axis]
        if not mine:
            continue  # not run yet
        at, seconds, mb, cube = (
            [float(r[c]) for r in mine] for c in ("value", "cpu_seconds", "mb", "cube_mb")
        )
        mb = [max(one, 1.0) for one in mb]  # the process needed no new memory
        ends = (f"{values[0]:.3g} – {values[-1]:.3g}" for values in (at, seconds, mb))
        span, time, memory = ends
        ratio = f"{mb[-1] / cube[-1]:.1f}"
        yield line(name, span, time, exponent(at, seconds), memory, exponent(at, mb), ratio)


def archives(rows):
    """Ways to fill many cubes down, per cube."""
    yield from head("way", "wall s (load)", "CPU s", "CPU s, longest path", "speed-up", "peak MB")
    names = {"alone": "a process for each", "one": "one process, one core"}
    for r in rows:
        name = names.get(r["run"], f"`--workers {r['workers']}`")
        wall = f"{r['wall']} ({r['load']})"
        yield line(name, wall, r["cpu_seconds"], r["path_cpu"], f"{r['speedup']} ×", r["mb"])


def exponent(x, y):
    """The slope of log y over log x, by least squares."""
    x, y = ([log(v) for v in values] for values in (x, y))
    return f"{linear_regression(x, y).slope:.2f}"


SATURATED = 0.1  # dB: a score that gains less by twice the updates has saturated
RATE = "0.001"  # learning rate of the curves that are compared
OFFLINE_SCORES = ("in_sample", "out_of_sample", "out_of_sample_gaps", "elsewhere")


def offline_curve(rows):
    """Crops down, updates across: MPSNR out of sample; then the ends of the curves, what the same
    tests give without training, and in words how far the score has saturated."""
    trained = sorted(select(rows, way="trained", weights="mean"), key=_size)
    curves = {}
    for r in trained:
        curves.setdefault(_curve(r), []).append(r)
    yield "![Score over updates for each number of crops, in and out of sample](../offline.png)\n"
    yield from _by_updates(curves)
    yield ""
    yield from _ends(curves, [r for r in rows if r["way"] != "trained"])
    yield ""
    yield from saturation(curves)


def _curve(row):
    """The name of the curve that a row is of."""
    parts = [f"{row['crops']} crops"]
    parts += [f"rate {row['lr']}"] * (row["lr"] != RATE) + ["norm image"] * (row["norm"] == "image")
    return ", ".join(parts)


def _by_updates(curves):
    reached = {int(r["updates"]) for curve in curves.values() for r in curve}
    marks = sorted(n for n in reached if str(n).rstrip("0") in ("1", "2", "5"))
    yield from head("out of sample, by updates", *(f"{n:,}" for n in marks))
    for name, curve in curves.items():
        at = {int(r["updates"]): f"{_unseen(r):.2f}" for r in curve}
        yield line(name, *(at.get(n, "–") for n in marks))


def _ends(curves, others):
    from hydiff.bench.published import PAPER

    yield from head("way", "images", "updates", "minutes", "in sample", "out of sample", "its gaps",
                    "other sensors", "by the last doubling", "paper")  # fmt: skip
    for name, curve in curves.items():
        last, paper = curve[-1], PAPER["offline"].get((0.0, f"offline {curve[-1]['crops']}"))
        shown = [f"{float(last[k]):.2f}" for k in OFFLINE_SCORES]
        minutes, gain = f"{float(last['seconds']) / 60:.1f}", doubling(curve)
        yield line(name, last["images"], f"{int(last['updates']):,}", minutes, *shown,
                   "–" if gain is None else f"{gain:+.2f}",
                   f"{paper[0]:.2f}" if paper else "–")  # fmt: skip
    for r in others:
        name = f"{_curve(r)}, {r['way']}" if r["crops"] else r["way"]
        shown = (f"{float(r[k]):.2f}" if r[k] else "–" for k in OFFLINE_SCORES)
        yield line(name, "–", "–", "–", *shown, "–", "–")


def _size(row):
    return int(row["crops"]), row["norm"], int(row["updates"])


def out_of_sample(curve, updates):
    """The score of a curve at so many updates, between its rows on a logarithmic scale."""
    known = np.log([int(r["updates"]) for r in curve])
    return float(np.interp(np.log(updates), known, [float(r["out_of_sample"]) for r in curve]))


def doubling(curve):
    """dB out of sample that the second half of the updates added; None: no row is so early."""
    last = int(curve[-1]["updates"])
    if int(curve[0]["updates"]) > last / 2:
        return None
    return out_of_sample(curve, last) - out_of_sample(curve, last / 2)


def saturation(curves):
    """In words: which curves still rise, and what more crops add at equal updates."""
    gains = {name: gain for name, c in curves.items() if (gain := doubling(c)) is not None}
    falling = [name for name, gain in gains.items() if gain < -SATURATED]
    ended = [name for name, gain in gains.items() if abs(gain) < SATURATED]
    rising = [name for name in gains if name not in falling + ended]
    for names, what in ((ended, "Saturated"), (rising, "Still rising"), (falling, "Falling")):
        yield f"{what}: {'; '.join(names) or 'none'}."
    yield f"(Saturated: the last doubling of updates changed the score by under {SATURATED} dB.)"
    for norm in dict.fromkeys(curve[0]["norm"] for curve in curves.values()):
        alike = {n: c for n, c in curves.items() if (c[0]["lr"], c[0]["norm"]) == (RATE, norm)}
        common = min((int(curve[-1]["updates"]) for curve in alike.values()), default=0)
        for fewer, more in pairwise(alike):
            gain = out_of_sample(alike[more], common) - out_of_sample(alike[fewer], common)
            yield f"From {fewer} to {more} at {common:,} updates: {gain:+.2f} dB."
    best = max((r for curve in curves.values() for r in curve), key=_unseen)
    yield (
        f"The best score out of sample is {_unseen(best):.2f} dB: {best['crops']} crops, rate "
        f"{best['lr']}, norm {best['norm']}, {int(best['updates']):,} updates."
    )


def _unseen(row):
    return float(row["out_of_sample"])


def preconditioner(rows):
    yield from head("mask", "s", "iterations with R (−Δ)^{−s} Rᵀ", "with L⁻¹ R (−Δ)^{2−s} Rᵀ L⁻¹")
    for r in rows:
        yield line(r["mask"], r["s"], r["plain"], r["ours"])


ALONE = "auto --no-prior"
AUTO_SETTINGS = {"auto": '{"budget": "normal"}', ALONE: '{"budget": "normal", "no_prior": true}'}
FEWEST_SCENES = 3  # fewest scenes for a line on the front page
SHOWN_IN_FRONT = (("0.0", "in all bands"), ("0.0", "differ by band"), ("0.1", "in all bands"))


def front(rows):
    """Gaps and measures down, methods across: missing entries, where all of them were run.

    rows: of `auto` on a CPU, with the prior and without; the others are of the table `best`.
    """
    others = records.read(BEST)
    own = ("auto", ALONE)
    methods, plain = (*own, "smooth", "hydiff-ei"), ("harmonic", "biharmonic")
    lines = []
    for sigma, gaps in SHOWN_IN_FRONT:
        mine = {m: _missing(rows if m in own else others, m, sigma) for m in (*methods, *plain)}
        cells = set.intersection(*(set(mine[m]) for m in methods))
        cells = {c for c in cells if (c[1] in BY_BAND) == (gaps == "differ by band")}
        if len({scene for scene, _ in cells}) >= FEWEST_SCENES:
            lines.append((sigma, gaps, mine, cells))
    columns = _judged_by([r for _, _, mine, cells in lines for m in methods
                          for r in _rows_of(mine[m], cells)])  # fmt: skip
    yield from head("gaps", "missing entries", *(f"`{m}`" for m in (*methods, *plain)))
    for sigma, gaps, mine, cells in lines:
        scenes = len({scene for scene, _ in cells})
        noise = "" if sigma == "0.0" else f", noise {sigma}"
        label = f"{gaps}{noise} ({scenes} scenes, {len(cells)} cells)"
        for column in columns:
            figures = (_by_scene(mine[m], cells, [column]) for m in (*methods, *plain))
            yield line(label, MEASURES[column][0], *figures)
            label = ""


INTERPOLATED = ("harmonic", "biharmonic", "smooth", "auto")


def by_mask(rows):
    """Masks down, methods across, no noise: figures of the missing entries, where `auto` was."""
    mine, masks = _of_masks(rows)
    columns = [("NRMSE", m) for m in INTERPOLATED] + [("dB", m) for m in ("smooth", "auto")]
    names = {"NRMSE": "missing_nrmse", "dB": "missing_mpsnr"}
    yield from head("mask", "scenes", *(f"{name}, `{m}`" for name, m in columns))
    for mask, cells in masks.items():
        figures = (_by_scene(mine[m], cells, [names[name]]) for name, m in columns)
        yield line(mask, str(len(cells)), *figures)


def every_mask(rows):
    """As `by_mask`, masks and measures down."""
    mine, masks = _of_masks(rows)
    yield from head("mask (scenes)", "missing entries", *(f"`{m}`" for m in INTERPOLATED))
    for mask, cells in masks.items():
        rows = [r for m in INTERPOLATED for r in _rows_of(mine[m], cells)]
        for column in _judged_by(rows):
            figures = (_by_scene(mine[m], cells, [column]) for m in INTERPOLATED)
            yield line(f"{mask} ({len(cells)})", MEASURES[column][0], *figures)


def _of_masks(rows):
    """The rows of each method without noise, and the cells of `auto` by mask."""
    mine = {m: _missing(rows, m, "0.0") for m in INTERPOLATED}
    masks = sorted({mask for _, mask in mine["auto"]})
    return mine, {mask: {c for c in mine["auto"] if c[1] == mask} for mask in masks}


MEASURES = {  # column → name, digits
    "missing_nrmse_median": ("median NRMSE by band", 3),
    "missing_poor_bands": ("share of bands above 0.9", 2),
    "missing_nrmse": ("mean NRMSE by band", 3),
    "missing_sam": ("SAM °", 2),
    "missing_derivative_rmse": ("derivative RMSE × 1000", 2),
    "missing_mpsnr": ("MPSNR dB", 2),
}
FACTORS = {"missing_derivative_rmse": 1000}


def _judged_by(rows):
    """Columns to show: medians where all rows have them, the mean over bands where some do not."""
    median = bool(rows) and all(r.get("missing_nrmse_median") for r in rows)
    lacking = ("missing_nrmse",) if median else ("missing_nrmse_median", "missing_poor_bands")
    return [c for c in MEASURES if c not in lacking]


def _rows_of(rows, cells):
    return [rows[c] for c in cells if c in rows]


def _missing(rows, method, sigma):
    """(scene, mask) → its row: defaults, or `auto` with known noise."""
    settings = AUTO_SETTINGS.get(method, "{}")
    picked = select(rows, method=method.split()[0], sigma_y=sigma, settings=settings)
    return {(r["scene"], r["mask"]): r for r in picked if r["missing_mpsnr"]}


def _by_scene(rows, cells, columns):
    """Means over scenes, each the mean of its masks; a dash where a cell was not run."""
    if not all(c in rows for c in cells):
        return "–"
    scenes = {scene for scene, _ in cells}
    figures = []
    for column in columns:
        each = (mean(float(rows[c][column]) for c in cells if c[0] == s) for s in scenes)
        shown = FACTORS.get(column, 1) * mean(each)
        figures.append(f"{shown:.{MEASURES[column][1]}f}")
    return " · ".join(figures)


def plumes(rows):
    """Gaps and methods down: what of an absorption comes back, by its depth."""
    rows = latest(rows, "plume")
    depths = list(dict.fromkeys(r["depth"] for r in rows))
    yield from head(
        "gaps",
        "method",
        *(f"{100 * float(d):g} % deep" for d in depths),
        "lowest cell",
        "80 % intervals cover",
        "RMSE, % of the range",
        "scenes",
    )
    for gaps, method in dict.fromkeys((r["gaps"], r["method"]) for r in rows):
        mine = select(rows, gaps=gaps, method=method)
        figures = [f"{average(mine, 'recovered', depth=d):.2f}" for d in depths]
        lowest = min(float(r["recovered"]) for r in mine)
        bars = [r for r in mine if r["covered_80"]]
        cover = f"{100 * average(bars, 'covered_80'):.0f} %" if bars else "–"
        scenes = len({r["scene"] for r in mine})
        bands = {"pixels": "all bands", "bands": "ten bands"}[gaps]
        yield line(bands, f"`{method}`", *figures, f"{lowest:.2f}", cover,
                   f"{100 * average(mine, 'rmse'):.2f}", str(scenes))  # fmt: skip


def landcover(rows):
    """Methods down: share of the filled pixels whose class is recognised."""
    rows = latest(rows, "landcover")
    yield from head(
        "spectra", "discriminant analysis, %", "nearest neighbours, %", "scenes · cells"
    )
    ways = [("the truth", rows, "_truth")]
    methods = dict.fromkeys(r["method"] for r in rows)
    ways += [(f"`{m}`", select(rows, method=m), "") for m in methods]
    for name, mine, which in ways:
        figures = (f"{100 * average(mine, f'{k}{which}'):.1f}" for k in ("lda", "knn"))
        cells = {(r["scene"], r["gaps"]) for r in mine}
        yield line(name, *figures, f"{len({s for s, _ in cells})} · {len(cells)}")


def latest(rows, part):
    """Of each cell the row that was made last."""
    cells = ("scene", "gaps", "depth", "position", "method")
    return list({tuple(r[k] for k in cells): r for r in select(rows, part=part)}.values())


def detectors(rows):
    yield from head("unit", "missing", "`harmonic`", "`smooth`, one scale", "`smooth`, one each")
    for r in rows:
        yield line(
            r["unit"], r["missing"], *(f"{float(r[k]):.3f}" for k in ("harmonic", "one", "each"))
        )


def benchmark(name):
    """The table of a suite of `hydiff bench`, with its notes."""
    from hydiff.bench import tables as bench_tables

    def lines(rows):
        table = bench_tables.build(name, SUITES[name], rows)
        yield from bench_tables.markdown(table).strip().splitlines()[2:]  # without the title

    return lines


def unseen(rows):
    """Kinds of cells down, but for gaps that depend on the value; with noise those of all bands."""
    columns = {"within_15_percent": "expected NRMSE within 15 %", "attainable": "attainable"}
    columns |= {"inside_bounds": "in its bounds", "inside_80": "inside 80 %"}
    yield from head("gaps", "cells", *columns.values())
    for row in rows:
        name = row["cells of"]
        noisy_part = name.startswith("σ_y") and "all bands" not in name
        if name not in ("brightest", "darkest", "saturated") and not noisy_part:
            shares = (f"{float(row[k]):.0f} %" for k in columns)
            yield line(row["cells of"], row["cells"], *shares)


def stress(rows, column="kind"):
    """Kinds of scenes, or masks, down: gain of `auto` over `smooth`, what is lost, and promises."""
    rows = [r for r in rows if r["auto"]]
    yield from head(
        *(column, "cells", "`auto` over `smooth`, dB", "`prior`", "5 % of cells below", "worst"),
        *("below −0.3 dB", "expected NRMSE within 15 %", "off by 1.5", "80 % intervals cover"),
    )
    for name in [*dict.fromkeys(r[column] for r in rows), *(["all"] if column == "kind" else [])]:
        mine = rows if name == "all" else select(rows, **{column: name})
        gain, prior = (
            np.array([float(r[method]) - float(r["smooth"]) for r in mine])
            for method in ("auto", "prior")
        )
        stated = [r for r in mine if r["expected"] and r["inside_80"]]
        off = np.abs([log(float(r["expected"]) / float(r["nrmse"])) for r in stated])
        means = (f"{gain.mean():+.2f}", f"{prior.mean():+.2f}")
        tail = (f"{np.quantile(gain, 0.05):+.2f}", f"{gain.min():+.2f}", str((gain < -0.3).sum()))
        shares = (np.mean(off < log(1.15)), np.mean(off > log(1.5)))
        inside = mean(float(r["inside_80"]) for r in stated)
        promised = (f"{100 * share:.0f} %" for share in (*shares, inside))
        yield line(name, str(len(mine)), *means, *tail, *promised)


def stress_masks(rows):
    yield from stress(sorted(rows, key=lambda r: r["mask"]), "mask")


def mixed_gaps(rows):
    """Gaps and kinds down: coverage pooled over scenes and seeds, and the worst scene's at 80 %."""
    shares = ("50", "80", "95")
    yield from head(
        "missing", "kind", "entries", *(f"inside {s} %" for s in shares), "worst scene, 80 %"
    )
    for gaps, kind in dict.fromkeys((r["gaps"], r["kind"]) for r in rows):
        mine = select(rows, gaps=gaps, kind=kind)
        pooled = [_by_entries(mine, f"inside_{share}") for share in shares]
        scenes = {r["scene"] for r in mine}
        worst = min(_by_entries(select(mine, scene=scene), "inside_80") for scene in scenes)
        count = sum(int(r["entries"]) for r in mine)
        yield line(gaps, kind, f"{count:,}", *(f"{100 * p:.1f} %" for p in (*pooled, worst)))


def sampled(rows):
    """Quantities down: the mean of the scenes, each method with the range and the cells of it."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    yield from head("of", *(head for m in methods for head in (f"`{m}`", "by scene", "cells")))
    for quantity in dict.fromkeys(r["quantity"] for r in rows):
        cells = []
        for method in methods:
            mine = select(rows, quantity=quantity, method=method)
            scenes = dict.fromkeys(r["scene"] for r in mine)
            middle = geometric_mean if quantity.startswith("variogram") else mean
            means = [middle(float(r["value"]) for r in select(mine, scene=s)) for s in scenes]
            covers = not quantity.startswith(("d2", "variogram", "cost"))
            figures = (middle(means), min(means), max(means))
            shown = [f"{100 * f:.0f} %" if covers else f"{f:.2f}" for f in figures]
            cells += [shown[0], f"{shown[1]} … {shown[2]}", str(len(mine))]
        yield line(quantity.replace("d2", "d²"), *cells)


def _by_entries(rows, column):
    """Mean of a column, every entry alike."""
    total = sum(int(r["entries"]) for r in rows)
    return sum(int(r["entries"]) * float(r[column]) for r in rows) / total


def kept_promises(rows):
    from hydiff.bench import promises

    yield from promises.markdown(rows).strip().splitlines()


def kept_promises_on_cpu(rows):
    """As `kept_promises`, of rows of `auto` on a CPU beside the single methods of `best` that have
    been run on the same cells."""
    single = [r for r in records.read(BEST) if r["method"] != "auto"]
    own = [r for r in rows if "no_prior" not in r["settings"]]
    for text in kept_promises([*own, *single]):
        if "not run" not in text:
            yield text.replace("| auto ", "| CPU, auto ")


ANCHORED = ("anchored", "smooth", "harmonic", "biharmonic")


def anchored_cases(rows):
    """By noise level: the column that counts, the rows, and the cases that `anchored` has."""
    for sigma in dict.fromkeys(r["sigma_y"] for r in rows):
        mine = select(rows, sigma_y=sigma)
        cases = dict.fromkeys((r["scene"], r["mask"]) for r in select(mine, method="anchored"))
        yield sigma, "mpsnr_missing" if sigma == "0.0" else "mpsnr", mine, list(cases)


def anchored(rows):
    """Cases down, methods across: MPSNR of the missing entries, with noise of all."""
    yield from head("scene, mask", "σ_y", *(f"`{m}`" for m in ANCHORED))
    for sigma, column, mine, cases in anchored_cases(rows):
        for scene, mask in cases:
            picked = {"scene": scene, "mask": mask}
            figures = [cell(mine, column, method=m, **picked) for m in ANCHORED]
            yield line(f"{scene}, {mask}", sigma, *figures)


def anchored_means(rows):
    """The same, means over the cases."""
    yield from head("σ_y", "cases", *(f"`{m}`" for m in ANCHORED))
    for sigma, column, mine, cases in anchored_cases(rows):
        rest = [r for r in mine if (r["scene"], r["mask"]) in cases]
        means = [f"{mean(figures):.2f}" if figures else "–" for figures in (
            [float(r[column]) for r in select(rest, method=m)] for m in ANCHORED
        )]  # fmt: skip
        yield line(sigma, str(len(cases)), *means)


def parts(rows):
    """Settings down, cases across: MPSNR of the missing entries, and seconds of all together."""
    cases = list(dict.fromkeys((r["scene"], r["mask"]) for r in rows))
    yield from head("changed", *(f"{s}, {m}" for s, m in cases), "mean", "seconds")
    for settings in dict.fromkeys(r["settings"] for r in rows):
        mine = select(rows, settings=settings)
        if {(r["scene"], r["mask"]) for r in mine} != set(cases):
            continue  # not finished
        shown = ", ".join(f"{k} = {v}" for k, v in json.loads(settings).items()) or "nothing"
        each = [cell(mine, "mpsnr_missing", scene=s, mask=m) for s, m in cases]
        seconds = sum(float(r["seconds"]) for r in mine)
        yield line(shown, *each, f"{average(mine, 'mpsnr_missing'):.2f}", f"{seconds:.0f}")


def explored(rows):
    """Variants down, run after run: the gain over `smooth`, mean and worst, and seconds a fit."""
    yield from head("run", "variant", "cases", "dB over `smooth`, mean", "worst", "best", "seconds")
    smooth = {
        (r["run"], r["scene"], r["mask"]): float(r["mpsnr_missing"])
        for r in select(rows, variant="smooth")
    }
    for run, variant in dict.fromkeys((r["run"], r["variant"]) for r in rows):
        mine = select(rows, run=run, variant=variant)
        gains = [float(r["mpsnr_missing"]) - smooth[run, r["scene"], r["mask"]] for r in mine]
        # the first fit of a process waits for kernels to be compiled: not the mean
        seconds = sorted(float(r["seconds"]) for r in mine if r["seconds"])
        if variant != "smooth":
            shown = (f"{g:+.2f}" for g in (mean(gains), min(gains), max(gains)))
            yield line(run, variant, str(len(mine)), *shown, f"{seconds[len(seconds) // 2]:.1f}")


def scene_runs(rows):
    """Runs of the large scene down: wall and CPU seconds, and memory, of all processes."""
    yield from head(
        "scene",
        "options",
        "tiles",
        "wall s (load)",
        "CPU s: driver, worker",
        "peak MB: driver, worker, sum",
    )
    for r in rows:
        if not r["run"].startswith(("tile", "whole")):
            size = f"{r['rows']} × {r['cols']} × {r['bands']}, {r['missing_percent']} % missing"
            wall = f"{float(r['seconds']):.0f} ({r['load']})"
            used = f"{float(r['driver_cpu']):.0f}, {float(r['worker_cpu']):.0f}"
            tiles = f"{r['tiles']} of {r['tile_rows']} × {r['tile_cols']}"
            peaks = ", ".join(r[name] or "–" for name in ("driver_mb", "worker_mb", "together_mb"))
            yield line(size, f"`{r['options']}`", tiles, wall, used, peaks)


def lazy_scene(rows):
    """A lazy array and the command line down: time, memory, and whether their bytes differ."""
    yield from head("fill", "scene", "options", "CPU s", "peak MB", "entries that differ")
    names = {"xarray": "`.hydiff.fill`, to Zarr", "cli": "`hydiff fill`"}
    for r in rows:
        size = f"{r['rows']} × {r['cols']} × {r['bands']}"
        options = f"`{r['method']}`, memory {r['memory']}, tile {r['tile']}"
        used = f"{float(r['cpu_seconds']):.0f}"
        yield line(names[r["run"]], size, options, used, r["peak_mb"], r["differ"])


def scene_tiles(rows):
    """Tile sizes down: score, and the error near borders of tiles, cut and not cut there."""
    yield from head("tile", "MPSNR missing", "border", "the same places, one tile", "quotient")
    for r in rows:
        size = f"{r['tile_rows']} × {r['tile_cols']}"
        if r["run"] == "whole":
            yield line(f"{size}, one tile", r["mpsnr_missing"], "–", "–", "–")
        elif r["run"].startswith("tile"):
            quotient = float(r["border_ratio"]) / float(r["border_whole"])
            ratios = (r["border_ratio"], r["border_whole"], f"{quotient:.2f}")
            yield line(f"{size} (`--tile {r['run'][4:]}`)", r["mpsnr_missing"], *ratios)


def default_fill(rows):
    """Runs of the default fill down, the latest first."""
    yield from head(
        "version", "budget", "device", "workers (of cores)", "wall s (load)", "CPU s", "peak MB"
    )
    for r in reversed(rows):
        cpu = f"{float(r['cpu']):.1f} + {float(r['children_cpu']):.1f}"
        peaks = r["mb"] if float(r["children_cpu"]) < 1 else f"{r['mb']}, a child {r['child_mb']}"
        wall = f"{float(r['seconds']):.1f} ({r['load']})"
        at_once = f"{r['workers']} ({r['cores']})"
        yield line(r["version"], f"`{r['budget']}`", r["device"], at_once, wall, cpu, peaks)


def covariances(rows):
    """Where covariances come from down, sizes of tiles across: MPSNR of the missing entries."""
    names = {"tile": "each tile", "scene": "the scene", "power": "none fitted (`--set s=1.5`)"}
    sizes = sorted(dict.fromkeys(r["tile"] for r in rows), key=int)
    yield from head("covariances of", *(f"`--tile {size}`" for size in sizes), "range", "CPU s")
    for name in dict.fromkeys(r["covariances"] for r in rows):
        mine = {r["tile"]: r for r in rows if r["covariances"] == name}
        scores = [float(r["mpsnr_missing"]) for r in mine.values()]
        spent = sum(float(r["cpu_seconds"]) for r in mine.values())
        shown = (mine[size]["mpsnr_missing"] if size in mine else "–" for size in sizes)
        yield line(names[name], *shown, f"{max(scores) - min(scores):.3f}", f"{spent:.0f}")


def priors(rows):
    """What tiles start from down: time (CPU seconds without a GPU), score, and the borders."""
    yield from head("device", "start", "steps of a tile", "s", "MPSNR missing", "border", "step")
    for r in rows:
        start = r["start"] if r["updates"] == "0" else f"{r['updates']} updates on the scene"
        seconds = "cpu_seconds" if r["device"] == "x86_64" else "seconds"
        keys = ("steps", seconds, "mpsnr_missing", "border_ratio", "step_ratio")
        yield line(r["device"], start, *(r[key] for key in keys))


KINDS = {  # kinds of development scenes
    "spaceborne": ("enmap_potsdam_64x96", "paris_hyperion_72"),
    "airborne": ("indian_pines", "wdc10_144", "abu_airport-1_96", "abu_airport-4_96",
                 "abu_urban-1_96", "jasper_96", "chikusei_36", "chikusei_36_img3",
                 "chikusei_36_img4"),
    "laboratory": ("cave_feathers_144", "cave_toys_144"),
}  # fmt: skip


OURS = (
    "linear",
    "idw",
    "harmonic",
    "tension",
    "smooth",
    "auto",
)  # our methods in the table of the tools that people use


def people(rows):
    """Fillers down: means over the cells, and what of ours is better and faster than each."""
    cells = {(r["scene"], r["mask"]) for r in rows}
    found = {(r["method"], r["scene"], r["mask"]): r for r in rows}
    yield from head("filler", "version", "MPSNR dB", "SAM °", "left, %", "CPU seconds",
                    "dB of `auto` above it",
                    "better and faster: gain, times as fast, in cells")  # fmt: skip
    for name in dict.fromkeys(r["method"] for r in rows):
        mine = select(rows, method=name)
        figures = [f"{average(mine, k):.{d}f}" for k, d in FIGURES_OF_PEOPLE]
        ahead = mean(_gain(found["auto", *c], found[name, *c]) for c in cells)
        shown = name if name not in OURS else f"`{name}`"
        beaten = "" if name in OURS else _beaten(found, cells, name)
        yield line(shown, mine[0]["version"], *figures, f"{ahead:+.2f}", beaten)


FIGURES_OF_PEOPLE = (("mpsnr", 2), ("sam", 2), ("left", 1), ("cpu_seconds", 3))


def _gain(one, other):
    return float(one["mpsnr"]) - float(other["mpsnr"])


def _beaten(found, cells, name):
    """The best of ours that is on average both better and faster than a filler."""
    ways = []
    for ours in OURS[:-1]:
        pairs = [(found[ours, *c], found[name, *c]) for c in cells]
        gains = [_gain(a, b) for a, b in pairs]
        times = [float(b["cpu_seconds"]) / float(a["cpu_seconds"]) for a, b in pairs]
        wins = sum(gain > 0 and fast > 1 for gain, fast in zip(gains, times, strict=True))
        if mean(gains) > 0 and mean(times) > 1:
            shown = f"`{ours}` {mean(gains):+.2f} dB, {geometric_mean(times):.1f} ×, "
            ways.append((wins, mean(gains), f"{shown}{wins} of {len(cells)}"))
    return max(ways)[2] if ways else "none"


def prior_kinds(rows):
    """Kinds of scenes and noise down: the network's gain over `smooth`, cell by cell, of rows by
    today's rules and masks that all bands share."""
    rows = [r for r in rows if r["method"] in ("prior", "smooth") and r["mask"] not in BY_BAND]
    rows = [r for r in rows if r["settings_hash"] == settings_hash(cell_of(r))]
    yield from head("scenes", "σ_y", *GAINS)
    both = {m: {(r["scene"], r["mask"], r["sigma_y"]): r for r in rows if r["method"] == m}
            for m in ("prior", "smooth")}  # fmt: skip
    cells = [c for c in both["prior"] if c in both["smooth"]]
    for (kind, scenes), sigma in product(KINDS.items(), dict.fromkeys(c[2] for c in cells)):
        column = "missing_mpsnr" if float(sigma) == 0 else "all_mpsnr"
        gains = {
            c[:2]: float(both["prior"][c][column]) - float(both["smooth"][c][column])
            for c in cells
            if c[0] in scenes and c[2] == sigma
        }
        if gains:
            yield line(kind, sigma, *gained(gains))


GAINS = ("scenes · cells", "dB over `smooth`, 95 % interval", "worst cell", "RMSE, %")


def gained(gains):
    """Gains in dB by (scene, mask), as `GAINS` lists them: a scene counts by its mean, and patches
    that overlap are one scene."""
    here = dict.fromkeys(unit_of(scene) for scene, _ in gains)
    each = [np.array([g for c, g in gains.items() if unit_of(c[0]) == u]) for u in here]
    gain = mean(float(own.mean()) for own in each)
    low, high = statistics.bootstrap(each, np.random.default_rng(0))
    shown = f"{gain:+.2f} ({low:+.2f} … {high:+.2f})" if len(each) > 2 else f"{gain:+.2f}"
    worst, less = min(gains.values()), 100 * (10 ** (-gain / 20) - 1)
    return f"{len(here)} · {len(gains)}", shown, f"{worst:+.2f}", f"{less:+.1f}"


def with_gpu(rows):
    """As `without_gpu`, of rows by today's rules on an H200.

    With noise the network is not tuned, so the rows of a kind of scenes would be those of a CPU.
    """
    return without_gpu(_by_h200(rows), kinds_with_noise=("all",))


def _by_h200(rows):
    own = [r for r in select(rows, method="auto") if "H200" in r["device"]]
    return [r for r in own if r["settings_hash"] == settings_hash(cell_of(r))]


def tuning(rows):
    """Noise and fills down: gains over `smooth` on places held back from the prior's training."""
    yield from head("σ_y", "fill", "cells", "dB in the gaps", "worst", "dB of all entries")
    for sigma, fill in dict.fromkeys((r["sigma_y"], r["fill"]) for r in rows):
        own = select(rows, sigma_y=sigma, fill=fill)
        missing, every = ([float(r[k]) for r in own] for k in ("missing", "all"))
        if fill != "smooth":
            means = f"{mean(missing):+.2f}", f"{min(missing):+.2f}", f"{mean(every):+.2f}"
            yield line(sigma, fill, str(len(own)), *means)


def prior_noise(rows):
    """Variance down: what the network gains over kriging, components of noisy cubes."""
    columns = ("measured pixels, dB", "worst", "gaps, dB", "worst")
    yield from head("variance over that of mere noise", "components", *columns)
    edges = (0, 1, 1.2, 2, 5, np.inf)
    for low, high in pairwise(edges):
        own = [r for r in rows if low <= float(r["variance"]) < high]
        each = [[float(r[k]) for r in own] for k in ("measured", "gaps")]
        figures = (f"{value:+.2f}" for gains in each for value in (mean(gains), min(gains)))
        yield line(
            f"{low:g} – {high:g}" if high < np.inf else f"over {low:g}", str(len(own)), *figures
        )


def without_gpu(rows, kinds_with_noise=("all", *KINDS)):
    """Budgets, noise and kinds of scenes down: what `auto` gains over `smooth` on a CPU."""
    yield from head("budget", "σ_y", "scenes", *GAINS)
    for budget, sigma, gains in gains_of_auto(rows):
        for kind, scenes in {"all": EVERY_SCENE, **KINDS}.items():
            own = {c: g for c, g in gains.items() if c[0] in scenes}
            if own and (sigma == "0.0" or kind in kinds_with_noise):
                yield line(f"`{budget}`", sigma, kind, *gained(own))


EVERY_SCENE = sum(KINDS.values(), ())


def gains_of_auto(rows):
    """Each budget and noise, and what `auto` gains over `smooth` there by scene and mask."""
    plain = select(records.read(BEST), method="smooth")
    smooth = {(r["scene"], r["mask"], r["sigma_y"]): r for r in plain}
    levels = dict.fromkeys(r["sigma_y"] for r in rows)
    for budget, sigma in product(("normal", "fast", "best"), levels):
        column = "missing_mpsnr" if sigma == "0.0" else "all_mpsnr"
        how = {"settings": json.dumps({"budget": budget}), "sigma_y": sigma}
        yield (
            budget,
            sigma,
            {
                (r["scene"], r["mask"]): float(r[column]) - float(smooth[cell][column])
                for r in select(rows, method="auto", **how)
                if (cell := (r["scene"], r["mask"], sigma)) in smooth and r["mask"] not in BY_BAND
            },
        )


def both_devices(rows):
    """Devices, budgets and noise down: what `auto` gains over `smooth` on all scenes."""
    on_gpu = _by_h200(records.read(BEST))
    yield from head("device", "budget", "noise σ_y", *GAINS)
    for device, own in (("CPU", rows), ("H200", on_gpu)):
        for budget, sigma, gains in sorted(gains_of_auto(own), key=lambda g: g[1]):
            here = {c: g for c, g in gains.items() if c[0] in EVERY_SCENE}
            if here:
                noise = {"0.0": "none", "band": "differs by band"}.get(sigma, sigma)
                yield line(device, f"`{budget}`", noise, *gained(here))


def prior_parts(rows):
    """Recipes of one pass down: their mean gain over `smooth` by kind of scenes."""
    kinds = dict.fromkeys(r["scenes"] for r in rows)
    names = ("size", "components", "planes", "symmetries", "gate")
    yield from head("network", *names[1:-1], "gate, px", *(f"dB, {kind}" for kind in kinds))
    for how in dict.fromkeys(tuple(r[k] for k in names) for r in rows):
        own = [r for r in rows if tuple(r[k] for k in names) == how]
        yield line(*how, *(f"{average(select(own, scenes=kind), 'gain'):+.3f}" for kind in kinds))


def prior_bands(rows):
    """Kinds of scenes and gaps down: means over crops."""
    gains = {"prior": "one pass, dB", "single": "`auto`, single",
             "without": "`auto --no-prior`", "auto": "`auto`"}  # fmt: skip
    inside = ("within 80 %, single", "within 80 %")
    yield from head("scenes", "gaps", "crops", "too few", "`smooth`, MPSNR", *gains.values(),
                    "worst", *inside, "CPU s, `--no-prior`", "CPU s")  # fmt: skip
    for kind, gaps in dict.fromkeys((r["scenes"], r["gaps"]) for r in rows):
        own = select(rows, scenes=kind, gaps=gaps)
        shown = [f"{average(own, key):+.2f}" for key in gains]
        worst = min(float(r["auto"]) for r in own)
        inside = (f"{100 * average(own, key):.0f}" for key in ("covered_single", "covered"))
        seconds = (f"{average(own, key):.1f}" for key in ("seconds_without", "seconds"))
        yield line(kind, gaps, str(len(own)), f"{100 * average(own, 'poor'):.0f} %",
                   f"{average(own, 'smooth'):.2f}", *shown, f"{worst:+.2f}",
                   *inside, *seconds)  # fmt: skip


def prior_ablation(rows):
    """Variants of the training down, kinds of scenes across: gain over `smooth`, and the worst."""
    kinds = list(dict.fromkeys(r["scenes"] for r in rows))
    about = ("variant", "images", "width", "steps")
    yield from head("trained on", *about[1:], "seconds", *(f"dB, {kind} (worst)" for kind in kinds))
    for how in dict.fromkeys(tuple(r[k] for k in about) for r in rows):
        own = {r["scenes"]: r for r in rows if tuple(r[k] for k in about) == how}
        found = (own.get(kind) for kind in kinds)
        shown = (f"{float(r['gain']):+.2f} ({float(r['worst']):+.2f})" if r else "–" for r in found)
        yield line(*how, next(iter(own.values()))["seconds"], *shown)


def tile_sizes(rows):
    """Sizes of tiles down: mean and scatter of the seeds, and how tiles show at their borders."""
    yield from head(
        "tile", "tiles", "seeds", "MPSNR missing", "border", "the same places", "quotient"
    )
    for size in dict.fromkeys(r["tile"] for r in rows):
        mine = select(rows, tile=size)
        border, same = (average(mine, column) for column in ("border_ratio", "same_places"))
        score = average(mine, "mpsnr_missing")
        apart = stdev(float(r["mpsnr_missing"]) for r in mine)
        shown = f"{score:.3f} ± {apart:.3f}", f"{border:.3f}", f"{same:.3f}", f"{border / same:.2f}"
        yield line(f"`--tile {size}`", mine[0]["tiles"], str(len(mine)), *shown)


def network_share(rows):
    """How much of the network to blend in: a fixed share, or the rule that was chosen."""
    yield from head("share of the network", "dB over `smooth`", "regret dB, upper bound")
    for r in rows:
        if r["way"] == "as it is" or r["way"].startswith("network"):
            name = r["way"].removeprefix("network ").replace("as it is", "as decided")
            regret = f"{float(r['regret_db']):.2f}, {float(r['regret_bound_db']):.2f}"
            yield line(name, f"{float(r['gain_db']):.2f}", regret)


def as_it_is(rows):
    """Every column, under its name."""
    rows = list(rows)
    yield from head(*(key.replace("_", " ") for key in rows[0]))
    for row in rows:
        yield line(*row.values())


def ratios(rows):
    """Commands down: their time over that of a reference computation."""
    yield from head("what", "reference computation", "ratio")
    for r in rows:
        yield line(r["what"], r["yardstick"], r["ratio"])


def response_times(rows):
    """Layouts down: time from a key press to the picture, its parts, and what was sent."""
    yield from head(
        "layout",
        "shown",
        "s, median (range)",
        "server, sending, painting s",
        "CPU s",
        "MB",
        "load (cores)",
    )
    for r in rows:
        span = f"{r['median_s']} ({r['least_s']} … {r['most_s']})"
        parts = ", ".join(r[k] for k in ("server_s", "sending_s", "painting_s"))
        load = f"{r['load_average']} ({r['cores']})"
        yield line(r["layout"], r["shown"], span, parts, r["cpu_s"], r["megabytes"], load)


def foreseen(rows):
    """Kinds of cells down: expected scores beside the true ones, and the coverage of intervals."""
    yield from head("cells of", "cells", "expected NRMSE within 15 %", "attainable", "scatter",
                    "expected / true NRMSE", "in its bounds", "50 %", "80 %", "95 %",
                    "80 %: scenes", "80 %: four cells of five", "worst tenth: distance, roughness",
                    "repeated", "interval score")  # fmt: skip
    for r in rows:
        whole = {k: f"{float(v):.0f}" for k, v in r.items() if k not in ("cells of", "cells") and v}
        yield line(
            r["cells of"],
            r["cells"],
            f"{whole['within_15_percent']} ({whole['within_from']} … {whole['within_to']})",
            whole["attainable"],
            r["log_scatter"],
            f"{r['lowest']} … {r['highest']}",
            whole["inside_bounds"],
            whole["inside_50"],
            f"{whole['inside_80']} ({whole['inside_80_from']} … {whole['inside_80_to']})",
            whole["inside_95"],
            f"{whole['scenes_80_lowest']} … {whole['scenes_80_highest']}",
            f"{whole['inside_80_low']} … {whole['inside_80_high']}",
            f"{whole['worst_tenth_by_distance']}, {whole['worst_tenth_by_texture']}",
            whole.get("repeated_inside_80", "–"),
            f"{r['interval_score_ratio']}, {r['over_expected_sigma']}",
        )


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


def opening(rows):
    """Kinds of gaps and tools down: the scores behind the picture of the README."""
    yield from head(
        "gaps", "entries", "tool", "NRMSE", "SAM °", "derivative RMSE × 1000", "MPSNR dB"
    )
    for row in rows:
        figures = (f"{float(row['nrmse']):.3f}", f"{float(row['sam']):.2f}")
        figures += (f"{1000 * float(row['derivative_rmse']):.2f}", f"{float(row['mpsnr']):.2f}")
        tool = f"{row['tool']} (`{row['method']}`)"
        yield line(row["gaps"], f"{int(row['entries']):,}", tool, *figures)


def forecasts(rows):
    """Fills down: real seconds and memory, and what was expected of them before."""
    ways = ("first", "later")
    yield from head("fill", "s", "first", "later", "MB", "first", "later")
    for row in rows:
        seconds = (row["seconds"], *(_beside(row, way) for way in ways))
        memory = (row["memory_mb"], *(row[f"{way}_mb"] for way in ways))
        yield line(row["fill"], *seconds, *memory)
    within = (sum(1 / 1.5 <= _ratio(row, way) <= 1.5 for row in rows) for way in ways)
    counts = (f"{count} of {len(rows)}" for count in within)
    yield line("within a factor 1.5", "", *counts, "", "", "")


def _ratio(row, way):
    return float(row[way]) / float(row["seconds"])


def _beside(row, way):
    return f"{row[way]} (× {_ratio(row, way):.2f})"


def line(*cells):
    return "| " + " | ".join(cells) + " |"


def head(*names):
    """The head of a table, and the rule below it."""
    yield line(*names)
    yield "|---" * len(names) + "|"


def paired(rows, one, other):
    """MPSNR of one row less that of another on the same cells: mean and range over the scenes."""
    place = ("scene", "mask", "sigma_y", "seed")
    values = [{tuple(r[k] for k in place): float(r["all_mpsnr"]) for r in p} for p in (one, other)]
    scenes = {}
    for key in values[0].keys() & values[1].keys():
        scenes.setdefault(key[0], []).append(values[0][key] - values[1][key])
    means = sorted(mean(v) for v in scenes.values())
    if not means:
        return "–"
    count = sum(len(v) for v in scenes.values())
    return f"{mean(means):+.1f} ({means[0]:+.1f} … {means[-1]:+.1f}), {len(means)} · {count}"


def diffusion_gain(rows):
    """Noise down: HyDiff-EI less its parts, ours on the same cells, and the paper's."""
    from hydiff.bench.published import PAPER

    others = ("ei", "hyper-ei", "robust-ei")
    yield from head(
        "σ_y", *(f"less `{m}`" for m in others), "paper: less EI", "paper: less Robust-EI"
    )
    figures = PAPER["ei-ablation"]
    for sigma in ("0.0", "0.1", "0.2", "0.3"):
        mine = select(rows, sigma_y=sigma)
        ours = (paired(rows, *(select(mine, method=m) for m in ("hydiff-ei", o))) for o in others)
        theirs = (
            f"{figures[float(sigma), 'hydiff-ei'][0] - figures[float(sigma), o][0]:+.1f}"
            for o in ("ei", "robust-ei")
        )
        yield line(sigma, *ours, *theirs)


def changed(rows):
    """Settings down, noise across: MPSNR less that of the default on the same cells."""
    levels = sorted({r["sigma_y"] for r in rows})
    yield from head("method", "settings changed", *(f"σ_y = {level}" for level in levels))
    for method in dict.fromkeys(r["method"] for r in rows):
        mine = select(rows, method=method)
        for settings in sorted({r["settings"] for r in mine} - {"{}"}):
            shown = ", ".join(f"`{k}={v}`" for k, v in json.loads(settings).items())
            parts = (select(mine, sigma_y=level) for level in levels)
            figures = (
                paired(rows, *(select(part, settings=which) for which in (settings, "{}")))
                for part in parts
            )
            yield line(f"`{method}`", shown, *figures)


def seven_or_one(rows):
    """Families down: rotation less the family on the same cells, by one and by seven a step."""
    yield from head("family", "rotation less it, one a step", "seven a step", "seven less one")

    def of(name, n):
        wanted = {"transform": name} | ({"n_transforms": n} if n > 1 else {})
        return [r for r in rows if json.loads(r["settings"]) == wanted]

    for name in dict.fromkeys(json.loads(r["settings"])["transform"] for r in rows):
        less = (paired(rows, of("rotation", n), of(name, n)) for n in (1, 7))
        yield line(name, *less, paired(rows, of(name, 7), of(name, 1)))


TABLES = {
    ("benchmarks/results/classical.csv", ""): classical,
    ("benchmarks/results/opening.csv", ""): opening,
    ("benchmarks/results/forecast.csv", ""): forecasts,
    ("benchmarks/results/learned_required.csv", ""): learned,
    ("benchmarks/results/learned_required.csv", "readings"): readings,
    ("benchmarks/results/learned_product.csv", ""): learned,
    ("benchmarks/results/learned_presets.csv", ""): presets,
    ("benchmarks/results/learned_table.csv", ""): scenes,
    ("benchmarks/results/learned_table.csv", "noisy"): noisy,
    ("benchmarks/results/learned_engines.csv", ""): engines,
    ("benchmarks/results/speed.csv", "engines"): speed_engines,
    ("benchmarks/results/startup.csv", ""): startup,
    ("benchmarks/results/granule.csv", ""): granules,
    ("benchmarks/results/granule.csv", "gpus"): granules_on_gpus,
    ("benchmarks/results/speed.csv", "beside"): speed_beside,
    ("benchmarks/results/cpu.csv", ""): cpu,
    ("benchmarks/results/growth.csv", ""): growth,
    ("benchmarks/results/offline_curve.csv", ""): offline_curve,
    ("benchmarks/results/preconditioner.csv", ""): preconditioner,
    ("benchmarks/results/mixed_gaps.csv", ""): mixed_gaps,
    ("benchmarks/results/samples.csv", ""): sampled,
    ("benchmarks/results/detectors.csv", ""): detectors,
    ("benchmarks/results/plumes.csv", ""): plumes,
    ("benchmarks/results/plumes.csv", "landcover"): landcover,
    **{(f"benchmarks/results/bench/{name}.csv", ""): benchmark(name) for name in SUITES},
    **{
        (f"benchmarks/results/bench/{name}.csv", "paper"): beside_paper.beside_paper(name)
        for name in beside_paper.TABLES
    },
    ("benchmarks/results/published_dds2m.csv", ""): beside_paper.published_code,
    ("benchmarks/results/bench/noiseless.csv", "dds2m"): beside_paper.noise_of_dds2m,
    ("benchmarks/results/bench/noisy.csv", "left"): left.left,
    ("benchmarks/results/bench/ei-ablation.csv", "gain"): diffusion_gain,
    ("benchmarks/results/bench/readings.csv", "changed"): changed,
    ("benchmarks/results/bench/transforms.csv", "seven"): seven_or_one,
    ("benchmarks/results/bench/best.csv", "promises"): kept_promises,
    ("benchmarks/results/cpu/best.csv", "front"): front,
    ("benchmarks/results/cpu/best.csv", "promises"): kept_promises_on_cpu,
    ("benchmarks/results/bench/best.csv", "masks"): by_mask,
    ("benchmarks/results/bench/best.csv", "each"): every_mask,
    ("benchmarks/results/bench/best.csv", "prior"): prior_kinds,
    ("benchmarks/results/anchored_scenes.csv", ""): anchored,
    ("benchmarks/results/anchored_scenes.csv", "means"): anchored_means,
    ("benchmarks/results/anchored_parts.csv", ""): parts,
    ("benchmarks/results/anchored_gpu.csv", ""): explored,
    ("benchmarks/results/scene.csv", ""): scene_runs,
    ("benchmarks/results/scene.csv", "tiles"): scene_tiles,
    ("benchmarks/results/scene_samples.csv", ""): scene_runs,
    ("benchmarks/results/lazy_scene.csv", ""): lazy_scene,
    ("benchmarks/results/covariances.csv", ""): covariances,
    ("benchmarks/results/prior.csv", ""): priors,
    ("benchmarks/results/prior_training.csv", ""): as_it_is,
    ("benchmarks/results/prior_parts.csv", ""): prior_parts,
    ("benchmarks/results/prior_ablation.csv", ""): prior_ablation,
    ("benchmarks/results/prior_bands.csv", ""): prior_bands,
    ("benchmarks/results/prior_shares.csv", ""): as_it_is,
    ("benchmarks/results/anchored_memory.csv", ""): as_it_is,
    ("benchmarks/results/inventions.csv", ""): as_it_is,
    ("benchmarks/results/stress.csv", ""): stress,
    ("benchmarks/results/stress.csv", "masks"): stress_masks,
    ("benchmarks/results/tuned.csv", ""): as_it_is,
    ("benchmarks/results/tuning.csv", ""): tuning,
    ("benchmarks/results/prior_noise.csv", ""): prior_noise,
    ("benchmarks/results/bench/best.csv", "gpu"): with_gpu,
    ("benchmarks/results/cpu/best.csv", "kinds"): without_gpu,
    ("benchmarks/results/cpu/best.csv", "devices"): both_devices,
    ("benchmarks/results/scene_gpu_time.csv", ""): as_it_is,
    ("benchmarks/results/scene_gpu_sizes.csv", ""): tile_sizes,
    ("benchmarks/results/smooth_gpu.csv", ""): smooth_on_gpu,
    ("benchmarks/results/foresight.csv", ""): as_it_is,
    ("benchmarks/results/foresight.csv", "network"): network_share,
    ("benchmarks/results/foresight_unseen.csv", ""): foreseen,
    ("benchmarks/results/foresight_unseen.csv", "short"): unseen,
    ("benchmarks/results/usual.csv", ""): as_it_is,
    ("benchmarks/results/missingness.csv", ""): as_it_is,
    ("benchmarks/results/noise_doubts.csv", ""): as_it_is,
    ("benchmarks/results/auto_time.csv", ""): default_fill,
    ("benchmarks/results/archive.csv", ""): archives,
    ("benchmarks/results/people.csv", ""): people,
    ("benchmarks/results/perf.csv", ""): ratios,
    ("benchmarks/results/fuzz.csv", ""): as_it_is,
    ("benchmarks/results/torture.csv", ""): as_it_is,
    ("benchmarks/results/viewers.csv", ""): as_it_is,
    ("benchmarks/results/reference_narrow.csv", ""): as_it_is,
    ("benchmarks/results/reference_implanted.csv", ""): as_it_is,
    ("benchmarks/results/prior_context.csv", ""): as_it_is,
    ("benchmarks/results/prior_wide.csv", ""): as_it_is,
    **reference_tables.TABLES,
    ("benchmarks/results/viewer.csv", ""): response_times,
    ("benchmarks/results/viewer_whole.csv", ""): as_it_is,
}


def rendered(text):
    """The text of a document with every marked table made again."""

    def table(match):
        if match["source"].startswith(TO_COME) and not (ROOT / match["source"]).exists():
            return match[1] + "Not run yet.\n" + match[4]
        with (ROOT / match["source"]).open(newline="") as file:
            lines = TABLES[match["source"], match["name"]](list(csv.DictReader(file)))
            return match[1] + "\n".join(lines) + "\n" + match[4]

    return MARKS.sub(table, text)


def table_page(title, text, source, kind=""):
    """A page of docs/tables."""
    if "/bench/" in source and not kind:
        text += " [Columns](index.md#columns)."
    mark = f"<!-- table: {source}{f' {kind}' if kind else ''} -->"
    return rendered(f"# {title}\n\n{text} Data: `{source}`.\n\n{mark}\n<!-- /table -->\n")


def index_page():
    """The contents of docs/tables."""
    parts = ["# Tables", "Generated from `benchmarks/results` by `python benchmarks/tables.py`."]
    parts.append(COLUMNS.rstrip())
    for caption, pages in GROUPS.items():
        entries = "\n".join(pages)
        parts += [f"## {caption}", f"```{{toctree}}\n:maxdepth: 1\n\n{entries}\n```"]
    return "\n\n".join(parts) + "\n"


def written():
    """Every document that has tables, and the text it should have."""
    yield FOLDER / "index.md", index_page()
    for pages in GROUPS.values():
        yield from ((FOLDER / f"{name}.md", table_page(**page)) for name, page in pages.items())
    yield from ((path, rendered(path.read_text())) for path in DOCUMENTS)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in written():
        path.write_text(text)
