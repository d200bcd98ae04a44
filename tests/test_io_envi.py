"""Laws of ENVI files: which files belong together, and what their headers say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio

import hydiff
import products
from hydiff import io, report
from hydiff.cube import Cube
from hydiff.errors import CubeFormatError, OutputError
from hydiff.gaps import describe
from hydiff.io import blocks, envi_header, provenance, threads, transfer
from hydiff.io.conventions import evident_unit
from hydiff.io.headers import scaling
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.scene import Limits
from hydiff.viewer.scene_layers import from_files

WHOLE, TILES = Limits(8e9), Limits(8e9, tile=16)
LINEAR = Request(method="linear", outside="fill")
BARRED = Request(method="smooth", outside="fill", settings={"error_bars": True})
COMPANIONS = {"flags.img", "why.img", "sigma.img", "fill.json"}


@pytest.fixture
def clean(tiny: np.ndarray) -> Cube:
    return Cube((1000 * tiny).astype(np.int16), nodata=-9.0)


@pytest.fixture
def scene(tmp_path: Path, clean: Cube, stripes: np.ndarray) -> Path:
    values = np.where(stripes, clean.values, np.int16(-9))
    return io.write(replace(clean, values=values), tmp_path / "scene.img")[0]


def companions(folder: Path, name: str) -> set[str]:
    return {p.name.removeprefix(f"{name}.") for p in folder.glob(f"{name}.*")} & COMPANIONS


# --- which files belong together ------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_companions_are_called_after_the_data_file(
    scene: Path, clean: Cube, bounds: Limits
) -> None:
    """Whichever of the two files is named, as input, as output, or later."""
    folder, truth = scene.parent, scene.with_name("truth.img")
    io.write(clean, truth)
    execute.fill_file(scene.with_suffix(".hdr"), folder / "f.hdr", BARRED, bounds)
    assert companions(folder, "f.img") == COMPANIONS and not companions(folder, "f.hdr")
    for name in ("f.hdr", "f.img"):
        assert report.write(folder / name, overwrite=True) == folder / "f.img.report.html"
        made = transfer.convert(folder / name, folder / f"{name}.tif")
        assert {p.name for p in made} >= {f"{name}.tif.flags.tif", f"{name}.tif.sigma.tif"}
        assert from_files(folder / name).fills is not None
        assert from_files(scene, folder / name).fills is not None
        done = transfer.convert(folder / name, folder / f"{name[-3:]}.hdr")
        assert f"{name[-3:]}.img.flags.img" in {p.name for p in done}


def test_a_score_finds_the_companions(
    scene: Path, clean: Cube, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hydiff.cli.score import score

    io.write(clean, scene.with_name("truth.img"))
    execute.fill_file(scene, scene.with_name("f.hdr"), BARRED, WHOLE)
    found = []
    for name in ("f.hdr", "f.img"):
        score(scene.with_name(name), scene.with_name("truth.hdr"), json_=True)
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and "calibration" in found[0]


def test_companions_of_earlier_versions_are_found_and_go_with_their_fill(scene: Path) -> None:
    folder = scene.parent
    execute.fill_file(scene, folder / "f.img", BARRED, WHOLE)
    for path in list(folder.glob("f.img.*")):
        path.rename(folder / path.name.replace("f.img", "f.hdr"))
    shape = io.read(scene).shape
    assert provenance.companions(folder / "f.img", shape).keys() > {"filled", "flags", "sigma"}
    assert report.write(folder / "f.img").name == "f.hdr.report.html"
    assert from_files(folder / "f.hdr").fills is not None
    with pytest.raises(OutputError, match=r"f\.\w+ exists; pass `overwrite=True`"):
        execute.fill_file(scene, folder / "f.hdr", LINEAR, WHOLE)
    execute.fill_file(scene, folder / "f.hdr", LINEAR, WHOLE, overwrite=True)
    assert not companions(folder, "f.hdr")
    assert companions(folder, "f.img") == COMPANIONS - {"sigma.img"}


def test_the_noise_of_a_fill_is_found_in_a_record_of_an_earlier_version(scene: Path) -> None:
    folder, noisy = scene.parent, replace(BARRED, sigma_y=3.0)
    execute.fill_file(scene, folder / "f.img", noisy, WHOLE)
    cube = io.read(folder / "f.img")
    values = np.asarray(cube.values)
    now = provenance.calibrated(folder / "f.img", values, values + 1, cube.mark)
    for path in list(folder.glob("f.img.*")):
        path.rename(folder / path.name.replace("f.img", "f.hdr"))
    earlier = provenance.calibrated(folder / "f.img", values, values + 1, cube.mark)
    assert now is not None and now == earlier and now[1] is not None
    assert now[1].repeated is not None


def test_a_band_without_noise_does_not_hide_the_coverage_of_repeated_measurements(
    scene: Path,
) -> None:
    cube = io.read(scene)
    noise = np.r_[np.zeros(1), np.full(cube.bands - 1, 3.0)]
    fill = hydiff.fill(cube, method="smooth", error_bars=True, sigma_y=noise, outside="fill")
    fill.save(scene.parent / "f.img")
    values = np.asarray(fill.cube.values)
    found = provenance.calibrated(scene.parent / "f.img", values, values + 1, fill.cube.mark)
    assert found is not None and found[1] is not None and found[1].repeated is not None


def test_a_fill_without_a_record_is_marked_as_filled_by_an_unknown_method(scene: Path) -> None:
    folder = scene.parent
    io.write(replace(io.read(scene), path=None), folder / "in.npy")
    execute.fill_file(folder / "in.npy", folder / "f.npy", replace(LINEAR, unmarked=True), WHOLE)
    for path in folder.glob("f.npy.*json"):  # the record, and what .npy has no place for
        path.unlink()
    mark = io.read(transfer.convert(folder / "f.npy", folder / "g.img")[0]).mark
    assert mark is not None and mark.method == "unknown" and mark.share > 0


@pytest.mark.parametrize("names", [("scene.hdr", "scene.img"), ("scene.img", "scene.hdr")])
@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_an_input_is_not_replaced_under_its_other_name(
    scene: Path, names: tuple[str, str], bounds: Limits
) -> None:
    before = {p: p.read_bytes() for p in scene.parent.iterdir()}
    source, output = (scene.with_name(name) for name in names)
    with pytest.raises(OutputError, match="are one cube, and the input would be replaced"):
        execute.fill_file(source, output, LINEAR, bounds, overwrite=True)
    assert {p: p.read_bytes() for p in scene.parent.iterdir()} == before
    execute.fill_file(source, source, LINEAR, bounds, overwrite=True)  # asked for by name
    assert io.read(scene).observed().all()


@pytest.mark.parametrize("name", ["scene", "scene.img", "SCENE.IMG", "scene.raw"])
def test_a_header_in_capitals_is_found_from_its_data(
    tmp_path: Path, clean: Cube, name: str
) -> None:
    made, header = io.write(clean, tmp_path / "x.img")
    data = made.rename(tmp_path / name)
    header.rename(data.with_suffix(".HDR"))
    for path in (data, data.with_suffix(".HDR")):
        assert np.array_equal(io.read(path).values, clean.values)
    execute.fill_file(data, tmp_path / "copy.img", LINEAR, WHOLE)
    assert io.read(tmp_path / "copy.img").shape == clean.shape


def test_a_header_that_is_named_is_the_one_that_is_written(tmp_path: Path, clean: Cube) -> None:
    made = io.write(clean, tmp_path / "x.img")[0].rename(tmp_path / "x.raw")
    cube = io.read(made)
    again = io.write(replace(cube, nodata=-5.0), tmp_path / "y.hdr")
    assert [p.name for p in again] == ["y.raw", "y.hdr"]


# --- what headers say -----------------------------------------------------------------------------


def with_entries(path: Path, **entries: str) -> Cube:
    header = path.with_suffix(".hdr")
    more = "".join(f"{key.replace('_', ' ')} = {value}\n" for key, value in entries.items())
    header.write_text(header.read_text() + more)
    return io.read(path)


@pytest.mark.parametrize(
    ("form", "unit"),
    [
        ("{} Nanometers", "Nanometers"),
        ("{} um", "um"),
        ("band {i} ({} Micrometers)", "Micrometers"),
        ("Resize (b1: {} nm)", "nm"),
        ("{}nm", "nm"),
    ],
)
def test_wavelengths_that_stand_in_band_names(scene: Path, form: str, unit: str) -> None:
    values = np.linspace(400, 900, 12).round(2)
    names = [form.format(w, i=i) for i, w in enumerate(values, 1)]
    cube = with_entries(scene, band_names="{" + ", ".join(names) + "}")
    assert cube.wavelengths is not None and list(cube.wavelengths) == list(values)
    assert (cube.wavelength_units, cube.band_names) == (unit, tuple(names))
    printed = dict(describe.lines(describe.facts(cube)))
    assert printed["note"] == "wavelengths: read from the band names"
    again = io.read(io.write(cube, scene.with_name("x.bip"))[0])  # from scratch
    assert io._equal(again.wavelengths, cube.wavelengths) and again.wavelength_units == unit


@pytest.mark.parametrize(
    "names",
    [
        [f"band {i}" for i in range(12)],
        [f"{400 + i} nm" for i in range(11)] + ["sum"],
        [f"{400 + i} nm" for i in range(11)] + ["0.5 um"],
        [f"ratio 400 nm / {500 + i} nm" for i in range(12)],
        [f"B{i}nm" for i in range(12)],
    ],
)
def test_names_that_are_no_list_of_wavelengths(scene: Path, names: list[str]) -> None:
    cube = with_entries(scene, band_names="{" + ", ".join(names) + "}")
    assert cube.wavelengths is None and cube.wavelength_units is None


@pytest.mark.parametrize("suffix", [".img", ".tif", ".npy", ".zarr", ".mat"])
def test_a_unit_that_is_evident_is_taken_and_said(tmp_path: Path, clean: Cube, suffix: str) -> None:
    for last, unit in ((2600.0, "Nanometers"), (2.6, "Micrometers")):
        bare = replace(clean, wavelengths=np.linspace(0.4 * last, last, 12))
        cube = io.read(io.write(bare, tmp_path / f"{unit}{suffix}")[0])
        assert cube.wavelength_units == unit
        assert f"taken as {unit}" in dict(describe.lines(describe.facts(cube)))["note"]
        given = replace(bare, wavelength_units="Unknown")
        cube = io.read(io.write(given, tmp_path / f"{unit}-given{suffix}")[0])
        assert cube.wavelength_units == unit
        note = dict(describe.lines(describe.facts(cube)))["note"]
        assert f'stated as "Unknown", and taken as {unit}' in note


@pytest.mark.parametrize("unit", ["Unknown", "None", " "])
def test_a_unit_that_is_neither_stated_nor_evident_is_none(
    tmp_path: Path, clean: Cube, unit: str
) -> None:
    index = replace(clean, wavelengths=np.arange(12.0), wavelength_units=unit)
    cube = io.read(io.write(index, tmp_path / "index.img")[0])
    assert cube.wavelength_units is None
    assert "unit not given" in dict(describe.lines(describe.facts(cube)))["wavelengths"]


@pytest.mark.parametrize(
    ("wkt", "shown"),
    [
        ('PROJCS["unnamed",GEOGCS["WGS 84"],PROJECTION["Transverse_Mercator"]]', "Transverse Mer"),
        (
            'PROJCS["UTM_Zone_33N",GEOGCS["WGS 84"],PROJECTION["Transverse_Mercator"]]',
            "UTM_Zone_33N",
        ),
        ('LOCAL_CS["unnamed",UNIT["m",1]]', "coordinates, without a name"),
        ("EPSG:32633", "EPSG:32633"),
    ],
)
def test_unnamed_is_no_name_of_a_map(clean: Cube, wkt: str, shown: str) -> None:
    line = dict(describe.lines(describe.facts(replace(clean, crs=wkt))))["map"]
    assert shown in line and "unnamed" not in line


def test_a_unit_is_evident_only_where_all_wavelengths_say_so() -> None:
    assert evident_unit(np.array([0.0, 400.0, 2600.0])) == "Nanometers"  # 0: not used
    assert evident_unit(np.array([0.3, 2.6])) == "Micrometers"
    for values in ([299.0, 500.0], [500.0, 2601.0], [0.2, 0.5], [1.0, 400.0], [0.0], [-400.0, 500]):
        assert evident_unit(np.array(values)) is None


def test_gain_and_offset_survive_a_conversion_to_envi_and_back(tmp_path: Path, clean: Cube) -> None:
    scales, offsets = [1e-4 * (1 + i) for i in range(12)], [0.5] * 12
    source = io.write(clean, tmp_path / "a.tif")[0]
    with rasterio.open(source, "r+") as dataset:
        dataset.scales, dataset.offsets = scales, offsets
    made = transfer.convert(source, tmp_path / "b.img")[0]
    with rasterio.open(made) as dataset:
        assert (list(dataset.scales), list(dataset.offsets)) == (scales, offsets)
    assert scaling(io.read(made).attrs, 12) == (scales, offsets)
    for suffix in (".tif", ".zarr", ".bip"):
        there = transfer.convert(made, tmp_path / f"c{suffix}")[0]
        assert scaling(io.read(there).attrs, 12) == (scales, offsets)
    part = io.read(made).window(bands=slice(2, 5))
    assert scaling(io.read(io.write(part, tmp_path / "d.img")[0]).attrs, 3) == (
        scales[2:5],
        offsets[2:5],
    )


def test_a_reflectance_factor_is_a_gain(scene: Path) -> None:
    cube = with_entries(scene, reflectance_scale_factor="10000")
    with rasterio.open(transfer.convert(cube.path, scene.with_name("a.tif"))[0]) as dataset:
        assert set(dataset.scales) == {1e-4} and set(dataset.offsets) == {0.0}
    header = envi_header.parse(transfer.convert(scene, scene.with_name("b.bip"))[1])
    assert header["reflectance scale factor"] == "10000"
    assert "data gain values" not in header  # it would be applied twice


@pytest.mark.parametrize("entry", ["data_gain_values", "reflectance_scale_factor"])
def test_error_bars_have_the_gain_of_their_cube_and_no_offset(scene: Path, entry: str) -> None:
    listed = "{" + ", ".join(["0.0001"] * 12) + "}"
    more = {entry: "10000" if "factor" in entry else listed}
    if "gain" in entry:
        more["data_offset_values"] = listed.replace("0.0001", "0.5")
    with_entries(scene, **more)
    execute.fill_file(scene, scene.with_name("f.img"), BARRED, WHOLE)
    transfer.convert(scene.with_name("f.img"), scene.with_name("g.tif"))
    with rasterio.open(scene.with_name("g.tif.sigma.tif")) as bars:
        assert set(bars.scales) == {1e-4} and set(bars.offsets) == {0.0}
    with rasterio.open(scene.with_name("g.tif.flags.tif")) as mask:
        assert set(mask.scales) == {1.0}


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_a_rewritten_file_has_the_bytes_of_its_source_where_nothing_changed(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, interleave: str
) -> None:
    """Also those of NaN with a payload, of -0, and before the values; in parts, by threads."""
    monkeypatch.setattr(blocks, "BUDGET", 500)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    stored = rng.random((4, 5, 6)).astype(">f4")
    stored[0, 0, :2] = np.array([0x7FC0BEEF, 0x80000000], ">u4").view(">f4")
    source, before = tmp_path / f"in.{interleave}", b"leading"
    source.write_bytes(before + stored.tobytes())
    order = {"bsq": (0, 1, 2), "bil": (1, 0, 2), "bip": (1, 2, 0)}[interleave]
    bands, rows, cols = (stored.shape[order.index(axis)] for axis in range(3))
    (tmp_path / "in.hdr").write_text(
        f"ENVI\nsamples = {cols}\nlines = {rows}\nbands = {bands}\nheader offset = {len(before)}\n"
        f"data type = 4\ninterleave = {interleave}\nbyte order = 1\n"
    )
    cube = io.read(source)
    values = np.where(np.isnan(cube.values), np.nan, np.asarray(cube.values)) + 0.0  # other bits
    values[1, 2, 3] = 7
    stored.transpose(np.argsort(order))[1, 2, 3] = 7
    io.write(replace(cube, values=values), tmp_path / f"out.{interleave}")
    assert (tmp_path / f"out.{interleave}").read_bytes() == before + stored.tobytes()


def test_comments_of_a_header_are_kept(scene: Path) -> None:
    header = scene.with_suffix(".hdr")
    first, rest = header.read_text().split("\n", 1)
    comments = ["; made by a camera", ";original file: x = {1"]
    header.write_text("\n".join([first, *comments, rest]))
    for name in ("copy.img", "scratch.bip", "by-way.npy"):
        made = io.write(io.read(scene), scene.with_name(name))[0]
    made = io.write(io.read(made), scene.with_name("back.img"))[0]
    for name in ("copy", "scratch", "back"):
        path = scene.with_name(f"{name}.hdr")
        assert envi_header.comments(path) == comments
        assert io.read(path).shape == io.read(scene).shape
    assert np.array_equal(io.read(made).values, io.read(scene).values)


def test_comments_of_others_cannot_add_entries(tmp_path: Path, clean: Cube) -> None:
    for box in ({"comments": ["\nbands = 99\n", 7]}, {"comments": "x"}, "text", ["a"]):
        made = io.write(replace(clean, attrs={"envi": box}), tmp_path / "a.img", overwrite=True)
        assert io.read(made[0]).shape == clean.shape


@pytest.mark.parametrize(
    ("transform", "kept"),
    [((30.0, 5.0, 5e5, 5.0, -30.0, 5e6), True), ((30.0, 9.0, 5e5, 5.0, -30.0, 5e6), False)],
    ids=["turned", "sheared"],
)
def test_a_turned_grid_stays_and_a_sheared_one_has_no_place(
    tmp_path: Path, transform: tuple[float, ...], kept: bool
) -> None:
    cube = Cube(np.ones((2, 3, 4), "f4"), transform=transform, crs="EPSG:32633")
    again = io.read(io.write(cube, tmp_path / "a.bsq")[0])
    if kept:
        np.testing.assert_allclose(again.transform, transform)
        assert rasterio.CRS.from_wkt(again.crs).to_epsg() == 32633
    else:
        assert again.transform is None


def test_lists_as_other_programs_write_them(tmp_path: Path) -> None:
    """A comma behind the last item, and a nodata value in braces."""
    values = products.scene(3, 4, 5).astype("f4")
    lists = {"wavelength": "{450.5, 550,\n 650,}", "bbl": "{1, 0, 1 , }"}
    cube = io.read(
        products.envi(tmp_path / "a.img", values, **lists, **{"data ignore value": "{-9999}"})
    )
    assert cube.nodata == -9999
    np.testing.assert_array_equal(cube.wavelengths, [450.5, 550, 650])
    np.testing.assert_array_equal(cube.good, [True, False, True])


def test_two_nodata_values_are_refused(tmp_path: Path) -> None:
    values = products.scene(3, 4, 5).astype("f4")
    path = products.envi(tmp_path / "a.img", values, **{"data ignore value": "{-9999, 0}"})
    with pytest.raises(CubeFormatError, match="a number under `data ignore value`"):
        io.read(path)


def test_a_header_belongs_to_the_data_file_of_its_interleave(tmp_path: Path) -> None:
    """Not to another of the same size, nor to one with a header of its own."""
    values = products.scene(3, 4, 5).astype("f4")
    source = products.envi(tmp_path / "a.bil", values)  # its header is a.bil.hdr
    (tmp_path / "a.img").write_bytes(values[::-1].tobytes())
    source.with_name("a.bil.hdr").rename(tmp_path / "a.hdr")
    np.testing.assert_array_equal(np.asarray(io.read(tmp_path / "a.hdr").values), values)
    products.envi(tmp_path / "b.img", 2 * values)
    products.envi(tmp_path / "b.dat", values).with_name("b.dat.hdr").rename(tmp_path / "b.hdr")
    np.testing.assert_array_equal(np.asarray(io.read(tmp_path / "b.hdr").values), values)
    np.testing.assert_array_equal(np.asarray(io.read(tmp_path / "b.img.hdr").values), 2 * values)
