"""y = M x + n: laws of the mask as an operator, and statistics of the noise."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from hydiff.errors import BadValue, ShapeMismatch
from hydiff.learn.degrade import Inpainting, add_noise, measure

C, H, W = 3, 4, 5
unhurried = settings(deadline=None)  # the first call of torch is slow


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=rng(seed), dtype=torch.float64)


@st.composite
def problems(draw_from: st.DrawFn) -> tuple[Inpainting, Tensor, Tensor]:
    """A mask, 2-D or 3-D, and two cubes, with or without a batch axis."""
    seed = draw_from(st.integers(0, 2**31))
    mask_shape = draw_from(st.sampled_from([(H, W), (C, H, W)]))
    cube_shape = draw_from(st.sampled_from([(C, H, W), (2, C, H, W)]))
    observed = torch.rand(mask_shape, generator=rng(seed)) < 0.6
    return Inpainting(observed), draw(seed + 1, *cube_shape), draw(seed + 2, *cube_shape)


@unhurried
@given(problems())
def test_the_mask_is_self_adjoint(problem):
    M, x, y = problem
    torch.testing.assert_close((M.A(x) * y).sum(), (x * M.A_adjoint(y)).sum())


@unhurried
@given(problems())
def test_the_mask_is_idempotent_and_its_own_pseudo_inverse(problem):
    M, x, _ = problem
    assert torch.equal(M.A(M.A(x)), M.A(x))
    assert torch.equal(M.A(M.A_dagger(M.A(x))), M.A(x))  # M M† M = M
    assert torch.equal(M.A_dagger(M.A(M.A_dagger(x))), M.A_dagger(x))  # M† M M† = M†


@unhurried
@given(problems())
def test_the_consistency_step_is_a_projection_that_keeps_y(problem):
    M, x, truth = problem
    y = M.A(truth)

    def consistent(x: Tensor) -> Tensor:
        return x - M.A_dagger(M.A(x) - y)

    once = consistent(x)
    torch.testing.assert_close(M.A(once), y, rtol=0, atol=1e-14)
    torch.testing.assert_close(consistent(once), once, rtol=0, atol=1e-14)
    missing = ~M.observed.expand(x.shape)
    assert torch.equal(once[missing], x[missing])


@unhurried
@given(problems())
def test_singular_values_are_the_diagonal_of_the_mask(problem):
    M, x, _ = problem
    torch.testing.assert_close(M.singular_values.to(x.dtype) * x, M.A(x))
    assert set(M.singular_values.unique().tolist()) <= {0.0, 1.0}


@unhurried
@given(st.integers(0, 2**31))
def test_a_shared_mask_equals_the_same_mask_in_every_band(seed):
    observed = torch.rand((H, W), generator=rng(seed)) < 0.5
    x = draw(seed, C, H, W)
    once = measure(x, observed, 0.1, rng=rng(seed))
    assert torch.equal(once, measure(x, observed.expand(C, H, W), 0.1, rng=rng(seed)))


def test_nan_in_a_gap_does_not_pass():
    x = torch.full((1, 1, 2), torch.nan)
    x[..., 0] = 1.0
    assert measure(x, torch.tensor([[True, False]]), rng=rng()).tolist() == [[[1.0, 0.0]]]


@pytest.mark.parametrize("sigma", [0.0, 0.3, [0.0, 0.1, 0.5], np.array([0.2, 0.2, 0.4])])
def test_the_noise_has_the_std_asked_for_and_none_on_missing_entries(sigma):
    x = draw(1, C, 200, 200)
    observed = torch.rand((C, 200, 200), generator=rng(2)) < 0.7
    sigma_y = torch.tensor(sigma) if isinstance(sigma, list) else sigma
    y = measure(x, observed, sigma_y, rng=rng(3))
    assert torch.all(y[~observed] == 0)
    for band, std in enumerate(np.broadcast_to(sigma, C)):
        noise = (y - x)[band][observed[band]]
        # 28 000 draws: the standard error of a std is std / √(2n) < 0.5 %; five of them
        assert abs(noise.std().item() - std) <= 0.025 * std
        assert abs(noise.mean().item()) <= 5 * std / len(noise) ** 0.5


def test_the_noise_is_gaussian():
    noise = add_noise(torch.zeros(1, 300, 300, dtype=torch.float64), 1.0, rng())
    within = [(noise.abs() < k).double().mean().item() for k in (1, 2, 3)]
    assert within == pytest.approx([0.6827, 0.9545, 0.9973], abs=0.006)


def test_same_seed_same_bits_and_the_stream_does_not_depend_on_sigma():
    x = draw(0, C, H, W)
    a, b = rng(7), rng(7)
    assert torch.equal(add_noise(x, 0.2, a), add_noise(x, 0.2, b))
    add_noise(x, 0.0, a)
    add_noise(x, 0.5, b)
    assert torch.equal(torch.rand(5, generator=a), torch.rand(5, generator=b))
    assert not torch.equal(add_noise(x, 0.2, rng(0)), add_noise(x, 0.2, rng(1)))


def test_a_batch_takes_one_sigma_per_band():
    y = add_noise(torch.zeros(2, C, 50, 50), torch.tensor([0.0, 1.0, 0.0]), rng())
    assert torch.all(y[:, [0, 2]] == 0) and torch.all(y[:, 1].std(dim=(1, 2)) > 0.9)


@settings(deadline=None, max_examples=10)
@given(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
def test_the_dtype_is_kept_and_sigma_zero_changes_nothing(dtype):
    x = draw(0, C, H, W).to(dtype)
    observed = torch.ones(H, W, dtype=torch.bool)
    assert measure(x, observed, 0.3, rng=rng()).dtype == dtype
    assert torch.equal(measure(x, observed, rng=rng()), x)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf"), torch.tensor([0.1, -0.1, 0])])
def test_impossible_noise_is_refused(sigma):
    with pytest.raises(BadValue, match="sigma_y"):
        add_noise(torch.zeros(C, H, W), sigma, rng())


@pytest.mark.parametrize("n", [1, C + 1])
def test_sigma_of_another_length_is_refused(n):
    with pytest.raises(ShapeMismatch, match="3 bands"):
        add_noise(torch.zeros(C, H, W), torch.ones(n), rng())


def test_wrong_masks_and_dtypes_are_refused():
    x = torch.zeros(C, H, W)
    with pytest.raises(ShapeMismatch, match="rows, cols"):
        measure(x, torch.ones(H, W + 1, dtype=torch.bool), rng=rng())
    with pytest.raises(ShapeMismatch, match="rows, cols"):
        measure(x, torch.ones(W, dtype=torch.bool), rng=rng())
    with pytest.raises(BadValue, match="boolean"):
        Inpainting(torch.ones(H, W))
    with pytest.raises(BadValue, match="float"):
        add_noise(x.to(torch.int16), 0.1, rng())
