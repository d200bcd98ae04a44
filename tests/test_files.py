"""Laws of files as they lie on a disk: what is opened, who may read, what changed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

import products
from hydiff import io, report
from hydiff.cli import main
from hydiff.cube import Cube
from hydiff.errors import BadValue, CubeFormatError, OutputError
from hydiff.io import provenance, staging
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.plan import fingerprint_of, make_plan
from hydiff.scale.scene import Limits
from test_execute import full_disk

WHOLE, TILES = Limits(8e9), Limits(8e9, tile=16)
LINEAR = Request(method="linear", outside="fill")
BARRED = Request(method="smooth", outside="fill", settings={"error_bars": True})
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """`hydiff` in a folder of its own: exit code, stdout, stderr; a command that waits is ended."""
    monkeypatch.chdir(tmp_path)

    def late(number: int, frame: Any) -> None:
        raise TimeoutError("the command waits for ever")

    def command(*args: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hydiff", *map(str, args)])
        capfd.readouterr()
        signal.setitimer(signal.ITIMER_REAL, 60)
        with pytest.raises(SystemExit) as end:
            main()
        signal.setitimer(signal.ITIMER_REAL, 0)
        return int(end.value.code or 0), *capfd.readouterr()

    before = signal.signal(signal.SIGALRM, late)
    yield command
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def damaged(tiny: np.ndarray, stripes: np.ndarray) -> Cube:
    values = np.where(stripes, 100 * tiny, -9).astype(np.float32)
    return Cube(values, nodata=-9.0, wavelengths=np.linspace(400, 900, 12))


def refused(done: tuple[int, str, str], *words: str) -> None:
    code, _, printed = done
    lines = [line for line in printed.splitlines() if line.startswith("hydiff: ")]
    assert code == 2 and len(lines) == 1 and "Traceback" not in printed, printed
    assert all(word in lines[0] for word in words), lines[0]


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- what is opened -------------------------------------------------------------------------------

PIPED = {
    "input": ("f", ("info", "f")),
    "input of a fill": ("f.tif", ("fill", "f.tif", "-o", "out.tif")),
    "mask": ("m.npz", ("fill", "in.tif", "-o", "out.tif", "--missing", "m.npz")),
    "quality": ("q.nc", ("fill", "in.tif", "-o", "out.tif", "--quality", "q.nc")),
    "sidecar": ("in.npy.json", ("info", "in.npy")),
    "recipe": ("r.json", ("fill", "in.tif", "-o", "out.tif", "--recipe", "r.json")),
    "record": ("in.tif.fill.json", ("report", "in.tif")),
    "truth": ("t.tif", ("score", "in.tif", "t.tif")),
    "chunk": ("in.zarr/cube/c/0/0/0", ("info", "in.zarr")),
}


@pytest.mark.parametrize("role", PIPED)
def test_a_fifo_is_refused_and_not_waited_for(run: Run, damaged: Cube, role: str) -> None:
    for name in ("in.tif", "in.npy", "in.zarr"):
        io.write(damaged, name)
    pipe, command = PIPED[role]
    Path(pipe).unlink(missing_ok=True)
    os.mkfifo(pipe)
    refused(run(*command), pipe, "is a FIFO", "save what it gives to a file")
    assert not Path("out.tif").exists()


def test_a_device_is_refused(run: Run) -> None:
    refused(run("info", "/dev/zero"), "/dev/zero: is a device")


def test_names_that_no_file_can_have(run: Run, damaged: Cube) -> None:
    io.write(damaged, "in.tif")
    name = "x" * 300 + ".tif"
    refused(run("info", name), "the name is too long")
    refused(run("fill", name, "-o", "out.tif"), "the name is too long")
    refused(run("fill", "in.tif", "-o", name, "--method", "linear"), "the name is too long")
    companion = "x" * 244 + ".tif"  # there is room for it, but not for what lies beside it
    refused(run("fill", "in.tif", "-o", companion, "--method", "linear"), "the name is too long")
    with pytest.raises(CubeFormatError, match="no file can have this name"):
        io.read("a\0b.tif")
    assert {path.name for path in Path().iterdir()} == {"in.tif"}


def test_links_that_lead_in_a_circle(run: Run, damaged: Cube) -> None:
    io.write(damaged, "in.zarr")
    Path("in.zarr/cube/again").symlink_to(Path("in.zarr").resolve())
    refused(run("fill", "in.zarr", "-o", "out.zarr"), "again", "lead in a circle")
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    refused(run("info", "a"), "lead in a circle")


def test_what_else_lies_in_a_zarr_store_is_no_news(tmp_path: Path, damaged: Cube) -> None:
    path = io.write(damaged, tmp_path / "in.zarr")[0]
    (path / "notes").mkdir()
    (path / "notes" / "readme.txt").write_text("of somebody")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert io.read(path).shape == damaged.shape


def test_control_characters_of_a_name_do_not_reach_the_terminal(run: Run, damaged: Cube) -> None:
    name, out = "e\x1b[31m[red]\x07vil.tif", "o\x1b[2J\x9b[red].tif"
    io.write(damaged, name)
    for command in (
        ("info", name),
        ("fill", name, "-o", out, "--method", "linear"),
        ("score", out, name),
        ("simulate", name, "-o", f"s{out}"),
        ("mask", name, "-o", "m\x1b.npz"),
        ("convert", out, "c\x1b[red].npy", "--unmarked"),
        ("fill", name, "-o", ".", "--method", "linear", "--overwrite"),
    ):
        code, printed, said = run(*command)
        assert (code, [c for c in printed + said if not (c.isprintable() or c == "\n")]) == (0, [])


def test_a_file_is_a_file_before_it_is_a_pattern(run: Run, damaged: Cube) -> None:
    io.write(damaged, "scene[1].tif")
    io.write(replace(damaged, values=np.asarray(damaged.values) + 1), "scene1.tif")
    assert run("fill", "scene[1].tif", "-o", "out.tif", "--method", "linear")[0] == 0
    assert json.loads(Path("out.tif.fill.json").read_text())["input"]["path"] == "scene[1].tif"


def test_an_archive_with_a_brace_in_its_name(tmp_path: Path) -> None:
    values = (1000 * products.scene(6, 16, 16)).astype("i2")
    path = products.enmap(tmp_path / "br}ace{", values, zipped=True)
    assert np.array_equal(io.read(path).values, values)


# --- a full disk ----------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_folder_of_zarr(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((8, 256, 256), np.float32)
    for i in range(5):
        with full_disk(4096), pytest.raises(OutputError, match=r"larger than|disk is full"):
            io.write(Cube(values), tmp_path / f"{i}.zarr")
    path = io.write(Cube(values), tmp_path / "in.zarr")[0]
    cube = io.read(path)
    with full_disk(4096), pytest.raises(OutputError, match=r"larger than|disk is full"):
        io.write(replace(cube, values=values + 1), tmp_path / "out.zarr")
    assert set(tmp_path.iterdir()) == {path}


def test_libraries_do_not_speak_beside_the_refusal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with full_disk(4096), pytest.raises(OutputError) as caught:
        io.write(Cube(np.random.default_rng(0).random((8, 256, 256))), tmp_path / "a.tif")
    assert "\n" not in str(caught.value) and capfd.readouterr().err == ""
    with staging.lines_held():
        os.write(2, b"a library\n")
    assert capfd.readouterr().err == "a library\n"
    with pytest.raises(OSError, match="full"), staging.lines_held():
        os.write(2, b"a library\n")
        raise OSError("full")
    assert capfd.readouterr().err == ""


# --- who may read ---------------------------------------------------------------------------------


def readers(path: Path) -> int:
    return path.stat().st_mode & 0o077


@pytest.mark.parametrize(
    ("suffix", "mode", "most"),
    [
        *((suffix, 0o600, 0) for suffix in (".tif", ".img", ".zarr", ".npy")),
        (".tif", 0o640, 0o050),
        (".tif", 0o644, 0o055),
    ],
)
def test_an_output_is_not_more_readable_than_its_input(
    tmp_path: Path, damaged: Cube, suffix: str, mode: int, most: int
) -> None:
    before = os.umask(0o022)
    try:
        source = io.write(damaged, tmp_path / f"in{suffix}")[0]
        source.chmod(mode)
        known = set(tmp_path.rglob("*"))
        execute.fill_file(source, tmp_path / f"out{suffix}", replace(LINEAR, unmarked=True), WHOLE)
        io.write(io.read(source), tmp_path / "converted.zarr")
        if (suffix, most) == (".tif", 0):
            execute.fill_file(source, tmp_path / "tiles.tif", LINEAR, TILES)
            report.write(tmp_path / "tiles.tif")
        made = set(tmp_path.rglob("*")) - known
    finally:
        os.umask(before)
    assert len(made) > 8 and all(readers(p) & ~most == 0 for p in made)
    assert any(readers(p) for p in made) == bool(most)


def test_a_checkpoint_and_tiles_are_private(tmp_path: Path, damaged: Cube) -> None:
    from hydiff.learn.checkpoint import Checkpoint

    torch = pytest.importorskip("torch")
    Checkpoint(tmp_path / "a.checkpoint", "it").save({"x": torch.ones(2)}, [{"loss": 1.0}])
    assert readers(tmp_path / "a.checkpoint") == 0
    source, seen = io.write(damaged, tmp_path / "in.tif")[0], []
    work = tmp_path / "out.tif.tiles"
    execute.fill_file(
        source,
        tmp_path / "out.tif",
        LINEAR,
        TILES,
        progress=lambda step: seen.append(readers(work)),
    )
    assert seen and not any(seen)


# --- an input that changes meanwhile, a fill that was done ----------------------------------------


@pytest.mark.parametrize("suffix", [".tif", ".img"])
@pytest.mark.parametrize("event", ["replaced", "deleted", "header"])
def test_an_input_that_changes_while_it_is_filled(
    tmp_path: Path, damaged: Cube, suffix: str, event: str
) -> None:
    source = io.write(damaged, tmp_path / f"in{suffix}")[0]
    other = io.write(replace(damaged, values=np.asarray(damaged.values) + 1), tmp_path / "o.img")[0]
    if suffix == ".tif":
        other = io.write(io.read(other), tmp_path / "o.tif")[0]

    def meanwhile(step: Any) -> None:
        if event == "replaced":
            shutil.copyfile(other, tmp_path / "new")
            (tmp_path / "new").replace(source)
        elif event == "deleted":
            source.unlink(missing_ok=True)
        elif suffix == ".img":
            source.with_suffix(".hdr").write_text("ENVI\n; edited\n")
        else:
            source.write_bytes(source.read_bytes() + b" ")

    words = "is gone" if event == "deleted" else "changed while it was filled"
    with pytest.raises(BadValue, match=words):
        execute.fill_file(source, tmp_path / f"out{suffix}", LINEAR, WHOLE, progress=meanwhile)
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".hydiff-*"))


def test_the_record_has_the_hash_of_what_was_read(tmp_path: Path, damaged: Cube) -> None:
    source = io.write(damaged, tmp_path / "in.tif")[0]
    done = execute.fill_file(source, tmp_path / "out.tif", LINEAR, WHOLE)
    assert done.record["input"]["sha256"] == provenance.sha256(source)
    note = json.loads((tmp_path / "out.tif.fill.json").read_text())
    assert {k: v for k, v in note.items() if k != "time"} == {
        k: v for k, v in json.loads(json.dumps(done.record)).items() if k != "time"
    }


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_a_fill_that_was_done_is_not_done_again(
    tmp_path: Path, damaged: Cube, bounds: Limits
) -> None:
    """A kill behind the last rename leaves the finished output, and the folder of its tiles."""
    source, out = io.write(damaged, tmp_path / "in.tif")[0], tmp_path / "out.tif"
    execute.fill_file(source, out, LINEAR, bounds)
    before, printed = contents(tmp_path), []
    (tmp_path / "out.tif.tiles").mkdir()
    done = execute.fill_file(source, out, LINEAR, bounds, resume=True, say=printed.append)
    assert contents(tmp_path) == before and not (tmp_path / "out.tif.tiles").exists()
    assert "nothing to do" in printed[0] and done.made[0] == out
    assert done.record["entries"]["filled"] > 0
    with_page = replace(LINEAR, report=True)  # what was to come after it comes now
    execute.fill_file(source, out, with_page, bounds, resume=True)
    assert provenance.report_path(out).exists()


def finished(*asked: Any) -> Any:
    """The record of this very fill, if it is there."""
    return make_plan(*asked, resume=True, overwrite=True).finished


def test_another_request_is_not_done(tmp_path: Path, damaged: Cube) -> None:
    source, out = io.write(damaged, tmp_path / "in.tif")[0], tmp_path / "out.tif"
    mask = tmp_path / "m.npy"
    np.save(mask, np.zeros((24, 24), bool))
    asked = replace(LINEAR, missing=mask)
    execute.fill_file(source, out, asked, WHOLE)
    assert finished(source, out, asked, WHOLE) is not None
    assert finished(source, out, replace(asked, seed=1), WHOLE) is None
    assert finished(source, out, replace(asked, method="nearest"), WHOLE) is None
    assert finished(source, out, asked, TILES) is None
    with pytest.raises(OutputError, match="pass `overwrite=True`"):
        execute.fill_file(source, out, replace(asked, seed=1), WHOLE, resume=True)
    np.save(mask, np.eye(24, dtype=bool))
    assert finished(source, out, asked, WHOLE) is None
    np.save(mask, np.zeros((24, 24), bool))
    io.write(replace(damaged, values=np.asarray(damaged.values) + 1), source, overwrite=True)
    assert finished(source, out, asked, WHOLE) is None
    (tmp_path / "out.tif.fill.json").write_text("[]")
    assert finished(source, out, asked, WHOLE) is None


@pytest.mark.parametrize("option", ["missing", "reference", "weights", "method", "region"])
def test_a_request_is_known_by_the_content_of_its_files_not_by_their_names(
    tmp_path: Path, option: str
) -> None:
    def asked(path: Path) -> str:
        given: dict[str, Any] = {
            "missing": {"missing": path},
            "reference": {"reference": (path,)},
            "weights": {"method": "hydiff-ei", "settings": {"weights": str(path)}},
            "method": {"method": f"{path}:mine"},
            "region": {"region": str(path)},
        }
        return fingerprint_of(Request(**given[option]), WHOLE)

    path, moved = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text("def mine(): pass\n")
    before = asked(path)
    assert asked(path) == before
    moved.write_bytes(path.read_bytes())
    assert (asked(moved) == before) == (option != "method")  # its name is in the record
    path.write_text("def mine(): return 1\n")
    assert asked(path) != before


def test_resume_of_a_finished_fill_ends_with_0(run: Run, damaged: Cube) -> None:
    io.write(damaged, "in.tif")
    asked = ("fill", "in.tif", "-o", "out.tif", "--method", "linear")
    assert run(*asked)[0] == 0
    code, _, said = run(*asked, "--resume")
    assert code == 0 and "out.tif is there already" in said
    refused(run(*asked), "pass --overwrite")


# --- roll-back of a staging folder ----------------------------------------------------------------


def test_names_that_were_moved_are_moved_back(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").write_text("")
    before = contents(tmp_path)
    moves = [("a", "a2"), ("b", "a"), ("c", "folder")]  # a file does not replace a folder
    with pytest.raises(OSError):
        staging._rename([(tmp_path / one, tmp_path / other) for one, other in moves])
    assert contents(tmp_path) == before


# --- EnMAP archives -------------------------------------------------------------------------------


def enmap_with(path: Path, members: dict[str, bytes]) -> Path:
    """A product in a zip, with some members more."""
    values = (1000 * products.scene(6, 16, 16)).astype("i2")
    values[:, 4:6] = -32768
    made = products.enmap(path, values, zipped=True)
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made


def image_of(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return next(n for n in archive.namelist() if n.endswith("-SPECTRAL_IMAGE.TIF"))


def test_members_of_an_enmap_archive_keep_their_paths(tmp_path: Path) -> None:
    folder = image_of(enmap_with(tmp_path / "plain", {})).partition("/")[0]
    beside = {"a.txt": b"top", "zz/a.txt": b"zz", f"{folder}/sub/a.txt": b"sub"}
    source = enmap_with(tmp_path / "in", beside)
    execute.fill_file(source, tmp_path / "out", LINEAR, WHOLE)
    for member, content in (("a.txt", b"top"), ("zz/a.txt", b"zz"), ("sub/a.txt", b"sub")):
        assert (tmp_path / "out" / member).read_bytes() == content
    filled = io.read(tmp_path / "out")
    assert filled.format == "enmap" and filled.observed().all()


@pytest.mark.parametrize("twin", ["same", "capitals", "folder"])
def test_members_that_would_be_one_file_are_refused(tmp_path: Path, twin: str) -> None:
    image = image_of(enmap_with(tmp_path / "plain", {}))
    notes = f"{image.partition('/')[0]}/notes.txt"
    name = {
        "same": "notes.txt",
        "capitals": notes.replace("notes", "NOTES"),
        "folder": f"{image}/x",
    }
    source = enmap_with(tmp_path / "in", {notes: b"one", name[twin]: b"two"})
    with pytest.raises(CubeFormatError, match="would be one file"):
        execute.fill_file(source, tmp_path / "out", LINEAR, WHOLE)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".hydiff-*"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_one_name_twice_is_refused(tmp_path: Path) -> None:
    image = image_of(enmap_with(tmp_path / "plain", {}))
    source = enmap_with(tmp_path / "in", {image: b"not a tiff"})
    with pytest.raises(CubeFormatError, match="two members called"):
        io.read(source)


@pytest.mark.parametrize("output", ["out", "out.zip"])
def test_members_that_are_copied_unpack_within_the_memory(tmp_path: Path, output: str) -> None:
    source = enmap_with(tmp_path / "in", {"zeros": bytes(40_000_000)})
    assert source.stat().st_size < 200_000
    for act in (make_plan, execute.fill_file):
        with pytest.raises(BadValue, match=r"unpack to 0\.04 GB besides.*`memory='1GB'`"):
            act(source, tmp_path / output, LINEAR, Limits(30e6, tile=None))
    assert not (tmp_path / output).exists() and not list(tmp_path.glob(".hydiff-*"))
    execute.fill_file(source, tmp_path / "map.tif", LINEAR, Limits(8e9))


def test_a_member_gives_no_more_than_its_archive_declares(tmp_path: Path) -> None:
    source = enmap_with(tmp_path / "in", {"zeros": bytes(3_000_000)})
    raw = source.read_bytes()
    declared, lied = (n.to_bytes(4, "little") for n in (3_000_000, 1_000))
    source.write_bytes(raw.replace(declared, lied))
    with pytest.raises(CubeFormatError, match="a complete zip"):
        execute.fill_file(source, tmp_path / "out", LINEAR, WHOLE)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".hydiff-*"))


# --- cropped files -------------------------------------------------------------------------------


def test_a_cropped_envi_file_has_its_own_place_on_the_map(tmp_path: Path, damaged: Cube) -> None:
    """A window of an ENVI file has a map origin of its own."""
    utm = rasterio.CRS.from_epsg(32633).to_wkt()
    placed = replace(damaged, crs=utm, transform=(30.0, 0.0, 500000.0, 0.0, -30.0, 5000000.0))
    source = io.write(placed, tmp_path / "in.img")[0]
    part = io.read(source).window(slice(5, 20), slice(7, 24))
    again = io.read(io.write(part, tmp_path / "part.img")[0])
    assert again.transform == (30.0, 0.0, 500210.0, 0.0, -30.0, 4999850.0)
    with rasterio.open(tmp_path / "part.img") as dataset:
        assert tuple(dataset.transform)[:6] == again.transform
