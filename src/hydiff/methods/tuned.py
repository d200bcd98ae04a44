"""`anchored` with `start=prior`: the network of the prior, fine-tuned on the cube itself.

As in `anchored`, the image is moved and measured again with the real mask, so that measured pixels
lie in the gaps.  The network is already trained on other images: a few steps at a low rate are
enough, on all planes at once.  The fill is the mean of the network's outputs before and after the
steps, because these may overfit the cube.

Letters: z (1, k, H, W) planes as the network gets them (`prior.UnitPlanes`), from k of the
components; the error of plane j in the cube is the error of z_j times its scale.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hydiff.cube import Array, Floats
from hydiff.learn import prior_weights
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.field import Field
from hydiff.learn.motions import motions
from hydiff.learn.plane_network import ORDERS, corrected
from hydiff.methods.anchored import ALPHA, TRIALS, Anchored, Resumable, measured_again
from hydiff.methods.prior import (
    Prior,
    Symmetric,
    corrected_planes,
    named,
    network_input,
    parts_of,
    trust,
)
from hydiff.methods.smooth import coordinates, cube_step
from hydiff.result import Step

RATE = 0.2  # learning rate of Adam, relative to that of a new network
RENEWALS = 2  # times that the estimate in the gaps, which moved images contain, is updated


def tuned(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: Anchored,
    rng: Generator,
    resume: Tensors | None,
) -> Iterator[Step]:
    """Yield the steps of `anchored` with `start=prior`; the arguments are those of `anchored`."""
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


class Mean(nn.Module):
    """The mean of the outputs of several networks."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([network(inputs) for network in self.networks]).mean(dim=0)


class Tuner(Resumable):
    """The planes of a cube, the network before and after tuning, and the fills with both."""

    def __init__(
        self, y: Tensor, observed: Tensor, sigma_y: Tensor, settings: Anchored, rng: Generator
    ) -> None:
        self.settings, self.rng, self.device = settings, rng, y.device
        prior = Prior(size=settings.size)
        self.file = prior.file()
        self.untuned = prior_weights.network_of(self.file, str(y.device))
        values, flags, sigma = (a.cpu().numpy() for a in (y.double(), observed, sigma_y.double()))
        values = np.where(flags, values, 0.0)
        gpu = self.device if y.is_cuda else None
        self.c = coordinates(values, flags, sigma, prior.components, device=gpu)
        self.parts = parts_of(self.c, prior.planes)
        self.inputs = network_input(self.parts, self.c, self.device)
        self.before = self.after = corrected_planes(self.inputs, self.untuned)
        complete = self.c.complete
        wanted = self.c.noisy or not complete.all()
        self.useful = bool(len(self.parts.p) and complete.any() and wanted)
        if not self.useful:
            return
        self.unit = self.inputs.unit
        self.level = self._tensor(self.inputs.noise)
        self.noise = torch.diag(self.level) if self.c.noisy else None
        self.complete = torch.as_tensor(complete, device=self.device)
        self.gate = self._tensor(trust(complete))
        self.fields = [Field(self.complete, s) for s in ORDERS]
        self.z = self._planes(self.before)  # these two stay in place: a recorded step reads them
        self.motion = torch.zeros((settings.examples, 3), dtype=torch.int64, device=self.device)
        network = copy.deepcopy(self.untuned).requires_grad_(True)
        rate = torch.tensor(RATE * settings.lr, device=self.device)
        engine, precision = settings.engine, settings.precision
        self.half = precision == "auto" and y.is_cuda  # the tuned network is applied in TF32
        self.fit = Fit(network, lr=rate, rng=rng, engine=engine, precision=precision)
        self.usual = self._usual()
        share = self._tensor(np.abs(self.unit.scale)) * self.usual.sqrt()
        self.weight = share / share.sum() / self.usual

    @property
    def how(self) -> str:
        """Engine, precision, weights file and any note of the fields, as text for the user."""
        engine = f"{self.fit.how}{', bf16 while it learns' * self.half}; {named(self.file)}"
        return "; ".join([engine, *{field.how for field in self.fields if field.how}])

    def objective(self, _: None) -> tuple[Tensor, Tensor]:
        """Return the error relative to the network before tuning, and the error of each plane (k,).

        A plane is weighted by the square root of its share of the error in the cube: a compromise
        between that share, which the strongest plane would dominate, and equal weights.
        """
        error = self._error(self.fit.network, self.motion)
        return (self.weight * error).sum()[None], error

    def step(self, i: int) -> Tensor:
        """Do the i-th step, counted from 1, and return its loss."""
        settings = self.settings
        cosine = (1 + math.cos(math.pi * (i - 1) / settings.steps)) / 2
        self.fit.set_rate(RATE * settings.lr * cosine)
        self.motion.copy_(motions(settings.examples, self.complete.shape, self.fit.dice))
        terms, _ = self.fit.step(self.objective)
        return terms[0].clone()

    def steps(self, done: int = 0) -> Iterator[tuple[int, Tensor, bool]]:
        """Do the remaining steps; yield number, loss, and whether the estimate was updated."""
        T = self.settings.steps
        period = max(T // (RENEWALS + 1), 1)
        for i in range(done + 1, T + 1):
            loss, renewed = self.step(i), i % period == 0 and i < T
            if renewed:
                self.renew()
            yield i, loss, renewed

    def renew(self) -> None:
        """Update the estimate in the gaps with the current network."""
        self.average(1)
        self.z.copy_(self._planes(self.after))

    def average(self, symmetries: int) -> None:
        """Fill the planes with the mean of the networks before and after tuning."""
        self.after = corrected_planes(self.inputs, Symmetric(self.mean, symmetries))
        if self.c.noisy:  # tuning improves gaps, not the denoising of other pixels
            denoised = corrected_planes(self.inputs, Symmetric(self.untuned, symmetries))
            self.after = np.where(self.c.complete, denoised, self.after)

    @property
    def mean(self) -> nn.Module:
        """The mean of the networks before and after tuning."""
        return Mean(self.untuned, copy.deepcopy(self.fit.network).requires_grad_(False))

    def cube(self) -> Tensor:
        """Return the filled cube (C, H, W)."""
        rng = np.random.default_rng(0)  # only used for error bars, which are not computed here
        f = self.parts.with_planes(self.after)
        return self._tensor(cube_step(self.c, f, self.parts.covariances, False, rng).x)

    def _error(self, network: nn.Module, motion: Tensor) -> Tensor:
        """Return the mean squared error (k,) on moved images, in the units of the planes."""
        batch = measured_again(
            self.z, self.complete, self.noise, torch.zeros_like(self.z[:, :1]), motion, self.rng
        )
        estimate = self._estimate(network, batch.given)
        true, estimated = (
            self.settings.split_weight * batch.true,
            self.settings.ei_weight * batch.own,
        )
        weight = (true + estimated)[:, None]
        return ((estimate - batch.target).square() * weight).sum(
            (0, 2, 3)
        ) / weight.sum().clamp_min(1)

    def _estimate(self, network: nn.Module, images: Tensor) -> Tensor:
        """Fill moved and measured images (n, k, H, W)."""
        n, k = images.shape[:2]
        # recorruption adds noise to that of z, and makes the planes rougher
        level = self.level * (1 + ALPHA**2) ** 0.5 if self.c.noisy else self.level
        rough = (1 + 2 * (ALPHA * self.level).square()).sqrt() if self.c.noisy else level + 1
        scaled = images / rough[:, None, None]
        f = torch.stack([field(scaled) for field in self.fields], dim=2)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.half, cache_enabled=False):
            filled = corrected(
                network,
                scaled.flatten(0, 1),
                f.flatten(0, 1),
                self.complete,
                (level / rough).repeat(n),
                self.gate,
            )
        return filled.view(n, k, *images.shape[2:]) * rough[:, None, None]

    @torch.no_grad()
    def _usual(self) -> Tensor:
        """Return the error (k,) before any step."""
        motion = motions(TRIALS, self.complete.shape, self.fit.dice).to(self.device)
        errors = [self._error(self.fit.network, single[None]) for single in motion]
        return torch.stack(errors).mean(0).clamp_min(1e-12)

    def _planes(self, z: Floats) -> Tensor:
        """Return components z (k, H, W) in the units of the planes, (1, k, H, W)."""
        mean, scale = (a[:, None, None] for a in (self.unit.mean, self.unit.scale))
        return self._tensor((z - mean) / scale)[None]

    def _tensor(self, x: Array) -> Tensor:
        """Return an array as a float32 tensor on the device."""
        return torch.as_tensor(np.ascontiguousarray(x), dtype=torch.float32, device=self.device)
