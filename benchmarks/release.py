"""Build sdist and wheel, and try the wheel as somebody who installs it would.

    python benchmarks/release.py

Writes dist/.  The wheel is installed from the pinned versions into an empty environment, outside
the source tree; there `hydiff` says its version, describes the bundled scene and fills a damaged
one.  The sdist must hold what builds the same wheel.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

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
"""


def run(*command: str, cwd: Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True)


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
        run(sys.executable, "-m", "venv", str(place / "venv"))
        python = str(place / "venv" / "bin" / "python")
        constraints = str(ROOT / "constraints.txt")
        run(python, "-m", "pip", "install", "-qq", "-c", constraints, str(wheel))
        run(str(place / "venv" / "bin" / "hydiff"), "--version", cwd=place)
        run(python, "-c", TRIAL, cwd=place)
    print(
        *(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)), sep="\n"
    )


if __name__ == "__main__":
    main()
