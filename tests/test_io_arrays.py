"""Bare arrays (npy, npz, mat): axes, sidecars, and everything else in the file."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat, savemat, whosmat

from command import run
from hydiff import io
from hydiff.cube import Cube
from hydiff.io import axes as ax
from hydiff.io import mat, npz
from hydiff.io.headers import notes
from test_io import assert_same, same_values, some_values


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 6, 7), ("rows", "cols", "bands")),
        ((9, 6, 6), ("bands", "rows", "cols")),
        ((6, 9, 6), ("rows", "bands", "cols")),
        ((6, 6, 9), ("rows", "cols", "bands")),
        ((6, 6, 6), ("rows", "cols", "bands")),
        ((1, 9, 6, 6), ("-", "bands", "rows", "cols")),
        ((1, 1, 6, 7), ("-", "-", "rows", "cols")),
        ((6, 7, 1), ("rows", "cols", "-")),
        ((6, 7), ("rows", "cols")),
        ((1, 1, 5), ("rows", "cols", "bands")),
    ],
)
def test_the_rule_for_axes(shape: tuple[int, ...], expected: tuple[str, ...]) -> None:
    assert ax.resolve(shape, None, Path("x")) == expected


@pytest.mark.parametrize(
    ("shape", "expected", "guess"),
    [
        ((5, 6, 7), "bands,rows,cols", False),
        ((6, 5, 7), "rows,bands,cols", False),
        ((6, 7, 5), "rows,cols,bands", False),
        ((5, 7, 5), "rows,cols,bands", True),
        ((5, 7, 7), "bands,rows,cols", False),
        ((8, 6, 7), "rows,cols,bands", True),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_five_wavelengths_tell_the_axis_of_the_bands(
    tmp_path: Path, suffix: str, shape: tuple[int, ...], expected: str, guess: bool
) -> None:
    path, arrays = tmp_path / f"a{suffix}", {"data": np.zeros(shape), "wavelengths": np.arange(5.0)}
    if suffix == ".mat":
        savemat(path, arrays)
    else:
        np.savez(path, **arrays)
    cube = io.read(path)
    assert cube.attrs["array"]["axes"] == expected
    assert ("axes" in notes(cube.attrs)) == guess


def test_wavelengths_of_a_sidecar_tell_the_axis_of_the_bands(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 6, 7)))
    (tmp_path / "a.npy.json").write_text('{"wavelengths": [1, 2, 3, 4, 5]}')
    assert io.read(tmp_path / "a.npy").shape == (5, 6, 7)


@given(st.permutations(["bands", "rows", "cols", "-"]), st.tuples(*[st.integers(1, 4)] * 3))
def test_stored_order_and_back(axes: list[str], shape: tuple[int, int, int]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    stored = ax.as_stored(values, tuple(axes))
    assert np.shares_memory(stored, values)
    assert stored.shape == ax.stored_shape(shape, tuple(axes))
    assert np.array_equal(ax.as_cube(stored, tuple(axes)), values)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
def test_a_sidecar_declares_axes_and_keeps_foreign_keys(tmp_path: Path, suffix: str) -> None:
    stored = np.arange(60, dtype="int16").reshape(3, 4, 5)
    path = tmp_path / f"a{suffix}"
    if suffix == ".mat":
        savemat(path, {"data": stored})
    elif suffix == ".npz":
        npz.save_archive(path, {"data": stored, "file": np.ones(2)})
    else:
        np.save(path, stored)
    side = {"axes": "bands,rows,cols", "nodata": -5, "laboratory": {"name": "x"}}
    (tmp_path / f"a{suffix}.json").write_text(json.dumps(side))
    cube = io.read(path)
    assert np.array_equal(np.asarray(cube.values), stored)
    assert cube.nodata == -5
    copy = io.write(replace(cube, values=np.asarray(cube.values) + 1), tmp_path / f"b{suffix}")
    assert json.loads(copy[1].read_text()) == side
    scratch = io.read(io.write(replace(cube, nodata=3), tmp_path / f"c{suffix}")[0])
    assert scratch.attrs["sidecar"] == {"laboratory": {"name": "x"}}
    assert scratch.attrs["array"]["axes"] == "bands,rows,cols"
    assert scratch.nodata == 3


def test_npz_copy_keeps_other_arrays_and_order(tmp_path: Path) -> None:
    stored = np.asfortranarray(np.arange(60, dtype=">f4").reshape(5, 4, 3))
    arrays = {"cube": stored, "wavelength_nm": np.arange(1, 4), "file": np.array("text")}
    npz.save_archive(tmp_path / "a.npz", arrays)
    cube = io.read(tmp_path / "a.npz")
    assert list(cube.wavelengths) == [1, 2, 3]
    assert cube.wavelength_units == "Nanometers"
    made = io.write(replace(cube, values=-np.asarray(cube.values, "f4")), tmp_path / "b.npz")
    with np.load(made[0]) as again:
        assert np.array_equal(again["cube"], -stored)
        assert again["cube"].dtype == stored.dtype
        assert again["cube"].flags.f_contiguous
        assert again["file"] == "text"
    assert not list(tmp_path.glob(".hydiff-*"))


@pytest.mark.parametrize("dtype", ["float32", "bool", "uint16"])
def test_mat_above_the_limit_of_version_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(mat, "V5_LIMIT", 10)
    cube = Cube(
        some_values((3, 4, 5), dtype, 1),
        wavelengths=np.array([1.0, 2.0, 3.0]),
        wavelength_units="µm",
        band_names=("a", "b", "ü"),
        attrs={"Key": "value"},
    )
    path = io.write(cube, tmp_path / "a.mat")[0]
    assert path.read_bytes()[:19] == b"MATLAB 7.3 MAT-file"
    assert path.read_bytes()[124:128] == b"\x00\x02IM"
    assert_same(io.read(path), cube)
    values = ~np.asarray(cube.values) if dtype == "bool" else np.asarray(cube.values) * 2
    copy = io.write(replace(io.read(path), values=values), tmp_path / "b.mat")[0]
    assert same_values(io.read(copy).values, values)


def test_mat_5_copy_keeps_variables_of_every_kind(tmp_path: Path) -> None:
    others = {
        "text": "hello",
        "words": np.array(["x", "yy"], dtype=object),
        "wave": np.array([[1 + 2j, 3]]),
        "bytes": np.arange(3, dtype="uint8"),
        "box": {"field": np.ones((2, 2)), "name": "abc"},
        "flags": np.array([[True, False]]),
    }
    savemat(tmp_path / "a.mat", {"data": np.arange(24.0).reshape(2, 3, 4), **others})
    cube = io.read(tmp_path / "a.mat")
    made = io.write(replace(cube, values=np.asarray(cube.values) + 1), tmp_path / "b.mat")
    before, after = loadmat(tmp_path / "a.mat"), loadmat(made[0])
    assert np.array_equal(after["data"], before["data"] + 1)
    assert whosmat(made[0]) == whosmat(tmp_path / "a.mat")
    for name in others:
        assert str(after[name]) == str(before[name])


@pytest.mark.parametrize("suffix", [".mat", ".npz", ".npy"])
def test_equal_cubes_give_equal_files_whenever_they_are_written(suffix, tmp_path):
    cube = Cube(np.arange(24.0).reshape(2, 3, 4))
    one, two, three = (tmp_path / f"{name}{suffix}" for name in ("one", "two", "three"))
    io.write(cube, one)
    time.sleep(2.1)  # a MATLAB title would hold the second, a zip archive every other one
    io.write(cube, two)
    io.write(io.read(one), three)
    assert one.read_bytes() == two.read_bytes() == three.read_bytes()


@pytest.mark.parametrize("tile", [(), ("--tile=8",)])
def test_a_fill_warns_where_only_habit_says_which_axis_is_which(
    tile: tuple[str, ...], tmp_path: Path
) -> None:
    """An array of deep learning has its bands first; the file does not say so."""
    values = np.random.default_rng(0).random((5, 9, 12), np.float32)
    values[:, 4, 4] = np.nan
    np.save(tmp_path / "x.npy", values)
    options = ("-o", tmp_path / "y.npy", "--method=linear", "--unmarked", "--overwrite", *tile)
    guessed = run("fill", tmp_path / "x.npy", *options)
    assert "warning: axes not given, and taken as rows, cols, bands" in guessed.stderr
    (tmp_path / "x.npy.json").write_text('{"axes": "bands,rows,cols"}')
    stated = run("fill", tmp_path / "x.npy", *options)
    assert guessed.returncode == stated.returncode == 0
    assert "axes" not in stated.stderr
