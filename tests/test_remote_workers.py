"""Laws of workers: who fills a tile changes nothing, and whoever dies costs nothing but time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest
from rich.console import Console

import command
import hydiff
from hydiff.cli import terminal
from hydiff.errors import BadValue, HydiffError, UnknownName
from hydiff.gaps import mask
from hydiff.io import provenance
from hydiff.request import Request
from hydiff.result import Step
from hydiff.scale import execute, tile
from hydiff.scale.scene import Limits, limits
from hydiff.workers import crew, forks, in_turn, remote
from test_scene import Stopped, contents, damaged, made

HYDIFF = [sys.executable, "-m", "hydiff"]
TRIES = 5  # fills that may end before a busy machine lets the test disturb them
OPTIONS = ["--method", "smooth", "--set", "error_bars=true", "--tile", "16", "--seed", "5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A scene of a dozen tiles or more, and its fill by one process."""
    folder, rng = tmp_path_factory.mktemp("cluster"), np.random.default_rng(0)
    shape = (5, 52, 66)
    observed = mask.make_mask("stripes", shape, 0.15, rng)
    hydiff.write(damaged(made(shape, rng), observed), folder / "in.bsq")
    plain = command.run("fill", "in.bsq", "-o", "plain.bsq", *OPTIONS, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    return folder


def start(folder, output, *more, env=None):
    line = [*HYDIFF, "fill", "in.bsq", "-o", output, *OPTIONS, *more]
    with (folder / f"{output}.log").open("w") as log:
        return subprocess.Popen(
            line,
            cwd=folder,
            env=env,
            stderr=log,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # if it is ignored here
        )


def fill(folder, output, *more, env=None):
    code = start(folder, output, *more, env=env).wait()
    log = (folder / f"{output}.log").read_text()
    assert code == 0, log
    return log


def filled_alike(folder, output):
    one, two = contents(folder / "plain.bsq"), contents(folder / output)
    return len(one) == 7 and list(one.values()) == list(two.values())


class TooLate(Exception):
    """The fill ended before anything could be done to it."""


def wait_for_tiles(run, folder, output, count):
    work = provenance.tiles_path(folder / output)
    while len(list(work.glob("tile-*.json"))) < count:
        if run.poll() is not None:
            raise TooLate
        time.sleep(0.005)


def disturbed(disturb, folder, output, *more):
    """Start a fill, `disturb` it amid its tiles, and return its exit code.

    On a busy machine it may end before that; then another one is started.
    """
    for _ in range(TRIES):
        run = start(folder, output, *more)
        try:
            disturb(run)
        except (TooLate, psutil.NoSuchProcess, IndexError):
            assert run.wait() == 0, (folder / f"{output}.log").read_text()
            for path in folder.glob(f"{Path(output).stem}.*"):  # with header and companions
                path.unlink()
        else:
            return run.wait()
    pytest.fail(f"{TRIES} fills ended before they could be disturbed")


@contextmanager
def started(*lines, folder):
    """Processes of Dask's command line, which end with the block."""
    line = [sys.executable, "-m"]
    made = [
        subprocess.Popen(
            [*line, f"distributed.cli.{kind}", *options], stderr=subprocess.DEVNULL, cwd=folder
        )
        for kind, *options in lines
    ]
    yield made
    for process in reversed(made):
        process.terminate()
        process.wait()


def address_in(file):
    while not file.exists() or not file.read_text():
        time.sleep(0.05)
    return json.loads(file.read_text())["address"]


@pytest.fixture(scope="module")
def address(folder):
    """A scheduler and two workers on loopback, started by hand."""
    common = ["--scheduler-file", str(folder / "scheduler.json")]
    local, alone = ["--host", "127.0.0.1"], ["--no-nanny", "--no-dashboard"]
    with started(
        ["dask_scheduler", *local, "--port", "0", "--no-dashboard", *common],
        *(["dask_worker", *local, "--nthreads", "1", *alone, *common] for _ in "ab"),
        folder=folder,
    ) as made:
        yield address_in(folder / "scheduler.json"), made


# ── many workers ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", ["1", "3"])
def test_children_give_the_same_bytes_without_dask(folder, tmp_path, workers):
    """Any number of them; Dask, which is for clusters, need not be there."""
    for name in ("dask", "distributed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not installed')")
    search = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    fill(folder, f"{workers}.bsq", "--workers", workers, env=os.environ | search)
    assert filled_alike(folder, f"{workers}.bsq")


def test_a_killed_child_costs_nothing_but_time(folder):
    """Each of the two, amid the tiles."""

    def kill_children(run):
        for count, child in ((1, 0), (3, 1)):
            wait_for_tiles(run, folder, "child.bsq", count)
            children = psutil.Process(run.pid).children()
            (children[0].children() if forks.possible else children)[child].kill()

    code = disturbed(kill_children, folder, "child.bsq", "--workers", "2")
    assert code == 0, (folder / "child.bsq.log").read_text()
    assert filled_alike(folder, "child.bsq")


def test_a_killed_worker_costs_nothing_but_time(folder, address):
    def kill_worker(run):
        wait_for_tiles(run, folder, "worker.bsq", 2)
        address[1][1].kill()  # nobody starts it again: the other has to do its tiles

    code = disturbed(kill_worker, folder, "worker.bsq", "--scheduler", address[0])
    assert code == 0, (folder / "worker.bsq.log").read_text()
    assert filled_alike(folder, "worker.bsq")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_ended_driver_is_resumed_to_the_same_bytes(folder, address, sent):
    """Killed, or by Ctrl-C, which a terminal sends to its workers, too."""
    output, code = f"{sent.name}.bsq", {signal.SIGKILL: -sent, signal.SIGINT: 130}[sent]
    children = []

    def end_driver(run):
        wait_for_tiles(run, folder, output, 1)
        children[:] = psutil.Process(run.pid).children(recursive=True)
        for process in (run, *children) if sent == signal.SIGINT else (run,):
            process.send_signal(sent)
        if run.wait() == 0:
            raise TooLate

    assert disturbed(end_driver, folder, output, "--workers", "1") == code
    assert not (folder / output).exists()
    log = (folder / f"{output}.log").read_text()
    assert ("--resume goes on" in log) == (sent == signal.SIGINT) and "Traceback" not in log
    psutil.wait_procs(children, timeout=20)
    assert not any(p.is_running() and p.status() != "zombie" for p in children)  # none goes on
    fill(folder, output, "--scheduler", address[0], "--resume")
    assert filled_alike(folder, output)
    assert not provenance.tiles_path(folder / output).exists()


def test_what_a_worker_refuses_is_refused_here(address):
    with crew(None, address[0]) as run:
        found = {o.number: o for o in run(limits, ["2GB", "two", 3], None)}
    assert found[0].value == Limits(2e9) and found[0].error is None and found[0].worker
    assert isinstance(found[1].error, BadValue) and "2GB" in str(found[1].error)
    assert isinstance(found[2].error, AttributeError)  # a bug is reported as a bug


# ── who may speak to them ────────────────────────────────────────────────────────────────────────


def keys(folder):
    """A certificate that vouches for itself, and its key, as options of Dask name them."""
    names = {"cert": folder / "cert.pem", "key": folder / "key.pem"}
    made = ["-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=hydiff"]
    made += ["-keyout", names["key"], "-out", names["cert"]]
    subprocess.run(["openssl", "req", "-x509", *made], check=True, capture_output=True)
    return {"ca-file": names["cert"]} | names


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a key with")
def test_a_scheduler_with_tls_is_joined_with_the_key_in_dasks_configuration(tmp_path, monkeypatch):
    """Scheduler and worker are started as docs/scale.md says."""
    monkeypatch.setattr(remote, "ANSWER", 1.0)
    own, key = ["--host", "127.0.0.1"], keys(tmp_path)
    tls = [text for name, path in key.items() for text in (f"--tls-{name}", str(path))]
    common = ["--scheduler-file", str(tmp_path / "tls.json"), *tls]
    with started(
        ["dask_scheduler", *own, "--protocol", "tls", "--port", "0", "--no-dashboard", *common],
        ["dask_worker", *own, "--nthreads", "1", "--no-nanny", "--no-dashboard", *common],
        folder=tmp_path,
    ):
        where = address_in(tmp_path / "tls.json")
        assert where.startswith("tls://")
        client = {f"client.{name}": str(key[name]) for name in ("cert", "key")}
        named = {"ca-file": str(key["ca-file"])} | client
        named = {f"distributed.comm.tls.{name}": path for name, path in named.items()}
        with dask.config.set(named), crew(None, where) as run:
            assert [o.value for o in run(len, ["one task"], None)] == [8]
        with pytest.raises(BadValue, match="name the key in Dask"), crew(None, where):
            pass


def test_nothing_is_imported_from_the_current_folder(folder, tmp_path):
    """Which may be a stranger's: interpreters that run a line of code look there first."""
    (tmp_path / "bin").mkdir()
    script = "from hydiff.cli import main\nif __name__ == '__main__':\n    main()\n"
    (tmp_path / "bin" / "hydiff-script").write_text(script)
    for name in ("multiprocessing", "sitecustomize", "threading", "pickle", "hydiff", "encodings"):
        (tmp_path / f"{name}.py").write_text(f"open('{name}.ran', 'w')\nraise SystemExit(9)\n")
    line = ["bin/hydiff-script", "fill", folder / "in.bsq", "-o", "out.bsq", "--workers", "1"]
    subprocess.run([sys.executable, *line, "--method", "linear"], cwd=tmp_path, check=True)
    assert (tmp_path / "out.bsq").exists() and not list(tmp_path.glob("*.ran"))


# ── the same files for all ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def task(folder, tmp_path):
    """The first tile of a scene, as a worker gets it."""
    tasks = []

    def run(work, found, at_once):
        tasks.extend(found)
        work(found[0])
        raise Stopped  # leave the folder as it is

    with pytest.raises(Stopped):
        order = Request(method="linear")
        execute.fill_file(
            folder / "in.bsq", tmp_path / "o.bsq", order, Limits(8e9, tile=16), run=run
        )
    return tasks[0]


def test_workers_that_see_other_files_refuse(task, tmp_path):
    tile.work(task)
    with pytest.raises(BadValue, match=r"does not see .*elsewhere"):
        tile.work(task._replace(work=tmp_path / "elsewhere"))
    with pytest.raises(BadValue, match=r"does not see .*none.bsq"):
        tile.work(task._replace(path=tmp_path / "none.bsq"))
    with pytest.raises(BadValue, match="another file"):
        tile.work(task._replace(glance="other"))
    with pytest.raises(BadValue, match="install the same"):
        tile.work(task._replace(version="0.0"))


def test_a_glance_tells_files_apart(tmp_path, rng):
    from hydiff.scale.ledger import glance

    content = rng.bytes(100_000)
    seen = set()
    for i, at in enumerate((None, 0, 50_000, 99_999)):
        changed = bytearray(content)
        if at is not None:
            changed[at] ^= 1
        path = tmp_path / str(i)
        path.write_bytes(changed)
        seen.add(glance(path))
        assert glance(path) == glance(path)
    (tmp_path / "longer").write_bytes(content + b"x")
    (tmp_path / "empty").write_bytes(b"")
    seen |= {glance(tmp_path / "longer"), glance(tmp_path / "empty"), glance(tmp_path)}
    assert len(seen) == 7


# ── requests ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["tcp://127.0.0.1:9", "nonsense"])
def test_a_scheduler_that_does_not_answer_is_reported_soon(where, monkeypatch):
    monkeypatch.setattr(remote, "ANSWER", 1.0)
    began = time.monotonic()
    with pytest.raises(BadValue, match="no Dask scheduler answers"), crew(None, where):
        pass
    assert time.monotonic() - began < 10


def test_requests_that_make_no_sense():
    with pytest.raises(BadValue, match="one of them"), crew(2, "tcp://127.0.0.1:9"):
        pass
    with pytest.raises(BadValue, match="1 or more"), crew(0, None):
        pass
    with crew(None, None) as run:
        assert run is None


def test_in_turn_goes_on_past_an_error():
    def work(task):
        if task == 1:
            raise UnknownName("task", "1", ())
        return 10 * task

    found = list(in_turn(work, [0, 1, 2]))
    assert [o.number for o in found] == [0, 1, 2] and [o.value for o in found] == [0, None, 20]
    assert isinstance(found[1].error, HydiffError) and found[0].error is None


def test_progress_tells_of_each_worker(monkeypatch):
    text = StringIO()
    monkeypatch.setattr(
        terminal, "err", Console(file=text, force_terminal=True, color_system=None, width=160)
    )
    with terminal.progress_bar(unit="tiles") as progress:
        for done, worker in enumerate(("anna", "ben", "anna"), start=1):
            progress(Step(done, 4, None, how=worker))
    assert "3 of 4 tiles" in text.getvalue() and "anna:2 ben:1" in text.getvalue()
