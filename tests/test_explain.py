"""Laws of `hydiff explain`: it says what the files of a fill say, and changes none of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hydiff
from command import run
from hydiff.auto.intervals import HOPELESS
from hydiff.cube import Cube
from hydiff.io import provenance


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """White noise with a gap, which no method can fill: by `auto`, and by a method alone."""
    folder = tmp_path_factory.mktemp("explained")
    values = np.random.default_rng(0).normal(100, 10, (8, 24, 24)).astype("f4")
    values[:, 9:14, 8:14] = np.nan
    hydiff.write(Cube(values, wavelengths=np.linspace(450, 800, 8)), folder / "in.tif")
    cube = hydiff.read(folder / "in.tif")
    result = hydiff.fill(cube, budget="fast", no_prior=True)
    provenance.save(result, folder / "out.tif")
    provenance.save(hydiff.fill(cube, method="linear"), folder / "plain.tif")
    return folder


@pytest.fixture
def fill(made, tmp_path):
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def explained(path):
    done = run("explain", path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_candidate_of_the_record_is_named_with_its_share(fill):
    path = fill / "out.tif.fill.json"
    record = json.loads(path.read_text())
    candidates = record["recipe"]["candidates"]
    for i, candidate in enumerate(candidates):
        candidate["share"] = (i + 1) / 8  # each another one
    path.write_text(json.dumps(record))
    (blend,) = explained(fill / "out.tif")["blends"]
    assert len(candidates) > 2
    assert [(c["name"], c["share"]) for c in blend["candidates"]] == [
        (c["name"], c["share"]) for c in candidates
    ]
    assert blend["why"] == record["recipe"]["why"]
    shown = run("explain", fill / "out.tif").stdout
    for c in candidates:
        assert f"    {c['name']:10} {100 * c['share']:3.0f} %" in shown


def test_what_is_hardly_better_than_a_mean_is_counted_by_the_error_bars(fill):
    before, cube = hydiff.read(fill / "in.tif"), hydiff.read(fill / "out.tif")
    sigma = provenance.companions(fill / "out.tif", cube.shape)["sigma"]
    spread = np.nanstd(np.asarray(before.values, float), axis=(1, 2))
    count = int((sigma > HOPELESS * spread[:, None, None]).sum())
    words = explained(fill / "out.tif")
    assert count > 100
    share = 100 * count / int((~before.observed()).sum())
    assert any(line.startswith(f"{share:.3g} % of the filled") for line in words["doubts"])
    (line,) = [line for line in words["advice"] if line.startswith("--max-error")]
    assert f"--max-error {HOPELESS:g}: leaves about {count:,} entries" in line
    assert any("--reference OTHER" in line for line in words["advice"])


def test_a_wider_window_is_advised_where_gaps_reach_the_edge(fill):
    words = explained(fill / "plain.tif")
    assert not any("wider window" in line for line in words["advice"])
    values = np.asarray(hydiff.read(fill / "in.tif").values).copy()
    values[:, :9, 8:14] = np.nan
    hydiff.write(Cube(values), fill / "edge.npz")
    result = hydiff.fill(hydiff.read(fill / "edge.npz"), method="nearest", outside="fill")
    provenance.save(result, fill / "filled.npz")
    assert any("wider window" in line for line in explained(fill / "filled.npz")["advice"])


def test_one_method_alone_has_no_trials_to_rely_on(fill):
    words = explained(fill / "plain.tif")
    assert words["blends"] == []
    assert "nothing was tried" in words["doubts"][0]
    assert words["advice"][0].startswith("--method auto")


def test_it_needs_neither_the_input_nor_another_fill_and_writes_nothing(fill):
    (fill / "in.tif").unlink()
    before = {path: path.read_bytes() for path in fill.iterdir()}
    explained(fill / "out.tif")
    assert {path: path.read_bytes() for path in fill.iterdir()} == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda d: (d / "out.tif").unlink(), "no such file"),
        (lambda d: (d / "out.tif.fill.json").unlink(), "keep its companions"),
        (lambda d: (d / "out.tif.fill.json").write_text("[]"), "no record of a fill"),
        (lambda d: (d / "out.tif.flags.tif").unlink(), "the flags of a fill are neither"),
        (
            lambda d: hydiff.write(Cube(np.ones((2, 3, 4))), d / "out.tif", overwrite=True),
            "expected the record of this fill",
        ),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_line(fill, spoil, words):
    spoil(fill)
    done = run("explain", fill / "out.tif")
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and len(done.stderr.splitlines()) == 1
