"""Traps for honest users: what is meant is done, or the line to type is said."""

import ast
import json
import re
import sys
from dataclasses import fields

import numpy as np
import pytest
import typer
import xarray

import hydiff
from hydiff import cli, io
from hydiff.cli.options import interrupted
from hydiff.cube import Cube
from hydiff.errors import (
    ARGUMENT,
    SETTINGS,
    BadValue,
    HydiffError,
    ShapeMismatch,
    UnknownName,
    shell,
)
from hydiff.gaps import rule
from hydiff.io import provenance
from hydiff.learn.training import Training
from hydiff.request import Request
from hydiff.scale import batch, execute
from hydiff.scale.scene import Limits
from test_architecture import sources

WHOLE, TILES = Limits(8e9), Limits(8e9, tile=24)
LINEAR = Request(method="linear", outside="fill")
UTM = 'PROJCS["WGS 84 / UTM zone 33N",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",0],PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],PARAMETER["false_easting",500000],PARAMETER["false_northing",0],UNIT["metre",1]]'  # noqa: E501


@pytest.fixture
def hydiff_(monkeypatch, capsys, tmp_path):
    """Run the command line in this process and the test's folder: exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["hydiff", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    return run


@pytest.fixture
def undeclared(tiny, stripes, tmp_path):
    """A file with -9999 in its gaps that does not say so."""
    values = np.where(stripes, 100 + 1000 * tiny, -9999).astype(np.int16)
    hydiff.write(Cube(values), tmp_path / "scene.bsq")
    return tmp_path / "scene.bsq"


# --- nodata that no file declares -------------------------------------------------------------


def test_info_and_fill_name_an_undeclared_value_and_what_to_type(undeclared, hydiff_):
    code, out, _ = hydiff_("info", undeclared)
    assert code == 0 and "suspect" in out and "give --nodata -9999" in out
    code, out, err = hydiff_("fill", undeclared, "-o", "out.bsq")
    assert code == 0 and "verbatim copy" in out
    for text in (out, err):
        assert "warning: the value -9999" in text and "--nodata -9999" in text
    record = json.loads(provenance.record_path(undeclared.with_name("out.bsq")).read_text())
    assert "`nodata=-9999`" in record["notes"][0]
    code, out, err = hydiff_("fill", undeclared, "-o", "b.bsq", "--nodata", "-9999", "--method=idw")
    assert code == 0 and "as if nodata" not in out + err


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_a_second_undeclared_value_is_noted_beside_declared_gaps(tiny, tmp_path, bounds):
    values = (100 + 1000 * tiny).astype(np.float32)
    values[:, 3:6, 3:6], values[:, 12:15, 9:14] = -9999, np.nan
    hydiff.write(Cube(values), tmp_path / "in.bsq")
    record = execute.fill_file(tmp_path / "in.bsq", tmp_path / "out.bsq", LINEAR, bounds).record
    assert record["entries"]["missing_before"] == 12 * 15
    assert any("the value -9999 is far" in note for note in record["notes"])
    assert any("-9999" in note for note in hydiff.fill(values, method="linear").notes)


def test_looking_for_it_reads_a_sample_of_a_large_file(monkeypatch, tmp_path):
    values = np.random.default_rng(0).integers(100, 900, (4, 400, 50)).astype(np.int16)
    values[:, ::2] = -9999
    monkeypatch.setattr(io.blocks, "WHOLE", 1000)
    read = []

    class Counted(np.ndarray):
        def __getitem__(self, key):
            read.append(np.size(np.asarray(self)[key]))
            return np.asarray(self)[key]

    [suspicion] = rule.suspected(Cube(values.view(Counted)))
    assert "sampled rows" in suspicion and sum(read) <= 4 * 16 * 50


# --- masks on a map -----------------------------------------------------------------------------


def on_map(values, x=500000.0, y=5800000.0, size=30.0, crs=UTM):
    return Cube(values, crs=crs, transform=(size, 0.0, x, 0.0, -size, y))


@pytest.fixture
def mapped(tiny, tmp_path):
    hydiff.write(on_map((100 * tiny).astype(np.float32)), tmp_path / "cube.tif")
    return hydiff.read(tmp_path / "cube.tif")


def mask_file(tmp_path, missing, **place):
    hydiff.write(on_map(missing[None].astype(np.uint8), **place), tmp_path / "mask.tif")
    return tmp_path / "mask.tif"


@pytest.mark.parametrize(("rows", "cols"), [(0, 0), (5, 0), (-4, 7), (20, -20)])
@pytest.mark.parametrize("size", [24, 40], ids=["same size", "larger"])
def test_a_mask_is_laid_where_the_map_says(mapped, tmp_path, rng, rows, cols, size):
    missing = rng.random((size, size)) > 0.5
    place = {"x": 500000.0 + 30 * cols, "y": 5800000.0 - 30 * rows}
    path = mask_file(tmp_path, missing, **place)
    expected = np.ones((24, 24), bool)
    for r in range(24):
        for c in range(24):
            if 0 <= r - rows < size and 0 <= c - cols < size:
                expected[r, c] = not missing[r - rows, c - cols]
    said = []
    assert np.array_equal(io.given_mask(mapped, None, path, said.append), expected)
    assert bool(said) == ((rows, cols, size) != (0, 0, 24))
    filled = hydiff.fill(mapped, missing=path, method="linear", outside="fill").filled
    assert np.array_equal(filled, np.broadcast_to(~expected, mapped.shape))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ({"x": 500000.0 + 30 * 24}, "covers no pixel"),
        ({"x": 500012.0}, "parts of a pixel"),
        ({"size": 15.0}, "another size or direction"),
        ({"crs": UTM.replace("33N", "32N").replace(",15]", ",9]")}, "its map is"),
    ],
)
def test_a_mask_on_another_grid_is_refused_in_one_line(mapped, tmp_path, hydiff_, place, why):
    path = mask_file(tmp_path, np.eye(24, dtype=bool), **place)
    with pytest.raises(ShapeMismatch, match=why):
        io.given_mask(mapped, None, path)
    code, _, err = hydiff_("fill", "cube.tif", "-o", "out.tif", "--missing", "mask.tif")
    assert code == 2 and why in err and len(err.splitlines()) == 1


def test_a_turned_mask_is_refused_and_one_without_a_place_is_taken_by_pixels(mapped, tmp_path):
    turned = Cube(np.eye(24, dtype=np.uint8)[None], transform=(0.0, 30, 5e5, 30.0, 0, 58e5))
    hydiff.write(turned, tmp_path / "turned.tif")
    with pytest.raises(ShapeMismatch, match="size or direction"):
        io.given_mask(mapped, None, tmp_path / "turned.tif")
    np.save(tmp_path / "plain.npy", np.eye(24, dtype=bool))
    plain = io.given_mask(mapped, None, tmp_path / "plain.npy")
    assert np.array_equal(plain, ~np.eye(24, dtype=bool))


def test_an_array_of_several_is_chosen_as_the_refusal_says(tiny, stripes, tmp_path, hydiff_):
    hydiff.write(Cube((100 * tiny).astype(np.float32)), tmp_path / "cube.bsq")
    np.savez(tmp_path / "masks.npz", clouds=~stripes, haze=np.zeros((24, 24), bool))
    request = ["fill", "cube.bsq", "-o", "out.bsq", "--method=linear", "--outside=fill"]
    code, _, err = hydiff_(*request, "--missing", "masks.npz")
    typed = re.search(r"name one as (\S+)", err)[1]
    assert code == 2 and typed == "masks.npz:clouds"
    assert hydiff_(*request, "--missing", typed)[0] == 0
    record = json.loads((tmp_path / "out.bsq.fill.json").read_text())
    assert record["entries"]["filled"] == 12 * (~stripes).sum()


# --- which entries a value means -----------------------------------------------------------------


@pytest.fixture
def zeros(tiny, tmp_path):
    """A file where 0 marks 15 lost pixels and is a measurement of 40 other entries."""
    values = (1 + 1000 * tiny).astype(np.uint16)
    values[5, 1, 2:22] = values[7, 20, 2:22] = 0
    values[:, 12:15, 9:14] = 0
    hydiff.write(Cube(values), tmp_path / "zeros.bsq")
    return tmp_path / "zeros.bsq"


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
@pytest.mark.parametrize(("nodata_in", "missing"), [(None, 180), ("all", 180), ("any", 220)])
def test_a_value_that_may_be_measured_means_whole_pixels(
    zeros, tmp_path, bounds, nodata_in, missing
):
    order = Request(method="linear", outside="fill", nodata=0.0, nodata_in=nodata_in)
    record = execute.fill_file(zeros, tmp_path / "out.bsq", order, bounds).record
    assert record["entries"]["missing_before"] == missing
    spared = [note for note in record["notes"] if "count as measured" in note]
    assert bool(spared) == (missing == 180)
    assert all(note.startswith("40 entries") for note in spared)
    before, after = (np.asarray(hydiff.read(p).values) for p in (zeros, tmp_path / "out.bsq"))
    assert np.array_equal(after[5, 1] == 0, (before[5, 1] == 0) & (missing == 180))
    assert (after[:, 12:15, 9:14] > 0).all()


def test_fill_info_mask_and_simulate_have_one_rule(zeros, tmp_path, hydiff_):
    for choice, share in ((), 180), (("--nodata-in", "any"), 220):
        found = json.loads(hydiff_("info", zeros, "--nodata", 0, *choice, "--json")[1])
        assert found["values"]["missing_share"] == share / (12 * 576)
        hydiff_("mask", zeros, "--nodata", 0, *choice, "--only=stripes", "-o", f"m{share}.npz")
        observed = io.read_mask(tmp_path / f"m{share}.npz", "missing", (12, 24, 24))
        assert (~np.broadcast_to(observed, (12, 24, 24))).sum() == share
        result = hydiff.fill(
            zeros, nodata=0, nodata_in=choice[1] if choice else None, method="linear"
        )
        assert result.filled.sum() + sum(result.left.values()) == share
    _, out, _ = hydiff_("mask", zeros, "--nodata", 0)
    assert "40 entries with the value 0" in out and "--nodata-in any" in out
    noisy = ("simulate", zeros, "--noise", "0.05", "--missing", "0.1", "--nodata", 0)
    assert hydiff_(*noisy, "-o", "a.bsq")[0] == 0
    assert hydiff_(*noisy, "-o", "b.bsq", "--nodata-in", "any")[0] == 0
    a, b = (np.asarray(hydiff.read(tmp_path / f"{n}.bsq").values)[5, 1, 2:22] for n in "ab")
    left = io.read_mask(tmp_path / "a.bsq.missing.npz", "missing", (12, 24, 24))
    left = np.broadcast_to(left, (12, 24, 24))[5, 1, 2:22]
    gap = hydiff.read(tmp_path / "b.bsq").nodata  # one value declares all that is missing
    assert left.any() and (b[left] == gap).all() and (a[left] != gap).any()


def test_several_values_mean_missing_together(tiny, tmp_path, hydiff_):
    values = (1 + 1000 * tiny).astype(np.int16)
    values[3, 4:8, 4:8], values[:, 12:15, 9:14], values[5, 1, 2:22] = -9999, 0, 0
    hydiff.write(Cube(values), tmp_path / "in.bsq")
    request = ["fill", "in.bsq", "--method=linear", "--outside=fill"]
    both = ("--nodata", "-9999", "--nodata", "0")
    assert hydiff_(*request, "-o", "out.bsq", *both)[0] == 0
    record = json.loads((tmp_path / "out.bsq.fill.json").read_text())
    assert record["entries"]["filled"] == 16 + 180  # of 0 whole pixels, of -9999 any entry
    assert not (np.asarray(hydiff.read(tmp_path / "out.bsq").values) == -9999).any()
    code, _, err = hydiff_(*request, "-o", "b.bsq", *both, "--nodata", "77")
    assert code == 2 and "nodata 77 occurs nowhere" in err


def test_a_choice_without_its_value_is_refused(tiny):
    with pytest.raises(BadValue, match="`nodata_in=` goes with `nodata=VALUE`"):
        hydiff.fill(tiny, nodata_in="all")
    with pytest.raises(UnknownName, match="nodata_in"):
        hydiff.fill(tiny, nodata=0, nodata_in="some")
    with pytest.raises(UnknownName, match="clip"):
        hydiff.fill(tiny, clip="observd")


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(144, 144, 200), (40, 50, 200), (610, 340, 103), (60, 60, 31)])
def test_an_array_that_looks_like_rows_cols_bands_is_refused(shape):
    with pytest.raises(ShapeMismatch, match=re.escape("array.transpose(2, 0, 1)")) as refused:
        io.axes.order_of(shape, None)
    assert "`axis='bands last'`" in str(refused.value)
    assert io.axes.order_of(shape, "bands last") == "bands last"
    assert io.axes.order_of(shape, "bands first") == "bands first"
    assert io.axes.order_of(shape, None, shape[:2]) == "bands last"
    assert io.axes.order_of(shape, None, (shape[2], *shape[:2])) == "bands last"
    if shape[:2] != shape[1:]:
        assert io.axes.order_of(shape, None, shape[1:]) == "bands first"


@pytest.mark.parametrize(
    "shape",
    [
        *((200, 144, 144), (30, 1, 1), (12, 24, 24), (425, 100, 80), (200, 210, 220)),
        *((103, 610, 340), (2151, 20, 30), (4, 30, 32), (144, 144, 144), (3, 512, 640)),
    ],
)
def test_an_array_with_its_bands_first_passes_without_a_word(shape):
    assert io.axes.order_of(shape, None) == "bands first"


def test_bands_last_is_filled_as_bands_first(rng):
    values = rng.random((50, 8, 40)) + np.arange(50)[:, None, None]  # as (rows, cols, bands) later
    last = values.transpose(1, 2, 0)
    observed = np.ones((8, 40), bool)
    observed[3:5, 7:12] = False
    expected = hydiff.fill(values, observed, method="linear").values
    deep = np.broadcast_to(observed, values.shape)
    data = xarray.DataArray(last, dims=("y", "x", "anything"))
    for found in (
        hydiff.fill(last, observed, method="linear"),  # the mask settles it
        hydiff.fill(last, missing=~observed, method="linear"),
        hydiff.fill(last, deep.transpose(1, 2, 0), axis="bands last", method="linear"),
        hydiff.fill(last, deep, method="linear"),
        hydiff.fill(np.where(deep, values, np.nan), method="linear"),
        hydiff.fill(
            np.ma.array(last, mask=~deep.transpose(1, 2, 0)), axis="bands last", method="linear"
        ),
        hydiff.fill(data, observed, method="linear"),
        hydiff.fill(data.to_dataset(name="radiance"), observed, method="linear"),
    ):
        assert np.array_equal(found.values, expected)
    with pytest.raises(BadValue, match="leave it out"):
        hydiff.fill(data, axis="bands last")


def test_a_bare_array_in_a_file_may_be_said_to_lie_otherwise(tmp_path, rng):
    values = rng.random((9, 7, 5))
    for name in ("a.npy", "a.npz", "a.mat"):
        path = tmp_path / name
        if name == "a.npy":
            np.save(path, values)
        elif name == "a.npz":
            np.savez(path, cube=values)
        else:
            from scipy.io import savemat

            savemat(path, {"cube": values})
        assert hydiff.read(path).shape == (5, 9, 7)
        for axis, expected in (("bands first", values), ("bands last", values.transpose(2, 0, 1))):
            assert np.array_equal(np.asarray(hydiff.read(path, axis=axis).values), expected)
    np.save(tmp_path / "pixel.npy", values[:, :1, :1])
    assert hydiff.read(tmp_path / "pixel.npy").shape == (9, 1, 1)
    hydiff.write(Cube(values), tmp_path / "a.tif")
    with pytest.raises(BadValue, match="leave `axis=` out"):
        hydiff.read(tmp_path / "a.tif", axis="bands last")


# --- what the library is handed -------------------------------------------------------------------


def test_a_path_is_read_and_a_result_is_written_with_its_companions(zeros, tmp_path, tiny):
    result = hydiff.fill(str(zeros), nodata=0, method="linear")
    assert result.cube.path == zeros and result.filled.any()
    made = hydiff.write(result, tmp_path / "out.bsq")
    assert provenance.record_path(tmp_path / "out.bsq") in made and all(p.exists() for p in made)
    assert np.array_equal(hydiff.read(tmp_path / "out.bsq").values, result.cube.values)
    hydiff.write(tiny, tmp_path / "array.tif")
    assert np.array_equal(hydiff.read(tmp_path / "array.tif").values, tiny)
    with pytest.raises(BadValue, match=re.escape("result.cube")):
        hydiff.fill(result)


def test_a_dataset_without_one_cube_is_refused_with_the_line_to_type(tiny):
    cube = xarray.DataArray(tiny, dims=("band", "y", "x"))
    with pytest.raises(BadValue, match=re.escape("dataset['a']")):
        hydiff.fill(xarray.Dataset({"a": cube, "b": cube}))
    with pytest.raises(BadValue, match="twice"):
        hydiff.fill(tiny, tiny[0] > 0, missing=tiny[0] > 0)


@pytest.mark.parametrize("method", ["auto", "smooth"])
def test_a_misspelt_argument_is_named(tiny, stripes, method):
    with pytest.raises(UnknownName, match="did you mean 'budget'"):
        hydiff.fill(tiny, stripes, method=method, budgt="fast")


def test_a_suffix_is_suggested_only_if_it_is_near(tiny, tmp_path):
    with pytest.raises(UnknownName) as far:
        hydiff.write(Cube(tiny), tmp_path / "out.jpg")
    assert "did you mean" not in str(far.value)
    with pytest.raises(UnknownName, match=r"did you mean '.npz'"):
        hydiff.write(Cube(tiny), tmp_path / "out.npx")


# --- arguments and options ------------------------------------------------------------------------


def strings(path):
    """Every text of a source file but docstrings; X stands for what is put into f-strings."""
    tree = ast.parse(path.read_text())
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            inside.add(id(body[0].value))
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "X" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


OPTIONS = {
    option
    for command in typer.main.get_command(cli.app).commands.values()
    for parameter in command.params
    for option in parameter.opts
}


def test_messages_of_the_library_name_arguments_that_the_command_line_has():
    named = 0
    for path in sources():
        if path.parent.name == "cli" or path.name in ("terminal.py", "errors.py"):
            continue
        for text in strings(path):
            if text.count("\n") > 1 or text in OPTIONS:
                continue  # a document, for whoever reads it; the definition of an option
            plain = re.sub(r"`?(hydiff|convert) [^`]*`?", "", text)  # a line for a shell
            assert not re.search(r"(?<![\w-])--[a-z]", plain), f"{path}: {text}"
            for found in ARGUMENT.finditer(text):
                option = shell(found[0]).split()[0]
                assert option in OPTIONS | {"--X", "--axis"}, f"{path}: {text}"  # of arrays alone
                named += 1
    assert named > 40
    assert set(SETTINGS) <= {field.name for field in fields(Training)}
    command = typer.main.get_command(cli.app).commands["fill"]
    assert not set(SETTINGS) & {parameter.name for parameter in command.params}


def test_one_message_in_two_voices(tiny, tmp_path, hydiff_):
    hydiff.write(Cube(tiny), tmp_path / "in.tif")
    with pytest.raises(HydiffError, match="pass `overwrite=True`"):
        hydiff.write(Cube(tiny), tmp_path / "in.tif")
    (tmp_path / "out.tif").touch()
    code, _, err = hydiff_("fill", "in.tif", "-o", "out.tif")
    assert code == 2 and "pass --overwrite to" in err and "`" not in err
    assert shell("`nodata=[-9999, 0]`") == "--nodata -9999 --nodata 0"
    assert shell("`channels=64` and `max_error=1`") == "--set channels=64 and --max-error 1"
    assert shell("see `hydiff mask`, `values > 0`") == "see `hydiff mask`, `values > 0`"


# --- batches and interruptions --------------------------------------------------------------------


@pytest.fixture
def granules(tmp_path, rng):
    folder = tmp_path / "granules"
    folder.mkdir()
    for name, gap in (("a", 65535), ("b", 65535), ("c", None)):
        values = rng.integers(100, 900, (4, 20, 22)).astype(np.uint16)
        if gap is not None:
            values[:, 8:11, 9:14] = gap
        hydiff.write(Cube(values), folder / f"{name}.tif")
    return folder


BATCH = ["--method", "linear", "--nodata", "65535"]


def test_a_batch_passes_over_files_without_the_nodata_value(granules, hydiff_, tmp_path):
    code, out, _ = hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH)
    assert code == 0 and "3 of 3 done" in out
    assert "note: granules/c.tif: --nodata 65535 occurs nowhere in it" in out
    rows = batch.fill_all(
        [granules / "c.tif"],
        tmp_path / "alone",
        Request(method="linear", nodata=65535.0),
        WHOLE,
    )
    assert [row.status for row in rows] == ["failed"]  # nobody has it: a slip, most likely
    assert not (tmp_path / "alone" / "c.tif").exists()


def test_a_finished_batch_is_done_when_it_is_asked_for_again(granules, hydiff_, tmp_path):
    assert hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH)[0] == 0
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.tif")}
    code, out, _ = hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH)
    assert code == 0 and "3 of 3 done" in out
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*.tif")}
    assert hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH, "--overwrite")[0] == 0
    assert all(p.stat().st_mtime_ns > then for p, then in before.items())
    (tmp_path / "out" / "a.tif.fill.json").unlink()  # no fill that is known to be finished
    code, out, _ = hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH)
    assert code == 1 and "2 of 3 done" in out and "--overwrite" in out


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stale": 3}'])
def test_a_damaged_claim_of_an_archive_is_refused_in_one_line(granules, hydiff_, tmp_path, content):
    assert hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH)[0] == 0
    (tmp_path / "out" / "archive.json").write_text(content)
    code, _, err = hydiff_("fill", "granules/*.tif", "-o", "out", *BATCH, "--overwrite")
    assert code == 2 and "archive.json is damaged" in err and "Traceback" not in err


def test_noise_needs_a_measured_entry():
    values = np.ones((2, 4, 4), np.float32)
    values[0] = np.nan
    with pytest.raises(hydiff.errors.BadValue, match="no good band has a measured entry"):
        hydiff.gaps.simulate.simulate(Cube(values, good=np.array([True, False])), noise=0.1)


@pytest.mark.parametrize("nodata", [None, 0, 30])
def test_noise_makes_no_entry_nodata(nodata):
    """Noise takes dark values to the end of the type, and others to any value."""
    from hydiff.gaps.simulate import simulate

    values = np.random.default_rng(0).integers(1, 61, (4, 20, 20)).astype(np.uint8)
    values[values == 30] = 31
    cube, observed = simulate(Cube(values, nodata=nodata), noise=0.2)
    assert np.array_equal(cube.observed(), np.broadcast_to(observed, cube.shape))


@pytest.mark.parametrize("wrong", [{"noise": "5%"}, {"noise": None}, {"missing": "a third"}])
def test_a_simulation_wants_numbers(wrong):
    from hydiff.gaps.simulate import simulate

    with pytest.raises(hydiff.errors.BadValue, match=str(next(iter(wrong.values())))):
        simulate(Cube(np.ones((2, 4, 4))), **wrong)


def test_a_resume_is_promised_only_where_something_is_kept(tmp_path, capsys):
    kept = tmp_path / "out.tif.tiles"
    for there in (False, True):
        kept.mkdir() if there else None
        with pytest.raises(KeyboardInterrupt), interrupted(kept):
            raise KeyboardInterrupt
        assert ("--resume" in capsys.readouterr().err) == there


# --- filled values beyond what was observed -------------------------------------------------------


@pytest.fixture(params=[np.int16, np.float32], ids=["int16", "float32"])
def steep(request, tmp_path):
    """A scene that falls towards its gaps: thin plates go below all that was observed."""
    row, col = np.mgrid[:40, :50]
    well = 40 * np.hypot(row - 20, col - 25)
    values = np.stack([well, 2 * well, 3000 - well]).astype(request.param)
    values[:, 16:25, 20:31] = -9999
    path = tmp_path / "in.bsq"
    hydiff.write(Cube(np.where(values < -1000, -9999, values), nodata=-9999), path)
    return path


def filled_of(path, out, bounds, **asked):
    order = Request(method="biharmonic", outside="fill", **asked)
    record = execute.fill_file(path, out, order, bounds, overwrite=True).record
    return np.asarray(hydiff.read(out).values), record


@pytest.mark.parametrize("clip", ["none", "observed", "physical"])
def test_values_beyond_the_observed_are_counted_and_clipped_if_asked(steep, tmp_path, clip):
    before = hydiff.read(steep).load()
    seen, gaps = before.observed(), ~before.observed()
    low, high = (
        np.array([f(b[s]) for b, s in zip(before.values, seen, strict=True)])[:, None, None]
        for f in (np.min, np.max)
    )
    free, plain = filled_of(steep, tmp_path / "free.bsq", WHOLE)
    beyond = plain["beyond_observed"]
    assert beyond["below"] == (gaps & (free < low)).sum() > 0
    assert beyond["above"] == (gaps & (free > high)).sum() > 0
    assert any("outside the observed range" in note for note in plain["notes"])
    found, record = filled_of(steep, tmp_path / "out.bsq", WHOLE, clip=clip)
    ends = {"none": (-np.inf, np.inf), "observed": (low, high), "physical": (0, np.inf)}[clip]
    assert np.array_equal(found, np.where(gaps, np.clip(free, *ends).astype(free.dtype), free))
    assert record["beyond_observed"]["clip"] == clip
    result = hydiff.fill(before, method="biharmonic", outside="fill", clip=clip)
    assert np.array_equal(result.cube.values, found)
    assert clip == "none" or (result.values >= np.where(gaps, ends[0], -np.inf)).all()
    assert result.beyond == record["beyond_observed"]


@pytest.mark.parametrize("clip", ["none", "observed"])
def test_the_limits_of_tiles_are_those_of_the_scene(rng, tmp_path, clip):
    values = (1000 * rng.random((3, 60, 66))).astype(np.float32)
    values[:, :30] *= 0.2  # each tile has a range of its own
    values[:, 10:14, 5:60] = values[:, 40:44, 5:60] = np.nan
    hydiff.write(Cube(values), tmp_path / "in.bsq")
    found = [
        filled_of(tmp_path / "in.bsq", tmp_path / f"out{i}.bsq", Limits(8e9, tile=side), clip=clip)
        for i, side in enumerate((128, 24))
    ]
    low, high = np.nanmin(values, axis=(1, 2)), np.nanmax(values, axis=(1, 2))
    for cube, record in found:
        gaps = np.isnan(values)
        outside = gaps & ((cube < low[:, None, None]) | (cube > high[:, None, None]))
        said = record["beyond_observed"]
        assert outside.sum() == (said["below"] + said["above"] if clip == "none" else 0)


GAINS = {"data gain values": [0.01, 0.001]}


def test_reflectance_is_at_most_one_where_the_file_says_so():
    from hydiff.gaps.reach import physical

    values = np.zeros((2, 3, 3), np.int16)
    scaled = {
        "geotiff": {"scales": [1e-4] * 2, "offsets": [0.0, -0.1], "units": ["reflectance"] * 2}
    }
    for attrs, low, high in (
        ({}, 0, np.inf),
        ({"reflectance scale factor": "10000"}, 0, 10000),
        ({"reflectance scale factor": ["10000", "5000"]}, 0, [10000, 5000]),
        ({"reflectance scale factor": "none"}, 0, np.inf),
        ({"data gain values": [0.0, 1.0]}, [-np.inf, 0], np.inf),
        ({"data gain values": {"a": 1}}, 0, np.inf),
        ({"units": "Surface_Reflectance"}, 0, 1),
        ({"data gain values": [0.5, 0.25], "data units": "radiance"}, 0, np.inf),
        (scaled, [0, 1000], [10000, 11000]),
        ({"data gain values": np.array([0.1, 0.2]), "units": "reflectance"}, 0, [10, 5]),
        ({"reflectance scale factor": 10000.0}, 0, 10000),
        # every GeoTIFF has a list of scales
        ({"geotiff": {"scales": [1.0] * 2}, "units": "reflectance"} | GAINS, 0, [100, 1000]),
    ):
        cube = Cube(values, attrs=attrs)
        ends = np.broadcast_to(np.stack(np.broadcast_arrays(low, high)).reshape(2, -1), (2, 2))
        np.testing.assert_allclose(physical(cube), ends)
        second = physical(cube.window(bands=slice(1, 2)))
        np.testing.assert_allclose(second, ends[:, 1:])


# --- faults that no test had seen -----------------------------------------------------------------


def test_two_neighbouring_bands_are_lost_together(tiny, stripes):
    values = np.where(stripes, tiny, np.nan)
    values[4:6] = np.nan
    result = hydiff.fill(values, method="linear")
    assert result.left == {"bands 4-5 are lost together: nothing to fill them from": 2 * 576}


def test_a_thin_tail_of_dark_entries_makes_no_value_stand_apart():
    """Twenty of the lowest entries say how far the data thin out, not the two lowest alone."""
    from hydiff.gaps.detect import fill_values

    tail = np.linspace(100, 300, 21)
    data = np.concatenate([np.zeros(50), tail, np.linspace(300, 1300, 4929)])
    values = data.reshape(1, 50, 100)
    assert not fill_values(values, np.ones(values.shape, bool))[0].any()
    dense = np.where((values > 0) & (values < 300), 300.0, values)
    assert fill_values(dense, np.ones(values.shape, bool))[0].sum() == 50
