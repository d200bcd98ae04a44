"""What a fill by tiles starts early, while it reads masks and makes the decision: torch, the GPU,
the workers, and the hash of the input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

from hydiff.auto.candidates import has_prior
from hydiff.auto.decide import MEMORY
from hydiff.cube import Bools, Floats
from hydiff.errors import has_torch
from hydiff.io import provenance
from hydiff.methods import declared
from hydiff.methods.devices import is_sent_to_gpu, torch_device
from hydiff.request import Request
from hydiff.scale import tile
from hydiff.scale.layout import Limits, Scene, area, base, cost, in_worker, usual
from hydiff.scale.plan import FilePlan
from hydiff.scale.tiles import Tile
from hydiff.workers import Run
from hydiff.workers.local import Crew

AMPLE = MEMORY  # bytes that are ample for the decision, if left besides all workers
NETWORK, SOLVER = (f"{__name__}:{name}:{{}}" for name in ("load_network", "load_solver"))


@contextlib.contextmanager
def started(plan: FilePlan, run: Run) -> Iterator[Callable[[], str]]:
    """Start what a fill will need, and yield a function that returns the hash of the input.

    The network is loaded when the block ends.  After an error, as Ctrl-C, the hash and the workers
    end at once.
    """
    over = Event()
    # hashing and loading leave the interpreter lock to others for most of their time
    with ThreadPoolExecutor(2) as pool:
        try:
            digest = pool.submit(provenance.sha256, plan.source, over)
            loading = pool.submit(load, plan.request)
            start_workers(plan.request, plan.cube.bands, plan.limits, run)
            yield digest.result
            loading.result()
        except BaseException:
            over.set()
            if isinstance(run, Crew):
                run.dismiss()
            raise


def uses_network(request: Request) -> bool:
    """Return whether `auto` may try the network that was trained on other images."""
    return request.chosen is None and not request.no_prior and has_prior() and has_torch()


def load(request: Request) -> None:
    """Load the libraries of the network if the decision in this process may try it."""
    if uses_network(request):
        load_network(request.device)


def load_network(device: str) -> None:
    """Import torch; on a GPU, also fill a small square with the network.

    This loads the GPU libraries, so that no tile has to wait for them.
    """
    from hydiff.methods.prior import Prior, prior

    place = torch_device(device)
    if place.type != "cuda":
        return
    import torch

    with contextlib.suppress(torch.OutOfMemoryError):  # the fill itself will report it
        for _ in prior(*_square(), Prior(components=4), rng=np.random.default_rng(0), device=place):
            pass


def load_solver(device: str) -> None:
    """Import torch and fill a small square by `smooth` on the GPU, as in `load_network`."""
    from hydiff.methods.smooth import Smooth, smooth

    place, settings = torch_device(device), Smooth(components=4)
    for _ in smooth(*_square(), settings, rng=np.random.default_rng(0), device=place):
        pass


def _square() -> tuple[Floats, Bools, Floats]:
    """Return a small cube (8, 64, 64) with a gap, its mask (64, 64), and no noise (8,)."""
    y, observed = np.random.default_rng(0).random((8, 64, 64)), np.ones((64, 64), bool)
    observed[24:32] = False
    return np.where(observed, y, 0.0), observed, np.zeros(8)


def start_workers(request: Request, bands: int, limits: Limits, run: Run) -> None:
    """Start the processes that will fill tiles before the gaps are known, if memory allows them
    with gaps of usual width, besides the decision."""
    if isinstance(run, Crew) and _left(request, bands, limits, [usual(request, limits)]) >= AMPLE:
        run.prepare(limits.processes, _imports(request))


def room(scene: Scene, run: Run) -> float:
    """Return the bytes that are left for the trials of the decision.

    The processes that will fill tiles run from now on if memory allows them besides the decision.
    """
    request, bands, planned = scene.request, scene.cube.bands, scene.planned
    alone = max(_left(request, bands, scene.limits._replace(processes=0), planned), 0.0)
    if not isinstance(run, Crew):
        return alone
    count = min(scene.limits.processes, len(planned))
    left = _left(request, bands, scene.limits._replace(processes=count), planned)
    if left < AMPLE or run.ready > scene.limits.processes:
        run.dismiss()
    if left < AMPLE or not count:
        return alone
    run.prepare(count, _imports(request))
    return left


def _left(request: Request, bands: int, limits: Limits, planned: Sequence[Tile]) -> float:
    """Return the bytes that the workers leave, beside this process with one of its windows."""
    largest = max((area(tile.window) for tile in planned), default=0)
    workers = limits.processes * in_worker(request, bands, planned)
    return limits.memory - base(request) - cost(request, bands, largest) - workers


def _imports(request: Request) -> list[str]:
    """Return what the processes load at their start."""
    if uses_network(request):
        return [tile.__name__, NETWORK.format(request.device)]
    on_gpu = is_sent_to_gpu(declared(request.method), request.device)
    return [tile.__name__, *([SOLVER.format(request.device)] if on_gpu else [])]
