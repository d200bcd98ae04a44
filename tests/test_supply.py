"""What is installed is pinned, hashed, and its licence is listed."""

import functools
import json
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

import pytest

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


def test_the_licences_are_those_of_the_installed_packages() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import licences
    finally:
        sys.path.pop(0)
    listed = (ROOT / "docs" / "licences.md").read_text().splitlines()
    here = [(n, v) for n, v in licences.pinned() if licences.licence(n) != "not installed here"]
    same = [(n, v) for n, v in here if version(n) == v]
    assert len(same) > 20
    wrong = [n for n, v in same if f"| {n} | {v} | {licences.licence(n)} |" not in listed]
    assert not wrong, "run python benchmarks/licences.py"


def audit(service: str) -> tuple[int, str]:
    script = [sys.executable, str(ROOT / "benchmarks" / "audit.py"), service]
    done = subprocess.run(script, capture_output=True, text=True)
    return done.returncode, done.stdout


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_the_audit_tells_flaws_and_what_it_could_not_ask(tmp_path) -> None:
    """Against an index of our own: no flaws, a flaw and a withdrawn one, an answer missing."""
    for name, number in pinned("constraints.txt").items():
        folder = tmp_path / name / number.partition("+")[0]
        folder.mkdir(parents=True)
        (folder / "json").write_text('{"vulnerabilities": []}')
    handler = functools.partial(Silent, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as index:
        threading.Thread(target=index.serve_forever).start()
        service = f"http://127.0.0.1:{index.server_port}"
        code, output = audit(service)
        assert code == 0 and "packages audited, 0 known flaws" in output
        reply = next(tmp_path.glob("numpy/*/json"))
        flaw = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["99.0"]}
        gone = {"id": "PYSEC-2", "withdrawn": "2026-01-01T00:00:00Z"}
        reply.write_text(json.dumps({"vulnerabilities": [flaw, gone]}))
        code, output = audit(service)
        assert code == 1 and "PYSEC-1, CVE-1; fixed in 99.0" in output and "PYSEC-2" not in output
        reply.write_text("<html>")
        code, output = audit(service)
        assert code == 3 and output.startswith("not audited: ") and len(output.splitlines()) == 1
        index.shutdown()
    assert audit(service)[0] == 3


def test_every_promise_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text().partition("## Promises")[2].partition("\n## ")[0]
    promises = text.split("\n- **")[1:]
    assert len(promises) >= 7
    for promise in promises:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", promise)
        assert named, promise
        for file, test in named:
            source = (ROOT / "tests" / file).read_text()
            assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file}::{test}"


@pytest.mark.parametrize("target", ["fuzz", "torture", "mutants", "audit"])
def test_each_campaign_is_one_command(target: str) -> None:
    done = subprocess.run(
        ["make", "-n", "-o", ".venv/.ready", target], cwd=ROOT, capture_output=True, text=True
    )
    script = re.search(r"python3? (\S+\.py)", done.stdout)
    assert script is not None and (ROOT / script[1]).is_file()
