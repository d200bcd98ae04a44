"""A fill does everything once: one read, one sniff, one check of the request, one decision."""

from collections import Counter

import numpy as np
import pytest
from typer.testing import CliRunner

import hydiff
from hydiff import api, io
from hydiff.cli import app
from hydiff.cube import Cube
from hydiff.gaps import rule
from hydiff.request import Request
from hydiff.scale import layout, tile

ONCE = {"open": 1, "sniff": 1, "check": 1, "decision": 1, "plan": 1}


@pytest.fixture
def calls(monkeypatch):
    """How often the steps of a fill were called, by name."""
    counts = Counter()

    def count(owner, attribute, name):
        function = getattr(owner, attribute)

        def counted(*args, **options):
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(owner, attribute, counted)

    count(io, "open_as", "open")
    count(io, "_recognise", "sniff")
    count(Request, "check", "check")
    count(rule, "targets", "decision")
    count(layout, "aims", "decision")
    count(api, "plan_cube", "plan")
    count(layout, "scan", "plan")
    count(tile, "work", "task")
    return counts


@pytest.fixture(params=[".bsq", ".tif", ".zarr", ".npz"])
def file(tmp_path, tiny, stripes, request):
    path = tmp_path / f"in{request.param}"
    damaged = np.where(stripes, 100 * tiny, -9).astype(np.float32)
    hydiff.write(Cube(damaged, nodata=-9.0), path)
    return path


def fill(*arguments):
    done = CliRunner().invoke(app, ["fill", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("method", ["linear", "auto"])
def test_a_plain_fill_does_everything_once(file, calls, method):
    fill(file, "-o", file.with_stem("out"), "--method", method, "--budget", "fast")
    assert calls == ONCE


def test_a_fill_in_place_and_a_copy_do_everything_once(file, calls):
    fill(file, "-o", file, "--method", "linear", "--outside", "fill", "--overwrite")
    assert calls == ONCE
    calls.clear()
    fill(file, "-o", file.with_stem("copy"), "--method", "linear")
    # the flags and reasons of the first fill are read too, where they are rasters beside it
    files = 3 if file.suffix in (".bsq", ".tif") else 1
    assert calls == ONCE | {"open": files, "sniff": files}


def test_a_dry_run_plans_once_and_does_nothing(file, calls):
    fill(file, "-o", file.with_stem("out"), "--method", "linear", "--dry-run")
    assert calls == ONCE and not file.with_stem("out").exists()


def test_a_tile_task_opens_the_input_once_and_sniffs_nothing(file, calls):
    out = file.with_name("out.zarr")
    fill(file, "-o", out, "--method", "linear", "--tile", "12")
    tasks = calls.pop("task")
    assert tasks == 4
    assert calls == ONCE | {"open": 1 + tasks}


def test_from_python_everything_is_done_once(file, calls):
    result = hydiff.fill(file, method="linear")
    assert calls == ONCE and result.filled.any()
