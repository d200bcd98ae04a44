"""What `hydiff convert` keeps from format to format, and what the target cannot hold."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest
import rasterio

import products
from command import run
from hydiff import io
from hydiff.cube import Cube
from hydiff.io.headers import carried, unit
from hydiff.io.variables import text_of
from hydiff.reference.facts import date_of

TARGETS = (".img", ".tif", ".zarr", ".npz", ".npy", ".mat")
WAVES, UNIT = np.linspace(400.0, 900.0, 4), "uW/cm2/sr/nm"
FULL = Cube(
    products.scene(4, 8, 9).astype(np.int16),
    wavelengths=WAVES,
    wavelength_units="Nanometers",
    fwhm=np.full(4, 5.5),
    good=np.array([True, True, False, True]),
    nodata=-9999.0,
    crs="EPSG:32633",
    transform=(30.0, 0.0, 4e5, 0.0, -30.0, 5e6),
    band_names=("a", "b", "c", "d"),
    attrs={"description": "a test", "acquisition time": "2020-05-06T07:08:09Z", "units": UNIT},
)


def convert(source: Path, target: Path) -> Cube:
    assert run("convert", source, target).returncode == 0
    return io.read(target)


def check_full(cube: Cube) -> None:
    np.testing.assert_allclose(cube.wavelengths, WAVES)
    assert (cube.wavelength_units, cube.nodata) == ("Nanometers", -9999)
    np.testing.assert_array_equal(cube.fwhm, FULL.fwhm)
    np.testing.assert_array_equal(cube.good, FULL.good)
    assert cube.crs is not None and "33" in cube.crs
    assert cube.transform == FULL.transform and cube.band_names == FULL.band_names
    kept = carried(cube.attrs)
    assert "".join(kept["description"]) == "a test"
    assert unit(cube.attrs) == UNIT and date_of(cube) == date(2020, 5, 6)


@pytest.mark.parametrize("first", TARGETS)
def test_metadata_survive_every_pair_of_formats(tmp_path: Path, first: str) -> None:
    source = io.write(FULL, tmp_path / f"source{first}")[0]
    check_full(io.read(source))
    for second in TARGETS:
        check_full(convert(source, tmp_path / f"other{second}"))


def test_units_of_netcdf_products_and_of_their_wavelengths_survive(tmp_path: Path) -> None:
    scene = products.scene(4, 8, 9)
    emit = products.emit(tmp_path / "emit.nc", scene)
    aviris = products.aviris(tmp_path / "aviris.nc", scene)
    for source, expected in ((emit, "unitless"), (aviris, UNIT)):
        if source == aviris:
            set_unit(aviris, UNIT)
        for suffix in TARGETS:
            cube = convert(source, tmp_path / f"{source.stem}{suffix}")
            assert (unit(cube.attrs), cube.wavelength_units) == (expected, "nm")
        with rasterio.open(tmp_path / f"{source.stem}.tif") as dataset:
            assert set(dataset.units) == {expected}  # where GDAL shows it


def set_unit(path: Path, text: str) -> None:
    import h5py

    with h5py.File(path, "a") as file:
        file["radiance/radiance"].attrs["units"] = text


def test_unit_date_and_tags_of_a_geotiff_survive(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    shape = {"count": 3, "width": 10, "height": 9}
    with rasterio.open(path, "w", driver="GTiff", dtype="int16", nodata=-9, **shape) as dataset:
        dataset.write(np.arange(270, dtype=np.int16).reshape(3, 9, 10))
        dataset.update_tags(TIFFTAG_DATETIME="2020:05:06 07:08:09", SENSOR="X")
        dataset.units = ["W"] * 3
    assert date_of(io.read(path)) == date(2020, 5, 6)
    for suffix in TARGETS:
        other = tmp_path / f"b{suffix}"
        cube = convert(path, other)
        assert (unit(cube.attrs), date_of(cube)) == ("W", date(2020, 5, 6))
        assert carried(cube.attrs)["SENSOR"] == "X"
        back = convert(other, tmp_path / f"back{suffix}.tif")
        assert back.attrs["geotiff"]["units"] == ["W"] * 3


@pytest.mark.parametrize("version", [2, 3])
def test_scalar_coordinates_of_a_store_survive(tmp_path: Path, version: int) -> None:
    xr = pytest.importorskip("xarray")
    coords = {"time": np.datetime64("2024-07-01T10:30", "ns"), "sun": 30.5, "spatial_ref": 0}
    array = xr.DataArray(
        products.scene(4, 8, 9), dims=("band", "y", "x"), name="r", coords=coords
    ).copy()
    array[:, 2, 3] = np.nan
    array.to_dataset().to_zarr(tmp_path / "a.zarr", zarr_format=version, consolidated=False)
    cube = io.read(tmp_path / "a.zarr")
    assert "spatial_ref" not in cube.attrs
    targets = [convert(tmp_path / "a.zarr", tmp_path / f"b{end}") for end in TARGETS]
    fill = ("fill", tmp_path / "a.zarr", "-o", tmp_path / "f.tif", "--method", "smooth")
    assert run(*fill).returncode == 0
    for found in (cube, *targets, io.read(tmp_path / "f.tif")):
        kept = carried(found.attrs)
        assert str(kept["time"]).startswith("2024-07-01T10:30") and kept["sun"] == "30.5"
        assert date_of(found) == date(2024, 7, 1)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (np.int64(36), "hours since 2024-07-01 00:00:00", "2024-07-02T12:00:00.000000"),
        (np.float64(0.5), "days since 2024-07-01", "2024-07-01T12:00:00.000000"),
        (np.int64(7), "days since the flood", "7"),
        (np.int64(7), "days since 2024-99-01", "7 days since 2024-99-01"),
        (np.float64(np.nan), "days since 2024-07-01", "nan"),
        (np.str_("L2A"), "", "L2A"),
        (np.datetime64("2024-07-01"), "", "2024-07-01"),
        (np.complex128(1), "", None),
    ],
)
def test_a_scalar_as_text(value: np.generic, unit: str, text: str | None) -> None:
    assert text_of(np.asarray(value), {"units": unit}) == text


def test_an_attribute_named_like_an_entry_of_ours_is_kept_under_another_name(
    tmp_path: Path,
) -> None:
    pytest.importorskip("zarr")
    xr = pytest.importorskip("xarray")
    array = xr.DataArray(np.ones((3, 6, 7), np.float32), dims=("band", "y", "x"), name="refl")
    named = array.assign_attrs(geotiff="text").assign_coords(xarray=5.0).to_dataset()
    named.to_zarr(tmp_path / "a.zarr", zarr_format=2)
    cube = io.read(tmp_path / "a.zarr")
    assert cube.attrs["geotiff_"] == "text" and "geotiff" not in cube.attrs
    io.write(cube, tmp_path / "b.bsq")
    assert np.array_equal(io.read(tmp_path / "b.bsq").values, array)


@pytest.mark.parametrize("suffix", [".img", ".tif", ".npz"])
@pytest.mark.parametrize("command", ["convert", "simulate"])
def test_flags_of_an_earlier_fill_go_with_it(tmp_path: Path, command: str, suffix: str) -> None:
    """They would be taken for those of the cube that replaces it."""
    values = (1000 * products.scene(4, 12, 14)).astype("f4")
    whole, gaps = products.geotiff(tmp_path / "whole.tif", values), values.copy()
    gaps[:, 4:7, 5:8] = np.nan
    damaged = products.geotiff(tmp_path / "damaged.tif", gaps)
    output = tmp_path / f"out{suffix}"
    fill = ("--method=smooth", "--set=error_bars=true", "--report")
    assert run("fill", damaged, "-o", output, *fill).returncode == 0
    assert (tmp_path / f"{output.name}.fill.json").exists()
    words = (
        ("convert", whole, output) if command == "convert" else ("simulate", whole, "-o", output)
    )
    assert run(*words).returncode == 2
    assert run(*words, "--overwrite").returncode == 0
    kept = {"whole.tif", "damaged.tif", output.name, "out.hdr", f"{output.name}.json"}
    assert {path.name for path in tmp_path.iterdir()} <= kept | {f"{output.name}.missing.npz"}


def test_a_copy_in_place_keeps_its_flags(tmp_path: Path) -> None:
    values = (1000 * products.scene(4, 12, 14)).astype("f4")
    values[:, 4:7, 5:8] = np.nan
    run(
        "fill",
        products.geotiff(tmp_path / "x.tif", values),
        "-o",
        tmp_path / "y.tif",
        "--method=smooth",
    )
    assert run("convert", tmp_path / "y.tif", tmp_path / "y.tif", "--overwrite").returncode == 0
    assert (tmp_path / "y.tif.flags.tif").exists() and (tmp_path / "y.tif.fill.json").exists()


@pytest.mark.parametrize("suffix", [".npy", ".tif", ".mat"])
def test_a_conversion_to_envi_beside_its_source_can_be_repeated(
    tmp_path: Path, suffix: str
) -> None:
    """The header that it replaces describes the earlier copy, not the source."""
    io.write(FULL, source := tmp_path / f"x{suffix}")
    assert run("convert", source, tmp_path / "x.img").returncode == 0
    again = run("convert", source, tmp_path / "x.img", "--overwrite")
    assert again.returncode == 0, again.stderr
    check_full(io.read(tmp_path / "x.img"))
