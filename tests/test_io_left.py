"""What a fill leaves missing is missing in its file too, also where the source does not say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
import spectral
import xarray

import hydiff
import products
from command import run
from hydiff import io
from hydiff.cube import Array, Cube
from hydiff.gaps.simulate import simulate

GAP, EDGE = np.s_[:, 4:6, 5:8], np.s_[:, :, :2]  # the first is filled, the second is left


def damaged(value: float = -9999.0, dtype: str = "f4") -> Array:
    """(bands, rows, cols) of a scene with a gap inside and one along its edge."""
    values = (1000 * products.scene(6, 12, 14)).astype(dtype)
    values[GAP] = values[EDGE] = value
    return values


def left_in(path: Path) -> Array:
    """The missing entries of a file, by what it says itself."""
    return ~io.read(path).observed()


@pytest.mark.parametrize("dtype", ["i2", "f4"])
@pytest.mark.parametrize("suffix", [".img", ".tif", ".npy", ".npz", ".mat", ".zarr"])
def test_the_users_nodata_is_declared_for_what_is_left(
    suffix: str, dtype: str, tmp_path: Path
) -> None:
    values = damaged(dtype=dtype)
    source, output = tmp_path / f"x{suffix}", tmp_path / f"y{suffix}"
    io.write(Cube(values), source)
    assert not left_in(source).any()
    ended = run("fill", source, "-o", output, "--method=harmonic", "--nodata=-9999", "--unmarked")
    assert ended.returncode == 0, ended.stderr
    np.testing.assert_array_equal(left_in(output)[EDGE], True)
    assert left_in(output).sum() == values[EDGE].size
    np.testing.assert_array_equal(np.asarray(io.read(output).values)[EDGE], -9999)
    again = run("fill", output, "-o", tmp_path / f"z{suffix}", "--method=harmonic", "--unmarked")
    np.testing.assert_array_equal(left_in(tmp_path / f"z{suffix}"), left_in(output))
    assert again.returncode == 0, again.stderr


def test_other_programs_read_the_declared_value(tmp_path: Path) -> None:
    for suffix in (".img", ".tif", ".zarr"):
        io.write(Cube(damaged(dtype="i2")), tmp_path / f"x{suffix}")
        result = hydiff.fill(
            tmp_path / f"x{suffix}", method="harmonic", nodata=-9999, outside="keep"
        )
        result.save(tmp_path / f"y{suffix}")
    header = spectral.envi.read_envi_header(str(tmp_path / "y.hdr"))
    assert header["data ignore value"] == "-9999"
    with rasterio.open(tmp_path / "y.tif") as dataset:
        assert dataset.nodata == -9999
        assert not dataset.read_masks(1)[EDGE[1:]].any()
    with xarray.open_zarr(tmp_path / "y.zarr", consolidated=False) as store:
        assert store["cube"].isnull().sum() == damaged()[EDGE].size


def test_so_does_a_dataarray() -> None:
    array = xarray.DataArray(damaged(), dims=("band", "y", "x"))
    filled = hydiff.fill(array, method="harmonic", nodata=-9999, outside="keep").cube
    again = Cube.from_xarray(filled.to_xarray())
    np.testing.assert_array_equal(~again.observed(), edge())
    assert "missing_value" not in hydiff.fill(array, method="harmonic").cube.to_xarray().attrs


def test_a_dataarray_from_a_file_can_be_written_and_read_again(tmp_path: Path) -> None:
    plain = xarray.DataArray(damaged(), dims=("band", "y", "x"), name="r")
    plain.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    opened = xarray.open_dataarray(tmp_path / "x.nc", engine="h5netcdf").load()
    filled = hydiff.fill(opened, method="harmonic", nodata=-9999, outside="keep").cube.to_xarray()
    filled.to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    again = xarray.open_dataset(tmp_path / "y.nc", engine="h5netcdf")["r"]
    np.testing.assert_array_equal(again.isnull(), edge())


def test_tiles_declare_it_too(tmp_path: Path) -> None:
    source, output = products.envi(tmp_path / "x.img", damaged()), tmp_path / "y.img"
    run("fill", source, "-o", output, "--method=harmonic", "--nodata=-9999", "--tile=8")
    assert left_in(output).sum() == damaged()[EDGE].size


def test_without_anything_to_say_the_header_stays(tmp_path: Path) -> None:
    source = products.envi(tmp_path / "x.img", damaged(), **{"data ignore value": "-9999"})
    hydiff.fill(source, method="harmonic").save(tmp_path / "y.img")
    before, after = ((tmp_path / name).read_text() for name in ("x.img.hdr", "y.img.hdr"))
    assert after.count("data ignore value") == 1
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []


@pytest.mark.parametrize(
    ("values", "declared", "nodata"),
    [
        (damaged(), 0.0, [-9999]),  # the file declares another value
        (np.where(damaged() == -9999, -50, damaged()), None, [-50, -9999]),  # two values
        (damaged(0.0), None, [0]),  # and a measured 0 below
    ],
)
def test_a_note_says_which_value_the_file_cannot_declare(
    values: Array, declared: float | None, nodata: list[float]
) -> None:
    values = values.copy()
    values[2, 9, 9], values[3, 9, 9] = 0, -9999 if len(nodata) > 1 else 1
    result = hydiff.fill(
        Cube(values, nodata=declared), method="harmonic", nodata=nodata, outside="keep"
    )
    assert result.left
    assert result.cube.nodata == declared
    assert any("give `nodata=` again" in note for note in result.notes)


def test_no_note_where_nothing_is_left() -> None:
    result = hydiff.fill(Cube(damaged()), method="harmonic", nodata=-9999, outside="fill")
    assert not result.left
    assert not any("again" in note for note in result.notes)


@pytest.mark.parametrize("suffix", [".img", ".tif", ".npz", ".mat", ".zarr"])
def test_nan_is_missing_anyway_and_declares_nothing(suffix: str, tmp_path: Path) -> None:
    """Strict JSON, as in a Zarr store, has no NaN."""
    source, output = tmp_path / f"x{suffix}", tmp_path / f"y{suffix}"
    io.write(Cube(damaged(np.nan)), source)
    stated = io.read(source).nodata
    hydiff.fill(source, method="harmonic", nodata=np.nan, outside="keep").save(output)
    np.testing.assert_array_equal(left_in(output), edge())
    assert io.read(output).nodata is stated is None
    if suffix == ".zarr":
        assert "missing_value" not in (output / "cube" / "zarr.json").read_text()


def test_a_sensor_that_the_header_names_in_other_letters_is_not_named_again(tmp_path: Path) -> None:
    source = products.envi(tmp_path / "x.img", damaged(0, "i2"), **{"sensor type": "HYPERION"})
    hydiff.fill(source, method="harmonic", outside="keep").save(tmp_path / "y.img")
    assert "sensor type = HYPERION\n" in (tmp_path / "y.img.hdr").read_text()
    np.testing.assert_array_equal(left_in(tmp_path / "y.img"), edge())


@pytest.mark.parametrize("stated", ["", "sensor type = Unknown\n"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("f130522t01p00r12rdn", -50),
        ("ang20160910t185702_rdn", -9999),
        ("EO1H0440342016184110K0_L1R", 0),
    ],
)
def test_a_sensors_convention_holds_under_another_name(
    name: str, value: float, stated: str, tmp_path: Path
) -> None:
    values = damaged(value, "i2")
    for suffix in (".img", ".tif"):
        write = products.envi if suffix == ".img" else products.geotiff
        source = write(tmp_path / f"{name}{suffix}", values)
        if suffix == ".img" and stated:
            header = tmp_path / f"{source.name}.hdr"
            header.write_text(header.read_text() + stated)
        output = tmp_path / f"y{suffix}"
        hydiff.fill(source, method="harmonic", outside="keep").save(output, overwrite=True)
        np.testing.assert_array_equal(left_in(output), edge())


def edge() -> Array:
    """True along the edge that is left."""
    there = np.zeros(damaged().shape, bool)
    there[EDGE] = True
    return there


def test_simulated_damage_keeps_what_the_user_says_is_missing() -> None:
    cube, kept = simulate(Cube(damaged()), "stripes", nodata=-9999)
    missing = (damaged() == -9999) | ~np.broadcast_to(kept, damaged().shape)
    np.testing.assert_array_equal(~cube.observed(), missing)


def test_a_value_that_the_caller_adds_is_declared_in_a_copy(tmp_path: Path) -> None:
    source = products.geotiff(tmp_path / "x.tif", damaged())
    io.write(replace(io.read(source), nodata=-9999.0), tmp_path / "y.tif")
    assert left_in(tmp_path / "y.tif").sum() == (damaged() == -9999).sum()
