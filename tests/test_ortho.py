"""From sensor geometry to the map: against the table applied by hand, and against the ground."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio

import hydiff
import products
from conftest import DATA
from hydiff import io
from hydiff.cube import Cube, Glt
from hydiff.io.ortho import ortho
from hydiff.io.transfer import convert

NATIVE = DATA / "native"
MASK = NATIVE / "EMIT_L2A_MASK_001_20220827T060753_9999999_999.nc"
OBS = NATIVE / "EMIT_L1B_OBS_001_20220827T060753_9999999_999.nc"


def by_hand(values: np.ndarray, glt_x: np.ndarray, glt_y: np.ndarray, empty: float) -> np.ndarray:
    """One map pixel at a time: (bands, rows, cols) → (bands, rows', cols')."""
    out = np.full((len(values), *glt_x.shape), empty, values.dtype)
    for i in range(glt_x.shape[0]):
        for j in range(glt_x.shape[1]):
            if glt_x[i, j] != 0:
                out[:, i, j] = values[:, abs(glt_y[i, j]) - 1, abs(glt_x[i, j]) - 1]
    return out


@pytest.mark.parametrize(("path", "var"), [(MASK, "mask"), (OBS, "obs")], ids=["MASK", "OBS"])
def test_real_files_against_the_table_by_hand(data_dir: Path, path: Path, var: str) -> None:
    cube = ortho(io.read(path))
    with h5py.File(path) as file:
        place = file["location"]
        expected = by_hand(
            file[var][()].transpose(2, 0, 1), place["glt_x"][()], place["glt_y"][()], -9999
        )
        gdal_order = file.attrs["geotransform"]
    assert np.array_equal(np.asarray(cube.values), expected)
    assert np.array_equal(cube.values[1:3, 40:80, 100:220], expected[1:3, 40:80, 100:220])
    assert cube.transform is not None
    assert np.allclose(rasterio.Affine(*cube.transform).to_gdal(), gdal_order)


@pytest.mark.parametrize("path", [MASK, OBS], ids=["MASK", "OBS"])
def test_moved_pixels_lie_where_their_coordinates_say(
    tmp_path: Path, data_dir: Path, path: Path
) -> None:
    """Latitude and longitude of the sensor's pixels, moved like the cube and read by rasterio:
    they agree with the map within the size of a pixel."""
    cube = io.read(path)
    with h5py.File(path) as file:
        ground = np.stack([file["location/lon"][()], file["location/lat"][()]])
        shown = file["location/glt_x"][()] != 0
    moved = ortho(Cube(ground, nodata=-9999.0), cube.glt)
    io.write(moved, tmp_path / "ground.tif")
    with rasterio.open(tmp_path / "ground.tif") as dataset:
        lon, lat = dataset.read()
        rows, cols = np.nonzero(shown)
        x, y = rasterio.transform.xy(dataset.transform, rows, cols)
        pixel = dataset.transform.a
        assert dataset.crs == rasterio.CRS.from_epsg(4326)
    assert np.array_equal(lon != -9999, shown)
    for axis, on_map in ((lon[shown], x), (lat[shown], y)):
        away = np.abs(axis - np.asarray(on_map)) / pixel
        assert away.max() < 1.2 and np.median(away) < 0.5


def test_cube_filled_mask_and_error_bars_move_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies beside a fill goes the same way, whatever it is called."""
    from hydiff.io import provenance

    values = products.scene(33, 90, 80).astype("f4")
    values[:, 12:15] = -9998
    source = products.emit(tmp_path / "e.nc", values)
    result = hydiff.fill(io.read(source), method="linear")
    provenance.save(result, tmp_path / "f.nc")
    sigma = np.where(result.filled, 0.25, np.nan).astype("f4")
    real = provenance.companions
    monkeypatch.setattr(provenance, "companions", lambda *given: {**real(*given), "sigma": sigma})
    made = convert(tmp_path / "f.nc", tmp_path / "map.tif", ortho=True)
    names = ("", ".flags.tif", ".why.tif", ".sigma.tif")
    assert [p.name for p in made] == [f"map.tif{name}" for name in names]
    with h5py.File(source) as file:
        table = file["location/glt_x"][()], file["location/glt_y"][()]
    cubes = [np.asarray(result.cube.values), result.flags, result.why, sigma]
    for path, before, empty in zip(made, cubes, (-9999, 0, 0, np.nan), strict=True):
        with rasterio.open(path) as dataset:
            expected = by_hand(before, *table, empty)
            assert np.array_equal(dataset.read(), expected, equal_nan=before.dtype.kind == "f")
            assert dataset.crs == rasterio.CRS.from_epsg(4326)
            assert float(dataset.tags(3)["wavelength"]) == pytest.approx(381 + 2 * 66)
            transform = dataset.transform
    assert transform.a == 5e-4
    companions = sum(p.stat().st_size for p in made[1:])
    assert companions <= 0.15 * made[0].stat().st_size


def test_other_programs_find_bands_and_nodata(tmp_path: Path) -> None:
    import spectral

    values = products.scene(9, 30, 26).astype("f4")
    source = products.emit(tmp_path / "e.nc", values)
    convert(source, tmp_path / "map.img", ortho=True)
    convert(source, tmp_path / "map.tif", ortho=True, cog=True)
    wanted = products.wavelengths(9).astype("f4")
    image = spectral.open_image(str(tmp_path / "map.hdr"))
    assert np.allclose(image.bands.centers, wanted)
    for name in ("map.img", "map.tif"):
        with rasterio.open(tmp_path / name) as dataset:
            assert dataset.nodata == -9999
            assert dataset.shape == (34, 29)
            assert dataset.crs == rasterio.CRS.from_epsg(4326)
            found = [float(dataset.tags(i)["wavelength"]) for i in dataset.indexes]
            assert np.allclose(found, wanted)
            assert dataset.descriptions[1] == "band 2 (645 nm)"


def test_a_table_from_another_file(tmp_path: Path) -> None:
    values = products.scene(5, 20, 16).astype("f4")
    source = products.emit(tmp_path / "e.nc", values)
    io.write(Cube(values), tmp_path / "plain.img")
    convert(tmp_path / "plain.img", tmp_path / "a.tif", ortho=True, glt=source)
    convert(source, tmp_path / "b.tif", ortho=True)
    with rasterio.open(tmp_path / "a.tif") as one, rasterio.open(tmp_path / "b.tif") as other:
        assert one.transform == other.transform
        assert np.array_equal(np.nan_to_num(one.read(), nan=-9999), other.read())


def test_what_has_a_map_keeps_it_and_what_has_none_is_reported(tmp_path: Path) -> None:
    values = products.scene(4, 6, 5)
    located = Cube(values, transform=(30.0, 0.0, 0.0, 0.0, -30.0, 0.0))
    assert ortho(located) is located
    with pytest.raises(hydiff.HydiffError, match=r"no lookup table.*`glt=FILE`"):
        ortho(Cube(values))
    io.write(Cube(values), tmp_path / "a.img")
    with pytest.raises(hydiff.HydiffError, match=r"a\.img holds no lookup table"):
        convert(tmp_path / "a.img", tmp_path / "b.tif", ortho=True, glt=tmp_path / "a.img")
    with pytest.raises(hydiff.HydiffError, match="`glt=` goes with `ortho=True`"):
        convert(tmp_path / "a.img", tmp_path / "b.tif", glt=tmp_path / "a.img")
    with pytest.raises(hydiff.HydiffError, match=r"`cog=True` makes a GeoTIFF.*b\.tif"):
        convert(tmp_path / "a.img", tmp_path / "b.img", cog=True)
    assert {p.name for p in tmp_path.iterdir()} == {"a.img", "a.hdr"}


@pytest.mark.parametrize("bad", [(9, 1), (1, 7), (-9, 1)])
def test_a_table_that_points_outside(tmp_path: Path, bad: tuple[int, int]) -> None:
    table = np.ones((3, 4, 2), "i4")
    table[1, 2] = bad
    cube = Cube(products.scene(4, 6, 8), glt=Glt(table, (1.0, 0.0, 0.0, 0.0, -1.0, 0.0), None))
    with pytest.raises(hydiff.HydiffError, match="another scene or is damaged"):
        np.asarray(ortho(cube).values)
    fine = replace(cube, glt=Glt(np.ones((3, 4, 2), "i4"), (1.0,) * 6, None))
    assert np.asarray(ortho(fine).values).shape == (4, 3, 4)
