"""Laws of tiling: partition of unity, only where gaps are, enough context, no order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydiff.errors import BadValue
from hydiff.gaps import mask
from hydiff.scale import tiles

LENGTHS = st.integers(1, 90)


def pieces_of(cuts, planned, values, gaps):
    """Each tile repeats the scene's own values (bands, rows, cols) at its gaps."""
    for tile in planned:
        r, c = np.nonzero(gaps[tile.support])
        rows, cols = r + tile.support[0].start, c + tile.support[1].start
        weight = tiles.weights(cuts, tile)[r, c]
        yield tiles.Piece(rows, cols, weight, values[:, rows, cols])


@settings(max_examples=60, deadline=None)
@given(LENGTHS, LENGTHS, st.integers(8, 40), st.integers(0, 20))
def test_the_weights_of_a_grid_sum_to_one(rows, cols, size, overlap):
    cuts = tiles.grid((rows, cols), size, min(overlap, size // 2))
    total = np.zeros((rows, cols))
    for tile in tiles.plan(cuts, np.ones((rows, cols))):
        weight = tiles.weights(cuts, tile)
        assert (weight > 0).all() and (weight <= 1).all()
        total[tile.support] += weight
    assert np.allclose(total, 1, rtol=1e-14)


def test_nothing_is_tapered_at_the_border_of_the_scene():
    cuts = tiles.grid((60, 40), 20, 8)
    planned = tiles.plan(cuts, np.ones((60, 40)))
    corner = tiles.weights(cuts, planned[0])
    assert (corner[:16, :16] == 1).all() and corner[-1, 0] < 0.1
    middle = tiles.weights(cuts, planned[3])  # second row of tiles, right column
    assert middle[10, -1] == 1 and middle[0, -1] < 0.1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 30), st.integers(0, 8))
def test_a_tile_is_planned_exactly_where_there_are_gaps(seed, size, overlap):
    rng = np.random.default_rng(seed)
    missing = rng.random((50, 70)) > 0.995
    missing[3:9, 40:44] = True
    cuts = tiles.grid(missing.shape, size, min(overlap, size // 2))
    planned = tiles.plan(cuts, mask.thickness(missing))
    everywhere = tiles.plan(cuts, np.ones(missing.shape))
    having = {t.number for t in everywhere if missing[t.support].any()}
    assert {t.number for t in planned} == having
    covered = np.zeros(missing.shape, bool)
    for tile in planned:
        covered[tile.support] = True
    assert not (missing & ~covered).any()


def test_the_context_reaches_past_the_widest_gap():
    missing = np.zeros((40, 300), bool)
    missing[:, 120:157] = True  # 37 wide, across the edge at 128
    missing[5, 250] = True
    width = mask.thickness(missing)
    for tile in tiles.plan(tiles.grid(missing.shape, 64), width):
        s, w = tile.support[1], tile.window[1]
        wanted = max(tiles.CONTEXT, width[tile.support].max() + 1)
        assert w.start == max(0, s.start - wanted) and w.stop == min(300, s.stop + wanted)
        assert not missing[tile.window].all(axis=0)[[0, -1]].any()  # data on both sides


@pytest.mark.parametrize("size", [8, 13, 24, 100])
def test_what_all_tiles_agree_on_is_returned(size, rng):
    """A constant and a linear scene are exact: their tiles agree, whatever the weights."""
    gaps = rng.random((37, 53)) > 0.7
    cuts = tiles.grid(gaps.shape, size, size // 2)
    planned = tiles.plan(cuts, np.where(gaps, 1.0, 0.0))
    rows, cols = np.indices(gaps.shape)
    scene = np.stack([np.full(gaps.shape, 3.0), 2.0 * rows - cols])
    box = (slice(0, 37), slice(0, 53))
    found = tiles.overlap_add(box, 2, pieces_of(cuts, planned, scene, gaps))
    assert np.allclose(found[:, gaps], scene[:, gaps], rtol=1e-14, atol=1e-13)
    assert np.isnan(found[:, ~gaps]).all()
    if size == 100:
        assert np.array_equal(found[:, gaps], scene[:, gaps])


def test_a_box_is_the_same_part_of_the_whole(rng):
    gaps = rng.random((40, 40)) > 0.5
    cuts = tiles.grid(gaps.shape, 12, 6)
    planned = tiles.plan(cuts, gaps.astype(float))
    pieces = list(pieces_of(cuts, planned, rng.standard_normal((3, 40, 40)), gaps))
    pieces = [p._replace(values=rng.standard_normal(p.values.shape)) for p in pieces]
    whole = tiles.overlap_add((slice(0, 40), slice(0, 40)), 3, pieces)
    part = tiles.overlap_add((slice(7, 31), slice(11, 29)), 3, pieces)
    assert np.array_equal(part, whole[:, 7:31, 11:29], equal_nan=True)
    found = tiles.overlap_add((slice(7, 31), slice(11, 29)), 3, pieces, gaps[7:31, 11:29])
    assert np.array_equal(found[:, 0], part[:, gaps[7:31, 11:29]], equal_nan=True)
    swapped = tiles.overlap_add((slice(0, 40), slice(0, 40)), 3, pieces[::-1])
    assert np.allclose(swapped, whole, rtol=1e-13, equal_nan=True)


def test_who_cannot_tell_leaves_it_to_the_others():
    at = np.array([0]), np.array([0])
    one = tiles.Piece(*at, np.array([0.7]), np.array([[np.nan], [1.0]]))
    two = tiles.Piece(*at, np.array([0.3]), np.array([[5.0], [2.0]]))
    found = tiles.overlap_add((slice(0, 1), slice(0, 2)), 2, [one, two])
    assert np.allclose(found[:, 0, 0], [5.0, 1.3]) and np.isnan(found[:, 0, 1]).all()


def test_seeds_come_from_seed_and_number_alone():
    seeds = {tiles.seed_of(s, i) for s in range(5) for i in range(50)}
    assert len(seeds) == 5 * 49 + 5 and all(0 <= s < 2**63 for s in seeds)
    assert tiles.seed_of(7, 3) == tiles.seed_of(7, 3) and tiles.seed_of(7, 0) == 7


def test_sizes_that_cannot_work_are_refused():
    with pytest.raises(BadValue, match="too small"):
        tiles.grid((50, 50), 4)
    with pytest.raises(BadValue, match="half a tile"):
        tiles.grid((50, 50), 20, 11)
