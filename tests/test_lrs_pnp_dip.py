"""Laws of LRS-PnP-DIP: its blocks, its coding, its denoiser, its bounded network, its end."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.fft import dct
from skimage.restoration import denoise_nl_means

import hydiff
from hydiff.bench import scenes
from hydiff.learn.engine import Fit
from hydiff.learn.lipschitz import BoundedConv, BoundedNorm, LipschitzNet, side_for
from hydiff.methods import lrs_pnp_dip as peer

PLAIN = peer.LRSPnPDIP()


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("shape", [(72, 36), (50, 41), (7, 3), (1, 1)])
def test_blocks_cover_a_matrix_and_their_mean_is_the_matrix(shape, rng):
    matrix = torch.rand(shape, generator=rng)
    blocks = peer.SparseBlocks.of(torch.ones(shape, dtype=torch.bool), 36)
    torch.testing.assert_close(blocks.mean(blocks.cut(matrix)), matrix)
    assert blocks.reached.all()


def test_a_block_without_an_observed_entry_says_nothing(rng):
    observed = torch.ones((12, 8), dtype=torch.bool)
    observed[4:8, :4] = False
    blocks = peer.SparseBlocks.of(observed, 4)
    assert torch.equal(blocks.reached, observed)
    said = blocks.mean(torch.rand((3, 2, 4, 4), generator=rng))
    assert not said[~observed].any() and said[observed].all()


@pytest.mark.parametrize("n", [1, 2, 5, 36])
def test_the_dictionary_is_the_cosine_transform_of_scipy(n):
    basis = peer.cosines(n, torch.zeros((), dtype=torch.float64)).numpy()
    np.testing.assert_allclose(basis, dct(np.eye(n), norm="ortho"), atol=1e-12)


def test_a_complete_block_without_a_denoiser_is_coded_exactly(rng):
    blocks = torch.rand((2, 3, 9, 7), generator=rng)
    weak = replace(PLAIN, strength=1e-9, codes=3)
    coded = peer.coded(blocks, torch.ones_like(blocks, dtype=torch.bool), weak)
    torch.testing.assert_close(coded, blocks)


def test_a_gap_in_a_smooth_block_is_coded_better_than_as_zero():
    i, j = torch.meshgrid(torch.arange(36) / 36, torch.arange(36) / 36, indexing="ij")
    block = (0.5 + 0.3 * torch.cos(3 * i) * torch.cos(2 * j))[None, None]
    observed = torch.ones_like(block, dtype=torch.bool)
    observed[..., 10:14, :] = False
    found = peer.coded(block, observed, PLAIN)
    assert (found - block)[~observed].square().mean() < 0.25 * block[~observed].square().mean()


@pytest.mark.parametrize("h", [0.01, 0.05, 0.5])
def test_the_denoiser_of_coefficients_is_scikit_image_s(h):
    """But for its exponential, which is an approximation to some per cent."""
    z = 0.1 * np.random.default_rng(0).standard_normal((4, 40))
    ours = peer.nonlocal_means(torch.as_tensor(z), h).numpy()
    for vector, found in zip(z, ours, strict=True):
        theirs = denoise_nl_means(vector[:, None], 3, 3, h=h, fast_mode=True).ravel()
        np.testing.assert_allclose(found, theirs, rtol=0, atol=0.004)


@pytest.mark.parametrize(("n", "side"), [(36, 36), (20, 20), (5, 20), (37, 52), (144, 148)])
def test_sides_that_double_back_are_those_of_the_published_network(n, side):
    assert side_for(n) == side
    halves = [side]
    for _ in range(4):
        halves.append(-(-halves[-1] // 2))
    for kernel, (deep, above) in zip(
        (2, 2, 3, 3), zip(halves[:0:-1], halves[-2::-1], strict=True), strict=True
    ):
        assert 2 * deep - (kernel == 2) == above


def test_no_weight_matrix_amplifies_however_long_it_is_fitted(rng):
    network = LipschitzNet(5, 8)
    fit = Fit(network, lr=0.1, rng=rng, engine="eager")
    x = torch.rand((1, 5, 23, 36), generator=rng)
    for _ in range(5):
        fit.step(lambda _: (lambda out: ((out - x).square().mean()[None], out))(network(x)))
    convs = [m for m in network.modules() if isinstance(m, BoundedConv)]
    norms = [torch.linalg.matrix_norm(c.bounded().flatten(1), 2).item() for c in convs]
    assert len(convs) == 14 and max(norms) <= 1 + 1e-5
    assert max(torch.linalg.matrix_norm(c.weight.flatten(1), 2).item() for c in convs) > 1
    assert network(x).shape == x.shape


def test_a_norm_s_factors_are_at_most_one(rng):
    norm = BoundedNorm(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([4.0, 1.0, -2.0]))
    x = torch.rand((1, 3, 9, 9), generator=rng)
    found = norm(x).std(dim=(2, 3), correction=0)[0]
    torch.testing.assert_close(found, torch.tensor([1.0, 0.25, 0.5]), atol=1e-3, rtol=1e-3)


def test_a_small_matrix_is_left_as_it_is():
    conv = BoundedConv(2, 3, 3)
    with torch.no_grad():
        conv.weight.mul_(1e-3)
    assert torch.equal(conv.bounded(), conv.weight)


def test_a_fit_ends_where_the_variance_of_its_outputs_no_longer_falls():
    settled = peer.variance_settles(window=3, patience=4)
    falling = [torch.tensor([2.0**-i, 0.0]) for i in range(8)]
    assert not any(settled(out) for out in falling)
    away = [settled(torch.tensor([2.0**i, 0.0])) for i in range(6)]
    assert away == [False] * 3 + [True] * 3


@pytest.mark.parametrize("lipschitz", [False, True])
def test_it_beats_the_zero_filled_cube(lipschitz):
    x = scenes.load(scenes.QUICK)[:, :36, :36]
    observed = np.ones((36, 36), bool)
    observed[:, 9:13] = observed[:, 22:25] = False
    small = {"steps": 3, "fits": 20, "codes": 15, "channels": 16, "scales": 3}
    how = {"method": "lrs-pnp-dip", "device": "cpu", "lipschitz": lipschitz} | small
    result = hydiff.fill(x, observed, **how)
    error, zero = (np.square(a)[:, ~observed].mean() for a in (result.values - x, x))
    assert error < zero / 4
