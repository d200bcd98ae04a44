"""Laws of going on after an interruption: the same bytes, or a clear refusal."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import hydiff
from conftest import PEERS
from hydiff.errors import BadValue, CubeFormatError, OutputError
from hydiff.learn import checkpoint
from hydiff.learn.checkpoint import Checkpoint, fingerprint, history_of
from hydiff.result import Step

SMALL = {"channels": 4, "scales": 2, "steps": 5, "device": "cpu", "seed": 3}
LEARNED = ["hydiff-ei", "ei", "robust-ei"]
# their last step is the estimate: nothing comes after it
LAST = {name: {**settings, "steps": 4} for name, settings in PEERS.items()}


class Interrupted(Exception):
    pass


def interrupt_at(done):
    def progress(step):
        if step.done == done:
            raise Interrupted

    return progress


@pytest.fixture
def every_step(monkeypatch):
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)


@pytest.fixture
def cube(tiny):
    return tiny[:4, :14, :12]


@pytest.fixture
def observed(stripes):
    return stripes[:14, :12]


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
@pytest.mark.parametrize("method", LEARNED)
def test_an_interrupted_run_ends_with_the_same_bytes(
    cube, observed, method, sigma_y, tmp_path, every_step
):
    path = tmp_path / "state.safetensors"
    options = SMALL | {"method": method, "sigma_y": sigma_y, "hold_back": 0.1}
    whole = hydiff.fill(cube, observed, **options)
    for done in (2, 4):  # twice
        with pytest.raises(Interrupted):
            hydiff.fill(
                cube,
                observed,
                **options,
                checkpoint=path,
                resume=True,
                progress=interrupt_at(done),
            )
        assert path.exists()
    later = []
    result = hydiff.fill(
        cube, observed, **options, checkpoint=path, resume=True, progress=later.append
    )
    assert [step.done for step in later] == [5, 6]
    assert result.raw.tobytes() == whole.raw.tobytes()
    assert result.values.tobytes() == whole.values.tobytes()
    assert len(result.history) == len(whole.history) == 6
    for one, other in zip(result.history, whole.history, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"} == {
            k: v for k, v in other.items() if k != "seconds"
        }


@pytest.mark.parametrize("eps0", ["fresh", "none"])
def test_the_chain_is_kept_too(cube, observed, eps0, tmp_path, every_step):
    """These readings look at x_t, which the default does not."""
    options = SMALL | {"method": "hydiff-ei", "eps0": eps0, "checkpoint": tmp_path / "state"}
    whole = hydiff.fill(cube, observed, **options)
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(4))
    result = hydiff.fill(cube, observed, **options, resume=True)
    assert result.raw.tobytes() == whole.raw.tobytes()


@pytest.mark.parametrize("method", LEARNED)
def test_a_run_interrupted_after_its_last_step_only_finishes(
    cube, observed, method, tmp_path, every_step
):
    options = SMALL | {"method": method, "checkpoint": tmp_path / "state"}
    whole = hydiff.fill(cube, observed, **options)
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(5))
    later = []
    result = hydiff.fill(cube, observed, **options, resume=True, progress=later.append)
    assert [step.done for step in later] == [6]
    assert result.raw.tobytes() == whole.raw.tobytes()


@pytest.mark.parametrize("method", LAST)
def test_a_run_interrupted_at_its_last_step_takes_that_step_again(
    cube, observed, method, tmp_path, every_step
):
    options = LAST[method] | {"method": method, "device": "cpu", "checkpoint": tmp_path / "state"}
    whole = hydiff.fill(cube, observed, **options)
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(4))
    later = []
    result = hydiff.fill(cube, observed, **options, resume=True, progress=later.append)
    assert [step.done for step in later] == [4]
    assert result.raw.tobytes() == whole.raw.tobytes()
    assert len(result.history) == len(whole.history) == 4


def test_a_checkpoint_after_the_last_step_is_refused_in_words(cube, observed, tmp_path, every_step):
    """It is left by a method that ends before its `Step.total`; the gaps are no estimate."""
    path, steps = tmp_path / "state", []
    options = LAST["dhp"] | {"method": "dhp", "device": "cpu", "checkpoint": path}

    def interrupt_at_the_end(step):
        steps.append(step)
        interrupt_at(4)(step)

    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at_the_end)
    owner, tensors = Checkpoint(path, "")._content()
    Checkpoint(path, owner).save(steps[-1].state(), [*history_of(tensors), {"seconds": 1.0}])
    with pytest.raises(BadValue, match="after the last step") as error:
        hydiff.fill(cube, observed, **options, resume=True)
    assert "remove it and start again" in str(error.value) and path.exists()
    assert np.isfinite(hydiff.fill(cube, observed, **options).raw).all()  # from the start


CHILD = """
import sys, time
import numpy as np, torch
import hydiff
from hydiff.learn import checkpoint
checkpoint.INTERVAL = 0.0
torch.set_num_threads(int(sys.argv[3]))
given = np.load(sys.argv[1])
hydiff.fill(
    given["cube"], given["observed"], method="hydiff-ei", sigma_y=0.05, steps=30,
    channels=4, scales=2, device="cpu", seed=3, checkpoint=sys.argv[2],
    progress=lambda step: time.sleep(0.02 if step.done < 4 else 2),  # until it is killed
)
"""


def test_a_killed_process_goes_on_with_the_same_bytes(cube, observed, tmp_path):
    path, given = tmp_path / "state", tmp_path / "given.npz"
    np.savez(given, cube=cube, observed=observed)
    threads = str(torch.get_num_threads())
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(given), str(path), threads])
    try:
        for _ in range(6000):
            if path.exists() or child.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        assert child.wait() == -signal.SIGKILL  # it was still running
    options = SMALL | {"method": "hydiff-ei", "sigma_y": 0.05, "steps": 30}
    later = []
    result = hydiff.fill(
        cube, observed, **options, checkpoint=path, resume=True, progress=later.append
    )
    assert 1 < len(later) < 31 and len(result.history) == 31  # went on, from step 1 at least
    whole = hydiff.fill(cube, observed, **options)
    assert result.raw.tobytes() == whole.raw.tobytes()
    assert not path.exists()


def test_the_file_is_gone_at_the_end_and_nothing_else_is_left(cube, observed, tmp_path, every_step):
    path, seen = tmp_path / "state", []
    options = SMALL | {"method": "ei", "checkpoint": path}
    hydiff.fill(cube, observed, **options, progress=lambda step: seen.append(path.exists()))
    assert all(seen) and not list(tmp_path.iterdir())


def test_nothing_is_written_before_the_interval_is_over(cube, observed, tmp_path):
    path, seen = tmp_path / "state", []
    options = SMALL | {"method": "ei", "checkpoint": path}
    hydiff.fill(cube, observed, **options, progress=lambda step: seen.append(path.exists()))
    assert not any(seen)


def test_without_resume_a_run_starts_again(cube, observed, tmp_path, every_step):
    options = SMALL | {"method": "ei", "checkpoint": tmp_path / "state"}
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(4))
    steps = []
    hydiff.fill(cube, observed, **options, progress=steps.append)
    assert [step.done for step in steps] == list(range(1, 7))


def test_resume_without_a_checkpoint_starts_at_the_beginning(cube, observed, tmp_path):
    steps = []
    options = SMALL | {"method": "ei", "checkpoint": tmp_path / "state", "resume": True}
    hydiff.fill(cube, observed, **options, progress=steps.append)
    assert len(steps) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"lr": 0.02},
        {"steps": 9},
        {"method": "robust-ei"},
        {"sigma_y": 0.1},
        {"cube": 1},
        {"observed": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_checkpoint_of_another_run_is_refused(cube, observed, change, tmp_path, every_step):
    path = tmp_path / "state"
    options = SMALL | {"method": "ei", "checkpoint": path}
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(4))
    before = path.read_bytes()
    if "cube" in change:
        cube = cube.copy()
        cube[0, 0, 0] += 1e-3
    if "observed" in change:
        observed = observed.copy()
        observed[0, 0] = False
    change = {k: v for k, v in change.items() if k not in ("cube", "observed")}
    with pytest.raises(BadValue, match="belongs to another input, method, setting or seed"):
        hydiff.fill(cube, observed, **options | change, resume=True)
    assert path.read_bytes() == before  # and kept


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut short"])
def test_a_damaged_checkpoint_is_refused_in_words(cube, observed, damage, tmp_path, every_step):
    path = tmp_path / "state"
    options = SMALL | {"method": "ei", "checkpoint": path}
    with pytest.raises(Interrupted):
        hydiff.fill(cube, observed, **options, progress=interrupt_at(2))
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "garbage": b"\xff" * 500, "cut short": data[:-50]}[damage])
    with pytest.raises(CubeFormatError, match="no readable checkpoint") as error:
        hydiff.fill(cube, observed, **options, resume=True)
    assert "remove it and start again" in str(error.value) and "\n" not in str(error.value)


def test_a_folder_is_no_checkpoint(cube, observed, tmp_path):
    with pytest.raises(CubeFormatError, match="no readable checkpoint"):
        hydiff.fill(cube, observed, **SMALL, method="ei", checkpoint=tmp_path, resume=True)


# Its parts


def step(value=1.0, **log):
    return Step(1, 2, None, log, lambda: {"w": torch.full((2,), value)})


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path):
    keep = Checkpoint(tmp_path / "state", "me")
    keep.save(step().state(), [{"data": 1.0}])
    before = keep.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))  # as on a full disk
    try:
        with pytest.raises(OutputError, match="cannot write"):
            keep.save(step(2.0).state(), [{"data": 1.0}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert keep.path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_what_is_saved_is_loaded(tmp_path):
    keep = Checkpoint(tmp_path / "state", "me")
    assert keep.load() is None
    history = [{"data": 1.0, "seconds": 0.1}, {"data": torch.tensor(0.5), "seconds": 0.2}]
    keep.save(step().state(), history)
    tensors = keep.load()
    assert torch.equal(tensors["w"], torch.ones(2))
    assert history_of(tensors) == [{"data": 1.0, "seconds": 0.1}, {"data": 0.5, "seconds": 0.2}]


def test_a_step_without_a_state_is_not_kept(tmp_path, every_step):
    keep = Checkpoint(tmp_path / "state", "me")
    keep.offer(Step(1, 2, None), [{"seconds": 0.1}])
    assert not keep.path.exists()


def test_the_interval_is_kept(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    keep, saved = Checkpoint(tmp_path / "state", "me", saved=now), []
    monkeypatch.setattr(keep, "save", lambda state, history: saved.append(now))
    for _ in range(100):
        keep.offer(step(), [{}])
        now += 1
    assert saved == [130.0, 160.0, 190.0]


def test_the_fingerprint_tells_values_types_shapes_and_settings_apart():
    a = np.arange(6.0)
    different = [
        fingerprint(a, "ei", {"lr": 0.1}),
        fingerprint(a + 1, "ei", {"lr": 0.1}),
        fingerprint(a.reshape(2, 3), "ei", {"lr": 0.1}),
        fingerprint(a.view(np.int64), "ei", {"lr": 0.1}),
        fingerprint(a, "ei", {"lr": 0.2}),
        fingerprint(a, "hydiff-ei", {"lr": 0.1}),
    ]
    assert len(set(different)) == len(different)
    assert fingerprint(a, {"a": 1, "b": 2}) == fingerprint(a.copy(), {"b": 2, "a": 1})
    twice = np.repeat(a, 2)[::2]
    assert fingerprint(twice) == fingerprint(a)  # whatever its layout in memory
