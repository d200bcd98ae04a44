"""Bad files, bad places: one clear line each, and never a half-written output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
from scipy.io import savemat

import hydiff
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError, OutputError, UnknownName

CUBE = Cube(np.arange(60, dtype="int16").reshape(3, 4, 5), wavelengths=np.array([1.0, 2.0, 3.0]))
SUFFIXES = (".bsq", ".tif", ".mat", ".npy", ".npz")


def says(*parts: str) -> str:
    """A pattern for a one-line message that holds these parts in this order."""
    return "^[^\n]*" + "[^\n]*".join(map(re.escape, parts)) + "[^\n]*$"


def fails(path: Path, *parts: str, var: str | None = None) -> None:
    with pytest.raises(CubeFormatError, match=says(path.name, *parts)) as caught:
        np.asarray(io.read(path, var=var).values)
    assert "\n" not in str(caught.value)


# --- reading --------------------------------------------------------------------------------------


def test_no_such_file_and_folders(tmp_path: Path) -> None:
    fails(tmp_path / "a.tif", "no such file; check the path")
    fails(tmp_path, "is a folder")


def test_no_known_format(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    fails(tmp_path / "notes.txt", "no format known", "envi, geotiff, mat, neon, npz", ".hdr")
    (tmp_path / "empty").write_bytes(b"")
    fails(tmp_path / "empty", "no format known")


@pytest.mark.parametrize("name", ["a.tif", "a.mat", "a.npy", "a.npz", "a.hdr"])
@pytest.mark.parametrize("content", [b"", b"no such thing", b"\0" * 600])
def test_content_that_is_not_what_the_suffix_says(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "a.img").write_bytes(b"\0" * 8)
    fails(tmp_path / name, "expected")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_truncated_files(tmp_path: Path, suffix: str) -> None:
    values = np.random.default_rng(0).integers(0, 999, (3, 40, 50), np.int16)
    path = io.write(Cube(values), tmp_path / f"a{suffix}")[0]
    os.truncate(path, path.stat().st_size // 2)
    fails(path)


def test_truncated_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file["cube"] = np.zeros((30, 40, 50))
    os.truncate(tmp_path / "a.mat", 20000)
    fails(tmp_path / "a.mat", "expected a MATLAB file", "truncated")


def test_the_content_counts_before_the_suffix(tmp_path: Path) -> None:
    """A DESIS product is a .tif with an ENVI header beside it; it is the .tif that is read."""
    for suffix in (".tif", ".npy", ".mat", ".npz"):
        path = io.write(CUBE, tmp_path / f"a{suffix}")[0]
        (tmp_path / "a.hdr").write_text("ENVI\n")
        assert io.read(path).format == io.suffixes()[suffix]
        path.rename(tmp_path / "b.dat")
        assert io.read(tmp_path / "b.dat").format == io.suffixes()[suffix]


def test_envi_files_that_are_missing(tmp_path: Path) -> None:
    io.write(CUBE, tmp_path / "a.bsq")
    (tmp_path / "a.bsq").rename(tmp_path / "b.bsq")
    fails(tmp_path / "a.hdr", "data file", "missing", ".img .bsq")
    fails(tmp_path / "b.bsq", "header", "neither b.hdr nor b.bsq.hdr")


def test_a_lying_envi_header(tmp_path: Path) -> None:
    path = io.write(CUBE, tmp_path / "a.bsq")[0]
    os.truncate(path, 100)
    fails(path, "truncated", "100 bytes", "120", "3 bands x 4 lines x 5 samples x 2 bytes")
    path.write_bytes(bytes(200))
    fails(path, "more than its header says", "200 bytes", "120")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("bands", "-3", "`bands` is -3, expected a whole number"),
        ("lines", "4.5", "`lines` is 4.5"),
        ("samples", "0", "`samples` is 0"),
        ("samples", "", "`samples` is"),
        ("interleave", "bsx", "`interleave` is bsx, expected bsq, bil or bip"),
        ("data type", "6", "`data type` is 6, expected a real type: 1 (uint8)"),
        ("data type", "77", "`data type` is 77"),
        ("byte order", "2", "`byte order` is 2"),
        ("header offset", "-1", "`header offset` is -1"),
        ("wavelength", "{1, 2}", "2 entries under `wavelength` for 3 bands"),
        ("wavelength", "{1, two, 3}", "numbers under `wavelength`"),
        ("band names", "{1, 2}", "2 entries under `band names` for 3 bands"),
        ("data ignore value", "none", "a number under `data ignore value`"),
        ("file compression", "1", "`file compression` is 1"),
        ("description", "{never closed", "ENVI header"),
    ],
)
def test_nonsense_in_an_envi_header(tmp_path: Path, key: str, value: str, expected: str) -> None:
    io.write(CUBE, tmp_path / "a.bsq")
    header = tmp_path / "a.hdr"
    kept = [line for line in header.read_text().splitlines() if not line.startswith(f"{key} =")]
    header.write_text("\n".join([*kept, f"{key} = {value}\n"]))
    with pytest.raises(CubeFormatError, match=says("a.hdr", expected)):
        io.read(tmp_path / "a.bsq")


def test_an_envi_header_without_its_required_keys(tmp_path: Path) -> None:
    (tmp_path / "a.img").write_bytes(bytes(8))
    (tmp_path / "a.hdr").write_text("ENVI\nsamples = 2\n")
    with pytest.raises(CubeFormatError, match=says("a.hdr", "`bands` is nothing")):
        io.read(tmp_path / "a.img")


def test_a_map_info_that_gdal_cannot_use(tmp_path: Path) -> None:
    io.write(CUBE, tmp_path / "a.bsq")
    with (tmp_path / "a.hdr").open("a") as header:
        header.write("map info = { nonsense }\n")
    cube = io.read(tmp_path / "a.bsq")
    assert (cube.crs, cube.transform) == (None, None)


@pytest.mark.parametrize("dtype", ["complex64", "U3", "datetime64[s]"])
def test_values_that_are_no_real_numbers(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), dtype))
    np.savez(tmp_path / "a.npz", cube=np.zeros((2, 3, 4), dtype))
    fails(tmp_path / "a.npy", "real numbers")
    fails(tmp_path / "a.npz", "real numbers")


def test_complex_values_elsewhere(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"cube": np.ones((2, 3, 4)) * 1j})
    fails(tmp_path / "a.mat", "real numbers")
    with rasterio.open(tmp_path / "a.tif", "w", "GTiff", 2, 2, 1, dtype="complex64"):
        pass
    fails(tmp_path / "a.tif", "real numbers")


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[None]]), allow_pickle=True)
    np.savez(tmp_path / "a.npz", cube=np.array([[None]]))
    fails(tmp_path / "a.npy", "pickled Python objects", "save a plain numeric array")
    fails(tmp_path / "a.npz", "pickled Python objects")
    fails(tmp_path / "a.npz", "pickled Python objects", var="cube")


@pytest.mark.parametrize("suffix", [".mat", ".npz"])
def test_which_variable(tmp_path: Path, suffix: str) -> None:
    arrays = {"one": np.ones((2, 3, 4)), "two": np.ones((2, 3, 5)), "name": np.array("x")}
    path = tmp_path / f"a{suffix}"
    savemat(path, arrays) if suffix == ".mat" else np.savez(path, **arrays)
    fails(path, "one (2, 3, 4), two (2, 3, 5)", "choose one with `var=one`")
    assert io.read(path, var="two").shape == (5, 2, 3)
    with pytest.raises(UnknownName, match=says("variable", "'tow'", "did you mean 'two'")):
        io.read(path, var="tow")


def test_arrays_with_too_many_or_too_few_axes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3, 4, 5)))
    fails(tmp_path / "a.npy", "2 or 3 axes", "(2, 3, 4, 5)")
    np.save(tmp_path / "b.npy", np.ones(5))
    fails(tmp_path / "b.npy", "2 or 3 axes", "(5,)")
    savemat(tmp_path / "c.mat", {"text": "abc"})
    fails(tmp_path / "c.mat", "2 or 3 axes", "found none")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "JSON metadata"),
        ("[]", "JSON object"),
        ('{"axes": "x,y,z"}', "rows,cols,bands"),
        ('{"axes": "rows,cols"}', "do not fit"),
        (
            '{"wavelengths": [1, 2, 3, 4, 5]}',
            "5 entries under wavelengths in its metadata for 4 bands",
        ),
        ('{"nodata": "much"}', "correct its metadata"),
    ],
)
def test_bad_sidecars(tmp_path: Path, text: str, expected: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3, 4)))
    (tmp_path / "a.npy.json").write_text(text)
    fails(tmp_path / "a.npy", expected)


def test_geotiff_with_bands_of_several_types(tmp_path: Path) -> None:
    vrt = tmp_path / "a.tif"
    vrt.write_text("<VRTDataset></VRTDataset>")  # GDAL would open it; it is no GeoTIFF
    fails(vrt, "expected a GeoTIFF")


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [
        *[(".bsq", d) for d in ("complex64", "bool", "float16", "int8")],
        *[(".tif", d) for d in ("complex64", "bool", "float16")],
        *[(".mat", d) for d in ("complex64", "float16")],
        *[(s, "complex64") for s in (".npy", ".npz")],
    ],
)
def test_types_that_a_format_does_not_have(tmp_path: Path, suffix: str, dtype: str) -> None:
    with pytest.raises(CubeFormatError, match=says(dtype, "convert")):
        io.write(Cube(np.ones((2, 3, 4), dtype)), tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


def test_an_unknown_suffix(tmp_path: Path) -> None:
    for name in ("a.xyz", "a"):
        with pytest.raises(UnknownName, match=says(".bil", ".npz", ".tif")):
            io.write(CUBE, tmp_path / name)
    source = io.read(io.write(CUBE, tmp_path / "a.bsq")[0])
    assert io.write(source, tmp_path / "b")[1] == tmp_path / "b.hdr"
    assert io.read(tmp_path / "b").format == "envi"
    with pytest.raises(UnknownName):
        io.write(source, tmp_path / "b.xyz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_file_is_kept(tmp_path: Path, suffix: str) -> None:
    path = io.write(CUBE, tmp_path / f"a{suffix}")[0]
    before = path.read_bytes()
    with pytest.raises(OutputError, match=says(path.name, "exists", "`overwrite=True`")):
        io.write(CUBE, path)
    assert path.read_bytes() == before
    io.write(Cube(CUBE.values + 1), path, overwrite=True)
    assert io.read(path).values[0, 0, 0] == 1


def test_an_existing_companion_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.hdr").write_text("of another file")
    with pytest.raises(OutputError, match=says("a.hdr exists", "`overwrite=True`")):
        io.write(CUBE, tmp_path / "a.img")
    assert [p.name for p in tmp_path.iterdir()] == ["a.hdr"]
    (tmp_path / "b.tif").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        io.write(CUBE, tmp_path / "b.tif", overwrite=True)


def test_a_name_that_ends_as_folders_do_is_no_file_unless_it_is_a_zarr_store(
    tmp_path: Path,
) -> None:
    for name in ("new/", "new.part/"):
        with pytest.raises(OutputError, match=says(name, "names a folder")):
            io.write(CUBE, f"{tmp_path}/{name}")
        with pytest.raises(OutputError, match=says(name, "names a folder")):
            io.write_mask(np.ones((3, 4), bool), f"{tmp_path}/{name}", "missing")
    assert not list(tmp_path.iterdir())
    assert io.write(CUBE, f"{tmp_path}/new.zarr/") == [tmp_path / "new.zarr"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_leaves_nothing(tmp_path: Path, suffix: str) -> None:
    class Broken:
        shape, dtype = (3, 4, 5), np.dtype("int16")

        def __getitem__(self, key: object) -> np.ndarray:
            raise RuntimeError("the source went away")

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("the source went away")

    path = io.write(CUBE, tmp_path / f"a{suffix}")[0]
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(RuntimeError):
        io.write(Cube(Broken()), path, overwrite=True)
    with pytest.raises(RuntimeError):
        io.write(Cube(Broken(), format=io.read(path).format, path=path), path, overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_several_files_are_staged_together(tmp_path: Path) -> None:
    target = tmp_path / "a.tif"
    with io.staged(target) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".hydiff-")
        io.write_into(CUBE, folder / target.name)
        io.write_mask(np.ones((4, 5), bool), folder / "a.filled.npz", "observed")
        assert [p.name for p in tmp_path.iterdir()] == [folder.name]
    assert {p.name for p in tmp_path.iterdir()} == {"a.tif", "a.filled.npz"}
    with pytest.raises(KeyboardInterrupt), io.staged(tmp_path / "b.tif") as folder:
        (folder / "b.tif").write_text("half")
        raise KeyboardInterrupt
    assert {p.name for p in tmp_path.iterdir()} == {"a.tif", "a.filled.npz"}


def test_an_error_of_the_source_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), io.staged(tmp_path / "a.npy"):
        (tmp_path / "input").read_bytes()


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=says("none/a.tif", "does not exist; create it")):
        io.write(CUBE, tmp_path / "none" / "a.tif")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=says("file/a.tif", "a file, not a folder")):
        io.write(CUBE, tmp_path / "file" / "a.tif")
    with pytest.raises(OutputError, match=says("name is too long")):
        io.write(CUBE, tmp_path / ("x" * 300 + ".npy"))
    if Path("/proc/self").is_dir():
        with pytest.raises(OutputError, match=says("cannot write /proc/a.tif")):
            io.write(CUBE, Path("/proc/a.tif"))


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB, for those who may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small file system here: {error}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("bands", [1, 4])
@pytest.mark.parametrize("suffix", [*SUFFIXES, ".v73.mat"])
def test_a_full_disk(mount: Path, suffix: str, bands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from hydiff.io import mat

    if suffix == ".v73.mat":
        monkeypatch.setattr(mat, "V5_LIMIT", 10)
    kept = io.write(Cube(CUBE.values[:1]), mount / "kept.npy")
    noise = np.random.default_rng(0).integers(0, 2**16, (bands, 200, 200), np.uint16)
    with pytest.raises(OutputError, match=says("cannot write", f"a{suffix}")):
        io.write(Cube(noise), mount / f"a{suffix}")
    assert set(mount.iterdir()) == set(kept)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_is_just_too_small(mount: Path, suffix: str) -> None:
    """Some libraries fail only when they close the file; the result is whole or absent."""
    whole = 0
    for side in range(240, 261):
        noise = np.random.default_rng(0).integers(0, 256, (1, side, side), np.uint8)
        try:
            made = io.write(Cube(noise, attrs={"note": "x" * 500}), mount / f"a{suffix}")
        except OutputError:
            assert not list(mount.iterdir())
            continue
        whole += 1
        assert np.array_equal(np.asarray(io.read(made[0]).values), noise)
        for path in made:
            path.unlink()
    assert 0 < whole < 21


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_copy_on_a_full_disk(mount: Path, tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 2**16, (4, 200, 200), np.uint16)
    source = io.read(io.write(Cube(noise), tmp_path / f"a{suffix}")[0])
    with pytest.raises(OutputError, match=says("cannot write", "disk")):
        io.write(source, mount / f"a{suffix}")
    assert not list(mount.iterdir())


def test_a_fill_on_a_disk_that_is_just_too_small(mount: Path, tmp_path: Path) -> None:
    """GDAL replaces entries, and then loses the pages of the file when it closes it."""
    noise = np.random.default_rng(0).integers(1, 1000, (6, 30, 30), np.int16)
    noise[:, 10:14, 10:20] = -9999
    source = io.read(io.write(Cube(noise, nodata=-9999), tmp_path / "a.tif")[0])
    filled = hydiff.fill(source, method="linear").cube
    for pages in range(9):  # 4 KB each: from nothing to most of the output
        (mount / "other").write_bytes(bytes((16 - pages) << 12))
        with pytest.raises(OutputError, match=says("cannot write", "a.tif", "disk is full")):
            io.write(filled, mount / "a.tif")
        assert [path.name for path in mount.iterdir()] == ["other"]


def test_a_read_only_file_system(mount: Path) -> None:
    if subprocess.run(["mount", "-o", "remount,ro", str(mount)], capture_output=True).returncode:
        pytest.skip("cannot remount here")
    with pytest.raises(OutputError, match="read-only"):
        io.write(CUBE, mount / "a.tif")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_limit_on_file_size(tmp_path: Path, suffix: str) -> None:
    code = """
import resource, sys
import numpy as np
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import OutputError
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
noise = np.random.default_rng(0).integers(0, 2**16, (3, 200, 200), np.uint16)
try:
    io.write(Cube(noise), sys.argv[1])
except OutputError as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(tmp_path / f"a{suffix}")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "cannot write" in result.stdout, result.stderr
    assert not list(tmp_path.iterdir())


def test_a_name_without_its_suffix_is_answered_with_the_files_that_exist(tmp_path):
    for name in ("a.bsq", "a.hdr", "ab.tif", "b.TIF", "a.txt"):
        (tmp_path / name).touch()
    fails(tmp_path / "a", "no such file; found a.bsq and a.hdr: give the name with its suffix")
    fails(tmp_path / "b", "no such file; found b.TIF: give")
    fails(tmp_path / "c", "no such file; check the path")
