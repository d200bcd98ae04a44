"""Licences of the packages that hydiff needs, from the installed packages: docs/licences.md.

python benchmarks/licences.py          in the environment that `make test` sets up
"""

from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAD = """# Licences

The packages in `constraints.txt` with the licences that their metadata state;
written by `python benchmarks/licences.py`.

| package | version | licence |
|---|---|---|
"""


def pinned():
    """(name, version) of every line of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line.split("==") for line in lines if "==" in line and not line.startswith("#")]


def licence(name):
    """The SPDX expression, else the classifiers, else the first line of the licence field."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return "not installed here"
    classifiers = [c for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    names = ", ".join(c.rpartition(" :: ")[2] for c in classifiers)
    field = (about.get("License") or "").strip().splitlines()
    return about.get("License-Expression") or names or (field[0][:60] if field else "not stated")


if __name__ == "__main__":
    rows = [f"| {name} | {version} | {licence(name)} |" for name, version in pinned()]
    (ROOT / "docs" / "licences.md").write_text(HEAD + "\n".join(rows) + "\n")
