"""Laws of a fit: a step is Adam's step, and a saved fit goes on as if nothing had happened."""

import numpy as np
import pytest
import torch
from torch import nn

from hydiff import network
from hydiff.engine import Fit
from hydiff.errors import BadValue


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


Y = torch.rand((1, 3, 12, 12), generator=seeded(1))


def fit(seed=0, **options):
    net = network.build(3, channels=4, scales=2, seed=seed)
    return Fit(net, rng=seeded(2), **{"lr": 0.01, "engine": "eager"} | options)


def objective(fit):
    """Two terms, one of them random, and the estimate."""

    def terms(variant):
        estimate = fit.network(Y)
        noise = torch.randn(Y.shape, generator=fit.rng)
        data = (estimate - Y).square().mean()
        return torch.stack([data, (variant or 0.0) * (estimate * noise).mean()]), estimate

    return terms


def steps(fit, n):
    return [fit.step(objective(fit), 0.1 * i) for i in range(n)]


def weights(fit):
    return [p.detach().clone() for p in fit.network.parameters()]


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one, other, strict=True))


def test_a_step_is_the_step_of_adam():
    """Kingma and Ba, Algorithm 1, β = 0.9 and 0.999, ε = 1e-8: written out."""
    lr, w = 0.03, torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    net = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    net.weight.data.copy_(w)
    a_fit = Fit(net, lr=lr, rng=seeded(), engine="eager")
    x = torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64)
    m, v = torch.zeros(3), torch.zeros(3)
    for i in range(1, 6):
        losses, _ = a_fit.step(lambda _: (torch.stack([net(x)[0] ** 2, net(x)[0]]), net(x)))
        out = w @ x
        torch.testing.assert_close(losses, torch.stack([out**2, out]))  # before the step
        g = (2 * out + 1) * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - lr * (m / (1 - 0.9**i)) / ((v / (1 - 0.999**i)).sqrt() + 1e-8)
        torch.testing.assert_close(net.weight.data[0], w, rtol=1e-12, atol=0)


def test_the_estimate_is_of_the_pass_that_gave_the_gradient():
    one = fit()
    before = one.network(Y).detach()
    _, estimate = one.step(objective(one))
    assert torch.equal(estimate, before) and not torch.equal(one.network(Y), before)


def test_losses_and_estimate_are_detached():
    one = fit()
    losses, estimate = one.step(objective(one))
    assert not losses.requires_grad and not estimate.requires_grad


def test_the_variant_reaches_the_objective():
    met, one = [], fit()

    def terms(variant):
        met.append(variant)
        return one.network(Y).mean()[None], Y

    one.step(terms, ("rotation", 3))
    one.step(terms)
    assert met == [("rotation", 3), None]


def test_a_fit_can_be_repeated():
    one, other = fit(), fit()
    steps(one, 4), steps(other, 4)
    assert same(weights(one), weights(other))


@pytest.mark.parametrize("done", [0, 1, 5])
def test_a_saved_fit_goes_on_bit_for_bit(done):
    one = fit()
    steps(one, done)
    state = one.state()
    expected = steps(one, 4)
    other = fit(seed=9)  # other weights, other randomness
    other.rng.manual_seed(5)
    other.load(state)
    for (p, x), (q, z) in zip(steps(other, 4), expected, strict=True):
        assert torch.equal(p, q) and torch.equal(x, z)
    assert same(weights(one), weights(other))


def test_a_saved_state_is_not_changed_by_what_follows():
    one = fit()
    steps(one, 2)
    state = one.state()
    before = {k: v.clone() for k, v in state.items()}
    steps(one, 2)
    other = fit(seed=9)
    other.load(state)
    steps(other, 2)
    assert all(torch.equal(state[k], before[k]) for k in before)


def test_the_state_is_tensors_on_the_cpu_with_plain_names():
    one = fit()
    steps(one, 1)
    state = one.state()
    assert all(isinstance(v, torch.Tensor) and v.device.type == "cpu" for v in state.values())
    n = len(weights(one))
    assert sum(k.startswith("network.") for k in state) == n
    assert sum(k.startswith("adam.") for k in state) == 3 * n and "rng" in state


def test_randomness_of_another_device_is_refused_in_words():
    one = fit()
    state = one.state() | {"rng": torch.zeros(16, dtype=torch.uint8)}  # as a GPU has it
    with pytest.raises(BadValue, match="device"):
        one.load(state)


def test_an_unknown_engine_is_refused():
    with pytest.raises(BadValue, match="engine = 'fast': expected one of auto, eager, graph"):
        fit(engine="fast")


def test_graphs_are_refused_on_a_cpu():
    with pytest.raises(BadValue, match="use engine = 'eager'"):
        fit(engine="graph")


def test_auto_is_eager_on_a_cpu():
    one, other = fit(engine="auto"), fit(engine="eager")
    steps(one, 3), steps(other, 3)
    assert same(weights(one), weights(other)) and not one.graphs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnAGPU:
    """Run these on a machine with one: `python -m pytest tests/test_engine.py -k GPU`."""

    def fill(self, **settings):
        import hydiff

        cube = np.random.default_rng(0).random((6, 40, 40))
        observed = np.ones((40, 40), bool)
        observed[:, 10:15] = False
        small = {"method": "hydiff-ei", "steps": 20, "channels": 8, "scales": 3}
        return hydiff.fill(cube, observed, device="cuda", **small, **settings).values

    def test_deterministic_runs_give_the_same_bytes(self):
        one, other = (self.fill(deterministic=True) for _ in range(2))
        assert np.array_equal(one, other)

    def test_a_recorded_step_computes_what_the_eager_one_does(self):
        graph, eager = (self.fill(deterministic=True, engine=e) for e in ("graph", "eager"))
        np.testing.assert_allclose(graph, eager, atol=0.02)
