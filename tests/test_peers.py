"""Laws of the paper's peers: DHP, R-DLRHyIn, DDS2M, SHARE, HIR-Diff, on cubes for a CPU.

Those of LRS-PnP-DIP alone are in test_lrs_pnp_dip.py.
"""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hydiff
from conftest import PEERS, ROOT
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName
from hydiff.io import provenance
from hydiff.learn import layers
from hydiff.learn.diffusion import linear_alpha_bar
from hydiff.learn.memory import SpectralMemory
from hydiff.learn.network import SkipNet
from hydiff.methods import METHODS, choose, dds2m, hir_diff, hyper_ei, share
from hydiff.methods.r_dlrhyin import rank_surrogate

sys.path.insert(0, str(ROOT / "benchmarks"))

import denoiser

each_peer = pytest.mark.parametrize("method", PEERS)
PARTS = (nn.Conv2d, nn.BatchNorm2d)


def fill(cube, observed, method, **options):
    return hydiff.fill(cube, observed, method=method, device="cpu", **PEERS[method] | options)


def steps_of(cube, observed, method, sigma_y=0.0, seed=0, **options):
    settings = {k: v for k, v in options.items() if k != "resume"}
    chosen = choose(method, None, PEERS[method] | settings)
    y = torch.as_tensor(np.where(observed, cube, 0.0), dtype=torch.float32)
    given = {"resume": options["resume"]} if "resume" in options else {}
    return chosen.inpaint(
        y,
        torch.as_tensor(observed),
        torch.full((len(cube),), float(sigma_y)),
        chosen.settings,
        rng=torch.Generator().manual_seed(seed),
        **given,
    )


@each_peer
def test_nan_handed_to_the_method_itself_does_not_reach_its_result(cube, observed, method):
    y = torch.as_tensor(cube, dtype=torch.float32)
    seen = torch.as_tensor(observed)
    chosen = choose(method, None, PEERS[method])
    results = []
    for given in (torch.where(seen, y, 0.0), torch.where(seen, y, torch.nan)):
        rng = torch.Generator().manual_seed(0)
        *_, step = chosen.inpaint(given, seen, torch.zeros(5), chosen.settings, rng=rng)
        results.append(step.x)
    assert torch.equal(*results) and results[0].isfinite().all()


# What all of them do


@each_peer
def test_a_run_that_goes_on_ends_as_one_that_was_not_interrupted(cube, observed, method):
    whole = list(steps_of(cube, observed, method, 0.1))
    halfway = len(whole) // 2
    state = {k: v.clone() for k, v in _state_after(cube, observed, method, halfway).items()}
    rest = list(steps_of(cube, observed, method, 0.1, seed=9, resume=state))
    assert [s.done for s in rest] == [s.done for s in whole[halfway:]]
    assert torch.equal(rest[-1].x, whole[-1].x)


def _state_after(cube, observed, method, n):
    for i, step in enumerate(steps_of(cube, observed, method, 0.1), 1):
        if i == n:
            return step.state()
    raise AssertionError


@each_peer
def test_every_step_shows_an_estimate_and_its_loss(cube, observed, method):
    steps = list(steps_of(cube, observed, method))
    assert [s.done for s in steps] == list(range(1, steps[0].total + 1))
    assert all(s.x.shape == cube.shape and not s.x.requires_grad for s in steps)
    assert all(torch.isfinite(torch.as_tensor(v)) for s in steps for v in s.log.values())
    assert all("data" in s.log for s in steps)


@each_peer
def test_the_paper_s_preset_is_the_default_and_fast_is_smaller(method):
    paper, fast, default = (choose(method, p).settings for p in ("paper", "fast", None))
    assert paper == default and fast.steps < paper.steps


@pytest.mark.parametrize(
    ("method", "setting", "error"),
    [
        ("dhp", {"steps": 0}, BadValue),
        ("dhp", {"averaging": 1.0}, BadValue),
        ("dhp", {"jitter": -1.0}, BadValue),
        ("r-dlrhyin", {"eta": 0.0}, BadValue),
        ("r-dlrhyin", {"low_rank": -1.0}, BadValue),
        ("dds2m", {"steps": 4000}, BadValue),
        ("dds2m", {"scales": 7}, BadValue),
        ("dds2m", {"eta": 1.5}, BadValue),
        ("lrs-pnp-dip", {"fits": 0}, BadValue),
        ("share", {"channels": 20}, BadValue),
        ("share", {"transform": "twist"}, UnknownName),
        ("hir-diff", {"fidelity": 2.0}, BadValue),
    ],
)
def test_settings_that_mean_nothing_are_refused(method, setting, error):
    with pytest.raises(error):
        choose(method, None, setting)


OTHERS = {
    "dhp": {"steps": 4, "lr": 0.1, "amplitude": 1.0, "jitter": 0.0, "averaging": 0.5, "scales": 1},
    "r-dlrhyin": {"lr": 0.1, "low_rank": 9.0, "eta": 4.0, "delta": 0.01, "averaging": 0.5},
    "dds2m": {"chain": 20, "beta_start": 1e-3, "beta_end": 0.1, "lr": 0.1, "eta": 0.1,
              "eta_b": 0.5, "averaging": 0.1, "sigma_0": 0.1, "gaps_in_loss": False, "rank": 3,
              "channels": 4, "hidden": 4},
    "hyper-ei": {"lr": 0.1, "ei_weight": 9.0, "transform": "rotation", "n_transforms": 3,
                 "channels": 4, "memory": 8},
    "lrs-pnp-dip": {"fidelity": 5.0, "sparse": 1.0, "low_rank": 1.0, "strength": 0.5, "codes": 9,
                    "block": 4, "fits": 5, "lr": 0.01, "lipschitz": True, "channels": 8,
                    "scales": 1},
    "share": {"lr": 0.1, "lr_end": 1.0, "ei_weight": 9.0, "transform": "rotation",
              "n_transforms": 2, "averaging": 0.5, "memory": 4, "window": 2},
    "hir-diff": {"steps": 3, "decay": 2.0, "fidelity": 0.5, "variation": 0.5,
                 "guidance": "gradient"},
}  # fmt: skip


@each_peer
def test_every_setting_matters(cube, observed, method):
    # eta_b is about noisy data, the low rank about small singular values, lr_end about later steps
    sigma = 0.005 if method == "dds2m" else 0.0
    options = {"r-dlrhyin": {"low_rank": 5.0, "eta": 1.0}, "share": {"steps": 3}}.get(method, {})
    results = {last_of(cube, observed, method, sigma, **options)}
    for name, value in OTHERS[method].items():
        results.add(last_of(cube, observed, method, sigma, **options | {name: value}))
    assert len(results) == 1 + len(OTHERS[method])


def last_of(cube, observed, method, sigma, **options):
    *_, step = steps_of(cube, observed, method, sigma, **options)
    return step.x.numpy().tobytes()


def test_dds2m_assumes_the_larger_of_two_noises(cube, observed):
    known = last_of(cube, observed, "dds2m", 0.1)
    assert last_of(cube, observed, "dds2m", 0.0, sigma_0=0.1) == known
    assert last_of(cube, observed, "dds2m", 0.1, sigma_0=0.05) == known
    assert last_of(cube, observed, "dds2m", 0.1, sigma_0=0.2) != known


@pytest.mark.parametrize("method", ["dhp", "r-dlrhyin", "dds2m"])
def test_fitting_lowers_the_loss_and_beats_zero(tiny, stripes, method):
    more = {"steps": 60, "lr": 0.02, "channels": 8} | ({"chain": 120} if method == "dds2m" else {})
    if method == "dds2m":
        more |= {"beta_start": 2e-3, "beta_end": 0.1, "averaging": 0.8, "rank": 4}
    result = fill(tiny, stripes, method, **more)
    assert result.history[-1]["data"] < 0.5 * result.history[0]["data"]
    error = np.square(result.values - tiny)[:, ~stripes].mean()
    assert error < np.square(tiny)[:, ~stripes].mean() / 2  # 3 dB above the zero-filled cube


def test_dds2m_does_better_without_its_own_estimates_in_the_loss():
    """A wide gap: what it holds at first, it holds at the end, as published."""
    i, j = np.mgrid[:24, :24] / 24
    maps = np.stack([np.sin(3 * i + j), np.cos(4 * j - i), i * j])
    x = np.einsum("bk,kij->bij", np.random.default_rng(0).random((8, 3)), maps)
    x = (x - x.min()) / (x.max() - x.min())
    observed = np.ones((24, 24), bool)
    observed[:, 9:15] = False
    few = {"steps": 150, "chain": 300, "beta_start": 8e-4, "beta_end": 0.032, "lr": 0.02}
    small = {"channels": 8, "rank": 3, "scales": 2, "hidden": 16, "averaging": 0.8}

    def error(**how):
        result = fill(x, observed, "dds2m", **few, **small, **how)
        return np.sqrt(np.square(result.values - x)[:, ~observed].mean())

    assert error(gaps_in_loss=False) < 0.6 * error()


# The numbers of parameters, as published


def parameters_of(network):
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


@pytest.mark.parametrize(("bands", "count"), [(128, 3_141_632), (200, 3_243_080)])
def test_dhp_s_network_has_its_parameters(bands, count):
    assert parameters_of(SkipNet(bands)) == count


def test_share_s_trained_part_has_its_parameters():
    assert parameters_of(share.ShareNet(128, share.Share())) == 2_623_463


def test_every_parameter_of_share_gets_a_gradient():
    network = share.ShareNet(3, share.Share(channels=16, memory=8))
    network(torch.rand(1, 3, 48, 48)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    memories = [p.grad for n, p in network.named_parameters() if "slots" in n]
    assert len(memories) == 4 and all(g.abs().sum() > 0 for g in memories)


def test_dds2m_has_its_parameters():
    count = parameters_of(dds2m.Factors(128, dds2m.DDS2M()))
    assert count == 27_513_510


def test_dds2m_averages_pixels_between_a_convolution_and_its_norm():
    """As torch computes it for one network alone: the groups stay apart."""
    net = dds2m.SpatialNets(rank=2, channels=8, scales=2)
    x = torch.rand((1, 1, 16, 16), generator=torch.Generator().manual_seed(0))
    level = net.levels
    conv, norm = (next(m for m in level.down if isinstance(m, kind)) for kind in PARTS)
    ours = level.down(x.expand(-1, 2, -1, -1))
    for r, part in enumerate(ours.chunk(2, dim=1)):
        own = slice(8 * r, 8 * r + 8)
        padded = F.pad(x, (3, 3, 3, 3), mode="reflect")
        halved = F.avg_pool2d(F.conv2d(padded, conv.weight[own], conv.bias[own]), 2)
        normed = F.batch_norm(halved, None, None, norm.weight[own], norm.bias[own], training=True)
        torch.testing.assert_close(part, F.leaky_relu(normed, 0.2))


def test_hyper_ei_s_trained_part_has_its_parameters():
    assert parameters_of(hyper_ei.HyperEINet(128)) == 4_940_044 - 199_680


# DHP and R-DLRHyIn


def test_dhp_s_first_loss_is_the_masked_square_over_all_entries(cube, observed):
    step = next(steps_of(cube, observed, "dhp"))
    seen = np.broadcast_to(observed, cube.shape)
    expected = np.square(step.x.numpy() - cube)[seen].sum() / cube.size
    assert float(step.log["data"]) == pytest.approx(expected, rel=1e-5)


def test_averaging_is_a_running_mean_of_the_outputs(cube, observed):
    plain = [s.x for s in steps_of(cube, observed, "dhp")]
    averaged = [s.x for s in steps_of(cube, observed, "dhp", averaging=0.75)]
    expected = plain[0]
    for now, mean in zip(plain, averaged, strict=True):
        expected = 0.75 * expected + 0.25 * now
        torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize("shape", [(6, 9, 8), (7, 2, 2)])
def test_the_rank_surrogate_is_that_of_the_singular_values(shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).double() * 0.1
    x.requires_grad_()
    ours = rank_surrogate(x, 0.04)
    s = torch.linalg.svdvals(x.flatten(1))
    expected = (1 - torch.exp(-s / 0.04)).sum()
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    (g,), (h,) = torch.autograd.grad(ours, x), torch.autograd.grad(expected, x)
    torch.testing.assert_close(g, h, rtol=1e-3, atol=1e-3)


def test_the_low_rank_term_feels_only_small_singular_values():
    x = torch.rand((8, 20, 20), generator=torch.Generator().manual_seed(0), requires_grad=True)
    (g,) = torch.autograd.grad(rank_surrogate(x, 0.04), x)
    assert g.abs().max() < 1e-10  # as peers' code measured: about 0 on data of the unit range
    (g,) = torch.autograd.grad(rank_surrogate(x, 4.0), x)
    assert g.abs().max() > 1e-4


def test_r_dlrhyin_s_data_term_is_half_the_summed_square(cube, observed):
    step = next(steps_of(cube, observed, "r-dlrhyin"))
    seen = np.broadcast_to(observed, cube.shape)
    expected = 0.5 * np.square(step.x.numpy() - cube)[seen].sum()
    assert float(step.log["data"]) == pytest.approx(expected, rel=1e-5)
    assert 0 < float(step.log["prior"]) <= 0.1 * 5


def test_r_dlrhyin_is_robust_where_y_is_noisy(cube, observed):
    clean = [last_of(cube, observed, "r-dlrhyin", 0.0, delta=d) for d in (None, 1.0)]
    noisy = [last_of(cube, observed, "r-dlrhyin", 0.1, delta=d) for d in (None, 0.1, 1.0)]
    assert clean[0] == clean[1] and noisy[0] == noisy[1] != noisy[2]


# DDS2M


def spread(t, sigma_y, observed, n=200_000, **options):
    """Mean and std of x_{t-1} / √ᾱ - truth when x̂_0 is the truth and y and x_t are as modelled."""
    settings = dds2m.DDS2M(**options)
    alpha_bar = linear_alpha_bar(settings.chain, settings.beta_start, settings.beta_end)
    rng = torch.Generator().manual_seed(0)
    truth = torch.full((n,), 0.3, dtype=torch.float64)

    def noise():
        return torch.randn(n, generator=rng, dtype=torch.float64)

    now, before = alpha_bar[t].item(), alpha_bar[t - 1].item()
    x = now**0.5 * truth + (1 - now) ** 0.5 * noise()
    y = truth + sigma_y * noise()
    sigma, seen = torch.tensor(float(sigma_y)), torch.tensor(observed)
    new = dds2m.ddrm_step(x, truth, y, seen, sigma, alpha_bar, t, settings, noise())
    error = new / before**0.5 - truth
    return error.mean().item(), error.std().item(), ((1 - before) / before) ** 0.5


@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("sigma_y", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("t", [1500, 300, 2])
def test_ddrm_keeps_the_noise_of_its_schedule(t, sigma_y, observed):
    mean, std, expected = spread(t, sigma_y, observed)
    assert mean == pytest.approx(0, abs=0.02 * expected + 1e-9)
    assert std == pytest.approx(expected, rel=0.02)


def test_the_last_step_of_ddrm_is_y_without_noise_and_the_estimate_with():
    settings, alpha_bar = dds2m.DDS2M(), linear_alpha_bar(3000, 1e-4, 0.005)
    x, x0, y, eps = torch.rand((4, 6), generator=torch.Generator().manual_seed(0))
    seen = torch.tensor([True, True, True, False, False, False])
    for sigma, message in ((0.0, y), (0.2, x0)):
        new = dds2m.ddrm_step(x, x0, y, seen, torch.tensor(sigma), alpha_bar, 1, settings, eps)
        torch.testing.assert_close(new, torch.where(seen, message, x0))


def test_groups_are_networks_of_their_own():
    """What enters one of the spatial networks leaves by that one alone."""
    nets = layers.built(lambda: dds2m.SpatialNets(3, 8, 2), torch.Generator().manual_seed(0))
    x = torch.rand((1, 3, 16, 16), generator=torch.Generator().manual_seed(1))
    other = x.clone()
    other[:, 1] += 1 * torch.rand(16, 16, generator=torch.Generator().manual_seed(2))
    changed = (nets(x) - nets(other)).abs().amax(dim=(0, 2, 3)) > 1e-6
    assert changed.tolist() == [False, True, False]


def test_the_networks_leave_the_first_half_of_the_chain_alone(cube, observed):
    """Its state is DDRM's with x̂_0 = x_t, and the running mean starts from it, clipped."""
    first = next(steps_of(cube, observed, "dds2m", averaging=0.999999))
    state = first.state()
    assert int(state["t"]) == 3 and state["mean"].min() >= 0 and state["mean"].max() <= 1
    again = next(steps_of(cube, observed, "dds2m", averaging=0.999999, lr=1.0))
    torch.testing.assert_close(again.x, first.x)  # whatever the networks learn later
    other = next(steps_of(cube, observed, "dds2m", averaging=0.0))
    assert not torch.equal(other.x, first.x)


def test_the_first_state_is_noise_around_the_measurement():
    alpha_bar, n = linear_alpha_bar(3000, 1e-4, 0.005), 100_000
    rng = torch.Generator().manual_seed(0)
    y, eps = torch.full((2, n), 0.8), torch.randn((2, n), generator=rng)
    seen = torch.tensor([[True], [False]])
    x = dds2m.first_state(y, seen, torch.zeros(()), alpha_bar, eps)
    left = alpha_bar[-1].item()
    sigma = ((1 - left) / left) ** 0.5
    assert x[0].mean().item() == pytest.approx(0.8 / sigma, abs=0.02)
    assert x[1].mean().item() == pytest.approx(0, abs=0.02)
    assert x.std(dim=1).tolist() == pytest.approx([1, 1], rel=0.02)


def test_a_measurement_noisier_than_the_first_state_does_not_reach_it():
    y, eps = torch.full((1, 1, 2, 2), 0.7), torch.rand((1, 1, 2, 2))
    alpha_bar = linear_alpha_bar(10, 1e-4, 0.02)  # its noise has std 0.33
    for sigma_y, same in ((0.2, False), (0.5, True)):
        x = dds2m.first_state(y, torch.ones(()).bool(), torch.tensor(sigma_y), alpha_bar, eps)
        assert torch.equal(x, eps) == same


def test_attention_adds_to_its_input_at_most_the_input():
    block = dds2m.Attention(2, 16)
    x = torch.rand((1, 32, 8, 8), generator=torch.Generator().manual_seed(0))
    share_added = (block(x) - x) / x
    assert share_added.min() > 0 and share_added.max() < 1
    other = x.clone()
    other[:, 16:] *= 0.5  # the second group
    assert torch.equal(block(other)[:, :16], block(x)[:, :16])


def test_spectral_networks_share_their_input_and_not_their_weights():
    nets = layers.built(lambda: dds2m.SpectralNets(3, 8, 8), torch.Generator().manual_seed(0))
    assert [tuple(w.shape[1:]) for w in nets.weights] == [
        (8, 8),
        (8, 16),
        (16, 16),
        (16, 8),
        (8, 8),
    ]
    spectra = nets(torch.rand((1, 1, 8)))
    assert spectra.shape == (3, 8) and not torch.equal(spectra[0], spectra[1])


# The memory of spectra, and Hyper-EI


def test_the_memory_has_no_path_around_it_and_starts_with_unit_slots():
    block = layers.built(lambda: SpectralMemory(16, 4096, 4), torch.Generator().manual_seed(0))
    assert block.slots.std().item() == pytest.approx(1, rel=0.02)
    x = torch.rand((1, 16, 8, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        block.mix.weight.zero_()
        torch.testing.assert_close(block(x), block.mix.bias.view(1, -1, 1, 1).expand_as(x))


def test_a_window_of_the_memory_sees_itself_alone():
    block = layers.built(lambda: SpectralMemory(16, 8, 4), torch.Generator().manual_seed(0))
    x = torch.rand((1, 16, 8, 8), generator=torch.Generator().manual_seed(1))
    other = x.clone()
    other[..., :4, :4] += torch.rand((16, 4, 4), generator=torch.Generator().manual_seed(2))
    changed = (block(x) - block(other)).abs().amax(dim=(0, 1)) > 1e-6
    assert changed[:4, :4].all() and not changed[4:].any() and not changed[:, 4:].any()


def test_hyper_ei_s_rate_falls_by_ten_after_800_900_and_1000_steps():
    rates = [hyper_ei.fallen(i) for i in (1, 800, 801, 900, 901, 1000, 1001, 1002)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_hyper_ei_counts_all_entries_and_knows_no_noise(cube, observed):
    clean, noisy = (next(steps_of(cube, observed, "hyper-ei", s)) for s in (0.0, 0.3))
    assert torch.equal(clean.x, noisy.x) and torch.equal(clean.log["ei"], noisy.log["ei"])
    seen = np.broadcast_to(observed, cube.shape)
    expected = np.square(clean.x.numpy() - cube)[seen].sum() / cube.size
    assert float(clean.log["data"]) == pytest.approx(expected, rel=1e-4)


def test_hyper_ei_ends_with_the_running_statistics(cube, observed):
    *_, last = steps_of(cube, observed, "hyper-ei")
    tensors = last.state()
    net = hyper_ei.HyperEINet(len(cube), 8, 4)
    net.load_state_dict({k[8:]: v for k, v in tensors.items() if k[:8] == "network."})
    y = torch.as_tensor(np.where(observed, cube, 0), dtype=torch.float32)[None]
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(y)[0], last.x)
        assert not torch.allclose(net.train()(y)[0], last.x)


# SHARE


def test_share_normalises_its_shifted_copies_together():
    network = share.ShareNet(3, share.Share(channels=16, memory=8))
    x = torch.rand((2, 3, 48, 48), generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(network(x)[:1], network(x[:1]), atol=1e-4)


def test_share_s_rate_falls_along_a_cosine():
    assert share.cosine(0, 0.1) == 1 and share.cosine(1, 0.1) == pytest.approx(0.1)
    assert share.cosine(0.5, 0.1) == pytest.approx(0.55)


def test_share_uses_sure_when_there_is_noise(cube, observed):
    one, other = (next(steps_of(cube, observed, "share", s)).log["data"] for s in (0.0, 0.3))
    assert not torch.equal(one, other)


def test_share_halves_the_same_way_when_it_must_be_deterministic():
    x = torch.randn((1, 2, 4, 6, 2), generator=torch.Generator().manual_seed(0))
    x.relu_().requires_grad_()  # half of it ties at 0, as in the network

    def both():
        y = share.halved(x)
        (g,) = torch.autograd.grad(y.square().sum(), x)
        return y, g

    plain = both()
    torch.use_deterministic_algorithms(True)
    try:
        torch.testing.assert_close(both(), plain)
    finally:
        torch.use_deterministic_algorithms(False)


# HIR-Diff


def test_three_bands_give_a_rank_3_cube_back():
    rng = torch.Generator().manual_seed(0)
    spectra, maps = torch.rand((9, 3), generator=rng), torch.rand((3, 8, 8), generator=rng)
    cube = torch.einsum("ck,khw->chw", spectra, maps).double()
    E = hir_diff.expansion(cube)
    bands = [int((E - row).abs().sum(1).argmin()) for row in torch.eye(3).double()]
    torch.testing.assert_close(torch.einsum("ck,khw->chw", E, cube[bands]), cube)


@pytest.mark.parametrize("guidance", hir_diff.GUIDANCE)
def test_hir_diff_answers_within_the_unit_range(cube, observed, guidance):
    for step in steps_of(cube, observed, "hir-diff", guidance=guidance, variation=0.0):
        assert step.x.min() >= 0 and step.x.max() <= 1


def test_guidance_by_the_gradient_lowers_the_misfit(cube, observed):
    def misfit(**options):
        *_, step = steps_of(cube, observed, "hir-diff", steps=20, variation=0.0, **options)
        return float(step.log["data"])

    without = misfit(guidance="gradient", fidelity=0.0)
    assert misfit(guidance="gradient", fidelity=0.3) < 0.5 * without


def test_every_output_of_the_stand_in_says_so(cube, observed):
    assert any(hir_diff.STAND_IN in note for note in fill(cube, observed, "hir-diff").notes)
    assert hir_diff.STAND_IN in METHODS["hir-diff"].summary
    record = provenance.record(fill(cube, observed, "hir-diff"))
    assert any(hir_diff.STAND_IN in note for note in record["notes"])


def test_the_stand_in_is_small_and_denoises():
    from importlib.resources import files

    assert (files("hydiff") / "data" / "hir_diff.safetensors").stat().st_size < 1_000_000
    denoise = hir_diff.load_denoiser()
    rng = torch.Generator().manual_seed(0)
    rows = torch.linspace(-0.5, 0.5, 32)
    x0 = torch.stack([rows[:, None].expand(32, 32), rows.expand(32, 32), 0.2 * torch.ones(32, 32)])
    for a in (0.9, 0.5):
        x = a**0.5 * x0 + (1 - a) ** 0.5 * torch.randn(x0.shape, generator=rng)
        after = denoise(x[None], torch.tensor([a]))[0]
        assert (after - x0).square().mean() < 0.2 * (x / a**0.5 - x0).square().mean()


def test_weights_of_another_layout_are_refused(tmp_path, cube, observed):
    from safetensors.torch import save_file

    def refused(path, match):
        with pytest.raises(CubeFormatError, match=match):
            fill(cube, observed, "hir-diff", denoiser=str(path))

    path = tmp_path / "weights.safetensors"
    refused(path, "no such file")
    path.write_bytes(b"not weights")
    refused(path, "not a readable")
    save_file({"a": torch.zeros(2)}, path)
    refused(path, "not weights of")
    save_file({"a": torch.zeros(2)}, path, metadata={"hydiff": '{"layout": 1, "kind": "other"}'})
    refused(path, "of the kind 'other'")
    about = {"layout": 1, "kind": hir_diff.KIND, "channels": 8}
    save_file({"a": torch.zeros(2)}, path, metadata={"hydiff": json.dumps(about)})
    refused(path, "tensor a")
    for channels in (None, "x", 0):
        message = json.dumps(about | {"channels": channels})
        save_file({"a": torch.zeros(2)}, path, metadata={"hydiff": message})
        refused(path, "says channels = ")
    network = hir_diff.Denoiser(8)
    hir_diff.save_denoiser(network, path)
    result = fill(cube, observed, "hir-diff", denoiser=str(path))
    assert not any(hir_diff.STAND_IN in note for note in result.notes)
    with torch.no_grad():
        network.enter.weight.fill_(torch.nan)
    hir_diff.save_denoiser(network, path)
    refused(path, "enter.weight is damaged")
    assert issubclass(CubeFormatError, HydiffError)


def test_training_a_denoiser_lowers_its_loss():
    bands = torch.linspace(0, 1, 12)[:, None] * torch.ones(4, 12, 12)
    training = denoiser.trained(
        [bands], rng=torch.Generator().manual_seed(0), batch=8, crop=8, channels=4, lr=0.01
    )
    losses = [next(training)[1] for _ in range(60)]
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:20])


# Layers


@pytest.mark.parametrize("n", [1, 3])
def test_reflection_is_the_same_in_both_ways(n):
    x = torch.rand((2, 3, 6, 5), generator=torch.Generator().manual_seed(0))
    fast = layers.reflected(x, n)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(layers.reflected(x, n), fast)
    finally:
        torch.use_deterministic_algorithms(False)


def test_reflecting_to_a_multiple_goes_to_and_fro():
    x = torch.tensor([[1, 2, 3]])
    wide = layers.reflect_to_multiple(x, 4, least=5)
    assert wide.tolist() == [[1, 2, 3, 2, 1, 2, 3, 2]] * 8
    assert layers.reflect_to_multiple(torch.ones(8, 4), 4) is not None
    same = torch.rand(8, 4)
    assert layers.reflect_to_multiple(same, 4) is same
