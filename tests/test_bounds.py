"""Bounds and units that a fill is decided by: each law fails when its one line is changed."""

import numpy as np
import pytest
from scipy import ndimage

import hydiff
from errors_on_folds import trial
from hydiff.auto import blend, folds
from hydiff.auto.classes import HEAVIEST, ClassCounts, importance
from hydiff.methods import smooth


def test_no_hidden_entry_outweighs_the_others():
    """One entry that stands for a thousand does not decide alone."""
    kind = np.r_[np.zeros(99, int), 1]
    weight = importance(kind, np.array([99, 10_000]))
    assert weight.mean() == pytest.approx(1)
    assert weight[-1] == pytest.approx(HEAVIEST * np.median(weight))
    mild = importance(kind, np.array([99, 3]))
    assert mild[-1] == pytest.approx(3 * mild[0]), "what is below the bound counts as wanted"


@pytest.mark.parametrize("width", [3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_copies_keep_a_gap_s_width_away_from_the_real_gap(width, seed):
    observed = np.ones((70, 80), bool)
    observed[:, 30 : 30 + width] = False
    away = ndimage.distance_transform_edt(observed)
    copies = folds.folds(observed, 4, np.random.default_rng(seed))
    assert len(copies) > 1
    for hidden in copies:
        assert away[hidden].min() > width


def test_where_gaps_are_dense_copies_come_nearer_rather_than_lie_in_a_corner():
    observed = np.ones((60, 60), bool)
    observed[:, ::12] = observed[:, 1::12] = observed[:, 2::12] = observed[:, 3::12] = False
    allowed = folds._clear_of_gaps(~observed)
    away = ndimage.distance_transform_edt(observed)
    assert allowed.mean() > 0.5 * observed.mean() and 1 < away[allowed].min() < 4


@pytest.mark.parametrize("count", [2, 3, 6])
def test_the_error_of_a_gain_is_that_of_a_mean_of_so_few_folds(count):
    """Draws from few folds scatter by √((n − 1) / n) too little; their error is s / √n."""
    factor = np.linspace(0.3, 0.8, count)  # of the second candidate's errors, fold by fold
    sign = np.where(np.arange(400) % 2, 1.0, -1.0)
    residuals = [np.stack([sign, f * sign]) for f in factor]
    trials = [trial(r) for r in residuals]
    kinds = ClassCounts(np.full(100, 400), np.array([0.5, 1.5]))
    first, second = (blend._everywhere(np.eye(2)[i]) for i in (0, 1))
    gain = blend._gain(first, [second] * count, blend._by_fold(residuals, trials, kinds), seed=0)
    saved = 1 - factor**2
    assert gain.mean == pytest.approx(saved.mean(), rel=1e-3)
    assert gain.error == pytest.approx(saved.std(ddof=1) / np.sqrt(count), rel=0.08)


def test_error_bars_have_the_unit_of_the_cube(rng):
    cube = np.cumsum(np.cumsum(rng.normal(size=(5, 24, 24)), axis=1), axis=2)
    observed = np.ones((24, 24), bool)
    observed[:, 9:13] = False
    one, other = (
        hydiff.fill(scale * cube + 7, observed, method="smooth", error_bars=True).sigma
        for scale in (1, 100)
    )
    filled = np.isfinite(one)
    assert filled.any() and (one[filled] > 0).all()
    np.testing.assert_allclose(other[filled], 100 * one[filled], rtol=1e-4)
    error = np.abs(hydiff.fill(100 * cube, observed, method="smooth").values - 100 * cube)
    assert 0.1 < (error[filled] / other[filled]).mean() < 10


def test_noise_is_made_white_down_to_a_twentieth_of_the_largest(rng):
    sigma = np.array([1.0, 0.5, 0.2, 0.06, 0.01, 0.0])
    noise = sigma[:, None, None] * rng.normal(size=(6, 60, 60))
    white = smooth.spectra(noise, np.ones((60, 60), bool), sigma).std(axis=1)
    np.testing.assert_allclose(white[:4], 1, rtol=0.05)
    assert white[4] == pytest.approx(0.01 / 0.05, rel=0.05), "nearly noiseless: it keeps the bound"
    assert white[5] == 0
