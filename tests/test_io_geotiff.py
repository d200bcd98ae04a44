"""GeoTIFF: tags of every namespace, masks, overviews, and the places wavelengths stand in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

import products
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError
from hydiff.io import geotiff_tags
from test_io import same_values


def tagged_tif(path: Path, **profile: Any) -> Path:
    values = np.arange(3 * 40 * 50, dtype="int16").reshape(3, 40, 50)
    profile = {"nodata": -1, "crs": "EPSG:32633", **profile}
    transform = rasterio.Affine(30, 0, 100, 0, -30, 200)
    with rasterio.open(
        path, "w", "GTiff", 50, 40, 3, dtype="int16", transform=transform, **profile
    ) as dataset:
        dataset.write(values)
        dataset.update_tags(start_time="2022-07-24", note="a <b> & c")
        dataset.update_tags(ns="MINE", secret="1")
        dataset.update_tags(2, wavelength="x", colour="red")
        dataset.update_tags(2, ns="OTHER", deep="yes")
        dataset.scales, dataset.offsets, dataset.units = (0.1, 0.1, 0.1), (1, 2, 3), ("m", "m", "m")
        dataset.set_band_description(3, "third")
    return path


def everything(path: Path) -> dict[str, Any]:
    """All tags of all namespaces, of the file and of its bands, and whatever else it declares."""
    with rasterio.open(path) as dataset:
        spaces = [ns for ns in dataset.tag_namespaces() if ns not in geotiff_tags.MADE_UP]
        return {
            "tags": {ns: dataset.tags(ns=ns) for ns in [None, *spaces]},
            "bands": [
                {ns: dataset.tags(i, ns=ns) for ns in [None, *dataset.tag_namespaces(i)] if i != 2}
                | {"OTHER": dataset.tags(i, ns="OTHER"), "colour": dataset.tags(i).get("colour")}
                for i in dataset.indexes
            ],
            "rest": (dataset.scales, dataset.offsets, dataset.units, dataset.descriptions),
            "place": (dataset.crs, dataset.transform, dataset.nodata, dataset.colorinterp),
        }


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {
            "interleave": "pixel",
            "compress": "lzw",
            "tiled": True,
            "blockxsize": 16,
            "blockysize": 16,
        },
        {"interleave": "band", "compress": "deflate", "predictor": 2},
    ],
)
def test_geotiff_copy_keeps_layout_and_tags(tmp_path: Path, layout: dict[str, Any]) -> None:
    source = tagged_tif(tmp_path / "a.tif", **layout)
    cube = io.read(source)
    values = np.array(cube.values)
    values[1, 17, 20:23] = -7
    made = io.write(replace(cube, values=values), tmp_path / "b.tif")
    assert same_values(io.read(made[0]).values, values)
    assert everything(made[0]) == everything(source)
    assert {p.name for p in tmp_path.iterdir()} == {"a.tif", "b.tif"}
    with rasterio.open(source) as one, rasterio.open(made[0]) as other:
        assert one.profile == other.profile


@pytest.mark.parametrize("internal", ["YES", "NO"])
def test_filled_pixels_become_valid(tmp_path: Path, internal: str) -> None:
    valid = np.ones((40, 50), bool)
    valid[3:6, 4:9] = False
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=internal):
        source = tagged_tif(tmp_path / "a.tif", nodata=None)
        with rasterio.open(source, "r+") as dataset:
            dataset.write_mask(valid)
            dataset.build_overviews([2])
    cube = io.read(source)
    assert np.array_equal(cube.valid, valid)
    values = np.array(cube.values)
    values[:, 3:5, 4:9] = 999
    made = io.write(replace(cube, values=values), tmp_path / "b.tif")
    again = io.read(made[0])
    valid[3:5] = True
    assert np.array_equal(again.valid, valid)
    assert made[1:] == ([] if internal == "YES" else [tmp_path / "b.tif.msk"])
    with rasterio.open(made[0]) as dataset:
        small = dataset.read(1, out_shape=(20, 25))
        assert dataset.overviews(1) == [2]
        assert 999 in small
    scratch = io.write(replace(again, path=None), tmp_path / "c.tif")
    assert np.array_equal(io.read(scratch[0]).valid, valid)


def test_wavelengths_of_gdals_own_domain_and_of_envi_lists(tmp_path: Path) -> None:
    with rasterio.open(
        tmp_path / "a.tif", "w", "GTiff", 2, 2, 2, dtype="uint8", photometric="minisblack"
    ) as d:
        d.update_tags(1, ns="IMAGERY", CENTRAL_WAVELENGTH_UM="0.45", FWHM_UM="0.01")
        d.update_tags(2, ns="IMAGERY", CENTRAL_WAVELENGTH_UM="0.55", FWHM_UM="0.02")
    cube = io.read(tmp_path / "a.tif")
    assert (list(cube.wavelengths), cube.wavelength_units) == ([0.45, 0.55], "Micrometers")
    assert list(cube.fwhm) == [0.01, 0.02]
    with rasterio.open(
        tmp_path / "b.tif", "w", "GTiff", 2, 2, 2, dtype="uint8", photometric="minisblack"
    ) as d:
        d.update_tags(ns="ENVI", wavelength="{450, 550}", wavelength_units="nm", bbl="{0, 1}")
    cube = io.read(tmp_path / "b.tif")
    assert (list(cube.wavelengths), cube.wavelength_units) == ([450, 550], "nm")
    assert list(cube.good) == [False, True]


def test_stale_companions_of_a_replaced_file_go(tmp_path: Path) -> None:
    path = io.write(Cube(np.ones((1, 2, 2), "uint8")), tmp_path / "a.tif")[0]
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset></PAMDataset>")
    for name in ("a.tfw", "a_RPC.TXT", "a.RPB"):
        (tmp_path / name).write_text("of the old image")
    (tmp_path / "other.aux.xml").write_text("stays")
    io.write(Cube(np.zeros((1, 2, 2), "uint8")), path, overwrite=True)
    assert {p.name for p in tmp_path.iterdir()} == {"a.tif", "other.aux.xml"}


def test_geotiff_tags_survive_npz(tmp_path: Path) -> None:
    source = tagged_tif(tmp_path / "a.tif")
    middle = io.read(io.write(io.read(source), tmp_path / "b.npz")[0])
    back = io.write(middle, tmp_path / "c.tif")
    assert back == [tmp_path / "c.tif"]
    assert everything(back[0]) == everything(source)


@pytest.mark.parametrize("bands", [2, 3, 4])
def test_bytes_do_not_become_a_colour_picture(tmp_path: Path, bands: int) -> None:
    """GDAL takes the last of four uint8 bands for an alpha channel by default."""
    path = io.write(Cube(np.zeros((bands, 2, 2), "uint8")), tmp_path / "a.tif")[0]
    with rasterio.open(path) as dataset:
        assert {c.name for c in dataset.colorinterp} == {"gray", "undefined"}
        assert dataset.dataset_mask().all()


def as_pages(path: Path, values: np.ndarray) -> None:
    """One page a band, as tifffile writes a stack by default, and many cameras theirs."""
    tifffile.imwrite(path, values)


def as_pages_one_by_one(path: Path, values: np.ndarray) -> None:
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for band in values:
            file.write(band, photometric="minisblack", metadata=None, compression="zlib")


def as_imagej(path: Path, values: np.ndarray) -> None:
    """One page with the values of all images behind it."""
    tifffile.imwrite(path, values, imagej=True)
    with tifffile.TiffFile(path) as file:
        offset = file.pages[1].offset
    data = path.read_bytes()
    path.write_bytes(data.replace(offset.to_bytes(4, "little"), bytes(4)))


@pytest.mark.parametrize("write", [as_pages, as_pages_one_by_one, as_imagej])
def test_bands_on_pages_of_their_own_are_refused(write: Any, tmp_path: Path) -> None:
    """GDAL reads the first page alone: the others were ignored without a word."""
    values = (1000 * products.scene(5, 20, 18)).astype("f4")
    write(tmp_path / "x.tif", values)
    with rasterio.open(tmp_path / "x.tif") as dataset:
        assert dataset.count == 1
    with pytest.raises(CubeFormatError, match="5 images of one band"):
        io.read(tmp_path / "x.tif")


def test_masks_overviews_and_thumbnails_are_no_bands(tmp_path: Path) -> None:
    values = (1000 * products.scene(1, 40, 36)).astype("f4")
    path = products.geotiff(tmp_path / "x.tif", values)
    with rasterio.open(path, "r+", GDAL_TIFF_INTERNAL_MASK="YES") as dataset:
        dataset.write_mask(values[0] > 300)
        dataset.build_overviews([2, 4])
    tifffile.imwrite(path, np.zeros((8, 9), "u1"), append=True)
    np.testing.assert_array_equal(np.asarray(io.read(path).values), values)


def test_control_points_and_rpcs_of_a_window_refer_to_it(tmp_path: Path) -> None:
    values = (1000 * products.scene(2, 20, 18)).astype("f4")
    points = [
        GroundControlPoint(row=r, col=c, x=10 + c, y=50 - r) for r in (0, 20) for c in (0, 18)
    ]
    zeros = [0.0] * 20
    rpcs = RPC(
        *(100.0, 500.0, 50.0, 1.0, [1.0, *zeros[1:]], zeros, 10.25, 10.0),
        *(10.0, 1.0, [1.0, *zeros[1:]], zeros, 9.5, 9.0),
    )
    profile = {"driver": "GTiff", "width": 18, "height": 20, "count": 2, "dtype": "float32"}
    for name, georeference in (("gcps", {"gcps": points, "crs": "EPSG:4326"}), ("rpcs", {})):
        with rasterio.open(tmp_path / f"{name}.tif", "w", **profile, **georeference) as dataset:
            dataset.write(values)
            if name == "rpcs":
                dataset.rpcs = rpcs
        window = io.read(tmp_path / f"{name}.tif").window(slice(5, 15), slice(2, 12))
        io.write(window, tmp_path / f"{name}_window.tif")
    with rasterio.open(tmp_path / "gcps_window.tif") as dataset:
        moved = [(p.row, p.col, p.x, p.y) for p in dataset.gcps[0]]
    assert moved == [(p.row - 5, p.col - 2, p.x, p.y) for p in points]
    with rasterio.open(tmp_path / "rpcs_window.tif") as dataset:
        assert (dataset.rpcs.line_off, dataset.rpcs.samp_off) == (5.25, 7.5)
        assert dataset.rpcs.lat_off == rpcs.lat_off
