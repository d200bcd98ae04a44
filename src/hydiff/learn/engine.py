"""How a training step runs, not what it computes: a network, Adam, and their state.

A method describes one step as a function of tensors that stay in place; the engine runs it
again and again, in one of three ways that give the same numbers but for rounding:

    eager   kernel by kernel, as torch does it: the reference
    graph   the same kernels, recorded once as a CUDA graph and replayed: no cost of launching
    fused   such a graph, with the network's small kernels fused into few (`fused`, `launch`)

`side_by_side` advances several fits on one GPU, each with its own weights, statistics and stream.
"""

from __future__ import annotations

import gc
import importlib.util
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor, nn

from hydiff.errors import BadValue
from hydiff.learn.adam import Adam
from hydiff.learn.network import SkipNet

ENGINES = ("auto", "eager", "graph", "fused")
PRECISIONS = ("auto", "fp32", "tf32", "bf16")
RECORDING = threading.Lock()  # one graph at a time: torch keeps one memory pool under recording
SETTINGS = threading.RLock()  # torch's precision and number of threads are the whole process's
WARM_UP = 2  # eager steps before a graph is recorded, so that libraries settle on their kernels
MOST_GRAPHS = 8  # variants of a step worth recording
MOST_BESIDE = 8  # fits at a time: each takes four of the 32 streams that torch has

Objective = Callable[[Any], tuple[Tensor, Tensor]]  # variant → (terms of the loss, estimate)
Beyond = Callable[[Tensor], tuple[Tensor, Tensor]]  # estimate → (a further term, its gradient)
T = TypeVar("T")


class Recording(NamedTuple):
    """A step as CUDA graphs, and the tensors that they write and read."""

    graphs: list[torch.cuda.CUDAGraph]  # all of it; or up to the estimate, and from there
    losses: Tensor
    estimate: Tensor
    pull: Tensor | None  # gradient of the term that is computed between the two


def choose(
    engine: str, precision: str, network: nn.Module, device: torch.device
) -> tuple[str, str]:
    """The engine and precision that stand for `auto` here; refuses what cannot run."""
    for name, value, known in (("engine", engine, ENGINES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise BadValue(f"{name} = {value!r}: expected one of {', '.join(known)}")
    if device.type != "cuda":
        if engine in ("graph", "fused"):
            raise BadValue(f"engine = {engine!r} needs a GPU; on a CPU use engine = 'eager'")
        if precision not in ("auto", "fp32"):
            raise BadValue(f"precision = {precision!r} needs a GPU; on a CPU use 'fp32'")
        return "eager", "fp32"
    can_fuse = isinstance(network, SkipNet) and network.norm == "image"
    can_fuse = can_fuse and importlib.util.find_spec("triton") is not None
    if engine == "auto":
        engine = "fused" if can_fuse else "graph"
    if engine == "fused" and not can_fuse:
        raise BadValue(
            "engine = 'fused' is for the Skip-Net with norm = 'image', with triton installed; "
            "use engine = 'graph'"
        )
    if precision == "auto":
        precision = "bf16" if engine == "fused" else "fp32" if engine == "eager" else "tf32"
    if precision == "bf16" and engine != "fused":
        raise BadValue("precision = 'bf16' needs engine = 'fused'; use tf32 or fp32")
    return engine, precision


class Fit:
    """A network being fitted to one cube: `step` descends once, returns losses and estimate.

    lr: of Adam; a tensor beside the network where it is to change, by `set_rate`.  decay: of the
    weights, in Adam.
    f: evaluates the network, inside an objective and outside.
    rng: randomness on the network's device.  dice: on the CPU, for draws that Python looks at;
    looking at the GPU's would wait for it.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        lr: float | Tensor,
        rng: Generator,
        engine: str = "auto",
        precision: str = "auto",
        decay: float = 0.0,
    ) -> None:
        device = next(network.parameters()).device
        self.engine, self.precision = choose(engine, precision, network, device)
        self.network, self.rng = network, rng
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        self.dice = torch.Generator().manual_seed(seed)
        self.f: Callable[[Tensor], Tensor] = network
        self.fused: Any = None
        if self.engine == "fused":
            from hydiff.learn.fused import FusedSkipNet

            assert isinstance(network, SkipNet)
            dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
            self.f = self.fused = FusedSkipNet(network, dtype)
        self.graphed = self.engine != "eager"
        # Of this fit alone: what is recorded in a stream keeps that stream's scratch memory, and
        # graphs that share it must not run at the same time.
        self.stream = torch.cuda.Stream() if self.graphed else None  # type: ignore[no-untyped-call]
        self.adam = Adam(network.parameters(), lr, decay)
        self.recorded: dict[Hashable, Recording] = {}
        self.warm = 0  # eager steps taken in this process

    @property
    def how(self) -> str:
        """For people: the engine, the precision, the device."""
        gpu = self.rng.device.type == "cuda"
        return f"{self.engine}, {self.precision}, " + (
            torch.cuda.get_device_name(self.rng.device) if gpu else "CPU"
        )

    def step(
        self, objective: Objective, variant: Hashable = None, beyond: Beyond | None = None
    ) -> tuple[Tensor, Tensor]:
        """One Adam step on the sum of the terms of `objective(variant)`; the terms, the estimate.

        The objective reads tensors that stay in place; whatever else changes from step to step
        must be in `variant`, for a recorded step is replayed as it was.
        beyond: one more term of the loss, of the estimate, that cannot be recorded: it is computed
        again at every step, and is the last of the terms.
        """
        known = variant in self.recorded
        if not self.graphed or self.warm < WARM_UP or (not known and self._is_full()):
            self.warm += 1
            return self._eager(objective, variant, beyond)
        if not known:
            self._record(objective, variant, beyond)
        graphs, losses, estimate, pull = self.recorded[variant]
        assert (beyond is None) == (pull is None), "a step is recorded with its further term"
        graphs[0].replay()
        if beyond is not None and pull is not None:
            term, gradient = beyond(estimate)
            pull.copy_(gradient)
            losses = torch.cat([losses, term[None]])
            graphs[1].replay()
        return losses, estimate

    def set_rate(self, lr: float) -> None:
        """The rate of the steps to come; a recorded step reads it where it lies."""
        assert isinstance(self.adam.lr, Tensor)
        self.adam.lr.fill_(lr)

    def start_over(self, network: nn.Module) -> None:
        """From the weights of another network of the same kind; what was recorded stays."""
        self.network.load_state_dict(network.state_dict())
        self.adam.start_over()
        if self.fused is not None:
            self.fused.refresh()

    def _ahead(self, objective: Objective, variant: Hashable) -> tuple[Tensor, Tensor]:
        """The first half of a step: the terms and the estimate, for which gradients are known."""
        self.adam.forget()
        with arithmetic(self.precision):
            return objective(variant)

    def _back(self, losses: Tensor, estimate: Tensor, pull: Tensor | None) -> None:
        """The second half: gradients, those of a further term among them, and the descent."""
        with arithmetic(self.precision):
            if pull is None:
                losses.sum().backward()  # type: ignore[no-untyped-call]
            else:
                torch.autograd.backward([losses.sum(), estimate], [None, pull])
        if self.fused is not None:
            self.fused.gather()
        self.adam.step()
        if self.fused is not None:
            self.fused.refresh()

    def _eager(
        self, objective: Objective, variant: Hashable, beyond: Beyond | None
    ) -> tuple[Tensor, Tensor]:
        """Eager; before a recording in the stream of the recording, as torch needs it to be."""
        with _within(self.stream):
            losses, estimate = self._ahead(objective, variant)
            if beyond is None:
                self._back(losses, estimate, None)
                return losses.detach(), estimate.detach()
            term, gradient = beyond(estimate.detach())
            self._back(losses, estimate, gradient)
            return torch.cat([losses.detach(), term[None]]), estimate.detach()

    def _is_full(self) -> bool:
        return len(self.recorded) >= MOST_GRAPHS

    def _record(self, objective: Objective, variant: Hashable, beyond: Beyond | None) -> None:
        pool = next(iter(self.recorded.values())).graphs[0].pool() if self.recorded else None
        with RECORDING, _no_garbage_collection(), _within(self.stream):
            graph = self._graph()
            with _recording(graph, pool):
                losses, estimate = self._ahead(objective, variant)
                if beyond is None:
                    self._back(losses, estimate, None)
            graphs, pull = [graph], None
            if beyond is not None:
                pull = torch.empty_like(estimate)
                graphs.append(self._graph())
                with _recording(graphs[1], graph.pool()):
                    self._back(losses, estimate, pull)
        self.recorded[variant] = Recording(graphs, losses.detach(), estimate.detach(), pull)

    def _graph(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        return graph

    def state(self) -> dict[str, Tensor]:
        """Weights, statistics, moments and randomness: all a later process needs to go on."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for i, moments in enumerate(self.adam.moments):
            tensors |= {f"adam.{i}.{k}": v for k, v in moments._asdict().items()}
        tensors["rng"], tensors["dice"] = self.rng.get_state(), self.dice.get_state()
        return {
            k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
            for k, v in tensors.items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        place = next(self.network.parameters()).device
        if tensors["rng"].shape != self.rng.get_state().shape:
            raise BadValue(
                f"the state is of another kind of device than this {place.type}, whose random "
                "numbers differ; go on where it was made (`device=`)"
            )
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if "network." in k}
        self.network.load_state_dict(weights)
        for i, moments in enumerate(self.adam.moments):
            for name, own in moments._asdict().items():
                # older files leave out weights that never had a gradient
                own.copy_(tensors.get(f"adam.{i}.{name}", torch.zeros(())))
        self.rng.set_state(tensors["rng"])
        self.dice.set_state(tensors["dice"])
        if self.fused is not None:
            self.fused.refresh()


def side_by_side(runs: Sequence[Iterator[T]]) -> Iterator[tuple[T | None, ...]]:
    """Advance several methods in turn, each in a CUDA stream of its own: their kernels overlap.

    Yields the latest of each until all have ended; None of one that ended before it began.  What
    they yield is safe to read when the last has ended, before that only after a synchronisation.
    Without a GPU the methods simply take turns.
    """
    if len(runs) > MOST_BESIDE:
        raise BadValue(f"{len(runs)} fits side by side: expected at most {MOST_BESIDE}; take turns")
    streams: list[Any] = [None] * len(runs)
    if torch.cuda.is_available():
        streams = [torch.cuda.Stream() for _ in runs]  # type: ignore[no-untyped-call]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
    latest: list[T | None] = [None] * len(runs)
    going = list(range(len(runs)))
    while going:
        for i in tuple(going):
            with torch.cuda.stream(streams[i]):  # does nothing for None
                try:
                    latest[i] = next(runs[i])
                except StopIteration:
                    going.remove(i)
        if going:
            yield tuple(latest)
    for stream in streams:
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Whether float32 products on a GPU may take TF32 while this lasts; other threads wait."""
    tf32 = precision != "fp32"
    conv, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    with SETTINGS:
        before = conv.allow_tf32, matmul.allow_tf32
        conv.allow_tf32 = matmul.allow_tf32 = tf32
        try:
            yield
        finally:
            conv.allow_tf32, matmul.allow_tf32 = before


@contextmanager
def _within(stream: Any) -> Iterator[None]:
    """In a stream that starts after the current one, which then waits for it; None: here."""
    if stream is None:
        yield
        return
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)


@contextmanager
def _recording(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Record into a graph what is launched in the current stream.

    What torch.cuda.graph does, but for emptying the cache and collecting garbage first, which
    takes longer than all the rest when many small fits are recorded.
    """
    # thread_local: other threads may fit other cubes on this GPU meanwhile
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        yield
    except BaseException:
        with suppress(RuntimeError):  # what broke it is what the user should see
            graph.capture_end()
        raise
    graph.capture_end()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collected graph would be destroyed inside another's recording, which CUDA refuses."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
