"""Laws of the learned methods: HyDiff-EI, EI and Robust-EI, on cubes small enough for a CPU."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

import hydiff
from hydiff.errors import BadValue, HydiffError, UnknownName
from hydiff.learn import diffusion, losses, network, transforms
from hydiff.methods import equivariant
from hydiff.methods.ei import EI, ei, robust_ei
from hydiff.methods.hydiff_ei import HyDiffEI, hydiff_ei

LEARNED = ["hydiff-ei", "ei", "robust-ei"]
SMALL = {"channels": 4, "scales": 2, "steps": 3, "device": "cpu"}
each_method = pytest.mark.parametrize("method", LEARNED)


def fill(cube, observed, method="hydiff-ei", **options):
    return hydiff.fill(cube, observed, method=method, **SMALL | options)


def bytes_of(cube, observed, method="hydiff-ei", **options):
    return fill(cube, observed, method, **options).raw.tobytes()


def tensors(cube, observed, sigma_y=0.0):
    y = torch.as_tensor(np.where(observed, cube, 0.0), dtype=torch.float32)
    return y, torch.as_tensor(observed), torch.full((len(cube),), sigma_y)


def last(steps):
    *_, step = steps
    return step


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# Randomness


@pytest.fixture
def other_chain_noise(monkeypatch):
    """The chain, and it alone, draws its noise as before, and then takes it the other way round."""

    def other(x, rng):
        return -3 * torch.empty_like(x).normal_(generator=rng)

    return lambda: monkeypatch.setattr(diffusion, "noise_like", other)


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_under_implied_the_result_does_not_depend_on_the_sampling_noise(
    cube, observed, sigma_y, other_chain_noise
):
    before = bytes_of(cube, observed, sigma_y=sigma_y, steps=15)
    other_chain_noise()
    assert bytes_of(cube, observed, sigma_y=sigma_y, steps=15) == before


@pytest.mark.parametrize("eps0", ["fresh", "none"])
def test_under_the_other_readings_it_does(cube, observed, eps0, other_chain_noise):
    before = bytes_of(cube, observed, eps0=eps0)
    other_chain_noise()
    assert bytes_of(cube, observed, eps0=eps0) != before


def test_the_three_readings_differ(cube, observed):
    assert len({bytes_of(cube, observed, eps0=eps0) for eps0 in losses.READINGS}) == 3


def test_the_two_weightings_differ(cube, observed):
    assert len({bytes_of(cube, observed, weighting=w) for w in losses.WEIGHTINGS}) == 2


# What is learned


@each_method
def test_a_few_dozen_steps_lower_the_loss_and_beat_a_constant(tiny, stripes, method):
    result = fill(tiny, stripes, method, steps=40, channels=8)
    first, final = (sum(result.history[i][k] for k in ("data", "ei")) for i in (0, -2))
    assert final < 0.2 * first
    floor = hydiff.fill(tiny, stripes, method="bandmean").values

    def error(values):
        return np.sqrt(np.square(values - tiny)[:, ~stripes].mean())

    assert error(result.values) < 0.8 * error(floor)


@each_method
def test_noise_on_the_observed_entries_is_lowered(tiny, stripes, method, rng):
    noisy = tiny + 0.3 * rng.standard_normal(tiny.shape)
    result = fill(noisy, stripes, method, steps=40, channels=8, sigma_y=0.3)
    seen = np.broadcast_to(stripes, tiny.shape)
    before, after = (np.square(v - tiny)[seen].mean() for v in (noisy, result.values))
    assert after < 0.5 * before


@pytest.mark.parametrize("beta", [1e-4, 0.5])
def test_the_first_data_term_is_over_all_entries_and_weighted_by_alpha_bar(cube, observed, beta):
    """ᾱ_T mean (y - f(y))², gaps included; here T = 1."""
    y, seen, sigma_y = tensors(cube, observed)
    settings = HyDiffEI(channels=4, scales=2, steps=1, beta_start=beta, beta_end=beta)
    step = next(hydiff_ei(y, seen, sigma_y, settings, rng=seeded()))
    f = network.build(5, channels=4, scales=2, seed=_seed(seeded()))
    with torch.no_grad():
        expected = (1 - beta) * (y - f(y[None])[0]).square().mean()
    torch.testing.assert_close(step.log["data"], expected)


def test_later_data_terms_pull_towards_the_last_estimate(cube, observed):
    """ᾱ_t mean (x̃_0 - f)², x̃_0 of the step before."""
    y, seen, sigma_y = tensors(cube, observed)
    settings = HyDiffEI(channels=4, scales=2, steps=5)
    alpha_bar = diffusion.linear_alpha_bar(5)
    expected = None
    steps = hydiff_ei(y, seen, sigma_y, settings, rng=seeded())
    for t, step in zip(range(5, 0, -1), steps, strict=False):
        if expected is not None:
            torch.testing.assert_close(step.log["data"].double(), alpha_bar[t] * expected)
        with torch.no_grad():
            expected = (step.x - fitted(step)(y[None])[0]).double().square().mean()


def fitted(step):
    """The network as a step left it."""
    f = network.SkipNet(5, 4, 2)
    f.load_state_dict(weights_of(step))
    return f


def weights_of(step):
    tensors = step.state()
    return {k.removeprefix("network."): v for k, v in tensors.items() if k[:8] == "network."}


def _seed(rng):
    """The first number a method draws: the seed of its network."""
    return int(torch.randint(2**62, (), generator=rng))


@pytest.mark.parametrize("inpaint", [ei, robust_ei])
def test_the_data_term_of_ei_is_over_observed_entries(cube, observed, inpaint):
    y, seen, sigma_y = tensors(cube, observed)
    step = next(inpaint(y, seen, sigma_y, EI(channels=4, scales=2), rng=seeded()))
    f = network.build(5, channels=4, scales=2, seed=_seed(seeded()))
    with torch.no_grad():
        expected = (f(y[None])[0] - y)[:, seen].square().mean()
    torch.testing.assert_close(step.log["data"], expected)


def test_the_data_term_of_ei_over_all_entries_knows_nothing_of_the_gaps(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    of = {
        term: next(ei(y, seen, sigma_y, EI(channels=4, scales=2, data_term=term), rng=seeded()))
        for term in losses.DATA_TERMS
    }
    share = seen.float().mean()
    torch.testing.assert_close(of["all"].log["data"], share * of["observed"].log["data"])


@pytest.mark.parametrize(("method", "settings"), [(hydiff_ei, HyDiffEI), (ei, EI)])
def test_a_step_is_one_update(cube, observed, method, settings):
    small = settings(steps=3, channels=4, scales=2)
    states = [s.state() for s in method(*tensors(cube, observed), small, rng=seeded()) if s.state]
    assert [int(state["adam.0.step"]) for state in states] == [1, 2, 3]


@each_method
def test_the_equivariance_term_carries_its_weight(cube, observed, method):
    one, none = (fill(cube, observed, method, ei_weight=w).history[0]["ei"] for w in (1.0, 0.0))
    double = fill(cube, observed, method, ei_weight=2.0).history[0]["ei"]
    assert none == 0 < one and double == pytest.approx(2 * one, rel=1e-6)


def test_without_noise_robust_ei_is_ei(cube, observed):
    assert bytes_of(cube, observed, "robust-ei") == bytes_of(cube, observed, "ei")
    noisy = {"sigma_y": 0.1}
    assert bytes_of(cube, observed, "robust-ei", **noisy) != bytes_of(cube, observed, "ei", **noisy)


# The result


@each_method
def test_with_noise_the_result_is_the_network_s_own_everywhere(cube, observed, method):
    result = fill(cube, observed, method, sigma_y=0.1)
    assert np.array_equal(result.values, result.raw)


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_the_chain_doubts_noisy_data_at_its_end(cube, observed, sigma_y):
    """At t = 1 the estimate is y where it was observed without noise, and f(y) with noise."""
    y, seen, sigma = tensors(cube, observed, sigma_y)
    settings = HyDiffEI(channels=4, scales=2, steps=6)
    steps = hydiff_ei(y, seen, sigma, settings, rng=seeded())
    before = [next(steps) for _ in range(5)][-1]
    with torch.no_grad():
        x0_hat = fitted(before)(y[None])[0]
    expected = x0_hat if sigma_y else torch.where(seen, y, x0_hat)
    found = next(steps).x
    torch.testing.assert_close(found, expected)
    assert sigma_y or torch.equal(found[:, seen], y[:, seen])


@each_method
def test_the_final_estimate_is_one_more_pass_after_the_last_step(cube, observed, method):
    inpaint, cls = {"hydiff-ei": (hydiff_ei, HyDiffEI), "ei": (ei, EI)}.get(method, (robust_ei, EI))
    y, seen, sigma_y = tensors(cube, observed)
    *_, before, final = inpaint(y, seen, sigma_y, cls(channels=4, scales=2, steps=3), rng=seeded())
    with torch.no_grad():
        torch.testing.assert_close(final.x, fitted(before)(y[None])[0])
    assert (before.done, final.done, final.total) == (3, 4, 4)


@each_method
def test_history_tells_each_term_and_the_time(cube, observed, method):
    history = fill(cube, observed, method).history
    assert len(history) == 3 + 1  # and the last pass
    assert all({"data", "ei", "seconds"} == set(record) for record in history[:-1])
    seconds = [record["seconds"] for record in history]
    assert seconds == sorted(seconds) and seconds[0] > 0
    assert all(isinstance(v, float) and np.isfinite(v) for r in history for v in r.values())


@each_method
def test_every_step_shows_an_estimate_of_the_cube(cube, observed, method):
    steps = []
    fill(cube, observed, method, progress=steps.append)
    assert [step.done for step in steps] == [1, 2, 3, 4]
    assert {step.total for step in steps} == {4}
    assert all(step.x.shape == cube.shape and not step.x.requires_grad for step in steps)


# Watching the fit


@each_method
def test_held_back_pixels_are_watched_and_still_returned_untouched(cube, observed, method):
    result = fill(cube, observed, method, hold_back=0.2)
    assert all(record["monitor"] > 0 for record in result.history[:-1])
    assert np.array_equal(result.values[:, observed], cube[:, observed])
    assert result.raw.tobytes() != bytes_of(cube, observed, method)


def test_what_is_held_back_is_whole_pixels_and_unseen(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    problem = equivariant.prepare(y, seen, sigma_y, 0.3, seeded())
    held, kept = (v[0].expand_as(y) for v in (problem.held, problem.observed))
    assert not problem.y[0][held].any() and not (held & kept).any()
    assert torch.equal(held | kept, seen.expand_as(held))
    assert torch.equal(held.any(0), held.all(0))
    assert held.sum() / (held | kept).sum() == pytest.approx(0.3, abs=0.1)
    x0_hat = problem.truth + 0.25  # wrong by as much everywhere
    assert equivariant.monitor(x0_hat, problem).item() == pytest.approx(0.25)
    x0_hat = torch.where(problem.held, problem.truth, 9.0)  # wrong only elsewhere
    assert equivariant.monitor(x0_hat, problem) == 0


def test_held_back_values_do_not_reach_the_fit(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    settings = HyDiffEI(channels=4, scales=2, steps=4, hold_back=0.3)
    one = last(hydiff_ei(y, seen, sigma_y, settings, rng=seeded())).x
    held = equivariant.prepare(y, seen, sigma_y, 0.3, seeded()).held[0]
    other = torch.where(held, 0.123, y)
    assert torch.equal(last(hydiff_ei(other, seen, sigma_y, settings, rng=seeded())).x, one)
    other = torch.where(held, y, 0.9 * y)
    assert not torch.equal(last(hydiff_ei(other, seen, sigma_y, settings, rng=seeded())).x, one)


# Shapes


@each_method
def test_a_mask_for_all_bands_may_have_two_or_three_axes(cube, observed, method):
    flat = bytes_of(cube, observed, method)
    assert bytes_of(cube, np.broadcast_to(observed, cube.shape), method) == flat
    inpaint = {"hydiff-ei": hydiff_ei, "ei": ei, "robust-ei": robust_ei}[method]
    settings = (HyDiffEI if method == "hydiff-ei" else EI)(channels=4, scales=2, steps=3)
    y, seen, sigma_y = tensors(cube, observed)
    one = last(inpaint(y, seen, sigma_y, settings, rng=seeded())).x
    full = seen.expand_as(y).contiguous()
    assert torch.equal(last(inpaint(y, full, sigma_y, settings, rng=seeded())).x, one)


def test_a_cube_is_embedded_once_in_its_square_hull():
    y = torch.rand((2, 4, 7), generator=seeded()) + 1
    observed = torch.ones(4, 7, dtype=torch.bool)
    observed[:, 3] = False
    problem = equivariant.prepare(y, observed, torch.zeros(2), 0.0, seeded())
    assert problem.y.shape == (1, 2, 7, 7) and problem.observed.shape == (1, 1, 7, 7)
    assert problem.inside.sum() == 4 * 7 and problem.sigma_y is None
    assert not problem.observed[~problem.inside].any()
    assert torch.equal(problem.crop(problem.y), y * observed)


@each_method
def test_sigma_may_be_one_number_or_one_per_band(cube, observed, method):
    one = bytes_of(cube, observed, method, sigma_y=0.1)
    assert bytes_of(cube, observed, method, sigma_y=[0.1] * 5) == one
    several = fill(cube, observed, method, sigma_y=[0.02, 0.05, 0.1, 0.2, 0.4])
    assert np.isfinite(several.values).all() and several.raw.tobytes() != one
    np.testing.assert_allclose(several.sigma_y, [0.02, 0.05, 0.1, 0.2, 0.4])


@each_method
def test_sigma_may_be_estimated(tiny, stripes, method, rng):
    noisy = tiny + 0.1 * rng.standard_normal(tiny.shape)
    result = fill(noisy, stripes, method, sigma_y="auto", steps=2)
    assert "sigma_y estimated" in result.notes[0]
    assert np.median(result.sigma_y) == pytest.approx(0.1, rel=0.15)


# Transforms


@each_method
@pytest.mark.parametrize("transform", list(transforms.TRANSFORMS))
def test_each_transform_runs_on_any_shape(method, transform, rng):
    cube = rng.random((3, 9, 14))
    observed = np.ones((9, 14), bool)
    observed[:, 5:8] = False
    result = fill(cube, observed, method, transform=transform, steps=3)
    assert np.isfinite(result.raw).all()


def test_the_transforms_differ(cube, observed):
    results = {bytes_of(cube, observed, transform=name) for name in transforms.TRANSFORMS}
    assert len(results) == len(transforms.TRANSFORMS)


@each_method
def test_the_paper_s_seven_transforms_run(cube, observed, method):
    result = fill(cube, observed, method, n_transforms=7, steps=3)
    assert np.isfinite(result.raw).all()
    assert result.raw.tobytes() != bytes_of(cube, observed, method, steps=3)


@each_method
def test_seven_transforms_are_for_noise(cube, observed, method):
    """Without noise one a step; with noise seven, each with a noise of its own."""
    clean = [bytes_of(cube, observed, method, n_transforms=n) for n in (None, 1)]
    noisy = [bytes_of(cube, observed, method, n_transforms=n, sigma_y=0.1) for n in (None, 7, 1)]
    assert clean[0] == clean[1] and noisy[0] == noisy[1] != noisy[2]


def test_draws_stay_apart_only_where_they_differ_by_noise(cube, observed):
    settings = EI(n_transforms=7)
    for sigma_y, noise, apart in ((0.0, True, False), (0.1, True, True), (0.1, False, False)):
        problem = equivariant.prepare(*tensors(cube, observed, sigma_y), 0.0, seeded())
        draws = equivariant.Draws(problem, settings, noise=noise)
        assert draws.next(seeded()) == (7 if apart else 4)
        assert sum(float(w.weight) for w in draws.warps[: 7 if apart else 4]) == pytest.approx(1)


# Readings of what the paper leaves open


@each_method
def test_each_reading_is_a_switch(cube, observed, method):
    plain = bytes_of(cube, observed, method, sigma_y=0.1)
    other = {"data_term": "observed" if method == "hydiff-ei" else "all"}
    switches = [{"remeasure_noise": False}, {"ei_reduction": "sum"}]
    switches += [{"x0_from": "after"}, {"noise_term": "sure"}] if method == "hydiff-ei" else []
    switches += [other] if method != "robust-ei" else []  # SURE has its own
    results = {bytes_of(cube, observed, method, sigma_y=0.1, **s) for s in switches}
    assert len(results) == len(switches) and plain not in results


def test_a_sum_over_copies_is_a_larger_weight(cube, observed):
    """The scale of a loss does not move Adam; the balance of its terms does."""
    summed = fill(cube, observed, n_transforms=2, ei_reduction="sum").raw
    weighted = fill(cube, observed, n_transforms=2, ei_weight=2.0).raw
    np.testing.assert_allclose(summed, weighted, atol=1e-4)


def test_noise_of_the_second_measurement_is_drawn_only_where_there_is_some(cube, observed):
    one, other = (bytes_of(cube, observed, remeasure_noise=noise) for noise in (True, False))
    assert one == other


def test_without_noise_there_is_nothing_for_sure_to_estimate(cube, observed):
    one, other = (bytes_of(cube, observed, noise_term=term) for term in losses.NOISE_TERMS)
    assert one == other


@pytest.mark.parametrize(("sigma", "apart"), [(1e-3, False), (0.1, True)])
def test_sure_inside_the_loop_is_the_data_term_when_the_noise_vanishes(
    cube, observed, sigma, apart
):
    """Of the first step: the same network, the same target, the same draws of noise."""
    y, seen, sigma_y = tensors(cube, observed, sigma)
    small = {"channels": 4, "scales": 2, "steps": 2}
    sure, plain = (
        next(hydiff_ei(y, seen, sigma_y, HyDiffEI(**small, noise_term=term), rng=seeded()))
        for term in ("sure", "none")
    )
    one, other = (float(step.log["data"]) for step in (sure, plain))
    assert (abs(one - other) > 1e-3 * other) == apart


def test_the_estimate_after_the_update_is_the_network_s_next_answer(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    small = {"channels": 4, "scales": 2, "steps": 2}
    after, before = (
        next(hydiff_ei(y, seen, sigma_y, HyDiffEI(**small, x0_from=which), rng=seeded()))
        for which in ("after", "before")
    )
    f = network.SkipNet(5, 4, 2)
    f.load_state_dict(weights_of(before))  # the same first update
    with torch.no_grad():
        answer = torch.where(seen, y, f(y[None])[0])
    torch.testing.assert_close(after.x, answer)
    assert not torch.equal(before.x, after.x)


def test_sure_asks_for_more_than_bfloat16_on_a_gpu():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert equivariant.precision_of("auto", gpu, by_difference=True) == "tf32"
    assert equivariant.precision_of("auto", gpu, by_difference=False) == "auto"
    assert equivariant.precision_of("auto", cpu, by_difference=True) == "auto"
    assert equivariant.precision_of("bf16", gpu, by_difference=True) == "bf16"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("seed", range(3))
def test_sure_is_the_same_in_tf32_as_in_single_precision(seed):
    """A fit of 200 steps: the error against the truth, within what seeds change."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 1, 48)
    truth = 0.2 + 0.6 * np.outer(np.sin(3 * ramp) ** 2, ramp) * rng.random((12, 1, 1))
    noisy, gaps = truth + 0.2 * rng.standard_normal(truth.shape), np.ones((48, 48), bool)
    gaps[:, 20:24] = False
    options = {"method": "robust-ei", "sigma_y": 0.2, "steps": 200, "channels": 32}
    errors = [
        np.sqrt(np.mean((hydiff.fill(noisy, gaps, precision=p, **options).raw - truth) ** 2))
        for p in ("fp32", "tf32")
    ]
    assert abs(errors[0] - errors[1]) < 0.25 * errors[0]


# Settings


def test_the_paper_s_preset_is_the_default():
    paper = HyDiffEI.PRESETS["paper"]
    assert paper == HyDiffEI()
    assert (paper.steps, paper.beta_start, paper.beta_end) == (1000, 1e-4, 0.02)
    assert (paper.lr, paper.ei_weight) == (0.01, 1)
    assert (paper.transform, paper.n_transforms) == ("rotation", None)
    assert (paper.eps0, paper.weighting) == ("implied", "simple")
    assert (paper.data_term, paper.remeasure_noise) == ("all", True)
    assert (paper.ei_reduction, paper.x0_from) == ("mean", "before")
    assert paper.noise_term == "none"
    assert (paper.channels, paper.scales, paper.hold_back) == (128, 5, 0)


@pytest.mark.parametrize("cls", [HyDiffEI, EI])
def test_the_fast_preset_is_a_smaller_run(cls):
    fast, paper = cls.PRESETS["fast"], cls.PRESETS["paper"]
    assert fast.steps < paper.steps and fast.channels < paper.channels
    shared = ("lr", "ei_weight", "transform", "n_transforms", "scales", "hold_back")
    assert all(getattr(fast, name) == getattr(paper, name) for name in shared)


def test_ei_is_the_same_but_for_the_diffusion():
    own, other = asdict(EI()), asdict(HyDiffEI())
    assert own.pop("data_term") == "observed"  # EI has no estimate of the gaps to follow
    assert {name: other[name] for name in own} == own


@each_method
def test_a_preset_can_be_changed_in_single_entries(cube, observed, method):
    result = fill(cube, observed, method, preset="fast")
    assert result.settings["channels"] == 4 and result.settings["lr"] == 0.01


@each_method
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"steps": 0}, BadValue, "steps = 0: expected at least 1"),
        ({"lr": 0}, BadValue, "lr = 0: expected a number above 0"),
        ({"lr": float("nan")}, BadValue, "`lr=nan`: expected a number"),
        ({"channels": 0}, BadValue, "channels = 0"),
        ({"scales": -1}, BadValue, "scales = -1"),
        ({"ei_weight": -0.5}, BadValue, "ei_weight = -0.5: expected 0 or more"),
        ({"ei_weight": float("nan")}, BadValue, "`ei_weight=nan`: expected a number"),
        ({"n_transforms": 0}, BadValue, "n_transforms = 0: expected 1 or more"),
        ({"hold_back": 1}, BadValue, "hold_back = 1: expected a share from 0 to below 1"),
        ({"hold_back": -0.1}, BadValue, "hold_back"),
        ({"transform": "rotations"}, UnknownName, "did you mean 'rotation'"),
        ({"engine": "fast"}, BadValue, "expected one of auto, eager, graph"),
        ({"engine": "graph"}, BadValue, "use engine = 'eager'"),
        ({"step": 5}, UnknownName, "did you mean 'steps'"),
        ({"preset": "papr"}, UnknownName, "did you mean 'paper'"),
    ],
)
def test_bad_settings_are_refused_in_words(cube, observed, method, change, error, words):
    with pytest.raises(error, match=words):
        fill(cube, observed, method, **change)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"eps0": "impled"}, UnknownName, "did you mean 'implied'"),
        ({"weighting": "ful"}, UnknownName, "did you mean 'full'"),
        ({"refine": 7}, BadValue, "refine = 7: expected 0 to steps = 3"),
        ({"beta_start": 0.0}, BadValue, "expected 0 < β < 1"),
        ({"beta_start": 0.03}, BadValue, "beta from 0.03 to 0.02"),
    ],
)
def test_bad_settings_of_the_diffusion_are_refused_in_words(cube, observed, change, error, words):
    with pytest.raises(error, match=words):
        fill(cube, observed, **change)


@pytest.mark.parametrize("inpaint", [hydiff_ei, ei, robust_ei])
def test_nan_among_the_observed_entries_is_refused(cube, observed, inpaint):
    y, seen, sigma_y = tensors(cube, observed)
    settings = (HyDiffEI if inpaint is hydiff_ei else EI)(channels=4, scales=2, steps=2)
    clean = last(inpaint(y, seen, sigma_y, settings, rng=seeded())).x
    in_a_gap = torch.where(seen, y, torch.nan)
    assert torch.equal(last(inpaint(in_a_gap, seen, sigma_y, settings, rng=seeded())).x, clean)
    for bad in (torch.nan, torch.inf):
        y[1, 0, 0] = bad
        with pytest.raises(HydiffError, match="NaN or Inf in observed entries"):
            last(inpaint(y, seen, sigma_y, settings, rng=seeded()))


def test_a_diverged_or_nan_cube_is_never_returned_as_filled(cube, observed):
    """`fill` takes NaN for missing, so none is among what it hands on."""
    holed = cube.copy()
    holed[1, 0, 0] = np.nan
    result = fill(holed, observed)
    assert np.isfinite(result.values).all() and result.filled[1, 0, 0]


# Trained weights


def test_trained_weights_without_refinement_are_one_forward_pass(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    f = network.build(5, channels=4, scales=2, seed=7)
    settings = HyDiffEI(channels=4, scales=2)
    (step,) = hydiff_ei(y, seen, sigma_y, settings, rng=seeded(), initial=f.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(step.x, f(y[None])[0])
    assert (step.done, step.total) == (1, 1)


def test_one_pass_of_trained_weights_sees_no_padding(cube, observed):
    y, seen, sigma_y = tensors(cube[:, :9], observed[:9])
    f = network.build(5, channels=4, scales=2, seed=7)
    settings = HyDiffEI(channels=4, scales=2)
    (step,) = hydiff_ei(y, seen, sigma_y, settings, rng=seeded(), initial=f.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(step.x, f(y[None])[0])


def test_refinement_goes_on_from_trained_weights(cube, observed):
    y, seen, sigma_y = tensors(cube, observed)
    trained = HyDiffEI(channels=4, scales=2, steps=60)
    *_, before, _ = hydiff_ei(y, seen, sigma_y, trained, rng=seeded())
    initial = weights_of(before)
    kept = {k: v.clone() for k, v in initial.items()}
    settings = HyDiffEI(channels=4, scales=2, steps=60, refine=5)
    steps = list(hydiff_ei(y, seen, sigma_y, settings, rng=seeded(), initial=initial))
    assert [step.done for step in steps] == list(range(1, 7)) and steps[-1].total == 6
    fresh = next(hydiff_ei(y, seen, sigma_y, HyDiffEI(channels=4, scales=2), rng=seeded()))
    assert steps[0].log["ei"] < 0.5 * fresh.log["ei"]
    f = network.SkipNet(5, 4, 2)
    f.load_state_dict(initial)
    with torch.no_grad():  # the first target is f(y) with y on the observed entries
        entered = torch.where(seen, y - f(y[None])[0], 0.0).square().mean()
    weight = diffusion.linear_alpha_bar(60)[5].float()
    torch.testing.assert_close(steps[0].log["data"], weight * entered)
    assert all(torch.equal(initial[k], kept[k]) for k in kept)


def test_a_note_names_pixels_that_no_rotation_reaches():
    cube = np.random.default_rng(0).random((4, 16, 16))
    settings = {"method": "ei", "steps": 1, "channels": 4, "scales": 2}
    observed = np.ones((16, 16), bool)
    observed[6:10, 6:10] = False  # the centre turns into itself

    def message(observed, **more):
        notes = hydiff.fill(cube, observed, **settings, **more).notes
        return any("is blind" in note for note in notes)

    assert message(observed)
    assert not message(np.roll(observed, 5, 0)) and not message(observed, transform="shift")


def test_a_note_names_the_engine():
    cube = np.random.default_rng(0).random((4, 16, 16))
    observed = np.ones((16, 16), bool)
    observed[:, 5] = False
    small = {"method": "ei", "steps": 1, "channels": 4, "scales": 2}
    assert "engine: eager, fp32, CPU" in hydiff.fill(cube, observed, device="cpu", **small).notes


@pytest.mark.parametrize("method", ["hydiff-ei", "ei"])
def test_a_transform_along_the_bands_needs_two_of_them(method):
    observed = np.ones((16, 20), bool)
    observed[:, 8:10] = False
    with pytest.raises(BadValue, match="one usable band"):
        hydiff.fill(
            np.random.default_rng(0).random((1, 16, 20)),
            observed,
            method=method,
            transform="scaled-bands",
            steps=2,
            channels=4,
            device="cpu",
        )
