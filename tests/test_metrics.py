"""Laws of the metrics, then other people's implementations, then one number with its origin."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from typer.testing import CliRunner

from hydiff import metrics as m
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.maths.ssim import ssim_map

DATA = Path(
    os.environ.get("HYDIFF_DATA", Path(__file__).resolve().parents[1].parent / "shared" / "data")
)

OVERALL = (
    m.mpsnr, m.mssim, m.sam, m.scc, m.derivative_rmse, m.ergas, m.nrmse_median, m.poor_bands
)  # fmt: skip
PER_BAND = (m.psnr_per_band, m.nrmse_per_band)


def scene(seed=0, shape=(8, 20, 22)):
    """A smooth low-rank cube on the unit range."""
    rng = np.random.default_rng(seed)
    maps = ndimage.gaussian_filter(rng.random((3, *shape[1:])), (0, 2, 2))
    cube = np.einsum("bk,krc->brc", rng.random((shape[0], 3)) + 0.2, maps)
    return (cube - cube.min()) / np.ptp(cube)


def noisy(truth, sigma, seed=1):
    return truth + sigma * np.random.default_rng(seed).standard_normal(truth.shape)


def some_entries(shape, share=0.3, seed=2):
    return np.random.default_rng(seed).random(shape) < share


def same(a, b, rtol=1e-9):
    """Whether two Scores say the same, whatever the unit of the truth."""
    a, b = ({k: v for k, v in s.to_dict().items() if k != "range"} for s in (a, b))
    flat_a, flat_b = (json.loads(json.dumps(v), parse_int=float) for v in (a, b))
    return _close(flat_a, flat_b, rtol)


def _close(a, b, rtol):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_close(a[k], b[k], rtol) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(_close(i, j, rtol) for i, j in zip(a, b, strict=True))
    return a == b or (a is not None and b is not None and abs(a - b) <= rtol * (1 + abs(a)))


# ---- identity ------------------------------------------------------------------------------


def test_a_perfect_estimate_reaches_the_limits():
    x = scene()
    assert m.psnr_per_band(x, x) == pytest.approx([100] * 8)
    assert m.mpsnr(x, x) == 100
    assert m.mssim(x, x) == pytest.approx(1)
    assert m.sam(x, x) == pytest.approx(0, abs=2e-6)
    assert m.scc(x, x) == pytest.approx(1)
    assert m.derivative_rmse(x, x) == 0
    assert m.ergas(x, x) == 0
    assert np.all(m.nrmse_per_band(x, x) == 0)


def test_psnr_of_a_known_error():
    truth = np.zeros((2, 3, 3))
    x = np.stack([np.full((3, 3), 0.1), np.full((3, 3), 0.01)])
    assert m.psnr_per_band(x, truth) == pytest.approx([20, 40])
    assert m.mpsnr(x, truth) == pytest.approx(30)


@pytest.mark.parametrize("metric", OVERALL + PER_BAND)
def test_where_all_true_is_no_where(metric):
    truth = scene()
    x = noisy(truth, 0.05)
    np.testing.assert_array_equal(
        metric(x, truth), metric(x, truth, np.ones(truth.shape, dtype=bool))
    )


@pytest.mark.parametrize("metric", OVERALL + PER_BAND)
def test_masked_entries_do_not_count(metric):
    """In either array, whatever values lie under the mask, also in integers."""
    truth = np.rint(1000 * scene()).astype(np.int16)
    x, mask = truth + 5, some_entries(truth.shape)
    with_nan = np.where(mask, np.nan, truth)
    masked = np.ma.MaskedArray(np.where(mask, 30_000, truth), mask)
    np.testing.assert_array_equal(metric(x, masked), metric(x, with_nan))
    np.testing.assert_array_equal(metric(masked, x), metric(with_nan, x))


def test_masked_entries_count_in_no_other_measure():
    truth, mask = scene(), some_entries((8, 20, 22))
    x, bars, with_nan = noisy(truth, 0.1), np.full(truth.shape, 0.1), np.where(mask, np.nan, truth)
    masked, gaps = np.ma.MaskedArray(truth, mask), some_entries((20, 22), seed=5)
    for measure in (
        lambda t: m.calibration(x, t, bars),
        lambda t: m.calibration(x, truth, t - truth + bars),
        lambda t: tuple(np.concatenate(m.by_distance(x, t, gaps))),
        lambda t: m.plume_recovery(x, truth, t, truth - 0.1),
        lambda t: m.band_depth_rmse(x, t, (0, 2, 4)),
    ):
        np.testing.assert_array_equal(measure(masked), measure(with_nan))


@pytest.mark.parametrize("metric", OVERALL + PER_BAND)
def test_float32_is_computed_in_float64(metric):
    truth = scene().astype(np.float32)
    x = noisy(truth, 0.05).astype(np.float32)
    np.testing.assert_array_equal(
        metric(x, truth), metric(x.astype(np.float64), truth.astype(np.float64))
    )


# ---- what has no influence -----------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_order_of_bands_and_pixels_does_not_matter_to_mpsnr(seed):
    truth = scene(shape=(5, 12, 12))
    x = noisy(truth, 0.1)
    rng = np.random.default_rng(seed)
    bands, pixels = rng.permutation(5), rng.permutation(144)

    def shuffled(v):
        return v[bands].reshape(5, -1)[:, pixels].reshape(v.shape)

    assert m.mpsnr(shuffled(x), shuffled(truth)) == pytest.approx(m.mpsnr(x, truth))
    assert m.sam(shuffled(x), shuffled(truth)) == pytest.approx(m.sam(x, truth))
    assert m.scc(shuffled(x), shuffled(truth)) == pytest.approx(m.scc(x, truth))


@given(gain=st.floats(1e-3, 1e4), offset=st.floats(-1e4, 1e4))
@settings(max_examples=20, deadline=None)
def test_the_unit_of_the_cubes_does_not_matter(gain, offset):
    truth = scene(shape=(4, 13, 14))
    x, missing = noisy(truth, 0.05), some_entries(truth.shape)
    moved = m.score(gain * x + offset, gain * truth + offset, missing)
    # an offset of 1e4 leaves 9 of the 16 digits of a gain of 1e-3
    plain = m.score(x, truth, missing)
    assert same(moved, plain, rtol=1e-5)
    assert moved.range == pytest.approx([gain * v + offset for v in plain.range])


def test_sam_ignores_the_gain_of_each_pixel():
    truth = scene()
    x = noisy(truth, 0.05)
    gain = np.random.default_rng(3).uniform(0.5, 2, truth.shape[1:])
    assert m.sam(gain * x, truth) == pytest.approx(m.sam(x, truth))


def test_scc_ignores_gain_and_offset_of_each_pixel():
    truth = scene()
    x = noisy(truth, 0.05)
    gain = np.random.default_rng(3).uniform(0.5, 2, truth.shape[1:])
    assert m.scc(gain * x + 3 * gain, truth) == pytest.approx(m.scc(x, truth))


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("metric", OVERALL + PER_BAND)
def test_what_one_array_lacks_does_not_count_in_the_other(metric, hole):
    truth = scene()
    x, holes = noisy(truth, 0.05), some_entries(truth.shape, 0.02)
    x[holes] = hole
    other = truth.copy()
    other[holes] = 0.5
    if metric in (
        m.nrmse_per_band,
        m.nrmse_median,
        m.poor_bands,
        m.ergas,
    ):  # these divide by statistics of the whole truth
        other[holes], x[holes] = hole, 7
        truth[holes] = hole
    np.testing.assert_array_equal(metric(x, truth), metric(x, other))
    assert np.isfinite(metric(x, truth)).all()


@pytest.mark.parametrize("metric", (m.mpsnr, m.ergas, *PER_BAND))
def test_entries_outside_where_have_no_influence(metric):
    truth = scene()
    x, where = noisy(truth, 0.05), some_entries(truth.shape)
    np.testing.assert_array_equal(
        metric(x, truth, where), metric(np.where(where, x, -9), truth, where)
    )


@pytest.mark.parametrize("metric", (m.sam, m.scc, m.derivative_rmse))
def test_spectral_metrics_take_whole_pixels(metric):
    truth = scene()
    x, pixels = noisy(truth, 0.05), some_entries(truth.shape[1:])
    one_entry = np.zeros(truth.shape, dtype=bool)
    one_entry[3] = pixels
    expected = metric(x[:, pixels][..., None], truth[:, pixels][..., None])
    assert metric(x, truth, one_entry) == pytest.approx(expected)


def test_ssim_inside_where_is_that_of_the_map():
    truth = scene()
    x, where = noisy(truth, 0.05), some_entries(truth.shape[1:])
    ssim = ssim_map(x, truth)
    assert np.isfinite(ssim[:, 5:-5, 5:-5]).all()
    assert np.isnan(ssim).sum() == ssim.size - ssim[:, 5:-5, 5:-5].size
    inner = ssim[:, 5:-5, 5:-5][:, where[5:-5, 5:-5]]
    assert m.mssim(x, truth, np.broadcast_to(where, truth.shape)) == pytest.approx(inner.mean())


def test_ssim_around_a_hole_is_that_of_the_entries_that_are_there():
    # one window only; by hand from its definition with the hole's weight at zero
    rng = np.random.default_rng(5)
    x, truth = rng.random((2, 1, 11, 11))
    x[0, 2, 3] = np.nan
    g = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    w = np.outer(g, g) * np.isfinite(x[0])
    a, b = np.nan_to_num(x[0]), truth[0]
    ma, mb = np.average(a, weights=w), np.average(b, weights=w)
    va, vb = np.average((a - ma) ** 2, weights=w), np.average((b - mb) ** 2, weights=w)
    cov = np.average((a - ma) * (b - mb), weights=w)
    expected = (2 * ma * mb + 1e-4) * (2 * cov + 9e-4)
    expected /= (ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)
    assert m.mssim(x, truth) == pytest.approx(expected)


# ---- what is skipped -----------------------------------------------------------------------


def test_zero_and_constant_spectra_are_skipped():
    truth = scene(shape=(7, 20, 22))
    x = noisy(truth, 0.05)
    rest = np.ones(truth.shape, dtype=bool)
    rest[:, 0, 0] = rest[:, 4, 5] = False
    truth[:, 0, 0], x[:, 4, 5] = 0, 0
    assert m.sam(x, truth) == pytest.approx(m.sam(x, truth, rest))
    truth[:, 0, 0], x[:, 4, 5] = 0.1, 0.7
    assert np.full((7, 1), 0.7).sum(axis=0) / 7 != 0.7  # constant, yet not equal to its mean
    assert m.scc(x, truth) == pytest.approx(m.scc(x, truth, rest))


def test_nothing_to_count_is_nan_without_a_warning():
    truth = scene()
    none = np.zeros(truth.shape, dtype=bool)
    for metric in OVERALL + PER_BAND:
        assert np.isnan(metric(truth, truth, none)).all()
    one_band = none.copy()
    one_band[2] = True
    x = noisy(truth, 0.1)
    assert np.isfinite(m.psnr_per_band(x, truth, one_band)).tolist() == [b == 2 for b in range(8)]
    assert m.mpsnr(x, truth, one_band) == pytest.approx(m.psnr_per_band(x, truth)[2])


def test_ssim_needs_eleven_pixels():
    assert np.isnan(m.mssim(np.zeros((2, 10, 30)), np.zeros((2, 10, 30))))
    assert m.mssim(np.zeros((2, 11, 11)), np.zeros((2, 11, 11))) == pytest.approx(1)


def test_a_constant_band_has_no_nrmse():
    truth = scene()
    truth[1] = 0.1
    assert np.isnan(m.nrmse_per_band(noisy(truth, 0.1), truth)).tolist() == [
        b == 1 for b in range(8)
    ]


def test_one_band_has_no_spectral_shape():
    x, truth = noisy(scene(), 0.1)[:1], scene()[:1]
    assert np.isnan(m.scc(x, truth))
    assert np.isnan(m.derivative_rmse(x, truth))


# ---- meaning -------------------------------------------------------------------------------


def test_filling_with_the_mean_of_the_band_has_nrmse_one():
    truth = np.random.default_rng(0).random((6, 60, 60))
    missing = some_entries(truth.shape)
    x = np.where(missing, truth.mean(axis=(1, 2), keepdims=True), truth)
    assert m.nrmse_per_band(x, truth, missing) == pytest.approx([1] * 6, rel=0.05)


@given(low=st.floats(1e-4, 0.2), factor=st.floats(1.2, 10))
@settings(max_examples=25, deadline=None)
def test_less_noise_scores_better(low, factor):
    truth = scene(shape=(6, 16, 16))
    better, worse = (m.score(noisy(truth, s), truth).everywhere for s in (low, low * factor))
    for key in ("mpsnr", "mssim", "scc"):
        assert better[key] > worse[key]
    for key in ("sam", "nrmse", "derivative_rmse", "ergas"):
        assert better[key] < worse[key]


def test_derivative_sees_steps_between_bands_only():
    truth = scene()
    assert m.derivative_rmse(truth + 0.3, truth) == pytest.approx(0, abs=1e-12)
    steps = truth + 0.2 * (np.arange(8) % 2)[:, None, None]
    assert m.derivative_rmse(steps, truth) == pytest.approx(0.2)


def test_by_distance_of_a_stripe():
    truth = np.zeros((2, 6, 20))
    missing = np.zeros((6, 20), dtype=bool)
    missing[:, 5:12] = True  # distances 1 2 3 4 3 2 1
    x = np.where(missing, 0.1 * np.minimum(np.arange(20) - 4, 12 - np.arange(20)), 0) + truth
    bins = m.by_distance(x, truth, missing)
    assert [(b.low, b.high) for b in bins] == [
        (1, 2),
        (2, 3),
        (3, 5),
        (5, 8),
        (8, 13),
        (13, np.inf),
    ]
    assert [b.entries for b in bins] == [24, 24, 36, 0, 0, 0]
    assert [b.rmse for b in bins[:3]] == pytest.approx([0.1, 0.2, np.sqrt((2 * 0.09 + 0.16) / 3)])
    assert bins[0].psnr == pytest.approx(20)
    assert np.isnan(bins[3].rmse)
    assert np.isnan(bins[3].psnr)


def test_by_distance_is_per_band_and_gaps_of_the_truth_are_not_observed():
    truth = np.zeros((3, 1, 9))
    missing = np.zeros((3, 1, 9), dtype=bool)
    missing[0, 0, 4] = True  # one pixel
    missing[1] = True  # a band never seen
    missing[2, 0, 4] = True
    truth[2, 0, 1:8] = np.nan  # the truth knows this pixel, but no neighbour of it
    truth[2, 0, 4] = 0
    bins = m.by_distance(truth + 0.1, truth, missing)
    assert {(b.low, b.entries) for b in bins if b.entries} == {(1, 1), (3, 1), (13, 9)}


# ---- score ---------------------------------------------------------------------------------


def test_score_shows_all_pixels_and_the_gaps():
    truth = 100 + 50 * scene()
    missing = np.zeros(truth.shape[1:], dtype=bool)
    missing[:, 8:12] = True
    x = np.where(missing, noisy(truth, 2), truth)
    s = m.score(x, truth, missing)
    assert s.everywhere["mpsnr"] > s.missing["mpsnr"]
    assert s.compared == truth.size
    assert s.unfilled == 0
    unit, unit_x = (truth - 100) / 50, (x - 100) / 50
    where = np.broadcast_to(missing, truth.shape)
    assert s.missing["sam"] == pytest.approx(m.sam(unit_x, unit, where))
    assert s.per_band["psnr"] == pytest.approx(m.psnr_per_band(unit_x, unit, where))
    assert list(s.everywhere) == list(s.missing) == list(m.LABELS)
    assert same(s, m.score(x, truth, where))


def test_without_a_mask_there_is_one_column():
    truth = scene()
    s = m.score(noisy(truth, 0.1), truth)
    assert s.missing is None
    assert s.by_distance is None
    assert s.raw is None
    assert [row[2] for row in s.table()] == [None] * len(m.LABELS)
    assert s.per_band["psnr"].mean() == pytest.approx(s.everywhere["mpsnr"])


def test_table_rows_carry_units():
    truth = scene()
    missing = some_entries(truth.shape)
    s = m.score(noisy(truth, 0.1), truth, missing)
    rows = s.table()
    assert [r[0] for r in rows][2:4] == ["SAM (°)", "Derivative RMSE"]
    assert rows[-1] == ("MPSNR (dB)", s.everywhere["mpsnr"], s.missing["mpsnr"])


def test_a_score_leads_with_what_spectra_are_used_for():
    s = m.score(noisy(scene(), 0.1), scene(), some_entries((20, 22)))
    lead = ["nrmse_median", "poor_bands", "sam", "derivative_rmse"]
    for found in (list(m.LABELS), list(s.everywhere), list(s.to_dict()["missing"])):
        assert found[:4] == lead and found[-1] == "mpsnr"


def test_the_command_leads_with_the_same_and_takes_depths_and_indices(tmp_path, rng):
    truth = rng.uniform(1, 2, (6, 20, 20))
    gaps = np.zeros((20, 20), bool)
    gaps[:, 5:8] = True
    files = {"truth": truth, "filled": np.where(gaps, truth[:, :, ::-1], truth), "gaps": gaps}
    for name, values in files.items():
        np.save(tmp_path / f"{name}.npy", values)
    line = ["score", *(str(tmp_path / f"{n}.npy") for n in ("filled", "truth"))]
    line += ["--missing", str(tmp_path / "gaps.npy")]
    asked = [*line, "--depth", "1,3,5", "--index", "4,2"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    order = ["by band, median", "above 0.9", "SAM", "Derivative", "Depth 1,3,5", "Index 4,2", "dB)"]
    places = [done.stdout.index(label) for label in order]
    assert places == sorted(places) and "the peak is the range of the truth, 1" in done.stdout
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    wanted = m.band_depth_rmse(files["filled"], truth, (1, 3, 5), gaps)
    assert found["uses"]["depth 1,3,5"]["missing"] == pytest.approx(wanted)
    assert list(found["missing"])[:2] == ["nrmse_median", "poor_bands"]
    assert "uses" not in json.loads(CliRunner().invoke(app, [*line, "--json"]).stdout)
    for wrong in (["--depth", "1,3"], ["--index", "0,6"], ["--index", "2,2"], ["--depth", "a,b,c"]):
        bad = CliRunner().invoke(app, [*line, *wrong])
        assert "different band numbers from 0 to 5" in str(bad.exception), bad.output


def test_a_quarter_of_the_bands_lost_shows_in_their_share_and_hardly_in_mpsnr(rng):
    """What a leading-components fill does: faint bands become their mean."""
    contrast = np.array([1.0, 1.0, 1.0, 0.01])[:, None, None]
    truth = 0.5 + contrast * rng.normal(0, 0.1, (4, 20, 20))
    where = rng.random(truth.shape) < 0.4
    good = truth + np.where(where, 0.1 * contrast * rng.normal(0, 0.1, truth.shape), 0)
    lost = good.copy()
    lost[3] = np.where(where[3], truth[3].mean(), truth[3])
    assert m.poor_bands(good, truth, where) == 0 and m.poor_bands(lost, truth, where) == 0.25
    by_band = m.nrmse_per_band(lost, truth, where)
    assert m.nrmse_median(lost, truth, where) == np.median(by_band) < 0.2 < by_band[3]
    assert m.mpsnr(lost, truth, where) > m.mpsnr(good, truth, where) - 6 > 30
    assert m.poor_bands(lost, truth, where, above=2) == 0
    nothing = np.zeros_like(where)
    assert np.isnan(m.poor_bands(lost, truth, nothing))
    assert np.isnan(m.nrmse_median(lost, truth, nothing))


def test_depths_and_indices_are_judged_where_one_of_their_bands_was_missing(rng):
    truth = rng.uniform(1, 2, (6, 8, 8))
    truth[3] = 0.8 * (truth[1] + truth[5]) / 2
    np.testing.assert_allclose(m.band_depth(truth, 1, 3, 5), 0.2)
    x, where = truth.copy(), np.zeros(truth.shape, bool)
    where[3, :4] = True
    x[3, :4] /= 0.8  # the absorption is gone
    assert m.band_depth_rmse(x, truth, (1, 3, 5), where) == pytest.approx(0.2)
    assert m.band_depth_rmse(x, truth, (1, 3, 5)) == pytest.approx(0.2 * np.sqrt(0.5))
    assert np.isnan(m.band_depth_rmse(x, truth, (0, 2, 4), where)), "none of these was missing"
    assert m.band_depth_rmse(7 * x, 7 * truth, (1, 3, 5), where[3]) == pytest.approx(0.2)
    x[4, 0, 0] = np.nan
    wanted = (truth[4] - truth[2]) / (truth[4] + truth[2])
    moved = np.where(np.isnan(x), np.nan, x + 0.5)
    found = (moved[4] - moved[2]) / (moved[4] + moved[2])
    error = (found - wanted)[np.isfinite(found)]
    assert m.band_ratio_rmse(moved, truth, (4, 2)) == pytest.approx(np.sqrt(np.mean(error**2)))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_plume_recovery_is_the_share_that_came_back(rng, share):
    base = rng.uniform(1, 2, (5, 9, 9))
    truth = base.copy()
    truth[2:4] *= 1 - 0.1 * np.exp(-(np.hypot(*np.indices((9, 9)) - 4.0) ** 2) / 8)
    where = np.zeros(base.shape, bool)
    where[:, :, 3:6] = True
    error = rng.normal(0, 1, base.shape)  # of the fill itself, with and without the plume
    plain = base + error
    x = plain + share * (truth - base)
    assert m.plume_recovery(x, plain, truth, base, where) == pytest.approx(share)
    assert np.isnan(m.plume_recovery(x, plain, base, base, where)), "no plume"


def test_to_dict_is_strict_json():
    truth = scene(shape=(3, 8, 8))  # too small for SSIM
    s = m.score(noisy(truth, 0.1), truth, some_entries((8, 8)), good=[True, False, True], raw=truth)
    back = json.loads(json.dumps(s.to_dict(), allow_nan=False))
    assert back["everywhere"]["mssim"] is None
    assert back["per_band"]["psnr"][1] is None
    assert back["by_distance"][-1]["high"] is None
    assert back["raw"]["mpsnr"] == 100
    assert set(back) == {f.name for f in dataclasses.fields(m.Scores)}


def test_raw_is_scored_beside():
    truth = scene()
    missing = some_entries(truth.shape[1:])
    raw = noisy(truth, 0.1)
    s = m.score(np.where(missing, raw, truth), truth, missing, raw=raw)
    assert s.raw == m.score(raw, truth).everywhere
    assert s.raw["mpsnr"] < s.everywhere["mpsnr"]


def test_bad_bands_have_no_influence():
    truth, missing = scene(), some_entries((8, 20, 22))
    x = noisy(truth, 0.1)
    good = np.arange(8) != 3
    plain = m.score(x, truth, missing, good=good)
    wild_x, wild = x.copy(), truth.copy()
    wild_x[3], wild[3] = 1e6, -1e6
    assert same(plain, m.score(wild_x, wild, missing, good=good))
    assert same(plain, m.score(wild_x, Cube(wild, good=good), missing))
    assert same(plain, m.score(Cube(wild_x, good=good), wild, missing))
    assert plain.compared == 7 * 20 * 22
    assert np.isnan(plain.per_band["nrmse"][3])


def test_no_derivative_across_a_bad_band():
    truth = scene()
    x = truth + 0.2 * (np.arange(8) > 3)[:, None, None]
    good = np.arange(8) != 3
    assert m.score(x, truth, good=good).everywhere["derivative_rmse"] == pytest.approx(0, abs=1e-12)


def test_gaps_of_the_truth_have_no_influence():
    truth = (1000 * scene()).astype(np.int16)
    x = (truth + 20 * np.random.default_rng(0).standard_normal(truth.shape)).astype(np.int16)
    gaps, missing = some_entries(truth.shape, 0.02), some_entries(truth.shape)
    truth[gaps] = -9999
    s = m.score(x, Cube(truth, nodata=-9999), missing)
    x[gaps] = 30000
    assert same(s, m.score(x, Cube(truth, nodata=-9999), missing))
    as_nan = np.where(gaps, np.nan, truth.astype(np.float64))
    assert same(s, m.score(x, as_nan, missing))
    assert s.compared == truth.size - gaps.sum()
    assert s.unfilled == 0


def test_unfilled_entries_are_counted_not_scored():
    truth = scene()
    missing = np.zeros(truth.shape[1:], dtype=bool)
    missing[3:9] = True
    x = noisy(truth, 0.05)
    x[:, 4] = np.nan
    s = m.score(x, truth, missing)
    assert s.unfilled == 8 * 22
    assert s.compared + s.unfilled == truth.size
    nodata = np.where(np.isfinite(x), x, -1.0)
    assert same(s, m.score(Cube(nodata, nodata=-1.0), truth, missing))
    assert np.isfinite(list(s.missing.values())).all()


def test_the_scale_depends_on_the_truth_alone():
    truth = scene()
    x = truth + 0.1
    a, b = (m.score(x, truth, some_entries(truth.shape, seed=s)) for s in (1, 2))
    assert a.missing["mpsnr"] == pytest.approx(20)
    assert b.missing["mpsnr"] == pytest.approx(20)


def test_a_constant_truth_can_be_scored():
    truth = np.full((3, 12, 12), 7)
    assert m.score(truth, truth).everywhere["mpsnr"] == 100


def test_shapes_that_differ_are_named():
    truth = scene()
    with pytest.raises(ShapeMismatch, match=r"estimate .*\(20, 22, 8\).*\(8, 20, 22\).*transpose"):
        m.score(truth.transpose(1, 2, 0), truth)
    with pytest.raises(ShapeMismatch, match=r"missing .*\(22, 20\).*\(8, 20, 22\) or \(20, 22\)"):
        m.score(truth, truth, np.zeros((22, 20), dtype=bool))
    with pytest.raises(ShapeMismatch, match=r"raw .*\(7, 20, 22\)"):
        m.score(truth, truth, raw=truth[1:])
    with pytest.raises(ShapeMismatch, match=r"good .*\(7,\).*\(8,\)"):
        m.score(truth, truth, good=np.ones(7, dtype=bool))


def test_nothing_comparable_is_said():
    truth = scene()
    with pytest.raises(BadValue, match="estimate has no value"):
        m.score(np.full(truth.shape, np.nan), truth)
    with pytest.raises(BadValue, match="truth has no valid entry"):
        m.score(truth, truth, good=np.zeros(8, dtype=bool))


# ---- oracles -------------------------------------------------------------------------------


def test_psnr_and_ssim_agree_with_scikit_image():
    skimage_metrics = pytest.importorskip("skimage.metrics")
    truth = scene()
    x = noisy(truth, 0.08)
    psnr = [
        skimage_metrics.peak_signal_noise_ratio(t, e, data_range=1)
        for t, e in zip(truth, x, strict=True)
    ]
    assert m.psnr_per_band(x, truth) == pytest.approx(psnr)
    full = [
        skimage_metrics.structural_similarity(
            t,
            e,
            data_range=1,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            full=True,
        )[1]
        for t, e in zip(truth, x, strict=True)
    ]
    inner = (slice(None), slice(5, -5), slice(5, -5))
    np.testing.assert_allclose(ssim_map(x, truth)[inner], np.array(full)[inner], atol=1e-12)
    assert m.mssim(x, truth) == pytest.approx(np.array(full)[inner].mean())


def test_psnr_ssim_sam_and_ergas_agree_with_torchmetrics():
    image = pytest.importorskip("torchmetrics.functional.image")
    torch = pytest.importorskip("torch")
    truth = scene()
    x = noisy(truth, 0.08)
    a, b = torch.from_numpy(x)[None], torch.from_numpy(truth)[None]
    psnr = image.peak_signal_noise_ratio(a[0, 3], b[0, 3], data_range=1.0)
    assert m.psnr_per_band(x, truth)[3] == pytest.approx(float(psnr))
    # its mean takes in windows over the reflected border too; ours has valid windows only
    _, ssim = image.structural_similarity_index_measure(
        a, b, data_range=1.0, return_full_image=True
    )
    assert m.mssim(x, truth) == pytest.approx(float(ssim[..., 5:-5, 5:-5].mean()), abs=1e-6)
    sam = image.spectral_angle_mapper(a, b)
    assert m.sam(x, truth) == pytest.approx(np.degrees(float(sam)))
    ergas = image.error_relative_global_dimensionless_synthesis(a, b, ratio=1)
    assert m.ergas(x, truth) == pytest.approx(float(ergas))


def test_scc_agrees_with_numpy():
    truth = scene()
    x = noisy(truth, 0.08)
    each = [np.corrcoef(x[:, r, c], truth[:, r, c])[0, 1] for r in range(20) for c in range(22)]
    assert m.scc(x, truth) == pytest.approx(np.mean(each))


def test_golden_indian_pines_filled_with_the_nearest_pixel():
    # Origin: scikit-image 0.26.0, not this package; 2026-11-15, numpy 2.4.6, scipy 1.17.1.  Cube
    # and fill mapped by the cube's minimum and maximum, then per band peak_signal_noise_ratio(t,
    # e, data_range=1) over all or missing pixels, and structural_similarity(t, e, data_range=1,
    # gaussian_weights=True, sigma=1.5, use_sample_covariance=False, full=True) cropped by 5
    # pixels; means over bands.
    files = [DATA / "dev" / "indian_pines_144.npz", DATA / "masks.npz"]
    if not all(f.exists() for f in files):
        pytest.skip(f"no development data in {DATA}; set HYDIFF_DATA")
    with np.load(files[0]) as f:
        truth = f["cube"].transpose(2, 0, 1)
    with np.load(files[1]) as f:
        observed = f["stripes_144_s3"]
    rows, cols = ndimage.distance_transform_edt(
        ~observed, return_distances=False, return_indices=True
    )
    s = m.score(truth[:, rows, cols], truth, ~observed)
    assert s.everywhere["mpsnr"] == pytest.approx(40.97318298655, abs=1e-9)
    assert s.missing["mpsnr"] == pytest.approx(36.41230731238, abs=1e-9)
    assert s.everywhere["mssim"] == pytest.approx(0.93127066588, abs=1e-9)
    assert s.missing["mssim"] == pytest.approx(0.83273704796, abs=1e-9)
