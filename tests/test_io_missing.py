"""Missing entries stay missing, and measured ones measured, in formats without masks and rules."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio

import hydiff
import products
from hydiff import io
from hydiff.cube import Array, Cube, Lazy
from hydiff.errors import BadValue
from hydiff.gaps import describe
from hydiff.gaps.rule import suspected
from hydiff.io import transfer
from hydiff.io.blocks import sampled

GAP = np.s_[:, 2:4, 3:6]


def emit(folder: Path) -> Path:
    """Lost frames, corrupt lines and screened clouds have codes of their own."""
    values = products.scene(6, 12, 10).astype("f4")
    values[GAP], values[2, :, 8], values[:, 9] = -9998, -9997, -9990
    return products.emit(folder / "scene.nc", values)


def prisma(folder: Path) -> Path:
    """0 in all bands of a detector is missing; a 0 in one band is a measurement."""
    vnir, swir = (products.scene(n, 12, 10, n) * 6e4 for n in (5, 6))
    vnir[GAP], swir[1, 7, 7] = 0, 0
    return products.prisma(folder / "scene.he5", vnir.astype("u2"), swir.astype("u2"))


def aviris_classic(folder: Path) -> Path:
    values = (products.scene(6, 12, 10) * 1e4).astype("i2")
    values[GAP] = -50
    return products.envi(folder / "f130522t01p00r12rdn_img.img", values)


def masked(folder: Path) -> Path:
    """The values below the mask are those of any pixel."""
    values = (products.scene(6, 12, 10) * 250).astype("u1")
    values[0, 0, :2] = 0, 255
    path = products.geotiff(folder / "scene.tif", values)
    mask = np.full(values.shape[1:], 255, "u1")
    mask[GAP[1:]] = 0
    with rasterio.open(path, "r+") as dataset:
        dataset.write_mask(mask)
    return path


@pytest.mark.parametrize("target", ["tif", "bsq", "npz", "mat", "zarr"])
@pytest.mark.parametrize("make", [emit, prisma, aviris_classic, masked])
def test_missing_entries_stay_missing_in_another_format(make, target, tmp_path: Path) -> None:
    cube = hydiff.read(make(tmp_path))
    written = hydiff.read(io.write(cube, tmp_path / f"other.{target}", overwrite=True)[0])
    if written.format == cube.format:
        pytest.skip("a copy of its source")
    np.testing.assert_array_equal(written.observed(), cube.observed())
    observed = cube.observed()
    np.testing.assert_array_equal(
        np.asarray(written.values)[observed], np.asarray(cube.values)[observed]
    )


def test_missing_entries_of_a_map_are_empty(tmp_path: Path) -> None:
    made = transfer.convert(emit(tmp_path), tmp_path / "map.tif", ortho=True)[0]
    values = np.asarray(hydiff.read(made).values)
    assert set(values[values < 0]) == {-9999}


def test_a_cube_without_a_free_value_is_refused(tmp_path: Path) -> None:
    values = np.tile(np.arange(256, dtype="u1"), (2, 2, 1))
    valid = np.ones(values.shape[1:], bool)
    valid[0, 0] = False
    with pytest.raises(BadValue, match=r"name the output \.tif"):
        io.write(Cube(values, valid=valid), tmp_path / "full.bsq")
    assert not list(tmp_path.iterdir())


def test_a_sample_is_searched_in_threads_with_the_same_result() -> None:
    """Chunks of a compressed file take long to read, so several are read at a time."""
    values = np.random.default_rng(0).integers(1, 3000, (12, 1024, 3072)).astype(np.int16)
    values[:, ::7, ::5] = -9999
    readers = set()

    def read(*block: slice) -> Array:
        readers.add(threading.get_ident())
        return values[block]

    stored = Cube(Lazy(values.shape, values.dtype, read, chunks=(1, 256, 256)))
    assert len(sampled(stored)[0]) > 1
    readers.clear()
    (found,) = suspected(stored)
    assert "-9999" in found and threading.get_ident() not in readers
    small = Cube(
        np.concatenate([values[place].ravel() for place in sampled(stored)[0]]).reshape(4, 64, -1)
    )
    (whole,) = suspected(small)
    assert found.split(" % of ")[0] == whole.split(" % of ")[0]
    readers.clear()
    seen, alike = (describe.look(replace(cube, nodata=-9999)) for cube in (stored, small))
    assert threading.get_ident() not in readers and seen.pop("sample") and not alike.pop("sample")
    assert seen == alike and seen["missing_share"] == np.mean(np.asarray(small.values) == -9999)
