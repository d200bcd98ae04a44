"""Detectors: silent on undamaged scenes, and they find what is put in.

The rates on real scenes were measured on the development data; the bounds here are a little
looser.  Noise sigma of a band: 1.4826 · median |v - mean of its left and right neighbour|.
"""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from hydiff.errors import ShapeMismatch
from hydiff.gaps.detect import KINDS, detect
from hydiff.gaps.undeclared import VOID_RANGE, VOID_TAIL, _is_void, undeclared

SCENES = {  # entries that may be suspected in an undamaged scene
    "abu_airport-1_96": 0,
    "abu_airport-4_96": 0,
    "abu_urban-1_96": 5,
    "cave_feathers_144": 0,
    "cave_toys_144": 0,
    "chikusei_36": 0,
    "chikusei_36_img3": 0,
    "chikusei_36_img4": 0,
    "enmap_potsdam_64x96": 0,
    "jasper_96": 0,
    "paris_hyperion_72": 0,
    "wdc10_144": 0,
}


def load(data_dir, name):
    with np.load(data_dir / "dev" / f"{name}.npz") as scene:
        return np.ascontiguousarray(scene["cube"].transpose(2, 0, 1))


@pytest.fixture(scope="module")
def pines(data_dir):
    """(200, 144, 144) and what is suspected in it as it is."""
    cube = load(data_dir, "indian_pines_144").astype(np.int32)
    return cube, suspected(detect(cube, everywhere(cube)), cube.shape)


@pytest.fixture(scope="module")
def scene():
    """(30, 60, 70) int16: smooth maps and spectra, white noise of sigma 5, values 1000 to 3000."""
    rng = np.random.default_rng(1)
    maps = gaussian_filter(rng.standard_normal((4, 60, 70)), (0, 4, 4)) * 8
    spectra = gaussian_filter(rng.standard_normal((30, 4)), (3, 0))
    clean = 2000 + 500 * np.tensordot(spectra, maps, 1)
    return np.rint(clean + rng.normal(0, 5, clean.shape)).astype(np.int16)


def everywhere(cube):
    return np.ones(cube.shape[1:], bool)


def suspected(suggestions, shape, *kinds):
    flags = np.zeros(shape, bool)
    for s in suggestions:
        if not kinds or s.kind in kinds:
            flags |= s.missing
    return flags


def noise(cube):
    bend = cube[:, :, 1:-1] - (cube[:, :, 2:] + cube[:, :, :-2].astype(float)) / 2
    return 1.4826 * np.median(np.abs(bend), axis=(1, 2))


def some_columns(cube, n, rng):
    """n pairs of band and column, with the entries they cover."""
    picks = rng.choice(cube.shape[0] * cube.shape[2], n, replace=False)
    pairs = [divmod(int(k), cube.shape[2]) for k in picks]
    truth = np.zeros(cube.shape, bool)
    for band, column in pairs:
        truth[band, :, column] = True
    return pairs, truth


# --- laws -------------------------------------------------------------------------------------


def test_an_undamaged_scene_is_not_suspected(scene):
    assert detect(scene, everywhere(scene)) == []


def damaged(scene):
    """One of each kind of damage; returns the cube and the damage by kind."""
    cube, truth = scene.astype(np.int32), {}

    def spoil(kind, where, value):
        truth.setdefault(kind, np.zeros(cube.shape, bool))[where] = True
        cube[where] = value

    spoil("dead lines", np.s_[14:19, 10], 1234)
    spoil("dead lines", np.s_[5:9, 33], cube[5:9, 32])
    spoil("dead columns", np.s_[4, :, 20], 2000)
    spoil("stripes", np.s_[12, :, 41], cube[12, :, 41] + 80)
    spoil("constant pixels", np.s_[:, 50:54, 50:60], 77)
    spoil("outlier pixels", np.s_[20, 25, 60], 2900)
    spoil("fill value", np.s_[25:28, 15:18, 5:10], -9999)
    bright = np.zeros(cube.shape, bool)
    bright[23] = cube[23] >= np.quantile(cube[23], 0.97)
    spoil("saturated pixels", bright, int(cube[bright].min()))
    return cube, truth


def test_each_kind_of_damage_is_found_and_named(scene):
    cube, truth = damaged(scene)
    found = {s.kind: s for s in detect(cube, everywhere(cube))}
    assert set(found) == set(truth) == set(KINDS)
    for kind, where in truth.items():
        assert found[kind].missing[where].all(), kind
    everything = suspected(found.values(), cube.shape)
    assert not (everything & ~np.any(list(truth.values()), axis=0)).any()
    messages = " ".join(s.message for s in found.values())
    for part in (
        "line 10 is constant in some bands of 14-18",
        "line 33 is equal",
        "column 20",
        "-9999",
    ):
        assert part in messages


def test_only_observed_entries_of_good_bands_are_judged(scene):
    cube, truth = damaged(scene)
    declared = ~np.any(list(truth.values()), axis=0)
    assert detect(cube, declared) == []
    good = np.arange(len(cube)) % 2 == 0
    for s in detect(cube, everywhere(cube), good):
        assert not s.missing[~good].any()
        assert s.missing.dtype == bool and s.missing.shape == cube.shape and s.missing.any()
    assert detect(cube, np.zeros(cube.shape, bool)) == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_and_dtype_do_not_matter(scene, dtype):
    cube, _ = damaged(scene)
    plain = detect(cube, everywhere(cube))
    scaled = detect((cube * 1e-4).astype(dtype), everywhere(cube))
    assert [s.kind for s in scaled] == [s.kind for s in plain]
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(a.missing, b.missing)


def test_nan_is_never_judged_and_does_no_harm(scene):
    cube, _ = damaged(scene)
    floats = cube.astype(np.float64)
    floats[:, 40:45, 30:50] = np.nan
    floats[7] = np.nan
    found = detect(floats, everywhere(floats))
    assert {s.kind for s in found} == set(KINDS)
    assert not (suspected(found, floats.shape) & np.isnan(floats)).any()


def test_values_are_left_alone(scene):
    cube, _ = damaged(scene)
    observed = everywhere(cube)
    before = cube.copy(), observed.copy()
    detect(cube, observed)
    np.testing.assert_array_equal(cube, before[0])
    np.testing.assert_array_equal(observed, before[1])


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 8, 8), (1, 40, 40), (40, 1, 30), (40, 30, 1)])
def test_small_cubes_are_judged_or_passed_over(shape):
    cube = np.random.default_rng(0).integers(0, 4000, shape)
    assert detect(cube, everywhere(cube)) == []
    assert detect(np.zeros(shape), np.ones(shape, bool)) == [], "flat: nothing stands out"


def test_what_adjacent_bands_share_is_part_of_the_scene(scene):
    cube = scene.astype(np.int32)
    cube[:, :, 30] += 300  # a straight road
    cube[:, 20, 10] += 800  # a bright roof
    assert detect(cube, everywhere(cube)) == []


def test_a_dark_background_is_no_dead_line():
    rng = np.random.default_rng(2)
    cube = rng.poisson(40 * np.linspace(0, 1, 80)[None, :, None] ** 4 * np.ones((10, 80, 80)))
    assert (cube.max(axis=2) == 0).any(), "the upper lines are all zero in some bands"
    assert not suspected(detect(cube, everywhere(cube)), cube.shape, "dead lines").any()


@pytest.mark.parametrize("last", ["line", "column"])
def test_dead_lines_and_columns_may_cross(scene, last):
    cube = scene.copy()
    cube[:, 17] = 1500
    cube[3, :, 40] = 1600
    if last == "line":
        cube[:, 17] = 1500
    found = detect(cube, everywhere(cube))
    lines = suspected(found, cube.shape, "dead lines")
    assert lines[:, 17].all() and lines.sum() == lines[:, 17].size
    assert suspected(found, cube.shape)[3, :, 40].all()
    assert found[0].message == "line 17 is constant in all bands"


@pytest.mark.parametrize("fills", [(-9999,), (-32768,), (0,), (-9999, -9998, -9997), (65535,)])
def test_fill_values_are_found(scene, fills):
    cube, rng = scene.astype(np.int32), np.random.default_rng(0)
    where = rng.random(cube.shape) < 0.01
    cube[where] = rng.choice(fills, where.sum())
    found = suspected(detect(cube, everywhere(cube)), cube.shape, "fill value")
    np.testing.assert_array_equal(found, where)


def test_saturation_and_low_data_are_no_fill_values(scene):
    cube = np.clip(scene.astype(np.int32), 1900, 2100)
    assert not suspected(detect(cube, everywhere(cube)), cube.shape, "fill value").any()


def test_frames_are_counted(scene):
    cube = np.concatenate([scene, scene], axis=1).astype(np.int32)
    cube[:, 40:72] = 1500
    found = next(s for s in detect(cube, everywhere(cube)) if s.kind == "dead lines")
    assert "lines 40-71" in found.message and "(1 frame of 32 lines)" in found.message


@pytest.mark.parametrize("top", [np.inf, 2100, 2250])
def test_saturation_is_a_plateau_at_the_top(scene, top):
    cube = np.minimum(scene, top)
    expected = (cube == top) & ((cube == top).sum(axis=(1, 2), keepdims=True) >= 10)
    found = suspected(detect(cube, everywhere(cube)), cube.shape, "saturated pixels")
    assert not (found & ~(cube == top)).any()
    assert found[expected].mean() > 0.95 if expected.any() else not found.any()


def test_a_fringe_with_the_spectrum_of_its_corner_is_found(scene):
    cube = scene.copy()
    cube[:, :6, :5] = cube[:, :1, :1]
    found = suspected(detect(cube, everywhere(cube)), cube.shape, "constant pixels")
    assert found[:, :6, :5].all() and found.sum() == 30 * len(cube)


def test_shapes_must_fit(scene):
    with pytest.raises(ShapeMismatch, match="observed"):
        detect(scene, np.ones((60, 71), bool))


# --- real scenes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
def test_undamaged_scenes_raise_almost_no_alarm(data_dir, name):
    cube = load(data_dir, name)
    assert suspected(detect(cube, everywhere(cube)), cube.shape).sum() <= SCENES[name]


def test_an_undamaged_file_raises_no_alarm(data_dir):
    cube = np.fromfile(data_dir / "native" / "AV_mastercal_testdata.bsq", "<i2")
    assert detect(cube.reshape(194, 50, 50), np.ones((50, 50), bool)) == []


def test_indian_pines_holds_true_dropouts(pines):
    """About 1100 of 4 million entries lie some 900 counts off all neighbours, in one band only."""
    cube, damage = pines
    assert 900 < damage.sum() < 1300
    band, row, col = np.nonzero(damage[:, 1:-1, 1:-1])
    window = np.array([cube[band, row + i, col + j] for i in range(3) for j in range(3)])
    around = np.delete(window, 4, axis=0)
    assert np.median(np.abs(window[4] - np.median(around, axis=0))) > 600


def rates(pines, cube, truth, *kinds):
    """Share of the damage that these kinds name, and how much else is newly suspected."""
    found = detect(cube, everywhere(cube))
    new = suspected(found, cube.shape) & ~truth & ~pines[1]
    return suspected(found, cube.shape, *kinds)[truth].mean(), int(new.sum())


def test_dead_lines_on_a_real_scene(pines):
    cube = pines[0].copy()
    truth = np.zeros(cube.shape, bool)
    truth[:, [20, 77, 100]] = truth[30:60, 50] = True
    cube[:, [20, 77]] = cube[30:60, 50] = 0
    cube[:, 100] = cube[:, 99]
    share, false = rates(pines, cube, truth, "dead lines")
    assert share == 1 and false <= 60, "dropouts beside the lines come to light"


@pytest.mark.parametrize(("damage", "least"), [("constant", 1.0), ("garbage", 0.9)])
def test_dead_columns_on_a_real_scene(pines, damage, least):
    cube, rng = pines[0].copy(), np.random.default_rng(0)
    low, middle, high = np.quantile(cube, [0.01, 0.5, 0.99], axis=(1, 2)).astype(int)
    noisy = noise(cube) > (high - low) / 10  # garbage cannot be distinguished from such bands
    pairs, truth = some_columns(cube, 100, rng)
    for b, column in pairs:
        constant = damage == "constant"
        cube[b, :, column] = middle[b] if constant else rng.integers(low[b], high[b], 144)
    truth[noisy] = False
    damage = pines[1] | noisy[:, None, None]
    share, false = rates((cube, damage), cube, truth, "dead columns")
    assert share >= least and false <= 300, "a column between two bad ones may be taken with them"


@pytest.mark.parametrize(("sigmas", "least"), [(3, 0.9), (5, 0.97)])
def test_stripes_on_a_real_scene(pines, sigmas, least):
    cube, sigma = pines[0].copy(), noise(pines[0])
    pairs, truth = some_columns(cube, 100, np.random.default_rng(0))
    for band, column in pairs:
        cube[band, :, column] += round(sigmas * sigma[band])
    share, false = rates(pines, cube, truth, "stripes")
    assert share >= least and false <= 50


def test_outliers_of_20_sigma_on_a_real_scene(pines):
    cube, rng = pines[0].copy(), np.random.default_rng(0)
    picks = rng.choice(cube.size, 2000, replace=False)
    sigma = noise(cube)[picks // (144 * 144)]
    truth = np.zeros(cube.shape, bool)
    truth.flat[picks] = True
    cube.flat[picks] += np.rint(20 * sigma * rng.choice([-1, 1], 2000)).astype(np.int32)
    share, false = rates(pines, cube, truth, "outlier pixels")
    assert share >= 0.93 and false <= 20


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_a_void_is_measured_from_the_lowest_values_as_if_all_were_sorted(rng, dtype):
    for void in (1, 3, 10, 100, 1000):
        rest = (rng.exponential(300, 5000) + 40).astype(dtype)
        nearest = float(rest.min())
        tail, (low, high) = np.sort(rest)[20] - nearest, np.quantile(rest, [0.01, 0.99])
        wide = void > VOID_TAIL * tail and void > VOID_RANGE * (high - low)
        assert _is_void(nearest - void, rest, np.sort(rest), rest) == wide
        lowest = np.sort(rest)[:40]
        assert _is_void(nearest - void, rest, np.sort(rest), lowest) == wide


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("fills", [(), (3,), (3, 4, 5), (999,), (3, 999, 998)])
def test_undeclared_values_are_found_among_so_many_others(rng, dtype, fills):
    """Only the entries near both ends are looked through; the law is that of all of them."""
    data = (rng.normal(size=60_000) * 10 + 130).clip(60, 200).astype(dtype)
    for value in fills:
        data[rng.choice(len(data), 12, replace=False)] = value
    assert undeclared(data) == [float(v) for v in fills]


def test_nearly_all_values_may_be_undeclared():
    data = np.full(200_000, -9999.0)
    data[1:14:2] = range(7)  # none of which is in a sample of the data
    assert undeclared(data) == [-9999.0]
