"""The cells of benchmarks/stress.py: drawn from their number alone, from scenes that judge nothing
else and that no training has seen."""

import sys

import numpy as np
import pytest

from conftest import ROOT
from hydiff.learn import prior_weights, weights_file

sys.path.insert(0, str(ROOT / "benchmarks"))
import stress
import stress_scenes

PICTURES = range(len(stress_scenes.KINDS) - 1, 120, len(stress_scenes.KINDS))  # need no files


@pytest.mark.usefixtures("data_dir")
def test_a_cell_follows_from_its_number_and_has_gaps_and_measured_values_in_every_band():
    for number in PICTURES:
        cell, again = stress.cell_of(number), stress.cell_of(number)
        assert cell.values.tobytes() == again.values.tobytes()
        assert (np.isnan(cell.values) == ~cell.observed).all() and not cell.observed.all()
        assert cell.observed.any(axis=(1, 2)).all()
        assert cell.truth.min() == 0 and cell.truth.max() == 1
        assert np.ptp(cell.truth, axis=(1, 2)).all()


@pytest.mark.parametrize("cols", [32, 40])
def test_bars_hide_some_columns_and_leave_others_wherever_they_start(cols):
    for seed in range(200):
        observed = stress_scenes.bars(cols, 0.08, np.random.default_rng(seed))
        assert observed.any() and not observed.all()


def test_places_of_the_training_are_those_held_back(data_dir):
    path = prior_weights.packaged("full")
    about, _ = weights_file.content(path, prior_weights.KIND)
    places = {name.split("_")[0] for name in stress_scenes.names_of("held back")}
    assert places == set(about["held"]) and (data_dir / "train").exists()


@pytest.mark.usefixtures("data_dir")
def test_every_image_is_large_enough_for_a_crop_and_varies():
    for kind in ("native", "held back", "pairs"):
        for name in stress_scenes.names_of(kind):
            image = stress_scenes.whole(kind, name)
            assert min(image.shape[1:]) >= 25 and np.isfinite(image).all()


def test_where_hidden_copies_leave_the_network_in_doubt_auto_loses_little():
    """A cell in which the network with its usual share lost 1.2 dB to `smooth`."""
    cell, most = stress.cell_of(53), 0.7
    found = {
        method: stress.decibels(cell, stress.filled(cell, method).values)
        for method in ("smooth", "prior", "auto")
    }
    assert found["prior"] < found["smooth"] - most
    assert found["auto"] > found["smooth"] - most
