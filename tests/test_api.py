"""Laws of `hydiff.fill`: what it fills, what it leaves, what it never touches."""

import json
import re
from dataclasses import replace
from inspect import signature
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import xarray

import command
import hydiff
from hydiff import api, request
from hydiff.auto import BUDGETS
from hydiff.cube import Cube
from hydiff.errors import BadValue, NothingObserved, ShapeMismatch, UnknownName
from hydiff.gaps import reach, rule, stored
from hydiff.io import axes
from hydiff.methods import DEFAULT, METHODS, WITH_REFERENCE, choose, declared
from hydiff.methods.determinism import determinism


def damaged(tiny, observed, dtype=np.float32, nodata=-9999):
    values = np.where(observed, 1000 * tiny, nodata).astype(dtype)
    return Cube(values=values, nodata=nodata)


def quick_fill(*given, **options):
    """For laws of every fill: a method of milliseconds; tests/test_auto.py is about the default."""
    return hydiff.fill(*given, method="smooth", **options)


@pytest.mark.parametrize(
    ("dtype", "method"),
    [(np.int16, "auto"), (np.int32, "smooth"), (np.float32, "smooth"), (np.float64, "smooth")],
)
def test_observed_entries_come_back_bit_for_bit(tiny, stripes, dtype, method):
    cube = damaged(tiny, stripes, dtype)
    result = hydiff.fill(cube, method=method)
    assert result.cube.dtype == dtype
    assert np.array_equal(result.cube.values[:, stripes], cube.values[:, stripes])
    assert np.array_equal(result.values[:, stripes], cube.values[:, stripes])
    assert np.array_equal(result.filled, np.broadcast_to(~stripes, cube.shape))
    assert not (result.cube.values == -9999).any()


def test_the_input_is_never_modified(tiny, stripes):
    cube = damaged(tiny, stripes)
    before = np.array(cube.values)
    hydiff.fill(cube, budget="fast")
    assert np.array_equal(cube.values, before)


def test_a_mask_nodata_and_nan_say_the_same(tiny, stripes):
    by_nodata = quick_fill(damaged(tiny, stripes, np.float64)).values
    array = 1000 * tiny
    by_mask = quick_fill(array, stripes).values
    by_nan = quick_fill(np.where(stripes, array, np.nan)).values
    by_flag = quick_fill(np.where(stripes, array, -1.0), nodata=-1.0).values
    for other in (by_mask, by_nan, by_flag):
        np.testing.assert_allclose(other, by_nodata, rtol=1e-12)


def test_a_masked_array_keeps_its_mask_beside_nodata_values(tiny, stripes):
    """In integers and in floats, with another mask and without."""
    values = np.asarray(tiny).astype(np.int32)
    values[:, 0, 0] = -1
    for dtype in (np.int32, np.float32):
        array = np.ma.MaskedArray(values.astype(dtype), np.broadcast_to(~stripes, values.shape))
        for observed in (None, stripes):
            filled = hydiff.fill(array, observed, nodata=-1, method="linear").filled
            np.testing.assert_array_equal(filled, array.mask | (values == -1))


def test_the_values_under_the_mask_have_no_influence(tiny, stripes, rng):
    one = quick_fill(tiny, stripes).values
    other = quick_fill(np.where(stripes, tiny, 1e6 * rng.random(tiny.shape)), stripes).values
    assert np.array_equal(one, other)


def test_an_affine_change_of_unit_changes_the_result_alike(tiny, stripes):
    one = quick_fill(tiny, stripes).values
    np.testing.assert_allclose(
        quick_fill(300 * tiny - 40, stripes).values, 300 * one - 40, rtol=1e-6
    )


def test_a_data_array_comes_back_with_its_coordinates(tiny, stripes):
    array = xarray.DataArray(
        np.where(stripes, tiny, np.nan).transpose(1, 2, 0),
        dims=("y", "x", "band"),
        coords={"band": np.arange(12), "wavelength": ("band", np.linspace(400, 900, 12))},
        attrs={"units": "reflectance"},
        name="scene",
    )
    back = quick_fill(array).cube.to_xarray()
    for key in ("hydiff_filled", "hydiff_record"):  # the mark of what is filled
        assert back.attrs.pop(key)
    xarray.testing.assert_identical(back.where(stripes[:, :, None]), array)
    assert not back.isnull().any() and back.dims == array.dims


def test_outside_is_filled_in_arrays_and_kept_in_files(tiny, tmp_path):
    observed = np.ones((24, 24), bool)
    observed[:, :3] = False  # nothing beyond it on the left
    assert quick_fill(tiny, observed).filled.any()
    path = tmp_path / "cube.npy"
    hydiff.write(Cube(np.where(observed, tiny, np.nan)), path)
    kept = quick_fill(hydiff.read(path))
    assert not kept.filled[:, 1:-1].any() and kept.left["outside the observed pixels"] > 0
    assert quick_fill(hydiff.read(path), outside="fill").filled[:, :, :3].all()


def test_a_dead_column_at_the_edge_is_filled_where_other_bands_measured_it(data_dir, tmp_path):
    """Tiles of a file, and the census, agree."""
    cube = hydiff.read(data_dir / "native" / "enmap_potsdam_tile_64_0.tif").load()
    observed = cube.observed()
    dead = np.zeros(observed.shape, bool)
    dead[40:43, :, 0] = dead[88:90, :, -1] = dead[150, 0] = True
    assert observed[dead].all()
    path = tmp_path / "dead.tif"
    hydiff.write(replace(cube, values=np.where(dead, cube.nodata, cube.values)), path)
    result = quick_fill(path)
    assert np.array_equal(result.filled, dead)
    tiled = ["fill", path, "-o", tmp_path / "tiled.tif", "--method", "smooth", "--tile", "16"]
    assert not command.run(*tiled).returncode
    record = json.loads((tmp_path / "tiled.tif.fill.json").read_text())
    assert record["entries"]["filled"] == dead.sum()
    assert "lie outside" not in command.run("mask", path).stdout


def test_columns_that_a_detector_does_not_reach_stay_missing(data_dir, tmp_path):
    """As in EnMAP, whose detectors are shifted against each other, with or without their names."""
    cube = hydiff.read(data_dir / "native" / "enmap_potsdam_tile_64_0.tif").load()
    observed = cube.observed()
    unreached = np.zeros(observed.shape, bool)
    unreached[:91, :, 0] = unreached[91:, :, -1] = True
    seen = observed & ~unreached
    for attrs in ({}, {"detector": ["VNIR"] * 91 + ["SWIR"] * 133}):
        named = replace(cube, attrs=cube.attrs | attrs)
        result = quick_fill(named, seen, outside="keep")
        assert not result.filled.any()
        assert result.left["outside the observed pixels"] == (unreached & observed).sum()


def test_max_gap_leaves_wide_gaps_and_says_so(tiny, stripes):
    result = quick_fill(tiny, stripes, max_gap=2)
    assert result.filled[:, :, 15:17].all() and not result.filled[:, :, 5:8].any()
    assert np.isnan(result.values[:, :, 5:8]).all()
    assert result.left == {"gap wider than 2 pixels": 12 * (3 * 24 + 16)}


def test_bad_bands_take_no_part(tiny, stripes, rng):
    good = np.ones(12, bool)
    good[[0, 7]] = False
    cube = Cube(np.where(stripes, tiny, np.nan), good=good)
    noise = np.array(cube.values)
    noise[~good] = np.where(stripes, 1e5 * rng.random((2, 24, 24)), np.nan)
    one, other = quick_fill(cube), quick_fill(replace(cube, values=noise))
    assert np.array_equal(one.values[good], other.values[good])
    assert other.filled[~good][:, ~stripes].all()
    kept = quick_fill(cube, bad_bands="keep")
    assert not kept.filled[~good].any() and kept.left == {"bad band": 2 * int((~stripes).sum())}


def test_a_band_without_any_pixel_is_left_and_reported(tiny, stripes):
    values = np.where(stripes, tiny, np.nan)
    values[4] = np.nan
    result = quick_fill(values)
    assert result.left == {"band without any observed pixel": 576}
    assert np.isnan(result.values[4]).all() and np.isfinite(np.delete(result.values, 4, 0)).all()


def test_what_a_method_cannot_reach_is_left_and_reported(tiny, stripes):
    result = hydiff.fill(tiny, stripes, method="spectral")
    assert not result.filled.any()
    assert result.left == {"out of reach of spectral": 12 * int((~stripes).sum())}


def written(values, estimate, **declared):
    """What `into_dtype` makes of an estimate for every entry of a (1, 1, n) cube."""
    cube = Cube(np.array(values)[None, None], **declared)
    where = np.ones(cube.shape, bool)
    out, notes = stored.into_dtype(cube, np.array(estimate, dtype=float)[None, None], where, None)
    assert out.dtype == cube.dtype
    return out.ravel().tolist(), notes


def test_integers_are_rounded_and_clipped_with_a_count():
    values, notes = written(np.zeros(4, np.uint8), [300, -5, 7.5, 8.6])
    assert values == [255, 0, 8, 9]
    assert notes == {"were clipped to the range of uint8": 2}
    assert written(np.zeros(1, np.int64), [1e30])[0][0] > 2**62


@pytest.mark.parametrize(
    ("dtype", "nodata", "moved"), [(np.int16, 100, 101), (np.uint8, 255, 254), (np.uint8, 0, 1)]
)
def test_no_filled_entry_lands_on_nodata(dtype, nodata, moved):
    values, notes = written(np.zeros(2, dtype), [nodata + 0.2, 50], nodata=nodata)
    assert values == [moved, 50] and f"nodata {nodata}" in next(iter(notes))


def test_floats_move_off_nodata_by_the_least_step():
    values, _ = written(np.zeros(1, np.float32), [-9999.0], nodata=-9999.0)
    assert values[0] != -9999 and values[0] == pytest.approx(-9999, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize("largest", [False, True])
def test_no_filled_entry_moves_from_one_nodata_value_to_another(dtype, largest):
    """Neighbouring nodata values in either order, also where the type ends."""
    info = np.finfo(dtype) if dtype == np.float32 else np.iinfo(dtype)
    first = info.max if largest else dtype(7)
    second = np.nextafter(first, dtype(0)) if dtype == np.float32 else first - 1
    cube = Cube(np.zeros((1, 1, 2), dtype))
    for nodata in ((first, second), (second, first)):
        estimate = np.array([[[first, second]]], dtype=float)
        out, _ = stored.into_dtype(cube, estimate, np.ones(cube.shape, bool), nodata)
        assert not np.isin(out, nodata).any()


def test_noise_is_estimated_away_but_a_file_keeps_its_entries(tiny, stripes, rng):
    noisy = Cube(np.where(stripes, tiny + 0.1 * rng.standard_normal(tiny.shape), np.nan))
    result = quick_fill(noisy, sigma_y=0.1)
    seen = np.broadcast_to(stripes, tiny.shape)
    assert np.array_equal(result.cube.values[seen], noisy.values[seen])
    assert (
        np.abs(result.values - tiny)[seen].mean() < 0.6 * np.abs(noisy.values - tiny)[seen].mean()
    )
    denoised = quick_fill(noisy, sigma_y=0.1, denoise=True).cube.values
    np.testing.assert_allclose(denoised, result.values)


def test_sigma_may_be_given_in_percent_or_per_band(tiny, stripes, rng):
    noisy = np.where(stripes, tiny + 0.1 * rng.standard_normal(tiny.shape), np.nan)
    scale = hydiff.cube.unit_scale(noisy, np.broadcast_to(stripes, tiny.shape), np.ones(12, bool))
    one = quick_fill(noisy, sigma_y=0.1 * scale.span).values
    share = quick_fill(noisy, sigma_y="10%")
    assert np.array_equal(one, share.values)
    assert f"sigma_y = 10% is {0.1 * scale.span:.4g} in the cube's unit" in share.notes[-1]
    assert np.array_equal(one, quick_fill(noisy, sigma_y=[0.1 * scale.span] * 12).values)


@pytest.mark.parametrize("sigma_y", [[0.1], np.full((12, 1, 1), 0.1), [0.1] * 5])
def test_a_list_of_noise_of_another_shape_is_refused_with_both_shapes(tiny, stripes, sigma_y):
    """A list of one number is no number, so the refusal counts neither as one entry."""
    with pytest.raises(ShapeMismatch) as refused:
        hydiff.fill(tiny, stripes, sigma_y=sigma_y, method="smooth")
    assert f"has shape {np.shape(sigma_y)}; expected one number, or a list of 12" in str(
        refused.value
    )


def test_bands_without_noise_keep_their_entries_beside_noisy_ones(tiny, stripes, rng):
    sigma = np.where(np.arange(12) < 6, 0.0, 0.1)
    noisy = tiny + sigma[:, None, None] * rng.standard_normal(tiny.shape)
    result = quick_fill(noisy, stripes, sigma_y=sigma)
    assert np.array_equal(result.values[:6, stripes], noisy[:6, stripes])
    assert not np.array_equal(result.values[6:, stripes], noisy[6:, stripes])


def test_a_method_without_a_model_of_noise_says_so(tiny, stripes):
    message, plain = (hydiff.fill(tiny, stripes, method="harmonic", sigma_y=s) for s in (0.1, 0.0))
    assert "does not model noise" in message.notes[0] and not plain.notes
    assert np.array_equal(message.values, plain.values) and not message.sigma_y.any()


def test_a_checkpoint_never_takes_the_place_of_another_file(tiny, stripes, tmp_path):
    path = tmp_path / "precious.npy"
    np.save(path, np.arange(3))
    before = path.read_bytes()
    with pytest.raises(hydiff.HydiffError, match="precious"):
        hydiff.fill(tiny, stripes, method="ei", steps=1, channels=4, scales=2, checkpoint=path)
    hydiff.fill(tiny, stripes, method="harmonic", checkpoint=path)
    assert path.read_bytes() == before


def test_determinism_lasts_no_longer_than_the_fill(tiny, stripes):
    torch = pytest.importorskip("torch")
    hydiff.fill(tiny, stripes, method="ei", steps=1, channels=4, scales=2, deterministic=True)
    assert not torch.are_deterministic_algorithms_enabled()


def test_determinism_lasts_as_long_as_the_last_block_of_any_thread():
    torch = pytest.importorskip("torch")
    first, second = determinism(True), determinism(True)
    for enter in (first, second):
        enter.__enter__()
    first.__exit__(None, None, None)  # as threads do, not in the order of nested blocks
    assert torch.are_deterministic_algorithms_enabled()
    second.__exit__(None, None, None)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_function_is_a_method(tiny, stripes):
    def constant(y, observed, sigma_y, settings, *, rng):
        yield hydiff.Step(1, 1, np.where(observed, y, settings.level), {"loss": 1.5})

    result = hydiff.fill(tiny, stripes, method=constant, level=0.5)
    assert result.method == "constant" and result.settings == {"level": 0.5}
    assert len(np.unique(result.values[:, ~stripes])) == 1
    assert [record["loss"] for record in result.history] == [1.5]


def test_numbers_of_numpy_and_paths_are_taken_and_recorded(tiny, stripes, tmp_path):
    given = {"components": np.int64(4), "s": np.float32(1.5), "error_bars": np.bool_(False)}
    options = {"seed": np.int64(3), "max_gap": np.float32(4), "denoise": np.True_, "sigma_y": 0.01}
    result = hydiff.fill(tiny, stripes, method="smooth", **options, **given)
    result.save(tmp_path / "out.img")
    record = json.loads((tmp_path / "out.img.fill.json").read_text())
    assert record["seed"] == 3 and record["settings"].items() >= given.items()
    by_path = choose("prior", None, {"weights": tmp_path / "net"}).settings
    assert by_path.weights == str(tmp_path / "net")


def test_settings_of_a_function_are_recorded_whatever_they_are(tiny, stripes, tmp_path):
    def constant(y, observed, sigma_y, settings, *, rng):
        yield hydiff.Step(1, 1, np.where(observed, y, settings.level.mean()))

    result = hydiff.fill(tiny, stripes, method=constant, level=np.zeros(2), n=np.int64(2))
    result.save(tmp_path / "out.img")
    assert result.settings == {"level": "[0. 0.]", "n": 2}


@pytest.mark.parametrize("reference", [None, (), []])
def test_no_reference_may_be_given_as_none_or_nothing(tiny, stripes, reference):
    options = {"reference": reference, "reference_missing": reference}
    assert quick_fill(tiny, stripes, **options).references == []


def test_a_method_that_yields_nothing_fills_nothing(tiny, stripes):
    def nothing(y, observed, sigma_y, settings, *, rng):
        yield from ()

    with pytest.raises(BadValue, match="nothing yielded nothing"):
        hydiff.fill(tiny, stripes, method=nothing)
    assert not hydiff.fill(tiny, method=nothing).filled.any()  # nor was there anything to fill


def test_a_function_that_is_no_method_is_refused(tiny, stripes):
    def without_rng(y, observed, sigma_y, settings):
        yield hydiff.Step(1, 1, y)

    def filled(y, observed, sigma_y, settings, *, rng):
        return np.where(observed, y, 0.5)

    with pytest.raises(BadValue, match=r"expected a function without_rng\(y, observed, .*rng\)$"):
        hydiff.fill(tiny, stripes, method=without_rng)
    with pytest.raises(BadValue, match=r"filled gave .* ndarray, expected steps: `yield Step\("):
        hydiff.fill(tiny, stripes, method=filled)


def test_a_torch_function_gets_tensors(tiny, stripes):
    torch = pytest.importorskip("torch")

    def half(y, observed, sigma_y, settings, *, rng):
        assert isinstance(rng, torch.Generator) and sigma_y.shape == (12,)
        yield hydiff.Step(1, 1, torch.where(observed, y, torch.tensor(0.5)))

    half.backend = "torch"
    result = hydiff.fill(tiny, stripes, method=half, device="cpu")
    np.testing.assert_allclose(result.values[:, stripes], tiny[:, stripes])


def test_progress_sees_every_step(tiny, rng):
    observed = rng.random(tiny.shape) > 0.2
    steps = []
    hydiff.fill(tiny, observed, method="nearest", progress=steps.append)
    assert [s.done for s in steps] == list(range(1, 13)) and steps[-1].total == 12


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "smoth"}, UnknownName, "did you mean 'smooth'"),
        ({"componets": 3, "method": "smooth"}, UnknownName, "did you mean 'components'"),
        ({"preset": "paper", "method": "smooth"}, UnknownName, "preset of smooth"),
        ({"sigma_y": -1}, BadValue, "sigma_y = -1"),
        ({"sigma_y": float("nan")}, BadValue, "sigma_y"),
        ({"sigma_y": 1e9}, BadValue, "in the cube's unit"),
        ({"sigma_y": "much"}, BadValue, "expected a number"),
        ({"sigma_y": [1.0, 2.0]}, ShapeMismatch, "one per band"),
        ({"nodata": -5.0}, BadValue, "occurs nowhere"),
        ({"max_gap": 0}, BadValue, "max_gap"),
        ({"max_error": -1}, BadValue, "max_error is a positive number"),
        ({"method": 3}, BadValue, "method = 3: expected the name of one method"),
        ({"method": ["smooth", "linear"]}, BadValue, "expected the name of one method"),
        ({"progress": 3}, BadValue, "progress = 3: expected a function"),
        ({"progress": True}, BadValue, "progress = True: expected a function"),
        ({"outside": "maybe"}, UnknownName, "outside"),
        ({"device": None}, UnknownName, "unknown device None"),
        ({"reference_max_shift": None}, BadValue, "=None`: expected a number"),
        ({"method": "smooth", "components": 3.5}, BadValue, "=3.5`: expected a whole number"),
        ({"method": "smooth", "components": True}, BadValue, "=True`: expected a whole number"),
        ({"method": "smooth", "s": [1.5]}, BadValue, r"=\[1.5\]`: expected a number or None"),
        (
            {"method": "spectral", "wavelengths": 3},
            BadValue,
            "=3`: expected several values",
        ),
        ({"observed": np.ones((3, 3), bool)}, ShapeMismatch, r"\(3, 3\)"),
        ({"observed": np.ones((24, 24))}, BadValue, "boolean"),
        ({"observed": np.zeros((24, 24), bool)}, NothingObserved, "nothing to fill from"),
    ],
)
def test_bad_input_is_explained(tiny, change, error, words):
    observed = np.ones((24, 24), bool)
    observed[3, 4] = False
    with pytest.raises(error, match=words):
        hydiff.fill(tiny, **{"observed": observed} | change)


@pytest.mark.parametrize(
    "function", [hydiff.fill, hydiff.write, hydiff.propagate, hydiff.view, Cube.window]
)
def test_the_help_of_a_function_explains_each_argument_in_their_order(function):
    arguments = [name for name in signature(function).parameters if name != "self"]
    assert all(re.search(rf"\b{name}\b", function.__doc__) for name in arguments)
    if function is hydiff.fill:
        starts = re.findall(r"^    (\w+): ", function.__doc__, re.MULTILINE)
        assert starts == [name for name in arguments if name != "resume"]  # beside `checkpoint`


@pytest.mark.parametrize("dtype", [complex, bool, str])
def test_values_that_are_no_real_numbers_are_refused(tiny, stripes, dtype):
    with pytest.raises(BadValue, match="expected integers or floats"):
        hydiff.fill(tiny.astype(dtype), stripes)


@pytest.mark.parametrize("name", ["smooth", "harmonic", "linear", "spectral", "subspace"])
@pytest.mark.parametrize("shape", [(1, 6, 6), (2, 1, 9), (3, 9, 1), (5, 2, 2), (40, 4, 4)])
def test_odd_shapes_are_filled_or_left_but_never_broken(name, shape, rng):
    observed = np.ones(shape[1:], bool)
    observed.flat[1::3] = False
    result = hydiff.fill(rng.random(shape), observed, method=name)
    assert np.isfinite(result.values[result.filled]).all()
    assert result.filled.sum() + sum(result.left.values()) == shape[0] * (~observed).sum()


def test_a_device_that_is_not_there_is_refused(tiny, stripes):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")

    def never(y, observed, sigma_y, settings, *, rng):
        yield hydiff.Step(1, 1, y)

    never.backend = "torch"
    with pytest.raises(BadValue, match="`device='cpu'`"):
        hydiff.fill(tiny, stripes, method=never, device="cuda")


def test_the_bundled_scene_is_whole():
    cube, labels = hydiff.sample(), hydiff.sample_labels()
    assert cube.shape == (200, 145, 145) and cube.dtype == np.uint16
    assert labels.shape == (145, 145) and set(np.unique(labels)) == set(range(17))


def test_the_bundled_scene_equals_its_source(data_dir):
    source = np.load(data_dir / "native" / "indian_pines_corrected.npy")
    assert np.array_equal(hydiff.sample().values, source.transpose(2, 0, 1))


def test_what_an_editor_completes_is_what_is_accepted():
    hints = get_type_hints(api.fill, localns=vars(request) | {"xarray": xarray})
    names = {
        name: {c for part in (hint, *get_args(hint)) if get_origin(part) is Literal
               for c in get_args(part)}
        for name, hint in hints.items()
    }  # fmt: skip
    assert names["method"] == {DEFAULT, *METHODS, *WITH_REFERENCE}
    assert names["budget"] == set(BUDGETS) and names["clip"] == set(reach.CLIPS)
    assert names["nodata_in"] == set(rule.NODATA_IN)
    assert names["axis"] == {axes.FIRST, axes.LAST}
    for choice in names["outside"] | names["bad_bands"]:
        rule.check_choices(choice, None, choice)
    assert {"fill", "keep"} == names["outside"] == names["bad_bands"]


# ── a function in a file ─────────────────────────────────────────────────────────────────────────

OWN = """
from hydiff.result import Step

def level(y, observed, sigma_y, settings, *, rng):
    yield Step(1, 1, y * observed + (1 - observed) * settings.at)
"""


def test_a_function_of_a_file_is_a_method(tmp_path, tiny, stripes):
    (tmp_path / "mine.py").write_text(OWN)
    name = f"{tmp_path / 'mine.py'}:level"
    given, text = (hydiff.fill(tiny, stripes, method=name, at=at) for at in (0.25, "0.25"))
    assert given.method == "level" and np.array_equal(given.values, text.values)
    assert len(np.unique(given.values[:, ~stripes])) == 1
    first = declared(name).rules
    (tmp_path / "mine.py").write_text(OWN.replace("settings.at", "0.5"))
    assert declared(name).rules != first  # a bench runs it again
    assert not np.array_equal(hydiff.fill(tiny, stripes, method=name).values, given.values)


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        (OWN, "leveled", "no function leveled"),
        ("1 / 0", "level", "does not run"),
        (None, "f", "no such file"),
    ],
)
def test_a_function_that_is_not_there_is_refused(tmp_path, tiny, stripes, text, named, message):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadValue, match=message):
        hydiff.fill(tiny, stripes, method=f"{path}:{named}")
