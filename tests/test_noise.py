"""Laws of the noise estimate: known white noise is found again, with an honest error bar."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import command
import hydiff
from hydiff.cube import Cube, unit_scale
from hydiff.gaps.mask import make_mask
from hydiff.maths import noise, noise_level

BANDS = 40
RANK = 3
SIGMA = np.linspace(0.04, 0.12, BANDS)  # one per band


def spectra(bands=BANDS):
    """(bands, RANK) slow waves."""
    return np.cos(np.pi * np.outer(np.arange(bands) + 0.5, np.arange(RANK)) / bands)


def low_rank(bands=BANDS, side=48):
    """Smooth maps of std 1 times the spectra."""
    white = np.random.default_rng(0).standard_normal((RANK, side, side))
    maps = gaussian_filter(white, (0, 2, 2))
    return np.tensordot(spectra(bands), maps / maps.std(), 1)


def noisy(clean, sigma, seed=1):
    rng = np.random.default_rng(seed)
    return clean + sigma[:, None, None] * rng.standard_normal(clean.shape)


def everything(values):
    return np.ones(values.shape, bool)


def test_the_noise_of_each_band_is_found():
    values = noisy(low_rank(), SIGMA)
    found = noise.estimate(values, everything(values))
    assert found.how == "regression of each band on the others"
    assert found.sigma.shape == found.error.shape == (BANDS,)
    np.testing.assert_allclose(found.sigma, SIGMA, rtol=0.15)
    assert np.median(found.sigma / SIGMA) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("bands", [12, BANDS])
def test_what_noise_hides_of_the_signal_is_no_noise(bands):
    """The other bands are noisy, too: regression leaves σ² / (1 - h), h the leverage of a band."""
    sigma = np.linspace(0.04, 0.12, bands)
    values = noisy(low_rank(bands, side=96), sigma)
    q, _ = np.linalg.qr(spectra(bands) / sigma[:, None])
    h = (q**2).sum(axis=1)
    assert h.sum() == pytest.approx(RANK) and h.max() > 0.15
    left = noise._unshared_std(values.reshape(bands, -1))
    np.testing.assert_allclose(left, sigma / np.sqrt(1 - h), rtol=0.04)
    found = noise.estimate(values, everything(values)).sigma
    np.testing.assert_allclose(found, sigma, rtol=0.07)


def test_a_texture_that_few_bands_share_is_no_noise():
    """But for what noise hides of it: σ² / (1 - h), here with a leverage of 1 / 6 at most."""
    texture = 0.1 * np.random.default_rng(7).standard_normal((48, 48))  # white in space
    values = noisy(low_rank(6) + texture, np.full(6, 0.05))
    found = noise.estimate(values, everything(values))
    assert found.how == "regression of second differences between neighbouring pixels"
    assert (found.sigma > 0.95 * 0.05).all() and (found.sigma < 1.15 * 0.05 / np.sqrt(5 / 6)).all()


def test_white_noise_alone_is_estimated_without_bias_from_few_spectra():
    """8 regression parameters of 100 spectra are paid for."""
    clean, sigma = np.zeros((8, 10, 10)), np.full(8, 0.1)
    runs = [noise.estimate(noisy(clean, sigma, k), everything(clean)) for k in range(200)]
    assert "regression" in runs[0].how
    variance = np.mean([run.sigma**2 for run in runs])
    assert variance == pytest.approx(0.01, rel=0.02)


def test_a_texture_that_all_bands_share_is_no_noise():
    clean = low_rank()
    clean += np.random.default_rng(7).standard_normal(clean.shape[1:])  # white in space
    values = noisy(clean, SIGMA)
    found = noise.estimate(values, everything(values))
    np.testing.assert_allclose(found.sigma, SIGMA, rtol=0.15)


def test_no_noise_is_nearly_none():
    clean = low_rank()
    assert noise.estimate(clean, everything(clean)).sigma.max() < 1e-4 * clean.std()


def test_the_estimate_has_the_unit_of_the_values():
    values = noisy(low_rank(), SIGMA)
    one = noise.estimate(values, everything(values))
    other = noise.estimate(500 * values - 30, everything(values))
    np.testing.assert_allclose(other.sigma, 500 * one.sigma, rtol=1e-6)
    np.testing.assert_allclose(other.error, 500 * one.error, rtol=1e-4)


def test_missing_entries_have_no_influence():
    values = noisy(low_rank(), SIGMA)
    observed = np.random.default_rng(3).random(values.shape[1:]) > 0.2
    observed = np.broadcast_to(observed, values.shape)
    one = noise.estimate(np.where(observed, values, 0.0), observed)
    other = noise.estimate(np.where(observed, values, 1e9), observed)
    assert np.array_equal(one.sigma, other.sigma)
    np.testing.assert_allclose(one.sigma, SIGMA, rtol=0.15)


@pytest.mark.parametrize("bands", [BANDS, 4], ids=["regression", "differences"])
def test_the_error_bar_is_the_spread_over_repeated_noise(bands):
    clean, sigma = low_rank(bands), SIGMA[:bands]
    runs = [noise.estimate(v, everything(v)) for v in (noisy(clean, sigma, k) for k in range(20))]
    spread = np.median(np.std([run.sigma for run in runs], axis=0))
    stated = np.median([run.error for run in runs])
    assert 0.7 < stated / spread < 4  # it may be careful, never bold


def test_an_error_bar_shrinks_with_more_pixels():
    small, large = (noisy(low_rank(side=side), SIGMA) for side in (24, 96))
    errors = [np.median(noise.estimate(v, everything(v)).error) for v in (small, large)]
    assert 2 < errors[0] / errors[1] < 8  # 16 times the pixels: about 4


def test_few_bands_are_judged_by_their_neighbouring_pixels():
    values = noisy(low_rank(3), SIGMA[:3])
    found = noise.estimate(values, everything(values))
    assert "second differences" in found.how
    np.testing.assert_allclose(found.sigma, SIGMA[:3], rtol=0.1)


def test_a_single_band_has_an_unbiased_estimate_and_its_spread():
    clean, sigma = low_rank(1, side=32) / 50, SIGMA[:1]
    runs = [noise.estimate(v, everything(v)) for v in (noisy(clean, sigma, k) for k in range(60))]
    assert runs[0].how == "second differences between neighbouring pixels"
    each = np.array([run.sigma[0] for run in runs])
    assert each.mean() == pytest.approx(sigma[0], rel=0.02)
    assert 0.7 < np.median([run.error for run in runs]) / each.std() < 2


def test_where_bands_differ_fewer_bands_have_enough_complete_spectra():
    """Dead columns that differ by band leave few spectra complete; texture that all bands share
    is still no noise."""
    texture = np.random.default_rng(7).standard_normal((48, 48))  # white in space
    values = noisy(low_rank() + texture, SIGMA)
    observed = everything(values)
    for band in range(BANDS):
        observed[band, :, band] = False  # each band misses a column of its own: 8 are complete
    found = noise.estimate(np.where(observed, values, 1e9), observed)
    assert found.how == "regression of each band on the others"
    np.testing.assert_allclose(found.sigma, SIGMA, rtol=0.15)


@pytest.mark.parametrize("bands", [9, 12, 17])
def test_halves_of_the_bands_have_enough_bands_and_keep_their_order(bands):
    sigma = np.geomspace(0.01, 0.1, bands)
    values = noisy(low_rank(bands, side=64), sigma)
    observed = everything(values)
    observed[0, 4:] = observed[-1, :-4] = False  # no spectrum is complete
    found = noise.estimate(values, observed)
    assert found.sigma.shape == found.error.shape == (bands,)
    np.testing.assert_allclose(found.sigma, sigma, rtol=0.4)


def test_a_band_that_is_hardly_measured_spoils_only_those_nearby():
    texture = np.random.default_rng(7).standard_normal((48, 48))  # white in space
    values = noisy(low_rank() + texture, SIGMA)
    observed = everything(values)
    observed[0, 1:] = False
    found = noise.estimate(values, observed)
    assert found.how.startswith("second differences") and "and regression of each" in found.how
    np.testing.assert_allclose(found.sigma[5:], SIGMA[5:], rtol=0.25)


def test_few_complete_spectra_are_judged_by_their_neighbouring_pixels():
    values = noisy(low_rank(), SIGMA)
    observed = everything(values)
    for band in range(BANDS):  # any 8 adjacent bands have no complete spectrum
        observed[band] = np.arange(48) // 6 % 8 != band % 8
    found = noise.estimate(np.where(observed, values, 1e9), observed)
    assert found.how == "second differences between neighbouring pixels"
    np.testing.assert_allclose(found.sigma, SIGMA, rtol=0.25)


def test_second_differences_do_not_see_a_slope():
    plane = np.fromfunction(lambda b, r, c: 3 * r - 2 * c + r * 0.5, (2, 20, 20))
    assert noise.estimate(plane, everything(plane)).sigma.max() < 1e-10


@pytest.mark.parametrize("shape", [(3, 2, 20), (2, 9, 1)])
def test_too_small_to_estimate_is_reported(shape):
    values = np.random.default_rng(0).random(shape)
    found = noise.estimate(values, everything(values))
    assert not found.sigma.any() and np.isinf(found.error).all()


def test_nothing_whole_to_look_at_is_reported():
    values = np.random.default_rng(0).random((2, 20, 20))
    observed = np.indices((20, 20)).sum(0) % 2 == 0  # a chequered mask
    found = noise.estimate(values, np.broadcast_to(observed, values.shape))
    assert not found.sigma.any() and np.isinf(found.error).all()


def test_auto_takes_the_estimate_and_notes_it():
    values = 100 * noisy(low_rank(), SIGMA)
    observed = np.ones(values.shape[1:], bool)
    observed[:, 20:23] = False
    result = hydiff.fill(values, observed, method="smooth", sigma_y="auto")
    np.testing.assert_allclose(result.sigma_y, 100 * SIGMA, rtol=0.15)
    [note] = [note for note in result.notes if "estimated" in note]
    assert "sigma_y estimated by regression" in note and "±" in note and "% of the range" in note
    estimate = float(note.split(": ")[1].split(" ±")[0])
    assert estimate == pytest.approx(100 * np.median(SIGMA), rel=0.05)


def test_auto_says_so_when_it_falls_back():
    values = noisy(low_rank(4), SIGMA[:4])
    result = hydiff.fill(values, method="smooth", sigma_y="auto")
    assert "second differences" in result.notes[0]
    np.testing.assert_allclose(result.sigma_y, SIGMA[:4], rtol=0.1)


@pytest.mark.parametrize("detectors", [None, ["A"] * 20 + ["B"] * 20])
def test_bands_without_neighbouring_pixels_take_the_noise_of_bands_nearby(detectors):
    sigma = np.where(np.arange(BANDS) < 20, 0.05, 0.15)
    values = noisy(low_rank(), sigma)
    sparse = [12, 19, 20]
    values[sparse, 1:] = np.nan
    attrs = {} if detectors is None else {"detector": detectors}
    result = hydiff.fill(Cube(values, attrs=attrs), method="smooth", sigma_y="auto")
    at_edge = [0.05, 0.15] if detectors else [0.083, 0.117]  # without names, between two levels
    np.testing.assert_allclose(result.sigma_y[12], 0.05, rtol=0.3)
    np.testing.assert_allclose(result.sigma_y[[19, 20]], at_edge, rtol=0.3)
    [note] = [note for note in result.notes if "interpolated from other bands" in note]
    assert "in band 12, 19, 20:" in note


# --- a given std that the values contradict -----------------------------------------------------


def of_sentinel2(data_dir, rng):
    """Crops of all bands or some of the images for training, and gaps of several kinds."""
    with np.load(data_dir / "train" / "sentinel2.npz") as images:
        for name in images.files[::2]:
            image = images[name][: rng.integers(1, 11)].astype(float)
            top, left = (rng.integers(n - 71) for n in image.shape[1:])
            values = image[:, top : top + 72, left : left + 72]
            kind = rng.choice(["stripes", "blobs", "columns"])
            yield values, np.broadcast_to(make_mask(kind, values.shape, 0.25, rng), values.shape)


@pytest.mark.parametrize("std", [0.003, 0.03, 0.1, 0.3])
def test_a_note_says_that_the_given_noise_is_far_too_large_or_too_small(std, data_dir, rng):
    """Never where it is true; texture of images at low noise is not taken for noise."""
    noted = {1.0: [], 2.0: [], 0.5: []}
    for clean, observed in of_sentinel2(data_dir, rng):
        sigma = std * unit_scale(clean, observed, np.ones(len(clean), bool)).span
        values = clean + sigma * rng.standard_normal(clean.shape)
        for factor, notes in noted.items():
            cube = Cube(np.where(observed, values, 0))
            notes.append(bool(noise_level.doubts(factor * sigma, cube, observed)))
    assert not any(noted[1.0])
    if std >= 0.03:
        assert np.mean(noted[2.0]) > 0.7 and np.mean(noted[0.5]) > 0.5


def test_the_note_is_that_of_the_whole_cube_and_of_tiles(tmp_path):
    values = 100 * noisy(low_rank(), SIGMA)
    values[:, :, 20:23] = np.nan
    hydiff.write(values.astype("f4"), tmp_path / "in.bsq")
    for options in ((), ("--tile", "32")):
        given = ("--sigma-y", "16", "--method", "smooth", "--overwrite", *options)
        done = command.run("fill", tmp_path / "in.bsq", "-o", tmp_path / "out.bsq", *given)
        [line] = [line for line in done.stdout.splitlines() if "but the values show" in line]
        assert "sigma_y is 16 in the median band" in line and "noise of about 8" in line
        assert "--sigma-y auto takes the estimate" in line
    for stated in (0.0, "auto", list(100 * SIGMA)):
        result = hydiff.fill(tmp_path / "in.bsq", sigma_y=stated, method="smooth")
        assert not [note for note in result.notes if "but the values show" in note]
    result = hydiff.fill(
        tmp_path / "in.bsq", sigma_y=[*(0.0,) * 30, *(50.0,) * 10], method="smooth"
    )
    assert [note for note in result.notes if "but the values show" in note], "only what is given"


def test_noise_is_estimable_where_the_estimate_is_finite(rng):
    values = rng.standard_normal((5, 12, 12))
    for share in (0.2, 0.5, 0.8, 0.95):
        observed = rng.random(values.shape) < share
        found = noise.estimate(np.where(observed, values, 0.0), observed)
        expected = np.isfinite(np.median(found.error))
        assert noise.is_estimable(np.where(observed, values, 0.0), observed) == expected
