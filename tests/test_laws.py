"""Laws that one-line faults have asked for (`make mutants`)."""

from pathlib import Path

import numpy as np
import pytest

from hydiff import mark
from hydiff.auto import folds
from hydiff.auto.classes import importance
from hydiff.cube import band_axis, representable
from hydiff.errors import BadValue, ShapeMismatch
from hydiff.gaps import mask, stored
from hydiff.io import axes, masks
from hydiff.maths.variogram import lags_within
from hydiff.methods import dineof, exemplar, rbf
from hydiff.methods.classical import membrane
from hydiff.report import plots
from hydiff.scale.bits import Bits


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4"])
def test_both_ends_of_an_integer_type_are_in_it(dtype: str) -> None:
    ends = np.iinfo(dtype)
    assert representable(ends.min, np.dtype(dtype)) and representable(ends.max, np.dtype(dtype))
    assert not representable(ends.min - 1, np.dtype(dtype))
    assert not representable(ends.max + 1, np.dtype(dtype))


def test_the_one_axis_that_is_no_row_and_no_column_is_that_of_the_bands() -> None:
    assert band_axis(["channels of it", "y", "x"]) == 0
    assert band_axis(["y", "x", "channels of it"]) == 2
    assert band_axis(["one", "two", "x"]) is None


def test_the_share_of_a_fill_is_the_mean_over_its_bands() -> None:
    filled = np.zeros((2, 2, 2), bool)
    filled[0, 0] = True
    made = mark.of_fill(filled, filled.mean(axis=(1, 2)), "smooth", {}, denoised=False)
    assert made.share == 0.25 and made.by_band is not None and made.by_band.tolist() == [0.5, 0]


def test_lags_reach_as_far_as_they_are_asked_to_each_pair_once() -> None:
    down, right = lags_within(5)
    lags = set(zip(down.tolist(), right.tolist(), strict=True))
    near = [(i, j) for i in range(-5, 6) for j in range(-5, 6) if 0 < i * i + j * j <= 25]
    assert len(lags) == len(down) == len(near) / 2
    assert lags | {(-i, -j) for i, j in lags} == set(near)


@pytest.mark.parametrize("flag", [-9999.0, -1.0, 0.0, 1.0, 9999.0, 1e30])
def test_what_lands_on_nodata_moves_to_the_side_of_the_data(flag: float) -> None:
    values = np.full((1, 1, 2), flag)
    assert stored._off_nodata(values, np.array([[[True, False]]]), flag, [flag]) == 1
    moved, kept = values[0, 0]
    assert kept == flag and (abs(moved) < abs(flag) if flag else moved > 0)


def test_a_membrane_of_some_reach_is_held_to_the_mean_by_its_inverse_square() -> None:
    complete = np.ones((4, 5), bool)
    complete[1, 2] = False
    sums = {reach: membrane(complete, reach).matrix.sum(axis=1) for reach in (np.inf, 3.0)}
    assert np.allclose(sums[np.inf], 0) and np.allclose(sums[3.0], 1 / 9)


def test_runs_are_as_long_as_they_are() -> None:
    assert dineof._runs(np.array([1, 1, 0, 1, 0, 0, 1, 1, 1], bool)) == [2, 1, 3]


def test_a_patch_has_a_middle_and_a_rim() -> None:
    assert exemplar.Exemplar(patch=3).patch == 3
    for side in (-3, 1, 2, 4):
        with pytest.raises(BadValue, match="odd side of 3 or more"):
            exemplar.Exemplar(patch=side)


@pytest.mark.parametrize(("degree", "count"), [(0, 1), (1, 3), (2, 6)])
def test_a_polynomial_in_two_unknowns_has_so_many_terms(degree: int, count: int) -> None:
    at = np.random.default_rng(0).random((20, 2))
    terms = rbf._monomials(at, degree)
    assert terms.shape == (20, count) and np.linalg.matrix_rank(terms) == count


def test_a_copy_of_a_gap_goes_down_and_right_by_the_given_offset() -> None:
    missing = np.zeros((7, 9), bool)
    missing[1, 2] = True
    copy = folds.transplanted(missing, folds.Placement(0, False, 2, 4))
    assert np.argwhere(copy).tolist() == [[3, 6]]


def test_weights_of_hidden_entries_have_the_mean_one() -> None:
    kind = np.array([0, 0, 0, 1, 1, 2])
    weight = importance(kind, np.array([30.0, 40.0, 10.0]))
    assert np.isclose(weight.mean(), 1) and weight[3] > weight[0]


@pytest.mark.parametrize("cols", [(0, 8), (3, 5), (8, 16), (9, 13), (17, 21), (0, 21)])
def test_any_columns_of_flags_on_disk_are_read(tmp_path: Path, cols: tuple[int, int]) -> None:
    flags = np.random.default_rng(0).random((2, 3, 21)) < 0.5
    bits = Bits(tmp_path / "flags.bits", flags.shape).empty()
    bits.put(slice(0, 2), slice(0, 3), flags)
    read = bits.get(slice(0, 2), slice(1, 3), slice(*cols))
    assert np.array_equal(read, flags[:, 1:3, slice(*cols)])


def test_of_a_long_gap_the_deepest_pixel_is_the_one_in_the_middle() -> None:
    gaps = np.zeros((21, 40), bool)
    gaps[:, 5:8] = True
    assert plots.deepest(gaps) == (10, 6)


def test_padding_mirrors_without_repeating_the_border() -> None:
    torch = pytest.importorskip("torch")
    from hydiff.learn.layers import reflect_to_multiple

    wide = reflect_to_multiple(torch.arange(3.0).view(1, 1, 1, 3), 4, 9)
    assert wide.shape == (1, 1, 12, 12)
    assert wide[0, 0, 7].tolist() == [0, 1, 2, 1] * 3


def test_a_mask_has_one_band_or_as_many_as_the_cube() -> None:
    path = Path("mask.tif")
    assert masks.with_bands(np.ones((1, 4, 5), bool), 3, path).shape == (4, 5)
    assert masks.with_bands(np.ones((3, 4, 5), bool), 3, path).shape == (3, 4, 5)
    with pytest.raises(ShapeMismatch, match="mask of 2 bands, but the cube has 3"):
        masks.with_bands(np.ones((2, 4, 5), bool), 3, path)


def test_an_axis_that_is_not_stored_has_length_one() -> None:
    image = np.arange(20).reshape(5, 4)
    assert axes.cube_shape(image.shape, ("cols", "rows")) == (1, 4, 5)
    assert np.array_equal(axes.as_cube(image, ("cols", "rows"))[0], image.T)


@pytest.mark.parametrize(("share", "lines"), [(0.01, 1), (0.5, 2), (0.99, 3)])
def test_a_mask_hides_one_line_at_least_and_keeps_one(share: float, lines: int) -> None:
    observed = mask.make_mask("lines", (2, 4, 5), share, np.random.default_rng(0))
    assert (~observed.any(axis=1)).sum() == lines


def test_a_mask_in_a_bare_array_has_its_bands_last(tmp_path: Path) -> None:
    flags = np.random.default_rng(0).random((3, 4, 5)) < 0.5
    masks.write(flags, tmp_path / "mask.npy", "missing")
    assert np.array_equal(np.load(tmp_path / "mask.npy"), flags.transpose(1, 2, 0))
