"""Pixels that keep too few bands to be completed: folds that are as hard to fill, and the prior."""

import numpy as np
import pytest

import hydiff
from hydiff.auto import candidates, folds, planning, split
from hydiff.auto.folds import TrialWindow
from hydiff.auto.split import SOME
from hydiff.cube import as_cube
from hydiff.errors import BadValue
from hydiff.learn.dead_leaves import drawn
from hydiff.request import Request

SIDE = 96


@pytest.fixture(scope="module")
def truth():
    """(6, SIDE, SIDE) with sharp edges."""
    return drawn(np.random.default_rng(1))[:, :SIDE, :SIDE]


@pytest.fixture(scope="module")
def observed(truth):
    """Stripes in which pixels keep two bands of six."""
    there = np.ones(truth.shape, bool)
    for left in (12, 34, 60, 80):
        there[2:, :, left : left + 4] = False
    return there


def filled(truth, observed, **more):
    return hydiff.fill(np.where(observed, truth, np.nan), budget="fast", device="cpu", **more)


@pytest.fixture(scope="module")
def found(truth, observed):
    return filled(truth, observed)


@pytest.mark.parametrize("seed", range(4))
def test_a_hidden_pixel_lacks_all_that_a_pixel_of_the_gaps_lacks(observed, seed):
    missing = ~observed
    missing[2:4, 60:64, 4:8] = True  # some lack other bands
    some = folds.spectral_folds(~missing, 3, np.random.default_rng(seed))
    lacking = {tuple(spectrum) for spectrum in missing[:, missing.any(axis=0)].T}
    assert len(some) == 3
    for hidden in some:
        pixels = hidden.any(axis=0)
        assert not (pixels & missing.any(axis=0)).any()
        assert {tuple(spectrum) for spectrum in hidden[:, pixels].T} <= lacking
        assert pixels.sum() < 0.25 * (~missing).all(axis=0).sum()
    again = folds.spectral_folds(~missing, 3, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(some, again, strict=True))


def test_where_every_pixel_has_gaps_there_is_no_room_for_copies(truth):
    there = np.ones(truth.shape, bool)
    for band in range(len(there)):
        there[band, :, band :: len(there)] = False
    assert folds.spectral_folds(there, 3, np.random.default_rng(0)) == []
    names = [c["name"] for c in filled(truth, there).recipe["candidates"]]
    assert names == ["smooth", "along the bands"]


def test_the_prior_enters_where_it_helps_and_error_bars_hold(truth, observed, found):
    without = filled(truth, observed, no_prior=True)
    error, plain = (np.sqrt(((x.values - truth)[~observed] ** 2).mean()) for x in (found, without))
    share = {c["name"]: c["share"] for c in found.recipe["candidates"]}
    assert found.recipe["gaps"] == SOME and share["prior"] > 0.5 and error < 0.9 * plain
    assert "prior" not in {c["name"] for c in without.recipe["candidates"]}
    for one in (found, without):  # hidden pixels are as hard to fill
        inside = np.abs(one.values - truth) <= 1.2816 * one.sigma
        assert inside[~observed].mean() == pytest.approx(0.8, abs=0.1)


def test_a_recipe_replays_to_the_same_bytes(truth, observed, found):
    again = filled(truth, observed, recipe=found.recipe)
    assert again.values.tobytes() == found.values.tobytes()
    assert again.sigma.tobytes() == found.sigma.tobytes()


def test_beside_pixels_without_any_band_it_is_a_part_of_the_recipe(truth, observed):
    both = filled(truth, observed & ~np.eye(SIDE, dtype=bool)).recipe
    assert "weights" in both["partial"]["candidates"][-1]
    plain = both | {"candidates": [c for c in both["candidates"] if "weights" not in c]}
    with pytest.raises(BadValue, match="the recipe uses the prior"):
        Request(recipe=plain, no_prior=True).check()


@pytest.fixture(scope="module")
def mixed(truth):
    """Of the six bands the first two say all of the others."""
    spectra = np.array([[1, 0], [0, 1], [1, 1], [0.5, 1], [1, 0.5], [0.3, 0.7]])
    return np.tensordot(spectra, truth[:2], 1)


def test_a_run_of_bands_is_hidden_as_one_whether_or_not_it_can_be_completed(truth, mixed, observed):
    budget = planning.budget_for_some(
        candidates.Budget((candidates.SMOOTH, candidates.PRIOR), 8, 3)
    )
    pattern = (~observed).reshape(len(observed), -1).T.max(axis=0)
    for scene, networks in ((truth, True), (mixed, False)):
        window = TrialWindow(as_cube(np.where(observed, scene, np.nan)), observed, ~observed)
        plan = planning.plan_for_some([window], 0.0, budget, 0)
        assert any(c.costly for c in plan.candidates) == networks and len(plan.hidden) == 3
        for _, hidden in plan.hidden:
            assert (pattern == hidden[:, hidden.any(axis=0)].T).all()


def test_single_bands_are_hidden_some_at_a_time(mixed):
    there = np.ones(mixed.shape, bool)
    there[2, :, 5:50:9] = there[4, :, 7:50:9] = False
    window = TrialWindow(as_cube(np.where(there, mixed, np.nan)), there, ~there)
    assert not split.lacks_runs(window)
    plan = planning.plan_for_some(
        [window], 0.0, planning.budget_for_some(candidates.BUDGETS["fast"]), 0
    )
    assert all(hidden.any(axis=(1, 2)).sum() == 1 for _, hidden in plan.hidden)


def test_pixels_that_can_be_completed_need_no_network(mixed, observed):
    names = [c["name"] for c in filled(mixed, observed).recipe["candidates"]]
    assert names == ["smooth", "along the bands"]
