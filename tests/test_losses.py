"""Laws of the objective: what each term measures, and where its gradients go."""

import pytest
import torch
from torch.nn import functional as F

from hydiff.learn import losses, network, transforms
from hydiff.learn.diffusion import linear_alpha_bar, posterior
from hydiff.learn.transforms import Transform

ALPHA_BAR = linear_alpha_bar()
SIX = list(transforms.SPATIAL)
ALL = torch.ones((), dtype=torch.bool)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=seeded(seed), dtype=torch.float64)


@pytest.fixture
def image():
    return uniform(1, 3, 8, 8, seed=1)


@pytest.fixture
def observed():
    observed = torch.ones(1, 3, 8, 8, dtype=torch.bool)
    observed[..., 2:4] = False
    observed[:, 0, 6] = False  # one band misses more
    return observed


# Data fidelity: three readings of ε_0


def test_implied_noise_cancels_the_state(image):
    for t in (1000, 500, 1):
        now = ALPHA_BAR[t].item()
        targets = [
            losses.denoised_state(uniform(1, 3, 8, 8, seed=k), image, now, "implied", seeded())
            for k in (2, 3)
        ]
        assert torch.equal(*targets)
        x = uniform(1, 3, 8, 8, seed=2)
        eps0 = (x - now**0.5 * image) / (1 - now) ** 0.5  # the noise that x carries
        torch.testing.assert_close(targets[0], x - (1 - now) ** 0.5 * eps0)


def test_no_noise_leaves_the_state_as_the_target(image):
    x = uniform(1, 3, 8, 8, seed=2)
    assert torch.equal(losses.denoised_state(x, image, 0.3, "none", seeded()), x)


def test_fresh_noise_is_what_remains_of_a_diffused_image(image):
    x, now = uniform(1, 3, 8, 8, seed=2), 0.3
    eps = torch.randn(x.shape, generator=seeded(7), dtype=x.dtype)
    found = losses.denoised_state(x, image, now, "fresh", seeded(7))
    torch.testing.assert_close(found, x - 0.7**0.5 * eps)


def test_the_expected_gradient_of_fresh_is_that_of_none():
    n, now = 20_000, 0.3
    x, y = uniform(4, 5, seed=2), uniform(5, seed=3)
    theta = uniform(4, 5, seed=4).requires_grad_()

    def gradient(x, target):
        loss = (target - now**0.5 * theta * y).square().mean(dim=(-2, -1)).mean()
        return torch.autograd.grad(loss, theta)[0]

    one = gradient(x, losses.denoised_state(x, x, now, "none", seeded()))
    copies = x.expand(n, 4, 5)
    fresh = losses.denoised_state(copies, copies, now, "fresh", seeded(8))
    many = gradient(copies, fresh)
    slope = 2 / 20 * now**0.5 * y  # of the gradient in the target: std of the mean below
    error = slope * (0.7 / n) ** 0.5
    assert ((many - one).abs() < 5 * error).all()
    single = gradient(x, losses.denoised_state(x, x, now, "fresh", seeded(8)))
    assert ((single - one).abs() > 5 * error).any()  # one draw is far off: the gradient noise


def test_only_fresh_draws_random_numbers(image):
    for reading in losses.READINGS:
        rng = seeded()
        before = rng.get_state()
        losses.denoised_state(image, image, 0.5, reading, rng)
        assert torch.equal(rng.get_state(), before) == (reading != "fresh")


def test_the_full_weighting_is_the_distance_of_the_posterior_means():
    """weight ᾱ_t = a_t²: the term is then |a_t (x̃_0 - f)|², as in the supplement."""
    for t in range(1, 1001):
        a, _, _ = posterior(ALPHA_BAR, t)
        now, before = ALPHA_BAR[t].item(), ALPHA_BAR[t - 1].item()
        weight = losses.term_weight(ALPHA_BAR, t, "full")
        assert weight * now == pytest.approx(a**2, rel=1e-10)
        beta, alpha = 1 - now / before, now / before
        assert weight == pytest.approx((beta / (alpha**0.5 * (1 - now))) ** 2, rel=1e-10)
        assert losses.term_weight(ALPHA_BAR, t, "simple") == 1


# Means


def test_only_entries_that_count_are_counted(image, observed):
    expected = image[observed].square().mean()
    torch.testing.assert_close(losses.mean_square(image, observed), expected)
    elsewhere = torch.where(observed, image, 1e6)
    torch.testing.assert_close(losses.mean_square(elsewhere, observed), expected)


def test_a_mask_of_one_band_counts_for_all(image):
    where = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    where[..., :3] = True
    expected = image[..., :3].square().mean()
    torch.testing.assert_close(losses.mean_square(image, where), expected)


def test_a_mean_over_nothing_is_zero(image):
    assert losses.mean_square(image, ~ALL) == 0


# Equivariance


def smooth(x):
    """A network's stand-in: it mixes neighbours and bands, is not linear, knows its place."""
    kernel = uniform(3, 3, 3, 3, seed=9) / 9
    ramp = torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)
    return torch.sigmoid(F.conv2d(x, kernel, padding=1) + ramp - 1)


def ei(f, x0_hat, observed=ALL, drawn=(Transform("rotation", (1,)),), inside=ALL, sigma_y=None):
    observed, inside = observed.expand_as(x0_hat), inside.expand_as(x0_hat[:, :1])
    return losses.equivariance(f, x0_hat, observed, sigma_y, drawn, inside, seeded(3))


@pytest.mark.parametrize("name", SIX)
def test_a_system_that_loses_nothing_has_no_equivariance_error(image, name):
    drawn = transforms.draw(name, (8, 8), seeded(), 1)
    assert ei(lambda x: x, image, drawn=drawn) == 0
    assert ei(lambda x: x, image, observed=~ALL, drawn=drawn) > 0


def test_copies_answered_together_are_those_answered_one_by_one(image, observed):
    drawn = transforms.draw("rotation", (8, 8), seeded(), 7, merge=False)
    sigma_y = torch.full((1, 1, 1, 1), 0.1, dtype=torch.float64)
    net = network.build(3, channels=4, scales=1, seed=0).double()
    one, other = (
        losses.equivariance(
            net, image, observed, sigma_y, drawn, None, seeded(3), together=together
        )
        for together in (False, True)
    )
    torch.testing.assert_close(one, other)


def test_equal_transforms_that_stay_apart_carry_noises_of_their_own(image, observed):
    met = []
    drawn = [Transform("rotation", (1,), 0.5)] * 2
    sigma_y = torch.full((1, 1, 1, 1), 0.1, dtype=torch.float64)
    losses.equivariance(
        lambda x: met.append(x) or x, image, observed, sigma_y, drawn, None, seeded(), together=True
    )
    first, second = met[0]
    assert not torch.equal(first, second) and not (first - second)[~observed[0]].any()
    spread = (first - second)[observed[0]].std() / 2**0.5
    assert 0.07 < spread < 0.13


def test_a_constant_satisfies_equivariance_for_any_mask(image, observed):
    """The collapse that the data term has to prevent."""
    constant = torch.full_like(image, 0.3)
    assert ei(lambda x: constant, constant, observed) == 0


def test_the_term_is_equation_5(image, observed):
    x_g = image.rot90(1, (-2, -1))
    expected = (x_g - smooth(torch.where(observed, x_g, 0.0))).square().mean()
    torch.testing.assert_close(ei(smooth, image, observed), expected)


@pytest.mark.parametrize("name", SIX)
def test_the_mask_stays_where_it_is(image, observed, name):
    met = []
    drawn = transforms.draw(name, (8, 8), seeded(1), 1)
    ei(lambda x: met.append(x) or x, image, observed, drawn)
    assert not met[0][~observed].any()
    assert torch.equal(met[0][observed], drawn[0](image)[observed])


def test_gradients_flow_through_both_branches(image, observed):
    def gradient(x0_hat_of, f_of):
        w = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        loss = ei(lambda x: f_of(w) * x, x0_hat_of(w) * image, observed)
        return torch.autograd.grad(loss, w)[0].item()

    both = gradient(lambda w: w, lambda w: w)
    outer = gradient(lambda w: w.detach(), lambda w: w)
    inner = gradient(lambda w: w, lambda w: w.detach())
    # mean (w r - w² M r)² with r = T_g y
    w, r, M = 0.7, image.rot90(1, (-2, -1)), observed.double()
    by_hand = (2 * (w * r - w**2 * M * r) * (r - 2 * w * M * r)).mean().item()
    assert both == pytest.approx(by_hand, rel=1e-12)
    assert both == pytest.approx(outer + inner, rel=1e-12)
    assert abs(outer) > 1e-4 and abs(inner) > 1e-4


@pytest.mark.parametrize("name", SIX)
def test_equal_transforms_are_computed_once_with_their_weight(image, observed, name):
    drawn = transforms.draw(name, (8, 8), seeded(2), 7)
    copies = [
        Transform(g.name, g.parameters, 1 / 7) for g in drawn for _ in range(round(7 * g.weight))
    ]
    assert len(copies) == 7
    if name == "rotation":
        assert len(drawn) == 4
    one, seven = ei(smooth, image, observed, drawn), ei(smooth, image, observed, copies)
    torch.testing.assert_close(one, seven)
    each = [ei(smooth, image, observed, [Transform(g.name, g.parameters)]) for g in copies]
    torch.testing.assert_close(one, torch.stack(each).mean())


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("shape", [(5, 8), (8, 3)])
def test_the_padding_of_a_cube_has_no_influence(name, shape):
    inside, _ = transforms.to_square(torch.ones(1, 1, *shape, dtype=torch.bool))
    observed = inside.expand(1, 3, 8, 8).clone()
    observed[..., 1] = False
    image = uniform(1, 3, 8, 8, seed=1).requires_grad_()
    f = network.build(3, channels=4, scales=2, seed=0).double()
    leak = 1e-3 if name in transforms.INTERPOLATION else 0.0  # of rounding in the weights
    for seed in range(20):
        drawn = transforms.draw(name, (8, 8), seeded(seed), 1)
        loss = ei(f, image, observed, drawn, inside)
        (gradient,) = torch.autograd.grad(loss, image)
        assert gradient[~inside.expand_as(image)].abs().max() <= leak * gradient.abs().max()
        elsewhere = torch.where(inside, image, 5.0)
        again = ei(f, elsewhere, observed, drawn, inside)
        torch.testing.assert_close(again, loss, rtol=leak, atol=0)


def test_what_f_says_of_the_padding_does_not_count():
    inside, _ = transforms.to_square(torch.ones(1, 1, 5, 8, dtype=torch.bool))
    image, drawn = uniform(1, 3, 8, 8), [Transform("rotation", (1,))]
    one = ei(smooth, image, inside, drawn, inside)
    other = ei(lambda x: torch.where(inside, smooth(x), 99.0), image, inside, drawn, inside)
    assert torch.equal(one, other) and one > 0


def test_what_comes_from_the_padding_is_not_a_measurement():
    inside, _ = transforms.to_square(torch.ones(1, 1, 4, 8, dtype=torch.bool))
    met, image = [], uniform(1, 2, 8, 8) + 1
    ei(lambda x: met.append(x) or x, image, inside, [Transform("rotation", (1,))], inside)
    # the upper half of the turned image is inside; half of that was padding before the turn
    assert met[0].count_nonzero() == 2 * 4 * 4


def test_fresh_noise_lands_on_measured_entries_with_the_std_of_each_band():
    x = uniform(1, 3, 60, 60)
    observed = torch.rand(x.shape, generator=seeded(4)) > 0.3
    sigma_y = torch.tensor([0.0, 0.1, 0.4], dtype=x.dtype).view(1, 3, 1, 1)
    y = losses.remeasure(x, observed, sigma_y, seeded(5))
    assert not y[~observed].any()
    for band, sigma in enumerate((0.0, 0.1, 0.4)):
        seen = observed[0, band]
        assert (y - x)[0, band][seen].std().item() == pytest.approx(sigma, rel=0.06)
    assert not torch.equal(y, losses.remeasure(x, observed, sigma_y, seeded(6)))
    rng = seeded(5)
    losses.remeasure(x, observed, sigma_y, rng)
    assert not torch.equal(losses.remeasure(x, observed, sigma_y, rng), y)  # fresh each time


def test_without_noise_nothing_is_drawn(image, observed):
    rng = seeded()
    before = rng.get_state()
    assert torch.equal(losses.remeasure(image, observed, None, rng), image * observed)
    assert torch.equal(rng.get_state(), before)


def test_the_equivariance_term_measures_with_the_noise(image, observed):
    met = []
    sigma_y = torch.full((1, 3, 1, 1), 0.2, dtype=torch.float64)
    ei(lambda x: met.append(x) or x, image, observed, sigma_y=sigma_y)
    noise = (met[0] - image.rot90(1, (-2, -1)))[observed]
    assert noise.std().item() == pytest.approx(0.2, rel=0.25)


# SURE


def risk_by_formula(W, y, sigma, m):
    """|M(Wy - y)|²/m - mean σ² + 2 Σ σ_i² W_ii / m over the m observed entries: no probe."""
    seen = m.bool()
    fit = ((W @ y - y)[seen] ** 2).mean()
    divergence = (2 * sigma**2 * W.diagonal())[seen].mean()
    return fit - (sigma**2)[seen].mean() + divergence


@pytest.fixture
def linear():
    """A linear map on (1, 2, 3, 3), the std of each of its two bands, and a mask."""
    W = 0.3 * uniform(18, 18, seed=5) - 0.1 + 0.8 * torch.eye(18, dtype=torch.float64)
    sigma_y = torch.tensor([0.1, 0.4], dtype=torch.float64).view(1, 2, 1, 1)
    observed = torch.ones(1, 2, 3, 3, dtype=torch.bool)
    observed[0, 0, 1] = observed[0, 1, :, 2] = False
    return W, sigma_y, observed


def apply(W):
    return lambda x: (x.flatten(1) @ W.T).view_as(x)


def test_the_probe_of_sure_is_right_on_average(linear):
    W, sigma_y, observed = linear
    y = uniform(1, 2, 3, 3, seed=6) * observed
    f, n = apply(W), 40_000
    copies = y.expand(n, -1, -1, -1)
    mean = losses.sure(f, copies, f(copies), observed, sigma_y, seeded(7)).item()
    sigma = sigma_y.expand_as(y).flatten()
    expected = risk_by_formula(W, y.flatten(), sigma, observed.flatten())
    assert mean == pytest.approx(expected.item(), abs=2e-3)


def test_sure_is_the_true_risk_on_average(linear):
    W, sigma_y, observed = linear
    x, f, n = uniform(1, 2, 3, 3, seed=6), apply(W), 100_000
    noise = torch.randn((n, 2, 3, 3), generator=seeded(8), dtype=x.dtype)
    y = (x + sigma_y * noise) * observed
    estimate = losses.sure(f, y, f(y), observed, sigma_y, seeded(9)).item()
    risk = losses.mean_square(f(y) - x, observed).item()
    assert estimate == pytest.approx(risk, abs=2e-3)
    fit = losses.mean_square(f(y) - y, observed).item()
    assert abs(fit - risk) > 0.02  # which the residual is not


def test_sure_does_not_look_at_missing_entries(linear):
    W, sigma_y, observed = linear
    W = torch.where(observed.flatten(), W, 0.0)  # a map that ignores them
    y = uniform(1, 2, 3, 3, seed=6)
    f = apply(W)
    one = losses.sure(f, y, f(y), observed, sigma_y, seeded())
    other = torch.where(observed, y, 9.0)
    torch.testing.assert_close(losses.sure(f, other, f(other), observed, sigma_y, seeded()), one)


def test_sure_probes_observed_entries_only(linear):
    _, sigma_y, observed = linear
    y, met = uniform(1, 2, 3, 3, seed=6) * observed, []
    losses.sure(lambda x: met.append(x) or x, y, y, observed, sigma_y, seeded())
    assert torch.equal(met[0] != y, observed)


def test_sure_without_noise_is_the_data_term(image, observed):
    x0_hat, y = smooth(image), image * observed
    found = losses.sure(smooth, y, x0_hat, observed, torch.zeros(1, 3, 1, 1), seeded())
    torch.testing.assert_close(found, losses.mean_square(x0_hat - y, observed))


def test_sure_punishes_the_identity(image, observed):
    """f = id has no residual, but its risk is σ²: -σ² + 2σ²."""
    sigma_y = torch.full((1, 3, 1, 1), 0.3, dtype=torch.float64)
    y = (image * observed).expand(2000, -1, -1, -1)
    found = losses.sure(lambda x: x, y, y, observed, sigma_y, seeded())
    assert found.item() == pytest.approx(0.09, rel=0.02)


def test_the_step_of_the_probe_does_not_matter_where_f_is_straight(linear):
    W, sigma_y, observed = linear
    y, f = uniform(1, 2, 3, 3, seed=6), apply(W)
    args = (f, y, f(y), observed, sigma_y)
    fine, coarse = (losses.sure(*args, seeded(), tau=tau) for tau in (1e-3, 1.0))
    torch.testing.assert_close(fine, coarse)


def test_the_data_term_with_the_true_risk_is_that_of_clean_data(image, observed):
    """The gaps keep their part, and the risk stands for the measured entries, by their share."""
    miss, where = smooth(image) - image, torch.ones(1, 1, *image.shape[2:], dtype=torch.bool)
    plain = losses.mean_square(miss, None)
    for counted in (None, where, observed):
        risk = losses.mean_square(miss, observed)
        found = losses.data(torch.where(observed, 9.0, miss), counted, risk, observed)
        expected = plain if counted is not observed else risk
        torch.testing.assert_close(found, expected)
    assert torch.equal(losses.data(miss, None, None, observed), plain)
