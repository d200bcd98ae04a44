"""Drawn images of shapes: what the training of the prior may count on."""

import numpy as np
import pytest

from hydiff.learn import dead_leaves
from hydiff.learn.dead_leaves import BANDS, SIDE, drawn


@pytest.fixture(scope="module", params=[0, 3])
def image(request):
    return drawn(np.random.default_rng(request.param))


@pytest.fixture
def small(monkeypatch):
    """As many shapes to a pixel, in less time."""
    monkeypatch.setattr(dead_leaves, "SIDE", 56)
    monkeypatch.setattr(dead_leaves, "SHAPES", dead_leaves.SHAPES // 16)


def steps(image):
    """(BANDS, N) sizes of the differences of neighbours."""
    return np.concatenate(
        [np.abs(np.diff(image, axis=axis)).reshape(BANDS, -1) for axis in (1, 2)], axis=1
    )


@pytest.mark.usefixtures("small")
def test_a_seed_gives_one_image_and_another_seed_another():
    first, again, other = (drawn(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert first.tobytes() == again.tobytes()
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.5


def test_every_value_is_finite_and_no_band_is_flat(image):
    assert image.shape == (BANDS, SIDE, SIDE) and np.isfinite(image).all()
    assert image.std(axis=(1, 2)).min() > 0.05


def test_what_no_shape_covers_is_ground_of_one_material(monkeypatch):
    """Seed 3 has small shapes, between which the ground shows."""
    found = []
    for shapes in (0, dead_leaves.SHAPES):
        monkeypatch.setattr(dead_leaves, "SHAPES", shapes)
        found.append(drawn(np.random.default_rng(3)))
    ground, image = found
    assert np.ptp(ground, axis=(1, 2)).max() == 0 and ground.any(axis=(1, 2)).all()
    bare = (image == ground).all(axis=0).mean()
    assert 0 < bare < 0.05


@pytest.mark.parametrize("coarser", [1, 2])
def test_edges_are_few_and_sharp_at_two_scales(image, coarser):
    """A Gaussian field has a median step of 0.67 RMS, and 44 % of the squares of its steps in the
    largest tenth of them."""
    blocks = image.reshape(BANDS, SIDE // coarser, coarser, SIDE // coarser, coarser)
    for band in steps(blocks.mean(axis=(2, 4))):
        squares = np.sort(band**2)
        assert np.median(band) < 0.45 * np.sqrt(squares.mean())
        assert squares[-len(squares) // 10 :].sum() > 0.6 * squares.sum()


def test_bands_have_their_edges_at_the_same_places(image):
    edges = steps(image)
    edges = edges > np.quantile(edges, 0.9, axis=1, keepdims=True)
    shared = [(one & other).sum() / one.sum() for one in edges for other in edges]
    assert min(shared) > 0.25  # by chance: a tenth


@pytest.mark.usefixtures("small")
def test_a_pixel_at_an_edge_sees_both_sides(monkeypatch):
    """Without light and texture each of 40 shapes has one spectrum; others are means of several."""
    for name, value in (("SHADING", 0.0), ("GRAIN", 0.0), ("SHAPES", 40)):
        monkeypatch.setattr(dead_leaves, name, value)
    found = {}
    for finer in (1, 2):
        monkeypatch.setattr(dead_leaves, "FINER", finer)
        image = drawn(np.random.default_rng(0)).reshape(BANDS, -1)
        found[finer] = len(np.unique(image.round(9), axis=1).T)
    assert 10 < found[1] <= 41 < 2 * 41 < found[2]
