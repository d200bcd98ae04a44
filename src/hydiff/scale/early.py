"""Start torch, the GPU and the workers of a fill by tiles early, while this process reads masks and
makes the decision."""

from __future__ import annotations

import contextlib

import numpy as np

from hydiff.auto.candidates import has_prior
from hydiff.auto.decide import MEMORY
from hydiff.errors import has_torch
from hydiff.methods.estimate import torch_device
from hydiff.request import Request
from hydiff.scale import tile
from hydiff.scale.layout import Scene, area, base, cost, in_worker
from hydiff.workers import Run
from hydiff.workers.local import Crew

AMPLE = MEMORY  # bytes that are ample for the decision, if left besides all workers
NETWORK = f"{__name__}:load_network:{{}}"


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

    y, observed = np.random.default_rng(0).random((8, 64, 64)), np.ones((64, 64), bool)
    observed[24:32] = False
    problem = (np.where(observed, y, 0.0), observed, np.zeros(8), Prior(components=4))
    with contextlib.suppress(torch.OutOfMemoryError):  # the fill itself will report it
        for _ in prior(*problem, rng=np.random.default_rng(0), device=place):
            pass


def start_workers(scene: Scene, run: Run) -> float:
    """Start the processes that will fill tiles, if memory allows them besides the decision.

    Returns the bytes that are left for the trials of the decision.
    """
    request, bands = scene.request, scene.cube.bands
    largest = max((area(t.window) for t in scene.planned), default=0)
    available = scene.limits.memory - base(request) - cost(request, bands, largest)
    count = min(scene.limits.processes, len(scene.planned))
    left = available - count * in_worker(request, bands, scene.planned)
    if not isinstance(run, Crew) or not count or left < AMPLE:
        return max(available, 0.0)
    network = [NETWORK.format(request.device)] if uses_network(request) else []
    run.prepare(count, [tile.__name__, *network])
    return left
