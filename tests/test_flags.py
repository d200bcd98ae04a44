"""Laws of flags: what they say of every entry, and that other programs read the same."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
import rasterio
import spectral
import xarray

import command
import hydiff
import products
from hydiff import flags, io
from hydiff.auto.classes import BAND_GROUPS, D, distance_class
from hydiff.auto.folds import TrialWindow
from hydiff.auto.recipe import Errors, KindRecipe, ReferenceRecipe, Tried
from hydiff.auto.sources import Sourced, sources
from hydiff.cube import Cube
from hydiff.errors import BadValue, CubeFormatError, HydiffError, ShapeMismatch
from hydiff.io import fill_layers, npz, provenance, uncertainty
from hydiff.request import Request
from hydiff.scale import batch, execute
from hydiff.scale.scene import Limits

SHAPE = (8, 40, 36)
BARRED = Request(method="smooth", outside="fill", settings={"error_bars": True})
WHOLE, TILES = Limits(8e9), Limits(8e9, tile=16)


@pytest.fixture(scope="module")
def scene():
    """A cube on a map with pixels without any band, pixels that keep some, a lost line and a bad
    band."""
    values = (1000 * products.scene(*SHAPE)).astype(np.float32)
    values[:, 10:13, 5:20] = values[:, 25] = values[2:5, 30:33, 8:12] = np.nan
    good = np.ones(SHAPE[0], bool)
    good[6] = False
    values[6, 34:36, 3:6] = np.nan
    return Cube(
        values,
        wavelengths=products.wavelengths(SHAPE[0]),
        wavelength_units="Nanometers",
        good=good,
        crs=products.UTM.to_wkt(),
        transform=(30.0, 0.0, 5e5, 0.0, -30.0, 4e6),
    )


@pytest.fixture(scope="module")
def observed():
    """(rows, cols) a mask that overlaps with what the cube itself lacks."""
    mask = np.ones(SHAPE[1:], bool)
    mask[18:20, 20:23] = mask[12, 4:6] = False
    return mask


@pytest.fixture(scope="module")
def result(scene, observed):
    return hydiff.fill(scene, observed, method="smooth", error_bars=True)


def has(layer, bit):
    return (layer & bit) != 0


# --- what they say --------------------------------------------------------------------------------


def test_flags_are_zero_exactly_where_a_measured_value_was_left(scene, observed, result):
    measured = scene.observed() & observed
    assert np.array_equal(result.flags == 0, measured)
    assert np.array_equal(result.why == 0, measured)
    assert np.array_equal(has(result.flags, flags.FILLED), result.filled)


def test_an_entry_comes_from_kept_bands_or_from_space(scene, observed, result):
    bands, space = (has(result.flags, b) for b in (flags.FROM_BANDS, flags.FROM_SPACE))
    assert not (bands & space).any() and np.array_equal(bands | space, result.filled)
    keeps = (scene.observed() & observed)[scene.good].any(axis=0)
    assert np.array_equal(bands, result.filled & keeps & scene.good[:, None, None])
    plain = hydiff.fill(scene, observed, method="linear")  # a band from its own pixels alone
    assert not has(plain.flags, flags.FROM_BANDS).any()


def test_values_outside_of_the_observed_range_are_flagged():
    """As the file holds them: whole numbers, and clipped where that was asked; the top of a hill
    is lost."""
    y, x = np.mgrid[-12:12, -12:12]
    values = np.stack([900 - y**2 - x**2, 700 - y**2]).astype(np.int16)
    values[:, 9:15, 9:15] = -1
    for clip in ("none", "observed"):
        done = hydiff.fill(Cube(values, nodata=-1), method="biharmonic", clip=clip)
        low = np.array([band[band != -1].min() for band in values])[:, None, None]
        high = values.max(axis=(1, 2))[:, None, None]
        beyond = (done.cube.values < low) | (done.cube.values > high)
        assert np.array_equal(has(done.flags, flags.OUTSIDE), beyond & done.filled)
        assert beyond[done.filled].any() == (clip == "none")


def test_a_measured_value_that_was_changed_on_request_is_flagged(scene):
    done = hydiff.fill(scene, method="smooth", sigma_y=5.0, denoise=True)
    changed = scene.observed() & (np.asarray(done.cube.values) != scene.values)
    assert changed.any() and np.array_equal(done.flags == flags.CHANGED, changed)


def test_every_missing_entry_has_its_reasons(scene, observed, result):
    lost = np.zeros(SHAPE, bool)
    lost[:, 25] = True
    assert np.array_equal(has(result.why, flags.FRAME), lost)
    assert np.array_equal(has(result.why, flags.NODATA), ~scene.observed())
    assert np.array_equal(has(result.why, flags.MASK), np.broadcast_to(~observed, SHAPE))


def test_a_product_says_what_is_cloud_and_what_is_saturated(tmp_path):
    values = products.scene(6, 24, 20).astype("f4")
    cloud, bad = np.zeros((24, 20), bool), np.zeros(values.shape, bool)
    cloud[3:5, 4:9] = bad[2, 9:12, 7] = True
    source = products.emit(tmp_path / "EMIT_L2A_RFL_001_x.nc", values)
    layer = products.emit_mask(tmp_path / "EMIT_L2A_MASK_001_x.nc", bad, cloud)
    request = Request(method="linear", quality=layer, flags="cloud,band", outside="fill")
    made = execute.fill_file(source, tmp_path / "out.nc", request, WHOLE)
    with h5py.File(tmp_path / "out.nc") as file:
        why = file["reflectance_hydiff_why"][()].transpose(2, 0, 1)
        meanings = file["reflectance_hydiff_why"].attrs["flag_meanings"].split()
    assert np.array_equal(has(why, flags.CLOUD), np.broadcast_to(cloud, values.shape))
    assert np.array_equal(has(why, flags.MASK), bad)
    assert meanings == ["nodata", "lost_frame", "mask", "cloud", "saturated"]
    assert made.record["reasons"] == {"mask": int(bad.sum()), "cloud": 6 * int(cloud.sum())}
    assert io.quality.reason_of("saturated") == flags.SATURATED


def test_prior_reference_and_untried_distances_are_flagged_as_a_recipe_weighs_them(scene):
    """8 where a network that learned elsewhere has a tenth or more, 16 where another image served,
    32 where nothing was tried."""
    share, untried = np.resize([0.0, 0.099, 0.1, 0.9], D), np.resize([False, True, True], D)
    weights = np.broadcast_to(np.stack([1 - share, share])[..., None], (2, D, BAND_GROUPS))
    tried = (Tried("smooth", "smooth", {}), Tried("prior", "prior", {}, weights="0" * 64))
    errors = Errors(by_distance=tuple(None if u else 0.1 for u in untried))
    recipe = KindRecipe(
        gaps="no bands",
        candidates=tried,
        weights=tuple(tuple(map(tuple, w)) for w in weights.tolist()),
        errors=errors,
        why="",
        reason="",
        folds=3,
    )
    values = np.asarray(scene.values)
    seen = np.ones(SHAPE, bool)
    seen[:, :30, :30] = False
    window = TrialWindow(Cube(values), seen, ~seen)
    found = sources([Sourced(recipe, window)], SHAPE)
    near = distance_class(seen[0])
    assert len(np.unique(near[:30, :30])) >= 4
    expected = flags.PRIOR * (share >= 0.1) | flags.FAR * untried
    assert np.array_equal(found, np.where(seen, 0, expected[near]))
    halves = np.full((2, D, BAND_GROUPS), 0.5).tolist()  # the fill without, and the reference
    own = ReferenceRecipe(tried[:1], halves, errors, "", 1.0, (), (True,), True)
    found = sources([Sourced(replace(recipe, with_reference=own), window, served=True)], SHAPE)
    expected = flags.PRIOR * (share / 2 >= 0.1) | flags.FAR * untried | flags.REFERENCE
    assert np.array_equal(found, np.where(seen, 0, expected[near]))


# --- files ----------------------------------------------------------------------------------------


def by_rasterio(path):
    """GDAL: the layers beside a cube, with its place and wavelengths."""
    layers = {}
    for name in flags.LAYERS:
        with rasterio.open(path.with_name(f"{path.name}.{name}{path.suffix}")) as layer:
            with rasterio.open(path) as cube:
                assert (layer.crs, layer.transform) == (cube.crs, cube.transform)
            if path.suffix == ".tif":
                listed = [float(layer.tags(b)["wavelength"]) for b in layer.indexes]
                assert listed == products.wavelengths(SHAPE[0]).tolist()
            tags = layer.tags() if path.suffix == ".tif" else layer.tags(ns="ENVI")
            if name == "flags":
                assert tags["flag_masks"] == "1 2 4 8 16 32 64 128"
                assert len(tags["flag_meanings"].split()) == 8
            layers[name] = layer.read()
    return layers


def by_spectral(path):
    layers = {}
    for name in flags.LAYERS:
        image = spectral.io.envi.open(path.with_name(f"{path.name}.{name}.hdr"))
        assert np.allclose(image.bands.centers, products.wavelengths(SHAPE[0]))
        layers[name] = image.open_memmap(interleave="bsq")
        layers[name] = np.array(layers[name])
    return layers


def by_xarray(path):
    with xarray.open_zarr(path, mask_and_scale=False, consolidated=False) as store:
        linked = store["cube"].attrs["ancillary_variables"].split()
        assert linked == [f"cube_hydiff_{name}" for name in flags.LAYERS]
        assert all(store[name].dims == store["cube"].dims for name in linked)
        assert np.allclose(store["wavelength"], products.wavelengths(SHAPE[0]))
        return {name: store[own].values for name, own in zip(flags.LAYERS, linked, strict=True)}


def by_numpy(path):
    with np.load(f"{path}.flags.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("name", "read"),
    [("o.tif", by_rasterio), ("o.bil", by_rasterio), ("o.bip", by_spectral),
     ("o.zarr", by_xarray), ("o.npz", by_numpy)],
    ids=["GeoTIFF by GDAL", "ENVI by GDAL", "ENVI by SPy", "Zarr by xarray", "npz by NumPy"],
)  # fmt: skip
def test_other_programs_read_the_layers_that_were_written(result, tmp_path, name, read):
    result.save(tmp_path / name)
    found = read(tmp_path / name)
    for layer, values in found.items():
        assert np.array_equal(
            values, result.layers[layer].astype(values.dtype), equal_nan=layer == "sigma"
        )
    back = provenance.companions(tmp_path / name, SHAPE)
    assert np.array_equal(back["flags"], result.flags) and np.array_equal(back["why"], result.why)
    np.testing.assert_allclose(back["sigma"], result.sigma, rtol=1e-3 if name == "o.npz" else 1e-6)


@pytest.mark.parametrize("compact", [False, True], ids=["own format", "compact"])
def test_tiles_and_the_whole_agree(scene, observed, tmp_path, compact):
    hydiff.write(scene, tmp_path / "in.tif")
    io.write_mask(~observed, tmp_path / "mask.npz", "missing")
    own = {"method": "linear", "outside": "fill", "compact": compact}
    request = Request(**own, missing=tmp_path / "mask.npz")
    layers, records = [], []
    for name, bounds in (("whole", WHOLE), ("tiles", TILES)):
        done = execute.fill_file(tmp_path / "in.tif", tmp_path / f"{name}.tif", request, bounds)
        layers.append(provenance.companions(tmp_path / f"{name}.tif", SHAPE))
        records.append(done.record)
    inner = ~np.uint8(flags.OUTSIDE)  # the values themselves differ a little
    assert np.array_equal(layers[0]["flags"] & inner, layers[1]["flags"] & inner)
    assert np.array_equal(layers[0]["why"], layers[1]["why"])
    assert records[0]["reasons"] == records[1]["reasons"]
    for record, layer in zip(records, layers, strict=True):
        assert record["flags"] == flags.counted(layer["flags"])
    assert (tmp_path / "tiles.tif.flags.npz").exists() == compact


@pytest.mark.parametrize(
    ("a", "b", "compact"),
    [("a.zarr", "b.zarr", False), ("a.zarr", "b.tif", False), ("a.tif", "b.tif", False),
     ("a.img", "a.img", False), ("a.tif", "b.zarr", True)],
)  # fmt: skip
def test_a_second_fill_keeps_the_flags_of_the_first(scene, tmp_path, a, b, compact):
    first = hydiff.fill(scene, method="smooth", error_bars=True)
    first.save(tmp_path / a, compact=compact)
    mask = np.ones(SHAPE[1:], bool)
    mask[2:4, 2:4] = False
    second = hydiff.fill(io.read(tmp_path / a), mask, method="smooth", error_bars=True)
    second.save(tmp_path / b, overwrite=True)
    both = provenance.companions(tmp_path / b, SHAPE)
    for name in flags.LAYERS:
        expected = np.where(second.filled, second.layers[name], first.layers[name])
        rounding = 1e-3 if compact else 0  # by half precision
        np.testing.assert_allclose(both[name], expected.astype(both[name].dtype), rtol=rounding)


def test_layers_stay_with_a_copy_and_with_a_fill_that_changes_measured_values(scene, tmp_path):
    first = hydiff.fill(scene, method="smooth", outside="fill")
    first.save(tmp_path / "a.tif")
    execute.fill_file(tmp_path / "a.tif", tmp_path / "copy.tif", BARRED, WHOLE)
    assert np.array_equal(provenance.companions(tmp_path / "copy.tif", SHAPE)["flags"], first.flags)
    denoised = hydiff.fill(io.read(tmp_path / "a.tif"), sigma_y=50.0, denoise=True, method="smooth")
    denoised.save(tmp_path / "b.tif")
    both = provenance.companions(tmp_path / "b.tif", SHAPE)["flags"]
    assert np.array_equal(both, first.flags | denoised.flags)
    assert has(both, flags.FILLED).any() and has(both, flags.CHANGED).any()


def test_companions_of_earlier_versions_are_read(result, tmp_path):
    path = io.write(result.cube, tmp_path / "o.tif")[0]
    io.write_mask(result.filled, tmp_path / "o.tif.filled.npz", "missing")
    bars = [sigma[filled] for sigma, filled in zip(result.sigma, result.filled, strict=True)]
    fill_layers.write_bars(bars, int(result.filled.sum()), SHAPE[0], tmp_path / "o.tif.sigma.npz")
    back = provenance.companions(path, SHAPE)
    assert np.array_equal(back["flags"], result.filled)
    np.testing.assert_allclose(back["sigma"], result.sigma, rtol=1e-3)


def test_error_bars_are_coded_without_a_search_for_repetitions(tmp_path):
    """Which finds little in them: the file is hardly larger, and any program can read it."""
    bars = [np.random.default_rng(b).lognormal(size=20_000) for b in range(5)]
    fill_layers.write_bars(bars, 100_000, 5, tmp_path / "bars.npz")
    with np.load(tmp_path / "bars.npz") as arrays:
        share, unit = arrays["share"], arrays["unit"]
        np.testing.assert_allclose(share.reshape(5, -1) * unit[:, None], bars, rtol=1e-3)
        npz.save_archive(tmp_path / "usual.npz", {"share": share, "unit": unit})
    size, usual = ((tmp_path / f"{name}.npz").stat().st_size for name in ("bars", "usual"))
    assert size < 1.05 * usual < 0.95 * share.nbytes
    stream = npz.Stream((10**6,), np.dtype(np.uint8), [np.zeros(10**6)], repeats=False)
    npz.save_archive(tmp_path / "zeros.npz", {"zeros": stream})
    assert (tmp_path / "zeros.npz").stat().st_size > 10**6 / 8.1  # one bit for each byte


def test_flags_of_another_cube_are_refused(result, tmp_path):
    result.save(tmp_path / "o.tif")
    hydiff.write(np.zeros((3, 4, 5), np.uint8), tmp_path / "o.tif.flags.tif", overwrite=True)
    with pytest.raises(CubeFormatError, match="belongs to another cube"):
        provenance.companions(tmp_path / "o.tif", SHAPE)


@pytest.mark.parametrize(
    ("far", "words"), [(8, "not tested on hidden copies"), (2, "farther from data than was tested")]
)
def test_a_fill_without_any_test_is_not_compared_with_one(far, words):
    texts = flags.shares({"filled": 8, "beyond_validated_distance": far})
    assert len(texts) == 1 and texts[0].startswith(f"{100 * far / 8:.3g} % {words}")


def test_the_command_line_names_the_shares_and_a_pattern_leaves_the_layers_out(result, tmp_path):
    result.save(tmp_path / "o.bil")
    share = 100 * has(result.flags, flags.FROM_BANDS).sum() / result.filled.sum()
    line = f"{share:.3g} % from the bands that their pixel kept"
    assert line in command.run("info", "o.bil", cwd=tmp_path).stdout
    hydiff.report.write(tmp_path / "o.bil")
    assert line in (tmp_path / "o.bil.report.html").read_text()
    assert len(list(tmp_path.glob("*.bil"))) == 4
    assert batch.inputs_of([str(tmp_path / "*.bil")]) == [tmp_path / "o.bil"]


def test_statistics_of_measured_pixels_are_the_same_before_and_after(scene, result):
    """A matched filter whose background has no flag: the same bytes on the fill as without it."""

    def scores(values, pixels):
        spectra = values[:, pixels].astype(np.float64)
        mean, inverse = spectra.mean(axis=1), np.linalg.inv(np.cov(spectra))
        return (spectra - mean[:, None]).T @ inverse @ np.ones(len(values))

    untouched = (result.flags == 0).all(axis=0)
    before, after = (scores(np.asarray(c.values), untouched) for c in (scene, result.cube))
    assert 0 < untouched.sum() < untouched.size and before.tobytes() == after.tobytes()


# --- the budget -----------------------------------------------------------------------------------


def test_the_uncertainty_of_the_product_is_added_in_quadrature(scene, observed, result, tmp_path):
    own = np.linspace(1.0, 8.0, SHAPE[0])
    np.savetxt(tmp_path / "u.txt", own)
    np.save(tmp_path / "u.npy", own)
    np.savez(tmp_path / "u.npz", own=own.astype("f4"))
    hydiff.write(np.broadcast_to(own[:, None, None], SHAPE).astype("f4"), tmp_path / "u.tif")
    hydiff.write(scene, tmp_path / "in.bil")
    io.write_mask(observed, tmp_path / "mask.npz", "observed")
    expected = np.hypot(result.sigma, own[:, None, None])
    lists = (("u.txt", Limits(8e9, tile=64)), ("u.npy", WHOLE), ("u.npz", WHOLE))
    for given, bounds in (("u.txt", WHOLE), ("u.tif", WHOLE), *lists):
        words = {"observed": tmp_path / "mask.npz", "input_uncertainty": tmp_path / given}
        request = Request(method="smooth", outside="fill", settings={"error_bars": True}, **words)
        done = execute.fill_file(
            tmp_path / "in.bil", tmp_path / "o.bil", request, bounds, overwrite=True
        )
        back = provenance.companions(tmp_path / "o.bil", SHAPE)["sigma"]
        np.testing.assert_allclose(back, expected, rtol=1e-5)
        parts = {p["component"]: p for p in done.record["budget"]["included"]}
        assert parts["input"]["median"] == pytest.approx(np.median(own))
        assert not done.record["budget"]["not_included"]


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_an_uncertainty_without_error_bars_to_add_it_to_is_said(scene, tmp_path, bounds):
    hydiff.write(scene, tmp_path / "in.bil")
    np.savetxt(tmp_path / "u.txt", np.ones(SHAPE[0]))
    said = []
    for bars in (False, True):
        settings = {"error_bars": bars}
        request = Request(
            method="smooth", settings=settings, input_uncertainty=tmp_path / "u.txt", outside="fill"
        )
        target = tmp_path / "o.bil"
        done = execute.fill_file(tmp_path / "in.bil", target, request, bounds, overwrite=True)
        said.append(any("input uncertainty was not used" in n for n in done.record["notes"]))
    assert said == [True, False]


def test_a_record_says_what_sigma_holds_and_what_it_does_not(result, tmp_path):
    result.save(tmp_path / "o.npz")
    budget = json.loads((tmp_path / "o.npz.fill.json").read_text())["budget"]
    assert budget["measurand"] == uncertainty.MEASURAND
    assert budget["not_included"] == ["calibration", "atmospheric correction"]
    assert [p["component"] for p in budget["included"]] == ["interpolation", "propagated noise"]
    assert all(p["correlation"] for p in budget["included"])


def test_xarray_reads_flags_as_bytes_from_a_store_of_version_2(scene, tmp_path):
    """It takes the fill value of such a store for nodata: 0 would be NaN, and the flags floats."""
    values = scene.values.copy()
    data = xarray.Dataset({"x": (("band", "y", "x"), values, {"grid_mapping": "crs"})})
    data.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
    found = hydiff.fill(tmp_path / "a.zarr", method="smooth", outside="fill", error_bars=True)
    found.save(tmp_path / "b.zarr")
    with xarray.open_zarr(tmp_path / "b.zarr", consolidated=False) as back:
        for name in ("flags", "why"):
            layer = back[f"x_hydiff_{name}"]
            assert layer.dtype == np.uint8 and np.array_equal(layer, found.layers[name])
            assert layer.attrs["grid_mapping"] == "crs"


def test_one_number_is_the_uncertainty_of_every_band(scene):
    how = {"method": "smooth", "error_bars": True}
    one, each, none = (
        hydiff.fill(scene, **how, input_uncertainty=given)
        for given in (2, np.full(SHAPE[0], 2.0), None)
    )
    np.testing.assert_array_equal(one.sigma, each.sigma)
    np.testing.assert_allclose(one.sigma, np.hypot(none.sigma, 2), rtol=1e-5)


def test_an_uncertainty_in_another_unit_than_the_cube_is_refused(scene, tmp_path):
    values = np.ones(SHAPE, np.float32)
    scaled = {"geotiff": {"scales": [0.1] * SHAPE[0], "offsets": [0.0] * SHAPE[0]}}
    hydiff.write(Cube(values, attrs=scaled), tmp_path / "u.tif")
    with pytest.raises(BadValue, match=r"u\.tif has the scale 0\.1, the cube 1; expected"):
        hydiff.fill(scene, method="linear", input_uncertainty=tmp_path / "u.tif")
    same = replace(scene, attrs=scaled)
    assert hydiff.fill(same, method="linear", input_uncertainty=tmp_path / "u.tif").filled.any()
    for name in ("none.txt", "none.npy"):
        with pytest.raises(HydiffError, match="no such file"):
            hydiff.fill(scene, method="linear", input_uncertainty=tmp_path / name)
    np.save(tmp_path / "short.npy", np.ones(3))
    with pytest.raises(ShapeMismatch, match=r"short\.npy has shape \(3,\).*one number per band"):
        hydiff.fill(scene, method="linear", input_uncertainty=tmp_path / "short.npy")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [(np.ones(3), ShapeMismatch, "one number per band"),
     (np.full(SHAPE[0], -1.0), BadValue, "negative numbers"),
     (-1.0, BadValue, "negative numbers"),
     (True, BadValue, "`input_uncertainty=True`: expected"),
     (np.full(SHAPE, np.nan), BadValue, "NaN")],
    ids=["another length", "negative", "a negative number", "a truth value", "not known"],
)  # fmt: skip
def test_an_uncertainty_that_is_none_is_refused(scene, given, error, words):
    with pytest.raises(error, match=words) as caught:
        hydiff.fill(scene, method="linear", input_uncertainty=given)
    assert "\n" not in str(caught.value)
