"""Anchored: `smooth`, corrected by a network that learns its errors from this cube alone.

The anchor is the smoothest field through the complete pixels, a fixed linear map.  The network gets
the anchor and the mask and adds a correction, which is zero before the fit.

Its training examples come from equivariance.  The image is moved (turned, mirrored, shifted),
measured again with the *real* mask, and anchored.  Then other pixels lie in the gaps, the gaps have
exactly the real geometry, and the true values of most of these pixels are known.  Each step draws
new motions, so that no example comes twice (docs/decisions/0007).

Letters: z (n, K, H, W) coordinates in the spectral subspace (`anchor`); ν the noise of z; α the
factor of the noise that recorruption adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor

from hydiff.errors import BadValue, UnknownName
from hydiff.learn import losses, network
from hydiff.learn.diffusion import noise_like
from hydiff.learn.engine import Fit, Tensors
from hydiff.learn.motions import motions, moved, sources, symmetric
from hydiff.learn.prior_weights import SIZES
from hydiff.methods import ranges
from hydiff.methods.anchor import AnchoredProblem, prepare
from hydiff.result import Step

TRIALS = 8  # motions on which the error of the anchor is measured
SHOWN = 20  # steps between two updates of the estimate
ALPHA = 0.5  # α, factor of the noise that recorruption adds
STARTS = ("zero", "prior")
JITTER = 0.5  # std of noise added to the input, in units of texture, against memorising pixels


@dataclass(frozen=True)
class Anchored:
    """The defaults are for a GPU; preset `short` memorises less, `fast` is for a CPU."""

    steps: int = 1500
    examples: int = 4  # moved images per step
    lr: float = 1e-3  # of Adam at the start; it falls to 0 along a cosine
    s: float = 0.0  # order of the anchor's Laplacian; 0: the best of ORDERS (1.5 with noise)
    components: int = 16  # of the spectral subspace
    split_weight: float = 1.0  # weight of pixels whose true value was measured
    ei_weight: float = 0.0  # weight of pixels whose target is our own estimate
    channels: int = 64  # of the Skip-Net
    scales: int = 4
    symmetries: bool = True  # average the estimate over the symmetries of the image
    hold_back: float = 0.0  # share of observed pixels not used in the fit, to monitor it
    engine: str = "auto"  # how steps are executed: auto | eager | graph | fused
    precision: str = "auto"  # of the network: auto | fp32 | tf32 | bf16
    # zero | prior: a new network, or the network of the prior (`methods.tuned`), which has its own
    # order, components and channels, and learns at a fifth of the rate
    start: str = "zero"
    size: str = "full"  # of the prior's network: full | small

    PRESETS: ClassVar[dict[str, Anchored]]

    def __post_init__(self) -> None:
        counts = ("steps", "examples", "components", "channels", "scales")
        ranges.above_zero(self, *counts, "lr")
        if self.s != 0 and not 0.5 <= self.s <= 2:
            raise BadValue(f"s = {self.s:g} is outside 0.5 ... 2; 0 lets the cube decide")
        for name, known in (("start", STARTS), ("size", SIZES)):
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), known)
        weights = self.split_weight, self.ei_weight
        if not (min(weights) >= 0 and sum(weights) > 0):
            raise BadValue(
                f"split_weight = {weights[0]}, ei_weight = {weights[1]}: expected 0 or more, "
                "and not both 0"
            )
        ranges.shares_below_one(self, "hold_back")

    @property
    def pretrained(self) -> bool:
        """Whether it starts from a network that was trained on other images."""
        return self.start == "prior"

    def decisive(self, noisy: bool) -> dict[str, Any]:
        """Return the settings that identify a benchmark row, but no `start` for a new network."""
        settings = asdict(self)
        if self.start == "zero":
            del settings["start"], settings["size"]
        return settings


Anchored.PRESETS = {
    "full": Anchored(),
    "short": Anchored(steps=500, examples=1),
    "fast": Anchored(steps=200, examples=1, channels=32),
    "prior": Anchored(steps=300, examples=1, start="prior"),
    "small-prior": Anchored(steps=100, examples=1, start="prior", size="small"),
}


class Examples(NamedTuple):
    """Training examples made of n moved images of the cube."""

    given: Tensor  # (n, I, H, W) input of the network
    target: Tensor  # (n, K, H, W) correction of the anchor that it should return
    true: Tensor  # (n, H, W) weight of pixels whose true value was measured
    own: Tensor  # (n, H, W) weight of pixels whose target is our own estimate


def examples(problem: AnchoredProblem, z: Tensor, motion: Tensor, rng: Generator) -> Examples:
    """Move z (1, K, H, W), which has no gaps, by each motion (n, 3); measure with the real mask.

    The input of the network is jittered: the texture of a pixel says nothing about its neighbours,
    but identifies the pixel.  With noise, the estimated part of z gets noise added, and the
    measured image is corrupted once more: z + α n is the input, z - n / α the target.  Their noises
    are independent, so that fitting one to the other does not fit noise
    (recorrupted-to-recorrupted, Pang et al. 2021).
    """
    image, target, true, estimated = measured_again(
        z, problem.complete, problem.noise, JITTER * problem.texture, motion, rng
    )
    anchor = problem.anchor(image)
    return Examples(shown_to_network(problem, image, anchor), target - anchor, true, estimated)


def measured_again(
    z: Tensor,
    complete: Tensor,
    noise: Tensor | None,
    texture: Tensor,
    motion: Tensor,
    rng: Generator,
) -> Examples:
    """Return the inputs and targets of `examples` as images, before the anchor is subtracted.

    noise, texture: of z, as in `AnchoredProblem`.
    """
    mask = complete.to(z.dtype)
    weight = 1 - mask
    source = sources(motion, complete.shape)
    if noise is None:
        target = moved(z, source)
        image = target + texture * noise_like(target, rng)
    else:
        batch = z.expand(len(motion), -1, -1, -1)
        fresh, n = (_noise(noise, batch, rng) for _ in range(2))
        x = moved(z + (1 - mask) * fresh, source)
        image, target = x + ALPHA * n, x - mask * n / ALPHA
        weight = weight + mask / (1 + ALPHA**-2)  # less weight, since these targets are noisier
    measured = moved(mask[None, None], source)[:, 0]
    return Examples(image, target, weight * measured, weight * (1 - measured))


def _noise(mixing: Tensor, like: Tensor, rng: Generator) -> Tensor:
    """Draw noise of components (b, K, H, W); mixing (K, K) turns white noise into it."""
    return torch.einsum("kj,bjhw->bkhw", mixing, noise_like(like, rng))


def shown_to_network(problem: AnchoredProblem, z: Tensor, anchor: Tensor) -> Tensor:
    """Return the network's input: anchor, mask and, with noise, the part the anchor removed."""
    complete = problem.complete.to(z.dtype)
    parts = [anchor / problem.spread, complete.expand_as(z[:, :1])]
    if problem.noise is not None:
        nu = problem.noise.square().sum(1).sqrt().view(1, -1, 1, 1)
        parts.append((z - anchor) * complete / nu)
    return torch.cat(parts, dim=1)


def typical_error(problem: AnchoredProblem, dice: Generator, rng: Generator) -> Tensor:
    """Return the anchor's RMS error (1, K, 1, 1) in gaps, without noise: the network's unit."""
    motion = motions(TRIALS, problem.z.shape[-2:], dice).to(problem.z.device)
    trial = examples(problem, problem.z, motion, rng)
    where = trial.true * ~problem.complete
    total = (trial.target.square() * where[:, None]).sum((0, 2, 3))
    square = total / where.sum().clamp_min(1)
    if problem.noise is not None:
        nu2 = problem.noise.square().sum(1)
        square = torch.maximum(square - nu2, 0.01 * nu2)
    return torch.sqrt(square + 1e-12).view(1, -1, 1, 1)


class Resumable:
    """A fit that can be resumed."""

    fit: Fit
    z: Tensor  # image that the examples are made of, updated in place

    def state(self, i: int, x: Tensor) -> Tensors:
        """Return the state to resume from after step i, whose estimate is x (C, H, W)."""
        return self.fit.state() | {"done": torch.tensor(i), "z": self.z.clone(), "x": x}

    def load(self, state: Tensors) -> tuple[int, Tensor]:
        """Restore a state; return its step and estimate."""
        self.fit.load(dict(state))
        self.z.copy_(state["z"])
        return int(state["done"]), state["x"].to(self.z.device)


class Learner(Resumable):
    """The network for one problem, the state of its fit, and its correction of the anchor."""

    def __init__(
        self, problem: AnchoredProblem, settings: Anchored, seeds: Sequence[int], rng: Generator
    ) -> None:
        device = problem.z.device
        self.problem, self.settings, self.rng = problem, settings, rng
        self.unit = typical_error(problem, torch.Generator().manual_seed(seeds[0]), rng)
        self.anchor = problem.anchor(problem.z)
        self.shown = shown_to_network(problem, problem.z, self.anchor)
        size = {"channels": settings.channels, "scales": settings.scales}
        f = network.build_residual(
            self.shown.shape[1], problem.z.shape[1], **size, seed=seeds[1]
        ).to(device)
        rate = torch.tensor(settings.lr, device=device)
        self.fit = Fit(f, lr=rate, rng=rng, engine=settings.engine, precision=settings.precision)
        # where the correction applies: without noise only in the gaps
        complete = problem.complete
        self.gaps = ~complete if problem.noise is None else torch.ones_like(complete)
        self.z = problem.z.clone()  # these two stay in place: a recorded step reads them
        self.motion = torch.zeros((settings.examples, 3), dtype=torch.int64, device=device)

    def objective(self, _: None) -> tuple[Tensor, Tensor]:
        """Return the terms of the loss (2,) and the relative errors (n, K, H, W) of the batch."""
        batch, unit = examples(self.problem, self.z, self.motion, self.rng), self.unit
        error = (unit * self.fit.f(batch.given) - batch.target) / unit.square().mean().sqrt()
        # the length of the error vector of a pixel, not its square, so that edges do not dominate
        length = (error.square().mean(dim=1) + 1e-4).sqrt()
        split, ei = self.settings.split_weight, self.settings.ei_weight
        weights = torch.stack([split * batch.true, ei * batch.own])
        return (length * weights).sum((1, 2, 3)) / weights.sum().clamp_min(1), error

    def step(self, i: int) -> Tensor:
        """Do the i-th step, counted from 1, and return the terms of its loss (2,)."""
        settings = self.settings
        self.fit.set_rate(settings.lr * (1 + math.cos(math.pi * (i - 1) / settings.steps)) / 2)
        self.motion.copy_(motions(settings.examples, self.gaps.shape, self.fit.dice))
        terms, _ = self.fit.step(self.objective)
        return terms.clone()

    @torch.no_grad()
    def correction(self, symmetries: bool = False) -> Tensor:
        """Return the correction (1, K, H, W) to add to the anchor."""
        f, shown = self.fit.f, self.shown
        count = (8 if shown.shape[-1] == shown.shape[-2] else 4) if symmetries else 1
        return self.gaps * self.unit * symmetric(f, shown, count)

    def cube(self, correction: Tensor) -> Tensor:
        """Return the cube (C, H, W) with a correction (1, K, H, W)."""
        bands = torch.einsum("ck,khw->chw", self.problem.spectra, correction[0])
        return self.problem.base + bands


def anchored(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: Anchored,
    *,
    rng: Generator,
    resume: Tensors | None = None,
) -> Iterator[Step]:
    """Fill a cube by the anchor and the network's correction, yielding every step of the fit.

    y (C, H, W) on the unit range, 0 where missing; observed (H, W) or (C, H, W); sigma_y (C,).
    resume: the `Step.state()` of an interrupted run.
    """
    held = torch.zeros_like(observed)
    if settings.hold_back > 0:
        draw = torch.rand(y.shape[1:], generator=rng, device=y.device) < settings.hold_back
        held = observed & draw
    fit = _from_nothing
    if settings.start == "prior":
        from hydiff.methods import tuned

        fit = tuned.tuned
    for step in fit(y, observed & ~held, sigma_y, settings, rng, resume):
        if settings.hold_back > 0 and step.log:
            error = losses.mean_square(torch.where(held, step.x - y, 0.0), held).sqrt()
            step = step._replace(log={**step.log, "monitor": error})
        yield step


def _from_nothing(
    y: Tensor,
    observed: Tensor,
    sigma_y: Tensor,
    settings: Anchored,
    rng: Generator,
    resume: Tensors | None,
) -> Iterator[Step]:
    """Yield the steps of the fit of a new network; the arguments are those of `anchored`."""
    T = settings.steps
    first, *seeds = torch.randint(2**31, (3,), generator=rng, device=y.device).tolist()
    problem = prepare(y, observed, sigma_y, settings.components, settings.s, first)
    if problem.noise is None and bool(problem.complete.all()):  # nothing to fill or denoise
        yield Step(1, 1, problem.base)
        return
    learner = Learner(problem, settings, seeds, rng)
    done, x = (0, problem.base) if resume is None else learner.load(resume)
    for i in range(done + 1, T + 1):
        log = dict(zip(("split", "ei"), learner.step(i), strict=True))
        if i % SHOWN == 0:
            change = learner.correction()
            x = learner.cube(change)
            learner.z.copy_(torch.where(problem.complete, learner.z, learner.anchor + change))
        yield Step(i, T + 1, x, log, partial(learner.state, i, x))
    change = learner.correction(settings.symmetries)
    how = "; ".join(filter(None, (learner.fit.how, problem.anchor.how)))
    yield Step(T + 1, T + 1, learner.cube(change), how=how)
