"""Offline training: what it learns from, what it writes, and that it can be interrupted."""

import hashlib
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.ndimage import gaussian_filter

import hydiff
from hydiff.cube import Cube
from hydiff.errors import (
    BadValue,
    CubeFormatError,
    NothingObserved,
    OutputError,
    ShapeMismatch,
    UnknownName,
    shell,
)
from hydiff.learn import losses, network, transforms
from hydiff.learn.diffusion import linear_alpha_bar
from hydiff.learn.engine import Fit
from hydiff.learn.training import Training, measurements, train
from hydiff.learn.weights import load_weights, weights_of
from hydiff.report import plots
from hydiff.scale.training_files import train_files
from test_cli import hydiff_

SIDE = 24
TINY = Training(channels=4, scales=2, lr=5e-3)
SPECTRA = gaussian_filter(np.random.default_rng(9).standard_normal((6, 3)), (1, 0))


def scene(seed, rows=SIDE, cols=SIDE):
    """(6, rows, cols) float32 in [0, 1]: all seeds share their three spectra."""
    rng = np.random.default_rng(seed)
    maps = gaussian_filter(rng.standard_normal((3, rows, cols)), (0, 3, 3))
    x = np.tensordot(SPECTRA, maps, 1)
    return ((x - x.min()) / np.ptp(x)).astype(np.float32)


def stripes(seed, rows=SIDE, cols=SIDE):
    observed = np.ones((rows, cols), bool)
    for start in np.random.default_rng(seed).integers(1, cols - 3, 2):
        observed[:, start : start + 2] = False
    return observed


def damaged(seed, rows=SIDE, cols=SIDE):
    return Cube(np.where(stripes(seed, rows, cols), scene(seed, rows, cols), np.nan))


def weights_after(n, cubes, settings=TINY, **options):
    steps = train(cubes, settings, **options)
    return weights_of([next(steps) for _ in range(n)][-1].state())


def same(one, other):
    return one.keys() == other.keys() and all(
        one[k].numpy().tobytes() == other[k].numpy().tobytes() for k in one
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Five damaged ENVI files of 16 × 16 pixels."""
    folder = tmp_path_factory.mktemp("cubes")
    paths = []
    for seed in range(5):
        values = np.where(stripes(seed, 16, 16), scene(seed, 16, 16), -9999).astype(np.float32)
        about = {"wavelengths": np.linspace(400, 900, 6), "wavelength_units": "Nanometers"}
        paths += hydiff.write(Cube(values, nodata=-9999.0, **about), folder / f"s{seed}.bil")[:1]
    return paths


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network trained on ten cubes for a few seconds, its report and its history."""
    folder = tmp_path_factory.mktemp("model")
    paths = []
    for seed in range(10):
        paths += hydiff.write(damaged(seed), folder / f"s{seed}.npz")[:1]
    history = []
    report = train_files(
        paths,
        folder / "model.safetensors",
        replace(TINY, channels=8),
        epochs=60,
        progress=lambda step, share: history.append(step.log),
    )
    return folder / "model.safetensors", report, history


def gap_rmse(seed, **options):
    x, observed = scene(seed), stripes(seed)
    result = hydiff.fill(np.where(observed, x, np.nan), device="cpu", **options)
    return np.sqrt(np.mean((result.values - x)[:, ~observed] ** 2)), result


# ── what it learns ───────────────────────────────────────────────────────────────────────────────


def test_training_lowers_both_terms(model):
    _, report, history = model
    first, last = report["losses"]["first"], report["losses"]["last"]
    assert report["updates"] == len(history) == 120 and report["epochs"] == 60
    assert last["data"] < first["data"] / 2 and last["ei"] < first["ei"] / 2
    assert last["loss"] < first["loss"] / 2


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_one_forward_pass_on_an_unseen_cube_beats_the_band_mean(model, seed):
    trained, result = gap_rmse(
        seed, method="hydiff-ei", weights=str(model[0]), channels=8, scales=2
    )
    floor, _ = gap_rmse(seed, method="bandmean")
    assert trained < 0.9 * floor
    assert len(result.history) == 1


def test_refining_on_the_cube_itself_improves_the_fill(model):
    options = {"method": "hydiff-ei", "weights": str(model[0]), "channels": 8, "scales": 2}
    trained, _ = gap_rmse(100, **options)
    refined, result = gap_rmse(100, **options, refine=30)
    assert refined < trained
    assert len(result.history) == 31


def test_the_supplement_s_settings_are_the_defaults():
    paper = Training()
    assert (paper.batch, paper.lr, paper.steps, paper.ei_weight) == (5, 1e-4, 1000, 1)
    assert (paper.channels, paper.scales, paper.transform) == (128, 5, "rotation")


def test_an_update_is_one_adam_step_on_the_mean_of_equation_9():
    """Written out by hand for three cubes, two of them of one size, the other not square."""
    settings = replace(TINY, batch=3, seed=3, ei_weight=0.7, steps=100, norm="image")
    cubes = [damaged(0, 16, 16), damaged(1, 12, 18), damaged(2, 16, 16)]
    f = network.build(6, channels=4, scales=2, seed=3)
    adam = torch.optim.Adam(f.parameters(), lr=settings.lr)
    rng = torch.Generator().manual_seed(3)
    dice = Fit(f, lr=1.0, rng=rng).dice
    t = int(torch.randint(1, 101, (), generator=dice))
    total = 0.0
    for i in np.random.default_rng([3, 0]).permutation(3):
        item = measurements([cubes[i]], settings)[0]
        (g,) = transforms.draw("rotation", item.y.shape, dice)
        x = f(item.y)
        seen = item.observed.expand_as(x)
        data = (item.y - x)[seen].square().mean()
        ei = losses.equivariance(f, x, item.observed, None, [g], item.inside, rng)
        total = total + (linear_alpha_bar(100)[t].item() * data + 0.7 * ei) / 3
    total.backward()
    adam.step()
    step = next(train(cubes, settings))
    assert torch.isclose(step.log["loss"], total, rtol=1e-5)
    for name, weight in weights_of(step.state()).items():
        if not name.endswith(".0.bias"):  # in front of a normalisation: a gradient of rounding
            torch.testing.assert_close(weight, f.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_a_batch_is_normalised_together():
    """One update on two cubes, by hand: estimates of a batch, then answers of a batch."""
    settings = replace(TINY, batch=2, steps=100)
    cubes = [damaged(0, 16, 16), damaged(1, 16, 16)]
    f = network.build(6, channels=4, scales=2, norm="batch", seed=0)
    dice = Fit(f, lr=1.0, rng=torch.Generator().manual_seed(0)).dice
    t = int(torch.randint(1, 101, (), generator=dice))
    order = np.random.default_rng([0, 0]).permutation(2)
    items = measurements([cubes[i] for i in order], settings)
    y, seen = torch.cat([i.y for i in items]), torch.cat([i.observed for i in items])
    x = f(y)
    turned = torch.cat(
        [transforms.draw("rotation", i.y.shape, dice)[0](e[None])
         for i, e in zip(items, x, strict=True)]
    )  # fmt: skip
    terms = zip((y - x) * seen, turned - f(turned * seen), seen, strict=True)
    now = linear_alpha_bar(100)[t].item()
    total = sum(now * d.square().sum() / (6 * m.sum()) + e.square().mean() for d, e, m in terms) / 2
    step = next(train(cubes, settings))
    assert torch.isclose(step.log["loss"], total, rtol=1e-5)
    after = weights_of(step.state())
    for name, statistic in f.named_buffers():
        torch.testing.assert_close(after[name], statistic, rtol=1e-4, atol=1e-6)
    assert after["levels.skip.1.num_batches_tracked"] == 2


def test_every_epoch_takes_every_item_once():
    cubes = [damaged(seed, 12, 12) for seed in range(5)]
    steps = train(cubes, replace(TINY, batch=2))
    first = [next(steps) for _ in range(6)]
    assert [s.total for s in first] == [3] * 6
    from hydiff.learn.training import _batch

    items = measurements(cubes, TINY)
    orders = set()
    for epoch in range(3):
        taken = [i for k in range(3) for i in _batch(items, replace(TINY, batch=2), epoch, k)]
        assert {id(i) for i in taken} == {id(i) for i in items} and len(taken) == 5
        orders.add(tuple(id(i) for i in taken))
    assert len(orders) == 3


# ── what it reads ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e9, -3e38, 0.0])
def test_no_unobserved_value_is_ever_read(value):
    """Whatever lies under the mask, not one byte of the weights changes."""
    masks = [stripes(0, 16, 16), np.random.default_rng(1).random((6, 16, 16)) > 0.3]
    truth = [scene(0, 16, 16), scene(1, 16, 16)]
    before = weights_after(3, [Cube(x) for x in truth], observed=masks)
    hidden = [np.where(m, x, value).astype(np.float32) for x, m in zip(truth, masks, strict=True)]
    assert same(before, weights_after(3, [Cube(x) for x in hidden], observed=masks))


def test_every_observed_value_is_read():
    masks, x = [stripes(0, 16, 16)], scene(0, 16, 16)
    moved = x.copy()
    moved[2, 0, 0] += 0.01
    assert masks[0][0, 0]
    one, other = (weights_after(3, [Cube(v)], observed=masks) for v in (x, moved))
    assert not same(one, other)


def test_values_of_bad_and_of_empty_bands_are_not_read():
    good = np.array([True, True, False, True, True, True])
    x = damaged(0, 16, 16).values.copy()
    x[4] = np.nan
    other = x.copy()
    other[2] = 1e9
    one, two = (weights_after(2, [Cube(v, good=good)]) for v in (x, other))
    assert same(one, two)
    assert one["head.weight"].shape[0] == 4


def test_gaps_may_be_declared_by_nodata_or_by_a_validity_layer():
    x, seen = scene(0, 16, 16), stripes(0, 16, 16)
    want = weights_after(2, [Cube(np.where(seen, x, np.nan))])
    marked = np.where(seen, x, np.float32(-1))
    assert same(want, weights_after(2, [Cube(marked, nodata=-1.0)]))
    assert same(want, weights_after(2, [Cube(marked)], nodata=-1.0))
    assert same(want, weights_after(2, [Cube(x, valid=seen)]))


def test_cubes_without_gaps_will_do():
    weights = weights_after(2, [Cube(scene(0, 16, 16))])
    assert all(w.isfinite().all() for w in weights.values())


def test_items_are_on_the_unit_range_and_zero_in_the_gaps():
    cube = Cube(1000 * damaged(0, 12, 18).values + 50)
    (item,) = measurements([cube], TINY)
    assert item.y.shape == (1, 6, 18, 18) and item.observed.shape == (1, 1, 18, 18)
    seen = item.observed.expand_as(item.y)
    assert (item.y[~seen] == 0).all() and item.y[seen].min() > 0 and item.y[seen].max() < 1
    assert item.inside.sum() == 12 * 18 and not (item.observed & ~item.inside).any()
    assert item.sigma_y is None


def test_large_cubes_are_cut_into_crops_that_cover_them():
    x = np.arange(2 * 40 * 21, dtype=np.float32).reshape(2, 40, 21) + 1
    items = measurements([Cube(x)], replace(TINY, crop=16))
    assert len(items) == 3 * 2 and {tuple(i.y.shape) for i in items} == {(1, 2, 16, 16)}
    assert len(torch.cat([i.y.flatten() for i in items]).unique()) == x.size
    assert len(measurements([Cube(x)], replace(TINY, crop=20))) == 2  # a line left over: ignored
    x[:, :20] = np.nan
    assert len(measurements([Cube(x)], replace(TINY, crop=20))) == 1  # nothing observed: left out


def test_noise_is_drawn_again_in_the_equivariance_term():
    clean, noisy = (weights_after(1, [damaged(0)], replace(TINY, sigma_y=s)) for s in (0, 0.1))
    assert not same(clean, noisy)


def test_cubes_that_do_not_belong_together_are_refused():
    six, four = damaged(0, 12, 12), Cube(damaged(0, 12, 12).values[:4])
    with pytest.raises(ShapeMismatch, match="cube 2 has 4 bands, but cube 1 has 6"):
        train([six, four], TINY)
    bad = replace(six, good=np.array([1, 1, 1, 0, 1, 1]))
    with pytest.raises(ShapeMismatch, match=r"usable bands \(band 4\)"):
        train([six, bad], TINY)
    with pytest.raises(NothingObserved, match="cube 1: no observed entry"):
        train([Cube(np.full((6, 8, 8), np.nan))], TINY)
    with pytest.raises(BadValue, match="at least one"):
        train([], TINY)


def test_masks_that_do_not_fit_are_refused():
    for wrong in (np.ones((12, 11), bool), np.ones((12, 12), np.uint8)):
        with pytest.raises(ShapeMismatch, match="the mask of cube 1 is"):
            train([damaged(0, 12, 12)], TINY, observed=[wrong])


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch", 0), ("lr", 0), ("lr", float("nan")), ("crop", 0), ("seed", -1), ("sigma_y", -1)],
)
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(BadValue, match=f"{name} = "):
        Training(**{name: value})


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'rotation'"):
        Training(transform="rotations")
    with pytest.raises(UnknownName, match="did you mean 'batch'"):
        Training(norm="batches")


def test_a_batch_of_one_has_no_statistics_of_many():
    with pytest.raises(BadValue, match="batch = 1: take more, or norm = 'image'"):
        Training(batch=1)
    assert Training(batch=1, norm="image").norm == "image"


# ── the same again, and going on ─────────────────────────────────────────────────────────────────


class Interrupted(Exception):
    pass


def interrupt_at(update):
    def progress(step, share):
        if step.done == update:
            raise Interrupted

    return progress


def test_an_interrupted_run_ends_with_the_same_bytes(files, tmp_path, monkeypatch):
    monkeypatch.setattr("hydiff.learn.checkpoint.INTERVAL", 0)
    settings = replace(TINY, batch=2)  # three updates in an epoch: it stops in the middle of one
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    full = train_files(files, whole, settings, epochs=3)
    with pytest.raises(Interrupted):
        train_files(files, parts, settings, epochs=3, progress=interrupt_at(6))
    assert {p.name for p in tmp_path.glob("parts*")} == {"parts.safetensors.training"}
    with pytest.raises(OutputError, match="go on with `resume=True`"):
        train_files(files, parts, settings, epochs=3)
    with pytest.raises(BadValue, match="belongs to another"):
        train_files(files, parts, replace(settings, seed=1), epochs=3, resume=True)
    seen = []
    report = train_files(
        files, parts, settings, epochs=3, resume=True, progress=lambda s, _: seen.append(s.done)
    )
    assert seen == [6, 7, 8, 9]
    assert whole.read_bytes() == parts.read_bytes()
    assert report["losses"] == full["losses"]  # the history before the interruption counts too
    assert not list(tmp_path.glob("*.training")) and not list(tmp_path.glob(".hydiff*"))


def test_the_seed_decides():
    cubes = [damaged(0, 12, 12), damaged(1, 12, 12)]
    once, again, other = (weights_after(2, cubes, replace(TINY, seed=s)) for s in (4, 4, 5))
    assert same(once, again) and not same(once, other)


def test_the_generator_leaves_the_global_randomness_alone():
    torch.manual_seed(1)
    want = torch.rand(3)
    torch.manual_seed(1)
    weights_after(1, [damaged(0, 12, 12)])
    assert torch.equal(torch.rand(3), want)


def test_a_budget_in_minutes_ends_the_run(files, tmp_path):
    report = train_files(files, tmp_path / "m.safetensors", TINY, minutes=1e-6)
    assert report["updates"] == 1
    for budget in ({"minutes": 1, "epochs": 1}, {"minutes": 0}, {"epochs": -1}):
        with pytest.raises(BadValue, match=r"give one of them|above 0"):
            train_files(files, tmp_path / "n.safetensors", TINY, **budget)


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_the_weights_file_says_what_it_is(model):
    path, report, _ = model
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["hydiff"])
    assert (about["layout"], about["bands"], about["channels"], about["scales"]) == (1, 6, 8, 2)
    assert Training(**about["settings"]) == replace(TINY, channels=8)
    expected = network.build(6, channels=8, scales=2, norm="batch", seed=0).state_dict()
    found = load_file(path)
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in expected.items()}
    assert report["outputs"] == [str(path) + s for s in ("", ".md", ".png")]


def test_the_model_card_parses_and_names_the_files_by_their_hashes(files, tmp_path):
    path = tmp_path / "m.safetensors"
    report = train_files(files, path, TINY, epochs=1)
    empty, head, text = (tmp_path / "m.safetensors.md").read_text().split("---\n")
    assert empty == "" and "1.2 million" in text and "--weights m.safetensors" in text
    lines = head.splitlines()
    at = lines.index("data:")
    facts = {k: json.loads(v) for k, v in (line.split(": ", 1) for line in lines[:at])}
    data = [json.loads(line.removeprefix("  - ")) for line in lines[at + 1 :]]
    assert [(d["file"], d["sha256"]) for d in data] == [
        (p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in files
    ]
    assert facts["wavelengths"] == [400, 900] and facts["wavelength_units"] == "Nanometers"
    assert facts["settings"]["channels"] == 4 and facts["bands"] == 6 and facts["updates"] == 1
    assert {"hydiff", "torch", "python"} <= facts["versions"].keys()
    assert facts["losses"] == report["losses"] and str(tmp_path) not in head + text
    missing = np.mean([1 - stripes(seed, 16, 16).mean() for seed in range(5)])
    assert facts["missing"] == pytest.approx(missing, abs=1e-4)
    assert facts["date"].endswith("+00:00")


def test_the_loss_curve_is_a_picture(model, tmp_path):
    with Image.open(str(model[0]) + ".png") as picture:
        assert picture.format == "PNG" and picture.size[0] > 500
    for n in (1, 5000):
        plots.loss_curve([{"data": 1 / (i + 1), "ei": 0.0} for i in range(n)], tmp_path / "c.png")
        with Image.open(tmp_path / "c.png") as picture:
            assert len(np.unique(np.asarray(picture))) > 2


def test_existing_files_are_refused_before_the_work(files, tmp_path):
    path = tmp_path / "m.safetensors"
    for name in ("m.safetensors", "m.safetensors.md", "m.safetensors.png"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(OutputError, match="exists"):
            train_files(files, path, TINY, epochs=1, progress=interrupt_at(1))
        assert (tmp_path / name).read_text() == "precious"
        (tmp_path / name).unlink()
    with pytest.raises(OutputError, match="not a folder"):
        train_files(files, tmp_path / "absent" / "m.safetensors", TINY)
    with pytest.raises(OutputError, match="one of the inputs"):
        train_files(files, files[1], TINY, overwrite=True)
    path.write_text("old")
    train_files(files, path, TINY, epochs=1, overwrite=True)
    assert load_file(path)


def test_weights_that_are_no_longer_finite_are_not_written(files, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "hydiff.scale.training_files.weights_of", lambda _: {"w": torch.tensor([1.0, torch.inf])}
    )
    with pytest.raises(BadValue, match="no longer finite"):
        train_files(files, tmp_path / "m.safetensors", TINY, epochs=1)
    assert not list(tmp_path.iterdir())


def test_out_of_memory_is_reported_with_what_to_do(files, tmp_path, monkeypatch):
    def greedy(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 80 GiB")

    monkeypatch.setattr("hydiff.learn.training._load", greedy)
    with pytest.raises(BadValue, match="take smaller crops"):
        train_files(files, tmp_path / "m.safetensors", TINY, epochs=1)


def asking(path, channels=8, scales=2):
    return SimpleNamespace(weights=str(path), channels=channels, scales=scales)


def test_load_weights_gives_the_tensors(model):
    assert same(load_weights(asking(model[0]), bands=6), load_file(model[0]))


@pytest.mark.parametrize(
    ("asked", "bands", "error", "words"),
    [
        ({}, 7, ShapeMismatch, "trained on 6 bands, but the cube has 7"),
        ({"channels": 128}, 6, BadValue, "8 channels, the settings say 128; add `channels=8`"),
        ({"scales": 5}, 6, BadValue, "2 scales, the settings say 5; add `scales=2`"),
        (
            {"channels": 4, "scales": 5},
            6,
            BadValue,
            "8 channels and 2 scales, .* 4 and 5; add `channels=8` and `scales=2`",
        ),
    ],
)
def test_weights_of_another_network_are_refused(model, asked, bands, error, words):
    with pytest.raises(error, match=words) as caught:
        load_weights(asking(model[0], **asked), bands=bands)
    options = words.replace("`channels=8`", "--set channels=8")
    options = options.replace("`scales=2`", "--set scales=2")
    assert re.search(options, shell(str(caught.value)))


def test_files_that_are_no_weights_are_refused(model, tmp_path):
    def refuse(path, words):
        with pytest.raises(CubeFormatError, match=words) as caught:
            load_weights(asking(path), bands=6)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)

    tensors = load_file(model[0])
    about = {"layout": 1, "bands": 6, "channels": 8, "scales": 2}
    bad = tmp_path / "bad.safetensors"

    def put(changed=tensors, metadata=about):
        save_file(changed, bad, metadata={"hydiff": json.dumps(metadata)})

    refuse(bad, "no such file")
    bad.write_bytes(b"not at all")
    refuse(bad, "not a readable safetensors file")
    bad.write_bytes(model[0].read_bytes()[:-10])
    refuse(bad, "not a readable safetensors file")
    save_file(tensors, bad)
    refuse(bad, "not weights of `hydiff train`")
    save_file(tensors, bad, metadata={"hydiff": "{"})
    refuse(bad, "not a readable safetensors file")
    put(metadata=3)
    refuse(bad, "not weights of `hydiff train`")
    put(metadata=about | {"layout": 2})
    refuse(bad, "layout 2, but this hydiff reads 1")
    put({k: v for k, v in tensors.items() if k != "head.bias"})
    refuse(bad, r"head.bias .*shape None, expected \(6,\)")
    put(tensors | {"extra": torch.zeros(1)})
    refuse(bad, "extra .*expected None")
    put(tensors | {"head.bias": torch.zeros(5)})
    refuse(bad, r"head.bias .*shape \(5,\), expected \(6,\)")
    put(tensors | {"head.bias": torch.full((6,), torch.nan)})
    refuse(bad, "head.bias is damaged")
    put()
    assert same(load_weights(asking(bad), bands=6), tensors)


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_train_then_fill_on_the_command_line(files, tmp_path):
    np.save(tmp_path / "more.npy", damaged(7, 16, 16).values)
    network_of = ("--set", "scales=2")
    done = hydiff_(
        *("train", *files[:2], "more.npy", "-o", "m.safetensors", "--epochs", 2),
        *("--channels", 4, *network_of, "--device", "cpu", "--json"),
        cwd=tmp_path,
    )
    report = json.loads(done.stdout)
    assert done.stderr == "" and report["updates"] == 2 and report["crops"] == 3
    assert report["settings"]["channels"] == 4 and report["settings"]["scales"] == 2
    made = {p.name for p in tmp_path.iterdir()}
    assert made == {"more.npy", *(f"m.safetensors{s}" for s in ("", ".md", ".png"))}
    fill = ("fill", files[3], "-o", "filled.bil", "--method", "hydiff-ei", "--device", "cpu")
    fill += ("--outside", "fill", "--set", "weights=m.safetensors", *network_of)
    hydiff_(*fill, "--set", "channels=4", cwd=tmp_path)
    filled = np.asarray(hydiff.read(tmp_path / "filled.bil").values)
    assert (filled != -9999).all()


def test_the_summary_names_losses_and_files(files, tmp_path):
    from typer.testing import CliRunner

    from hydiff.cli import app

    args = ["train", str(files[0]), "-o", str(tmp_path / "m.safetensors"), "--epochs", "1"]
    done = CliRunner().invoke(app, [*args, "--channels", "4", "--set", "scales=2"])
    assert done.exit_code == 0, done.output
    for words in ("1 updates", "data", "equivariance", "m.safetensors.md", "m.safetensors.png"):
        assert words in done.output
