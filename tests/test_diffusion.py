"""Laws of the reverse diffusion: for every step, for every noise, for any estimator."""

import pytest
import torch

from hydiff.learn.diffusion import (
    State,
    consistent,
    linear_alpha_bar,
    posterior,
    pseudo_inverse,
    reverse_diffusion,
    trust_and_spare,
)

T = 1000
ALPHA_BAR = linear_alpha_bar()
EVERY_T = range(1, T + 1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def truth():
    """(1, 3, 8, 8) float64 in [0, 1]."""
    return torch.rand((1, 3, 8, 8), generator=seeded(1), dtype=torch.float64)


@pytest.fixture
def s(truth):
    """Two stripes are missing."""
    s = torch.ones_like(truth)
    s[..., 2:4] = 0
    s[..., 6] = 0
    return s


def run(y, s, estimate_x0, alpha_bar=ALPHA_BAR, sigma_y=0.0, seed=0, start=None, rng=None):
    sigma_y = torch.as_tensor(sigma_y, dtype=y.dtype)
    rng = rng or seeded(seed)
    return reverse_diffusion(y, s, estimate_x0, alpha_bar, sigma_y=sigma_y, rng=rng, start=start)


def last(chain):
    *_, state = chain
    return state


def wavering(truth):
    """An estimator that looks at all it is given: better with time, never exact."""
    return lambda x, x0, t: 0.7 * truth + 0.2 * x0.clamp(0, 1) + 0.1 * torch.tanh(x) + 0.1 * t / T


# The schedule


def test_the_schedule_starts_clean_and_ends_in_noise():
    assert ALPHA_BAR.dtype == torch.float64 and len(ALPHA_BAR) == T + 1
    assert ALPHA_BAR[0] == 1 and (ALPHA_BAR.diff() < 0).all()
    assert ALPHA_BAR[T].item() == pytest.approx(4.0e-5, rel=0.02)
    beta = 1 - ALPHA_BAR[1:] / ALPHA_BAR[:-1]
    torch.testing.assert_close(beta, 1e-4 + (0.02 - 1e-4) * torch.arange(T).double() / (T - 1))


def test_a_and_b_lead_the_mean_from_one_marginal_to_the_next():
    for t in EVERY_T:
        a, b, _ = posterior(ALPHA_BAR, t)
        now, before = ALPHA_BAR[t].item(), ALPHA_BAR[t - 1].item()
        assert a + b * now**0.5 == pytest.approx(before**0.5, rel=1e-12)


def test_b_and_sigma_lead_the_variance_from_one_marginal_to_the_next():
    for t in EVERY_T:
        _, b, sigma = posterior(ALPHA_BAR, t)
        now, before = ALPHA_BAR[t].item(), ALPHA_BAR[t - 1].item()
        assert b**2 * (1 - now) + sigma**2 == pytest.approx(1 - before, rel=1e-12, abs=1e-18)


def test_the_posterior_is_bayes_rule():
    for t in EVERY_T[1:]:
        a, b, sigma = posterior(ALPHA_BAR, t)
        now, before = ALPHA_BAR[t].item(), ALPHA_BAR[t - 1].item()
        alpha, beta = now / before, 1 - now / before
        precision = 1 / (1 - before) + alpha / beta  # of x_{t-1}: the prior's and x_t's
        assert sigma**2 == pytest.approx(1 / precision, rel=1e-9)
        assert a == pytest.approx(before**0.5 / (1 - before) / precision, rel=1e-9)
        assert b == pytest.approx(alpha**0.5 / beta / precision, rel=1e-9)


def test_the_last_step_adds_nothing():
    a, b, sigma = posterior(ALPHA_BAR, 1)
    assert (a, b, sigma) == (pytest.approx(1, rel=1e-12), 0, 0)


# Trust in the data, and the noise still to be added

SIGMAS = [
    torch.tensor(0.0, dtype=torch.float64),
    torch.tensor(0.2, dtype=torch.float64),
    torch.tensor([0.0, 0.05, 0.1, 0.6], dtype=torch.float64).view(4, 1),  # one per band
]
SINGULAR = torch.tensor([1.0, 0.8, 0.5, 0.01, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("sigma_y", SIGMAS, ids=["none", "scalar", "per band"])
def test_what_y_brings_and_what_is_added_make_sigma_t(sigma_y):
    seen = SINGULAR > 0
    for t in EVERY_T:
        a, _, sigma = posterior(ALPHA_BAR, t)
        trust, spare = trust_and_spare(a, sigma, sigma_y, SINGULAR)
        trust, spare = (torch.broadcast_to(v, (4, 5)) for v in (trust, spare))
        brought = a * trust[:, seen] * sigma_y / SINGULAR[seen]
        total = brought**2 + spare[:, seen] ** 2
        expected = torch.full_like(total, sigma**2)
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-18)
        missing = spare[:, ~seen]
        torch.testing.assert_close(missing, torch.full_like(missing, sigma), rtol=1e-12, atol=0)


@pytest.mark.parametrize("sigma_y", [0.0, 0.1, 0.3])
def test_trust_is_equation_12(sigma_y):
    for t in EVERY_T:
        a, _, sigma = posterior(ALPHA_BAR, t)
        trust, _ = trust_and_spare(a, sigma, torch.tensor(sigma_y, dtype=torch.float64), SINGULAR)
        for s, found in zip(SINGULAR.tolist(), trust.tolist(), strict=True):
            if s == 0 or sigma >= a * sigma_y / s:
                assert found == 1
            else:
                assert found == pytest.approx(sigma * s / (a * sigma_y), rel=1e-12)


def test_without_a_measurement_trust_is_one_and_all_noise_is_added():
    for t in EVERY_T:
        a, _, sigma = posterior(ALPHA_BAR, t)
        trust, spare = trust_and_spare(a, sigma, torch.tensor(0.3), torch.zeros(1))
        assert trust == 1 and spare.item() == pytest.approx(sigma, rel=1e-6)


@pytest.mark.parametrize(("sigma_y", "steps"), [(0.0, 0), (0.1, 9), (0.2, 16), (0.3, 22)])
def test_noisy_data_are_doubted_in_the_last_steps_only(sigma_y, steps):
    doubted = []
    for t in EVERY_T:
        a, _, sigma = posterior(ALPHA_BAR, t)
        trust, _ = trust_and_spare(a, sigma, torch.tensor(sigma_y), torch.ones(()))
        if trust < 1:
            doubted.append(t)
    assert doubted == list(range(1, steps + 1))


def test_at_the_end_noisy_data_are_not_trusted_at_all():
    a, _, sigma = posterior(ALPHA_BAR, 1)
    trust, spare = trust_and_spare(a, sigma, torch.tensor([0.0, 0.1]), torch.ones(()))
    assert trust.tolist() == [1, 0] and not spare.any()


# The consistency step


def believed(s):
    """Full trust where something is measured."""
    return (s > 0).to(s.dtype)


def test_the_pseudo_inverse_is_that_of_the_matrix():
    matrix = torch.linalg.pinv(SINGULAR.diag())
    y = torch.rand(5, generator=seeded(3), dtype=torch.float64)
    torch.testing.assert_close(pseudo_inverse(y, SINGULAR), matrix @ y)


def test_consistency_meets_the_measurement(truth):
    s = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64).view(3, 1, 1).expand_as(truth)
    y = s * truth
    x0 = consistent(torch.zeros_like(truth), pseudo_inverse(y, s), believed(s))
    torch.testing.assert_close(s * x0, y, rtol=1e-15, atol=0)
    torch.testing.assert_close(x0[:, :2], truth[:, :2], rtol=1e-15, atol=0)


def test_consistency_is_a_projection(truth):
    s = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64).view(3, 1, 1).expand_as(truth)
    y, x0_hat = s * truth, torch.rand(truth.shape, generator=seeded(2), dtype=truth.dtype)
    measured = pseudo_inverse(y, s)
    once = consistent(x0_hat, measured, believed(s))
    assert torch.equal(consistent(once, measured, believed(s)), once)
    assert torch.equal(once[:, 2], x0_hat[:, 2])  # nothing is known there
    assert torch.equal(once[:, 0], y[:, 0])  # to the bit
    apart = (once - x0_hat).square().sum()
    torch.testing.assert_close(apart, (truth - x0_hat)[:, :2].square().sum())  # the nearest such


@pytest.mark.parametrize("trust", [0.0, 0.3, 1.0])
def test_partial_trust_is_equation_11(truth, trust):
    s = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64).view(3, 1, 1).expand_as(truth)
    y, x0_hat = s * truth, torch.rand(truth.shape, generator=seeded(2), dtype=truth.dtype)
    inverse = torch.where(s > 0, 1 / s, 0.0)
    expected = x0_hat - trust * inverse * (s * x0_hat - y)
    found = consistent(x0_hat, pseudo_inverse(y, s), trust * believed(s))
    torch.testing.assert_close(found, expected)


# The loop


@pytest.mark.parametrize("sigma_y", [0.0, 0.2])
def test_an_oracle_gets_the_truth_back(truth, s, sigma_y):
    y = s * (truth + sigma_y * torch.randn(truth.shape, generator=seeded(3), dtype=truth.dtype))
    states = list(run(y, s, lambda x, x0, t: truth, sigma_y=sigma_y))
    assert [state.t for state in states] == list(range(T, 0, -1))
    assert torch.equal(states[-1].x0, truth)  # without noise y is the truth, with noise λ_1 = 0
    torch.testing.assert_close(states[-1].x, states[-1].x0, rtol=1e-12, atol=0)  # a_1 = 1


def test_each_state_holds_what_the_estimator_said(truth, s):
    said = {}

    def estimate(x, x0, t):
        said[t] = torch.rand(x.shape, generator=seeded(t), dtype=x.dtype)
        return said[t]

    for state in run(s * truth, s, estimate, linear_alpha_bar(20)):
        assert torch.equal(state.x0_hat, said[state.t])
        assert torch.equal(state.x0[s == 0], state.x0_hat[s == 0])


def test_the_estimator_sees_the_chain_and_the_last_estimate(truth, s):
    y, calls = s * truth, []

    def estimate(x, x0, t):
        calls.append((x, x0, t))
        return 0.5 * truth

    states = list(run(y, s, estimate, linear_alpha_bar(20)))
    assert torch.equal(calls[0][1], y) and calls[0][2] == 20
    for (x, x0, t), before in zip(calls[1:], states, strict=False):
        assert torch.equal(x, before.x) and torch.equal(x0, before.x0) and t == before.t - 1


def test_the_start_is_y_diffused(truth, s):
    """x_T = √ᾱ_T y + √(1-ᾱ_T) ε, distinguished by a schedule that is short enough to see y."""
    alpha_bar, started = linear_alpha_bar(3), []
    next(run(s * truth, s, lambda x, x0, t: started.append(x) or truth, alpha_bar))
    eps = torch.randn(truth.shape, generator=seeded(), dtype=truth.dtype)
    now = alpha_bar[3].item()
    torch.testing.assert_close(started[0], now**0.5 * s * truth + (1 - now) ** 0.5 * eps)


def test_observed_entries_survive_to_the_bit_without_noise(truth, s):
    y, seen = s * truth, s > 0
    for state in run(y, s, wavering(truth)):
        assert torch.equal(state.x0[seen], y[seen])
    torch.testing.assert_close(state.x[seen], y[seen], rtol=1e-12, atol=0)


def test_with_noise_the_last_estimate_is_the_estimator_s_own(truth, s):
    state = last(run(s * truth, s, wavering(truth), sigma_y=0.1))
    assert torch.equal(state.x0, state.x0_hat)


def algorithm_1(y, observed, estimate_x0, T, rng):
    """The noiseless algorithm, written out from the paper alone."""
    beta = [1e-4 + (0.02 - 1e-4) * i / (T - 1) for i in range(T)]
    alpha_bar, product = [1.0], 1.0
    for b in beta:
        product *= 1 - b
        alpha_bar.append(product)

    def gauss():
        return torch.randn(y.shape, generator=rng, dtype=y.dtype)

    x, x0 = alpha_bar[T] ** 0.5 * y + (1 - alpha_bar[T]) ** 0.5 * gauss(), y
    for t in range(T, 0, -1):
        x0_hat = estimate_x0(x, x0, t)
        x0 = y + torch.where(observed, 0.0, x0_hat)
        variance = (1 - alpha_bar[t - 1]) / (1 - alpha_bar[t]) * beta[t - 1]
        mean = alpha_bar[t - 1] ** 0.5 * beta[t - 1] * x0
        mean = mean + (1 - beta[t - 1]) ** 0.5 * (1 - alpha_bar[t - 1]) * x
        x = mean / (1 - alpha_bar[t]) + variance**0.5 * gauss()
    return x


def test_without_noise_the_loop_is_algorithm_1(truth, s):
    y = s * truth
    expected = algorithm_1(y, s > 0, wavering(truth), 100, seeded(4))
    alpha_bar = linear_alpha_bar(100)
    found = last(run(y, s, wavering(truth), alpha_bar, seed=4)).x
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_vanishing_noise_leads_to_algorithm_1(truth, s):
    """Γ → σ² and λ → 1 for every t > 1; at t = 1 the estimator has the last word."""
    y, alpha_bar = s * truth, linear_alpha_bar(100)
    limit = list(run(y, s, wavering(truth), alpha_bar, seed=4))
    distances = []
    for sigma_y in (1e-1, 1e-3, 1e-5):
        near = list(run(y, s, wavering(truth), alpha_bar, sigma_y=sigma_y, seed=4))
        both = zip(near[:-1], limit[:-1], strict=True)
        distances.append(max((p.x - q.x).abs().max().item() for p, q in both))
    assert distances[0] > distances[1] > distances[2] and distances[2] < 1e-6


def many(truth_value, n=40_000):
    return torch.full((1, 1, 200, n // 200), truth_value, dtype=torch.float64)


def test_under_an_oracle_x_t_has_the_variance_of_the_schedule():
    x0 = many(0.4)
    alpha_bar = linear_alpha_bar(60, 1e-3, 0.2)
    for state in run(x0, torch.ones_like(x0), lambda x, last, t: x0, alpha_bar):
        now = alpha_bar[state.t - 1].item()
        deviation = state.x - now**0.5 * x0
        assert deviation.var().item() == pytest.approx(1 - now, rel=0.05, abs=1e-12)
        assert abs(deviation.mean().item()) <= 5 * ((1 - now) / x0.numel()) ** 0.5 + 1e-12


@pytest.mark.parametrize("t", [2, 5, 20, 200])
@pytest.mark.parametrize("s", [1.0, 0.5, 0.0])
def test_noise_of_the_data_takes_the_place_of_noise_of_the_chain(t, s):
    """One step from the exact x_t with a fresh measurement: the exact marginal of x_{t-1}."""
    sigma_y, rng, x0 = 0.2, seeded(5), many(0.4)

    def gauss():
        return torch.randn(x0.shape, generator=rng, dtype=x0.dtype)

    now, before = ALPHA_BAR[t].item(), ALPHA_BAR[t - 1].item()
    x = now**0.5 * x0 + (1 - now) ** 0.5 * gauss()
    y = s * x0 + (sigma_y * gauss() if s else 0.0)
    start = State(t + 1, x0, x0, x)
    singular = torch.full_like(x0, s)
    state = next(run(y, singular, lambda x, last, t: x0, sigma_y=sigma_y, start=start, rng=rng))
    assert state.t == t
    assert state.x.mean().item() == pytest.approx(before**0.5 * 0.4, abs=5e-3)
    assert state.x.var().item() == pytest.approx(1 - before, rel=0.04)


@pytest.mark.parametrize("sigma_y", [0.0, 0.2])
def test_the_chain_goes_on_from_any_state(truth, s, sigma_y):
    y, alpha_bar, rng = s * truth, linear_alpha_bar(30), seeded(6)
    states, randomness = [], []
    for state in run(y, s, wavering(truth), alpha_bar, sigma_y, rng=rng):
        states.append(state)
        randomness.append(rng.get_state())
    for i in (0, 7, 28):
        again = seeded()
        again.set_state(randomness[i])
        tail = run(y, s, wavering(truth), alpha_bar, sigma_y, rng=again, start=states[i])
        for one, other in zip(tail, states[i + 1 :], strict=True):
            assert one.t == other.t
            assert all(torch.equal(p, q) for p, q in zip(one[1:], other[1:], strict=True))
    assert list(run(y, s, wavering(truth), alpha_bar, sigma_y, start=states[-1])) == []


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(truth, s):
    y, alpha_bar = s * truth, linear_alpha_bar(30)
    one, same, other = (
        last(run(y, s, wavering(truth), alpha_bar, 0.1, seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one.x, same.x) and not torch.equal(one.x, other.x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_the_dtype_is_kept(truth, s, dtype, sigma_y):
    truth, s = truth.to(dtype), s.to(dtype)
    for state in run(s * truth, s, wavering(truth), linear_alpha_bar(5), sigma_y):
        assert {state.x0_hat.dtype, state.x0.dtype, state.x.dtype} == {dtype}


def test_the_measurement_is_never_modified(truth, s):
    y = s * truth
    before = y.clone()
    last(run(y, s, wavering(truth), linear_alpha_bar(10), 0.1))
    assert torch.equal(y, before)
