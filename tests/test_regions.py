"""Where to fill: regions, bands, polygons and pictures as masks, margins."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rasterio.crs import CRS
from rasterio.transform import Affine
from rasterio.warp import transform_geom
from scipy import ndimage
from typer.testing import CliRunner

import hydiff
from hydiff import io
from hydiff.cli import app
from hydiff.cube import Bools, Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.gaps import regions
from hydiff.gaps.rule import left_lines

UTM = CRS.from_epsg(32611)
PLACE = (10.0, 0.0, 257000.0, 0.0, -10.0, 4112000.0)
WAVES = 850.0 + 20 * np.arange(12)


@pytest.fixture(scope="module")
def cube() -> Cube:
    """12 bands of Indian Pines, 40 × 44 pixels of 10 m, with a gap of three columns and a blob."""
    part = hydiff.sample().window(rows=slice(0, 40), cols=slice(0, 44), bands=slice(20, 32))
    values = np.asarray(part.values, np.float32)
    values[:, :, 20:23] = np.nan
    values[2:9, 10:14, 30:34] = np.nan
    return Cube(values, wavelengths=WAVES, wavelength_units="nm", crs=UTM.to_wkt(), transform=PLACE)


def area(rows: slice, cols: slice) -> dict[str, Any]:
    """A rectangle around these pixels, in the coordinates of the map."""
    grid = Affine(*PLACE)
    (x0, y0), (x1, y1) = grid @ (cols.start, rows.start), grid @ (cols.stop, rows.stop)
    return {"type": "Polygon", "coordinates": [[(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]]}


def in_degrees(geometry: dict[str, Any]) -> dict[str, Any]:
    return dict(transform_geom(UTM, CRS.from_epsg(4326), geometry))


def written(document: Any, path: Path) -> Path:
    path.write_text(json.dumps(document))
    return path


def pixels(rows: slice, cols: slice) -> Bools:
    inside = np.zeros((40, 44), bool)
    inside[rows, cols] = True
    return inside


PART = (slice(8, 30), slice(15, 32))


# ── regions ──────────────────────────────────────────────────────────────────────────────────────


def test_a_region_may_be_given_by_pixels_by_coordinates_and_by_polygons(
    cube: Cube, tmp_path: Path
) -> None:
    square = area(*PART)
    (x0, y1), _, (x1, y0) = square["coordinates"][0][:3]
    feature = {"type": "Feature", "properties": {}, "geometry": in_degrees(square)}
    old = {"type": "FeatureCollection", "features": [feature | {"geometry": square}]}
    old["crs"] = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32611"}}
    ways = [
        "8:30,15:32",
        f"{x0},{y0},{x1},{y1}",
        str(written(feature, tmp_path / "a.geojson")),
        str(written(in_degrees(square), tmp_path / "b.json")),
        str(written(old, tmp_path / "c.geojson")),
    ]
    for way in ways:
        np.testing.assert_array_equal(regions.region_pixels(way, cube), pixels(*PART))
    ends = regions.region_pixels(":5,-4:", cube)
    np.testing.assert_array_equal(ends, pixels(slice(0, 5), slice(40, 44)))


def test_only_gaps_in_the_region_and_bands_are_filled_and_with_the_same_values(cube: Cube) -> None:
    whole = hydiff.fill(cube, method="smooth")
    part = hydiff.fill(cube, method="smooth", region="8:30,15:32", bands="3:6")
    wanted = whole.filled & pixels(*PART)
    wanted[[*range(3), *range(6, 12)]] = False
    np.testing.assert_array_equal(part.filled, wanted)
    assert part.values[wanted].tobytes() == whole.values[wanted].tobytes()
    before, after = np.asarray(cube.values), np.asarray(part.cube.values)
    assert after[~wanted].tobytes() == before[~wanted].tobytes()
    elsewhere = whole.filled & ~pixels(*PART)
    assert part.left[regions.ELSEWHERE] == elsewhere.sum()
    others = whole.filled & pixels(*PART) & ~wanted
    assert part.left[regions.OTHER_BAND] == others.sum()


def test_tiles_keep_to_the_region_and_count_alike(cube: Cube, tmp_path: Path) -> None:
    io.write(cube, tmp_path / "a.img")
    where = ["--region", "8:30,15:32", "--bands", "910-960nm", "--method", "linear"]
    records = []
    for name, more in (("whole", []), ("tiles", ["--tile", "24"])):
        words = ["fill", str(tmp_path / "a.img"), "-o", str(tmp_path / f"{name}.img"), *where]
        done = CliRunner().invoke(app, [*words, *more, "--json"])
        assert done.exit_code == 0, done.output
        records.append(json.loads(done.stdout)["entries"])
    assert records[0] == records[1]
    one, other = (np.isnan(io.read(tmp_path / f"{n}.img").values) for n in ("whole", "tiles"))
    np.testing.assert_array_equal(one, other)
    assert records[0]["filled"] == 3 * 22 * 3 + 3 * 4 * 2


@pytest.mark.parametrize(
    ("unit", "nanometres"),
    [("nm", 1), ("Micrometers", 1e3), ("µm", 1e3), ("Millimeters", 1e6), ("m", 1e9), ("Å", 0.1)],
)
def test_wavelengths_are_found_in_any_unit_of_length(
    cube: Cube, unit: str, nanometres: float
) -> None:
    scaled = replace(cube, wavelengths=WAVES / nanometres, wavelength_units=unit)
    np.testing.assert_allclose(regions.nanometers(scaled, "", ""), WAVES)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("3", [3]),
        ("1:4,7", [1, 2, 3, 7]),
        (":2, 10:", [0, 1, 10, 11]),
        ("900-950nm", [3, 4, 5]),
        ("0.9-0.95um,0", [0, 3, 4, 5]),
    ],
)
def test_bands_are_numbers_or_wavelengths(cube: Cube, text: str, chosen: list[int]) -> None:
    assert np.flatnonzero(regions.chosen_bands(text, cube)).tolist() == chosen
    from dataclasses import replace

    for units in ("Nanometers", "Unknown", None):  # ENVI writes Unknown
        same = replace(cube, wavelength_units=units)
        assert np.flatnonzero(regions.chosen_bands(text, same)).tolist() == chosen
    for units in ("Micrometers", "um", "Unknown", None):
        small = replace(cube, wavelengths=WAVES / 1000, wavelength_units=units)
        assert np.flatnonzero(regions.chosen_bands(text, small)).tolist() == chosen
    with pytest.raises(BadValue, match="wavelengths in Wavenumber, which is no length; give"):
        regions.chosen_bands("900-950nm", replace(cube, wavelength_units="Wavenumber"))


# ── masks ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("meaning", ["missing", "observed"])
@pytest.mark.parametrize("kind", ["geojson", "png", "colour png"])
def test_drawn_masks_mean_what_they_are_given_as(
    cube: Cube, tmp_path: Path, kind: str, meaning: str
) -> None:
    inside = pixels(*PART)
    if kind == "geojson":
        path = written(in_degrees(area(*PART)), tmp_path / "m.geojson")
    else:
        path, shades = tmp_path / "m.png", np.where(inside, 255, 0).astype("u1")
        picture = shades if kind == "png" else np.stack([0 * shades, shades, 0 * shades], -1)
        Image.fromarray(picture).save(path)
    observed = io.read_mask(path, meaning, cube.shape, like=cube)
    np.testing.assert_array_equal(observed, inside if meaning == "observed" else ~inside)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16", "RGBA", "white first", "black first"])
def test_a_picture_means_the_same_however_it_is_stored(tmp_path: Path, mode: str) -> None:
    """Drawing programs save few colours as numbers of a palette, in any order."""
    inside = pixels(*PART)
    picture = Image.fromarray(np.where(inside, 255, 0).astype("u1"))
    if mode.endswith("first"):
        numbers = ~inside if mode == "white first" else inside
        colours = [255] * 3 + [0] * 3 if mode == "white first" else [0] * 3 + [255] * 3
        picture = Image.fromarray(numbers.astype("u1"), mode="P")
        picture.putpalette(colours)
    elif mode == "I;16":
        picture = Image.fromarray(np.where(inside, 60000, 0).astype("u2"))
    else:
        picture = picture.convert(mode)
    picture.save(tmp_path / "m.png")
    observed = io.read_mask(tmp_path / "m.png", "observed", (2, *inside.shape))
    np.testing.assert_array_equal(observed, inside)


@pytest.mark.parametrize("suffix", [".shp", ".gpkg"])
def test_layers_of_other_programs_are_drawn_too(cube: Cube, tmp_path: Path, suffix: str) -> None:
    fiona = pytest.importorskip("fiona", reason="fiona is not installed: GeoJSON and PNG only")
    driver = {".shp": "ESRI Shapefile", ".gpkg": "GPKG"}[suffix]
    schema = {"geometry": "Polygon", "properties": {"name": "str"}}
    path = tmp_path / f"m{suffix}"
    with fiona.open(path, "w", driver=driver, schema=schema, crs="EPSG:32611") as layer:
        layer.write({"geometry": area(*PART), "properties": {"name": "cloud"}})
    np.testing.assert_array_equal(
        io.read_mask(path, "missing", cube.shape, like=cube), ~pixels(*PART)
    )


def test_without_fiona_the_extra_is_named(
    cube: Cube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gpkg").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "fiona", None)
    with pytest.raises(BadValue, match=r'needs fiona.*pip install "hydiff\[vector\]"'):
        io.read_mask(tmp_path / "m.gpkg", "missing", cube.shape, like=cube)


@pytest.mark.parametrize("buffer", [1, 2.5])
def test_a_margin_is_a_distance(cube: Cube, buffer: float) -> None:
    missing = pixels(slice(20, 22), slice(5, 9))
    result = hydiff.fill(cube, missing=missing, buffer=buffer, method="linear")
    rows, cols = np.mgrid[-3:4, -3:4]
    disc = np.hypot(rows, cols) <= buffer
    grown = ndimage.binary_dilation(missing, disc)
    expected = grown | np.isnan(np.asarray(cube.values))
    np.testing.assert_array_equal(result.filled, expected)


def test_each_band_of_a_mask_has_its_own_margin() -> None:
    observed = np.ones((2, 9, 9), bool)
    observed[1, 4, 4] = False
    grown = regions.grown(observed, 1)
    assert grown is not None and grown[0].all() and (~grown[1]).sum() == 5


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "words": ({"region": "here"}, "expected rows and columns such as 10:60,20:80"),
    "beyond": ({"region": "100:,:"}, "covers no pixel of a cube of 40 × 44"),
    "turned": ({"region": "9,9,1,1"}, "xmin,ymin,xmax,ymax with min below max"),
    "far": ({"region": "0,0,1,1"}, "covers no pixel"),
    "absent": ({"region": "no.geojson"}, "no such file"),
    "band": ({"bands": "12"}, "bands are 0 to 11, found 12"),
    "no band": ({"bands": "40:50"}, "none of the 12 bands"),
    "wave": ({"bands": "2000-2100nm"}, "none of the 12 bands"),
    "bands": ({"bands": "red"}, "found 'red'"),
    "margin": ({"buffer": 2}, "`buffer=` widens a mask: give one"),
    "negative": ({"buffer": -1}, "expected a number of pixels, 0 or more"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_what_names_no_place_is_refused_in_one_line(cube: Cube, case: str) -> None:
    options, message = TEXTS[case]
    with pytest.raises(HydiffError, match=message) as raised:
        hydiff.fill(cube, method="linear", **options)
    assert "\n" not in str(raised.value)


FILES = {
    "no json": ("x", "expected GeoJSON, but"),
    "a list": ("[]", r"expected a GeoJSON object with a `type`, found \[\]"),
    "no feature": ('{"type": "FeatureCollection", "features": [null]}', "`type`, found null"),
    "crs alone": (
        '{"crs": "EPSG:4326", "type": "Polygon", "coordinates": [[[1, 1]]]}',
        '`crs` is "EPSG:4326", expected',
    ),
    "points": ('{"type": "Point", "coordinates": [1, 2]}', "no polygon in it"),
    "metres": (json.dumps(area(*PART)), "coordinates beyond 180°"),
    "elsewhere": (
        '{"type": "Polygon", "coordinates": [[[1, 1], [2, 1], [2, 2], [1, 1]]]}',
        "cover the centre of no pixel",
    ),
    "flat": ('{"type": "Polygon", "coordinates": [[1, 1]]}', "expected polygons"),
    "deep": ('{"type": "Polygon", "coordinates": ' + "[" * 3000 + "]" * 3000 + "}", "expected"),
    "a path as crs": (
        '{"crs": {"properties": {"name": "/etc/passwd"}}, "type": "Polygon", '
        '"coordinates": [[[1, 1], [2, 1], [2, 2], [1, 1]]]}',
        "expected a coordinate reference system",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_draw_nothing_are_refused_in_one_line(
    cube: Cube, tmp_path: Path, case: str
) -> None:
    text, message = FILES[case]
    path = tmp_path / "m.geojson"
    path.write_text(text)
    with pytest.raises(HydiffError, match=message) as raised:
        io.read_mask(path, "missing", cube.shape, like=cube)
    assert "\n" not in str(raised.value)


def test_polygons_and_boxes_want_a_map_and_pictures_the_right_size(tmp_path: Path) -> None:
    plain = Cube(np.ones((2, 8, 8)))
    path = written(in_degrees(area(*PART)), tmp_path / "m.geojson")
    with pytest.raises(BadValue, match="has no place on a map"):
        io.read_mask(path, "missing", plain.shape, like=plain)
    with pytest.raises(BadValue, match="has no place on a map"):
        regions.region_pixels("0,0,1,1", plain)
    with pytest.raises(BadValue, match="has no wavelengths; give numbers"):
        regions.chosen_bands("900-1000nm", plain)
    waves = replace(plain, wavelengths=np.array([900.0, 950.0]), wavelength_units="MHz")
    with pytest.raises(BadValue, match="has wavelengths in MHz, which is no length; give numbers"):
        regions.chosen_bands("900-1000nm", waves)
    Image.fromarray(np.zeros((3, 4), "u1")).save(tmp_path / "m.png")
    with pytest.raises(HydiffError, match=r"mask of shape \(3, 4\), but the cube is"):
        io.read_mask(tmp_path / "m.png", "missing", plain.shape)
    (tmp_path / "n.png").write_bytes(b"no picture")
    with pytest.raises(HydiffError, match="expected a PNG picture"):
        io.read_mask(tmp_path / "n.png", "missing", plain.shape)


def test_a_picture_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """GDAL, reading it whole, leaves random values where it ends."""
    noise = np.random.default_rng(0).integers(0, 255, (40, 40), dtype="u1")
    Image.fromarray(noise).save(tmp_path / "whole.png")
    stored = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "part.png").write_bytes(stored[: len(stored) // 2])
    with pytest.raises(HydiffError, match=r"expected a PNG picture.*libpng: Read Error"):
        io.read_mask(tmp_path / "part.png", "missing", (1, 40, 40))
    found = io.read_mask(tmp_path / "whole.png", "missing", (1, 40, 40))
    np.testing.assert_array_equal(found, noise == 0)


def test_no_option_is_said_to_fill_what_lies_outside_the_region():
    named, other = left_lines({"outside the observed pixels": 1, regions.ELSEWHERE: 2})
    assert "outside='fill'" in named
    assert other == f"left missing: 2 entries, {regions.ELSEWHERE}"
