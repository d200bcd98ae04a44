"""hydiff.io on files as their makers ship them (HYDIFF_DATA), and on files of real size."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import spectral
from scipy.io import loadmat

import products
from hydiff import io
from hydiff.cube import Cube
from hydiff.io import envi_header, geotiff_tags

DATA = Path(os.environ.get("HYDIFF_DATA") or Path(__file__).parents[2] / "shared" / "data")
NATIVE = DATA / "native"
needs_data = pytest.mark.skipif(
    not NATIVE.is_dir(), reason=f"no real files in {NATIVE}; set HYDIFF_DATA to their folder"
)

FILES = {
    "AV_mastercal_testdata.bsq": (194, 50, 50),
    "enmap_potsdam_tile_64_0.tif": (224, 32, 32),
    "enmap_potsdam_tile_96_0.tif": (224, 32, 32),
    "chikusei_patch_v73.mat": (128, 36, 36),
    "paris_data_hs_ms.mat": (128, 72, 72),
    "indian_pines_corrected.npy": (200, 145, 145),
    "indian_pines_labels.npy": (1, 145, 145),
}


def opened(name: str) -> Cube:
    return io.read(NATIVE / name, var="HSim" if name.startswith("paris") else None)


def with_changes(cube: Cube) -> tuple[Cube, np.ndarray]:
    """The cube with a few entries changed, and its values."""
    values = np.array(cube.values)
    values[0, 3, 4] = 7
    values[-1, 5:8, 9] = 11
    return replace(cube, values=values), values


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_round_trip(tmp_path: Path, name: str) -> None:
    cube = opened(name)
    assert cube.shape == FILES[name]
    assert cube.path == NATIVE / name
    changed, values = with_changes(cube)
    made = io.write(changed, tmp_path / name)
    assert {p.name for p in made} == {p.name for p in tmp_path.iterdir()}
    again = io.read(made[0], var=cube.attrs.get("array", {}).get("var"))
    assert np.array_equal(np.asarray(again.values), values, equal_nan=values.dtype.kind == "f")
    assert again.dtype == cube.dtype
    assert io._describes(made[0], cube, None)


@needs_data
@pytest.mark.parametrize("suffix", [".bip", ".tif", ".mat", ".npy", ".npz"])
@pytest.mark.parametrize("name", FILES)
def test_conversion(tmp_path: Path, name: str, suffix: str) -> None:
    cube = opened(name)
    if suffix == Path(name).suffix:
        cube = replace(cube, path=None)  # from scratch, not as a copy
    again = io.read(io.write(cube, tmp_path / f"a{suffix}")[0])
    assert np.array_equal(np.asarray(again.values), np.asarray(cube.values))
    for field in io.FIELDS:
        assert io._equal(getattr(again, field), getattr(cube, field)), field


@needs_data
def test_envi_copy_is_the_same_but_for_the_changes(tmp_path: Path) -> None:
    cube = opened("AV_mastercal_testdata.bsq")
    changed, values = with_changes(cube)
    data, header = io.write(changed, tmp_path / "b.bsq")
    assert header.read_bytes() == (NATIVE / "AV_mastercal_testdata.hdr").read_bytes()
    assert data.read_bytes() == values.tobytes()
    image = spectral.open_image(str(header))
    assert image.bands.centers == list(cube.wavelengths)
    with rasterio.open(data) as ours, rasterio.open(cube.path) as theirs:
        assert ours.profile == theirs.profile
        assert [ours.tags(i) for i in ours.indexes] == [theirs.tags(i) for i in ours.indexes]
        assert cube.crs == theirs.crs.to_wkt()
        assert cube.transform == tuple(theirs.transform)[:6]


@needs_data
def test_envi_from_scratch_keeps_its_map_info(tmp_path: Path) -> None:
    cube = opened("AV_mastercal_testdata.bsq")
    data, header = io.write(cube, tmp_path / "b.bil")
    assert envi_header.parse(header)["map info"] == cube.attrs["map info"]
    with rasterio.open(data) as dataset:
        assert dataset.crs == rasterio.CRS.from_epsg(32610)
        assert tuple(dataset.transform)[:6] == cube.transform
    assert spectral.open_image(str(header)).bands.centers == list(cube.wavelengths)


@needs_data
def test_geotiff_copy_keeps_all_tags(tmp_path: Path) -> None:
    cube = opened("enmap_potsdam_tile_64_0.tif")
    assert cube.nodata == -32768
    assert not cube.good[129:134].any()
    assert list(cube.wavelengths[:2]) == [418.24, 423.874]
    changed, _ = with_changes(cube)
    path = io.write(changed, tmp_path / "b.tif")[0]
    assert not list(tmp_path.glob("*.xml"))
    with rasterio.open(path) as ours, rasterio.open(cube.path) as theirs:
        assert ours.profile == theirs.profile
        assert ours.tag_namespaces() == theirs.tag_namespaces()
        for ns in (None, *(ns for ns in theirs.tag_namespaces() if ns not in geotiff_tags.MADE_UP)):
            assert ours.tags(ns=ns) == theirs.tags(ns=ns)
        for i in theirs.indexes:
            assert ours.tags(i) == theirs.tags(i)
        assert ours.descriptions == theirs.descriptions
        assert (ours.scales, ours.offsets) == (theirs.scales, theirs.offsets)


@needs_data
def test_mat_5_copy_keeps_other_variables(tmp_path: Path) -> None:
    cube = opened("paris_data_hs_ms.mat")
    changed, values = with_changes(cube)
    before = loadmat(cube.path, mat_dtype=True)
    after = loadmat(io.write(changed, tmp_path / "b.mat")[0], mat_dtype=True)
    assert before.keys() == after.keys()
    for name in ("MSim", "non_del_bands"):
        assert after[name].dtype == before[name].dtype
        assert np.array_equal(after[name], before[name])
    assert np.array_equal(after["HSim"], values.transpose(1, 2, 0))


@needs_data
def test_mat_73_is_read_as_its_readme_says_and_copied_in_place(tmp_path: Path) -> None:
    cube = opened("chikusei_patch_v73.mat")
    with h5py.File(cube.path) as file:
        rows_cols_bands = file["clean_image"][..., 0].transpose(1, 0, 2)
    assert np.array_equal(np.asarray(cube.values), rows_cols_bands.transpose(2, 0, 1))
    changed, _ = with_changes(cube)
    path = io.write(changed, tmp_path / "b.mat")[0]
    assert path.read_bytes()[:512] == cube.path.read_bytes()[:512]
    with h5py.File(path) as ours, h5py.File(cube.path) as theirs:
        one, other = ours["clean_image"], theirs["clean_image"]
        assert dict(one.attrs) == dict(other.attrs)
        assert (one.chunks, one.compression, one.shape) == (other.chunks, "gzip", other.shape)
        assert np.count_nonzero(one[()] != other[()]) == 4


@needs_data
@pytest.mark.parametrize("path", sorted((DATA / "dev").glob("*.npz")), ids=lambda p: p.stem)
def test_dev_crops(path: Path) -> None:
    cube = io.read(path)
    with np.load(path) as arrays:
        assert np.array_equal(np.asarray(cube.values), arrays["cube"].transpose(2, 0, 1))
        assert (cube.wavelengths is None) == ("wavelength_nm" not in arrays.files)


@needs_data
def test_native_masks() -> None:
    names = ("low_rank_sparsity_mask", "second_mask", "third_mask", "fourth_mask")
    for name, share in zip(names, (0.05, 0.23, 0.25, 0.33), strict=True):
        observed = io.read_mask(NATIVE / f"{name}.mat", "observed", (128, 36, 36))
        assert observed.shape == (36, 36)
        assert abs((~observed).mean() - share) < 0.006


# --- size -----------------------------------------------------------------------------------------

PEAK = """
def peak():  # MB; ru_maxrss would start with that of the process that forked this one
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
"""
GROWTH = (
    PEAK
    + """
import sys
import numpy as np
from hydiff import io

import h5py, rasterio, spectral
before = peak()
cube = io.read(sys.argv[1])
window = cube.window(rows=slice(600, 616), cols=slice(500, 516))
assert window.shape == (285, 16, 16), window.shape
assert cube.nbytes > 1.8e9
print(peak() - before)
"""
)
SHAPE = (285, 1280, 1242)  # an EMIT scene, 1.8 GB of float32


def sparse_envi(path: Path) -> None:
    header = "ENVI\nsamples = 1242\nlines = 1280\nbands = 285\ndata type = 4\ninterleave = bil\n"
    path.with_suffix(".hdr").write_text(header + "byte order = 0\n")
    with path.open("wb") as file:
        file.truncate(int(np.prod(SHAPE)) * 4)


def sparse_npy(path: Path) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (1280, 1242, 285)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(SHAPE)) * 4)


def sparse_tif(path: Path) -> None:
    options = {"tiled": True, "blockxsize": 256, "blockysize": 256, "sparse_ok": True}
    profile = {"driver": "GTiff", "count": 285, "height": 1280, "width": 1242, "dtype": "float32"}
    with rasterio.open(path, "w", interleave="band", **profile, **options):
        pass


def sparse_mat(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("cube", (285, 1242, 1280), "f4", chunks=(1, 256, 256))


def sparse_emit(path: Path) -> None:
    """The layout of a scene; chunks of 4 MB, all but two of which hold nothing but fill values."""
    products.emit(path, np.zeros((285, 4, 4), "f4"))
    with h5py.File(path, "r+") as file:
        del file["reflectance"], file["location/glt_x"], file["location/glt_y"]
        cube = file.create_dataset(
            "reflectance", (1280, 1242, 285), "f4", chunks=(160, 156, 36), fillvalue=-9999,
            compression="gzip", shuffle=True,
        )  # fmt: skip
        cube.attrs["_FillValue"] = np.array([-9999], "f4")
        cube[640:800, :156, :72] = 0.25
        for name in ("glt_x", "glt_y"):
            file["location"].create_dataset(name, (2009, 2434), "i4", chunks=(256, 256))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.img", sparse_envi),
        ("a.npy", sparse_npy),
        ("a.tif", sparse_tif),
        ("a.mat", sparse_mat),
        ("a.nc", sparse_emit),
    ],
)
def test_a_large_file_is_opened_in_little_memory(tmp_path: Path, name: str, make) -> None:
    make(tmp_path / name)
    command = [sys.executable, "-c", GROWTH, str(tmp_path / name)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    # GDAL keeps the tiles it reads in its cache, 285 x 256 KB; the mapped files need next to none
    assert float(result.stdout) < (150 if name.endswith(".tif") else 60), result.stdout


def test_info_on_an_emit_scene_reads_little(tmp_path: Path) -> None:
    sparse_emit(tmp_path / "a.nc")
    code = (
        PEAK
        + """
import sys
from hydiff import io
from hydiff.gaps.describe import facts
found = facts(io.read(sys.argv[1]))
print(peak())
print(found["values"]["sample"], found["values"]["missing_share"])
"""
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.nc")]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(done[0]) < 300
    assert done[1:4] == ["9", "sampled", "chunks"] and 0.5 < float(done[4]) <= 1


def test_importing_io_imports_no_format_library() -> None:
    code = """
import sys, types
from pathlib import Path
package = types.ModuleType("hydiff")  # the package without what its __init__ imports
package.__path__ = [sys.argv[1]]
sys.modules["hydiff"] = package
import hydiff.io
for name in hydiff.io.FORMATS: hydiff.io._module(name)
print([m for m in ("torch", "rasterio", "h5py", "spectral", "scipy", "xarray") if m in sys.modules])
"""
    command = [sys.executable, "-c", code, str(Path(io.__file__).parents[1])]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "[]"
