"""The tables and figures of the benchmark, and the statistics and scores in them."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import DATA
from hydiff import bench
from hydiff.bench import (
    cell_rows,
    figures,
    panels,
    promises,
    reliability,
    scenes,
    statistics,
    suites,
    tables,
    tuning,
    uses,
)
from hydiff.bench.cells import Cell
from hydiff.bench.published import PAPER
from hydiff.learn.weights import network_of
from hydiff.methods import STAND_IN

QUICK_CHOICE = bench.choice_of({}, quick=True)


# Statistics


def test_overlapping_patches_are_one_scene():
    rows = [
        {"scene": s, "mask": "m", "seed": "0", "x": v}
        for s, v in (("chikusei_36", "1"), ("chikusei_36_img3", "3"), ("other", "10"))
    ]
    found = tables.scores(rows, "x")
    assert set(found) == {"chikusei", "other"}
    assert statistics.summary(found)[:3] == (6.0, pytest.approx(np.std([2, 10], ddof=1)), 2)


def test_differences_are_taken_on_shared_cells_only():
    a = {"s": {"m1": 3.0, "m2": 9.0}, "t": {"m1": 1.0}}
    b = {"s": {"m1": 1.0}, "u": {"m1": 5.0}}
    d = statistics.compare(a, b)
    assert (d.mean, d.low, d.high, d.units) == (2.0, 2.0, 2.0, 1) and np.isnan(d.p)
    assert statistics.compare(a, {}).units == 0


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Scenes differ by 1, cells inside a scene by 0.3: 95 % intervals of 12 scenes."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        paired = [rng.normal() + 0.3 * rng.standard_normal(4) for _ in range(12)]
        low, high = statistics.bootstrap(paired, rng)
        hits += low < 0 < high
    assert 50 <= hits <= 60
    # many cells of few scenes say little: the interval is that of the scenes
    paired = [np.full(1000, v) for v in (-1.0, 1.0, 2.0)]
    low, high = statistics.bootstrap(paired, rng)
    assert low < -0.5 and high > 1.5


def test_holm_s_correction():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.9, 0.5]) == pytest.approx([1.0, 1.0])
    corrected = statistics.holm([float("nan"), 0.02])
    assert np.isnan(corrected[0]) and corrected[1] == 0.02


def test_the_rank_test_is_exact():
    assert statistics.rank_test(np.arange(1.0, 7.0)) == pytest.approx(2 / 2**6)
    assert np.isnan(statistics.rank_test(np.zeros(5)))


# Tables


def test_the_paper_s_figures_are_those_of_the_paper():
    paper = DATA.parent / "paper" / "hydiff-ei.tex"
    if not paper.exists():
        pytest.skip("the paper is not at hand")
    text = paper.read_text()
    for table in PAPER.values():
        for figures_ in table.values():
            for value in figures_:
                shown = {f"{value:.{d}f}" for d in (2, 3)} if value is not None else {""}
                assert any(s in text for s in shown), value


@pytest.fixture
def rows():
    blank = dict.fromkeys(bench.COLUMNS, "")
    made = []
    for method, gain in (("smooth", 1.0), ("hir-diff", -2.0), ("hydiff-ei", 0.0)):
        for i, scene in enumerate(("chikusei_36", "chikusei_36_img3", "a", "b")):
            row = blank | {"method": method, "scene": scene, "mask": "published-1", "seed": "0"}
            row |= {"sigma_y": "0.0", "settings": "{}", "all_mpsnr": str(30 + i + gain)}
            row |= {"seconds": "2", "peak_mb": "100", "out_of_reach": "0", "device": "CPU"}
            row |= {"notes": STAND_IN if method == "hir-diff" else ""}
            made.append(row)
    return made


def test_a_table_shows_ours_beside_the_paper_s_and_the_difference(rows):
    table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
    lines = {line.name: dict(zip(table.head, line.cells, strict=True)) for line in table.lines}
    assert set(lines) == {"smooth", STAND_IN, "hydiff-ei"}
    assert lines["smooth"]["MPSNR dB (all)"].startswith("32.83 ± ")  # (31.5 + 33 + 34) / 3
    assert lines["smooth"]["scenes · cells"] == "3 · 4"
    assert lines["smooth"]["Δ to hydiff-ei [95 %]"] == "+1.00 [+1.00, +1.00]"
    assert lines[STAND_IN]["paper MPSNR"] == "33.862" and lines["smooth"]["paper MPSNR"] == "–"
    assert any("not to be had" in note for note in table.notes)
    assert any("its scores are not HIR-Diff's" in note for note in table.notes)


def test_a_table_leads_with_what_spectra_are_used_for_and_ends_with_mpsnr(rows):
    figures = {"missing_nrmse_median": "0.4", "missing_poor_bands": "0.1", "missing_sam": "2"}
    figures |= {"missing_derivative_rmse": "0.01", "missing_nrmse": "0.5", "missing_mpsnr": "30"}
    rows = [row | figures for row in rows]
    rows[0] |= {"missing_mpsnr": "33"}
    head = tables.build("noiseless", suites.SUITES["noiseless"], rows).head
    lead = ["NRMSE by band, median", "bands > 0.9", "SAM °", "derivative RMSE"]
    assert head[:4] == lead and head.index("MPSNR dB (range over scenes)") + 1 == head.index(
        "seconds"
    )
    table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
    assert any("(30.0 … 33.0)" in cell or "(30.0 … 31.5)" in cell for cell in table.lines[0].cells)
    assert tables.latex(table).isascii()


def test_a_line_of_which_rows_lack_a_figure_does_not_show_the_mean_of_the_others(rows):
    """Rows of an earlier version lack measures; means over other scenes would not compare."""
    rows = [row | {"missing_nrmse_median": "0.4", "landcover_accuracy": ""} for row in rows]
    smooth = [row for row in rows if row["method"] == "smooth"]
    smooth[0]["missing_nrmse_median"] = ""
    for row in rows:
        if row["scene"] == "a":
            row["landcover_accuracy"] = "0.6"  # of one scene alone, in every line
    table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
    lines = {line.name: dict(zip(table.head, line.cells, strict=True)) for line in table.lines}
    assert lines["smooth"]["NRMSE by band, median"] == "–"
    assert lines["hydiff-ei"]["NRMSE by band, median"].startswith("0.400")
    assert {line["land cover"] for line in lines.values()} == {"0.600"}


def test_one_scene_has_no_interval(rows):
    one = [r for r in rows if r["scene"] == "a"]
    table = tables.build("noiseless", suites.SUITES["noiseless"], one)
    lines = {line.name: dict(zip(table.head, line.cells, strict=True)) for line in table.lines}
    assert lines["smooth"]["Δ to hydiff-ei [95 %]"] == "+1.00"


def test_the_three_forms_of_a_table_agree(rows):
    table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
    md, tex, text = tables.markdown(table), tables.latex(table), tables.comma_separated(table)
    parsed = list(csv.reader(text.splitlines()))
    body = [r for r in md.splitlines() if r.startswith("| ") and not r.startswith("|  ")]
    assert [[c.strip() for c in r.strip("|").split("|")] for r in body] == [
        r[1:] for r in parsed[1:]
    ]
    tex_rows = [r for r in tex.splitlines() if r.endswith(r"\\")]
    assert {r.count(" & ") for r in tex_rows} == {len(parsed[0]) - 1}
    assert tex.isascii() and tex.count("{") == tex.count("}")


def test_the_paper_s_ranking_is_judged_by_pairs(rows):
    """hydiff-ei lies 2 dB above dhp as in the paper, and smooth above both."""
    rows = [
        r | {"method": "dhp", "notes": ""} if r["method"] == "hir-diff" else r for r in rows
    ] + [r for r in rows if r["method"] == "hir-diff"]  # a stand-in, of which nothing is said
    table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
    (line,) = [n for n in table.notes if n.startswith("The paper's ranking")]
    assert "of 1 pairs 1 hold, 0 are reversed, 0 are open" in line
    (line,) = [n for n in table.notes if n.startswith("Interpolation")]
    assert "above 2 and below 0 of the paper's 2 rows" in line and "+3.00 dB" in line
    turned = [r | {"all_mpsnr": str(-float(r["all_mpsnr"]))} for r in rows]
    line, other = tables.ranking("noiseless", turned)
    assert "0 hold, 1 are reversed" in line and "hydiff-ei over dhp (paper +6.10" in line
    assert "above 0 and below 2" in other
    line, _ = tables.ranking("noiseless", [r for r in rows if r["scene"] != "a"])  # two scenes
    assert "0 hold, 0 are reversed, 1 are open" in line
    assert tables.ranking("noiseless", [r for r in rows if r["method"] == "smooth"]) == []


def test_a_table_names_what_was_run_on_a_part(rows):
    fewer = [r for r in rows if r["method"] != "hir-diff" or r["scene"] == "a"]
    table = tables.build("noiseless", suites.SUITES["noiseless"], fewer)
    (line,) = [n for n in table.notes if n.startswith("Run on a part")]
    assert f"{STAND_IN}: 1 scenes, published-1, 1 seed(s)." in line and "smooth" not in line
    noisy = [r | {"sigma_y": "0.1"} for r in rows if r["method"] != "hydiff-ei"]
    noisy = [r for r in noisy if r["method"] != "smooth" or r["scene"] == "a"]
    table = tables.build("noiseless", suites.SUITES["noiseless"], [*rows, *noisy])
    (line,) = [n for n in table.notes if n.startswith("Run on a part")]
    assert line.endswith("smooth: 1 scenes, published-1, 1 seed(s) (σ_y = 0.1).")
    beside = [r | {"beside": "8"} for r in rows]
    notes = tables.build("noiseless", suites.SUITES["noiseless"], beside).notes
    assert any("Up to 8 learned runs" in n for n in notes)


def test_offline_rows_say_whether_training_saw_their_pixels():
    names = {suites.row_name(c) for c in suites.offline(bench.choice_of({}))}
    assert {"offline 50", "offline 300", "offline 50, on what it learned from"} <= names
    left, right = (scenes.pixels_of(s)[2] for s in (scenes.OFFLINE_SEEN, scenes.OFFLINE_TEST))
    assert left.stop == right.start == scenes.SPLIT


def test_a_preset_is_a_line_of_its_own():
    def named(**settings):
        return suites.row_name(Cell("dhp", "a", "blobs", settings=json.dumps(settings)))

    assert named() == "dhp" and named(preset="fast") == "dhp (fast)"
    assert named(tuned=1) == "dhp (tuned)" and named(preset="fast", tuned=1) == "dhp (fast, tuned)"


def test_a_table_counts_rows_of_earlier_defaults(rows):
    now = [r | {"settings_hash": cell_rows.settings_hash(tables.cell_of(r))} for r in rows]
    assert list(tables._earlier(now)) == []
    now[0] = now[0] | {"settings_hash": "earlier"}
    assert list(tables._earlier(now)) == [
        "Rows of earlier defaults, to be made again: smooth at σ_y = 0.0 1."
    ]


def test_three_scenes_that_agree_by_chance_prove_nothing():
    """The bootstrap of three units excludes 0 whenever they agree; Student's t asks for more."""
    a = {s: {"m": v} for s, v in (("a", 0.1), ("b", 3.0), ("c", 0.4))}
    zero = {s: {"m": 0.0} for s in a}
    d = statistics.compare(a, zero)
    assert d.low > 0 and d.t > 0.05 and tables.sign(d) == 0
    steady = {s: {"m": v} for s, v in (("a", 2.0), ("b", 2.2), ("c", 2.1))}
    assert tables.sign(statistics.compare(steady, zero)) == 1


def test_a_table_says_what_was_spent_on_training(rows):
    note = "engine: eager; trained by 7 updates in 2 s"
    offline = [r | {"settings": '{"offline": {"crops": 50}}', "notes": note} for r in rows[-1:]]
    notes = tables.build("offline", suites.SUITES["offline"], offline).notes
    assert "offline 50: trained by 7 updates in 2 s." in notes


def test_a_table_names_the_rows_that_hardly_improve_on_their_input(rows):
    """Of smooth, 31 to 34 dB in all entries, let the gaps have 5 dB less; the input has 25."""
    zeros = [r | {"method": "input", "all_mpsnr": "20"} for r in rows if r["method"] == "smooth"]
    zeros = [r | {"missing_mpsnr": "25"} for r in zeros]
    rows = [r | {"missing_mpsnr": str(float(r["all_mpsnr"]) - 5)} for r in rows] + zeros
    (line,) = [
        n
        for n in tables.build("noiseless", suites.SUITES["noiseless"], rows).notes
        if n.startswith("Less than 3 dB")
    ]
    # scenes: chikusei (the mean of its two patches), a and b
    assert "smooth 1 of 3 (chikusei +1.5)" in line
    assert (
        f"{STAND_IN} 3 of 3 (chikusei -1.5)" in line and "hydiff-ei 2 of 3 (chikusei +0.5)" in line
    )
    assert "input" not in line.split(": ", 1)[1]


def row_of_best(method, scene, mask, mpsnr, **more):
    blank = dict.fromkeys(bench.COLUMNS, "")
    settings = '{"budget": "fast"}' if method == "auto" else "{}"
    row = blank | {"method": method, "scene": scene, "mask": mask, "seed": "0", "sigma_y": "0.0"}
    row |= {"settings": settings, "missing_mpsnr": str(mpsnr), "missing_nrmse": "0.4"}
    return row | {"missing_sam": "1"} | more


def judged_of(rows):
    return {p.what: p for p in promises.promises(rows)}


def test_the_best_of_rivals_is_the_best_of_each_cell():
    a, b = {"s": {"m": 3.0, "n": 1.0}}, {"s": {"m": 2.0, "n": 4.0}, "t": {"m": 5.0}}
    best = {"s": {"m": 3.0, "n": 4.0}, "t": {"m": 5.0}}
    assert promises.best_of([a, b]) == promises.best_of([b, a]) == best


def test_promises_are_computed_from_rows():
    counts = {name: [100, 50, 80, 95] for name in (*reliability.BANDS, "0–1.5 px")}
    errors = {"coverage": json.dumps(counts), "crps": "0.5", "crps_constant": "1"}
    errors |= {"expected_nrmse": "0.43", "entries": "400"}
    rows = []
    for i, scene in enumerate(("a", "b", "chikusei_36", "chikusei_36_img3")):
        rows += [row_of_best("harmonic", scene, "blobs", 30 + i)]
        rows += [row_of_best("biharmonic", scene, "blobs", 31 + i)]
        rows += [row_of_best("smooth", scene, "blobs", 32 + i)]
        rows += [row_of_best("auto", scene, "blobs", 32.5 + i, **errors)]
    found = judged_of(rows)
    gain = found["dB above the better of harmonic and biharmonic"]
    assert gain.figure.startswith("+1.50 [+1.50, +1.50]; 3 scenes, 4 cells") and gain.holds
    assert found["dB above hydiff-ei"].figure == "not run"
    assert found["mean regret in dB against the best single fill, upper 95 % bound"].holds
    assert all(p.holds for w, p in found.items() if w.startswith("inside"))
    assert found["inside 80 % intervals, pooled"].figure == "80.0 % [80.0, 80.0]; 3 scenes"
    near = found["expected NRMSE within 15 % of the true one"]
    assert near.holds and near.figure == "100 % [100, 100] of 4 cells"
    strong = row_of_best("anchored", "a", "blobs", 40.0)  # one strong rival in one cell
    lost = judged_of([*rows, strong])
    assert lost["worst cell"].figure == "7.50 dB, a blobs"
    assert lost["cells with a regret of at most 0.3 dB"][3:] == ("75 %", "≥ 95 %", False)
    assert not lost["mean regret in dB against the best single fill, upper 95 % bound"].holds
    narrow = json.dumps(counts | {"0–1.5 px": [100, 10, 20, 30]})
    poor = judged_of([r | {"coverage": narrow} if r["coverage"] else r for r in rows])
    assert poor["inside 50 % intervals, worst distance"].figure == "10.0 %, 0–1.5 px"
    assert not poor["inside 50 % intervals, worst distance"].holds
    assert poor["inside 50 % intervals, pooled"].holds
    assert "| **no** |" in promises.markdown([*rows, strong])


def test_no_scene_may_be_ten_points_off_and_scenes_say_how_sure_a_share_is():
    def row(scene, inside):
        counts = {name: [100, 50, inside, 95] for name in (*reliability.BANDS, "0–1.5 px")}
        errors = {"coverage": json.dumps(counts), "crps": "0.5", "crps_constant": "1"}
        return row_of_best("auto", scene, "blobs", 32.0, **errors, expected_nrmse="0.43")

    found = judged_of([row("a", 69), row("b", 85), row("c", 86)])
    assert found["inside 80 % intervals, worst scene"][3:] == ("69.0 %, a", "80 ± 10", False)
    pooled = found["inside 80 % intervals, pooled"]
    assert pooled.holds and pooled.figure == "80.0 % [69.0, 86.0]; 3 scenes"
    few = promises.resampled([np.array([100, 70]), np.array([100, 90])])
    many = promises.resampled([np.array([100, 70]), np.array([100, 90])] * 20)
    assert few == [0.7, 0.9] and 0.7 < many[0] < 0.8 < many[1] < 0.9


def test_bounds_of_the_expected_error_are_judged_by_the_rows_that_have_them():
    def row(scene, low, high, score):
        counts = {name: [100, 50, 80, 95] for name in (*reliability.BANDS, "0–1.5 px")}
        bars = {"coverage": json.dumps(counts), "crps": "0.5", "crps_constant": "1"}
        bars |= {"expected_nrmse": "0.43"}
        bars |= {"expected_nrmse_low": low, "expected_nrmse_high": high}
        bars |= {"interval_80": score, "interval_80_constant": "1"}
        return row_of_best("auto", scene, "blobs", 32.0, **bars)  # NRMSE 0.4

    inside, outside = row("a", "0.3", "0.5", "0.7"), row("b", "0.41", "0.5", "0.9")
    found = judged_of([inside, row("a", "0.4", "0.4", "0.7"), inside, inside, outside])
    bounds = found["true NRMSE within its bounds"]
    assert bounds.holds and bounds.figure.startswith("80 % [") and "of 5 cells" in bounds.figure
    score = found["interval score at 80 %, share of that of a constant σ"]
    assert score.holds and score.figure == "0.74"
    earlier = judged_of([inside | {"expected_nrmse_low": "", "interval_80": ""}])
    assert not {"true NRMSE within its bounds", score.what} & set(earlier)


# Figures


def test_spectra_are_drawn_for_any_number_of_methods(rng):
    truth, observed = rng.random((6, 12, 12)), np.ones((6, 12, 12), bool)
    observed[:, :, 4:8] = False
    results = {f"method {i}": truth + 0.01 * i for i in range(len(panels.SHOWN) + 3)}
    drawn = figures.spectra(panels.Case(truth, observed, np.where(observed, truth, 0.0), results))
    assert all(len(axis.lines) == 1 + len(results) for axis in drawn.axes)
    looks = {(line.get_color(), str(line._dash_pattern)) for line in drawn.axes[0].lines}
    assert len(looks) == 1 + len(results)


def test_the_enlarged_part_of_a_spectrum_is_where_it_moves_most():
    spectrum = np.zeros(60)
    spectrum[41:44] = 0.0, 1.0, 0.0
    part = figures._roughest(spectrum)
    assert part.stop - part.start == 10 and part.start <= 41 and part.stop >= 44


def test_seconds_are_those_of_runs_that_were_alone_where_there_are_any(rows):
    rows = [r | {"missing_mpsnr": r["all_mpsnr"]} for r in rows]
    alone = [r | {"seconds": "7"} for r in rows if r["method"] == "smooth"]
    (axis,) = figures.quality_against_time(rows, alone=alone).axes
    assert {line.get_label(): list(line.get_xdata()) for line in axis.lines} == {
        "smooth": [7.0], STAND_IN: [2.0], "hydiff-ei": [2.0]
    }  # fmt: skip


def test_a_gain_over_smooth_is_over_the_mean_of_its_seeds(rows):
    rows = [r | {"missing_mpsnr": r["all_mpsnr"]} for r in rows]
    again = [r | {"seed": "1", "missing_mpsnr": "40"} for r in rows if r["method"] == "smooth"]
    (axis,) = figures.quality_against_time([*rows, *again]).axes
    (height,) = {line.get_label(): line.get_ydata() for line in axis.lines}["smooth"]
    assert abs(height) < 1e-9


def test_methods_are_compared_on_the_masks_that_all_of_them_have(rows):
    wide = [r | {"mask": "frames"} for r in rows if r["method"] == "smooth"]
    assert figures.same_masks([*rows, *wide]) == rows
    assert figures.same_masks([]) == []


def test_a_cpu_s_seconds_of_a_learned_method_do_not_stand_beside_those_of_a_gpu(rows):
    rows = [r | {"missing_mpsnr": r["all_mpsnr"]} for r in rows]
    rows[-1] |= {"device": "NVIDIA H200", "seconds": "9"}

    def seconds():
        table = tables.build("noiseless", suites.SUITES["noiseless"], rows)
        at = table.head.index("seconds")
        return {line.name: line.cells[at] for line in table.lines}

    assert seconds() == {"smooth": "2.0", STAND_IN: "–", "hydiff-ei": "9.0"}
    rows[0] |= {"seconds": "100"}  # the first run, with the start of a process
    assert seconds()["smooth"] == "2.0"
    rows[0] |= {"seconds": "2"}
    (axis,) = figures.quality_against_time(rows).axes
    shown = {line.get_label(): list(line.get_xdata()) for line in axis.lines}
    assert shown == {"smooth": [2.0], "hydiff-ei": [9.0]}
    rows[-1] |= {"device": "CPU"}
    assert seconds()[STAND_IN] == "2.0"


def test_figures_are_drawn_from_cells_and_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "DPI", 50)  # as many pixels as a test needs
    monkeypatch.setattr(figures, "BANDS", (5, 100))  # of a scene of 12
    choice = replace(QUICK_CHOICE, methods=("smooth", "hir-diff"), masks=("frames",))
    few = replace(QUICK_CHOICE, methods=("bandmean", "smooth"), masks=("published-3",))
    for name, noise in (("noiseless", (0.0,)), ("noisy", (0.1,))):
        bench.run(name, tmp_path, replace(few, noise=noise))
    lines = []
    made = figures.write_figures(tmp_path, choice, device="cpu", report=lines.append)
    names = {p.name for p in made}
    wanted = [f"frames-{k}" for k in ("panels", "spectra", "distance", "band-5")]
    wanted += ["quality-time", "quality-noise"]
    assert names == {f"{n}{s}" for n in wanted for s in (".png", ".pdf")}
    assert all(p.stat().st_size > 2000 for p in made)
    left = [f"no figure quality-{name}: run its table first" for name in ("best", "widths")]
    fills = [f"fills indian_pines_quick, frames, σ_y 0.0 with {m}" for m in choice.methods]
    assert lines == [*fills, "no figure frames-band-100: the scene has 12 bands", *left]
    cached = sorted((tmp_path / "figures" / "cells").glob("*.npz"))
    stamps = [p.stat().st_mtime_ns for p in cached]
    panels.fill_case(panels.FillCache(tmp_path / "figures" / "cells"), choice, "frames", 0.0)
    assert [p.stat().st_mtime_ns for p in cached] == stamps and len(cached) == 2


def test_curves_alone_need_no_fill(tmp_path, monkeypatch):
    """A mask that no picture shows: nothing is filled or trained, and the curves are drawn."""
    monkeypatch.setattr(panels, "DPI", 50)
    bench.run("noiseless", tmp_path, replace(QUICK_CHOICE, methods=("bandmean", "smooth")))
    other = replace(QUICK_CHOICE, masks=("stripes",))
    made = figures.write_figures(tmp_path, other, device="cpu")
    assert made == figures.write_figures(
        tmp_path, replace(QUICK_CHOICE, noise=(0.3,)), device="cpu"
    )
    assert {p.name for p in made} == {"quality-time.png", "quality-time.pdf"}
    assert not list((tmp_path / "figures" / "cells").iterdir())


def test_networks_trained_offline_are_shown_beside_the_untrained_one(tmp_path):
    """Of one scene that no training crop touches; the fills are stored, then drawn."""
    small = {"steps": 2, "channels": 4, "scales": 2}
    training = {"offline": {"crops": 1, "minutes": 1e-4, "lr": 1e-3}}
    offline = [
        Cell("hydiff-ei", scenes.OFFLINE_TEST, "published-3", 0.0, 0, json.dumps(small | more))
        for more in ({}, training)
    ]
    case = panels.trained_case(panels.FillCache(tmp_path, device="cpu"), offline)
    assert list(case.results) == ["untrained", "trained on 1 crops"]
    fast = Cell("hydiff-ei", "a", "blobs", 0.0, 0, json.dumps(training | {"preset": "fast"}))
    weights, _ = tuning.trained(fast, tmp_path, "cpu")
    assert network_of(weights["weights"]) == {"channels": 32, "scales": 5}  # of the preset
    assert "lr: 0.001" in Path(weights["weights"] + ".md").read_text().replace('"', "")
    for x in case.results.values():  # measured entries are kept, to half precision
        np.testing.assert_allclose(x[case.observed], case.truth[case.observed], atol=1e-3)
    assert len({x.tobytes() for x in case.results.values()}) == 2
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.npz")}
    again = panels.trained_case(panels.FillCache(tmp_path, device="cpu"), offline)
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.npz")}
    np.testing.assert_array_equal(again.results["untrained"], case.results["untrained"])


# What the fill is for


def test_the_classifier_separates_what_can_be_separated(rng):
    means = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    labels = rng.integers(1, 4, 300)
    spectra = means[labels - 1] + 0.05 * rng.standard_normal((300, 3))
    model = uses.train(spectra[:200], labels[:200])
    assert uses.agreement(model.classify(spectra[200:]), labels[200:]) == (1.0, 1.0)


def test_kappa_is_what_is_left_beyond_chance():
    truth = np.array([1] * 25 + [2] * 25)
    cover = np.array([1] * 20 + [2] * 5 + [1] * 10 + [2] * 15)
    accuracy, kappa = uses.agreement(cover, truth)
    assert accuracy == pytest.approx(0.7) and kappa == pytest.approx(0.4)
    assert uses.agreement(np.ones(4), np.array([1, 1, 2, 2]))[1] == 0


def test_a_straight_spectrum_has_no_band_depth():
    line = np.linspace(1, 2, 50)[:, None] * np.array([1.0, 3.0])
    np.testing.assert_allclose(uses.band_depth(line, 10, 20, 40), 0, atol=1e-12)
    line[20] *= 0.75
    np.testing.assert_allclose(uses.band_depth(line, 10, 20, 40), 0.25)
    np.testing.assert_allclose(uses.band_ratio(np.array([[3.0], [1.0]]), 0, 1), 0.5)


def test_a_perfect_fill_has_the_land_cover_of_the_truth():
    truth, labels = scenes.load(scenes.BUNDLED), scenes.labels_of(scenes.BUNDLED)
    seen = np.broadcast_to(scenes.observed_of("published-3", truth.shape), truth.shape)
    perfect = uses.errors(truth, truth, seen, labels)
    assert perfect["landcover_accuracy"] == perfect["landcover_truth"] > 0.6
    assert perfect["ratio_rmse"] == perfect["depth_rmse"] == 0
    poor = uses.errors(np.where(seen, truth, 0.0), truth, seen, labels)
    assert poor["landcover_accuracy"] < 0.3 and poor["depth_rmse"] > 0
    assert set(uses.errors(truth, truth, seen, None).values()) == {None}
