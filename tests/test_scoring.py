"""Scores of predictive distributions, against integrals, other formulas and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from hydiff import metrics
from hydiff.maths import scoring


@pytest.mark.parametrize(("error", "std"), [(0.0, 1.0), (1.3, 0.4), (-2.0, 3.0)])
def test_the_crps_of_a_gaussian_is_the_integral_that_defines_it(error: float, std: float) -> None:
    """∫ (F(t) − 1{t ≥ truth})² dt, the prediction at `error`, the truth at 0."""
    below = integrate.quad(lambda t: stats.norm.cdf(t, error, std) ** 2, -40, 0)[0]
    above = integrate.quad(lambda t: stats.norm.sf(t, error, std) ** 2, 0, 40)[0]
    found = scoring.crps_normal(np.array([error]), np.array([std]))
    assert found == pytest.approx([below + above], rel=1e-6)


def test_the_crps_of_samples_is_that_of_all_pairs_and_tends_to_the_closed_form(
    rng: np.random.Generator,
) -> None:
    few, truth = rng.standard_normal((7, 3)), np.array([0.2, -1.0, 4.0])
    pairs = np.abs(few[:, None] - few).sum(axis=(0, 1)) / (2 * 7 * 6)
    expected = np.abs(few - truth).mean(axis=0) - pairs
    assert scoring.crps_samples(few, truth) == pytest.approx(expected)
    many = 1.5 + 2 * rng.standard_normal((100_000, 1))
    closed = scoring.crps_normal(np.array([1.5]), np.array([2.0]))
    assert scoring.crps_samples(many, np.zeros(1)) == pytest.approx(closed, rel=0.02)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_the_interval_score_is_the_loss_of_two_quantiles(
    level: float, rng: np.random.Generator
) -> None:
    error, half, tail = rng.standard_normal(50), rng.uniform(0.1, 2, 50), (1 - level) / 2

    def pinball(share: float, over: np.ndarray) -> np.ndarray:
        return np.maximum(share * over, (share - 1) * over)

    low, high = error - half, error + half  # around the truth 0
    losses = pinball(tail, -low) + pinball(1 - tail, -high)
    assert scoring.interval_score(error, half, level) == pytest.approx(losses / tail)


def test_pit_is_the_distribution_at_the_truth_and_stretched_by_the_stated_intervals(
    rng: np.random.Generator,
) -> None:
    error, std = 3 * rng.standard_normal(1000), rng.uniform(0.5, 2, 1000)
    assert scoring.pit(error, std) == pytest.approx(stats.norm.cdf(-error / std))
    doubled = [2 * q for q in scoring.NORMAL_QUANTILES]
    assert scoring.pit(error, std, doubled) == pytest.approx(scoring.pit(error, 2 * std))


def test_curve_and_histogram_of_right_and_of_narrow_error_bars(rng: np.random.Generator) -> None:
    std = rng.uniform(1, 5, 40_000)
    error = std * rng.standard_normal(std.size)
    right, narrow = (scoring.verification(error, std / by) for by in (1, 2))
    assert right is not None and narrow is not None
    assert right.covered == pytest.approx(right.levels, abs=0.01)
    assert right.pit == pytest.approx([0.1] * 10, abs=0.01) and sum(narrow.pit) == pytest.approx(1)
    assert narrow.pit[0] > 0.2 < narrow.pit[-1] and narrow.covered[9] < right.covered[9]
    assert all(np.less(right.interval_score, narrow.interval_score))  # a proper score
    assert all(np.less(right.interval_score, right.interval_score_constant))


def test_repeated_measurements_are_counted_as_if_they_were_drawn(rng: np.random.Generator) -> None:
    std, noise = rng.uniform(0.5, 2, (2, 40_000))
    error = std * rng.standard_normal(std.size)
    found = scoring.verification(error, 1.5 * std, noise=noise)
    drawn = np.abs(error + noise * rng.standard_normal(noise.size))
    wide = np.hypot(1.5 * std, noise)
    inside = [np.mean(drawn <= q * wide) for q in scoring.NORMAL_QUANTILES]
    assert found is not None and found.repeated == pytest.approx(inside, abs=0.01)
    without = scoring.verification(error, std, noise=np.zeros(std.size))
    assert without is not None
    assert without.repeated == pytest.approx([without.covered[i] for i in (9, 15, 18)])


def test_the_curve_agrees_with_the_coverage_of_the_stated_intervals(
    rng: np.random.Generator,
) -> None:
    x, widths = rng.standard_t(4, 5000).reshape(5, 50, 20), (0.6, 1.28, 2.4)
    truth, sigma = np.zeros(x.shape), np.ones(x.shape)
    bars = metrics.calibration(x, truth, sigma, widths)
    error, std = metrics.errors_and_bars(x, truth, sigma)
    shares = scoring.reliability_curve(scoring.pit(error, std, widths), scoring.LEVELS)
    assert shares == pytest.approx(bars[:3])
    assert scoring.verification(error[:0], std[:0]) is None
