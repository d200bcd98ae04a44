"""The weights that come with hydiff: what they were trained on, and what they must not invent."""

import hashlib
import re
import sys

import numpy as np
import pytest
from safetensors import safe_open

import hydiff
from conftest import ROOT
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights, weights_file
from hydiff.scale.layout import PRIOR_CONTEXT

sys.path.insert(0, str(ROOT / "benchmarks"))
import inventions

PRESENT = [size for size in prior_weights.SIZES if prior_weights.packaged(size).exists()]
packaged = pytest.mark.skipif(
    "small" not in PRESENT, reason="the weights of the prior are not in this checkout"
)
MOST_BYTES = {"small": 1.5e6, "full": 12e6}


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


# ── what it must not invent: the figures of docs/tables/inventions.md ────────────────────────────


@packaged
@pytest.mark.parametrize(
    ("name", "mask"), [*zip(inventions.PICTURES, ("stripes", "blobs") * 3, strict=True)]
)
def test_nothing_is_invented_where_nothing_can_be_known(name, mask, rng):
    found = inventions.beside_smooth(name, mask, rng)
    assert all(found[method] <= most for method, most in inventions.MOST.items()), found


@packaged
def test_the_flux_of_objects_that_are_half_hidden_is_no_worse(rng):
    assert inventions.half_hidden(rng) <= 1.001


@packaged
def test_objects_that_are_wholly_hidden_do_not_appear(rng):
    assert inventions.wholly_hidden(rng) == 0


@packaged
def test_structures_without_counterpart_are_rare():
    assert inventions.false_structures(*inventions.pines()) <= 1


@packaged
def test_filled_spectra_are_like_observed_ones():
    assert inventions.like_observed(*inventions.pines()) >= 0.99


# ── how far it looks ─────────────────────────────────────────────────────────────────────────────


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
