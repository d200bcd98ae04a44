"""Samples of a fill: their mean is the fill, their spread its error bars, their sums as wrong."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
import zarr
from scipy import ndimage, sparse
from scipy.sparse import linalg

import hydiff
import products
from hydiff.errors import BadValue, CubeFormatError
from hydiff.io import sample_files
from hydiff.maths import gaussian
from hydiff.maths.variogram import (
    Covariance,
    fit_covariances,
    fit_to_windows,
    lags_within,
    model_variogram,
)
from hydiff.methods.classical import filtered, laplacian, laplacian_eigenvalues
from hydiff.scale import scene_samples
from hydiff.uncertainty import error_model
from hydiff.uncertainty.draws import Systems, kriging_error, reached, white, white_planes
from hydiff.uncertainty.samples import (
    Surroundings,
    error_draws,
    gaps_of,
    mixing_of,
    model_of,
    systems_of,
)
from hydiff.uncertainty.windows import divided, surrounding
from test_cli import PLAIN, hydiff_

N = 200


@pytest.fixture(scope="module")
def scene():
    """A crop of Indian Pines, every eighth band."""
    cube = hydiff.sample().window(rows=slice(0, 28), cols=slice(0, 28))
    return np.asarray(cube.values, np.float64)[::8]


@pytest.fixture(scope="module")
def observed(scene):
    """Two stripes without any band, and a column of a band."""
    observed = np.ones(scene.shape, bool)
    observed[:, :, 8:12] = observed[:, 18:22, 15:24] = False
    observed[5, :, 26] = False
    return observed


@pytest.fixture(scope="module")
def result(scene, observed):
    return hydiff.fill(scene, observed, method="smooth", error_bars=True)


@pytest.fixture(scope="module")
def drawn(result):
    return np.stack(list(result.samples(N)))


def test_the_mean_of_samples_is_the_fill(result, drawn):
    at = result.filled
    z = (drawn.mean(axis=0) - result.values)[at] / (drawn.std(axis=0)[at] / np.sqrt(N))
    assert 0.85 < np.sqrt((z**2).mean()) < 1.15 and np.abs(z).max() < 6


def test_the_spread_of_samples_is_that_of_the_error_bars(result, drawn):
    """Entry by entry, within what the spread of so many samples varies by itself."""
    ratio = drawn.std(axis=0)[result.filled] / result.sigma[result.filled]
    chance = 1 / np.sqrt(2 * N)
    assert abs(ratio.mean() - 1) < chance and np.abs(ratio - 1).max() < 6 * chance
    assert ratio.std() < 1.5 * chance


def test_measured_entries_are_as_they_are_and_left_ones_stay_missing(scene, observed):
    some = hydiff.fill(scene, observed, method="smooth", bands="0:20")
    (one,) = some.samples(1)
    assert one.shape == scene.shape and one.dtype == some.values.dtype
    assert np.array_equal(one[observed], scene[observed])
    assert np.array_equal(np.isnan(one), ~observed & ~some.filled) and np.isnan(one).any()


def test_a_sample_depends_on_the_seed_and_its_number_alone(result, drawn):
    again, others = list(result.samples(2)), list(result.samples(2, seed=1))
    assert np.array_equal(again, drawn[:2])
    at = result.filled
    assert not (others[0] == drawn[0])[at].any() and not (drawn[1] == drawn[0])[at].any()


def test_samples_follow_the_unit_of_the_cube(scene, observed):
    """Of a x + b the samples are those of x, times a, plus b."""
    (own,), (other,) = (
        hydiff.fill(x, observed, method="smooth").samples(1) for x in (scene, 0.5 * scene - 100)
    )
    assert np.allclose(other, 0.5 * own - 100, atol=1e-6 * np.nanstd(scene))


@pytest.mark.parametrize("s", [1.0, 2.0])
def test_draws_have_the_covariance_of_the_dense_posterior(s):
    """The draw is linear in its noise: its matrix A is known from unit noise, and A Aᵀ."""
    complete = np.ones((6, 7), bool)
    complete[2:4, 1:6] = False
    sill, nugget, reach, n = 2.0, 0.2, 10.0, complete.size
    unit, none = np.eye(n).reshape(-1, *complete.shape), np.zeros((n, *complete.shape))
    draw = kriging_error(
        Systems(complete, everywhere=True), [Covariance(s, reach, sill, nugget)] * n
    )
    A = np.hstack([draw(*pair).reshape(n, n).T for pair in ((unit, none), (none, unit))])
    power = (laplacian_eigenvalues(*complete.shape) + reach**-2) ** s
    precision = filtered(unit, power).reshape(n, n) / sill + np.diag(complete.ravel()) / nugget
    assert np.allclose(A @ A.T, np.linalg.inv(precision), atol=0.01 * sill)


@pytest.mark.parametrize("kind", [(1.0, 10.0, 0.1), (2.0, 2.5, 0.01), (2.0, np.inf, 1.0)])
def test_what_lies_behind_complete_pixels_does_not_matter(rng, kind):
    """Solutions are those of the whole grid, though only pixels near the gaps take part."""
    complete = np.ones((40, 60), bool)
    complete[:, 20:25] = complete[10:12, 40:50] = False
    assert reached(*kind) < 12  # else all of the grid takes part
    s, reach, kappa = kind
    right = rng.standard_normal((3, *complete.shape))
    membrane = laplacian(*complete.shape) + reach**-2 * sparse.eye_array(complete.size)
    power = membrane if s == 1 else membrane @ membrane
    matrix = sparse.diags_array(complete.ravel().astype(float)) + kappa * power
    whole = linalg.spsolve(matrix.tocsc(), right.reshape(3, -1).T).T.reshape(right.shape)
    gaps, everywhere = (Systems(complete, e).solve(kind, right) for e in (False, True))
    for found, at in ((gaps, ~complete), (everywhere, ~complete), (everywhere, complete)):
        off = np.sqrt(((found - whole)[:, at] ** 2).mean())
        assert 0 < off < 0.002 * whole[:, at].std()
    assert not gaps[:, -1, -1].any()  # where nothing was asked for


def test_without_gaps_cosines_solve_the_system(rng):
    complete, right = np.ones((12, 15), bool), rng.standard_normal((2, 12, 15))
    power = laplacian_eigenvalues(12, 15) + 0.1**2
    found = Systems(complete, everywhere=True).solve((1.0, 10.0, 0.5), right)
    assert np.allclose(complete * found + 0.5 * filtered(found, power), right)


def test_white_noise_belongs_to_places_and_shares_nothing():
    at = np.ones((60, 50), bool)
    at[:, 10:20] = False
    whole = white(7, (3,), 40, (slice(0, 60), slice(0, 50)), at)
    part = white(7, (3,), 40, (slice(17, 60), slice(30, 50)), at[17:, 30:])
    plane = white_planes(7, (3,), 40, (slice(0, 60), slice(0, 50)))
    assert np.array_equal(whole, plane[:, at])
    assert np.array_equal(part, plane[:, 17:, 30:].reshape(40, -1))
    assert abs(whole.mean()) < 0.01 and abs(whole.std() - 1) < 0.01
    other = white(7, (4,), 40, (slice(0, 60), slice(0, 50)), at)
    chance = 1 / np.sqrt(whole.size)
    assert abs((whole * other).mean()) < 5 * chance  # between samples
    assert abs((whole[1:] * whole[:-1]).mean()) < 5 * chance  # between bands
    assert abs((whole[:, 1:] * whole[:, :-1]).mean()) < 5 * chance  # and pixels


def test_a_blurred_field_is_met_better_than_by_the_family_of_the_fill(rng):
    """At lags of one to six pixels, the worst of them."""
    power = (laplacian_eigenvalues(64, 64) + 0.01) ** -0.625
    z = ndimage.gaussian_filter(filtered(rng.standard_normal((4, 64, 64)), power), (0, 0.7, 0.7))
    complete = np.ones((64, 64), bool)
    complete[:, 30:34] = False
    down, right = lags_within(6)

    def off(*family):
        fits = fit_covariances(z, complete, *family)
        found = sum(c.nugget + c.sill * model_variogram(c.s, c.reach, 6) for c in fits)
        steps = {n: ((z[:, n:] - z[:, :-n]) ** 2).mean(axis=(1, 2)).sum() / 2 for n in range(1, 7)}
        return max(
            abs(found[(down == n) & (right == 0)].item() / step - 1) for n, step in steps.items()
        )

    assert off(error_model.ORDERS, error_model.REACHES) < 0.8 * off()


@pytest.mark.parametrize("error_bars", [False, True])
def test_windows_of_a_scene_are_drawn_as_the_scene_is(rng, error_bars):
    """A smooth field with gaps on both sides of an edge, one of them wider than what usually
    surrounds a window: within 2 % of σ, and without a seam."""
    field = ndimage.gaussian_filter(rng.standard_normal((4, 20, 288)), (0, 4, 4))
    observed = np.ones(field.shape, bool)
    observed[:, :, 40:104] = observed[:, 10:14, 104:] = False
    gaps = gaps_of(hydiff.fill(field, observed, method="smooth", error_bars=error_bars))
    model, everything = model_of(gaps), Surroundings.of_cube(gaps)
    whole, parts = np.zeros((2, *field.shape))
    whole[:, ~observed[0]] = error_draws(gaps, 0).draw(0)
    distance = ndimage.distance_transform_edt(~everything.complete)
    for window in divided(field.shape[1:], 72):
        here = (slice(None), *window)
        place = surrounding(window, distance)
        part = gaps._replace(
            values=gaps.values[here], observed=gaps.observed[here], drawn=gaps.drawn[here],
            sigma=None if gaps.sigma is None else gaps.sigma[here],
        )  # fmt: skip
        around = Surroundings(everything.complete[place], place, window)
        at, draw = error_draws(part, 0, model, around)
        parts[here][:, at] = draw(0)
    off = np.sqrt(((whole - parts)[~observed] ** 2).mean())
    assert off < 0.02 * whole[~observed].std()
    seam, step = (x[..., 72] - x[..., 71] for x in (parts, whole))
    assert np.std(seam) < 1.05 * np.std(step)


def test_the_model_depends_on_measured_values_alone(scene, observed):
    gaps = gaps_of(hydiff.fill(scene, observed, method="smooth"))
    other = gaps._replace(values=np.where(observed, gaps.values, 0.0))
    found, again = (model_of(each) for each in (gaps, other))
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


def test_a_covariance_is_fitted_to_pairs_within_windows(rng):
    """What lies between windows does not matter: a window seen twice is as one."""
    z, complete = rng.standard_normal((3, 20, 24)).cumsum(axis=2), np.ones((20, 24), bool)
    complete[:, 8:12] = False
    (once, twice) = (fit_to_windows([(z, complete)] * n) for n in (1, 2))
    assert once == fit_covariances(z, complete)
    assert np.allclose(once, twice, rtol=1e-9)


def test_bands_that_a_pixel_keeps_leave_what_a_gaussian_says(scene, observed):
    gaps = gaps_of(hydiff.fill(scene, observed, method="smooth"))
    model, everything = model_of(gaps), Surroundings.of_cube(gaps)
    at = gaps.drawn.any(axis=0)
    systems = systems_of(everything.complete, model)
    mixing = mixing_of(gaps, model, at, everything, systems)
    covariance = (model.basis * model.variance) @ model.basis.T + np.diag(model.left)
    (members, _), kept = mixing.roots[0], gaps.observed[:, at]
    exact = gaussian.condition(
        np.zeros((len(scene), 1)),
        kept[:, members[:1]],
        gaussian.Gaussian(np.zeros(len(scene)), covariance),
    )[1]
    assert np.allclose(mixing.spread[5, members[0]] ** 2, exact[5, 0], rtol=1e-6)


def test_with_noise_observed_entries_vary_within_it(scene, observed):
    noise = 0.05 * scene.std()
    noisy = scene + noise * np.random.default_rng(0).standard_normal(scene.shape)
    found = hydiff.fill(noisy, observed, method="smooth", sigma_y=noise)
    spread = np.std(list(found.samples(30)), axis=0)
    assert (spread[observed].mean() < noise) and (spread[observed] > 0).all()
    assert spread[found.filled].mean() > spread[observed].mean()


def test_samples_of_denoised_entries_are_as_wrong_as_these(scene, observed, rng):
    noise = 0.2 * scene.std()
    noisy = scene + noise * rng.standard_normal(scene.shape)
    found = hydiff.fill(noisy, observed, method="smooth", sigma_y=noise, denoise=True)
    error = np.sqrt(np.mean((found.values - scene)[observed] ** 2))
    spread = np.sqrt(np.mean(np.std(list(found.samples(20)), axis=0)[observed] ** 2))
    assert 0.75 < spread / error < 1.33


def test_impossible_numbers_are_refused(result):
    for n in (0, -1, 2.5):
        with pytest.raises(BadValue, match="expected a number of samples"):
            result.samples(n)


@pytest.fixture
def damaged(tmp_path, tiny, stripes):
    values = np.where(stripes, 1000 * tiny, -9999).astype(np.int16)
    hydiff.write(hydiff.Cube(values, nodata=-9999), tmp_path / "scene.img")
    return tmp_path


def test_samples_are_written_as_numbered_files(damaged):
    hydiff_("fill", "scene.img", "-o", "out.img", "--samples", "3", *PLAIN, cwd=damaged)
    source, filled = hydiff.read(damaged / "scene.img"), hydiff.read(damaged / "out.img")
    missing = source.values[:] == -9999
    files = [damaged / f"out.sample-0{i}.img" for i in (1, 2, 3)]
    cubes = [hydiff.read(path) for path in files]
    for cube in cubes:
        assert cube.dtype == np.int16 and cube.mark is not None
        assert np.array_equal(cube.values[:][~missing], source.values[:][~missing])
    values = np.stack([cube.values[:][missing] for cube in cubes]).astype(float)
    assert (values.std(axis=0) > 0).mean() > 0.5
    assert np.abs(values.mean(axis=0) - filled.values[:][missing]).mean() < values.std()
    hydiff_("fill", "scene.img", "-o", "out.img", *PLAIN, cwd=damaged, code=2)
    assert all(path.exists() for path in files)
    hydiff_("fill", "scene.img", "-o", "out.img", "--overwrite", *PLAIN, cwd=damaged)
    assert not any(path.exists() for path in files)  # they were of the former fill


def test_samples_of_an_envi_fill_without_a_suffix_have_one(damaged):
    (damaged / "scene.img").rename(damaged / "scene")
    hydiff_("fill", "scene", "-o", "out", "--samples", "2", *PLAIN, cwd=damaged)
    assert (damaged / "out.sample-02.img").exists()
    assert len(list(sample_files.stored(damaged / "out", hydiff.read(damaged / "out").shape))) == 2


def test_samples_of_tiles_have_the_uncertainty_of_the_product(damaged):
    bands = hydiff.read(damaged / "scene.img").bands
    np.savetxt(damaged / "u.txt", np.full(bands, 2000.0))
    how = ("--set", "error_bars=true", "--input-uncertainty", "u.txt", "--tile", "24")
    hydiff_("fill", "scene.img", "-o", "o.zarr", "--samples", "20", *PLAIN, *how, cwd=damaged)
    store = zarr.open_group(sample_files.store_path(damaged / "o.zarr"), mode="r")
    sigma = zarr.open_group(damaged / "o.zarr", mode="r")["cube_hydiff_sigma"][:]
    spread = np.asarray(store["cube"][:]).std(axis=0, ddof=1)[np.isfinite(sigma)]
    assert np.nanmin(sigma) >= 2000
    assert np.sqrt((spread**2).mean()) == pytest.approx(np.sqrt(np.nanmean(sigma**2)), rel=0.1)


def test_zarr_has_an_axis_for_samples(damaged):
    hydiff_("fill", "scene.img", "-o", "out.zarr", "--samples", "2", *PLAIN, cwd=damaged)
    store = zarr.open_group(sample_files.store_path(damaged / "out.zarr"), mode="r")
    filled = hydiff.read(damaged / "out.zarr")
    array = store["cube"]
    assert array.metadata.dimension_names == ("sample", "band", "y", "x")
    result = hydiff.fill(hydiff.read(damaged / "scene.img"), outside="keep", method="smooth")
    own = [np.rint(x)[result.filled] for x in result.samples(2)]
    assert np.array_equal(np.asarray(array[:])[:, result.filled], own)
    assert array.shape == (2, *filled.shape) and "filled" in str(dict(array.attrs))


def test_netcdf_has_an_axis_for_samples(tmp_path):
    """As other programs read it, and as `hydiff propagate` does."""
    values = products.scene(8, 24, 20).astype(np.float32)
    values[:, 9:12, 4:15] = -9999
    products.emit(tmp_path / "scene.nc", values)
    with h5py.File(tmp_path / "scene.nc", "r+") as file:
        for place in ("lat", "lon"):
            file[f"location/{place}"] = np.arange(480.0).reshape(24, 20)
    hydiff_("fill", "scene.nc", "-o", "out.nc", "--samples", "10", *PLAIN, cwd=tmp_path)
    path, missing = sample_files.store_path(tmp_path / "out.nc"), values == -9999
    with xarray.open_dataset(path, engine="h5netcdf", mask_and_scale=False) as data:
        array = data["reflectance"]
        assert array.dims == ("sample", "band", "y", "x") and "filled" in str(data.attrs)
        assert np.allclose(data["wavelength"], products.wavelengths(8))
        assert array.attrs["units"] == "unitless" and (array["fwhm"] == 8.5).all()
        assert array["lat"].dims == ("y", "x") and array["lon"][1, 2] == 22
        drawn = array.values
    assert np.array_equal(drawn[:, ~missing], np.stack([values[~missing]] * 10))
    result = hydiff.fill(hydiff.read(tmp_path / "scene.nc"), outside="keep", method="smooth")
    own = np.stack(list(result.samples(10)))[:, result.filled]
    np.testing.assert_allclose(drawn[:, result.filled], own, rtol=1e-6)
    assert np.array_equal(
        np.stack(list(sample_files.stored(tmp_path / "out.nc", (8, 24, 20)))), drawn
    )
    hydiff_("fill", "scene.nc", "-o", "out.nc", "--overwrite", *PLAIN, cwd=tmp_path)
    assert not path.exists()  # it was of the former fill


def test_samples_in_netcdf_lie_where_the_cube_lies(tmp_path):
    values = products.scene(4, 12, 10).astype(np.float32)
    values[:, 5:7] = -9999
    cube = hydiff.read(products.aviris(tmp_path / "scene.nc", values))
    hydiff_("fill", "scene.nc", "-o", "out.nc", "--samples", "1", *PLAIN, cwd=tmp_path)
    path = sample_files.store_path(tmp_path / "out.nc")
    with xarray.open_dataset(path, engine="h5netcdf") as d:
        array = d["radiance"]
        place = d[array.attrs["grid_mapping"]].attrs
        assert place["crs_wkt"] == cube.crs and array["wavelength"].attrs["units"] == "nm"
        assert place["GeoTransform"].split()[1] == "4.9"
        assert float(array["x"][0]) == pytest.approx(500000 + 4.9 / 2)


def test_a_netcdf_file_without_samples_is_refused(tmp_path):
    with h5py.File(sample_files.store_path(tmp_path / "out.nc"), "w") as file:
        file["cube"] = np.zeros((2, 3, 4))
    with pytest.raises(CubeFormatError, match="samples in a netCDF file"):
        list(sample_files.stored(tmp_path / "out.nc", (2, 3, 4)))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say")
def test_samples_of_a_scene_do_not_stay_in_memory(tmp_path, monkeypatch):
    """Their files are mapped for one window at a time, whatever their number."""
    values = products.scene(4, 40, 230).astype(np.float32)
    values[:, 9:12] = np.nan
    hydiff.write(hydiff.Cube(values), tmp_path / "scene.zarr")
    mapped = []

    def drawing(*args):
        mapped.append(Path("/proc/self/maps").read_text().count("sample-"))
        return error_draws(*args)

    monkeypatch.setattr(scene_samples, "error_draws", drawing)
    how = ("--samples", "3", "--tile", "64", *PLAIN)
    hydiff_("fill", "scene.zarr", "-o", "out.zarr", *how, cwd=tmp_path)
    assert mapped == [0, 0, 0]  # windows


def test_samples_do_not_depend_on_tiles(tmp_path):
    """Those of a cube filled at once and by tiles of two sizes differ, in units of its error bars,
    by less than 2 %, though fills and error bars differ by more."""
    cube = hydiff.sample().window(rows=slice(0, 24), cols=slice(0, 140), bands=slice(0, 12))
    values = np.asarray(cube.values, np.float32)
    values[:, :, 64:76] = values[4, :, 30] = np.nan  # over the edge of a window; a column of a band
    hydiff.write(hydiff.Cube(values), tmp_path / "scene.zarr")
    missing = np.isnan(values)

    def drawn(*tiles):
        how = ("--samples", "2", "--set", "error_bars=true", "--overwrite", *tiles, *PLAIN)
        hydiff_("fill", "scene.zarr", "-o", "out.zarr", *how, cwd=tmp_path)
        samples = np.stack(list(sample_files.stored(tmp_path / "out.zarr", values.shape)))
        assert np.array_equal(samples[:, ~missing], np.stack([values[~missing]] * 2))
        out = zarr.open_group(tmp_path / "out.zarr", mode="r")
        filled, sigma = (
            np.asarray(out[name][:])[missing] for name in ("cube", "cube_hydiff_sigma")
        )
        return (samples[:, missing] - filled) / sigma, sigma

    def difference(a, b):
        return np.sqrt(((a - b) ** 2).mean() / (b**2).mean())

    whole, sigma = drawn()
    for size in ("64", "48"):
        by_tiles, own_sigma = drawn("--tile", size)
        assert difference(by_tiles, whole) < 0.02 < difference(own_sigma, sigma)
