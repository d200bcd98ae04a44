"""The network that was trained elsewhere: what it may change, and what it must not invent."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import ndimage
from typer.testing import CliRunner

import hydiff
from conftest import prior_weights as weights
from hydiff import io
from hydiff.auto import blend, candidates, fits, folds
from hydiff.cli import app
from hydiff.cube import Cube, as_cube
from hydiff.errors import BadValue, CubeFormatError, UnknownName
from hydiff.gaps.mask import make_mask
from hydiff.io import record
from hydiff.learn import plane_crop, prior_weights
from hydiff.learn.plane_network import INPUTS, ORDERS, SIDE, PlaneNetwork
from hydiff.methods import METHODS, choose, prior, smooth
from hydiff.methods.estimate import Job, estimate
from hydiff.reference.models import ReferencePlanes
from hydiff.request import Request
from hydiff.scale import early, execute, forecast, layout, prior_files, tiles
from hydiff.scale.layout import Limits

SHAPE = (9, 32, 40)


@pytest.fixture
def some(tmp_path):
    return weights(tmp_path / "some.safetensors")


@pytest.fixture
def none(tmp_path):
    return weights(tmp_path / "none.safetensors", std=0)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Weights where the package has its own."""
    monkeypatch.setattr(prior_weights, "FOLDER", tmp_path)
    for size in prior_weights.SIZES:
        weights(tmp_path / f"prior-{size}.safetensors", seed=len(size))
    return tmp_path


@pytest.fixture
def scene(rng):
    """Rough maps of four materials with spectra of their own."""
    maps = rng.standard_normal((4, *SHAPE[1:])).cumsum(axis=1).cumsum(axis=2)
    spectra = rng.exponential(size=(SHAPE[0], 4))
    return np.tensordot(spectra, ndimage.gaussian_filter(maps, (0, 1, 1)), 1)


@pytest.fixture
def gaps():
    return make_mask("stripes", SHAPE, 0.25, np.random.default_rng(1))


def fill(y, observed, **how):
    return hydiff.fill(y, observed, method="prior", device="cpu", **how)


def turned(y, observed, sigma=0.0):
    sigma_y = np.broadcast_to(sigma, len(y)).astype(float)
    c = smooth.coordinates(np.where(observed, y, 0.0), observed, sigma_y, 24)
    return c, prior.parts_of(c, 4)


def test_planes_do_not_depend_on_the_units_of_the_bands(scene, gaps, rng):
    """Nine bands: the components hold all of them."""
    own, others = (
        prior.planes_of(parts.p, gaps).planes
        for _, parts in (turned(scene, gaps), turned(scene * rng.uniform(0.3, 3, (9, 1, 1)), gaps))
    )
    np.testing.assert_allclose(own[:4], others[:4], atol=1e-6 * np.abs(own).max())


@pytest.mark.parametrize("size", [0.1, 1, 30])
def test_a_band_of_mere_noise_that_nobody_declared_turns_no_plane(scene, gaps, rng, size):
    """However large its noise is: as a principal component of the bands it would come first."""
    noise = size * scene.std() * rng.standard_normal((1, *SHAPE[1:]))
    own, others = (turned(y, gaps)[1].p[:3] for y in (scene, np.concatenate([scene, noise])))
    for one, other in zip(own, others, strict=True):
        assert abs(np.corrcoef(one[gaps], other[gaps])[0, 1]) > 0.99


def test_declared_noise_is_the_unit_of_the_bands_and_the_same_in_every_plane(scene, gaps, rng):
    sigma = 0.03 * np.ptp(scene) * rng.uniform(0.3, 1, SHAPE[0])
    noise = sigma[:, None, None] * rng.standard_normal(SHAPE)
    c, parts = turned(scene + noise, gaps, sigma)
    np.testing.assert_array_equal(parts.p, c.z[:4][parts.some[:4]])
    np.testing.assert_allclose(parts.sigma, 1)
    mixed = np.tensordot(parts.axes[parts.some] @ c.space.basis.T, noise / sigma[:, None, None], 1)
    np.testing.assert_allclose(mixed[:, gaps].std(axis=1), parts.sigma, rtol=0.1)


def test_with_noise_planes_do_not_depend_on_the_units_of_the_bands(scene, gaps, rng):
    unit, sigma = rng.uniform(0.3, 3, SHAPE[0]), 0.03 * np.ptp(scene)
    noisy = scene + sigma * rng.standard_normal(SHAPE)
    own, others = (
        prior.planes_of(turned(noisy * u[:, None, None], gaps, sigma * u)[1].p, gaps).planes
        for u in (np.ones(SHAPE[0]), unit)
    )
    np.testing.assert_allclose(own, others, atol=1e-9)


def test_planes_do_not_vary_together_and_the_strongest_come_first(scene, gaps):
    _, parts = turned(scene, gaps)
    p = parts.p[:, gaps]
    together = np.cov(p)
    np.testing.assert_allclose(together, np.diag(together.diagonal()), atol=1e-9 * together.max())
    assert (np.diff(together.diagonal()) < 0).all()


def test_planes_that_smooth_would_fill_so_give_the_fill_of_smooth(scene, gaps):
    _, parts = turned(scene, gaps)
    np.testing.assert_allclose(parts.with_planes(parts.kriged), parts.f, atol=1e-12)


# ── what it may change ───────────────────────────────────────────────────────────────────────────


def test_without_a_correction_it_is_the_smooth_field(scene, gaps, none):
    field = hydiff.fill(scene, gaps, method="smooth", s=ORDERS[1])
    found = fill(scene, gaps, weights=none)
    np.testing.assert_allclose(found.values, field.values, atol=1e-5 * np.ptp(scene))


@pytest.mark.parametrize("partial", [False, True])
def test_observed_entries_stay_and_gaps_change(scene, gaps, some, none, partial):
    observed = np.array(np.broadcast_to(gaps, SHAPE))
    observed[0] |= partial  # pixels that keep one band
    found, field = (fill(scene, observed, weights=w) for w in (some, none))
    np.testing.assert_array_equal(found.values[observed], scene[observed])
    np.testing.assert_allclose(found.raw[observed], scene[observed], atol=1e-9)  # scaled and back
    assert np.abs(found.raw - field.raw)[~observed].max() > 1e-3 * np.ptp(scene)


def test_with_noise_all_pixels_are_corrected(scene, gaps, some, none, rng):
    sigma = 0.1 * np.ptp(scene)
    noisy = scene + sigma * rng.standard_normal(SHAPE)
    found, field = (fill(noisy, gaps, sigma_y=sigma, weights=w).values for w in (some, none))
    assert (found != field)[:, gaps].mean() > 0.99


@pytest.mark.parametrize(("a", "b"), [(3.0, 0.0), (0.01, 50.0), (-2.0, 1.0)])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_fill_of_a_y_plus_b_is_a_times_the_fill_of_y_plus_b(scene, gaps, some, a, b, noise):
    sigma = noise * np.ptp(scene)
    one = fill(scene, gaps, weights=some, sigma_y=sigma)
    other = fill(a * scene + b, gaps, weights=some, sigma_y=abs(a) * sigma)
    np.testing.assert_allclose(other.values, a * one.values + b, atol=2e-5 * abs(a) * np.ptp(scene))


def test_far_from_data_the_fill_is_that_of_smooth(rng, some, none):
    y = rng.standard_normal((3, 24, 112)).cumsum(axis=2)
    observed = np.ones(y.shape[1:], bool)
    observed[:, 12:-12] = False
    found, field = (fill(y, observed, weights=w).values for w in (some, none))
    far = ndimage.distance_transform_edt(~observed) >= 2 * prior.TRAINED_DISTANCE
    smooth = hydiff.fill(y, observed, method="smooth").values
    np.testing.assert_allclose(found[:, far], smooth[:, far], atol=1e-5 * np.ptp(y))
    np.testing.assert_allclose(field[:, far], smooth[:, far], atol=1e-5 * np.ptp(y))
    assert np.abs(found - field)[:, ~observed & ~far].max() > 1e-3 * np.ptp(y)


def test_components_that_are_rounding_are_not_magnified(scene, gaps):
    """Four materials make four components, whatever else was asked for."""
    y = scene / np.ptp(scene)
    c = smooth.coordinates(np.where(gaps, y, 0.0), gaps, np.zeros(len(y)), 8)
    assert len(c.z) > 4 and prior.parts_of(c, 8).some.sum() == 4
    flat = c._replace(z=1e-14 * c.z, fitted=[])
    assert not prior.parts_of(flat, 8).some.any()


def test_components_of_mere_noise_are_left_to_kriging(scene, gaps, rng):
    """Principal components pick the directions in which there is most of it."""
    sigma = np.full(len(scene), 0.1 * np.ptp(scene))
    noise = sigma[:, None, None] * rng.standard_normal(scene.shape)
    for y, count in ((noise, 0), (10 * scene + noise, 4)):
        c = smooth.coordinates(np.where(gaps, y, 0.0), gaps, sigma, 8)
        assert prior.parts_of(c, 8).some.sum() == count


def test_trust_falls_with_the_distance_and_is_whole_within_the_trained():
    complete = np.zeros((1, 60), bool)
    complete[0, 0] = True
    share = prior.trust(complete)[0]
    assert (share[:9] == 1).all() and (share[16:] == 0).all() and (np.diff(share) <= 0).all()


@pytest.mark.parametrize("symmetries", [1, 8])
def test_how_many_cores_there_are_changes_no_bit(scene, gaps, some, monkeypatch, symmetries):
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(prior, "cores", lambda n=cores: n)
        found.append(fill(scene, gaps, weights=some, symmetries=symmetries).values.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize(("axes", "count"), [((2,), 2), ((1,), 4), ((1, 2), 8)])
def test_with_its_symmetries_a_turned_cube_is_filled_alike(scene, gaps, some, axes, count):
    one, plain = (fill(scene, gaps, weights=some, symmetries=n).values for n in (count, 1))
    turned = fill(np.flip(scene, axes), np.flip(gaps, [a - 1 for a in axes]), weights=some,
                  symmetries=count).values  # fmt: skip
    np.testing.assert_allclose(np.flip(turned, axes), one, atol=2e-5 * np.ptp(scene))
    assert np.abs(plain - one).max() > 1e-4 * np.ptp(scene)


@pytest.mark.parametrize("symmetries", [1, 8])
def test_the_fill_of_some_pixels_is_that_of_the_cube_there(scene, gaps, some, symmetries):
    at = ~gaps & (np.add.outer(np.arange(gaps.shape[0]), np.arange(gaps.shape[1])) % 5 == 0)
    at[: gaps.shape[0] // 2] = False
    settings = prior.Prior(weights=str(some), symmetries=symmetries)
    arrays = scene * gaps, gaps, np.zeros(len(scene))
    whole, part = (
        next(prior.prior(*arrays, settings, rng=np.random.default_rng(0), at=where))
        for where in (None, at)
    )
    np.testing.assert_allclose(part.x[:, 0], whole.x[:, at], rtol=1e-6)  # single precision inside


@pytest.mark.parametrize("rows", [(0, 9), (13, 14), (3, 37)])
@pytest.mark.parametrize("cols", [(5, 30), (40, 45)])
def test_a_part_of_a_correction_is_that_of_the_whole(rows, cols, some):
    network = prior_weights.network_of(Path(some), "cpu")
    inputs = torch.randn(2, INPUTS, 37, 45, generator=torch.Generator().manual_seed(0))
    box = slice(*rows), slice(*cols)
    with torch.inference_mode():
        found, whole = plane_crop.correction_within(network, inputs, box), network(inputs)
    torch.testing.assert_close(found[..., *box], whole[..., *box], rtol=0, atol=1e-6)
    assert whole.abs().max() > 1e-3
    assert (found != 0).sum() <= found[..., *box].numel()


def test_a_narrow_feature_of_a_small_object_survives(rng, some):
    """What one band shows alone lies beyond the strongest components, and is filled all the same:
    as by `smooth`, with the same components."""
    y = np.tensordot(rng.exponential(size=(40, 3)), rng.standard_normal((3, 48, 48)).cumsum(1), 1)
    y[20, 20:26, 20:26] -= 0.3 * np.ptp(y)
    observed = np.ones((48, 48), bool)
    observed[:, 22:24] = False
    few = {"components": 4, "planes": 3}
    found = fill(y, observed, weights=some, **few).values
    field = hydiff.fill(y, observed, method="smooth", s=ORDERS[1], components=4).values
    depth = (found[20] - y[20])[20:26, 22:24].mean(), (field[20] - y[20])[20:26, 22:24].mean()
    assert abs(depth[0]) < 0.1 * np.ptp(y) and abs(depth[0] - depth[1]) < 0.05 * np.ptp(y)


def test_error_bars_are_those_of_the_fields(scene, gaps, some, none):
    one, other = (fill(scene, gaps, weights=w, error_bars=True) for w in (some, none))
    missing = np.broadcast_to(~gaps, SHAPE)
    assert (one.sigma[missing] > 0).all()
    np.testing.assert_array_equal(one.sigma[missing], other.sigma[missing])


# ── weights ──────────────────────────────────────────────────────────────────────────────────────


def test_outputs_name_the_weights(scene, gaps, some):
    digest = prior_weights.digest(prior_weights.Path(some))
    assert any(digest[:12] in note for note in fill(scene, gaps, weights=some).notes)


def test_the_layout_is_that_of_the_training():
    assert prior_weights.LAYOUT == prior_files.LAYOUT


def damage(path, change=lambda weights: weights * float("nan")):
    tensors = load_file(path)
    tensors["last.weight"] = change(tensors["last.weight"])
    about = json.dumps({"layout": 1, "settings": {"width": 2}})
    save_file(tensors, path, metadata={"hydiff-prior": about})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b"nonsense"), "not a readable safetensors file"),
        (lambda path: weights(path, layout=7), "layout 7"),
        (lambda path: weights(path, settings={"width": 5}), "tensor .* is damaged"),
        (lambda path: weights(path, settings={"width": 10**9}), "width = 1000000000"),
        (lambda path: weights(path, settings=[]), "width = None"),
        (damage, "tensor last.weight is damaged: not all values are finite"),
        (lambda path: damage(path, lambda w: w.double() + 1e300), "not all values are finite"),
        (lambda path: damage(path, lambda w: w.long()), "int64, expected torch.float32"),
    ],
)
def test_weights_that_are_none_are_refused(scene, gaps, some, change, message):
    change(prior_weights.Path(some))
    with pytest.raises(CubeFormatError, match=message):
        fill(scene, gaps, weights=some)


@pytest.mark.skipif(sys.platform != "linux", reason="has no file that nobody can read")
def test_weights_that_cannot_be_read_are_refused():
    with pytest.raises(CubeFormatError, match="Input/output error; check the file"):
        prior_weights.digest(Path("/proc/self/mem"))


def test_settings_without_meaning_are_refused():
    with pytest.raises(UnknownName, match="size"):
        prior.Prior(size="huge")
    with pytest.raises(BadValue, match="symmetries = 3: expected 1, 2, 4 or 8"):
        prior.Prior(symmetries=3)
    with pytest.raises(BadValue, match="planes = 0"):
        prior.Prior(planes=0)


def test_the_full_network_is_taken_unless_another_is_named(packaged):
    assert prior.Prior().file() == packaged / "prior-full.safetensors"
    assert prior.Prior(size="small").file() == packaged / "prior-small.safetensors"
    assert prior.Prior(weights="mine").file() == Path("mine")


# ── in auto ──────────────────────────────────────────────────────────────────────────────────────


def test_auto_names_its_share_and_its_weights(scene, gaps, packaged):
    recipe = hydiff.fill(scene, gaps, budget="fast", device="cpu").recipe
    entry = recipe["candidates"][-1]
    digest = prior_weights.digest(packaged / "prior-full.safetensors")
    assert (entry["method"], entry["weights"]) == ("prior", digest)
    assert sum(c["share"] for c in recipe["candidates"]) == pytest.approx(1, abs=1e-3)
    blend, reasons = recipe["why"].split(": ", 1)
    assert (f"prior {100 * entry['share']:.0f} %" in blend) == (entry["share"] >= 0.005)
    start = 50 if "prior with 50 % gave" in reasons else 90
    assert "prior with 90 % gave" in reasons
    assert f"shares of prior other than {start} %" in reasons


@pytest.fixture
def certain(monkeypatch):
    """The usual share of a network is kept, whatever the folds say."""
    monkeypatch.setattr(blend, "DOUBT", np.inf)
    monkeypatch.setattr(blend, "LIKELY", -np.inf)


@pytest.mark.usefixtures("certain", "packaged")
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_recipe_with_the_prior_replays_to_the_same_bytes(scene, gaps, noise):
    how = {"sigma_y": noise * np.ptp(scene), "device": "cpu"}
    result = hydiff.fill(scene, gaps, budget="fast", **how)
    assert result.recipe["candidates"][-1]["share"] == pytest.approx(blend.ELSEWHERE)
    again = hydiff.fill(scene, gaps, recipe=result.recipe, **how)
    assert again.values.tobytes() == result.values.tobytes()
    assert again.sigma.tobytes() == result.sigma.tobytes()
    alone = fill(scene, gaps, sigma_y=how["sigma_y"], **candidates.FAST_PRIOR.settings).values
    plain = hydiff.fill(scene, gaps, budget="fast", no_prior=True, **how).values
    mixed = blend.ELSEWHERE * alone + (1 - blend.ELSEWHERE) * plain
    np.testing.assert_allclose(result.values, mixed, atol=1e-9 * np.ptp(scene))


@pytest.mark.usefixtures("certain", "packaged")
@pytest.mark.parametrize("when", ["in a trial", "of the cube itself"])
def test_a_prior_that_finds_no_memory_is_left_out_and_it_is_reported(
    scene, gaps, monkeypatch, when
):
    corrected, calls = prior.corrected_fields, []

    def too_large(c, settings, *more):
        calls.append(settings.planes)
        of_cube = settings.planes == prior.Prior.planes  # trials look at fewer
        if of_cube == (when == "of the cube itself"):
            raise MemoryError
        return corrected(c, settings, *more)

    how = {"budget": "fast", "device": "cpu"}
    without = hydiff.fill(scene, gaps, no_prior=True, **how)
    monkeypatch.setattr(prior, "corrected_fields", too_large)
    result = hydiff.fill(scene, gaps, **how)
    assert calls and "too little memory" in result.recipe["why"]
    assert "prior" not in {c["name"] for c in result.recipe["candidates"]}
    np.testing.assert_array_equal(result.values, without.values)


def test_what_a_reference_leaves_over_is_corrected_as_well(scene, gaps, packaged):
    other = np.stack([scene[:3].mean(axis=0), scene[3:].mean(axis=0)])
    how = {"reference": other, "device": "cpu", "budget": "fast"}
    first = hydiff.fill(scene, gaps, **how)
    tried = first.recipe["with_reference"]["candidates"][-1]
    digest = prior_weights.digest(packaged / "prior-full.safetensors")
    assert (tried["name"], tried["weights"]) == (candidates.CORRECTED.name, digest)
    again = hydiff.fill(scene, gaps, recipe=json.loads(json.dumps(first.recipe)), **how)
    assert again.values.tobytes() == first.values.tobytes()
    without = hydiff.fill(scene, gaps, no_prior=True, **how).recipe["with_reference"]
    assert candidates.CORRECTED.name not in {c["name"] for c in without["candidates"]}


@pytest.mark.usefixtures("packaged")
def test_the_network_changes_what_a_reference_leaves_over(scene, gaps):
    """The more one shows, the less."""
    entries, there = np.broadcast_to(gaps, scene.shape), np.ones(SHAPE[1:], bool)
    apart = []
    for other in (scene, scene[:1]):
        job = Job(0, "cpu", references=(ReferencePlanes(other, there),))
        plain, corrected = (
            estimate(as_cube(scene), entries, choose("reference", None, how), 0.0, job).values
            for how in ({"context": 0}, {"context": 0, "size": "full"})
        )
        assert np.array_equal(plain[entries], corrected[entries])
        apart.append(np.abs(plain - corrected).max() / scene.std())
    assert 0 < apart[0] < 0.2 * apart[1]


@pytest.mark.usefixtures("certain")
def test_record_and_report_carry_share_and_weights(scene, gaps, packaged, tmp_path):
    np.save(tmp_path / "a.npy", np.moveaxis(np.where(gaps, scene, np.nan), 0, 2))
    output = tmp_path / "b.tif"
    command = ["fill", str(tmp_path / "a.npy"), "-o", str(output), "--outside", "fill", "--report"]
    done = CliRunner().invoke(app, [*command, "--budget", "fast", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    digest = prior_weights.digest(packaged / "prior-full.safetensors")
    written = tmp_path / "b.tif.fill.json"
    own = record.read(written)
    last = own.recipe.candidates[-1]
    assert (last.weights, last.share) == (digest, blend.ELSEWHERE)
    page = (tmp_path / "b.tif.report.html").read_text()
    assert "prior 90 %" in page and digest[:12] in page
    for file in packaged.glob("*.safetensors"):  # a record is readable wherever it was made
        file.unlink()
    assert record.read(written).recipe.candidates[-1].weights == digest


@pytest.mark.parametrize("budget", ["fast", "normal"])
def test_without_the_prior_is_as_if_there_were_no_weights(scene, gaps, packaged, budget):
    how = {"budget": budget, "device": "cpu"}
    left_out = hydiff.fill(scene, gaps, no_prior=True, **how)
    for file in packaged.glob("*.safetensors"):
        file.unlink()
    absent = hydiff.fill(scene, gaps, **how)
    assert left_out.values.tobytes() == absent.values.tobytes()
    assert left_out.recipe == absent.recipe and left_out.notes == absent.notes


def test_weights_of_another_network_change_no_fill_by_tiles(scene, gaps, packaged, tmp_path):
    """`auto` has the full network as a candidate; nothing depends on the small one."""
    (packaged / "prior-full.safetensors").unlink()
    io.write(Cube(np.where(gaps, scene, np.nan)), tmp_path / "in.img")
    fills = []
    for no_prior in (True, False):
        request = Request(budget="fast", no_prior=no_prior, device="cpu", outside="fill")
        out = tmp_path / f"{no_prior}.img"
        record = execute.fill_file(tmp_path / "in.img", out, request, Limits(4e9, tile=16)).record
        fills.append((record["tiles"], record["recipe"], record["notes"], out.read_bytes()))
    assert fills[0] == fills[1]
    assert not early.uses_network(request) and forecast.kind_of(request) == "auto fast"
    with pytest.raises(CubeFormatError, match="the weights of the prior, is not installed"):
        fill(scene, gaps)


def test_a_recipe_with_other_weights_is_refused(scene, gaps, packaged):
    recipe = hydiff.fill(scene, gaps, budget="fast", device="cpu").recipe
    with pytest.raises(BadValue, match="drop one of them"):
        hydiff.fill(scene, gaps, recipe=recipe, no_prior=True)
    weights(packaged / "prior-full.safetensors", seed=99)
    with pytest.raises(BadValue, match="did not come with this version"):
        hydiff.fill(scene, gaps, recipe=recipe)
    for wrong, message in (("../file", "SHA-256"), (None, "weights belong to the prior")):
        recipe["candidates"][-1]["weights"] = wrong
        with pytest.raises(BadValue, match=message):
            hydiff.fill(scene, gaps, recipe=recipe)


def test_a_budget_takes_the_symmetries_that_it_has_time_for(packaged):
    job = hydiff.methods.estimate.Job(0, "cpu")
    for budget in candidates.BUDGETS:
        last = candidates.budget_of(budget, job).candidates[-1]
        assert last.settings["size"] == "full" and last.costly and not last.crossfit
        assert last.settings["symmetries"] == (2 if budget == "fast" else 8)
    (packaged / "prior-full.safetensors").unlink()
    assert candidates.budget_of("fast", job) == candidates.BUDGETS["fast"]


def test_folds_take_less_time_than_the_cube_itself(scene, gaps):
    """The same candidate with fewer planes and no symmetries, and with all of them."""
    job = hydiff.methods.estimate.Job(0, "cpu")
    seen = np.broadcast_to(gaps, SHAPE)
    window, nothing = folds.TrialWindow(as_cube(scene), seen, ~seen), np.zeros(SHAPE, bool)
    both = [candidates.PRIOR]
    found = fits.pretrained_fits(both, both, [window], [(0, nothing)], 0.0, job, 1)
    for one, how in zip(found["prior"], ({"planes": 4}, {"symmetries": 8}), strict=True):
        np.testing.assert_array_equal(one.values, fill(scene, gaps, **how).raw)


@pytest.mark.usefixtures("certain", "packaged")
def test_beside_the_other_candidates_or_apart_from_them_it_finds_the_same(scene, gaps):
    """Determinism, a setting of the process, keeps it out of threads."""
    fills = [
        hydiff.fill(scene, gaps, budget="fast", device="cpu", deterministic=wanted)
        for wanted in (False, True)
    ]
    assert np.array_equal(fills[0].values, fills[1].values)
    assert fills[0].recipe["weights"] == fills[1].recipe["weights"]
    assert fills[0].recipe["candidates"][-1]["share"] > 0


def test_what_the_prior_cannot_be_without_is_refused():
    with pytest.raises(BadValue, match="leaves nothing of the method prior"):
        Request(method="prior", no_prior=True).check()


# ── in tiles ─────────────────────────────────────────────────────────────────────────────────────


def test_a_tile_sees_as_far_as_the_network():
    """How far is measured by gradients: of what pixel a correction depends on."""
    torch.manual_seed(0)
    network = PlaneNetwork(2).double()
    torch.nn.init.normal_(network.last.weight)
    wide, halo, farthest = 264, METHODS["prior"].halo, []
    for at in range(128, 128 + SIDE):
        inputs = torch.randn(1, INPUTS, SIDE, wide, dtype=torch.float64, requires_grad=True)
        network(inputs)[0, SIDE // 2, at].backward()
        columns = inputs.grad.abs().amax(dim=(0, 1, 2)).nonzero()[:, 0]
        farthest += [at - int(columns[0]), int(columns[-1]) - at]
    assert halo - SIDE < max(farthest) <= halo


def test_the_windows_of_tiles_are_as_wide_as_that(packaged):
    width = np.zeros((600, 600))
    width[300, 300] = 1.0
    request = Request(method="prior")
    assert layout.context(request) == METHODS["prior"].halo
    [tile] = tiles.plan(tiles.grid((600, 600), 96), width, layout.context(request))
    for support, window in zip(tile.support, tile.window, strict=True):
        assert support.start - window.start == window.stop - support.stop == 97
    assert layout.context(Request()) == layout.PRIOR_CONTEXT
    assert layout.context(Request(no_prior=True)) == tiles.CONTEXT


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_the_former_name_of_pretrain_is_taken_with_a_note(tmp_path, scene):
    with pytest.warns(DeprecationWarning, match="pretrain"):
        former = Request(method="hydiff-ei", prior=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert former == Request(method="hydiff-ei", pretrain=7)
    np.save(tmp_path / "a.npy", scene)
    command = ["fill", str(tmp_path / "a.npy"), "-o", str(tmp_path / "b.tif"), "--dry-run"]
    done = CliRunner().invoke(app, [*command, "--method", "smooth", "--prior", "3"])
    assert "--prior N is now --pretrain N" in done.output and done.exit_code != 0


def test_by_tiles_it_fills_as_on_the_whole(packaged, tmp_path, rng):
    """Windows see all that the network does, so only the components of a sample differ."""
    y = np.tensordot(rng.exponential(size=(4, 3)), rng.standard_normal((3, 70, 90)).cumsum(2), 1)
    observed = make_mask("stripes", y.shape, 0.2, rng)
    hydiff.write(hydiff.Cube(np.where(observed, y, np.nan)), tmp_path / "a.bsq")
    request = Request(method="prior", device="cpu", outside="fill")
    limits = layout.Limits(4e9, tile=48)
    done = execute.fill_file(tmp_path / "a.bsq", tmp_path / "b.bsq", request, limits)
    assert done.record["tiles"]["filled"] == 4
    tiled = np.asarray(hydiff.read(tmp_path / "b.bsq").values)
    whole, field = fill(y, observed), hydiff.fill(y, observed, method="smooth", s=ORDERS[1])
    np.testing.assert_array_equal(tiled[:, observed], y[:, observed])
    correction = np.abs(whole.values - field.values).mean()
    assert np.abs(tiled - whole.values).mean() < 0.1 * correction
