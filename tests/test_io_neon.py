"""NEON AOP reflectance: a real subset, and files with the layout of the whole product."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import hydiff
import products
from conftest import DATA
from hydiff import io
from hydiff.cli import app
from hydiff.errors import HydiffError

REAL = DATA / "native" / "neon_sjer_subset.h5"
real = pytest.mark.skipif(not REAL.exists(), reason=f"no NEON file at {REAL}; set HYDIFF_DATA")
SHORTS = (products.scene(12, 20, 18) * 1e4).astype("i2")
CUBE = "SJER/Reflectance/Reflectance_Data"


@real
def test_a_real_file_is_read_as_h5py_reads_it() -> None:
    cube = hydiff.read(REAL)
    with h5py.File(REAL) as file:
        np.testing.assert_array_equal(cube.values, file[CUBE][()].transpose(2, 0, 1))
        spectral = file["SJER/Reflectance/Metadata/Spectral_Data/Wavelength"][()]
        np.testing.assert_array_equal(cube.wavelengths, spectral)
        assert cube.nodata == file[CUBE].attrs["Data_Ignore_Value"][0]
    assert cube.format == "neon" and cube.dtype == np.int32
    assert cube.attrs["reflectance scale factor"] == "10000"
    assert cube.transform == (1, 0, 257000, 0, -1, 4112000)
    assert cube.crs is not None and "UTM zone 11N" in cube.crs
    assert cube.good is None  # the subset has lost the windows of water vapour


@real
def test_a_real_file_is_filled_in_place_of_its_gaps(tmp_path: Path) -> None:
    truth = np.asarray(hydiff.read(REAL).values)
    with h5py.File(REAL) as one, h5py.File(tmp_path / "gaps.h5", "w") as other:
        one.copy("SJER", other)
        other[CUBE][12:14] = -9999
    run = ["fill", str(tmp_path / "gaps.h5"), "-o", str(tmp_path / "filled.h5")]
    done = CliRunner().invoke(app, [*run, "--method", "linear"])
    assert done.exit_code == 0, done.output
    with h5py.File(tmp_path / "filled.h5") as file:
        values = file[CUBE][()].transpose(2, 0, 1)
        flags = (file[f"{CUBE}_hydiff_flags"][()].transpose(2, 0, 1) & 1).astype(bool)
        assert file[CUBE].attrs["Scale_Factor"][0] == 10000
        assert file["SJER/Reflectance/Metadata/Coordinate_System/EPSG Code"][0] == b"32611"
    missing = np.zeros(truth.shape, bool)
    missing[:, 12:14] = True
    np.testing.assert_array_equal(flags, missing)
    assert values[~missing].tobytes() == truth[~missing].tobytes()
    assert not (values == -9999).any()


def test_windows_of_water_vapour_are_bad_bands(tmp_path: Path) -> None:
    cube = hydiff.read(products.neon(tmp_path / "a.h5", SHORTS))
    assert np.flatnonzero(~cube.good_bands).tolist() == [6]
    np.testing.assert_array_equal(cube.fwhm, np.full(12, 5.9))


def test_classes_of_pixels_are_flags(tmp_path: Path) -> None:
    classes = np.full((20, 18), 5)
    classes[3, 4:6], classes[7, 8:11], classes[0, 0], classes[9, 9] = 6, 15, 22, 17
    path = products.neon(tmp_path / "a.h5", SHORTS, classes)
    cube = io.read(path)
    usual = io.read_quality(path, cube.shape)
    assert usual.counts == {"saturated": 2 * 12}
    np.testing.assert_array_equal(usual.observed[0], classes != 6)
    chosen = io.read_quality(path, cube.shape, ["cloud", "cloudshadow"])
    assert chosen.counts == {"cloud": 36, "cloudshadow": 12}
    done = CliRunner().invoke(app, ["info", str(path), "--quality", str(path), "--flags", "water"])
    assert done.exit_code == 0 and "water" in done.output


def test_a_fill_may_be_converted_and_keeps_scale_and_place(tmp_path: Path) -> None:
    path = products.neon(tmp_path / "a.h5", SHORTS)
    done = CliRunner().invoke(app, ["convert", str(path), str(tmp_path / "b.img")])
    assert done.exit_code == 0, done.output
    one, other = io.read(path), io.read(tmp_path / "b.img")
    np.testing.assert_array_equal(one.values, other.values)
    assert other.transform == one.transform
    assert other.attrs["reflectance scale factor"] == "10000"


def changed(name: str, data: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file[name]
            if data is not None:
                file[name] = data

    return spoil


ABOUT = "SJER/Reflectance/Metadata"
SPOILED = {
    "no wavelengths": (changed(f"{ABOUT}/Spectral_Data", None), "Wavelength, found none"),
    "few wavelengths": (changed(f"{ABOUT}/Spectral_Data/Wavelength", np.ones(3)), "3 .*12"),
    "code": (changed(f"{ABOUT}/Coordinate_System/EPSG Code", b"x"), "NEON reflectance"),
    "no code": (changed(f"{ABOUT}/Coordinate_System/EPSG Code", b"999999"), "coordinate ref"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    spoil, message = SPOILED[case]
    path = products.neon(tmp_path / "a.h5", SHORTS)
    spoil(path)
    with pytest.raises(HydiffError, match=message) as raised:
        io.read(path)
    assert "\n" not in str(raised.value)


def test_a_file_without_classes_has_no_quality_layer(tmp_path: Path) -> None:
    path = products.neon(tmp_path / "a.h5", SHORTS)
    changed(f"{ABOUT}/Ancillary_Imagery", None)(path)
    with pytest.raises(HydiffError, match="has no quality layer"):
        io.read_quality(path, (12, 20, 18))
    done = CliRunner().invoke(app, ["info", str(path), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["format"] == "neon"


def test_two_sites_want_a_name(tmp_path: Path) -> None:
    path = products.neon(tmp_path / "a.h5", SHORTS)
    with h5py.File(path, "r+") as file:
        file.copy("SJER", "TEAK")
    with pytest.raises(HydiffError, match=r"found SJER, TEAK; choose one with `var=SJER`"):
        io.read(path)
    with pytest.raises(HydiffError, match=r"unknown site in a\.h5 'SJR': did you mean 'SJER'"):
        io.read(path, var="SJR")
    done = CliRunner().invoke(app, ["info", str(path), "--var", "TEAK", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["bands"] == len(SHORTS)
