"""The curve of offline training: what is tested was not trained on, and rows can be trusted."""

import csv
import sys
from argparse import Namespace

import numpy as np
import pytest
import torch

from conftest import ROOT
from hydiff.cube import Cube
from hydiff.learn.training import Training, measurements

sys.path.insert(0, str(ROOT / "benchmarks"))

import offline
import tables

SIDE = 24
PLACES = ("ayr", "bari", "cork", "dijon", "essen", "faro", "genoa")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two images of seven places, each place with a level of its own; a scene of another sensor."""
    rng = np.random.default_rng(0)
    images = {
        f"{place}_{date}_20m": (1000 * i + rng.integers(0, 900, (3, 30, 28))).astype(np.uint16)
        for i, place in enumerate(PLACES)
        for date in (1, 2)
    }
    for folder in ("train", "dev"):
        (tmp_path / folder).mkdir()
    np.savez(tmp_path / "train" / "a.npz", **images, ayr_1_10m=np.zeros((4, 40, 40), np.uint16))
    np.savez(tmp_path / "dev" / "other.npz", cube=rng.random((25, 26, 7)))
    monkeypatch.setenv("HYDIFF_DATA", str(tmp_path))
    monkeypatch.setattr(offline, "DEVICE", "cpu")
    return images


def args(tmp_path, **changed):
    given = {
        "crops": 5,
        "side": SIDE,
        "channels": 2,
        "lr": 1e-3,
        "seed": 0,
        "minutes": 1e-9,
        "norm": "batch",
    }
    return Namespace(**given | {"states": tmp_path / "states"} | changed)


def holds(image, square):
    """Whether a square on [0, 1] is a part of an image, up to its scale."""
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(float), (SIDE, SIDE), (1, 2))
    low = windows.min(axis=(0, 3, 4))[None, ..., None, None]
    span = windows.max(axis=(0, 3, 4))[None, ..., None, None] - low
    unit = (windows - low) / span
    return bool(np.isclose(unit, square[:, None, None]).all(axis=(0, 3, 4)).any())


def test_places_of_the_test_are_not_trained_on(data):
    squares, tests, images = offline.split(12, SIDE, 0)
    left = PLACES[:: offline.LEFT]
    for s in squares:
        homes = {key.split("_")[0] for key, image in data.items() if holds(image, s.truth)}
        assert len(homes) == 1 and not homes & {*left}
    found = [
        {key for key, image in data.items() if holds(image, s.truth)}
        for s in tests["out_of_sample"]
    ]
    assert found == [{f"{place}_{date}_20m"} for place in left for date in (1, 2)]
    assert 1 < images <= 10
    for s in (*squares, *tests["out_of_sample"], *tests["elsewhere"]):
        assert s.truth.shape == (3, SIDE, SIDE) and s.truth.min() == 0 and s.truth.max() == 1
        assert s.observed.any() and not s.observed.all()


def test_more_crops_include_fewer_and_have_the_same_tests(data):
    (few, tests, _), (many, same, _) = (offline.split(n, SIDE, 0) for n in (9, 14))
    for one, other in zip(few, many, strict=False):
        np.testing.assert_array_equal(one.damaged, other.damaged)
    for kind in offline.KINDS:
        for one, other in zip(tests[kind], same[kind], strict=True):
            np.testing.assert_array_equal(one.damaged, other.damaged)


def test_the_network_is_asked_about_what_it_is_trained_on(data):
    """y of a test, on the scale of its measured entries, is y of the training."""
    squares, tests, _ = offline.split(4, SIDE, 0)
    cubes = [Cube(s.damaged.astype(np.float32)) for s in squares]
    items = measurements(cubes, Training(crop=SIDE))
    for item, s in zip(items, tests["in_sample"], strict=True):
        torch.testing.assert_close(item.y[0], s.y, rtol=0, atol=1e-6)
        back = s.scale.from_unit(s.y.double().numpy())
        np.testing.assert_allclose(back[:, s.observed], s.truth[:, s.observed], atol=1e-6)


def test_scores_count_gaps_alone_and_all_entries():
    rng = np.random.default_rng(1)
    s = offline.Square(rng.random((3, 20, 20)), np.arange(400).reshape(20, 20) % 4 > 0)
    wrong = np.where(s.observed, -7.0, s.truth + 0.1)
    row = offline.scores({"out_of_sample": [wrong]}, {"in_sample": [s], "out_of_sample": [s]})
    assert row["out_of_sample_gaps"] == 20.0
    assert row["out_of_sample"] == pytest.approx(20 + 10 * np.log10(4), abs=1e-3)
    assert row["in_sample"] == row["in_sample_gaps"] == ""  # not filled


def test_rows_come_at_1_2_and_5_times_powers_of_ten():
    marks = [n for n in range(2001) if offline.is_mark(n)]
    assert marks == [100, 200, 500, 1000, 2000]


def test_a_training_that_was_cut_off_goes_on_to_the_same_weights(data, tmp_path, monkeypatch):
    for name, value in (("SAMPLED", 2), ("FEWEST", 1)):
        monkeypatch.setattr(offline, name, value)
    squares, _, _ = offline.split(5, SIDE, 0)
    cubes = [Cube(s.damaged.astype(np.float32)) for s in squares]
    settings = Training(channels=2, scales=2, crop=SIDE, batch=2)
    whole = {}
    for updates, _, progress in offline.trained(cubes, settings, 10, None):
        whole[updates] = progress
        if updates == 10:
            break
    path = tmp_path / "half.pt"
    offline.keep(path, whole[5])
    again = next(iter(offline.trained(cubes, settings, 10, offline.kept(path))))
    assert again[0] == 10 and again[2].seconds > whole[5].seconds
    for mine, theirs in ((again[2].mean, whole[10].mean), (again[2].state, whole[10].state)):
        assert all(torch.equal(mine[k], theirs[k]) for k in theirs)


def test_the_mean_weighs_later_samples_by_the_formula(data, monkeypatch):
    """Of samples w_1 … w_n with shares 4 / (k + 3), the weights sum to 1 and grow as k³ does."""
    for name, value in (("SAMPLED", 1), ("FEWEST", 1)):
        monkeypatch.setattr(offline, name, value)
    squares, _, _ = offline.split(2, SIDE, 0)
    cubes = [Cube(s.damaged.astype(np.float32)) for s in squares]
    seen = []
    for updates, _, progress in offline.trained(cubes, Training(channels=2, scales=2), 10, None):
        seen.append((updates, progress))
        if updates == 2:
            break
    (one, first), (two, second) = seen
    assert (one, two) == (1, 2)
    for name in first.mean:
        w1, w2 = (p.state[f"network.{name}"] for p in (first, second))
        torch.testing.assert_close(first.mean[name], w1)
        expected = 0.2 * w1 + 0.8 * w2 if w1.is_floating_point() else w2
        torch.testing.assert_close(second.mean[name], expected)


def test_rows_are_written_as_they_come_and_read_by_the_table(data, tmp_path, monkeypatch):
    for name, value in (("SAMPLED", 1), ("FEWEST", 1), ("STEPS", (1,)), ("CLASSICAL", ())):
        monkeypatch.setattr(offline, name, value)
    path, about = tmp_path / "rows.csv", {"bands": 3, "side": SIDE}
    for crops in (5, 6):
        offline.add(path, offline.training_rows(args(tmp_path, crops=crops)), about)
        offline.add(path, offline.training_rows(args(tmp_path, crops=crops)), about)
    offline.add(path, offline.rows_beside(args(tmp_path)), about)
    monkeypatch.setattr(offline, "RESULTS", tmp_path / "all.csv")
    monkeypatch.setattr(offline, "FIGURE", tmp_path / "curve.png")
    for _ in range(2):  # gathering again changes nothing
        offline.gather([path])
        with (tmp_path / "all.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        ways = [r["way"] for r in rows]
        assert ways.count("trained") == 8 and ways.count("trained, then 1 steps") == 4
        assert ways.count("input") == ways.count("test time, 1 steps") == 1
    assert {r["updates"] for r in rows if r["way"] == "trained"} == {"1", "2"}
    assert (tmp_path / "curve.png").stat().st_size > 1000
    text = "\n".join(tables.offline_curve(rows))
    assert "| 5 crops |" in text and "From 5 crops to 6 crops at 2 updates" in text


def curve(crops, scores, lr="0.001", norm="batch"):
    return [
        {"way": "trained", "weights": "mean", "crops": crops, "images": "1", "lr": lr, "norm": norm}
        | {"updates": str(n), "seconds": "60"}
        | dict.fromkeys(tables.OFFLINE_SCORES, str(score))
        for n, score in scores.items()
    ]


def test_the_page_says_what_has_saturated():
    rows = curve("10", {100: 20, 200: 25, 400: 25.05}) + curve("50", {100: 20, 400: 28})
    text = "\n".join(tables.offline_curve(rows))
    assert "Saturated: 10 crops.\nStill rising: 50 crops.\nFalling: none." in text
    assert "From 10 crops to 50 crops at 400 updates: +2.95 dB." in text
    assert "28.00 dB: 50 crops, rate 0.001, norm batch, 400 updates" in text
    assert "+0.05" in text and "+4.00" in text  # by the last doubling
    assert "31.11" in text  # the paper, 50 crops


def test_crops_are_compared_at_one_norm():
    rows = curve("10", {100: 20, 400: 25}) + curve("50", {100: 20, 400: 28})
    rows += curve("10", {100: 20, 400: 19}, norm="image")
    text = "\n".join(tables.offline_curve(rows))
    assert "Falling: 10 crops, norm image." in text and "| 10 crops, norm image |" in text
    assert text.count("From ") == 1 and "From 10 crops to 50 crops at 400 updates: +3.00" in text


def test_a_curve_of_one_row_says_nothing_about_saturation():
    text = "\n".join(tables.offline_curve(curve("10", {300: 20, 400: 20})))
    assert "Saturated: none.\nStill rising: none." in text and "+0.00" not in text
