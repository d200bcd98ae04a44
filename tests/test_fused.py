"""The fused network is the network: its output, and every gradient, whatever the sizes.

Without a GPU the kernels run in Triton's interpreter, on the CPU.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are defined
pytest.importorskip("triton")

from hydiff.learn import kernel_calls, network
from hydiff.learn.engine import arithmetic
from hydiff.learn.fused import FusedSkipNet

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def net_of(bands, channels=4, scales=2, **options):
    net = network.build(bands, channels=channels, scales=scales, seed=1, **options)
    rng = seeded(2)
    for p in net.parameters():  # biases and scales that are not 0 and 1
        if p.ndim == 1:
            p.data.add_(0.2 * torch.randn(p.shape, generator=rng))
    return net.to(DEVICE)


def image(*shape, seed=3):
    return torch.rand(shape, generator=seeded(seed)).to(DEVICE).requires_grad_()


def gradients(net, f, x, passes):
    """Of a loss in which every entry counts for something else, after so many passes."""
    net.zero_grad()
    x.grad = None
    with arithmetic("fp32"):
        out = x
        for _ in range(passes):
            out = f(out)
        weight = torch.randn(out.shape, generator=seeded(4)).to(DEVICE)
        (out * weight).sum().backward()
    if isinstance(f, FusedSkipNet):
        f.gather()
    found = {k: p.grad.clone() for k, p in net.named_parameters() if p.grad is not None}
    return out.detach(), x.grad.clone(), found


def close(one, other, rtol):
    scale = other.abs().max()
    torch.testing.assert_close(one, other, rtol=0, atol=float(rtol * scale + 1e-6))


def check(net, x, passes=1, rtol=2e-4):
    expected = gradients(net, net, x, passes)
    found = gradients(net, FusedSkipNet(net, torch.float32), x, passes)
    close(found[0], expected[0], rtol)
    close(found[1], expected[1], rtol)
    for name, gradient in expected[2].items():
        if name not in found[2]:  # a bias in front of a normalisation: no effect
            assert name.endswith(".0.bias")
            assert gradient.abs().max() < 1e-4
        else:
            close(found[2][name], gradient, rtol)


# sides that halve evenly and not, more than one image, fewer pixels than the network wants
SHAPES = [(1, 8, 8, 8), (2, 3, 9, 7), (1, 2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradients_are_the_networks(shape):
    check(net_of(shape[1]), image(*shape))


def test_so_are_those_of_a_network_with_other_outputs():
    net = net_of(5, scales=1, out_bands=2, squash=torch.nn.Identity())
    assert FusedSkipNet(net, torch.float32)(image(1, 5, 6, 6)).shape == (1, 2, 6, 6)
    check(net, image(1, 5, 6, 6))


def test_the_kernels_for_large_images_give_the_same(monkeypatch):
    """Tiles so small that sums have parts, and parts several tiles."""
    for name, value in {"SMALL": (), "PIXELS": 16, "CHANNELS": 16, "SPLITS": 4}.items():
        monkeypatch.setattr(kernel_calls, name, value)
    check(net_of(3, channels=17, scales=1), image(2, 3, 7, 6))


def test_the_gradients_of_several_passes_add_up():
    check(net_of(3, scales=1), image(1, 3, 8, 8), passes=2, rtol=1e-3)


def test_passes_may_differ_in_their_number_of_images():
    """One image, then three copies of the answer as a batch: what seven transforms do."""
    net, x = net_of(3), image(1, 3, 8, 8)

    def twice(f):
        net.zero_grad()
        with arithmetic("fp32"):
            answer = f(x)
            copies = f(torch.cat([answer, answer.flip(-1), 0.5 * answer]))
            (copies * torch.randn(copies.shape, generator=seeded(4)).to(DEVICE)).sum().backward()
        if isinstance(f, FusedSkipNet):
            f.gather()
        return {k: p.grad.clone() for k, p in net.named_parameters() if p.grad is not None}

    expected, found = twice(net), twice(FusedSkipNet(net, torch.float32))
    for name, gradient in found.items():
        close(gradient, expected[name], 1e-3)


def test_gathered_gradients_are_not_gathered_again():
    net, x = net_of(3, scales=1), image(1, 3, 8, 8)
    f = FusedSkipNet(net, torch.float32)
    once = gradients(net, f, x, 1)
    again = gradients(net, f, x, 1)
    assert all(torch.equal(once[2][k], again[2][k]) for k in once[2])


def test_changed_weights_are_seen_after_a_refresh():
    net, x = net_of(3, scales=1), image(1, 3, 8, 8)
    f = FusedSkipNet(net, torch.float32)
    before = f(x).detach()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.1)
    f.refresh()
    with torch.no_grad():
        close(f(x), net(x), 1e-5)
    assert not torch.allclose(f(x), before)


def test_half_precision_stays_close():
    net, x = net_of(5, channels=8), image(1, 5, 10, 12)
    with torch.no_grad():
        apart = (FusedSkipNet(net, torch.bfloat16)(x) - net(x)).abs().max()
    assert 0 < apart < 0.1


def test_a_constant_image_is_no_division_by_zero():
    net = net_of(2)
    with torch.no_grad():
        assert (
            FusedSkipNet(net, torch.float32)(torch.full_like(image(1, 2, 8, 8), 0.5))
            .isfinite()
            .all()
        )


def test_the_counters_are_back_at_zero(monkeypatch):
    monkeypatch.setattr(kernel_calls, "SMALL", ())
    net = net_of(3, scales=1)
    f = FusedSkipNet(net, torch.float32)
    gradients(net, f, image(1, 3, 8, 8), 1)
    assert not any(counters.any() for counters in f.counters.values())


@pytest.mark.parametrize("bands", [8, 10])
def test_what_is_compiled_ahead_is_all_that_a_network_launches(bands, monkeypatch):
    """Kernels and their constants, by name; on a GPU a launch of any other would compile it."""
    launched = set()

    def watched(name, kernel):
        class Watched:
            def __getitem__(self, grid):
                def call(*args, **constants):
                    kinds = tuple(getattr(a, "dtype", None) for a in args)
                    launched.add((name, kinds, tuple(sorted(constants.items()))))
                    return kernel[grid](*args, **constants)

                return call

        return Watched()

    names = ("apply", "apply_small", "gradient", "gradient_small", "gradient_sums", "moments")
    for name in names:
        monkeypatch.setattr(
            kernel_calls.kernels, name, watched(name, getattr(kernel_calls.kernels, name))
        )
    one_by_one = partial(ThreadPoolExecutor, 1)  # as the interpreter needs it
    monkeypatch.setattr(kernel_calls, "ThreadPoolExecutor", lambda _: one_by_one())
    kernel_calls.compile_all.__wrapped__(torch.float32, bands, 4, DEVICE)
    ahead, net = set(launched), net_of(bands)
    assert {name for name, *_ in ahead} == set(names)
    launched.clear()
    gradients(net, FusedSkipNet(net, torch.float32), image(1, bands, 40, 40), 2)
    assert launched and launched <= ahead
