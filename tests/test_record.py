"""Records and recipes from files: what is read is whole, what is damaged is refused in one line."""

import json
import os
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import command
import hydiff
import mutations
from hydiff import auto
from hydiff.auto.recipe import Fingerprint
from hydiff.cube import Cube
from hydiff.errors import BadValue, CubeFormatError, HydiffError
from hydiff.gaps import simulate
from hydiff.io import provenance, record, typed
from hydiff.metrics import NORMAL_QUANTILES
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.scene import limits

NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A damaged file and its fill by `auto` with a corner left missing, in a folder."""
    folder = tmp_path_factory.mktemp("made")
    y, x = np.mgrid[:24, :24] / 8
    tiny = np.stack([2 + np.sin(x + b / 5) * np.cos(y - b / 9) for b in range(8)]) / 3
    damaged, _ = simulate.simulate(Cube((1000 * tiny).astype(np.float32)), "stripes", 0.3, seed=1)
    values = damaged.values.copy()
    values[:, :3, :3] = np.nan  # outside: left
    hydiff.write(Cube((1000 * tiny).astype(np.float32)), folder / "truth.npy")
    hydiff.write(Cube(values), folder / "in.npy")
    result = hydiff.fill(hydiff.read(folder / "in.npy"), budget="fast")
    provenance.save(result, folder / "out.npz", command=["/usr/bin/hydiff", "fill", "in.npy"])
    return folder


@pytest.fixture(scope="module")
def document(made):
    """Its record, with everything that a record can hold."""
    found = json.loads((made / "out.npz.fill.json").read_text())
    found["tiles"] = {"size": [96, 96], "overlap": 8, "filled": 1, "of": 1}
    kinds = ("pixels without any band", "pixels that keep some bands")
    found["expected_by_kind"] = {kind: dict(found["expected"]) for kind in kinds}
    own = {k: v for k, v in found["recipe"].items() if k not in ("budget", "cube")}
    found["recipe"] |= {"gaps": kinds[0], "partial": own | {"gaps": kinds[1]}}
    record.checked(found)
    return found


@pytest.fixture
def fill(made, tmp_path):
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def refused(function, *arguments):
    """Whether it is refused, in one line; anything else that is raised is a defect."""
    try:
        function(*arguments)
    except HydiffError as error:
        assert str(error) and "\n" not in str(error)
        return True
    return False


# --- records --------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(made):
    content = json.loads((made / "out.npz.fill.json").read_text())
    found = record.read(made / "out.npz.fill.json")
    assert found.method == content["method"] and list(found.notes) == content["notes"]
    assert found.entries.left == content["entries"]["left"] and found.entries.missing_after > 0
    assert found.input.sha256 == content["input"]["sha256"] == provenance.sha256(made / "in.npy")
    assert found.expected == content["expected"] and found.seconds == content["seconds"]
    assert np.array_equal(found.recipe.weights, content["recipe"]["weights"])
    assert list(found.recipe.errors.intervals) == content["recipe"]["errors"]["intervals"]


@pytest.mark.parametrize(
    "order",
    [Request(method="smooth"), Request(method="linear"), Request(budget="fast")],
    ids=lambda order: order.method,
)
@pytest.mark.parametrize("tile", [None, 16])
def test_every_fill_writes_a_record_that_can_be_read(fill, order, tile):
    if tile is not None:
        hydiff.write(hydiff.read(fill / "in.npy"), fill / "in.bsq")
    source, output = ("in.npy", "b.npz") if tile is None else ("in.bsq", "b.bsq")
    source, output = fill / source, fill / output
    execute.fill_file(source, output, order, limits("2GB", tile))
    found = record.read(provenance.record_path(output))
    assert found.method == order.method and (found.tiles is not None) == (tile is not None)


def test_a_record_without_what_older_versions_did_not_write_is_read(document):
    needed = ("method", "settings", "entries", "notes", "versions")
    found = record.checked({key: document[key] for key in needed})
    assert found.recipe is None and found.expected is None and found.command == ()


def test_a_record_of_a_later_version_is_read(document):
    assert record.checked(document | {"unheard of": [1]}) == record.checked(document)


def test_numbers_that_json_has_not_are_written_as_null():
    text = typed.dumps({"a": NAN, "b": [INF, 1.5], "c": {"d": -INF}, "e": (1,)})
    strict = json.loads(text, parse_constant=pytest.fail)
    assert strict == {"a": None, "b": [None, 1.5], "c": {"d": None}, "e": [1]}


WRONG = [None, "x", -1, NAN, INF, [[]], {"a": 1}, mutations.nested(200)]


@pytest.mark.parametrize(
    "field",
    ["seconds", "sigma_y", "command", "entries", "time", "expected.nrmse", "entries.missing_after",
     "entries.all", "entries.left", "recipe.errors.by_distance.0", "recipe.errors.intervals",
     "recipe.folds", "recipe.weights", "input.sha256", "versions", "notes"],
)  # fmt: skip
def test_a_field_of_another_type_is_refused(document, fill, field):
    path = tuple(int(key) if key.isdigit() else key for key in field.split("."))
    # null is what a record says of a distance that was not tried and of a score that is not known
    wrong = WRONG[1:] if field in ("recipe.errors.by_distance.0", "expected.nrmse") else WRONG
    # a score may be below 0
    wrong = [w for w in wrong if w != -1] if field == "expected.nrmse" else wrong
    for value in wrong:
        beside = fill / "out.npz.fill.json"
        beside.write_bytes(mutations.dumps(mutations.changed(document, path, value)))
        with pytest.raises(CubeFormatError, match="no record of a fill"):
            record.read(beside)


def test_damage_of_any_kind_is_refused_in_one_line_or_does_none(document, made, tmp_path):
    """Records and recipes, through all that reads them."""
    path, rng = tmp_path / "out.npz.fill.json", np.random.default_rng(1)
    counts = {True: 0, False: 0}
    for spoiled in islice(mutations.mutations(document, rng), 200):
        path.write_bytes(mutations.dumps(spoiled))
        counts[refused(record.read, path)] += 1
        refused(auto.read_recipe, path)
        refused(provenance.intervals_of, tmp_path / "out.npz")
    assert counts[True] > 100 and counts[False] > 10


def test_counts_that_do_not_add_up_are_refused(document):
    for name in ("all", "missing_before", "filled", "missing_after"):
        entries = document["entries"] | {name: 1}
        with pytest.raises(ValueError, match="do not add up"):
            record.checked(document | {"entries": entries})


def test_a_copy_of_what_had_no_gaps_is_said_to_be_one(tmp_path, tiny):
    hydiff.write(Cube(tiny), tmp_path / "in.npy")
    execute.fill_file(tmp_path / "in.npy", tmp_path / "out.npz", Request(), limits(None))
    with pytest.raises(CubeFormatError, match="nothing was missing"):
        record.read(tmp_path / "out.npz.fill.json")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for function, words in ((record.read, "no file"), (auto.read_recipe, "FIFO")):
        with pytest.raises(CubeFormatError, match=words):
            function(tmp_path / "fifo")


def test_the_command_line_says_it_in_one_line(fill, document):
    (fill / "out.npz.fill.json").write_bytes(mutations.dumps(document | {"seconds": "x"}))
    before = sorted(fill.iterdir())
    done = command.run("report", "out.npz", cwd=fill)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert 'seconds is "x", expected a number' in done.stderr
    assert sorted(fill.iterdir()) == before


# --- intervals ------------------------------------------------------------------------------------


def test_the_intervals_are_those_of_the_record(fill):
    beside = fill / "out.npz.fill.json"
    content = json.loads(beside.read_text())
    widths = provenance.intervals_of(fill / "out.npz")
    assert list(widths) == content["recipe"]["errors"]["intervals"] != list(NORMAL_QUANTILES)
    beside.write_text(json.dumps(content | {"recipe": None}))
    assert provenance.intervals_of(fill / "out.npz") == NORMAL_QUANTILES
    beside.unlink()
    assert provenance.intervals_of(fill / "out.npz") == NORMAL_QUANTILES


@pytest.mark.parametrize(
    "widths",
    [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [-1.0, 1.0, 2.0], [0.5, 1.0, INF],
     [0.5, NAN, 2.0], [2.0, 1.0, 3.0], [0.5, "x", 2.0], ["0.5", 1.0, 2.0], 1.0, "abc"],
)  # fmt: skip
def test_intervals_that_are_none_are_refused(fill, widths):
    beside, truth = fill / "out.npz.fill.json", np.asarray(hydiff.read(fill / "truth.npy").values)
    content = json.loads(beside.read_text())
    content["recipe"]["errors"]["intervals"] = widths
    beside.write_text(json.dumps(content))
    with pytest.raises(BadValue, match="intervals"):
        auto.read_recipe(beside)
    with pytest.raises(CubeFormatError, match="intervals"):
        provenance.calibrated(fill / "out.npz", truth, truth)


# --- recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("errors", "by_distance"), ["x"] * 8),
        (("errors", "by_distance", 0), "x"),
        (("errors", "by_distance", 0), -1.0),
        (("errors", "by_distance"), [1.0]),
        (("errors", "level"), None),
        (("errors", "slopes", 0), INF),
        (("errors", "features"), []),
        (("errors", "features", 2), "contrast"),
        (("weights", 0, 0, 0), 0.5),
        (("weights", 0, 0), [1.0]),
        (("weights", 0), []),
        (("candidates",), []),
        (("candidates", 0, "settings"), {"components": 0.5}),
        (("candidates", 0, "settings"), {"components": None}),
        (("candidates", 0, "method"), "hydiff-ei"),
        (("folds",), "<b>"),
        (("partial",), {"candidates": []}),
        (("gaps",), "pixels"),
        (("partial", "gaps"), "pixels without any band"),
    ],
    ids=str,
)
def test_a_recipe_that_makes_no_sense_is_refused(document, path, value):
    recipe = mutations.changed(document["recipe"], path, value)
    if value == "hydiff-ei":  # whose weights would name a file to open
        recipe["candidates"][0]["settings"] = {"weights": "/etc/passwd"}
    with pytest.raises(BadValue, match="expected a recipe"):
        auto.read_recipe(recipe)


def test_what_a_damaged_recipe_still_says_can_be_followed(document):
    """Whatever is accepted fills a cube with finite values."""
    y, x = np.mgrid[:12, :12] / 8
    values = np.stack([2 + np.sin(x + b / 5) * np.cos(y) for b in range(4)])
    values[:, 4:6, 5:8] = np.nan
    recipe = {k: v for k, v in document["recipe"].items() if k != "partial"}
    followed, tried = 0, list(islice(mutations.mutations(recipe, np.random.default_rng(2)), 300))
    for spoiled in tried:
        if isinstance(spoiled, dict) and not refused(auto.read_recipe, spoiled):
            followed += 1
            assert np.isfinite(hydiff.fill(values, recipe=spoiled).values).all()
    assert 10 < followed < len(tried) / 2


# --- the cube that a recipe was decided on -------------------------------------------------------


def test_a_recipe_knows_its_own_cube(fill):
    cube, recipe = hydiff.read(fill / "in.npy"), fill / "out.npz.fill.json"
    again = hydiff.fill(cube, recipe=recipe)
    assert auto.ELSEWHERE not in again.notes
    hydiff.write(cube, fill / "in.bsq")  # the same cube in another format
    assert auto.ELSEWHERE not in hydiff.fill(hydiff.read(fill / "in.bsq"), recipe=recipe).notes
    other = np.asarray(cube.values).copy()
    row, col = np.argwhere(np.isfinite(other[0]))[0]
    other[0, row, col] += 1
    assert auto.ELSEWHERE in hydiff.fill(other, recipe=recipe).notes
    masked = np.ones(cube.shape, bool)
    masked[:, row, col] = False
    assert auto.ELSEWHERE in hydiff.fill(cube, masked, recipe=recipe).notes


def test_a_recipe_of_another_cube_stays_one_when_it_is_handed_on(fill):
    other = Cube(np.asarray(hydiff.read(fill / "in.npy").values)[:, ::-1].copy())
    replayed = hydiff.fill(other, recipe=fill / "out.npz.fill.json")
    assert auto.ELSEWHERE in hydiff.fill(other, recipe=replayed.recipe).notes


def test_tiles_know_the_cube_of_a_recipe_too(fill):
    hydiff.write(hydiff.read(fill / "in.npy"), fill / "in.bsq")
    plain = auto.read_recipe(fill / "out.npz.fill.json")
    bounds = limits("2GB", 16)
    tiled = execute.fill_file(fill / "in.bsq", fill / "a.bsq", Request(recipe=plain), bounds).record
    assert auto.ELSEWHERE not in tiled["notes"] and tiled["settings"] == {"budget": "fast"}
    first = execute.fill_file(
        fill / "in.bsq", fill / "b.bsq", Request(budget="fast"), bounds
    ).record
    assert first["recipe"]["cube"] == plain["cube"] and first["recipe"]["budget"] == "fast"
    whole = hydiff.fill(hydiff.read(fill / "in.bsq"), recipe=first["recipe"])
    assert auto.ELSEWHERE not in whole.notes


def test_the_fingerprint_does_not_depend_on_how_many_rows_come_at_a_time(rng):
    values, observed = rng.random((5, 9, 7)), rng.random((5, 9, 7)) < 0.8
    good = np.array([True, False, True, True, True])
    found = set()
    for step in (1, 2, 9):
        digest = Fingerprint(good)
        for row in range(0, 9, step):
            some = slice(row, row + step)
            digest.add(digest.content(values[:, some], observed[:, some]))
        found.add(str(digest))
    swapped = values.astype(">f8")
    found.add(auto.fingerprint(Cube(swapped, good=good), observed))
    assert len(found) == 1
    wild = np.where(observed & good[:, None, None], values, 1e9)  # what nobody observed
    assert auto.fingerprint(Cube(wild, good=good), observed) in found


def test_the_budget_is_the_one_that_was_decided_with(fill):
    cube = hydiff.read(fill / "in.npy")
    again = hydiff.fill(cube, recipe=fill / "out.npz.fill.json", budget="normal")
    assert again.settings == {"budget": "fast"}
