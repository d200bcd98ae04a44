"""Offset columns and lines, and suggested bad bands: reported, with nothing measured changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import command
import hydiff
from hydiff import io
from hydiff.cli import app
from hydiff.cube import Array, Cube
from hydiff.errors import BadValue, HydiffError
from hydiff.gaps import doubts

NOISY = {0, 1, 88, 89, 102, 103, 143, 144, 198, 199}  # of Indian Pines


@pytest.fixture(scope="module")
def values() -> Array:
    part = hydiff.sample().window(rows=slice(0, 60), cols=slice(0, 50), bands=slice(20, 30))
    return np.asarray(part.values, np.float64)


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_an_offset_moves_by_what_is_added_to_its_column(values: Array) -> None:
    """The median follows a shift exactly, and its error does not change."""
    shifted = values[4].copy()
    shifted[:, 20] += 137.5
    (before, error), (after, later) = map(doubts.column_offsets, (values[4], shifted))
    assert after[20] - before[20] == 137.5 and later[20] == error[20]
    np.testing.assert_array_equal(np.delete(after, [19, 20, 21]), np.delete(before, [19, 20, 21]))


@pytest.mark.parametrize("sign", [-1, 1])
def test_an_offset_column_leads_the_list_with_its_size(values: Array, sign: int) -> None:
    spoiled, observed = values.copy(), np.ones(values.shape, bool)
    spoiled[4, :, 20] += sign * 2000
    observed[4, 7:30, 21] = False
    first, *others = doubts.offsets(spoiled, observed)
    assert (first.kind, first.position, first.band) == ("column", 20, 4)
    usual = doubts.column_offsets(values[4])[0]
    assert abs(first.offset - sign * 2000) < 5 * np.nanstd(usual) + 5 * first.error
    assert not [o for o in others if o.kind == "column" and o.band == 4 and o.position in (19, 21)]


def test_lines_are_the_columns_of_the_turned_image(values: Array) -> None:
    spoiled = values.copy()
    spoiled[2, 30] -= 1500
    observed = np.ones(values.shape, bool)
    turned = doubts.offsets(spoiled.transpose(0, 2, 1), observed.transpose(0, 2, 1))
    other = {"line": "column", "column": "line"}
    back = [o._replace(kind=other[o.kind]) for o in turned]
    assert sorted(back) == sorted(doubts.offsets(spoiled, observed))
    assert back[0][:3] == ("line", 30, 2)


def test_a_plane_or_a_slope_has_no_offset() -> None:
    rows, cols = np.mgrid[:30.0, :40.0]
    smooth = np.stack([3 * rows - 2 * cols + 7, 0 * rows])
    assert doubts.offsets(smooth, np.ones(smooth.shape, bool)) == []
    assert doubts.offsets(smooth[:, :4, :4], np.ones((2, 4, 4), bool)) == []


def test_suggested_bands_are_those_known_to_be_noisy() -> None:
    cube = hydiff.sample()
    found = doubts.judge_bands(np.asarray(cube.values), np.ones(cube.shape, bool))
    bad = set(np.flatnonzero(~found.good).tolist())
    assert bad and bad <= NOISY
    assert set(np.argsort(found.predicted)[:3].tolist()) <= NOISY


def test_noise_empty_and_constant_bands_are_bad(values: Array, rng: np.random.Generator) -> None:
    spoiled, observed = values.copy(), np.ones(values.shape, bool)
    spoiled[3] = rng.standard_normal(values.shape[1:])
    spoiled[5] = 9.0
    observed[7] = False
    found = doubts.judge_bands(spoiled, observed)
    assert not found.good[[3, 5, 7]].any()
    assert np.isnan(found.noise[7]) and found.predicted[3] < 0.2
    with pytest.raises(BadValue, match="1 bands with values that vary, expected 2 or more"):
        doubts.judge_bands(spoiled[4:6], np.ones((2, *values.shape[1:]), bool))


def test_the_command_lists_stripes_and_writes_nothing(values: Array, tmp_path: Path) -> None:
    spoiled = values.astype(np.float32)
    spoiled[4, :, 20] += 2000
    io.write(Cube(spoiled, wavelengths=np.arange(500.0, 600, 10)), tmp_path / "a.img")
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    text = run("mask", tmp_path / "a.img", "--stripes")
    assert "column" in text and "540" in text
    first = json.loads(run("mask", tmp_path / "a.img", "--stripes", "--json"))["offsets"][0]
    assert (first["kind"], first["position"], first["band"]) == ("column", 20, 4)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", [".img", ".tif"])
def test_the_command_writes_the_list_into_a_copy(
    values: Array, tmp_path: Path, rng: np.random.Generator, suffix: str
) -> None:
    spoiled = values.astype(np.float32)
    spoiled[3] = rng.standard_normal(values.shape[1:])
    source, copy = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    io.write(Cube(spoiled, band_names=tuple("abcdefghij"), nodata=-1.0), source)
    before = source.read_bytes()
    facts = json.loads(run("mask", source, "--bands", "-o", copy, "--json"))
    one, other = io.read(source), io.read(copy)
    assert np.flatnonzero(~other.good_bands).tolist() == facts["bad_bands"]
    assert 3 in facts["bad_bands"] and facts["declared"] == []
    assert np.asarray(other.values).tobytes() == np.asarray(one.values).tobytes()
    assert other.band_names == one.band_names and other.nodata == one.nodata
    assert source.read_bytes() == before
    assert "suggested bad bands: 3" in run("mask", source, "--bands")


def test_what_cannot_be_asked_together_is_refused(values: Array, tmp_path: Path) -> None:
    io.write(Cube(values), tmp_path / "a.img")
    for words in (["--stripes", "--bands"], ["--stripes", "-o", str(tmp_path / "m.npz")]):
        done = CliRunner().invoke(app, ["mask", str(tmp_path / "a.img"), *words])
        assert isinstance(done.exception, HydiffError)
        assert "--stripes reports and writes nothing" in str(done.exception)


def test_a_cube_without_any_value_has_a_census_and_a_mask(tmp_path):
    hydiff.write(Cube(np.full((3, 8, 9), np.nan, np.float32)), tmp_path / "e.tif")
    done = command.run("mask", "e.tif", "-o", "m.npz", cwd=tmp_path)
    assert done.returncode == 0 and "100.0 % of 216 entries are missing" in done.stdout
    assert "mask of 100.0 % of the entries written to m.npz" in done.stdout
    assert io.read_mask(tmp_path / "m.npz", "missing", (3, 8, 9)).sum() == 0
    for search in ("--stripes", "--bands"):  # for damage, among values
        done = command.run("mask", "e.tif", search, cwd=tmp_path)
        assert done.returncode == 2 and "every entry is missing" in done.stderr
