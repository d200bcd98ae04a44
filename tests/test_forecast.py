"""How long a fill will take: what is expected grows with the work and follows finished fills."""

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hydiff
from command import run
from hydiff.cli import doctor
from hydiff.result import Meter, Step, duration, time_left
from hydiff.scale import fill_history
from hydiff.scale.forecast import Finished, History, WorkSize, forecast, table

WORK = WorkSize("smooth", 2e6, 1e4, 4e5, True, False, 1, 2, 5e8)


def finished(work: WorkSize, seconds: float, memory: float | None = None) -> Finished:
    return Finished(work, seconds, memory)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def scene(tmp_path: Path, tiny, stripes) -> Path:
    values = np.where(stripes, tiny, np.nan).astype(np.float32)
    hydiff.write(hydiff.Cube(values), tmp_path / "scene.tif")
    return tmp_path / "scene.tif"


# ── the forecast ─────────────────────────────────────────────────────────────────────────────────


def test_more_work_takes_no_less_time() -> None:
    kinds = [kind for kind in table() if kind != "yardstick"]
    assert {"smooth", "auto fast", "auto normal", "network"} <= set(kinds)
    for kind in kinds:
        for gaps in ({"lost": True}, {"lost": False, "partial": True}):
            small = replace(WORK, kind=kind, **gaps)
            large = replace(small, entries=4 * WORK.entries, pixels=4 * WORK.pixels, steps=9)
            least, most = (forecast(w, History()).seconds for w in (small, large))
            assert 0 < least <= most < math.inf


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_a_machine_is_as_fast_as_its_finished_fills_say(factor: float) -> None:
    usual = forecast(WORK, History()).seconds
    done = finished(WORK, factor * usual, 2 * WORK.memory)
    found = forecast(WORK, History((done,) * 3))
    assert found.seconds == pytest.approx(factor * usual) and found.timed == 3
    assert WORK.memory < found.memory < 2.01 * WORK.memory
    other = replace(WORK, kind="harmonic")  # of which none was timed here: as fast as the machine
    expected = factor * forecast(other, History()).seconds
    assert forecast(other, History((done,) * 3)).seconds == pytest.approx(expected)


def test_fills_alike_count_most() -> None:
    usual = forecast(WORK, History()).seconds
    larger = replace(WORK, entries=50 * WORK.entries, pixels=50 * WORK.pixels)
    alike, unlike = finished(WORK, 3 * usual), finished(larger, forecast(larger, History()).seconds)
    found = forecast(WORK, History((alike, unlike))).seconds
    assert found == pytest.approx(3 * usual, rel=0.25)
    elsewhere = replace(alike, work=replace(WORK, cores=16), seconds=9 * usual)
    assert forecast(WORK, History((alike, elsewhere))).timed == 1


def test_before_the_first_fill_a_short_measurement_says_how_fast_a_machine_is() -> None:
    slow = History(yardstick=4 * table()["yardstick"].start)
    found, usual = forecast(WORK, slow), forecast(WORK, History())
    assert found.seconds == pytest.approx(4 * usual.seconds) and found.timed == 0
    assert "roughly" in str(found) and "no fill of this kind" in str(found)


def test_a_function_is_unknown_until_one_fill_with_it_was_timed() -> None:
    own = replace(WORK, kind="mine")
    assert forecast(own, History()).seconds is None
    assert "the time is unknown" in str(forecast(own, History()))
    done = History((finished(replace(own, entries=1e6), 3.0),))
    assert forecast(own, done).seconds == pytest.approx(6.0)


def test_a_duration_has_two_of_its_unit_or_more() -> None:
    said = {
        0.0: "1 s",
        1.2: "2 s",
        119.0: "119 s",
        120.0: "2 min",
        7199.0: "120 min",
        7200.0: "2 h",
    }
    assert {seconds: duration(seconds) for seconds in said} == said


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_kept_is_read_again_and_bounded(cache: Path) -> None:
    assert fill_history.read_history() == History()
    for i in range(1, fill_history.MOST + 3):
        fill_history.keep(WORK, float(i))
    kept = fill_history.read_history().fills
    assert [f.seconds for f in kept] == [float(i) for i in range(3, fill_history.MOST + 3)]
    assert kept[0].work == WORK and [p.name for p in cache.rglob("*.json")] == [
        fill_history.history_path().name
    ]
    assert fill_history.history_path().stat().st_size < fill_history.MOST_BYTES
    assert kept[-1].memory is not None


def test_the_memory_of_a_fill_by_workers_is_not_kept(cache: Path, scene: Path) -> None:
    """That of this process says too little, also for a single worker."""
    for options in ([], ["--workers", "1"]):
        out = str(scene.with_name(f"out{len(options)}.tif"))
        done = run("fill", str(scene), "-o", out, "--method", "linear", *options)
        assert done.returncode == 0, done.stderr
        [*_, last] = fill_history.read_history().fills
        assert (last.memory is None) == bool(options)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fills": [{"work": 1}]}', '{"yardstick": -1}'])
def test_a_file_that_is_not_ours_is_no_history(cache: Path, text: str) -> None:
    path = fill_history.history_path()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert fill_history.read_history() == History()
    fill_history.keep(WORK, 2.0)
    assert len(fill_history.read_history().fills) == 1


def test_a_short_measurement_is_made_once(cache: Path) -> None:
    first = fill_history.read_or_measure()
    assert first.yardstick > 0 and fill_history.read_or_measure() == first


# ── in a fill ────────────────────────────────────────────────────────────────────────────────────


def test_a_fill_says_what_it_expects_and_the_next_one_knows(cache: Path, scene: Path) -> None:
    command = ("fill", str(scene), "--method", "smooth", "--overwrite", "-o")
    first = run(*command, str(scene.with_name("one.tif")))
    assert "no fill of this kind was timed" in first.stderr
    second = run(*command, str(scene.with_name("two.tif")))
    assert re.search(r"will take about \d+ s and \d+ MB of memory\n", second.stderr)
    assert len(fill_history.read_history().fills) == 2
    kept = fill_history.history_path().read_text()
    assert "scene" not in kept and "one.tif" not in kept
    tiles = run(*command, str(scene.with_name("tiles.tif")), "--tile", "12")
    assert tiles.returncode == 0 and "will take roughly" in tiles.stderr
    assert fill_history.read_history().fills[-1].work.kind == "smooth by tiles"


@pytest.mark.parametrize("more", [(), ("--tile", "12")])
def test_a_dry_run_says_it_too_and_keeps_nothing(cache: Path, scene: Path, more) -> None:
    dry = run("fill", str(scene), "--method", "smooth", "--dry-run", "-o", "out.tif", *more)
    assert "will take roughly" in dry.stderr and not fill_history.read_history().fills
    dry = run(
        "fill", str(scene), "--dry-run", "--json", "-o", "out.tif", "--method", "smooth", *more
    )
    found = json.loads(dry.stdout)["forecast"]
    assert found["seconds"] > 0 and found["memory"] > 0 and found["timed"] == 0


def test_a_fill_needs_no_cache_folder(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    output = scene.with_name("out.tif")
    done = run("fill", str(scene), "--method", "smooth", "-o", str(output))
    assert done.returncode == 0 and output.exists() and "will take roughly" in done.stderr


# ── how far it is ────────────────────────────────────────────────────────────────────────────────


def test_the_time_left_goes_from_the_expected_to_the_observed_rate() -> None:
    assert time_left(0.0, 0.0, None) is None and time_left(5.0, 1.0, 100.0) == 0
    assert time_left(0.0, 0.0, 60.0) == 60
    assert time_left(30.0, 0.5, None) == 30
    slow = [time_left(100 * share, share, 50.0) for share in (0.1, 0.5, 0.9)]  # takes twice as long
    assert all(left > 0 for left in slow) and slow[-1] == pytest.approx(10, rel=0.6)
    assert time_left(500.0, 0.0, 60.0) > 0  # overdue, and not done


def test_a_meter_never_goes_back() -> None:
    now = iter([0.0, 1.0, 20.0, 30.0])
    meter = Meter(expected=10.0, clock=lambda: next(now))
    meter.step(Step(0, 4, None, phase="networks"))
    early = meter.read()
    assert early.phase == "networks" and early.share == pytest.approx(0.1) and early.left == 9
    meter.step(Step(1, 4, None, phase="trials"))
    late = meter.read()
    assert late.share >= early.share and late.left > 0
    meter.step(Step(4, 4, None))
    assert meter.read()[:4] == ("filling", 4, 4, 1.0)


def test_a_meter_shows_one_step_also_where_another_thread_reports_the_next() -> None:
    class Overtaken(Step):
        """Reports the next step as soon as one of its fields is read."""

        @property
        def done(self) -> int:
            meter.step(Step(1, 4, None, phase="trials"))
            return self[0]

    meter = Meter()
    meter.step(Overtaken(90, 100, None, phase="networks"))
    assert meter.read()[:3] == ("networks", 90, 100)


def test_a_user_without_a_home_has_no_history(monkeypatch):
    """As a user of a container without a name."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(RuntimeError):
        Path.home()
    fill_history.keep(WORK, 2.0)
    assert fill_history.read_history() == History()
    assert doctor.folders()["cache"].startswith(os.devnull)
