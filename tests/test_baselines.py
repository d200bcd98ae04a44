"""Laws of the classical baselines: RBF, DINEOF, HaLRTC, exemplar, fixbad, subspace fill."""

import numpy as np
import pytest
from scipy.interpolate import RBFInterpolator

import hydiff
from hydiff.errors import BadValue, UnknownName
from hydiff.methods import choose, components, dineof, exemplar, fixbad, halrtc
from hydiff.methods.subspace_fill import _above_noise

SPATIAL = ["rbf", "dineof", "exemplar", "subspace-fill"]  # fill pixels that miss all bands
BASELINES = [*SPATIAL, "halrtc", "fixbad"]
each_baseline = pytest.mark.parametrize("method", BASELINES)


def estimate(method, y, observed, sigma=0.0, **settings):
    """The method's own estimate, without the front door's pasting."""
    chosen = choose(method, None, settings)
    y = np.where(observed, y, 0.0)
    rng = np.random.default_rng(0)
    *_, step = chosen.inpaint(y, observed, np.full(len(y), sigma), chosen.settings, rng=rng)
    return step.x


@pytest.fixture
def dead_columns(tiny, rng):
    """(12, 24, 24) each band misses two columns of its own."""
    observed = np.ones(tiny.shape, bool)
    for band in range(len(tiny)):
        observed[band][:, rng.choice(24, 2, replace=False)] = False
    return observed


# What all of them do


@each_baseline
def test_observed_entries_are_returned_and_the_mask_may_have_two_or_three_axes(
    tiny, stripes, method
):
    x = estimate(method, tiny, stripes)
    assert np.array_equal(x[:, stripes], tiny[:, stripes])
    full = np.broadcast_to(stripes, tiny.shape)
    np.testing.assert_array_equal(estimate(method, tiny, full), x)


@each_baseline
def test_each_band_may_have_its_own_mask(tiny, dead_columns, method):
    x = estimate(method, tiny, dead_columns)
    assert np.array_equal(x[dead_columns], tiny[dead_columns]) and np.isfinite(x).all()
    error = np.abs(x - tiny)[~dead_columns].mean()
    mean = np.where(dead_columns, tiny, np.nan)
    floor = np.abs(np.nanmean(mean, axis=(1, 2))[:, None, None] - tiny)[~dead_columns].mean()
    assert error < 0.2 * floor


@pytest.mark.parametrize("method", SPATIAL)
def test_a_constant_cube_is_filled_with_its_constant(stripes, method):
    cube = np.full((4, 24, 24), 0.3)
    np.testing.assert_allclose(estimate(method, cube, stripes), cube, atol=1e-9)


@each_baseline
def test_units_do_not_matter(tiny, dead_columns, method):
    """A cube in other units is filled alike: the front door scales, no method has its own unit."""
    one = hydiff.fill(tiny, dead_columns, method=method).values
    other = hydiff.fill(40 + 1000 * tiny, dead_columns, method=method).values
    np.testing.assert_allclose((other - 40) / 1000, one, atol=1e-6)


def test_only_methods_that_model_noise_say_so():
    noisy = {name for name in BASELINES if hydiff.METHODS[name].uses_sigma}
    assert noisy == {"subspace-fill"}


@pytest.mark.parametrize(
    ("method", "setting", "error"),
    [
        ("rbf", {"kernel": "lnear"}, UnknownName),
        ("rbf", {"neighbours": 0}, BadValue),
        ("rbf", {"components": 0}, BadValue),
        ("dineof", {"eofs": 0}, BadValue),
        ("halrtc", {"start": 0.0}, BadValue),
        ("halrtc", {"steps": 0}, BadValue),
        ("halrtc", {"growth": 0.5}, BadValue),
        ("exemplar", {"patch": 4}, BadValue),
        ("fixbad", {"least_bands": 1}, BadValue),
        ("subspace-fill", {"components": 0}, BadValue),
    ],
)
def test_settings_that_mean_nothing_are_refused(method, setting, error):
    with pytest.raises(error):
        choose(method, None, setting)


# RBF


@pytest.mark.parametrize("kernel", ["linear", "thin_plate_spline", "cubic"])
def test_rbf_is_scipy_s_on_every_band(tiny, stripes, kernel):
    """Interpolation is linear, so on a rank-3 cube components and bands give the same."""
    points, gaps = np.argwhere(stripes), np.argwhere(~stripes)
    expected = RBFInterpolator(points, tiny[:, stripes].T, neighbors=50, kernel=kernel)(gaps).T
    x = estimate("rbf", tiny, stripes, kernel=kernel, components=3)
    np.testing.assert_allclose(x[:, ~stripes], expected, atol=1e-8)


def test_rbf_falls_back_where_the_pixels_lie_on_a_line():
    cube = np.random.default_rng(0).random((2, 5, 6))
    observed = np.zeros((5, 6), bool)
    observed[2] = True
    x = estimate("rbf", cube, observed, kernel="thin_plate_spline")
    assert np.isfinite(x).all()


@pytest.mark.parametrize(
    ("kernel", "neighbours", "gap"),
    [
        ("thin_plate_spline", 2, slice(3, 6)),
        ("cubic", 16, slice(1, -1)),
        ("quintic", 6, slice(3, 6)),
    ],
)
def test_rbf_does_not_depend_on_where_the_neighbours_of_a_pixel_lie(kernel, neighbours, gap):
    cube = np.random.default_rng(0).random((2, 20, 9))
    observed = np.ones((20, 9), bool)
    observed[:, gap] = False
    assert np.isfinite(estimate("rbf", cube, observed, kernel=kernel, neighbours=neighbours)).all()


# DINEOF


def test_dineof_recovers_a_low_rank_cube_from_random_entries(tiny, rng):
    observed = rng.random(tiny.shape) > 0.3
    x = estimate("dineof", tiny, observed, iterations=1000, tolerance=1e-6)
    assert np.abs(x - tiny)[~observed].mean() < 5e-4  # EOFs beyond the third touch few entries


def test_dineof_sees_across_lines_that_are_missing_whole(tiny):
    observed = np.ones((24, 24), bool)
    observed[:, 8:11] = False
    for mask in (observed, observed.T):  # the lines are found in either direction
        cube = tiny if mask is observed else tiny.swapaxes(1, 2)
        x = estimate("dineof", cube, mask)
        floor = cube[:, mask].mean(axis=1)[:, None]
        error, least = (np.abs(v - cube[:, ~mask]).mean() for v in (x[:, ~mask], floor))
        assert error < 0.5 * least


def test_dineof_smooths_without_changing_a_constant():
    missing = np.zeros((10, 6), bool)
    missing[3:6] = True
    matrix = dineof._by_lines(np.zeros((10, 6)), missing, np.random.default_rng(0))
    np.testing.assert_allclose(matrix.smoother @ np.ones(10), 1)
    assert np.all(matrix.smoother >= -1e-12) and not (matrix.aside & missing).any()
    assert matrix.aside.any()


def test_dineof_takes_the_mean_when_no_eof_predicts(rng):
    noise = rng.standard_normal((3, 20, 20))
    observed = np.ones((20, 20), bool)
    observed[:, 5:9] = False
    x = estimate("dineof", noise, observed)
    mean = noise[:, observed].mean(axis=1)[:, None]
    np.testing.assert_allclose(x[:, ~observed], np.broadcast_to(mean, (3, 80)), atol=0.3)


# HaLRTC


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shrinking_is_soft_thresholding_of_singular_values(rng, axis):
    x = rng.standard_normal((4, 5, 6))
    moved = np.moveaxis(x, axis, 0)
    U, s, V = np.linalg.svd(moved.reshape(len(moved), -1), full_matrices=False)
    expected = (U * np.maximum(s - 1.5, 0)) @ V
    expected = np.moveaxis(expected.reshape(moved.shape), 0, axis)
    np.testing.assert_allclose(halrtc.shrunk(x, axis, 1.5), expected, atol=1e-10)


def test_halrtc_recovers_a_low_rank_cube_from_random_entries(tiny, rng):
    observed = rng.random(tiny.shape) > 0.3
    np.testing.assert_allclose(estimate("halrtc", tiny, observed), tiny, atol=5e-3)


def test_halrtc_is_blind_to_lines_missing_whole(tiny, monkeypatch):
    """What the method itself puts there is 0, whatever stands around it; we return NaN."""
    observed = np.ones((24, 24), bool)
    observed[:, 8:11] = False
    observed[3:6, 15:18] = False  # a gap that its rows and columns see
    x = estimate("halrtc", tiny, observed)
    assert np.isnan(x[:, :, 8:11]).all() and np.isfinite(np.delete(x, [8, 9, 10], 2)).all()
    result = hydiff.fill(tiny, observed, method="halrtc")
    assert result.left == {"out of reach of halrtc": 12 * 24 * 3}
    monkeypatch.setattr(halrtc, "blind_entries", lambda observed: np.zeros(observed.shape, bool))
    x = estimate("halrtc", tiny, observed)
    assert np.abs(x[:, :, 8:11]).max() < 1e-12 and np.abs(x[:, 3:6, 15:18]).min() > 1e-3


# Exemplar


def test_exemplar_continues_a_periodic_pattern_exactly():
    rows, cols = np.indices((40, 40))
    pattern = ((rows // 2 + cols // 3) % 2).astype(float)
    cube = np.stack([pattern, 1 - 0.5 * pattern, 0.2 + 0.1 * pattern])
    observed = np.ones((40, 40), bool)
    observed[15:20, 17:25] = False
    np.testing.assert_allclose(estimate("exemplar", cube, observed), cube, atol=1e-6)


def test_exemplar_copies_whole_spectra(tiny, stripes):
    x = estimate("exemplar", tiny, stripes, components=12, patch=5)
    spectra = tiny[:, stripes].T
    for spectrum in x[:, ~stripes].T:
        assert np.abs(spectra - spectrum).max(axis=1).min() < 1e-5


def test_exemplar_takes_smaller_windows_where_the_gaps_leave_no_others(stripes):
    assert exemplar.window_size(np.ones((40, 40), bool), 9) == 9
    assert exemplar.window_size(stripes, 9) == 5
    checks = np.indices((20, 20)).sum(axis=0) % 2 == 0
    assert exemplar.window_size(checks, 9) == 1
    cube = np.random.default_rng(0).random((2, 20, 20))
    nearest = hydiff.fill(cube, checks, method="nearest").values
    np.testing.assert_allclose(estimate("exemplar", cube, checks), nearest, atol=1e-9)


# fixbad


def test_fixbad_is_exact_where_spectra_are_straight_lines_of_one_another(rng):
    base = rng.random(10)
    gain, offset = rng.uniform(0.5, 2, (4, 8)), rng.uniform(-0.2, 0.2, (4, 8))
    cube = gain * base[:, None, None] + offset
    observed = rng.random(cube.shape) > 0.2
    x = estimate("fixbad", cube, observed)
    reached = np.isfinite(x)
    assert reached.mean() > 0.95
    np.testing.assert_allclose(x[reached], cube[reached], atol=1e-9)


def test_fixbad_takes_the_spectrum_at_the_smallest_angle():
    a, b = np.array([1.0, 2, 3, 9]), np.array([3.0, 2, 1, 5])
    line = np.stack([b, a, 1.1 * a], axis=1)
    observed = np.ones((4, 3), bool)
    observed[3, 2] = False
    assert fixbad.repaired(line, observed, 3)[3, 2] == pytest.approx(1.1 * 9)


def test_fixbad_leaves_pixels_without_bands_and_bands_without_donors(tiny):
    observed = np.ones(tiny.shape, bool)
    observed[:, :, 4] = False  # no band left
    observed[5, 7] = False  # the whole line misses this band
    x = estimate("fixbad", tiny, observed)
    assert np.array_equal(np.isnan(x), ~observed)
    left = hydiff.fill(tiny, observed, method="fixbad").left
    assert left == {"out of reach of fixbad": int((~observed).sum())}


# Subspace fill


def test_without_noise_the_subspace_fill_of_a_low_rank_cube_is_linear(tiny, stripes):
    linear = estimate("linear", tiny, stripes)
    np.testing.assert_allclose(estimate("subspace-fill", tiny, stripes), linear, atol=1e-9)


def test_the_subspace_takes_the_noise_away(tiny, stripes, rng):
    noisy = tiny + 0.1 * rng.standard_normal(tiny.shape)
    x = hydiff.fill(noisy, stripes, method="subspace-fill", sigma_y=0.1).values
    left = np.square(x - tiny)[:, stripes].mean()
    assert left < 0.45 * 0.1**2  # 3 of 12 dimensions are left


def test_noise_alone_has_no_component(rng):
    C, n = 20, 500
    noise = rng.standard_normal((C, n))
    variance, basis = np.linalg.eigh(noise @ noise.T / n)
    kept = _above_noise(variance[::-1], basis[:, ::-1], np.ones(C), n)
    assert kept.sum() <= 2
    assert _above_noise(variance[::-1], basis[:, ::-1], np.zeros(C), n).all()


# Components


def test_pixels_that_keep_enough_bands_are_known(tiny, rng):
    observed = rng.random(tiny.shape) > 0.2
    observed[:, 3, 4] = False
    space, z, complete = components.decompose(np.where(observed, tiny, 0), observed, 3)
    assert complete[observed.all(axis=0)].all() and not complete[3, 4]
    np.testing.assert_allclose(space.reconstruct(z)[:, complete], tiny[:, complete], atol=1e-2)
