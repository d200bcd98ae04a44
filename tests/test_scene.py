"""Laws of scenes: tiles change nothing that matters, memory is kept, nothing done is lost."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import command
import hydiff
from hydiff.cube import Cube, Lazy
from hydiff.errors import BadValue, HydiffError, NothingObserved, OutputError
from hydiff.gaps import mask, rule
from hydiff.io import axes as ax
from hydiff.io import blocks, bundled, provenance, threads
from hydiff.io.fill_layers import layer_named
from hydiff.request import Request
from hydiff.scale import assemble, bits, early, execute, layout, ledger, scene, tiles
from hydiff.scale.plan import make_plan
from hydiff.scale.scene import Limits
from hydiff.workers import Outcome, in_turn
from hydiff.workers.local import Crew

PLENTY = 8e9
LINEAR, SMOOTH = Request(method="linear"), Request(method="smooth", outside="fill")


def made(shape, rng, scale=100.0):
    """A smooth scene of four spectra, float32."""
    bands, rows, cols = shape
    maps = gaussian_filter(rng.standard_normal((4, rows, cols)), (0, 4, 4))
    spectra = gaussian_filter(rng.standard_normal((bands, 4)), (2, 0))
    texture = 0.02 * rng.standard_normal(shape)
    return (scale * (np.tensordot(spectra, maps, 1) + 0.05 * texture)).astype(np.float32)


def damaged(values, observed, nodata=-9999.0):
    return Cube(np.where(observed, values, nodata).astype(values.dtype), nodata=nodata)


@pytest.fixture
def truth(rng):
    return made((6, 70, 90), rng)


@pytest.fixture
def observed(rng):
    return mask.make_mask("stripes", (6, 70, 90), 0.15, rng)


@pytest.fixture
def file(tmp_path, truth, observed):
    hydiff.write(damaged(truth, observed), tmp_path / "in.bsq")
    return tmp_path / "in.bsq"


def contents(path):
    """All bytes that a fill made, but for the record, which tells times and paths."""
    if path.is_dir():
        return {p.relative_to(path): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    names = [path, *(p for p in sorted(path.parent.glob(f"{path.name}.*")) if layer_named(p))]
    return {p.name: p.read_bytes() for p in names}


def rmse(filled, truth, where):
    return float(np.sqrt(((np.asarray(filled.values) - truth)[where] ** 2).mean()))


# ── tiles and the whole ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "order",
    [
        SMOOTH,
        Request(method="smooth", sigma_y="auto", settings={"error_bars": True}),
        Request(method="idw", max_gap=4),
        Request(budget="fast", seed=3),
    ],
    ids=["smooth", "noise and bars", "max gap", "auto"],
)
def test_one_tile_is_the_plain_fill_to_the_byte(file, order, tmp_path):
    one, plain = tmp_path / "one" / "out.bsq", tmp_path / "plain" / "out.bsq"
    for path in (one, plain):
        path.parent.mkdir()
    done = execute.fill_file(file, one, order, Limits(PLENTY, tile=200))
    result = hydiff.fill(
        hydiff.read(file),
        method=order.method,
        budget=order.budget,
        sigma_y=order.sigma_y,
        seed=order.seed,
        outside=order.outside,
        max_gap=order.max_gap,
        **order.settings,
    )
    provenance.save(result, plain)
    assert contents(one) == contents(plain)
    record = provenance.record(result)
    for key in ("entries", "method", "settings"):
        assert done.record[key] == record[key]
    found, expected = (r["expected"] or {} for r in (done.record, record))
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_header_of_a_linked_file_is_beside_the_link(file, tmp_path):
    """As in collections of links to files that are stored by their hashes."""
    for place, path in (("values", file), ("header", file.with_suffix(".hdr"))):
        (tmp_path / place).mkdir()
        path.rename(tmp_path / place / f"hash{path.suffix}")
        path.symlink_to(tmp_path / place / f"hash{path.suffix}")
    for name, tile in (("whole", None), ("tiles", 90)):
        execute.fill_file(file, tmp_path / f"{name}.bsq", SMOOTH, Limits(PLENTY, tile=tile))
    assert (tmp_path / "tiles.bsq").read_bytes() == (tmp_path / "whole.bsq").read_bytes()


@pytest.mark.parametrize("suffix", [".bsq", ".bip", ".zarr", ".tif"])
def test_many_tiles_fill_like_one_and_touch_nothing_else(truth, observed, tmp_path, suffix):
    source, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    hydiff.write(damaged(truth, observed), source)
    done = execute.fill_file(source, out, SMOOTH, Limits(PLENTY, tile=32))
    before, after = np.asarray(hydiff.read(source).values), np.asarray(hydiff.read(out).values)
    assert done.record["tiles"]["of"] == 9 and not provenance.tiles_path(out).exists()
    assert np.array_equal(after[:, observed], before[:, observed])
    filled = provenance.companions(out, truth.shape)["filled"] > 0
    assert np.array_equal(filled, np.broadcast_to(~observed, truth.shape))
    whole = hydiff.fill(hydiff.read(source), method="smooth", outside="fill")
    missing = np.broadcast_to(~observed, truth.shape)
    assert rmse(hydiff.read(out), truth, missing) < 1.05 * rmse(whole.cube, truth, missing)


def test_neither_the_size_of_tiles_nor_their_borders_show(tmp_path, rng):
    """The small version of benchmarks/scene.py: real texture, a mean over bands, in dB."""
    truth = np.asarray(bundled.sample().values)[::50].astype(np.float32)
    observed = mask.make_mask("stripes", truth.shape, 0.12, rng)
    hydiff.write(damaged(truth, observed), tmp_path / "in.bsq")
    scores = []
    for size in (48, 72, 96):
        out = tmp_path / f"{size}.bsq"
        execute.fill_file(tmp_path / "in.bsq", out, SMOOTH, Limits(PLENTY, tile=size))
        error = (np.asarray(hydiff.read(out).values) - truth).astype(float) ** 2
        scores.append(np.mean(10 * np.log10(error[:, ~observed].mean(axis=1))))
        if size == 48:
            edges = np.arange(145)[:, None] + 0.5 - tiles.grid((145, 145), size).rows[1:-1]
            near = np.abs(edges).min(axis=1) <= tiles.OVERLAP / 2
            border = (near[:, None] | near) & ~observed
            relative = error / error[:, ~observed].mean(axis=1)[:, None, None]
            elsewhere = relative[:, ~border & ~observed].mean()
            # few entries: their own spread is some percent
            assert relative[:, border].mean() < 1.05**2 * elsewhere * 1.1
    assert np.ptp(scores) < 0.1


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX's")
def test_a_full_disk_is_reported_and_resumed_after(file, tmp_path):
    """Where files may not grow any more, writing fails as on a full disk."""
    import resource

    options = ["-o", "out.bsq", "--method", "smooth", "--tile", "16"]
    whole = len(file.read_bytes())

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole // 2, whole // 2))

    done = subprocess.run(
        process(*options), cwd=tmp_path, preexec_fn=limited, capture_output=True, text=True
    )
    assert done.returncode == 2 and "cannot write" in done.stderr, done.stderr
    assert not (tmp_path / "out.bsq").exists()
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out.bsq.tiles").glob("*.npy")}
    assert before
    resumed(*options, cwd=tmp_path)
    execute.fill_file(
        file, tmp_path / "whole.bsq", Request(method="smooth"), Limits(PLENTY, tile=16)
    )
    assert (tmp_path / "out.bsq").read_bytes() == (tmp_path / "whole.bsq").read_bytes()


def test_another_format_may_be_asked_for(file, truth, observed, tmp_path):
    execute.fill_file(file, tmp_path / "out.zarr", SMOOTH, Limits(PLENTY, tile=32))
    execute.fill_file(file, tmp_path / "out.bsq", SMOOTH, Limits(PLENTY, tile=32))
    one, two = (np.asarray(hydiff.read(tmp_path / f"out.{s}").values) for s in ("zarr", "bsq"))
    assert np.array_equal(one, two)


def test_masks_of_single_bands_and_integers(rng, tmp_path):
    truth = np.rint(made((9, 60, 60), rng, 3000.0)).astype(np.int16)
    observed = mask.make_mask("columns", truth.shape, 0.1, rng)
    hydiff.write(damaged(truth, observed, -32768), tmp_path / "in.bil")
    order = Request(method="smooth", outside="fill", settings={"error_bars": True})
    execute.fill_file(tmp_path / "in.bil", tmp_path / "out.bil", order, Limits(PLENTY, tile=24))
    out = hydiff.read(tmp_path / "out.bil")
    values = np.asarray(out.values)
    assert values.dtype == np.int16 and np.array_equal(values[observed], truth[observed])
    assert not (values == -32768).any()
    floor = truth.std()
    assert np.sqrt(((values - truth)[~observed].astype(float) ** 2).mean()) < 0.2 * floor
    filled = ~observed
    bars = provenance.companions(tmp_path / "out.bil", truth.shape)["sigma"]
    assert np.isfinite(bars[filled]).all() and (bars[filled] > 0).all()


def test_a_linear_scene_is_exact(tmp_path):
    truth = np.fromfunction(lambda b, r, c: (b + 1.0) * (r - 2 * c), (3, 80, 70))
    observed = np.ones((80, 70), bool)
    observed[:, 30:35] = observed[40:44] = False
    hydiff.write(damaged(truth, observed, -1e6), tmp_path / "in.bsq")
    execute.fill_file(tmp_path / "in.bsq", tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=20))
    assert np.allclose(np.asarray(hydiff.read(tmp_path / "out.bsq").values), truth, atol=1e-9)


def test_tiles_without_gaps_are_never_computed(truth, tmp_path, monkeypatch):
    observed = np.ones((70, 90), bool)
    observed[5:9, 5:9] = observed[60:63, 80:84] = False
    hydiff.write(damaged(truth, observed), tmp_path / "in.bsq")
    done = execute.fill_file(
        tmp_path / "in.bsq", tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=16)
    )
    assert done.record["tiles"]["filled"] == 2 and done.record["tiles"]["of"] == 30


def test_a_scene_without_gaps_is_a_copy(truth, tmp_path):
    hydiff.write(Cube(truth, nodata=-9999.0), tmp_path / "in.bsq")
    done = execute.fill_file(
        tmp_path / "in.bsq", tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=16)
    )
    assert done.record["entries"]["filled"] == done.record["tiles"]["filled"] == 0
    assert (tmp_path / "out.bsq").read_bytes() == (tmp_path / "in.bsq").read_bytes()


@pytest.mark.parametrize("outside", ["keep", "fill"])
@pytest.mark.parametrize("max_gap", [None, 3.0])
@pytest.mark.parametrize("bad_bands", ["keep", "fill"])
def test_what_to_fill_is_what_the_plain_fill_would(rng, tmp_path, outside, max_gap, bad_bands):
    seen = rng.random((6, 21, 30)) > 0.3
    seen[:3] = seen[0]
    seen[4] = False
    seen[:, :4] = False
    seen[[0, 2, 3], :, -1] = True
    seen[1, :, -1] = False  # a dead column at the edge
    cube = Cube(
        np.where(seen, 1.0, np.nan), good=np.array([1, 0, 1, 1, 1, 0]), wavelengths=np.arange(6.0)
    )
    hydiff.write(cube, tmp_path / "in.bsq")
    choices = {"outside": outside, "max_gap": max_gap, "bad_bands": bad_bands}
    order = Request(method="linear", **choices)
    plan = make_plan(tmp_path / "in.bsq", tmp_path / "out.bsq", order, Limits(PLENTY, tile=16))
    outlook = execute.preview(plan)
    target, left = rule.targets(cube, seen, **choices)
    assert outlook["entries_to_fill"] == target.sum() and outlook["left"] == left


def test_a_given_mask_and_nodata_are_heeded(truth, tmp_path):
    hydiff.write(Cube(truth), tmp_path / "in.bsq")
    given = np.ones((70, 90), bool)
    given[20:24, 30:40] = False
    np.save(tmp_path / "observed.npy", given)
    masked = replace(LINEAR, observed=tmp_path / "observed.npy")
    done = execute.fill_file(
        tmp_path / "in.bsq", tmp_path / "out.bsq", masked, Limits(PLENTY, tile=40)
    )
    assert done.record["entries"]["filled"] == 6 * 40
    with pytest.raises(BadValue, match="occurs nowhere"):
        order = Request(method="linear", nodata=12345.0)
        execute.fill_file(tmp_path / "in.bsq", tmp_path / "no.bsq", order, Limits(PLENTY, tile=40))
    with pytest.raises(NothingObserved):
        np.save(tmp_path / "observed.npy", np.zeros((70, 90), bool))
        execute.fill_file(tmp_path / "in.bsq", tmp_path / "no.bsq", masked, Limits(PLENTY, tile=40))


def test_bits_are_booleans_on_disk(tmp_path, rng):
    flags = rng.random((3, 11, 21)) > 0.5
    bits = scene.Bits(tmp_path / "x.bits", flags.shape).empty()
    for rows in (slice(0, 4), slice(4, 11)):
        bits.put(slice(0, 3), rows, flags[:, rows])
    assert np.array_equal(bits.box((slice(0, 11), slice(0, 21))), flags)
    assert np.array_equal(bits.get(slice(1, 2), slice(3, 9), slice(5, 19)), flags[1:2, 3:9, 5:19])
    assert np.array_equal(bits.plane(2), flags[2]) and bits.total() == flags.sum()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="a system that cannot allocate")
def test_a_mapped_file_has_its_space_from_the_start(tmp_path):
    """A mapped write for which the disk has no space would end the process without a message."""
    bits = scene.Bits(tmp_path / "x.bits", (40, 50, 801)).empty()
    size = 40 * 50 * 101
    assert bits.path.stat().st_size == size and bits.path.stat().st_blocks * 512 >= size
    assert not bits.counts().any()


# ── one recipe ───────────────────────────────────────────────────────────────────────────────────


def test_a_recipe_is_used_by_every_tile_and_can_be_replayed(file, tmp_path):
    order = Request(budget="fast", outside="fill")
    first = execute.fill_file(file, tmp_path / "a.bsq", order, Limits(PLENTY, tile=48))
    recipe = json.loads(provenance.record_path(tmp_path / "a.bsq").read_text())["recipe"]
    assert recipe == first.record["recipe"]
    again = Request(budget="fast", outside="fill", recipe=recipe)
    execute.fill_file(file, tmp_path / "b.bsq", again, Limits(PLENTY, tile=48))
    one, two = contents(tmp_path / "a.bsq"), contents(tmp_path / "b.bsq")
    assert len(one) == 7 and list(one.values()) == list(two.values())


def test_promises_and_limits_are_relative_to_the_scene_not_to_its_tiles(tmp_path, rng):
    """Ground of two levels: within a tile it hardly varies, over the scene it does."""
    maps = gaussian_filter(rng.standard_normal((3, 96, 96)), (0, 3, 3))
    truth = np.tensordot(rng.random((5, 3)), maps, 1) + 20.0 * (np.arange(96) >= 48)
    observed = np.ones((96, 96), bool)
    observed[:, 8:92:20] = observed[:, 9:92:20] = False
    source = tmp_path / "in.bsq"
    hydiff.write(damaged(truth, observed), source)
    order = Request(budget="fast", outside="fill", max_error=0.05)
    whole = hydiff.fill(hydiff.read(source), budget="fast", outside="fill", max_error=0.05)
    done = execute.fill_file(source, tmp_path / "out.bsq", order, Limits(PLENTY, tile=48))
    assert done.record["entries"]["filled"] == pytest.approx(int(whole.filled.sum()), rel=0.15)
    promised = done.record["expected"]["nrmse"]
    assert promised == pytest.approx(whole.expected["nrmse"], rel=0.5)
    assert f"NRMSE {promised:.3g}" in " ".join(done.record["notes"])


def test_noise_that_a_method_does_not_model_is_reported(file, tmp_path):
    order = Request(method="linear", sigma_y=5.0, outside="fill")
    done = execute.fill_file(file, tmp_path / "out.bsq", order, Limits(PLENTY, tile=48))
    assert any("does not model noise" in note for note in done.record["notes"])


# ── networks ─────────────────────────────────────────────────────────────────────────────────────

TINY = {"steps": 4, "channels": 4, "scales": 2}


def test_tiles_filled_side_by_side_are_those_filled_alone(file, tmp_path):
    order = Request(method="hydiff-ei", settings=TINY, outside="fill", device="cpu")
    for name, n in (("one", 1), ("two", 2)):

        def by(work, tasks, at_once, n=n):
            for i in range(0, len(tasks), n):
                some = tasks[i : i + n]
                work(some[0]._replace(tiles=sum((task.tiles for task in some), ())))
                yield from (Outcome(i + k, "") for k in range(len(some)))

        execute.fill_file(file, tmp_path / f"{name}.bsq", order, Limits(PLENTY, tile=48), run=by)
    assert (tmp_path / "one.bsq").read_bytes() == (tmp_path / "two.bsq").read_bytes()


@pytest.mark.parametrize(
    ("device", "memory", "expected"), [("cpu", PLENTY, 1), ("cuda", PLENTY, 4), ("cuda", 7e8, 1)]
)
def test_a_gpu_gets_several_tiles_at_once_as_memory_allows(
    file, tmp_path, device, memory, expected
):
    def run(work, tasks, at_once):
        assert {len(task.tiles) for task in tasks} == {expected}
        raise Stopped

    order = Request(method="hydiff-ei", settings=TINY, device=device)
    with pytest.raises(Stopped):
        execute.fill_file(file, tmp_path / "out.bsq", order, Limits(memory, tile=48), run=run)


def test_tiles_start_from_what_one_network_learned_of_the_scene(file, truth, observed, tmp_path):
    """Without a step of their own they are that network, and it learned something."""
    missing, errors = np.broadcast_to(~observed, truth.shape), {}
    for prior in (1, 60):
        order = Request(
            method="hydiff-ei", settings=TINY, outside="fill", device="cpu", pretrain=prior, seed=2
        )
        done = execute.fill_file(file, tmp_path / f"{prior}.bsq", order, Limits(PLENTY, tile=48))
        errors[prior] = rmse(hydiff.read(tmp_path / f"{prior}.bsq"), truth, missing)
        assert any(f"{prior} updates" in note for note in done.record["notes"])
    assert errors[60] < 0.7 * errors[1]
    again = tmp_path / "again.bsq"
    with pytest.raises(Stopped):  # it is kept with the tiles
        execute.fill_file(file, again, order, Limits(PLENTY, tile=48), progress=stop_after(1))
    assert (provenance.tiles_path(again) / "prior.npz").exists()
    execute.fill_file(file, again, order, Limits(PLENTY, tile=48), resume=True)
    assert again.read_bytes() == (tmp_path / "60.bsq").read_bytes()


def test_a_prior_is_of_methods_that_can_start_from_one():
    with pytest.raises(BadValue, match="`method='hydiff-ei'`, not with smooth"):
        Request(method="smooth", pretrain=10)
    with pytest.raises(BadValue, match="give one of them"):
        Request(method="hydiff-ei", settings={"weights": "x.safetensors"}, pretrain=10)
    with pytest.raises(BadValue, match="0 or more"):
        Request(pretrain=-1)


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


def test_memory_is_read_as_people_write_it():
    assert scene.limits("2GB", None, None).memory == 2e9
    assert scene.limits("512MiB", None, None).memory == 512 * 2**20
    assert scene.limits("1.5g", 64, 8) == Limits(1.5e9, 64, 8)
    for text in ("two", "-1GB", "0", "3XB"):
        with pytest.raises(BadValue, match="2GB"):
            scene.limits(text, None, None)


def test_the_least_memory_that_is_named_works(file, tmp_path):
    with pytest.raises(BadValue, match=r"`memory='\d+MB'`") as refusal:
        execute.fill_file(file, tmp_path / "out.bsq", LINEAR, Limits(1e6))
    assert {p.suffix for p in tmp_path.iterdir()} == {".bsq", ".hdr"}  # the input alone
    assert not (tmp_path / "out.bsq").exists()
    least = str(refusal.value).split("'")[1]
    execute.fill_file(file, tmp_path / "out.bsq", LINEAR, scene.limits(least, None, None))
    with pytest.raises(BadValue, match="smaller `tile=`"):
        execute.fill_file(file, tmp_path / "no.bsq", LINEAR, Limits(1e6, tile=64))


@pytest.mark.parametrize("memory", [1e9, 2.5e9, 1e12])
def test_memory_is_for_all_workers_together(file, tmp_path, memory):
    """It bounds how many there are at a time, which changes no tile."""
    seen, said = [], []

    def run(work, tasks, at_once):
        seen.append(([t.tile for task in tasks for t in task.tiles], at_once))
        raise Stopped

    request = Request(method="smooth")
    for count in (1, 8):
        limits = Limits(memory, processes=count)
        with pytest.raises(Stopped):
            execute.fill_file(file, tmp_path / "o.bsq", request, limits, run=run, say=said.append)
    (planned, one), (same, many) = seen
    bands = hydiff.read(file).bands
    each, own = layout.in_worker(request, bands, planned), layout.base(request)
    assert planned == same and one == 1
    assert many == max(n for n in range(1, 9) if n == 1 or own + n * each <= memory)
    assert any(f"hold {many} of the 8 workers" in line for line in said) == (many < 8)


def test_npy_is_written_by_tiles_from_npy(file, tmp_path):
    source = tmp_path / "in.npy"
    hydiff.write(replace(hydiff.read(file), path=None, format=None), source)
    for path in (source, file):
        how = replace(LINEAR, unmarked=True)
        output = tmp_path / f"out{path.suffix}"
        execute.fill_file(path, output, how, Limits(PLENTY, tile=32))
    one, two = (np.asarray(hydiff.read(tmp_path / f"out{s}").values) for s in (".npy", ".bsq"))
    np.testing.assert_array_equal(one, two)
    assert np.load(source).shape == np.load(tmp_path / "out.npy").shape


@pytest.mark.parametrize("axes", ["bands,rows,cols", "rows,cols,bands", "cols,bands,rows"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_replaced_in_the_order_of_its_file(tmp_path, rng, monkeypatch, axes, order):
    """In parts of a few rows or bands, each by one of several threads."""
    monkeypatch.setattr(blocks, "BUDGET", 3000)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    old, new = rng.random((2, 7, 30, 20)).astype(">f4")
    stored = ax.as_stored(old, tuple(axes.split(",")))
    np.save(tmp_path / "in.npy", np.asarray(stored, order=order))
    (tmp_path / "in.npy.json").write_text(json.dumps({"axes": axes}))
    cube = hydiff.read(tmp_path / "in.npy")
    hydiff.write(replace(cube, values=new), tmp_path / "out.npy")
    np.save(
        tmp_path / "whole.npy", np.asarray(ax.as_stored(new, tuple(axes.split(","))), order=order)
    )
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize(("memory", "starts"), [(40e9, True), (3e9, False)])
def test_workers_start_early_if_memory_holds_them_beside_the_decision(
    file, tmp_path, memory, starts
):
    request, limits = Request(method="smooth"), Limits(memory, tile=32, processes=2)
    plan = make_plan(file, tmp_path / "o.bsq", request, limits, by_tiles=True)
    with Crew(2) as run:
        early.start_workers(request, 6, limits, run)
        assert run.ready == 2 * starts  # before the gaps are known
        laid_out = layout.lay_out(plan.input, plan.cube, request, limits, None, tmp_path)
        room = early.room(laid_out, run)
        assert run.ready == 2 * starts
        fewer = laid_out._replace(limits=limits._replace(processes=1))
        early.room(fewer, run)  # wide gaps: memory holds fewer than expected
        assert run.ready == starts
    without = early.room(laid_out, in_turn)
    workers = 2 * layout.in_worker(request, 6, laid_out.planned) if starts else 0
    assert room == pytest.approx(without - workers) and without < memory


def test_ctrl_c_while_masks_are_read_waits_neither_for_the_hash_nor_for_workers(
    file, tmp_path, monkeypatch
):
    plan = make_plan(file, tmp_path / "o.bsq", LINEAR, Limits(40e9, tile=32, processes=1))
    endless = replace(plan, cube=replace(plan.cube, path=Path("/dev/zero")))  # its hash never ends
    started = []

    def interrupt(*_):
        started.append(run.ready)
        raise KeyboardInterrupt

    monkeypatch.setattr(scene, "lay_out", interrupt)
    with Crew(1) as run:
        with pytest.raises(KeyboardInterrupt):
            scene.fill_tiles(endless, tmp_path, run)
        assert started == [1] and run.ready == 0


def test_tiles_put_together_as_they_come_are_those_put_together_at_the_end(file, tmp_path):
    """In any order: memory decides when, and workers which comes first."""

    def backwards(work, tasks, at_once):
        outcomes = list(in_turn(work, tasks[::-1]))
        yield from (o._replace(number=len(tasks) - 1 - o.number) for o in outcomes)

    request = Request(method="smooth", settings={"error_bars": True})
    for name, memory, run in (("a", 40e9, backwards), ("b", 40e9, in_turn), ("c", 3e9, in_turn)):
        output = tmp_path / name / "o.bsq"
        output.parent.mkdir()
        execute.fill_file(file, output, request, Limits(memory, tile=24), run=run)
    one, *others = (contents(tmp_path / name / "o.bsq") for name in "abc")
    assert len(one) > 3 and all(one == other for other in others)


def test_an_assembled_scene_is_written_without_its_tiles(file, tmp_path):
    """Tiles are blended once; values and error bars are then read at the gaps, from any box."""
    request, limits = replace(SMOOTH, settings={"error_bars": True}), Limits(PLENTY, tile=32)
    execute.fill_file(file, tmp_path / "o.bsq", request, limits)
    plan = make_plan(file, tmp_path / "p.bsq", request, limits, by_tiles=True)
    ledger.prepare(work := tmp_path / "tiles", resume=False)
    tiled = scene.fill_tiles(plan, work, in_turn)
    for tile in work.glob("tile-*"):
        tile.unlink()
    written, box = hydiff.read(tmp_path / "o.bsq"), (slice(1, 5), slice(10, 50), slice(7, 60))
    values = assemble.values(tiled.scene, tiled.entries)
    np.testing.assert_array_equal(values[box], written.values[box])
    sigma = hydiff.read(tmp_path / "o.bsq.sigma.bsq").values[box]
    np.testing.assert_array_equal(tiled.sigma[box].astype(np.float32), sigma)
    assert tiled.filled.get(*box).any() and np.isfinite(sigma).any()


def test_a_scene_is_read_once_for_its_masks_if_no_value_could_be_its_nodata(file, tmp_path):
    read, cube = [], replace(hydiff.read(file), nodata=None)
    values = Lazy(cube.shape, cube.dtype, lambda *block: read.append(block) or cube.values[block])
    for nodata, times in ((-9999.0, 1), (float(cube.values[0, 0].max()), 2)):
        read.clear()
        request = replace(LINEAR, nodata=nodata)
        bits.scan(replace(cube, values=values), None, request, tmp_path)
        assert len(read) == times


def test_workers_start_and_masks_are_read_while_libraries_of_the_decision_are_loaded(
    file, tmp_path, monkeypatch
):
    ready, met, room = threading.Event(), [], early.room

    def after_masks(*arguments):
        ready.set()
        return room(*arguments)

    monkeypatch.setattr(early, "load", lambda *_: met.append(ready.wait(60)))
    monkeypatch.setattr(early, "room", after_masks)
    execute.fill_file(file, tmp_path / "o.bsq", LINEAR, Limits(PLENTY, tile=32))
    assert met == [True]


def test_formats_that_are_written_whole_are_refused(file, tmp_path):
    with pytest.raises(BadValue, match=r"\.zarr"):
        execute.fill_file(file, tmp_path / "out.npz", LINEAR, Limits(PLENTY, tile=32))


PEAK = """
import sys
from hydiff import cli
sys.argv = ["hydiff", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as done:
    assert not done.code
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is Linux's")
@pytest.mark.parametrize("suffix", [".bsq"])
def test_a_scene_larger_than_the_memory_it_may_take(tmp_path, rng, suffix):
    """100 MB of float32, which a plain fill turns into a gigabyte, within 310 MB."""
    shape = (100, 500, 500)
    observed = np.ones(shape[1:], bool)
    observed[100:106, 60:90] = observed[290:310, 300:303] = False
    values = np.tile(made((100, 100, 100), rng), (1, 5, 5))
    hydiff.write(damaged(values, observed), tmp_path / f"in{suffix}")
    line = [sys.executable, "-c", PEAK, "fill", f"in{suffix}", "-o", f"out{suffix}"]
    options = ["--method", "smooth", "--memory", "310MB"]
    done = subprocess.run(
        [*line, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "by tiles" in done.stderr
    peak = int(done.stdout.split()[-1]) * 1024
    assert peak < 310e6  # the process, the file's values and the fill
    out = hydiff.read(tmp_path / f"out{suffix}")
    row, kept = np.asarray(out.values[:, 300:310]), observed[300:310]
    assert np.array_equal(row[:, kept], values[:, 300:310][:, kept])
    assert np.isfinite(row).all() and not (row == -9999).any()


# ── interruptions ────────────────────────────────────────────────────────────────────────────────


def process(*more):
    return [sys.executable, "-m", "hydiff", "fill", "in.bsq", *more]


def resumed(*more, cwd):
    done = command.run("fill", "in.bsq", *more, "--resume", cwd=cwd)
    assert done.returncode == 0, done.stderr


def test_kills_and_resume_end_with_the_same_bytes(file, tmp_path):
    options = ["--method", "smooth", "--set", "error_bars=true", "--tile", "16", "--seed", "5"]
    assert command.run("fill", "in.bsq", "-o", "whole.bsq", *options, cwd=tmp_path).returncode == 0
    work, done = tmp_path / "out.bsq.tiles", []
    for stop in (2, 5):
        run = subprocess.Popen(process("-o", "out.bsq", *options, "--resume"), cwd=tmp_path)
        while run.poll() is None and len(list(work.glob("tile-*.json"))) < stop:
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert run.returncode == -signal.SIGKILL and not (tmp_path / "out.bsq").exists()
        done.append({p.name: p.stat().st_mtime_ns for p in work.glob("tile-*.json")})
    assert len(done[1]) > len(done[0]) >= 2
    assert done[0].items() <= done[1].items()  # what was done was not done again
    resumed("-o", "out.bsq", *options, cwd=tmp_path)
    assert list(contents(tmp_path / "out.bsq").values()) == list(
        contents(tmp_path / "whole.bsq").values()
    )
    assert len(contents(tmp_path / "out.bsq")) == 7 and not work.exists()


class Stopped(Exception):
    pass


def stop_after(count):
    def progress(step):
        if step.done == count:
            raise Stopped

    return progress


def test_an_error_of_a_block_ends_the_fill_while_tiles_are_left(file, tmp_path, monkeypatch):
    """Blocks of a few rows are blended in threads; the first tile is cut short on the disk."""
    monkeypatch.setattr(assemble, "BUDGET", 1 << 13)
    work, done = provenance.tiles_path(tmp_path / "out.bsq"), []

    def progress(step):
        if step.phase == "tiles" and step.done == 2:
            first = min(work.glob("*.npy"), key=lambda path: path.stat().st_mtime_ns)
            first.write_bytes(first.read_bytes()[:200])
        done.append(step.done)
        time.sleep(0.05)

    with pytest.raises(ValueError, match="cannot reshape"):
        execute.fill_file(
            file, tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=16), progress=progress
        )
    assert 2 < max(done) < 15


@pytest.fixture
def interrupted(file, tmp_path):
    """A fill that stopped after two tiles."""
    with pytest.raises(Stopped):
        execute.fill_file(
            file, tmp_path / "out.bsq", SMOOTH, Limits(PLENTY, tile=24), progress=stop_after(2)
        )
    return tmp_path / "out.bsq"


def test_a_changed_input_or_recipe_is_refused(file, interrupted):
    def resumed(order=SMOOTH, tile=24):
        return execute.fill_file(file, interrupted, order, Limits(PLENTY, tile=tile), resume=True)

    with pytest.raises(BadValue, match="the settings changed"):
        resumed(Request(method="smooth", outside="fill", settings={"s": 1.5}))
    with pytest.raises(BadValue, match="the seed changed"):
        resumed(Request(method="smooth", outside="fill", seed=1))
    with pytest.raises(BadValue, match="the tiling changed"):
        resumed(tile=30)
    with pytest.raises(BadValue, match="what is missing"):
        resumed(Request(method="smooth", outside="fill", max_gap=2))
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadValue, match="the input changed"):
        resumed()
    content[1000] ^= 1
    file.write_bytes(content)
    resumed()


@pytest.mark.parametrize("phase", ["trials", "tiles", "writing"])
def test_an_input_that_changes_meanwhile_is_not_mixed(file, tmp_path, truth, phase):
    """Its masks are those of before, the values that are copied those of after: neither is kept."""

    def change(step):
        if step.phase == phase:
            hydiff.write(Cube(truth + 1, nodata=-9999.0), file, overwrite=True)

    changed = "changed while it was filled|sees another file"
    with pytest.raises(BadValue, match=changed):
        execute.fill_file(
            file, tmp_path / "out.bsq", SMOOTH, Limits(PLENTY, tile=40), progress=change
        )
    assert sorted(tmp_path.iterdir()) == [file, file.with_suffix(".hdr")]


def test_an_input_that_is_only_touched_is_filled(file, tmp_path):
    execute.fill_file(
        file,
        tmp_path / "out.bsq",
        LINEAR,
        Limits(PLENTY, tile=40),
        progress=lambda step: os.utime(file, (1, step.done)),
    )
    assert (tmp_path / "out.bsq").exists()


def test_a_damaged_tile_is_computed_again(file, interrupted, tmp_path):
    execute.fill_file(file, tmp_path / "whole.bsq", SMOOTH, Limits(PLENTY, tile=24))
    tile = next(provenance.tiles_path(interrupted).glob("tile-*.npy"))
    tile.write_bytes(tile.read_bytes()[:-8])
    execute.fill_file(file, interrupted, SMOOTH, Limits(PLENTY, tile=24), resume=True)
    assert interrupted.read_bytes() == (tmp_path / "whole.bsq").read_bytes()


def test_without_resume_a_fill_starts_again(file, interrupted):
    order = Request(method="smooth", outside="fill", seed=1)
    execute.fill_file(file, interrupted, order, Limits(PLENTY, tile=24))
    assert interrupted.exists()


def test_requests_that_no_method_can_meet_are_refused_before_the_work(file, tmp_path):
    for order, message in (
        (Request(method="smooth", max_error=0.5), "max_error"),
        (Request(budget="huge"), "budget"),
        (Request(settings={"s": 1.5}), "belong to one method"),
        (Request(method="linear", outside="far"), "outside"),
    ):
        with pytest.raises(HydiffError, match=message):
            execute.fill_file(file, tmp_path / "out.bsq", order, Limits(PLENTY, tile=24))
        assert not (tmp_path / "out.bsq").exists()


@pytest.mark.parametrize(
    "left", ["scene.json.node7-12.part", "tile-000003.npy", "seen.bits", "sample-0.f4"]
)
def test_what_a_kill_left_of_the_folder_is_not_in_the_way(file, tmp_path, left):
    """Killed while the folder came to be, or while it went."""
    work = provenance.tiles_path(tmp_path / "out.bsq")
    work.mkdir()
    (work / left).write_bytes(b"half")
    execute.fill_file(file, tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=48), resume=True)
    assert (tmp_path / "out.bsq").exists() and not work.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="locks of folders are POSIX's")
def test_a_scene_that_another_process_fills_is_left_to_it(file, tmp_path):
    """Else each of the two would remove the tiles of the other."""
    bounds, out = Limits(PLENTY, tile=32), tmp_path / "out.bsq"
    refused = []

    def again(step):
        for resume in (False, True):
            with pytest.raises(OutputError, match="another process is filling into"):
                execute.fill_file(file, out, SMOOTH, bounds, resume=resume)
            refused.append(step.done)

    execute.fill_file(file, out, SMOOTH, bounds, progress=again)
    assert refused and out.exists()
    execute.fill_file(file, out, SMOOTH, bounds, overwrite=True)  # it is held no longer


def test_a_folder_of_someone_else_is_not_touched(file, tmp_path):
    work = provenance.tiles_path(tmp_path / "out.bsq")
    work.mkdir()
    (work / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="in the way"):
        execute.fill_file(file, tmp_path / "out.bsq", LINEAR, Limits(PLENTY, tile=24))
    assert (work / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("source", [".npy", ".bsq"])
def test_a_refused_output_names_npy_only_where_it_can_be_written(tmp_path, rng, source):
    values = made((4, 40, 40), rng)
    values[:, 10:14, 10:14] = np.nan
    hydiff.write(Cube(values), tmp_path / f"in{source}")
    limits = Limits(PLENTY, tile=24)
    with pytest.raises(BadValue, match=r"\.zarr, \.tif or \.img") as refused:
        execute.fill_file(tmp_path / f"in{source}", tmp_path / "out.npz", SMOOTH, limits)
    assert (".npy, as the input, with `unmarked=True`" in str(refused.value)) == (source == ".npy")
    if source == ".npy":  # which then works
        bare = replace(SMOOTH, unmarked=True)
        execute.fill_file(tmp_path / "in.npy", tmp_path / "out.npy", bare, limits)
        assert np.isfinite(np.load(tmp_path / "out.npy")).all()
