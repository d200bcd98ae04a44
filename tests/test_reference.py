"""Laws of a fill from another image of the place: grid, shift, models, and when it is used."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rasterio.crs import CRS
from scipy import ndimage
from typer.testing import CliRunner

import hydiff
import products
from conftest import prior_weights as weights
from hydiff.api import cube_and_mask
from hydiff.auto import reference_errors, references
from hydiff.auto.candidates import CLASSICAL, CORRECTED, PRIOR, SMOOTH, WITH_REFERENCE, chosen
from hydiff.auto.classes import BAND_GROUPS, D
from hydiff.auto.folds import TrialWindow
from hydiff.auto.recipe import Errors, ReferenceRecipe, Tried
from hydiff.bench import scenes
from hydiff.cli import app
from hydiff.cube import Cube, as_cube
from hydiff.errors import BadValue, HydiffError, OutputError, ShapeMismatch
from hydiff.io import bundled
from hydiff.learn import prior_weights
from hydiff.methods import choose
from hydiff.methods.estimate import Job, estimate, estimate_each
from hydiff.reference import models, own_gaps
from hydiff.reference.facts import angles_between, date_of
from hydiff.reference.grid import onto_grid
from hydiff.reference.image_choice import Place, best_few, sources, taken
from hydiff.reference.models import Model, ReferencePlanes, predict
from hydiff.reference.planes import EVERYWHERE, prepare
from hydiff.reference.shift import Shift, correlation, estimate_shift, moved

UTM = CRS.from_epsg(32631).to_wkt()
FAST = {"device": "cpu", "budget": "fast"}


@pytest.fixture(scope="module")
def scene():
    """(8, 48, 48) of the bundled scene, in its own unit."""
    values = np.asarray(bundled.sample().values)[10:90:10, 20:68, 30:78]
    return values.astype(np.float64)


@pytest.fixture(scope="module")
def other(scene):
    """(4, 48, 48): broad bands with another gain and haze; what another sensor might have seen."""
    rows = np.linspace(0, 1, 48)[:, None]
    broad = np.stack([pair.mean(axis=0) for pair in np.array_split(scene, 4)])
    return 0.3 * broad + 50 * rows + 20


@pytest.fixture(scope="module")
def observed():
    """(48, 48): a frame of 12 lines and a block are missing."""
    mask = np.ones((48, 48), bool)
    mask[16:28] = mask[36:44, 6:16] = False
    return mask


@pytest.fixture(scope="module")
def without(scene, observed):
    return hydiff.fill(scene, observed, **FAST)


def rmse(result, truth):
    return float(np.sqrt(((result.values - truth)[result.filled] ** 2).mean()))


def wide(shape, margin, rng):
    """A field with detail of all sizes."""
    return sum(
        w * ndimage.gaussian_filter(rng.standard_normal([n + 2 * margin for n in shape]), w)
        for w in (0.8, 2, 5)
    )


# ── the grid ─────────────────────────────────────────────────────────────────────────────────────


def on_map(values, size, corner=(500_000.0, 5_000_000.0), crs=UTM):
    return Cube(values, crs=crs, transform=(size, 0.0, corner[0], 0.0, -size, corner[1]))


def test_a_finer_reference_is_averaged_over_the_pixels_of_the_cube(rng):
    fine = rng.random((2, 24, 24))
    cube = on_map(np.zeros((3, 8, 8)), 30.0)
    found = onto_grid(on_map(fine, 10.0), np.ones(fine.shape, bool), cube, "fine")
    assert found.how == "averaged" and found.pixel == pytest.approx(1 / 3)
    np.testing.assert_allclose(found.values, fine.reshape(2, 8, 3, 8, 3).mean(axis=(2, 4)))


def test_a_coarser_reference_is_interpolated_and_a_plane_stays_one():
    rows, cols = np.mgrid[:10, :10] + 0.5
    coarse = (3 * rows + cols)[None]
    cube = on_map(np.zeros((1, 30, 30)), 10.0)
    found = onto_grid(on_map(coarse, 30.0), np.ones(coarse.shape, bool), cube, "coarse")
    fine_rows, fine_cols = (np.mgrid[:30, :30] + 0.5) / 3
    inside = np.s_[3:-3, 3:-3]
    np.testing.assert_allclose(found.values[0][inside], (3 * fine_rows + fine_cols)[inside])


def test_a_reference_that_lies_elsewhere_on_the_map_is_moved_there(rng):
    values = rng.random((2, 20, 20))
    cube = on_map(np.zeros((3, 20, 20)), 10.0)
    shifted = on_map(values, 10.0, (500_000.0 + 40, 5_000_000.0 - 30))
    found = onto_grid(shifted, np.ones(values.shape, bool), cube, "moved")
    np.testing.assert_allclose(found.values[:, 3:, 4:], values[:, :-3, :-4])
    assert not found.observed[:, :3].any() and not found.observed[:, :, :4].any()


def test_gaps_of_a_reference_stay_gaps_after_warping(rng):
    values, there = rng.random((1, 24, 24)), np.ones((1, 24, 24), bool)
    there[:, 6:9, 6:9] = False
    found = onto_grid(on_map(values, 10.0), there, on_map(np.zeros((1, 8, 8)), 30.0), "fine")
    assert not found.observed[0, 2, 2] and found.observed.sum() == 63


def test_another_system_of_coordinates_is_followed():
    """Against rasterio's own transform of the pixel centres."""
    from rasterio.warp import transform

    rows, cols = np.mgrid[:40, :40]
    cube = on_map(np.zeros((1, 40, 40)), 30.0)
    x, y = 500_000 + 30 * (cols + 0.5), 5_000_000 - 30 * (rows + 0.5)
    lon, lat = (np.reshape(v, (40, 40)) for v in transform(UTM, "EPSG:4326", x.ravel(), y.ravel()))
    step = 2e-4
    west, north = lon.min() - 0.001, lat.max() + 0.001
    size = int((lat.max() - lat.min()) / step) + 20, int((lon.max() - lon.min()) / step) + 20
    grid_rows, grid_cols = np.mgrid[: size[0], : size[1]] + 0.5
    degrees = np.stack([west + step * grid_cols, north - step * grid_rows])
    other = Cube(
        degrees, crs=CRS.from_epsg(4326).to_wkt(), transform=(step, 0, west, 0, -step, north)
    )
    found = onto_grid(other, np.ones(degrees.shape, bool), cube, "degrees")
    inside = found.observed.all(axis=0)
    assert inside.mean() > 0.9
    for plane, degrees in zip(found.values, (lon, lat), strict=True):  # to GDAL's eighth of a pixel
        np.testing.assert_allclose(plane[inside], degrees[inside], rtol=0, atol=step / 8)


def test_sizes_that_differ_without_a_map_are_refused(scene, observed):
    with pytest.raises(ShapeMismatch, match="has 40 × 48 pixels and the cube 48 × 48"):
        hydiff.fill(scene, observed, reference=scene[:, :40], **FAST)


# ── the shift ────────────────────────────────────────────────────────────────────────────────────


def masks_with_gaps(shape, rng):
    a, b = np.ones(shape, bool), np.ones(shape, bool)
    a[20:30], b[:, 50:58] = False, False
    return a & (rng.random(shape) > 0.05), b


@pytest.mark.parametrize("shift", [(0, 0), (2, -3), (-1, 3)])
def test_whole_shifts_are_those_of_scikit_image(rng, shift):
    from skimage.registration import phase_cross_correlation

    whole = wide((72, 72), 4, rng)
    z = whole[4:-4, 4:-4]
    q = whole[4 - shift[0] : 76 - shift[0], 4 - shift[1] : 76 - shift[1]]
    a, b = masks_with_gaps(z.shape, rng)
    back = phase_cross_correlation(z, q, reference_mask=a, moving_mask=b)[0]
    found = estimate_shift(z, a, q, b)
    assert (found.down, found.right) == pytest.approx(shift, abs=0.05)
    assert tuple(-back) == shift


def test_correlation_is_that_of_the_pixels_in_common(rng):
    z, q = rng.standard_normal((2, 30, 26))
    a, b = masks_with_gaps((30, 26), rng)
    b = rng.random(b.shape) > 0.1
    found = correlation(z, a, q, b)
    for down, right in ((0, 0), (3, -2), (-4, 1)):
        one, two = (np.s_[max(-s, 0) : n - max(s, 0)] for s, n in ((down, 30), (right, 26)))
        there = np.s_[max(down, 0) : 30 + min(down, 0)], np.s_[max(right, 0) : 26 + min(right, 0)]
        both = a[one, two] & b[there]
        expected = np.corrcoef(z[one, two][both], q[there][both])[0, 1]
        assert found[29 + down, 25 + right] == pytest.approx(expected, abs=1e-9)


def test_parts_of_a_pixel_are_found_to_a_seventh_of_it(rng):
    """A shift of 0 to 3 pixels, with other light and 30 % of other content, in 95 % of trials."""
    off = []
    for trial in range(20):
        own = np.random.default_rng(trial)
        shift = own.uniform(-2.1, 2.1, 2)
        whole = wide((64, 64), 8, own)
        spectrum = ndimage.fourier_shift(np.fft.fft2(whole), shift)
        q = np.fft.ifft2(spectrum).real[8:-8, 8:-8]
        z = whole[8:-8, 8:-8]
        change = wide((64, 64), 0, own)
        q = 0.4 * (q + 0.3 * q.std() / change.std() * change) + np.linspace(0, 3, 64)
        a, b = masks_with_gaps(z.shape, own)
        found = estimate_shift(z, a, q, b)
        off.append(np.hypot(found.down - shift[0], found.right - shift[1]))
    assert np.mean(np.array(off) < 0.15) >= 0.95


def test_what_is_moved_back_lies_where_it_was(rng):
    whole = ndimage.gaussian_filter(rng.standard_normal((60, 60)), 2)
    z, q = whole[5:-5, 5:-5], whole[3:-7, 6:-4]
    every = np.ones(z.shape, bool)
    found = estimate_shift(z, every, q, every)
    values, there = moved(q[None], every[None], found)
    assert there.mean() > 0.85
    assert np.abs(values[0] - z)[there[0]].max() < 0.1 * z.std()


def test_less_than_a_pixel_loses_no_border(rng):
    whole = ndimage.gaussian_filter(rng.standard_normal((1, 40, 40)), (0, 2, 2))
    every = np.ones(whole.shape, bool)
    _, there = moved(whole, every, Shift(0.6, -0.7, 1.0))
    assert there.all()
    _, there = moved(whole, every, Shift(3.0, 0.0, 1.0))
    assert there[0, :-3].all() and not there[0, -3:].any()


def test_flares_that_meet_by_chance_make_no_shift(rng):
    z, q = (wide((64, 64), 0, np.random.default_rng(i)) for i in (1, 2))
    z[20, 20], q[40, 36] = (30 * plane.std() for plane in (z, q))
    every = np.ones(z.shape, bool)
    assert estimate_shift(z, every, q, every) is None


def test_images_of_different_places_have_no_shift(rng):
    clear = []
    for _ in range(10):
        z, q = (wide((64, 64), 0, rng) for _ in range(2))
        every = np.ones(z.shape, bool)
        clear.append(estimate_shift(z, every, q, every) is not None)
    assert sum(clear) <= 1


def test_a_shift_beyond_the_bound_is_refused_with_its_size(scene, observed):
    away = np.asarray(bundled.sample().values)[10:90:10, 28:76, 30:78].astype(float)
    with pytest.raises(BadValue, match=r"lies -8\.\d rows and .* at most 5 pixels"):
        hydiff.fill(scene, observed, reference=away, **FAST)


# ── the models ───────────────────────────────────────────────────────────────────────────────────


def test_a_linear_relation_is_found_by_every_model(scene, observed):
    r = np.stack([scene[:4].mean(axis=0), scene[4:].mean(axis=0), scene[0]])
    y = np.tensordot(np.array([[1.0, 2, 0], [0.5, 0, 1]]), r, 1) / 1e4 + 0.1
    planes = [ReferencePlanes(r, np.ones(observed.shape, bool))]
    for how in (
        {},
        {"steps": True},
        {"context": 0},
        {"robust": True},
        {"local": 12.0},
        {"similar": 9},
    ):
        p = predict(np.where(observed, y, 0), observed, planes, Model(**how))
        off = np.abs(p - y)[:, ~observed].mean() / y.std()
        assert off < 0.05, how


def test_methods_that_share_coordinates_find_what_each_finds_alone(
    scene, other, observed, tmp_path, monkeypatch
):
    monkeypatch.setattr(prior_weights, "FOLDER", tmp_path)
    weights(tmp_path / "prior-small.safetensors")
    planes = (ReferencePlanes(other, np.ones(observed.shape, bool)),)
    job = Job(0, "cpu", references=planes)
    seen = np.broadcast_to(observed, scene.shape)
    given = as_cube(np.where(seen, scene, np.nan)), seen
    tried = (SMOOTH, *CLASSICAL, *WITH_REFERENCE, CORRECTED, PRIOR, CORRECTED)
    several = [chosen(c, **({"size": "small"} if c.pretrained else {})) for c in tried]
    for one, together in zip(several, estimate_each(*given, several, 0.0, job), strict=True):
        np.testing.assert_array_equal(together.values, estimate(*given, one, 0.0, job).values)


def test_some_pixels_are_filled_as_with_all_of_the_cube(
    scene, other, observed, tmp_path, monkeypatch
):
    monkeypatch.setattr(prior_weights, "FOLDER", tmp_path)
    weights(tmp_path / "prior-small.safetensors")
    there = np.ones(observed.shape, bool)
    there[:, :12] = False  # where the reference sees nothing
    job = Job(0, "cpu", references=(ReferencePlanes(other, there),))
    entries = np.broadcast_to(observed, scene.shape)
    given = as_cube(np.where(entries, scene, np.nan)), entries
    several = [chosen(c) for c in WITH_REFERENCE] + [chosen(CORRECTED, size="small")]
    whole = estimate_each(*given, several, 0.0, job)
    part = estimate_each(*given, several, 0.0, job, at=~observed)
    for one, all_of_it in zip(part, whole, strict=True):
        np.testing.assert_allclose(
            one.values, all_of_it.at(~observed).values, rtol=1e-5, err_msg=str(one.notes)
        )


def test_a_reference_of_mere_noise_changes_next_to_nothing(scene, observed, rng):
    """Even where it is used: nothing of it is confirmed, and all else is filled as without."""
    there, entries = np.ones(observed.shape, bool), np.broadcast_to(observed, scene.shape)
    given = as_cube(np.where(entries, scene, np.nan)), entries
    noise = ReferencePlanes(rng.standard_normal((1, *observed.shape)), there)
    job = Job(0, "cpu", references=(noise,))
    several = [choose("smooth"), *(chosen(c) for c in WITH_REFERENCE)]
    plain, *found = estimate_each(*given, several, 0.0, job)
    for one in found:
        off = np.abs(one.values - plain.values)[:, ~observed].mean()
        assert off < 0.02 * scene.std()


def test_a_prediction_does_not_depend_on_what_is_missing(scene, other, observed):
    planes = [ReferencePlanes(other, np.ones(observed.shape, bool))]
    for how in ({}, {"steps": True}, {"robust": True}, {"local": 12.0}, {"alike": 10}):
        one, two = (
            predict(np.where(observed, scene, value), observed, planes, Model(**how))
            for value in (0.0, 1e4)
        )
        np.testing.assert_array_equal(one, two)


def test_the_unit_of_a_reference_does_not_matter(scene, other, observed):
    there = np.ones(observed.shape, bool)
    one, two = (
        predict(scene, observed, [ReferencePlanes(r, there)], Model(similar=10))
        for r in (other, 7 * other - 300)
    )
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_references_complement_one_another(scene, other, observed):
    left, right = (np.zeros(observed.shape, bool) for _ in range(2))
    left[:, :30] = right[:, 20:] = True
    p = predict(
        scene,
        observed,
        [ReferencePlanes(other[:2], left), ReferencePlanes(other[2:], right)],
        Model(context=0),
    )
    assert np.isfinite(p).all()
    only = predict(scene, observed, [ReferencePlanes(other[:2], left)], Model(context=0))
    np.testing.assert_array_equal(np.isfinite(only[0]), left)
    np.testing.assert_allclose(only[:, :, :20], p[:, :, :20])


def test_what_blocks_left_out_do_not_confirm_is_not_predicted(other, observed, rng):
    """Planes of their own are fitted by chance, with the neighbours all the more."""
    f = models._with_neighbours(other / other.std(), 1)
    own = [ndimage.gaussian_filter(rng.standard_normal(observed.shape), 2) for _ in range(20)]
    y = np.stack([*(own / np.std(own)), f[0] - 0.5 * f[2], f[1]])
    shown = models.mixtures_of(y, observed, f, np.ones(observed.shape))
    some = shown.map(shown.share > 0)
    np.testing.assert_allclose(some @ some, some, atol=1e-6)  # all of a mixture, or nothing of it
    kept = shown.map(shown.share)
    np.testing.assert_allclose(kept[-2:, -2:], np.eye(2), atol=0.05)
    assert np.trace(kept) - 2 < 0.3 * 20


def test_of_planes_that_are_confirmed_a_mixture_may_not_be(other, observed, rng):
    """Two planes that the features show, and half of each that they do not: the difference."""
    f = models._with_neighbours(other / other.std(), 1)
    own = ndimage.gaussian_filter(rng.standard_normal(observed.shape), 2)
    own *= 0.5 * f[0].std() / own.std()
    both = np.stack([f[0] + own, f[0] - own])
    shown = models.mixtures_of(both, observed, f, np.ones(own.shape))
    kept = shown.map(shown.share)
    np.testing.assert_allclose(kept @ [1, 1], [1, 1], atol=0.1)
    np.testing.assert_allclose(kept @ [1, -1], [0, 0], atol=0.1)


def test_an_absorption_in_several_components_is_not_predicted(scene, other, observed, rng):
    """Pixels that look alike in the reference share it by chance; the others stay as they were."""
    patches = ndimage.gaussian_filter(rng.standard_normal(observed.shape), 2)
    patches *= scene.std() / patches.std()
    narrow = np.eye(len(scene))[3][:, None, None]
    planes = [ReferencePlanes(other, np.ones(observed.shape, bool))]
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    without, found = (
        np.tensordot(
            turn.T, predict(np.tensordot(turn, y, 1), observed, planes, Model(alike=20)), 1
        )
        for y in (scene, scene + narrow * patches)
    )
    off = (found - without).std(axis=(1, 2))
    assert off[3] < 0.35 * patches.std()
    assert (np.delete(off / scene.std(axis=(1, 2)), 3) < 0.1).all()


def test_a_reference_that_shows_nothing_of_the_cube_leaves_the_fill_of_smooth(scene, observed, rng):
    noise = ReferencePlanes(rng.standard_normal((3, 48, 48)), np.ones(observed.shape, bool))
    job = Job(0, "cpu", references=(noise,))
    entries, some = np.broadcast_to(observed, scene.shape), ~observed
    one, two = (
        estimate(Cube(scene), entries, choose(name), 0.0, job).values[:, some]
        for name in ("smooth", "reference")
    )
    spread = scene.std(axis=(1, 2))[:, None]
    np.testing.assert_allclose(two / spread, one / spread, atol=1e-6)


def test_the_bands_of_500_channels_are_condensed(scene, observed, rng):
    many = np.tensordot(rng.random((500, 8)), scene, 1)
    condensed = models.components(ReferencePlanes(many, np.ones(observed.shape, bool)))
    assert len(condensed) == models.MOST


def test_what_is_like_nothing_observed_is_not_extrapolated(scene, other, observed):
    """A flare in the reference, under a gap: the cube has never shown what it would look like."""
    flare = other.copy()
    flare[:, 20:22, 30:32] += 40 * other.std(axis=(1, 2))[:, None, None]
    plain, bright = (
        predict(
            scene, observed, [ReferencePlanes(r, np.ones(observed.shape, bool))], Model(context=0)
        )
        for r in (other, flare)
    )
    limits = scene[:, observed].min(axis=1), scene[:, observed].max(axis=1)
    inside = bright[:, 20:22, 30:32].reshape(len(scene), -1).T
    span = limits[1] - limits[0]
    assert (inside > limits[0] - span).all() and (inside < limits[1] + span).all()
    elsewhere = np.ones(observed.shape, bool)
    elsewhere[20:22, 30:32] = False
    np.testing.assert_allclose(bright[:, elsewhere], plain[:, elsewhere], rtol=0.02)


# ── when it is used ──────────────────────────────────────────────────────────────────────────────


def test_a_reference_that_helps_is_used_and_its_worth_is_said(scene, other, observed, without):
    result = hydiff.fill(scene, observed, reference=other, **FAST)
    assert rmse(result, scene) < 0.6 * rmse(without, scene)
    [facts] = result.references
    assert facts["worth"] > 3 and facts["share"] == 1 and facts["bands"] == 4
    assert len(facts["worth_by_band"]) == len(scene)
    [line] = [note for note in result.notes if note.startswith("reference 1 (4 bands")]
    assert f"worth {facts['worth']:.1f} dB on hidden copies of the gaps" in line
    assert result.sigma[result.filled].mean() < without.sigma[result.filled].mean()
    np.testing.assert_array_equal(result.values[:, observed], scene[:, observed])


def test_a_reference_that_is_the_truth_gives_nearly_the_truth(scene, observed, without):
    result = hydiff.fill(scene, observed, reference=scene, **FAST)
    assert rmse(result, scene) < 0.1 * rmse(without, scene)


@pytest.mark.parametrize("wrong", ["noise", "shuffled"])
def test_a_reference_that_does_not_help_changes_nothing(scene, observed, without, rng, wrong):
    values = rng.random((5, 48, 48))
    if wrong == "shuffled":
        values = rng.permuted(scene.reshape(8, -1), axis=1).reshape(scene.shape)
    result = hydiff.fill(scene, observed, reference=values, **FAST)
    assert rmse(result, scene) <= 1.02 * rmse(without, scene)
    if result.references[0]["share"] == 0:
        np.testing.assert_array_equal(result.values, without.values)
        assert any("not used" in note for note in result.notes)


def test_a_reference_without_a_value_gives_the_bytes_of_a_fill_without(scene, observed, without):
    result = hydiff.fill(scene, observed, reference=np.full((3, 48, 48), np.nan), **FAST)
    assert result.values.tobytes() == without.values.tobytes()
    assert result.sigma.tobytes() == without.sigma.tobytes()


def test_what_is_rough_in_a_gap_is_known_from_the_reference(other, observed):
    rough = other.copy()
    rough[:, 16:28, 24:] += 3 * other.std() * (np.indices((12, 24)).sum(axis=0) % 2)
    flat, shown = (
        reference_errors.roughness((ReferencePlanes(r, np.ones(observed.shape, bool)),))
        for r in (other, rough)
    )
    part = np.s_[18:26, 28:44]
    assert shown[part].mean() > 1.5 * flat[part].mean()


def test_disagreement_is_large_where_the_place_has_changed(scene, other, observed):
    changed = other.copy()
    changed[:, 30:46, 24:44] = other[:, 30:46, 24:44][:, ::-1, ::-1]
    entries = np.broadcast_to(observed, scene.shape)
    apart = reference_errors.disagreement(
        Cube(scene), entries, [ReferencePlanes(changed, np.ones(observed.shape, bool))]
    )
    assert apart[30:46, 24:44].mean() > 1.5 * apart[:14].mean()


def test_where_a_reference_sees_nothing_the_fill_is_the_one_without(
    scene, other, observed, without
):
    half = other.copy()
    half[:, :, 30:] = np.nan
    result = hydiff.fill(scene, observed, reference=half, **FAST)
    assert 0 < result.references[0]["share"] < 1
    far = np.s_[:, :, 31:]
    np.testing.assert_array_equal(result.values[far], without.values[far])
    near = ~observed.copy()
    near[:, 30:] = False
    off, before = (np.square(r.values - scene)[:, near].mean() for r in (result, without))
    assert off < 0.5 * before


def test_a_feature_that_the_reference_does_not_have_is_filled_as_without(
    scene, other, observed, without, rng
):
    """A band of its own, unlike all others: it is no worse than without a reference."""
    own = ndimage.gaussian_filter(rng.standard_normal((48, 48)), 3) * 4000 + 3000
    cube = np.concatenate([scene, own[None]])
    one = hydiff.fill(cube, observed, **FAST)
    two = hydiff.fill(cube, observed, reference=other, **FAST)
    off = [np.sqrt(((r.values - cube)[-1][~observed] ** 2).mean()) for r in (one, two)]
    assert off[1] <= 1.1 * off[0]


def test_the_recipe_of_a_fill_repeats_it(scene, other, observed):
    first = hydiff.fill(scene, observed, reference=other, **FAST)
    recipe = json.loads(json.dumps(first.recipe))
    again = hydiff.fill(scene, observed, reference=other, recipe=recipe, **FAST)
    np.testing.assert_array_equal(again.values, first.values)
    np.testing.assert_array_equal(again.sigma, first.sigma)
    bare = hydiff.fill(scene, observed, recipe=recipe, **FAST)
    assert any("had another image of the place" in note for note in bare.notes)


def test_noise_and_gaps_that_differ_by_band_can_be_filled_with_a_reference(scene, other, rng):
    observed = rng.random(scene.shape) > 0.2
    observed[:, 10:20, 10:20] = False
    noisy = scene + 20 * rng.standard_normal(scene.shape)
    result = hydiff.fill(noisy, observed, sigma_y=20.0, reference=other, **FAST)
    assert np.isfinite(result.values).all() and result.references[0]["worth"] is not None


def test_the_errors_of_a_fill_with_a_reference_are_as_large_as_said(scene, other, observed):
    result = hydiff.fill(scene, observed, reference=other, **FAST)
    z = np.abs(result.values - scene)[result.filled] / result.sigma[result.filled]
    assert 0.6 < (z < 1.2816).mean() < 0.95


def test_where_references_serve_alone_only_the_default_is_computed_beside(scene, other, observed):
    """Nothing of the fill without a reference is left: it makes no difference what it was."""
    recipe = json.loads(json.dumps(hydiff.fill(scene, observed, reference=other, **FAST).recipe))
    own = recipe["with_reference"]
    weights = np.array(own["weights"])
    weights[0] = 0
    own["weights"] = (weights / weights.sum(axis=0)).tolist()
    own["serves"] = [True] * len(scene)
    fills = []
    for share in (0.0, 1.0):
        blend = np.zeros_like(recipe["weights"])
        blend[0], blend[1] = 1 - share, share
        recipe["weights"] = blend.tolist()
        fills.append(hydiff.fill(scene, observed, reference=other, recipe=recipe, **FAST))
    np.testing.assert_array_equal(fills[0].values, fills[1].values)
    np.testing.assert_array_equal(fills[0].sigma, fills[1].sigma)
    assert np.isfinite(fills[0].sigma[fills[0].filled]).all()
    assert fills[0].references[0]["share"] == 1


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def test_one_band_is_enough_and_a_constant_one_is_left_out(scene, other, observed, without):
    flat = np.concatenate([other[:1], np.full((1, 48, 48), 3.0)])
    result = hydiff.fill(scene, observed, reference=flat, **FAST)
    assert (result.references[0]["bands"], result.references[0]["bands_left_out"]) == (1, 1)
    assert rmse(result, scene) < rmse(without, scene)


def refused(scene, observed, reference, match, **options):
    with pytest.raises(HydiffError, match=match) as raised:
        hydiff.fill(scene, observed, reference=reference, **{**FAST, **options})
    assert "\n" not in str(raised.value)


def test_what_cannot_be_a_reference_is_refused_in_a_line(scene, other, observed):
    refused(scene, observed, np.full(other.shape, 2.0), "none of its 4 bands holds two different")
    refused(np.where(observed, scene, np.nan), None, np.where(observed, scene, np.nan), "itself")
    refused(scene, observed, other, "goes with the method 'auto'", method="smooth", budget="normal")
    refused(scene, observed, other, "does not say its date", reference_max_days=3)
    refused(scene, observed, other, "expected pixels, 0 or more", reference_max_shift=-1)
    refused(scene, observed, (), "give `reference=`", method="reference", budget="normal")
    far = on_map(other, 30.0, (700_000.0, 4_000_000.0))
    refused(on_map(scene, 30.0), observed, far, "covers no pixel of the cube")
    refused(on_map(scene, 30.0), observed, replace(far, crs=None), "without a coordinate reference")
    degrees = Cube(other, crs=CRS.from_epsg(4326).to_wkt())
    refused(on_map(scene, 30.0), observed, degrees, "no transform, so that its place")


def test_of_500_bands_with_empty_ones_the_others_are_used(scene, observed, rng):
    many = np.tensordot(rng.random((500, 8)), scene, 1)
    many[7] = np.nan
    entries = np.broadcast_to(observed, scene.shape)
    reference = prepare(Cube(many), Cube(scene), entries, "many.tif", 5.0)
    assert (reference.facts["bands"], reference.facts["bands_left_out"]) == (499, 1)
    assert reference.planes.observed.all() and reference.likeness > 0.99


def test_thirty_times_coarser_is_no_reason_to_fail(scene, other, observed, without):
    coarse = other.reshape(4, 2, 24, 2, 24).mean(axis=(2, 4))
    reference = on_map(coarse, 720.0)
    result = hydiff.fill(on_map(scene, 30.0), observed, reference=reference, **FAST)
    assert result.references[0]["grid"] == "interpolated"
    assert rmse(result, scene) <= 1.02 * rmse(without, scene)


def test_dates_are_read_from_files_and_their_names():
    cube = Cube(np.zeros((1, 2, 2)), attrs={"acquisition time": "2003-02-06T10:11:12Z"})
    assert date_of(cube).isoformat() == "2003-02-06"
    assert date_of(replace(cube, attrs={"Date": "99999999"})) is None


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("EMIT_L2A_RFL_001_20220827T060753_2223904_012.nc", "2022-08-27"),
        ("ang20160910t185702_2rdn_img", "2016-09-10"),
        ("PRS_L2D_STD_20210615102030_20210615102034_0001.he5", "2021-06-15"),  # with hours
        ("LC08_201913011_20200615.tif", "2020-06-15"),  # the first digits are no date
        ("MOD09GA.A2012101.h18v04.061.2012102123456.hdf", None),  # a day of the year
        ("scene.tif", None),
    ],
)
def test_dates_are_read_from_the_names_of_products(name, day):
    found = date_of(Cube(np.zeros((1, 2, 2)), path=Path(name)))
    assert (found and found.isoformat()) == day


def test_days_apart_are_counted_said_and_refused(scene, other, observed):
    cube, late = (
        Cube(values, attrs={"acquisition date": day})
        for values, day in ((scene, "2003-01-01"), (other, "2003-03-12"))
    )
    entries = np.broadcast_to(observed, scene.shape)
    reference = prepare(late, cube, entries, "late.tif", 5.0)
    assert reference.facts["days"] == 70 and "70 days apart" in str(reference)
    with pytest.raises(BadValue, match="70 days apart from the cube, at most 30"):
        prepare(late, cube, entries, "late.tif", 5.0, 30)


def test_angles_apart_are_counted_and_said(scene, other, observed):
    high, low = (
        Cube(scene, attrs={"sun elevation": "52.5 deg", "sun_azimuth": 350.0}),
        Cube(other, attrs={"Solar_Zenith_Angle": 60.0, "sun azimuth": 5.0, "view zenith": 3}),
    )
    assert angles_between(low, high) == {"sun zenith": 22.5, "sun azimuth": 15.0}
    reference = prepare(low, high, np.broadcast_to(observed, scene.shape), "low.tif", 5.0)
    assert "sun zenith 22° apart, sun azimuth 15° apart" in str(reference)


# ── the best few ─────────────────────────────────────────────────────────────────────────────────


def test_references_are_taken_in_the_order_of_what_they_add():
    left, right, all_of = (np.array([c == "1" for c in s]) for s in ("1100", "0011", "1111"))
    seen, likeness = [all_of, left, left, right], [0.5, 0.9, 0.8, 0.3]
    # the whole at 0.5 first; then the left at 0.9; the right adds nothing to 0.5
    assert best_few(seen, likeness, 2) == [0, 1]
    assert best_few(seen, likeness, 9) == [0, 1, 2, 3]
    assert best_few([left, right], [0.4, 0.4], 1) == [0]
    # the left is seen at 0.9: at 0.8 it adds nothing more, and the right comes first
    assert best_few([left, left, right], [0.9, 0.8, 0.3], 3) == [0, 2, 1]


def test_of_a_folder_of_dates_the_best_few_are_taken(tmp_path, scene, other, observed, rng):
    for day in range(1, 6):
        noisy = other + 0.5 * day * other.std() * rng.standard_normal(other.shape)
        hydiff.write(Cube(noisy), tmp_path / f"2003020{day}.npy")
    hydiff.write(Cube(other[:, :20]), tmp_path / "20030209.npy")
    (tmp_path / "notes.txt").write_text("no image")
    cube, entries = Cube(scene), np.broadcast_to(observed, scene.shape)
    place = Place(cube, entries, cube, EVERYWHERE, ~observed)
    references, notes = taken(list(sources([tmp_path], (), cube_and_mask)), place, 5.0)
    names = [one.name for one in references]
    assert names == [f"2003020{day}.npy" for day in range(1, 5)]
    assert "left out: reference 20030209.npy has 20 × 48 pixels" in notes[0]
    assert notes[1].startswith("of 5 references those that see most of the gaps, best: 20030201")


def test_a_time_axis_is_a_folder_of_dates(other, tmp_path):
    xarray = pytest.importorskip("xarray")
    stack = xarray.DataArray(
        np.stack([other, other[:, ::-1], other]),
        dims=("time", "band", "y", "x"),
        coords={"time": np.array(["2003-02-06", "2003-03-10", "2003-05-01"], "M8[ns]")},
    )
    stack.to_dataset(name="dn").to_zarr(tmp_path / "dates.zarr", consolidated=False)
    stack.to_dataset(name="dn").to_netcdf(tmp_path / "dates.nc", engine="h5netcdf")
    for one in (stack, tmp_path / "dates.zarr", str(tmp_path / "dates.nc")):
        given = list(sources([one], (), cube_and_mask))
        assert [image.name for image in given] == ["2003-02-06", "2003-03-10", "2003-05-01"]
        assert [date_of(image.cube).day for image in given] == [6, 10, 1]
        np.testing.assert_array_equal(given[1].cube.load().values, other[:, ::-1])
    two = xarray.Dataset({"dn": stack, "clouds": stack})
    two.to_netcdf(tmp_path / "two.nc", engine="h5netcdf")
    with pytest.raises(BadValue, match="dn, clouds have a time axis; keep one"):
        list(sources([tmp_path / "two.nc"], (), cube_and_mask))


# ── its own gaps ─────────────────────────────────────────────────────────────────────────────────


def test_clouds_of_its_quality_layer_and_what_lies_around_are_not_used(tmp_path, rng):
    clouds = np.zeros((20, 24), bool)
    clouds[8:10, 8:10] = True
    values = rng.integers(100, 4000, (12, 20, 24)).astype("i2")
    reference = hydiff.read(products.enmap(tmp_path / "enmap", values, cloud=clouds))
    used = own_gaps.measured_in(reference.load())
    around = ndimage.binary_dilation(clouds, iterations=3)
    assert not used[:, around].any() and used[:, ~around].any(axis=0).all()


def test_a_mask_of_a_reference_counts_as_its_clouds(files, scene, observed, without):
    missing = np.zeros(observed.shape, bool)
    missing[:, 30:] = True
    np.savez(files / "clouds.npz", missing=missing)
    command = ["fill", str(files / "scene.tif"), "-o", str(files / "out.tif"), "--budget", "fast"]
    command += ["--reference", str(files / "20030206.tif"), "--device", "cpu"]
    mask = ["--reference-missing", str(files / "clouds.npz")]
    done = CliRunner().invoke(app, [*command, *mask, "--outside", "fill"])
    assert done.exit_code == 0, done.output
    flags = hydiff.read(files / "out.tif")
    far = np.s_[:, :, 30 - 3 :]
    np.testing.assert_allclose(np.asarray(flags.values)[far], without.values[far], rtol=1e-4)
    record = json.loads((files / "out.tif.fill.json").read_text())
    assert record["references"][0]["covers"] == pytest.approx(27 / 48, abs=1e-3)
    twice = CliRunner().invoke(app, [*command, *mask, *mask, "--overwrite"])
    assert "2 masks for 1 references" in str(twice.exception)


# ── from file to file ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def files(tmp_path, scene, other, observed):
    gaps = np.where(observed, scene, np.nan).astype(np.float32)
    hydiff.write(on_map(gaps, 30.0), tmp_path / "scene.tif")
    hydiff.write(on_map(other.astype(np.float32), 30.0), tmp_path / "20030206.tif")
    return tmp_path


def test_the_command_line_fills_from_a_file_and_records_it(files):
    command = ["fill", str(files / "scene.tif"), "-o", str(files / "out.tif")]
    command += ["--reference", str(files / "20030206.tif"), "--budget", "fast", "--device", "cpu"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "reference 20030206.tif (2003-02-06, 4 bands" in " ".join(done.output.split())
    record = json.loads((files / "out.tif.fill.json").read_text())
    [facts] = record["references"]
    assert facts["path"].endswith("20030206.tif") and len(facts["sha256"]) == 64
    assert {"date", "grid", "shift", "worth", "share"} <= facts.keys()
    again = CliRunner().invoke(app, [*command, "--resume"])
    assert again.exit_code == 0 and "nothing to do" in again.output


def test_by_tiles_a_scene_is_filled_from_a_reference_as_well(files, scene, without):
    """Of any width: masks are kept eight pixels to a byte."""
    part = hydiff.read(files / "scene.tif").window(cols=slice(30))
    hydiff.write(part, files / "part.tif")
    command = ["fill", str(files / "part.tif"), "-o", str(files / "out.tif"), "--tile", "32"]
    command += ["--reference", str(files / "20030206.tif"), "--budget", "fast", "--device", "cpu"]
    done = CliRunner().invoke(app, [*command, "--outside", "fill"])
    assert done.exit_code == 0, done.output
    there = without.filled[:, :, :30]
    filled, plain = np.asarray(hydiff.read(files / "out.tif").values), without.values[:, :, :30]
    after, before = (np.sqrt(((v - scene[:, :, :30])[there] ** 2).mean()) for v in (filled, plain))
    assert after < 0.7 * before
    record = json.loads((files / "out.tif.fill.json").read_text())
    [facts] = record["references"]
    assert facts["share"] == 1 and facts["worth"] > 3 and record["tiles"]["filled"] > 1
    assert facts["words"] in record["notes"]


def test_an_archive_is_filled_from_a_reference(tmp_path, scene, other, observed):
    """Two small files, both at the place of the reference."""
    for name, gain in (("a.tif", 1.0), ("b.tif", 1.1)):
        gaps = np.where(observed, gain * scene, np.nan)[:4, 12:36, :24].astype(np.float32)
        hydiff.write(Cube(gaps), tmp_path / name)
    hydiff.write(Cube(other[:, 12:36, :24].astype(np.float32)), tmp_path / "20030206.tif")
    command = [
        "fill",
        str(tmp_path / "a.tif"),
        str(tmp_path / "b.tif"),
        "-o",
        str(tmp_path / "out"),
    ]
    command += ["--reference", str(tmp_path / "20030206.tif"), "--budget", "fast"]
    done = CliRunner().invoke(app, [*command, "--device", "cpu", "--outside", "fill"])
    assert done.exit_code == 0, done.output
    for name in ("a.tif", "b.tif"):
        record = json.loads((tmp_path / "out" / f"{name}.fill.json").read_text())
        [facts] = record["references"]
        assert facts["name"] == "20030206.tif" and facts["worth"] is not None


def test_an_output_is_never_a_reference(files):
    command = ["fill", str(files / "scene.tif"), "-o", str(files / "20030206.tif"), "--overwrite"]
    before = (files / "20030206.tif").read_bytes()
    done = CliRunner().invoke(app, [*command, "--reference", str(files / "20030206.tif")])
    assert isinstance(done.exception, OutputError)
    assert (files / "20030206.tif").read_bytes() == before


# ── the benchmark ────────────────────────────────────────────────────────────────────────────────


def test_pairs_of_the_benchmark_have_one_size(data_dir):
    for name in scenes.PAIRS:
        truth, reference = scenes.pair(name)
        assert truth.shape[1:] == reference.shape[1:] and truth.shape[2] == scenes.PAIRS[name]


def test_a_real_pair_gains_from_its_other_date(data_dir):
    """Taizhou: ETM+ of 2003 from 2000."""
    truth, reference = (v[:, 40:104, 40:104] for v in scenes.pair("taizhou"))
    observed = np.ones(truth.shape[1:], bool)
    observed[20:44] = False
    one = hydiff.fill(truth, observed, **FAST)
    two = hydiff.fill(truth, observed, reference=reference, **FAST)
    assert rmse(two, truth) < 0.9 * rmse(one, truth)


def test_where_too_little_is_observed_no_reference_is_tried():
    assert references.FEWEST >= 2
    cube = np.arange(3 * 6 * 6, dtype=float).reshape(3, 6, 6)
    observed = np.ones((6, 6), bool)
    observed[2:4, 2:4] = False
    result = hydiff.fill(cube, observed, reference=cube**2, **FAST)
    assert np.isfinite(result.values).all() and result.references[0]["share"] == 0


def reference_recipe(scene, **more):
    """Of references that serve all but the last band, without anything of the fill without them."""
    parts = np.zeros((2, D, BAND_GROUPS))
    parts[1] = 1.0
    serves = tuple(band < len(scene) - 1 for band in range(len(scene)))
    own = {"why": "", "worth": 1.0, "by_band": (1.0,) * len(scene), "serves": serves}
    tried = (Tried("its steps", "reference", {"steps": True}),)
    return ReferenceRecipe(tried, parts.tolist(), Errors(), used=True, **own | more)


def test_the_default_stands_in_only_for_bands_in_which_it_does_as_well(scene, other, observed):
    entries = np.broadcast_to(observed, scene.shape)
    planes = ReferencePlanes(other, np.ones(observed.shape, bool))
    window = TrialWindow(as_cube(scene), entries, ~entries, references=(planes,))
    half = ReferencePlanes(other, np.arange(48)[:, None] < 20 + np.zeros(observed.shape, int))
    blind = window._replace(references=(half,))
    assert not references.spares(reference_recipe(scene), window)
    does = reference_recipe(scene, default_elsewhere=True)
    assert references.spares(does, window)
    assert not references.spares(does, blind)  # pixels that it does not see are filled as without
    assert not references.spares(replace(does, used=False), window)
    assert references.spares(reference_recipe(scene, serves=(True,) * len(scene)), window)
    assert not references.serves_all(does, window)


@pytest.mark.parametrize("method", ["similar-pixels", "matched-copy"])
def test_a_reference_that_sees_nothing_of_what_was_measured_fills_nothing(
    scene, other, observed, method
):
    """It covers the gap alone, so that there is nothing to relate the two by."""
    with_gap = as_cube(np.where(observed, scene, np.nan))
    entries = np.broadcast_to(observed, scene.shape)
    job = Job(0, "cpu")._replace(references=(ReferencePlanes(other, ~observed),))
    found = estimate(with_gap, entries, choose(method), 0.0, job)
    assert np.isnan(found.values[~entries]).all()
    np.testing.assert_allclose(found.values[entries], scene[entries])


@pytest.mark.parametrize("settings", [{"window": 1}, {"count": 0}])
def test_a_window_without_neighbours_is_refused(settings):
    with pytest.raises(BadValue, match="expected at least"):
        choose("similar-pixels", None, settings)
