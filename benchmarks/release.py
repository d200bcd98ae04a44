"""Build sdist and wheel, and test the wheel in an empty environment.

    python benchmarks/release.py

Writes dist/.  The wheel is installed with the pinned versions into an empty environment, outside
the source tree and without extras.  There `hydiff` must print its version, describe a damaged scene
and fill it, and name the extra that a learned method needs.  The sdist must build the same wheel,
and the metadata must be valid for a package index.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NEEDED = ("hydiff/data/indian_pines.npz", "hydiff/py.typed", "hydiff/data/ATTRIBUTION.md")

TRIAL = """
import numpy as np, hydiff
cube = hydiff.sample()
values = cube.values[::20, :40, :40].astype(float)
observed = np.ones(values.shape[1:], bool)
observed[:, 18:21] = False
result = hydiff.fill(np.where(observed, values, np.nan), method="smooth")
assert np.isfinite(result.values).all()
assert (result.values[:, observed] == values[:, observed]).all()
print("filled", int(result.filled.sum()), "entries")
np.save("damaged.npy", np.where(observed, values, np.nan))
"""
LEARN = 'pip install "hydiff[learn]"'
APART = ("pip", "setuptools")  # packages of an empty environment, which do not count


def run(*command: str, cwd: Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True)


def refused(*command: str, cwd: Path) -> None:
    """A command that ends with 2 and one line that names the extra it needs."""
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and LEARN in said and "Traceback" not in said, said
    print(said)


def check_metadata(wheel: Path) -> None:
    """What an index checks when a file is uploaded."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        found = Metadata.from_email(archive.read(name), validate=True)
    assert found.description and found.description_content_type == "text/markdown"
    assert found.license_expression and found.summary and "\n" not in found.summary
    print(f"metadata {found.metadata_version}: extras {', '.join(found.provides_extra or [])}")


def taken(venv: Path) -> str:
    """How many packages an environment has got, and the room that they take."""
    packages = Path(next(venv.glob("lib/python*/site-packages")))
    names = [p.name.partition("-")[0] for p in packages.glob("*.dist-info")]
    size = sum(
        p.stat().st_size
        for p in packages.rglob("*")
        if p.is_file() and p.relative_to(packages).parts[0].partition("-")[0] not in APART
    )
    return f"{len(set(names) - set(APART))} packages, {size / 1e6:.0f} MB"


def try_wheel(wheel: Path, place: Path) -> None:
    """As somebody who installs it would, without any extra."""
    run(sys.executable, "-m", "venv", str(place / "venv"))
    python, command = (str(place / "venv" / "bin" / name) for name in ("python", "hydiff"))
    constraints = str(ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "-qq", "-c", constraints, str(wheel))
    print(f"pip install hydiff: {taken(place / 'venv')}")
    run(python, "-c", "import importlib.util as i; assert i.find_spec('torch') is None", cwd=place)
    run(command, "--version", cwd=place)
    run(python, "-c", TRIAL, cwd=place)
    run(command, "info", "damaged.npy", cwd=place)
    run(command, "fill", "damaged.npy", "-o", "smooth.tif", "--method", "smooth", cwd=place)
    run(command, "fill", "damaged.npy", "-o", "auto.tif", cwd=place)
    refused(command, "fill", "damaged.npy", "-o", "x.tif", "--method", "hydiff-ei", cwd=place)


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("hydiff/")}


def main() -> None:
    for old in DIST.glob("hydiff-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), ".")
    [wheel], [sdist] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    missing = [name for name in NEEDED if name not in contents(wheel)]
    assert not missing, f"the wheel lacks {missing}"
    check_metadata(wheel)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        [tree] = (p for p in place.iterdir() if p.is_dir())
        run(
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            folder,
            str(tree),
        )
        [again] = place.glob("*.whl")
        assert contents(again) == contents(wheel), "sdist and source tree build different wheels"
        try_wheel(wheel, place)
    print(
        *(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)), sep="\n"
    )


if __name__ == "__main__":
    main()
