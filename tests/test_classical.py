"""Laws and oracles of the classical fills."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn, idctn

from hydiff import metrics
from hydiff.errors import BadValue
from hydiff.methods import METHODS, choose, classical

SPATIAL = ("smooth", "harmonic", "biharmonic", "tension", "linear", "idw", "nearest", "bandmean")
CLASSICAL = [name for name, m in METHODS.items() if m.module in ("classical", "smooth")]


def run(name, y, observed, sigma=0.0, **overrides):
    chosen = choose(name, None, overrides)
    sigma = np.full(len(y), float(sigma))
    rng = np.random.default_rng(0)
    *_, last = chosen.inpaint(y * observed, observed, sigma, chosen.settings, rng=rng)
    return last.x


def interior_gap(shape=(40, 44)):
    """A gap that stays clear of the border, where boundary conditions play no part."""
    observed = np.ones(shape, bool)
    observed[12:20, 10:15] = False
    observed[22:27, 24:33] = False
    return observed


def surface(rng, shape=(3, 40, 44)):
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(rng.random(shape), (0, 2, 2))


@pytest.mark.parametrize("name", CLASSICAL)
def test_observed_entries_survive_and_the_input_is_not_touched(name, tiny, stripes):
    y = tiny * stripes
    before = y.copy()
    x = run(name, tiny, stripes)
    assert np.array_equal(x[:, stripes], tiny[:, stripes])
    assert np.array_equal(y, before)


@pytest.mark.parametrize("name", SPATIAL)
def test_spatial_fills_reach_every_pixel(name, tiny, stripes):
    assert np.isfinite(run(name, tiny, stripes)).all()


@pytest.mark.parametrize("name", SPATIAL)
def test_a_shared_mask_may_be_given_per_band(name, tiny, stripes):
    per_band = np.broadcast_to(stripes, tiny.shape)
    np.testing.assert_allclose(run(name, tiny, stripes), run(name, tiny, per_band), atol=1e-9)


@pytest.mark.parametrize("name", CLASSICAL)
def test_the_order_of_a_cube_in_memory_does_not_matter(name, tiny, stripes):
    """Files that store pixel by pixel are read as they lie."""
    by_pixel = np.ascontiguousarray(tiny.transpose(1, 2, 0)).transpose(2, 0, 1)
    one, other = run(name, tiny, stripes), run(name, by_pixel, stripes)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["smooth", "harmonic", "biharmonic", "tension", "nearest", "bandmean"]
)
def test_fills_follow_the_cube_when_it_is_turned(name, tiny):
    observed = np.ones((24, 24), bool)
    observed[7:12, 9:13] = False
    turned = run(name, np.rot90(tiny, axes=(1, 2)).copy(), np.rot90(observed).copy())
    if name == "nearest":  # ties may fall to another neighbour: compare the error instead
        truth = np.rot90(tiny, axes=(1, 2))
        assert np.abs(turned - truth).max() < 3 * np.abs(run(name, tiny, observed) - tiny).max()
    else:
        back = np.rot90(turned, -1, axes=(1, 2))
        np.testing.assert_allclose(back, run(name, tiny, observed), atol=2e-4)


@pytest.mark.parametrize(
    "name", ["smooth", "harmonic", "biharmonic", "tension", "linear", "bandmean"]
)
@given(gain=st.floats(0.1, 10), offset=st.floats(-5, 5))
@settings(max_examples=5, deadline=None)
def test_fills_are_affine(name, gain, offset):
    rng = np.random.default_rng(3)
    y, observed = surface(rng, (4, 20, 20)), np.ones((20, 20), bool)
    observed[5:9, 6:11] = False
    observed[:, 15] = False
    one, other = run(name, y, observed), run(name, gain * y + offset, observed)
    np.testing.assert_allclose(other, gain * one + offset, atol=1e-3 * gain)


@pytest.mark.parametrize("name", ["harmonic", "linear", "biharmonic", "tension", "smooth"])
def test_a_plane_is_continued_across_an_inner_gap(name):
    rows, cols = np.mgrid[:40, :44]
    plane = np.stack([0.01 * rows + 0.02 * cols, 0.5 - 0.005 * rows])
    x = run(name, plane, interior_gap())
    tolerance = 1e-9 if name in ("harmonic", "linear") else 0.03  # the others feel the border
    np.testing.assert_allclose(x, plane, atol=tolerance)


def test_smooth_at_s_1_and_2_is_harmonic_and_biharmonic(tiny, stripes):
    for s, name in ((1.0, "harmonic"), (2.0, "biharmonic")):
        smooth = run("smooth", tiny, stripes, s=s, components=12)
        np.testing.assert_allclose(smooth, run(name, tiny, stripes), atol=2e-4)


@pytest.mark.parametrize("s", [0.75, 1.25, 1.5, 1.75])
def test_smooth_is_the_minimum_of_its_energy(s, rng, stripes):
    """The dense solution of the same quadratic problem, built without DCT or iterations."""
    z = rng.standard_normal((2, 24, 24))
    eigenvalues, V = np.linalg.eigh(classical.laplacian(24, 24).toarray())
    A = (V * np.maximum(eigenvalues, 0) ** s) @ V.T
    missing = ~stripes.ravel()
    right = -A[np.ix_(missing, ~missing)] @ z.reshape(2, -1)[:, ~missing].T
    exact = np.linalg.solve(A[np.ix_(missing, missing)], right).T
    found = classical.field(z, stripes, s)
    np.testing.assert_allclose(found[:, ~stripes], exact, atol=1e-3 * np.abs(exact).max())


def test_a_spline_in_tension_is_the_minimum_of_its_energy(rng, stripes):
    """(1 − t) of a plate's bending and t of a membrane's stretching, differences written out."""
    y, t = rng.random((2, 24, 24)), classical.TENSION
    down = np.diff(np.eye(576).reshape(24, 24, 576), axis=0).reshape(-1, 576)
    right = np.diff(np.eye(576).reshape(24, 24, 576), axis=1).reshape(-1, 576)
    slopes = np.concatenate([down, right])
    bending = slopes.T @ slopes
    rows = np.concatenate([np.sqrt(1 - t) * bending, np.sqrt(t) * slopes])
    missing = ~stripes.ravel()
    seen = rows[:, ~missing] @ y.reshape(2, -1)[:, ~missing].T
    exact = np.linalg.lstsq(rows[:, missing], -seen, rcond=None)[0].T
    np.testing.assert_allclose(run("tension", y, stripes)[:, ~stripes], exact, atol=1e-9)


def test_biharmonic_agrees_with_scikit_image(rng):
    from skimage.restoration import inpaint_biharmonic

    y, observed = surface(rng), interior_gap()
    oracle = inpaint_biharmonic(np.moveaxis(y * observed, 0, -1), ~observed, channel_axis=-1)
    np.testing.assert_allclose(
        run("biharmonic", y, observed), np.moveaxis(oracle, -1, 0), atol=1e-8
    )


def test_smooth_agrees_with_kriging_by_radial_basis_functions(rng):
    """s = 1.5 is the linear variogram: scipy's RBFInterpolator with the kernel −r."""
    from scipy.interpolate import RBFInterpolator

    y, observed = surface(rng), interior_gap()
    rim = RBFInterpolator(np.argwhere(observed), y[:, observed].T, kernel="linear")
    oracle = rim(np.argwhere(~observed)).T
    found = run("smooth", y, observed, s=1.5, components=3)[:, ~observed]
    spread = y.std()
    assert np.sqrt(((found - oracle) ** 2).mean()) < 0.1 * spread


def test_linear_agrees_with_griddata(rng):
    from scipy.interpolate import griddata

    y, observed = surface(rng), interior_gap()
    oracle = griddata(np.argwhere(observed), y[:, observed].T, np.argwhere(~observed)).T
    error = run("linear", y, observed)[:, ~observed] - oracle
    assert np.sqrt((error**2).mean()) < 0.02 * y.std()  # squares may be cut along either diagonal


def test_idw_is_gdal_on_every_band(rng):
    from rasterio.fill import fillnodata

    y, observed = surface(rng), interior_gap()
    oracle = np.stack([fillnodata(b.astype(np.float32), observed, 100.0) for b in y])
    np.testing.assert_allclose(
        run("idw", y, observed)[:, ~observed], oracle[:, ~observed], rtol=1e-6
    )


def test_nearest_takes_an_observed_pixel_at_the_least_distance(rng):
    y, observed = rng.random((1, 15, 17)), rng.random((15, 17)) > 0.6
    x, points = run("nearest", y, observed), np.argwhere(observed)
    for pixel in np.argwhere(~observed):
        distance = ((points - pixel) ** 2).sum(axis=1)
        allowed = y[0][tuple(points[distance == distance.min()].T)]
        assert x[(0, *pixel)] in allowed


def test_spectral_is_linear_in_wavelength(rng):
    wavelengths = np.cumsum(rng.uniform(1, 20, 12))
    y = np.multiply.outer(wavelengths / 100, rng.random((6, 7))) + 0.1
    observed = rng.random(y.shape) > 0.4
    observed[0] = observed[-1] = True
    x = run("spectral", y, observed, wavelengths=tuple(wavelengths))
    np.testing.assert_allclose(x, y)
    reversed_ = run("spectral", y[::-1], observed[::-1], wavelengths=tuple(wavelengths[::-1]))
    np.testing.assert_allclose(reversed_[::-1], x)


def test_spectral_fills_say_nothing_about_pixels_without_any_band(tiny, rng):
    observed = rng.random(tiny.shape) > 0.2
    observed[:, 3, 4] = False
    for name in ("spectral", "subspace"):
        x = run(name, tiny, observed)
        assert np.isnan(x[:, 3, 4]).all()
        assert np.isfinite(np.delete(x.reshape(12, -1), 3 * 24 + 4, axis=1)).all()


def test_subspace_regression_recovers_a_low_rank_cube(tiny, rng):
    observed = rng.random(tiny.shape) > 0.3  # hardly any spectrum is complete: the EM path
    x = run("subspace", tiny, observed, components=3)
    assert np.abs(x - tiny).max() < 0.02
    columns = np.ones(tiny.shape, bool)
    columns[4, :, 7] = columns[5, :, 9] = False  # nearly all complete: the plain path
    np.testing.assert_allclose(run("subspace", tiny, columns, components=3), tiny, atol=1e-6)


def test_smooth_uses_the_bands_a_pixel_keeps(tiny):
    """A gap of five columns in half the bands: spectra tell more than the neighbours do."""
    observed = np.ones(tiny.shape, bool)
    observed[:6, :, 8:13] = False
    missing = ~observed
    smooth = np.abs(run("smooth", tiny, observed) - tiny)[missing].mean()
    harmonic = np.abs(run("harmonic", tiny, observed) - tiny)[missing].mean()
    assert smooth < 0.1 * harmonic


def test_smooth_denoises_when_noise_is_given(tiny, stripes, rng):
    noisy = tiny + 0.1 * rng.standard_normal(tiny.shape)
    blind, modelled = run("smooth", noisy, stripes), run("smooth", noisy, stripes, sigma=0.1)
    assert metrics.mpsnr(modelled, tiny) > metrics.mpsnr(blind, tiny) + 5


def test_a_band_without_any_pixel_is_left_to_the_caller(tiny, stripes):
    observed = np.broadcast_to(stripes, tiny.shape).copy()
    observed[3] = False
    assert np.isnan(run("harmonic", tiny, observed)[3]).all()


@pytest.mark.parametrize(("name", "bad"), [("s", 0.0), ("s", 2.5), ("components", 0)])
def test_settings_without_meaning_are_refused(name, bad):
    with pytest.raises(BadValue, match=name):
        choose("smooth", None, {name: bad})


# MPSNR composited, scale and masks as in the table of prototypes: percentiles 0.01 and 99.9,
# clipped; computed by an independent prototype, 2 decimals.
PROTOTYPE = {
    ("stripes", "harmonic"): 40.15,
    ("stripes", "biharmonic"): 40.28,
    ("stripes", "smooth"): 40.66,
    ("blobs", "harmonic"): 39.37,
    ("blobs", "biharmonic"): 37.77,
    ("blobs", "smooth"): 39.65,
}


@pytest.mark.parametrize(("mask", "name"), PROTOTYPE)
def test_the_prototype_figures_are_reproduced(mask, name, data_dir):
    cube = np.load(data_dir / "dev" / "indian_pines_144.npz")["cube"].transpose(2, 0, 1)
    low, high = np.percentile(cube, [0.01, 99.9])
    truth = np.clip((cube - low) / (high - low), 0, 1)
    observed = np.load(data_dir / "masks.npz")[f"{mask}_144_s3"]
    fixed = {"s": 1.5} if name == "smooth" else {}
    found = metrics.mpsnr(run(name, truth, observed, **fixed), truth)
    assert found == pytest.approx(PROTOTYPE[mask, name], abs=0.1)


@pytest.mark.parametrize("shape", [(67, 12), (12, 67), (67, 71), (12, 16)])
def test_a_transform_by_its_matrix_is_the_transform(shape, rng, monkeypatch):
    f, weight = rng.standard_normal((2, *shape)), rng.random(shape)
    expected = idctn(weight * dctn(f, axes=(1, 2), norm="ortho"), axes=(1, 2), norm="ortho")
    monkeypatch.setattr(classical, "THREADS", 1)
    classical._is_awkward.cache_clear()
    assert [classical._is_awkward(n) for n in (12, 67)] == [False, True]
    given = f.copy()
    np.testing.assert_allclose(classical.filtered(f, weight), expected, atol=1e-13)
    assert np.array_equal(f, given)  # only the spectrum is overwritten
    single = classical.filtered(f.astype(np.float32), weight.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)
