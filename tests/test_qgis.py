"""The plugin of QGIS: its zip everywhere, its algorithms where QGIS is installed."""

import configparser
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hydiff
from conftest import ROOT

PYTHON = "/usr/bin/python3"  # of the system, whose packages QGIS uses
NAME = "hydiff_qgis"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plugin as `make qgis` packs it."""
    folder = tmp_path_factory.mktemp("plugins")
    subprocess.run(["make", "-s", "qgis", f"DIST={folder}"], cwd=ROOT, check=True)
    with zipfile.ZipFile(folder / f"{NAME}.zip") as archive:
        archive.extractall(folder)
    return folder


def test_the_zip_is_what_qgis_installs(plugins: Path) -> None:
    with zipfile.ZipFile(plugins / f"{NAME}.zip") as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {NAME}
    assert {f"{NAME}/{name}" for name in ("__init__.py", "metadata.txt", "LICENSE")} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    about = configparser.ConfigParser()
    about.read(plugins / NAME / "metadata.txt")
    assert about["general"]["version"] == hydiff.__version__
    assert about["general"]["hasProcessingProvider"] == "yes"  # or qgis_process does not load it


def scene(folder: Path) -> np.ndarray:
    """truth.bsq, and scene.bsq with 3,380 missing entries in three gaps; the truth."""
    part = hydiff.sample().window(rows=slice(0, 36), cols=slice(0, 36), bands=slice(0, 40))
    values = np.asarray(part.values, np.float32)
    place = {"transform": (20.0, 0.0, 5e5, 0.0, -20.0, 4.5e6), "crs": "EPSG:32616"}
    truth = replace(part, values=values, path=None, format=None, **place)
    damaged = values.copy()
    damaged[:, :, 10:12] = damaged[20:30, 20:25, 20:30] = np.nan
    hydiff.write(truth, folder / "truth.bsq")
    hydiff.write(replace(truth, values=damaged), folder / "scene.bsq")
    return values


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For QGIS without a window, with a profile of its own; hydiff is found last in PATH."""
    if shutil.which("qgis_process") is None:
        pytest.skip("QGIS is not installed: apt-get install qgis")
    if subprocess.run([PYTHON, "-c", "import qgis.core"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} does not find the packages of QGIS")
    home = str(Path(sys.executable).parent)  # has a python3, which QGIS must not take for its own
    places = [place for place in os.environ["PATH"].split(":") if place != home]
    own = {"QT_QPA_PLATFORM": "offscreen", "QGIS_CUSTOM_CONFIG_PATH": str(folder / "profile")}
    return os.environ | own | {"PATH": ":".join([*places, home])} | more


def test_the_algorithms_in_a_session_of_qgis(plugins: Path, tmp_path: Path) -> None:
    own, truth = environment(tmp_path), scene(tmp_path)
    command = [PYTHON, str(ROOT / "tests" / "qgis_session.py"), str(plugins)]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout.splitlines()[-1])

    loaded = found["loaded"]
    assert len(loaded["progress"]) > 3 and loaded["progress"] == sorted(loaded["progress"])
    assert loaded["bands"] == [26, 16, 8]  # those nearest to 650, 550 and 470 nm
    assert loaded["wavelength"] == 409.82
    assert loaded["sigma"] == ["singlebandpseudocolor", 0.0]
    filled = np.asarray(hydiff.read(tmp_path / "filled.bsq").values)
    missing = np.isnan(np.asarray(hydiff.read(tmp_path / "scene.bsq").values))
    assert filled[~missing].tobytes() == truth[~missing].tobytes()
    sigma = np.asarray(hydiff.read(tmp_path / "sigma.tif").values)
    np.testing.assert_array_equal(sigma > 0, missing)

    assert found["cancelled"] == {"found": {}, "asked": True, "new": []}
    assert found["gaps"].items() >= {"MISSING": int(missing.sum()), "GAPS": 3, "WIDEST": 5}.items()
    assert "<th>n_gaps<td>3" in (tmp_path / "page.html").read_text()
    assert 0 < found["score"]["NRMSE"] < 1
    mask = np.asarray(hydiff.read(tmp_path / "mask.tif").values)
    assert set(np.unique(mask)) == {0, 1} and mask[missing].all()
    assert "--max-gap" in found["refused"] and "\n" not in found["refused"]
    assert found["absent"].startswith("the program no-such-program was not found, expected hydiff")


def log_of(words: list[str], folder: Path, own: dict[str, str], stop_at: bytes) -> bytes:
    """What a program prints; interrupted, as by Ctrl-C in a terminal, where it prints `stop_at`."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    log, stopped = b"", False
    with subprocess.Popen(words, cwd=folder, env=own, **streams) as process:
        while byte := process.stdout.read(1):
            log += byte
            if not stopped and log.endswith(stop_at):
                os.killpg(process.pid, signal.SIGINT)
                stopped = True
    return log


def test_qgis_process_fills_envi_and_ctrl_c_leaves_nothing(plugins: Path, tmp_path: Path) -> None:
    own = environment(tmp_path, QGIS_PLUGINPATH=str(plugins))
    scene(tmp_path)
    log_of(["qgis_process.bin", "plugins", "enable", NAME], tmp_path, own, b"never")
    words = ["qgis_process.bin", "run", "hydiff:fill", "INPUT=scene.bsq", "METHOD=smooth"]
    words += ["OPTIONS=--tile 12", "OUTPUT=out.bsq", "SIGMA=out.sigma.tif"]
    before = {path.name for path in tmp_path.iterdir()} | {"scene.bsq.aux.xml"}  # which QGIS writes
    log = log_of(words, tmp_path, own, b"10...")
    assert b"Caught signal" in log
    assert {path.name for path in tmp_path.iterdir()} <= before, log.decode()
    log = log_of(words, tmp_path, own, b"never")
    assert b"50...60" in log and (tmp_path / "out.sigma.tif").exists(), log.decode()
    assert not np.isnan(np.asarray(hydiff.read(tmp_path / "out.bsq").values)).any()
