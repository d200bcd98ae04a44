"""Wrong and partial products: exit code 2, one clear line, nothing written."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import command
import products
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError, HydiffError, UnknownName

FLOATS = products.scene(8, 20, 18).astype("f4")
NUMBERS = (FLOATS * 6e4).astype("u2")
SHORTS = (FLOATS * 1e4).astype("i2")


def emit(folder: Path) -> Path:
    return products.emit(folder / "EMIT_L2A_RFL.nc", FLOATS)


def prisma(folder: Path) -> Path:
    return products.prisma(folder / "PRS_L2D.he5", NUMBERS[:3], NUMBERS[3:])


def enmap(folder: Path) -> Path:
    return products.enmap(folder / "ENMAP_L2A", SHORTS)


def without(make: Callable[[Path], Path], *names: str) -> Callable[[Path], Path]:
    """The product without some datasets, groups or (after @) root attributes."""

    def spoil(folder: Path) -> Path:
        path = make(folder)
        with h5py.File(path, "r+") as file:
            for name in names:
                if name.startswith("@"):
                    del file.attrs[name[1:]]
                else:
                    del file[name]
        return path

    return spoil


def changed(make: Callable[[Path], Path], name: str, data: object) -> Callable[[Path], Path]:
    def spoil(folder: Path) -> Path:
        path = make(folder)
        with h5py.File(path, "r+") as file:
            if name.startswith("@"):
                file.attrs[name[1:]] = data
            else:
                del file[name]
                file[name] = data
        return path

    return spoil


def cut(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def spoil(folder: Path) -> Path:
        path = make(folder)
        os.truncate(path, path.stat().st_size // 2)
        return path

    return spoil


def enmap_with(ending: str, text: str | None) -> Callable[[Path], Path]:
    """The product with one member replaced by a text, or without it."""

    def spoil(folder: Path) -> Path:
        path = enmap(folder)
        member = next(path.glob(f"*{ending}"))
        member.unlink() if text is None else member.write_text(text)
        return path

    return spoil


def half_an_enmap_zip(folder: Path) -> Path:
    path = products.enmap(folder / "E", SHORTS, zipped=True)
    os.truncate(path, path.stat().st_size // 2)
    return path


def foreign_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("notes.txt", "hello")
    return folder / "a.zip"


def half_a_store(folder: Path) -> Path:
    path = io.write(Cube(FLOATS), folder / "a.zarr")[0]
    (path / "cube" / "zarr.json").write_text("{")
    return path


def another_netcdf(folder: Path) -> Path:
    with h5py.File(folder / "ocean.nc", "w") as file:
        file["temperature"] = np.ones((3, 4))
    return folder / "ocean.nc"


def empty_swaths(folder: Path) -> Path:
    with h5py.File(folder / "a.he5", "w") as file:
        file.create_group("HDFEOS/SWATHS/PRS_L2D_PCO")
    return folder / "a.he5"


FIELDS = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"


def another_hdf5(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with h5py.File(folder / name, "w") as file:
            file["data"] = FLOATS
        return folder / name

    return make


def two_enmap_scenes(folder: Path) -> Path:
    """The second of two; the first in the folder was read in its place."""
    product = enmap(folder)
    for path in list(product.iterdir()):
        path.with_name(path.name.replace("ENMAP01", "ENMAP02")).write_bytes(path.read_bytes())
    return next(product.glob("ENMAP02*-SPECTRAL_IMAGE.TIF"))


def enmap_l1b(folder: Path) -> Path:
    product = enmap(folder)
    image = next(product.glob("*-SPECTRAL_IMAGE.TIF"))
    for detector in ("VNIR", "SWIR"):
        place = image.with_name(image.name.replace("IMAGE.", f"IMAGE_{detector}."))
        place.write_bytes(image.read_bytes())
    image.unlink()
    return product


BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "emit, half": (cut(emit), "expected an EMIT netCDF file.*truncated.*complete"),
    "emit, no bands group": (
        without(emit, "sensor_band_parameters"),
        "expected sensor_band_parameters/wavelengths",
    ),
    "emit, no wavelengths": (
        without(emit, "sensor_band_parameters/wavelengths"),
        "expected sensor_band_parameters/wavelengths",
    ),
    "emit, no cube": (without(emit, "reflectance"), "`reflectance` or `radiance`.*found none"),
    "emit, other wavelengths": (
        changed(emit, "sensor_band_parameters/wavelengths", np.arange(5.0)),
        "5 entries in /sensor_band_parameters/wavelengths for 8 bands",
    ),
    "emit, half a lookup table": (
        changed(emit, "location/glt_y", np.ones((3, 3), "i4")),
        "glt_y.*do not make a lookup table",
    ),
    "another netcdf": (
        another_netcdf,
        "no known product, expected EMIT or AVIRIS; open it with xarray",
    ),
    "another he5": (another_hdf5("a.he5"), "no known product, expected PRISMA .*hydiff.fill"),
    "another h5": (another_hdf5("a.h5"), "no known product, expected NEON .*hydiff.fill"),
    "prisma, half": (cut(prisma), "expected a PRISMA file.*truncated"),
    "prisma, no swath": (empty_swaths, "expected the swath PRS_L1_HCO or PRS_L2D_HCO.*PRS_L2D_PCO"),
    "prisma, no detector": (without(prisma, f"{FIELDS}/SWIR_Cube"), "expected SWIR_Cube"),
    "prisma, no wavelengths": (without(prisma, "@List_Cw_Swir"), "expected .* List_Cw_Swir"),
    "prisma, few wavelengths": (
        changed(prisma, "@List_Cw_Vnir", np.arange(2.0)),
        "2 entries in List_Cw_Vnir for 3 bands",
    ),
    "prisma, detectors of two sizes": (
        changed(prisma, f"{FIELDS}/SWIR_Cube", np.ones((7, 5, 18), "u2")),
        "its parts do not fit together",
    ),
    "enmap, no metadata": (enmap_with("METADATA.XML", None), "is a folder"),
    "enmap, no image": (enmap_with("IMAGE.TIF", None), r"\*-SPECTRAL_IMAGE\.TIF, found none"),
    "enmap, no bands": (
        enmap_with("METADATA.XML", "<level_X/>"),
        "0 bands under bandCharacterisation for 8 in the image",
    ),
    "enmap, other bands": (
        enmap_with("METADATA.XML", products.enmap_metadata(5)),
        "5 bands under bandCharacterisation for 8 in the image",
    ),
    "enmap, words for numbers": (
        enmap_with("METADATA.XML", products.enmap_metadata(8).replace("418.000", "blue")),
        "expected numbers under bandCharacterisation",
    ),
    "enmap, half an xml": (enmap_with("METADATA.XML", "<level_X><a>"), "EnMAP metadata in XML"),
    "enmap, an xml bomb": (
        enmap_with("METADATA.XML", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'),
        "EnMAP metadata in XML",
    ),
    "enmap, two scenes in a folder": (two_enmap_scenes, "holds 2 EnMAP scenes"),
    "enmap, an image for each detector": (enmap_l1b, r"\(L1B\).*-SPECTRAL_IMAGE_VNIR\.TIF"),
    "enmap, half an image": (enmap_with("IMAGE.TIF", "II*"), "expected a GeoTIFF"),
    "enmap, half a zip": (half_an_enmap_zip, r"E\.zip: expected an EnMAP product"),
    "another zip": (foreign_zip, r"a\.zip: expected an EnMAP product"),
    "zarr, half": (half_a_store, r"a\.zarr: expected a Zarr store"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_products(tmp_path: Path, case: str) -> None:
    make, pattern = BROKEN[case]
    path = make(tmp_path)
    with pytest.raises(HydiffError) as caught:
        np.asarray(io.read(path).values)
    line = str(caught.value)
    assert "\n" not in line and re.search(pattern, line), line


@pytest.mark.parametrize("case", ["emit, half"])
def test_on_the_command_line(tmp_path: Path, case: str) -> None:
    path = BROKEN[case][0](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    target = tmp_path / f"out{path.suffix}"
    for words in (["info", path], ["fill", path, "-o", target], ["convert", path, target]):
        done = command.run(*words)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("hydiff: ") and done.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_chunk_is_reported_when_it_is_read(tmp_path: Path) -> None:
    path = emit(tmp_path)
    with h5py.File(path) as file:
        info = file["reflectance"].id.get_chunk_info(0)
    with path.open("r+b") as raw:
        raw.seek(info.byte_offset)
        raw.write(b"\xff" * info.size)
    with pytest.raises(CubeFormatError, match="expected a complete HDF5 file"):
        np.asarray(io.read(path).values)


@pytest.mark.parametrize("name", ["a.nc", "a.he5", "a.zip"])
def test_products_are_not_made_from_scratch(tmp_path: Path, name: str) -> None:
    with pytest.raises(CubeFormatError, match=r"as a copy of its source.*\.tif"):
        io.write(Cube(FLOATS), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_another_variable(tmp_path: Path) -> None:
    path = emit(tmp_path)
    with h5py.File(path, "r+") as file:
        file["reflectance_uncertainty"] = np.full((20, 18, 8), 0.5, "f4")
    cube = io.read(path, var="reflectance_uncertainty")
    assert cube.values[0, 0, 0] == 0.5 and cube.wavelengths is not None
    with pytest.raises(UnknownName, match="did you mean 'reflectance'"):
        io.read(path, var="reflectence")


def test_no_half_written_product(tmp_path: Path) -> None:
    """A source that fails while it is copied leaves nothing behind."""

    class Broken:
        shape, dtype = FLOATS.shape, FLOATS.dtype

        def __getitem__(self, key: object) -> np.ndarray:
            raise RuntimeError("the source went away")

    from dataclasses import replace

    for make in (emit, enmap):
        path = make(tmp_path)
        cube = io.read(path)
        shape = cube.shape
        broken = Broken()
        broken.shape, broken.dtype = shape, cube.dtype
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(RuntimeError):
            io.write(replace(cube, values=broken), tmp_path / f"out{path.suffix}")
        assert sorted(tmp_path.rglob("*")) == before
