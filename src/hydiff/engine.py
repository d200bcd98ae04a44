"""How a training step runs, not what it computes: a network, Adam, and their state.

A method describes one step as a function of tensors that stay in place; the engine runs it
again and again.  On a GPU the step is recorded once as a CUDA graph and replayed, which runs
the same kernels without the cost of a thousand launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from hydiff.errors import BadValue

ENGINES = ("auto", "eager", "graph")
RECORDING = threading.Lock()  # one graph at a time: torch keeps one memory pool under recording
WARM_UP = 3  # eager steps before a graph is recorded, so that libraries settle on their kernels
MOST_GRAPHS = 8  # variants of a step worth recording; shifts and the like have too many

Objective = Callable[[Any], tuple[Tensor, Tensor]]  # variant → (terms of the loss, estimate)


class Fit:
    """A network being fitted to one cube: `step` descends once, returns losses and estimate."""

    def __init__(
        self,
        network: nn.Module,
        *,
        lr: float,
        rng: Generator,
        engine: str = "auto",
    ) -> None:
        cuda = next(network.parameters()).device.type == "cuda"
        if engine not in ENGINES:
            raise BadValue(f"engine = {engine!r}: expected one of {', '.join(ENGINES)}")
        if engine == "graph" and not cuda:
            raise BadValue("engine = 'graph' records CUDA graphs; on a CPU use engine = 'eager'")
        self.network, self.rng = network, rng
        self.graphed = cuda and engine != "eager"
        self.adam = torch.optim.Adam(
            network.parameters(), lr=lr, capturable=self.graphed, fused=self.graphed
        )
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.warm = 0  # eager steps taken in this process

    def step(self, objective: Objective, variant: Hashable = None) -> tuple[Tensor, Tensor]:
        """One Adam step on the sum of the terms of `objective(variant)`; the terms, the estimate.

        The objective reads tensors that stay in place; whatever else changes from step to step
        must be in `variant`, for a recorded step is replayed as it was.
        """
        known = variant in self.graphs
        if not self.graphed or self.warm < WARM_UP or (not known and self._is_full()):
            self.warm += 1
            return self._eager(objective, variant)
        if not known:
            self._record(objective, variant)
        graph, losses, estimate = self.graphs[variant]
        graph.replay()
        return losses, estimate

    def _descend(self, objective: Objective, variant: Hashable) -> tuple[Tensor, Tensor]:
        self.adam.zero_grad(set_to_none=True)
        losses, estimate = objective(variant)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        return losses.detach(), estimate.detach()

    def _eager(self, objective: Objective, variant: Hashable) -> tuple[Tensor, Tensor]:
        """Eager; on a GPU in a stream of its own, as recording needs its warm-up to be."""
        if not self.graphed:
            return self._descend(objective, variant)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            outcome = self._descend(objective, variant)
        torch.cuda.current_stream().wait_stream(stream)
        return outcome

    def _is_full(self) -> bool:
        return len(self.graphs) >= MOST_GRAPHS

    def _record(self, objective: Objective, variant: Hashable) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        self.adam.zero_grad(set_to_none=True)
        # thread_local: other threads may fit other cubes on this GPU meanwhile
        with RECORDING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses, estimate = self._descend(objective, variant)
        self.graphs[variant] = (graph, losses, estimate)

    def state(self) -> dict[str, Tensor]:
        """Weights, statistics, moments and randomness: all a later process needs to go on."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for i, moments in self.adam.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{k}": torch.as_tensor(v) for k, v in moments.items()}
        tensors["rng"] = self.rng.get_state()
        return {k: v.detach().cpu().clone() for k, v in tensors.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        place = next(self.network.parameters()).device
        if tensors["rng"].shape != self.rng.get_state().shape:
            raise BadValue(
                f"the state is of another kind of device than this {place.type}, whose random "
                "numbers differ; go on where it was made (--device)"
            )
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if "network." in k}
        self.network.load_state_dict(weights)
        moments: dict[int, dict[str, Any]] = {}
        for key, value in tensors.items():
            if key.startswith("adam."):
                _, i, name = key.split(".")
                home = "cpu" if name == "step" and not self.graphed else place
                moments.setdefault(int(i), {})[name] = value.to(home, copy=True)  # Adam writes here
        groups = self.adam.state_dict()["param_groups"]
        self.adam.load_state_dict({"state": moments, "param_groups": groups})
        self.rng.set_state(tensors["rng"])
