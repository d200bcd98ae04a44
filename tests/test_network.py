"""The skip network: the layers of DHP, any size, and weights that follow from the seed."""

import pytest
import torch
from torch.nn import functional as F

from hydiff.errors import ShapeMismatch
from hydiff.learn.network import NORMS, Norm, SkipNet, build, mirrored_up_to, norm_of

# Counted on DHP's own network; the one for 200 bands is printed in its notebook.
PARAMETERS = {31: 3_004_959, 128: 3_141_632, 145: 3_165_585, 200: 3_243_080, 285: 3_362_845}


def images(*shape, seed=0, dtype=torch.float32):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def net():
    return build(3, channels=4, seed=0)


@pytest.mark.parametrize(("bands", "count"), PARAMETERS.items())
def test_as_many_parameters_as_the_published_network(bands, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in SkipNet(bands).parameters()) == count


def test_parameters_for_any_channels_and_scales():
    with torch.device("meta"):
        net = SkipNet(7, channels=5, scales=3, out_bands=2)

    def conv(c_in, c, k):
        return c_in * c * k * k + c

    def level(c_in, c):
        convs = conv(c_in, c, 1) + conv(c_in, c, 3) + conv(c, c, 3) + conv(2 * c, c, 3)
        return convs + conv(c, c, 1) + 2 * (5 * c + 2 * c)

    expected = level(7, 5) + 2 * level(5, 5) + conv(5, 2, 1)
    assert sum(p.numel() for p in net.parameters()) == expected


SIZES = [
    *[(n, n) for n in (144, 100, 36, 145, 33, 32, 16, 8, 1)],
    *[(150, 130), (5, 40), (40, 5), (1, 70)],
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_size_comes_back(net, size):
    out = net(images(1, 3, *size))
    assert out.shape == (1, 3, *size)
    assert out.min() > 0
    assert out.max() < 1


@pytest.mark.parametrize("bands", [1, 300])
def test_any_number_of_bands(bands):
    assert build(bands, channels=4, scales=2, seed=0)(images(1, bands, 9, 12)).shape[1] == bands


def test_out_bands_may_differ():
    assert SkipNet(3, channels=4, scales=1, out_bands=5)(images(1, 3, 8, 8)).shape == (1, 5, 8, 8)


def plain_forward(weights, x, scales):
    """The network once more, as plain functions on the same weights."""

    def norm(z, name):
        mean, var = z.mean((0, 2, 3), keepdim=True), z.var((0, 2, 3), correction=0, keepdim=True)
        scale, offset = (weights[f"{name}.{k}"][:, None, None] for k in ("weight", "bias"))
        return (z - mean) / (var + 1e-5).sqrt() * scale + offset

    def conv(z, name, stride=1):
        w, b = weights[f"{name}.0.weight"], weights[f"{name}.0.bias"]
        pad = w.shape[-1] // 2
        z = F.conv2d(F.pad(z, [pad] * 4, mode="reflect"), w, b, stride)
        z = norm(z, f"{name}.1")
        return torch.where(z > 0, z, 0.2 * z)

    def level(z, name, depth):
        deep = conv(conv(z, f"{name}.down.0", 2), f"{name}.down.1")
        if depth < scales:
            deep = level(deep, f"{name}.below", depth + 1)
        deep = deep.repeat_interleave(2, -2).repeat_interleave(2, -1)
        both = torch.cat([conv(z, f"{name}.skip"), deep[..., : z.shape[-2], : z.shape[-1]]], 1)
        return conv(conv(norm(both, f"{name}.merge.0"), f"{name}.merge.1"), f"{name}.merge.2")

    z = F.conv2d(level(x, "levels", 1), weights["head.weight"], weights["head.bias"])
    return 1 / (1 + (-z).exp())


@pytest.mark.parametrize("size", [(20, 24), (13, 22)], ids=str)
def test_layers_are_those_of_the_description(size):
    net = build(3, channels=4, scales=3, seed=1).double()
    x = images(1, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(net(x), plain_forward(net.state_dict(), x, scales=3))


def test_the_seed_gives_the_weights_and_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    first, again, other = (build(3, channels=4, seed=s) for s in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(
        torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert not torch.equal(first.head.weight, other.head.weight)


def test_the_gradient_reaches_every_parameter(net):
    net.zero_grad()
    (net(images(1, 3, 40, 37)) - images(1, 3, 40, 37, seed=1)).square().mean().backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        # what a normalisation subtracts again (the biases before it) has no gradient
        assert name.endswith("bias") or p.grad.abs().max() > 0, name
    assert net.head.bias.grad.abs().max() > 0
    net.zero_grad()


def test_padding_of_small_images_passes_gradients(net):
    x = images(1, 3, 5, 40).requires_grad_()
    net(x).sum().backward()
    assert (x.grad != 0).any((0, 1)).all()


def test_double_precision_keeps_its_type_and_agrees():
    net = build(3, channels=4, scales=2, seed=0)
    x = images(1, 3, 16, 16)
    single = net(x)
    double = net.double()(x.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, atol=1e-4, rtol=0)


def test_a_batch_is_its_images_one_by_one(net):
    x = images(3, 3, 36, 40) * torch.tensor([1.0, 5.0, 0.1]).view(3, 1, 1, 1)
    alone = torch.cat([net(image[None]) for image in x])
    torch.testing.assert_close(net(x), alone, atol=1e-5, rtol=0)


def test_train_and_eval_are_the_same_network(net):
    x = images(1, 3, 34, 34)
    trained = net(x)
    assert torch.equal(net.eval()(x), trained)
    assert torch.equal(net.train()(x), trained)
    assert not list(net.buffers())


def test_one_image_is_normalised_as_by_batch_norm():
    norm = Norm(4, "image")
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(0))
    x = images(1, 4, 6, 5)
    assert torch.equal(norm(x), F.batch_norm(x, None, None, norm.weight, norm.bias, True))


def test_a_batch_is_normalised_as_by_batch_norm():
    norm, x = Norm(4, "batch"), images(3, 4, 6, 5)
    assert torch.equal(norm(x), F.batch_norm(x, None, None, norm.weight, norm.bias, True))
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    assert mean.any() and torch.equal(norm.eval()(x), F.batch_norm(x, mean, var))
    assert torch.equal(norm.running_mean, mean)  # eval() learns nothing


def test_only_the_statistics_of_many_images_show_how_bright_one_is():
    """By its own statistics f(a y + b) = f(y): weights of many images cannot know their levels."""
    y = images(2, 3, 40, 40).double()
    own, shared = (build(3, channels=4, scales=3, norm=n, seed=0).double() for n in NORMS)
    torch.testing.assert_close(own(0.5 * y + 0.3), own(y), rtol=0, atol=1e-3)
    for _ in range(50):  # running means of momentum 0.1
        shared(y)
    shared.eval()
    assert (shared(0.5 * y + 0.3) - shared(y)).abs().mean() > 0.01
    torch.testing.assert_close(shared(y)[:1], shared(y[:1]))  # alone as in a batch


def test_the_names_of_weights_say_how_they_are_normalised():
    for norm in NORMS:
        assert norm_of(build(3, channels=4, scales=2, norm=norm, seed=0).state_dict()) == norm


def test_mirroring_goes_back_and_forth():
    row = torch.arange(3.0).view(1, 1, 1, 3)
    wide = mirrored_up_to(row, 9)
    assert wide.shape == (1, 1, 9, 9)
    assert wide[0, 0, 4].tolist() == [0, 1, 2, 1, 0, 1, 2, 1, 0]
    assert mirrored_up_to(wide, 9) is wide


@pytest.mark.parametrize("shape", [(3, 40, 40), (1, 4, 40, 40)], ids=str)
def test_a_wrong_shape_is_named(net, shape):
    with pytest.raises(ShapeMismatch, match=r"\(batch, 3, rows, cols\)"):
        net(torch.zeros(shape))


def test_the_deterministic_padding_is_the_same_padding():
    from hydiff.learn.network import mirrored

    x = torch.rand(2, 3, 5, 7)
    plain = mirrored(x, 1)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(mirrored(x, 1), plain)
    finally:
        torch.use_deterministic_algorithms(False)
