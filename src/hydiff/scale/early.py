"""What a fill by tiles starts early, while it reads masks and makes the decision: torch, the GPU,
the workers, and the hashes of the input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

from hydiff.auto.candidates import TUNED_BY_TILES
from hydiff.auto.crew import NEEDED, many_cores
from hydiff.auto.decide import MEMORY
from hydiff.cube import Bools, Floats
from hydiff.io import provenance
from hydiff.methods import declared
from hydiff.methods.devices import is_sent_to_gpu, torch_device
from hydiff.request import Request
from hydiff.scale import tile
from hydiff.scale.layout import (
    Limits,
    Scene,
    area,
    base,
    cost,
    in_worker,
    uses_network,
    usual,
)
from hydiff.scale.plan import FilePlan
from hydiff.scale.tiles import Tile
from hydiff.workers import Run
from hydiff.workers.local import Crew, Processes

AMPLE = MEMORY  # bytes that are ample for the decision, if left besides all workers
PRIOR = "hydiff.methods.prior"  # which imports torch
# with the device
NETWORK, SOLVER = (f"{__name__}:{name}:{{}}" for name in ("load_network", "load_solver"))


@contextlib.contextmanager
def started(plan: FilePlan, run: Run) -> Iterator[Callable[[], provenance.Hashes]]:
    """Start what a fill will need, and yield a function that returns the hashes of the input.

    The network is loaded when the block ends.  After an error, as Ctrl-C, hashes and workers
    end at once.
    """
    over = Event()
    # hashing leaves the interpreter lock to others; loading does not, and is left to workers if any
    with ThreadPoolExecutor(2) as pool:
        try:
            start_workers(plan.request, plan.cube.bands, plan.limits, run)
            hashes = pool.submit(provenance.hashes_of, plan.source, over)
            loading = pool.submit(load, plan.request, run)
            yield hashes.result
            loading.result()
        except BaseException:
            over.set()
            if isinstance(run, Crew):
                run.dismiss()
            raise


def load(request: Request, run: Run) -> None:
    """Load the libraries of the network if this process may need it for the decision.

    It does not where its workers do all trials.  Python's lock, which an import holds for most of
    its time, is then left to the threads that read the masks.
    """
    elsewhere = helpers(run) is not None and many_cores() and request.budget not in TUNED_BY_TILES
    if uses_network(request) and not elsewhere:
        load_network(request.device)


def helpers(run: Run) -> Processes | None:
    """Return the workers that wait for tiles, and can meanwhile try folds; None without any."""
    return run.waiting if isinstance(run, Crew) else None


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
    if not isinstance(run, Crew):
        return
    run.imports = _imports(request)
    if _left(request, bands, limits, [usual(request, limits)]) >= AMPLE:
        run.prepare(limits.processes)


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
    run.prepare(count)
    return left


def _left(request: Request, bands: int, limits: Limits, planned: Sequence[Tile]) -> float:
    """Return the bytes that the workers leave, beside this process with one of its windows."""
    largest = max((area(tile.window) for tile in planned), default=0)
    workers = limits.processes * in_worker(request, bands, planned)
    return limits.memory - base(request) - cost(request, bands, largest) - workers


def _imports(request: Request) -> list[str]:
    """Return what the processes load at their start."""
    needed = [tile.__name__, *NEEDED]
    if uses_network(request):
        return [*needed, PRIOR, NETWORK.format(request.device)]
    on_gpu = is_sent_to_gpu(declared(request.method), request.device)
    return [*needed, "torch", SOLVER.format(request.device)] if on_gpu else needed
