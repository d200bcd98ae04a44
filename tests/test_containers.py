"""The description of the image, as far as it can be checked without building one."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import hydiff
from conftest import ROOT


def steps() -> list[tuple[str, list[str]]]:
    """Instruction and words of each line of the Containerfile."""
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, words) for name, *words in lines]


def test_what_the_image_copies_builds_hydiff_and_its_entry_point(tmp_path: Path) -> None:
    for name, (*sources, _) in [step for step in steps() if step[0] == "COPY"]:
        for source in map(ROOT.joinpath, sources):
            assert name and source.exists()
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tmp_path / source.name)
    # the same back end that pip calls, without the network
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob(f"hydiff-{hydiff.__version__}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        scripts = archive.read(f"hydiff-{hydiff.__version__}.dist-info/entry_points.txt").decode()
    assert "hydiff = hydiff.cli:main" in scripts
    assert ("ENTRYPOINT", ['["hydiff"]']) in steps()


def test_the_user_is_not_root_and_the_extras_exist() -> None:
    names = [name for name, _ in steps()]
    assert dict(steps())["USER"] == ["hydiff"] and names.index("RUN") < names.index("USER")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "learn" in extras["optional-dependencies"]  # EXTRAS=learn, as the comment says
