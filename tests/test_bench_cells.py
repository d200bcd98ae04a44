"""The cells of the benchmark: scenes, measurements, tuning, and the suites that list them."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hydiff
from conftest import ROOT
from hydiff import auto, bench
from hydiff.auto import candidates
from hydiff.bench import (
    cell_rows,
    cells,
    machine,
    records,
    reliability,
    scenes,
    suites,
    tables,
    tuning,
)
from hydiff.bench.cells import Cell
from hydiff.bench.choice import LARGE_CASES
from hydiff.bench.published import PAPER
from hydiff.errors import BadValue
from hydiff.gaps.mask import PUBLISHED, columns_needed
from hydiff.methods import METHODS, WITH_REFERENCE

RESULTS = ROOT / "benchmarks" / "results" / "bench"
QUICK_CHOICE = bench.choice_of({}, quick=True)


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
    monkeypatch.setitem(tuning.TUNING, "dhp", [{"lr": 1e9}])
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
    line = "published-2 needs 101 columns; narrower: chikusei_36"
    assert suites.left_out(suites.SUITES["noiseless"], choice) == [line]
    narrow = replace(choice, scenes=("chikusei_36",), masks=("published-2",))
    with pytest.raises(
        BadValue, match=f"^nothing is left to run: {line}. Give .* `mask='stripes'`$"
    ):
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


# Suites


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
