"""Panels of the viewer without a browser: gaps, maps, means, comparisons, samples, files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

import hydiff
from hydiff import errors, io
from hydiff.cube import Cube
from hydiff.errors import shell
from hydiff.io import provenance
from hydiff.viewer import folders, images, map_marks, scene_layers, spectra
from hydiff.viewer.map_marks import Box

pytest.importorskip("panel", reason='no Panel: pip install "hydiff[view]"')
from hydiff.viewer.page import Window
from hydiff.viewer.rendering import Choice, Planes, limits, pictures, whole_of

TURNED = (20.0, 5.0, 500000.0, 5.0, -20.0, 4100000.0)  # pixels to map, not upright


@pytest.fixture(scope="module")
def cube():
    """A small piece of the bundled scene, on a map."""
    piece = hydiff.sample().window(slice(0, 24), slice(0, 30), slice(0, 20))
    return replace(piece, crs="EPSG:32616", transform=TURNED)


@pytest.fixture(scope="module")
def missing():
    missing = np.zeros((24, 30), bool)
    missing[:, 12:15] = missing[6:12, 20:25] = True
    return missing


@pytest.fixture(scope="module")
def folder(cube, missing, tmp_path_factory):
    folder = tmp_path_factory.mktemp("panels") / "named"
    folder.mkdir()
    values = np.where(missing, np.float32(-1), np.asarray(cube.values, np.float32))
    io.write(replace(cube, values=values, nodata=-1.0), folder / "damaged.tif")
    fill = hydiff.fill(io.read(folder / "damaged.tif"), method="smooth", outside="fill")
    provenance.save(fill, folder / "smooth.tif")
    other = 0.5 * np.asarray(cube.values[::4], np.float32) + 100
    fields = {"fwhm": None, "good": None, "band_names": None, "attrs": {}}
    reference = replace(cube, values=other, wavelengths=cube.wavelengths[::4], **fields)
    io.write(reference, folder / "reference.tif")
    return folder


@pytest.fixture
def window(folder):
    files = folder / "damaged.tif", folder / "smooth.tif"
    return Window(scene_layers.from_files(*files), output=folder / "x.tif", folders=[folder])


def done(page):
    """Wait for all that is at work beside the page."""
    while page.queue.work is not None:
        page.queue.work.wait(60)
        page.queue.look()


# ── gaps ─────────────────────────────────────────────────────────────────────────────────────────


def test_gaps_of_a_mask_are_shaded_and_counted_before_a_fill(cube, missing):
    page = Window(scene_layers.from_data(cube), ~missing).page
    assert page.controls.gaps.value == "Shaded"
    np.testing.assert_array_equal(page.picture.glance.missing.data["image"][0] > 0, missing)
    assert f"{100 * missing.mean():.3g} % of the pixels missing" in page.controls.state.text
    assert page.picture.glance.overlay.visible


def test_marks_become_outlines_and_notes_stay_beside_what_was_saved(cube, missing, tmp_path):
    page = Window(scene_layers.from_data(cube), ~missing, tmp_path / "out.npz").page
    page.controls.rectangle.value = "1:4, 1:3"
    page.controls.method.value = "harmonic"
    page.working.start()
    done(page)
    assert page.controls.gaps.value == "Outlined"
    assert page.picture.patches.glyph.fill_alpha == 0
    notes = page.controls.status.text
    assert "entries with harmonic in" in notes
    page.working.save()
    assert "Saved out.npz" in page.controls.saved.text and page.controls.status.text == notes


def test_the_page_names_the_folder_and_the_form_of_arguments_of_its_user(
    cube, missing, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    page = Window(scene_layers.from_data(cube), ~missing, Path("out.npz")).page
    page.controls.method.value = "harmonic"
    page.working.start()
    done(page)
    page.working.save()
    assert page.controls.saved.text.endswith(f" in {tmp_path.resolve()}</p>")
    page.working.save()
    assert f"exists in {tmp_path.resolve()};" in page.controls.alert.text
    for words, text in ((str, "`max_error=0.9` leaves"), (shell, "--max-error 0.9 leaves")):
        page.desk.words = words
        page.desk.status("`max_error=0.9` leaves them missing")
        assert text in page.controls.status.text


def test_an_outline_lies_inside_the_gaps_along_their_rim(missing):
    rim = images.outlined(missing)
    times = rim.shape[0] // missing.shape[0]
    fine = missing.repeat(times, axis=0).repeat(times, axis=1)
    assert rim.any() and not (rim & ~fine).any()
    assert not rim.reshape(24, times, 30, times).all(axis=(1, 3)).any()  # no pixel is covered
    assert not images.outlined(np.ones((40, 50), bool)).any()  # an edge of the picture is no rim


def test_neither_lines_nor_error_bands_reach_across_bands_that_were_cut_out():
    """As 1760–1940 nm in many products."""
    x = np.concatenate([np.arange(1700.0, 1760, 10), np.arange(1950.0, 2000, 10)])
    ones = np.ones(len(x))
    outlines = spectra.bands_between(x, ones, ones)
    assert [(o[0].min(), o[0].max()) for o in outlines] == [(1700, 1750), (1950, 1990)]
    assert np.isnan(spectra.broken(x, ones)[1]).sum() == 1


# ── maps ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transform", [TURNED, (30.0, 0.0, 5e5, 0.0, -30.0, 4e6)])
def test_lines_of_the_graticule_have_the_coordinate_that_they_are_labelled_with(transform):
    a, b, c, d, e, f = transform
    box = Box(3.0, 90.0, 0.0, 120.0)
    lines = map_marks.graticule(transform, box)
    axes = {line.text[0] for line in lines if line.text}
    assert axes == {"x", "y"}
    for line in lines:
        cols, rows = np.array(line.cols), np.array(line.rows)
        assert (rows >= 3 - 1e-6).all() and (rows <= 90 + 1e-6).all() and (cols <= 120 + 1e-6).all()
        values = {"x": a * cols + b * rows + c, "y": d * cols + e * rows + f}
        if line.text:
            np.testing.assert_allclose(values[line.text[0]], float(line.text[2:]))
    assert map_marks.graticule((0.0,) * 6, box) == []


@pytest.mark.parametrize("transform", [TURNED, (30.0, 0.0, 5e5, 0.0, -30.0, 4e6)])
@pytest.mark.parametrize("top", [0.0, 3.0, 41.5])
def test_no_label_of_the_graticule_is_cut_or_covered(transform, top):
    box = Box(top, top + 50.0, 0.0, 60.0)
    lines = map_marks.graticule(transform, box)
    labels = [line.at for line in lines if line.text]
    assert len(labels) > 3 and all(row >= top + 0.05 * 50 - 1e-6 for _, row in labels)
    for i, (col, row) in enumerate(labels):
        assert all(abs(col - c) >= 7.2 or abs(row - r) >= 2.5 for c, r in labels[:i])
        assert row <= top + 45 or col <= 60 - 0.32 * 60 - 7.2  # beside the scale bar


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        ((4.85, 14.09, 716737.401375353, 14.09, -4.85, 4322229.096619), "x 716746.9, y 4322233.7"),
        ((30.0, 0.0, 364095.0, 0.0, -30.0, 5809965.0), "x 364110, y 5809950"),
        ((0.0005, 0.0, 11.0, 0.0, -0.0005, 48.0), "x 11.00025, y 47.99975"),
        ((float("nan"), 0.0, 11.0, 0.0, -1.0, 48.0), "x nan, y 47.5"),
    ],
)
def test_coordinates_have_the_digits_that_a_pixel_supports(cube, transform, text):
    placed = replace(cube, transform=transform)
    assert spectra.place(placed, 0, 0) == f"row 0, column 0 · {text}"


def test_north_and_the_length_of_a_pixel_are_those_of_pyproj(cube):
    from rasterio.warp import transform

    upright = replace(cube, transform=(30.0, 0.0, 5e5, 0.0, -30.0, 4e6))
    assert map_marks.north(upright) == pytest.approx(0)
    assert map_marks.metres_per_column(upright) == pytest.approx(30)
    assert map_marks.north(replace(cube, transform=(0.0, 30.0, 0.0, 30.0, 0.0, 0.0))) == 90
    degrees = replace(cube, crs="EPSG:4326", transform=(0.001, 0.0, 11.0, 0.0, -0.001, 48.0))
    middle = 48 - 0.012
    x, _ = transform("EPSG:4326", "EPSG:32632", [11.0, 11.001], [middle, middle])
    assert map_marks.metres_per_column(degrees) == pytest.approx((x[1] - x[0]) / 0.9996, rel=0.01)
    plain = Cube(np.ones((2, 3, 4)))
    assert map_marks.north(plain) is map_marks.metres_per_column(plain) is None


# ── means and samples ────────────────────────────────────────────────────────────────────────────


def test_a_mean_over_a_region_has_its_propagated_error(window, folder, missing):
    page = window.page
    for _ in range(2):  # the same again changes nothing
        page.controls.region.value = "5:13, 10:16"
    done(page)
    (mean,) = page.picking.picked
    inside = np.zeros(missing.shape, bool)
    inside[5:13, 10:16] = True
    after = np.asarray(io.read(folder / "smooth.tif").values, float)[:, inside]
    np.testing.assert_allclose(mean.after, after.mean(axis=1))
    assert mean.pixels == 48 and mean.filled.all()
    expected = hydiff.propagate(folder / "smooth.tif", over=inside)
    np.testing.assert_allclose(mean.sigma, expected.sigma)
    assert "mean of 48 pixels" in page.controls.picks.text
    table = page.picking.as_csv().getvalue().splitlines()
    assert table[0].endswith(",pixels") and table[1].endswith(",48")
    page.controls.region.value = "0:3, 0:3"  # nothing of it was filled
    assert page.queue.work is None and page.picking.picked[1].sigma is None


def test_samples_change_what_was_filled_and_nothing_else(window, missing):
    page = window.page
    page.controls.flicker.value = True
    assert "Drawing samples" in page.controls.busy.text
    done(page)
    turns = np.stack(page.picture.turns.data["after"])
    assert (turns == turns[0])[:, ~missing].all() and (turns != turns[0])[:, missing].any()
    page.controls.flicker.value = False
    assert page.picture.turns.data["after"] == []


# ── several fills, other files ───────────────────────────────────────────────────────────────────


def test_fills_wait_for_one_another_and_are_compared(window):
    page, c = window.page, window.page.controls
    for method in ("harmonic", "linear"):
        c.method.value = method
        page.working.start()
    assert "Filling with harmonic … Next: Filling with linear." in c.busy.text
    done(page)
    assert list(page.desk.fills) == ["smooth.tif", "1 harmonic", "2 linear"]
    assert c.right.value == "2 linear" and c.busy.text == ""
    c.left.value = "1 harmonic"
    c.show.value = "Difference, right less left"
    fills = [page.desk.fills[name].after.plane(3) for name in ("2 linear", "1 harmonic")]
    c.band.value = 4
    np.testing.assert_array_equal(page.looking.planes.get("difference", 3), fills[0] - fills[1])
    c.tab.value = "Compare fills"
    assert list(page.comparing.rows) == list(page.desk.fills)
    assert "2 linear: differs by" in c.compared.text


def test_a_difference_is_white_where_there_is_none(cube):
    one, other = (np.asarray(cube.values, float).copy() for _ in range(2))
    other[:, :5] += 10
    scene = scene_layers.from_data(Cube(one), Cube(other))
    planes = Planes(replace(scene, other=scene.before), whole_of((24, 30), 10_000))
    choice = Choice("Difference, right less left", (2,), (1.0, 99.0), "Viridis")
    (bounds,) = limits(planes, choice)
    assert bounds == (-10.0, 10.0)
    (picture,) = pictures(planes, choice, [bounds])
    assert (picture[5:, :, :3] > 240).all() and (picture[:5, :, 0] > picture[:5, :, 2]).all()


def test_a_reference_is_shown_on_the_scene_and_used_by_fills(window, folder, cube):
    page, c = window.page, window.page.controls
    c.file.value = "named/reference.tif"
    page.opening.open_reference()
    done(page)
    assert c.left.value == "reference.tif" and c.with_reference.value
    shown = page.desk.scene.other
    np.testing.assert_allclose(shown.plane(9), 0.5 * np.asarray(cube.values[8]) + 100)
    assert "Difference, right less left" not in c.show.options  # it has another unit
    c.budget.value = "fast"
    page.working.start()
    done(page)
    (used,) = page.desk.scene.result.references
    assert used["name"] == "reference.tif"


def test_bands_of_a_reference_are_those_nearest_in_wavelength_where_both_have_one(cube):
    few = replace(cube.window(bands=slice(0, 4)), fwhm=None)
    own, other = np.array([450.0, 550, np.nan, 860]), np.array([np.nan, 865, 549, 2000])
    layer = scene_layers.of_reference(
        replace(few, wavelengths=other, wavelength_units="nm"),
        replace(few, wavelengths=own, wavelength_units="nm"),
    )
    assert layer.bands.tolist() == [-1, 2, -1, 1]


def test_a_fill_is_opened_from_the_page_with_the_variable_of_the_scene(folder, tmp_path):
    cube = hydiff.read(folder / "damaged.tif")
    values = np.moveaxis(np.asarray(cube.values), 0, -1)
    savemat(tmp_path / "two.mat", {"other": values + 1, "wanted": values})
    savemat(tmp_path / "filled.mat", {"other": values + 1, "wanted": values + 2})
    scene = scene_layers.from_files(tmp_path / "two.mat", var="wanted")
    page = Window(scene, output=tmp_path / "x.tif", folders=[tmp_path]).page
    page.controls.file.value = next(n for n in page.opening.files if "filled" in n)
    page.opening.open_fill()
    assert not page.controls.alert.visible, page.controls.alert.text
    shown = np.asarray(page.desk.scene.after.cube.values)
    np.testing.assert_array_equal(shown, np.moveaxis(values, -1, 0) + 2)


def test_another_scene_is_opened_from_the_page(window):
    page = window.page
    page.controls.file.value = "named/reference.tif"
    page.opening.open_scene()
    assert window.page is not page and "reference.tif" in window.page.controls.title.text
    assert window.page.controls.name.value == "reference_filled.tif"
    assert len(window.layout) == 1


def test_only_files_below_the_named_folders_are_opened(folder, tmp_path):
    secret = tmp_path / "secret.tif"
    io.write(Cube(np.ones((2, 3, 4), "f4")), secret)
    link = folder / "link.tif"
    link.symlink_to(secret)
    try:
        files = folders.listed([folder])
        assert set(files) == {f"named/{n}.tif" for n in ("damaged", "smooth", "reference", "link")}
        for path in (secret, link, folder / ".." / "secret.tif"):
            with pytest.raises(errors.BadValue, match="below a folder"):
                folders.checked(path, [folder])
        assert folders.checked(files["named/smooth.tif"], [folder]) == folder / "smooth.tif"
    finally:
        link.unlink()
    page = Window(scene_layers.from_files(folder / "damaged.tif")).page
    assert page.controls.open_scene.disabled
    page.opening.open_scene()
    assert "--folder FOLDER" in page.controls.alert.text
