"""What is installed is pinned, hashed, and its licence is listed."""

import re

from conftest import ROOT


def pinned(name: str) -> dict[str, str]:
    """Package -> version, of a file with lines `name==version …`."""
    found = re.findall(r"^([\w.-]+)==([\w.+!]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {package.lower().replace("_", "-"): version for package, version in found}


def test_the_hashed_list_is_the_tested_one() -> None:
    ours, hashed = pinned("constraints.txt"), pinned("requirements-test.txt")
    assert ours.keys() - hashed.keys() <= {"torch", "triton"}
    assert {name: hashed[name] for name in ours.keys() & hashed.keys()}.items() <= ours.items()
    lines = (ROOT / "requirements-test.txt").read_text().splitlines()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}$", line) for line in lines if "==" in line)


def test_every_licence_is_listed() -> None:
    text = (ROOT / "docs" / "licences.md").read_text()
    rows = re.findall(r"^\| ([\w.-]+) \| (\d[\w.+!]*) \| (.+) \|$", text, re.MULTILINE)
    assert [(name, version) for name, version, _ in rows] == [
        tuple(line.split("=="))
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    assert not [name for name, _, licence in rows if licence.startswith("not ")]
