"""A candidate that wins in squared error and loses spectra does not win."""

import numpy as np
import pytest

from errors_on_folds import ONE_CLASS, trial
from hydiff.auto import blend, classes, trials
from hydiff.auto.candidates import SMOOTH, Candidate
from hydiff.auto.wording import Gain
from hydiff.cube import Cube
from hydiff.gaps.mask import make_mask
from hydiff.methods.estimate import Job


def folds(rng, rival, steps, n=4000):
    """Six trials of a first candidate off by 1 and a rival off by `rival`; their steps between
    bands are off by 1 and by `steps`."""
    return [
        trial(
            rng.standard_normal((2, n)) * [[1.0], [rival]],
            step=rng.standard_normal((2, n)) * [[1.0], [steps]],
        )
        for _ in range(6)
    ]


@pytest.mark.parametrize(("steps", "share"), [(0.5, 0.9), (0.9, 0.9), (3.0, 0.0)])
def test_a_rival_wins_only_with_its_spectra(rng, steps, share):
    both = [SMOOTH, Candidate("rival", "smooth", {"s": 1.0})]
    found = blend.weights_of(folds(rng, 0.1, steps), ONE_CLASS, both, 0)
    assert found.all[1, 0].mean() == pytest.approx(share, abs=0.11)
    assert ("steps between bands" in found.why) == (share == 0)


@pytest.mark.parametrize(("steps", "share"), [(0.9, blend.NETWORKS), (3.0, 0.0)])
@pytest.mark.parametrize("crossfit", [True, False])
def test_a_network_enters_only_with_its_spectra(rng, steps, share, crossfit):
    both = [SMOOTH, Candidate("network", "anchored" if crossfit else "prior", crossfit=crossfit)]
    # as good as the usual share wants it, so that no other share is a proven gain
    usual = (1 - blend.NETWORKS) / blend.NETWORKS
    found = blend.weights_of(folds(rng, usual**0.5, steps), ONE_CLASS, both, 0)
    assert found.all[1, 0].mean() == pytest.approx(share, abs=0.02)


def test_steps_are_those_of_the_spectra(rng):
    """The error of a difference of two bands, where the fold hides both."""
    scene = np.cumsum(rng.standard_normal((6, 40, 40)), axis=1)
    observed = np.broadcast_to(make_mask("stripes", scene.shape, 0.2, rng), scene.shape)
    fold = np.zeros(scene.shape, bool)
    fold[:4, 10:20, 10:20] = observed[:4, 10:20, 10:20]
    job = Job(0, "cpu")
    window = trials.BareWindow(Cube(scene), observed)
    found = trials.trial_of(window, fold, [SMOOTH], np.zeros(6), job)
    spread = classes.band_spread(Cube(scene), observed & ~fold)
    error = np.zeros(scene.shape)
    error[fold] = found.residual[0] * spread[found.band]
    step = np.where(fold[:-1] & fold[1:], np.diff(error, axis=0), 0.0)
    step = np.concatenate([step, np.zeros((1, 40, 40))])
    np.testing.assert_allclose(found.step[0], step[fold], atol=1e-9)
    assert found.step[0].any()


def test_folds_that_disagree_prove_no_loss(rng):
    """Three folds that scatter more than they differ from 0 leave a network its usual share."""
    both = [SMOOTH, Candidate("network", "anchored", crossfit=True)]
    usual = (1 - blend.NETWORKS) / blend.NETWORKS
    steps = (3.0, 0.3, 0.3)  # of the network, fold by fold
    some = [folds(rng, usual**0.5, each)[0] for each in steps]
    found = blend.weights_of(some, ONE_CLASS, both, 0)
    assert found.all[1, 0].mean() == pytest.approx(blend.NETWORKS, abs=0.02)


@pytest.mark.parametrize(("lost", "taken"), [(0.1, True), (0.5, False)])
def test_noise_over_all_does_not_make_a_small_loss_of_spectra_count(lost, taken):
    """`lost`: in the steps, of what is gained in the values; both a thousandth of the noise."""
    values, steps = Gain(1e-3, 1e-4, 6), Gain(-lost * 1e-3, 1e-5, 6)
    assert steps.loss_proven and blend._hurts_spectra(steps, values) != taken
