"""What `pip install hydiff` alone can do: everything but what an extra is named for."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from hydiff import Cube, sample, write
from hydiff.methods import METHODS

BROUGHT = {"learn": ("torch", "safetensors"), "xarray": ("xarray",), "view": ("panel", "skimage")}
HIDDEN = tuple(name for names in BROUGHT.values() for name in names)
LEARN = 'pip install "hydiff[learn]"'
Run = Callable[..., subprocess.CompletedProcess[str]]
PROBE = """
import json, sys
for name in {hidden}:
    sys.modules[name] = None
sys.path.append({tests!r})
import command
for line in sys.stdin:
    done = command.run(*json.loads(line))
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clean cube and a damaged one."""
    folder = tmp_path_factory.mktemp("extras")
    values = sample().values[::20, :30, :30].astype(np.float32)
    np.save(folder / "clean.npy", values)
    values = values.copy()
    values[:, 14:16] = np.nan
    np.save(folder / "damaged.npy", values)
    return folder


@pytest.fixture(scope="module")
def without(scene: Path) -> Iterator[Run]:
    """`hydiff` in a process where nothing is installed that an extra brings, one for all."""
    probe = PROBE.format(hidden=HIDDEN, tests=str(ROOT / "tests"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": scene}
    wide = os.environ | {"COLUMNS": "500"}
    with subprocess.Popen([sys.executable, "-c", probe], env=wide, **pipes) as process:

        def run(*args: str) -> subprocess.CompletedProcess[str]:
            process.stdin.write(json.dumps(args) + "\n")
            process.stdin.flush()
            return subprocess.CompletedProcess(args, *json.loads(process.stdout.readline()))

        yield run


def refused(without: Run, *args: str) -> str:
    """The one line that a refusal is, after what may have been said of the input."""
    done = without(*args)
    assert done.returncode == 2 and not done.stdout, done.stderr
    [line] = (text for text in done.stderr.splitlines() if text.startswith("hydiff: "))
    assert done.stderr.endswith(line + "\n")
    return line


ONE_LESS = """
import sys
sys.modules[sys.argv.pop(1)] = None
from hydiff.cli import main
main()
"""


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("rasterio", ["convert", "clean.npy", "clean.tif"]),
        ("rasterio", ["info", "there.tif"]),
        ("h5py", ["info", "there.h5"]),
        ("zarr", ["convert", "clean.npy", "clean.zarr"]),
        ("matplotlib", ["fill", "damaged.npy", "-o", "of.npz", "--method", "linear", "--report"]),
    ],
)
def test_a_package_that_cannot_be_imported_is_named_not_the_file(package, words, scene, tmp_path):
    for name in ("clean.npy", "damaged.npy"):
        (tmp_path / name).write_bytes((scene / name).read_bytes())
    write(np.ones((2, 8, 8)), tmp_path / "there.tif")
    (tmp_path / "there.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    command = [sys.executable, "-c", ONE_LESS, package, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = " ".join(done.stderr.split("hydiff: ")[-1].split())
    assert last.startswith(f"{package}, which this needs, cannot be imported")
    assert last.endswith(f"pip install --force-reinstall {package}")


@pytest.mark.parametrize(
    "args",
    [
        "--help",
        "info damaged.npy",
        "mask damaged.npy -o mask.npz",
        "convert damaged.npy damaged.mat",
        "score clean.npy clean.npy",
        "fill damaged.npy -o filled.tif --method smooth --report",
        "simulate clean.npy -o simulated.npy",
    ],
    ids=lambda args: args.split()[0],
)
def test_plain_commands_do_without_the_extras(without: Run, args: str) -> None:
    done = without(*args.split())
    assert done.returncode == 0, done.stderr


def test_all_methods_are_listed_and_say_what_they_need(without: Run) -> None:
    message = json.loads(without("methods", "--json").stdout)["methods"]
    assert message.keys() == {"auto", *METHODS}
    needing = {name for name, row in message.items() if LEARN in row.get("needs", "")}
    assert needing == {name for name, method in METHODS.items() if method.needs_torch}
    text = without("methods").stdout
    assert text.count(LEARN) == len(needing)


@pytest.mark.parametrize(
    "args",
    [
        "fill damaged.npy -o x.tif --method hydiff-ei",
        "fill damaged.npy -o x.tif --method ei --set steps=3",
        "fill damaged.npy -o x.tif --method hydiff-ei --weights w.safetensors",
        "fill damaged.npy -o x.tif --device cuda",
        "fill damaged.npy -o x.tif --method prior",
        "simulate clean.npy -o x.npy --noise 0.1",
        "train damaged.npy -o x.safetensors",
        "train-prior --data . -o x.safetensors",
        "bench speed -o x --quick",
    ],
    ids=lambda args: " ".join(args.split()[0::4]),
)
def test_what_needs_torch_names_the_extra(scene: Path, without: Run, args: str) -> None:
    before = set(scene.iterdir())
    assert f"needs torch, which is not installed: {LEARN}" in refused(without, *args.split())
    assert set(scene.iterdir()) == before


@pytest.mark.parametrize("budget", ["normal", "best"])
def test_auto_without_torch_tries_the_classical_candidates_and_says_so(
    without: Run, tmp_path: Path, budget: str
) -> None:
    output = str(tmp_path / "auto.tif")
    done = without("fill", "damaged.npy", "-o", output, "--budget", budget)
    assert done.returncode == 0, done.stderr
    record = json.loads(Path(output + ".fill.json").read_text())
    recipe = record["recipe"]
    assert {c["method"] for c in recipe["candidates"]} == {"smooth"}
    assert f"torch is not installed: networks were left out ({LEARN})" in recipe["why"]
    assert any(LEARN in note for note in record["notes"])


def test_the_fast_budget_without_the_prior_tries_no_network_and_has_nothing_to_say(
    without: Run, tmp_path: Path
) -> None:
    output = str(tmp_path / "fast.tif")
    done = without("fill", "damaged.npy", "-o", output, "--budget", "fast", "--no-prior")
    assert done.returncode == 0, done.stderr
    assert LEARN not in Path(output + ".fill.json").read_text()


def test_to_xarray_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from hydiff.errors import BadValue

    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(BadValue, match=r'needs xarray.*pip install "hydiff\[xarray\]"'):
        Cube(np.zeros((2, 3, 4))).to_xarray()


def test_a_record_names_the_versions_of_what_is_installed() -> None:
    from hydiff.io.versions import versions

    assert versions("numpy", "no-such-package").keys() == {"python", "hydiff", "numpy"}


def test_the_extras_bring_what_is_hidden_here_and_all_brings_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    brought = {"skimage": "scikit-image"}
    for extra, names in BROUGHT.items():
        for name in names:
            assert any(line.startswith(brought.get(name, name)) for line in extras[extra])
            assert not any(
                line.startswith(brought.get(name, name)) for line in project["dependencies"]
            )
    assert extras["all"] == ["hydiff[learn,xarray,scene,view]"]
