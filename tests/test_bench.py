"""Laws of the benchmark: honest cells, rows that survive a kill, statistics, tables, figures."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hydiff
from conftest import DATA, ROOT
from hydiff import auto, bench
from hydiff.auto import candidates
from hydiff.bench import (
    cell_rows,
    cells,
    figures,
    machine,
    panels,
    promises,
    records,
    reliability,
    scenes,
    statistics,
    suites,
    tables,
    tuning,
    uses,
)
from hydiff.bench.cells import Cell
from hydiff.bench.choice import LARGE_CASES
from hydiff.bench.published import PAPER
from hydiff.cli import app
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName
from hydiff.gaps.mask import PUBLISHED, columns_needed
from hydiff.learn.weights import network_of
from hydiff.methods import METHODS, STAND_IN, WITH_REFERENCE

RESULTS = ROOT / "benchmarks" / "results" / "bench"
QUICK_CHOICE = bench.choice_of({}, quick=True)


def command(*arguments, folder, wait=True):
    line = [sys.executable, "-m", "hydiff", "bench", *arguments, "-o", str(folder)]
    if not wait:
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return subprocess.run(line, capture_output=True, text=True, check=False)


def inside(*arguments, folder):
    """The same command inside this process."""
    return CliRunner().invoke(app, ["bench", *arguments, "-o", str(folder)])


def filled(cell, y, seen):
    (found,) = cell_rows.fill([cells.Damaged(cell, y, seen)], "cpu")
    return found


# Cells


def test_a_method_gets_nothing_of_what_lies_under_the_mask():
    """Two truths that differ only under the mask give the same bytes, tuned settings included."""
    truth = scenes.load(scenes.QUICK)[:, :20, :20]
    observed = np.broadcast_to(scenes.observed_of("width-3", truth.shape), truth.shape)
    other = np.where(observed, truth, np.nan)
    small = {"steps": 2}
    for settings in (small, small | {"tuned": 1}):
        cell = Cell("hir-diff", scenes.QUICK, "published-3", 0.1, 0, json.dumps(settings))
        one, two = (
            filled(cell, cells.measure(t, observed, 0.1, 0), observed) for t in (truth, other)
        )
        assert np.array_equal(one.raw, two.raw) and one.settings == two.settings


def test_settings_are_tuned_on_pixels_that_were_hidden():
    """`smooth` returns what it sees as it is: an error above 0 shows that it did not see it."""
    truth = scenes.load(scenes.QUICK)
    seen = np.broadcast_to(scenes.observed_of("published-3", truth.shape), truth.shape)
    cell = Cell("smooth", scenes.QUICK, "published-3", settings='{"tuned": 1, "s": 1.25}')
    damaged = cells.Damaged(cell, cells.measure(truth, seen, 0.0, 0), seen)
    ((changes, note),) = tuning.tuned([damaged], "cpu")
    assert changes == {"s": 1.25} and float(note.split("RMSE ")[1].rstrip(")")) > 1e-3


def test_tuning_takes_the_candidate_with_the_least_error():
    truth = scenes.load(scenes.QUICK)[:, :24, :24]
    seen = np.broadcast_to(scenes.observed_of("width-3", truth.shape), truth.shape)
    cell = Cell("hir-diff", scenes.QUICK, "published-3", settings='{"tuned": 1, "fidelity": 0.9}')
    damaged = cells.Damaged(cell, cells.measure(truth, seen, 0.0, 0), seen)
    ((changes, note),) = tuning.tuned([damaged], "cpu")
    errors = [float(e) for e in note.split("RMSE ")[1].rstrip(")").split(", ")]
    candidates = [{}, *tuning.TUNING["hir-diff"]]
    assert changes == {"fidelity": 0.9} | candidates[int(np.argmin(errors))]


@pytest.mark.parametrize("mask", ["frames", "published-3", "columns"])
def test_tuning_finds_pixels_to_hide_under_any_kind_of_gap(mask):
    truth = scenes.load(scenes.QUICK)
    seen = np.broadcast_to(scenes.observed_of(mask, truth.shape), truth.shape)
    hidden = tuning._moved(seen)
    assert hidden.any() and not (hidden & ~seen).any()


def test_a_candidate_that_diverges_is_not_taken(monkeypatch):
    truth = scenes.load(scenes.QUICK)[:, :24, :24]
    seen = np.broadcast_to(scenes.observed_of("width-3", truth.shape), truth.shape)
    settings = json.dumps({"tuned": 1} | suites.QUICK["dhp"])
    damaged = cells.Damaged(
        Cell("dhp", scenes.QUICK, "published-3", settings=settings),
        cells.measure(truth, seen, 0.0, 0),
        seen,
    )
    monkeypatch.setitem(tuning.TUNING, "dhp", [{"lr": 1e30}])
    ((changes, note),) = tuning.tuned([damaged], "cpu")
    assert "lr" not in changes and "inf" in note


def test_another_grid_makes_another_tuned_cell(monkeypatch):
    cell = Cell("dhp", scenes.QUICK, "blobs", settings='{"tuned": 1}')
    before = cell_rows.settings_hash(cell)
    monkeypatch.setitem(tuning.TUNING, "dhp", [{"lr": 0.5}])
    assert cell_rows.settings_hash(cell) != before


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


def test_a_row_has_every_metric_raw_and_composited():
    cell = Cell("subspace-fill", scenes.QUICK, "published-3")
    [(row, reported)] = cell_rows.run([cell])
    assert set(row) == set(bench.COLUMNS)
    truth = scenes.load(scenes.QUICK)
    assert row["all_mpsnr"] == pytest.approx(hydiff.metrics.mpsnr(reported, truth))
    assert row["composited_mpsnr"] == row["all_mpsnr"]
    [(noisy, reported)] = cell_rows.run([replace(cell, sigma_y=0.1)])
    assert noisy["raw_mpsnr"] == noisy["all_mpsnr"] > noisy["composited_mpsnr"]
    assert noisy["raw_mpsnr"] == pytest.approx(hydiff.metrics.mpsnr(reported, truth))


def test_a_system_without_a_peak_of_memory_gives_a_row_without_it(monkeypatch):
    """Windows lacks the module `resource`."""
    monkeypatch.setitem(sys.modules, "resource", None)
    assert machine.facts("smooth", "cpu")["peak_mb"] is None


def test_the_input_and_what_is_out_of_reach_are_zero_and_scored():
    [(zero, _)] = cell_rows.run([Cell("input", scenes.QUICK, "published-3")])
    [(blind, _)] = cell_rows.run([Cell("halrtc", scenes.QUICK, "published-3")])
    assert blind["out_of_reach"] > 0 and zero["out_of_reach"] == 0
    assert blind["missing_mpsnr"] == pytest.approx(zero["missing_mpsnr"])
    assert blind["all_sam"] is None


@pytest.mark.parametrize("scene", ["chikusei_36", "paris_hyperion_72"])
@pytest.mark.parametrize("method", ["rbf", "dineof", "exemplar", "subspace-fill", "hir-diff"])
def test_each_is_3_db_above_the_zero_filled_input(data_dir, monkeypatch, scene, method):
    monkeypatch.setenv("HYDIFF_DATA", str(data_dir))
    truth = scenes.load(scene)
    seen = np.broadcast_to(scenes.observed_of("stripes", truth.shape), truth.shape)
    y = cells.measure(truth, seen, 0.0, 0)
    x = filled(Cell(method, scene, "stripes"), y, seen).raw
    zero = hydiff.metrics.mpsnr(np.zeros_like(truth), truth, ~seen)
    assert hydiff.metrics.mpsnr(x, truth, ~seen) > zero + 3


def test_changed_settings_make_another_cell():
    cell = Cell("dhp", scenes.QUICK, "blobs")
    changes = ['{"lr": 0.02}', '{"preset": "fast"}', '{"tuned": 1}']
    changed = [replace(cell, settings=s) for s in changes]
    hashes = {cell_rows.settings_hash(c) for c in (cell, *changed)}
    assert len(hashes) == 4
    assert cell_rows.settings_hash(replace(cell, settings='{"lr": 0.01}')) in hashes  # the default


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_the_network_of_a_fast_fill_is_part_of_its_row_alone(monkeypatch, sigma):
    def hashes():
        settings = [json.dumps({"budget": name}) for name in auto.BUDGETS]
        return [cell_rows.settings_hash(Cell("auto", "a", "blobs", sigma, 0, s)) for s in settings]

    fast, *others = hashes()
    monkeypatch.setattr(candidates, "FAST_PRIOR", candidates.PRIOR)
    assert hashes() != [fast, *others] and hashes()[1:] == others
    monkeypatch.setattr(candidates, "PRIOR_FOLDS", 1)
    assert not set(hashes()) & {fast, *others}


def test_noise_by_band_is_the_same_for_every_seed():
    truth = np.full((6, 60, 60), 0.5)
    observed = np.ones((60, 60), bool)
    wanted = cells.sigmas("band", 6)
    assert wanted.min() >= 0.02 and wanted.max() <= 0.3 and np.ptp(wanted) > 0
    for seed in (0, 1):
        found = (cells.measure(truth, observed, "band", seed) - truth).std(axis=(1, 2))
        np.testing.assert_allclose(found, wanted, rtol=0.1)


def test_auto_is_judged_by_what_it_promised():
    settings = '{"budget": "fast", "noise": "estimated"}'
    cell = Cell("auto", scenes.QUICK, "published-3", 0.1, 0, settings)
    [(row, _)] = cell_rows.run([cell], device="cpu")
    assert "sigma_y estimated" in row["notes"]
    assert row["why"] and row["expected_nrmse"] > 0 and 0 < row["covered_80"] <= 1
    parts = json.loads(row["coverage"])
    # each a partition of the missing entries
    for names in (reliability.DISTANCES, reliability.BANDS):
        counts = np.sum([parts[n] for n in names if n in parts], axis=0)
        assert counts[0] == row["entries"]
        pooled = [row[f"covered_{level}"] for level in reliability.LEVELS]
        np.testing.assert_allclose(counts[1:] / counts[0], pooled)


def test_bars_of_the_right_width_cover_what_they_say(rng):
    """Gaussian errors, bars of their σ, twice as wide in the last quarter of the bands."""
    truth = rng.random((8, 60, 60))
    seen = np.ones(truth.shape, bool)
    seen[:, :, 10:30] = False
    x = np.where(seen, truth, truth + 0.1 * rng.standard_normal(truth.shape))
    sigma = np.where(np.arange(8) < 6, 0.1, 0.2)[:, None, None] * np.ones(truth.shape)
    row = reliability.judged(x, truth, seen, sigma, None)
    parts = {k: np.array(v[1:]) / v[0] for k, v in json.loads(row["coverage"]).items()}
    for name in reliability.BANDS[:3]:
        np.testing.assert_allclose(parts[name], [0.5, 0.8, 0.95], atol=0.03)
    assert parts[reliability.BANDS[3]][0] > 0.75 and row["entries"] == 8 * 60 * 20
    # at most 10 pixels from the rim
    assert set(parts) == {*reliability.BANDS, *reliability.DISTANCES[:6]}
    twice = reliability.judged(
        x, truth, seen, sigma, [2 * q for q in hydiff.metrics.NORMAL_QUANTILES]
    )
    assert twice["covered_50"] > row["covered_50"] + 0.2
    assert set(reliability.judged(x, truth, seen, None, None).values()) == {None}


# Scenes


def test_scenes_lie_between_0_and_1_and_are_no_larger_than_the_paper_s():
    truth = scenes.load(scenes.BUNDLED)
    assert truth.shape == (200, 144, 144) and truth.min() == 0 and truth.max() == 1
    assert scenes.labels_of(scenes.BUNDLED).shape == (144, 144)
    for name in (scenes.OFFLINE_TEST, scenes.OFFLINE_SEEN):  # squares, as those of the training
        assert scenes.load(name).shape == (200, scenes.OFFLINE_SIDE, scenes.OFFLINE_SIDE)


def test_a_user_s_own_cube_is_a_scene(tmp_path, tiny):
    path = tmp_path / "mine.npy"
    np.save(path, (100 * tiny + 7).transpose(1, 2, 0))
    np.testing.assert_allclose(scenes.load("mine", {"mine": path}), tiny, atol=1e-12)
    holed = tiny.copy()
    holed[0, 0, 0] = np.nan
    np.save(path, holed.transpose(1, 2, 0))
    with pytest.raises(BadValue, match="no gaps"):
        scenes.load("mine", {"mine": path})


def test_two_cubes_of_one_name_are_two_scenes(tmp_path, rng):
    one, other = rng.random((2, 4, 20, 20))
    names = []
    for values in (one, other, other):
        np.save(tmp_path / "cube.npy", values)
        names += scenes.distinct({"mine": tmp_path / "cube.npy"})
    assert names[0] != names[1] == names[2] and names[0].startswith("mine@")


def test_a_scene_without_content_is_refused(tmp_path):
    np.save(tmp_path / "flat.npy", np.ones((4, 12, 12)))
    with pytest.raises(BadValue, match="the same value everywhere"):
        scenes.distinct({"flat": tmp_path / "flat.npy"})


@pytest.mark.parametrize("mask", ["width-abc", "width-0", "width--3", "width-33", "width-"])
def test_a_width_that_makes_no_gap_is_refused(mask):
    with pytest.raises(BadValue, match="at most half"):
        bench.choice_of({}, masks=[mask])


def test_unknown_scenes_and_paths_get_a_clear_line(tmp_path):
    with pytest.raises(UnknownName, match="HYDIFF_DATA"):
        scenes.load("atlantis")
    with pytest.raises(CubeFormatError, match="no such file"):
        scenes.distinct({"mine": tmp_path / "absent.tif"})
    with pytest.raises(UnknownName, match="did you mean 'smooth'"):
        bench.choice_of({}, methods=["smoth"])
    with pytest.raises(UnknownName, match="`scene=atlantis=FILE`"):
        bench.choice_of({}, names=["atlantis"])
    with pytest.raises(hydiff.HydiffError, match="strips"):
        bench.choice_of({}, masks=["strips"])
    with pytest.raises(BadValue, match="scene of its own"):
        bench.choice_of({}, names=[scenes.BUNDLED], quick=True)
    with pytest.raises(BadValue, match="leave some out"):
        bench.run("noisy", tmp_path / "none", bench.choice_of({}, noise=["0.15"], quick=True))
    assert not (tmp_path / "none").exists()


def test_offline_training_and_test_share_no_pixel():
    crops = scenes.damaged_crops(40, 48)
    truth = scenes.unit(np.asarray(hydiff.sample().values).astype(float)).astype(np.float32)
    left = truth[:, :, : scenes.SPLIT]
    assert scenes.pixels_of(scenes.OFFLINE_TEST)[2].start == scenes.SPLIT
    known = {spectrum.tobytes() for spectrum in left.reshape(len(left), -1).T.copy()}
    for crop in crops:
        spectra = crop.values.reshape(len(crop.values), -1).T
        seen = spectra[np.isfinite(spectra).all(axis=1)].copy()
        assert len(seen) > 100 and all(spectrum.tobytes() in known for spectrum in seen)


def test_a_scene_that_is_too_narrow_for_a_mask_is_left_out_by_name(tmp_path):
    choice = bench.choice_of(
        {}, names=["chikusei_36", scenes.BUNDLED], masks=["published-2", "blobs"]
    )
    wanted, _ = bench.split("noiseless", {}, choice)
    assert {(c.scene, c.mask) for c in wanted} == {
        (scenes.BUNDLED, "published-2"), (scenes.BUNDLED, "blobs"), ("chikusei_36", "blobs")
    }  # fmt: skip
    line = "published-2 needs 101 columns, which chikusei_36 have not"
    assert suites.left_out(suites.SUITES["noiseless"], choice) == [line]
    narrow = replace(choice, scenes=("chikusei_36",), masks=("published-2",))
    with pytest.raises(BadValue, match=f"{line}: nothing is left"):
        bench.split("noiseless", {}, narrow)
    mine = tmp_path / "mine.npz"
    hydiff.write(hydiff.Cube(np.random.default_rng(0).random((3, 20, 60))), mine)
    choice = bench.choice_of({"mine": mine}, masks=["published-1", "published-3"])
    wanted, _ = bench.split("noiseless", {}, choice)
    assert {c.mask for c in wanted} == {"published-3"}


def test_the_columns_of_the_development_scenes_are_known(data_dir, monkeypatch):
    monkeypatch.setenv("HYDIFF_DATA", str(data_dir))
    names = [*scenes.available(), scenes.OFFLINE_TEST, scenes.QUICK]
    assert {n: scenes.columns(n) for n in names} == {n: scenes.load(n).shape[2] for n in names}
    assert set(scenes.DEVELOPMENT) == set(scenes.available()) - {scenes.BUNDLED}


def test_no_row_of_the_tables_has_a_mask_that_its_scene_cannot_hold():
    """Rows of masks that were shrunk to a scene are not shown under the mask's name."""
    for path in sorted(RESULTS.glob("*.csv")):
        for row in [] if path.name.endswith(".table.csv") else records.read(path):
            assert int(row["cols"]) >= columns_needed(row["mask"]), (path.name, row["scene"])
            if row["mask"] in PUBLISHED:
                observed = scenes.observed_of(row["mask"], (1, 1, int(row["cols"])))
                assert float(row["missing_share"]) == pytest.approx((~observed).mean(), abs=1e-4)


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
    with pytest.raises(BadValue, match=r"does not write \(b\)"):
        records.append(path, {}, ("a", "c"))


def test_known_cells_are_the_rows_read_back(tmp_path):
    @dataclass(frozen=True)
    class Cell:
        scene: str
        sigma_y: float
        seed: int

    path, cell = tmp_path / "cells.csv", Cell("a, b", 0.1, 3)
    assert records.known(path, Cell) == set()
    row = {"psnr": 1.0} | asdict(cell)
    records.append(path, row, list(row))
    assert records.known(path, Cell) == {cell}


def test_rows_of_an_earlier_version_get_its_new_columns(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, {"a": "x,y", "b": 1}, ("a", "b"))
    records.append(path, {"a": "z", "b": 2, "c": 3}, ("a", "c", "b"))
    assert records.read(path) == [{"a": "x,y", "c": "", "b": "1"}, {"a": "z", "c": "3", "b": "2"}]
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_holds_the_rows_with_their_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    choice = replace(QUICK_CHOICE, methods=("input", "bandmean"), masks=("published-3",))
    made = bench.run("noiseless", tmp_path, choice, parquet=True)
    table = parquet.read_table(made[-1])
    rows = records.read(tmp_path / "noiseless.csv")
    assert made[-1].name == "noiseless.parquet" and table.column_names == list(bench.COLUMNS)
    for name, kind in bench.KINDS.items():
        wanted = [kind(row[name]) if row[name] else None for row in rows]
        assert table.column(name).to_pylist() == wanted
    assert str(table.schema.field("missing_mpsnr").type) == "double"


def test_parquet_without_pyarrow_is_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadValue, match="pip install pyarrow"):
        bench.run("noiseless", tmp_path / "out", QUICK_CHOICE, parquet=True)
    assert not (tmp_path / "out").exists()


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
    done = inside(*arguments, folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    rows = records.read(path)
    assert rows[: len(before)] == before and len(rows) == 8
    assert len({tables.cell_of(row) for row in rows}) == 8
    assert "mean nothing" in done.stdout and "mean nothing" in done.stderr
    assert "mean nothing" in (tmp_path / "quick" / "noiseless.md").read_text()
    again = path.read_bytes()
    bench.run("noiseless", tmp_path / "quick", replace(QUICK_CHOICE, methods=("input", "bandmean")))
    assert path.read_bytes() == again


OWN = """
from hydiff.result import Step

def level(y, observed, sigma_y, settings, *, rng):
    yield Step(1, 1, y * observed + (1 - observed) * 0.5)
"""


def test_a_function_of_a_file_has_rows_and_new_ones_when_the_file_changes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    name = f"{path}:level"
    choice = bench.choice_of({}, methods=["bandmean", name], masks=["published-3"], quick=True)
    bench.run("noiseless", tmp_path, choice)
    first = records.read(tmp_path / "noiseless.csv")
    assert [row["method"] for row in first] == ["bandmean", name]
    path.write_text(OWN.replace("0.5", "0.4"))
    bench.run("noiseless", tmp_path, choice)
    rows = records.read(tmp_path / "noiseless.csv")
    assert len(rows) == 3 and rows[2]["method"] == name
    assert rows[2]["missing_mpsnr"] != rows[1]["missing_mpsnr"]
    with pytest.raises(BadValue, match="no function levl"):
        bench.choice_of({}, methods=[f"{path}:levl"])


def test_a_cell_of_another_table_is_not_run_again_unless_time_is_the_question(tmp_path):
    choice = replace(
        QUICK_CHOICE, methods=("input", "smooth"), masks=("published-3",), noise=(0.0,)
    )
    bench.run("noiseless", tmp_path, choice)
    reports = []
    only = replace(choice, methods=("smooth",))
    bench.run("best", tmp_path, only, report=lambda *step: reports.append(step))
    assert reports == []
    first, second = (records.read(tmp_path / f"{n}.csv") for n in ("noiseless", "best"))
    assert second == [row for row in first if row["method"] == "smooth"]
    assert len(bench.split("time", records.read_folder(tmp_path), choice)[1]) == len(first)


def test_a_run_reads_each_file_of_rows_once_and_its_own_for_the_tables(tmp_path, monkeypatch):
    choice = replace(QUICK_CHOICE, methods=("input", "bandmean"), masks=("published-3",))
    bench.run("noiseless", tmp_path, choice)
    calls, read = [], records.read
    monkeypatch.setattr(records, "read", lambda path: calls.append(path.name) or read(path))
    bench.run("emit", tmp_path, replace(choice, masks=("frames",)))
    assert sorted(calls) == ["emit.csv", "noiseless.csv", "noiseless.table.csv"]


def test_workers_give_the_same_rows(tmp_path):
    choice = replace(
        QUICK_CHOICE, methods=("bandmean", "smooth", "hir-diff"), masks=("published-3",)
    )
    rows = {}
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        bench.run("noiseless", folder, choice, workers=workers, device="cpu")
        found = records.read(folder / "noiseless.csv")
        rows[workers] = {row["method"]: row["all_mpsnr"] for row in found}
    assert rows[0] == rows[2] and len(rows[0]) == 3


def test_side_by_side_gives_the_results_of_one_after_the_other(monkeypatch):
    """Tuned cells too, whose settings then differ."""
    monkeypatch.setitem(tuning.TUNING, "hir-diff", [{"variation": 0.0}, {"fidelity": 0.5}])
    small = {"steps": 4, "channels": 8, "scales": 2}
    for method, settings in (("hydiff-ei", small), ("hir-diff", {"tuned": 1, "steps": 2})):
        group = [
            Cell(method, scenes.QUICK, mask, sigma, seed, json.dumps(settings))
            for mask, sigma, seed in (("stripes", 0.0, 0), ("blobs", 0.1, 1), ("blobs", 0.0, 2))
        ]
        together = cell_rows.run(group, device="cpu")
        for cell, (row, x) in zip(group, together, strict=True):
            [(solo, alone)] = cell_rows.run([cell], device="cpu")
            np.testing.assert_array_equal(x, alone)
            assert row["beside"] == 3 and solo["beside"] == 1
            other = ("seconds", "spent", "beside", "peak_mb", "notes")
            assert {k: v for k, v in row.items() if k not in other} == {
                k: v for k, v in solo.items() if k not in other
            }
            assert row["notes"].split(": {")[1:] == solo["notes"].split(": {")[1:]


def test_fits_of_different_length_end_side_by_side():
    truth = scenes.load(scenes.QUICK)[:, :20, :20]
    seen = np.broadcast_to(scenes.observed_of("width-3", truth.shape), truth.shape)
    cell = Cell("hydiff-ei", scenes.QUICK, "published-3")
    damaged = cells.Damaged(cell, cells.measure(truth, seen, 0.0, 0), seen)
    changes = [{"steps": n, "channels": 8, "scales": 2} for n in (3, 1, 5)]
    together = cells.fill_with([damaged] * 3, "cpu", changes)
    for found, changed in zip(together, changes, strict=True):
        (alone,) = cells.fill_with([damaged], "cpu", [changed])
        np.testing.assert_array_equal(found.raw, alone.raw)
        assert found.settings == alone.settings and found.notes == alone.notes


def test_what_is_alike_is_grouped_and_nothing_is_lost():
    choice = bench.choice_of(
        {},
        names=[scenes.BUNDLED, scenes.OFFLINE_TEST],
        methods=["smooth", "dhp"],
        seeds=3,
        tuned=True,
    )
    todo = [c for s in (suites.noiseless, suites.noisy) for c in s(choice)]
    for most in (1, 2, 8):
        groups = bench.grouped(todo, most)
        assert sorted(repr(c) for g in groups for c in g) == sorted(map(repr, todo))
        assert max(map(len, groups)) == most
        for group in groups:
            assert len({(c.method, c.settings, c.scene) for c in group}) == 1
            assert len(group) == 1 or group[0].learned
    lengths = [len(g) for g in bench.grouped([c for c in todo if c.own("tuned")], 8)]
    assert lengths and max(lengths) - min(lengths) <= 1


def test_a_cell_that_fails_is_named_and_the_others_are_run(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",), masks=("width-wide", "published-3"))
    for workers in (0, 1):
        folder = tmp_path / str(workers)
        with pytest.raises(BadValue, match=r"^1 cells failed .*'width-wide'.*: expected width-"):
            bench.run("noiseless", folder, choice, workers=workers)
        (row,) = records.read(folder / "noiseless.csv")
        assert row["mask"] == "published-3" and (folder / "noiseless.md").exists()


def test_the_outlook_counts_cells_and_estimates_their_time(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean", "rbf"))
    assert all(np.isnan(o.seconds) for o in bench.outlook("noiseless", tmp_path, choice))
    assert not list(tmp_path.iterdir())
    bench.run("noiseless", tmp_path, replace(choice, masks=("stripes",), methods=("bandmean",)))
    found = {o.name: o for o in bench.outlook("noiseless", tmp_path, choice)}
    (row,) = records.read(tmp_path / "noiseless.csv")
    assert found["bandmean"][1:3] == (2, 1)
    assert found["bandmean"].seconds == pytest.approx(float(row["spent"]))
    assert found["rbf"][1:3] == (2, 0) and np.isnan(found["rbf"].seconds)
    other = bench.outlook("emit", tmp_path, choice)  # times of a method elsewhere count too
    assert other[0].seconds == pytest.approx(float(row["spent"]))
    shown = inside("noiseless", "--dry-run", "--method", "rbf", folder=tmp_path)
    assert "in all: " in shown.stdout and "no time is known" in shown.stdout


def test_a_cell_that_would_outlast_the_minutes_is_not_started(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",))
    bench.run("noiseless", tmp_path, replace(choice, masks=("stripes",)))
    path = tmp_path / "noiseless.csv"
    (row,) = records.read(path)
    path.unlink()
    records.append(path, row | {"spent": 1e6}, bench.COLUMNS)
    bench.run("noiseless", tmp_path, choice, minutes=1)
    assert len(records.read(path)) == 1
    bench.run("noiseless", tmp_path, choice)
    assert len(records.read(path)) == 2


def test_no_cell_starts_after_the_minutes_are_over(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",))
    with pytest.raises(BadValue, match="no rows"):
        bench.run("noiseless", tmp_path, choice, minutes=0)
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


# Suites and tables


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_figure_of_the_paper_has_a_row_of_ours(name):
    choice = bench.choice_of({}, names=["indian_pines"])
    found = {(c.sigma_y, suites.row_name(c)) for c in suites.SUITES[name].cells(choice)}
    assert set(PAPER.get(name, {})) <= found
    assert any(row == suites.SUITES[name].reference for _, row in found)
    assert {c.method for c in suites.SUITES[name].cells(choice)} <= {
        *METHODS,
        *WITH_REFERENCE,
        "input",
        "auto",
    }


def test_the_help_text_names_every_table():
    text = CliRunner().invoke(app, ["bench", "--help"], terminal_width=500).output
    assert [name for name in suites.SUITES if name not in text.replace(",", " ").split()] == []


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_cell_of_a_suite_has_settings_that_its_method_takes(name):
    for choice in (
        QUICK_CHOICE,
        bench.choice_of({}, names=[scenes.BUNDLED], tuned=True, preset="fast"),
    ):
        listed = list(suites.SUITES[name].cells(choice))
        assert len(set(listed)) == len(listed) > 0
        assert all(cell_rows.settings_hash(c) for c in listed)


def test_slow_methods_are_limited_unless_the_caller_chooses():
    choice = suites.SuiteChoice((*suites.FEW, "other"))
    for suite in (suites.noiseless, suites.noisy):
        slow = [c for c in suite(choice) if c.method == "share"]
        few = {*suites.NAMED, *suites.SLOWEST.large}
        assert {c.scene for c in slow} == few and {c.seed for c in slow} == {0}
        assert {c.mask for c in slow} == {"published-3"}
    chosen = replace(choice, scenes=("other",), named=True, masks=("blobs",), seeds=2)
    slow = [c for c in suites.noiseless(chosen) if c.method == "share"]
    assert [(c.scene, c.mask, c.seed) for c in slow] == [("other", "blobs", s) for s in (0, 1)]


def test_the_table_of_times_runs_nothing_side_by_side(tmp_path):
    quick = replace(QUICK_CHOICE, methods=("hir-diff",), seeds=2)
    for name, beside in (("time", "1"), ("noiseless", "2")):
        folder = tmp_path / name
        bench.run(name, folder, replace(quick, masks=("published-3",)), device="cpu", beside=8)
        assert [r["beside"] for r in records.read(folder / f"{name}.csv")] == [beside] * 2


def test_the_table_of_times_has_the_paper_s_size():
    (scene,) = {c.scene for c in suites.time(suites.SuiteChoice(suites.FEW))}
    assert scenes.load(scene).shape == (128, 144, 144)


def test_every_peer_has_a_cell_at_every_noise_level():
    found = list(suites.noisy(suites.SuiteChoice(suites.FEW)))
    for method in suites.PEERS:
        assert {c.sigma_y for c in found if c.method == method} == {0.1, 0.2, 0.3}


def test_the_paper_s_method_and_its_parts_have_three_seeds_with_noise():
    choice = suites.SuiteChoice((*suites.FEW, "other"))
    for suite in (suites.noisy, suites.ei_ablation):
        for method in ("ei", "robust-ei", "hydiff-ei"):
            mine = [c for c in suite(choice) if c.method == method and c.sigma_y == 0.2]
            assert {c.seed for c in mine} == {0, 1, 2} and {c.scene for c in mine} == set(
                suites.FEW
            )


def test_a_preset_is_a_row_of_its_own_whatever_else_is_changed():
    for method, changed in (
        ("hydiff-ei", {"n_transforms": 1}), ("robust-ei", {"precision": "fp32"}),
        ("hydiff-ei", {"offline": {"crops": 50}}), ("dhp", {"steps": 2000}), ("dhp", {}),
    ):  # fmt: skip
        plain, fast = (
            suites.row_name(Cell(method, "a", "blobs", settings=json.dumps(changed | more)))
            for more in ({}, {"preset": "fast"})
        )
        assert fast == f"{plain} (fast)"


def test_fewer_iterations_are_a_row_of_their_own():
    found = list(suites.noisy(suites.SuiteChoice(suites.FEW)))
    names = {suites.row_name(c) for c in found}
    assert {"dhp", "dhp 2000", "r-dlrhyin", "r-dlrhyin 2000"} <= names


def test_every_reading_is_a_row_of_its_own():
    choice = suites.SuiteChoice(suites.FEW)
    at = {s: [c for c in suites.readings(choice) if c.sigma_y == s] for s in (0.0, 0.2)}
    names = {s: {suites.row_name(c) for c in found} for s, found in at.items()}
    assert {"hydiff-ei", "data_term observed", "x0_from after", "weighting full"} <= names[0.0]
    assert names[0.2] >= {"remeasure_noise False", "n_transforms 1", "noise_term sure"}
    for found in at.values():
        rows = [suites.row_name(c) for c in found if c.method == "hydiff-ei"]
        assert all(rows.count(name) == 3 * 3 for name in rows)  # scenes × seeds


def test_slow_peers_have_cells_of_the_paper_s_size():
    """144 × 144 on two scenes, one mask, one seed, without noise and with 0.2."""
    choice = suites.SuiteChoice(suites.FEW)
    large = {"indian_pines", "wdc10_144"}
    for method in ("dds2m", "share", "r-dlrhyin", "dhp", "hyper-ei"):
        names = ("ei-ablation",) if method == "hyper-ei" else ("noiseless", "noisy")
        mine = {c for name in names for c in bench.SUITES[name].cells(choice) if c.method == method}
        plain = [c for c in mine if c.mask == "published-3" and c.changes == {}]
        wanted = {(scene, sigma) for scene in large for sigma in (0.0, 0.2)}
        assert {(c.scene, c.sigma_y) for c in plain} >= wanted
        assert {c.seed for c in mine} == {0}
        if method != "dhp":
            extra = {(c.mask, c.sigma_y) for c in mine if c.scene in large}
            assert extra == set(LARGE_CASES)


def test_each_arithmetic_of_robust_ei_has_the_same_cells():
    found = list(suites.precision(suites.SuiteChoice(suites.FEW)))
    cases = {}
    for cell in found:
        cases.setdefault(cell.changes["precision"], []).append((cell.scene, cell.seed))
    assert set(cases) == {"fp32", "tf32", "bf16"} and len({*map(tuple, cases.values())}) == 1
    assert len({scene for scene, _ in cases["tf32"]}) == len(cases["tf32"]) / 3 == 3


def test_a_table_s_empty_cells_are_listed(tmp_path):
    """Before a run all of them, after it none; other defaults empty them again."""
    choice = replace(QUICK_CHOICE, methods=("bandmean", "smooth"), masks=("stripes",))
    (one, other) = bench.lacking("noiseless", tmp_path, choice)
    assert (one.name, one.sigma_y, one.cells, one.left) == ("bandmean", 0.0, 1, 1)
    assert other.scenes == {"indian_pines_quick": 1}
    part = ("--quick", "--mask", "stripes", "--method", "bandmean")
    assert inside("noiseless", *part, folder=tmp_path).exit_code == 0
    asked = inside("noiseless", *part, "--missing", folder=tmp_path)
    assert asked.exit_code == 0 and asked.stdout.endswith("0 cells have no row\n")
    both = inside("noiseless", *part, "--method", "smooth", "--missing", folder=tmp_path)
    assert both.exit_code == 1
    assert "noiseless: smooth, σ_y 0.0: 1 of 1 missing: indian_pines_quick 1" in both.stdout
    every = inside("all", *part, "--missing", folder=tmp_path)  # a cell is the same in all tables
    assert "noisy: bandmean" in every.stdout and "emit: bandmean" not in every.stdout
    path = tmp_path / "quick" / "noiseless.csv"
    (row,) = records.read(path)
    path.write_text(path.read_text().replace(row["settings_hash"], "0123456789ab"))
    assert inside("noiseless", *part, "--missing", folder=tmp_path).exit_code == 1


def test_rows_without_noise_keep_their_hash():
    """What was added to the settings since stands as it was."""
    home = Path(__file__).parents[1] / "benchmarks" / "results" / "bench"
    for name, methods in (
        ("noiseless", ("hydiff-ei", "dhp")),
        ("ei-ablation", ("ei", "robust-ei", "hydiff-ei")),
    ):
        rows = [r for r in records.read(home / f"{name}.csv") if r["sigma_y"] == "0.0"]
        mine = [r for r in rows if r["method"] in methods]
        assert mine
        assert all(r["settings_hash"] == cell_rows.settings_hash(tables.cell_of(r)) for r in mine)


def test_seven_transforms_with_noise_make_other_rows():
    clean, noisy = (Cell("hydiff-ei", "a", "blobs", s) for s in (0.0, 0.1))
    one, seven = (json.dumps({"n_transforms": n}) for n in (1, 7))
    hash_ = cell_rows.settings_hash
    assert hash_(clean) == hash_(replace(clean, settings=one)) != hash_(noisy)
    assert hash_(noisy) == hash_(replace(noisy, settings=seven))
    affine, shift = (
        hash_(replace(clean, settings=json.dumps({"transform": t}))) for t in ("affine", "shift")
    )
    assert affine != shift


@pytest.mark.parametrize("method", suites.PEERS)
def test_every_peer_has_a_tuned_row_in_the_paper_s_tables(method):
    choice = suites.SuiteChoice((*suites.FEW, "other"), tuned=True)
    for suite in (suites.noiseless, suites.noisy, suites.emit):
        mine = [c for c in suite(choice) if c.method == method and c.own("tuned")]
        assert len(mine) == 2 and len({c.sigma_y for c in mine}) == 1


def test_the_suite_of_the_default_fill_leaves_out_no_hard_case():
    choice = suites.SuiteChoice(("indian_pines", "other"))
    found = list(suites.best(choice))
    for level in (0.0, 0.1, 0.2, 0.3, "band"):
        for method in ("smooth", "auto", "anchored"):
            mine = {(c.scene, c.mask) for c in found if c.sigma_y == level and c.method == method}
            assert len(mine) == 2 * 10
    assert {c.method for c in found if c.sigma_y == 0} >= {"harmonic", "biharmonic", "hydiff-ei"}
    assert {c.method for c in found if c.sigma_y == 0.1} >= {"robust-ei", "subspace-fill"}
    only = replace(choice, noise=("band",), methods=("auto",), masks=("blobs",), scenes=("x",))
    assert [c.sigma_y for c in suites.best(only)] == ["band", "band"]


def test_seeds_are_for_what_is_random():
    choice = bench.choice_of(
        {}, names=[scenes.BUNDLED], methods=["smooth", "dhp"], masks=["blobs"], seeds=3
    )
    tables_ = (suites.noiseless(choice), suites.noisy(choice))
    noiseless, noisy = ([c for c in cells_ if c.settings == "{}"] for cells_ in tables_)
    assert [c.method for c in noiseless] == ["smooth", *["dhp"] * 3]
    assert len([c for c in noisy if c.sigma_y == 0.1]) == 6


def test_tuning_starts_from_settings_that_exist():
    for method, choices in tuning.TUNING.items():
        assert choices
        for changes in choices:
            settings = hydiff.methods.choose(method, None, changes).settings
            assert {name: getattr(settings, name) for name in changes} == changes


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


def test_without_rows_there_is_no_table(tmp_path):
    with pytest.raises(BadValue, match="no rows"):
        bench.write_tables("noisy", tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'noisy'"):
        bench.write_tables("nosy", tmp_path)


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
    assert lines == ["no figure frames-band-100: the scene has 12 bands", *left]
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


def test_of_a_cell_run_again_the_later_row_counts(tmp_path):
    bench.run("noiseless", tmp_path, replace(QUICK_CHOICE, methods=("bandmean",)))
    path = tmp_path / "noiseless.csv"
    rows = records.read(path)
    for row in rows:
        later = row | {"all_mpsnr": "1.0", "settings_hash": "of other defaults"}
        records.append(path, later, bench.COLUMNS)
    bench.write_tables("noiseless", tmp_path)
    with (tmp_path / "noiseless.table.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert line["MPSNR dB (all)"].startswith("1.00") and line["scenes · cells"].endswith(
        f"· {len(rows)}"
    )


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


# The command


def test_bad_input_gets_one_line_and_exit_code_2(tmp_path):
    cases = {
        ("nonsense",): "unknown table",
        ("noisy", "--scene", "mine=/absent.tif"): "no such file",
        ("noisy", "--scene", "atlantis", "--method", "bandmean"): "unknown scene",
        ("noisy", "--method", "smoth"): "did you mean",
        ("noisy", "--seeds", "0"): "expected 1 or more",
        ("noisy", "--sigma", "loud"): "expected numbers, or band",
        ("best", "--budget", "large"): "unknown budget",
        ("noisy", "--beside", "9", "--quick"): "expected 1 to 8",
        ("noisy", "--quick", "--method", "harmonic", "--method", "smooth"): "no run of harmonic",
        ("alpha", "--quick", "--method", "smooth"): "has no run",
        ("use", "--scene", "chikusei_36"): "unknown scene" if not DATA.exists() else "has no run",
        ("noisy", "--quick", "--limit-minutes", "nan"): "expected 0 or more",
        ("noisy", "--scene", "x=a.npy", "--scene", "x=b.npy"): "more than once",
        ("noisy", "--scene", "=a.npy"): "expected name=path",
    }
    for arguments, message in cases.items():
        outcome = inside(*arguments, folder=tmp_path)
        assert isinstance(outcome.exception, HydiffError) and message in str(outcome.exception)
        assert "\n" not in str(outcome.exception)
    done = command("nonsense", folder=tmp_path)  # the same through the front door
    assert done.returncode == 2 and "unknown table" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(Path(tmp_path).glob("*.csv"))


def test_a_bench_runs_where_hydiff_is_only_on_the_path(tmp_path):
    """As on a machine where nothing can be installed: no metadata, and beside torch, numpy and
    scipy few other packages."""
    site = tmp_path / "site"
    site.mkdir()
    absent = ("hydiff", "_hydiff", "__editable__", "rasterio", "zarr", "dask", "pyarrow", "panel")
    absent += ("xarray", "spectral", "distributed")
    for entry in Path(np.__file__).parents[1].iterdir():
        if not entry.name.startswith(absent) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    code = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]\n"
    code += "from hydiff.cli import main; main()"
    line = [sys.executable, "-S", "-c", code, str(ROOT / "src"), str(site)]
    line += ["bench", "best", "--quick", "--device", "cpu", "-o", str(tmp_path / "out")]
    line += ["--sigma", "band", "--mask", "published-3", "--method", "auto", "--budget", "fast"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = records.read(tmp_path / "out" / "quick" / "best.csv")
    assert [r["sigma_y"] for r in rows] == ["band"] * 2  # with σ given and estimated
    table = (tmp_path / "out" / "quick" / "best.md").read_text()
    assert "σ_y band" in done.stderr and "**σ_y = band**" in table


def test_a_bench_that_cannot_work_stops_early(tmp_path):
    masks = tuple(f"width-{letter}" for letter in "abcdefghijkl")
    choice = replace(QUICK_CHOICE, methods=("bandmean",), masks=(*masks, "published-3"))
    with pytest.raises(BadValue, match=r"^8 cells failed .*none worked"):
        bench.run("noiseless", tmp_path, choice)
    assert not (tmp_path / "noiseless.csv").exists()
