"""`anchored` with `start=prior`: the network of the prior, taught a little more by the cube itself.

As in `anchored` the image is moved and measured again with the real mask, so that measured pixels
lie in the gaps.  Here the network knows already what other images taught it: few steps at a low
rate do, all planes at once.  The fill is the mean of what it says before and after, for the steps
may teach it too much of this cube.

Letters: z (1, k, H, W) planes as the network sees them (`prior.UnitPlanes`), k of the components;
the error of plane j in the cube is that of z_j times its scale.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hydiff.cube import Array, Floats
from hydiff.learn import prior_weights
from hydiff.learn.engine import Fit
from hydiff.learn.field import Field
from hydiff.learn.motions import motions
from hydiff.learn.plane_network import ORDERS, corrected
from hydiff.methods.anchored import ALPHA, TRIALS, Anchored, measured_again
from hydiff.methods.equivariant import Tensors
from hydiff.methods.prior import (
    Prior,
    Symmetric,
    corrected_planes,
    named,
    parts_of,
    shown_of,
    trust,
)
from hydiff.methods.smooth import coordinates, cube_step
from hydiff.result import Step

RATE = 0.2  # of Adam, times that of a network that starts from nothing
RENEWALS = 2  # times that the estimate in the gaps, a part of the moved images, is renewed


def tuned(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: Anchored,
    rng: Generator,
    resume: Tensors | None,
) -> Iterator[Step]:
    """The steps of `anchored`, whose arguments these are."""
    tuner, T = Tuner(y, observed, sigma_y, settings, rng), settings.steps
    if not tuner.useful:
        yield Step(1, 1, tuner.cube())
        return
    done, x = (0, tuner.cube()) if resume is None else tuner.load(resume)
    for i, loss, renewed in tuner.steps(done):
        x = tuner.cube() if renewed else x
        yield Step(i, T + 1, x, {"split": loss}, partial(tuner.state, i, x))
    tuner.average(8 if settings.symmetries else 1)
    yield Step(T + 1, T + 1, tuner.cube(), how=tuner.how)


def taught(
    y: Tensor, observed: Tensor, sigma_y: Tensor, settings: Anchored, rng: Generator
) -> nn.Module:
    """The network that fills: of planes of this cube, whatever of them is missing."""
    tuner = Tuner(y, observed, sigma_y, settings, rng)
    if not tuner.useful:
        return tuner.untaught
    deque(tuner.steps(), maxlen=0)
    return tuner.mean


class Mean(nn.Module):
    """What several networks say, on average."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([network(inputs) for network in self.networks]).mean(dim=0)


class Tuner:
    """The planes of one cube, the network before and after its steps, and the fill of both."""

    def __init__(
        self, y: Tensor, observed: Tensor, sigma_y: Tensor, settings: Anchored, rng: Generator
    ) -> None:
        self.settings, self.rng, self.device = settings, rng, y.device
        own = Prior(size=settings.size)
        self.file = own.file()
        self.untaught = prior_weights.network_of(self.file, str(y.device))
        values, flags, sigma = (a.cpu().numpy() for a in (y.double(), observed, sigma_y.double()))
        values = np.where(flags, values, 0.0)
        self.c = coordinates(values, flags, sigma, own.components)
        self.parts = parts_of(self.c, own.planes)
        self.shown = shown_of(self.parts, self.c, self.device)
        self.before = self.after = corrected_planes(self.shown, self.untaught)
        complete = self.c.complete
        wanted = self.c.noisy or not complete.all()
        self.useful = bool(len(self.parts.p) and complete.any() and wanted)
        if not self.useful:
            return
        self.unit = self.shown.unit
        self.level = self._tensor(self.shown.noise)
        self.noise = torch.diag(self.level) if self.c.noisy else None
        self.complete = torch.as_tensor(complete, device=self.device)
        self.gate = self._tensor(trust(complete))
        self.fields = [Field(self.complete, s) for s in ORDERS]
        self.z = self._planes(self.before)  # these two stay in place: a recorded step reads them
        self.motion = torch.zeros((settings.examples, 3), dtype=torch.int64, device=self.device)
        network = copy.deepcopy(self.untaught).requires_grad_(True)
        rate = torch.tensor(RATE * settings.lr, device=self.device)
        engine, precision = settings.engine, settings.precision
        self.half = precision == "auto" and y.is_cuda  # what it has learned is applied in TF32
        self.fit = Fit(network, lr=rate, rng=rng, engine=engine, precision=precision)
        self.usual = self._usual()
        share = self._tensor(np.abs(self.unit.scale)) * self.usual.sqrt()
        self.weight = share / share.sum() / self.usual

    @property
    def how(self) -> str:
        own = f"{self.fit.how}{', bf16 while it learns' * self.half}; {named(self.file)}"
        return "; ".join([own, *{field.how for field in self.fields if field.how}])

    def objective(self, _: None) -> tuple[Tensor, Tensor]:
        """The error relative to that of the untaught network, and that of each plane (k,).

        A plane counts by the root of its share of the error in the cube: the strongest must not
        outshout the others, the weakest not count as much.
        """
        error = self._error(self.fit.network, self.motion)
        return (self.weight * error).sum()[None], error

    def step(self, i: int) -> Tensor:
        """The i-th step, counted from 1; its loss."""
        settings = self.settings
        cosine = (1 + math.cos(math.pi * (i - 1) / settings.steps)) / 2
        self.fit.set_rate(RATE * settings.lr * cosine)
        self.motion.copy_(motions(settings.examples, self.complete.shape, self.fit.dice))
        terms, _ = self.fit.step(self.objective)
        return terms[0].clone()

    def steps(self, done: int = 0) -> Iterator[tuple[int, Tensor, bool]]:
        """All that are left: number, loss, whether the estimate in the gaps was renewed then."""
        T = self.settings.steps
        every = max(T // (RENEWALS + 1), 1)
        for i in range(done + 1, T + 1):
            loss, renewed = self.step(i), i % every == 0 and i < T
            if renewed:
                self.renew()
            yield i, loss, renewed

    def renew(self) -> None:
        """The estimate in the gaps, as the network fills them now."""
        self.average(1)
        self.z.copy_(self._planes(self.after))

    def average(self, symmetries: int) -> None:
        """Fill the planes: the mean of before and after."""
        self.after = corrected_planes(self.shown, Symmetric(self.mean, symmetries))
        if self.c.noisy:  # the steps teach what lies in gaps, not what is noise elsewhere
            own = corrected_planes(self.shown, Symmetric(self.untaught, symmetries))
            self.after = np.where(self.c.complete, own, self.after)

    @property
    def mean(self) -> nn.Module:
        """The networks of before and after."""
        return Mean(self.untaught, copy.deepcopy(self.fit.network).requires_grad_(False))

    def cube(self) -> Tensor:
        """(C, H, W) the fill."""
        rng = np.random.default_rng(0)  # for error bars, which it does not give
        f = self.parts.with_planes(self.after)
        return self._tensor(cube_step(self.c, f, self.parts.covariances, False, rng).x)

    def state(self, i: int, x: Tensor) -> Tensors:
        """From which to go on after step i, whose estimate is x (C, H, W)."""
        return self.fit.state() | {"done": torch.tensor(i), "z": self.z.clone(), "x": x}

    def load(self, state: Tensors) -> tuple[int, Tensor]:
        """Go on from a state; its step and estimate."""
        self.fit.load(dict(state))
        self.z.copy_(state["z"])
        return int(state["done"]), state["x"].to(self.device)

    def _error(self, network: nn.Module, motion: Tensor) -> Tensor:
        """(k,) mean squared error on moved images, in the units of the planes."""
        one = measured_again(
            self.z, self.complete, self.noise, torch.zeros_like(self.z[:, :1]), motion, self.rng
        )
        estimate = self._estimate(network, one.given)
        true, own = self.settings.split_weight * one.true, self.settings.ei_weight * one.own
        weight = (true + own)[:, None]
        return ((estimate - one.target).square() * weight).sum((0, 2, 3)) / weight.sum().clamp_min(
            1
        )

    def _estimate(self, network: nn.Module, given: Tensor) -> Tensor:
        """(n, k, H, W) images measured again, filled."""
        n, k = given.shape[:2]
        # with noise there is more of it than in z, and the plane is rougher
        level = self.level * (1 + ALPHA**2) ** 0.5 if self.c.noisy else self.level
        rough = (1 + 2 * (ALPHA * self.level).square()).sqrt() if self.c.noisy else level + 1
        shown = given / rough[:, None, None]
        f = torch.stack([field(shown) for field in self.fields], dim=2)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.half, cache_enabled=False):
            filled = corrected(
                network,
                shown.flatten(0, 1),
                f.flatten(0, 1),
                self.complete,
                (level / rough).repeat(n),
                self.gate,
            )
        return filled.view(n, k, *given.shape[2:]) * rough[:, None, None]

    @torch.no_grad()
    def _usual(self) -> Tensor:
        """(k,) the error before any step."""
        motion = motions(TRIALS, self.complete.shape, self.fit.dice).to(self.device)
        each = [self._error(self.fit.network, one[None]) for one in motion]
        return torch.stack(each).mean(0).clamp_min(1e-12)

    def _planes(self, z: Floats) -> Tensor:
        """(1, k, H, W) components in the units of the planes."""
        mean, scale = (a[:, None, None] for a in (self.unit.mean, self.unit.scale))
        return self._tensor((z - mean) / scale)[None]

    def _tensor(self, x: Array) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32, device=self.device)
