"""The weights that come with hydiff: what they were trained on, and what they must not invent."""

import hashlib
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw
from safetensors import safe_open
from scipy import ndimage

import hydiff
from conftest import ROOT
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights, weights_file
from hydiff.scale.layout import PRIOR_CONTEXT

PRESENT = [size for size in prior_weights.SIZES if prior_weights.packaged(size).exists()]
packaged = pytest.mark.skipif(
    "small" not in PRESENT, reason="the weights of the prior are not in this checkout"
)
MOST_BYTES = {"small": 1.5e6, "full": 12e6}
SIDE, BANDS = 64, 6


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes_of_the_card():
    card = (ROOT / "docs" / "prior.md").read_text()
    return dict(re.findall(r"\| `(\w+\.npz)` \| `([0-9a-f]{64})` \|", card))


def test_the_card_names_what_was_trained_on_and_no_scene_that_judges(data_dir):
    trained = {path.name: sha256(path) for path in (data_dir / "train").glob("*.npz")}
    judges = {sha256(path) for path in (data_dir / "dev").glob("*.npz")}
    assert hashes_of_the_card() == trained and judges
    assert not judges & set(trained.values())


@pytest.mark.parametrize("size", PRESENT)
def test_the_weights_name_the_files_of_the_card(size):
    path = prior_weights.packaged(size)
    about, _ = weights_file.content(path, prior_weights.KIND)
    assert about["data"] == hashes_of_the_card() and about["held"]
    assert path.stat().st_size <= MOST_BYTES[size]
    with safe_open(path, "np") as file:
        assert {str(file.get_tensor(k).dtype) for k in file.keys()} == {"float16"}  # noqa: SIM118


# ── scenes without anything to learn from ────────────────────────────────────────────────────────


def lettering(rng):
    picture = Image.new("L", (SIDE, SIDE))
    draw = ImageDraw.Draw(picture)
    for row in range(0, SIDE, 11):
        draw.text((1, row), "".join(rng.choice([*"HYDIFFEI0123"], 10)), fill=255)
    return np.asarray(picture) / 255.0


def blocks(rng):
    """Half of it saturated."""
    coarse = ndimage.zoom(rng.standard_normal((8, 8)), SIDE // 8, order=0)
    return np.clip(coarse, -0.3, 0.0) / 0.3 + 1


ROWS, COLS = np.mgrid[:SIDE, :SIDE] / SIDE
PICTURES = {
    "constant": lambda rng: np.full((SIDE, SIDE), 0.5),
    "linear": lambda rng: 0.7 * ROWS + 0.3 * COLS,
    "periodic": lambda rng: 0.5 + 0.5 * np.sin(2 * np.pi * (8 * ROWS + 5 * COLS)),
    "text": lettering,
    "noise": lambda rng: rng.uniform(size=(SIDE, SIDE)),
    "saturated": blocks,
}


def scene_of(name, rng):
    """A picture in all bands, each with a gain and an offset of its own, in all from 0 to 1."""
    picture = PICTURES[name](rng)
    gain = rng.uniform(0.3, 0.7, (BANDS, 1, 1))
    return rng.uniform(0, 0.3, (BANDS, 1, 1)) + gain * picture


def rmse(values, truth, observed):
    return float(np.sqrt(((values - truth)[:, ~observed] ** 2).mean()))


@packaged
@pytest.mark.parametrize("mask", ["stripes", "blobs"])
@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_invented_where_nothing_can_be_known(name, mask, rng):
    truth = scene_of(name, rng)
    observed = make_mask(mask, truth.shape, 0.25, rng)
    smooth, prior, auto = (
        rmse(hydiff.fill(truth, observed, method=m, device="cpu").values, truth, observed)
        for m in ("smooth", "prior", "auto")
    )
    assert auto <= 1.012 * smooth + 1e-4
    assert prior <= 1.035 * smooth + 1e-4


# ── bright objects ───────────────────────────────────────────────────────────────────────────────


def with_objects(rng):
    """A mild background and bright squares of 1 to 3 px in a grid, one at the middle of each 16."""
    ground = ndimage.gaussian_filter(rng.standard_normal((96, 96)), 4)
    ground = 0.2 + 0.05 * ground / ground.std()
    objects = np.zeros_like(ground)
    for n, (row, col) in enumerate((r, c) for r in range(8, 96, 16) for c in range(8, 96, 16)):
        side = 1 + n % 3
        objects[row : row + side, col : col + side] = 0.6
    spectrum = rng.uniform(0.5, 1.0, (BANDS, 1, 1))
    return spectrum * ground, spectrum * objects


@packaged
def test_the_flux_of_objects_that_are_half_hidden_is_no_worse(rng):
    ground, objects = with_objects(rng)
    observed = np.ones(ground.shape[1:], bool)
    for col in range(9, 96, 16):  # the right part of those of 2 and 3 px
        observed[:, col : col + 4] = False
    errors = {}
    for method in ("smooth", "prior"):
        off = hydiff.fill(ground + objects, observed, method=method, device="cpu").values
        off = np.where(observed, 0.0, off - ground - objects).sum(axis=0)
        flux = off.reshape(6, 16, 6, 16).sum(axis=(1, 3))
        errors[method] = np.abs(flux).mean()
    assert errors["prior"] <= errors["smooth"] * 1.001


@packaged
def test_objects_that_are_wholly_hidden_do_not_appear(rng):
    ground, objects = with_objects(rng)
    observed = ~ndimage.binary_dilation(objects[0] > 0, np.ones((5, 5), bool))
    filled = hydiff.fill(ground + objects, observed, method="prior", device="cpu").values
    appeared = (filled - ground)[:, ~observed] > 0.3 * objects.max()
    assert appeared.sum() == 0


# ── a real scene that no training has seen ───────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def pines():
    cube = np.asarray(hydiff.sample().values)[::8, :96, :96].astype(float)
    return cube, make_mask("blobs", cube.shape, 0.25, np.random.default_rng(0))


@packaged
def test_structures_without_counterpart_are_rare(pines):
    """Of |fill − smooth| above three standard errors, where the truth does not go that way."""
    truth, observed = pines
    smooth = hydiff.fill(truth, observed, method="smooth", error_bars=True)
    prior = hydiff.fill(truth, observed, method="prior", device="cpu").values
    sigma, false = np.where(observed, np.inf, smooth.sigma), 0
    for b in range(len(truth)):
        change, real = prior[b] - smooth.values[b], truth[b] - smooth.values[b]
        labels, count = ndimage.label(np.abs(change) > 3 * sigma[b])
        for one in range(1, count + 1):
            at = labels == one
            false += bool((change[at] * real[at]).sum() <= 0)
    assert false <= (~observed).sum() * len(truth) / 1000


@packaged
def test_filled_spectra_are_like_observed_ones(pines):
    """By Mahalanobis distance, as far as the farthest in a thousand of them, 99 in 100."""
    truth, observed = pines
    filled = hydiff.fill(truth, observed, method="prior", device="cpu").values[:, ~observed]
    seen = truth[:, observed]
    mean, inverse = seen.mean(axis=1, keepdims=True), np.linalg.inv(np.cov(seen))

    def distance(x):
        return np.einsum("cn,cd,dn->n", x - mean, inverse, x - mean)

    assert (distance(filled) <= np.quantile(distance(seen), 0.999)).mean() >= 0.99


@packaged
@pytest.mark.parametrize("size", PRESENT)
def test_the_network_hardly_looks_beyond_what_auto_gives_its_tiles(size):
    """The correction of the middle of an image, and of it cut around the middle."""
    import torch

    from hydiff.learn.plane_network import inputs_of
    from hydiff.methods import prior as method

    plane = np.asarray(hydiff.sample().values)[24:25, :144, :144].astype(float)
    observed = make_mask("blobs", plane.shape, 0.25, np.random.default_rng(0))
    z = np.where(observed, plane - plane[0, observed].mean(), 0.0)
    unit = method.planes_of(z, observed)
    f = method.fields_through(unit.planes, observed, torch.device("cpu"), {})
    shown = torch.as_tensor(unit.planes).float()
    inputs = inputs_of(shown, f, torch.as_tensor(observed), torch.zeros(1))
    network = prior_weights.network_of(prior_weights.packaged(size), "cpu")
    middle, inner = slice(64, 80), slice(PRIOR_CONTEXT, -PRIOR_CONTEXT)
    cut = slice(64 - PRIOR_CONTEXT, 80 + PRIOR_CONTEXT)
    with torch.inference_mode():
        whole = network(inputs)[0, middle, middle]
        part = network(inputs[:, :, cut, cut].contiguous())[0, inner, inner]
    assert part.shape == whole.shape
    assert float((part - whole).square().mean().sqrt()) < 0.1 * float(whole.square().mean().sqrt())
