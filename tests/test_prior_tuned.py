"""Laws of `anchored` with `start=prior`: what other images taught, and a little of this cube."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch._subclasses.fake_tensor import FakeTensorMode

import hydiff
from conftest import prior_weights as weights
from hydiff import auto
from hydiff.auto import blend, candidates, folds, planning
from hydiff.cube import Cube, as_cube
from hydiff.errors import BadValue, UnknownName
from hydiff.flags import PRIOR
from hydiff.gaps.mask import make_mask
from hydiff.learn import prior_weights
from hydiff.methods import tuned as module
from hydiff.methods.anchored import Anchored, anchored
from hydiff.methods.estimate import Job
from hydiff.request import Request
from hydiff.scale import execute
from hydiff.scale.layout import Limits

SHAPE = (5, 20, 24)
FEW = {"steps": 3, "examples": 1, "start": "prior", "size": "small", "device": "cpu"}


@pytest.fixture(autouse=True)
def packaged(tmp_path, monkeypatch):
    """Weights where the package has its own."""
    monkeypatch.setattr(prior_weights, "FOLDER", tmp_path)
    weights(tmp_path / "prior-small.safetensors")
    return tmp_path


@pytest.fixture
def scene(rng):
    maps = rng.standard_normal((3, *SHAPE[1:])).cumsum(axis=1).cumsum(axis=2)
    return np.tensordot(rng.exponential(size=(SHAPE[0], 3)), ndimage.gaussian_filter(maps, 1), 1)


@pytest.fixture
def gaps():
    return make_mask("stripes", SHAPE, 0.25, np.random.default_rng(1))


def fill(y, observed, **how):
    return hydiff.fill(y, observed, method="anchored", **FEW | how)


def prior_of(y, observed, **how):
    return hydiff.fill(y, observed, method="prior", size="small", device="cpu", **how).values


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("symmetries", [False, True])
def test_before_it_has_learned_it_is_the_prior(scene, gaps, noise, symmetries):
    sigma = noise * np.ptp(scene)
    found = fill(scene, gaps, lr=1e-12, sigma_y=sigma, symmetries=symmetries).values
    expected = prior_of(scene, gaps, sigma_y=sigma, symmetries=8 if symmetries else 1)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.ptp(scene))


def tuner_of(scene, gaps, sigma_y=0.0, **settings):
    y = torch.as_tensor(np.where(gaps, scene, 0.0), dtype=torch.float32)
    settings = Anchored(**{"steps": 3, "examples": 1, "start": "prior", "size": "small"} | settings)
    rng = torch.Generator().manual_seed(0)
    sigma = torch.full((SHAPE[0],), sigma_y)
    return module.Tuner(y, torch.as_tensor(gaps), sigma, settings, rng)


@pytest.mark.parametrize("sigma_y", [0.0, 0.5])
def test_a_step_looks_at_no_number(scene, gaps, sigma_y):
    """As a recorded step needs it."""
    tuner = tuner_of(scene, gaps, sigma_y)
    tuner.rng = torch.default_generator
    with FakeTensorMode(allow_non_fake_inputs=True):  # holds no values: looking at one fails
        loss, error = tuner.objective(None)
    assert loss.shape == (1,) and error.shape == (len(tuner.parts.p),)


def test_it_goes_half_of_the_way_that_the_network_learned(scene, gaps):
    """The mean of before and after: twice its change is that of the taught network alone."""
    tuner = tuner_of(scene, gaps, lr=0.05)
    for i in (1, 2, 3):
        tuner.step(i)
    taught = module.corrected_planes(tuner.inputs, tuner.fit.network.eval())
    tuner.average(1)
    assert np.abs(taught - tuner.before).max() > 1e-3 * np.ptp(tuner.before)
    half = (taught - tuner.before) / 2
    np.testing.assert_allclose(tuner.after - tuner.before, half, atol=1e-5 * np.ptp(half))


def test_measured_pixels_with_noise_are_left_to_the_untaught_network(scene, gaps):
    tuner = tuner_of(scene, gaps, sigma_y=0.5, lr=0.05)
    for i in (1, 2, 3):
        tuner.step(i)
    tuner.average(1)
    np.testing.assert_array_equal(tuner.after[:, gaps], tuner.before[:, gaps])
    assert np.abs(tuner.after - tuner.before)[:, ~gaps].max() > 1e-3 * np.ptp(tuner.before)


def test_it_learns_what_this_cube_repeats(rng):
    """Lines of two px, of which the gaps hide some: the network corrects nothing at first."""
    y = np.tile(np.where(np.arange(32) % 4 < 2, 1.0, 0.0), (3, 32, 1))
    y = y * rng.uniform(0.5, 1, (3, 1, 1)) + 0.02 * rng.standard_normal(y.shape)
    observed = np.ones(y.shape[1:], bool)
    observed[:, [6, 7, 15, 16, 23, 24]] = False
    weights(prior_weights.packaged("small"), std=0, width=8)
    before = np.abs(prior_of(y, observed) - y)[:, ~observed].mean()
    after = np.abs(fill(y, observed, steps=100, lr=0.01).values - y)[:, ~observed].mean()
    assert after < 0.85 * before


def test_the_loss_is_one_before_it_has_learned(scene, gaps):
    history = fill(scene, gaps, lr=1e-12, steps=20).history
    assert np.mean([step["split"] for step in history if "split" in step]) == pytest.approx(1, 0.5)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_observed_entries_stay_and_nothing_under_the_mask_is_read(scene, gaps, noise):
    sigma = noise * np.ptp(scene)
    found = fill(scene, gaps, sigma_y=sigma)
    other = fill(np.where(gaps, scene, 77.0), gaps, sigma_y=sigma)
    assert found.values.tobytes() == other.values.tobytes()
    if not noise:
        np.testing.assert_array_equal(found.values[:, gaps], scene[:, gaps])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(scene, gaps):
    one, two, three = (fill(scene, gaps, lr=0.05, seed=seed).values for seed in (1, 1, 2))
    assert one.tobytes() == two.tobytes() != three.tobytes()


@pytest.mark.parametrize("sigma_y", [0.0, 0.1])
def test_resuming_gives_the_same_bytes(scene, gaps, sigma_y):
    unit = (scene - scene.min()) / np.ptp(scene)
    y = torch.as_tensor(np.where(gaps, unit, 0.0), dtype=torch.float32)
    given = y, torch.as_tensor(gaps), torch.full((SHAPE[0],), sigma_y)
    settings = Anchored(steps=7, examples=2, lr=0.05, start="prior", size="small")

    def run(resume=None):
        rng = torch.Generator().manual_seed(0)
        return anchored(*given, settings, rng=rng, resume=resume)

    whole, rest = list(run()), list(run([*islice(run(), 4)][-1].state()))
    assert len(rest) == len(whole) - 4
    for one, other in zip(whole[4:], rest, strict=True):
        assert torch.equal(one.x, other.x)


def test_a_y_plus_b(scene, gaps):
    one, other = fill(scene, gaps, lr=0.02).values, fill(3 * scene - 7, gaps, lr=0.02).values
    np.testing.assert_allclose(other, 3 * one - 7, atol=1e-3 * np.ptp(scene))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_bands_may_have_masks_of_their_own(scene, gaps, noise):
    observed = np.array(np.broadcast_to(gaps, SHAPE))
    observed[0] = True
    found = fill(scene, observed, sigma_y=noise * np.ptp(scene)).values
    assert np.isfinite(found).all()


def test_where_nothing_is_missing_nothing_is_learned(scene):
    settings = Anchored(steps=3, start="prior", size="small")
    given = torch.as_tensor(scene, dtype=torch.float32), torch.ones(SHAPE[1:], dtype=torch.bool)
    rng = torch.Generator().manual_seed(0)
    [step] = anchored(*given, torch.zeros(SHAPE[0]), settings, rng=rng)
    torch.testing.assert_close(step.x, given[0])


def test_outputs_name_the_weights_and_other_starts_are_refused(scene, gaps):
    digest = prior_weights.digest(prior_weights.packaged("small"))
    assert any(digest[:12] in note for note in fill(scene, gaps).notes)
    with pytest.raises(UnknownName, match="start"):
        Anchored(start="middle")
    with pytest.raises(UnknownName, match="size"):
        Anchored(start="prior", size="huge")


def test_flags_and_no_prior_know_where_the_network_learned(scene, gaps):
    assert (fill(scene, gaps).flags[:, ~gaps] & PRIOR).all()
    with pytest.raises(BadValue, match="leaves nothing of the method anchored"):
        fill(scene, gaps, no_prior=True)


def test_rows_that_start_from_nothing_are_known_as_before():
    assert not {"start", "size"} & set(Anchored().decisive(False))
    assert {"start", "size"} <= set(Anchored(start="prior").decisive(False))


# ── in the default fill ──────────────────────────────────────────────────────────────────────────

TUNED = candidates.TUNED["normal"]._replace(
    settings={**candidates.TUNED["normal"].settings, "size": "small", "steps": 2}
)
ONCE = candidates.PRIOR._replace(settings={"size": "small"})
ANCHORED = candidates.Candidate("anchored", "anchored", {"steps": 2}, crossfit=True)


@pytest.fixture
def budget(monkeypatch):
    """Of a CPU, with what a GPU has time for."""
    tried = candidates.Budget((candidates.SMOOTH, TUNED), 3, 2)
    monkeypatch.setattr(candidates, "budget_of", lambda *_, **__: tried)
    monkeypatch.setattr(auto, "budget_of", lambda *_, **__: tried)


@pytest.mark.usefixtures("budget")
def test_auto_tunes_on_all_entries_once_and_a_recipe_does_it_again(scene, gaps, monkeypatch):
    """The folds try the network before it is tuned; the fill is that of `anchored` alone."""
    seen = []

    def looked(self, y, observed, *rest):
        seen.append(observed.numpy().copy())
        original(self, y, observed, *rest)

    original = module.Tuner.__init__
    monkeypatch.setattr(module.Tuner, "__init__", looked)
    first = hydiff.fill(scene, gaps, device="cpu", seed=3)
    assert len(seen) == 1
    np.testing.assert_array_equal(np.broadcast_to(seen[0], SHAPE), np.broadcast_to(gaps, SHAPE))
    again = hydiff.fill(scene, gaps, device="cpu", recipe=first.recipe)
    assert again.values.tobytes() == first.values.tobytes() and len(seen) == 2
    tried = first.recipe["candidates"][-1]
    assert (tried["name"], tried["seed"]) == ("tuned prior", 3) and "weights" in tried


@pytest.mark.usefixtures("budget")
def test_the_share_of_a_tuned_network_is_that_of_the_network_before(scene, gaps, monkeypatch):
    """Both are tried on the folds by the same fills, so weights and error bars are the same."""
    tuned = hydiff.fill(scene, gaps, device="cpu").recipe
    untuned = TUNED.untuned
    tried = candidates.Budget((candidates.SMOOTH, untuned), 3, 2)
    monkeypatch.setattr(auto, "budget_of", lambda *_, **__: tried)
    before = hydiff.fill(scene, gaps, device="cpu").recipe
    assert untuned.settings == {"size": "small", "symmetries": 8} and untuned.name == "prior"
    np.testing.assert_allclose(tuned["weights"], before["weights"], atol=1e-4)
    np.testing.assert_allclose(tuned["errors"]["level"], before["errors"]["level"], atol=1e-4)


def test_the_tuned_network_starts_with_the_share_of_the_prior():
    """Half of it is the untuned one; networks from nothing enter for a proven gain."""
    for networks, shares in (
        ([ONCE], [0.9]),
        ([ANCHORED], [0.8]),
        ([ANCHORED, ANCHORED], [0.4, 0.4]),
        ([TUNED], [0.9]),
        ([ANCHORED, ONCE], [0, 0.9]),
        ([ANCHORED, TUNED], [0, 0.9]),
    ):
        usual = blend._usual(networks)
        np.testing.assert_allclose(usual, [1 - sum(shares), *shares])


def test_who_has_a_network_is_known_without_torch():
    """Children that try the others do not wait for it; and it is what the settings say."""
    known = (*candidates.WITH_REFERENCE, candidates.CORRECTED, *candidates.TUNED.values())
    for c in (*known, TUNED, ANCHORED):
        assert c.pretrained == candidates.chosen(c).facts.pretrained
    code = (
        "import sys; from hydiff.auto.candidates import CORRECTED, PRIOR, TUNED; "
        "assert all(c.costly for c in (CORRECTED, PRIOR, *TUNED.values())); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_noise_and_budgets_decide_who_is_tried_on_a_gpu(packaged, monkeypatch):
    monkeypatch.setattr(candidates, "torch_device", lambda _: torch.device("cuda"))
    weights(packaged / "prior-full.safetensors")
    job = Job(0, "cuda")

    def names(budget, **how):
        return [c.name for c in candidates.budget_of(budget, job, **how).candidates if c.costly]

    assert names("fast") == ["prior"]
    assert names("normal") == ["tuned prior"]
    assert names("normal", tune=False) == ["prior"]
    assert names("normal", prior=False) == ["anchored (800 steps)"]
    assert names("best") == ["anchored (800 steps)", "tuned prior"]
    assert names("best", tune=False) == ["anchored (800 steps)", "prior"]


def test_where_tuning_is_not_possible_the_network_is_used_as_it_is(scene, gaps, monkeypatch):
    """With too many pixels in gaps, and for pixels that keep some bands."""
    budget = candidates.Budget((candidates.SMOOTH, ANCHORED, TUNED), 3, 2)
    assert planning.budget_for_some(budget).candidates[-1] == TUNED.untuned
    seen = np.broadcast_to(gaps, SHAPE)
    window = folds.TrialWindow(as_cube(scene), seen, ~seen)
    plan = planning.plan_trials([window], 0.0, budget, 0)
    assert list(plan.candidates) == list(budget.candidates)
    monkeypatch.setattr(planning, "MOST_GAPS", 10)
    plan = planning.plan_trials([window], 0.0, budget, 0)
    assert list(plan.candidates) == [candidates.SMOOTH, TUNED.untuned]
    assert "no network learned" in plan.note


@pytest.mark.parametrize(("budget", "tuned"), [("normal", False), ("best", True)])
def test_by_tiles_only_best_has_time_to_tune(scene, gaps, tmp_path, monkeypatch, budget, tuned):
    """Each tile would be tuned by itself; a cube in memory is tuned with `normal`, too."""
    asked = []

    def few(name, job, prior=True, tune=True, gpu=None):
        asked.append(tune)
        return candidates.Budget((candidates.SMOOTH,), 3, 0)

    monkeypatch.setattr(auto, "budget_of", few)
    hydiff.write(Cube(np.where(gaps, scene, np.nan)), tmp_path / "in.img")
    request = Request(budget=budget, device="cpu", outside="fill")
    execute.fill_file(tmp_path / "in.img", tmp_path / "tiles.img", request, Limits(4e9, tile=16))
    hydiff.fill(scene, gaps, budget=budget, device="cpu")
    assert asked == [tuned, True]
