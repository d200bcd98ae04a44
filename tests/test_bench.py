"""The runs of the benchmark: rows that survive a kill, and what stops it early."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

import hydiff
from conftest import DATA, ROOT
from hydiff import bench
from hydiff.bench import (
    cell_rows,
    cells,
    records,
    scenes,
    suites,
    tables,
    tuning,
)
from hydiff.bench.cells import Cell
from hydiff.cli import app
from hydiff.errors import BadValue, CubeFormatError, HydiffError, UnknownName

QUICK_CHOICE = bench.choice_of({}, quick=True)


def command(*arguments, folder, wait=True):
    line = [sys.executable, "-m", "hydiff", "bench", *arguments, "-o", str(folder)]
    if not wait:
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return subprocess.run(line, capture_output=True, text=True, check=False)


def inside(*arguments, folder):
    """The same command inside this process."""
    return CliRunner().invoke(app, ["bench", *arguments, "-o", str(folder)])


def test_unknown_scenes_and_paths_get_a_clear_line(tmp_path):
    with pytest.raises(UnknownName, match="HYDIFF_DATA"):
        scenes.load("atlantis")
    with pytest.raises(CubeFormatError, match="no such file"):
        scenes.distinct({"mine": tmp_path / "absent.tif"})
    with pytest.raises(UnknownName, match="did you mean 'smooth'"):
        bench.choice_of({}, methods=["smoth"])
    with pytest.raises(UnknownName, match="`scene=atlantis=FILE`"):
        bench.choice_of({}, names=["atlantis"])
    with pytest.raises(hydiff.HydiffError, match="strips"):
        bench.choice_of({}, masks=["strips"])
    with pytest.raises(BadValue, match="scene of its own"):
        bench.choice_of({}, names=[scenes.BUNDLED], quick=True)
    with pytest.raises(BadValue, match="best has no run of bandmean; it has idw, harm"):
        bench.run("best", tmp_path / "none", bench.choice_of({}, methods=["bandmean"], quick=True))
    with pytest.raises(BadValue, match="leave some out"):
        bench.run("noisy", tmp_path / "none", bench.choice_of({}, noise=["0.15"], quick=True))
    assert not (tmp_path / "none").exists()


def test_a_line_says_what_to_type_for_a_file_that_is_no_scene_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cube = np.random.default_rng(0).random((5, 12, 14))
    savemat("both.mat", {"hs": cube.transpose(1, 2, 0), "ms": cube[:2].transpose(1, 2, 0)})
    cube[:, 3:5, 4] = np.nan
    hydiff.write(hydiff.Cube(cube), "gaps.tif")
    lines = {
        "both.mat": "expected a known name, or name=path of a cube: --scene both=both.mat",
        "m=both.mat": "a file of its own: hydiff convert both.mat scene.npz --var hs",
        "m=gaps.tif": "10 entries are missing, but a scene of the benchmark is the truth",
    }
    for scene, line in lines.items():
        found = inside("best", "--scene", scene, "--method", "smooth", folder=tmp_path / "out")
        assert isinstance(found.exception, HydiffError) and line in str(found.exception), scene


def test_what_is_printed_names_no_empty_settings_and_says_when_no_cell_was_run(tmp_path):
    choice = ("best", "--quick", "--method", "idw", "--mask", "stripes", "--sigma", "0")
    first, again = (inside(*choice, folder=tmp_path) for _ in range(2))
    assert re.search(r"^1/1 idw: .*: MPSNR \S+ dB \(all\), \S+ s$", first.stderr, re.M)
    assert "no cell was run" in again.stderr and "no cell was run" not in first.stderr
    assert "promised" not in (tmp_path / "quick" / "best.md").read_text()  # auto was not run


# Rows on disk


def test_rows_come_back_and_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "rows.csv"
    columns = ("a", "b")
    records.append(path, {"a": "x,y", "b": 0.123456789}, columns)
    records.append(path, {"a": 'say "hi"\nthere', "b": None}, columns)
    rows = [{"a": "x,y", "b": "0.123457"}, {"a": 'say "hi" there', "b": ""}]
    assert records.read(path) == rows
    whole = path.read_bytes()
    for cut in range(len(whole.splitlines(keepends=True)[0]) + 1, len(whole)):
        path.write_bytes(whole[:cut])  # as a kill in the middle of a write leaves it
        assert records.read(path) == rows[: whole[:cut].count(b"\n") - 1]
        records.append(path, {"a": "new", "b": 1.0}, columns)
        assert records.read(path)[-1] == {"a": "new", "b": "1.0"}
        assert records.read(path)[:-1] == rows[: whole[:cut].count(b"\n") - 1]
    with pytest.raises(BadValue, match=r"does not write \(b\)"):
        records.append(path, {}, ("a", "c"))


def test_rows_written_are_the_rows_read(tmp_path):
    path, rows = tmp_path / "rows.csv", [{"a": "x, y", "b": 0.125}, {"a": "z", "b": 2, "c": None}]
    records.write(path, rows)
    assert records.read(path) == [{"a": "x, y", "b": "0.125"}, {"a": "z", "b": "2"}]
    records.write(path, rows[1:], ("c", "a"))
    assert records.read(path) == [{"c": "", "a": "z"}]


def test_known_cells_are_the_rows_read_back(tmp_path):
    @dataclass(frozen=True)
    class Cell:
        scene: str
        sigma_y: float
        seed: int

    path, cell = tmp_path / "cells.csv", Cell("a, b", 0.1, 3)
    assert records.known(path, Cell) == set()
    row = {"psnr": 1.0} | asdict(cell)
    records.append(path, row, list(row))
    assert records.known(path, Cell) == {cell}


def test_rows_of_an_earlier_version_get_its_new_columns(tmp_path):
    path = tmp_path / "rows.csv"
    records.append(path, {"a": "x,y", "b": 1}, ("a", "b"))
    records.append(path, {"a": "z", "b": 2, "c": 3}, ("a", "c", "b"))
    assert records.read(path) == [{"a": "x,y", "c": "", "b": "1"}, {"a": "z", "c": "3", "b": "2"}]
    assert list(tmp_path.iterdir()) == [path]


def test_parquet_holds_the_rows_with_their_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    choice = replace(QUICK_CHOICE, methods=("input", "bandmean"), masks=("published-3",))
    made = bench.run("noiseless", tmp_path, choice, parquet=True)
    table = parquet.read_table(made[-1])
    rows = records.read(tmp_path / "noiseless.csv")
    assert made[-1].name == "noiseless.parquet" and table.column_names == list(bench.COLUMNS)
    for name, kind in bench.KINDS.items():
        wanted = [kind(row[name]) if row[name] else None for row in rows]
        assert table.column(name).to_pylist() == wanted
    assert str(table.schema.field("missing_mpsnr").type) == "double"


def test_parquet_without_pyarrow_is_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadValue, match="pip install pyarrow"):
        bench.run("noiseless", tmp_path / "out", QUICK_CHOICE, parquet=True)
    assert not (tmp_path / "out").exists()


def test_a_killed_bench_goes_on_and_repeats_no_cell(tmp_path):
    names = [a for m in ("input", "bandmean", "smooth", "rbf") for a in ("--method", m)]
    arguments = ("noiseless", "--quick", *names)
    path = tmp_path / "quick" / "noiseless.csv"
    process = command(*arguments, folder=tmp_path, wait=False)
    end = time.monotonic() + 60
    while len(records.read(path)) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = records.read(path)
    assert 2 <= len(before) < 8
    done = inside(*arguments, folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    rows = records.read(path)
    assert rows[: len(before)] == before and len(rows) == 8
    assert len({tables.cell_of(row) for row in rows}) == 8
    assert "mean nothing" in done.stdout and "mean nothing" in done.stderr
    assert "mean nothing" in (tmp_path / "quick" / "noiseless.md").read_text()
    again = path.read_bytes()
    bench.run("noiseless", tmp_path / "quick", replace(QUICK_CHOICE, methods=("input", "bandmean")))
    assert path.read_bytes() == again


OWN = """
from hydiff.result import Step

def level(y, observed, sigma_y, settings, *, rng):
    yield Step(1, 1, y * observed + (1 - observed) * 0.5)
"""


def test_a_function_of_a_file_has_rows_and_new_ones_when_the_file_changes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    name = f"{path}:level"
    choice = bench.choice_of({}, methods=["bandmean", name], masks=["published-3"], quick=True)
    bench.run("noiseless", tmp_path, choice)
    first = records.read(tmp_path / "noiseless.csv")
    assert [row["method"] for row in first] == ["bandmean", name]
    path.write_text(OWN.replace("0.5", "0.4"))
    bench.run("noiseless", tmp_path, choice)
    rows = records.read(tmp_path / "noiseless.csv")
    assert len(rows) == 3 and rows[2]["method"] == name
    assert rows[2]["missing_mpsnr"] != rows[1]["missing_mpsnr"]
    with pytest.raises(BadValue, match="no function levl"):
        bench.choice_of({}, methods=[f"{path}:levl"])


def test_a_cell_of_another_table_is_not_run_again_unless_time_is_the_question(tmp_path):
    choice = replace(
        QUICK_CHOICE, methods=("input", "smooth"), masks=("published-3",), noise=(0.0,)
    )
    bench.run("noiseless", tmp_path, choice)
    reports = []
    only = replace(choice, methods=("smooth",))
    bench.run("best", tmp_path, only, report=lambda *step: reports.append(step))
    assert reports == []
    first, second = (records.read(tmp_path / f"{n}.csv") for n in ("noiseless", "best"))
    assert second == [row for row in first if row["method"] == "smooth"]
    assert len(bench.split("time", records.read_folder(tmp_path), choice)[1]) == len(first)


def test_a_run_reads_each_file_of_rows_once_and_its_own_for_the_tables(tmp_path, monkeypatch):
    choice = replace(QUICK_CHOICE, methods=("input", "bandmean"), masks=("published-3",))
    bench.run("noiseless", tmp_path, choice)
    calls, read = [], records.read
    monkeypatch.setattr(records, "read", lambda path: calls.append(path.name) or read(path))
    bench.run("emit", tmp_path, replace(choice, masks=("frames",)))
    assert sorted(calls) == ["emit.csv", "noiseless.csv", "noiseless.table.csv"]


def test_workers_give_the_same_rows(tmp_path):
    choice = replace(
        QUICK_CHOICE, methods=("bandmean", "smooth", "hir-diff"), masks=("published-3",)
    )
    rows = {}
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        bench.run("noiseless", folder, choice, workers=workers, device="cpu")
        found = records.read(folder / "noiseless.csv")
        rows[workers] = {row["method"]: row["all_mpsnr"] for row in found}
    assert rows[0] == rows[2] and len(rows[0]) == 3


def test_side_by_side_gives_the_results_of_one_after_the_other(monkeypatch):
    """Tuned cells too, whose settings then differ."""
    monkeypatch.setitem(tuning.TUNING, "hir-diff", [{"variation": 0.0}, {"fidelity": 0.5}])
    small = {"steps": 4, "channels": 8, "scales": 2}
    for method, settings in (("hydiff-ei", small), ("hir-diff", {"tuned": 1, "steps": 2})):
        group = [
            Cell(method, scenes.QUICK, mask, sigma, seed, json.dumps(settings))
            for mask, sigma, seed in (("stripes", 0.0, 0), ("blobs", 0.1, 1), ("blobs", 0.0, 2))
        ]
        together = cell_rows.run(group, device="cpu")
        for cell, (row, x) in zip(group, together, strict=True):
            [(solo, alone)] = cell_rows.run([cell], device="cpu")
            np.testing.assert_array_equal(x, alone)
            assert row["beside"] == 3 and solo["beside"] == 1
            other = ("seconds", "spent", "beside", "peak_mb", "notes")
            assert {k: v for k, v in row.items() if k not in other} == {
                k: v for k, v in solo.items() if k not in other
            }
            assert row["notes"].split(": {")[1:] == solo["notes"].split(": {")[1:]


def test_fits_of_different_length_end_side_by_side():
    truth = scenes.load(scenes.QUICK)[:, :20, :20]
    seen = np.broadcast_to(scenes.observed_of("width-3", truth.shape), truth.shape)
    cell = Cell("hydiff-ei", scenes.QUICK, "published-3")
    damaged = cells.Damaged(cell, cells.measure(truth, seen, 0.0, 0), seen)
    changes = [{"steps": n, "channels": 8, "scales": 2} for n in (3, 1, 5)]
    together = cells.fill_with([damaged] * 3, "cpu", changes)
    for found, changed in zip(together, changes, strict=True):
        (alone,) = cells.fill_with([damaged], "cpu", [changed])
        np.testing.assert_array_equal(found.raw, alone.raw)
        assert found.settings == alone.settings and found.notes == alone.notes


def test_what_is_alike_is_grouped_and_nothing_is_lost():
    choice = bench.choice_of(
        {},
        names=[scenes.BUNDLED, scenes.OFFLINE_TEST],
        methods=["smooth", "dhp"],
        seeds=3,
        tuned=True,
    )
    todo = [c for s in (suites.noiseless, suites.noisy) for c in s(choice)]
    for most in (1, 2, 8):
        groups = bench.grouped(todo, most)
        assert sorted(repr(c) for g in groups for c in g) == sorted(map(repr, todo))
        assert max(map(len, groups)) == most
        for group in groups:
            assert len({(c.method, c.settings, c.scene) for c in group}) == 1
            assert len(group) == 1 or group[0].learned
    lengths = [len(g) for g in bench.grouped([c for c in todo if c.own("tuned")], 8)]
    assert lengths and max(lengths) - min(lengths) <= 1


def test_a_cell_that_fails_is_named_and_the_others_are_run(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",), masks=("width-wide", "published-3"))
    for workers in (0, 1):
        folder = tmp_path / str(workers)
        with pytest.raises(BadValue, match=r"^1 cells failed .*'width-wide'.*: expected width-"):
            bench.run("noiseless", folder, choice, workers=workers)
        (row,) = records.read(folder / "noiseless.csv")
        assert row["mask"] == "published-3" and (folder / "noiseless.md").exists()


def test_the_outlook_counts_cells_and_estimates_their_time(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean", "rbf"))
    assert all(np.isnan(o.seconds) for o in bench.outlook("noiseless", tmp_path, choice))
    assert not list(tmp_path.iterdir())
    bench.run("noiseless", tmp_path, replace(choice, masks=("stripes",), methods=("bandmean",)))
    found = {o.name: o for o in bench.outlook("noiseless", tmp_path, choice)}
    (row,) = records.read(tmp_path / "noiseless.csv")
    assert found["bandmean"][1:3] == (2, 1)
    assert found["bandmean"].seconds == pytest.approx(float(row["spent"]))
    assert found["rbf"][1:3] == (2, 0) and np.isnan(found["rbf"].seconds)
    other = bench.outlook("emit", tmp_path, choice)  # times of a method elsewhere count too
    assert other[0].seconds == pytest.approx(float(row["spent"]))
    shown = inside("noiseless", "--dry-run", "--method", "rbf", folder=tmp_path)
    assert "in all: " in shown.stdout and "no time is known" in shown.stdout


def test_a_cell_that_would_outlast_the_minutes_is_not_started(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",))
    bench.run("noiseless", tmp_path, replace(choice, masks=("stripes",)))
    path = tmp_path / "noiseless.csv"
    (row,) = records.read(path)
    path.unlink()
    records.append(path, row | {"spent": 1e6}, bench.COLUMNS)
    bench.run("noiseless", tmp_path, choice, minutes=1)
    assert len(records.read(path)) == 1
    bench.run("noiseless", tmp_path, choice)
    assert len(records.read(path)) == 2


def test_no_cell_starts_after_the_minutes_are_over(tmp_path):
    choice = replace(QUICK_CHOICE, methods=("bandmean",))
    with pytest.raises(BadValue, match="no rows"):
        bench.run("noiseless", tmp_path, choice, minutes=0)
    assert not (tmp_path / "noiseless.csv").exists()


def test_the_help_text_names_every_table():
    text = CliRunner().invoke(app, ["bench", "--help"], terminal_width=500).output
    assert [name for name in suites.SUITES if name not in text.replace(",", " ").split()] == []


def test_the_table_of_times_runs_nothing_side_by_side(tmp_path):
    quick = replace(QUICK_CHOICE, methods=("hir-diff",), seeds=2)
    for name, beside in (("time", "1"), ("noiseless", "2")):
        folder = tmp_path / name
        bench.run(name, folder, replace(quick, masks=("published-3",)), device="cpu", beside=8)
        assert [r["beside"] for r in records.read(folder / f"{name}.csv")] == [beside] * 2


def test_a_table_s_empty_cells_are_listed(tmp_path):
    """Before a run all of them, after it none; other defaults empty them again."""
    choice = replace(QUICK_CHOICE, methods=("bandmean", "smooth"), masks=("stripes",))
    (one, other) = bench.lacking("noiseless", tmp_path, choice)
    assert (one.name, one.sigma_y, one.cells, one.left) == ("bandmean", 0.0, 1, 1)
    assert other.scenes == {"indian_pines_quick": 1}
    part = ("--quick", "--mask", "stripes", "--method", "bandmean")
    assert inside("noiseless", *part, folder=tmp_path).exit_code == 0
    asked = inside("noiseless", *part, "--missing", folder=tmp_path)
    assert asked.exit_code == 0 and asked.stdout.endswith("0 cells have no row\n")
    both = inside("noiseless", *part, "--method", "smooth", "--missing", folder=tmp_path)
    assert both.exit_code == 1
    assert "noiseless: smooth, σ_y 0.0: 1 of 1 missing: indian_pines_quick 1" in both.stdout
    every = inside("all", *part, "--missing", folder=tmp_path)  # a cell is the same in all tables
    assert "noisy: bandmean" in every.stdout and "emit: bandmean" not in every.stdout
    path = tmp_path / "quick" / "noiseless.csv"
    (row,) = records.read(path)
    path.write_text(path.read_text().replace(row["settings_hash"], "0123456789ab"))
    assert inside("noiseless", *part, "--missing", folder=tmp_path).exit_code == 1


def test_without_rows_there_is_no_table(tmp_path):
    with pytest.raises(BadValue, match="no rows"):
        bench.write_tables("noisy", tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'noisy'"):
        bench.write_tables("nosy", tmp_path)


def test_of_a_cell_run_again_the_later_row_counts(tmp_path):
    bench.run("noiseless", tmp_path, replace(QUICK_CHOICE, methods=("bandmean",)))
    path = tmp_path / "noiseless.csv"
    rows = records.read(path)
    for row in rows:
        later = row | {"all_mpsnr": "1.0", "settings_hash": "of other defaults"}
        records.append(path, later, bench.COLUMNS)
    bench.write_tables("noiseless", tmp_path)
    with (tmp_path / "noiseless.table.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert line["MPSNR dB (all)"].startswith("1.00") and line["scenes · cells"].endswith(
        f"· {len(rows)}"
    )


# The command


def test_bad_input_gets_one_line_and_exit_code_2(tmp_path):
    cases = {
        ("nonsense",): "unknown table",
        ("noisy", "--scene", "mine=/absent.tif"): "no such file",
        ("noisy", "--scene", "atlantis", "--method", "bandmean"): "unknown scene",
        ("noisy", "--method", "smoth"): "did you mean",
        ("noisy", "--seeds", "0"): "expected 1 or more",
        ("noisy", "--sigma", "loud"): "expected numbers, or band",
        ("best", "--budget", "large"): "unknown budget",
        ("noisy", "--beside", "9", "--quick"): "expected 1 to 8",
        ("noisy", "--quick", "--method", "harmonic", "--method", "smooth"): "no run of harmonic",
        ("alpha", "--quick", "--method", "smooth"): "has no run",
        ("use", "--scene", "chikusei_36"): "unknown scene" if not DATA.exists() else "has no run",
        ("noisy", "--quick", "--limit-minutes", "nan"): "expected 0 or more",
        ("noisy", "--scene", "x=a.npy", "--scene", "x=b.npy"): "more than once",
        ("noisy", "--scene", "=a.npy"): "expected name=path",
    }
    for arguments, message in cases.items():
        outcome = inside(*arguments, folder=tmp_path)
        assert isinstance(outcome.exception, HydiffError) and message in str(outcome.exception)
        assert "\n" not in str(outcome.exception)
    done = command("nonsense", folder=tmp_path)  # the same through the front door
    assert done.returncode == 2 and "unknown table" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(Path(tmp_path).glob("*.csv"))


def test_a_bench_runs_where_hydiff_is_only_on_the_path(tmp_path):
    """As on a machine where nothing can be installed: no metadata, and beside torch, numpy and
    scipy few other packages."""
    site = tmp_path / "site"
    site.mkdir()
    absent = ("hydiff", "_hydiff", "__editable__", "rasterio", "zarr", "dask", "pyarrow", "panel")
    absent += ("xarray", "spectral", "distributed")
    for entry in Path(np.__file__).parents[1].iterdir():
        if not entry.name.startswith(absent) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    code = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]\n"
    code += "from hydiff.cli import main; main()"
    line = [sys.executable, "-S", "-c", code, str(ROOT / "src"), str(site)]
    line += ["bench", "best", "--quick", "--device", "cpu", "-o", str(tmp_path / "out")]
    line += ["--sigma", "band", "--mask", "published-3", "--method", "auto", "--budget", "fast"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = records.read(tmp_path / "out" / "quick" / "best.csv")
    assert [r["sigma_y"] for r in rows] == ["band"] * 2  # with σ given and estimated
    table = (tmp_path / "out" / "quick" / "best.md").read_text()
    assert "σ_y band" in done.stderr and "**σ_y = band**" in table


def test_a_bench_that_cannot_work_stops_early(tmp_path):
    masks = tuple(f"width-{letter}" for letter in "abcdefghijkl")
    choice = replace(QUICK_CHOICE, methods=("bandmean",), masks=(*masks, "published-3"))
    with pytest.raises(BadValue, match=r"^8 cells failed .*none worked"):
        bench.run("noiseless", tmp_path, choice)
    assert not (tmp_path / "noiseless.csv").exists()
