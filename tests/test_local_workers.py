"""Laws of child processes: what they answer is what this process would, and none outlives it.

`submit(eval)` with an expression as what is shared runs any code there is in a child.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import hydiff
from hydiff import methods
from hydiff.auto import BUDGETS
from hydiff.auto.crew import COPIES, crew_for
from hydiff.cube import Cube
from hydiff.errors import BadValue, UnknownName
from hydiff.io import threads as own_threads
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.layout import Limits
from hydiff.workers import Outcome, blas, child, forks, local
from hydiff.workers.local import BYTES, Processes, Threads

PID = "__import__('os').getpid()"
NAP = "__import__('time').sleep(60)"


def gone(pid, seconds=10.0):
    """Whether a process ends within some time; one that only waits to be reaped has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def two():
    with Processes(2) as crew:
        yield crew


@pytest.mark.parametrize("expression", ["sum(range(9))", "__import__('numpy').eye(500) * 3"])
def test_a_child_answers_what_this_process_would(two, expression):
    two.share(expression)
    with Threads(1) as here:
        here.share(expression)
        np.testing.assert_array_equal(two.submit(eval).result(), here.submit(eval).result())
        np.testing.assert_array_equal(two.here(eval).result(), here.here(eval).result())


def test_the_work_is_done_elsewhere_with_one_thread(two):
    two.share(PID)
    assert two.submit(eval).result() in {p.pid for p in two.processes}
    two.share("__import__('os').environ['OMP_NUM_THREADS']")
    assert two.submit(eval).result() == "1"


def test_what_is_shared_is_packed_once_and_replaced_by_the_next(two):
    class Packed:
        times = 0

        def __reduce__(self):
            Packed.times += 1
            return list, ((1, 2),)

    two.share(Packed())
    assert [f.result() for f in [two.submit(len) for _ in range(8)]] == [2] * 8
    assert Packed.times == 1
    with Processes(1) as one:
        one.share([])
        for _ in range(3):
            one.submit(list.append, "here to stay").result()
        assert one.submit(len).result() == 3  # it was sent once
    two.share("abc")
    assert {f.result() for f in [two.submit(len) for _ in range(8)]} == {3}


def test_an_exception_is_raised_here_as_itself(two):
    two.share("smoth")
    with pytest.raises(UnknownName, match="did you mean 'smooth'") as raised:
        two.submit(methods.choose).result()
    with pytest.raises(UnknownName) as here:
        methods.choose("smoth")
    assert str(raised.value) == str(here.value)
    assert "in choose" in raised.value.__notes__[0]
    two.share("open('/nowhere/at/all')")
    with pytest.raises(FileNotFoundError, match="/nowhere/at/all") as missing:
        two.submit(eval).result()
    assert missing.value.errno == 2


def test_what_is_printed_does_not_get_between_the_answers(two):
    two.share("[print('a line'), __import__('os').write(1, b'bytes'), 7][-1]")
    assert two.submit(eval).result() == 7


def test_ctrl_c_while_children_start_ends_those_that_have(monkeypatch):
    children, start = [], Processes._started

    def started(crew, number):
        if number:
            raise KeyboardInterrupt
        children.append(start(crew, number))
        return children[0]

    monkeypatch.setattr(Processes, "_started", started)
    with pytest.raises(KeyboardInterrupt):
        Processes(2)
    assert children[0].poll() is not None


def test_what_cannot_be_sent_is_an_error_and_costs_no_child(two):
    two.share(3)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        two.submit(lambda shared: shared).result()
    two.share("lambda: 0")
    with pytest.raises(TypeError, match="cannot be sent back"):
        two.submit(eval).result()
    assert all(p.poll() is None for p in two.processes)


@pytest.mark.parametrize("amid", [False, True])
def test_what_a_killed_child_had_to_do_is_done_by_another(amid):
    with Processes(1) as crew:
        crew.share(PID)
        [child] = crew.processes
        assert crew.submit(eval).result() == child.pid
        if amid:  # it sleeps there the first time
            crew.share(f"{PID} if {PID} != {child.pid} else {NAP}")
            future = crew.submit(eval)
            time.sleep(0.3)
        os.kill(child.pid, signal.SIGKILL)
        pid = (future if amid else crew.submit(eval)).result(timeout=20)
        assert pid == crew.processes[0].pid and pid not in (child.pid, os.getpid())


def test_outcomes_come_as_they_finish_and_name_their_child(tmp_path):
    """The first task waits for the last: so tasks are handed out while others run."""
    last = f"__import__('pathlib').Path({str(tmp_path / 'last')!r})"
    waits = f"next(0 for _ in iter(int, 1) if {last}.exists() or __import__('time').sleep(0.01))"
    outcomes = list(local.run(2, eval, [waits, "1", "2", f"{last}.touch()"]))
    assert [o.number for o in outcomes][:2] == [1, 2] and len(outcomes) == 4
    assert {o.worker for o in outcomes} == {"0", "1"}
    assert {o.number: o.value for o in outcomes} == {0: 0, 1: 1, 2: 2, 3: None}


def test_nobody_waits_for_children_that_end_after_their_last_task():
    slow = "__import__('signal').signal(15, lambda *_: __import__('time').sleep(3))"
    [outcome] = local.run(1, eval, [f"[{slow}, {PID}][1]"])
    assert Path(f"/proc/{outcome.value}").exists() and gone(outcome.value, 20)


def test_a_task_that_ends_every_child_is_an_error_and_the_others_are_done():
    tasks = ["1", "__import__('os')._exit(7)", "2", "len(3)", "4"]
    outcomes = {o.number: o for o in local.run(2, eval, tasks)}
    assert {n: o.value for n, o in outcomes.items() if o.error is None} == {0: 1, 2: 2, 4: 4}
    assert isinstance(outcomes[1].error, BadValue)
    assert "lost at one task, the last with exit code 7" in str(outcomes[1].error)
    assert isinstance(outcomes[3].error, TypeError)  # a bug is reported as a bug


def test_as_many_children_as_memory_allows():
    for most, pids in ((1, 1), (None, 2)):
        naps = [f"[__import__('time').sleep(0.2), {PID}][1]"] * 4
        assert len({o.value for o in local.run(2, eval, naps, most)}) == pids
    assert not list(local.run(2, eval, []))


def test_children_that_are_ready_do_the_tasks_and_end_with_them():
    with local.Crew(2) as run:
        run.imports = ["json"]
        run.prepare(2)
        ready = [p.pid for p in run._ready.processes]
        pids = {o.value for o in run(eval, [PID] * 4)}
        assert pids <= set(ready)
        again = {o.value for o in run(eval, [PID])}  # others: those have ended
        assert not again & pids
        run.prepare(1)
        [idle] = run._ready.processes
    assert idle.poll() is not None


@pytest.mark.parametrize("forked", [True, False])
def test_what_a_child_cannot_load_is_the_error_of_its_tasks(monkeypatch, forked, capfd):
    """Not that workers were lost: the reason is not their memory."""
    monkeypatch.setattr(forks, "possible", forked and forks.possible)
    refusal = "hydiff.methods.devices:torch_device:qpu"
    for imports, kind, words in (
        (["json", "no_such.module"], ModuleNotFoundError, "No module named 'no_such'"),
        ([refusal], UnknownName, "unknown device 'qpu'"),
    ):
        with Processes(1, imports) as crew:
            crew.share("1 + 1")
            for _ in range(2):
                with pytest.raises(kind, match=words) as raised:
                    crew.submit(eval).result()
    assert not capfd.readouterr().err
    assert isinstance(raised.value, UnknownName)


def test_the_package_of_an_import_error_is_named_as_it_is_here(two):
    two.share("__import__('no_such.module')")
    with pytest.raises(ModuleNotFoundError) as raised:
        two.submit(eval).result()
    assert raised.value.name == "no_such"


def test_a_child_calls_what_it_is_to_load(tmp_path, monkeypatch):
    (tmp_path / "loaded.py").write_text("texts = []\ncall = texts.append")
    monkeypatch.syspath_prepend(tmp_path)
    with Processes(1, ["json", "loaded:call:a:b"]) as crew:
        crew.share("__import__('loaded').texts")
        assert crew.submit(eval).result() == ["a:b"]


@pytest.mark.skipif(not forks.possible, reason="workers are forked on Linux alone")
def test_what_workers_import_is_imported_once(tmp_path, monkeypatch):
    """By a process with a single thread, as forks must be; what is to be called, each calls."""
    (tmp_path / "noted.py").write_text(f"""
def note(text):
    open({str(tmp_path / "notes")!r}, "a").write(text + chr(10))
note("imported")
""")
    monkeypatch.syspath_prepend(tmp_path)
    with Processes(3, ["hydiff.methods.prior", "noted", "noted:note:called"]) as crew:
        crew.share("'torch' in __import__('sys').modules")
        pids = {process.pid for process in crew.processes}
        assert [crew.submit(eval).result() for _ in range(3)] == [True] * 3
        tasks = Path(f"/proc/{crew._forks.process.pid}/task")
        assert len(list(tasks.iterdir())) == 1 and len(pids) == 3
    notes = (tmp_path / "notes").read_text().split()
    assert notes.count("imported") == 1 and 1 <= notes.count("called") <= 3
    assert all(gone(pid) for pid in (*pids, crew._forks.process.pid))


@pytest.mark.skipif(not forks.possible, reason="workers are forked on Linux alone")
def test_workers_go_on_without_the_process_that_forked_them():
    with Processes(1) as crew:
        crew.share(PID)
        first = crew.submit(eval).result()
        crew._forks.process.kill()
        crew._forks.process.wait()
        assert crew.submit(eval).result() == first
        os.kill(first, signal.SIGKILL)
        assert crew.submit(eval).result(timeout=20) == crew.processes[0].pid != first


def test_where_forks_are_impossible_each_child_is_a_new_interpreter(monkeypatch):
    monkeypatch.setattr(forks, "possible", False)
    with Processes(2, ["json"]) as crew:
        assert all(isinstance(process, subprocess.Popen) for process in crew.processes)
        crew.share(PID)
        assert crew.submit(eval).result() in {process.pid for process in crew.processes}
    assert all(process.returncode is not None for process in crew.processes)


def test_threads_give_what_a_loop_gives(monkeypatch):
    """In order, a few items ahead, and the first error ends it."""
    for count in (1, 3):
        monkeypatch.setattr(own_threads, "cores", lambda count=count: count)
        taken = []
        items = (taken.append(i) or i for i in range(20))
        results = own_threads.in_threads(lambda i: 10 // (7 - i), items)
        assert [next(results) for _ in range(7)] == [10 // (7 - i) for i in range(7)]
        assert len(taken) <= 7 + 1 + count
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_a_child_has_one_core_and_no_children(two):
    for name, expected in (("io.threads.cores", 1), ("workers.local.possible", False)):
        module, function = name.rsplit(".", 1)
        two.share(f"__import__('hydiff.{module}', fromlist=['x']).{function}()")
        assert two.submit(eval).result() == expected


def test_a_request_travels_whatever_its_method(two, tmp_path):
    """Also one whose function was looked up already, and cannot."""
    (tmp_path / "mine.py").write_text("def mine(y, observed, sigma_y, settings, *, rng):\n    ...")
    for method in ("linear", "smooth", f"{tmp_path}/mine.py:mine"):
        request = Request(method=method)
        assert request.chosen is not None
        two.share(request)
        assert two.submit(Request.__getstate__).result()["method"] == method
        assert pickle.loads(pickle.dumps(request)) == request


def test_torch_is_imported_only_for_a_network(tmp_path):
    """By a worker that fills tiles, too."""
    rng = np.random.default_rng(0)
    values = rng.random((4, 40, 40)).astype(np.float32)
    values[:, :, 9:12] = np.nan
    source, seen = tmp_path / "in.bsq", []
    hydiff.write(Cube(values), source)

    def run(work, tasks, at_once):
        with Processes(1, [work.__module__]) as crew:
            crew.share(work)
            for number, task in enumerate(tasks):
                yield Outcome(number, *crew.submit(child.named, task).result())
            crew.share("'torch' in __import__('sys').modules")
            seen.append(crew.submit(eval).result())

    request = Request(method="smooth")
    execute.fill_file(source, tmp_path / "out.bsq", request, Limits(8e9, tile=24), run=run)
    assert seen == [False]


def test_nobody_else_can_speak_to_a_child(two):
    """Its pipes have no name, and it has no socket."""
    two.share("[1]")
    two.submit(eval).result()
    for process in two.processes:
        assert not psutil.Process(process.pid).net_connections("all")


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_leaving_the_block_ends_them_at_once(error):
    threads, began = threading.active_count(), time.monotonic()
    try:
        with Processes(2) as crew:
            crew.share(NAP)
            for _ in range(5):
                crew.submit(eval)
            if error is not None:
                raise error
    except (KeyboardInterrupt, ValueError):
        pass
    assert time.monotonic() - began < 20
    assert all(p.returncode is not None for p in crew.processes)
    assert threading.active_count() == threads


def test_children_stay_for_the_next_and_forget_what_was_shared(monkeypatch):
    """For a while; with work left or after an error they end at once."""
    monkeypatch.setattr(local, "IDLE", 0.2)
    with local.staying(1) as crew:
        crew.share(PID)
        first = crew.submit(eval).result()
    with local.staying(1) as again:
        assert again is crew
        assert again.submit(str).result() == "None"
        again.share(PID)
        assert again.submit(eval).result() == first
        with local.staying(1) as beside:  # while they are at work
            assert beside is not crew
    assert gone(first)  # nobody came
    with local.staying(1) as crew:
        crew.share(PID)
        second = crew.submit(eval).result()
        crew.share(NAP)
        crew.submit(eval)
    assert crew.processes[0].returncode is not None and gone(second)
    with pytest.raises(RuntimeError), local.staying(1) as crew:
        raise RuntimeError
    assert crew.processes[0].returncode is not None


def test_a_program_does_not_wait_for_children_that_stay():
    code = (
        "from hydiff.workers import local\n"
        "with local.staying(1) as crew:\n"
        "    crew.share('__import__(\"os\").getpid()')\n"
        "    print(crew.submit(eval).result())\n"
        "local.IDLE = 600"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert not ran.stderr and gone(int(ran.stdout))


@pytest.mark.parametrize("busy", [False, True])
def test_a_child_ends_with_its_parent(busy):
    code = f"""
from hydiff.workers.local import Processes
crew = Processes(2)
crew.share({PID!r})
print(*{{crew.submit(eval).result() for _ in range(20)}}, *(p.pid for p in crew.processes))
crew.share({NAP!r} if {busy} else "0")
futures = [crew.submit(eval) for _ in range(2)]
print("ready", flush=True)
__import__("time").sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        pids = {int(pid) for pid in run.stdout.readline().split()}
        assert run.stdout.readline() == "ready\n"
        assert len(pids) == 2
        run.kill()
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("killed", [False, True])
def test_a_child_removes_its_unfinished_files_when_it_is_ended(tmp_path, killed):
    """Also after the parent was killed."""
    (tmp_path / "slow.py").write_text("""
import pathlib, time
import hydiff.io
def write(target):
    with hydiff.io.staged(pathlib.Path(target)) as folder:
        (folder / "begun").touch()
        time.sleep(60)
""")
    code = f"""
import os, pathlib, signal, sys, time
sys.path.insert(0, {str(tmp_path)!r})
import slow
from hydiff.workers.local import Processes
with Processes(1) as crew:
    crew.share({str(tmp_path / "out")!r})
    crew.submit(slow.write)
    while not list(pathlib.Path({str(tmp_path)!r}).glob(".hydiff-*/begun")):
        time.sleep(0.01)
    print(crew.processes[0].pid, flush=True)
    if {killed}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == -9 * killed and not run.stderr
    assert gone(int(run.stdout))
    assert not list(tmp_path.glob(".hydiff-*"))


def test_an_interruption_is_for_the_parent_alone_from_the_start(tmp_path):
    """Even while the child imports its first module."""
    module = tmp_path / "hydiff" / "workers" / "child.py"
    module.parent.mkdir(parents=True)
    module.write_text("import os\nos.kill(os.getpid(), 2)\ndef serve(): print('served')")
    line = [sys.executable, "-c", local.START, "0", "", str(tmp_path)]
    assert subprocess.run(line, capture_output=True, check=True).stdout == b"served\n"


def test_who_may_have_children(monkeypatch):
    assert local.possible()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/usr/bin/qgis")
        assert not local.possible()
    code = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from hydiff.workers.local import possible
if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        print(possible(), pool.submit(possible).result())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]  # a worker is one of many already


# ── the default fill ─────────────────────────────────────────────────────────────────────────────


def test_a_crew_keeps_within_its_memory(monkeypatch):
    monkeypatch.setattr("hydiff.auto.crew.cores", lambda: 64)
    cube, fast = Cube(np.zeros((4, 500, 500), np.float32)), BUDGETS["fast"]
    one = COPIES * 8 * 1e6
    with crew_for(cube, fast, 4.5 * (one + BYTES)) as crew:
        assert isinstance(crew, Processes)
        assert len(crew.processes) == 3  # and this process
    for room, threads in ((3.9 * (one + BYTES), 12), (2.5 * one, 2), (0.0, 1)):
        with crew_for(cube, fast, room) as crew:
            assert isinstance(crew, Threads)
            assert crew._pool._max_workers == threads


def test_a_script_without_a_guard_fills_with_children_as_with_threads(tmp_path):
    """The script runs once, nothing of it runs in the children, and the numbers are the same."""
    script = tmp_path / "script.py"
    script.write_text("""
import sys, numpy as np, hydiff
from hydiff.auto import crew
from hydiff.workers import local
open("runs", "a").write("run\\n")
rng = np.random.default_rng(0)
cube = rng.random((12, 3)) @ np.cumsum(rng.standard_normal((3, 44 * 44)), axis=1)
cube = cube.reshape(12, 44, 44) + 0.01 * rng.standard_normal((12, 44, 44))
observed = np.ones((44, 44), bool)
observed[:, 10:13] = observed[20:24] = False
made, children = [], local.Processes
def noted(*args):
    made.append(children(*args))
    return made[-1]
local.Processes = noted
for crew.cores in (lambda: 4, lambda: 4, lambda: 1):
    crew.WORTHWHILE = 0
    found = hydiff.fill(cube, observed, budget="fast", no_prior=True)
    np.savez(f"cores{crew.cores()}.npz", values=found.values, sigma=found.sigma,
             weights=found.recipe["weights"])
[started] = made  # for both fills
assert len(started.processes) == 4 and all(p.poll() is None for p in started.processes)
""")
    subprocess.run([sys.executable, script.name], cwd=tmp_path, check=True)
    assert (tmp_path / "runs").read_text() == "run\n"
    many, one = (np.load(tmp_path / f"cores{n}.npz") for n in (4, 1))
    for name in many.files:
        np.testing.assert_allclose(many[name], one[name], rtol=1e-9)


def test_workers_that_wait_for_tiles_try_the_folds(tmp_path):
    """On many cores, with the network: the driver needs no torch, and writes the same bytes."""
    script = tmp_path / "script.py"
    script.write_text("""
import sys, pathlib, numpy as np, hydiff
from hydiff.auto import crew
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.layout import Limits
from hydiff.workers import in_turn, local
crew.WORTHWHILE, made, children = 0, [], local.Processes
def noted(*args):
    made.append(children(*args))
    return made[-1]
local.Processes = noted
rng = np.random.default_rng(0)
values = rng.random((12, 3)) @ np.cumsum(rng.standard_normal((3, 40 * 90)), axis=1)
values = values.reshape(12, 40, 90).astype(np.float32)
values[:, :, 10:13] = values[:, 20:24] = np.nan
hydiff.write(hydiff.Cube(values), "in.bsq")
def filled(name, count, run):
    crew.cores = lambda: count
    fill = execute.fill_file(pathlib.Path("in.bsq"), pathlib.Path(name), Request(budget="fast"),
                             Limits(60e9, tile=40, processes=3), run=run)
    return pathlib.Path(name).read_bytes(), fill.record["recipe"]
with local.Crew(3) as run:
    by_workers = filled("a.bsq", 4, run)
assert len(made) == 1 and "torch" not in sys.modules
by_threads = filled("b.bsq", 1, in_turn)
assert by_workers[0] == by_threads[0] and "torch" in sys.modules
assert by_workers[1]["candidates"][-1]["name"] == "prior"
assert by_workers[1]["weights"] == by_threads[1]["weights"]
""")
    command = [sys.executable, script.name]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)


def test_threads_have_one_thread_of_linear_algebra_each_and_the_former_number_comes_back():
    np.ones((2, 2)) @ np.ones((2, 2))
    found = blas.libraries()
    before = [library.get() for library in found]
    try:
        for library in found:
            library.set(2)
        with Threads(2):
            with Threads(1):  # of another fill, in another thread
                assert [library.get() for library in found] == [1] * len(found)
            assert [library.get() for library in found] == [1] * len(found)
        assert [library.get() for library in found] == [2] * len(found)
    finally:
        for library, count in zip(found, before, strict=True):
            library.set(count)
    if "openblas" in np.show_config("dicts")["Build Dependencies"]["blas"]["name"]:
        assert found
