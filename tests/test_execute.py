"""Laws of one fill from file to file: what lies beside it tells of it, and of no other."""

import resource
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hydiff
from hydiff.cube import Cube
from hydiff.errors import BadValue, HydiffError, OutputError
from hydiff.io import provenance
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.plan import make_plan
from hydiff.scale.scene import Limits

WHOLE, TILES = Limits(8e9), Limits(8e9, tile=16)
BARRED = Request(method="smooth", outside="fill", settings={"error_bars": True}, report=True)
LINEAR = Request(method="linear", outside="fill")


@pytest.fixture(scope="module")
def made():
    """The folders below, by their format: each is made once, and every test gets a copy."""
    return {}


@pytest.fixture(params=[".tif", ".bsq", ".zarr"])
def folder(tmp_path, tmp_path_factory, tiny, stripes, request, made):
    """A file with gaps, one without, and a fill of the first with all companions there can be."""
    if request.param not in made:
        made[request.param] = tmp_path_factory.mktemp("fill")
        make_fill(made[request.param], tiny, stripes, request.param)
    shutil.copytree(made[request.param], tmp_path, dirs_exist_ok=True)
    return tmp_path


def make_fill(folder, tiny, stripes, suffix):
    values = (100 * tiny).astype(np.float32)
    damaged = np.where(stripes, values, np.float32(-9))
    hydiff.write(Cube(damaged, nodata=-9.0), folder / f"in{suffix}")
    hydiff.write(Cube(values, nodata=-9.0), folder / f"full{suffix}")
    execute.fill_file(folder / f"in{suffix}", folder / f"out{suffix}", BARRED, WHOLE)
    assert beside(folder) == layers(suffix, "flags", "why", "sigma") | {"fill.json", "report.html"}


def layers(suffix, *names):
    """The files of layers beside a fill of this format; those of Zarr are in it."""
    ends = {".tif": [".tif"], ".bsq": [".bsq", ".hdr"], ".zarr": []}[suffix]
    return {name + end for name in names for end in ends}


def one(folder, name):
    """The cube of that name, whatever its format."""
    return next(p for p in folder.iterdir() if p.stem == name and p.suffix != ".hdr")


def beside(folder):
    """What lies beside the fill, by how it ends."""
    out = one(folder, "out").name + "."
    return {p.name.removeprefix(out) for p in folder.iterdir() if p.name.startswith(out)}


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@contextmanager
def full_disk(nbytes):
    """No file can grow beyond so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_an_overwrite_leaves_the_companions_of_the_new_fill_alone(folder, bounds, tiny):
    out = one(folder, "out")
    again = execute.fill_file(one(folder, "in"), out, LINEAR, bounds, overwrite=True)
    assert beside(folder) == layers(out.suffix, "flags", "why") | {"fill.json"}
    assert provenance.companions(out, tiny.shape).keys() == {"filled", "flags", "why"}
    assert all(path.exists() for path in again.made)
    if bounds is WHOLE:  # and back again
        execute.fill_file(one(folder, "in"), out, BARRED, bounds, overwrite=True)
        every = layers(out.suffix, "flags", "why", "sigma")
        assert beside(folder) == every | {"fill.json", "report.html"}


def test_a_copy_without_gaps_leaves_nothing_of_the_fill_before(folder, tiny):
    out = one(folder, "out")
    execute.fill_file(one(folder, "full"), out, LINEAR, WHOLE, overwrite=True)
    assert beside(folder) == {"fill.json"}
    assert not provenance.companions(out, tiny.shape)
    assert np.array_equal(hydiff.read(out).values, hydiff.read(one(folder, "full")).values)


@pytest.mark.parametrize("nbytes", [16, 300], ids=["at the cube", "further on"])
@pytest.mark.parametrize(
    ("source", "bounds"),
    [("in", WHOLE), ("in", TILES), ("full", WHOLE)],
    ids=["whole", "tiles", "copy"],
)
def test_an_overwrite_that_fails_leaves_the_old_fill_whole(folder, source, bounds, nbytes):
    before = contents(folder)
    with full_disk(nbytes), pytest.raises(OutputError, match="cannot write"):
        execute.fill_file(one(folder, source), one(folder, "out"), LINEAR, bounds, overwrite=True)
    assert {p: b for p, b in contents(folder).items() if ".tiles" not in str(p)} == before


def test_a_companion_left_alone_is_in_the_way(folder):
    """Beside a new fill it would tell of it: it is not kept, and not removed unasked."""
    out = one(folder, "out")
    for path in provenance.beside(out)[:-1]:
        path.unlink(missing_ok=True)
    out.rename(folder / f"gone{out.suffix}")
    (folder / "out.hdr").unlink(missing_ok=True)  # of ENVI: in the way by itself
    before = contents(folder)
    with pytest.raises(OutputError, match=r"report\.html exists; pass `overwrite=True`"):
        execute.fill_file(one(folder, "in"), out, LINEAR, WHOLE)
    result = hydiff.fill(hydiff.read(one(folder, "in")), method="linear")
    with pytest.raises(OutputError, match=r"report\.html exists; pass `overwrite=True`"):
        provenance.save(result, out)
    assert contents(folder) == before


def test_a_report_of_no_fill_is_declined_in_words(folder):
    message = []
    order = Request(method="linear", report=True)
    done = execute.fill_file(
        one(folder, "full"), folder / "same.tif", order, WHOLE, say=message.append
    )
    assert [line for line in message if "no report" in line and "has no gaps" in line]
    assert not provenance.report_path(folder / "same.tif").exists()
    assert all(path.exists() for path in done.made)


# --- the input, and what belongs to it ------------------------------------------------------------


@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
@pytest.mark.parametrize("outside", ["fill", "keep"])
def test_nothing_to_fill_in_place_leaves_the_record_of_the_fill_before(folder, bounds, outside):
    """Estimates must not pass as measurements because somebody filled twice."""
    path, order = one(folder, "in"), Request(method="smooth", outside=outside)
    first = execute.fill_file(path, path, order, bounds, overwrite=True)
    assert first.record["entries"]["filled"] > 0
    before = contents(folder)
    again = execute.fill_file(path, path, order, bounds, overwrite=True)
    assert contents(folder) == before and not again.made
    assert again.record["entries"]["filled"] == 0


@pytest.fixture
def envi(tmp_path, tiny, stripes):
    """An ENVI file with gaps."""
    damaged = np.where(stripes, 100 * tiny, -9).astype(np.float32)
    hydiff.write(Cube(damaged, nodata=-9.0), tmp_path / "scene.img")
    return tmp_path / "scene.img"


@pytest.mark.parametrize("named", ["scene.img", "scene.hdr"])
@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_header_of_the_input_is_never_replaced_alone(envi, named, bounds, overwrite):
    before = contents(envi.parent)
    with pytest.raises(OutputError, match=r"scene\.hdr is one of the inputs, or a part of it"):
        execute.fill_file(
            envi.with_name(named), envi.with_name("scene.bil"), LINEAR, bounds, overwrite=overwrite
        )
    assert contents(envi.parent) == before


@pytest.mark.parametrize(
    ("output", "taken"), [("x.bil", "x.hdr"), ("x.hdr", "x.img"), ("x.npy", "x.npy.json")]
)
@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_a_partner_in_the_way_is_reported_before_the_work(envi, output, taken, bounds):
    envi.with_name(taken).write_text("of another file")
    before, message = contents(envi.parent), []
    with pytest.raises(OutputError, match=f"{taken} exists; pass `overwrite=True`"):
        order = replace(LINEAR, unmarked=True)
        execute.fill_file(envi, envi.with_name(output), order, bounds, say=message.append)
    assert contents(envi.parent) == before and not message


def test_a_file_of_another_format_may_share_the_stem(envi):
    execute.fill_file(envi, envi.with_name("scene.tif"), LINEAR, WHOLE)
    execute.fill_file(envi, envi, LINEAR, WHOLE, overwrite=True)  # in place: both files are new
    assert not (np.asarray(hydiff.read(envi).values) == -9).any()


def test_a_companion_of_the_output_is_not_its_input(envi, tiny):
    made = execute.fill_file(envi, envi.with_name("x.tif"), LINEAR, WHOLE).made
    mask = next(path for path in made if path.name.endswith(".flags.tif"))
    with pytest.raises(OutputError, match="is one of the inputs"):
        execute.fill_file(
            mask, envi.with_name("x.tif"), Request(method="nearest"), WHOLE, overwrite=True
        )  # fmt: skip


# --- refused before the work, and by a preview ----------------------------------------------------

UNABLE = {
    "a folder that is not there": ("no/x.tif", {}, None, "not a folder"),
    "an unknown suffix": ("x.foo", {}, None, "unknown suffix"),
    "a product of another format": ("x.h5", {}, None, r"only written as a copy.*name it x\.tif"),
    "an existing output": ("scene.tif", {}, None, "`overwrite=True`"),
    "an unknown budget": ("x.tif", {"budget": "foo"}, None, "budget"),
    "a negative noise": ("x.tif", {"sigma_y": -3.0}, None, "sigma_y"),
    "a negative share": ("x.tif", {"sigma_y": "-3%"}, None, "sigma_y"),
    "a bound of 0": ("x.tif", {"max_error": 0.0}, None, "max_error"),
    "a negative seed": ("x.tif", {"seed": -1}, None, "`seed=-1`"),
    "an unknown device": ("x.tif", {"device": "tpu"}, None, "device"),
    "an unknown choice": ("x.tif", {"outside": "maybe"}, None, "outside"),
    "a band mask in no folder": ("x.tif", {}, "no/m.nc", "not a folder"),
    "a band mask of another kind": ("x.tif", {}, "m.npy", "`band_mask=`"),
    "a band mask that is the output": ("x.nc", {}, "x.nc", "is the output already"),
    "a band mask that exists": ("x.tif", {}, "taken.nc", "`overwrite=True`"),
}


@pytest.mark.parametrize("case", UNABLE)
@pytest.mark.parametrize("bounds", [WHOLE, TILES], ids=["whole", "tiles"])
def test_a_preview_refuses_what_the_fill_does_before_anything_is_done(
    envi, case, bounds, monkeypatch
):
    monkeypatch.chdir(envi.parent)
    for name in ("scene.tif", "taken.nc"):
        envi.with_name(name).write_text("something")
    before = contents(envi.parent)
    output, asked, band_mask, words = UNABLE[case]
    order, more, said = Request(**asked), {"band_mask": band_mask and Path(band_mask)}, []
    for act in (make_plan, execute.fill_file):
        with pytest.raises(HydiffError, match=words):
            act(envi, Path(output), order, bounds, say=said.append, **more)
    assert contents(envi.parent) == before and not said
    assert not list(envi.parent.glob("*.tiles"))


def test_a_band_mask_does_not_replace_what_is_read(envi, stripes):
    mask = envi.with_name("m.nc")
    hydiff.io.write_band_mask(np.broadcast_to(~stripes, (12, 24, 24)), mask)
    order = Request(method="linear", quality=mask)
    with pytest.raises(OutputError, match="one of the inputs"):
        execute.fill_file(
            envi, envi.with_name("x.tif"), order, WHOLE, band_mask=mask, overwrite=True
        )
    assert not envi.with_name("x.tif").exists()


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5])
@pytest.mark.parametrize("method", ["auto", "smooth", "linear"])
def test_a_seed_that_is_none_is_refused_in_words(tiny, stripes, seed, method):
    with pytest.raises(BadValue, match="expected a whole number"):
        hydiff.fill(tiny, stripes, method=method, seed=seed)
