"""Sensor products: read, filled, written, read again; nothing but the filled entries changes."""

from __future__ import annotations

import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
import xarray
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hydiff
import products
from conftest import DATA
from hydiff import io
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.errors import OutputError
from hydiff.gaps.describe import facts
from hydiff.io import conventions, geotiff, provenance
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.layout import limits

NATIVE = DATA / "native"
EMIT_REAL = [
    ("EMIT_L2A_MASK_001_20220827T060753_9999999_999.nc", "mask", (8, 200, 200)),
    ("EMIT_L1B_OBS_001_20220827T060753_9999999_999.nc", "obs", (11, 200, 200)),
]
GAINED = (  # by a fill
    "hydiff_filled", "hydiff_record", "history", "ancillary_variables", "TIFFTAG_IMAGEDESCRIPTION",
)  # fmt: skip
CUBES = ("reflectance", "radiance", "VNIR_Cube", "SWIR_Cube", "Reflectance_Data")
KINDS = ("emit", "prisma", "prisma L1", "enmap", "enmap zip", "desis", "aviris", "neon", "zarr")


def make(kind: str, folder: Path, truth: np.ndarray, missing: np.ndarray) -> Path:
    """A product of this kind; truth (bands, rows, cols) in 0.1 … 0.9, missing (rows, cols)."""
    bands = len(truth)
    if kind.startswith("prisma"):
        numbers = np.where(missing, 0, truth * 6e4).astype("u2")
        vnir, swir = numbers[: bands // 2], numbers[bands // 2 :]
        return products.prisma(folder / "p.he5", vnir, swir, level="L1" if "L1" in kind else "L2D")
    if kind == "zarr":
        values = np.where(missing, np.nan, truth).astype("f4")
        cube = Cube(values, wavelengths=products.wavelengths(bands), wavelength_units="nm")
        return io.write(cube, folder / "z.zarr")[0]
    if kind in ("emit", "aviris"):
        values = np.where(missing, -9999, truth).astype("f4")
        return getattr(products, kind)(folder / f"{kind}.nc", values)
    if kind == "neon":
        return products.neon(folder / "n.h5", np.where(missing, -9999, truth * 1e4).astype("i2"))
    values = np.where(missing, -32768, truth * 1e4).astype("i2")
    if kind == "desis":
        return products.desis(folder, values)
    return products.enmap(folder / "ENMAP_L2A", values, zipped="zip" in kind)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=4, deadline=None)
def test_only_filled_entries_change(kind: str, data: st.DataObject) -> None:
    """Random small products with random gaps: values, dtype and metadata after a round trip."""
    bands, rows, cols = (data.draw(st.integers(low, 20)) for low in (4, 3, 3))
    seed = data.draw(st.integers(0, 99))
    missing = np.random.default_rng(seed).random((rows, cols)) < 0.2
    missing[0, :2] = False, True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = products.scene(bands, rows, cols, seed)
        source = make(kind, folder, truth, missing)
        cube = io.read(source)
        assert cube.format == kind.split()[0]
        assert cube.shape == (bands, rows, cols)
        observed = cube.observed()
        assert np.array_equal(observed, np.broadcast_to(~missing, observed.shape))
        result = hydiff.fill(cube, method="nearest", outside="fill")
        assert np.array_equal(result.filled, ~observed)
        target = source.with_name(f"again{source.suffix}")
        again = io.read(io.write(result.cube, target)[0])
        before, after = np.asarray(cube.values), np.asarray(again.values)
        assert after.dtype == before.dtype
        assert after[observed].tobytes() == before[observed].tobytes()
        assert again.observed().all()
        for field in io.FIELDS:
            assert io._equal(getattr(again, field), getattr(cube, field)), field
        assert unmarked(io._portable(again)) == unmarked(io._portable(cube))
        window = np.s_[1:3, 1:3, -2:]
        assert np.array_equal(cube.values[window], before[window], equal_nan=True)
        assert same_container(source, target, kind) > 0


def unmarked(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes less what a fill adds to them: a line of history, and a word to each title."""
    box = dict(attrs.get("geotiff", {}))
    tags = {k: v for k, v in box.get("tags", {}).get("", {}).items() if k not in GAINED}
    others = {k: v for k, v in attrs.items() if k not in ("geotiff", *GAINED)}
    if "title" in others:
        others["title"] = others["title"].removeprefix("Gap-filled ")
    return others | {"geotiff": box | {"tags": box.get("tags", {}) | {"": tags}}}


def same_container(source: Path, target: Path, kind: str) -> int:
    """Everything but the cube's values is equal, byte for byte where it is a file of its own."""
    if kind.split()[0] in ("emit", "prisma", "aviris", "neon"):
        with h5py.File(source) as one, h5py.File(target) as other:
            return same_hdf5(one, other)
    if kind == "enmap":
        images = [p.name for p in source.iterdir() if "SPECTRAL_IMAGE" not in p.name]
        assert all((source / n).read_bytes() == (target / n).read_bytes() for n in images)
        more = {p.name for p in target.iterdir()} - {p.name for p in source.iterdir()}
        assert len(more) == 1 and more.pop().endswith("-HYDIFF_FILLED.JSON")
        return len(images)
    if kind == "enmap zip":
        with zipfile.ZipFile(source) as one, zipfile.ZipFile(target) as other:
            *members, note = other.namelist()
            assert one.namelist() == members and note.endswith("-HYDIFF_FILLED.JSON")
            images = [n for n in one.namelist() if "SPECTRAL_IMAGE" not in n]
            assert all(one.read(n) == other.read(n) for n in images)
            return len(images)
    if kind == "desis":
        header = target.with_suffix(".hdr").read_text().splitlines(keepends=True)
        kept = [line for line in header if "filled" not in line]
        assert len(header) - len(kept) in (2, 3)  # a description where there was none
        assert "".join(kept) == source.with_suffix(".hdr").read_text()
        with rasterio.open(source) as one, rasterio.open(target) as other:
            assert one.profile == other.profile
            assert {k: v for k, v in other.tags().items() if k not in GAINED} == one.tags()
        return 1
    files = sorted(p.relative_to(source) for p in source.rglob("zarr.json"))
    for file in files:
        one, other = (json.loads((place / file).read_text()) for place in (source, target))
        for said in (one, other):
            said["attributes"] = {k: v for k, v in said["attributes"].items() if k not in GAINED}
        assert one == other
    return len(files)


def same_hdf5(one: Any, other: Any) -> int:
    """Groups, attributes, dtypes, chunks, filters and values, but for the cubes' values."""
    names: list[str] = []
    one.visit(names.append)
    held: list[str] = []
    other.visit(held.append)
    assert names == [name for name in held if "_hydiff_" not in name]
    for name in ["/", *names]:
        a, b = one[name], other[name]
        assert list(a.attrs) == [key for key in b.attrs if key not in GAINED]
        for key in a.attrs:
            if key == "title":
                assert b.attrs[key] == b"Gap-filled " + a.attrs[key]
            elif key not in ("DIMENSION_LIST", "REFERENCE_LIST"):  # pointers inside the file
                assert a.attrs.get_id(key).dtype == b.attrs.get_id(key).dtype
                assert np.array_equal(a.attrs[key], b.attrs[key]), (name, key)
        if isinstance(a, h5py.Dataset):
            for what in ("shape", "dtype", "chunks", "compression", "compression_opts", "shuffle"):
                assert getattr(a, what) == getattr(b, what), (name, what)
            if name.rpartition("/")[2] not in CUBES:
                assert np.array_equal(a[()], b[()]), name
    return len(names)


# --- EMIT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "var", "shape"), EMIT_REAL)
def test_real_emit_files(
    tmp_path: Path, data_dir: Path, name: str, var: str, shape: tuple[int, int, int]
) -> None:
    cube = io.read(NATIVE / name)
    assert (cube.format, cube.shape, cube.nodata) == ("emit", shape, -9999)
    assert cube.band_names is not None and len(cube.band_names) == shape[0]
    values = np.array(cube.values)
    with h5py.File(NATIVE / name) as file:
        assert np.array_equal(values, file[var][()].transpose(2, 0, 1))
    values[2, 5:9, 11] = 0.25
    target = io.write(replace(cube, values=values), tmp_path / name)[0]
    assert np.array_equal(np.asarray(io.read(target).values), values)
    with h5py.File(NATIVE / name) as one, h5py.File(target) as other:
        names: list[str] = []
        one.visit(names.append)
        for item in set(names) - {var}:
            if isinstance(one[item], h5py.Dataset):
                assert np.array_equal(one[item][()], other[item][()]), item
        assert one[var].chunks == other[var].chunks
    with xarray.open_datatree(target, engine="h5netcdf") as tree:
        assert np.array_equal(tree[var].values[5:9, 11, 2], np.full(4, 0.25, "f4"))
        assert tree["location/glt_x"].dtype == "int32"


def test_emit_flags_and_clouds(tmp_path: Path) -> None:
    """Every flag is a gap but the clouds, which are filled only when asked for."""
    values = products.scene(12, 40, 30).astype("f4")
    flags = {2: -9999, 8: -9998, 14: -9997, 20: -9996, 26: -9990}
    for row, flag in flags.items():
        values[:, row] = flag
    cube = io.read(products.emit(tmp_path / "e.nc", values))
    seen = cube.observed()
    assert set(np.flatnonzero(~seen.all(axis=(0, 2)))) == set(flags)
    kept = hydiff.fill(cube, method="harmonic")
    assert kept.left == {"screened for clouds, not lost": 12 * 30}
    assert set(np.flatnonzero(kept.filled.any(axis=(0, 2)))) == {2, 8, 14, 20}
    assert (np.asarray(kept.cube.values)[:, 26] == -9990).all()
    every = hydiff.fill(cube, method="harmonic", fill_clouds=True)
    assert set(np.flatnonzero(every.filled.any(axis=(0, 2)))) == set(flags)
    assert not every.left


def test_emit_without_good_wavelengths(tmp_path: Path) -> None:
    values = products.scene(6, 5, 4).astype("f4")
    assert io.read(products.emit(tmp_path / "a.nc", values, good=False)).good is None
    good = io.read(products.emit(tmp_path / "b.nc", values, "radiance")).good
    assert good is not None and list(np.flatnonzero(~good)) == [3]


def test_plain_libraries_open_a_filled_emit_file(tmp_path: Path) -> None:
    values = products.scene(6, 20, 18).astype("f4")
    values[:, 7] = -9998
    source = products.emit(tmp_path / "e.nc", values)
    io.write(hydiff.fill(io.read(source), method="linear", outside="fill").cube, tmp_path / "f.nc")
    options = {"engine": "h5netcdf", "phony_dims": "access"}
    with xarray.open_dataset(tmp_path / "f.nc", **options) as opened:
        assert opened["reflectance"].dims == ("downtrack", "crosstrack", "bands")
        assert np.isfinite(opened["reflectance"].values).all()
    with xarray.open_dataset(tmp_path / "f.nc", group="location", **options) as place:
        assert "glt_x" in place


# --- two detectors --------------------------------------------------------------------------------


def test_prisma_is_put_in_order(tmp_path: Path) -> None:
    numbers = (products.scene(13, 6, 7) * 6e4).astype("u2")
    cube = io.read(products.prisma(tmp_path / "p.he5", numbers[:5], numbers[5:]))
    assert np.array_equal(np.asarray(cube.values), numbers)
    assert cube.values[4:6].tobytes() == numbers[4:6].tobytes()  # across the two detectors
    assert cube.detectors == ("VNIR",) * 5 + ("SWIR",) * 8
    assert cube.wavelengths is not None and cube.good is not None
    assert list(np.flatnonzero(~cube.good)) == [4] and cube.wavelengths[4] == 0
    used = cube.wavelengths[cube.good]
    assert (np.diff(used[:4]) > 0).all() and (np.diff(used[4:]) > 0).all()
    gains = [float(g) for g in cube.attrs["data gain values"]]
    assert gains[0] == pytest.approx(1.5 / 65535) and gains[-1] == pytest.approx(2.5 / 65535)
    # the corners are centres of pixels: the map begins half a pixel before them
    assert cube.transform == (30.0, 0.0, 500000.0, 0.0, -30.0, 5000030.0)
    level_1 = io.read(products.prisma(tmp_path / "q.he5", numbers[:5], numbers[5:], level="L1"))
    assert level_1.transform is None
    assert float(level_1.attrs["data gain values"][-1]) == pytest.approx(1 / 101)
    assert float(level_1.attrs["data offset values"][-1]) == -1


def test_each_prisma_detector_has_its_own_swath(tmp_path: Path) -> None:
    numbers = (products.scene(10, 6, 7) * 6e4).astype("u2")
    numbers[:4, 2] = 0  # VNIR only
    numbers[6, 4, 4] = 0  # one band of a pixel is a measurement
    seen = io.read(products.prisma(tmp_path / "p.he5", numbers[:4], numbers[4:])).observed()
    expected = np.ones(numbers.shape, bool)
    expected[:4, 2] = False
    assert np.array_equal(seen, expected)


def test_detectors_are_scaled_apart() -> None:
    """A gain on one detector changes neither the other one nor, but for it, its own fill."""
    truth = products.scene(12, 24, 26)
    detector = ["VNIR"] * 6 + ["SWIR"] * 6
    observed = np.ones(truth.shape, bool)
    observed[:6, 8:11] = False
    observed[6:, :, 12:15] = False
    gain = np.where(np.arange(12) < 6, 1.0, 4096.0)[:, None, None]  # exact in floats

    def filled(values: np.ndarray, **options: Any) -> np.ndarray:
        cube = Cube(values, attrs={"detector": detector})
        return hydiff.fill(cube, observed, method="smooth", **options).values

    plain, scaled = filled(truth), filled(truth * gain)
    assert np.array_equal(scaled / gain, plain)
    one_scale = hydiff.fill(truth * gain, observed, method="smooth").values
    assert not np.array_equal(one_scale / gain, plain)  # so the detectors make a difference
    noisy = filled(truth * gain, sigma_y={"VNIR": 0.01, "SWIR": 40.96})
    np.testing.assert_allclose(noisy / gain, filled(truth, sigma_y=0.01), rtol=1e-7)
    per_band = filled(truth * gain, sigma_y=np.where(np.arange(12) < 6, 0.01, 40.96))
    assert np.array_equal(noisy, per_band)
    named, sigma_y = Cube(truth * gain, attrs={"detector": detector}), {"VNIR": 0.5, "SWIR": 9}
    noise = hydiff.fill(named, observed, sigma_y=sigma_y, method="smooth").sigma_y
    np.testing.assert_allclose(noise, [0.5] * 6 + [9] * 6)
    with pytest.raises(hydiff.HydiffError, match="SWIR"):
        filled(truth, sigma_y={"VNIR": 1.0})
    with pytest.raises(hydiff.HydiffError, match="unknown detector 'TIR'"):
        filled(truth, sigma_y={"TIR": 1.0})


def test_a_lost_detector_is_refused_with_the_reason() -> None:
    truth = products.scene(12, 10, 12)
    detector = ["VNIR"] * 5 + ["SWIR"] * 7
    values = truth.copy()
    values[5:] = np.nan
    values[:5, 4] = np.nan
    result = hydiff.fill(Cube(values, attrs={"detector": detector}))
    assert result.left == {"the whole detector SWIR is lost: nothing to fill it from": 7 * 120}
    assert result.filled[:5, 4].all() and not result.filled[5:].any()
    unnamed = hydiff.fill(Cube(values))
    assert unnamed.left == {"bands 5-11 are lost together: nothing to fill them from": 7 * 120}
    good = np.arange(12) < 5
    bad = hydiff.fill(Cube(values, good=good))
    assert bad.left == {"band without any observed pixel": 7 * 120}


def test_detectors_travel_with_the_cube(tmp_path: Path) -> None:
    numbers = (products.scene(9, 6, 7) * 6e4).astype("u2")
    cube = io.read(products.prisma(tmp_path / "p.he5", numbers[:4], numbers[4:]))
    for suffix in (".tif", ".bil", ".npz", ".zarr"):
        again = io.read(io.write(cube, tmp_path / f"a{suffix}")[0])
        assert again.detectors == cube.detectors, suffix
        assert again.attrs["data gain values"] == cube.attrs["data gain values"]
        assert again.window(bands=slice(2, 6)).detectors == ("VNIR", "VNIR", "SWIR", "SWIR")
    with rasterio.open(tmp_path / "a.tif") as dataset:
        assert dataset.scales[0] == pytest.approx(1.5 / 65535)


# --- EnMAP, DESIS, AVIRIS, Hyperion ---------------------------------------------------------------


def test_enmap_metadata(tmp_path: Path) -> None:
    values = (products.scene(12, 8, 9) * 1e4).astype("i2")
    values[[4, 5]] = -32768
    folder = products.enmap(tmp_path / "E", values, empty=(4, 5))
    cube = io.read(folder)
    assert cube.nodata == -32768 and cube.good is not None and cube.wavelengths is not None
    assert list(np.flatnonzero(~cube.good)) == [4, 5]
    assert cube.detectors == ("VNIR",) * 6 + ("SWIR",) * 6
    assert cube.wavelengths[5] > cube.wavelengths[6]  # the detectors overlap
    assert np.array_equal(np.asarray(cube.values), values)
    inside = sorted(folder.glob("*-SPECTRAL_IMAGE.TIF")) + sorted(folder.glob("*-METADATA.XML"))
    for path in inside:
        assert io.read(path).path == folder
    listed = inside[1].read_text()
    inside[1].write_text(listed.replace("List>1,2,3,4,5,6<", "List>1,2,8<"))
    assert [i for i, d in enumerate(io.read(folder).detectors or ()) if d == "VNIR"] == [0, 1, 7]
    inside[1].write_text(listed.replace("ProductQuality", "Nothing"))
    assert io.read(folder).detectors == cube.detectors  # by the step back in wavelength
    packed = products.enmap(tmp_path / "Z", values, zipped=True)
    assert np.array_equal(np.asarray(io.read(packed).values), values)
    made = io.write(io.read(packed), tmp_path / "unpacked")[0]
    assert made.is_dir() and np.array_equal(np.asarray(io.read(made).values), values)
    with rasterio.open(next(made.glob("*SPECTRAL_IMAGE.TIF"))) as dataset:
        assert np.array_equal(dataset.read(), values)


@pytest.mark.parametrize("tile", [None, 8])
@pytest.mark.parametrize("kind", ["enmap", "zarr"])
def test_an_output_within_the_input_is_refused(kind: str, tile: int | None, tmp_path: Path) -> None:
    """The fill itself would change its input, and be refused for that at its end."""
    missing = np.zeros((12, 14), bool)
    missing[4:6, 5:8] = True
    source = make(kind, tmp_path, products.scene(6, 12, 14), missing)
    before = sorted(source.rglob("*"))
    order = Request(method="linear")
    with pytest.raises(OutputError, match=r"x\.tif lies inside the input .* beside it"):
        execute.fill_file(source, source / "x.tif", order, limits(None, tile))
    assert sorted(source.rglob("*")) == before


def test_a_packed_enmap_product_holds_no_clock_time(tmp_path: Path) -> None:
    """Or two equal fills would differ in their bytes."""
    values = (products.scene(8, 9, 7) * 1e4).astype("i2")
    packed = products.enmap(tmp_path / "Z", values, zipped=True)
    made = io.write(io.read(packed), tmp_path / "again.zip")[0]
    with zipfile.ZipFile(made) as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


def test_real_enmap_tiles_stay_geotiffs(data_dir: Path) -> None:
    cube = io.read(NATIVE / "enmap_potsdam_tile_64_0.tif")
    assert cube.format == "geotiff" and cube.nodata == -32768
    result = hydiff.fill(cube, method="nearest")
    assert result.left == {"band without any observed pixel": 6 * 32 * 32} or not result.left


def test_desis_reads_its_header(tmp_path: Path) -> None:
    values = (products.scene(7, 8, 9) * 1e4).astype("i2")
    image = products.desis(tmp_path, values)
    for path in (image, image.with_suffix(".hdr")):
        cube = io.read(path)
        assert cube.format == "desis" and cube.path == image
        assert cube.wavelengths is not None and cube.wavelengths[-1] == 999
        assert cube.attrs["data gain values"] == ["0.0001"] * 7
        assert np.array_equal(np.asarray(cube.values), values)
    # the header of an ENVI file that shares its name with a GeoTIFF is not the GeoTIFF's
    products.envi(tmp_path / "a.img", values)
    (tmp_path / "a.img.hdr").rename(tmp_path / "a.hdr")
    (tmp_path / "a.hdr").write_text((tmp_path / "a.hdr").read_text() + "wavelength = {1,2,3}\n")
    products.geotiff(tmp_path / "a.tif", values)
    assert io.read(tmp_path / "a.tif").format == "geotiff"


def test_aviris_netcdf(tmp_path: Path) -> None:
    values = products.scene(7, 8, 9).astype("f4")
    cube = io.read(products.aviris(tmp_path / "AV3.nc", values, "reflectance"))
    assert cube.format == "aviris" and cube.transform == (4.9, 0, 500000, 0, -4.9, 5000000)
    assert cube.crs == products.UTM.to_wkt()
    assert np.array_equal(np.asarray(cube.values), values)


def test_conventions_of_undeclared_files(tmp_path: Path) -> None:
    values = (products.scene(6, 8, 9) * 1e3).astype("i2")
    classic = values.copy()
    classic[:, :2] = -50
    classic[:2, 3] = 0
    classic[2:, 3] = -np.array([9, 8, 7, 6])[:, None]  # -0.9999 times a factor per band
    classic[3, 5, 5] = -50  # a measurement, since the rest of the pixel is one
    seen = io.read(products.envi(tmp_path / "f130522t01p00r12_rdn", classic)).observed()
    assert not seen[:, [0, 1, 3]].any() and seen[:, 4:].all() and seen[:, 2].all()
    plain = io.read(products.envi(tmp_path / "other", classic))
    assert plain.observed().all()
    declared = io.read(
        products.envi(tmp_path / "declared", classic, **{"sensor type": "AVIRIS-Classic"})
    )
    assert np.array_equal(declared.observed(), seen)
    ng = values.astype("f4")
    ng[:, 2] = -9999
    cube = io.read(products.envi(tmp_path / "ang20180814t224053_rfl", ng))
    assert cube.nodata == -9999 and not cube.observed()[:, 2].any()
    declared = {"data ignore value": "-1"}
    assert io.read(products.envi(tmp_path / "av320240101t000000", ng, **declared)).nodata == -1


def test_hyperion_channels_without_calibration_are_bad(tmp_path: Path) -> None:
    values = (products.scene(242, 4, 5) * 1e3).astype("i2")
    values[np.array(conventions.UNCALIBRATED) - 1] = 0
    values[:, 0, :2] = 0
    cube = io.read(products.envi(tmp_path / "EO1H1150662006130110PY", values))
    assert cube.good is not None and cube.good.sum() == 198
    assert cube.good[[7, 56, 76, 223]].all() and not cube.good[[6, 57, 75, 224]].any()
    seen = cube.observed()
    assert not seen[:, 0, :2].any() and seen[:, 1:].all()
    io.write(hydiff.fill(cube, method="nearest", outside="fill").cube, tmp_path / "EO1Hx.tif")


# --- Zarr -----------------------------------------------------------------------------------------


def test_zarr_as_xarray_writes_and_reads_it(tmp_path: Path) -> None:
    values = products.scene(5, 9, 8).astype("f4")
    values[:, 3] = np.nan
    dims = ("y", "x", "wavelength")
    array = xarray.DataArray(
        values.transpose(1, 2, 0),
        dims=dims,
        name="reflectance",
        coords={"wavelength": products.wavelengths(5), "fwhm": ("wavelength", np.full(5, 8.5))},
        attrs={"long_name": "surface reflectance"},
    )
    for version in (2, 3):
        path = tmp_path / f"x{version}.zarr"
        array.to_dataset().to_zarr(path, zarr_format=version, consolidated=False)
        cube = io.read(path)
        assert np.array_equal(np.asarray(cube.values), values, equal_nan=True)
        assert cube.wavelengths is not None and cube.wavelengths[0] == 381
        assert cube.fwhm is not None and cube.nodata is None
        assert not cube.observed()[:, 3].any()
        filled = io.write(hydiff.fill(cube).cube, tmp_path / f"f{version}.zarr")[0]
        with xarray.open_zarr(filled, consolidated=False) as again:
            assert again["reflectance"].dims == dims
            assert np.isfinite(again["reflectance"].values).all()
            attrs = again["reflectance"].attrs
            assert {k: v for k, v in attrs.items() if k not in GAINED} == array.attrs


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_the_fill_value_that_xarray_encodes(dtype: str, version: int, tmp_path: Path) -> None:
    values = np.round(products.scene(3, 6, 5) * 100)
    values[:, 2] = np.nan
    array = xarray.DataArray(values, dims=("band", "y", "x"), name="cube")
    encoding = {"cube": {"_FillValue": np.dtype(dtype).type(-9999), "dtype": dtype}}
    kept = {"encoding": encoding, "zarr_format": version, "consolidated": False}
    array.to_dataset().to_zarr(tmp_path / "a.zarr", **kept)
    cube = io.read(tmp_path / "a.zarr")
    assert cube.nodata == -9999 and cube.observed().sum() == np.isfinite(values).sum()
    copy = io.write(replace(cube, path=None), tmp_path / "b.zarr")[0]
    for path in (tmp_path / "a.zarr", copy):
        with xarray.open_zarr(path, consolidated=False) as opened:
            assert np.array_equal(opened["cube"].values, values, equal_nan=True)
    assert np.array_equal(io.read(copy).observed(), cube.observed())


def test_the_fill_value_of_other_writers_is_no_nodata(tmp_path: Path) -> None:
    """zarr sets it to 0 for arrays of version 2."""
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((3, 4, 5), "i2"), zarr_format=2)
    assert io.read(tmp_path / "a.zarr").nodata is None


def test_zarr_from_scratch(tmp_path: Path) -> None:
    """NaN for what is missing, no shards, coordinates that xarray finds."""
    values = products.scene(5, 70, 90).astype("f4")
    values[:, 3] = -9999
    cube = Cube(
        values,
        wavelengths=products.wavelengths(5),
        wavelength_units="nm",
        nodata=-9999,
        crs=products.UTM.to_wkt(),
        transform=(30.0, 0.0, 500000.0, 0.0, -30.0, 5000000.0),
        band_names=tuple("abcde"),
    )
    path = io.write(cube, tmp_path / "a.zarr")[0]
    with xarray.open_zarr(path, consolidated=False) as opened:
        assert np.isnan(opened["cube"].values[:, 3]).all()
        assert np.array_equal(opened["cube"].values[:, 4:], values[:, 4:])
        assert {"wavelength", "x", "y", "spatial_ref"} <= set(opened.coords)
        assert opened["cube"].encoding.get("shards") is None
    again = io.read(path)
    assert again.crs == cube.crs and again.transform == cube.transform
    assert again.band_names == cube.band_names and again.wavelength_units == "nm"
    io.write(again, path, overwrite=True)
    assert np.array_equal(io.read(path).observed(), cube.observed())
    for nodata in (7, -9999):  # the second is no value of the dtype
        counts = Cube(np.arange(60, dtype="u2").reshape(3, 4, 5), nodata=nodata)
        path = io.write(counts, tmp_path / "b.zarr", overwrite=True)[0]
        assert io.read(path).nodata == nodata
        with xarray.open_zarr(path, consolidated=False) as opened:
            assert np.isnan(opened["cube"].values).sum() == (nodata == 7)


def test_a_folder_that_is_no_product_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "thesis.txt").write_text("all of it")
    with pytest.raises(hydiff.HydiffError, match="is a folder"):
        io.write(Cube(np.ones((2, 3, 4))), tmp_path / "a.zarr", overwrite=True)
    assert (tmp_path / "a.zarr" / "thesis.txt").exists()


@pytest.mark.parametrize("kind", ["enmap", "zarr", "enmap zip", "emit"])
def test_a_fill_of_any_product_is_saved_with_its_companions(tmp_path: Path, kind: str) -> None:
    missing = np.zeros((12, 11), bool)
    missing[5:7] = True
    source = make(kind, tmp_path, products.scene(6, 12, 11), missing)
    result = hydiff.fill(io.read(source), method="smooth")
    made = provenance.save(result, tmp_path / f"out{source.suffix}")
    beside = (".flags.tif", ".why.tif") if "enmap" in kind else ()  # else they are in the file
    assert [p.name for p in made[1:]] == [made[0].name + e for e in (*beside, ".fill.json")]
    assert all(path.exists() for path in made)
    again = provenance.companions(made[0], result.cube.shape)["filled"]
    assert np.array_equal(again, result.filled)
    before = provenance.sha256(source)
    assert before == provenance.sha256(source) != provenance.sha256(made[0])


def test_simulated_gaps_in_a_product(tmp_path: Path) -> None:
    source = products.emit(tmp_path / "e.nc", products.scene(6, 70, 11).astype("f4"))
    words = ["simulate", str(source), "-o", str(tmp_path / "d.nc"), "--mask", "frames"]
    assert CliRunner().invoke(app, words).exit_code == 0
    again = io.read(tmp_path / "d.nc")
    observed = io.read_mask(tmp_path / "d.nc.missing.npz", "missing", again.shape)
    assert np.array_equal(again.observed(), np.broadcast_to(observed, again.shape))
    assert not observed.all()
    assert again.glt is not None and again.format == "emit"


def test_info_counts_used_channels_only(tmp_path: Path) -> None:
    numbers = (products.scene(9, 6, 7) * 6e4).astype("u2")
    cube = io.read(products.prisma(tmp_path / "p.he5", numbers[:4], numbers[4:]))
    found = facts(cube)
    assert found["wavelengths"] == [402, 2497] and found["bad_bands"] == [3]
    assert found["detectors"] == {"VNIR": "bands 0-3", "SWIR": "bands 4-8"}


# --- windows --------------------------------------------------------------------------------------


def test_products_are_rewritten_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No block that is read or written is larger than the budget and the file's own chunks."""
    from hydiff.io import blocks

    monkeypatch.setattr(blocks, "BUDGET", 1)
    values = products.scene(9, 50, 40).astype("f4")
    values[:, 20] = -9999
    asked: list[int] = []

    class Counting:
        shape, dtype = values.shape, values.dtype

        def __getitem__(self, key: Any) -> np.ndarray:
            asked.append(int(np.prod(values[key].shape)))
            return np.where(values[key] == -9999, 0.5, values[key]).astype("f4")

    cube = io.read(products.emit(tmp_path / "e.nc", values))
    io.write(replace(cube, values=Counting()), tmp_path / "f.nc")
    assert max(asked) == 8 * 16 * 40 and sum(asked) == values.size
    assert (np.asarray(io.read(tmp_path / "f.nc").values)[:, 20] == 0.5).all()


def test_a_cog_is_one(tmp_path: Path) -> None:
    values = products.scene(3, 700, 600).astype("f4")
    cube = Cube(values, wavelengths=products.wavelengths(3), nodata=-1)
    path = io.write(cube, tmp_path / "a.tif")[0]
    geotiff.cloud_optimised(path)
    with rasterio.open(path) as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert dataset.overviews(1)
    again = io.read(path)
    assert np.array_equal(np.asarray(again.values), values)
    assert again.wavelengths is not None and again.nodata == -1
    assert [p.name for p in tmp_path.iterdir()] == ["a.tif"]


def test_the_map_of_aviris_by_cf(tmp_path: Path) -> None:
    path = products.aviris(tmp_path / "x.nc", products.scene(4, 5, 6))
    expected = io.read(path)
    with h5py.File(path, "r+") as file:
        file.move("transverse_mercator", "utm")
        file["radiance/radiance"].attrs["grid_mapping"] = "utm"
        file["utm"].attrs["crs_wkt"] = file["utm"].attrs["spatial_ref"]
        del file["utm"].attrs["spatial_ref"]
    cube = io.read(path)
    assert (cube.crs, cube.transform) == (expected.crs, expected.transform)
    assert cube.crs is not None


def test_hidden_files_of_macos_are_no_scene(tmp_path: Path) -> None:
    product = products.enmap(tmp_path / "E", (products.scene(4, 8, 9) * 1e4).astype("i2"))
    values = np.asarray(io.read(product).values)
    for path in list(product.iterdir()):
        path.with_name(f"._{path.name}").write_bytes(b"Mac OS X")
    np.testing.assert_array_equal(np.asarray(io.read(product).values), values)


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "Nanometers"), (1e-3, "Micrometers")])
def test_a_header_beside_an_image_without_a_unit(tmp_path: Path, factor: float, unit: str) -> None:
    """The size of the numbers tells the unit; it was taken as nanometres."""
    image = products.geotiff(tmp_path / "x.tif", products.scene(3, 8, 9).astype("f4"))
    waves = factor * np.array([450.0, 550.0, 650.0])
    text = "samples = 9\nlines = 8\nbands = 3\ndata type = 4\ninterleave = tif"
    listed = ", ".join(map(str, waves))
    image.with_suffix(".hdr").write_text(f"ENVI\n{text}\nwavelength = {{{listed}}}\n")
    cube = io.read(image)
    assert (cube.format, cube.wavelength_units) == ("desis", unit)
    np.testing.assert_allclose(cube.wavelengths, waves)
