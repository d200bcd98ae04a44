"""Shared fixtures: a tiny low-rank cube, a mask, and the place of the development data."""

import json
import os
from pathlib import Path

# Tests run in several processes: threads of torch and numpy in each would wait for one another,
# which doubles the time.  Read when they are first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
# A filled file says when it was filled: tests that compare bytes need one date for all of them.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1767225600")
DATA = Path(os.environ.get("HYDIFF_DATA", ROOT.parent / "shared" / "data"))
# `make quick`: the files whose laws need no process, no browser and no long fit
QUICK = (
    "architecture baselines bounds classical completion cube degrade diffusion engine io io_arrays "
    "io_errors io_geotiff io_masks laws losses mask methods metrics mutants network noise smooth "
    "spectra statements terminal tiles transforms words"
)
# files with a server, a browser, workers or a long fit that all of their tests share: they come
# first, so that at the end of a run the processes divide short tests among themselves
LONG = (
    "view docs remote_workers bench bench_cells bench_tables scene hostile fused torture viewer "
    "serving train"
)
WITH_PRIOR = (
    "prior prior_weights prior_training few_bands docs doctor extras supply safety stress "
    "architecture"
)


def is_quick(path: Path) -> bool:
    return path.stem.removeprefix("test_") in QUICK.split()


def pytest_ignore_collect(collection_path, config):
    """With `-m quick` the other files are not even imported."""
    others = collection_path.match("test_*.py") and not is_quick(collection_path)
    return True if config.option.markexpr == "quick" and others else None


def pytest_collection_modifyitems(items):
    for item in items:
        if is_quick(item.path):
            item.add_marker("quick")
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG.split())


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Fills of tests are not kept beside those of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def data_dir():
    """The development scenes; tests that need them are skipped where they are absent."""
    if not DATA.is_dir():
        pytest.skip(f"no development data at {DATA}; set HYDIFF_DATA to their folder")
    return DATA


def prior_weights(path, std=0.05, width=2, seed=0, **about):
    """Write weights of the prior that are hardly trained; with std = 0 they correct nothing."""
    import torch
    from safetensors.torch import save_file

    from hydiff.learn.plane_network import PlaneNetwork

    torch.manual_seed(seed)
    network = PlaneNetwork(width)
    torch.nn.init.normal_(network.last.weight, std=std)
    tensors = {k: v.half().contiguous() for k, v in network.state_dict().items()}
    about = {"layout": 1, "settings": {"width": width}} | about
    save_file(tensors, path, metadata={"hydiff-prior": json.dumps(about)})
    return str(path)


@pytest.fixture(autouse=True, scope="module")
def _without_the_prior(request, tmp_path_factory):
    """The trained network doubles the time of a default fill: only tests that are about it, and
    the first pages, have it."""
    if request.path.stem.removeprefix("test_") in WITH_PRIOR.split():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        without_prior(patch, tmp_path_factory.mktemp("no-weights"))
        yield


def without_prior(patch, folder):
    """As if no weights had come with the package; folder: an empty one."""
    from hydiff.learn import prior_weights

    patch.setattr(prior_weights, "FOLDER", folder)


@pytest.fixture(scope="session")
def some_prior(tmp_path_factory):
    """The settings of a prior that is small and quick."""
    return {"weights": prior_weights(tmp_path_factory.mktemp("prior") / "some.safetensors")}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def tiny(rng):
    """(12, 24, 24) float64 in [0, 1]: three smooth spectra, three smooth abundance maps."""
    from scipy.ndimage import gaussian_filter

    maps = gaussian_filter(rng.standard_normal((3, 24, 24)), (0, 3, 3), mode="reflect")
    spectra = gaussian_filter(rng.standard_normal((12, 3)), (2, 0), mode="reflect")
    cube = np.tensordot(spectra, maps, 1)
    return (cube - cube.min()) / (cube.max() - cube.min())


@pytest.fixture
def stripes():
    """(24, 24), two full-height stripes and a blob; True = measured."""
    observed = np.ones((24, 24), bool)
    observed[:, 5:8] = False
    observed[:, 15:17] = False
    observed[10:14, 19:23] = False
    return observed


@pytest.fixture
def cube(tiny):
    """(5, 16, 16), for networks."""
    return tiny[:5, :16, :16]


@pytest.fixture
def observed(stripes):
    """The gaps of `cube`: (16, 16)."""
    return stripes[:16, :16]


@pytest.fixture(autouse=True)
def _safe_path_stays_inside():
    """The command line sets it for its workers; tests that start Python must not see it."""
    yield
    os.environ.pop("PYTHONSAFEPATH", None)
