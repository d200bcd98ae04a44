"""`hydiff doctor` describes this installation, and finds what is broken in it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import command
import hydiff
from conftest import ROOT
from hydiff import io
from hydiff.cli import doctor

# what `import NAME` calls a package that has another name on the index
IMPORTED = {"dask[distributed]": ("dask", "distributed"), "scikit-image": ("skimage",)}
PROBE = """
import sys
for name in {broken}:
    sys.modules[name] = None  # its import fails
sys.argv[0] = "hydiff"
from hydiff.cli import main
main()
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("NO_COLOR", "1")


def consult(*args, broken=(), code=0):
    """What it says; where something is broken, in a process that has not imported it."""
    probe = [sys.executable, "-c", PROBE.format(broken=tuple(broken)), "doctor", *args]
    done = (
        subprocess.run(probe, capture_output=True, text=True)
        if broken
        else command.run("doctor", *args)
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_a_sound_installation_passes():
    facts = json.loads(consult("--json"))
    assert facts["problems"] == [] and all(facts["formats"].values())
    assert facts["versions"]["hydiff"] == hydiff.__version__
    import rasterio

    assert facts["versions"]["GDAL"] == rasterio.__gdal_version__
    test = facts["self_test"]
    assert 0 < test["nrmse"] < test["nrmse_of_band_mean"] and test["seconds"] <= 10
    assert str(Path.home()) not in json.dumps(facts["folders"])


def test_people_are_shown_the_same_and_what_to_send():
    shown = consult()
    assert "self-test    passed" in shown and "all is well" in shown
    assert all(name in shown for name in (*io.FORMATS, *(f"[{e}]" for e in doctor.EXTRAS)))
    assert "hydiff doctor --json" in shown.splitlines()[-1]


def test_an_extra_that_is_not_installed_is_no_problem():
    facts = json.loads(consult("--json", broken=("torch", "xarray")))
    assert not facts["extras"]["learn"] and not facts["extras"]["xarray"]
    assert facts["problems"] == [] and "hydiff[learn]" in facts["gpu"]


@pytest.mark.parametrize(
    ("broken", "problem", "unreadable"),
    [
        ("h5py", "hdf5: ", {"emit", "aviris", "prisma", "neon"}),
        ("scipy.ndimage", "self-test: ", set()),
    ],
)
def test_what_does_not_work_is_named_and_ends_with_1(broken, problem, unreadable):
    facts = json.loads(consult("--json", broken=[broken], code=1))
    assert any(line.startswith(problem) and broken in line for line in facts["problems"])
    assert unreadable <= {name for name, works in facts["formats"].items() if not works}
    if broken == "h5py":
        assert facts["formats"]["geotiff"] and facts["self_test"]
    else:
        assert facts["self_test"] is None


def test_every_format_is_tried():
    assert set(doctor.PROBES) == set(io.FORMATS)


def test_the_extras_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, packages in doctor.EXTRAS.items():
        required = [r.split(">=")[0] for r in extras["optional-dependencies"][name]]
        brought = {i for r in required for i in IMPORTED.get(r, (r,))}
        assert brought == set(packages), name
    everything = extras["optional-dependencies"]["all"][0]
    assert everything == f"hydiff[{','.join(doctor.EXTRAS)}]"
