"""The network that corrects planes: laws of its fill, and of its training."""

import csv
import json
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from hydiff.cli import app
from hydiff.errors import BadValue, CubeFormatError, OutputError
from hydiff.learn import plane_network, prior_training, prior_weights, training_planes
from hydiff.learn.field import Field
from hydiff.learn.plane_network import MIDDLE, ORDERS, PlaneNetwork, corrected, roughness, turn
from hydiff.learn.prior_training import PriorTraining
from hydiff.learn.training_planes import (
    Pool,
    Shelf,
    batch_of,
    images_of,
    random_mask,
)
from hydiff.scale import prior_files
from hydiff.scale.prior_files import train_prior

TINY = "masks=2", "planes=2", "pool=2", "side=24", "drawn=1"
SMALL = PriorTraining(
    width=4, steps=6, masks=2, planes=2, pool=3, renew=2, side=24, held=1, drawn=1
)


def scene(seed, shape=(3, 40, 44)):
    x = np.random.default_rng(seed).standard_normal(shape).cumsum(axis=1).cumsum(axis=2)
    return (100 * (x - x.min())).astype(np.uint16)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    np.savez(place / "a.npz", **{f"{name}_1_20m": scene(i) for i, name in enumerate("abc")})
    return place


def network(width=4, seed=0):
    """One that corrects something: its last layer is not zero."""
    torch.manual_seed(seed)
    net = PlaneNetwork(width)
    torch.nn.init.normal_(net.last.weight, std=0.1)
    return net.eval()


def planes(n=2, side=24, seed=0):
    rng = np.random.default_rng(seed)
    complete = torch.from_numpy(random_mask(side, rng))
    z = torch.from_numpy(rng.standard_normal((n, side, side)).cumsum(axis=1)).float() * complete
    f = torch.stack([Field(complete, s)(z) for s in ORDERS], dim=1)
    return z, f, complete


def test_an_untrained_network_corrects_nothing():
    z, f, complete = planes()
    x = corrected(PlaneNetwork(4), z, f, complete, torch.zeros(2), torch.ones_like(z))
    assert torch.equal(x, torch.where(complete, z, f[:, MIDDLE]))


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_measured_pixels_change_with_noise_alone(sigma):
    z, f, complete = planes()
    x = corrected(network(), z, f, complete, torch.full((2,), sigma), torch.ones_like(z))
    assert torch.equal(x[:, complete], z[:, complete]) == (sigma == 0)
    assert not torch.equal(x[:, ~complete], f[:, MIDDLE][:, ~complete])


def test_where_the_gate_is_shut_the_field_remains():
    z, f, complete = planes()
    x = corrected(network(), z, f, complete, torch.zeros(2), torch.zeros_like(z))
    assert torch.equal(x[:, ~complete], f[:, MIDDLE][:, ~complete])


@pytest.mark.parametrize("shape", [(24, 24), (17, 30), (9, 8)])
def test_any_size_is_taken(shape):
    inputs = torch.randn(1, plane_network.INPUTS, *shape)
    assert network()(inputs).shape == (1, *shape)


def test_planes_are_corrected_one_by_one():
    z, f, complete = planes(n=3)
    alone = [
        corrected(network(), z[i : i + 1], f[i : i + 1], complete, torch.zeros(1), torch.ones(1))
        for i in range(3)
    ]
    together = corrected(network(), z, f, complete, torch.zeros(3), torch.ones(1))
    torch.testing.assert_close(torch.cat(alone), together, rtol=1e-4, atol=1e-5)


def test_a_plane_and_its_negative_are_turned_alike():
    z = torch.from_numpy(np.random.default_rng(0).exponential(size=(4, 9, 9)))
    z = z - z.mean(dim=(1, 2), keepdim=True)
    one, other = (turn(x)[:, None, None] * x for x in (z, -z))
    assert torch.equal(one, other)


def test_roughness_is_the_rms_difference_of_complete_neighbours():
    z = torch.arange(12.0).reshape(1, 3, 4)  # 1 to the right, 4 down
    assert roughness(z)[0] == pytest.approx(np.sqrt((9 * 1 + 8 * 16) / 17))
    complete = torch.ones(3, 4, dtype=torch.bool)
    complete[1:] = False
    assert roughness(z * complete, complete)[0] == pytest.approx(1)


@pytest.mark.parametrize("seed", range(8))
def test_masks_hide_something_and_leave_enough(seed):
    mask = random_mask(48, np.random.default_rng(seed))
    assert mask.shape == (48, 48) and 0.25 <= mask.mean() < 1


def test_components_and_bands_are_centred_with_unit_roughness():
    images = images_of("a", scene(0), "cpu")
    assert images.planes.shape == (6, 40, 44)
    torch.testing.assert_close(roughness(images.planes), torch.ones(6), rtol=1e-3, atol=0)
    assert float(images.planes.mean(dim=(1, 2)).abs().max()) < 1e-2


def test_crops_are_pieces_of_planes_turned_and_mirrored():
    values = np.arange(2 * 30 * 34, dtype=np.float32).reshape(2, 30, 34)
    images = images_of("a", values, "cpu")._replace(planes=torch.from_numpy(values))
    crops = Shelf([images._replace(weights=torch.ones(1))]).crops(200, 12, np.random.default_rng(0))
    found = set()
    for crop in crops[(crops == crops.round()).all(dim=2).all(dim=1)].numpy():
        low = int(crop.min())
        top, left = low % (30 * 34) // 34, low % 34
        whole = values[low // (30 * 34), top : top + 12, left : left + 12]
        kinds = [np.rot90(x, k) for x in (whole, whole.T) for k in range(4)]
        found |= {i for i, each in enumerate(kinds) if np.array_equal(each, crop)}
    assert found == set(range(8))


def test_halved_crops_are_means_of_four_pixels(monkeypatch):
    monkeypatch.setattr(training_planes, "HALVED", 1.0)
    plane = torch.rand(2, 24, 24)
    images = images_of("a", plane.numpy(), "cpu")._replace(planes=plane, weights=torch.zeros(1))
    halves = torch.nn.functional.avg_pool2d(plane[None], 2)[0]
    for crop in Shelf([images]).crops(20, 12, np.random.default_rng(0)):
        alike = [
            torch.allclose(torch.rot90(x, k), crop, atol=1e-6)
            for half in halves
            for x in (half, half.T)
            for k in range(4)
        ]
        assert any(alike) or not crop.any()


def test_ramps_and_bright_objects_are_planted(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    monkeypatch.setattr(training_planes, "RAMPS", 1.0)
    ramps = training_planes._planted(torch.zeros(3, 12, 12), rng)
    torch.testing.assert_close(
        ramps.diff(dim=1).diff(dim=1), torch.zeros(3, 10, 12), atol=1e-4, rtol=0
    )
    monkeypatch.setattr(training_planes, "RAMPS", 0.0)
    monkeypatch.setattr(training_planes, "DOTTED", 1.0)
    dotted = training_planes._planted(torch.zeros(3, 48, 48), rng)
    assert (dotted >= 0).all() and (dotted.amax(dim=(1, 2)) > 3).all()
    assert (dotted > 1).float().mean() < 0.1  # small ones


def test_fields_of_a_batch_are_those_of_each_plane():
    images = [images_of("a", scene(0), "cpu")]
    pool = Pool(24, 3, np.random.default_rng(0), "cpu")
    batch = batch_of(Shelf(images), pool, 3, 2, torch.Generator().manual_seed(0))
    for z, f, complete in zip(batch.z, batch.f, batch.complete, strict=True):
        alone = torch.stack([Field(complete, s)(z) for s in ORDERS])
        torch.testing.assert_close(f, alone, rtol=1e-3, atol=1e-3)
        assert torch.equal(f[:, complete], z[complete].expand(3, -1))


def test_training_lowers_the_loss():
    images = [images_of(name, scene(i), "cpu") for i, name in enumerate("ab")]
    steps = PriorTraining(width=8, steps=90, masks=2, planes=3, pool=4, side=24, lr=5e-3)
    losses = [float(state.loss) for state in prior_training.train(images, steps, "cpu")]
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.02


def test_weights_say_what_they_were_trained_on(folder, tmp_path):
    about = train_prior(folder, tmp_path / "w.safetensors", SMALL)
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        inside = json.loads(file.metadata()["hydiff-prior"])
        assert {file.get_tensor(k).dtype for k in file.keys()} == {torch.float16}  # noqa: SIM118
    assert inside["data"] == about["data"] and len(inside["held"]) == 1
    with (tmp_path / "w.safetensors.csv").open() as file:
        assert int([*csv.DictReader(file)][-1]["step"]) == SMALL.steps


def test_the_same_seed_gives_the_same_bytes(folder, tmp_path):
    for name in "ab":
        train_prior(folder, tmp_path / name, SMALL)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_images_go_on_from_weights_and_are_named(folder, tmp_path):
    first = train_prior(folder, tmp_path / "first", SMALL)
    more = tmp_path / "more"
    more.mkdir()
    np.savez(more / "mine.npz", mine_1=scene(7), mine_2=scene(8))
    still = replace(SMALL, steps=1, lr=1e-9)
    both = {"more": more, "start": tmp_path / "first"}
    about = train_prior(folder, tmp_path / "both", still, **both)
    assert about["data"].keys() == {"a.npz", "mine.npz"}
    assert about["start"]["data"] == first["data"]
    assert about["start"]["sha256"] == prior_weights.digest(tmp_path / "first")
    before, after = (prior_weights.network_of(tmp_path / n, "cpu") for n in ("first", "both"))
    for old, new in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=1e-3, atol=1e-6)  # it began there
    alone = train_prior(None, tmp_path / "alone", replace(still, held=0), **both)
    assert alone["data"].keys() == {"mine.npz"} and not alone["held"]
    with pytest.raises(BadValue, match="has width 4"):
        train_prior(folder, tmp_path / "w", replace(still, width=8), start=tmp_path / "first")
    with pytest.raises(BadValue, match="in another folder too"):
        train_prior(folder, tmp_path / "w", still, more=folder)


def test_what_cannot_be_trained_on_is_refused(folder, tmp_path):
    with pytest.raises(CubeFormatError, match="with arrays"):
        train_prior(tmp_path, tmp_path / "w", SMALL)
    with pytest.raises(CubeFormatError, match="no such folder"):
        train_prior(folder / "a.npz", tmp_path / "w", SMALL)
    with pytest.raises(BadValue, match="only 3 places"):
        train_prior(folder, tmp_path / "w", PriorTraining(side=24, held=3))


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("width", 0, "1 or more"),
        ("width", 10**9, "at most 1024"),
        ("side", 11, "12 or more"),
        ("side", 225, "drawn = 0"),
        ("held", -1, "0 or more"),
        ("lr", float("nan"), "from 0 to 1"),
        ("seed", -1, "whole number"),
    ],
)
def test_settings_out_of_range_are_refused(setting, value, words):
    with pytest.raises(BadValue, match=f"{setting} ?= ?{value}.*{words}"):
        PriorTraining(**{setting: value})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"nonsense", "cannot be read"),
        (np.full((2, 30, 30), np.nan), "x_1 has NaN"),
        (np.full((2, 30, 30), 1e300), "beyond float32"),
        (np.full((2, 30, 30), "x"), "real numbers"),
        (np.ones((2, 30, 30)), "x_1 is constant"),
        (np.ones((0, 30, 30)), "x_1 is constant"),
        (np.array([{}]), "with arrays"),
    ],
)
def test_files_that_hold_no_images_are_refused(tmp_path, content, words):
    if isinstance(content, bytes):
        (tmp_path / "x.npz").write_bytes(content)
    else:
        np.savez(tmp_path / "x.npz", x_1=content)
    with pytest.raises(CubeFormatError, match=words):
        train_prior(tmp_path, tmp_path / "w", SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_a_constant_band_teaches_nothing(tmp_path):
    """In units of its roughness it would outweigh all other bands."""
    for name, more in (("a", 0), ("b", 1)):
        bands = np.concatenate([scene(0), np.full((more, 40, 44), 7, np.uint16)])
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "x.npz", x_1=bands)
    (_, one), (_, other) = (prior_files._of_file(tmp_path / n / "x.npz", 24) for n in "ab")
    np.testing.assert_array_equal(one["x_1"], other["x_1"])


def test_outputs_that_cannot_be_written_are_refused_before_the_training(folder, tmp_path):
    def refused(words, output=tmp_path / "w", **how):
        with pytest.raises(OutputError, match=words):
            train_prior(tmp_path / "none", output, SMALL, **how)

    refused("is not a folder", tmp_path / "none" / "w")
    refused("is a folder", folder)
    (tmp_path / "w.csv").write_text("mine")
    refused(r"w\.csv exists")
    (tmp_path / "w.csv").unlink()
    (tmp_path / "w.training").write_text("mine")
    refused("unfinished training")


def test_an_interrupted_training_is_resumed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(prior_files, "KEPT", 0.0)
    longer = replace(SMALL, steps=50, held=0, drawn=0)
    reached = []

    def stop(step, _):
        reached.append(step)
        if step == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_prior(folder, tmp_path / "w", longer, progress=stop)
    assert {p.name for p in tmp_path.iterdir()} == {"data", "w.training"}
    with pytest.raises(BadValue, match="belongs to another training"):
        train_prior(folder, tmp_path / "w", replace(longer, seed=1), resume=True)
    about = train_prior(
        folder, tmp_path / "w", longer, resume=True, progress=lambda step, _: reached.append(step)
    )
    assert reached == [20, 40, 40] and about["curve"][-1]["step"] == 50
    assert {p.name for p in tmp_path.iterdir()} == {"data", "w", "w.csv"}


def test_a_state_that_cannot_be_written_ends_the_training_in_one_line(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(prior_files, "KEPT", 0.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))  # as on a full disk
    try:
        with pytest.raises(OutputError, match=r"cannot write .*w\.training"):
            train_prior(folder, tmp_path / "w", replace(SMALL, held=0, drawn=0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_state_is_refused(folder, tmp_path, content):
    (tmp_path / "w.training").write_bytes(content)
    with pytest.raises(CubeFormatError, match="no readable state"):
        train_prior(folder, tmp_path / "w", SMALL, resume=True)


def test_the_command_trains(folder, tmp_path):
    tiny = [part for s in TINY for part in ("--set", s)]
    command = ["train-prior", "--data", str(folder), "-o", str(tmp_path / "w"), "--steps", "3"]
    done = CliRunner().invoke(app, [*command, "--size", "small", "--device", "cpu", *tiny])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "w").exists() and not (tmp_path / "w.training").exists()
    done = CliRunner().invoke(
        app, [*command[:1], "--more", *command[2:], "--overwrite", "--device", "cpu", *tiny]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["start"]["file"] == "prior-full.safetensors"
    done = CliRunner().invoke(app, ["train-prior", *command[3:]])
    assert done.exit_code != 0 and "no images to train on" in str(done.exception or done.output)
