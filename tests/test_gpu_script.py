"""`bash benchmarks/gpu.sh`, with a Python that only writes down what it is asked to run."""

import csv
import os
import re
import shlex
import subprocess
import tarfile

import pytest

from conftest import ROOT
from hydiff import bench
from hydiff.bench import scenes, suites

# the parts that docs/bench.md names for what is left of the paper's tables
PAPER = "core-matrix peers+peers-large readings+precision clock offline diverse pictures"
TABLES = (
    "noiseless", "noisy", "emit", "ei-ablation", "time", "alpha", "transforms", "offline",
    "readings", "precision", "epsilon",
)  # fmt: skip
STUB = """#!/usr/bin/env bash
line="$(printf '%q ' "$@")"
echo "$line" >> "$COMMANDS"  # one write: lanes run side by side
"""


class Place:
    """Folders for the script: scenes by their names alone, and what it wanted to run."""

    def __init__(self, folder):
        self.data, self.out, self.log = folder / "data", folder / "out", folder / "commands"
        self.out.mkdir()
        (self.data / "dev").mkdir(parents=True)
        for name in scenes.DEVELOPMENT:
            (self.data / "dev" / f"{name}.npz").touch()
        self.python = folder / "python"
        self.python.write_text(STUB)
        self.python.chmod(0o755)

    def run(self, parts, seconds=600):
        places = {"HYDIFF_DATA": self.data, "OUT": self.out, "COMMANDS": self.log}
        own = {k: str(v) for k, v in (places | {"PYTHON": self.python}).items()}
        words = ["bash", "benchmarks/gpu.sh", parts, str(seconds)]
        done = subprocess.run(words, cwd=ROOT, env=os.environ | own, capture_output=True, text=True)
        commands = self.log.read_text().splitlines() if self.log.exists() else []
        return done, [shlex.split(line) for line in commands]


@pytest.fixture
def place(tmp_path, monkeypatch):
    found = Place(tmp_path)
    monkeypatch.setenv("HYDIFF_DATA", str(found.data))
    return found


def cells_of(words):
    """The table and the cells that `hydiff bench TABLE ...` is about; unknown names are refused."""
    table, options = words[0], dict.fromkeys(("scene", "mask", "sigma", "method"), ())
    single = {}
    for option, value in zip(words[1::2], words[2::2], strict=True):
        name = option.lstrip("-")
        if name in options:
            options[name] += (value,)
        else:
            single[name] = value
    assert single.keys() <= {
        "seeds", "workers", "beside", "limit-minutes", "offline-minutes", "budget", "o", "tuned"
    }  # fmt: skip
    choice = bench.choice_of(
        {}, names=options["scene"], masks=options["mask"], noise=options["sigma"],
        methods=options["method"], seeds=int(single["seeds"]) if "seeds" in single else None,
        offline_minutes=float(single.get("offline-minutes", 2)),
    )  # fmt: skip
    return table, {c for c in suites.SUITES[table].cells(choice) if choice.fits(c.scene, c.mask)}


def test_its_head_lists_parts_that_exist():
    head, _, body = (ROOT / "benchmarks" / "gpu.sh").read_text().partition("\nset -u\n")
    parts = set(re.findall(r"^# (?:PART {3}| {7})([a-z][a-z-]+) +\S", head, re.MULTILINE))
    parts |= set(re.findall(r"; (rivals|rest):", head))
    functions = set(re.findall(r"^([a-z][\w-]*)\(\) \{", body, re.MULTILINE))
    assert {*PAPER.replace("+", " ").split()} <= parts <= functions


def test_its_parts_make_every_cell_of_the_paper_s_tables(place):
    done, commands = place.run(PAPER)
    assert done.returncode == 0 and not done.stderr
    found = {}
    for words in commands:
        if words[:3] != ["-m", "hydiff", "bench"]:
            assert (ROOT / words[0]).is_file()
        elif words[3] != "figures":
            table, cells = cells_of(words[3:])
            assert cells, words
            found.setdefault(table, set()).update(cells)
    choice = bench.choice_of({}, offline_minutes=1.5)
    for table in TABLES:
        wanted = {c for c in suites.SUITES[table].cells(choice) if choice.fits(c.scene, c.mask)}
        # rows of one table count in the others, but for times
        made = found[table] if table == "time" else set().union(*found.values())
        assert wanted <= made, (table, sorted(wanted - made, key=str)[:3])


def test_rows_of_a_run_that_was_cut_off_are_known_to_the_next(place, tmp_path):
    earlier = tmp_path / "rows" / "clock"
    earlier.mkdir(parents=True)
    (earlier / "time.csv").write_text("method\nof the first run\n")
    with tarfile.open(place.data / "rows.tgz", "w:gz") as archive:
        archive.add(tmp_path / "rows", ".")
    done, commands = place.run("clock")
    assert done.returncode == 0 and commands[-1][3] == "time"
    with tarfile.open(place.out / "rows.tgz") as archive:
        archive.extractall(tmp_path / "after", filter="data")
    after = tmp_path / "after" / "clock"
    assert (after / "time.csv").read_text() == "method\nof the first run\n"
    with (after / "noisy.csv").open() as file:  # what is committed lies beside
        assert len(list(csv.DictReader(file))) > 100


def test_a_part_that_does_not_exist_is_refused_before_anything_runs(place):
    done, commands = place.run("core-matrix+peer")
    assert done.returncode == 2 and "no part peer;" in done.stderr and not commands
