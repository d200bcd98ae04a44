"""The Snakemake example goes on where a fill was interrupted, where Snakemake is installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hydiff
from command import run
from conftest import ROOT
from hydiff.cube import Cube

TILES = ["--method", "smooth", "--tile", "12", "--json"]


def percents(text: str) -> list[int]:
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [e["percent"] for e in events if e.get("phase") == "tiles"]


def test_the_workflow_resumes_a_fill_that_was_interrupted(tmp_path: Path) -> None:
    if shutil.which("snakemake") is None:
        pytest.skip("Snakemake is not installed: pip install snakemake")
    part = hydiff.sample().window(rows=slice(0, 36), cols=slice(0, 36), bands=slice(0, 12))
    values = np.asarray(part.values, np.float32)
    values[:, :, 4::9] = np.nan
    for folder in ("granules", "filled"):
        (tmp_path / folder).mkdir()
    hydiff.write(Cube(values), tmp_path / "granules" / "a.tif")
    command = ["fill", "granules/a.tif", "-o"]
    first = [sys.executable, "-m", "hydiff", *command, "filled/a.tif", *TILES]
    with subprocess.Popen(first, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        done = next(found[0] for line in process.stderr if (found := percents(line)))
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130 and not (tmp_path / "filled" / "a.tif").exists()

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    workflow = ["snakemake", "-s", str(ROOT / "integrations" / "snakemake" / "Snakefile")]
    options = ["--cores", "1", "--config", "granules=granules", f"options={' '.join(TILES)}"]
    subprocess.run([*workflow, *options], cwd=tmp_path, env=os.environ | {"PATH": path}, check=True)
    assert percents((tmp_path / "logs" / "a.txt").read_text())[0] > done  # not from the start
    assert json.loads((tmp_path / "filled" / "a.json").read_text())["entries"]["left"] == {}
    assert run(*command, "whole.tif", *TILES, cwd=tmp_path).returncode == 0
    paths = [tmp_path / name for name in ("whole.tif", "filled/a.tif")]
    whole, resumed = (np.asarray(hydiff.read(path).values) for path in paths)
    assert whole.tobytes() == resumed.tobytes()
