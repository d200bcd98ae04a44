"""Run the training steps of a network with Adam, in one of three ways.

A method describes one step as a function of tensors that stay in place in memory.  The engine runs
this function repeatedly.  The three ways give the same numbers up to rounding:

    eager   one kernel after the other, as torch does: the reference
    graph   the same kernels, recorded once as a CUDA graph and replayed, without launch overhead
    fused   a graph in which the small kernels of the network are fused (`fused`, `kernel_calls`)

`side_by_side` advances several fits on one GPU, each with its own weights, statistics and stream.
"""

from __future__ import annotations

import gc
import importlib.util
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor, nn

from hydiff.errors import BadValue
from hydiff.learn.adam import Adam
from hydiff.learn.network import SkipNet

ENGINES = ("auto", "eager", "graph", "fused")
PRECISIONS = ("auto", "fp32", "tf32", "bf16")
RECORDING = threading.Lock()  # one graph at a time: torch has one memory pool under recording
SETTINGS = threading.RLock()  # torch's precision and number of threads hold for the whole process
WARM_UP = 2  # eager steps before a graph is recorded, in which libraries select their kernels
MOST_GRAPHS = 8  # variants of a step that are recorded; further ones run eagerly
MOST_BESIDE = 8  # most fits at a time: each uses four of the 32 streams of torch

Tensors = Mapping[str, Tensor]  # by name: the weights of a network, or the state of a fit
Objective = Callable[[Any], tuple[Tensor, Tensor]]  # variant → (terms of the loss, estimate)
Beyond = Callable[[Tensor], tuple[Tensor, Tensor]]  # estimate → (a further term, its gradient)
T = TypeVar("T")


class Recording(NamedTuple):
    """A step as CUDA graphs, and the tensors that these write and read."""

    # one for the whole step, or two: up to the estimate, and the rest
    graphs: list[torch.cuda.CUDAGraph]
    losses: Tensor
    estimate: Tensor
    pull: Tensor | None  # gradient of the term that is computed between the two graphs


def choose(
    engine: str, precision: str, network: nn.Module, device: torch.device
) -> tuple[str, str]:
    """Resolve "auto" in engine and precision for a network and a device.

    Raises BadValue for a combination that cannot run.
    """
    for name, value, choices in (("engine", engine, ENGINES), ("precision", precision, PRECISIONS)):
        if value not in choices:
            raise BadValue(f"{name} = {value!r}: expected one of {', '.join(choices)}")
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
    """A network that is fitted to one cube, one Adam step for each call of `step`.

    lr: learning rate; a tensor on the network's device if `set_rate` is to change it.
    decay: weight decay.
    f: evaluates the network, inside an objective and outside.
    rng: random generator on the network's device.  dice: a generator on the CPU, for numbers that
    Python code reads, because reading a number from the GPU would wait for the GPU.
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
        # A stream for this fit alone: a graph keeps the scratch memory of the stream in which it is
        # recorded, and graphs that share scratch memory must not run at the same time.
        self.stream = torch.cuda.Stream() if self.graphed else None  # type: ignore[no-untyped-call]
        self.adam = Adam(network.parameters(), lr, decay)
        self.recorded: dict[Hashable, Recording] = {}
        self.warm = 0  # eager steps taken in this process

    @property
    def how(self) -> str:
        """Engine, precision and device, as text for the user."""
        gpu = self.rng.device.type == "cuda"
        return f"{self.engine}, {self.precision}, " + (
            torch.cuda.get_device_name(self.rng.device) if gpu else "CPU"
        )

    def step(
        self, objective: Objective, variant: Hashable = None, beyond: Beyond | None = None
    ) -> tuple[Tensor, Tensor]:
        """Take one Adam step on the sum of the terms of `objective(variant)`.

        Returns the terms and the estimate.  The objective reads tensors that stay in place.
        Anything else that changes from step to step must be part of `variant`, since a recorded
        step is replayed unchanged.
        beyond: a further term of the loss, computed from the estimate, that cannot be recorded.  It
        is computed at every step and becomes the last of the terms.
        """
        recorded = variant in self.recorded
        if not self.graphed or self.warm < WARM_UP or (not recorded and self._is_full()):
            self.warm += 1
            return self._eager(objective, variant, beyond)
        if not recorded:
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
        """Set the learning rate in place, so that recorded steps use it too."""
        assert isinstance(self.adam.lr, Tensor)
        self.adam.lr.fill_(lr)

    def start_over(self, network: nn.Module) -> None:
        """Restart from the weights of a network of the same kind; recorded steps stay valid."""
        self.network.load_state_dict(network.state_dict())
        self.adam.start_over()
        if self.fused is not None:
            self.fused.refresh()

    def _ahead(self, objective: Objective, variant: Hashable) -> tuple[Tensor, Tensor]:
        """First half of a step: compute the terms of the loss and the estimate."""
        self.adam.forget()
        with arithmetic(self.precision):
            return objective(variant)

    def _back(self, losses: Tensor, estimate: Tensor, pull: Tensor | None) -> None:
        """Second half of a step: compute all gradients, and update the weights."""
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
        """Run a step eagerly, in the stream of the recordings, as torch needs before recording."""
        with _within(self.stream):
            losses, estimate = self._ahead(objective, variant)
            if beyond is None:
                self._back(losses, estimate, None)
                return losses.detach(), estimate.detach()
            term, gradient = beyond(estimate.detach())
            self._back(losses, estimate, gradient)
            return torch.cat([losses.detach(), term[None]]), estimate.detach()

    def _is_full(self) -> bool:
        """Whether no further step may be recorded."""
        return len(self.recorded) >= MOST_GRAPHS

    def _record(self, objective: Objective, variant: Hashable, beyond: Beyond | None) -> None:
        """Record the step of a variant as one graph, or as two if `beyond` runs between them."""
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
        """Return an empty graph that draws its random numbers from `rng`."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        return graph

    def state(self) -> dict[str, Tensor]:
        """Return weights, statistics, moments and random states: all that is needed to continue."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for i, moments in enumerate(self.adam.moments):
            tensors |= {f"adam.{i}.{k}": v for k, v in moments._asdict().items()}
        tensors["rng"], tensors["dice"] = self.rng.get_state(), self.dice.get_state()
        return {
            k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
            for k, v in tensors.items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from tensors that `state` returned."""
        device = next(self.network.parameters()).device
        if tensors["rng"].shape != self.rng.get_state().shape:
            raise BadValue(
                f"the state is of another kind of device than this {device.type}, whose random "
                "numbers differ; go on where it was made (`device=`)"
            )
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if "network." in k}
        self.network.load_state_dict(weights)
        for i, moments in enumerate(self.adam.moments):
            for name, moment in moments._asdict().items():
                moment.copy_(tensors[f"adam.{i}.{name}"])
        self.rng.set_state(tensors["rng"])
        self.dice.set_state(tensors["dice"])
        if self.fused is not None:
            self.fused.refresh()


def side_by_side(runs: Sequence[Iterator[T]]) -> Iterator[tuple[T | None, ...]]:
    """Advance several methods in turn, each in its own CUDA stream, so that their kernels overlap.

    Yields the latest value of each method until all have ended; None for one that yielded nothing.
    The values are safe to read after the last method has ended, before that only after a
    synchronisation.  Without a GPU the methods simply take turns.
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
            with torch.cuda.stream(streams[i]):  # no effect if it is None
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
    """Allow TF32 for float32 products on a GPU, unless precision is "fp32"; other threads wait."""
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
    """Run the block in a CUDA stream (None: in the current one).

    The stream first waits for the current one, which afterwards waits for the stream.
    """
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
    """Record the kernels launched in the current stream into a graph.

    Like torch.cuda.graph, but without emptying the cache and collecting garbage first, which would
    take most of the time when many small fits are recorded.
    """
    # thread_local: other threads may fit other cubes on this GPU at the same time
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        yield
    except BaseException:
        with suppress(RuntimeError):  # show the user the original error
            graph.capture_end()
        raise
    graph.capture_end()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Suspend it, since CUDA refuses to destroy a collected graph while another is recorded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
