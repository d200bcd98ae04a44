"""Laws of gaps of two kinds in one cube: neither changes what is promised of the other."""

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hydiff
from hydiff import auto
from hydiff.auto import folds, split, trials
from hydiff.auto.split import NONE, SOME
from hydiff.cube import Cube
from hydiff.errors import BadValue
from hydiff.gaps.mask import make_mask
from hydiff.io import provenance
from hydiff.maths import gaussian
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.scene import Limits


@pytest.fixture(scope="module")
def truth():
    """(6, 48, 48): fields of several widths, and some noise that no band shares with another."""
    rng = np.random.default_rng(0)
    maps = np.stack([gaussian_filter(rng.standard_normal((48, 48)), w) * w for w in (1, 2, 4)])
    cube = np.tensordot(rng.random((6, 3)), maps, 1) + 0.01 * rng.standard_normal((6, 48, 48))
    return 1000 + 400 * cube


@pytest.fixture(scope="module")
def stripes(truth):
    """(bands, rows, cols), True = measured."""
    observed = np.ones(truth.shape, bool)
    observed[:, :, 10:14] = observed[:, :, 30:33] = observed[:, 20:27, 38:45] = False
    return observed


def with_entries(observed, count, seed=1):
    """The same with so many single entries missing besides."""
    out = observed.copy()
    at = np.random.default_rng(seed).choice(np.flatnonzero(observed), count, replace=False)
    out.flat[at] = False
    return out


def filled(truth, observed, **more):
    return hydiff.fill(np.where(observed, truth, np.nan), budget="fast", device="cpu", **more)


@pytest.fixture(scope="module")
def alone(truth, stripes):
    return filled(truth, stripes)


@pytest.fixture(scope="module")
def mixed(truth, stripes):
    """A fill of stripes and 500 single entries."""
    return filled(truth, with_entries(stripes, 500))


def kinds(observed):
    """(bands, rows, cols) missing entries, by kind."""
    lost = ~observed.any(axis=0)
    return {NONE: ~observed & lost, SOME: ~observed & ~lost}


# ── one kind does not change the other ───────────────────────────────────────────────────────────


def test_few_single_entries_leave_lost_pixels_as_they_were(truth, stripes, alone, monkeypatch):
    fits = []
    monkeypatch.setattr(gaussian, "fit", lambda *a, fit=gaussian.fit: fits.append(1) or fit(*a))
    both = filled(truth, with_entries(stripes, 3))
    lost = ~stripes
    np.testing.assert_allclose(both.sigma[lost], alone.sigma[lost], rtol=0.02)
    np.testing.assert_allclose(
        both.values[lost], alone.values[lost], atol=0.05 * alone.sigma[lost].min()
    )
    assert both.recipe["folds"] == alone.recipe["folds"]
    np.testing.assert_allclose(both.recipe["weights"], alone.recipe["weights"], atol=0.02)
    assert both.expected["nrmse"] == pytest.approx(alone.expected["nrmse"], rel=0.02)
    # bands are regressed on one another where that is needed, not in every trial of lost pixels
    # and once to see whether pixels keep enough of them
    assert len(fits) <= auto.candidates.SPECTRAL_FOLDS + 2


def test_few_lost_pixels_leave_single_entries_as_they_were(truth):
    columns = make_mask("columns", truth.shape, 0.1, np.random.default_rng(0))
    few = columns.copy()
    few[:, 20:22, 20:23] = False
    one, both = filled(truth, columns), filled(truth, few)
    own = ~columns & ~kinds(few)[NONE]
    ratio = both.sigma[own] / one.sigma[own]
    assert np.median(ratio) == pytest.approx(1, abs=0.1)
    expected = both.expected_by_kind
    assert expected[SOME]["nrmse"] == pytest.approx(one.expected["nrmse"], rel=0.15)
    assert expected[NONE]["nrmse"] > 2 * expected[SOME]["nrmse"]
    assert np.median(both.sigma[kinds(few)[NONE]]) > 2 * np.median(both.sigma[own])


def test_intervals_of_each_kind_cover(truth, stripes, mixed):
    for kind, entries in kinds(with_entries(stripes, 500)).items():
        off = np.abs(mixed.values - truth)[entries] / mixed.sigma[entries]
        assert 0.65 < np.mean(off < 1.2816) < 0.93, kind


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def test_scores_are_expected_of_each_kind_and_of_all(truth, stripes, mixed):
    entries = kinds(with_entries(stripes, 500))
    assert set(mixed.expected_by_kind) == {NONE, SOME}
    for kind, scores in mixed.expected_by_kind.items():
        off = mixed.values - truth
        bands = zip(off, entries[kind], truth, strict=True)
        true = np.mean([np.sqrt((o[e] ** 2).mean()) / t.std() for o, e, t in bands])
        assert scores["nrmse"] == pytest.approx(true, rel=0.5), kind
        assert any(
            n.startswith(f"expected in {kind} ({entries[kind].sum():,} ") for n in mixed.notes
        )
    few, many = (mixed.expected_by_kind[kind] for kind in (SOME, NONE))
    for score in ("nrmse", "mpsnr", "sam"):
        low, high = sorted((few[score], many[score]))
        assert low < mixed.expected[score] < high
    record = json.loads(json.dumps(provenance.record(mixed)))
    assert record["expected_by_kind"] == mixed.expected_by_kind


def test_one_kind_is_expected_once(alone):
    assert alone.expected_by_kind is None and "expected_by_kind" not in provenance.record(alone)
    assert sum(note.startswith("expected in") for note in alone.notes) == 1


def test_pixels_around_the_scene_are_no_gaps_to_try(truth):
    """They are not filled, so they count neither as a kind nor as a pattern."""
    columns = make_mask("columns", truth.shape, 0.1, np.random.default_rng(0))
    collar = columns.copy()
    collar[:, :, :8] = False
    cube = np.where(collar, truth, np.nan)
    result = hydiff.fill(cube, budget="fast", device="cpu", outside="keep")
    one = filled(truth[:, :, 8:], columns[:, :, 8:])
    assert result.recipe["gaps"] == SOME and result.expected_by_kind is None
    assert result.expected["nrmse"] == pytest.approx(one.expected["nrmse"], rel=0.3)


@pytest.mark.parametrize(("side", "folds"), [(12, 0), (16, 2), (24, 8)])
def test_scores_rest_on_trials_or_are_not_given(truth, side, folds):
    observed = np.ones((6, side, side), bool)
    observed[:, :, side // 2 : side // 2 + 2] = False
    result = filled(truth[:, :side, :side], observed)
    said = [note for note in result.notes if note.startswith("expected in")]
    assert result.recipe["folds"] == folds
    if folds < 2:
        assert not said and not result.expected and result.sigma is None
        assert any("no scores to expect" in note for note in result.notes)
        assert provenance.record(result)["expected"] == {}
    else:
        assert ("rests on 2 trials" in said[0]) == (folds == 2)


# ── recipes ──────────────────────────────────────────────────────────────────────────────────────


def test_a_recipe_for_both_kinds_replays_to_the_same_bytes(truth, stripes, mixed, tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(mixed.recipe))
    again = filled(truth, with_entries(stripes, 500), recipe=path)
    assert again.values.tobytes() == mixed.values.tobytes()
    assert again.sigma.tobytes() == mixed.sigma.tobytes()
    assert again.expected == mixed.expected and again.expected_by_kind == mixed.expected_by_kind


def test_each_kind_alone_takes_its_part_of_a_recipe(truth, stripes, mixed):
    lost = filled(truth, stripes, recipe=mixed.recipe)
    some = filled(truth, with_entries(np.ones_like(stripes), 500), recipe=mixed.recipe)
    for result, kind in ((lost, NONE), (some, SOME)):
        assert result.expected["nrmse"] == pytest.approx(
            mixed.expected_by_kind[kind]["nrmse"], rel=0.2
        )


def test_a_kind_that_a_recipe_does_not_know_gets_no_error_bars(truth, stripes, alone, tmp_path):
    observed = with_entries(stripes, 200)
    result = filled(truth, observed, recipe=alone.recipe)
    own = kinds(observed)
    assert np.isfinite(result.values).all() and result.filled.sum() == (~observed).sum()
    assert np.isnan(result.sigma[own[SOME]]).all() and np.isfinite(result.sigma[own[NONE]]).all()
    assert f"the recipe was decided without {SOME}" in " ".join(result.notes)
    assert result.expected["nrmse"] == pytest.approx(alone.expected["nrmse"], rel=0.1)
    result.save(tmp_path / "out.npz")
    back = provenance.companions(tmp_path / "out.npz", result.filled.shape)["sigma"]
    assert np.array_equal(np.isnan(back), np.isnan(result.sigma))
    bounded = filled(truth, observed, recipe=alone.recipe, max_error=1e6)
    assert not bounded.filled[own[SOME]].any() and bounded.filled[own[NONE]].all()


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r.pop("gaps"),
        lambda r: r.update(gaps="all"),
        lambda r: r.update(gaps=[NONE]),
        lambda r: r.update(partial=3),
        lambda r: r.update(partial={}),
        lambda r: r["partial"].update(gaps=NONE),
        lambda r: r["partial"].update(partial=dict(r["partial"])),
        lambda r: r["partial"].update(weights=[1]),
        lambda r: r["partial"]["errors"].update(level="much"),
    ],
)
def test_a_recipe_whose_parts_do_not_fit_is_refused(mixed, edit):
    recipe = json.loads(json.dumps(mixed.recipe))
    edit(recipe)
    with pytest.raises(BadValue, match=r"its (recipe\.)?(partial|gaps|recipe lacks gaps)"):
        auto.read_recipe(recipe)


# ── copies and trials ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bands", [slice(None), slice(2, 3)], ids=["lost", "of one band"])
def test_few_gaps_are_copied_often_enough_to_tell(bands):
    missing = np.zeros((6, 48, 48), bool)
    missing[bands, 20:22, 30:32] = True
    for hidden in folds.scattered(~missing, 3, np.random.default_rng(0)):
        assert not (hidden & missing).any()
        assert hidden.any(axis=0).sum() >= folds.FEWEST
        assert hidden.mean(axis=(1, 2)).max() < 1.2 * folds.THIN
        assert np.array_equal(hidden.any(axis=(1, 2)), missing.any(axis=(1, 2)))


def test_only_what_was_measured_judges(truth, stripes):
    truth, stripes = (np.concatenate([a, a]) for a in (truth, stripes))  # most pixels keep half
    observed = with_entries(stripes, 2000)
    window = folds.TrialWindow(Cube(truth), observed, ~observed)
    rest = split.for_none(window, truth + 1e6)
    none, some = kinds(observed)[NONE], kinds(observed)[SOME]
    assert not (rest.observed & none).any() and rest.observed[some].all()
    [fold, *_] = folds.folds_of(rest.cube, rest.observed, 4, 0, rest.gaps, rest.measured)
    assert np.array_equal(fold, np.broadcast_to(fold[0], fold.shape))  # whole pixels are hidden
    at = trials.looked_at(fold, rest.measured)
    assert observed[at].all() and len(at[0]) > 0.7 * fold.sum()


def test_progress_goes_on_through_both_kinds(truth, stripes):
    steps = []
    filled(truth, with_entries(stripes, 500), progress=lambda step: steps.append(step) and False)
    done = [step.done for step in steps]
    assert done == sorted(set(done)) and len({step.total for step in steps}) == 1
    assert done[-1] <= steps[-1].total


def test_noise_is_not_estimated_from_what_was_completed(truth, stripes, rng):
    noisy = truth + 30 * rng.standard_normal(truth.shape)
    one = filled(noisy, stripes, sigma_y="auto")
    both = filled(noisy, with_entries(stripes, 1500), sigma_y="auto")
    np.testing.assert_allclose(both.sigma_y, one.sigma_y, rtol=0.2)
    lost = ~stripes
    assert np.median(both.sigma[lost] / one.sigma[lost]) == pytest.approx(1, abs=0.25)


def test_lost_pixels_are_filled_where_no_pixel_keeps_half_of_its_bands(truth):
    observed = make_mask("pixels", truth.shape, 0.7, np.random.default_rng(0))
    observed[:, 20:26, 20:26] = False
    result = filled(truth, observed)
    assert np.isfinite(result.values).all() and np.isfinite(result.sigma[result.filled]).all()


def test_networks_are_tried_on_lost_pixels_alone(truth, stripes, monkeypatch):
    network = auto.Candidate("network", "hydiff-ei", {"steps": 2, "channels": 8}, crossfit=True)
    budget = auto.Budget((*auto.candidates.CLASSICAL, network), 3, 2)
    monkeypatch.setitem(auto.BUDGETS, "fast", budget)
    truth, observed = truth[:, :32, :32], with_entries(stripes[:, :32, :32], 200)
    result = filled(truth, observed)
    names = [c["name"] for c in result.recipe["candidates"]]
    others = [c["name"] for c in result.recipe["partial"]["candidates"]]
    assert "network" in names and "network" not in others
    again = filled(truth, observed, recipe=result.recipe)
    assert again.values.tobytes() == result.values.tobytes()


# ── scenes by tiles ──────────────────────────────────────────────────────────────────────────────


def test_tiles_share_one_decision_for_each_kind(tmp_path):
    """Single entries are missing in one tile, which is none of those that are sampled first."""
    rng = np.random.default_rng(3)
    maps = gaussian_filter(rng.standard_normal((3, 64, 192)), (0, 3, 3)) * 100
    values = np.tensordot(rng.random((8, 3)), maps, 1) + rng.standard_normal((8, 64, 192)) / 4
    observed = np.ones(values.shape, bool)
    observed[:, :, 4::24] = observed[:, :, 5::24] = observed[:, :, 6::24] = False
    box = np.s_[:, 40:60, 40:60]
    observed[box] &= rng.random(observed[box].shape) > 0.03
    gappy = Cube(np.where(observed, values, -9999.0).astype(np.float32), nodata=-9999.0)
    hydiff.write(gappy, tmp_path / "in.bsq")
    done = execute.fill_file(
        tmp_path / "in.bsq", tmp_path / "out.bsq", Request(budget="fast"), Limits(8e9, tile=32)
    )
    record = done.record
    assert set(record["expected_by_kind"]) == {NONE, SOME}
    assert (
        record["expected_by_kind"][NONE]["nrmse"] > 1.5 * record["expected_by_kind"][SOME]["nrmse"]
    )
    assert record["recipe"]["partial"]["gaps"] == SOME
    said = [note for note in record["notes"] if note.startswith("expected in pixels")]
    flags = record["flags"]
    for kind, flag in ((NONE, "from_space"), (SOME, "from_kept_bands")):
        # tiles overlap, but each entry counts once
        assert any(f"expected in {kind} ({flags[flag]:,} entries)" in note for note in said)
    assert len(said) == 2 and flags["from_space"] + flags["from_kept_bands"] == flags["filled"]
    sigma = provenance.companions(tmp_path / "out.bsq", values.shape)["sigma"]
    off = np.abs(np.asarray(hydiff.read(tmp_path / "out.bsq").values) - values)
    for kind, entries in kinds(observed).items():
        # few copies of the gaps fit here, and an interval that is conformal by gap is wide then
        assert np.mean(off[entries] < 1.2816 * sigma[entries]) > 0.6, kind
