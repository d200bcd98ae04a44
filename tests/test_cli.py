"""The command line as a person uses it: real files, exit codes, messages.

The whole journey, and what depends on a process, runs in processes of their own; the rest here.
"""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import command
import hydiff
from hydiff.cube import Cube
from hydiff.io import bundled, masks
from test_architecture import HEAVY

HYDIFF = [sys.executable, "-c", "from hydiff.cli import main; main()"]


PLAIN = ("--method", "smooth")  # where the test is not about the default fill


def hydiff_(*args, cwd=None, code=0):
    """Run `hydiff` in this process and check its exit code."""
    done = command.run(*args, cwd=cwd)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def process(*args, cwd=None, code=0, limit=None):
    """Run `hydiff` in a process of its own and check its exit code."""

    def at_most():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*HYDIFF, *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        preexec_fn=at_most if limit else None,
        env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


def refused(*args, cwd=None):
    """Run a command that must be refused: exit code 2 and one line; that line."""
    return one_line(hydiff_(*args, cwd=cwd, code=2).stderr)


def one_line(output):
    """The one line of a refusal on stderr."""
    lines = [line for line in output.splitlines() if line.startswith("hydiff: ")]
    assert len(lines) == 1 and "Traceback" not in output, output
    return lines[0]


@pytest.fixture
def scene(tmp_path, tiny, stripes):
    """A folder with a clean ENVI cube, a damaged one, and the mask between them."""
    clean = Cube(
        values=(1000 * tiny).astype(np.int16),
        wavelengths=np.linspace(400, 950, 12),
        wavelength_units="Nanometers",
        nodata=-9999,
        attrs={"sensor type": "unit test"},
    )
    hydiff.write(clean, tmp_path / "clean.bil")
    damaged = np.where(stripes, clean.values, -9999).astype(np.int16)
    hydiff.write(Cube(**vars(clean) | {"values": damaged}), tmp_path / "damaged.bil")
    np.save(tmp_path / "missing.npy", ~stripes)
    return tmp_path


def test_the_whole_journey(scene):
    """The fill and what follows it in processes of their own, as somebody types it."""
    hydiff_(
        "simulate", "clean.bil", "-o", "holes.bil", "--mask", "stripes", "--missing", 0.3, cwd=scene
    )
    assert "missing" in hydiff_("info", "holes.bil", cwd=scene).stdout
    census = json.loads(hydiff_("mask", "holes.bil", "--json", cwd=scene).stdout)
    assert census["missing"] > 0
    fast = ["--outside", "fill", "--budget", "fast"]
    done = process("fill", "holes.bil", "-o", "filled.bil", *fast, cwd=scene)
    assert "will fill" in done.stderr and "filled.bil" in done.stdout
    scores = process("score", "filled.bil", "clean.bil", "--json", cwd=scene)
    assert json.loads(scores.stdout)["missing"]["mpsnr"] > 20
    hydiff_("convert", "filled.bil", "filled.tif", cwd=scene)
    back, clean = hydiff.read(scene / "filled.tif"), hydiff.read(scene / "clean.bil")
    np.testing.assert_allclose(back.wavelengths, clean.wavelengths)


def test_the_command_that_simulate_names_scores_the_fill(data_dir, tmp_path):
    """A path with a space, and a file of several cubes."""
    source = tmp_path / "a scene.mat"
    source.write_bytes((data_dir / "native" / "paris_data_hs_ms.mat").read_bytes())
    simulated = hydiff_("simulate", source, "--var", "HSim", "-o", "d.mat", cwd=tmp_path).stdout
    hydiff_("fill", "d.mat", "--var", "HSim", "-o", "filled.mat", *PLAIN, cwd=tmp_path)
    _, *words = shlex.split(
        " ".join(simulated.split()).split("`")[1].replace("FILLED", "filled.mat")
    )
    assert "MPSNR" in hydiff_(*words, cwd=tmp_path).stdout


def test_a_fill_keeps_the_file_and_adds_its_companions(scene, stripes):
    done = hydiff_("fill", "damaged.bil", "-o", "out.bil", "--json", "--outside", "fill", cwd=scene)
    report = json.loads(done.stdout)
    assert sorted(Path(p).name for p in report["outputs"]) == [
        "out.bil", "out.bil.fill.json", "out.bil.flags.bil", "out.bil.sigma.bil",
        "out.bil.why.bil", "out.hdr",
    ]  # fmt: skip
    lines, header = (
        (scene / name).read_bytes().splitlines() for name in ("out.hdr", "damaged.hdr")
    )
    assert [line for line in lines if b"filled" not in line] == header
    assert sum(line.startswith(b"hydiff filled = ") for line in lines) == 1
    before, after = hydiff.read(scene / "damaged.bil"), hydiff.read(scene / "out.bil")
    assert np.array_equal(after.values[:, stripes], before.values[:, stripes])
    flags = np.asarray(hydiff.read(scene / "out.bil.flags.bil").values)
    assert ((flags & 1 == 0) == stripes).all()
    record = json.loads((scene / "out.bil.fill.json").read_text())
    assert record["entries"]["missing_before"] == 12 * int((~stripes).sum())
    assert record["entries"]["missing_after"] == 0
    digest = subprocess.run(["sha256sum", scene / "damaged.bil"], capture_output=True, text=True)
    assert record["input"]["sha256"] == digest.stdout.split()[0]
    assert record["method"] == "auto" and record["settings"]["budget"] == "normal"
    assert record["seed"] == 0 and record["expected"]["nrmse"] > 0
    replay = ["--recipe", "out.bil.fill.json", "--outside", "fill"]
    hydiff_("fill", "damaged.bil", "-o", "again.bil", *replay, cwd=scene)
    for name in ("bil", "bil.sigma.bil", "bil.flags.bil"):
        assert (scene / f"again.{name}").read_bytes() == (scene / f"out.{name}").read_bytes()
    scored = json.loads(hydiff_("score", "out.bil", "clean.bil", "--json", cwd=scene).stdout)
    bars, more = scored["calibration"], scored["verification"]
    assert 0 < bars["covered_80"] == more["covered"][more["levels"].index(0.8)] <= 1
    assert sum(more["pit"]) == pytest.approx(1) and more["entries"] == bars["entries"]
    shown = hydiff_("score", "out.bil", "clean.bil", cwd=scene).stdout
    assert all(words in shown for words in ("intervals cover", "interval score", "PIT histogram"))


def test_the_same_command_gives_the_same_bytes(scene):
    """Here, after whatever ran before, and in a process of its own."""
    noisy = ["--sigma-y", "5%", "--denoise", *PLAIN]
    for name, run in (("one", hydiff_), ("two", process)):
        run("fill", "damaged.bil", "-o", f"{name}.bil", *noisy, cwd=scene)
    assert (scene / "one.bil").read_bytes() == (scene / "two.bil").read_bytes()


SMALL = ["--method", "hydiff-ei", "--set", "channels=4", "--set", "scales=2", "--set", "steps=3"]


def test_a_learned_method_runs_with_estimated_noise(scene):
    done = hydiff_("fill", "damaged.bil", "-o", "x.bil", *SMALL, "--sigma-y", "auto", cwd=scene)
    assert "sigma_y estimated" in done.stdout
    record = json.loads((scene / "x.bil.fill.json").read_text())
    assert record["settings"]["steps"] == 3 and len(record["sigma_y"]) == 12


def test_an_old_checkpoint_is_mentioned_and_replaced_or_continued(scene):
    options = ["damaged.bil", "-o", "x.bil", *SMALL]
    save_file({"t": torch.zeros(1)}, scene / "x.bil.checkpoint", metadata={"belongs_to": "other"})
    assert "belongs to another" in refused("fill", *options, "--resume", cwd=scene)
    assert "--resume would go on" in hydiff_("fill", *options, cwd=scene).stderr
    assert not (scene / "x.bil.checkpoint").exists()


def test_an_interrupted_fill_promises_nothing_and_leaves_nothing(scene):
    before = sorted(scene.iterdir())
    long = [*SMALL[:-1], "steps=1000000"]
    process = subprocess.Popen(
        [*HYDIFF, "fill", "damaged.bil", "-o", "x.bil", *long, "--resume"],
        cwd=scene,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    line = ""
    while "nothing to resume" not in line:  # the last line before the fit begins
        line = process.stderr.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]  # no checkpoint yet, so no resume is promised
    assert "interrupted" in said and "--resume" not in said and process.returncode == 130
    assert sorted(scene.iterdir()) == before


def test_masks_may_come_from_a_file(scene, stripes):
    hydiff_("fill", "clean.bil", "-o", "a.bil", "--missing", "missing.npy", *PLAIN, cwd=scene)
    np.save(scene / "observed.npy", stripes)
    hydiff_("fill", "clean.bil", "-o", "b.bil", "--observed", "observed.npy", *PLAIN, cwd=scene)
    assert (scene / "a.bil").read_bytes() == (scene / "b.bil").read_bytes()
    assert (scene / "a.bil").read_bytes() != (scene / "clean.bil").read_bytes()


def test_detected_damage_is_named_and_filled(scene):
    cube = hydiff.read(scene / "clean.bil").load()
    values = np.array(cube.values)
    values[:, 9, :] = 0
    hydiff.write(Cube(**vars(cube) | {"values": values, "path": None}), scene / "dead.bil")
    assert "line" in hydiff_("mask", "dead.bil", "-o", "m.npz", cwd=scene).stdout
    done = hydiff_("fill", "dead.bil", "-o", "alive.bil", "--detect", *PLAIN, cwd=scene)
    assert "taken as missing" in done.stderr
    assert (np.asarray(hydiff.read(scene / "alive.bil").values)[:, 9, :] != 0).any()


def test_an_empty_mask_is_called_empty(scene):
    done = hydiff_("mask", "clean.bil", "-o", "m.npz", "--only", "dead columns", cwd=scene)
    line = "nothing is missing and nothing looks damaged: the mask m.npz is empty"
    assert done.stdout.splitlines()[-1] == line and (scene / "m.npz").exists()


def test_no_time_is_forecast_where_nothing_can_be_filled(scene):
    cube = hydiff.read(scene / "clean.bil").load()
    values = np.array(cube.values)
    values[3] = 30000
    changed = {"values": values, "path": None, "nodata": 30000}
    hydiff.write(Cube(**vars(cube) | changed), scene / "dead.bil")
    for name, forecast in (("dead.bil", False), ("damaged.bil", True)):
        done = hydiff_("fill", name, "-o", "x.bil", "--dry-run", *PLAIN, cwd=scene)
        assert ("will take" in done.stderr) == forecast


def test_a_cube_without_gaps_is_copied_verbatim(scene):
    done = hydiff_("fill", "clean.bil", "-o", "same.bil", cwd=scene)
    assert len(done.stdout.splitlines()) == 1 and "no gaps" in done.stdout
    for suffix in ("bil", "hdr"):
        assert (scene / f"same.{suffix}").read_bytes() == (scene / f"clean.{suffix}").read_bytes()


def test_no_gaps_is_json_too_when_asked(scene):
    done = hydiff_("fill", "clean.bil", "-o", "same.bil", "--json", cwd=scene)
    assert json.loads(done.stdout)["entries"] == {"missing_before": 0}


def test_a_dry_run_writes_nothing(scene):
    before = sorted(scene.iterdir())
    options = ["--dry-run", "--method", "smooth", "--set", "s=1.2"]
    done = hydiff_("fill", "damaged.bil", "-o", "x.bil", *options, "--json", cwd=scene)
    facts = json.loads(done.stdout)
    assert facts["settings"]["s"] == 1.2
    said = hydiff_("fill", "damaged.bil", "-o", "x.bil", *options, cwd=scene).stdout
    assert said.startswith(f"would fill {facts['entries_to_fill']:,} entries with smooth\n")
    done = hydiff_("fill", "damaged.bil", "-o", "x.bil", *options, "--tile", "12", cwd=scene)
    assert "tiles of 12 × 12 pixels" in done.stdout
    assert (
        "would fill 0 entries"
        in hydiff_("fill", "clean.bil", "-o", "x.bil", "--dry-run", cwd=scene).stdout
    )
    done = hydiff_("fill", "damaged.bil", "clean.bil", "-o", "out", *options, cwd=scene)
    assert done.stdout == "would fill 2 files with smooth:\ndamaged.bil\nclean.bil\n"
    assert sorted(scene.iterdir()) == before


def test_overwrite_replaces_the_input_itself(scene):
    hydiff_("fill", "damaged.bil", "-o", "damaged.bil", "--overwrite", *PLAIN, cwd=scene)
    assert not (np.asarray(hydiff.read(scene / "damaged.bil").values)[:, 1:-1] == -9999).any()


def test_a_second_fill_in_place_says_that_it_did_nothing(scene):
    fill = ["fill", "damaged.bil", "-o", "damaged.bil", "--overwrite", "--outside", "fill", *PLAIN]
    hydiff_(*fill, "--method", "smooth", cwd=scene)
    before = {p: p.read_bytes() for p in scene.iterdir()}
    done = hydiff_(*fill, "--method", "smooth", cwd=scene)
    assert done.stdout == "damaged.bil has nothing to fill: no file was written or replaced\n"
    assert {p: p.read_bytes() for p in scene.iterdir()} == before


def test_the_version_and_the_module():
    assert process("--version").stdout.strip() == f"hydiff {hydiff.__version__}"
    done = subprocess.run(
        [sys.executable, "-m", "hydiff", "--version"], capture_output=True, text=True
    )
    assert done.stdout.strip() == f"hydiff {hydiff.__version__}"


def test_methods_are_listed_with_their_settings():
    listed = json.loads(hydiff_("methods", "--json").stdout)
    assert listed["default"] == "auto" and set(listed["methods"]) == {"auto", *hydiff.METHODS}
    assert "components=24" in hydiff_("methods").stdout


REFUSED = {
    "a missing file": (["fill", "none.bil", "-o", "x.bil"], "none.bil: no such file"),
    "an unknown method": (
        ["fill", "damaged.bil", "-o", "x.bil", "--method", "smoth"],
        "did you mean 'smooth'",
    ),
    "an unknown setting": (
        ["fill", "damaged.bil", "-o", "x.bil", "--method", "smooth", "--set", "component=3"],
        "did you mean 'components'",
    ),
    "a setting of the wrong type": (
        ["fill", "damaged.bil", "-o", "x.bil", "--method", "smooth", "--set", "s=soft"],
        "expected a number",
    ),
    "a setting of no method": (
        ["fill", "damaged.bil", "-o", "x.bil", "--set", "s=1.5"],
        "name it with --method",
    ),
    "a recipe that is none": (
        ["fill", "damaged.bil", "-o", "x.bil", "--recipe", "text.xyz"],
        "OUT.fill.json",
    ),
    "an unknown budget": (
        ["fill", "damaged.bil", "-o", "x.bil", "--budget", "fsat"],
        "did you mean 'fast'",
    ),
    "a bare setting": (["fill", "damaged.bil", "-o", "x.bil", "--set", "s"], "key=value"),
    "an absent nodata": (
        ["fill", "damaged.bil", "-o", "x.bil", "--nodata", "-1"],
        "occurs nowhere",
    ),
    "an impossible nodata": (
        ["fill", "damaged.bil", "-o", "x.bil", "--nodata", "1e9"],
        "cannot occur in int16",
    ),
    "everything missing": (
        ["fill", "damaged.bil", "-o", "x.bil", "--missing", "all.npy"],
        "every entry is missing",
    ),
    "a mask of the wrong shape": (
        ["fill", "damaged.bil", "-o", "x.bil", "--missing", "small.npy"],
        "(5, 7)",
    ),
    "two masks": (
        ["fill", "damaged.bil", "-o", "x.bil", "--missing", "all.npy", "--observed", "all.npy"],
        "give one of them",
    ),
    "refining without weights": (
        ["fill", "damaged.bil", "-o", "x.bil", "--refine", "5"],
        "goes with trained --weights",
    ),
    "weights for another method": (
        ["fill", "damaged.bil", "-o", "x.bil", "--method", "smooth", "--weights", "m"],
        "--method hydiff-ei",
    ),
    "a negative noise": (
        ["fill", "damaged.bil", "-o", "x.bil", "--sigma-y=-3"],
        "sigma_y",
    ),
    "a setting of no method, by its own option": (
        ["fill", "damaged.bil", "-o", "x.bil", "--engine", "eager"],
        "hydiff: --engine: settings belong to one method",
    ),
    "denoising without noise": (
        ["fill", "damaged.bil", "-o", "x.bil", "--denoise"],
        "--denoise takes off noise: say how much, or --sigma-y auto",
    ),
    "a negative seed": (["fill", "damaged.bil", "-o", "x.bil", "--seed=-1"], "--seed -1"),
    "a negative seed of damage": (
        ["simulate", "clean.bil", "-o", "x.bil", "--seed=-1"],
        "--seed -1",
    ),
    "negative noise to add": (
        ["simulate", "clean.bil", "-o", "x.bil", "--noise=-1"],
        "--noise -1: expected a share",
    ),
    "a header of the input": (
        ["convert", "damaged.hdr", "damaged.bsq", "--overwrite"],
        "damaged.hdr is one of the inputs",
    ),
    "a header of the input to damage": (
        ["simulate", "clean.bil", "-o", "clean.bsq", "--overwrite"],
        "clean.hdr is one of the inputs",
    ),
    "a header of another file": (["convert", "damaged.bil", "clean.bsq"], "clean.hdr exists"),
    "a mask over the input": (
        ["mask", "other.npy", "-o", "other.npy", "--overwrite"],
        "is one of the inputs",
    ),
    "a band mask over the input": (
        ["fill", "damaged.bil", "-o", "x.bil", "--band-mask", "damaged.bil", "--overwrite"],
        "--band-mask",
    ),
    "a preview of what is refused": (
        ["fill", "damaged.bil", "-o", "clean.bil", "--dry-run"],
        "--overwrite",
    ),
    "the input as output": (["fill", "damaged.bil", "-o", "damaged.bil"], "is the input itself"),
    "an existing output": (["fill", "damaged.bil", "-o", "clean.bil"], "--overwrite"),
    "a folder that is not there": (["fill", "damaged.bil", "-o", "no/x.bil"], "not a folder"),
    "an unknown suffix": (["convert", "damaged.bil", "x.jpeg2"], "suffix"),
    "an output without a name": (["fill", "damaged.bil", "-o", ""], "expected a file or a folder"),
    "an output on stdout": (["fill", "damaged.bil", "-o", "-"], "expected a file or a folder"),
    "a copy on stdout": (["convert", "damaged.bil", "-"], "expected a file or a folder"),
    "a folder for one cube": (["convert", "damaged.bil", "new/"], "new/ names a folder"),
    "a folder for a damaged cube": (["simulate", "clean.bil", "-o", "new/"], "names a folder"),
    "a folder for a mask": (["mask", "damaged.bil", "-o", "new.csv/"], "names a folder"),
    "a folder for a copy": (["mask", "clean.bil", "--bands", "-o", "new/"], "names a folder"),
    "a folder for a page": (["report", "clean.bil", "-o", "new/"], "names a folder"),
    "a folder for a table": (["propagate", "clean.bil", "-o", "a.csv/"], "names a folder"),
    "an unknown mask": (
        ["simulate", "clean.bil", "-o", "x.bil", "--mask", "strips"],
        "did you mean 'stripes'",
    ),
    "a truncated file": (["info", "short.bil"], "short.bil"),
    "a mask for a cube": (["info", "packed.npz"], "--missing packed.npz"),
    "a detector of a cube that names none": (
        ["fill", "damaged.bil", "-o", "x.bil", "--sigma-y", "VNIR=1,SWIR=2"],
        "the cube names none: give one number",
    ),
    "a file of another kind": (["info", "text.xyz"], "text.xyz"),
    "cubes of different shapes": (["score", "clean.bil", "other.npy"], "shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_line_and_nothing_is_left(case, scene):
    np.save(scene / "all.npy", np.ones((24, 24), bool))
    np.save(scene / "small.npy", np.ones((5, 7), bool))
    np.save(scene / "other.npy", np.ones((9, 9, 4)))
    masks.write(np.ones((12, 24, 24), bool), scene / "packed.npz", "missing")
    (scene / "text.xyz").write_text("hello")
    (scene / "short.hdr").write_bytes((scene / "clean.hdr").read_bytes())
    (scene / "short.bil").write_bytes((scene / "clean.bil").read_bytes()[:-100])
    before = {p: p.read_bytes() for p in scene.iterdir()}
    args, words = REFUSED[case]
    assert words in refused(*args, cwd=scene)
    assert {p: p.read_bytes() for p in scene.iterdir()} == before


def test_a_full_disk_leaves_nothing_behind(scene):
    """The shell's file size limit stands for the disk: writing fails in the middle of the cube."""
    before = sorted(scene.iterdir())
    fill = ["fill", "damaged.bil", "-o", "x.bil", *PLAIN]
    done = process(*fill, cwd=scene, code=2, limit=4096)
    assert "cannot write x.bil" in one_line(done.stderr)
    assert sorted(scene.iterdir()) == before


LIGHT = """
import sys
from hydiff.cli import main
for line in ("--help", "info damaged.bil", "score clean.bil clean.bil", "convert clean.bil c.npy"):
    sys.argv = ["hydiff", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
    print(*{m.split(".")[0] for m in sys.modules}, file=sys.stderr)
"""


def test_light_commands_never_import_torch(scene):
    """One after the other in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=scene, capture_output=True, text=True, check=True
    )
    first, *_, last = (set(line.split()) for line in done.stderr.splitlines() if "numpy" in line)
    assert not last & {"torch", "matplotlib", "skimage"} and not first & HEAVY
    assert (scene / "c.npy").exists()


def test_info_on_a_large_file_is_quick_and_small(tmp_path):
    """1.8 GB of ENVI, sparse on disk: it looks at a small share of it, in under 300 MB."""
    lines, samples, bands = 1280, 1242, 285
    (tmp_path / "big.hdr").write_text(
        f"ENVI\nsamples = {samples}\nlines = {lines}\nbands = {bands}\nheader offset = 0\n"
        "file type = ENVI Standard\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
        "data ignore value = -9999\n"
    )
    with (tmp_path / "big.img").open("wb") as file:
        file.truncate(lines * samples * bands * 4)
    probe = (
        "import sys; import hydiff.cli\n"
        "from hydiff import io; from hydiff.gaps.describe import facts\n"
        "import spectral, scipy.io\n"
        "def held(what):\n"  # of mapped files too, as far as they were read; in kB
        "    return int(open('/proc/self/status').read().split(what)[1].split()[0])\n"
        "before = held('VmRSS:'); facts(io.read(sys.argv[1]))\n"
        "print(held('VmHWM:') - before, held('VmHWM:'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, tmp_path / "big.img"],
        capture_output=True,
        text=True,
        check=True,
    )
    read, kilobytes = map(int, done.stdout.split())
    assert read < 0.1 * lines * samples * bands * 4 / 1024 and kilobytes < 300_000
    assert "1280 rows" in hydiff_("info", tmp_path / "big.hdr").stdout


def test_the_demo_writes_what_it_names(tmp_path, monkeypatch):
    part = bundled.sample().window(rows=slice(0, 60), cols=slice(0, 60))
    monkeypatch.setattr(bundled, "sample", lambda: part)  # the whole scene takes ten seconds
    (tmp_path / "demo").mkdir()
    stale = [tmp_path / "demo" / name for name in ("filled.tif", "report.html", "before-after.png")]
    for path in stale:  # twice is fine
        path.write_text("of an earlier demo")
    done = hydiff_("demo", "-o", "demo", "--method", "biharmonic", cwd=tmp_path)
    named = [tmp_path / line.split()[1] for line in done.stdout.splitlines()[-5:]]
    assert all(path.stat().st_size > 100 for path in {*named, *stale})
    assert "MPSNR" in done.stdout
    assert "--clip observed" in done.stderr  # what to type is an option, not an argument


def test_a_demo_that_cannot_be_written_is_refused_before_the_fill(tmp_path):
    (tmp_path / "file").touch()
    refusals = {
        ("-o", "file"): "cannot write file: a file of that name is in the way",
        ("--method", "smoth"): "did you mean 'smooth'",
    }
    for options, words in refusals.items():
        done = hydiff_("demo", *options, cwd=tmp_path, code=2)
        assert words in done.stderr and "filled" not in done.stderr and not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


LEFT_BEHIND = """
import asyncio, gc, logging, sys
from hydiff import cli
if sys.argv[1] == "filtered":
    logging.getLogger("asyncio").addFilter(cli._matters)
loop = asyncio.new_event_loop()
task = loop.create_task(asyncio.sleep(9))
loop.call_soon(loop.stop)
loop.run_forever()
loop._ready.clear(); loop._scheduled.clear()
del task
gc.collect()
loop.call_exception_handler({"message": "something else"})
"""


def test_tasks_that_a_library_left_behind_are_not_shown():
    plain, filtered = (
        subprocess.run(
            [sys.executable, "-c", LEFT_BEHIND, how], capture_output=True, text=True, check=True
        ).stderr
        for how in ("plain", "filtered")
    )
    assert "pending" in plain and "something else" in plain
    assert "pending" not in filtered and "something else" in filtered


def test_the_command_line_starts_without_the_modules_that_windows_lacks():
    code = "import sys; sys.modules['resource'] = None; sys.argv[1:] = ['--version']\n"
    code += "from hydiff.cli import limited, main; assert not limited.is_limited(); main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("hydiff "), done.stderr
