"""Laws of hydiff.io: what is read, written and read again is the same, in every format."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import spectral
from hypothesis import given, settings
from hypothesis import strategies as st

from hydiff import io
from hydiff.cube import Cube
from hydiff.io import blocks, conventions, envi_header, mat
from hydiff.maths.wavelengths import is_stated

INTEGERS = ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
EXTRA = {".tif": ("int8",), ".mat": ("int8", "bool"), ".npy": ("int8", "bool", "float16")}
EXTRA[".npz"] = EXTRA[".npy"]
SUFFIXES = (".bsq", ".bil", ".bip", ".img", ".tif", ".mat", ".npy", ".npz")
UTM = rasterio.CRS.from_epsg(32633).to_wkt()

words = st.text("abcdefghijklmnop XYZ0123456789.-µ", min_size=1, max_size=12).map(
    lambda text: " ".join(text.split()) or "x"
)
keys = st.text("abcdefgh XYZ", min_size=3, max_size=12).map(
    lambda text: "q" + "".join(text.split())
)


@contextmanager
def folder() -> Iterator[Path]:
    """Hypothesis shares one tmp_path between examples; each example needs its own."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def some_values(shape: tuple[int, int, int], dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if np.dtype(dtype).kind == "f":
        values = rng.normal(0, 100, shape).astype(dtype)
        values[rng.random(shape) < 0.1] = np.nan
        values[rng.random(shape) < 0.05] = np.inf
        return values
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


@st.composite
def cubes(draw: st.DrawFn, dtypes: tuple[str, ...] = INTEGERS + FLOATS) -> Cube:
    shape = draw(st.tuples(*[st.integers(1, 5)] * 3))
    bands, dtype = shape[0], draw(st.sampled_from(dtypes))
    per_band = st.lists(st.floats(1e-3, 1e4), min_size=bands, max_size=bands).map(np.array)
    declared = [0.0, -9999.0, 65535.0, -3.4028234663852886e38, 0.1]
    if dtype in FLOATS:
        declared += [np.nan, np.inf]
    located = draw(st.booleans())
    return Cube(
        values=some_values(shape, dtype, draw(st.integers(0, 99))),
        wavelengths=draw(st.none() | per_band),
        wavelength_units=draw(st.none() | st.sampled_from(["Nanometers", "um", "Unknown"])),
        fwhm=draw(st.none() | per_band),
        good=draw(
            st.none() | st.lists(st.booleans(), min_size=bands, max_size=bands).map(np.array)
        ),
        nodata=draw(st.none() | st.sampled_from(declared)),
        crs=UTM if located else None,
        transform=(30.0, 0.0, 364095.25, 0.0, -30.0, 5809965.5) if located else None,
        band_names=draw(st.none() | st.lists(words, min_size=bands, max_size=bands).map(tuple)),
        attrs=draw(st.dictionaries(keys, words | st.lists(words, min_size=1), max_size=3)),
    )


def same_values(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    return first.dtype.newbyteorder("=") == second.dtype.newbyteorder("=") and np.array_equal(
        first, second, equal_nan=first.dtype.kind == "f"
    )


def assert_same(found: Cube, expected: Cube) -> None:
    assert same_values(found.values, expected.values)
    for name in io.FIELDS:
        one, other = getattr(found, name), getattr(expected, name)
        if name == "wavelength_units" and not is_stated(other):
            waves = expected.wavelengths
            other = None if waves is None else conventions.evident_unit(waves)
        if name == "nodata" and found.dtype.kind == "f" and None not in (one, other):
            # nodata is compared in the dtype of the values, and GDAL rounds it to that
            with np.errstate(over="ignore"):  # float16 has no -3.4e38
                one, other = found.dtype.type(one), found.dtype.type(other)
        assert io._equal(one, other), (name, one, other)
    for key, value in expected.attrs.items():
        if isinstance(value, str | list):
            assert found.attrs[key] == value


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_is_written_is_read_again(suffix: str, data: st.DataObject) -> None:
    cube = data.draw(cubes(INTEGERS + FLOATS + EXTRA.get(suffix, ())))
    with folder() as place:
        made = io.write(cube, place / f"a{suffix}")
        assert made[0] == place / f"a{suffix}"
        assert set(made) == set(place.iterdir())
        assert_same(io.read(made[0]), cube)


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_a_copy_with_one_entry_changed(suffix: str, data: st.DataObject) -> None:
    cube = data.draw(cubes(INTEGERS + FLOATS + EXTRA.get(suffix, ())))
    with folder() as place:
        source = io.read(io.write(cube, place / f"a{suffix}")[0])
        values = np.array(source.values)
        values.flat[data.draw(st.integers(0, values.size - 1))] = 1
        made = io.write(replace(source, values=values), place / f"b{suffix}")
        assert_same(io.read(made[0]), replace(source, values=values))
        assert_same(source, cube)  # the source is as it was


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_envi_by_hand(data: st.DataObject) -> None:
    """Files as others write them: any interleave, byte order, offset, naming; header untouched."""
    interleave = data.draw(st.sampled_from(["bsq", "bil", "bip"]))
    big, offset = data.draw(st.booleans()), data.draw(st.sampled_from([0, 7, 512]))
    data_name, header_name = data.draw(
        st.sampled_from(
            [("x", "x.hdr"), ("x.img", "x.hdr"), ("x.dat", "x.dat.hdr"), ("x.v1", "x.v1.hdr")]
        )
    )
    dtype = np.dtype(data.draw(st.sampled_from(INTEGERS + FLOATS)))
    shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    values = some_values(shape, dtype.name, 3)
    text = (
        f"ENVI\n; a comment\nsamples = {shape[2]}\nlines   = {shape[1]}\nbands = {shape[0]}\n"
        f"header offset = {offset}\nfile type = ENVI Standard\n"
        f"data type = {envi_header.CODES[dtype.name]}\n"
        f"interleave = {interleave.upper()}\nbyte order = {int(big)}\n"
        "Sensor Mode = {Push broom,\n two}\nreflectance scale factor = 10000\n"
    )
    ordered = values.transpose(envi_header.ORDER[interleave]).astype(dtype.newbyteorder("<>"[big]))
    with folder() as place:
        (place / data_name).write_bytes(b"\7" * offset + ordered.tobytes())
        (place / header_name).write_text(text)
        cube = io.read(place / data.draw(st.sampled_from([data_name, header_name])))
        assert cube.path == place / data_name
        assert cube.format == "envi"
        assert same_values(cube.values, values)
        assert cube.attrs["Sensor Mode"] == ["Push broom", "two"]
        assert not np.asarray(cube.values).flags.writeable
        changed = values.copy()
        changed[-1, 0, 0] = 5
        target = place / data_name.replace("x", "y")
        made = io.write(replace(cube, values=changed), target)
        assert made == [target, place / header_name.replace("x", "y")]
        assert made[1].read_text() == text
        expected = changed.transpose(envi_header.ORDER[interleave]).astype(ordered.dtype)
        assert target.read_bytes() == b"\7" * offset + expected.tobytes()


@pytest.mark.parametrize("through", [".tif", ".npz", ".npy", ".mat"])
def test_unknown_header_keys_survive_other_formats(tmp_path: Path, through: str) -> None:
    attrs = {
        "Flight Line": "7",
        "sensor type": "AVIRIS",
        "default bands": ["3", "2", "1"],
        "description": "first line\nsecond line",
    }
    cube = Cube(np.zeros((3, 2, 2), "int16"), nodata=-9999, attrs=attrs)
    start = io.read(io.write(cube, tmp_path / "a.bil")[0])
    middle = io.read(io.write(start, tmp_path / f"b{through}")[0])
    end = io.read(io.write(middle, tmp_path / "c.bsq")[0])
    assert attrs.items() <= end.attrs.items()
    assert end.attrs["interleave"] == "bsq"
    assert end.nodata == -9999


def test_an_array_from_xarray_is_skipped_silently(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    cube = Cube.from_xarray(xarray.DataArray(np.ones((2, 3, 4)), dims=("band", "y", "x")))
    for suffix in SUFFIXES:
        assert "xarray" not in io.read(io.write(cube, tmp_path / f"{suffix[1:]}{suffix}")[0]).attrs


def test_edited_metadata_are_written(tmp_path: Path) -> None:
    """A copy of the source would bring the old wavelengths back."""
    cube = Cube(np.zeros((2, 3, 3), "uint8"), wavelengths=np.array([1.0, 2.0]), nodata=4)
    for suffix in SUFFIXES:
        path = io.write(cube, tmp_path / f"{suffix[1:]}{suffix}")[0]
        edited = replace(io.read(path), wavelengths=np.array([5.0, 6.0]), nodata=None)
        io.write(edited, path, overwrite=True)
        again = io.read(path)
        assert list(again.wavelengths) == [5, 6]
        assert again.nodata is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_can_be_replaced_by_itself(tmp_path: Path, suffix: str) -> None:
    path = io.write(Cube(np.arange(60, dtype="int16").reshape(3, 4, 5)), tmp_path / f"a{suffix}")[0]
    before = set(tmp_path.iterdir())
    cube = io.read(path)
    io.write(cube, path, overwrite=True)
    assert same_values(io.read(path).values, np.arange(60, dtype="int16").reshape(3, 4, 5))
    assert set(tmp_path.iterdir()) == before


def test_envi_replaced_through_its_header(tmp_path: Path) -> None:
    cube = Cube(np.arange(8, dtype="uint8").reshape(2, 2, 2))
    io.write(cube, tmp_path / "a.bip")
    io.write(io.read(tmp_path / "a.hdr"), tmp_path / "a.hdr", overwrite=True)
    assert {p.name for p in tmp_path.iterdir()} == {"a.bip", "a.hdr"}
    assert same_values(io.read(tmp_path / "a.hdr").values, cube.values)


def test_a_suffix_asks_for_its_interleave(tmp_path: Path) -> None:
    cube = Cube(np.arange(24, dtype="uint8").reshape(2, 3, 4))
    source = io.read(io.write(cube, tmp_path / "a.bil")[0])
    made = io.write(source, tmp_path / "b.bip")
    assert io.read(made[0]).attrs["interleave"] == "bip"
    assert made[0].read_bytes() == cube.values.transpose(1, 2, 0).tobytes()
    assert io.read(io.write(source, tmp_path / "c.img")[0]).attrs["interleave"] == "bil"


def test_a_header_in_latin_1(tmp_path: Path) -> None:
    path = io.write(Cube(np.ones((1, 1, 2), "uint8"), wavelength_units="um"), tmp_path / "a.img")[0]
    header = path.with_suffix(".hdr")
    header.write_bytes(header.read_bytes().replace(b"= um", b"= \xb5m"))
    assert io.read(path).wavelength_units == "µm"


def test_others_read_what_we_write(tmp_path: Path) -> None:
    wavelengths = np.array([450.125, 550.25, 650.5])
    cube = Cube(
        np.arange(36, dtype="float32").reshape(3, 3, 4),
        wavelengths=wavelengths,
        wavelength_units="Nanometers",
        fwhm=wavelengths / 50,
        nodata=-1,
        crs=UTM,
        transform=(30.0, 0.0, 364095.0, 0.0, -30.0, 5809965.0),
    )
    for suffix in (".bil", ".tif"):
        with rasterio.open(io.write(cube, tmp_path / f"a{suffix}")[0]) as dataset:
            assert np.array_equal(dataset.read(), cube.values)
            assert dataset.crs == rasterio.CRS.from_epsg(32633)
            assert tuple(dataset.transform)[:6] == cube.transform
            assert dataset.nodata == -1
            assert [float(dataset.tags(i)["wavelength"]) for i in (1, 2, 3)] == list(wavelengths)
    image = spectral.open_image(str(tmp_path / "a.hdr"))
    assert image.bands.centers == list(wavelengths)
    assert np.array_equal(image.load(), cube.values.transpose(1, 2, 0))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_chunk_blocks_cover_everything_once(data: st.DataObject) -> None:
    sizes = st.tuples(*[st.integers(1, 12)] * 3)
    shape, chunks, budget = data.draw(sizes), data.draw(sizes), data.draw(st.integers(1, 3000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BUDGET", budget)
        found = list(blocks.chunk_blocks(shape, 2, chunks))
    hits = np.zeros(shape, int)
    for block in found:
        hits[block] += 1
        assert block[0].start % chunks[0] == 0 and block[1].start % chunks[1] == 0
        least = 2 * min(chunks[0], shape[0]) * min(chunks[1], shape[1]) * shape[2]
        assert 2 * hits[block].size <= max(budget, least)
    assert (hits == 1).all()


def test_lazy_values_are_read_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat, "V5_LIMIT", 10)
    values = np.arange(4 * 5 * 6, dtype="int32").reshape(4, 5, 6)
    for suffix in SUFFIXES:
        lazy = io.read(io.write(Cube(values), tmp_path / f"{suffix[1:]}{suffix}")[0]).values
        assert np.array_equal(lazy[1:3, 2:4, 5:6], values[1:3, 2:4, 5:6])
        assert np.array_equal(lazy[-1, ..., 2], values[-1, ..., 2])
        assert lazy[0:0].shape == (0, 5, 6)
