"""Laws of foresight: what is usual, what the folds say, what an interval rests on."""

import csv

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hydiff
from conftest import ROOT
from hydiff.auto import (
    blend,
    classes,
    fits,
    folds,
    intervals,
    missingness,
    recipe,
    split,
    trials,
    usual,
)
from hydiff.auto.candidates import SMOOTH
from hydiff.auto.usual import Evidence
from hydiff.cube import Cube
from hydiff.methods.estimate import Job

JOB = Job(0, "cpu")


@pytest.fixture(scope="module")
def scene():
    """(5, 36, 36): smooth fields with some texture."""
    rng = np.random.default_rng(3)
    maps = np.stack([gaussian_filter(rng.standard_normal((36, 36)), w) * w for w in (1, 2, 4)])
    return np.tensordot(rng.random((5, 3)), maps, 1) + 0.05 * rng.standard_normal((5, 36, 36))


@pytest.fixture(scope="module")
def gaps():
    missing = np.zeros((36, 36), bool)
    missing[:, 8:11] = missing[20:25, 20:30] = True
    return missing


def errors(values, missing):
    """What is expected of `smooth` in the gaps of a cube."""
    cube, target = Cube(values), np.broadcast_to(missing, values.shape)
    found = folds.folds_of(cube, ~target, 4, 0)
    window = trials.BareWindow(cube, ~target)
    some = [trials.trial_of(window, fold, [SMOOTH], 0.0, JOB) for fold in found]
    alone = np.ones((1, classes.D, classes.BAND_GROUPS))
    weights = blend.Weights(alone, alone, "", np.ones(1))
    kinds = classes.class_counts([(cube, ~target, target)])
    return intervals.errors_of(some, weights, kinds, len(values))


def test_neither_unit_nor_number_of_bands_matters(scene, gaps):
    plain = errors(scene, gaps)
    for other in (7000 + 300 * scene, np.repeat(scene, 3, axis=0)):
        found = errors(other, gaps)
        np.testing.assert_allclose(found.bounds, plain.bounds, rtol=0.03)
        assert found.copies == pytest.approx(plain.copies, rel=0.03)
        size = [e.level + np.log(np.mean(e.by_band)) for e in (found, plain)]
        assert size[0] == pytest.approx(size[1], abs=0.15)


def test_few_hidden_pixels_leave_the_slopes_as_usual(scene, gaps, monkeypatch):
    usually, off = usual.slopes(0.0, 0.0), []
    for trust in (1e12, 1e3, 1.0):
        monkeypatch.setattr(usual, "TRUST", trust)
        off.append(np.abs(np.array(errors(scene, gaps).slopes) - usually).max())
    assert off == sorted(off) and off[0] < 1e-6 and off[-1] > 0.05


def test_less_noise_is_taken_off_where_it_was_estimated(scene, gaps, rng):
    """What is taken off too much would be missing in the errors."""
    cube = Cube(scene + 0.3 * rng.standard_normal(scene.shape))
    target = np.broadcast_to(gaps, scene.shape)
    fold = folds.folds_of(cube, ~target, 2, 0)[0]
    window = trials.BareWindow(cube, ~target)
    found = trials.trial_of(window, fold, [SMOOTH], "auto", JOB)
    sigma_y = fits.own_fits([SMOOTH], cube, ~target & ~fold, "auto", JOB)[0].sigma_y
    given = trials.trial_of(window, fold, [SMOOTH], sigma_y, JOB)
    np.testing.assert_allclose(found.noise, usual.subtracted(cube.bands) * given.noise, rtol=1e-6)
    np.testing.assert_allclose(found.residual, given.residual)
    assert 0.5 < usual.subtracted(1) < usual.subtracted(8) < 1  # many bands show the noise better


def test_many_bands_show_what_few_hide():
    """The noise left in what all bands share: that of their weighted mean."""
    signal = np.full(8, 0.1)
    few, many = (usual.pooled_noise(1 - s, s) for s in (signal[:2], signal))
    assert few == pytest.approx(0.9 / (0.9 + 2 * 0.1)) and many == pytest.approx(0.9 / 1.7)
    assert usual.pooled_noise(np.r_[0.0, 0.9], np.r_[1.0, 0.1]) == 0.0  # one band shows it all
    assert usual.pooled_noise(np.array([0.5]), np.array([0.5])) == pytest.approx(0.5)


def test_the_signal_of_a_band_is_found_below_its_noise(gaps, rng):
    """Twenty bands that vary alike, with 4 % of the variance of their noise; and nearly
    nothing where there is nothing but noise."""
    shared = gaussian_filter(rng.standard_normal((36, 36)), 3)
    pure = rng.standard_normal((20, 36, 36))
    observed = np.broadcast_to(~gaps, pure.shape)
    fold = folds.folds_of(Cube(pure), observed, 2, 0)[0]
    hidden = fold.any(axis=0)
    wave = 0.2 * (shared - shared[hidden].mean()) / shared[hidden].std()
    shares = []
    for values in (pure + wave, pure):
        window = trials.BareWindow(Cube(values), observed)
        trial = trials.trial_of(window, fold, [SMOOTH], 1.0, JOB)
        assert (trial.noise > 0.8).all()
        shares.append(trial.signal.mean())
    assert 0.02 < shares[0] < 0.06 and shares[1] < shares[0] / 5
    quiet = trials.trial_of(trials.BareWindow(Cube(pure), observed), fold, [SMOOTH], 0.0, JOB)
    assert (quiet.signal == 1).all()


def test_bounds_enclose_the_expected_error_and_narrow_with_evidence(rng):
    for off, apart, drowned, copies in zip(*rng.exponential((2, 1, 5, 9), (50, 4)).T, strict=True):
        for whole in (True, False):
            low, high = usual.foresee(Evidence(off, apart, drowned, 1 + copies), whole).bounds
            assert 0 < low < 1 < high
    width = [
        np.ptp(usual.foresee(Evidence(0.0, *some)).bounds)
        for some in ((0.0, 0.0, 100.0), (0.0, 0.0, 2.0), (0.5, 0.0, 2.0), (0.5, 9.0, 2.0))
    ]
    assert width == sorted(width)


def test_folds_that_show_nothing_give_way_to_the_usual():
    """And those that agree, without noise, keep nearly all of what they say."""

    def drawn(off, apart, drowned):
        return (usual.foresee(Evidence(off, apart, drowned, 20.0)).drawn - usual.BIAS) / off

    agree, differ, noisy = (drawn(1.0, *some) for some in ((0.0, 0.0), (0.5, 0.0), (0.0, 1e4)))
    assert -1 < differ < agree < 0 and agree > -0.2
    assert noisy == pytest.approx(-1.0, abs=1e-3)
    assert usual.foresee(Evidence(1.0, 0.5, 0.0, 20.0), whole_pixels=False).drawn == 0


def test_uneven_pieces_widen_the_bounds(rng):
    """One piece with large errors among many: the gaps may have such a one, or none."""
    even = rng.standard_normal((30, 40))
    pieces = even.copy()
    pieces[0] *= 8
    uneven = [hidden_pieces(p).uneven(np.ones(p.size)) for p in (even, pieces)]
    assert 0 < uneven[0] < 0.1 < uneven[1]
    for whole in (True, False):
        evidence = (Evidence(0.0, 0.0, 0.0, 20.0, u) for u in uneven)
        width = [np.ptp(usual.foresee(e, whole).bounds) for e in evidence]
        assert width[0] < width[1]


def test_an_interval_needs_enough_copies_of_the_gaps():
    assert [recipe.can_say(n)[1] for n in (3.9, 4, 5)] == [False, True, True]
    assert [recipe.can_say(n)[2] for n in (18.9, 19, 20)] == [False, True, True]
    assert recipe.Errors(copies=5.0).basis == (recipe.COPIES, recipe.COPIES, recipe.MODEL)


def hidden_pieces(error):
    """What a fold with pieces of entries (pieces, n) shows, where a square error of 1 is due."""
    pieces, n = error.shape[0], error.size
    around, zero = np.zeros((len(classes.Around._fields), n)), np.zeros(n, int)
    gap = np.repeat(np.arange(pieces), error.shape[1])
    return intervals.Hidden(
        error.ravel() ** 2, np.zeros(n), np.ones(n), np.ones(n), zero, zero, around, zero, gap
    )


def test_intervals_cover_one_more_gap_that_is_like_the_others(rng):
    """Gaps whose errors differ in size."""
    covered = []
    for _ in range(300):
        size = np.exp(0.5 * rng.standard_normal(7))[:, None]
        error = np.abs(size * rng.standard_normal((7, 40)))
        hidden = hidden_pieces(error[:6])
        assert hidden.copies() == pytest.approx(6)
        covered.append(np.mean(error[6] <= hidden.shape(np.ones(240), 6.0)[1]))
    assert np.mean(covered) == pytest.approx(0.8, abs=0.04)


def test_one_more_copy_takes_more_than_one_more_entry(rng, monkeypatch):
    monkeypatch.setattr(usual, "COPIES", 0.0)  # what is usual apart
    hidden = hidden_pieces(rng.standard_normal((8, 50)))
    few, many = (hidden.shape(np.ones(400), copies) for copies in (8.0, 1e9))
    assert (few[:2] > many[:2]).all()


def test_the_more_copies_the_less_the_usual_shape_matters(rng):
    """And too few of them say nothing at all."""
    error = rng.uniform(0, 1, (40, 50))
    own = np.array(recipe.LEVELS)  # quantiles of the errors
    off = []
    for copies in (3.0, 8.0, 30.0, 1e6):
        off.append(np.abs(hidden_pieces(error).shape(np.ones(2000), copies) - own)[:2].sum())
    assert off == sorted(off, reverse=True) and off[-1] < 0.05
    usually = hidden_pieces(error).shape(np.ones(2000), 0.5)
    np.testing.assert_array_equal(usually, usual.SHAPE)


def test_the_largest_error_allowed_is_kept_by_the_upper_end(scene, gaps):
    cube = np.where(gaps, np.nan, scene)
    plain = hydiff.fill(cube, budget="fast", device="cpu", no_prior=True)
    found = plain.recipe["errors"]
    assert plain.expected["nrmse_high"] == pytest.approx(
        plain.expected["nrmse"] * found["bounds"][1]
    )
    spread = np.nanstd(cube, axis=(1, 2))[:, None, None]
    upper = plain.sigma / found["widening"] / spread * found["bounds"][1]
    most = float(np.median(upper[:, gaps]))
    limited = hydiff.fill(cube, budget="fast", device="cpu", no_prior=True, max_error=most)
    assert limited.left == {f"expected error above {most:g}": int((upper > most)[:, gaps].sum())}


def test_a_rim_is_unusual_where_values_decide_what_is_missing(scene, gaps):
    bright = scene.mean(axis=0)
    for missing, unusual in (
        (gaps, False),
        (bright > np.quantile(bright, 0.96), True),
        (bright < np.quantile(bright, 0.04), True),
    ):
        target = np.broadcast_to(missing, scene.shape)
        rim = missingness.rim_of(scene, ~target, target, 0)
        assert rim.is_unusual == unusual
        assert rim == missingness.rim_of(np.exp(scene), ~target, target, 0)  # ranks alone count
        hidden = np.where(target, 1e9, scene)
        assert rim == missingness.rim_of(hidden, ~target, target, 0)
        assert ("low" in missingness.warning(rim)) == (rim.rank < 0)


def test_bounds_of_the_nrmse_are_nearer_where_noise_hides_the_errors():
    """Without noise they are those of the error; with more of it nearer to 1, never beyond."""
    square, bounds = np.full(3, 0.2), (0.5, 1.8)
    found = [usual.nrmse_bounds(bounds, square, np.full(3, n)) for n in (0.0, 0.2, 20.0)]
    assert found[0] == pytest.approx(bounds)
    low, high = np.array(found).T
    assert (np.diff(low) > 0).all() and (np.diff(high) < 0).all() and low[-1] < 1 < high[-1]
    scaled = usual.nrmse_bounds(bounds, 9 * square, np.full(3, 9 * 0.2))
    assert scaled == pytest.approx(found[1])  # the unit does not matter


def test_what_is_usual_is_what_was_learned():
    with (ROOT / "benchmarks/results/usual.csv").open(newline="") as file:
        learned = {r["constant"]: float(r["value"]) for r in csv.DictReader(file)}
    for name in ("USUAL", "TAILS", "SHAPE", "GAIN"):
        values = [v for n, v in learned.items() if n.startswith(name)]
        np.testing.assert_allclose(getattr(usual, name), values, rtol=1e-3)
    single = learned.keys() - {n for n in learned if " " in n}
    assert len(single) == 17
    for name in single:
        assert getattr(usual, name) == pytest.approx(learned[name], rel=1e-3)


def test_notes_about_few_trials_and_few_copies_are_those_of_the_kind_of_gaps():
    """Also for entries of a kind that another image of the place has filled."""
    kinds = {name: {"nrmse": 0.5} for name in (*split.KINDS, f"{split.SOME}, with a reference")}
    entries = dict.fromkeys(kinds, 10)

    def decided(folds, copies):
        return {"folds": folds, "errors": {"copies": copies}}

    def said(whole, partial):
        return intervals.promises({"nrmse": 0.5}, kinds, entries, whole | {"partial": partial})

    notes = said(decided(12, 30.0), decided(2, 30.0))
    few = [note for note in notes if "2 trials only" in note]
    assert len(few) == 2 and all(split.SOME in note for note in few)
    assert intervals.MODEL_BASED not in notes
    assert intervals.MODEL_BASED in said(decided(12, 30.0), decided(2, 3.0))
    assert intervals.MODEL_BASED in said(decided(12, 3.0), decided(2, 30.0))
