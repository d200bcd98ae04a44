"""Files that lead elsewhere are read alone or refused: no other file, no host."""

from __future__ import annotations

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.vrt import WarpedVRT

import command
import leading
from hydiff import io
from hydiff.errors import HydiffError
from hydiff.gaps import describe
from sources import tree

READ = {"overviews_are_a_vrt", "directory"}  # what leads elsewhere is not looked at
MAYBE = {"erdas_of_another"}  # a name of an image that is only compared


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A host, and who has called there."""
    calls: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                try:
                    connection, place = server.accept()
                except TimeoutError:
                    continue
                calls.append(str(place))
                connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", calls
        finally:
            over.set()
            thread.join()


def use(path: Path, out: Path) -> None:
    """Everything that `info`, `mask`, `convert` and `fill` ask of a file."""
    cube = io.read(path)
    describe.lines(describe.facts(cube))
    values = np.array(cube.values)
    values[:, 0, 0] = 5
    io.write(replace(cube, values=values), out / f"{path.parent.name}-{path.stem}.tif")
    io.write(replace(cube, path=None), out / f"{path.parent.name}-{path.stem}-new.tif")


def test_nothing_else_is_read_written_or_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    with listening() as (host, calls):
        files = leading.corpus(tmp_path / "in", host)
        led = tmp_path / "in" / leading.LED
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in led.iterdir()}
        for path in files:
            monkeypatch.chdir(path.parent)
            try:
                use(Path(path.name), tmp_path / "out")  # as on a command line
                assert path.parent.name in READ | MAYBE, path
            except HydiffError as error:
                assert path.parent.name not in READ, error
                assert "\n" not in str(error)
                assert path.stem.split(".")[0] in str(error)
    assert calls == []
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in led.iterdir()} == before
    for path in (tmp_path / "out").glob("*.tif"):
        with rasterio.open(path) as dataset:
            assert dataset.read(1)[3, 3] == 10  # its own value, not that of the other image


PROBE = """
import os, sys
from pathlib import Path
sys.path[:0] = {paths!r}
import test_leading, leading
out = Path({out!r})
test_leading.use(leading.image(out / "warm.tif"), out)
files = [Path(line) for line in Path({files!r}).read_text().splitlines()]
for path in files:
    try:
        open(f"/marker/{{path.parent.name}}")
    except OSError:
        pass
    try:
        test_leading.use(path, out)
    except test_leading.HydiffError:
        pass
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_system_sees_no_other_file_and_no_socket(tmp_path: Path) -> None:
    """What GDAL opens raises no audit event of Python: only the system knows."""
    out, work = tmp_path / "out", tmp_path / "tmp"
    out.mkdir()
    work.mkdir()
    files = leading.corpus(tmp_path / "in")
    (tmp_path / "files").write_text("\n".join(map(str, files)))
    probe = PROBE.format(paths=sys.path, out=str(out), files=str(tmp_path / "files"))
    calls = "open,openat,openat2,creat,socket,connect"
    trace = ["strace", "-f", "-y", "-qq", "-s", "4096", "-e", f"trace={calls}", "-o", "trace"]
    subprocess.run(
        [*trace, sys.executable, "-c", probe],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(work)},
    )
    lines = (tmp_path / "trace").read_text().splitlines()
    roots = [sys.prefix, sys.base_prefix, str(leading.__file__), "/usr", "/lib", "/proc", "/etc"]
    roots += [str(Path(io.__file__).parents[2]), str(out), str(work), "/dev/null", "/sys"]
    case, seen = "", set()
    for line in lines:
        if marker := re.search(r'"/marker/(\w+)"', line):
            case = marker[1]
            seen.add(case)
        elif case and re.search(r"\b(open|openat|openat2|creat)\(", line):
            base, name = re.search(r'\((?:[A-Z_\d]+<([^>]*)>, )?"([^"]*)"', line).groups()
            place = os.path.normpath(tmp_path / (base or "") / name)
            own = (str(tmp_path / "in" / case), *roots)
            assert place.startswith(own), f"{case}: {line}"
            written = re.search(r"O_WRONLY|O_RDWR|O_CREAT", line)
            assert not written or place.startswith((str(out), str(work), "/dev/null")), line
        elif case:
            assert not re.search(r"\b(socket|connect)\(", line), f"{case}: {line}"
    assert seen == {path.parent.name for path in files}


def test_every_raster_is_opened_through_one_door_with_one_driver() -> None:
    package = Path(io.__file__).parents[1]
    for path in package.rglob("*.py"):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called = ast.unparse(node.func)
            if called == "rasterio.open" or (called == "data.open" and "gdal" in path.read_text()):
                assert "driver" in {k.arg for k in node.keywords}, f"{path.name}:{node.lineno}"
                assert called != "rasterio.open" or path.name == "gdal.py", path


def test_a_refusal_is_one_line_and_exit_2(tmp_path: Path) -> None:
    path = leading.image(tmp_path / "x.tif")
    leading.mask_is_raw(path, "", tmp_path)
    done = command.run("fill", path, "-o", tmp_path / "y.tif")
    assert done.returncode == 2
    assert "x.tif.msk" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "y.tif").exists()


def test_warped_rasters_in_memory_stay_usable(tmp_path: Path) -> None:
    """Nothing is taken from a process that uses GDAL itself."""
    path = leading.image(tmp_path / "x.tif")
    io.read(path).load()
    with rasterio.open(path) as dataset, WarpedVRT(dataset, crs="EPSG:4326") as warped:
        assert (warped.read(1) != -1).any()
