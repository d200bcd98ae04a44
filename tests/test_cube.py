"""Cube: reading from disk as if from memory, what is missing, the unit range, windows, xarray."""

from dataclasses import replace

import numpy as np
import pytest
import xarray
from affine import Affine
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hydiff.cube import (
    Cube,
    Lazy,
    Scale,
    as_cube,
    equals,
    representable,
    unit_scale,
)
from hydiff.errors import BadValue, NothingObserved, ShapeMismatch
from hydiff.gaps import rule

SHAPE = (4, 5, 6)


def numbers(dtype=np.float64, shape=SHAPE):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def lazy(values, log=None):
    def read(*block):
        assert all(s.step in (None, 1) and 0 <= s.start <= s.stop for s in block)
        if log is not None:
            log.append(tuple((s.start, s.stop) for s in block))
        return values[block]

    return Lazy(values.shape, values.dtype, read)


# ---- Lazy ----------------------------------------------------------------------------------


def axis_keys(n):
    ends = st.none() | st.integers(-n - 2, n + 2)
    slices = st.builds(slice, ends, ends, st.none() | st.integers(1, 4))
    return slices | st.integers(-n, n - 1) | st.integers(-n, n - 1).map(np.int64)


@st.composite
def keys(draw):
    """Any mix of integers, forward slices and one ellipsis, on up to three axes."""
    used = draw(st.integers(0, 3))
    front = draw(st.integers(0, used))
    head = [draw(axis_keys(n)) for n in SHAPE[:front]]
    tail = [draw(axis_keys(n)) for n in SHAPE[3 - (used - front) :]] if used > front else []
    if tail or draw(st.booleans()):
        return (*head, Ellipsis, *tail)
    return tuple(head)


@given(key=keys())
@settings(max_examples=300, deadline=None)
def test_lazy_indexes_as_numpy_does(key):
    values = numbers(np.int32)
    found, expected = lazy(values)[key], values[key]
    assert np.shape(found) == np.shape(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@given(key=axis_keys(SHAPE[0]))
def test_lazy_takes_a_bare_key(key):
    values = numbers()
    np.testing.assert_array_equal(lazy(values)[key], values[key])


def test_lazy_reads_only_the_block_it_is_asked_for():
    log = []
    array = lazy(numbers(), log)
    array[1, 2:4, -1]
    array[..., 0]
    assert log == [((1, 2), (2, 4), (5, 6)), ((0, 4), (0, 5), (0, 1))]


def test_lazy_becomes_an_array():
    values = numbers(np.uint16)
    np.testing.assert_array_equal(np.asarray(lazy(values)), values)
    assert np.asarray(lazy(values), dtype=np.float32).dtype == np.float32


def test_lazy_refuses_what_it_cannot_read():
    array = lazy(numbers())
    with pytest.raises(IndexError, match="forwards"):
        array[:, ::-1]
    for key in (4, -5, (0, 5), (0, 0, 6)):
        with pytest.raises(IndexError):
            array[key]
    for key in ([0, 1], np.array([0, 1]), (0, np.ones(5, bool)), None, "a"):
        with pytest.raises(IndexError, match="indexed by integers, slices"):
            array[key]


def test_a_cube_on_disk_is_like_a_cube_in_memory():
    values = numbers(np.float32)
    values[0, 0, 0] = -1
    there, here = Cube(lazy(values), nodata=-1), Cube(values, nodata=-1)
    assert there.shape == here.shape == SHAPE
    assert there.nbytes == here.nbytes == values.nbytes
    assert there.dtype == np.float32
    np.testing.assert_array_equal(there.observed(), here.observed())
    assert isinstance(there.load().values, np.ndarray)
    np.testing.assert_array_equal(
        there.window(slice(1, 3), slice(2, None)).values, values[:, 1:3, 2:]
    )


# ---- shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (3, 4), (1, 2, 3, 4)])
def test_a_cube_has_three_axes(shape):
    with pytest.raises(ShapeMismatch, match=rf"three axes \(bands, rows, cols\).*{shape[0]}"):
        Cube(np.zeros(shape))


@pytest.mark.parametrize("name", ["wavelengths", "fwhm", "good", "band_names"])
def test_fields_of_another_length_are_named(name):
    with pytest.raises(ShapeMismatch, match=f"{name} has 3 entries, but the cube has 4 bands"):
        Cube(numbers(), **{name: np.ones(3, dtype=bool)})


def test_good_bands_are_all_unless_the_file_says():
    assert Cube(numbers()).good_bands.tolist() == [True] * 4
    good = np.array([True, False, True, True])
    assert np.array_equal(Cube(numbers(), good=good).good_bands, good)


# ---- what is missing -----------------------------------------------------------------------


def missing(cube, nodata=None):
    """Flat positions of the missing entries."""
    return np.flatnonzero(~cube.observed(nodata)).tolist()


def test_the_user_comes_before_the_product_and_the_product_before_the_file():
    values = numbers()
    valid = np.ones(SHAPE[1:], dtype=bool)
    valid[0, 3] = False
    declared = Cube(values, nodata=2, valid=valid)
    product = Cube(values, nodata=2, valid=valid, missing_rule=lambda v: v == 1)
    assert missing(declared) == [2, 3, 33, 63, 93]
    assert missing(product) == [1]
    assert missing(product, nodata=0) == missing(declared, nodata=0) == [0]


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_inf_are_always_missing(dtype, hole):
    values = numbers(dtype)
    values[0, 0, 5] = hole
    assert missing(Cube(values)) == [5]
    assert missing(Cube(values), nodata=7) == [5, 7]
    assert missing(Cube(values, nodata=8)) == [5, 8]
    assert missing(Cube(values, missing_rule=lambda v: v == 9)) == [5, 9]


def test_nan_may_be_the_nodata_value():
    values = numbers()
    values[0, 0, 0] = np.nan
    assert missing(Cube(values, nodata=np.nan)) == missing(Cube(values), nodata=np.nan) == [0]
    assert missing(Cube(numbers(np.int16), nodata=np.nan)) == []


def test_values_are_compared_in_their_dtype():
    values = numbers(np.float32)
    values[0, 0, 0] = np.float32(-3.4e38)
    assert float(values[0, 0, 0]) != -3.4e38
    assert missing(Cube(values, nodata=-3.4e38)) == missing(Cube(values), nodata=-3.4e38) == [0]
    values[0, 0, 0] = np.float32(0.1)
    assert missing(Cube(values, nodata=0.1)) == [0]


def test_nodata_that_cannot_occur_is_refused_from_the_user_and_ignored_in_a_file():
    values = numbers(np.uint16)
    assert missing(Cube(values, nodata=-9999)) == []
    with pytest.raises(BadValue, match=r"-9999 cannot occur in uint16.*`nodata=`"):
        Cube(values).observed(-9999)
    with pytest.raises(BadValue, match="cannot occur"):
        Cube(values).observed(0.5)


@pytest.mark.parametrize(
    ("nodata", "dtype", "expected"),
    [
        (-1, "u1", False),
        (255, "u1", True),
        (256, "u1", False),
        (-9999, "i2", True),
        (0.5, "i2", False),
        (np.inf, "i4", False),
        (np.nan, "i4", False),
        (2.0**63, "i8", False),
        (np.nan, "f4", True),
        (-9999, "f8", True),
        (0, "?", False),
        (0, "c8", False),
    ],
)
def test_representable(nodata, dtype, expected):
    assert representable(nodata, np.dtype(dtype)) is expected


def test_the_largest_integers_stay_apart():
    values = np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64)
    assert equals(values, 2**64 - 1).tolist() == [True, False]


def test_a_block_finds_its_place_in_the_validity_layer():
    values = numbers()
    valid = np.random.default_rng(0).random(SHAPE[1:]) > 0.5
    cube = Cube(values, valid=valid)
    rows, cols = slice(1, 4), slice(2, 6)
    np.testing.assert_array_equal(
        cube.observed_in(values[:, rows, cols], rows=rows, cols=cols),
        cube.observed()[:, rows, cols],
    )


# ---- the unit range ------------------------------------------------------------------------


def to_unit(values, observed, good=None):
    """Values on the unit range, and the scale that brings them back."""
    good = np.ones(len(values), dtype=bool) if good is None else good
    scale = unit_scale(values, observed, good)
    return scale.to_unit(values.astype(np.float64)), scale


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_integers_come_back_exactly(dtype, data):
    info = np.iinfo(dtype)
    entries = data.draw(st.lists(st.integers(info.min, info.max), min_size=8, max_size=8))
    values = np.array(entries, dtype=dtype).reshape(2, 2, 2)
    unit, scale = to_unit(values, np.ones((2, 2, 2), dtype=bool))
    assert unit.dtype == np.float64
    np.testing.assert_array_equal(np.rint(scale.from_unit(unit)).astype(dtype), values)


@given(
    entries=st.lists(st.floats(-1e6, 1e6, width=32), min_size=8, max_size=8),
)
@settings(max_examples=50, deadline=None)
def test_floats_come_back_within_1e_12_of_the_span(entries):
    # an offset a thousand spans away costs three of the sixteen digits, and no format undoes that
    assume(np.ptp(entries) > 1e-3 * np.abs(entries).max())
    values = np.array(entries).reshape(2, 2, 2)
    unit, scale = to_unit(values, np.ones((2, 2, 2), dtype=bool))
    assert np.abs(scale.from_unit(unit) - values).max() <= 1e-12 * scale.span


def test_limits_are_percentiles_widened_by_five_percent():
    values = np.random.default_rng(0).normal(300, 50, (3, 200, 200))
    scale = unit_scale(values, np.ones((200, 200), dtype=bool), np.ones(3, dtype=bool))
    low, high = np.percentile(values, [0.01, 99.99])
    assert scale.low == pytest.approx(low - 0.05 * (high - low))
    assert scale.high == pytest.approx(high + 0.05 * (high - low))
    assert scale.to_unit(low) == pytest.approx(0.05 / 1.1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("size", [1, 2, 3, 500, 20_001, 300_000])
def test_the_scale_is_that_of_the_percentiles_of_all_entries(rng, dtype, size):
    """Of which only those near the ends are sorted, ties and all."""
    values = (rng.standard_normal((1, 1, size)) * 40).astype(dtype)
    low, high = np.percentile(values.astype(np.float64), [0.01, 99.99])
    scale = unit_scale(values, np.ones((1, size), bool), np.ones(1, bool))
    if high > low:
        assert scale == (low - 0.05 * (high - low), high + 0.05 * (high - low))
    else:
        assert scale.low < low < scale.high


def test_one_nan_among_many_observed_entries_is_refused(rng):
    values = rng.random((1, 300, 300))
    values[0, 7, 8] = np.nan
    with pytest.raises(BadValue, match="NaN"):
        unit_scale(values, np.ones((300, 300), bool), np.ones(1, bool))


def test_outliers_are_not_clipped():
    values = np.random.default_rng(0).random((2, 150, 150))
    values[0, 0, 0], values[1, 2, 3] = 100, -100
    unit, scale = to_unit(values, np.ones(values.shape, dtype=bool))
    assert unit.max() > 10
    assert unit.min() < -10
    np.testing.assert_allclose(scale.from_unit(unit), values, atol=1e-10)


def test_bad_bands_and_missing_entries_have_no_influence():
    rng = np.random.default_rng(0)
    values, observed = rng.random((4, 9, 9)), rng.random((4, 9, 9)) > 0.3
    good = np.array([True, False, True, True])
    _, scale = to_unit(values, observed, good)
    wild = np.where(observed & good[:, None, None], values, 1e30)
    assert to_unit(wild, observed, good)[1] == scale
    wild[~observed] = np.nan
    assert to_unit(wild, observed, good)[1] == scale


def test_one_mask_for_all_bands_is_the_same_mask_in_each():
    values = numbers()
    mask = np.random.default_rng(0).random(SHAPE[1:]) > 0.5
    shared = to_unit(values, mask)[1]
    assert shared == to_unit(values, np.broadcast_to(mask, SHAPE))[1]


@pytest.mark.parametrize("value", [0, 7, -3.5, 65535])
def test_a_constant_cube_works(value):
    values = np.full(SHAPE, value, dtype=np.float64)
    unit, scale = to_unit(values, np.ones(SHAPE, dtype=bool))
    assert unit == pytest.approx(np.full(SHAPE, 0.5))
    np.testing.assert_array_equal(scale.from_unit(unit), values)


def test_nothing_observed_is_said():
    nothing = np.zeros(SHAPE, dtype=bool)
    with pytest.raises(NothingObserved, match=r"`nodata=`, the mask, and the bad-band list"):
        to_unit(numbers(), nothing)
    with pytest.raises(NothingObserved):
        to_unit(numbers(), ~nothing, np.zeros(4, dtype=bool))


def test_scale_maps_its_ends_to_zero_and_one():
    scale = Scale(-2.0, 6.0)
    assert scale.span == 8
    assert (scale.to_unit(-2.0), scale.to_unit(6.0)) == (0, 1)
    assert (scale.from_unit(0.0), scale.from_unit(1.0)) == (-2, 6)


# ---- windows -------------------------------------------------------------------------------


@pytest.fixture
def full():
    return Cube(
        numbers(),
        wavelengths=np.array([400.0, 500, 600, 700]),
        wavelength_units="nm",
        fwhm=np.array([1.0, 2, 3, 4]),
        good=np.array([True, False, True, True]),
        nodata=-1,
        crs="EPSG:32633",
        transform=(30.0, 1.0, 1000.0, 2.0, -30.0, 5000.0),
        band_names=("a", "b", "c", "d"),
        valid=numbers(shape=SHAPE[1:]) % 3 > 0,
        attrs={"sensor": "none"},
    )


def test_a_window_cuts_every_field(full):
    part = full.window(slice(1, 4), slice(-3, None), slice(1, 3))
    np.testing.assert_array_equal(part.values, full.values[1:3, 1:4, 3:])
    np.testing.assert_array_equal(part.valid, full.valid[1:4, 3:])
    assert part.wavelengths.tolist() == [500, 600]
    assert part.fwhm.tolist() == [2, 3]
    assert part.good.tolist() == [False, True]
    assert part.band_names == ("b", "c")
    assert (part.nodata, part.crs, part.attrs) == (-1, "EPSG:32633", {"sensor": "none"})
    np.testing.assert_array_equal(part.observed(), full.observed()[1:3, 1:4, 3:])


def test_what_is_given_per_band_may_be_a_list(full):
    lists = {name: getattr(full, name).tolist() for name in ("wavelengths", "fwhm", "good")}
    names = np.array(["a", "a", "b", "b"])
    cube = replace(full, **lists, attrs={"detector": names}).window(bands=slice(1, 4))
    assert cube.wavelengths[cube.good].tolist() == [600, 700] and cube.fwhm.tolist() == [2, 3, 4]
    assert cube.detectors == ("a", "b", "b")


def test_the_transform_may_be_that_of_rasterio(full):
    placed = replace(full, transform=Affine(*full.transform)).window(slice(1, None))
    assert placed.transform == full.window(slice(1, None)).transform


def test_a_window_cuts_attributes_with_an_entry_per_band(full):
    gains, geotiff = np.arange(4.0), {"units": [*"abcd"], "mask": "abcd"}
    attrs = {"detector": "vvss", "data gain values": gains, "geotiff": geotiff}
    part = replace(full, attrs=attrs).window(bands=slice(1, 3)).attrs
    assert part["data gain values"].tolist() == [1, 2]
    assert part["geotiff"] == {"units": ["b", "c"], "mask": "abcd"}
    assert part["detector"] == "vvss"  # a name, not a list
    single = {"data gain values": 2.0}
    assert replace(full, attrs=single).window().attrs == single


@given(row=st.integers(0, 4), col=st.integers(0, 5))
def test_a_window_moves_its_map_coordinates(row, col):
    transform = (30.0, 1.0, 1000.0, 2.0, -30.0, 5000.0)

    def place(t, r, c):
        return (t[0] * c + t[1] * r + t[2], t[3] * c + t[4] * r + t[5])

    part = Cube(numbers(), transform=transform).window(slice(row, None), slice(col, None))
    assert place(part.transform, 0, 0) == place(transform, row, col)
    assert place(part.transform, 2, 3) == place(transform, row + 2, col + 3)


def test_a_window_of_everything_keeps_everything(full):
    part = full.window()
    np.testing.assert_array_equal(part.values, full.values)
    assert part.transform == full.transform
    assert Cube(numbers()).window(slice(1, 2)).transform is None


def test_a_window_takes_every_pixel(full):
    with pytest.raises(BadValue, match="without a step"):
        full.window(rows=slice(0, 4, 2))


# ---- xarray --------------------------------------------------------------------------------


def data_array(dims, **extra):
    """A DataArray whose axes are named `dims`, with coordinates on all three."""
    sizes = {"band": 4, "wavelength": 4, "y": 5, "x": 6}
    bands_first = numbers(np.float32)
    band = next(d for d in dims if d not in "yx")
    values = bands_first.transpose([(band, "y", "x").index(d) for d in dims])
    coords = {"y": 100.0 - np.arange(5), "x": 7.0 + np.arange(6), band: np.arange(4) * 10.0 + 400}
    assert values.shape == tuple(sizes[d] for d in dims)
    return xarray.DataArray(
        values, dims=dims, coords=coords | extra, attrs={"units": "W"}, name="L"
    )


@pytest.mark.parametrize(
    "dims",
    [("band", "y", "x"), ("y", "x", "band"), ("y", "x", "wavelength"), ("y", "band", "x")],
)
def test_a_data_array_comes_back_as_it_was(dims):
    array = data_array(dims)
    cube = Cube.from_xarray(array)
    np.testing.assert_array_equal(cube.values, numbers(np.float32))
    xarray.testing.assert_identical(cube.to_xarray(), array)


def test_new_values_return_in_the_old_form():
    from dataclasses import replace

    array = data_array(("y", "x", "band"))
    cube = Cube.from_xarray(array)
    back = replace(cube, values=cube.values * 2).to_xarray()
    xarray.testing.assert_identical(back, array.copy(data=array.values * 2))


def test_what_a_data_array_says_of_its_bands_is_read():
    array = data_array(
        ("y", "x", "band"),
        wavelength=("band", [400.0, 500, 600, 700]),
        good_wavelengths=("band", [1.0, 0, 1, 1]),
    )
    array.attrs |= {"_FillValue": -9999.0, "wavelength_units": "nm"}
    cube = Cube.from_xarray(array)
    assert cube.wavelengths.tolist() == [400, 500, 600, 700]
    assert cube.wavelength_units == "nm"
    assert cube.good.tolist() == [True, False, True, True]
    assert cube.nodata == -9999
    assert Cube.from_xarray(data_array(("wavelength", "y", "x"))).wavelengths[1] == 410


def test_a_data_array_without_band_names_has_bands_first():
    assert Cube.from_xarray(xarray.DataArray(numbers())).shape == SHAPE


def test_a_data_array_has_three_dimensions():
    with pytest.raises(ShapeMismatch, match=r"3 dimensions, found \('y', 'x'\)"):
        Cube.from_xarray(xarray.DataArray(np.zeros((2, 3)), dims=("y", "x")))


def test_a_cube_becomes_a_data_array(full):
    array = full.to_xarray()
    assert array.dims == ("band", "y", "x")
    assert array.band.values.tolist() == [1, 2, 3, 4]
    assert array.wavelength.values.tolist() == [400, 500, 600, 700]
    assert array.good.values.tolist() == [True, False, True, True]
    assert array.attrs["crs"] == "EPSG:32633"
    assert array.attrs["sensor"] == "none"
    assert "x" not in array.coords  # a turned grid has no coordinate per axis
    back = Cube.from_xarray(array)
    np.testing.assert_array_equal(back.values, full.values)
    np.testing.assert_array_equal(back.wavelengths, full.wavelengths)
    np.testing.assert_array_equal(back.good, full.good)
    assert (back.nodata, back.wavelength_units) == (-1, "nm")


def test_coordinates_are_pixel_centres():
    array = Cube(numbers(), transform=(30.0, 0.0, 1000.0, 0.0, -20.0, 5000.0)).to_xarray()
    assert array.x.values[:2].tolist() == [1015, 1045]
    assert array.y.values[:2].tolist() == [4990, 4970]


def test_as_cube_takes_cubes_arrays_and_data_arrays():
    cube = Cube(numbers())
    assert as_cube(cube) is cube
    np.testing.assert_array_equal(as_cube(numbers()).values, numbers())
    assert as_cube(numbers().tolist()).shape == SHAPE
    assert as_cube(data_array(("y", "x", "band"))).shape == SHAPE


@pytest.mark.parametrize("dtype", [bool, complex])
def test_a_masked_array_of_other_values_is_a_cube_that_fills_refuse(dtype):
    values = np.ma.masked_array(np.ones((2, 3, 4), dtype), np.zeros((2, 3, 4), bool))
    with pytest.raises(BadValue, match="expected integers or floats"):
        rule.check_numbers(as_cube(values))


def test_a_masked_array_keeps_its_mask():
    mask = np.zeros((2, 3, 3), bool)
    mask[0, 1, 1] = True
    for dtype in (np.float32, np.int16):
        array = np.ma.MaskedArray(np.ones((2, 3, 3), dtype), mask, fill_value=-99)
        assert np.array_equal(as_cube(array).observed(), ~mask)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.uint64])
def test_a_masked_array_of_integers_keeps_its_mask_and_values(dtype, rng):
    ends, mask = np.iinfo(dtype), rng.random((2, 20, 20)) < 0.3
    values = rng.integers(ends.min, 100, mask.shape, dtype, endpoint=True)
    values[~mask][:2] = ends.min, ends.max
    cube = as_cube(np.ma.MaskedArray(values, mask))  # whose fill value is 999999
    assert cube.dtype == dtype and np.array_equal(cube.observed(), ~mask)
    assert np.array_equal(np.asarray(cube.values)[~mask], values[~mask])


def test_a_masked_array_that_leaves_no_value_to_mark_is_refused():
    array = np.ma.MaskedArray(np.arange(256, dtype=np.uint8).reshape(1, 16, 16))
    with pytest.raises(BadValue, match="larger type"):
        as_cube(array)
    array = np.ma.masked_equal(array, 77)
    assert np.array_equal(as_cube(array).observed(), ~array.mask)


def test_a_window_of_a_data_array_is_a_cube_of_its_own():
    array = xarray.DataArray(np.arange(60.0).reshape(3, 4, 5), dims=("band", "y", "x"))
    part = Cube.from_xarray(array).window(rows=slice(1, 3))
    assert part.to_xarray().shape == (3, 2, 5)


def test_rows_are_found_by_their_name():
    array = xarray.DataArray(np.arange(60.0).reshape(3, 4, 5), dims=("band", "x", "y"))
    cube = Cube.from_xarray(array)
    assert cube.shape == (3, 5, 4)
    xarray.testing.assert_identical(cube.to_xarray(), array)


def test_a_bad_band_list_of_zeros_and_ones_selects():
    cube = Cube(np.zeros((3, 2, 2)), good=np.array([1, 0, 1]))
    assert cube.good_bands.tolist() == [True, False, True]


def test_nan_among_observed_values_is_refused():
    values = np.zeros((2, 3, 3))
    values[0, 0, 0] = np.nan
    with pytest.raises(BadValue, match="NaN"):
        unit_scale(values, np.ones((3, 3), bool), np.ones(2, bool))


@pytest.mark.parametrize("value", [0.0, 7.0, 1e17, -1e30])
def test_a_constant_cube_of_any_size_has_a_scale(value):
    values = np.full((1, 2, 2), value)
    assert unit_scale(values, np.ones((2, 2), bool), np.ones(1, bool)).span > 0


def test_a_double_nodata_beyond_float32_is_no_warning():
    assert not equals(np.zeros((1, 2, 2), np.float32), -1.7976931348623157e308).any()


# ---- repr ----------------------------------------------------------------------------------


def test_a_summary_is_short_and_reads_no_value(tmp_path):
    def read(*block):
        raise AssertionError("a summary reads no value")

    cube = Cube(
        Lazy((300, 50, 40), np.dtype("int16"), read),
        wavelengths=np.linspace(400, 2500, 300),
        wavelength_units="Unknown",
        nodata=-9999.0,
        crs='PROJCS["WGS 84 / UTM zone 10N",GEOGCS["WGS 84"]]',
        path=tmp_path / "scene.bil",
        format="envi",
        attrs={"wavelength": ["400"] * 300},
    )
    assert repr(cube).splitlines() == [
        "hydiff.Cube",
        "cube      300 bands × 50 rows × 40 cols, int16, 400 … 2500",
        f"file      {tmp_path / 'scene.bil'} (envi)",
        "nodata    -9999",
        "map       WGS 84 / UTM zone 10N",
    ]
    assert repr(Cube(numbers())) == "hydiff.Cube\ncube      4 bands × 5 rows × 6 cols, float64"
