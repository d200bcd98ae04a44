"""Composites are pure and tested by value; the figure by its size, its colours and its margins."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hydiff.bench import panels
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.report import plots

DATA = Path(
    os.environ.get("HYDIFF_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)
GAP = np.array(plots.GAP_COLOUR, dtype=np.uint8)


@pytest.fixture
def cube():
    return np.random.default_rng(0).random((12, 24, 30))


@pytest.fixture
def observed():
    mask = np.ones((24, 30), dtype=bool)
    mask[:, 10:15] = False
    return mask


def picture(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def rgb_of(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.uint8)


def shows(image, colour):
    return int((image == colour).all(axis=-1).sum())


# ---- bands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "factor"),
    [
        ("nm", 1),
        ("Nanometers", 1),
        (" nanometres ", 1),
        (None, 1),
        ("Unknown", 1),
        ("um", 1e-3),
        ("µm", 1e-3),
        ("Micrometers", 1e-3),
        (None, 1e-3),
        ("unknown", 1e-3),
    ],
)
def test_bands_of_true_colour_in_any_unit(units, factor):
    nm = np.linspace(400, 2500, 211)  # every 10 nm
    assert plots.rgb_bands(nm * factor, 211, units) == (25, 15, 5)


def test_true_colour_with_unsorted_and_unknown_wavelengths():
    nm = np.array([np.nan, 655, 900, 452, 548])
    assert plots.rgb_bands(nm, 5, "nm") == (1, 4, 3)


@pytest.mark.parametrize(
    ("wavelengths", "units"),
    [
        (None, None),
        (np.linspace(1000, 2500, 200), "nm"),  # no visible light
        (np.arange(200.0), "Index"),
        (np.full(200, np.nan), "nm"),
    ],
)
def test_without_visible_wavelengths_shares_of_the_range(wavelengths, units):
    assert plots.rgb_bands(wavelengths, 200, units) == (25, 15, 9)


@pytest.mark.parametrize("bands", [1, 2, 3, 10, 31, 41, 128, 151, 285])
def test_shares_are_bands_from_red_to_blue(bands):
    r, g, b = plots.rgb_bands(None, bands)
    assert bands > r >= g >= b >= 0
    assert bands < 10 or r > g > b


# ---- composites ----------------------------------------------------------------------------


def test_composite_shows_limits_as_black_and_white(observed):
    values = np.zeros((3, 24, 30))
    values[:, :12] = 10.0
    image = plots.composite(values, (0, 1, 2), observed, np.array([[0, 10], [0, 20], [5, 10]]))
    assert image.dtype == np.uint8
    assert image.shape == (24, 30, 3)
    assert image[0, 0].tolist() == [255, 128, 255]
    assert image[20, 0].tolist() == [0, 0, 0]


def test_composite_paints_gaps_of_its_bands(cube, observed):
    image = plots.composite(cube, (2, 1, 0), observed)
    gaps = (image == GAP).all(axis=-1)
    assert gaps[:, 10:15].all()
    assert gaps.sum() == 24 * 5
    per_band = np.ones(cube.shape, dtype=bool)
    per_band[1, 3, 4] = per_band[7, 5, 5] = False
    cube[0, 6, 6] = np.nan
    painted = np.argwhere((plots.composite(cube, (2, 1, 0), per_band) == GAP).all(axis=-1))
    assert painted.tolist() == [[3, 4], [6, 6]]


def test_stretch_leaves_out_one_percent_at_each_end():
    values = np.arange(303.0).reshape(3, 1, 101)
    limits = plots.stretch(values, (2, 0, 1), np.ones((1, 101), dtype=bool))
    np.testing.assert_allclose(limits, [[203, 301], [1, 99], [102, 200]])


def test_gaps_do_not_move_the_stretch(cube, observed):
    wild = np.where(observed, cube, 1e9)
    limits = plots.stretch(wild, (2, 1, 0), observed)
    np.testing.assert_array_equal(limits, plots.stretch(cube, (2, 1, 0), observed))
    assert limits.max() <= 1
    np.testing.assert_array_equal(
        plots.composite(wild, (2, 1, 0), observed), plots.composite(cube, (2, 1, 0), observed)
    )


def test_composite_of_constant_or_empty_bands(observed):
    assert plots.composite(np.ones((3, 24, 30)), (0, 1, 2), observed)[0, 0].tolist() == [128] * 3
    nothing = np.zeros((24, 30), dtype=bool)
    image = plots.composite(np.full((3, 24, 30), np.nan), (0, 1, 2), nothing)
    assert (image == GAP).all()


def test_deepest_is_the_middle_of_the_widest_gap():
    gaps = np.zeros((21, 40), dtype=bool)
    gaps[:, 5:8] = True
    gaps[6:13, 20:27] = True
    assert plots.deepest(gaps) == (9, 23)
    assert plots.deepest(np.ones((5, 5), dtype=bool)) == (2, 2)


# ---- the figure ----------------------------------------------------------------------------


def check_page(path):
    """A page for a README: wide, light, and with nothing running into its edge."""
    image = picture(path)
    assert 1200 <= image.shape[1] <= 1600
    assert path.stat().st_size < 400_000
    for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
        assert (edge == 255).all()
    return image


@pytest.mark.parametrize("shape", [(24, 30), (120, 20), (20, 120), (64, 64)])
@pytest.mark.parametrize("title", [None, "A scene with a title"])
def test_nothing_is_clipped_in_any_shape(tmp_path, shape, title):
    values = 1e5 * np.random.default_rng(0).random((12, *shape))
    observed = np.ones(shape, dtype=bool)
    observed[:, 8:12] = False
    path = tmp_path / "figure.png"
    plots.before_after(values, values, path, observed=observed, truth=values, title=title)
    check_page(path)


def test_figure_shows_gaps_once_and_marks_the_pixel(tmp_path, cube, observed):
    path = tmp_path / "figure.png"
    plots.before_after(cube, cube, path, observed=observed, truth=cube)
    image = check_page(path)
    third = image.shape[1] // 4
    assert shows(image[:, :third], GAP) > 1000
    assert shows(image[:, third:], GAP) == 0
    assert shows(image, rgb_of(plots.BLUE)) > 200
    assert shows(image, rgb_of(plots.ORANGE)) == 0  # that pixel was seen in no band


def test_a_pixel_seen_in_some_bands_shows_them(tmp_path, cube):
    observed = np.ones(cube.shape, dtype=bool)
    observed[7:, 3:8, 10:15] = False
    path = tmp_path / "figure.png"
    plots.before_after(cube, cube + 0.1, path, observed=observed)
    image = check_page(path)
    assert shows(image, rgb_of(plots.ORANGE)) > 100
    assert shows(image, GAP) > 500


def test_error_bars_are_drawn_around_the_fill(tmp_path, cube, observed):
    """Wider bars colour more of the picture, and none without them: 25 % blue on white."""
    path, pale = tmp_path / "figure.png", np.array([191, 219, 235])
    painted = []
    for sigma in (None, np.full(cube.shape, 0.02), np.full(cube.shape, 0.2)):
        plots.before_after(cube, cube, path, observed=observed, sigma=sigma)
        image = check_page(path)[:, 1100:].astype(int)
        painted.append(int((np.abs(image - pale).max(axis=-1) <= 3).sum()))
    assert painted[0] < 100 < 2 * painted[1] < painted[2]


def test_dead_columns_outside_the_shown_bands_are_seen(tmp_path, cube):
    observed = np.ones(cube.shape, dtype=bool)
    observed[0, :, 7] = False  # one column of a band that is not shown
    observed[plots.rgb_bands(None, 12)[1]] = False  # a band that would be shown, but is dead
    path = tmp_path / "figure.png"
    plots.before_after(cube, cube, path, observed=observed)
    image = check_page(path)
    assert 0 < shows(image, GAP) < 0.1 * image.shape[0] * image.shape[1]


def test_what_stays_unfilled_is_shown_as_gap(tmp_path, cube, observed):
    path = tmp_path / "figure.png"
    filled = ~observed
    filled[:12] = False
    plots.before_after(cube, cube, path, observed=observed, filled=filled)
    image = check_page(path)
    assert shows(image[:, image.shape[1] // 3 : image.shape[1] // 2], GAP) > 500


def test_wavelengths_and_cut_bands(tmp_path, cube, observed):
    path = tmp_path / "figure.png"
    microns = np.r_[np.linspace(0.45, 0.7, 6), np.linspace(2.0, 2.2, 6)]
    plots.before_after(
        cube,
        cube,
        path,
        observed=observed,
        wavelengths=microns,
        wavelength_units="um",
        pixel=(3, 4),
    )
    check_page(path)
    x, y = plots._broken(microns[::-1], np.arange(12.0))
    assert np.flatnonzero(np.isnan(x)).tolist() == [6]
    assert np.isnan(y[6])
    assert np.nanmax(np.diff(x)) < 0.1


def test_noise_of_a_large_scene_stays_small(tmp_path):
    values = np.random.default_rng(0).random((4, 500, 500))
    observed = np.ones((500, 500), dtype=bool)
    observed[100:120] = False
    path = tmp_path / "figure.png"
    plots.before_after(values, values, path, observed=observed, truth=values)
    check_page(path)


def test_pyplot_stays_out(tmp_path):
    code = (
        "import sys, numpy as np; from hydiff.report import plots;"
        "x = np.eye(9)[None].repeat(3, axis=0);"
        "plots.before_after(x, x, sys.argv[1], observed=x[0] == 0);"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    path = tmp_path / "figure.png"
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 0
    assert path.exists()


def test_errors_say_what_to_do(tmp_path, cube, observed):
    path = tmp_path / "figure.png"
    with pytest.raises(ShapeMismatch, match=r"after has shape \(11, 24, 30\).*before"):
        plots.before_after(cube, cube[1:], path, observed=observed)
    with pytest.raises(ShapeMismatch, match=r"observed has shape \(30, 24\)"):
        plots.before_after(cube, cube, path, observed=observed.T)
    with pytest.raises(BadValue, match="give pixel"):
        plots.before_after(cube, cube, path, observed=np.ones((24, 30), dtype=bool))
    with pytest.raises(BadValue, match=r"\(24, 0\) lies outside"):
        plots.before_after(cube, cube, path, observed=observed, pixel=(24, 0))
    assert not path.exists()


# ---- single bands, as the paper shows them ---------------------------------------------------


def case_of(shape, methods):
    rng = np.random.default_rng(0)
    truth = rng.random(shape)
    observed = np.ones(shape, bool)
    observed[:, :, 3:7] = False
    errors = {f"a method of a long name {i}": 0.1 * rng.random(shape) for i in range(methods)}
    results = {name: np.where(observed, truth, truth + e) for name, e in errors.items()}
    return panels.Case(truth, observed, np.where(observed, truth, 0.0), results)


def shown_by(axis):
    (image,) = axis.get_images()
    return np.asarray(image.get_array())


def test_a_band_is_shown_with_the_error_of_every_method_below():
    case = case_of((6, 12, 14), 2)
    figure = panels.band_panels(case, 4)
    truth, measured, *fills = figure.axes[:4]
    for axis, title in ((truth, "truth"), (measured, "input")):
        assert axis.get_title() == title
    assert (shown_by(measured)[:, 3:7] == GAP).all()
    limits = np.percentile(case.truth[3], (1, 99))
    grey = np.clip((case.truth[3] - limits[0]) / np.ptp(limits), 0, 1)
    np.testing.assert_allclose(shown_by(truth)[..., 1], 255 * grey, atol=0.51)
    for fill, below, (name, x) in zip(fills, figure.axes[6:8], case.results.items(), strict=True):
        title, score = fill.get_title().split("\n")
        mse = np.mean((x - case.truth)[3, :, 3:7] ** 2)
        assert (title, score) == (name, f"{-10 * np.log10(mse):.1f} dB in the gaps")
        np.testing.assert_array_equal(shown_by(below), np.abs(x - case.truth)[3])
    scales = {image.get_clim() for axis in figure.axes[6:8] for image in axis.get_images()}
    assert len(scales) == 1  # one scale of errors for all methods
    assert not any(axis.get_images() for axis in figure.axes[4:6])  # the truth has none


def test_a_tall_scene_lies_on_its_side():
    case = case_of((3, 30, 12), 1)
    figure = panels.band_panels(case, 1)
    assert shown_by(figure.axes[0]).shape == (12, 30, 3)


@pytest.mark.parametrize("shape", [(3, 24, 24), (3, 48, 16), (3, 16, 48)], ids=str)
@pytest.mark.parametrize("methods", [0, 1, 3, 9])
def test_no_label_of_a_band_is_clipped(tmp_path, monkeypatch, shape, methods):
    monkeypatch.setattr(panels, "DPI", 60)
    path = tmp_path / "band.png"
    figure = panels.band_panels(case_of(shape, methods), 2)
    figure.savefig(path)
    image = picture(path)
    for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
        assert (edge == 255).all()
    boxes = [axis.title.get_window_extent() for axis in figure.axes if axis.get_title()]
    apart = [not a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert all(apart) and len(boxes) == 2 + methods


def test_a_real_scene_makes_a_page(tmp_path):
    file = DATA / "dev" / "enmap_potsdam_64x96.npz"
    if not file.exists():
        pytest.skip(f"no development data in {DATA}; set HYDIFF_DATA")
    with np.load(file) as f:
        truth, nm = f["cube"].transpose(2, 0, 1), f["wavelength_nm"]
    observed = np.ones(truth.shape, dtype=bool)
    observed[:, 20:26] = False
    before = np.where(observed, truth, 0)
    path = tmp_path / "figure.png"
    plots.before_after(before, truth, path, observed=observed, truth=truth, wavelengths=nm)
    image = check_page(path)
    assert shows(image, GAP) > 1000


@pytest.mark.parametrize(("methods", "columns"), [(4, 3), (5, 4), (6, 4), (7, 5)])
def test_six_pictures_fill_two_lines_and_few_stay_empty(methods, columns):
    figure = panels.panels(case_of((6, 12, 14), methods))
    shape = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    assert shape == (-(-(methods + 2) // columns), columns)
