"""Laws of the benchmark: honest cells, rows that survive a kill, statistics, tables, figures."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hydiff
from conftest import DATA
from hydiff import bench
from hydiff.bench import cells, figures, records, scenes, statistics, suites, tables, uses
from hydiff.bench.cells import Cell
from hydiff.bench.published import PAPER
from hydiff.cli import app
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName
from hydiff.methods import METHODS, STAND_IN

QUICK_PLAN = bench.plan_of({}, quick=True)


def command(*arguments, folder, wait=True):
    line = [sys.executable, "-m", "hydiff", "bench", *arguments, "-o", str(folder)]
    if not wait:
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return subprocess.run(line, capture_output=True, text=True, check=False)


# Cells


def test_a_method_gets_nothing_of_what_lies_under_the_mask():
    """Two truths that differ only under the mask give the same bytes, tuned settings included."""
    truth = scenes.load(scenes.QUICK)[:, :20, :20]
    observed = np.broadcast_to(scenes.observed_of("published-2", truth.shape), truth.shape)
    other = np.where(observed, truth, np.nan)
    small = {"steps": 2}
    for settings in (small, small | {"tuned": 1}):
        cell = Cell("hir-diff", scenes.QUICK, "published-2", 0.1, 0, json.dumps(settings))
        one, two = (
            cells.fill(cell, cells.measure(t, observed, 0.1, 0), observed, "cpu")
            for t in (truth, other)
        )
        assert np.array_equal(one.raw, two.raw) and one.settings == two.settings


def test_settings_are_tuned_on_pixels_that_were_hidden():
    """`smooth` returns what it sees as it is: an error above 0 tells that it did not see it."""
    truth = scenes.load(scenes.QUICK)
    seen = np.broadcast_to(scenes.observed_of("published-2", truth.shape), truth.shape)
    cell = Cell("smooth", scenes.QUICK, "published-2", settings='{"tuned": 1, "s": 1.25}')
    changes, told = cells.tuned(cell, cells.measure(truth, seen, 0.0, 0), seen, "cpu")
    assert changes == {"s": 1.25} and float(told.split("RMSE ")[1].rstrip(")")) > 1e-3


def test_tuning_takes_the_candidate_with_the_least_error():
    truth = scenes.load(scenes.QUICK)[:, :24, :24]
    seen = np.broadcast_to(scenes.observed_of("published-2", truth.shape), truth.shape)
    cell = Cell("hir-diff", scenes.QUICK, "published-2", settings='{"tuned": 1, "fidelity": 0.9}')
    changes, told = cells.tuned(cell, cells.measure(truth, seen, 0.0, 0), seen, "cpu")
    errors = [float(e) for e in told.split("RMSE ")[1].rstrip(")").split(", ")]
    candidates = [{}, *cells.TUNING["hir-diff"]]
    assert changes == {"fidelity": 0.9} | candidates[int(np.argmin(errors))]


def test_the_measurement_is_the_truth_and_noise_of_the_seed():
    truth = np.full((3, 40, 40), 0.5)
    observed = np.ones((40, 40), bool)
    observed[:, 3] = False
    y = cells.measure(truth, observed, 0.1, 1)
    assert np.isnan(y[:, :, 3]).all() and np.isfinite(y[:, observed]).all()
    assert (y - truth)[:, observed].std() == pytest.approx(0.1, rel=0.05)
    np.testing.assert_array_equal(y, cells.measure(truth, observed, 0.1, 1))
    assert not np.array_equal(y, cells.measure(truth, observed, 0.1, 2), equal_nan=True)
    np.testing.assert_array_equal(cells.measure(truth, observed, 0.0, 1)[:, observed], 0.5)


def test_a_row_tells_every_metric_raw_and_composited():
    cell = Cell("subspace-fill", scenes.QUICK, "published-2")
    row, reported = cells.run(cell)
    assert set(row) == set(bench.COLUMNS)
    truth = scenes.load(scenes.QUICK)
    assert row["all_mpsnr"] == pytest.approx(hydiff.metrics.mpsnr(reported, truth))
    assert row["composited_mpsnr"] == row["all_mpsnr"]
    noisy, reported = cells.run(replace(cell, sigma_y=0.1))
    assert noisy["raw_mpsnr"] == noisy["all_mpsnr"] > noisy["composited_mpsnr"]
    assert noisy["raw_mpsnr"] == pytest.approx(hydiff.metrics.mpsnr(reported, truth))


def test_the_input_and_what_is_out_of_reach_are_zero_and_scored():
    zero, _ = cells.run(Cell("input", scenes.QUICK, "published-2"))
    blind, _ = cells.run(Cell("halrtc", scenes.QUICK, "published-2"))
    assert blind["out_of_reach"] > 0 and zero["out_of_reach"] == 0
    assert blind["missing_mpsnr"] == pytest.approx(zero["missing_mpsnr"])
    assert blind["all_sam"] is None


@pytest.mark.parametrize("scene", ["chikusei_36", "paris_hyperion_72"])
@pytest.mark.parametrize("method", ["rbf", "dineof", "exemplar", "subspace-fill", "hir-diff"])
def test_each_is_3_db_above_the_zero_filled_input(data_dir, monkeypatch, scene, method):
    monkeypatch.setenv("HYDIFF_DATA", str(data_dir))
    truth = scenes.load(scene)
    seen = np.broadcast_to(scenes.observed_of("published-2", truth.shape), truth.shape)
    y = cells.measure(truth, seen, 0.0, 0)
    x = cells.fill(Cell(method, scene, "published-2"), y, seen, "cpu").raw
    zero = hydiff.metrics.mpsnr(np.zeros_like(truth), truth, ~seen)
    assert hydiff.metrics.mpsnr(x, truth, ~seen) > zero + 3


def test_changed_settings_make_another_cell():
    cell = Cell("dhp", scenes.QUICK, "blobs")
    changes = ['{"lr": 0.02}', '{"preset": "fast"}', '{"tuned": 1}']
    hashes = {cells.settings_hash(c) for c in (cell, *(replace(cell, settings=s) for s in changes))}
    assert len(hashes) == 4
    assert cells.settings_hash(replace(cell, settings='{"lr": 0.01}')) in hashes  # the default


# Scenes


def test_scenes_lie_between_0_and_1_and_are_no_larger_than_the_paper_s():
    truth = scenes.load(scenes.BUNDLED)
    assert truth.shape == (200, 144, 144) and truth.min() == 0 and truth.max() == 1
    assert scenes.labels_of(scenes.BUNDLED).shape == (144, 144)
    test = scenes.load(scenes.OFFLINE_TEST)
    assert test.shape == (200, 144, 145 - scenes.SPLIT)


def test_a_user_s_own_cube_is_a_scene(tmp_path, tiny):
    path = tmp_path / "mine.npy"
    np.save(path, (100 * tiny + 7).transpose(1, 2, 0))
    np.testing.assert_allclose(scenes.load("mine", {"mine": path}), tiny, atol=1e-12)
    holed = tiny.copy()
    holed[0, 0, 0] = np.nan
    np.save(path, holed.transpose(1, 2, 0))
    with pytest.raises(BadValue, match="no gaps"):
        scenes.load("mine", {"mine": path})


def test_unknown_scenes_and_paths_get_a_clear_line(tmp_path):
    with pytest.raises(UnknownName, match="HYDIFF_DATA"):
        scenes.load("atlantis")
    with pytest.raises(CubeFormatError, match="no such file"):
        bench.plan_of({"mine": tmp_path / "absent.tif"})
    with pytest.raises(UnknownName, match="did you mean 'smooth'"):
        bench.plan_of({}, methods=["smoth"])


def test_offline_training_and_test_share_no_pixel():
    crops = scenes.damaged_crops(40, 48)
    truth = scenes.unit(np.asarray(hydiff.sample().values).astype(float)).astype(np.float32)
    left = truth[:, :, : scenes.SPLIT]
    for crop in crops[:4]:
        column = crop.values[:, :, -1]
        seen = np.isfinite(column)
        hits = [c for c in range(left.shape[2]) if np.isin(column[seen], left[:, :, c]).all()]
        assert hits or not seen.any()
    assert scenes.pixels_of(scenes.OFFLINE_TEST)[2].start == scenes.SPLIT


def test_stripes_of_a_width_are_that_wide():
    for width in (2, 8):
        observed = scenes.observed_of(f"width-{width}", (3, 20, 48))
        gaps = np.diff(np.flatnonzero(np.diff(np.pad(~observed[0], 1).astype(int))))[::2]
        assert set(gaps) == {width}


# Rows on disk


def test_rows_come_back_and_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "rows.csv"
    columns = ("a", "b")
    records.append(path, {"a": "x,y", "b": 0.123456789}, columns)
    records.append(path, {"a": 'say "hi"\nthere', "b": None}, columns)
    rows = [{"a": "x,y", "b": "0.123457"}, {"a": 'say "hi" there', "b": ""}]
    assert records.read(path) == rows
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]) + 1, len(whole)):
        path.write_bytes(whole[:cut])  # as a kill in the middle of a write leaves it
        assert records.read(path) == rows[: whole[:cut].count(b"\n") - 1]
        records.append(path, {"a": "new", "b": 1.0}, columns)
        assert records.read(path)[-1] == {"a": "new", "b": "1.0"}
        assert records.read(path)[:-1] == rows[: whole[:cut].count(b"\n") - 1]
    with pytest.raises(BadValue, match="other columns"):
        records.append(path, {}, ("a", "c"))


def test_a_killed_bench_goes_on_and_repeats_no_cell(tmp_path):
    names = [a for m in ("input", "bandmean", "smooth", "rbf") for a in ("--method", m)]
    arguments = ("noiseless", "--quick", *names)
    path = tmp_path / "quick" / "noiseless.csv"
    process = command(*arguments, folder=tmp_path, wait=False)
    end = time.monotonic() + 60
    while len(records.read(path)) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = records.read(path)
    assert 2 <= len(before) < 8
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = records.read(path)
    assert rows[: len(before)] == before and len(rows) == 8
    assert len({tables.cell_of(row) for row in rows}) == 8
    assert "mean nothing" in done.stdout and "mean nothing" in done.stderr
    assert "mean nothing" in (tmp_path / "quick" / "noiseless.md").read_text()
    again = path.read_bytes()
    bench.run("noiseless", tmp_path / "quick", replace(QUICK_PLAN, methods=("input", "bandmean")))
    assert path.read_bytes() == again


def test_workers_give_the_same_rows(tmp_path):
    plan = replace(QUICK_PLAN, methods=("bandmean", "smooth", "hir-diff"), masks=("published-2",))
    rows = {}
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        bench.run("noiseless", folder, plan, workers=workers, device="cpu")
        found = records.read(folder / "noiseless.csv")
        rows[workers] = {row["method"]: row["all_mpsnr"] for row in found}
    assert rows[0] == rows[2] and len(rows[0]) == 3


def test_no_cell_starts_after_the_minutes_are_over(tmp_path):
    plan = replace(QUICK_PLAN, methods=("bandmean",))
    with pytest.raises(BadValue, match="no rows"):
        bench.run("noiseless", tmp_path, plan, minutes=-1)
    assert not (tmp_path / "noiseless.csv").exists()


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
    # many cells of few scenes tell little: the interval is that of the scenes
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


# Suites and tables


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_figure_of_the_paper_has_a_row_of_ours(name):
    plan = bench.plan_of({}, names=["indian_pines"])
    found = {(c.sigma_y, suites.row_name(c)) for c in suites.SUITES[name].cells(plan)}
    assert set(PAPER.get(name, {})) <= found
    assert any(row == suites.SUITES[name].reference for _, row in found)
    assert {c.method for c in suites.SUITES[name].cells(plan)} <= {*METHODS, "input"}


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_cell_of_a_suite_has_settings_that_its_method_takes(name):
    for plan in (QUICK_PLAN, bench.plan_of({}, names=["x"], tuned=True, preset="fast")):
        listed = list(suites.SUITES[name].cells(plan))
        assert len(set(listed)) == len(listed) > 0
        assert all(cells.settings_hash(c) for c in listed)


def test_seeds_are_for_what_is_random():
    plan = bench.plan_of({}, names=["x"], methods=["smooth", "dhp"], masks=["blobs"], seeds=3)
    noiseless, noisy = (list(s(plan)) for s in (suites.noiseless, suites.noisy))
    assert [c.method for c in noiseless] == ["smooth", *["dhp"] * 3]
    assert len([c for c in noisy if c.sigma_y == 0.1]) == 6


def test_tuning_starts_from_settings_that_exist():
    for method, candidates in cells.TUNING.items():
        for changes in candidates:
            hydiff.methods.choose(method, None, changes)


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
    assert lines["smooth"]["MPSNR dB"].startswith("32.83 ± ")  # (31.5 + 33 + 34) / 3
    assert lines["smooth"]["scenes · cells"] == "3 · 4"
    assert lines["smooth"]["Δ to hydiff-ei [95 %]"] == "+1.00 [+1.00, +1.00]"
    assert lines[STAND_IN]["paper MPSNR"] == "33.862" and lines["smooth"]["paper MPSNR"] == "–"
    assert any("not to be had" in note for note in table.notes)
    assert any("trained on the truth" in note for note in table.notes)


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


def test_without_rows_there_is_no_table(tmp_path):
    with pytest.raises(BadValue, match="no rows"):
        bench.write_tables("noisy", tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'noisy'"):
        bench.write_tables("nosy", tmp_path)


# Figures


def test_figures_are_drawn_from_cells_and_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "DPI", 50)  # as many pixels as a test needs
    plan = replace(QUICK_PLAN, methods=("smooth", "hir-diff"), masks=("frames",))
    for name in ("noiseless", "noisy"):
        bench.run(name, tmp_path, replace(QUICK_PLAN, methods=("bandmean", "smooth")))
    told = []
    made = figures.write_figures(tmp_path, plan, device="cpu", told=told.append)
    names = {p.name for p in made}
    wanted = [f"frames-{k}" for k in ("panels", "spectra", "distance")]
    wanted += ["quality-time", "quality-noise"]
    assert names == {f"{n}{s}" for n in wanted for s in (".png", ".pdf")}
    assert all(p.stat().st_size > 2000 for p in made)
    assert told == ["no figure quality-widths: run its table first"]
    cached = sorted((tmp_path / "figures" / "cells").glob("*.npz"))
    stamps = [p.stat().st_mtime_ns for p in cached]
    figures.fill_case(tmp_path / "figures" / "cells", plan, "frames", 0.0, None, "cpu")
    assert [p.stat().st_mtime_ns for p in cached] == stamps and len(cached) == 2


# What the fill is for


def test_the_classifier_tells_apart_what_can_be_told(rng):
    means = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    labels = rng.integers(1, 4, 300)
    spectra = means[labels - 1] + 0.05 * rng.standard_normal((300, 3))
    model = uses.train(spectra[:200], labels[:200])
    assert uses.agreement(model.classify(spectra[200:]), labels[200:]) == (1.0, 1.0)


def test_kappa_is_what_is_left_beyond_chance():
    truth = np.array([1] * 25 + [2] * 25)
    told = np.array([1] * 20 + [2] * 5 + [1] * 10 + [2] * 15)
    accuracy, kappa = uses.agreement(told, truth)
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
    seen = np.broadcast_to(scenes.observed_of("published-2", truth.shape), truth.shape)
    perfect = uses.errors(truth, truth, seen, labels)
    assert perfect["landcover_accuracy"] == perfect["landcover_truth"] > 0.6
    assert perfect["ratio_rmse"] == perfect["depth_rmse"] == 0
    poor = uses.errors(np.where(seen, truth, 0.0), truth, seen, labels)
    assert poor["landcover_accuracy"] < 0.3 and poor["depth_rmse"] > 0
    assert set(uses.errors(truth, truth, seen, None).values()) == {None}


# The command


def test_bad_input_gets_one_line_and_exit_code_2(tmp_path):
    cases = {
        ("nonsense",): "unknown table",
        ("noisy", "--scene", "mine=/absent.tif"): "no such file",
        ("noisy", "--scene", "atlantis", "--method", "bandmean"): "unknown scene",
        ("noisy", "--method", "smoth"): "did you mean",
        ("noisy", "--seeds", "0"): "expected 1 or more",
    }
    for arguments, told in cases.items():
        outcome = CliRunner().invoke(app, ["bench", *arguments, "-o", str(tmp_path)])
        assert isinstance(outcome.exception, HydiffError) and told in str(outcome.exception)
        assert "\n" not in str(outcome.exception)
    done = command("nonsense", folder=tmp_path)  # the same through the front door
    assert done.returncode == 2 and "unknown table" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(Path(tmp_path).glob("*.csv"))
