"""The viewer without a browser: pictures, spectra, companions, fills in a thread."""

import csv
import io as text_io
import re
import time

import numpy as np
import pytest

import hydiff
from hydiff import errors, io
from hydiff.cube import Cube
from hydiff.io import fill_layers, provenance
from hydiff.report import plots
from hydiff.scale import execute, scene
from hydiff.viewer import (
    captions,
    curves,
    images,
    outlines,
    running_fill,
    scene_layers,
    spectra,
    tile_progress,
)
from hydiff.viewer.rendering import Choice, Sight, sharper
from hydiff.viewer.running_fill import RunningFill
from hydiff.viewer.scene_layers import Fills, ImageWindow, Layer


@pytest.fixture
def damaged(tiny, stripes):
    """A cube on a map, with wavelengths, a bad band, NaN in the gaps and a dead column in one."""
    values = np.where(stripes, tiny, np.nan)
    values[4, :, 11] = np.nan
    good = np.ones(12, bool)
    good[7] = False
    return Cube(
        values,
        wavelengths=np.linspace(440.0, 2260.0, 12),
        wavelength_units="nm",
        good=good,
        transform=(30.0, 0.0, 500000.0, 0.0, -30.0, 4100000.0),
    )


FILLS = {}  # one fill for all tests: nobody changes it


@pytest.fixture
def result(damaged):
    if not FILLS:
        FILLS["fast"] = hydiff.fill(damaged, budget="fast")
    return FILLS["fast"]


# ── pictures ─────────────────────────────────────────────────────────────────────────────────────


def test_a_composite_is_the_one_of_the_figures(tiny, stripes):
    """Where there are values: the colours of `plots.composite`; elsewhere nothing is opaque."""
    planes = [np.where(stripes, tiny[b], np.nan) for b in (7, 4, 1)]
    limits = [images.limits(p) for p in planes]
    ours = images.composite(planes, limits)
    theirs = plots.composite(tiny, (7, 4, 1), stripes, np.array(limits))
    np.testing.assert_array_equal(ours[stripes, :3], theirs[stripes])
    np.testing.assert_array_equal(ours[..., 3] == 255, stripes)
    np.testing.assert_array_equal(ours[..., 3] == 0, ~stripes)


def test_limits_are_percentiles_of_the_valid_pixels_alone(rng):
    plane = rng.random((40, 50))
    plane[:, :20] = np.nan
    assert images.limits(plane, (2, 90)) == pytest.approx(np.percentile(plane[:, 20:], (2, 90)))
    assert images.limits(np.full((3, 3), np.nan)) is None


def test_a_stretch_does_not_see_scale_or_offset(rng):
    plane = rng.random((20, 20))
    one, other = (images.shares(p, images.limits(p)) for p in (plane, 1e4 * plane - 300))
    assert np.abs(one.astype(int) - other).max() <= 1
    assert one.min() == 0 and one.max() == 255


def test_a_band_without_contrast_is_grey_and_one_without_values_invisible():
    flat = np.full((4, 4), 7.0)
    assert (images.shares(flat, images.limits(flat)) == 128).all()
    empty = np.full((4, 4), np.nan)
    palette = images.palette(["#ffffff"] * 256)
    assert (images.mapped(empty, images.limits(empty), palette)[..., 3] == 0).all()


def test_a_palette_runs_from_the_lower_to_the_upper_limit():
    colours = [f"#{i:02x}{255 - i:02x}80" for i in range(256)]
    plane = np.array([[0.0, 255.0, 77.0, np.nan, -5.0, 300.0]])
    shown = images.mapped(plane, images.Stretch(0.0, 255.0), images.palette(colours))
    expected = [[0, 255, 128, 255], [255, 0, 128, 255], [77, 178, 128, 255], [0, 0, 0, 0]]
    np.testing.assert_array_equal(shown[0], [*expected, expected[0], expected[1]])


def test_packed_pixels_are_red_first_in_memory():
    """As a canvas has them: the bytes of a number are red, green, blue, alpha."""
    image = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert images.packed(image).astype("<u4").tobytes() == image.tobytes()


def test_a_swipe_is_before_on_the_left_and_after_on_the_right(rng):
    before, after = rng.integers(0, 256, (2, 5, 8, 4), dtype=np.uint8)
    for column in range(9):
        both = images.swiped(before, after, column)
        np.testing.assert_array_equal(both[:, :column], before[:, :column])
        np.testing.assert_array_equal(both[:, column:], after[:, column:])


def test_gaps_change_only_where_they_are(rng):
    image = rng.integers(0, 256, (6, 6, 4), dtype=np.uint8)
    image[..., 3] = 255
    missing = rng.random((6, 6)) < 0.5
    shown = images.overlaid(image, missing)
    np.testing.assert_array_equal(shown[~missing], image[~missing])
    np.testing.assert_array_equal(
        images.overlaid(image, missing, 1.0)[missing, :3].T,
        np.array(plots.GAP_COLOUR)[:, None] + 0 * shown[missing, :3].T,
    )


def test_what_is_transparent_is_white_on_paper():
    clear = np.zeros((2, 2, 4), np.uint8)
    assert (images.overlaid(clear, np.zeros((2, 2), bool)) == 255).all()


@pytest.mark.parametrize(
    ("rows", "cols", "step"), [(1280, 1242, 1), (1414, 1415, 2), (9000, 1000, 3), (1, 1, 1)]
)
def test_only_large_pictures_are_thinned(rows, cols, step):
    assert images.step_for((rows, cols), images.PIXELS) == step
    assert -(-rows // step) * -(-cols // step) <= 1.01 * images.PIXELS


def test_what_is_in_sight_is_as_fine_as_the_screen():
    whole = ImageWindow(0, 5000, 0, 4000, 8)
    everything = Sight(-20, 5020, -20, 4020, 500, 400)
    assert sharper(everything, whole) is None  # the glance has as many pixels as the screen
    assert sharper(Sight(*everything[:4], 1000, 800), whole) == ImageWindow(0, 5000, 0, 4000, 5)
    near = sharper(Sight(100.5, 350.2, 3900.0, 4100.0, 500, 400), whole)
    assert near == ImageWindow(100, 351, 3900, 4000, 1)
    assert sharper(Sight(-50, -10, 0, 40, 500, 400), whole) is None  # beside the picture
    assert sharper(Sight(0, 0, 0, 0, 0, 0), whole) is None  # no browser has sent it yet
    rows, cols = (len(range(*s.indices(5000))) for s in ImageWindow(0, 5000, 0, 4000, 5).cut)
    assert rows * cols <= 2 * images.PIXELS


def test_what_is_transparent_gets_the_ground(rng):
    image = rng.integers(0, 256, (4, 5, 4), dtype=np.uint8)
    image[..., 3] = np.where(rng.random((4, 5)) < 0.5, 255, 0)
    clear = image[..., 3] == 0
    made = images.opaque(image, "#102030")
    np.testing.assert_array_equal(made[~clear], image[~clear])
    assert (made[clear] == [16, 32, 48, 255]).all() and clear.any()


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-3.2, 5682.0), (1e-7, 3e-7), (-1e6, -9.99e5), (0.0, 7e12)]
)
def test_ticks_are_few_round_numbers_inside_the_limits(low, high):
    found = np.array(images.round_numbers(images.Stretch(low, high)))
    assert 2 <= len(found) <= images.TICKS + 1
    near = 1e-6 * (high - low)
    assert (low - near <= found).all() and (found <= high + near).all()
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    digits = f"{steps[0]:.3e}"
    assert digits[:5] in ("1.000", "2.000", "5.000")


def test_units_are_those_of_the_file(damaged):
    from dataclasses import replace

    assert spectra.unit(damaged) == "in the file's unit"
    named = replace(damaged, attrs={"units": [f"W/{i}" for i in range(12)]})
    assert spectra.unit(named, 3) == "in W/3"
    assert spectra.unit(replace(damaged, attrs={"units": "1"}), 3) == "in 1"
    assert spectra.unit(replace(damaged, attrs={"units": ["", None]})) == "in the file's unit"


def test_the_colour_bar_is_for_one_band_or_map(damaged):
    choice = Choice("One band", (2,), (1.0, 99.0), "Viridis")
    bar = captions.colour_bar(damaged, choice, images.Stretch(0.0, 2.0))
    assert "Colours from 0 to 2. Value, in the file&#x27;s unit" in bar and "#fde724" in bar.lower()
    assert captions.colour_bar(damaged, choice, None) == ""
    assert captions.colour_bar(damaged, choice, images.Stretch(3.0, 3.0)) == ""
    three = Choice("Colour composite", (2, 1, 0), (1.0, 99.0), "Viridis")
    assert captions.colour_bar(damaged, three, images.Stretch(0.0, 2.0)) == ""


def test_presets_are_the_nearest_bands():
    cube = Cube(np.zeros((211, 2, 2)), wavelengths=np.arange(400.0, 2510.0, 10.0))
    assert images.presets(cube) == {
        "True colour": (25, 15, 5),
        "False colour (vegetation red)": (46, 25, 15),
        "Short-wave infrared": (180, 125, 46),
    }


def test_without_wavelengths_there_is_one_preset():
    (name,) = images.presets(Cube(np.zeros((5, 2, 2))))
    assert name == "Default bands"
    thermal = Cube(np.zeros((5, 2, 2)), wavelengths=np.linspace(8000.0, 12000.0, 5))
    assert list(images.presets(thermal)) == ["Default bands"]


# ── layers ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bands", [1, 8, 13])
def test_packed_companions_say_what_the_arrays_say(bands, rng):
    filled = rng.random((bands, 7, 9)) < 0.3
    sigma = np.where(filled, rng.random(filled.shape), np.nan)
    fills = Fills.of(filled, sigma)
    for band in range(bands):
        np.testing.assert_array_equal(fills.plane(band), filled[band])
        np.testing.assert_array_equal(fills.all()[band], filled[band])
        np.testing.assert_array_equal(fills.sigma_plane(band), sigma[band])
    for row in range(7):
        for col in range(9):
            np.testing.assert_array_equal(fills.at(row, col), filled[:, row, col])
            np.testing.assert_array_equal(fills.sigma_at(row, col), sigma[:, row, col])


def test_companions_of_a_file_are_those_that_were_written(result, tmp_path):
    path = tmp_path / "filled.tif"
    provenance.save(result, path)
    fills = scene_layers.read_fills(path, result.cube.shape)
    companions = provenance.companions(path, result.cube.shape)
    for band in range(result.cube.bands):
        np.testing.assert_array_equal(fills.plane(band), companions["filled"][band])
        np.testing.assert_allclose(fills.sigma_plane(band), companions["sigma"][band], rtol=1e-6)
    fill_layers.file_of(path, "sigma").write_bytes(b"no image")
    with pytest.raises(errors.CubeFormatError, match="sigma"):
        scene_layers.read_fills(path, result.cube.shape)


def test_planes_and_spectra_are_two_cuts_of_one_cube(damaged, stripes, tmp_path):
    """In memory and from a file that is read lazily, NaN where the cube itself says missing."""
    io.write(damaged, tmp_path / "scene.bil")
    expected = np.where(damaged.observed(), damaged.values, np.nan)
    for layer in (Layer(damaged), Layer(io.read(tmp_path / "scene.bil"))):
        for band in (0, 4, 11):
            np.testing.assert_array_equal(layer.plane(band), expected[band])
            np.testing.assert_array_equal(
                layer.plane(band, ImageWindow(2, 20, 1, 24, 3)), expected[band, 2:20:3, 1:24:3]
            )
        np.testing.assert_array_equal(layer.spectrum(3, 11), expected[:, 3, 11])
        np.testing.assert_array_equal(layer.alive(), np.ones(12, bool))


def test_a_result_brings_its_own_before(result, damaged):
    shown = scene_layers.from_data(result)
    for band in range(12):
        np.testing.assert_array_equal(shown.before.plane(band), damaged.values[band])
        np.testing.assert_array_equal(shown.after.plane(band), result.cube.values[band])


def test_a_fill_alone_is_compared_with_itself(result, damaged, tmp_path):
    provenance.save(result, tmp_path / "filled.npz")
    shown = scene_layers.from_files(tmp_path / "filled.npz")
    np.testing.assert_array_equal(shown.before.plane(2), damaged.values[2])
    np.testing.assert_array_equal(shown.after.plane(2), result.cube.values[2])


def test_versions_of_other_scenes_are_refused(damaged, tmp_path):
    io.write(damaged, tmp_path / "scene.bil")
    io.write(damaged.window(rows=slice(0, 9)), tmp_path / "part.bil")
    with pytest.raises(errors.ShapeMismatch, match=r"part\.bil has shape \(12, 9, 24\)"):
        scene_layers.from_files(tmp_path / "scene.bil", tmp_path / "part.bil")
    with pytest.raises(errors.ShapeMismatch):
        scene_layers.from_data(damaged, truth=np.zeros((2, 2, 2)))
    with pytest.raises(errors.BadValue, match="complex"):
        scene_layers.from_data(np.zeros((2, 2, 2), complex))


# ── spectra ──────────────────────────────────────────────────────────────────────────────────────


def test_a_spectrum_knows_what_was_filled_and_how_sure_that_is(result, damaged, tiny):
    shown = scene_layers.from_data(result, truth=tiny)
    s = spectra.pick(shown, 11, 20)  # inside the blob
    assert s.filled.all() and np.isnan(s.before).all()
    np.testing.assert_array_equal(s.after, result.cube.values[:, 11, 20])
    np.testing.assert_array_equal(s.sigma, result.sigma[:, 11, 20])
    np.testing.assert_array_equal(s.truth, tiny[:, 11, 20])
    dead = spectra.pick(shown, 3, 11)
    np.testing.assert_array_equal(np.flatnonzero(dead.filled), [4])


def test_the_csv_holds_the_numbers_to_the_last_bit(result, tiny):
    shown = scene_layers.from_data(result, truth=tiny)
    picked = [spectra.pick(shown, 11, 20), spectra.pick(shown, 0, 0)]
    table = list(csv.DictReader(text_io.StringIO(spectra.as_csv(shown, picked))))
    assert len(table) == 2 * 12
    for line in table[:12]:
        band = int(line["band"]) - 1
        assert line["before"] == "" and line["filled"] == "1"
        assert float(line["after"]) == result.cube.values[band, 11, 20]
        assert float(line["sigma"]) == result.sigma[band, 11, 20]
        assert float(line["truth"]) == tiny[band, 11, 20]
        assert (float(line["x"]), float(line["y"])) == (500000 + 20.5 * 30, 4100000 - 11.5 * 30)
        assert line["good"] == ("0" if band == 7 else "1")
    assert {line["sigma"] for line in table[12:]} == {""}


def test_map_coordinates_are_those_of_rasterio(damaged):
    from rasterio.transform import Affine, xy

    at = xy(Affine(*damaged.transform), 5, 9)
    assert spectra.map_position(damaged, 5, 9) == pytest.approx(at)


def test_curves_break_where_bands_were_cut_out():
    x = np.array([400.0, 410, 420, 900, 910])
    drawn, y = spectra.broken(x, np.arange(5.0))
    np.testing.assert_array_equal(drawn, [400, 410, 420, np.nan, 900, 910])
    np.testing.assert_array_equal(y, [0, 1, 2, np.nan, 3, 4])
    assert spectra.broken(np.array([1.0]), np.array([2.0]))[0].tolist() == [1.0]


def test_a_value_without_a_neighbour_is_a_point():
    nan = np.nan
    for curve, points in (
        ([5.0], [0]),
        ([1, 2, nan, 3, nan, 4, 5], [3]),
        ([nan], []),
        ([1, 2], []),
    ):
        assert spectra.alone(np.array(curve)).tolist() == points
    one = Cube(np.full((1, 4, 5), 7.0, np.float32))
    drawn = curves.Curves(one)
    before = np.array([7.0])
    drawn.draw([spectra.Spectrum(1, 2, before, None, None, None, np.zeros(1, bool))])
    assert (list(drawn.alone.data["at"]), list(drawn.alone.data["value"])) == ([1.0], [7.0])
    drawn.draw([])
    assert len(drawn.alone.data["at"]) == 0


def test_bad_bands_are_shaded_and_no_others():
    x = np.arange(400.0, 500.0, 10.0)
    good = np.ones(10, bool)
    good[[0, 4, 5]] = False
    shades = spectra.bad_ranges(x, good)
    inside = np.array([any(a <= v <= b for a, b in shades) for v in x])
    np.testing.assert_array_equal(inside, ~good)
    assert len(shades) == 2 and spectra.bad_ranges(x, np.ones(10, bool)) == []
    x, good = np.append(x, np.nan), np.append(good, False)  # a band without a wavelength
    assert spectra.bad_ranges(x, good) == shades


def test_a_band_without_a_wavelength_hides_no_hole():
    x = np.array([400.0, 410, 420, 430, 900, 910, 920, np.nan])
    assert spectra.jumps(x).tolist() == [4]


def test_the_error_band_goes_up_and_back():
    x, centre = np.arange(6.0), np.arange(6.0) * 10
    sigma = np.array([np.nan, 1, 2, np.nan, np.nan, 3])
    (first, second) = spectra.bands_between(x, sigma, centre)
    np.testing.assert_array_equal(first[0], [1, 2, 2, 1])
    np.testing.assert_array_equal(first[1], [9, 18, 22, 11])
    np.testing.assert_array_equal(second[1], [47, 53])


# ── marking and filling ──────────────────────────────────────────────────────────────────────────


def test_a_rectangle_in_words_is_a_slice():
    (top, bottom), (left, right) = outlines.ranges_of(" 2:5, 7:9")
    box = outlines.enclosed([left, right, right, left], [top, top, bottom, bottom], (10, 12))
    expected = np.zeros((10, 12), bool)
    expected[2:5, 7:9] = True
    np.testing.assert_array_equal(box, expected)
    for wrong in ("", "1:2", "a:b, c:d", "1,2"):
        with pytest.raises(errors.BadValue, match="10:20, 30:40"):
            outlines.ranges_of(wrong)


def test_settings_are_pairs():
    assert running_fill.settings_of(" steps=3, lr=0.1 ") == {"steps": "3", "lr": "0.1"}
    with pytest.raises(errors.BadValue, match="key=value"):
        running_fill.settings_of("fast")


@pytest.mark.parametrize("masked", [False, True])
def test_a_fill_in_a_thread_is_the_fill(damaged, masked, rng):
    observed = rng.random((24, 24)) < 0.9 if masked else None
    work = RunningFill(damaged, observed, "smooth", "normal", {"s": "1.5"})
    work.wait(60)
    assert work.error is None and not work.running
    expected = hydiff.fill(damaged, observed, method="smooth", s=1.5)
    np.testing.assert_array_equal(work.value.filled, expected.filled)
    np.testing.assert_array_equal(work.value.cube.values, expected.cube.values)
    assert work.value.settings == expected.settings


def test_a_fill_is_filled_again_from_what_was_there_before(result, damaged):
    page = page_of(scene_layers.from_data(result), observed=np.ones((24, 24), bool))
    page.controls.method.value = "harmonic"
    page.controls.rectangle.value = "1:4, 1:3"
    page.working.start()
    done(page)
    observed = np.ones((24, 24), bool)
    observed[1:4, 1:3] = False
    expected = hydiff.fill(damaged, observed, method="harmonic")
    np.testing.assert_array_equal(page.desk.scene.result.filled, expected.filled)
    np.testing.assert_array_equal(page.desk.scene.after.plane(2), expected.cube.values[2])
    assert f"Filled {expected.filled.sum():,} entries" in page.controls.status.text


def test_scores_of_both_kinds_of_gaps_are_shown(rng):
    from scipy.ndimage import gaussian_filter

    cube = gaussian_filter(rng.standard_normal((6, 30, 30)), (1, 2, 2))
    cube[:, :, 10:13] = np.nan
    cube[rng.random(cube.shape) < 0.03] = np.nan
    page = page_of(scene_layers.from_data(cube))
    page.controls.budget.value = "fast"
    page.working.start()
    done(page)
    for kind in ("pixels without any band", "pixels that keep some bands"):
        assert f"expected in {kind} (" in page.controls.status.text


def test_scenes_beyond_memory_are_sent_to_the_shell(damaged):
    huge = Cube(np.broadcast_to(np.float32(1), (300, 100_000, 10_000)))
    with pytest.raises(errors.BadValue, match="hydiff fill FILE -o OUT"):
        running_fill.refuse_large(huge, "smooth")
    running_fill.refuse_large(damaged, "smooth")


def test_errors_of_a_fill_become_messages(damaged):
    for method, settings, name in (("smooth", {"nope": "1"}, "nope"), ("dhp", {"lr": "x"}, "lr")):
        work = RunningFill(damaged, None, method, "normal", settings)
        work.wait(60)
        assert work.value is None and name in work.error


def test_a_preview_is_the_estimate_in_the_cubes_unit(damaged):
    """The first preview of a fill band by band: the result, NaN where its turn is to come."""
    work = RunningFill(replace_values(damaged, 1000.0), None, "harmonic", "normal", {})
    work.wait(60)
    good = damaged.good_bands
    shown = np.isfinite(work.preview)
    assert work.previews == 1 and shown[0].all() and not shown[4].all()
    shown &= good[:, None, None]
    np.testing.assert_allclose(work.preview[shown], work.value.cube.values[shown], rtol=1e-9)


def replace_values(cube, factor):
    from dataclasses import replace

    return replace(cube, values=cube.values * factor + 5.0)


def test_a_stopped_fill_keeps_what_is_there(damaged):
    settings = {"steps": "100000", "channels": "8"}
    work = RunningFill(damaged, None, "ei", "normal", settings)
    deadline = time.monotonic() + 60
    while work.done < 2 and work.running and time.monotonic() < deadline:
        time.sleep(0.02)
    work.stop()
    work.wait(60)
    assert work.error is None and not work.running
    assert 2 <= work.done < 100000
    assert np.isfinite(work.value.cube.values[work.value.filled]).all()
    assert f"stopped by hand after {work.done} of 100001 steps" in work.value.notes
    seen = damaged.observed()
    np.testing.assert_array_equal(work.value.cube.values[seen], damaged.values[seen])


def test_a_method_ends_where_progress_says_so(damaged):
    calls = []
    result = hydiff.fill(
        damaged,
        method="ei",
        steps=50,
        channels=8,
        progress=lambda s: calls.append(s) or len(calls) == 3,
    )
    assert len(calls) == 3 == len(result.history)


def test_saving_stays_in_its_folder_and_replaces_nothing(result, tmp_path):
    output = tmp_path / "filled.npz"
    made = running_fill.save(result, "mine.npz", output)
    assert made[0] == tmp_path / "mine.npz" and all(path.exists() for path in made)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("", ".", "..", "../mine.npz", "/tmp/mine.npz", "sub/mine.npz"):
        with pytest.raises(errors.BadValue, match="bare name"):
            running_fill.save(result, name, output)
    with pytest.raises(errors.OutputError, match="exists"):
        running_fill.save(result, "mine.npz", output)
    made[0].unlink()  # its companions alone are in the way too
    with pytest.raises(errors.OutputError, match="exists"):
        running_fill.save(result, "mine.npz", output)
    made[0].write_bytes(before[made[0]])
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


# ── fills by tiles, while they run ───────────────────────────────────────────────────────────────


class Interrupted(Exception):
    pass


@pytest.fixture
def unfinished(damaged, tmp_path):
    """A file, the name of its fill by tiles, of which 4 of 9 are done, and how to go on with it."""
    file, output = tmp_path / "scene.bil", tmp_path / "filled.zarr"
    io.write(damaged, file)
    order = scene.Request(method="harmonic", outside="fill")
    bounds = scene.limits("4GB", 8, 4)

    def interrupt(step):
        if step.done == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        execute.fill_file(file, output, order, bounds, progress=interrupt)
    return file, output, lambda: execute.fill_file(file, output, order, bounds, resume=True)


def test_the_page_follows_a_fill_by_tiles(unfinished):
    file, output, go_on = unfinished
    page = page_of(scene_layers.from_files(file, output))
    assert "4 of 9 tiles are done" in page.controls.status.text
    page.picking.pick(3, 6)
    assert "0 of 12 bands filled" not in page.controls.picks.text  # a finished tile
    page.picking.pick(20, 6)
    assert "0 of 12 bands filled" in page.controls.picks.text  # one that is to come
    go_on()
    page.following.look()
    assert "this is filled.zarr" in page.controls.status.text
    assert "0 of 12 bands filled" not in page.controls.picks.text
    assert page.desk.scene.unfinished is None and page.desk.scene.fills is not None


def done(page):
    """Wait for all that is at work beside the page."""
    while page.queue.work is not None:
        page.queue.work.wait(60)
        page.queue.look()


def page_of(shown, **options):
    pytest.importorskip("panel", reason='no Panel: pip install "hydiff[view]"')
    from hydiff.viewer.page import Window

    return Window(shown, **options).page


def test_a_fill_by_tiles_is_shown_as_far_as_it_is(damaged, unfinished):
    file, output, go_on = unfinished
    shown = scene_layers.from_files(file, output)
    assert shown.unfinished == (output, provenance.tiles_path(output))
    work = shown.unfinished[1]
    assert tile_progress.progress(work, damaged.shape) == (4, 9)
    partly = shown.after.plane(2)
    for marker in work.glob("tile-*.json"):  # a tile counts when it is vouched for
        marker.rename(marker.with_suffix(".aside"))
    np.testing.assert_array_equal(shown.after.plane(2), damaged.values[2])
    for marker in work.glob("tile-*.aside"):
        marker.rename(marker.with_suffix(".json"))
    go_on()
    whole = scene_layers.from_files(file, output)
    assert whole.unfinished is None
    final = whole.after.plane(2)
    ready = np.isfinite(partly)
    gaps = np.isnan(damaged.values[2])
    assert 0 < (ready & gaps).sum() < gaps.sum()
    # away from the edges of tiles that are still to come, what is shown stays
    np.testing.assert_allclose(
        partly[:6, :16][ready[:6, :16]], final[:6, :16][ready[:6, :16]], rtol=1e-6
    )
    np.testing.assert_array_equal(partly[~gaps], damaged.values[2][~gaps])
    assert tile_progress.progress(shown.unfinished[1], damaged.shape) == (
        0,
        0,
    )  # the folder is gone
    np.testing.assert_array_equal(shown.after.plane(2), damaged.values[2])


# ── notebooks ────────────────────────────────────────────────────────────────────────────────────


CELL = """
import numpy as np
import hydiff
from hydiff.cube import Cube

values = np.random.default_rng(0).random((5, 12, 12))
values[:, 4:6] = np.nan
hydiff.view(hydiff.fill(Cube(values), method="harmonic"))
"""


def test_a_kernel_shows_the_page_with_all_that_it_needs(tmp_path):
    """A real kernel: no error, a page that is joined to it, and nothing to be fetched."""
    nbclient = pytest.importorskip(
        "nbclient", reason="no notebooks: pip install nbclient ipykernel"
    )
    pytest.importorskip("ipykernel")
    pytest.importorskip("panel", reason='no Panel: pip install "hydiff[view]"')
    import nbformat

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=tmp_path)
    outputs = book.cells[0].outputs
    (page,) = [o for o in outputs if o.output_type == "execute_result"]
    live = "application/vnd.holoviews_exec.v0+json"  # what joins the page to its kernel
    assert live in page.data and page.metadata[live]["id"]
    assert "Every" not in page.data["text/html"] and "One band" in page.data["text/html"]
    html = "".join(o.data.get("text/html", "") for o in outputs if "data" in o)
    assert "cdn." not in html


def test_a_result_is_viewed_in_a_notebook(result, tiny, tmp_path):
    """One object to show; written out as a page, it holds all that it needs."""
    pn = pytest.importorskip("panel", reason='no Panel: pip install "hydiff[view]"')
    from bokeh.resources import INLINE

    shown = hydiff.view(result, truth=tiny)
    assert isinstance(shown, pn.Column)
    page = text_io.StringIO()
    shown.save(page, resources=INLINE)
    assert not re.findall(
        r"<(?:script|link rel=.stylesheet)[^>]*(?:src|href)=.?http", page.getvalue()
    )
    io.write(result.cube, tmp_path / "filled.npz")
    assert isinstance(hydiff.view(tmp_path / "filled.npz", output=tmp_path / "x.npz"), pn.Column)
    assert isinstance(hydiff.view(np.asarray(tiny)), pn.Column)
