"""Hostile files: read or refused in one line, and nothing run, reached or touched."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import h5py
import hypothesis
import numcodecs
import numpy as np
import pytest
from hypothesis import strategies as st
from rasterio.crs import CRS

import elsewhere
import fuzz
import hostile
import products
import tracing
from hydiff import errors, io
from hydiff.auto import read_recipe
from hydiff.errors import CubeFormatError, HydiffError
from hydiff.gaps import describe
from hydiff.io import blosc, heaps, maps, matfile


@pytest.fixture(scope="module")
def seeds() -> list[hostile.Input]:
    return fuzz.good()


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no input may show."""
    return elsewhere.secrets(tmp_path_factory.mktemp("beside") / "secret")


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> list[hostile.Input]:
    return hostile.crafted(tmp_path_factory.mktemp("crafted"), secret)


def test_the_good_files_are_read(seeds: list[hostile.Input], tmp_path: Path) -> None:
    """A door that is never open proves nothing: each has a file that passes without an error."""
    tried = [(given, given.door) for given in seeds]
    cubes = {Path(given.opened).suffix: given for given in seeds if given.door == "cube"}
    tried += [(given, "fill") for given in cubes.values()]
    assert {door for _, door in tried} == set(hostile.DOORS) and len(cubes) > 8
    for i, (given, door) in enumerate(tried):
        (tmp_path / f"{i}-out").mkdir()
        path = hostile.put(given, tmp_path / str(i))
        hostile.DOORS[door](path, tmp_path / f"{i}-out")


def test_what_is_made_by_hand_is_refused(
    crafted: list[hostile.Input], secret: Path, tmp_path: Path
) -> None:
    """In one process that may take 500 MB more than it has and two seconds of CPU for each."""
    before = fuzz.contents(secret)
    child = os.fork()
    if child == 0:
        os._exit(_refuses_all(crafted, tmp_path))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == 0, f"{crafted[code - 1].name}: see above" if code > 0 else f"signal {-code}"
    assert fuzz.contents(secret) == before


def _refuses_all(crafted: list[hostile.Input], folder: Path) -> int:
    """0, or 1 + the number of the first input that was not refused as it should."""
    fuzz._warm_up([])
    for i, given in enumerate(crafted):
        path = hostile.put(given, folder / str(i))
        idle = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (idle + fuzz.MEMORY, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_VIRTUAL, fuzz.SECONDS)  # ends the process
        try:
            hostile.DOORS[given.door](path, folder / "nowhere")
            print("read:", given.name)
        except HydiffError as error:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if "\n" not in str(error) and len(str(error)) < hostile.LONGEST:
                continue
        except BaseException as error:
            print(given.name, repr(error))
        return i + 1
    return 0


def test_a_short_campaign_finds_nothing(seeds: list[hostile.Input]) -> None:
    with fuzz.own_folder() as box:
        tried, defects = fuzz.campaign(seeds, 0, 400, 1, box)
    assert tried == 400
    assert not defects, defects[:3]


def test_files_that_name_other_files_lead_nowhere() -> None:
    """Each of them as it was made, and as many mutants: the kernel sees what is opened and asked.

    Opened is what belongs to the input, its output, a temporary folder, and Python's own files.
    """
    if shutil.which("strace") is None:
        pytest.skip("no strace to see with: apt-get install strace")
    count = ["--only", fuzz.LEADS, "--inputs", "80", "--workers", "1"]
    code, escapes = fuzz.traced(count)
    assert not escapes, escapes[:5]
    assert code == 0


def test_the_trace_sees_what_leads_elsewhere(tmp_path: Path) -> None:
    """Reading, writing, and calling a host, by C libraries that ask no audit hook."""
    if shutil.which("strace") is None:
        pytest.skip("no strace to see with: apt-get install strace")
    code = """
import ctypes, socket, sys
import tracing
libc, secret, box = ctypes.CDLL(None), sys.argv[1].encode(), sys.argv[2].encode()
libc.open(secret, 0)  # before the work begins
with tracing.at_work(7):
    libc.open(box + b"/in/a", 0), libc.creat(box + b"/out/b", 0o600)
with tracing.at_work(8):
    libc.open(secret, 0)
with tracing.at_work(9):
    libc.open(box + b"/in/../../secret", 0), libc.open(box + b"/in/a", 2)
with tracing.at_work(10), socket.socket() as link:
    link.connect_ex(("127.0.0.1", 9))
"""
    for name in ("secret", "0/in/a", "0/out/"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch() if name[-1] != "/" else (tmp_path / name).mkdir()
    script = [sys.executable, "-c", code, str(tmp_path / "secret"), str(tmp_path / "0")]
    log = tmp_path / "calls"
    subprocess.run(tracing.traced(script, log), check=True, cwd=Path(__file__).parent)
    inside = f"{tmp_path}/0/"
    found = list(tracing.escapes(log.read_text().splitlines(), (f"{inside}in",), (f"{inside}out",)))
    secret = f"openat of {tmp_path}/secret"
    assert [e for e in found if "connect" not in e.what] == [
        (8, secret),
        (9, secret),
        (9, f"openat of {tmp_path}/0/in/a, for writing"),
    ]
    assert any(e.index == 10 and "127.0.0.1" in e.what for e in found)


def test_a_map_that_names_a_file_is_not_handed_to_gdal() -> None:
    whole = CRS.from_epsg(3857).to_wkt(version="WKT1_GDAL")
    assert "nadgrids=@null" in whole
    for text in (whole, "EPSG:32633", "+proj=utm +zone=33", CRS.from_epsg(25833).to_wkt()):
        assert maps.crs_of(text, Path("a")) == CRS.from_user_input(text)
    for text in ("/etc/passwd", "http://127.0.0.1:9/x", "a.prj", "file:///etc/passwd", "x[", ""):
        with pytest.raises(CubeFormatError, match="expected a coordinate reference system"):
            maps.crs_of(text, Path("a"))
    for text in ("+proj=longlat +nadgrids=@/x/y", "+init=x:1", 'BOUNDCRS[PARAMETERFILE["a","/x"]]'):
        with pytest.raises(CubeFormatError, match="names another file"):
            maps.crs_of(text, Path("a"))


def test_a_recipe_that_names_a_file_of_weights_is_refused(seeds: list[hostile.Input]) -> None:
    files = next(given for given in seeds if given.name == "recipe").files
    recipe = json.loads(files["f.npy.fill.json"])["recipe"]
    read_recipe(recipe)
    recipe["candidates"][0] |= {"method": "hydiff-ei", "settings": {"weights": "w.safetensors"}}
    with pytest.raises(HydiffError, match="settings"):
        read_recipe(recipe)


def test_the_campaign_sees_what_is_wrong(
    seeds: list[hostile.Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of misdeed, committed by a door: code run, a file written, a process that dies."""

    def misdeed(path: Path, made: Path) -> None:
        deeds = (
            lambda: os.system("true"),
            lambda: Path("/tmp/hydiff-canary").write_text("x"),
            lambda: os.abort(),
            lambda: 1 / 0,
            lambda: path.write_bytes(b"changed"),
        )
        if path.read_bytes() != content:  # the good file warms the workers up
            deeds[path.stat().st_size % len(deeds)]()

    chosen = [given for given in seeds if given.door == "checkpoint"]
    content = chosen[0].files["c"]
    monkeypatch.setitem(hostile.DOORS, "checkpoint", misdeed)
    with fuzz.own_folder() as box:
        _, defects = fuzz.campaign(chosen, 0, 40, 1, box)
    Path("/tmp/hydiff-canary").unlink(missing_ok=True)
    messages = " ".join(d.message for d in defects)
    for part in ("os.system", "opened for writing", "exit code -6", "ZeroDivision", "was changed"):
        assert part in messages


def test_an_input_is_a_function_of_its_number(seeds: list[hostile.Input]) -> None:
    one, again, other = (fuzz.inputs_of(3, seeds, i) for i in (117, 117, 118))
    assert one == again != other


# --- single laws ----------------------------------------------------------------------------------


def test_messages_are_one_line_that_a_terminal_can_show() -> None:
    error = CubeFormatError("a\nb\x1b[31m\u202e" + "x" * 100_000 + "; fetch it again")
    assert "\n" not in str(error) and "\x1b" not in str(error) and "\u202e" not in str(error)
    assert len(str(error)) <= errors.LONGEST and str(error).endswith("; fetch it again")
    assert str(CubeFormatError("σ_y ≤ 3")) == "σ_y ≤ 3"


def test_links_inside_a_file_are_followed(tmp_path: Path) -> None:
    """Soft and hard links are the file's own; only what leads out of it is refused."""
    path = products.emit(tmp_path / "a.nc", np.ones(hostile.SHAPE, "f4"))
    with h5py.File(path, "r+") as file:
        file.move("reflectance", "elsewhere")
        file["reflectance"] = h5py.SoftLink("/elsewhere")
        file["sensor_band_parameters/same"] = file["sensor_band_parameters/wavelengths"]
    assert (np.asarray(io.read(path).values) == 1).all()


@pytest.mark.parametrize("userblock", [0, 512, 1024])
def test_the_heaps_of_good_files_are_accepted_and_endless_ones_refused(
    tmp_path: Path, userblock: int
) -> None:
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=userblock) as file:
        for i in range(300):  # several heaps, some full
            file.attrs[f"text {i}"] = "x" * i
        file["names"] = [f"a name of some length {i}" for i in range(500)]
        del file.attrs["text 7"], file.attrs["text 200"]
    heaps.check(tmp_path / "a.h5")
    data = bytearray((tmp_path / "a.h5").read_bytes())
    at = data.index(heaps.MARK) + 16
    data[at : at + 16] = bytes(16)
    (tmp_path / "b.h5").write_bytes(data)
    with pytest.raises(CubeFormatError, match="an object without an end"):
        heaps.check(tmp_path / "b.h5")


def test_the_skeleton_of_good_mat_files_is_accepted(tmp_path: Path) -> None:
    from scipy.io import savemat

    nested = {"a": 1.0, "b": {"c": np.arange(3), "d": np.array([[1, "x"], [2.5, {}]], object)}}
    arrays = {"cube": np.zeros((3, 4, 5), ">i2"), "z": np.array([1 + 2j]), "t": "text", "s": nested}
    for packed in (False, True):
        savemat(tmp_path / "a.mat", arrays, do_compression=packed)
        matfile.check(tmp_path / "a.mat")
        savemat(tmp_path / "v4.mat", {"cube": np.zeros((3, 4))}, format="4")
        matfile.check(tmp_path / "v4.mat")


def test_a_blosc_chunk_that_lies_about_its_length_is_refused(tmp_path: Path) -> None:
    """The library would read beyond it, or end the process, wherever zarr hides such chunks."""
    lying, ways = struct.pack("<i", 0x43447000), hostile.packed_zarrs()
    hostile._zarr(tmp_path / "2.zarr", 2)
    for name in ("blosc", "sharded"):
        hostile._zarr(tmp_path / f"{name}.zarr", 3, **ways[name][1])
    for chunk in [*tmp_path.glob("*/cube/c/*/*/*"), *tmp_path.glob("2.zarr/cube/0.*")]:
        data = chunk.read_bytes()
        assert data[:1] == b"\x02"  # a chunk of Blosc, in a shard the first of several
        chunk.write_bytes(data[:12] + lying + data[16:])
    code = """
import sys, hydiff
for path in sys.argv[1:]:
    try:
        hydiff.read(path).load()
    except hydiff.errors.CubeFormatError as error:
        print(error)
"""
    script = [sys.executable, "-c", code, *map(str, tmp_path.iterdir())]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("a Blosc chunk that should have 1128558592 bytes but has" in line for line in lines)


def test_the_input_that_ended_the_process_is_refused_by_the_program() -> None:
    """Seed 5, input 39241 of a campaign: a chunk cut and spliced."""
    store = hostile.CORPUS / "cube-blosc-length" / "a.zarr"
    script = [sys.executable, "-m", "hydiff", "info", str(store)]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and "should have 1128558592 bytes" in done.stderr


def test_a_small_cube_of_many_chunks_is_sampled(tmp_path: Path) -> None:
    """Seed 11, input 43935: 80,000 chunks, none of them there, took twelve seconds to look at."""
    hostile._zarr(tmp_path / "a.zarr", 2)
    header = tmp_path / "a.zarr" / "cube" / ".zarray"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"shape": [100_000, 6, 7]}))
    began = time.process_time()
    assert "sampled chunks" in describe.facts(io.read(tmp_path / "a.zarr"))["values"]["sample"]
    assert time.process_time() - began < fuzz.SECONDS


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
@hypothesis.given(
    name=st.sampled_from(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]),
    shuffle=st.sampled_from([-1, 0, 1, 2]),
    level=st.integers(0, 9),
    block=st.sampled_from([0, 1, 256, 1 << 16]),
    dtype=st.sampled_from(["u1", "<i2", ">f4", "f8"]),
    count=st.integers(1, 5000),
)
def test_whatever_blosc_writes_is_accepted(name, shuffle, level, block, dtype, count) -> None:
    array = np.arange(count).astype(dtype)
    packed = numcodecs.Blosc(name, level, shuffle, block).encode(array)
    blosc.check(packed)
    assert bytes(blosc.Blosc().decode(packed)) == array.tobytes()
    for bad in (packed[:-1], packed + b"x", packed[:10], b"\x01" + packed[1:]):
        with pytest.raises(ValueError, match="a Blosc chunk"):
            blosc.Blosc().decode(bad)


@pytest.mark.parametrize("packed", [False, True])
def test_unknown_types_of_numbers_in_mat_files_are_refused(tmp_path: Path, packed: bool) -> None:
    """scipy takes the code for an index and ends the process."""
    import zlib

    from scipy.io import savemat

    savemat(tmp_path / "a.mat", {"cube": np.ones((3, 4, 5), "i2")})
    data = (tmp_path / "a.mat").read_bytes()
    at = data.index(b"cube") + 4
    assert data[at] == 3  # miINT16
    for code in (0, 8, 14, 255):
        bad = data[:at] + bytes([code]) + data[at + 1 :]
        if packed:
            body = zlib.compress(bad[128:])
            bad = bad[:128] + b"\x0f\0\0\0" + len(body).to_bytes(4, "little") + body
        (tmp_path / "bad.mat").write_bytes(bad)
        with pytest.raises(CubeFormatError, match="damaged or truncated"):
            np.asarray(io.read(tmp_path / "bad.mat").values)
