"""Laws of `completion`: missing bands from those a pixel keeps, and from its neighbours."""

import numpy as np
import pytest

from hydiff.maths import gaussian
from hydiff.methods import classical, completion

C, SIDE, RUN = 30, 32, slice(10, 16)
STRIPE = slice(13, 19)


@pytest.fixture
def scene(rng):
    """(C, H, W): three materials, and a little noise in each band."""
    fields = rng.random((3, SIDE, SIDE))
    y = np.tensordot(rng.random((C, 3)), fields, 1)
    return y + 0.002 * rng.standard_normal(y.shape)


@pytest.fixture
def observed():
    """A stripe of six columns lacks six adjacent bands."""
    observed = np.ones((C, SIDE, SIDE), bool)
    observed[RUN, :, STRIPE] = False
    return observed


def absorption(depth):
    """Deepest at the middle, in the bands of the run alone: no other band shows it."""
    at = np.arange(SIDE) - 15.5
    plume = np.exp(-(at[:, None] ** 2 + at**2) / (2 * 5.0**2))
    along = np.zeros(C)
    along[RUN] = np.hanning(8)[1:-1]
    return -depth * along[:, None, None] * plume


def completed(y, observed):
    return completion.complete_spectra(np.where(observed, y, 0.0), observed)


def recovered(found, change, observed):
    """The share of a change that is found again in the gaps."""
    return (found * change)[~observed].sum() / (change**2)[~observed].sum()


@pytest.mark.parametrize("depth", [0.02, 0.1])
def test_an_absorption_between_the_kept_bands_survives(scene, observed, depth):
    change = absorption(depth)
    found = completed(scene + change, observed)[0] - completed(scene, observed)[0]
    # a membrane in each band, which knows of no other band, is what can be had from neighbours
    alone = np.where(observed, change, 0.0)
    alone[RUN] = classical.field(alone[RUN], observed[RUN.start], 1.0)
    assert recovered(found, change, observed) > 0.9 * recovered(alone, change, observed)


def test_without_one_nothing_is_carried_over(scene, observed, monkeypatch):
    with_runs, *_ = completed(scene, observed)
    monkeypatch.setattr(completion, "_runs", lambda observed: iter(()))
    without, *_ = completed(scene, observed)
    errors = [np.sqrt(((x - scene)[~observed] ** 2).mean()) for x in (with_runs, without)]
    assert errors[0] < 1.02 * errors[1]  # noise of the neighbours stays with them


def test_measured_entries_come_back(scene, observed):
    x, complete, spread, _ = completed(scene + absorption(0.1), observed)
    np.testing.assert_array_equal(x[observed], (scene + absorption(0.1))[observed])
    assert complete.all()
    assert not spread[observed].any()
    assert (spread[~observed] > 0).all()


def test_the_variance_grows_where_neighbours_are_unlike_the_model(scene, observed):
    change = absorption(0.1)
    _, _, spread, excess = completed(scene + change, observed)
    middle, corner = spread[12, 12:20, 15:17].mean(), spread[12, 0:4, 15:17].mean()
    assert middle > 1.1 * corner
    assert excess[12, 12:20, 15:17].mean() > 1.1 * excess[12, 0:4, 15:17].mean()
    assert excess[observed].max() == 1


def test_a_run_that_no_neighbour_has_is_regressed(scene):
    observed = np.ones(scene.shape, bool)
    observed[RUN, :, 4:] = False  # what is left lies farther than neighbours are asked
    x, _, spread, _ = completed(scene, observed)
    assert np.isfinite(x).all()
    assert np.isfinite(spread).all()


def test_runs_are_of_adjacent_bands_that_several_pixels_lack():
    observed = np.ones((8, 6, 6), bool)
    observed[2:4, :, 0] = observed[5, :, 0] = False  # no three adjacent
    observed[3:6, :, 2:4] = False
    observed[5:8, 0, 5] = False  # of one pixel
    [(bands, rows, cols)] = completion._runs(observed)
    assert bands.tolist() == [3, 4, 5]
    assert set(cols.tolist()) == {2, 3}
    assert len(rows) == 12


def test_noise_has_little_in_common(rng):
    w = rng.standard_normal((4, 60, 60))
    common, size = completion._in_common(w, np.ones((60, 60), bool))
    assert common.mean() < 0.05
    assert size.mean() == pytest.approx(1, abs=0.05)
    smooth = np.cumsum(np.cumsum(w, axis=1), axis=2)
    assert np.median(completion._in_common(smooth, np.ones((60, 60), bool))[0]) > 0.9


def test_weak_bands_are_filled_as_well_as_in_another_unit(scene, rng):
    """A ridge above the variance of a band would hide what it says of other bands."""
    unit = np.where(np.arange(C) < 2, 1.0, 1e-4)[:, None, None]
    columns = rng.random((C, 1, SIDE)) > 0.1
    observed = np.broadcast_to(columns, scene.shape)

    def error(factor):
        x, *_ = completed(factor * scene, observed)
        return np.sqrt(((x / factor - scene)[~observed] ** 2).mean())

    assert error(unit) < 1.2 * error(np.ones_like(unit)) < 0.1 * scene.std()


def test_the_ridge_is_a_share_of_the_mean_variance_but_for_weak_bands():
    variance = np.array([3.0, 1.0, 1e-5, 1e-9, 1e-30, 0.0])
    mean = variance.mean()
    ridge = np.diag(gaussian.ridge(np.diag(variance)))
    np.testing.assert_allclose(ridge / gaussian.RIDGE, [mean, mean, mean, 1e-9, mean, mean])
