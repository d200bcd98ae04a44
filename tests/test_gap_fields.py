"""Laws of `gap_fields`: on a torch device the fields of `smooth` are those of numpy and scipy."""

import subprocess
import sys
from functools import partial
from math import inf

import numpy as np
import pytest
import torch

import hydiff
from hydiff.errors import BadValue
from hydiff.gaps.mask import make_mask
from hydiff.learn import gap_fields
from hydiff.learn.gap_fields import GapFields
from hydiff.methods import METHODS, choose, classical, kriging, smooth
from hydiff.methods.devices import gpu_of_components, is_sent_to_gpu
from hydiff.methods.membranes import membrane
from hydiff.request import Request
from hydiff.scale import early, layout

CPU = torch.device("cpu")
SHAPE = 40, 52
KINDS = [
    (s, reach, kappa)
    for s in (0.5, 1.0, 1.25, 1.5, 1.9, 2.0)
    for reach in (inf, 40.0, 3.0)
    for kappa in (0.0, 0.1, 100.0)
]


def masks():
    """By name, what of an image is complete."""
    rng = np.random.default_rng(3)
    frames, edge, odd = (np.ones(SHAPE, bool) for _ in range(3))
    frames[8:26] = edge[:12] = False
    odd[[3, 5, 5, 6, 20, 39], [4, 9, 10, 10, 0, 51]] = False
    return {
        "stripes": make_mask("stripes", (3, *SHAPE), 0.33, rng),
        "blobs": make_mask("blobs", (3, *SHAPE), 0.33, rng),
        "frame": frames,
        "frame on the edge": edge,
        "single pixels": rng.random(SHAPE) > 0.1,
        "few pixels": odd,
        "none": np.ones(SHAPE, bool),
    }


MASKS = masks()


def rough_plane(rng):
    """An image with all frequencies, about as in a scene."""
    operator = classical.laplacian_eigenvalues(*SHAPE) + 0.03**2
    return classical.filtered(rng.standard_normal((1, *SHAPE)), operator**-0.8)[0]


@pytest.mark.parametrize("name", MASKS)
def test_many_kinds_at_once_are_each_the_field_of_the_sparse_solution(name, rng):
    complete, plane = MASKS[name], rough_plane(rng)
    z = np.where(complete, plane - plane[complete].mean(), 0.0)
    found = GapFields(complete, CPU).fields(np.repeat(z[None], len(KINDS), axis=0), KINDS)
    for kind, f in zip(KINDS, found, strict=True):
        s, reach, kappa = kind
        [exact] = classical.field(z[None], complete, s, reach, kappa=kappa, tolerance=1e-11)
        assert np.abs(f - exact).max() < 1e-8 * plane.std(), kind


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
def test_the_membrane_is_that_of_the_sparse_factor(name, rng):
    surface = membrane(MASKS[name])
    right = rng.standard_normal((5, int((~MASKS[name]).sum())))
    found = GapFields(MASKS[name], CPU).membrane(right)
    np.testing.assert_allclose(
        found, surface.solve(right), rtol=0, atol=1e-10 * np.abs(found).max()
    )


def test_pieces_of_any_size_share_batches_without_touching_one_another(rng, monkeypatch):
    right = rng.standard_normal((2, int((~MASKS["blobs"]).sum())))
    usual = GapFields(MASKS["blobs"], CPU).membrane(right)
    for name, value in (("FEWEST", 0.0), ("FEWEST", 1.0), ("SMALL", 10**9)):
        with monkeypatch.context() as patch:
            patch.setattr(gap_fields, name, value)
            found = GapFields(MASKS["blobs"], CPU).membrane(right)
        np.testing.assert_allclose(found, usual, atol=1e-12 * np.abs(usual).max())


def filled(cube, observed, sigma=0.0, device=CPU, at=None, **settings):
    """The step of `smooth`, solved by torch; device None: by scipy."""
    chosen = choose("smooth", None, settings)
    y = np.where(np.broadcast_to(observed, cube.shape), cube, 0.0)
    arrays = y, observed, np.full(len(y), sigma)
    rng = np.random.default_rng(0)
    [step] = chosen.inpaint(*arrays, chosen.settings, rng=rng, device=device, at=at)
    return step


@pytest.fixture
def to_the_end(monkeypatch):
    """Iterations of scipy's fields go on until nothing changes; usually they end 1e-5 before."""
    monkeypatch.setattr(kriging, "field", partial(classical.field, tolerance=1e-10))


def scene(rng, bands=10):
    """(bands, rows, cols) five rough images mixed, with a little texture in each band."""
    spectra = rng.random((bands, 5))
    images = np.stack([rough_plane(rng) for _ in range(5)])
    return np.tensordot(spectra, images, 1) + 0.1 * rng.standard_normal((bands, *SHAPE))


@pytest.mark.parametrize("name", [name for name in MASKS if name != "none"])
@pytest.mark.parametrize("sigma", [0.0, 0.3])
@pytest.mark.parametrize("s", [None, 1.5, 2.0])
def test_a_fill_by_torch_is_that_of_scipy(name, sigma, s, rng, to_the_end):
    cube, observed, given = scene(rng), MASKS[name], {"components": 6, "s": s}
    ours, theirs = (filled(cube, observed, sigma, device, **given) for device in (CPU, None))
    spread = cube.std(axis=(1, 2), keepdims=True)
    assert np.abs((ours.x - theirs.x) / spread).max() < 1e-8
    assert (ours.how, theirs.how) == ("fields on cpu", "")


def test_a_fill_of_pixels_that_keep_some_bands_is_that_of_scipy(rng, to_the_end):
    cube = scene(rng)
    observed = np.broadcast_to(MASKS["stripes"], cube.shape).copy()
    observed[3:, MASKS["frame"] < MASKS["stripes"]] = False  # a few bands are left here
    observed[2] &= rng.random(SHAPE) > 0.1
    gaps = ~observed.all(axis=0)
    ours, theirs = (filled(cube, observed, device=d, at=gaps) for d in (CPU, None))
    spread = cube.std(axis=(1, 2))[:, None, None]
    assert np.abs((ours.x - theirs.x) / spread).max() < 1e-8


@pytest.mark.parametrize("lack", ["memory", "room"])
def test_what_a_device_cannot_do_is_done_without_it_and_said(lack, rng, monkeypatch):
    cube, observed = scene(rng), MASKS["blobs"]
    plain = filled(cube, observed, device=None)

    def full(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    if lack == "memory":
        monkeypatch.setattr(torch.linalg, "cholesky", full)
    else:
        monkeypatch.setattr(gap_fields, "MOST_MISSING", 100)
    short = filled(cube, observed)
    assert np.array_equal(short.x, plain.x)
    assert short.how.startswith("fields on cpu; ") and short.how.endswith(": fields on the CPU")
    assert ("too little memory" if lack == "memory" else "pixels is too large") in short.how


def test_an_error_that_is_not_about_memory_is_not_hidden(rng, monkeypatch):
    def broken(_):
        raise RuntimeError("the driver is lost")

    monkeypatch.setattr(torch.linalg, "cholesky", broken)
    with pytest.raises(RuntimeError, match="driver"):
        filled(scene(rng), MASKS["blobs"])


def test_other_components_of_a_cube_share_its_solver_and_another_mask_has_its_own(rng):
    cube, arguments = scene(rng), (np.zeros(10), 6)
    c = smooth.coordinates(cube * MASKS["frame"], MASKS["frame"], *arguments, device=CPU)
    assert c.with_components(c.z + 1, c.complete).gaps is c.gaps
    other = c.with_components(c.z, MASKS["stripes"]).gaps
    assert other is not c.gaps and other.device == CPU
    assert np.array_equal(other.complete, MASKS["stripes"])


def test_a_gpu_is_used_where_it_is_named_or_beside_a_network(some_prior):
    plain, network = choose("smooth"), choose("prior", None, some_prior)
    assert gpu_of_components([plain], "auto") is None
    assert gpu_of_components([plain, network], "cpu") is None
    assert gpu_of_components([choose("harmonic")], "cuda") is None  # has no components
    sent = [is_sent_to_gpu(METHODS[name], "cuda:0") for name in ("smooth", "harmonic")]
    assert sent == [True, False] and not is_sent_to_gpu(METHODS["smooth"], "auto")
    if torch.cuda.is_available():
        for several, device in (([plain], "cuda"), ([plain, network], "auto")):
            assert gpu_of_components(several, device).type == "cuda"
    else:
        assert gpu_of_components([network], "auto") is None
        with pytest.raises(BadValue, match="torch finds none"):
            hydiff.fill(np.ones((2, 4, 4)), np.eye(4) < 1, method="smooth", device="cuda")


def test_workers_that_use_a_gpu_load_it_early_and_count_with_the_memory_of_torch():
    plain, named = (Request(method="smooth", device=device) for device in ("auto", "cuda"))
    imports = [early._imports(request) for request in (plain, named)]
    assert imports[1] == [*imports[0], "torch", early.SOLVER.format("cuda")]
    assert layout.base(plain) < layout.base(named)
    early.load_solver("cpu")  # is found and runs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["smooth", "prior"])
@pytest.mark.usefixtures("to_the_end")
def test_a_fill_on_a_gpu_is_that_of_the_cpu(method, rng, some_prior):
    """Networks are applied in TF32 there: their correction is as good as one digit less."""
    cube, observed = scene(rng), MASKS["stripes"]
    settings = {"smooth": {}, "prior": some_prior}[method]
    gpu, cpu = (
        hydiff.fill(cube, observed, method=method, device=device, **settings)
        for device in ("cuda", "cpu")
    )
    spread = cube.std(axis=(1, 2), keepdims=True)
    assert (
        np.abs((gpu.values - cpu.values) / spread).max() < {"smooth": 1e-5, "prior": 1e-2}[method]
    )
    assert any("on cuda" in note for note in gpu.notes)


TWO_FIRST = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
import numpy as np, torch
from hydiff.learn.gap_fields import GapFields

start, mask, device = Barrier(2), np.arange(900).reshape(30, 30) % 7 > 2, torch.device("DEVICE")

def solve(_):
    start.wait()
    return GapFields(mask, device).membrane(np.ones((1, (~mask).sum())))

with ThreadPoolExecutor(2) as pool:
    first, second = pool.map(solve, range(2))
assert np.array_equal(first, second) and np.isfinite(first).all()
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_two_threads_may_be_the_first_to_solve(device):
    """torch loads its solvers for a GPU at the first call, and fails if two threads make it."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    code = TWO_FIRST.replace("DEVICE", device)
    subprocess.run([sys.executable, "-c", code], check=True)
