"""Laws of archives: each file as by itself, past what is broken, and nothing twice."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from pyarrow import parquet

import command
import hydiff
from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.gaps import mask
from hydiff.io import provenance
from hydiff.request import Request
from hydiff.scale import batch, execute
from hydiff.scale.batch import fill_all, inputs_of
from hydiff.scale.scene import Limits
from test_scene import contents, damaged, made

ORDER, BOUNDS = Request(method="linear", outside="fill"), Limits(8e9)


@pytest.fixture
def granules(tmp_path, rng):
    """Two granules with gaps, one without, one that is cut off."""
    folder = tmp_path / "granules"
    folder.mkdir()
    for name in ("a", "b"):
        observed = mask.make_mask("stripes", (4, 30, 32), 0.2, rng)
        hydiff.write(damaged(made((4, 30, 32), rng), observed), folder / f"{name}.tif")
    hydiff.write(Cube(made((4, 30, 32), rng), nodata=-9999.0), folder / "whole.tif")
    (folder / "broken.tif").write_bytes((folder / "a.tif").read_bytes()[:300])
    return folder


FILL = ("fill", "granules/*.tif", "-o", "out")


def run_cli(folder, *more):
    return command.run(*FILL, *more, cwd=folder)


def test_a_folder_as_input_is_refused_with_the_pattern_of_its_files(granules, tmp_path):
    (granules / "notes.txt").write_text("no image")
    for name in ("c.TIF", "d.TIF", "e.TIF", "f.TIF", "g.TIF"):
        (granules / name).write_bytes(b"")
    done = command.run("fill", "granules", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2 and "'granules/*.TIF'" in done.stderr
    (tmp_path / "empty").mkdir()
    done = command.run("fill", "empty", "-o", "out", cwd=tmp_path)
    assert done.stderr.rstrip().endswith("name a file in it")


@pytest.mark.parametrize("output", ["out/", "out.2024/"])
def test_an_output_that_ends_as_folders_do_is_one(granules, tmp_path, output):
    done = command.run("fill", "granules/a.tif", "-o", output, "--method", "linear", cwd=tmp_path)
    assert done.returncode == 0 and hydiff.read(tmp_path / output / "a.tif").mark, done.stderr


def test_a_product_that_is_a_folder_may_end_in_a_slash(granules, tmp_path):
    for source, output in (("granules/a.tif", "out.zarr/"), ("out.zarr/", "again/")):
        options = ("--method", "linear", "--outside", "fill")
        done = command.run("fill", source, "-o", output, *options, cwd=tmp_path)
        assert done.returncode == 0 and hydiff.read(tmp_path / output).mark, done.stderr


def test_each_file_is_filled_as_by_itself_and_the_broken_one_is_named(granules, tmp_path):
    done = run_cli(tmp_path, "--method", "linear", "--outside", "fill")
    assert done.returncode == 1, done.stderr
    assert "3 of 4 done" in done.stdout and "failed: granules/broken.tif" in done.stdout
    out, alone = tmp_path / "out", tmp_path / "alone"
    alone.mkdir()
    for name in ("a.tif", "b.tif", "whole.tif"):
        execute.fill_file(granules / name, alone / name, ORDER, BOUNDS)
        assert contents(out / name) == contents(alone / name)
    rows = {row["output"]: row for row in parquet.read_table(out / batch.PARQUET).to_pylist()}
    counts = json.loads(provenance.record_path(out / "a.tif").read_text())["entries"]
    assert rows["a.tif"]["filled"] == counts["filled"] > 0 and rows["a.tif"]["status"] == "filled"
    assert rows["whole.tif"]["status"] == "no gaps" and rows[""]["status"] == "failed"
    assert rows[""]["input"] == "granules/broken.tif" and rows[""]["error"]
    lines = (out / batch.MARKDOWN).read_text().splitlines()
    assert len(lines) == 2 + 4 and len({line.count(" | ") for line in lines}) == 1


def test_resume_leaves_what_is_done_and_does_the_rest(granules, tmp_path, rng):
    out, inputs = tmp_path / "out", inputs_of([str(granules / "*.tif")])
    first = fill_all(inputs, out, ORDER, BOUNDS)
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.tif")}
    (out / "b.tif").unlink()  # as if it had been interrupted
    whole = damaged(made((4, 30, 32), rng), mask.make_mask("stripes", (4, 30, 32), 0.2, rng))
    hydiff.write(whole, granules / "whole.tif", overwrite=True)  # another input by the same name
    (granules / "broken.tif").write_bytes((granules / "a.tif").read_bytes())  # fetched again
    again = fill_all(inputs, out, ORDER, BOUNDS, resume=True)
    assert [row.status for row in again] == ["filled"] * 4
    after = {p.name: p.stat().st_mtime_ns for p in out.glob("*.tif")}
    kept = {name for name in after if before.get(name) == after[name]}
    assert kept == {"a.tif", "a.tif.flags.tif", "a.tif.why.tif"}
    assert again[0] == first[0]  # read from the record, seconds included


def test_another_order_is_not_gone_on_with(granules, tmp_path):
    inputs = [granules / "a.tif"]
    fill_all(inputs, tmp_path / "out", ORDER, BOUNDS)
    with pytest.raises(BadValue, match="other settings"):
        fill_all(inputs, tmp_path / "out", Request(method="idw"), BOUNDS, resume=True)
    rows = fill_all(inputs, tmp_path / "out", ORDER, BOUNDS)  # done already: nothing is replaced
    assert rows[0].status == "filled"
    assert fill_all(inputs, tmp_path / "out", ORDER, BOUNDS, overwrite=True)[0].filled


def test_another_order_replaces_only_if_asked_and_then_wholly(granules, tmp_path):
    """What an interrupted replacement has left of the old order is not taken for done."""
    out, inputs = tmp_path / "out", [granules / "a.tif", granules / "b.tif"]
    fill_all(inputs, out, ORDER, BOUNDS)
    before = contents(out)
    other = Request(method="nearest", outside="fill")
    for resume in (False, True):
        with pytest.raises(BadValue, match="other settings"):
            fill_all(inputs, out, other, BOUNDS, resume=resume)
    assert contents(out) == before
    fill_all(inputs[:1], out, other, BOUNDS, overwrite=True)  # as if it had ended after the first
    kept = (out / "a.tif").stat().st_mtime_ns
    rows = fill_all(inputs, out, other, BOUNDS, resume=True)
    assert [row.status for row in rows] == ["filled"] * 2
    assert (out / "a.tif").stat().st_mtime_ns == kept
    for name in ("a.tif", "b.tif"):
        record = json.loads(provenance.record_path(out / name).read_text())
        assert record["method"] == "nearest"


def test_a_run_that_did_nothing_leaves_the_table_of_the_one_before(granules, tmp_path):
    out, inputs = tmp_path / "out", [granules / "a.tif", granules / "b.tif"]
    fill_all(inputs, out, ORDER, BOUNDS)
    before = contents(out)
    for path in inputs:  # others, by the same names
        path.write_bytes(path.read_bytes() + b" ")
    rows = fill_all(inputs, out, ORDER, BOUNDS)
    assert all("--overwrite" in row.error for row in rows) and contents(out) == before


@pytest.mark.parametrize(
    "asked",
    [{"budget": "foo"}, {"seed": -1}, {"sigma_y": -1.0}, {"device": "tpu"}, {"max_gap": 0}],
    ids=lambda asked: next(iter(asked)),
)
def test_what_no_file_can_be_asked_for_is_refused_once(granules, tmp_path, asked):
    with pytest.raises(HydiffError):
        fill_all([granules / "a.tif"], tmp_path / "out", Request(**asked), BOUNDS)
    assert not (tmp_path / "out").exists()
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    for more in ([], ["--dry-run"]):
        done = run_cli(tmp_path, *options, *more)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_an_interrupted_archive_tells_what_is_done(granules, tmp_path):
    message = []

    def stopped(step):
        raise KeyboardInterrupt

    inputs = [granules / "a.tif", granules / "b.tif"]
    with pytest.raises(KeyboardInterrupt):
        fill_all(inputs, tmp_path / "out", ORDER, BOUNDS, progress=stopped, say=message.append)
    [said] = message
    assert said.startswith(f"1 of 2 are done and stay in {tmp_path / 'out'}: the same command")
    assert (tmp_path / "out/a.tif").exists() and not (tmp_path / "out/b.tif").exists()


def test_tiles_of_an_interrupted_granule_are_gone_on_with(granules, tmp_path):
    bounds = Limits(8e9, tile=16)
    (tmp_path / "out").mkdir()

    def stopped(step):
        if step.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute.fill_file(
            granules / "a.tif", tmp_path / "out/a.tif", ORDER, bounds, progress=stopped
        )
    # a finished tile is recognised and not computed again
    work = provenance.tiles_path(tmp_path / "out/a.tif")
    values, marker = next(work.glob("tile-*.npy")), next(work.glob("tile-*.json"))
    np.save(values, np.load(values) + 1e6)
    digest = hashlib.sha256(values.read_bytes()).hexdigest()
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"sha256": digest}))
    rows = fill_all([granules / "a.tif"], tmp_path / "out", ORDER, bounds, resume=True)
    assert rows[0].status == "filled" and not work.exists()
    assert np.asarray(hydiff.read(tmp_path / "out/a.tif").values).max() > 1e5


def assert_same_fill(one, other):
    """Equal values and companions; the marks inside name other settings."""
    parts = [contents(path) for path in (one, other)]
    assert all(part.pop(path.name) for part, path in zip(parts, (one, other), strict=True))
    assert parts[0] == parts[1]
    np.testing.assert_array_equal(*(np.asarray(hydiff.read(p).values) for p in (one, other)))


def test_one_recipe_serves_all(granules, tmp_path):
    execute.fill_file(granules / "a.tif", tmp_path / "a.tif", Request(budget="fast"), BOUNDS)
    recipe = hydiff.auto.read_recipe(provenance.record_path(tmp_path / "a.tif"))
    order = Request(budget="fast", recipe=recipe)
    fill_all([granules / "a.tif", granules / "b.tif"], tmp_path / "out", order, BOUNDS)
    for name in ("a.tif", "b.tif"):
        record = json.loads(provenance.record_path(tmp_path / "out" / name).read_text())
        assert record["recipe"]["weights"] == recipe["weights"]
    assert_same_fill(tmp_path / "out/a.tif", tmp_path / "a.tif")


def test_workers_take_whole_granules(granules, tmp_path):
    options = ["--method", "linear", "--outside", "fill", "--workers", "1", "--json"]
    line = [sys.executable, "-m", "hydiff", *FILL, *options]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    statuses = {row["input"]: row["status"] for row in json.loads(done.stdout)}
    assert statuses == {
        "granules/a.tif": "filled",
        "granules/b.tif": "filled",
        "granules/broken.tif": "failed",
        "granules/whole.tif": "no gaps",
    }
    execute.fill_file(granules / "a.tif", tmp_path / "a.tif", ORDER, BOUNDS)
    assert_same_fill(tmp_path / "out/a.tif", tmp_path / "a.tif")


def test_inputs_are_named_once_and_patterns_match(granules, tmp_path):
    names = [p.name for p in inputs_of([str(granules / "[ab].tif"), str(granules / "a.tif")])]
    assert names == ["a.tif", "b.tif"]
    with pytest.raises(BadValue, match="no file matches"):
        inputs_of([str(granules / "*.nc")])
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.tif").write_bytes((granules / "a.tif").read_bytes())
    with pytest.raises(BadValue, match=r"two inputs are called a\.tif"):
        fill_all([granules / "a.tif", other / "a.tif"], tmp_path / "out", ORDER, BOUNDS)
    with pytest.raises(BadValue, match="one cube"):
        order = Request(method="linear", missing=tmp_path / "m.npy")
        fill_all([granules / "a.tif"], tmp_path / "out", order, BOUNDS)
    assert not (tmp_path / "out").exists()


def test_an_envi_cube_is_one_input_by_either_name(granules):
    for name in ("a", "b"):
        hydiff.write(hydiff.read(granules / f"{name}.tif"), granules / f"{name}.bil")
    named = [str(granules / "b.hdr"), str(granules / "[ab].[bh]*")]
    assert [p.name for p in inputs_of(named)] == ["a.bil", "b.bil"]
    assert [p.name for p in inputs_of([str(granules / "*.hdr")])] == ["a.hdr", "b.hdr"]


@pytest.mark.parametrize("named", ["a.bsq", "a.hdr"])
def test_inputs_whose_headers_would_be_one_are_refused(granules, tmp_path, named):
    """The second would take the header of the first, whose values nobody could read any more."""
    one, two = (tmp_path / name for name in ("one", "two"))
    for folder, name in ((one, "a.bsq"), (two, "a.bil")):
        folder.mkdir()
        hydiff.write(hydiff.read(granules / "a.tif"), folder / name)
    for more in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(BadValue, match=r"two inputs have a file called a\.\w+: .* two folders"):
            fill_all([one / named, two / "a.bil"], tmp_path / "out", ORDER, BOUNDS, **more)
    assert not (tmp_path / "out").exists()
    rows = fill_all([granules / "a.tif", two / "a.bil"], tmp_path / "out", ORDER, BOUNDS)
    assert [row.status for row in rows] == ["filled", "filled"]


def test_links_are_filled_under_their_own_names(granules, tmp_path):
    """Two links to files of one name were one file in the output; a circle ended the archive."""
    links = tmp_path / "links"
    (tmp_path / "other").mkdir()
    links.mkdir()
    other = tmp_path / "other" / "a.tif"
    other.write_bytes((granules / "b.tif").read_bytes())
    for name, file in (("jan", granules / "a.tif"), ("feb", other), ("circle", "circle.tif")):
        (links / f"{name}.tif").symlink_to(file)
    inputs = [links / f"{name}.tif" for name in ("jan", "feb", "circle")]
    rows = fill_all(inputs, tmp_path / "out", ORDER, BOUNDS, overwrite=True)
    assert [row.output for row in rows] == ["jan.tif", "feb.tif", ""]
    assert "lead in a circle" in str(rows[2].error)
    for name, file in (("jan", "a"), ("feb", "b")):
        execute.fill_file(granules / f"{file}.tif", tmp_path / f"{name}.tif", ORDER, BOUNDS)
        assert_same_fill(tmp_path / f"out/{name}.tif", tmp_path / f"{name}.tif")


def test_several_inputs_do_not_make_a_folder_with_the_name_of_a_file(granules, tmp_path):
    done = command.run("fill", granules / "[ab].tif", "-o", tmp_path / "filled.tif")
    assert done.returncode == 2 and "names a file, but several inputs" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "filled.tif").exists()


def test_floats_and_words_in_the_table():
    row = batch.Row("a|b.nc", "a", "filled", 3, 2, 1, seconds=1.23456)
    assert batch.markdown([row]).splitlines()[2] == (
        "| a\\|b.nc | a | filled | 3 | 2 | 1 | – | – | – | 1.235 | – | – |"
    )
    assert np.isfinite(row.seconds)
