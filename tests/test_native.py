"""Files as their makers ship them: info → simulate → fill → score → convert, and what other
libraries read in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import rasterio
import scipy.io
import spectral
import xarray as xr
from typer.testing import CliRunner

import hydiff
from conftest import DATA
from hydiff import io
from hydiff.cli import app
from hydiff.cube import Array

NATIVE = DATA / "native"
pytestmark = pytest.mark.skipif(
    not NATIVE.is_dir(), reason=f"no native files at {NATIVE}; set HYDIFF_DATA to their folder"
)


class Reading(NamedTuple):
    """What another library reads; None where the file does not say it."""

    values: Array  # (bands, rows, cols)
    wavelengths: Array | None = None
    nodata: float | None = None


def by_spectral(path: Path) -> Reading:
    """SPy's reader; wavelengths as it parses them, or from the names of the bands."""
    image = spectral.envi.open(
        str(path.with_suffix(".hdr") if path.suffix else f"{path}.hdr"), path
    )
    values = np.asarray(image.open_memmap()).transpose(2, 0, 1)
    meta = image.metadata
    nodata = meta.get("data ignore value")
    centers = image.bands.centers
    if centers is None:
        words = (name.replace("(", " ").split() for name in meta["band names"])
        centers = [
            next(float(w) for w in line if w.replace(".", "").isdigit() and "." in w)
            for line in words
        ]
    return Reading(values, np.array(centers), None if nodata is None else float(nodata))


def by_rasterio(path: Path) -> Reading:
    with rasterio.open(path) as dataset:
        tags = [dataset.tags(band) for band in dataset.indexes]
        waves = [tag.get("wavelength") for tag in tags]
        waves = np.array(waves, float) if all(waves) else None
        return Reading(dataset.read(), waves, dataset.nodata)


def by_gdal_envi(path: Path) -> Reading:
    with rasterio.open(path, driver="ENVI") as dataset:
        return Reading(dataset.read(), None, dataset.nodata)


def by_xarray(path: Path) -> Reading:
    with xr.open_dataset(path, engine="h5netcdf", mask_and_scale=False) as dataset:
        name = "obs" if "obs" in dataset else "mask"
        nodata = float(np.ravel(dataset[name].attrs["_FillValue"])[0])
        return Reading(dataset[name].values.transpose(2, 0, 1), None, nodata)


def by_h5py(path: Path) -> Reading:
    with h5py.File(path) as file:
        cube = file["SJER/Reflectance/Reflectance_Data"]
        waves = file["SJER/Reflectance/Metadata/Spectral_Data/Wavelength"][()]
        nodata = float(cube.attrs["Data_Ignore_Value"][0])
        return Reading(cube[()].transpose(2, 0, 1), waves, nodata)


def by_h5py_of_matlab(path: Path) -> Reading:
    with h5py.File(path) as file:
        return Reading(file["clean_image"][..., 0].transpose(2, 1, 0))


def by_scipy(path: Path) -> Reading:
    return Reading(scipy.io.loadmat(path)["HSim"].transpose(2, 0, 1))


def by_numpy(path: Path) -> Reading:
    return Reading(np.load(path).transpose(2, 0, 1))


class NativeFile(NamedTuple):
    name: str
    reader: Callable[[Path], Reading]
    var: str | None = None


FILES = [
    NativeFile("AV_mastercal_testdata.bsq", by_spectral),
    NativeFile("AV_mastercal_testdata.bsq", by_gdal_envi),
    NativeFile("emit20250324t221005_jpl_unmix_ex", by_spectral),
    NativeFile("ang20160910t185702_2rdn_img", by_spectral),
    NativeFile("HyMap02_Berlin_Urban_Gradient_2009.bsq", by_spectral),
    NativeFile("HyMap02_Berlin_Urban_Gradient_2009.bsq", by_gdal_envi),
    NativeFile("corn-kernel-hyperspectral.raw", by_gdal_envi),
    NativeFile("enmap_potsdam_tile_64_0.tif", by_rasterio),
    NativeFile("enmap_potsdam_tile_96_0.tif", by_rasterio),
    NativeFile("EMIT_L1B_OBS_001_20220827T060753_9999999_999.nc", by_xarray),
    NativeFile("EMIT_L2A_MASK_001_20220827T060753_9999999_999.nc", by_xarray),
    NativeFile("neon_sjer_subset.h5", by_h5py),
    NativeFile("chikusei_patch_v73.mat", by_h5py_of_matlab),
    NativeFile("paris_data_hs_ms.mat", by_scipy, "HSim"),
    NativeFile("indian_pines_corrected.npy", by_numpy),
]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.name}-{f.reader.__name__}")
def test_other_libraries_read_the_same(file: NativeFile) -> None:
    cube, other = hydiff.read(NATIVE / file.name, var=file.var), file.reader(NATIVE / file.name)
    np.testing.assert_array_equal(cube.values, other.values)
    if other.wavelengths is not None:
        np.testing.assert_allclose(cube.wavelengths, other.wavelengths, rtol=1e-12)
    if other.nodata is not None:
        assert cube.nodata == other.nodata


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, f"{words}\n{done.output}\n{done.exception!r}"
    return done.stdout


NAMES = {file.name: file.var for file in FILES}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_goes_all_the_way(name: str, tmp_path: Path) -> None:
    """Damaged in its own format, filled, scored, converted; what was measured keeps its bits."""
    source, key = NATIVE / name, NAMES[name]
    var = [] if key is None else ["--var", key]
    if source.suffix == ".npy":  # the largest: a part of it
        np.save(tmp_path / name, np.load(source)[:40, :40])
        source = tmp_path / name
    cube = hydiff.read(source, var=key)
    assert json.loads(run("info", source, "--json", *var))["format"] == cube.format
    damaged, filled = (tmp_path / f"{step}{source.suffix}" for step in ("damaged", "filled"))
    run("simulate", source, "-o", damaged, "--mask", "lines", "--missing", 0.1, *var)
    gaps = hydiff.read(damaged, var=key)
    observed = gaps.observed()
    assert gaps.format == cube.format and (cube.observed() & ~observed).any()
    unmarked = ["--unmarked"] if source.suffix == ".npy" else []
    run("fill", damaged, "-o", filled, "--method", "linear", *unmarked, *var)
    after = hydiff.read(filled, var=key)
    kept, before = (np.asarray(c.values)[observed].tobytes() for c in (after, cube))
    assert kept == before
    scores = json.loads(run("score", filled, source, "--json", *var))
    assert 0 < scores["missing"]["nrmse"] < 2  # the steps fit together; not how well it fills
    assert cube.format != "envi" or cube.wavelengths is not None
    for suffix in (".tif", ".bip", ".zarr") if cube.format == "envi" else (".img",):
        run("convert", filled, tmp_path / f"other{suffix}", *var)
        again = io.read(tmp_path / f"other{suffix}")
        np.testing.assert_array_equal(np.asarray(again.values), np.asarray(after.values))
        assert np.array_equal(again.observed(), after.observed())
        for field in ("wavelengths", "good", "crs", "transform"):
            same(field, getattr(after, field), getattr(again, field))


def same(name: str, one: Any, other: Any) -> None:
    if name == "crs":
        assert (one is None) == (other is None)
    elif one is None:
        assert other is None
    else:
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-9)
