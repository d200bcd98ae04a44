"""GeoTIFF, second reading: masks of every kind, files beside the image, odd and hostile layouts."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp
from rasterio.rpc import RPC

import leading
from hydiff import io
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError
from hydiff.gaps import describe
from hydiff.io import tiff
from hydiff.io.transfer import convert

BANDS, ROWS, COLS = 4, 20, 30
PLACE = {"crs": "EPSG:32633", "transform": rasterio.Affine(30, 0, 100, 0, -30, 200)}


def values_of(dtype: str = "uint8") -> np.ndarray:
    """Some entries are 0, some 3, in different places of each band."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 6, (BANDS, ROWS, COLS)).astype(dtype)


def written(path: Path, values: np.ndarray, **profile: Any) -> Path:
    count, height, width = values.shape
    shape = {"count": count, "height": height, "width": width, "dtype": values.dtype}
    options = {"photometric": "minisblack", "alpha": "no", **PLACE, **profile}
    with rasterio.open(path, "w", driver="GTiff", **shape, **options) as dataset:
        dataset.write(values)
    return path


def filled(source: Path, target: Path, where: np.ndarray | None = None) -> Path:
    """Copy a file with 7 in some of its missing entries, by default all of them."""
    cube = io.read(source)
    values = np.array(cube.values)
    gaps = ~cube.observed() & (True if where is None else where)
    values[gaps] = 7
    made = io.write(replace(cube, values=values, valid=cube.validated(gaps)), target)
    assert made[0] == target
    return target


def masks(path: Path) -> np.ndarray:
    """GDAL's own view; the alpha band itself left out."""
    with rasterio.open(path) as dataset:
        colours = [c is not ColorInterp.alpha for c in dataset.colorinterp]
        return dataset.read_masks()[colours] != 0


# --- masks: GDAL is the oracle --------------------------------------------------------------------


def band_masks_inside(path: Path) -> Path:
    valid = values_of("int16")[:, ::-1] > 1
    cube = Cube(values_of("int16"), valid=valid)
    return io.write(cube, path)[0]


def mask_inside(path: Path) -> Path:
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"):
        written(path, values_of())
        with rasterio.open(path, "r+") as dataset:
            dataset.write_mask(values_of()[0] > 2)
    return path


def lossy_with_mask(path: Path) -> Path:
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"):
        written(path, values_of()[:1] * 40, compress="jpeg")
        with rasterio.open(path, "r+") as dataset:
            dataset.write_mask(values_of()[0] > 2)
    return path


def mask_beside(path: Path) -> Path:
    written(path, values_of())
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="NO"), rasterio.open(path, "r+") as dataset:
        dataset.write_mask(values_of()[0] > 2)
    assert path.with_name(path.name + ".msk").is_file()
    return path


def band_masks_beside(path: Path) -> Path:
    written(path, values_of())
    flags = (values_of()[:, ::-1] > 2) * np.uint8(255)
    mask = written(path.with_name(path.name + ".msk"), flags)
    with rasterio.open(mask, "r+") as dataset:
        dataset.update_tags(**{f"INTERNAL_MASK_FLAGS_{i}": 0 for i in range(1, BANDS + 1)})
    return path


def alpha(path: Path) -> Path:
    values = values_of()
    values[-1] = np.where(values[-1] > 2, 255, 0)
    written(path, values, photometric="rgb", alpha="yes")
    return path


def together(path: Path) -> Path:
    values = values_of() % 2
    written(path, values)
    with rasterio.open(path, "r+") as dataset:
        dataset.update_tags(NODATA_VALUES="0 1 0 1")
    return path


def single(path: Path) -> Path:
    written(path, values_of())
    nodata = "".join(
        f'<PAMRasterBand band="{i}"><NoDataValue>{i}</NoDataValue></PAMRasterBand>'
        for i in range(1, BANDS)
    )
    leading.pam(path, nodata)
    return path


KINDS = [band_masks_inside, mask_inside, mask_beside, band_masks_beside, alpha, together, single]
KINDS += [lossy_with_mask]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_missing_is_what_gdal_says(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = make(tmp_path / "a.tif")
    cube = io.read(source)
    expected = masks(source)
    assert 0 < expected.mean() < 1
    assert np.array_equal(cube.observed()[: len(expected)], expected)
    block = slice(1, 3), slice(2, 9), slice(3, 7)
    part = cube.observed_in(np.asarray(cube.values[block]), None, block[1], block[2], block[0])
    assert np.array_equal(part, cube.observed()[block])
    assert np.array_equal(cube.window(bands=slice(1, 3)).observed(), cube.observed()[1:3])
    said = dict(describe.lines(describe.facts(cube)))
    assert said["mask"] and said["missing"].startswith(f"{100 * (~cube.observed()).mean():.2f} %")


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_filled_entries_are_valid_and_others_stay(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """Half of the gaps are filled, in all bands: these are valid afterwards, for GDAL too."""
    source = make(tmp_path / "a.tif")
    before = io.read(source)
    left = np.zeros((ROWS, COLS), bool)
    left[: ROWS // 2] = True
    (tmp_path / "out").mkdir()
    target = filled(source, tmp_path / "out" / "b.tif", where=~left)
    expected = before.observed() | ~left
    after = io.read(target)
    assert np.array_equal(after.observed(), expected)
    assert np.array_equal(masks(target), expected[: len(masks(target))])
    measured = before.observed()
    assert np.array_equal(np.asarray(after.values)[measured], np.asarray(before.values)[measured])


def test_masks_of_bands_survive_a_conversion(tmp_path: Path) -> None:
    source = band_masks_beside(tmp_path / "a.tif")
    made = io.write(replace(io.read(source), path=None), tmp_path / "b.tif")
    assert made == [tmp_path / "b.tif"]
    assert np.array_equal(masks(made[0]), masks(source))
    io.write(io.read(source), tmp_path / "c.zarr")


@pytest.mark.parametrize("make", [mask_inside, band_masks_beside], ids=lambda make: make.__name__)
def test_a_fill_in_another_format_keeps_what_was_filled(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """A mask that still called them invalid would make them NaN again."""
    from hydiff import fill

    source = make(tmp_path / "a.tif")
    cube = io.read(source).load()
    result = fill(replace(cube, values=np.asarray(cube.values, "float32")), method="nearest")
    assert result.filled.sum() > 0.9 * (~masks(source)).sum()
    assert result.cube.observed()[result.filled].all()
    made = io.write(replace(result.cube, path=None), tmp_path / "b.zarr")
    assert np.isfinite(np.asarray(io.read(made[0]).values)[result.filled]).all()


def test_an_alpha_band_is_no_measurement(tmp_path: Path) -> None:
    cube = io.read(alpha(tmp_path / "a.tif"))
    assert cube.good is not None and cube.good.tolist() == [True, True, True, False]


# --- files beside the image -----------------------------------------------------------------------


def aux_xml(path: Path) -> None:
    band = (
        "<PAMRasterBand band='1'><Description>first</Description><NoDataValue>-1</NoDataValue>"
        "<Scale>0.5</Scale><Offset>2</Offset><Metadata><MDI key='STATISTICS_MEAN'>9</MDI>"
        "<MDI key='kept'>yes</MDI></Metadata><Histograms/></PAMRasterBand>"
    )
    other = "<PAMRasterBand band='2'><NoDataValue>-1</NoDataValue></PAMRasterBand>"
    crs = rasterio.crs.CRS.from_epsg(32633).to_wkt().replace("&", "&amp;")
    leading.pam(path, f"<SRS>{crs}</SRS>{band}{other}<GeoTransform>9,3,0,8,0,-3</GeoTransform>")


def erdas(path: Path) -> None:
    crs, transform = PLACE.values()
    leading.auxiliary(path.with_suffix(".aux"), path.name, nodata=-1, crs=crs, transform=transform)


@pytest.mark.parametrize("describe", [aux_xml, erdas])
def test_what_stands_beside_an_image_is_not_lost(
    tmp_path: Path, describe: Callable[[Path], None]
) -> None:
    """Nodata, CRS, place and names; also when the filled image is alone."""
    source = written(tmp_path / "a.tif", leading_values(), crs=None, transform=None)
    describe(source)
    before = io.read(source)
    assert before.nodata == -1 and before.crs and before.transform and before.band_names
    where = np.zeros(before.shape, bool)
    where[:, 0, 0] = True
    (tmp_path / "out").mkdir()
    target = filled(source, tmp_path / "out" / "b.tif", where)
    alone = tmp_path / "alone.tif"
    shutil.copyfile(target, alone)
    for path in (target, alone):
        after = io.read(path)
        assert (after.nodata, after.transform) == (-1, before.transform)
        assert rasterio.crs.CRS.from_wkt(after.crs).to_epsg() == 32633
        assert after.band_names == before.band_names
        assert (~after.observed()).sum() == (~before.observed()).sum() - before.bands
        boxes = [cube.attrs["geotiff"] for cube in (before, after)]
        assert boxes[0]["scales"] == boxes[1]["scales"]
    if describe is aux_xml:
        text = (tmp_path / "out" / "b.tif.aux.xml").read_text()
        assert "kept" in text and "STATISTICS" not in text and "Histograms" not in text


def leading_values() -> np.ndarray:
    values = np.arange(np.prod(leading.SHAPE), dtype="int16").reshape(leading.SHAPE)
    values[:, 0, :5] = -1
    return values


RPCS = RPC(
    height_off=1, height_scale=2, lat_off=3, lat_scale=4, long_off=5, long_scale=6, line_off=7,
    line_scale=8, samp_off=9, samp_scale=10, err_bias=0, err_rand=0,
    line_num_coeff=[1.0] * 20, line_den_coeff=[2.0] * 20,
    samp_num_coeff=[3.0] * 20, samp_den_coeff=[4.0] * 20,
)  # fmt: skip


def test_rpcs_of_a_text_file_and_control_points_stay(tmp_path: Path) -> None:
    source = written(tmp_path / "a.tif", leading_values(), crs=None, transform=None, nodata=-1)
    lines = "".join(f"{key}: {text}\n" for key, text in _rpc_lines())
    (tmp_path / "a_RPC.TXT").write_text(lines)
    with rasterio.open(source) as dataset:
        assert dataset.rpcs.samp_scale == 10
    target = filled(source, tmp_path / "b.tif")
    assert (tmp_path / "b_RPC.TXT").read_text() == lines
    with rasterio.open(target.rename(tmp_path / "c.tif")) as dataset:
        assert dataset.rpcs.samp_den_coeff == [4.0] * 20
    points = [GroundControlPoint(r, c, 10.0 + c, 50.0 - r) for r, c in ((0, 0), (0, 9), (9, 0))]
    with rasterio.open(source, "r+") as dataset:
        dataset.gcps = points, rasterio.crs.CRS.from_epsg(4326)
    scratch = io.write(replace(io.read(source), path=None), tmp_path / "d.tif")[0]
    for path in (filled(source, tmp_path / "e.tif"), scratch):
        with rasterio.open(path) as dataset:
            assert [(p.row, p.col, p.x) for p in dataset.gcps[0]] == [
                (p.row, p.col, p.x) for p in points
            ]


def _rpc_lines() -> list[tuple[str, str]]:
    pairs = []
    for key, text in RPCS.to_gdal().items():
        if key.endswith("COEFF"):
            pairs += [(f"{key}_{i}", part) for i, part in enumerate(text.split(), start=1)]
        else:
            pairs.append((key, text))
    return pairs


def test_statistics_of_changed_bands_go_and_others_stay(tmp_path: Path) -> None:
    source = written(tmp_path / "a.tif", leading_values(), nodata=-1)
    with rasterio.open(source, "r+") as dataset:
        for band in dataset.indexes:
            dataset.update_tags(band, STATISTICS_MEAN=str(band), STATISTICS_MAXIMUM="9", mine="1")
    cube = io.read(source)
    values = np.array(cube.values)
    values[0, 0, 0] = 5
    io.write(replace(cube, values=values), tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.tags(1) == {"mine": "1"}
        assert dataset.tags(2) == {"mine": "1", "STATISTICS_MEAN": "2", "STATISTICS_MAXIMUM": "9"}


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("big", ["YES", "NO"])
@pytest.mark.parametrize("interleave", ["band", "pixel"])
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_a_filled_file_has_no_idle_bytes(
    tmp_path: Path, big: str, interleave: str, order: str
) -> None:
    """It is about as large as the same values written at once, and says all that its source did."""
    values = np.random.default_rng(0).integers(0, 300, (6, 128, 128)).astype("int16")
    values[:, :, 60:66] = -1
    layout = {"compress": "deflate", "predictor": 2, "tiled": True, "blockxsize": 64}
    layout |= {"blockysize": 64, "interleave": interleave, "BIGTIFF": big, "ENDIANNESS": order}
    source = written(tmp_path / "a.tif", values, nodata=-1, **layout)
    with rasterio.open(source, "r+") as dataset:
        dataset.build_overviews([2])
        dataset.update_tags(note="a <b>")
        dataset.update_tags(3, deep="yes")
    target = filled(source, tmp_path / "b.tif")
    at_once = written(tmp_path / "c.tif", np.where(values == -1, 7, values), nodata=-1, **layout)
    with rasterio.open(at_once, "r+") as dataset:
        dataset.build_overviews([2])
    assert target.stat().st_size < 1.02 * at_once.stat().st_size
    with rasterio.open(source) as one, rasterio.open(target) as other:
        assert one.profile == other.profile and one.tags() == other.tags()
        assert one.tags(3) == other.tags(3) and other.overviews(1) == [2]
        assert np.array_equal(other.read(), np.where(values == -1, 7, values))


def test_tags_that_nobody_knows_stay(tmp_path: Path) -> None:
    """A private tag and one of an unknown type, in a file whose layout is written again."""
    source = mask_inside(tmp_path / "a.tif")
    leading.tagged(source, b"<GDALMetadata></GDALMetadata>\0")  # the page moves to the end
    data = bytearray(source.read_bytes())
    at = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, at)[0]
    rows = data[at + 2 : at + 2 + 12 * count]
    rows += struct.pack("<HHI4s", 65000, 2, 4, b"abc\0") + struct.pack(
        "<HHI4s", 65001, 99, 1, b"wxyz"
    )
    following = data[at + 2 + 12 * count :][:4]
    page = struct.pack("<H", count + 2) + rows + following
    source.write_bytes(data[:4] + struct.pack("<I", len(data)) + data[8:] + page)
    tiff.compact(source, tmp_path / "b.tif", tiff.Change())
    with (tmp_path / "b.tif").open("rb") as file:
        entries = dict(tiff.parse(file, 10**6, source).pages[0].entries)
    assert entries[65000].data == b"abc\0" and entries[65001].data == b"wxyz"


# --- layouts that GDAL reads and does not write ---------------------------------------------------


def by_hand(path: Path, entries: dict[int, tuple[int, list[int]]], data: bytes) -> Path:
    """A little TIFF: tag -> (type 3 or 4, numbers); data begin at byte 8."""
    at = 8 + len(data)
    rows, tail, beyond = b"", b"", at + 2 + 12 * len(entries) + 4
    for tag, (kind, numbers) in sorted(entries.items()):
        raw = struct.pack("<" + {3: "H", 4: "I"}[kind] * len(numbers), *numbers)
        rows += struct.pack("<HHI", tag, kind, len(numbers))
        if len(raw) > 4:
            rows += struct.pack("<I", beyond + len(tail))
            tail += raw
        else:
            rows += raw.ljust(4, b"\0")
    page = struct.pack("<H", len(entries)) + rows + bytes(4) + tail
    path.write_bytes(b"II*\0" + struct.pack("<I", at) + data + page)
    return path


def plain(
    rows: int, cols: int, bands: int, bits: int, size: int
) -> dict[int, tuple[int, list[int]]]:
    return {
        256: (3, [cols]), 257: (3, [rows]), 258: (3, [bits] * bands), 259: (3, [1]),
        262: (3, [1]), 273: (4, [8]), 277: (3, [bands]), 278: (3, [rows]), 279: (4, [size]),
        284: (3, [1]),
    }  # fmt: skip


def half_floats(path: Path) -> Path:
    data = np.linspace(1, 2, 64, dtype="float16").tobytes()
    return by_hand(path, {**plain(8, 8, 1, 16, len(data)), 339: (3, [3])}, data)


def deflated_half_floats(path: Path) -> Path:
    data = zlib.compress(np.linspace(1, 2, 64, dtype="float16").tobytes())
    return by_hand(path, {**plain(8, 8, 1, 16, len(data)), 259: (3, [8]), 339: (3, [3])}, data)


def flat_tiles(path: Path) -> Path:
    """Tiles one row high, which TIFF does not allow and GDAL reads."""
    entries = plain(1, 3, 1, 8, 4)
    del entries[278], entries[273], entries[279]
    entries |= {322: (3, [2]), 323: (3, [1]), 324: (4, [8, 10]), 325: (4, [2, 2])}
    return by_hand(path, entries, b"\1\2\3\0")


def twelve_bits(path: Path) -> Path:
    return by_hand(path, plain(8, 8, 1, 12, 96), bytes(range(96)))


def colours_of_jpeg(path: Path) -> Path:
    values = values_of()[:3].repeat(2, axis=1)
    options = {"compress": "jpeg", "photometric": "ycbcr", "interleave": "pixel"}
    return written(path, values, tiled=True, blockxsize=16, blockysize=16, **options)


def luminance(path: Path) -> Path:
    """LogL: a base that GDAL unpacks to 16 bits and does not pack."""
    entries = plain(8, 8, 1, 16, 0) | {262: (3, [32844]), 259: (3, [34676]), 339: (3, [2])}
    row = bytes([128 + 8 - 2, 0x40, 128 + 8 - 2, 0x11])  # two runs of eight bytes: high, low
    entries[279] = (4, [len(row) * 8])
    return by_hand(path, entries, row * 8)


ODD = [half_floats, deflated_half_floats, flat_tiles, twelve_bits, colours_of_jpeg, luminance]


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_what_gdal_cannot_update_is_written_from_scratch(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    source = make(tmp_path / "a.tif")
    cube = io.read(source)
    values = np.array(cube.values)
    values[0, 0, 0] = {"f": 3.1415927, "i": 5000}.get(cube.dtype.kind, 7)
    if cube.dtype == "uint16":
        values[0, 0, 0] = 5000  # more than twelve bits hold
    made = io.write(replace(cube, values=values), tmp_path / "b.tif")
    assert np.array_equal(np.asarray(io.read(made[0]).values), values)


def test_a_file_that_claims_too_many_bands_is_refused_at_once(tmp_path: Path) -> None:
    entries = plain(8, 8, 1, 8, 0) | {277: (3, [65535]), 273: (4, [0])}
    path = by_hand(tmp_path / "a.tif", entries, b"")
    assert path.stat().st_size < 244
    line = [sys.executable, "-m", "hydiff", "info", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "65535 bands" in done.stderr


def test_damaged_metadata_are_refused_in_one_line(tmp_path: Path) -> None:
    """GDAL would quote their bytes, and Python print that they are no UTF-8."""
    path = written(tmp_path / "a.tif", leading_values())
    leading.tagged(path, b"<GD\xff\xffMetadata><Item name='a'>1</Item></GDALMetadata>\0")
    line = [sys.executable, "-m", "hydiff", "info", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    leading.tagged(path, b"<GDALMetadata><Item name='a'>gr\xfcn</Item></GDALMetadata>\0")
    io.read(path)  # Latin-1, but sound


def test_tags_that_overlap_a_thousand_times_are_refused(tmp_path: Path) -> None:
    """Each of 4,000 tags claims the whole file: 200 MB from 50 kB."""
    rows = b"".join(struct.pack("<HHII", 40000 + i, 1, 50_000, 8) for i in range(4000))
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, 4000) + rows + bytes(8000))
    with pytest.raises(CubeFormatError):
        io.read(path)


# --- an ENVI header beside a GeoTIFF --------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.hdr", "a.tif.hdr"])
def test_an_envi_header_adds_wavelengths_to_a_geotiff(tmp_path: Path, name: str) -> None:
    source = written(tmp_path / "a.tif", leading_values(), nodata=-1)
    bands, rows, cols = leading.SHAPE
    (tmp_path / name).write_text(
        f"ENVI\nsamples = {cols}\nlines = {rows}\nbands = {bands}\nheader offset = 0\n"
        "file type = TIFF\ndata type = 12\ninterleave = tif\nbyte order = 0\n"
        "wavelength = {410.5, 415}\nwavelength units = nm\n"
    )
    for path in (source, tmp_path / name):
        cube = io.read(path)
        assert cube.wavelengths is not None and cube.wavelengths.tolist() == [410.5, 415]
        assert (cube.nodata, cube.wavelength_units, cube.path) == (-1, "nm", source)
    after = io.read(filled(source, tmp_path / "b.tif"))
    assert after.wavelengths is not None and after.observed().all()
    assert (tmp_path / name.replace("a.", "b.")).read_bytes() == (tmp_path / name).read_bytes()


# --- scale ----------------------------------------------------------------------------------------


def test_error_bars_have_the_scale_of_their_cube(tmp_path: Path) -> None:
    from hydiff import fill
    from hydiff.io import provenance

    source = written(tmp_path / "a.tif", leading_values(), nodata=-1)
    with rasterio.open(source, "r+") as dataset:
        dataset.scales, dataset.offsets, dataset.units = (0.5, 0.25), (1, 2), ("W", "W")
    result = fill(io.read(source), method="smooth")
    result = replace(result, sigma=np.where(result.filled, 1.5, 0).astype("float32"))
    provenance.save(result, tmp_path / "b.tif", command="")
    convert(tmp_path / "b.tif", tmp_path / "c.tif")
    with rasterio.open(tmp_path / "c.tif") as cube:
        assert (cube.scales, cube.offsets) == ((0.5, 0.25), (1, 2))
    with rasterio.open(tmp_path / "c.tif.sigma.tif") as sigma:
        assert (sigma.scales, sigma.offsets, sigma.units) == ((0.5, 0.25), (0, 0), ("W", "W"))
    with rasterio.open(tmp_path / "c.tif.flags.tif") as where:
        assert where.scales == (1, 1)
