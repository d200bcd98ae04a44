"""`.hydiff` of DataArrays and Datasets: the fill of the library and of the command line, in the
form that the array came in."""

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import hydiff
import hydiff.xarray
import products
from hydiff import metrics
from hydiff.cli import app
from hydiff.errors import BadValue, HydiffError, ShapeMismatch, UnknownName
from hydiff.io import provenance
from hydiff.mark import FILLED

da = pytest.importorskip("dask.array", reason="dask is not installed: no array of chunks to fill")
WAVELENGTHS = 400.0 + 10 * np.arange(12)
SMOOTH = {"method": "smooth", "error_bars": True}


@pytest.fixture(scope="module")
def truth():
    """(bands, rows, cols) float32, a part of Indian Pines."""
    part = hydiff.sample().window(rows=slice(0, 40), cols=slice(0, 48), bands=slice(20, 32))
    return np.asarray(part.values, np.float32)


@pytest.fixture(scope="module")
def damaged(truth):
    values = truth.copy()
    values[:, :, 20:23] = np.nan
    values[3:7, 8:12, 34:40] = np.nan
    values[:, :, 0] = np.nan  # outside the data
    return values


def data_array(values, dims=("y", "x", "wavelength")):
    """A DataArray with these dimensions, its coordinates, attributes and an encoding."""
    band = next(d for d in dims if d not in ("y", "x"))
    array = xr.DataArray(
        values,
        dims=(band, "y", "x"),
        coords={
            band: (band, WAVELENGTHS[: len(values)], {"units": "nm"}),
            "y": 5000.0 - 20 * np.arange(values.shape[1]),
            "x": 100.0 + 20 * np.arange(values.shape[2]),
            "site": "here",
        },
        attrs={"units": "1", "standard_name": "surface_bidirectional_reflectance"},
        name="reflectance",
    ).transpose(*dims)
    array.encoding = {"_FillValue": -9999.0, "zlib": True}
    return array


def bands_first(array):
    return array.transpose(*[d for d in array.dims if d not in ("y", "x")], "y", "x").values


def square():
    """A DataArray (y, x, band), as long in each direction, and a mask (y, x) that is a flat bar."""
    values = np.random.default_rng(0).random((12, 12, 12)).cumsum(axis=2)
    coords = {"y": 5000.0 - 20 * np.arange(12), "x": 100.0 + 20 * np.arange(12)}
    array = xr.DataArray(values, dims=("y", "x", "band"), coords=coords)
    lost = xr.zeros_like(array, bool).isel(band=0, drop=True)
    lost[2:4, 5:11] = True
    return array, lost


# ── in memory ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dims", [("wavelength", "y", "x"), ("y", "x", "wavelength")])
def test_the_fill_is_that_of_the_library_in_the_form_of_the_array(damaged, dims):
    array = data_array(damaged, dims)
    filled = array.hydiff.fill(**SMOOTH)
    result = hydiff.fill(damaged, outside="keep", **SMOOTH)
    assert bands_first(filled).tobytes() == result.cube.values.tobytes()
    np.testing.assert_array_equal(bands_first(filled.filled), result.filled)
    np.testing.assert_array_equal(bands_first(filled.sigma), result.sigma)
    assert (filled.dims, filled.name) == (dims, "reflectance")
    assert filled.encoding == array.encoding
    before = filled.drop_vars(["filled", "sigma"])
    xr.testing.assert_identical(before.coords.to_dataset(), array.coords.to_dataset())
    added = {"hydiff_filled", "hydiff_record", "ancillary_variables"}
    assert {k: v for k, v in filled.attrs.items() if k not in added} == array.attrs
    assert filled.attrs["ancillary_variables"] == "filled sigma"


def test_a_mask_with_named_dimensions_means_the_same_in_any_order():
    """In fills and scores; of a square image the shape does not tell rows from columns."""
    array, lost = square()
    cube = lost.broadcast_like(array).transpose("x", "band", "y")
    for data in (array, hydiff.Cube(array.values.transpose(2, 0, 1))):
        for mask in (lost, lost.transpose("x", "y"), cube):
            filled = hydiff.fill(data, missing=mask, method="linear").filled
            np.testing.assert_array_equal(filled, np.broadcast_to(lost.values, (12, 12, 12)))
    estimate = array + lost
    scores = [metrics.score(estimate, array, m) for m in (lost.values, lost.T, cube, cube.values)]
    assert scores[0].missing["nrmse"] == scores[1].missing["nrmse"] == scores[2].missing["nrmse"]
    assert scores[3].missing["nrmse"] < scores[0].missing["nrmse"]  # without names: bands first
    as_laid = hydiff.fill(array, missing=cube.transpose(*array.dims).values, method="linear")
    np.testing.assert_array_equal(as_laid.filled[3], lost.values)
    ours = array.hydiff.fill(missing=cube.transpose(*array.dims).values, method="linear")
    np.testing.assert_array_equal(ours.filled.sel(band=3), lost)
    again = metrics.score(as_laid.cube, array, as_laid.filled)  # as of any cube: bands first
    expected = metrics.score(as_laid.cube, array, lost).missing
    assert again.missing["nrmse"] == expected["nrmse"] > 0
    found = hydiff.propagate(as_laid, "b3", over=lost.T)
    assert found.value[0] == pytest.approx(as_laid.values[3][lost.values].mean())


def test_what_lies_elsewhere_is_refused_wherever_it_is_given():
    """Rows that count upwards are no rows that count downwards."""
    array, lost = square()
    turned, upwards = lost.isel(y=slice(None, None, -1)), array.isel(y=slice(None, None, -1))
    for call in (
        lambda: hydiff.fill(array, missing=turned, method="linear"),
        lambda: hydiff.fill(array, lost, method="linear", input_uncertainty=upwards),
        lambda: metrics.score(array, array, turned),
        lambda: metrics.score(array, upwards),
        lambda: metrics.score(array, array, raw=upwards),
        lambda: hydiff.propagate(hydiff.fill(array, ~lost, method="linear"), "b3", over=turned),
    ):
        with pytest.raises(ShapeMismatch, match="do not lie on the same coordinates"):
            call()


def test_coordinates_may_differ_by_rounding():
    """Those of a file are computed from its map, others were added up."""
    array, lost = square()
    moved = array.assign_coords(x=array.x * (1 + 1e-9), y=array.y - 0.1)
    assert metrics.score(array, moved).everywhere["nrmse"] == 0
    assert hydiff.fill(moved, missing=lost, method="linear").filled.any()
    with pytest.raises(ShapeMismatch, match="same coordinates along y"):
        metrics.score(array, array.assign_coords(y=array.y - 1))
    with pytest.raises(ShapeMismatch, match=r"same coordinates along x \(12 and 11\)"):
        hydiff.fill(array, missing=lost.isel(x=slice(1, None)), method="linear")


def test_a_dataset_has_the_bad_bands_and_wavelengths_that_it_names(damaged):
    """Also for `hydiff.fill`, which finds the cube of a Dataset that was filled before."""
    array = data_array(damaged).drop_vars("wavelength").rename(wavelength="band")
    good = np.arange(len(damaged)) != 4
    per_band = {"wavelength": ("band", WAVELENGTHS), "good_wavelengths": ("band", good * 1)}
    dataset = xr.Dataset({"reflectance": array, **per_band})
    once = dataset.hydiff.fill(method="smooth", max_gap=3)
    for data in (dataset, once):
        cube = hydiff.fill(data, method="smooth").cube
        np.testing.assert_array_equal(cube.good, good)
        np.testing.assert_array_equal(cube.wavelengths, WAVELENGTHS)


def test_error_bars_of_packed_values_have_their_scale(damaged, tmp_path):
    """Integers that xarray did not unpack: unpacked later, values and bars agree with the file."""
    packed = {"dtype": "int16", "scale_factor": 0.5, "add_offset": 100.0, "_FillValue": -32768}
    data_array(damaged[:4]).to_dataset().to_netcdf(
        tmp_path / "a.nc", engine="h5netcdf", encoding={"reflectance": packed}
    )
    options = {"engine": "h5netcdf", "mask_and_scale": False}
    with xr.open_dataset(tmp_path / "a.nc", **options) as raw:
        raw.hydiff.fill(**SMOOTH).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
        layers = hydiff.fill(raw, **SMOOTH).to_xarray()
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as values:
        expected = values.hydiff.fill(**SMOOTH)
    with xr.open_dataset(tmp_path / "b.nc", engine="h5netcdf") as unpacked:
        np.testing.assert_allclose(unpacked.reflectance, expected["reflectance"], atol=0.26)
        bars = expected["reflectance_sigma"]
        np.testing.assert_allclose(unpacked.reflectance_sigma, bars, rtol=1e-3)
    unpacked = xr.decode_cf(layers)
    filled = unpacked["filled"] & expected["reflectance_filled"]
    np.testing.assert_allclose(unpacked["sigma"].where(filled), bars.where(filled), rtol=1e-3)


def test_measured_values_and_the_input_stay_as_they_are(damaged):
    array = data_array(damaged)
    before = array.copy(deep=True)
    filled = array.hydiff.fill(method="linear")
    xr.testing.assert_identical(array, before)
    assert filled.where(~filled.filled).drop_vars("filled").equals(array)
    assert filled.isel(x=0).isnull().all() and not filled.isel(x=slice(1, None)).isnull().any()
    assert "of the entries filled by linear" in filled.attrs[FILLED]


def test_layers_go_along_with_a_part_of_the_array(damaged):
    part = data_array(damaged).hydiff.fill(method="linear").sel(x=slice(480, 580), wavelength=450)
    assert part.filled.dims == part.dims and part.filled.sum() == 3 * part.sizes["y"]


@pytest.mark.parametrize("by", ["standard_name", "axis"])
def test_dimensions_are_known_by_cf_attributes(damaged, by):
    names = {
        "standard_name": ("radiation_wavelength", "projection_y_coordinate", "latitude"),
        "axis": (None, "Y", "X"),
    }[by]
    array = data_array(damaged, ("wavelength", "y", "x")).drop_attrs(deep=False)
    plain = array.rename(wavelength="lambda", y="j", x="i")
    for dim, name in zip(("lambda", "j"), names, strict=False):
        plain[dim].attrs = {by: name} if name else {}
    plain["i"].attrs = {by: "longitude" if by == "standard_name" else "X"}
    turned = plain.transpose("i", "lambda", "j")
    filled = turned.hydiff.fill(method="linear")
    expected = array.hydiff.fill(method="linear")
    assert filled.dims == turned.dims
    np.testing.assert_array_equal(filled.transpose("lambda", "j", "i"), expected)
    if by == "standard_name":
        assert hydiff.Cube.from_xarray(turned).wavelengths.tolist() == WAVELENGTHS.tolist()


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value", "nodata"])
def test_declared_values_are_missing_in_integers(truth, attribute):
    values = truth.astype(np.int16)
    values[:, 10:12] = -1
    array = data_array(values).assign_attrs({attribute: np.int16(-1)})
    filled = array.hydiff.fill(method="linear")
    assert filled.dtype == np.int16 and filled.filled.sum() == 2 * 48 * 12
    assert not (filled == -1).any()


@pytest.mark.parametrize("kind", ["array", "three", "named", "turned", "file"])
def test_masks_may_be_arrays_data_arrays_and_files(truth, tmp_path, kind):
    array = data_array(truth)
    missing = np.zeros(truth.shape[1:], bool)
    missing[4:8, 10:14] = True
    named = xr.DataArray(missing, dims=("y", "x"))
    hydiff.io.write_mask(missing, tmp_path / "m.npz", "missing")
    masks = {
        "array": missing,
        "three": np.broadcast_to(missing[..., None], array.shape),
        "named": named,
        "turned": named.transpose("x", "y"),
        "file": tmp_path / "m.npz",
    }
    filled = array.hydiff.fill(missing=masks[kind], method="linear")
    np.testing.assert_array_equal(bands_first(filled.filled)[3], missing)


def test_regions_and_polygons_lie_where_the_coordinates_say(truth, tmp_path):
    array = data_array(truth)
    ring = [[300, 4870], [400, 4870], [400, 4950], [300, 4950], [300, 4870]]
    path = tmp_path / "a.geojson"
    crs = {"type": "name", "properties": {"name": "EPSG:32611"}}
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring], "crs": crs}))
    filled = array.hydiff.fill(missing=path, region="0,0,365,9999", method="linear").filled
    inside = (array.x > 300) & (array.x < 365) & (array.y > 4870) & (array.y < 4950)
    assert inside.sum() == 12
    np.testing.assert_array_equal(filled, inside.broadcast_like(array).transpose(*array.dims))
    lazy = array.chunk({"y": 9}).hydiff.fill(missing=path, region="0,0,365,9999", method="linear")
    np.testing.assert_array_equal(lazy.filled, filled)


def test_a_written_fill_keeps_its_layers_for_whoever_reads_it(damaged, tmp_path):
    filled = data_array(damaged).hydiff.fill(**SMOOTH)
    filled.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", decode_coords="all") as dataset:
        back = dataset["reflectance"].load()
    np.testing.assert_array_equal(back, filled)
    np.testing.assert_array_equal(back.filled.astype(bool), filled.filled)
    np.testing.assert_array_equal(back.sigma, filled.sigma)
    assert back.filled.attrs["flag_meanings"] == "not_filled gap_filled"
    assert back.sigma.attrs["standard_name"].endswith(" standard_error")
    assert back.sigma.attrs["units"] == "1"


# ── by chunks ────────────────────────────────────────────────────────────────────────────────────


def by_tiles(values, folder, *options):
    """What `hydiff fill --tile 24` makes of a file of these values."""
    hydiff.write(hydiff.Cube(values, wavelengths=WAVELENGTHS), folder / "in.bil")
    names = [str(folder / "in.bil"), "-o", str(folder / "out.bil")]
    done = CliRunner().invoke(app, ["fill", *names, "--tile", "24", *options])
    assert done.exit_code == 0, done.output
    values = np.asarray(hydiff.read(folder / "out.bil").values)
    return values, provenance.companions(folder / "out.bil", values.shape)


@pytest.mark.parametrize("chunks", [{"y": 17, "x": 19, "wavelength": 5}, {"y": -1}])
def test_chunks_are_filled_with_the_bytes_of_the_command_line(damaged, tmp_path, chunks):
    array = data_array(damaged).chunk(chunks)
    filled = array.hydiff.fill(tile=24, **SMOOTH)
    assert filled.chunks == filled.filled.chunks == filled.sigma.chunks == array.chunks
    values, beside = by_tiles(damaged, tmp_path, "--method", "smooth", "--set", "error_bars=true")
    assert bands_first(filled).tobytes() == values.tobytes()
    np.testing.assert_array_equal(bands_first(filled.filled), beside["filled"])
    # of error bars a file keeps three digits
    np.testing.assert_allclose(bands_first(filled.sigma), beside["sigma"], rtol=1e-3)
    assert filled.encoding == array.encoding
    assert "an unknown share of the entries filled by smooth" in filled.attrs[FILLED]


def test_the_default_method_is_that_of_the_command_line_too(damaged, tmp_path):
    array = data_array(damaged).chunk({"wavelength": 4})
    filled = array.hydiff.fill(tile=24, budget="fast")
    values, beside = by_tiles(damaged, tmp_path, "--budget", "fast")
    assert bands_first(filled).tobytes() == values.tobytes()
    # of error bars a file keeps three digits
    np.testing.assert_allclose(bands_first(filled.sigma), beside["sigma"], rtol=1e-3)


def test_nothing_is_read_before_a_result_is_computed_and_nothing_is_left_behind(
    damaged, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    read = []

    def look(block):
        read.append(block.shape)
        return block

    chunks = da.from_array(damaged, chunks=(12, 20, 24)).map_blocks(look, dtype=damaged.dtype)
    read.clear()  # dask tries the function on an empty block
    filled = data_array(damaged, ("wavelength", "y", "x")).copy(data=chunks)
    filled = filled.hydiff.fill(method="linear", tile=24)
    assert not read
    first = filled.isel(x=slice(0, 30)).values
    assert sorted(read) == [(12, 20, 24)] * 4
    np.testing.assert_array_equal(filled.values[..., :30], first)
    assert filled.filled.values.any() and len(read) == 4  # once for all that is computed
    assert len(list(tmp_path.iterdir())) == 1
    del filled
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_chunks_may_be_masked_and_are_computed_in_other_processes_too(truth):
    missing = np.zeros(truth.shape[1:], bool)
    missing[4:8, 10:14] = True
    array = data_array(truth).chunk({"y": 20})
    filled = array.hydiff.fill(missing=missing, method="linear", tile=24)
    np.testing.assert_array_equal(bands_first(filled.filled)[5], missing)
    elsewhere = filled.compute(scheduler="processes", num_workers=1)
    assert elsewhere.identical(filled.compute())


# ── as products and others open them ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chunks", [None, {"downtrack": 16}])
def test_an_emit_file_is_filled_by_its_own_rule(tmp_path, chunks):
    values = products.scene(12, 40, 24).astype(np.float32)
    values[:, 10:13] = -9998  # lost, and not the fill value, which xarray alone knows
    values[:, 30:32] = -9990  # screened for clouds
    products.emit(tmp_path / "EMIT_L2A_RFL.nc", values)
    how = {"engine": "h5netcdf", "phony_dims": "sort", "chunks": chunks}
    with xr.open_datatree(tmp_path / "EMIT_L2A_RFL.nc", **how) as tree:
        bands = tree["sensor_band_parameters"].to_dataset()
        bands = bands.rename({next(iter(bands.sizes)): "bands"})  # no dimension scale is generated
        dataset = xr.merge([tree.to_dataset(), bands], join="outer")
        filled = dataset.hydiff.fill("reflectance", method="linear")
        file = hydiff.fill(tmp_path / "EMIT_L2A_RFL.nc", method="linear")
        got = filled["reflectance"].transpose("bands", "downtrack", "crosstrack").values
        cube = hydiff.Cube.from_xarray(dataset.hydiff.variable("reflectance"))
        array = dataset["reflectance"]
        result = hydiff.fill(array, method="linear", outside="keep")
        assert next(iter(result.left)) == "screened for clouds, not lost"
        np.testing.assert_array_equal(result.filled, file.filled)
    assert got.tobytes() == np.asarray(file.cube.values).tobytes()
    assert (got[:, 30:32] == -9990).all()
    np.testing.assert_array_equal(cube.wavelengths, file.cube.wavelengths)
    np.testing.assert_array_equal(cube.good, file.cube.good)
    other = set(dataset.variables) - {"reflectance"}
    xr.testing.assert_identical(filled[list(other)], dataset[list(other)])
    assert filled["reflectance"].attrs["ancillary_variables"] == "reflectance_filled"


def test_a_real_emit_file_opened_with_xarray_has_the_gaps_that_we_read(data_dir):
    path = next((data_dir / "native").glob("EMIT_L1B_OBS*.nc"))
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        census = dataset.hydiff.gaps("obs")
    cube = hydiff.read(path)
    assert census.shape == cube.shape
    assert census.missing == int((~cube.observed()).sum())


def test_a_rioxarray_raster_keeps_its_place_and_nodata(data_dir, tmp_path):
    rioxarray = pytest.importorskip("rioxarray", reason="rioxarray is not installed")
    path = data_dir / "native" / "enmap_potsdam_tile_64_0.tif"
    raster = rioxarray.open_rasterio(path).load()
    raster[:, 10:12] = raster.rio.nodata
    empty = (raster == raster.rio.nodata).all(["y", "x"])
    assert empty.sum() == 6
    filled = raster.hydiff.fill(method="linear")
    assert filled.rio.crs == raster.rio.crs and filled.rio.nodata == raster.rio.nodata
    assert filled.rio.transform() == raster.rio.transform()
    np.testing.assert_array_equal((filled == raster.rio.nodata).any(["y", "x"]), empty)
    assert filled.filled[~empty, 10:12].all() and not filled.filled[empty].any()
    filled.rio.to_raster(tmp_path / "a.tif")
    np.testing.assert_array_equal(hydiff.read(tmp_path / "a.tif").values, filled)
    masked = rioxarray.open_rasterio(path, masked=True).load()
    masked[:, 10] = np.nan
    again = masked.hydiff.fill(method="linear")
    assert again.filled[~empty, 10].all() and again.rio.encoded_nodata == raster.rio.nodata


def test_a_selection_is_written_to_its_own_place(tmp_path):
    place = {"transform": (30.0, 0.0, 5e5, 0.0, -30.0, 5e6), "crs": "EPSG:32633"}
    scene = hydiff.Cube(np.ones((2, 8, 9)), **place).to_xarray()
    part = scene.isel(y=slice(2, 6), x=slice(3, 8))
    written = hydiff.read(hydiff.write(part, tmp_path / "part.tif")[0])
    assert written.transform == (30.0, 0.0, 5e5 + 90, 0.0, -30.0, 5e6 - 60)
    assert hydiff.Cube.from_xarray(scene).transform == place["transform"]
    turned = hydiff.Cube(np.ones((2, 8, 9)), transform=(30.0, 5.0, 0.0, 5.0, -30.0, 0.0))
    assert hydiff.Cube.from_xarray(turned.to_xarray()).transform == turned.transform


def test_what_rioxarray_says_of_a_raster_is_written(tmp_path):
    import rasterio

    array = xr.DataArray(
        np.ones((2, 4, 5), "u2"),
        dims=("band", "y", "x"),
        coords={"y": 100.0 - np.arange(4) * 2, "x": 7.0 + np.arange(5) * 2},
        attrs={"long_name": ("red", "nir"), "scale_factor": 1e-4, "add_offset": 0.1},
    )
    crs = rasterio.CRS.from_epsg(32633).to_wkt()
    array = array.assign_coords(spatial_ref=xr.Variable((), 0, {"crs_wkt": crs}))
    hydiff.write(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as image:
        assert image.crs.to_epsg() == 32633 and tuple(image.transform)[:6] == (2, 0, 6, 0, -2, 101)
        assert image.descriptions == ("red", "nir")
        assert image.scales == (1e-4, 1e-4) and image.offsets == (0.1, 0.1)


@pytest.mark.parametrize(
    ("names", "waves"),
    [
        (("band 1 (418.24 Nanometers)", "band 2 (428.5 Nanometers)"), [418.24, 428.5]),
        (("red", "nir"), None),
        (("band 1 (418.24 nm)", "band 2 (0.43 um)"), None),
        ("surface reflectance 400 nm", None),
    ],
)
def test_wavelengths_in_the_names_of_bands_are_those_of_the_file(tmp_path, names, waves):
    """rioxarray gives the names of a GeoTIFF's bands as `long_name`, and no wavelengths."""
    import rasterio

    array = xr.DataArray(np.ones((2, 4, 5)), dims=("band", "y", "x"), attrs={"long_name": names})
    cube = hydiff.Cube.from_xarray(array)
    profile = {"driver": "GTiff", "width": 5, "height": 4, "count": 2, "dtype": "float64"}
    with rasterio.open(tmp_path / "a.tif", "w", crs="EPSG:32633", **profile) as image:
        image.write(array.values)
        if not isinstance(names, str):
            image.descriptions = names
    for found in (cube, hydiff.read(tmp_path / "a.tif")):
        assert (None if found.wavelengths is None else found.wavelengths.tolist()) == waves
        assert found.wavelength_units == (None if waves is None else "Nanometers")
    array[0, 1:3, 2] = np.nan
    filled = array.hydiff.fill(method="smooth", outside="fill", bands="410-420nm" if waves else "0")
    assert np.isfinite(filled.values).all()
    own = array.assign_coords(wavelength=("band", [1.0, 2.0]))
    assert hydiff.Cube.from_xarray(own).wavelengths.tolist() == [1.0, 2.0]


def test_numbers_of_pixels_are_no_place():
    array = xr.DataArray(np.ones((2, 4, 5)), dims=("band", "y", "x"))
    numbered = array.assign_coords(y=np.arange(4), x=np.arange(5))
    assert hydiff.Cube.from_xarray(numbered).transform is None


def test_a_store_that_xarray_wrote_is_read_without_its_layers(damaged, tmp_path):
    array = data_array(damaged).drop_vars("site").drop_encoding()  # Zarr has no type for its text
    filled = array.hydiff.fill(method="smooth", error_bars=True)
    dataset = array.to_dataset().hydiff.fill(method="smooth", error_bars=True)
    for name, stored in (("a.zarr", filled.to_dataset()), ("b.zarr", dataset)):
        stored.to_zarr(tmp_path / name, consolidated=False)
        cube = hydiff.read(tmp_path / name)
        assert np.asarray(cube.values).tobytes() == bands_first(filled).tobytes()
        assert cube.mark is not None and cube.mark.method == "smooth"
    sigma = hydiff.read(tmp_path / "b.zarr", var="reflectance_sigma").values
    np.testing.assert_array_equal(sigma, bands_first(filled.sigma))
    filled.to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    with pytest.raises(HydiffError, match=r"no known product.*`import hydiff\.xarray`"):
        hydiff.read(tmp_path / "c.nc")


# ── gaps and scores ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("chunks", [None, {"y": 20}])
@pytest.mark.parametrize("bars", [True, False])
def test_a_second_fill_keeps_what_the_first_one_says_of_its_entries(damaged, chunks, bars):
    """In an array and in a Dataset: gaps of three columns first, the wider one later."""
    array = data_array(damaged) if chunks is None else data_array(damaged).chunk(chunks)
    first, second = {**SMOOTH, "max_gap": 3}, {"method": "smooth", "error_bars": bars}
    once = array.hydiff.fill(**first)
    twice = once.hydiff.fill(**second)
    dataset = array.to_dataset().hydiff.fill(**first).hydiff.fill("reflectance", **second)
    lost = np.isnan(array.values)
    lost[:, 0] = False  # outside the data
    assert 0 < once.filled.values.sum() < lost.sum()
    for filled, sigma in (
        (twice.filled, twice.sigma),
        (dataset["reflectance_filled"], dataset["reflectance_sigma"]),
    ):
        np.testing.assert_array_equal(filled, lost)
        assert filled.dtype == bool and filled.attrs["flag_meanings"]
        np.testing.assert_array_equal(sigma.where(once.filled), once.sigma.where(once.filled))
        known = lost if bars else once.filled.values
        np.testing.assert_array_equal(np.isfinite(sigma), known)
        assert sigma.attrs["units"] == "1"
    assert twice.attrs["ancillary_variables"] == "filled sigma"
    again = once.where(~lost).hydiff.fill(**first)  # emptied again, and left so where it is wide
    np.testing.assert_array_equal(again.filled, once.filled)


def test_gaps_and_scores_are_those_of_the_library(truth, damaged):
    array, reference = data_array(damaged), data_array(truth, ("wavelength", "y", "x"))
    assert array.hydiff.gaps() == array.chunk({"y": 9}).hydiff.gaps()
    assert array.hydiff.gaps().missing == np.isnan(damaged).sum()
    assert (array * np.nan).hydiff.gaps().missing_share == (1.0,) * len(damaged)
    filled = array.hydiff.fill(method="linear")
    expected = metrics.score(bands_first(filled), truth, bands_first(filled.filled))
    assert filled.hydiff.score(reference).missing == expected.missing
    whole = filled.drop_vars("filled").hydiff.score(reference)
    assert whole.missing is None and whole.everywhere == expected.everywhere
    both = array.to_dataset().hydiff.fill(method="linear")
    for truth in (reference.to_dataset(), reference):
        assert both.hydiff.score(truth).missing == expected.missing


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


def nameless(array):
    return array.rename(wavelength="a", y="b", x="c").hydiff.fill()


REFUSED = {
    "nameless": (nameless, BadValue, r"none of the dimensions .*\.rename\(b='band'\)"),
    "time": (
        lambda a: a.expand_dims("time").hydiff.fill(),
        ShapeMismatch,
        r"found \('time', .*isel\(time=0\)",
    ),
    "two": (lambda a: a.isel(x=0).hydiff.gaps(), ShapeMismatch, r"one alone, array\.expand_dims"),
    "tiles": (lambda a: a.hydiff.fill(tile=24), BadValue, "`tile=`: goes with .* Dask chunks"),
    "method": (lambda a: a.chunk().hydiff.fill(method="smoth"), UnknownName, "did you mean"),
    "setting": (
        lambda a: a.chunk().hydiff.fill(method="smooth", componets=3),
        HydiffError,
        "componets",
    ),
    "denoise": (lambda a: a.chunk().hydiff.fill(denoise=True), BadValue, "`denoise=`: needs the"),
    "dtype": (
        lambda a: a.astype(np.float16).chunk().hydiff.fill(method="linear"),
        BadValue,
        "Dask array of float16: expected",
    ),
    "tile": (lambda a: a.chunk().hydiff.fill(tile="24"), BadValue, "`tile='24'`: expected a whole"),
    "memory": (lambda a: a.chunk().hydiff.fill(memory=2), BadValue, "`memory=2`: expected a size"),
    "bands": (lambda a: a.hydiff.fill(bands=[1, 2]), BadValue, "expected text or None.*10:40"),
    "number": (lambda a: a.hydiff.gaps(nodata="none"), BadValue, "`nodata='none'`: expected a num"),
    "numpy": (lambda a: a.hydiff.score(a.values), BadValue, "a DataArray .* found ndarray"),
    "mask": (lambda a: a.hydiff.fill(a.isnull().rename(x="z")), ShapeMismatch, "mask with dim"),
    "place": (
        lambda a: a.hydiff.fill(missing=a.isnull().sortby("y")),
        ShapeMismatch,
        "array and mask do not lie on the same coordinates",
    ),
    "number mask": (
        lambda a: a.hydiff.fill(missing=a.isnull().astype("u1")),
        BadValue,
        "expected a boolean mask, found uint8; pass `mask != 0`",
    ),
    "gap": (lambda a: a.hydiff.fill(max_gap="8"), BadValue, "`max_gap='8'`: expected a number"),
    "axis": (lambda a: hydiff.fill(a.values, axis=2), UnknownName, "axis 2: known: bands first"),
    "shape": (lambda a: a.hydiff.fill(np.ones((3, 3), bool)), ShapeMismatch, "the mask has shape"),
    "nodata": (
        lambda a: a.assign_attrs(_FillValue="none").hydiff.fill(),
        BadValue,
        "_FillValue is 'none', expected a number",
    ),
    "truth": (
        lambda a: a.hydiff.score(a.assign_coords(x=a.x + 1)),
        ShapeMismatch,
        "same coordinates",
    ),
    "variable": (
        lambda a: a.to_dataset().hydiff.fill("reflectence"),
        UnknownName,
        "did you mean 'reflectance'",
    ),
    "several": (
        lambda a: a.to_dataset().assign(other=a).hydiff.fill(),
        BadValue,
        r"found reflectance, other; name it, such as dataset\.hydiff\.fill\('reflectance'\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_filled_is_refused_in_one_line(damaged, case):
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message) as raised:
        call(data_array(damaged))
    assert "\n" not in str(raised.value)


# ── the module ───────────────────────────────────────────────────────────────────────────────────


def loaded(code, **how):
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, **how)
    return done.returncode, done.stdout.split(), done.stderr


def test_the_import_is_light_and_the_package_xarray_is_meant(tmp_path):
    code = "import hydiff.xarray, xarray; assert xarray.DataArray.hydiff"
    status, modules, stderr = loaded(code, cwd=Path(hydiff.__file__).parent.parent)
    assert status == 0, stderr
    assert not {"torch", "dask", "rasterio", "h5py", "matplotlib"} & set(modules)


def test_without_xarray_the_extra_is_named():
    _, _, stderr = loaded("import sys; sys.modules['xarray'] = None\nimport hydiff.xarray")
    assert 'needs xarray, which is not installed: pip install "hydiff[xarray]"' in stderr
