"""Methods of hydiff as reconstructors of deepinv, where deepinv is installed."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

import hydiff
from hydiff.errors import HydiffError

if find_spec("deepinv") is None:
    pytest.skip("deepinv is not installed: pip install deepinv", allow_module_level=True)
import deepinv

from hydiff.deepinv import FillReconstructor


def test_a_reconstruction_is_the_fill_of_each_cube_and_agrees_with_the_physics(tiny, stripes):
    x = torch.as_tensor(np.stack([tiny, tiny[::-1].copy()]), dtype=torch.float32)
    mask = torch.as_tensor(np.broadcast_to(stripes, tiny.shape).copy()).float()
    physics = deepinv.physics.Inpainting(tiny.shape, mask=mask)
    y = physics(x)
    x_hat = FillReconstructor("smooth")(y, physics)
    assert torch.equal(physics.A(x_hat), y) and x_hat.dtype == y.dtype
    for cube, found in zip(y.numpy(), x_hat.numpy(), strict=True):
        direct = hydiff.fill(cube, stripes, method="smooth").values
        np.testing.assert_array_equal(found, direct.astype(np.float32))


def test_bands_are_first_whatever_the_lengths_look_like():
    """An array of this shape would be refused: it looks like rows, columns and bands."""
    mask = torch.ones(40, 40, 60)
    mask[:, 3:5] = 0
    physics = deepinv.physics.Inpainting((40, 40, 60), mask=mask)
    y = physics(torch.arange(60.0).expand(1, 40, 40, 60))
    assert torch.allclose(FillReconstructor("linear")(y, physics)[0, :, 3], torch.arange(60.0))


def test_the_noise_of_the_physics_is_sigma_y(tiny, stripes):
    mask = torch.as_tensor(np.broadcast_to(stripes, tiny.shape).copy()).float()
    noise = deepinv.physics.GaussianNoise(0.05)
    physics = deepinv.physics.Inpainting(tiny.shape, mask=mask, noise_model=noise)
    y = physics(torch.as_tensor(tiny, dtype=torch.float32)[None])
    found = FillReconstructor("smooth")(y, physics)[0].numpy()
    sigma = float(noise.sigma)
    direct = hydiff.fill(y[0].numpy(), stripes, method="smooth", sigma_y=sigma).values
    np.testing.assert_array_equal(found, direct.astype(np.float32))


def test_other_physics_and_noise_are_refused_in_one_line(tiny):
    y = torch.zeros(1, *tiny.shape)
    inpainting = deepinv.physics.Inpainting(tiny.shape, mask=torch.ones(1, *tiny.shape))
    inpainting.noise_model = deepinv.physics.PoissonNoise(0.1)
    for physics, said in [(deepinv.physics.Denoising(), "expected deepinv.physics.Inpainting"),
                          (inpainting, "expected Gaussian noise")]:  # fmt: skip
        with pytest.raises(HydiffError, match=said) as raised:
            FillReconstructor("smooth")(y, physics)
        assert "\n" not in str(raised.value)
    assert FillReconstructor("linear", sigma_y=0.1)(y + 1, inpainting).shape == y.shape


@pytest.mark.parametrize(("y", "said"), [
    (torch.zeros(1, 3, 8, 5), "but the mask of the physics"),
    (torch.zeros(3, 8, 9), "found y of the shape"),
    (np.zeros((1, 3, 8, 9)), "found ndarray"),
])  # fmt: skip
def test_a_y_that_is_not_of_the_physics_is_refused_in_one_line(y, said):
    physics = deepinv.physics.Inpainting((3, 8, 9), mask=torch.ones(1, 3, 8, 9))
    with pytest.raises(HydiffError, match=said) as raised:
        FillReconstructor("linear")(y, physics)
    assert "\n" not in str(raised.value)


def test_each_cube_may_have_its_own_noise_and_any_float_type(tiny, stripes):
    mask = torch.as_tensor(np.broadcast_to(stripes, tiny.shape).copy()).float()
    physics = deepinv.physics.Inpainting(tiny.shape, mask=mask)
    y = physics(torch.as_tensor(np.stack([tiny, tiny]), dtype=torch.float32))
    physics.noise_model = deepinv.physics.GaussianNoise(torch.tensor([0.01, 0.2]))
    found = FillReconstructor("smooth")(y, physics).numpy()
    for cube, sigma, one in zip(y.numpy(), (0.01, 0.2), found, strict=True):
        direct = hydiff.fill(cube, stripes, method="smooth", sigma_y=float(np.float32(sigma)))
        np.testing.assert_array_equal(one, direct.values.astype(np.float32))
    assert not np.array_equal(found[0], found[1])
    physics.noise_model = deepinv.physics.ZeroNoise()
    half = FillReconstructor("linear")(y.bfloat16(), physics)
    assert half.dtype == torch.bfloat16 and half.isfinite().all()
    assert FillReconstructor("linear")(y[:0], physics).shape == y[:0].shape
