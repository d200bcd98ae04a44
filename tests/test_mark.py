"""A filled file says that it is filled, alone in a folder, to us and to the tools of others."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import scipy.io
import spectral.io.envi
import tifffile
import xarray
import zarr
from typer.testing import CliRunner

import hydiff
import products
from hydiff import io, mark
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.errors import BadValue, shell
from hydiff.gaps.describe import facts, lines
from hydiff.io import marks, provenance
from hydiff.io.ortho import ortho
from hydiff.io.transfer import convert
from hydiff.request import Request
from hydiff.scale.execute import fill_file
from hydiff.scale.scene import limits
from test_cli import refused

SHAPE = (6, 20, 18)
MISSING = np.zeros(SHAPE, bool)
MISSING[:, :, 7:9] = True  # a ninth of every band
SHARE = 1 / 9
TRUTH = products.scene(*SHAPE)
SHORTS = np.where(MISSING, -32768, TRUTH * 1e4).astype("i2")
FLOATS = np.where(MISSING, -9999, TRUTH).astype("f4")
SAYS = "11.11 % of the entries filled by nearest, not measured"
ORDER = Request(method="nearest", outside="fill")


def shorts(path: Path) -> Path:
    about = {"description": "Reflectance of a field", "sensor type": "made up"}
    return io.write(Cube(SHORTS, nodata=-32768.0, attrs=about), path)[0]


def prisma(folder: Path) -> Path:
    numbers = np.where(MISSING, 0, TRUTH * 6e4).astype("u2")
    return products.prisma(folder / "p.he5", numbers[:3], numbers[3:])


def mat73(folder: Path) -> Path:
    cube = Cube(SHORTS, nodata=-32768.0)
    io.mat._write_hdf5(cube, folder / "a.mat", ("rows", "cols", "bands"))
    return folder / "a.mat"


def zarr2(folder: Path) -> Path:
    values = np.where(MISSING, np.nan, TRUTH).astype("f4")
    cube = xarray.DataArray(values, dims=("band", "y", "x"), name="refl")
    path = folder / "two.zarr"
    cube.to_dataset().to_zarr(path, zarr_format=2, consolidated=True)
    return path


MAKE: dict[str, Callable[[Path], Path]] = {
    "emit": lambda f: products.emit(f / "e.nc", FLOATS),
    "aviris": lambda f: products.aviris(f / "a.nc", FLOATS),
    "neon": lambda f: products.neon(f / "n.h5", np.where(SHORTS == -32768, -9999, SHORTS)),
    "prisma": prisma,
    "enmap": lambda f: products.enmap(f / "ENMAP_L2A", SHORTS),
    "enmap zip": lambda f: products.enmap(f / "ENMAP_L2A", SHORTS, zipped=True),
    "desis": lambda f: products.desis(f, SHORTS),
    "geotiff": lambda f: shorts(f / "a.tif"),
    "envi": lambda f: shorts(f / "a.bil"),
    "zarr": lambda f: shorts(f / "a.zarr"),
    "zarr 2": zarr2,
    "mat": lambda f: shorts(f / "a.mat"),
    "mat 7.3": mat73,
    "npz": lambda f: shorts(f / "a.npz"),
}


def alone(path: Path, folder: Path) -> Path:
    """The file, with nothing that lies beside it, in an empty folder; ENVI is two files."""
    folder.mkdir()
    if path.suffix == ".bil":
        shutil.copy(path.with_suffix(".hdr"), folder)
    (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
    return folder / path.name


def filled(kind: str, folder: Path, **how: object) -> tuple[Path, Path]:
    """A product of this kind, and the same filled by the command's own function."""
    (folder / "in").mkdir()
    source = MAKE[kind](folder / "in")
    output = folder / f"out{source.suffix}"
    fill_file(source, output, replace(ORDER, **how), limits(None, None, None))
    return source, output


def info(path: Path) -> str:
    done = CliRunner().invoke(app, ["info", str(path)], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.output


# --- the tools of others: the text they show of a file --------------------------------------------


def by_xarray(path: Path) -> str:
    """netCDF: global attributes, and the flag variable with its meaning."""
    with xarray.open_dataset(path, engine="h5netcdf") as found:
        flag = found[found["reflectance"].attrs["ancillary_variables"].split()[0]]
        assert flag.dtype == np.uint8 and flag.dims == found["reflectance"].dims
        assert ((flag.values & 1) == MISSING.transpose(1, 2, 0)).all()
        assert flag.attrs["flag_meanings"].split()[0] == "filled"
        assert flag.attrs["flag_masks"].tolist() == [1, 2, 4, 8, 16, 32, 64, 128]
        said = found.attrs
    assert said["history"].endswith(said["hydiff_filled"])
    return f"{said['hydiff_filled']} {said['title']} {said['hydiff_record']}"


def by_h5py_in_a_group(path: Path) -> str:
    with h5py.File(path) as file:
        group = file["radiance"]
        flag = group[group["radiance"].attrs["ancillary_variables"].split()[0]]
        assert flag.dtype == np.uint8 and ((flag[()] & 1) == MISSING).all()
        return f"{file.attrs['hydiff_filled']} Gap-filled {file.attrs['hydiff_record']}"


def by_h5py_of_neon(path: Path) -> str:
    with h5py.File(path) as file:
        group = file["SJER/Reflectance"]
        flag = group[group["Reflectance_Data"].attrs["ancillary_variables"].split()[0]]
        assert ((flag[()] & 1) == MISSING.transpose(1, 2, 0)).all()
        return f"{file.attrs['hydiff_filled']} Gap-filled {file.attrs['hydiff_record']}"


def by_h5py(path: Path) -> str:
    with h5py.File(path) as file:
        fields = file["HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"]
        for detector in ("VNIR", "SWIR"):
            flag = fields[fields[f"{detector}_Cube"].attrs["ancillary_variables"].split()[0]]
            assert ((flag[()] & 1) == MISSING[:3].transpose(1, 0, 2)).all()
        return f"{file.attrs['hydiff_filled']} Gap-filled {file.attrs['hydiff_record']}"


def by_rasterio(path: Path | str) -> str:
    with rasterio.open(path) as dataset:
        shares = [float(dataset.tags(band)["FILLED_SHARE"]) for band in dataset.indexes]
        assert np.allclose(shares, SHARE, rtol=1e-4)
        tags = dataset.tags()
    assert tags["hydiff_filled"] in tags["history"]
    return f"{tags['hydiff_filled']} {tags['TIFFTAG_IMAGEDESCRIPTION']} {tags['hydiff_record']}"


def by_zipfile(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("-HYDIFF_FILLED.JSON"))
        image = next(n for n in archive.namelist() if n.endswith("SPECTRAL_IMAGE.TIF"))
        note = json.loads(archive.read(name))
    by_rasterio(f"/vsizip/{path}/{image}")
    return f"{note['hydiff_filled']} Gap-filled {json.dumps(note['hydiff_record'])}"


def by_listing(path: Path) -> str:
    """A folder: its member, and the tags of its image."""
    note = json.loads(next(path.glob("*-HYDIFF_FILLED.JSON")).read_text())
    by_rasterio(next(path.glob("*SPECTRAL_IMAGE.TIF")))
    return f"{note['hydiff_filled']} Gap-filled {json.dumps(note['hydiff_record'])}"


def by_spectral(path: Path) -> str:
    metadata = spectral.io.envi.open(path.with_suffix(".hdr"), path).metadata
    with rasterio.open(path) as dataset:  # GDAL
        assert dataset.tags(ns="ENVI")["hydiff_filled"] == metadata["hydiff filled"]
    assert np.allclose(np.array(metadata["hydiff filled by band"], float), SHARE, rtol=1e-4)
    return f"{metadata['hydiff filled']} {metadata['description']} out "


def by_open_zarr(path: Path) -> str:
    listed = (path / ".zmetadata").exists()  # a list of all names, which must have the new ones
    with xarray.open_zarr(path, mask_and_scale=False, consolidated=listed) as store:
        (name,) = (n for n in store.data_vars if "ancillary_variables" in store[n].attrs)
        flag = store[store[name].attrs["ancillary_variables"].split()[0]]
        assert flag.dims == store[name].dims and ((flag.values & 1) == MISSING).all()
        assert store[name].attrs["hydiff_filled"] == store.attrs["hydiff_filled"]
        return f"{store.attrs['hydiff_filled']} Gap-filled {store.attrs['hydiff_record']}"


def by_whosmat(path: Path) -> str:
    assert "hydiff_filled" in [name for name, *_ in scipy.io.whosmat(path)]
    return f"{scipy.io.loadmat(path)['hydiff_filled'][0]} Gap-filled"


def by_h5py_of_matlab(path: Path) -> str:
    with h5py.File(path) as file:
        assert file["hydiff_filled"].attrs["MATLAB_class"] == b"char"
        return "".join(map(chr, file["hydiff_filled"][()].ravel())) + " Gap-filled"


def by_numpy(path: Path) -> str:
    with np.load(path, allow_pickle=False) as arrays:
        return f"{arrays['hydiff_filled'].item().decode()} Gap-filled"


TOOLS: dict[str, Callable[[Path], str]] = {
    "emit": by_xarray,
    "aviris": by_h5py_in_a_group,
    "prisma": by_h5py,
    "neon": by_h5py_of_neon,
    "enmap": by_listing,
    "enmap zip": by_zipfile,
    "desis": by_rasterio,
    "geotiff": by_rasterio,
    "envi": by_spectral,
    "zarr": by_open_zarr,
    "zarr 2": by_open_zarr,
    "mat": by_whosmat,
    "mat 7.3": by_h5py_of_matlab,
    "npz": by_numpy,
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_filled_file_alone_says_so(kind: str, tmp_path: Path) -> None:
    source, output = filled(kind, tmp_path)
    lonely = alone(output, tmp_path / "alone")
    line, *_ = info(lonely).splitlines()
    assert line.startswith("FILLED") and SAYS in line and hydiff.__version__ in line
    shown = TOOLS[kind](lonely)
    assert SAYS in shown and "Gap-filled" in shown
    assert kind == "envi" or f'"{source.name}"' in shown.replace(
        '\\"', '"'
    )  # the record: its input
    before, after = io.read(source), io.read(lonely)
    kept, stored = np.asarray(before.values)[~MISSING], np.asarray(after.values)[~MISSING]
    assert kept.dtype == stored.dtype and kept.tobytes() == stored.tobytes()
    assert after.mark is not None and np.isclose(after.mark.share, SHARE, rtol=1e-4)
    assert before.mark is None and "FILLED" not in info(source)


def test_tifffile_reads_the_prefix_too(tmp_path: Path) -> None:
    _, output = filled("geotiff", tmp_path)
    with tifffile.TiffFile(output) as file:
        assert file.pages[0].description.startswith("Gap-filled")
        assert SAYS in file.pages[0].tags["GDAL_METADATA"].value


CHAINS = [
    ("emit", [".zarr", ".tif", ".npz"]),
    ("geotiff", [".img", ".mat", ".tif"]),
    ("envi", [".zarr", ".img"]),
    ("enmap zip", [".npy", ".img", ".tif"]),
    ("zarr 2", [".npz", ".zarr"]),
]


@pytest.mark.parametrize(("kind", "suffixes"), CHAINS)
def test_conversions_carry_the_mark(kind: str, suffixes: list[str], tmp_path: Path) -> None:
    path = alone(filled(kind, tmp_path)[1], tmp_path / "alone")
    first = io.read(path).mark
    for i, suffix in enumerate(suffixes):
        path = convert(path, tmp_path / f"step{i}{suffix}", unmarked=suffix == ".npy")[0]
        found = io.read(path).mark
        assert found is not None and found.text == first.text
        assert np.allclose(found.by_band, SHARE, rtol=1e-4)


def test_a_conversion_takes_the_mask_from_beside(tmp_path: Path) -> None:
    """GeoTIFF has no flag variable, but the flags beside it know which entries they were."""
    _, output = filled("geotiff", tmp_path)
    store = convert(output, tmp_path / "b.zarr")[0]
    assert (np.asarray(io.read(store).mark.filled[...]) == MISSING).all()
    back = convert(store, tmp_path / "c.tif")
    assert [path.name for path in back] == ["c.tif", "c.tif.flags.tif", "c.tif.why.tif"]
    assert io.read(back[1]).mark is None  # which entries were filled is no guess
    assert (np.asarray(io.read(back[1]).values) & 1 == MISSING).all()


def test_a_fill_that_left_no_mark_is_marked_by_its_record(tmp_path: Path) -> None:
    source = shorts(tmp_path / "a.npy")
    fill_file(source, tmp_path / "b.npy", replace(ORDER, unmarked=True), limits(None, None, None))
    (tmp_path / "b.npy.json").unlink()
    assert io.read(tmp_path / "b.npy").mark is None
    assert SAYS in info(convert(tmp_path / "b.npy", tmp_path / "b.tif")[0])


def test_a_crop_counts_its_own_entries(tmp_path: Path) -> None:
    cube = io.read(filled("emit", tmp_path)[1])
    part = cube.window(rows=slice(0, 5), cols=slice(6, 10), bands=slice(1, 3))
    assert part.mark.share == 0.5 and part.mark.filled.shape == (2, 5, 4)
    assert "50 % of the entries" in info(io.write(part, tmp_path / "part.tif")[0])
    again = io.read(tmp_path / "part.tif").window(bands=slice(1, 2))  # its mask is not known
    assert again.mark.by_band.tolist() == [0.5] and again.mark.share == 0.5


def test_a_crop_of_a_fill_of_a_fill_has_its_own_layers(tmp_path: Path) -> None:
    """Of the first fill only shares are known, so that the mark has layers and no mask."""
    values = np.random.default_rng(0).random((3, 12, 12)).astype(np.float32)
    values[:, 4:6] = np.nan
    before = hydiff.mark.Mark(share=0.1, by_band=np.full(3, 0.1))
    result = hydiff.fill(Cube(values, mark=before), method="linear", outside="fill")
    part = result.cube.window(rows=slice(3, 11))
    assert part.mark.filled is None
    (path, *_) = io.write(part, tmp_path / "part.zarr")
    flags = np.asarray(io.read(path).mark.layers["flags"][:, :, :])
    assert flags.shape == (3, 8, 12) and set(np.nonzero(flags)[1]) == {1, 2}


def test_a_map_shows_where(tmp_path: Path) -> None:
    cube = io.read(filled("emit", tmp_path)[1])
    there = ortho(cube)
    column = np.abs(cube.glt.lookup[..., 0])
    assert (np.asarray(there.mark.filled[0]) == ((column == 8) | (column == 9))).all()
    assert SAYS in info(io.write(there, tmp_path / "map.tif")[0])
    made = convert(tmp_path / "out.nc", tmp_path / "cog.tif", ortho=True, cog=True)
    assert SAYS in info(made[0])


def test_tiles_leave_the_same_mark(tmp_path: Path) -> None:
    source = shorts(tmp_path / "a.zarr")
    bounds = limits("1GB", 16, None)
    fill_file(source, tmp_path / "b.zarr", ORDER, bounds)
    cube = io.read(tmp_path / "b.zarr")
    assert (
        SAYS in info(tmp_path / "b.zarr") and cube.mark.record["entries"]["filled"] == MISSING.sum()
    )
    assert (np.asarray(cube.mark.filled[...]) == MISSING).all()


def test_a_second_fill_counts_the_first(tmp_path: Path) -> None:
    first = np.where(MISSING, -9999, FLOATS).astype("f4")
    first[:, :4] = -9999
    source = products.emit(tmp_path / "a.nc", first)
    cube = hydiff.fill(io.read(source), ~MISSING, method="nearest", max_gap=3).cube
    io.write(cube, tmp_path / "b.nc")
    half = io.read(tmp_path / "b.nc")
    once = half.mark.share
    assert 0 < once < SHARE + 0.2
    whole = hydiff.fill(half, method="linear", outside="fill")
    io.write(whole.cube, tmp_path / "c.nc")
    both = io.read(tmp_path / "c.nc").mark
    assert np.isclose(both.share, once + whole.filled.mean(), rtol=1e-4)
    assert both.method == "linear" and both.record["earlier"] == [half.mark.text]
    with h5py.File(tmp_path / "c.nc") as file:
        history = file.attrs["history"]
        assert history.count("filled by nearest") == history.count("filled by linear") == 1
        assert file.attrs["title"].startswith(b"Gap-filled EMIT")


def test_shares_add_up_where_the_first_mask_is_lost(tmp_path: Path) -> None:
    cube = io.read(alone(filled("geotiff", tmp_path)[1], tmp_path / "alone"))
    observed = np.ones(SHAPE[1:], bool)
    observed[:, 0:2] = False
    again = hydiff.fill(cube, observed, method="nearest", outside="fill").cube.mark
    assert np.isclose(again.share, 2 * SHARE, rtol=1e-4) and again.filled is None


def test_a_cube_without_gaps_is_not_marked(tmp_path: Path) -> None:
    source = io.write(Cube(TRUTH.astype("f4")), tmp_path / "a.tif")[0]
    fill_file(source, tmp_path / "b.tif", ORDER, limits(None, None, None))
    assert io.read(tmp_path / "b.tif").mark is None
    assert hydiff.fill(TRUTH, method="nearest").cube.mark is None


def test_replaced_measurements_are_named(tmp_path: Path) -> None:
    result = hydiff.fill(TRUTH, method="smooth", sigma_y=0.05, denoise=True)
    line = info(io.write(result.cube, tmp_path / "a.tif")[0]).splitlines()[0]
    assert line.startswith("FILLED") and "the others denoised" in line


def test_python_marks_what_it_writes(tmp_path: Path) -> None:
    result = hydiff.fill(TRUTH, ~MISSING, method="nearest")
    assert SAYS in result.cube.mark.text
    assert SAYS in info(hydiff.write(result.cube, tmp_path / "a.tif")[0])
    array = xarray.DataArray(np.where(MISSING, np.nan, TRUTH), dims=("band", "y", "x"))
    made = hydiff.fill(array, method="nearest").cube.to_xarray()
    assert SAYS in made.attrs["hydiff_filled"] and "hydiff_filled" not in array.attrs
    assert Cube.from_xarray(made).mark.method == "nearest"


# --- where there is no place ----------------------------------------------------------------------


def test_npy_has_no_place_and_is_refused(tmp_path: Path) -> None:
    shorts(tmp_path / "a.npy")
    before = sorted(tmp_path.iterdir())
    line = refused("fill", "a.npy", "-o", "b.npy", cwd=tmp_path)
    assert "--unmarked" in line and "b.npz" in line and sorted(tmp_path.iterdir()) == before
    a, b, c = (str(tmp_path / f"{name}.npy") for name in "abc")
    plain = ["--method", "nearest", "--outside", "fill"]
    for words in (["fill", a, "-o", b, *plain], ["convert", b, c]):
        with pytest.raises(BadValue, match="`unmarked=True`") as caught:
            CliRunner().invoke(app, words, catch_exceptions=False)
        assert shell(str(caught.value)).endswith(", or allow it with --unmarked")
        assert CliRunner().invoke(app, [*words, "--unmarked"]).exit_code == 0
    assert SAYS in info(tmp_path / "c.npy")  # by its sidecar


def test_python_refuses_npy_too(tmp_path: Path) -> None:
    result = hydiff.fill(TRUTH, ~MISSING, method="nearest")
    with pytest.raises(BadValue, match="unmarked=True"):
        hydiff.write(result.cube, tmp_path / "a.npy")
    with pytest.raises(BadValue, match=r"a\.npz"):
        provenance.save(result, tmp_path / "a.npy")
    assert not list(tmp_path.iterdir())
    hydiff.write(result.cube, tmp_path / "a.npy", unmarked=True)
    hydiff.write(Cube(TRUTH), tmp_path / "b.npy")  # measured: nothing to say


# --- headers keep all else ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "described", [b"description = {\n  \xb5m of a field}\n", b"Description = a field\n", b""]
)
def test_a_header_gains_lines_and_keeps_the_others(
    end: bytes, described: bytes, tmp_path: Path
) -> None:
    source = shorts(tmp_path / "a.bil")
    header = source.with_suffix(".hdr")
    plain = [
        line for line in header.read_bytes().splitlines() if b"description" not in line.lower()
    ]
    plain = [line for line in plain if line.strip() != b"Reflectance of a field}"]
    text = b"\n".join([b"ENVI", *described.splitlines(), *plain[1:], b"my key = {1, 2}"])
    header.write_bytes(text.replace(b"\n", end))  # without an end of its last line
    for name in ("b", "c"):  # a second time: the lines of the first are replaced
        order = replace(ORDER, method="linear") if name == "c" else ORDER
        observed = Path(tmp_path / "m.npz")
        if name == "c":
            io.write_mask(MISSING, observed, "missing")
            order = replace(order, missing=observed)
        fill_file(source, tmp_path / f"{name}.bil", order, limits(None, None, None))
        source = tmp_path / f"{name}.bil"
    new = source.with_suffix(".hdr").read_bytes()
    gained = [line for line in new.split(end) if line.startswith(b"hydiff filled")]
    assert len(gained) == 2 and b"by linear" in gained[0] and b"nearest" not in new
    kept = [line for line in new.split(end) if not line.startswith(b"hydiff filled") and line]
    kept = [
        line.replace(b"Gap-filled ", b"")
        for line in kept
        if line != b"description = {Gap-filled cube}"
    ]
    assert kept == text.split(b"\n")
    assert new.count(b"Gap-filled") == 1


def test_attributes_keep_their_type_and_their_text(tmp_path: Path) -> None:
    source = products.emit(tmp_path / "a.nc", FLOATS)
    with h5py.File(source, "r+") as file:
        file.attrs["history"] = np.bytes_(b"made")
        file["reflectance"].attrs["ancillary_variables"] = "quality"
    cube = hydiff.fill(io.read(source), method="nearest", outside="fill").cube
    with h5py.File(io.write(cube, tmp_path / "b.nc")[0]) as file:
        assert file.attrs["title"] == b"Gap-filled EMIT L2A Estimated Surface Reflectance 60 m V001"
        assert file.attrs["history"].startswith(b"made\n20")
        linked = file["reflectance"].attrs["ancillary_variables"]
        assert linked == "quality reflectance_hydiff_flags reflectance_hydiff_why"


def test_other_formats_get_the_prefix_of_the_title(tmp_path: Path) -> None:
    source = io.read(products.emit(tmp_path / "e.nc", FLOATS))
    cube = hydiff.fill(source, method="nearest", outside="fill").cube  # straight to another format
    assert (
        io.read(io.write(cube, tmp_path / "a.zarr")[0]).attrs["title"].startswith("Gap-filled EM")
    )
    assert b"title = Gap-filled EMIT" in io.write(cube, tmp_path / "a.img")[1].read_bytes()
    assert source.attrs["title"].startswith("EMIT")


@pytest.mark.parametrize(
    "title", ["<?xml version='1.0'?><OME/>", '{"axes": "ZYX"}', "Gap-filled x"]
)
def test_a_title_that_is_a_document_stays(title: str) -> None:
    assert marks.titled(title) == title


# --- what a mark may hold -------------------------------------------------------------------------


def test_a_record_is_bounded_and_names_no_folder(tmp_path: Path) -> None:
    result = hydiff.fill(TRUTH, ~MISSING, method="nearest")
    recipe = {"by_band": list(range(9000)), "deep": {}, "why": "x" * 9000}
    inner = recipe["deep"]
    for _ in range(500):
        inner["deep"] = inner = {}
    many = {f"n{i}": "y" * 300 for i in range(2000)}
    cube = replace(result.cube, path=None)
    result = replace(result, cube=cube, recipe=recipe | many, notes=["z" * 5000] * 10)
    record = provenance.record(result, ["/home/me/bin/hydiff"])
    record["input"] = {"path": "/home/me/secret/a.tif", "sha256": "0" * 64}
    text = json.dumps(mark.bounded(record))
    assert len(text) < 16_000 and "/home/me" not in text
    assert json.loads(text)["input"] == {"path": "a.tif", "sha256": "0" * 64}
    assert json.loads(text)["method"] == "nearest"


DAMAGED = {
    "nothing": "",
    "markup": "<script>alert(1)</script>\x1b[2J\nFILLED no",
    "endless": "9" * 500_000,
    "deep": "[" * 100_000,
    "more than all": "200 % of the entries filled by x, not measured (hydiff 1, 2)",
    "other types": '{"hydiff_filled": 7, "hydiff_record": {"earlier": 5, "filled_share": {}}, '
    '"earlier": 5, "filled_share": [1e400, "x"], "input": {"path": ["/"]}, "versions": 3}',
    "numbers": "1e999 % of the entries filled by \x1b[31mx, not measured (hydiff 1, 2)",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("suffix", [".tif", ".zarr", ".npz", ".mat", ".img"])
def test_a_damaged_mark_is_a_mark(text: str, suffix: str, tmp_path: Path) -> None:
    path = io.write(Cube(SHORTS), tmp_path / f"a{suffix}")[0]
    if suffix == ".tif":
        with rasterio.open(path, "r+") as dataset:
            dataset.update_tags(hydiff_filled=text or "?", hydiff_record=text)
            dataset.update_tags(1, FILLED_SHARE=text[:9])
    elif suffix == ".zarr":
        zarr.open_group(path)["cube"].attrs.update({"hydiff_filled": text, "hydiff_record": text})
    elif suffix == ".npz":
        np.savez(path, cube=SHORTS.transpose(1, 2, 0), hydiff_filled=np.array(text.encode()))
    elif suffix == ".mat":
        scipy.io.savemat(path, {"cube": SHORTS.transpose(1, 2, 0), "hydiff_filled": text or " "})
    else:
        with path.with_suffix(".hdr").open("a") as header:
            header.write(f"hydiff filled = {text.splitlines()[0] if text else ''}\n")
            header.write(f"hydiff filled by band = {{{text[:9].strip('{}[')}, 2, nan}}\n")
    shown = info(path)
    line = shown.splitlines()[0]
    assert line.startswith("FILLED       an unknown share") and len(line) < 900
    assert "\x1b" not in shown and "<script>" not in shown
    again = hydiff.fill(io.read(path), ~MISSING, method="nearest").cube
    assert "filled by nearest" in info(io.write(again, tmp_path / f"b{suffix}")[0])


def test_a_damaged_array_of_text_is_a_mark(tmp_path: Path) -> None:
    """Code points that there are not end Python's own handling of text."""
    text = np.array("x" * 5)
    text.reshape(1).view(np.uint32)[2] = 0x7FFFFFFF
    np.savez(tmp_path / "a.npz", cube=SHORTS.transpose(1, 2, 0), hydiff_filled=text)
    assert info(tmp_path / "a.npz").startswith("FILLED       an unknown share")


def test_a_sidecar_keeps_what_json_has_not(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.where(MISSING, np.nan, TRUTH).transpose(1, 2, 0))
    (tmp_path / "a.npy.json").write_text('{"axes": "rows,cols,bands", "mine": NaN}')
    cube = hydiff.fill(io.read(tmp_path / "a.npy"), method="nearest", outside="fill").cube
    io.write(cube, tmp_path / "b.npy", unmarked=True)
    assert np.isnan(json.loads((tmp_path / "b.npy.json").read_text())["mine"])
    assert SAYS in info(tmp_path / "b.npy")


def test_a_format_says_itself_whether_it_keeps_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(hasattr(io._module(name), "keeps_mark") for name in io.FORMATS if name != "raster")
    cube = hydiff.fill(TRUTH, ~MISSING[0], method="nearest").cube
    monkeypatch.setattr(io.geotiff, "keeps_mark", lambda source, path: False)
    with pytest.raises(BadValue, match="has no place to say that it is filled"):
        io.write(cube, tmp_path / "a.tif")
    assert not list(tmp_path.iterdir())


def test_a_mark_reads_back_as_it_was_said() -> None:
    for share in (0.0, 1e-9, 0.12345678, 1.0):
        made = mark.Mark(share, method="my (own) one", version="1.2", time="2026-01-01T00:00:00Z")
        back = mark.parsed(*made.attributes.values(), bands=3)
        assert back.text == made.text and np.isclose(back.share, share, rtol=1e-3)
        assert mark.parsed(replace(made, denoised=True).text, bands=1).denoised


def test_equal_fills_of_one_date_are_equal_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    source = shorts(tmp_path / "a.tif")
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
        fill_file(source, tmp_path / name / "x.tif", ORDER, limits(None, None, None))
    one, two = ((tmp_path / name / "x.tif").read_bytes() for name in ("b", "c"))
    assert one == two and "2023-11-14T22:13:20+00:00" in info(tmp_path / "b" / "x.tif")


def test_what_a_file_says_is_in_the_facts(tmp_path: Path) -> None:
    uneven = np.zeros(SHAPE, bool)
    uneven[2, :, 4:7] = True
    result = hydiff.fill(TRUTH, ~uneven, method="nearest")
    found = facts(io.read(io.write(result.cube, tmp_path / "a.tif")[0]))
    assert found["filled"]["by_band"][2] == pytest.approx(1 / 6, rel=1e-4)
    assert json.loads(json.dumps(found))["filled"]["record"]["method"] == "nearest"
    assert "0 to 16.67 % of a band" in dict(lines(found))["FILLED"]
