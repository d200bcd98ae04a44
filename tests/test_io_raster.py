"""Rasters that only GDAL reads: as rasterio reads them, in a process that opens nothing else."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine
from typer.testing import CliRunner

import fuzz_rasters
import hydiff
from hydiff import io
from hydiff.cli import app
from hydiff.cube import Array
from hydiff.errors import HydiffError
from hydiff.io import raster

SUFFIX = fuzz_rasters.SUFFIX
PLACE = Affine(10, 0, 257000, 0, -10, 4112000)


@pytest.fixture(scope="module")
def values() -> Array:
    part = hydiff.sample().window(rows=slice(0, 24), cols=slice(0, 26), bands=slice(20, 26))
    numbers = np.asarray(part.values, np.uint16).copy()
    numbers[:, 10:12] = 0
    return numbers


def made(driver: str, folder: Path, values: Array, **options: object) -> Path:
    """A file of this driver, as GDAL writes it."""
    path = folder / f"scene{SUFFIX[driver]}"
    exact = {"QUALITY": "100", "REVERSIBLE": "YES"} if driver == "JP2OpenJPEG" else {}
    profile = {"count": len(values), "height": values.shape[1], "width": values.shape[2]}
    with rasterio.open(
        path, "w", driver=driver, dtype=values.dtype, crs="EPSG:32611", transform=PLACE,
        **profile, **exact, **options,
    ) as dataset:  # fmt: skip
        dataset.write(values)
    return path


@pytest.mark.parametrize("driver", SUFFIX)
def test_a_raster_is_read_as_rasterio_reads_it_and_filled_to_geotiff(
    driver: str, tmp_path: Path, values: Array
) -> None:
    path = made(driver, tmp_path, values)
    cube = hydiff.read(path)
    with rasterio.open(path) as dataset:
        np.testing.assert_array_equal(cube.values, dataset.read())
        assert cube.crs == (dataset.crs.to_wkt() if dataset.crs else None)
        assert cube.nodata == dataset.nodata
    assert cube.format == "raster" and cube.transform == tuple(PLACE)[:6]
    run = ["fill", str(path), "--method", "linear", "--nodata", "0", "--nodata-in", "any"]
    done = CliRunner().invoke(app, [*run, "-o", str(tmp_path / "filled.tif")])
    assert done.exit_code == 0, done.output
    filled = np.asarray(hydiff.read(tmp_path / "filled.tif").values)
    missing = values == 0
    assert filled[~missing].tobytes() == values[~missing].tobytes() and filled[missing].all()
    tiles = CliRunner().invoke(app, [*run, "-o", str(tmp_path / "tiles.bsq"), "--tile", "16"])
    assert tiles.exit_code == 0, tiles.output
    assert "read only: a fill is written as .tif or .img" in " ".join(
        CliRunner().invoke(app, ["info", str(path)]).output.split()
    )


@pytest.mark.parametrize("driver", SUFFIX)
@pytest.mark.parametrize("command", ["fill", "convert", "simulate"])
def test_a_copy_in_its_own_format_is_refused_beforehand(
    driver: str, command: str, tmp_path: Path, values: Array
) -> None:
    path = made(driver, tmp_path, values)
    before = set(tmp_path.iterdir())
    output = str(tmp_path / f"out{SUFFIX[driver]}")
    words = [output] if command == "convert" else ["-o", output]
    done = CliRunner().invoke(app, [command, str(path), *words])
    assert isinstance(done.exception, HydiffError)
    assert "files are read only; name the output out.tif" in str(done.exception)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("dtype", "codes"), [("i2", [-32768, -32765]), ("f4", [0xFF7FFFFF])])
def test_special_pixels_of_isis_are_missing(tmp_path: Path, dtype: str, codes: list[int]) -> None:
    values = np.arange(80, dtype=dtype).reshape(2, 5, 8)
    special = np.array(codes, "u4").view("f4") if dtype == "f4" else np.array(codes)
    values[0, 0, : len(special)] = special
    cube = hydiff.read(made("ISIS3", tmp_path, values))
    np.testing.assert_array_equal(np.argwhere(~cube.observed())[:, 2], range(len(special)))


def test_the_process_that_decodes_can_open_nothing_else(tmp_path: Path, values: Array) -> None:
    """Even of a driver that is made to follow links, and that no file gets here."""
    with rasterio.open(
        tmp_path / "secret.tif", "w", driver="GTiff", count=1, height=2, width=2, dtype="uint8"
    ) as dataset:
        dataset.write(np.ones((1, 2, 2), "u1"))
    band = f'<SourceFilename relativeToVRT="0">{tmp_path / "secret.tif"}</SourceFilename>'
    link = tmp_path / "link.vrt"
    link.write_text(
        '<VRTDataset rasterXSize="2" rasterYSize="2"><VRTRasterBand dataType="Byte" band="1">'
        f"<SimpleSource>{band}<SourceBand>1</SourceBand></SimpleSource>"
        "</VRTRasterBand></VRTDataset>"
    )
    with rasterio.open(link) as dataset:
        assert dataset.read().all()  # it leads there
    command = [sys.executable, "-P", str(raster.CHILD), "VRT", str(link), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3 and len(done.stderr.strip().splitlines()) >= 1
    assert (tmp_path / "out").read_bytes().count(b"\1") == 0
    with pytest.raises(HydiffError, match="of no format known here"):
        io.read(link)


def other_core(folder: Path, values: Array) -> Path:
    """A label of ISIS3 whose values lie in another file."""
    path = made("ISIS3", folder, values)
    other = folder / "other.cub"
    other.write_bytes(path.read_bytes())
    text = path.read_bytes()
    path.write_bytes(text.replace(b"Object = Core", b'Object = Core\n ^Core = "other.cub"', 1))
    return path


def cut(driver: str, size: int, folder: Path, values: Array) -> Path:
    """Only the beginning; the drivers of PCIDSK and ISIS3 read the rest as zeros."""
    path = made(driver, folder, values)
    path.write_bytes(path.read_bytes()[:size])
    return path


CUT = [partial(cut, "HFA", 600), partial(cut, "PCIDSK", -1200), partial(cut, "ISIS3", -1200)]


def junk(folder: Path, values: Array) -> Path:
    path = folder / "a.jp2"
    path.write_bytes(b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(300))
    return path


@pytest.mark.parametrize("spoil", [other_core, junk, *CUT])
def test_damaged_files_are_refused_in_one_line(spoil, tmp_path: Path, values: Array) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(HydiffError, match=r"expected a raster in one file \(") as raised:
        io.read(spoil(tmp_path, values))
    assert "\n" not in str(raised.value)


def test_hostile_rasters_end_as_a_cube_or_in_one_line() -> None:
    """`tests/fuzz_rasters.py`, small; in a process of its own, which forks one for each input."""
    command = [sys.executable, str(Path(fuzz_rasters.__file__)), "--inputs", "40", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " cube" in done.stdout and " refused" in done.stdout
