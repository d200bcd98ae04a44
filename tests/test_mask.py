"""Masks: laws and brute-force oracles of their geometry, the census, the simulated kinds."""

import json
from itertools import product
from math import dist, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.io import loadmat

import command
from hydiff.cube import Cube
from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.gaps import rule
from hydiff.gaps.census import census, ranges
from hydiff.gaps.mask import (
    DEFAULT_MISSING,
    MASKS,
    PUBLISHED,
    band_groups,
    columns_needed,
    make_mask,
    outside,
    shared,
    thickness,
)

planes = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(lambda s: arrays(bool, s))
cubes = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)).flatmap(
    lambda s: arrays(bool, s)
)
unhurried = settings(deadline=None)  # times vary with the machine's load
SYMMETRIES = [lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a.T]


# --- geometry: oracles with one loop per pixel --------------------------------------------------


def outside_by_walking(missing):
    """From every missing pixel, walk both ways along four lines until a pixel is observed."""

    def meets(r, c, down, right):
        while 0 <= r < missing.shape[0] and 0 <= c < missing.shape[1]:
            if not missing[r, c]:
                return True
            r, c = r + down, c + right
        return False

    def is_outside(r, c):
        lines = [(0, 1), (1, 0), (1, 1), (1, -1)]
        return not any(meets(r, c, i, j) and meets(r, c, -i, -j) for i, j in lines)

    flags = [missing[p] and is_outside(*p) for p in np.ndindex(missing.shape)]
    return np.array(flags, bool).reshape(missing.shape)


def thickness_by_discs(missing):
    """Try every disc centred on a pixel, or between pixels, against every pixel."""
    rows, cols = missing.shape
    nodes = list(product(np.arange(0, rows - 0.5, 0.5), np.arange(0, cols - 0.5, 0.5)))

    def observed(node):
        around = product(*[{floor(x), floor(x + 0.5)} for x in node])
        return not any(missing[p] for p in around)

    seen = [n for n in nodes if observed(n)]
    out = np.zeros(missing.shape)
    for centre in nodes:
        width = floor(2 * min(dist(centre, s) for s in seen) - 1 + 1e-9)
        for pixel in np.ndindex(missing.shape):
            if missing[pixel] and dist(centre, pixel) <= width / 2:
                out[pixel] = max(out[pixel], width)
    return out


@unhurried
@given(planes)
def test_outside_equals_walking(missing):
    np.testing.assert_array_equal(outside(missing), outside_by_walking(missing))


@unhurried
@given(planes, st.sampled_from(SYMMETRIES))
def test_outside_turns_with_the_image(missing, turn):
    np.testing.assert_array_equal(outside(turn(missing)), turn(outside(missing)))


@unhurried
@given(planes, st.data())
def test_one_more_observed_pixel_puts_none_outside(missing, data):
    less = missing & data.draw(arrays(bool, missing.shape))
    assert not (outside(less) & ~outside(missing)).any()


def test_outside_of_a_border_and_of_a_corner():
    missing = np.zeros((9, 9), bool)
    missing[:, :2] = missing[3:6, 5:7] = True
    assert outside(missing)[1:-1, 0].all(), "one side only"
    assert not outside(missing)[3:6, 5:7].any(), "enclosed"


def outside_by_counting(observed, good, detectors):
    """An entry lies outside if no line joins observed ones across it in its band, unless most good
    bands with data measured its pixel, some before and some after its band; by detector."""
    out = np.zeros(observed.shape, bool)
    usable = good & observed.any(axis=(1, 2))
    for band in np.flatnonzero(observed.any(axis=(1, 2))):
        members = [b for b in np.flatnonzero(usable) if detectors[b] == detectors[band]]
        for r, c in np.argwhere(outside_by_walking(~observed[band])):
            seen = [b for b in members if observed[b, r, c]]
            joined = seen and min(seen) < band < max(seen) and 2 * len(seen) > len(members)
            out[band, r, c] = not joined
    return out


def test_outside_entries_equal_walking_and_counting(rng):
    for _ in range(150):
        bands = rng.integers(1, 8)
        observed = rng.random((bands, *rng.integers(1, 4, 2))) < rng.random()
        good, detectors = rng.random(bands) < 0.8, rng.choice(["A", "B"], bands, p=[0.8, 0.2])
        expected = outside_by_counting(observed, good, detectors)
        cube = Cube(np.where(observed, 1.0, np.nan), good=good, attrs={"detector": detectors})
        target, left = rule.targets(cube, observed, bad_bands="fill", max_gap=None, outside="keep")
        empty = ~observed.any(axis=(1, 2), keepdims=True)
        assert np.array_equal(target, ~(observed | expected | empty))
        assert left.get("outside the observed pixels", 0) == expected.sum()
        assert census(observed, good, detectors=detectors).outside == expected.sum()


@settings(max_examples=60, deadline=None)
@given(planes.filter(lambda m: not m.all()))
def test_thickness_equals_trying_all_discs(missing):
    np.testing.assert_array_equal(thickness(missing), thickness_by_discs(missing))


@unhurried
@given(planes, st.sampled_from(SYMMETRIES))
def test_thickness_turns_with_the_image_and_is_zero_where_observed(missing, turn):
    width = thickness(missing)
    np.testing.assert_array_equal(width > 0, missing)
    np.testing.assert_array_equal(thickness(turn(missing)), turn(width))


@pytest.mark.parametrize("n", [*range(1, 21), 32, 33, 64])
def test_a_stripe_is_as_thick_as_it_is_wide(n):
    missing = np.zeros((50, 90), bool)
    missing[:, 12 : 12 + n] = True
    assert set(thickness(missing)[missing]) == {n}
    assert set(thickness(missing.T)[missing.T]) == {n}


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_a_stripe_along_the_border_is_known_from_one_side(n):
    missing = np.zeros((50, 90), bool)
    missing[:, :n] = True
    assert set(thickness(missing)[missing]) == {2 * n - 1}


def test_thickness_is_local_and_independent_of_other_gaps():
    missing = np.zeros((60, 200), bool)
    missing[20:40, 20:40] = True
    missing[30, 40:150] = True  # a thin tail on a wide gap
    width = thickness(missing)
    assert width[30, 30] == 20 and set(width[30, 45:150]) == {1}
    missing[:, 180:187] = True
    np.testing.assert_array_equal(thickness(missing)[:, :170], width[:, :170])


def test_many_gaps_at_once_agree_with_each_alone(monkeypatch):
    """Long oblique gaps are measured in one window, short ones each in its own box."""
    missing = ~make_mask("blobs", (1, 100, 90), 0.2, np.random.default_rng(0))
    from hydiff.gaps.mask import _disc_width

    np.testing.assert_array_equal(thickness(missing), _disc_width(missing))


def test_thickness_of_nothing_and_of_everything():
    assert np.isinf(thickness(np.ones((3, 4), bool))).all()
    assert not thickness(np.zeros((3, 4), bool)).any()


def test_a_wide_gap_is_measured_to_two_percent():
    row, col = np.ogrid[:500, :500]
    missing = (row - 250) ** 2 + (col - 250) ** 2 < 200**2
    assert thickness(missing).max() == pytest.approx(399, rel=0.02)
    assert np.median(thickness(missing)[missing]) > 380


# --- bands ------------------------------------------------------------------------------------


@unhurried
@given(cubes)
def test_band_groups_share_out_the_bands(observed):
    groups = band_groups(observed)
    assert sorted(b for bands, _ in groups for b in bands) == list(range(len(observed)))
    assert [bands[0] for bands, _ in groups] == sorted(bands[0] for bands, _ in groups)
    for bands, mask in groups:
        assert all(np.array_equal(observed[b], mask) for b in bands)
    assert len({mask.tobytes() for _, mask in groups}) == len(groups)


@unhurried
@given(planes, st.integers(1, 5))
def test_a_shared_mask_is_found_again(plane, bands):
    cube = np.repeat(plane[None], bands, axis=0)
    np.testing.assert_array_equal(shared(cube), plane)
    assert len(band_groups(cube)) == len(band_groups(plane, bands)) == 1
    np.testing.assert_array_equal(band_groups(plane, bands)[0][0], np.arange(bands))


def test_masks_that_differ_stay_as_they_are():
    observed = np.ones((3, 4, 4), bool)
    observed[1, 2, 2] = False
    assert shared(observed) is observed
    assert [list(bands) for bands, _ in band_groups(observed)] == [[0, 2], [1]]


def test_the_number_of_bands_must_be_known():
    with pytest.raises(ShapeMismatch, match="bands="):
        band_groups(np.ones((4, 4), bool))
    with pytest.raises(ShapeMismatch, match="5 bands"):
        band_groups(np.ones((3, 4, 4), bool), 5)


# --- census -----------------------------------------------------------------------------------


@unhurried
@given(cubes)
def test_a_census_counts_every_missing_entry_once(observed):
    found = census(observed)
    _, rows, cols = observed.shape
    empty = ~observed.any(axis=(1, 2))
    assert found.missing == (~observed).sum() == round(sum(found.missing_share) * rows * cols)
    assert found.missing == found.inside + found.outside + empty.sum() * rows * cols
    in_gaps = sum(g.pixels * sum(b - a + 1 for a, b in g.bands) for g in found.gaps)
    assert in_gaps == found.inside + found.outside
    far = sum(g.outside_pixels * sum(b - a + 1 for a, b in g.bands) for g in found.gaps)
    assert far == found.outside
    assert found.empty_bands == tuple(np.flatnonzero(empty))
    assert found.shared == (shared(observed).ndim == 2)


@unhurried
@given(cubes)
def test_a_census_survives_json(observed):
    found = json.loads(json.dumps(census(observed).to_dict()))
    assert found["missing"] == (~observed).sum() and found["shape"] == list(observed.shape)


@unhurried
@given(planes, st.integers(1, 4))
def test_both_forms_of_a_shared_mask_have_one_census(plane, bands):
    assert census(plane, bands=bands) == census(np.repeat(plane[None], bands, axis=0))
    assert census(plane, np.ones(bands, bool)) == census(plane, bands=bands)


def test_a_census_names_lines_columns_and_bands():
    observed = np.ones((8, 20, 30), bool)
    observed[:, 5:8] = False
    observed[:, :, 12] = False
    observed[3, :, [20, 21]] = False
    observed[5:7] = False
    found = census(observed)
    assert found.full_lines == (5, 6, 7) and found.full_columns == (12,)
    assert found.dead_columns == {3: (20, 21)}
    assert found.empty_bands == (5, 6) and found.detector_gaps == ((5, 6),)
    assert found.n_gaps == 2, "one cross of five bands, one of band 3"
    assert found.describe() == [
        "39.1 % of 4,800 entries are missing; from 17.8 to 100.0 % of a band",
        "bands 5-6 hold no data at all (a whole detector is lost: left as it is)",
        "2 gaps, widest 4 px",
        "rows 5-7 are missing across the full width",
        "column 12 is missing over the full height",
        "columns 20-21 are missing in band 3",
    ]


def test_bad_bands_are_counted_but_tell_nothing_of_gaps():
    observed = np.ones((3, 20, 20), bool)
    observed[1, 4:10] = False
    good = np.array([True, False, True])
    found = census(observed, good)
    assert found.missing == 120 and found.gaps == () and found.full_lines == ()
    assert found.inside == 120
    assert census(observed).gaps[0].bands == ((1, 1),)
    with pytest.raises(ShapeMismatch, match="3 bands"):
        census(observed, good[:2])


def test_a_census_of_everything_and_of_nothing():
    assert census(np.ones((2, 3, 3), bool)).describe() == ["nothing is missing in 18 entries"]
    empty = census(np.zeros((2, 3, 3), bool))
    assert empty.missing == 18 and empty.gaps == () and empty.widest == 0
    assert empty.full_lines == () and empty.detector_gaps == ((0, 1),)


def test_gaps_come_largest_first_and_are_counted_beyond_the_listed():
    observed = np.ones((40, 60), bool)
    observed[::2, ::2] = False
    observed[10:20, 10:20] = False
    found = census(observed)
    assert found.gaps[0].pixels >= 100 and found.gaps[0].rows == (10, 20)
    assert len(found.gaps) == 100 < found.n_gaps == ndimage_count(~observed)


def ndimage_count(missing):
    from scipy import ndimage

    return ndimage.label(missing, np.ones((3, 3)))[1]


def test_ranges():
    assert ranges([3, 4, 5, 9]) == "3-5, 9"
    assert ranges(range(0, 40, 2), most=3) == "0, 2, 4 and 17 more"


def test_the_census_of_stored_masks(data_dir):
    """Shares as the data's README and `masks.npz` have them."""
    with np.load(data_dir / "masks.npz") as stored:
        stripes, blobs = stored["stripes_144_s0"], stored["blobs_144_s3"]
    assert sum(census(stripes).missing_share) == pytest.approx(0.3388, abs=1e-4)
    assert sum(census(blobs).missing_share) == pytest.approx(0.3171, abs=1e-4)
    assert 3 <= census(stripes).widest <= 30
    names = ["low_rank_sparsity_mask", "second_mask", "third_mask", "fourth_mask"]
    shares = []
    for name in names:
        observed = loadmat(data_dir / "native" / f"{name}.mat")["msk"].reshape(36, 36).astype(bool)
        np.testing.assert_array_equal(outside(~observed), outside_by_walking(~observed))
        shares.append(census(observed).missing_share[0])
    assert shares == pytest.approx([0.05, 0.23, 0.25, 0.33], abs=0.006)


# --- simulated masks --------------------------------------------------------------------------

FREE = sorted(set(MASKS) - set(PUBLISHED))
PER_BAND = {"columns", "pixels"}


def make(kind, shape=(4, 144, 144), missing=None, seed=0):
    return make_mask(kind, shape, missing, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", [(4, 144, 144), (3, 8, 8), (5, 40, 70), (1, 9, 130)])
def test_every_kind_hides_some_and_keeps_some(kind, shape):
    if shape[2] < columns_needed(kind):
        return
    observed = make(kind, shape)
    assert observed.dtype == bool
    assert observed.shape == (shape if kind in PER_BAND else shape[1:])
    planes = observed.reshape(-1, *shape[1:])
    assert planes.any(axis=(1, 2)).all(), "every band keeps a pixel"
    assert not observed.all()


@pytest.mark.parametrize("kind", MASKS)
def test_same_seed_same_mask(kind):
    np.testing.assert_array_equal(make(kind, seed=3), make(kind, seed=3))
    if kind not in PUBLISHED:
        assert not np.array_equal(make(kind, seed=3), make(kind, seed=5))


# steps of the share: one pixel, one line, one frame of 144 rows
STEP = {"lines": 1 / 144, "frames": 32 / 144, "columns": 1 / 144}


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("share", [None, 0.05, 0.5, 0.9])
def test_the_share_is_met_as_nearly_as_the_kind_allows(kind, share):
    achieved = 1 - make(kind, missing=share).mean()
    expected = DEFAULT_MISSING if share is None else share
    assert abs(achieved - expected) <= max(0.51 * STEP.get(kind, 0), 0.001) or (
        # at least one frame is lost and one is kept
        kind == "frames" and 32 / 144 <= achieved <= 1 - 16 / 144
    )


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(FREE),
    st.tuples(st.integers(1, 4), st.integers(2, 30), st.integers(2, 30)),
    st.floats(0.001, 0.999),
    st.integers(0, 99),
)
def test_any_shape_and_share(kind, shape, missing, seed):
    observed = make(kind, shape, missing, seed)
    assert observed.any() and not observed.all()


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("share", [0.0, -0.1, 1.0, 33.0, float("nan")])
def test_absurd_shares_are_refused(kind, share):
    with pytest.raises(BadValue, match="between 0 and 1"):
        make(kind, missing=share)


@pytest.mark.parametrize(
    ("kind", "share", "columns"),
    [
        ("published-1", 0.125, [*range(11, 14), *range(29, 35), *range(59, 68)]),
        (
            "published-2",
            0.236,
            [*range(19, 25), *range(39, 45), *range(59, 70), *range(89, 100)],
        ),
        (
            "published-3",
            0.167,
            [*range(9, 15), *range(19, 25), *range(29, 35), *range(39, 45)],
        ),
        (
            "published-4",
            0.417,
            [0, 1, 2, 3] + [c + k for c in range(9, 140, 10) for k in range(4)],
        ),
    ],
)
def test_published_masks_are_as_published(kind, share, columns):
    observed = make(kind)
    assert list(np.flatnonzero(~observed[0])) == columns
    assert (observed == observed[0]).all(), "full height"
    assert 1 - observed.mean() == pytest.approx(share, abs=5e-4)
    for cols in (columns_needed(kind), 145, 200, 287):
        some = make(kind, (1, 4, cols))
        assert list(np.flatnonzero(~some[0])) == columns, "the same pixels on any width"
    wide = make(kind, (4, 10, 288 + 30))
    np.testing.assert_array_equal(wide[0], [*observed[0], *observed[0], *[True] * 30])
    with pytest.raises(BadValue, match="its own"):
        make(kind, missing=0.3)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_cube_that_is_narrower_than_a_published_mask_is_refused(kind):
    needed = columns_needed(kind)
    assert make(kind, (1, 4, needed))[:, -1].all(), "known from both sides"
    for cols in (2, 36, needed - 1):
        with pytest.raises(
            BadValue, match=f"need {needed} columns, found {cols}; choose .*stripes"
        ):
            make(kind, (1, 4, cols))


def test_simulate_refuses_a_published_mask_on_a_narrow_cube_in_one_line(tmp_path):
    np.save(tmp_path / "narrow.npy", np.random.default_rng(0).random((30, 50, 3)))
    line = ["simulate", "narrow.npy", "-o", "out.npy", "--mask"]
    done = command.run(*line, "published-2", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "need 101 columns, found 50; choose the mask published-3 or stripes" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["narrow.npy"]
    done = command.run(*line, "published-3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lost = np.isnan(np.load(tmp_path / "out.npy")).all(axis=(0, 2))
    assert np.diff(np.flatnonzero(np.diff(lost.astype(int)))).tolist() == [6, 4, 6, 4, 6, 4, 6]


def test_frames_are_32_full_lines_and_prefer_the_inside():
    for seed in range(5):
        lost = np.flatnonzero(~make("frames", (1, 144, 20), 0.2, seed).any(axis=1))
        assert len(lost) == 32 and lost[0] % 32 == 0 and lost[0] in (32, 64, 96)
    small = np.flatnonzero(~make("frames", (1, 20, 6), 0.2).any(axis=1))
    assert len(small) == 5, "a quarter of a small image"


def test_columns_and_pixels_differ_from_band_to_band():
    columns = make("columns", missing=0.1)
    assert ((~columns).all(axis=1) | columns.all(axis=1)).all(), "whole columns"
    assert len(band_groups(columns)) == 4 and len(band_groups(make("pixels"))) == 4


def test_stripes_lean_and_wedges_open_to_both_edges():
    lean = make("stripes", missing=0.03, seed=1)
    hidden = (~lean).sum(axis=1)
    assert (hidden > 0).mean() > 0.9 and hidden.max() <= 16, "two stripes of 3 to 8 pixels"
    wedges = (~make("slc-off", missing=0.2)).mean(axis=0)
    edge, middle = (wedges[:20].mean() + wedges[-20:].mean()) / 2, wedges[62:82].mean()
    assert edge > 0.3 and middle < 0.1


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'stripes'"):
        make("stripe")


@pytest.mark.parametrize("shape", [(3, 8), (0, 8, 8), (3, 1, 1)])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(BadValue, match="bands, rows, cols"):
        make("stripes", shape)


@pytest.mark.parametrize("kind", ["lines", "frames"])
def test_one_line_cannot_lose_lines(kind):
    with pytest.raises(BadValue, match="too few"):
        make(kind, (3, 1, 40))
