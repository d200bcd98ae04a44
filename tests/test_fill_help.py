"""What `hydiff fill` says: its help, its examples, and each thing once."""

import dataclasses
import json
import re
import shlex

import numpy as np
import pytest
from typer.main import get_command

import hydiff
import products
from hydiff.cli import app, fill
from hydiff.cube import Cube
from hydiff.request import Request
from test_cli import PLAIN, hydiff_

COMMANDS = [
    shlex.split(re.split(r"\s{2,}", line)[0])[1:] for line in fill.EXAMPLES.split("\n")[1:-1]
]


@pytest.fixture
def folder(tmp_path, tiny, stripes):
    """Files as the examples name them; the scene has gaps, some of them at its edge."""
    damaged = np.where(stripes, 1000 * tiny, -9999).astype(np.int16)
    damaged[:, :, :2] = -9999
    hydiff.write(Cube(damaged, nodata=-9999), tmp_path / "scene.img")
    clouds = np.zeros(stripes.shape, bool)
    clouds[2:4, 10:12] = True
    np.savez(tmp_path / "clouds.npz", missing=clouds)
    (tmp_path / "granules").mkdir()
    values = products.scene(8, 20, 16).astype(np.float32)
    values[:, 7:9] = -9999
    for name in "ab":
        products.emit(tmp_path / "granules" / f"{name}.nc", values)
    return tmp_path


def test_each_reason_to_leave_entries_is_said_once(folder):
    done = hydiff_("fill", "scene.hdr", "-o", "out.bil", *PLAIN, cwd=folder)
    said = [line for line in (done.stderr + done.stdout).splitlines() if "left missing" in line]
    assert len(said) == 1 and "outside" in said[0] and said[0] in done.stdout


def test_the_announcement_has_both_counts_and_no_internal_settings(folder):
    done = hydiff_("fill", "scene.hdr", "-o", "out.bil", *PLAIN, cwd=folder)
    record = json.loads((folder / "out.bil.fill.json").read_text())
    n = record["entries"]
    assert record["settings"]["space"] is None  # the record lists all of them
    count = f"will fill {n['filled']:,} of {n['missing_before']:,} missing entries with smooth"
    assert count in done.stderr and n["left"]
    assert "components=" in done.stderr and "None" not in done.stderr


def test_where_nothing_can_be_filled_the_reason_is_given(folder):
    """In place, so that no summary follows."""
    command = ["fill", "scene.img", "-o", "scene.img", "--overwrite", "--max-gap", "0.5", *PLAIN]
    shown = hydiff_(*command, cwd=folder).stdout
    assert "nothing to fill" in shown and "left missing" in shown and "wider than 0.5" in shown


def test_alone_it_shows_three_examples(folder):
    done = hydiff_("fill", code=2)
    assert done.stderr.splitlines()[:3] == fill.EXAMPLES.strip().splitlines()
    assert len(COMMANDS) == 3 and "--help" in done.stderr and not done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_examples_work(folder, command):
    hydiff_(*command, "--budget", "fast", cwd=folder)
    output = folder / command[command.index("-o") + 1]
    made = sorted(output.glob("*.nc")) if output.is_dir() else [output]
    assert made and all(hydiff.read(path).mark is not None for path in made)


def test_the_help_has_examples_before_groups_in_order():
    lines = [line.strip(" │") for line in hydiff_("fill", "--help").stdout.splitlines()]
    at = [next(i for i, line in enumerate(lines) if example in line)
          for example in fill.EXAMPLES.strip().splitlines()]  # fmt: skip
    titles = [m[1] for line in lines if (m := re.match(r"╭─ ([\w ]+) ─", line))]
    assert titles == ["Input", "Options", "What to fill", "How", "Output", "Scale", "More"]
    assert max(at) < next(i for i, line in enumerate(lines) if line.startswith("╭─"))


def test_the_help_shows_every_default():
    text = " ".join(re.sub("[│╭╰─╮╯]", " ", hydiff_("fill", "--help").stdout).split())
    options = {p.name: p for p in get_command(app).commands["fill"].params}
    for field in (*dataclasses.fields(Request), *dataclasses.fields(fill.Way)):
        option = options[field.name]
        if option.default not in (None, False, ()) or "shown" in field.metadata:
            named = f"({field.metadata['shown']})" if "shown" in field.metadata else option.default
            about = text.split(f" {option.opts[0]} ", 1)[1].split(" --", 1)[0]
            assert f"[default: {named}]" in about, option.opts[0]
