"""Masks in files: the meaning is checked, axes are found, bits are packed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from command import run
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import (
    BadValue,
    CubeFormatError,
    OutputError,
    ShapeMismatch,
    UnknownName,
)

SHAPE = (11, 6, 8)
rng = np.random.default_rng(0)
FLAT = rng.random(SHAPE[1:]) > 0.3
DEEP = rng.random(SHAPE) > 0.3


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_what_is_written_is_read_again(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5)))
    deep = data.draw(st.booleans())
    mask = np.random.default_rng(data.draw(st.integers(0, 9))).random(shape) > 0.5
    mask = mask if deep else mask[0]
    meaning = data.draw(st.sampled_from(["observed", "missing"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("m" + data.draw(st.sampled_from([".npz", ".npy"])))
        assert io.write_mask(mask, path, meaning) == [path]
        observed = io.read_mask(path, meaning, shape)
    assert observed.dtype == bool
    expected = mask if meaning == "observed" else ~mask
    assert np.array_equal(np.broadcast_to(observed, shape), np.broadcast_to(expected, shape))
    if not (deep and shape[0] == 1):
        assert observed.shape == mask.shape


def test_a_packed_mask_is_small(tmp_path: Path) -> None:
    mask = np.zeros((200, 100, 100), bool)
    mask[:, 20:30] = True
    path = io.write_mask(mask, tmp_path / "m.npz", "missing")[0]
    assert path.stat().st_size < 5000
    with np.load(path) as arrays:
        assert arrays["missing"].shape == (25, 100, 100)
        assert arrays["bands"] == 200


@pytest.mark.parametrize("mask", [FLAT, DEEP], ids=["2-D", "3-D"])
@pytest.mark.parametrize("suffix", [".tif", ".img", ".npy", ".npz", ".mat"])
def test_any_raster_is_a_mask(tmp_path: Path, mask: np.ndarray, suffix: str) -> None:
    cube = Cube((mask if mask.ndim == 3 else mask[None]).astype("uint8"))
    path = io.write(cube, tmp_path / f"m{suffix}")[0]
    assert np.array_equal(io.read_mask(path, "observed", SHAPE), mask)
    assert np.array_equal(io.read_mask(path, "missing", SHAPE), ~mask)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
@pytest.mark.parametrize("shape", [(11, 6, 8), (6, 6, 8), (8, 6, 8), (11, 6, 6), (11, 1, 6)])
def test_the_shape_of_the_cube_tells_the_axes(tmp_path: Path, shape, order) -> None:
    mask = rng.random(shape) > 0.5
    np.save(tmp_path / "m.npy", mask.transpose(order))
    np.savez(tmp_path / "m.npz", observed=mask.transpose(order))
    for name in ("m.npy", "m.npz"):
        assert np.array_equal(io.read_mask(tmp_path / name, "observed", shape), mask)


def test_axes_of_length_one_are_dropped(tmp_path: Path) -> None:
    savemat(tmp_path / "m.mat", {"msk": FLAT[None, None].astype(float)})
    np.save(tmp_path / "m.npy", FLAT[..., None])
    for name in ("m.mat", "m.npy"):
        assert np.array_equal(io.read_mask(tmp_path / name, "observed", SHAPE), FLAT)


def test_one_of_several_variables(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", one=FLAT, two=~FLAT)
    with pytest.raises(CubeFormatError, match=r"one \(6, 8\), two \(6, 8\); name one as .*:one"):
        io.read_mask(tmp_path / "m.npz", "observed", SHAPE)
    assert np.array_equal(io.read_mask(tmp_path / "m.npz", "observed", SHAPE, var="two"), ~FLAT)
    np.savez(tmp_path / "b.npz", observed=FLAT, missing=~FLAT)
    assert np.array_equal(io.read_mask(tmp_path / "b.npz", "missing", SHAPE), FLAT)


@pytest.mark.parametrize("mask", [FLAT, DEEP], ids=["2-D", "3-D"])
def test_the_file_says_the_opposite(tmp_path: Path, mask: np.ndarray) -> None:
    path = io.write_mask(mask, tmp_path / "m.npz", "missing")[0]
    with pytest.raises(BadValue, match=r"m\.npz holds `missing`; use `missing='.*m\.npz'`"):
        io.read_mask(path, "observed", SHAPE)
    with pytest.raises(BadValue, match="use `missing="):
        io.read_mask(path, "observed", SHAPE, var="missing")
    savemat(tmp_path / "m.mat", {"observed": FLAT})
    with pytest.raises(BadValue, match="use `observed="):
        io.read_mask(tmp_path / "m.mat", "missing", SHAPE)


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_masks_of_gdal_hold_0_and_255(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "m.npy", FLAT.astype(dtype) * 255)
    assert np.array_equal(io.read_mask(tmp_path / "m.npy", "observed", SHAPE), FLAT)


@pytest.mark.parametrize("value", [2, 255, -1, np.nan, 0.5])
def test_values_other_than_0_and_1(tmp_path: Path, value: float) -> None:
    mask = FLAT.astype(float)
    mask[0, 0] = value
    np.save(tmp_path / "m.npy", mask)
    with pytest.raises(BadValue, match=f"0 and 1 only, found .*{value:g}"):
        io.read_mask(tmp_path / "m.npy", "observed", SHAPE)


def test_wrong_shapes(tmp_path: Path) -> None:
    np.save(tmp_path / "turned.npy", FLAT.T)
    with pytest.raises(ShapeMismatch, match=r"\(8, 6\).*\(11, 6, 8\).*transpose it"):
        io.read_mask(tmp_path / "turned.npy", "observed", SHAPE)
    np.save(tmp_path / "other.npy", FLAT[:5])
    with pytest.raises(ShapeMismatch, match=r"\(5, 8\).*\(11, 6, 8\)") as caught:
        io.read_mask(tmp_path / "other.npy", "observed", SHAPE)
    assert "transpose" not in str(caught.value)
    deep = io.write_mask(DEEP[:9], tmp_path / "deep.npz", "observed")[0]
    with pytest.raises(ShapeMismatch, match=r"\(9, 6, 8\).*\(11, 6, 8\)"):
        io.read_mask(deep, "observed", SHAPE)
    turned = io.write_mask(DEEP.transpose(0, 2, 1), tmp_path / "t.npz", "observed")[0]
    with pytest.raises(ShapeMismatch, match="transpose it"):
        io.read_mask(turned, "observed", SHAPE)


def test_bad_calls_and_files(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="`observed` or `missing`, not 'bad'"):
        io.read_mask(tmp_path / "m.npy", "bad", SHAPE)
    with pytest.raises(CubeFormatError, match="no such file"):
        io.read_mask(tmp_path / "m.npy", "observed", SHAPE)
    with pytest.raises(UnknownName, match=r"'\.tif'.*known: \.npy, \.npz"):
        io.write_mask(FLAT, tmp_path / "m.tif", "observed")
    with pytest.raises(BadValue, match="boolean mask, found uint8"):
        io.write_mask(FLAT.astype("uint8"), tmp_path / "m.npz", "observed")
    np.savez(tmp_path / "m.npz", observed=FLAT.astype("uint8"), bands=np.array(11))
    with pytest.raises(CubeFormatError, match="packed to bits"):
        io.read_mask(tmp_path / "m.npz", "observed", SHAPE)
    with pytest.raises(OutputError, match="`overwrite=True`"):
        io.write_mask(FLAT, tmp_path / "m.npz", "observed")
    io.write_mask(FLAT, tmp_path / "m.npz", "observed", overwrite=True)
    assert np.array_equal(io.read_mask(tmp_path / "m.npz", "observed", SHAPE), FLAT)


@pytest.mark.parametrize("observed", [FLAT, DEEP], ids=["shared", "by band"])
def test_a_mask_as_geotiff_lies_where_the_cube_does(tmp_path: Path, observed: np.ndarray) -> None:
    values = np.where(observed, rng.random(SHAPE), np.nan).astype(np.float32)
    place = (20.0, 0.0, 5e5, 0.0, -20.0, 4.5e6)
    io.write(Cube(values, transform=place, crs="EPSG:32616"), tmp_path / "a.tif")
    done = run("mask", "a.tif", "-o", "m.tif", "--only", "dead lines", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with rasterio.open(tmp_path / "m.tif") as mask, rasterio.open(tmp_path / "a.tif") as cube:
        assert (mask.transform, mask.crs) == (cube.transform, cube.crs)
        np.testing.assert_array_equal(mask.read().squeeze().astype(bool), ~observed)
    again = io.read_mask(tmp_path / "m.tif", "missing", SHAPE)
    np.testing.assert_array_equal(np.broadcast_to(again, SHAPE), np.broadcast_to(observed, SHAPE))
