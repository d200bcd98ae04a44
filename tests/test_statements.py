"""The table of the paper's statements names switches and tables that exist."""

import csv
import re
from dataclasses import fields

import pytest

from conftest import ROOT
from hydiff.bench import suites
from hydiff.methods.ei import EI
from hydiff.methods.hydiff_ei import HyDiffEI

PAGE = (ROOT / "docs" / "statements.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \|", line)
]
RESULTS = ROOT / "benchmarks" / "results" / "bench"
WAYS = ("exact", "switch", "deviation")


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_there_are_forty_three():
    assert [int(row[0]) for row in ROWS] == list(range(1, 44))
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_says_how_it_is_kept_and_names_what_exists(row):
    _, _, how, switch, table = row
    assert how.startswith(WAYS)
    known = {f.name for cls in (HyDiffEI, EI) for f in fields(cls)}
    assert set(names(switch)) <= known
    assert set(names(table)) <= set(suites.SUITES)
    if how.startswith("switch"):
        assert names(switch) and names(table)


def test_tables_without_rows_are_said_to_have_none():
    tables = {name for row in ROWS for name in names(row[4])}
    lacking = {name for name in tables if not (RESULTS / f"{name}.csv").exists()}
    said = {name for row in ROWS if "no rows yet" in row[2] for name in names(row[4])}
    assert lacking == said


def test_every_reading_of_the_benchmark_is_a_switch_of_the_page():
    changed = {
        key
        for group in (suites.READINGS, suites.WITH_NOISE, suites.WITHOUT_NOISE, suites.SURE)
        for change in group
        for key in change
    }
    page = {name for row in ROWS for name in names(row[3])}
    assert changed <= page
    page_of_readings = (ROOT / "docs" / "readings.md").read_text()
    assert all(f"`{name}`" in page_of_readings for name in changed)


@pytest.mark.parametrize("table", ["noiseless", "noisy"])
def test_as_many_scenes_are_stated_as_have_rows(table):
    (samples,) = (row[2] for row in ROWS if row[1].startswith("20 samples"))
    with (RESULTS / f"{table}.csv").open(newline="") as lines:
        scenes = {row["scene"] for row in csv.DictReader(lines)}
    assert f" {len(scenes)} scenes;" in samples


def test_rows_of_the_stand_in_denoiser_decide_nothing():
    paired = (ROOT / "docs" / "paired.md").read_text()
    lines = [line for line in paired.splitlines() if "| `hir-diff` |" in line]
    assert lines and all(line.endswith("| open: a stand-in denoiser |") for line in lines)
