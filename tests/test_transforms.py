"""The six transforms: what they keep, what undoes them, how they are drawn, whom they reach."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from hydiff.errors import BadValue, ShapeMismatch, UnknownName
from hydiff.learn import losses, network, spectral
from hydiff.learn.transforms import (
    SPATIAL,
    TRANSFORMS,
    Transform,
    Warp,
    draw,
    orbit_coverage,
    to_square,
)

EXACT = ["rotation", "shift", "reflection"]
RESAMPLED = ["scaling", "similarity", "affine"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def image(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=generator(seed), dtype=dtype)


def smooth(side, dtype=torch.float64):
    """(1, 2, side, side): two gentle waves, so that interpolation is nearly right."""
    row, col = torch.meshgrid(*[torch.linspace(0, 1, side, dtype=dtype)] * 2, indexing="ij")
    return torch.stack([torch.sin(3 * row + col), torch.cos(2 * col - row)])[None]


# What they do


def test_the_six_of_the_paper():
    assert set(SPATIAL) == {*EXACT, *RESAMPLED}
    assert set(TRANSFORMS) == {*SPATIAL, *spectral.NAMES}


@pytest.mark.parametrize("turns", range(4))
def test_rotation_is_rot90(turns):
    x = image(2, 3, 5, 5)
    assert torch.equal(Transform("rotation", (turns,))(x), torch.rot90(x, turns, (-2, -1)))


def test_shift_moves_down_and_right_and_around():
    x = torch.arange(6).view(1, 1, 2, 3)
    assert Transform("shift", (1, 2))(x)[0, 0].tolist() == [[4, 5, 3], [1, 2, 0]]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 4, 5, 9), (1, 2, 9, 4)], ids=str)
def test_exact_transforms_invert_to_the_last_bit(name, shape):
    x = image(*shape)
    square, crop = to_square(x)
    for seed in range(20):
        for g in draw(name, square.shape, generator(seed), n=7):
            assert torch.equal(g.inverse()(g(square)), square)
            assert torch.equal(g(g.inverse()(square)), square)
            assert torch.equal(crop(g.inverse()(g(square))), x)


@pytest.mark.parametrize("name", EXACT)
def test_exact_transforms_keep_the_norm(name):
    x = image(2, 3, 7, 7, dtype=torch.float64)
    for g in draw(name, x.shape, generator(), n=7):
        # the values are the same ones, hence every norm
        assert torch.equal(g(x).flatten(-2).sort().values, x.flatten(-2).sort().values)


@pytest.mark.parametrize("name", SPATIAL)
def test_bands_and_images_are_not_mixed(name):
    x = image(2, 3, 8, 8)
    for g in draw(name, x.shape, generator(), n=4):
        one_by_one = [[g(x[b : b + 1, c : c + 1])[0, 0] for c in range(3)] for b in range(2)]
        torch.testing.assert_close(g(x), torch.stack([torch.stack(bands) for bands in one_by_one]))


@pytest.mark.parametrize("name", SPATIAL)
def test_linear_and_constants_stay(name):
    x, z = image(1, 2, 8, 8, dtype=torch.float64), image(1, 2, 8, 8, seed=1, dtype=torch.float64)
    for g in draw(name, x.shape, generator(3), n=4):
        torch.testing.assert_close(g(2 * x - z), 2 * g(x) - g(z))
        torch.testing.assert_close(g(torch.ones_like(x)), torch.ones_like(x))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_are_the_adjoint(name):
    x = image(1, 2, 6, 6, dtype=torch.float64).requires_grad_()
    y, z = (image(1, 2, 6, 6, seed=s, dtype=torch.float64) for s in (1, 2))
    for g in draw(name, x.shape, generator(1), n=4):
        (adjoint_y,) = torch.autograd.grad((g(x) * y).sum(), x)
        torch.testing.assert_close((g(z) * y).sum(), (z * adjoint_y).sum())
        if name in EXACT:  # unitary: the adjoint undoes it
            assert torch.equal(adjoint_y, g.inverse()(y))


@pytest.mark.parametrize("name", RESAMPLED)
def test_the_content_goes_where_the_matrix_says(name):
    side = 33
    x = torch.zeros(1, 1, side, side, dtype=torch.float64)
    x[..., 14:19, 15:20] = 1  # a block whose centre is (column 17, row 16)
    for g in draw(name, x.shape, generator(5), n=12):
        a, b, right, c, d, down = g.parameters
        p, q = 17 - 16, 16 - 16  # from the middle pixel
        col, row = a * p + b * q + right + 16, c * p + d * q + down + 16
        if not all(6 < place < side - 7 for place in (row, col)):
            continue
        y = g(x)[0, 0]
        near = torch.zeros_like(y)  # mirrored copies lie elsewhere
        near[int(row) - 4 : int(row) + 6, int(col) - 4 : int(col) + 6] = 1
        weights = y * near
        rows, cols = weights.sum(1), weights.sum(0)
        place = torch.arange(side, dtype=torch.float64)
        assert (rows @ place / rows.sum()).item() == pytest.approx(row, abs=0.3)
        assert (cols @ place / cols.sum()).item() == pytest.approx(col, abs=0.3)


@pytest.mark.parametrize("name", RESAMPLED)
def test_inverse_of_the_interpolating_ones(name):
    side, border = 64, 8
    x = smooth(side)
    row, col = torch.meshgrid(*[torch.arange(side) - (side - 1) / 2] * 2, indexing="ij")

    def within(rows, cols, margin):
        return (rows.abs() < side / 2 - margin) & (cols.abs() < side / 2 - margin)

    for g in draw(name, x.shape, generator(7), n=15):
        a, b, right, c, d, down = g.parameters
        stayed = within(c * col + d * row + down, a * col + b * row + right, 3)
        kept = stayed & within(row, col, border)  # the mirrored edge has a kink
        assert kept.sum() > 100
        assert (g.inverse()(g(x)) - x)[..., kept].abs().max() < 1e-2
        assert g.inverse().inverse().parameters == pytest.approx(g.parameters)


def test_a_similarity_by_a_quarter_turn_is_the_rotation():
    x = image(1, 2, 7, 7, dtype=torch.float64)
    g = Transform("similarity", (0, 1, 0, -1, 0, 0))  # (column, row) ↦ (row, -column)
    torch.testing.assert_close(g(x), torch.rot90(x, 1, (-2, -1)))


def test_beyond_the_edge_the_image_is_mirrored():
    x = torch.arange(4.0).view(1, 1, 1, 4).expand(1, 1, 4, 4)
    moved = Transform("similarity", (1, 0, 2, 0, 1, 0))(x)
    torch.testing.assert_close(moved[0, 0, 0], torch.tensor([1.0, 0.0, 0.0, 1.0]))


@pytest.mark.parametrize("name", RESAMPLED)
def test_half_precision_keeps_its_type(name):
    x = smooth(16).to(torch.bfloat16)
    (g,) = draw(name, x.shape, generator())
    assert g(x).dtype == torch.bfloat16
    torch.testing.assert_close(g(x).float(), g(x.float()), atol=2e-2, rtol=0)


@pytest.mark.parametrize("name", ["similarity", "affine", "scaling", "shift", "reflection"])
def test_only_rotation_needs_a_square(name):
    for g in draw(name, (5, 8), generator(), n=4):
        assert g(image(1, 2, 5, 8)).shape == (1, 2, 5, 8)


# Along the bands


def along_bands(kind, *numbers, turns=0, name="spectral-rotation"):
    numbers = (*numbers, 0, 0)[:3]
    return Transform(name, (6, turns, kind, *numbers))


def test_bands_move_all_around():
    x = image(1, 6, 4, 4)
    assert torch.equal(along_bands(spectral.SHIFT, 2)(x), x.roll(2, dims=1))


def test_a_scaling_is_smooth_and_the_same_for_every_pixel():
    x = torch.ones(1, 6, 4, 4, dtype=torch.float64)
    curve = along_bands(spectral.SCALE, 0.2, 1.0, 0.0)(x)
    assert torch.equal(curve, curve[..., :1, :1].expand_as(curve))
    assert curve[0, :, 0, 0].log().tolist() == pytest.approx(
        [0.2 * np.cos(np.pi * u / 5) for u in range(6)], abs=1e-6
    )


def test_a_subset_keeps_its_share_of_the_bands_as_they_are():
    x = image(1, 6, 4, 4)
    kept = along_bands(spectral.SUBSET, 0.5, 7)(x)
    same = [torch.equal(kept[:, b], x[:, b]) for b in range(6)]
    assert sum(same) == 3 and not kept[:, [not s for s in same]].any()


@pytest.mark.parametrize("name", spectral.NAMES)
def test_shifts_and_scalings_of_bands_invert_and_a_subset_is_a_projection(name):
    x = image(2, 6, 8, 8, dtype=torch.float64)
    for seed in range(40):
        (g,) = draw(name, x.shape, generator(seed))
        back = g.inverse()(g(x))
        if g.parameters[2] == spectral.SUBSET:
            again = Transform(name, (*g.parameters[:1], 0, *g.parameters[2:]))
            torch.testing.assert_close(again(g(x)), g(x))
        elif name == spectral.SHIFTED:  # by one band of six: at one end a band was lost
            torch.testing.assert_close(back[:, 1:-1], x[:, 1:-1])
        else:
            torch.testing.assert_close(back, x, rtol=1e-6, atol=1e-6)


WHOLE = [spectral.SHIFTED, spectral.SCALED, spectral.HIDDEN]  # families that make scenes of scenes


def test_shifted_bands_repeat_an_end():
    x = image(1, 6, 4, 4)
    up = along_bands(spectral.MOVE, 1, name=spectral.SHIFTED)(x)
    assert torch.equal(up, x[:, [0, 0, 1, 2, 3, 4]])
    assert torch.equal(
        along_bands(spectral.MOVE, -2, name=spectral.SHIFTED)(x)[:, 4:], x[:, [5, 5]]
    )
    moves = [draw(spectral.SHIFTED, (200, 4, 4), generator(i))[0].parameters[3] for i in range(99)]
    assert {abs(by) for by in moves} == {1, 2, 3}


def test_scaled_bands_stay_in_the_network_s_reach():
    """Its answers end at 1; and a scene is dimmed by a fifth at most, from band to band by less."""
    for seed in range(40):
        (g,) = draw(spectral.SCALED, (64, 4, 4), generator(seed))
        gain = g(torch.ones(1, 64, 4, 4, dtype=torch.float64))[0, :, 0, 0]
        assert gain.max() <= 1 and gain.min() >= np.exp(-0.2) - 1e-6
        assert gain.diff().abs().max() < 0.02


def test_hidden_bands_are_left_out_of_the_measurement_and_not_of_the_image():
    x, observed = image(1, 6, 4, 4), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    observed[..., 2] = False
    for seed in range(20):
        (g,) = draw(spectral.HIDDEN, x.shape, generator(seed))
        assert torch.equal(g(x), x.rot90(int(g.parameters[1]), (-2, -1)))
        measured = g.measures(observed)
        bands = measured.any(-1).any(-1)[0]
        assert 3 <= bands.sum() <= 6
        assert torch.equal(measured, observed & bands.view(1, 6, 1, 1))


@pytest.mark.parametrize("name", spectral.NAMES)
def test_a_place_in_memory_measures_as_its_transform_does(name):
    x, observed = image(1, 6, 4, 4), torch.ones(1, 1, 4, 4, dtype=torch.bool)
    warp = Warp(name, x.shape, x.device)
    for seed in range(5):
        (g,) = draw(name, x.shape, generator(seed))
        warp.load(g)
        torch.testing.assert_close(warp(x), g(x))
        assert torch.equal(warp.measures(observed), g.measures(observed))


def orbit_oracle(scenes):
    """The perfect reconstructor of these images (1, C, H, W): whatever is measured of one of them,
    0 where it is not, it gives that one back."""

    def f(y):
        misses = torch.stack([((s - y)[y != 0]).abs().sum() for s in scenes])
        return scenes[int(misses.argmin())]

    return f


def ei_of(f, x, g):
    observed = torch.ones(1, 1, *x.shape[2:], dtype=torch.bool)
    observed[..., 2:4] = False
    return losses.equivariance(f, x, observed, None, [g], None, generator())


@pytest.mark.parametrize("name", WHOLE)
def test_the_truth_has_no_equivariance_error_under_a_perfect_reconstructor(name):
    x = image(1, 12, 8, 8).abs() + 0.1
    for seed in range(12):
        (g,) = draw(name, x.shape, generator(seed))
        assert ei_of(orbit_oracle([x, g(x)]), x, g) == 0


def test_a_subset_as_target_contradicts_a_perfect_reconstructor():
    """It gives the missing bands back, where the target has 0."""
    x = image(1, 6, 8, 8).abs() + 0.1
    turned = x.rot90(1, (-2, -1))
    g = along_bands(spectral.SUBSET, 0.5, 7, turns=1)
    assert ei_of(orbit_oracle([x, turned]), x, g) > 0.1
    hidden = along_bands(spectral.HIDE, 0.5, 7, turns=1, name=spectral.HIDDEN)
    assert ei_of(orbit_oracle([x, turned]), x, hidden) == 0


@pytest.mark.parametrize("name", WHOLE)
def test_gradients_of_families_along_the_bands_are_finite(name):
    f = network.build(6, channels=4, scales=2, seed=0)
    for seed in range(3):
        (g,) = draw(name, (6, 16, 16), generator(seed))
        f.zero_grad()
        ei_of(f, f(image(1, 6, 16, 16).sigmoid()), g).backward()
        gradients = torch.cat([p.grad.flatten() for p in f.parameters() if p.grad is not None])
        assert gradients.isfinite().all() and gradients.abs().max() > 0


def test_an_image_that_all_bands_share_is_turned_alone():
    inside = image(1, 1, 4, 4)
    g = along_bands(spectral.SCALE, 0.2, 1.0, 0.0, turns=1)
    assert torch.equal(g(inside), inside.rot90(1, (-2, -1)))
    warp = Warp("spectral-rotation", (1, 6, 4, 4), inside.device)
    warp.load(g)
    assert torch.equal(warp(inside), g(inside))


def test_bands_alone_reach_no_gap_that_they_share():
    observed = torch.ones(6, 6, dtype=torch.bool)
    observed[:, 2] = False
    assert orbit_coverage(observed, "spectral") == 1
    assert orbit_coverage(observed, "spectral-rotation") == orbit_coverage(observed, "rotation")
    own = torch.ones(3, 6, 6, dtype=torch.bool)
    own[1, :, 2] = False  # in one band alone
    assert orbit_coverage(own, "spectral") == 0


@pytest.mark.parametrize("name", WHOLE)
def test_families_along_the_bands_reach_what_their_turn_and_their_shift_reach(name):
    shared = torch.ones(6, 6, dtype=torch.bool)
    shared[:, 2] = False
    assert orbit_coverage(shared, name) == orbit_coverage(shared, "rotation")
    apart = torch.ones(12, 6, 6, dtype=torch.bool)
    apart[4:9, 1:5, 1:5] = False  # five bands; a turn keeps the square in its place
    assert orbit_coverage(apart, name) == pytest.approx(3 / 5 if name == "shifted-bands" else 1)


# How they are drawn


@pytest.mark.parametrize("name", SPATIAL)
@pytest.mark.parametrize("n", [1, 3, 7, 8])
def test_weights_sum_to_one_and_no_transform_comes_twice(name, n):
    for seed in range(20):
        drawn = draw(name, (6, 6), generator(seed), n)
        assert sum(g.weight for g in drawn) == pytest.approx(1)
        assert len({g.parameters for g in drawn}) == len(drawn)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("n", [1, 7])
def test_same_generator_state_same_draws(name, n):
    first, second = (draw(name, (9, 9), generator(4), n) for _ in range(2))
    assert first == second
    rng = generator(4)
    draw(name, (9, 9), rng, n)
    sequence = [draw(name, (9, 9), rng, n) for _ in range(20)]
    assert any(drawn != first for drawn in sequence)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_global_generator_is_left_alone(name):
    before = torch.random.get_rng_state()
    draw(name, (9, 9), generator(), 7)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", SPATIAL)
@pytest.mark.parametrize("side", [3, 4])
def test_one_draw_is_never_the_identity(name, side):
    x, rng = torch.arange(1.0, side * side + 1).view(1, 1, side, side), generator()
    for _ in range(300):
        (g,) = draw(name, x.shape, rng)
        assert g.weight == 1
        assert not torch.equal(g(x), x)


@pytest.mark.parametrize(("name", "size"), [("rotation", 3), ("reflection", 3), ("shift", 8)])
def test_single_draws_reach_every_other_element_equally_often(name, size):
    rng = generator()
    seen = Counter(draw(name, (3, 3), rng)[0].parameters for _ in range(1600))
    assert len(seen) == size
    assert min(seen.values()) > 0.7 * 1600 / size


def test_seven_rotations_are_the_four_weighted_two_two_two_one():
    single = Counter()
    for seed in range(200):
        drawn = draw("rotation", (4, 4), generator(seed), n=7)
        weights = {g.parameters[0]: round(7 * g.weight) for g in drawn}
        assert sorted(weights) == [0, 1, 2, 3]
        assert sorted(weights.values()) == [1, 2, 2, 2]
        single.update(k for k, times in weights.items() if times == 1)
    assert len(single) == 4  # which one comes once is random
    assert min(single.values()) > 20


def test_weighted_rotations_equal_the_plain_mean_over_seven_signed_angles():
    x = image(1, 2, 6, 6, dtype=torch.float64)
    y = image(1, 2, 6, 6, seed=1, dtype=torch.float64)
    drawn = draw("rotation", x.shape, generator(2), n=7)
    weighted = sum(g.weight * (g(x) - y).square().mean() for g in drawn)
    (once,) = [g.parameters[0] for g in drawn if round(7 * g.weight) == 1]
    angles = [0, 90, 180, 270, -0, -90, -180, -270]
    angles.pop(next(i for i, angle in enumerate(angles) if angle // 90 % 4 == once))
    assert len(angles) == 7
    plain = [torch.rot90(x, angle // 90, (-2, -1)) for angle in angles]
    torch.testing.assert_close(weighted, sum((z - y).square().mean() for z in plain) / 7)


def test_weighted_reflections_equal_the_plain_mean_over_seven():
    x = image(1, 2, 6, 6, dtype=torch.float64)
    y = image(1, 2, 6, 6, seed=1, dtype=torch.float64)
    drawn = draw("reflection", x.shape, generator(), n=7)
    weighted = sum(g.weight * (g(x) - y).square().mean() for g in drawn)
    plain = [x, x, x, x, x.flip(-2), x.flip(-1), x.flip(-2, -1)]
    torch.testing.assert_close(weighted, sum((z - y).square().mean() for z in plain) / 7)


@pytest.mark.parametrize("name", ["shift", *RESAMPLED])
def test_seven_of_the_others_are_independent(name):
    drawn = draw(name, (40, 40), generator(), n=7)
    assert [g.weight for g in drawn] == [1 / 7] * 7


def linear_part(g):
    a, b, _, c, d, _ = g.parameters
    return np.array([[a, b], [c, d]])


def test_scaling_draws_both_factors_and_centres_inside():
    drawn = draw("scaling", (20, 30), generator(), n=200)
    assert {g.parameters[0] for g in drawn} == {0.75, 0.5}
    for g in drawn:
        f, zero, right, _, same, down = g.parameters
        assert (zero, same) == (0, f)
        assert abs(right / (1 - f)) <= 15
        assert abs(down / (1 - f)) <= 10


def test_similarity_turns_zooms_and_shifts_within_its_ranges():
    drawn = draw("similarity", (20, 30), generator(), n=200)
    zooms = [np.linalg.det(linear_part(g)) ** 0.5 for g in drawn]
    assert 0.5 <= min(zooms) < 0.55
    assert 0.95 < max(zooms) <= 1
    angles = [np.degrees(np.arctan2(g.parameters[3], g.parameters[0])) for g in drawn]
    assert min(angles) < -160
    assert max(angles) > 160
    for g in drawn:
        col, row = np.linalg.solve(linear_part(g), [g.parameters[2], g.parameters[5]])
        assert abs(col) <= 15
        assert abs(row) <= 10


def test_seven_draws_that_stay_apart_are_those_that_would_be_merged():
    for name in TRANSFORMS:
        merged = draw(name, (8, 8), generator(), n=7)
        apart = draw(name, (8, 8), generator(), n=7, merge=False)
        assert len(apart) == 7 and all(g.weight == pytest.approx(1 / 7) for g in apart)
        for g in merged:
            times = sum(h.parameters == g.parameters for h in apart)
            assert g.weight == pytest.approx(times / 7)


def test_affine_skews_and_stretches_within_its_ranges():
    # A = turn · (zoom · stretch, shear above the diagonal): QR gives back both
    triangles = [np.linalg.qr(linear_part(g))[1] for g in draw("affine", (9, 9), generator(), 300)]
    stretches = np.abs([np.diag(r) for r in triangles])
    assert 0.25 <= stretches.min() < 0.3
    assert 0.9 < stretches.max() <= 1
    # shear = skew · zoom² · sx · sy / 100 with skew within ±50: its mean is 25/100 · 7/12 · 9/16
    shears = np.array([r[0, 1] * np.sign(r[0, 0]) for r in triangles])
    assert 0.3 < np.abs(shears).max() <= 0.5
    assert np.abs(shears).mean() == pytest.approx(0.25 * 7 / 12 * 9 / 16, rel=0.15)
    assert shears.min() < 0 < shears.max()


def test_errors_say_what_to_do():
    with pytest.raises(UnknownName, match="did you mean 'rotation'"):
        draw("rotations", (4, 4), generator())
    with pytest.raises(ShapeMismatch, match="to_square"):
        draw("rotation", (4, 5), generator())
    with pytest.raises(BadValue, match="n ≤ 8"):
        draw("rotation", (4, 4), generator(), n=9)
    with pytest.raises(BadValue, match="at least 1"):
        draw("shift", (4, 4), generator(), n=0)
    with pytest.raises(UnknownName, match="did you mean 'affine'"):
        orbit_coverage(torch.ones(2, 2, dtype=torch.bool), "afine")
    with pytest.raises(BadValue, match="boolean"):
        orbit_coverage(torch.ones(2, 2), "shift")


# The square hull


@pytest.mark.parametrize("shape", [(1, 2, 5, 9), (3, 9, 5), (4, 4), (2, 1, 6)], ids=str)
def test_the_hull_is_square_and_crops_back(shape):
    x = image(*shape)
    square, crop = to_square(x)
    side = max(shape[-2:])
    assert square.shape == (*shape[:-2], side, side)
    assert torch.equal(crop(square), x)
    assert square.abs().sum() == pytest.approx(x.abs().sum())


def test_the_padding_of_a_mask_is_unobserved():
    square, crop = to_square(torch.ones(3, 5, dtype=torch.bool))
    assert square.dtype == torch.bool
    assert square.sum() == 15
    assert crop(square).all()


# Whom they reach


def columns(*runs):
    """A published mask: full-height stripes on 144 × 144; True = measured."""
    observed = torch.ones(144, 144, dtype=torch.bool)
    for first, last in runs:
        observed[:, first : last + 1] = False
    return observed


PUBLISHED = [
    columns((11, 13), (29, 34), (59, 67)),
    columns((19, 24), (39, 44), (59, 69), (89, 99)),
    columns((9, 14), (19, 24), (29, 34), (39, 44)),
    columns((0, 3), *[(k, k + 3) for k in range(9, 140, 10)]),
]


@pytest.mark.parametrize(
    ("name", "counts"),
    [("rotation", [0, 2 * 2, 0, 32 * 32]), ("reflection", [0, 2 * 144, 0, 32 * 144])],
)
def test_published_masks(name, counts):
    # Column k is lost to reflections when 143 - k is masked too: 2 columns of mask 2, 32 of
    # mask 4.  The shares of *all* pixels are 0, 0.02, 0, 4.9 % and 0, 1.4, 0, 22.2 %.
    for observed, count in zip(PUBLISHED, counts, strict=True):
        missing = (~observed).sum().item()
        assert orbit_coverage(observed, name) == pytest.approx(count / missing)


@pytest.mark.parametrize("name", ["shift", "scaling", "similarity", "affine"])
def test_the_other_groups_reach_all_of_the_published_masks(name):
    assert [orbit_coverage(observed, name) for observed in PUBLISHED] == [0, 0, 0, 0]


def goals(name, n, row, col):
    """Every pixel to which some transform carries (row, col), one by one."""
    if name == "rotation":
        for _ in range(4):
            row, col = n - 1 - col, row
            yield row, col
    elif name == "reflection":
        yield from product((row, n - 1 - row), (col, n - 1 - col))
    elif name == "shift":
        yield from product(range(n), range(n))
    elif name == "scaling":
        yield from product(scaled(n, row), scaled(n, col))


def scaled(n, line):
    """Lines that show `line` after a scaling, its mirror images included."""
    centres = np.linspace(0, n, 16 * n + 1)
    u = line + 0.5
    for f, c, copy in product((0.75, 0.5), centres, (u, -u, 2 * n - u)):
        place = f * copy + (1 - f) * c
        if 0 <= place < n:
            yield int(place)


@pytest.mark.parametrize("name", [*EXACT, "scaling"])
@pytest.mark.parametrize("shape", [(6, 6), (5, 5), (4, 7), (7, 3)], ids=str)
def test_coverage_against_loops(name, shape):
    side = max(shape)
    carried = {p: set(goals(name, side, *p)) for p in product(*map(range, shape))}
    for seed, share in product(range(4), (0.05, 0.3, 0.8)):
        observed = torch.rand(shape, generator=generator(seed)) < share
        seen = {tuple(p) for p in observed.nonzero().tolist()}
        missing = [p for p in carried if p not in seen]
        lost = sum(not carried[p] & seen for p in missing)
        assert orbit_coverage(observed, name) == pytest.approx(lost / max(len(missing), 1))


@pytest.mark.parametrize("name", ["similarity", "affine"])
@pytest.mark.parametrize("start", [(-0.95, -0.95), (0.95, 0.0), (0.0, 0.0)], ids=str)
def test_similarity_and_affine_carry_any_place_anywhere(name, start):
    # on an image that reaches from -1 to 1: the nine cells of a 3 × 3 board
    goals = [place_after(g, start) for g in draw(name, (2, 2), generator(), n=6000)]
    inside = [(col, row) for col, row in goals if max(abs(col), abs(row)) < 1]
    assert len({(round(1.5 * col), round(1.5 * row)) for col, row in inside}) == 9


def place_after(g, place):
    a, b, right, c, d, down = g.parameters
    return a * place[0] + b * place[1] + right, c * place[0] + d * place[1] + down


@pytest.mark.parametrize("name", SPATIAL)
def test_coverage_at_the_ends(name):
    all_seen = torch.ones(4, 6, dtype=torch.bool)
    assert orbit_coverage(all_seen, name) == 0
    assert orbit_coverage(~all_seen, name) == 1


@pytest.mark.parametrize("name", SPATIAL)
def test_coverage_counts_entries_band_by_band(name):
    bands = torch.rand(5, 6, 6, generator=generator(1)) < 0.1
    bands[2], bands[3] = True, False
    missing = (~bands).sum((-2, -1))
    lost = sum(
        orbit_coverage(band, name) * m.item() for band, m in zip(bands, missing, strict=True)
    )
    assert orbit_coverage(bands, name) == pytest.approx(lost / missing.sum().item())
    assert lost >= 36  # the band that saw nothing


def test_coverage_takes_read_only_arrays():
    observed = np.broadcast_to(np.array([True, False, True, False]), (4, 4))
    assert orbit_coverage(observed, "reflection") == 0


# A place for a transform


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_a_warp_is_the_transform_it_was_loaded_with_last(name, last):
    x = image(2, 3, 8, 8)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    warp = Warp(name, x.shape, x.device)
    for seed in range(30):  # more than it keeps
        (g,) = draw(name, x.shape, generator(seed))
        warp.load(g)
        torch.testing.assert_close(warp(x), g(x), rtol=0, atol=1e-5 if name in RESAMPLED else 0)
        assert warp.weight == g.weight


@pytest.mark.parametrize("name", EXACT)
def test_the_gradient_of_a_warp_is_its_inverse(name):
    x, g = image(1, 2, 6, 6).requires_grad_(), draw(name, (6, 6), generator(3))[0]
    warp = Warp(name, x.shape, x.device)
    warp.load(g)
    back = image(1, 2, 6, 6, seed=1)
    warp(x).backward(back)
    assert torch.equal(x.grad, g.inverse()(back))


def test_channels_last_stay_last():
    x = image(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    warp = Warp("rotation", x.shape, x.device)
    warp.load(Transform("rotation", (1,)))
    assert warp(x).is_contiguous(memory_format=torch.channels_last)
