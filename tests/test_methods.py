"""What a method can do is declared in its entry: the facts hold, and no other code probes them."""

import ast

import numpy as np
import pytest

import hydiff
from conftest import PEERS
from hydiff.methods import AUTO, METHODS, WITH_WEIGHTS, Method, choose, declared, labelled
from sources import PACKAGE, tree

OUTSIDE = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent.name != "methods"]
OUTSIDE.remove(PACKAGE / "learn" / "transforms.py")  # a family of transforms is called spectral
SMALL = {**PEERS, "exemplar": {"patch": 5}}  # settings that finish in a second


def small_settings(method):
    if method in SMALL or not METHODS[method].learned:
        return SMALL.get(method, {})
    return {"steps": 3, "channels": 4, "scales": 2}


@pytest.fixture(scope="module")
def cube():
    """(6, 16, 16): three smooth components and a little noise of each band."""
    rows, cols = np.mgrid[:16, :16] / 16
    maps = np.stack([rows, cols, np.sin(6 * rows) * cols])
    mix, noise = np.random.default_rng(0), np.random.default_rng(1)
    x = np.tensordot(mix.random((6, 3)), maps, 1) + 0.02 * noise.standard_normal((6, 16, 16))
    return (x - x.min()) / np.ptp(x)


@pytest.fixture(scope="module")
def observed():
    """(6, 16, 16): a column that differs from band to band, and a block without any band."""
    found = np.ones((6, 16, 16), bool)
    found[:3, :, 3] = found[2:, :, 9] = found[:, 5:8, 11:14] = False
    return found


@pytest.fixture(autouse=True, scope="module")
def _prior(some_prior):
    SMALL["prior"] = some_prior


def fill(cube, observed, method, **options):
    return hydiff.fill(
        cube, observed, method=method, device="cpu", **{**small_settings(method), **options}
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_method_uses_sigma_and_replaces_noisy_entries_exactly_if_declared(cube, observed, method):
    some, more = (fill(cube, observed, method, sigma_y=s) for s in (0.05, 0.2))
    changed = not np.array_equal(some.raw, more.raw, equal_nan=True)
    assert changed == METHODS[method].uses_sigma
    ignored = [n for n in some.notes if "not use sigma_y" in n or "not model noise" in n]
    assert bool(ignored) != METHODS[method].uses_sigma
    kept = np.array_equal(some.values[observed], cube[observed])
    assert kept != METHODS[method].replaces_noisy
    assert bool((some.sigma_y > 0).all()) == METHODS[method].replaces_noisy


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others_only_if_declared(
    cube, observed, method
):
    runs = (fill(cube, observed, method, sigma_y=0.1, seed=seed) for seed in (1, 1, 2))
    one, same, other = (run.raw.tobytes() for run in runs)
    facts = METHODS[method]
    assert one == same and (facts.random or one == other) and (not facts.learned or one != other)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].needs_torch])
def test_torch_s_global_generator_is_neither_read_nor_moved(cube, observed, method):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = fill(cube, observed, method, sigma_y=0.1).raw.tobytes()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert fill(cube, observed, method, sigma_y=0.1).raw.tobytes() == one


@pytest.mark.parametrize("method", METHODS)
def test_a_truth_poisoned_under_the_mask_gives_the_same_result(cube, observed, method):
    for mask, sigma_y in ((observed[3], 0.0), (observed, 0.1)):
        clean = fill(cube, mask, method, sigma_y=sigma_y)
        poisoned = fill(np.where(mask, cube, np.nan), mask, method, sigma_y=sigma_y)
        assert np.array_equal(clean.raw, poisoned.raw, equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 12, 12), (2, 9, 14), (3, 20, 7), (7, 5, 5), (2, 1, 9)])
@pytest.mark.parametrize("method", METHODS)
def test_any_size_and_band_count(method, shape):
    cube, observed = np.random.default_rng(0).random(shape), np.ones(shape[1:], bool)
    observed[:, 2:4] = False
    result = fill(cube, observed, method)
    assert np.array_equal(result.values[:, observed], cube[:, observed])
    assert np.isfinite(result.values[result.filled]).all()
    blind = method == "halrtc" or not METHODS[method].whole_pixels  # halrtc: to whole columns
    assert blind or np.array_equal(result.filled, np.broadcast_to(~observed, shape))


@pytest.mark.parametrize("method", METHODS)
def test_pixels_without_any_band_are_filled_exactly_if_declared(cube, observed, method):
    lost, result = ~observed.any(axis=0), fill(cube, observed, method)
    whole = METHODS[method].whole_pixels
    assert np.isfinite(result.raw[:, lost]).all() == whole
    assert np.array_equal(result.filled, ~observed) == whole
    assert np.isfinite(result.values[result.filled]).all()
    assert np.array_equal(result.values[observed], cube[observed])


@pytest.mark.parametrize("method", METHODS)
def test_settings_that_a_method_declares_exist(method):
    facts, settings = METHODS[method], vars(choose(method).settings)
    assert {*facts.asks} <= {n for n, value in settings.items() if value is None}
    trained = facts.weights or facts.pretrained
    for name, wanted in (("transform", facts.equivariant), ("weights", trained)):
        assert (name in settings) == wanted
    assert ("error_bars" in settings) == facts.error_bars
    assert hasattr(choose(method).settings, "notes") == facts.notes


def test_auto_and_functions_have_declarations_too():
    def mine(y, observed, sigma_y, settings, *, rng):
        yield hydiff.Step(1, 1, y)

    assert declared("auto") is AUTO and AUTO.error_bars
    assert isinstance(choose(mine).facts, Method) and choose(mine).facts.uses_sigma
    with pytest.raises(hydiff.HydiffError, match="smooth"):
        declared("smoth")
    with pytest.raises(hydiff.HydiffError, match="single method"):
        choose("auto")


def test_rows_are_called_as_their_method_declares():
    label = METHODS["hir-diff"].label
    assert labelled("hir-diff (tuned)") == f"{label} (tuned)" and labelled("dhp") == "dhp"
    assert "hydiff-ei" in WITH_WEIGHTS


# ── nothing but the declaration says what a method can do ────────────────────────────────────────


def literals(node):
    """Names of methods that an expression, or a list of them, spells out."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {n.value for n in parts if isinstance(n, ast.Constant)} & {*METHODS}


def comparisons(tree):
    """Lines that compare something with the name of a method: ==, !=, in, startswith, match."""
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and called(node) in ("startswith", "removeprefix"):
            parts = node.args
        yield from (part.lineno for part in parts if literals(part))


def called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def probes(tree):
    """Lines with `getattr(… settings …, …)` or `hasattr(…)` of the same."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    tests = [c for c in calls if called(c) in ("getattr", "hasattr")]
    return [c.lineno for c in tests if "settings" in ast.unparse(c.args[0])]


def test_no_module_outside_tests_the_name_of_a_method():
    assert not [f"{path}:{line}" for path in OUTSIDE for line in comparisons(tree(path))]


def test_no_module_probes_settings():
    paths = [p for p in sorted(PACKAGE.rglob("*.py")) if "learn" not in p.parts]
    found = [(path, line) for path in paths for line in probes(tree(path))]
    assert not [f"{path}:{line}" for path, line in found if path.name != "ranges.py"]


@pytest.mark.parametrize(
    "code",
    ['a == "smooth"', 'a in (None, "dhp")', 'a.startswith("hir-diff")', 'getattr(c.settings, "s")'],
)
def test_what_is_looked_for_is_found(code):
    tree = ast.parse(code)
    assert [*comparisons(tree)] or [*probes(tree)]
