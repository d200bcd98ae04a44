"""Laws of `anchored`: its anchor, the examples it learns from, and what a user may count on."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hydiff
from hydiff.errors import BadValue
from hydiff.learn import field as field_module
from hydiff.learn import network
from hydiff.learn.engine import Fit
from hydiff.learn.field import Field, Fields, eigenvalues, strength
from hydiff.methods import anchor, classical
from hydiff.methods import anchored as module
from hydiff.methods.anchored import Anchored, anchored

SMALL = {"channels": 4, "scales": 2, "steps": 3, "device": "cpu"}


def fill(cube, observed, **options):
    return hydiff.fill(cube, observed, method="anchored", **SMALL | options)


def bytes_of(cube, observed, **options):
    return fill(cube, observed, **options).raw.tobytes()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def last(steps):
    *_, step = steps
    return step


def tensors(cube, observed, sigma_y=0.0):
    y = torch.as_tensor(np.where(observed, cube, 0.0), dtype=torch.float32)
    return y, torch.as_tensor(observed), torch.full((len(cube),), sigma_y)


def laplacian(H, W, s):
    """(−Δ)^s as a dense matrix, from the sparse stencil and its own eigenvectors."""
    values, vectors = np.linalg.eigh(classical.laplacian(H, W).toarray())
    return (vectors * np.maximum(values, 0) ** s) @ vectors.T


# The anchor


@pytest.mark.parametrize("s", [1.0, 1.5, 2.0])
def test_the_field_is_that_of_smooth(s, rng, stripes):
    known = stripes[:20]
    z = rng.standard_normal((3, 20, 24))
    once, found = (
        Field(torch.as_tensor(known), s, often=often)(torch.as_tensor(z, dtype=torch.float32))
        for often in (False, True)
    )
    torch.testing.assert_close(once, found, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found, classical.field(z, known, s), atol=5e-3)
    assert torch.equal(found[:, known], torch.as_tensor(z[:, known], dtype=torch.float32))


@pytest.mark.parametrize("block", [1, 5, 16, 17, 100])
def test_factor_and_inverse_by_blocks_are_those_of_the_whole(monkeypatch, block):
    monkeypatch.setattr(field_module, "BLOCK", block)
    root = torch.randn((16, 20), generator=seeded(), dtype=torch.float64)
    matrix = root @ root.mT
    lower = field_module._cholesky(matrix.clone())
    torch.testing.assert_close(lower.tril(), torch.linalg.cholesky(matrix))
    inverse = torch.linalg.inv(matrix)
    torch.testing.assert_close(field_module._inverse(lower), inverse.float())
    some = torch.randn((16, 3), generator=seeded(1), dtype=torch.float64)
    torch.testing.assert_close(field_module._substituted(lower, some.clone()), inverse @ some)


def test_a_device_without_memory_leaves_the_setting_up_to_the_cpu(rng, stripes, monkeypatch):
    known = torch.as_tensor(stripes)
    z = torch.as_tensor(rng.standard_normal((1, 2, 24, 24)), dtype=torch.float32)
    kappa = np.array([0.1, 2.0])
    usual, left = Fields(known, 1.5, kappa), [torch.OutOfMemoryError("none left")]

    def factor(*own, before=field_module._factor):
        if left:
            raise left.pop()
        return before(*own)

    monkeypatch.setattr(field_module, "_factor", factor)
    short = Fields(known, 1.5, kappa)
    assert usual.how == "" and "set up on the CPU" in short.how and not left
    assert torch.equal(usual(z), short(z))


@pytest.mark.parametrize("kappa", [1e-3, 0.3, 100.0])
def test_with_noise_the_field_solves_the_regularised_system(kappa, rng):
    H, W, s = 7, 9, 1.5
    known = rng.random((H, W)) > 0.4
    z = rng.standard_normal((2, H, W))
    matrix = np.diag(known.ravel().astype(float)) + kappa * laplacian(H, W, s)
    expected = np.linalg.solve(matrix, (known * z).reshape(2, -1).T).T.reshape(z.shape)
    field = Field(torch.as_tensor(known), s, np.full(2, kappa))
    found = field(torch.as_tensor(z, dtype=torch.float32))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_components_are_damped_by_their_own_kappa(rng, stripes):
    known = torch.as_tensor(stripes)
    z = torch.as_tensor(rng.standard_normal((1, 4, 24, 24)), dtype=torch.float32)
    kappa = np.array([0.01, 0.1, 1.0, 10.0])
    rough = (Fields(known, 1.5, kappa)(z).diff(dim=-1) ** 2).mean(dim=(0, 2, 3))
    assert (rough.diff() < 0).all()


@pytest.mark.parametrize("kappa", [None, np.array([0.1, 2.0])])
def test_backward_is_the_adjoint(kappa, stripes):
    field = Field(torch.as_tensor(stripes), 1.5, kappa)
    u, v = torch.randn((2, 2, 24, 24), generator=seeded()).unbind()
    u.requires_grad_()
    (adjoint,) = torch.autograd.grad(field(u), u, v)
    w = torch.randn(u.shape, generator=seeded(1))
    assert torch.sum(field(w) * v).item() == pytest.approx(torch.sum(w * adjoint).item(), rel=1e-3)
    assert not adjoint[:, ~torch.as_tensor(stripes)].any()  # no gap is read


def test_the_inverse_is_the_same_by_columns(monkeypatch, stripes):
    known = torch.as_tensor(stripes)
    whole = Field(known, 1.5).inverse
    monkeypatch.setattr(field_module, "BLOCK", 37)
    torch.testing.assert_close(Field(known, 1.5).inverse, whole)
    assert torch.equal(whole, whole.mT)


def test_backward_is_that_of_a_dense_solve():
    H, W = 5, 6
    known = torch.ones(H, W, dtype=torch.bool)
    known[1:4, 2:4] = False
    A = torch.as_tensor(laplacian(H, W, 1.5))
    gap = ~known.flatten()
    z = torch.randn(1, H, W, generator=seeded(), requires_grad=True)
    v = torch.randn(1, H, W, generator=seeded(1))
    (found,) = torch.autograd.grad(Field(known, 1.5)(z), z, v)

    def dense(z):
        z = z.double().flatten()
        inside = -torch.linalg.solve(A[gap][:, gap], A[gap][:, ~gap] @ z[~gap])
        return torch.zeros_like(z).index_put((gap,), inside).index_put((~gap,), z[~gap])

    (expected,) = torch.autograd.grad(dense(z), z, v.double().flatten())
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_too_many_missing_pixels_are_refused_in_words():
    with pytest.raises(BadValue, match=r"22500 pixels in gaps .* use method smooth"):
        Field(torch.zeros(150, 150, dtype=torch.bool), 1.5)


def test_the_variogram_tells_signal_from_noise(rng):
    """A field of known strength under noise of unit variance; and noise alone."""
    n, s = 64, 1.5
    power = (eigenvalues(n)[:, None] + eigenvalues(n)).numpy()
    power.flat[1:] **= -s
    spectrum = np.sqrt(power) * rng.standard_normal((8, n, n))
    spectrum[:, 0, 0] = 0
    signal = classical.idctn(spectrum, axes=(1, 2), norm="ortho")
    noise = rng.standard_normal((8, n, n))
    known = rng.random((n, n)) > 0.3
    assert strength(3 * signal + noise, known, s).mean() == pytest.approx(9, rel=0.2)
    assert (strength(noise, known, s) < 0.05).all()


@pytest.mark.parametrize("s", [1.0, 2.0])
def test_the_cube_tells_the_order_of_its_field(s, rng, stripes):
    power = np.add.outer(*(eigenvalues(24).numpy(),) * 2)
    power.flat[1:] **= -s / 2
    spectrum = power * rng.standard_normal((4, 24, 24))
    z = torch.as_tensor(classical.idctn(spectrum, axes=(1, 2), norm="ortho"))
    found = anchor.best_order(z[None], torch.as_tensor(stripes), seeded())
    assert abs(found - s) <= 0.25


# Motions and examples


@pytest.mark.parametrize("shape", [(6, 6), (5, 8), (1, 4)])
def test_a_motion_keeps_neighbours_together(shape):
    H, W = shape
    for source in module.sources(module.motions(20, shape, seeded()), shape).view(-1, H, W):
        row, col = source // W, source % W
        for axis in (0, 1):
            steps = row.diff(dim=axis).abs() + col.diff(dim=axis).abs()
            assert (steps <= 1).all()  # 0 at a mirror


def test_motions_move_everything_everywhere():
    reached = torch.zeros(16, 16, dtype=torch.bool)
    for source in module.sources(module.motions(300, (4, 4), seeded()), (4, 4)):
        reached[torch.arange(16), source] = True
    assert reached.all()


def test_many_motions_are_each_of_them_alone(problem):
    x = torch.randn(1, 3, 24, 24, generator=seeded())
    motion = module.motions(4, (24, 24), seeded())
    source = module.sources(motion, (24, 24))
    alone = [module.moved(x, one[None]) for one in source]
    assert torch.equal(module.moved(x, source), torch.cat(alone))
    if problem.noise is None:
        problem = problem._replace(texture=torch.zeros_like(problem.texture))
        many = module.examples(problem, problem.z, motion, seeded())
        each = [module.examples(problem, problem.z, one[None], seeded()) for one in motion]
        for found, expected in zip(many, zip(*each, strict=True), strict=True):
            torch.testing.assert_close(found, torch.cat(expected))


def test_the_mean_over_symmetries_is_itself_symmetric():
    x = torch.randn(1, 2, 6, 6, generator=seeded())

    def f(x):
        return x.cumsum(-1)

    once = module.symmetric(f, x)
    for turned, back in ((lambda v: v.flip(-1),) * 2, (lambda v: v.mT,) * 2):
        torch.testing.assert_close(back(module.symmetric(f, turned(x))), once)
    torch.testing.assert_close(module.symmetric(lambda v: 2 * v, x), 2 * x)


@pytest.fixture(params=[0.0, 0.1])
def problem(request, tiny, stripes):
    """Without noise and with it."""
    y, seen, sigma = tensors(tiny, stripes, request.param)
    return anchor.prepare(y, seen, sigma, 4, 0.0, 0)


def test_examples_have_the_gaps_of_the_real_mask(problem):
    motion = module.motions(2, (24, 24), seeded())
    seen = module.examples(problem, problem.z, motion, seeded())
    mask = seen.given[0, problem.z.shape[1]]
    assert torch.equal(mask.bool(), problem.complete)
    counted = seen.true + seen.own
    assert (counted[:, ~problem.complete] == 1).all()
    assert (counted[:, problem.complete] < 0.5).all()  # 0 without noise
    real = module.moved(problem.complete[None, None], module.sources(motion, (24, 24)))[:, 0]
    assert torch.equal(seen.true > 0, (counted > 0) & real) and seen.true.sum() > 0
    assert not (seen.own[real] > 0).any()


def test_the_truth_of_an_example_is_never_from_a_real_gap(problem):
    motion = module.motions(2, (24, 24), seeded())
    one = module.examples(problem, problem.z, motion, seeded())
    anchor = one.given[:, : problem.z.shape[1]] * problem.spread
    other = torch.where(problem.complete, problem.z, 77.0)
    two = module.examples(problem, other, motion, seeded())
    moved_anchor = two.given[:, : problem.z.shape[1]] * problem.spread
    hidden = (one.true > 0) & ~problem.complete
    truth, again = (
        at.movedim(1, -1)[hidden] for at in (one.target + anchor, two.target + moved_anchor)
    )
    torch.testing.assert_close(truth, again, atol=1e-4, rtol=1e-4)
    if problem.noise is None:
        expected = module.moved(problem.z, module.sources(motion, (24, 24)))
        expected = expected.movedim(1, -1)[hidden]
        torch.testing.assert_close(truth, expected, atol=1e-4, rtol=1e-4)


def test_what_is_asked_for_has_noise_of_its_own(tiny, stripes):
    """Seen and asked: the same mean, and noises that are not correlated."""
    y, seen, sigma = tensors(tiny, stripes, 0.1)
    problem = anchor.prepare(y, seen, sigma, 4, 0.0, 0)
    problem = problem._replace(anchor=torch.zeros_like, z=torch.zeros_like(problem.z))
    # z is its own noise here: one more draw of it
    rng, products, squares = seeded(), 0.0, 0.0
    K = problem.z.shape[1]
    nu = problem.noise.square().sum(1).sqrt().view(-1, 1)
    for _ in range(200):
        noisy = problem._replace(z=module._noise(problem.noise, problem.z, rng))
        drawn = module.examples(noisy, noisy.z, torch.zeros((1, 3), dtype=torch.int64), rng)
        given = drawn.given[0, K + 1 :][:, problem.complete]
        asked = drawn.target[0][:, problem.complete] / nu
        products, squares = products + (given * asked).mean(), squares + given.square().mean()
    assert squares.item() / 200 == pytest.approx(1 + module.ALPHA**2, rel=0.02)
    assert abs(products.item() / 200) < 0.02


def test_an_example_is_made_where_its_tensors_lie(problem):
    """As a recorded step needs it: the same places and randomness give the same numbers, new
    contents of the places others, and no number is looked at on the way."""
    motion = module.motions(2, (24, 24), seeded())
    one, same = (module.examples(problem, problem.z, motion, seeded(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    motion.copy_(module.motions(2, (24, 24), seeded(5)))
    other = module.examples(problem, problem.z, motion, seeded(3))
    assert not torch.equal(one.target, other.target)
    with FakeTensorMode(allow_non_fake_inputs=True):  # holds no values: looking at one fails
        with pytest.raises(Exception, match=r"aten\._local_scalar_dense"):
            bool(torch.ones(1).sum() > 0)
        module.examples(problem, problem.z, motion, torch.default_generator)


# The method


def test_before_it_has_learned_it_is_smooth(cube, observed):
    untaught = fill(cube, observed, lr=1e-30, s=1.5).values
    smooth = hydiff.fill(cube, observed, method="smooth", s=1.5).values
    np.testing.assert_allclose(untaught, smooth, atol=1e-5)
    assert np.abs(fill(cube, observed, lr=1e-2, s=1.5).values - smooth).max() > 2e-4


def test_it_learns_what_smooth_cannot_know(rng):
    """Ripples as fine as the gaps are wide."""
    row, col = np.mgrid[:32, :32]
    maps = np.stack([np.sin(1.1 * row + 0.4 * col), np.cos(0.9 * col - 0.5 * row)])
    cube = np.tensordot(rng.random((6, 2)), maps, 1)
    observed = np.ones((32, 32), bool)
    observed[:, 8:11] = observed[:, 20:23] = False
    options = {"channels": 16, "steps": 120, "lr": 1e-2}
    result, smooth = fill(cube, observed, **options), hydiff.fill(cube, observed, method="smooth")

    def error(values):
        return np.sqrt(np.square(values - cube)[:, ~observed].mean())

    assert error(result.values) < 0.75 * error(smooth.values)
    assert result.history[-2]["split"] < 0.8 * result.history[0]["split"]


def test_noise_is_lowered_everywhere(tiny, stripes, rng):
    noisy = tiny + 0.2 * rng.standard_normal(tiny.shape)
    result = fill(noisy, stripes, sigma_y=0.2, steps=20)
    for where in (stripes, ~stripes):
        assert np.square(result.values - tiny)[:, where].mean() < 0.2 * 0.2**2
    assert np.array_equal(result.values, result.raw)


def test_observed_entries_come_back_untouched_without_noise(cube, observed):
    result = fill(cube, observed, lr=1e-2)
    assert np.array_equal(result.values[:, observed], cube[:, observed])
    assert np.isfinite(result.values).all()
    np.testing.assert_allclose(result.raw[:, observed], cube[:, observed], atol=1e-6)


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_nothing_under_the_mask_is_read(cube, observed, sigma_y):
    y, seen, sigma = tensors(cube, observed, sigma_y)
    settings = Anchored(channels=4, scales=2, steps=4)
    one = last(anchored(y, seen, sigma, settings, rng=seeded())).x
    poisoned = torch.where(seen, y, torch.nan)
    assert torch.equal(last(anchored(poisoned, seen, sigma, settings, rng=seeded())).x, one)
    y[1, 0, 0] = torch.nan
    with pytest.raises(BadValue, match="NaN or Inf in observed entries"):
        last(anchored(y, seen, sigma, settings, rng=seeded()))


def test_held_back_pixels_are_watched_and_do_not_reach_the_fit(cube, observed):
    y, seen, sigma = tensors(cube, observed)
    settings = Anchored(channels=4, scales=2, steps=4, hold_back=0.3)
    steps = list(anchored(y, seen, sigma, settings, rng=seeded()))
    assert all(step.log["monitor"] > 0 for step in steps[:-1])
    held = seen & (torch.rand(seen.shape, generator=seeded()) < 0.3)
    assert held.any()
    other = torch.where(held, 0.123, torch.where(seen, y, torch.nan))
    again = list(anchored(other, seen, sigma, settings, rng=seeded()))
    assert torch.equal(again[-1].x, steps[-1].x)
    assert 0 < again[0].log["monitor"] != steps[0].log["monitor"]


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_resuming_gives_the_same_bytes(cube, observed, sigma_y):
    y, seen, sigma = tensors(cube, observed, sigma_y)
    settings = Anchored(channels=4, scales=2, steps=30)
    steps, states = [], {}
    for step in anchored(y, seen, sigma, settings, rng=seeded()):
        steps.append(step)
        if step.done in (3, 25):  # before and after the estimate has entered the fit
            states[step.done] = {name: tensor.clone() for name, tensor in step.state().items()}
    for stop, state in states.items():
        rest = list(anchored(y, seen, sigma, settings, rng=seeded(), resume=state))
        assert len(rest) == len(steps) - stop and rest[0].done == stop + 1
        assert torch.equal(rest[-1].x, steps[-1].x) and torch.equal(rest[0].x, steps[stop].x)


def test_every_step_shows_an_estimate_and_its_losses(cube, observed):
    steps = []
    result = fill(cube, observed, progress=steps.append)
    assert [step.done for step in steps] == [1, 2, 3, 4] and steps[0].total == 4
    assert all(step.x.shape == cube.shape and not step.x.requires_grad for step in steps)
    assert all({"split", "ei", "seconds"} == set(record) for record in result.history[:-1])


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_each_band_may_have_its_own_mask(tiny, rng, sigma_y):
    observed = rng.random(tiny.shape) > 0.3
    observed[:, 4:9, 4:9] = False  # and a gap that all of them share
    result = fill(tiny, observed, sigma_y=sigma_y)
    assert np.isfinite(result.values).all() and np.array_equal(result.filled, ~observed)
    moved = np.where(observed, tiny, 77.0)
    assert bytes_of(moved, observed, sigma_y=sigma_y) == result.raw.tobytes()


def test_where_every_pixel_keeps_enough_bands_it_is_smooth(tiny, rng):
    observed = rng.random(tiny.shape) > 0.2
    smooth = hydiff.fill(tiny, observed, method="smooth", s=1.5).values
    np.testing.assert_allclose(fill(tiny, observed).values, smooth, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 12, 12), (2, 9, 14), (3, 20, 7), (7, 5, 5), (2, 1, 9)])
def test_any_size_and_band_count_with_noise(shape):
    cube = np.random.default_rng(0).random(shape)
    observed = np.ones(shape[1:], bool)
    observed[:, 2:4] = False
    result = fill(cube, observed, steps=2, sigma_y=0.1)
    assert result.values.shape == shape and np.isfinite(result.values).all()


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_a_constant_cube_stays_one(observed, sigma_y):
    result = fill(np.full((4, 16, 16), 3.0), observed, sigma_y=sigma_y, steps=3)
    np.testing.assert_allclose(result.values, 3.0, atol=1e-3)


def test_sigma_may_differ_between_bands(cube, observed):
    one = bytes_of(cube, observed, sigma_y=0.1)
    assert bytes_of(cube, observed, sigma_y=[0.1] * 5) == one
    several = fill(cube, observed, sigma_y=[0.0, 0.05, 0.1, 0.2, 0.4])
    assert np.isfinite(several.values).all() and several.raw.tobytes() != one


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps = 0: expected a number above 0"),
        ({"lr": float("nan")}, "`lr=nan`: expected a number"),
        ({"s": 3}, "s = 3 is outside"),
        ({"ei_weight": -1.0}, "ei_weight = -1.0: expected 0 or more"),
        ({"ei_weight": 0.0, "split_weight": 0.0}, "not both 0"),
        ({"hold_back": 1}, "hold_back = 1: expected a share from 0 to below 1"),
        ({"engine": "graph"}, "use engine = 'eager'"),
    ],
)
def test_bad_settings_are_refused_in_words(cube, observed, change, words):
    with pytest.raises(BadValue, match=words):
        fill(cube, observed, **change)


# What it asked of the network and the engine


def test_a_residual_network_answers_zero_until_taught():
    net = network.build_residual(5, 3, channels=4, scales=2, seed=0)
    out = net(torch.rand(1, 5, 12, 12, generator=seeded()))
    assert out.shape == (1, 3, 12, 12) and not out.any()
    out.sum().backward()
    assert net.head.weight.grad.any()


def test_the_rate_can_change_between_steps():
    net = network.build(3, channels=4, scales=2, seed=0)
    fit = Fit(net, lr=torch.tensor(0.1), rng=seeded())
    x = torch.rand(1, 3, 12, 12, generator=seeded())

    def change(lr):
        before = net.head.weight.detach().clone()
        fit.set_rate(lr)
        fit.step(lambda _: (fit.f(x).sum()[None], x))
        return (net.head.weight - before).abs().max().item()

    assert change(0.0) == 0
    assert change(0.01) == pytest.approx(10 * change(0.001), rel=0.5)
