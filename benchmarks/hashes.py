"""requirements-test.txt: the packages that the tests need, with hashes, from a report of pip.

pip install --dry-run --ignore-installed --report REPORT -c constraints.txt ".[dev]"
python benchmarks/hashes.py REPORT
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
APART = (
    "hydiff",
    "torch",
    "triton",
)  # left out: hydiff itself, and packages with builds for each device
HEAD = """\
# What `make test` installs on CPython 3.11, Linux x86-64, with the hash of each wheel; torch and
# triton come apart, in the build for your device.  Made by `python benchmarks/hashes.py`.
# pip install --require-hashes --no-deps -r requirements-test.txt
"""


def pinned(report):
    """`name==version --hash=…` of every wheel in a report."""
    for entry in report["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        if name.lower() not in APART:
            digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
            yield f"{name.lower()}=={version} --hash=sha256:{digest}"


if __name__ == "__main__":
    lines = sorted(pinned(json.loads(Path(sys.argv[1]).read_text())))
    (ROOT / "requirements-test.txt").write_text(HEAD + "\n".join(lines) + "\n")
