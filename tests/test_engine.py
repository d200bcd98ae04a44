"""Laws of a fit: a step is Adam's step, and a saved fit goes on as if nothing had happened."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from hydiff import methods
from hydiff.errors import BadValue
from hydiff.learn import network
from hydiff.learn.adam import Adam
from hydiff.learn.engine import Fit, arithmetic, choose, side_by_side

CPU = torch.device("cpu")


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


def test_a_fit_that_starts_over_is_a_new_one():
    used, new = fit(seed=0), fit(seed=7)
    steps(used, 4)
    used.start_over(network.build(3, channels=4, scales=2, seed=7))
    used.rng.set_state(new.rng.get_state())
    for one, other in zip(steps(used, 3), steps(new, 3), strict=True):
        assert same(one, other)
    assert same(weights(used), weights(new))


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_adam_takes_the_steps_of_torch_bit_for_bit(decay):
    """Its fused kernels; a weight without a gradient stays as it is."""
    nets = [nn.Linear(5, 4), nn.Linear(5, 4)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours = Adam([*nets[0].parameters(), nn.Parameter(torch.ones(2))], 0.03, decay)
    theirs = torch.optim.Adam(nets[1].parameters(), lr=0.03, weight_decay=decay, fused=True)
    x = torch.randn(7, 5, generator=seeded())
    for _ in range(5):
        for net in nets:
            net.zero_grad()
            net(x).square().sum().backward()
        ours.step(), theirs.step()
    assert all(map(torch.equal, nets[0].parameters(), nets[1].parameters()))
    assert torch.equal(ours.weights[-1], torch.ones(2)) and ours.moments[-1].step == 0


def test_a_step_does_not_wait_for_the_compiler_of_torch():
    """Two seconds of imports, for nothing: nothing is compiled."""
    code = (
        "import sys, torch\n"
        "from hydiff.learn.engine import Fit\n"
        "net = torch.nn.Linear(3, 1)\n"
        "fit = Fit(net, lr=0.1, rng=torch.Generator())\n"
        "fit.step(lambda _: (net(torch.ones(3)), net.weight))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_term_beyond_the_objective_is_one_of_its_terms():
    """Given as a value and a gradient, it moves the weights as if autograd had seen it."""
    one, other = fit(), fit()

    def seen(_):
        x = one.network(Y)
        return torch.stack([(x - Y).square().mean(), x.pow(3).sum()]), x

    def data(_):
        x = other.network(Y)
        return (x - Y).square().mean()[None], x

    def beyond(x):
        assert not x.requires_grad
        return x.pow(3).sum(), 3 * x.square()

    for _ in range(3):
        (whole, x), (split, z) = one.step(seen), other.step(data, beyond=beyond)
        torch.testing.assert_close(split, whole)
        torch.testing.assert_close(z, x)
    for p, q in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


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
    assert sum(k.startswith("adam.") for k in state) == 3 * n and {"rng", "dice"} <= set(state)


def test_randomness_of_another_device_is_refused_in_words():
    one = fit()
    state = one.state() | {"rng": torch.zeros(16, dtype=torch.uint8)}  # as a GPU has it
    with pytest.raises(BadValue, match="device"):
        one.load(state)


def test_auto_is_eager_on_a_cpu():
    one, other = fit(engine="auto"), fit(engine="eager")
    steps(one, 3), steps(other, 3)
    assert same(weights(one), weights(other)) and not one.recorded


def counting(label, n):
    for i in range(n):
        yield label, i


def test_side_by_side_advances_all_in_step_and_ends_with_the_last():
    met = list(side_by_side([counting("a", 3), counting("b", 5), counting("c", 0)]))
    assert met == [(("a", min(i, 2)), ("b", i), None) for i in range(5)]


def test_more_fits_than_there_are_streams_for_are_refused():
    with pytest.raises(BadValue, match="at most 8"):
        next(side_by_side([counting("a", 3)] * 9))


def test_fits_side_by_side_are_what_they_are_alone():
    def run(seed):
        one = fit(seed)
        for i in range(4):
            yield one.step(objective(one), 0.1 * i)

    alone = [list(run(seed)) for seed in range(3)]
    together = list(zip(*side_by_side([run(seed) for seed in range(3)]), strict=True))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(p[1], q[1]) for p, q in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("engine", "precision", "message"),
    [
        ("fast", "auto", "expected one of auto, eager, graph, fused"),
        ("auto", "fp8", "expected one of auto, fp32, tf32, bf16"),
        ("graph", "auto", "use engine = 'eager'"),
        ("fused", "auto", "use engine = 'eager'"),
        ("auto", "bf16", "on a CPU use 'fp32'"),
    ],
)
def test_what_cannot_run_here_is_refused_in_words(engine, precision, message):
    with pytest.raises(BadValue, match=message):
        choose(engine, precision, network.build(3, channels=4, scales=2, seed=0), CPU)


def test_what_runs_on_a_gpu_depends_on_the_network():
    """Decided without a GPU at hand."""
    skip_net, other, gpu = (
        network.build(3, channels=4, seed=0),
        nn.Linear(2, 2),
        torch.device("cuda"),
    )
    fusible = ("fused", "bf16") if find_spec("triton") else ("graph", "tf32")
    assert choose("auto", "auto", skip_net, gpu) == fusible
    assert choose("auto", "auto", other, gpu) == ("graph", "tf32")
    assert choose("eager", "auto", skip_net, gpu) == ("eager", "fp32")
    assert choose("auto", "auto", skip_net, CPU) == ("eager", "fp32")
    with pytest.raises(BadValue, match="use engine = 'graph'"):
        choose("fused", "auto", other, gpu)
    with pytest.raises(BadValue, match="needs engine = 'fused'"):
        choose("graph", "bf16", skip_net, gpu)


def test_the_arithmetic_is_put_back():
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with arithmetic("fp32"):
        assert not torch.backends.cudnn.allow_tf32
        with arithmetic("tf32"):
            assert torch.backends.cuda.matmul.allow_tf32
    assert before == (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnAGPU:
    """Run these on a machine with one: `python -m pytest tests/test_engine.py -k GPU`."""

    def steps(self, n, seed=0, resume=None, method="hydiff-ei", **settings):
        place = torch.device("cuda")
        y = torch.rand(6, 40, 40, generator=seeded(seed)).to(place)
        observed = torch.ones(40, 40, dtype=torch.bool, device=place)
        observed[:, 10:15] = False
        chosen = methods.choose(method, None, {"steps": n, "channels": 16, **settings})
        rng = torch.Generator(place).manual_seed(seed)
        sigma = torch.zeros(6, device=place)
        given = (y * observed, observed, sigma, chosen.settings)
        return chosen.inpaint(*given, rng=rng, resume=resume)

    def last(self, steps):
        *_, step = steps
        return step.x.cpu()

    @pytest.fixture(autouse=True)
    def deterministic(self, monkeypatch):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        yield
        torch.use_deterministic_algorithms(False)

    @pytest.mark.parametrize("engine", ["eager", "graph", "fused"])
    def test_deterministic_runs_give_the_same_bytes(self, engine):
        one, other = (self.last(self.steps(20, engine=engine)) for _ in range(2))
        assert torch.equal(one, other)

    @pytest.mark.parametrize("method", ["dhp", "r-dlrhyin", "dds2m", "share"])
    def test_so_do_those_of_the_peers(self, method):
        way = {"method": method} | ({"channels": 8} if method != "share" else {"memory": 8})
        one, other = (self.last(self.steps(8, **way)) for _ in range(2))
        assert torch.equal(one, other)

    def first_losses(self, **way):
        return torch.stack([*next(self.steps(5, **way)).log.values()]).cpu()

    @pytest.mark.parametrize("engine", ["graph", "fused"])
    def test_the_first_step_is_the_eager_one(self, engine):
        """Later ones drift apart: Adam's first steps are the signs of gradients, small ones too."""
        ways = ({"engine": e, "precision": "fp32"} for e in ("eager", engine))
        eager, other = (self.first_losses(**way) for way in ways)
        torch.testing.assert_close(other, eager, rtol=1e-4, atol=0)

    @pytest.mark.parametrize(("precision", "apart"), [("tf32", 0.01), ("bf16", 0.05)])
    def test_lower_precision_stays_close(self, precision, apart):
        full = self.first_losses(engine="eager", precision="fp32")
        low = self.first_losses(engine="fused", precision=precision)
        torch.testing.assert_close(low, full, rtol=apart, atol=0)

    def test_a_replayed_step_goes_where_an_eager_one_would(self):
        """The same kernels on the same numbers: a recording of each step against its replay."""
        ways = ({"engine": e, "precision": "fp32"} for e in ("eager", "graph"))
        eager, graph = (self.last(self.steps(60, **way)) for way in ways)
        assert (eager - graph).square().mean().sqrt() < 0.05

    def test_a_recorded_share_ends_near_an_eager_one(self):
        ways = ({"engine": e, "method": "share", "memory": 8} for e in ("eager", "graph"))
        eager, graph = (self.last(self.steps(30, **way)) for way in ways)
        assert (eager - graph).square().mean().sqrt() < 0.05

    def test_a_term_between_two_recordings_counts(self):
        """Pulled hard towards low rank, a replayed fit ends nearer to it, as an eager one does."""

        def prior(weight):
            way = {"method": "r-dlrhyin", "low_rank": weight, "eta": 1.0, "scales": 2}
            *_, step = self.steps(60, **way)
            return float(step.log["prior"]) / weight

        assert prior(100.0) < 0.9 * prior(1e-6)

    def test_fits_side_by_side_are_what_they_are_alone(self):
        alone = [self.last(self.steps(12, seed)) for seed in range(3)]
        *_, together = side_by_side([self.steps(12, seed) for seed in range(3)])
        torch.cuda.synchronize()
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one, other.x.cpu())

    def test_a_saved_fit_goes_on(self):
        steps = self.steps(10)
        for _ in range(5):
            state = next(steps).state
        resumed = self.steps(10, resume=state())
        torch.testing.assert_close(self.last(resumed), self.last(steps), rtol=0, atol=0.05)
