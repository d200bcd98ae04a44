"""Laws of `smooth`: variogram, kriging, posterior variance, and the bands a pixel keeps."""

import numpy as np
import pytest
from scipy import ndimage, optimize
from scipy.fft import idctn

from hydiff import metrics
from hydiff.maths import gaussian, variogram
from hydiff.methods import choose, classical, smooth


def run(y, observed, sigma=0.0, **overrides):
    chosen = choose("smooth", None, overrides)
    sigma = np.broadcast_to(np.asarray(sigma, float), len(y)).copy()
    rng = np.random.default_rng(0)
    *_, last = chosen.inpaint(y * observed, observed, sigma, chosen.settings, rng=rng)
    return last


def dense_operator(shape, s, reach):
    """(reach⁻² − Δ)^s as a matrix, without cosine transforms."""
    eigenvalues, V = np.linalg.eigh(classical.laplacian(*shape).toarray())
    return (V * (np.maximum(eigenvalues, 0) + reach**-2) ** s) @ V.T


@pytest.mark.parametrize(("s", "reach"), [(1.0, np.inf), (1.5, 10.0), (1.95, 40.0)])
def test_kriging_solves_its_normal_equations(rng, stripes, s, reach):
    z, kappa = rng.standard_normal((2, 24, 24)), 0.3
    A = np.diag(stripes.ravel().astype(float)) + kappa * dense_operator((24, 24), s, reach)
    exact = np.linalg.solve(A, (stripes * z).reshape(2, -1).T).T.reshape(z.shape)
    found = classical.field(z, stripes, s, reach, kappa=kappa, tolerance=1e-8)
    np.testing.assert_allclose(found, exact, atol=1e-6)


@pytest.mark.parametrize(("s", "reach"), [(1.0, np.inf), (1.5, 10.0)])
def test_the_variance_is_that_of_the_dense_posterior(rng, stripes, s, reach, monkeypatch):
    kappa = 0.1
    precision = np.diag(stripes.ravel() / kappa) + dense_operator((24, 24), s, reach)
    oracle = np.diag(np.linalg.inv(precision)).reshape(24, 24)[~stripes]
    exact = smooth.unit_variance(stripes, s, reach, kappa, rng)
    np.testing.assert_allclose(exact[~stripes], oracle, rtol=1e-6)
    assert not exact[stripes].any()
    monkeypatch.setattr(smooth, "EXACT", 0)
    monkeypatch.setattr(smooth, "DRAWS", 200)
    sampled = smooth.unit_variance(stripes, s, reach, kappa, rng)
    assert np.abs(sampled[~stripes].mean() / oracle.mean() - 1) < 0.1
    assert np.corrcoef(sampled[~stripes], oracle)[0, 1] > 0.6  # averaged over neighbours


def test_roughness_is_the_variogram_of_neighbours(rng):
    z, complete = rng.standard_normal((11, 9, 13)), rng.random((9, 13)) > 0.4
    half, pairs = variogram.variogram(z, complete, np.array([0, 1]), np.array([1, 0]))
    expected = np.sqrt(2 * (half * pairs).sum(axis=1) / pairs.sum())
    np.testing.assert_allclose(variogram.roughness(z, complete), expected, rtol=1e-12)
    assert not variogram.roughness(z, np.zeros_like(complete)).any()


def test_the_variogram_is_half_the_mean_square_difference(rng):
    z, complete = rng.standard_normal((2, 9, 11)), rng.random((9, 11)) > 0.4
    down, right = variogram.lags_within(3)
    found, pairs = variogram.variogram(z, complete, down, right)
    for i, (d, r) in enumerate(zip(down, right, strict=True)):
        squares = [
            (z[:, a, b] - z[:, a + d, b + r]) ** 2
            for a in range(9 - d)
            for b in range(max(0, -r), min(11, 11 - r))
            if complete[a, b] and complete[a + d, b + r]
        ]
        assert pairs[i] == len(squares)
        np.testing.assert_allclose(found[:, i], 0.5 * np.mean(squares, axis=0), atol=1e-12)


@pytest.mark.parametrize("s", [1.0, 1.5])
def test_the_covariance_of_a_drawn_field_is_found_again(rng, s):
    eigenvalues = classical.laplacian_eigenvalues(96, 96)
    root = np.where(eigenvalues > 0, np.maximum(eigenvalues, 1e-9) ** (-s / 2), 0)
    draws = idctn(root * rng.standard_normal((6, 96, 96)), axes=(1, 2), norm="ortho")
    complete = rng.random((96, 96)) > 0.3
    found = variogram.fit_covariances(5 * draws, complete)
    assert np.median([c.s for c in found]) == pytest.approx(s, abs=0.25)
    restricted = variogram.fit_covariances(5 * draws, complete, (s,), (np.inf,))
    assert np.median([c.sill for c in restricted]) == pytest.approx(25, rel=0.3)


def test_fields_of_few_kinds_keep_their_size(rng, stripes):
    """The kinds that matter most stay; the others' variograms are met as well as those can."""
    z = [ndimage.gaussian_filter(rng.standard_normal(stripes.shape), w) * w for w in (1, 2, 4, 6)]
    z = np.stack(z) * np.array([1, 1, 0.03, 0.03])[:, None, None]
    every = variogram.fit_covariances(z, stripes)
    kinds = variogram.leading_kinds(every)
    assert len(kinds) > 1
    assert variogram.fit_covariances(z, stripes, most=len(kinds)) == every
    few = variogram.fit_covariances(z, stripes, most=1)
    assert {c.kind for c in few} == {kinds[0]}
    for own, shared in zip(every, few, strict=True):
        assert own == shared or own.kind != kinds[0]
        sizes = [variogram.risk(c) + c.nugget for c in (own, shared)]
        assert sizes[1] == pytest.approx(sizes[0], rel=0.5)


def test_a_field_buried_in_white_noise_becomes_its_mean(rng, stripes):
    z = rng.standard_normal((3, 24, 24))
    f = smooth.krige(z, stripes, variogram.fit_covariances(z, stripes), 0.0)
    assert np.abs(f - z[:, stripes].mean(axis=1)[:, None, None])[:, ~stripes].max() < 0.5
    np.testing.assert_allclose(f[:, stripes], z[:, stripes])


def test_error_bars_are_zero_where_observed_and_scale_with_the_unit(tiny, stripes):
    one, ten = (run(gain * tiny, stripes, error_bars=True).sigma for gain in (1.0, 10.0))
    assert not one[:, stripes].any() and (one[:, ~stripes] > 0).all()
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-6)
    assert run(tiny, stripes).sigma is None


def test_gaussian_regression_is_the_conditional_mean(rng):
    A = rng.standard_normal((6, 6))
    model = gaussian.Gaussian(rng.standard_normal(6), A @ A.T + np.eye(6))
    y, observed = rng.standard_normal((6, 40)), rng.random((6, 40)) > 0.4
    x, variance, _ = gaussian.condition(y, observed, model)
    for i in range(40):
        o, m = observed[:, i], ~observed[:, i]
        S = model.covariance
        gain = S[np.ix_(m, o)] @ np.linalg.inv(S[np.ix_(o, o)])
        mean = model.mean[m] + gain @ (y[o, i] - model.mean[o])
        np.testing.assert_allclose(x[m, i], mean, atol=1e-9)
        left = S[np.ix_(m, m)] - gain @ S[np.ix_(o, m)]
        np.testing.assert_allclose(variance[m, i], np.diag(left), atol=1e-9)
        assert np.array_equal(x[o, i], y[o, i])


def test_expectation_maximisation_finds_the_covariance_behind_gaps(rng):
    A = rng.standard_normal((5, 5))
    truth = A @ A.T
    y = np.linalg.cholesky(truth) @ rng.standard_normal((5, 4000)) + 2
    found = gaussian.fit(y, rng.random(y.shape) > 0.3)
    np.testing.assert_allclose(found.covariance, truth, atol=0.1 * np.abs(truth).max())
    np.testing.assert_allclose(found.mean, 2, atol=0.3)


def test_left_out_residuals_are_those_of_leaving_out(rng):
    A = rng.standard_normal((5, 5))
    model = gaussian.Gaussian(np.zeros(5), A @ A.T + np.eye(5))
    y, observed = rng.standard_normal((5, 30)), np.ones((5, 30), bool)
    residual = gaussian.left_out(y, observed, model)
    for b in range(5):
        hidden = observed.copy()
        hidden[b] = False
        mean, _, _ = gaussian.condition(y, hidden, model)
        np.testing.assert_allclose(residual[b], y[b] - mean[b], atol=1e-9)


def test_a_pixel_with_few_bands_uses_them_and_its_neighbours(tiny):
    observed = np.ones(tiny.shape, bool)
    observed[:, 6:12, 6:12] = False
    spatial = np.abs(run(tiny, observed).x - tiny)[:, 6:12, 6:12].mean()
    observed[4, 6:12, 6:12] = True  # one band of twelve: not enough alone
    both = np.abs(run(tiny, observed).x - tiny)[:, 6:12, 6:12].mean()
    assert both < 0.8 * spatial


def test_noise_that_differs_between_bands_is_weighed(tiny, stripes, rng):
    sigma = np.where(np.arange(12) % 2, 0.3, 0.02)
    noisy = tiny + sigma[:, None, None] * rng.standard_normal(tiny.shape)
    modelled = metrics.mpsnr(run(noisy, stripes, sigma).x, tiny)
    flat = metrics.mpsnr(run(noisy, stripes, np.sqrt((sigma**2).mean())).x, tiny)
    assert modelled > flat + 2


# ── what the components leave ────────────────────────────────────────────────────────────────────


def narrow_feature(rng, shape=(24, 24), bands=20):
    """A scene of two materials, and a faint ramp across the columns in a direction that their
    mixtures do not have: (bands, H, W) each."""
    materials = rng.random((bands, 2))
    fields = np.cumsum(rng.standard_normal((2, *shape)), axis=1)
    direction = rng.standard_normal(bands)
    direction -= materials @ np.linalg.lstsq(materials, direction, rcond=None)[0]
    ramp = np.linspace(-1, 1, shape[1])
    scene = np.tensordot(materials, fields, 1)
    return scene, 1e-3 * direction[:, None, None] * np.broadcast_to(ramp, shape)


def test_what_no_component_holds_is_filled_too(rng, stripes):
    scene, faint = narrow_feature(rng)
    found = run(scene + faint, stripes, components=2).x - run(scene, stripes, components=2).x
    gap = ~stripes
    error = np.linalg.norm((found - faint)[:, gap]) / np.linalg.norm(faint[:, gap])
    assert error < 0.05  # a membrane between two columns is a ramp; without it the error is 1


def test_a_remainder_below_the_noise_is_taken_for_noise(rng, stripes):
    scene, faint = narrow_feature(rng)
    y = scene + faint
    c = smooth.coordinates(y * stripes, stripes, np.full(len(y), 10.0), 2)
    assert not c.rest.any()


def test_with_little_noise_the_remainder_is_that_without(rng, stripes):
    y = sum(narrow_feature(rng)) + 1e-4 * rng.standard_normal((20, 24, 24))
    sigma, little = np.zeros(20), np.full(20, 1e-9)
    without, noisy = (
        c.rest[:, c.column[~stripes]]
        for c in (smooth.coordinates(y * stripes, stripes, s, 2) for s in (sigma, little))
    )
    np.testing.assert_allclose(noisy * 1e-9, without, atol=1e-6 * np.abs(without).max())


def test_error_bars_count_what_the_components_leave(rng, stripes):
    scene, _ = narrow_feature(rng)
    noise = 0.05 * rng.standard_normal(scene.shape)
    bars = run(scene + noise, stripes, components=2, error_bars=True).sigma[:, ~stripes]
    assert bars.min() > 0.8 * 0.05


@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_error_bars_are_those_of_the_value_without_noise(rng, sigma):
    """In pixels without any band, and in those that keep some: of a field of three components."""
    waves = np.fft.fftfreq(96)[:, None] ** 2 + np.fft.fftfreq(96) ** 2
    spectra = np.fft.fft2(rng.standard_normal((3, 96, 96))) * (waves + 1e-3) ** -0.75
    fields = np.fft.ifft2(spectra).real[:, :48, :48]
    fields /= fields.std(axis=(1, 2), keepdims=True)
    shapes = np.cos(np.arange(8)[:, None] / 2 * np.arange(1, 4)) / np.arange(1, 4)
    truth = np.tensordot(shapes, fields, 1) + 0.05 * rng.standard_normal((8, 48, 48))
    observed = np.ones(truth.shape, bool)
    observed[:, 10:14, 8:28] = observed[:, 30:33, 20:44] = False
    observed[3, 18:28, 28:44] = observed[6, 36:46, 2:18] = False
    noisy = truth + sigma * rng.standard_normal(truth.shape)
    step = run(noisy, observed, sigma, error_bars=True)
    ratio = (step.x - truth) / np.where(observed, 1.0, step.sigma)
    for kept in (observed.any(axis=0), ~observed.any(axis=0)):
        assert 0.75 < np.sqrt(np.mean(ratio[~observed & kept] ** 2)) < 1.25


def test_the_sill_and_nugget_of_a_variogram_are_those_of_nonnegative_least_squares(rng):
    for lags in (1, 2, 30):
        shapes, one, curve = rng.random((4, lags)), rng.random(lags), rng.standard_normal(lags)
        curve = np.abs(curve) + rng.choice((-0.5, 0.5)) * shapes[0]
        for found in zip(shapes, *variogram._fits(shapes, one, curve), strict=True):
            shape, nugget, sill, misfit = found
            exact, least = optimize.nnls(np.stack([one, shape], axis=1), curve)
            assert misfit == pytest.approx(least, abs=1e-9)
            if lags > 1:  # else any of a line of them
                np.testing.assert_allclose((nugget, sill), exact, atol=1e-9)


def test_a_membrane_reads_the_rim_of_the_gaps_alone(rng, stripes):
    z = rng.standard_normal((2, 24, 24))
    given = classical.membrane(stripes)
    rim = stripes & ndimage.binary_dilation(~stripes)
    assert (stripes & ~rim).any()
    np.testing.assert_array_equal(given.rim.pixels, rim)
    expected = classical.field(z, stripes, 1.0)[:, ~stripes]
    np.testing.assert_array_equal(given.inside(z[:, rim]), expected)
    np.testing.assert_allclose(given.inside(np.ones((1, rim.sum()))), 1.0)


@pytest.mark.parametrize("sigma", [0.0, 0.1])
@pytest.mark.parametrize("bars", [False, True])
def test_the_fill_of_some_pixels_is_that_of_the_cube_there(rng, stripes, sigma, bars):
    y, at = rng.random((5, 24, 24)) * stripes, rng.random((24, 24)) < 0.3
    settings = smooth.Smooth(components=3, error_bars=bars)
    whole, some = (
        next(
            smooth.smooth(
                y, stripes, np.full(5, sigma), settings, rng=np.random.default_rng(0), at=where
            )
        )
        for where in (None, at)
    )
    np.testing.assert_allclose(some.x[:, 0], whole.x[:, at], rtol=1e-12)
    if bars:
        np.testing.assert_array_equal(some.sigma[:, 0], whole.sigma[:, at])
