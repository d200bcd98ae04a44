"""Laws of `auto`: what it may look at, how it blends, what it promises, and that it repeats."""

import copy
import json

import numpy as np
import pytest

import hydiff
from errors_on_folds import ONE_CLASS, trial
from hydiff import auto, metrics
from hydiff.auto import (
    Budget,
    Candidate,
    blend,
    candidates,
    classes,
    crew,
    folds,
    intervals,
    trials,
    usual,
)
from hydiff.auto.planning import plan_trials
from hydiff.cube import Cube
from hydiff.errors import BadValue, CubeFormatError
from hydiff.gaps.mask import columns_needed, make_mask, thickness
from hydiff.io import provenance
from hydiff.learn import prior_weights
from hydiff.maths.noise import is_estimable
from hydiff.maths.variogram import REACHES
from hydiff.methods import estimate as estimation
from hydiff.methods.estimate import Job, estimate, estimate_at, estimate_each
from hydiff.methods.smooth import kriged
from hydiff.workers import blas

JOB = Job(0, "cpu")


@pytest.fixture(autouse=True)
def _without_trained_weights(tmp_path_factory, monkeypatch):
    """The candidates of a budget alone; tests/test_prior.py is about the network beside them."""
    monkeypatch.setattr(prior_weights, "FOLDER", tmp_path_factory.mktemp("no-weights"))


@pytest.fixture(scope="module")
def scene():
    """(10, 48, 48): smooth fields of several orders and some texture, in file units."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    maps = np.stack([gaussian_filter(rng.standard_normal((48, 48)), w) * w for w in (1, 2, 4)])
    cube = np.tensordot(rng.random((10, 3)), maps, 1) + 0.01 * rng.standard_normal((10, 48, 48))
    values = 1000 + 400 * cube
    values.flags.writeable = False  # all tests share it
    return values


@pytest.fixture(scope="module")
def gaps():
    observed = np.ones((48, 48), bool)
    observed[:, 10:14] = observed[:, 30:33] = observed[20:27, 38:45] = False
    observed.flags.writeable = False
    return observed


@pytest.fixture(scope="module")
def default(scene, gaps, tmp_path_factory):
    """The default fill of that scene: several tests look at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_weights, "FOLDER", tmp_path_factory.mktemp("no-weights"))
        return hydiff.fill(scene, gaps)


# ── transplanted gaps ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(30, 30), (24, 36)])
def test_a_transplanted_gap_keeps_its_own_geometry(turns, shape):
    missing = np.zeros(shape, bool)
    missing[8:13, 9:16] = missing[10, 16] = True
    copy = folds.transplanted(missing, folds.Placement(turns, True, 3, -2))
    if shape[0] == shape[1] or turns % 2 == 0:
        assert copy.sum() == missing.sum()
        assert sorted(thickness(copy)[copy]) == sorted(thickness(missing)[missing])
    assert copy.shape == shape


def test_placements_are_undone_by_their_opposites(rng):
    missing = rng.random((20, 20)) > 0.5
    there = folds.transplanted(missing, folds.Placement(1, False, 0, 0))
    assert np.array_equal(folds.transplanted(there, folds.Placement(3, False, 0, 0)), missing)


@pytest.mark.parametrize("kind", ["stripes", "blobs", "columns", "pixels", "published-4"])
def test_folds_hide_observed_entries_only_and_leave_most(kind):
    cols = max(48, columns_needed(kind))
    observed = make_mask(kind, (6, 48, cols), None, np.random.default_rng(0))
    found = folds.folds(observed, 8, np.random.default_rng(1))
    assert len(found) >= 6
    for hidden in found:
        assert hidden.any() and not (hidden & ~observed).any()
        assert hidden.sum() < 0.25 * observed.sum()
    again = folds.folds(observed, 8, np.random.default_rng(1))
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_copies_keep_away_from_a_single_gap():
    observed = np.ones((60, 60), bool)
    observed[20:26, 20:26] = False
    reach = np.zeros((60, 60), bool)
    reach[15:31, 15:31] = True
    for hidden in folds.folds(observed, 8, np.random.default_rng(0)):
        assert not (hidden & reach).any() and hidden.sum() <= 36


@pytest.mark.parametrize("turned", [False, True])
def test_where_bands_differ_a_fold_hides_whole_lines_and_not_all_of_a_copy(turned):
    """A band that lost a whole copy would tell of a harder scene than this one."""
    missing = ~make_mask("columns", (12, 48, 48), None, np.random.default_rng(0))
    missing = missing.swapaxes(1, 2) if turned else missing
    for hidden in folds.folds(~missing, 4, np.random.default_rng(2)):
        lines = hidden.any(axis=2 if turned else 1)
        whole = (hidden | missing).all(axis=2 if turned else 1)
        assert np.array_equal(lines & whole, lines) and lines.any()
        assert hidden.sum(axis=(1, 2)).max() < 0.6 * missing.sum(axis=(1, 2)).max()


def test_importance_gives_the_hidden_entries_the_targets_distribution(rng):
    mine, theirs = rng.integers(0, 3, 5000), rng.choice(3, 5000, p=[0.5, 0.3, 0.2])
    weight = classes.importance(mine, np.bincount(theirs, minlength=3))
    share = np.bincount(mine, weight, 3) / weight.sum()
    np.testing.assert_allclose(share, np.bincount(theirs) / 5000, atol=1e-9)


# ── what candidates share ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", ["plain", "noisy", "partial", "detectors and bad bands"])
def test_sharing_the_work_changes_no_number(case, scene, gaps):
    """Together is as alone; of some pixels is as of all."""
    seen = np.broadcast_to(gaps, scene.shape).copy()
    cube, sigma_y = Cube(scene), 0.0
    if case == "noisy":
        sigma_y = 20.0
    if case == "partial":
        for band in range(len(scene)):
            seen[band, :, 3 * band : 3 * band + 2] = False
    if case == "detectors and bad bands":
        good = np.arange(len(scene)) != 4
        cube = Cube(scene, good=good, attrs={"detector": ["a"] * 5 + ["b"] * 5})
    few = Candidate("few components", "smooth", {"components": 3})
    several = [candidates.chosen(c) for c in (*candidates.CLASSICAL, few, *candidates.SPECTRAL)]
    alone = [estimate(cube, seen, one, sigma_y, JOB) for one in several]
    together = estimate_each(cube, seen, several, sigma_y, JOB)
    at = np.zeros(gaps.shape, bool)
    at[5:30, 8:40] = True
    some = estimate_at(cube, seen, several, sigma_y, JOB, at)
    for one, other, (values, sigma) in zip(alone, together, some, strict=True):
        assert one.values.tobytes() == other.values.tobytes()
        assert one.notes == other.notes
        np.testing.assert_array_equal(sigma, one.sigma_y)
        bands = cube.good_bands
        np.testing.assert_allclose(values[bands], one.values[:, at][bands], rtol=1e-12)


def test_candidates_that_krige_alike_share_their_coordinates(scene, gaps):
    seen, shared = np.broadcast_to(gaps, scene.shape), {}
    few = Candidate("few components", "smooth", {"components": 3})
    several = [candidates.chosen(c) for c in (*candidates.CLASSICAL, few)]
    tasks = estimation._tasks(Cube(scene), seen, several, 0.0, JOB)
    given = [estimation._given(task, shared)["given"] for task in tasks]
    assert given[0] is given[1] is given[2] is not given[3]
    for c, settings in zip(given, [one.settings for one in several], strict=True):
        kriged(c, settings, ~gaps)
    assert np.inf in given[0].membranes  # one factor for all orders
    assert given[0].membranes.keys() <= set(REACHES)


# ── what it may look at ──────────────────────────────────────────────────────────────────────────


def test_hidden_values_reach_neither_scale_nor_components(scene, gaps):
    """Poison what a fold hides: not one bit of the estimate may change."""
    seen = np.broadcast_to(gaps, scene.shape)
    fold = folds.folds_of(Cube(scene), seen, 8, 0)[0]
    poisoned = np.where(fold, 1e9, scene)
    for sigma_y in (0.0, "auto"):
        one, other = (
            estimate(Cube(v), seen & ~fold, candidates.chosen(auto.SMOOTH), sigma_y, JOB).values
            for v in (scene, poisoned)
        )
        assert np.array_equal(one, other)


def test_the_decision_does_not_see_the_gaps(scene, gaps, rng):
    other = np.where(gaps, scene, 1e6 * rng.random(scene.shape))
    one, two = (hydiff.fill(v, gaps, budget="fast") for v in (scene, other))
    assert one.recipe == two.recipe and np.array_equal(one.values, two.values)


# ── blending ─────────────────────────────────────────────────────────────────────────────────────


def test_weights_are_convex(default):
    weights = np.asarray(default.recipe["weights"])
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1)


def test_the_simplex_minimum_is_that_of_a_search(rng):
    B = rng.standard_normal((3, 3))
    A = B @ B.T
    w = blend.simplex(A)
    trials = rng.dirichlet(np.ones(3), 20000)
    assert w @ A @ w <= np.einsum("ni,ij,nj->n", trials, A, trials).min() + 1e-4


def test_one_candidate_is_that_candidate(scene, gaps, monkeypatch):
    only = Budget((Candidate("only", "harmonic"),), 4, 0)
    monkeypatch.setitem(auto.BUDGETS, "fast", only)
    found = hydiff.fill(scene, gaps, budget="fast")
    alone = hydiff.fill(scene, gaps, method="harmonic")
    np.testing.assert_allclose(found.values, alone.values, rtol=1e-12)


def test_a_better_candidate_is_found_and_a_worse_one_left(scene, gaps, monkeypatch):
    poor, good = Candidate("mean", "bandmean"), auto.SMOOTH
    smooth = hydiff.fill(scene, gaps, method="smooth").values
    for order in ((poor, good), (good, poor)):
        monkeypatch.setitem(auto.BUDGETS, "fast", Budget(order, 8, 0))
        found = hydiff.fill(scene, gaps, budget="fast")
        assert found.recipe["candidates"][order.index(good)]["share"] > 0.8
        error = np.abs(found.values - scene).mean() / np.abs(smooth - scene).mean()
        assert error < 1.1


@pytest.mark.parametrize("cores", [1, 4])
def test_trials_take_one_thread_of_linear_algebra_each(scene, gaps, monkeypatch, cores):
    """Beside children, too, what is done here must not take their cores."""
    seen = []

    def looked(*args):
        seen.extend(library.get() for library in blas.libraries())
        return original(*args)

    original = crew.own_fits
    monkeypatch.setattr(crew, "own_fits", looked)
    monkeypatch.setattr(crew, "cores", lambda: cores)
    monkeypatch.setattr(crew, "WORTHWHILE", 0)
    before = [library.get() for library in blas.libraries()]
    hydiff.fill(scene, gaps, budget="fast", device="cpu")
    assert set(seen) <= {1} and [library.get() for library in blas.libraries()] == before


def test_a_costly_candidate_is_averaged_over_its_folds(scene, gaps, monkeypatch):
    costly = Candidate("costly", "harmonic", {}, crossfit=True)
    monkeypatch.setitem(auto.BUDGETS, "fast", Budget((auto.SMOOTH, costly), 4, 2))
    result = hydiff.fill(scene, gaps, budget="fast")
    entry = result.recipe["candidates"][1]
    assert entry["fits"] == 2
    again = hydiff.fill(scene, gaps, recipe=result.recipe)
    assert again.values.tobytes() == result.values.tobytes()


# ── repeating ────────────────────────────────────────────────────────────────────────────────────


def test_a_recipe_replays_to_the_same_bytes(scene, gaps, default, tmp_path):
    result = default
    made = provenance.save(result, tmp_path / "out.npy", unmarked=True)
    assert [p.name for p in made][-3:] == [
        f"out.npy.{k}" for k in ("flags.npz", "sigma.npz", "fill.json")
    ]
    again = hydiff.fill(scene, gaps, recipe=tmp_path / "out.npy.fill.json")
    assert again.values.tobytes() == result.values.tobytes()
    assert again.sigma.tobytes() == result.sigma.tobytes()
    other = hydiff.fill(scene[:7, :40, ::-1], gaps[:40, ::-1], recipe=result.recipe)
    assert np.isfinite(other.values).all() and np.isfinite(other.sigma[other.filled]).all()
    assert auto.ELSEWHERE in other.notes and auto.ELSEWHERE not in result.notes


@pytest.fixture(scope="module")
def with_a_network(scene, gaps, tmp_path_factory):
    """A recipe of which something fitted on folds is a part, as a network would be."""
    costly = Candidate("costly", "smooth", {"s": 1.25}, crossfit=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_weights, "FOLDER", tmp_path_factory.mktemp("no-weights"))
        patch.setitem(auto.BUDGETS, "fast", Budget((auto.SMOOTH, costly), 4, 2))
        recipe = hydiff.fill(scene, gaps, budget="fast").recipe
        hydiff.fill(scene, gaps, recipe=recipe)  # it can be followed
    return recipe


def test_a_recipe_with_a_network_fills_gaps_too_small_for_folds(with_a_network, scene, gaps):
    small = np.ones_like(gaps)
    small[20:23, 20:23] = False
    found = hydiff.fill(scene, small, recipe=with_a_network)
    assert np.isfinite(found.values).all() and found.filled.sum() == 9 * len(scene)


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r["candidates"][1].update(fits=0),
        lambda r: r["candidates"][1].update(fits=5),
        lambda r: r["candidates"][1].update(of=folds.TRIALS + 1),
        lambda r: r["candidates"][1].update(seed=-1),
        lambda r: r["candidates"][0].update(fits=1, of=1, seed=0),
        lambda r: r["errors"].update(angle=float("nan")),
        lambda r: r["errors"].update(angle=-1),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(with_a_network, scene, gaps, edit):
    recipe = copy.deepcopy(with_a_network)
    edit(recipe)
    with pytest.raises(BadValue, match="expected a recipe"):
        hydiff.fill(scene, gaps, recipe=recipe)


@pytest.mark.parametrize("lacking", ["slopes", "angle"])
def test_a_recipe_may_lack_what_it_could_not_tell(scene, gaps, default, lacking):
    recipe = copy.deepcopy(default.recipe)
    del recipe["errors"][lacking]
    found = hydiff.fill(scene, gaps, recipe=recipe)
    assert "sam" not in found.expected and (found.sigma is None) == (lacking == "slopes")


def test_nothing_to_fill_and_nothing_to_gain_are_reported_as_such(scene, gaps):
    whole = hydiff.fill(np.where(gaps, scene, np.nan), budget="fast", max_gap=1)
    assert "there is nothing to fill" in " ".join(whole.notes) and not whole.filled.any()
    constant = hydiff.fill(np.ones_like(scene), gaps, budget="fast")
    assert "0.0 ± 0.0 % less squared error" in constant.recipe["why"]


def test_progress_can_end_the_trials(scene, gaps):
    seen = []
    found = hydiff.fill(
        scene, gaps, budget="fast", progress=lambda s: seen.append(s) or len(seen) == 3
    )
    assert len(seen) == 3 and found.recipe["folds"] == 3 and np.isfinite(found.values).all()


def test_bad_bands_tell_nothing(scene, gaps, rng):
    """However wild they are: neither what lies around a gap nor the promises change."""
    every = np.arange(len(scene)) % 2 == 0
    wild = np.where(every[:, None, None], scene, 1e4 * rng.standard_normal(scene.shape))
    tame = np.where(every[:, None, None], scene, 1.0)
    one, two = (
        hydiff.fill(Cube(values, good=every), gaps, budget="fast", outside="fill")
        for values in (wild, tame)
    )
    assert one.recipe == two.recipe and one.expected == two.expected
    np.testing.assert_array_equal(one.sigma[every], two.sigma[every])


@pytest.mark.parametrize("content", ["{}", "[1]", "no json", '{"recipe": {"weights": []}}'])
def test_what_is_no_recipe_is_refused(content, scene, gaps, tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(content)
    with pytest.raises(CubeFormatError, match="recipe"):
        hydiff.fill(scene, gaps, recipe=path)


def test_settings_and_limits_without_meaning_are_refused(scene, gaps):
    for wrong in ({"s": 1.5}, {"max_error": -1}, {"method": "smooth", "max_error": 1.0}):
        with pytest.raises(BadValue):
            hydiff.fill(scene, gaps, **wrong)
    with pytest.raises(hydiff.HydiffError, match="fast"):
        hydiff.fill(scene, gaps, budget="fsat")


# ── error bars ───────────────────────────────────────────────────────────────────────────────────


def test_error_bars_cover_and_predict(scene, gaps, default):
    result = default
    assert np.array_equal(np.isfinite(result.sigma), result.filled)
    found = metrics.calibration(result.values, scene, result.sigma)
    assert abs(found.covered_80 - 0.8) < 0.15 and abs(found.covered_95 - 0.95) < 0.1
    assert found.crps < 1.05 * found.crps_constant
    true = metrics.score(result.values, scene, ~gaps).missing
    assert result.expected["nrmse"] == pytest.approx(true["nrmse"], rel=0.4)
    assert abs(result.expected["mpsnr"] - true["mpsnr"]) < 3


@pytest.mark.parametrize("level", [0.5, 6.0])
def test_the_noise_of_hidden_entries_is_not_taken_for_error(scene, gaps, rng, level):
    """Bars tell how far the fill is off the clean cube, whose noise they never see."""
    sigma = level * scene.std()
    noisy = scene + sigma * rng.standard_normal(scene.shape)
    result = hydiff.fill(noisy, gaps, sigma_y=sigma, budget="fast")
    missing = ~np.broadcast_to(gaps, scene.shape)
    error = np.sqrt(np.mean((result.values - scene)[missing] ** 2))
    message = np.sqrt(np.mean(result.sigma[missing] ** 2))
    assert 0.5 < message / error < 1.8
    truly = np.sqrt(np.mean((result.values - scene)[missing] ** 2)) / scene.std()
    assert result.expected["nrmse"] == pytest.approx(truly, rel=0.6)


def test_nothing_is_promised_that_could_not_be_tried(rng):
    observed = np.zeros((20, 20), bool)
    observed[0, 0] = True
    result = hydiff.fill(rng.random((4, 20, 20)), observed)
    assert result.sigma is None and result.expected == {}
    assert any("no error bars" in note for note in result.notes)


def test_error_bars_are_in_the_unit_of_the_file(scene, gaps, default):
    one, other = default, hydiff.fill(0.01 * scene - 3, gaps)
    np.testing.assert_allclose(other.sigma, 0.01 * one.sigma, rtol=1e-6)
    assert other.expected["nrmse"] == pytest.approx(one.expected["nrmse"])


def test_stored_error_bars_come_back(default, tmp_path):
    path = tmp_path / "filled.tif"
    default.save(path, compact=True)
    back = provenance.companions(path, default.filled.shape)["sigma"]
    np.testing.assert_allclose(back, default.sigma, rtol=2e-3, atol=1e-4 * np.nanmax(default.sigma))
    small = path.with_name("filled.tif.sigma.npz").stat().st_size
    assert small < 2.3 * default.filled.sum() + 1000


def test_calibration_of_errors_that_are_what_they_claim(rng):
    truth, sigma = np.zeros((4, 100, 100)), rng.uniform(0.5, 2, (4, 100, 100))
    x = sigma * rng.standard_normal(sigma.shape)
    found = metrics.calibration(x, truth, sigma)
    assert found[:3] == pytest.approx((0.5, 0.8, 0.95), abs=0.01)
    assert found.crps == pytest.approx(sigma.mean() / np.sqrt(np.pi), rel=0.02)
    assert found.crps < found.crps_constant
    doubled = metrics.calibration(x, truth, 2 * sigma)
    assert doubled.covered_50 > 0.7 and doubled.crps > found.crps


def test_networks_that_find_no_memory_are_left_out_and_it_is_reported(scene, monkeypatch):
    costly = Candidate("network", "hydiff-ei", {"steps": 2}, crossfit=True)

    def too_large(*_):
        raise BadValue("out of memory on device cuda; set fewer channels")

    observed = make_mask("stripes", scene.shape, 0.2, np.random.default_rng(0))
    monkeypatch.setattr("hydiff.auto.crew.crossfit", too_large)
    monkeypatch.setitem(auto.BUDGETS, "normal", Budget(candidates.CLASSICAL, 4, 0))
    without = hydiff.fill(scene, observed, device="cpu")
    monkeypatch.setitem(auto.BUDGETS, "normal", Budget((*candidates.CLASSICAL, costly), 4, 2))
    result = hydiff.fill(scene, observed, device="cpu")
    assert "too little memory" in result.recipe["why"]
    np.testing.assert_array_equal(result.values, without.values)


def test_what_cannot_be_filled_well_is_reported_and_left_on_request(rng):
    cube, observed = rng.random((4, 48, 48)), np.ones((48, 48), bool)
    observed[10:38] = False  # white noise behind a wide frame
    message = hydiff.fill(cube, observed, budget="fast")
    assert any("hardly better" in note for note in message.notes)
    left = hydiff.fill(cube, observed, budget="fast", max_error=0.5)
    assert not left.filled.any() and np.isnan(left.values[:, 12:36]).all()
    assert left.left == {"expected error above 0.5": 4 * 28 * 48}
    assert left.expected == {} and not any("hardly better" in note for note in left.notes)
    json.dumps(provenance.record(left))


def test_scores_to_expect_are_those_of_what_is_filled(scene):
    observed = make_mask("blobs", scene.shape, 0.3, np.random.default_rng(0))
    everything = hydiff.fill(scene, observed, budget="fast")
    spread = np.array([band[observed].std() for band in scene])[:, None, None]
    limit = float(np.nanmedian(everything.sigma / spread))
    some = hydiff.fill(scene, observed, budget="fast", max_error=limit)
    assert 0 < some.filled.sum() < everything.filled.sum()
    assert some.expected["nrmse"] < everything.expected["nrmse"]


def test_bands_of_their_own_gaps_are_filled_from_the_other_bands(scene):
    observed = make_mask("columns", scene.shape, 0.2, np.random.default_rng(0))
    result = hydiff.fill(scene, observed)
    harmonic = hydiff.fill(scene, observed, method="harmonic")
    gain = [metrics.score(r.values, scene, ~observed).missing["mpsnr"] for r in (result, harmonic)]
    assert gain[0] > gain[1] + 6


def test_what_is_promised_for_bands_with_gaps_of_their_own_is_about_right(scene):
    """The candidates there are very unlike, which says nothing of the better one."""
    observed = make_mask("pixels", scene.shape, 0.2, np.random.default_rng(0))
    result = hydiff.fill(scene, observed, budget="fast")
    true = metrics.score(result.values, scene, ~observed).missing["nrmse"]
    assert result.expected["nrmse"] == pytest.approx(true, rel=0.4)


def test_pixels_without_any_band_are_filled_beside_partial_ones(scene):
    observed = make_mask("columns", scene.shape, 0.2, np.random.default_rng(0)).copy()
    observed[:, 20:24, 20:24] = False
    result = hydiff.fill(scene, observed, budget="fast")
    assert np.isfinite(result.values).all() and not result.left
    assert np.isfinite(result.sigma[result.filled]).all()


def test_a_band_without_data_does_not_change_how_the_others_are_filled(scene):
    """It would make every pixel one that keeps some of its bands."""
    observed = make_mask("blobs", scene.shape, 0.3, np.random.default_rng(0))
    seen = np.broadcast_to(observed, scene.shape).copy()
    seen[3] = False
    dead, whole = (
        hydiff.fill(v, o, budget="fast")
        for v, o in ((scene, seen), (np.delete(scene, 3, 0), observed))
    )
    names = [[c["name"] for c in r.recipe["candidates"]] for r in (dead, whole)]
    assert names[0] == names[1] and "nan" not in dead.recipe["why"]
    assert dead.expected["nrmse"] == pytest.approx(whole.expected["nrmse"], rel=0.1)


def test_what_a_candidate_cannot_tell_the_first_tells_in_its_place(scene):
    observed = make_mask("columns", scene.shape, 0.2, np.random.default_rng(0)).copy()
    observed[:, 10:20, 10:20] = False
    fold = np.zeros(scene.shape, bool)
    fold[:, 30:34, 30:34] = observed[:, 30:34, 30:34]  # whole pixels: nothing along the bands
    job = Job(0, "cpu")
    window = trials.BareWindow(Cube(scene), observed)
    found = trials.trial_of(window, fold, candidates.SPECTRAL, np.zeros(len(scene)), job)
    assert np.isfinite(found.residual).all()
    np.testing.assert_array_equal(found.residual[0], found.residual[1])


def folds_with_a_network(rng, network, n=4000, **how):
    """Six trials of a classical candidate off by 1, the first three with a network's errors."""
    some = []
    for fold in range(6):
        error = rng.standard_normal(n)
        other = network(error, rng.standard_normal(n)) if fold < 3 else np.full(n, np.nan)
        some.append(trial(np.stack([error, other])))
    both = [Candidate("one", "smooth"), Candidate("network", "anchored", crossfit=True)]
    return some, blend.weights_of(some, ONE_CLASS, both, 0, **how)


def test_a_network_enters_at_its_usual_share_and_leaves_that_for_a_proven_gain(rng):
    scale = iter((0.05, 5.0, 0.3))  # a fold each: nothing follows from that
    for network, share in (
        (lambda e, fresh: fresh, 0.5),  # as good, and independent: half is best
        (lambda e, fresh: 0.1 * fresh, 1.0),
        (lambda e, fresh: 10 * fresh, 0.0),
        (lambda e, fresh: next(scale) * fresh, blend.NETWORKS),
    ):
        weights = folds_with_a_network(rng, network)[1]
        np.testing.assert_allclose(weights.all[1, 0], share, atol=0.03)


def test_a_network_that_starts_from_nothing_enters_for_a_proven_gain(rng):
    scale = iter((0.05, 5.0, 0.3))
    for network, share in (
        (lambda e, fresh: 0.1 * fresh, 1.0),
        (lambda e, fresh: next(scale) * fresh, 0.0),
    ):
        weights = folds_with_a_network(rng, network, from_nothing=True)[1]
        np.testing.assert_allclose(weights.all[1, 0], share, atol=0.03)


PRETRAINED = Candidate("prior", "prior", {"size": "full"})


def shares_by_folds(rng, scales, network=PRETRAINED):
    """The weights where a network's independent errors have these sizes on the folds; those of the
    classical candidate have size 1."""
    some = [trial(rng.standard_normal((2, 4000)) * [[1.0], [scale]]) for scale in scales]
    return blend.weights_of(some, ONE_CLASS, [Candidate("one", "smooth"), network], 0)


def test_a_pretrained_network_starts_with_half_where_its_gain_is_unlikely(rng):
    """On folds that disagree; they must say that it is likely to help before it gets its share."""
    for scales, share, said in (
        ((0.05, 1.3, 0.8, 0.7, 0.9, 1.2), blend.ELSEWHERE, "prior with 90 % gave"),
        ((0.05, 5.0, 0.3, 0.2, 4.0, 3.0), blend.IN_DOUBT, "prior with 50 % gave"),
    ):
        weights = shares_by_folds(rng, scales)
        np.testing.assert_allclose(weights.all[1], share)
        assert said in weights.why and "prior with 90 % gave" in weights.why
        assert ("leave open whether the network helps" in weights.reason) == (share == 0.5)
    own = Candidate("network", "anchored", crossfit=True)  # trained on the folds themselves
    weights = shares_by_folds(rng, (0.05, 5.0, 0.3, 0.2, 4.0, 3.0), own)
    np.testing.assert_allclose(weights.all[1], blend.NETWORKS)


def test_shares_change_only_as_deep_in_the_gaps_as_two_folds_reach(rng):
    n = 4000
    some = [
        trial(
            rng.standard_normal((2, n)) * [[1.0], [0.1]],
            distance=rng.choice([0, 1, 3] if fold else [0, 1, 2, 3], n),
        )
        for fold in range(6)
    ]
    both = [Candidate("one", "smooth"), Candidate("two", "smooth", {"s": 2.0})]
    share = blend.weights_of(some, ONE_CLASS, both, 0).plain[1]
    assert (share[:2] > 0.95).all()
    # one fold reaches class 2; class 3 lies behind it, however often it was hidden
    np.testing.assert_array_equal(share[2:], 0.0)
    some[1] = some[0]
    assert (blend.weights_of(some, ONE_CLASS, both, 0).plain[1, :4] > 0.95).all()


def test_shares_are_said_to_vary_where_they_do(rng):
    for scale, vary in ((0.1, True), (1.0, False)):  # the first leaves the share for a gain
        some = [
            trial(
                rng.standard_normal((2, 4000)) * [[1.0], [scale]],
                distance=rng.choice([0] if fold else [0, 1], 4000),
            )
            for fold in range(4)
        ]
        both = [Candidate("one", "smooth"), Candidate("two", "prior", {"size": "full"})]
        usual = some if vary else [t._replace(residual=t.residual[:1].repeat(2, 0)) for t in some]
        weights = blend.weights_of(usual, ONE_CLASS, both, 0)
        assert bool(np.ptp(weights.all, axis=(1, 2)).any()) == vary
        assert ("shares vary" in weights.why) == vary


def test_what_a_network_gains_is_promised(rng):
    some, weights = folds_with_a_network(rng, lambda e, fresh: 0.5 * e)
    alone = weights._replace(all=weights.plain)
    with_it, without = (intervals.errors_of(some, w, ONE_CLASS, 1).level for w in (weights, alone))
    assert np.exp(with_it - without) == pytest.approx(0.25, rel=0.05)


def test_what_few_folds_say_is_drawn_to_the_usual_as_they_differ():
    assert usual.drawn(np.full(3, -1.4), -0.2, 0.25) == pytest.approx(-1.4)  # all agree
    assert usual.drawn(np.array([-9.0, 0.0, 9.0]), -0.2, 0.25) == pytest.approx(-0.2, abs=0.01)
    half = np.array([-0.25, 0.25]) / np.sqrt(2)  # differ as scenes do
    near, far = (usual.drawn(half + mean, 0.0, 0.25) / mean for mean in (0.01, 1.0))
    assert 0.4 < near < 0.5 < far < 1  # a scene of another kind is drawn less


def test_folds_that_differ_are_drawn_to_the_usual_level_unless_bands_differ(rng):
    some = [trial(scale * rng.standard_normal((1, 4000))) for scale in (1.0, 1.9)]
    alone = np.ones((1, classes.D, classes.BAND_GROUPS))
    found, drawn = (
        intervals.errors_of(
            some, blend.Weights(alone, alone, "", np.ones(1)), ONE_CLASS, 1, whole_pixels=whole
        )
        for whole in (False, True)
    )
    size = [e.level + np.log(e.by_band[0]) for e in (found, drawn)]
    assert size[0] == pytest.approx(np.log((1 + 1.9**2) / 2), abs=0.1)
    assert usual.USUAL[0] - 0.1 < size[1] < size[0] - 0.1


def test_steepness_is_the_gradient_of_the_fill_nearby(rng):
    down, right = np.mgrid[:20, :20].astype(float)
    ramp = np.stack([3 * down - 4 * right, np.zeros((20, 20))])
    observed = np.ones(ramp.shape, bool)
    observed[:, 5:9, 12:] = False
    pixels = ~observed[0]
    found = classes.steepness(ramp, observed, ramp[:, pixels], pixels)
    np.testing.assert_allclose(found[0], 5.0)  # at the border too
    np.testing.assert_array_equal(found[1], 0.0)
    # what was not measured does not matter, nor what is far away
    other = np.where(observed, ramp, np.nan)
    other[:, 15:] = rng.standard_normal((2, 5, 20))
    np.testing.assert_array_equal(
        found, classes.steepness(other, observed, ramp[:, pixels], pixels)
    )
    estimate = ramp[:, pixels]
    estimate[1] = rng.standard_normal(pixels.sum())
    found = classes.steepness(ramp, observed, estimate, pixels)
    assert (found[1] > 0).all() and np.allclose(found[0], 5.0)


def test_neighbours_that_were_neither_measured_nor_filled_count_for_nothing():
    ramp = np.arange(10.0) * np.ones((1, 10, 1))
    observed = np.ones((1, 10, 10), bool)
    observed[:, :, 4:7] = False
    pixels = np.zeros((10, 10), bool)
    pixels[:, 4] = True
    found = classes.steepness(np.where(observed, ramp, np.nan), observed, ramp[:, pixels], pixels)
    np.testing.assert_allclose(found, 1.0)


def test_deep_in_a_gap_the_ground_is_as_rough_as_at_its_edge(rng):
    values, observed = rng.standard_normal((3, 110, 60)), np.ones((110, 60), bool)
    observed[:90] = False
    found = classes.roughness(values, observed)
    assert found[:90].min() > 0.5 * found[90:].mean() > 0


def test_noise_hides_the_shape_of_errors_and_leaves_their_size(rng):
    """Errors with heavy tails, more or less hidden in noise: the bars tell of the errors."""
    n = 40_000
    error, piece = rng.laplace(size=n) / np.sqrt(2), np.arange(n) % 200
    for noise in (0.0, 1.0, 25.0):
        seen = (error + np.sqrt(noise) * rng.standard_normal(n))[None]
        around = np.zeros((len(classes.Around._fields), n))
        around[-1] = np.log(0.01)  # the candidates agree
        noisy = trial(seen, around=around, noise=np.full(n, noise), gap=piece)
        alone = np.ones((1, classes.D, classes.BAND_GROUPS))
        errors = intervals.errors_of(
            [noisy, noisy],
            blend.Weights(alone, alone, "", np.ones(1)),
            ONE_CLASS,
            1,
            whole_pixels=False,
        )
        level = errors.level + np.dot(errors.slopes, around[:, 0])
        size = np.sqrt(np.exp(level) * errors.by_band[0])
        widths = size * errors.widening * np.array(errors.intervals)
        inside = (np.abs(error) <= widths[:, None]).mean(axis=1)
        np.testing.assert_allclose(inside, (0.5, 0.8, 0.95), atol=0.12)


def test_folds_that_leave_too_little_to_estimate_noise_from_are_not_tried(rng):
    """They made `auto` refuse cubes whose noise can be estimated."""
    observed = np.ones((16, 16), bool)
    observed[1::2, 8:] = False
    observed[3::3, :8] = False
    cube = rng.standard_normal((6, 16, 16)).cumsum(1).cumsum(2) + rng.normal(0, 0.1, (6, 16, 16))
    result = hydiff.fill(cube, observed, sigma_y="auto", no_prior=True, axis="bands first")
    assert not np.isnan(result.values).any()
    seen = np.broadcast_to(observed, cube.shape)
    window, budget = auto.TrialWindow(Cube(cube), seen, ~seen), auto.BUDGETS["fast"]
    given, estimated = (plan_trials([window], s, budget, 0).hidden for s in (0.1, "auto"))
    assert len(estimated) < len(given)
    assert all(is_estimable(cube, seen & ~hide) for _, hide in estimated)
